//! From slurm.conf to what decisions, agents and listings need.

mod cgroups;
pub(crate) mod containers;

use crate::clock::now;
use crate::job_classes::SiteClasses;
use crate::network::{read_given, version_of};
use crate::verifier::Settings;
use anyhow::{Result, bail};
use log::{info, warn};
use muster_conf as conf;
use muster_conf::site_options::{self, SiteOptions};
use muster_conf::{Config, Diagnostic, Severity};
use muster_model::calendar::PartitionCalendar;
use muster_model::command::KeptPartitions;
use muster_model::config::ClusterConfig;
use muster_model::usage;
use muster_proto::client::ConfigAnswer;
use muster_proto::node::{
    CpuBindDefaults, HealthCheck, MemoryCount, MpiSettings, NodeSettings, Sampling,
};
use nix::unistd::User;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Where the configuration comes from, to read it again.
pub(crate) struct Source {
    path: PathBuf,
}

/// A configuration in all the forms that are needed.
pub(crate) struct Read {
    /// As it was parsed.
    pub config: Config,
    /// For decisions.
    pub cluster: Arc<ClusterConfig>,
    /// For agents.
    pub settings: NodeSettings,
    /// For `scontrol show config`.
    pub answer: ConfigAnswer,
    /// For hosts without configuration, if they are given it.
    pub given: Option<Arc<[u8]>>,
    /// Verifiers of submissions, in order.
    pub verifiers: Vec<Settings>,
    /// Job classes.
    pub classes: SiteClasses,
    /// Options of the site's own.
    pub site_options: SiteOptions,
    /// Warnings about the files, a line each.
    pub warnings: Vec<String>,
}

impl Source {
    /// The file at this path.
    pub(crate) fn new(path: &Path) -> Source {
        Source {
            path: path.to_owned(),
        }
    }

    /// The file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Reads and checks the file. Findings go to the log, each once.
    ///
    /// # Errors
    /// When the file has errors; they are all in the message.
    pub(crate) fn read(&self) -> Result<Read> {
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
        let doubtful = |d: &&Diagnostic| d.severity == Severity::Warning;
        let line = |d: &Diagnostic| format!("{}: {}: {}", d.origin, d.severity, d.message);
        let warnings = report.diagnostics.iter().filter(doubtful).map(line);
        let warnings = warnings.collect();
        let config = report.config;
        let given = read_given(&self.path, &config)?;
        Ok(Read {
            warnings,
            cluster: Arc::new(cluster(&config)?),
            settings: NodeSettings {
                given_version: given.as_deref().map(version_of).unwrap_or_default(),
                ..settings(&config)
            },
            answer: answer(&config),
            verifiers: Settings::of(&config)?,
            classes: SiteClasses::of(&config)?,
            site_options: site_options(&config)?,
            given,
            config,
        })
    }
}

/// The options of the file beside slurm.conf. What is wrong with it was found when the configuration was checked.
fn site_options(config: &Config) -> Result<SiteOptions> {
    let path = config.path.with_file_name(site_options::FILE);
    let text = conf::optional_text(&path)?;
    Ok(SiteOptions::parse(&text, site_options::FILE).0)
}

/// `ReconfigFlags`: what of partitions outlives `scontrol reconfigure`.
pub(crate) fn kept_partitions(config: &Config) -> KeptPartitions {
    let flags = config.text("ReconfigFlags").unwrap_or_default();
    let has = |flag: &str| {
        flags
            .split(',')
            .any(|f| f.trim().eq_ignore_ascii_case(flag))
    };
    if has("KeepPartInfo") {
        KeptPartitions::All
    } else if has("KeepPartState") {
        KeptPartitions::States
    } else {
        KeptPartitions::File
    }
}

fn uid_of(name: &str) -> Option<u32> {
    let found = User::from_name(name)
        .ok()
        .flatten()
        .map(|user| user.uid.as_raw());
    found.or_else(|| name.parse().ok())
}

fn clamp_u32(seconds: u64) -> u32 {
    u32::try_from(seconds).unwrap_or(u32::MAX)
}

fn cluster(config: &Config) -> Result<ClusterConfig> {
    let gres = gres_lines(&config.path);
    let mut cluster = config.cluster(&gres, &uid_of);
    cluster.crontabs.zone = conf::zone::rule();
    cluster.topologies = conf::topology::resolve(config, &conf::read_from_disk).0;
    let mapping = grid_engine_mapping(&config.path)?;
    for partition in &mut cluster.partitions {
        let calendar = mapping.calendar_of(&partition.name, partition.default);
        partition.calendar = calendar.cloned().map(PartitionCalendar::new);
    }
    cluster.reservation_users = mapping.reservation_users;
    // A private cluster is administered by the user it runs as, whatever the file says.
    let own = nix::unistd::geteuid().as_raw();
    if own != 0 && !cluster.admin_uids.contains(&own) {
        cluster.admin_uids.push(own);
    }
    Ok(cluster)
}

/// The sge.conf beside slurm.conf. Errors of the file were found when the configuration was checked.
fn grid_engine_mapping(conf_path: &Path) -> Result<conf::grid_engine::Mapping> {
    let path = conf_path.with_file_name(conf::grid_engine::FILE);
    let text = conf::optional_text(&path)?;
    Ok(conf::grid_engine::Mapping::parse(&text, conf::grid_engine::FILE).0)
}

/// Lines of the gres.conf beside slurm.conf, if there is one.
fn gres_lines(conf_path: &Path) -> Vec<conf::files::GresLine> {
    let path = conf_path.with_file_name("gres.conf");
    if path.exists() {
        conf::files::load_gres(&path).0
    } else {
        Vec::new()
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

/// The default of timeouts of the site's programs, which means that there is none.
const NO_TIMEOUT: u32 = 65_534;

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
        config
            .text(key)
            .filter(|v| !v.is_empty() && *v != "(null)")
            .map(str::to_owned)
    };
    let words = |key: &str| {
        let text = config.text(key).unwrap_or_default();
        let words = text.split(',').map(|w| w.trim().to_ascii_uppercase());
        words.filter(|w| !w.is_empty() && w != "ANY").collect()
    };
    // The older key stands for both.
    let timeout = |key: &str| {
        let given = |key: &str| config.raw.get(key)?.value.parse::<u32>().ok();
        given(key)
            .or_else(|| given("PrologEpilogTimeout"))
            .filter(|seconds| *seconds < NO_TIMEOUT)
    };
    let count = |key: &str| {
        let given = config.text(key).and_then(|v| v.parse().ok());
        given.unwrap_or_default()
    };
    let host = config.slurmctld.first();
    NodeSettings {
        given_version: String::new(),
        kill_wait_s: clamp_u32(config.timeouts.kill_wait_s),
        unkillable_timeout_s: clamp_u32(config.timeouts.unkillable_step_s),
        append: config.job_file_append,
        block_sockets: has(
            &config.select_parameters.others,
            "CR_CORE_DEFAULT_DIST_BLOCK",
        ),
        bind_tasks: config
            .task_plugins
            .iter()
            .any(|p| p == "affinity" || p == "cgroup"),
        task_plugin_param: config.text("TaskPluginParam").unwrap_or("").to_owned(),
        conf_path: config.path.display().to_string(),
        propagate_limits: LIMITS
            .iter()
            .filter(|(n, _)| wanted(n))
            .map(|&(_, l)| l)
            .collect(),
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
        mpi: mpi_settings(&config.path),
        prolog_timeout_s: timeout("PrologTimeout"),
        epilog_timeout_s: timeout("EpilogTimeout"),
        unkillable_program: script("UnkillableStepProgram"),
        reboot_program: script("RebootProgram"),
        health_check: script("HealthCheckProgram").map(|program| HealthCheck {
            program,
            interval_s: config
                .text("HealthCheckInterval")
                .and_then(|v| v.parse().ok())
                .unwrap_or(0),
            states: words("HealthCheckNodeState"),
        }),
        sampling: sampling(config),
        suspend_grace_s: suspend_grace_s(config),
        tree_width: config
            .text("TreeWidth")
            .and_then(|v| v.parse().ok())
            .unwrap_or_default(),
        max_step_count: count("MaxStepCount"),
        max_tasks_per_node: count("MaxTasksPerNode"),
        // The writer's to say: it may be changed while jobs run.
        cpu_bind: CpuBindDefaults::default(),
        // The writer knows which node it is for.
        topology_addr: String::new(),
        topology_pattern: String::new(),
        cgroups: cgroups::settings(config),
        // The writer knows which node it is for.
        containers: containers::settings(config),
        serial_programs: config.has_prolog_flag("Serial"),
        // A file that cannot be read was found when the configuration was checked.
        job_tmp_dirs: grid_engine_mapping(&config.path)
            .ok()
            .and_then(|mapping| mapping.job_tmp_dirs)
            .unwrap_or(true),
        has_metrics: config.has_metrics() && !has_private_data(config),
    }
}

/// Whether anything is hidden from some users.
fn has_private_data(config: &Config) -> bool {
    let words = config.text("PrivateData").unwrap_or_default();
    !["", "none", "(null)"].contains(&words.trim().to_ascii_lowercase().as_str())
}

/// `suspend_grace_time`: seconds, none where nothing is said.
fn suspend_grace_s(config: &Config) -> u32 {
    let words = config.text("PreemptParameters").unwrap_or_default();
    let mut words = words.split(',').map(|w| w.trim().to_ascii_lowercase());
    let given = words.find_map(|w| w.strip_prefix("suspend_grace_time=")?.parse().ok());
    given.unwrap_or_default()
}

/// Sampling of jobs' use by agents.
fn sampling(config: &Config) -> Option<Sampling> {
    let kind = config.text("JobAcctGatherType").unwrap_or_default();
    if matches!(kind.rsplit('/').next(), None | Some("" | "none")) {
        return None;
    }
    let params = config.text("JobAcctGatherParams").unwrap_or_default();
    let has = |name: &str| {
        params
            .split(',')
            .any(|p| p.trim().eq_ignore_ascii_case(name))
    };
    let frequency = config.text("JobAcctGatherFrequency").unwrap_or_default();
    Some(Sampling {
        interval_s: usage::task_interval_s(frequency).unwrap_or(30),
        memory: match (has("UsePss"), has("NoShared")) {
            (true, _) => MemoryCount::Proportional,
            (false, true) => MemoryCount::Private,
            (false, false) => MemoryCount::Resident,
        },
        over_memory_kill: has("OverMemoryKill"),
    })
}

/// mpi.conf beside slurm.conf; wrong settings in it have no effect, as the check of the configuration reports.
fn mpi_settings(slurm_conf: &Path) -> MpiSettings {
    let path = slurm_conf.with_file_name("mpi.conf");
    let defaults = MpiSettings::default();
    if !path.is_file() {
        return defaults;
    }
    let (file, found) = conf::files::load_flat(conf::files::PlainFile::Mpi, &path);
    for finding in &found {
        warn!("{finding}");
    }
    let flag = |key: &str, default: bool| match file.text(key).map(str::to_ascii_lowercase) {
        Some(text) => matches!(
            text.as_str(),
            "yes" | "true" | "1" | "y" | "t" | "on" | "up"
        ),
        None => default,
    };
    let number = |key: &str| file.text(key).and_then(|t| t.parse().ok());
    let env = file.text("PMIxEnv").unwrap_or_default();
    MpiSettings {
        tmp_base: file.text("PMIxCliTmpDirBase").map(str::to_owned),
        early: flag("PMIxDirectConnEarly", defaults.early),
        share_topology: flag("PMIxShareServerTopology", defaults.share_topology),
        timeout_s: number("PMIxTimeout").unwrap_or(defaults.timeout_s),
        crowded_slack_us: number("CrowdedTimerSlack").unwrap_or(defaults.crowded_slack_us),
        skip_absent_fabrics: flag("SkipAbsentFabrics", defaults.skip_absent_fabrics),
        ucx: flag("PMIxDirectConnUCX", defaults.ucx),
        ucx_devices: file.text("PMIxNetDevicesUCX").map(str::to_owned),
        ucx_transports: file.text("PMIxTlsUCX").map(str::to_owned),
        cross_memory: file
            .text("CrossMemoryAttach")
            .filter(|word| !word.eq_ignore_ascii_case("auto"))
            .map(|_| flag("CrossMemoryAttach", true)),
        env: env
            .trim_matches('"')
            .split(';')
            .map(str::trim)
            .filter(|v| v.contains('='))
            .map(str::to_owned)
            .collect(),
    }
}

fn answer(config: &Config) -> ConfigAnswer {
    let facts = conf::ListingContext {
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
