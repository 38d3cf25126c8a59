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
