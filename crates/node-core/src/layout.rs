//! Layout of a step: selects nodes, CPUs, memory and devices from the job's allocation, and the node of each task.
//! Pure function; the lead's agent calls it whenever a step arrives or ends.
//!
//! As described in srun(1), a step gets all CPUs of its nodes that no other step uses, or with `--exact` (implied by
//! `-c`) only those that its tasks need; with `--overlap` it shares everything and reserves nothing. Unlike Slurm,
//! memory counts only for steps that request some.

mod even;
mod request;

pub use request::check_request;

use self::even::{EvenShare, share_evenly};
use muster_model::cpuset::CpuSet;
use muster_model::distribution::{Distribution, NodeSpread};
use muster_model::hostlist;
use muster_model::job::{Allocation, GresShare, NodeShare};
use muster_model::refusal::{Refusal, RefusalCode};
use muster_model::spec::{GresAsk, MemoryAsk};
use muster_proto::step::StepSpec;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// `MaxTasksPerNode` where nothing else is said.
pub const TASKS_PER_NODE_DEFAULT: u32 = 512;

/// Names that a step may exclude.
const EXCLUDED_MAX: usize = 65_536;

/// Bytes of all names in one list of a step, each of which is built and looked up.
const NAMES_BYTES_MAX: usize = 1 << 20;

/// Resources of one node of the allocation that running steps occupy.
#[derive(Clone, Debug, Default)]
pub struct StepUse {
    /// CPUs.
    pub cpus: CpuSet,
    /// MiB.
    pub memory_mib: u64,
    /// Devices.
    pub gres: Vec<GresShare>,
}

/// A step's share of one node.
#[derive(Clone, Debug, PartialEq)]
pub struct NodePlacement {
    /// Position of the node in the allocation.
    pub node: usize,
    /// CPUs.
    pub cpus: CpuSet,
    /// MiB that it asked for, 0 if it did not.
    pub memory_mib: u64,
    /// Devices.
    pub gres: Vec<GresShare>,
    /// Global numbers of its tasks here.
    pub tasks: Vec<u32>,
}

/// Why a step cannot start.
#[derive(Clone, Debug, PartialEq)]
pub enum NoLayout {
    /// The step does not fit now.
    Busy,
    /// Never in this allocation.
    Never(Refusal),
}

/// The nodes that a step names, by their positions in the allocation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StepNodes {
    /// Positions of nodes that it must not use, in order.
    excluded: Vec<usize>,
    /// Positions of the nodes of `--nodelist`, in the order of the list.
    listed: Vec<usize>,
}

/// Positions of nodes that are kept with each step that waits.
const SMALL_MAX: usize = 256;

#[cfg(test)]
thread_local! {
    static LOOK_UPS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
    static LAYOUTS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// Number of layouts of steps in this thread.
#[cfg(test)]
pub(crate) fn layouts() -> usize {
    LAYOUTS.with(std::cell::Cell::get)
}

/// Number of look-ups of names of nodes in this thread.
#[cfg(test)]
pub(crate) fn look_ups() -> usize {
    LOOK_UPS.with(std::cell::Cell::get)
}

impl StepNodes {
    /// Looks the names up in an allocation, where a list may name a node once for each of its tasks.
    ///
    /// # Errors
    /// A list cannot be read, or names a node that the step cannot use.
    pub fn new(
        alloc: &Allocation,
        spec: &StepSpec,
        tasks_per_node: u32,
    ) -> Result<StepNodes, Refusal> {
        StepNodes::new_counted(alloc, spec, tasks_per_node, &mut 0)
    }

    /// As [`StepNodes::new`], and counts the names that are looked up, even if the step is refused.
    ///
    /// # Errors
    /// A list cannot be read, or names a node that the step cannot use.
    pub fn new_counted(
        alloc: &Allocation,
        spec: &StepSpec,
        tasks_per_node: u32,
        count: &mut u64,
    ) -> Result<StepNodes, Refusal> {
        #[cfg(test)]
        LOOK_UPS.with(|count| count.set(count.get() + 1));
        let mut nodes = StepNodes::default();
        if spec.exclude.is_none() && spec.nodelist.is_none() {
            return Ok(nodes);
        }
        let all = (0..).zip(&alloc.nodes);
        let by_name: HashMap<&str, usize> = all.map(|(i, n)| (n.name.as_str(), i)).collect();
        // Others may be excluded as well.
        let excluded: BTreeSet<usize> = names(spec.exclude.as_deref(), EXCLUDED_MAX)?
            .inspect(|_| *count += 1)
            .filter_map(|name| by_name.get(name.as_str()).copied())
            .collect();
        nodes.excluded = excluded.into_iter().collect();
        // A list may name a node once for each of its tasks.
        let most = alloc.nodes.len().saturating_mul(tasks_per_node as usize);
        for name in names(spec.nodelist.as_deref(), most)? {
            *count += 1;
            let Some(&at) = by_name.get(name.as_str()) else {
                let detail = format!("node {name} is not in the job's allocation");
                return refuse(RefusalCode::NodeConfigUnavailable, detail);
            };
            if nodes.excluded.binary_search(&at).is_ok() {
                let detail = format!("node {name} is in --nodelist and in --exclude");
                return refuse(RefusalCode::NodeConfigUnavailable, detail);
            }
            nodes.listed.push(at);
        }
        Ok(nodes)
    }

    /// Whether the request takes little memory.
    pub fn is_small(&self) -> bool {
        self.excluded.len() + self.listed.len() <= SMALL_MAX
    }
}

/// Nodes and tasks that are looked at to lay a step out.
pub fn layout_work(
    alloc: &Allocation,
    spec: &StepSpec,
    nodes: &StepNodes,
    tasks_per_node: u32,
) -> u64 {
    let count = alloc.nodes.len() as u64;
    let most = count.saturating_mul(u64::from(tasks_per_node));
    // Without a number of tasks there are as many as follow from the nodes.
    let on_nodes = || {
        let nodes = spec.min_nodes.map_or(count, u64::from);
        nodes.saturating_mul(
            spec.ntasks_per_node
                .map_or(1, |tasks| u64::from(tasks.max(1))),
        )
    };
    let tasks = spec.ntasks.map_or_else(on_nodes, u64::from).min(most);
    count + tasks + nodes.listed.len() as u64
}

/// Lays a step out, with a limit of tasks on each node (`MaxTasksPerNode`).
///
/// # Errors
/// The step cannot start.
pub fn lay_out(
    alloc: &Allocation,
    spec: &StepSpec,
    held: &[StepUse],
    tasks_per_node: u32,
) -> Result<Vec<NodePlacement>, NoLayout> {
    let nodes = StepNodes::new(alloc, spec, tasks_per_node).map_err(NoLayout::Never)?;
    lay_out_on(alloc, spec, &nodes, held, tasks_per_node)
}

/// As [`lay_out`], with nodes that were looked up before.
///
/// # Errors
/// The step cannot start.
pub fn lay_out_on(
    alloc: &Allocation,
    spec: &StepSpec,
    nodes: &StepNodes,
    held: &[StepUse],
    tasks_per_node: u32,
) -> Result<Vec<NodePlacement>, NoLayout> {
    match lay_out_alone(alloc, spec, nodes, tasks_per_node) {
        Err(refusal) => Err(NoLayout::Never(refusal)),
        Ok(placed) if spec.overlap => Ok(placed),
        Ok(_) => lay_out_beside(alloc, spec, nodes, held, tasks_per_node),
    }
}

/// Lays a step out as if nothing were held.
///
/// # Errors
/// It can never start in this allocation.
pub fn lay_out_alone(
    alloc: &Allocation,
    spec: &StepSpec,
    nodes: &StepNodes,
    tasks_per_node: u32,
) -> Result<Vec<NodePlacement>, Refusal> {
    let nothing = vec![StepUse::default(); alloc.nodes.len()];
    Layout::new(alloc, nodes, spec, &nothing, tasks_per_node).and_then(Layout::place)
}

/// Lays a step out that [`lay_out_alone`] has laid out in this allocation.
///
/// # Errors
/// It cannot start now.
pub fn lay_out_beside(
    alloc: &Allocation,
    spec: &StepSpec,
    nodes: &StepNodes,
    held: &[StepUse],
    tasks_per_node: u32,
) -> Result<Vec<NodePlacement>, NoLayout> {
    let layout = Layout::new(alloc, nodes, spec, held, tasks_per_node);
    layout.and_then(Layout::place).map_err(|_| NoLayout::Busy)
}

struct Layout<'a> {
    alloc: &'a Allocation,
    spec: &'a StepSpec,
    held: &'a [StepUse],
    /// Most tasks of a step on a node.
    tasks_per_node: u32,
    /// `--ntasks-per-node`, where it can be kept.
    asked_per_node: Option<u32>,
    spread: NodeSpread,
    pack: bool,
    /// Allowed nodes, in the order of the allocation.
    allowed: Vec<usize>,
    /// Nodes among them that must be used.
    required: Vec<usize>,
    /// Nodes by task, for `arbitrary`.
    listed: Vec<usize>,
}

fn refuse<T>(code: RefusalCode, detail: impl Into<String>) -> Result<T, Refusal> {
    Err(Refusal::new(code, detail))
}

impl<'a> Layout<'a> {
    fn new(
        alloc: &'a Allocation,
        nodes: &StepNodes,
        spec: &'a StepSpec,
        held: &'a [StepUse],
        tasks_per_node: u32,
    ) -> Result<Layout<'a>, Refusal> {
        #[cfg(test)]
        LAYOUTS.with(|count| count.set(count.get() + 1));
        let text = spec.distribution.as_deref().unwrap_or("");
        let distribution = Distribution::parse(text).map_err(|why| {
            let detail = format!("distribution '{text}' is not known: {why}");
            Refusal::new(RefusalCode::InvalidValue, detail)
        })?;
        let first = usize::try_from(spec.relative.unwrap_or(0)).unwrap_or(usize::MAX);
        // Nodes before the position of --relative do not count.
        let listed = nodes.listed.iter().copied().filter(|at| *at >= first);
        let listed: Vec<usize> = listed.collect();
        let mut required = listed.clone();
        required.sort_unstable();
        required.dedup();
        let is_allowed = |i: &usize| nodes.excluded.binary_search(i).is_err();
        let allowed: Vec<usize> = (first..alloc.nodes.len()).filter(is_allowed).collect();
        let asked_per_node = spec
            .ntasks_per_node
            .filter(|most| *most > 0 && can_keep(*most, alloc, &allowed, spec));
        Ok(Layout {
            asked_per_node,
            alloc,
            spec,
            held,
            tasks_per_node: tasks_per_node.max(1),
            spread: distribution.nodes.unwrap_or(NodeSpread::Block),
            pack: distribution.pack.unwrap_or(false),
            allowed,
            required,
            listed,
        })
    }

    fn place(self) -> Result<Vec<NodePlacement>, Refusal> {
        if self.allowed.is_empty() {
            return refuse(RefusalCode::InvalidNodeCount, "no node of the job is left");
        }
        let tasks = if self.spread == NodeSpread::Arbitrary && !self.listed.is_empty() {
            self.arbitrary()?
        } else {
            self.spread_out()?
        };
        let of_step = self.of_step(&tasks);
        let mut placed = Vec::with_capacity(tasks.len());
        for ((node, tasks), of_step) in tasks.into_iter().zip(of_step) {
            placed.push(self.share(node, tasks, &of_step)?);
        }
        Ok(placed)
    }

    /// One task per entry of the node list, in its order.
    fn arbitrary(&self) -> Result<Vec<(usize, Vec<u32>)>, Refusal> {
        let count = self.spec.ntasks.map_or(self.listed.len(), |n| n as usize);
        if count > self.listed.len() {
            let listed = self.listed.len();
            let detail = format!("{count} tasks are asked for, the list names {listed} nodes");
            return refuse(RefusalCode::InvalidTaskCount, detail);
        }
        // Nodes keep the order of the allocation in every step. The list determines only the node of each task.
        let mut by_node: BTreeMap<usize, Vec<u32>> = BTreeMap::new();
        for (task, &node) in (0..).zip(&self.listed[..count]) {
            by_node.entry(node).or_default().push(task);
        }
        let out: Vec<(usize, Vec<u32>)> = by_node.into_iter().collect();
        for (node, tasks) in &out {
            if self.slots(*node) < count_of(tasks.len()) {
                return self.too_small(count_of(count));
            }
        }
        Ok(out)
    }

    fn spread_out(&self) -> Result<Vec<(usize, Vec<u32>)>, Refusal> {
        let spec = self.spec;
        let limit = count_of(self.allowed.len());
        let listed = count_of(self.required.len());
        let few = self.pack.then_some(1);
        let wanted = spec.min_nodes.or((listed > 0).then_some(listed)).or(few);
        let per_node = spec.ntasks_per_node.filter(|most| *most > 0);
        let ntasks = spec.ntasks.unwrap_or_else(|| {
            wanted
                .unwrap_or(limit)
                .saturating_mul(per_node.unwrap_or(1))
        });
        if ntasks == 0 {
            return refuse(RefusalCode::InvalidTaskCount, "a step needs a task");
        }
        // More nodes than tasks cannot be used: the least number yields, as in Slurm.
        let least = wanted
            .unwrap_or(limit)
            .min(ntasks)
            .max(listed.min(ntasks))
            .max(1);
        let fixed = wanted.filter(|_| !self.pack || spec.min_nodes.is_some());
        let most = spec.max_nodes.or(fixed).unwrap_or(limit);
        let most = most.max(least).min(limit);
        if least > limit {
            let detail = format!("{least} nodes are asked for, {limit} can be used");
            return refuse(RefusalCode::InvalidNodeCount, detail);
        }
        let order = TaskRoom::new(self);
        let most = most.min(count_of(self.required.len() + order.others.len()));
        // More nodes never have less room, so that the least number with enough is found by halving.
        let (mut low, mut high) = (least, most.saturating_add(1));
        if self.choose(&order, least, ntasks).is_some() {
            high = least;
        }
        while low < high {
            let middle = low + (high - low) / 2;
            match self.choose(&order, middle, ntasks) {
                Some(_) => high = middle,
                None => low = middle + 1,
            }
        }
        let chosen = Some(low).filter(|count| *count <= most.max(least));
        let Some(nodes) = chosen.and_then(|count| self.choose(&order, count, ntasks)) else {
            return self.too_small(ntasks);
        };
        let rooms: Vec<u32> = nodes.iter().map(|&i| order.slots[i]).collect();
        let counts = self.counts(&rooms, ntasks);
        Ok(self.number(&nodes, &counts))
    }

    fn too_small<T>(&self, ntasks: u32) -> Result<T, Refusal> {
        let cpus = self.spec.cpus_per_task.unwrap_or(1).max(1);
        let most = u64::from(self.tasks_per_node).saturating_mul(self.allowed.len() as u64);
        if u64::from(ntasks) > most {
            let detail = format!(
                "{ntasks} tasks are asked for; a node takes {} (MaxTasksPerNode)",
                self.tasks_per_node
            );
            return refuse(RefusalCode::NodeConfigUnavailable, detail);
        }
        if let Some(ask) = self.missing_device(ntasks) {
            let detail = format!("the job has too few {} for the step", ask.name);
            return refuse(RefusalCode::InvalidGres, detail);
        }
        // Memory of each CPU is short wherever CPUs are.
        let has_cpus = |&node: &usize| self.alloc.nodes[node].cpus.len() >= cpus;
        let are_cpus_enough = self.spec.overcommit || self.allowed.iter().any(has_cpus);
        if are_cpus_enough && self.allowed.iter().all(|&node| self.lacks_memory(node)) {
            let detail = "no node of the job has the memory that the step asks for";
            return refuse(RefusalCode::InvalidMemory, detail);
        }
        let detail =
            format!("{ntasks} tasks of {cpus} CPUs do not fit into the nodes of the allocation");
        refuse(RefusalCode::TooManyCpus, detail)
    }

    /// A request for more devices than there are for a number of tasks.
    fn missing_device(&self, ntasks: u32) -> Option<&GresAsk> {
        let (of_node, of_task, of_all) = self.asked();
        let on_no_node = |ask: &&GresAsk| self.free_by_node(ask).all(|free| free < ask.count);
        let for_fewer_tasks = |ask: &&GresAsk| {
            let room = self.free_by_node(ask).map(|free| free / ask.count.max(1));
            ask.count > 0 && room.sum::<u64>() < u64::from(ntasks)
        };
        let in_all = |ask: &&GresAsk| self.free_by_node(ask).sum::<u64>() < ask.count;
        let lacking = of_node.iter().find(on_no_node);
        let lacking = lacking.or_else(|| of_task.iter().find(for_fewer_tasks));
        lacking.or_else(|| of_all.iter().find(in_all))
    }

    /// Free devices that match a request, on each node that the step can use.
    fn free_by_node(&self, ask: &GresAsk) -> impl Iterator<Item = u64> {
        (self.allowed.iter()).map(|&node| self.count_free(node, ask))
    }

    /// Whether a node has less memory than a task asks for, or the step of the node.
    fn lacks_memory(&self, node: usize) -> bool {
        let there = self.alloc.nodes[node].memory_mib;
        let asked = match self.spec.memory {
            MemoryAsk::Default => Some(0),
            MemoryAsk::PerNode(mib) => Some(mib),
            MemoryAsk::PerCpu(mib) => {
                mib.checked_mul(u64::from(self.spec.cpus_per_task.unwrap_or(1).max(1)))
            }
        };
        there > 0 && asked.is_none_or(|asked| asked > there)
    }

    /// Chooses `count` nodes with room for all tasks: the required ones and the first others, or if these have too
    /// little room, those with the most.
    fn choose(&self, order: &TaskRoom, count: u32, ntasks: u32) -> Option<Vec<usize>> {
        let count = count as usize;
        for others in [&order.others, &order.roomiest] {
            let chosen = self.required.iter().chain(others).copied().take(count);
            let mut nodes: Vec<usize> = chosen.collect();
            nodes.sort_unstable();
            let room: u64 = nodes.iter().map(|&i| u64::from(order.slots[i])).sum();
            let all_usable = nodes.iter().all(|&i| order.slots[i] > 0);
            let (.., of_all) = self.asked();
            let given = of_all.iter().all(|ask| {
                let there = nodes.iter().map(|&i| self.count_free(i, ask));
                there.sum::<u64>() >= ask.count
            });
            if nodes.len() == count && all_usable && given && room >= u64::from(ntasks) {
                return Some(nodes);
            }
        }
        None
    }

    /// Number of tasks that fit on a node.
    fn slots(&self, node: usize) -> u32 {
        let (share, held) = (&self.alloc.nodes[node], &self.held[node]);
        let cpus_per_task = self.spec.cpus_per_task.unwrap_or(1).max(1);
        let free = self.free(node).len();
        let mut slots = if self.spec.overcommit {
            if free > 0 { u32::MAX } else { 0 }
        } else {
            free / cpus_per_task
        };
        slots = slots
            .min(self.asked_per_node.unwrap_or(u32::MAX))
            .min(self.tasks_per_node);
        if share.memory_mib > 0 {
            let left = share.memory_mib.saturating_sub(self.taken_memory(held));
            match self.spec.memory {
                MemoryAsk::PerNode(mib) if mib > left => slots = 0,
                MemoryAsk::PerCpu(mib) if mib > 0 => {
                    // More than can be counted fits nowhere.
                    let of_task = mib.checked_mul(u64::from(cpus_per_task));
                    let fit = of_task.map_or(0, |mib| left / mib);
                    // Tasks that share CPUs share what goes with them.
                    if !(self.spec.overcommit && fit > 0) {
                        slots = slots.min(u32::try_from(fit).unwrap_or(u32::MAX));
                    }
                }
                MemoryAsk::Default | MemoryAsk::PerNode(_) | MemoryAsk::PerCpu(_) => {}
            }
        }
        slots.min(self.slots_by_devices(node))
    }

    fn taken_memory(&self, held: &StepUse) -> u64 {
        if self.spec.overlap {
            0
        } else {
            held.memory_mib
        }
    }

    fn free(&self, node: usize) -> CpuSet {
        let mut cpus = self.alloc.nodes[node].cpus.clone();
        if !self.spec.overlap {
            cpus.subtract(&self.held[node].cpus);
        }
        cpus
    }

    /// The step's requests for devices: per node, per task, and over all nodes.
    fn asked(&self) -> (&[GresAsk], &[GresAsk], &[GresAsk]) {
        let devices = self.spec.devices.as_deref();
        (
            &self.spec.gres,
            devices.map_or(&[], |d| &d.per_task),
            devices.map_or(&[], |d| &d.per_job),
        )
    }

    /// Chooses devices on a node for a number of the step's tasks: the requested ones from those that are free, or
    /// all of the job's if the step requests none. `of_step` is the node's part of requests over all nodes.
    fn devices(
        &self,
        (share, held): (&NodeShare, &StepUse),
        tasks: u32,
        of_step: &[u64],
    ) -> Option<Vec<GresShare>> {
        if !self.spec.wants_devices() {
            return Some(share.gres.clone());
        }
        let (of_node, of_task, of_all) = self.asked();
        let tasks = u64::from(tasks);
        let wanted = (of_node.iter().map(|g| (g, g.count)))
            .chain(of_task.iter().map(|g| (g, g.count.saturating_mul(tasks))))
            .chain(of_all.iter().zip(of_step.iter().copied()));
        let mut out: Vec<GresShare> = Vec::new();
        for (ask, count) in wanted.filter(|(_, count)| *count > 0) {
            let mut wanted = u32::try_from(count).ok()?;
            for have in share.gres.iter().filter(|have| is_a(have, ask)) {
                let mut free = self.free_of(have, held);
                let same = |g: &&GresShare| g.name == have.name && g.kind == have.kind;
                let taken = out.iter().find(same);
                taken.into_iter().for_each(|g| free.subtract(&g.ids));
                let ids = free.lowest(wanted);
                wanted -= ids.len();
                if ids.is_empty() {
                    continue;
                }
                match out
                    .iter_mut()
                    .find(|g| g.name == have.name && g.kind == have.kind)
                {
                    Some(known) => known.ids.union_with(&ids),
                    None => out.push(GresShare {
                        ids,
                        ..have.clone()
                    }),
                }
            }
            if wanted > 0 {
                return None;
            }
        }
        for part in &mut out {
            let whole = share
                .gres
                .iter()
                .find(|g| g.name == part.name && g.kind == part.kind);
            if let Some(whole) = whole {
                part.keep_of(whole);
            }
        }
        Some(out)
    }

    /// Devices of a share that no other step holds.
    fn free_of(&self, have: &GresShare, held: &StepUse) -> CpuSet {
        let mut free = have.ids.clone();
        let same = |h: &&GresShare| h.name == have.name && h.kind == have.kind;
        if !self.spec.overlap {
            let others = held.gres.iter().filter(same);
            others.for_each(|h| free.subtract(&h.ids));
        }
        free
    }

    /// The number of free devices on a node that match a request.
    fn count_free(&self, node: usize, ask: &GresAsk) -> u64 {
        let (share, held) = (&self.alloc.nodes[node], &self.held[node]);
        let free = share.gres.iter().filter(|have| is_a(have, ask));
        free.map(|have| u64::from(self.free_of(have, held).len()))
            .sum()
    }

    /// Most tasks that there are devices for on a node.
    fn slots_by_devices(&self, node: usize) -> u32 {
        let (of_node, of_task, of_all) = self.asked();
        let lacks = |ask: &GresAsk| self.count_free(node, ask) < ask.count;
        let none = |ask: &GresAsk| self.count_free(node, ask) == 0;
        if of_node.iter().any(lacks) || (!of_all.is_empty() && of_all.iter().all(none)) {
            return 0;
        }
        let each = of_task.iter().filter(|ask| ask.count > 0);
        let most = each.map(|ask| self.count_free(node, ask) / ask.count).min();
        u32::try_from(most.unwrap_or(u64::MAX)).unwrap_or(u32::MAX)
    }

    /// Divides requests over all nodes among these nodes, as evenly for their tasks as possible.
    fn of_step(&self, nodes: &[(usize, Vec<u32>)]) -> Vec<Vec<u64>> {
        let (.., of_all) = self.asked();
        let mut out = vec![vec![0; of_all.len()]; nodes.len()];
        for (kind, ask) in of_all.iter().enumerate() {
            let most: Vec<u64> = nodes
                .iter()
                .map(|(n, _)| self.count_free(*n, ask))
                .collect();
            let shares: Vec<EvenShare> = (nodes.iter().zip(most))
                .map(|((_, tasks), most)| EvenShare {
                    tasks: tasks.len().max(1) as u64,
                    most,
                })
                .collect();
            for (given, count) in out.iter_mut().zip(share_evenly(&shares, ask.count)) {
                given[kind] = count;
            }
        }
        out
    }

    /// Tasks per node. Block distribution too deals them out one at a time, so that no node is left empty.
    fn counts(&self, rooms: &[u32], ntasks: u32) -> Vec<u32> {
        let nodes = rooms.len();
        let mut counts = vec![0; nodes];
        let chunk = match self.spread {
            NodeSpread::Plane(size) => size.max(1),
            NodeSpread::Block if self.pack => u32::MAX,
            _ => 1,
        };
        let mut left = ntasks;
        while left > 0 {
            for (at, (count, room)) in counts.iter_mut().zip(rooms).enumerate() {
                // Nodes that have nothing yet are each left a task.
                let later = if *count == 0 { nodes - at - 1 } else { 0 };
                let most = left.saturating_sub(count_of(later)).max(left.min(1));
                let n = chunk.min(room - *count).min(most);
                *count += n;
                left -= n;
            }
        }
        counts
    }

    fn number(&self, nodes: &[usize], counts: &[u32]) -> Vec<(usize, Vec<u32>)> {
        let mut out: Vec<(usize, Vec<u32>)> = nodes.iter().map(|&i| (i, Vec::new())).collect();
        let chunk = match self.spread {
            NodeSpread::Cyclic => 1,
            NodeSpread::Plane(size) => size.max(1),
            NodeSpread::Block | NodeSpread::Arbitrary => u32::MAX,
        };
        let total: u32 = counts.iter().sum();
        let mut next = 0;
        while next < total {
            for ((_, tasks), &count) in out.iter_mut().zip(counts) {
                let n = chunk.min(count - count_of(tasks.len()));
                tasks.extend(next..next + n);
                next += n;
            }
        }
        out
    }

    fn share(
        &self,
        node: usize,
        tasks: Vec<u32>,
        of_step: &[u64],
    ) -> Result<NodePlacement, Refusal> {
        let (share, held) = (&self.alloc.nodes[node], &self.held[node]);
        let free = self.free(node);
        let needed = count_of(tasks.len()).saturating_mul(self.spec.cpus_per_task.unwrap_or(1));
        let cpus = if self.spec.exact && !self.spec.whole {
            free.lowest(needed)
        } else {
            free
        };
        let memory_mib = match self.spec.memory {
            // Where memory is not given out, a job has none to share among its steps.
            _ if share.memory_mib == 0 => 0,
            MemoryAsk::Default => 0,
            MemoryAsk::PerNode(mib) => mib,
            MemoryAsk::PerCpu(mib) => {
                let needed = match self.spec.overcommit {
                    true => needed.min(cpus.len()),
                    false => needed,
                };
                // With CPUs that no task needs comes their memory, as far as other steps leave it.
                let left = share.memory_mib.saturating_sub(self.taken_memory(held));
                let of_all = mib.saturating_mul(u64::from(cpus.len()));
                of_all.min(left).max(mib.saturating_mul(u64::from(needed)))
            }
        };
        // Tasks that share CPUs may add up to more.
        let memory_mib = memory_mib.min(share.memory_mib);
        let gres = self
            .devices((share, held), count_of(tasks.len()), of_step)
            .ok_or_else(|| Refusal::from(RefusalCode::InvalidGres))?;
        Ok(NodePlacement {
            node,
            cpus,
            memory_mib,
            gres,
            tasks,
        })
    }
}

/// Room for tasks, worked out once for a layout.
struct TaskRoom {
    /// Slots of each node of the allocation; 0 for nodes that are not allowed.
    slots: Vec<u32>,
    /// Allowed nodes with room that are not required, in the order of the allocation.
    others: Vec<usize>,
    /// The nodes by room, the most first.
    roomiest: Vec<usize>,
}

impl TaskRoom {
    fn new(layout: &Layout<'_>) -> TaskRoom {
        let mut slots = vec![0; layout.alloc.nodes.len()];
        for &node in &layout.allowed {
            slots[node] = layout.slots(node);
        }
        let is_other = |i: &usize| layout.required.binary_search(i).is_err() && slots[*i] > 0;
        let others: Vec<usize> = layout.allowed.iter().copied().filter(is_other).collect();
        let mut roomiest = others.clone();
        roomiest.sort_by_key(|&i| Reverse(slots[i]));
        TaskRoom {
            slots,
            others,
            roomiest,
        }
    }
}

/// Whether all tasks have room if no node takes more of them. Where not, Slurm starts them all the same, and so does this.
fn can_keep(most: u32, alloc: &Allocation, allowed: &[usize], spec: &StepSpec) -> bool {
    let cpus_per_task = spec.cpus_per_task.unwrap_or(1).max(1);
    let room = allowed.iter().map(|&node| {
        let there = match spec.overcommit {
            true => u32::MAX,
            false => alloc.nodes[node].cpus.len() / cpus_per_task,
        };
        u64::from(there.min(most))
    });
    let by_nodes = spec.min_nodes.map(|nodes| nodes.saturating_mul(most));
    let ntasks = spec.ntasks.or(by_nodes);
    ntasks.is_none_or(|ntasks| room.sum::<u64>() >= u64::from(ntasks))
}

fn is_a(have: &GresShare, ask: &GresAsk) -> bool {
    have.name == ask.name && (ask.kind.is_none() || ask.kind == have.kind)
}

/// The names of a list, which are looked up as they come: none is kept.
fn names(list: Option<&str>, most: usize) -> Result<hostlist::Names<'_>, Refusal> {
    hostlist::names_within(list.unwrap_or(""), most, NAMES_BYTES_MAX)
        .map_err(|e| Refusal::new(RefusalCode::InvalidNode, e.to_string()))
}

fn count_of(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
