//! srun and salloc.

use crate::cluster::{Cluster, ran};
use std::io::{BufRead as _, BufReader, Write};
use std::process::Stdio;

#[test]
fn srun_runs_over_nodes_with_labels_and_the_worst_exit_code() {
    let c = Cluster::start(4, 4);
    let out =
        c.ok("srun -N4 -l bash -c 'echo $SLURMD_NODENAME $SLURM_PROCID/$SLURM_NTASKS' | sort");
    assert_eq!(out, "0: n1 0/4\n1: n2 1/4\n2: n3 2/4\n3: n4 3/4");
    let worst = c.run("srun -w n1 -n3 bash -c 'exit $SLURM_PROCID'");
    assert_eq!(worst.code, 2, "{}", worst.err);
    assert!(
        worst
            .err
            .contains("srun: error: n1: task 2: Exited with exit code 2"),
        "{}",
        worst.err
    );
    let signal = c.run("srun -w n1 bash -c 'kill -SEGV $$'");
    assert_eq!(signal.code, 139);
    assert!(
        signal
            .err
            .contains("srun: error: n1: task 0: Segmentation fault"),
        "{}",
        signal.err
    );
    let missing = c.run("srun /nosuch/program");
    assert_eq!(missing.code, 2);
    assert!(
        missing
            .err
            .contains("/nosuch/program: No such file or directory"),
        "{}",
        missing.err
    );
    c.until_prints("squeue -h", "");
    assert!(c.ok("sacct -n -P -o JobID,State").contains(".0|COMPLETED"));
}

#[test]
fn standard_streams_pass_through_srun() {
    let c = Cluster::start(2, 4);
    let mut child = c
        .command("srun -n2 cat")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let line = "0123456789abcdef".repeat(4096) + "\n";
    child
        .stdin
        .take()
        .unwrap()
        .write_all(line.as_bytes())
        .unwrap();
    let out = ran(child.wait_with_output().unwrap());
    assert_eq!(out.out.len(), 2 * line.len(), "each task echoes all of it");
    c.ok("srun -n2 -o task.%t bash -c 'echo $SLURM_PROCID'");
    assert_eq!(
        (c.read("task.0"), c.read("task.1")),
        ("0\n".into(), "1\n".into())
    );
    c.write("mp.conf", "0 echo a%t\n1-2 echo b%t:%o\n");
    let out = c.ok("srun -l -n3 --multi-prog mp.conf | sort");
    assert_eq!(out, "0: a0\n1: b1:0\n2: b2:1");
    let err = c.run("srun -Q bash -c 'echo out; echo err >&2'");
    assert_eq!((err.out.as_str(), err.err.as_str()), ("out\n", "err\n"));
}

/// As a parallel debugger has them: the tasks are there, and their programs have not begun.
#[test]
fn tasks_stop_before_their_program_for_a_debugger() {
    let c = Cluster::start(1, 2);
    let script = "exec srun -n2 --debugger-test echo begun >out 2>err";
    let mut srun = c.command(script).spawn().expect("a shell starts");
    let pids = || {
        let text = c.read_if_there("err");
        let tasks = text
            .lines()
            .filter(|line| line.ends_with("executable:echo"));
        let of = |line: &str| {
            line.split_once("pid:")?
                .1
                .split(',')
                .next()
                .map(str::to_owned)
        };
        tasks.filter_map(of).collect::<Vec<String>>()
    };
    c.until("both say where they are", || pids().len() == 2);
    for pid in pids() {
        c.until("it is stopped", || {
            c.ok(&format!("cut -d' ' -f3 /proc/{pid}/stat")) == "T"
        });
    }
    assert_eq!(c.read("out"), "");
    c.ok(&format!("kill -CONT {}", pids().join(" ")));
    assert!(srun.wait().expect("it is a child").success());
    assert_eq!(c.read("out"), "begun\nbegun\n");
}

#[test]
fn a_pty_is_a_terminal_of_the_right_size() {
    let c = Cluster::start(1, 2);
    let out = c.ok("script -qec 'stty rows 33 cols 77; srun --pty bash -c \"tty >/dev/null && stty size\"' /dev/null");
    assert!(out.contains("33 77"), "{out}");
}

#[test]
fn steps_of_a_job_run_side_by_side_and_wait_for_cpus() {
    let c = Cluster::start(1, 4);
    c.write(
        "steps.sh",
        "#!/bin/bash\n#SBATCH -n 4 -o steps.out\nfor i in 1 2 3 4 5 6; do\n  srun -n1 -c1 --exact bash -c \"echo begin $i; \
         sleep 0.2; echo end $i\" &\ndone\nwait\n",
    );
    c.ok("sbatch -W steps.sh");
    let out = c.read("steps.out");
    let (mut now, mut most) = (0, 0);
    for line in out.lines() {
        match line.split(' ').next() {
            Some("begin") => now += 1,
            Some("end") => now -= 1,
            _ => {}
        }
        most = most.max(now);
    }
    assert_eq!(
        (now, out.lines().filter(|l| l.starts_with("end")).count()),
        (0, 6),
        "{out}"
    );
    assert!(
        (2..=4).contains(&most),
        "{most} steps at once in 4 CPUs:\n{out}"
    );
}

#[test]
fn salloc_holds_an_allocation_for_a_command() {
    let c = Cluster::start(2, 4);
    let held = c.run("salloc -N2 -n4 bash -c 'env | grep ^SLURM_ | sort; srun -l bash -c \"echo \\$SLURMD_NODENAME\" | sort; exit 3'");
    assert_eq!(held.code, 3, "{held:?}");
    assert_eq!(
        held.err,
        "salloc: Granted job allocation 1\nsalloc: Relinquishing job allocation 1\n"
    );
    for line in [
        "SLURM_JOB_NODELIST=n[1-2]",
        "SLURM_NNODES=2",
        "SLURM_NTASKS=4",
        "SLURM_TASKS_PER_NODE=3,1",
        "0: n1",
        "3: n2",
    ] {
        assert!(
            held.out.lines().any(|l| l == line),
            "{line} is missing in {}",
            held.out
        );
    }
    c.until_prints("sacct -X -n -P -j 1 -o State,ExitCode", "FAILED|3:0");
    let mut child = c
        .command("exec salloc -n1 bash -c 'echo $$ >held.pid; exec sleep 1000'")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    c.until_prints("squeue -h -o %T; wc -l <held.pid", "RUNNING\n1");
    child.kill().unwrap();
    child.wait().unwrap();
    c.until_prints("squeue -h", "");
    // Whoever kills salloc like that has its command left.
    c.kill(c.read("held.pid").trim().parse().unwrap());
}

/// They printed that the job waits for resources, and then nothing for ever: no job's end gives them what they ask for.
#[test]
fn who_waits_for_what_does_not_come_is_informed_why() {
    let c = Cluster::start(4, 4);
    let too_large = "Requested partition configuration not available now";
    let held = "Job is in held state, pending scheduler release";
    for (number, (command, lines)) in [
        ("srun -N9 hostname", vec![too_large]),
        (
            "salloc -N9 hostname",
            vec![too_large, "Pending job allocation 2"],
        ),
        ("srun -H hostname", vec![held]),
    ]
    .into_iter()
    .enumerate()
    {
        let mut child = c
            .command(&format!("exec {command}"))
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let (name, job) = (command.split(' ').next().unwrap(), number + 1);
        let queued = format!("job {job} queued and waiting for resources");
        let mut printed = BufReader::new(child.stderr.take().unwrap()).lines();
        for line in lines.into_iter().chain([queued.as_str()]) {
            assert_eq!(printed.next().unwrap().unwrap(), format!("{name}: {line}"));
        }
        c.ok(&format!("scancel {job}"));
        child.wait().unwrap();
    }
}

#[test]
fn immediate_waits_as_long_as_it_says() {
    let c = Cluster::start(1, 1);
    let job = c.ok("sbatch --parsable --exclusive --wrap 'sleep 1000'");
    c.until_prints(&format!("squeue -h -j {job} -o %T"), "RUNNING");
    let busy = c.run("SLURM_EXIT_IMMEDIATE=7 srun --immediate=2 true");
    assert_eq!(busy.code, 7, "{busy:?}");
    assert!(
        busy.err
            .contains("srun: error: Unable to allocate resources: Requested nodes are busy"),
        "{busy:?}"
    );
    let held = c.run("salloc --immediate=2 --hold true");
    assert_eq!(held.code, 1, "{held:?}");
    for line in [
        "salloc: Job is in held state, pending scheduler release",
        "salloc: error: Unable to allocate resources: Connection timed out",
    ] {
        assert!(held.err.contains(line), "{held:?}");
    }
    // Neither is left in the queue.
    c.until_prints("squeue -h -o %i", &job);
    c.ok(&format!("scancel {job}"));
    c.until_prints("squeue -h -o %i", "");
    assert_eq!(c.ok("srun --immediate=60 echo here"), "here");
}

#[test]
fn a_step_fills_its_nodes_with_tasks_of_so_many_cpus() {
    let c = Cluster::start(2, 4);
    let tasks = |command: &str| c.ok(&format!("{command} bash -c 'echo $SLURM_PROCID' | wc -l"));
    assert_eq!(tasks("srun --exclusive -N2 -c2"), "4");
    assert_eq!(tasks("srun -N2 -c2"), "2");
    assert_eq!(tasks("salloc -Q -N2 --exclusive srun -c1"), "8");
    assert_eq!(tasks("salloc -Q -N2 --exclusive srun -N1 -c1"), "4");
    assert_eq!(tasks("salloc -Q -N2 -n3 srun -c1"), "3");
    let relative = c.run("salloc -Q -N2 srun -N2 --relative=1 true");
    assert_eq!(
        relative.err.trim_end(),
        "srun: error: --relative and --nodes option incompatible with count of allocated nodes (1+2>2)"
    );
}

#[test]
fn a_job_of_a_down_partition_says_why_it_waits() {
    let c = Cluster::start(1, 1);
    c.ok("scontrol update partition=$(sinfo -h -o %R) state=down");
    let waits = c.run("srun --immediate=2 true");
    assert!(
        waits.err.starts_with("srun: Partition in DOWN state\n"),
        "{waits:?}"
    );
}

/// The records of two components that were asked for in the same words share a specification.
#[test]
fn salloc_holds_equal_components() {
    let c = Cluster::start(1, 4);
    let job = "salloc -N1 : -N1 : -N1 bash -c 'echo $SLURM_HET_SIZE; sleep 0.5' 2>&1";
    let out = c.ok(job);
    assert!(
        out.contains("Granted job allocation 1\n3\n")
            && out.ends_with("Relinquishing job allocation 1"),
        "{out}"
    );
}
