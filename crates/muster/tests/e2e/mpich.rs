//! Real MPICH programs, which find each other by PMI-1 through `--mpi=pmi2`. Debian's packages are unpacked beside the
//! tests rather than installed: they would change what `mpicc` is.

use crate::cluster::Cluster;
use crate::packages;
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
  if (argc > 2 && !strcmp(argv[1], "late") && !strcmp(argv[2], getenv("SLURM_PROCID"))) pause();
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
    if (!strcmp(argv[1], "hang")) pause();
    if (!strcmp(argv[1], "crash")) {
      system("grep -ohE '/dev/shm/mpich_[^ ]*$' /proc/$PPID/maps | sort -u > shared");
      abort();
    }
  }
  // In a barrier the others might notice that a rank is gone, and abort before srun has heard of it.
  if (argc > 1) pause();
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

const SPAWN: &str = r#"
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
int main(int argc, char **argv) {
  int rank, size, sum, *app, flag;
  MPI_Comm parent, other, all;
  MPI_Init(&argc, &argv);
  MPI_Comm_get_parent(&parent);
  MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_APPNUM, &app, &flag);
  if (parent == MPI_COMM_NULL && argc > 2) {
    char *commands[2] = {argv[0], argv[0]};
    char *first[3] = {"a b", "first", NULL}, *second[2] = {"second", NULL};
    char **words[2] = {first, second};
    int counts[2] = {atoi(argv[1]), atoi(argv[2])};
    MPI_Info infos[2] = {MPI_INFO_NULL, MPI_INFO_NULL};
    MPI_Comm_spawn_multiple(2, commands, words, counts, infos, 0, MPI_COMM_WORLD, &other, MPI_ERRCODES_IGNORE);
  } else if (parent == MPI_COMM_NULL) {
    MPI_Comm_spawn(argv[0], MPI_ARGV_NULL, atoi(argv[1]), MPI_INFO_NULL, 0, MPI_COMM_WORLD, &other,
                   MPI_ERRCODES_IGNORE);
  } else {
    other = parent;
  }
  MPI_Intercomm_merge(other, parent != MPI_COMM_NULL, &all);
  MPI_Comm_rank(all, &rank);
  MPI_Comm_size(all, &size);
  MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, all);
  printf("%s %d of %d: sum %d, program %d, %s\n", parent == MPI_COMM_NULL ? "parent" : "child", rank, size, sum,
         flag ? *app : -1, argv[argc - 1]);
  fflush(stdout);
  MPI_Comm_free(&all);
  MPI_Comm_disconnect(&other);
  MPI_Finalize();
  return 0;
}
"#;

/// The compiler of a newer MPICH, from the Python package index: Debian's, as built there, cannot spawn whatever starts it.
fn newer_mpicc() -> Option<PathBuf> {
    Some(packages::installed("mpich==5.0.2")?.join("bin/mpicc"))
}

/// Compiles the program into the cluster's directory.
fn build(c: &Cluster) {
    c.write("program.c", PROGRAM);
    compile(c, "program", "program.c");
}

/// Compiles a program into the cluster's directory.
pub(crate) fn compile(c: &Cluster, name: &str, source: &str) {
    let lib = mpich().join("usr/lib/x86_64-linux-gnu");
    let include = mpich().join("usr/include/x86_64-linux-gnu/mpich");
    c.ok(&format!(
        "gcc -o {name} {source} -I{} {}/libmpich.so.12 -Wl,-rpath,{}",
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
    // The others would wait for ever for a rank that is gone.
    let exit = c.run("srun --mpi=pmi2 -N2 -n4 ./program exit 1");
    assert_eq!(exit.code, 9, "{}", exit.err);
    let home = c.path("").display().to_string();
    let left = c.ok(&format!(
        "ps -eo args | grep -F '{home}' | grep -F ./program | grep -v grep || true"
    ));
    assert_eq!(left, "", "processes are left");
}

#[test]
fn a_step_of_mpich_that_is_ended_or_loses_a_daemon_leaves_nothing() {
    let c = Cluster::with_own_clock(2, 4);
    build(&c);
    c.ok("salloc -Q -N2 -n4 --no-shell");
    let home = c.path("").display().to_string();
    // Ranks run in the cluster's directory; what serves them names it.
    let left = || {
        c.ok(&format!(
            "for p in $(pgrep -x 'program|muster-stepd|muster-pmix'); do \
               if readlink /proc/$p/cwd | grep -qF '{home}' || tr '\\0' ' ' < /proc/$p/cmdline | grep -qF '{home}'; \
               then ps -o pid=,stat=,args= $p | grep -v defunct; fi; done || true; \
             ls ../spool.*/step-*.sock 2>/dev/null || true"
        ))
    };
    let hang = |options: &str| {
        c.write("out", "");
        let script = format!(
            "exec srun --jobid=1 --mpi=pmi2 -N2 -n4 {options} ./program hang 1 > out 2> err"
        );
        let child = c.command(&script).spawn().unwrap();
        c.until("the ranks are up", || c.read("out").lines().count() == 4);
        child
    };
    let mut late = hang("--time=1");
    c.put_forward(60);
    assert!(!late.wait().unwrap().success());
    assert!(
        c.read("err").contains("DUE TO TIME LIMIT"),
        "{}",
        c.read("err")
    );
    c.until("nothing is left", || left().is_empty());
    let mut lost = hang("");
    let spool = c.path("spool.n2").display().to_string();
    let daemon = c.ok(&format!(
        "for p in $(pgrep -x muster-stepd); do if grep -qF '{spool}' /proc/$p/cmdline; then echo $p; fi; done"
    ));
    c.kill(daemon.parse().unwrap());
    assert!(!lost.wait().unwrap().success());
    assert!(
        c.read("err").contains("Node failure on n2"),
        "{}",
        c.read("err")
    );
    c.until("nothing is left", || left().is_empty());
    c.ok("scancel 1");
    c.until_prints("squeue -h", "");
}

#[test]
fn ranks_that_are_killed_leave_no_memory() {
    let Some(mpicc) = newer_mpicc() else {
        return;
    };
    let c = Cluster::start(1, 4);
    c.write("program.c", PROGRAM);
    c.ok(&format!("{} -o program program.c", mpicc.display()));
    let home = c.path("").display().to_string();
    // MPICH 5 takes the name of the memory that ranks share away in MPI_Finalize only.
    let shared = || {
        c.ok(&format!(
            "for p in $(pgrep -x program); do readlink /proc/$p/cwd | grep -qF '{home}' && \
             grep -ohE '/dev/shm/(mpich_|ucx_shm_posix_)[^ ]*$' /proc/$p/maps; done | sort -u || true"
        ))
    };
    // Nobody tells this one to end.
    assert_ne!(c.run("srun --mpi=pmi2 -n1 ./program crash 0").code, 0);
    let path = c.read("shared");
    assert!(path.contains("mpich_"), "{path}");
    assert!(!Path::new(path.trim()).exists(), "{path}");
    let cases = [
        ("late 2", "scancel 2"),
        ("hang 1", "scancel 3"),
        ("hang 1", ""),
    ];
    for (job, (what, end)) in (2..).zip(cases) {
        let script = format!("exec srun --mpi=pmi2 -n3 ./program {what}");
        let mut child = c.command(&script).spawn().unwrap();
        let mut paths = String::new();
        c.until("ranks share memory", || {
            paths = shared();
            paths.contains("mpich_")
        });
        match end {
            "" => child.kill().unwrap(),
            end => drop(c.ok(end)),
        }
        child.wait().unwrap();
        c.until_prints(&format!("squeue -h -j {job},{job}"), "");
        for path in paths.lines() {
            assert!(!Path::new(path).exists(), "{what}: {path}");
        }
    }
}

#[test]
fn mpich_ranks_spawn_others() {
    let Some(mpicc) = newer_mpicc() else {
        return;
    };
    let c = Cluster::start(2, 4);
    c.write("spawn.c", SPAWN);
    c.ok(&format!("{} -o spawn spawn.c", mpicc.display()));
    let out = c.ok("srun --mpi=pmi2 -N2 -n2 ./spawn 3 | sort -k2n");
    let line = |who: &str, rank: u32, app: i32, word: &str| {
        format!("{who} {rank} of 5: sum 10, program {app}, {word}")
    };
    let mut wanted: Vec<String> = (0..2).map(|r| line("parent", r, 0, "3")).collect();
    wanted.extend((2..5).map(|r| line("child", r, 0, "./spawn")));
    assert_eq!(out, wanted.join("\n"));
    c.until_prints(
        "sacct -n -P -j 1 -o JobID,State,NTasks | grep -F .",
        "1.0|COMPLETED|2\n1.1|COMPLETED|3",
    );
    // Several programs, with their own arguments.
    let out = c.ok("srun --mpi=pmi2 -N2 -n2 ./spawn 1 2 | sort -k2n");
    let mut wanted: Vec<String> = (0..2).map(|r| line("parent", r, 0, "2")).collect();
    wanted.push(line("child", 2, 0, "first"));
    wanted.extend((3..5).map(|r| line("child", r, 1, "second")));
    assert_eq!(out, wanted.join("\n"));
    // What cannot be started is an error of MPI's, and the end of the step; and so is what fails before it meets those
    // who asked for it.
    let failed = c.run("srun --mpi=pmi2 -n1 ./spawn 0");
    assert_ne!(failed.code, 0);
    let failed = c.run("srun --mpi=pmi2 -n1 bash -c 'exec -a ./nosuch ./spawn 1'");
    assert_ne!(failed.code, 0, "{}", failed.err);
    // Who hears of it first, MPI that waits for its start or the step, depends on when the program is found missing.
    let told = [
        "the processes that it spawned have failed",
        "MPI_Comm_spawn",
    ];
    assert!(
        told.iter().any(|text| failed.err.contains(text)),
        "{}",
        failed.err
    );
    c.until_prints("squeue -h", "");
}
