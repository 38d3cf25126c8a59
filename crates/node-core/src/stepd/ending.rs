//! When a step is over, and how this node's part of it has ended.

use super::actions::Actions;
use super::interface::Action;
use super::phase::StepPhase;
use super::step::{Step, Task};
use crate::exit_status::OUT_OF_MEMORY;
use crate::signals::SIGTERM;
use muster_model::job::{ExitStatus, JobState, StepEnd};

impl Step {
    /// Whether the step has finished. Sends the last messages when they are due.
    pub(super) fn is_done(&mut self, out: &mut Actions) -> bool {
        match self.phase {
            StepPhase::Waiting | StepPhase::Starting | StepPhase::Running | StepPhase::Ending => {
                false
            }
            StepPhase::Cancelled | StepPhase::Over => true,
            StepPhase::Draining | StepPhase::Closing => {
                let gave_up = out.has_come(self.timers.give_up_at);
                if self.host.as_ref().is_some_and(|host| !host.has_ended) {
                    if !gave_up {
                        return false;
                    }
                    out.push(Action::KillHost);
                }
                // No stream shows whether processes that the task left behind have ended.
                let is_left = self.order.direct && !self.is_childless && !self.tasks.is_empty();
                if (is_left || self.outputs > 0) && !gave_up {
                    return false;
                }
                // srun of a direct step gets the last word once the end is recorded.
                gave_up || self.order.direct || self.up.send_closed_and_check_read(out)
            }
        }
    }

    /// Nothing of the step is left that another step in this process could meet.
    pub(super) fn is_reusable(&self) -> bool {
        let is_orderly = self.phase == StepPhase::Draining && self.is_childless;
        is_orderly && self.order.pmix.is_none() && self.outputs == 0
    }

    /// End of this node's part of the step.
    pub(super) fn end(&self, out: &Actions) -> StepEnd {
        let worst = self
            .tasks
            .iter()
            .filter_map(|t: &Task| t.exit)
            .max_by_key(|exit| exit.shell_code());
        let was_ended = self.phase.was_ended();
        let exit = self.failed.or(worst).unwrap_or(ExitStatus {
            code: u32::from(self.tasks.is_empty() && !was_ended),
            signal: match was_ended {
                true => SIGTERM.unsigned_abs(),
                false => 0,
            },
        });
        let exit = match self.oom.kills {
            0 => exit,
            _ => OUT_OF_MEMORY,
        };
        let state = if self.oom.kills > 0 {
            JobState::OutOfMemory
        } else if self.has_timed_out {
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
        let mut usage = self.usage.clone();
        self.group_usage.raise(&mut usage);
        StepEnd {
            end_time: out.now.wall,
            exit,
            state,
            usage,
            cancelled_by: None,
            last_lines: None,
        }
    }
}
