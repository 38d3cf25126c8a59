//! sbcast: files that are copied to the nodes of a job.

use crate::cluster::Cluster;

#[test]
fn a_file_is_copied_to_each_node_of_the_job() {
    let c = Cluster::start(2, 2);
    c.write("src", "hello\n");
    c.ok("chmod 640 src; head -c 3000000 /dev/urandom > big");
    let job = c.ok("sbatch --parsable -N2 --exclusive --wrap 'srun sleep 1000'");
    c.until_prints(
        &format!("squeue -h -s -j {job} -o %i | grep -c '[.]0$' || true"),
        "1",
    );
    let sbcast = |args: &str| c.run(&format!("sbcast -j {job} {args}"));

    // Both nodes are on this host: the second finds the first one's file, and says so.
    let twice = sbcast("src there");
    assert_eq!(twice.code, 17, "{}", twice.err);
    assert_eq!(twice.err.lines().count(), 1, "{}", twice.err);
    assert!(
        twice.err.starts_with("sbcast: error: REQUEST_FILE_BCAST(n")
            && twice.err.contains("): File exists (there)"),
        "{}",
        twice.err
    );
    assert_eq!(c.ok("cat there; stat -c %a there"), "hello\n640");

    c.ok(&format!(
        "touch -d '2001-02-03 04:05:06' src; sbcast -fp -j {job} src there"
    ));
    assert_eq!(c.ok("stat -c %y there | cut -c1-19"), "2001-02-03 04:05:06");
    c.ok(&format!("sbcast -f -j {job} big copy; cmp big copy"));
    assert_eq!(c.ok("ls | grep -F .sbcast. || true"), "");

    let nowhere = sbcast("-f src /nosuchdir/x");
    assert_eq!(nowhere.code, 2, "{}", nowhere.err);
    for node in ["n1", "n2"] {
        let line = format!(
            "sbcast: error: REQUEST_FILE_BCAST({node}): No such file or directory (/nosuchdir/x)"
        );
        assert!(nowhere.err.contains(&line), "{}", nowhere.err);
    }
    assert_eq!(sbcast("-f src /tmp").code, 21);
    let unread = sbcast("/nosuch x");
    assert_eq!(unread.code, 255);
    assert_eq!(
        unread.err.trim_end(),
        "sbcast: error: Can't open `/nosuch`: No such file or directory"
    );
    let unknown = c.run("sbcast -j 99999 src x");
    assert_eq!(unknown.code, 255);
    assert_eq!(
        unknown.err.trim_end(),
        "sbcast: error: Slurm job 99999 lookup error: Invalid job id specified"
    );
    c.ok(&format!("scancel {job}"));
}

#[test]
fn a_job_copies_a_program_and_runs_it() {
    let c = Cluster::start(1, 2);
    c.write("program", "#!/bin/sh\necho ran $SLURM_PROCID\n");
    c.ok("chmod +x program");
    let out = c.ok(
        "SBCAST_FORCE=1 salloc -Q -n2 bash -c 'sbcast program copy && srun ./copy | sort; echo $?'",
    );
    assert_eq!(out, "ran 0\nran 1\n0");
    let alone = c.run("sbcast program x");
    assert_eq!(
        alone.err.trim_end(),
        "sbcast: error: Need a job id to run this command.  Run from within a Slurm job or use the --jobid option."
    );
}
