//! Temporary directories of jobs that are to be removed. A process of their user removes them, so
//! that nothing that the user has done to a directory, or to its parents, affects root or other
//! users. A user has one such process at a time, which handles all directories added within a
//! second: short jobs need no process each, and a user whose file systems do not answer has at most
//! one waiting process.

use crate::removal::start_removing_own;
use crate::sys;
use muster_node_core::JobTmpDir;
use std::collections::BTreeMap;
use std::io;

/// Time to wait for more directories, milliseconds.
const DELAY_MS: u64 = 1000;
/// Maximum number of waiting directories per user; further ones are not removed.
const WAITING_MAX: usize = 4096;
/// Time limit after which a process is killed, milliseconds.
const REMOVAL_MAX_MS: u64 = 3_600_000;

#[derive(Debug, Default)]
struct UserRemovals {
    waiting: Vec<JobTmpDir>,
    /// Time at which a process starts to remove them, milliseconds since boot.
    due_ms: u64,
    /// The process that is removing other directories.
    running: Option<RunningRemoval>,
    /// The log already says that there are too many.
    is_full: bool,
}

#[derive(Debug)]
struct RunningRemoval {
    pid: i32,
    /// Time at which the process is killed; `None` once it was.
    until_ms: Option<u64>,
    /// Text for the log that names the directories.
    shown: String,
}

/// Waiting directories by user: a user with several groups has no more processes than one with a
/// single group.
#[derive(Debug, Default)]
pub(super) struct Removals(BTreeMap<u32, UserRemovals>);

impl Removals {
    /// Adds a directory to remove.
    pub(super) fn add(&mut self, dir: JobTmpDir, now_ms: u64) {
        let of = self.0.entry(dir.uid).or_default();
        if of.waiting.len() >= WAITING_MAX {
            if !std::mem::replace(&mut of.is_full, true) {
                eprintln!(
                    "{}: not removed, like further directories of uid {}: {WAITING_MAX} others wait to be removed",
                    dir.path.display(),
                    dir.uid
                );
            }
            return;
        }
        if of.waiting.is_empty() {
            of.due_ms = now_ms.saturating_add(DELAY_MS);
        }
        of.waiting.push(dir);
    }

    /// Time of the next action.
    pub(super) fn next_ms(&self) -> Option<u64> {
        let next = self.0.values().filter_map(|of| match &of.running {
            Some(running) => running.until_ms,
            None => Some(of.due_ms).filter(|_| !of.waiting.is_empty()),
        });
        next.min()
    }

    /// Starts the processes that are due; returns them.
    pub(super) fn start_due(&mut self, now_ms: u64) -> Vec<i32> {
        let is_ready = |of: &&mut UserRemovals| of.running.is_none() && !of.waiting.is_empty();
        let ready = self.0.values_mut().filter(is_ready);
        let due = ready.filter(|of| of.due_ms <= now_ms);
        due.filter_map(|of| of.start(now_ms)).collect()
    }

    /// Starts processes for all waiting directories, whatever runs, because the launcher ends. One
    /// for each group of a user; returns them.
    pub(super) fn start_all(&mut self) -> Vec<i32> {
        let mut of_groups: BTreeMap<(u32, u32), Vec<JobTmpDir>> = BTreeMap::new();
        for dir in self.0.values_mut().flat_map(|of| of.waiting.drain(..)) {
            of_groups.entry((dir.uid, dir.gid)).or_default().push(dir);
        }
        let started = of_groups.into_values().filter_map(|dirs| {
            let started = start_removing(&dirs, u64::MAX);
            let log = |e: &io::Error| eprintln!("{}: not removed: {e}", shown(&dirs));
            started.inspect_err(log).ok()
        });
        started.map(|running| running.pid).collect()
    }

    /// Kills processes that exceed their time limit.
    pub(super) fn kill_late(&mut self, now_ms: u64) {
        for running in self.0.values_mut().filter_map(|of| of.running.as_mut()) {
            if running.until_ms.is_some_and(|until_ms| until_ms <= now_ms) {
                running.until_ms = None;
                sys::kill(running.pid, libc::SIGKILL);
            }
        }
    }

    /// Handles the end of a child.
    pub(super) fn ended(&mut self, pid: i32, status: i32) {
        let is_it = |of: &&mut UserRemovals| of.running.as_ref().is_some_and(|r| r.pid == pid);
        let Some(of) = self.0.values_mut().find(is_it) else {
            return;
        };
        if let Some(running) = of.running.take().filter(|_| status != 0) {
            eprintln!(
                "{}: not removed completely: the user may not remove a part, or the time limit was exceeded",
                running.shown
            );
        }
        self.0
            .retain(|_, of| of.running.is_some() || !of.waiting.is_empty());
    }
}

impl UserRemovals {
    /// Starts a process for the directories of one group; those of other groups follow it.
    fn start(&mut self, now_ms: u64) -> Option<i32> {
        let gid = self.waiting.first()?.gid;
        let (taken, left): (Vec<_>, Vec<_>) =
            self.waiting.drain(..).partition(|dir| dir.gid == gid);
        match start_removing(&taken, now_ms.saturating_add(REMOVAL_MAX_MS)) {
            Ok(running) => {
                let pid = running.pid;
                self.running = Some(running);
                self.waiting = left;
                self.is_full = false;
                Some(pid)
            }
            Err(e) => {
                eprintln!("{}: not removed yet: {e}", taken[0].path.display());
                self.waiting = taken;
                self.waiting.extend(left);
                self.due_ms = now_ms.saturating_add(DELAY_MS);
                None
            }
        }
    }
}

fn start_removing(dirs: &[JobTmpDir], until_ms: u64) -> io::Result<RunningRemoval> {
    let Some(first) = dirs.first() else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let paths = dirs
        .iter()
        .flat_map(|dir| [dir.path.clone(), dir.other_path()]);
    let pid = start_removing_own(first.uid, first.gid, paths.collect())?;
    Ok(RunningRemoval {
        pid,
        until_ms: Some(until_ms),
        shown: shown(dirs),
    })
}

/// Text for the log that names directories of a user.
fn shown(dirs: &[JobTmpDir]) -> String {
    match dirs {
        [] => String::new(),
        [one] => one.path.display().to_string(),
        [first, others @ ..] => format!(
            "{} and {} more of its user",
            first.path.display(),
            others.len()
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt as _;
    use std::process::Command;

    fn dir(number: usize, uid: u32) -> JobTmpDir {
        JobTmpDir {
            path: format!("/nonexistent/{number}.1.all.q").into(),
            uid,
            gid: uid,
            suffix: "0123".to_owned(),
        }
    }

    fn end(removals: &mut Removals, started: &[i32]) {
        for pid in started {
            sys::kill(*pid, libc::SIGKILL);
            sys::exit_code_of(*pid);
            removals.ended(*pid, 9);
        }
    }

    /// Earlier, each job had its own process, and a user's file system that did not answer could block any number of
    /// them.
    #[test]
    fn a_user_has_one_process_at_a_time() {
        let mut removals = Removals::default();
        removals.add(dir(1, 7), 0);
        removals.add(dir(2, 7), 500);
        assert_eq!(removals.next_ms(), Some(DELAY_MS));
        assert!(removals.start_due(DELAY_MS - 1).is_empty());
        let first = removals.start_due(DELAY_MS);
        assert_eq!(first.len(), 1);
        // While it runs, other directories of the same user wait, but not those of other users.
        removals.add(dir(3, 7), 2000);
        removals.add(dir(4, 8), 2000);
        let second = removals.start_due(10_000);
        assert_eq!(second.len(), 1);
        assert_eq!(removals.next_ms(), Some(DELAY_MS + REMOVAL_MAX_MS));
        end(&mut removals, &first);
        assert_eq!(removals.next_ms(), Some(3000));
        let third = removals.start_due(10_000);
        assert_eq!(third.len(), 1);
        end(&mut removals, &[&second[..], &third].concat());
        assert!(removals.0.is_empty());
    }

    /// Earlier, each group of a user's jobs had its own process.
    #[test]
    fn a_user_with_jobs_in_two_groups_has_one_process_at_a_time() {
        let mut removals = Removals::default();
        removals.add(dir(1, 7), 0);
        let other = JobTmpDir {
            gid: 8,
            ..dir(2, 7)
        };
        removals.add(other, 0);
        for _ in 0..2 {
            let started = removals.start_due(DELAY_MS);
            assert_eq!(started.len(), 1);
            assert!(removals.start_due(DELAY_MS).is_empty());
            end(&mut removals, &started);
        }
        assert!(removals.0.is_empty());
    }

    /// A killed process that is blocked in the kernel may not end: only other directories of its
    /// user wait for it.
    #[test]
    fn a_late_process_is_killed_once() {
        let mut removals = Removals::default();
        // It ends by itself later.
        let mut late = Command::new("sleep").arg("20").spawn().unwrap();
        let pid = i32::try_from(late.id()).unwrap();
        let running = RunningRemoval {
            pid,
            until_ms: Some(DELAY_MS + REMOVAL_MAX_MS),
            shown: String::new(),
        };
        removals.0.entry(7).or_default().running = Some(running);
        removals.add(dir(2, 7), 2000);
        removals.kill_late(DELAY_MS + REMOVAL_MAX_MS - 1);
        assert_eq!(removals.next_ms(), Some(DELAY_MS + REMOVAL_MAX_MS));
        removals.kill_late(DELAY_MS + REMOVAL_MAX_MS);
        assert!(removals.start_due(u64::MAX).is_empty());
        assert_eq!(removals.next_ms(), None);
        assert_eq!(late.wait().unwrap().signal(), Some(libc::SIGKILL));
        removals.ended(pid, 9);
        assert_eq!(removals.next_ms(), Some(3000));
    }

    /// Earlier, directories of a user whose process still ran, and directories of a user's second group, stayed
    /// without a line in the log.
    #[test]
    fn at_the_launchers_end_all_are_removed_whatever_runs() {
        let mut removals = Removals::default();
        removals.add(dir(1, 7), 0);
        let first = removals.start_due(DELAY_MS);
        assert_eq!(first.len(), 1);
        let of_group = |number, uid, gid| JobTmpDir {
            gid,
            ..dir(number, uid)
        };
        for (number, uid, gid) in [(2, 7, 7), (3, 7, 8), (4, 7, 7), (5, 8, 8)] {
            removals.add(of_group(number, uid, gid), u64::MAX);
        }
        let last = removals.start_all();
        assert_eq!(last.len(), 3);
        assert!(removals.start_all().is_empty());
        end(&mut removals, &[first, last].concat());
        assert!(removals.0.values().all(|of| of.waiting.is_empty()));
    }

    #[test]
    fn what_waits_is_bounded() {
        let mut removals = Removals::default();
        for number in 0..2 * WAITING_MAX {
            removals.add(dir(number, 7), 0);
        }
        assert_eq!(removals.0[&7].waiting.len(), WAITING_MAX);
    }
}
