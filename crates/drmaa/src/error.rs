//! Errors of DRMAA 1.0 by their numbers.

use muster_cli::connect::ConnectError;
use muster_model::refusal::RefusalCode;

/// Defines the codes, in the order of their numbers from 0 on, each with the text of `drmaa_strerror`.
macro_rules! codes {
    ($($(#[$doc:meta])* $code:ident = $text:literal,)*) => {
        /// The number of an error.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(i32)]
        pub enum DrmaaErrno {
            $($(#[$doc])* $code,)*
        }

        impl DrmaaErrno {
            /// All codes, by number.
            pub const ALL: &'static [DrmaaErrno] = &[$(DrmaaErrno::$code),*];

            /// The text of `drmaa_strerror`.
            pub fn text(self) -> &'static std::ffi::CStr {
                match self {
                    $(DrmaaErrno::$code => $text,)*
                }
            }
        }
    };
}

codes! {
    /// Nothing.
    Success = c"no error",
    /// A bug, or an error without a number of its own.
    InternalError = c"unexpected error inside of the library",
    /// The controller cannot be reached.
    DrmCommunicationFailure = c"the controller cannot be reached",
    /// The user may not do it.
    AuthFailure = c"the user is not allowed to do this",
    /// An argument is null or out of range.
    InvalidArgument = c"an argument is invalid",
    /// `drmaa_init` was not called.
    NoActiveSession = c"there is no active session",
    /// Never returned: a process without memory is ended.
    NoMemory = c"there is not enough memory",
    /// The contact string names no cluster.
    InvalidContactString = c"the contact string is invalid",
    /// There is no configuration by default.
    DefaultContactStringError = c"there is no default contact",
    /// Never returned: there is one implementation.
    NoDefaultContactStringSelected = c"no default contact string is selected",
    /// The cluster cannot be used.
    DrmsInitFailed = c"the cluster cannot be used",
    /// `drmaa_init` was called before.
    AlreadyActiveSession = c"there is an active session",
    /// Never returned: a session ends without the controller.
    DrmsExitError = c"the session could not be ended",
    /// A value has another form.
    InvalidAttributeFormat = c"the format of an attribute's value is invalid",
    /// A value cannot be.
    InvalidAttributeValue = c"the value of an attribute is invalid",
    /// Two attributes exclude each other.
    ConflictingAttributeValues = c"values of attributes are in conflict",
    /// The controller is busy.
    TryLater = c"the controller is busy; try again later",
    /// The controller refuses the job.
    DeniedByDrm = c"the cluster refuses the job",
    /// There is no such job.
    InvalidJob = c"there is no such job",
    /// The job is not suspended.
    ResumeInconsistentState = c"the job cannot be resumed in its state",
    /// The job does not run.
    SuspendInconsistentState = c"the job cannot be suspended in its state",
    /// The job does not wait.
    HoldInconsistentState = c"the job cannot be held in its state",
    /// The job is not held.
    ReleaseInconsistentState = c"the job cannot be released in its state",
    /// The time was over first.
    ExitTimeout = c"the time ran out before the job had ended",
    /// The job's use is not known.
    NoRusage = c"the job has ended, but what it used is not known",
    /// A list is at its end.
    NoMoreElements = c"the list has no more elements",
}

/// A failure with its diagnosis.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct Error {
    /// Its number.
    pub code: DrmaaErrno,
    /// Description of the error.
    pub text: String,
}

impl Error {
    /// A failure with a text of its own.
    pub fn new(code: DrmaaErrno, text: impl Into<String>) -> Error {
        Error {
            code,
            text: text.into(),
        }
    }
}

impl From<DrmaaErrno> for Error {
    fn from(code: DrmaaErrno) -> Error {
        Error::new(code, code.text().to_string_lossy())
    }
}

impl From<ConnectError> for Error {
    fn from(error: ConnectError) -> Error {
        let text = error.to_string();
        let code = match &error {
            ConnectError::Refused(refusal) => match refusal.code {
                RefusalCode::AccessDenied => DrmaaErrno::AuthFailure,
                RefusalCode::InvalidJobId => DrmaaErrno::InvalidJob,
                RefusalCode::Busy => DrmaaErrno::TryLater,
                _ => DrmaaErrno::DeniedByDrm,
            },
            _ => DrmaaErrno::DrmCommunicationFailure,
        };
        Error::new(code, text)
    }
}
