//! qalter on a real cluster, and what is said of jobs with a range of slots.

use crate::cluster::Cluster;

#[test]
fn slots_of_a_job_that_waits_are_changed() {
    let c = Cluster::start(1, 2);
    c.ok("qsub -terse -cwd -o /dev/null -j y -b y -N RUN -pe smp 2 -l h_rt=600 sleep 1000");
    c.until_prints("squeue -h -j 1 -o %T", "RUNNING");
    c.ok("qsub -terse -cwd -b y -N WAIT -pe smp 2 sleep 1000");
    // Several changes of one job's request and files keep each other.
    assert_eq!(
        c.ok("qalter -pe mpi 1-2 -l h_vmem=20M -o out -e err 2"),
        "modified parallel environment of job 2\nmodified slot range of job 2\nmodified hard resource list of job 2\n\
         modified stdout path list of job 2\nmodified stderr path list of job 2"
    );
    let detail = c.ok("qstat -j 2");
    assert!(
        detail.contains("parallel environment:  mpi range: 1-2\n")
            && detail.contains("stdout_path_list:           NONE:NONE:")
            && detail.contains("stderr_path_list:           NONE:NONE:"),
        "{detail}"
    );
    assert!(c.ok("scontrol show job 2").contains("MinMemoryCPU=20M"));
    assert_eq!(
        c.ok("qalter -pe smp 2 2"),
        "modified parallel environment of job 2\nmodified slot range of job 2"
    );
    assert!(c.ok("qstat -j 2").contains("environment:  smp range: 2\n"));
    for (command, why) in [
        (
            "qalter -pe smp 2 1",
            "job 1 can't modify running jobs\n".to_owned(),
        ),
        (
            "qalter -pe nosuch 2 2",
            "denied: parallel environment \"nosuch\" does not exist\n".to_owned(),
        ),
    ] {
        let ran = c.run(command);
        assert_eq!((ran.code, ran.out + &ran.err), (1, why), "{command}");
    }
    c.ok("scancel 1");
    c.until_prints("squeue -h -j 2 -o %T", "RUNNING");
    assert!(c.ok("qstat -j 2").contains("environment:  smp range: 2\n"));
}

#[test]
fn a_range_of_slots_has_starts_of_its_own() {
    let c = Cluster::start(1, 2);
    for (name, minutes) in [("A", 10), ("B", 30)] {
        let holder = "-o /dev/null -j y sleep 5000";
        c.ok(&format!(
            "qsub -b y -N {name} -l h_rt=0:{minutes}:0 {holder}"
        ));
        c.until_prints(&format!("squeue -h -n {name} -o %T"), "RUNNING");
    }
    c.ok("qsub -b y -N RANGE -l h_rt=60 -o /dev/null -j y sleep 1");
    c.ok("qalter -pe smp 1-2 RANGE");
    c.until_prints("squeue -h -j 3 -o %r", "Resources");
    let why = c.ok("muster why 3");
    for part in [
        " in partition batch, with 1 task\n",
        "\nIt asks for 1-2 tasks, waits for the least number",
        "\n  1 task: 20",
        "\n  2 tasks: 20",
    ] {
        assert!(why.contains(part), "{part}: {why}");
    }
    let detail = c.ok("qstat -j 3");
    for part in [
        " Job waits: Resources\n",
        " Job waits for 1 slots at least: It is next in partition batch; 1 CPU",
        " With 1 slots its start is expected at ",
        " With 2 slots its start is expected at ",
    ] {
        assert!(detail.contains(part), "{part}: {detail}");
    }
}

#[test]
fn requests_mail_files_and_predecessors_are_changed() {
    let c = Cluster::start(2, 2);
    c.ok("qsub -h -b y -N FIRST -cwd sleep 1");
    c.ok("qsub -h -b y -N ARRAY -t 1-2 -cwd sleep 1");
    c.ok("qsub -h -b y -N WAIT -t 1-2 -cwd -l h_rt=600,h_vmem=10M sleep 1");
    let wait = c.ok("squeue -h -n WAIT -o %F | head -n 1");
    let changed = |options: &str, what: &str| {
        let said = c.ok(&format!("qalter {options} WAIT"));
        assert_eq!(said, format!("modified {what} of job {wait}"), "{options}");
        c.ok(&format!("scontrol show job {wait}"))
    };
    let requests = "hard resource list";
    for (options, what, parts) in [
        (
            "-l h_rt=120,h_vmem=10M,num_proc=2,exclusive,hostname=n2",
            requests,
            &[
                "TimeLimit=00:02:00",
                "ReqNodeList=n2",
                "MinCPUsNode=2",
                "MinMemoryCPU=10M",
            ][..],
        ),
        (
            "-l h_rt=120,h_vmem=10M,num_proc=2",
            requests,
            &["ReqNodeList=(null)", "MinCPUsNode=2"],
        ),
        (
            "-q all.q@n1",
            "hard queue list",
            &["ReqNodeList=n1", "MinCPUsNode=2"],
        ),
        (
            "-l h_rt=60",
            requests,
            &["TimeLimit=00:01:00", "ReqNodeList=n1", "MinCPUsNode=1"],
        ),
        ("-m be", "mail options", &["MailType=BEGIN,END"]),
        ("-M a@b", "mail list", &["MailUser=a@b"]),
        ("-i in", "stdin path list", &["/in"]),
        (
            "-hold_jid_ad ARRAY",
            "job id hold array list",
            &["Dependency=aftercorr:"],
        ),
        (
            "-hold_jid FIRST",
            "job id hold list",
            &["afterany:1", "aftercorr:"],
        ),
    ] {
        let shown = changed(options, what);
        for part in parts {
            assert!(shown.contains(part), "{options}: {part}: {shown}");
        }
    }
    let refused = c.run("qalter -l s_rt=60 WAIT");
    assert!(
        refused.code == 1 && refused.out.contains("s_rt and qname of -l"),
        "{refused:?}"
    );
    let other = c.ok("sbatch --parsable -H --wrap true");
    let refused = c.run(&format!("qalter -l num_proc=2 {other}"));
    assert!(
        refused.code == 1 && refused.out.contains("h_rt and memory only"),
        "{refused:?}"
    );
}

/// Texts and exit statuses are those of a real 8.1.9; where a verification fails the reasons are Muster's.
#[test]
fn jobs_are_verified_and_wrong_values_have_the_name_of_the_command() {
    let c = Cluster::start(1, 2);
    c.ok("qsub -b y -N BUSY -pe smp 2 -o /dev/null -j y sleep 1000");
    c.until_prints("squeue -h -n BUSY -o %T", "RUNNING");
    c.ok("qsub -b y -N WAIT -o /dev/null -j y sleep 1000");
    c.ok("qsub -h -b y -N HELD -o /dev/null -j y sleep 1000");
    let held = "verification: job is already running or is held\n";
    for (command, code, want) in [
        ("qalter -w v BUSY", 0, held),
        ("qalter -w p HELD", 0, held),
        (
            "qalter -w v -N NEW HELD",
            0,
            "modified job name of job 3\nverification: job is already running or is held\n",
        ),
        (
            "qalter -p 2000 WAIT",
            7,
            "qalter: invalid priority \"2000\".  Must be an integer from -1023 to 1024\n",
        ),
        (
            "qalter -N 1bad WAIT",
            1,
            "denied: \"1bad\" is not a valid object name (cannot start with a digit)\n",
        ),
        (
            "qalter -l nosuch=1 WAIT",
            1,
            "unknown resource \"nosuch\"\n",
        ),
        (
            "qalter -q nosuch.q WAIT",
            1,
            "Job was rejected because job requests unknown queue \"nosuch.q\"\n",
        ),
        (
            "qalter -masterq all.q WAIT",
            0,
            "modified master hard queue list of job 2\n",
        ),
        (
            "qsub -h -w v -b y true",
            0,
            "verification: found suitable queue(s)\n",
        ),
        (
            "qsub -tc 2 -b y true",
            1,
            "Unable to run job: invalid \"task concurrency\" value in job request: -tc needs -t\nExiting.\n",
        ),
        (
            "qsub -a x -b y true",
            7,
            "qsub: invalid date \"x\": it is [[CC]YY]MMDDhhmm[.SS]\n",
        ),
        (
            "qsub </dev/null",
            4,
            "Unable to read script file because of error: no input read from stdin\n",
        ),
        (
            "setpriv --reuid 65534 --clear-groups qhold -h o WAIT",
            10,
            "denied: \"nobody\" must be operator to set operator hold\n",
        ),
        ("qhold -h o WAIT", 0, "modified hold of job 2\n"),
    ] {
        let ran = c.run(command);
        assert_eq!(
            (ran.code, ran.out + &ran.err),
            (code, want.to_owned()),
            "{command}"
        );
    }
    assert!(c.ok("qstat -j WAIT").contains("\nmerge:  "));
    c.ok("qalter -j n WAIT");
    assert!(!c.ok("qstat -j WAIT").contains("\nmerge:  "));
    c.ok("qrls WAIT; qsub -h -w e -N E -b y true");
    assert!(
        c.ok("qstat -j WAIT")
            .contains("master hard queue_list:     all.q")
    );
    // It starts when BUSY has ended; in a queue that is closed it never does.
    c.ok("qmod -d all.q");
    let ran = c.run("qalter -w v WAIT");
    assert!(
        ran.code == 1
            && ran.out.starts_with("Job 2 cannot run: ")
            && ran.out.ends_with("\nverification: no suitable queues\n"),
        "{ran:?}"
    );
    c.ok("qmod -e all.q");
    assert_eq!(
        c.ok("qalter -w p WAIT"),
        "verification: found suitable queue(s)"
    );
}

#[test]
fn jobs_that_no_host_can_run_wait_where_that_is_asked_for() {
    let c = Cluster::start(1, 2);
    let refused = c.run("qsub -b y -w e -pe smp 99 sleep 5");
    assert_eq!((refused.code, refused.out.as_str()), (1, ""));
    let silent = c.run("qsub -terse -b y -w n -N SILENT -pe smp 99 sleep 5");
    assert_eq!((silent.out.as_str(), silent.err.as_str()), ("1\n", ""));
    let warned = c.run("qsub -terse -b y -w w -N WARNED -l h_vmem=900T sleep 5");
    assert_eq!(warned.out, "2\n");
    assert!(warned.err.starts_with("qsub: warning: "), "{}", warned.err);
    c.ok("qsub -terse -h -b y -N LATER sleep 5");
    let grown = c.run("qalter -w e -l h_vmem=900T LATER");
    assert_eq!(grown.code, 1, "{}", grown.out);
    c.ok("qalter -w n -l h_vmem=900T LATER");
    c.ok("qrls LATER");
    for (id, reason) in [
        (1, "PartitionConfig"),
        (2, "BadConstraints"),
        (3, "BadConstraints"),
    ] {
        let states = format!("squeue -h -j {id} -o '%T %r'");
        c.until_prints(&states, &format!("PENDING {reason}"));
        assert_eq!(
            c.ok(&format!("qstat | awk '$1 == {id} {{ print $5 }}'")),
            "qw"
        );
        assert!(c.ok(&format!("qstat -j {id}")).contains("job_name:"));
    }
    // They are in nobody's way, and start when they can.
    c.ok("qsub -terse -b y -sync y -o /dev/null -j y true");
    c.ok("qalter -pe smp 2 SILENT");
    c.until_prints("squeue -h -j 1 -o %T", "RUNNING");
}

#[test]
fn a_pattern_chooses_among_parallel_environments() {
    let c = Cluster::start(2, 2);
    std::fs::write(
        c.path("sge.conf"),
        "pe smp $pe_slots\npe mpi2 2\npe mpi $fill_up\n",
    )
    .unwrap();
    c.ok("qsub -terse -cwd -o /dev/null -j y -pe 'mpi*' 4 -b y -N EVEN sleep 1000");
    assert!(
        c.ok("qstat -j EVEN")
            .contains("parallel environment:  mpi2 range: 4\n")
    );
    c.ok("qsub -terse -cwd -o /dev/null -j y -pe 'mpi*' 3 -h -b y -N ODD sleep 1000");
    assert!(
        c.ok("qstat -j ODD")
            .contains("parallel environment:  mpi range: 3\n")
    );
    c.ok("qalter -pe 's*' 2 ODD");
    assert!(
        c.ok("qstat -j ODD")
            .contains("parallel environment:  smp range: 2\n")
    );
    let unknown = c.run("qsub -pe 'lam*' 2 -b y true");
    assert_eq!(
        unknown.err,
        "Unable to run job: job rejected: the requested parallel environment \"lam*\" does not exist\nExiting.\n"
    );
}

#[test]
fn jobs_know_their_files_and_show_their_binding() {
    let c = Cluster::start(1, 2);
    c.write(
        "job.sh",
        "#!/bin/sh\necho \"$SGE_STDIN_PATH $SGE_STDOUT_PATH $SGE_STDERR_PATH\"\n",
    );
    c.ok("qsub -sync y -cwd -N A job.sh");
    let dir = c.ok("pwd -P");
    assert_eq!(c.read("A.o1"), format!("/dev/null {dir}/A.o1 {dir}/A.e1\n"));
    c.ok("SGE_STDERR_PATH=x qsub -sync y -cwd -V -N B -j y -o 'log.$JOB_ID' job.sh");
    assert_eq!(
        c.read("log.2"),
        format!("/dev/null {dir}/log.2 {dir}/log.2\n")
    );
    let bound = c.run("qsub -terse -h -b y -binding env linear:1 true");
    assert_eq!((bound.out.as_str(), bound.err.as_str()), ("3\n", ""));
    let shown = c.ok("qstat -j 3");
    assert!(
        shown.contains("\nbinding:                    env linear:1\n"),
        "{shown}"
    );
    for wrong in ["linear:0", "x", "striding:1", "explicit:1"] {
        let ran = c.run(&format!("qsub -b y -binding {wrong} true"));
        assert!(
            ran.code != 0 && ran.err.contains(&format!("\"{wrong}\" to -binding")),
            "{ran:?}"
        );
    }
    let typed = c.run("qsub -b y -jsv foo:/bin/true true");
    assert!(
        typed.err.contains("'foo' is not a type of JSV"),
        "{}",
        typed.err
    );
    let missing = c.run("qsub -b y -@ /nosuch true");
    assert!(
        missing
            .err
            .contains("cannot read /nosuch: No such file or directory\n"),
        "{}",
        missing.err
    );
}
