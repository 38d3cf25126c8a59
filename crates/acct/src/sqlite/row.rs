//! Encoding of values in the columns, in both directions.

use crate::change::RunKey;
use crate::store::StoreError;
use minicbor::{Decode, Encode};
use muster_model::ids::{JobId, StepNo};
use muster_model::job::{ExitStatus, JobState};
use muster_model::spec::StdioSpec;
use muster_model::time::{TimeLimit, Timestamp};

/// Columns of `job` for the request, after `row`.
pub(super) const ASKED: &[&str] = &[
    "array_id",
    "array_index",
    "array_spec",
    "name",
    "uid",
    "gid",
    "owner",
    "account",
    "qos",
    "wckey",
    "context",
    "submit_line",
    "comment",
    "admin_comment",
    "req_cpus",
    "req_nodes",
    "batch",
    "submit_ms",
    "het_id",
    "het_offset",
    "het_size",
];
/// Columns of `job` that change in its life; `end_ms`, which is in an index, last.
pub(super) const LIFE: &[&str] = &[
    "partition",
    "state",
    "requeued",
    "cancelled_by",
    "exit",
    "derived_exit",
    "eligible_ms",
    "start_ms",
    "suspended_ms",
    "time_limit_min",
    "req_mem_mib",
    "alloc_cpus",
    "alloc_nodes",
    "alloc_mem_mib",
    "gres",
    "nodelist",
    "reason",
    "priority",
    "ntasks",
    "backfilled",
    "end_ms",
];
/// Columns of `step` known at its start, after `job` and `step`.
pub(super) const STEP_START: &[&str] = &[
    "name",
    "start_ms",
    "nodes",
    "tasks",
    "cpus",
    "mem_mib",
    "nodelist",
    "submit_line",
    "distribution",
    "gres",
];
/// Columns of `step` known at its end.
pub(super) const STEP_END: &[&str] = &[
    "state",
    "cancelled_by",
    "exit",
    "end_ms",
    "user_us",
    "system_us",
    "max_rss_kib",
    "usage",
];

/// `end_ms` of a run that has not ended.
pub(super) const OPEN: i64 = i64::MAX;
/// `requeued` of a run that went on with fewer nodes as the next one.
pub(super) const RESIZED: i64 = 2;
/// Bits of a row's number that say which run of the job it is. Runs beyond share the last.
pub(super) const RUN_BITS: u32 = 16;
const RUN_MAX: i64 = (1 << RUN_BITS) - 1;
/// Runs from this number on were imported from another cluster; those of the controller are below.
pub(super) const IMPORTED_RUN: u32 = 1 << (RUN_BITS - 1);

/// The row of a run.
pub(super) fn run_row(key: RunKey) -> Result<i64, StoreError> {
    let run = i64::from(key.number.min(IMPORTED_RUN - 1));
    Ok(first_row(key.job)? | run)
}

/// The row of a job's first run.
pub(super) fn first_row(job: JobId) -> Result<i64, StoreError> {
    i64::try_from(job.0)
        .ok()
        .filter(|number| *number < 1 << (63 - RUN_BITS))
        .map(|number| number << RUN_BITS)
        .ok_or(StoreError::JobNumber(job))
}

/// The row of a job's last possible run.
pub(super) fn last_row(job: JobId) -> Result<i64, StoreError> {
    Ok(first_row(job)? | RUN_MAX)
}

/// The run of a row.
pub(super) fn row_run(row: i64) -> RunKey {
    RunKey {
        job: JobId(u64::try_from(row >> RUN_BITS).unwrap_or(0)),
        number: u32::try_from(row & RUN_MAX).unwrap_or(0),
    }
}

/// Steps that have names come before numbered ones, the script first.
pub(super) fn step_key(step: StepNo) -> i64 {
    match step {
        StepNo::BATCH => -3,
        StepNo::EXTERN => -2,
        StepNo::INTERACTIVE => -1,
        StepNo(number) => i64::from(number),
    }
}

/// The step of a key.
pub(super) fn key_step(key: i64) -> StepNo {
    match key {
        -3 => StepNo::BATCH,
        -2 => StepNo::EXTERN,
        -1 => StepNo::INTERACTIVE,
        number => StepNo(u32::try_from(number).unwrap_or(0)),
    }
}

/// State numbers are stored: they are those of [`JobState::ALL`].
pub(super) fn state_key(state: JobState) -> i64 {
    let place = JobState::ALL.iter().position(|s| *s == state);
    i64::try_from(place.expect("every state is in ALL")).unwrap_or(0)
}

/// The state of a number.
pub(super) fn key_state(key: i64) -> Option<JobState> {
    JobState::ALL.get(usize::try_from(key).ok()?).copied()
}

/// Code and signal in one number.
pub(super) fn exit_key(exit: ExitStatus) -> i64 {
    (i64::from(exit.code) << 16) | i64::from(exit.signal.min(0xffff))
}

/// The exit status of a number.
pub(super) fn key_exit(key: i64) -> ExitStatus {
    ExitStatus {
        code: u32::try_from(key >> 16).unwrap_or(0),
        signal: u32::try_from(key & 0xffff).unwrap_or(0),
    }
}

/// Minutes; NULL is unlimited.
pub(super) fn limit_key(limit: TimeLimit) -> Option<i64> {
    match limit {
        TimeLimit::Minutes(minutes) => Some(i64::from(minutes)),
        TimeLimit::Unlimited => None,
    }
}

/// The limit of a number.
pub(super) fn key_limit(key: Option<i64>) -> TimeLimit {
    key.map_or(TimeLimit::Unlimited, |minutes| {
        TimeLimit::Minutes(u32::try_from(minutes).unwrap_or(u32::MAX))
    })
}

/// An unsigned number as SQLite has it.
pub(super) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// A number as it was before [`signed`].
pub(super) fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

/// A 32-bit number.
pub(super) fn small(number: i64) -> u32 {
    u32::try_from(number).unwrap_or(0)
}

/// Empty texts are NULL.
pub(super) fn some(text: &str) -> Option<&str> {
    (!text.is_empty()).then_some(text)
}

/// A point in time, or NULL.
pub(super) fn time(time: Option<i64>) -> Option<Timestamp> {
    time.map(Timestamp)
}

/// Names of a job's owner.
#[derive(Encode, Decode)]
pub(super) struct Owner {
    #[n(0)]
    pub(super) user: String,
    #[n(1)]
    pub(super) group: String,
}

/// Values that many jobs share and that no query filters by.
#[derive(Encode, Decode)]
pub(super) struct Context {
    #[n(0)]
    pub(super) work_dir: String,
    #[n(1)]
    pub(super) submit_host: String,
    #[n(2)]
    pub(super) stdio: StdioSpec,
    #[n(3)]
    pub(super) constraint: String,
    #[n(4)]
    pub(super) reservation: String,
    #[n(5)]
    #[cbor(default)]
    pub(super) class: String,
    /// Devices that were asked for, over all nodes.
    #[n(6)]
    #[cbor(default)]
    pub(super) req_gres: Vec<(String, u64)>,
    /// The requests of a job of the Grid Engine commands, under the names of `model::grid_engine`.
    #[n(7)]
    #[cbor(default)]
    pub(super) grid_engine: Vec<(String, String)>,
    #[n(8)]
    #[cbor(default)]
    pub(super) mcs_label: String,
}

/// A value as CBOR.
pub(super) fn cbor<T: Encode<()>>(value: &T) -> Vec<u8> {
    minicbor::to_vec(value).expect("writing into memory does not fail")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_numbers_stay_what_they_are() {
        let names: Vec<_> = JobState::ALL
            .iter()
            .map(|s| (state_key(*s), s.name()))
            .collect();
        let stored = [
            (0, "PENDING"),
            (1, "RUNNING"),
            (2, "SUSPENDED"),
            (3, "COMPLETED"),
            (4, "CANCELLED"),
            (5, "FAILED"),
            (6, "TIMEOUT"),
            (7, "NODE_FAIL"),
            (8, "PREEMPTED"),
            (9, "BOOT_FAIL"),
            (10, "DEADLINE"),
            (11, "OUT_OF_MEMORY"),
        ];
        assert_eq!(names, stored);
        for step in [
            StepNo::BATCH,
            StepNo::EXTERN,
            StepNo::INTERACTIVE,
            StepNo(0),
            StepNo(9),
        ] {
            assert_eq!(key_step(step_key(step)), step);
        }
        let exit = ExitStatus {
            code: 255,
            signal: 9,
        };
        assert_eq!(key_exit(exit_key(exit)), exit);
    }

    #[test]
    fn runs_and_rows_are_one_to_one_in_order() {
        let key = |job, restarts| RunKey {
            job: JobId(job),
            number: restarts,
        };
        let keys = [
            key(1, 0),
            key(1, 1),
            key(2, 0),
            key(u64::from(u32::MAX), 32_767),
        ];
        let rows: Vec<i64> = keys.iter().map(|k| run_row(*k).unwrap()).collect();
        assert!(rows.is_sorted());
        assert_eq!(rows.iter().map(|r| row_run(*r)).collect::<Vec<_>>(), keys);
        // Imported rows are after all runs here.
        assert!(
            run_row(key(7, u32::MAX)).unwrap()
                < first_row(JobId(7)).unwrap() | i64::from(IMPORTED_RUN)
        );
        assert!(matches!(
            run_row(key(1 << 47, 0)),
            Err(StoreError::JobNumber(_))
        ));
    }
}
