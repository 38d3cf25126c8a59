//! Components of a heterogeneous job start together, or not at all.

use super::super::draft::Draft;
use crate::apply;
use muster_model::command::PlannedStart;
use muster_model::het::HetPlace;
use muster_model::ids::NodeIdx;
use muster_model::job::{Allocation, Job};
use muster_model::node::Node;
use std::collections::BTreeMap;

/// Starts all components of a heterogeneous job, or none if one of them cannot have its planned allocation.
pub(super) fn start(draft: &mut Draft<'_>, place: HetPlace, mut planned: Vec<PlannedStart>) {
    let all = place.ids().all(|id| planned.iter().any(|p| p.job == id));
    if !all || planned.len() != place.size as usize {
        return;
    }
    // Nodes as the components before leave them: several may share one.
    let mut nodes: BTreeMap<NodeIdx, Node> = BTreeMap::new();
    for start in &planned {
        let Some(job) = draft.job(start.job).filter(|job| job.is_startable()) else {
            return;
        };
        for share in &start.alloc.nodes {
            let Some(known) = draft.node(share.node) else {
                return;
            };
            nodes.entry(share.node).or_insert_with(|| known.clone());
        }
        let fits = super::fits_on(draft, job, &start.alloc, |share| {
            nodes
                .get(&share.node)
                .is_some_and(|node| super::share_fits(draft, job, node, share, &start.alloc))
        });
        if !fits || super::reservations_allow(draft, job, &start.alloc, job.time_limit).is_none() {
            return;
        }
        for share in &start.alloc.nodes {
            if let Some(node) = nodes.get_mut(&share.node) {
                apply::node::take(node, start.job, share, &start.alloc);
            }
        }
    }
    let jobs = planned.iter().map(|p| Some((draft.job(p.job)?, &p.alloc)));
    let jobs: Option<Vec<(&Job, &Allocation)>> = jobs.collect();
    if !jobs.is_some_and(|jobs| super::counts_allow(draft, &jobs)) {
        return;
    }
    // The leader last: when its script begins, the other components are there.
    for id in place.ids().rev() {
        if let Some(at) = planned.iter().position(|p| p.job == id) {
            super::begin(draft, id, planned.swap_remove(at).alloc);
        }
    }
}
