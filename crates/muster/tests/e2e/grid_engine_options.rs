//! Options of qsub, qalter, qrsh and qmod, and what chooses queues and hosts, on a real cluster.

use crate::cluster::Cluster;

/// Two queues on all nodes, a feature and licenses.
fn cluster() -> Cluster {
    let c = Cluster::from_conf(
        "ClusterName=c\nNodeName=n[1-2] CPUs=2 Feature=big\nPartitionName=batch Nodes=ALL Default=YES\n\
         PartitionName=zq Nodes=ALL\nLicenses=matlab:3\n",
    );
    c.write(
        "sge_conf",
        "queue long.q zq\ncomplex big feature:big\ncomplex lic license:matlab\n",
    );
    c.ok("cp sge_conf \"$(dirname $SLURM_CONF)/sge.conf\"");
    c
}

#[test]
fn jobs_have_what_options_of_qsub_say() {
    let c = cluster();
    c.write(
        "job.sh",
        "umask\necho $SLURM_MEM_BIND $QUEUE $SLURM_JOB_PARTITION $NHOSTS\n",
    );
    let qsub = "qsub -terse -cwd -j y -sync y";
    c.ok(&format!(
        "{qsub} -o 1 -umask 027 -mbind cores:strict -soft -q long.q -hard job.sh"
    ));
    assert_eq!(c.read("1"), "0027\nlocal long.q zq 1\n");
    c.ok(&format!(
        "{qsub} -o 2 -q all.q,long.q -soft -q all.q -hard -pe smp 2 -par 1 job.sh"
    ));
    assert_eq!(c.read("2"), "0022\nall.q batch 2\n");
    c.ok(&format!("{qsub} -o 3 -pe mpi 2 -masterq long.q job.sh"));
    assert_eq!(c.read("3"), "0022\nlong.q zq 1\n");
    let shown = c.ok(
        "qsub -verify -N V -v A=1 -pe mpi 2 -masterq long.q -q long.q -soft -q long.q -l big -b y true",
    );
    for line in [
        "job_number:                 0\n",
        "soft resource_list:         big=TRUE\n",
        "job_name:                   V\n",
        "hard_queue_list:            long.q\n",
        "soft_queue_list:            long.q\n",
        "master hard queue_list:     long.q\n",
        "env_list:                   A=1\n",
        "parallel environment:  mpi range: 2\n",
    ] {
        assert!(shown.contains(line), "{line}: {shown}");
    }
    assert_eq!(c.ok("squeue -h"), "", "nothing was submitted");
    for (options, why) in [
        (
            "-soft -l lic=1",
            "Unable to run job: denied: soft requests on consumables like \"lic\" are not supported\nExiting.\n",
        ),
        (
            "-masterq long.q",
            "Unable to run job: job rejected: specification of master queue is not allowed for non-parallel jobs\nExiting.\n",
        ),
        (
            "-par 1",
            "Unable to run job: job rejected: -par is the rule of a parallel environment, and there is no -pe\nExiting.\n",
        ),
        (
            "-now y -t 1-2",
            "qsub: -now y of an array of several tasks is not supported: tasks of an array start one by one; use -pe\n",
        ),
    ] {
        let ran = c.run(&format!("qsub {options} -b y true"));
        assert_eq!((ran.code, ran.err.as_str()), (1, why), "{options}");
    }
}

/// It asked accounting for the ends, and failed where there is none.
#[test]
fn qsub_waits_for_ends_without_accounting() {
    let c = cluster();
    c.write("job.sh", "exit $SGE_TASK_ID\n");
    let ran = c.run("qsub -terse -o /dev/null -j y -t 3-4 -sync y job.sh");
    assert_eq!(
        (ran.code, ran.out.as_str()),
        (
            3,
            "1.3-4:1\nJob 1.3 exited with exit code 3.\nJob 1.4 exited with exit code 4.\n"
        )
    );
}

#[test]
fn a_job_that_is_to_start_now_starts_or_is_refused() {
    let c = Cluster::start(1, 2);
    let ran = c.run("qsub -now y -pe smp 2 -o /dev/null -j y -b y sleep 1000");
    assert_eq!(
        (ran.code, ran.err.as_str()),
        (0, "Your immediate job 1 has been successfully scheduled.\n")
    );
    c.until_prints("squeue -h -j 1 -o %T", "RUNNING");
    let ran = c.run("qsub -now y -b y sleep 1");
    assert_eq!(
        (ran.code, ran.err.as_str()),
        (
            1,
            "Your qsub request could not be scheduled; try again later.\n"
        )
    );
    assert_eq!(c.ok("squeue -h -o %i"), "1");
}

#[test]
fn queues_and_hosts_are_chosen_by_what_they_have() {
    let c = cluster();
    c.ok("qsub -o /dev/null -j y -q long.q -N L -b y sleep 1000");
    c.ok("qsub -o /dev/null -j y -N A -b y sleep 1000");
    c.until_prints("squeue -h -t R -o %j | sort | xargs", "A L");
    let jobs = |options: &str| {
        c.ok(&format!(
            "qstat {options} | awk 'NR > 2 {{print $3}}' | xargs"
        ))
    };
    for (options, want) in [
        ("-l q=long.q", "L"),
        ("-l lic=3", "A L"),
        ("-l lic=4", ""),
        ("-l big=n", ""),
        ("-pe smp -U nobody", "A L"),
    ] {
        let mut found: Vec<String> = jobs(options).split(' ').map(str::to_owned).collect();
        found.sort();
        assert_eq!(found.join(" "), want, "{options}");
    }
    assert_eq!(c.ok("qselect -l big,h=n2 -q long.q"), "long.q@n2");
    assert_eq!(
        c.ok("qhost -l num_proc=2,h=n1 | awk 'NR > 3 {print $1}'"),
        "n1"
    );
    c.ok("scontrol update partition=zq allowgroups=root");
    assert_eq!(c.ok("qselect -U nobody -l h=n1"), "all.q@n1");
    let ran = c.run("qstat -l nosuch=1");
    assert_eq!(
        (ran.code, ran.err.as_str()),
        (1, "error: unknown resource \"nosuch\"\n")
    );
    let urgency = c.ok("qstat -urg");
    assert!(
        urgency.starts_with(
            "job-ID  prior   nurg    urg      rrcontr  wtcontr  dlcontr  name       user         state submit/start at      deadline           queue                          slots ja-task-ID \n"
        ),
        "{urgency}"
    );
}

#[test]
fn queues_are_suspended_with_their_jobs() {
    let c = cluster();
    c.ok("qsub -o /dev/null -j y -q long.q -b y sleep 1000");
    c.ok("qsub -o /dev/null -j y -r y -b y sleep 1000");
    c.until_prints("squeue -h -t R -o %i | sort | xargs", "1 2");
    let said = c.ok("qmod -sq long.q");
    assert!(
        said.ends_with("changed state of \"long.q@n2\" (suspended)\nroot - suspended job 1"),
        "{said}"
    );
    c.until_prints(
        "squeue -h -j 1,2 -o %i%T | sort | xargs",
        "1SUSPENDED 2RUNNING",
    );
    assert_eq!(c.ok("sinfo -h -p zq -o %a"), "down");
    let said = c.ok("qmod -us long.q");
    assert!(said.contains("root - unsuspended job 1\n"), "{said}");
    c.until_prints("squeue -h -j 1 -o %T", "RUNNING");
    assert_eq!(c.ok("sinfo -h -p zq -o %a"), "up");
    assert_eq!(
        c.ok("qmod -cq long.q@n1"),
        "Queue instance \"long.q@n1\" is already in the specified state: no error"
    );
    assert_eq!(
        c.ok("qmod -rq all.q"),
        "root has registered the job 2 for rescheduling"
    );
    let ran = c.run("qmod -s nosuch.q");
    assert_eq!(
        (ran.code, ran.err.as_str()),
        (1, "invalid queue or job \"nosuch.q\"\n")
    );
}

#[test]
fn qrsh_takes_options_of_files_and_its_own_streams() {
    let c = cluster();
    c.write("options", "-N fromfile\n-soft -q long.q\n");
    c.write("in", "hello\n");
    assert_eq!(
        c.ok("qrsh -@ options 'echo $JOB_NAME $SLURM_JOB_PARTITION'"),
        "fromfile zq"
    );
    assert_eq!(
        c.ok("qrsh -cwd -i in -o out -e err 'cat; echo e >&2'; cat out err"),
        "hello\ne"
    );
    c.ok("qsub -h -N FIRST -b y -o /dev/null -j y true");
    let ran = c.run("qrsh -hold_jid FIRST true");
    assert_ne!(ran.code, 0, "it would wait: {ran:?}");
    c.ok("qdel FIRST");
    assert_eq!(
        c.ok("qrsh -now n -hold_jid FIRST -notify -l h_rt=120 echo ran"),
        "ran"
    );
    c.ok("mkdir home; echo '-N request' >.sge_request");
    assert_eq!(c.ok("qrsh 'echo $JOB_NAME'"), "request");
}
