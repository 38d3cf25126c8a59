//! How a node's part of a step ended, and the file that tells it.

use super::client::Client;
use super::{KeptEntries, Stepd};
use crate::now;
use muster_model::job::{ExitStatus, JobState, StepEnd};
use muster_node_core::messages::StepOrder;
use muster_proto::step::FromStepd;
use std::io;
use std::path::Path;

/// The end of a step, and whether its daemon can have another.
pub(super) struct Served {
    pub(super) end: StepEnd,
    pub(super) reusable: bool,
    /// srun, of a direct step.
    pub(super) srun: Option<Client>,
}

impl Served {
    /// Takes leave of the srun of a direct step. Where the end is not recorded yet, it learns the rest from the agent.
    pub(super) fn part(&mut self, recorded: bool) {
        let Some(mut srun) = self.srun.take() else {
            return;
        };
        if recorded {
            srun.send(&FromStepd::Closed);
        }
        srun.hurry();
        srun.write();
    }
}

/// The end of a step whose daemon cannot go on.
pub(super) fn broken(order: &StepOrder, error: &io::Error) -> StepEnd {
    eprintln!("step {}.{}: {error}", order.run.job, order.launch.step);
    StepEnd::never_ran(now())
}

pub(super) fn leave(path: &Path, end: &StepEnd, kept: &KeptEntries) {
    if let Err(e) = crate::step_result::write(path, end, kept) {
        eprintln!("{}: {e}", path.display());
    }
}

impl Stepd<'_> {
    /// How this node's part of the step has ended.
    pub(super) fn result(&self) -> StepEnd {
        let weight = |e: &ExitStatus| {
            if e.signal == 0 {
                e.code
            } else {
                128 + e.signal
            }
        };
        let started = !self.tasks.is_empty();
        let worst = self.tasks.iter().filter_map(|t| t.exit).max_by_key(weight);
        let exit = self.failed.or(worst).unwrap_or(ExitStatus {
            code: u32::from(!started && !self.ending),
            signal: if self.ending {
                libc::SIGTERM.unsigned_abs()
            } else {
                0
            },
        });
        let state = if self.timed_out {
            JobState::Timeout
        } else if self.failed.is_some() {
            JobState::Failed
        } else if exit.is_ok() {
            JobState::Completed
        } else if exit.signal != 0 {
            JobState::Cancelled
        } else {
            JobState::Failed
        };
        StepEnd {
            end_time: now(),
            exit,
            state,
            usage: self.usage.clone(),
            cancelled_by: None,
        }
    }
}
