//! The use of jobs for mails about them, from accounting. The threads that send mails ask, on a connection of their own to the store,
//! once it has the run's end.

use super::job_mail::{JobMail, MailMoment};
use super::record::ProgramJob;
use crate::failure::caught;
use muster_acct::{Follower, History};
use muster_model::job::ArrayRole;
use muster_proto::acct::efficiency::JobEfficiency;
use muster_proto::acct::{AcctJob, AcctQuery};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

/// Time that a mail waits for accounting to have its run. A store that fails is not waited for, and one that did not have a run in
/// this time not until it has that: mails that wait keep their places from others.
const PATIENCE: Duration = Duration::from_secs(10);

/// See the module.
pub(crate) struct MailAccounting {
    /// As in [`crate::accounting::Accounting`]: held only while a mail needs it.
    follower: Weak<Follower>,
    /// Absent where accounting is switched off.
    history: Option<Mutex<Box<dyn History>>>,
    /// The last position that was waited for in vain.
    missed: AtomicU64,
    patience: Duration,
}

/// The use of a job, for a mail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum JobUse {
    /// A mail of this kind has none.
    None,
    Known(JobEfficiency),
    /// Accounting does not have it, for this reason.
    Unknown(&'static str),
}

impl MailAccounting {
    /// `history` is absent where accounting is switched off.
    pub(crate) fn new(
        history: Option<Box<dyn History>>,
        follower: &Arc<Follower>,
    ) -> MailAccounting {
        MailAccounting {
            follower: Arc::downgrade(follower),
            history: history.map(Mutex::new),
            missed: AtomicU64::new(0),
            patience: PATIENCE,
        }
    }

    /// The use of the run that a mail is about.
    pub(super) fn use_of(&self, job: &ProgramJob, mail: &JobMail) -> JobUse {
        let has_run = mail.moment == MailMoment::Ended && job.start_time.is_some();
        if !has_run || mail.array.is_some() {
            return JobUse::None;
        }
        let Some(history) = &self.history else {
            return JobUse::Unknown("this cluster has no accounting");
        };
        if let Err(why) = self.wait_stored(mail.position) {
            return JobUse::Unknown(why);
        }
        let found = caught(|| {
            let mut history = history.lock().unwrap_or_else(PoisonError::into_inner);
            run_of(history.as_mut(), job)
        });
        let run = found.ok().flatten();
        let used = run.and_then(|run| JobEfficiency::of(&run, crate::clock::now()));
        used.map_or(
            JobUse::Unknown("accounting has no record of this run"),
            JobUse::Known,
        )
    }

    fn wait_stored(&self, position: u64) -> Result<(), &'static str> {
        const BEHIND: &str = "accounting does not have this run yet: see sacct and seff later";
        let follower = self.follower.upgrade().ok_or(BEHIND)?;
        let stored = follower.stored();
        if stored >= position {
            return Ok(());
        }
        let lags = stored < self.missed.load(Ordering::Relaxed);
        if lags || follower.health().failing.is_some() {
            return Err(BEHIND);
        }
        if follower.wait_stored(position, self.patience) == Ok(true) {
            return Ok(());
        }
        self.missed.fetch_max(position, Ordering::Relaxed);
        Err(BEHIND)
    }
}

/// The question for the run of a job. A job may have run thousands of times: runs that ended before this one began are not looked at.
fn run_query(job: &ProgramJob) -> AcctQuery {
    // The number of an array selects all its tasks.
    let wanted = match job.array {
        ArrayRole::Task { base, index } => (base, Some(index)),
        ArrayRole::None | ArrayRole::Pending { .. } => (job.id, None),
    };
    let start = job.start_time.unwrap_or(job.submit_time);
    AcctQuery {
        jobs: vec![wanted],
        // The clock may have been set back meanwhile.
        start: Some(job.end_time.map_or(start, |end| end.min(start))),
        duplicates: true,
        ..AcctQuery::default()
    }
}

/// The run of a job, with its steps.
fn run_of(history: &mut dyn History, job: &ProgramJob) -> Option<AcctJob> {
    let mut found = None;
    let asked = history.query(&run_query(job), 1, &mut |runs| {
        let mut own = runs.into_iter().filter(|run| run.id == job.id);
        // They come in order.
        match own.find(|run| run.restarts >= job.run.number) {
            Some(run) => {
                found = Some(run).filter(|run| run.restarts == job.run.number);
                ControlFlow::Break(())
            }
            None => ControlFlow::Continue(()),
        }
    });
    found.filter(|_| asked.is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::programs::job_mail::JobMails;
    use muster_acct::NoStore;
    use muster_core::event::Event;
    use muster_core::state::State;
    use muster_model::ids::JobId;
    use muster_model::job::{Job, JobState};
    use muster_model::mail::MailOptions;
    use muster_model::spec::JobSpec;
    use muster_model::time::{TimeLimit, Timestamp};

    #[test]
    fn a_cluster_without_accounting_says_so_at_once() {
        let spec = JobSpec {
            mail: MailOptions::of_texts("END".to_owned(), String::new()),
            ..JobSpec::default()
        };
        let limit = TimeLimit::Unlimited;
        let mut job = Job::single(JobId(1), Arc::new(spec), limit, Timestamp(1));
        (job.state, job.start_time) = (JobState::Failed, Some(Timestamp(2)));
        let ending = Event::JobEnding {
            id: job.id,
            at: Timestamp(9),
            state: job.state,
            reason: job.reason,
            exit: job.exit,
            cancelled_by: None,
            requeue: None,
        };
        let state = State::default();
        let mut mail = JobMails::default()
            .on(&state, &job, &ending, Timestamp(9))
            .remove(0);
        mail.position = 1 << 40;
        let follower = Arc::new(Follower::start(Box::new(NoStore::default()), 10).unwrap());
        let accounting = MailAccounting::new(None, &follower);
        let mut record = ProgramJob::of(&state, &job);
        let used = accounting.use_of(&record, &mail);
        assert_eq!(used, JobUse::Unknown("this cluster has no accounting"));
        record.start_time = None;
        assert_eq!(accounting.use_of(&record, &mail), JobUse::None);
    }

    /// Each mail of a queue kept its place for the whole time.
    #[test]
    fn a_store_that_lags_is_waited_for_once() {
        let follower = Arc::new(Follower::start(Box::new(NoStore::default()), 10).unwrap());
        let mut accounting = MailAccounting::new(None, &follower);
        accounting.patience = Duration::ZERO;
        assert!(accounting.wait_stored(5).is_err());
        accounting.patience = Duration::MAX;
        assert!(accounting.wait_stored(9).is_err(), "it does not wait");
        follower.send(7, Vec::new()).unwrap();
        assert_eq!(follower.wait_stored(7, Duration::MAX), Ok(true));
        assert_eq!(accounting.wait_stored(6), Ok(()));
        follower.send(9, Vec::new()).unwrap();
        assert_eq!(accounting.wait_stored(9), Ok(()), "it waits again");
    }

    #[test]
    fn runs_before_are_not_looked_at() {
        let limit = TimeLimit::Unlimited;
        let mut job = Job::single(JobId(1), Arc::default(), limit, Timestamp(1000));
        let start = |job: &Job| run_query(&ProgramJob::of(&State::default(), job)).start;
        assert_eq!(start(&job), Some(Timestamp(1000)));
        (job.start_time, job.end_time) = (Some(Timestamp(7000)), Some(Timestamp(9000)));
        assert_eq!(start(&job), Some(Timestamp(7000)));
        job.end_time = Some(Timestamp(5000));
        assert_eq!(start(&job), Some(Timestamp(5000)));
    }
}
