//! Where the tasks of a step run: nodes, CPUs, memory and devices out of the job's allocation, and which task goes
//! where. Pure; the lead's agent calls it whenever a step comes or another one ends.
//!
//! As srun(1) has it: a step gets all CPUs of its nodes that no other step holds, or with `--exact` (implied by
//! `-c`) only those that its tasks need; with `--overlap` it shares everything and holds nothing. Kinder than
//! Slurm: memory counts only for steps that ask for some.

use muster_core::cpuset::CpuSet;
use muster_core::distribution::{Distribution, NodeSpread};
use muster_core::hostlist;
use muster_core::job::{Allocation, GresShare, NodeShare};
use muster_core::refusal::{Refusal, RefusalCode};
use muster_core::spec::{GresAsk, MemoryAsk};
use muster_proto::step::StepSpec;
use std::collections::HashSet;

/// What running steps hold of one node of the allocation.
#[derive(Clone, Debug, Default)]
pub(crate) struct Held {
    pub(crate) cpus: CpuSet,
    pub(crate) memory_mib: u64,
    pub(crate) gres: Vec<GresShare>,
}

/// A step's share of one node.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Placed {
    /// Position of the node in the allocation.
    pub(crate) node: usize,
    /// CPUs.
    pub(crate) cpus: CpuSet,
    /// MiB that it asked for, 0 if it did not.
    pub(crate) memory_mib: u64,
    /// Devices.
    pub(crate) gres: Vec<GresShare>,
    /// Global numbers of its tasks here.
    pub(crate) tasks: Vec<u32>,
}

/// Why a step cannot start.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum NoLayout {
    /// Not now.
    Busy,
    /// Never in this allocation.
    Never(Refusal),
}

/// Lays a step out.
pub(crate) fn lay_out(
    alloc: &Allocation,
    spec: &StepSpec,
    held: &[Held],
) -> Result<Vec<Placed>, NoLayout> {
    let nothing = vec![Held::default(); alloc.nodes.len()];
    let idle = Layout::new(alloc, spec, &nothing).and_then(Layout::place);
    match idle {
        Err(refusal) => Err(NoLayout::Never(refusal)),
        Ok(placed) if spec.overlap => Ok(placed),
        Ok(_) => Layout::new(alloc, spec, held)
            .and_then(Layout::place)
            .map_err(|_| NoLayout::Busy),
    }
}

struct Layout<'a> {
    alloc: &'a Allocation,
    spec: &'a StepSpec,
    held: &'a [Held],
    spread: NodeSpread,
    pack: bool,
    /// Allowed nodes, in the order of the allocation.
    allowed: Vec<usize>,
    /// Of them, those that must be used.
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
        spec: &'a StepSpec,
        held: &'a [Held],
    ) -> Result<Layout<'a>, Refusal> {
        let text = spec.distribution.as_deref().unwrap_or("");
        let distribution = Distribution::parse(text).map_err(|why| {
            let detail = format!("distribution '{text}' is not known: {why}");
            Refusal::new(RefusalCode::InvalidValue, detail)
        })?;
        let first = usize::try_from(spec.relative.unwrap_or(0)).unwrap_or(usize::MAX);
        let excluded: HashSet<String> = names(spec.exclude.as_deref())?.into_iter().collect();
        let allowed = (first..alloc.nodes.len())
            .filter(|&i| !excluded.contains(&alloc.nodes[i].name))
            .collect();
        let mut layout = Layout {
            alloc,
            spec,
            held,
            spread: distribution.nodes.unwrap_or(NodeSpread::Block),
            pack: distribution.pack.unwrap_or(false),
            allowed,
            required: Vec::new(),
            listed: Vec::new(),
        };
        for name in names(spec.nodelist.as_deref())? {
            let Some(at) = alloc.nodes.iter().position(|n| n.name == name) else {
                let detail = format!("node {name} is not in the job's allocation");
                return refuse(RefusalCode::NodeConfigUnavailable, detail);
            };
            if layout.allowed.contains(&at) {
                layout.listed.push(at);
            }
        }
        layout.required.clone_from(&layout.listed);
        layout.required.sort_unstable();
        layout.required.dedup();
        Ok(layout)
    }

    fn place(self) -> Result<Vec<Placed>, Refusal> {
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
        let mut out: Vec<(usize, Vec<u32>)> = Vec::new();
        for (task, &node) in (0..).zip(&self.listed[..count]) {
            match out.iter_mut().find(|(n, _)| *n == node) {
                Some((_, tasks)) => tasks.push(task),
                None => out.push((node, vec![task])),
            }
        }
        // Nodes have the allocation's order in every step; the list says only where each task goes.
        out.sort_unstable_by_key(|(node, _)| *node);
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
        let per_node = spec.ntasks_per_node.filter(|n| *n > 0);
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
        for count in least..=most {
            let Some(nodes) = self.choose(count, ntasks) else {
                continue;
            };
            let counts = self.counts(&nodes, ntasks);
            return Ok(self.number(&nodes, &counts));
        }
        self.too_small(ntasks)
    }

    fn too_small<T>(&self, ntasks: u32) -> Result<T, Refusal> {
        let cpus = self.spec.cpus_per_task.unwrap_or(1).max(1);
        let detail =
            format!("{ntasks} tasks of {cpus} CPUs do not fit into the nodes of the allocation");
        refuse(RefusalCode::NodeConfigUnavailable, detail)
    }

    /// So many nodes with room for all tasks: the required ones and the first others, else those with most room.
    fn choose(&self, count: u32, ntasks: u32) -> Option<Vec<usize>> {
        let count = count as usize;
        let mut others: Vec<usize> = self
            .allowed
            .iter()
            .copied()
            .filter(|i| !self.required.contains(i) && self.slots(*i) > 0)
            .collect();
        for _ in 0..2 {
            let mut nodes: Vec<usize> = self
                .required
                .iter()
                .chain(&others)
                .copied()
                .take(count)
                .collect();
            nodes.sort_unstable();
            let room: u64 = nodes.iter().map(|&i| u64::from(self.slots(i))).sum();
            let all_usable = nodes.iter().all(|&i| self.slots(i) > 0);
            let (.., of_all) = self.asked();
            let given = of_all.iter().all(|ask| {
                let there = nodes.iter().map(|&i| self.count_free(i, ask));
                there.sum::<u64>() >= ask.count
            });
            if nodes.len() == count && all_usable && given && room >= u64::from(ntasks) {
                return Some(nodes);
            }
            others.sort_by_key(|&i| std::cmp::Reverse(self.slots(i)));
        }
        None
    }

    /// How many tasks fit on a node.
    fn slots(&self, node: usize) -> u32 {
        let (share, held) = (&self.alloc.nodes[node], &self.held[node]);
        let cpus_per_task = self.spec.cpus_per_task.unwrap_or(1).max(1);
        let free = self.free(node).len();
        let mut slots = if self.spec.overcommit {
            if free > 0 { u32::MAX / 2 } else { 0 }
        } else {
            free / cpus_per_task
        };
        slots = slots.min(
            self.spec
                .ntasks_per_node
                .filter(|n| *n > 0)
                .unwrap_or(u32::MAX),
        );
        if share.memory_mib > 0 {
            let left = share.memory_mib.saturating_sub(self.taken_memory(held));
            match self.spec.memory {
                MemoryAsk::PerNode(mib) if mib > left => slots = 0,
                MemoryAsk::PerCpu(mib) if mib > 0 => {
                    let fit = left / (mib * u64::from(cpus_per_task));
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

    fn taken_memory(&self, held: &Held) -> u64 {
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

    /// What the step asks for of each node, of each task, and over all nodes.
    fn asked(&self) -> (&[GresAsk], &[GresAsk], &[GresAsk]) {
        let devices = self.spec.devices.as_deref();
        (
            &self.spec.gres,
            devices.map_or(&[], |d| &d.per_task),
            devices.map_or(&[], |d| &d.per_job),
        )
    }

    /// Devices for so many tasks of the step on a node: what it asks for out of what is free, or all of the job's if it
    /// does not ask. `of_step` says how many the node gives of those that are counted over all nodes.
    fn devices(
        &self,
        (share, held): (&NodeShare, &Held),
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
            let near = whole.into_iter().flat_map(|g| g.ids.iter().zip(&g.near));
            part.near = near
                .filter(|(id, _)| part.ids.contains(*id))
                .map(|(_, cpus)| cpus.clone())
                .collect();
        }
        Some(out)
    }

    /// Devices of a share that no other step holds.
    fn free_of(&self, have: &GresShare, held: &Held) -> CpuSet {
        let mut free = have.ids.clone();
        let same = |h: &&GresShare| h.name == have.name && h.kind == have.kind;
        if !self.spec.overlap {
            let others = held.gres.iter().filter(same);
            others.for_each(|h| free.subtract(&h.ids));
        }
        free
    }

    /// How many a node has free of what is asked for.
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

    /// How many of what is counted over all nodes each of these gives: as evenly for their tasks as can be.
    fn of_step(&self, nodes: &[(usize, Vec<u32>)]) -> Vec<Vec<u64>> {
        let (.., of_all) = self.asked();
        let mut out = vec![vec![0; of_all.len()]; nodes.len()];
        for (kind, ask) in of_all.iter().enumerate() {
            let most: Vec<u64> = nodes
                .iter()
                .map(|(n, _)| self.count_free(*n, ask))
                .collect();
            for _ in 0..ask.count {
                let open = (0..nodes.len()).filter(|i| out[*i][kind] < most[*i]);
                let next = open.min_by_key(|&i| {
                    let tasks = nodes[i].1.len().max(1) as u64;
                    ((out[i][kind] + 1) * 1_000_000 / tasks, i)
                });
                let Some(next) = next else { break };
                out[next][kind] += 1;
            }
        }
        out
    }

    /// Tasks per node. Block distribution too deals them out one at a time, so that no node is left empty.
    fn counts(&self, nodes: &[usize], ntasks: u32) -> Vec<u32> {
        let room: Vec<u32> = nodes.iter().map(|&i| self.slots(i)).collect();
        let mut counts = vec![0; nodes.len()];
        let chunk = match self.spread {
            NodeSpread::Plane(size) => size,
            NodeSpread::Block if self.pack => u32::MAX,
            _ => 1,
        };
        let mut left = ntasks;
        while left > 0 {
            for (at, (count, room)) in counts.iter_mut().zip(&room).enumerate() {
                // Nodes that have nothing yet are each left a task.
                let later = if *count == 0 { nodes.len() - at - 1 } else { 0 };
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
            NodeSpread::Plane(size) => size,
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

    fn share(&self, node: usize, tasks: Vec<u32>, of_step: &[u64]) -> Result<Placed, Refusal> {
        let (share, held) = (&self.alloc.nodes[node], &self.held[node]);
        let free = self.free(node);
        let needed = count_of(tasks.len()).saturating_mul(self.spec.cpus_per_task.unwrap_or(1));
        let memory_mib = match self.spec.memory {
            // Where memory is not given out, a job has none to share among its steps.
            _ if share.memory_mib == 0 => 0,
            MemoryAsk::Default => 0,
            MemoryAsk::PerNode(mib) => mib,
            MemoryAsk::PerCpu(mib) if self.spec.overcommit => {
                mib * u64::from(needed.min(free.len()))
            }
            MemoryAsk::PerCpu(mib) => mib * u64::from(needed),
        };
        let gres = self
            .devices((share, held), count_of(tasks.len()), of_step)
            .ok_or_else(|| Refusal::from(RefusalCode::InvalidGres))?;
        Ok(Placed {
            node,
            cpus: if self.spec.exact && !self.spec.whole {
                free.lowest(needed)
            } else {
                free
            },
            memory_mib,
            gres,
            tasks,
        })
    }
}

fn is_a(have: &GresShare, ask: &GresAsk) -> bool {
    have.name == ask.name && (ask.kind.is_none() || ask.kind == have.kind)
}

fn names(list: Option<&str>) -> Result<Vec<String>, Refusal> {
    hostlist::parse(list.unwrap_or(""))
        .map_err(|e| Refusal::new(RefusalCode::InvalidNode, e.to_string()))
}

fn count_of(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_core::ids::NodeIdx;

    fn alloc(cpus: &[u32]) -> Allocation {
        let nodes = (1u32..).zip(cpus).map(|(i, &cpus)| NodeShare {
            node: NodeIdx(i),
            name: format!("n{i}"),
            cpus: CpuSet::first(cpus),
            memory_mib: 1000,
            tasks: 1,
            gres: Vec::new(),
        });
        Allocation {
            nodes: nodes.collect(),
            ..Allocation::default()
        }
    }

    /// `n1:0,1 n2:2` for the tasks, and the number of CPUs of each node.
    fn show(placed: &[Placed]) -> String {
        let parts: Vec<String> = placed
            .iter()
            .map(|p| {
                let tasks: Vec<String> = p.tasks.iter().map(u32::to_string).collect();
                format!("n{}:{}/{}", p.node + 1, tasks.join(","), p.cpus.len())
            })
            .collect();
        parts.join(" ")
    }

    fn idle(alloc: &Allocation, spec: &StepSpec) -> String {
        let held = vec![Held::default(); alloc.nodes.len()];
        match lay_out(alloc, spec, &held) {
            Ok(placed) => show(&placed),
            Err(NoLayout::Busy) => "busy".to_owned(),
            Err(NoLayout::Never(r)) => format!("{:?}", r.code),
        }
    }

    fn spec(ntasks: u32) -> StepSpec {
        StepSpec {
            ntasks: Some(ntasks),
            ..StepSpec::default()
        }
    }

    #[test]
    fn distributions() {
        let a = alloc(&[4, 4]);
        assert_eq!(idle(&a, &spec(4)), "n1:0,1/4 n2:2,3/4");
        assert_eq!(idle(&a, &StepSpec::default()), "n1:0/4 n2:1/4");
        assert_eq!(idle(&a, &spec(1)), "n1:0/4");
        assert_eq!(idle(&a, &spec(9)), "NodeConfigUnavailable");
        let with = |distribution: &str, ntasks| StepSpec {
            distribution: Some(distribution.to_owned()),
            ..spec(ntasks)
        };
        assert_eq!(idle(&a, &with("cyclic", 5)), "n1:0,2,4/4 n2:1,3/4");
        assert_eq!(idle(&a, &with("plane=2", 6)), "n1:0,1,4,5/4 n2:2,3/4");
        assert_eq!(idle(&a, &with("block,pack", 5)), "n1:0,1,2,3/4 n2:4/4");
        assert_eq!(idle(&a, &with("nosuch", 5)), "InvalidValue");
        let arbitrary = StepSpec {
            nodelist: Some("n2,n1,n2".to_owned()),
            ..with("arbitrary", 3)
        };
        assert_eq!(idle(&a, &arbitrary), "n1:1/4 n2:0,2/4");
        // Uneven nodes: dealt out one at a time, numbered in blocks.
        assert_eq!(idle(&alloc(&[1, 4]), &spec(4)), "n1:0/1 n2:1,2,3/4");
    }

    /// What srun makes of options of a row, in an allocation of three nodes.
    fn spec_of(options: &str) -> StepSpec {
        let (mut spec, mut nodes, mut words) = (StepSpec::default(), 3, options.split(' '));
        let (mut per_node, mut given) = (None, false);
        while let Some(word) = words.next() {
            let number = |text: &str| text.parse::<u32>().unwrap();
            match (word, word.get(..2)) {
                ("-m", _) => spec.distribution = words.next().map(str::to_owned),
                (_, Some("-n")) => spec.ntasks = Some(number(&word[2..])),
                (_, Some("-c")) => spec.cpus_per_task = Some(number(&word[2..])),
                (_, Some("-N")) => (nodes, given) = (number(&word[2..]), true),
                _ => per_node = Some(number(word.strip_prefix("--ntasks-per-node=").unwrap())),
            }
        }
        let ntasks = spec.ntasks.unwrap();
        let nodes = nodes.min(ntasks);
        spec.exact = spec.cpus_per_task.is_some();
        spec.ntasks_per_node = per_node.filter(|n| n * nodes >= ntasks);
        let pack = spec
            .distribution
            .as_deref()
            .is_some_and(|d| d.ends_with(",Pack"));
        if given || !pack {
            (spec.min_nodes, spec.max_nodes) = (Some(nodes), Some(nodes));
        } else {
            spec.ntasks_per_node = None;
        }
        spec
    }

    #[test]
    fn tasks_go_where_slurm_puts_them() {
        let rows = include_str!("../tests/data/slurm_layouts.txt").lines();
        let (mut seen, mut wrong) = (0, Vec::new());
        for row in rows.filter(|r| !r.starts_with('#')) {
            let fields: Vec<&str> = row.split('|').collect();
            let cpus: Vec<u32> = fields[0].split(',').map(|n| n.parse().unwrap()).collect();
            let a = alloc(&cpus);
            let spec = spec_of(fields[1]);
            let placed = lay_out(&a, &spec, &vec![Held::default(); cpus.len()]);
            let shown = placed.map_or_else(
                |e| format!("{e:?}"),
                |placed| {
                    let parts = placed.iter().map(|p| {
                        let tasks: Vec<String> = p.tasks.iter().map(u32::to_string).collect();
                        format!("n{}:{}", p.node + 1, tasks.join(","))
                    });
                    parts.collect::<Vec<_>>().join(" ")
                },
            );
            let count = |n: usize| u32::try_from(n).unwrap();
            let variable = Distribution::parse(spec.distribution.as_deref().unwrap_or(""))
                .unwrap()
                .with_default(spec.ntasks.unwrap(), count(fields[2].split(' ').count()))
                .variable();
            if (shown.as_str(), variable.as_str()) != (fields[2], fields[3]) {
                wrong.push(format!("{row}: {shown} {variable}"));
            }
            seen += 1;
        }
        assert!(seen > 400, "{seen} rows");
        assert!(
            wrong.is_empty(),
            "{} of {seen} differ:\n{}",
            wrong.len(),
            wrong.join("\n")
        );
    }

    #[test]
    fn choice_of_nodes() {
        let a = alloc(&[4, 4, 4]);
        let on = |list: &str, ntasks| StepSpec {
            nodelist: Some(list.to_owned()),
            ..spec(ntasks)
        };
        assert_eq!(idle(&a, &on("n3", 2)), "n3:0,1/4");
        assert_eq!(idle(&a, &on("n9", 1)), "NodeConfigUnavailable");
        let relative = StepSpec {
            relative: Some(1),
            min_nodes: Some(1),
            ..StepSpec::default()
        };
        assert_eq!(idle(&a, &relative), "n2:0/4");
        let exclude = StepSpec {
            exclude: Some("n[1-2]".to_owned()),
            ..StepSpec::default()
        };
        assert_eq!(idle(&a, &exclude), "n3:0/4");
        let per_node = StepSpec {
            ntasks_per_node: Some(2),
            min_nodes: Some(2),
            ..StepSpec::default()
        };
        assert_eq!(idle(&a, &per_node), "n1:0,1/4 n2:2,3/4");
        let overcommit = StepSpec {
            overcommit: true,
            min_nodes: Some(1),
            ..spec(9)
        };
        assert_eq!(idle(&a, &overcommit), "n1:0,1,2,3,4,5,6,7,8/4");
        // Memory goes with CPUs, and these are shared.
        let with_memory = StepSpec {
            memory: MemoryAsk::PerCpu(100),
            ..overcommit
        };
        assert_eq!(idle(&a, &with_memory), "n1:0,1,2,3,4,5,6,7,8/4");
    }

    #[test]
    fn devices_of_steps() {
        use muster_core::spec::DeviceAsk;
        let mut a = alloc(&[4, 4]);
        for (node, count) in a.nodes.iter_mut().zip([4, 2]) {
            node.gres = vec![GresShare {
                name: "gpu".to_owned(),
                ids: CpuSet::first(count),
                near: (0..count).map(|i| CpuSet::from_iter([i])).collect(),
                ..GresShare::default()
            }];
        }
        let gpus = |count| {
            vec![GresAsk {
                name: "gpu".to_owned(),
                kind: None,
                count,
            }]
        };
        let with = |devices, ntasks| StepSpec {
            devices: Some(Box::new(devices)),
            ..spec(ntasks)
        };
        let shown = |spec: &StepSpec, held: &[Held]| -> String {
            match lay_out(&a, spec, held) {
                Ok(placed) => (placed.iter())
                    .map(|p| {
                        let ids = p.gres.iter().flat_map(|g| g.ids.iter());
                        let ids: Vec<String> = ids.map(|id| id.to_string()).collect();
                        let near: usize = p.gres.iter().map(|g| g.near.len()).sum();
                        assert_eq!(near, ids.len());
                        format!("n{}:{}/{}", p.node + 1, p.tasks.len(), ids.join(","))
                    })
                    .collect::<Vec<_>>()
                    .join(" "),
                Err(NoLayout::Busy) => "busy".to_owned(),
                Err(NoLayout::Never(r)) => format!("{:?}", r.code),
            }
        };
        let mut held = vec![Held::default(), Held::default()];
        let of_task = |count| DeviceAsk {
            per_task: gpus(count),
            ..DeviceAsk::default()
        };
        let of_step = |count| DeviceAsk {
            per_job: gpus(count),
            ..DeviceAsk::default()
        };
        assert_eq!(shown(&with(of_task(1), 4), &held), "n1:2/0,1 n2:2/0,1");
        assert_eq!(shown(&with(of_task(2), 3), &held), "n1:2/0,1,2,3 n2:1/0,1");
        assert_eq!(shown(&with(of_task(3), 2), &held), "NodeConfigUnavailable");
        assert_eq!(shown(&with(of_step(5), 4), &held), "n1:2/0,1,2 n2:2/0,1");
        assert_eq!(shown(&with(of_step(7), 4), &held), "NodeConfigUnavailable");
        // A step that does not ask has them all, and keeps them from nobody.
        assert_eq!(shown(&spec(2), &held), "n1:1/0,1,2,3 n2:1/0,1");
        held[0].gres = vec![GresShare {
            ids: CpuSet::first(2),
            ..a.nodes[0].gres[0].clone()
        }];
        assert_eq!(shown(&with(of_step(4), 2), &held), "n1:1/2,3 n2:1/0,1");
        assert_eq!(shown(&with(of_step(5), 2), &held), "busy");
    }

    #[test]
    fn steps_beside_each_other() {
        let a = alloc(&[4]);
        let exact = StepSpec {
            exact: true,
            cpus_per_task: Some(3),
            ..spec(1)
        };
        let mut held = vec![Held::default()];
        let first = lay_out(&a, &exact, &held).unwrap();
        assert_eq!(show(&first), "n1:0/3");
        held[0].cpus.union_with(&first[0].cpus);
        assert_eq!(lay_out(&a, &exact, &held), Err(NoLayout::Busy));
        // What is left is enough for a plain step; it takes all of it.
        let plain = lay_out(&a, &spec(1), &held).unwrap();
        assert_eq!(show(&plain), "n1:0/1");
        held[0].cpus.union_with(&plain[0].cpus);
        assert_eq!(lay_out(&a, &spec(1), &held), Err(NoLayout::Busy));
        let overlap = StepSpec {
            overlap: true,
            ..spec(4)
        };
        assert_eq!(show(&lay_out(&a, &overlap, &held).unwrap()), "n1:0,1,2,3/4");
        // Memory counts when it is asked for.
        let big = StepSpec {
            memory: MemoryAsk::PerNode(600),
            exact: true,
            ..spec(1)
        };
        held[0] = Held {
            memory_mib: 500,
            ..Held::default()
        };
        assert_eq!(lay_out(&a, &big, &held), Err(NoLayout::Busy));
        assert!(lay_out(&a, &spec(1), &held).is_ok());
    }
}
