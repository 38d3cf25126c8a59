//! Submits heterogeneous jobs: all components are accepted or none. `commit` starts them together, `ending` ends them with
//! their leader.

use super::draft::Draft;
use super::job_limits::Moved;
use super::target::not_whole;
use super::{room, submit};
use minicbor::bytes::ByteVec;
use muster_model::command::{Identity, Reply};
use muster_model::het::HetPlace;
use muster_model::ids::{BlobId, JobId};
use muster_model::job::{Job, Phase};
use muster_model::limits::HET_COMPONENTS_MAX;
use muster_model::refusal::{Refusal, RefusalCode};
use muster_model::spec::{JobKind, JobSpec};

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
    let mut moved = Moved::default();
    for ((number, spec), offset) in specs.iter().enumerate().zip(0u32..) {
        if offset > 0 && (spec.kind != JobKind::Allocation || spec.script.is_some()) {
            return Err(invalid("only the first component has a script"));
        }
        let (mut job, not_before) = submit::prepare(draft, &identity.for_job(number), spec)
            .map_err(|refusal| of_component(refusal, offset))?;
        (moved.submit(draft.state, &job)).map_err(|refusal| of_component(refusal, offset))?;
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

/// Refuses changes of one component while the job waits.
pub(super) fn require_started(job: &Job) -> Result<(), Refusal> {
    match job.het {
        Some(part) if !part.leads() && job.phase() == Phase::Pending => Err(not_whole(Some(part))),
        _ => Ok(()),
    }
}
