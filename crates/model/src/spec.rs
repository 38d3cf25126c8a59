//! A user's request: the job specification that sbatch, srun and salloc submit. It never changes after submission
//! except through [`crate::job::JobChange`]; everything the system decides is in [`crate::job::Job`].

use crate::cron::CronEntry;
use crate::environment::Environment;
use crate::ids::{BlobId, JobId};
use crate::index_set::IndexSet;
use crate::job_class::JobClass;
use crate::limits::{
    ARGUMENT_BYTES_MAX, CONTEXT_BYTES_MAX, DEPENDENCY_TERMS_MAX, HOSTLIST_BYTES_MAX,
    NOTE_BYTES_MAX, SIGNAL_MAX, SUBMIT_LINE_BYTES_MAX,
};
use crate::mail::MailOptions;
use crate::task_range::TaskRange;
use crate::time::{TimeLimit, Timestamp};
use crate::topology::SwitchAsk;
use crate::validate::Validate;
use minicbor::{Decode, Encode};

/// A job as it was submitted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Encode, Decode, Validate)]
pub struct JobSpec {
    /// `--job-name`.
    #[n(0)]
    pub name: String,
    /// User that the job runs as. Set by the controller from the authenticated identity, never trusted from the client.
    #[n(1)]
    pub owner: Owner,
    /// `--account`; the association's default when absent.
    #[n(2)]
    pub account: Option<String>,
    /// `--qos`.
    #[n(3)]
    pub qos: Option<String>,
    /// `--partition`, in the order given; the default partition when empty.
    #[n(4)]
    pub partitions: Vec<String>,
    /// Whether it has a script of its own or is an allocation that `srun` or `salloc` holds.
    #[n(5)]
    pub kind: JobKind,
    /// The batch script's text.
    #[n(6)]
    pub script: Option<BlobId>,
    /// Environment, limits and umask of the submitter: an encoded [`ExecContext`].
    #[n(7)]
    pub context: Option<BlobId>,
    /// Arguments after the script's name; for an allocation, the command.
    #[n(8)]
    #[valid(max_bytes = ARGUMENT_BYTES_MAX)]
    pub argv: Vec<String>,
    /// `Command` of `scontrol show job`: the script's path; empty for `--wrap` and standard input.
    #[n(9)]
    pub command: String,
    /// `--chdir`, or where the command was called.
    #[n(10)]
    pub work_dir: String,
    /// `--input`, `--output`, `--error`: patterns, not expanded.
    #[n(11)]
    pub stdio: StdioSpec,
    /// The whole command line, for accounting.
    #[n(12)]
    #[valid(max_bytes = SUBMIT_LINE_BYTES_MAX)]
    pub submit_line: String,
    /// Host the submission came from (`SLURM_SUBMIT_HOST`, `AllocNode`).
    #[n(13)]
    pub submit_host: String,
    /// Session id of the submitting shell (`AllocNode:Sid`).
    #[n(14)]
    pub submit_sid: u32,
    /// Nodes, tasks, CPUs, memory, devices.
    #[n(15)]
    pub ask: ResourceAsk,
    /// `--time`; the partition's default when absent.
    #[n(16)]
    pub time_limit: Option<TimeLimit>,
    /// `--time-min`.
    #[n(17)]
    pub time_min: Option<TimeLimit>,
    /// `--begin`.
    #[n(18)]
    pub begin: Option<Timestamp>,
    /// `--deadline`.
    #[n(19)]
    pub deadline: Option<Timestamp>,
    /// `--hold`.
    #[n(20)]
    pub hold: bool,
    /// `--priority`.
    #[n(21)]
    pub priority: Option<u32>,
    /// `--nice`.
    #[n(22)]
    pub nice: i32,
    /// `--requeue`, `--no-requeue`; the cluster's `JobRequeue` when absent.
    #[n(23)]
    pub requeue: Option<bool>,
    /// `--dependency`.
    #[n(24)]
    pub dependency: Dependency,
    /// `--array`.
    #[n(25)]
    pub array: Option<ArraySpec>,
    /// `--signal`.
    #[n(26)]
    pub warn_signal: Option<WarnSignal>,
    /// `--comment`.
    #[n(27)]
    pub comment: Option<String>,
    /// `--wckey`.
    #[n(28)]
    pub wckey: Option<String>,
    /// `--kill-on-invalid-dep`; the cluster's setting when absent.
    #[n(29)]
    pub kill_on_invalid_dep: Option<bool>,
    /// `--no-kill`: a lost node does not end the job.
    #[n(30)]
    pub no_kill: bool,
    /// `--immediate`: refuse unless the job can start within this many seconds.
    #[n(31)]
    pub immediate_s: Option<u32>,
    /// `--mail-type` and `--mail-user`, if one of them was given.
    #[n(32)]
    pub mail: Option<MailOptions>,
    /// Environment variables that were set for the job by options such as `--export`, kept for listings.
    #[n(33)]
    pub export: Option<String>,
    /// `--licenses`.
    #[n(34)]
    pub licenses: Option<String>,
    /// `--reservation`.
    #[n(35)]
    pub reservation: Option<String>,
    /// `--admin-comment`, `--extra`, `--mcs-label`, `--network`, and other options that are stored and shown only.
    #[n(36)]
    pub shown: Vec<(String, String)>,
    /// `--wait-all-nodes`.
    #[n(37)]
    pub wait_all_nodes: bool,
    /// `scontrol update SiteFactor=`.
    #[n(39)]
    #[cbor(default)]
    pub site_factor: i32,
    /// An interactive allocation: its holder is notified of its start and end.
    #[n(38)]
    pub interactive: bool,
    /// Its entry in the crontab of its owner. Set by the controller, never trusted from the client.
    #[n(40)]
    pub cron: Option<Box<CronEntry>>,
    /// `--class`.
    #[n(41)]
    pub class: Option<Box<JobClass>>,
    /// Part of the nice value that `scontrol top` of other jobs has added. Set by the controller, never trusted from
    /// the client.
    #[n(42)]
    #[cbor(default)]
    pub nice_of_top: u32,
    /// `--requeue=expedite`: comes back to the queue before all others, where the site allows it.
    #[n(43)]
    #[cbor(default)]
    pub expedite: bool,
}

impl JobSpec {
    /// The account that the job is booked on: who names none has one of the own name, as there are no associations.
    pub fn account_name(&self) -> &str {
        self.account.as_deref().unwrap_or(&self.owner.user)
    }

    /// The reservations that it asks for: any of them will do.
    pub fn reservations(&self) -> impl Iterator<Item = &str> {
        let names = self.reservation.as_deref().unwrap_or_default();
        names.split(',').filter(|name| !name.is_empty())
    }

    /// The quality of service that the job has: `normal` if none is named.
    pub fn qos_name(&self) -> &str {
        self.qos.as_deref().unwrap_or("normal")
    }
}

/// Key in [`JobSpec::shown`] of the QOS that an operator gave a job though its owner may not use it.
pub const GRANTED_QOS: &str = "granted-qos";

impl JobSpec {
    /// Whether an operator gave the job its QOS.
    pub fn has_granted_qos(&self) -> bool {
        let own = self.shown.iter().find(|(key, _)| key == GRANTED_QOS);
        own.is_some_and(|(_, name)| name == self.qos_name())
    }
}

/// The identity that a job runs under.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Encode, Decode, Validate)]
pub struct Owner {
    /// User id.
    #[n(0)]
    pub uid: u32,
    /// Primary group id at submission.
    #[n(1)]
    pub gid: u32,
    /// User name as the controller resolved it; the number when there is none.
    #[n(2)]
    pub user: String,
    /// Group name, likewise.
    #[n(3)]
    pub group: String,
}

/// The kind of a job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Encode, Decode, Validate)]
#[cbor(index_only)]
pub enum JobKind {
    /// `sbatch`: a script that the first node runs.
    #[default]
    #[n(0)]
    Batch,
    /// `srun` outside an allocation, `salloc`: held by a client.
    #[n(1)]
    Allocation,
}

/// State that a process inherits from the shell that submitted it. Stored once per distinct content.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode, Validate)]
pub struct ExecContext {
    /// In the order of the submitter.
    #[n(0)]
    #[valid(max_bytes = CONTEXT_BYTES_MAX)]
    pub environment: Environment,
    /// File mode creation mask.
    #[n(1)]
    pub umask: u32,
    /// Soft limits that travel with it.
    #[n(2)]
    #[valid(max_items = 64)]
    pub soft_limits: Vec<SoftLimit>,
}

/// Soft limit of a resource (getrlimit(2)).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode, Validate)]
pub struct SoftLimit {
    /// `RLIMIT_*` number.
    #[n(0)]
    pub resource: u32,
    /// `u64::MAX` is unlimited.
    #[n(1)]
    pub value: u64,
}

impl SoftLimit {
    /// The limit of a resource.
    pub fn new(resource: u32, value: u64) -> SoftLimit {
        SoftLimit { resource, value }
    }
}

impl ExecContext {
    /// It as a submission carries it.
    pub fn encoded(&self) -> Vec<u8> {
        minicbor::to_vec(self).expect("writing to memory cannot fail")
    }
}

/// Files of a batch script or of a step, as patterns of sbatch(1) "filename pattern".
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Encode, Decode, Validate)]
#[valid(max_bytes = NOTE_BYTES_MAX)]
pub struct StdioSpec {
    /// `--input`.
    #[n(0)]
    pub stdin: Option<String>,
    /// `--output`.
    #[n(1)]
    pub stdout: Option<String>,
    /// `--error`.
    #[n(2)]
    pub stderr: Option<String>,
    /// `--open-mode=append` (true) or `truncate` (false); the cluster's `JobFileAppend` when absent.
    #[n(3)]
    pub append: Option<bool>,
}

impl StdioSpec {
    /// Whether the job's name is part of a file's (`%x`, also `%5x`).
    pub fn has_job_name(&self) -> bool {
        let files = [&self.stdin, &self.stdout, &self.stderr];
        let named = |pattern: &String| {
            pattern.split('%').skip(1).any(|rest| {
                rest.trim_start_matches(|c: char| c.is_ascii_digit())
                    .starts_with('x')
            })
        };
        files.into_iter().flatten().any(named)
    }
}

/// Memory asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Encode, Decode, Validate)]
pub enum MemoryAsk {
    /// The partition's or cluster's default (`DefMemPerNode`, `DefMemPerCPU`), else all that a node has.
    #[default]
    #[n(0)]
    Default,
    /// `--mem`, in MiB; 0 means all of each node.
    #[n(1)]
    PerNode(#[n(0)] u64),
    /// `--mem-per-cpu`, in MiB.
    #[n(2)]
    PerCpu(#[n(0)] u64),
}

/// Jobs that may share the nodes of a job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Encode, Decode, Validate)]
#[cbor(index_only)]
pub enum Sharing {
    /// As the partition says.
    #[default]
    #[n(0)]
    Default,
    /// `--exclusive`: whole nodes.
    #[n(1)]
    Exclusive,
    /// `--exclusive=user`.
    #[n(2)]
    ExclusiveUser,
    /// `--oversubscribe`.
    #[n(3)]
    Oversubscribe,
    /// `--exclusive=mcs`: jobs of the same label.
    #[n(4)]
    ExclusiveMcs,
}

/// A countable device or named resource: `--gres=gpu:a100:2`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Encode, Decode, Validate)]
pub struct GresAsk {
    /// `gpu`.
    #[n(0)]
    pub name: String,
    /// `a100`.
    #[n(1)]
    pub kind: Option<String>,
    /// Number of devices: per node, or per unit by which the list counts that it is in.
    #[n(2)]
    pub count: u64,
}

/// Devices that are counted by other units than nodes, and resources counted by GPU.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Encode, Decode, Validate)]
pub struct DeviceAsk {
    /// `--gpus`: of the whole job.
    #[n(0)]
    pub per_job: Vec<GresAsk>,
    /// `--gpus-per-socket`.
    #[n(1)]
    pub per_socket: Vec<GresAsk>,
    /// `--gpus-per-task`, `--tres-per-task`.
    #[n(2)]
    pub per_task: Vec<GresAsk>,
    /// `--cpus-per-gpu`.
    #[n(3)]
    pub cpus_per_gpu: Option<u32>,
    /// `--mem-per-gpu`, MiB.
    #[n(4)]
    pub mib_per_gpu: Option<u64>,
    /// `--ntasks-per-gpu`.
    #[n(5)]
    pub ntasks_per_gpu: Option<u32>,
    /// `--gres-flags`.
    #[n(6)]
    pub binding: DeviceBinding,
}

/// `--gres-flags`: how devices and CPUs go together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Encode, Decode, Validate)]
#[cbor(index_only)]
pub enum DeviceBinding {
    /// Next to each other where that can be.
    #[default]
    #[n(0)]
    Preferred,
    /// `enforce-binding`: no CPUs but those next to the devices.
    #[n(1)]
    Enforced,
    /// `disable-binding`: any.
    #[n(2)]
    Disabled,
}

/// The devices that `--gpus` and its kin count.
pub const GPU: &str = "gpu";

/// As many tasks on a core as it has threads, whatever the site says (`--hint=multithread`).
pub const TASKS_PER_CORE_ANY: u32 = 65_535;

static NO_DEVICES: DeviceAsk = DeviceAsk {
    per_job: Vec::new(),
    per_socket: Vec::new(),
    per_task: Vec::new(),
    cpus_per_gpu: None,
    mib_per_gpu: None,
    ntasks_per_gpu: None,
    binding: DeviceBinding::Preferred,
};

/// Nodes, tasks, CPUs, memory and devices asked for. Jobs with equal asks are of one shape.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Encode, Decode, Validate)]
pub struct ResourceAsk {
    /// Least number of nodes (`-N min`), at least 1.
    #[n(0)]
    pub min_nodes: u32,
    /// Most nodes (`-N min-max`); absent: as many as the tasks need.
    #[n(1)]
    pub max_nodes: Option<u32>,
    /// `-n`; absent: one per node (or per `ntasks_per_node`).
    #[n(2)]
    pub ntasks: Option<u32>,
    /// `-c`.
    #[n(3)]
    pub cpus_per_task: Option<u32>,
    /// `--ntasks-per-node`.
    #[n(4)]
    pub ntasks_per_node: Option<u32>,
    /// `--ntasks-per-socket`.
    #[n(5)]
    pub ntasks_per_socket: Option<u32>,
    /// `--ntasks-per-core`; [`TASKS_PER_CORE_ANY`] where every thread may have one.
    #[n(6)]
    pub ntasks_per_core: Option<u32>,
    /// `--mincpus`.
    #[n(7)]
    pub min_cpus_per_node: Option<u32>,
    /// `--mem`, `--mem-per-cpu`.
    #[n(8)]
    pub memory: MemoryAsk,
    /// `--tmp`, in MiB.
    #[n(9)]
    pub tmp_disk_mib: u64,
    /// `--gres`, `--gpus-per-node`.
    #[n(10)]
    pub gres: Vec<GresAsk>,
    /// `--constraint`, as text.
    #[n(11)]
    pub constraint: Option<String>,
    /// `--nodelist`, as a hostlist; all of these nodes must be in the allocation.
    #[n(12)]
    #[valid(max_bytes = HOSTLIST_BYTES_MAX)]
    pub nodelist: Option<String>,
    /// `--exclude`, as a hostlist.
    #[n(13)]
    #[valid(max_bytes = HOSTLIST_BYTES_MAX)]
    pub exclude: Option<String>,
    /// `--exclusive`, `--oversubscribe`.
    #[n(14)]
    pub sharing: Sharing,
    /// `--contiguous`.
    #[n(15)]
    pub contiguous: bool,
    /// `--sockets-per-node`.
    #[n(16)]
    pub sockets_per_node: Option<u32>,
    /// `--cores-per-socket`.
    #[n(17)]
    pub cores_per_socket: Option<u32>,
    /// `--threads-per-core`.
    #[n(18)]
    pub threads_per_core: Option<u32>,
    /// `--core-spec`: cores of each node that the system keeps, in place of the node's own number.
    #[n(19)]
    pub core_spec: Option<u32>,
    /// `--overcommit`: one CPU per node is enough, however many tasks.
    #[n(20)]
    pub overcommit: bool,
    /// `--distribution`, as text.
    #[n(21)]
    pub distribution: Option<String>,
    /// `--switches=count[@time]`: count and seconds.
    #[n(22)]
    pub switches: Option<SwitchAsk>,
    /// `--spread-job`.
    #[n(23)]
    pub spread: bool,
    /// `--use-min-nodes`.
    #[n(24)]
    pub use_min_nodes: bool,
    /// Whether the user gave `-N`, so that `SLURM_NNODES`-like output can tell a request from a result.
    #[n(25)]
    pub nodes_set: bool,
    /// `--prefer`: like `constraint`, where nodes that satisfy it are free.
    #[n(26)]
    #[cbor(default)]
    pub prefer: Option<String>,
    /// `--gpus` and its kin; `--gpus-per-node` is in `gres`.
    #[n(27)]
    pub devices: Option<Box<DeviceAsk>>,
    /// `--segment`: number of nodes that must be in one block of the network.
    #[n(28)]
    pub segment: Option<u32>,
    /// `--consolidate-segments`, `--spread-segments`.
    #[n(29)]
    #[cbor(default)]
    pub segments: Segments,
    /// `--thread-spec`.
    #[n(30)]
    pub thread_spec: Option<u32>,
    /// `--batch`: features of the node that runs the batch script.
    #[n(31)]
    pub batch: Option<String>,
    /// Numbers of tasks of which the greatest is taken that can be had; `ntasks` is the least.
    #[n(32)]
    pub task_range: Option<Box<TaskRange>>,
}

/// Where the segments of a job are to each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Encode, Decode, Validate)]
#[cbor(index_only)]
pub enum Segments {
    /// Anywhere; in few blocks where that can be.
    #[default]
    #[n(0)]
    Anywhere,
    /// In the smallest group of blocks that has room for all.
    #[n(1)]
    Together,
    /// Each in a block of its own.
    #[n(2)]
    Apart,
}

impl Default for ResourceAsk {
    fn default() -> ResourceAsk {
        ResourceAsk {
            min_nodes: 1,
            max_nodes: None,
            ntasks: None,
            cpus_per_task: None,
            ntasks_per_node: None,
            ntasks_per_socket: None,
            ntasks_per_core: None,
            min_cpus_per_node: None,
            memory: MemoryAsk::Default,
            tmp_disk_mib: 0,
            gres: Vec::new(),
            constraint: None,
            nodelist: None,
            exclude: None,
            sharing: Sharing::Default,
            contiguous: false,
            sockets_per_node: None,
            cores_per_socket: None,
            threads_per_core: None,
            core_spec: None,
            overcommit: false,
            distribution: None,
            switches: None,
            spread: false,
            use_min_nodes: false,
            nodes_set: false,
            prefer: None,
            devices: None,
            segment: None,
            segments: Segments::Anywhere,
            thread_spec: None,
            batch: None,
            task_range: None,
        }
    }
}

impl ResourceAsk {
    /// `--ntasks-per-core` as a number, where the job bounds it.
    pub fn ntasks_per_core_bound(&self) -> Option<u32> {
        self.ntasks_per_core.filter(|n| *n < TASKS_PER_CORE_ANY)
    }

    /// Tasks: as asked for, else per node times least nodes.
    pub fn task_count(&self) -> u32 {
        self.ntasks
            .unwrap_or_else(|| {
                self.min_nodes
                    .saturating_mul(self.ntasks_per_node.unwrap_or(1))
            })
            .max(1)
    }

    /// Most tasks that it may be given.
    pub fn most_tasks(&self) -> u32 {
        let range = self.task_range.as_ref();
        range.map_or_else(|| self.task_count(), |range| range.most())
    }

    /// CPUs of one task, at least 1.
    pub fn cpus_of_task(&self) -> u32 {
        self.cpus_per_task.unwrap_or(1).max(1)
    }

    /// Least CPUs of the whole job, as `squeue %C` shows for a pending job.
    pub fn min_cpus(&self) -> u32 {
        let tasks = if self.overcommit {
            self.min_nodes
        } else {
            self.task_count().saturating_mul(self.cpus_of_task())
        };
        let per_node = self.min_cpus_per_node.unwrap_or(1).max(1);
        tasks
            .max(self.min_nodes.saturating_mul(per_node))
            .max(self.cpus_by_gpu())
    }

    /// Most CPUs that its tasks come to, as [`ResourceAsk::min_cpus`] has the least.
    pub fn most_cpus(&self) -> u32 {
        let tasks = match (&self.task_range, self.overcommit) {
            (Some(range), false) => range.most().saturating_mul(self.cpus_of_task()),
            (Some(_), true) | (None, _) => 0,
        };
        tasks.max(self.min_cpus())
    }

    fn cpus_by_gpu(&self) -> u32 {
        let Some(each) = self.devices().cpus_per_gpu else {
            return 0;
        };
        let all = self.gres_of_job(self.min_nodes);
        let gpus = all.iter().filter(|g| g.name == GPU).map(|g| g.count);
        let gpus = gpus.fold(0, u64::saturating_add);
        u32::try_from(gpus.saturating_mul(u64::from(each))).unwrap_or(u32::MAX)
    }

    /// Devices that are not counted by node, and resources counted by GPU.
    pub fn devices(&self) -> &DeviceAsk {
        self.devices.as_deref().unwrap_or(&NO_DEVICES)
    }

    /// Devices of the whole job on this number of nodes.
    pub fn gres_of_job(&self, nodes: u32) -> Vec<GresAsk> {
        let devices = self.devices();
        let sockets = self.sockets_per_node.unwrap_or(1).max(1);
        let lists = [
            (&self.gres, nodes),
            (&devices.per_job, 1),
            (&devices.per_task, self.task_count()),
            (&devices.per_socket, nodes.saturating_mul(sockets)),
        ];
        let mut all: Vec<GresAsk> = Vec::new();
        for (list, times) in lists {
            for gres in list {
                let count = gres.count.saturating_mul(u64::from(times));
                // Entries counted in two ways are the same devices.
                match all
                    .iter_mut()
                    .find(|g| g.name == gres.name && g.kind == gres.kind)
                {
                    Some(known) => known.count = known.count.max(count),
                    None => all.push(GresAsk {
                        count,
                        ..gres.clone()
                    }),
                }
            }
        }
        all
    }

    /// All lists of devices that it asks for, whatever they are counted by.
    pub fn device_lists(&self) -> [&Vec<GresAsk>; 4] {
        let devices = self.devices();
        [
            &self.gres,
            &devices.per_job,
            &devices.per_task,
            &devices.per_socket,
        ]
    }

    /// Whether it asks for devices in any way.
    pub fn wants_devices(&self) -> bool {
        self.device_lists().iter().any(|list| !list.is_empty())
    }

    /// Whether it asks for GPUs in any way.
    pub fn wants_gpus(&self) -> bool {
        let mut all = self.device_lists().into_iter().flatten();
        all.any(|gres| gres.name == GPU && gres.count > 0)
    }
}

/// `--dependency`: all (`,`) or any (`?`) of these must hold before the job may start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Encode, Decode, Validate)]
pub struct Dependency {
    /// The conditions.
    #[n(0)]
    #[valid(max_items = DEPENDENCY_TERMS_MAX)]
    pub terms: Vec<DependencyTerm>,
    /// Whether one of them is enough (separated by `?`).
    #[n(1)]
    pub any: bool,
}

/// One condition of `--dependency`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Encode, Decode, Validate)]
pub enum DependencyTerm {
    /// A condition on another job or array task.
    #[n(0)]
    Job {
        /// The condition on it.
        #[n(0)]
        kind: DependencyKind,
        /// Which job.
        #[n(1)]
        job: JobId,
        /// Which task of an array; all of them when absent.
        #[n(2)]
        task: Option<u32>,
        /// `after:J+minutes`.
        #[n(3)]
        delay_minutes: u32,
    },
    /// `singleton`: no earlier job of this user with this name is left.
    #[n(1)]
    Singleton,
}

/// The condition of a dependency.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode, Validate)]
#[cbor(index_only)]
pub enum DependencyKind {
    /// Started or cancelled.
    #[n(0)]
    After,
    /// Ended in any way.
    #[n(1)]
    AfterAny,
    /// Ended with exit code 0.
    #[n(2)]
    AfterOk,
    /// Ended otherwise.
    #[n(3)]
    AfterNotOk,
    /// The array task with the same index ended with exit code 0.
    #[n(4)]
    AfterCorr,
}

/// `--array`: the indices, and how many may run at once.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Encode, Decode, Validate)]
pub struct ArraySpec {
    /// The indices.
    #[n(0)]
    pub indices: IndexSet,
    /// `%limit`.
    #[n(1)]
    pub throttle: Option<u32>,
}

/// `--signal=[{R|B}:]sig[@seconds]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode, Validate)]
pub struct WarnSignal {
    /// Signal number.
    #[n(0)]
    #[valid(min = 1, max = SIGNAL_MAX)]
    pub signal: u32,
    /// Seconds before the end, 60 by default.
    #[n(1)]
    pub before_s: u32,
    /// `B:`: only the batch shell gets it; otherwise the steps do and the shell does not.
    #[n(2)]
    pub batch_only: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_devices_than_there_are_numbers_are_counted() {
        let gpu = |kind: &str, count| GresAsk {
            name: GPU.to_owned(),
            kind: Some(kind.to_owned()),
            count,
        };
        let devices = DeviceAsk {
            per_socket: vec![gpu("a", u64::MAX), gpu("b", 1 << 46)],
            cpus_per_gpu: Some(3),
            ..DeviceAsk::default()
        };
        let ask = ResourceAsk {
            devices: Some(Box::new(devices)),
            ..ResourceAsk::default()
        };
        assert_eq!(ask.min_cpus(), u32::MAX);
    }
}
