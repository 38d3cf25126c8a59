//! What the writer does for heterogeneous jobs: answers `--test-only` and `--immediate`, and tells nodes and clients of
//! their components.

use super::Writer;
use muster_core::state::State;
use muster_model::command::{Identity, Reply};
use muster_model::job::{Allocation, Job};
use muster_model::job_env::HetComponent;
use muster_model::refusal::{Refusal, RefusalCode};
use muster_model::spec::JobSpec;
use muster_model::time::Timestamp;
use std::sync::Arc;

impl Writer {
    /// The answer to a submission that does not reach the queue.
    pub(super) fn before_het(
        &self,
        identity: &Identity,
        specs: &[JobSpec],
        test_only: bool,
        now: Timestamp,
    ) -> Option<Reply> {
        let immediate = specs.iter().any(|spec| spec.immediate_s.is_some());
        if !test_only && !immediate {
            return None;
        }
        match self.would_start_together(identity, specs, now) {
            Err(refusal) => Some(Reply::Refused(refusal)),
            Ok(answer) if test_only => Some(answer),
            Ok(Reply::WouldStart { at, .. }) if at > now => {
                Some(Reply::Refused(RefusalCode::NotImmediate.into()))
            }
            Ok(_) => None,
        }
    }

    /// When and where all components of a heterogeneous job would start.
    fn would_start_together(
        &self,
        identity: &Identity,
        specs: &[JobSpec],
        now: Timestamp,
    ) -> Result<Reply, Refusal> {
        let state = self.engine.state();
        let jobs = muster_core::decide::prospective_het_jobs(state, identity, specs, now)?;
        if specs.iter().any(|spec| spec.immediate_s.is_some()) {
            jobs.iter()
                .try_for_each(muster_core::decide::check_immediate)?;
        }
        let specs: Vec<JobSpec> = jobs.iter().map(|job| (*job.spec).clone()).collect();
        let scheduler = self.engine.scheduler();
        let (at, allocs) = scheduler.would_start_together(state, &specs, now)?;
        let first = allocs.first().map(|alloc| alloc.partition.clone());
        let nodes: Vec<&str> = allocs.iter().map(|alloc| alloc.hostlist.as_str()).collect();
        Ok(Reply::WouldStart {
            at,
            cpus: allocs.iter().map(Allocation::cpus).sum(),
            nodes: nodes.join(","),
            partition: first.unwrap_or_default(),
            id: jobs.first().map(|job| job.id).unwrap_or_default(),
        })
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
