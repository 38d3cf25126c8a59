//! What a node tells of itself for MPI: cross-memory attach, `muster doctor`, `muster bench mpi`.

use crate::cluster::Cluster;

/// What tasks find in their environment of the switches of MPI libraries.
const SWITCHES: &str =
    "srun --mpi=pmix -n1 env | grep -e single_copy -e smsc -e UCX_TLS -e _CMA | sort";

#[test]
fn nodes_tell_whether_ranks_may_copy_from_each_other() {
    let c = Cluster::start(2, 2);
    let shown = c.ok("scontrol show node n2 | grep CrossMemoryAttach");
    // Whether it works is the kernel's affair; that it is known is not.
    let works = shown.starts_with("CrossMemoryAttach=YES AttachMBps=");
    assert!(
        works || shown.starts_with("CrossMemoryAttach=NO CrossMemoryReason="),
        "{shown}"
    );
    let off = "I_MPI_SHM_CMA=0\nMPIR_CVAR_CH4_CMA_ENABLE=0\nOMPI_MCA_btl_vader_single_copy_mechanism=none\n\
               OMPI_MCA_smsc=^cma\nUCX_TLS=^cma";
    let conf = c.path("mpi.conf");
    std::fs::write(&conf, "CrossMemoryAttach=no\n").unwrap();
    c.ok("scontrol reconfigure");
    c.until_prints(SWITCHES, off);
    // What the user says counts.
    let own = c.ok(&format!("export UCX_TLS=tcp,self; {SWITCHES}"));
    assert_eq!(own, off.replace("UCX_TLS=^cma", "UCX_TLS=tcp,self"));
    std::fs::write(&conf, "CrossMemoryAttach=yes\n").unwrap();
    c.ok("scontrol reconfigure");
    c.until_prints(
        SWITCHES,
        "I_MPI_SHM_CMA=1\nOMPI_MCA_btl_vader_single_copy_mechanism=cma",
    );
}

/// A task reads the memory of another one of its step.
const PEEK: &str = r#"
#define _GNU_SOURCE
#include <mpi.h>
#include <stdio.h>
#include <sys/uio.h>
#include <unistd.h>
int main(int argc, char **argv) {
  int rank, value = 0;
  long there[2], got[2];
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  value = 40 + rank;
  there[0] = getpid();
  there[1] = (long)&value;
  MPI_Sendrecv(there, 2, MPI_LONG, !rank, 0, got, 2, MPI_LONG, !rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  int seen = 0;
  struct iovec local = {&seen, sizeof seen}, remote = {(void *)got[1], sizeof seen};
  ssize_t n = process_vm_readv(got[0], &local, 1, &remote, 1, 0);
  printf("%d reads %d: %d\n", rank, seen, (int)n);
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Finalize();
  return 0;
}
"#;

#[test]
fn tasks_of_a_step_may_copy_from_each_other_where_the_node_says_so() {
    let c = Cluster::start(1, 2);
    if c.ok("scontrol show node n1")
        .contains("CrossMemoryAttach=NO")
    {
        return;
    }
    c.write("peek.c", PEEK);
    c.ok("mpicc -o peek peek.c");
    let out = c.ok("srun --mpi=pmix -n2 ./peek | sort");
    assert_eq!(out, "0 reads 41: 4\n1 reads 40: 4");
}

#[test]
fn the_doctor_tries_each_mpi_and_says_what_it_finds() {
    let c = Cluster::start(1, 1);
    let muster = env!("CARGO_BIN_EXE_muster");
    let ran = c.run(&format!("{muster} doctor --json"));
    let json: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    let findings = json["findings"].as_array().unwrap();
    let of = |name: &str| {
        findings
            .iter()
            .find(|f| f["name"].as_str().unwrap().starts_with(name))
            .unwrap_or_else(|| panic!("nothing of {name} in {}", ran.out))
    };
    let open_mpi = of("Open MPI");
    assert_eq!(open_mpi["state"], "ok", "{open_mpi}");
    let found = open_mpi["found"].as_str().unwrap();
    assert!(found.contains("two ranks by srun in"), "{found}");
    assert!(found.contains("two ranks by mpirun in"), "{found}");
    assert_eq!(of("libpmix")["state"], "ok");
    for name in [
        "cross-memory attach",
        "shared memory",
        "locked memory",
        "control groups",
        "munge",
        "clock",
        "ports",
    ] {
        of(name);
    }
    // A library that cannot be opened is no secret.
    let ran = c.run(&format!(
        "MUSTER_PMIX_LIB=/nowhere/libpmix.so.2 {muster} doctor --quick"
    ));
    assert!(ran.out.contains("/nowhere/libpmix.so.2"), "{}", ran.out);
    assert!(
        ran.out.contains("-> without it srun starts MPICH only"),
        "{}",
        ran.out
    );
    let wrong = c.run(&format!("{muster} doctor --cure"));
    assert_eq!(wrong.code, 1);
    assert!(
        wrong.err.contains("doctor has no option '--cure'"),
        "{}",
        wrong.err
    );
}

#[test]
fn the_benchmark_prints_both_launchers_and_draws_them() {
    let c = Cluster::start(1, 1);
    let muster = env!("CARGO_BIN_EXE_muster");
    let out = c.ok(&format!(
        "{muster} bench mpi --ranks 2 --nodes 1 --reps 1 --largest 65536 --json --plot start.svg"
    ));
    let json: serde_json::Value = serde_json::from_str(&out).unwrap();
    let by: Vec<&str> = json["start"]
        .as_array()
        .unwrap()
        .iter()
        .map(|s| s["by"].as_str().unwrap())
        .collect();
    assert!(by.contains(&"mpirun") && by.contains(&"srun"), "{by:?}");
    let rows = json["messages"].as_array().unwrap();
    assert!(
        rows.iter()
            .any(|m| m["by"] == "srun, CMA off" && m["bytes"] == 65536),
        "{out}"
    );
    assert!(c.read("start.svg").contains("srun, CMA off"));
}

/// Processes of `muster doctor`'s private cluster of this process, by its directory.
fn of_scratch(home: &str) -> usize {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let environments = entries.filter_map(|e| std::fs::read(e.path().join("environ")).ok());
    let mark = format!("MUSTER_HOME={home}");
    environments
        .filter(|env| env.split(|b| *b == 0).any(|v| v == mark.as_bytes()))
        .count()
}

/// The directory for temporary files whose name begins so.
fn directory(prefix: &str) -> Option<std::path::PathBuf> {
    let mut entries = std::fs::read_dir(std::env::temp_dir()).unwrap().flatten();
    let found = entries.find(|e| e.file_name().to_string_lossy().starts_with(prefix))?;
    Some(found.path())
}

#[test]
fn a_check_that_is_killed_leaves_no_cluster() {
    let c = Cluster::start(1, 1);
    for signal in ["INT", "HUP", "TERM", "KILL"] {
        // Started in the background of a shell, the tests themselves may ignore some of them.
        let mut command = std::process::Command::new("env");
        command.args(["--default-signal", env!("CARGO_BIN_EXE_muster")]);
        command.args(["bench", "mpi", "--ranks", "2", "--reps", "1000"]);
        let mut bench = command.stdout(std::process::Stdio::null()).spawn().unwrap();
        let prefix = format!("muster-scratch-{}-", bench.id());
        let mut home = None;
        c.until("the benchmark runs", || {
            home = home.take().or_else(|| directory(&prefix));
            home.as_ref()
                .is_some_and(|home| home.join("work/startup").exists())
        });
        let home = home.unwrap();
        assert!(of_scratch(home.to_str().unwrap()) > 2);
        c.ok(&format!("kill -{signal} {}", bench.id()));
        assert!(!bench.wait().unwrap().success());
        c.until("the cluster is gone", || !home.exists());
        assert_eq!(of_scratch(home.to_str().unwrap()), 0);
    }
}
