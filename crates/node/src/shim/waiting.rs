//! Launches that cannot begin when they come: what had their share is still being killed, the groups of their user are not
//! known yet, or the launcher lacked something that users can use up, such as descriptors, processes, or room on its disk.
//! Steps of these jobs wait with them. What is lacking for longer than a minute fails the launch, and is not the node's fault.

use super::batch::{Batch, Failure};
use super::jobs::{Begin, JobEntry, Shim};
use super::records::Fault;
use muster_model::ids::Attempt;
use muster_model::job::{GresShare, NodeShare};
use muster_node_core::messages::{JobAttempt, LauncherEvent};
use muster_proto::node::JobGrant;
use std::io;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Wait before a launch is tried again that lacked something.
pub(super) const TRY_AGAIN: Duration = Duration::from_secs(1);
/// How often it is, before it fails.
pub(super) const TRIES_MAX: u32 = 60;

/// A launch that has not begun.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    /// Its script, if it has one here.
    batch: Option<Batch>,
    /// How often it has lacked something.
    tries: u32,
    /// It has been entered for the file.
    is_entered: bool,
}

impl JobEntry {
    /// What the job has of this node.
    pub(super) fn share(&self) -> Option<&NodeShare> {
        let grant = self.grant.as_ref()?;
        grant.alloc.nodes.get(grant.position as usize)
    }
}

impl Shim {
    /// The node is part of a job now. An attempt that is known, or older than one that is, has been launched.
    pub(super) fn launch_job(&mut self, grant: Rc<JobGrant>) {
        let run = JobAttempt::new(grant.job, grant.attempt);
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
        let later = JobAttempt::new(run.job, Attempt(run.attempt.0.saturating_add(1)))
            ..=JobAttempt::new(run.job, Attempt(u32::MAX));
        if run.attempt.0 < u32::MAX && self.jobs.range(later).next().is_some() {
            return;
        }
        let batch = match super::batch::has_script(&grant) {
            true => self.batch_of(&grant).map(Some),
            false => Ok(None),
        };
        let entry = JobEntry {
            uid: grant.spec.owner.uid,
            grant: Some(Rc::clone(&grant)),
            ..JobEntry::default()
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
                    eprintln!("job {}: what had its share is still being killed", run.job);
                    self.queued.push(run);
                    self.set_waiting(run, waiting);
                } else {
                    self.try_launch(run, &grant, waiting);
                }
            }
        }
    }

    fn set_waiting(&mut self, run: JobAttempt, waiting: Waiting) {
        if let Some(entry) = self.jobs.get_mut(&run) {
            entry.waiting = Some(Box::new(waiting));
        }
    }

    /// Puts a launch among those that begin now, unless it has to wait for groups or something else.
    fn try_launch(&mut self, run: JobAttempt, grant: &Rc<JobGrant>, waiting: Waiting) {
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
            Ok(launch) => self.to_begin.push(Begin {
                run,
                launch,
                waiting,
            }),
            Err(failure) if failure.is_temporary && waiting.tries < TRIES_MAX => {
                self.try_later(run, waiting, &failure.error);
            }
            Err(failure) => self.refuse(run, failure),
        }
    }

    fn try_later(&mut self, run: JobAttempt, mut waiting: Waiting, error: &str) {
        if waiting.tries == 0 {
            eprintln!("job {}: {error}; it is tried again", run.job);
        }
        waiting.tries += 1;
        self.retries.insert((Instant::now() + TRY_AGAIN, run));
        self.set_waiting(run, waiting);
    }

    /// Begins the launches that have come.
    pub(super) fn launch(&mut self) {
        if self.to_begin.is_empty() {
            return;
        }
        let mut begin = std::mem::take(&mut self.to_begin);
        for begin in &mut begin {
            if std::mem::replace(&mut begin.waiting.is_entered, true) {
                // What could not be written is written with what comes next.
                continue;
            }
            let grant = self.jobs.get(&begin.run).and_then(|e| e.grant.clone());
            let around = grant.and_then(|grant| self.around_of(&grant));
            if let Some(entry) = self.jobs.get_mut(&begin.run) {
                entry.prolog_epilog = around;
            }
            self.enter_on_file(begin.run, begin.launch.is_some());
        }
        let on_file = self.records.flush();
        for begin in begin {
            match &on_file {
                Ok(()) => self.begin(begin),
                Err(e) => self.not_on_file(begin, e),
            }
        }
    }

    fn not_on_file(&mut self, begin: Begin, e: &io::Error) {
        let Begin { run, waiting, .. } = begin;
        let error = format!("cannot write {}/attempts: {e}", self.spool.display());
        let is_temporary = super::scripts::is_temporary(e);
        if is_temporary && waiting.tries < TRIES_MAX {
            return self.try_later(run, waiting, &error);
        }
        self.fail(run, error, fault_of(is_temporary));
        self.start_early_steps(run);
    }

    /// A launch fails before anything of it has begun.
    fn refuse(&mut self, run: JobAttempt, failure: Failure) {
        self.enter_on_file(run, false);
        let fault = match failure.node_fault {
            true => fault_of(failure.is_temporary),
            false => Fault::Job,
        };
        self.fail(run, failure.error, fault);
        self.start_early_steps(run);
    }

    /// Tries a launch once more that has waited.
    fn go_on(&mut self, run: JobAttempt) {
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
    pub(super) fn go_on_with_groups(&mut self, run: JobAttempt) {
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
            // An epilog may be what is tried again.
            self.unsettled = true;
            self.start_script_again(run);
            self.go_on(run);
        }
    }

    /// Starts a script, or a prolog, that could not be started before, unless its job is ending.
    fn start_script_again(&mut self, run: JobAttempt) {
        let Some(entry) = self.jobs.get_mut(&run).filter(|e| e.prolog.is_none()) else {
            return;
        };
        let held = entry.pending_launch.take().filter(|_| !entry.is_leaving());
        match entry.prolog_tries {
            0 => held.into_iter().for_each(|order| self.fork_script(*order)),
            _ if entry.is_leaving() => {
                entry.prolog_tries = 0;
                self.start_early_steps(run);
            }
            _ => self.start_prolog(run, held),
        }
    }

    /// Ends a launch that has not begun; whether it was one.
    pub(super) fn end_waiting(&mut self, run: JobAttempt) -> bool {
        let Some(entry) = self.jobs.get_mut(&run) else {
            return false;
        };
        let Some(waiting) = entry.waiting.take() else {
            return false;
        };
        let is_entered = waiting.is_entered;
        entry.released = true;
        if is_entered {
            self.records.released(run);
        }
        self.queued.retain(|queued| *queued != run);
        self.without_groups.remove(&run);
        self.retries.retain(|(_, other)| *other != run);
        self.emit(&LauncherEvent::Released(run));
        self.start_early_steps(run);
        true
    }

    /// Starts steps that have waited for their job, or refuses them where it is ending.
    pub(super) fn start_early_steps(&mut self, run: JobAttempt) {
        let early = self
            .jobs
            .get_mut(&run)
            .map(|e| std::mem::take(&mut e.pending_steps));
        for (order, with) in early.into_iter().flatten() {
            self.start_step(order, with);
        }
    }

    /// Whether a launch must wait: others have CPUs or devices of its share, and all of those are leaving. The
    /// controller gives away what a node held that it took for dead, so they meet when the node comes back. A share
    /// that is meant to be used by several at a time is not waited for.
    fn must_wait(&self, run: JobAttempt) -> bool {
        let wanted = self.jobs.get(&run).and_then(JobEntry::share);
        let Some(wanted) = wanted.filter(|_| !self.ending.is_empty()) else {
            return false;
        };
        let in_the_way = |other: JobAttempt, entry: &JobEntry| {
            other != run
                && !entry.released
                && entry.waiting.is_none()
                && entry.share().is_some_and(|s| meet(s, wanted))
        };
        let mut ending = self.ending.iter();
        let leaves = |other: &JobAttempt| {
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

/// Whose fault it is that a launch that is none of its job's has failed.
pub(super) fn fault_of(is_temporary: bool) -> Fault {
    match is_temporary {
        true => Fault::Lack,
        false => Fault::Node,
    }
}

fn meet(a: &NodeShare, b: &NodeShare) -> bool {
    let same = |x: &GresShare, y: &GresShare| x.name == y.name && x.ids.intersects(&y.ids);
    a.cpus.intersects(&b.cpus) || a.gres.iter().any(|x| b.gres.iter().any(|y| same(x, y)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shim::batch::Launch;
    use muster_model::ids::JobId;

    const RUN: JobAttempt = JobAttempt {
        job: JobId(1),
        attempt: Attempt(1),
    };

    /// A launcher with a job that nothing has begun of.
    fn with_shim(name: &str, test: impl FnOnce(&mut Shim)) {
        let name = format!("muster-{name}.{}", std::process::id());
        let spool = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&spool).unwrap();
        let mut shim = Shim::open(&spool).unwrap();
        shim.jobs.insert(RUN, JobEntry::default());
        test(&mut shim);
        std::fs::remove_dir_all(&spool).unwrap();
    }

    /// Whether the launch has failed: and then whether it lacked something, and nobody is at fault.
    fn failed(shim: &Shim) -> Option<bool> {
        match &shim.jobs[&RUN].outcome {
            None => None,
            Some(LauncherEvent::LaunchFailed { lack, .. }) => Some(*lack),
            Some(other) => panic!("{other:?}"),
        }
    }

    fn begin(shim: &mut Shim) -> Begin {
        let waiting = shim.jobs.get_mut(&RUN).unwrap().waiting.take();
        Begin {
            run: RUN,
            launch: None::<Launch>,
            waiting: waiting.map_or_else(Waiting::default, |waiting| *waiting),
        }
    }

    #[test]
    fn a_full_disk_under_the_record_file_is_waited_for() {
        let full = || io::Error::from_raw_os_error(libc::ENOSPC);
        with_shim("full", |shim| {
            for _ in 0..TRIES_MAX {
                let begin = begin(shim);
                shim.not_on_file(begin, &full());
                assert_eq!(failed(shim), None);
                assert_eq!(shim.retries.len(), 1);
                shim.retries.clear();
            }
            let begin = begin(shim);
            shim.not_on_file(begin, &full());
            assert_eq!(failed(shim), Some(true));
        });
        with_shim("broken", |shim| {
            let begin = begin(shim);
            shim.not_on_file(begin, &io::Error::from_raw_os_error(libc::EIO));
            assert_eq!(failed(shim), Some(false), "that is the node's");
        });
    }

    #[test]
    fn a_prolog_that_cannot_be_forked_is_waited_for() {
        let lack = || io::Error::from_raw_os_error(libc::EAGAIN);
        with_shim("prolog", |shim| {
            for _ in 0..TRIES_MAX {
                shim.prolog_not_started(RUN, &lack());
                assert_eq!(failed(shim), None);
                assert_eq!(shim.retries.len(), 1);
                shim.retries.clear();
            }
            shim.prolog_not_started(RUN, &lack());
            assert_eq!(failed(shim), Some(true));
        });
        with_shim("prologagain", |shim| {
            shim.prolog_not_started(RUN, &lack());
            shim.retry_launches(Instant::now() + TRY_AGAIN);
            let pid = shim.jobs[&RUN].prolog.expect("it has been started");
            assert_eq!(shim.jobs[&RUN].prolog_tries, 0);
            assert_eq!(crate::sys::exit_code_of(pid), Some(0));
        });
    }
}
