//! Jobs by their numbers as programs know them (`17`, `17.3` for a task), their states, and their known ends.

use crate::error::{DrmaaErrno, Error};
use muster_cli::connect::Client;
use muster_cli::library;
use muster_model::ids::JobId;
use muster_model::job::ArrayTask;
use muster_model::job::{ArrayRole, ExitStatus, Hold, Job, JobState};
use muster_proto::acct::AcctJob;

/// A job, or a task of a bulk job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name {
    /// The number of the submission.
    pub job: JobId,
    /// The task.
    pub task: Option<u32>,
}

impl Name {
    /// Reads it.
    ///
    /// # Errors
    /// It is no number of a job.
    pub fn parse(text: &str) -> Result<Name, Error> {
        let (job, task) = match text.split_once(['.', '_']) {
            Some((job, task)) => (job, Some(task)),
            None => (text, None),
        };
        let wrong = || {
            Error::new(
                DrmaaErrno::InvalidJob,
                format!("\"{text:.80}\" is not a job"),
            )
        };
        let job = job
            .parse()
            .ok()
            .filter(|job: &u64| *job > 0)
            .ok_or_else(wrong)?;
        let task = task
            .map(|task| task.parse().map_err(|_| wrong()))
            .transpose()?;
        Ok(Name {
            job: JobId(job),
            task,
        })
    }
}

/// `17`, `17.3`.
impl std::fmt::Display for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.task {
            Some(task) => write!(f, "{}.{task}", self.job),
            None => write!(f, "{}", self.job),
        }
    }
}

/// States of `drmaa_job_ps`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Ps {
    /// Nothing is known.
    Undetermined = 0x00,
    /// It waits.
    QueuedActive = 0x10,
    /// An administrator holds it.
    SystemOnHold = 0x11,
    /// Its owner holds it.
    UserOnHold = 0x12,
    /// It runs.
    Running = 0x20,
    /// The cluster has suspended it.
    SystemSuspended = 0x21,
    /// Its owner has suspended it.
    UserSuspended = 0x22,
    /// It ended by itself.
    Done = 0x30,
    /// It was ended, or could not run.
    Failed = 0x40,
}

/// How a job ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobEnd {
    /// Before it ran.
    Aborted,
    /// With an exit status.
    Exited(u8),
    /// By a signal.
    Signaled(u8),
    /// With its node.
    Lost,
}

const ABORTED: i32 = 1;
const EXITED: i32 = 2;
const SIGNALED: i32 = 4;

impl JobEnd {
    /// As programs get it.
    pub fn stat(self) -> i32 {
        match self {
            JobEnd::Aborted => ABORTED,
            JobEnd::Exited(status) => EXITED | i32::from(status) << 8,
            JobEnd::Signaled(signal) => SIGNALED | i32::from(signal) << 16,
            JobEnd::Lost => 0,
        }
    }

    /// End of a job in a program's `stat`.
    pub fn of_stat(stat: i32) -> JobEnd {
        let byte = |shift: u32| u8::try_from(stat >> shift & 0xff).unwrap_or_default();
        match stat {
            _ if stat & ABORTED != 0 => JobEnd::Aborted,
            _ if stat & EXITED != 0 => JobEnd::Exited(byte(8)),
            _ if stat & SIGNALED != 0 => JobEnd::Signaled(byte(16)),
            _ => JobEnd::Lost,
        }
    }

    fn of(state: JobState, exit: ExitStatus, has_run: bool) -> JobEnd {
        let byte = |number: u32| u8::try_from(number & 0xff).unwrap_or(u8::MAX);
        match state {
            _ if !has_run => JobEnd::Aborted,
            JobState::NodeFail | JobState::BootFail => JobEnd::Lost,
            _ if exit.signal > 0 => JobEnd::Signaled(byte(exit.signal)),
            JobState::Cancelled
            | JobState::Timeout
            | JobState::Preempted
            | JobState::Deadline
            | JobState::OutOfMemory => JobEnd::Signaled(9),
            _ => JobEnd::Exited(byte(exit.code)),
        }
    }
}

/// Status of a job.
#[derive(Clone, Debug, PartialEq)]
pub struct JobStatus {
    /// Its state.
    pub ps: Ps,
    /// How it ended, once it has.
    pub end: Option<JobEnd>,
    /// Its use, as `name=value`.
    pub usage: Vec<String>,
}

/// Status of a job by the controller, or by accounting, where the controller has forgotten it.
///
/// # Errors
/// There is no such job, or nobody can be asked.
pub fn status(client: &mut Client, name: Name) -> Result<JobStatus, Error> {
    let jobs = library::jobs(client, vec![name.job])?;
    if let Some(job) = jobs.iter().find(|job| is_of(job, name))
        && !job.state.is_ended()
    {
        return Ok(JobStatus {
            ps: ps(job),
            end: None,
            usage: Vec::new(),
        });
    }
    let rows = library::accounting(client, name.job)?;
    let of_task = |row: &&AcctJob| match name.task {
        Some(task) => {
            row.array
                == Some(ArrayTask {
                    array: name.job,
                    index: task,
                })
        }
        None => row.id == name.job,
    };
    // Of a job that ran several times, the last counts.
    let row = rows
        .iter()
        .rfind(of_task)
        .filter(|row| row.end.is_some() && row.state.is_ended());
    let end = match (row, jobs.iter().find(|job| is_of(job, name))) {
        (Some(row), _) => JobEnd::of(row.state, row.exit, row.start.is_some()),
        // Accounting has it in a moment.
        (None, Some(job)) => JobEnd::of(job.state, job.exit, job.start_time.is_some()),
        (None, None) => {
            return Err(Error::new(
                DrmaaErrno::InvalidJob,
                format!("there is no job {name}"),
            ));
        }
    };
    Ok(JobStatus {
        ps: if matches!(end, JobEnd::Exited(_)) {
            Ps::Done
        } else {
            Ps::Failed
        },
        end: Some(end),
        usage: row.map(usage).unwrap_or_default(),
    })
}

fn is_of(job: &Job, name: Name) -> bool {
    match (&job.array, name.task) {
        (ArrayRole::None, None) => job.id == name.job,
        (ArrayRole::Pending { indices }, Some(task)) => {
            job.submission() == name.job && indices.contains(task)
        }
        (ArrayRole::Task { index, .. }, Some(task)) => {
            job.submission() == name.job && *index == task
        }
        (ArrayRole::None, Some(_)) => false,
        // For an array without a task's number: all tasks that are left.
        (_, None) => job.submission() == name.job,
    }
}

fn ps(job: &Job) -> Ps {
    match job.state {
        JobState::Pending => match job.hold {
            Hold::None => Ps::QueuedActive,
            Hold::User => Ps::UserOnHold,
            Hold::Admin => Ps::SystemOnHold,
        },
        JobState::Running => Ps::Running,
        JobState::Suspended => Ps::SystemSuspended,
        _ => Ps::Undetermined,
    }
}

/// By the names that Grid Engine's DRMAA has.
fn usage(row: &AcctJob) -> Vec<String> {
    let unix = |at: Option<muster_model::time::Timestamp>| at.map_or(0, |at| at.unix_s());
    let used = row.steps.iter().filter_map(|step| step.usage.as_ref());
    let (mut cpu_us, mut rss_kib) = (0_u64, 0_u64);
    for step in used {
        cpu_us = cpu_us
            .saturating_add(step.user_us)
            .saturating_add(step.system_us);
        rss_kib = rss_kib.max(step.max_rss_kib);
    }
    let wallclock = unix(row.end).saturating_sub(unix(row.start)).max(0);
    vec![
        format!("submission_time={}", row.submit.unix_s()),
        format!("start_time={}", unix(row.start)),
        format!("end_time={}", unix(row.end)),
        format!("ru_wallclock={wallclock}"),
        format!("cpu={}.{:06}", cpu_us / 1_000_000, cpu_us % 1_000_000),
        format!("maxvmem={}", rss_kib.saturating_mul(1024)),
        format!("exit_status={}", row.exit.code),
        format!("signal={}", row.exit.signal),
        format!("slots={}", row.alloc_cpus),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_ends_come_back() {
        for text in ["17", "17.3"] {
            assert_eq!(Name::parse(text).unwrap().to_string(), text);
        }
        for text in ["", "0", "x", "17.", "17.x", "-1", "99999999999999999999"] {
            assert_eq!(
                Name::parse(text).unwrap_err().code,
                DrmaaErrno::InvalidJob,
                "{text}"
            );
        }
        for end in [
            JobEnd::Aborted,
            JobEnd::Exited(0),
            JobEnd::Exited(255),
            JobEnd::Signaled(9),
            JobEnd::Lost,
        ] {
            assert_eq!(JobEnd::of_stat(end.stat()), end);
        }
    }
}
