//! From slurm.conf to what decisions, agents and listings need.

use crate::writer::now;
use anyhow::{Result, bail};
use log::{info, warn};
use muster_conf as conf;
use muster_conf::value::TimeLimit as ConfTime;
use muster_conf::{Config, Severity};
use muster_core::config::{
    ClusterConfig, EnforcePartLimits, OverSubscribe, PartitionConfig, PartitionState,
};
use muster_core::node::{GresConfig, NodeConfig};
use muster_core::spec::MemoryAsk;
use muster_core::time::TimeLimit;
use muster_proto::client::ConfigAnswer;
use muster_proto::node::NodeSettings;
use nix::unistd::User;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Where the configuration comes from, to read it again.
pub struct Source {
    path: PathBuf,
}

/// A configuration in all the forms that are needed.
pub struct Read {
    /// As it was parsed.
    pub config: Config,
    /// For decisions.
    pub cluster: Arc<ClusterConfig>,
    /// For agents.
    pub settings: NodeSettings,
    /// For `scontrol show config`.
    pub answer: ConfigAnswer,
}

impl Source {
    /// The file at this path.
    pub fn new(path: &Path) -> Source {
        Source { path: path.to_owned() }
    }

    /// Reads and checks the file. Findings go to the log, each once.
    ///
    /// # Errors
    /// When the file has errors; they are all in the message.
    pub fn read(&self) -> Result<Read> {
        let report = conf::check(&self.path);
        if !report.is_usable() {
            let errors: Vec<String> = report
                .diagnostics
                .iter()
                .filter(|d| d.severity == Severity::Error)
                .map(ToString::to_string)
                .collect();
            bail!("{}", errors.join("\n"));
        }
        for finding in &report.diagnostics {
            match finding.severity {
                Severity::NoEffect => info!("{finding}"),
                _ => warn!("{finding}"),
            }
        }
        let config = report.config;
        Ok(Read {
            cluster: Arc::new(cluster(&config)),
            settings: settings(&config),
            answer: answer(&config),
            config,
        })
    }

    /// Users besides root who may administer.
    pub fn admin_uids(&self) -> Vec<u32> {
        let (config, _) = conf::load(&self.path);
        admins(&config)
    }
}

fn admins(config: &Config) -> Vec<u32> {
    let mut uids: Vec<u32> = uid_of(&config.slurm_user).into_iter().collect();
    // A private cluster runs as its user, whatever the file says.
    uids.push(nix::unistd::geteuid().as_raw());
    uids.sort_unstable();
    uids.dedup();
    uids
}

fn uid_of(name: &str) -> Option<u32> {
    let found = User::from_name(name).ok().flatten().map(|user| user.uid.as_raw());
    found.or_else(|| name.parse().ok())
}

fn small(seconds: u64) -> u32 {
    u32::try_from(seconds).unwrap_or(u32::MAX)
}

fn cluster(config: &Config) -> ClusterConfig {
    let gres = gres_files(&config.path);
    ClusterConfig {
        cluster_name: config.cluster_name.clone(),
        nodes: config.nodes.iter().map(|n| node(n, &gres)).collect(),
        partitions: config.partitions.iter().map(|p| partition(config, p)).collect(),
        first_job_id: u64::from(config.limits.first_job_id),
        max_job_count: config.limits.max_job_count,
        max_array_size: config.limits.max_array_size,
        min_job_age_s: small(config.timeouts.min_job_age_s),
        kill_wait_s: small(config.timeouts.kill_wait_s),
        node_timeout_s: small(config.timeouts.slurmd_s),
        return_to_service: u32::from(config.return_to_service),
        job_requeue: config.job_requeue,
        default_memory: memory(config.limits.def_mem),
        max_memory: memory(config.limits.max_mem),
        enforce_part_limits: match config.enforce_part_limits {
            conf::EnforcePartLimits::No => EnforcePartLimits::No,
            conf::EnforcePartLimits::Any => EnforcePartLimits::Any,
            conf::EnforcePartLimits::All => EnforcePartLimits::All,
        },
        memory_is_consumable: config.select_parameters.memory,
        whole_nodes: config.select == conf::SelectType::Linear,
        backfill: config.scheduler == conf::SchedulerType::Backfill,
        over_time_limit_min: config.limits.over_time_limit_min.map(small),
        kill_invalid_depend: config
            .text("DependencyParameters")
            .is_some_and(|t| t.split(',').any(|w| w.eq_ignore_ascii_case("kill_invalid_depend")))
            || config
                .scheduler_parameters
                .iter()
                .any(|w| w.eq_ignore_ascii_case("kill_invalid_depend")),
        inactive_limit_s: small(config.timeouts.inactive_s),
        admin_uids: admins(config),
        whole_cores: config.select_parameters.unit != conf::SelectUnit::Cpu,
        select_parameters: config.select_parameters.others.clone(),
        scheduler_parameters: config.scheduler_parameters.clone(),
    }
}

fn memory(limit: Option<conf::MemPer>) -> MemoryAsk {
    match limit {
        None => MemoryAsk::Default,
        Some(conf::MemPer::Node(mib)) => MemoryAsk::PerNode(mib),
        Some(conf::MemPer::Cpu(mib)) => MemoryAsk::PerCpu(mib),
    }
}

/// Lines of the gres.conf beside slurm.conf, if there is one.
fn gres_files(conf_path: &Path) -> Vec<conf::files::GresLine> {
    let path = conf_path.with_file_name("gres.conf");
    if path.exists() { conf::files::load_gres(&path).0 } else { Vec::new() }
}

fn node(def: &conf::NodeDef, gres: &[conf::files::GresLine]) -> NodeConfig {
    let devices = |name: &str, model: Option<&str>| {
        gres.iter()
            .filter(|line| line.nodes.is_empty() || line.nodes.contains(&def.name))
            .filter(|line| line.name == name && line.model.as_deref() == model)
            .flat_map(|line| line.files.iter().cloned())
            .collect()
    };
    NodeConfig {
        name: def.name.clone(),
        hostname: def.hostname.clone(),
        addr: def.addr.clone(),
        port: u32::from(def.port),
        cpus: def.cpus,
        boards: def.boards,
        sockets: def.sockets,
        cores_per_socket: def.cores_per_socket,
        threads_per_core: def.threads_per_core,
        memory_mib: def.real_memory_mib,
        tmp_disk_mib: def.tmp_disk_mib,
        features: def.features.clone(),
        gres: def
            .gres
            .iter()
            .map(|g| GresConfig {
                name: g.name.clone(),
                kind: g.model.clone(),
                count: g.count,
                files: devices(&g.name, g.model.as_deref()),
            })
            .collect(),
        weight: def.weight,
        state: match def.state {
            conf::NodeState::Unknown => "UNKNOWN",
            conf::NodeState::Cloud => "CLOUD",
            conf::NodeState::Down => "DOWN",
            conf::NodeState::Drain => "DRAIN",
            conf::NodeState::Fail => "FAIL",
            conf::NodeState::Future => "FUTURE",
        }
        .to_owned(),
        reason: def.reason.clone(),
    }
}

fn limit(time: ConfTime) -> TimeLimit {
    match time.minutes() {
        Some(minutes) => TimeLimit::Minutes(small(minutes)),
        None => TimeLimit::Unlimited,
    }
}

fn partition(config: &Config, def: &conf::PartitionDef) -> PartitionConfig {
    let list = |allowed: &conf::Allowed| allowed.clone().unwrap_or_default();
    PartitionConfig {
        name: def.name.clone(),
        nodes: def.nodes.iter().map(|&i| config.nodes[i].name.clone()).collect(),
        nodes_text: def.nodes_text.clone(),
        default: def.default,
        state: match def.state {
            conf::PartitionState::Up => PartitionState::Up,
            conf::PartitionState::Down => PartitionState::Down,
            conf::PartitionState::Drain => PartitionState::Drain,
            conf::PartitionState::Inactive => PartitionState::Inactive,
        },
        max_time: limit(def.max_time),
        default_time: def.default_time.map(limit),
        min_nodes: def.min_nodes,
        max_nodes: def.max_nodes,
        max_cpus_per_node: def.max_cpus_per_node,
        allow_groups: list(&def.allow_groups),
        allow_accounts: list(&def.allow_accounts),
        deny_accounts: def.deny_accounts.clone(),
        allow_qos: list(&def.allow_qos),
        deny_qos: def.deny_qos.clone(),
        alloc_nodes: list(&def.alloc_nodes),
        priority_tier: u32::from(def.priority_tier),
        priority_job_factor: u32::from(def.priority_job_factor),
        over_subscribe: match def.over_subscribe {
            conf::OverSubscribe::No => OverSubscribe::No,
            conf::OverSubscribe::Yes(n) => OverSubscribe::Yes(u32::from(n)),
            conf::OverSubscribe::Force(n) => OverSubscribe::Force(u32::from(n)),
            conf::OverSubscribe::Exclusive => OverSubscribe::Exclusive,
        },
        default_memory: memory(def.def_mem),
        max_memory: memory(def.max_mem),
        hidden: def.hidden,
        root_only: def.root_only,
        disable_root_jobs: def.disable_root_jobs,
        exclusive_user: def.exclusive_user,
        lln: def.least_loaded_nodes,
        req_resv: def.requires_reservation,
        qos: def.qos.clone(),
        grace_time_s: def.grace_time_s,
        preempt_mode: def.preempt_mode.clone(),
        over_time_limit_min: def
            .over_time_limit
            .map(|t| t.minutes().map_or(u32::MAX, small)),
        billing_weights: def.billing_weights_text.clone(),
    }
}

/// RLIMIT_* numbers by the names that `PropagateResourceLimits` uses.
const LIMITS: [(&str, u32); 10] = [
    ("CPU", 0),
    ("FSIZE", 1),
    ("DATA", 2),
    ("STACK", 3),
    ("CORE", 4),
    ("RSS", 5),
    ("NPROC", 6),
    ("NOFILE", 7),
    ("MEMLOCK", 8),
    ("AS", 9),
];

fn settings(config: &Config) -> NodeSettings {
    let has = |list: &[String], name: &str| list.iter().any(|w| w.eq_ignore_ascii_case(name));
    let propagate = &config.propagate;
    let all = propagate.limits.is_empty() || has(&propagate.limits, "ALL");
    let wanted = |name: &str| {
        !has(&propagate.limits, "NONE")
            && (all || has(&propagate.limits, name))
            && !has(&propagate.except, name)
    };
    let script = |key: &str| {
        config.text(key).filter(|v| !v.is_empty() && *v != "(null)").map(str::to_owned)
    };
    let host = config.slurmctld.first();
    NodeSettings {
        kill_wait_s: small(config.timeouts.kill_wait_s),
        unkillable_timeout_s: small(config.timeouts.unkillable_step_s),
        append: config.job_file_append,
        conf_path: config.path.display().to_string(),
        propagate_limits: LIMITS.iter().filter(|(n, _)| wanted(n)).map(|&(_, l)| l).collect(),
        tmp_fs: config.paths.tmp_fs.clone(),
        working_cluster: format!(
            "{}:{}:{}:9728:109",
            config.cluster_name,
            host.map_or("localhost", |h| h.address()),
            config.slurmctld_ports.start()
        ),
        mpi_default: config.mpi_default.clone(),
        prolog: script("Prolog"),
        epilog: script("Epilog"),
        task_prolog: script("TaskProlog"),
        task_epilog: script("TaskEpilog"),
    }
}

fn answer(config: &Config) -> ConfigAnswer {
    let facts = conf::Facts {
        boot_time: "",
        next_job_id: 0,
        version: crate::SLURM_VERSION,
        uid_of: &uid_of,
    };
    ConfigAnswer {
        pairs: conf::show_config(config, &facts),
        path: config.path.display().to_string(),
        read_at: now(),
        now: now(),
        hosts: config.slurmctld.iter().map(|h| h.host.clone()).collect(),
        started: now(),
    }
}
