//! Stopping jobs and letting them go on. A stopped job keeps its memory and devices; its CPUs are free for others until
//! it goes on, and then may have two users. Its time limit stands still.

use super::draft::Draft;
use super::{target, turns};
use crate::event::Event;
use muster_model::command::{JobTarget, Reply};
use muster_model::ids::JobId;
use muster_model::job::{Job, Phase};
use muster_model::refusal::{Refusal, RefusalCode};

/// `scontrol suspend`.
pub(super) fn suspend(draft: &mut Draft<'_>, target: &JobTarget) -> Result<Option<Reply>, Refusal> {
    target::require_whole(draft, target)?;
    let at = draft.now;
    let tally = target::for_each_of_any(draft, target, |draft, item| {
        let id = item.record();
        match phase(draft, id)? {
            Phase::Running if draft.job(id).is_some_and(|job| job.configuring) => {
                return Err(Refusal::new(
                    RefusalCode::JobPending,
                    format!("job {id} waits for PrologSlurmctld, nothing of it runs yet"),
                ));
            }
            Phase::Running => {
                stop(draft, id, false);
            }
            Phase::Suspended if waits_for_turn(draft, id) => {
                // From now on it waits for an administrator.
                draft.emit(Event::JobResumed { id, at });
                let turn = None;
                let by_calendar = false;
                draft.emit(Event::JobSuspended {
                    id,
                    at,
                    turn,
                    by_calendar,
                });
            }
            other => return Err(wrong_phase(id, other)),
        }
        Ok(())
    })?;
    tally.reply_for_target()
}

/// Stops a job that runs; jobs that wait for its CPUs go on.
pub(super) fn stop(draft: &mut Draft<'_>, id: JobId, by_calendar: bool) {
    let at = draft.now;
    draft.emit(Event::JobSuspended {
        id,
        at,
        turn: None,
        by_calendar,
    });
    let nodes = turns::nodes_of(draft, id);
    nodes
        .into_iter()
        .for_each(|node| turns::resume_on(draft, node));
}

fn waits_for_turn(draft: &Draft<'_>, id: JobId) -> bool {
    draft.job(id).is_some_and(Job::waits_for_turn)
}

/// `scontrol resume`.
pub(super) fn resume(draft: &mut Draft<'_>, target: &JobTarget) -> Result<Option<Reply>, Refusal> {
    target::require_whole(draft, target)?;
    let at = draft.now;
    let tally = target::for_each_of_any(draft, target, |draft, item| {
        let id = item.record();
        match phase(draft, id)? {
            Phase::Suspended if waits_for_turn(draft, id) => turns::give(draft, id),
            Phase::Suspended => draft.emit(Event::JobResumed { id, at }),
            other => return Err(wrong_phase(id, other)),
        }
        Ok(())
    })?;
    tally.reply_for_target()
}

fn phase(draft: &Draft<'_>, id: JobId) -> Result<Phase, Refusal> {
    let phase = draft.job(id).map(Job::phase);
    phase.ok_or_else(|| RefusalCode::InvalidJobId.into())
}

fn wrong_phase(id: JobId, phase: Phase) -> Refusal {
    match phase {
        Phase::Pending | Phase::Requeueing => Refusal::new(
            RefusalCode::JobPending,
            format!("job {id} is not running yet"),
        ),
        Phase::Running | Phase::Suspended => Refusal::new(
            RefusalCode::JobHeld,
            format!("job {id} is in that state already"),
        ),
        Phase::Completing | Phase::Ended | Phase::Gone => Refusal::new(
            RefusalCode::AlreadyDone,
            format!("job {id} has ended or is ending"),
        ),
    }
}
