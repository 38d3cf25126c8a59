//! Requests of clients, through the library, and of other hosts.

use super::{Control, MpiHost, PendingAnswer};
use crate::collective::{CollectiveName, Finish};
use crate::control::FromHost;
use crate::info::{Infos, Packed, Value};
use crate::upcall::{InfoReply, Modex, Upcall};
use crate::wire::Wire;
use crate::{ProcName, RANK_ALL, status};
use minicbor::bytes::ByteVec;
use std::collections::BTreeSet;
use std::time::Instant;

/// Whether an event is for processes of other hosts as well: `PMIX_RANGE_LOCAL` and
/// `PMIX_RANGE_PROC_LOCAL` are not.
const RANGES_HERE: [u8; 2] = [2, 7];
/// An event like `PMIX_ERR_PROC_ABORTED`: a process ended without finalizing.
const ERR_PROC_TERM_WO_SYNC: i32 = -200;

impl MpiHost {
    pub(super) fn upcall(&mut self, upcall: Upcall, control: &mut Control) {
        match upcall {
            Upcall::Connected(proc, done) => {
                control.send(&FromHost::Connected(proc.rank));
                done.fail(status::SUCCESS);
            }
            Upcall::Finalized(proc, done) => {
                // Tell the step daemon before the task: the daemon must not see the task exit
                // before it has this message.
                control.send(&FromHost::Finalized(proc.rank));
                self.finalized.insert(proc.rank);
                done.fail(status::SUCCESS);
            }
            Upcall::Abort {
                proc,
                code,
                text,
                reply,
            } => {
                control.send(&FromHost::Abort {
                    rank: proc.rank,
                    status: code,
                    text,
                });
                // The step daemon kills this task with the others. Until then the reply keeps it
                // waiting, so that the others do not see it end first.
                self.aborting.push(reply);
            }
            Upcall::Log { texts, reply } => {
                self.log(texts);
                reply.fail(status::SUCCESS);
            }
            Upcall::Query { keys, reply } => self.query(&keys, reply),
            Upcall::Fetched {
                ticket,
                status,
                data,
            } => self.fetched(ticket, status, data),
            // The addresses of the other hosts, or their number, are not known yet.
            other if !self.has_peers => self.waiting.push(other),
            other => self.request(other),
        }
    }

    /// Requests that may concern other hosts.
    pub(super) fn request(&mut self, upcall: Upcall) {
        match upcall {
            Upcall::Fence {
                procs,
                status,
                data,
                reply,
            } => self.enter_collective("fence", procs, (status, data), Finish::Fence(reply)),
            Upcall::Fetch { proc, reply } => self.fetch(proc, reply),
            Upcall::Connect {
                procs,
                leave,
                reply,
            } => {
                let kind = if leave { "disconnect" } else { "connect" };
                self.enter_collective(
                    kind,
                    procs,
                    (status::SUCCESS, Vec::new()),
                    Finish::Met(reply),
                );
            }
            Upcall::Group {
                name,
                destroy,
                procs,
                wants_id,
                data,
                reply,
            } => {
                let kind = format!("{}group {name}", if destroy { "no " } else { "" });
                let part = (self.next_group, ByteVec::from(data.unwrap_or_default()));
                let part = minicbor::to_vec(part).expect("writing to memory cannot fail");
                let finish = Finish::Group(wants_id && !destroy, reply);
                self.enter_collective(&kind, procs, (status::SUCCESS, part), finish);
            }
            Upcall::Notify {
                code,
                source,
                range,
                infos,
            } if !RANGES_HERE.contains(&range) => self.spread(code, &source, &infos),
            // The library itself notifies local processes.
            Upcall::Notify { .. } => {}
            Upcall::Control {
                targets,
                signal,
                reply,
            } => {
                self.signal(&targets, signal);
                reply.give(status::SUCCESS, Infos::new(self.library));
            }
            Upcall::Publish {
                proc,
                infos,
                keys,
                reply,
            } => self.publish(proc, infos, keys, reply),
            Upcall::Lookup {
                keys,
                wait,
                timeout_s,
                reply,
            } => self.lookup(keys, wait, timeout_s, reply),
            Upcall::Unpublish { proc, keys, reply } => self.unpublish(proc, keys, reply),
            Upcall::Spawn {
                parent,
                apps,
                reply,
            } => self.spawn(parent, &apps, reply),
            // The other requests were handled above.
            _ => {}
        }
    }

    pub(super) fn message(&mut self, from: &str, message: Wire) {
        match message {
            Wire::Exchange {
                name,
                number,
                round,
                status,
                parts,
            } => {
                let name = name.into();
                let name = CollectiveName { name, number };
                let (outgoing, outcome) = self.collectives.receive(name, round, status, parts);
                self.post(outgoing);
                outcome.into_iter().for_each(|o| self.finish(o));
            }
            Wire::Fetch { ticket, proc } => {
                let own = self.ticket();
                self.serving.insert(own, (from.to_owned(), ticket));
                let rc = self.server.fetch(&proc, own);
                if rc != status::SUCCESS {
                    self.fetched(own, rc, Vec::new());
                }
            }
            Wire::Fetched {
                ticket,
                status,
                data,
            } => {
                if let Some(asked) = self.asked.remove(&ticket) {
                    asked.reply.give(status, data.into());
                }
            }
            Wire::Notify {
                code,
                source,
                infos,
            } => self.server.notify(code, &source, &infos),
            Wire::Signal { targets, signal } => self.signal_here(&targets, signal),
            Wire::Publish { ticket, entries } => {
                let answers = self.names.publish(from, entries);
                let answer = Wire::Answer {
                    ticket,
                    status: answers.0,
                };
                self.mesh.send(from, &answer);
                self.answer_names(answers.1);
            }
            Wire::Lookup {
                ticket,
                keys,
                wait,
                timeout_s,
            } => {
                let answers = self.names.lookup(from, ticket, keys, wait, timeout_s);
                self.answer_names(answers);
            }
            Wire::Unpublish { ticket, proc, keys } => {
                self.names.unpublish(&proc, &keys);
                let status = status::SUCCESS;
                self.mesh.send(from, &Wire::Answer { ticket, status });
            }
            Wire::Found { ticket, entries } => self.found(ticket, &entries),
            Wire::Answer { ticket, status } => self.answered(ticket, status, from),
            Wire::Child { ticket, job } => self.child_came(ticket, job),
            Wire::Relatives {
                ticket,
                jobs,
                keeper,
            } => self.relatives_came(from, ticket, jobs, keeper),
            Wire::Pmi(bytes) => {
                if let Some(pmi) = &mut self.pmi {
                    pmi.message(from, &bytes, &mut self.mesh);
                }
            }
            // The request belongs to the connection.
            Wire::Bye | Wire::Ucx(_) | Wire::Reached | Wire::Acknowledged(_) | Wire::Again(..) => {}
        }
    }

    fn fetch(&mut self, proc: ProcName, reply: Modex) {
        let host = self
            .jobs
            .get(&proc.nspace)
            .and_then(|job| Some(job.hosts[job.node_of(proc.rank)?].clone()));
        // The library requests only data that it lacks, so a request for a process of this node
        // names a process that does not exist.
        let Some(host) = host.filter(|h| *h != self.mesh.own && !self.mesh.is_gone(h)) else {
            return reply.fail(status::NOT_FOUND);
        };
        let ticket = self.ticket();
        self.mesh.send(&host, &Wire::Fetch { ticket, proc });
        let until = Instant::now() + self.setup.tuning.timeout;
        self.asked
            .insert(ticket, PendingAnswer { host, reply, until });
    }

    fn fetched(&mut self, ticket: u64, status: i32, data: Vec<u8>) {
        if let Some((host, ticket)) = self.serving.remove(&ticket) {
            let answer = Wire::Fetched {
                ticket,
                status,
                data: data.into(),
            };
            self.mesh.send(&host, &answer);
        }
    }

    /// Hosts of all known name spaces except this one.
    pub(super) fn others(&self) -> BTreeSet<String> {
        let hosts = self.jobs.values().flat_map(|j| j.hosts.iter());
        hosts.filter(|h| **h != self.mesh.own).cloned().collect()
    }

    /// Sends an event to all other hosts.
    fn spread(&mut self, code: i32, source: &ProcName, infos: &Packed) {
        for host in self.others() {
            let message = Wire::Notify {
                code,
                source: source.clone(),
                infos: infos.clone(),
            };
            self.mesh.send(&host, &message);
        }
    }

    /// A task ended without finalizing: notifies processes that registered for such events.
    pub(super) fn task_failed(&mut self, rank: u32) {
        if !self.has_peers {
            return;
        }
        let source = ProcName {
            nspace: self.setup.nspace.clone(),
            rank,
        };
        let mut infos = Infos::new(self.library);
        infos.add("pmix.evproc", Value::Proc(&source));
        let packed = Infos::packed(self.library, infos.raw());
        self.spread(ERR_PROC_TERM_WO_SYNC, &source, &packed);
    }

    fn signal(&mut self, targets: &[ProcName], signal: i32) {
        let message = Wire::Signal {
            targets: targets.to_vec(),
            signal,
        };
        let targets = if targets.is_empty() {
            vec![ProcName {
                nspace: self.setup.nspace.clone(),
                rank: RANK_ALL,
            }]
        } else {
            targets.to_vec()
        };
        for host in self.members(&targets).unwrap_or_default() {
            self.mesh.send(&host, &message);
        }
    }

    fn signal_here(&mut self, targets: &[ProcName], signal: i32) {
        let of_step = |t: &&ProcName| t.nspace == self.setup.nspace;
        let ranks: Vec<u32> = targets.iter().filter(of_step).map(|t| t.rank).collect();
        if targets.is_empty() || ranks.contains(&RANK_ALL) {
            self.outbox.push(FromHost::Signal(Vec::new(), signal));
        } else if !ranks.is_empty() {
            self.outbox.push(FromHost::Signal(ranks, signal));
        }
    }

    fn log(&mut self, texts: Vec<(String, String)>) {
        for (channel, text) in texts {
            match channel.as_str() {
                "pmix.log.stdout" => {
                    let bytes = text.into_bytes().into();
                    self.outbox.push(FromHost::Output(false, bytes));
                }
                "pmix.log.stderr" | "pmix.log.global.syslog" | "pmix.log.syslog" => {
                    self.outbox.push(FromHost::Message(text));
                }
                // Directives such as time stamps affect nothing here.
                _ => {}
            }
        }
    }

    fn query(&self, keys: &[String], reply: InfoReply) {
        let mut infos = Infos::new(self.library);
        let own = self.jobs.get(&self.setup.nspace);
        for key in keys {
            match key.as_str() {
                "pmix.qry.ns" => {
                    let names: Vec<&str> = self.jobs.keys().map(String::as_str).collect();
                    infos.add(key, Value::Text(&names.join(",")));
                }
                "pmix.qry.psetnum" => infos.add(key, Value::Size(0)),
                "pmix.qry.psets" => infos.add(key, Value::Text("")),
                "pmix.job.size" | "pmix.max.size" => {
                    infos.add(key, Value::U32(own.map_or(0, super::Job::size)));
                }
                "pmix.univ.size" => infos.add(key, Value::U32(self.setup.universe)),
                "pmix.num.nodes" => {
                    let nodes = u32::try_from(self.setup.names.len()).unwrap_or(u32::MAX);
                    infos.add(key, Value::U32(nodes));
                }
                "pmix.qry.spawn" => infos.add(key, Value::Bool(true)),
                _ => {}
            }
        }
        let status = match infos.len() {
            0 => status::NOT_FOUND,
            n if n < keys.len() => status::PARTIAL_SUCCESS,
            _ => status::SUCCESS,
        };
        reply.give(status, infos);
    }

    /// All hosts have entered a group. Its context number exceeds all numbers that any of them has
    /// used.
    pub(super) fn group_complete(
        &mut self,
        status: i32,
        parts: &[ByteVec],
        wants_id: bool,
        reply: InfoReply,
    ) {
        let parts: Vec<(u64, ByteVec)> = parts
            .iter()
            .filter_map(|p| minicbor::decode(p).ok())
            .collect();
        let number = parts.iter().map(|(n, _)| *n).max().unwrap_or(0);
        self.next_group = self.next_group.max(number.saturating_add(1));
        let mut infos = Infos::new(self.library);
        if wants_id {
            // Open MPI assigns numbers from the top downwards itself.
            infos.add(
                "pmix.grp.ctxid",
                Value::Size(usize::try_from(number.saturating_add(1)).unwrap_or(1)),
            );
        }
        let data: Vec<u8> = parts.iter().flat_map(|(_, d)| d.iter().copied()).collect();
        if !data.is_empty() {
            infos.add("pmix.grp.endpt", Value::Bytes(&data));
        }
        reply.give(status, infos);
    }
}
