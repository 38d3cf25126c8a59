//! Machines and queues, which are Slurm's nodes and partitions.

use crate::error::{DrmaaCode, DrmaaError};
use crate::submission::OS_LINUX;
use crate::values::{AttributeMap, AttributeValue, VersionText};
use muster_cli::connect::Client;
use muster_cli::library;
use muster_model::node::Node;
use std::collections::BTreeSet;

/// `drmaa2_cpu`, by what uname(2) calls the machine.
const ARCHITECTURES: [(&str, i64); 12] = [
    ("alpha", 1),
    ("armv7l", 2),
    ("aarch64", 3),
    ("parisc", 5),
    ("parisc64", 6),
    ("i686", 7),
    ("x86_64", 8),
    ("ia64", 9),
    ("mips", 10),
    ("mips64", 11),
    ("ppc64", 13),
    ("ppc64le", 16),
];
/// `DRMAA2_OTHER_CPU`.
const OTHER_CPU: i64 = 0;

fn architecture(name: &str) -> Option<i64> {
    let found = ARCHITECTURES.iter().find(|(own, _)| *own == name);
    let known = found.map_or(OTHER_CPU, |(_, number)| *number);
    Some(known).filter(|_| !name.is_empty())
}

/// The machines of the cluster, or those of some names.
///
/// # Errors
/// The controller cannot be asked.
pub fn machines(client: &mut Client, names: &[String]) -> Result<Vec<AttributeMap>, DrmaaError> {
    let all = library::hardware(client)?.nodes;
    let own = all.iter().filter(|node| is_named(names, &node.config.name));
    Ok(own.map(machine).collect())
}

/// The queues of the cluster, or those of some names: partitions, and queues of Grid Engine's that sge.conf maps to them.
///
/// # Errors
/// The controller cannot be asked.
pub fn queues(client: &mut Client, names: &[String]) -> Result<Vec<AttributeMap>, DrmaaError> {
    let all = library::hardware(client)?.partitions;
    let known = library::queue_names();
    let known = known.map_err(|text| DrmaaError::new(DrmaaCode::DeniedByDrms, text))?;
    let named = |partition| {
        // A queue of Grid Engine's is called as it was asked for.
        let own = known.of(partition);
        own.into_iter()
            .find(|own| names.iter().any(|name| name == own))
    };
    let queue = |name: &str| {
        let mut info = AttributeMap::default();
        info.put_text("name", name);
        info
    };
    Ok(match names {
        [] => all.iter().map(|own| queue(&own.name)).collect(),
        _ => all.iter().filter_map(named).map(queue).collect(),
    })
}

fn is_named(names: &[String], own: &str) -> bool {
    names.is_empty() || names.iter().any(|name| name == own)
}

fn machine(node: &Node) -> AttributeMap {
    let number = |own: u64| i64::try_from(own).ok().map(AttributeValue::Number);
    let mut info = AttributeMap::default();
    info.put_text("name", node.config.name.as_str());
    info.put(
        "available",
        node.is_usable().then_some(AttributeValue::True),
    );
    info.put("sockets", number(node.config.sockets.into()));
    info.put(
        "coresPerSocket",
        number(node.config.cores_per_socket.into()),
    );
    info.put(
        "threadsPerCore",
        number(node.config.threads_per_core.into()),
    );
    let memory = node.config.memory_mib.saturating_mul(1024);
    info.put("physMemory", number(memory));
    // Jobs get no swap space beside it.
    info.put("virtMemory", number(memory));
    info.put("machineOS", AttributeValue::Number(OS_LINUX));
    if let Some(report) = &node.report {
        info.put("load", AttributeValue::Real(hundredths(report.load_centi)));
        info.put(
            "machineArch",
            architecture(&report.arch).map(AttributeValue::Number),
        );
        let release = report.os.split_whitespace().nth(1).unwrap_or(&report.os);
        if !release.is_empty() {
            let version = VersionText::of(release);
            info.put("machineOSVersion", AttributeValue::Version(version));
        }
    }
    info
}

fn hundredths(centi: u32) -> f32 {
    let (whole, part) = (centi / 100, centi % 100);
    let small = |own: u32| f32::from(u16::try_from(own).unwrap_or(u16::MAX));
    small(whole) + small(part) / 100.0
}

/// Machines that a template does not want: those beside its candidates, and those of another architecture.
///
/// # Errors
/// A candidate does not exist, or no machine is left.
pub fn excluded(client: &mut Client, template: &AttributeMap) -> Result<Vec<String>, DrmaaError> {
    let all = library::hardware(client)?.nodes;
    let candidates = template.texts("candidateMachines");
    let names: BTreeSet<&str> = all.iter().map(|node| node.config.name.as_str()).collect();
    if let Some(unknown) = candidates
        .iter()
        .find(|name| !names.contains(name.as_str()))
    {
        return Err(DrmaaError::argument(format!(
            "candidateMachines has \"{unknown:.100}\": there is no such machine"
        )));
    }
    let wanted = template.number("machineArch");
    let fits = |node: &&Node| {
        let arch = node.report.as_ref().and_then(|own| architecture(&own.arch));
        is_named(candidates, &node.config.name) && (wanted.is_none() || wanted == arch)
    };
    let (kept, excluded): (Vec<&Node>, Vec<&Node>) = all.iter().partition(fits);
    if kept.is_empty() {
        return Err(DrmaaError::argument(
            "no machine of the cluster is one of candidateMachines and of machineArch",
        ));
    }
    Ok(excluded
        .iter()
        .map(|node| node.config.name.clone())
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn architectures_have_their_numbers() {
        assert_eq!(architecture("x86_64"), Some(8));
        assert_eq!(architecture("aarch64"), Some(3));
        assert_eq!(architecture("riscv64"), Some(OTHER_CPU));
        assert_eq!(architecture(""), None);
        assert!((hundredths(1234) - 12.34).abs() < 0.001);
    }
}
