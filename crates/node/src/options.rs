//! The options of an agent at its start. Everything else comes from the controller.

use minicbor::{Decode, Encode};
use muster_channel::KeepAlive;
use muster_model::node::NodeConfig;
use muster_node_core::messages::MachineClaim;
use std::path::PathBuf;

/// Start parameters of a node's agent.
#[derive(Clone, Debug, Encode, Decode)]
pub struct AgentOptions {
    /// `NodeName` it serves.
    #[n(0)]
    pub name: String,
    /// `ClusterName` it belongs to; orders of another cluster are refused.
    #[n(1)]
    pub cluster: String,
    /// `NodeAddr`, or the host's name: MPI steps listen there if it is this machine's. Empty is nowhere.
    #[n(2)]
    pub address: String,
    /// The controller's Unix socket.
    #[n(3)]
    pub controller_socket: PathBuf,
    /// `SlurmdSpoolDir` of this node, absolute; made if missing. One agent per directory.
    #[n(4)]
    pub spool_dir: PathBuf,
    /// CPUs that the configuration claims, where they are to be reported instead of the machine's (emulated nodes).
    #[n(5)]
    pub claimed_cpus: Option<u32>,
    /// Sockets that the configuration claims; 0 when it says nothing.
    #[n(6)]
    pub claimed_sockets: u32,
    /// Other nodes of the configuration are on this machine too, so that none can bind tasks to its CPUs.
    #[n(7)]
    pub shared_machine: bool,
    /// Memory that the configuration claims, MiB, likewise.
    #[n(8)]
    pub claimed_memory_mib: Option<u64>,
    /// Executable that becomes the launcher when it is started under the name [`crate::LAUNCHER_NAME`]; this program's own
    /// when absent.
    #[n(9)]
    pub launcher_program: Option<PathBuf>,
    /// `SlurmdUser`: the account of the agent if slurmd runs as root. With root, or without a value, the agent has an
    /// account of its own.
    #[n(10)]
    pub slurmd_user: String,
    /// Where the controller is looked for if it is on another host.
    #[n(11)]
    #[cbor(default)]
    pub network: NetworkOptions,
    /// Path of slurm.conf; empty if there is none.
    #[n(12)]
    #[cbor(default)]
    pub conf: String,
    /// The command line, its name first, by which this program fetches the configuration from the controller again;
    /// empty on a node with configuration files of its own.
    #[n(13)]
    #[cbor(default)]
    pub fetch: Vec<String>,
    /// The node's description of itself, for nodes that are in no configuration file (`slurmd -Z`).
    #[n(14)]
    pub dynamic: Option<Box<NodeConfig>>,
    /// `SlurmdSpoolDir` as slurm.conf has it, with `%n` and `%h`: where agents of other nodes on this machine are.
    #[n(15)]
    #[cbor(default)]
    pub spool_pattern: String,
}

/// Settings by which an agent reaches a controller on another host.
#[derive(Clone, Debug, Default, Encode, Decode)]
pub struct NetworkOptions {
    /// Its addresses, each with a port, in the order in which they are tried; none if it is on this host.
    #[n(0)]
    pub controllers: Vec<String>,
    /// `AuthType`.
    #[n(1)]
    pub auth_type: Option<String>,
    /// `AuthInfo`.
    #[n(2)]
    pub auth_info: Option<String>,
    /// The number of `SlurmUser`, the only user who can use the credential.
    #[n(3)]
    pub receiver_uid: u32,
    /// `TCPTimeout`, seconds.
    #[n(4)]
    pub tcp_timeout_s: u32,
    /// `SlurmdPort`, at which other hosts reach this node's steps; none if there are no other hosts.
    #[n(5)]
    pub port: Option<u16>,
    /// The address and port to which they connect.
    #[n(6)]
    pub place: String,
    /// Where the cluster's key is, with auth/slurm: the directory of slurm.conf.
    #[n(7)]
    #[cbor(default)]
    pub key_dir: PathBuf,
    /// The directory of the node's own key, if it has one: `SlurmdSpoolDir`, or the directory that a host without
    /// slurm.conf uses.
    #[n(8)]
    #[cbor(default)]
    pub node_key: PathBuf,
    /// `DisableIPv4`: other hosts reach it by IPv6 alone.
    #[n(9)]
    #[cbor(default)]
    pub ipv6_only: bool,
    /// `keepalivetime`, seconds: when connections of other hosts are probed.
    #[n(10)]
    pub keep_alive_idle_s: Option<u32>,
    /// `keepaliveinterval`, seconds.
    #[n(11)]
    pub keep_alive_interval_s: Option<u32>,
    /// `keepaliveprobes`.
    #[n(12)]
    pub keep_alive_probes: Option<u32>,
    /// `disable_http`: requests of HTTP are not answered.
    #[n(13)]
    #[cbor(default)]
    pub without_http: bool,
}

impl NetworkOptions {
    /// Probes of connections from other hosts.
    pub(crate) fn keep_alive(&self) -> KeepAlive {
        KeepAlive {
            idle_s: self.keep_alive_idle_s,
            interval_s: self.keep_alive_interval_s,
            probes: self.keep_alive_probes,
        }
    }
}

impl AgentOptions {
    /// The configuration's statements about the machine's CPUs.
    pub(crate) fn claim(&self) -> MachineClaim {
        MachineClaim {
            cpus: self.claimed_cpus,
            sockets: self.claimed_sockets,
            shared: self.shared_machine,
        }
    }
}
