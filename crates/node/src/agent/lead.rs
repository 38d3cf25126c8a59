//! Steps of jobs that this node leads: laid out, started on their nodes, followed to their end. The controller learns
//! of them in batches and nothing waits for it. What must survive the agent is kept by the shim.

mod ends;
mod numbers;

use super::closing::Streams;
use super::quota::Charge;
use super::step_node::{Early, Listening};
use super::{Agent, Event};
use crate::now;
use crate::sys;
use minicbor::Encode;
use minicbor::bytes::ByteVec;
use muster_core::cpuset::CpuSet;
use muster_core::hostlist;
use muster_core::ids::{JobId, StepNo};
use muster_core::job::StepEnd;
use muster_core::refusal::{Refusal, RefusalCode};
use muster_core::rights::{self, Request};
use muster_node_core::job_table::is_owner_key;
use muster_node_core::kept_entries::is_kept_of;
use muster_node_core::layout::{self, Held, NoLayout};
use muster_node_core::messages::{JobAttempt, KeptEntries, LauncherCommand};
use muster_node_core::record::Record;
use muster_node_core::step_numbers::StepNumbers;
use muster_proto::node::{JobGrant, Report};
use muster_proto::step::{
    AgentReply, AgentRequest, StepCreated, StepLaunch, StepNode, StepShare, StepSpec,
};
use std::collections::{HashMap, HashSet, VecDeque};
use std::rc::Rc;
use std::time::Duration;
use tokio::sync::mpsc;

/// A step of a job.
pub(super) type StepKey = (JobId, StepNo);
/// Where answers to a connection go.
pub(super) type Reply = mpsc::UnboundedSender<AgentReply>;

/// Under this number the shim keeps the next step's number; steps are kept under their own.
const KEPT_NEXT: u32 = u32::MAX;
/// A step that waits shorter than this gets no message about it: the one before it is only being cleaned up.
const QUIET: Duration = Duration::from_millis(200);

/// All steps led from here.
#[derive(Default)]
pub(super) struct Steps {
    waiting: VecDeque<Waiting>,
    running: HashMap<StepKey, Running>,
    numbers: HashMap<JobId, StepNumbers>,
    /// Something changed that may let a waiting step start.
    dirty: bool,
}

/// srun's request for a step.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) conn: u64,
    pub(super) uid: u32,
    pub(super) spec: StepSpec,
    /// srun's own, if it hands them over.
    pub(super) streams: Option<Streams>,
    pub(super) reply: Reply,
    /// Counts against what its user may have waiting here.
    pub(super) charge: Charge,
}

impl Asked {
    /// There is no such job here.
    pub(super) fn refuse_unknown(&self) {
        let detail = format!("job {} is not led by this node", self.spec.job);
        self.refuse(Refusal::new(RefusalCode::JobNotHere, detail));
    }

    pub(super) fn refuse(&self, refusal: Refusal) {
        // The client may have disconnected.
        let _ = self.reply.send(AgentReply::Refused(refusal));
    }
}

/// A step that was asked for.
struct Waiting {
    conn: u64,
    reply: Reply,
    spec: StepSpec,
    streams: Option<Streams>,
    /// The launch of the job that it was asked of.
    run: JobAttempt,
    /// A timer will tell the client that it waits.
    notified: bool,
    _charge: Charge,
}

/// A step that was laid out.
struct Running {
    run: JobAttempt,
    record: Record,
    /// Whose connection it hangs on, while srun is there.
    client: Option<(u64, Reply)>,
    /// Answers of its nodes that are still out.
    unanswered: usize,
    addresses: Vec<String>,
    /// Where the daemons listen for each other.
    wires: Vec<Option<String>>,
    error: Option<String>,
    /// Of the tree over its nodes.
    width: u32,
    /// Its task has srun's streams.
    direct: bool,
    /// Then srun learns of it by its daemon.
    exit_sent_by_daemon: bool,
}

impl Agent {
    /// srun asks for a step.
    pub(super) fn create_step(&mut self, asked: Asked) {
        let checked = layout::check_request(&asked.spec);
        let run = match checked.and_then(|()| self.may_create(asked.uid, &asked.spec)) {
            Ok(Some(run)) => run,
            Ok(None) => return self.wait_early(Early::Create(Box::new(asked))),
            Err(refusal) => return asked.refuse(refusal),
        };
        if let Some(het) = &asked.spec.het
            && let Err(refusal) = self.take_given_number(run, het)
        {
            return asked.refuse(refusal);
        }
        let Asked {
            conn,
            uid,
            spec,
            streams,
            reply,
            charge,
        } = asked;
        // A task may do more with an open file than write to it; what somebody else has is not for the job's owner.
        let grant = self.jobs.get(run).and_then(|j| j.grant.as_deref());
        let streams = streams.filter(|_| grant.is_some_and(|g| g.spec.owner.uid == uid));
        self.steps.waiting.push_back(Waiting {
            conn,
            reply,
            spec,
            streams,
            run,
            notified: false,
            _charge: charge,
        });
        self.steps.dirty = true;
    }

    /// The launch that the step is of; none when the bearer of a key knows of one that is yet to come, or the client
    /// of a smaller size of the job.
    fn may_create(&self, uid: u32, spec: &StepSpec) -> Result<Option<JobAttempt>, Refusal> {
        let by_key = spec.key.as_ref();
        let unknown_key =
            by_key.is_some_and(|key| self.jobs.with_owner_key(spec.job, key).is_none());
        if unknown_key && self.jobs.latest(spec.job).is_none_or(|(_, j)| j.is_over()) {
            return Ok(None);
        }
        let job = by_key
            .and_then(|key| self.jobs.with_owner_key(spec.job, key))
            .or_else(|| self.jobs.latest(spec.job))
            .filter(|(_, j)| j.leads());
        let Some((run, job, grant)) = job.and_then(|(run, j)| Some((run, j, j.grant.as_ref()?)))
        else {
            let detail = format!("job {} is not led by this node", spec.job);
            return Err(Refusal::new(RefusalCode::JobNotHere, detail));
        };
        let has_key = by_key.is_some_and(|key| is_owner_key(grant, key));
        let owner = grant.spec.owner.uid;
        if !rights::may_on_node(Request::CreateStep, uid, owner, has_key) {
            return Err(RefusalCode::AccessDenied.into());
        }
        if job.is_over() {
            return Err(RefusalCode::AlreadyDone.into());
        }
        if grant.resizes < spec.resizes {
            // The agent does not know of the job's size yet.
            return Ok(None);
        }
        Ok(Some(run))
    }

    /// Something else than the end of a step lets waiting ones start, or refuses them.
    pub(super) fn steps_may_fit(&mut self) {
        self.steps.dirty = true;
    }

    /// Starts waiting steps that fit, in the order in which they came. A step that waits holds up later ones of its
    /// job, but for those that share everything.
    pub(super) fn try_steps(&mut self) {
        while std::mem::take(&mut self.steps.dirty) {
            self.try_steps_once();
        }
    }

    fn try_steps_once(&mut self) {
        let mut blocked: HashSet<JobAttempt> = HashSet::new();
        for mut waiting in std::mem::take(&mut self.steps.waiting) {
            let run = waiting.run;
            if blocked.contains(&run) && !waiting.spec.overlap {
                self.wait_on(&mut waiting);
                self.steps.waiting.push_back(waiting);
                continue;
            }
            let Some(grant) = self.jobs.get(run).and_then(|j| j.grant.clone()) else {
                let _ = waiting
                    .reply
                    .send(AgentReply::Refused(RefusalCode::JobNotHere.into()));
                continue;
            };
            let owner = grant.spec.owner.uid;
            if self.must_wait_for_controller(owner) {
                // It would be one more that the controller does not know of.
                blocked.insert(run);
                self.wait_on(&mut waiting);
                self.steps.waiting.push_back(waiting);
                continue;
            }
            let most = self.max_tasks_per_node();
            let place =
                |a: &Agent| layout::lay_out(&grant.alloc, &waiting.spec, &a.held(&grant), most);
            let mut placed = place(self);
            // The client may know of an end by srun, and expects to find what that step had.
            if matches!(placed, Err(NoLayout::Busy)) && self.receive_from_daemons_of(run) {
                placed = place(self);
            }
            match placed {
                Ok(placed) => self.start_step(&grant, waiting, placed),
                Err(NoLayout::Busy) if waiting.spec.immediate => {
                    let refusal = Refusal::from(RefusalCode::NotImmediate);
                    let _ = waiting.reply.send(AgentReply::Refused(refusal));
                }
                Err(NoLayout::Busy) => {
                    blocked.insert(run);
                    self.wait_on(&mut waiting);
                    self.steps.waiting.push_back(waiting);
                }
                Err(NoLayout::Never(refusal)) => {
                    let _ = waiting.reply.send(AgentReply::Refused(refusal));
                }
            }
        }
    }

    fn wait_on(&self, waiting: &mut Waiting) {
        if std::mem::replace(&mut waiting.notified, true) {
            return;
        }
        let (events, conn) = (self.events.clone(), waiting.conn);
        tokio::spawn(async move {
            tokio::time::sleep(QUIET).await;
            let _ = events.send(Event::StillWaiting(conn));
        });
    }

    /// Tells a client that its step waits, if it still does.
    pub(super) fn still_waiting(&mut self, conn: u64) {
        if let Some(waiting) = self.steps.waiting.iter().find(|w| w.conn == conn) {
            let grant = self.jobs.get(waiting.run).and_then(|j| j.grant.as_ref());
            let owner = grant.map_or(0, |g| g.spec.owner.uid);
            let text = match self.must_wait_for_controller(owner) {
                true => "The controller has not acknowledged earlier steps",
                false => "Requested nodes are busy",
            };
            let _ = waiting.reply.send(AgentReply::Queued(text.to_owned()));
        }
    }

    /// What steps of a job hold, by node of the allocation.
    fn held(&self, grant: &JobGrant) -> Vec<Held> {
        let mut held = vec![Held::default(); grant.alloc.nodes.len()];
        let run = JobAttempt::new(grant.job, grant.attempt);
        let of_run = self.steps.running.values().filter(|r| r.run == run);
        let of_steps = of_run
            .filter(|r| r.record.holds)
            .flat_map(|r| r.record.nodes.iter().filter(|n| n.end.is_none()));
        for node in of_steps {
            let position = node.position(&grant.alloc);
            let Some(at) = position.and_then(|at| held.get_mut(at)) else {
                continue;
            };
            at.cpus.union_with(&node.cpus);
            at.memory_mib = at.memory_mib.saturating_add(node.memory_mib);
            at.gres.extend(node.gres.iter().cloned());
        }
        held
    }

    fn start_step(
        &mut self,
        grant: &Rc<JobGrant>,
        waiting: Waiting,
        mut placed: Vec<layout::Placed>,
    ) {
        let het = waiting.spec.het.as_ref();
        let (given, first) = (het.map(|h| h.step), het.map_or(0, |h| h.first_task));
        let Some(step) = given.map(StepNo).or_else(|| self.next_step(grant)) else {
            return self.refuse_for_count(waiting);
        };
        // Tasks are numbered over all components.
        placed
            .iter_mut()
            .flat_map(|place| &mut place.tasks)
            .for_each(|task| *task = task.saturating_add(first));
        let run = JobAttempt::new(grant.job, grant.attempt);
        let (mut spec, key) = (waiting.spec, sys::random_key());
        spec.resizes = grant.resizes;
        let width = self.tree_width(spec.tree_width);
        let names: Vec<String> = placed
            .iter()
            .map(|p| grant.alloc.nodes[p.node].name.clone())
            .collect();
        let record = Record::new(step, &spec, key.clone(), (&placed, &names), now());
        self.keep(run, step.0, &record);
        let exit_sent_by_daemon = spec.has_stepd_channel;
        let running = Running {
            run,
            record,
            client: Some((waiting.conn, waiting.reply)),
            unanswered: placed.len(),
            addresses: vec![String::new(); placed.len()],
            wires: vec![None; placed.len()],
            error: None,
            width: u32::try_from(width).unwrap_or(u32::MAX),
            direct: false,
            exit_sent_by_daemon,
        };
        self.steps.running.insert((grant.job, step), running);
        let launch = StepLaunch {
            key: grant.key.clone(),
            spec,
            step,
            step_key: key,
            tasks: placed.iter().map(|p| p.tasks.clone()).collect(),
            names,
            lead: grant.addresses.first().cloned().unwrap_or_default(),
            width: u32::try_from(width).unwrap_or(u32::MAX),
            // What differs by node.
            position: 0,
            cpus: CpuSet::default(),
            memory_mib: 0,
            gres: Vec::new(),
            above: None,
        };
        let shares: Vec<StepShare> = placed
            .into_iter()
            .map(|place| StepShare {
                address: grant.addresses.get(place.node).cloned().unwrap_or_default(),
                cpus: place.cpus,
                memory_mib: place.memory_mib,
                gres: place.gres,
            })
            .collect();
        self.start_everywhere(launch, &shares, waiting.streams);
    }

    /// A node's daemon listens, or cannot be started.
    pub(super) fn node_started(
        &mut self,
        key: StepKey,
        position: u32,
        result: Result<Listening, String>,
    ) {
        let Some(running) = self.steps.running.get_mut(&key) else {
            return;
        };
        running.unanswered = running.unanswered.saturating_sub(1);
        let at = position as usize;
        match result {
            Ok(Listening {
                address,
                wire,
                direct,
            }) => {
                running.direct = direct;
                if let Some(slot) = running.addresses.get_mut(at) {
                    *slot = address;
                }
                if let Some(slot) = running.wires.get_mut(at) {
                    *slot = wire;
                }
            }
            Err(error) => {
                running.error.get_or_insert(error);
                if let Some(node) = running.record.nodes.get_mut(at) {
                    node.end.get_or_insert_with(|| StepEnd::never_ran(now()));
                }
            }
        }
        if running.unanswered == 0 {
            self.step_answered(key);
        }
    }

    /// All nodes have answered.
    fn step_answered(&mut self, key: StepKey) {
        let Some(running) = self.steps.running.get(&key) else {
            return;
        };
        let Some(error) = running.error.clone() else {
            return self.step_created(key);
        };
        log::error!("step {}.{}: {error}", key.0, key.1);
        if let Some((_, reply)) = &running.client {
            let refusal = Refusal::new(RefusalCode::NodeConfigUnavailable, error);
            let _ = reply.send(AgentReply::Refused(refusal));
        }
        self.end_step_everywhere(key);
        self.finish_step_if_over(key);
    }

    fn step_created(&mut self, key: StepKey) {
        let Some(running) = self.steps.running.get(&key) else {
            return;
        };
        let step = running.record.step.clone();
        let run = running.run;
        match &running.client {
            Some(_) if running.direct && running.exit_sent_by_daemon => {}
            Some((_, reply)) => {
                let names = hostlist::parse(&step.hostlist).unwrap_or_default();
                let nodes = running.addresses.iter().zip(&running.record.nodes);
                let created = StepCreated {
                    step: key.1,
                    nodes: nodes
                        .zip(names)
                        .map(|((address, node), name)| StepNode {
                            name,
                            address: address.clone(),
                            tasks: node.tasks.clone(),
                        })
                        .collect(),
                    key: running.record.key.clone(),
                    hostlist: step.hostlist.clone(),
                    // All listen, or none does.
                    wires: running.wires.iter().flatten().cloned().collect(),
                    width: running.width,
                    direct: running.direct,
                };
                let _ = reply.send(AgentReply::Created(Box::new(created)));
            }
            // srun went away while the daemons were started.
            None => self.end_step_everywhere(key),
        }
        self.reports
            .push(run.job, run.attempt, Report::StepStarted(Box::new(step)));
        self.finish_step_if_over(key);
    }

    /// A node's part of a step has ended.
    pub(super) fn node_ended(&mut self, key: StepKey, position: u32, end: StepEnd) {
        self.nodes_ended(key, vec![(position, end)]);
    }

    /// srun is gone: its step waits no more, or is ended.
    pub(super) fn step_client_gone(&mut self, conn: u64) {
        self.steps.waiting.retain(|w| w.conn != conn);
        self.forget_early(conn);
        self.steps.dirty = true;
        let of_conn = |r: &Running| r.client.as_ref().is_some_and(|(c, _)| *c == conn);
        let found = self.steps.running.iter().find(|(_, r)| of_conn(r));
        let Some((key, run)) = found.map(|(key, r)| (*key, r.run)) else {
            return;
        };
        // It goes when its step is over, which may still be in a line.
        self.receive_from_daemons_of(run);
        if let Some(running) = self.steps.running.get_mut(&key) {
            running.client = None;
            // While answers are out, their arrival ends it.
            if running.unanswered == 0 {
                self.end_step_everywhere(key);
            }
        }
    }

    fn end_step_everywhere(&mut self, key: StepKey) {
        let Some(running) = self.steps.running.get(&key) else {
            return;
        };
        let run = running.run;
        let Some(grant) = self.jobs.get(run).and_then(|j| j.grant.clone()) else {
            return;
        };
        // Of one that could not be started it is not known what runs below nodes that did not answer.
        let failed = running.error.is_some();
        let nodes: Vec<usize> = running
            .record
            .nodes
            .iter()
            .filter(|n| n.end.is_none() || failed)
            // A node that the job gave up ends all that it has of the job.
            .filter_map(|n| n.position(&grant.alloc))
            .collect();
        if nodes.contains(&0) {
            self.shim_order(&LauncherCommand::EndStep { run, step: key.1 });
        }
        let others = nodes.iter().filter(|node| **node != 0);
        let agents: Vec<String> = others
            .filter_map(|node| grant.addresses.get(*node).cloned())
            .collect();
        let request = AgentRequest::SignalStep {
            job: key.0,
            key: grant.key.clone(),
            step: key.1,
            signal: libc::SIGTERM.unsigned_abs(),
            below: Vec::new(),
        };
        self.signal_below(&request, &agents);
    }

    /// The job is over: nothing of it will start any more.
    pub(super) fn refuse_waiting_steps(&mut self, run: JobAttempt) {
        self.steps.waiting.retain(|w| {
            let keep = w.run != run;
            if !keep {
                let refusal = Refusal::from(RefusalCode::AlreadyDone);
                let _ = w.reply.send(AgentReply::Refused(refusal));
            }
            keep
        });
    }

    /// The job is forgotten.
    pub(super) fn forget_steps(&mut self, run: JobAttempt) {
        self.steps.running.retain(|_, r| r.run != run);
        // A later launch of the job counts its steps on.
        if self.jobs.latest(run.job).is_none() {
            self.steps.numbers.remove(&run.job);
        }
        self.node_steps.forget(run);
        self.daemons.forget(run);
    }

    /// Takes back what the shim kept for an earlier life of the agent.
    pub(super) fn adopt_steps(&mut self, run: JobAttempt, all: Vec<(u32, ByteVec)>) {
        for (kept, bytes) in all {
            if self.has_lost_a_shim && kept != KEPT_NEXT {
                // It is of this life's own. What is not known any more is over, and the shim was lost with the word of it.
                let is_it = |key: &StepKey| key.0 == run.job && is_kept_of(kept, key.1);
                let running = self.steps.running.keys();
                let goes_on = running.chain(self.node_steps.keys()).any(is_it);
                if !goes_on && !self.reports.has_step_end(run, StepNo(kept)) {
                    self.drop_kept(run, kept);
                }
                continue;
            }
            if kept == KEPT_NEXT {
                if let Ok(next) = minicbor::decode::<u32>(&bytes) {
                    self.steps.numbers.entry(run.job).or_default().raise(next);
                }
                continue;
            }
            if self.node_steps.adopt(run, kept, &bytes) {
                continue;
            }
            let key = (run.job, StepNo(kept));
            // What was kept of the counter may have been lost with a shim.
            let numbers = self.steps.numbers.entry(run.job).or_default();
            numbers.raise(kept.saturating_add(1));
            let Ok(record) = minicbor::decode::<Record>(&bytes) else {
                log::error!("step {}.{}: its record cannot be read back", key.0, key.1);
                continue;
            };
            if self.steps.running.contains_key(&key) {
                continue;
            }
            let already = self.reports.has_step_end(run, key.1);
            if record.is_over() {
                if !already {
                    self.report_end(key, run.attempt, &record);
                }
                continue;
            }
            // It may be known already; the controller ignores that.
            let started = Report::StepStarted(Box::new(record.step.clone()));
            self.reports.push(run.job, run.attempt, started);
            let running = Running {
                run,
                addresses: vec![String::new(); record.nodes.len()],
                wires: Vec::new(),
                record,
                client: None,
                unanswered: 0,
                error: None,
                width: 0,
                direct: false,
                exit_sent_by_daemon: false,
            };
            self.steps.running.insert(key, running);
        }
    }

    /// Gives a shim that may be a new one what it is to keep of a job's steps.
    pub(super) fn keep_steps(&mut self, run: JobAttempt) {
        if let Some(next) = self.steps.numbers.get(&run.job).map(StepNumbers::next) {
            self.keep(run, KEPT_NEXT, &next);
        }
        let of_run = self.steps.running.iter().filter(|(_, r)| r.run == run);
        let records: Vec<(u32, Record)> =
            of_run.map(|(key, r)| (key.1.0, r.record.clone())).collect();
        for (step, record) in records {
            self.keep(run, step, &record);
        }
        self.keep_parts(run);
    }

    /// Has the shim keep something of a job.
    pub(super) fn keep<T: Encode<()>>(&mut self, run: JobAttempt, key: u32, value: &T) {
        let bytes = minicbor::to_vec(value).expect("writing to memory cannot fail");
        self.shim_order(&LauncherCommand::Keep {
            run,
            key,
            bytes: bytes.into(),
        });
    }

    /// What is kept of a step, for its daemon.
    pub(super) fn kept_of(&self, run: JobAttempt, step: StepNo) -> KeptEntries {
        let key = (run.job, step);
        let record = self.steps.running.get(&key).map(|r| {
            let bytes = minicbor::to_vec(&r.record).expect("writing to memory cannot fail");
            (step.0, bytes.into())
        });
        record
            .into_iter()
            .chain(self.node_steps.kept_of(key))
            .collect()
    }

    pub(super) fn drop_kept(&mut self, run: JobAttempt, key: u32) {
        self.shim_order(&LauncherCommand::Keep {
            run,
            key,
            bytes: Vec::new().into(),
        });
    }
}
