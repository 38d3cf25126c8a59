//! Allocations of jobs: nodes and shares of them.

use super::shares;
use crate::account_limits::TresAmount;
use crate::cpuset::CpuSet;
use crate::gpu_parts::PartedGpu;
use crate::ids::NodeIdx;
use crate::licenses::LicenseCount;
use crate::limits::{HOSTLIST_BYTES_MAX, TEXT_BYTES_MAX};
use crate::time::Timestamp;
use crate::validate::Validate;
use minicbor::{Decode, Encode};
use std::collections::BTreeMap;

/// One, in millionths.
pub const MILLION: u64 = 1_000_000;

/// Resources given to a job.
#[derive(Clone, Debug, Default, PartialEq, Encode, Decode, Validate)]
pub struct Allocation {
    /// One entry per node, in node order; the first leads (runs the batch script and makes the steps).
    #[n(0)]
    #[cbor(with = "shares")]
    pub nodes: Vec<NodeShare>,
    /// Partition it was placed in.
    #[n(1)]
    pub partition: String,
    /// Whether the nodes are not shared with other jobs.
    #[n(2)]
    pub exclusive: bool,
    /// Node names as a hostlist, made once, shown often.
    #[n(3)]
    #[valid(max_bytes = HOSTLIST_BYTES_MAX)]
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
    /// Billing of an hour of it in the user's use (`TRESBillingWeights`, `UsageFactor`), in thousandths.
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
    pub licenses: Vec<LicenseCount>,
    /// `UsageFactor` of the QOS when it began, in millionths; absent is 1.
    #[n(11)]
    pub usage_factor_millionths: Option<u64>,
    /// It began while another waited before it in line.
    #[n(12)]
    #[cbor(default)]
    pub backfilled: bool,
    /// Billing of an hour of it by `TRESBillingWeights` alone, in thousandths.
    #[n(13)]
    pub billing_units_milli: Option<u64>,
    /// The CPUs that limits count, if these are not those that it has (`--core-spec`).
    #[n(14)]
    pub cpus_counted: Option<u64>,
    /// Only jobs of this label may be on its nodes (`MCSParameters`).
    #[n(15)]
    #[valid(max_bytes = TEXT_BYTES_MAX)]
    pub mcs_label: Option<String>,
}

impl Allocation {
    /// The part of its use that counts towards limits of use in the course of time, in millionths.
    pub fn use_counts_millionths(&self) -> u64 {
        self.usage_factor_millionths.unwrap_or(MILLION)
    }

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
#[derive(Clone, Debug, PartialEq, Encode, Decode, Validate)]
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
#[derive(Clone, Debug, Default, PartialEq, Encode, Decode, Validate)]
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
    /// Devices of the same name that the node has before those of this type: as users and programs number them, the
    /// first of these is that many.
    #[n(3)]
    #[cbor(default)]
    pub first: u32,
    /// CPUs next to each of them, in order; empty where that is not known.
    #[n(4)]
    #[cbor(default)]
    pub near: Vec<CpuSet>,
    /// Which variables tell programs of them, if they are GPUs.
    #[n(5)]
    #[cbor(default)]
    pub env: GpuEnv,
    /// GPUs that they are parts of, if they are.
    #[n(6)]
    #[cbor(default)]
    pub parted: Vec<PartedGpu>,
    /// Identifiers of each of them, in order; empty where they are only numbered.
    #[n(7)]
    #[cbor(default)]
    pub labels: Vec<String>,
}

/// Sums of devices by name, and by name and type: `gres/gpu`, `gres/gpu:a100`.
pub fn sum_devices<'d>(
    devices: impl Iterator<Item = (&'d str, Option<&'d str>, u64)>,
) -> Vec<(String, u64)> {
    let mut sums: BTreeMap<String, u64> = BTreeMap::new();
    for (name, kind, count) in devices {
        let by_kind = kind.map(|kind| format!("gres/{name}:{kind}"));
        for key in std::iter::once(format!("gres/{name}")).chain(by_kind) {
            let sum = sums.entry(key).or_default();
            *sum = sum.saturating_add(count);
        }
    }
    sums.into_iter().collect()
}

impl GresShare {
    /// Sums of shares over nodes, as [`sum_devices`] names them.
    pub fn sums<'s>(shares: impl Iterator<Item = &'s GresShare>) -> Vec<TresAmount> {
        let counts = shares.map(|share| {
            let count = u64::from(share.ids.len());
            (share.name.as_str(), share.kind.as_deref(), count)
        });
        let sums = sum_devices(counts).into_iter();
        sums.map(|(name, count)| TresAmount::new(name, count))
            .collect()
    }
}

/// `Flags` of gres.conf: the variables that tell programs which GPUs they have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Encode, Decode, Validate)]
#[cbor(transparent)]
pub struct GpuEnv(#[n(0)] pub u32);

impl GpuEnv {
    /// The flag of each variable. Without any of these flags all are set.
    pub const VARIABLES: [(&'static str, &'static str, u32); 4] = [
        ("nvidia_gpu_env", "CUDA_VISIBLE_DEVICES", 1),
        ("amd_gpu_env", "ROCR_VISIBLE_DEVICES", 2),
        ("intel_gpu_env", "ZE_AFFINITY_MASK", 4),
        ("opencl_env", "GPU_DEVICE_ORDINAL", 8),
    ];
    /// `no_gpu_env`.
    pub const NONE: GpuEnv = GpuEnv(1 << 31);

    /// Reads the flags; those that are about something else are passed over.
    pub fn from_flags<'a>(flags: impl Iterator<Item = &'a str>) -> GpuEnv {
        let mut env = GpuEnv::default();
        for flag in flags.map(str::to_ascii_lowercase) {
            if flag == "no_gpu_env" {
                return GpuEnv::NONE;
            }
            let known = GpuEnv::VARIABLES.iter().find(|(name, ..)| *name == flag);
            env.0 |= known.map_or(0, |(.., bit)| *bit);
        }
        env
    }

    /// The variables.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        let all = GpuEnv::VARIABLES.iter();
        all.filter(move |(.., bit)| self.0 == 0 || self.0 & bit != 0)
            .map(|(_, name, _)| *name)
    }
}

impl GresShare {
    /// Numbers of the GPUs of which these are parts, with how many they are and how many the GPU has.
    pub fn gpu_parts(&self) -> impl Iterator<Item = (u32, u32, u32)> + '_ {
        let taken = |p: &PartedGpu| {
            let all = p.first..p.first.saturating_add(p.count);
            let own = self.ids.iter().filter(|id| all.contains(id)).count();
            u32::try_from(own).unwrap_or(u32::MAX)
        };
        let all = self.parted.iter().map(move |p| (p.gpu, taken(p), p.count));
        all.filter(|(_, taken, _)| *taken > 0)
    }

    /// The instances, numbered over all types of the node, or as their identifiers say; of parts of GPUs, the GPUs.
    pub fn numbers(&self) -> impl Iterator<Item = u32> + '_ {
        let whole = self.ids.iter().filter(|_| self.parted.is_empty());
        let gpus = self.gpu_parts().map(|(gpu, ..)| gpu);
        let named = |at: usize| self.labels.get(at)?.parse().ok();
        let own = move |(at, id)| named(at).unwrap_or(self.first + id);
        whole.enumerate().map(own).chain(gpus)
    }

    /// Their identifiers, or numbers where there are none.
    pub fn names(&self) -> Vec<String> {
        match self.labels.is_empty() {
            true => self.numbers().map(|number| number.to_string()).collect(),
            false => self.labels.clone(),
        }
    }

    /// Takes over the parts of a share that are about some of its instances.
    pub fn keep_of(&mut self, whole: &GresShare) {
        let kept = |at: &(usize, u32)| self.ids.contains(at.1);
        let places: Vec<usize> = (whole.ids.iter().enumerate())
            .filter(kept)
            .map(|(at, _)| at)
            .collect();
        let near = places.iter().filter_map(|at| whole.near.get(*at)).cloned();
        let labels = places
            .iter()
            .filter_map(|at| whole.labels.get(*at))
            .cloned();
        (self.near, self.labels) = (near.collect(), labels.collect());
    }
}
