//! Heterogeneous jobs in the writer: it refuses jobs with `--immediate` that do not start, and informs nodes and clients of their
//! components.

use super::Writer;
use muster_core::state::State;
use muster_model::command::Identity;
use muster_model::job::Job;
use muster_model::job_env::HetComponent;
use muster_model::refusal::Refusal;
use muster_model::spec::JobSpec;
use muster_model::time::Timestamp;
use std::sync::Arc;

impl Writer {
    /// Refuses a submission with `--immediate` whose components do not start now.
    pub(super) fn check_het(
        &self,
        identity: &Identity,
        specs: &[JobSpec],
        now: Timestamp,
    ) -> Result<(), Refusal> {
        if specs.iter().all(|spec| spec.immediate_s.is_none()) {
            return Ok(());
        }
        let state = self.engine.state();
        let jobs = muster_core::decide::prospective_het_jobs(state, identity, specs, now)?;
        jobs.iter()
            .try_for_each(|job| muster_core::decide::check_immediate(state, job, now))?;
        let specs: Vec<JobSpec> = jobs.iter().map(|job| (*job.spec).clone()).collect();
        let scheduler = self.engine.scheduler();
        scheduler.start_together_now(state, &specs, now)
    }
}

/// The components of a heterogeneous job that runs; none for another job.
pub fn components(state: &State, job: &Job) -> Vec<HetComponent> {
    let Some(part) = job.het else {
        return Vec::new();
    };
    let running = state.het_jobs(part).filter_map(|component| {
        let alloc = component.alloc.clone()?;
        let lead = alloc.nodes.first()?;
        let info = state.node(lead.node)?.report.as_ref()?;
        Some(HetComponent {
            job: component.id,
            spec: Arc::clone(&component.spec),
            time_limit: component.time_limit,
            lead_address: info.address.clone(),
            alloc,
        })
    });
    running.collect()
}
