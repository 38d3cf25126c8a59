//! sattach: the streams of steps that run, beside srun's.

use crate::cluster::{Cluster, Ran};
use std::process::{Child, Stdio};

/// A step of two tasks on two nodes, whose srun has an input that stays open. It ends with `stop`.
fn step(c: &Cluster, tasks: &str) -> (Child, String) {
    c.write("tasks", tasks);
    let script =
        "exec 3<>fifo; exec srun -N2 -n2 --job-name=attach bash tasks <&3 >srun.out 2>srun.err";
    c.ok("mkfifo fifo");
    let srun = c.command(script).stdout(Stdio::null()).spawn().unwrap();
    c.until_prints(
        "squeue -h -s -n attach -o %i | grep -c '[.]0$' || true",
        "1",
    );
    let job = c.ok("squeue -h -n attach -o %i");
    (srun, job)
}

/// Writes lines until there is a file, then what is asked for.
fn until_told(then: &str) -> String {
    format!("until [ -e go ]; do echo tick; echo tock >&2; sleep .05; done\n{then}\n")
}

fn in_background(c: &Cluster, args: &str, name: &str) -> Child {
    let script = format!("sattach {args} >{name}.out 2>{name}.err");
    c.command(&script).stdin(Stdio::null()).spawn().unwrap()
}

fn until_has(c: &Cluster, file: &str, text: &str) {
    c.until(&format!("{file} has '{text}'"), || {
        let bytes = std::fs::read(c.dir.join(file)).unwrap_or_default();
        String::from_utf8_lossy(&bytes).contains(text)
    });
}

#[test]
fn several_attach_to_a_step_and_see_what_its_tasks_write() {
    let c = Cluster::start(2, 2);
    let then = "echo last $SLURM_PROCID; echo oops >&2; exit $((SLURM_PROCID * 4))";
    let (mut srun, job) = step(&c, &until_told(then));
    assert_eq!(
        c.ok(&format!("sattach --layout {job}.0")),
        "Job step layout:\n\t2 tasks, 2 nodes (n[1-2])\n\n\tNode 0 (n1), 1 task(s): 0 \n\tNode 1 (n2), 1 task(s): 1"
    );
    let mut all = in_background(&c, &format!("-l {job}.0"), "all");
    let mut one = in_background(&c, &format!("--output-filter=1 {job}.0"), "one");
    for (file, text) in [
        ("all.out", "0: tick\n"),
        ("all.out", "1: tick\n"),
        ("all.err", "1: tock\n"),
        ("one.out", "tick\n"),
    ] {
        until_has(&c, file, text);
    }
    c.ok("touch go");
    assert_eq!(all.wait().unwrap().code(), Some(4));
    assert_eq!(one.wait().unwrap().code(), Some(4));
    assert_eq!(srun.wait().unwrap().code(), Some(4));
    assert_eq!(
        c.ok("grep last all.out | sort; grep last one.out"),
        "0: last 0\n1: last 1\nlast 1"
    );
    assert_eq!(c.ok("grep last srun.out | sort"), "last 0\nlast 1");
    assert_eq!(c.ok("grep -c oops all.err; grep -c oops one.err"), "2\n1");
    assert!(
        c.read("all.err")
            .contains("sattach: error: task 1 exited with exit code 4\n")
    );
}

#[test]
fn input_goes_to_tasks_and_its_end_ends_nothing() {
    let c = Cluster::start(2, 2);
    let tasks = "read a; echo $SLURM_PROCID $a > got.$SLURM_PROCID; read b; echo $SLURM_PROCID $b >> got.$SLURM_PROCID";
    let (mut srun, job) = step(&c, tasks);
    c.ok("mkfifo typed");
    let script = format!("exec sattach --input-filter=1 {job}.0 <typed >/dev/null 2>&1");
    let mut attached = c.command(&script).spawn().unwrap();
    c.ok("echo hello > typed");
    until_has(&c, "got.1", "1 hello\n");
    assert!(!c.dir.join("got.0").exists(), "it was not for that task");
    // srun's own goes on.
    c.ok("echo own > fifo");
    until_has(&c, "got.1", "1 own\n");
    until_has(&c, "got.0", "0 own\n");
    c.ok("echo more > fifo");
    assert_eq!(srun.wait().unwrap().code(), Some(0));
    assert_eq!(attached.wait().unwrap().code(), Some(0));
    assert_eq!(c.read("got.0"), "0 own\n0 more\n");
}

#[test]
fn who_does_not_read_delays_no_task() {
    let c = Cluster::start(2, 2);
    let (mut srun, job) = step(&c, &until_told("head -c 30000000 /dev/zero"));
    let slow = format!(
        "sattach {job}.0 2>slow.err | (head -c1 >seen; until [ -e over ]; do sleep .05; done; cat >/dev/null); \
         echo ${{PIPESTATUS[0]}} >slow.code"
    );
    let mut slow = c.command(&slow).stdin(Stdio::null()).spawn().unwrap();
    until_has(&c, "seen", "t");
    c.ok("touch go");
    assert_eq!(srun.wait().unwrap().code(), Some(0));
    c.ok("touch over");
    assert!(slow.wait().unwrap().success());
    assert_eq!(c.read("slow.code"), "1\n");
    assert!(
        c.read("slow.err")
            .contains("output came faster than it was read")
    );
    assert!(std::fs::metadata(c.dir.join("srun.out")).unwrap().len() > 60_000_000);
}

#[test]
fn what_cannot_be_attached_to_is_named() {
    let c = Cluster::start(1, 2);
    let says = |args: &str| -> Ran { c.run(&format!("sattach {args} </dev/null")) };
    for (args, text) in [
        (
            "99999.0",
            "Could not get job step info: Invalid job id specified",
        ),
        ("99999", "Failed to parse stepid from command line options"),
        ("x.0", "Bad step specified: x"),
        (
            "--output-filter=x 1.0",
            "Invalid numeric value \"x\" for output-filter.",
        ),
        ("1.0 more", "too many parameters"),
    ] {
        let ran = says(args);
        assert!(ran.code == 1 && ran.err.contains(text), "{args}: {ran:?}");
    }
    // The only task has srun's own streams.
    let job = c.ok("sbatch --parsable --wrap 'srun sleep 1000'");
    c.until_prints(
        &format!("squeue -h -s -j {job} -o %i | grep -c '[.]0$' || true"),
        "1",
    );
    let direct = says(&format!("{job}.0"));
    assert!(
        direct.code == 1 && direct.err.contains("has srun's own streams"),
        "{direct:?}"
    );
    let batch = says(&format!("{job}.batch"));
    assert!(
        batch.code == 1 && batch.err.contains("Could not get job step info"),
        "{batch:?}"
    );
    c.ok(&format!("scancel {job}"));
}
