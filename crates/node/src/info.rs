//! The description of the machine for registration and health reports.

use crate::numa::Numa;
use crate::options::AgentOptions;
use muster_model::node::NodeInfo;
use muster_model::time::Timestamp;
use muster_proto::address::{Address, HOST_FILE, NetworkPlace};
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// Where the agent of a spool directory listens for srun and other agents.
pub(crate) fn agent_socket(spool: &Path) -> PathBuf {
    spool.join("noded.sock")
}

/// Whether a path can be that of an agent's socket.
pub(crate) fn is_agent_socket(path: &str) -> bool {
    Path::new(path) == agent_socket(Path::new(path).parent().unwrap_or(Path::new("")))
}

/// The address of that, where all nodes are on one host.
pub(crate) fn agent_address(spool: &Path) -> String {
    format!("unix:{}", agent_socket(spool).display())
}

/// The address of an agent, for its own host and for others if there are any.
pub(crate) fn address(options: &AgentOptions) -> String {
    let network = options.network.port.map(|_| NetworkPlace {
        place: options.network.place.clone(),
        host: read(&options.spool_dir.join(HOST_FILE).display().to_string())
            .trim()
            .to_owned(),
    });
    let path = agent_socket(&options.spool_dir).display().to_string();
    Address { path, network }.to_string()
}

/// CPUs of the node: those it claims, else the machine's.
pub(crate) fn cpus(options: &AgentOptions) -> u32 {
    let there = || std::thread::available_parallelism().map_or(1, |n| n.get());
    options
        .claimed_cpus
        .unwrap_or_else(|| u32::try_from(there()).unwrap_or(u32::MAX))
}

/// NUMA domains of the machine and the distances between them; nothing if the node is a part of it or more than it.
fn numa(options: &AgentOptions) -> Option<Numa> {
    let machine = std::thread::available_parallelism().ok()?.get();
    if u32::try_from(machine).ok()? != cpus(options) {
        return None;
    }
    Numa::read(Path::new("/sys/devices/system"))
}

/// Everything for a registration.
pub(crate) fn collect(options: &AgentOptions, agent_start: Timestamp) -> NodeInfo {
    let machine = of_machine(agent_start);
    let numa = numa(options);
    NodeInfo {
        cpus: cpus(options),
        memory_mib: options.claimed_memory_mib.unwrap_or(machine.memory_mib),
        address: address(options),
        numa_domains: numa.as_ref().map(|numa| numa.domains),
        numa_distances: numa.map(|numa| numa.distances).unwrap_or_default(),
        control_groups: Some(control_groups()),
        ..machine
    }
}

/// The control group features that jobs can use. They depend on the user of the launcher, which this process's parent
/// starts as its own user.
fn control_groups() -> String {
    let parent = format!("/proc/{}", std::os::unix::process::parent_id());
    let is_roots = fs::metadata(parent).is_ok_and(|of| of.uid() == 0);
    let found = crate::cgroup::uses(is_roots).into_iter().map(|found| {
        let name = found.name();
        match found.usable {
            Ok(version) => format!("{name}:{version}"),
            Err(why) => format!("{name}:no ({why}; {})", found.effect),
        }
    });
    found.collect::<Vec<_>>().join(", ")
}

/// Describes the machine.
pub(crate) fn of_machine(agent_start: Timestamp) -> NodeInfo {
    let uname = nix::sys::utsname::uname().ok();
    let text = |f: fn(&nix::sys::utsname::UtsName) -> &std::ffi::OsStr| {
        uname
            .as_ref()
            .map_or(String::new(), |u| f(u).to_string_lossy().into_owned())
    };
    let (load_centi, free_mib) = health();
    NodeInfo {
        arch: text(|u| u.machine()),
        os: format!(
            "{} {} {}",
            text(|u| u.sysname()),
            text(|u| u.release()),
            text(|u| u.version())
        ),
        boot_id: read("/proc/sys/kernel/random/boot_id").trim().to_owned(),
        boot_time: boot_time(),
        agent_start,
        cpus: 0,
        memory_mib: meminfo_mib("MemTotal:"),
        free_mib,
        load_centi,
        address: String::new(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        hostname: text(|u| u.nodename()),
        numa_domains: None,
        numa_distances: Vec::new(),
        // The agent knows, once it has measured.
        cross_memory: None,
        trusted_by: None,
        control_groups: None,
    }
}

/// Load average over a minute times 100, and free memory in MiB.
pub(crate) fn health() -> (u32, u64) {
    let load: f64 = read("/proc/loadavg")
        .split(' ')
        .next()
        .and_then(|w| w.parse().ok())
        .unwrap_or(0.0);
    // Loads are small and not negative; the cast saturates.
    ((load * 100.0) as u32, meminfo_mib("MemFree:"))
}

/// Memory of the machine, and what of it programs could have, in MiB.
pub(crate) fn memory() -> (u64, u64) {
    (meminfo_mib("MemTotal:"), meminfo_mib("MemAvailable:"))
}

fn boot_time() -> Timestamp {
    let seconds = read("/proc/stat")
        .lines()
        .find_map(|l| l.strip_prefix("btime ")?.trim().parse().ok());
    Timestamp::from_unix_s(seconds.unwrap_or(0))
}

fn meminfo_mib(key: &str) -> u64 {
    read("/proc/meminfo")
        .lines()
        .find_map(|l| {
            l.strip_prefix(key)?
                .trim()
                .split(' ')
                .next()?
                .parse::<u64>()
                .ok()
        })
        .unwrap_or(0)
        / 1024
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}
