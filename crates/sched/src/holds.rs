//! What a pass keeps of nodes for jobs that wait. Promises are made anew in most passes, so their lists stay where they
//! are from pass to pass and only what is in them is thrown away.

use crate::fleet::{Fleet, Room, Want};
use crate::ground::{needs_of, take_away};
use muster_core::time::Timestamp;

/// A part of a node promised to a waiting job from a time on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hold {
    /// The lane whose first job it is promised to; [`CLAIM`] for those for whom room is being made.
    pub(crate) lane: u32,
    pub(crate) start: Timestamp,
    pub(crate) end: Timestamp,
    /// What is promised.
    pub(crate) needs: Room,
    /// What others may still take of the node beyond `start`.
    pub(crate) spare: Room,
}

/// Stands for the lane in what is kept for jobs for whom others make room.
pub(crate) const CLAIM: u32 = u32::MAX;

/// Stands for a node of which nothing is kept.
const NO_LIST: u32 = u32::MAX;

/// Promises by node.
#[derive(Debug, Default)]
pub(crate) struct Holds {
    /// The node's place in `lists`.
    places: Vec<u32>,
    /// Nodes and what is kept of them; those from `used` on are empty and wait to be used again.
    lists: Vec<(u32, Vec<Hold>)>,
    used: usize,
    /// Less is left to others of something promised than when it was promised.
    pub(crate) narrowed: bool,
}

impl Clone for Holds {
    fn clone(&self) -> Holds {
        Holds {
            places: self.places.clone(),
            lists: self.lists[..self.used].to_vec(),
            used: self.used,
            narrowed: self.narrowed,
        }
    }
}

impl Holds {
    /// What is kept of a node.
    pub(crate) fn of(&self, node: u32) -> &[Hold] {
        match self.place(node) {
            Some(place) => &self.lists[place].1,
            None => &[],
        }
    }

    /// Every node of which something is kept, with that.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &[Hold])> {
        let used = self.lists[..self.used].iter();
        used.map(|(node, list)| (*node, list.as_slice()))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.used == 0
    }

    /// Forgets all promises, but not the space that they took.
    pub(crate) fn clear(&mut self) {
        for (node, list) in &mut self.lists[..self.used] {
            self.places[*node as usize] = NO_LIST;
            list.clear();
        }
        self.used = 0;
        self.narrowed = false;
    }

    /// Adds promises to those that were made before.
    pub(crate) fn add(&mut self, made: &[(u32, Hold)]) {
        for (node, hold) in made {
            let place = self.place_of(*node);
            let list = &mut self.lists[place].1;
            for earlier in list.iter_mut() {
                if hold.start <= earlier.start && earlier.start < hold.end {
                    self.narrowed = true;
                    take_away(&mut earlier.spare, &hold.needs);
                }
            }
            list.push(hold.clone());
        }
    }

    /// What is kept of a node is this from now on.
    pub(crate) fn set(&mut self, node: u32, holds: Vec<Hold>) {
        let place = self.place_of(node);
        self.lists[place].1 = holds;
        self.narrowed = true;
    }

    /// A job of another starts now on a promised node and outlasts the promise's begin: less is left to others.
    pub(crate) fn take_spare(&mut self, fleet: &Fleet, node: u32, end: Timestamp, want: &Want) {
        let Some(place) = self.place(node) else {
            return;
        };
        let needs = needs_of(fleet, node, want);
        self.narrowed = true;
        let list = self.lists[place].1.iter_mut();
        list.filter(|hold| hold.start < end)
            .for_each(|hold| take_away(&mut hold.spare, &needs));
    }

    fn place(&self, node: u32) -> Option<usize> {
        let place = *self.places.get(node as usize)?;
        (place != NO_LIST).then_some(place as usize)
    }

    /// The node's place in `lists`, which it has from now on.
    fn place_of(&mut self, node: u32) -> usize {
        match self.place(node) {
            Some(place) => place,
            None => self.new_list(node),
        }
    }

    fn new_list(&mut self, node: u32) -> usize {
        if self.places.len() <= node as usize {
            self.places.resize(node as usize + 1, NO_LIST);
        }
        let place = self.used;
        match self.lists.get_mut(place) {
            Some((of, _)) => *of = node,
            None => self.lists.push((node, Vec::with_capacity(1))),
        }
        self.places[node as usize] = u32::try_from(place).expect("fewer than 2^32 nodes");
        self.used += 1;
        place
    }
}
