//! The columns of sinfo: every letter and name that sinfo(1) describes. A row is a group of nodes that look the same
//! in the columns that tell nodes apart; the others sum up or show a range.

use super::context::Ctx;
use super::format::{Field, Record, fields};
use super::node::{self, NodeView};
use super::text::{self, put};
use muster_model::config::PartitionConfig;
use muster_model::hostlist;
use muster_model::node_state::BaseState;

/// sinfo's rows.
pub(crate) struct Nodes;

impl Record for Nodes {
    type Row<'a> = NodeGroup<'a>;
}

/// Nodes of a row. Empty when a partition has none that fit.
#[derive(Clone, Debug)]
pub(crate) struct NodeGroup<'a> {
    /// The partition, of the first node if the row is of several.
    pub(crate) partition: Option<&'a PartitionConfig>,
    /// The nodes.
    pub(crate) nodes: Vec<NodeView<'a>>,
}

/// All columns.
pub(crate) static FIELDS: &[Field<Nodes>] = fields![NodeGroup<'_>;
    b'a' ["available"] "AVAIL" cut r _c o => of_partition(r, o, |p, o| o.push_str(node::availability(p.effective_state())));
    b'b' ["features_act"] "ACTIVE_FEATURES" cut r _c o => features(r, o);
    b'c' ["cpus"] "CPUS" cut r _c o => least(r, o, |n| u64::from(n.node.config.cpus));
    b'd' ["disk"] "TMP_DISK" cut r _c o => least(r, o, |n| n.node.config.tmp_disk_mib);
    b'e' ["freemem"] "FREE_MEM" cut r _c o => free_memory(r, o);
    b'f' ["features"] "AVAIL_FEATURES" cut r _c o => features(r, o);
    b'g' ["groups"] "GROUPS" cut r _c o => of_partition(r, o, |p, o| text::list_or(o, &p.allow_groups, "all"));
    b'h' ["oversubscribe", "share"] "OVERSUBSCRIBE" cut r _c o => of_partition(r, o, |p, o| node::write_over_subscribe(o, p));
    b'l' ["time"] "TIMELIMIT" cut r _c o => of_partition(r, o, |p, o| node::write_limit(o, Some(p.max_time)));
    b'm' ["memory"] "MEMORY" cut r _c o => least(r, o, |n| n.node.config.memory_mib);
    b'n' ["nodehost"] "HOSTNAMES" cut r _c o => first(r, o, |n, o| o.push_str(&n.node.config.hostname));
    b'o' ["nodeaddr"] "NODE_ADDR" cut r _c o => first(r, o, |n, o| o.push_str(&n.node.config.addr));
    b'p' ["prioritytier"] "PRIO_TIER" cut r _c o => of_partition(r, o, |p, o| put!(o, "{}", p.priority_tier));
    b'r' ["root"] "ROOT" cut r _c o => of_partition(r, o, |p, o| o.push_str(if p.root_only { "yes" } else { "no" }));
    b's' ["size"] "JOB_SIZE" cut r _c o => of_partition(r, o, |p, o| node::write_job_size(o, p));
    b't' ["statecompact"] "STATE" cut r _c o => state(r, o, |n, o| n.write_state_code(o));
    b'u' ["user"] "USER" cut r c o => reason_user(r, c, o, false);
    b'v' ["version"] "VERSION" cut r _c o => first(r, o, |n, o| o.push_str(n.version().unwrap_or("")));
    b'w' ["weight"] "WEIGHT" cut r _c o => least(r, o, |n| u64::from(n.node.config.weight));
    b'z' ["socketcorethread"] "S:C:T" cut r _c o => geometry(r, o);
    b'A' ["nodeai"] "NODES(A/I)" cut r _c o => node_counts(r, o, false);
    b'B' ["maxcpuspernode"] "MAX_CPUS_PER_NODE" cut r _c o => of_partition(r, o, max_cpus);
    b'C' ["cpusstate"] "CPUS(A/I/O/T)" cut r _c o => cpu_counts(r, o);
    b'D' ["nodes"] "NODES" cut r _c o => put!(o, "{}", r.nodes.len());
    b'E' ["reason"] "REASON" cut r _c o => reason(r, o);
    b'F' ["nodeaiot"] "NODES(A/I/O/T)" cut r _c o => node_counts(r, o, true);
    b'G' ["gres"] "GRES" cut r _c o => first(r, o, |n, o| n.write_gres(o));
    b'H' ["timestamp"] "TIMESTAMP" cut r c o => reason_time(r, c, o);
    b'I' ["priorityjobfactor"] "PRIO_JOB_FACTOR" cut r _c o => of_partition(r, o, |p, o| put!(o, "{}", p.priority_job_factor));
    b'L' ["defaulttime"] "DEFAULTTIME" cut r _c o => of_partition(r, o, |p, o| node::write_limit(o, p.default_time));
    b'M' ["preemptmode"] "PREEMPT_MODE" cut r _c o => of_partition(r, o, |p, o| o.push_str(p.preempt_mode.as_deref().unwrap_or("OFF")));
    b'N' ["nodelist"] "NODELIST" cut r _c o => nodelist(r, o);
    b'O' ["cpusload"] "CPU_LOAD" cut r _c o => load(r, o);
    b'P' ["partition"] "PARTITION" cut r _c o => of_partition(r, o, partition_with_mark);
    b'R' ["partitionname"] "PARTITION" cut r _c o => of_partition(r, o, |p, o| o.push_str(&p.name));
    b'S' ["allocnodes"] "ALLOCNODES" cut r _c o => of_partition(r, o, |p, o| text::list_or(o, &p.alloc_nodes, "all"));
    b'T' ["statelong"] "STATE" cut r _c o => state(r, o, |n, o| n.write_state(o));
    b'U' ["userlong"] "USER" cut r c o => reason_user(r, c, o, true);
    b'V' ["cluster"] "CLUSTER" cut _r _c o => o.push_str("N/A");
    b'X' ["sockets"] "SOCKETS" cut r _c o => least(r, o, |n| u64::from(n.sockets()));
    b'Y' ["cores"] "CORES" cut r _c o => least(r, o, |n| u64::from(n.node.config.cores_per_socket));
    b'Z' ["threads"] "THREADS" cut r _c o => least(r, o, |n| u64::from(n.node.config.threads_per_core));
    b'-' ["allocmem"] "ALLOCMEM" cut r _c o => first(r, o, |n, o| put!(o, "{}", n.node.used_mib));
    b'-' ["comment"] "COMMENT" cut r _c o => first(r, o, |n, o| o.push_str(text::or_null(n.node.comment.as_deref())));
    b'-' ["extra"] "EXTRA" cut _r _c o => o.push_str("(null)");
    b'-' ["gresused"] "GRES_USED" cut r _c o => first(r, o, |n, o| n.write_gres_used(o));
    b'-' ["port"] "PORT" cut r _c o => first(r, o, |n, o| put!(o, "{}", n.node.config.port));
    b'-' ["statecomplete"] "STATECOMPLETE" cut r _c o => state(r, o, complete);
];

/// Role of a column in grouping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Grouping {
    /// Nodes with different values are in different rows.
    Tells,
    /// With `--exact` they are; otherwise the row shows the least with a `+`.
    TellsIfExact,
    /// The row sums up or shows a range.
    Sums,
}

/// Role of this field in grouping.
pub(crate) fn grouping(field: &Field<Nodes>) -> Grouping {
    match field.names[0] {
        "cpus" | "disk" | "memory" | "weight" | "socketcorethread" | "sockets" | "cores"
        | "threads" => Grouping::TellsIfExact,
        "cpusload" | "freemem" => Grouping::TellsIfExact,
        "nodeai" | "nodeaiot" | "cpusstate" | "nodes" | "nodelist" => Grouping::Sums,
        _ => Grouping::Tells,
    }
}

fn of_partition(r: &NodeGroup<'_>, out: &mut String, write: fn(&PartitionConfig, &mut String)) {
    if let Some(partition) = r.partition {
        write(partition, out);
    }
}

fn partition_with_mark(partition: &PartitionConfig, out: &mut String) {
    out.push_str(&partition.name);
    if partition.default {
        out.push('*');
    }
}

fn max_cpus(partition: &PartitionConfig, out: &mut String) {
    match partition.max_cpus_per_node {
        Some(n) => put!(out, "{n}"),
        None => out.push_str("UNLIMITED"),
    }
}

fn first(r: &NodeGroup<'_>, out: &mut String, write: fn(&NodeView<'_>, &mut String)) {
    if let Some(node) = r.nodes.first() {
        write(node, out);
    }
}

fn state(r: &NodeGroup<'_>, out: &mut String, write: fn(&NodeView<'_>, &mut String)) {
    match r.nodes.first() {
        Some(node) => write(node, out),
        None => out.push_str("n/a"),
    }
}

fn complete(node: &NodeView<'_>, out: &mut String) {
    let start = out.len();
    node.state.write_complete(out);
    out[start..].make_ascii_lowercase();
}

fn features(r: &NodeGroup<'_>, out: &mut String) {
    first(r, out, |n, out| {
        text::list_or(out, &n.node.config.features, "(null)")
    });
}

fn nodelist(r: &NodeGroup<'_>, out: &mut String) {
    let mut names: Vec<&str> = r
        .nodes
        .iter()
        .map(|n| n.node.config.name.as_str())
        .collect();
    match names.as_slice() {
        [] => {}
        [one] => out.push_str(one),
        _ => {
            names.sort_by(|a, b| hostlist::natural_cmp(a, b));
            out.push_str(&hostlist::compress(&names));
        }
    }
}

/// The least value, with a plus if there are larger ones.
fn least(r: &NodeGroup<'_>, out: &mut String, value: fn(&NodeView<'_>) -> u64) {
    let mut values = r.nodes.iter().map(value);
    let Some(one) = values.next() else {
        return out.push('0');
    };
    let (low, high) = values.fold((one, one), |(low, high), v| (low.min(v), high.max(v)));
    put!(out, "{low}");
    if high > low {
        out.push('+');
    }
}

fn geometry(r: &NodeGroup<'_>, out: &mut String) {
    least(r, out, |n| u64::from(n.sockets()));
    out.push(':');
    least(r, out, |n| u64::from(n.node.config.cores_per_socket));
    out.push(':');
    least(r, out, |n| u64::from(n.node.config.threads_per_core));
}

fn range<T: Copy + Ord>(
    r: &NodeGroup<'_>,
    out: &mut String,
    value: fn(&NodeView<'_>) -> Option<T>,
    write: fn(&mut String, T),
) {
    let values = || r.nodes.iter().filter_map(value);
    match (values().min(), values().max()) {
        (Some(low), Some(high)) => {
            write(out, low);
            if high > low {
                out.push('-');
                write(out, high);
            }
        }
        _ => out.push_str("N/A"),
    }
}

fn free_memory(r: &NodeGroup<'_>, out: &mut String) {
    range(r, out, |n| n.free_mib(), |out, mib| put!(out, "{mib}"));
}

fn load(r: &NodeGroup<'_>, out: &mut String) {
    range(r, out, |n| n.load_centi(), text::load);
}

fn reason(r: &NodeGroup<'_>, out: &mut String) {
    let reason = r.nodes.first().and_then(|n| n.node.reason.as_ref());
    out.push_str(reason.map_or("none", |r| &r.text));
}

fn reason_user(r: &NodeGroup<'_>, ctx: &Ctx, out: &mut String, long: bool) {
    let Some(reason) = r.nodes.first().and_then(|n| n.node.reason.as_ref()) else {
        return out.push_str("Unknown");
    };
    out.push_str(&ctx.user_name(reason.uid));
    if long {
        put!(out, "({})", reason.uid);
    }
}

fn reason_time(r: &NodeGroup<'_>, ctx: &Ctx, out: &mut String) {
    let reason = r.nodes.first().and_then(|n| n.node.reason.as_ref());
    ctx.time_or(out, reason.map(|r| r.since), "Unknown");
}

/// Nodes with jobs, without, others, all.
fn node_counts(r: &NodeGroup<'_>, out: &mut String, all_four: bool) {
    let busy = r
        .nodes
        .iter()
        .filter(|n| n.state.is_busy() && n.state.base != BaseState::Down)
        .count();
    let idle = r
        .nodes
        .iter()
        .filter(|n| {
            !n.state.is_busy() && n.state.base == BaseState::Idle && !n.node.drain && !n.node.fail
        })
        .count();
    put!(out, "{busy}/{idle}");
    if all_four {
        put!(out, "/{}/{}", r.nodes.len() - busy - idle, r.nodes.len());
    }
}

fn cpu_counts(r: &NodeGroup<'_>, out: &mut String) {
    let (mut used, mut idle, mut all) = (0, 0, 0);
    for node in &r.nodes {
        let (total, busy) = (
            u64::from(node.node.config.cpus),
            u64::from(node.used_cpus()),
        );
        all += total;
        used += busy;
        if node.state.offers_cpus() {
            idle += total.saturating_sub(busy);
        }
    }
    put!(
        out,
        "{used}/{idle}/{}/{all}",
        all - used.min(all) - idle.min(all - used.min(all))
    );
}
