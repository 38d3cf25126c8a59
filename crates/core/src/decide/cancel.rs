//! Ending and signalling jobs: scancel, and the end of an allocation by its holder.

use super::draft::Draft;
use super::ending::{self, JobEnding};
use super::target::{self, Filter, Item, Tally};
use super::{crontab, het};
use crate::policy::access;
use muster_model::command::{Identity, JobSelection, JobTarget, Reply, SignalScope};
use muster_model::effect::Effect;
use muster_model::ids::{JobId, StepNo};
use muster_model::index_set::IndexSet;
use muster_model::job::{ExitStatus, Job, Phase};
use muster_model::limits::{QUERY_ITEMS_MAX, SIGNAL_MAX};
use muster_model::refusal::{Refusal, RefusalCode};
use muster_model::rights::AccessRequest;
use muster_model::spec::JobKind;
use std::collections::{BTreeSet, HashMap, HashSet};

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
        request: AccessRequest::Cancel,
    };
    for_selection(draft, caller, selection, |draft, item| {
        cancel_item(draft, item, uid, selection.cron)
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
            format!("{signal} is not a valid signal"),
        ));
    }
    let (uid, step) = (identity.uid, selection.step);
    let caller = Caller {
        identity,
        request: AccessRequest::Signal,
    };
    for_selection(draft, caller, selection, |draft, item| {
        if step.is_none() && signal == SIGKILL && scope != SignalScope::Batch {
            return cancel_item(draft, item, uid, selection.cron);
        }
        let job = draft.job(item.record()).ok_or(RefusalCode::InvalidJobId)?;
        let mut orders = orders(draft, job, step, signal, scope)?;
        if step.is_some() && signal == SIGKILL {
            name_user(&mut orders, uid);
        }
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
    access::require_job(draft.state, identity, AccessRequest::EndAllocation, job)?;
    if job.spec.kind != JobKind::Allocation {
        return Err(Refusal::new(
            RefusalCode::JobNotRunning,
            format!("job {id} is a batch job: it ends with its script"),
        ));
    }
    let how = match job.phase() {
        Phase::Pending => JobEnding::cancelled(identity.uid),
        Phase::Running | Phase::Suspended => JobEnding::exited(exit, false),
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
    request: AccessRequest,
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
            if draft.is_full() {
                break;
            }
            // A filter does not select jobs that are being ended already.
            if act(draft, item).is_ok() {
                tally.done();
            }
        }
        return Ok(Some(tally.reply()));
    }
    let mut chosen = SelectedTargets::new(draft, selection);
    for wanted in &selection.targets {
        act_on_target(draft, caller, &mut chosen, wanted, &mut act, &mut tally)?;
    }
    Ok(Some(tally.reply()))
}

/// The records of a selection's targets that were looked at, each once, however often targets name it.
struct SelectedTargets<'a> {
    filter: Filter<'a>,
    /// Targets that were seen.
    targets: HashSet<(JobId, Option<u32>, Option<&'a IndexSet>)>,
    /// Jobs of others, with whether they pass the filters.
    foreign: HashMap<JobId, Option<(Refusal, bool)>>,
    items: BTreeSet<Item>,
    /// Targets, and ranges and records of tasks, that may still be looked at. All tasks that there are may be named twice over.
    left: u64,
}

impl<'a> SelectedTargets<'a> {
    fn new(draft: &Draft<'_>, selection: &'a JobSelection) -> SelectedTargets<'a> {
        let all = draft.state.queue_size.total();
        SelectedTargets {
            filter: Filter::new(selection),
            targets: HashSet::new(),
            foreign: HashMap::new(),
            items: BTreeSet::new(),
            left: all.saturating_mul(4).saturating_add(LOOKED_AT_LEAST),
        }
    }

    /// Counts records that were looked at.
    fn charge(&mut self, count: u64) -> Result<(), Refusal> {
        let left = self.left.checked_sub(count);
        self.left = left.ok_or_else(|| {
            Refusal::new(
                RefusalCode::InvalidValue,
                "the request lists too many jobs or tasks, or too many duplicate ones; name fewer at a time",
            )
        })?;
        Ok(())
    }
}

/// The records that one request may have looked at, however few jobs there are: as many targets as it can have, of one task each.
const LOOKED_AT_LEAST: u64 = 4 * QUERY_ITEMS_MAX as u64;

fn act_on_target<'a>(
    draft: &mut Draft<'_>,
    caller: Caller<'_>,
    chosen: &mut SelectedTargets<'a>,
    wanted: &'a JobTarget,
    act: &mut impl FnMut(&mut Draft<'_>, Item) -> Result<(), Refusal>,
    tally: &mut Tally,
) -> Result<(), Refusal> {
    let name = (wanted.job, wanted.component, wanted.tasks.as_ref());
    if !chosen.targets.insert(name) {
        return Ok(());
    }
    let filter = &chosen.filter;
    let foreign = chosen.foreign.entry(wanted.job).or_insert_with(|| {
        let job = target::any_record(draft, wanted.job)?;
        let refusal =
            access::require_job(draft.state, caller.identity, caller.request, job).err()?;
        // For who does not see it, it is as one that is not there, whatever the filter says.
        let unseen = refusal.code == RefusalCode::InvalidJobId;
        Some((refusal, unseen || target::matches(draft, job, filter)))
    });
    if let Some((refusal, matches)) = foreign {
        if *matches {
            let refusal = target::of_target(refusal.clone(), wanted);
            tally.refuse(target::text(wanted), refusal);
        }
        return Ok(());
    }
    let before = draft.looked_at();
    let items = target::resolve(draft, wanted);
    // A target that names no job has cost as much.
    chosen.charge(1 + draft.looked_at() - before)?;
    let items = match items {
        Ok(items) => items,
        Err(refusal) => {
            tally.refuse(target::text(wanted), refusal);
            return Ok(());
        }
    };
    chosen.charge(items.len() as u64)?;
    let whole_array = items.len() > 1;
    let mut refusals = Vec::new();
    let mut done = false;
    for item in items {
        if draft.is_full() {
            break;
        }
        let Some(job) = draft.job(item.record()) else {
            continue;
        };
        if !chosen.items.insert(item) || !target::matches(draft, job, &chosen.filter) {
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
    // Ended tasks of an array with tasks left are not worth a word.
    refusals
        .retain(|(_, refusal)| !(whole_array && done && refusal.code == RefusalCode::AlreadyDone));
    refusals.dedup_by(|a, b| whole_array && a.1 == b.1);
    for (what, refusal) in refusals {
        tally.refuse(what, refusal);
    }
    Ok(())
}

fn cancel_item(draft: &mut Draft<'_>, item: Item, uid: u32, cron: bool) -> Result<(), Refusal> {
    let id = item.record();
    let phase = draft.job(id).map(Job::phase);
    match phase {
        Some(Phase::Pending | Phase::Running | Phase::Suspended | Phase::Requeueing) => {
            draft.job(id).map_or(Ok(()), het::require_started)?;
            let job = draft.job(id);
            job.map_or(Ok(()), |job| crontab::require_said(draft, job, cron))?;
            let id = item.own_record(draft);
            ending::end(draft, id, JobEnding::cancelled(uid));
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
                format!("job {} has no running process to signal", job.id),
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

/// Accounting has the user who ends a step.
fn name_user(orders: &mut [Effect], uid: u32) {
    for order in orders {
        if let Effect::Signal { cancelled_by, .. } = order {
            *cancelled_by = Some(uid);
        }
    }
}

fn already_done(id: JobId) -> Refusal {
    Refusal::new(
        RefusalCode::AlreadyDone,
        format!("job {id} has ended or is ending"),
    )
}
