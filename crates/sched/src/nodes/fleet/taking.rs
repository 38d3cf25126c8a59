//! Takes a share of a node for a job: chooses CPUs and devices, and computes the remaining room.

use super::Fleet;
use crate::nodes::allocations::memory_near;
use crate::nodes::class::{unavailable, whole_granules};
use crate::nodes::cores::{self, ResourceDistance};
use crate::nodes::devices::{devices_near, take_gres};
use crate::nodes::room::{Detail, DeviceRoom, Nearness, Want};
use crate::nodes::sharing::hold;
use crate::nodes::sockets;
use muster_model::cpuset::CpuSet;
use muster_model::ids::NodeIdx;
use muster_model::job::NodeShare;

impl Fleet {
    /// Takes a share of a node for a job of partition `part`: chooses CPUs and devices and reduces
    /// the room.
    pub(crate) fn take(&mut self, node: u32, part: u32, want: &Want) -> NodeShare {
        let cpus = self.cpus_to_take(node, part, want);
        let consumable = self.is_memory_consumable();
        let view = &mut self.nodes[node as usize];
        let class = &self.classes[view.class as usize];
        hold(&mut view.free, &mut view.layers, &cpus);
        let mut gres = Vec::new();
        for part in want.gres_by_socket(class, &cpus) {
            take_gres(class, &mut view.gres_used, &part, &mut gres);
        }
        let mib = if consumable { want.mib } else { 0 };
        view.room.cpus = whole_granules(&view.free, class.granule);
        view.room.mib = view.room.mib.saturating_sub(mib);
        view.room.jobs += 1;
        view.room.exclusive |= want.alone;
        view.room.by_user |= want.only_user;
        if self.by_user {
            view.room.users = view.room.users.with(want.key.user);
        }
        if self.by_label {
            view.room.label = view.room.label.with(want.key.label.as_ref());
        }
        view.room.devices = DeviceRoom::of(class, &view.gres_used);
        let share = NodeShare {
            node: NodeIdx(node),
            name: view.name.clone(),
            memory_mib: mib,
            tasks: want.tasks,
            gres,
            cpus,
        };
        self.note_taken(node, part, want, &share.cpus);
        self.update_trees(node);
        share
    }

    fn is_memory_consumable(&self) -> bool {
        self.config.as_ref().is_some_and(|c| c.memory_is_consumable)
    }

    /// Chooses the CPUs of a node for a job.
    fn cpus_to_take(&self, node: u32, part: u32, want: &Want) -> CpuSet {
        let view = &self.nodes[node as usize];
        let class = &self.classes[view.class as usize];
        let consumable = self.is_memory_consumable();
        let far = |first: u32, end: u32| ResourceDistance {
            devices: !devices_near(class, &view.gres_used, want, first..end),
            memory: consumable && !memory_near(class, &view.allocations, want, first..end),
        };
        let from = self.cpus_to_choose_from(node, part, want);
        // If no single socket has all of the job's devices, the fewest sockets that have them
        // together each give CPUs.
        let apart = || {
            if want.across > 0 || want.gres.is_empty() {
                return false;
            }
            let sockets = sockets::sockets_of(class);
            sockets.len() > 1 && sockets.iter().all(|s| far(s.start, s.end).devices)
        };
        let near = (want.near.clone()).or_else(|| apart().then(Nearness::of_devices));
        let exact = near.and_then(|near| {
            let detail = Detail {
                free: from.clone(),
                gres_used: unavailable(class, &view.gres_used).into_owned(),
            };
            sockets::choose(class, &detail, want, &near)
        });
        let cores = exact.unwrap_or_else(|| match want.across {
            0 => cores::pick(class, &from, want.cpus, far),
            each => sockets::pick_in_turn(class, &from, want.cpus, each, far),
        });
        match &want.open {
            Some(open) if class.by_thread => open.clone(),
            _ => want.threads_of(class, cores),
        }
    }

    /// The CPUs of a node that a job may use.
    fn cpus_to_choose_from(&self, node: u32, part: u32, want: &Want) -> CpuSet {
        let view = &self.nodes[node as usize];
        let class = &self.classes[view.class as usize];
        let part = &self.parts[part as usize];
        let pos = part.pos_of[node as usize] as usize;
        let sharing = part.sharing.as_ref();
        if let Some(sharing) = sharing.filter(|_| want.sharers > 1 && view.room.cpus < want.cpus) {
            return sharing.least_used(class, pos, &view.free, &view.layers, want.cpus);
        }
        let free = (want.open.clone()).unwrap_or_else(|| view.free.clone());
        let open = part.cpus.open(class, pos, &free);
        // If running jobs make room, it was counted without regard to sockets.
        let enough = open.len() >= want.cpus;
        if enough { open } else { free }
    }

    /// Records the CPUs that a job of one of the node's partitions has taken. Jobs in reservations
    /// count as their partition's, as in the state.
    fn note_taken(&mut self, node: u32, part: u32, want: &Want, cpus: &CpuSet) {
        let base = self.parts[part as usize].base;
        for &other in &self.nodes[node as usize].parts {
            let part = &mut self.parts[other as usize];
            let pos = part.pos_of[node as usize] as usize;
            let is_same = part.base == base;
            let shares = is_same && want.sharers > 0;
            if let Some(sharing) = part.sharing.as_mut().filter(|_| !shares) {
                sharing.closed[pos].union_with(cpus);
            }
            if is_same {
                part.cpus.take(pos, cpus);
            }
        }
    }
}
