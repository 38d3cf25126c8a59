//! `srun --async`: steps that go on without the srun that was called.

use crate::cluster::Cluster;

#[test]
fn an_asynchronous_step_goes_on_by_itself() {
    let c = Cluster::start(1, 4);
    c.ok("mkfifo gate");
    c.write(
        "job",
        "#!/bin/sh\n\
         srun --async --overlap -n2 sh -c 'read line <gate; echo task $SLURM_PROCID $line'\n\
         step=$(srun --async --overlap --parsable -n1 -l -o named.%s true)\n\
         echo status $? step $step\n\
         srun -Q --async --overlap -n1 -e err.%s sh -c 'echo out; echo oops >&2; exit 3'\n\
         echo status $?\n\
         read line <end\n",
    );
    c.ok("mkfifo end; chmod +x job");
    let job = c.ok("sbatch --parsable -n4 --overcommit -o out ./job");
    c.until_prints("tail -n1 out 2>/dev/null || true", "status 0");
    assert_eq!(
        c.ok("cat out"),
        format!("Submitted step {job}.0\nstatus 0 step {job}.1\nstatus 0")
    );
    c.until_prints(
        &format!("squeue -h -s -j {job} -o %i | grep -c '[.]0$' || true"),
        "1",
    );
    c.ok("printf 'one\\ntwo\\n' >gate");
    c.until_prints(
        &format!("squeue -h -s -j {job} -o %i | grep -c '[.]0$' || true"),
        "0",
    );
    c.until_prints(
        &format!("sort slurm-{job}.0.out | cut -c1-6"),
        "task 0\ntask 1",
    );
    c.until_prints("cat err.2", "oops");
    c.until_prints(&format!("cat slurm-{job}.2.out"), "out");
    c.ok("echo >end");
    c.until_prints(&format!("sacct -n -X -P -j {job} -o State"), "COMPLETED");
    c.until_prints(
        &format!("sacct -n -P -j {job}.2 -o State,ExitCode"),
        "FAILED|3:0",
    );
}

#[test]
fn what_an_asynchronous_step_cannot_do_is_refused() {
    let c = Cluster::start(1, 2);
    for (line, text) in [
        ("srun --async true", "inside an existing job allocation"),
        (
            "srun --parsable true",
            "--parsable is only valid with --async",
        ),
        ("salloc -Q srun --async --pty true", "--pty"),
        ("salloc -Q srun --async -i0 true", "--input"),
    ] {
        let refused = c.run(line);
        assert!(
            refused.code != 0 && refused.err.contains(text),
            "{refused:?}"
        );
    }
    // The one that stays says why there is no step, and its exit status is the called one's.
    let none = c.run("salloc -Q -n1 srun --async -n9 true");
    assert!(none.code == 1 && none.out.is_empty(), "{none:?}");
    assert!(none.err.contains("srun: error"), "{none:?}");
}
