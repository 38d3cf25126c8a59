//! lead
use super::Agent;
use crate::shim::wire::{Known, Run};
use muster_core::ids::{JobId, StepNo};
pub(super) type StepKey = (JobId, StepNo);
#[derive(Default)]
pub(super) struct Steps;
impl Agent {
    pub(super) fn try_steps(&mut self) {}
    pub(super) fn adopt_steps(&mut self, _k: Known) {}
    pub(super) fn refuse_waiting_steps(&mut self, _j: JobId) {}
    pub(super) fn forget_steps(&mut self, _j: JobId) {}
    pub(super) fn step_acknowledged(&mut self, _r: Run, _s: StepNo) {}
    pub(super) fn node_started(&mut self, _k: StepKey, _p: u32, _r: Result<String, String>) {}
}
