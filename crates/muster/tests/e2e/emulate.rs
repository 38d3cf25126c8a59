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
