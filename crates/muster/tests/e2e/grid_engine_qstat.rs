//! `qstat -g t`, `-t` and `-j` on a real cluster, with the columns and keys of Grid Engine 8.1.9.

use crate::cluster::Cluster;
use crate::grid_engine::{normalised, user};

#[test]
fn slots_of_parallel_jobs_are_shown_with_what_runs_there() {
    let c = Cluster::start(2, 4);
    let user = user(&c);
    c.write(
        "par.sh",
        "#!/bin/bash\n#$ -cwd -V -j y -N PAR -pe mpi 6 -o log\n\
         srun -n 2 -N 2 sh -c 'i=0; while [ $i -lt 400000 ]; do i=$((i+1)); done; touch busy.$SLURM_PROCID; sleep 1000'\n",
    );
    c.ok("qsub par.sh; qsub -b y -N ONE -cwd -o log sleep 1000");
    c.until_prints("ls busy.* 2>/dev/null | wc -l", "2");
    c.until_prints("squeue -h -j 2 -o %T", "RUNNING");
    let slots = normalised(&c.run("qstat -g t").out, &user);
    let first = "      1 N.NNNNN PAR        USER         r     MM/DD/YYYY hh:mm:ss all.q@n1                       MASTER        ";
    assert_eq!(
        slots.lines().take(3).collect::<Vec<_>>(),
        [
            "job-ID  prior   name       user         state submit/start at     queue                          master ja-task-ID ",
            "------------------------------------------------------------------------------------------------------------------",
            first,
        ]
    );
    let slave = |host: &str| format!("{:66}all.q@{host}                       SLAVE         ", "");
    let of_second = first
        .replace("all.q@n1", "all.q@n2")
        .replace("MASTER", "SLAVE ");
    let count = |line: &str| slots.lines().filter(|own| *own == line).count();
    assert_eq!(count(&of_second), 1, "{slots}");
    assert_eq!(count(&slave("n1")) + count(&slave("n2")), 4, "{slots}");
    let with_steps = c.run("qstat -t").out;
    let own = |text: &str| {
        with_steps
            .lines()
            .filter(|line| line.contains(text))
            .count()
    };
    assert!(
        with_steps.starts_with(
            "job-ID  prior   name       user         state submit/start at     queue                          master ja-task-ID task-ID state cpu        mem     io      stat failed \n"
        ),
        "{with_steps}"
    );
    assert_eq!(
        own(" SLAVE            0.n1         r     0"),
        1,
        "{with_steps}"
    );
    assert_eq!(
        own(" SLAVE            0.n2         r     0"),
        1,
        "{with_steps}"
    );
    assert_eq!(
        own(" MASTER                        r     00:00:0"),
        1,
        "{with_steps}"
    );
    let ext = c.run("qstat -ext -s r").out;
    assert_eq!(ext.matches(" r     0:00:0").count(), 2, "{ext}");
    let detail = c.ok("qstat -j PAR");
    assert!(
        detail.contains("\nusage         1:            cpu=00:00:0")
            && detail.contains(" GB s, io=")
            && detail.contains(" GB, vmem="),
        "{detail}"
    );
    let xml = c.ok("qstat -g t -xml -s r");
    assert_eq!(
        xml.matches("<master>SLAVE</master>\n      <slots>1</slots>")
            .count(),
        5,
        "{xml}"
    );
    // What others' jobs use is not asked for.
    if nix::unistd::geteuid().is_root() {
        let other = c.ok("setpriv --reuid=65534 --regid=65534 --clear-groups qstat -t -u '*'");
        assert!(
            !other.contains("0.n1") && other.contains("MASTER"),
            "{other}"
        );
    }
    c.ok(&format!("qdel -u {user}"));
}

/// The use of the nodes that had answered was shown as that of the job, and sstat waited for ever.
#[test]
fn nodes_that_do_not_answer_are_named() {
    let c = Cluster::start(2, 1);
    let job = c.sbatch("-N2 -n2 --wrap 'srun sh -c \"touch up.\\$SLURM_PROCID; sleep 1000\"'");
    c.until_prints("ls up.* 2>/dev/null | wc -l", "2");
    let known = c.run("qstat -ext");
    assert!(known.out.contains(" r     0:00:0"), "{known:?}");
    assert_eq!(known.err, "");
    let pids = c.ok(&format!("pgrep -d ' ' -P {}", c.agent("n2")));
    c.ok(&format!("kill -STOP {pids}"));
    let ext = c.run("qstat -ext");
    let used = c.run(&format!("sstat -n -a -P -j {job} -o JobID,MaxRSSNode"));
    c.ok(&format!("kill -CONT {pids}"));
    assert!(ext.out.contains(" r     NA         NA      NA "), "{ext:?}");
    assert!(
        ext.err.starts_with("warning: no answer from n2: "),
        "{ext:?}"
    );
    assert_eq!(
        (used.code, used.out.trim_end()),
        (0, format!("{job}.batch|n1").as_str())
    );
    let line = "sstat: error: no answer from n2: ";
    assert!(used.err.starts_with(line), "{used:?}");
    c.ok(&format!("scancel {job}"));
}

/// Keys and their order are those of Grid Engine 8.1.9.
#[test]
fn details_have_the_keys_of_grid_engine() {
    let c = Cluster::start(1, 2);
    let user = user(&c);
    c.ok("qsub -b y -N FULL -pe smp 2 -o /dev/null -j y sleep 1000");
    c.until_prints("squeue -h -j 1 -o %T", "RUNNING");
    c.ok("qsub -h -b y -N FIRST -cwd sleep 1");
    c.ok(
        "qsub -b y -N H -h -pe smp 2,4-6 -hold_jid FIRST -m be -M a@b -r y -S /bin/bash -p -5 -o /dev/null -e err.txt \
         -a 203012312359 -q all.q -l h_vmem=1M -A acct -P p1 sleep 1",
    );
    let detail = c.ok("qstat -j H");
    let keys: Vec<&str> = detail
        .lines()
        .skip(1)
        .filter(|line| !line.starts_with(' '))
        .filter_map(|line| line.split_once(':'))
        .map(|(key, _)| key)
        .collect();
    let wanted = "job_number|exec_file|submission_time|owner|uid|group|gid|sge_o_home|sge_o_log_name|sge_o_path|sge_o_shell|sge_o_workdir|\
         sge_o_host|execution_time|account|stderr_path_list|hard resource_list|mail_options|mail_list|notify|job_name|\
         stdout_path_list|priority|jobshare|hard_queue_list|restart|shell_list|script_file|parallel environment|\
         jid_predecessor_list (req)|jid_predecessor_list|project|binding|job_type|submit_cmd|scheduling info";
    assert_eq!(keys, wanted.split('|').collect::<Vec<_>>(), "{detail}");
    for line in [
        "parallel environment:  smp range: 2,4-6",
        "jid_predecessor_list (req): FIRST",
        "jid_predecessor_list:       2",
        "shell_list:                 NONE:/bin/bash",
        "stdout_path_list:           NONE:NONE:/dev/null",
        "scheduling info:            queue instance \"all.q@n1\" dropped because it is full",
        "                            All queues dropped because of overload or full",
        "                            Job is in hold state",
    ] {
        assert!(detail.lines().any(|own| own == line), "{line}: {detail}");
    }
    assert!(
        detail.contains(&format!("sge_o_workdir:              {}\n", c.ok("pwd"))),
        "{detail}"
    );
    assert!(
        c.ok("qstat -j FIRST")
            .contains("jid_successor_list:         3\n")
    );
    assert!(
        c.ok("qstat -r")
            .contains("       Requested PE:     smp 2,4-6\n")
    );
    let xml = c.ok("qstat -j H -xml");
    assert!(
        xml.contains("<RN_min>4</RN_min>\n          <RN_max>6</RN_max>")
            && xml.contains("<MES_message_number>37</MES_message_number>"),
        "{xml}"
    );
    let waiting = c.ok("qstat -j");
    assert_eq!(
        waiting,
        "scheduling info:            queue instance \"all.q@n1\" dropped because it is full\n                            \
         All queues dropped because of overload or full\n\nJobs dropped because of hold state\n\t2,\t3"
    );
    c.ok("qmod -d all.q");
    assert!(c.ok("qstat -j").starts_with(
        "scheduling info:            queue instance \"all.q@n1\" dropped because it is disabled\n"
    ));
    c.ok(&format!("qdel -u {user}"));
}

#[test]
fn variables_of_a_job_are_shown_to_its_owner_alone() {
    let c = Cluster::start(1, 2);
    c.ok("SECRET=1 qsub -h -b y -cwd -v FOO=bar,SECRET -N env true");
    c.ok("qsub -h -b y -N home true");
    let own = c.ok("qstat -j 1");
    assert!(
        own.contains(
            "\njobshare:                   0\nenv_list:                   FOO=bar,SECRET=1\n"
        ),
        "{own}"
    );
    assert!(
        own.contains("\nsge_o_path:                 ")
            && own.contains("\ncwd:                        /"),
        "{own}"
    );
    let home = c.ok("qstat -j 2");
    assert!(
        !home.contains("\nenv_list:") && !home.contains("\ncwd:"),
        "{home}"
    );
    if c.ok("id -u") != "0" {
        return;
    }
    c.ok("chmod 755 . ..");
    let other = crate::rights::as_user(&c, "bin", "qstat -j 1");
    assert!(
        other.out.contains("job_name:                   env\n"),
        "{other:?}"
    );
    assert!(
        !other.out.contains("\nenv_list:") && !other.out.contains("\nsge_o_path:"),
        "{other:?}"
    );
}
