//! What a job has on the nodes that it was given.

use crate::cpuset::CpuSet;
use crate::ids::NodeIdx;
use crate::time::Timestamp;
use minicbor::{Decode, Encode};

/// Resources given to a job.
#[derive(Clone, Debug, Default, PartialEq, Encode, Decode)]
pub struct Allocation {
    /// One entry per node, in node order; the first leads (runs the batch script and makes the steps).
    #[n(0)]
    pub nodes: Vec<NodeShare>,
    /// Partition it was placed in.
    #[n(1)]
    pub partition: String,
    /// Whether the nodes are not shared with other jobs.
    #[n(2)]
    pub exclusive: bool,
    /// Node names as a hostlist, made once, shown often.
    #[n(3)]
    pub hostlist: String,
    /// Tasks over all nodes.
    #[n(4)]
    pub ntasks: u32,
    /// The reservation that it is in.
    #[n(5)]
    pub reservation: Option<String>,
    /// When the reservation ends it.
    #[n(6)]
    pub end_by: Option<Timestamp>,
    /// What an hour of it counts in the user's use (`TRESBillingWeights`, `UsageFactor`), in thousandths.
    #[n(7)]
    #[cbor(default)]
    pub billing_milli: u64,
    /// Jobs of its partition that may have each of its CPUs at once (`OverSubscribe`); 0: its CPUs are its own.
    #[n(8)]
    #[cbor(default)]
    pub sharers: u32,
    /// Only jobs of this uid may be on its nodes (`--exclusive=user`, `ExclusiveUser`).
    #[n(9)]
    #[cbor(default)]
    pub only_user: Option<u32>,
    /// Licenses that it holds: name and count.
    #[n(10)]
    #[cbor(default)]
    pub licenses: Vec<(String, u32)>,
}

impl Allocation {
    /// CPUs over all nodes.
    pub fn cpus(&self) -> u64 {
        self.nodes.iter().map(|n| u64::from(n.cpus.len())).sum()
    }

    /// MiB over all nodes.
    pub fn memory_mib(&self) -> u64 {
        self.nodes.iter().map(|n| n.memory_mib).sum()
    }
}

/// A job's share of one node.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
pub struct NodeShare {
    /// The node.
    #[n(0)]
    pub node: NodeIdx,
    /// Its name.
    #[n(1)]
    pub name: String,
    /// CPUs by index on the node.
    #[n(2)]
    pub cpus: CpuSet,
    /// Memory in MiB; 0 when memory is not a consumable resource.
    #[n(3)]
    pub memory_mib: u64,
    /// Tasks laid out on this node.
    #[n(4)]
    pub tasks: u32,
    /// Devices: name, kind, instance ids.
    #[n(5)]
    pub gres: Vec<GresShare>,
}

/// Instances of a generic resource given to a job on one node.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
pub struct GresShare {
    /// `gpu`.
    #[n(0)]
    pub name: String,
    /// `a100`, if the node's devices have a type.
    #[n(1)]
    pub kind: Option<String>,
    /// Indices of the instances.
    #[n(2)]
    pub ids: CpuSet,
}
