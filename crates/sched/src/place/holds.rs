//! Holds on nodes for waiting jobs, in a pass. Most nodes have one hold from one reservation; for
//! these only the index in the reservation is stored.

use crate::nodes::fleet::Fleet;
use crate::nodes::room::{Room, Want};
use crate::nodes::rooms::{needs_of, take_away};
use muster_model::time::Timestamp;
use std::sync::Arc;

/// A part of a node reserved for a waiting job from a time on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NodeHold {
    pub(crate) node: u32,
    /// The lane whose first job the hold is for; [`CLAIM`] if preemption makes room for a job.
    pub(crate) lane: u32,
    /// The number of the configured partition for whose job preemption makes room.
    pub(crate) claimed_by: Option<u32>,
    pub(crate) start: Timestamp,
    pub(crate) end: Timestamp,
    /// Resources that the waiting job needs.
    pub(crate) needs: Room,
    /// Resources of the node that other jobs may still use beyond `start`.
    pub(crate) spare: Room,
}

/// Replaces the lane in holds for jobs for which preemption makes room.
pub(crate) const CLAIM: u32 = u32::MAX;

/// Holds of a reservation when it was made, at most one per node; shared by all reservations with
/// the same holds.
pub(crate) type SharedHolds = Arc<Vec<NodeHold>>;

/// The location of a node's holds.
#[derive(Clone, Copy, Debug, Default)]
enum HoldAt {
    /// The node has no hold.
    #[default]
    Nowhere,
    /// The hold is that of a reservation, unchanged.
    Reserved {
        reservation: u32,
        /// Index of the hold in the reservation.
        at: u32,
    },
    /// The holds are in their own list.
    Own(u32),
}

/// Holds of all reservations, by node.
#[derive(Debug, Default)]
pub(crate) struct Holds {
    places: Vec<HoldAt>,
    /// Nodes with holds.
    nodes: Vec<u32>,
    reservations: Vec<SharedHolds>,
    /// Holds of nodes that differ from a single reservation's. Lists from `used` on are empty and
    /// kept for reuse.
    lists: Vec<Vec<NodeHold>>,
    used: usize,
    /// Some hold leaves less to other jobs than when it was made.
    pub(crate) narrowed: bool,
}

impl Clone for Holds {
    fn clone(&self) -> Holds {
        Holds {
            places: self.places.clone(),
            nodes: self.nodes.clone(),
            reservations: self.reservations.clone(),
            lists: self.lists[..self.used].to_vec(),
            used: self.used,
            narrowed: self.narrowed,
        }
    }
}

impl Holds {
    /// The holds of a node.
    pub(crate) fn of(&self, node: u32) -> &[NodeHold] {
        match self.place(node) {
            HoldAt::Nowhere => &[],
            HoldAt::Reserved { reservation, at } => {
                std::slice::from_ref(&self.reservations[reservation as usize][at as usize])
            }
            HoldAt::Own(list) => &self.lists[list as usize],
        }
    }

    /// Whether the holds of a node may differ from those of the reservations.
    pub(crate) fn is_own(&self, node: u32) -> bool {
        matches!(self.place(node), HoldAt::Own(_))
    }

    /// Every node with holds, and its holds.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &[NodeHold])> {
        self.nodes.iter().map(|node| (*node, self.of(*node)))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Removes all reservations but keeps their memory.
    pub(crate) fn clear(&mut self) {
        for node in self.nodes.drain(..) {
            self.places[node as usize] = HoldAt::Nowhere;
        }
        self.reservations.clear();
        self.lists[..self.used].iter_mut().for_each(Vec::clear);
        self.used = 0;
        self.narrowed = false;
    }

    /// Adds the holds of a reservation to those of earlier ones.
    pub(crate) fn add(&mut self, made: &SharedHolds) {
        let reservation = number(self.reservations.len());
        self.reservations.push(Arc::clone(made));
        self.nodes.reserve(made.len());
        for (hold, at) in made.iter().zip(0..) {
            let node = hold.node;
            if let Some(place @ HoldAt::Nowhere) = self.places.get_mut(node as usize) {
                *place = HoldAt::Reserved { reservation, at };
                self.nodes.push(node);
                continue;
            }
            if let HoldAt::Nowhere = self.place(node) {
                self.put(node, HoldAt::Reserved { reservation, at });
                continue;
            }
            let mut narrowed = false;
            let list = self.own(node);
            for earlier in list.iter_mut() {
                if hold.start <= earlier.start && earlier.start < hold.end {
                    narrowed = true;
                    take_away(&mut earlier.spare, &hold.needs);
                }
            }
            list.push(hold.clone());
            self.narrowed |= narrowed;
        }
    }

    /// Replaces the holds of a node.
    pub(crate) fn set(&mut self, node: u32, holds: Vec<NodeHold>) {
        *self.own(node) = holds;
        self.narrowed = true;
    }

    /// Another job starts now on a reserved node and outlasts the start of the hold: reduces the rest for other jobs.
    pub(crate) fn take_spare(&mut self, fleet: &Fleet, node: u32, end: Timestamp, want: &Want) {
        if self.of(node).is_empty() {
            return;
        }
        self.narrowed = true;
        if self.of(node).iter().any(|hold| hold.start < end) {
            let needs = needs_of(fleet, node, want);
            let list = self.own(node).iter_mut();
            list.filter(|hold| hold.start < end)
                .for_each(|hold| take_away(&mut hold.spare, &needs));
        }
    }

    fn place(&self, node: u32) -> HoldAt {
        let place = self.places.get(node as usize);
        place.copied().unwrap_or_default()
    }

    /// Adds the first hold of a node.
    #[inline]
    fn put(&mut self, node: u32, place: HoldAt) {
        if self.places.len() <= node as usize {
            self.places.resize(node as usize + 1, HoldAt::Nowhere);
        }
        self.places[node as usize] = place;
        self.nodes.push(node);
    }

    /// Mutable access to the holds of a node.
    fn own(&mut self, node: u32) -> &mut Vec<NodeHold> {
        let place = self.place(node);
        if let HoldAt::Own(list) = place {
            return &mut self.lists[list as usize];
        }
        let at = self.used;
        if at == self.lists.len() {
            self.lists.push(Vec::with_capacity(1));
        }
        self.used += 1;
        match place {
            HoldAt::Reserved {
                reservation,
                at: of,
            } => {
                let hold = &self.reservations[reservation as usize][of as usize];
                self.lists[at].push(hold.clone());
                self.places[node as usize] = HoldAt::Own(number(at));
            }
            HoldAt::Nowhere | HoldAt::Own(_) => self.put(node, HoldAt::Own(number(at))),
        }
        &mut self.lists[at]
    }
}

fn number(n: usize) -> u32 {
    u32::try_from(n).expect("fewer than 2^32 nodes")
}
