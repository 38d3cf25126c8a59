//! scrontab: jobs that are submitted at set times.

use crate::cluster::Cluster;

/// A cluster whose users have crontabs.
fn cluster(parameters: &str) -> Cluster {
    let c = Cluster::start(1, 2);
    let conf = c.path("slurm.conf");
    let text = std::fs::read_to_string(&conf).unwrap();
    std::fs::write(&conf, format!("{text}\nScronParameters={parameters}\n")).unwrap();
    c.ok("scontrol reconfigure");
    c
}

#[test]
fn a_job_runs_at_its_time_and_waits_for_the_next() {
    let c = cluster("enable");
    let none = c.run("scrontab -l");
    assert_eq!((none.code, none.out.as_str()), (1, "no crontab for root\n"));
    let text = format!(
        "# each minute\nDIR={}\n#SCRON -J every --open-mode=append\n#SCRON -o $DIR/out.%j -t 5\n\
         * * * * * echo ran $SLURM_JOB_ID $HOME > $DIR/ran.new && mv $DIR/ran.new $DIR/ran\n@yearly true\n",
        c.dir.display()
    )
    .replace("-o $DIR/", &format!("-o {}/", c.dir.display()));
    c.write("tab", &text);
    c.ok("scrontab tab");
    assert_eq!(c.ok("scrontab -l; echo -n x").trim_end_matches('x'), text);
    let waiting = "squeue -h -o '%j %t %r %l' | sort";
    assert_eq!(
        c.ok(waiting).lines().next(),
        Some("every PD BeginTime 5:00")
    );
    let job = c.ok("squeue -h -n every -o %i");
    let shown = c.ok(&format!("scontrol show job {job}"));
    assert!(
        shown.contains("CronJob=Yes CrontabSpec=\"* * * * *\"\n"),
        "{shown}"
    );
    assert!(shown.contains("WorkDir=/root\n"), "{shown}");
    // The controller knows it after it was killed.
    c.kill(c.controller());
    c.start_controller();
    c.until("the job has run", || c.dir.join("ran").exists());
    assert_eq!(c.read("ran"), format!("ran {job} /root\n"));
    c.until_prints(
        &format!("squeue -h -j {job} -o '%i %t %r'"),
        &format!("{job} PD BeginTime"),
    );
    c.until_prints(
        &format!("sacct -D -X -n -P -j {job} -o State | head -1"),
        "REQUEUED",
    );
    let refused = c.run(&format!("scontrol update jobid={job} name=x"));
    assert_eq!(refused.code, 1);
    assert!(
        refused
            .err
            .contains("Cannot modify scrontab jobs through scontrol"),
        "{}",
        refused.err
    );
    c.ok(&format!("scancel {job}"));
    assert_eq!(
        c.ok("scrontab -l | grep DISABLED").lines().count(),
        3,
        "options and entry"
    );
    assert_eq!(c.ok("squeue -h | wc -l"), "1");
    c.ok("scrontab -r");
    c.until_prints("squeue -h | wc -l", "0");
    assert_eq!(c.run("scrontab -l").code, 1);
}

#[test]
fn what_is_wrong_is_said_with_its_line_and_changes_nothing() {
    let c = cluster("enable,explicit_scancel");
    c.ok("echo '@daily true' | scrontab");
    for (text, out, err) in [
        (
            "@daily true\\n@nosuch x\\n",
            "There are errors in your crontab.\n",
            "scrontab: error: line 2: invalid @ line: there is no @nosuch\n",
        ),
        (
            "#SCRON -p nosuch\\n@daily x\\n",
            "There was an issue with the job submission on lines 1-2\n\
             The error code return was: Invalid partition name specified\n\
             The error message was: invalid partition specified: nosuch\n",
            "",
        ),
    ] {
        let ran = c.run(&format!("printf '{text}' | scrontab -"));
        assert_eq!(
            (ran.code, ran.out.as_str(), ran.err.as_str()),
            (1, out, err)
        );
    }
    let no_terminal = c.run("scrontab -e");
    assert_eq!(
        no_terminal.err,
        "scrontab: fatal: Standard input is not a TTY\n"
    );
    // An editor on a terminal of its own.
    c.write("editor", "#!/bin/sh\necho '@weekly echo edited' >> $1\n");
    c.ok("chmod +x editor; EDITOR=$PWD/editor script -qec 'scrontab -e' /dev/null");
    assert_eq!(c.ok("scrontab -l"), "@daily true\n@weekly echo edited");
    assert_eq!(c.ok("squeue -h | wc -l"), "2");

    let job = c.ok("squeue -h -n echo -o %i");
    let refused = c.run(&format!("scancel {job}"));
    assert!(
        refused.code == 1
            && refused
                .err
                .contains("Cannot cancel scrontab jobs without --cron flag."),
        "{refused:?}"
    );
    c.ok(&format!("scancel --cron {job}"));
    assert_eq!(
        c.ok("scrontab -l"),
        "@daily true\n#DISABLED: @weekly echo edited"
    );
}

#[test]
fn users_have_crontabs_of_their_own_and_only_if_the_site_wants() {
    let c = Cluster::start(1, 1);
    for command in ["scrontab -l", "echo '@daily x' | scrontab"] {
        let off = c.run(command);
        assert_eq!(
            (off.code, off.err.as_str()),
            (1, "scrontab: fatal: scrontab is disabled on this cluster\n"),
        );
    }
    drop(c);
    let c = cluster("enable");
    c.ok("echo '@daily true' | scrontab -u nobody -");
    assert_eq!(c.ok("squeue -h -o %u"), "nobody");
    assert_eq!(c.ok("scrontab -u nobody -l"), "@daily true");
    assert_eq!(c.run("scrontab -l").code, 1, "root has none");
    let unknown = c.run("scrontab -u nosuch -l");
    assert_eq!(unknown.err, "scrontab: fatal: Could not find user nosuch\n");
}
