//! `--test-only`, `--immediate`: when and where one job would start, without queueing it.

use crate::backfill::outlook::Outlook;
use crate::backfill::together::{Member, MemberLane, earliest_together};
use crate::demand::Demand;
use crate::demand::licenses::{Licenses, Span, asked};
use crate::demand::pick::Pick;
use crate::nodes::allocations::Ends;
use crate::nodes::fleet::{Fleet, PartView};
use crate::nodes::planned::PlannedEnds;
use crate::pass::starts::allocate;
use crate::place::holds::Holds;
use crate::place::node_source::{CurrentNodes, choose_now, end_after};
use crate::place::{Placement, Shortfall};
use crate::queue::{feasible, partitions_of};
use muster_core::state::State;
use muster_model::ids::JobId;
use muster_model::job::{Allocation, Reason};
use muster_model::refusal::{Refusal, RefusalCode};
use muster_model::spec::{JobSpec, Sharing};
use muster_model::time::{TimeLimit, Timestamp};
use std::cell::Cell;
use std::collections::BTreeSet;

/// The assumed length of jobs without a limit.
const ENDLESS_S: u64 = 365 * 86_400;

/// The default partition's name.
fn default_partition(state: &State) -> Vec<String> {
    let default = state.partitions.iter().filter(|p| p.default);
    default.map(|p| p.name.clone()).take(1).collect()
}

fn completing(state: &State) -> BTreeSet<JobId> {
    (state.active.iter())
        .filter(|id| state.jobs.get(id).is_some_and(|j| j.completing))
        .copied()
        .collect()
}

/// The limit that a job has in a partition.
fn limit_in(spec: &JobSpec, part: &PartView) -> TimeLimit {
    spec.time_limit
        .or(part.config.default_time)
        .unwrap_or(part.config.max_time)
}

/// When and where all components of a heterogeneous job would start.
pub(crate) fn would_start_together(
    state: &State,
    specs: &[JobSpec],
    now: Timestamp,
) -> Result<(Timestamp, Vec<Allocation>), Refusal> {
    let mut fleet = Fleet::new(state);
    fleet.now = now;
    fleet.settle(state, &PlannedEnds::default());
    let default = default_partition(state);
    let mut demands: Vec<Vec<(u32, Demand)>> = Vec::with_capacity(specs.len());
    for spec in specs {
        let mut lanes = Vec::new();
        let mut refusal = Refusal::from(RefusalCode::InvalidPartition);
        for name in partitions_of(spec, &default) {
            let Some(&number) = fleet.part_by_name.get(name) else {
                continue;
            };
            let part = &fleet.parts[number as usize];
            let limit = limit_in(spec, part);
            match feasible(&spec.ask, limit, &fleet, part, Some(spec.owner.uid)) {
                Ok(demand) => lanes.push((number, demand)),
                Err(reason) => refusal = refusal_for(reason, name, limit),
            }
        }
        if lanes.is_empty() {
            return Err(refusal);
        }
        demands.push(lanes);
    }
    let members: Vec<Member<'_>> = demands
        .iter()
        .map(|lanes| Member {
            lanes: lanes
                .iter()
                .map(|(part, demand)| MemberLane {
                    lane: 0,
                    part: *part,
                    demand,
                })
                .collect(),
            waited: None,
        })
        .collect();
    let ends = (Ends::Limits, Some(now.plus_s(ENDLESS_S)));
    let mut holds = Holds::default();
    let found = earliest_together(&members, &fleet, &mut holds, ends, now);
    let Some((at, places)) = found else {
        let text = "the components never fit beside each other";
        return Err(Refusal::new(RefusalCode::NodeConfigUnavailable, text));
    };
    if at > now {
        fleet.clear();
    }
    let allocs = demands.iter().zip(places).map(|(lanes, placed)| {
        let (part, demand) = &lanes[placed.at];
        let latest = end_after(fleet.now, demand.length_ms);
        allocate(
            &mut fleet,
            (*part, latest),
            demand,
            &placed.picks,
            |_, _, _| {},
        )
    });
    Ok((at, allocs.collect()))
}

pub(crate) fn would_start(
    state: &State,
    spec: &JobSpec,
    now: Timestamp,
) -> Result<(Timestamp, Allocation), Refusal> {
    // Nodes are read afresh: this is asked rarely, and answers must not depend on a plan not yet committed.
    let mut fleet = Fleet::new(state);
    fleet.now = now;
    if spec.ask.sharing == Sharing::ExclusiveUser && !fleet.by_user {
        fleet.by_user = true;
        for (_, node) in state.nodes.iter().zip(0..) {
            fleet.sync(state, node);
        }
    }
    let default = default_partition(state);
    let completing = completing(state);
    fleet.settle(state, &PlannedEnds::default());
    let ends = (Ends::Limits, Some(now.plus_s(ENDLESS_S)));
    let holds = Holds::default();
    let mut refusal = Refusal::from(RefusalCode::InvalidPartition);
    let mut best: Option<(Timestamp, u32, Demand, Vec<Pick>)> = None;
    for name in partitions_of(spec, &default) {
        let Some(&number) = fleet.part_by_name.get(name) else {
            refusal = Refusal::new(RefusalCode::InvalidPartition, name.clone());
            continue;
        };
        let part = &fleet.parts[number as usize];
        let limit = limit_in(spec, part);
        let demand = match feasible(&spec.ask, limit, &fleet, part, Some(spec.owner.uid)) {
            Ok(demand) => demand,
            Err(reason) => {
                refusal = refusal_for(reason, name, limit);
                continue;
            }
        };
        let mut source = CurrentNodes {
            fleet: &fleet,
            part,
            holds: &holds,
            closed: &[],
            end: end_after(now, demand.length_ms),
            latest: end_after(now, demand.length_ms),
            narrowed: Cell::new(false),
            reserved: Cell::new(None),
            visited: Cell::new(0),
            shared: false,
        };
        let switches = demand.switches.map(|(most, _)| most);
        let requested = asked(spec.licenses.as_deref());
        let span = Span {
            state,
            reservation: None,
            now,
            end: end_after(now, demand.length_ms),
        };
        let licensed = match requested.is_empty() {
            true => Some(now),
            false => Licenses::default()
                .earliest(&requested, span, &completing)
                .map(|(at, _)| at),
        };
        let Some(from) = licensed else {
            let text = "no running job's end sets its licenses free";
            refusal = Refusal::new(RefusalCode::InvalidLicense, text);
            continue;
        };
        let placement = match from > now {
            true => Placement::Nowhere(Shortfall::ANYTHING),
            false => choose_now(&demand, &mut source, switches),
        };
        let found = match placement {
            Placement::Here(picks) => Some((now, picks)),
            other => {
                let waited = (other == Placement::Scattered).then_some(now);
                let outlook = Outlook::new(&demand, &fleet, part, ends);
                let (none, times) = (BTreeSet::new(), (now, Some(from).filter(|t| *t > now)));
                outlook.earliest(&demand, (&fleet, part), (&holds, &none), times, waited)
            }
        };
        match found {
            Some((at, picks)) if best.as_ref().is_none_or(|(t, ..)| at < *t) => {
                best = Some((at, number, demand, picks));
            }
            Some(_) => {}
            None => {
                let text = "no running job's end makes room for it";
                refusal = Refusal::new(RefusalCode::NodeConfigUnavailable, text);
            }
        }
    }
    let Some((at, part, demand, picks)) = best else {
        return Err(refusal);
    };
    // For a later time the shares say how much, not which CPUs: those are chosen on an empty node.
    if at > now {
        fleet.clear();
    }
    let on = (part, end_after(fleet.now, demand.length_ms));
    Ok((at, allocate(&mut fleet, on, &demand, &picks, |_, _, _| {})))
}

fn refusal_for(reason: Reason, partition: &str, limit: TimeLimit) -> Refusal {
    match reason {
        Reason::PartitionDown | Reason::PartitionInactive => Refusal::new(
            RefusalCode::PartitionNotAvailable,
            format!("partition {partition} is down or inactive"),
        ),
        Reason::PartitionTimeLimit => Refusal::new(
            RefusalCode::InvalidTimeLimit,
            format!("{limit:?} is more than MaxTime of partition {partition}"),
        ),
        Reason::MaxMemPerLimit => Refusal::new(
            RefusalCode::InvalidMemory,
            format!("more memory than MaxMemPerNode or MaxMemPerCPU of partition {partition}"),
        ),
        Reason::PartitionNodeLimit => Refusal::new(
            RefusalCode::InvalidNodeCount,
            format!("outside MinNodes and MaxNodes of partition {partition}"),
        ),
        Reason::ReqNodeNotAvail | Reason::NodesUnavailable => Refusal::new(
            RefusalCode::NodeConfigUnavailable,
            format!("nodes of partition {partition} that could run it are down or drained"),
        ),
        _ => Refusal::new(
            RefusalCode::NodeConfigUnavailable,
            format!("no nodes of partition {partition} can satisfy it"),
        ),
    }
}
