//! Clients that wait for a job to start or to end.

use crate::answer;
use crate::audit::Entry;
use crate::keys::Keys;
use crate::outbox::Outbox;
use crate::peer::Place;
use muster_core::event::{Event, JobChange};
use muster_core::policy::access;
use muster_core::policy::access::privacy::JobScope;
use muster_core::policy::access::role_of;
use muster_core::state::State;
use muster_model::command::Identity;
use muster_model::ids::JobId;
use muster_model::job::{ArrayRole, ExitStatus, Job, JobState};
use muster_model::node::NodeLink;
use muster_model::refusal::RefusalCode;
use muster_model::rights::{self, AccessRequest};
use muster_proto::client::{Diag, Response};
use muster_proto::frame;
use std::collections::HashMap;

type Out = Outbox;

/// Bytes of notices that wait for the holder of an allocation: those that follow are dropped.
const NOTICES_BYTES_MAX: usize = 512 << 10;

/// Waiting clients, and counts.
#[derive(Default)]
pub(crate) struct Waiting {
    started: HashMap<JobId, Vec<Out>>,
    ended: HashMap<JobId, Vec<Ended>>,
    /// Clients that wait for a number of nodes.
    nodes: Vec<(u32, Out)>,
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
        (identity, place): (&Identity, Place),
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
        match over(state, id).filter(|_| !hidden) {
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

    /// Answers now, and with each node that comes if there are not enough.
    pub(crate) fn wait_nodes(&mut self, state: &State, count: u32, out: Out) {
        let up = nodes_up(state);
        if send_nodes_up(up, count, &out) {
            forget_gone(&mut self.nodes, |(_, out)| out);
            self.nodes.push((count, out));
        }
    }

    fn node_came(&mut self, state: &State) {
        if self.nodes.is_empty() {
            return;
        }
        let up = nodes_up(state);
        self.nodes
            .retain(|(count, out)| send_nodes_up(up, *count, out));
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
    pub(crate) fn tell_holder(&mut self, id: JobId, text: &str) {
        let waiters = self.ended.get(&id).into_iter().flatten();
        // What waits for one that does not read need not be all that was said.
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
            if self.ended.contains_key(&waited) && over(state, waited) == Some(true) {
                let bytes = frame::encode(&self.verdict(state, waited));
                for waiter in self.ended.remove(&waited).unwrap_or_default() {
                    let _ = waiter.out.send(bytes.clone());
                }
                self.worst.remove(&waited);
            }
        }
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

/// Says how many nodes are there to a client that waits for so many; whether it waits on.
fn send_nodes_up(up: u32, wanted: u32, out: &Out) -> bool {
    let bytes = frame::encode(&Response::NodesUp(up));
    match up < wanted {
        true => out.send_interim(bytes).is_ok(),
        false => {
            let _ = out.send(bytes);
            false
        }
    }
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

/// Whether nothing of a job or array is left to run; `None` if there is no such job.
fn over(state: &State, id: JobId) -> Option<bool> {
    if !state.jobs.contains_key(&id) && !state.arrays.contains_key(&id) {
        return None;
    }
    let open = |id: &JobId| state.jobs.get(id).is_some_and(|job| !job.state.is_ended());
    // The cheap questions first: the tasks are looked through only when none is known to be left.
    let tasks_open = || {
        let info = state.arrays.get(&id);
        info.is_some_and(|info| info.running > 0 || info.tasks.values().any(open))
    };
    Some(!open(&id) && !tasks_open())
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
            waiting.tell_holder(job, &text);
        }
        assert!(out.waiting() < NOTICES_BYTES_MAX + 2 * text.len());
        drop(inbox);
    }

    /// What came meanwhile counted as the end of a wait: a connection could have any number of them.
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
        waiting.tell_holder(job, "hello");
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
}
