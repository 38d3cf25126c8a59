//! Free resources of a node, counted. Rooms are copied by the million to work out nodes at later times, so a room has nothing
//! on the heap unless its node has devices.

use super::NodeClass;
use super::devices::gres_room;
use crate::nodes::sharing::NodeUsers;
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
