//! The nodes as placement sees them: classes of equal nodes, the free room of each node, and for
//! each partition a tree that finds the next node with enough room. The fleet follows the state by
//! node. A pass subtracts room here, and the next pass restores the room of starts that were not
//! committed.

mod allowed;
mod class;
mod fits;
mod held;
mod taking;
mod tree;

use self::class::class_of;
pub(crate) use self::fits::LeastFree;
use self::fits::{Fits, Free};
use self::tree::Tree;
use crate::nodes::allocations::{Changes, NodeAllocation};
use crate::nodes::class::{NOWHERE, NodeClass, whole_granules};
use crate::nodes::class_masks::AskCache;
use crate::nodes::network::{Leaves, Network};
use crate::nodes::part_cpus::{self, PartCpus};
use crate::nodes::reserved::{self, Blocks, ReservationPartition};
use crate::nodes::room::{DeviceRoom, NodeLabel, NodeUsers, Room};
use crate::nodes::settings::Settings;
use crate::nodes::sharing::{
    PartSharing, closed_cpus, kept_for_stopped, label_of, lend, sharing_of, users_of,
    wants_nodes_by_user,
};
use muster_core::policy::mcs::keeps_labels_apart;
use muster_core::state::State;
use muster_model::accounts::Qos;
use muster_model::config::{ClusterConfig, PartitionConfig};
use muster_model::cpuset::CpuSet;
use muster_model::job::NodeShare;
use muster_model::node::Node;
use muster_model::spec::GPU;
use muster_model::time::Timestamp;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

/// A node.
#[derive(Clone, Debug)]
pub(crate) struct NodeView {
    pub(crate) class: u32,
    pub(crate) room: Room,
    pub(crate) name: String,
    pub(crate) free: CpuSet,
    /// CPUs that no job uses and that are kept for stopped jobs.
    kept: CpuSet,
    pub(crate) gres_used: Vec<CpuSet>,
    /// CPUs used by more than one job, by more than two, and so on.
    pub(crate) layers: Vec<CpuSet>,
    /// Partitions of the node.
    pub(crate) parts: Vec<u32>,
    /// Jobs on the node.
    pub(crate) allocations: Vec<NodeAllocation>,
}

/// A copy of a node's free resources at some point of a pass.
#[derive(Debug)]
pub(crate) struct NodeSnapshot {
    room: Room,
    free: CpuSet,
    gres_used: Vec<CpuSet>,
    /// CPUs kept for stopped jobs; the next field has those that several jobs use.
    kept: CpuSet,
    layers: Vec<CpuSet>,
    /// CPUs that jobs of its partitions used, if that is tracked.
    used: Vec<Option<CpuSet>>,
    /// CPUs used by jobs that do not share, by partition, if jobs share there.
    closed: Vec<Option<CpuSet>>,
}

/// A partition.
#[derive(Debug)]
pub(crate) struct PartView {
    pub(crate) config: PartitionConfig,
    /// Its nodes by weight, then leaf of the network, then configuration order.
    pub(crate) order: Vec<u32>,
    /// Node weights, parallel to `order`.
    pub(crate) weights: Vec<u32>,
    /// Index in `order` by node.
    pub(crate) pos_of: Vec<u32>,
    /// Partitions that share nodes, directly or through others, have the same component number.
    pub(crate) component: u32,
    /// Rules for CPUs of its jobs.
    pub(crate) cpus: PartCpus,
    /// Its network, an index in [`Fleet::networks`], and the free CPUs there.
    pub(crate) network: Option<(u32, Leaves)>,
    /// A node became usable or unusable since the last pass.
    pub(crate) changed: bool,
    /// Set if the partition represents a reservation.
    pub(crate) own: Option<ReservationPartition>,
    /// Number of the configured partition: its own number unless it represents a reservation.
    pub(crate) base: u32,
    /// Set if jobs may share CPUs.
    sharing: Option<PartSharing>,
    tree: Tree,
    fits: Fits,
}

impl PartView {
    /// The first place from `from` on whose node may have that much free.
    pub(crate) fn next(&self, from: usize, cpus: u32, mib: u64) -> Option<usize> {
        self.tree.next(from, cpus, mib)
    }

    /// Places of nodes that may have `least` free, the tightest of the lowest weight first; `None` where CPUs are
    /// shared, so that jobs can have more than free ones.
    pub(crate) fn tightest(&self, least: LeastFree) -> Option<impl Iterator<Item = usize> + '_> {
        let own = self.sharing.is_none();
        own.then(|| self.fits.tightest(least))
    }

    /// Whether a node is in the partition.
    pub(crate) fn has(&self, node: u32) -> bool {
        self.place(node).is_some()
    }

    /// A node's place in the partition.
    pub(crate) fn place(&self, node: u32) -> Option<usize> {
        let pos = *self.pos_of.get(node as usize)?;
        (pos != NOWHERE).then_some(pos as usize)
    }

    /// Ends of reservations on its nodes for which jobs outside of the reservation wait.
    pub(crate) fn ends_of_reservations(
        &self,
        fleet: &Fleet,
        now: Timestamp,
    ) -> BTreeSet<Timestamp> {
        let has = |node| self.has(node);
        fleet.blocks.ends(self.own.as_ref(), has, now)
    }

    /// CPUs of the node at `pos` that a sharing job may use.
    pub(crate) fn shared_cpus(&self, pos: usize) -> Option<u32> {
        self.sharing.as_ref().map(|s| s.free[pos])
    }

    /// CPUs of the node at `pos` that jobs of this partition may still take under `MaxCPUsPerNode`.
    pub(crate) fn cpus_left(&self, pos: usize) -> Option<u32> {
        self.cpus.left(pos)
    }
}

/// All nodes and partitions.
#[derive(Debug, Default)]
pub(crate) struct Fleet {
    pub(crate) config: Option<Arc<ClusterConfig>>,
    /// Settings of backfill reservations.
    pub(crate) settings: Settings,
    pub(crate) classes: Vec<NodeClass>,
    /// Room of an empty node, by class.
    pub(crate) empty: Vec<Room>,
    pub(crate) nodes: Vec<NodeView>,
    pub(crate) parts: Vec<PartView>,
    pub(crate) networks: Vec<Network>,
    pub(crate) part_by_name: HashMap<String, u32>,
    /// Partitions that stand for reservations, by reservation and partition.
    pub(crate) part_in: HashMap<(String, String), u32>,
    /// Advance reservations.
    pub(crate) blocks: Blocks,
    /// Some users may get nodes exclusively.
    pub(crate) by_user: bool,
    /// Nodes may be for jobs of one label alone.
    pub(crate) by_label: bool,
    /// Some QOS allows its jobs to start only in reservations.
    pub(crate) qos_restrict: bool,
    /// Granules are cores, and partitions make sure that their jobs get whole sockets.
    cores_by_socket: bool,
    /// The time of the pass.
    pub(crate) now: Timestamp,
    pub(crate) node_by_name: HashMap<String, u32>,
    /// Nodes that have changed.
    pub(crate) changes: Changes,
    /// Number of times a node became usable or unusable.
    pub(crate) flips: u64,
    /// Classes and nodes of the latest requests.
    pub(crate) asks: AskCache,
}

impl Fleet {
    /// Builds the fleet from the state; O(nodes of all partitions).
    pub(crate) fn new(state: &State) -> Fleet {
        let mut fleet = Fleet {
            config: state.config.clone(),
            by_user: wants_nodes_by_user(state),
            by_label: keeps_labels_apart(state),
            qos_restrict: (state.accounts.qos.values())
                .any(|qos| qos.has(Qos::REQUIRES_RESERVATION)),
            settings: state
                .config
                .as_ref()
                .map(|c| Settings::new(c))
                .unwrap_or_default(),
            ..Fleet::default()
        };
        let Some(config) = fleet.config.clone() else {
            return fleet;
        };
        fleet.cores_by_socket = part_cpus::sockets_by_partition(&config, &state.partitions);
        let mut classes: HashMap<NodeClass, u32> = HashMap::new();
        for node in &state.nodes {
            let class = class_of(node, &config, fleet.cores_by_socket);
            let next = index(classes.len());
            let number = *classes.entry(class.clone()).or_insert_with(|| {
                fleet.classes.push(class);
                next
            });
            fleet.nodes.push(NodeView {
                class: number,
                room: Room::default(),
                name: node.config.name.clone(),
                free: CpuSet::default(),
                kept: CpuSet::default(),
                gres_used: Vec::new(),
                layers: Vec::new(),
                parts: Vec::new(),
                allocations: Vec::new(),
            });
            fleet
                .node_by_name
                .insert(node.config.name.clone(), node.idx.0);
        }
        fleet.empty = fleet
            .classes
            .iter()
            .map(|c| Fleet::empty_room(c, true))
            .collect();
        let mut networks: HashMap<&str, u32> = HashMap::new();
        for topology in &config.topologies {
            if let Some(network) = Network::new(topology, state) {
                networks.insert(&topology.name, index(fleet.networks.len()));
                fleet.networks.push(network);
            }
        }
        let default = config.topologies.iter().find(|t| t.cluster_default);
        let network_of = |part: &PartitionConfig| {
            let name = part.topology.as_ref().or(default.map(|t| &t.name));
            name.and_then(|name| networks.get(name.as_str())).copied()
        };
        for part in &state.partitions {
            fleet.add_partition(state, part, network_of(part), None);
        }
        fleet.blocks = Blocks::new(state);
        for (part, own) in reserved::partitions(state) {
            fleet.add_partition(state, &part, network_of(&part), Some(own));
        }
        for node in 0..fleet.nodes.len() {
            fleet.sync(state, index(node));
        }
        fleet.number_components();
        fleet
    }

    fn add_partition(
        &mut self,
        state: &State,
        config: &PartitionConfig,
        network: Option<u32>,
        own: Option<ReservationPartition>,
    ) {
        let number = index(self.parts.len());
        let mut order: Vec<u32> = config
            .nodes
            .iter()
            .filter_map(|name| state.node_by_name.get(name).map(|i| i.0))
            .filter(|&i| (i as usize) < self.nodes.len())
            .collect();
        let leaf =
            |node: u32| network.map_or(0, |n| self.networks[n as usize].leaf_of[node as usize]);
        let weight = |i: u32| effective_weight(&state.nodes[i as usize]);
        order.sort_unstable_by_key(|&i| (weight(i), leaf(i), i));
        order.dedup();
        let mut pos_of = vec![NOWHERE; self.nodes.len()];
        for (pos, &node) in order.iter().enumerate() {
            pos_of[node as usize] = index(pos);
            self.nodes[node as usize].parts.push(number);
        }
        let configured = self.part_by_name.get(&config.name);
        let base = configured.filter(|_| own.is_some()).map_or(number, |n| *n);
        match &own {
            None => self.part_by_name.insert(config.name.clone(), number),
            Some(own) => {
                let reservation = self.blocks.all[own.at as usize].record.name.clone();
                let key = (reservation, config.name.clone());
                self.part_in.insert(key, number)
            }
        };
        self.parts.push(PartView {
            tree: Tree::new(order.len()),
            fits: Fits::new(order.len()),
            weights: order.iter().map(|&i| weight(i)).collect(),
            cpus: PartCpus::new(
                self.config.as_ref().unwrap_or(&Arc::default()),
                config,
                (order.len(), self.cores_by_socket),
            ),
            network: network.map(|n| (n, Leaves::new(&self.networks[n as usize], &order))),
            sharing: sharing_of(config, order.len()),
            config: config.clone(),
            order,
            pos_of,
            component: number,
            changed: true,
            own,
            base,
        });
    }

    fn number_components(&mut self) {
        let mut root: Vec<u32> = (0..index(self.parts.len())).collect();
        fn find(root: &[u32], mut at: u32) -> u32 {
            while root[at as usize] != at {
                at = root[at as usize];
            }
            at
        }
        for node in &self.nodes {
            for pair in node.parts.windows(2) {
                let (a, b) = (find(&root, pair[0]), find(&root, pair[1]));
                root[a.max(b) as usize] = a.min(b);
            }
        }
        for part in 0..self.parts.len() {
            self.parts[part].component = find(&root, index(part));
        }
    }

    /// Whether the node's registration puts it into another class.
    pub(crate) fn is_another(&self, state: &State, node: u32) -> bool {
        let view = self.nodes.get(node as usize);
        let (Some(view), Some(source)) = (view, state.nodes.get(node as usize)) else {
            return true;
        };
        let class = &self.classes[view.class as usize];
        let config = self.config.as_ref();
        config.is_some_and(|config| class_of(source, config, self.cores_by_socket) != *class)
    }

    /// Reads a node again; returns whether it has more room than assumed.
    pub(crate) fn sync(&mut self, state: &State, node: u32) -> bool {
        let Some(source) = state.nodes.get(node as usize) else {
            return false;
        };
        let undone = self.forget_proposed(node);
        let by_user = self.by_user;
        let view = &mut self.nodes[node as usize];
        let class = &self.classes[view.class as usize];
        let consumable = self.config.as_ref().is_some_and(|c| c.memory_is_consumable);
        let mut same = !undone && source.stopped == 0 && view.kept.is_empty();
        same &= view.free == source.free_cpus
            && view.gres_used == source.used_gres
            && view.layers == source.shared_cpus;
        if !same {
            view.free.clone_from(&source.free_cpus);
            view.gres_used.clone_from(&source.used_gres);
            view.layers.clone_from(&source.shared_cpus);
            view.kept = CpuSet::default();
        }
        if source.stopped > 0 {
            view.kept = kept_for_stopped(state, source);
            view.free.subtract(&view.kept);
        }
        let room = Room {
            usable: source.is_usable(),
            cpus: whole_granules(&view.free, class.granule),
            mib: if consumable {
                class.mib.saturating_sub(source.used_mib)
            } else {
                class.mib
            },
            jobs: index(source.jobs.len()).saturating_sub(source.stopped),
            exclusive: source.exclusive,
            devices: DeviceRoom::of(class, &view.gres_used),
            users: users_of(state, source, by_user),
            by_user: source.only_user.is_some(),
            label: label_of(source, self.by_label),
        };
        let more = room.has_more_than(&view.room);
        let flipped = room.usable != view.room.usable;
        // A start that was planned is not a change.
        same &= room == view.room;
        view.room = room;
        self.flips += u64::from(flipped);
        for place in 0..self.nodes[node as usize].parts.len() {
            let part = self.nodes[node as usize].parts[place];
            let part = &mut self.parts[part as usize];
            part.changed |= flipped;
            same &= part.sharing.is_none() && !part.cpus.rule.bounds();
            let pos = part.pos_of[node as usize] as usize;
            part.cpus.sync(pos, state, source, &part.config.name);
            if let Some(sharing) = &mut part.sharing {
                let pos = part.pos_of[node as usize] as usize;
                sharing.closed[pos] = closed_cpus(state, source, &part.config.name);
            }
        }
        if !same {
            self.update_trees(node);
        }
        more
    }

    fn update_trees(&mut self, node: u32) {
        self.changes.note(node);
        let view = &self.nodes[node as usize];
        let open = view.room.usable && !view.room.exclusive;
        let value = if open {
            (view.room.cpus, view.room.mib)
        } else {
            (0, 0)
        };
        let gpus = free_gpus(&self.classes[view.class as usize], &view.room);
        for &part in &view.parts {
            let part = &mut self.parts[part as usize];
            let pos = part.pos_of[node as usize] as usize;
            let mut value = value;
            if let Some(sharing) = &mut part.sharing {
                let class = &self.classes[view.class as usize];
                let cpus = sharing.cpus(class, pos, &view.layers);
                sharing.free[pos] = whole_granules(&cpus, class.granule);
                if open {
                    value = (value.0.max(sharing.free[pos]), view.room.mib);
                }
            }
            part.tree.set(pos, value);
            let free = Free {
                gpus,
                cpus: value.0,
                mib: value.1,
            };
            part.fits.set(pos, part.weights[pos], free);
            if let Some((_, leaves)) = &mut part.network {
                leaves.set(pos, value.0, view.room.jobs > 0);
            }
        }
    }

    /// A copy of the node's free resources, for restoring them.
    pub(crate) fn keep(&self, node: u32) -> NodeSnapshot {
        let view = &self.nodes[node as usize];
        let used = view.parts.iter().map(|&part| {
            let part = &self.parts[part as usize];
            let pos = part.pos_of[node as usize] as usize;
            part.cpus.held(pos)
        });
        let closed = view.parts.iter().map(|&part| {
            let part = &self.parts[part as usize];
            let pos = part.pos_of[node as usize] as usize;
            part.sharing.as_ref().map(|s| s.closed[pos].clone())
        });
        NodeSnapshot {
            room: view.room.clone(),
            free: view.free.clone(),
            gres_used: view.gres_used.clone(),
            kept: view.kept.clone(),
            layers: view.layers.clone(),
            used: used.collect(),
            closed: closed.collect(),
        }
    }

    /// Undoes everything that was taken from a node since [`Fleet::keep`].
    pub(crate) fn restore(&mut self, node: u32, kept: NodeSnapshot) {
        let view = &mut self.nodes[node as usize];
        (view.room, view.free, view.gres_used) = (kept.room, kept.free, kept.gres_used);
        (view.kept, view.layers) = (kept.kept, kept.layers);
        let before = kept.used.into_iter().zip(kept.closed);
        for (&part, (cpus, closed)) in view.parts.iter().zip(before) {
            let part = &mut self.parts[part as usize];
            let pos = part.pos_of[node as usize] as usize;
            if let Some(cpus) = cpus {
                part.cpus.set_held(pos, cpus);
            }
            if let (Some(sharing), Some(closed)) = (&mut part.sharing, closed) {
                sharing.closed[pos] = closed;
            }
        }
        self.update_trees(node);
    }

    /// Lends the CPUs of a job that is stopped, or is being stopped now, to a job with precedence.
    /// Returns the CPUs that became free.
    pub(crate) fn free_stopped(&mut self, share: &NodeShare, stops_now: bool) -> CpuSet {
        let view = &mut self.nodes[share.node.0 as usize];
        let class = &self.classes[view.class as usize];
        let mut cpus = if stops_now {
            lend(&mut view.layers, &share.cpus)
        } else {
            share.cpus.clone()
        };
        cpus.intersect_with(if stops_now { &class.open } else { &view.kept });
        view.kept.subtract(&cpus);
        view.free.union_with(&cpus);
        view.room.cpus = whole_granules(&view.free, class.granule);
        view.room.jobs = view.room.jobs.saturating_sub(u32::from(stops_now));
        view.room.exclusive &= view.room.jobs > 0;
        self.update_trees(share.node.0);
        cpus
    }

    /// Keeps the rest of these CPUs for stopped jobs.
    pub(crate) fn keep_for_stopped(&mut self, node: u32, cpus: &CpuSet) {
        let view = &mut self.nodes[node as usize];
        let class = &self.classes[view.class as usize];
        let mut left = cpus.clone();
        left.intersect_with(&view.free);
        view.free.subtract(&left);
        view.kept.union_with(&left);
        view.room.cpus = whole_granules(&view.free, class.granule);
        self.update_trees(node);
    }

    /// CPUs of a node used by more than one job, by more than two, and so on.
    pub(crate) fn layers(&self, node: u32) -> &[CpuSet] {
        &self.nodes[node as usize].layers
    }

    /// Free CPUs of a node that are kept for stopped jobs.
    pub(crate) fn kept_for_stopped(&self, node: u32) -> &CpuSet {
        &self.nodes[node as usize].kept
    }

    /// CPUs of a node that no job uses.
    pub(crate) fn free_cpus(&self, node: u32) -> &CpuSet {
        &self.nodes[node as usize].free
    }

    /// Hides free CPUs of a node; returns those that were free.
    pub(crate) fn hide_cpus(&mut self, node: u32, hidden: &CpuSet) -> CpuSet {
        let view = &mut self.nodes[node as usize];
        let mut kept = view.free.clone();
        view.free.subtract(hidden);
        kept.subtract(&view.free);
        kept
    }

    /// Makes hidden CPUs visible again.
    pub(crate) fn show_cpus(&mut self, node: u32, kept: &CpuSet) {
        let view = &mut self.nodes[node as usize];
        view.free.union_with(kept);
        let class = &self.classes[view.class as usize];
        view.room.cpus = whole_granules(&view.free, class.granule);
        self.update_trees(node);
    }

    /// The nodes as jobs of this partition see them.
    pub(crate) fn of_part(&self, part: u32) -> PartFleet<'_> {
        PartFleet {
            fleet: self,
            part: &self.parts[part as usize],
        }
    }

    /// Empties every node.
    pub(crate) fn clear(&mut self) {
        for node in 0..index(self.nodes.len()) {
            let view = &mut self.nodes[node as usize];
            view.room = self.empty[view.class as usize].clone();
            view.free = self.classes[view.class as usize].open.clone();
            view.gres_used.clear();
            view.layers.clear();
            view.kept = CpuSet::default();
            for &part in &view.parts {
                let part = &mut self.parts[part as usize];
                let pos = part.pos_of[node as usize] as usize;
                part.cpus.set_held(pos, CpuSet::default());
                if let Some(sharing) = &mut part.sharing {
                    sharing.closed[pos] = CpuSet::default();
                }
            }
            view.allocations.clear();
            self.update_trees(node);
        }
    }

    /// The room of an empty node of this class.
    pub(crate) fn empty_room(class: &NodeClass, usable: bool) -> Room {
        Room {
            usable,
            cpus: class.job_cpus(),
            mib: class.mib,
            jobs: 0,
            exclusive: false,
            devices: DeviceRoom::of(class, &[]),
            users: NodeUsers::None,
            by_user: false,
            label: NodeLabel::Any,
        }
    }
}

/// The nodes as jobs of one partition see them.
#[derive(Clone, Copy)]
pub(crate) struct PartFleet<'a> {
    pub(crate) fleet: &'a Fleet,
    pub(crate) part: &'a PartView,
}

/// Number of free GPUs of a node plus one; 0 if the node has no GPUs.
pub(crate) fn free_gpus(class: &NodeClass, room: &Room) -> u32 {
    let all = class.gres.iter().zip(room.gres());
    let gpus = all.filter(|(gres, _)| gres.name == GPU);
    gpus.fold(0, |sum, (_, free)| sum.max(1) + free)
}

fn index(n: usize) -> u32 {
    u32::try_from(n).expect("the cluster has fewer than 2^32 nodes, partitions and jobs per node")
}

/// A node's weight; nodes that must be powered up first come after all others.
fn effective_weight(node: &Node) -> u32 {
    let asleep = if node.is_powered_down() { 1 << 31 } else { 0 };
    (node.config.weight & !(1 << 31)) | asleep
}
