//! The scheduler's plan. Each start is checked again against the state as the starts before it leave it; one that
//! does not fit any more is dropped alone.

use super::draft::Draft;
use super::power;
use crate::command::{Plan, PlannedStart};
use crate::config::PartitionState;
use crate::event::{Event, JobChange};
use crate::ids::{Attempt, JobId};
use crate::job::{Allocation, ArrayRole, Job, NodeShare};
use crate::node::Node;
use crate::reservation::{Flags, Reservation};
use crate::state::Note;
use crate::time::Timestamp;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Starts what can be started and takes note of the rest.
pub(super) fn commit(draft: &mut Draft<'_>, plan: &Plan) {
    for planned in &plan.starts {
        start(draft, planned);
    }
    for id in &plan.switch_waits {
        let waits = |job: &Job| job.is_startable() && job.switch_wait_since.is_none();
        if draft.job(*id).is_some_and(waits) {
            draft.change(*id, JobChange::SwitchWait);
        }
    }
    for (id, reason) in &plan.reasons {
        if draft
            .job(*id)
            .is_some_and(|j| j.is_startable() && j.reason != *reason)
        {
            draft.note(Note::Reason(*id, *reason));
        }
    }
    for (id, time) in &plan.expected {
        let known = draft.job(*id).filter(|job| job.is_startable());
        if known.is_some_and(|job| job.expected_start != Some(*time)) {
            draft.note(Note::Expected(*id, Some(*time)));
        }
    }
}

fn start(draft: &mut Draft<'_>, planned: &PlannedStart) {
    let Some(job) = draft.job(planned.job) else {
        return;
    };
    if !job.is_startable() || !throttle_allows(draft, job) || !fits(draft, job, &planned.alloc) {
        return;
    }
    let Some(end_by) = reservations_allow(draft, job, &planned.alloc) else {
        return;
    };
    let billing_milli = billing_milli(draft, job, &planned.alloc);
    let attempt = Attempt(job.attempt.0.saturating_add(1));
    let is_array = matches!(job.array, ArrayRole::Pending { .. });
    let id = if is_array {
        let Some(index) = draft.first_in_record(planned.job) else {
            return;
        };
        draft.split_task(planned.job, index)
    } else {
        planned.job
    };
    let at = draft.now;
    let config = draft.state.config.as_ref();
    let prolog = config.is_some_and(|config| config.prolog_slurmctld);
    let asleep = planned
        .alloc
        .nodes
        .iter()
        .any(|s| power::sleeps(draft, s.node));
    draft.emit(Event::JobStarted {
        id,
        attempt,
        at,
        configuring: prolog || asleep,
        alloc: Arc::new(Allocation {
            end_by,
            billing_milli,
            ..planned.alloc.clone()
        }),
    });
    if asleep {
        power::wake(draft, id, prolog);
    }
}

/// Whether the array's `%limit` lets one more task run.
fn throttle_allows(draft: &Draft<'_>, job: &Job) -> bool {
    let base: JobId = job.submission();
    let throttle = draft.state.arrays.get(&base).and_then(|a| a.throttle);
    match (throttle, draft.counts(base)) {
        (Some(most), Some(counts)) => counts.running < most,
        (Some(_) | None, _) => true,
    }
}

/// What the allocation counts in the user's use, in thousandths: CPUs, or what `TRESBillingWeights` says, times the
/// `UsageFactor` of the QOS.
fn billing_milli(draft: &Draft<'_>, job: &Job, alloc: &Allocation) -> u64 {
    let state = draft.state;
    let weights = state
        .partition(&alloc.partition)
        .and_then(|p| p.billing_weights.as_deref())
        .unwrap_or("CPU=1");
    let mut units = 0.0;
    for (name, weight) in crate::priority::tres_weights(weights) {
        let amount = match name.to_ascii_lowercase().as_str() {
            "cpu" => alloc.cpus() as f64,
            "mem" => alloc.memory_mib() as f64,
            "node" => alloc.nodes.len() as f64,
            other => {
                let wanted = other.strip_prefix("gres/").unwrap_or(other);
                let gres = alloc.nodes.iter().flat_map(|n| &n.gres);
                gres.filter(|g| g.name == wanted)
                    .map(|g| f64::from(g.ids.len()))
                    .sum()
            }
        };
        units += amount * weight;
    }
    let factor = state.accounts.qos(state.qos_of(job));
    let factor = factor.and_then(|q| q.usage_factor_millionths);
    let milli = units * factor.unwrap_or(1_000_000) as f64 / 1000.0;
    milli.max(0.0) as u64
}

/// Whether no reservation has what the job would get; when its own one ends it.
fn reservations_allow(
    draft: &Draft<'_>,
    job: &Job,
    alloc: &Allocation,
) -> Option<Option<Timestamp>> {
    let all = &draft.state.reservations;
    if all.is_empty() && alloc.reservation.is_none() {
        return Some(None);
    }
    let mut end_by = None;
    let mut own = None;
    if let Some(name) = &alloc.reservation {
        let reservation = all.get(name).filter(|r| r.is_open())?;
        let asked = job.spec.reservations().any(|n| n == name);
        let owner = &job.spec.owner;
        let admitted = || reservation.admits(&owner.user, &[&owner.group], job.spec.account_name());
        let drawn_in = || reservation.flags.has(Flags::MAGNETIC) && admitted();
        if !(asked || drawn_in()) {
            return None;
        }
        end_by = super::reservation::end_by(draft, reservation);
        own = Some(reservation);
    } else if job.spec.reservation.is_some() {
        return None;
    }
    let by_limit = job.time_limit.seconds().map(|s| draft.now.plus_s(s));
    let end = by_limit.into_iter().chain(end_by).min();
    let end = end.unwrap_or(Timestamp(i64::MAX));
    let flex = own.is_some_and(|r| r.flags.has(Flags::FLEX));
    let above = own.is_some_and(Reservation::overlaps_others);
    let free = alloc.nodes.iter().all(|share| {
        let cpus = draft.node(share.node).map_or(0, |n| n.config.cpus);
        let inside = own.and_then(|r| r.cpus_on(share.node, cpus));
        let fits = own.is_none() || flex || inside.is_some_and(|c| c.is_superset(&share.cpus));
        fits && all.on_node(share.node).all(|other| {
            above
                || own.is_some_and(|r| r.name == other.name)
                || !other.meets(draft.now, draft.now, end)
                || other
                    .cpus_on(share.node, cpus)
                    .is_none_or(|c| !c.intersects(&share.cpus))
        })
    });
    free.then_some(end_by)
}

/// Whether the allocation is one that the job may have now.
fn fits(draft: &Draft<'_>, job: &Job, alloc: &Allocation) -> bool {
    let state = draft.state;
    if alloc.nodes.is_empty() || !job.spec.partitions.contains(&alloc.partition) {
        return false;
    }
    let position = state
        .partitions
        .iter()
        .position(|p| p.name == alloc.partition);
    let Some(position) = position else {
        return false;
    };
    match state.partitions[position].state {
        PartitionState::Up | PartitionState::Drain => {}
        PartitionState::Down | PartitionState::Inactive => return false,
    }
    let mut seen = BTreeSet::new();
    alloc.nodes.iter().all(|share| {
        let in_partition = state
            .partitions_of
            .get(share.node.0 as usize)
            .is_some_and(|of| of.contains(&position));
        let node = draft.node(share.node);
        in_partition
            && seen.insert(share.node)
            && node.is_some_and(|node| share_fits(draft, node, share, alloc.exclusive))
    })
}

fn share_fits(draft: &Draft<'_>, node: &Node, share: &NodeShare, exclusive: bool) -> bool {
    if !node.is_usable() || node.exclusive || (exclusive && !node.jobs.is_empty()) {
        return false;
    }
    if share.cpus.is_empty() || !node.free_cpus.is_superset(&share.cpus) {
        return false;
    }
    let counts_memory = draft
        .state
        .config
        .as_ref()
        .is_some_and(|c| c.memory_is_consumable);
    if counts_memory && share.memory_mib > node.unheld_mib() {
        return false;
    }
    let mut asked: Vec<crate::cpuset::CpuSet> = node.used_gres.clone();
    share.gres.iter().all(|gres| {
        let Some(slot) = node.gres_slot(gres) else {
            return false;
        };
        let count = node.config.gres[slot].count;
        let Some(used) = asked.get_mut(slot) else {
            return false;
        };
        let free = !used.intersects(&gres.ids) && gres.ids.iter().all(|i| u64::from(i) < count);
        used.union_with(&gres.ids);
        free
    })
}
