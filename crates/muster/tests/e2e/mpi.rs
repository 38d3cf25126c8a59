//! Real MPI programs: Open MPI through PMIx. A program that ran as many jobs of one rank instead of one job of many
//! would look well otherwise, so sizes are compared first of all.

use crate::cluster::Cluster;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::process::Child;

/// Each rank tells its number and how many there are; a token goes round, a sum goes over all.
pub(crate) const RING: &str = r#"
#include <mpi.h>
#include <stdio.h>
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
  MPI_Finalize();
  return 0;
}
"#;

/// Compiles a program into the cluster's directory.
fn build(c: &Cluster, name: &str, source: &str) {
    c.write(&format!("{name}.c"), source);
    c.ok(&format!("mpicc -o {name} {name}.c"));
}

/// What `ranks` ranks of the ring print.
pub(crate) fn ring(ranks: u32) -> String {
    let sum: u32 = (0..ranks).sum();
    let line = |rank: u32| {
        let token = if rank == 0 { ranks } else { rank + 1 };
        format!("{rank} of {ranks}: token {token}, sum {sum}")
    };
    (0..ranks).map(line).collect::<Vec<_>>().join("\n")
}

/// Directories of steps that the nodes of this cluster have left, wherever they may be.
fn step_dirs(c: &Cluster) -> Vec<String> {
    let homes = c.ok("ls -d ../tmp.* 2>/dev/null || true");
    let mut found = Vec::new();
    for base in homes.lines().chain(["/dev/shm", "/tmp"]) {
        let base = c.dir.join(base);
        let Ok(entries) = std::fs::read_dir(&base) else {
            continue;
        };
        found.extend(entries.flatten().map(|e| e.path().display().to_string()));
    }
    let own: Vec<String> = (1..=4)
        .map(|node| {
            let mut hasher = DefaultHasher::new();
            c.path(&format!("spool.n{node}")).hash(&mut hasher);
            format!(".n{node}.{:016x}", hasher.finish())
        })
        .collect();
    found.retain(|name| name.contains("/muster-pmix.") && own.iter().any(|end| name.contains(end)));
    found
}

/// Processes of this cluster's steps: the ranks run in its directory, the rest names it.
fn step_processes(c: &Cluster) -> String {
    let home = c.path("").display().to_string();
    c.ok(&format!(
        "for p in $(pgrep -x 'bad|ring|muster-stepd|muster-pmix'); do \
           if readlink /proc/$p/cwd | grep -qF '{home}' || tr '\\0' ' ' < /proc/$p/cmdline | grep -qF '{home}'; \
           then ps -o pid=,stat=,args= $p | grep -v defunct; fi; done || true"
    ))
}

/// Nothing of any step is left on the machine that this cluster could have left.
#[track_caller]
pub(crate) fn assert_clean(c: &Cluster) {
    assert_eq!(step_processes(c), "", "processes are left");
    assert_eq!(step_dirs(c), Vec::<String>::new(), "directories are left");
    let sockets = c.ok("ls ../spool.*/step-*.sock 2>/dev/null || true");
    assert_eq!(sockets, "", "sockets are left");
}

/// Starts a step that does not end by itself, and waits until its ranks are up and its directories there.
#[track_caller]
fn hang(c: &Cluster, options: &str, name: &str) -> Child {
    let script =
        format!("exec srun --mpi=pmix -N2 -n4 {options} ./bad hang 0 0 > {name}.out 2> {name}.err");
    let child = c.command(&script).spawn().unwrap();
    c.until("the ranks are up", || {
        c.read_if_there(&format!("{name}.out"))
            .contains("all are here")
    });
    assert_eq!(step_dirs(c).len(), 2, "the test looks in the wrong places");
    child
}

/// Processes of a name that belong to a node.
fn of_node(c: &Cluster, name: &str, node: &str) -> Vec<i32> {
    let spool = c.path(&format!("spool.{node}")).display().to_string();
    let pids = c.ok(&format!(
        "for p in $(pgrep -x {name}); do if grep -qF '{spool}' /proc/$p/cmdline; then echo $p; fi; done"
    ));
    pids.lines().map(|pid| pid.parse().unwrap()).collect()
}

#[test]
fn open_mpi_runs_as_one_job_on_one_node_and_on_several() {
    let c = Cluster::start(4, 4);
    build(&c, "ring", RING);
    for (options, ranks) in [
        ("-N1 -n1", 1),
        ("-N1 -n4", 4),
        ("-N2 -n4", 4),
        ("-N4 -n7", 7),
    ] {
        let out = c.ok(&format!("srun --mpi=pmix {options} ./ring | sort -n"));
        assert_eq!(out, ring(ranks), "srun {options}");
    }
    assert_clean(&c);
    // More ranks than CPUs give each other way.
    let out = c.ok("srun --mpi=pmix -N2 -n16 --overcommit ./ring | sort -n");
    assert_eq!(out, ring(16));
    // Programs that know nothing of MPI are not in the way of it.
    assert_eq!(c.ok("srun --mpi=pmix -N2 echo here"), "here\nhere");
    let kinds = c.ok("srun --mpi=list");
    assert!(kinds.contains("\tpmix\n"), "{kinds}");
    let version = kinds.rsplit(": ").next().unwrap();
    let out = c.ok(&format!(
        "SLURM_MPI_TYPE={version} srun -n2 ./ring | sort -n"
    ));
    assert_eq!(out, ring(2));
    let wrong = c.run("srun --mpi=pmix_v3 -n2 ./ring");
    assert_eq!(wrong.code, 1);
    assert!(
        wrong
            .err
            .contains("pmix_v3 was asked for, but the node's library is"),
        "{}",
        wrong.err
    );
    assert_clean(&c);
}

/// One rank, the third word, does what the first says with the number that the second is.
pub(crate) const BAD: &str = r#"
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
int main(int argc, char **argv) {
  int rank, number = atoi(argv[2]), who = atoi(argv[3]);
  if (!strcmp(argv[1], "early") && atoi(getenv("SLURM_PROCID")) == who) return number;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Barrier(MPI_COMM_WORLD);
  if (!strcmp(argv[1], "hang")) {
    if (rank == who) puts("all are here");
    fflush(stdout);
  }
  if (rank == who) {
    if (!strcmp(argv[1], "abort")) MPI_Abort(MPI_COMM_WORLD, number);
    if (!strcmp(argv[1], "kill")) raise(number);
    if (!strcmp(argv[1], "exit")) _exit(number);
    if (!strcmp(argv[1], "hang")) pause();
  }
  if (!strcmp(argv[1], "after")) {
    MPI_Finalize();
    return rank == who ? number : 0;
  }
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Finalize();
  return 0;
}
"#;

#[test]
fn an_end_that_others_would_wait_for_ends_the_step_with_its_status() {
    let c = Cluster::start(2, 4);
    build(&c, "bad", BAD);
    let cases = [
        (
            "abort 42 1",
            42,
            "42:0",
            "task 1 aborts StepId=1.0 with status 42",
        ),
        // An abort is no success, whatever its last eight bits say.
        (
            "abort 256 3",
            1,
            "1:0",
            "task 3 aborts StepId=2.0 with status 256",
        ),
        ("kill 9 2", 137, "0:9", "n2: task 2: Killed"),
        ("exit 5 3", 5, "5:0", "n2: task 3: Exited with exit code 5"),
        (
            "exit 0 1",
            1,
            "1:0",
            "task 1 exited without taking leave of the others",
        ),
        // It never joined; the others wait for it all the same.
        ("early 9 2", 9, "9:0", "n2: task 2: Exited with exit code 9"),
        // Nobody waits for a rank that has taken its leave.
        ("after 3 1", 3, "3:0", "n1: task 1: Exited with exit code 3"),
    ];
    for (job, (what, code, exit, text)) in (1..).zip(cases) {
        let ran = c.run(&format!(
            "srun --mpi=pmix -N2 -n4 --ntasks-per-node=2 ./bad {what}"
        ));
        assert_eq!(ran.code, code, "{what}: {}", ran.err);
        assert!(ran.err.contains(text), "{what}: {}", ran.err);
        let ended_early = !what.starts_with("after");
        assert_eq!(ran.err.contains("Terminating"), ended_early, "{}", ran.err);
        c.until_prints(
            &format!("sacct -n -P -j {job}.0 -o State,ExitCode"),
            &format!("FAILED|{exit}"),
        );
    }
    assert_clean(&c);
}

#[test]
fn a_step_that_is_ended_from_outside_leaves_nothing() {
    let c = Cluster::with_own_clock(2, 4);
    build(&c, "bad", BAD);
    let mut child = hang(&c, "", "cancelled");
    c.ok("scancel 1");
    child.wait().unwrap();
    c.until_prints("squeue -h", "");
    assert_clean(&c);
    // srun itself is lost.
    let mut child = hang(&c, "", "killed");
    child.kill().unwrap();
    child.wait().unwrap();
    c.until_prints("squeue -h", "");
    assert_clean(&c);
    // A signal that srun knows nothing of.
    let mut child = hang(&c, "", "signalled");
    let step = c.ok("squeue -h -s -o %i");
    c.ok(&format!("scancel --signal=KILL {step}"));
    assert!(!child.wait().unwrap().success());
    let last = step.split('.').next().unwrap();
    c.until_prints(&format!("sacct -n -P -j {last}.0 -o ExitCode"), "0:9");
    assert_clean(&c);
    // Its own limit of time.
    let job = last.parse::<u32>().unwrap() + 1;
    c.ok("salloc -Q -N2 -n4 --no-shell");
    let mut child = hang(&c, &format!("--jobid={job} --time=1"), "late");
    c.put_forward(60);
    assert!(!child.wait().unwrap().success());
    let told = c.read("late.err");
    assert!(told.contains("DUE TO TIME LIMIT"), "{told}");
    c.until_prints(&format!("sacct -n -P -j {job}.0 -o State"), "TIMEOUT");
    assert_clean(&c);
}

#[test]
fn a_step_whose_daemons_are_killed_ends_everywhere_and_leaves_nothing() {
    let c = Cluster::start(2, 4);
    build(&c, "bad", BAD);
    // The job goes on: it is the step that has to end, on both nodes.
    c.ok("salloc -Q -N2 -n4 --no-shell");
    let mut child = hang(&c, "--jobid=1", "lost");
    let daemons = of_node(&c, "muster-stepd", "n2");
    assert_eq!(daemons.len(), 1);
    c.kill(daemons[0]);
    assert!(!child.wait().unwrap().success());
    let told = c.read("lost.err");
    assert!(told.contains("Node failure on n2"), "{told}");
    c.until_prints("squeue -h -s -o %i | grep -v batch || true", "");
    c.until("all of the step has ended", || {
        step_processes(&c).is_empty() && step_dirs(&c).is_empty()
    });
    assert_clean(&c);
    assert_eq!(c.ok("squeue -h -o %T"), "RUNNING");
    // The next step of the job finds nothing in its way.
    assert_eq!(
        c.ok("srun --jobid=1 --mpi=pmix -N2 -n4 ./bad after 0 0"),
        ""
    );
    c.ok("scancel 1");
    c.until_prints("squeue -h", "");
}

#[test]
fn a_node_that_is_lost_ends_the_step_elsewhere_and_is_clean_when_it_is_back() {
    let c = Cluster::start(2, 4);
    build(&c, "bad", BAD);
    let mut child = hang(&c, "", "lost");
    // Everything that Muster has on the node goes at once, so that nobody can clean up.
    let shim = std::fs::read_to_string(c.path("spool.n2/shim.pid")).unwrap();
    let mut all = vec![c.agent("n2"), shim.trim().parse().unwrap()];
    all.extend(of_node(&c, "muster-stepd", "n2"));
    all.extend(of_node(&c, "muster-pmix", "n2"));
    assert_eq!(all.len(), 4, "{all:?}");
    let words: Vec<String> = all.iter().map(i32::to_string).collect();
    c.ok(&format!("kill -9 {}", words.join(" ")));
    assert!(!child.wait().unwrap().success());
    let told = c.read("lost.err");
    assert!(told.contains("Node failure on n2"), "{told}");
    c.until("the ranks have ended", || step_processes(&c).is_empty());
    assert_ne!(step_dirs(&c), Vec::<String>::new());
    c.ok("slurmd -N n2");
    c.until("nothing is left", || step_dirs(&c).is_empty());
    c.until_prints("squeue -h", "");
    assert_clean(&c);
}

pub(crate) const NAMES: &str = r#"
#include <mpi.h>
#include <stdio.h>
#include <string.h>
int main(int argc, char **argv) {
  int rank, size;
  char port[MPI_MAX_PORT_NAME] = "", found[MPI_MAX_PORT_NAME] = "";
  MPI_Comm half, other;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  if (rank == 0) {
    MPI_Open_port(MPI_INFO_NULL, port);
    if (MPI_Publish_name("service", MPI_INFO_NULL, port)) puts("not published");
  }
  MPI_Bcast(port, MPI_MAX_PORT_NAME, MPI_CHAR, 0, MPI_COMM_WORLD);
  if (MPI_Lookup_name("service", MPI_INFO_NULL, found) || strcmp(port, found)) puts("not found");
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 0 && MPI_Unpublish_name("service", MPI_INFO_NULL, port)) puts("not withdrawn");
  MPI_Barrier(MPI_COMM_WORLD);
  if (!MPI_Lookup_name("service", MPI_INFO_NULL, found)) puts("still found");
  MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &half);
  if (rank % 2)
    MPI_Comm_connect(port, MPI_INFO_NULL, 0, half, &other);
  else
    MPI_Comm_accept(port, MPI_INFO_NULL, 0, half, &other);
  MPI_Comm_remote_size(other, &size);
  printf("%d meets %d\n", rank, size);
  MPI_Comm_disconnect(&other);
  MPI_Finalize();
  return 0;
}
"#;

pub(crate) const SPAWN: &str = r#"
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
int main(int argc, char **argv) {
  int rank, size, sum;
  MPI_Comm parent, other, all;
  MPI_Init(&argc, &argv);
  MPI_Comm_get_parent(&parent);
  if (parent == MPI_COMM_NULL)
    MPI_Comm_spawn(argv[0], MPI_ARGV_NULL, atoi(argv[1]), MPI_INFO_NULL, 0, MPI_COMM_WORLD, &other,
                   MPI_ERRCODES_IGNORE);
  else
    other = parent;
  MPI_Intercomm_merge(other, parent != MPI_COMM_NULL, &all);
  MPI_Comm_rank(all, &rank);
  MPI_Comm_size(all, &size);
  MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, all);
  printf("%s %d of %d: sum %d\n", parent == MPI_COMM_NULL ? "parent" : "child", rank, size, sum);
  fflush(stdout);
  MPI_Comm_free(&all);
  MPI_Comm_disconnect(&other);
  MPI_Finalize();
  return 0;
}
"#;

/// Each rank spawns for itself, again and again, while what others have spawned ends.
const SPAWN_OFTEN: &str = r#"
#include <mpi.h>
#include <stdio.h>
int main(int argc, char **argv) {
  int rank, value = 1, sum = 0;
  MPI_Comm parent, other;
  MPI_Init(&argc, &argv);
  MPI_Comm_get_parent(&parent);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  for (int i = 0; parent == MPI_COMM_NULL && i < 4; i++) {
    char *commands[2] = {argv[0], argv[0]};
    int counts[2] = {1, 1};
    MPI_Info infos[2] = {MPI_INFO_NULL, MPI_INFO_NULL};
    MPI_Comm_spawn_multiple(2, commands, MPI_ARGVS_NULL, counts, infos, 0, MPI_COMM_SELF, &other,
                            MPI_ERRCODES_IGNORE);
    MPI_Reduce(NULL, &value, 1, MPI_INT, MPI_SUM, MPI_ROOT, other);
    sum += value;
    MPI_Comm_disconnect(&other);
  }
  if (parent == MPI_COMM_NULL) {
    printf("%d: %d\n", rank, sum);
  } else {
    MPI_Reduce(&value, NULL, 1, MPI_INT, MPI_SUM, 0, parent);
    MPI_Comm_disconnect(&parent);
  }
  MPI_Finalize();
  return 0;
}
"#;

#[test]
fn ranks_spawn_while_what_others_have_spawned_ends() {
    let c = Cluster::start(2, 4);
    build(&c, "spawn", SPAWN_OFTEN);
    let out = c.ok("srun --mpi=pmix -N2 -n4 ./spawn | sort -n");
    assert_eq!(out, "0: 8\n1: 8\n2: 8\n3: 8");
    assert_clean(&c);
}

#[test]
fn names_are_published_and_processes_spawned() {
    let c = Cluster::start(2, 4);
    build(&c, "names", NAMES);
    build(&c, "spawn", SPAWN);
    let out = c.ok("srun --mpi=pmix -N2 -n4 ./names | sort");
    assert_eq!(out, "0 meets 2\n1 meets 2\n2 meets 2\n3 meets 2");
    let out = c.ok("srun --mpi=pmix -N2 -n2 ./spawn 3 | sort -k2n");
    assert_eq!(
        out,
        "parent 0 of 5: sum 10\nparent 1 of 5: sum 10\nchild 2 of 5: sum 10\nchild 3 of 5: sum 10\nchild 4 of 5: sum 10"
    );
    c.until_prints(
        "sacct -n -P -j 2 -o JobID,State,NTasks | grep -F .",
        "2.0|COMPLETED|2\n2.1|COMPLETED|3",
    );
    // Both sides on one node.
    let out = c.ok("srun --mpi=pmix -N1 -n1 ./spawn 1 | sort -k2n");
    assert_eq!(out, "parent 0 of 2: sum 1\nchild 1 of 2: sum 1");
    let missing = c.run("srun --mpi=pmix -n1 ./spawn 0");
    assert_ne!(missing.code, 0);
    assert_clean(&c);
}

#[test]
fn hosts_of_a_step_listen_at_the_addresses_of_their_nodes() {
    let c = Cluster::from_conf(
        "ClusterName=addresses\nSelectType=select/cons_tres\nSelectTypeParameters=CR_CPU\n\
         NodeName=n1 NodeAddr=127.0.0.21 CPUs=2\nNodeName=n2 NodeAddr=127.0.0.22 CPUs=2\n\
         PartitionName=all Nodes=ALL Default=YES\n",
    );
    build(&c, "bad", BAD);
    let mut child = hang(&c, "", "listens");
    let at: Vec<String> = ["n1", "n2"]
        .iter()
        .map(|node| {
            let host = of_node(&c, "muster-pmix", node)[0];
            c.ok(&format!(
                "ss -Hltnp | grep -F 'pid={host},' | grep -o '127.0.0.2[0-9]' | sort -u"
            ))
        })
        .collect();
    assert_eq!(at, ["127.0.0.21", "127.0.0.22"]);
    c.ok("scancel 1");
    child.wait().unwrap();
    c.until_prints("squeue -h", "");
}

#[test]
fn mpirun_starts_its_daemons_by_srun_inside_an_allocation() {
    let c = Cluster::start(3, 4);
    build(&c, "ring", RING);
    // Emulated nodes share a machine and its shared memory, which mpirun's ranks would take for their own node's.
    let env = "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_btl=self,tcp";
    let out = c.ok(&format!(
        "salloc -N3 -n6 bash -c '{env} mpirun ./ring' | sort -n"
    ));
    assert_eq!(out, ring(6));
    c.write(
        "job.sh",
        &format!("#!/bin/bash\n#SBATCH -N2 -n3 -o job.out\n{env} mpirun ./ring\n"),
    );
    c.ok("sbatch -W job.sh");
    c.until_prints("sort -n job.out", &ring(3));
    // What newer versions of it add when srun calls itself new enough.
    let out = c.ok("salloc -N2 -n2 srun --external-launcher --ntasks-per-node=1 --kill-on-bad-exit --mpi=none \
                    --cpu-bind=none --nodes=1 --nodelist=n2 --ntasks=1 bash -c 'echo $SLURM_NODEID $SLURMD_NODENAME'");
    assert_eq!(out, "0 n2");
    assert_clean(&c);
}

/// Each rank tells how many others share its socket and its hardware thread, by what Open MPI has been told and by what
/// the kernel says.
const NEAR: &str = r#"
#define _GNU_SOURCE
#include <mpi.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
static int with(int type) {
  MPI_Comm near;
  int size;
  MPI_Comm_split_type(MPI_COMM_WORLD, type, 0, MPI_INFO_NULL, &near);
  MPI_Comm_size(near, &size);
  return size;
}
int main(int argc, char **argv) {
  int rank, size, cpu = sched_getcpu(), own[2] = {-1, cpu}, same[2] = {0, 0};
  char path[100];
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  sprintf(path, "/sys/devices/system/cpu/cpu%d/topology/physical_package_id", cpu);
  FILE *file = fopen(path, "r");
  if (!file || fscanf(file, "%d", own) != 1) return 1;
  int *all = malloc(2 * size * sizeof(int));
  MPI_Allgather(own, 2, MPI_INT, all, 2, MPI_INT, MPI_COMM_WORLD);
  for (int i = 0; i < size; i++)
    for (int k = 0; k < 2; k++) same[k] += all[2 * i + k] == own[k];
  int socket = with(OMPI_COMM_TYPE_SOCKET), thread = with(OMPI_COMM_TYPE_HWTHREAD);
  printf("socket %s, thread %s\n", socket == same[0] ? "right" : "wrong", thread == same[1] ? "right" : "wrong");
  MPI_Finalize();
  return 0;
}
"#;

#[test]
fn ranks_know_which_others_are_near() {
    let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let c = Cluster::start(1, u32::try_from(cpus).unwrap());
    build(&c, "near", NEAR);
    let out = c.ok(&format!("srun --mpi=pmix -n{cpus} ./near | sort -u"));
    assert_eq!(out, "socket right, thread right");
    assert_clean(&c);
}

#[test]
fn steps_over_many_nodes_are_started_by_a_tree() {
    let c = Cluster::start(6, 1);
    build(&c, "ring", RING);
    build(&c, "bad", BAD);
    for width in [1, 2] {
        let out = c.ok(&format!(
            "srun --treewidth={width} --mpi=pmix -N6 -n6 ./ring | sort -n"
        ));
        assert_eq!(out, ring(6), "width {width}");
        // The last node is at the end of the longest branch.
        let ran = c.run(&format!(
            "srun --treewidth={width} --mpi=pmix -N6 -n6 ./bad abort 42 5"
        ));
        assert_eq!(ran.code, 42, "{}", ran.err);
        assert!(ran.err.contains("n6: task 5 aborts"), "{}", ran.err);
    }
    assert_clean(&c);
}

/// Lines of the shims' logs that have this in them.
fn told(c: &Cluster, text: &str) -> usize {
    let logs = c.ok("cat ../spool.*/shim.log");
    logs.lines().filter(|line| line.contains(text)).count()
}

/// Ranks that speak PMIx themselves: an event for all, questions, a line for the log, a signal for the last.
const PMIX: &str = r#"
#include <pmix.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
static volatile int registered, heard, signalled;
static volatile unsigned from;
static void on_signal(int number) { signalled = number; }
static void on_event(size_t id, pmix_status_t code, const pmix_proc_t *source, pmix_info_t *infos, size_t count,
                     pmix_info_t *results, size_t nresults, pmix_event_notification_cbfunc_fn_t done, void *ticket) {
  from = source->rank;
  heard = code;
  if (done) done(PMIX_EVENT_ACTION_COMPLETE, NULL, 0, NULL, NULL, ticket);
}
static void on_registered(pmix_status_t status, size_t id, void *ticket) { registered = status ? status : 1; }
static void await(volatile int *what) { while (!*what) usleep(1000); }
int main(void) {
  pmix_proc_t me, all, last;
  pmix_status_t code = PMIX_EXTERNAL_ERR_BASE - 7, status;
  pmix_info_t info;
  signal(SIGUSR1, on_signal);
  alarm(60);
  if (PMIx_Init(&me, NULL, 0)) return 1;
  PMIX_LOAD_PROCID(&all, me.nspace, PMIX_RANK_WILDCARD);
  PMIx_Register_event_handler(&code, 1, NULL, 0, on_event, on_registered, NULL);
  await(&registered);
  if (registered != 1 || PMIx_Fence(&all, 1, NULL, 0)) return 2;
  if (me.rank == 0 && PMIx_Notify_event(code, &me, PMIX_RANGE_NAMESPACE, NULL, 0, NULL, NULL)) return 3;
  if (me.rank != 0) {
    await(&heard);
    printf("%u hears %d of %u\n", me.rank, PMIX_EXTERNAL_ERR_BASE - heard, from);
  }
  if (PMIx_Fence(&all, 1, NULL, 0)) return 4;
  if (me.rank == 1) {
    pmix_query_t query;
    pmix_info_t *results;
    size_t count;
    PMIX_QUERY_CONSTRUCT(&query);
    PMIX_ARGV_APPEND(status, query.keys, PMIX_QUERY_NAMESPACES);
    PMIX_ARGV_APPEND(status, query.keys, PMIX_QUERY_SPAWN_SUPPORT);
    status = PMIx_Query_info(&query, 1, &results, &count);
    if (status) return 5;
    for (size_t i = 0; i < count; i++)
      if (PMIX_CHECK_KEY(&results[i], PMIX_QUERY_NAMESPACES))
        printf("query: %s\n", strcmp(results[i].value.data.string, me.nspace) ? "another" : "own name space");
      else
        printf("query: %s\n", results[i].value.data.flag ? "can spawn" : "cannot spawn");
    PMIX_INFO_LOAD(&info, PMIX_LOG_STDERR, "a word of rank 1", PMIX_STRING);
    if (PMIx_Log(&info, 1, NULL, 0)) return 6;
  }
  if (PMIx_Fence(&all, 1, NULL, 0)) return 7;
  PMIX_LOAD_PROCID(&last, me.nspace, 3);
  if (me.rank == 0) {
    int number = SIGUSR1;
    pmix_info_t *results = NULL;
    size_t count = 0;
    PMIX_INFO_LOAD(&info, PMIX_JOB_CTRL_SIGNAL, &number, PMIX_INT);
    status = PMIx_Job_control(&last, 1, &info, 1, &results, &count);
    if (status) printf("job control: %s\n", PMIx_Error_string(status));
  }
  if (me.rank == 3) {
    await(&signalled);
    printf("3 is signalled\n");
  }
  fflush(stdout);
  if (PMIx_Fence(&all, 1, NULL, 0)) return 8;
  PMIx_Finalize(NULL, 0);
  return 0;
}
"#;

#[test]
fn ranks_speak_pmix_over_nodes() {
    let c = Cluster::start(2, 4);
    c.write("speak.c", PMIX);
    c.ok("gcc -o speak speak.c $(pkg-config --cflags --libs pmix)");
    let ran = c.run("srun -Q --mpi=pmix -N2 -n4 --ntasks-per-node=2 ./speak | sort");
    assert_eq!(
        ran.out.trim(),
        "1 hears 7 of 0\n2 hears 7 of 0\n3 hears 7 of 0\n3 is signalled\nquery: can spawn\nquery: own name space",
        "{}",
        ran.err
    );
    assert_eq!(ran.err.trim(), "a word of rank 1");
    c.until_prints("sacct -n -P -j 1.0 -o State,ExitCode", "COMPLETED|0:0");
    assert_clean(&c);
}

#[test]
fn the_agents_environment_names_the_library() {
    let c = Cluster::start(1, 2);
    c.restart_with(&["n1"], "MUSTER_PMIX_LIB=/nowhere/libpmix.so.2");
    let ran = c.run("srun --mpi=pmix true");
    assert_ne!(ran.code, 0);
    assert!(ran.err.contains("/nowhere/libpmix.so.2"), "{}", ran.err);
    assert_clean(&c);
}

#[test]
fn hosts_talk_by_ucx_where_it_is_wanted_and_there() {
    let c = Cluster::start(4, 2);
    build(&c, "ring", RING);
    let direct = "OMPI_MCA_pmix_base_collect_data=0";
    let settings = |text: &str| {
        std::fs::write(c.path("mpi.conf"), text).unwrap();
        c.ok("scontrol reconfigure");
    };
    let run = |env: &str| {
        let ran = c.run(&format!(
            "{env} srun -Q --mpi=pmix -N4 -n8 ./ring | sort -n"
        ));
        assert_eq!(
            ran.out.trim(),
            ring(8),
            "{}{}",
            ran.err,
            c.ok("cat ../spool.*/shim.log")
        );
        ran.err
    };
    settings("PMIxDirectConnUCX=true\nPMIxTlsUCX=tcp\nPMIxNetDevicesUCX=lo\n");
    let said = run("");
    if said.contains("no UCX library can be opened") {
        eprintln!("SKIPPED: {said}");
        return;
    }
    assert_eq!(said, "");
    // With four nodes each has two neighbours in the collectives; ranks that ask for what they need talk to others.
    assert!(told(&c, "go by UCX") > 0);
    assert_eq!(run(direct), "");
    assert_clean(&c);
    // Devices that are not there: TCP does it, and the user hears why.
    settings("PMIxDirectConnUCX=true\nPMIxTlsUCX=tcp\nPMIxNetDevicesUCX=nosuch0:1\n");
    let before = told(&c, "go by UCX");
    let said = run("");
    assert!(
        said.contains("UCX (PMIxDirectConnUCX) is not used between nodes, but TCP: ucp_"),
        "{said}"
    );
    assert_eq!(said.lines().count(), 1, "{said}");
    // The same where the user names them, and the site does not.
    settings("PMIxDirectConnUCX=true\nPMIxTlsUCX=tcp\n");
    let said = run("UCX_NET_DEVICES=nosuch0:1");
    assert!(said.contains("is not used between nodes"), "{said}");
    assert_eq!(told(&c, "go by UCX"), before);
    assert_clean(&c);
}

/// The machine's UCX, but that what is sent after the first, with which hosts try the way, is refused.
const BREAKS: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
void *ucp_tag_send_nbx(void *to, const void *bytes, size_t size, uint64_t tag, const void *params) {
  static int sent;
  if (sent++) return (void *)(intptr_t)-25; /* UCS_ERR_CONNECTION_RESET */
  void *(*send)(void *, const void *, size_t, uint64_t, const void *) = dlsym(RTLD_NEXT, "ucp_tag_send_nbx");
  return send(to, bytes, size, tag, params);
}
"#;

#[test]
fn a_step_goes_on_when_ucx_breaks() {
    let c = Cluster::start(4, 2);
    build(&c, "names", NAMES);
    c.write("breaks.c", BREAKS);
    let linked = c.run("gcc -shared -fPIC -o breaks.so breaks.c -Wl,--no-as-needed -l:libucp.so.0");
    if linked.code != 0 {
        eprintln!("SKIPPED: {}", linked.err);
        return;
    }
    std::fs::write(
        c.path("mpi.conf"),
        "PMIxDirectConnUCX=true\nPMIxTlsUCX=tcp\nPMIxNetDevicesUCX=lo\n",
    )
    .unwrap();
    c.ok("scontrol reconfigure");
    c.restart_with(&["n3"], "MUSTER_UCX_LIB=$PWD/breaks.so");
    let ran = c.run("srun -Q --mpi=pmix -N4 -n4 ./names | sort");
    assert_eq!(
        ran.out.trim(),
        "0 meets 2\n1 meets 2\n2 meets 2\n3 meets 2",
        "{}{}",
        ran.err,
        c.ok("cat ../spool.*/shim.log")
    );
    assert!(told(&c, "go by UCX") > 0);
    // Both ends find it, and the user reads it once.
    assert_eq!(
        ran.err.lines().count(),
        1,
        "{}{}",
        ran.err,
        c.ok("cat ../spool.*/shim.log")
    );
    assert!(
        ran.err
            .contains("UCX (PMIxDirectConnUCX) is not used between nodes, but TCP: 127.0.0.1:"),
        "{}",
        ran.err
    );
    assert!(told(&c, "Connection reset by remote peer") > 0);
    assert_clean(&c);
}
