//! What a site sets up around jobs: mails, programs of the controller, records of ended jobs; and what running steps use.

use crate::cluster::Cluster;
use std::os::unix::fs::PermissionsExt;

/// Writes an executable script and gives its path.
fn program(c: &Cluster, name: &str, text: &str) -> String {
    let path = c.path(name);
    std::fs::write(&path, format!("#!/bin/bash\n{text}\n")).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path.display().to_string()
}

/// Adds lines to slurm.conf and has them read.
fn configure(c: &Cluster, lines: &str) {
    let conf = c.path("slurm.conf");
    let text = std::fs::read_to_string(&conf).unwrap();
    std::fs::write(&conf, format!("{text}{lines}\n")).unwrap();
    c.ok("scontrol reconfigure");
}

#[test]
fn a_job_shows_to_whom_its_mails_go() {
    let c = Cluster::start(1, 1);
    configure(&c, "MailProg=/bin/true\nMailDomain = example.org");
    let user = c.ok("id -un");
    let own = format!("MailUser={user}@example.org MailType=END");
    for (mail, shown) in [
        ("--mail-type=END", own.as_str()),
        (
            "--mail-type=END --mail-user=ann",
            "MailUser=ann MailType=END",
        ),
    ] {
        let shown_as = c.ok(&format!(
            "J=$(sbatch --parsable -H {mail} --wrap true); scontrol show job $J | grep MailUser; scancel $J"
        ));
        assert_eq!(shown_as.trim(), shown);
    }
}

#[test]
fn mails_go_through_mailprog() {
    let c = Cluster::start(1, 2);
    let log = c.path("mails").display().to_string();
    let mail = program(
        &c,
        "mail",
        &format!("echo \"$3|$2|$SLURM_JOB_MAIL_TYPE|$SLURM_JOB_STATE|$SLURM_JOB_ID\" >>{log}"),
    );
    configure(&c, &format!("MailProg={mail}\nMailDomain=example.org"));
    let mails = || {
        let text = std::fs::read_to_string(c.path("mails")).unwrap_or_default();
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    let wait = |count: usize| {
        c.until("the mails are there", || mails().len() >= count);
        let lines = mails();
        std::fs::remove_file(c.path("mails")).unwrap();
        assert_eq!(lines.len(), count, "{lines:?}");
        lines
    };
    c.run(
        "sbatch -W -J calc --mail-type=BEGIN,END --mail-user=ann@site -o /dev/null --wrap 'exit 3'",
    );
    let lines = wait(2);
    assert!(
        lines[0].starts_with("ann@site|Slurm Job_id=1 Name=calc Began, Queued time 00:00:0"),
        "{lines:?}"
    );
    assert!(lines[0].ends_with("|Began|RUNNING|1"), "{lines:?}");
    assert!(
        lines[1].starts_with("ann@site|Slurm Job_id=1 Name=calc Ended, Run time 00:00:0")
            && lines[1].ends_with(", FAILED, ExitCode 3|Ended|FAILED|1"),
        "{lines:?}"
    );
    // The owner, at the domain of the file; nothing of what was not asked for.
    c.run("sbatch -W --mail-type=FAIL -J fine -o /dev/null --wrap true");
    c.run("sbatch -W --mail-type=ALL -J array --array=0-3 -o /dev/null --wrap true");
    let lines = wait(2);
    let whole = "root@example.org|Slurm Array Summary Job_id=3_* (";
    for (verb, end) in [
        ("Began", "|Began|"),
        ("Ended", ", COMPLETED, ExitCode [0-0]|Ended|"),
    ] {
        let told = |line: &&String| {
            line.starts_with(whole)
                && line.contains(&format!(" Name=array {verb}, "))
                && line.contains(end)
        };
        assert_eq!(lines.iter().filter(told).count(), 1, "{verb}: {lines:?}");
    }
    c.run("sbatch -W --mail-type=FAIL,ARRAY_TASKS -J each --array=0-1 -o /dev/null --wrap 'exit $SLURM_ARRAY_TASK_ID'");
    let lines = wait(1);
    assert!(
        lines[0].contains("|Slurm Array Task Job_id=")
            && lines[0].contains("_1 (")
            && lines[0].contains(" Failed, "),
        "{lines:?}"
    );
    let late = c.sbatch("-H -o /dev/null --wrap true");
    c.ok(&format!(
        "scontrol update jobid={late} mailtype=END mailuser=bob"
    ));
    c.ok(&format!("scontrol release {late}"));
    let lines = wait(1);
    assert!(lines[0].starts_with("bob@example.org|"), "{lines:?}");
    let wrong = c.run(&format!("scontrol update jobid={late} mailtype=SOMETIMES"));
    assert_eq!(wrong.code, 1, "{wrong:?}");
}

#[test]
fn the_controllers_epilog_and_records_of_ended_jobs() {
    let c = Cluster::start(1, 2);
    let log = c.path("epilogs").display().to_string();
    let epilog = program(
        &c,
        "epilog",
        &format!(
            "echo \"$SLURM_JOB_ID $SLURM_JOB_NODELIST $SLURM_JOB_EXIT_CODE2 $SLURM_SCRIPT_CONTEXT\" >>{log}"
        ),
    );
    let records = c.path("jobcomp").display().to_string();
    configure(
        &c,
        &format!("EpilogSlurmctld={epilog}\nJobCompType=jobcomp/filetxt\nJobCompLoc={records}"),
    );
    c.run("sbatch -W -J one -o /dev/null --wrap 'exit 7'");
    let never = c.sbatch("-H -o /dev/null --wrap true");
    c.ok(&format!("scancel {never}"));
    let read = |name: &str| std::fs::read_to_string(c.path(name)).unwrap_or_default();
    c.until("the epilog ran", || {
        read("epilogs") == "1 n1 7:0 epilog_slurmctld\n"
    });
    c.until("both records are there", || {
        read("jobcomp").lines().count() == 2
    });
    let text = read("jobcomp");
    let first = text.lines().next().unwrap();
    for part in [
        "JobId=1 UserId=root(0) GroupId=root(0) Name=one JobState=FAILED Partition=batch TimeLimit=",
        " NodeList=n1 NodeCnt=1 ProcCnt=1 ",
        " DerivedExitCode=0:0 ExitCode=7:0 ",
    ] {
        assert!(first.contains(part), "{part}: {first}");
    }
    assert!(text.contains(&format!("JobId={never} ")) && text.contains("JobState=CANCELLED"));
    let script = program(
        &c,
        "completed",
        &format!(
            "echo $JOBID $JOBSTATE $EXITCODE $JOBNAME >>{}",
            c.path("script").display()
        ),
    );
    configure(
        &c,
        &format!("JobCompType=jobcomp/script\nJobCompLoc={script}"),
    );
    c.run("sbatch -W -J two -o /dev/null --wrap true");
    c.until("the script ran", || {
        read("script") == "3 COMPLETED 0:0 two\n"
    });
}

#[test]
fn sstat_shows_what_running_steps_use() {
    let c = Cluster::start(2, 2);
    c.write(
        "job.sh",
        "#!/bin/bash\n#SBATCH -N2 -n2 -o out\nsrun bash -c 'x=$(head -c 30000000 /dev/zero | tr \"\\0\" a); \
         echo ready >>up; until [ -e go ]; do sleep 0.1; done'\n",
    );
    let job = c.sbatch("job.sh");
    c.until("both tasks run", || {
        c.read_if_there("up").lines().count() == 2
    });
    let row = c.ok(&format!(
        "sstat -n -P -j {job} -o JobID,NTasks,MaxRSS,MaxVMSize,AveCPU,MaxRSSNode"
    ));
    let fields: Vec<&str> = row.split('|').collect();
    assert_eq!((fields[0], fields[1]), (format!("{job}.0").as_str(), "2"));
    let kib = |text: &str| text.trim_end_matches('K').parse::<f64>().unwrap();
    assert!(kib(fields[2]) > 29_000.0, "{row}");
    assert!(kib(fields[3]) >= kib(fields[2]), "{row}");
    assert!(["n1", "n2"].contains(&fields[5]), "{row}");
    assert_eq!(
        c.ok(&format!("sstat -n -a -P -j {job} -o JobID,NTasks")),
        format!("{job}.batch|1\n{job}.0|2")
    );
    let pids = c.ok(&format!("sstat -n -i -P -j {job}.0"));
    assert_eq!(pids.lines().count(), 2, "{pids}");
    let head = c.ok(&format!("sstat -j {job}.batch -o jobid,maxrss%12"));
    assert!(
        head.starts_with("JobID              MaxRSS \n------------ ------------ \n"),
        "{head}"
    );
    let wrong = c.run("sstat -j 999999");
    assert!(
        wrong.code == 0 && wrong.err.contains("sstat: error:"),
        "{wrong:?}"
    );
    assert_eq!(c.run(&format!("sstat -j {job} -o nosuch")).code, 1);
    c.write("go", "");
    c.until_prints(&format!("sacct -X -n -P -j {job} -o State"), "COMPLETED");
    let row = c.ok(&format!(
        "sacct -n -P -j {job}.0 -o MaxRSS,MaxRSSTask,MinCPUNode,MaxDiskWriteNode,NTasks"
    ));
    let fields: Vec<&str> = row.split('|').collect();
    assert!(
        kib(fields[0]) > 29_000.0 && ["n1", "n2"].contains(&fields[2]),
        "{row}"
    );
}

#[test]
fn the_health_check_may_drain_its_node() {
    let c = Cluster::start(2, 2);
    let scontrol = c.path("bin/scontrol").display().to_string();
    let sick = c.path("sick").display().to_string();
    let check = program(
        &c,
        "check",
        &format!(
            "echo run >>{}.$SLURMD_NODENAME\n\
             [ -e {sick} ] && [ $SLURMD_NODENAME = n2 ] && {scontrol} update nodename=n2 state=drain reason='no disk'\n\
             true",
            c.path("checks").display()
        ),
    );
    configure(
        &c,
        &format!("HealthCheckProgram={check}\nHealthCheckInterval=1\nHealthCheckNodeState=IDLE"),
    );
    let runs = |node: &str| {
        let text = std::fs::read_to_string(c.path(&format!("checks.{node}")));
        text.unwrap_or_default().lines().count()
    };
    c.until("both nodes were checked twice", || {
        runs("n1") > 1 && runs("n2") > 1
    });
    std::fs::write(&sick, "").unwrap();
    c.until_prints("sinfo -h -n n2 -o '%T %E'", "drained no disk");
    assert_eq!(c.ok("sinfo -h -n n1 -o %T"), "idle");
}

#[test]
fn sdiag_counts_again_from_zero() {
    let c = Cluster::start(1, 2);
    c.ok("sbatch -W -o /dev/null --wrap true");
    assert!(c.ok("sdiag").contains("Jobs submitted: 1\n"));
    assert_eq!(c.ok("sdiag -r"), "Reset scheduling statistics");
    let text = c.ok("sdiag");
    assert!(
        text.contains("Jobs submitted: 0\n") && !text.contains("REQUEST_SUBMIT_BATCH_JOB"),
        "{text}"
    );
    let conf = c.path("slurm.conf").display().to_string();
    c.ok(&format!("chmod a+rx {}", c.path("").display()));
    let other = c.run(&format!(
        "setpriv --reuid 65534 --clear-groups env SLURM_CONF={conf} {} -r",
        c.path("bin/sdiag").display()
    ));
    assert!(
        other.code == 1 && other.err.contains("Access/permission denied"),
        "{other:?}"
    );
}

/// What passes by others is told by show job, by accounting and by sdiag.
#[test]
fn jobs_that_pass_by_are_told() {
    let c = Cluster::start(2, 2);
    // In order of submission, so that the short job is not simply the first.
    configure(&c, "PriorityType=priority/basic");
    let wait = c.path("wait");
    let held = format!("until [ -e {} ]; do sleep 0.05; done", wait.display());
    let batch = |options: &str, script: &str| {
        c.ok(&format!(
            "sbatch --parsable -o /dev/null {options} --wrap '{script}'"
        ))
    };
    let long = batch("-N1 --exclusive -t60", &held);
    let wide = batch("-N2 --exclusive -t60", "true");
    let short = batch("-N1 -n1 -t1", "true");
    let show = |job: &str| c.ok(&format!("scontrol show job {job}"));
    let flags = |job: &str| c.ok(&format!("sacct -nXP -o flags -j {job}"));
    c.until("the short job has passed by", || {
        flags(&short) == "SchedBackfill,StartRecieved"
    });
    assert!(show(&short).contains(" Scheduler=Backfill"));
    assert_eq!(flags(&long), "SchedMain,StartRecieved");
    assert!(show(&wide).contains("JobState=PENDING"));
    let counts = |ever: u32, now: u32| {
        let text = c.ok("sdiag");
        let lines = [
            format!("Total backfilled jobs (since last slurm start): {ever}\n"),
            format!("Total backfilled jobs (since last stats cycle start): {now}\n"),
        ];
        assert!(lines.iter().all(|line| text.contains(line)), "{text}");
    };
    counts(1, 1);
    c.ok("sdiag -r");
    counts(1, 0);
    std::fs::write(&wait, "").unwrap();
}

#[test]
fn jobs_wait_for_the_controllers_prolog() {
    let c = Cluster::start(2, 2);
    let (go, log) = (c.path("go"), c.path("prologs"));
    let prolog = program(
        &c,
        "prolog",
        &format!(
            "echo \"$SLURM_JOB_ID $SLURM_JOB_NODELIST $SLURM_SCRIPT_CONTEXT\" >>{}\n\
             until [ -e {} ]; do sleep 0.05; done\n[ ! -e {}.bad ]",
            log.display(),
            go.display(),
            go.display()
        ),
    );
    configure(&c, &format!("PrologSlurmctld={prolog}"));
    let job = c.sbatch("-o ran --wrap 'echo ran'");
    let runs = || {
        let text = std::fs::read_to_string(&log).unwrap_or_default();
        text.lines().map(str::to_owned).collect::<Vec<String>>()
    };
    c.until("the prolog runs", || runs().len() == 1);
    assert_eq!(runs()[0], format!("{job} n1 prolog_slurmctld"));
    assert_eq!(
        c.ok(&format!("squeue -h -j {job},{job} -o '%T %t'")),
        "CONFIGURING CF"
    );
    // A controller that comes back runs it again, and is not kept from being ready by it.
    c.kill(c.controller());
    assert_eq!(c.start_controller().code, 0);
    c.until("the prolog runs again", || runs().len() == 2);
    assert_eq!(c.read_if_there("ran"), "");
    std::fs::write(&go, "").unwrap();
    c.until_prints(&format!("sacct -X -n -P -j {job} -o State"), "COMPLETED");
    assert_eq!(c.read("ran"), "ran\n");
    assert_eq!(c.ok("srun -N2 -n2 echo both"), "both\nboth");
    std::fs::write(c.path("go.bad"), "").unwrap();
    let refused = c.run("srun -n1 true");
    assert_ne!(refused.code, 0, "{refused:?}");
    let job = c.sbatch("-o /dev/null --wrap true");
    c.until_prints(&format!("squeue -h -j {job},{job} -o %T"), "PENDING");
    std::fs::remove_file(c.path("go.bad")).unwrap();
    c.until_prints(&format!("sacct -X -n -P -j {job} -o State"), "COMPLETED");
}

#[test]
fn srun_runs_the_sites_programs_where_it_is() {
    let c = Cluster::start(1, 2);
    let log = c.path("around").display().to_string();
    let prolog = program(&c, "srun_prolog", &format!("echo before >>{log}"));
    let epilog = program(&c, "srun_epilog", &format!("echo after >>{log}"));
    configure(&c, &format!("SrunProlog={prolog}\nSrunEpilog={epilog}"));
    c.ok(&format!("srun bash -c 'echo task >>{log}'"));
    let read = || std::fs::read_to_string(&log).unwrap();
    assert_eq!(read(), "before\ntask\nafter\n");
    c.ok(&format!(
        "srun --prolog=none --epilog=none bash -c 'echo task >>{log}'"
    ));
    assert_eq!(read(), "before\ntask\nafter\ntask\n");
}

#[test]
fn the_site_says_what_srun_does_about_tasks_that_fail() {
    let c = Cluster::start(1, 2);
    let tasks = "bash -c '[ $SLURM_PROCID = 0 ] && exit 3; sleep 1000'";
    configure(&c, "KillOnBadExit=1");
    assert_eq!(c.run(&format!("srun -n2 {tasks}")).code, 143);
    // Who does not mind TERM is killed after KillWait.
    configure(&c, "KillWait=1");
    let stubborn = "bash -c 'trap \"\" TERM; [ $SLURM_PROCID = 1 ] && touch trapped && sleep 1000; \
                    until [ -e trapped ]; do sleep 0.02; done; exit 3'";
    assert_eq!(c.run(&format!("srun -n2 {stubborn}")).code, 137);
    configure(&c, "KillOnBadExit=0\nWaitTime=1");
    assert_eq!(c.run(&format!("srun -n2 {tasks}")).code, 137);
    // What the user says goes first.
    assert_eq!(c.run("srun -n2 -K0 -W0 bash -c 'exit 3'").code, 3);
}

#[test]
fn a_reboot_waits_for_the_nodes_jobs() {
    let c = Cluster::start(2, 2);
    let refused = c.run("scontrol reboot n1");
    assert!(
        refused.code == 1 && refused.err.contains("RebootProgram"),
        "{refused:?}"
    );
    let log = c.path("reboots").display().to_string();
    let reboot = program(&c, "reboot", &format!("echo $SLURMD_NODENAME >>{log}"));
    configure(&c, &format!("RebootProgram={reboot}"));
    let job = c.sbatch("-w n1 -o /dev/null --wrap 'until [ -e go ]; do sleep 0.05; done'");
    c.until_prints(&format!("squeue -h -j {job},{job} -o %T"), "RUNNING");
    c.ok("scontrol reboot ASAP reason=kernel n1");
    assert_eq!(c.ok("sinfo -h -n n1 -o '%T %E'"), "draining@ kernel");
    let shown = c.ok("scontrol show node n1");
    assert!(shown.contains("+DRAIN+REBOOT_REQUESTED"), "{shown}");
    c.write("go", "");
    let read = || std::fs::read_to_string(c.path("reboots")).unwrap_or_default();
    c.until("the program ran", || read() == "n1\n");
    assert_eq!(c.ok("sinfo -h -n n1 -o %t"), "drain^");
    c.ok("scontrol cancel_reboot n1");
    assert_eq!(c.ok("sinfo -h -n n1 -o %T"), "idle");
}

/// It was lost: the job had no step yet that could get it.
#[test]
fn a_signal_to_a_job_waits_for_its_first_step() {
    let c = Cluster::start(1, 2);
    let go = c.path("go").display().to_string();
    let prolog = program(
        &c,
        "prolog",
        &format!("until [ -e {go} ]; do sleep 0.02; done"),
    );
    configure(&c, &format!("Prolog={prolog}"));
    let mut srun = c
        .command("exec srun -J early sleep 1000 2>err")
        .spawn()
        .unwrap();
    c.until_prints("squeue -h -n early -t running -o %T", "RUNNING");
    c.ok("scancel --signal=USR1 $(squeue -h -n early -o %i)");
    c.write("../go", "");
    assert_eq!(srun.wait().unwrap().code(), Some(138));
    assert_eq!(
        c.read("err"),
        "srun: error: n1: task 0: User defined signal 1\n"
    );
}
