//! Archives of accounting: what sacctmgr asks the controller for, who has a process of its own do it. What an archive has in it is
//! `acct`'s.

use minicbor::{Decode, Encode};
use muster_model::limits::{KINDS_MAX, PATH_BYTES_MAX};
use muster_model::validate::Validate;

/// Request of `sacctmgr archive`.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode, Validate)]
pub enum ArchiveRequest {
    /// Archives and purges now (`sacctmgr archive dump`).
    #[n(0)]
    Dump(#[n(0)] Box<ArchiveDump>),
    /// Takes rows of a file back (`sacctmgr archive load`).
    #[n(1)]
    Load {
        /// The file, on the controller's host.
        #[n(0)]
        #[valid(max_bytes = PATH_BYTES_MAX)]
        file: String,
    },
}

impl ArchiveRequest {
    /// Whether it names a directory to write to, or a program to run, which is done with the rights of `SlurmUser`.
    pub fn names_places(&self) -> bool {
        match self {
            ArchiveRequest::Dump(dump) => dump.dir.is_some() || dump.script.is_some(),
            ArchiveRequest::Load { .. } => false,
        }
    }
}

/// Records to purge, and place of their archive. Absent fields are as in slurmdbd.conf.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode, Validate)]
pub struct ArchiveDump {
    /// `Directory=`.
    #[n(0)]
    #[valid(max_bytes = PATH_BYTES_MAX)]
    pub dir: Option<String>,
    /// `Script=`.
    #[n(1)]
    #[valid(max_bytes = PATH_BYTES_MAX)]
    pub script: Option<String>,
    /// Records archived before they are purged, by words.
    #[n(2)]
    #[valid(max_items = KINDS_MAX)]
    pub kept: Vec<ArchivedKind>,
    /// Records purged, each with its age.
    #[n(3)]
    #[valid(max_items = KINDS_MAX)]
    pub ages: Vec<PurgeAge>,
}

/// After which age something is purged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode, Validate)]
pub struct PurgeAge {
    /// Kind of the records.
    #[n(0)]
    pub kind: ArchivedKind,
    /// So many units.
    #[n(1)]
    pub count: u32,
    /// The unit.
    #[n(2)]
    pub unit: AgeUnit,
}

/// Rows that are purged by an age of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Encode, Decode, Validate)]
pub enum ArchivedKind {
    /// Times in which nodes were out of service.
    #[n(0)]
    Events,
    /// Runs of jobs, with their steps and suspensions.
    #[n(1)]
    Jobs,
    /// Steps of runs that have ended.
    #[n(2)]
    Steps,
    /// Suspensions of runs that have ended.
    #[n(3)]
    Suspensions,
    /// Changes of accounting's records.
    #[n(4)]
    Transactions,
    /// Sums of use.
    #[n(5)]
    Usage,
    /// Times of reservations.
    #[n(6)]
    Reservations,
}

/// The unit of an age.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode, Validate)]
pub enum AgeUnit {
    /// Hours.
    #[n(0)]
    Hours,
    /// Days.
    #[n(1)]
    Days,
    /// Months.
    #[n(2)]
    Months,
}

impl AgeUnit {
    /// By its word; months where there is none.
    pub fn named(word: &str) -> Option<AgeUnit> {
        match word.to_ascii_lowercase().as_str() {
            "hour" | "hours" => Some(AgeUnit::Hours),
            "day" | "days" => Some(AgeUnit::Days),
            "" | "month" | "months" => Some(AgeUnit::Months),
            _ => None,
        }
    }
}
