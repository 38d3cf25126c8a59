//! The scheduler's plan. Each start is checked again against the state as the starts before it leave it; one that
//! does not fit any more is dropped alone.

mod together;

use super::draft::Draft;
use super::partition_access::is_within;
use super::{power, turns};
use crate::event::{Event, JobChange};
use crate::policy::limits::{amounts_to_start, checks_starts, note_counts};
use crate::policy::mcs::{labels_agree, node_label};
use crate::state::{DisplayUpdate, LicenseSource};
use muster_model::command::{Plan, PlannedExpectation, PlannedReason, PlannedStart};
use muster_model::config::PartitionState;
use muster_model::ids::{Attempt, JobId, StepNo};
use muster_model::job::{Allocation, ArrayRole, GresShare, Job, MILLION, NodeShare, Step};
use muster_model::licenses::LicenseCount;
use muster_model::node::Node;
use muster_model::reservation::{Flags, Reservation, RunWindow};
use muster_model::spec::StdioSpec;
use muster_model::time::{TimeLimit, Timestamp};
use muster_model::{gpu_parts, hostlist, licenses};
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Starts what can be started and takes note of the rest.
pub(super) fn commit(draft: &mut Draft<'_>, plan: Plan) {
    for planned in &plan.preemptions {
        super::preempt::preempt(draft, planned);
    }
    let mut starts = plan.starts.into_iter().enumerate().peekable();
    while let Some((place, first)) = starts.next() {
        let het = |planned: &PlannedStart| draft.job(planned.job).and_then(|job| job.het);
        let Some(part) = het(&first) else {
            let shorter = plan.limits.iter().find(|shorter| shorter.place == place);
            start(draft, first, shorter.map(|shorter| shorter.limit));
            continue;
        };
        let same = |planned: &PlannedStart| het(planned).is_some_and(|p| p.leader == part.leader);
        let mut together = vec![first];
        while let Some((_, next)) = starts.next_if(|(_, next)| same(next)) {
            together.push(next);
        }
        together::start(draft, part, together);
    }
    super::preempt::undo_in_vain(draft, &plan.preemptions);
    for id in &plan.switch_waits {
        let waits = |job: &Job| job.is_startable() && job.switch_wait_since.is_none();
        if draft.job(*id).is_some_and(waits) {
            draft.change(*id, JobChange::SwitchWait);
        }
    }
    for PlannedReason { job: id, reason } in &plan.reasons {
        if draft
            .job(*id)
            .is_some_and(|j| j.is_startable() && j.reason != *reason)
        {
            draft.note(DisplayUpdate::Reason(*id, *reason));
        }
    }
    for PlannedExpectation {
        job: id,
        start: time,
    } in &plan.expected
    {
        let known = draft.job(*id).filter(|job| job.is_startable());
        if known.is_some_and(|job| job.expected_start != Some(*time)) {
            draft.note(DisplayUpdate::Expected(*id, Some(*time)));
        }
    }
}

/// Starts a job if it can have its planned allocation, with a shorter time limit if the plan has one.
fn start(draft: &mut Draft<'_>, planned: PlannedStart, shorter: Option<TimeLimit>) {
    let Some(job) = draft.job(planned.job) else {
        return;
    };
    if !job.is_startable() || !throttle_allows(draft, job) || !fits(draft, job, &planned.alloc) {
        return;
    }
    // Its limit may have been made shorter than the least that it wanted.
    let least = job.spec.time_min.unwrap_or(job.time_limit);
    let limit = shorter.unwrap_or(job.time_limit);
    if limit < least.min(job.time_limit)
        || reservations_allow(draft, job, &planned.alloc, limit).is_none()
    {
        return;
    }
    if !counts_allow(draft, &[(job, &planned.alloc)]) {
        return;
    }
    let is_array = matches!(job.array, ArrayRole::Pending { .. });
    let id = if is_array {
        let Some(index) = draft.first_in_record(planned.job) else {
            return;
        };
        draft.split_task(planned.job, index)
    } else {
        planned.job
    };
    if let Some(limit) = shorter {
        draft.change(id, JobChange::TimeLimit(limit));
    }
    begin(draft, id, planned.alloc);
}

/// The minutes that a job has until its `--deadline`, the last one begun, where they are less than its limit: it is the deadline
/// that ends it.
fn limit_by_deadline(job: &Job, now: Timestamp) -> Option<TimeLimit> {
    let left_s = job.spec.deadline?.unix_s().saturating_sub(now.unix_s());
    let left_s = u64::try_from(left_s).unwrap_or(0);
    let minutes = u32::try_from(left_s.div_ceil(60))
        .unwrap_or(u32::MAX)
        .max(1);
    let limit = TimeLimit::Minutes(minutes);
    (limit < job.time_limit).then_some(limit)
}

/// The job gets its planned allocation; all checks are passed.
pub(super) fn begin(draft: &mut Draft<'_>, id: JobId, alloc: Allocation) {
    let now = draft.now;
    if let Some(limit) = draft.job(id).and_then(|job| limit_by_deadline(job, now)) {
        draft.change(id, JobChange::TimeLimit(limit));
    }
    let Some(job) = draft.job(id) else {
        return;
    };
    let end_by = reservations_allow(draft, job, &alloc, job.time_limit).flatten();
    let usage_factor_millionths = draft.state.usage_factor_millionths(job);
    let attempt = Attempt(job.attempt.0.saturating_add(1));
    let at = draft.now;
    let config = draft.state.config.as_ref();
    let prolog = config.is_some_and(|config| config.prolog_slurmctld);
    let asleep = (alloc.nodes.iter()).any(|s| power::sleeps(draft, s.node));
    let (state, scale) = (draft.state, draft.scale());
    let priority = scale.map(|scale| scale.priority_in(state, job, &alloc.partition));
    let mut alloc = Allocation {
        end_by,
        usage_factor_millionths,
        ..alloc
    };
    note_counts(state, job, &mut alloc);
    draft.emit(Event::JobStarted {
        id,
        attempt,
        at,
        priority,
        configuring: prolog || asleep,
        alloc: Arc::new(alloc),
    });
    if config.is_some_and(|config| config.extern_steps) {
        begin_extern_step(draft, id);
    }
    if asleep {
        power::wake(draft, id, prolog);
    }
    turns::began(draft, id);
}

/// The step for what comes to a job's nodes without srun. It has all of them, and ends with the job.
fn begin_extern_step(draft: &mut Draft<'_>, id: JobId) {
    let Some(alloc) = draft.job(id).and_then(|job| job.alloc.clone()) else {
        return;
    };
    let names: Vec<&str> = alloc.nodes.iter().map(|share| &*share.name).collect();
    let step = Arc::new(Step {
        step: StepNo::EXTERN,
        name: "extern".to_owned(),
        hostlist: hostlist::compress(&names),
        nodes: u32::try_from(names.len()).unwrap_or(u32::MAX),
        tasks: u32::try_from(names.len()).unwrap_or(u32::MAX),
        cpus: alloc.nodes.iter().map(|share| share.cpus.len()).sum(),
        memory_mib: alloc.nodes.iter().map(|share| share.memory_mib).sum(),
        start_time: draft.now,
        stdio: StdioSpec::default(),
        submit_line: String::new(),
        time_limit: None,
        distribution: None,
        maker: None,
        devices: GresShare::sums(alloc.nodes.iter().flat_map(|share| &share.gres)),
        device_ask: None,
    });
    draft.emit(Event::StepStarted { id, step });
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

/// Whether limits of associations and QOS, and licenses, let all of these start.
pub(super) fn counts_allow(draft: &Draft<'_>, starts: &[(&Job, &Allocation)]) -> bool {
    limits_allow(draft, starts) && licenses_suffice(draft, starts)
}

fn limits_allow(draft: &Draft<'_>, starts: &[(&Job, &Allocation)]) -> bool {
    let state = draft.state;
    if !checks_starts(state) {
        return true;
    }
    let mut more = draft.limits.clone();
    starts.iter().all(|(job, alloc)| {
        let tres = amounts_to_start(state, job, alloc);
        let limit = state.start_limit(job, &alloc.partition, &tres, &more, draft.now);
        let end = job.time_limit.seconds().map(|s| draft.now.plus_s(s));
        let factor = state.usage_factor_millionths(job).unwrap_or(MILLION);
        for scope in state.scopes_of(job, &alloc.partition) {
            let used = more.entry(scope).or_default();
            used.add(&tres, end, factor);
        }
        limit.is_none()
    })
}

/// Whether each gets the licenses that it asks for, and these are there for all.
fn licenses_suffice(draft: &Draft<'_>, starts: &[(&Job, &Allocation)]) -> bool {
    let mut taken = draft.licenses.clone();
    starts.iter().all(|(job, alloc)| {
        let Some(text) = &job.spec.licenses else {
            return alloc.licenses.is_empty();
        };
        let asked = licenses::parse_ask(text).unwrap_or_default();
        let end = job.time_limit.seconds().map(|s| draft.now.plus_s(s));
        let window = RunWindow::from_now(draft.now, end.unwrap_or(Timestamp(i64::MAX)));
        let reservation = alloc.reservation.as_deref();
        asked.contains(&alloc.licenses)
            && alloc.licenses.iter().all(|LicenseCount { name, count }| {
                let pool = draft.state.license_pool(name, reservation);
                let taken = taken.entry(LicenseSource::new(name, pool)).or_default();
                *taken = taken.saturating_add(*count);
                let left = draft.state.licenses_left(name, reservation, window);
                left >= i64::from(*taken)
            })
    })
}

/// Whether no reservation has what the job would get; when its own one ends it.
pub(super) fn reservations_allow(
    draft: &Draft<'_>,
    job: &Job,
    alloc: &Allocation,
    limit: TimeLimit,
) -> Option<Option<Timestamp>> {
    let all = &draft.state.reservations;
    if all.is_empty() && alloc.reservation.is_none() {
        return Some(None);
    }
    let mut end_by = None;
    let mut own = None;
    if let Some(name) = &alloc.reservation {
        let reservation = all.get(name).filter(|r| r.is_open())?;
        let (owner, accounts) = (&job.spec.owner, &draft.state.accounts);
        let asked = job.spec.reservations().any(|n| n == name)
            && reservation.still_admits(accounts, &owner.user, job.spec.account_name());
        let admitted = || {
            reservation.admits(
                accounts,
                &owner.user,
                &[&owner.group],
                job.spec.account_name(),
            )
        };
        let drawn_in = || reservation.flags.has(Flags::MAGNETIC) && admitted();
        if !(asked || drawn_in()) {
            return None;
        }
        end_by = super::reservation::end_by(draft, reservation);
        own = Some(reservation);
    } else if job.spec.reservation.is_some() {
        return None;
    }
    let by_limit = limit.seconds().map(|s| draft.now.plus_s(s));
    let end = by_limit.into_iter().chain(end_by).min();
    let end = end.unwrap_or(Timestamp(i64::MAX));
    let anywhere = Flags::FLEX.with(Flags::ANY_NODES);
    let flex = own.is_some_and(|r| r.flags.has(anywhere));
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
    fits_on(draft, job, alloc, |share| {
        let node = draft.node(share.node);
        node.is_some_and(|node| share_fits(draft, job, node, share, alloc))
    })
}

/// As above, on nodes that `node_fits` knows.
pub(super) fn fits_on(
    draft: &Draft<'_>,
    job: &Job,
    alloc: &Allocation,
    node_fits: impl Fn(&NodeShare) -> bool,
) -> bool {
    let state = draft.state;
    if alloc.nodes.is_empty()
        || !job.spec.partitions.contains(&alloc.partition)
        || !is_in_range(job, alloc)
    {
        return false;
    }
    let position = state
        .partitions
        .iter()
        .position(|p| p.name == alloc.partition);
    let Some(position) = position else {
        return false;
    };
    let partition = &state.partitions[position];
    match partition.effective_state() {
        PartitionState::Up | PartitionState::Drain => {}
        PartitionState::Down | PartitionState::Inactive => return false,
    }
    if super::barred(state, &job.spec, partition).is_some() {
        return false;
    }
    let in_partition = |share: &NodeShare| {
        let of = state.partitions_of.get(share.node.0 as usize);
        of.is_some_and(|of| of.contains(&position))
    };
    let most = super::max_memory(state.config.as_deref(), partition);
    are_distinct(&alloc.nodes)
        && (alloc.nodes.iter()).all(|share| {
            is_within(most, share.memory_mib, share.cpus.len())
                && in_partition(share)
                && node_fits(share)
        })
}

/// Whether a job that leaves the number of its tasks open gets one of those that will do.
fn is_in_range(job: &Job, alloc: &Allocation) -> bool {
    let range = job.spec.ask.task_range.as_ref();
    range.is_none_or(|range| {
        let tasks = alloc.nodes.iter().map(|share| u64::from(share.tasks)).sum();
        u64::from(alloc.ntasks) == tasks && range.admits(alloc.ntasks)
    })
}

/// Whether no node is there twice. They are in order, but for the first of some jobs.
fn are_distinct(shares: &[NodeShare]) -> bool {
    if shares.is_sorted_by(|a, b| a.node < b.node) {
        return true;
    }
    let mut seen = BTreeSet::new();
    shares.iter().all(|share| seen.insert(share.node))
}

/// Whether a node has this share free for the job.
pub(super) fn share_fits(
    draft: &Draft<'_>,
    job: &Job,
    node: &Node,
    share: &NodeShare,
    alloc: &Allocation,
) -> bool {
    if !node.is_usable() || share.cpus.is_empty() || !users_agree(draft, job, node, alloc) {
        return false;
    }
    let label = alloc.mcs_label.as_deref();
    let state = draft.state;
    if label != node_label(state, &job.spec) || !labels_agree(state, node, label) {
        return false;
    }
    // A suspended job does not use the node.
    let others = || {
        let jobs = node.jobs.iter().filter_map(|id| draft.job(*id));
        jobs.filter(|job| !job.cpus_released_by_preemption)
    };
    if node.exclusive || (alloc.exclusive && others().next().is_some()) {
        return false;
    }
    let config = draft.state.config.as_ref();
    let mut free = Cow::Borrowed(&node.free_cpus);
    let ask = &job.spec.ask;
    if (ask.core_spec.is_some() || ask.thread_spec.is_some())
        && config.is_some_and(|c| c.spec_by_job)
        && alloc.exclusive
    {
        // The job chooses the CPUs that the system keeps there.
        free.to_mut().union_with(&node.config.spec_cpus);
    }
    if !free.is_superset(&share.cpus) && !may_share(node, share, alloc, others()) {
        return false;
    }
    let counts_memory = config.is_some_and(|c| c.memory_is_consumable);
    if counts_memory && share.memory_mib > node.unheld_mib() {
        return false;
    }
    let mut asked: Vec<muster_model::cpuset::CpuSet> = node.used_gres.clone();
    let entries: Vec<gpu_parts::GresEntry<'_>> =
        node.config.gres.iter().map(|g| g.entry()).collect();
    share.gres.iter().all(|gres| {
        let Some(slot) = node.gres_slot(gres) else {
            return false;
        };
        let entry = &node.config.gres[slot];
        let exist = gres.ids.iter().all(|i| u64::from(i) < entry.count);
        if entry.no_consume {
            return exist;
        }
        let taken = gpu_parts::unavailable(&entries, &asked);
        let free = !taken
            .get(slot)
            .is_none_or(|used| used.intersects(&gres.ids));
        drop(taken);
        asked[slot].union_with(&gres.ids);
        free && exist
    })
}

/// Whether all who use CPUs of the share let others do so, too, and are not too many yet.
fn may_share<'j>(
    node: &Node,
    share: &NodeShare,
    alloc: &Allocation,
    others: impl Iterator<Item = &'j Job>,
) -> bool {
    if alloc.sharers < 2 {
        return false;
    }
    let full = node.shared_cpus.get(alloc.sharers as usize - 2);
    if full.is_some_and(|full| full.intersects(&share.cpus)) {
        return false;
    }
    let known = node.config.job_cpus();
    let mut used = share.cpus.clone();
    used.subtract(&node.free_cpus);
    let lets = |other: &Job| {
        let here = |(s, a): (&NodeShare, &Allocation)| {
            s.node != node.idx
                || !s.cpus.intersects(&used)
                || (a.sharers > 0 && a.partition == alloc.partition)
        };
        other.held().all(here)
    };
    known.is_superset(&share.cpus) && { others }.all(lets)
}

/// Whether the users of a node may be on it together.
fn users_agree(draft: &Draft<'_>, job: &Job, node: &Node, alloc: &Allocation) -> bool {
    let own = job.spec.owner.uid;
    let of_own = |id: &JobId| draft.job(*id).is_none_or(|j| j.spec.owner.uid == own);
    node.only_user.is_none_or(|uid| uid == own)
        && (alloc.only_user.is_none() || node.jobs.iter().all(of_own))
}
