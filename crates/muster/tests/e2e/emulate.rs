//! Many nodes in one process, by `muster up --emulate`.

use crate::cluster::Cluster;

const CONF: &str = "\
ClusterName=emulated
SlurmctldHost=here
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
AccountingStorageType=accounting_storage/slurmdbd
NodeName=n[1-300] CPUs=64 RealMemory=1000 State=UNKNOWN
PartitionName=batch Nodes=ALL Default=YES MaxTime=INFINITE State=UP
";

#[test]
fn emulated_nodes_take_jobs_and_come_back_to_a_restarted_controller() {
    let c = Cluster::emulated(CONF);
    assert_eq!(c.ok("sinfo -h -o '%D %t'"), "300 idle");
    let array = c.sbatch("--array=1-400 -o /dev/null --wrap true");
    let wide = c.sbatch("-N250 -o /dev/null --wrap true");
    let state = format!("sacct -X -n -P -j {array},{wide} -o State | sort | uniq -c | xargs");
    c.until_prints(&state, "401 COMPLETED");
    c.kill(c.controller());
    assert_eq!(c.start_controller().code, 0);
    c.until_prints("sinfo -h -o '%D %t'", "300 idle");
    let again = c.sbatch("-n 1000 -o /dev/null --wrap true");
    c.until_prints(
        &format!("sacct -X -n -P -j {again} -o State,AllocCPUS"),
        "COMPLETED|1000",
    );
}

#[test]
fn emulated_users_submit_and_launches_are_counted() {
    let c = Cluster::emulated(CONF);
    let told = c.ok("muster emulate jobs 200 --clients 4 --json -- -o /dev/null --wrap true");
    assert!(told.contains("\"submissions\":200"), "{told}");
    assert!(told.contains("\"p99_ms\":"), "{told}");
    c.until_prints(
        "sacct -X -n -P -o State | sort | uniq -c | xargs",
        "200 COMPLETED",
    );
    let counts = "$(tr -dc 0-9, <$(dirname $SLURM_CONF)/run/emulator.json | tr , +)";
    c.until_prints(&format!("echo $(({counts}))"), "200");
    let refused = c.run("muster emulate jobs 3 -- -p nowhere -o /dev/null --wrap true");
    assert_eq!(refused.code, 1);
    assert!(refused.err.contains("nowhere"), "{}", refused.err);
}

#[test]
fn without_accounting_jobs_end_and_leave_and_nothing_is_written() {
    let conf = CONF.replace("slurmdbd", "none") + "MinJobAge=1\n";
    let c = Cluster::emulated(&conf);
    c.sbatch("--array=1-50 -o /dev/null --wrap true");
    c.until_prints("squeue -h -t all | wc -l", "0");
    let refused = c.run("sacct -X -n");
    assert_eq!(refused.code, 1);
    assert!(refused.err.contains("disabled"), "{}", refused.err);
    // Once it is on, what ends is there.
    let held = c.sbatch("-H -o /dev/null --wrap true");
    c.kill(c.controller());
    c.ok("sed -i s,accounting_storage/none,accounting_storage/slurmdbd, $SLURM_CONF");
    assert_eq!(c.start_controller().code, 0);
    c.ok(&format!("scontrol release {held}"));
    c.until_prints(&format!("sacct -X -n -P -j {held} -o State"), "COMPLETED");
}

/// Messages between controller and agents so far.
fn messages(c: &Cluster) -> u64 {
    let line = c.ok("sdiag | grep ^Agents:");
    line.split_whitespace()
        .filter_map(|w| w.parse::<u64>().ok())
        .sum()
}

#[test]
fn a_step_of_a_thousand_nodes_starts_by_the_tree_and_costs_the_controller_nothing() {
    let c = Cluster::emulated(
        "ClusterName=wide\nSlurmctldHost=here\nSelectType=select/cons_tres\nSelectTypeParameters=CR_CPU\n\
         AccountingStorageType=accounting_storage/slurmdbd\nNodeName=n1 CPUs=1\nNodeName=e[1-999] CPUs=1\nPartitionName=batch Nodes=ALL Default=YES\n",
    );
    // The first node becomes a real one, which leads; the others take part.
    let pid_file = c.path("run/emulator.pid");
    c.kill(
        std::fs::read_to_string(&pid_file)
            .unwrap()
            .trim()
            .parse()
            .unwrap(),
    );
    std::fs::create_dir_all(c.path("tmp.n1")).unwrap();
    c.ok(&format!(
        "slurmd -N n1 && muster emulate nodes 'e[1-999]' --steps {} --pid-file {}",
        c.path("").display(),
        pid_file.display()
    ));
    c.until_prints("sinfo -h -o '%D %t'", "1000 idle");
    c.ok("salloc -Q -N1000 --no-shell");
    // Every node is told of the job; that it is known everywhere shows when a step has been everywhere.
    c.ok("srun --jobid=1 -N1000 true");
    for (width, depth) in [("", 2), ("--treewidth=10", 3), ("--treewidth=2", 9)] {
        let before = messages(&c);
        let started = std::time::Instant::now();
        c.ok(&format!("srun --jobid=1 -N1000 {width} true"));
        let took = started.elapsed().as_millis();
        let cost = messages(&c) - before;
        println!("1000 nodes, {depth} deep: {took} ms, {cost} messages");
        assert!(cost <= 40, "{cost} messages of the controller");
    }
    // The controller hears of a step's end a little after srun does.
    c.until_prints(
        "squeue -h -s -o %i | grep -v -e batch -e extern || true",
        "",
    );
    c.until_prints(
        "sacct -n -P -j 1 -o JobID,State,NNodes,NTasks | grep -F 1.",
        &(0..4)
            .map(|step| format!("1.{step}|COMPLETED|1000|1000"))
            .collect::<Vec<_>>()
            .join("\n"),
    );
    // Over it all, the job as well.
    c.ok("scancel 1");
    c.until_prints("squeue -h", "");
}
