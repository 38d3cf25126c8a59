//! Devices that a job needs, per node, socket, task or for the whole job, and the CPUs and memory
//! allocated with GPUs. The devices of nodes are in `fleet`.

use crate::demand::pick::{JobShare, Pick, SHARES_MAX};
use crate::nodes::class::{GresCount, NodeClass};
use crate::nodes::devices::by_one_entry;
use crate::nodes::room::{Nearness, Room};
use crate::nodes::sockets::is_a;
use muster_model::gpu_parts::is_part;
use muster_model::job::Reason;
use muster_model::spec::{DeviceBinding, GPU, GresAsk, ResourceAsk};
use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// Devices above this number per node are only counted: a job on whole nodes does not get all of
/// them.
const TRACKED_MAX: u64 = 1024;

/// Available resources of a node.
#[derive(Clone, Copy)]
pub(crate) struct Available<'a> {
    /// CPUs that tasks may use.
    pub(crate) usable: u32,
    /// Memory that each GPU takes.
    pub(crate) mib_of_gpu: u64,
    /// Memory that the job may have.
    pub(crate) mib: u64,
    pub(crate) room: &'a Room,
}

/// The devices that a job requests.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct DeviceDemand {
    /// Devices on each node, in whatever unit they were requested.
    fixed: Vec<GresCount>,
    /// Devices for each task, in addition.
    per_task: Vec<GresCount>,
    /// Devices for each task out of the fixed ones of a node: they limit the tasks of a node.
    tasks_at_most: Option<u32>,
    /// Devices on each of a number of sockets; they are part of `fixed` too.
    per_socket: Vec<GresCount>,
    sockets: u32,
    /// Devices for the whole job.
    per_job: Vec<GresCount>,
    tasks_per_gpu: Option<u32>,
    cpus_per_gpu: u32,
    enforced: bool,
    /// All devices of the nodes.
    whole: bool,
}

fn counted(gres: &GresAsk, times: u64) -> GresCount {
    let count = gres.count.saturating_mul(times);
    GresCount {
        name: gres.name.clone(),
        kind: gres.kind.clone(),
        count,
    }
}

fn same(a: &GresCount, b: &GresCount) -> bool {
    (&a.name, &a.kind) == (&b.name, &b.kind)
}

/// Number of GPUs in a list.
pub(crate) fn gpus(list: &[GresCount]) -> u64 {
    let gpus = list.iter().filter(|gres| gres.name == GPU);
    gpus.map(|gres| gres.count).sum()
}

fn least(n: u64) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

impl DeviceDemand {
    /// The devices that the job requests; with `whole`, also all others of its nodes.
    ///
    /// # Errors
    /// The job requests more kinds of devices for the whole job than are supported.
    pub(crate) fn new(ask: &ResourceAsk, whole: bool) -> Result<DeviceDemand, Reason> {
        let devices = ask.devices();
        let sockets = ask.sockets_per_node.unwrap_or(1).max(1);
        let per_socket: Vec<GresCount> = devices.per_socket.iter().map(|g| counted(g, 1)).collect();
        let mut fixed: Vec<GresCount> = ask.gres.iter().map(|g| counted(g, 1)).collect();
        for gres in &devices.per_socket {
            let all = counted(gres, u64::from(sockets));
            match fixed.iter_mut().find(|known| same(known, &all)) {
                Some(known) => known.count = known.count.max(all.count),
                None => fixed.push(all),
            }
        }
        let (mut per_task, mut tasks_at_most) = (Vec::new(), None);
        for gres in devices.per_task.iter().filter(|g| g.count > 0) {
            let each = counted(gres, 1);
            match fixed.iter().find(|known| same(known, &each)) {
                Some(known) => {
                    let most = least(known.count / each.count);
                    tasks_at_most = Some(tasks_at_most.map_or(most, |n: u32| n.min(most)));
                }
                None => per_task.push(each),
            }
        }
        let is_counted = |w: &GresCount| fixed.iter().chain(&per_task).any(|known| same(known, w));
        let mut per_job: Vec<GresCount> = devices.per_job.iter().map(|g| counted(g, 1)).collect();
        per_job.retain(|w| w.count > 0 && !is_counted(w));
        if per_job.len() > SHARES_MAX {
            return Err(Reason::BadConstraints);
        }
        Ok(DeviceDemand {
            fixed,
            per_task,
            tasks_at_most,
            sockets: if per_socket.is_empty() { 0 } else { sockets },
            per_socket,
            tasks_per_gpu: devices.ntasks_per_gpu.filter(|_| !per_job.is_empty()),
            per_job,
            cpus_per_gpu: devices.cpus_per_gpu.unwrap_or(0),
            enforced: devices.binding == DeviceBinding::Enforced,
            whole,
        })
    }

    /// The site requires CPUs next to the devices.
    pub(crate) fn enforce(&mut self) {
        self.enforced = true;
    }

    /// Sets the number of CPUs per GPU if the job does not.
    pub(crate) fn default_cpus_per_gpu(&mut self, cpus: u32) {
        if self.cpus_per_gpu == 0 {
            self.cpus_per_gpu = cpus;
        }
    }

    /// Raises the CPUs that go with each GPU to this number at least.
    pub(crate) fn raise_cpus_per_gpu(&mut self, least: u64) {
        let least = u32::try_from(least).unwrap_or(u32::MAX);
        self.cpus_per_gpu = self.cpus_per_gpu.max(least);
    }

    /// Whether there is nothing to look at when a node is.
    pub(crate) fn is_empty(&self) -> bool {
        self.fixed.is_empty() && self.per_task.is_empty() && self.per_job.is_empty()
    }

    /// Whether some devices are requested for the whole job.
    pub(crate) fn of_job(&self) -> bool {
        !self.per_job.is_empty()
    }

    /// Number of devices of each kind that the whole job needs.
    pub(crate) fn of_all_nodes(&self) -> impl Iterator<Item = u64> + '_ {
        self.per_job.iter().map(|gres| gres.count)
    }

    /// Maximum number of nodes if each must have at least one of the job's devices.
    pub(crate) fn most_nodes(&self) -> u32 {
        match self.of_job() {
            true => least(self.of_all_nodes().sum()).max(1),
            false => u32::MAX,
        }
    }

    /// Number of sockets of a node that need devices, and therefore a core; 0 if sockets do not
    /// matter.
    pub(crate) fn sockets(&self) -> u32 {
        self.sockets
    }

    /// Number of tasks that share one of the job's GPUs.
    pub(crate) fn tasks_per_gpu(&self) -> Option<u32> {
        self.tasks_per_gpu
    }

    /// Whether the location of devices on a node matters.
    pub(crate) fn looks_at_sockets(&self) -> bool {
        self.sockets > 0 || (self.enforced && !self.is_empty())
    }

    /// Locality rules on a node whose sockets give at most that many CPUs.
    pub(crate) fn nearness(&self, cpus_of_socket: Option<u32>) -> Option<Nearness> {
        (self.looks_at_sockets() || cpus_of_socket.is_some()).then(|| Nearness {
            enforced: self.enforced,
            per_socket: self.per_socket.clone(),
            sockets: self.sockets,
            cpus_of_socket,
        })
    }

    /// Number of CPUs that are allocated with a number of GPUs.
    pub(crate) fn cpus_for(&self, gpus: u64) -> u32 {
        least(gpus.saturating_mul(u64::from(self.cpus_per_gpu)))
    }

    /// Minimum number of GPUs on a node for a number of tasks.
    pub(crate) fn least_gpus(&self, tasks: u32) -> u64 {
        let of_tasks = gpus(&self.per_task).saturating_mul(u64::from(tasks));
        gpus(&self.fixed).saturating_add(of_tasks)
    }

    /// Maximum number of tasks for which there are devices.
    pub(crate) fn tasks_in(&self, class: &NodeClass, left: Available<'_>) -> u32 {
        let Available {
            usable,
            mib_of_gpu,
            mib,
            room,
        } = left;
        let fixed = gpus(&self.fixed);
        let free = |w: &GresCount| free_of(class, room, w);
        let too_few = self.fixed.iter().any(|w| free(w) < w.count);
        if too_few || self.cpus_for(fixed) > usable || fixed.saturating_mul(mib_of_gpu) > mib {
            return 0;
        }
        let mut tasks = self.tasks_at_most.unwrap_or(u32::MAX);
        for each in &self.per_task {
            tasks = tasks.min(least(
                self.available_count(free(each), each, left) / each.count,
            ));
        }
        if self.of_job() {
            let share: u64 = self
                .share_in(class, left)
                .iter()
                .map(|n| u64::from(*n))
                .sum();
            let each = u64::from(self.tasks_per_gpu.unwrap_or(u32::MAX));
            tasks = tasks.min(least(share.saturating_mul(each)));
        }
        tasks
    }

    /// The devices of a node that count towards the devices of the whole job.
    pub(crate) fn share_in(&self, class: &NodeClass, left: Available<'_>) -> JobShare {
        let mut share = JobShare::default();
        for (n, gres) in share.iter_mut().zip(&self.per_job) {
            *n = least(self.available_count(free_of(class, left.room, gres), gres, left));
        }
        share
    }

    /// A node's share limited to the whole job's need, if the job has at least that many nodes.
    pub(crate) fn needed_of(&self, mut share: JobShare, nodes: u32) -> JobShare {
        // Each of the other nodes gives one device; its kind is unknown if there are several kinds.
        let others = match self.per_job.len() {
            1 => nodes.saturating_sub(1),
            _ => 0,
        };
        for (n, of_job) in share.iter_mut().zip(&self.per_job) {
            *n = least(of_job.count).saturating_sub(others).max(1).min(*n);
        }
        share
    }

    /// Number of free devices for which the node has CPUs and memory.
    fn available_count(&self, free: u64, gres: &GresCount, available: Available<'_>) -> u64 {
        if gres.name != GPU {
            return free;
        }
        let fixed = gpus(&self.fixed);
        let left = |all: u64, each: u64| match each {
            0 => u64::MAX,
            each => all.saturating_sub(fixed.saturating_mul(each)) / each,
        };
        let by_cpu = left(u64::from(available.usable), u64::from(self.cpus_per_gpu));
        let by_memory = left(available.mib, available.mib_of_gpu);
        free.min(by_cpu).min(by_memory)
    }

    /// All devices that a node with this pick gives.
    pub(crate) fn on_node(&self, class: &NodeClass, pick: &Pick) -> Vec<GresCount> {
        if self.whole {
            // A job that requests whole GPUs gets no parts of them.
            let tracked = class.gres.iter().filter(|gres| {
                gres.count <= TRACKED_MAX && (class.parts.is_empty() || !is_part(&gres.name))
            });
            let mut all: Vec<GresCount> = tracked.cloned().collect();
            let counted = self
                .fixed
                .iter()
                .filter(|w| free_of_class(class, w) > TRACKED_MAX);
            all.extend(counted.cloned());
            return all;
        }
        let mut list = self.fixed.clone();
        for each in &self.per_task {
            let count = each.count.saturating_mul(u64::from(pick.tasks.max(1)));
            list.push(GresCount {
                count,
                ..each.clone()
            });
        }
        let of_job = self.per_job.iter().zip(pick.share);
        for (gres, count) in of_job.filter(|(_, count)| *count > 0) {
            list.push(GresCount {
                count: u64::from(count),
                ..gres.clone()
            });
        }
        list
    }

    /// Distributes the devices of the whole job over nodes with these maxima: evenly per task as
    /// far as possible, and at least one on every node.
    pub(crate) fn share_out(&self, picks: &mut [Pick], most: &[JobShare]) {
        for (kind, of_job) in self.per_job.iter().enumerate() {
            let mut left = least(of_job.count);
            if let Some(each) = self.tasks_per_gpu {
                for (pick, most) in picks.iter_mut().zip(most) {
                    pick.share[kind] = pick.tasks.div_ceil(each).min(most[kind]).min(left);
                    left -= pick.share[kind];
                }
            }
            for (pick, most) in picks.iter_mut().zip(most) {
                let none = pick.share.iter().all(|n| *n == 0);
                if none && most[kind] > 0 && left > 0 {
                    pick.share[kind] = 1;
                    left -= 1;
                }
            }
            let bounds = picks.iter().zip(most);
            let mut nodes: Vec<NodeDevices> = bounds
                .map(|(pick, most)| NodeDevices {
                    tasks: pick.tasks.max(1),
                    given: pick.share[kind],
                    most: most[kind],
                })
                .collect();
            give_evenly(&mut nodes, left);
            for (pick, node) in picks.iter_mut().zip(nodes) {
                pick.share[kind] = node.given;
            }
        }
    }
}

/// The devices of one kind on a node.
#[derive(Clone, Copy)]
struct NodeDevices {
    tasks: u32,
    given: u32,
    most: u32,
}

impl NodeDevices {
    /// Number of devices that the node gives if nodes give up to this many per task, in units of
    /// 2^-32.
    fn up_to(self, level: u64) -> u32 {
        let parts = u128::from(level) * u128::from(self.tasks);
        let count = u32::try_from(parts.div_ceil(1 << 32)).unwrap_or(u32::MAX);
        count.min(self.most).max(self.given)
    }

    /// Orders nodes by devices per task, fewest first.
    fn cmp_by_task(self, other: NodeDevices) -> Ordering {
        let product = |count: u32, tasks: u32| u64::from(count) * u64::from(tasks);
        product(self.given, other.tasks).cmp(&product(other.given, self.tasks))
    }
}

/// A node that can give more devices. The greatest in this order gives the next one.
struct NextToGive {
    node: NodeDevices,
    at: usize,
}

impl Ord for NextToGive {
    fn cmp(&self, other: &NextToGive) -> Ordering {
        let by_task = other.node.cmp_by_task(self.node);
        by_task.then(other.at.cmp(&self.at))
    }
}

impl PartialOrd for NextToGive {
    fn partial_cmp(&self, other: &NextToGive) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for NextToGive {
    fn eq(&self, other: &NextToGive) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for NextToGive {}

/// Assigns devices, each from the node with the fewest devices per task. Up to a common level this
/// is computed in one step; about one device per node remains.
fn give_evenly(nodes: &mut [NodeDevices], left: u32) {
    let before: u64 = nodes.iter().map(|node| u64::from(node.given)).sum();
    let wanted = before + u64::from(left);
    let given = |level: u64| {
        let counts = nodes.iter().map(|node| u64::from(node.up_to(level)));
        counts.sum::<u64>()
    };
    let (mut level, mut beyond) = (0, u64::MAX);
    while beyond - level > 1 {
        let middle = level + (beyond - level) / 2;
        match given(middle) <= wanted {
            true => level = middle,
            false => beyond = middle,
        }
    }
    let mut left = wanted - given(level);
    nodes
        .iter_mut()
        .for_each(|node| node.given = node.up_to(level));
    let open = nodes
        .iter()
        .zip(0..)
        .filter(|(node, _)| node.given < node.most);
    let mut open: BinaryHeap<NextToGive> = open
        .map(|(node, at)| NextToGive { node: *node, at })
        .collect();
    while left > 0
        && let Some(mut next) = open.pop()
    {
        next.node.given += 1;
        left -= 1;
        nodes[next.at].given = next.node.given;
        if next.node.given < next.node.most {
            open.push(next);
        }
    }
}

/// Number of free devices of a kind.
fn free_of(class: &NodeClass, room: &Room, request: &GresCount) -> u64 {
    let entries = class.gres.iter().zip(room.gres());
    let of_kind = entries.filter(|(entry, _)| is_a(entry, request));
    let counts = of_kind.map(|(_, free)| u64::from(*free));
    match by_one_entry(class, &request.name) {
        true => counts.max().unwrap_or(0),
        false => counts.sum(),
    }
}

fn free_of_class(class: &NodeClass, request: &GresCount) -> u64 {
    let of_kind = class.gres.iter().filter(|entry| is_a(entry, request));
    of_kind.map(|entry| entry.count).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(tasks: u32, given: u32, most: u32) -> NodeDevices {
        NodeDevices { tasks, given, most }
    }

    /// Assigns one device after another.
    fn give_singly(nodes: &mut [NodeDevices], left: u32) {
        for _ in 0..left {
            let open = nodes.iter_mut().filter(|node| node.given < node.most);
            let Some(next) = open.min_by(|a, b| a.cmp_by_task(**b)) else {
                return;
            };
            next.given += 1;
        }
    }

    #[test]
    fn devices_are_given_at_once_as_one_by_one() {
        let mut drawn = 1u64;
        let mut below = |bound: u32| {
            drawn = drawn
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            ((drawn >> 33) % u64::from(bound)) as u32
        };
        for _ in 0..2000 {
            let count = 1 + below(7);
            let draw = |_| {
                let (tasks, given) = (1 + below(9), below(4));
                node(tasks, given, given + below(20))
            };
            let nodes: Vec<NodeDevices> = (0..count).map(draw).collect();
            let left = below(80);
            let (mut at_once, mut singly) = (nodes.clone(), nodes);
            give_evenly(&mut at_once, left);
            give_singly(&mut singly, left);
            let counts = |nodes: &[NodeDevices]| nodes.iter().map(|n| n.given).collect::<Vec<_>>();
            assert_eq!(counts(&at_once), counts(&singly));
        }
    }

    /// A counted device may exist by the billion; assigning them one by one would not end.
    #[test]
    fn devices_that_are_many_are_given_at_once() {
        let mut nodes = vec![node(1, 0, 3_000_000); 1000];
        nodes.extend([node(2, 1, 9_000_000), node(u32::MAX, 0, u32::MAX)]);
        give_evenly(&mut nodes, u32::MAX);
        let given: u64 = nodes.iter().map(|node| u64::from(node.given)).sum();
        assert_eq!(given, u64::from(u32::MAX) + 1);
        assert!(nodes.iter().all(|node| node.given > 0));
    }
}
