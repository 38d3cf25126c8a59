//! What reaches into running jobs and daemons: limits of steps, messages, levels of the log, samples of use.

use crate::cluster::Cluster;
use std::process::Stdio;

#[test]
fn the_limit_of_a_step_that_runs_is_changed() {
    let c = Cluster::start(2, 2);
    let job = c.sbatch(
        "-N2 -n2 -o steps.out --wrap 'srun -n2 --time=1 bash -c \"echo begun; sleep 1000\"; echo \"srun said $?\"'",
    );
    c.until("the step runs", || {
        c.read_if_there("steps.out").matches("begun").count() == 2
    });
    c.until_prints(
        "squeue -h -s -o '%i %l'",
        &format!("{job}.0 1:00\n{job}.batch UNLIMITED"),
    );
    c.ok(&format!("scontrol update StepId={job}.0 TimeLimit=10"));
    assert_eq!(c.ok(&format!("squeue -h -s {job}.0 -o %l")), "10:00");
    let refused = c.run(&format!("scontrol update StepId={job}.7 TimeLimit=10"));
    assert_eq!(refused.code, 1);
    assert!(
        refused.err.contains(&format!("step {job}.7 does not run")),
        "{refused:?}"
    );
    c.ok(&format!("scancel {job}"));
    c.until_prints("squeue -h", "");
}

#[test]
fn messages_reach_scripts_and_holders_of_allocations() {
    let c = Cluster::start(1, 4);
    let job = c.sbatch("-o batch.out --wrap 'echo here; sleep 1000'");
    c.until("it runs", || c.read_if_there("batch.out").contains("here"));
    c.ok(&format!("scontrol notify {job} the file system is slow"));
    c.until("the line is there", || {
        c.read("batch.out")
            .contains("slurmstepd: error: the file system is slow\n")
    });
    let mut salloc = c
        .command("exec salloc -K -n1 sleep 1000 2>salloc.err")
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    c.until("it is granted", || {
        c.read_if_there("salloc.err").contains("Granted")
    });
    let held = c.ok("squeue -h -n interactive -o %i");
    c.ok(&format!("scontrol notify {held} hello there"));
    c.until("it is told", || {
        c.read("salloc.err").contains("salloc: hello there\n")
    });
    let none = c.run("scontrol notify 4711 hello");
    assert_eq!(none.code, 1, "{none:?}");
    c.ok(&format!("scancel {job} {held}"));
    salloc.wait().unwrap();
}

#[test]
fn pidinfo_and_setdebug() {
    let c = Cluster::start(1, 2);
    let job = c.sbatch("-t5 -o pid.out --wrap 'echo $$; sleep 1000'");
    c.until("it runs", || c.read_if_there("pid.out").ends_with('\n'));
    let pid = c.read("pid.out").trim().to_owned();
    let told = c.ok(&format!("scontrol pidinfo {pid}"));
    assert!(
        told.starts_with(&format!("Slurm JobId={job} ends at ")),
        "{told}"
    );
    assert_eq!(c.run("scontrol pidinfo 1").code, 1);
    c.ok("scontrol setdebug debug2");
    c.ok("scontrol update SlurmctldDebug=info");
    let log = std::fs::read_to_string(c.path("log/ctld.log")).unwrap();
    assert!(log.contains("SetDebug \"debug2\": done"), "{log}");
    let wrong = c.run("scontrol setdebug loud");
    assert!(
        wrong.code == 1 && wrong.err.contains("loud is not a valid level"),
        "{wrong:?}"
    );
    c.ok(&format!("scancel {job}"));
    c.until_prints("squeue -h", "");
}

#[test]
fn what_a_pending_job_asks_for_is_changed() {
    let c = Cluster::start(3, 4);
    let job = c.sbatch("-H -n2 -o /dev/null --wrap true");
    let shown = |what: &str| c.ok(&format!("scontrol show job {job} | grep -o '{what}=[^ ]*'"));
    c.ok(&format!("scontrol update JobId={job} NumCPUs=8"));
    assert_eq!(shown("NumCPUs"), "NumCPUs=8");
    assert_eq!(shown("NumTasks"), "NumTasks=2");
    assert_eq!(shown("CPUs/Task"), "CPUs/Task=4");
    c.ok(&format!(
        "scontrol update JobId={job} NumCPUs=6 NumTasks=3 NumNodes=3 ExcNodeList="
    ));
    assert_eq!(shown("NumCPUs"), "NumCPUs=6");
    assert_eq!(shown("CPUs/Task"), "CPUs/Task=2");
    let bad = c.run(&format!("scontrol update JobId={job} NumCPUs=7"));
    assert!(
        bad.code == 1 && bad.err.contains("give NumTasks and CPUsPerTask too"),
        "{bad:?}"
    );
    let flat = c.run(&format!("scontrol update JobId={job} wait-for-switch=60"));
    assert!(
        flat.code == 1 && flat.err.contains("does not ask for Switches"),
        "{flat:?}"
    );
    c.ok(&format!("scontrol update JobId={job} Switches=1@30"));
    c.ok(&format!("scontrol update JobId={job} wait-for-switch=60"));
    assert_eq!(shown("Switches"), "Switches=1@00:01:00");
    // A job's own fields, although reservations and licenses are entities too.
    let none = c.run(&format!("scontrol update job {job} ReservationName=nope"));
    assert!(none.err.contains("no reservation nope"), "{none:?}");
    let none = c.run(&format!("scontrol update job {job} Licenses=foo:2"));
    assert!(none.err.contains("0 licenses foo"), "{none:?}");
    c.ok(&format!("scontrol release {job}"));
    c.until_prints(
        &format!("sacct -X -n -P -j {job} -o State,AllocCPUS,NNodes"),
        "COMPLETED|6|3",
    );
}

#[test]
fn what_jobs_use_is_sampled_and_those_with_too_much_memory_are_killed() {
    let c = Cluster::from_conf(
        "ClusterName=m\nSlurmctldHost=localhost\nAccountingStorageType=accounting_storage/slurmdbd\nSelectType=select/cons_tres\nSelectTypeParameters=CR_Core_Memory\n\
         JobAcctGatherType=jobacct_gather/linux\nJobAcctGatherFrequency=task=1\nJobAcctGatherParams=OverMemoryKill\n\
         NodeName=n1 CPUs=4 RealMemory=900 State=UNKNOWN\nPartitionName=p Nodes=n1 Default=YES MaxTime=INFINITE State=UP\n",
    );
    // Two processes of 60 MiB each at a time: more than any one of them.
    c.write(
        "two.sh",
        "#!/bin/bash\nhold() { head -c 60m /dev/zero | tail -c 60m | sleep 1000; }\nhold & hold &\necho $$ >two.pid\n\
         while [ ! -e go ]; do sleep 0.1; done\npkill -P $$ -f . ; exit 0\n",
    );
    let two = c.sbatch("--mem=400 -o two.out two.sh");
    let greedy = c.sbatch("--mem=50 -o greedy.out --wrap 'hold() { head -c 150m /dev/zero | tail -c 150m | sleep 1000; }; hold'");
    c.until_prints(
        &format!("sacct -X -n -P -j {greedy} -o State,ExitCode"),
        "OUT_OF_MEMORY|0:125",
    );
    let told = c.read("greedy.out");
    assert!(
        told.contains(&format!(
            "slurmstepd: error: StepId={greedy}.batch exceeded memory limit ("
        )),
        "{told}"
    );
    c.until("both are sampled", || {
        let shown = c.ok(&format!("sstat -n -P --noconvert -j {two}.batch -o MaxRSS"));
        bytes(&shown) > 110_000 << 10
    });
    c.write("go", "");
    c.until_prints(&format!("sacct -X -n -P -j {two} -o State"), "COMPLETED");
    let shown = c.ok(&format!(
        "sacct -n -P --noconvert -j {two}.batch -o MaxRSS,MaxVMSize"
    ));
    let (rss, vsize) = shown.split_once('|').unwrap();
    assert!(
        bytes(rss) > 110_000 << 10 && bytes(vsize) >= bytes(rss),
        "{shown}"
    );
    let converted = c.ok(&format!("sacct -n -P -j {two}.batch -o MaxRSS"));
    assert_eq!(converted.trim(), format!("{}K", bytes(rss) >> 10));
    // A step of its own is killed as a whole, and its script goes on.
    let job = c.sbatch(
        "--mem=300 -o step.out --wrap 'srun --mem=50 bash -c \"head -c 150m /dev/zero | tail -c 150m | sleep 1000\"; echo \"and on\"'",
    );
    c.until_prints(&format!("sacct -X -n -P -j {job} -o State"), "COMPLETED");
    assert_eq!(
        c.ok(&format!("sacct -n -P -j {job}.0 -o State")),
        "OUT_OF_MEMORY"
    );
    let told = c.read("step.out");
    assert!(
        told.contains(&format!("StepId={job}.0 exceeded memory limit ("))
            && told.contains("and on"),
        "{told}"
    );
}

/// A number as sacct prints it: `1234K`, `56M`.
/// What `--noconvert` prints.
fn bytes(text: &str) -> u64 {
    text.trim().parse().unwrap_or(0)
}
