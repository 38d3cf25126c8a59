//! The controller as SlurmUser: what it is left with, and that a cluster works that way.

use crate::cluster::{Cluster, alive};

/// An account that each Debian has and that owns nothing.
const USER: &str = "daemon";

/// Whether the tests have users to choose from; says so if not.
pub(crate) fn is_root() -> bool {
    let own = std::process::Command::new("id").arg("-u").output().unwrap();
    let is_root = own.stdout == b"0\n";
    if !is_root {
        eprintln!(
            "not root: the controller has the only user there is; this test looked at nothing"
        );
    }
    is_root
}

fn start(more: &str) -> Option<Cluster> {
    if !is_root() {
        return None;
    }
    Some(Cluster::from_conf(&format!(
        "ClusterName=c\nSlurmctldHost=h\nSlurmUser={USER}\nAccountingStorageType=accounting_storage/slurmdbd\n{more}\
         NodeName=n1 CPUs=2 State=UNKNOWN\nPartitionName=p Nodes=ALL Default=YES State=UP\n"
    )))
}

#[test]
fn the_controller_has_nothing_of_root() {
    let Some(c) = start("") else { return };
    let status = |pid: i32| {
        c.ok(&format!(
            "grep -E '^(Uid|Gid|CapEff|CapPrm|CapBnd|Groups)' /proc/{pid}/status"
        ))
    };
    let mine = status(c.controller());
    assert!(
        mine.contains("Uid:\t1\t1\t1\t1\nGid:\t1\t1\t1\t1"),
        "{mine}"
    );
    for caps in ["CapEff", "CapPrm"] {
        assert!(
            mine.contains(&format!("{caps}:\t0000000000000000")),
            "{mine}"
        );
    }
    let owners = "stat -c %u ../state ../state/controller.key ../state/journal ../run/ctld.pid ../log/ctld.log";
    assert_eq!(c.ok(owners), "1\n1\n1\n1\n1");
    let modes =
        "stat -c %a ../state ../state/controller.key ../state/accounting.db ../log/ctld.log";
    assert_eq!(c.ok(modes), "700\n600\n600\n640");
    assert!(!c.read("../log/ctld.log").contains("SlurmUser is not set"));
    // Others of that user cannot read its memory, in which the secrets are.
    let traced = c.run(&format!(
        "setpriv --reuid=1 --regid=1 --clear-groups head -c 1 /proc/{}/environ",
        c.controller()
    ));
    assert_ne!(traced.code, 0, "{traced:?}");
}

#[test]
fn a_cluster_works_and_its_state_outlives_the_controller() {
    let Some(c) = start("") else { return };
    c.ok("chmod 755 .. && chmod 1777 .");
    c.ok("setpriv --reuid=65534 --regid=65534 --clear-groups sbatch -W -o out --wrap 'id -u'");
    assert_eq!(c.read("out"), "65534\n");
    let held = c.sbatch("-H -o /dev/null --wrap true");
    c.kill(c.controller());
    let started = c.start_controller();
    assert_eq!(started.code, 0, "{started:?}");
    assert_eq!(c.ok(&format!("squeue -h -j {held} -o %t")), "PD");
    c.ok("scontrol reconfigure");
    c.until_prints("sinfo -h -o %T", "idle");
    assert_eq!(c.ok("srun id -u"), "0");
}

#[test]
fn the_sites_programs_on_the_controllers_host_run_as_slurm_user() {
    let dir = std::env::temp_dir().join(format!("muster-su-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let program = dir.join("prolog");
    let said = dir.join("said");
    std::fs::write(&program, format!("#!/bin/sh\nid -u > {}\n", said.display())).unwrap();
    let Some(c) = start(&format!("PrologSlurmctld={}\n", program.display())) else {
        return;
    };
    c.ok(&format!(
        "chmod 755 {} && chmod 1777 {}",
        program.display(),
        dir.display()
    ));
    c.ok("srun true");
    assert_eq!(std::fs::read_to_string(&said).unwrap(), "1\n");
    std::fs::remove_dir_all(&dir).unwrap();
}

/// slurmdbd.conf is SlurmUser's, as Slurm wants it, and names root's files; then what a site has.
#[test]
fn a_slurmdbd_of_slurm_user_opens_nothing_as_root() {
    let Some(c) = start("") else { return };
    let secret = c.path("secret");
    let kept = format!("stat -c '%u %a %s' {}", secret.display());
    c.write("../secret", "root's, and long enough to be cut off\n");
    c.ok(&format!("chmod 600 {}", secret.display()));
    let before = c.ok(&kept);
    let conf = |log: &str, pid: &str| {
        let path = |name| c.path(name).display().to_string();
        c.ok("rm -f ../slurmdbd.conf");
        let text = format!("LogFile={}\nPidFile={}\n", path(log), path(pid));
        c.write("../slurmdbd.conf", &text);
        c.ok("chmod 600 ../slurmdbd.conf");
    };
    let run = || c.run("timeout 60 slurmdbd -D");
    c.ok(&format!("install -d -o {USER} ../theirs"));
    for (log, pid) in [("secret", "theirs/dbd.pid"), ("theirs/dbd.log", "secret")] {
        conf(log, pid);
        c.ok(&format!("chown {USER} ../slurmdbd.conf"));
        let refused = run();
        assert!(
            refused.code == 1 && refused.err.contains("ermission denied"),
            "{refused:?}"
        );
    }
    // Another file in its place is not read, however its lines look.
    c.ok("rm ../slurmdbd.conf && ln -s ../secret ../theirs/slurmdbd.conf && ln -s theirs/slurmdbd.conf ../slurmdbd.conf");
    let refused = run();
    assert!(
        refused.code == 1 && !refused.err.contains("long enough"),
        "{refused:?}"
    );
    assert_eq!(c.ok(&kept), before);
    for (owner, place) in [(USER, "theirs"), ("root", "log")] {
        conf(&format!("{place}/own.log"), &format!("{place}/own.pid"));
        c.ok(&format!("chown {owner} ../slurmdbd.conf"));
        c.ok("slurmdbd");
        let files = format!("cd ../{place} && stat -c %U own.log own.pid own.pid.lock");
        assert_eq!(c.ok(&files), format!("{USER}\n{USER}\n{USER}"));
        let pid = c
            .read(&format!("../{place}/own.pid"))
            .trim()
            .parse()
            .unwrap();
        let uids = c.ok(&format!("grep ^Uid: /proc/{pid}/status"));
        assert!(uids.contains("\t1\t1\t1\t1"), "{uids}");
        c.ok(&format!("kill {pid}"));
        c.until("it ends", || !alive(pid));
    }
}
