//! A table in a file, to which a process and its children write without system calls. The file outlives them, so that
//! the successor of the parent can read the entries of the children.

use super::check;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};

/// A row of the table. All zero: it is free.
#[repr(C)]
#[derive(Debug, Default)]
pub(crate) struct Cell {
    job: AtomicU64,
    attempt: AtomicU32,
    kind: AtomicU32,
    pid: AtomicI32,
    session: AtomicU32,
}

/// The values of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RowValue {
    pub(crate) job: u64,
    pub(crate) attempt: u32,
    pub(crate) kind: u32,
    /// The child's process id; 0 until the child has written it.
    pub(crate) pid: i32,
    /// Its audit session; 0 if it has none of its own.
    pub(crate) session: u32,
}

/// The table.
#[derive(Debug)]
pub(crate) struct Cells {
    base: *const Cell,
    count: usize,
}

impl Cells {
    /// Maps a file as `count` rows and keeps its contents. If the file cannot have that size, maps memory instead.
    pub(crate) fn new(file: &File, count: usize) -> io::Result<Cells> {
        let bytes = count * size_of::<Cell>();
        let length = libc::off_t::try_from(bytes).unwrap_or(libc::off_t::MAX);
        // SAFETY: takes numbers only. What is not allocated ahead would kill who writes to it when the disk is full.
        let allocated = unsafe { libc::posix_fallocate(file.as_raw_fd(), 0, length) };
        let (flags, fd) = match allocated {
            0 => (libc::MAP_SHARED, file.as_raw_fd()),
            _ => (libc::MAP_SHARED | libc::MAP_ANONYMOUS, -1),
        };
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a fresh mapping at an address of the kernel's choice; only this program's root opens the file.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, fd, 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Cells {
            base: base.cast(),
            count,
        })
    }

    /// Rows there are.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    fn cell(&self, at: usize) -> Option<&Cell> {
        // SAFETY: the row lies in the mapping, which is never unmapped; its fields are atomic, and any bits are valid.
        (at < self.count).then(|| unsafe { &*self.base.add(at) })
    }

    /// Reads a row.
    pub(crate) fn read(&self, at: usize) -> RowValue {
        let none = Cell::default();
        let cell = self.cell(at).unwrap_or(&none);
        RowValue {
            job: cell.job.load(Ordering::Acquire),
            attempt: cell.attempt.load(Ordering::Acquire),
            kind: cell.kind.load(Ordering::Acquire),
            pid: cell.pid.load(Ordering::Acquire),
            session: cell.session.load(Ordering::Acquire),
        }
    }

    /// Writes a row, before the child starts for which it is.
    pub(crate) fn write(&self, at: usize, noted: RowValue) {
        if let Some(cell) = self.cell(at) {
            cell.job.store(noted.job, Ordering::Release);
            cell.attempt.store(noted.attempt, Ordering::Release);
            cell.kind.store(noted.kind, Ordering::Release);
            cell.pid.store(noted.pid, Ordering::Release);
            cell.session.store(noted.session, Ordering::Release);
        }
    }

    /// In a child: writes its own process id and session. Does not allocate or use the C library.
    pub(crate) fn note(&self, at: usize, pid: i32, session: u32) {
        if let Some(cell) = self.cell(at) {
            cell.session.store(session, Ordering::Release);
            cell.pid.store(pid, Ordering::Release);
        }
    }
}

/// A signal to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SentSignal {
    /// Its number.
    pub(crate) number: i32,
    /// A value for the process that gets it.
    pub(crate) value: Option<u64>,
}

impl From<i32> for SentSignal {
    fn from(number: i32) -> SentSignal {
        SentSignal {
            number,
            value: None,
        }
    }
}

/// `siginfo_t` of a signal with a value, as sigqueue(3) makes it on machines of 64 bits.
#[repr(C)]
struct QueuedSignal {
    number: libc::c_int,
    errno: libc::c_int,
    code: libc::c_int,
    padding: libc::c_int,
    pid: libc::pid_t,
    uid: libc::uid_t,
    value: u64,
    rest: [u64; 12],
}

const _: () = assert!(size_of::<QueuedSignal>() == size_of::<libc::siginfo_t>());

/// Signals a process by its descriptor, which stays valid when the process id is reused.
pub(crate) fn signal_by(pidfd: &impl AsRawFd, signal: impl Into<SentSignal>) -> io::Result<()> {
    let signal = signal.into();
    let info = signal.value.map(|value| QueuedSignal {
        number: signal.number,
        errno: 0,
        code: libc::SI_QUEUE,
        padding: 0,
        pid: i32::try_from(std::process::id()).unwrap_or(0),
        // SAFETY: takes nothing, and cannot fail.
        uid: unsafe { libc::getuid() },
        value,
        rest: [0; 12],
    });
    let info = info.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: takes numbers, and null or a pointer to a live value of the size of siginfo_t.
    let rc = unsafe {
        libc::syscall(
            libc::SYS_pidfd_send_signal,
            pidfd.as_raw_fd(),
            signal.number,
            info,
            0,
        )
    };
    check(i32::try_from(rc).unwrap_or(-1)).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::signal::{SigSet, Signal};
    use nix::sys::signalfd::{SfdFlags, SignalFd};
    use nix::sys::wait::{WaitStatus, waitpid};
    use nix::unistd::{ForkResult, fork};

    #[test]
    fn a_signal_brings_its_value() {
        let mask = SigSet::from(Signal::SIGUSR1);
        mask.thread_block().expect("the mask is valid");
        // SAFETY: the child makes system calls only.
        match unsafe { fork() }.expect("there are processes") {
            ForkResult::Child => {
                let caught = SignalFd::with_flags(&mask, SfdFlags::empty())
                    .and_then(|fd| fd.read_signal())
                    .ok()
                    .flatten();
                let is_whole = caught.is_some_and(|info| {
                    (info.ssi_code, info.ssi_ptr) == (libc::SI_QUEUE, 0x1234_5678_9abc_def0)
                });
                // SAFETY: ends this process, without running anything of the test program.
                unsafe { libc::_exit(i32::from(!is_whole)) };
            }
            ForkResult::Parent { child } => {
                let held = crate::sys::pidfd(child.as_raw()).expect("it is a child");
                let signal = SentSignal {
                    number: libc::SIGUSR1,
                    value: Some(0x1234_5678_9abc_def0),
                };
                signal_by(&held, signal).expect("it is there");
                assert_eq!(waitpid(child, None), Ok(WaitStatus::Exited(child, 0)));
                mask.thread_unblock().expect("the mask is valid");
            }
        }
    }
}
