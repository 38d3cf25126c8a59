//! Free resources of a node, and those that a job takes. Rooms are copied by the million to work out nodes at later times, so a room has nothing
//! on the heap unless its node has devices.

use crate::nodes::class::{GresCount, NodeClass, gres_room};
use muster_model::cpuset::CpuSet;

/// Free resources of a node, counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Room {
    /// It takes jobs: up and not drained.
    pub(crate) usable: bool,
    /// CPUs in whole granules.
    pub(crate) cpus: u32,
    /// Memory, MiB; all of the node's when memory is not handed out.
    pub(crate) mib: u64,
    /// Jobs on it.
    pub(crate) jobs: u32,
    /// Somebody has it alone.
    pub(crate) exclusive: bool,
    /// Free devices; absent on nodes that have none.
    pub(crate) devices: Option<Box<DeviceRoom>>,
    /// The users whose jobs are on it, stopped ones included.
    pub(crate) users: NodeUsers,
    /// It is for them alone.
    pub(crate) by_user: bool,
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

    /// Whether anything that a waiting job could need is more than in `old`.
    pub(crate) fn has_more_than(&self, old: &Room) -> bool {
        (self.usable && !old.usable)
            || self.cpus > old.cpus
            || self.mib > old.mib
            || self.jobs < old.jobs
            || (old.exclusive && !self.exclusive)
            || (old.by_user && !self.by_user)
            || (old.users != self.users && old.users != NodeUsers::None)
            || self.gres().iter().zip(old.gres()).any(|(a, b)| a > b)
    }
}

/// Free devices of a node, counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct DeviceRoom {
    /// Free instances for each of the class's devices; of parts of GPUs, those that a job can have.
    pub(crate) free: Vec<u32>,
    /// Devices that jobs have, kept only where GPUs are shared by parts.
    pub(crate) parts_used: Vec<CpuSet>,
}

impl DeviceRoom {
    /// The free devices if jobs have these; `None` if the class has no devices.
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

/// The users whose jobs are on a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum NodeUsers {
    /// Nobody's.
    #[default]
    None,
    /// One user's, by uid.
    One(u32),
    /// Several users', or it is not known.
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

/// Free CPUs and devices of a node, one by one.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Detail {
    pub(crate) free: CpuSet,
    pub(crate) gres_used: Vec<CpuSet>,
}

/// The resources that a job takes of one node.
#[derive(Clone, Debug)]
pub(crate) struct Want {
    /// CPUs that nobody else can have.
    pub(crate) cpus: u32,
    /// CPUs that it holds of them, and of each core at most, where those are fewer.
    pub(crate) held: Option<(u32, u32)>,
    pub(crate) mib: u64,
    pub(crate) tasks: u32,
    /// Granules that sockets give in turn each time; 0: CPUs are taken of the fewest sockets.
    pub(crate) across: u32,
    pub(crate) gres: Vec<GresCount>,
    /// Locality rules, if the job has any.
    pub(crate) near: Option<Nearness>,
    /// These CPUs, whatever the node keeps for the system.
    pub(crate) open: Option<CpuSet>,
    /// Nobody else may be there.
    pub(crate) alone: bool,
    /// Jobs that may have each of its CPUs at once; 0: they are its own.
    pub(crate) sharers: u32,
    /// Nobody but its owner may be there.
    pub(crate) only_user: bool,
    /// Its owner, where that matters.
    pub(crate) user: Option<u32>,
}

impl Want {
    /// Of whole cores the CPUs that the job holds.
    pub(crate) fn threads_of(&self, class: &NodeClass, cores: CpuSet) -> CpuSet {
        let Some((count, of_core)) = self.held else {
            return cores;
        };
        let granule = class.granule.max(1);
        // One thread of each core before the second of any.
        let of_cores = |thread| cores.iter().filter(move |cpu| cpu % granule == thread);
        let threads = (0..of_core).flat_map(of_cores);
        threads.take(count as usize).collect()
    }
}

/// Locality rules of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Nearness {
    /// No CPUs but those next to the devices.
    pub(crate) enforced: bool,
    /// Devices of each of `sockets` sockets.
    pub(crate) per_socket: Vec<GresCount>,
    /// 0 if that does not matter.
    pub(crate) sockets: u32,
    /// CPUs that a socket gives at most.
    pub(crate) cpus_of_socket: Option<u32>,
}

impl Nearness {
    /// CPUs next to the devices, and nothing else.
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
