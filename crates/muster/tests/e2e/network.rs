//! Jobs on a network of two leaf switches with two nodes each.

use crate::cluster::Cluster;

const TREE: &str =
    "SwitchName=ls0 Nodes=n[1-2]\nSwitchName=ls1 Nodes=n[3-4]\nSwitchName=ss0 Switches=ls[0-1]\n";

/// Four nodes, given whole, at two leaves.
fn cluster() -> Cluster {
    let c = Cluster::start(4, 2);
    let conf = c.path("slurm.conf");
    let text = std::fs::read_to_string(&conf).unwrap();
    let text = text.replace("State=UP", "State=UP OverSubscribe=EXCLUSIVE");
    std::fs::write(&conf, text + "TopologyPlugin=topology/tree\n").unwrap();
    std::fs::write(c.path("topology.conf"), TREE).unwrap();
    c.ok("scontrol reconfigure");
    c
}

fn nodes_of(c: &Cluster, job: u64) -> String {
    c.ok(&format!("sacct -X -n -P -j {job} -o NodeList"))
}

fn is_running(c: &Cluster, job: u64) {
    c.until_prints(&format!("squeue -h -j {job},{job} -o %T"), "RUNNING");
}

#[test]
fn a_job_that_fits_at_one_leaf_starts_at_once() {
    let c = cluster();
    let job = c.sbatch(
        "-W -n 2 -N 2 --switches=1@1 -o out --wrap 'srun sh -c \"echo \\$SLURM_TOPOLOGY_ADDR \\$SLURM_TOPOLOGY_ADDR_PATTERN\" | sort'",
    );
    assert_eq!(nodes_of(&c, job), "n[1-2]");
    assert_eq!(
        c.read("out"),
        "ss0.ls0.n1 switch.switch.node\nss0.ls0.n2 switch.switch.node\n"
    );
    assert_eq!(
        c.ok("scontrol show topology"),
        "SwitchName=ls0 Level=0 LinkSpeed=1 Nodes=n[1-2]\n\
         SwitchName=ls1 Level=0 LinkSpeed=1 Nodes=n[3-4]\n\
         SwitchName=ss0 Level=1 LinkSpeed=1 Nodes=n[1-4] Switches=ls[0-1]"
    );
    assert_eq!(
        c.ok("scontrol show topology n3 | head -1"),
        "SwitchName=ls1 Level=0 LinkSpeed=1 Nodes=n[3-4]"
    );
}

#[test]
fn a_job_waits_for_one_leaf_and_then_crosses() {
    let c = cluster();
    let other = c.sbatch("-n 2 -N 2 --nodelist=n3,n1 -o /dev/null --wrap 'sleep 1000'");
    is_running(&c, other);
    // Two seconds, as minutes:seconds.
    let job = c.sbatch("-n 2 -N 2 --switches=1@0:02 -o /dev/null --wrap true");
    assert_eq!(
        c.ok(&format!("squeue -h -j {job},{job} -o '%T %r'")),
        "PENDING Resources"
    );
    c.until_prints(&format!("sacct -X -n -P -j {job} -o State"), "COMPLETED");
    assert_eq!(nodes_of(&c, job), "n[2,4]");
    let waited = c.ok(&format!("sacct -X -n -P -j {job} -o Submit,Start"));
    let (submit, start) = waited.split_once('|').unwrap();
    let seconds = c.ok(&format!(
        "echo $(($(date -d {start} +%s) - $(date -d {submit} +%s)))"
    ));
    assert!(
        ["1", "2", "3"].contains(&seconds.as_str()),
        "waited {seconds} s"
    );
}

#[test]
fn a_job_starts_at_one_leaf_when_another_ends_in_time() {
    let c = cluster();
    let other = c.sbatch(
        "-n 2 -N 2 --nodelist=n3,n1 -o /dev/null --wrap 'until [ -e go ]; do sleep 0.02; done'",
    );
    is_running(&c, other);
    let job = c.sbatch("-n 2 -N 2 --switches=1@3 -o /dev/null --wrap true");
    let shown = c.ok(&format!("scontrol show job {job}"));
    assert!(shown.contains("Switches=1@00:03:00"), "{shown}");
    assert_eq!(
        c.ok(&format!("squeue -h -j {job},{job} -o '%T %r'")),
        "PENDING Resources"
    );
    c.write("go", "");
    c.until_prints(&format!("sacct -X -n -P -j {job} -o State"), "COMPLETED");
    assert_eq!(nodes_of(&c, job), "n[1-2]");
}

#[test]
fn a_changed_network_disturbs_no_job() {
    let c = cluster();
    let job = c.sbatch("-n 2 -N 2 -o /dev/null --wrap 'until [ -e go ]; do sleep 0.02; done'");
    is_running(&c, job);
    let changed =
        "SwitchName=a Nodes=n[1,3]\nSwitchName=b Nodes=n[2,4]\nSwitchName=c Switches=a,b\n";
    std::fs::write(c.path("topology.conf"), changed).unwrap();
    let conf = c.path("slurm.conf");
    let text = std::fs::read_to_string(&conf).unwrap();
    let text = text.replace("MaxTime=INFINITE", "MaxTime=60") + "KillWait=7\n";
    std::fs::write(&conf, text + "NodeName=x1 CPUs=2\n").unwrap();
    let warning = format!(
        "{}: warning: no switch leads to x1\n",
        c.path("topology.conf").display()
    );
    assert_eq!(
        c.ok("scontrol reconfigure --dry-run"),
        warning.clone()
            + "~ KillWait: 30 sec -> 7 sec\n\
         + NodeName=x1\n\
         ~ PartitionName=batch: Nodes n[1-4] -> n[1-4],x1, MaxTime UNLIMITED -> 60\n\
         + SwitchName=a: Nodes=n[1,3]\n\
         + SwitchName=b: Nodes=n[2,4]\n\
         + SwitchName=c: Switches=a,b\n\
         - SwitchName=ls0: Nodes=n[1-2]\n\
         - SwitchName=ls1: Nodes=n[3-4]\n\
         - SwitchName=ss0: Switches=ls[0-1]"
    );
    assert_eq!(
        c.ok("scontrol show topology n1 | head -1 | cut -d' ' -f1"),
        "SwitchName=ls0"
    );
    c.ok("scontrol reconfigure");
    assert_eq!(
        c.ok("scontrol reconfigure --dry-run"),
        warning + "Nothing would change."
    );
    // What is doubtful comes first.
    let doubtful = changed.replace("n[2,4]", "n[2,4],nosuch");
    std::fs::write(c.path("topology.conf"), doubtful).unwrap();
    let warned = c.ok("scontrol reconfigure --dry-run");
    assert!(
        warned.contains("topology.conf:2:1: warning: switch b: nosuch not in slurm.conf")
            && warned.ends_with("\nNothing would change."),
        "{warned}"
    );
    std::fs::write(c.path("topology.conf"), changed).unwrap();
    is_running(&c, job);
    assert_eq!(
        c.ok("scontrol show topology a"),
        "SwitchName=a Level=0 LinkSpeed=1 Nodes=n[1,3]"
    );
    // n1 and n2 are taken: one node is left at each leaf.
    let waits = c.sbatch("-n 2 -N 2 --switches=1 -o /dev/null --wrap true");
    assert_eq!(
        c.ok(&format!("squeue -h -j {waits},{waits} -o %T")),
        "PENDING"
    );
    c.write("go", "");
    c.until_prints(&format!("sacct -X -n -P -j {waits} -o State"), "COMPLETED");
    assert_eq!(nodes_of(&c, waits), "n[1,3]");
    std::fs::write(c.path("topology.conf"), "SwitchName=a Switches=nosuch\n").unwrap();
    let refused = c.run("scontrol reconfigure");
    assert!(
        refused.code != 0 && refused.err.contains("there is no switch nosuch"),
        "{refused:?}"
    );
    let left = c.ok("scontrol show topology b");
    assert_eq!(left, "SwitchName=b Level=0 LinkSpeed=1 Nodes=n[2,4]");
}

#[test]
fn what_the_system_keeps_of_a_node_is_shown_and_given_to_nobody() {
    let c = Cluster::start(1, 4);
    let conf = c.path("slurm.conf");
    let text = std::fs::read_to_string(&conf).unwrap();
    let text = text.replace(
        "State=UNKNOWN",
        "State=UNKNOWN CoreSpecCount=1 MemSpecLimit=10",
    );
    std::fs::write(&conf, text).unwrap();
    c.ok("scontrol reconfigure");
    let shown = c.ok("scontrol show node n1");
    for wanted in [
        "CPUAlloc=0 CPUEfctv=3 CPUTot=4",
        "CoreSpecCount=1 MemSpecLimit=10",
        "CfgTRES=cpu=3",
    ] {
        assert!(shown.contains(wanted), "{wanted}: {shown}");
    }
    c.ok("sbatch -W --exclusive -o out --wrap 'echo $SLURM_CPUS_ON_NODE'");
    assert_eq!(c.read("out"), "3\n");
    assert_eq!(c.ok("sinfo -h -o %T"), "idle");
}

#[test]
fn partitions_have_networks_of_their_own() {
    let c = Cluster::start(4, 2);
    let conf = c.path("slurm.conf");
    let text = std::fs::read_to_string(&conf).unwrap();
    let text = text
        + "PartitionName=blocks Nodes=ALL Topology=b\nPartitionName=flat Nodes=ALL Topology=c\n";
    std::fs::write(&conf, text).unwrap();
    let networks = "- topology: a\n  cluster_default: true\n  tree:\n    switches:\n      \
                    - switch: ls0\n        nodes: n[1-2]\n      - switch: ls1\n        nodes: n[3-4]\n      \
                    - switch: ss0\n        children: ls[0-1]\n\
                    - topology: b\n  block:\n    block_sizes: [1, 2]\n    blocks:\n      \
                    - block: b1\n        nodes: n1\n      - block: b2\n        nodes: n[2-4]\n\
                    - topology: c\n  flat: true\n";
    std::fs::write(c.path("topology.yaml"), networks).unwrap();
    let diff = c.ok("scontrol reconfigure --dry-run");
    for line in [
        "+ SwitchName=ls0: Nodes=n[1-2]",
        "+ BlockName=b1: Nodes=n1",
        "+ Topology=b: block, BlockSizes=1,2",
    ] {
        assert!(diff.contains(line), "{diff}");
    }
    c.ok("scontrol reconfigure");
    assert_eq!(
        c.ok("scontrol show topology"),
        "Topology=a\n\
         SwitchName=ls0 Level=0 LinkSpeed=1 Nodes=n[1-2]\n\
         SwitchName=ls1 Level=0 LinkSpeed=1 Nodes=n[3-4]\n\
         SwitchName=ss0 Level=1 LinkSpeed=1 Nodes=n[1-4] Switches=ls[0-1]\n\
         Topology=b\n\
         BlockName=b1 BlockIndex=0 Nodes=n1 BlockSize=1\n\
         BlockName=b2 BlockIndex=1 Nodes=n[2-4] BlockSize=1"
    );
    let nodes = |args: &str| {
        c.ok(&format!(
            "srun {args} --exclusive bash -c 'echo $SLURMD_NODENAME' | sort | xargs"
        ))
    };
    assert_eq!(nodes("-N2 -n2 -w n2"), "n1 n2");
    assert_eq!(nodes("-p blocks -N2 -n2 -w n2"), "n2 n3");
    assert_eq!(nodes("-p flat -N2 -n2 -w n2"), "n1 n2");
    assert_eq!(nodes("-p blocks -N3 -n3 --segment=3"), "n2 n3 n4");
    for (args, why) in [
        (
            "-p blocks -N3 --segment=2",
            "--nodes=3 is not a multiple of --segment=2",
        ),
        ("-p blocks -N4 --segment=4", "the largest has 3"),
        (
            "-p flat -N2 --segment=2",
            "--segment needs a partition with a block topology",
        ),
    ] {
        let refused = c.run(&format!("sbatch {args} --wrap true"));
        assert!(
            refused.code != 0 && refused.err.contains(why),
            "{}",
            refused.err
        );
    }
}
