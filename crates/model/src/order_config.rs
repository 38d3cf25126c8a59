//! The part of the configuration that the order of jobs depends on: priorities, preemption, what a reservation's end
//! means for its jobs.

use minicbor::{Decode, Encode};

/// Settings of priority, preemption and reservations.
#[derive(Clone, Debug, Default, PartialEq, Encode, Decode)]
pub struct OrderConfig {
    /// `ResvOverRun`, seconds that a job may run past the end of its reservation; `u32::MAX`: as long as it likes.
    #[n(0)]
    pub resv_over_run_s: u32,
    /// `priority/multifactor`; absent: first come, first served.
    #[n(1)]
    pub multifactor: Option<Multifactor>,
    /// `AccountingStorageEnforce` has `associations`: jobs need an association.
    #[n(2)]
    #[cbor(default)]
    pub enforce_associations: bool,
    /// `AccountingStorageEnforce` has `qos`: jobs need a QOS that they may use.
    #[n(3)]
    #[cbor(default)]
    pub enforce_qos: bool,
    /// `PreemptType` and what goes with it.
    #[n(4)]
    #[cbor(default)]
    pub preemption: crate::preemption::Preemption,
    /// `AccountingStorageEnforce` has `limits`: limits of associations and QOS hold.
    #[n(5)]
    #[cbor(default)]
    pub enforce_limits: bool,
    /// Seconds of a turn of jobs that have the same CPUs (`SchedulerTimeSlice`): `PreemptMode` has `GANG`.
    #[n(6)]
    pub time_slice_s: Option<u32>,
    /// `AccountingStorageEnforce` has `safe`: no job starts that could not run to its limit within `GrpTRESMins` and
    /// `GrpWall`.
    #[n(7)]
    #[cbor(default)]
    pub enforce_safe: bool,
    /// `AccountingStorageEnforce` has `wckeys`: jobs need a workload characterization key of their user.
    #[n(8)]
    #[cbor(default)]
    pub enforce_wckeys: bool,
    /// `TrackWCKey`: jobs that name no key have their user's default one.
    #[n(9)]
    #[cbor(default)]
    pub track_wckeys: bool,
    /// `AccountingStorageEnforce` has `nojobs`: jobs leave no rows in accounting.
    #[n(10)]
    #[cbor(default)]
    pub no_job_rows: bool,
    /// `AccountingStorageEnforce` has `nosteps`: steps leave none.
    #[n(11)]
    #[cbor(default)]
    pub no_step_rows: bool,
    /// `AccountingStoreFlags` has `job_script`: accounting keeps the scripts of batch jobs.
    #[n(12)]
    #[cbor(default)]
    pub keeps_scripts: bool,
    /// `AccountingStoreFlags` has `job_env`: accounting keeps the environments of batch jobs.
    #[n(13)]
    #[cbor(default)]
    pub keeps_environments: bool,
}

/// Settings of `priority/multifactor`, slurm.conf(5) `Priority*`.
#[derive(Clone, Debug, Default, PartialEq, Encode, Decode)]
pub struct Multifactor {
    /// `PriorityWeightAge`.
    #[n(0)]
    pub weight_age: u32,
    /// `PriorityWeightAssoc`.
    #[n(1)]
    pub weight_assoc: u32,
    /// `PriorityWeightFairShare`.
    #[n(2)]
    pub weight_fair_share: u32,
    /// `PriorityWeightJobSize`.
    #[n(3)]
    pub weight_job_size: u32,
    /// `PriorityWeightPartition`.
    #[n(4)]
    pub weight_partition: u32,
    /// `PriorityWeightQOS`.
    #[n(5)]
    pub weight_qos: u32,
    /// `PriorityWeightTRES`: name and weight.
    #[n(6)]
    pub weight_tres: Vec<(String, f64)>,
    /// `PriorityMaxAge`, seconds, at least 1.
    #[n(7)]
    pub max_age_s: u64,
    /// `PriorityCalcPeriod`, seconds, at least 1.
    #[n(8)]
    pub calc_period_s: u64,
    /// `PriorityDecayHalfLife`, seconds; 0: use is never forgotten.
    #[n(9)]
    pub half_life_s: u64,
    /// `PriorityUsageResetPeriod`.
    #[n(10)]
    pub usage_reset: UsageReset,
    /// `PriorityFavorSmall`.
    #[n(11)]
    pub favor_small: bool,
    /// Fair Tree, the default; else the classic formula.
    #[n(12)]
    pub fair_tree: bool,
    /// `FairShareDampeningFactor` of the classic formula, at least 1.
    #[n(13)]
    pub dampening: u32,
    /// `PriorityFlags=ACCRUE_ALWAYS`: age counts from submission.
    #[n(14)]
    pub accrue_always: bool,
    /// `PriorityFlags=SMALL_RELATIVE_TO_TIME`: size is CPU time a minute of the limit.
    #[n(15)]
    pub small_relative_to_time: bool,
    /// `PriorityFlags=NO_NORMAL_*`: factors that are not divided by the highest one.
    #[n(16)]
    pub no_normal: NoNormalFlags,
    /// Seconds east of UTC, for the days of `usage_reset`.
    #[n(17)]
    pub utc_offset_s: i32,
    /// `PriorityFlags=MAX_TRES`: billing is the largest of the weighted resources, not their sum.
    #[n(18)]
    #[cbor(default)]
    pub max_tres: bool,
    /// `PriorityFlags=MAX_TRES_GRES`: likewise, but devices are added to the largest of the others.
    #[n(19)]
    #[cbor(default)]
    pub max_tres_gres: bool,
    /// `PriorityFlags=CALCULATE_RUNNING`: jobs that run have the priority that they would have if they waited.
    #[n(20)]
    #[cbor(default)]
    pub calculate_running: bool,
    /// `PriorityFlags=DEPTH_OBLIVIOUS`: fair share does not suffer from the depth of the tree.
    #[n(21)]
    #[cbor(default)]
    pub depth_oblivious: bool,
    /// `PriorityFlags=INCR_ONLY`: a new computation does not lower the priority of a pending job.
    #[n(22)]
    #[cbor(default)]
    pub incr_only: bool,
}

/// `PriorityFlags=NO_NORMAL_ASSOC`, `_PART`, `_QOS`, `_TRES`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct NoNormalFlags {
    /// Associations.
    #[n(0)]
    pub assoc: bool,
    /// Partitions.
    #[n(1)]
    pub partition: bool,
    /// QOS.
    #[n(2)]
    pub qos: bool,
    /// TRES.
    #[n(3)]
    pub tres: bool,
}

/// `PriorityUsageResetPeriod`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(index_only)]
pub enum UsageReset {
    /// Never.
    #[default]
    #[n(0)]
    None,
    /// When the configuration with it is read.
    #[n(1)]
    Now,
    /// At midnight.
    #[n(2)]
    Daily,
    /// On Sunday at midnight.
    #[n(3)]
    Weekly,
    /// On the first of a month.
    #[n(4)]
    Monthly,
    /// On the first of January, April, July, October.
    #[n(5)]
    Quarterly,
    /// On the first of January.
    #[n(6)]
    Yearly,
}
