//! Gains of partitions from pass to pass, by ends of jobs and by reservations given up, and the lanes that they unblock. A lane
//! that did not fit is kept with its shortfall, and is not tried again before its partition has gained as much.

use crate::nodes::fleet::Fleet;
use crate::nodes::node_set::NodeSet;
use crate::nodes::room::Room;
use crate::nodes::rooms::narrow;
use crate::order::{HeadKey, LaneHead};
use crate::place::holds::{Holds, NodeHold, SharedHolds};
use muster_model::ids::JobId;
use muster_model::time::Timestamp;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What a lane that did not fit waits for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum BlockedKey {
    /// Free CPUs with which a node is of any help, and how much its partition must have gained by then.
    Free(u32, u64),
    /// How much it must have gained if all CPUs of nodes are counted.
    Whole(u64),
}

/// A backfill reservation: nodes kept for the first job that waits in a partition.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct BackfillReservation {
    /// The job's place in line: jobs after it must respect the reservation.
    pub(crate) key: HeadKey,
    pub(crate) lane: u32,
    pub(crate) start: Timestamp,
    /// It counts on limits, not on predictions.
    pub(crate) cautious: bool,
    /// Licenses are kept for the job as well.
    pub(crate) licensed: bool,
    /// By node. For a component of a heterogeneous job what is kept for all of its components.
    pub(crate) holds: SharedHolds,
}

/// A node of which a reservation keeps less than it did, or later.
#[derive(Clone, Debug)]
pub(crate) struct RelaxedHold {
    pub(crate) node: u32,
    pub(crate) old: NodeHold,
    /// What the reservation keeps of the node now.
    pub(crate) new: Option<NodeHold>,
}

impl RelaxedHold {
    /// Whether a job that ends at `end` may have more of the node than it could.
    pub(crate) fn helps(&self, end: Timestamp, room: &Room) -> bool {
        let left = |hold: Option<&NodeHold>| {
            let mut left = room.clone();
            if let Some(hold) = hold.filter(|hold| hold.start < end) {
                narrow(&mut left, &hold.spare);
            }
            left
        };
        left(self.new.as_ref()).has_more_than(&left(Some(&self.old)))
    }
}

impl BackfillReservation {
    /// The lane for whose first job nodes are kept, in its place.
    pub(crate) fn head(&self) -> LaneHead {
        LaneHead {
            key: self.key,
            lane: self.lane,
        }
    }

    /// Takes over from `holds` what others may still use of the kept nodes.
    pub(crate) fn narrow_to(&mut self, holds: &Holds) {
        // Most often others have taken nothing of it, or little: then it stays what it is.
        if !self.holds.iter().any(|kept| holds.is_own(kept.node)) {
            return;
        }
        let all = Arc::make_mut(&mut self.holds).iter_mut();
        for kept in all.filter(|kept| holds.is_own(kept.node)) {
            let mut list = holds.of(kept.node).iter();
            if let Some(hold) = list.find(|hold| hold.lane == kept.lane) {
                kept.clone_from(hold);
            }
        }
    }

    /// The nodes on which a job that this reservation kept back might run under `new`.
    pub(crate) fn relaxed_by(&self, new: Option<&BackfillReservation>) -> Vec<RelaxedHold> {
        if new.is_some_and(|new| Arc::ptr_eq(&new.holds, &self.holds)) {
            return Vec::new();
        }
        let mut all = new.map_or(&[][..], |new| &new.holds);
        let looser = |new: &NodeHold, old: &NodeHold| {
            new.start > old.start || new.spare.has_more_than(&old.spare)
        };
        let mut relaxed = Vec::new();
        for old in self.holds.iter() {
            // Both are in order.
            while let [other, rest @ ..] = all
                && other.node < old.node
            {
                all = rest;
            }
            let mut here = all.iter().take_while(|other| other.node == old.node);
            // Components of one job may have parts of a node: each of them keeps others from what it keeps.
            if here.clone().all(|new| looser(new, old)) {
                relaxed.push(RelaxedHold {
                    node: old.node,
                    old: old.clone(),
                    new: here.next().cloned(),
                });
            }
        }
        relaxed
    }
}

/// The waiting lanes of one partition.
#[derive(Debug, Default)]
pub(crate) struct PartQueue {
    /// All that can run there, by their heads.
    pub(crate) order: BTreeSet<LaneHead>,
    /// Lanes that did not fit, by the least free CPUs with which a node could help them and by the gain of the partition
    /// from which on they may fit.
    pub(crate) blocked: BTreeMap<u32, BTreeSet<(u64, u32)>>,
    /// CPUs that have become free or that reservations have given up, on nodes of the partition, ever, without those of
    /// this pass.
    pub(crate) gained: u64,
    /// Blocked lanes for which free CPUs are not all: running jobs may make room for their jobs, or share with them. By the gain
    /// from which on they may fit, where all CPUs of the nodes that gained are counted.
    pub(crate) blocked_whole: BTreeSet<(u64, u32)>,
    /// CPUs that those nodes have gained, ever, without those of this pass.
    pub(crate) gained_whole: u64,
    /// Nodes with gains since the last pass.
    pub(crate) fresh: Fresh,
    /// Every lane, those that cannot run included.
    pub(crate) lanes: BTreeSet<u32>,
    /// The first job that waits for resources.
    pub(crate) head: Option<JobId>,
    pub(crate) reservation: Option<BackfillReservation>,
}

/// Nodes of a partition of which there is more to have than at the last pass.
#[derive(Debug, Default)]
pub(crate) struct Fresh {
    nodes: NodeSet,
    pub(crate) freed: Vec<u32>,
    pub(crate) relaxed: Vec<RelaxedHold>,
    /// CPUs that are free on all of them.
    pub(crate) cpus: u64,
    /// CPUs that they have.
    pub(crate) whole: u64,
    /// CPUs that are free on one of them at most.
    pub(crate) most: u32,
}

impl Fresh {
    pub(crate) fn add(&mut self, fleet: &Fleet, node: u32) {
        if self.nodes.insert(node) {
            let cpus = open_cpus(fleet, node);
            self.cpus += u64::from(cpus);
            self.most = self.most.max(cpus);
            let class = fleet.nodes[node as usize].class;
            self.whole += u64::from(fleet.classes[class as usize].cpus);
        }
    }

    /// Forgets all.
    fn clear(&mut self) {
        self.nodes.clear();
        self.freed.clear();
        self.relaxed.clear();
        (self.cpus, self.whole, self.most) = (0, 0, 0);
    }

    /// Counts again what is free.
    pub(crate) fn recount(&mut self, fleet: &Fleet) {
        let cpus = self.nodes.iter().map(|node| open_cpus(fleet, node));
        self.cpus = cpus.clone().map(u64::from).sum();
        self.most = cpus.max().unwrap_or(0);
    }
}

/// CPUs that a node has free for jobs.
pub(crate) fn open_cpus(fleet: &Fleet, node: u32) -> u32 {
    let room = &fleet.nodes[node as usize].room;
    if room.usable && !room.exclusive {
        room.cpus
    } else {
        0
    }
}

impl PartQueue {
    /// Jobs have taken so many CPUs of a node.
    pub(crate) fn taken(&mut self, node: u32, cpus: u32) {
        if self.fresh.nodes.contains(node) {
            self.fresh.cpus = self.fresh.cpus.saturating_sub(u64::from(cpus));
        }
    }

    /// A reservation leaves more of a node than it did.
    pub(crate) fn relaxed(&mut self, fleet: &Fleet, relaxed: RelaxedHold) {
        self.fresh.add(fleet, relaxed.node);
        self.fresh.relaxed.push(relaxed);
    }

    /// Counts what nodes have gained; gives the blocked lanes for which that may be enough, with what they need.
    pub(crate) fn unblocked_lanes(&mut self, fleet: &Fleet) -> Vec<(u64, u32)> {
        self.fresh.recount(fleet);
        if self.fresh.nodes.is_empty() {
            return Vec::new();
        }
        let due = (self.gained + self.fresh.cpus, u32::MAX);
        let buckets = self.blocked.range(..=self.fresh.most);
        let lanes = buckets.flat_map(|(_, lanes)| lanes.range(..=due)).copied();
        // These lanes are tried even if other lanes have taken what was gained.
        let whole = self.blocked_whole.range(..=(self.gain_whole(), u32::MAX));
        lanes.chain(whole.map(|(_, lane)| (0, *lane))).collect()
    }

    /// How much the partition has gained, this pass included, if all CPUs of nodes are counted.
    pub(crate) fn gain_whole(&self) -> u64 {
        self.gained_whole + self.fresh.whole
    }

    /// How much the partition has gained, this pass included.
    pub(crate) fn gain(&self) -> u64 {
        self.gained + self.fresh.cpus
    }

    /// The pass is over: what is left of what was gained counts for those who come later.
    pub(crate) fn settle(&mut self, fleet: &Fleet) {
        if !self.fresh.nodes.is_empty() {
            self.fresh.recount(fleet);
            self.gained += self.fresh.cpus;
            self.gained_whole += self.fresh.whole;
            self.fresh.clear();
        }
    }

    pub(crate) fn unblock(&mut self, key: BlockedKey, lane: u32) {
        let (each, due) = match key {
            BlockedKey::Free(each, due) => (each, due),
            BlockedKey::Whole(due) => {
                self.blocked_whole.remove(&(due, lane));
                return;
            }
        };
        if let Some(lanes) = self.blocked.get_mut(&each) {
            lanes.remove(&(due, lane));
            if lanes.is_empty() {
                self.blocked.remove(&each);
            }
        }
    }
}
