//! Children of this process: which have ended, and with which status. A child's number is not reused before it is
//! collected.

use super::{number, pidfd, poll};
use std::io;
use std::os::fd::AsRawFd as _;

/// A process that ended, from wait4(2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reaped {
    /// The process id.
    pub(crate) pid: i32,
    /// Its wait status.
    pub(crate) status: i32,
    /// User time, microseconds.
    pub(crate) user_us: u64,
    /// System time, microseconds.
    pub(crate) system_us: u64,
    /// Largest resident set, KiB.
    pub(crate) max_rss_kib: u64,
    /// Major page faults.
    pub(crate) pages: u64,
    /// Blocks of 512 bytes read.
    pub(crate) blocks_in: u64,
    /// Blocks of 512 bytes written.
    pub(crate) blocks_out: u64,
}

/// The result of [`reap`] and similar functions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reap<T = Reaped> {
    /// A child ended.
    Ended(T),
    /// Children run, none has ended.
    Running,
    /// There are no children.
    Childless,
}

/// Finds a child that has ended, without collecting it: its number cannot be reused yet.
pub(crate) fn ended_child() -> Reap<i32> {
    loop {
        // SAFETY: an all-zero siginfo_t is a valid value of that plain C struct.
        let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
        let options = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
        // SAFETY: the pointer leads to a live local of the right type.
        if unsafe { libc::waitid(libc::P_ALL, 0, &raw mut info, options) } == 0 {
            // SAFETY: waitid(2) has filled that in, or has left it zero where no child has ended.
            return match unsafe { info.si_pid() } {
                0 => Reap::Running,
                pid => Reap::Ended(pid),
            };
        }
        if io::Error::last_os_error().raw_os_error() != Some(libc::EINTR) {
            return Reap::Childless;
        }
    }
}

/// Collects a child that has ended, if any.
pub(crate) fn reap() -> Reap {
    collect(-1)
}

/// Collects this child, if it has ended.
pub(crate) fn reap_child(pid: i32) -> Option<Reaped> {
    match collect(pid) {
        Reap::Ended(ended) => Some(ended),
        Reap::Running | Reap::Childless => None,
    }
}

/// Collects the child of this number, or any child if it is -1.
fn collect(which: i32) -> Reap {
    let mut status = 0;
    // SAFETY: an all-zero rusage is a valid value of that plain C struct.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    loop {
        // SAFETY: both pointers lead to live locals of the right types.
        let pid = unsafe { libc::wait4(which, &raw mut status, libc::WNOHANG, &raw mut usage) };
        if pid > 0 {
            return Reap::Ended(Reaped {
                pid,
                status,
                user_us: micros(usage.ru_utime),
                system_us: micros(usage.ru_stime),
                max_rss_kib: number(usage.ru_maxrss),
                pages: number(usage.ru_majflt),
                blocks_in: number(usage.ru_inblock),
                blocks_out: number(usage.ru_oublock),
            });
        }
        if pid == 0 {
            return Reap::Running;
        }
        if io::Error::last_os_error().raw_os_error() != Some(libc::EINTR) {
            return Reap::Childless;
        }
    }
}

/// Waits for a child; its exit code, if it has one.
pub(crate) fn exit_code_of(pid: i32) -> Option<i32> {
    let mut status = 0;
    loop {
        // SAFETY: the pointer leads to a live local of the right type.
        if unsafe { libc::waitpid(pid, &raw mut status, 0) } == pid {
            return libc::WIFEXITED(status).then(|| libc::WEXITSTATUS(status));
        }
        if io::Error::last_os_error().raw_os_error() != Some(libc::EINTR) {
            return None;
        }
    }
}

/// Waits up to a time limit for a child to end. Returns its exit code, -1 if a signal has ended it, and `None` if it
/// still runs.
pub(crate) fn exit_code_within(pid: i32, wait: std::time::Duration) -> Option<i32> {
    let end = pidfd(pid).ok()?;
    let mut fds = [libc::pollfd {
        fd: end.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    }];
    let until = std::time::Instant::now() + wait;
    while fds[0].revents == 0 {
        let left = until.saturating_duration_since(std::time::Instant::now());
        let left_ms = i32::try_from(left.as_millis()).unwrap_or(i32::MAX);
        poll(&mut fds, left_ms).ok()?;
        if left_ms == 0 && fds[0].revents == 0 {
            return None;
        }
    }
    Some(exit_code_of(pid).unwrap_or(-1))
}

fn micros(t: libc::timeval) -> u64 {
    number(t.tv_sec) * 1_000_000 + number(t.tv_usec)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::{Fork, exit_now, fork};

    /// In a process that has no other children.
    #[test]
    fn a_child_that_was_found_is_collected_by_its_number() {
        let found = || {
            let Ok(Fork::Parent(first)) = fork().inspect(|side| {
                if matches!(side, Fork::Child) {
                    exit_now(3);
                }
            }) else {
                return false;
            };
            let found = loop {
                match ended_child() {
                    Reap::Running => std::thread::yield_now(),
                    found => break found,
                }
            };
            let is_there = ended_child() == Reap::Ended(first) && crate::sys::kill(first, 0);
            let collected = reap_child(first).map(|ended| (ended.pid, ended.status));
            found == Reap::Ended(first)
                && is_there
                && collected == Some((first, 3 << 8))
                && ended_child() == Reap::Childless
                && reap_child(first).is_none()
        };
        match fork().unwrap() {
            Fork::Child => exit_now(i32::from(!found())),
            Fork::Parent(pid) => assert_eq!(exit_code_of(pid), Some(0)),
        }
    }
}
