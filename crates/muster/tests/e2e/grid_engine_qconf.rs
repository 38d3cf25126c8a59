//! qconf on a real cluster.

use crate::cluster::Cluster;

#[test]
fn settings_are_shown_in_the_rows_of_grid_engine() {
    let c = Cluster::start(1, 2);
    let scheduler = c.ok("qconf -ssconf");
    assert!(
        scheduler.starts_with(
            "algorithm                         default\nschedule_interval                 0:0:0\nmaxujobs                          0\n"
        ) && scheduler.lines().count() == 35,
        "{scheduler}"
    );
    let global = c.ok("qconf -sconf");
    assert!(
        global.starts_with("#global:\nexecd_spool_dir              /")
            && global.lines().count() == 49,
        "{global}"
    );
    assert!(
        global.contains("\nprolog                       none\n"),
        "{global}"
    );
    for (command, line) in [
        ("qconf -sconf n1", "configuration n1 not defined\n"),
        (
            "qconf -sconf nosuch",
            "can't resolve hostname \"nosuch\": can't resolve host name\n",
        ),
        ("qconf -scal x", "x is not a calendar\n"),
        ("qconf -sprj x", "x is not known as a project\n"),
    ] {
        let ran = c.run(command);
        assert_eq!((ran.code, ran.err.as_str()), (1, line), "{command}");
    }
    assert!(
        c.run("qconf -secl").out.starts_with(
            "      ID NAME            HOST                     \n--------------------------------------------------\n       1 scheduler       "
        )
    );
}

#[test]
fn qconf_changes_users_lists_projects_and_shares() {
    let c = Cluster::start(1, 2);
    c.write("sge_conf", "project p12 physics\n");
    c.ok("cp sge_conf \"$(dirname $SLURM_CONF)/sge.conf\"");
    c.write(
        "project",
        "name p12\noticket 0\nfshare 0\nacl NONE\nxacl NONE\n",
    );
    c.ok("qconf -Aprj project");
    c.ok("qconf -au nobody p12");
    c.ok("qconf -ao nobody");
    c.ok("qconf -mstnode /p12=30,/p12/user:nobody=5");
    assert_eq!(
        c.ok("sacctmgr -n -P show assoc where account=physics format=account,user,share"),
        "physics||30\nphysics|nobody|5"
    );
    let level = "sacctmgr -n -P show user nobody format=adminlevel";
    assert_eq!(c.ok(level), "Operator");
    c.ok("qconf -do nobody");
    assert_eq!(c.ok(level), "None");
    c.ok("qconf -du nobody p12");
    c.ok("qconf -dprj p12");
    assert_eq!(
        c.ok("sacctmgr -n -P show assoc where account=physics format=account"),
        ""
    );
    let unknown = c.run("qconf -am nosuchuser");
    assert_ne!(unknown.code, 0, "{unknown:?}");
    let malformed = c.run("qconf -am 'a b'");
    assert_eq!(
        malformed.err,
        "qconf: \"a b\" is not a valid list of names\n"
    );
    c.ok("VISUAL=true qconf -ap new");
    assert!(c.ok("qconf -spl").contains("new"));
}

#[test]
fn queues_are_added_changed_and_deleted() {
    let c = Cluster::start(2, 4);
    let who = c.ok("echo $(id -un)@$(hostname -s)");
    // What is printed can be read again.
    c.ok("qconf -sq all.q >all");
    assert_eq!(
        c.ok("qconf -Mq all"),
        format!("{who} modified \"all.q\" in cluster queue list")
    );
    c.ok("sed 's/^qname.*/qname long.q/; s/^hostlist.*/hostlist n2/; s/^h_rt.*/h_rt 2:0:0/; s/^slots.*/slots 3/' all >long");
    assert_eq!(
        c.ok("qconf -Aq long"),
        format!("{who} added \"long.q\" to cluster queue list")
    );
    assert_eq!(c.ok("qconf -sql"), "all.q\nlong.q");
    let shown = |queue: &str| {
        let rows =
            format!("qconf -sq {queue} | grep -E '^(hostlist|slots|h_rt|user_lists) ' | tr -s ' '");
        c.ok(&rows).replace('\n', "; ")
    };
    let long = "hostlist n2; slots 3; user_lists NONE; h_rt 02:00:00";
    assert_eq!(shown("long.q"), long);
    assert_eq!(
        c.ok("qsub -sync y -q long.q -b y -cwd -o out -j y 'echo $QUEUE $(hostname >/dev/null; echo $SLURMD_NODENAME)' | tail -n 1; cat out"),
        "Job 1 exited with exit code 0.\nlong.q n2"
    );
    // Changes by attribute and by the editor; a restart keeps all of them.
    c.ok("qconf -aattr queue hostlist n1 long.q");
    c.ok("qconf -mattr queue h_rt 0:30:0 long.q");
    c.ok("qconf -rattr queue user_lists root,daemon long.q");
    c.write("editor", "sed -i 's/^slots .*/slots 2/' \"$1\"\n");
    c.ok("VISUAL='sh editor' qconf -mq long.q");
    c.kill(c.controller());
    c.start_controller();
    let changed = "hostlist @allhosts; slots 2; user_lists root daemon; h_rt 00:30:00";
    assert_eq!(shown("long.q"), changed);
    c.ok("qconf -dattr queue hostlist n2 long.q");
    assert!(shown("long.q").starts_with("hostlist n1;"));
    // Of changes at the same time none is lost.
    let groups = ["mail", "news", "games", "tty", "disk", "lp"];
    let add = groups.map(|group| format!("qconf -aattr queue user_lists {group} long.q & "));
    c.ok(&(add.concat() + "wait"));
    let rows = shown("long.q");
    for group in groups {
        assert!(rows.contains(&format!(" {group}")), "{group}: {rows}");
    }
    // One that was made of an older list is refused.
    c.write(
        "slow",
        "qconf -aattr queue user_lists sys long.q >/dev/null; sed -i 's/^user_lists .*/user_lists root/' \"$1\"\n",
    );
    let late = c.run("VISUAL='sh slow' qconf -mq long.q");
    assert!(
        late.code == 1
            && late
                .err
                .contains("AllowGroups of partition long.q was changed meanwhile"),
        "{late:?}"
    );
    for (command, why) in [
        (
            "qconf -Aq long",
            "cluster queue \"long.q\" already exists\n",
        ),
        (
            "qconf -dq nosuch",
            "denied: cluster queue \"nosuch\" does not exist\n",
        ),
        (
            "qconf -mattr queue shell /bin/csh long.q",
            "denied: shell /bin/csh of queue \"long.q\": the first line of the script, or qsub -S\n",
        ),
        (
            "qconf -aattr queue hostlist nosuch long.q",
            "denied: Invalid node name specified (node nosuch is not in the configuration)\n",
        ),
        (
            "qconf -mattr queue",
            "qconf: option \"-mattr\" is followed by: queue attribute value queues\n",
        ),
        (
            "qconf -Mq nosuch",
            "error opening nosuch: No such file or directory (os error 2)\n",
        ),
    ] {
        let ran = c.run(command);
        assert_eq!((ran.code, ran.err.as_str()), (1, why), "{command}");
    }
    if c.ok("id -u") == "0" {
        c.ok("chmod 755 . .. && chmod 644 long");
        for command in [
            "qconf -Mq long",
            "qconf -dq long.q",
            "qconf -mattr queue slots 1 long.q",
        ] {
            let ran = crate::rights::as_user(&c, "bin", command);
            let why = "denied: \"bin\" must be manager for this operation\n";
            assert_eq!((ran.code, ran.err.as_str()), (1, why), "{command}");
        }
    }
    assert_eq!(
        c.ok("qconf -dq long.q; qconf -sql"),
        format!("{who} removed \"long.q\" from cluster queue list\nall.q")
    );
}

/// A cluster with accounting, whose sge.conf is empty.
fn with_accounting() -> Cluster {
    Cluster::start(2, 2)
}

#[test]
fn objects_of_sge_conf_are_added_changed_and_deleted() {
    let c = with_accounting();
    let conf = "cat \"$(dirname $SLURM_CONF)/sge.conf\"";
    c.write(
        "pe",
        "pe_name mpi8\nslots 999\nallocation_rule 2\ncontrol_slaves TRUE\n",
    );
    let ran = c.run("qconf -Ap pe");
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(
        ran.out
            .ends_with(" added \"mpi8\" to parallel environment list\n"),
        "{ran:?}"
    );
    // The usual environments stay.
    assert_eq!(
        c.ok("qconf -spl | xargs"),
        "make mpi mpi8 mpich openmp orte shm smp threaded"
    );
    assert_eq!(
        c.run("qconf -Ap pe").err,
        "parallel environment \"mpi8\" already exists\n"
    );
    c.ok("qconf -mattr pe allocation_rule '$fill_up' mpi8; qconf -dp make");
    assert!(c.ok(conf).contains("\npe mpi8 $fill_up"), "{}", c.ok(conf));
    c.write("pe", "pe_name mpi8\nallocation_rule 2\nuser_lists staff\n");
    let ran = c.run("qconf -Mp pe");
    assert_eq!(
        (ran.code, ran.err.as_str()),
        (
            1,
            "denied: user_lists staff of a parallel environment: queues have lists of users: user_lists of qconf -mq\n"
        )
    );
    c.write("group", "group_name @big\nhostlist n1\n");
    c.ok("qconf -Ahgrp group; qconf -aattr hostgroup hostlist n2 @big; qconf -dattr hostgroup hostlist n1 @big");
    assert_eq!(c.ok("qconf -shgrp @big"), "group_name @big\nhostlist n2");
    assert_eq!(c.ok("qconf -shgrpl | xargs"), "@allhosts @big");
    c.ok("qsub -o /dev/null -j y -q '*@@big' -b y sleep 1000");
    c.until_prints("squeue -h -t R -o %N", "n2");
    let ran = c.run("qconf -aattr hostgroup hostlist n9 @big");
    assert_eq!(
        (ran.code, ran.err.as_str()),
        (1, "can't resolve hostname \"n9\"\n")
    );
    c.ok("qconf -sc >table; echo 'big big BOOL == YES NO 0 0' >>table; qconf -Mc table");
    assert!(
        c.ok(conf).contains("\ncomplex big feature:big"),
        "{}",
        c.ok(conf)
    );
    c.ok("qconf -sc | grep -v '^big ' >table; qconf -Mc table");
    assert!(!c.ok(conf).contains("complex"), "{}", c.ok(conf));
    c.ok("qconf -sc >table; echo 'dongle dongle INT <= YES YES 0 0' >>table");
    let ran = c.run("qconf -Mc table");
    assert!(
        ran.code == 1
            && ran
                .err
                .starts_with("denied: complex dongle: slurm.conf has neither a device"),
        "{ran:?}"
    );
    c.ok("qconf -sconf | sed 's|^jsv_url.*|jsv_url /bin/true|' >global; qconf -Mconf global");
    assert!(
        c.ok(conf).ends_with("\njsv_url /bin/true"),
        "{}",
        c.ok(conf)
    );
    c.write("class", "jcname gpu\nl_hard {~}h_rt=60\n");
    c.ok("qconf -Ajc class; scontrol reconfigure");
    assert_eq!(c.ok("qconf -sjcl"), "gpu");
    c.ok("qconf -djc gpu; scontrol reconfigure");
    assert_eq!(c.run("qconf -sjcl").err, "no job class defined\n");
    // A user without the right to write the file is shown the line.
    let ran =
        c.run("chmod 711 . ..; setpriv --reuid 65534 --clear-groups env HOME=/ qconf -dp smp");
    assert!(
        ran.code == 1
            && ran
                .err
                .contains("take out of sge.conf beside slurm.conf: pe smp $pe_slots"),
        "{ran:?}"
    );
}

#[test]
fn lists_shares_and_quota_sets_are_those_of_accounting() {
    let c = with_accounting();
    c.write(
        "users",
        "name staff\ntype ACL\nfshare 0\noticket 0\nentries ada,bob\n",
    );
    c.ok("qconf -Au users; sed -i s/bob/cid/ users; qconf -Mu users");
    assert!(c.ok("qconf -su staff").ends_with("\nentries ada,cid"));
    assert_eq!(
        c.ok("qconf -sst"),
        "Root=1\n   staff=1\n      ada=1\n      cid=1"
    );
    c.ok("qconf -sstree | sed 's/^shares=1/shares=7/' >tree; qconf -Mstree tree");
    assert_eq!(c.ok("qconf -sstnode /staff/ada"), "/staff/ada=7");
    c.write(
        "quotas",
        "{\n   name x\n   enabled TRUE\n   limit users {*} to slots=8\n   limit projects staff to slots=20,jobs=3\n}\n",
    );
    c.ok("qconf -Arqs quotas");
    assert_eq!(c.ok("qconf -srqsl | xargs"), "account_staff qos_normal");
    assert_eq!(
        c.ok("qconf -srqs account_staff"),
        "{\n   name         account_staff\n   description  NONE\n   enabled      TRUE\n   limit        projects staff to slots=20,jobs=3\n}"
    );
    c.ok("qconf -drqs account_staff");
    assert_eq!(c.ok("qconf -srqsl"), "qos_normal");
    c.ok("qconf -dul staff");
    assert_eq!(c.run("qconf -sst").err, "no sharetree element\n");
}

/// The outputs are those of a real 8.1.9, but for host names.
#[test]
fn calendars_close_queues_and_stop_their_jobs() {
    let c = Cluster::start(1, 2);
    let refused = |command: &str, said: &str| {
        let ran = c.run(command);
        assert_eq!((ran.code, ran.err.as_str()), (1, said), "{command}");
    };
    let states = || c.ok("qstat -f | awk '/^all.q@/ {print (NF > 5) ? $6 : \"-\"}'");
    let write = |week: &str| {
        c.write(
            "cal",
            &format!("calendar_name night\nyear NONE\nweek {week}\n"),
        )
    };
    refused("qconf -scall", "no calendar defined\n");
    refused(
        "qconf -mattr queue calendar night all.q",
        "Calendar \"night\" does not exist\n",
    );
    write("mon-sun=off");
    assert!(
        c.ok("qconf -Acal cal")
            .ends_with(" added \"night\" to calendar list")
    );
    refused("qconf -Acal cal", "calendar \"night\" already exists\n");
    assert_eq!(
        c.ok("qconf -scall; qconf -scal night"),
        "night\ncalendar_name    night\nyear             NONE\nweek             mon-sun=off"
    );
    c.ok("qconf -mattr queue calendar night all.q");
    assert_eq!(
        c.ok("qconf -sq all.q | grep ^calendar"),
        "calendar              night"
    );
    refused(
        "qconf -dcal night",
        "denied: Calendar \"night\" is still referenced in queue \"all.q\"\n",
    );
    assert_eq!(states(), "D");
    c.ok("qmod -d all.q");
    assert_eq!(states(), "Dd");
    c.ok("qmod -e all.q");
    let job = c.ok("qsub -terse -b y sleep 1000");
    let why = c.ok(&format!("muster why {job}"));
    assert!(
        why.contains(
            "Partition batch starts no jobs now: its calendar night has it off (qconf -scal night)."
        ),
        "{why}"
    );
    assert!(
        c.ok(&format!("qstat -j {job}"))
            .contains("dropped because it is disabled")
    );
    // The queue opens, and its job starts; then it is stopped.
    write("2-1=on");
    c.ok("qconf -Mcal cal");
    assert_eq!(states(), "-");
    c.until_prints(&format!("squeue -h -o %T -j {job}"), "RUNNING");
    write("suspended");
    c.ok("qconf -Mcal cal");
    assert_eq!(states(), "C");
    c.until_prints(&format!("squeue -h -o %T -j {job}"), "SUSPENDED");
    assert_eq!(c.ok("qstat | awk 'NR > 2 {print $5}'"), "S");
    assert!(
        c.ok(&format!("muster why {job}"))
            .contains("by calendar night of partition batch")
    );
    let shown = c.ok("scontrol show partition batch");
    assert!(
        shown.contains("State=DOWN")
            && shown.contains("Calendar=night CalendarState=suspended CalendarChange=never"),
        "{shown}"
    );
    c.ok("qconf -mattr queue calendar NONE all.q");
    c.until_prints(&format!("squeue -h -o %T -j {job}"), "RUNNING");
    assert!(
        c.ok("qconf -dcal night")
            .ends_with(" removed \"night\" from calendar list")
    );
    write("mo");
    refused(
        "qconf -Acal cal",
        "error in disabled_week of calendar \"night\": \"mo\" is not a weekday\n",
    );
}
