//! Real MPICH programs, which find each other by PMI-1 through `--mpi=pmi2`. Debian's packages are unpacked beside the
//! tests rather than installed: they would change what `mpicc` is.

use crate::cluster::Cluster;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

const PROGRAM: &str = r#"
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
int main(int argc, char **argv) {
  int rank, size, token = 1, sum;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  int next = (rank + 1) % size, before = (rank + size - 1) % size;
  if (rank > 0) {
    MPI_Recv(&token, 1, MPI_INT, before, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    token++;
  }
  if (size > 1) MPI_Send(&token, 1, MPI_INT, next, 0, MPI_COMM_WORLD);
  if (size > 1 && rank == 0)
    MPI_Recv(&token, 1, MPI_INT, before, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  printf("%d of %d: token %d, sum %d\n", rank, size, token, sum);
  fflush(stdout);
  if (argc > 2 && rank == atoi(argv[2])) {
    if (!strcmp(argv[1], "abort")) MPI_Abort(MPI_COMM_WORLD, 7);
    if (!strcmp(argv[1], "exit")) _exit(9);
  }
  if (argc > 1) MPI_Barrier(MPI_COMM_WORLD);
  MPI_Finalize();
  return 0;
}
"#;

/// Where MPICH is unpacked: fetched once for all tests of a process.
fn mpich() -> &'static Path {
    static DIR: OnceLock<PathBuf> = OnceLock::new();
    DIR.get_or_init(|| {
        let dir = std::env::temp_dir().join(format!("muster-mpich-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let script = "apt-get download -q libmpich12 libmpich-dev && for p in *.deb; do dpkg -x $p . || exit; done";
        let done = Command::new("bash").args(["-c", script]).current_dir(&dir).output().unwrap();
        let text = String::from_utf8_lossy(&done.stderr).into_owned();
        assert!(done.status.success(), "MPICH cannot be fetched: {text}");
        dir
    })
}

/// Compiles the program into the cluster's directory.
fn build(c: &Cluster) {
    let lib = mpich().join("usr/lib/x86_64-linux-gnu");
    let include = mpich().join("usr/include/x86_64-linux-gnu/mpich");
    c.write("program.c", PROGRAM);
    c.ok(&format!(
        "gcc -o program program.c -I{} {}/libmpich.so.12 -Wl,-rpath,{}",
        include.display(),
        lib.display(),
        lib.display()
    ));
}

/// What so many ranks print.
fn ring(ranks: u32) -> String {
    let sum: u32 = (0..ranks).sum();
    let line = |rank: u32| {
        let token = if rank == 0 { ranks } else { rank + 1 };
        format!("{rank} of {ranks}: token {token}, sum {sum}")
    };
    (0..ranks).map(line).collect::<Vec<_>>().join("\n")
}

#[test]
fn mpich_runs_as_one_job_on_one_node_and_on_several() {
    let c = Cluster::start(3, 4);
    build(&c);
    assert!(c.ok("srun --mpi=list").contains("\tpmi2\n"));
    for (options, ranks) in [
        ("-N1 -n1", 1),
        ("-N1 -n3", 3),
        ("-N3 -n5", 5),
        ("-N2 -n4 -m cyclic", 4),
        ("-N2 -n5 -m plane=2", 5),
    ] {
        let out = c.ok(&format!("srun --mpi=pmi2 {options} ./program | sort -n"));
        assert_eq!(out, ring(ranks), "srun {options}");
    }
    // Programs that know nothing of MPI are not in the way of it.
    assert_eq!(c.ok("srun --mpi=pmi2 -N2 echo here"), "here\nhere");
}

#[test]
fn a_failed_mpich_rank_ends_the_step_with_its_status() {
    let c = Cluster::start(2, 4);
    build(&c);
    let abort = c.run("srun --mpi=pmi2 -N2 -n4 ./program abort 3");
    assert_eq!(abort.code, 7, "{}", abort.err);
    assert!(
        abort
            .err
            .contains("mpi/pmi2: n2: task 3 aborts StepId=1.0 with status 7"),
        "{}",
        abort.err
    );
    // The others wait in a barrier for a rank that is gone.
    let exit = c.run("srun --mpi=pmi2 -N2 -n4 ./program exit 1");
    assert_eq!(exit.code, 9, "{}", exit.err);
    let home = c.path("").display().to_string();
    let left = c.ok(&format!(
        "ps -eo args | grep -F '{home}' | grep -F ./program | grep -v grep || true"
    ));
    assert_eq!(left, "", "processes are left");
}
