//! Settings of preemption: `PreemptType`, `PreemptMode` of the cluster, partitions and QOS, times for which a job is left
//! alone; and how a job was preempted.

use crate::ids::JobId;
use crate::time::Timestamp;
use minicbor::{Decode, Encode};

/// `PreemptType`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(index_only)]
pub enum PreemptType {
    /// `preempt/none`.
    #[default]
    #[n(0)]
    None,
    /// `preempt/partition_prio`: jobs of partitions with a higher `PriorityTier` before those of lower ones.
    #[n(1)]
    PartitionPrio,
    /// `preempt/qos`: as the lists of the QOS say.
    #[n(2)]
    Qos,
}

/// The way in which a job is preempted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(index_only)]
pub enum PreemptMode {
    /// It is left alone.
    #[default]
    #[n(0)]
    Off,
    /// It is ended.
    #[n(1)]
    Cancel,
    /// It goes back to the queue if it may, else it is ended.
    #[n(2)]
    Requeue,
    /// It is stopped until its CPUs are free again. Its memory and devices stay its own.
    #[n(3)]
    Suspend,
}

/// Settings of preemption, slurm.conf(5).
#[derive(Clone, Debug, Default, PartialEq, Encode, Decode)]
pub struct Preemption {
    /// `PreemptType`.
    #[n(0)]
    pub kind: PreemptType,
    /// `PreemptMode` without `GANG` and `WITHIN`.
    #[n(1)]
    pub mode: PreemptMode,
    /// `PreemptMode=WITHIN`: jobs of the same QOS, by priority.
    #[n(2)]
    pub within: bool,
    /// `PreemptExemptTime`, seconds.
    #[n(3)]
    pub exempt_s: u32,
    /// `youngest_first`: of those that could be chosen, the one that started last.
    #[n(4)]
    pub youngest_first: bool,
    /// `min_exempt_priority`: jobs with at least this priority are left alone.
    #[n(5)]
    pub min_exempt_priority: Option<u32>,
    /// `send_user_signal`: the signal of `--signal` in place of TERM, if it was not sent yet.
    #[n(6)]
    pub send_user_signal: bool,
    /// `strict_order`: the lowest first, however many are needed.
    #[n(7)]
    pub strict_order: bool,
    /// `reclaim_licenses`: for their licenses, too.
    #[n(8)]
    #[cbor(default)]
    pub reclaim_licenses: bool,
}

/// That and how a job was preempted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Preempted {
    /// For which job.
    #[n(0)]
    pub by: JobId,
    /// When.
    #[n(1)]
    pub at: Timestamp,
    /// The way in which it is preempted; never `Off`.
    #[n(2)]
    pub mode: PreemptMode,
    /// When that happens if it has a `GraceTime`; absent: at once.
    #[n(3)]
    pub end: Option<Timestamp>,
}

/// `PreemptMode` as it is written for a partition or QOS: the mode, if one is named, and `WITHIN`.
pub fn parse_mode(text: &str) -> Option<(Option<PreemptMode>, bool)> {
    let (mut mode, mut within) = (None, false);
    for word in text.split(',').map(str::trim).filter(|w| !w.is_empty()) {
        match word.to_ascii_uppercase().as_str() {
            "OFF" => mode = Some(PreemptMode::Off),
            "CANCEL" => mode = Some(PreemptMode::Cancel),
            "REQUEUE" => mode = Some(PreemptMode::Requeue),
            "SUSPEND" => mode = Some(PreemptMode::Suspend),
            "WITHIN" => within = true,
            // Stopped jobs always go on by themselves; a QOS without a mode has the cluster's.
            "GANG" | "CLUSTER" => {}
            _ => return None,
        }
    }
    Some((mode, within))
}
