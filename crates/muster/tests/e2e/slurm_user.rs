//! The controller as SlurmUser: what it is left with, and that a cluster works that way.

use crate::cluster::Cluster;

/// An account that each Debian has and that owns nothing.
const USER: &str = "daemon";

fn start(more: &str) -> Option<Cluster> {
    let own = std::process::Command::new("id").arg("-u").output().unwrap();
    if own.stdout != b"0\n" {
        eprintln!(
            "not root: the controller has the only user there is; this test looked at nothing"
        );
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
