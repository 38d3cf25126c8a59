//! How the tasks of a step are brought to their end, and which processes are theirs.

use super::{LAST_WORDS, Phase, Stepd};
use crate::launcher::{Containment as _, parent_of};
use crate::sys;
use muster_model::job::ExitStatus;
use std::collections::HashSet;
use std::time::Instant;

impl Stepd<'_> {
    pub(super) fn begin_end(&mut self) {
        if std::mem::replace(&mut self.ending, true) {
            return;
        }
        if self.phase == Phase::Draining {
            self.give_up_at = Some(Instant::now() + LAST_WORDS);
            return;
        }
        self.signal_all(libc::SIGCONT);
        self.signal_all(libc::SIGTERM);
        self.kill_at = Some(Instant::now() + self.setting.kill_wait);
    }

    /// The step cannot go well any more: it ends at once, with this status.
    pub(super) fn fail(&mut self, exit: ExitStatus) {
        if self.failed.is_some() || self.timed_out {
            return;
        }
        self.failed = Some(exit);
        self.abort_at = None;
        self.begin_end();
        self.kill_at = None;
        self.signal_all(libc::SIGKILL);
    }

    /// Signals the tasks, and the srun of steps that they spawned.
    pub(super) fn signal_all(&mut self, signal: i32) {
        let own = i32::try_from(std::process::id()).unwrap_or(0);
        let host = self.host_pid();
        let mut found = self.runtime.tree.below(&[own]);
        // The host ends by itself, after them.
        found.retain(|pid| Some(*pid) != host);
        self.note_leftovers(&found, signal);
        self.signal_found(&found, signal);
    }

    /// Signals processes that were found below this one; not another that has got the number of one meanwhile.
    pub(super) fn signal_found(&self, found: &[i32], signal: i32) {
        let own = i32::try_from(std::process::id()).unwrap_or(0);
        let parents: HashSet<i32> = found.iter().copied().chain([own]).collect();
        for pid in found {
            // Held before it is looked at again: from then on the number is no other's.
            let held = sys::pidfd(*pid);
            if !parent_of(*pid).is_some_and(|parent| parents.contains(&parent)) {
                continue;
            }
            match held {
                Ok(held) => drop(sys::cells::signal_by(&held, signal)),
                // Out of descriptors, or a kernel without such; none of a process that is gone.
                Err(_) => drop(sys::kill(*pid, signal)),
            }
        }
    }

    /// Processes of the tasks: all below this one but the PMIx host and what it started.
    pub(super) fn of_tasks(&self) -> Vec<i32> {
        let own = i32::try_from(std::process::id()).unwrap_or(0);
        let mut found = self.runtime.tree.below(&[own]);
        if let Some(host) = self.host_pid() {
            let of_host = self.runtime.tree.below(&[host]);
            found.retain(|pid| *pid != host && !of_host.contains(pid));
        }
        found
    }

    pub(super) fn host_pid(&self) -> Option<i32> {
        self.pmix.as_ref().filter(|p| !p.ended).map(|p| p.pid)
    }
}
