//! Which temporary directories of jobs are to be removed. A user has one process for it at a time, which takes all that have come in a
//! second: short jobs cost no process each, and a user whose file systems do not answer has no more than one that waits.

use super::super::programs::leave_launcher;
use super::removal::remove_all_groups;
use crate::sys;
use muster_node_core::JobTmpDir;
use std::collections::BTreeMap;
use std::io;

/// How long more are waited for, milliseconds.
const DELAY_MS: u64 = 1000;
/// Directories of a user that wait; more stay until the launcher starts anew.
const WAITING_MAX: usize = 4096;

#[derive(Debug, Default)]
struct UserRemovals {
    waiting: Vec<JobTmpDir>,
    /// When a process takes them, milliseconds since boot.
    due_ms: u64,
    /// The process that removes others.
    running: Option<i32>,
    /// That there are too many is in the log.
    is_full: bool,
}

/// See the module. By user: a user in many groups has no more processes than one in one.
#[derive(Debug, Default)]
pub(crate) struct Removals(BTreeMap<u32, UserRemovals>);

impl Removals {
    /// Has a directory removed.
    pub(crate) fn add(&mut self, dir: &JobTmpDir, now_ms: u64) {
        let of = self.0.entry(dir.uid).or_default();
        if of.waiting.len() >= WAITING_MAX {
            if !std::mem::replace(&mut of.is_full, true) {
                eprintln!(
                    "{}: it stays until the launcher starts anew, and more of uid {}, whose {WAITING_MAX} others are not removed yet",
                    dir.path.display(),
                    dir.uid
                );
            }
            return;
        }
        if of.waiting.is_empty() {
            of.due_ms = now_ms.saturating_add(DELAY_MS);
        }
        of.waiting.push(dir.clone());
    }

    /// When the next process is to be started.
    pub(crate) fn next_ms(&self) -> Option<u64> {
        let ready = self.0.values().filter(|of| of.is_ready());
        ready.map(|of| of.due_ms).min()
    }

    /// Starts those that are due; their processes.
    pub(crate) fn start_due(&mut self, now_ms: u64) -> Vec<i32> {
        let mut started = Vec::new();
        for of in self.0.values_mut() {
            if !of.is_ready() || of.due_ms > now_ms {
                continue;
            }
            match start(&of.waiting) {
                Ok(pid) => {
                    of.running = Some(pid);
                    of.waiting.clear();
                    of.is_full = false;
                    started.push(pid);
                }
                Err(e) => {
                    eprintln!("{}: it stays for now: {e}", of.waiting[0].path.display());
                    of.due_ms = now_ms.saturating_add(DELAY_MS);
                }
            }
        }
        started
    }

    /// A child has ended.
    pub(crate) fn ended(&mut self, pid: i32) {
        for of in self.0.values_mut() {
            of.running = of.running.filter(|running| *running != pid);
        }
        self.0
            .retain(|_, of| of.running.is_some() || !of.waiting.is_empty());
    }
}

impl UserRemovals {
    fn is_ready(&self) -> bool {
        self.running.is_none() && !self.waiting.is_empty()
    }
}

fn start(dirs: &[JobTmpDir]) -> io::Result<i32> {
    match sys::fork()? {
        sys::Fork::Parent(pid) => Ok(pid),
        sys::Fork::Child => {
            if let Err(e) = leave_launcher() {
                eprintln!("temporary directories of jobs stay: {e}");
                sys::exit_now(1);
            }
            sys::lower_priority();
            remove_all_groups(dirs);
            sys::exit_now(0)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dir(number: usize, uid: u32) -> JobTmpDir {
        JobTmpDir {
            path: format!("/nonexistent/muster.c.n1/{number}.1.all.q").into(),
            uid,
            gid: uid,
        }
    }

    /// Each job had a process of its own, which a user's file system that does not answer could hold up.
    #[test]
    fn a_user_has_one_process_at_a_time() {
        let mut removals = Removals::default();
        removals.add(&dir(1, 7), 0);
        removals.add(&dir(2, 7), 500);
        assert_eq!(removals.next_ms(), Some(DELAY_MS));
        assert!(removals.start_due(DELAY_MS - 1).is_empty());
        let first = removals.start_due(DELAY_MS);
        assert_eq!((first.len(), removals.next_ms()), (1, None));
        // While it runs the user's others wait, but nobody else's.
        removals.add(&dir(3, 7), 2000);
        removals.add(&dir(4, 8), 2000);
        let second = removals.start_due(10_000);
        assert_eq!((second.len(), removals.next_ms()), (1, None));
        removals.ended(first[0]);
        assert_eq!(removals.next_ms(), Some(3000));
        let third = removals.start_due(10_000);
        for pid in [first[0], second[0], third[0]] {
            sys::exit_code_of(pid);
            removals.ended(pid);
        }
        assert!(removals.0.is_empty());
    }

    /// Each group of a user's jobs had a process of its own.
    #[test]
    fn a_user_with_jobs_in_two_groups_has_one_process_at_a_time() {
        let mut removals = Removals::default();
        removals.add(&dir(1, 7), 0);
        removals.add(
            &JobTmpDir {
                gid: 8,
                ..dir(2, 7)
            },
            0,
        );
        let started = removals.start_due(DELAY_MS);
        assert_eq!((started.len(), removals.next_ms()), (1, None));
        assert_eq!(sys::exit_code_of(started[0]), Some(0));
    }

    /// At the launcher's end all are due, whatever the time is.
    #[test]
    fn what_is_due_at_the_end_of_time_is_started_or_waits() {
        let mut removals = Removals::default();
        removals.add(&dir(1, 7), u64::MAX);
        assert_eq!(removals.next_ms(), Some(u64::MAX));
        for pid in removals.start_due(u64::MAX) {
            sys::exit_code_of(pid);
        }
    }

    #[test]
    fn what_waits_is_bounded() {
        let mut removals = Removals::default();
        for number in 0..2 * WAITING_MAX {
            removals.add(&dir(number, 7), 0);
        }
        assert_eq!(removals.0[&7].waiting.len(), WAITING_MAX);
    }
}
