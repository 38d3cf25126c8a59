//! Binding of tasks to CPUs and memory, from the step's request, the site's default, and the node's topology. The
//! agent computes it; the children of the step daemon apply it before they execute.
//!
//! A node whose CPUs are not those of this machine (several agents share it, or it claims more CPUs than there are)
//! binds nothing, and says so if the user asks for a report.

mod masks;
pub mod topology;

use crate::messages::{MemoryPolicy, TaskBinding};
use masks::CpuRequest;
use muster_model::binding::{
    BindDefault, CpuBind, CpuBindKind, MemBind, MemBindKind, Unit, mask_text,
};
use muster_model::cpuset::CpuSet;
use muster_model::distribution::{CpuSpread, Distribution};
use muster_model::gpu_bind::{self, GpuBind};
use muster_model::hostlist;
use muster_model::job::Allocation;
use muster_proto::node::{CpuBindDefaults, NodeSettings};
use muster_proto::step::StepLaunch;
use std::collections::HashMap;
use topology::CpuTopology;

/// The machine as far as binding is concerned.
#[derive(Debug)]
pub struct Machine {
    /// The topology of its CPUs, or why they are not this node's.
    topology: Result<CpuTopology, String>,
    /// NUMA domains with memory.
    memory: CpuSet,
}

/// Why a step's binding is impossible: for srun.
type BindingRefusal = String;

/// Variables that describe a task's binding.
pub type BindVariables = Vec<(&'static str, String)>;

impl Machine {
    /// A machine with these CPUs, or why they are not this node's, and these NUMA domains with memory.
    pub fn new(topology: Result<CpuTopology, String>, memory: CpuSet) -> Machine {
        Machine { topology, memory }
    }

    /// The kernel's numbers of CPUs of this node, if they are real: the CPUs that a batch script may use.
    pub fn threads(&self, cpus: &CpuSet, settings: &NodeSettings) -> Option<CpuSet> {
        let topology = self
            .topology
            .as_ref()
            .ok()
            .filter(|_| settings.bind_tasks)?;
        let threads = topology.threads(cpus);
        (!threads.is_empty()).then_some(threads)
    }

    /// Binding of the tasks of a step on this node, and the variables that describe it.
    ///
    /// # Errors
    /// The user asks for CPUs that the step does not have.
    pub fn bind(
        &self,
        launch: &StepLaunch,
        settings: &NodeSettings,
        default: Option<&CpuBindKind>,
    ) -> Result<(TaskBinding, BindVariables), BindingRefusal> {
        let mut out = TaskBinding::default();
        let mut variables = Vec::new();
        if settings.bind_tasks {
            variables = self.bind_cpus(launch, settings, default, &mut out)?;
        }
        if let Some(text) = &launch.spec.mem_bind {
            let bind = MemBind::parse(text).map_err(|e| e.to_string())?;
            variables.extend(bind.variables());
            self.bind_memory(&bind, tasks_here(launch), &mut out);
        }
        if let Some(text) = &launch.spec.gpu_bind {
            self.bind_gpus(text, launch, &mut out)?;
        }
        Ok((out, variables))
    }

    /// The GPUs that each task sees. The task of a step with one task sees all.
    fn bind_gpus(
        &self,
        text: &str,
        launch: &StepLaunch,
        out: &mut TaskBinding,
    ) -> Result<(), BindingRefusal> {
        let bind =
            GpuBind::parse(text).map_err(|word| format!("--gpu-bind={word} is not known"))?;
        let tasks: usize = launch.tasks.iter().map(Vec::len).sum();
        if tasks < 2 {
            return Ok(());
        }
        let mut gpus = gpu_bind::gpus_of(&launch.gres);
        // Where devices are is said in the node's numbers of CPUs, where tasks run in the kernel's.
        let topology = self.topology.as_ref().ok();
        for gpu in &mut gpus {
            gpu.near = gpu
                .near
                .take()
                .zip(topology)
                .map(|(near, t)| t.threads(&near));
        }
        let cpus = |task: u32| out.cpus.get(task as usize).cloned();
        let here = tasks_here(launch);
        let bound = bind.tasks(&gpus, here, cpus);
        (out.gpus, out.report_gpus) = (bound, bind.verbose);
        Ok(())
    }

    fn bind_cpus(
        &self,
        launch: &StepLaunch,
        settings: &NodeSettings,
        default: Option<&CpuBindKind>,
        out: &mut TaskBinding,
    ) -> Result<BindVariables, BindingRefusal> {
        let spec = &launch.spec;
        let asked =
            CpuBind::parse(spec.cpu_bind.as_deref().unwrap_or("")).map_err(|e| e.to_string())?;
        let site = Site::parse(&settings.task_plugin_param);
        let verbose = asked.verbose.unwrap_or(site.verbose);
        let mut bind = CpuBind {
            verbose: Some(verbose),
            kind: asked.kind.or(default.cloned()).or(site.kind),
        };
        out.verbose = verbose;
        let topology = match &self.topology {
            Ok(topology) => topology,
            Err(why) => {
                out.note = Some(format!("tasks are not bound to CPUs: {why}"));
                "NONE".clone_into(&mut out.label);
                bind.kind = Some(CpuBindKind::None);
                return Ok(bind.variables());
            }
        };
        let node = NodePart {
            topology,
            cpus: &launch.cpus,
            tasks: tasks_here(launch),
            verbose,
        };
        match &bind.kind {
            Some(CpuBindKind::None) => "NONE".clone_into(&mut out.label),
            Some(kind @ (CpuBindKind::Rank | CpuBindKind::RankLdom)) => {
                out.label = label(kind).to_owned();
                out.cpus = node.by_rank(kind)?;
            }
            Some(kind @ (CpuBindKind::Map(_) | CpuBindKind::Mask(_))) => {
                out.label = label(kind).to_owned();
                out.cpus = node.by_list(kind)?;
            }
            Some(kind @ (CpuBindKind::MapLdom(_) | CpuBindKind::MaskLdom(_))) => {
                out.label = label(kind).to_owned();
                out.cpus = node.by_ldoms(kind)?;
            }
            unit @ (None | Some(CpuBindKind::To(_))) => {
                let unit = match unit {
                    Some(CpuBindKind::To(unit)) => Some(*unit),
                    _ => None,
                };
                let dist = Distribution::parse(spec.distribution.as_deref().unwrap_or(""))
                    .unwrap_or_default();
                let request = CpuRequest {
                    tasks: node.tasks,
                    cpus_per_task: spec.cpus_per_task.unwrap_or(1),
                    unit,
                    sockets: dist
                        .sockets
                        .unwrap_or(default_spread(&dist, settings.block_sockets)),
                    cores: dist.cores,
                    threads_per_core: spec.threads_per_core,
                    tasks_per_socket: spec.ntasks_per_socket,
                };
                let masks = masks::assign(topology, node.cpus, &request, site.autobind);
                let masks: Vec<CpuSet> = masks.iter().map(|m| topology.threads(m)).collect();
                "MASK".clone_into(&mut out.label);
                out.cpus.clone_from(&masks);
                bind.kind = Some(CpuBindKind::Mask(masks));
            }
        }
        if out.cpus.len() == 1 && node.tasks > 1 {
            out.cpus = vec![out.cpus[0].clone(); node.tasks as usize];
        }
        Ok(bind.variables())
    }

    fn bind_memory(&self, bind: &MemBind, tasks: u32, out: &mut TaskBinding) {
        let verbose = bind.verbose.unwrap_or(false);
        let all = self.memory.clone();
        let of = |task: u32, list: &[CpuSet]| list[task as usize % list.len()].clone();
        let single = |n: u32| [n].into_iter().collect::<CpuSet>();
        let (label, domains): (&str, Vec<CpuSet>) = match &bind.kind {
            None if !verbose => return,
            None | Some(MemBindKind::None) => ("NONE", Vec::new()),
            Some(MemBindKind::Local) => ("LOC", Vec::new()),
            Some(MemBindKind::Rank) => ("RANK", (0..tasks).map(single).collect()),
            Some(MemBindKind::Map(list)) => {
                let of = |task| single(list[task as usize % list.len()]);
                ("MAP", (0..tasks).map(of).collect())
            }
            Some(MemBindKind::Mask(list)) => ("MASK", (0..tasks).map(|t| of(t, list)).collect()),
        };
        out.memory = Some(MemoryPolicy {
            label: if bind.prefer {
                format!(" PREFER {label}")
            } else {
                format!("={label}")
            },
            verbose,
            local: matches!(bind.kind, Some(MemBindKind::Local)),
            prefer: bind.prefer,
            domains,
            exist: all,
        });
    }
}

/// Without a distribution over sockets: neighbours of a plane share one, other tasks take turns.
fn default_spread(dist: &Distribution, by_block: bool) -> CpuSpread {
    match dist.nodes {
        _ if by_block => CpuSpread::Block,
        Some(muster_model::distribution::NodeSpread::Plane(_)) => CpuSpread::Block,
        _ => CpuSpread::Cyclic,
    }
}

fn tasks_here(launch: &StepLaunch) -> u32 {
    let here = launch
        .tasks
        .get(launch.position as usize)
        .map_or(0, Vec::len);
    u32::try_from(here).unwrap_or(u32::MAX)
}

/// The name of a binding in the output of `--cpu-bind=verbose`; some have a blank at the end in Slurm's output.
fn label(kind: &CpuBindKind) -> &'static str {
    match kind {
        CpuBindKind::None => "NONE",
        CpuBindKind::Rank => "RANK",
        CpuBindKind::Map(_) => "MAP ",
        CpuBindKind::Mask(_) | CpuBindKind::To(_) => "MASK",
        CpuBindKind::RankLdom => "LDRANK",
        CpuBindKind::MapLdom(_) => "LDMAP ",
        CpuBindKind::MaskLdom(_) => "LDMASK",
    }
}

/// A step's part of a node.
struct NodePart<'a> {
    topology: &'a CpuTopology,
    cpus: &'a CpuSet,
    tasks: u32,
    verbose: bool,
}

impl NodePart<'_> {
    fn needs_node(&self, what: &str) -> Result<(), BindingRefusal> {
        if self.cpus.is_superset(&self.topology.all()) {
            return Ok(());
        }
        let verbosity = if self.verbose { "verbose" } else { "quiet" };
        Err(format!(
            "Entire node must be allocated for {verbosity},{what}"
        ))
    }

    fn by_rank(&self, kind: &CpuBindKind) -> Result<Vec<CpuSet>, BindingRefusal> {
        if *kind == CpuBindKind::RankLdom {
            self.needs_node("rank_ldom")?;
            let ldoms = self.topology.ldoms();
            let of = |task: u32| self.topology.ldom(ldoms[task as usize % ldoms.len()]);
            return Ok((0..self.tasks).map(of).collect());
        }
        self.needs_node("rank")?;
        let count = self.topology.all().len().max(1);
        let one = |task: u32| self.topology.threads(&[task % count].into_iter().collect());
        Ok((0..self.tasks).map(one).collect())
    }

    /// The kernel's numbers, as the user gives them.
    fn by_list(&self, kind: &CpuBindKind) -> Result<Vec<CpuSet>, BindingRefusal> {
        let own = self.topology.threads(self.cpus);
        // The size of a set depends on its highest number, so sets are built only from CPUs of the step.
        let (are_own, of): (bool, &dyn Fn(usize) -> CpuSet) = match kind {
            CpuBindKind::Map(list) => (list.iter().all(|cpu| own.contains(*cpu)), &|task| {
                [list[task % list.len()]].into_iter().collect()
            }),
            CpuBindKind::Mask(list) => {
                let is_own = |mask: &CpuSet| !mask.is_empty() && own.is_superset(mask);
                let all = list.iter().all(is_own);
                (all, &|task| list[task % list.len()].clone())
            }
            _ => return Ok(Vec::new()),
        };
        if !are_own {
            return Err(format!(
                "CPU binding outside of job step allocation, allocated CPUs are: {}.",
                mask_text(&own, 1)
            ));
        }
        Ok((0..self.tasks as usize).map(of).collect())
    }

    fn by_ldoms(&self, kind: &CpuBindKind) -> Result<Vec<CpuSet>, BindingRefusal> {
        let (what, list): (&str, Vec<Vec<u32>>) = match kind {
            CpuBindKind::MapLdom(list) => ("map_ldom", list.iter().map(|n| vec![*n]).collect()),
            CpuBindKind::MaskLdom(list) => (
                "mask_ldom",
                list.iter().map(|m| m.iter().collect()).collect(),
            ),
            _ => return Ok(Vec::new()),
        };
        self.needs_node(what)?;
        let known = self.topology.ldoms();
        if let Some(unknown) = list.iter().flatten().find(|n| !known.contains(n)) {
            return Err(format!(
                "NUMA domain {unknown} does not exist (--cpu-bind={what})"
            ));
        }
        let of = |ldoms: &Vec<u32>| {
            let mut cpus = CpuSet::default();
            ldoms
                .iter()
                .for_each(|n| cpus.union_with(&self.topology.ldom(*n)));
            cpus
        };
        let masks: Vec<CpuSet> = list.iter().map(of).collect();
        Ok((0..self.tasks)
            .map(|t| masks[t as usize % masks.len()].clone())
            .collect())
    }
}

/// `CpuBind` of nodes and partitions.
#[derive(Debug, Default)]
pub struct SiteBinding {
    nodes: HashMap<String, CpuBindKind>,
    partitions: HashMap<String, CpuBindKind>,
}

impl SiteBinding {
    /// Bindings of the site, from the configuration of its nodes.
    pub fn new(given: &CpuBindDefaults) -> SiteBinding {
        let of_nodes = given.nodes.iter().flat_map(|(list, kind)| {
            let names = hostlist::parse(list).unwrap_or_default();
            names.into_iter().map(|name| (name, site_kind(kind)))
        });
        let partitions = given.partitions.iter();
        SiteBinding {
            nodes: of_nodes.collect(),
            partitions: partitions
                .map(|(name, kind)| (name.clone(), site_kind(kind)))
                .collect(),
        }
    }

    /// The binding of a job's tasks for steps that request none: that of its nodes if they agree, else that of its
    /// partition.
    pub fn of(&self, alloc: &Allocation) -> Option<&CpuBindKind> {
        let mut kinds = alloc.nodes.iter().map(|n| self.nodes.get(&n.name));
        let first = if self.nodes.is_empty() {
            None
        } else {
            kinds.next().flatten()
        };
        first
            .filter(|first| kinds.all(|kind| kind == Some(*first)))
            .or_else(|| self.partitions.get(&alloc.partition))
    }
}

/// The meaning of `CpuBind`. An unknown word comes from a newer controller.
fn site_kind(word: &str) -> CpuBindKind {
    match BindDefault::parse(word) {
        Ok(Some(BindDefault::Sockets)) => CpuBindKind::To(Unit::Sockets),
        Ok(Some(BindDefault::Ldoms)) => CpuBindKind::To(Unit::Ldoms),
        Ok(Some(BindDefault::Cores)) => CpuBindKind::To(Unit::Cores),
        Ok(Some(BindDefault::Threads)) => CpuBindKind::To(Unit::Threads),
        Ok(Some(BindDefault::None) | None) | Err(_) => CpuBindKind::None,
    }
}

/// `TaskPluginParam`, as far as it is about binding.
#[derive(Debug, Default, PartialEq, Eq)]
struct Site {
    verbose: bool,
    kind: Option<CpuBindKind>,
    autobind: Option<Unit>,
}

impl Site {
    fn parse(text: &str) -> Site {
        let mut site = Site::default();
        for word in text.split(',').map(str::to_ascii_lowercase) {
            match word.as_str() {
                "verbose" => site.verbose = true,
                "none" => site.kind = Some(CpuBindKind::None),
                "sockets" => site.kind = Some(CpuBindKind::To(Unit::Sockets)),
                "cores" => site.kind = Some(CpuBindKind::To(Unit::Cores)),
                "threads" => site.kind = Some(CpuBindKind::To(Unit::Threads)),
                "autobind=sockets" => site.autobind = Some(Unit::Sockets),
                "autobind=cores" => site.autobind = Some(Unit::Cores),
                "autobind=threads" => site.autobind = Some(Unit::Threads),
                _ => {}
            }
        }
        site
    }
}
