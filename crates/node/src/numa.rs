//! NUMA domains of the machine and their distances, from sysfs.

use crate::topology::ranges;
use std::fs;
use std::path::Path;

/// The domains that have CPUs, in the order in which the controller numbers CPUs: by package, then by the kernel's
/// number.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Numa {
    /// Number of domains.
    pub(crate) domains: u32,
    /// Distances, row by row; empty if the kernel does not report them.
    pub(crate) distances: Vec<u32>,
}

/// A domain as sysfs describes it, in the order of comparison.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Domain {
    package: u32,
    number: u32,
    /// To each of the domains that there are, by the kernel's numbers.
    distances: Vec<u32>,
}

impl Numa {
    /// Reads the tree below `root` (`/sys/devices/system`); `None` if there are no domains in it.
    pub(crate) fn read(root: &Path) -> Option<Numa> {
        let mut numbers: Vec<u32> = (fs::read_dir(root.join("node")).ok()?.flatten())
            .filter_map(|entry| {
                entry
                    .file_name()
                    .to_str()?
                    .strip_prefix("node")?
                    .parse()
                    .ok()
            })
            .collect();
        // The columns of the distances are those of all domains, with or without CPUs.
        numbers.sort_unstable();
        let mut domains: Vec<Domain> = (numbers.iter())
            .filter_map(|number| domain(root, *number))
            .collect();
        domains.sort();
        let column = |domain: &Domain| numbers.iter().position(|n| *n == domain.number);
        let columns: Vec<usize> = domains.iter().filter_map(column).collect();
        let row = |domain: &Domain| -> Option<Vec<u32>> {
            columns
                .iter()
                .map(|c| domain.distances.get(*c).copied())
                .collect()
        };
        let rows: Option<Vec<Vec<u32>>> = domains.iter().map(row).collect();
        let count = u32::try_from(domains.len()).ok().filter(|n| *n > 0)?;
        Some(Numa {
            domains: count,
            distances: rows.unwrap_or_default().concat(),
        })
    }
}

/// `None` for a domain of memory alone.
fn domain(root: &Path, number: u32) -> Option<Domain> {
    let file = |name: &str| fs::read_to_string(root.join(format!("node/node{number}/{name}")));
    let first = ranges(file("cpulist").ok()?.trim()).first().copied()?;
    let package = format!("cpu/cpu{first}/topology/physical_package_id");
    let package = fs::read_to_string(root.join(package)).ok();
    let distances = file("distance").unwrap_or_default();
    Some(Domain {
        package: package
            .and_then(|text| text.trim().parse().ok())
            .unwrap_or(0),
        number,
        distances: (distances.split_whitespace())
            .filter_map(|word| word.parse().ok())
            .collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn domains_with_cpus_and_their_distances() {
        let root = std::env::temp_dir().join(format!("muster-numa-{}", std::process::id()));
        let _ = fs::remove_dir_all(&root);
        let write = |path: String, text: &str| {
            let file = root.join(path);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        };
        assert_eq!(Numa::read(&root), None);
        // The second package has the first domain; one domain has memory only.
        for (node, cpus, package) in [(0, "2-3", "1"), (1, "0-1", "0"), (2, "", "")] {
            write(format!("node/node{node}/cpulist"), &format!("{cpus}\n"));
            if let Some((first, _)) = cpus.split_once('-') {
                let file = format!("cpu/cpu{first}/topology/physical_package_id");
                write(file, &format!("{package}\n"));
            }
        }
        write("node/node0/distance".to_owned(), "10 21 17\n");
        write("node/node1/distance".to_owned(), "22 10 28\n");
        write("node/node2/distance".to_owned(), "17 28 10\n");
        write("node/has_cpu".to_owned(), "0-1\n");
        let numa = Numa::read(&root).unwrap();
        assert_eq!(numa.domains, 2);
        assert_eq!(numa.distances, [10, 22, 21, 10]);
        fs::remove_dir_all(root).unwrap();
    }
}
