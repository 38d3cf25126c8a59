//! `scontrol listjobs` and `liststeps`: jobs and steps on a node, as the controller knows them.

use super::Session;
use crate::listing::context::Ctx;
use crate::listing::document::print_document;
use crate::listing::step_document::{StepOnNode, write_jobs_on_node, write_steps_on_node};
use crate::say;
use muster_model::hostlist;
use muster_model::ids::JobId;
use muster_model::job::{Job, JobState, Step};
use muster_proto::client::JobFilter;
use std::fmt::Write as _;
use std::sync::Arc;

/// A list of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OnNodeList {
    /// `listjobs`.
    Jobs,
    /// `liststeps`.
    Steps,
}

/// `listjobs [NODE]`, `liststeps [NODE]`.
pub(super) fn list_on_node(session: &mut Session, rest: &[String], list: OnNodeList) {
    let named = rest.first().cloned();
    let node = named
        .or_else(|| std::env::var("SLURMD_NODENAME").ok())
        .unwrap_or_else(muster_trust::host::short_name);
    let filter = JobFilter {
        states: vec![JobState::Running, JobState::Suspended],
        ..JobFilter::default()
    };
    let jobs = match session
        .client()
        .and_then(|client| client.query_jobs(filter))
    {
        Ok(jobs) => jobs,
        Err(error) => return session.request_failed("slurm_load_jobs error", &error),
    };
    let steps = steps_on(&jobs, &node);
    let mut ids: Vec<JobId> = steps.iter().map(|one| one.job).collect();
    ids.dedup();
    if let Some(dialect) = session.flags.dialect {
        let cluster = session
            .client()
            .map(|client| client.endpoint.cluster.clone());
        let ctx = Ctx::new(&cluster.unwrap_or_default());
        print_document(dialect, "scontrol", &ctx, |w| match list {
            OnNodeList::Jobs => write_jobs_on_node(w, &ids),
            OnNodeList::Steps => write_steps_on_node(w, &steps),
        });
        return;
    }
    if steps.is_empty() {
        return say::stderr("No slurmstepd's found on this node\n");
    }
    let mut out = String::new();
    match list {
        OnNodeList::Jobs => {
            out.push_str("JOBID\n");
            for id in ids {
                let _ = writeln!(out, "{:<8}", id.0);
            }
        }
        OnNodeList::Steps => {
            out.push_str("JOBID    STEPID\n");
            for StepOnNode { job, step } in steps {
                let _ = writeln!(out, "{:<8} {:<8}", job.0, step.to_string());
            }
        }
    }
    say::stdout(&out);
}

/// The steps on a node, by job and number.
fn steps_on(jobs: &[Job], node: &str) -> Vec<StepOnNode> {
    let is_here = |step: &Step| {
        let nodes = hostlist::parse(&step.hostlist).unwrap_or_default();
        nodes.iter().any(|name| name == node)
    };
    let steps_of = |job: &Job| -> Vec<StepOnNode> {
        let steps = job.steps.iter().filter(|step| is_here(step));
        let on_node = |step: &Arc<Step>| StepOnNode {
            job: job.id,
            step: step.step,
        };
        steps.map(on_node).collect()
    };
    let mut steps: Vec<StepOnNode> = jobs.iter().flat_map(steps_of).collect();
    steps.sort_unstable();
    steps
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::listing::fixture;
    use muster_model::ids::StepNo;

    #[test]
    fn steps_are_those_of_the_node() {
        let step = |number: u32, nodes: &str| {
            Arc::new(Step {
                hostlist: nodes.into(),
                ..fixture::step(StepNo(number), "work", 1)
            })
        };
        let mut first = fixture::job(12, "first");
        first.steps = vec![step(1, "n[1-2]"), step(0, "n1"), step(2, "n3")];
        let mut second = fixture::job(7, "second");
        second.steps = vec![step(0, "n[2-4]")];
        let jobs = [first, second];
        let on = |node| -> Vec<(u64, u32)> {
            let steps = steps_on(&jobs, node);
            steps.iter().map(|one| (one.job.0, one.step.0)).collect()
        };
        assert_eq!(on("n1"), [(12, 0), (12, 1)]);
        assert_eq!(on("n2"), [(7, 0), (12, 1)]);
        assert_eq!(on("n9"), []);
    }
}
