//! Nodes: their configuration, their reports, and their state.

use crate::binding::BindDefault;
use crate::cpuset::CpuSet;
use crate::gpu_parts::{GresEntry, PartsOfGpus};
use crate::ids::{JobId, NodeIdx};
use crate::job::{GpuEnv, GresShare};
use crate::node_host::{FutureHost, NodeHost};
use crate::node_state::{BaseState, InitialState, NodeState, ServiceState, StateFlag};
use crate::power::Power;
use crate::time::Timestamp;
use crate::validate::Validate;
use minicbor::{Decode, Encode};

/// A node's line in the configuration.
#[derive(Clone, Debug, Default, PartialEq, Encode, Decode, Validate)]
pub struct NodeConfig {
    /// `NodeName`.
    #[n(0)]
    pub name: String,
    /// `NodeHostname`.
    #[n(1)]
    pub hostname: String,
    /// `NodeAddr`.
    #[n(2)]
    pub addr: String,
    /// `Port`.
    #[n(3)]
    pub port: u32,
    /// `CPUs`: schedulable CPUs.
    #[n(4)]
    pub cpus: u32,
    /// `Boards`.
    #[n(5)]
    pub boards: u32,
    /// Sockets over all boards.
    #[n(6)]
    pub sockets: u32,
    /// `CoresPerSocket`.
    #[n(7)]
    pub cores_per_socket: u32,
    /// `ThreadsPerCore`.
    #[n(8)]
    pub threads_per_core: u32,
    /// `RealMemory`, MiB.
    #[n(9)]
    pub memory_mib: u64,
    /// `TmpDisk`, MiB.
    #[n(10)]
    pub tmp_disk_mib: u64,
    /// `Features`.
    #[n(11)]
    pub features: Vec<String>,
    /// `Gres`, with instance counts.
    #[n(12)]
    pub gres: Vec<GresConfig>,
    /// `Weight`: lower is used first.
    #[n(13)]
    pub weight: u32,
    /// `State=` of the line.
    #[n(14)]
    pub state: InitialState,
    /// `Reason=` of the line.
    #[n(15)]
    pub reason: Option<String>,
    /// CPUs that jobs do not get (`CoreSpecCount`, `CpuSpecList`).
    #[n(16)]
    #[cbor(default)]
    pub spec_cpus: CpuSet,
    /// `MemSpecLimit`, MiB that jobs do not get.
    #[n(17)]
    #[cbor(default)]
    pub spec_mib: u64,
    /// With true it is never powered down because it idles (`SuspendExcNodes`, `SuspendExcParts`).
    #[n(18)]
    pub stays_up: Option<bool>,
    /// `CpuBind`: how tasks are bound whose steps do not say, where all nodes of the job have the same.
    #[n(19)]
    pub cpu_bind: Option<BindDefault>,
    /// It is in no file: `scontrol create NodeName=` made it, or its agent registered with `slurmd -Z`.
    #[n(20)]
    #[cbor(default)]
    pub dynamic: bool,
}

impl NodeConfig {
    /// CPUs that jobs may get.
    pub fn job_cpus(&self) -> CpuSet {
        let mut cpus = CpuSet::first(self.cpus);
        cpus.subtract(&self.spec_cpus);
        cpus
    }

    /// Memory that jobs may get, MiB.
    pub fn job_mib(&self) -> u64 {
        self.memory_mib.saturating_sub(self.spec_mib)
    }

    /// Host in this configuration.
    pub fn host(&self) -> NodeHost {
        NodeHost {
            hostname: self.hostname.clone(),
            addr: self.addr.clone(),
            port: self.port,
        }
    }

    /// Has it say this of its host.
    pub fn set_host(&mut self, host: &NodeHost) {
        self.hostname.clone_from(&host.hostname);
        self.addr.clone_from(&host.addr);
        self.port = host.port;
    }

    /// Whether it is such a machine as a host is, and has the feature that is asked for.
    pub fn is_like(&self, asked: &FutureHost) -> bool {
        let has = |feature: &String| self.features.contains(feature);
        self.sockets == asked.sockets
            && self.cores_per_socket == asked.cores_per_socket
            && self.threads_per_core == asked.threads_per_core
            && asked.feature.as_ref().is_none_or(has)
    }
}

/// The last `count` cores of a node with these CPUs, sockets and cores in each, or as many of their threads: those of
/// the last socket first, then of the socket before it, and so on round. One core stays.
pub fn last_cpus((cpus, sockets, cores): (u32, u32, u32), count: u32, threads: bool) -> CpuSet {
    let (sockets, cores) = (sockets.max(1), cores.max(1));
    let all = sockets.saturating_mul(cores);
    let width = (cpus / all).max(1);
    let order = (0..cores)
        .rev()
        .flat_map(|core| (0..sockets).rev().map(move |s| s * cores + core));
    let kept = order.take(all.saturating_sub(1) as usize);
    let cpus_of = |core: u32| (core * width..(core + 1) * width).rev();
    if threads {
        kept.flat_map(cpus_of).take(count as usize).collect()
    } else {
        kept.take(count as usize).flat_map(cpus_of).collect()
    }
}

/// A generic resource of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode, Validate)]
pub struct GresConfig {
    /// `gpu`.
    #[n(0)]
    pub name: String,
    /// Type, if the configuration gives one.
    #[n(1)]
    pub kind: Option<String>,
    /// Number of instances.
    #[n(2)]
    pub count: u64,
    /// Device files by instance, when gres.conf names them.
    #[n(3)]
    pub files: Vec<String>,
    /// CPUs next to each instance (`Cores`); empty where the configuration does not say.
    #[n(4)]
    #[cbor(default)]
    pub near: Vec<CpuSet>,
    /// Which variables tell programs of them, if they are GPUs.
    #[n(5)]
    #[cbor(default)]
    pub env: GpuEnv,
    /// Set if they are parts of the node's GPUs (`mps`, `shard`).
    #[n(6)]
    pub parts: Option<PartsOfGpus>,
    /// They are never used up by jobs (`no_consume`).
    #[n(7)]
    #[cbor(default)]
    pub no_consume: bool,
    /// Links of each instance to all devices of that name, in their order (`Links`); empty where none are given.
    #[n(8)]
    #[cbor(default)]
    pub links: Vec<Vec<i32>>,
    /// Identifiers of the instances (`ResourceMap`), of which several may have the same; empty where they are only numbered.
    #[n(9)]
    #[cbor(default)]
    pub labels: Vec<String>,
}

impl GresConfig {
    /// Its settings for sharing of GPUs.
    pub fn entry(&self) -> GresEntry<'_> {
        GresEntry {
            name: &self.name,
            count: self.count,
            parts: self.parts.as_ref(),
        }
    }
}

/// A node as the cluster knows it.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
pub struct Node {
    /// Its place in the table.
    #[n(0)]
    pub idx: NodeIdx,
    /// Its configuration.
    #[n(1)]
    pub config: NodeConfig,
    /// The last registration of its agent.
    #[n(2)]
    pub report: Option<NodeInfo>,
    /// Whether its agent is connected and its registration was accepted.
    #[n(3)]
    pub link: NodeLink,
    /// Set DOWN by an administrator, the configuration or the system.
    #[n(4)]
    pub down: bool,
    /// Takes no new jobs.
    #[n(5)]
    pub drain: bool,
    /// Set FAIL by an administrator.
    #[n(6)]
    pub fail: bool,
    /// Why it is down or drained.
    #[n(7)]
    pub reason: Option<NodeReason>,
    /// CPUs that no job holds.
    #[n(8)]
    pub free_cpus: CpuSet,
    /// Memory that jobs hold, MiB.
    #[n(9)]
    pub used_mib: u64,
    /// Jobs that hold resources here, with whether they are completing.
    #[n(10)]
    pub jobs: Vec<JobId>,
    /// A job holds it alone.
    #[n(11)]
    pub exclusive: bool,
    /// When a job last ended here.
    #[n(12)]
    pub last_busy: Option<Timestamp>,
    /// Launches that failed here one after another, for the circuit breaker.
    #[n(13)]
    pub launch_failures: u32,
    /// Devices that jobs hold: for each entry of `config.gres`, the instances in use.
    #[n(14)]
    pub used_gres: Vec<CpuSet>,
    /// No longer in the configuration; kept while jobs refer to it.
    #[n(15)]
    pub removed: bool,
    /// `scontrol update nodename= comment=`.
    #[n(16)]
    pub comment: Option<String>,
    /// It is to be rebooted, or is being.
    #[n(17)]
    #[cbor(default)]
    pub reboot: Option<Reboot>,
    /// CPUs that several jobs have: the first set those that at least two have, the next three, and so on.
    #[n(19)]
    #[cbor(default)]
    pub shared_cpus: Vec<CpuSet>,
    /// Jobs that have it alone and are not stopped; more than one only when one of them was ordered to go on beside
    /// another. `exclusive` is whether there are any.
    #[n(20)]
    #[cbor(default)]
    pub alone: u32,
    /// Jobs that have it for their user alone.
    #[n(21)]
    #[cbor(default)]
    pub alone_by_user: u32,
    /// That user's uid.
    #[n(22)]
    #[cbor(default)]
    pub only_user: Option<u32>,
    /// Jobs here that are stopped.
    #[n(23)]
    #[cbor(default)]
    pub stopped: u32,
    /// Where it is in power saving; absent: it is up.
    #[n(18)]
    pub power: Option<Power>,
    /// It is in state FUTURE, and out of service as long.
    #[n(24)]
    #[cbor(default)]
    pub future: bool,
    /// Host in its line of slurm.conf, if `slurmd -F` has taken it for another (DYNAMIC_FUTURE).
    #[n(25)]
    pub line_host: Option<NodeHost>,
    /// Jobs that have it for their label alone.
    #[n(26)]
    #[cbor(default)]
    pub alone_by_label: u32,
    /// The label.
    #[n(27)]
    pub mcs_label: Option<String>,
}

impl Node {
    /// A node that was just added to the configuration.
    pub fn new(idx: NodeIdx, config: &NodeConfig, at: Timestamp) -> Node {
        let reason = config.reason.clone();
        let mut node = Node {
            idx,
            config: config.clone(),
            report: None,
            link: NodeLink::Never,
            down: false,
            drain: false,
            fail: false,
            reason: None,
            free_cpus: config.job_cpus(),
            used_mib: 0,
            jobs: Vec::new(),
            exclusive: false,
            last_busy: None,
            launch_failures: 0,
            used_gres: vec![CpuSet::default(); config.gres.len()],
            removed: false,
            reboot: None,
            comment: None,
            shared_cpus: Vec::new(),
            alone: 0,
            alone_by_user: 0,
            only_user: None,
            stopped: 0,
            power: (config.state == InitialState::Cloud).then_some(Power::Down),
            future: config.state == InitialState::Future,
            line_host: None,
            alone_by_label: 0,
            mcs_label: None,
        };
        match config.state {
            InitialState::Down | InitialState::Future => node.down = true,
            InitialState::Drain => node.drain = true,
            InitialState::Fail => node.fail = true,
            InitialState::Unknown | InitialState::Cloud => {}
        }
        if (node.down || node.drain || node.fail) && !node.future {
            node.reason = Some(NodeReason {
                text: reason.unwrap_or_else(|| {
                    format!("State={} in the configuration", config.state.name())
                }),
                uid: 0,
                since: at,
            });
        }
        node
    }

    /// Whether jobs may be placed on it now.
    pub fn is_usable(&self) -> bool {
        let rebooting = self.reboot.as_ref().is_some_and(|r| r.issued.is_some());
        let there = match self.power {
            None => self.link == NodeLink::Up,
            Some(power) => power.is_powered_down(),
        };
        there && !self.down && !self.drain && !self.fail && !self.removed && !rebooting
    }

    /// Memory that no job holds, MiB.
    pub fn unheld_mib(&self) -> u64 {
        self.config.job_mib().saturating_sub(self.used_mib)
    }

    /// The entry of `config.gres` (and of `used_gres`) that a share is taken from.
    pub fn gres_slot(&self, share: &GresShare) -> Option<usize> {
        let entries = &self.config.gres;
        entries
            .iter()
            .position(|g| g.name == share.name && g.kind == share.kind)
            .or_else(|| match share.kind {
                None => entries.iter().position(|g| g.name == share.name),
                Some(_) => None,
            })
    }

    /// As above, of devices that are used up by their holders.
    pub fn used_up_slot(&self, share: &GresShare) -> Option<usize> {
        let slot = self.gres_slot(share)?;
        (!self.config.gres[slot].no_consume).then_some(slot)
    }

    /// Whether it takes jobs.
    pub fn service(&self) -> ServiceState {
        ServiceState {
            down: self.down,
            drain: self.drain,
            fail: self.fail,
        }
    }

    /// Its state: `completing`, whether a job that holds it is; `reserved`, whether a reservation has it now, with true one
    /// for maintenance.
    pub fn state(&self, completing: bool, reserved: Option<bool>) -> NodeState {
        let is_reboot_issued = self.reboot.as_ref().map(|r| r.issued.is_some());
        let is_silent = self.link != NodeLink::Up && !self.future && self.power.is_none();
        let conditions = [
            (reserved == Some(true), StateFlag::Maintenance),
            (reserved.is_some(), StateFlag::Reserved),
            (self.drain, StateFlag::Drain),
            (completing, StateFlag::Completing),
            (is_silent, StateFlag::NotResponding),
            (self.fail, StateFlag::Fail),
            (is_reboot_issued == Some(false), StateFlag::RebootRequested),
            (is_reboot_issued == Some(true), StateFlag::RebootIssued),
            (self.config.state == InitialState::Cloud, StateFlag::Cloud),
            (self.line_host.is_some(), StateFlag::DynamicFuture),
            (self.config.dynamic, StateFlag::DynamicNorm),
        ];
        let set = conditions.into_iter().filter(|(holds, _)| *holds);
        let power = self.power.map(Power::flag);
        NodeState::new(self.base_state(), set.map(|(_, flag)| flag).chain(power))
    }

    fn base_state(&self) -> BaseState {
        let cpus = self.config.job_cpus().len();
        let used = cpus.saturating_sub(self.free_cpus.len());
        if self.future {
            BaseState::Future
        } else if self.down {
            BaseState::Down
        } else if used > 0 && (used >= cpus || self.exclusive) {
            BaseState::Allocated
        } else if used > 0 {
            BaseState::Mixed
        } else if self.link == NodeLink::Never && self.power.is_none() {
            BaseState::Unknown
        } else {
            BaseState::Idle
        }
    }

    /// Whether it is powered down or up, and would be brought up for a job.
    pub fn is_powered_down(&self) -> bool {
        self.power.is_some_and(Power::is_powered_down)
    }
}

/// `scontrol reboot`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct Reboot {
    /// When `RebootProgram` was ordered; absent while jobs run.
    #[n(0)]
    pub issued: Option<Timestamp>,
    /// It was drained for it, and goes back into service with it.
    #[n(1)]
    pub drained: bool,
    /// `nextstate=DOWN`: it stays out of service afterwards.
    #[n(2)]
    pub down_after: bool,
}

/// The connection to a node's agent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub enum NodeLink {
    /// It has not registered since the cluster was made.
    #[default]
    #[n(0)]
    Never,
    /// Connected.
    #[n(1)]
    Up,
    /// Lost at this time; DOWN when `SlurmdTimeout` passes.
    #[n(2)]
    Lost(#[n(0)] Timestamp),
}

/// Why a node is not in use.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct NodeReason {
    /// The text.
    #[n(0)]
    pub text: String,
    /// The user who set it, or `root` for the system.
    #[n(1)]
    pub uid: u32,
    /// Since when.
    #[n(2)]
    pub since: Timestamp,
}

/// The registration of a node: its hardware.
#[derive(Clone, Debug, Default, PartialEq, Encode, Decode, Validate)]
pub struct NodeInfo {
    /// `uname -m`.
    #[n(0)]
    pub arch: String,
    /// `uname -s -r -v`, as `scontrol show node` prints after `OS=`.
    #[n(1)]
    pub os: String,
    /// Boot id; a new one means that everything that ran is gone.
    #[n(2)]
    pub boot_id: String,
    /// When the machine booted.
    #[n(3)]
    pub boot_time: Timestamp,
    /// When the agent started.
    #[n(4)]
    pub agent_start: Timestamp,
    /// CPUs the machine has.
    #[n(5)]
    pub cpus: u32,
    /// Memory, MiB.
    #[n(6)]
    pub memory_mib: u64,
    /// Free memory, MiB, at the last health report.
    #[n(7)]
    pub free_mib: u64,
    /// Load average over a minute, times 100.
    #[n(8)]
    pub load_centi: u32,
    /// Where the agent listens: `unix:/path` or `host:port`.
    #[n(9)]
    pub address: String,
    /// Muster's version there.
    #[n(10)]
    pub version: String,
    /// The machine's host name.
    #[n(11)]
    pub hostname: String,
    /// NUMA domains of the machine; absent if it does not tell, or if the node's CPUs are not the machine's.
    #[n(12)]
    pub numa_domains: Option<u32>,
    /// Whether ranks may copy from each other's memory there, as `scontrol show node` prints it; absent if unknown.
    #[n(13)]
    pub cross_memory: Option<String>,
    /// Distances between these NUMA domains as the firmware tells them, row by row; 10 is a domain to itself. Empty if
    /// they are not known.
    #[n(14)]
    #[cbor(default)]
    pub numa_distances: Vec<u32>,
    /// Abilities of control groups for jobs there, as `scontrol show node` prints them; absent if unknown.
    #[n(15)]
    pub control_groups: Option<String>,
    /// By what the controller knows that it is this node, as `scontrol show node` prints it; absent on the controller's own host,
    /// where the kernel says so. It is the controller that fills it in.
    #[n(16)]
    pub trusted_by: Option<String>,
}
