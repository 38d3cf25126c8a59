//! `scontrol shutdown`: which daemons it ends, and what goes on.

use crate::cluster::{Cluster, alive};

/// How many nodes have their agent connected.
const CONNECTED: &str = "sinfo -h -N -o '%N %T' | grep -vc '[*]'";

/// The daemons of a node that end with it: the supervisor and its agent.
fn daemons(c: &Cluster, node: &str) -> [i32; 2] {
    let supervisor = c.agent(node);
    let agent = c.ok(&format!("pgrep -P {supervisor} -f ^muster-agent"));
    [supervisor, agent.parse().unwrap()]
}

/// A job that runs until there is a file `go`; its number and the process of its script.
fn job_that_waits(c: &Cluster) -> (u64, i32) {
    let job = c.sbatch(
        "-o /dev/null --wrap 'echo $$ >pid.new; mv pid.new pid; until [ -e go ]; do sleep 0.05; done'",
    );
    c.until("the job runs", || !c.read_if_there("pid").is_empty());
    (job, c.read("pid").trim().parse().unwrap())
}

/// The job is where it was, and ends as it would have.
fn finish(c: &Cluster, job: u64, script: i32) {
    assert_eq!(c.ok(&format!("squeue -h -j {job} -o %T")), "RUNNING");
    assert!(alive(script), "it is the same process");
    c.write("go", "");
    c.until_prints(&format!("sacct -X -n -P -j {job} -o State"), "COMPLETED");
    c.ok("srun -N3 true");
}

#[test]
fn a_shutdown_ends_all_daemons_and_no_job() {
    let c = Cluster::start(3, 2);
    let (job, script) = job_that_waits(&c);
    let names = ["n1", "n2", "n3"];
    let launcher = c.ok("cat ../spool.n1/shim.pid").parse().unwrap();
    let mut daemons: Vec<i32> = names.iter().flat_map(|node| daemons(&c, node)).collect();
    daemons.push(c.controller());
    c.ok("scontrol shutdown");
    for pid in daemons {
        c.until("the daemons are gone", || !alive(pid));
    }
    for name in names {
        assert!(!c.path(&format!("run/noded.{name}.pid")).exists());
    }
    assert!(alive(script) && alive(launcher), "jobs go on");
    assert_eq!(c.start_controller().code, 0);
    for name in names {
        c.ok(&format!("slurmd -N {name}"));
    }
    c.until_prints(CONNECTED, "3");
    finish(&c, job, script);
}

#[test]
fn a_shutdown_of_the_controller_leaves_the_nodes_daemons() {
    let c = Cluster::start(3, 2);
    let (job, script) = job_that_waits(&c);
    let nodes = ["n1", "n2", "n3"];
    let before = nodes.map(|node| daemons(&c, node));
    for word in ["slurmctld", "controller"] {
        let controller = c.controller();
        c.ok(&format!("scontrol shutdown {word}"));
        c.until("the controller is gone", || !alive(controller));
        assert_eq!(c.start_controller().code, 0);
        c.until_prints(CONNECTED, "3");
        assert_eq!(nodes.map(|node| daemons(&c, node)), before, "{word}");
    }
    finish(&c, job, script);
}

/// `slurmd` returned before the controller had the node's registration: a first `srun --immediate` failed.
#[test]
fn a_node_is_there_when_its_start_returns() {
    let c = Cluster::start(2, 1);
    for node in ["n1", "n2", "n1", "n2"] {
        let state = format!("sinfo -h -n {node} -o %T");
        c.kill(c.agent(node));
        c.until_prints(&state, "idle*");
        assert_eq!(c.ok(&format!("slurmd -N {node} && {state}")), "idle");
    }
    // A start without a controller succeeds, too.
    c.ok("scontrol shutdown");
    for node in ["n1", "n2"] {
        c.until("the node's pid file is gone", || {
            !c.path(&format!("run/noded.{node}.pid")).exists()
        });
        c.ok(&format!("slurmd -N {node}"));
    }
    assert_eq!(c.start_controller().code, 0);
    c.until_prints(CONNECTED, "2");
}
