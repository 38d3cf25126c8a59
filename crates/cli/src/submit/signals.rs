//! Signals as something to poll. They are blocked here and read from a descriptor, so that no handler runs in the
//! middle of anything; programs that are started must have the mask cleared.

use muster_model::ids::JobId;
use muster_node_core::signals::job_of_value;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use std::os::fd::{AsFd, BorrowedFd};

/// A signal that was caught.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CaughtSignal {
    pub(crate) signal: Signal,
    /// The job whose processes and steps all get it.
    pub(crate) job: Option<JobId>,
}

/// Signals that were caught.
#[derive(Debug)]
pub(crate) struct Signals {
    fd: SignalFd,
    mask: SigSet,
}

impl Signals {
    /// Catches these from now on.
    ///
    /// # Errors
    /// When the kernel has no descriptor left.
    pub(crate) fn catch(signals: &[Signal]) -> std::io::Result<Signals> {
        let mask: SigSet = signals.iter().copied().collect();
        mask.thread_block()?;
        let fd = SignalFd::with_flags(&mask, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?;
        Ok(Signals { fd, mask })
    }

    /// To poll.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// The next one that came.
    pub(crate) fn take(&self) -> Option<Signal> {
        self.take_with_job().map(|caught| caught.signal)
    }

    /// The next one that came, and the job that all of gets it.
    pub(crate) fn take_with_job(&self) -> Option<CaughtSignal> {
        let info = self.fd.read_signal().ok().flatten()?;
        let signal = Signal::try_from(i32::try_from(info.ssi_signo).ok()?).ok()?;
        let is_queued = info.ssi_code == nix::libc::SI_QUEUE;
        let job = is_queued.then(|| job_of_value(info.ssi_ptr)).flatten();
        Some(CaughtSignal { signal, job })
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        let _ = self.mask.thread_unblock();
    }
}
