//! Nodes and partitions as JSON and YAML, in both layouts.

use super::context::Ctx;
use super::document::{Dialect, Writer, document};
use super::node::NodeView;
use super::node_fields::NodeGroup;
use super::text::collect;
use muster_model::binding::BindDefault;
use muster_model::config::{OverSubscribe, PartitionConfig};
use muster_model::spec::MemoryAsk;
use muster_model::time::TimeLimit;
use std::collections::HashMap;

/// Appends a document with the nodes.
pub(crate) fn write_nodes(out: &mut String, dialect: Dialect, views: &[NodeView<'_>], ctx: &Ctx) {
    document(out, dialect, "scontrol", ctx, |w| nodes(w, views, ctx));
}

/// Writes the main part of a document with the nodes.
pub(crate) fn nodes(w: &mut Writer<'_>, views: &[NodeView<'_>], ctx: &Ctx) {
    let partitions = PartitionsOfNodes::of(ctx);
    w.list("nodes", |w| {
        for view in views {
            w.item(|w| {
                if w.is_old() {
                    old_node(w, view, &partitions, ctx)
                } else {
                    new_node(w, view, &partitions, ctx)
                }
            });
        }
    });
    if !w.is_old() {
        w.time("last_update", Some(ctx.now));
    }
}

/// Appends a document with the rows of sinfo.
pub(crate) fn write_groups(out: &mut String, dialect: Dialect, rows: &[NodeGroup<'_>], ctx: &Ctx) {
    document(out, dialect, "sinfo", ctx, |w| {
        w.list("sinfo", |w| {
            for row in rows {
                w.item(|w| group(w, row, ctx));
            }
        });
    });
}

/// Appends a document with the partitions.
pub(crate) fn write_partitions(
    out: &mut String,
    dialect: Dialect,
    partitions: &[&PartitionConfig],
    ctx: &Ctx,
) {
    document(out, dialect, "scontrol", ctx, |w| {
        list_partitions(w, partitions, ctx);
    });
}

/// Writes the main part of a document with the partitions.
pub(crate) fn list_partitions(w: &mut Writer<'_>, partitions: &[&PartitionConfig], ctx: &Ctx) {
    w.list("partitions", |w| {
        for p in partitions {
            w.item(|w| match w.is_old() {
                true => old_partition(w, p, ctx),
                false => partition(w, p, ctx),
            });
        }
    });
    if !w.is_old() {
        w.time("last_update", Some(ctx.now));
    }
}

/// The partitions of each node: looked up, since a list of all nodes is not to go through the nodes of all partitions for each.
pub(crate) struct PartitionsOfNodes<'a>(HashMap<&'a str, Vec<&'a str>>);

impl<'a> PartitionsOfNodes<'a> {
    /// The partitions of a cluster.
    pub(crate) fn of(ctx: &'a Ctx) -> PartitionsOfNodes<'a> {
        PartitionsOfNodes::among(&ctx.partitions, |_| true)
    }

    /// Partitions that listings show: without hidden ones.
    pub(crate) fn shown(ctx: &'a Ctx) -> PartitionsOfNodes<'a> {
        PartitionsOfNodes::among(&ctx.partitions, |partition| !partition.hidden)
    }

    fn among(
        partitions: &'a [PartitionConfig],
        is_meant: impl Fn(&PartitionConfig) -> bool,
    ) -> PartitionsOfNodes<'a> {
        let mut all: HashMap<&str, Vec<&str>> = HashMap::new();
        for partition in partitions.iter().filter(|partition| is_meant(partition)) {
            for node in &partition.nodes {
                let names = all.entry(node.as_str()).or_default();
                if names.last() != Some(&partition.name.as_str()) {
                    names.push(&partition.name);
                }
            }
        }
        PartitionsOfNodes(all)
    }

    /// Names of the partitions of a node, in their order.
    pub(crate) fn names(&self, view: &NodeView<'_>) -> &[&'a str] {
        let names = self.0.get(view.node.config.name.as_str());
        names.map_or(&[], Vec::as_slice)
    }
}

/// Slurm's load in JSON: hundredths.
fn load(view: &NodeView<'_>) -> u32 {
    view.load_centi().unwrap_or(0)
}

fn old_node(
    w: &mut Writer<'_>,
    view: &NodeView<'_>,
    partitions: &PartitionsOfNodes<'_>,
    ctx: &Ctx,
) {
    let (config, report) = (&view.node.config, view.node.report.as_ref());
    let features = config.features.join(",");
    w.text_or_empty("architecture", report.map(|r| r.arch.as_str()));
    w.text("burstbuffer_network_address", "");
    w.raw("boards", config.boards.max(1));
    w.time("boot_time", report.map(|r| r.boot_time));
    w.text_or_empty("comment", view.node.comment.as_deref());
    w.raw("cores", config.cores_per_socket);
    w.raw(
        "cpu_binding",
        config.cpu_bind.map_or(0, BindDefault::number),
    );
    w.raw("cpu_load", load(view));
    w.text("extra", "");
    w.raw("free_memory", view.free_mib().unwrap_or(0));
    w.raw("cpus", config.cpus);
    w.time(
        "last_busy",
        view.node.last_busy.or(report.map(|r| r.agent_start)),
    );
    w.text("features", &features);
    w.text("active_features", &features);
    gres(w, view);
    w.text_or_empty("mcs_label", view.node.mcs_label.as_deref());
    w.text("name", &config.name);
    w.text("next_state_after_reboot", "invalid");
    w.text("address", &config.addr);
    w.text("hostname", &config.hostname);
    w.text("state", &view.state.base.name().to_ascii_lowercase());
    w.texts("state_flags", view.flags());
    w.list("next_state_after_reboot_flags", |_| {});
    w.text_or_empty("operating_system", report.map(|r| r.os.as_str()));
    w.raw("owner", "null");
    w.texts("partitions", partitions.names(view));
    w.raw("port", config.port);
    w.raw("real_memory", config.memory_mib);
    let reason = view.node.reason.as_ref();
    w.text_or_empty("reason", reason.map(|r| r.text.as_str()));
    w.time("reason_changed_at", reason.map(|r| r.since));
    match reason {
        Some(reason) => w.text("reason_set_by_user", &ctx.user_name(reason.uid)),
        None => w.raw("reason_set_by_user", "null"),
    }
    w.time("slurmd_start_time", report.map(|r| r.agent_start));
    w.raw("sockets", view.sockets());
    w.raw("threads", config.threads_per_core);
    w.raw("temporary_disk", config.tmp_disk_mib);
    w.raw("weight", config.weight);
    w.text("tres", &collect(|o| view.write_tres(o)));
    w.text_or_empty("slurmd_version", view.version());
    w.raw("alloc_memory", view.node.used_mib);
    w.raw("alloc_cpus", view.used_cpus());
    w.raw(
        "idle_cpus",
        view.job_cpus().saturating_sub(view.used_cpus()),
    );
    match collect(|o| view.write_used_tres(o)) {
        used if used.is_empty() => w.raw("tres_used", "null"),
        used => w.text("tres_used", &used),
    }
    w.raw("tres_weighted", format_args!("{}.0", view.used_cpus()));
}

fn gres(w: &mut Writer<'_>, view: &NodeView<'_>) {
    let of = |write: &dyn Fn(&mut String)| {
        let text = collect(|o| write(o));
        if text == "(null)" {
            String::new()
        } else {
            text
        }
    };
    w.text("gres", &of(&|o| view.write_gres(o)));
    w.text("gres_drained", "N/A");
    w.text("gres_used", &of(&|o| view.write_gres_used(o)));
}

fn new_node(
    w: &mut Writer<'_>,
    view: &NodeView<'_>,
    partitions: &PartitionsOfNodes<'_>,
    ctx: &Ctx,
) {
    let (config, report) = (&view.node.config, view.node.report.as_ref());
    w.text_or_empty("architecture", report.map(|r| r.arch.as_str()));
    w.text("burstbuffer_network_address", "");
    w.raw("boards", config.boards.max(1));
    w.time("boot_time", report.map(|r| r.boot_time));
    w.text("cluster_name", "");
    w.raw("cores", config.cores_per_socket);
    w.raw("specialized_cores", 0);
    w.raw(
        "cpu_binding",
        config.cpu_bind.map_or(0, BindDefault::number),
    );
    if w.has_plain_states() {
        w.limit("cpu_load", view.load_centi().map(u64::from), false);
    } else {
        w.raw("cpu_load", load(view));
    }
    w.limit("free_mem", view.free_mib(), false);
    w.raw("cpus", config.cpus);
    w.raw("effective_cpus", view.job_cpus());
    w.text("specialized_cpus", "");
    w.text("extra", "");
    w.texts("features", &config.features);
    w.texts("active_features", &config.features);
    gres(w, view);
    w.text("instance_id", "");
    w.text("instance_type", "");
    w.time(
        "last_busy",
        view.node.last_busy.or(report.map(|r| r.agent_start)),
    );
    w.text_or_empty("mcs_label", view.node.mcs_label.as_deref());
    w.raw("specialized_memory", 0);
    w.text("name", &config.name);
    w.list("next_state_after_reboot", |_| {});
    w.text("address", &config.addr);
    w.text("hostname", &config.hostname);
    w.texts(
        "state",
        std::iter::once(view.state.base.name()).chain(view.flags()),
    );
    w.text_or_empty("operating_system", report.map(|r| r.os.as_str()));
    w.text("owner", "");
    w.texts("partitions", partitions.names(view));
    w.raw("port", config.port);
    w.raw("real_memory", config.memory_mib);
    w.text_or_empty("comment", view.node.comment.as_deref());
    let reason = view.node.reason.as_ref();
    w.text_or_empty("reason", reason.map(|r| r.text.as_str()));
    w.time("reason_changed_at", reason.map(|r| r.since));
    let user = reason.map(|r| ctx.user_name(r.uid));
    w.text_or_empty("reason_set_by_user", user.as_deref());
    w.limit(
        "resume_after",
        Some(0).filter(|_| !w.has_plain_states()),
        false,
    );
    w.text("reservation", "");
    w.raw("alloc_memory", view.node.used_mib);
    w.raw("alloc_cpus", view.used_cpus());
    w.raw(
        "alloc_idle_cpus",
        config.cpus.saturating_sub(view.used_cpus()),
    );
    w.text("tres_used", &collect(|o| view.write_used_tres(o)));
    if w.version() < 45 {
        w.raw("tres_weighted", format_args!("{}.0", view.used_cpus()));
    }
    w.time("slurmd_start_time", report.map(|r| r.agent_start));
    w.raw("sockets", view.sockets());
    w.raw("threads", config.threads_per_core);
    w.raw("temporary_disk", config.tmp_disk_mib);
    w.raw("weight", config.weight);
    w.text("tres", &collect(|o| view.write_tres(o)));
    w.text_or_empty("version", view.version());
    if w.version() >= 42 {
        absent_of_node(w);
    }
}

/// Members that the descriptions of v0.0.42 and later have, for what nodes do not have or measure here.
fn absent_of_node(w: &mut Writer<'_>) {
    w.map("energy", |w| {
        w.raw("average_watts", 0);
        w.raw("base_consumed_energy", 0);
        w.raw("consumed_energy", 0);
        w.limit("current_watts", None, false);
        w.raw("previous_consumed_energy", 0);
        w.raw("last_collected", 0);
    });
    w.text("gpu_spec", "");
    w.raw("res_cores_per_gpu", 0);
    if w.version() < 45 {
        w.map("external_sensors", |_| {});
        w.map("power", |_| {});
    } else {
        w.limit("suspend_time", None, false);
    }
    if w.version() >= 43 {
        w.list("cert_flags", |_| {});
        w.limit("tls_cert_last_renewal", None, false);
        w.text("topology", "");
    }
}

/// The least and the most of a value.
fn span(w: &mut Writer<'_>, key: &str, row: &NodeGroup<'_>, value: fn(&NodeView<'_>) -> u64) {
    w.map(key, |w| ends(w, row, value));
}

fn ends(w: &mut Writer<'_>, row: &NodeGroup<'_>, value: fn(&NodeView<'_>) -> u64) {
    let values = || row.nodes.iter().map(value);
    w.raw("minimum", values().min().unwrap_or(0));
    w.raw("maximum", values().max().unwrap_or(0));
}

fn group(w: &mut Writer<'_>, row: &NodeGroup<'_>, ctx: &Ctx) {
    let first = row.nodes.first();
    span(w, "port", row, |n| u64::from(n.node.config.port));
    w.map("node", |w| {
        let state = first.map(|n| n.state.base.name());
        w.texts(
            "state",
            state
                .into_iter()
                .chain(first.into_iter().flat_map(NodeView::flags)),
        );
    });
    w.map("nodes", |w| node_counts(w, row));
    w.map("cpus", |w| cpus(w, row));
    span(w, "sockets", row, |n| u64::from(n.sockets()));
    span(w, "cores", row, |n| {
        u64::from(n.node.config.cores_per_socket)
    });
    span(w, "threads", row, |n| {
        u64::from(n.node.config.threads_per_core)
    });
    span(w, "disk", row, |n| n.node.config.tmp_disk_mib);
    w.map("memory", |w| memory(w, row));
    span(w, "weight", row, |n| u64::from(n.node.config.weight));
    w.map("features", |w| {
        let features = first
            .map(|n| n.node.config.features.join(","))
            .unwrap_or_default();
        w.text("total", &features);
        w.text("active", &features);
    });
    w.map("gres", |w| {
        let of = |write: fn(&NodeView<'_>, &mut String)| {
            let text = first.map(|n| collect(|o| write(n, o))).unwrap_or_default();
            if text == "(null)" {
                String::new()
            } else {
                text
            }
        };
        w.text("total", &of(|n, o| n.write_gres(o)));
        w.text("used", &of(|n, o| n.write_gres_used(o)));
    });
    w.text("cluster", &ctx.cluster);
    let comment = first.and_then(|n| n.node.comment.as_deref());
    w.text_or_empty("comment", comment);
    w.text("extra", "");
    let reason = first.and_then(|n| n.node.reason.as_ref());
    w.map("reason", |w| {
        w.text_or_empty("description", reason.map(|r| r.text.as_str()));
        w.time("time", reason.map(|r| r.since));
        let user = reason.map(|r| ctx.user_name(r.uid));
        w.text_or_empty("user", user.as_deref());
    });
    w.text("reservation", "");
    if let Some(p) = row.partition {
        w.map("partition", |w| partition(w, p, ctx));
    }
}

fn node_counts(w: &mut Writer<'_>, row: &NodeGroup<'_>) {
    let busy = row.nodes.iter().filter(|n| n.state.is_busy()).count();
    let idle = row
        .nodes
        .iter()
        .filter(|n| !n.state.is_busy() && n.state.offers_cpus())
        .count();
    w.raw("allocated", busy);
    w.raw("idle", idle);
    w.raw("other", row.nodes.len() - busy - idle);
    w.raw("total", row.nodes.len());
    w.texts(
        "hostnames",
        row.nodes.iter().map(|n| &n.node.config.hostname),
    );
    w.texts("addresses", row.nodes.iter().map(|n| &n.node.config.addr));
    w.texts("nodes", row.nodes.iter().map(|n| &n.node.config.name));
}

fn cpus(w: &mut Writer<'_>, row: &NodeGroup<'_>) {
    let sum = |f: fn(&NodeView<'_>) -> u32| row.nodes.iter().map(|n| u64::from(f(n))).sum::<u64>();
    let all = sum(|n| n.node.config.cpus);
    let used = sum(|n| n.used_cpus());
    let idle = sum(|n| {
        if n.state.offers_cpus() {
            n.node.config.cpus.saturating_sub(n.used_cpus())
        } else {
            0
        }
    });
    w.raw("allocated", used);
    w.raw("idle", idle);
    w.raw("other", all.saturating_sub(used + idle));
    w.raw("total", all);
    ends(w, row, |n| u64::from(n.node.config.cpus));
    span(w, "load", row, |n| u64::from(load(n)));
    w.map("per_node", |w| {
        w.limit(
            "max",
            row.partition
                .and_then(|p| p.max_cpus_per_node)
                .map(u64::from),
            false,
        );
    });
}

fn memory(w: &mut Writer<'_>, row: &NodeGroup<'_>) {
    ends(w, row, |n| n.node.config.memory_mib);
    w.map("free", |w| {
        w.limit(
            "minimum",
            row.nodes.iter().filter_map(|n| n.free_mib()).min(),
            false,
        );
        w.limit(
            "maximum",
            row.nodes.iter().filter_map(|n| n.free_mib()).max(),
            false,
        );
    });
    w.raw(
        "allocated",
        row.nodes.iter().map(|n| n.node.used_mib).sum::<u64>(),
    );
}

fn time_limit(w: &mut Writer<'_>, key: &str, limit: Option<TimeLimit>) {
    let minutes = match limit {
        Some(TimeLimit::Minutes(m)) => Some(u64::from(m)),
        _ => None,
    };
    if w.is_old() {
        w.number(key, minutes, "null");
    } else {
        w.limit(key, minutes, limit == Some(TimeLimit::Unlimited));
    }
}

/// Slurm's number of a memory limit: the highest bit says that it is by CPU.
fn raw_memory(ask: MemoryAsk) -> i64 {
    let number = |mib: u64| i64::try_from(mib).unwrap_or(i64::MAX);
    match ask {
        MemoryAsk::PerNode(mib) => number(mib),
        MemoryAsk::PerCpu(mib) => number(mib) | i64::MIN,
        MemoryAsk::Default => 0,
    }
}

fn memory_limit(w: &mut Writer<'_>, ask: MemoryAsk) {
    let (node, cpu) = match ask {
        MemoryAsk::PerNode(mib) if mib > 0 => (Some(mib), None),
        MemoryAsk::PerCpu(mib) => (None, Some(mib)),
        _ => (None, None),
    };
    if w.version() >= 42 {
        w.raw("memory_per_cpu", raw_memory(ask));
    }
    w.number("partition_memory_per_cpu", cpu, "null");
    w.number("partition_memory_per_node", node, "null");
}

/// As 22.05 has it: one level, -1 for no limit.
fn old_partition(w: &mut Writer<'_>, p: &PartitionConfig, ctx: &Ctx) {
    let members = ctx
        .nodes
        .iter()
        .filter(|n| p.nodes.contains(&n.config.name));
    let (mut count, mut cpus, mut mib) = (0u64, 0, 0);
    for node in members {
        count += 1;
        cpus += u64::from(node.config.cpus);
        mib += node.config.memory_mib;
    }
    let minutes = |limit: Option<TimeLimit>| match limit {
        Some(TimeLimit::Minutes(minutes)) => Some(u64::from(minutes)),
        _ => None,
    };
    let memory = |ask: MemoryAsk| match ask {
        MemoryAsk::PerNode(mib) if mib > 0 => (None, Some(mib)),
        MemoryAsk::PerCpu(mib) => (Some(mib), None),
        _ => (None, None),
    };
    w.texts("flags", p.default.then_some("default"));
    w.texts("preemption_mode", ["disabled"]);
    w.text("allowed_allocation_nodes", &p.alloc_nodes.join(","));
    w.text("allowed_accounts", &p.allow_accounts.join(","));
    w.text("allowed_groups", &p.allow_groups.join(","));
    w.text("allowed_qos", &p.allow_qos.join(","));
    w.text("alternative", "");
    w.text_or_empty("billing_weights", p.billing_weights.as_deref());
    let (per_cpu, per_node) = memory(p.default_memory);
    w.number("default_memory_per_cpu", per_cpu, "null");
    w.number("default_memory_per_node", per_node, "null");
    w.number("default_time_limit", minutes(p.default_time), "null");
    w.text("denied_accounts", &p.deny_accounts.join(","));
    w.text("denied_qos", &p.deny_qos.join(","));
    w.raw("preemption_grace_time", p.grace_time_s);
    w.number(
        "maximum_cpus_per_node",
        p.max_cpus_per_node.map(u64::from),
        "-1",
    );
    let (per_cpu, per_node) = memory(p.max_memory);
    w.number("maximum_memory_per_cpu", per_cpu, "null");
    w.number("maximum_memory_per_node", per_node, "null");
    w.number("maximum_nodes_per_job", p.max_nodes.map(u64::from), "-1");
    w.number("max_time_limit", minutes(Some(p.max_time)), "-1");
    w.raw("min nodes per job", p.min_nodes);
    w.text("name", &p.name);
    w.text("nodes", &p.nodes_text);
    w.number(
        "over_time_limit",
        p.over_time_limit_min.map(u64::from),
        "null",
    );
    w.raw("priority_job_factor", p.priority_job_factor);
    w.raw("priority_tier", p.priority_tier);
    w.text_or_empty("qos", p.qos.as_deref());
    w.text("state", p.effective_state().name());
    w.raw("total_cpus", cpus);
    w.raw("total_nodes", count);
    w.text(
        "tres",
        &format!("cpu={cpus},mem={mib}M,node={count},billing={cpus}"),
    );
}

fn partition(w: &mut Writer<'_>, p: &PartitionConfig, ctx: &Ctx) {
    let members: Vec<_> = ctx
        .nodes
        .iter()
        .filter(|n| p.nodes.contains(&n.config.name))
        .collect();
    let cpus: u64 = members.iter().map(|n| u64::from(n.config.cpus)).sum();
    let mib: u64 = members.iter().map(|n| n.config.memory_mib).sum();
    w.map("nodes", |w| {
        w.text("allowed_allocation", &p.alloc_nodes.join(","));
        w.text("configured", &p.nodes_text);
        w.raw("total", members.len());
    });
    w.map("accounts", |w| {
        w.text("allowed", &p.allow_accounts.join(","));
        w.text("deny", &p.deny_accounts.join(","));
    });
    w.map("groups", |w| w.text("allowed", &p.allow_groups.join(",")));
    w.map("qos", |w| {
        w.text("allowed", &p.allow_qos.join(","));
        w.text("deny", &p.deny_qos.join(","));
        w.text_or_empty("assigned", p.qos.as_deref());
    });
    w.text_or_empty("alternate", p.alternate.as_deref());
    w.map("tres", |w| {
        w.text_or_empty("billing_weights", p.billing_weights.as_deref());
        let memory = collect(|o| super::text::memory(o, mib, false));
        w.text(
            "configured",
            &format!(
                "cpu={cpus},mem={memory},node={},billing={cpus}",
                members.len()
            ),
        );
    });
    w.text("cluster", "");
    w.map("cpus", |w| {
        match w.version() {
            45.. => w.list("task_binding", |_| {}),
            _ => w.raw("task_binding", 0),
        }
        w.raw("total", cpus);
    });
    w.map("defaults", |w| {
        memory_limit(w, p.default_memory);
        time_limit(w, "time", p.default_time);
        w.text("job", "");
    });
    w.raw("grace_time", p.grace_time_s);
    w.map("maximums", |w| maximums(w, p));
    w.map("minimums", |w| w.raw("nodes", p.min_nodes));
    w.text("name", &p.name);
    w.text("node_sets", "");
    w.map("priority", |w| {
        w.raw("job_factor", p.priority_job_factor);
        w.raw("tier", p.priority_tier);
    });
    w.map("partition", |w| {
        w.texts("state", [p.effective_state().name()]);
        if w.version() >= 45 {
            w.text("exclusive", if p.exclusive_user { "USER" } else { "NO" });
            let shared = collect(|o| super::node::write_over_subscribe(o, p));
            w.text("oversubscribe", &shared);
        }
    });
    if w.version() >= 42 {
        later_of_partition(w, p);
    }
}

/// Members that came with v0.0.42 and later. Power saving is the same for all partitions, and said of none.
fn later_of_partition(w: &mut Writer<'_>, p: &PartitionConfig) {
    w.list("select_type", |_| {});
    w.map("timeouts", |w| {
        w.limit("resume", None, false);
        w.limit("suspend", None, false);
    });
    w.limit("suspend_time", None, false);
    if w.version() >= 43 {
        w.text_or_empty("topology", p.topology.as_deref());
    }
    if w.version() < 45 {
        return;
    }
    let flags = [
        (p.default, "DEFAULT"),
        (p.hidden, "HIDDEN"),
        (p.disable_root_jobs, "NO_ROOT"),
        (p.root_only, "ROOT_ONLY"),
        (p.req_resv, "REQ_RESV"),
        (p.lln, "LLN"),
    ];
    let flags = flags
        .into_iter()
        .filter_map(|(on, name)| on.then_some(name));
    w.texts("flags", flags);
    let modes = p.preempt_mode.as_deref().unwrap_or("CLUSTER_GLOBAL");
    let modes = modes.split(',').map(|mode| match mode {
        "OFF" | "off" => "DISABLED".to_owned(),
        mode => mode.to_ascii_uppercase(),
    });
    w.texts("preempt_mode", modes);
}

fn maximums(w: &mut Writer<'_>, p: &PartitionConfig) {
    w.number("cpus_per_node", p.max_cpus_per_node.map(u64::from), "null");
    if w.version() >= 42 {
        let most = p.max_cpus_per_socket.map(u64::from);
        w.limit("cpus_per_socket", most, false);
    }
    memory_limit(w, p.max_memory);
    let nodes = p.max_nodes.map(u64::from);
    if w.is_old() {
        w.number("nodes", nodes, "null");
    } else {
        w.limit("nodes", nodes, nodes.is_none());
    }
    let (jobs, forced) = match p.over_subscribe {
        OverSubscribe::No => (1, false),
        OverSubscribe::Exclusive => (0, false),
        OverSubscribe::Yes(n) => (n, false),
        OverSubscribe::Force(n) => (n, true),
    };
    if w.version() >= 42 {
        // The highest of Slurm's 16 bits says FORCE.
        w.raw("shares", jobs | if forced { 1 << 15 } else { 0 });
    }
    w.map("oversubscribe", |w| {
        w.raw("jobs", jobs);
        w.texts("flags", forced.then_some("force"));
    });
    time_limit(w, "time", Some(p.max_time));
    w.number(
        "over_time_limit",
        p.over_time_limit_min.map(u64::from),
        "null",
    );
}
