//! The commands of Grid Engine on a real cluster.

use crate::cluster::Cluster;

/// Times, the user's name and columns that depend on the machine, as the same text everywhere.
pub(crate) fn normalised(text: &str, user: &str) -> String {
    let mut out = String::new();
    for line in text.lines() {
        let mut line = line.replace(&format!(" {user:<12} "), " USER         ");
        let is_date = |at: usize, line: &str| {
            line.get(at..at + 19).is_some_and(|part| {
                part.char_indices().all(|(i, c)| match i {
                    2 | 5 => c == '/',
                    10 => c == ' ',
                    13 | 16 => c == ':',
                    _ => c.is_ascii_digit(),
                })
            })
        };
        if let Some(at) = (0..line.len()).find(|at| is_date(*at, &line)) {
            line.replace_range(at..at + 19, "MM/DD/YYYY hh:mm:ss");
        }
        // Priorities depend on numbers of jobs.
        if line.get(7..10) == Some(" 0.") || line.get(7..10) == Some(" 1.") {
            let prior = if &line[8..15] == "0.00000" {
                "0.00000"
            } else {
                "N.NNNNN"
            };
            line.replace_range(8..15, prior);
        }
        out.push_str(&line);
        out.push('\n');
    }
    out
}

pub(crate) fn user(c: &Cluster) -> String {
    c.ok("id -un").trim().to_owned()
}

#[test]
fn qsub_runs_a_script_with_its_lines_of_options() {
    let c = Cluster::start(2, 4);
    c.write(
        "job.sh",
        "#!/bin/bash\n#$ -N hello -cwd\n#$ -j y\n#$ -l h_rt=600\n#$ -v FOO=bar\n\
         echo \"$JOB_ID $JOB_NAME $FOO $SGE_TASK_ID $NSLOTS $NHOSTS $QUEUE $ENVIRONMENT $RESTARTED $1,$2 ${HIDDEN-none}\"\n\
         echo to-stderr >&2\nexit 3\n",
    );
    let ran = c.run("HIDDEN=1 qsub -sync y job.sh first 'second word'");
    assert_eq!(ran.code, 3, "{ran:?}");
    assert_eq!(
        ran.out + &ran.err,
        "Your job 1 (\"hello\") has been submitted\nJob 1 exited with exit code 3.\n"
    );
    assert_eq!(
        c.read("hello.o1"),
        "1 hello bar undefined 1 1 all.q BATCH 0 first,second word none\nto-stderr\n"
    );
    // The command line is stronger than the script; -V takes all variables along.
    let ran = c.run("HIDDEN=1 qsub -V -terse -N other -j n -sync y job.sh");
    assert_eq!(
        (ran.out + &ran.err, ran.code),
        ("2\nJob 2 exited with exit code 3.\n".to_owned(), 3)
    );
    assert!(
        c.read("other.o2").ends_with(" , 1\n"),
        "{}",
        c.read("other.o2")
    );
    assert_eq!(c.read("other.e2"), "to-stderr\n");
    // Commands and standard input.
    let ran = c
        .run("qsub -b y -cwd -o out.$JOB_ID -j y -sync y sh -c 'echo \"$JOB_SCRIPT\"; kill -9 $$'");
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(
        ran.err
            .ends_with("Job 3 exited because of signal SIGKILL\n"),
        "{ran:?}"
    );
    c.ok("echo 'echo from stdin' | qsub -cwd -sync y");
    assert_eq!(c.read("STDIN.o4"), "from stdin\n");
    c.write(".sge_request", "-N from_file\n# a comment\n-j y\n");
    let ran =
        c.run("qsub -cwd -sync y -b y echo x; qsub -clear -cwd -b y -sync y -o /dev/null echo x");
    assert!(
        ran.out.contains("(\"from_file\")") && ran.out.contains("(\"echo\")"),
        "{ran:?}"
    );
    assert_eq!(c.read("from_file.o5"), "x\n");
}

#[test]
fn arrays_predecessors_and_parallel_environments() {
    let c = Cluster::start(2, 4);
    c.write(
        "task.sh",
        "#!/bin/sh\n#$ -cwd -j y -N arr -t 1-5:2\n\
         echo \"$JOB_ID $SGE_TASK_ID $SGE_TASK_FIRST $SGE_TASK_LAST $SGE_TASK_STEPSIZE\"\nexit $SGE_TASK_ID\n",
    );
    let ran = c.run("qsub -sync y task.sh");
    assert_eq!(
        ran.out + &ran.err,
        "Your job-array 1.1-5:2 (\"arr\") has been submitted\nJob 1.1 exited with exit code 1.\n\
         Job 1.3 exited with exit code 3.\nJob 1.5 exited with exit code 5.\n"
    );
    assert_eq!(ran.code, 1);
    assert_eq!(c.read("arr.o1.3"), "1 3 1 5 2\n");
    // A job waits for others by name and number, whatever their exit status; names of no job hold nothing.
    c.ok("qsub -h -b y -cwd -N first -o log -j y sh -c 'echo first >>log; exit 1'");
    let held = c.ok(
        "qsub -terse -b y -cwd -N second -hold_jid first,nosuch -o log -j y 'echo second >>log'",
    );
    let held = held.trim();
    let detail = c.ok(&format!("qstat -j {held}"));
    assert!(detail.contains("jid_predecessor_list:       "), "{detail}");
    c.ok("scontrol release JobName=first");
    c.until_prints(&format!("squeue -h -t all -j {held} -o %T"), "COMPLETED");
    assert_eq!(c.read("log"), "first\nsecond\n");
    // All slots on one host, and slots over two.
    c.write(
        "pe.sh",
        "#!/bin/bash\n#$ -cwd -j y -N pe -S /bin/bash\necho $PE $NSLOTS $NHOSTS\ncat $PE_HOSTFILE $PE_HOSTFILE\n",
    );
    let number = |line: String| line.lines().next().unwrap_or_default().to_owned();
    let one = number(c.ok("qsub -terse -pe smp 3 -sync y pe.sh"));
    let two = number(c.ok("qsub -terse -pe mpi 6 -N two -sync y pe.sh"));
    let one = c.read(&format!("pe.o{one}"));
    assert!(
        one == "smp 3 1\nn1 3 all.q@n1 UNDEFINED\nn1 3 all.q@n1 UNDEFINED\n",
        "{one}"
    );
    let two = c.read(&format!("two.o{two}"));
    assert!(two.starts_with("mpi 6 2\nn1 "), "{two}");
    assert_eq!(two.lines().count(), 5, "{two}");
    // Of a range, as many as there are: three slots are taken, and five of "2,4-8" are left.
    c.ok("qsub -b y -N holder -pe smp 3 -o /dev/null -j y sleep 600");
    c.until_prints("squeue -h -n holder -o %T", "RUNNING");
    let range = number(c.ok("qsub -terse -pe mpi 2,4-8 -N range -sync y pe.sh"));
    let ran = c.read(&format!("range.o{range}"));
    assert!(
        ran.starts_with("mpi 5 2\nn1 1 all.q@n1 UNDEFINED\nn2 4 all.q@n2 UNDEFINED\n"),
        "{ran}"
    );
    let detail = c.ok("qsub -terse -b y -h -pe smp 2-3 true");
    let detail = c.ok(&format!("qstat -j {}", detail.trim()));
    assert!(
        detail.contains("parallel environment:  smp range: 2-3\n"),
        "{detail}"
    );
    let slots = format!("sacct -X -n -P -j {range} -o NCPUS,NTasks");
    c.until_prints(&format!("qacct -j {range} | grep ^slots"), "slots        5");
    assert_eq!(c.ok(&slots).split('|').next(), Some("5"));
    c.ok("qdel holder");
}

#[test]
fn a_script_of_csh_has_the_file_of_its_hosts() {
    if !std::path::Path::new("/bin/csh").exists() {
        eprintln!("/bin/csh is not installed");
        return;
    }
    let c = Cluster::start(2, 4);
    std::fs::write(c.path("sge.conf"), "pe mpi $fill_up\n").unwrap();
    c.ok("scontrol reconfigure");
    c.write(
        "pe.csh",
        "#!/bin/csh -f\n#$ -cwd -j y -o out -pe mpi 6\ncat $PE_HOSTFILE $PE_HOSTFILE\n",
    );
    c.ok("qsub -terse -S /bin/csh -sync y pe.csh");
    let hosts = c.read("out");
    assert!(hosts.starts_with("n1 "), "{hosts}");
    assert_eq!(hosts.lines().count(), 4, "{hosts}");
}

#[test]
fn qsub_says_what_is_wrong_in_grid_engines_words() {
    let c = Cluster::start(1, 2);
    c.write(
        "bad.sh",
        "#!/bin/sh\n#$ -N ok\n#$ -l h_rt=abc,nosuch=1\ntrue\n",
    );
    c.write("worse.sh", "#!/bin/sh\n#$ -cwd\n#$ -nonsense\ntrue\n");
    for (command, code, text) in [
        (
            "qsub -b y -N PEX -pe nosuch 2 sleep 5",
            1,
            "Unable to run job: job rejected: the requested parallel environment \"nosuch\" does not exist\nExiting.\n",
        ),
        (
            "qsub -b y -l h_rt=abc true",
            1,
            "Unable to run job: attribute \"h_rt\" is not a time value\nExiting.\n",
        ),
        (
            "qsub -b y -q nosuch.q sleep 5",
            1,
            "Unable to run job: Job was rejected because job requests unknown queue \"nosuch.q\"\nExiting.\n",
        ),
        (
            "qsub /nonexist.sh",
            14,
            "Unable to read script file because of error: error opening /nonexist.sh: No such file or directory\n",
        ),
        (
            "qsub -badflag x",
            2,
            "qsub: invalid option argument \"-badflag\"\n",
        ),
        (
            "qsub -N 1bad -b y true",
            1,
            "Unable to run job: denied: \"1bad\" is not a valid object name (cannot start with a digit)\nExiting.\n",
        ),
        (
            "qsub -p 2000 -b y true",
            7,
            "qsub: invalid priority \"2000\".  Must be an integer from -1023 to 1024\n",
        ),
        (
            "qsub worse.sh",
            2,
            "qsub: worse.sh, line 3:\nqsub: invalid option argument \"-nonsense\"\n",
        ),
    ] {
        let ran = c.run(command);
        assert_eq!((ran.code, ran.err.as_str()), (code, text), "{command}");
    }
    let unknown = c.run("qsub -b y -l nosuch=1 sleep 5");
    assert!(
        unknown
            .err
            .ends_with("Unable to run job: unknown resource \"nosuch\"\nExiting.\n"),
        "{unknown:?}"
    );
    let large = c.run("qsub -b y -w e -pe smp 99 sleep 5");
    assert!(
        large
            .err
            .ends_with("Unable to run job: error: no suitable queues\nExiting.\n"),
        "{large:?}"
    );
    assert_eq!(c.run("qsub bad.sh").code, 1);
    assert_eq!(
        c.ok("qsub -w v -b y true"),
        "verification: found suitable queue(s)"
    );
    assert_eq!(c.ok("qstat"), "", "nothing was submitted");
}

#[test]
fn qstat_and_qdel_show_and_end_jobs() {
    let c = Cluster::start(1, 2);
    let user = user(&c);
    let submit = |args: &str| c.ok(&format!("qsub -terse -o /dev/null -j y -b y {args}"));
    submit("-N RUN -pe smp 2 sleep 1000");
    c.until_prints("squeue -h -j 1 -o %T", "RUNNING");
    submit("-N WAIT -l h_rt=600 sleep 1000");
    submit("-N ARRAY -t 1-5:2 -l h_rt=600 sleep 1000");
    submit("-N HELD -h sleep 1000");
    submit("-N DEP -hold_jid HELD sleep 1000");
    let table = "\
job-ID  prior   name       user         state submit/start at     queue                          slots ja-task-ID 
-----------------------------------------------------------------------------------------------------------------
      1 N.NNNNN RUN        USER         r     MM/DD/YYYY hh:mm:ss all.q@n1                           2        
      2 N.NNNNN WAIT       USER         qw    MM/DD/YYYY hh:mm:ss                                    1        
      3 N.NNNNN ARRAY      USER         qw    MM/DD/YYYY hh:mm:ss                                    1 1-5:2
      4 0.00000 HELD       USER         hqw   MM/DD/YYYY hh:mm:ss                                    1        
      5 0.00000 DEP        USER         hqw   MM/DD/YYYY hh:mm:ss                                    1        
";
    let shown = c.run("qstat");
    assert_eq!(normalised(&shown.out, &user), table);
    assert_eq!(c.run("qstat -s r").out.lines().count(), 3);
    assert_eq!(c.run("qstat -s h").out.lines().count(), 4);
    assert_eq!(c.run("qstat -g d -s p").out.lines().count(), 8);
    assert_eq!(c.run("qstat -u nobody").out, "");
    let summary = c.run("qstat -g c").out;
    assert!(
        summary.lines().any(|line| line.starts_with("all.q ")
            && line.ends_with("      2      0      0      2      0      0 ")),
        "{summary}"
    );
    let full = c.run("qstat -f").out;
    assert!(
        full.contains("\nall.q@n1                       BIP   0/2/2          "),
        "{full}"
    );
    assert!(full.contains(" - PENDING JOBS - PENDING JOBS"), "{full}");
    let xml = c.run("qstat -xml").out;
    for part in [
        "<queue_name>all.q@n1</queue_name>\n      <slots>2</slots>\n    </job_list>\n  </queue_info>",
        "<state>hqw</state>",
        "<tasks>1-5:2</tasks>",
    ] {
        assert!(xml.contains(part), "{part}: {xml}");
    }
    let detail = c.ok("qstat -j 1");
    for line in [
        "job_number:                 1",
        "job_name:                   RUN",
        "parallel environment:  smp range: 2",
        "merge:                      y",
        "job_type:                   binary",
    ] {
        assert!(detail.lines().any(|own| own == line), "{line}: {detail}");
    }
    let gone = c.run("qstat -j 99999");
    assert_eq!(
        (gone.code, gone.err.as_str()),
        (1, "Following jobs do not exist: \n99999\n")
    );
    let requests = c.run("qstat -r").out;
    assert!(
        requests.contains("       Hard Resources:   h_rt=600 (0.000000)\n"),
        "{requests}"
    );

    assert_eq!(c.ok("qdel 2"), format!("{user} has deleted job 2"));
    assert_eq!(
        c.ok("qdel 3.1"),
        format!("{user} has deleted job-array task 1 of job 3")
    );
    let unknown = c.run("qdel 99999; qdel nosuchname");
    assert_eq!(unknown.code, 1);
    assert_eq!(
        unknown.out,
        format!(
            "denied: job \"99999\" does not exist\nThe job nosuchname of user(s) {user} does not exist\n"
        )
    );
    let both = c.ok("qdel 1 1");
    assert_eq!(
        both,
        format!("{user} has registered the job 1 for deletion\njob 1 is already in deletion")
    );
    c.ok(&format!("qdel -u {user}"));
    c.until_prints("squeue -h | wc -l", "0");
    assert_eq!(c.run("qstat").out, "");
}

#[test]
fn jobs_are_held_changed_suspended_and_submitted_again() {
    let c = Cluster::start(1, 2);
    let user = user(&c);
    let host = c.ok("hostname -s");
    c.ok("qsub -terse -cwd -o /dev/null -j y -b y -N RUN -r y sleep 1000");
    c.until_prints("squeue -h -j 1 -o %T", "RUNNING");
    c.ok("qsub -terse -cwd -b y -N WAIT -pe smp 2 -o /dev/null -j y sleep 1000");
    assert_eq!(c.ok("qhold 2"), "modified hold of job 2");
    assert!(c.ok("qstat -s hu").contains(" hqw "));
    assert_eq!(c.ok("qrls WAIT"), "modified hold of job 2");
    let unknown = c.run("qhold 99999");
    assert_eq!(
        (unknown.code, unknown.out.as_str()),
        (3, "denied: job \"99999\" does not exist\n")
    );
    assert_eq!(c.ok("qalter -N NEWNAME 2"), "modified job name of job 2");
    assert_eq!(
        c.ok("qalter -l h_rt=120,h_vmem=10M 2"),
        "modified hard resource list of job 2"
    );
    let detail = c.ok("qstat -j 2");
    assert!(
        detail.contains("hard resource_list:         h_rt=120,h_vmem=10M\n"),
        "{detail}"
    );
    assert!(
        detail.contains("job_name:                   NEWNAME\n"),
        "{detail}"
    );
    assert!(c.ok("scontrol show job 2").contains("TimeLimit=00:02:00"));
    // It may wait for more slots than there are, as one of qsub.
    for slots in [4, 2] {
        assert_eq!(
            c.ok(&format!("qalter -pe smp {slots} 2")),
            "modified parallel environment of job 2\nmodified slot range of job 2"
        );
        let detail = c.ok("qstat -j 2");
        let range = format!("environment:  smp range: {slots}\n");
        assert!(detail.contains(&range), "{detail}");
    }
    assert_eq!(c.run("qalter -N x 99999").code, 1);

    assert_eq!(c.ok("qmod -sj 1"), format!("{user} - suspended job 1"));
    assert!(c.ok("qstat -s s").contains(" s     "));
    assert_eq!(c.ok("qmod -usj 1"), format!("{user} - unsuspended job 1"));
    assert_eq!(
        c.run("qmod -cj 99999").out,
        "invalid queue or job \"99999\"\n"
    );
    assert_eq!(
        c.ok("qmod -d all.q"),
        format!("{user}@{host} changed state of \"all.q@n1\" (disabled)")
    );
    let full = c.ok("qstat -f");
    assert!(
        full.lines()
            .any(|line| line.starts_with("all.q@n1 ") && line.ends_with(" d")),
        "{full}"
    );
    c.ok("qmod -e all.q");
    assert_eq!(
        c.run("qmod -d nosuch.q").out,
        "invalid queue \"nosuch.q\"\n"
    );
    let copy = c.ok("qresub NEWNAME");
    assert_eq!(copy, "Your job 3 (\"NEWNAME\") has been submitted");
    assert_eq!(c.run("qresub 99999").out, "job \"99999\" does not exist\n");
    c.ok(&format!("qdel -u {user}"));
}

#[test]
fn hosts_queues_accounting_and_configuration_are_shown() {
    let c = Cluster::start(2, 4);
    let user = user(&c);
    c.write(
        "sge_conf",
        "queue short.q batch\npe pair 2\npe smp $pe_slots\ncomplex slotmem memory\nproject p1 physics\n",
    );
    c.ok("cp sge_conf \"$(dirname $SLURM_CONF)/sge.conf\"");
    let ran = c.run("qsub -q short.q -cwd -j y -N ended -pe pair 4 -l slotmem=10M -sync y -b y 'echo $QUEUE $NHOSTS; exit 3'");
    assert_eq!(ran.code, 3, "{ran:?}");
    assert_eq!(c.read("ended.o1"), "short.q 2\n");
    let record = c.ok("qacct -j 1");
    for line in [
        "qname        short.q             ",
        "jobname      ended               ",
        "jobnumber    1                   ",
        "taskid       undefined",
        "granted_pe   pair                ",
        "slots        4                   ",
        "failed       0    ",
        "exit_status  3                   ",
        "category     -q short.q -l slotmem=10M -pe pair 4",
    ] {
        assert!(record.lines().any(|own| own == line), "{line}: {record}");
    }
    let missing = c.run("qacct -j 99999");
    assert_eq!(
        (missing.code, missing.err.as_str()),
        (1, "error: job id 99999 not found\n")
    );
    let sums = c.ok("qacct -o");
    assert!(sums.starts_with("OWNER "), "{sums}");
    let by_pe = c.ok("qacct -pe pair -P -slots");
    assert!(by_pe.starts_with("PROJECT "), "{by_pe}");
    assert!(
        by_pe.lines().nth(2).unwrap().contains(" pair     4 "),
        "{by_pe}"
    );
    assert_eq!(c.ok("qacct -pe smp").lines().count(), 2);
    let of_task = c.run("qacct -t 1");
    assert_eq!(
        of_task.err,
        "error: -t option requires -j option with an argument\n"
    );
    assert!(sums.lines().any(|line| line.starts_with(&user)), "{sums}");
    assert!(
        c.ok("qacct")
            .starts_with("Total System Usage\n    WALLCLOCK ")
    );

    let hosts = c.ok("qhost -q");
    assert!(
        hosts.contains("\nglobal                  -               -    -    -    -     -"),
        "{hosts}"
    );
    assert!(
        hosts
            .lines()
            .any(|line| line.starts_with("n2                      lx-a")),
        "{hosts}"
    );
    assert!(
        hosts.contains("\n   short.q              BIP   0/0/4"),
        "{hosts}"
    );
    assert!(c.ok("qhost -xml").contains(" <host name='n1'>\n"));
    assert_eq!(
        c.run("qhost -h nosuch").err,
        "error: can't resolve hostname \"nosuch\"\n"
    );
    assert_eq!(c.ok("qselect -q short.q"), "short.q@n1\nshort.q@n2");
    assert_eq!(c.ok("qconf -sql"), "short.q");
    assert_eq!(c.ok("qconf -spl"), "pair\nsmp");
    assert!(c.ok("qconf -sp pair").contains("allocation_rule    2\n"));
    assert!(
        c.ok("qconf -sq short.q")
            .starts_with("qname                 short.q\nhostlist              @allhosts\n")
    );
    assert_eq!(c.ok("qconf -sel"), "n1\nn2");
    assert_eq!(
        c.ok("qconf -shgrpl; qconf -shgrp_tree @allhosts; qconf -shgrp_resolved @allhosts"),
        "@allhosts\n@allhosts\n   n1\n   n2\nn1 n2"
    );
    assert_eq!(
        c.run("qconf -shgrp @nosuch").err,
        "Host group \"@nosuch\" does not exist\n"
    );
    assert_eq!(c.run("qconf -srqs").err, "No resource quota set found\n");
    let hosts = c.ok("qhost -F num_proc -h n1");
    assert!(
        hosts.ends_with("\n    Host Resource(s):      hl:num_proc=4.000000"),
        "{hosts}"
    );
    let queues = c.ok("qstat -F 'num_proc,h*' -q short.q@n1");
    assert!(
        queues.contains("\n\thl:num_proc=4\n\tqf:hostname=n1\n\tqf:h_rt="),
        "{queues}"
    );
    assert!(
        c.ok("qconf -sc")
            .contains("\nslotmem             slotmem    MEMORY      <=      YES         YES")
    );
    assert_eq!(c.ok("qconf -sprjl"), "p1");
    let refused = c.run("qconf -ae new");
    assert!(
        refused.code == 1 && refused.err.contains("NodeName"),
        "{refused:?}"
    );
    assert!(
        c.ok("qping -info")
            .contains("status:                   0\n")
    );

    assert_eq!(c.ok("qacct -j ended | grep ^jobnumber"), "jobnumber    1");

    // What is wrong with the file is shown with its line, and nothing is submitted.
    c.ok("echo 'pe bad $nonsense' >>\"$(dirname $SLURM_CONF)/sge.conf\"");
    let wrong = c.run("qsub -b y true");
    assert_eq!(wrong.code, 1);
    assert!(
        wrong
            .err
            .contains("sge.conf:6: error: '$nonsense' is not a valid allocation rule\n"),
        "{wrong:?}"
    );
}

#[test]
fn qrsh_runs_a_command_with_its_exit_status() {
    let c = Cluster::start(1, 2);
    let ran = c.run("qrsh -now n 'echo $JOB_ID $NSLOTS $SGE_TASK_ID $JOB_SCRIPT; exit 7'");
    assert_eq!(
        (ran.code, ran.out.as_str()),
        (7, "1 1 undefined QRSH\n"),
        "{ran:?}"
    );
    assert_eq!(c.ok("echo word | qrsh cat"), "word");
    assert_eq!(
        c.ok("qrsh -pe smp 2 'echo $NSLOTS $SLURM_CPUS_PER_TASK'"),
        "2 2"
    );
    // A task on a host of the job, started from its script.
    c.write("job.sh", "#!/bin/sh\n#$ -cwd -V -j y -N inherit -pe smp 2\nqrsh -inherit $(cut -d' ' -f1 $PE_HOSTFILE) 'echo task of $SLURM_JOB_ID'\n");
    let ran = c.run("qsub -sync y job.sh; cat inherit.o*");
    assert!(ran.out.contains("task of"), "{ran:?}");
    assert!(
        c.run("qsub -help")
            .out
            .starts_with("SGE 8.1.9\nusage: qsub [options]")
    );
    assert!(
        c.run("qstat --help")
            .out
            .starts_with("SGE 8.1.9\nusage: qstat [options]")
    );
}

/// Two devices and four jobs that want one each: two run with different devices, the others get what they leave.
#[test]
fn devices_are_granted_by_number() {
    let c = Cluster::start(1, 8);
    let conf = c.path("slurm.conf");
    let text = std::fs::read_to_string(&conf).unwrap();
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    for line in lines
        .iter_mut()
        .filter(|line| line.starts_with("NodeName="))
    {
        line.push_str(" Gres=gpu:2");
    }
    std::fs::write(&conf, lines.join("\n") + "\nGresTypes=gpu\n").unwrap();
    std::fs::write(c.path("gres.conf"), "Name=gpu Count=2\n").unwrap();
    c.ok("scontrol reconfigure");
    c.write(
        "demo.sh",
        "#!/bin/sh\n#$ -N TEST_GPU\n#$ -l gpu=1\n\nif [ ${SGE_HGR_gpu} = \"0\" ]; then\nGPU=\"--gpu 0\"\nfi\n\n\
         if [ ${SGE_HGR_gpu} = \"1\" ]; then\nGPU=\"--gpu 1\"\nfi\n\n\
         echo ${GPU} >got.$JOB_ID; while [ ! -e go.$JOB_ID ]; do sleep 0.1; done\n",
    );
    for _ in 0..4 {
        c.ok("qsub -cwd -l h_vmem=10M -j y -o log demo.sh");
    }
    c.until_prints("qstat -s r | grep -c ' TEST_GPU .* r '", "2");
    c.until_prints("cat got.* | sort | tr '\\n' ' '", "--gpu 0 --gpu 1");
    assert_eq!(c.ok("qstat -s p | grep -c ' qw '"), "2");
    let resources = c.ok("qstat -j 1 | grep resource");
    assert!(
        resources
            == "hard resource_list:         gpu=1,h_vmem=10M\nresource map  1:            gpu=n1=(0)"
            || resources
                == "hard resource_list:         gpu=1,h_vmem=10M\nresource map  1:            gpu=n1=(1)",
        "{resources}"
    );
    // The device that a job leaves is that of the next.
    c.ok("touch go.1");
    c.until_prints("cat got.3", c.read("got.1").trim());
    c.ok("touch go.2 go.3 go.4");
    c.until_prints("qstat | wc -l", "0");
}

#[test]
fn exit_codes_bring_a_job_back_or_into_error_state() {
    let c = Cluster::start(1, 4);
    c.write(
        "again.sh",
        "#!/bin/sh\n#$ -cwd -N again -j y -o out\necho run $RESTARTED\n\
         test -e second && exit 100\ntest -e first && { touch second; exit 99; }\ntouch first; exit 99\n",
    );
    let job = c.ok("qsub -terse again.sh").trim().to_owned();
    c.until("the job is in error state", || {
        c.ok("qstat").contains(" Eqw ")
    });
    assert_eq!(c.read("out").lines().count(), 3);
    c.ok("rm first second");
    c.write("second", "");
    let cleared = c.ok(&format!("qmod -cj {job}"));
    assert!(cleared.contains("cleared error state of job"), "{cleared}");
    c.until("it has run again", || c.read("out").lines().count() == 4);
    c.ok(&format!("qdel {job}"));
}

#[test]
fn advance_reservations_are_made_shown_used_and_deleted() {
    let c = Cluster::start(1, 4);
    let granted = |number: u32| format!("Your advance reservation {number} has been granted");
    assert_eq!(
        c.ok("qrsub -a 203001021530 -d 1:00:00 -pe smp 3 -N later"),
        granted(1)
    );
    assert_eq!(c.ok("qrsub -d 600"), granted(2));
    let table = c.ok("qrstat");
    let later = table.lines().find(|line| line.contains(" later "));
    let words: Vec<&str> = later.unwrap_or_default().split_whitespace().collect();
    assert_eq!(
        (words[0], words[3], words[4], words[8]),
        ("1", "w", "01/02/2030", "01:00:00"),
        "{table}"
    );
    assert!(c.ok("scontrol show reservation 1").contains("CoreCnt=3"));
    let job = c.ok("echo true | qsub -terse -ar 2 -l h_rt=60 -o /dev/null -j y");
    let id: u64 = job.trim().parse().unwrap();
    c.until("the job has run", || c.state(id) == "COMPLETED");
    let none = c.run("qrstat -ar 7");
    assert_eq!(
        none.err,
        "Following advance reservations do not exist:\n7\n"
    );
    let deleted = c.run("qrdel 1,7");
    assert_eq!(deleted.code, 1);
    assert!(
        deleted
            .out
            .ends_with(" has deleted advance reservation \"1\"\n")
    );
    assert_eq!(
        deleted.err,
        "denied: advance_reservation \"7\" does not exist\n"
    );
}

#[test]
fn quotas_in_use_and_sums_of_jobs_are_shown() {
    let c = Cluster::from_conf(
        "ClusterName=site\nSlurmctldHost=localhost\nNodeName=n1 CPUs=4 RealMemory=1000\n\
         PartitionName=batch Nodes=n1 Default=YES MaxTime=INFINITE State=UP\nLicenses=matlab:3\n\
         AccountingStorageType=accounting_storage/slurmdbd\nAccountingStorageEnforce=limits\n",
    );
    assert_eq!(c.ok("qquota"), "");
    assert_eq!(c.ok("qsummary"), "");
    let user = user(&c);
    c.ok("sacctmgr -i add account bio grptres=cpu=3");
    c.ok(&format!(
        "sacctmgr -i add user {user} account=bio maxjobs=2"
    ));
    let job = c.sbatch("-A bio -n2 -L matlab:2 -o /dev/null --wrap 'sleep 1000'");
    c.sbatch("-A bio -n2 -a 1-3 -o /dev/null --wrap 'sleep 1000'");
    c.until_prints(&format!("squeue -h -j {job} -o %T"), "RUNNING");
    let table = c.ok("qquota");
    let lines: Vec<&str> = table.lines().skip(2).map(str::trim_end).collect();
    assert_eq!(
        lines,
        [
            "account:bio/1      slots=2/3            projects bio".to_owned(),
            format!(
                "{:<18} jobs=1/2             users {user} projects bio",
                format!("user:{user}/1")
            ),
            "license/1          matlab=2/3           -".to_owned(),
        ],
        "{table}"
    );
    assert_eq!(c.ok("qquota -l matlab").lines().count(), 3);
    assert_eq!(c.ok("qquota -P none -l slots"), "");
    let xml = c.ok("qquota -xml -u '*'");
    assert!(
        xml.contains("<limit resource='slots' limit='3' value='2'/>"),
        "{xml}"
    );
    let sums = c.ok("qsummary -g p");
    let words: Vec<&str> = sums.lines().nth(2).unwrap().split_whitespace().collect();
    assert_eq!(words, ["bio", "1", "2", "3", "6", "0", "0", "0"], "{sums}");
    assert_eq!(c.ok("qsummary -q nosuch"), "");
}

#[test]
fn xml_has_the_elements_of_grid_engine() {
    let c = Cluster::start(1, 2);
    c.ok("qsub -N one -b y -o out -q all.q -l h_rt=600 -M a@b -m be sleep 1000");
    c.ok("echo true | qsub -h -N two -t 1-5:2 -tc 2 -pe smp 2 -hold_jid one");
    c.until("the job runs", || c.state(1) == "RUNNING");
    let xml = c.ok("qstat -j one,two -xml");
    let parsed = c.ok(
        "qstat -j one,two -xml | python3 -c 'import sys,xml.etree.ElementTree as t; r=t.parse(sys.stdin).getroot(); \
         print(r.tag, len(r.find(\"djob_info\")), [e.text for e in r.iter(\"JB_job_name\")], \
         r.find(\".//JB_ja_tasks/ulong_sublist/JAT_status\").text, r.find(\".//JB_mail_options\").text, \
         r.find(\".//JB_pe_range/ranges/RN_min\").text, [e.text for e in r.iter(\"RN_max\")])'",
    );
    assert_eq!(
        parsed.trim(),
        "detailed_job_info 2 ['one', 'two'] 128 1572864 2 ['1', '2', '5']",
        "{xml}"
    );
    assert_eq!(
        c.ok("qstat -j 777 -xml").trim_end(),
        "<?xml version='1.0'?>\n<unknown_jobs >\n    <ST_name>777</ST_name>\n</unknown_jobs>"
    );
    let requests = c.ok("qstat -r -ext -xml");
    for element in [
        "<full_job_name>one</full_job_name>",
        "<hard_request name=\"h_rt\" resource_contribution=\"0.000000\">600</hard_request>",
        "<hard_req_queue>all.q</hard_req_queue>",
        "<requested_pe name=\"smp\">2</requested_pe>",
        "<predecessor_jobs_req>one</predecessor_jobs_req>",
        "<JB_department>defaultdepartment</JB_department>",
    ] {
        assert!(requests.contains(element), "{element}: {requests}");
    }
    let hosts = c.ok("qhost -j -q -xml");
    assert!(
        hosts.contains("name='job_name'>one</jobvalue>")
            && hosts.contains("name='slots_used'>1</queuevalue>"),
        "{hosts}"
    );
}

#[test]
fn users_of_arusers_reserve_for_themselves() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped: needs root");
        return;
    }
    let c = Cluster::start(1, 4);
    let as_nobody =
        |command: &str| format!("setpriv --reuid=65534 --regid=65534 --clear-groups {command}");
    let denied = c.run(&as_nobody("qrsub -d 600"));
    assert_eq!(denied.code, 1);
    assert!(
        denied.err.contains("may not change advance reservations"),
        "{denied:?}"
    );
    c.ok("echo 'arusers nobody' >\"$(dirname $SLURM_CONF)/sge.conf\"");
    c.ok("scontrol reconfigure");
    assert_eq!(
        c.ok(&as_nobody("qrsub -d 600 -pe smp 2")),
        "Your advance reservation 1 has been granted"
    );
    let others = c.run(&as_nobody("qrsub -d 600 -u root"));
    assert!(
        others.err.contains("Users= may only be your own user name"),
        "{others:?}"
    );
    assert_eq!(
        c.ok("qrsub -d 600"),
        "Your advance reservation 2 has been granted"
    );
    let foreign = c.run(&as_nobody("qrdel 2"));
    assert!(foreign.err.contains("2 is not yours"), "{foreign:?}");
    assert_eq!(
        c.ok(&as_nobody("qrdel 1")),
        "nobody has deleted advance reservation \"1\""
    );
}
