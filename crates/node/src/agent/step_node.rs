//! step node
use super::Agent;
use super::lead::StepKey;
use crate::shim::wire::Run;
use muster_core::ids::{JobId, StepNo};
use muster_core::job::StepEnd;
#[derive(Default)]
pub(super) struct NodeSteps;
impl Agent {
    pub(super) fn grant_came(&mut self, _j: JobId) {}
    pub(super) fn end_delivered(&mut self, _k: StepKey) {}
    pub(super) fn gave_up(&mut self, _w: u64) {}
    pub(super) fn stepd_started(&mut self, _r: Run, _s: StepNo, _x: Result<String, String>) {}
    pub(super) fn stepd_ended(&mut self, _r: Run, _s: StepNo, _e: StepEnd) {}
}
