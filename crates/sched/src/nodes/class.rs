//! Classes of equal nodes: what does not change about a node while it is configured so.

use muster_model::cpuset::CpuSet;
use muster_model::gpu_parts::{self, Entry, PartsOfGpus};
use muster_model::job::GpuEnv;
use muster_model::node::last_cpus;
use std::borrow::Cow;
use std::ops::Range;

/// A position that does not exist.
pub(crate) const NOWHERE: u32 = u32::MAX;

/// Nodes of one kind: everything static that placement depends on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct NodeClass {
    /// CPUs by number: jobs get those of `open`.
    pub(crate) cpus: u32,
    /// CPUs that the system does not keep for itself.
    pub(crate) open: CpuSet,
    /// CPUs that are handed out together: those of a socket with `CR_Socket`, of a core with `CR_Core`, else 1.
    pub(crate) granule: u32,
    /// Of the cores that a job has alone it holds no more threads than it asks for (`CR_CPU`).
    pub(crate) by_thread: bool,
    pub(crate) threads_per_core: u32,
    pub(crate) cores_per_socket: u32,
    pub(crate) sockets: u32,
    /// NUMA domains of each socket.
    pub(crate) numa_per_socket: u32,
    /// Distances between all domains of the node, row by row; empty if they are not known or all equal.
    pub(crate) distances: Vec<u32>,
    pub(crate) mib: u64,
    pub(crate) tmp_mib: u64,
    pub(crate) features: Vec<String>,
    pub(crate) gres: Vec<GresCount>,
    /// CPUs next to each instance of each of them; empty where it is not known.
    pub(crate) near: Vec<Vec<CpuSet>>,
    /// The names by which programs know each of them.
    pub(crate) gpu_env: Vec<GpuEnv>,
    /// Which GPUs each of them are parts of; empty if none are.
    pub(crate) parts: Vec<Option<PartsOfGpus>>,
    /// Entries of `gres` that are never used up (`no_consume`).
    pub(crate) no_consume: Vec<bool>,
    /// For each of them, for each instance, its links to all of that name; empty where none are known.
    pub(crate) links: Vec<Vec<Vec<i32>>>,
    /// Identifiers of the instances of each of them; empty if they have none.
    pub(crate) labels: Vec<Vec<String>>,
    /// How parts of GPUs are given to jobs.
    pub(crate) part_rule: PartRule,
}

impl NodeClass {
    /// CPUs that jobs may get, in whole granules.
    pub(crate) fn job_cpus(&self) -> u32 {
        whole_granules(&self.open, self.granule)
    }

    /// With the CPUs that nobody else can have while these are in use.
    pub(crate) fn kept_with(&self, cpus: &CpuSet) -> CpuSet {
        if !self.by_thread {
            return cpus.clone();
        }
        let core = |cpu: u32| cpu / self.granule * self.granule;
        let whole = cpus.iter().map(core).flat_map(|at| at..at + self.granule);
        whole.filter(|cpu| *cpu < self.cpus).collect()
    }

    /// CPUs that are left if the system keeps so many of the last cores, or threads.
    pub(crate) fn cpus_without(&self, count: u32, threads: bool) -> CpuSet {
        let mut cpus = CpuSet::first(self.cpus);
        let shape = (self.cpus, self.sockets, self.cores_per_socket);
        cpus.subtract(&last_cpus(shape, count, threads));
        cpus
    }
}

/// Generic resources of a name, and of a type where that matters.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct GresCount {
    pub(crate) name: String,
    pub(crate) kind: Option<String>,
    pub(crate) count: u64,
}

impl GresCount {
    /// Whether what a node has counts as what is asked for.
    pub(crate) fn serves(&self, name: &str, kind: Option<&str>) -> bool {
        self.name == name && (kind.is_none() || kind == self.kind.as_deref())
    }
}

/// `SelectTypeParameters` about parts of GPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct PartRule {
    /// Parts of several GPUs of a node make up what a job asks for (`MULTIPLE_SHARING_GRES_PJ`).
    pub(crate) several_gpus: bool,
    /// Of the GPU that has most parts left, rather than fewest (`LL_SHARED_GRES`).
    pub(crate) least_loaded: bool,
}

/// CPUs in granules that are free as a whole.
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

/// Devices that are unavailable, given those that jobs have.
pub(crate) fn unavailable<'u>(class: &NodeClass, used: &'u [CpuSet]) -> Cow<'u, [CpuSet]> {
    if class.parts.is_empty() {
        return Cow::Borrowed(used);
    }
    let entries: Vec<Entry<'_>> = (class.gres.iter().zip(&class.parts))
        .map(|(gres, parts)| Entry {
            name: &gres.name,
            count: gres.count,
            parts: parts.as_ref(),
        })
        .collect();
    gpu_parts::unavailable(&entries, used)
}

/// Parts of the GPUs of an entry, where a job has them of one GPU only.
pub(crate) fn parts_of(class: &NodeClass, entry: usize) -> Option<&PartsOfGpus> {
    class.parts.get(entry)?.as_ref()
}

/// Free instances of each entry.
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
