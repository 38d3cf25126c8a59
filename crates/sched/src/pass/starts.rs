//! Starting a job in a plan: it takes nodes, licenses and a part of its limits.

use super::{Pass, reservations};
use crate::backfill::gains::open_cpus;
use crate::demand::Demand;
use crate::demand::licenses::Licenses;
use crate::demand::licenses::Span;
use crate::demand::pick::Pick;
use crate::nodes::allocations::JobEnds;
use crate::nodes::class::{GresCount, NOWHERE, NodeClass};
use crate::nodes::fleet::Fleet;
use crate::nodes::node_map::NumberMap;
use crate::nodes::room::Want;
use crate::place::node_source::end_after;
use crate::queue::Lane;
use muster_core::policy::limits::{
    add_billing, amounts_to_start, checks_starts, device_names, license_name,
};
use muster_core::state::State;
use muster_core::state::limit_use::CurrentUse;
use muster_model::account_limits::Scope;
use muster_model::account_limits::TresAmounts;
use muster_model::command::PlannedStart;
use muster_model::hostlist;
use muster_model::ids::JobId;
use muster_model::job::{Allocation, ArrayRole, Job, MILLION, Reason};
use muster_model::licenses::LicenseCount;
use muster_model::reservation::RunWindow;
use muster_model::time::Timestamp;
use std::collections::BTreeMap;

/// The limits of a pass apart from nodes.
#[derive(Debug, Default)]
pub(crate) struct Budget {
    /// Number of further tasks of an array that may start under its `%limit`.
    pub(super) of_arrays: NumberMap<JobId, u32>,
    /// Use of limits by the starts of this pass.
    pub(super) limit_use: BTreeMap<Scope, CurrentUse>,
    /// Licenses taken and held in this pass.
    pub(crate) licenses: Licenses,
}

impl Pass<'_> {
    /// Where and when a job of the lane would use licenses.
    pub(super) fn span<'b>(&'b self, lane: &Lane, demand: &Demand) -> Span<'b> {
        let own = self.s.fleet.parts[lane.part as usize].own.as_ref();
        Span {
            state: self.state,
            reservation: own.map(|own| {
                let blocks = &self.s.fleet.blocks;
                blocks.all[own.at as usize].record.name.as_str()
            }),
            now: self.now,
            end: end_after(self.now, demand.length_ms),
        }
    }
}

/// The limit that prevents a job from starting with these resources in that partition.
pub(super) fn limit_for(
    pass: &Pass<'_>,
    job: JobId,
    part: u32,
    tres: &TresAmounts,
) -> Option<Reason> {
    if !checks_starts(pass.state) {
        return None;
    }
    let name = &pass.s.fleet.parts[part as usize].config.name;
    let job = &pass.state.jobs[&job];
    let over = (pass.state).start_limit(job, name, tres, &pass.budget.limit_use, pass.now);
    over.map(|over| over.reason)
}

/// The limit that prevents a job from starting in that partition even with the minimum that it
/// requests.
pub(super) fn limit_for_minimum_request(pass: &Pass<'_>, job: JobId, part: u32) -> Option<Reason> {
    if !checks_starts(pass.state) {
        return None;
    }
    let ask = &pass.state.jobs[&job].spec.ask;
    let least = TresAmounts::from_iter([
        ("cpu", u64::from(ask.min_cpus())),
        ("node", u64::from(ask.min_nodes)),
    ]);
    limit_for(pass, job, part, &least)
}

/// The limit that prevents a job of the lane from starting on those nodes.
pub(super) fn limit_on(pass: &Pass<'_>, lane: u32, job: JobId, picks: &[Pick]) -> Option<Reason> {
    if !checks_starts(pass.state) {
        return None;
    }
    let lane = pass.s.queue.lane(lane);
    let demand = lane.demand.as_ref().ok()?;
    let (fleet, mut tres) = (&pass.s.fleet, BTreeMap::<String, u64>::new());
    let memory = fleet
        .config
        .as_ref()
        .is_some_and(|c| c.memory_is_consumable);
    for pick in picks {
        let class = &fleet.classes[fleet.nodes[pick.node as usize].class as usize];
        let want = demand.want(class, pick);
        let cpus = demand.cpus_counted(class, &want);
        *tres.entry("cpu".to_owned()).or_default() += u64::from(cpus);
        *tres.entry("mem".to_owned()).or_default() += if memory { want.mib } else { 0 };
        *tres.entry("node".to_owned()).or_default() += 1;
        for wanted in &want.gres {
            count_devices(class, wanted, &mut tres);
        }
    }
    if !lane.licenses.is_empty() {
        let span = pass.span(lane, demand);
        let licenses = pass.budget.licenses.to_be_had(&lane.licenses, span);
        for LicenseCount { name, count } in licenses.unwrap_or_default() {
            *tres.entry(license_name(&name)).or_default() += u64::from(count);
        }
    }
    let mut tres: TresAmounts = tres.into_iter().collect();
    let name = &fleet.parts[lane.part as usize].config.name;
    add_billing(pass.state, name, &mut tres);
    limit_for(pass, job, lane.part, &tres)
}

/// Counts the devices that a job gets on a node, as far as their types are known: the requested type, or for a
/// request without a type, as many of each type as the job may get.
fn count_devices(class: &NodeClass, wanted: &GresCount, tres: &mut BTreeMap<String, u64>) {
    let GresCount { name, kind, count } = wanted;
    for name in device_names(name, kind.as_deref()) {
        *tres.entry(name).or_default() += count;
    }
    if kind.is_some() {
        return;
    }
    let typed = class.gres.iter().filter(|of| of.name == *name);
    for of in typed.filter(|of| of.kind.is_some()) {
        for name in device_names(name, of.kind.as_deref()).skip(1) {
            *tres.entry(name).or_default() += of.count.min(*count);
        }
    }
}

pub(super) fn start(pass: &mut Pass<'_>, lane: u32, job: JobId, picks: &[Pick]) {
    let shorter = pass.plan.limits.last();
    let shorter = shorter.filter(|shorter| shorter.place == pass.plan.starts.len());
    let shorter = shorter.and_then(|shorter| shorter.limit.seconds());
    let shorter_ms = shorter.map(|s| s * 1000);
    let end = end_after(pass.now, shorter_ms.or_else(|| pass.length_ms(lane)));
    let (part, demand) = {
        let lane = pass.s.queue.lane(lane);
        (lane.part, &lane.demand)
    };
    let Ok(demand) = demand else { return };
    let view = pass.s.queue.lane(lane);
    let limit = end_after(pass.now, shorter_ms.or(demand.length_ms));
    let planned = end_after(pass.now, view.planned_ms).min(limit);
    let free = |fleet: &Fleet, node: u32| open_cpus(fleet, node);
    let before: Vec<u32> = picks
        .iter()
        .map(|pick| free(&pass.s.fleet, pick.node))
        .collect();
    let mut alloc = allocate(
        &mut pass.s.fleet,
        part,
        limit,
        demand,
        picks,
        |fleet, node, want| {
            pass.reservations.holds.take_spare(fleet, node, end, want);
        },
    );
    alloc.backfilled = pass.lists.parts[part as usize].head.is_some();
    count_start(pass, lane, job, &mut alloc);
    for (pick, before) in picks.iter().zip(before) {
        let taken = before - free(&pass.s.fleet, pick.node).min(before);
        for &part in &pass.s.fleet.nodes[pick.node as usize].parts {
            pass.s.queue.parts[part as usize].taken(pick.node, taken);
        }
    }
    let ends = JobEnds {
        job,
        planned,
        limit,
    };
    propose(pass, ends, alloc);
    took_its_turn(pass, job);
}

/// Adds a start to the plan, and the job to its nodes.
pub(super) fn propose(pass: &mut Pass<'_>, ends: JobEnds, alloc: Allocation) {
    let job = ends.job;
    for share in &alloc.nodes {
        pass.s.dirty_nodes.insert(share.node.0);
    }
    pass.s.fleet.propose_allocations(&alloc, ends);
    pass.plan.starts.push(PlannedStart { job, alloc });
    pass.again |= pass.lists.parts.iter().any(|p| p.head == Some(job));
}

/// Assigns licenses to a start, and counts the start towards limits.
pub(super) fn count_start(pass: &mut Pass<'_>, lane: u32, job: JobId, alloc: &mut Allocation) {
    let lane = pass.s.queue.lane(lane);
    let Ok(demand) = &lane.demand else { return };
    if !lane.licenses.is_empty() {
        let latest = end_after(pass.now, demand.length_ms);
        let span = pass.span(lane, demand);
        let licenses = pass.budget.licenses.to_be_had(&lane.licenses, span);
        let licenses = licenses.unwrap_or_default();
        let sources = span.sources(&licenses);
        pass.budget.licenses.take(&licenses, sources, latest);
        alloc.licenses = licenses;
    }
    if pass.state.keeps_limits() {
        let job = &pass.state.jobs[&job];
        let tres = amounts_to_start(pass.state, job, alloc);
        let end = demand.length_ms.map(|ms| pass.now.plus_ms(ms));
        let factor = pass.state.usage_factor_millionths(job).unwrap_or(MILLION);
        for scope in pass.state.scopes_of(job, &alloc.partition) {
            let used = pass.budget.limit_use.entry(scope).or_default();
            used.add(&tres, end, factor);
        }
    }
}

/// Blocks the lane until the use of the exceeded limit decreases.
pub(super) fn limited(pass: &mut Pass<'_>, lane: u32, job: JobId) {
    let part = pass.s.queue.lane(lane).part;
    let name = &pass.s.fleet.parts[part as usize].config.name;
    let mut scopes = pass.state.scopes_of(&pass.state.jobs[&job], name);
    scopes.retain(|scope| pass.state.is_limited(scope));
    pass.s.queue.limit(lane, scopes);
    if pass
        .s
        .queue
        .lane(lane)
        .cause()
        .is_some_and(State::is_limited_by_use)
    {
        pass.s.limited_by_use.insert(lane);
    }
}

/// Reduces the number of tasks of that record that this pass may still look at.
pub(super) fn took_its_turn(pass: &mut Pass<'_>, job: JobId) {
    if let Some(left) = pass.lists.left.get_mut(&job) {
        *left -= 1;
        if *left == 0 {
            reservations::drop_reservations_of(pass, job);
        }
    }
    if let Some((base, _)) = array_budget(pass.state, &pass.state.jobs[&job])
        && let Some(budget) = pass.budget.of_arrays.get_mut(&base)
    {
        *budget -= 1;
    }
}

/// Takes the picked nodes for a job that ends at `latest`.
pub(crate) fn allocate(
    fleet: &mut Fleet,
    part: u32,
    latest: Timestamp,
    demand: &crate::demand::Demand,
    picks: &[Pick],
    mut taken: impl FnMut(&Fleet, u32, &Want),
) -> Allocation {
    let mut alloc = Allocation {
        partition: fleet.parts[part as usize].config.name.clone(),
        reservation: fleet.parts[part as usize]
            .own
            .as_ref()
            .map(|own| fleet.blocks.all[own.at as usize].record.name.clone()),
        exclusive: demand.alone,
        sharers: demand.sharers,
        only_user: demand.key.user.filter(|_| demand.only_user),
        mcs_label: demand.key.label.as_deref().map(str::to_owned),
        ..Allocation::default()
    };
    // Most nodes of a job are equal and get the same number of tasks.
    let mut last: Option<(u32, &Pick, Want)> = None;
    let window = RunWindow::from_now(fleet.now, latest);
    alloc.nodes.reserve_exact(picks.len());
    for pick in picks {
        debug_assert_ne!(pick.node, NOWHERE);
        let class = fleet.nodes[pick.node as usize].class;
        let same = |(of, other, _): &(u32, &Pick, Want)| {
            (*of, other.tasks, other.share) == (class, pick.tasks, pick.share)
        };
        let (.., want) = match last.take().filter(same) {
            Some(known) => last.insert(known),
            None => {
                let want = demand.want(&fleet.classes[class as usize], pick);
                last.insert((class, pick, want))
            }
        };
        taken(fleet, pick.node, want);
        let share = fleet.take_allowed(pick.node, part, want, window);
        alloc.nodes.push(share);
        alloc.ntasks += pick.tasks;
    }
    if let Some(batch) = &demand.batch {
        // The first node whose class may run the batch script leads; if none may, the first node
        // leads.
        let class = |node: u32| fleet.nodes[node as usize].class as usize;
        let lead = alloc.nodes.iter().position(|s| batch[class(s.node.0)]);
        alloc.nodes[..=lead.unwrap_or(0)].rotate_right(1);
    }
    alloc.hostlist = match alloc.nodes.as_slice() {
        [one] => one.name.clone(),
        many => hostlist::compress(&many.iter().map(|n| n.name.as_str()).collect::<Vec<_>>()),
    };
    alloc
}

/// The array of a record, and the number of further tasks that may run, if the array has a limit.
pub(crate) fn array_budget(state: &State, job: &Job) -> Option<(JobId, u32)> {
    let base = match job.array {
        ArrayRole::None => return None,
        ArrayRole::Pending { .. } => job.id,
        ArrayRole::Task { base, .. } => base,
    };
    let info = state.arrays.get(&base)?;
    Some((base, info.throttle?.saturating_sub(info.running)))
}
