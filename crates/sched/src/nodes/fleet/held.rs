//! The allocations of jobs on the fleet's nodes, their ends, and the resources that are free after
//! some jobs have left.

use super::Fleet;
use crate::nodes::allocations::{
    ANY_MOMENT, EndAssumption, EndOnNode, JobEnds, NEVER, NodeAllocation, layers_of,
};
use crate::nodes::class::{NOWHERE, unavailable};
use crate::nodes::planned::PlannedEnds;
use crate::nodes::room::{Detail, Room};
use muster_core::state::State;
use muster_model::cpuset::CpuSet;
use muster_model::ids::JobId;
use muster_model::job::{Allocation, NodeShare};
use muster_model::time::Timestamp;
use std::collections::HashMap;

impl Fleet {
    /// Reads all jobs that hold nodes.
    pub(crate) fn settle(&mut self, state: &State, ends: &PlannedEnds) {
        for id in &state.active {
            let alloc = state.jobs.get(id).and_then(|job| job.alloc.as_ref());
            let nodes = alloc.iter().flat_map(|alloc| &alloc.nodes);
            let mut nodes: Vec<u32> = nodes.map(|share| share.node.0).collect();
            nodes.sort_unstable();
            self.set_allocation(state, ends, *id, &nodes);
        }
    }

    /// Reads again the shares of a job on these nodes, which are sorted, and its end.
    pub(crate) fn set_allocation(
        &mut self,
        state: &State,
        ends: &PlannedEnds,
        id: JobId,
        nodes: &[u32],
    ) {
        let job = state.jobs.get(&id);
        let Some((job, alloc)) = job.and_then(|job| Some((job, job.alloc.as_ref()?))) else {
            nodes
                .iter()
                .for_each(|&node| self.forget_allocation(node, id));
            return;
        };
        let limit = match state.limit_end(job) {
            _ if job.completing => ANY_MOMENT,
            end => end.unwrap_or(NEVER),
        };
        let planned = ends.end_of(id).unwrap_or(limit).min(limit);
        let part = number_of(&self.part_by_name, &alloc.partition);
        // Both lists are sorted, except for the first node of some jobs.
        let (mut left, mut put) = (nodes, 0);
        for (share, place) in alloc.nodes.iter().zip(0u32..) {
            let node = share.node.0;
            if !job.nodes_held.contains(place) {
                continue;
            }
            match left.split_first() {
                Some((first, rest)) if *first == node => left = rest,
                _ if nodes.binary_search(&node).is_ok() => {}
                _ => continue,
            }
            let Some(view) = self.nodes.get(node as usize) else {
                continue;
            };
            let class = &self.classes[view.class as usize];
            let ends = JobEnds {
                job: id,
                planned,
                limit,
            };
            let allocation = NodeAllocation {
                lent: job.cpus_released_by_preemption,
                ..NodeAllocation::new(class, share, ends, part)
            };
            self.put_allocation(node, allocation);
            put += 1;
        }
        if put < nodes.len() {
            let mut held: Vec<u32> = job.held().map(|(share, _)| share.node.0).collect();
            held.sort_unstable();
            let gone = nodes
                .iter()
                .filter(|node| held.binary_search(node).is_err());
            gone.for_each(|&node| self.forget_allocation(node, id));
        }
    }

    /// Records a job's new or changed share of a node. A proposed share that was committed
    /// unchanged is not a change.
    fn put_allocation(&mut self, node: u32, allocation: NodeAllocation) {
        let allocations = &mut self.nodes[node as usize].allocations;
        let Some(known) = allocations
            .iter_mut()
            .find(|known| known.job == allocation.job)
        else {
            allocations.push(allocation);
            return self.changes.note(node);
        };
        let as_proposed = known.is_like(&allocation);
        *known = allocation;
        if !as_proposed {
            self.changes.note(node);
        }
    }

    fn forget_allocation(&mut self, node: u32, id: JobId) {
        if let Some(view) = self.nodes.get_mut(node as usize) {
            view.allocations.retain(|allocation| allocation.job != id);
            self.changes.note(node);
        }
    }

    /// Records the allocation that a job gets if the plan is carried out.
    pub(crate) fn propose_allocations(&mut self, alloc: &Allocation, ends: JobEnds) {
        let part = number_of(&self.part_by_name, &alloc.partition);
        for share in &alloc.nodes {
            self.propose_allocation(share, ends, part);
        }
    }

    fn propose_allocation(&mut self, share: &NodeShare, ends: JobEnds, part: u32) {
        let view = &mut self.nodes[share.node.0 as usize];
        let class = &self.classes[view.class as usize];
        view.allocations.push(NodeAllocation {
            proposed: true,
            ..NodeAllocation::new(class, share, ends, part)
        });
    }

    /// CPUs of the jobs that were placed in a partition and leave by then.
    pub(crate) fn leaving(
        &self,
        node: u32,
        partition: &str,
        at: Timestamp,
        assumed: EndAssumption,
    ) -> CpuSet {
        let part = number_of(&self.part_by_name, partition);
        let gone = |t: &&NodeAllocation| {
            t.part == part && t.end(assumed) <= at.min(Timestamp(NEVER.0 - 1))
        };
        let allocations = self.nodes[node as usize].allocations.iter();
        allocations
            .filter(gone)
            .fold(CpuSet::default(), |mut all, t| {
                all.union_with(&t.cpus);
                all
            })
    }

    /// The time at which a job is expected to leave a node.
    pub(crate) fn expected_end(&self, node: u32, id: JobId) -> Option<Timestamp> {
        let mut allocations = self.nodes[node as usize].allocations.iter();
        Some(allocations.find(|allocation| allocation.job == id)?.planned)
    }

    /// Sets other ends of jobs on nodes, for a search that changes nothing; `ends` becomes the ends before, with which a
    /// second call restores them.
    pub(crate) fn swap_ends(&mut self, ends: &mut [EndOnNode]) {
        for EndOnNode { node, ends } in ends {
            let mut allocations = self.nodes[*node as usize].allocations.iter_mut();
            if let Some(known) = allocations.find(|known| known.job == ends.job) {
                std::mem::swap(&mut known.planned, &mut ends.planned);
                std::mem::swap(&mut known.limit, &mut ends.limit);
            }
        }
    }

    /// Forgets proposed allocations, so that only committed ones count. Returns whether some plan
    /// was not carried out.
    pub(crate) fn forget_proposed(&mut self, node: u32) -> bool {
        let allocations = &mut self.nodes[node as usize].allocations;
        let before = allocations.len();
        allocations.retain(|allocation| !allocation.proposed);
        allocations.len() < before
    }

    /// The room of a node after all jobs that leave by then have left.
    pub(crate) fn room_at(&self, node: u32, at: Timestamp, assumed: EndAssumption) -> Room {
        let view = &self.nodes[node as usize];
        let class = &self.classes[view.class as usize];
        let (mut room, mut layers) = (view.room.clone(), layers_of(&view.layers));
        let most = self.empty[view.class as usize].cpus;
        let gone = |allocation: &&NodeAllocation| {
            allocation.end(assumed) <= at.min(Timestamp(NEVER.0 - 1))
        };
        for allocation in view.allocations.iter().filter(gone) {
            allocation.leave(class, most, &mut room, &mut layers);
        }
        room
    }
}

impl Fleet {
    /// Individual free CPUs and devices at that time; `None` if several jobs use the same CPUs.
    pub(crate) fn detail_at(
        &self,
        node: u32,
        at: Timestamp,
        assumed: EndAssumption,
    ) -> Option<Detail> {
        let view = &self.nodes[node as usize];
        if !view.layers.is_empty() {
            return None;
        }
        let mut detail = Detail {
            free: view.free.clone(),
            gres_used: view.gres_used.clone(),
        };
        let gone = |allocation: &&NodeAllocation| {
            allocation.end(assumed) <= at.min(Timestamp(NEVER.0 - 1))
        };
        for allocation in view.allocations.iter().filter(gone) {
            detail.free.union_with(&allocation.cpus);
            for (at, ids) in &allocation.gres {
                if let Some(used) = detail.gres_used.get_mut(*at as usize) {
                    used.subtract(ids);
                }
            }
        }
        let class = &self.classes[view.class as usize];
        detail.gres_used = unavailable(class, &detail.gres_used).into_owned();
        Some(detail)
    }
}

fn number_of(parts: &HashMap<String, u32>, name: &str) -> u32 {
    parts.get(name).copied().unwrap_or(NOWHERE)
}
