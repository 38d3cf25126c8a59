//! Steps of more nodes than the tree is wide: srun speaks to two of seven nodes, and these to the others. Positions 0 and
//! 4 are heads; 1 and 3 are below 0, 2 below 1, 5 and 6 below 4.

use crate::cluster::Cluster;
use std::process::{Child, Stdio};

fn start() -> Cluster {
    Cluster::from_conf(
        "ClusterName=tree\nSelectType=select/cons_tres\nSelectTypeParameters=CR_CPU\nTreeWidth=2\n\
         AccountingStorageType=accounting_storage/slurmdbd\n\
         NodeName=n[1-7] CPUs=2\nPartitionName=all Nodes=ALL Default=YES\n",
    )
}

/// Process ids of the step daemons of a node, without tasks that a daemon has forked and that have not begun.
fn daemons(c: &Cluster, node: &str) -> Vec<i32> {
    let spool = c.path(&format!("spool.{node}")).display().to_string();
    let pids = c.ok(&format!(
        "for p in $(pgrep -x muster-stepd); do
           grep -qF '{spool}' /proc/$p/cmdline 2>/dev/null || continue
           parent=$(sed -n 's/^PPid:[[:space:]]*//p' /proc/$p/status 2>/dev/null)
           [ \"$(cat /proc/$parent/comm 2>/dev/null)\" = muster-stepd ] || echo $p
         done"
    ));
    pids.lines().map(|pid| pid.parse().unwrap()).collect()
}

/// Starts a step of all nodes whose output is in `out` and `err`.
fn step(c: &Cluster, options: &str, program: &str) -> Child {
    c.write("task.sh", program);
    c.write("out", "");
    let script = format!("exec srun {options} -N7 -l bash task.sh > out 2> err");
    c.command(&script).stdin(Stdio::piped()).spawn().unwrap()
}

/// What a task has written.
fn of_task(c: &Cluster, task: u32) -> String {
    let label = format!("{task}: ");
    let all = c.read_if_there("out");
    let lines = all.lines().filter_map(|l| l.strip_prefix(&label));
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn streams_signals_and_ends_go_by_the_tree() {
    let c = start();
    let input: String = (0..20_000).map(|n| format!("{n} of the input\n")).collect();
    c.write("in", &input);
    let ran =
        c.run("srun -N7 -l bash -c 'md5sum; seq 1 20000; echo bad >&2; exit $SLURM_PROCID' < in");
    assert_eq!(ran.code, 6, "{}", ran.err);
    let sum = c.ok("md5sum < in");
    let numbers: Vec<String> = (1..=20_000).map(|n| n.to_string()).collect();
    let wanted = format!("{sum}\n{}", numbers.join("\n"));
    c.write("out", &ran.out);
    for task in 0..7 {
        assert_eq!(of_task(&c, task), wanted, "task {task}");
        assert!(ran.err.contains(&format!("{task}: bad")), "{}", ran.err);
    }
    assert!(
        ran.err.contains("n7: task 6: Exited with exit code 6"),
        "{}",
        ran.err
    );
    c.until_prints(
        "sacct -n -P -j 1.0 -o State,ExitCode,NNodes,NTasks",
        "FAILED|6:0|7|7",
    );
    // Input for one task reaches that task.
    let ran = c.run("srun -N7 -l --input=6 cat < in | md5sum");
    let labelled: String = input.lines().map(|l| format!("6: {l}\n")).collect();
    c.write("in6", &labelled);
    assert_eq!(ran.out.trim(), c.ok("md5sum < in6"));
    // From a batch script, whose job the other nodes know less of.
    c.write(
        "job.sh",
        "#!/bin/bash\n#SBATCH -N7 -o job.out\nsrun -N7 hostname | wc -l\n",
    );
    c.ok("sbatch -W job.sh");
    assert_eq!(c.read("job.out").trim(), "7");
    // A signal that srun gets reaches all; srun has a connection to the lead and one to each head.
    let mut child = step(
        &c,
        "-Q",
        "trap 'echo caught; exit 0' USR1\necho up\nwhile :; do sleep 0.1; done\n",
    );
    c.until("all are up", || {
        c.read_if_there("out").matches("up").count() == 7
    });
    let pid = child.id();
    let sockets = c.ok(&format!("ls -l /proc/{pid}/fd | grep -c socket"));
    // And one to the controller, for the allocation.
    assert_eq!(sockets, "4");
    c.ok(&format!("kill -USR1 {pid}"));
    assert!(child.wait().unwrap().success());
    assert_eq!(c.read("out").matches("caught").count(), 7);
    c.until_prints("squeue -h", "");
}

#[test]
fn nothing_is_lost_with_a_node_in_the_middle() {
    let c = start();
    c.ok("salloc -Q -N7 --no-shell");
    // Those that are left read all their input and write all their output, whatever is lost on the way.
    let mut child = step(
        &c,
        "--jobid=1",
        "echo up\nwhile read -r line; do echo $line; done\necho end\n",
    );
    let mut feed = child.stdin.take().unwrap();
    let lines: Vec<String> = (0..60_000).map(|n| format!("line {n}")).collect();
    let text = lines.join("\n") + "\n";
    let writing = std::thread::spawn(move || {
        use std::io::Write as _;
        feed.write_all(text.as_bytes()).unwrap();
    });
    for (node, task) in [("n2", 2), ("n5", 6)] {
        c.until("the output has come some way", || {
            of_task(&c, task).contains("line 100\n")
        });
        let found = daemons(&c, node);
        assert_eq!(found.len(), 1, "{node}");
        c.kill(found[0]);
    }
    writing.join().unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(1));
    let wanted = format!("up\n{}\nend", lines.join("\n"));
    for task in [0, 2, 3, 5, 6] {
        let got = of_task(&c, task);
        let at = got.lines().zip(wanted.lines()).position(|(a, b)| a != b);
        assert!(
            got == wanted,
            "task {task}: {} lines, the first wrong one is {at:?}\n{}",
            got.lines().count(),
            c.read("err")
        );
    }
    let told = c.read("err");
    assert!(
        told.contains("Node failure on n2") && told.contains("Node failure on n5"),
        "{told}"
    );
    assert!(!told.contains("Node failure on n3"), "{told}");
    c.until_prints(
        "squeue -h -s -o %i | grep -v -e batch -e extern || true",
        "",
    );
    // The step ended on all nodes: the next one has all of them.
    assert_eq!(c.ok("srun --jobid=1 -N7 hostname | wc -l"), "7");
    c.ok("scancel 1");
    c.until_prints("squeue -h", "");
}

#[test]
fn a_node_that_is_set_down_ends_the_step_but_not_where_it_was_told_to_go_on() {
    let c = start();
    let program = "echo up\nwhile [ ! -e go ]; do sleep 0.1; done\necho end\n";
    let mut child = step(&c, "--no-kill", program);
    c.until("all are up", || {
        c.read_if_there("out").matches("up").count() == 7
    });
    c.ok("scontrol update nodename=n5 state=down reason=test");
    c.until("the node is lost", || c.read("err").contains("n5"));
    c.write("go", "");
    assert!(!child.wait().unwrap().success());
    for task in [0, 1, 2, 3, 5, 6] {
        assert_eq!(
            of_task(&c, task),
            "up\nend",
            "task {task}: {}",
            c.read("err")
        );
    }
    c.until_prints("squeue -h", "");
    c.ok("scontrol update nodename=n5 state=resume; rm go");
    c.until_prints("sinfo -h -o '%D %t'", "7 idle");
    let mut child = step(&c, "", program);
    c.until("all are up", || {
        c.read_if_there("out").matches("up").count() == 7
    });
    c.ok("scontrol update nodename=n5 state=down reason=test");
    assert!(!child.wait().unwrap().success());
    assert!(!c.read("out").contains("end"));
    c.until_prints("squeue -h", "");
    c.until("all have ended", || {
        (1..=7).all(|n| daemons(&c, &format!("n{n}")).is_empty())
    });
}

#[test]
fn a_start_that_fails_in_the_middle_leaves_nothing() {
    let c = start();
    c.ok("salloc -Q -N7 --no-shell");
    c.kill(c.agent("n5"));
    let ran = c.run("srun --jobid=1 -N7 hostname");
    assert_ne!(ran.code, 0);
    assert!(ran.err.contains("node n5: "), "{}", ran.err);
    assert_eq!(ran.out, "");
    c.until("nothing is left of it", || {
        (1..=7).all(|n| daemons(&c, &format!("n{n}")).is_empty())
    });
    c.ok("slurmd -N n5");
    c.until_prints("srun --jobid=1 -N7 hostname | wc -l", "7");
    c.ok("scancel 1");
    c.until_prints("squeue -h", "");
}
