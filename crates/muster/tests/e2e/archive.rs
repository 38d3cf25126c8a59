//! `sacctmgr archive dump` and `load`, with the old jobs of a real Slurm, and the copy in a real database beside it.

use crate::cluster::{Cluster, Ran, alive};
use crate::rights::as_user;
use crate::slurmdbd::Server;
use std::process::Command;

const CONF: &str = "ClusterName=new\nSlurmctldHost=localhost\nAccountingStorageType=accounting_storage/slurmdbd\n\
    NodeName=n[1-2] CPUs=4 State=UNKNOWN\nPartitionName=batch Nodes=ALL Default=YES State=UP\n";

/// Who is no administrator, until it is made one.
const USER: &str = "nobody";

const DUMP: &str = "archive dump Jobs Events PurgeJobAfter=1hours PurgeEventAfter=1hours";

/// Runs that accounting has, and rows of the copy.
fn runs(c: &Cluster) -> usize {
    let listed = c.ok("sacct -a -D -X -n -S 2026-10-01 -E 2030-01-01 -o jobid%20 | wc -l");
    listed.trim().parse().unwrap()
}

fn copied(server: &Server) -> usize {
    let count = server.try_sql("SELECT count(*) FROM muster_job", "acct");
    count.and_then(|count| count.parse().ok()).unwrap_or(0)
}

fn refused(ran: &Ran, code: i32, text: &str) {
    assert!(ran.code == code && ran.err.contains(text), "{ran:?}");
}

/// Brings the old jobs in, of a MariaDB.
fn import(c: &Cluster, source: &Server) {
    let script = format!(
        "zcat {}/tests/data/slurm_acct_db-22.05.sql.gz | mariadb --no-defaults -uroot --socket={}/socket acct",
        env!("CARGO_MANIFEST_DIR"),
        source.dir.display()
    );
    let status = Command::new("bash").args(["-c", &script]).status().unwrap();
    assert!(status.success(), "{script}");
    c.write("../old.conf", &source.conf());
    c.ok("chmod 600 ../old.conf");
    c.ok("muster import slurmdbd --conf ../old.conf --history-only >/dev/null");
}

fn archives_beside(is_mariadb: bool) {
    let Some(server) = Server::start(is_mariadb) else {
        return;
    };
    let c = Cluster::from_conf(CONF);
    // Slurm's tables may be in the database that is copied to.
    match is_mariadb {
        true => import(&c, &server),
        false => match Server::start(true) {
            Some(source) => import(&c, &source),
            None => return,
        },
    }
    c.ok("install -d -o $(stat -c %U ../log) ../old");
    let old = c.path("old").display().to_string();
    // The first host cannot be reached.
    let storage = server.conf().replacen(
        "StorageHost=",
        "StorageHost=/nonexistent/socket\nStorageBackupHost=",
        1,
    );
    let conf = format!(
        "{storage}ArchiveDir={old}\nLogFile={log}\nPidFile={pid}\n",
        log = c.path("log/dbd.log").display(),
        pid = c.path("run/dbd.pid").display()
    );
    c.write("../slurmdbd.conf", &conf);
    c.ok("chmod 600 ../slurmdbd.conf");
    // SlurmUser alone carries it out.
    if c.ok("stat -c %u ../log").trim() != "0" {
        let unreadable = c.run(&format!("sacctmgr -i {DUMP}"));
        refused(&unreadable, 1, "chown it to SlurmUser");
    }
    c.ok("chown $(stat -c %U ../log) ../slurmdbd.conf; slurmdbd");
    let all = runs(&c);
    c.until("all is copied", || copied(&server) >= all && all > 150);
    let all_copied = copied(&server);
    who_may(&c, &old);
    // Nothing goes unless it is said how old it is.
    c.ok("sacctmgr -i archive dump Jobs Events");
    assert_eq!(runs(&c), all);
    let asked = c.run(&format!("echo n | sacctmgr {DUMP}"));
    assert!(
        asked.code == 0 && asked.out.contains("loss of accounting database records"),
        "{asked:?}"
    );
    assert_eq!(runs(&c), all);
    let done = c.run(&format!("sacctmgr -i {DUMP}"));
    assert!(
        done.code == 0 && done.out.contains(" jobs of before"),
        "{done:?}"
    );
    assert_eq!(
        done.err.trim(),
        "sacctmgr: accounting_storage/slurmdbd: jobacct_storage_p_archive: SUCCESS"
    );
    assert_eq!(runs(&c), 0);
    c.until("the copy follows", || copied(&server) == 0);
    let modes = c.ok("stat -c '%a %U' ../old/*");
    assert!(
        modes.lines().count() == 2 && modes.lines().all(|line| line.starts_with("600")),
        "{modes}"
    );
    for _ in 0..2 {
        let files = c.ok("ls -d $PWD/../old/new_*");
        for file in files.lines() {
            let again = c.run(&format!("sacctmgr -i archive load file={file}"));
            if runs(&c) == all && again.code != 0 {
                refused(&again, 1, "are there already");
            }
        }
        assert_eq!(runs(&c), all);
    }
    c.until("the copy follows", || copied(&server) == all_copied);
    for (line, text) in [
        (
            "archive load file=/nonexistent",
            "No such file or directory",
        ),
        ("archive load file=/etc/passwd", "not an archive"),
        ("archive load Insert=x", "Insert= is not implemented"),
        ("archive load", "No archive file given"),
        ("archive foo", "No valid entity in archive command"),
        (
            "archive dump Directory=/nonexist",
            "Failed to stat /nonexist: No such file or directory",
        ),
        ("archive dump Directory=/etc/passwd", "isn't a directory"),
        ("archive dump Script=/etc/passwd", "is not executable"),
        (
            "archive dump Clusters=other",
            "'other' is not the controller's",
        ),
        (
            "-r archive dump",
            "Can't run this command in readonly mode.",
        ),
    ] {
        refused(&c.run(&format!("sacctmgr -i {line}")), 1, text);
    }
    by_script(&c);
    keeps_no_controller(&c);
    let pid: i32 = c.read("../run/dbd.pid").trim().parse().unwrap();
    c.ok(&format!("kill {pid}"));
    c.until("it ends", || !alive(pid));
    c.ok("echo DisableArchiveCommands=yes >>../slurmdbd.conf");
    refused(
        &c.run("sacctmgr -i archive dump"),
        1,
        "DisableArchiveCommands",
    );
}

/// Administrators of accounting may archive as slurmdbd.conf says, and have no program run and no other directory written.
fn who_may(c: &Cluster, old: &str) {
    let ask = |line: &str| as_user(c, USER, &format!("sacctmgr -i {line}"));
    let denied = "Your user doesn't have privilege to perform this action\n Problem dumping archive: Access/permission denied";
    refused(&ask("archive dump"), 1, denied);
    refused(
        &ask("archive load file=/etc/passwd"),
        1,
        "Problem loading archive file: Access/permission denied",
    );
    c.ok(&format!("sacctmgr -i add account people; sacctmgr -i add user {USER} account=people adminlevel=operator"));
    refused(&ask("archive dump"), 1, denied);
    c.ok(&format!(
        "sacctmgr -i modify user {USER} set adminlevel=administrator"
    ));
    let ran = ask("archive dump");
    assert_eq!(ran.code, 0, "{ran:?}");
    c.ok("install -d -m 1777 /tmp/muster-archive-test");
    refused(
        &ask("archive dump Directory=/tmp/muster-archive-test"),
        1,
        denied,
    );
    refused(&ask("archive dump Script=/bin/true"), 1, denied);
    c.ok(&format!(
        "rmdir /tmp/muster-archive-test; ls {old} | wc -l | grep -qx 0"
    ));
}

/// A program named on the command line archives in place of files; nothing is purged where it fails.
fn by_script(c: &Cluster) {
    let before = runs(c);
    c.write(
        "../archive.sh",
        "#!/bin/sh\nenv | sort >${0%/*}/old/env; exit $(cat ${0%/*}/old/status)\n",
    );
    c.ok("chmod 755 ../archive.sh; echo 3 >../old/status");
    let line = format!(
        "sacctmgr -i {DUMP} Script={}",
        c.path("archive.sh").display()
    );
    refused(&c.run(&line), 1, "ArchiveScript failed");
    assert_eq!(runs(c), before);
    c.ok("echo 0 >../old/status");
    c.ok(&line);
    assert_eq!(runs(c), 0);
    assert!(c.read("../old/env").contains("SLURM_ARCHIVE_JOBS=1\n"));
}

/// A controller that stopped waited for the program that archives.
fn keeps_no_controller(c: &Cluster) {
    c.write(
        "../slow.sh",
        "#!/bin/sh\ncd ${0%/*}/old && touch begun; while [ -e slow ]; do sleep .1; done\n",
    );
    c.ok("chmod 755 ../slow.sh; touch ../old/slow");
    let script = c.path("slow.sh").display().to_string();
    let mut asks = c
        .command(&format!(
            "exec sacctmgr -i {DUMP} Script={script} >/dev/null 2>&1"
        ))
        .spawn()
        .unwrap();
    c.until("it archives", || c.path("old/begun").exists());
    let second = c.run(&format!("sacctmgr -i {DUMP}"));
    refused(&second, 1, "another archive is being written or read");
    let controller = c.controller();
    c.ok(&format!("kill {controller}"));
    c.until("the controller is gone", || !alive(controller));
    let failed = asks.wait().unwrap();
    assert!(!failed.success());
    c.start_controller();
    c.until("it answers", || c.run("scontrol ping").out.contains("UP"));
    refused(
        &c.run(&format!("sacctmgr -i {DUMP}")),
        1,
        "another process purges",
    );
    c.ok("rm ../old/slow");
    c.until("it ends", || {
        c.run(&format!("sacctmgr -i {DUMP}")).code == 0
    });
}

#[test]
fn archives_are_written_and_taken_back_beside_mariadb() {
    archives_beside(true);
}

#[test]
fn archives_are_written_and_taken_back_beside_postgresql() {
    archives_beside(false);
}
