//! Back to the queue: `scontrol requeue` and `requeuehold`, also called by jobs on themselves.

use super::draft::Draft;
use super::ending::{self, JobEnding};
use super::job_limits::Moved;
use super::target::{self, Item};
use crate::event::{Event, JobChange};
use crate::policy::access;
use muster_model::command::{Identity, JobTarget, Reply};
use muster_model::job::{AfterCompleting, ArrayRole, Job, Phase, Reason};
use muster_model::refusal::{Refusal, RefusalCode};
use muster_model::rights::AccessRequest;
use muster_model::spec::JobKind;

/// Number by which requeues of a job after its end may exceed its runs: each time makes another row of accounting.
const WITHOUT_RUN_MAX: u32 = 100;

/// Options of the request.
#[derive(Clone, Copy)]
pub(super) struct RequeueOptions {
    /// Hold them in the queue.
    pub(super) hold: bool,
    /// Show them as SPECIAL_EXIT.
    pub(super) special_exit: bool,
    /// Leave those alone that have ended.
    pub(super) incomplete: bool,
}

/// Ends what runs of a job and puts it back; an ended job that is still in the queue is put back at once.
pub(super) fn requeue(
    draft: &mut Draft<'_>,
    identity: &Identity,
    target: &JobTarget,
    how: RequeueOptions,
) -> Result<Option<Reply>, Refusal> {
    let mut moved = Moved::default();
    let tally = target::for_each_whole(
        draft,
        (identity, AccessRequest::Requeue),
        target,
        |draft, item| requeue_item(draft, identity, item, how, &mut moved),
    )?;
    tally.reply_for_target()
}

fn requeue_item(
    draft: &mut Draft<'_>,
    identity: &Identity,
    item: Item,
    how: RequeueOptions,
    moved: &mut Moved,
) -> Result<(), Refusal> {
    let hold = how.hold;
    let id = item.record();
    let job = draft.job(id).ok_or(RefusalCode::InvalidJobId)?;
    access::require_job(draft.state, identity, AccessRequest::Requeue, job)?;
    if job.spec.kind != JobKind::Batch {
        return Err(Refusal::new(
            RefusalCode::NotRequeuable,
            format!("job {id} is not a batch job"),
        ));
    }
    // Administrators first say that it may be: `scontrol update Requeue=1`.
    if !job.requeueable {
        return Err(Refusal::new(
            RefusalCode::NotRequeuable,
            format!("job {id} was submitted with --no-requeue or the cluster has JobRequeue=0"),
        ));
    }
    if job.het.is_some_and(|part| !ending::is_whole(draft, part)) {
        return Err(Refusal::new(
            RefusalCode::NotRequeuable,
            format!("components of job {id} are no longer known"),
        ));
    }
    let now = draft.now;
    match job.phase() {
        Phase::Pending => {
            return Err(Refusal::new(
                RefusalCode::JobPending,
                format!("job {id} is in the queue already"),
            ));
        }
        Phase::Completing | Phase::Ended if how.incomplete => {
            return Err(Refusal::new(
                RefusalCode::AlreadyDone,
                format!("job {id} is over or ending; Incomplete selects running jobs only"),
            ));
        }
        // A job that was stopped does not start again unasked.
        Phase::Suspended => {
            submit_again(draft, identity, job, moved)?;
            ending::end(draft, id, JobEnding::requeue(Reason::None, true));
        }
        // Why it comes back, and that it is held then, is not forgotten before it is back.
        Phase::Requeueing if job.reason == Reason::JobLaunchFailure => {
            let held = AfterCompleting::Requeue { hold: true };
            let hold = hold || job.after_completing == held;
            ending::end(draft, id, JobEnding::requeue(job.reason, hold));
        }
        Phase::Running | Phase::Completing | Phase::Requeueing => {
            submit_again(draft, identity, job, moved)?;
            ending::end(draft, id, JobEnding::requeue(Reason::None, hold));
        }
        Phase::Ended => {
            if matches!(job.array, ArrayRole::Pending { .. }) {
                return Err(Refusal::new(
                    RefusalCode::NotRequeuable,
                    format!(
                        "the tasks of array {id} were cancelled before they started; submit them again"
                    ),
                ));
            }
            if job.restarts >= job.attempt.0.saturating_add(WITHOUT_RUN_MAX) {
                return Err(Refusal::new(
                    RefusalCode::NotRequeuable,
                    format!(
                        "job {id} was put back into the queue {} times and started {} times; submit it again",
                        job.restarts, job.attempt.0
                    ),
                ));
            }
            let part = job.het;
            let is_over = |id| draft.job(id).is_some_and(Job::is_over);
            if part.is_some_and(|part| !part.ids().all(is_over)) {
                return Err(Refusal::new(
                    RefusalCode::NotRequeuable,
                    format!("components of job {id} are still ending"),
                ));
            }
            submit_again(draft, identity, job, moved)?;
            let others = part.into_iter().flat_map(|part| part.ids().skip(1));
            for other in others {
                let kept = draft.job(other).map(|job| ending::after_requeue(job, hold));
                draft.emit(Event::JobRequeued {
                    id: other,
                    at: now,
                    hold: kept.unwrap_or_default(),
                    not_before: ending::requeue_wait(draft),
                });
            }
            let Some(job) = draft.job(id) else {
                return Err(RefusalCode::InvalidJobId.into());
            };
            let hold = ending::after_requeue(job, hold);
            draft.emit(Event::JobRequeued {
                id,
                at: now,
                hold,
                not_before: ending::requeue_wait(draft),
            });
        }
        Phase::Gone => return Err(RefusalCode::InvalidJobId.into()),
    }
    if how.special_exit {
        draft.change(id, JobChange::SpecialExit(true));
    }
    Ok(())
}

/// Refuses to put a job back for which there is no room under the limits on jobs that are submitted: these count jobs that wait
/// or run, which it did no more if it had ended, or components of it. Operators pass, as with other changes.
fn submit_again(
    draft: &Draft<'_>,
    identity: &Identity,
    job: &Job,
    moved: &mut Moved,
) -> Result<(), Refusal> {
    match access::may(draft.state, identity, AccessRequest::RaiseTimeLimit) {
        true => Ok(()),
        false => moved.submit_again(draft, job),
    }
}
