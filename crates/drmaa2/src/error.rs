//! Errors of DRMAA 2 by their numbers, and the last one of each thread.

use muster_cli::connect::ConnectError;
use muster_model::refusal::{Refusal, RefusalCode};
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Kinds of errors, by the numbers of `drmaa2_error`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum DrmaaCode {
    /// Nothing.
    Success = 0,
    /// The controller refuses the request.
    DeniedByDrms = 1,
    /// The controller cannot be reached.
    DrmCommunication = 2,
    /// The controller is busy.
    TryLater = 3,
    /// The file of a session cannot be read or written.
    SessionManagement = 4,
    /// The time was over first.
    Timeout = 5,
    /// A bug.
    Internal = 6,
    /// An argument is null, has a value that is not allowed, or names what does not exist.
    InvalidArgument = 7,
    /// The session is closed.
    InvalidSession = 8,
    /// The job's or reservation's state does not allow it.
    InvalidState = 9,
    /// A limit of the library is reached.
    OutOfResource = 10,
    /// An attribute that this library does not support has a value.
    UnsupportedAttribute = 11,
    /// A function that this library does not support.
    UnsupportedOperation = 12,
}

impl DrmaaCode {
    /// Its number in the C binding.
    pub fn number(self) -> libc::c_int {
        self as libc::c_int
    }
}

/// A failure with its text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct DrmaaError {
    /// Its number.
    pub code: DrmaaCode,
    /// The error, and its remedy.
    pub text: String,
}

impl DrmaaError {
    /// A failure.
    pub fn new(code: DrmaaCode, text: impl Into<String>) -> DrmaaError {
        DrmaaError {
            code,
            text: text.into(),
        }
    }

    /// An argument that cannot be.
    pub fn argument(text: impl Into<String>) -> DrmaaError {
        DrmaaError::new(DrmaaCode::InvalidArgument, text)
    }

    /// An answer of the controller that does not fit the request.
    pub fn unexpected(answer: &impl std::fmt::Debug) -> DrmaaError {
        DrmaaError::new(
            DrmaaCode::Internal,
            format!("unexpected answer of the controller: {answer:.200?}"),
        )
    }
}

impl From<ConnectError> for DrmaaError {
    fn from(error: ConnectError) -> DrmaaError {
        let text = error.to_string();
        let code = match &error {
            ConnectError::Refused(refusal) => of_refusal(refusal.code),
            _ => DrmaaCode::DrmCommunication,
        };
        DrmaaError::new(code, text)
    }
}

impl From<Refusal> for DrmaaError {
    fn from(refusal: Refusal) -> DrmaaError {
        ConnectError::from(refusal).into()
    }
}

fn of_refusal(code: RefusalCode) -> DrmaaCode {
    match code {
        RefusalCode::Busy | RefusalCode::TooManyJobs | RefusalCode::NotLeader => {
            DrmaaCode::TryLater
        }
        RefusalCode::InvalidJobId | RefusalCode::InvalidReservation => DrmaaCode::InvalidArgument,
        RefusalCode::AlreadyDone
        | RefusalCode::JobPending
        | RefusalCode::JobNotPending
        | RefusalCode::JobNotRunning
        | RefusalCode::JobHeld => DrmaaCode::InvalidState,
        _ => DrmaaCode::DeniedByDrms,
    }
}

thread_local! {
    static LAST: RefCell<Option<DrmaaError>> = const { RefCell::new(None) };
}

fn record(error: Option<DrmaaError>) {
    // A thread that ends may call once more when its own values are gone.
    let _ = LAST.try_with(|last| last.replace(error));
}

/// The thread's last error, unless its last call succeeded.
pub fn last() -> Option<DrmaaError> {
    LAST.try_with(|last| last.borrow().clone()).ok().flatten()
}

/// Runs the work of a function that gives `failed` where it fails, and says why by [`last`]. A panic ends here.
pub fn guarded<T>(failed: T, work: impl FnOnce() -> Result<T, DrmaaError>) -> T {
    let done = catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| {
        let text = "a bug of the library: the call was given up";
        Err(DrmaaError::new(DrmaaCode::Internal, text))
    });
    match done {
        Ok(value) => {
            record(None);
            value
        }
        Err(error) => {
            record(Some(error));
            failed
        }
    }
}

/// As above, for a function that returns the error's number.
pub fn numbered(work: impl FnOnce() -> Result<(), DrmaaError>) -> libc::c_int {
    let mut number = DrmaaCode::Success.number();
    guarded((), || {
        work().inspect_err(|error| number = error.code.number())
    });
    match last() {
        // A panic has no number of its own.
        Some(error) if number == 0 => error.code.number(),
        _ => number,
    }
}

/// Runs what frees memory: it leaves the last error as it is.
pub fn quietly(work: impl FnOnce()) {
    let _ = catch_unwind(AssertUnwindSafe(work));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_thread_has_its_own_last_error() {
        let wrong = || Err(DrmaaError::argument("pos is 3"));
        assert_eq!(guarded(7, wrong), 7);
        assert_eq!(last().map(|e| e.code), Some(DrmaaCode::InvalidArgument));
        std::thread::spawn(|| assert_eq!(last(), None))
            .join()
            .unwrap();
        quietly(|| panic!("the test's"));
        assert!(last().is_some(), "freeing is no call of its own");
        assert_eq!(guarded(7, || Ok(8)), 8);
        assert_eq!(last(), None);
    }

    #[test]
    fn a_panic_is_an_error_of_its_caller() {
        assert_eq!(numbered(|| panic!("the test's")), 6);
        assert_eq!(numbered(|| Err(DrmaaError::argument("x"))), 7);
        assert_eq!(numbered(|| Ok(())), 0);
    }
}
