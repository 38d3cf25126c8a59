//! Nothing that a file may hold makes the loader panic, and what `write_minimal` writes loads back.

use std::path::Path;

use muster_conf::files::{self, PlainFile};
use muster_conf::{
    ListingContext, PrivateClusterConfig, Severity, load_text, load_with, show_config, topology,
    write_minimal,
};
use proptest::prelude::*;

const SEEDS: [&str; 6] = [
    include_str!("../data/site.conf"),
    include_str!("../data/peer.conf"),
    include_str!("../data/gpu.conf"),
    include_str!("../data/broken.conf"),
    include_str!("../data/beside/gres.conf"),
    include_str!("../data/beside/topology.conf"),
];

fn load_everything(bytes: &[u8]) {
    let read = |_: &Path| Ok(bytes.to_vec());
    let path = Path::new("fuzz.conf");
    let (config, findings) = load_with(path, &read);
    for finding in &findings {
        assert!(!finding.to_string().is_empty());
    }
    let facts = ListingContext {
        boot_time: "",
        next_job_id: 1,
        version: "",
        uid_of: &|_| None,
    };
    assert!(show_config(&config, &facts).len() > 150);
    let _ = files::load_gres_with(path, &read);
    let _ = topology::load_with(path, &read);
    for kind in [PlainFile::Cgroup, PlainFile::Mpi, PlainFile::Slurmdbd] {
        let _ = files::load_flat_with(kind, path, &read);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(80))]

    #[test]
    fn random_bytes(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        load_everything(&bytes);
    }

    #[test]
    fn mutated_files(
        seed in 0..SEEDS.len(),
        edits in prop::collection::vec((any::<prop::sample::Index>(), 0..4u8, any::<u8>()), 1..12),
    ) {
        let mut bytes = SEEDS[seed].as_bytes().to_vec();
        for (at, what, byte) in edits {
            let at = at.index(bytes.len().max(1)).min(bytes.len().saturating_sub(1));
            match what {
                _ if bytes.is_empty() => bytes.push(byte),
                0 => bytes[at] = byte,
                1 => bytes.insert(at, b"[]=\",-#\\ \n9"[usize::from(byte) % 11]),
                2 => { bytes.remove(at); }
                _ => bytes.truncate(at.max(bytes.len() / 2)),
            }
        }
        load_everything(&bytes);
    }

    #[test]
    fn values_of_every_key(
        key in 0..muster_conf::keys::SLURM.keys().len(),
        value in "[-0-9a-zA-Z,:./%\\[\\]()= é]{0,20}",
    ) {
        let name = muster_conf::keys::SLURM.keys()[key].name;
        load_everything(format!("{name}={value}\n").as_bytes());
    }

    #[test]
    fn values_on_node_and_partition_lines(
        node in 0..muster_conf::keys::NODE.keys().len(),
        partition in 0..muster_conf::keys::PARTITION.keys().len(),
        value in "([0-9]{0,11}|[-0-9a-zA-Z,:./%\\[\\]()=]{0,12})",
    ) {
        let node = muster_conf::keys::NODE.keys()[node].name;
        let partition = muster_conf::keys::PARTITION.keys()[partition].name;
        let text = format!(
            "NodeName=n[1-3] CPUs=4 {node}={value}\nPartitionName=p Nodes=ALL {partition}={value}\n"
        );
        load_everything(text.as_bytes());
    }

    #[test]
    fn what_is_written_loads(nodes in 1..2000u32, cpus in 1..1024u32, port in 1024..40_000u16) {
        let minimal = PrivateClusterConfig {
            host: "box", port, user: "alice", home: Path::new("/home/alice/.muster"),
            nodes, cpus, memory_mib: 8000, token_key: nodes.is_multiple_of(2).then_some(Path::new("/home/alice/.muster/jwt.key")),
        };
        let (config, findings) = load_text(Path::new("slurm.conf"), &write_minimal(&minimal));
        prop_assert!(findings.is_empty(), "{findings:?}");
        prop_assert_eq!(config.nodes.len(), nodes as usize);
        prop_assert!(config.nodes.iter().all(|n| n.cpus == cpus && n.hostname == "box"));
        prop_assert_eq!(*config.slurmctld_ports.start(), port);
        prop_assert_eq!(config.slurmctld[0].address(), "127.0.0.1");
        prop_assert_eq!(&config.default_partition().unwrap().name, "batch");
    }
}

#[test]
fn an_include_of_itself_ends() {
    let read = |_: &Path| Ok(b"Include a.conf\nInclude a.conf\n".to_vec());
    let (_, findings) = load_with(Path::new("a.conf"), &read);
    assert!(
        findings
            .iter()
            .any(|f| f.message.contains("includes itself"))
    );
}

/// Files that include each other twice would be read 2^16 times without a limit on files.
#[test]
fn an_include_that_doubles_ends() {
    let read = |path: &Path| {
        let level: u32 = path
            .to_str()
            .and_then(|name| name.parse().ok())
            .unwrap_or(0);
        Ok(format!("Include {0}\nInclude {0}\n", level + 1).into_bytes())
    };
    let (_, findings) = load_with(Path::new("0"), &read);
    assert!(findings.iter().any(|f| f.severity == Severity::Error));
    assert!(findings.len() < 5000, "{}", findings.len());
}
