//! Mails about runs that have ended while steps of them are still being ended: a step's use and the lines of its standard error
//! come with its end. They are sent with the end of the last step, or once the job holds no nodes. There are no more of them than
//! jobs that are completing.

use super::job_mail::{JobMail, MailMoment};
use super::record::ProgramJob;
use muster_model::ids::JobId;
use muster_model::job::{Job, JobState};
use std::collections::HashMap;
use std::sync::Arc;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct EndingMails {
    waiting: HashMap<JobId, Vec<EndingMail>>,
    /// The last lines of scripts that have ended, until the mails of their runs are sent.
    last_lines: HashMap<JobId, String>,
}

/// A mail, with its job as it was when the run ended.
#[derive(Debug)]
pub(super) struct EndingMail {
    pub(super) record: Arc<ProgramJob>,
    pub(super) mail: JobMail,
}

impl EndingMails {
    /// Adds a mail that an event called for; [`EndingMails::take`] follows.
    pub(super) fn add(&mut self, job: JobId, mail: EndingMail) {
        self.waiting.entry(job).or_default().push(mail);
    }

    /// The script of a job has ended, with these last lines.
    pub(super) fn keep_lines(&mut self, job: JobId, lines: String) {
        self.last_lines.insert(job, lines);
    }

    /// The mails that need not wait any more; `job` is as an event left it.
    pub(super) fn take(&mut self, job: &Job) -> Vec<EndingMail> {
        if !has_steps(job) {
            let mut ready = self.waiting.remove(&job.id).unwrap_or_default();
            // The end of a script comes before that of its run, if the one follows from the other.
            if !matches!(job.state, JobState::Running | JobState::Suspended) {
                let lines = self.last_lines.remove(&job.id);
                let is_of_run =
                    |mail: &JobMail| mail.moment == MailMoment::Ended && mail.array.is_none();
                for ending in ready.iter_mut().filter(|ending| is_of_run(&ending.mail)) {
                    ending.mail.last_lines.clone_from(&lines);
                }
            }
            return ready;
        }
        // A mail that is about no end has nothing to wait for.
        let Some(waiting) = self.waiting.get_mut(&job.id) else {
            return Vec::new();
        };
        waiting
            .extract_if(.., |ending| ending.mail.moment != MailMoment::Ended)
            .collect()
    }
}

/// Whether steps of a run that has ended are still to end.
pub(super) fn has_steps(job: &Job) -> bool {
    job.completing && !job.steps.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::programs::job_mail::JobMails;
    use muster_core::event::Event;
    use muster_core::state::State;
    use muster_model::ids::StepNo;
    use muster_model::job::{ExitStatus, Reason, Step};
    use muster_model::mail::MailOptions;
    use muster_model::spec::{JobSpec, StdioSpec};
    use muster_model::time::{TimeLimit, Timestamp};

    fn mails_of_end(job: &Job) -> Vec<EndingMail> {
        let state = State::default();
        let ending = Event::JobEnding {
            id: job.id,
            at: Timestamp(9),
            state: job.state,
            reason: Reason::TimeLimit,
            exit: ExitStatus::default(),
            cancelled_by: None,
            requeue: None,
        };
        let mails = JobMails::default().on(&state, job, &ending, Timestamp(9));
        let record = Arc::new(ProgramJob::of(&state, job));
        let of = |mail| EndingMail {
            record: Arc::clone(&record),
            mail,
        };
        mails.into_iter().map(of).collect()
    }

    #[test]
    fn a_mail_waits_for_the_last_step_of_its_run() {
        let spec = JobSpec {
            mail: MailOptions::of_texts("END,TIME_LIMIT".to_owned(), String::new()),
            ..JobSpec::default()
        };
        let limit = TimeLimit::Unlimited;
        let mut job = Job::single(JobId(1), Arc::new(spec), limit, Timestamp(1));
        (job.state, job.completing) = (JobState::Timeout, true);
        let mut ending = EndingMails::default();
        for mail in mails_of_end(&job) {
            ending.add(job.id, mail);
        }
        assert_eq!(ending.take(&job).len(), 2, "no step runs");
        let step = |step| {
            Arc::new(Step {
                step,
                name: String::new(),
                hostlist: "n1".to_owned(),
                nodes: 1,
                tasks: 1,
                cpus: 1,
                memory_mib: 1,
                start_time: Timestamp(1),
                stdio: StdioSpec::default(),
                submit_line: String::new(),
                time_limit: None,
                distribution: None,
                maker: None,
                devices: Vec::new(),
                device_ask: None,
            })
        };
        job.steps = vec![step(StepNo::BATCH), step(StepNo(0))];
        for mail in mails_of_end(&job) {
            ending.add(job.id, mail);
        }
        assert!(ending.take(&job).is_empty());
        job.steps.pop();
        assert!(ending.take(&job).is_empty(), "the script still runs");
        job.steps.pop();
        assert_eq!(ending.take(&job).len(), 2);
        assert!(ending.waiting.is_empty());
    }

    #[test]
    fn the_last_lines_of_a_script_go_into_the_mails_of_its_end() {
        let spec = JobSpec {
            mail: MailOptions::of_texts("END,TIME_LIMIT".to_owned(), String::new()),
            ..JobSpec::default()
        };
        let limit = TimeLimit::Unlimited;
        let mut job = Job::single(JobId(1), Arc::new(spec), limit, Timestamp(1));
        let mut ending = EndingMails::default();
        job.state = JobState::Running;
        ending.keep_lines(job.id, "last\n".to_owned());
        assert!(
            ending.take(&job).is_empty(),
            "the end of the run comes next"
        );
        (job.state, job.completing) = (JobState::Timeout, true);
        for mail in mails_of_end(&job) {
            ending.add(job.id, mail);
        }
        let lines: Vec<_> = ending
            .take(&job)
            .into_iter()
            .map(|of| of.mail.last_lines)
            .collect();
        assert_eq!(
            lines,
            [Some("last\n".to_owned()), Some("last\n".to_owned())]
        );
        assert!(ending.last_lines.is_empty());
        // Nobody is sent a mail about this end.
        ending.keep_lines(job.id, "other\n".to_owned());
        assert!(ending.take(&job).is_empty() && ending.last_lines.is_empty());
    }
}
