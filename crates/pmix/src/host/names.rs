//! Names that tasks publish and look up (`MPI_Publish_name`, ports). One host, the name keeper,
//! stores them for the step and for all steps that its tasks spawn; the other hosts send requests
//! to it.

use super::MpiHost;
use crate::info::{Infos, Packed};
use crate::upcall::{Done, Lookup};
use crate::wire::{PublishedValue, Wire};
use crate::{ProcName, status};
use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

/// The table of the name keeper, and the requests of this host to the keeper.
#[derive(Debug)]
pub(super) struct Names {
    /// The host that is the name keeper.
    pub(super) keeper: String,
    kept: BTreeMap<String, KeptName>,
    seekers: Vec<Seeker>,
    done: HashMap<u64, Done>,
    lookups: HashMap<u64, Lookup>,
}

/// A published name.
#[derive(Debug)]
struct KeptName {
    /// The host of the task that has published it.
    host: String,
    value: PublishedValue,
}

/// A process that waits for names to be published.
#[derive(Debug)]
struct Seeker {
    host: String,
    ticket: u64,
    keys: Vec<String>,
    until: Option<Instant>,
}

/// An answer that is due.
#[derive(Debug, PartialEq)]
pub(super) struct NamesAnswer {
    /// The host that has asked.
    host: String,
    /// Ticket of the question.
    ticket: u64,
    /// The names found, with their values.
    entries: Vec<PublishedValue>,
}

impl Names {
    pub(super) fn new(keeper: String) -> Names {
        Names {
            keeper,
            kept: BTreeMap::new(),
            seekers: Vec::new(),
            done: HashMap::new(),
            lookups: HashMap::new(),
        }
    }

    /// As the keeper: stores published names; a name that exists is refused.
    pub(super) fn publish(
        &mut self,
        host: &str,
        entries: Vec<(String, PublishedValue)>,
    ) -> (i32, Vec<NamesAnswer>) {
        if entries.iter().any(|(key, _)| self.kept.contains_key(key)) {
            return (status::DUPLICATE_KEY, Vec::new());
        }
        for (key, value) in entries {
            let host = host.to_owned();
            self.kept.insert(key, KeptName { host, value });
        }
        let (ready, waiting) = std::mem::take(&mut self.seekers)
            .into_iter()
            .partition::<Vec<Seeker>, _>(|s| s.keys.iter().all(|k| self.kept.contains_key(k)));
        self.seekers = waiting;
        let answers = ready
            .into_iter()
            .map(|seeker| self.answer(seeker))
            .collect();
        (status::SUCCESS, answers)
    }

    pub(super) fn lookup(
        &mut self,
        host: &str,
        ticket: u64,
        keys: Vec<String>,
        wait: bool,
        timeout_s: u64,
    ) -> Vec<NamesAnswer> {
        let all = keys.iter().all(|k| self.kept.contains_key(k));
        let is_waiting = wait && !all;
        let may_wait = is_waiting && timeout_s > 0;
        let seeker = Seeker {
            host: host.to_owned(),
            ticket,
            keys,
            until: may_wait.then(|| Instant::now() + Duration::from_secs(timeout_s)),
        };
        if is_waiting {
            self.seekers.push(seeker);
            return Vec::new();
        }
        vec![self.answer(seeker)]
    }

    /// The answer to a question, from the names published so far.
    fn answer(&self, seeker: Seeker) -> NamesAnswer {
        let kept = seeker.keys.iter().filter_map(|key| self.kept.get(key));
        let entries = kept.map(|name| name.value.clone()).collect();
        NamesAnswer {
            host: seeker.host,
            ticket: seeker.ticket,
            entries,
        }
    }

    pub(super) fn unpublish(&mut self, proc: &ProcName, keys: &[String]) {
        self.kept.retain(|key, name| {
            name.value.owner != *proc || !(keys.is_empty() || keys.contains(key))
        });
    }

    /// Removes names published by a host that has disconnected.
    pub(super) fn forget_host(&mut self, host: &str) {
        self.kept.retain(|_, name| name.host != host);
        self.seekers.retain(|s| s.host != host);
        if self.keeper == host {
            // Dropping a request answers it with an error.
            self.done.clear();
            self.lookups.clear();
        }
    }

    /// Answers the questions whose time is over, with the names published so far.
    pub(super) fn expire(&mut self, now: Instant) -> Vec<NamesAnswer> {
        let (late, waiting) = std::mem::take(&mut self.seekers)
            .into_iter()
            .partition::<Vec<Seeker>, _>(|s| s.until.is_some_and(|at| at <= now));
        self.seekers = waiting;
        late.into_iter().map(|seeker| self.answer(seeker)).collect()
    }

    pub(super) fn next_expiry(&self) -> Option<Instant> {
        self.seekers.iter().filter_map(|s| s.until).min()
    }
}

impl MpiHost {
    pub(super) fn answer_names(&mut self, answers: Vec<NamesAnswer>) {
        for answer in answers {
            let (ticket, entries) = (answer.ticket, answer.entries);
            self.mesh
                .send(&answer.host, &Wire::Found { ticket, entries });
        }
    }

    pub(super) fn publish(
        &mut self,
        proc: ProcName,
        infos: Packed,
        keys: Vec<String>,
        reply: Done,
    ) {
        // One entry per name, because names are looked up and withdrawn one by one.
        let unpacked = Infos::unpacked(self.library, &infos);
        let entries = keys
            .into_iter()
            .zip(unpacked.raw())
            .map(|(key, info)| {
                let value = PublishedValue {
                    owner: proc.clone(),
                    value: Infos::packed(self.library, std::slice::from_ref(info)),
                };
                (key, value)
            })
            .collect();
        let ticket = self.ticket();
        self.names.done.insert(ticket, reply);
        self.ask_keeper(&Wire::Publish { ticket, entries });
    }

    pub(super) fn lookup(&mut self, keys: Vec<String>, wait: bool, timeout_s: u64, reply: Lookup) {
        let ticket = self.ticket();
        self.names.lookups.insert(ticket, reply);
        self.ask_keeper(&Wire::Lookup {
            ticket,
            keys,
            wait,
            timeout_s,
        });
    }

    pub(super) fn unpublish(&mut self, proc: ProcName, keys: Vec<String>, reply: Done) {
        let ticket = self.ticket();
        self.names.done.insert(ticket, reply);
        self.ask_keeper(&Wire::Unpublish { ticket, proc, keys });
    }

    fn ask_keeper(&mut self, message: &Wire) {
        let keeper = self.names.keeper.clone();
        self.mesh.send(&keeper, message);
    }

    pub(super) fn found(&mut self, ticket: u64, entries: &[PublishedValue]) {
        let Some(reply) = self.names.lookups.remove(&ticket) else {
            return;
        };
        let found: Vec<(ProcName, Infos)> = entries
            .iter()
            .map(|found| {
                let infos = Infos::unpacked(self.library, &found.value);
                (found.owner.clone(), infos)
            })
            .collect();
        let status = if found.is_empty() {
            status::NOT_FOUND
        } else {
            status::SUCCESS
        };
        reply.give(status, &found);
    }

    /// The status of a request that was sent to another host.
    pub(super) fn answered(&mut self, ticket: u64, status: i32, from: &str) {
        match self.names.done.remove(&ticket) {
            Some(reply) => reply.fail(status),
            None => self.relative_knows(ticket, from),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(rank: u32) -> PublishedValue {
        let nspace = "n".to_owned();
        PublishedValue {
            owner: ProcName { nspace, rank },
            value: Packed::default(),
        }
    }

    fn answer(host: &str, ticket: u64, entries: Vec<PublishedValue>) -> NamesAnswer {
        NamesAnswer {
            host: host.to_owned(),
            ticket,
            entries,
        }
    }

    #[test]
    fn names_are_kept_found_awaited_and_withdrawn() {
        let mut names = Names::new("k".to_owned());
        let key = |k: &str| vec![k.to_owned()];
        assert!(names.lookup("b", 1, key("x"), true, 0).is_empty());
        assert_eq!(
            names.lookup("b", 2, key("x"), false, 0),
            [answer("b", 2, vec![])]
        );
        let (status, answers) = names.publish("a", vec![("x".to_owned(), entry(0))]);
        assert_eq!(status, status::SUCCESS);
        assert_eq!(answers, [answer("b", 1, vec![entry(0)])]);
        let (status, _) = names.publish("b", vec![("x".to_owned(), entry(1))]);
        assert_eq!(status, status::DUPLICATE_KEY);
        names.unpublish(&entry(1).owner, &key("x"));
        assert_eq!(names.lookup("b", 3, key("x"), false, 0)[0].entries.len(), 1);
        names.unpublish(&entry(0).owner, &key("x"));
        assert_eq!(names.lookup("b", 4, key("x"), false, 0)[0].entries.len(), 0);
        assert!(names.lookup("b", 5, key("y"), true, 1).is_empty());
        let later = Instant::now() + Duration::from_secs(2);
        assert_eq!(names.expire(later), [answer("b", 5, vec![])]);
    }
}
