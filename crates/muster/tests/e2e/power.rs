//! Power saving with programs that stop and start real agents.

use crate::cluster::Cluster;
use std::os::unix::fs::PermissionsExt;

#[test]
fn idle_nodes_are_stopped_and_started_again_for_jobs() {
    let dir = std::env::temp_dir().join(format!("muster-power-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let program = |name: &str, text: &str| {
        let path = dir.join(name);
        std::fs::write(&path, format!("#!/bin/bash\n{text}")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        path.display().to_string()
    };
    // The cluster's commands lie beside its slurm.conf.
    let names = "bin=$(dirname $SLURM_CONF)/bin; names=$($bin/scontrol show hostnames $1)\n";
    let log = dir.join("log");
    let log = log.display();
    let suspend = program(
        "suspend",
        &format!(
            "{names}echo \"suspend $1\" >>{log}\nfor n in $names; do kill $(cat $(dirname $SLURM_CONF)/run/noded.$n.pid); done\n"
        ),
    );
    let resume = program(
        "resume",
        &format!(
            "{names}echo \"resume $1 $(cat $SLURM_RESUME_FILE)\" >>{log}\nfor n in $names; do [ $n = n3 ] || $bin/slurmd -N $n; done\n"
        ),
    );
    let failed = program("failed", &format!("echo \"failed $1\" >>{log}\n"));
    let c = Cluster::from_conf(&format!(
        "ClusterName=p\nSlurmctldHost=localhost\nAccountingStorageType=accounting_storage/slurmdbd\n\
         SelectType=select/cons_tres\nSelectTypeParameters=CR_CPU\nReturnToService=2\n\
         SuspendProgram={suspend}\nResumeProgram={resume}\nResumeFailProgram={failed}\nSuspendTime=2\nSuspendTimeout=2\n\
         ResumeTimeout=15\nSuspendExcNodes=n4\nNodeName=n[1-4] CPUs=2 RealMemory=100 State=UNKNOWN\n\
         PartitionName=p Nodes=n[1-4] Default=YES MaxTime=INFINITE State=UP\n"
    ));
    let said = || std::fs::read_to_string(dir.join("log")).unwrap_or_default();
    c.until_prints(
        "sinfo -h -N -o '%n %t' | sort | tr '\\n' ' '",
        "n1 idle~ n2 idle~ n3 idle~ n4 idle",
    );
    assert!(said().contains("suspend n"), "{}", said());
    assert_eq!(c.ok("sinfo -h -t powered_down -o %D"), "3");
    assert!(
        c.ok("scontrol show node n1")
            .contains("State=IDLE+POWERED_DOWN")
    );
    let job =
        c.sbatch("-w n[1-2] -N2 -o job.out --wrap 'srun -l hostname; echo $SLURM_JOB_NODELIST'");
    c.until_prints(
        &format!("sacct -X -n -P -j {job} -o State,NodeList"),
        "COMPLETED|n[1-2]",
    );
    let resumed = said();
    let line = resumed
        .lines()
        .find(|l| l.starts_with("resume n[1-2] "))
        .unwrap();
    assert!(
        line.contains(&format!("\"job_id\":{job}")) && line.contains("\"nodes_resume\":\"n[1-2]\""),
        "{line}"
    );
    // The node that does not come up is down, and its job waits.
    let lost = c.sbatch("-w n3 -o /dev/null --wrap true");
    c.until_prints(&format!("squeue -h -j {lost},{lost} -o %T"), "CONFIGURING");
    c.until_prints(
        "sinfo -h -N -n n3 -o '%t %E'",
        "down~ ResumeTimeout reached",
    );
    c.until("the program hears of it", || said().contains("failed n3"));
    assert_eq!(
        c.ok(&format!("squeue -h -j {lost},{lost} -o %T")),
        "PENDING"
    );
    c.ok(&format!("scancel {lost}"));
    c.ok("scontrol update NodeName=n4 State=POWER_DOWN");
    c.until_prints("sinfo -h -N -n n4 -o %t", "idle~");
    c.ok("scontrol update NodeName=n4 State=POWER_UP");
    c.until_prints("sinfo -h -N -n n4 -o %t", "idle");
    std::fs::remove_dir_all(&dir).unwrap();
}
