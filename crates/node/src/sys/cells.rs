//! A table in a file, which a process and its children write to without system calls. The file outlives them, so that the
//! process that comes after the parent can read what children have noted about themselves.

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

/// What a row says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RowValue {
    pub(crate) job: u64,
    pub(crate) attempt: u32,
    pub(crate) kind: u32,
    /// The child; 0 until it has noted it.
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
    /// Maps a file as so many rows, with what it has; or memory, where the file cannot have them.
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

    /// What a row says.
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

    /// Writes a row, before the child is started that it is for.
    pub(crate) fn write(&self, at: usize, noted: RowValue) {
        if let Some(cell) = self.cell(at) {
            cell.job.store(noted.job, Ordering::Release);
            cell.attempt.store(noted.attempt, Ordering::Release);
            cell.kind.store(noted.kind, Ordering::Release);
            cell.pid.store(noted.pid, Ordering::Release);
            cell.session.store(noted.session, Ordering::Release);
        }
    }

    /// In a child: notes itself. Allocates nothing, and is not the C library's.
    pub(crate) fn note(&self, at: usize, pid: i32, session: u32) {
        if let Some(cell) = self.cell(at) {
            cell.session.store(session, Ordering::Release);
            cell.pid.store(pid, Ordering::Release);
        }
    }
}

/// Signals a process by its descriptor: no other process can have taken its number.
pub(crate) fn signal_by(pidfd: &impl AsRawFd, signal: i32) -> io::Result<()> {
    // SAFETY: takes numbers, and no information about the signal.
    let rc = unsafe {
        libc::syscall(
            libc::SYS_pidfd_send_signal,
            pidfd.as_raw_fd(),
            signal,
            std::ptr::null::<libc::siginfo_t>(),
            0,
        )
    };
    check(i32::try_from(rc).unwrap_or(-1)).map(drop)
}
