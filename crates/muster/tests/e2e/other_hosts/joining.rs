//! Nodes that no file names, on hosts of their own.

use super::{Auth, Hosts};
use std::fs;

/// A controller that takes up to four nodes, in partitions by rule.
const LINES: &str = "MaxNodeCount=4\nNodeSet=fast Feature=fast\nPartitionName=quick Nodes=fast\nSlurmctldParameters=enable_configless\n";

#[test]
fn a_node_joins_without_being_named_runs_jobs_and_is_deleted() {
    let Some(mut hosts) = Hosts::prepared(Auth::Munge, LINES, |_| {}) else {
        return;
    };
    let named = hosts.on("n1", "slurmd -D -Z -N n1");
    assert!(named.contains("without -Z"), "{named}");
    let stray = hosts.on(
        "n3",
        "slurmd -D -Z --conf 'NodeName=x'; slurmd -D --conf 'CPUs=1'",
    );
    assert!(stray.contains("--conf cannot say NodeName="), "{stray}");
    assert!(stray.contains("--conf requires -Z"), "{stray}");
    let start = "slurmd -D -Z --conf 'CPUs=2 RealMemory=400 Feature=fast,new'";
    let daemon = hosts.daemon("n3", start);
    hosts.daemons.push(daemon);
    hosts.until("the node has joined", || {
        hosts.on("login", "sinfo -h -n n3 -p quick -o %n:%t") == "n3:idle"
    });
    let shown = hosts.on("login", "scontrol show node n3");
    for text in [
        "State=IDLE+DYNAMIC_NORM",
        "NodeAddr=10.91.0.5",
        "RealMemory=400",
        "ActiveFeatures=fast,new",
        "Partitions=batch,quick",
    ] {
        assert!(shown.contains(text), "{text}: {shown}");
    }
    let ran = hosts.on(
        "login",
        "srun -p quick -N1 hostname; srun -w n3 -n1 hostname",
    );
    assert_eq!(ran, "n3\nn3");
    // It is there after the configuration was read again.
    hosts.on("login", "scontrol reconfigure");
    assert_eq!(hosts.on("login", "srun -p quick -N1 hostname"), "n3");
    // Another host cannot take its name.
    let log = || fs::read_to_string(hosts.dir.join("log/ctld")).unwrap_or_default();
    let taken = hosts.on("n2", "timeout 10 slurmd -D -Z -N n3 & until grep -q 'NodeAddr is 10.91.0.5' ../log/ctld; do sleep 0.1; done; kill %1; wait");
    assert!(log().contains("node n3 connects from 10.91.0.4"), "{taken}");
    // Who has another key does not join.
    let other = hosts.by("n2", "others/slurm.conf", "timeout 10 slurmd -D -Z -N n9 & until grep -q '10.91.0.4.*another munge key' ../log/ctld; do sleep 0.1; done; kill %1; wait");
    assert_eq!(hosts.on("login", "sinfo -h -N -n n9"), "", "{other}");
    // Too many do not.
    let made = hosts.on(
        "login",
        "scontrol create NodeName=c[1-2] CPUs=2 State=CLOUD",
    );
    assert!(made.contains("MaxNodeCount"), "{made}");
    let made = hosts.on(
        "login",
        "scontrol create NodeName=c1 CPUs=2 Feature=fast; scontrol create NodeName=c1 CPUs=2 Feature=fast State=FUTURE && \
         scontrol -F show node c1",
    );
    assert!(made.contains("add State=CLOUD or State=FUTURE"), "{made}");
    assert!(made.contains("NodeName=c1"), "{made}");
    let gone = hosts.on(
        "login",
        "scontrol delete NodeName=c1; scontrol delete nodename=n1; sinfo -h -N -o %N | sort -u",
    );
    assert!(gone.contains("node n1 is in slurm.conf"), "{gone}");
    assert!(gone.starts_with("n1\nn2\nn3\n"), "{gone}");
    let denied = hosts.on(
        "login",
        &format!("{} scontrol delete NodeName=n3", super::AS_USER),
    );
    assert!(denied.contains("Invalid user id"), "{denied}");
    // Its slurmd ends with it, or it would join again.
    hosts.on("login", "scontrol delete NodeName=n3");
    assert_eq!(hosts.on("login", "sinfo -h -N -n n3"), "");
    let ended = hosts.daemons.len() - 1;
    let status = hosts.daemons[ended].wait().unwrap();
    assert!(status.success(), "{status}");
}

/// Nothing has an address of IPv4 but localhost.
#[test]
fn hosts_with_ipv6_alone_are_a_cluster() {
    let lines = "CommunicationParameters=EnableIPv6,DisableIPv4\nMaxNodeCount=3\n";
    let Some(mut hosts) = Hosts::prepared(Auth::Munge, lines, |_| {}) else {
        return;
    };
    for (node, words) in [
        ("n1", "slurmd -D -N n1"),
        ("n2", "slurmd -D -N n2"),
        ("n3", "slurmd -D -Z --conf 'CPUs=2 RealMemory=500'"),
    ] {
        let daemon = hosts.daemon(node, words);
        hosts.daemons.push(daemon);
    }
    hosts.until("all nodes are idle", || {
        hosts.on("login", "sinfo -h -o %D:%t") == "3:idle"
    });
    let shown = hosts.on("login", "scontrol show node n3");
    assert!(shown.contains("NodeAddr=fd91::5"), "{shown}");
    let steps = hosts.on(
        "login",
        "srun -N3 -l hostname | sort; echo text | srun -n1 cat; head -c 3000000 /dev/zero | srun -n1 cat | wc -c",
    );
    assert_eq!(steps, "0: n1\n1: n2\n2: n3\ntext\n3000000");
    hosts.on(
        "login",
        "sbatch -W -N3 -o out --wrap 'srun -l hostname | sort'",
    );
    let out = fs::read_to_string(hosts.dir.join("tmp/out")).unwrap();
    assert_eq!(out, "0: n1\n1: n2\n2: n3\n");
}
