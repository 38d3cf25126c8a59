//! Clients that wait for a job to start or to end.

use crate::answer;
use crate::audit::Entry;
use crate::keys::Keys;
use crate::outbox::Outbox;
use crate::peer::RequestOrigin;
use muster_core::event::{Event, JobChange};
use muster_core::policy::access;
use muster_core::policy::access::privacy::JobScope;
use muster_core::policy::access::role_of;
use muster_core::state::State;
use muster_model::command::Identity;
use muster_model::ids::JobId;
use muster_model::job::{ArrayInfo, ArrayRole, ExitStatus, Job, JobState};
use muster_model::node::NodeLink;
use muster_model::refusal::RefusalCode;
use muster_model::rights::{self, AccessRequest};
use muster_proto::client::{Diag, Response};
use muster_proto::frame;
use std::collections::HashMap;

type Out = Outbox;

/// Bytes of notices that wait for the holder of an allocation: those that follow are dropped.
const NOTICES_BYTES_MAX: usize = 512 << 10;

/// Bytes that wait for a client that waits for nodes, beyond which it is sent no count that another follows.
const NODES_UNREAD_MAX: usize = 4 << 10;

/// Waiting clients, and counts.
#[derive(Default)]
pub(crate) struct Waiting {
    started: HashMap<JobId, Vec<Out>>,
    ended: HashMap<JobId, Vec<Ended>>,
    /// Clients that wait for a number of nodes, by connection.
    nodes: Vec<NodeWaits>,
    /// Where a task that is not over was found last, of arrays that someone waits for.
    open_tasks: OpenTasks,
    /// Worst exit of the tasks of arrays that someone waits for.
    worst: HashMap<JobId, ExitStatus>,
    counts: Counts,
    /// Jobs that passed by others that waited, and of those components of heterogeneous jobs, since the controller started.
    backfilled_ever: u64,
    backfilled_components: u64,
}

struct Ended {
    holder: bool,
    out: Out,
}

/// Waits of a connection for nodes.
struct NodeWaits {
    counts: Vec<u32>,
    out: Out,
}

/// For each array the index of a task that was not over when it was looked for: those before it, from where the search last began,
/// are not looked at again until the end is reached.
#[derive(Default)]
struct OpenTasks {
    at: HashMap<JobId, u32>,
    /// Tasks that were looked at.
    #[cfg(test)]
    looked_at: usize,
}

#[derive(Default)]
struct Counts {
    submitted: u64,
    started: u64,
    backfilled: u64,
    completed: u64,
    cancelled: u64,
    failed: u64,
}

impl Waiting {
    /// Answers now if the job has started or ended, else later.
    pub(crate) fn wait_started(
        &mut self,
        state: &State,
        keys: &Keys,
        (identity, place): (&Identity, RequestOrigin),
        id: JobId,
        out: Out,
    ) {
        let entry = || {
            let role = role_of(state, identity);
            Entry::new(role, identity, AccessRequest::WaitStarted, place)
                .about(&format!("job {id}"))
        };
        let seen = |job: &&Job| JobScope::of(state, identity).has(job);
        let response = match state.jobs.get(&id).filter(seen) {
            None => Response::Refused(RefusalCode::InvalidJobId.into()),
            Some(job) if !access::may_job(state, identity, AccessRequest::WaitStarted, job) => {
                let refusal = rights::denied(AccessRequest::WaitStarted);
                entry().refused(&refusal);
                Response::Refused(refusal)
            }
            Some(job) if job.state.is_ended() => ended(job),
            Some(job) => match (answer::started(state, keys, job), job.spec.owner.uid) {
                (Some(response), owner) if owner == identity.uid => response,
                // The key to another user's allocation.
                (Some(response), _) => {
                    entry().done();
                    response
                }
                (None, _) => {
                    let outs = self.started.entry(id).or_default();
                    forget_gone(outs, |out| out);
                    outs.push(out);
                    return;
                }
            },
        };
        let _ = out.send(frame::encode(&response));
    }

    /// Answers now if the job (or all of the array) has ended, else later.
    /// Jobs that the user may not see are not there.
    pub(crate) fn wait_ended(
        &mut self,
        state: &State,
        identity: &Identity,
        id: JobId,
        holder: bool,
        out: Out,
    ) {
        let scope = JobScope::of(state, identity);
        let hidden = scope != JobScope::All && !scope.shows(state, id);
        match self.over(state, id).filter(|_| !hidden) {
            None => drop(out.send(frame::encode(&Response::Refused(
                RefusalCode::InvalidJobId.into(),
            )))),
            Some(true) => drop(out.send(frame::encode(&self.verdict(state, id)))),
            Some(false) => {
                let outs = self.ended.entry(id).or_default();
                forget_gone(outs, |ended| &ended.out);
                // Notices come once by a connection, however often it has asked to hold the job.
                outs.retain(|known| !(holder && known.holder && known.out.is_same(&out)));
                outs.push(Ended { holder, out });
            }
        }
    }

    /// Answers now, and with each node that comes if there are not enough. Of a connection one message says how many came,
    /// however many waits it has, and none while it does not read those before.
    pub(crate) fn wait_nodes(&mut self, state: &State, count: u32, out: Out) {
        let up = nodes_up(state);
        if up >= count {
            let _ = out.send(nodes_message(up));
            return;
        }
        let known = self.nodes.iter_mut().find(|waits| waits.out.is_same(&out));
        match known {
            Some(waits) => waits.counts.push(count),
            None => {
                forget_gone(&mut self.nodes, |waits| &waits.out);
                let (counts, out) = (vec![count], out.clone());
                self.nodes.push(NodeWaits { counts, out });
            }
        }
        let _ = out.send_interim(nodes_message(up));
    }

    fn node_came(&mut self, state: &State) {
        if self.nodes.is_empty() {
            return;
        }
        let up = nodes_up(state);
        let message = nodes_message(up);
        self.nodes.retain_mut(|waits| {
            let before = waits.counts.len();
            waits.counts.retain(|count| up < *count);
            for _ in waits.counts.len()..before {
                let _ = waits.out.send(message.clone());
            }
            let waits_on = !waits.counts.is_empty() && !waits.out.is_closed();
            if waits_on && waits.out.waiting() < NODES_UNREAD_MAX {
                let _ = waits.out.send_interim(message.clone());
            }
            waits_on
        });
    }

    /// Tells those whose wait this event ends. The event was just applied.
    pub(crate) fn on_event(&mut self, state: &State, keys: &Keys, event: &Event) {
        match event {
            Event::JobSubmitted { .. } => self.counts.submitted += 1,
            Event::JobStarted { id, alloc, .. } => {
                self.counts.started += 1;
                if alloc.backfilled {
                    let component = state.jobs.get(id).is_some_and(|job| job.het.is_some());
                    self.counts.backfilled += 1;
                    self.backfilled_ever += 1;
                    self.backfilled_components += u64::from(component);
                }
                self.job_started(state, keys, *id);
            }
            Event::JobChanged {
                id,
                change: JobChange::Ready | JobChange::NodesUp,
                ..
            } => match state.jobs.get(id).and_then(|job| job.het) {
                None => self.job_started(state, keys, *id),
                // With the last component that was got ready all have begun.
                Some(part) => part.ids().for_each(|id| self.job_started(state, keys, id)),
            },
            Event::JobEnding {
                id,
                state: end,
                requeue,
                ..
            } => {
                // As sdiag counts: what failed by its own fault was completed all the same.
                match end {
                    JobState::Cancelled => self.counts.cancelled += 1,
                    JobState::NodeFail | JobState::BootFail => self.counts.failed += 1,
                    _ => self.counts.completed += 1,
                }
                self.job_ending(state, *id, requeue.is_some());
            }
            Event::NodeRegistered { .. } => self.node_came(state),
            _ => {}
        }
    }

    /// Passes a message on to the holder of an allocation.
    pub(crate) fn notify_holder(&mut self, id: JobId, text: &str) {
        let waiters = self.ended.get(&id).into_iter().flatten();
        // Notices that wait for a client that does not read need not be complete.
        for holder in waiters.filter(|w| w.holder && w.out.waiting() < NOTICES_BYTES_MAX) {
            let notice = Response::Notice(text.to_owned());
            let _ = holder.out.send_interim(frame::encode(&notice));
        }
    }

    fn job_started(&mut self, state: &State, keys: &Keys, id: JobId) {
        if !self.started.contains_key(&id) {
            return;
        }
        let response = state
            .jobs
            .get(&id)
            .and_then(|job| answer::started(state, keys, job));
        if let Some(response) = response
            && let Some(outs) = self.started.remove(&id)
        {
            let bytes = frame::encode(&response);
            outs.into_iter()
                .for_each(|out| drop(out.send(bytes.clone())));
        }
    }

    fn job_ending(&mut self, state: &State, id: JobId, requeued: bool) {
        let Some(job) = state.jobs.get(&id) else {
            return;
        };
        if let Some(outs) = self.started.remove(&id) {
            let bytes = frame::encode(&ended(job));
            outs.into_iter()
                .for_each(|out| drop(out.send(bytes.clone())));
        }
        if requeued {
            if let Some(waiters) = self.ended.get_mut(&id) {
                let bytes = frame::encode(&Response::JobEnded {
                    job: id,
                    state: JobState::Pending,
                    exit: job.exit,
                });
                waiters.retain(|w| !(w.holder && w.out.send(bytes.clone()).is_ok()));
            }
            return;
        }
        let base = match job.array {
            ArrayRole::Task { base, .. } => Some(base),
            ArrayRole::None | ArrayRole::Pending { .. } => None,
        };
        if let Some(base) = base
            && self.ended.contains_key(&base)
        {
            let worst = self.worst.entry(base).or_default();
            *worst = (*worst).max(job.exit);
        }
        for waited in [Some(id), base.filter(|b| *b != id)].into_iter().flatten() {
            if self.ended.contains_key(&waited) && self.over(state, waited) == Some(true) {
                let bytes = frame::encode(&self.verdict(state, waited));
                for waiter in self.ended.remove(&waited).unwrap_or_default() {
                    let _ = waiter.out.send(bytes.clone());
                }
                self.worst.remove(&waited);
                self.open_tasks.at.remove(&waited);
            }
        }
    }

    /// Whether nothing of a job or array is left to run; `None` if there is no such job.
    fn over(&mut self, state: &State, id: JobId) -> Option<bool> {
        if !state.jobs.contains_key(&id) && !state.arrays.contains_key(&id) {
            return None;
        }
        // The cheap questions first: the tasks are looked through only when none is known to be left.
        let is_open = is_open(state, id)
            || state.arrays.get(&id).is_some_and(|info| {
                info.running > 0 || info.unstarted > 0 || self.open_tasks.find(state, id, info)
            });
        Some(!is_open)
    }

    /// How a job, or the tasks of an array that are still known, ended.
    fn verdict(&self, state: &State, id: JobId) -> Response {
        let mut exit = self.worst.get(&id).copied().unwrap_or_default();
        let mut end = JobState::Completed;
        for job in records(state, id) {
            exit = exit.max(job.exit);
            if job.state != JobState::Completed {
                end = job.state;
            }
        }
        Response::JobEnded {
            job: id,
            state: end,
            exit,
        }
    }

    /// The counts begin again.
    pub(crate) fn reset(&mut self) {
        self.counts = Counts::default();
    }

    /// Adds the counts to an sdiag answer.
    pub(crate) fn fill(&self, diag: &mut Diag) {
        diag.submitted = self.counts.submitted;
        diag.started = self.counts.started;
        diag.backfilled = self.counts.backfilled;
        diag.backfilled_ever = self.backfilled_ever;
        diag.backfilled_components = self.backfilled_components;
        diag.completed = self.counts.completed;
        diag.cancelled = self.counts.cancelled;
        diag.failed = self.counts.failed;
    }
}

/// Drops those whose connection is closed, each time before the list would grow.
fn forget_gone<T>(outs: &mut Vec<T>, out: impl Fn(&T) -> &Out) {
    if outs.len() == outs.capacity() {
        outs.retain(|waiter| !out(waiter).is_closed());
    }
}

fn nodes_message(up: u32) -> Vec<u8> {
    frame::encode(&Response::NodesUp(up))
}

fn nodes_up(state: &State) -> u32 {
    let up = state
        .nodes
        .iter()
        .filter(|node| !node.removed && node.link == NodeLink::Up);
    u32::try_from(up.count()).unwrap_or(u32::MAX)
}

fn records(state: &State, id: JobId) -> impl Iterator<Item = &Job> {
    let tasks = state
        .arrays
        .get(&id)
        .map(|info| info.tasks.values())
        .into_iter()
        .flatten();
    let own = state.jobs.get(&id).filter(move |job| {
        !matches!(job.array, ArrayRole::Task { .. }) || !state.arrays.contains_key(&id)
    });
    own.into_iter()
        .chain(tasks.filter_map(|task| state.jobs.get(task)))
}

fn is_open(state: &State, id: JobId) -> bool {
    state.jobs.get(&id).is_some_and(|job| !job.state.is_ended())
}

impl OpenTasks {
    /// Looks for a task that is not over, from where one was found last.
    fn find(&mut self, state: &State, array: JobId, info: &ArrayInfo) -> bool {
        let from = self.at.get(&array).copied().unwrap_or(0);
        let tasks = info.tasks.range(from..).chain(info.tasks.range(..from));
        for (index, task) in tasks {
            #[cfg(test)]
            {
                self.looked_at += 1;
            }
            if is_open(state, *task) {
                self.at.insert(array, *index);
                return true;
            }
        }
        self.at.remove(&array);
        false
    }
}

fn ended(job: &Job) -> Response {
    Response::JobEnded {
        job: job.id,
        state: job.state,
        exit: job.exit,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outbox;
    use muster_model::ids::Attempt;
    use muster_model::time::{TimeLimit, Timestamp};
    use std::sync::Arc;

    /// The holder that did not read had the controller keep 1.9 GB of notices within seconds.
    #[test]
    fn notices_for_a_holder_that_does_not_read_are_bounded() {
        let mut waiting = Waiting::default();
        let (out, inbox) = outbox::channel(None);
        let (job, holder) = (JobId(7), true);
        waiting.ended.insert(
            job,
            vec![Ended {
                holder,
                out: out.clone(),
            }],
        );
        let text = "x".repeat(60_000);
        for _ in 0..1000 {
            waiting.notify_holder(job, &text);
        }
        assert!(out.waiting() < NOTICES_BYTES_MAX + 2 * text.len());
        drop(inbox);
    }

    /// Events meanwhile counted as the end of a wait: a connection could have any number of them.
    #[test]
    fn what_ends_no_wait_leaves_it_counted() {
        let (mut waiting, state) = (Waiting::default(), State::default());
        let (out, mut inbox) = outbox::channel(None);
        waiting.wait_nodes(&state, 1, out.clone());
        waiting.node_came(&state);
        let job = JobId(7);
        let ended = Ended {
            holder: true,
            out: out.clone(),
        };
        waiting.ended.insert(job, vec![ended]);
        waiting.notify_holder(job, "hello");
        for _ in 0..3 {
            assert!(inbox.try_recv().is_some() && inbox.take_interim());
        }
        waiting.wait_nodes(&state, 0, out.clone());
        waiting.wait_ended(&state, &Identity::default(), JobId(8), false, out);
        for _ in 0..2 {
            assert!(inbox.try_recv().is_some() && !inbox.take_interim());
        }
        assert_eq!(waiting.nodes.len(), 1);
    }

    /// Each task that ended had all before it looked at again where somebody waited for the array.
    #[test]
    fn the_end_of_an_array_is_found_in_one_round() {
        const TASKS: u32 = 2000;
        let (mut waiting, mut state) = (Waiting::default(), State::default());
        let base = JobId(1);
        let mut info = ArrayInfo {
            count: TASKS,
            unfinished: TASKS,
            ..ArrayInfo::default()
        };
        let now = Timestamp(0);
        for index in 0..TASKS {
            let id = JobId(u64::from(index) + 1);
            let mut job = Job::new(id, Arc::default(), TimeLimit::Unlimited, now);
            job.array = ArrayRole::Task { base, index };
            // It ran before: it counts neither as running nor as one that never began.
            job.attempt = Attempt(1);
            state.jobs.insert(id, job);
            info.tasks.insert(index, id);
        }
        state.arrays.insert(base, info);
        let (out, mut inbox) = outbox::channel(None);
        waiting.wait_ended(&state, &Identity::default(), base, false, out);
        for index in 0..TASKS {
            assert!(inbox.is_empty(), "task {index} is not over");
            let id = JobId(u64::from(index) + 1);
            state.jobs.get_mut(&id).unwrap().state = JobState::Cancelled;
            waiting.job_ending(&state, id, false);
        }
        let looked_at = waiting.open_tasks.looked_at;
        assert!(looked_at <= 4 * TASKS as usize, "{looked_at}");
        assert!(inbox.try_recv().is_some());
        assert!(waiting.ended.is_empty() && waiting.open_tasks.at.is_empty());
    }

    /// Each wait of a connection that did not read was sent each count.
    #[test]
    fn counts_of_nodes_are_few_for_who_does_not_read() {
        let (mut waiting, state) = (Waiting::default(), State::default());
        let (out, mut inbox) = outbox::channel(None);
        for _ in 0..64 {
            waiting.wait_nodes(&state, u32::MAX, out.clone());
        }
        for _ in 0..10_000 {
            waiting.node_came(&state);
        }
        let (mut count, kept) = (0, out.waiting());
        while inbox.try_recv().is_some() {
            count += 1;
            assert!(inbox.take_interim());
        }
        assert!(
            kept <= 2 * NODES_UNREAD_MAX && count <= 128,
            "{kept} {count}"
        );
        // A client that reads gets to know of each that comes, once.
        waiting.node_came(&state);
        assert!(inbox.try_recv().is_some() && inbox.try_recv().is_none());
    }
}
