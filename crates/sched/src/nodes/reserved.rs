//! Advance reservations as placement sees them: the resources of nodes that each reservation has,
//! and when. Jobs of a reservation are placed in a partition that represents it (see
//! [`ReservationPartition`]) and has its nodes in the order of the real partition.

use crate::nodes::room::Room;
use muster_core::state::State;
use muster_model::config::PartitionConfig;
use muster_model::cpuset::CpuSet;
use muster_model::ids::JobId;
use muster_model::job::{Job, Reason};
use muster_model::reservation::{Flags, Reservation, RunWindow};
use muster_model::time::Timestamp;
use std::borrow::Cow;
use std::collections::BTreeSet;

/// A reservation and its resources.
#[derive(Debug)]
pub(crate) struct ReservedResources {
    pub(crate) record: Reservation,
    /// CPUs by node; nodes reserved as a whole are not listed.
    cpus: std::collections::HashMap<u32, CpuSet>,
}

/// All reservations, and an index by node.
#[derive(Debug, Default)]
pub(crate) struct Blocks {
    pub(crate) all: Vec<ReservedResources>,
    /// Positions in `all` by node; empty without reservations.
    pub(crate) on_node: Vec<Vec<u32>>,
}

/// The purpose of a partition that represents a reservation.
#[derive(Clone, Debug)]
pub(crate) struct ReservationPartition {
    /// Position of the reservation.
    pub(crate) at: u32,
    /// Jobs of the reservation may start now.
    pub(crate) open: bool,
    /// Its jobs are not limited to its nodes and times (`FLEX`).
    pub(crate) flex: bool,
    /// Its jobs may use resources of other reservations (`MAINT`, `OVERLAP`).
    pub(crate) above: bool,
}

impl Blocks {
    /// Builds the reservations from the state; O(nodes reserved).
    pub(crate) fn new(state: &State) -> Blocks {
        let mut blocks = Blocks::default();
        for record in state.reservations.iter() {
            let at = u32::try_from(blocks.all.len()).expect("fewer than 2^32 reservations");
            blocks.on_node.resize(state.nodes.len(), Vec::new());
            let mut cpus = std::collections::HashMap::new();
            for entry in &record.nodes {
                let Some(list) = blocks.on_node.get_mut(entry.node.0 as usize) else {
                    continue;
                };
                list.push(at);
                if let Some(set) = &entry.cpus {
                    cpus.insert(entry.node.0, set.clone());
                }
            }
            let record = record.clone();
            blocks.all.push(ReservedResources { record, cpus });
        }
        blocks
    }

    /// Other reservations of a node that overlap a run of a job of the partition there.
    fn in_the_way(
        &self,
        own: Option<&ReservationPartition>,
        node: u32,
        window: RunWindow,
    ) -> impl Iterator<Item = &ReservedResources> {
        let list = self
            .on_node
            .get(node as usize)
            .map_or(&[][..], Vec::as_slice);
        list.iter()
            .filter(move |&&at| own.is_none_or(|own| own.at != at && !own.above))
            .map(|&at| &self.all[at as usize])
            .filter(move |r| r.record.meets(window.now, window.start, window.end))
    }

    /// Narrows a node's room to the part that reservations leave to a job of the partition that runs in this window;
    /// returns whether that is less for maintenance or for others.
    pub(crate) fn narrow<'r>(
        &self,
        own: Option<&ReservationPartition>,
        node: u32,
        window: RunWindow,
        room: Cow<'r, Room>,
    ) -> (Cow<'r, Room>, Option<Reason>) {
        if self.on_node.get(node as usize).is_none_or(Vec::is_empty) {
            return (room, None);
        }
        let mut room = room;
        let mut why = None;
        let of_use = room.usable && !room.exclusive && room.cpus > 0;
        for other in self.in_the_way(own, node, window) {
            why = Some(if other.record.flags.has(Flags::MAINT) {
                Reason::ReservedForMaintenance
            } else {
                why.unwrap_or(Reason::NodesReserved)
            });
            match other.cpus.get(&node) {
                None => room.to_mut().usable = false,
                Some(cpus) => {
                    // Which of the reserved CPUs are free is known only for the present.
                    let left = room.cpus.saturating_sub(cpus.len());
                    room.to_mut().cpus = left;
                }
            }
        }
        if let Some(own) = own.filter(|own| !own.flex)
            && let Some(cpus) = self.all[own.at as usize].cpus.get(&node)
            && cpus.len() < room.cpus
        {
            room.to_mut().cpus = cpus.len();
        }
        (room, why.filter(|_| of_use))
    }

    /// CPUs of a node that no job uses but that a job of the partition may not get.
    pub(crate) fn hidden(
        &self,
        own: Option<&ReservationPartition>,
        node: u32,
        cpus: u32,
        window: RunWindow,
    ) -> CpuSet {
        let mut hidden = CpuSet::default();
        for other in self.in_the_way(own, node, window) {
            match other.cpus.get(&node) {
                Some(cpus) => hidden.union_with(cpus),
                None => hidden.union_with(&CpuSet::first(cpus)),
            }
        }
        if let Some(own) = own.filter(|own| !own.flex)
            && let Some(mine) = self.all[own.at as usize].cpus.get(&node)
        {
            let mut rest = CpuSet::first(cpus);
            rest.subtract(mine);
            hidden.union_with(&rest);
        }
        hidden
    }

    /// Whether single cores of a node are reserved.
    pub(crate) fn by_core(&self, node: u32) -> bool {
        let list = self
            .on_node
            .get(node as usize)
            .map_or(&[][..], Vec::as_slice);
        list.iter()
            .any(|&at| self.all[at as usize].cpus.contains_key(&node))
    }

    /// Ends of reservations on a partition's nodes (`has`) for which jobs outside of the
    /// reservation wait.
    pub(crate) fn ends(
        &self,
        own: Option<&ReservationPartition>,
        has: impl Fn(u32) -> bool,
        now: Timestamp,
    ) -> BTreeSet<Timestamp> {
        /// Number of occurrences whose ends are considered.
        const AHEAD: usize = 8;
        let mut ends = BTreeSet::new();
        for (reserved, at) in self.all.iter().zip(0..) {
            if own.is_some_and(|own| own.at == at || own.above) {
                continue;
            }
            let nodes = &reserved.record.nodes;
            if !nodes.iter().any(|n| has(n.node.0)) {
                continue;
            }
            let all = reserved.record.occurrences(now).take(AHEAD);
            ends.extend(all.map(|(_, end)| end).filter(|end| *end > now));
        }
        ends
    }
}

/// The reservations in which a job may run, in its order, and whether it may run outside of them.
pub(crate) fn places_of(state: &State, job: &Job) -> (Vec<String>, bool) {
    let (owner, accounts) = (&job.spec.owner, &state.accounts);
    let account = job.spec.account_name();
    if job.spec.reservation.is_some() {
        // Jobs from an older journal may name a reservation more than once.
        let mut seen = BTreeSet::new();
        let named = job.spec.reservations().filter(|name| seen.insert(*name));
        // Groups other than the primary one were looked at when it asked.
        let admits = |r: &Reservation| r.still_admits(accounts, &owner.user, account);
        let known = named.filter(|name| state.reservations.get(name).is_some_and(admits));
        return (known.map(str::to_owned).collect(), false);
    }
    let admits = |r: &Reservation| r.admits(accounts, &owner.user, &[&owner.group], account);
    let magnetic = |r: &&Reservation| r.flags.has(Flags::MAGNETIC) && admits(r);
    let names = state.reservations.iter().filter(magnetic);
    (names.map(|r| r.name.clone()).collect(), true)
}

/// Partitions that stand for reservations: for each reservation, the partitions that contain one of
/// its nodes.
pub(crate) fn partitions(state: &State) -> Vec<(PartitionConfig, ReservationPartition)> {
    let mut out = Vec::new();
    for (record, at) in state.reservations.iter().zip(0u32..) {
        // Reservations of licenses only have no nodes.
        let flex = record.flags.has(Flags::FLEX.with(Flags::ANY_NODES));
        let own = ReservationPartition {
            at,
            open: record.is_open(),
            flex,
            above: record.overlaps_others(),
        };
        let names: BTreeSet<&str> = record.nodes.iter().map(|n| n.name.as_str()).collect();
        for config in &state.partitions {
            let mut config = config.clone();
            if !flex {
                config.nodes.retain(|n| names.contains(n.as_str()));
            }
            if !config.nodes.is_empty() {
                out.push((config, own.clone()));
            }
        }
    }
    out
}

/// Jobs that may start in a reservation whose time has begun.
pub(crate) fn waiting_for<'s>(state: &'s State, name: &str) -> impl Iterator<Item = JobId> + 's {
    let jobs = state.by_reservation.get(name);
    jobs.into_iter().flatten().copied()
}
