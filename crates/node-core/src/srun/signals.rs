//! Signals that srun gets: some end its step, or ask about it; the rest are for the tasks.

use super::SrunContext;
use super::running::ActiveStep;
use super::transition::SrunStateEvent;
use crate::signals::{SIGCONT, SIGINT, SIGKILL, SIGQUIT, SIGTERM, SIGTSTP};

/// A second Ctrl-C within this time ends the step.
const TWICE_MS: u64 = 1000;
/// Time that tasks have for Ctrl-C before they are killed: the kernel delivers SIGKILL before other signals that wait.
const CTRL_C_MS: u64 = 100;

/// Whether a signal is for the tasks alone.
pub(super) fn is_passed_on(signal: i32) -> bool {
    !matches!(signal, SIGINT | SIGQUIT | SIGTSTP | SIGTERM)
}

impl ActiveStep {
    pub(super) fn on_signal(&mut self, cx: &mut SrunContext, signal: i32) {
        match signal {
            SIGINT => self.interrupt(cx),
            SIGQUIT => self.abort(cx),
            SIGTSTP => {}
            SIGTERM if cx.is_ending() => self.signal_tasks(cx, SIGKILL),
            SIGTERM => {
                cx.advance(SrunStateEvent::EndOrdered);
                cx.out.info("forcing job termination");
                self.signal_tasks(cx, SIGTERM);
                self.signal_tasks(cx, SIGCONT);
                self.clock.kill = Some(cx.now_ms + self.kill_wait_ms());
            }
            other => self.signal_tasks(cx, other),
        }
    }

    /// Ctrl-C: the first one prints the state of the tasks, a second one within a second ends them, and one more
    /// makes srun exit.
    fn interrupt(&mut self, cx: &mut SrunContext) {
        let before = self.clock.interrupted;
        if cx.is_ending() {
            cx.out.info("forcing job termination");
            self.signal_tasks(cx, SIGKILL);
            self.leaves = before.is_some();
            self.clock.interrupted = Some(cx.now_ms);
            return;
        }
        let again = before.is_some_and(|at| cx.now_ms - at < TWICE_MS);
        if again && self.rules.disable_status {
            // The tasks have had their Ctrl-C.
            return self.force(cx);
        }
        if again || self.rules.quit_on_interrupt {
            self.abort(cx);
            return;
        }
        self.clock.interrupted = Some(cx.now_ms);
        if self.rules.disable_status {
            cx.out.info(&format!("sending Ctrl-C to {}", self.id));
            self.signal_tasks(cx, SIGINT);
            return;
        }
        cx.out.info("interrupt (one more within 1 sec to abort)");
        self.show_states(cx);
    }

    /// Ends the step at once.
    fn force(&mut self, cx: &mut SrunContext) {
        cx.advance(SrunStateEvent::EndOrdered);
        cx.out.info("forcing job termination");
        self.signal_tasks(cx, SIGKILL);
        self.clock.leave = Some(self.leave_at(cx.now_ms));
    }

    /// Ends the step as one that its user does not want any more: with Ctrl-C, which tasks may see, and then SIGKILL.
    fn abort(&mut self, cx: &mut SrunContext) {
        cx.advance(SrunStateEvent::EndOrdered);
        cx.out.info(&format!("sending Ctrl-C to {}", self.id));
        self.signal_tasks(cx, SIGINT);
        cx.out.info("forcing job termination");
        self.announce_end(cx);
        self.signal_tasks(cx, SIGCONT);
        self.clock.kill = Some(cx.now_ms + CTRL_C_MS);
        self.clock.leave = Some(self.leave_at(cx.now_ms));
    }
}
