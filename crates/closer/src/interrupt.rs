//! Interrupts a thread that waits in the close of a descriptor. What a socket lingers for is over then; a file system that does
//! not answer is waited for all the same.
#![allow(unsafe_code)]

use nix::libc;
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
use std::sync::Once;

/// Ignored unless somebody asks for it, so that it ends no process and no thread of others'.
const SIGNAL: Signal = Signal::SIGURG;

/// A thread that runs.
#[derive(Clone, Copy)]
pub(crate) struct Thread(libc::pthread_t);

// SAFETY: it is a name of a thread, which is a pointer in some C libraries, and nothing is read by it here.
unsafe impl Send for Thread {}

extern "C" fn nothing(_: libc::c_int) {}

impl Thread {
    /// The calling thread, from now on one that can be interrupted.
    pub(crate) fn current() -> Thread {
        static HANDLED: Once = Once::new();
        HANDLED.call_once(|| {
            let action = SigAction::new(
                SigHandler::Handler(nothing),
                SaFlags::SA_RESTART,
                SigSet::empty(),
            );
            // SAFETY: the handler does nothing, so that it may run at any time.
            let _ = unsafe { sigaction(SIGNAL, &action) };
        });
        let mut set = SigSet::empty();
        set.add(SIGNAL);
        let _ = set.thread_unblock();
        // SAFETY: takes nothing.
        Thread(unsafe { libc::pthread_self() })
    }

    /// Interrupts it. The caller knows that it has not ended.
    pub(crate) fn interrupt(self) {
        // SAFETY: the thread is there, by what the caller knows; the signal has a handler that does nothing.
        unsafe { libc::pthread_kill(self.0, SIGNAL as libc::c_int) };
    }
}
