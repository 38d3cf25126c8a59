//! Computes a job's demand in one partition from its request and the partition's rules and
//! defaults.

use super::{Demand, Memory, PartitionTerms, SegmentAsk, SwitchLimit, SystemCpus};
use crate::demand::device_demand::DeviceDemand;
use crate::nodes::class::NodeClass;
use crate::nodes::class_masks::Counts;
use crate::nodes::fleet::{Fleet, PartView};
use crate::nodes::room::SharingKey;
use muster_core::decide::max_memory;
use muster_model::config::{ClusterConfig, OverSubscribe};
use muster_model::distribution::Distribution;
use muster_model::features;
use muster_model::hostlist;
use muster_model::job::Reason;
use muster_model::spec::{DeviceBinding, MemoryAsk, ResourceAsk, Sharing};
use muster_model::topology::switch_wait_s;

impl Demand {
    /// Computes the demand.
    ///
    /// # Errors
    /// The reason why the job cannot run in this partition as it is configured.
    pub(crate) fn new(
        ask: &ResourceAsk,
        terms: PartitionTerms,
        fleet: &Fleet,
        part: &PartView,
        key: SharingKey,
    ) -> Result<Demand, Reason> {
        let config = fleet.config.as_ref().ok_or(Reason::PartitionConfig)?;
        let mut required = named_nodes(&ask.nodelist, fleet)?;
        required.sort_unstable();
        required.dedup();
        let sharing = NodeSharing::new(ask, config, part);
        let masks = fleet.asks.masks(ask, &fleet.classes)?;
        let mut devices = devices_of(ask, config, part, sharing.alone)?;
        let bounded = Bounded::new(ask, part, config);
        devices.raise_cpus_per_gpu(bounded.cpus_per_gpu);
        let fewest = terms.exempt.min_nodes_in(&part.config);
        let fewest = fewest.max(least_nodes(&required, &masks.counts));
        let nodes = NodeSpan::new(ask, fewest, &devices);
        Ok(Demand {
            tasks: ask.ntasks.map(|n| n.max(1)),
            tasks_each: ask.ntasks_per_node.unwrap_or(1).max(1),
            min_nodes: nodes.least,
            max_nodes: nodes.most,
            part_most_nodes: (terms.exempt.max_nodes_in(&part.config)).unwrap_or(u32::MAX),
            widest: nodes.widest,
            fewest: devices.of_job() && (ask.max_nodes.is_none() || ask.use_min_nodes),
            even: is_even(ask, config, sharing.whole),
            across: (ask.distribution.as_deref())
                .and_then(|text| Distribution::parse(text).ok()?.sockets),
            spread: ask.spread,
            least_loaded: part.config.lln || selects(config, "CR_LLN"),
            contiguous: ask.contiguous,
            switches: switch_limit(ask, config, part),
            segment: ask.segment.map(|nodes| SegmentAsk {
                nodes: nodes as usize,
                rule: ask.segments,
            }),
            required,
            excluded: (fleet.asks).excluded(ask.exclude.as_deref(), || {
                named_nodes(&ask.exclude, fleet).unwrap_or_default()
            }),
            alternatives: masks.alternatives,
            counts: masks.counts,
            length_ms: (terms.limit.seconds()).map(|s| s.saturating_mul(1000)),
            cpu_rule: part.cpus.rule,
            cpus_of_task: ask.cpus_of_task(),
            cpus_min: (ask.min_cpus_per_node.unwrap_or(1)).max(bounded.cpus_min),
            tasks_max: ask.ntasks_per_node.unwrap_or(u32::MAX).max(1),
            tasks_per_socket: ask.ntasks_per_socket,
            tasks_per_core: (ask.ntasks_per_core)
                .or(selects(config, "CR_ONE_TASK_PER_CORE").then_some(1)),
            threads_used: ask.threads_per_core,
            overcommit: ask.overcommit,
            memory: bounded.memory,
            memory_most: bounded.most,
            cuts_memory: bounded.cuts,
            devices,
            whole: sharing.whole,
            pays_whole: sharing.whole && config.memory_is_consumable,
            by_node: config.whole_nodes,
            spec: sharing.spec,
            batch: batch_mask(ask, &fleet.classes)?,
            alone: sharing.alone,
            sharers: sharing.sharers,
            only_user: sharing.only_user,
            key,
        })
    }
}

/// Sharing of a job's nodes and their CPUs.
struct NodeSharing {
    /// The fields are those of [`Demand`].
    sharers: u32,
    spec: Option<SystemCpus>,
    whole: bool,
    alone: bool,
    only_user: bool,
}

impl NodeSharing {
    fn new(ask: &ResourceAsk, config: &ClusterConfig, part: &PartView) -> NodeSharing {
        let (sharers, may_refuse) = match part.config.over_subscribe {
            OverSubscribe::Force(most) => (most.max(1), false),
            OverSubscribe::Yes(most) if ask.sharing == Sharing::Oversubscribe => (most, true),
            OverSubscribe::No | OverSubscribe::Yes(_) | OverSubscribe::Exclusive => (0, true),
        };
        let spec = |count, by_thread| SystemCpus { count, by_thread };
        let spec = match (ask.core_spec, ask.thread_spec) {
            _ if !config.spec_by_job => None,
            (Some(cores), _) => Some(spec(cores, false)),
            (None, threads) => threads.map(|count| spec(count, true)),
        };
        let whole = config.whole_nodes
            || spec.is_some()
            || (ask.sharing == Sharing::Exclusive && may_refuse)
            || part.config.over_subscribe == OverSubscribe::Exclusive;
        NodeSharing {
            sharers,
            spec,
            whole,
            alone: (whole && sharers < 2) || spec.is_some(),
            only_user: ask.sharing == Sharing::ExclusiveUser || part.config.exclusive_user,
        }
    }
}

/// The number of nodes of a job.
struct NodeSpan {
    least: u32,
    most: u32,
    widest: bool,
}

impl NodeSpan {
    fn new(ask: &ResourceAsk, fewest: u32, devices: &DeviceDemand) -> NodeSpan {
        let least = ask.min_nodes.max(fewest).max(1);
        let most = match (ask.max_nodes, ask.ntasks) {
            // Tasks use the fewest nodes that they fit on; without tasks only the range of nodes
            // counts.
            (Some(_), None) if ask.use_min_nodes && !devices.of_job() => least,
            (Some(most), _) => most,
            (None, Some(_)) => u32::MAX,
            (None, None) if devices.of_job() => u32::MAX,
            (None, None) => least,
        };
        NodeSpan {
            least,
            most: most.min(devices.most_nodes()),
            widest: ask.max_nodes.is_some_and(|most| most > least)
                && ask.ntasks.is_some()
                && !ask.use_min_nodes
                && !devices.of_job(),
        }
    }
}

/// The nodes of a list, in its order.
fn named_nodes(list: &Option<String>, fleet: &Fleet) -> Result<Vec<u32>, Reason> {
    let Some(text) = list else {
        return Ok(Vec::new());
    };
    let names = hostlist::parse(text).map_err(|_| Reason::BadConstraints)?;
    let known = names.iter().map(|n| fleet.node_by_name.get(n).copied());
    known
        .collect::<Option<Vec<u32>>>()
        .ok_or(Reason::BadConstraints)
}

/// The smallest number of nodes that contains all required nodes and satisfies the counts of the
/// constraint.
fn least_nodes(required: &[u32], counts: &[Counts]) -> u32 {
    let counted = counts
        .iter()
        .map(|c| c.iter().fold(0u32, |all, (_, n)| all.saturating_add(*n)));
    let required = u32::try_from(required.len()).unwrap_or(u32::MAX);
    counted.min().unwrap_or(0).max(required)
}

/// Whether `SelectTypeParameters` contains the word.
fn selects(config: &ClusterConfig, word: &str) -> bool {
    config.select_parameters.iter().any(|p| p == word)
}

/// The requested devices, with defaults of the partition and the cluster.
fn devices_of(
    ask: &ResourceAsk,
    config: &ClusterConfig,
    part: &PartView,
    alone: bool,
) -> Result<DeviceDemand, Reason> {
    let mut devices = DeviceDemand::new(ask, alone && !config.whole_nodes)?;
    let defaults = part.config.job_defaults.or(config.job_defaults);
    if let (None, Some(cpus)) = (ask.cpus_per_task, defaults.cpus_per_gpu) {
        devices.default_cpus_per_gpu(cpus);
    }
    let enforces = selects(config, "ENFORCE_BINDING_GRES");
    if enforces && ask.devices().binding == DeviceBinding::Preferred {
        devices.enforce();
    }
    Ok(devices)
}

/// Whether tasks are spread evenly. CPUs are taken from one node after another, as in Slurm; whole
/// nodes have more CPUs than the tasks need.
fn is_even(ask: &ResourceAsk, config: &ClusterConfig, whole: bool) -> bool {
    let is_cyclic = |text: &String| text.starts_with("cyclic");
    packs(ask, selects(config, "CR_Pack_Nodes")).map_or(
        whole || ask.spread || ask.distribution.as_ref().is_some_and(is_cyclic),
        |packs| !packs,
    )
}

fn switch_limit(ask: &ResourceAsk, config: &ClusterConfig, part: &PartView) -> Option<SwitchLimit> {
    let has_leaves = part.network.is_some();
    let asked = (ask.switches).filter(|asked| asked.count > 0 && has_leaves);
    asked.map(|asked| SwitchLimit {
        most: asked.count,
        wait_ms: switch_wait_s(asked.wait_s, &config.scheduler_parameters).saturating_mul(1000),
    })
}

/// Whether tasks fill one node after another, as `--distribution` or the site requires.
fn packs(ask: &ResourceAsk, site_packs: bool) -> Option<bool> {
    let words = ask.distribution.as_deref().unwrap_or("").split(',');
    let word = |w: &str| match w.to_ascii_lowercase().as_str() {
        "pack" => Some(true),
        "nopack" => Some(false),
        _ => None,
    };
    words
        .filter_map(word)
        .next_back()
        .or(site_packs.then_some(true))
}

/// The memory of a job within what the partition allows: who asks for more than `MaxMemPerCPU` of each CPU gets more CPUs.
struct Bounded {
    memory: Memory,
    most: MemoryAsk,
    /// Fewest CPUs of a node with which the job may have that memory there.
    cpus_min: u32,
    /// And with each GPU.
    cpus_per_gpu: u64,
    /// Not the job asks for it: it is cut.
    cuts: bool,
}

impl Bounded {
    fn new(ask: &ResourceAsk, part: &PartView, config: &ClusterConfig) -> Bounded {
        let most = max_memory(Some(config), &part.config);
        let by_gpu = ask.wants_gpus() && ask.devices().mib_per_gpu.is_some_and(|mib| mib > 0);
        let given = by_gpu || ask.memory != MemoryAsk::Default;
        let mut all = Bounded {
            memory: memory_of(ask, part, config),
            most,
            cpus_min: 1,
            cpus_per_gpu: 0,
            cuts: !given,
        };
        match (all.memory, most) {
            (Memory::PerNode(mib), MemoryAsk::PerNode(most)) if !given => {
                all.memory = Memory::PerNode(mib.min(most));
            }
            (Memory::PerCpu(mib), MemoryAsk::PerCpu(most)) if !given => {
                all.memory = Memory::PerCpu(mib.min(most));
            }
            (Memory::PerNode(mib), MemoryAsk::PerCpu(most)) => {
                all.cpus_min = u32::try_from(mib.div_ceil(most)).unwrap_or(u32::MAX).max(1);
            }
            (Memory::PerGpu(mib), MemoryAsk::PerCpu(most)) if given => {
                all.cpus_per_gpu = mib.div_ceil(most);
            }
            _ => {}
        }
        all
    }
}

fn memory_of(ask: &ResourceAsk, part: &PartView, config: &ClusterConfig) -> Memory {
    if let Some(mib) = (ask.devices().mib_per_gpu).filter(|mib| *mib > 0 && ask.wants_gpus()) {
        return Memory::PerGpu(mib);
    }
    let mut memory = ask.memory;
    let levels = [
        (part.config.job_defaults, part.config.default_memory),
        (config.job_defaults, config.default_memory),
    ];
    for (defaults, default) in levels {
        if memory != MemoryAsk::Default {
            break;
        }
        if let Some(mib) = defaults.mib_per_gpu.filter(|_| ask.wants_gpus()) {
            return Memory::PerGpu(mib);
        }
        memory = default;
    }
    match memory {
        MemoryAsk::PerNode(mib) if mib > 0 => Memory::PerNode(mib),
        MemoryAsk::PerCpu(mib) if mib > 0 => Memory::PerCpu(mib),
        _ if config.memory_is_consumable => Memory::All,
        _ => Memory::None,
    }
}

/// The classes of nodes that may run the batch script, with `--batch`.
fn batch_mask(ask: &ResourceAsk, classes: &[NodeClass]) -> Result<Option<Vec<bool>>, Reason> {
    let Some(text) = &ask.batch else {
        return Ok(None);
    };
    let alternatives = features::alternatives(text).ok_or(Reason::BadConstraints)?;
    let holds = |class: &NodeClass| alternatives.iter().any(|a| a.each.holds(&class.features));
    Ok(Some(classes.iter().map(holds).collect()))
}
