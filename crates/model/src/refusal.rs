//! Why a request was refused: a code with Slurm's wording, so that clients that match it keep working, and a
//! detail in our own words that names the thing and the fix.

use crate::limits::NOTE_BYTES_MAX;
use crate::validate::Validate;
use minicbor::{Decode, Encode};
use std::fmt;

/// A request that was not carried out; nothing changed.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode, Validate)]
#[valid(max_bytes = NOTE_BYTES_MAX)]
pub struct Refusal {
    /// Which of Slurm's errors it is.
    #[n(0)]
    pub code: RefusalCode,
    /// Details, and what to do; may be empty.
    #[n(1)]
    pub detail: String,
    /// Lines of a verifier's for the user, to be shown before all else.
    #[n(2)]
    #[cbor(default)]
    #[valid(max_items = 256)]
    pub lines: Vec<String>,
}

impl Refusal {
    /// A refusal with its detail.
    pub fn new(code: RefusalCode, detail: impl Into<String>) -> Refusal {
        Refusal {
            code,
            detail: detail.into(),
            lines: Vec::new(),
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code.text())?;
        if !self.detail.is_empty() {
            write!(f, " ({})", self.detail)?;
        }
        Ok(())
    }
}

impl std::error::Error for Refusal {}

impl From<RefusalCode> for Refusal {
    fn from(code: RefusalCode) -> Refusal {
        Refusal {
            code,
            detail: String::new(),
            lines: Vec::new(),
        }
    }
}

macro_rules! refusals {
    ($($(#[$doc:meta])* $n:literal $name:ident = $text:literal,)*) => {
        /// Slurm's errors that Muster gives, with the text that `slurm_strerror` has for them.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode, Validate)]
        #[cbor(index_only)]
        pub enum RefusalCode {
            $($(#[$doc])* #[n($n)] $name,)*
        }

        impl RefusalCode {
            /// Slurm's wording.
            pub fn text(self) -> &'static str {
                match self { $(RefusalCode::$name => $text,)* }
            }
        }
    };
}

refusals! {
    /// No such partition.
    0 InvalidPartition = "Invalid partition name specified",
    /// No such node.
    1 InvalidNode = "Invalid node name specified",
    /// Can never run with the nodes there are.
    2 NodeConfigUnavailable = "Requested node configuration is not available",
    /// No such job.
    3 InvalidJobId = "Invalid job id specified",
    /// Too late.
    4 AlreadyDone = "Job/step already completing or completed",
    /// Not yours.
    5 AccessDenied = "Access/permission denied",
    /// No node has this feature, or the expression is wrong.
    6 InvalidFeature = "Invalid feature specification",
    /// No node has this device.
    7 InvalidGres = "Invalid generic resource (gres) specification",
    /// Bad `--array`.
    8 InvalidArray = "Invalid job array specification",
    /// No such reservation.
    9 InvalidReservation = "Requested reservation is invalid",
    /// Over the partition's time limit.
    10 InvalidTimeLimit = "Requested time limit is invalid (missing or exceeds some limit)",
    /// The job has not started.
    11 JobPending = "Job is pending execution",
    /// The job is not pending any more.
    12 JobNotPending = "Job is no longer pending execution",
    /// No such QOS.
    13 InvalidQos = "Invalid qos specification",
    /// No such account.
    14 InvalidAccount = "Invalid account or account/partition combination specified",
    /// A dependency that cannot be: on itself, or circular.
    15 InvalidDependency = "Job dependency problem",
    /// `MaxJobCount` is reached.
    16 TooManyJobs = "Slurm temporarily unable to accept job, sleeping and retrying",
    /// More nodes than the partition allows.
    17 InvalidNodeCount = "Node count specification invalid",
    /// Over a memory limit.
    18 InvalidMemory = "Memory required by task is not available",
    /// `--immediate` and nothing free.
    19 NotImmediate = "Immediate execution impossible, insufficient priority",
    /// The partition takes no jobs.
    20 PartitionNotAvailable = "Required partition not available (inactive or drain)",
    /// Nothing to do it to.
    21 JobNotRunning = "Requested operation is presently disabled",
    /// The cluster state cannot be written.
    22 StorageFull = "No space left on device",
    /// A step that cannot be made.
    23 InvalidTaskCount = "Task count specification invalid",
    /// Not this state change.
    24 InvalidNodeState = "Invalid node state specified",
    /// The job cannot be requeued.
    25 NotRequeuable = "Requested operation is presently disabled",
    /// Something the message says is unsupported.
    26 NotSupported = "Requested operation not supported on this system",
    /// A value that cannot be.
    27 InvalidValue = "Invalid argument",
    /// Group, account or root not allowed in the partition.
    28 PartitionAccess = "User's group not permitted to use this partition",
    /// CPU count over the limit.
    29 InvalidCpuCount = "CPU count specification invalid",
    /// `scontrol create` of what exists.
    30 Duplicate = "Duplicate reservation name",
    /// Another controller leads.
    31 NotLeader = "Controller is in standby mode",
    /// Asked of a node that does not have the job.
    32 JobNotHere = "Invalid job credential",
    /// Too many requests.
    33 Busy = "Resource temporarily unavailable",
    /// `MaxArraySize`.
    34 ArrayTooLarge = "Invalid job array specification",
    /// Already held, suspended, ....
    35 JobHeld = "Job is already in the requested state",
    /// A `sacct` request with accounting off.
    36 AccountingDisabled = "Slurm accounting storage is disabled",
    /// The message could not be understood.
    37 ProtocolError = "Protocol authentication error",
    /// Root jobs are off.
    38 RootDisabled = "Access by user root disabled in configuration",
    /// No such license.
    39 InvalidLicense = "Invalid license specification",
    /// A dependency of a job on itself by way of others.
    40 CircularDependency = "Circular job dependency",
    /// Names and texts that are too long.
    41 TooLong = "Pathname of a file, directory or other parameter too long",
    /// Jobs are in the partition.
    42 PartitionInUse = "Partition is in use",
    /// Reservations: not for this user.
    60 ReservationAccess = "Access denied to requested reservation",
    /// Jobs ask for it or run in it.
    61 ReservationBusy = "Requested reservation is in use",
    /// Another has the nodes.
    62 ReservationOverlap = "Requested reservation overlaps with another reservation",
    /// Begins or ends in the past, or before it begins.
    63 InvalidTime = "Invalid time specified",
    /// Nodes are in use.
    64 NodesBusy = "Requested nodes are busy",
    /// It has begun.
    65 ReservationStarted = "Reservation already started",
    /// Neither users nor accounts.
    66 ReservationEmpty = "Reservation request lacks users, groups or accounts",
    /// Its cores are fixed.
    67 CoreReservationUpdate = "Core-based reservation can not be updated",
    /// It does not repeat.
    68 NotSkippable = "Reservation given is not skipable, try deleting instead",
    /// Users and groups at once.
    69 UsersAndGroups = "Reservations can't have users and groups specified, only one or the other",
    /// Counts of cores do not fit the nodes.
    70 CoreCounts = "Core count for reservation node list is not consistent!",
    /// Changes of a heterogeneous job apply only to the whole.
    260 HetComponent = "Operation not permitted on individual component of heterogeneous job",
    /// A limit of the association or QOS.
    220 AccountingPolicy = "Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)",
    /// No such workload characterization key.
    261 InvalidWckey = "Invalid wckey specification",
    /// `MaxStepCount`.
    300 StepLimit = "Step limit reached for this job",
    /// Jobs run in the association that would be gone.
    301 JobsActive = "Job(s) active, cancel job(s) before remove",
    /// `ScronParameters=explicit_scancel`.
    400 CannotCancelCron = "Cannot cancel scrontab jobs without --cron flag.",
    /// The job is defined by its crontab.
    401 CannotModifyCron = "Cannot modify scrontab jobs through scontrol",
    /// `ScronParameters` lacks `enable`.
    402 CrontabsDisabled = "scrontab is disabled on this cluster",
    /// The least time asked for is longer than what the job, its partition or its deadline has room for.
    403 InvalidTimeMin = "Invalid time-min specification (exceeds job's time or other limits)",
    /// No trigger is meant.
    404 NoSuchTrigger = "No such process",
    /// An equal trigger exists.
    405 DuplicateTrigger = "Duplicate event trigger",
    /// There are as many triggers as there may be.
    406 TooManyTriggers = "Too many event triggers",
    /// A label (`--mcs-label`) that the job's owner does not have.
    407 InvalidMcsLabel = "Invalid mcs_label specified",
    /// A federation has as many clusters as it may.
    408 FederationFull = "Too many clusters in federation",
    /// A verifier of the site refused it, and says why in lines of its own.
    500 Unspecified = "Unspecified error",
    /// A verifier wants a time limit.
    501 MissingTimeLimit = "Time limit specification required, but not provided",
    /// A verifier wants a number of nodes or tasks.
    502 MissingSize = "Job size specification needs to be provided",
    /// `--acctg-freq` of a job with a memory limit, which would be watched less often than the site wants.
    510 InvalidAcctgFreq = "Invalid accounting frequency requested",
    /// More CPUs than the partition has.
    511 TooManyCpus = "More processors requested than permitted",
}
