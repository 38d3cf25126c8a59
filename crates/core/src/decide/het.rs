//! Heterogeneous jobs: submitted as one, started as one, ended by their leader, never a part of them alone in the
//! queue.

use super::draft::Draft;
use super::ending::{self, End};
use super::{commit, room, submit};
use crate::apply;
use crate::event::Event;
use minicbor::bytes::ByteVec;
use muster_model::command::{Identity, JobTarget, PlannedStart, Reply};
use muster_model::het::HetPlace;
use muster_model::ids::{BlobId, JobId, NodeIdx};
use muster_model::job::{Allocation, Job, JobState, Phase};
use muster_model::limits::HET_COMPONENTS_MAX;
use muster_model::node::Node;
use muster_model::refusal::{Refusal, RefusalCode};
use muster_model::spec::{JobKind, JobSpec};
use std::collections::BTreeMap;

/// Accepts all components or none.
pub(super) fn submit(
    draft: &mut Draft<'_>,
    identity: &Identity,
    specs: &[JobSpec],
    blobs: &[(BlobId, ByteVec)],
    test_only: bool,
) -> Result<Option<Reply>, Refusal> {
    for spec in specs {
        submit::check_blobs(draft, spec, blobs)?;
    }
    let jobs = prepare(draft, identity, specs)?;
    if let Some(first) = jobs.first() {
        let all: Vec<&Job> = jobs.iter().collect();
        let bytes = room::bytes_of(draft.state, &all, blobs);
        room::check_bytes(draft.state, identity, first.spec.owner.uid, bytes)?;
    }
    let leader = jobs
        .first()
        .map(|job| job.id)
        .ok_or(RefusalCode::InvalidValue)?;
    // Refusals come before anything is emitted; `prepare` has made nothing yet.
    if test_only {
        return Ok(None);
    }
    submit::store_blobs(draft, specs, blobs);
    // All are there before one of them ends, which ends the others.
    let reasons: Vec<_> = jobs.iter().map(|job| (job.id, job.reason)).collect();
    for job in jobs {
        let not_before = job
            .begin_at
            .filter(|at| job.spec.begin.is_none_or(|b| b < *at));
        submit::record(draft, job, not_before);
    }
    for (id, reason) in reasons {
        if draft.job(id).is_some_and(|job| !job.state.is_ended()) {
            submit::settle(draft, id, reason);
        }
    }
    Ok(Some(Reply::Submitted {
        id: leader,
        warnings: Vec::new(),
        lines: Vec::new(),
        name: None,
    }))
}

/// The records that the submission makes. Only the leader runs a script; the others are allocations beside it.
pub(super) fn prepare(
    draft: &mut Draft<'_>,
    identity: &Identity,
    specs: &[JobSpec],
) -> Result<Vec<Job>, Refusal> {
    let invalid = |text: &str| Refusal::new(RefusalCode::InvalidValue, text);
    let size = u32::try_from(specs.len()).unwrap_or(u32::MAX);
    if !(2..=HET_COMPONENTS_MAX).contains(&size) {
        return Err(invalid(&format!(
            "a heterogeneous job has 2 to {HET_COMPONENTS_MAX} components, not {size}"
        )));
    }
    if specs.iter().any(|spec| spec.array.is_some()) {
        return Err(Refusal::new(
            RefusalCode::InvalidArray,
            "heterogeneous jobs have no arrays",
        ));
    }
    if let (Some(config), Some(first)) = (&draft.state.config, specs.first()) {
        let owner = submit::owner(draft, identity, first)?;
        let whose = (identity, owner.uid);
        room::check(draft.state, config, whose, u64::from(size))?;
    }
    let leader = draft.next_job_id();
    let mut jobs: Vec<Job> = Vec::with_capacity(specs.len());
    for ((number, spec), offset) in specs.iter().enumerate().zip(0u32..) {
        if offset > 0 && (spec.kind != JobKind::Allocation || spec.script.is_some()) {
            return Err(invalid("only the first component has a script"));
        }
        let (mut job, not_before) = submit::prepare(draft, &identity.for_job(number), spec)
            .map_err(|refusal| of_component(refusal, offset))?;
        job.id = JobId(leader.0 + u64::from(offset));
        job.het = Some(HetPlace {
            leader,
            offset,
            size,
        });
        job.begin_at = job.begin_at.max(not_before);
        if let Some(first) = jobs.first() {
            job.requeueable = first.requeueable;
            if job.spec.owner != first.spec.owner {
                return Err(invalid("all components have the same owner"));
            }
        }
        if job.priority > 0 {
            job.priority = job.default_priority();
        }
        jobs.push(job);
    }
    Ok(jobs)
}

fn of_component(refusal: Refusal, offset: u32) -> Refusal {
    let detail = match refusal.detail.as_str() {
        "" => format!("component {offset}"),
        text => format!("component {offset}: {text}"),
    };
    Refusal::new(refusal.code, detail)
}

/// Starts all components of a heterogeneous job, or none if one of them cannot have what was planned for it.
pub(super) fn start(draft: &mut Draft<'_>, part: HetPlace, mut planned: Vec<PlannedStart>) {
    let all = part.ids().all(|id| planned.iter().any(|p| p.job == id));
    if !all || planned.len() != part.size as usize {
        return;
    }
    // Nodes as the components before leave them: several may share one.
    let mut nodes: BTreeMap<NodeIdx, Node> = BTreeMap::new();
    for start in &planned {
        let Some(job) = draft.job(start.job).filter(|job| job.is_startable()) else {
            return;
        };
        for share in &start.alloc.nodes {
            let Some(known) = draft.node(share.node) else {
                return;
            };
            nodes.entry(share.node).or_insert_with(|| known.clone());
        }
        let fits = commit::fits_on(draft, job, &start.alloc, |share| {
            nodes
                .get(&share.node)
                .is_some_and(|node| commit::share_fits(draft, job, node, share, &start.alloc))
        });
        if !fits || commit::reservations_allow(draft, job, &start.alloc, job.time_limit).is_none() {
            return;
        }
        for share in &start.alloc.nodes {
            if let Some(node) = nodes.get_mut(&share.node) {
                apply::node::take(node, start.job, share, &start.alloc);
            }
        }
    }
    let jobs = planned.iter().map(|p| Some((draft.job(p.job)?, &p.alloc)));
    let jobs: Option<Vec<(&Job, &Allocation)>> = jobs.collect();
    if !jobs.is_some_and(|jobs| commit::counts_allow(draft, &jobs)) {
        return;
    }
    // The leader last: when its script begins, the other components are there.
    for id in part.ids().rev() {
        if let Some(at) = planned.iter().position(|p| p.job == id) {
            commit::begin(draft, id, planned.swap_remove(at).alloc);
        }
    }
}

/// A component has ended or goes back to the queue, as `how` says, and was in `phase` before: what becomes of the
/// others. They end with the leader, and with a component that was lost or never ran; a component that is cancelled or
/// reaches its limit while the others run ends alone. The queue takes all back or none.
pub(super) fn follow(draft: &mut Draft<'_>, id: JobId, part: HetPlace, phase: Phase, how: End) {
    let others = || part.ids().filter(move |other| *other != id);
    if how.requeues() {
        let mut back = Vec::new();
        for other in others() {
            match draft.job(other).map(Job::phase) {
                Some(Phase::Running | Phase::Suspended | Phase::Completing) => {
                    ending::end_one(draft, other, how);
                }
                Some(Phase::Ended) => back.push(other),
                Some(Phase::Pending | Phase::Requeueing | Phase::Gone) | None => {}
            }
        }
        let at = draft.now;
        for other in back {
            let Some(job) = draft.job(other) else {
                continue;
            };
            let hold = ending::after_requeue(job, how.holds());
            draft.emit(Event::JobRequeued {
                id: other,
                at,
                hold,
                not_before: None,
            });
        }
        return;
    }
    let lost = matches!(
        how.state(),
        JobState::NodeFail | JobState::BootFail | JobState::Preempted
    ) || how.never_ran();
    if !(part.leads() || lost || matches!(phase, Phase::Pending | Phase::Requeueing)) {
        return;
    }
    for other in others() {
        if let Some(Phase::Pending | Phase::Running | Phase::Suspended | Phase::Requeueing) =
            draft.job(other).map(Job::phase)
        {
            ending::end_one(draft, other, how);
        }
    }
}

/// Whether all components that would come back to the queue are still known.
pub(super) fn is_whole(draft: &Draft<'_>, part: HetPlace) -> bool {
    part.ids().all(|id| draft.job(id).is_some())
}

/// Refuses a target that is one component, for what is done to the whole job only.
pub(super) fn require_whole(draft: &Draft<'_>, target: &JobTarget) -> Result<(), Refusal> {
    let part = draft.job(target.job).and_then(|job| job.het);
    let one = target.component.unwrap_or(part.map_or(0, |p| p.offset)) > 0;
    if part.is_some() && one {
        return Err(not_whole(part));
    }
    Ok(())
}

/// Refuses what is done to one component while it waits.
pub(super) fn require_started(job: &Job) -> Result<(), Refusal> {
    match job.het {
        Some(part) if !part.leads() && job.phase() == Phase::Pending => Err(not_whole(Some(part))),
        _ => Ok(()),
    }
}

fn not_whole(part: Option<HetPlace>) -> Refusal {
    let detail = part.map_or_else(String::new, |part| {
        format!("name the whole job, {}", part.leader)
    });
    Refusal::new(RefusalCode::HetComponent, detail)
}

/// The components that a number without an offset names: all by the leader's, or by any with
/// `SchedulerParameters=whole_hetjob`.
pub(super) fn named(draft: &Draft<'_>, part: HetPlace) -> Vec<JobId> {
    let config = draft.state.config.as_ref();
    let whole = config.is_some_and(|c| c.scheduler_parameters.iter().any(|p| p == "whole_hetjob"));
    let known = |id: &JobId| draft.job(*id).is_some();
    if part.leads() || whole {
        part.ids().filter(known).collect()
    } else {
        vec![JobId(part.leader.0 + u64::from(part.offset))]
    }
}
