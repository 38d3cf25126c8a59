//! The use of jobs for mails about them, from accounting. The threads that send mails ask, on a connection of their own to the store,
//! once it has the run's end.

use super::job_mail::{JobMail, MailMoment};
use super::record::ProgramJob;
use crate::failure::caught;
use muster_acct::{Follower, History};
use muster_model::job::ArrayRole;
use muster_model::time::Timestamp;
use muster_proto::acct::efficiency::JobEfficiency;
use muster_proto::acct::{AcctJob, AcctQuery};
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

/// Time that a mail waits for accounting to have its run. A store that fails is not waited for.
const PATIENCE: Duration = Duration::from_secs(10);

/// See the module.
pub(crate) struct MailAccounting {
    /// As in [`crate::accounting::Accounting`]: held only while a mail needs it.
    follower: Weak<Follower>,
    /// Absent where accounting is switched off.
    history: Option<Mutex<Box<dyn History>>>,
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
        if follower.stored() >= position {
            return Ok(());
        }
        let is_failing = follower.health().failing.is_some();
        let is_stored = !is_failing && follower.wait_stored(position, PATIENCE) == Ok(true);
        is_stored.then_some(()).ok_or(BEHIND)
    }
}

/// The run of a job, with its steps.
fn run_of(history: &mut dyn History, job: &ProgramJob) -> Option<AcctJob> {
    // The number of an array selects all its tasks.
    let wanted = match job.array {
        ArrayRole::Task { base, index } => (base, Some(index)),
        ArrayRole::None | ArrayRole::Pending { .. } => (job.id, None),
    };
    let query = AcctQuery {
        jobs: vec![wanted],
        start: Some(Timestamp(0)),
        duplicates: true,
        ..AcctQuery::default()
    };
    let mut found = None;
    let asked = history.query(&query, 1, &mut |runs| {
        let is_run = |run: &AcctJob| run.id == job.id && run.restarts == job.run.number;
        found = runs.into_iter().find(is_run);
        match found {
            Some(_) => ControlFlow::Break(()),
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
    use muster_model::time::TimeLimit;

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
}
