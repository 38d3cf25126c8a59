//! Records of the cluster for libraries: each with the texts and numbers that listings show beside it. Nothing is formatted for a
//! terminal here, and nothing is hidden beyond what the controller withholds.

use crate::connect::{Client, ConnectError};
use crate::listing::context::Ctx;
use crate::listing::job::{JobRow, Stdio};
use crate::listing::node::NodeView;
use crate::listing::query::{self, Jobs};
use crate::listing::text::collect;
use crate::measure::{self, AgentQuestion, MESSAGE_TIMEOUT};
use muster_model::account_limits::TresAmount;
use muster_model::config::{ClusterConfig, PartitionConfig};
use muster_model::hostlist;
use muster_model::ids::{JobId, StepNo};
use muster_model::job::{Job, NodeShare, Step};
use muster_model::licenses::License;
use muster_model::node::Node;
use muster_model::node_state::NodeState;
use muster_model::private_data::PrivateData;
use muster_model::spec::MemoryAsk;
use muster_model::time::Timestamp;
use muster_proto::client::{JobFilter, ReservationsAnswer};
use muster_proto::step::AgentReply;
use std::collections::{BTreeMap, HashSet};

/// A job as listings show it, beside its record.
#[derive(Clone, Debug, Default)]
pub struct JobDetails {
    /// The number of the array that it is of; 0 if it is of none.
    pub array_job: u64,
    /// Its index in the array.
    pub array_task: Option<u32>,
    /// Indices that have not left the array yet, as `0-3,5%2`.
    pub array_tasks: String,
    /// Tasks of the array that may run at once.
    pub array_throttle: Option<u32>,
    /// Whether it waits.
    pub is_pending: bool,
    /// Node that leads its allocation.
    pub batch_host: Option<String>,
    /// Its program.
    pub command: Option<String>,
    /// Conditions that do not hold yet.
    pub dependency: Option<String>,
    /// When it started, or is expected to.
    pub start: Option<Timestamp>,
    /// When it ended, or is expected to.
    pub end: Option<Timestamp>,
    /// When the scheduler looked at it last.
    pub last_sched_eval: Option<Timestamp>,
    /// Seconds that it has run.
    pub run_time_s: i64,
    /// Nodes that it has, as an expression.
    pub nodes: String,
    /// Nodes on which it is expected to start.
    pub sched_nodes: Option<String>,
    /// Nodes that it has, or asks for.
    pub node_count: u32,
    /// CPUs that it has, or asks for.
    pub cpus: u64,
    /// Tasks that it has, or asks for.
    pub tasks: u32,
    /// CPUs of a node that it needs at least.
    pub min_cpus_per_node: u32,
    /// Memory asked for, with defaults applied.
    pub memory: MemoryAsk,
    /// The partition that it runs in, or all that it asks for.
    pub partition: String,
    /// `NO`, `YES`, `OK`, `USER`.
    pub over_subscribe: &'static str,
    /// Trackable resources that it asks for.
    pub tres_asked: String,
    /// Trackable resources that it has.
    pub tres: String,
    /// Requests by devices, and devices by other units, by the keys of `scontrol show job`.
    pub by_devices: BTreeMap<&'static str, String>,
    /// Standard input of the script.
    pub stdin: Option<String>,
    /// Its standard output.
    pub stdout: Option<String>,
    /// Its standard error.
    pub stderr: Option<String>,
    /// Its shares of nodes.
    pub shares: Vec<NodeShare>,
}

impl JobDetails {
    fn of(row: &JobRow<'_>, ctx: &Ctx) -> JobDetails {
        let text = |write: &dyn Fn(&mut String)| {
            let text = collect(write);
            Some(text).filter(|text| !text.is_empty() && text != "(null)")
        };
        JobDetails {
            array_job: if row.in_array() { row.base_id().0 } else { 0 },
            array_task: row.index(),
            array_tasks: match row.pending_indices() {
                Some(_) => collect(|out| row.write_indices(out, ctx)),
                None => String::new(),
            },
            array_throttle: row.throttle().filter(|_| row.in_array()),
            is_pending: row.is_pending(),
            batch_host: row.batch_host().map(str::to_owned),
            command: text(&|out| row.write_command(out)),
            dependency: text(&|out| row.write_dependency(out)),
            start: row.start(ctx),
            end: row.end(ctx),
            last_sched_eval: row.last_sched_eval(),
            run_time_s: row.run_time_s(ctx),
            nodes: row.nodes().into_owned(),
            sched_nodes: row.sched_nodes(ctx).map(str::to_owned),
            node_count: row.node_count(),
            cpus: row.cpus(),
            tasks: row.tasks(),
            min_cpus_per_node: row.min_cpus_per_node(),
            memory: row.memory(ctx),
            partition: collect(|out| row.write_partition(out)),
            over_subscribe: row.over_subscribe(ctx),
            tres_asked: collect(|out| row.write_tres_asked(out, ctx)),
            tres: match row.is_pending() {
                true => String::new(),
                false => collect(|out| row.write_tres(out, ctx)),
            },
            by_devices: row.by_devices().into_iter().collect(),
            stdin: row.stdio_path(Stdio::In),
            stdout: row.stdio_path(Stdio::Out),
            stderr: row.stdio_path(Stdio::Err),
            shares: row.shares().cloned().collect(),
        }
    }

    /// One of `by_devices`.
    pub fn by_device(&self, key: &str) -> Option<&str> {
        self.by_devices.get(key).map(String::as_str)
    }
}

/// Surroundings of a listing of jobs.
#[derive(Clone, Debug, Default)]
pub struct JobListing {
    /// The controller's time.
    pub now: Timestamp,
    /// The name of the cluster.
    pub cluster: String,
    /// Numbers asked for that name nothing.
    pub unknown: usize,
}

/// Looks at the jobs that a filter finds, of partitions that a listing of all hides as well.
///
/// # Errors
/// The controller cannot be asked.
pub fn for_each_job(
    client: &mut Client,
    filter: JobFilter,
    mut look: impl FnMut(&Job, JobDetails),
) -> Result<JobListing, ConnectError> {
    let mut ctx = Ctx::new(&client.endpoint.cluster);
    let Jobs {
        jobs,
        arrays,
        unknown,
    } = query::jobs(client, &mut ctx, filter)?;
    let all = Jobs {
        jobs,
        arrays,
        unknown,
    };
    for job in all.jobs.iter() {
        let row = JobRow::new(job, all.array_of(job));
        look(job, JobDetails::of(&row, &ctx));
    }
    Ok(JobListing {
        now: ctx.now,
        cluster: ctx.cluster.clone(),
        unknown: all.unknown.len(),
    })
}

/// A step as listings show it, beside its record.
#[derive(Clone, Debug, Default)]
pub struct StepDetails {
    /// Trackable resources that it has.
    pub tres: String,
}

impl StepDetails {
    /// Details of a step.
    pub fn of(step: &Step) -> StepDetails {
        let mut tres = format!("cpu={}", step.cpus);
        if step.memory_mib > 0 {
            tres.push_str(&format!(",mem={}M", step.memory_mib));
        }
        tres.push_str(&format!(",node={}", step.nodes));
        for TresAmount { name, amount } in &step.devices {
            tres.push_str(&format!(",{name}={amount}"));
        }
        StepDetails { tres }
    }
}

/// A process of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedProcess {
    /// The node that it runs on.
    pub node: String,
    /// Its number there.
    pub pid: u32,
    /// The step.
    pub step: StepNo,
}

/// Processes of a job's step, or of all its steps, as the agents of its nodes know them.
///
/// # Errors
/// The controller or an agent cannot be asked, or the job does not run.
pub fn step_processes(
    client: &mut Client,
    job: JobId,
    step: Option<StepNo>,
) -> Result<Vec<ListedProcess>, ConnectError> {
    let info = super::allocation_info(client, job)?;
    let nodes = measure::nodes_of(&info).collect();
    let answers = measure::ask_agents(nodes, AgentQuestion::Processes, MESSAGE_TIMEOUT);
    if let Some(failure) = measure::failures(&answers).into_iter().next() {
        return Err(ConnectError::Broken(std::io::Error::other(failure)));
    }
    let mut found = Vec::new();
    for answer in &answers {
        let reply = answer.reply.as_ref().ok().and_then(Option::as_ref);
        let Some(AgentReply::Processes(all)) = reply else {
            continue;
        };
        let own = all
            .iter()
            .filter(|own| step.is_none_or(|step| own.step == step));
        found.extend(own.map(|own| ListedProcess {
            node: answer.node.clone(),
            pid: own.pid,
            step: own.step,
        }));
    }
    Ok(found)
}

/// A node as listings show it, beside its record.
#[derive(Clone, Debug)]
pub struct NodeDetails {
    /// Its state.
    pub state: NodeState,
    /// CPUs that jobs may get.
    pub job_cpus: u32,
    /// CPUs that jobs have.
    pub used_cpus: u32,
    /// Devices, as `gpu:a100:2`.
    pub gres: Option<String>,
    /// Devices in use.
    pub gres_used: Option<String>,
    /// Trackable resources.
    pub tres: String,
    /// Trackable resources that jobs have.
    pub used_tres: String,
    /// Partitions that it is in.
    pub partitions: Vec<String>,
}

/// The nodes and partitions of the cluster.
#[derive(Debug)]
pub struct NodeListing {
    /// The controller's time.
    pub now: Timestamp,
    /// The name of the cluster.
    pub cluster: String,
    /// The nodes that there are, with how listings show each.
    pub nodes: Vec<Node>,
    /// For each of them.
    pub details: Vec<NodeDetails>,
    /// The partitions.
    pub partitions: Vec<PartitionConfig>,
    /// Settings.
    pub config: Option<ClusterConfig>,
}

/// The nodes and partitions of the cluster, with all that listings show.
///
/// # Errors
/// The controller cannot be asked, or `PrivateData` hides nodes.
pub fn nodes(client: &mut Client) -> Result<NodeListing, ConnectError> {
    let mut ctx = Ctx::new(&client.endpoint.cluster);
    let completing: HashSet<_> = query::cluster(client, &mut ctx)?.into_iter().collect();
    query::not_withheld(&ctx, PrivateData::NODES)?;
    let details = ctx.nodes.iter().map(|node| {
        let reserved = ctx.reserved.get(&node.idx).copied();
        let view = NodeView::new(node, completing.contains(&node.idx), reserved);
        let text = |write: &dyn Fn(&mut String)| {
            let text = collect(write);
            Some(text).filter(|text| !text.is_empty() && text != "(null)")
        };
        let of = |partition: &&PartitionConfig| partition.nodes.contains(&node.config.name);
        NodeDetails {
            state: view.state,
            job_cpus: view.job_cpus(),
            used_cpus: view.used_cpus(),
            gres: text(&|out| view.write_gres(out)),
            gres_used: text(&|out| view.write_gres_used(out)),
            tres: collect(|out| view.write_tres(out)),
            used_tres: collect(|out| view.write_used_tres(out)),
            partitions: (ctx.partitions.iter().filter(of))
                .map(|own| own.name.clone())
                .collect(),
        }
    });
    let details = details.collect();
    Ok(NodeListing {
        now: ctx.now,
        cluster: ctx.cluster.clone(),
        details,
        nodes: std::mem::take(&mut ctx.nodes),
        partitions: std::mem::take(&mut ctx.partitions),
        config: ctx.config.take(),
    })
}

/// Settings that decisions depend on.
///
/// # Errors
/// The controller cannot be asked.
pub fn settings(client: &mut Client) -> Result<ClusterConfig, ConnectError> {
    query::settings(client)
}

/// The licenses of the cluster.
///
/// # Errors
/// The controller cannot be asked.
pub fn licenses(client: &mut Client) -> Result<Vec<License>, ConnectError> {
    query::licenses(client)
}

/// Reservations that the user may see.
///
/// # Errors
/// The controller cannot be asked.
pub fn reservation_list(client: &mut Client) -> Result<ReservationsAnswer, ConnectError> {
    query::reservations(client)
}

/// A switch of the network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopologyRow {
    /// Its name.
    pub name: String,
    /// Number of switches between it and nodes, at most.
    pub level: u32,
    /// The speed of its links, as the configuration has it.
    pub link_speed: u32,
    /// Nodes below it.
    pub nodes: String,
    /// Switches directly below it.
    pub switches: String,
}

/// The switches of the network.
///
/// # Errors
/// The controller cannot be asked.
pub fn topology(client: &mut Client) -> Result<Vec<TopologyRow>, ConnectError> {
    let config = query::settings(client)?;
    let mut rows = Vec::new();
    for topology in &config.topologies {
        for (switch, place) in topology.switches.iter().zip(0u32..) {
            let name = |child: &u32| topology.switches.get(*child as usize).map(|own| &own.name);
            let children: Vec<&String> = switch.children.iter().filter_map(name).collect();
            rows.push(TopologyRow {
                name: switch.name.clone(),
                level: switch.level,
                link_speed: switch.link_speed,
                nodes: hostlist::compress_sorted(&topology.nodes_below(place)),
                switches: hostlist::compress(&children),
            });
        }
    }
    Ok(rows)
}
