//! Sockets, cores, threads and NUMA domains of a node. CPUs are numbered as the controller numbers them: by socket, core and
//! thread, which is seldom how the kernel numbers them.

use muster_model::binding::Unit;
use muster_model::cpuset::CpuSet;

/// A schedulable CPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuPlace {
    /// Socket, counted over the node.
    pub socket: u32,
    /// Core, counted over the node.
    pub core: u32,
    /// NUMA domain, by the kernel's number.
    pub ldom: u32,
    /// The kernel's numbers: one hardware thread, or all of a core where the configuration counts cores as CPUs.
    pub threads: Vec<u32>,
}

/// The CPUs of a node in the controller's order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuTopology {
    places: Vec<CpuPlace>,
}

impl CpuTopology {
    /// Sockets of cores of threads, one NUMA domain to a socket, numbered like the kernel's CPUs.
    #[cfg(test)]
    pub(crate) fn uniform(sockets: u32, cores: u32, threads: u32) -> CpuTopology {
        let places = (0..sockets * cores * threads).map(|cpu| CpuPlace {
            socket: cpu / (cores * threads),
            core: cpu / threads,
            ldom: cpu / (cores * threads),
            threads: vec![cpu],
        });
        CpuTopology {
            places: places.collect(),
        }
    }

    /// A topology of these CPUs.
    pub fn of(places: Vec<CpuPlace>) -> CpuTopology {
        CpuTopology { places }
    }

    /// The CPU at this number.
    pub fn get(&self, cpu: u32) -> Option<&CpuPlace> {
        self.places.get(cpu as usize)
    }

    /// All CPUs.
    pub fn all(&self) -> CpuSet {
        CpuSet::first(u32::try_from(self.places.len()).unwrap_or(u32::MAX))
    }

    /// The kernel's numbers of a set of CPUs.
    pub fn threads(&self, cpus: &CpuSet) -> CpuSet {
        cpus.iter()
            .filter_map(|cpu| self.get(cpu))
            .flat_map(|place| place.threads.iter().copied())
            .collect()
    }

    /// The kernel's numbers of all CPUs of a NUMA domain.
    pub fn ldom(&self, ldom: u32) -> CpuSet {
        let inside = self.places.iter().filter(|p| p.ldom == ldom);
        inside.flat_map(|p| p.threads.iter().copied()).collect()
    }

    /// Numbers of the NUMA domains that have CPUs.
    pub fn ldoms(&self) -> Vec<u32> {
        let mut out: Vec<u32> = self.places.iter().map(|p| p.ldom).collect();
        out.sort_unstable();
        out.dedup();
        out
    }

    /// The unit that contains a CPU.
    pub fn unit_of(&self, cpu: u32, unit: Unit) -> Option<u32> {
        let place = self.get(cpu)?;
        Some(match unit {
            Unit::Threads => cpu,
            Unit::Cores => place.core,
            Unit::Sockets => place.socket,
            Unit::Ldoms => place.ldom,
        })
    }

    /// Number of units that have a CPU of the set.
    pub fn units_in(&self, cpus: &CpuSet, unit: Unit) -> usize {
        count(cpus.iter().filter_map(|cpu| self.unit_of(cpu, unit)))
    }

    /// The CPUs of `within` that share a unit with one of `cpus`.
    pub fn widen(&self, cpus: &CpuSet, unit: Unit, within: &CpuSet) -> CpuSet {
        if unit == Unit::Threads {
            return cpus.clone();
        }
        let mut units: Vec<u32> = cpus
            .iter()
            .filter_map(|cpu| self.unit_of(cpu, unit))
            .collect();
        units.sort_unstable();
        units.dedup();
        let inside = |cpu: &u32| {
            self.unit_of(*cpu, unit)
                .is_some_and(|u| units.binary_search(&u).is_ok())
        };
        within.iter().filter(inside).collect()
    }
}

fn count<T: Ord>(items: impl Iterator<Item = T>) -> usize {
    items.collect::<std::collections::BTreeSet<T>>().len()
}
