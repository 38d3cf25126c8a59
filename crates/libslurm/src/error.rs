//! Errors by Slurm's numbers, in `errno` of the calling thread as programs of Slurm 22.05 find them, and the border that no panic
//! crosses.

#![allow(unsafe_code)]

use libc::c_int;
use muster_cli::connect::ConnectError;
use muster_cli::library;
use muster_model::refusal::Refusal;
use std::io::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// `SLURM_ERROR`.
pub const FAILED: c_int = -1;
/// `SLURM_COMMUNICATIONS_CONNECTION_ERROR`.
pub const NO_CONNECTION: c_int = 1001;
/// `SLURM_COMMUNICATIONS_RECEIVE_ERROR`.
pub const BAD_ANSWER: c_int = 1003;
/// `SLURM_PROTOCOL_AUTHENTICATION_ERROR`.
pub const UNTRUSTED: c_int = 1007;
/// `SLURM_NO_CHANGE_IN_DATA`.
pub const NO_CHANGE: c_int = 1900;
/// `ESLURM_JOB_SCRIPT_MISSING`.
pub const NO_SCRIPT: c_int = 2009;
/// `ESLURM_INVALID_JOB_ID`.
pub const INVALID_JOB_ID: c_int = 2017;
/// `ESLURM_INVALID_NODE_NAME`.
pub const INVALID_NODE: c_int = 2018;
/// `ESLURM_NOT_SUPPORTED`.
pub const NOT_SUPPORTED: c_int = 2036;
/// `ESLURM_INTERNAL`.
pub const INTERNAL: c_int = 2090;
/// `ESLURM_JOB_NOT_RUNNING`.
pub const JOB_NOT_RUNNING: c_int = 2085;

/// Why a call fails: Slurm's number, and a text that explains it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct CallError {
    /// The number.
    pub number: c_int,
    /// The reason.
    pub text: String,
}

impl CallError {
    /// A failure.
    pub fn new(number: c_int, text: impl Into<String>) -> CallError {
        CallError {
            number,
            text: text.into(),
        }
    }

    /// A null pointer, or a value that cannot be.
    pub fn argument(text: impl Into<String>) -> CallError {
        CallError::new(libc::EINVAL, text)
    }

    /// An answer of the controller that does not fit the request.
    pub fn unexpected(answer: &impl std::fmt::Debug) -> CallError {
        CallError::new(BAD_ANSWER, format!("unexpected answer: {answer:.200?}"))
    }
}

impl From<ConnectError> for CallError {
    fn from(error: ConnectError) -> CallError {
        let number = match &error {
            ConnectError::Refused(refusal) => library::error_number(refusal.code),
            ConnectError::Untrusted { .. } => UNTRUSTED,
            ConnectError::Broken(_) => BAD_ANSWER,
            ConnectError::Config(_) | ConnectError::Unreachable { .. } => NO_CONNECTION,
        };
        CallError::new(number, error.to_string())
    }
}

impl From<Refusal> for CallError {
    fn from(refusal: Refusal) -> CallError {
        CallError::from(ConnectError::from(refusal))
    }
}

/// Sets the error number of the thread.
pub fn set(number: c_int) {
    // SAFETY: the place is the thread's own.
    unsafe { *libc::__errno_location() = number };
}

/// Environment variable that has failed calls written to standard error, with their reasons.
const EXPLAIN: &str = "MUSTER_LIBSLURM_EXPLAIN";

/// Writes a line to standard error. `eprintln!` panics where that is a pipe that nobody reads, and no panic may leave this library.
pub fn complain(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// Runs the work of a function that gives `failed` where it fails, and sets the error number. A panic ends here.
pub fn guarded<T>(failed: T, work: impl FnOnce() -> Result<T, CallError>) -> T {
    let done = catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| {
        let text = "a bug of the library: the call was given up";
        Err(CallError::new(INTERNAL, text))
    });
    done.unwrap_or_else(|error| {
        if std::env::var_os(EXPLAIN).is_some() {
            complain(&format!("libslurm: {error}"));
        }
        set(error.number);
        failed
    })
}

/// As above, for a function that gives 0 or -1.
pub fn status(work: impl FnOnce() -> Result<(), CallError>) -> c_int {
    guarded(FAILED, || work().map(|()| 0))
}

/// Runs what frees memory, or sets members: it leaves the error number as it is.
pub fn quietly(work: impl FnOnce()) {
    let _ = catch_unwind(AssertUnwindSafe(work));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_an_error_of_its_caller() {
        assert_eq!(status(|| panic!("the test's")), FAILED);
        assert_eq!(
            std::io::Error::last_os_error().raw_os_error(),
            Some(INTERNAL)
        );
        assert_eq!(status(|| Err(CallError::argument("x"))), FAILED);
        assert_eq!(status(|| Ok(())), 0);
    }

    /// The test above, in a process whose standard error is a pipe that nobody reads.
    #[test]
    fn failures_are_explained_where_nobody_reads() {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut own = std::process::Command::new(std::env::current_exe().unwrap());
        own.args(["--nocapture", "a_panic_is_an_error_of_its_caller"])
            .env(EXPLAIN, "1")
            .stdout(std::process::Stdio::null())
            .stderr(writer);
        assert!(own.status().unwrap().success());
    }
}
