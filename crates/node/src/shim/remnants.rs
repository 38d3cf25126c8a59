//! What a step daemon that was killed has left: its tasks go with it, but not what they had started.

use super::jobs::Shim;
use super::processes::Containment;
use crate::{audit_session, sys};
use muster_node_core::messages::JobAttempt;
use std::collections::BTreeSet;

/// The processes of one such daemon.
#[derive(Debug)]
pub(super) struct Remnant {
    run: JobAttempt,
    daemon: i32,
    /// The audit session that it had begun.
    session: Option<u32>,
    killed: BTreeSet<i32>,
}

impl Shim {
    /// Kills what a step daemon has left: one round now, others with each wake-up, as processes may fork as fast as they are
    /// looked for.
    pub(super) fn kill_rest_of(&mut self, run: JobAttempt, daemon: i32) {
        let mut remnant = Remnant {
            run,
            daemon,
            session: self.members.session_of_daemon(run, daemon),
            killed: BTreeSet::new(),
        };
        if self.kill_round(&mut remnant) {
            self.remnants.push(remnant);
        }
    }

    /// One more round for each.
    pub(super) fn kill_remnants(&mut self) {
        let mut remnants = std::mem::take(&mut self.remnants);
        remnants.retain_mut(|remnant| self.kill_round(remnant));
        self.remnants = remnants;
    }

    /// Whether there were others than in the round before: one of them may have forked while it was looked for the others.
    fn kill_round(&mut self, remnant: &mut Remnant) -> bool {
        let Some(recovered) = self.jobs.get(&remnant.run).map(|e| e.recovered) else {
            return false;
        };
        let since_ms = sys::boot_ms();
        let own = i32::try_from(std::process::id()).unwrap_or(0);
        let mut all = self.tree.below(&[own]);
        if recovered {
            all.extend(self.strays(remnant.run));
        }
        all.retain(|pid| match remnant.session {
            // One that cannot be read is gone, as a rule; the end of the job looks for what is left.
            Some(session) => {
                audit_session::of(&pid.to_string()).is_ok_and(|found| found == Some(session))
            }
            None => sys::session_of(*pid) == Some(remnant.daemon),
        });
        let known = remnant.killed.len();
        self.signal_members(remnant.run, (&[], &all), (libc::SIGKILL, since_ms));
        remnant.killed.extend(all);
        remnant.killed.len() != known
    }
}
