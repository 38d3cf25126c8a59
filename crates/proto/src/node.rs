//! Node agents and the controller. The agent dials in with [`NodeHello`]; from then on each side sends its own
//! stream of messages: orders down, reports up, both in batches.
//!
//! Orders are idempotent by attempt number. Reports carry a sequence number and are repeated after a reconnection
//! until the controller acknowledges them, which it does once their events are durable.

use crate::cgroup::CgroupSettings;
use crate::frame::Message;
use crate::job_container::{ContainerSettings, SHARED_MEMORY};
use crate::preencoded::PreencodedAllocation;
use crate::version::Greeting;
use minicbor::bytes::ByteVec;
use minicbor::{Decode, Encode};
use muster_model::command::SignalScope;
use muster_model::effect::TerminateReason;
use muster_model::ids::{Attempt, BlobId, JobAttempt, JobId, StepNo};
use muster_model::job::{ArrayInfo, ArrayRole, ExitStatus, Step, StepEnd};
use muster_model::job_env::HetComponent;
use muster_model::limits::{HOSTLIST_BYTES_MAX, NOTE_BYTES_MAX, REQUEST_BYTES_MAX};
use muster_model::node::{NodeConfig, NodeInfo};
use muster_model::spec::JobSpec;
use muster_model::time::{TimeLimit, Timestamp};
use muster_model::validate::Validate;
use std::sync::Arc;

/// First message of an agent.
#[derive(Clone, Debug, PartialEq, Encode, Decode, Validate)]
pub struct NodeHello {
    /// `NodeName` it serves.
    #[n(0)]
    pub name: String,
    /// Its machine.
    #[n(1)]
    pub info: NodeInfo,
    /// Every job it knows, running or ended without acknowledgement, with its attempt.
    #[n(2)]
    pub present: Vec<JobAttempt>,
    /// The agent's public key for this connection (X25519). With it and its own the controller seals its orders.
    #[n(3)]
    pub key: ByteVec,
    /// The launcher's, likewise: orders have a second seal for it, as it does not trust the agent.
    #[n(4)]
    pub launcher_key: ByteVec,
    /// Configuration that a dynamic node (`slurmd -Z`) reports; used if the controller has none for it; its address is
    /// that from which the agent connects, if that is another host.
    #[n(5)]
    pub dynamic: Option<Box<NodeConfig>>,
}

/// The controller's answer to a [`NodeHello`].
#[derive(Clone, Debug, PartialEq, Encode, Decode, Validate)]
pub struct Welcome {
    /// The controller's public key (X25519). The launcher keeps the first it sees for a cluster name and refuses another.
    #[n(0)]
    pub public_key: ByteVec,
    /// Cluster name.
    #[n(1)]
    pub cluster: String,
    /// Which version the controller speaks.
    #[n(3)]
    pub greeting: Option<Greeting>,
}

/// Settings that reach nodes by the stream, so that no file need be the same everywhere. They come with the first
/// [`Orders`] of a connection, and with later ones when they have changed: they name programs that run as root.
#[derive(Clone, Debug, Default, PartialEq, Encode, Decode, Validate)]
pub struct NodeSettings {
    /// `KillWait`, seconds.
    #[n(0)]
    pub kill_wait_s: u32,
    /// `UnkillableStepTimeout`, seconds.
    #[n(1)]
    pub unkillable_timeout_s: u32,
    /// `JobFileAppend`.
    #[n(2)]
    pub append: bool,
    /// `TaskPlugin` has tasks bound to CPUs.
    #[n(3)]
    #[cbor(default)]
    pub bind_tasks: bool,
    /// `TaskPluginParam`.
    #[n(4)]
    #[cbor(default)]
    pub task_plugin_param: String,
    /// Path of slurm.conf, for `SLURM_CONF` in jobs.
    #[n(5)]
    pub conf_path: String,
    /// `PropagateResourceLimits`: RLIMIT_* numbers that are applied.
    #[n(6)]
    pub propagate_limits: Vec<u32>,
    /// Whether task logs go to `TmpFS`.
    #[n(7)]
    pub tmp_fs: String,
    /// `SLURM_WORKING_CLUSTER`: `name:addr:port:protocol:select`.
    #[n(8)]
    pub working_cluster: String,
    /// `MpiDefault`.
    #[n(9)]
    pub mpi_default: String,
    /// `Prolog`: programs run as root before a job, parted by commas; each may be a pattern.
    #[n(10)]
    pub prolog: Option<String>,
    /// `Epilog`: programs run as root after a job, likewise.
    #[n(11)]
    pub epilog: Option<String>,
    /// `TaskProlog`: run as the user before each task.
    #[n(12)]
    pub task_prolog: Option<String>,
    /// `TaskEpilog`: run as the user after each task.
    #[n(13)]
    pub task_epilog: Option<String>,
    /// mpi.conf.
    #[n(14)]
    #[cbor(default)]
    pub mpi: MpiSettings,
    /// `PrologTimeout`, else `PrologEpilogTimeout`: seconds after which the prolog is killed and counts as failed.
    #[n(15)]
    pub prolog_timeout_s: Option<u32>,
    /// `EpilogTimeout`, else `PrologEpilogTimeout`: seconds after which the epilog is killed and counts as failed.
    #[n(16)]
    pub epilog_timeout_s: Option<u32>,
    /// `UnkillableStepProgram`: run as root when processes of a job survive SIGKILL for `unkillable_timeout_s`.
    #[n(17)]
    pub unkillable_program: Option<String>,
    /// `HealthCheckProgram` and when it is run.
    #[n(18)]
    pub health_check: Option<HealthCheck>,
    /// `RebootProgram`.
    #[n(19)]
    pub reboot_program: Option<String>,
    /// `SLURM_TOPOLOGY_ADDR` of the node that gets this; empty where the network is flat.
    #[n(20)]
    #[cbor(default)]
    pub topology_addr: String,
    /// `SLURM_TOPOLOGY_ADDR_PATTERN`, likewise.
    #[n(21)]
    #[cbor(default)]
    pub topology_pattern: String,
    /// Sampling of the use of running jobs; absent: none (`JobAcctGatherType=jobacct_gather/none`).
    #[n(22)]
    pub sampling: Option<Sampling>,
    /// `CR_CORE_DEFAULT_DIST_BLOCK`: tasks fill one socket before the next where nothing else is said.
    #[n(23)]
    #[cbor(default)]
    pub block_sockets: bool,
    /// `TreeWidth`: how many nodes a node of a step passes messages on to.
    #[n(24)]
    #[cbor(default)]
    pub tree_width: u32,
    /// `PreemptParameters=suspend_grace_time`, seconds from TSTP to STOP for a job that is suspended; 0: STOP at once.
    #[n(26)]
    #[cbor(default)]
    pub suspend_grace_s: u32,
    /// `CpuBind` of nodes and partitions.
    #[n(25)]
    #[cbor(default)]
    pub cpu_bind: CpuBindDefaults,
    /// `MaxStepCount`: steps of one job; 0: Slurm's default.
    #[n(27)]
    #[cbor(default)]
    pub max_step_count: u32,
    /// `MaxTasksPerNode`: tasks of one step on one node; 0: Slurm's default.
    #[n(28)]
    #[cbor(default)]
    pub max_tasks_per_node: u32,
    /// Which configuration hosts without files are given; empty if they are given none.
    #[n(29)]
    #[cbor(default)]
    pub given_version: String,
    /// Settings of control groups; absent: none are used.
    #[n(30)]
    pub cgroups: Option<Box<CgroupSettings>>,
    /// Private directories of jobs: lines of job_container.conf, and for a node no more than its own.
    #[n(31)]
    #[cbor(default)]
    pub containers: Vec<ContainerSettings>,
    /// `PrologFlags=Serial`: one prolog or epilog at a time.
    #[n(32)]
    #[cbor(default)]
    pub serial_programs: bool,
    /// `job_tmpdir` of sge.conf: jobs of the Grid Engine commands have a temporary directory to themselves.
    #[n(33)]
    #[cbor(default)]
    pub job_tmp_dirs: bool,
    /// Everybody who reaches `SlurmdPort` gets metrics (`MetricsType=metrics/openmetrics` without `PrivateData`).
    #[n(34)]
    #[cbor(default)]
    pub has_metrics: bool,
}

impl NodeSettings {
    /// The directory on disk that a job has to itself.
    pub fn job_scratch(&self) -> Option<&str> {
        let dirs = self.containers.first().into_iter().flat_map(|c| &c.dirs);
        let mut on_disk = dirs.filter(|dir| *dir != SHARED_MEMORY);
        on_disk.next().map(String::as_str)
    }

    /// These settings on a node that has its configuration at `conf`: scripts without a directory are beside it. They stay as they are
    /// for a node of which that is not known.
    pub fn at(mut self, conf: &str) -> NodeSettings {
        let Some((directory, _)) = conf.rsplit_once('/') else {
            return self;
        };
        conf.clone_into(&mut self.conf_path);
        let scripts = [
            &mut self.prolog,
            &mut self.epilog,
            &mut self.task_prolog,
            &mut self.task_epilog,
        ];
        for script in scripts.into_iter().flatten() {
            let beside = |script: &str| match script.is_empty() || script.contains('/') {
                true => script.to_owned(),
                false => format!("{directory}/{script}"),
            };
            let scripts: Vec<String> = script.split(',').map(beside).collect();
            *script = scripts.join(",");
        }
        self
    }
}

/// Binding of tasks where their step does not set it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode, Validate)]
pub struct CpuBindDefaults {
    /// Hostlists and the `CpuBind` of their nodes: that of a job's nodes counts if it is the same for all.
    #[n(0)]
    #[valid(max_bytes = HOSTLIST_BYTES_MAX)]
    pub nodes: Vec<(String, String)>,
    /// Partitions and theirs, which counts if the nodes' does not.
    #[n(1)]
    pub partitions: Vec<(String, String)>,
}

/// `JobAcctGatherFrequency` and `JobAcctGatherParams`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode, Validate)]
pub struct Sampling {
    /// Seconds between samples; 0: none, unless a job asks for them.
    #[n(0)]
    pub interval_s: u32,
    /// The count of memory.
    #[n(1)]
    pub memory: MemoryCount,
    /// `OverMemoryKill`: a step that has more memory than it may is killed.
    #[n(2)]
    pub over_memory_kill: bool,
}

/// The pages of a process that count as its memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode, Validate)]
#[cbor(index_only)]
pub enum MemoryCount {
    /// Its resident set.
    #[default]
    #[n(0)]
    Resident,
    /// Without pages that it may share with others (`NoShared`).
    #[n(1)]
    Private,
    /// With its part of shared pages (`UsePss`).
    #[n(2)]
    Proportional,
}

/// A program that looks after a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode, Validate)]
pub struct HealthCheck {
    /// `HealthCheckProgram`.
    #[n(0)]
    pub program: String,
    /// `HealthCheckInterval`, seconds; 0: only when the agent has started.
    #[n(1)]
    pub interval_s: u32,
    /// `HealthCheckNodeState`, upper case; empty is any.
    #[n(2)]
    pub states: Vec<String>,
}

/// Settings of mpi.conf, as far as they have an effect.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode, Validate)]
pub struct MpiSettings {
    /// `PMIxCliTmpDirBase`.
    #[n(0)]
    pub tmp_base: Option<String>,
    /// `PMIxDirectConnEarly`.
    #[n(1)]
    pub early: bool,
    /// `PMIxShareServerTopology`.
    #[n(2)]
    pub share_topology: bool,
    /// `PMIxTimeout`, seconds.
    #[n(3)]
    pub timeout_s: u32,
    /// `PMIxEnv`, as `NAME=value`.
    #[n(4)]
    pub env: Vec<String>,
    /// `CrossMemoryAttach`: whether MPI libraries use it; absent: as the node has measured.
    #[n(5)]
    pub cross_memory: Option<bool>,
    /// `SkipAbsentFabrics`: Open MPI gets an option where there is no other network than TCP.
    #[n(6)]
    #[cbor(default)]
    pub skip_absent_fabrics: bool,
    /// `PMIxDirectConnUCX`.
    #[n(7)]
    #[cbor(default)]
    pub ucx: bool,
    /// `PMIxNetDevicesUCX`.
    #[n(8)]
    pub ucx_devices: Option<String>,
    /// `PMIxTlsUCX`.
    #[n(9)]
    pub ucx_transports: Option<String>,
    /// `CrowdedTimerSlack`: microseconds by which sleeps of ranks that outnumber the CPUs of a node may end late.
    #[n(10)]
    #[cbor(default)]
    pub crowded_slack_us: u32,
}

impl Default for MpiSettings {
    fn default() -> MpiSettings {
        MpiSettings {
            tmp_base: None,
            early: true,
            share_topology: true,
            timeout_s: 300,
            env: Vec::new(),
            cross_memory: None,
            skip_absent_fabrics: true,
            ucx: false,
            ucx_devices: None,
            ucx_transports: None,
            crowded_slack_us: 1000,
        }
    }
}

/// Controller to agent.
#[derive(Clone, Debug, PartialEq, Encode, Decode, Validate)]
pub enum ToNode {
    /// Orders, sealed: nobody else can have said this, and it is the next that was said on this connection.
    #[n(0)]
    Sealed {
        /// Encoded [`Orders`].
        #[n(0)]
        orders: ByteVec,
        /// Seal of the encoded orders for the agent.
        #[n(1)]
        seal: ByteVec,
        /// Seal of them for the launcher, to which the agent passes the orders on.
        #[n(2)]
        launcher_seal: ByteVec,
    },
    /// Reports up to this number are durable; the agent forgets them.
    #[n(1)]
    Ack(#[n(0)] u64),
    /// Are you there? Answered by [`ToCtld::Health`].
    #[n(2)]
    Ping,
    /// The controller is shutting down; with true the agent does too (jobs go on under the launcher).
    #[n(3)]
    Stop(#[n(0)] bool),
}

impl Message for ToNode {}

impl Message for Orders {}

/// A batch of orders for one node.
#[derive(Clone, Debug, PartialEq, Encode, Decode, Validate)]
pub struct Orders {
    /// The cluster that they are for: orders for another cluster or node are refused.
    #[n(0)]
    pub cluster: String,
    /// The node that they are for.
    #[n(1)]
    pub node: String,
    /// When they were sealed.
    #[n(2)]
    pub at: Timestamp,
    /// Scripts and contexts that later orders of this connection refer to and that were not sent on it before.
    #[n(3)]
    pub blobs: Vec<(BlobId, ByteVec)>,
    /// The orders, to be carried out in this sequence.
    #[n(4)]
    pub orders: Vec<Order>,
    /// Blobs that the node may forget.
    #[n(5)]
    pub drop_blobs: Vec<BlobId>,
    /// Settings from now on, if they are new.
    #[n(6)]
    pub settings: Option<Box<NodeSettings>>,
}

/// One order.
#[derive(Clone, Debug, PartialEq, Encode, Decode, Validate)]
pub enum Order {
    /// The node is part of this job from now on; on the first node of a batch job, start its script.
    #[n(0)]
    Launch(#[n(0)] Box<JobGrant>),
    /// End the job here and report `Released`.
    #[n(1)]
    Terminate {
        /// The job.
        #[n(0)]
        job: JobId,
        /// Which launch.
        #[n(1)]
        attempt: Attempt,
        /// KILL at once.
        #[n(2)]
        now: bool,
        /// For the message in the job's standard error.
        #[n(3)]
        why: TerminateReason,
    },
    /// Send a signal.
    #[n(2)]
    Signal {
        /// The job.
        #[n(0)]
        job: JobId,
        /// Which launch.
        #[n(1)]
        attempt: Attempt,
        /// One step.
        #[n(2)]
        step: Option<StepNo>,
        /// Signal number.
        #[n(3)]
        signal: u32,
        /// The recipient.
        #[n(4)]
        scope: SignalScope,
        /// The user who ends the step by it, for accounting.
        #[n(5)]
        cancelled_by: Option<u32>,
    },
    /// Run `RebootProgram`.
    #[n(3)]
    Reboot,
    /// A step may run for another time than it was started with; a node without a part of it ignores this.
    #[n(200)]
    StepLimit {
        /// The job.
        #[n(0)]
        job: JobId,
        /// Which launch.
        #[n(1)]
        attempt: Attempt,
        /// The step.
        #[n(2)]
        step: StepNo,
        /// Counted from the step's start.
        #[n(3)]
        limit: TimeLimit,
    },
    /// A line for the standard error of the batch script.
    #[n(201)]
    Notify {
        /// The job.
        #[n(0)]
        job: JobId,
        /// Which launch.
        #[n(1)]
        attempt: Attempt,
        /// The line.
        #[n(2)]
        text: String,
    },
}

/// A job's right to a share of a node.
#[derive(Clone, Debug, PartialEq, Encode, Decode, Validate)]
pub struct JobGrant {
    /// The job.
    #[n(0)]
    pub job: JobId,
    /// Which launch.
    #[n(1)]
    pub attempt: Attempt,
    /// The request.
    #[n(2)]
    #[cbor(with = "crate::preencoded::spec")]
    pub spec: Arc<JobSpec>,
    /// Its allocation, on all nodes.
    #[n(3)]
    pub alloc: PreencodedAllocation,
    /// This node's position in the allocation; 0 leads.
    #[n(4)]
    pub position: u32,
    /// Its part in an array.
    #[n(5)]
    pub array: ArrayRole,
    /// The array.
    #[n(6)]
    pub array_info: Option<ArrayInfo>,
    /// When it started.
    #[n(7)]
    pub start_time: Timestamp,
    /// Its limit.
    #[n(8)]
    pub time_limit: TimeLimit,
    /// `SLURM_RESTART_COUNT`.
    #[n(9)]
    pub restarts: u32,
    /// Agents of all its nodes, in the order of the allocation; of the first alone in the message to another.
    #[n(10)]
    pub addresses: Vec<String>,
    /// Key by which agents of this job, and its owner's srun, know each other.
    #[n(11)]
    pub key: ByteVec,
    /// Account, as listings show it.
    #[n(12)]
    pub account: String,
    /// QOS, as listings show it.
    #[n(13)]
    pub qos: String,
    /// Number that the first step gets; steps of an earlier attempt keep theirs.
    #[n(14)]
    pub next_step: u32,
    /// The components of the heterogeneous job that it is one of; empty for others.
    #[n(15)]
    #[cbor(default)]
    pub components: Vec<HetComponent>,
    /// Number of times that it lost nodes while it ran.
    #[n(16)]
    #[cbor(default)]
    pub resizes: u32,
    /// For a component of a heterogeneous job: the key by which numbers of steps are proved, the same for all
    /// components.
    #[n(17)]
    pub het_key: Option<ByteVec>,
}

/// Agent to controller.
#[derive(Clone, Debug, PartialEq, Encode, Decode, Validate)]
pub enum ToCtld {
    /// The reports, numbered.
    #[n(0)]
    Reports(#[n(0)] Vec<NumberedReport>),
    /// Load average over a minute times 100, and free memory in MiB.
    #[n(1)]
    Health {
        /// Load.
        #[n(0)]
        load_centi: u32,
        /// Memory.
        #[n(1)]
        free_mib: u64,
        /// The result of applying the configuration that the controller gives a node without files, if it is new, and at
        /// first on each connection: why the newest is not applied; empty: it is.
        #[n(2)]
        configuration: Option<String>,
    },
}

/// Agents and commands connect to one socket, so their frames have the same bound.
impl Message for ToCtld {
    const BYTES_MAX: usize = REQUEST_BYTES_MAX;
}

/// A report and its number on this node; numbers ascend over the agent's whole life, restarts included.
#[derive(Clone, Debug, PartialEq, Encode, Decode, Validate)]
pub struct NumberedReport {
    /// The number.
    #[n(0)]
    pub seq: u64,
    /// The job it is about.
    #[n(1)]
    pub job: JobId,
    /// Which launch.
    #[n(2)]
    pub attempt: Attempt,
    /// The report.
    #[n(3)]
    pub report: Report,
}

/// Something that happened to a job on a node.
#[derive(Clone, Debug, PartialEq, Encode, Decode, Validate)]
#[valid(max_bytes = NOTE_BYTES_MAX)]
pub enum Report {
    /// The batch script ended.
    #[n(0)]
    BatchEnded {
        /// Its status.
        #[n(0)]
        exit: ExitStatus,
        /// By the out-of-memory killer.
        #[n(1)]
        oom: bool,
        /// The `batch` step's end.
        #[n(2)]
        end: Box<StepEnd>,
    },
    /// Nothing of it is left here.
    #[n(1)]
    Released,
    /// It could not be started.
    #[n(2)]
    LaunchFailed {
        /// Why.
        #[n(0)]
        error: String,
        /// The node's fault, not the job's.
        #[n(1)]
        node_fault: bool,
        /// The site's prolog failed.
        #[n(2)]
        #[cbor(default)]
        prolog: bool,
        /// It lacked processes, descriptors or room, for longer than it was tried again.
        #[n(3)]
        #[cbor(default)]
        lack: bool,
    },
    /// The node has no process of the launch, and does not know how it ended.
    #[n(3)]
    Vanished,
    /// A step began (reported by the first node of the job).
    #[n(4)]
    StepStarted(#[n(0)] Box<Step>),
    /// A step ended.
    #[n(5)]
    StepEnded {
        /// The step.
        #[n(0)]
        step: StepNo,
        /// End of the step.
        #[n(1)]
        end: Box<StepEnd>,
    },
    /// Its end went wrong in a way that makes the node unfit for others; `Released` may still follow.
    #[n(6)]
    NodeFault {
        /// The error.
        #[n(0)]
        error: String,
    },
}
