//! Mails that are due when a part of a running job's time is over. Of each job no more is kept than what a mail is made of when its
//! time has come; a change that moves none of its times costs a look.

use super::job_mail::{self, LimitTime};
use super::plan::ProgramPlan;
use super::record::ProgramJob;
use crate::program_settings::ProgramSettings;
use muster_core::state::State;
use muster_model::ids::JobId;
use muster_model::job::{Job, JobState};
use muster_model::time::Timestamp;
use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// See the module. Clones are the same.
#[derive(Clone, Debug, Default)]
pub(super) struct LimitMails(Arc<LimitMailsShared>);

#[derive(Debug, Default)]
struct LimitMailsShared {
    times: Mutex<LimitTimes>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct LimitTimes {
    due: BTreeSet<DueMail>,
    jobs: HashMap<JobId, WatchedJob>,
    is_closed: bool,
}

/// A mail, in the order in which they are due.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct DueMail {
    time: LimitTime,
    job: JobId,
}

/// A job of which times are to come.
#[derive(Debug)]
struct WatchedJob {
    record: Arc<ProgramJob>,
    suspended_ms: u64,
    settings: Arc<ProgramSettings>,
    times: Vec<LimitTime>,
}

impl WatchedJob {
    /// Whether nothing that determines its mail times has changed.
    fn has_same_times(&self, job: &Job) -> bool {
        let record = &self.record;
        Arc::ptr_eq(&record.spec, &job.spec)
            && record.start_time == job.start_time
            && record.time_limit == job.time_limit
            && self.suspended_ms == job.suspended_ms
    }
}

impl LimitMails {
    /// Sets the times of a job anew, if it has others now; whether it had.
    pub(super) fn watch(&self, state: &State, job: &Job, settings: &Arc<ProgramSettings>) -> bool {
        let runs = job.state == JobState::Running && job.spec.mail.is_some();
        let mut kept = self.lock();
        let known = kept.jobs.get(&job.id);
        if known.is_some_and(|watched| runs && watched.has_same_times(job)) {
            return false;
        }
        let had = kept.forget(job.id);
        let times = match runs {
            true => job_mail::limit_times(job),
            false => Vec::new(),
        };
        if times.is_empty() {
            return had;
        }
        let due = times.iter().map(|time| DueMail {
            time: *time,
            job: job.id,
        });
        kept.due.extend(due);
        let watched = WatchedJob {
            record: Arc::new(ProgramJob::of(state, job)),
            suspended_ms: job.suspended_ms,
            settings: Arc::clone(settings),
            times,
        };
        kept.jobs.insert(job.id, watched);
        self.0.changed.notify_one();
        true
    }

    /// The job has ended.
    pub(super) fn forget(&self, job: JobId) {
        self.lock().forget(job);
    }

    /// Waits for mails that are due, with their users; absent once closed.
    pub(super) fn wait(&self) -> Option<Vec<(u32, ProgramPlan)>> {
        let mut kept = self.lock();
        while !kept.is_closed {
            let now = crate::clock::now();
            let due = kept.take_due(now);
            if !due.is_empty() {
                return Some(due);
            }
            let wait_ms = kept
                .due
                .first()
                .map_or(HOUR_MS, |due| due.time.at.since_ms(now));
            let wait = Duration::from_millis(wait_ms.clamp(1, HOUR_MS));
            let woken = self.0.changed.wait_timeout(kept, wait);
            kept = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
        None
    }

    pub(super) fn close(&self) {
        self.lock().is_closed = true;
        self.0.changed.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, LimitTimes> {
        self.0.times.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How long is waited where nothing is due.
const HOUR_MS: u64 = 3_600_000;

impl LimitTimes {
    /// Forgets the times of a job; whether it had some.
    fn forget(&mut self, job: JobId) -> bool {
        let Some(watched) = self.jobs.remove(&job) else {
            return false;
        };
        for time in watched.times {
            self.due.remove(&DueMail { time, job });
        }
        true
    }

    fn take_due(&mut self, now: Timestamp) -> Vec<(u32, ProgramPlan)> {
        let mut mails = Vec::new();
        while let Some(DueMail { time, job }) = self.due.first().copied()
            && time.at <= now
        {
            self.due.pop_first();
            let Some(watched) = self.jobs.get_mut(&job) else {
                continue;
            };
            watched.times.retain(|other| *other != time);
            let mail = job_mail::of_limit(&watched.record, time.percent);
            let plan = ProgramPlan::mail(Arc::clone(&watched.record), mail, &watched.settings);
            mails.push((watched.record.spec.owner.uid, plan));
            if watched.times.is_empty() {
                self.jobs.remove(&job);
            }
        }
        mails
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_model::mail::MailOptions;
    use muster_model::spec::JobSpec;
    use muster_model::time::TimeLimit;

    fn running(id: u64, spec: &Arc<JobSpec>) -> Job {
        let now = crate::clock::now();
        let mut job = Job::new(JobId(id), Arc::clone(spec), TimeLimit::Minutes(600), now);
        (job.state, job.start_time) = (JobState::Running, Some(now));
        job
    }

    fn spec(types: &str) -> Arc<JobSpec> {
        Arc::new(JobSpec {
            mail: MailOptions::of_texts(types.to_owned(), String::new()),
            comment: Some("c".repeat(64 << 10)),
            ..JobSpec::default()
        })
    }

    /// Each change of a running job, also to an equal value, had all mails of it made again and all times of all jobs
    /// gone through.
    #[test]
    fn changes_that_move_no_time_set_none() {
        let (mails, state) = (LimitMails::default(), State::default());
        let settings = Arc::new(ProgramSettings::default());
        let spec = spec("TIME_LIMIT_50,TIME_LIMIT_80,TIME_LIMIT_90");
        let mut jobs: Vec<Job> = (1..=1000).map(|id| running(id, &spec)).collect();
        let set = |jobs: &[Job]| {
            jobs.iter()
                .filter(|job| mails.watch(&state, job, &settings))
                .count()
        };
        assert_eq!(set(&jobs), 1000);
        for _ in 0..10 {
            assert_eq!(set(&jobs), 0);
        }
        assert_eq!(mails.lock().due.len(), 3000);
        // The texts are those of the jobs, not copies.
        assert_eq!(Arc::strong_count(&spec), 1 + 2 * jobs.len());
        jobs[7].time_limit = TimeLimit::Minutes(700);
        jobs[8].suspended_ms = 5000;
        jobs[9].spec = Arc::new(JobSpec::clone(&spec));
        assert_eq!(set(&jobs), 3);
        jobs[10].state = JobState::Suspended;
        assert_eq!(set(&jobs), 1, "no time passes while it is stopped");
        jobs[11].spec = Arc::new(JobSpec::default());
        assert_eq!(set(&jobs), 1, "it is to have no mails any more");
        assert_eq!(mails.lock().due.len(), 3000 - 2 * 3);
        jobs.iter().for_each(|job| mails.forget(job.id));
        let kept = mails.lock();
        assert!(kept.due.is_empty() && kept.jobs.is_empty());
    }

    #[test]
    fn mails_are_made_when_they_are_due() {
        let (mails, state) = (LimitMails::default(), State::default());
        let settings = Arc::new(ProgramSettings::default());
        let job = running(5, &spec("TIME_LIMIT_50,TIME_LIMIT_90"));
        mails.watch(&state, &job, &settings);
        let mut kept = mails.lock();
        let start = job.start_time.unwrap();
        let mut subjects = |minutes: u64| -> Vec<String> {
            let due = kept.take_due(start.plus_ms(minutes * 60_000));
            let mails = due.into_iter().map(|(_, plan)| plan.invocation());
            mails.map(|mail| mail.args[1].clone()).collect()
        };
        assert!(subjects(299).is_empty());
        let half = "Slurm Job_id=5 Name= Reached 50% of time limit, Run time 05:00:00";
        assert_eq!(subjects(300), [half]);
        let most = "Slurm Job_id=5 Name= Reached 90% of time limit, Run time 09:00:00";
        assert_eq!(subjects(1000), [most]);
        assert!(kept.jobs.is_empty());
    }
}
