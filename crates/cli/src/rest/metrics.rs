//! Metrics for Prometheus: the names that Slurm's controller has since 25.11, counted over the records that a user may
//! see. Where Slurm's own numbers are wrong (MiB called bytes, sums of 16 bits), these are true to their names.

use super::call::{Call, CallFailure, Outcome};
use crate::listing::context::Ctx;
use crate::listing::node::NodeView;
use crate::listing::query;
use crate::listing::text::put;
use muster_model::config::PartitionConfig;
use muster_model::job::Reason;
use muster_model::job_counts::{JobCountGroup, JobCounts, NodesAsked};
use muster_model::node_state::BaseState;
use muster_model::private_data::PrivateData;
use muster_model::visible_text::beginning;
use muster_proto::client::Diag;
use std::collections::{BTreeMap, HashSet};

/// Text of metrics: each name once, with the samples of all labels.
#[derive(Default)]
struct MetricsPage(String);

impl MetricsPage {
    fn head(&mut self, name: &str, help: &str) {
        put!(self.0, "# HELP {name} {help}\n# TYPE {name} gauge\n");
    }

    fn one(&mut self, name: &str, help: &str, value: u64) {
        self.head(name, help);
        put!(self.0, "{name} {value}\n");
    }

    fn sample(&mut self, name: &str, label: (&str, &str), value: u64) {
        put!(self.0, "{name}{{{}=\"", label.0);
        for c in label.1.chars() {
            match c {
                '\\' => self.0.push_str("\\\\"),
                '"' => self.0.push_str("\\\""),
                '\n' => self.0.push_str("\\n"),
                c => self.0.push(c),
            }
        }
        put!(self.0, "\"}} {value}\n");
    }
}

/// A number of jobs: the end of its name, its description, the function that reads it.
type JobValue = (&'static str, &'static str, fn(&JobCounts) -> u64);

#[rustfmt::skip]
const JOBS: &[JobValue] = &[
    ("", "Records of jobs", |c| c.records),
    ("_bootfail", "Jobs that ended since a node did not start", |c| c.boot_failed),
    ("_cancelled", "Jobs that were cancelled", |c| c.cancelled),
    ("_completed", "Jobs that ended with exit code 0", |c| c.completed),
    ("_completing", "Jobs whose nodes are being cleaned up", |c| c.completing),
    ("_configuring", "Jobs that wait for their nodes to be ready", |c| c.configuring),
    ("_cpus_alloc", "CPUs that jobs have", |c| c.cpus),
    ("_deadline", "Jobs that ended at their deadline", |c| c.deadline),
    ("_expediting", "Jobs that are expedited; there are none", |_| 0),
    ("_failed", "Jobs that ended with another exit code than 0", |c| c.failed),
    ("_fed_requeued", "Jobs requeued in a federation; there are none", |_| 0),
    ("_finished", "Jobs that have ended", |c| c.finished()),
    ("_gpus_alloc", "GPUs that jobs have", |c| c.gpus),
    ("_hold", "Jobs and tasks of arrays that are held", |c| c.held),
    ("_memory_alloc", "Memory that jobs have, bytes", |c| c.memory_mib << 20),
    ("_node_failed", "Jobs that ended since a node failed", |c| c.node_failed),
    ("_nodes_alloc", "Nodes that jobs have", |c| c.nodes),
    ("_outofmemory", "Jobs that ended since memory was used up", |c| c.out_of_memory),
    ("_pending", "Jobs and tasks of arrays that wait", |c| c.pending),
    ("_powerup_node", "Jobs that wait for a node to be powered up", |c| c.powering_up),
    ("_preempted", "Jobs that were preempted", |c| c.preempted),
    ("_requeued", "Jobs that were put back into the queue", |c| c.requeued),
    ("_resizing", "Jobs whose size changes; it changes at once", |_| 0),
    ("_revoked", "Jobs revoked in a federation; there are none", |_| 0),
    ("_running", "Jobs that run", |c| c.running),
    ("_signaling", "Jobs that are being signalled; it is done at once", |_| 0),
    ("_stageout", "Jobs that stage out; there are none", |_| 0),
    ("_started", "Jobs that have started", |c| c.started()),
    ("_suspended", "Jobs that are suspended", |c| c.suspended),
    ("_timeout", "Jobs that ended at their time limit", |c| c.timeout),
];

/// Writes the counts of one or of several, each with a label.
fn write_jobs(page: &mut MetricsPage, prefix: &str, label: &str, all: &BTreeMap<&str, JobCounts>) {
    for (name, help, value) in JOBS {
        let name = format!("{prefix}jobs{name}");
        page.head(&name, help);
        for (of, counts) in all {
            page.sample(&name, (label, of), value(counts));
        }
    }
}

const NODES: &[(&str, &str)] = &[
    ("", "Nodes"),
    ("_alloc", "Nodes whose CPUs are all allocated"),
    ("_blocked", "Nodes that are blocked; there are none"),
    ("_completing", "Nodes that are being cleaned up"),
    ("_cloud", "Nodes of a cloud"),
    ("_down", "Nodes that are down"),
    ("_drain", "Nodes that take no new jobs"),
    ("_drained", "Such nodes without jobs"),
    ("_draining", "Such nodes with jobs"),
    (
        "_dyn_future",
        "Nodes that were not there yet, and that a host has taken",
    ),
    ("_dyn_normal", "Nodes that are dynamic"),
    ("_external", "Nodes that another controls; there are none"),
    ("_fail", "Nodes that are about to fail"),
    ("_future", "Nodes that are not there yet"),
    ("_idle", "Nodes without jobs"),
    (
        "_invalid_reg",
        "Nodes that have registered with too little; they are down",
    ),
    ("_maint", "Nodes in maintenance"),
    ("_mixed", "Nodes with some CPUs allocated"),
    ("_noresp", "Nodes that do not respond"),
    (
        "_planned",
        "Nodes that a job is planned on; not counted here",
    ),
    ("_power_down", "Nodes that are to be powered down"),
    ("_power_up", "Nodes that are to be powered up"),
    ("_powered_down", "Nodes that are powered down"),
    ("_powering_down", "Nodes that are being powered down"),
    ("_powering_up", "Nodes that are being powered up"),
    ("_reboot_issued", "Nodes that are being rebooted"),
    ("_reboot_req", "Nodes that are to be rebooted"),
    ("_resv", "Nodes that are reserved"),
    ("_unknown", "Nodes that have not registered yet"),
];

#[derive(Clone, Default)]
struct NodeCounts([u64; NODES.len()]);

impl NodeCounts {
    fn add(&mut self, name: &str) {
        if let Some(at) = NODES.iter().position(|(own, _)| *own == name) {
            self.0[at] += 1;
        }
    }

    fn count(&mut self, view: &NodeView<'_>) {
        self.add("");
        self.add(match view.state.base {
            BaseState::Unknown => "_unknown",
            BaseState::Down => "_down",
            BaseState::Idle => "_idle",
            BaseState::Allocated => "_alloc",
            BaseState::Mixed => "_mixed",
            BaseState::Future => "_future",
        });
        for flag in view.flags() {
            let name = match flag {
                "MAINTENANCE" => "_maint",
                "RESERVED" => "_resv",
                "DRAIN" => "_drain",
                "COMPLETING" => "_completing",
                "NOT_RESPONDING" => "_noresp",
                "FAIL" => "_fail",
                "REBOOT_REQUESTED" => "_reboot_req",
                "REBOOT_ISSUED" => "_reboot_issued",
                "CLOUD" => "_cloud",
                "DYNAMIC_FUTURE" => "_dyn_future",
                "DYNAMIC_NORM" => "_dyn_normal",
                "POWER_DOWN" => "_power_down",
                "POWERING_DOWN" => "_powering_down",
                "POWERED_DOWN" => "_powered_down",
                "POWERING_UP" => "_powering_up",
                _ => continue,
            };
            self.add(name);
            if name == "_drain" {
                let is_busy = view.state.is_busy();
                self.add(if is_busy { "_draining" } else { "_drained" });
            }
        }
    }
}

/// GPUs of a node, and those that jobs have.
fn gpus(view: &NodeView<'_>) -> (u64, u64) {
    let node = view.node;
    let all = node.config.gres.iter().zip(&node.used_gres);
    let gpus = all.filter(|(gres, _)| gres.name == "gpu");
    gpus.fold((0, 0), |(count, used), (gres, held)| {
        (count + gres.count, used + u64::from(held.len()))
    })
}

/// A value of a node: its name, its description, the function that reads it.
type NodeValue = (&'static str, &'static str, fn(&NodeView<'_>) -> u64);

const OF_NODE: &[NodeValue] = &[
    ("slurm_node_cpus", "CPUs of a node", |v| {
        v.node.config.cpus.into()
    }),
    ("slurm_node_cpus_alloc", "CPUs that jobs have", |v| {
        v.used_cpus().into()
    }),
    (
        "slurm_node_cpus_effective",
        "CPUs that jobs may have",
        |v| v.job_cpus().into(),
    ),
    ("slurm_node_cpus_idle", "CPUs that no job has", |v| {
        v.job_cpus().saturating_sub(v.used_cpus()).into()
    }),
    ("slurm_node_gpus", "GPUs of a node", |v| gpus(v).0),
    ("slurm_node_gpus_alloc", "GPUs that jobs have", |v| {
        gpus(v).1
    }),
    ("slurm_node_memory_bytes", "Memory of a node", |v| {
        v.node.config.memory_mib << 20
    }),
    (
        "slurm_node_memory_alloc_bytes",
        "Memory that jobs have",
        |v| v.node.used_mib << 20,
    ),
    (
        "slurm_node_memory_effective_bytes",
        "Memory that jobs may have",
        |v| v.node.config.memory_mib << 20,
    ),
    (
        "slurm_node_memory_free_bytes",
        "Memory that is free on a node",
        |v| v.free_mib().unwrap_or(0) << 20,
    ),
];

fn views<'a>(ctx: &'a Ctx, completing: &HashSet<muster_model::ids::NodeIdx>) -> Vec<NodeView<'a>> {
    let of = |node: &'a muster_model::node::Node| {
        let reserved = ctx.reserved.get(&node.idx).copied();
        NodeView::new(node, completing.contains(&node.idx), reserved)
    };
    ctx.nodes.iter().map(of).collect()
}

/// `GET /metrics`: where the pages are.
pub(super) fn index(_: &mut Call<'_>) -> Outcome {
    let pages = [
        "jobs",
        "nodes",
        "partitions",
        "scheduler",
        "jobs-users-accts",
    ];
    Ok(pages.map(|page| format!("/metrics/{page}\n")).concat())
}

fn load_counts(call: &mut Call<'_>) -> Result<Vec<JobCountGroup>, CallFailure> {
    call.ask(query::job_counts)
}

/// Sums of groups that have something in common.
fn sums<'a>(
    groups: &'a [JobCountGroup],
    common: impl Fn(&'a JobCountGroup) -> &'a str,
) -> BTreeMap<&'a str, JobCounts> {
    let mut sums: BTreeMap<&str, JobCounts> = BTreeMap::new();
    for group in groups {
        sums.entry(common(group)).or_default().add(&group.counts);
    }
    sums
}

/// `GET /metrics/jobs`.
pub(super) fn jobs(call: &mut Call<'_>) -> Outcome {
    let groups = load_counts(call)?;
    let all = sums(&groups, |_| "").remove("").unwrap_or_default();
    let mut page = MetricsPage::default();
    for (name, help, value) in JOBS {
        page.one(&format!("slurm_jobs{name}"), help, value(&all));
    }
    Ok(page.0)
}

/// Users, and as many accounts, of which each has samples of its own: those with the most jobs.
const NAMED_MAX: usize = 1000;
/// Bytes of a name of these. Where accounts are not enforced, users choose them.
const NAME_BYTES_MAX: usize = 128;
/// Name for all others.
const OTHERS: &str = "(others)";

/// The sums of those with the most jobs, by names that are cut, and of the others as one.
fn largest<'a>(
    groups: &'a [JobCountGroup],
    name: impl Fn(&'a JobCountGroup) -> &'a str,
) -> BTreeMap<&'a str, JobCounts> {
    let cut = |group: &'a JobCountGroup| beginning(name(group), NAME_BYTES_MAX);
    let mut sums = sums(groups, cut);
    if sums.len() <= NAMED_MAX {
        return sums;
    }
    let mut by_jobs: Vec<(u64, &str)> = sums.iter().map(|(of, c)| (c.records, *of)).collect();
    by_jobs.sort_unstable_by_key(|(jobs, of)| (std::cmp::Reverse(*jobs), *of));
    let mut others = JobCounts::default();
    for (_, of) in by_jobs.split_off(NAMED_MAX) {
        others.add(&sums.remove(of).unwrap_or_default());
    }
    sums.entry(OTHERS).or_default().add(&others);
    sums
}

/// `GET /metrics/jobs-users-accts`.
pub(super) fn users(call: &mut Call<'_>) -> Outcome {
    let groups = load_counts(call)?;
    let mut page = MetricsPage::default();
    let users = largest(&groups, |group| &group.user);
    write_jobs(&mut page, "slurm_user_", "username", &users);
    let accounts = largest(&groups, |group| &group.account);
    write_jobs(&mut page, "slurm_account_", "account", &accounts);
    Ok(page.0)
}

/// `GET /metrics/nodes`.
pub(super) fn nodes(call: &mut Call<'_>) -> Outcome {
    let mut ctx = call.context();
    let completing = call.ask(|client| {
        let completing = query::cluster(client, &mut ctx)?;
        query::not_withheld(&ctx, PrivateData::NODES)?;
        Ok(completing.into_iter().collect())
    })?;
    let (mut page, mut counts) = (MetricsPage::default(), NodeCounts::default());
    let views = views(&ctx, &completing);
    for (name, help, value) in OF_NODE {
        page.head(name, help);
        for view in &views {
            page.sample(name, ("node", &view.node.config.name), value(view));
        }
    }
    views.iter().for_each(|view| counts.count(view));
    for ((name, help), count) in NODES.iter().zip(counts.0) {
        page.one(&format!("slurm_nodes{name}"), help, count);
    }
    Ok(page.0)
}

/// Values summed over the nodes of a partition.
const OF_PARTITION: &[NodeValue] = &[
    ("slurm_partition_cpus", "CPUs of a partition", |v| {
        v.node.config.cpus.into()
    }),
    ("slurm_partition_gpus", "GPUs of a partition", |v| gpus(v).0),
    (
        "slurm_partition_nodes_cpus_efctv",
        "CPUs that jobs may have",
        |v| v.job_cpus().into(),
    ),
    (
        "slurm_partition_nodes_cpus_idle",
        "CPUs that no job has",
        |v| v.job_cpus().saturating_sub(v.used_cpus()).into(),
    ),
    (
        "slurm_partition_nodes_cpus_alloc",
        "CPUs that jobs have",
        |v| v.used_cpus().into(),
    ),
    ("slurm_partition_nodes_mem_tot", "Memory, bytes", |v| {
        v.node.config.memory_mib << 20
    }),
    (
        "slurm_partition_nodes_mem_alloc",
        "Memory that jobs have, bytes",
        |v| v.node.used_mib << 20,
    ),
    (
        "slurm_partition_nodes_mem_avail",
        "Memory that no job has, bytes",
        |v| v.node.config.memory_mib.saturating_sub(v.node.used_mib) << 20,
    ),
    (
        "slurm_partition_nodes_mem_free",
        "Memory that is free, bytes",
        |v| v.free_mib().unwrap_or(0) << 20,
    ),
];

/// A metric of the nodes that pending jobs of a partition ask for.
struct NodesAskedMetric {
    name: &'static str,
    help: &'static str,
    value: fn(&NodesAsked) -> u32,
}

const NODES_ASKED: &[NodesAskedMetric] = &[
    NodesAskedMetric {
        name: "min_job_nodes",
        help: "The largest minimum of nodes of a pending job",
        value: |asked| asked.min,
    },
    NodesAskedMetric {
        name: "min_job_nodes_nohold",
        help: "The same of jobs that are not held",
        value: |asked| asked.min_released,
    },
    NodesAskedMetric {
        name: "max_job_nodes",
        help: "The largest maximum of nodes of a pending job",
        value: |asked| asked.max,
    },
    NodesAskedMetric {
        name: "max_job_nodes_nohold",
        help: "The same of jobs that are not held",
        value: |asked| asked.max_released,
    },
];

/// Writes sizes and waits of the pending jobs of each partition.
fn write_waiting(page: &mut MetricsPage, groups: &[JobCountGroup], partitions: &[PartitionConfig]) {
    let of = |partition: &PartitionConfig| {
        let name = partition.name.clone();
        groups.iter().filter(move |group| group.partition == name)
    };
    for metric in NODES_ASKED {
        let name = format!("slurm_partition_jobs_{}", metric.name);
        page.head(&name, metric.help);
        for partition in partitions {
            let mut asked = NodesAsked::default();
            of(partition).for_each(|group| asked.add(&group.nodes_asked));
            let nodes = (metric.value)(&asked);
            page.sample(&name, ("partition", &partition.name), nodes.into());
        }
    }
    let name = "slurm_partition_jobs_wait_part_node_limit";
    page.head(
        name,
        "Jobs that wait since the partition's limit of nodes is lower",
    );
    for partition in partitions {
        let shown = of(partition).flat_map(|group| &group.shown);
        let waiting = shown.filter(|shown| shown.reason == Some(Reason::PartitionNodeLimit));
        let jobs = waiting.map(|shown| shown.jobs).sum();
        page.sample(name, ("partition", &partition.name), jobs);
    }
}

/// `GET /metrics/partitions`.
pub(super) fn partitions(call: &mut Call<'_>) -> Outcome {
    let groups = load_counts(call)?;
    let mut ctx = call.context();
    let completing = call.ask(|client| {
        let completing = query::cluster(client, &mut ctx)?;
        query::not_withheld(&ctx, PrivateData::PARTITIONS)?;
        Ok(completing.into_iter().collect())
    })?;
    let all = sums(&groups, |group| &group.partition);
    let of_partition = |partition: &'_ PartitionConfig| {
        let counts = all.get(partition.name.as_str());
        counts.cloned().unwrap_or_default()
    };
    let of_jobs = ctx.partitions.iter();
    let of_jobs = of_jobs
        .map(|p| (p.name.as_str(), of_partition(p)))
        .collect();
    let mut page = MetricsPage::default();
    write_jobs(&mut page, "slurm_partition_", "partition", &of_jobs);
    write_waiting(&mut page, &groups, &ctx.partitions);
    let views = views(&ctx, &completing);
    let in_partitions: Vec<(&str, Vec<&NodeView<'_>>)> = ctx
        .partitions
        .iter()
        .map(|partition| {
            let names: HashSet<&str> = partition.nodes.iter().map(String::as_str).collect();
            let has = |view: &&NodeView<'_>| names.contains(view.node.config.name.as_str());
            (partition.name.as_str(), views.iter().filter(has).collect())
        })
        .collect();
    for (at, (name, help)) in NODES.iter().enumerate() {
        // Two are written otherwise there.
        let name = match *name {
            "_completing" => "_cg",
            "_noresp" => "_no_resp",
            "_reboot_req" => "_reboot_requested",
            other => other,
        };
        let name = format!("slurm_partition_nodes{name}");
        page.head(&name, help);
        for (partition, members) in &in_partitions {
            let mut counts = NodeCounts::default();
            members.iter().for_each(|view| counts.count(view));
            page.sample(&name, ("partition", partition), counts.0[at]);
        }
    }
    for (name, help, value) in OF_PARTITION {
        page.head(name, help);
        for (partition, members) in &in_partitions {
            let sum = members.iter().map(|view| value(view)).sum();
            page.sample(name, ("partition", partition), sum);
        }
    }
    page.one(
        "slurm_partitions",
        "Partitions",
        ctx.partitions.len() as u64,
    );
    Ok(page.0)
}

/// A counter of the controller.
type Counter = (&'static str, &'static str, fn(&Diag) -> u64);

const SCHEDULER: &[Counter] = &[
    (
        "slurm_backfilled_jobs",
        "Jobs that passed by others, since the controller started",
        |d| d.backfilled_ever,
    ),
    (
        "slurm_last_backfilled_jobs",
        "The same since counting began",
        |d| d.backfilled,
    ),
    (
        "slurm_backfilled_het_jobs",
        "Components of heterogeneous jobs among them",
        |d| d.backfilled_components,
    ),
    ("slurm_sdiag_jobs_submitted", "Jobs submitted", |d| {
        d.submitted
    }),
    ("slurm_sdiag_jobs_started", "Jobs started", |d| d.started),
    ("slurm_sdiag_jobs_completed", "Jobs completed", |d| {
        d.completed
    }),
    ("slurm_sdiag_jobs_canceled", "Jobs cancelled", |d| {
        d.cancelled
    }),
    ("slurm_sdiag_jobs_failed", "Jobs failed", |d| d.failed),
    ("slurm_sdiag_jobs_pending", "Jobs that wait", |d| d.pending),
    ("slurm_sdiag_jobs_running", "Jobs that run", |d| d.running),
    (
        "slurm_sdiag_job_states_ts",
        "When these were counted, seconds since 1970",
        |d| unix(d.now),
    ),
    ("slurm_schedule_cycle_cnt", "Passes of the scheduler", |d| {
        d.passes
    }),
    (
        "slurm_schedule_cycle_depth",
        "Jobs looked at in the last pass",
        |d| d.depth_last,
    ),
    (
        "slurm_schedule_cycle_last",
        "The last pass, microseconds",
        |d| d.pass_last_us,
    ),
    (
        "slurm_schedule_cycle_max",
        "The longest pass, microseconds",
        |d| d.pass_max_us,
    ),
    (
        "slurm_schedule_cycle_tot",
        "All passes, microseconds",
        |d| d.pass_total_us,
    ),
    (
        "slurm_sched_mean_cycle",
        "The mean pass, microseconds",
        |d| d.pass_total_us / d.passes.max(1),
    ),
    (
        "slurm_sched_mean_depth_cycle",
        "Jobs looked at in a pass",
        |d| d.depth_last,
    ),
    ("slurm_schedule_queue_len", "Jobs in the queue", |d| {
        d.pending
    }),
    ("slurm_server_thread_cnt", "Connections", |d| d.connections),
    (
        "slurm_slurmdbd_queue_size",
        "Events that accounting has not stored yet",
        |d| d.accounting_lag,
    ),
    (
        "slurm_sched_stats_timestamp",
        "When this was asked, seconds since 1970",
        |d| unix(d.now),
    ),
    (
        "slurm_last_proc_req_start",
        "Since when it is counted, seconds since 1970",
        |d| unix(d.since),
    ),
    ("muster_journal_commits", "Commits of the journal", |d| {
        d.commits
    }),
    ("muster_journal_events", "Events in them", |d| d.events),
    ("muster_messages_from_nodes", "Messages of agents", |d| {
        d.from_nodes
    }),
    ("muster_messages_to_nodes", "Messages to agents", |d| {
        d.to_nodes
    }),
];

/// Missing features, which are never counted: agents of Slurm's controller, backfilling as a pass of its own, limits of
/// a pass.
const NOTHING: &[&str] = &[
    "agent_cnt",
    "agent_queue_size",
    "agent_thread_cnt",
    "bf_active",
    "bf_cycle_cnt",
    "bf_cycle_last",
    "bf_cycle_max",
    "bf_cycle_tot",
    "bf_depth_mean",
    "bf_depth_tot",
    "bf_depth_try_tot",
    "bf_exit_end",
    "bf_exit_max_job_start",
    "bf_exit_max_job_test",
    "bf_exit_state_changed",
    "bf_exit_table_limit",
    "bf_exit_timeout",
    "bf_last_depth",
    "bf_last_depth_try",
    "bf_mean_cycle",
    "bf_mean_table_sz",
    "bf_queue_len",
    "bf_queue_len_mean",
    "bf_queue_len_tot",
    "bf_table_size",
    "bf_table_size_tot",
    "bf_try_depth_mean",
    "bf_when_last_cycle",
    "sched_exit_lic",
    "sched_exit_max_depth",
    "sched_exit_max_job_start",
    "sched_exit_rpc_cnt",
    "sched_exit_timeout",
    "sdiag_latency",
];

fn unix(at: muster_model::time::Timestamp) -> u64 {
    u64::try_from(at.unix_s()).unwrap_or(0)
}

/// `GET /metrics/scheduler`.
pub(super) fn scheduler(call: &mut Call<'_>) -> Outcome {
    let diag = call.ask(|client| query::diag(client, false))?;
    let mut page = MetricsPage::default();
    for (name, help, value) in SCHEDULER {
        page.one(name, help, value(&diag));
    }
    page.one(
        "slurm_sched_exit_end",
        "Passes that came to the end of the queue",
        diag.passes,
    );
    for name in NOTHING {
        page.one(
            &format!("slurm_{name}"),
            "Nothing that this counts is here",
            0,
        );
    }
    Ok(page.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::listing::fixture;
    use muster_model::job::{Hold, Job, JobState};
    use muster_model::job_counts::ShownCount;

    #[test]
    fn jobs_are_counted_by_state_and_arrays_by_task() {
        let jobs = fixture::jobs();
        let mut counts = JobCounts::default();
        jobs.jobs.iter().for_each(|job| counts.count(job));
        assert_eq!(counts.records, jobs.jobs.len() as u64);
        assert_eq!((counts.running, counts.started()), (4, 4));
        // The tasks of an array that wait have one record.
        assert!(counts.pending > counts.records - counts.running - counts.finished());
        assert_eq!((counts.held, counts.nodes), (1, 5));
        let group = |account: &str, partition: &str| JobCountGroup {
            user: "ada".to_owned(),
            account: account.to_owned(),
            partition: partition.to_owned(),
            counts: counts.clone(),
            ..JobCountGroup::default()
        };
        let groups = [group("a", "x"), group("a", "y"), group("b", "x")];
        let of = |sums: BTreeMap<&str, JobCounts>| -> Vec<(String, u64)> {
            let each = sums.into_iter();
            each.map(|(name, sum)| (name.to_owned(), sum.running))
                .collect()
        };
        let named = |pairs: &[(&str, u64)]| -> Vec<(String, u64)> {
            pairs
                .iter()
                .map(|(name, n)| ((*name).to_owned(), *n))
                .collect()
        };
        assert_eq!(of(sums(&groups, |g| &g.user)), named(&[("ada", 12)]));
        assert_eq!(
            of(sums(&groups, |g| &g.account)),
            named(&[("a", 8), ("b", 4)])
        );
        assert_eq!(
            of(sums(&groups, |g| &g.partition)),
            named(&[("x", 8), ("y", 4)])
        );
    }

    #[test]
    fn pending_jobs_say_how_many_nodes_they_ask_for() {
        let job = |min, max, hold| {
            let mut job = fixture::job(1, "j");
            fixture::ask(&mut job, |spec| {
                (spec.ask.min_nodes, spec.ask.max_nodes) = (min, max);
            });
            job.hold = hold;
            job
        };
        let held = job(5, None, Hold::User);
        let named = job(2, Some(4), Hold::None);
        let running = Job {
            state: JobState::Running,
            ..job(9, Some(9), Hold::None)
        };
        let mut group = JobCountGroup {
            partition: "p".to_owned(),
            shown: vec![ShownCount {
                reason: Some(Reason::PartitionNodeLimit),
                jobs: 7,
                ..ShownCount::default()
            }],
            ..JobCountGroup::default()
        };
        for job in [&held, &named, &running] {
            group.nodes_asked.count(job);
        }
        let [p, q] = ["p", "q"].map(PartitionConfig::named);
        let mut page = MetricsPage::default();
        write_waiting(&mut page, &[group], &[p, q]);
        for (name, of_p) in [
            ("min_job_nodes", 5),
            ("min_job_nodes_nohold", 2),
            ("max_job_nodes", 5),
            ("max_job_nodes_nohold", 4),
            ("wait_part_node_limit", 7),
        ] {
            for (partition, value) in [("p", of_p), ("q", 0)] {
                let line =
                    format!("slurm_partition_jobs_{name}{{partition=\"{partition}\"}} {value}\n");
                assert!(page.0.contains(&line), "{line}: {}", page.0);
            }
        }
    }

    #[test]
    fn labels_are_escaped() {
        let mut page = MetricsPage::default();
        page.sample("x", ("username", "a\"b\\c\n"), 1);
        assert_eq!(page.0, "x{username=\"a\\\"b\\\\c\\n\"} 1\n");
    }

    /// Where accounts are not enforced each held job could have one of its own, with a name of a kilobyte: 320 MB.
    #[test]
    fn accounts_with_samples_of_their_own_are_bounded() {
        let group = |number: u64| JobCountGroup {
            user: "ada".to_owned(),
            account: format!("{number:06}{}", "x".repeat(1000)),
            partition: "p".to_owned(),
            counts: JobCounts {
                records: number,
                ..JobCounts::default()
            },
            ..JobCountGroup::default()
        };
        let groups: Vec<JobCountGroup> = (1..=10_000).map(group).collect();
        let accounts = largest(&groups, |group| &group.account);
        assert_eq!(accounts.len(), NAMED_MAX + 1);
        assert!(accounts.keys().all(|name| name.len() <= NAME_BYTES_MAX));
        let records: u64 = accounts.values().map(|counts| counts.records).sum();
        assert_eq!(records, (1..=10_000).sum::<u64>());
        let most = "010000";
        assert!(accounts.keys().any(|name| name.starts_with(most)));
        assert_eq!(accounts[OTHERS].records, (1..=9_000).sum::<u64>());
        let mut page = MetricsPage::default();
        write_jobs(&mut page, "slurm_account_", "account", &accounts);
        assert!(page.0.len() < 8 << 20, "{}", page.0.len());
        assert_eq!(largest(&groups[..5], |group| &group.account).len(), 5);
    }
}
