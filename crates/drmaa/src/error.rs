//! Errors of DRMAA 1.0 by their numbers.

use muster_cli::connect::ConnectError;
use muster_model::refusal::RefusalCode;

/// What went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Code {
    /// Nothing.
    Success = 0,
    /// A bug, or an error without a number of its own.
    InternalError,
    /// The controller cannot be reached.
    DrmCommunicationFailure,
    /// The user may not do it.
    AuthFailure,
    /// An argument is null or out of range.
    InvalidArgument,
    /// `drmaa_init` was not called.
    NoActiveSession,
    /// Never returned: a process without memory is ended.
    NoMemory,
    /// The contact string names no cluster.
    InvalidContactString,
    /// There is no configuration by default.
    DefaultContactStringError,
    /// Never returned: there is one implementation.
    NoDefaultContactStringSelected,
    /// The cluster cannot be used.
    DrmsInitFailed,
    /// `drmaa_init` was called before.
    AlreadyActiveSession,
    /// Never returned: a session ends without the controller.
    DrmsExitError,
    /// A value has another form.
    InvalidAttributeFormat,
    /// A value cannot be.
    InvalidAttributeValue,
    /// Two attributes exclude each other.
    ConflictingAttributeValues,
    /// The controller is busy.
    TryLater,
    /// The controller refuses the job.
    DeniedByDrm,
    /// There is no such job.
    InvalidJob,
    /// The job is not suspended.
    ResumeInconsistentState,
    /// The job does not run.
    SuspendInconsistentState,
    /// The job does not wait.
    HoldInconsistentState,
    /// The job is not held.
    ReleaseInconsistentState,
    /// The time was over first.
    ExitTimeout,
    /// What the job used is not known.
    NoRusage,
    /// A list is at its end.
    NoMoreElements,
}

impl Code {
    /// All codes, by number.
    pub const ALL: [Code; 26] = {
        use Code::*;
        [
            Success,
            InternalError,
            DrmCommunicationFailure,
            AuthFailure,
            InvalidArgument,
            NoActiveSession,
            NoMemory,
            InvalidContactString,
            DefaultContactStringError,
            NoDefaultContactStringSelected,
            DrmsInitFailed,
            AlreadyActiveSession,
            DrmsExitError,
            InvalidAttributeFormat,
            InvalidAttributeValue,
            ConflictingAttributeValues,
            TryLater,
            DeniedByDrm,
            InvalidJob,
            ResumeInconsistentState,
            SuspendInconsistentState,
            HoldInconsistentState,
            ReleaseInconsistentState,
            ExitTimeout,
            NoRusage,
            NoMoreElements,
        ]
    };

    /// What `drmaa_strerror` says.
    pub fn text(self) -> &'static std::ffi::CStr {
        match self {
            Code::Success => c"no error",
            Code::InternalError => c"unexpected error inside of the library",
            Code::DrmCommunicationFailure => c"the controller cannot be reached",
            Code::AuthFailure => c"the user is not allowed to do this",
            Code::InvalidArgument => c"an argument is invalid",
            Code::NoActiveSession => c"there is no active session",
            Code::NoMemory => c"there is not enough memory",
            Code::InvalidContactString => c"the contact string is invalid",
            Code::DefaultContactStringError => c"there is no default contact",
            Code::NoDefaultContactStringSelected => c"no default contact string is selected",
            Code::DrmsInitFailed => c"the cluster cannot be used",
            Code::AlreadyActiveSession => c"there is an active session",
            Code::DrmsExitError => c"the session could not be ended",
            Code::InvalidAttributeFormat => c"the format of an attribute's value is invalid",
            Code::InvalidAttributeValue => c"the value of an attribute is invalid",
            Code::ConflictingAttributeValues => c"values of attributes are in conflict",
            Code::TryLater => c"the controller is busy; try again later",
            Code::DeniedByDrm => c"the cluster refuses the job",
            Code::InvalidJob => c"there is no such job",
            Code::ResumeInconsistentState => c"the job cannot be resumed in its state",
            Code::SuspendInconsistentState => c"the job cannot be suspended in its state",
            Code::HoldInconsistentState => c"the job cannot be held in its state",
            Code::ReleaseInconsistentState => c"the job cannot be released in its state",
            Code::ExitTimeout => c"the time ran out before the job had ended",
            Code::NoRusage => c"the job has ended, but what it used is not known",
            Code::NoMoreElements => c"the list has no more elements",
        }
    }
}

/// A failure with its diagnosis.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct Error {
    /// Its number.
    pub code: Code,
    /// What went wrong.
    pub text: String,
}

impl Error {
    /// A failure with a text of its own.
    pub fn new(code: Code, text: impl Into<String>) -> Error {
        Error {
            code,
            text: text.into(),
        }
    }
}

impl From<Code> for Error {
    fn from(code: Code) -> Error {
        Error::new(code, code.text().to_string_lossy())
    }
}

impl From<ConnectError> for Error {
    fn from(error: ConnectError) -> Error {
        let text = error.to_string();
        let code = match &error {
            ConnectError::Refused(refusal) => match refusal.code {
                RefusalCode::AccessDenied => Code::AuthFailure,
                RefusalCode::InvalidJobId => Code::InvalidJob,
                RefusalCode::Busy => Code::TryLater,
                _ => Code::DeniedByDrm,
            },
            _ => Code::DrmCommunicationFailure,
        };
        Error::new(code, text)
    }
}
