//! A private cluster whose nodes are hosts with namespaces of their own (`muster up --hosts`).

use crate::cluster::Cluster;
use crate::mpi::{RING, ring};
use std::process::Command;

/// Processes and mounts of this machine that name a directory, and interfaces of hosts.
fn left_behind(dir: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        for name in ["cmdline", "environ"] {
            let bytes = std::fs::read(entry.path().join(name)).unwrap_or_default();
            if String::from_utf8_lossy(&bytes).contains(dir) {
                found.push(entry.path().display().to_string());
            }
        }
    }
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    let links = Command::new("ip").args(["-o", "link"]).output().unwrap();
    let links = String::from_utf8_lossy(&links.stdout).into_owned();
    let named = |line: &&str| line.contains(dir) || line.contains(" h.");
    found.extend(
        mounts
            .lines()
            .chain(links.lines())
            .filter(named)
            .map(str::to_owned),
    );
    found
}

#[test]
fn each_node_is_a_host_and_nothing_of_them_stays() {
    let needed = Command::new("sh")
        .args(["-c", "command -v munged ip mpicc"])
        .output();
    if !nix::unistd::geteuid().is_root() || !needed.unwrap().status.success() {
        eprintln!("not root, or no ip, munged or mpicc is there: this test looked at nothing");
        return;
    }
    let c = Cluster::fresh();
    let up = c.muster("up", &["--hosts", "--nodes", "3", "--cpus", "2"]);
    assert!(
        up.status.success(),
        "{}",
        String::from_utf8_lossy(&up.stderr)
    );
    let home = c.path("").display().to_string();
    let home = home.trim_end_matches('/');
    let login = |script: &str| {
        c.ok(&format!(
            "MUSTER_HOME={home} muster host login sh -c '{script}'"
        ))
    };
    assert_eq!(
        c.ok(&format!("MUSTER_HOME={home} muster host n2 hostname")),
        "n2"
    );
    assert_eq!(login("srun -N3 hostname | sort"), "n1\nn2\nn3");
    login("sbatch -W -N2 -o out --wrap hostname");
    assert_eq!(c.read("out").trim(), "n1");
    c.write("ring.c", RING);
    c.ok("mpicc -o ring ring.c; touch /dev/shm/of-this-machine");
    assert_eq!(login("srun -N3 ls /dev/shm | grep -c machine || true"), "0");
    c.ok("rm /dev/shm/of-this-machine");
    let mpirun = "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 salloc -N3 -n3 mpirun ./ring | sort -n";
    assert_eq!(login(mpirun), ring(3));
    assert_eq!(login("srun --mpi=pmix -N3 -n3 ./ring | sort -n"), ring(3));
    let down = c.muster("down", &[]);
    assert!(
        down.status.success(),
        "{}",
        String::from_utf8_lossy(&down.stderr)
    );
    assert_eq!(left_behind(home), Vec::<String>::new());
}
