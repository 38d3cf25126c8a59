//! Changes of a running job: time limits of its steps, and messages for its users.

use super::draft::Draft;
use super::target;
use super::texts;
use crate::event::JobChange;
use crate::policy::access;
use muster_model::command::{Identity, JobTarget, Reply};
use muster_model::effect::Effect;
use muster_model::ids::{JobId, StepNo};
use muster_model::job::{Job, Phase};
use muster_model::limits::TEXT_BYTES_MAX;
use muster_model::refusal::{Refusal, RefusalCode};
use muster_model::rights::AccessRequest;
use muster_model::time::TimeLimit;

/// `scontrol update StepId=JOB.STEP TimeLimit=`. A step of which no number is given stands for all of the job's.
pub(super) fn update(
    draft: &mut Draft<'_>,
    identity: &Identity,
    target: &JobTarget,
    step: Option<StepNo>,
    limit: TimeLimit,
) -> Result<Option<Reply>, Refusal> {
    let tally = target::for_each(
        draft,
        (identity, AccessRequest::UpdateStep),
        target,
        |draft, item| {
            let job = running(draft, identity, AccessRequest::UpdateStep, item.record())?;
            let id = job.id;
            let numbered = |s: &StepNo| *s < StepNo::INTERACTIVE;
            let steps = job.steps.iter().filter(|s| numbered(&s.step));
            let named = steps.filter(|s| step.is_none_or(|w| w == s.step));
            let (same, changed): (Vec<_>, Vec<_>) =
                named.partition(|s| s.time_limit == Some(limit));
            let changed: Vec<StepNo> = changed.iter().map(|s| s.step).collect();
            if same.is_empty() && changed.is_empty() {
                let what = step.map_or_else(
                    || format!("job {id} has no step that runs"),
                    |step| match numbered(&step) {
                        true => format!("step {id}.{step} does not run"),
                        false => format!("step {id}.{step} runs as long as its job"),
                    },
                );
                return Err(Refusal::new(RefusalCode::AlreadyDone, what));
            }
            // Nodes get a limit once, however often it is asked for.
            for step in changed {
                draft.change(id, JobChange::StepLimit { step, limit });
            }
            Ok(())
        },
    )?;
    tally.reply_for_target()
}

/// `scontrol notify`.
pub(super) fn notify(
    draft: &mut Draft<'_>,
    identity: &Identity,
    target: &JobTarget,
    text: &str,
) -> Result<Option<Reply>, Refusal> {
    texts::too_long("the message", text, TEXT_BYTES_MAX)?;
    let tally = target::for_each(
        draft,
        (identity, AccessRequest::Notify),
        target,
        |draft, item| {
            let job = running(draft, identity, AccessRequest::Notify, item.record())?.id;
            // The text after a line end would not bear its author's name.
            let text = text.replace(|c: char| c.is_control(), " ");
            draft.send([Effect::SendMessage { job, text }]);
            Ok(())
        },
    )?;
    tally.reply_for_target()
}

fn running<'d>(
    draft: &'d Draft<'_>,
    identity: &Identity,
    request: AccessRequest,
    id: JobId,
) -> Result<&'d Job, Refusal> {
    let job = draft.job(id).ok_or(RefusalCode::InvalidJobId)?;
    access::require_job(draft.state, identity, request, job)?;
    match job.phase() {
        Phase::Running | Phase::Suspended => Ok(job),
        Phase::Pending | Phase::Requeueing => Err(Refusal::new(
            RefusalCode::JobPending,
            format!("job {id} does not run"),
        )),
        Phase::Completing | Phase::Ended | Phase::Gone => Err(Refusal::new(
            RefusalCode::AlreadyDone,
            format!("job {id} has ended or is ending"),
        )),
    }
}
