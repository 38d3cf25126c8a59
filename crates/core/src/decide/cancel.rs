//! Ending and signalling jobs: scancel, and the end of an allocation by its holder.

use super::draft::Draft;
use super::ending::{self, End};
use super::het;
use super::target::{self, Item, Tally};
use crate::policy::access;
use muster_model::command::{Identity, JobSelection, JobTarget, Reply, SignalScope};
use muster_model::effect::Effect;
use muster_model::ids::{JobId, StepNo};
use muster_model::job::{ExitStatus, Job, Phase};
use muster_model::limits::SIGNAL_MAX;
use muster_model::refusal::{Refusal, RefusalCode};
use muster_model::rights::Request;
use muster_model::spec::JobKind;

/// SIGKILL on Linux.
const SIGKILL: u32 = 9;

/// Ends jobs; a step of a job is ended by its node.
pub(super) fn cancel(
    draft: &mut Draft<'_>,
    identity: &Identity,
    selection: &JobSelection,
) -> Result<Option<Reply>, Refusal> {
    if selection.step.is_some() {
        return signal(draft, identity, selection, SIGKILL, SignalScope::Full);
    }
    let uid = identity.uid;
    let caller = Caller {
        identity,
        request: Request::Cancel,
    };
    for_selection(draft, caller, selection, |draft, item| {
        cancel_item(draft, item, uid)
    })
}

/// Sends a signal; KILL to all of a job ends it, as in Slurm.
pub(super) fn signal(
    draft: &mut Draft<'_>,
    identity: &Identity,
    selection: &JobSelection,
    signal: u32,
    scope: SignalScope,
) -> Result<Option<Reply>, Refusal> {
    if signal == 0 || signal > SIGNAL_MAX {
        return Err(Refusal::new(
            RefusalCode::InvalidValue,
            format!("{signal} is no signal"),
        ));
    }
    let (uid, step) = (identity.uid, selection.step);
    let caller = Caller {
        identity,
        request: Request::Signal,
    };
    for_selection(draft, caller, selection, |draft, item| {
        if step.is_none() && signal == SIGKILL && scope != SignalScope::Batch {
            return cancel_item(draft, item, uid);
        }
        let job = draft.job(item.record()).ok_or(RefusalCode::InvalidJobId)?;
        let orders = orders(draft, job, step, signal, scope)?;
        draft.send(orders);
        Ok(())
    })
}

/// The holder of an interactive allocation is done with it.
pub(super) fn end_allocation(
    draft: &mut Draft<'_>,
    identity: &Identity,
    id: JobId,
    exit: ExitStatus,
) -> Result<Option<Reply>, Refusal> {
    let job = draft
        .job(id)
        .ok_or_else(|| Refusal::new(RefusalCode::InvalidJobId, format!("there is no job {id}")))?;
    access::require_job(draft.state, identity, Request::EndAllocation, job)?;
    if job.spec.kind != JobKind::Allocation {
        return Err(Refusal::new(
            RefusalCode::JobNotRunning,
            format!("job {id} is a batch job: it ends with its script"),
        ));
    }
    let how = match job.phase() {
        Phase::Pending => End::cancelled(identity.uid),
        Phase::Running | Phase::Suspended => End::exited(exit, false),
        Phase::Completing | Phase::Requeueing | Phase::Ended | Phase::Gone => {
            return Err(already_done(id));
        }
    };
    ending::end(draft, id, how);
    Ok(Some(Reply::Done {
        changed: 1,
        refused: Vec::new(),
    }))
}

/// The user who asks, and the kind of request.
#[derive(Clone, Copy)]
struct Caller<'a> {
    identity: &'a Identity,
    request: Request,
}

/// Acts on what a selection names: targets one by one, else all that match. Others' jobs that were named are
/// refused; those that a filter finds are passed over.
fn for_selection(
    draft: &mut Draft<'_>,
    caller: Caller<'_>,
    selection: &JobSelection,
    mut act: impl FnMut(&mut Draft<'_>, Item) -> Result<(), Refusal>,
) -> Result<Option<Reply>, Refusal> {
    let mut tally = Tally::default();
    if selection.targets.is_empty() {
        for item in target::by_filter(draft, caller.identity, caller.request, selection) {
            // What is being ended already is not what a filter means.
            if act(draft, item).is_ok() {
                tally.done();
            }
        }
        return Ok(Some(tally.reply()));
    }
    for wanted in &selection.targets {
        act_on_target(draft, caller, selection, wanted, &mut act, &mut tally);
    }
    Ok(Some(tally.reply()))
}

fn act_on_target(
    draft: &mut Draft<'_>,
    caller: Caller<'_>,
    selection: &JobSelection,
    wanted: &JobTarget,
    act: &mut impl FnMut(&mut Draft<'_>, Item) -> Result<(), Refusal>,
    tally: &mut Tally,
) {
    let foreign = target::any_record(draft, wanted.job).and_then(|job| {
        let (identity, request) = (caller.identity, caller.request);
        let refusal = access::require_job(draft.state, identity, request, job).err()?;
        Some((refusal, target::matches(draft, job, selection)))
    });
    match foreign {
        Some((refusal, true)) => return tally.refuse(target::text(wanted), refusal),
        Some((_, false)) => return,
        None => {}
    }
    let items = match target::resolve(draft, wanted) {
        Ok(items) => items,
        Err(refusal) => return tally.refuse(target::text(wanted), refusal),
    };
    let whole_array = items.len() > 1;
    let mut refusals = Vec::new();
    let mut done = false;
    for item in items {
        let Some(job) = draft.job(item.record()) else {
            continue;
        };
        if !target::matches(draft, job, selection) {
            continue;
        }
        let outcome = access::require_job(draft.state, caller.identity, caller.request, job)
            .and_then(|()| act(draft, item));
        match outcome {
            Ok(()) => {
                tally.done();
                done = true;
            }
            Err(refusal) => refusals.push((item.text(draft), refusal)),
        }
    }
    // Of an array with tasks left, those that are over are not worth a word.
    refusals
        .retain(|(_, refusal)| !(whole_array && done && refusal.code == RefusalCode::AlreadyDone));
    refusals.dedup_by(|a, b| whole_array && a.1 == b.1);
    for (what, refusal) in refusals {
        tally.refuse(what, refusal);
    }
}

fn cancel_item(draft: &mut Draft<'_>, item: Item, uid: u32) -> Result<(), Refusal> {
    let id = item.record();
    let phase = draft.job(id).map(Job::phase);
    match phase {
        Some(Phase::Pending | Phase::Running | Phase::Suspended | Phase::Requeueing) => {
            draft.job(id).map_or(Ok(()), het::require_started)?;
            let id = item.own_record(draft);
            ending::end(draft, id, End::cancelled(uid));
            Ok(())
        }
        Some(Phase::Completing | Phase::Ended | Phase::Gone) | None => Err(already_done(id)),
    }
}

fn orders(
    draft: &Draft<'_>,
    job: &Job,
    step: Option<StepNo>,
    signal: u32,
    scope: SignalScope,
) -> Result<Vec<Effect>, Refusal> {
    match job.phase() {
        Phase::Pending | Phase::Requeueing => {
            return Err(Refusal::new(
                RefusalCode::JobPending,
                format!("job {} has nothing that could get a signal", job.id),
            ));
        }
        Phase::Completing | Phase::Ended | Phase::Gone => return Err(already_done(job.id)),
        Phase::Running | Phase::Suspended => {}
    }
    let mut orders = draft.state.signals(job, signal, scope);
    let Some(step) = step else {
        return Ok(orders);
    };
    if job.steps.iter().all(|s| s.step != step) {
        return Err(Refusal::new(
            RefusalCode::AlreadyDone,
            format!("step {}.{step} does not run", job.id),
        ));
    }
    for order in &mut orders {
        if let Effect::Signal { step: to, .. } = order {
            *to = Some(step);
        }
    }
    Ok(orders)
}

fn already_done(id: JobId) -> Refusal {
    Refusal::new(
        RefusalCode::AlreadyDone,
        format!("job {id} has ended or is ending"),
    )
}
