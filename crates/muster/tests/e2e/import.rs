//! `muster import slurmdbd` with a real MariaDB that has what a real slurmdbd (22.05) has written into it.

use crate::cluster::{Cluster, Ran, alive};
use crate::slurmdbd::Server;
use std::process::Command;

const CONF: &str = "ClusterName=new\nSlurmctldHost=localhost\nAccountingStorageType=accounting_storage/slurmdbd\n\
    NodeName=n[1-2] CPUs=4 State=UNKNOWN\nPartitionName=batch Nodes=ALL Default=YES State=UP\n\
    PriorityType=priority/multifactor\nPriorityDecayHalfLife=0\n";

/// Tables of the cluster `peer` as mysqldump has written them: 157 runs of jobs that a real Slurm ran, of every kind.
const DUMP: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/tests/data/slurm_acct_db-22.05.sql.gz"
);

fn load(server: &Server) {
    let script = format!(
        "zcat {DUMP} | mariadb --no-defaults -uroot --socket={}/socket acct",
        server.dir.display()
    );
    let status = Command::new("bash").args(["-c", &script]).status().unwrap();
    assert!(status.success(), "{script}");
}

fn import(c: &Cluster, options: &str) -> Ran {
    c.run(&format!(
        "muster import slurmdbd --conf ../old.conf {options}"
    ))
}

/// The runs that sacct lists of the time of the dump, and later.
fn runs(c: &Cluster) -> usize {
    let listed = c.ok("sacct -a -D -X -n -S 2026-10-01 -E 2030-01-01 -o jobid%20 | wc -l");
    listed.trim().parse().unwrap()
}

#[test]
fn a_slurms_accounting_is_imported_once_however_often_that_is_tried() {
    let Some(server) = Server::start(true) else {
        return;
    };
    load(&server);
    let c = Cluster::from_conf(CONF);
    c.write("../old.conf", &server.conf());
    c.ok("chmod 600 ../old.conf");
    // A job of this cluster has the number of one that comes; one of the other is not over.
    assert_eq!(c.sbatch("-W -o /dev/null -J mine --wrap true"), 1);
    let ask = |sql: &str| {
        server
            .try_sql(sql, "acct")
            .unwrap_or_else(|| panic!("{sql}"))
    };
    ask("UPDATE peer_job_table SET time_end = 0, state = 1 WHERE id_job = 59");
    let first = import(&c, "--sums");
    assert_eq!(first.code, 0, "{first:?}");
    for text in [
        "jobs 156 added, 0 written again, 1 not over yet; node events 4",
        "sums by month, account and user are those of the source",
    ] {
        assert!(first.out.contains(text), "{first:?}");
    }
    is_shown(&c);
    // New jobs have numbers that no job has had there.
    assert!(c.sbatch("-W -o /dev/null --wrap true") > 152);
    assert!(
        c.ok("sacct -D -X -n -P -j 1 -o jobname")
            .contains("mine\nrootjob")
    );
    // The job ends, and is all that is new.
    ask(
        "UPDATE peer_job_table SET time_end = time_start + 1, state = 3, mod_time = UNIX_TIMESTAMP() WHERE id_job = 59",
    );
    let second = import(&c, "");
    assert_eq!(second.code, 0, "{second:?}");
    assert!(
        second.out.contains("0 requests to the controller"),
        "{second:?}"
    );
    assert!(second.out.contains("jobs 1 added"), "{second:?}");
    goes_on(&c, &ask);
    // What was used there counts.
    let shares = |c: &Cluster| c.ok("sshare -nP -a -o account,user,rawusage | grep 'physics|amy'");
    assert!(shares(&c).trim().ends_with("|0"), "{}", shares(&c));
    c.ok("muster import slurmdbd --conf ../old.conf --fair-share >/dev/null");
    let used = shares(&c);
    let used: u64 = used.trim().rsplit('|').next().unwrap().parse().unwrap();
    assert!(used > 0, "{used}");
    // What is no longer there is found.
    ask("DELETE FROM peer_job_table WHERE id_job = 47");
    let differs = import(&c, "");
    assert_eq!(differs.code, 1, "{differs:?}");
    assert!(
        differs.out.contains("differs") && differs.err.contains("1 of "),
        "{differs:?}"
    );
    is_purged(&c);
}

/// slurmdbd purges what came, sums stay, and what is purged does not come again.
fn is_purged(c: &Cluster) {
    let report = || {
        c.ok("sreport -nP -t seconds cluster AccountUtilizationByUser start=2026-10-01 end=2026-11-27 format=account,login,used; \
              sreport -nP -t seconds cluster Utilization start=2026-10-01 end=2026-11-27")
    };
    let before = report();
    assert!(runs(c) > 150 && before.contains("physics|amy"), "{before}");
    let conf = format!(
        "PurgeJobAfter=1hours\nPurgeEventAfter=1hours\nArchiveJobs=yes\nArchiveEvents=yes\nArchiveDir={dir}\n\
         LogFile={log}\nPidFile={pid}\n",
        dir = c.path("old").display(),
        log = c.path("log/dbd.log").display(),
        pid = c.path("run/dbd.pid").display()
    );
    c.ok("install -d -o $(stat -c %U ../log) ../old");
    c.write("../slurmdbd.conf", &format!("{conf}PurgeStepAfter=0\n"));
    c.ok("chmod 600 ../slurmdbd.conf");
    let refused = c.run("slurmdbd");
    assert!(refused.err.contains("PurgeStepAfter=0"), "{refused:?}");
    c.write("../slurmdbd.conf", &conf);
    c.ok("slurmdbd");
    c.until("all that came is purged", || runs(c) < 10);
    let mine = c.ok("sacct -D -X -n -P -j 1 -o jobname");
    assert_eq!(mine.trim(), "mine");
    c.until("it is said", || {
        let log = c.read("../log/dbd.log");
        log.contains(" jobs of before") && log.contains(" events of before")
    });
    assert_eq!(report(), before);
    let again = import(c, "");
    assert!(again.out.contains("jobs 0 added"), "{again:?}");
    assert!(again.out.contains("node events 0"), "{again:?}");
    assert!(runs(c) < 10);
    assert_eq!(report(), before);
    let pid: i32 = c.read("../run/dbd.pid").trim().parse().unwrap();
    c.ok(&format!("kill {pid}"));
    c.until("it ends", || !alive(pid));
    comes_back(c);
    assert_eq!(report(), before);
    is_archived_by_script(c, &conf);
    assert_eq!(report(), before);
}

/// The site's program archives: as SlurmUser, with nothing but Slurm's variables. Nothing is purged where it fails.
fn is_archived_by_script(c: &Cluster, conf: &str) {
    let script = c.path("archive.sh");
    c.write(
        "../archive.sh",
        "#!/bin/sh\ncd ${0%/*}/old && env | sort >env && id -u >uid && exit $(cat status)\n",
    );
    c.ok("chmod 755 ../archive.sh; echo 1 >../old/status; : >../log/dbd.log");
    let conf = format!("{conf}ArchiveScript={}\n", script.display());
    c.write("../slurmdbd.conf", &conf);
    let purge_until = |what: &str, is_so: &dyn Fn() -> bool| {
        c.ok("env SECRET=x slurmdbd");
        c.until(what, is_so);
        let pid: i32 = c.read("../run/dbd.pid").trim().parse().unwrap();
        c.ok(&format!("kill {pid}"));
        c.until("it ends", || !alive(pid));
    };
    purge_until("its failure is said", &|| {
        let log = c.read("../log/dbd.log");
        log.contains("ArchiveScript failed")
    });
    assert!(runs(c) > 150);
    c.ok("echo 0 >../old/status");
    purge_until("all is purged again", &|| runs(c) < 10);
    assert_eq!(
        c.read("../old/uid").trim(),
        c.ok("stat -c %u ../log").trim()
    );
    let env = c.read("../old/env");
    for line in [
        "SLURM_ARCHIVE_JOBS=1\n",
        "SLURM_ARCHIVE_EVENTS=1\n",
        "SLURM_ARCHIVE_STEPS=0\n",
        "SLURM_ARCHIVE_LAST_JOB=1",
    ] {
        assert!(env.contains(line), "{env}");
    }
    assert!(!env.contains("SECRET"), "{env}");
    // It has archived, so that slurmdbd writes no files.
    let files = c.ok("ls ../old/new_* | wc -l");
    assert_eq!(files.trim(), "2");
}

/// What was purged is in files, which are taken back once; what is no such file is refused.
fn comes_back(c: &Cluster) {
    let files = c.ok("stat -c '%a %n' ../old/*");
    assert_eq!(files.lines().count(), 2, "{files}");
    assert!(
        files
            .lines()
            .all(|line| line.starts_with("600 ../old/new_")),
        "{files}"
    );
    exports_as_parquet(c);
    let back = c.ok("muster import archive ../old/*");
    assert!(
        back.lines()
            .all(|line| line.contains(" 0 were there, 0 are of jobs")),
        "{back}"
    );
    assert!(runs(c) > 150);
    let again = c.ok("muster import archive ../old/*");
    assert!(
        again
            .lines()
            .all(|line| line.contains(": 0 rows taken back")),
        "{again}"
    );
    c.ok("mkfifo pipe; cat ../old/*_job_* | head -c 9000 >cut; sed 's/rootjob/ROOTJOB/' ../old/*_job_* >changed");
    c.ok("chmod 644 cut changed");
    for (file, says) in [
        ("pipe", "not a regular file"),
        ("/etc/passwd", "not an archive"),
        ("cut", "damaged"),
        ("changed", "damaged"),
        ("/dev/zero", "not a regular file"),
    ] {
        let refused = c.run(&format!("muster import archive {file}"));
        assert!(
            refused.code == 1 && refused.err.contains(says),
            "{refused:?}"
        );
        assert!(!refused.err.contains("root:"), "{refused:?}");
    }
}

/// Other tools read what was purged; of a file that is damaged nothing is left.
fn exports_as_parquet(c: &Cluster) {
    let made = c.ok("mkdir parquet; muster export archive --to parquet ../old/*");
    for kind in ["job", "step", "node_event"] {
        let count = format!(".{kind}.parquet");
        assert!(made.contains(&count), "{made}");
    }
    let files =
        c.ok("stat -c %a parquet/* | sort -u; head -c 4 -q parquet/* | fold -w 4 | sort -u");
    assert_eq!(files, "600\nPAR1");
    let again = c.run("muster export archive --to parquet ../old/*_job_*");
    assert!(
        again.code == 1 && again.err.contains("File exists"),
        "{again:?}"
    );
    c.ok("head -c 9000 ../old/*_job_* >short");
    let damaged = c.run("muster export archive short");
    assert!(
        damaged.code == 1 && damaged.err.contains("damaged"),
        "{damaged:?}"
    );
    assert_eq!(c.ok("ls short*; rm -r short parquet").trim(), "short");
}

/// Killed in the middle, the import has all at the end, and nothing twice.
fn goes_on(c: &Cluster, ask: &dyn Fn(&str) -> String) {
    ask(
        "CREATE TABLE more LIKE peer_job_table; INSERT INTO more SELECT * FROM peer_job_table; \
         ALTER TABLE more DROP PRIMARY KEY, MODIFY job_db_inx BIGINT UNSIGNED NOT NULL",
    );
    // Each round as many as there are, under numbers that nobody has.
    for round in 0..7 {
        let (number, job) = (1000_u64 << round, 1000_u64 << round);
        ask(&format!(
            "UPDATE more SET job_db_inx = job_db_inx + {number}, id_job = id_job + {job}, id_array_job = 0, \
             id_array_task = 4294967294, het_job_id = 0; INSERT INTO peer_job_table SELECT * FROM more; \
             TRUNCATE more; INSERT INTO more SELECT * FROM peer_job_table"
        ));
    }
    let all: usize = ask("SELECT count(*) FROM peer_job_table").parse().unwrap();
    assert!(all > 15_000, "{all}");
    let own = 2;
    // sacct leaves out jobs that never could have run.
    let listed = runs(c) - own;
    let mut process = c
        .command("exec muster import slurmdbd --conf ../old.conf --history-only >/dev/null 2>&1")
        .spawn()
        .unwrap();
    c.until("some are there", || runs(c) > listed + own);
    c.kill(process.id().try_into().unwrap());
    process.wait().unwrap();
    let some = runs(c);
    let rest = import(c, "--history-only");
    assert_eq!(rest.code, 0, "{rest:?}");
    assert_eq!(
        runs(c),
        listed * 128 + own,
        "{some} were there before: {rest:?}"
    );
    let sums = "sums by month, account and user are those of the source";
    assert!(rest.out.contains(sums), "{rest:?}");
}

/// What the commands of a real Slurm printed of the same database.
fn is_shown(c: &Cluster) {
    let sacct = "sacct -D -n -P -S 2026-10-31 -E 2026-11-26 -j";
    let jobs = c.ok(&format!(
        "{sacct} 2,3,8,9,22,23 -o jobid,jobname,user,account,state,exitcode,elapsedraw,alloccpus,nodelist,qos,wckey"
    ));
    for line in [
        "2|done|amy|physics|COMPLETED|0:0|3|2|n3|normal|proj2",
        "2.0|stepa||physics|COMPLETED|0:0|3|2|n3||",
        "3|failing|amy|physics|FAILED|7:0|0|1|n2|normal|*proj1",
        "3.batch|batch||physics|FAILED|7:0|0|1|n2||",
        "8_3|arr|dan|acme|FAILED|1:0|4|1|n2|normal|*",
        "8_5|arr|dan|acme|COMPLETED|0:0|4|1|n2|normal|*",
        "9+1|het|amy|physics|COMPLETED|0:0|5|2|n3|normal|*proj1",
        "22|requeued|cara|optics|REQUEUED|0:0|4|1|n1|normal|*",
        "22|requeued|cara|optics|COMPLETED|0:0|12|1|n1|normal|*",
        "23|suspended|ben|chem|COMPLETED|0:0|19|1|n1|normal|*",
    ] {
        assert!(jobs.lines().any(|shown| shown == line), "{line}:\n{jobs}");
    }
    let memory = c.ok(&format!(
        "{sacct} 2.0 -o maxrss,maxrssnode,maxvmsize,avecpu,reqtres"
    ));
    assert!(memory.starts_with("2432K|n3|3904K|00:00:00|"), "{memory}");
    let limits = c.ok("sacctmgr -nP show assoc account=optics,acme,chem format=account,user,partition,share,grptres,grptresmins,maxwall,defaultqos");
    for line in [
        "optics|||5|cpu=12|cpu=60000||",
        "acme|||1|||2-00:00:00|",
        "chem|ben||3||||",
        "acme|dan|short|1|||2-00:00:00|",
    ] {
        assert!(
            limits.lines().any(|shown| shown == line),
            "{line}:\n{limits}"
        );
    }
    let qos = c.ok("sacctmgr -nP show qos format=name,priority,preempt,preemptmode,usagefactor,maxjobspu,maxtrespu,flags,maxwall");
    for line in [
        "high|100|low,lowc|cluster|2.000000|8|cpu=14||",
        "strict|0||cluster|1.000000|||DenyOnLimit|00:10:00",
        "lowc|1||cancel|0.500000||||",
    ] {
        assert!(qos.lines().any(|shown| shown == line), "{line}:\n{qos}");
    }
    // Seconds of CPU time of October; sums that slurmdbd itself has kept are up to a second more where a job was suspended.
    let used = c.ok("sreport -nP -t seconds cluster AccountUtilizationByUser start=2026-10-01 end=2026-11-01 format=account,login,used");
    for line in [
        "optics|cara|31",
        "physics|amy|721",
        "chem|ben|89",
        "acme|dan|51",
        "science|root|78",
    ] {
        assert!(used.lines().any(|shown| shown == line), "{line}:\n{used}");
    }
    let events = c
        .ok("sacctmgr -nP show event start=2026-10-01 end=2026-12-01 format=nodename,reason,start");
    assert!(events.contains("n3|bad disk|2026-10-31T"), "{events}");
    let changes = c.ok("sacctmgr -nP show transactions start=2026-10-01 end=2026-11-01");
    assert!(changes.contains("Add Accounts|root|science"), "{changes}");
}
