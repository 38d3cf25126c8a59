//! Batch jobs: from sbatch to sacct.

use crate::cluster::Cluster;
use std::collections::BTreeSet;

#[test]
fn a_batch_job_over_two_nodes_runs_and_is_accounted() {
    let c = Cluster::start(2, 4);
    c.write(
        "job.sh",
        "#!/bin/bash\n#SBATCH -J hello -N 2 --ntasks-per-node=2 -c 2\n#SBATCH --output=%x-%j.out\n\
         echo \"$SLURM_JOB_ID $SLURM_JOB_NODELIST $SLURM_NTASKS $SLURM_TASKS_PER_NODE $SLURM_JOB_CPUS_PER_NODE $1\"\n\
         srun bash -c 'echo task $SLURM_PROCID of $SLURM_NTASKS on $SLURMD_NODENAME' | sort\nexit 3\n",
    );
    let text = c.run("sbatch --wait job.sh argument");
    assert_eq!(text.code, 3, "{text:?}");
    assert_eq!(text.out, "Submitted batch job 1\n");
    assert_eq!(
        c.read("hello-1.out"),
        "1 n[1-2] 4 2(x2) 4(x2) argument\ntask 0 of 4 on n1\ntask 1 of 4 on n1\ntask 2 of 4 on n2\ntask 3 of 4 on n2\n"
    );
    c.until_prints("squeue -h -t all -o '%i %T'", "1 FAILED");
    assert_eq!(
        c.ok("sacct -n -P -j 1 -o JobID,JobName,AllocCPUS,State,ExitCode,NodeList"),
        "1|hello|8|FAILED|3:0|n[1-2]\n1.batch|batch|4|FAILED|3:0|n1\n1.0|bash|8|COMPLETED|0:0|n[1-2]"
    );
    assert!(
        c.ok("scontrol show job 1")
            .contains("JobState=FAILED Reason=NonZeroExitCode")
    );
    // Job 0 is every job; task 3 of it, each that is task 3 of an array.
    assert!(c.ok("scontrol show job 0").starts_with("JobId=1 "));
    assert_eq!(c.run("scontrol show job 0_3").out, "Job 0_3 not found\n");
}

#[test]
fn every_task_of_an_array_runs_once_under_its_throttle() {
    let c = Cluster::start(4, 8);
    c.ok("sbatch --wait --array=1-100%7 -o out.%A_%a --wrap 'echo $SLURM_ARRAY_JOB_ID $SLURM_ARRAY_TASK_ID $SLURM_JOB_ID; \
          echo x >>ran.$SLURM_ARRAY_TASK_ID'");
    let mut ids = BTreeSet::new();
    for task in 1..=100 {
        assert_eq!(
            c.read(&format!("ran.{task}")),
            "x\n",
            "task {task} must run once"
        );
        let text = c.read(&format!("out.1_{task}"));
        let words: Vec<&str> = text.split_whitespace().collect();
        assert_eq!(words[..2], ["1", &task.to_string()]);
        ids.insert(words[2].to_owned());
    }
    assert_eq!(ids.len(), 100, "each task has a number of its own");
    let rows = c.ok("sacct -X -n -P -j 1 -o JobID,State,ExitCode");
    assert_eq!(rows.lines().count(), 100);
    assert!(
        rows.lines().all(|row| row.ends_with("|COMPLETED|0:0")),
        "{rows}"
    );
}

#[test]
fn dependencies_hold_jobs_back_until_they_are_satisfied() {
    let c = Cluster::start(1, 4);
    let first = c.sbatch("-o /dev/null --wrap 'until [ -e go ]; do sleep 0.02; done; exit 1'");
    let ok = c.sbatch(&format!("-o /dev/null -d afterok:{first} --wrap true"));
    let never = c.sbatch(&format!(
        "-o /dev/null -d afterok:{first} --kill-on-invalid-dep=yes --wrap true"
    ));
    let not_ok = c.sbatch(&format!(
        "-o /dev/null -d afternotok:{first} --wrap 'echo ran >not_ok'"
    ));
    let any = c.sbatch(&format!(
        "-o /dev/null -d afterany:{first}:{not_ok} --wrap 'cat not_ok >any'"
    ));
    assert_eq!(
        c.ok(&format!("squeue -h -j {any},{ok} -o '%T %r' | sort -u")),
        "PENDING Dependency"
    );
    c.write("go", "");
    c.until_prints(&format!("sacct -X -n -P -j {any} -o State"), "COMPLETED");
    assert_eq!(c.read("any"), "ran\n");
    assert_eq!(
        c.ok(&format!("squeue -h -j {ok},{ok} -o '%T %r'")),
        "PENDING DependencyNeverSatisfied\nPENDING DependencyNeverSatisfied"
            .lines()
            .next()
            .unwrap()
    );
    assert!(
        c.state(never).starts_with("CANCELLED"),
        "{}",
        c.state(never)
    );
    c.ok(&format!("scancel {ok}"));
}

#[test]
fn files_directories_and_scripts_follow_sbatch() {
    let c = Cluster::start(1, 2);
    std::fs::create_dir(c.dir.join("sub")).unwrap();
    c.ok("printf '#!/bin/sh\\necho out; echo err >&2; pwd; umask\\n' | (umask 027; sbatch -W -D sub -o o.%j -e e.%j)");
    let out = c.read("sub/o.1");
    assert!(
        out.starts_with("out\n") && out.contains("/sub\n") && out.ends_with("0027\n"),
        "{out}"
    );
    assert_eq!(c.read("sub/e.1"), "err\n");
    c.ok("sbatch -W -o joined --wrap 'echo a; echo b >&2'");
    assert_eq!(c.read("joined"), "a\nb\n");
    c.ok("sbatch -W -o joined --open-mode=append --wrap 'echo c'");
    assert_eq!(c.read("joined"), "a\nb\nc\n");
    c.ok("sbatch -W -o in.out -i joined --wrap 'cat'");
    assert_eq!(c.read("in.out"), "a\nb\nc\n");
    c.ok("FOO='a b' sbatch -W -o exported --export=FOO,BAR='x y' --wrap 'echo \"$FOO|$BAR|${HOME:-none}\"'");
    assert!(
        c.read("exported").starts_with("a b|x y|"),
        "{}",
        c.read("exported")
    );
    c.ok("sbatch -W --wrap 'echo default'");
    assert_eq!(c.read("slurm-6.out"), "default\n");
}

#[test]
fn the_environment_of_a_job_is_complete() {
    let c = Cluster::start(2, 4);
    c.ok("sbatch -W -J env -N2 --ntasks-per-node=2 -c 2 --mem=100 -o env.out --wrap 'env | sort'");
    let env = c.read("env.out");
    let dir = c.dir.display().to_string();
    for line in [
        "ENVIRONMENT=BATCH",
        "SLURMD_NODENAME=n1",
        "SLURM_CLUSTER_NAME=muster",
        "SLURM_CPUS_ON_NODE=4",
        "SLURM_CPUS_PER_TASK=2",
        "SLURM_GTIDS=0",
        "SLURM_JOBID=1",
        "SLURM_JOB_CPUS_PER_NODE=4(x2)",
        "SLURM_JOB_ID=1",
        "SLURM_JOB_NAME=env",
        "SLURM_JOB_NODELIST=n[1-2]",
        "SLURM_JOB_NUM_NODES=2",
        "SLURM_JOB_PARTITION=batch",
        "SLURM_LOCALID=0",
        "SLURM_MEM_PER_NODE=100",
        "SLURM_NNODES=2",
        "SLURM_NODEID=0",
        "SLURM_NODELIST=n[1-2]",
        "SLURM_NPROCS=4",
        "SLURM_NTASKS=4",
        "SLURM_NTASKS_PER_NODE=2",
        "SLURM_PROCID=0",
        &format!("SLURM_SUBMIT_DIR={dir}"),
        "SLURM_TASKS_PER_NODE=2(x2)",
        "SLURM_TOPOLOGY_ADDR=n1",
    ] {
        assert!(
            env.lines().any(|l| l == line),
            "{line} is missing in\n{env}"
        );
    }
}

/// What a task of `srun -N2 --ntasks-per-node=2 -c 2 --mem=100 env` has under Slurm 22.05.
const OF_A_TASK: [&str; 45] = [
    "SLURMD_NODENAME",
    "SLURM_CLUSTER_NAME",
    "SLURM_CONF",
    "SLURM_CPUS_ON_NODE",
    "SLURM_CPUS_PER_TASK",
    "SLURM_DISTRIBUTION",
    "SLURM_GTIDS",
    "SLURM_JOBID",
    "SLURM_JOB_ACCOUNT",
    "SLURM_JOB_CPUS_PER_NODE",
    "SLURM_JOB_CPUS_PER_NODE_PACK_GROUP_0",
    "SLURM_JOB_GID",
    "SLURM_JOB_ID",
    "SLURM_JOB_NAME",
    "SLURM_JOB_NODELIST",
    "SLURM_JOB_NUM_NODES",
    "SLURM_JOB_PARTITION",
    "SLURM_JOB_QOS",
    "SLURM_JOB_UID",
    "SLURM_JOB_USER",
    "SLURM_LAUNCH_NODE_IPADDR",
    "SLURM_LOCALID",
    "SLURM_MEM_PER_NODE",
    "SLURM_NNODES",
    "SLURM_NODEID",
    "SLURM_NODELIST",
    "SLURM_NODE_ALIASES",
    "SLURM_NPROCS",
    "SLURM_NTASKS",
    "SLURM_NTASKS_PER_NODE",
    "SLURM_PRIO_PROCESS",
    "SLURM_PROCID",
    "SLURM_SRUN_COMM_HOST",
    "SLURM_SRUN_COMM_PORT",
    "SLURM_STEPID",
    "SLURM_STEP_ID",
    "SLURM_STEP_LAUNCHER_PORT",
    "SLURM_STEP_NODELIST",
    "SLURM_STEP_NUM_NODES",
    "SLURM_STEP_NUM_TASKS",
    "SLURM_STEP_TASKS_PER_NODE",
    "SLURM_TASK_PID",
    "SLURM_TOPOLOGY_ADDR",
    "SLURM_UMASK",
    "SLURM_WORKING_CLUSTER",
];

#[test]
fn the_environment_of_a_task_is_complete() {
    let c = Cluster::start(2, 4);
    let env = c.ok("srun -N2 --ntasks-per-node=2 -c 2 --mem=100 -o %t.env env; cat 3.env");
    let names: Vec<&str> = env.lines().filter_map(|l| l.split('=').next()).collect();
    let missing: Vec<_> = OF_A_TASK.iter().filter(|n| !names.contains(n)).collect();
    assert!(missing.is_empty(), "{missing:?} are missing in\n{env}");
    for line in [
        "SLURM_JOB_CPUS_PER_NODE_PACK_GROUP_0=4(x2)",
        "SLURM_SRUN_COMM_PORT=0",
        "SLURM_PROCID=3",
        "SLURM_GTIDS=2,3",
    ] {
        assert!(
            env.lines().any(|l| l == line),
            "{line} is missing in\n{env}"
        );
    }
}

#[test]
fn a_begin_time_and_a_hold_keep_a_job_pending() {
    let c = Cluster::start(1, 2);
    let later = c.sbatch("--begin=now+1hour -o /dev/null --wrap true");
    let held = c.sbatch("-H -o /dev/null --wrap true");
    c.until_prints(
        &format!("squeue -h -S i -o '%i %r' -j {later},{held}"),
        &format!("{later} BeginTime\n{held} JobHeldUser"),
    );
    c.ok(&format!(
        "scontrol release {held} && scontrol update jobid={later} starttime=now"
    ));
    c.until_prints(
        &format!("sacct -X -n -P -o State -j {later},{held}"),
        "COMPLETED\nCOMPLETED",
    );
}

#[test]
fn the_time_limit_ends_a_job_and_says_so() {
    let c = Cluster::start(1, 2);
    let job = c.sbatch("-t 1 -o limit.out --signal=B:USR1@50 --wrap 'trap \"echo warned\" USR1; for i in $(seq 3000); do sleep 0.1; done'");
    c.until("the job is warned", || {
        c.read_if_there("limit.out").contains("warned")
    });
    c.until_prints(&format!("squeue -h -j {job},{job}"), "");
    assert_eq!(c.state(job), "TIMEOUT");
    let out = c.read("limit.out");
    assert!(
        out.contains(&format!("*** JOB {job} ON n1 CANCELLED AT "))
            && out.contains(" DUE TO TIME LIMIT ***"),
        "{out}"
    );
    assert_eq!(
        c.ok(&format!("sacct -X -n -P -j {job} -o ExitCode,Timelimit")),
        "0:0|00:01:00"
    );
}
