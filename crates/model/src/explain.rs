//! The explanation of a job that waits: when and where it is expected to start, whom it waits for, and what would start
//! it sooner. Worked out by the scheduler on a copy of the state (`muster_sched::forecast`); nothing here is history.

use crate::ids::JobId;
use crate::job::Reason;
use crate::time::Timestamp;
use minicbor::{Decode, Encode};

/// When and where a job is expected to start.
#[derive(Clone, Debug, Default, PartialEq, Encode, Decode)]
pub struct ExpectedStart {
    /// When.
    #[n(0)]
    pub at: Timestamp,
    /// Its nodes, a hostlist; empty in an estimate.
    #[n(1)]
    pub nodes: String,
    /// CPUs that it gets.
    #[n(2)]
    pub cpus: u64,
    /// The partition.
    #[n(3)]
    pub partition: String,
    /// Not played through to there: an estimate from the work that is ahead of it.
    #[n(4)]
    pub estimate: bool,
    /// Tasks that it gets, of a range of them.
    #[n(5)]
    #[cbor(default)]
    pub tasks: Option<u32>,
}

/// When a job with a range of tasks would start if it waited for one of the numbers.
#[derive(Clone, Debug, Default, PartialEq, Encode, Decode)]
pub struct TasksStart {
    /// The number.
    #[n(0)]
    pub tasks: u32,
    /// When and where; absent when nothing that is foreseen makes room for it.
    #[n(1)]
    pub start: Option<ExpectedStart>,
}

/// A job that another one waits for.
#[derive(Clone, Debug, Default, PartialEq, Encode, Decode)]
pub struct JobAhead {
    /// The job.
    #[n(0)]
    pub job: JobId,
    /// Its owner.
    #[n(1)]
    pub user: String,
    /// Its name.
    #[n(2)]
    pub name: String,
    /// Its partition.
    #[n(3)]
    pub partition: String,
    /// CPUs that it has, or asks for.
    #[n(4)]
    pub cpus: u64,
    /// The nodes that it runs on; empty while it waits.
    #[n(5)]
    pub nodes: String,
    /// It runs; else it waits, with a better place in line.
    #[n(6)]
    pub runs: bool,
    /// When it is expected to end, if it runs, or to start.
    #[n(7)]
    pub until: Option<Timestamp>,
}

/// A change of the job that would start it sooner.
#[derive(Clone, Debug, Default, PartialEq, Encode, Decode)]
pub struct EarlierStart {
    /// The option or options of `sbatch` that it would be submitted with, or without.
    #[n(0)]
    pub change: String,
    /// The change in words.
    #[n(1)]
    pub words: String,
    /// When and where it would start then.
    #[n(2)]
    pub start: ExpectedStart,
}

/// A time that matters to a job that waits.
#[derive(Clone, Debug, Default, PartialEq, Encode, Decode)]
pub struct ExpectedTime {
    /// The event at that time, as text before a colon.
    #[n(0)]
    pub what: String,
    /// When.
    #[n(1)]
    pub at: Timestamp,
}

/// Why a job waits, and until when.
#[derive(Clone, Debug, Default, PartialEq, Encode, Decode)]
pub struct Explanation {
    /// The job.
    #[n(0)]
    pub job: JobId,
    /// Its reason, as listings show it.
    #[n(1)]
    pub reason: Reason,
    /// The reasons of its wait, a sentence each.
    #[n(2)]
    pub waits_for: Vec<String>,
    /// Jobs ahead of it on the resources that it needs: running ones first, then waiting ones.
    #[n(3)]
    pub ahead: Vec<JobAhead>,
    /// Number of all jobs ahead, those not listed included.
    #[n(4)]
    pub ahead_count: u32,
    /// When it is expected to start; absent when nothing that is foreseen starts it.
    #[n(5)]
    pub start: Option<ExpectedStart>,
    /// Jobs are taken to run as long as predicted; else to their limits.
    #[n(6)]
    pub predicted: bool,
    /// Changes that would start it sooner, soonest first.
    #[n(7)]
    pub sooner: Vec<EarlierStart>,
    /// Changes that were tried.
    #[n(8)]
    pub tried: u32,
    /// The controller's time.
    #[n(9)]
    pub now: Timestamp,
    /// It does not wait: it runs, or is over.
    #[n(10)]
    pub waits: bool,
    /// Future times on which its start depends: its begin, its deadline, reservations.
    #[n(11)]
    #[cbor(default)]
    pub times: Vec<ExpectedTime>,
    /// Numbers of tasks of which it takes the greatest that it can have when there is room for the least: `2,4-8`. Empty: it has one
    /// number.
    #[n(12)]
    #[cbor(default)]
    pub task_range: String,
    /// When it would start with some of them, the least first.
    #[n(13)]
    #[cbor(default)]
    pub by_tasks: Vec<TasksStart>,
    /// Parts that the time for the answer did not suffice for, a sentence each.
    #[n(14)]
    #[cbor(default)]
    pub not_worked_out: Vec<String>,
}
