//! Selects the CPUs of each task of a step on a node. Pure function of a topology, the step's CPUs and a request.
//!
//! CPUs are dealt to one task after another, according to the distribution over sockets and cores. Then each task is
//! bound to the whole unit (core, socket, NUMA domain) of its CPUs, as far as the unit belongs to the step. If tasks
//! are left when all CPUs are dealt, dealing begins again.

use super::topology::CpuTopology;
use muster_model::binding::Unit;
use muster_model::cpuset::CpuSet;
use muster_model::distribution::CpuSpread;
use std::collections::BTreeMap;

/// The request for the tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CpuRequest {
    /// Tasks on this node.
    pub tasks: u32,
    /// CPUs for each.
    pub cpus_per_task: u32,
    /// The unit to which each task is bound; `None` chooses a unit that fits, or all of the step's CPUs for every
    /// task.
    pub unit: Option<Unit>,
    /// Over sockets.
    pub sockets: CpuSpread,
    /// The distribution over the cores of a socket, if the user gives one.
    pub cores: Option<CpuSpread>,
    /// Threads of each core that are dealt.
    pub threads_per_core: Option<u32>,
    /// Most tasks on a socket before the next has as many.
    pub tasks_per_socket: Option<u32>,
}

/// Sets of CPUs by local task; one set for all tasks when no unit fits and none was asked for.
pub(super) fn assign(
    topology: &CpuTopology,
    cpus: &CpuSet,
    request: &CpuRequest,
    fallback: Option<Unit>,
) -> Vec<CpuSet> {
    let dealt = thinned(topology, cpus, request.threads_per_core);
    let unit = request
        .unit
        .or_else(|| fitting(topology, &dealt, request))
        .or(fallback);
    let Some(unit) = unit.filter(|_| !dealt.is_empty()) else {
        return vec![cpus.clone()];
    };
    let mut dealer = Dealer::new(topology, &dealt, request, unit);
    (0..request.tasks)
        .map(|_| topology.widen(&dealer.deal(), unit, cpus))
        .collect()
}

/// The unit of which the step has exactly as many, of equal size, as its tasks need CPUs.
fn fitting(topology: &CpuTopology, cpus: &CpuSet, request: &CpuRequest) -> Option<Unit> {
    let needed = request.tasks.saturating_mul(request.cpus_per_task.max(1)) as usize;
    [Unit::Sockets, Unit::Cores, Unit::Threads]
        .into_iter()
        .find(|unit| {
            let mut sizes: BTreeMap<u32, u32> = BTreeMap::new();
            let units = cpus.iter().filter_map(|cpu| topology.unit_of(cpu, *unit));
            units.for_each(|u| *sizes.entry(u).or_insert(0) += 1);
            let first = sizes.values().next();
            sizes.len() == needed && sizes.values().all(|n| Some(n) == first)
        })
}

/// The first threads of each core.
fn thinned(topology: &CpuTopology, cpus: &CpuSet, threads_per_core: Option<u32>) -> CpuSet {
    let Some(most) = threads_per_core else {
        return cpus.clone();
    };
    let mut of_core: BTreeMap<u32, u32> = BTreeMap::new();
    cpus.iter()
        .filter(|cpu| {
            let Some(core) = topology.unit_of(*cpu, Unit::Cores) else {
                return false;
            };
            let n = of_core.entry(core).or_insert(0);
            *n += 1;
            *n <= most.max(1)
        })
        .collect()
}

/// A socket's CPUs that are to be dealt.
struct Socket {
    cpus: Vec<u32>,
    tasks: u32,
}

struct Dealer<'a> {
    topology: &'a CpuTopology,
    request: &'a CpuRequest,
    /// No core that another task has a CPU of.
    fresh_cores: bool,
    sockets: Vec<Socket>,
    used: CpuSet,
    /// CPUs that tasks hold, by core.
    held: BTreeMap<u32, u32>,
    /// Where the next task of a cyclic distribution begins.
    next: usize,
}

impl<'a> Dealer<'a> {
    fn new(
        topology: &'a CpuTopology,
        cpus: &CpuSet,
        request: &'a CpuRequest,
        unit: Unit,
    ) -> Dealer<'a> {
        let mut sockets: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for cpu in cpus.iter() {
            if let Some(socket) = topology.unit_of(cpu, Unit::Sockets) {
                sockets.entry(socket).or_default().push(cpu);
            }
        }
        let scattered = request.sockets == CpuSpread::FullCyclic && request.cpus_per_task > 1;
        Dealer {
            topology,
            request,
            fresh_cores: unit == Unit::Cores && !scattered,
            sockets: sockets
                .into_values()
                .map(|cpus| Socket { cpus, tasks: 0 })
                .collect(),
            used: CpuSet::default(),
            held: BTreeMap::new(),
            next: 0,
        }
    }

    /// CPUs of the next task.
    fn deal(&mut self) -> CpuSet {
        let count = self.request.cpus_per_task.max(1) as usize;
        let total: usize = self.sockets.iter().map(|s| s.cpus.len()).sum();
        let count = count.min(total);
        let single = count == 1;
        let taken = match self.request.sockets {
            CpuSpread::FullCyclic if !single => self.scatter(count),
            CpuSpread::Block if self.request.tasks_per_socket.is_none() => self.spill(count),
            _ => match self.on_one_socket(count) {
                Some(taken) => taken,
                None => self.spill(count),
            },
        };
        for cpu in &taken {
            if let Some(core) = self.topology.unit_of(*cpu, Unit::Cores) {
                *self.held.entry(core).or_insert(0) += 1;
            }
        }
        taken.into_iter().collect()
    }

    /// All of a task's CPUs on the next socket that has enough.
    fn on_one_socket(&mut self, count: usize) -> Option<Vec<u32>> {
        let limit = self.request.tasks_per_socket.unwrap_or(u32::MAX).max(1);
        let len = self.sockets.len();
        let start = if self.request.sockets == CpuSpread::Block {
            0
        } else {
            self.next
        };
        for second_pass in [false, true] {
            if second_pass {
                if self.sockets.iter().all(|s| s.tasks < limit) && self.used.is_empty() {
                    return None;
                }
                // Every socket is at its limit or has too few CPUs left: dealing begins again, if that helps.
                if self
                    .sockets
                    .iter()
                    .any(|s| s.tasks < limit && !self.free(s, &[]).is_empty())
                {
                    return None;
                }
                self.begin_again();
            }
            let start = if second_pass { 0 } else { start };
            for at in (start..start + len).map(|i| i % len) {
                let socket = &self.sockets[at];
                let free = self.free(socket, &[]);
                if socket.tasks >= limit || free.len() < count {
                    continue;
                }
                let taken = self.pick(free, count);
                taken.iter().for_each(|cpu| self.used.insert(*cpu));
                self.sockets[at].tasks += 1;
                self.next = at + 1;
                return Some(taken);
            }
        }
        None
    }

    /// CPUs of one socket after another.
    fn spill(&mut self, count: usize) -> Vec<u32> {
        let mut taken: Vec<u32> = Vec::with_capacity(count);
        let len = self.sockets.len();
        while taken.len() < count {
            let start = if self.request.sockets == CpuSpread::Block {
                0
            } else {
                self.next
            };
            let found = (start..start + len).map(|i| i % len).find_map(|at| {
                let free = self.free(&self.sockets[at], &taken);
                (!free.is_empty()).then_some((at, free))
            });
            let Some((at, free)) = found else {
                self.begin_again();
                // CPUs that the task already has stay its own.
                taken.iter().for_each(|cpu| self.used.insert(*cpu));
                continue;
            };
            let wanted = count - taken.len();
            let more = self.pick(free, wanted);
            more.iter().for_each(|cpu| self.used.insert(*cpu));
            taken.extend(more);
            self.next = at + 1;
        }
        taken
    }

    /// Each CPU from another socket.
    fn scatter(&mut self, count: usize) -> Vec<u32> {
        let mut taken: Vec<u32> = Vec::with_capacity(count);
        let len = self.sockets.len();
        while taken.len() < count {
            let start = self.next;
            let found = (start..start + len).map(|i| i % len).find_map(|at| {
                let free = self.free(&self.sockets[at], &taken);
                (!free.is_empty()).then_some((at, free))
            });
            let Some((at, free)) = found else {
                self.begin_again();
                taken.iter().for_each(|cpu| self.used.insert(*cpu));
                continue;
            };
            let cpu = self.pick(free, 1)[0];
            self.used.insert(cpu);
            taken.push(cpu);
            self.next = at + 1;
        }
        taken
    }

    /// Nothing is dealt yet.
    fn begin_again(&mut self) {
        self.used = CpuSet::default();
        self.held.clear();
        self.next = 0;
        self.sockets.iter_mut().for_each(|s| s.tasks = 0);
    }

    /// A socket's CPUs that the next task may have; `own` are those it has already.
    fn free(&self, socket: &Socket, own: &[u32]) -> Vec<u32> {
        let core = |cpu: u32| self.topology.unit_of(cpu, Unit::Cores);
        let of_others = |cpu: u32| {
            let held = core(cpu)
                .and_then(|c| self.held.get(&c))
                .is_some_and(|n| *n > 0);
            self.fresh_cores && held && !own.iter().any(|o| core(*o) == core(cpu))
        };
        let free = |cpu: &u32| !self.used.contains(*cpu) && !of_others(*cpu);
        socket.cpus.iter().copied().filter(free).collect()
    }

    /// Chooses from a socket's free CPUs: the lowest ones, unless the user gives a distribution over cores.
    fn pick(&self, mut free: Vec<u32>, count: usize) -> Vec<u32> {
        let core = |cpu: u32| self.topology.unit_of(cpu, Unit::Cores).unwrap_or(0);
        let held = |cpu: u32| self.held.get(&core(cpu)).copied().unwrap_or(0);
        match self.request.cores {
            None | Some(CpuSpread::Block) => {}
            // From the core that others have least of on.
            Some(CpuSpread::Cyclic) => free.sort_by_key(|cpu| (held(*cpu), *cpu)),
            Some(CpuSpread::FullCyclic) => {
                let mut own: BTreeMap<u32, u32> = BTreeMap::new();
                let mut keyed: Vec<(u32, u32)> = free
                    .iter()
                    .map(|cpu| {
                        let n = own.entry(core(*cpu)).or_insert(held(*cpu));
                        *n += 1;
                        (*n, *cpu)
                    })
                    .collect();
                keyed.sort_unstable();
                free = keyed.into_iter().map(|(_, cpu)| cpu).collect();
            }
        }
        free.truncate(count);
        free
    }
}

#[cfg(test)]
mod tests;
