//! Slurm's numbers of errors (slurm_errno.h), which clients of the REST API and programs in C look at, and their texts.

mod texts;

use muster_model::refusal::RefusalCode;
use std::io;

/// `SLURM_COMMUNICATIONS_CONNECTION_ERROR`.
pub(crate) const CONNECTION: i32 = 1001;
/// `SLURM_COMMUNICATIONS_RECEIVE_ERROR`.
pub(crate) const RECEIVE: i32 = 1003;
/// `SLURM_PROTOCOL_AUTHENTICATION_ERROR`.
pub(crate) const AUTHENTICATION: i32 = 1007;
/// `SLURM_NO_CHANGE_IN_DATA`.
pub(crate) const NO_CHANGE: i32 = 1900;
/// `ESLURM_JOB_SCRIPT_MISSING`.
pub(crate) const NO_SCRIPT: i32 = 2009;
/// `ESLURM_USER_ID_MISSING`: the caller has no right to it.
const FOREIGN_USER: i32 = 2010;
/// `ESLURM_INVALID_JOB_ID`.
pub(crate) const INVALID_JOB_ID: i32 = 2017;
/// `ESLURM_INVALID_NODE_NAME`.
pub(crate) const INVALID_NODE: i32 = 2018;
/// `ESLURM_INVALID_PARTITION_NAME`.
pub(crate) const INVALID_PARTITION: i32 = 2000;
/// `ESLURM_NOT_SUPPORTED`.
pub(crate) const NOT_SUPPORTED: i32 = 2036;
/// `ESLURM_RESERVATION_INVALID`.
pub(crate) const INVALID_RESERVATION: i32 = 2053;
/// `ESLURM_MISSING_WORK_DIR`.
pub(crate) const NO_WORK_DIR: i32 = 2063;
/// `ESLURM_ENVIRONMENT_MISSING`.
pub(crate) const NO_ENVIRONMENT: i32 = 2127;
/// `ESLURM_REST_INVALID_QUERY`.
pub(crate) const INVALID_QUERY: i32 = 9000;
/// `ESLURM_REST_FAIL_PARSING`.
pub(crate) const FAIL_PARSING: i32 = 9001;

/// `ESLURM_REST_EMPTY_RESULT`.
pub(crate) const NOTHING_FOUND: i32 = 9003;

/// Slurm's text for a number that is given here.
pub(crate) fn text(number: i32) -> &'static str {
    match number {
        CONNECTION => "Unable to contact slurm controller (connect failure)",
        RECEIVE => "Communications receive error",
        AUTHENTICATION => "Protocol authentication error",
        NO_CHANGE => "Data has not changed since time specified",
        FOREIGN_USER => "Invalid user id",
        NO_SCRIPT => "Job script not specified",
        INVALID_JOB_ID => "Invalid job id specified",
        INVALID_NODE => "Invalid node name specified",
        INVALID_PARTITION => "Invalid partition name specified",
        NOT_SUPPORTED => "Requested operation not supported on this system",
        INVALID_RESERVATION => "Requested reservation is invalid",
        NO_WORK_DIR => "Working directory not specified",
        NO_ENVIRONMENT => "Missing environment in request",
        INVALID_QUERY => "REST query contains invalid parameters",
        NOTHING_FOUND => "Nothing found with query",
        2012 => "Pathname of a file, directory or other parameter too long",
        FAIL_PARSING => "Failure during parsing",
        _ => UNKNOWN,
    }
}

/// The number of a refusal.
pub(crate) fn of(code: RefusalCode) -> i32 {
    use RefusalCode as R;
    match code {
        R::InvalidPartition => 2000,
        R::AccessDenied | R::RootDisabled => 2002,
        R::PartitionAccess => 2003,
        R::TooManyCpus => 2005,
        R::InvalidNodeCount => 2006,
        R::TooLong => 2012,
        R::NodeConfigUnavailable => 2014,
        R::NodesBusy => 2016,
        R::InvalidJobId => INVALID_JOB_ID,
        R::InvalidNode => INVALID_NODE,
        R::AlreadyDone => 2021,
        R::JobPending => 2024,
        R::InvalidTaskCount => 2025,
        R::JobNotHere => 2026,
        R::NotLeader => 2027,
        R::InvalidNodeState => 2028,
        R::InvalidFeature => 2029,
        R::NotSupported => NOT_SUPPORTED,
        R::JobNotRunning | R::NotRequeuable => 2037,
        R::InvalidDependency => 2038,
        R::InvalidAcctgFreq => 4003,
        R::InvalidMemory => 2044,
        R::InvalidAccount => 2045,
        R::InvalidLicense => 2048,
        R::AccountingPolicy => 2050,
        R::InvalidTimeLimit => 2051,
        R::ReservationAccess => 2052,
        R::InvalidReservation => INVALID_RESERVATION,
        R::InvalidTime => 2054,
        R::ReservationBusy => 2055,
        R::InvalidWckey => 2057,
        R::ReservationOverlap => 2058,
        R::InvalidQos => 2066,
        R::InvalidMcsLabel => 2099,
        R::FederationFull => 7100,
        R::InvalidCpuCount => 2069,
        R::PartitionNotAvailable => 2070,
        R::CircularDependency => 2071,
        R::InvalidGres => 2072,
        R::JobNotPending => 2073,
        R::PartitionInUse => 2075,
        R::StepLimit => 2076,
        R::NotImmediate => 2078,
        R::ReservationEmpty => 2080,
        R::InvalidArray | R::ArrayTooLarge => 2081,
        R::Duplicate => 2082,
        R::CannotModifyCron => 2096,
        R::Unspecified => -1,
        R::MissingTimeLimit => 8000,
        R::MissingSize => 2008,
        R::CannotCancelCron => 2098,
        R::ReservationStarted => 2104,
        R::HetComponent => 2108,
        R::CoreReservationUpdate => 2109,
        R::CoreCounts => 2111,
        R::InvalidTimeMin => 2124,
        R::NotSkippable => 2128,
        R::UsersAndGroups => 2129,
        R::ProtocolError => AUTHENTICATION,
        R::JobsActive => 7001,
        R::AccountingDisabled => 7000,
        R::JobHeld => 2020,
        // Errors of the system have its own numbers (errno(3)): no space, again, invalid.
        R::StorageFull => 28,
        R::Busy | R::TooManyJobs => 11,
        R::InvalidValue => 22,
        R::NoSuchTrigger => 3,
        R::TooManyTriggers => 11,
        R::DuplicateTrigger => 2089,
        R::CrontabsDisabled => NOT_SUPPORTED,
    }
}

/// Slurm's text for a number: of a refusal, or one of those above; for others one that says the same.
pub(crate) fn text_of(number: i32) -> Option<&'static str> {
    let refused = REFUSALS.iter().find(|code| of(**code) == number);
    match (refused, text(number)) {
        // Numbers of the C library have its texts.
        _ if (0..1000).contains(&number) => None,
        (Some(code), _) => Some(code.text()),
        (None, UNKNOWN) => texts::text(number),
        (None, known) => Some(known),
    }
}

/// The number of the longest text of a refusal that is in a message.
pub(crate) fn named_in(message: &str) -> Option<i32> {
    let refusals = REFUSALS.iter().map(|code| (code.text(), of(*code)));
    let all = refusals.chain([(text(FOREIGN_USER), FOREIGN_USER)]);
    let named = all.filter(|(text, _)| message.contains(text));
    named
        .max_by_key(|(text, _)| text.len())
        .map(|(_, number)| number)
}

/// The system's text for one of its numbers.
pub(crate) fn of_system(number: i32) -> &'static str {
    texts::of_system(number)
}

/// The system's text for a failure, without the number that Rust adds.
pub(crate) fn system_text(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(number) => texts::of_system(number).to_owned(),
        None => error.to_string(),
    }
}

/// Text of a number that has no other.
const UNKNOWN: &str = "Unspecified error";

use RefusalCode as R;

/// Refusals, the first for each number.
#[rustfmt::skip]
const REFUSALS: &[RefusalCode] = &[
    R::InvalidPartition, R::AccessDenied, R::RootDisabled, R::PartitionAccess, R::InvalidNodeCount,
    R::TooLong, R::NodeConfigUnavailable, R::NodesBusy, R::InvalidJobId, R::InvalidNode,
    R::AlreadyDone, R::JobPending, R::InvalidTaskCount, R::JobNotHere, R::NotLeader,
    R::InvalidNodeState, R::InvalidFeature, R::NotSupported, R::JobNotRunning, R::NotRequeuable,
    R::InvalidDependency, R::InvalidMemory, R::InvalidAccount, R::InvalidLicense,
    R::AccountingPolicy, R::InvalidTimeLimit, R::ReservationAccess, R::InvalidReservation,
    R::InvalidTime, R::ReservationBusy, R::InvalidWckey, R::ReservationOverlap, R::InvalidQos,
    R::InvalidCpuCount, R::PartitionNotAvailable, R::CircularDependency, R::InvalidGres,
    R::JobNotPending, R::PartitionInUse, R::StepLimit, R::NotImmediate, R::ReservationEmpty,
    R::InvalidArray, R::ArrayTooLarge, R::Duplicate, R::CannotModifyCron, R::Unspecified,
    R::MissingTimeLimit, R::MissingSize, R::CannotCancelCron, R::ReservationStarted,
    R::HetComponent, R::CoreReservationUpdate, R::CoreCounts, R::InvalidTimeMin, R::NotSkippable,
    R::UsersAndGroups, R::ProtocolError, R::JobsActive, R::AccountingDisabled, R::JobHeld,
    R::StorageFull, R::Busy, R::TooManyJobs, R::InvalidValue, R::NoSuchTrigger, R::TooManyTriggers,
    R::DuplicateTrigger, R::CrontabsDisabled,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_texts_and_texts_numbers() {
        assert_eq!(text_of(2010), Some("Invalid user id"));
        assert_eq!(text_of(2042), Some("Job is held"));
        assert_eq!((text_of(2999), text_of(2)), (None, None));
        let refused = "slurm_update error: Invalid user id";
        assert_eq!((named_in(refused), named_in("other")), (Some(2010), None));
        assert_eq!(
            system_text(&io::Error::from_raw_os_error(2)),
            "No such file or directory"
        );
    }
}
