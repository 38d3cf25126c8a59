//! Which mails `--mail-type` asks for, and what their subjects say. An array gets one mail for the first task that
//! begins and one for the last that ends, unless ARRAY_TASKS asks for a mail for each.

use super::record::ProgramJob;
use super::{duration, variable};
use muster_core::event::{Event, JobChange};
use muster_core::state::State;
use muster_journal::Position;
use muster_model::ids::JobId;
use muster_model::job::{ArrayRole, Job, JobState, Reason};
use muster_model::time::{TimeLimit, Timestamp};
use muster_model::visible_text::{beginning, visible};
use std::collections::BTreeSet;

/// A mail about a job.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct JobMail {
    pub(super) subject: String,
    /// Variables for `MailProg`, beside those about the job.
    pub(super) env: Vec<(String, String)>,
    pub(super) moment: MailMoment,
    /// Its event: `Began`, `Ended` and so on.
    pub(super) word: String,
    /// Milliseconds that the job has run.
    pub(super) ran_ms: Option<u64>,
    /// The ends of an array's tasks, in a mail about the whole array that has ended.
    pub(super) array: Option<ArrayOutcome>,
    /// Position of the journal from which accounting has the use of the run.
    pub(super) position: Position,
    /// The last lines of the script's standard error, in a mail of an end for which the job asks for them.
    pub(super) last_lines: Option<String>,
}

/// The part of a job's life at which a mail is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MailMoment {
    Waits,
    Began,
    Runs,
    /// The run has ended, also where the job returns to the queue.
    Ended,
}

/// The number of an array's tasks, and of those that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ArrayOutcome {
    pub(super) tasks: u32,
    pub(super) failed: u32,
}

impl JobMail {
    fn add_run_time(&mut self, ran_ms: u64) {
        self.ran_ms = Some(ran_ms);
        let ran = duration(ran_ms);
        self.subject.push_str(&format!(", Run time {ran}"));
        self.env.push(variable("SLURM_JOB_RUN_TIME", ran));
    }

    /// Bytes that it takes.
    pub(super) fn bytes(&self) -> usize {
        let lines = self.last_lines.as_ref().map_or(0, String::len);
        size_of::<JobMail>() + self.subject.len() + self.word.len() + env_bytes(&self.env) + lines
    }
}

/// Bytes of variables.
pub(super) fn env_bytes(env: &[(String, String)]) -> usize {
    let of = |(name, value): &(String, String)| name.len() + value.len() + VARIABLE_BYTES;
    env.iter().map(of).sum()
}

/// The memory of a variable beside its texts.
const VARIABLE_BYTES: usize = 2 * size_of::<String>();

/// Arrays of which a mail has reported that a task began.
#[derive(Debug, Default)]
pub(super) struct JobMails {
    begun: BTreeSet<JobId>,
}

/// The mail types of a job.
struct MailTypes(Vec<String>);

impl MailTypes {
    fn by(job: &Job) -> MailTypes {
        let types = job.spec.mail.as_ref().map_or("", |mail| &mail.types);
        let words: Vec<String> = types.split(',').map(str::to_ascii_uppercase).collect();
        if words.iter().any(|word| word == "NONE") {
            return MailTypes(Vec::new());
        }
        MailTypes(words)
    }

    fn has(&self, word: &str) -> bool {
        const ALL: [&str; 6] = [
            "BEGIN",
            "END",
            "FAIL",
            "INVALID_DEPEND",
            "REQUEUE",
            "STAGE_OUT",
        ];
        let all = ALL.contains(&word) && self.0.iter().any(|w| w == "ALL");
        all || self.0.iter().any(|w| w == word)
    }
}

impl JobMails {
    /// The mails that an event calls for; `state` is as it left it.
    pub(super) fn on(
        &mut self,
        state: &State,
        job: &Job,
        event: &Event,
        at: Timestamp,
    ) -> Vec<JobMail> {
        let wanted = MailTypes::by(job);
        let as_a_whole = job.spec.array.is_some() && !wanted.has("ARRAY_TASKS");
        match event {
            Event::JobStarted { .. } => {
                let first = !as_a_whole || self.begun.insert(job.submission());
                let is_wanted = wanted.has("BEGIN") && first;
                is_wanted
                    .then(|| began(job, at, as_a_whole))
                    .into_iter()
                    .collect()
            }
            Event::JobEnding {
                requeue: Some(_), ..
            } => {
                let is_wanted = wanted.has("REQUEUE");
                let mail = || after_run(job, at, "Requeued", as_a_whole);
                is_wanted.then(mail).into_iter().collect()
            }
            Event::JobEnding { .. } => self.ended(state, job, at, &wanted, as_a_whole),
            // The last task of an array is over only when its nodes are.
            Event::NodeReleased { .. } if as_a_whole && job.is_over() => self
                .end(state, job, at, &wanted, true)
                .into_iter()
                .collect(),
            Event::JobChanged {
                change:
                    JobChange::WaitingOn {
                        reason: Reason::DependencyNeverSatisfied,
                        ..
                    }
                    | JobChange::DependenciesDecided {
                        reason: Reason::DependencyNeverSatisfied,
                        ..
                    },
                ..
            } if wanted.has("INVALID_DEPEND") => {
                vec![mail(job, "Invalid dependency", as_a_whole)]
            }
            _ => Vec::new(),
        }
    }

    fn ended(
        &mut self,
        state: &State,
        job: &Job,
        at: Timestamp,
        wanted: &MailTypes,
        as_a_whole: bool,
    ) -> Vec<JobMail> {
        let mut mails = Vec::new();
        if job.state == JobState::Timeout && wanted.has("TIME_LIMIT") {
            mails.push(after_run(job, at, "Reached time limit", as_a_whole));
        }
        mails.extend(self.end(state, job, at, wanted, as_a_whole));
        mails
    }

    /// The mail that a job, or the last task of an array, has ended.
    fn end(
        &mut self,
        state: &State,
        job: &Job,
        at: Timestamp,
        wanted: &MailTypes,
        as_a_whole: bool,
    ) -> Option<JobMail> {
        let array = state.arrays.get(&job.submission()).filter(|_| as_a_whole);
        if array.is_some_and(|array| array.unfinished > 0) {
            return None;
        }
        self.begun.remove(&job.submission());
        let failed = match array {
            Some(array) => array.failed > 0,
            None => !matches!(job.state, JobState::Completed | JobState::Cancelled),
        };
        let word = match failed && wanted.has("FAIL") {
            true => "Failed",
            false if wanted.has("END") => "Ended",
            false => return None,
        };
        let mut mail = after_run(job, at, word, as_a_whole);
        match array {
            Some(array) if array.failed > 0 => mail.subject.push_str(&format!(
                ", Mixed, {} of {} tasks failed",
                array.failed, array.count
            )),
            Some(_) => mail.subject.push_str(", COMPLETED, ExitCode [0-0]"),
            None => mail.subject.push_str(&outcome(job)),
        }
        mail.array = array.map(|array| ArrayOutcome {
            tasks: array.count,
            failed: array.failed,
        });
        mail.env
            .push(variable("SLURM_JOB_EXIT_CODE_MAX", job.exit.code));
        Some(mail)
    }
}

/// When a part of a job's time is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct LimitTime {
    pub(super) at: Timestamp,
    /// Percentage of its limit.
    pub(super) percent: u64,
}

/// Times at which mails about a running job are due.
pub(super) fn limit_times(job: &Job) -> Vec<LimitTime> {
    let wanted = MailTypes::by(job);
    let (Some(start), Some(limit_ms)) = (job.start_time, limit_ms(job.time_limit)) else {
        return Vec::new();
    };
    let parts = [50, 80, 90].into_iter();
    parts
        .filter(|percent| wanted.has(&format!("TIME_LIMIT_{percent}")))
        .map(|percent| {
            let at = start.plus_ms(limit_ms * percent / 100 + job.suspended_ms);
            LimitTime { at, percent }
        })
        .filter(|time| time.at > crate::clock::now())
        .collect()
}

/// The mail that is due after a part of a job's time.
pub(super) fn of_limit(job: &ProgramJob, percent: u64) -> JobMail {
    let word = format!("Reached {percent}% of time limit");
    let ran_ms = limit_ms(job.time_limit).unwrap_or_default() * percent / 100;
    let mut mail = named(job.id, &job.spec.name, &job.array, job.state, &word);
    mail.moment = MailMoment::Runs;
    mail.add_run_time(ran_ms);
    mail
}

fn limit_ms(limit: TimeLimit) -> Option<u64> {
    match limit {
        TimeLimit::Minutes(minutes) => Some(u64::from(minutes) * 60_000),
        TimeLimit::Unlimited => None,
    }
}

fn began(job: &Job, at: Timestamp, as_a_whole: bool) -> JobMail {
    let mut mail = mail(job, "Began", as_a_whole);
    mail.moment = MailMoment::Began;
    let queued = duration(at.since_ms(job.submit_time));
    mail.subject.push_str(&format!(", Queued time {queued}"));
    mail.env.push(variable("SLURM_JOB_QUEUED_TIME", queued));
    mail
}

fn after_run(job: &Job, at: Timestamp, word: &str, as_a_whole: bool) -> JobMail {
    let mut mail = mail(job, word, as_a_whole);
    mail.moment = MailMoment::Ended;
    if job.start_time.is_some() {
        mail.add_run_time(job.run_time_ms(at));
    }
    mail
}

/// The state and how the script ended.
fn outcome(job: &Job) -> String {
    let state = job.state.name();
    match job.exit.signal {
        0 => format!(", {state}, ExitCode {}", job.exit.code),
        _ => format!(", {state}"),
    }
}

fn mail(job: &Job, word: &str, as_a_whole: bool) -> JobMail {
    let mut mail = named(job.id, &job.spec.name, &job.array, job.state, word);
    if as_a_whole {
        let (id, name, submission) = (job.id, shown(&job.spec.name), job.submission());
        mail.subject =
            format!("Slurm Array Summary Job_id={submission}_* ({id}) Name={name} {word}");
    }
    mail
}

fn named(id: JobId, name: &str, array: &ArrayRole, state: JobState, word: &str) -> JobMail {
    let whose = match array {
        ArrayRole::Task { base, index } => format!("Array Task Job_id={base}_{index} ({id})"),
        ArrayRole::None | ArrayRole::Pending { .. } => format!("Job_id={id}"),
    };
    let name = shown(name);
    JobMail {
        subject: format!("Slurm {whose} Name={name} {word}"),
        env: vec![
            variable("SLURM_JOB_STATE", state.name()),
            variable("SLURM_JOB_MAIL_TYPE", word),
        ],
        moment: MailMoment::Waits,
        word: word.to_owned(),
        ran_ms: None,
        array: None,
        position: 0,
        last_lines: None,
    }
}

/// Bytes of a name in a subject, which is one line.
const NAME_BYTES_MAX: usize = 256;

/// A job's name, as part of a line.
fn shown(name: &str) -> String {
    beginning(&visible(name), NAME_BYTES_MAX).to_owned()
}
