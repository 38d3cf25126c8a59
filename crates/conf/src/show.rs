//! The rows of `scontrol show config`, in Slurm's order and with Slurm's value formats.

use crate::keys::{self, Key, KeyListing, Kind};
use crate::model::{Config, MemPer, SelectType};
use crate::value::{self, DurationLimit};
use muster_model::config::EnforcePartLimits;

/// Input of the listing besides the configuration.
#[derive(Clone, Copy)]
pub struct ListingContext<'a> {
    /// When the controller started, as Slurm prints times.
    pub boot_time: &'a str,
    /// Id of the next job.
    pub next_job_id: u32,
    /// `SLURM_VERSION`.
    pub version: &'a str,
    /// The number of a user, where there is such a user.
    pub uid_of: &'a dyn Fn(&str) -> Option<u32>,
}

/// All rows as name and value; print them with [`format_row`].
pub fn show_config(config: &Config, facts: &ListingContext<'_>) -> Vec<(String, String)> {
    let mut rows = Vec::new();
    for key in keys::SLURM
        .keys()
        .iter()
        .filter(|key| key.shown != KeyListing::Never)
    {
        match key.name {
            "SlurmctldHost" => {
                for (i, host) in config.slurmctld.iter().enumerate() {
                    let value = match &host.addr {
                        Some(addr) => format!("{}({addr})", host.host),
                        None => host.host.clone(),
                    };
                    rows.push((format!("SlurmctldHost[{i}]"), value));
                }
            }
            "JobDefaults" => {
                rows.push((key.name.to_owned(), config.limits.job_defaults.to_string()))
            }
            "DefMemPerNode" => rows.push(mem_row("DefMem", config.limits.def_mem)),
            "MaxMemPerNode" => rows.push(mem_row("MaxMem", config.limits.max_mem)),
            name => rows.push((name.to_owned(), value_of(key, config, facts))),
        }
    }
    rows
}

/// A row as `scontrol show config` prints it.
pub fn format_row(name: &str, value: &str) -> String {
    format!("{name:<23} = {value}")
}

fn mem_row(prefix: &str, limit: Option<MemPer>) -> (String, String) {
    match limit {
        Some(MemPer::Cpu(mib)) => (format!("{prefix}PerCPU"), mib.to_string()),
        Some(MemPer::Node(mib)) => (format!("{prefix}PerNode"), mib.to_string()),
        None => (format!("{prefix}PerNode"), "UNLIMITED".to_owned()),
    }
}

fn value_of(key: &Key, config: &Config, facts: &ListingContext<'_>) -> String {
    let given = config
        .raw
        .get(key.name)
        .map(|setting| setting.value.as_str());
    match key.name {
        "BOOT_TIME" => facts.boot_time.to_owned(),
        "NEXT_JOB_ID" => facts.next_job_id.to_string(),
        "SLURM_CONF" => config.path.display().to_string(),
        "SLURM_VERSION" => facts.version.to_owned(),
        "MULTIPLE_SLURMD" => yes_no(shares_hosts(config)),
        "MaxNodeCount" if given.is_none() => config.nodes.len().to_string(),
        "MaxDBDMsgs" if given.is_none() => {
            let wanted = u64::from(config.limits.max_job_count) * 2 + config.nodes.len() as u64 * 4;
            wanted.max(10_000).to_string()
        }
        "ClusterName" => config.cluster_name.clone(),
        "AccountingStorageEnforce" if config.accounting_enforce.is_empty() => "none".to_owned(),
        "AccountingStorageEnforce" => config.accounting_enforce.join(","),
        "TrackWCKey" => yes_no(config.tracks_wckeys()),
        "EnforcePartLimits" => match config.enforce_part_limits {
            EnforcePartLimits::No => "NO".to_owned(),
            EnforcePartLimits::Any => "ANY".to_owned(),
            EnforcePartLimits::All => "ALL".to_owned(),
        },
        "SlurmctldPort" => {
            let ports = &config.slurmctld_ports;
            match ports.start() == ports.end() {
                true => ports.start().to_string(),
                false => format!("{}-{}", ports.start(), ports.end()),
            }
        }
        "SuspendTime" => match value::parse_number(given.unwrap_or("-1"), u64::MAX) {
            Ok(Some(seconds)) => format!("{seconds} sec"),
            _ => "INFINITE".to_owned(),
        },
        "TaskPluginParam" if given.is_none() => "(null type)".to_owned(),
        "SelectTypeParameters" if given.is_none() && config.select == SelectType::Linear => {
            "NONE".to_owned()
        }
        "SelectTypeParameters" | "PreemptMode" => {
            given.or(key.default).unwrap_or("").to_ascii_uppercase()
        }
        _ => match given.or(key.default) {
            Some(text) => format_value(key, text, facts),
            None => "(null)".to_owned(),
        },
    }
}

fn format_value(key: &Key, text: &str, facts: &ListingContext<'_>) -> String {
    let number = |unit: &str| match value::parse_number(text, u64::MAX) {
        Ok(Some(number)) => format!("{number}{unit}"),
        _ => "UNLIMITED".to_owned(),
    };
    match &key.kind {
        Kind::Bool => yes_no(value::parse_bool(text) == Ok(true)),
        Kind::Number | Kind::Flag => number(""),
        Kind::Seconds => number(" sec"),
        Kind::Microseconds => number(" usec"),
        Kind::Minutes => number(" min"),
        Kind::Percent => number(" percent"),
        Kind::Rate => number(" nodes/min"),
        Kind::Clock => match value::parse_time_limit(text) {
            Ok(DurationLimit::Seconds(seconds)) => value::clock(seconds),
            _ => "UNLIMITED".to_owned(),
        },
        Kind::Level => keys::parse_level(text).unwrap_or("info").to_owned(),
        Kind::UserWithId => match (facts.uid_of)(text) {
            Some(uid) => format!("{text}({uid})"),
            None => format!("{text}(-1)"),
        },
        Kind::Secret => "(null)".to_owned(),
        // Slurm prints the default MPI type alone, every other plugin with its kind.
        Kind::Plugin("mpi", _) => keys::plugin_word("mpi", text).to_owned(),
        Kind::Plugin(prefix, _) => format!("{prefix}/{}", keys::plugin_word(prefix, text)),
        Kind::Many(_) if key.name == "TaskPlugin" => {
            let words = text.split(',').map(|word| match word.contains('/') {
                true => word.to_owned(),
                false => format!("task/{word}"),
            });
            words.collect::<Vec<_>>().join(",")
        }
        _ => text.to_owned(),
    }
}

fn yes_no(yes: bool) -> String {
    if yes {
        "Yes".to_owned()
    } else {
        "No".to_owned()
    }
}

/// Whether some host carries more than one node.
fn shares_hosts(config: &Config) -> bool {
    let mut hosts: Vec<&str> = config
        .nodes
        .iter()
        .map(|node| node.hostname.as_str())
        .collect();
    hosts.sort_unstable();
    hosts.windows(2).any(|pair| pair[0] == pair[1])
}
