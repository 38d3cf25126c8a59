//! Control of jobs: signals, cancellation, suspension, requeue, messages.

#![allow(unsafe_code)]

use crate::abi::release_placed;
use crate::abi::requests::SlurmJobArrayAnswers;
use crate::connection::{change, job};
use crate::error::{CallError, INVALID_JOB_ID};
use crate::memory;
use crate::steps::step_of;
use libc::c_char;
use muster_model::command::{JobSelection, JobTarget, SignalScope, UserCommand};
use muster_model::ids::JobId;
use muster_model::index_set::IndexSet;

/// Flags of `slurm_kill_job`: the script alone, the whole array, all steps but the script, script and steps, at once.
const KILL_BATCH: u16 = 1;
const KILL_ARRAY: u16 = 1 << 1;
const KILL_STEPS: u16 = 1 << 2;
const KILL_FULL: u16 = 1 << 3;
const KILL_HURRY: u16 = 1 << 5;

fn target(id: u32) -> JobTarget {
    JobTarget {
        job: job(id),
        tasks: None,
        component: None,
    }
}

/// A job as `17`, `17_3`, `17_[1-3]` or `12+1`.
fn parsed(text: Option<String>) -> Result<JobTarget, CallError> {
    let text = text.unwrap_or_default();
    let wrong = || CallError::new(INVALID_JOB_ID, format!("\"{text:.80}\" is not a job"));
    let split = |mark| text.split_once(mark);
    let number = |text: &str| text.parse::<u64>().ok().filter(|id| *id > 0).map(JobId);
    if let Some((base, tasks)) = split('_') {
        let tasks = tasks.trim_start_matches('[').trim_end_matches(']');
        let all = muster_model::hostlist::parse_ranges(tasks, 1 << 20).map_err(|_| wrong())?;
        return Ok(JobTarget {
            job: number(base).ok_or_else(wrong)?,
            tasks: Some(all.into_iter().collect::<IndexSet>()),
            component: None,
        });
    }
    let (base, component) = match split('+') {
        Some((base, part)) => (base, Some(part.parse().map_err(|_| wrong())?)),
        None => (text.as_str(), None),
    };
    Ok(JobTarget {
        job: number(base).ok_or_else(wrong)?,
        tasks: None,
        component,
    })
}

fn selection(target: JobTarget) -> JobSelection {
    JobSelection {
        targets: vec![target],
        ..JobSelection::default()
    }
}

/// Sends a signal to a job as `slurm_kill_job` does: SIGKILL ends it.
fn kill(target: JobTarget, signal: u16, flags: u16) -> Result<(), CallError> {
    let selection = selection(target);
    let scope = match flags & (KILL_BATCH | KILL_FULL | KILL_STEPS) {
        0 | KILL_STEPS => SignalScope::Steps,
        KILL_BATCH => SignalScope::Batch,
        _ => SignalScope::Full,
    };
    let is_end =
        i32::from(signal) == libc::SIGKILL && flags & !(KILL_ARRAY | KILL_HURRY | KILL_FULL) == 0;
    change(match is_end {
        true => UserCommand::Cancel { selection },
        false => UserCommand::Signal {
            selection,
            signal: signal.into(),
            scope,
        },
    })
}

/// Ends a job.
///
/// # Errors
/// There is no such job, or the user may not do it.
pub fn cancel(id: u32) -> Result<(), CallError> {
    kill(target(id), 9, 0)
}

/// Sends a signal to a step, or to all steps of a job.
fn signal_step(id: u32, step: u32, signal: u32) -> Result<(), CallError> {
    let selection = JobSelection {
        step: step_of(step),
        ..selection(target(id))
    };
    change(UserCommand::Signal {
        selection,
        signal,
        scope: SignalScope::Steps,
    })
}

/// Flags of `slurm_requeue`: hold it, as a special exit, only what has not ended.
const REQUEUE_HOLD: u32 = 1 << 11;
const REQUEUE_SPECIAL: u32 = 1 << 12;
const REQUEUE_RUNNING: u32 = 1;

fn requeue(target: JobTarget, flags: u32) -> Result<(), CallError> {
    change(UserCommand::Requeue {
        target,
        hold: flags & (REQUEUE_HOLD | REQUEUE_SPECIAL) != 0,
        special_exit: flags & REQUEUE_SPECIAL != 0,
        incomplete: flags & REQUEUE_RUNNING != 0,
    })
}

/// An answer without a failure.
///
/// # Safety
/// `at` is null or leads to room for a pointer.
unsafe fn no_answers(at: *mut *mut SlurmJobArrayAnswers) {
    // SAFETY: as the caller promises.
    unsafe { memory::give(at, std::ptr::null_mut()) };
}

status_functions! {
    /// Sends a signal to a job; SIGKILL ends it.
    fn slurm_kill_job(id: u32, signal: u16, flags: u16) {
        kill(target(id), signal, flags)
    }
    /// As above, of a job, tasks or a component by name. There is no other cluster.
    fn slurm_kill_job2(text: *const c_char, signal: u16, flags: u16, _sibling: *const c_char) {
        kill(parsed(memory::text(text))?, signal, flags)
    }
    /// Sends a signal to a step; SIGKILL ends it.
    fn slurm_kill_job_step(id: u32, step: u32, signal: u16) {
        signal_step(id, step, signal.into())
    }
    /// Sends a signal to all steps of a job.
    fn slurm_signal_job(id: u32, signal: u16) {
        signal_step(id, crate::names::NO_VALUE, signal.into())
    }
    /// Sends a signal to a step.
    fn slurm_signal_job_step(id: u32, step: u32, signal: u32) {
        signal_step(id, step, signal)
    }
    /// Ends a step.
    fn slurm_terminate_job_step(id: u32, step: u32) {
        signal_step(id, step, 9)
    }
    /// Stops a job, and gives its CPUs to others.
    fn slurm_suspend(id: u32) {
        change(UserCommand::Suspend { target: target(id) })
    }
    /// As above, of a job or tasks by name.
    fn slurm_suspend2(text: *const c_char, at: *mut *mut SlurmJobArrayAnswers) {
        no_answers(at);
        change(UserCommand::Suspend { target: parsed(memory::text(text))? })
    }
    /// Lets a job go on.
    fn slurm_resume(id: u32) {
        change(UserCommand::Resume { target: target(id) })
    }
    /// As above, of a job or tasks by name.
    fn slurm_resume2(text: *const c_char, at: *mut *mut SlurmJobArrayAnswers) {
        no_answers(at);
        change(UserCommand::Resume { target: parsed(memory::text(text))? })
    }
    /// Puts a job back into the queue.
    fn slurm_requeue(id: u32, flags: u32) {
        requeue(target(id), flags)
    }
    /// As above, of a job or tasks by name.
    fn slurm_requeue2(text: *const c_char, flags: u32, at: *mut *mut SlurmJobArrayAnswers) {
        no_answers(at);
        requeue(parsed(memory::text(text))?, flags)
    }
    /// Sends a line to a job.
    fn slurm_notify_job(id: u32, message: *const c_char) {
        change(UserCommand::Notify {
            target: target(id),
            text: memory::text(message).unwrap_or_default(),
        })
    }
    /// Puts jobs before all others of their owner.
    fn slurm_top_job(text: *const c_char) {
        let names = memory::text(text).unwrap_or_default();
        for name in names.split(',') {
            change(UserCommand::Top { target: parsed(Some(name.to_owned()))? })?;
        }
        Ok(())
    }
}

quiet_functions! {
    /// Frees an answer by tasks.
    fn slurm_free_job_array_resp(at: *mut SlurmJobArrayAnswers) {
        release_placed(at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_are_named_as_users_do() {
        let own = |text: &str| parsed(Some(text.to_owned()));
        assert_eq!(own("17").unwrap(), target(17));
        let tasks = own("17_[1-3]").unwrap().tasks.unwrap();
        assert!(tasks.contains(3) && !tasks.contains(4));
        assert_eq!(own("12+1").unwrap().component, Some(1));
        for text in ["", "0", "x", "17_", "17+x"] {
            assert!(own(text).is_err(), "{text}");
        }
    }
}
