//! The demand of a shape in a partition, and whether the partition could ever satisfy it.

use crate::demand::{Demand, PartitionTerms};
use crate::nodes::fleet::{Fleet, PartView};
use crate::nodes::room::{Room, SharingKey};
use crate::place::choose;
use crate::place::node_source::EmptyNodes;
use muster_core::decide::within_memory_limit;
use muster_model::config::PartitionState;
use muster_model::job::Reason;
use muster_model::spec::{JobSpec, ResourceAsk};
use muster_model::time::TimeLimit;

/// Whether a node with that much room may take part in a job.
pub(super) fn may_use(demand: &Demand, fleet: &Fleet, node: u32, room: &Room) -> bool {
    let class = fleet.nodes[node as usize].class;
    let admitted = |a: usize| demand.admits(a, class, node);
    (0..demand.alternatives.len()).any(admitted)
        && demand.tasks_in(&fleet.classes[class as usize], room) > 0
}

/// Assumed run time in milliseconds of jobs with this limit and prediction.
pub(super) fn planned_ms(limit: TimeLimit, predicted_s: Option<u32>) -> Option<u64> {
    let limit_s = limit.seconds()?;
    let planned_s = predicted_s.map_or(limit_s, |s| limit_s.min(u64::from(s)));
    Some(planned_s.saturating_mul(1000))
}

/// The partitions a job may run in, in its order.
pub(crate) fn partitions_of<'a>(spec: &'a JobSpec, fallback: &'a [String]) -> &'a [String] {
    if spec.partitions.is_empty() {
        fallback
    } else {
        &spec.partitions
    }
}

pub(super) fn least_cpus(demand: &Result<Demand, Reason>, fleet: &Fleet) -> u32 {
    let Ok(demand) = demand else { return 0 };
    (0..demand.alternatives.len())
        .map(|a| demand.floor(a, &fleet.classes, demand.tasks_least()).0)
        .min()
        .unwrap_or(0)
}

/// The demand of a shape in a partition.
///
/// # Errors
/// The reason why the shape cannot run there as the partition and its nodes are, whatever else
/// runs.
pub(crate) fn feasible(
    ask: &ResourceAsk,
    terms: PartitionTerms,
    fleet: &Fleet,
    part: &PartView,
    key: SharingKey,
) -> Result<Demand, Reason> {
    if part.own.as_ref().is_some_and(|own| !own.open) {
        return Err(Reason::Reservation);
    }
    match part.config.effective_state() {
        PartitionState::Up | PartitionState::Drain => {}
        PartitionState::Down => return Err(Reason::PartitionDown),
        PartitionState::Inactive => return Err(Reason::PartitionInactive),
    }
    let exempt = terms.exempt;
    if terms.limit > exempt.max_time_in(&part.config) {
        return Err(Reason::PartitionTimeLimit);
    }
    if !within_memory_limit(fleet.config.as_deref(), &part.config, ask) {
        return Err(Reason::MaxMemPerLimit);
    }
    let demand = Demand::new(ask, terms, fleet, part, key)?;
    let fewest = exempt.min_nodes_in(&part.config);
    if demand.min_nodes > demand.part_most_nodes || ask.max_nodes.is_some_and(|most| most < fewest)
    {
        return Err(Reason::PartitionNodeLimit);
    }
    if demand.min_nodes as usize > part.order.len() {
        return Err(Reason::PartitionConfig);
    }
    let on = |demand: &Demand, usable_only| {
        choose(
            demand,
            fleet,
            part,
            &EmptyNodes {
                fleet,
                part,
                usable_only,
            },
            None,
        )
        .picks()
    };
    if on(&demand, true).is_some() {
        return Ok(demand);
    }
    if on(&demand, false).is_none() {
        if on(&demand.with_any_memory(), false).is_some() {
            return Err(Reason::MaxMemPerLimit);
        }
        let class = |node: &u32| &fleet.classes[fleet.nodes[*node as usize].class as usize];
        let cpus = part.order.iter().map(|node| u64::from(class(node).cpus));
        return Err(match cpus.sum::<u64>() < u64::from(ask.min_cpus()) {
            // The partition is only too small.
            true => Reason::PartitionConfig,
            false => Reason::BadConstraints,
        });
    }
    let down = |node: &u32| !fleet.nodes[*node as usize].room.usable;
    Err(if demand.required.iter().any(down) {
        Reason::ReqNodeNotAvail
    } else {
        Reason::NodesUnavailable
    })
}
