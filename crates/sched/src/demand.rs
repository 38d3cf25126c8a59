//! The demand of a job in one partition, computed once per shape: how many tasks a node of each
//! class can run, and the resources that a number of tasks takes.

mod asked;
pub(crate) mod device_demand;
pub(crate) mod licenses;
pub(crate) mod pick;
pub(crate) mod task_counts;

use crate::demand::device_demand::{Available, DeviceDemand};
use crate::demand::pick::{JobShare, Pick, SHARES_MAX};
use crate::nodes::class::NodeClass;
use crate::nodes::class_masks::{Classes, Counts};
use crate::nodes::fleet::Fleet;
use crate::nodes::node_ranges::NodeRanges;
use crate::nodes::part_cpus::CpuRule;
use crate::nodes::room::{Detail, NodeUsers, Room, SharingKey, Want};
use crate::nodes::sockets::{SocketNeed, SocketSets};
use muster_model::accounts::PartitionExemptions;
use muster_model::cpuset::CpuSet;
use muster_model::distribution::CpuSpread;
use muster_model::spec::{MemoryAsk, Segments};
use muster_model::time::{TimeLimit, Timestamp};
use std::sync::Arc;

/// Memory demand with defaults resolved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Memory {
    None,
    /// All memory of each node.
    All,
    PerNode(u64),
    PerCpu(u64),
    PerGpu(u64),
}

/// Limit on the number of leaf switches (`--switches`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SwitchLimit {
    pub(crate) most: u32,
    /// Time that the job waits for that limit, milliseconds.
    wait_ms: u64,
}

/// Number of nodes in a segment, which must lie in one leaf if leaves are blocks (`--segment`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentAsk {
    pub(crate) nodes: usize,
    pub(crate) rule: Segments,
}

/// CPUs of each node that the job requests for the system (`--core-spec`, `--thread-spec`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SystemCpus {
    count: u32,
    /// The count is in threads, not in cores.
    by_thread: bool,
}

/// CPUs of a node allocated to a job.
#[derive(Clone, Copy, Debug)]
struct NodeCpus {
    /// CPUs that no other job can use.
    taken: u32,
    /// CPUs that the job holds, if these are fewer.
    held: Option<u32>,
}

/// A question about a node's sockets: the maximum by count, and the smallest number of nodes of the
/// job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FitAsk {
    pub(crate) pick: Pick,
    pub(crate) nodes: u32,
}

/// The maximum for a node when its sockets are considered.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SocketFit {
    pub(crate) pick: Option<Pick>,
    /// Number of comparisons of needs with sockets.
    pub(crate) tries: u64,
}

/// A job's needs in one partition.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Demand {
    /// Number of tasks over all nodes; `None`: `tasks_each` on every node.
    pub(crate) tasks: Option<u32>,
    pub(crate) tasks_each: u32,
    pub(crate) min_nodes: u32,
    /// Maximum number of nodes; `u32::MAX` if the tasks decide.
    pub(crate) max_nodes: u32,
    /// Maximum number of nodes of a job like this in the partition.
    pub(crate) part_most_nodes: u32,
    /// From a range of node counts take as many nodes as possible, each with at least one task.
    pub(crate) widest: bool,
    /// If the number of tasks is not given, take no more nodes than the devices require.
    pub(crate) fewest: bool,
    /// Tasks are spread evenly over the nodes rather than filling one after another.
    pub(crate) even: bool,
    /// CPUs of a node are taken from its sockets in turn: those of one task each time, or one each
    /// time.
    across: Option<CpuSpread>,
    /// As many nodes as possible.
    pub(crate) spread: bool,
    /// Least loaded nodes first.
    pub(crate) least_loaded: bool,
    pub(crate) contiguous: bool,
    /// `None` if the network is flat.
    pub(crate) switches: Option<SwitchLimit>,
    pub(crate) segment: Option<SegmentAsk>,
    /// Nodes that must be in the allocation, sorted.
    pub(crate) required: Vec<u32>,
    excluded: Arc<NodeRanges>,
    /// For each alternative of the constraint: the classes of nodes that may be used.
    pub(crate) alternatives: Arc<[Classes]>,
    /// For each alternative: the counts of nodes by class.
    pub(crate) counts: Arc<[Counts]>,
    /// Maximum run time in milliseconds; `None`: unlimited.
    pub(crate) length_ms: Option<u64>,
    /// The partition's rules about CPUs.
    cpu_rule: CpuRule,
    cpus_of_task: u32,
    cpus_min: u32,
    tasks_max: u32,
    tasks_per_socket: Option<u32>,
    tasks_per_core: Option<u32>,
    threads_used: Option<u32>,
    overcommit: bool,
    memory: Memory,
    /// The partition's limit (`MaxMemPerNode`, `MaxMemPerCPU`).
    memory_most: MemoryAsk,
    /// Whether a default over that limit is cut, where a request is not.
    cuts_memory: bool,
    pub(crate) devices: DeviceDemand,
    /// The job gets all CPUs of each node.
    whole: bool,
    /// On whole nodes, --mem-per-cpu is multiplied by all CPUs of the node, and the node must have
    /// that much memory.
    pays_whole: bool,
    /// The cluster allocates whole nodes to all jobs: memory is counted by all CPUs of a node,
    /// including unused threads.
    by_node: bool,
    /// Reserved system CPUs that replace those of the configuration.
    spec: Option<SystemCpus>,
    /// Classes of nodes that may run the batch script; `None` if all may.
    pub(crate) batch: Option<Vec<bool>>,
    /// No other job may run on its nodes.
    pub(crate) alone: bool,
    /// Number of jobs that may share each CPU; 0: CPUs are exclusive.
    pub(crate) sharers: u32,
    /// Only jobs of the same owner may run on its nodes.
    pub(crate) only_user: bool,
    /// Owner and label of the job, if they matter.
    pub(crate) key: SharingKey,
}

impl SystemCpus {
    /// CPUs of a node that are left for jobs.
    fn leaves(self, class: &NodeClass) -> CpuSet {
        class.cpus_without(self.count, self.by_thread)
    }
}

/// The time limit of a job in a partition, and the limits of the partition that do not hold for it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PartitionTerms {
    pub(crate) limit: TimeLimit,
    pub(crate) exempt: PartitionExemptions,
}

impl Demand {
    /// Whether another demand asks for the same resources of each node and of all nodes, apart from
    /// the number of tasks, the number of nodes and the run time.
    pub(crate) fn is_like_on_nodes(&self, other: &Demand) -> bool {
        let with_numbers = Demand {
            tasks: other.tasks,
            min_nodes: other.min_nodes,
            max_nodes: other.max_nodes,
            length_ms: other.length_ms,
            ..self.clone()
        };
        self.tasks.is_some() == other.tasks.is_some() && with_numbers == *other
    }

    /// The smallest number of tasks that makes a node worth taking.
    pub(crate) fn tasks_least(&self) -> u32 {
        if self.tasks.is_some() {
            1
        } else {
            self.tasks_each
        }
    }

    /// Minimum number of CPUs for each further task.
    pub(crate) fn cpus_of_tasks(&self) -> u32 {
        if self.overcommit {
            0
        } else {
            self.cpus_of_task
        }
    }

    /// The time at which a job that could run since `since`, apart from its limit on leaf switches,
    /// gives up the limit.
    pub(crate) fn relents_at(&self, since: Timestamp) -> Option<Timestamp> {
        self.switches.map(|limit| since.plus_ms(limit.wait_ms))
    }

    /// Whether the node may be used under this alternative.
    pub(crate) fn admits(&self, alternative: usize, class: u32, node: u32) -> bool {
        self.alternatives[alternative][class as usize] && !self.excluded.contains(node)
    }

    /// Whether the node must be in the allocation.
    pub(crate) fn requires(&self, node: u32) -> bool {
        self.required.binary_search(&node).is_ok()
    }

    /// Threads of a core that tasks may use, and CPUs that are allocated with each core.
    fn core(&self, class: &NodeClass) -> (u32, u32) {
        let by_tasks = self
            .tasks_per_core
            .map(|n| n.max(1).saturating_mul(self.cpus_of_task));
        let threads = self.threads_used.unwrap_or(u32::MAX).max(1);
        let cores = class.sockets.saturating_mul(class.cores_per_socket).max(1);
        // If CPUs are only counted, there are no cores.
        let granule = self.cpu_rule.granule(class);
        let core = if granule == 1 {
            1
        } else {
            (class.cpus / cores).max(1)
        };
        let of_core = core.min(threads).min(by_tasks.unwrap_or(u32::MAX)).max(1);
        let used = of_core * (granule / core).max(1);
        (used, granule)
    }

    /// Number of tasks that fit on one granule (a core with `CR_Core`); 1 if a task takes more than
    /// a granule.
    pub(crate) fn tasks_of_core(&self, class: &NodeClass) -> u32 {
        match self.overcommit {
            true => 1,
            false => (self.core(class).0 / self.cpus_of_task.max(1)).max(1),
        }
    }

    /// CPUs of a granule for which memory is counted: without threads that the job does not use
    /// (`--threads-per-core`).
    fn counted(&self, class: &NodeClass) -> u32 {
        let cores = class.sockets.saturating_mul(class.cores_per_socket).max(1);
        let core = (class.cpus / cores).max(1);
        let threads = self.threads_used.unwrap_or(u32::MAX).clamp(1, core);
        let granule = self.cpu_rule.granule(class);
        match granule.is_multiple_of(core) && !self.by_node {
            true => granule / core * threads,
            false => granule,
        }
    }

    /// Whether counts alone cannot decide if a node fits: the job requests devices as a whole, or
    /// the location of devices matters.
    pub(crate) fn is_intricate(&self) -> bool {
        self.devices.of_job() || self.looks_at_sockets() || self.cpu_rule.bounds()
    }

    /// Whether individual CPUs and devices of a node must be looked at.
    pub(crate) fn looks_at_sockets(&self) -> bool {
        !self.whole && (self.devices.looks_at_sockets() || self.tasks_per_socket.is_some())
    }

    /// CPUs of a node that the job uses exclusively.
    fn whole_cpus(&self, class: &NodeClass) -> u32 {
        match self.spec {
            Some(spec) => {
                let open = spec.leaves(class);
                match class.by_thread {
                    true => open.len(),
                    false => crate::nodes::class::whole_granules(&open, class.granule),
                }
            }
            None => class.job_cpus(),
        }
    }

    /// The CPUs of a node that count for a job: it pays for those that it keeps for the system there.
    pub(crate) fn cpus_counted(&self, class: &NodeClass, want: &Want) -> u32 {
        match self.spec {
            Some(_) => want.cpus.max(class.open.len()),
            None => want.cpus,
        }
    }

    /// CPUs that tasks may use in this room, within limits and memory; 0 if it is of no use.
    fn usable_cpus(&self, class: &NodeClass, room: &Room) -> u32 {
        if !room.usable || room.exclusive || (self.alone && room.jobs > 0) {
            return 0;
        }
        let strangers = match room.users {
            NodeUsers::None => false,
            NodeUsers::One(uid) => self.key.user != Some(uid),
            NodeUsers::Many => true,
        };
        if strangers && (self.only_user || room.by_user)
            || !room.label.admits(self.key.label.as_ref())
        {
            return 0;
        }
        let (used, granule) = self.core(class);
        // Jobs of the partition may never get all of the node.
        let most = self.cpu_rule.most(class);
        if self.whole && room.cpus.min(most) < class.job_cpus() {
            return 0;
        }
        let mut cpus = match self.whole {
            true => self.whole_cpus(class),
            false => room.cpus.min(most),
        };
        let mut paid = u32::MAX;
        let free = self.mib_allowed(room.mib);
        match self.memory {
            Memory::None | Memory::PerGpu(_) => {}
            Memory::All if free < self.mib_allowed(class.mib) => return 0,
            Memory::All => {}
            Memory::PerNode(mib) if mib > free => return 0,
            Memory::PerNode(_) => {}
            Memory::PerCpu(mib) if self.whole => {
                let least = match self.pays_whole {
                    true => self.mib_for(
                        class,
                        NodeCpus {
                            taken: cpus,
                            held: None,
                        },
                        0,
                    ),
                    false => mib,
                };
                if least > class.mib.min(room.mib) {
                    return 0;
                }
            }
            Memory::PerCpu(mib) => {
                let most = free / mib.max(1);
                if self.cpus_held(class, 1, 0).is_some() {
                    paid = u32::try_from(most).unwrap_or(u32::MAX);
                } else {
                    let counted = u64::from(self.counted(class));
                    let most = most * u64::from(granule) / counted;
                    cpus = cpus.min(u32::try_from(most).unwrap_or(u32::MAX));
                }
            }
        }
        let usable = (cpus / granule * used).min(paid);
        if usable < self.cpus_min { 0 } else { usable }
    }

    /// The part of this memory of a node that the job may have, MiB.
    fn mib_allowed(&self, mib: u64) -> u64 {
        match self.memory_most {
            MemoryAsk::PerNode(most) => mib.min(most),
            // More CPUs may be had with more memory.
            MemoryAsk::PerCpu(_) | MemoryAsk::Default => mib,
        }
    }

    /// As above, for a number of GPUs.
    fn mib_of_gpus_allowed(&self, mib: u64) -> u64 {
        match self.memory_most {
            MemoryAsk::PerNode(most) if self.cuts_memory && mib >= most => u64::MAX,
            _ => self.mib_allowed(mib),
        }
    }

    /// Memory that each GPU brings along.
    fn mib_of_gpu(&self) -> u64 {
        match self.memory {
            Memory::PerGpu(mib) => mib,
            _ => 0,
        }
    }

    /// Maximum number of tasks on a node of this class with this room; 0 if the node is of no use.
    pub(crate) fn tasks_in(&self, class: &NodeClass, room: &Room) -> u32 {
        let usable = self.usable_cpus(class, room);
        if usable == 0 {
            return 0;
        }
        let by_cpu = if self.overcommit {
            u32::MAX
        } else {
            usable / self.cpus_of_task
        };
        let by_socket = self
            .tasks_per_socket
            .map(|n| n.max(1).saturating_mul(class.sockets));
        let mut tasks = by_cpu
            .min(self.tasks_max)
            .min(by_socket.unwrap_or(u32::MAX));
        if !self.devices.is_empty() {
            let left = self.available(usable, room);
            tasks = tasks.min(self.devices.tasks_in(class, left));
        }
        if tasks < self.tasks_least() { 0 } else { tasks }
    }

    /// Maximum number of nodes if each must have a task: devices of a node without one are of no use to the job.
    pub(crate) fn most_nodes_of_tasks(&self) -> u32 {
        let tasks = self.tasks.filter(|_| self.devices.of_job());
        // Tasks that share a GPU stay together.
        let together = self.devices.tasks_per_gpu().unwrap_or(1).max(1);
        tasks.map_or(u32::MAX, |tasks| {
            tasks.div_ceil(together).max(self.min_nodes)
        })
    }

    /// The devices of a node that count towards the devices of the whole job.
    pub(crate) fn share_in(&self, class: &NodeClass, room: &Room) -> JobShare {
        let usable = self.usable_cpus(class, room);
        self.devices.share_in(class, self.available(usable, room))
    }

    fn available<'r>(&self, usable: u32, room: &'r Room) -> Available<'r> {
        Available {
            usable,
            mib_of_gpu: self.mib_of_gpu(),
            mib: self.mib_of_gpus_allowed(room.mib),
            room,
        }
    }

    /// The sockets of a node, for picks that take any number of the job's devices.
    pub(crate) fn socket_sets(
        &self,
        class: &NodeClass,
        detail: &Detail,
        pick: &Pick,
    ) -> Option<SocketSets> {
        let Want { gres, near, .. } = self.want(class, pick);
        near.map(|near| SocketSets::new(class, detail, &gres, &near))
    }

    /// The sockets' part of what a pick takes.
    pub(crate) fn socket_need(&self, class: &NodeClass, pick: &Pick) -> SocketNeed {
        let gres = self.devices.on_node(class, pick);
        let cpus = self.cpus_for(class, pick.tasks, device_demand::gpus(&gres));
        SocketNeed::new(cpus, &gres)
    }

    /// Maximum number of tasks, up to the given number, and of devices of the whole job, that the
    /// node can run when its sockets are considered.
    pub(crate) fn fit_to_sockets(
        &self,
        class: &NodeClass,
        detail: &Detail,
        FitAsk { mut pick, nodes }: FitAsk,
    ) -> SocketFit {
        let least = self.tasks_least().max(1);
        pick.tasks = self.tasks.unwrap_or(u32::MAX).min(pick.tasks);
        // CPUs near devices that the job does not get do not count as near.
        pick.share = self.devices.needed_of(pick.share, nodes);
        let sets = self.socket_sets(class, detail, &pick);
        let Some(sets) = sets.filter(|_| least <= pick.tasks) else {
            return SocketFit::default();
        };
        SocketFit {
            pick: self.most_in(class, &sets, least, pick),
            tries: sets.tries(),
        }
    }

    /// Fits as many of the pick's devices as possible first, and then as many tasks as possible.
    fn most_in(
        &self,
        class: &NodeClass,
        sets: &SocketSets,
        least: u32,
        mut pick: Pick,
    ) -> Option<Pick> {
        /// Numbers of devices to try if the sockets have enough of every kind.
        const FEWER_MAX: u32 = 64;
        let need = |pick: &Pick| self.socket_need(class, pick);
        let most_tasks = |pick: &Pick| {
            let with = |tasks| need(&Pick { tasks, ..*pick });
            sets.most(least..=pick.tasks, &with)
        };
        if let Some(tasks) = most_tasks(&pick) {
            return Some(Pick { tasks, ..pick });
        }
        for kind in 0..SHARES_MAX {
            let with = |count: u32| {
                let mut with = pick;
                with.share[kind] = count;
                with
            };
            let of_least = |count| {
                need(&Pick {
                    tasks: least,
                    ..with(count)
                })
            };
            let fewer = pick.share[kind].saturating_sub(1);
            let most = sets.largest_feasible(1..=fewer, of_least).unwrap_or(0);
            let tried = (1..=most).rev().take(FEWER_MAX as usize);
            let rest = (most > FEWER_MAX).then_some(1);
            for count in tried.chain(rest) {
                let with = with(count);
                if let Some(tasks) = most_tasks(&with) {
                    return Some(Pick { tasks, ..with });
                }
            }
            pick.share[kind] = pick.share[kind].min(1);
        }
        None
    }

    /// The resources of a pick on a node of this class.
    pub(crate) fn want(&self, class: &NodeClass, pick: &Pick) -> Want {
        let gres = self.devices.on_node(class, pick);
        let gpus = device_demand::gpus(&gres);
        let cpus = self.cpus_for(class, pick.tasks, gpus);
        let (used, granule) = self.core(class);
        let of_socket = self.tasks_per_socket.filter(|_| !self.whole).map(|tasks| {
            let cpus = tasks.max(1).saturating_mul(self.cpus_of_task);
            cpus.div_ceil(used).saturating_mul(granule)
        });
        let held = self.cpus_held(class, pick.tasks, gpus);
        Want {
            cpus,
            held: held.map(|count| (count, used.min(class.granule))),
            mib: self.mib_for(class, NodeCpus { taken: cpus, held }, gpus),
            tasks: pick.tasks,
            across: self.granules_in_turn(used),
            gres,
            open: self.spec.map(|spec| spec.leaves(class)),
            near: self.devices.nearness(of_socket).filter(|_| !self.whole),
            alone: self.alone,
            sharers: self.sharers,
            only_user: self.only_user,
            key: self.key.clone(),
        }
    }

    /// Cores to take from a socket per turn of a cyclic distribution; 0: from the fewest sockets.
    /// Tasks use `used` CPUs of each core. Tasks that would get parts of cores stay together.
    fn granules_in_turn(&self, used: u32) -> u32 {
        let of_task = self.cpus_of_task;
        match self.across {
            _ if self.whole => 0,
            Some(CpuSpread::FullCyclic) => 1,
            Some(CpuSpread::Cyclic) if of_task.is_multiple_of(used) => of_task / used,
            Some(CpuSpread::Cyclic) if used.is_multiple_of(of_task) => 1,
            Some(CpuSpread::Cyclic | CpuSpread::Block) | None => 0,
        }
    }

    fn cpus_for(&self, class: &NodeClass, tasks: u32, gpus: u64) -> u32 {
        let (used, granule) = self.core(class);
        if self.whole {
            return self.whole_cpus(class);
        }
        let needed = self.cpus_needed(tasks, gpus);
        let granules = needed.div_ceil(used).max(self.devices.sockets());
        // Tasks on different sockets cannot share a core.
        let by_socket = match self.tasks_per_socket {
            Some(most) if !self.overcommit => {
                let (most, tasks) = (most.max(1), tasks.max(1));
                let of = |tasks: u32| tasks.saturating_mul(self.cpus_of_task).div_ceil(used);
                let full = (tasks / most).saturating_mul(of(most));
                full.saturating_add(of(tasks % most))
            }
            _ => 0,
        };
        granules.max(by_socket).saturating_mul(granule)
    }

    /// CPUs that the job holds, if they are fewer than the CPUs taken from other jobs.
    fn cpus_held(&self, class: &NodeClass, tasks: u32, gpus: u64) -> Option<u32> {
        // A partition may have larger granules than cores.
        let by_thread = class.by_thread && self.cpu_rule.granule(class) == class.granule;
        (by_thread && !self.whole)
            .then(|| self.cpus_needed(tasks, gpus).max(self.devices.sockets()))
    }

    /// CPUs on a node for a number of tasks and GPUs.
    fn cpus_needed(&self, tasks: u32, gpus: u64) -> u32 {
        // A node that is added only to reach the number of nodes also has room for one task, which
        // was the criterion for choosing it.
        let for_tasks = if self.overcommit {
            1
        } else {
            tasks.max(1).saturating_mul(self.cpus_of_task)
        };
        for_tasks
            .max(self.cpus_min)
            .max(self.devices.cpus_for(gpus))
            .max(1)
    }

    /// Memory of a node for these CPUs that no other job can have, of which the job may hold fewer: within the
    /// partition's limit.
    fn mib_for(&self, class: &NodeClass, cpus: NodeCpus, gpus: u64) -> u64 {
        let mib = self.mib_asked(class, cpus, gpus);
        match self.memory_most {
            MemoryAsk::PerCpu(most) => {
                let cpus = cpus.held.unwrap_or(cpus.taken);
                mib.min(most.saturating_mul(u64::from(cpus)))
            }
            MemoryAsk::PerNode(_) | MemoryAsk::Default => self.mib_allowed(mib),
        }
    }

    fn mib_asked(&self, class: &NodeClass, cpus: NodeCpus, gpus: u64) -> u64 {
        match self.memory {
            Memory::None => 0,
            Memory::All => class.mib,
            Memory::PerNode(mib) => mib,
            Memory::PerCpu(mib) => {
                let whole = || cpus.taken / self.cpu_rule.granule(class) * self.counted(class);
                let counted = cpus.held.unwrap_or_else(whole);
                let all = mib.saturating_mul(u64::from(counted));
                if self.pays_whole {
                    all
                } else {
                    all.min(class.mib)
                }
            }
            Memory::PerGpu(mib) => mib.saturating_mul(gpus).min(class.mib),
        }
    }

    /// This demand in partitions that allow any memory.
    pub(crate) fn with_any_memory(&self) -> Demand {
        Demand {
            memory_most: MemoryAsk::Default,
            ..self.clone()
        }
    }

    /// Least free CPUs that the whole job needs.
    pub(crate) fn least_cpus(&self, alternative: usize, classes: &[NodeClass]) -> u64 {
        let node = self.floor(alternative, classes, self.tasks_least()).0;
        let nodes = u64::from(node) * u64::from(self.min_nodes);
        match self.tasks {
            Some(tasks) if !self.overcommit => {
                nodes.max(u64::from(tasks) * u64::from(self.cpus_of_task))
            }
            _ => nodes,
        }
    }

    /// Minimum number of free CPUs and memory with which a node of any class can run a number of
    /// tasks.
    pub(crate) fn floor(
        &self,
        alternative: usize,
        classes: &[NodeClass],
        tasks: u32,
    ) -> (u32, u64) {
        let mut floor = (u32::MAX, u64::MAX);
        for (class, _) in classes
            .iter()
            .zip(&*self.alternatives[alternative])
            .filter(|(_, ok)| **ok)
        {
            let gpus = self.devices.least_gpus(tasks);
            let cpus = self.cpus_for(class, tasks, gpus);
            let held = self.cpus_held(class, tasks, gpus);
            let mib = self.mib_for(class, NodeCpus { taken: cpus, held }, gpus);
            // System CPUs are never free, although the job may get them.
            let cpus = match self.spec {
                Some(_) => cpus.min(class.job_cpus()),
                None => cpus,
            };
            floor = (floor.0.min(cpus), floor.1.min(mib));
        }
        floor
    }

    /// Maximum number of tasks on an empty node of any admitted class.
    pub(crate) fn tasks_at_most(&self, alternative: usize, classes: &[NodeClass]) -> u32 {
        classes
            .iter()
            .zip(&*self.alternatives[alternative])
            .filter(|(_, ok)| **ok)
            .map(|(class, _)| self.tasks_in(class, &Fleet::empty_room(class, true)))
            .max()
            .unwrap_or(0)
    }
}
