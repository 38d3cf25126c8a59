//! Golden files: each `tests/data/*.conf` with what loading it says and yields. After a change that
//! is meant, run with `MUSTER_BLESS=1` and read the difference.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use muster_conf::files::{self, PlainFile};
use muster_conf::{
    Config, Diagnostic, ListingContext, Severity, check, check_with, format_row, load, show_config,
    topology,
};
use muster_model::hostlist;

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data")
        .join(name)
}

/// Compares with a stored file; leaves this machine's paths out.
fn golden(name: &str, actual: &str) {
    let actual = actual.replace(&format!("{}/", data("").display()).replace("//", "/"), "");
    let path = data(name);
    if std::env::var_os("MUSTER_BLESS").is_some() {
        std::fs::write(&path, &actual).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(actual == expected, "{name} differs; got:\n{actual}");
}

/// A short text of all that is typed; nodes alike but for their names share a row.
fn dump(config: &Config) -> String {
    let mut text = String::new();
    let mut rows: Vec<(String, Vec<&str>)> = Vec::new();
    for node in &config.nodes {
        let mut alike = node.clone();
        alike.name.clear();
        if node.addr == node.hostname {
            alike.addr = "=".to_owned();
        }
        if node.hostname == node.name {
            alike.hostname = "=".to_owned();
        }
        let row = format!(
            "host={} addr={} port={} cpus={} boards={} sockets={} cores={} threads={} mem={} \
             weight={} features={} gres={:?} state={:?} reason={:?}",
            alike.hostname,
            alike.addr,
            alike.port,
            alike.cpus,
            alike.boards,
            alike.sockets,
            alike.cores_per_socket,
            alike.threads_per_core,
            alike.real_memory_mib,
            alike.weight,
            alike.features.join(","),
            alike.gres,
            alike.state,
            alike.reason
        );
        match rows.last_mut() {
            Some((last, names)) if *last == row => names.push(&node.name),
            _ => rows.push((row, vec![&node.name])),
        }
    }
    for (row, names) in rows {
        writeln!(text, "node {} {row}", hostlist::compress(&names)).unwrap();
    }
    for partition in &config.partitions {
        let names: Vec<&str> = partition
            .nodes
            .iter()
            .map(|&i| config.nodes[i].name.as_str())
            .collect();
        let mut rest = partition.clone();
        rest.nodes.clear();
        rest.nodes_text.clear();
        let rest = format!("{rest:?}");
        let rest = rest
            .split_once("node_sets")
            .unwrap()
            .1
            .split_once(", origin")
            .unwrap()
            .0;
        writeln!(
            text,
            "partition {} nodes={} sets{rest}",
            partition.name,
            hostlist::compress(&names)
        )
        .unwrap();
    }
    let mut rest = config.clone();
    rest.nodes.clear();
    rest.partitions.clear();
    rest.raw.clear();
    for line in format!("{rest:#?}")
        .lines()
        .filter(|line| !line.contains("path: "))
    {
        writeln!(text, "{line}").unwrap();
    }
    text
}

#[test]
fn confs() {
    for name in [
        "site",
        "peer",
        "htc",
        "gpu",
        "old",
        "broken",
        "beside/slurm",
    ] {
        let report = check(&data(&format!("{name}.conf")));
        golden(
            &format!("{name}.expected"),
            &format!("{report}\n\n{}", dump(&report.config)),
        );
    }
}

#[test]
fn files_beside() {
    let mut text = String::new();
    let mut say = |list: Vec<Diagnostic>| {
        for diagnostic in list {
            writeln!(text, "{diagnostic}").unwrap();
        }
    };
    let (mpi, found) = files::load_flat(PlainFile::Mpi, &data("site-mpi.conf"));
    assert_eq!(mpi.text("PMIxDirectConn"), Some("true"));
    assert_eq!(mpi.text("PMIxTimeout"), Some("300"));
    say(found);
    let (dbd, found) = files::load_flat(PlainFile::Slurmdbd, &data("site-slurmdbd.conf"));
    assert_eq!(dbd.text("StorageUser"), Some("slurm"));
    say(found);
    let (_, found) = files::load_flat(PlainFile::Cgroup, &data("beside/cgroup.conf"));
    say(found);
    let (gres, found) = files::load_gres(&data("beside/gres.conf"));
    say(found);
    let (topology, found) = topology::load(&data("beside/topology.conf"));
    say(found);
    for line in gres {
        let line = format!("{line:?}");
        writeln!(text, "{}", line.split_once(", origin").unwrap().0).unwrap();
    }
    for switch in &topology.switches {
        writeln!(
            text,
            "switch {} of {} {}",
            switch.name,
            hostlist::compress(&switch.switches),
            hostlist::compress(&switch.nodes)
        )
        .unwrap();
    }
    writeln!(
        text,
        "{:?} {:?}",
        topology.blocks.len(),
        topology.block_sizes
    )
    .unwrap();
    golden("files.expected", &text);
}

/// Row for row what Slurm 22.05.8 printed for the same file, but for facts of that very run.
#[test]
fn show_config_as_slurm() {
    let (config, _) = load(&data("peer.conf"));
    let facts = ListingContext {
        boot_time: "2026-11-21T20:23:07",
        next_job_id: 19,
        version: "22.05.8",
        uid_of: &|user| (user == "root").then_some(0),
    };
    let rows = show_config(&config, &facts);
    let newer: Vec<&str> = muster_conf::keys::SLURM
        .keys()
        .iter()
        .filter(|key| key.shown == muster_conf::keys::KeyListing::Newer)
        .map(|key| key.name)
        .collect();
    let ours: Vec<String> = rows
        .iter()
        .filter(|(name, _)| !newer.contains(&name.as_str()))
        .map(|(name, value)| format_row(name, value))
        .collect();
    let expected = std::fs::read_to_string(data("show_config.expected")).unwrap();
    let local = ["SLURM_CONF ", "PluginDir "];
    for (ours, theirs) in ours.iter().zip(expected.lines()) {
        if !local.iter().any(|name| theirs.starts_with(name)) {
            assert_eq!(ours, theirs);
        }
    }
    assert_eq!(ours.len(), expected.lines().count());
}

#[test]
fn a_file_that_is_not_there_is_one_finding() {
    let (_, findings) = load(&data("nosuch.conf"));
    assert_eq!(findings.len(), 1);
    assert!(findings[0].message.starts_with("cannot read"));
}

#[test]
fn ten_thousand_nodes_are_quick_and_resolved() {
    let text = "ClusterName=c\nSlurmctldHost=h\nNodeName=n[00001-10000] CPUs=4 Feature=a,b\n\
                NodeSet=s Feature=a\nPartitionName=p Nodes=ALL Default=YES\n\
                PartitionName=q Nodes=s\nPartitionName=r Nodes=n[00001-10000]\n";
    let read = |_: &Path| Ok(text.as_bytes().to_vec());
    let report = check_with(
        Path::new("big.conf"),
        &|path| match path.ends_with("big.conf") {
            true => read(path),
            false => Err(std::io::Error::from(std::io::ErrorKind::NotFound)),
        },
    );
    assert!(report.diagnostics.is_empty(), "{report}");
    assert_eq!(report.config.nodes.len(), 10_000);
    assert!(
        report
            .config
            .partitions
            .iter()
            .all(|p| p.nodes.len() == 10_000)
    );
}

/// A file that asks for protection that there is none of is refused, with the reason.
#[test]
fn protection_that_is_not_given_is_an_error() {
    const BASE: &str = "ClusterName=c\nSlurmctldHost=h\nNodeName=n1 State=UNKNOWN\n\
                        PartitionName=p Nodes=ALL\n";
    let found = |line: &str| {
        let text = format!("{BASE}{line}\n");
        let read = move |path: &Path| match path.ends_with("slurm.conf") {
            true => Ok(text.clone().into_bytes()),
            false => Err(std::io::ErrorKind::NotFound.into()),
        };
        let report = check_with(Path::new("/c/slurm.conf"), &read);
        let about = report.diagnostics.into_iter();
        let key = line.split('=').next().unwrap_or_default();
        about.filter(|d| d.key == key).collect::<Vec<Diagnostic>>()
    };
    for refused in [
        "TLSType=tls/s2n",
        "TLSType=tls/openssl",
        "TLSParameters=ca_cert_file=/etc/slurm/ca.pem",
        "CertmgrType=certmgr/script",
        "CertmgrParameters=generate_csr_script=/bin/true",
        "CertgenType=certgen/script",
        "CertgenParameters=keygen_script=/bin/true",
        "CredType=cred/other",
        "CryptoType=crypto/other",
    ] {
        let found = found(refused);
        let [one] = &*found else {
            panic!("{refused}: {found:?}");
        };
        assert_eq!(one.severity, Severity::Error, "{one}");
        assert!(one.message.contains("is not supported: "), "{one}");
    }
    let unknown = found("AuthType=auth/jwt");
    assert_eq!(unknown[0].severity, Severity::Error);
    assert!(
        found("TLSType=tls/s2n")[0]
            .message
            .contains("without certificates")
    );
    // What says who somebody is, the socket does.
    for met in [
        "TLSType=tls/none",
        "AuthType=auth/slurm",
        "AuthAltTypes=auth/jwt",
        "CredType=cred/munge",
        "CredType=cred/none",
        "CryptoType=crypto/munge",
    ] {
        assert_eq!(found(met), [], "{met}");
    }
    for (line, severity) in [
        ("CryptoType=crypto/openssl", Severity::NoEffect),
        ("TLSParameters=ca_cert_file=/x", Severity::Error),
    ] {
        let found = found(line);
        assert_eq!(found.len(), 1, "{line}");
        assert_eq!(found[0].severity, severity, "{line}");
    }
}

/// What a file forbids is not allowed because the file has a mistake, or cannot be read.
#[test]
fn files_that_forbid_are_not_passed_over() {
    const BASE: &str =
        "ClusterName=c\nSlurmctldHost=h\nNodeName=n1 State=UNKNOWN\nPartitionName=p Nodes=ALL\n";
    let errors = |name: &'static str, content: Result<&'static str, std::io::ErrorKind>| {
        let read = move |path: &Path| match path.file_name().and_then(|name| name.to_str()) {
            Some("slurm.conf") => Ok(BASE.as_bytes().to_vec()),
            Some(own) if own == name => Ok(content?.as_bytes().to_vec()),
            _ => Err(std::io::ErrorKind::NotFound.into()),
        };
        let found = check_with(Path::new("/c/slurm.conf"), &read).diagnostics;
        let found = found.into_iter();
        let errors = found.filter(|d| d.severity == Severity::Error);
        errors.map(|d| d.to_string()).collect::<Vec<String>>()
    };
    for line in [
        "jsv_allowed_mod h,dc\n",
        "JSV_allowed_mods h\n",
        "jvs_url /a\n",
        "jsv_url /a /b\n",
    ] {
        assert_eq!(errors("sge.conf", Ok(line)).len(), 1, "{line}");
    }
    assert_eq!(errors("sge.conf", Ok("pe smp\n")), [""; 0]);
    // slurmd's alone.
    let denied = std::io::ErrorKind::PermissionDenied;
    assert_eq!(errors("cgroup.conf", Err(denied)), [""; 0]);
    for name in ["sge.conf", "job_classes.conf", "verifier.conf"] {
        let found = errors(name, Err(denied));
        let [error] = &*found else {
            panic!("{name}: {found:?}");
        };
        assert!(error.contains("cannot be read"), "{error}");
    }
}

/// slurmd refuses a directory in which paths of sockets do not fit; the check found nothing.
#[test]
fn a_spool_directory_has_room_for_sockets_on_each_node() {
    let errors = |dir: &str| {
        let text = format!(
            "ClusterName=c\nSlurmctldHost=h\nNodeName=n1,node12 CPUs=1\nPartitionName=p Nodes=ALL\n\
             SlurmdSpoolDir={dir}\n"
        );
        let read = move |path: &Path| match path.ends_with("slurm.conf") {
            true => Ok(text.clone().into_bytes()),
            false => Err(std::io::ErrorKind::NotFound.into()),
        };
        let found = check_with(Path::new("/c/slurm.conf"), &read).diagnostics;
        let errors = found.iter().filter(|d| d.severity == Severity::Error);
        errors.map(|d| d.to_string()).collect::<Vec<String>>()
    };
    let dir = |bytes: usize| format!("/{}", "d".repeat(bytes - 1));
    assert_eq!(errors(&dir(69)), [""; 0]);
    assert_eq!(errors(&format!("{}.%n", dir(62))), [""; 0]);
    for long in [dir(70), format!("{}.%n", dir(63))] {
        let found = errors(&long);
        assert!(found[0].contains("70 bytes"), "{found:?}");
        assert!(found[0].contains("at most 69"), "{found:?}");
    }
}
