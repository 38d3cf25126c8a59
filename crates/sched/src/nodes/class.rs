//! Classes of equal nodes: the properties of a node that stay the same while its configuration
//! does.

use muster_model::cpuset::CpuSet;
use muster_model::gpu_parts::{self, GresEntry, PartsOfGpus};
use muster_model::job::GpuEnv;
use muster_model::node::last_cpus;
use std::borrow::Cow;
use std::ops::Range;

/// A position that does not exist.
pub(crate) const NOWHERE: u32 = u32::MAX;

/// One kind of nodes: all static properties that placement depends on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct NodeClass {
    /// Number of CPUs; jobs get those in `open`.
    pub(crate) cpus: u32,
    /// CPUs that are not reserved for the system.
    pub(crate) open: CpuSet,
    /// CPUs per granule: those of a socket with `CR_Socket`, of a core with `CR_Core`, else 1.
    pub(crate) granule: u32,
    /// Whether a job holds only the requested threads of cores that it uses exclusively (`CR_CPU`).
    pub(crate) by_thread: bool,
    pub(crate) threads_per_core: u32,
    pub(crate) cores_per_socket: u32,
    pub(crate) sockets: u32,
    /// NUMA domains of each socket.
    pub(crate) numa_per_socket: u32,
    /// Distances between all domains of the node, row by row; empty if they are unknown or all
    /// equal.
    pub(crate) distances: Vec<u32>,
    pub(crate) mib: u64,
    pub(crate) tmp_mib: u64,
    pub(crate) features: Vec<String>,
    pub(crate) gres: Vec<GresCount>,
    /// For each entry of `gres`, the CPUs next to each instance; empty if unknown.
    pub(crate) near: Vec<Vec<CpuSet>>,
    /// For each entry of `gres`, the variables by which programs learn of it.
    pub(crate) gpu_env: Vec<GpuEnv>,
    /// For each entry of `gres`, the GPUs that its instances are parts of; empty if there are none.
    pub(crate) parts: Vec<Option<PartsOfGpus>>,
    /// Entries of `gres` that are never used up (`no_consume`).
    pub(crate) no_consume: Vec<bool>,
    /// For each entry of `gres` and each instance, its links to all instances of that name; empty
    /// if unknown.
    pub(crate) links: Vec<Vec<Vec<i32>>>,
    /// For each entry of `gres`, the identifiers of its instances; empty if it has none.
    pub(crate) labels: Vec<Vec<String>>,
    /// Rule by which jobs get parts of GPUs.
    pub(crate) part_rule: PartRule,
}

impl NodeClass {
    /// CPUs that jobs may get, in whole granules.
    pub(crate) fn job_cpus(&self) -> u32 {
        whole_granules(&self.open, self.granule)
    }

    /// These CPUs and those that no other job can use while these are in use.
    pub(crate) fn kept_with(&self, cpus: &CpuSet) -> CpuSet {
        if !self.by_thread {
            return cpus.clone();
        }
        let core = |cpu: u32| cpu / self.granule * self.granule;
        let whole = cpus.iter().map(core).flat_map(|at| at..at + self.granule);
        whole.filter(|cpu| *cpu < self.cpus).collect()
    }

    /// CPUs that remain if the system reserves a number of the last cores, or threads.
    pub(crate) fn cpus_without(&self, count: u32, threads: bool) -> CpuSet {
        let mut cpus = CpuSet::first(self.cpus);
        let shape = (self.cpus, self.sockets, self.cores_per_socket);
        cpus.subtract(&last_cpus(shape, count, threads));
        cpus
    }
}

/// Generic resources of a name, and of a type if a type was given.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct GresCount {
    pub(crate) name: String,
    pub(crate) kind: Option<String>,
    pub(crate) count: u64,
}

impl GresCount {
    /// Whether the node's resource matches a request.
    pub(crate) fn serves(&self, name: &str, kind: Option<&str>) -> bool {
        self.name == name && (kind.is_none() || kind == self.kind.as_deref())
    }
}

/// Settings of `SelectTypeParameters` for parts of GPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct PartRule {
    /// A job may combine parts of several GPUs of a node (`MULTIPLE_SHARING_GRES_PJ`).
    pub(crate) several_gpus: bool,
    /// Take parts of the GPU with the most free parts instead of the fewest (`LL_SHARED_GRES`).
    pub(crate) least_loaded: bool,
}

/// CPUs whose whole granule is free.
#[inline]
pub(crate) fn whole_granules(free: &CpuSet, granule: u32) -> u32 {
    match granule {
        0 | 1 => free.len(),
        _ => granules_of(free, granule),
    }
}

fn granules_of(free: &CpuSet, granule: u32) -> u32 {
    let (mut whole, mut current, mut seen) = (0, None, 0);
    for cpu in free.iter() {
        if current != Some(cpu / granule) {
            (current, seen) = (Some(cpu / granule), 0);
        }
        seen += 1;
        if seen == granule {
            whole += granule;
        }
    }
    whole
}

/// Devices that are unavailable, given the devices that jobs use.
pub(crate) fn unavailable<'u>(class: &NodeClass, used: &'u [CpuSet]) -> Cow<'u, [CpuSet]> {
    if class.parts.is_empty() {
        return Cow::Borrowed(used);
    }
    let entries: Vec<GresEntry<'_>> = (class.gres.iter().zip(&class.parts))
        .map(|(gres, parts)| GresEntry {
            name: &gres.name,
            count: gres.count,
            parts: parts.as_ref(),
        })
        .collect();
    gpu_parts::unavailable(&entries, used)
}

/// The parts of GPUs of an entry, if a job must take them from one GPU.
pub(crate) fn parts_of(class: &NodeClass, entry: usize) -> Option<&PartsOfGpus> {
    class.parts.get(entry)?.as_ref()
}

/// Number of free instances of each entry.
pub(crate) fn gres_room(class: &NodeClass, used: &[CpuSet]) -> Vec<u32> {
    let used = unavailable(class, used);
    let all = class.gres.iter().enumerate();
    all.map(|(i, gres)| {
        let parts = parts_of(class, i).filter(|_| !class.part_rule.several_gpus);
        let Some(parts) = parts else {
            let count = u32::try_from(gres.count).unwrap_or(u32::MAX);
            return count.saturating_sub(used.get(i).map_or(0, CpuSet::len));
        };
        let free = parts.gpus().map(|(_, range)| free_in(range, used.get(i)));
        free.max().unwrap_or(0)
    })
    .collect()
}

fn free_in(range: Range<u32>, used: Option<&CpuSet>) -> u32 {
    let taken = |id: &u32| used.is_some_and(|used| used.contains(*id));
    let free = range.filter(|id| !taken(id)).count();
    u32::try_from(free).unwrap_or(u32::MAX)
}
