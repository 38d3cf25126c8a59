//! The machine as sysfs describes it, read once: sockets, cores, threads and NUMA domains, in the controller's order of CPUs.

use muster_model::cpuset::CpuSet;
use muster_node_core::binding::Machine;
use muster_node_core::binding::topology::{CpuPlace, CpuTopology};
use muster_node_core::messages::MachineClaim;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// The configuration of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Claim {
    /// `CPUs`.
    cpus: u32,
    /// Sockets over all boards; 0 is unknown.
    sockets: u32,
}

/// Where the kernel describes the machine.
const SYSTEM: &str = "/sys/devices/system";

/// The numbers of sockets, cores and threads of this machine, in the form of slurm.conf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MachineLayout {
    /// Hardware threads that are online.
    pub cpus: u32,
    /// Sockets.
    pub sockets: u32,
    /// Cores of each.
    pub cores_per_socket: u32,
    /// Threads of each core.
    pub threads_per_core: u32,
}

/// The unit of a machine that counts as a socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SocketUnit {
    /// A package.
    #[default]
    Package,
    /// A NUMA domain (`numa_node_as_socket`).
    NumaDomain,
    /// The cores that share a last-level cache (`l3cache_as_socket`).
    Cache,
}

impl MachineLayout {
    /// The shape of this machine.
    pub fn of_machine(socket: SocketUnit) -> MachineLayout {
        let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let cpus = u32::try_from(cpus).unwrap_or(u32::MAX);
        let shape = MachineLayout::read(Path::new("/sys/devices/system"), socket);
        shape.unwrap_or(MachineLayout::flat(cpus))
    }

    /// One socket of cores of a thread.
    fn flat(cpus: u32) -> MachineLayout {
        MachineLayout {
            cpus,
            sockets: 1,
            cores_per_socket: cpus,
            threads_per_core: 1,
        }
    }

    /// The machine below `root`; `None` if it is not described. Parts that differ are not distinguished.
    fn read(root: &Path, socket: SocketUnit) -> Option<MachineLayout> {
        let online: CpuSet = ranges(&read(&root.join("cpu/online"))?)
            .into_iter()
            .collect();
        let threads = threads(root, &online);
        let number = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        let cpus = number(threads.len());
        let sockets = number(count(threads.iter().map(|t| match socket {
            SocketUnit::Package => (t.package, 0, 0),
            SocketUnit::NumaDomain => (t.package, t.ldom, 0),
            SocketUnit::Cache => (t.package, t.ldom, t.cache),
        })));
        let cores = number(count(threads.iter().map(|t| (t.package, t.ldom, t.core))));
        if cpus == 0 || cores == 0 {
            return None;
        }
        let divides = cores.is_multiple_of(sockets) && cpus.is_multiple_of(cores);
        Some(match divides {
            true => MachineLayout {
                cpus,
                sockets,
                cores_per_socket: cores / sockets,
                threads_per_core: cpus / cores,
            },
            false => MachineLayout::flat(cpus),
        })
    }
}

/// A hardware thread as sysfs describes it, in the order of comparison.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Thread {
    package: u32,
    ldom: u32,
    cache: u32,
    core: u32,
    cpu: u32,
}

/// Reads the kernel's description of this machine.
pub(crate) fn read_machine(claimed: MachineClaim) -> Machine {
    let root = Path::new(SYSTEM);
    let topology = if claimed.shared {
        Err("several nodes of the configuration are on this machine".to_owned())
    } else {
        let usable = crate::sys::affinity().unwrap_or_default();
        let cpus = claimed.cpus.unwrap_or_else(|| usable.len());
        let claim = Claim {
            cpus,
            sockets: claimed.sockets,
        };
        read_topology(root, &usable, claim)
    };
    if let Err(why) = &topology {
        log::info!("tasks are not bound to CPUs: {why}");
    }
    Machine::new(topology, memory_ldoms(root))
}

/// Reads the machine below `root` (`/sys/devices/system`) and matches it with the configuration.
///
/// # Errors
/// The configuration describes another machine, so tasks cannot be bound.
fn read_topology(root: &Path, usable: &CpuSet, claim: Claim) -> Result<CpuTopology, String> {
    let mut threads = threads(root, usable);
    if threads.is_empty() {
        return Err(format!("{} does not describe the CPUs", root.display()));
    }
    threads.sort();
    let cores = count(threads.iter().map(|t| (t.package, t.ldom, t.core)));
    let by_core = match claim.cpus {
        n if n as usize == threads.len() => false,
        n if n as usize == cores => true,
        n => {
            return Err(format!(
                "the node claims {n} CPUs and this machine lets it use {} in {cores} cores",
                threads.len()
            ));
        }
    };
    Ok(CpuTopology::of(places(&threads, by_core, claim.sockets)))
}

/// Groups threads into CPUs. A socket is a package unless the configuration has as many sockets as there are NUMA
/// domains or last-level caches (`numa_node_as_socket`, `l3cache_as_socket`).
fn places(threads: &[Thread], by_core: bool, sockets: u32) -> Vec<CpuPlace> {
    let packages = count(threads.iter().map(|t| t.package));
    let ldoms = count(threads.iter().map(|t| (t.package, t.ldom)));
    let caches = count(threads.iter().map(|t| (t.package, t.ldom, t.cache)));
    let socket_of = |t: &Thread| match sockets as usize {
        n if n == packages => (t.package, 0, 0),
        n if n == ldoms => (t.package, t.ldom, 0),
        n if n == caches => (t.package, t.ldom, t.cache),
        _ => (t.package, 0, 0),
    };
    let (mut sockets, mut cores) = (BTreeMap::new(), BTreeMap::new());
    let mut out: Vec<CpuPlace> = Vec::with_capacity(threads.len());
    for thread in threads {
        let next = u32::try_from(sockets.len()).unwrap_or(u32::MAX);
        let socket = *sockets.entry(socket_of(thread)).or_insert(next);
        let next = u32::try_from(cores.len()).unwrap_or(u32::MAX);
        let core = *cores
            .entry((thread.package, thread.ldom, thread.core))
            .or_insert(next);
        match out.last_mut() {
            Some(last) if by_core && last.core == core => last.threads.push(thread.cpu),
            _ => out.push(CpuPlace {
                socket,
                core,
                ldom: thread.ldom,
                threads: vec![thread.cpu],
            }),
        }
    }
    out
}

/// The threads in sysfs that this process may use. Values that the kernel does not report count as 1.
fn threads(root: &Path, usable: &CpuSet) -> Vec<Thread> {
    let ldom_of = ldoms(&root.join("node"));
    let online = read(&root.join("cpu/online"));
    let one = |cpu: u32| {
        let dir = root.join(format!("cpu/cpu{cpu}"));
        let number = |name: &str| read(&dir.join(name)).and_then(|t| t.parse().ok());
        // A core is known by its lowest thread: core_id repeats in every package, and in every die on some machines.
        let siblings = ["topology/core_cpus_list", "topology/thread_siblings_list"];
        let lowest = |file: &str| read(&dir.join(file)).and_then(|t| ranges(&t).first().copied());
        let cache = (0..8).rev().find_map(|index| {
            let level: u32 = number(&format!("cache/index{index}/level"))?;
            let first = lowest(&format!("cache/index{index}/shared_cpu_list"))?;
            (level == 3).then_some(first)
        });
        Thread {
            package: number("topology/physical_package_id").unwrap_or(0),
            ldom: ldom_of.get(&cpu).copied().unwrap_or(0),
            cache: cache.unwrap_or(0),
            core: siblings.into_iter().find_map(lowest).unwrap_or(cpu),
            cpu,
        }
    };
    let online = online.map_or_else(|| usable.iter().collect(), |text| ranges(&text));
    online
        .into_iter()
        .filter(|cpu| usable.contains(*cpu))
        .map(one)
        .collect()
}

/// NUMA domain by CPU.
fn ldoms(dir: &Path) -> BTreeMap<u32, u32> {
    let mut out = BTreeMap::new();
    let Ok(entries) = fs::read_dir(dir) else {
        return out;
    };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let number = name
            .to_str()
            .and_then(|n| n.strip_prefix("node")?.parse::<u32>().ok());
        let (Some(ldom), Some(list)) = (number, read(&entry.path().join("cpulist"))) else {
            continue;
        };
        out.extend(ranges(&list).into_iter().map(|cpu| (cpu, ldom)));
    }
    out
}

/// NUMA domains that have memory, by the kernel's numbers.
fn memory_ldoms(root: &Path) -> CpuSet {
    let list = read(&root.join("node/has_memory")).or_else(|| read(&root.join("node/online")));
    list.map_or_else(
        || CpuSet::first(1),
        |text| ranges(&text).into_iter().collect(),
    )
}

fn read(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

/// `0-3,8` of sysfs.
pub(crate) fn ranges(text: &str) -> Vec<u32> {
    muster_model::hostlist::parse_ranges(text, muster_model::limits::NODE_CPUS_MAX as usize)
        .unwrap_or_default()
}

fn count<T: Ord>(items: impl Iterator<Item = T>) -> usize {
    items.collect::<std::collections::BTreeSet<T>>().len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_model::binding::Unit;

    /// Writes files `path:value` below a fresh directory.
    fn tree(name: &str, files: &[(String, String)]) -> std::path::PathBuf {
        let root =
            std::env::temp_dir().join(format!("muster-topology-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&root);
        for (path, value) in files {
            let file = root.join(path);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, format!("{value}\n")).unwrap();
        }
        root
    }

    /// Two packages of two domains of two cores of two threads; siblings are 8 apart, as on most machines.
    fn machine() -> Vec<(String, String)> {
        let mut files = vec![("cpu/online".to_owned(), "0-15".to_owned())];
        for cpu in 0..16u32 {
            let core = cpu % 8;
            let dir = format!("cpu/cpu{cpu}/topology");
            files.push((format!("{dir}/physical_package_id"), (core / 4).to_string()));
            files.push((format!("{dir}/core_id"), (core % 4).to_string()));
            files.push((
                format!("{dir}/thread_siblings_list"),
                format!("{core},{}", core + 8),
            ));
        }
        for ldom in 0..4 {
            let (a, b) = (ldom * 2, ldom * 2 + 1);
            files.push((
                format!("node/node{ldom}/cpulist"),
                format!("{a}-{b},{}-{}", a + 8, b + 8),
            ));
        }
        files.push(("node/has_memory".to_owned(), "0-3".to_owned()));
        files
    }

    #[test]
    fn the_shape_of_a_machine() {
        let shape = |cpus, sockets, cores_per_socket, threads_per_core| MachineLayout {
            cpus,
            sockets,
            cores_per_socket,
            threads_per_core,
        };
        let root = tree("shape", &machine());
        assert_eq!(
            MachineLayout::read(&root, SocketUnit::Package),
            Some(shape(16, 2, 4, 2))
        );
        let by = |socket| MachineLayout::read(&root, socket);
        assert_eq!(by(SocketUnit::NumaDomain), Some(shape(16, 4, 2, 2)));
        // Without a description of caches, the cache domains equal the NUMA domains.
        assert_eq!(by(SocketUnit::Cache), Some(shape(16, 4, 2, 2)));
        // Some threads are off.
        fs::write(root.join("cpu/online"), "0-8\n").unwrap();
        assert_eq!(
            MachineLayout::read(&root, SocketUnit::Package),
            Some(shape(9, 1, 9, 1))
        );
        fs::write(root.join("cpu/online"), "0-7\n").unwrap();
        assert_eq!(
            MachineLayout::read(&root, SocketUnit::Package),
            Some(shape(8, 2, 4, 1))
        );
        fs::remove_dir_all(&root).unwrap();
        assert_eq!(MachineLayout::read(&root, SocketUnit::Package), None);
    }

    #[test]
    fn a_machine_is_read_in_the_controllers_order() {
        let root = tree("smt", &machine());
        let all = CpuSet::first(16);
        let read =
            |usable: &CpuSet, cpus, sockets| read_topology(&root, usable, Claim { cpus, sockets });
        let t = read(&all, 16, 2).unwrap();
        // CPUs 0 and 1 of the controller are the two threads of the first core.
        assert_eq!(t.threads(&CpuSet::first(2)), [0, 8].into_iter().collect());
        assert_eq!(
            (
                t.units_in(&all, Unit::Sockets),
                t.units_in(&all, Unit::Cores)
            ),
            (2, 8)
        );
        assert_eq!(t.ldoms(), [0, 1, 2, 3]);
        assert_eq!(t.ldom(3), [6, 7, 14, 15].into_iter().collect());
        // NUMA domains as sockets, and cores as CPUs.
        assert_eq!(read(&all, 16, 4).unwrap().units_in(&all, Unit::Sockets), 4);
        let cores = read(&all, 8, 2).unwrap();
        assert_eq!(cores.get(5).unwrap().threads, [5, 13]);
        // In a container with some of the CPUs.
        let some: CpuSet = [4, 5, 12, 13].into_iter().collect();
        let t = read(&some, 4, 1).unwrap();
        assert_eq!(t.threads(&CpuSet::first(4)), some);
        let other = read(&all, 64, 2).unwrap_err();
        assert!(
            other.contains("claims 64 CPUs") && other.contains("16 in 8 cores"),
            "{other}"
        );
        assert_eq!(memory_ldoms(&root), CpuSet::first(4));
        fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn what_the_kernel_keeps_to_itself_counts_once() {
        let root = tree("bare", &[("cpu/online".to_owned(), "0-1".to_owned())]);
        let t = read_topology(
            &root,
            &CpuSet::first(2),
            Claim {
                cpus: 2,
                sockets: 1,
            },
        )
        .unwrap();
        assert_eq!(
            (
                t.units_in(&t.all(), Unit::Sockets),
                t.units_in(&t.all(), Unit::Cores)
            ),
            (1, 2)
        );
        fs::remove_dir_all(root).unwrap();
        assert!(read_topology(Path::new("/nosuch"), &CpuSet::default(), Claim::default()).is_err());
    }
}
