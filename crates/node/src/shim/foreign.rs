//! Signals to processes that are not children of this one: those of jobs that an earlier launcher has begun, and what comes of
//! others. When such a process ends, its parent, which may be any process, collects it, and its number may be another process's at once. So
//! they are signalled by descriptors, each of which is looked at again once it is open.

use super::jobs::{Role, Shim, Watched};
use super::processes::Stat;
use crate::sys;

/// The kernel tells start times by its ticks; a process may seem to have started so much too late.
const TICK_MS: u64 = 10;

impl Shim {
    /// Watches a process that is no child of this one, if `is_it` still says that it is the one that is meant; whether it is.
    pub(super) fn watch_if(
        &mut self,
        pid: i32,
        role: Role,
        is_it: impl FnOnce(&Stat) -> bool,
    ) -> bool {
        // The descriptor first: whatever is found to have this number then, is what the descriptor is of, or has ended.
        let Ok(pidfd) = sys::pidfd(pid) else {
            return false;
        };
        if !Stat::of(pid).is_some_and(|stat| !stat.zombie && is_it(&stat)) {
            return false;
        }
        self.watched.push(Watched { pid, pidfd, role });
        true
    }

    /// Signals a process that belongs to a job: one that is watched by its descriptor, and a child by its number, which is
    /// the child's until this process collects it.
    pub(super) fn signal_process(&self, pid: i32, signal: i32) {
        match self.watched.iter().find(|watched| watched.pid == pid) {
            // It may have ended.
            Some(watched) => drop(sys::cells::signal_by(&watched.pidfd, signal)),
            None => drop(sys::kill(pid, signal)),
        }
    }
}

/// Signals a process that was found in a search which began at `since_ms`, milliseconds since boot. One that has started
/// later has only taken its number.
pub(super) fn signal_found(pid: i32, signal: i32, since_ms: u64) {
    let Ok(pidfd) = sys::pidfd(pid) else {
        return;
    };
    let was_there = |stat: &Stat| stat.start_ms <= since_ms.saturating_add(TICK_MS);
    if Stat::of(pid).is_some_and(|stat| was_there(&stat)) {
        // It may have ended.
        let _ = sys::cells::signal_by(&pidfd, signal);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_model::ids::{Attempt, JobId};
    use muster_node_core::messages::JobAttempt;
    use std::process::{Child, Command};

    fn sleeper() -> Child {
        Command::new("sleep").arg("600").spawn().unwrap()
    }

    fn pid(child: &Child) -> i32 {
        child.id().try_into().unwrap()
    }

    fn is_killed(child: &mut Child) -> bool {
        use std::os::unix::process::ExitStatusExt as _;
        child.wait().unwrap().signal() == Some(libc::SIGKILL)
    }

    fn end(mut child: Child) {
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn a_process_that_started_after_the_search_is_another_one() {
        let mut child = sleeper();
        let started = Stat::of(pid(&child)).unwrap().start_ms;
        signal_found(pid(&child), libc::SIGKILL, started - TICK_MS - 1);
        assert!(child.try_wait().unwrap().is_none());
        signal_found(pid(&child), libc::SIGKILL, sys::boot_ms());
        assert!(is_killed(&mut child));
    }

    /// As if the number of a process of an earlier launcher's job had gone to somebody else's.
    #[test]
    fn a_number_that_has_gone_to_another_process_is_not_signalled() {
        let spool = std::env::temp_dir().join(format!("muster-foreign.{}", std::process::id()));
        std::fs::create_dir_all(&spool).unwrap();
        let mut shim = Shim::open(&spool).unwrap();
        let (ended, mut other) = (sleeper(), sleeper());
        let role = Role::Script(JobAttempt::new(JobId(1), Attempt(1)));
        assert!(shim.watch_if(pid(&ended), role, |_| true));
        end(ended);
        shim.watched[0].pid = pid(&other);
        shim.signal_process(pid(&other), libc::SIGKILL);
        assert!(other.try_wait().unwrap().is_none());
        // One that does not fit is not watched at all.
        assert!(!shim.watch_if(pid(&other), role, |stat| stat.start_ms == 0));
        assert_eq!(shim.watched.len(), 1);
        shim.watched.clear();
        shim.signal_process(pid(&other), libc::SIGKILL);
        assert!(is_killed(&mut other), "a child");
        std::fs::remove_dir_all(&spool).unwrap();
    }
}
