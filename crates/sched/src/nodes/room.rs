//! Free resources of a node, and the resources that a job takes. Rooms are copied by the million to
//! compute nodes at later times, so a room uses the heap only if its node has devices.

use crate::nodes::class::{GresCount, NodeClass, gres_room};
use muster_model::cpuset::CpuSet;
use std::sync::Arc;

/// Free resources of a node, counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Room {
    /// The node accepts jobs: it is up and not drained.
    pub(crate) usable: bool,
    /// CPUs in whole granules.
    pub(crate) cpus: u32,
    /// Memory in MiB; all memory of the node if memory is not allocated to jobs.
    pub(crate) mib: u64,
    /// Number of jobs on the node.
    pub(crate) jobs: u32,
    /// A job uses the node exclusively.
    pub(crate) exclusive: bool,
    /// Free devices; absent on nodes that have none.
    pub(crate) devices: Option<Box<DeviceRoom>>,
    /// Users of the jobs on the node, including stopped jobs.
    pub(crate) users: NodeUsers,
    /// The node is exclusive to these users.
    pub(crate) by_user: bool,
    /// Label of the jobs on the node, including stopped jobs.
    pub(crate) label: NodeLabel,
}

impl Room {
    /// Free instances for each of the class's devices.
    pub(crate) fn gres(&self) -> &[u32] {
        self.devices.as_ref().map_or(&[], |devices| &devices.free)
    }

    /// The free devices, to change them.
    pub(crate) fn gres_mut(&mut self) -> &mut [u32] {
        let devices = self.devices.as_mut();
        devices.map_or(&mut [], |devices| &mut devices.free)
    }

    /// Whether a resource that a waiting job could need has increased compared with `old`.
    pub(crate) fn has_more_than(&self, old: &Room) -> bool {
        (self.usable && !old.usable)
            || self.cpus > old.cpus
            || self.mib > old.mib
            || self.jobs < old.jobs
            || (old.exclusive && !self.exclusive)
            || (old.by_user && !self.by_user)
            || (old.users != self.users && old.users != NodeUsers::None)
            || (old.label != self.label && old.label != NodeLabel::Any)
            || self.gres().iter().zip(old.gres()).any(|(a, b)| a > b)
    }
}

/// Free devices of a node, counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct DeviceRoom {
    /// Free instances for each of the class's devices; for parts of GPUs, the number that a job can
    /// get.
    pub(crate) free: Vec<u32>,
    /// Devices in use; tracked only if GPUs are shared by parts.
    pub(crate) parts_used: Vec<CpuSet>,
}

impl DeviceRoom {
    /// The free devices while jobs use these; `None` if the class has no devices.
    pub(crate) fn of(class: &NodeClass, used: &[CpuSet]) -> Option<Box<DeviceRoom>> {
        let parts_used = match class.parts.is_empty() {
            true => Vec::new(),
            false => used.to_vec(),
        };
        (!class.gres.is_empty()).then(|| {
            Box::new(DeviceRoom {
                free: gres_room(class, used),
                parts_used,
            })
        })
    }
}

/// Users whose jobs are on a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum NodeUsers {
    /// No user.
    #[default]
    None,
    /// One user, by uid.
    One(u32),
    /// Several users, or unknown.
    Many,
}

impl NodeUsers {
    pub(crate) fn with(self, user: Option<u32>) -> NodeUsers {
        match (self, user) {
            (NodeUsers::None, Some(uid)) => NodeUsers::One(uid),
            (NodeUsers::One(uid), Some(other)) if uid == other => self,
            _ => NodeUsers::Many,
        }
    }
}

/// The label that jobs must have beside those on a node (`MCSParameters`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum NodeLabel {
    /// Any or none: no job is there, or nodes are not kept apart by labels.
    #[default]
    Any,
    /// None.
    Without,
    /// This one.
    One(Arc<str>),
    /// None will do: the jobs there were started under another configuration.
    Mixed,
}

impl NodeLabel {
    /// Whether a job may be on the node that keeps its nodes for this label, or for none.
    pub(crate) fn admits(&self, label: Option<&Arc<str>>) -> bool {
        match self {
            NodeLabel::Any => true,
            NodeLabel::Without => label.is_none(),
            NodeLabel::One(own) => label == Some(own),
            NodeLabel::Mixed => false,
        }
    }

    /// Label of a node with one more job.
    pub(crate) fn with(&self, label: Option<&Arc<str>>) -> NodeLabel {
        match (self.admits(label), label) {
            (false, _) => NodeLabel::Mixed,
            (true, None) => NodeLabel::Without,
            (true, Some(label)) => NodeLabel::One(Arc::clone(label)),
        }
    }
}

/// The properties of a job's owner that decide with which jobs it may share nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct SharingKey {
    /// The owner, if users get nodes exclusively.
    pub(crate) user: Option<u32>,
    /// The label for which its nodes are kept.
    pub(crate) label: Option<Arc<str>>,
}

/// Individual free CPUs and devices of a node.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Detail {
    pub(crate) free: CpuSet,
    pub(crate) gres_used: Vec<CpuSet>,
}

/// The resources that a job takes on one node.
#[derive(Clone, Debug)]
pub(crate) struct Want {
    /// CPUs that no other job can use.
    pub(crate) cpus: u32,
    /// Number of those CPUs that the job holds, and the maximum per core, if the job holds fewer.
    pub(crate) held: Option<(u32, u32)>,
    pub(crate) mib: u64,
    pub(crate) tasks: u32,
    /// Granules taken from each socket per turn; 0: CPUs are taken from the fewest sockets.
    pub(crate) across: u32,
    pub(crate) gres: Vec<GresCount>,
    /// Locality rules, if the job has any.
    pub(crate) near: Option<Nearness>,
    /// Exactly these CPUs, including CPUs reserved for the system.
    pub(crate) open: Option<CpuSet>,
    /// No other job may use the node.
    pub(crate) alone: bool,
    /// Number of jobs that may share each CPU; 0: CPUs are exclusive.
    pub(crate) sharers: u32,
    /// Only jobs of the same owner may use the node.
    pub(crate) only_user: bool,
    /// Owner and label of the job, if they matter.
    pub(crate) key: SharingKey,
}

impl Want {
    /// The CPUs of whole cores that the job holds.
    pub(crate) fn threads_of(&self, class: &NodeClass, cores: CpuSet) -> CpuSet {
        let Some((count, of_core)) = self.held else {
            return cores;
        };
        let granule = class.granule.max(1);
        // Takes one thread of each core before the second thread of any.
        let of_cores = |thread| cores.iter().filter(move |cpu| cpu % granule == thread);
        let threads = (0..of_core).flat_map(of_cores);
        threads.take(count as usize).collect()
    }
}

/// Locality rules of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Nearness {
    /// Take only CPUs next to the devices.
    pub(crate) enforced: bool,
    /// Devices on each of `sockets` sockets.
    pub(crate) per_socket: Vec<GresCount>,
    /// Number of sockets; 0 if it does not matter.
    pub(crate) sockets: u32,
    /// Maximum number of CPUs per socket.
    pub(crate) cpus_of_socket: Option<u32>,
}

impl Nearness {
    /// Only requires CPUs next to the devices.
    pub(crate) fn of_devices() -> Nearness {
        Nearness {
            enforced: true,
            per_socket: Vec::new(),
            sockets: 0,
            cpus_of_socket: None,
        }
    }
}

/// Devices to take next to some CPUs.
pub(crate) struct NearbyDevices<'a> {
    pub(crate) name: &'a str,
    pub(crate) kind: Option<&'a str>,
    pub(crate) count: u64,
    pub(crate) cpus: CpuSet,
}
