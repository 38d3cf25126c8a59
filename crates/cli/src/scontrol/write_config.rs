//! `scontrol write config`: the configuration in force as a file in the form of slurm.conf. What the commands changed since
//! the controller read its own file is in it; gres.conf, topology.conf and others are files of their own.

use super::Session;
use crate::listing::context::Ctx;
use crate::listing::node::write_over_subscribe;
use crate::listing::query;
use crate::listing::text::{self, put};
use muster_conf::endpoint;
use muster_model::config::PartitionConfig;
use muster_model::hostlist;
use muster_model::node::NodeConfig;
use muster_model::node_state::InitialState;
use muster_model::spec::MemoryAsk;
use muster_model::time::TimeLimit;
use muster_proto::client::ConfigAnswer;
use std::fs::OpenOptions;
use std::io::{self, Write as _};

/// Writes a file of this name, or of slurm.conf's, with the time behind it.
pub(super) fn write_config(session: &mut Session, file: Option<&String>) {
    let answer = session.client().and_then(|client| {
        let mut ctx = Ctx::new(&client.endpoint.cluster.clone());
        query::cluster(client, &mut ctx)?;
        let config = query::config(client)?;
        ctx.now = config.now;
        Ok((ctx, config))
    });
    let (ctx, config) = match answer {
        Ok(answer) => answer,
        Err(error) => return session.request_failed("slurm_load_ctl_conf error", &error),
    };
    let mut time = String::new();
    ctx.time(&mut time, config.now);
    let base = match file {
        Some(file) => file.clone(),
        None => endpoint::conf_path().display().to_string(),
    };
    let path = format!("{base}.{time}");
    match write_new(&path, &file_text(&ctx, &config, &time)) {
        Ok(()) => session.say.plain(&format!("Slurm config saved to {path}")),
        Err(e) => session.error(&format!("failed to write `{path}`: {e}")),
    }
}

/// Writes a file that is not there yet: root may write it to a folder where others make links.
fn write_new(path: &str, text: &str) -> io::Result<()> {
    let mut options = OpenOptions::new();
    let mut file = options.write(true).create_new(true).open(path)?;
    file.write_all(text.as_bytes())
}

/// Lines of `show config` about the controller and not its configuration.
const NO_SETTINGS: [&str; 6] = [
    "BOOT_TIME",
    "HASH_VAL",
    "MULTIPLE_SLURMD",
    "NEXT_JOB_ID",
    "SLURM_CONF",
    "SLURM_VERSION",
];

fn file_text(ctx: &Ctx, config: &ConfigAnswer, time: &str) -> String {
    let mut out = format!("# Configuration of {} at {time}\n", ctx.cluster);
    for (key, value) in &config.pairs {
        if !NO_SETTINGS.contains(&key.as_str()) {
            setting(&mut out, key, value);
        }
    }
    out.push_str("\n# Nodes\n");
    for node in ctx.nodes.iter().filter(|node| !node.removed) {
        if node.config.dynamic {
            out.push_str("# made while the controller ran: ");
        }
        node_line(&mut out, &node.config);
    }
    out.push_str("\n# Partitions\n");
    for partition in &ctx.partitions {
        partition_line(&mut out, partition);
    }
    out
}

/// A key and its value as the file has it: without the unit that listings show. What has no value is a comment.
fn setting(out: &mut String, key: &str, value: &str) {
    let key = key.split('[').next().unwrap_or(key);
    if ["", "(null)", "(null type)", "N/A"].contains(&value) {
        return put!(out, "#{key}=\n");
    }
    let (first, rest) = value.split_once(' ').unwrap_or((value, ""));
    let is_number = first.bytes().all(|byte| byte.is_ascii_digit());
    let bare = match is_number || rest.is_empty() {
        true => first,
        false => value,
    };
    // SlurmUser=root(0).
    let bare = match key.ends_with("User") {
        true => bare.split('(').next().unwrap_or(bare),
        false => bare,
    };
    match bare.contains(' ') {
        true => put!(out, "{key}=\"{bare}\"\n"),
        false => put!(out, "{key}={bare}\n"),
    }
}

/// A word of a line, unless it is what a line without it says.
fn word(out: &mut String, key: &str, value: &str, usual: &str) {
    if value == usual {
        return;
    }
    match value.contains(' ') {
        true => put!(out, " {key}=\"{value}\""),
        false => put!(out, " {key}={value}"),
    }
}

fn limit_text(limit: TimeLimit) -> String {
    let mut out = String::new();
    match limit {
        TimeLimit::Unlimited => out.push_str("UNLIMITED"),
        TimeLimit::Minutes(minutes) => text::long_duration(&mut out, i64::from(minutes) * 60),
    }
    out
}

fn node_line(out: &mut String, node: &NodeConfig) {
    put!(out, "NodeName={}", node.name);
    word(out, "NodeHostname", &node.hostname, &node.name);
    word(out, "NodeAddr", &node.addr, &node.hostname);
    word(out, "Port", &node.port.to_string(), "0");
    let boards = node.boards.max(1);
    word(out, "Boards", &boards.to_string(), "1");
    put!(
        out,
        " CPUs={} SocketsPerBoard={} CoresPerSocket={} ThreadsPerCore={} RealMemory={}",
        node.cpus,
        node.sockets / boards,
        node.cores_per_socket,
        node.threads_per_core,
        node.memory_mib
    );
    word(out, "TmpDisk", &node.tmp_disk_mib.to_string(), "0");
    word(out, "MemSpecLimit", &node.spec_mib.to_string(), "0");
    let reserved: Vec<String> = node.spec_cpus.iter().map(|cpu| cpu.to_string()).collect();
    word(out, "CpuSpecList", &reserved.join(","), "");
    word(out, "Features", &node.features.join(","), "");
    let gres = node.gres.iter().map(|gres| match &gres.kind {
        Some(kind) => format!("{}:{kind}:{}", gres.name, gres.count),
        None => format!("{}:{}", gres.name, gres.count),
    });
    word(out, "Gres", &gres.collect::<Vec<_>>().join(","), "");
    word(out, "Weight", &node.weight.to_string(), "1");
    let unknown = InitialState::Unknown.name();
    word(out, "State", node.state.name(), unknown);
    word(out, "Reason", node.reason.as_deref().unwrap_or(""), "");
    if let Some(bind) = node.cpu_bind {
        put!(out, " CpuBind={}", bind.name());
    }
    out.push('\n');
}

fn partition_line(out: &mut String, p: &PartitionConfig) {
    let usual = PartitionConfig::named(&p.name);
    let count = |n: Option<u32>| n.map_or("UNLIMITED".to_owned(), |n| n.to_string());
    let yes = |yes: bool| if yes { "YES" } else { "NO" };
    put!(out, "PartitionName={}", p.name);
    match p.takes_all {
        true => out.push_str(" Nodes=ALL"),
        false => word(out, "Nodes", &hostlist::compress(&p.nodes), ""),
    }
    for (key, value) in [
        ("Default", p.default),
        ("Hidden", p.hidden),
        ("RootOnly", p.root_only),
        ("DisableRootJobs", p.disable_root_jobs),
        ("ExclusiveUser", p.exclusive_user),
        ("LLN", p.lln),
        ("ReqResv", p.req_resv),
    ] {
        word(out, key, yes(value), "NO");
    }
    if let Some(limit) = p.default_time {
        put!(out, " DefaultTime={}", limit_text(limit));
    }
    word(out, "MaxTime", &limit_text(p.max_time), "UNLIMITED");
    for (key, value) in [
        ("MaxNodes", p.max_nodes),
        ("MaxCPUsPerNode", p.max_cpus_per_node),
        ("MaxCPUsPerSocket", p.max_cpus_per_socket),
    ] {
        word(out, key, &count(value), "UNLIMITED");
    }
    for (key, value, usual) in [
        ("MinNodes", p.min_nodes, usual.min_nodes),
        ("PriorityTier", p.priority_tier, usual.priority_tier),
        (
            "PriorityJobFactor",
            p.priority_job_factor,
            usual.priority_job_factor,
        ),
        ("GraceTime", p.grace_time_s, 0),
    ] {
        word(out, key, &value.to_string(), &usual.to_string());
    }
    for (key, list) in [
        ("AllowGroups", &p.allow_groups),
        ("AllowAccounts", &p.allow_accounts),
        ("DenyAccounts", &p.deny_accounts),
        ("AllowQos", &p.allow_qos),
        ("DenyQos", &p.deny_qos),
        ("AllocNodes", &p.alloc_nodes),
    ] {
        word(out, key, &list.join(","), "");
    }
    let mut shared = String::new();
    write_over_subscribe(&mut shared, p);
    word(out, "OverSubscribe", &shared, "NO");
    for (key, ask) in [("DefMem", p.default_memory), ("MaxMem", p.max_memory)] {
        match ask {
            MemoryAsk::Default => {}
            MemoryAsk::PerNode(mib) => put!(out, " {key}PerNode={mib}"),
            MemoryAsk::PerCpu(mib) => put!(out, " {key}PerCPU={mib}"),
        }
    }
    word(out, "QOS", p.qos.as_deref().unwrap_or(""), "");
    word(
        out,
        "PreemptMode",
        p.preempt_mode.as_deref().unwrap_or(""),
        "",
    );
    word(out, "Alternate", p.alternate.as_deref().unwrap_or(""), "");
    if let Some(minutes) = p.over_time_limit_min {
        put!(out, " OverTimeLimit={minutes}");
    }
    word(
        out,
        "TRESBillingWeights",
        p.billing_weights.as_deref().unwrap_or(""),
        "",
    );
    word(
        out,
        "JobDefaults",
        &p.job_defaults.to_string(),
        &usual.job_defaults.to_string(),
    );
    word(out, "Topology", p.topology.as_deref().unwrap_or(""), "");
    if let Some(sockets) = p.whole_sockets {
        let name = if sockets { "CR_Socket" } else { "CR_Core" };
        put!(out, " SelectTypeParameters={name}");
    }
    if let Some(bind) = p.cpu_bind {
        put!(out, " CpuBind={}", bind.name());
    }
    put!(out, " State={}\n", p.state.name());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::listing::fixture;

    /// A link that another user had made by the name of the file was followed.
    #[test]
    fn a_file_that_is_there_is_not_written() {
        let folder =
            std::env::temp_dir().join(format!("muster-write-config.{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let (link, target) = (folder.join("link"), folder.join("target"));
        std::os::unix::fs::symlink(&target, &link).unwrap();
        let failed = write_new(link.to_str().unwrap(), "x").unwrap_err();
        assert_eq!(failed.kind(), io::ErrorKind::AlreadyExists);
        assert!(!target.exists());
        write_new(target.to_str().unwrap(), "x").unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn settings_lose_their_units_and_stay_comments_where_there_are_none() {
        for (key, value, line) in [
            ("KillWait", "5 sec", "KillWait=5\n"),
            ("ResumeRate", "300 nodes/min", "ResumeRate=300\n"),
            ("Epilog", "(null)", "#Epilog=\n"),
            ("SlurmUser", "root(0)", "SlurmUser=root\n"),
            (
                "SlurmctldHost[0]",
                "vm(127.0.0.1)",
                "SlurmctldHost=vm(127.0.0.1)\n",
            ),
            ("LaunchParameters", "a b", "LaunchParameters=\"a b\"\n"),
        ] {
            let mut out = String::new();
            setting(&mut out, key, value);
            assert_eq!(out, line);
        }
    }

    #[test]
    fn lines_have_what_is_not_usual() {
        let mut ctx = fixture::ctx();
        let changed = ctx.partitions.iter_mut().find(|p| p.name == "short");
        let changed = changed.unwrap();
        changed.alternate = Some("long".to_owned());
        changed.preempt_mode = Some("REQUEUE".to_owned());
        let text = file_text(&ctx, &ConfigAnswer::default(), "now");
        assert!(
            text.starts_with("# Configuration of peer at now\n"),
            "{text}"
        );
        let short = text
            .lines()
            .find(|line| line.starts_with("PartitionName=short"));
        let short = short.unwrap();
        assert!(
            short.contains(" PreemptMode=REQUEUE Alternate=long"),
            "{short}"
        );
        assert!(
            short.contains(" MaxTime=00:30:00 PriorityTier=10") && !short.contains("Hidden"),
            "{short}"
        );
        let nodes = text.lines().filter(|line| line.starts_with("NodeName="));
        assert_eq!(nodes.count(), ctx.nodes.len(), "{text}");
    }
}
