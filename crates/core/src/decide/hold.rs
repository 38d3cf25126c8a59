//! Holding jobs back, releasing them, and their order among their owner's.

use super::crontab;
use super::draft::Draft;
use super::target::{self, Item};
use crate::event::JobChange;
use crate::policy::access;
use crate::state::Scale;
use muster_model::command::{Identity, JobTarget, Reply};
use muster_model::ids::JobId;
use muster_model::job::{Hold, Job, Phase};
use muster_model::limits::TOP_JOBS_MAX;
use muster_model::refusal::{Refusal, RefusalCode};
use muster_model::rights::AccessRequest;
use std::sync::Arc;

/// `scontrol hold`, `uhold`. A running job is held for the case that it is requeued.
pub(super) fn hold(
    draft: &mut Draft<'_>,
    identity: &Identity,
    target: &JobTarget,
    user: bool,
) -> Result<Option<Reply>, Refusal> {
    let admin = access::may(draft.state, identity, AccessRequest::HoldAsAdmin);
    let by = if user || !admin {
        Hold::User
    } else {
        Hold::Admin
    };
    let tally = target::for_each(
        draft,
        (identity, AccessRequest::Hold),
        target,
        |draft, item| {
            let job = holdable(draft, identity, AccessRequest::Hold, item)?;
            crontab::require_none(job)?;
            // An administrator's hold is not softened by the owner's.
            let hold = if job.hold == Hold::Admin && !admin {
                Hold::Admin
            } else {
                by
            };
            let id = item.own_record(draft);
            draft.change(id, JobChange::Hold { hold, priority: 0 });
            Ok(())
        },
    )?;
    tally.reply_for_target()
}

/// `scontrol release`.
pub(super) fn release(
    draft: &mut Draft<'_>,
    identity: &Identity,
    target: &JobTarget,
) -> Result<Option<Reply>, Refusal> {
    let admin = access::may(draft.state, identity, AccessRequest::HoldAsAdmin);
    let tally = target::for_each(
        draft,
        (identity, AccessRequest::Release),
        target,
        |draft, item| {
            let job = holdable(draft, identity, AccessRequest::Release, item)?;
            if job.hold == Hold::None {
                crontab::require_none(job)?;
            }
            match job.hold {
                // Nothing to do is done.
                Hold::None => return Ok(()),
                Hold::Admin if !admin => {
                    return Err(Refusal::new(
                        RefusalCode::AccessDenied,
                        format!("job {} is held by an administrator", job.id),
                    ));
                }
                Hold::User | Hold::Admin => {}
            }
            let (priority, special) = (job.default_priority(), job.special_exit);
            let id = item.own_record(draft);
            draft.change(
                id,
                JobChange::Hold {
                    hold: Hold::None,
                    priority,
                },
            );
            if special {
                draft.change(id, JobChange::SpecialExit(false));
            }
            Ok(())
        },
    )?;
    tally.reply_for_target()
}

/// `scontrol top`: the job comes first among the pending jobs of its owner in its partition, account and QOS. The
/// priorities that these jobs have are dealt out anew, so that nobody else's place changes.
pub(super) fn top(
    draft: &mut Draft<'_>,
    identity: &Identity,
    target: &JobTarget,
) -> Result<Option<Reply>, Refusal> {
    // Whether users may do this here says nothing of a job that they may not know of.
    target::require(draft, (identity, AccessRequest::Top), target)?;
    target::resolve(draft, target)?;
    let admin = access::may(draft.state, identity, AccessRequest::TopAnyway);
    let allowed = draft.state.config.as_ref().is_some_and(|config| {
        let parameters = &config.scheduler_parameters;
        parameters.iter().any(|p| p == "enable_user_top")
    });
    if !admin && !allowed {
        return Err(Refusal::new(
            RefusalCode::AccessDenied,
            "users may not do this here (SchedulerParameters lacks enable_user_top)",
        ));
    }
    let mut raised = 0;
    let tally = target::for_each(
        draft,
        (identity, AccessRequest::Top),
        target,
        |draft, item| {
            let job = holdable(draft, identity, AccessRequest::Top, item)?;
            // Each is compared with all other jobs of its owner.
            raised += 1;
            if raised > TOP_JOBS_MAX {
                return Err(Refusal::new(
                    RefusalCode::NotSupported,
                    format!("more than {TOP_JOBS_MAX} jobs cannot be put on top at once"),
                ));
            }
            if job.phase() != Phase::Pending {
                return Err(RefusalCode::JobNotPending.into());
            }
            if job.spec.partitions.len() > 1 || job.hold != Hold::None {
                return Err(Refusal::new(
                    RefusalCode::NotSupported,
                    format!("job {} is held or in several partitions", job.id),
                ));
            }
            let id = item.own_record(draft);
            match Scale::new(draft.state) {
                Some(scale) => raise_by_nice(draft, id, &scale),
                None => raise(draft, id),
            }
            Ok(())
        },
    )?;
    tally.reply_for_target()
}

fn raise(draft: &mut Draft<'_>, id: JobId) {
    let Some(job) = draft.job(id) else {
        return;
    };
    let mut rivals: Vec<(u32, JobId)> = rivals(draft, job)
        .filter(|other| other.priority >= job.priority)
        .map(|other| (other.priority, other.id))
        .collect();
    rivals.sort_unstable_by(|a, b| b.cmp(a));
    // Each gets what the next one in line had; the job gets what the first one had.
    let mut places: Vec<u32> = rivals.iter().map(|(priority, _)| *priority).collect();
    places.push(job.priority);
    let order = std::iter::once(id).chain(rivals.iter().map(|(_, other)| *other));
    for (other, priority) in order.zip(places) {
        if draft.job(other).is_some_and(|job| job.priority != priority) {
            draft.change(other, JobChange::Priority(priority));
        }
    }
}

/// The same where priorities are worked out: the job's nice value falls as far as it takes, and those of the jobs that
/// it passes rise by as much in all.
fn raise_by_nice(draft: &mut Draft<'_>, id: JobId, scale: &Scale) {
    let state = draft.state;
    let Some(job) = draft.job(id) else {
        return;
    };
    let own = i64::from(state.priority_of(Some(scale), job));
    let rivals: Vec<(i64, JobId)> = rivals(draft, job)
        .map(|other| (i64::from(state.priority_of(Some(scale), other)), other.id))
        .filter(|(priority, _)| *priority >= own)
        .collect();
    let Some(most) = rivals.iter().map(|(priority, _)| *priority).max() else {
        return;
    };
    let step = most - own + 1;
    let count = i64::try_from(rivals.len()).unwrap_or(i64::MAX);
    let share = (step + count - 1) / count;
    let changes = rivals.iter().map(|(_, other)| (*other, share));
    for (other, more) in std::iter::once((id, -step)).chain(changes) {
        let Some(job) = draft.job(other) else {
            continue;
        };
        let mut spec = (*job.spec).clone();
        let nice = i64::from(spec.nice).saturating_add(more);
        spec.nice = i32::try_from(nice).unwrap_or(if more < 0 { i32::MIN } else { i32::MAX });
        draft.change(other, JobChange::Spec(Arc::new(spec)));
    }
}

/// Other pending jobs of the owner with the same partition, account and QOS.
fn rivals<'d>(draft: &'d Draft<'_>, job: &'d Job) -> impl Iterator<Item = &'d Job> {
    draft
        .state
        .by_owner
        .get(&job.spec.owner.uid)
        .into_iter()
        .flat_map(|names| names.values().flatten())
        .filter_map(|(_, other)| draft.job(*other))
        .filter(|other| {
            other.phase() == Phase::Pending
                && other.hold == Hold::None
                && other.spec.partitions == job.spec.partitions
                && other.spec.account == job.spec.account
                && other.spec.qos == job.spec.qos
                && other.id != job.id
        })
}

/// The job, if the caller may make the request about it and it is not over.
fn holdable<'d>(
    draft: &'d Draft<'_>,
    identity: &Identity,
    request: AccessRequest,
    item: Item,
) -> Result<&'d Job, Refusal> {
    let id = item.record();
    let job = draft.job(id).ok_or(RefusalCode::InvalidJobId)?;
    access::require_job(draft.state, identity, request, job)?;
    match job.phase() {
        Phase::Pending | Phase::Running | Phase::Suspended | Phase::Requeueing => Ok(job),
        Phase::Completing | Phase::Ended | Phase::Gone => Err(Refusal::new(
            RefusalCode::AlreadyDone,
            format!("job {id} has ended or is ending"),
        )),
    }
}
