//! Cancelling, holding, requeueing, suspending, and the states of nodes.

use crate::cluster::Cluster;
use std::os::unix::fs::PermissionsExt;

#[test]
fn scancel_ends_pending_and_running_jobs() {
    let c = Cluster::start(1, 2);
    let running = c.sbatch("-o run.out --wrap 'echo here; sleep 1000 & wait'");
    // It runs for the controller before its script does, which is what is told.
    c.until_prints("cat run.out", "here");
    assert_eq!(
        c.ok(&format!("squeue -h -j {running},{running} -o %T")),
        "RUNNING"
    );
    let pending = c.sbatch("-H -o /dev/null --wrap true");
    let array = c.sbatch("-H --array=0-9 -o /dev/null --wrap true");
    c.ok(&format!(
        "scancel {running} {pending} {array}_3 {array}_[5-7]"
    ));
    c.until_prints(
        &format!("sacct -X -n -P -j {running},{pending} -o State,ExitCode"),
        "CANCELLED by 0|0:0\nCANCELLED by 0|0:0",
    );
    assert_eq!(
        c.ok(&format!("squeue -h -j {array},{array} -o %i")),
        format!("{array}_[0-2,4,8-9]")
    );
    // It is cancelled at once, and its script gone a moment later.
    c.until_prints(
        &format!("sacct -n -P -j {running}.batch -o State,ExitCode"),
        "CANCELLED|0:15",
    );
    assert!(
        c.read("run.out")
            .contains(&format!("*** JOB {running} ON n1 CANCELLED AT "))
    );
    c.ok("scancel --state=PENDING -u root");
    c.until_prints("squeue -h", "");
    let silent = c.run("scancel 99999 && scancel 1");
    assert_eq!(
        (silent.code, silent.out.as_str(), silent.err.as_str()),
        (0, "", "")
    );
}

/// As Slurm: a step has the user who ended it, and its job runs on.
#[test]
fn a_cancelled_step_names_its_user() {
    let c = Cluster::start(2, 2);
    let job = c.sbatch("-N2 -o /dev/null --wrap 'srun sleep 1000; srun true'");
    c.until_prints(
        &format!("squeue -h -s -j {job} -o %i | grep 0$"),
        &format!("{job}.0"),
    );
    c.ok(&format!("scancel {job}.0"));
    let shown = format!("sacct -n -P -j {job}.0,{job}.1 -o State");
    c.until_prints(&shown, "CANCELLED by 0\nCOMPLETED");
}

#[test]
fn signals_reach_the_shell_or_the_steps() {
    let c = Cluster::start(1, 2);
    let job = c.sbatch(
        "-n1 -o sig.out --wrap 'trap \"echo shell\" USR1; srun bash -c \"trap \\\"echo step; exit 0\\\" USR1; echo ready; \
         while :; do sleep 0.05; done\"; while :; do sleep 0.05; done'",
    );
    c.until("the step runs", || {
        c.read_if_there("sig.out").contains("ready")
    });
    c.ok(&format!("scancel {job} --signal USR1"));
    c.until("the step has it", || {
        c.read_if_there("sig.out").contains("step")
    });
    assert!(!c.read("sig.out").contains("shell"));
    c.ok(&format!("scancel -b -s USR1 {job}"));
    c.until("the shell has it", || {
        c.read_if_there("sig.out").contains("shell")
    });
    c.ok(&format!("scancel {job}"));
    c.until_prints("squeue -h", "");
}

/// srun, which gets the signal as a process of the script, does not pass it on once more.
#[test]
fn a_signal_for_the_whole_job_reaches_a_task_once() {
    let c = Cluster::start(1, 2);
    let task = "$| = 1; $SIG{USR1} = sub { print qq(one\n) }; $SIG{USR2} = sub { print qq(end\n); exit }; \
                print qq(ready\n); sleep 1 while 1";
    c.write("task.pl", task);
    let job = c.sbatch(
        "-n1 -o full.out --wrap 'trap \"echo shell\" USR1; srun perl task.pl & wait; wait'",
    );
    c.until("the step runs", || {
        c.read_if_there("full.out").contains("ready")
    });
    c.ok(&format!("scancel --full -s USR1 {job}"));
    c.until("both have it", || {
        let out = c.read_if_there("full.out");
        out.contains("one") && out.contains("shell")
    });
    c.ok(&format!("scancel -s USR2 {job}.0"));
    c.until_prints("squeue -h", "");
    assert_eq!(c.read("full.out").matches("one").count(), 1);
}

/// It is not lost where the job has not started when it is sent, and told where the job does not start.
#[test]
fn a_signal_waits_for_a_job_that_is_about_to_start() {
    let c = Cluster::start(1, 2);
    let held =
        c.sbatch("-H -o /dev/null --wrap 'trap \"exit 0\" USR1; while :; do sleep 0.05; done'");
    let script = format!("scancel -v -b -s USR1 {held} 2>scancel.err");
    let mut sends = c.command(&script).spawn().expect("a shell starts");
    c.until("it waits", || {
        c.read_if_there("scancel.err").contains("retrying")
    });
    c.ok(&format!("scontrol release {held}"));
    // The shell may get it before its trap is set, and ends by it then.
    c.until("the job has it", || {
        matches!(c.state(held).as_str(), "COMPLETED" | "FAILED")
    });
    assert!(sends.wait().expect("it is a child").success());
}

#[test]
fn partitions_and_all_of_them_are_not_asked_for_at_once() {
    let c = Cluster::start(1, 2);
    for line in ["SINFO_ALL=1 SINFO_PARTITION=main sinfo", "sinfo -a -p main"] {
        let ran = c.run(line);
        let text = "sinfo: fatal: Conflicting options, -p and -a specified\n";
        assert_eq!((ran.code, ran.err.as_str()), (1, text), "{line}");
    }
    c.ok("SINFO_ALL=1 sinfo -p main; SINFO_PARTITION=none sinfo -a");
}

#[test]
fn a_job_can_requeue_itself() {
    let c = Cluster::start(1, 2);
    c.write(
        "again.sh",
        "#!/bin/bash\n#SBATCH --open-mode=append -o again.out\necho \"run ${SLURM_RESTART_COUNT:-0} of $SLURM_JOB_ID\"\n\
         if [ \"${SLURM_RESTART_COUNT:-0}\" = 0 ]; then scontrol requeue $SLURM_JOB_ID; sleep 100; fi\n",
    );
    let job = c.sbatch("again.sh");
    c.until_prints(&format!("sacct -X -n -P -j {job} -o State"), "COMPLETED");
    let out = c.read("again.out");
    assert!(
        out.contains(&format!("run 0 of {job}\n")) && out.contains(&format!("run 1 of {job}\n")),
        "{out}"
    );
    assert!(
        c.ok(&format!("scontrol show job {job}"))
            .contains("Requeue=1 Restarts=1")
    );
    assert_eq!(
        c.ok(&format!("sacct -X -n -P -D -j {job} -o State | wc -l")),
        "2"
    );
}

#[test]
fn hold_release_suspend_resume_and_update() {
    let c = Cluster::start(1, 2);
    let job = c.sbatch("-o tick.out --wrap 'i=0; while :; do echo $((i=i+1)); sleep 0.02; done'");
    c.until("it runs", || {
        c.read_if_there("tick.out").lines().count() > 3
    });
    c.ok(&format!("scontrol suspend {job}"));
    assert_eq!(
        c.ok(&format!("squeue -h -j {job},{job} -o %T")),
        "SUSPENDED"
    );
    c.until("its processes are stopped", || {
        c.ok(&format!(
            "ps -o state= -p $(scontrol listpids {job} | awk 'NR==2{{print $1}}')"
        ))
        .starts_with('T')
    });
    c.ok(&format!("scontrol resume {job}"));
    let before = c.read("tick.out").lines().count();
    c.until("it goes on", || {
        c.read("tick.out").lines().count() > before + 3
    });
    c.ok(&format!(
        "scontrol update jobid={job} timelimit=90 comment='a b'"
    ));
    let shown = c.ok(&format!("scontrol show job {job}"));
    assert!(
        shown.contains("TimeLimit=01:30:00") && shown.contains("Comment=a b"),
        "{shown}"
    );
    c.ok(&format!("scancel {job}"));
    let next = c.sbatch("-H -o /dev/null --wrap true");
    c.ok(&format!("scontrol update jobid={next} jobname=other"));
    assert_eq!(c.ok(&format!("squeue -h -j {next},{next} -o %j")), "other");
    c.ok(&format!("scontrol release {next}"));
    c.until_prints(
        &format!("sacct -X -n -P -j {next} -o State,JobName"),
        "COMPLETED|other",
    );
}

/// There were no such lists, and no documents of steps and processes.
#[test]
fn jobs_and_steps_of_a_node_are_listed() {
    let c = Cluster::start(2, 2);
    let job = c.sbatch("-w n2 -n2 -o /dev/null --wrap 'srun sleep 1000'");
    c.until_prints(
        "scontrol liststeps n2 | awk '{print $2}' | xargs",
        "STEPID 0 batch",
    );
    assert_eq!(c.ok("scontrol listjobs n2 | xargs"), format!("JOBID {job}"));
    assert_eq!(
        c.ok("scontrol listjobs n1 2>&1"),
        "No slurmstepd's found on this node"
    );
    let document =
        |command: &str| -> serde_json::Value { serde_json::from_str(&c.ok(command)).unwrap() };
    let id = job;
    let jobs = document("scontrol listjobs n2 --json");
    assert_eq!(jobs["jobs"], serde_json::json!([{"job_id": id}]));
    assert_eq!(
        document("scontrol listjobs n1 --json")["jobs"],
        serde_json::json!([])
    );
    let steps = document("scontrol liststeps n2 --json");
    let batch = serde_json::json!({"job_id": id, "step_id": "batch"});
    assert!(
        steps["steps"].as_array().unwrap().contains(&batch),
        "{steps}"
    );
    let steps = document(&format!("scontrol show steps {job}.0 --json"));
    let step = &steps["steps"][0];
    assert_eq!(step["id"], format!("{job}.0"));
    assert_eq!(
        (&step["nodes"], &step["number_tasks"]),
        (&"n2".into(), &2.into())
    );
    assert_eq!(step["state"], serde_json::json!(["RUNNING"]));
    let pids = document(&format!("scontrol listpids {job}.0 n2 --json"));
    assert_eq!(pids["pids"].as_array().unwrap().len(), 2, "{pids}");
    let tasks = pids["pids"].as_array().unwrap().iter();
    let mut tasks: Vec<u64> = tasks
        .map(|process| process["global_task_id"]["number"].as_u64().unwrap())
        .collect();
    tasks.sort_unstable();
    assert_eq!(tasks, [0, 1]);
    let refused = c.run(&format!("scontrol show steps {job} --json=v0.0.38"));
    assert_ne!(refused.code, 0);
    c.ok(&format!("scancel {job}"));
}

#[test]
fn drained_and_down_nodes_get_no_jobs() {
    let c = Cluster::start(2, 2);
    c.ok("scontrol update nodename=n2 state=drain reason='disk broken'");
    assert_eq!(c.ok("sinfo -h -N -o '%N %T' | sort"), "n1 idle\nn2 drained");
    assert!(c.ok("sinfo -R").contains("disk broken"));
    c.ok("sbatch -W -o where --wrap 'echo $SLURMD_NODENAME'");
    assert_eq!(c.read("where"), "n1\n");
    let waits = c.sbatch("-w n2 -o where2 --wrap 'echo $SLURMD_NODENAME'");
    c.until_prints(
        &format!("squeue -h -j {waits},{waits} -o %r | cut -c1-15"),
        "ReqNodeNotAvail",
    );
    c.ok("scontrol update nodename=n2 state=resume");
    c.until("it ran on n2", || c.read_if_there("where2") == "n2\n");
    let running = c.sbatch("-w n1 --no-requeue -o /dev/null --wrap 'sleep 1000'");
    c.until_prints(
        &format!("squeue -h -j {running},{running} -o %T"),
        "RUNNING",
    );
    c.ok("scontrol update nodename=n1 state=down reason=test");
    c.until_prints(
        &format!("sacct -X -n -P -j {running} -o State"),
        "NODE_FAIL",
    );
    c.ok("scontrol update nodename=n1 state=resume");
    c.until_prints("sinfo -h -o %T", "idle");
}

#[test]
fn reconfigure_adds_a_partition_without_disturbing_jobs() {
    let c = Cluster::start(2, 2);
    let job = c.sbatch("-o /dev/null --wrap 'until [ -e go ]; do sleep 0.02; done'");
    c.until_prints(&format!("squeue -h -j {job},{job} -o %T"), "RUNNING");
    let conf = c.path("slurm.conf");
    let text = std::fs::read_to_string(&conf).unwrap();
    std::fs::write(
        &conf,
        format!("{text}PartitionName=extra Nodes=n2 MaxTime=10 State=UP\n"),
    )
    .unwrap();
    c.ok("scontrol reconfigure");
    assert_eq!(c.ok("sinfo -h -o %P | sort -u"), "batch*\nextra");
    c.ok("sbatch -W -p extra -o extra.out --wrap 'echo $SLURM_JOB_PARTITION $SLURMD_NODENAME'");
    assert_eq!(c.read("extra.out"), "extra n2\n");
    std::fs::write(&conf, format!("{text}PartitionName=bad Nodes=nosuch\n")).unwrap();
    let refused = c.run("scontrol reconfigure");
    assert!(
        refused.code != 0 && refused.err.contains("nosuch"),
        "{refused:?}"
    );
    assert_eq!(c.ok(&format!("squeue -h -j {job},{job} -o %T")), "RUNNING");
    c.write("go", "");
    c.until_prints(&format!("sacct -X -n -P -j {job} -o State"), "COMPLETED");
}

#[test]
fn partitions_made_at_run_time_outlive_the_controller() {
    let c = Cluster::start(2, 2);
    c.ok("scontrol create Nodes=n2 PartitionName=fast MaxTime=10 PriorityTier=7");
    let shown = c.ok("scontrol -o show partition fast");
    for part in [
        "PartitionName=fast",
        " Nodes=n2 ",
        "MaxTime=00:10:00",
        "PriorityTier=7",
        "State=UP",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let twice = c.run("scontrol create partition=fast");
    assert!(
        twice.code == 1
            && twice
                .err
                .contains("Error creating the partition: Invalid partition name specified"),
        "{twice:?}"
    );
    c.ok("scontrol update partitionname=batch MaxTime=60");
    c.ok("sbatch -W -p fast -o fast.out --wrap 'echo $SLURM_JOB_PARTITION $SLURMD_NODENAME'");
    assert_eq!(c.read("fast.out"), "fast n2\n");
    let waits = c.sbatch("-H -p fast -o /dev/null --wrap true");
    c.kill(c.controller());
    assert_eq!(c.start_controller().code, 0);
    assert_eq!(
        c.ok("sinfo -h -o '%P %l' | sort"),
        "batch* 1:00:00\nfast 10:00"
    );
    let used = c.run("scontrol delete PartitionName=fast");
    assert!(
        used.code == 1
            && used
                .err
                .contains("delete_partition PartitionName=fast: Partition is in use"),
        "{used:?}"
    );
    c.ok(&format!("scancel {waits}"));
    c.ok("scontrol delete partition fast");
    assert_eq!(c.ok("sinfo -h -o %P"), "batch*");
    let gone = c.run("sbatch -p fast --wrap true");
    assert!(
        gone.code == 1 && gone.err.contains("invalid partition specified: fast"),
        "{gone:?}"
    );
    c.ok("scontrol create PartitionName=brief");
    c.ok("scontrol reconfigure");
    assert_eq!(c.ok("sinfo -h -o '%P %l'"), "batch* infinite");
    for (wrong, said) in [
        ("create nosuch=1", "Invalid creation entity: nosuch=1"),
        ("create PartitionName=DEFAULT", "PartitionName cannot be"),
        (
            "create PartitionName=x Colour=red",
            "not supported: Colour=red",
        ),
        (
            "delete PartitionName=nosuch",
            "Invalid partition name specified",
        ),
        ("delete nosuch", "Proper format is"),
        ("create NodeName=n9", "State=CLOUD"),
    ] {
        let ran = c.run(&format!("scontrol {wrong}"));
        assert!(ran.code == 1 && ran.err.contains(said), "{wrong}: {ran:?}");
    }
}

#[test]
fn a_failed_prolog_or_epilog_drains_the_node() {
    let c = Cluster::start(2, 2);
    let program = |name: &str, text: &str| {
        let path = c.path(name);
        std::fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        path.display().to_string()
    };
    let marker = c.path("broken").display().to_string();
    let prolog = program("prolog", &format!("[ ! -e {marker}.$SLURMD_NODENAME ]"));
    let epilog = program("epilog", &format!("[ ! -e {marker}.epilog ]"));
    let conf = c.path("slurm.conf");
    let text = std::fs::read_to_string(&conf).unwrap();
    std::fs::write(
        &conf,
        format!("{text}Prolog={prolog}\nEpilog={epilog}\nPrologEpilogTimeout=30\n"),
    )
    .unwrap();
    c.ok("scontrol reconfigure");
    std::fs::write(format!("{marker}.n1"), "").unwrap();
    let job = c.sbatch("-w n1 -o held.out --wrap 'echo ran'");
    c.until_prints(
        &format!("squeue -h -j {job},{job} -o '%T %r'"),
        "PENDING launch failed requeued held",
    );
    c.until_prints(
        &format!("scontrol show job {job} | grep -o 'Reason=[a-z_]*'"),
        "Reason=launch_failed_requeued_held",
    );
    c.until_prints(
        "sinfo -h -n n1 -o '%T %E'",
        &format!("drained Prolog error: Prolog {prolog} failed: exit status 1"),
    );
    std::fs::remove_file(format!("{marker}.n1")).unwrap();
    c.ok("scontrol update nodename=n1 state=resume");
    c.ok(&format!("scontrol release {job}"));
    c.until_prints(&format!("sacct -X -n -P -j {job} -o State"), "COMPLETED");
    std::fs::write(format!("{marker}.epilog"), "").unwrap();
    c.ok("sbatch -W -w n2 -o /dev/null --wrap true");
    c.until_prints(
        "sinfo -h -n n2 -o '%T %E'",
        &format!("drained Epilog error: {epilog}: exit status 1"),
    );
}

/// The file of a published guide to Slurm with MPI, as a site would bring it.
const SITE: &str = "\
ClusterName=sltest
SlurmctldHost=slurm-srv
AuthType=auth/munge
PluginDir=/opt/slurm/lib64/slurm
SchedulerType=sched/backfill
SelectType=select/linear
SlurmUser=slurm
SlurmctldPort=7002
SlurmctldTimeout=300
SlurmdPort=7003
SlurmdSpoolDir=/var/spool/slurmd
SlurmdTimeout=300
SlurmctldLogFile=/var/log/slurm/slurmctld.log
SlurmdLogFile=/var/log/slurm/slurmd.log
SlurmdDebug=3
StateSaveLocation=/var/spool/slurmd
SwitchType=switch/none
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=slurm-srv
AccountingStoragePort=7004
MpiDefault=pmix
NodeName=inst-aaaaa-x9,inst-bbbbb-x9 CPUs=36 Boards=1 SocketsPerBoard=2 CoresPerSocket=18 ThreadsPerCore=1 RealMemory=500000 TmpDisk=10000 State=UNKNOWN
PartitionName=sltest Nodes=ALL Default=YES MaxTime=INFINITE State=UP
TaskPlugin=task/affinity
";

#[test]
fn the_cluster_of_a_sites_slurm_conf_is_emulated_here() {
    let c = Cluster::from_conf(SITE);
    assert_eq!(
        c.ok("sinfo"),
        "PARTITION AVAIL  TIMELIMIT  NODES  STATE NODELIST\n\
         sltest*      up   infinite      2   idle inst-aaaaa-x9,inst-bbbbb-x9"
    );
    c.ok("sbatch -W -N 2 -n 72 -J ring -o stdout.%J --wrap 'echo $SLURM_JOB_CPUS_PER_NODE'");
    assert_eq!(c.read("stdout.1"), "36(x2)\n");
    let out = c.ok("srun -N2 -l bash -c 'echo $SLURMD_NODENAME' | sort");
    assert_eq!(out, "0: inst-aaaaa-x9\n1: inst-bbbbb-x9");
    assert_eq!(
        c.ok("sacct -n -P -j 1 -o JobID,AllocCPUS,State"),
        "1|72|COMPLETED\n1.batch|36|COMPLETED"
    );
}

#[test]
fn a_running_job_gives_up_nodes() {
    let c = Cluster::start(3, 2);
    c.write(
        "shrink.sh",
        "#!/bin/bash\n#SBATCH -N3 -n3 -o shrink.out\n\
         srun --ntasks-per-node=1 bash -c 'touch runs.$SLURMD_NODENAME; until [ -e go ]; do sleep 0.05; done' &\n\
         until [ -e runs.n3 ]; do sleep 0.05; done\n\
         scontrol update JobId=$SLURM_JOB_ID NumNodes=2\n\
         . ./slurm_job_${SLURM_JOB_ID}_resize.sh\n\
         echo $SLURM_JOB_NODELIST $SLURM_NNODES $SLURM_JOB_CPUS_PER_NODE ${SLURM_NTASKS-none}\n\
         srun --overlap -l bash -c 'echo $SLURMD_NODENAME of $SLURM_JOB_NODELIST'\n\
         srun --overlap -N3 true; echo three: $?\n\
         wait\n",
    );
    let job = c.sbatch("shrink.sh");
    c.until("it is smaller", || {
        c.read_if_there("shrink.out").contains("three: ")
    });
    let out = c.read("shrink.out");
    for line in [
        "n[1-2] 2 1(x2) none\n",
        "0: n1 of n[1-2]\n",
        "1: n2 of n[1-2]\n",
        "three: 1\n",
    ] {
        assert!(out.contains(line), "{line}: {out}");
    }
    c.until_prints(&format!("squeue -h -j {job} -o '%D %N %C'"), "2 n[1-2] 2");
    let shown = c.ok(&format!("scontrol show job {job}"));
    for part in ["ResizeTime=2", "NumNodes=2 NumCPUs=2"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    // Others have the node, at once.
    assert_eq!(c.ok("srun -w n3 -n2 echo other"), "other\nother");
    let more = c.run(&format!("scontrol update JobId={job} NumNodes=3"));
    assert!(
        more.code == 1 && more.err.contains("not supported"),
        "{more:?}"
    );
    // A controller that comes back knows, and so does an agent.
    c.kill(c.controller());
    assert_eq!(c.start_controller().code, 0);
    c.until_prints(&format!("squeue -h -j {job} -o '%D %N'"), "2 n[1-2]");
    c.write("go", "");
    c.until_prints(
        &format!("sacct -X -n -P -j {job} -o State,NNodes,NodeList"),
        "RESIZING|3|n[1-3]\nCOMPLETED|2|n[1-2]",
    );
}

/// slurmctld(8): `-c` clears all state, and Slurm's own tests start it with `-i` beside it.
#[test]
fn a_controller_can_start_without_its_saved_state() {
    let c = Cluster::start(3, 2);
    c.ok("scontrol create reservation=r1 starttime=now duration=60 nodes=n1 users=$(id -un)");
    c.ok("scontrol create reservation=r2 starttime=now+1hour duration=60 nodes=n2 users=$(id -un)");
    let running = c.sbatch("--reservation=r1 -o /dev/null --wrap 'sleep 1000'");
    let other = c.sbatch("-H -o /dev/null --wrap 'sleep 1000'");
    c.until_prints(&format!("squeue -h -j {running} -o %T"), "RUNNING");
    c.ok("scontrol update nodename=n3 state=drain reason=broken");
    c.ok("scontrol update partition=$(sinfo -h -o %R | head -1) state=down");
    c.ok("strigger --set --node --down --program=/bin/true");
    c.kill(c.controller());
    c.ok("slurmctld -c -i");
    c.until_prints("squeue -h -o %i | wc -l", "0");
    c.until_prints(
        "scontrol -o show reservation | grep -c ReservationName || true",
        "0",
    );
    c.until_prints("sinfo -h -o '%a %D %t'", "up 3 idle");
    assert_eq!(c.ok("strigger --noheader --get"), "");
    for job in [running, other] {
        assert!(c.state(job).starts_with("CANCELLED"), "{}", c.state(job));
    }
    assert_eq!(c.run("scontrol show node n3 | grep Reason").code, 1);
}

/// `DataParserParameters` is the version for a whole site, SLURM_JSON the form for a user.
#[test]
fn the_site_chooses_the_version_of_json() {
    let c = Cluster::start(1, 1);
    let version = "grep -o 'v0[.]0[.][0-9]*' | head -1";
    assert_eq!(c.ok(&format!("squeue --json | {version}")), "v0.0.43");
    c.ok("echo DataParserParameters=v0.0.40 >>$SLURM_CONF; muster config check $SLURM_CONF");
    for command in [
        "squeue --json",
        "sinfo --json",
        "sacct --json",
        "scontrol --json show jobs",
    ] {
        assert_eq!(
            c.ok(&format!("{command} | {version}")),
            "v0.0.40",
            "{command}"
        );
    }
    assert_eq!(
        c.ok(&format!("squeue --json=v0.0.41 | {version}")),
        "v0.0.41"
    );
    assert_eq!(c.ok("SLURM_JSON=compact squeue --json | wc -l"), "1");
    c.ok("sed -i s/v0.0.40/v0.0.7/ $SLURM_CONF");
    let wrong = c.run("squeue --json");
    assert!(
        wrong
            .err
            .contains("DataParserParameters: no data parser v0.0.7"),
        "{}",
        wrong.err
    );
}
