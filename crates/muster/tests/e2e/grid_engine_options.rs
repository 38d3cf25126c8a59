//! Options of qsub, qalter, qrsh and qmod, and what chooses queues and hosts, on a real cluster.

use crate::cluster::Cluster;

/// Two queues on all nodes, a feature and licenses.
fn cluster() -> Cluster {
    cluster_with("")
}

/// That cluster with further lines of slurm.conf.
fn cluster_with(lines: &str) -> Cluster {
    let c = Cluster::from_conf(&format!(
        "ClusterName=c\nNodeName=n[1-2] CPUs=2 Feature=big\nPartitionName=batch Nodes=ALL Default=YES\n\
         PartitionName=zq Nodes=ALL\nLicenses=matlab:3\n{lines}",
    ));
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
        (ran.code, ran.out + &ran.err),
        (
            3,
            "1.3-4:1\nJob 1.3 exited with exit code 3.\nJob 1.4 exited with exit code 4.\n"
                .to_owned()
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
        said.ends_with("changed state of \"long.q@n2\" (suspended)"),
        "{said}"
    );
    c.until_prints(
        "squeue -h -j 1,2 -o %i%T | sort | xargs",
        "1SUSPENDED 2RUNNING",
    );
    assert_eq!(c.ok("sinfo -h -p zq -o %a"), "down");
    let said = c.ok("qmod -us long.q");
    assert!(!said.contains("job 1"), "{said}");
    let again = "Queue instance \"long.q@n2\" is already in the specified state: enabled";
    assert_eq!(c.ok("qmod -e long.q@n2"), again);
    let not = c.run("qmod -cj 1");
    assert_eq!(
        (not.code, not.err.trim()),
        (1, "Job 1 is not in error state")
    );
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
        (ran.code, ran.out.as_str()),
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

/// A file of Grid Engine is read as its own qacct reads it, and -l chooses jobs by what their queues have.
#[test]
fn accounting_is_that_of_a_file_or_of_queues_with_resources() {
    let c = cluster_with("AccountingStorageType=accounting_storage/slurmdbd\n");
    let tail = "0:0:0:0:527:0:0:0.000000:32:0:0:0:4:2:NONE:defaultdepartment";
    let line = |name: &str, end: u32, failed: &str| {
        format!(
            "all.q:vm:staff:geuser:{name}:7:sge:0:1796062780:1796062780:{end}:{failed}:10:0.5:0.25:5000.000000:{tail}:\
             smp:2:0:0.750000:0.000000:0.000020:-pe smp 2:0.000000:NONE:3645440.000000:0:0\n"
        )
    };
    let (well, killed) = (
        line("WELL", 1_796_062_790, "0:0"),
        line("KILLED", 1_796_062_791, "100:137"),
    );
    c.write(
        "accounting",
        &format!("# a comment\n{well}{killed}cut:off\n"),
    );
    let all = c.ok("qacct -f accounting -j");
    assert_eq!(all.matches("\njobnumber ").count(), 2, "{all}");
    assert!(all.contains("\nTotal System Usage\n"), "{all}");
    assert!(
        !c.ok("qacct -f accounting -o geuser -j WELL")
            .contains("OWNER")
    );
    let record = c.ok("qacct -f accounting -j KILLED");
    for row in [
        "exit_status  137                  (Killed)",
        "failed       100 : assumedly after job",
        "ru_minflt    527                 ",
        "maxvmem      3.477MB",
        "granted_pe   smp                 ",
    ] {
        assert!(record.contains(&format!("{row}\n")), "{row}\n{record}");
    }
    let sums = c.ok("qacct -f accounting -o geuser -pe");
    let last = sums.lines().last().unwrap();
    assert!(
        last.starts_with("geuser smp            20         1.000         0.500         1.500"),
        "{sums}"
    );
    assert_eq!(c.ok("qacct -f accounting -o nobody | wc -l"), "2");
    assert_eq!(c.ok("qacct -f - -j <accounting | grep -c ^jobnumber"), "2");
    let missing = c.run("qacct -f missing -j");
    let why = "missing: No such file or directory\n";
    assert_eq!((missing.code, missing.err.as_str()), (1, why));

    c.ok("qsub -sync y -o /dev/null -j y -N own -q long.q -b y true");
    let jobs = |options: &str| c.ok(&format!("qacct -j {options} | grep -c ^jobnumber || true"));
    assert_eq!(jobs("-l big"), "1");
    assert_eq!(jobs("-l lic=3,hostname=n?"), "1");
    assert_eq!(jobs("-l lic=4"), "0");
    let unknown = c.run("qacct -l nosuch=1");
    let why = "error: unknown resource \"nosuch\"\n";
    assert_eq!((unknown.code, unknown.err.as_str()), (1, why));
}

/// Lines and exit statuses of Grid Engine 8.1.9 for command lines that change nothing, or that are wrong.
#[test]
fn wrong_words_have_the_exit_statuses_of_grid_engine() {
    let c = cluster();
    c.ok("qsub -h -o /dev/null -j y -N held -l h_rt=0:10:0 -b y true");
    let said = |line: &str| {
        let ran = c.run(line);
        (
            ran.code,
            format!("{}{}", ran.out, ran.err).trim().to_owned(),
        )
    };
    let state =
        |letter: &str| format!("error: unknown queue state: {letter} found in string: {letter}");
    for (line, code, text) in [
        ("qstat -u nosuchuser", 0, String::new()),
        ("qstat -explain z", 1, state("z")),
        ("qstat -qs x", 1, state("x")),
        (
            "qdel -u nosuchuser",
            1,
            "There is no job registered for the following users: nosuchuser".to_owned(),
        ),
        ("qresub 99999", 4, "job \"99999\" does not exist".to_owned()),
        (
            "qhold -h x held",
            7,
            "qalter: Unknown hold list \"x\" specified to -h option: 'x' is not one of u, o, s, n"
                .to_owned(),
        ),
        (
            "qalter -nosuch held",
            2,
            "qalter: invalid option argument \"-nosuch\"".to_owned(),
        ),
        (
            "qalter -R y held",
            0,
            "modified reservation behaviour of job 1".to_owned(),
        ),
        (
            "qalter -a 203012312359 held",
            0,
            "modified start time of job 1".to_owned(),
        ),
        (
            "qalter -js 3 held",
            0,
            "qalter: warning: -js has no effect: shares are those of users and accounts".to_owned(),
        ),
        (
            "qconf -sp nosuch",
            1,
            "nosuch is not a parallel environment".to_owned(),
        ),
        (
            "qconf -se nosuch",
            1,
            "can't resolve hostname \"nosuch\"".to_owned(),
        ),
    ] {
        assert_eq!(said(line), (code, text), "{line}");
    }
    let (code, text) = said("qalter -p -5 held");
    assert!(
        code == 0 && text.ends_with(" sets scheduling priority of job 1 to -5"),
        "{text}"
    );
    assert!(
        c.ok("qconf -se global")
            .contains("complex_values        matlab=3\n")
    );
    let requests = c.ok("qstat -r | grep 'Hard Resources'");
    assert_eq!(requests.trim(), "Hard Resources:   h_rt=600 (0.000000)");
}

/// qhost has a line for each slot, as qstat -g t, and the queue only where it has no line of its own.
#[test]
fn hosts_have_a_line_for_each_slot_of_a_job() {
    let c = cluster();
    c.ok("qsub -o /dev/null -j y -N two -pe smp 2 -b y sleep 1000");
    c.until_prints("squeue -h -t R -o %i", "1");
    let jobs = c.ok("qhost -j | grep -A 3 job-ID");
    let lines: Vec<&str> = jobs.lines().collect();
    assert_eq!(lines.len(), 4, "{jobs}");
    // The blank at the end of the head has no dash.
    assert_eq!(lines[1].trim().len(), 94, "{jobs}");
    assert!(lines[2].contains(" MASTER "), "{jobs}");
    assert!(
        lines[3].trim().ends_with("SLAVE") && lines[3].contains("all.q@n"),
        "{jobs}"
    );
    let with_queues = c.ok("qhost -q -j");
    assert!(
        !with_queues.contains("job-ID") && !with_queues.contains("all.q@"),
        "{with_queues}"
    );
    assert!(
        with_queues.contains(" MASTER ") && with_queues.contains(" SLAVE "),
        "{with_queues}"
    );
    let xml = c.ok("qhost -j -xml");
    assert_eq!(xml.matches("<job name='1'>").count(), 2, "{xml}");
    c.ok("qdel 1");
    c.until_prints("qstat | wc -l", "0");
    let ended = c.ok("qstat -s z | tail -n 1");
    assert!(
        ended.contains(" z ") && !ended.contains("all.q@"),
        "{ended}"
    );
    assert!(
        c.ok("qstat -s z -f")
            .contains(" --  FINISHED JOBS  -  FINISHED JOBS")
    );
}
