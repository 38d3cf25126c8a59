//! Allocations of jobs by node, with their ends. From these follows what a node has free at a later time. Kept up to date
//! with the state by job and node.

use crate::nodes::fleet::devices::{give_back, unavailable};
use crate::nodes::fleet::{Detail, Fleet, NOWHERE, NodeClass, NodeView, Room, Want};
use crate::nodes::planned::PlannedEnds;
use crate::nodes::sharing::{NodeUsers, lend};
use muster_core::state::State;
use muster_model::cpuset::CpuSet;
use muster_model::ids::JobId;
use muster_model::job::{Allocation, NodeShare};
use muster_model::time::Timestamp;
use std::collections::HashMap;
use std::ops::Range;

/// When a job ends of which nothing is known.
pub(crate) const NEVER: Timestamp = Timestamp(i64::MAX);
/// When a job ends that is being cleaned up.
const ANY_MOMENT: Timestamp = Timestamp(i64::MIN);

/// When a job ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct JobEnds {
    pub(crate) job: JobId,
    /// As it is expected to.
    pub(crate) planned: Timestamp,
    /// At the latest.
    pub(crate) limit: Timestamp,
}

/// The part of a node that a job has.
#[derive(Clone, Debug)]
pub(crate) struct NodeAllocation {
    job: JobId,
    /// When it is expected to end.
    planned: Timestamp,
    /// When it ends at the latest.
    limit: Timestamp,
    cpus: CpuSet,
    /// It is stopped: others have its CPUs, and it is not counted among the node's jobs.
    lent: bool,
    mib: u64,
    /// Devices, by their place in the node's class.
    gres: Vec<(u32, CpuSet)>,
    /// It is in a plan that is not carried out yet.
    proposed: bool,
    /// The partition it was placed in, by its number; [`NOWHERE`] if there is no such partition any more.
    part: u32,
}

/// Which of a job's ends are counted on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ends {
    /// Expected ends.
    Planned,
    /// Ends at the time limit.
    Limits,
}

/// When jobs are taken to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EndAssumption {
    pub(crate) ends: Ends,
    /// When those end of which that is not known, if ever.
    pub(crate) endless: Option<Timestamp>,
}

impl From<Ends> for EndAssumption {
    fn from(ends: Ends) -> EndAssumption {
        EndAssumption {
            ends,
            endless: None,
        }
    }
}

impl NodeAllocation {
    fn new(class: &NodeClass, share: &NodeShare, ends: JobEnds, part: u32) -> NodeAllocation {
        let JobEnds {
            job,
            planned,
            limit,
        } = ends;
        let mut gres = Vec::new();
        for held in &share.gres {
            for (entry, at) in class.gres.iter().zip(0u32..) {
                let counts = !class.no_consume.get(at as usize).copied().unwrap_or(false);
                if entry.name == held.name && entry.kind == held.kind && counts {
                    gres.push((at, held.ids.clone()));
                }
            }
        }
        NodeAllocation {
            job,
            planned,
            limit,
            cpus: class.kept_with(&share.cpus),
            lent: false,
            mib: share.memory_mib,
            gres,
            proposed: false,
            part,
        }
    }

    /// Whether it has the same, and until the same time.
    fn is_like(&self, other: &NodeAllocation) -> bool {
        let times = |t: &NodeAllocation| (t.planned, t.limit, t.mib, t.part, t.lent);
        times(self) == times(other) && self.cpus == other.cpus && self.gres == other.gres
    }

    /// When it leaves.
    pub(crate) fn end(&self, assumed: EndAssumption) -> Timestamp {
        let end = match assumed.ends {
            Ends::Planned => self.planned,
            Ends::Limits => self.limit,
        };
        if end == NEVER {
            return assumed.endless.unwrap_or(NEVER);
        }
        end
    }

    /// Gives the allocation back to `room`, of which jobs may have `most` CPUs. `layers` are the CPUs that several of the remaining
    /// jobs have.
    pub(crate) fn leave(
        &self,
        class: &NodeClass,
        most: u32,
        room: &mut Room,
        layers: &mut [CpuSet],
    ) {
        if !self.lent {
            let freed = match layers {
                [] => self.cpus.len(),
                layers => lend(layers, &self.cpus).len(),
            };
            room.cpus = room.cpus.saturating_add(freed).min(most);
            room.jobs = room.jobs.saturating_sub(1);
        }
        room.mib = room.mib.saturating_add(self.mib).min(class.mib);
        if room.jobs == 0 {
            (room.exclusive, room.by_user, room.users) = (false, false, NodeUsers::None);
        }
        if room.devices.is_none() {
            return;
        }
        let held = self.gres.iter();
        give_back(class, room, held.map(|(at, ids)| (*at as usize, ids)));
    }
}

/// CPUs of a node that several jobs have, to follow how these leave: mostly there are none.
pub(crate) fn layers_of(view: &NodeView) -> Vec<CpuSet> {
    match view.layers.is_empty() {
        true => Vec::new(),
        false => view.layers.clone(),
    }
}

fn number_of(parts: &HashMap<String, u32>, name: &str) -> u32 {
    parts.get(name).copied().unwrap_or(NOWHERE)
}

/// Whether the memory that goes with these CPUs has room for the job's part there. Who has CPUs of several domains is
/// taken to have memory of each in proportion.
pub(crate) fn memory_near(
    class: &NodeClass,
    allocations: &[NodeAllocation],
    want: &Want,
    cpus: Range<u32>,
) -> bool {
    if want.mib == 0 || class.cpus == 0 {
        return true;
    }
    let part = |mib: u64, of: u32, all: u32| mib * u64::from(of) / u64::from(all.max(1));
    let width = cpus.end - cpus.start;
    let used = allocations.iter().map(|allocation| {
        let here = cpus
            .clone()
            .filter(|cpu| allocation.cpus.contains(*cpu))
            .count();
        let here = u32::try_from(here).unwrap_or(u32::MAX);
        part(allocation.mib, here, allocation.cpus.len())
    });
    let needed = part(want.mib, width.min(want.cpus), want.cpus);
    used.sum::<u64>() + needed <= part(class.mib, width, class.cpus)
}

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

    /// Reads again what a job has of these nodes, which are in order, and until when.
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
        // Both are in order but for the first node of some jobs.
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

    /// A job has a share, or another one than it had. What was proposed and came about is no change.
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

    /// A job is going to have an allocation, if the plan is carried out.
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

    /// CPUs of those who were placed in a partition and whose time has come by then.
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

    /// When a job is expected to leave a node.
    pub(crate) fn expected_end(&self, node: u32, id: JobId) -> Option<Timestamp> {
        let mut allocations = self.nodes[node as usize].allocations.iter();
        Some(allocations.find(|allocation| allocation.job == id)?.planned)
    }

    /// Plans are carried out or not: what is known of a node is what is so. Says whether a plan was not.
    pub(crate) fn forget_proposed(&mut self, node: u32) -> bool {
        let allocations = &mut self.nodes[node as usize].allocations;
        let before = allocations.len();
        allocations.retain(|allocation| !allocation.proposed);
        allocations.len() < before
    }

    /// The room on a node once all have left whose time has come by then.
    pub(crate) fn room_at(&self, node: u32, at: Timestamp, assumed: EndAssumption) -> Room {
        let view = &self.nodes[node as usize];
        let class = &self.classes[view.class as usize];
        let (mut room, mut layers) = (view.room.clone(), layers_of(view));
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
    /// Free CPUs and devices at that time, one by one; `None` where several jobs have the same CPUs.
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

/// Nodes in the order in which their room or what is on them changed.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    nodes: Vec<u32>,
    /// Changes that are no longer in `nodes`.
    dropped: u64,
    /// How often anything changed.
    version: u64,
}

impl Changes {
    /// A node changed.
    pub(crate) fn note(&mut self, node: u32) {
        self.version += 1;
        if self.nodes.last() != Some(&node) {
            self.nodes.push(node);
        }
    }

    /// As long as it is the same, nothing of any node has changed.
    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    /// All changes so far; to be given to [`Changes::since`].
    pub(crate) fn count(&self) -> u64 {
        self.dropped + self.nodes.len() as u64
    }

    /// Changes after the first `count`; `None` if these are not kept any more.
    pub(crate) fn since(&self, count: u64) -> Option<&[u32]> {
        let from = usize::try_from(count.checked_sub(self.dropped)?).ok()?;
        // The last one noted may have changed once more without being noted again.
        self.nodes.get(from.saturating_sub(1)..)
    }

    /// Keeps no more than so many.
    pub(crate) fn trim(&mut self, most: usize) {
        if self.nodes.len() > most {
            self.dropped += self.nodes.len() as u64;
            self.nodes.clear();
        }
    }
}
