//! The environment that Slurm promises to jobs: which variables a batch script, a task of a step and the holder of
//! an allocation see, as sbatch(1), srun(1) and salloc(1) list them. Pure text; who starts processes adds these to
//! what the submitter's shell had.

mod grid_engine;
mod torque;

use crate::binding::MemBind;
use crate::distribution::{Distribution, NodeSpread};
use crate::grid_engine::is_marked;
use crate::ids::{JobId, StepNo};
use crate::job::{Allocation, ArrayInfo, ArrayRole, GpuEnv, GresShare};
use crate::spec::{GPU, GresAsk, JobSpec, MemoryAsk};
use crate::time::{TimeLimit, Timestamp};
use crate::validate::Validate;
use crate::{gpu_bind, gpu_parts, site_option};
use minicbor::{Decode, Encode};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Variables in the order in which they are set; a later one wins.
pub type Variables = Vec<(String, String)>;

/// A component that runs, as the environment of the whole job describes it.
#[derive(Clone, Debug, PartialEq, Encode, Decode, Validate)]
pub struct HetComponent {
    /// Its number.
    #[n(0)]
    pub job: JobId,
    /// The specification.
    #[n(1)]
    #[cbor(with = "crate::cbor::arc")]
    pub spec: Arc<JobSpec>,
    /// The allocation.
    #[n(2)]
    #[cbor(with = "crate::cbor::arc")]
    pub alloc: Arc<Allocation>,
    /// Its limit.
    #[n(3)]
    pub time_limit: TimeLimit,
    /// Address of its first node's agent.
    #[n(4)]
    pub lead_address: String,
}

/// A job that has its allocation, as its environment describes it.
#[derive(Clone, Copy, Debug)]
pub struct JobView<'a> {
    /// Its number.
    pub job: JobId,
    /// The specification.
    pub spec: &'a JobSpec,
    /// The allocation.
    pub alloc: &'a Allocation,
    /// Its part in an array.
    pub array: &'a ArrayRole,
    /// The array.
    pub array_info: Option<&'a ArrayInfo>,
    /// When it started.
    pub start_time: Timestamp,
    /// Its limit.
    pub time_limit: TimeLimit,
    /// Number of its requeues.
    pub restarts: u32,
    /// Account, as listings show it.
    pub account: &'a str,
    /// QOS, as listings show it.
    pub qos: &'a str,
    /// Cluster name.
    pub cluster: &'a str,
    /// Path of slurm.conf.
    pub conf_path: &'a str,
    /// `SLURM_WORKING_CLUSTER`; not set when empty.
    pub working_cluster: &'a str,
    /// Address of the first node's agent, so that srun finds it without the controller.
    pub lead_address: &'a str,
    /// `SLURM_TOPOLOGY_ADDR` and its pattern for the node that sets up the environment; empty where the network is
    /// flat.
    pub topology: (&'a str, &'a str),
    /// The components of the heterogeneous job that it is one of, in order; empty for others.
    pub components: &'a [HetComponent],
}

/// One node's part of a step, as the environment of its tasks describes it.
#[derive(Clone, Copy, Debug)]
pub struct StepView<'a> {
    /// The step.
    pub step: StepNo,
    /// Names of its nodes as a hostlist.
    pub hostlist: &'a str,
    /// Global task numbers by node of the step and local number.
    pub tasks: &'a [Vec<u32>],
    /// Position of this node in the step.
    pub position: usize,
    /// This node's name.
    pub node: &'a str,
    /// CPUs of the step on this node.
    pub cpus_on_node: u32,
    /// Devices of the step on this node.
    pub gres: &'a [GresShare],
    /// `-c`, if it was given.
    pub cpus_per_task: Option<u32>,
    /// `--distribution`, if it was given.
    pub distribution: Option<&'a str>,
    /// Tasks over all components, if the step is one of several that run as one.
    pub total_tasks: Option<u32>,
}

/// Number of times that the job lost nodes, in the files that `scontrol update` writes for a job's own environment:
/// srun sends it to nodes, which may not know it yet.
pub const RESIZES: &str = "MUSTER_RESIZES";

/// `4(x2),3`: equal neighbours are counted.
pub fn per_node_text(counts: impl IntoIterator<Item = u32>) -> String {
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for count in counts {
        match runs.last_mut() {
            Some((value, times)) if *value == count => *times += 1,
            _ => runs.push((count, 1)),
        }
    }
    let parts: Vec<String> = runs
        .into_iter()
        .map(|(value, times)| {
            if times == 1 {
                value.to_string()
            } else {
                format!("{value}(x{times})")
            }
        })
        .collect();
    parts.join(",")
}

/// Nodes in a row with the same number of CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuRun {
    /// CPUs of each.
    pub cpus: u32,
    /// Number of nodes.
    pub nodes: u32,
}

/// Reads what [`per_node_text`] writes.
pub fn read_per_node_text(text: &str) -> Option<Vec<CpuRun>> {
    let run = |part: &str| {
        let (cpus, nodes) = match part.strip_suffix(')') {
            Some(part) => part.split_once("(x")?,
            None => (part, "1"),
        };
        Some(CpuRun {
            cpus: cpus.parse().ok()?,
            nodes: nodes.parse().ok()?,
        })
    };
    text.split(',').map(run).collect()
}

/// Whether a variable describes one particular job or step: one that comes from the submitter's environment is
/// left over from the job in which the submission was made and must not reach the new job's script.
pub fn is_job_variable(name: &str) -> bool {
    const PREFIXES: [&str; 13] = [
        "SLURM_JOB_",
        "SLURM_ARRAY_",
        "SLURM_STEP",
        "SLURMD_",
        "SLURM_TASK",
        "SLURM_NODE",
        "SLURM_TOPOLOGY_",
        "SLURM_CPUS_",
        "SLURM_MEM_PER_",
        "SLURM_NTASKS",
        "SLURM_SRUN_COMM_",
        "SLURM_LAUNCH_NODE_",
        "SLURM_GPUS",
    ];
    const NAMES: [&str; 20] = [
        "SLURM_HET_SIZE",
        "SLURM_PACK_SIZE",
        "SLURM_JOBID",
        "SLURM_NPROCS",
        "SLURM_NNODES",
        "SLURM_GTIDS",
        "SLURM_LOCALID",
        "SLURM_PROCID",
        "SLURM_PRIO_PROCESS",
        "SLURM_RESTART_COUNT",
        "SLURM_WORKING_CLUSTER",
        "SLURM_CLUSTER_NAME",
        "SLURM_CONF",
        "SLURM_DISTRIBUTION",
        "SLURM_DIST_PLANESIZE",
        "SLURM_UMASK",
        "SLURM_GPU_BIND",
        "SLURM_TRES_BIND",
        "MUSTER_NODE",
        RESIZES,
    ];
    PREFIXES.iter().any(|p| name.starts_with(p))
        || NAMES.contains(&name)
        || name.contains("_HET_GROUP_")
        || name.contains("_PACK_GROUP_")
}

/// Variables of the holder of an allocation (`salloc`'s command) and of every process of the job.
pub fn allocation_env(view: &JobView) -> Variables {
    let mut env = Env(Vec::with_capacity(48));
    let (spec, alloc) = (view.spec, view.alloc);
    // A heterogeneous job goes by its leader's number.
    let job = view.components.first().map_or(view.job, |first| first.job);
    let job = job.to_string();
    let nodes = alloc.nodes.len().to_string();
    env.set("SLURM_CLUSTER_NAME", view.cluster);
    env.set("SLURM_CONF", view.conf_path);
    env.set("SLURM_JOBID", &job);
    env.set("SLURM_JOB_ID", &job);
    env.set("SLURM_JOB_ACCOUNT", view.account);
    env.set(
        "SLURM_JOB_CPUS_PER_NODE",
        per_node_text(alloc.nodes.iter().map(|n| n.cpus.len())),
    );
    env.set("SLURM_JOB_NAME", &spec.name);
    env.set("SLURM_JOB_NODELIST", &alloc.hostlist);
    env.set("SLURM_NODELIST", &alloc.hostlist);
    env.set("SLURM_JOB_NUM_NODES", &nodes);
    env.set("SLURM_NNODES", &nodes);
    env.set("SLURM_JOB_PARTITION", &alloc.partition);
    env.set("SLURM_JOB_QOS", view.qos);
    env.set("SLURM_NODE_ALIASES", "(null)");
    env.set("SLURM_SUBMIT_DIR", &spec.work_dir);
    env.set("SLURM_SUBMIT_HOST", &spec.submit_host);
    env.set(
        "SLURM_TASKS_PER_NODE",
        per_node_text(alloc.nodes.iter().map(|n| n.tasks.max(1))),
    );
    for (name, value) in site_option::site_options(spec) {
        env.set(name, value);
    }
    asked(view, &mut env);
    env.set("SLURM_JOB_START_TIME", view.start_time.unix_s().to_string());
    if let Some(limit) = view.time_limit.seconds() {
        let end = view.start_time.plus_s(limit).unix_s();
        env.set("SLURM_JOB_END_TIME", end.to_string());
    }
    env.set("MUSTER_NODE", view.lead_address);
    components(view, &mut env);
    if is_marked(spec) {
        env.0.extend(grid_engine::variables(view));
    }
    if crate::torque::is_marked(spec) {
        env.0.extend(torque::variables(view));
    }
    env.0
}

/// Variables of heterogeneous jobs (Slurm's guide): the number of components, and each one's variables under its
/// number.
fn components(view: &JobView, env: &mut Env) {
    if view.components.is_empty() {
        return;
    }
    let size = view.components.len().to_string();
    env.set("SLURM_HET_SIZE", &size);
    env.set("SLURM_PACK_SIZE", size);
    for (number, component) in view.components.iter().enumerate() {
        let own = allocation_env(&JobView {
            job: component.job,
            spec: &component.spec,
            alloc: &component.alloc,
            time_limit: component.time_limit,
            account: component.spec.account_name(),
            qos: component.spec.qos_name(),
            lead_address: &component.lead_address,
            components: &[],
            ..*view
        });
        for (name, value) in own.into_iter().filter(|(name, _)| differs(name)) {
            env.set(&format!("{name}_HET_GROUP_{number}"), &value);
            // The name that these had in older releases, which programs still read.
            env.set(&format!("{name}_PACK_GROUP_{number}"), value);
        }
    }
}

/// Whether a variable may have another value in each component.
fn differs(name: &str) -> bool {
    !(name.starts_with("SLURM_SUBMIT_") || matches!(name, "SLURM_CLUSTER_NAME" | "SLURM_CONF"))
}

/// Variables that are there only because the user asked for something.
fn asked(view: &JobView, env: &mut Env) {
    let (spec, alloc) = (view.spec, view.alloc);
    let ask = &spec.ask;
    if ask.ntasks.is_some() || ask.ntasks_per_node.is_some() {
        let tasks = ask.task_count().max(alloc.ntasks).to_string();
        env.set("SLURM_NTASKS", &tasks);
        env.set("SLURM_NPROCS", &tasks);
    }
    env.number("SLURM_NTASKS_PER_NODE", ask.ntasks_per_node);
    env.number("SLURM_NTASKS_PER_SOCKET", ask.ntasks_per_socket);
    env.number("SLURM_NTASKS_PER_CORE", ask.ntasks_per_core_bound());
    env.number("SLURM_CPUS_PER_TASK", ask.cpus_per_task);
    env.number("SLURM_THREADS_PER_CORE", ask.threads_per_core);
    match ask.memory {
        MemoryAsk::Default => {}
        MemoryAsk::PerNode(0) => {
            let all = alloc.nodes.first().map_or(0, |n| n.memory_mib);
            env.set("SLURM_MEM_PER_NODE", all.to_string());
        }
        MemoryAsk::PerNode(mib) => env.set("SLURM_MEM_PER_NODE", mib.to_string()),
        MemoryAsk::PerCpu(mib) => env.set("SLURM_MEM_PER_CPU", mib.to_string()),
    }
    if ask.overcommit {
        env.set("SLURM_OVERCOMMIT", "1");
    }
    by_gpu(spec, env);
    if let Some(text) = &ask.distribution {
        env.distribution(Distribution::parse(text).unwrap_or_default());
    }
    if let Some((_, text)) = spec.shown.iter().find(|(name, _)| name == "mem-bind") {
        for (name, value) in MemBind::parse(text).unwrap_or_default().variables() {
            let value = match name {
                "SLURM_MEM_BIND" => text.clone(),
                _ => value,
            };
            env.set(name, value);
        }
    }
    if !spec.dependency.terms.is_empty() {
        env.set("SLURM_JOB_DEPENDENCY", spec.dependency.to_string());
    }
    if let Some(reservation) = &spec.reservation {
        env.set("SLURM_JOB_RESERVATION", reservation);
    }
    if view.restarts > 0 {
        env.set("SLURM_RESTART_COUNT", view.restarts.to_string());
    }
}

/// `--gpus` and its kin, which srun goes by in the job.
fn by_gpu(spec: &JobSpec, env: &mut Env) {
    let devices = spec.ask.devices();
    let lists = [
        ("SLURM_GPUS", &devices.per_job),
        ("SLURM_GPUS_PER_SOCKET", &devices.per_socket),
        ("SLURM_GPUS_PER_TASK", &devices.per_task),
    ];
    for (name, list) in lists {
        let text = |gres: &GresAsk| match &gres.kind {
            Some(kind) => format!("{kind}:{}", gres.count),
            None => gres.count.to_string(),
        };
        let gpus: Vec<String> = list.iter().filter(|g| g.name == GPU).map(text).collect();
        if !gpus.is_empty() {
            env.set(name, gpus.join(","));
        }
    }
    env.number("SLURM_CPUS_PER_GPU", devices.cpus_per_gpu);
    env.number("SLURM_NTASKS_PER_GPU", devices.ntasks_per_gpu);
    if let Some(mib) = devices.mib_per_gpu {
        env.set("SLURM_MEM_PER_GPU", mib.to_string());
    }
    let shown = |name: &str| spec.shown.iter().find(|(key, _)| key == name);
    for (option, name) in [
        ("gpu-bind", "SLURM_GPU_BIND"),
        ("tres-bind", "SLURM_TRES_BIND"),
    ] {
        if let Some((_, text)) = shown(option) {
            env.set(name, text);
        }
    }
}

/// Variables of every process of the job on its nodes, beyond [`allocation_env`].
fn member_env(view: &JobView, node: &str, cpus_on_node: u32, env: &mut Env) {
    let owner = &view.spec.owner;
    env.set("SLURMD_NODENAME", node);
    let (address, pattern) = match view.topology {
        ("", _) => (node, "node"),
        known => known,
    };
    env.set("SLURM_TOPOLOGY_ADDR", address);
    env.set("SLURM_TOPOLOGY_ADDR_PATTERN", pattern);
    env.set("SLURM_JOB_UID", owner.uid.to_string());
    env.set("SLURM_JOB_GID", owner.gid.to_string());
    env.set("SLURM_JOB_USER", &owner.user);
    env.set("SLURM_CPUS_ON_NODE", cpus_on_node.to_string());
    env.set("SLURM_PRIO_PROCESS", "0");
    if !view.working_cluster.is_empty() {
        env.set("SLURM_WORKING_CLUSTER", view.working_cluster);
    }
    let ArrayRole::Task { base, index } = view.array else {
        return;
    };
    env.set("SLURM_ARRAY_JOB_ID", base.to_string());
    env.set("SLURM_ARRAY_TASK_ID", index.to_string());
    if let Some(info) = view.array_info {
        env.set("SLURM_ARRAY_TASK_COUNT", info.count.to_string());
        env.set("SLURM_ARRAY_TASK_MIN", info.min.to_string());
        env.set("SLURM_ARRAY_TASK_MAX", info.max.to_string());
        env.set("SLURM_ARRAY_TASK_STEP", info.step.max(1).to_string());
    }
}

/// Devices of a node's share: what programs read that use GPUs, and how many there are.
fn device_env(shares: &[GresShare], env: &mut Env) {
    part_env(shares, env);
    resource_map_env(shares, env);
    let numbers: Vec<u32> = gpu_bind::gpus_of(shares).iter().map(|g| g.number).collect();
    if numbers.is_empty() {
        return;
    }
    env.set("SLURM_GPUS_ON_NODE", numbers.len().to_string());
    env.set("SLURM_JOB_GPUS", comma_separated(&numbers));
    for (name, value) in gpu_variables(shares, &numbers) {
        env.set(name, value);
    }
}

/// Identifiers of what a job has, as Grid Engine tells them: `SGE_HGR_gpu="GPU1 GPU2"`.
fn resource_map_env(shares: &[GresShare], env: &mut Env) {
    let mut maps: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for share in shares.iter().filter(|share| !share.labels.is_empty()) {
        maps.entry(&share.name).or_default().extend(share.names());
    }
    for (name, ids) in maps {
        env.set(&format!("SGE_HGR_{name}"), ids.join(" "));
    }
}

/// Variables about parts of GPUs: the GPUs, and under MPS the percentage of each.
fn part_env(shares: &[GresShare], env: &mut Env) {
    for share in shares {
        let parts: Vec<(u32, u32, u32)> = share.gpu_parts().collect();
        let Some((_, taken, all)) = parts.first() else {
            continue;
        };
        let numbers: Vec<u32> = share.numbers().collect();
        env.set("SLURM_GPUS_ON_NODE", numbers.len().to_string());
        env.set("SLURM_JOB_GPUS", comma_separated(&numbers));
        for name in share.env.names() {
            env.set(name, comma_separated(&numbers));
        }
        if share.name == gpu_parts::MPS {
            let percentage = u64::from(*taken) * 100 / u64::from((*all).max(1));
            env.set("CUDA_DEVICE_ORDER", "PCI_BUS_ID");
            env.set("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", percentage.to_string());
        } else {
            env.set("SLURM_SHARDS_ON_NODE", share.ids.len().to_string());
        }
    }
}

/// A client of MPS sees its server's GPUs only, numbered from 0. Programs around jobs, which start the server, see
/// which one it is.
fn behind_mps(shares: &[GresShare], env: &mut Env) {
    for share in shares.iter().filter(|s| s.name == gpu_parts::MPS) {
        let own: Vec<u32> = (0..count(share.gpu_parts().count())).collect();
        if !own.is_empty() && share.env.names().any(|name| name == CUDA) {
            env.set(CUDA, comma_separated(&own));
        }
    }
}

const CUDA: &str = "CUDA_VISIBLE_DEVICES";

fn comma_separated(numbers: &[u32]) -> String {
    let text: Vec<String> = numbers.iter().map(u32::to_string).collect();
    text.join(",")
}

/// The variables by which programs find GPUs of these numbers, as far as gres.conf wants them set.
pub fn gpu_variables(shares: &[GresShare], numbers: &[u32]) -> Vec<(&'static str, String)> {
    let gpus = || shares.iter().filter(|share| share.name == GPU);
    let wanted = |name: &str| gpus().any(|share| share.env.names().any(|n| n == name));
    let all = GpuEnv::VARIABLES.iter().map(|(_, name, _)| *name);
    all.filter(|name| wanted(name))
        .map(|name| (name, comma_separated(numbers)))
        .collect()
}

/// Name of the temporary directory that a job of the Grid Engine commands has on each of its nodes; none if the job is of others.
pub fn tmp_dir_name(view: &JobView) -> Option<String> {
    is_marked(view.spec).then(|| grid_engine::tmp_dir_name(view))
}

/// Variables of a batch script. `SLURM_TASK_PID` is added by the process that forks it; `TMPDIR` is set only if the
/// submitter's environment has none.
pub fn batch_env(view: &JobView, position: usize) -> Variables {
    let mut env = Env(allocation_env(view));
    let Some(share) = view.alloc.nodes.get(position) else {
        return env.0;
    };
    member_env(view, &share.name, share.cpus.len(), &mut env);
    device_env(&share.gres, &mut env);
    let gpus = gpu_bind::gpus_of(&share.gres);
    let has_map = |share: &GresShare| share.name == GPU && !share.labels.is_empty();
    if is_marked(view.spec) && !gpus.is_empty() && !share.gres.iter().any(has_map) {
        let numbers: Vec<u32> = gpus.iter().map(|gpu| gpu.number).collect();
        env.set("SGE_HGR_gpu", grid_engine::granted(&numbers));
    }
    behind_mps(&share.gres, &mut env);
    let bind = view.spec.shown.iter().find(|(name, _)| name == "mem-bind");
    if let Some((_, text)) = bind {
        for (name, value) in MemBind::parse(text).unwrap_or_default().variables() {
            let value = match name {
                "SLURM_MEM_BIND" => text.clone(),
                _ => value,
            };
            env.set(&name.replacen("SLURM_", "SBATCH_", 1), value);
        }
    }
    env.set("ENVIRONMENT", "BATCH");
    env.set("HOSTNAME", &share.name);
    for name in [
        "SLURM_GTIDS",
        "SLURM_LOCALID",
        "SLURM_NODEID",
        "SLURM_PROCID",
    ] {
        env.set(name, "0");
    }
    env.0
}

/// Variables of the site's programs around a job on one of its nodes (slurm.conf(5), prolog and epilog scripts),
/// without `SLURM_SCRIPT_CONTEXT` and those of the job's end.
pub fn program_env(view: &JobView, position: usize) -> Variables {
    let mut env = Env(Vec::with_capacity(20));
    let (spec, alloc) = (view.spec, view.alloc);
    let job = view.job.to_string();
    env.set("SLURM_CLUSTER_NAME", view.cluster);
    env.set("SLURM_CONF", view.conf_path);
    env.set("SLURM_JOBID", &job);
    env.set("SLURM_JOB_ID", job);
    env.set("SLURM_JOB_ACCOUNT", view.account);
    env.set("SLURM_JOB_UID", spec.owner.uid.to_string());
    env.set("SLURM_JOB_GID", spec.owner.gid.to_string());
    env.set("SLURM_JOB_USER", &spec.owner.user);
    env.set("SLURM_JOB_GROUP", &spec.owner.group);
    env.set("SLURM_JOB_NAME", &spec.name);
    env.set("SLURM_JOB_NODELIST", &alloc.hostlist);
    env.set("SLURM_JOB_PARTITION", &alloc.partition);
    if let Some(comment) = &spec.comment {
        env.set("SLURM_JOB_COMMENT", comment);
    }
    if let Some(constraint) = &spec.ask.constraint {
        env.set("SLURM_JOB_CONSTRAINTS", constraint);
    }
    if let Some(share) = alloc.nodes.get(position) {
        env.set("SLURMD_NODENAME", &share.name);
        device_env(&share.gres, &mut env);
        // Not for programs that are not the job's.
        env.0.retain(|(name, _)| name != "SLURM_GPUS_ON_NODE");
    }
    if let ArrayRole::Task { base, index } = view.array {
        env.set("SLURM_ARRAY_JOB_ID", base.to_string());
        env.set("SLURM_ARRAY_TASK_ID", index.to_string());
    }
    for (name, value) in site_option::site_options(spec) {
        env.set(&format!("{}{name}", site_option::PROGRAM_PREFIX), value);
    }
    env.0
}

/// Variables of all tasks of a step on one node, beyond the environment of srun. [`task_env`] adds the rest.
pub fn step_env(view: &JobView, step: &StepView) -> Variables {
    let mut env = Env(allocation_env(view));
    member_env(view, step.node, step.cpus_on_node, &mut env);
    if let Some(share) = view.alloc.nodes.iter().find(|n| n.name == step.node) {
        device_env(&share.gres, &mut env);
        part_env(step.gres, &mut env);
        for parts in step.gres.iter().filter(|s| !s.parted.is_empty()) {
            let numbers: Vec<u32> = parts.numbers().collect();
            env.set("SLURM_STEP_GPUS", comma_separated(&numbers));
        }
        behind_mps(step.gres, &mut env);
        // The step may have fewer of them than the job, or none.
        let own: Vec<u32> = gpu_bind::gpus_of(step.gres)
            .iter()
            .map(|g| g.number)
            .collect();
        for (name, value) in gpu_variables(&share.gres, &own) {
            env.set(name, value);
        }
        if !own.is_empty() {
            env.set("SLURM_GPUS_ON_NODE", own.len().to_string());
            env.set("SLURM_STEP_GPUS", comma_separated(&own));
        }
    }
    let nodes = step.tasks.len().to_string();
    let per_node: Vec<u32> = step.tasks.iter().map(|t| count(t.len())).collect();
    let own_tasks = per_node.iter().sum::<u32>();
    let tasks = step.total_tasks.unwrap_or(own_tasks).to_string();
    let per_node = per_node_text(per_node);
    let number = step.step.to_string();
    env.set("SLURM_STEPID", &number);
    env.set("SLURM_STEP_ID", number);
    env.set("SLURM_STEP_NODELIST", step.hostlist);
    env.set("SLURM_STEP_NUM_NODES", &nodes);
    env.set("SLURM_STEP_NUM_TASKS", &tasks);
    env.set("SLURM_STEP_TASKS_PER_NODE", &per_node);
    env.set("SLURM_NNODES", nodes);
    env.set("SLURM_NTASKS", &tasks);
    env.set("SLURM_NPROCS", tasks);
    env.set("SLURM_TASKS_PER_NODE", per_node);
    env.set("SLURM_NODEID", step.position.to_string());
    env.number("SLURM_CPUS_PER_TASK", step.cpus_per_task);
    let asked = Distribution::parse(step.distribution.unwrap_or("")).unwrap_or_default();
    let total = count(step.tasks.iter().map(Vec::len).sum());
    env.distribution(asked.with_default(total, count(step.tasks.len())));
    let here = step.tasks.get(step.position).map_or(&[][..], Vec::as_slice);
    let here: Vec<String> = here.iter().map(u32::to_string).collect();
    env.set("SLURM_GTIDS", here.join(","));
    env.0
}

/// Variables that differ between the tasks of a node, except `SLURM_TASK_PID`.
pub fn task_env(global: u32, local: u32) -> Variables {
    vec![
        ("SLURM_PROCID".to_owned(), global.to_string()),
        ("SLURM_LOCALID".to_owned(), local.to_string()),
    ]
}

fn count(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

struct Env(Variables);

impl Env {
    fn distribution(&mut self, distribution: Distribution) {
        self.set("SLURM_DISTRIBUTION", distribution.variable());
        if let Some(NodeSpread::Plane(size)) = distribution.nodes {
            self.set("SLURM_DIST_PLANESIZE", size.to_string());
        }
    }

    fn set(&mut self, name: &str, value: impl Into<String>) {
        self.0.push((name.to_owned(), value.into()));
    }

    fn number(&mut self, name: &str, value: Option<u32>) {
        if let Some(value) = value {
            self.set(name, value.to_string());
        }
    }
}
