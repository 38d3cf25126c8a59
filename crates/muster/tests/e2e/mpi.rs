//! Real MPI programs: Open MPI through PMIx. A program that ran as many jobs of one rank instead of one job of many
//! would look well otherwise, so sizes are compared first of all.

use crate::cluster::Cluster;

/// Each rank tells its number and how many there are; a token goes round, a sum goes over all.
const RING: &str = r#"
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
fn ring(ranks: u32) -> String {
    let sum: u32 = (0..ranks).sum();
    let line = |rank: u32| {
        let token = if rank == 0 { ranks } else { rank + 1 };
        format!("{rank} of {ranks}: token {token}, sum {sum}")
    };
    (0..ranks).map(line).collect::<Vec<_>>().join("\n")
}

/// Nothing of any step is left on the machine that this cluster could have left.
fn assert_clean(c: &Cluster) {
    let home = c.path("").display().to_string();
    let left = c.ok(&format!(
        "ps -eo pid,args | grep -F '{home}' | grep -v -e grep -e slurmctld -e slurmd -e muster-shim -e ' ps ' -e bash || true"
    ));
    assert_eq!(left, "", "processes are left");
    // The cluster's own temporary directories; memory is looked for by the directories' common name.
    let left = c.ok(&format!(
        "ls -d {home}tmp.*/muster-pmix.* 2>/dev/null || true"
    ));
    assert_eq!(left, "", "files are left");
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
