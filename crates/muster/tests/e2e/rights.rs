//! Roles and privacy on a real cluster: what administrators, operators, coordinators and others may do by the commands,
//! what `PrivateData` hides in each listing, and what the audit log has of it.

use crate::cluster::{Cluster, Ran, ran};

const CONF: &str = "\
ClusterName=site
SlurmctldHost=localhost
NodeName=n1 CPUs=4 RealMemory=1000
PartitionName=batch Nodes=n1 Default=YES MaxTime=INFINITE State=UP
AccountingStorageType=accounting_storage/slurmdbd
PriorityType=priority/multifactor
PriorityWeightAge=100
";

/// Users that every system has: who has jobs, a stranger, a coordinator, an operator, an administrator.
const OWNER: &str = "daemon";
const STRANGER: &str = "bin";
const COORDINATOR: &str = "sys";
const OPERATOR: &str = "games";
const ADMINISTRATOR: &str = "man";

/// Runs a command as a user.
pub(crate) fn as_user(c: &Cluster, user: &str, script: &str) -> Ran {
    let quoted = script.replace('\'', "'\\''");
    let wrapped =
        format!("setpriv --reuid={user} --regid=$(id -g {user}) --init-groups bash -c '{quoted}'");
    ran(c.command(&wrapped).output().unwrap())
}

#[track_caller]
fn ok_as(c: &Cluster, user: &str, script: &str) -> String {
    let ran = as_user(c, user, script);
    assert_eq!(ran.code, 0, "{user}: {script}: {ran:?}");
    ran.out.trim().to_owned()
}

#[track_caller]
fn denied_as(c: &Cluster, user: &str, script: &str) {
    let ran = as_user(c, user, script);
    // The words that Slurm has for it.
    let words = [
        "Access/permission denied",
        "Invalid user id",
        "Permission denied",
    ];
    let denied = words.iter().any(|text| ran.err.contains(text));
    assert!(ran.code != 0 && denied, "{user}: {script}: {ran:?}");
}

/// A cluster with accounts physics, optics under it and chem, the users, and a running and a waiting job of the owner in
/// optics. None without root, who alone can be others.
fn site() -> Option<(Cluster, u64, u64)> {
    let c = Cluster::from_conf(CONF);
    if c.ok("id -u") != "0" {
        eprintln!("not root: there is only one user; this test looked at nothing");
        return None;
    }
    c.ok("chmod 1777 . && chmod 755 ..");
    for edit in [
        "add account physics,chem".to_owned(),
        "add account optics parent=physics".to_owned(),
        format!("add user {OWNER} account=optics"),
        format!("add user {STRANGER} account=chem"),
        format!("add user {COORDINATOR} account=physics"),
        format!("add user {OPERATOR} account=chem adminlevel=Operator"),
        format!("add user {ADMINISTRATOR} account=chem adminlevel=Administrator"),
        format!("add coordinator account=physics names={COORDINATOR}"),
    ] {
        c.ok(&format!("sacctmgr -i {edit}"));
    }
    let submit = "sbatch --parsable -o /dev/null -t 1:00:00 -J secret";
    let runs = ok_as(&c, OWNER, &format!("{submit} --wrap 'sleep 600'"));
    let waits = ok_as(&c, OWNER, &format!("{submit} -H --wrap true"));
    c.until_prints(&format!("squeue -h -j {runs} -o %T"), "RUNNING");
    Some((c, runs.parse().unwrap(), waits.parse().unwrap()))
}

#[test]
fn each_role_does_what_it_may_and_the_audit_log_says_so() {
    let Some((c, runs, waits)) = site() else {
        return;
    };
    let jobs = [
        format!("scontrol hold {waits}"),
        format!("scontrol update jobid={waits} comment=x"),
        format!("scontrol release {waits}; scontrol hold {waits}"),
        format!("scancel -s USR1 {runs}"),
    ];
    let of_operators = [
        format!("scontrol update jobid={runs} timelimit=2:00:00"),
        format!("scontrol suspend {runs} && scontrol resume {runs}"),
        "scontrol create reservation reservationname=r users=root starttime=now duration=1 nodes=n1 flags=ignore_jobs \
         && scontrol delete reservationname=r"
            .to_owned(),
        "sdiag --reset".to_owned(),
        "sacctmgr -i add account new1 && sacctmgr -i delete account new1".to_owned(),
        format!("scontrol write batch_script {runs} -"),
    ];
    let of_administrators = [
        "scontrol update nodename=n1 weight=3".to_owned(),
        "scontrol update partitionname=batch maxtime=1-0".to_owned(),
        "scontrol reconfigure".to_owned(),
        "scontrol setdebug info".to_owned(),
        "sacctmgr -i add qos q1 && sacctmgr -i delete qos q1".to_owned(),
        format!("sacctmgr -i modify user {STRANGER} set adminlevel=None"),
    ];
    for command in &jobs {
        denied_as(&c, STRANGER, command);
        for user in [COORDINATOR, OPERATOR, ADMINISTRATOR] {
            ok_as(&c, user, command);
        }
    }
    for command in &of_operators {
        denied_as(&c, STRANGER, command);
        denied_as(&c, COORDINATOR, command);
        ok_as(&c, OPERATOR, command);
        ok_as(&c, ADMINISTRATOR, command);
    }
    for command in &of_administrators {
        denied_as(&c, COORDINATOR, command);
        denied_as(&c, OPERATOR, command);
        ok_as(&c, ADMINISTRATOR, command);
    }
    // Nobody but the owner and SlurmUser gets what lets its bearer run programs as the owner.
    for user in [STRANGER, COORDINATOR, OPERATOR, ADMINISTRATOR] {
        denied_as(&c, user, &format!("srun --overlap --jobid={runs} id -u"));
    }
    // Of accounts, coordinators edit those that are theirs.
    ok_as(
        &c,
        COORDINATOR,
        "sacctmgr -i add account lasers parent=optics",
    );
    ok_as(
        &c,
        COORDINATOR,
        &format!("sacctmgr -i add user {STRANGER} account=lasers"),
    );
    denied_as(
        &c,
        COORDINATOR,
        &format!("sacctmgr -i add user {OWNER} account=chem"),
    );
    denied_as(
        &c,
        COORDINATOR,
        "sacctmgr -i modify account physics set fairshare=9",
    );
    assert_eq!(
        c.ok("sacctmgr -nP show user sys withcoord format=user,coordinators"),
        "sys|lasers,optics,physics"
    );
    // A level that is taken away is gone at once.
    c.ok(&format!(
        "sacctmgr -i modify user {OPERATOR} set adminlevel=None"
    ));
    denied_as(&c, OPERATOR, &format!("scontrol hold {waits}"));
    c.ok(&format!(
        "sacctmgr -i delete coordinator account=physics names={COORDINATOR}"
    ));
    denied_as(&c, COORDINATOR, &format!("scancel {waits}"));
    denied_as(&c, STRANGER, "scontrol shutdown");
    denied_as(&c, STRANGER, "scontrol reboot $'n1\\nforged: audit'");
    let log = || std::fs::read_to_string(c.path("log/ctld.log")).unwrap();
    let audit = |words: &[&str]| {
        log()
            .lines()
            .filter(|line| line.contains("] audit: "))
            .any(|line| words.iter().all(|word| line.contains(word)))
    };
    c.until("the audit log has the last request", || audit(&["Reboot"]));
    for words in [
        [
            "games(5) as operator from pid ",
            ": Hold \"job ",
            "\": done",
        ],
        [
            "man(6) as administrator from pid ",
            ": UpdateNodes \"n1 Weight=3\"",
            ": done",
        ],
        [
            "man(6) as administrator from pid ",
            ": UpdatePartition \"batch MaxTime=1-0\"",
            ": done",
        ],
        [
            "bin(2) as user from pid ",
            &format!(": Script \"job {runs}\""),
            "refused: \"Access/permission denied",
        ],
        [
            "sys(3) as user from pid ",
            ": AddAccounts \"lasers",
            ": done",
        ],
        [
            "bin(2) as user from pid ",
            ": Shutdown \"",
            "refused: \"Access/permission denied",
        ],
        [
            "sys(3) as user from pid ",
            ": Cancel \"job ",
            "refused: \"Access/permission denied",
        ],
        [
            "root(0) as root from pid ",
            ": SetAdminLevel \"games AdminLevel=None\"",
            ": done",
        ],
    ] {
        assert!(audit(&words), "{words:?}\n{}", log());
    }
    assert!(!log().lines().any(|line| line.starts_with("forged")));
    // This controller has nobody else to be.
    assert!(log().contains("warning: SlurmUser is not set, or is root"));
    assert_eq!(c.ok("stat -c %a ../log/ctld.log"), "640");
    // One's own jobs make no lines.
    assert!(!audit(&["daemon(1)"]), "{}", log());
}

/// Puts `PrivateData` into force.
fn private(c: &Cluster, words: &str) {
    let conf = c.path("slurm.conf");
    let text = std::fs::read_to_string(&conf).unwrap();
    let kept = text.lines().filter(|line| !line.starts_with("PrivateData"));
    let mut text: String = kept.map(|line| format!("{line}\n")).collect();
    text += &format!("PrivateData={words}\n");
    std::fs::write(&conf, text).unwrap();
    let warned = c.run("scontrol reconfigure");
    assert!(
        warned.code == 0 && !warned.err.contains("PrivateData"),
        "{warned:?}"
    );
}

/// What those see who may, and others do not: user, command, what it prints.
fn seen(c: &Cluster, command: &str, words: &str, by: &[&str], not_by: &[&str]) {
    for user in by {
        let ran = as_user(c, user, command);
        assert!(ran.out.contains(words), "{user}: {command}: {ran:?}");
    }
    for user in not_by {
        let ran = as_user(c, user, command);
        assert!(!ran.out.contains(words), "{user}: {command}: {ran:?}");
    }
}

#[test]
fn private_jobs_are_in_no_listing() {
    let Some((c, runs, waits)) = site() else {
        return;
    };
    let all = [OWNER, STRANGER, COORDINATOR, OPERATOR];
    let listings = [
        "squeue -h -o %j".to_owned(),
        "squeue -h -a -t all -o %j".to_owned(),
        "squeue -h --start -o %j".to_owned(),
        format!("squeue -h -j {runs},{waits} -o %j"),
        format!("squeue -h -u {OWNER} -o %j"),
        "squeue -h -o %j -p batch".to_owned(),
        "squeue --json".to_owned(),
        format!("scontrol show job {runs}"),
        "scontrol show job".to_owned(),
        "sacct -n -a -o jobname".to_owned(),
        format!("sacct -n -j {runs} -o jobname"),
        format!("sacct -n -u {OWNER} -o jobname"),
        "sacct -a --json".to_owned(),
    ];
    c.until_prints(&format!("sacct -n -X -j {runs} -o jobname"), "secret");
    for listing in &listings {
        seen(&c, listing, "secret", &all, &[]);
    }
    private(&c, "jobs");
    let (may, may_not) = ([OWNER, COORDINATOR, OPERATOR, ADMINISTRATOR], [STRANGER]);
    for listing in &listings {
        seen(&c, listing, "secret", &may, &may_not);
    }
    // A stranger's own jobs are there.
    let own = ok_as(
        &c,
        STRANGER,
        "sbatch --parsable -o /dev/null -H -J mine --wrap true",
    );
    assert_eq!(ok_as(&c, STRANGER, "squeue -h -o %j"), "mine");
    assert_eq!(ok_as(&c, OWNER, "squeue -h -o %j | sort -u"), "secret");
    assert_eq!(
        c.ok("squeue -h -o %j | sort | uniq -c | tr -s ' '"),
        "1 mine\n 2 secret"
    );
    seen(&c, "sprio -h -o '%u'", "bin", &[], &[OWNER]);
    for (command, code) in [
        (format!("scontrol wait_job {runs}"), "Problem running job"),
        (format!("scontrol show job {runs}"), "Invalid job id"),
        (
            format!("scontrol write batch_script {runs} -"),
            "Invalid job id",
        ),
        (format!("muster why {waits}"), "there is no job"),
    ] {
        let ran = as_user(&c, STRANGER, &command);
        assert!(
            ran.code != 0 && ran.err.contains(code),
            "{command}: {ran:?}"
        );
    }
    // It is as a job that is not there.
    for command in ["scancel", "scontrol hold", "scontrol requeue"] {
        let of = |id: &str| {
            let ran = as_user(&c, STRANGER, &format!("{command} {id}"));
            (ran.code, ran.out, ran.err.replace(id, "JOB"))
        };
        assert_eq!(of(&runs.to_string()), of("987654"), "{command}");
    }
    c.ok(&format!("scancel {own} {runs} {waits}"));
}

#[test]
fn nodes_partitions_reservations_events_and_accounting_are_private_word_by_word() {
    let Some((c, runs, _)) = site() else {
        return;
    };
    c.ok("scontrol create reservation reservationname=mine users=daemon starttime=now+100days duration=1 nodes=n1 flags=ignore_jobs");
    c.ok("scontrol create reservation reservationname=bins users=bin starttime=now+200days duration=1 nodes=n1 flags=ignore_jobs");
    c.ok("scontrol update nodename=n1 state=drain reason=r && scontrol update nodename=n1 state=resume");
    let asked = |name: &str| {
        as_user(
            &c,
            STRANGER,
            &format!("sbatch --reservation={name} --wrap true"),
        )
        .err
        .replace(name, "R")
    };
    assert_ne!(asked("mine"), asked("none"));
    private(&c, "reservations");
    assert_eq!(asked("mine"), asked("none"));
    let users = [OWNER, STRANGER, COORDINATOR];
    let denied = |command: &str| {
        for user in users {
            denied_as(&c, user, command);
        }
        ok_as(&c, OPERATOR, command);
        c.ok(command);
    };
    private(&c, "nodes");
    for command in [
        "sinfo",
        "sinfo --json",
        "scontrol show node",
        "scontrol show node n1",
    ] {
        denied(command);
    }
    ok_as(&c, STRANGER, "scontrol show partition");
    private(&c, "partitions");
    for command in [
        "sinfo",
        "scontrol show partition",
        "scontrol show partition batch",
    ] {
        denied(command);
    }
    ok_as(&c, STRANGER, "scontrol show node");
    assert_eq!(ok_as(&c, STRANGER, "squeue -h -o %j"), "secret\nsecret");
    private(&c, "events");
    denied("sacctmgr show event");
    private(&c, "reservations");
    let names = "scontrol show reservation";
    seen(
        &c,
        names,
        "ReservationName=mine",
        &[OWNER, OPERATOR],
        &[STRANGER, COORDINATOR],
    );
    seen(
        &c,
        names,
        "ReservationName=bins",
        &[STRANGER, OPERATOR],
        &[OWNER, COORDINATOR],
    );
    seen(&c, "sinfo -T", "mine", &[OWNER, OPERATOR], &[STRANGER]);
    private(&c, "accounts");
    let accounts = "sacctmgr -nP show account format=account";
    assert_eq!(ok_as(&c, STRANGER, accounts), "root");
    assert_eq!(ok_as(&c, COORDINATOR, accounts), "optics\nphysics\nroot");
    assert_eq!(ok_as(&c, OPERATOR, accounts), "chem\noptics\nphysics\nroot");
    private(&c, "users");
    let shown = "sacctmgr -nP show user format=user";
    assert_eq!(ok_as(&c, STRANGER, shown), "bin");
    assert_eq!(ok_as(&c, COORDINATOR, shown), "daemon\nsys");
    assert_eq!(ok_as(&c, OPERATOR, shown).lines().count(), 6, "with root");
    seen(
        &c,
        "sacctmgr -nP show assoc format=user",
        "daemon",
        &[OWNER, OPERATOR],
        &[STRANGER],
    );
    seen(
        &c,
        "sshare -a -n -P -o user",
        "daemon",
        &[OWNER, OPERATOR],
        &[STRANGER],
    );
    private(&c, "usage");
    c.ok(&format!("scancel {runs}"));
    c.until_prints(
        &format!("sacct -n -X -P -j {runs} -o state"),
        "CANCELLED by 0",
    );
    let top = "sreport -nP user top start=today end=now+1hour format=login";
    seen(
        &c,
        top,
        "daemon",
        &[OWNER, COORDINATOR, OPERATOR],
        &[STRANGER],
    );
    seen(
        &c,
        "sshare -a -n -P -o user",
        "daemon",
        &[OWNER, OPERATOR],
        &[STRANGER],
    );
    denied_as(
        &c,
        STRANGER,
        "sreport cluster utilization start=today end=now+1hour",
    );
    ok_as(
        &c,
        OPERATOR,
        "sreport cluster utilization start=today end=now+1hour",
    );
    seen(&c, "sacct -n -a -o jobname", "secret", &[STRANGER], &[]);
}

/// A user with a range of uids (newuidmap(1)) had jobs, limits and priorities of each of them.
#[test]
fn changes_of_others_are_private() {
    let Some((c, ..)) = site() else {
        return;
    };
    ok_as(
        &c,
        COORDINATOR,
        "sacctmgr -i add account below parent=physics description=secret",
    );
    let listed = "sacctmgr -nP show transactions";
    seen(
        &c,
        listed,
        "secret",
        &[STRANGER, OPERATOR, COORDINATOR],
        &[],
    );
    for words in ["accounts", "users", "jobs"] {
        private(&c, words);
        seen(
            &c,
            listed,
            "secret",
            &[OPERATOR, COORDINATOR],
            &[STRANGER, OWNER],
        );
        assert_eq!(ok_as(&c, STRANGER, listed), "", "{words}");
    }
}

#[test]
fn who_is_of_a_user_namespace_has_no_jobs() {
    let c = Cluster::start(1, 1);
    if c.ok("id -u") != "0" {
        eprintln!("not root: there is only one user; this test looked at nothing");
        return;
    }
    c.ok("chmod 1777 . && chmod 755 ..");
    c.kill(c.controller());
    c.write("subuid", "daemon:700000:65536\n");
    c.ok("unshare -m sh -c 'mount --bind subuid /etc/subuid && exec slurmctld'");
    c.until_prints("sinfo -h -o %T", "idle");
    let by = |uid: u32| {
        let as_uid = format!("setpriv --reuid={uid} --regid={uid} --clear-groups");
        c.run(&format!("{as_uid} sbatch -D / -o /dev/null --wrap true"))
    };
    let refused = by(700_001);
    assert!(
        refused.code != 0 && refused.err.contains("/etc/subuid"),
        "{refused:?}"
    );
    let stranger = by(800_000);
    assert_eq!(stranger.code, 0, "{stranger:?}");
}

#[test]
fn an_administrator_loads_a_file_in_place_of_all_that_is_there() {
    let Some((c, runs, waits)) = site() else {
        return;
    };
    c.ok(&format!("scancel {runs} {waits}"));
    c.until_prints("squeue -h", "");
    let file = "Cluster - site\\nAccount - geology\\nParent - geology\\nUser - nobody:DefaultAccount=geology\\n";
    c.ok(&format!("printf '{file}' >site.cfg"));
    ok_as(
        &c,
        ADMINISTRATOR,
        "sacctmgr -i load \"$PWD/site.cfg\" clean",
    );
    let shown = c.ok("sacctmgr -nP show user format=user,defaultaccount,adminlevel");
    let wanted = "man||Administrator\nnobody|geology|None\nroot|root|Administrator";
    assert_eq!(shown.trim(), wanted);
    let accounts = c.ok("sacctmgr -nP show account format=account");
    assert_eq!(accounts.trim(), "geology\nroot");
    ok_as(&c, ADMINISTRATOR, "sacctmgr -i add account mining");
}
