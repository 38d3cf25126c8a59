//! Launches that cannot begin when they come: what had their share is still being killed, the groups of their user are not
//! known yet, or the launcher lacked something, such as descriptors. Steps of these jobs wait with them.

use super::batch::{Batch, Failure};
use super::jobs::{Begin, Entry, Shim};
use super::records::Fault;
use super::wire::{FromShim, Run};
use muster_core::ids::Attempt;
use muster_core::job::{GresShare, NodeShare};
use muster_proto::node::JobGrant;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Wait before a launch is tried again that lacked something.
pub(super) const TRY_AGAIN: Duration = Duration::from_secs(1);
/// How often it is, before the node is at fault.
pub(super) const TRIES_MAX: u32 = 60;

/// A launch that has not begun.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    /// Its script, if it has one here.
    batch: Option<Batch>,
    /// How often it has lacked something.
    tries: u32,
    /// When it is tried again.
    retry_at: Option<Instant>,
}

impl Entry {
    /// What the job has of this node.
    pub(super) fn share(&self) -> Option<&NodeShare> {
        let grant = self.grant.as_ref()?;
        grant.alloc.nodes.get(grant.position as usize)
    }
}

impl Shim {
    /// The node is part of a job now. An attempt that is known, or older than one that is, has been launched.
    pub(super) fn launch_job(&mut self, grant: Rc<JobGrant>) {
        let run = (grant.job, grant.attempt);
        if let Some(entry) = self.jobs.get_mut(&run) {
            // A job that was made smaller has less from now on.
            let had = entry.grant.as_ref();
            if had.is_none_or(|had| had.resizes < grant.resizes) {
                if entry.waiting.is_none() {
                    self.records.grant(run, &super::orders::encoded(&grant));
                }
                entry.grant = Some(grant);
            }
            return;
        }
        let later = (run.0, Attempt(run.1.0.saturating_add(1)))..=(run.0, Attempt(u32::MAX));
        if run.1.0 < u32::MAX && self.jobs.range(later).next().is_some() {
            return;
        }
        let batch = match super::batch::has_script(&grant) {
            true => self.batch_of(&grant).map(Some),
            false => Ok(None),
        };
        let entry = Entry {
            uid: grant.spec.owner.uid,
            grant: Some(Rc::clone(&grant)),
            ..Entry::default()
        };
        self.jobs.insert(run, entry);
        let may_run = self.may_run_as(grant.spec.owner.uid);
        match batch.and_then(|batch| may_run.map(|()| batch)) {
            Err(failure) => self.refuse(run, failure),
            Ok(batch) => {
                let waiting = Waiting {
                    batch,
                    ..Waiting::default()
                };
                if self.must_wait(run) {
                    eprintln!("job {}: what had its share is still being killed", run.0);
                    self.queued.push(run);
                    self.set_waiting(run, waiting);
                } else {
                    self.try_launch(run, &grant, waiting);
                }
            }
        }
    }

    fn set_waiting(&mut self, run: Run, waiting: Waiting) {
        if let Some(entry) = self.jobs.get_mut(&run) {
            entry.waiting = Some(Box::new(waiting));
        }
    }

    /// Puts a launch among those that begin now, unless it has to wait for groups or something else.
    fn try_launch(&mut self, run: Run, grant: &Rc<JobGrant>, mut waiting: Waiting) {
        let Some(user) = self.user_of(&grant.spec.owner) else {
            self.without_groups.insert(run);
            return self.set_waiting(run, waiting);
        };
        if let Some(entry) = self.jobs.get_mut(&run) {
            entry.user = Some(Rc::clone(&user));
        }
        let launch = match waiting.batch.clone() {
            None => Ok(None),
            Some(batch) => self.batch_launch(grant, user, batch).map(Some),
        };
        match launch {
            Ok(launch) => self.to_begin.push(Begin { run, launch }),
            Err(failure) if failure.is_temporary && waiting.tries < TRIES_MAX => {
                if waiting.tries == 0 {
                    eprintln!("job {}: {}; it is tried again", run.0, failure.error);
                }
                waiting.tries += 1;
                let at = Instant::now() + TRY_AGAIN;
                waiting.retry_at = Some(at);
                self.retries.insert((at, run));
                self.set_waiting(run, waiting);
            }
            Err(failure) => self.refuse(run, failure),
        }
    }

    /// A launch fails before anything of it has begun.
    fn refuse(&mut self, run: Run, failure: Failure) {
        self.enter_on_file(run, false);
        let fault = match failure.node_fault {
            true => Fault::Node,
            false => Fault::Job,
        };
        self.fail(run, failure.error, fault);
        self.start_early_steps(run);
    }

    /// Tries a launch once more that has waited.
    fn go_on(&mut self, run: Run) {
        let entry = self.jobs.get_mut(&run);
        let Some((waiting, grant)) = entry.and_then(|e| {
            let grant = Rc::clone(e.grant.as_ref()?);
            Some((e.waiting.take()?, grant))
        }) else {
            return;
        };
        self.try_launch(run, &grant, *waiting);
    }

    /// The groups of its user are known: a launch goes on, or steps of a job that an earlier launcher has begun.
    pub(super) fn go_on_with_groups(&mut self, run: Run) {
        match self.jobs.get(&run) {
            Some(entry) if entry.waiting.is_some() => self.go_on(run),
            _ => self.start_early_steps(run),
        }
    }

    /// Jobs have left their shares: launches that waited for these go on.
    pub(super) fn go_on_with_queued(&mut self) {
        for run in std::mem::take(&mut self.queued) {
            if self.must_wait(run) {
                self.queued.push(run);
            } else {
                self.go_on(run);
            }
        }
    }

    /// Tries launches again that lacked something.
    pub(super) fn retry_launches(&mut self, now: Instant) {
        while let Some((at, run)) = self.retries.first().copied()
            && at <= now
        {
            self.retries.pop_first();
            self.start_script_again(run);
            self.go_on(run);
        }
    }

    /// Starts a script that could not be started before, unless its job is ending.
    fn start_script_again(&mut self, run: Run) {
        let entry = self.jobs.get_mut(&run).filter(|e| e.prolog.is_none());
        let Some(order) = entry.and_then(|e| e.held.take().filter(|_| !e.is_leaving())) else {
            return;
        };
        self.fork_script(*order);
    }

    /// Ends a launch that has not begun; whether it was one.
    pub(super) fn end_waiting(&mut self, run: Run) -> bool {
        let Some(entry) = self.jobs.get_mut(&run) else {
            return false;
        };
        if entry.waiting.take().is_none() {
            return false;
        }
        entry.released = true;
        self.queued.retain(|queued| *queued != run);
        self.without_groups.remove(&run);
        self.retries.retain(|(_, other)| *other != run);
        self.emit(&FromShim::Released(run));
        self.start_early_steps(run);
        true
    }

    /// Starts steps that have waited for their job, or refuses them where it is ending.
    pub(super) fn start_early_steps(&mut self, run: Run) {
        let early = self
            .jobs
            .get_mut(&run)
            .map(|e| std::mem::take(&mut e.early));
        for (order, with) in early.into_iter().flatten() {
            self.start_step(order, with);
        }
    }

    /// Whether a launch must wait: others have CPUs or devices of its share, and all of those are leaving. The
    /// controller gives away what a node held that it took for dead, so they meet when the node comes back. A share
    /// that is meant to be used by several at a time is not waited for.
    fn must_wait(&self, run: Run) -> bool {
        let wanted = self.jobs.get(&run).and_then(Entry::share);
        let Some(wanted) = wanted.filter(|_| !self.ending.is_empty()) else {
            return false;
        };
        let in_the_way = |other: Run, entry: &Entry| {
            other != run
                && !entry.released
                && entry.waiting.is_none()
                && entry.share().is_some_and(|s| meet(s, wanted))
        };
        let mut ending = self.ending.iter();
        let leaves = |other: &Run| {
            let entry = self.jobs.get(other);
            entry.is_some_and(|e| in_the_way(*other, e))
        };
        ending.any(leaves)
            && self
                .jobs
                .iter()
                .all(|(other, e)| e.ending.is_some() || !in_the_way(*other, e))
    }
}

fn meet(a: &NodeShare, b: &NodeShare) -> bool {
    let same = |x: &GresShare, y: &GresShare| x.name == y.name && x.ids.intersects(&y.ids);
    a.cpus.intersects(&b.cpus) || a.gres.iter().any(|x| b.gres.iter().any(|y| same(x, y)))
}
