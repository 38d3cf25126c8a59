//! The nodes of a partition after some jobs have left them at any time: the node source for
//! choosing jobs to preempt.

use crate::demand::Demand;
use crate::demand::pick::Pick;
use crate::nodes::devices::give_back;
use crate::nodes::fleet::{Fleet, PartView};
use crate::nodes::node_map::NodeMap;
use crate::nodes::room::{NodeLabel, NodeUsers, Room};
use crate::nodes::rooms::{minus, narrow, needs_of};
use crate::nodes::sharing::lend;
use crate::place::NodeSource;
use crate::place::holds::{CLAIM, Holds, NodeHold};
use crate::place::node_source::{end_after, tightest};
use muster_model::cpuset::CpuSet;
use muster_model::job::{Job, NodeShare};
use muster_model::reservation::RunWindow;
use muster_model::time::Timestamp;
use std::borrow::Cow;
use std::cell::Cell;
use std::ops::Range;

/// CPUs of jobs on a node.
#[derive(Default)]
struct JobCpus {
    all: CpuSet,
    /// CPUs of jobs of the partition.
    own: CpuSet,
}

/// CPUs of stopped jobs that the waiting job may not preempt, by node. These jobs get them before it when the jobs that
/// use them leave.
#[derive(Default)]
pub(crate) struct StoppedCpus {
    by_node: NodeMap<JobCpus>,
}

impl StoppedCpus {
    /// The CPUs of these jobs on nodes of a partition.
    pub(crate) fn new<'j>(
        fleet: &Fleet,
        part: &PartView,
        jobs: impl IntoIterator<Item = &'j Job>,
    ) -> StoppedCpus {
        let mut by_node: NodeMap<JobCpus> = NodeMap::default();
        for job in jobs {
            let is_own = is_in(job, part);
            for (share, _) in job.held().filter(|(share, _)| part.has(share.node.0)) {
                let node = share.node.0;
                let class = &fleet.classes[fleet.nodes[node as usize].class as usize];
                let cpus = class.kept_with(&share.cpus);
                let of_node = by_node.entry(node).or_default();
                of_node.all.union_with(&cpus);
                if is_own {
                    of_node.own.union_with(&cpus);
                }
            }
        }
        StoppedCpus { by_node }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.by_node.is_empty()
    }
}

/// Whether a job runs in the partition.
fn is_in(job: &Job, part: &PartView) -> bool {
    let alloc = job.alloc.as_ref();
    alloc.is_some_and(|alloc| alloc.partition == part.config.name)
}

/// The nodes without the shares of released jobs.
pub(crate) struct AfterPreemption<'a> {
    fleet: &'a Fleet,
    part: &'a PartView,
    holds: &'a Holds,
    grown: NodeMap<Room>,
    /// CPUs of stopped jobs that were already counted as free.
    lent: NodeMap<CpuSet>,
    /// CPUs that several jobs still use.
    layers: NodeMap<Vec<CpuSet>>,
    /// Resources that preempted jobs return on a node, and their previously expected times.
    back: NodeMap<Vec<(Timestamp, Room)>>,
    /// CPUs that jobs return and no other uses, for partitions that limit which or how many their jobs may have on a node.
    returned: NodeMap<JobCpus>,
    /// CPUs that the waiting job does not get although jobs return them.
    stopped: Option<&'a StoppedCpus>,
    start: Timestamp,
    /// The time at which the last of them leaves. The job starts then at the earliest, and ends later by as much;
    /// resources free before are held for it meanwhile.
    all_gone: Timestamp,
    length_ms: Option<u64>,
    /// Set when a reservation has reduced the room of a node.
    pub(crate) narrowed: Cell<bool>,
}

impl<'a> AfterPreemption<'a> {
    /// The nodes as they are, for a job that starts at this time.
    pub(crate) fn new(
        fleet: &'a Fleet,
        part: &'a PartView,
        holds: &'a Holds,
        (start, length_ms): (Timestamp, Option<u64>),
    ) -> AfterPreemption<'a> {
        AfterPreemption {
            fleet,
            part,
            holds,
            grown: NodeMap::default(),
            lent: NodeMap::default(),
            layers: NodeMap::default(),
            back: NodeMap::default(),
            returned: NodeMap::default(),
            stopped: None,
            start,
            all_gone: start,
            length_ms,
            narrowed: Cell::new(false),
        }
    }

    /// The jobs leave by this time.
    pub(crate) fn start_after(&mut self, all_gone: Timestamp) {
        self.all_gone = self.start.max(all_gone);
    }

    /// Leaves the CPUs of stopped jobs to them. A job that starts in the moment in which others are stopped takes the CPUs
    /// of these before a stopped job can go on.
    pub(crate) fn leave_to(&mut self, stopped: &'a StoppedCpus) {
        self.stopped = Some(stopped);
    }

    fn of_stopped(&self, node: u32) -> Option<&'a JobCpus> {
        self.stopped?.by_node.get(&node)
    }

    fn bare(&self, node: u32) -> &Room {
        self.grown
            .get(&node)
            .unwrap_or(&self.fleet.nodes[node as usize].room)
    }

    fn end(&self) -> Timestamp {
        end_after(self.all_gone, self.length_ms)
    }

    /// The room without resources reserved for other jobs while the job would run.
    fn left(&self, node: u32) -> Cow<'_, Room> {
        let mut room = Cow::Borrowed(self.bare(node));
        let holds = self.holds.of(node);
        if !holds.is_empty() {
            room = self.beside(node, holds, room);
        }
        let window = RunWindow {
            now: self.fleet.now,
            start: self.start,
            end: self.end(),
        };
        let blocks = &self.fleet.blocks;
        let mut room = blocks.narrow(self.part.own.as_ref(), node, window, room).0;
        if let Some(most) = self.most_of_partition(node)
            && most < room.cpus
        {
            room.to_mut().cpus = most;
        }
        room
    }

    /// CPUs of a node that jobs of the partition may take then, if it limits them (`MaxCPUsPerNode`, `MaxCPUsPerSocket`, whole
    /// sockets). Its jobs for which room is being made have theirs.
    fn most_of_partition(&self, node: u32) -> Option<u32> {
        let cpus = Some(&self.part.cpus).filter(|cpus| cpus.rule.bounds())?;
        let pos = self.part.pos_of[node as usize] as usize;
        let class = &self.fleet.classes[self.fleet.nodes[node as usize].class as usize];
        let none = JobCpus::default();
        let returned = self.returned.get(&node).unwrap_or(&none);
        let mut free = self.fleet.free_cpus(node).clone();
        free.union_with(&returned.all);
        let most = cpus.left_without(class, pos, &returned.own, &free);
        let is_own = |hold: &&NodeHold| hold.claimed_by == Some(self.part.base);
        let claims = self.holds.of(node).iter().filter(is_own);
        Some(claims.fold(most, |left, claim| left.saturating_sub(claim.needs.cpus)))
    }

    /// The part of a room that reservations leave. If a reservation depends on other jobs that end before it, it may
    /// leave everything that is free now.
    fn beside<'r>(&self, node: u32, holds: &[NodeHold], room: Cow<'r, Room>) -> Cow<'r, Room> {
        let end = self.end();
        let holds = holds.iter().filter(|h| h.start < end && self.start < h.end);
        let mut holds = holds.peekable();
        self.narrowed
            .set(self.narrowed.get() || holds.peek().is_some());
        let (claims, reservations): (Vec<&NodeHold>, Vec<&NodeHold>) =
            holds.partition(|h| h.lane == CLAIM);
        let without = |room: Cow<'r, Room>, holds: &[&NodeHold]| {
            holds
                .iter()
                .fold(room, |room, hold| Cow::Owned(minus(&room, &hold.needs)))
        };
        let most = without(room, &claims);
        let mut least = without(most.clone(), &reservations);
        if reservations.is_empty() {
            return least;
        }
        let mut then = most.into_owned();
        for hold in reservations {
            let mut spare = hold.spare.clone();
            let back = self.back.get(&node).into_iter().flatten();
            for (_, more) in back.filter(|(expected, _)| *expected > hold.start) {
                spare.cpus = spare.cpus.saturating_add(more.cpus);
                spare.mib = spare.mib.saturating_add(more.mib);
                let all = spare.gres_mut().iter_mut().zip(more.gres());
                all.for_each(|(have, more)| *have = have.saturating_add(*more));
            }
            narrow(&mut then, &spare);
        }
        let left = least.to_mut();
        if !left.exclusive {
            left.cpus = left.cpus.max(then.cpus);
        }
        left.mib = left.mib.max(then.mib);
        let gres = left.gres_mut().iter_mut().zip(then.gres());
        gres.for_each(|(left, then)| *left = (*left).max(*then));
        least
    }

    /// Returns a job's share: all of it if the job ends, or its CPUs if it is stopped. A stopped
    /// job has already lent its CPUs and is not counted among the node's jobs.
    pub(crate) fn release_of(&mut self, job: &Job, share: &NodeShare, whole: bool) {
        let node = share.node.0;
        if self.part.cpus.rule.bounds() && whole && is_in(job, self.part) {
            let mut own = share.cpus.clone();
            if let Some(stopped) = self.of_stopped(node) {
                own.subtract(&stopped.own);
            }
            let returned = self.returned.entry(node).or_default();
            returned.own.union_with(&own);
        }
        if job.cpus_released_by_preemption && !whole {
            return self.show_stopped(share);
        }
        let alone = whole && !job.cpus_released_by_preemption && self.fleet.layers(node).is_empty();
        let held = !self.holds.of(node).is_empty() && alone;
        let expected = self.fleet.expected_end(node, job.id).filter(|_| held);
        let before = expected.map(|end| (end, self.bare(node).clone()));
        self.give_back(share, whole, !job.cpus_released_by_preemption);
        if let Some((end, before)) = before {
            let more = minus(self.bare(node), &before);
            self.back.entry(node).or_default().push((end, more));
        }
    }

    /// Makes the CPUs of a stopped job visible that are free and kept for it.
    fn show_stopped(&mut self, share: &NodeShare) {
        let node = share.node.0;
        let fleet = self.fleet;
        let mut more = fleet.kept_for_stopped(node).clone();
        more.intersect_with(&share.cpus);
        let known = self.lent.entry(node).or_default();
        more.subtract(known);
        known.union_with(&more);
        let room =
            (self.grown.entry(node)).or_insert_with(|| fleet.nodes[node as usize].room.clone());
        room.cpus = room.cpus.saturating_add(more.len());
        if self.part.cpus.rule.bounds() {
            let returned = self.returned.entry(node).or_default();
            returned.all.union_with(&more);
        }
    }

    /// `rest`: the job returns everything apart from CPUs. `runs`: the job returns its CPUs.
    fn give_back(&mut self, share: &NodeShare, rest: bool, runs: bool) {
        let node = share.node.0;
        if !self.part.has(node) {
            return;
        }
        let fleet = self.fleet;
        let stopped = self.of_stopped(node);
        let view = &fleet.nodes[node as usize];
        let class = &fleet.classes[view.class as usize];
        let room = self.grown.entry(node).or_insert_with(|| view.room.clone());
        if runs {
            let cpus = class.kept_with(&share.cpus);
            let mut freed = match fleet.layers(node) {
                [] => cpus,
                layers => {
                    let left = self.layers.entry(node);
                    lend(left.or_insert_with(|| layers.to_vec()), &cpus)
                }
            };
            if let Some(stopped) = stopped {
                freed.subtract(&stopped.all);
            }
            room.cpus = (room.cpus.saturating_add(freed.len())).min(class.job_cpus());
            if self.part.cpus.rule.bounds() {
                let returned = self.returned.entry(node).or_default();
                returned.all.union_with(&freed);
            }
        }
        room.jobs = room.jobs.saturating_sub(u32::from(runs));
        if room.jobs == 0 {
            room.exclusive = false;
            if rest {
                (room.by_user, room.users) = (false, NodeUsers::None);
                room.label = NodeLabel::Any;
            }
        }
        if !rest {
            return;
        }
        room.mib = room.mib.saturating_add(share.memory_mib).min(class.mib);
        let held = share.gres.iter().flat_map(|gres| {
            let all = class.gres.iter().enumerate();
            let same = all.filter(|(_, entry)| entry.name == gres.name && entry.kind == gres.kind);
            same.map(|(at, _)| (at, &gres.ids))
        });
        give_back(class, room, held);
    }

    /// The holds for the job for which room is made, by node.
    pub(crate) fn pledge(&self, demand: &Demand, picks: &[Pick]) -> Vec<NodeHold> {
        let (fleet, start, end) = (self.fleet, self.start, self.end());
        let hold = |pick: &Pick| {
            let class = &fleet.classes[fleet.nodes[pick.node as usize].class as usize];
            let needs = needs_of(fleet, pick.node, &demand.want(class, pick));
            let spare = minus(&self.left(pick.node), &needs);
            NodeHold {
                node: pick.node,
                lane: CLAIM,
                claimed_by: Some(self.part.base),
                start,
                end,
                needs,
                spare,
            }
        };
        picks.iter().map(hold).collect()
    }
}

impl NodeSource for AfterPreemption<'_> {
    fn next(&self, mut places: Range<usize>, cpus: u32, mib: u64) -> Option<usize> {
        places.find(|&pos| {
            let room = self.bare(self.part.order[pos]);
            room.usable && !room.exclusive && room.cpus >= cpus && room.mib >= mib
        })
    }

    fn leaves(&self, cpus: u64) -> Box<dyn Iterator<Item = u32> + '_> {
        tightest(self.part, cpus, |pos| {
            Cow::Borrowed(self.bare(self.part.order[pos]))
        })
    }

    fn room(&self, pos: usize) -> Cow<'_, Room> {
        self.left(self.part.order[pos])
    }
}
