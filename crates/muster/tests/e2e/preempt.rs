//! Preemption with real processes: back to the queue, ended after a grace time, stopped and let go on.

use crate::cluster::Cluster;

fn conf(mode: &str, low: &str) -> String {
    format!(
        "\
ClusterName=site
SlurmctldHost=localhost
NodeName=n1 CPUs=2 RealMemory=1000
PartitionName=low Nodes=n1 Default=YES MaxTime=INFINITE State=UP PriorityTier=1 {low}
PartitionName=high Nodes=n1 MaxTime=INFINITE State=UP PriorityTier=10
PreemptType=preempt/partition_prio
PreemptMode={mode}
AccountingStorageType=accounting_storage/slurmdbd
JobRequeue=1
KillWait=2
"
    )
}

fn state_of(c: &Cluster, id: u64) -> String {
    c.ok(&format!("squeue -h -j {id},{id} -o %T"))
}

#[test]
fn a_preempted_job_goes_back_to_the_queue() {
    let c = Cluster::from_conf(&conf("REQUEUE", ""));
    let low = c.sbatch("-n2 -o /dev/null --wrap 'echo $SLURM_RESTART_COUNT. >>low; sleep 1000'");
    c.until("it runs", || c.read_if_there("low") == ".\n");
    let high = c.sbatch("-p high -n2 -o /dev/null --wrap 'echo high >>high; sleep 1000'");
    c.until("the other runs", || c.read_if_there("high") == "high\n");
    assert_eq!(
        c.ok(&format!("squeue -h -j {low},{low} -o '%T %r'")),
        "PENDING Resources"
    );
    c.until_prints(
        &format!("sacct -D -X -n -P -j {low} -o State"),
        "PREEMPTED\nPENDING",
    );
    let shown = c.ok(&format!("scontrol show job {high}"));
    assert!(shown.contains("PreemptEligibleTime=20"), "{shown}");
    c.ok(&format!("scancel {high}"));
    c.until("it runs again", || c.read_if_there("low") == ".\n1.\n");
}

#[test]
fn a_preempted_job_is_told_before_it_is_ended() {
    let c = Cluster::from_conf(&conf("CANCEL", "GraceTime=2"));
    // The step hears of it and the script goes on; after the grace time both end.
    let low = c.sbatch(
        "-n1 -o /dev/null --wrap 'srun bash -c \"trap \\\"echo told >>told\\\" TERM; echo up >>told; while :; do sleep 0.1; done\"'",
    );
    c.until("it runs", || c.read_if_there("told") == "up\n");
    let high = c.sbatch("-p high -n2 -o /dev/null --wrap 'echo high >>high'");
    c.until("it is told", || {
        c.read_if_there("told").starts_with("up\ntold\n")
    });
    assert_eq!(c.read_if_there("high"), "");
    let shown = c.ok(&format!("scontrol show job {low}"));
    assert!(
        shown.contains("PreemptTime=20") && shown.contains("JobState=RUNNING"),
        "{shown}"
    );
    c.until("the other runs", || c.read_if_there("high") == "high\n");
    c.until_prints(
        &format!("sacct -X -n -P -j {low},{high} -o State"),
        "PREEMPTED\nCOMPLETED",
    );
}

#[test]
fn a_preempted_job_is_stopped_and_goes_on() {
    let c = Cluster::from_conf(&conf("SUSPEND,GANG", ""));
    let low = c.sbatch(
        "-n2 --mem=100 -o /dev/null --wrap 'for i in $(seq 20); do echo $i >>low; sleep 0.2; done'",
    );
    c.until("it runs", || !c.read_if_there("low").is_empty());
    let high =
        c.sbatch("-p high -n1 --mem=100 -o /dev/null --wrap 'echo high >>high; until [ -e go ]; do sleep 0.1; done'");
    c.until("the other runs", || c.read_if_there("high") == "high\n");
    assert_eq!(state_of(&c, low), "SUSPENDED");
    let stopped_at = c.read_if_there("low");
    // One CPU is free, but kept for the one that is stopped.
    let next = c.sbatch("-n1 --mem=100 -o /dev/null --wrap true");
    assert_eq!(state_of(&c, next), "PENDING");
    assert_eq!(c.read_if_there("low"), stopped_at);
    c.ok("touch go");
    c.until_prints(
        &format!("sacct -X -n -P -j {low},{high},{next} -o State"),
        "COMPLETED\nCOMPLETED\nCOMPLETED",
    );
    assert_eq!(c.read_if_there("low").lines().count(), 20);
}

/// `suspend_grace_time`: who is stopped is told so before, and has that time to get ready.
#[test]
fn a_job_may_get_ready_to_be_stopped() {
    let grace = "PreemptParameters=suspend_grace_time=2\n";
    let c = Cluster::from_conf(&(conf("SUSPEND,GANG", "") + grace));
    // Only what is built into the shell: a program that it waits for would be stopped.
    let script = "mkfifo idle; trap 'echo told >>told' TSTP; echo \\$\\$ >pid; \
                  until [ -e on ]; do read -rt 0.1 <>idle; done; true";
    let low = c.sbatch(&format!("-n2 --mem=100 -o /dev/null --wrap \"{script}\""));
    c.until("it runs", || c.read_if_there("pid").ends_with('\n'));
    let pid = c.read_if_there("pid");
    let stat = format!("/proc/{}/stat", pid.trim());
    let is_stopped = || std::fs::read_to_string(&stat).is_ok_and(|text| text.contains(") T "));
    let high =
        c.sbatch("-p high -n1 --mem=100 -o /dev/null --wrap 'until [ -e go ]; do sleep 0.1; done'");
    c.until("it is told", || c.read_if_there("told") == "told\n");
    assert_eq!(state_of(&c, low), "SUSPENDED");
    c.until("it is stopped", is_stopped);
    c.ok("touch go on");
    c.until_prints(
        &format!("sacct -X -n -P -j {low},{high} -o State"),
        "COMPLETED\nCOMPLETED",
    );
}

#[test]
fn a_suspended_job_lends_its_cpus() {
    let c = Cluster::start(1, 2);
    let first = c.sbatch("-n2 --mem=1 -o /dev/null --wrap 'echo up >>first; sleep 1000'");
    c.until("it runs", || c.read_if_there("first") == "up\n");
    let second = c.sbatch("-n2 --mem=1 -o /dev/null --wrap 'echo up >>second; sleep 1000'");
    assert_eq!(state_of(&c, second), "PENDING");
    c.ok(&format!("scontrol suspend {first}"));
    c.until("the other runs", || c.read_if_there("second") == "up\n");
    assert_eq!(state_of(&c, first), "SUSPENDED");
    // As in Slurm it goes on beside the other.
    c.ok(&format!("scontrol resume {first}"));
    assert_eq!(
        c.ok("squeue -h -o '%i %T %C' -S i"),
        format!("{first} RUNNING 2\n{second} RUNNING 2")
    );
    let third = c.sbatch("-n1 --mem=1 -o /dev/null --wrap true");
    c.ok(&format!("scancel {first}"));
    c.until("it is gone", || {
        c.ok(&format!("squeue -h -j {first},{first} -o %T"))
            .is_empty()
    });
    assert_eq!(state_of(&c, third), "PENDING");
    c.ok(&format!("scancel {second}"));
    c.until_prints(&format!("sacct -X -n -P -j {third} -o State"), "COMPLETED");
}

#[test]
fn licenses_are_held_while_jobs_run() {
    let c = Cluster::from_conf(
        "\
ClusterName=site
SlurmctldHost=localhost
NodeName=n1 CPUs=2 RealMemory=1000
PartitionName=batch Nodes=n1 Default=YES MaxTime=INFINITE State=UP
AccountingStorageType=accounting_storage/slurmdbd
Licenses=foo:2,bar
",
    );
    let first = c.sbatch("-n1 --mem=1 -L foo:2 -o /dev/null --wrap 'sleep 1000'");
    c.until_prints(&format!("squeue -h -j {first},{first} -o %T"), "RUNNING");
    let second = c.sbatch("-n1 --mem=1 -L foo -o /dev/null --wrap true");
    c.until_prints(
        &format!("squeue -h -j {second},{second} -o '%T %r %W'"),
        "PENDING Licenses foo",
    );
    assert_eq!(
        c.ok("scontrol show licenses"),
        "LicenseName=bar\n    Total=1 Used=0 Free=1 Reserved=0 Remote=no\n\
         LicenseName=foo\n    Total=2 Used=2 Free=0 Reserved=0 Remote=no"
    );
    let refused = c.run("sbatch -L baz --wrap true");
    assert!(
        refused.code == 1 && refused.err.contains("Invalid license specification"),
        "{refused:?}"
    );
    // One more of them lets the next go.
    let conf = c.path("slurm.conf");
    let text = std::fs::read_to_string(&conf).unwrap();
    std::fs::write(&conf, text.replace("foo:2", "foo:3")).unwrap();
    c.ok("scontrol reconfigure");
    c.until_prints(&format!("sacct -X -n -P -j {second} -o State"), "COMPLETED");
}

#[test]
fn limits_of_accounting_hold() {
    let c = Cluster::from_conf(
        "\
ClusterName=site
SlurmctldHost=localhost
NodeName=n1 CPUs=4 RealMemory=1000
PartitionName=batch Nodes=n1 Default=YES MaxTime=INFINITE State=UP
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageEnforce=limits,qos
",
    );
    c.ok("sacctmgr -i add account bio grptres=cpu=3 maxsubmitjobs=3");
    c.ok("sacctmgr -i add user root account=bio");
    assert_eq!(
        c.ok("sacctmgr -n -P show assoc user=root account=bio format=account,grptres,maxsubmit"),
        "bio||3"
    );
    let first = c.sbatch("-A bio -n2 --mem=1 -o /dev/null --wrap 'sleep 1000'");
    c.until_prints(&format!("squeue -h -j {first},{first} -o %T"), "RUNNING");
    let second = c.sbatch("-A bio -n2 --mem=1 -o /dev/null --wrap true");
    let third = c.sbatch("-A bio -n1 --mem=1 -o /dev/null --wrap 'sleep 1000'");
    c.until_prints(&format!("squeue -h -j {third},{third} -o %T"), "RUNNING");
    assert_eq!(
        c.ok(&format!("squeue -h -j {second},{second} -o %r")),
        "AssocGrpCpuLimit"
    );
    let refused = c.run("sbatch -A bio --wrap true");
    assert!(
        refused.err.contains("Job violates accounting/QOS policy"),
        "{refused:?}"
    );
    c.ok(&format!("scancel {first}"));
    c.until_prints(&format!("sacct -X -n -P -j {second} -o State"), "COMPLETED");
}

#[test]
fn jobs_on_the_same_cpus_take_turns() {
    let conf = conf("GANG", "OverSubscribe=FORCE:2");
    let conf = conf.replace("preempt/partition_prio", "preempt/none");
    let c = Cluster::from_conf(&format!(
        "{conf}SchedulerTimeSlice=5\nSelectTypeParameters=CR_Core\n"
    ));
    let job = |file: &str| {
        let script = format!("while echo x; do sleep 0.05; done >{file}");
        c.sbatch(&format!("-n2 -o /dev/null --wrap '{script}'"))
    };
    let first = job("first");
    c.until("it runs", || !c.read_if_there("first").is_empty());
    let second = job("second");
    let states = || format!("{} {}", state_of(&c, first), state_of(&c, second));
    c.until("the second waits", || states() == "RUNNING SUSPENDED");
    let why = c.ok(&format!("{} why {second}", env!("CARGO_BIN_EXE_muster")));
    assert!(why.contains("take turns of 5 s"), "{why}");
    let ran = |file: &str| c.read_if_there(file).len();
    c.until("it has its turn", || states() == "SUSPENDED RUNNING");
    let (stopped, before) = (ran("first"), ran("second"));
    c.until("it runs", || ran("second") > before + 10);
    // A line may have been on its way when it was stopped.
    assert!(ran("first") <= stopped + 2);
    c.ok(&format!("scancel {second}"));
    c.until("the first goes on", || ran("first") > stopped + 10);
    c.ok(&format!("scancel {first}"));
}
