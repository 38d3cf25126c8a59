//! `muster watch`: what it prints where no terminal is, and how it exits.

use crate::cluster::Cluster;

#[test]
fn a_job_is_watched_to_its_end() {
    let c = Cluster::start(1, 2);
    let watch = format!("{} watch", env!("CARGO_BIN_EXE_muster"));
    let job = c.sbatch("-o /dev/null --wrap 'while [ ! -e go ]; do sleep 0.05; done; exit 3'");
    let mut watched = c
        .command(&format!("{watch} {job} >watched"))
        .spawn()
        .unwrap();
    c.until("it says where the job runs", || {
        c.read_if_there("watched") == format!("{job} RUNNING on n1\n")
    });
    c.write("go", "");
    assert_eq!(watched.wait().unwrap().code(), Some(3));
    let text = c.read("watched");
    let last = text.lines().last().unwrap();
    assert!(last.starts_with(&format!("{job} FAILED after ")), "{text}");
    assert!(last.ends_with(", exit code 3:0, on n1"), "{text}");
    // One that is over already, an array with a task that fails, one that is not there.
    assert_eq!(c.run(&format!("{watch} {job}")).code, 3);
    let array = c.sbatch("-o /dev/null -a 1-3 --wrap 'exit $((SLURM_ARRAY_TASK_ID - 1))'");
    let ran = c.run(&format!("{watch} {array}"));
    assert_eq!(ran.code, 2, "{}", ran.err);
    assert!(
        ran.out.ends_with("3 of 3 tasks are over, 2 failed\n"),
        "{}",
        ran.out
    );
    let held = c.sbatch("-H -o /dev/null --wrap true");
    let mut waiting = c
        .command(&format!("{watch} {held} >waiting"))
        .spawn()
        .unwrap();
    c.until("it says why the job waits", || {
        c.read_if_there("waiting").contains("PENDING (JobHeldUser)")
    });
    c.ok(&format!("scancel {held}"));
    assert_eq!(waiting.wait().unwrap().code(), Some(1));
    let ran = c.run(&format!("{watch} 4711"));
    assert_eq!(ran.code, 1);
    assert!(ran.err.contains("sacct -j 4711"), "{}", ran.err);
}
