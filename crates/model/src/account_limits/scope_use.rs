//! Use that counts towards limits, as `scontrol show assoc_mgr` lists it.

use super::{Scope, TresAmounts};
use minicbor::{Decode, Encode};

/// Use of an association or a QOS at a moment, with that over time.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
pub struct ScopeUse {
    /// The association or QOS.
    #[n(0)]
    pub scope: Scope,
    /// Jobs that run.
    #[n(1)]
    pub jobs: u32,
    /// Jobs that run or wait, tasks of arrays one by one.
    #[n(2)]
    pub submitted: u32,
    /// Jobs that wait and gain age, likewise.
    #[n(3)]
    pub accruing: u32,
    /// Resources of running jobs.
    #[n(4)]
    pub tres: TresAmounts,
    /// These resources times the minutes that the jobs may still run.
    #[n(5)]
    pub run_minutes: TresAmounts,
    /// Resources times minutes that were used.
    #[n(6)]
    pub minutes: TresAmounts,
    /// Run times of all jobs, added up, in hundredths of a minute.
    #[n(7)]
    pub wall_hundredths: u64,
}
