//! Gains of partitions from pass to pass, caused by job ends and released reservations, and the
//! lanes that a gain unblocks. A lane that did not fit is stored with its shortfall, and is not
//! tried again before its partition has gained as much.

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

/// The gain that a lane which did not fit waits for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum BlockedKey {
    /// Free CPUs that a node must have to help the lane, and the gain of the partition at which it
    /// is tried again.
    Free(u32, u64),
    /// The gain at which the lane is tried again, if all CPUs of nodes are counted.
    Whole(u64),
}

/// A backfill reservation: nodes kept for the first job that waits in a partition.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct BackfillReservation {
    /// The job's place in line: jobs behind it must respect the reservation.
    pub(crate) key: HeadKey,
    pub(crate) lane: u32,
    pub(crate) start: Timestamp,
    /// The reservation counts on time limits, not on predictions.
    pub(crate) cautious: bool,
    /// The reservation includes licenses.
    pub(crate) licensed: bool,
    /// Holds by node. A component of a heterogeneous job stores the holds of all components.
    pub(crate) holds: SharedHolds,
}

/// A node of which a reservation now holds less than before, or from a later time.
#[derive(Clone, Debug)]
pub(crate) struct RelaxedHold {
    pub(crate) node: u32,
    pub(crate) old: NodeHold,
    /// The reservation's present hold on the node.
    pub(crate) new: Option<NodeHold>,
}

impl RelaxedHold {
    /// Whether a job that ends at `end` may use more of the node than under the old hold.
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

    /// Reduces the reservation to what `holds` leave to other jobs on the held nodes.
    pub(crate) fn narrow_to(&mut self, holds: &Holds) {
        // Other jobs have usually taken nothing or little of the held resources; the reservation
        // then stays unchanged.
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

    /// The nodes on which a job that this reservation blocked might run under `new`.
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
            // Both lists are sorted by node.
            while let [other, rest @ ..] = all
                && other.node < old.node
            {
                all = rest;
            }
            let mut here = all.iter().take_while(|other| other.node == old.node);
            // Components of one job may hold parts of the same node, and each hold blocks other
            // jobs.
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
    /// All lanes that can run in the partition, ordered by their heads.
    pub(crate) order: BTreeSet<LaneHead>,
    /// Blocked lanes: by the least free CPUs with which a node could help them, then by the gain of
    /// the partition at which they may fit.
    pub(crate) blocked: BTreeMap<u32, BTreeSet<(u64, u32)>>,
    /// CPUs on nodes of the partition that jobs have freed or reservations have released, in total,
    /// without the gains of this pass.
    pub(crate) gained: u64,
    /// Blocked lanes whose jobs could preempt running jobs or share CPUs with them, so that free
    /// CPUs alone do not decide. Ordered by the gain at which they may fit, counting all CPUs of
    /// the nodes that gained.
    pub(crate) blocked_whole: BTreeSet<(u64, u32)>,
    /// All CPUs of the nodes that gained, in total, without the gains of this pass.
    pub(crate) gained_whole: u64,
    /// Nodes with gains since the last pass.
    pub(crate) fresh: Fresh,
    /// Every lane, including lanes that cannot run.
    pub(crate) lanes: BTreeSet<u32>,
    /// The first job that waits for resources.
    pub(crate) head: Option<JobId>,
    pub(crate) reservation: Option<BackfillReservation>,
}

/// Nodes of a partition that gained resources since the last pass.
#[derive(Debug, Default)]
pub(crate) struct Fresh {
    nodes: NodeSet,
    pub(crate) freed: Vec<u32>,
    pub(crate) relaxed: Vec<RelaxedHold>,
    /// Free CPUs on all of these nodes together.
    pub(crate) cpus: u64,
    /// All CPUs of these nodes.
    pub(crate) whole: u64,
    /// The largest number of free CPUs on one of these nodes.
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

    /// Removes all nodes and counts.
    fn clear(&mut self) {
        self.nodes.clear();
        self.freed.clear();
        self.relaxed.clear();
        (self.cpus, self.whole, self.most) = (0, 0, 0);
    }

    /// Counts the free CPUs again.
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
    /// Subtracts CPUs that jobs have taken on a node.
    pub(crate) fn taken(&mut self, node: u32, cpus: u32) {
        if self.fresh.nodes.contains(node) {
            self.fresh.cpus = self.fresh.cpus.saturating_sub(u64::from(cpus));
        }
    }

    /// Records that a reservation leaves more of a node to other jobs than before.
    pub(crate) fn relaxed(&mut self, fleet: &Fleet, relaxed: RelaxedHold) {
        self.fresh.add(fleet, relaxed.node);
        self.fresh.relaxed.push(relaxed);
    }

    /// Counts the gains of nodes; returns the blocked lanes for which the gain may be enough, with
    /// the gain that each needs.
    pub(crate) fn unblocked_lanes(&mut self, fleet: &Fleet) -> Vec<(u64, u32)> {
        self.fresh.recount(fleet);
        if self.fresh.nodes.is_empty() {
            return Vec::new();
        }
        let due = (self.gained + self.fresh.cpus, u32::MAX);
        let buckets = self.blocked.range(..=self.fresh.most);
        let lanes = buckets.flat_map(|(_, lanes)| lanes.range(..=due)).copied();
        // These lanes are tried even if other lanes have used up the gain.
        let whole = self.blocked_whole.range(..=(self.gain_whole(), u32::MAX));
        lanes.chain(whole.map(|(_, lane)| (0, *lane))).collect()
    }

    /// The gain of the partition including this pass, counting all CPUs of nodes.
    pub(crate) fn gain_whole(&self) -> u64 {
        self.gained_whole + self.fresh.whole
    }

    /// The gain of the partition including this pass.
    pub(crate) fn gain(&self) -> u64 {
        self.gained + self.fresh.cpus
    }

    /// Ends the pass: gains that are still unused count for jobs that are submitted later.
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
