//! `scontrol show node` and `scontrol show partition`.

use super::job::RecordStyle;
use crate::listing::context::Ctx;
use crate::listing::node::{self, NodeView};
use crate::listing::text::{self, put};
use muster_model::config::PartitionConfig;
use muster_model::hostlist;
use muster_model::node::NodeConfig;
use muster_model::spec::MemoryAsk;
use muster_model::time::TimeLimit;
use std::collections::{BTreeMap, BTreeSet};

/// Appends a node.
pub(crate) fn write_node(out: &mut String, view: &NodeView<'_>, ctx: &Ctx, style: RecordStyle) {
    let config = &view.node.config;
    let report = view.node.report.as_ref();
    put!(out, "NodeName={} ", config.name);
    if let Some(report) = report {
        put!(out, "Arch={} ", report.arch);
    }
    if let Some(bind) = config.cpu_bind {
        put!(out, "CpuBind={} ", bind.name());
    }
    put!(out, "CoresPerSocket={} ", config.cores_per_socket);
    style.newline(out);
    put!(
        out,
        "CPUAlloc={} CPUEfctv={} CPUTot={} CPULoad=",
        view.used_cpus(),
        view.job_cpus(),
        config.cpus
    );
    match view.load_centi() {
        Some(load) => text::load(out, load),
        None => out.push_str("N/A"),
    }
    style.newline(out);
    for key in ["AvailableFeatures", "ActiveFeatures"] {
        put!(out, "{key}=");
        text::list_or(out, &config.features, "(null)");
        style.newline(out);
    }
    out.push_str("Gres=");
    view.write_gres(out);
    style.newline(out);
    if style.details > 0 {
        out.push_str("GresDrain=N/A");
        style.newline(out);
        out.push_str("GresUsed=");
        view.write_gres_used(out);
        style.newline(out);
    }
    put!(
        out,
        "NodeAddr={} NodeHostName={} Port={} ",
        config.addr,
        config.hostname,
        config.port
    );
    put!(out, "Version={}", view.version().unwrap_or("(null)"));
    style.newline(out);
    if let Some(report) = report {
        put!(out, "OS={} ", report.os);
        style.newline(out);
    }
    state(out, view, style);
    history(out, view, ctx, style);
    style.end(out);
}

fn state(out: &mut String, view: &NodeView<'_>, style: RecordStyle) {
    let config = &view.node.config;
    put!(
        out,
        "RealMemory={} AllocMem={} FreeMem=",
        config.memory_mib,
        view.node.used_mib
    );
    match view.free_mib() {
        Some(mib) => put!(out, "{mib}"),
        None => out.push_str("N/A"),
    }
    put!(
        out,
        " Sockets={} Boards={}",
        view.sockets(),
        config.boards.max(1)
    );
    style.newline(out);
    write_kept(out, config, style);
    out.push_str("State=");
    view.state.write_complete(out);
    put!(
        out,
        " ThreadsPerCore={} TmpDisk={} Weight={} Owner=N/A MCS_label={}",
        config.threads_per_core,
        config.tmp_disk_mib,
        config.weight,
        view.node.mcs_label.as_deref().unwrap_or("N/A")
    );
    style.newline(out);
}

fn history(out: &mut String, view: &NodeView<'_>, ctx: &Ctx, style: RecordStyle) {
    let report = view.node.report.as_ref();
    let name = &view.node.config.name;
    let shown = ctx.partitions.iter().filter(|p| ctx.shows(p));
    let partitions = shown.filter(|p| p.nodes.contains(name));
    out.push_str("Partitions=");
    text::join(out, ',', partitions.map(|p| &p.name));
    out.push(' ');
    style.newline(out);
    out.push_str("BootTime=");
    ctx.time_or(out, report.map(|r| r.boot_time), "None");
    out.push_str(" SlurmdStartTime=");
    ctx.time_or(out, report.map(|r| r.agent_start), "None");
    style.newline(out);
    out.push_str("LastBusyTime=");
    let busy = view.node.last_busy.or(report.map(|r| r.agent_start));
    ctx.time_or(out, busy, "Unknown");
    style.newline(out);
    out.push_str("CfgTRES=");
    view.write_tres(out);
    style.newline(out);
    out.push_str("AllocTRES=");
    view.write_used_tres(out);
    style.newline(out);
    out.push_str("CapWatts=n/a");
    style.newline(out);
    out.push_str("CurrentWatts=0 AveWatts=0");
    style.newline(out);
    out.push_str("ExtSensorsJoules=n/s ExtSensorsWatts=0 ExtSensorsTemp=n/s");
    if let Some(text) = report.and_then(|r| r.trusted_by.as_deref()) {
        style.newline(out);
        put!(out, "TrustedBy={text}");
    }
    if let Some(text) = report.and_then(|r| r.cross_memory.as_deref()) {
        style.newline(out);
        out.push_str(text);
    }
    if let Some(text) = report.and_then(|r| r.control_groups.as_deref()) {
        style.newline(out);
        put!(out, "ControlGroups={text}");
    }
    if let Some(comment) = view.node.comment.as_deref().filter(|c| !c.is_empty()) {
        style.newline(out);
        put!(out, "Comment={comment}");
    }
    if let Some(reason) = &view.node.reason {
        style.newline(out);
        put!(
            out,
            "Reason={} [{}@",
            reason.text,
            ctx.user_name(reason.uid)
        );
        ctx.time(out, reason.since);
        out.push(']');
    }
}

/// Appends a partition.
pub(crate) fn write_partition(
    out: &mut String,
    partition: &PartitionConfig,
    ctx: &Ctx,
    style: RecordStyle,
) {
    let p = partition;
    let yes = |on: bool| if on { "YES" } else { "NO" };
    put!(out, "PartitionName={}", p.name);
    style.newline(out);
    out.push_str("AllowGroups=");
    text::list_or(out, &p.allow_groups, "ALL");
    access(out, " ", "Accounts", &p.allow_accounts, &p.deny_accounts);
    access(out, " ", "Qos", &p.allow_qos, &p.deny_qos);
    style.newline(out);
    out.push_str("AllocNodes=");
    text::list_or(out, &p.alloc_nodes, "ALL");
    if let Some(alternate) = &p.alternate {
        put!(out, " Alternate={alternate}");
    }
    put!(out, " Default={}", yes(p.default));
    if let Some(bind) = p.cpu_bind {
        put!(out, " CpuBind={} ", bind.name());
    }
    put!(out, " QoS={}", p.qos.as_deref().unwrap_or("N/A"));
    style.newline(out);
    out.push_str("DefaultTime=");
    limit(out, p.default_time);
    put!(
        out,
        " DisableRootJobs={} ExclusiveUser={} GraceTime={} Hidden={}",
        yes(p.disable_root_jobs),
        yes(p.exclusive_user),
        p.grace_time_s,
        yes(p.hidden)
    );
    style.newline(out);
    out.push_str("MaxNodes=");
    or_unlimited(out, p.max_nodes);
    out.push_str(" MaxTime=");
    limit(out, Some(p.max_time));
    put!(
        out,
        " MinNodes={} LLN={} MaxCPUsPerNode=",
        p.min_nodes,
        yes(p.lln)
    );
    or_unlimited(out, p.max_cpus_per_node);
    // Newer than the listing that clients read; said only where it is set.
    if p.max_cpus_per_socket.is_some() {
        out.push_str(" MaxCPUsPerSocket=");
        or_unlimited(out, p.max_cpus_per_socket);
    }
    style.newline(out);
    // Members by name, whatever the configuration called them: readers take the value apart as a node list.
    let nodes = hostlist::compress(&p.nodes);
    put!(out, "Nodes={}", text::or_null(Some(&nodes)));
    style.newline(out);
    put!(
        out,
        "PriorityJobFactor={} PriorityTier={} RootOnly={} ReqResv={} OverSubscribe=",
        p.priority_job_factor,
        p.priority_tier,
        yes(p.root_only),
        yes(p.req_resv)
    );
    node::write_over_subscribe(out, p);
    style.newline(out);
    totals(out, p, ctx, style);
    style.end(out);
}

fn access(out: &mut String, before: &str, what: &str, allow: &[String], deny: &[String]) {
    out.push_str(before);
    if deny.is_empty() {
        put!(out, "Allow{what}=");
        text::list_or(out, allow, "ALL");
    } else {
        put!(out, "Deny{what}=");
        text::list_or(out, deny, "NONE");
    }
}

fn totals(out: &mut String, p: &PartitionConfig, ctx: &Ctx, style: RecordStyle) {
    match p.over_time_limit_min {
        Some(minutes) => put!(out, "OverTimeLimit={minutes}"),
        None => out.push_str("OverTimeLimit=NONE"),
    }
    put!(
        out,
        " PreemptMode={}",
        p.preempt_mode.as_deref().unwrap_or("OFF")
    );
    style.newline(out);
    let members: std::collections::HashSet<&str> = p.nodes.iter().map(String::as_str).collect();
    let nodes = ctx
        .nodes
        .iter()
        .filter(|n| members.contains(n.config.name.as_str()));
    let (mut count, mut cpus, mut mib) = (0u64, 0u64, 0u64);
    let mut devices: BTreeMap<&str, u64> = BTreeMap::new();
    for node in nodes {
        count += 1;
        cpus += u64::from(node.config.cpus);
        mib += node.config.memory_mib;
        for device in &node.config.gres {
            *devices.entry(device.name.as_str()).or_default() += device.count;
        }
    }
    put!(
        out,
        "State={} TotalCPUs={cpus} TotalNodes={count} SelectTypeParameters={}",
        p.effective_state().name(),
        match p.whole_sockets {
            None => "NONE",
            Some(true) => "CR_SOCKET",
            Some(false) => "CR_CORE",
        }
    );
    style.newline(out);
    if let Some(own) = &p.calendar {
        let (name, state) = (&own.calendar.name, own.state.name());
        put!(out, "Calendar={name} CalendarState={state} CalendarChange=");
        ctx.time_or(out, own.next_change, "never");
        style.newline(out);
    }
    put!(out, "JobDefaults={}", p.job_defaults);
    style.newline(out);
    memory(out, "DefMem", p.default_memory);
    out.push(' ');
    memory(out, "MaxMem", p.max_memory);
    style.newline(out);
    put!(out, "TRES=cpu={cpus},mem=");
    text::memory(out, mib, false);
    let amounts = PartitionTotals {
        cpus,
        memory_mib: mib,
        nodes: count,
        devices,
    };
    let billing = billing(p, ctx, &amounts);
    put!(out, ",node={count},billing={billing}");
    for (name, count) in amounts.devices {
        put!(out, ",gres/{name}={count}");
    }
    if let Some(weights) = &p.billing_weights {
        style.newline(out);
        put!(out, "TRESBillingWeights={weights}");
    }
}

/// Amounts of all nodes of a partition.
struct PartitionTotals<'a> {
    cpus: u64,
    memory_mib: u64,
    nodes: u64,
    /// Devices by their names.
    devices: BTreeMap<&'a str, u64>,
}

/// The charge of an hour of all that a partition has: CPUs, or by `TRESBillingWeights`.
fn billing(p: &PartitionConfig, ctx: &Ctx, amounts: &PartitionTotals<'_>) -> u64 {
    let Some(weights) = &p.billing_weights else {
        return amounts.cpus;
    };
    let settings = ctx.config.as_ref();
    let settings = settings.and_then(|config| config.order.multifactor.as_ref());
    let most = settings.is_some_and(|m| m.max_tres);
    let mut units: f64 = 0.0;
    for (name, weight) in muster_model::factors::tres_weights(weights) {
        let name = name.to_ascii_lowercase();
        let device = name.strip_prefix("gres/").unwrap_or(&name);
        let amount = match name.as_str() {
            "cpu" => amounts.cpus,
            "mem" => amounts.memory_mib,
            "node" => amounts.nodes,
            _ => amounts.devices.get(device).copied().unwrap_or(0),
        };
        let charge = amount as f64 * weight;
        units = match most {
            true => units.max(charge),
            false => units + charge,
        };
    }
    units.max(0.0) as u64
}

fn memory(out: &mut String, key: &str, ask: MemoryAsk) {
    match ask {
        MemoryAsk::Default | MemoryAsk::PerNode(0) => put!(out, "{key}PerNode=UNLIMITED"),
        MemoryAsk::PerNode(mib) => put!(out, "{key}PerNode={mib}"),
        MemoryAsk::PerCpu(mib) => put!(out, "{key}PerCPU={mib}"),
    }
}

fn or_unlimited(out: &mut String, number: Option<u32>) {
    match number {
        Some(n) => put!(out, "{n}"),
        None => out.push_str("UNLIMITED"),
    }
}

fn limit(out: &mut String, limit: Option<TimeLimit>) {
    match limit {
        None => out.push_str("NONE"),
        Some(TimeLimit::Unlimited) => out.push_str("UNLIMITED"),
        Some(TimeLimit::Minutes(m)) => text::long_duration(out, i64::from(m) * 60),
    }
}

/// Resources of a node kept by the system, if there are any.
fn write_kept(out: &mut String, config: &NodeConfig, style: RecordStyle) {
    let mut kept = Vec::new();
    if !config.spec_cpus.is_empty() {
        let threads = config.cpus
            / config
                .sockets
                .saturating_mul(config.cores_per_socket)
                .max(1);
        let cores: BTreeSet<u32> = config
            .spec_cpus
            .iter()
            .map(|c| c / threads.max(1))
            .collect();
        kept.push(format!("CoreSpecCount={}", cores.len()));
    }
    if config.spec_mib > 0 {
        kept.push(format!("MemSpecLimit={}", config.spec_mib));
    }
    if !kept.is_empty() {
        out.push_str(&kept.join(" "));
        style.newline(out);
    }
}
