//! `--test-only`, `--immediate`: when and where one job would start, without queueing it.

use crate::demand::Demand;
use crate::fleet::Fleet;
use crate::ground::{Holds, Live, end_after};
use crate::outlook::Outlook;
use crate::pass::allocate;
use crate::place::{Pick, Placement, choose};
use crate::planned::PlannedEnds;
use crate::queue::{feasible, partitions_of};
use crate::tenants::Ends;
use muster_core::job::{Allocation, Reason};
use muster_core::refusal::{Refusal, RefusalCode};
use muster_core::spec::JobSpec;
use muster_core::state::State;
use muster_core::time::{TimeLimit, Timestamp};
use std::cell::Cell;
use std::collections::BTreeSet;

/// What is assumed of jobs without a limit.
const ENDLESS_S: u64 = 365 * 86_400;

pub(crate) fn would_start(
    state: &State,
    spec: &JobSpec,
    now: Timestamp,
) -> Result<(Timestamp, Allocation), Refusal> {
    // Nodes are read afresh: this is asked rarely, and answers must not depend on a plan not yet committed.
    let mut fleet = Fleet::new(state);
    fleet.now = now;
    let default: Vec<String> = state
        .partitions
        .iter()
        .filter(|p| p.default)
        .map(|p| p.name.clone())
        .take(1)
        .collect();
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
        let limit = spec
            .time_limit
            .or(part.config.default_time)
            .unwrap_or(part.config.max_time);
        let demand = match feasible(&spec.ask, limit, &fleet, part) {
            Ok(demand) => demand,
            Err(reason) => {
                refusal = refusal_for(reason, name, limit);
                continue;
            }
        };
        let ground = Live {
            fleet: &fleet,
            part,
            holds: &holds,
            closed: &[],
            end: end_after(now, demand.length_ms),
            latest: end_after(now, demand.length_ms),
            narrowed: Cell::new(false),
            reserved: Cell::new(None),
            visited: Cell::new(0),
        };
        let switches = demand.switches.map(|(most, _)| most);
        let found = match choose(&demand, &fleet, part, &ground, switches) {
            Placement::Here(picks) => Some((now, picks)),
            other => {
                let waited = (other == Placement::Scattered).then_some(now);
                let outlook = Outlook::new(&demand, &fleet, part, ends);
                let none = BTreeSet::new();
                outlook.earliest(&demand, (&fleet, part), (&holds, &none), now, waited)
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
    Ok((
        at,
        allocate(&mut fleet, part, &demand, &picks, |_, _, _| {}),
    ))
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
