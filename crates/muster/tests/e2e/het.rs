//! Heterogeneous jobs, from their components on the command line to accounting.

use crate::cluster::Cluster;

#[test]
fn components_start_together_and_a_step_runs_over_them() {
    let c = Cluster::start(3, 4);
    c.write(
        "job.sh",
        "#!/bin/bash\n#SBATCH -J mixed -n1 -c2 -w n1 -o out.%j\n#SBATCH hetjob\n#SBATCH -N2 --ntasks-per-node=1 -w n[2-3]\n\
         echo \"$SLURM_JOB_ID $SLURM_HET_SIZE $SLURM_JOB_ID_HET_GROUP_0 $SLURM_JOB_ID_HET_GROUP_1\"\n\
         echo \"$SLURMD_NODENAME $SLURM_JOB_NODELIST $SLURM_JOB_NODELIST_HET_GROUP_1 $SLURM_JOB_NUM_NODES_HET_GROUP_1\"\n\
         show='echo $SLURM_STEP_ID task $SLURM_PROCID of $SLURM_NTASKS on $SLURMD_NODENAME in $SLURM_JOB_ID'\n\
         srun bash -c \"$show\"\n\
         srun --het-group=1 bash -c \"$show\" | sort\n\
         srun -l --het-group=0,1 bash -c \"$show\" | sort\n\
         srun bash -c \"echo server; $show\" : -n1 -N1 bash -c \"echo client; $show\" | sort\n\
         srun --het-group=2 true; echo refused $?\n\
         srun --mpi=pmi2 --het-group=0,1 true; echo refused $?\n",
    );
    let ran = c.run("sbatch --wait job.sh");
    assert_eq!(
        (ran.code, ran.out.as_str()),
        (0, "Submitted batch job 1\n"),
        "{ran:?}"
    );
    let out = c.read("out.1");
    assert_eq!(
        out,
        "1 2 1 2\n\
         n1 n1 n[2-3] 2\n\
         0 task 0 of 1 on n1 in 1\n\
         1 task 0 of 2 on n2 in 1\n1 task 1 of 2 on n3 in 1\n\
         0: 2 task 0 of 3 on n1 in 1\n1: 2 task 1 of 3 on n2 in 1\n2: 2 task 2 of 3 on n3 in 1\n\
         3 task 0 of 2 on n1 in 1\n3 task 1 of 2 on n2 in 1\nclient\nserver\n\
         srun: error: Attempt to run a job step with het group value of 2, but the job allocation has maximum value of 1\n\
         refused 1\n\
         srun: error: --mpi: the tasks of several components cannot be one MPI program here; start one step for each component with --het-group\n\
         refused 1\n"
    );
    c.until_prints(
        "squeue -h -t all -o '%i %T'",
        "1+0 COMPLETED\n1+1 COMPLETED",
    );
    let show = c.ok("scontrol show job 1");
    assert!(
        show.contains("JobId=1 HetJobId=1 HetJobOffset=0 JobName=mixed\n   HetJobIdSet=1-2\n"),
        "{show}"
    );
    assert!(
        show.contains("JobId=2 HetJobId=1 HetJobOffset=1 JobName=mixed\n"),
        "{show}"
    );
    assert!(c.ok("scontrol show job 1+1").starts_with("JobId=2 "));
    let sacct = "sacct -n -P -o JobID,NodeList,State";
    assert_eq!(
        c.ok(&format!("{sacct} -j 1")),
        "1+0|n1|COMPLETED\n1+0.batch|n1|COMPLETED\n1+0.0|n1|COMPLETED\n1+0.2|n1|COMPLETED\n1+0.3|n1|COMPLETED\n\
         1+1|n[2-3]|COMPLETED\n1+1.1|n[2-3]|COMPLETED\n1+1.2|n[2-3]|COMPLETED\n1+1.3|n2|COMPLETED"
    );
    assert_eq!(c.ok(&format!("{sacct} -X -j 1+1")), "1+1|n[2-3]|COMPLETED");
    assert_eq!(
        c.ok(&format!("{sacct} -X -j 1 --whole-hetjob=no")),
        "1+0|n1|COMPLETED"
    );
    assert_eq!(
        c.ok(&format!("{sacct} -X -j 1+1 --whole-hetjob=yes")),
        "1+0|n1|COMPLETED\n1+1|n[2-3]|COMPLETED"
    );
}

#[test]
fn a_killed_controller_never_leaves_a_part_alone() {
    let c = Cluster::start(2, 2);
    let busy = c
        .sbatch("-N1 -w n2 --exclusive -o /dev/null --wrap 'until [ -e go ]; do sleep 0.02; done'");
    let wait = "--wrap 'until [ -e end ]; do sleep 0.02; done'";
    let het = c.sbatch(&format!("-n1 -w n1 -o /dev/null : -n1 -w n2 {wait}"));
    let states = format!("squeue -h -j {het} -o '%i %T'");
    let both = |state: &str| format!("{het}+0 {state}\n{het}+1 {state}");
    c.until_prints(&states, &both("PENDING"));
    let alone = c.run(&format!("scancel {het}+1"));
    assert!(
        alone
            .err
            .contains("Operation not permitted on individual component"),
        "{alone:?}"
    );
    c.kill(c.controller());
    assert_eq!(c.start_controller().code, 0);
    assert_eq!(c.ok(&states), both("PENDING"));
    c.write("go", "");
    c.until_prints(&states, &both("RUNNING"));
    c.kill(c.controller());
    assert_eq!(c.start_controller().code, 0);
    assert_eq!(c.ok(&states), both("RUNNING"));
    c.ok(&format!("scancel {het}"));
    let accounted = format!("sacct -X -n -P -j {het},{busy} -o JobID,State");
    c.until_prints(
        &accounted,
        &format!(
            "{busy}|COMPLETED\n{het}+0|CANCELLED by {uid}\n{het}+1|CANCELLED by {uid}",
            uid = nix::unistd::getuid()
        ),
    );
}

#[test]
fn allocations_of_several_components() {
    let c = Cluster::start(2, 2);
    let text = c.ok("salloc -Q -n1 -w n1 : -n2 -w n2 bash -c 'echo $SLURM_HET_SIZE $SLURM_PACK_SIZE $SLURM_JOB_NODELIST_HET_GROUP_1 $SLURM_JOB_NODELIST_PACK_GROUP_1; \
         srun --het-group=0-1 bash -c \"echo \\$SLURM_PROCID \\$SLURMD_NODENAME\" | sort'");
    assert_eq!(text, "2 2 n2 n2\n0 n1\n1 n2\n2 n2");
    let text =
        c.ok("srun -l -n1 -w n1 : -n1 -w n2 bash -c 'echo $SLURMD_NODENAME of $SLURM_NTASKS'");
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["0: n1 of 2", "1: n2 of 2"]);
    // All or none: a component that is refused refuses the whole job.
    for form in [
        "-n1 : -n1 -p nosuch --wrap true",
        "-n1 --wrap true : -n1 -p nosuch",
    ] {
        let ran = c.run(&format!("sbatch {form}"));
        assert_eq!(ran.code, 1);
        assert!(ran.err.contains("component 1"), "{ran:?}");
    }
    assert_eq!(c.ok("squeue -h -t all -o %i | wc -l"), "4");
    c.until_prints("squeue -h -t R,CG -o %i", "");
    let text = c.run("sbatch --test-only -n1 : -n2 -N1 --wrap true").err;
    assert!(text.contains("using 3 processors on nodes"), "{text}");
}

/// In a job that is not heterogeneous each part has nodes of its own.
#[test]
fn parts_of_a_step_share_out_the_nodes_of_an_ordinary_job() {
    let c = Cluster::start(3, 2);
    let names = "printenv SLURMD_NODENAME";
    let spread = format!("srun -l {names} : -N2 -w n1 {names} | sort");
    assert_eq!(
        c.run(&format!("salloc -Q -N3 bash -c '{spread}'")).err,
        "srun: error: Required nodelist n1 overlaps with excluded n1\n"
    );
    let spread = format!("srun -l -w n2 {names} : -N2 {names} | sort");
    assert_eq!(
        c.ok(&format!("salloc -Q -N3 bash -c '{spread}'")),
        "0: n2\n1: n1\n2: n3"
    );
    let few = c.run("salloc -Q -N1 srun true : true");
    assert_eq!(few.code, 1);
    assert_eq!(
        few.err,
        "srun: error: Allocation failure of 1 nodes: job size of 1, already allocated 1 nodes to previous components.\n"
    );
}
