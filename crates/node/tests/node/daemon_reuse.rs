//! Steps that follow each other in one step daemon, with the tests in the place of srun.

use super::Test;
use super::cluster::{Dir, Node, PATIENCE};
use super::direct::{Srun, alive, exited, text};
use super::steps::{allocate, spec, step_end};
use muster_model::effect::TerminateReason;
use muster_model::ids::StepNo;
use muster_model::job::Step;
use muster_model::spec::SoftLimit;
use muster_proto::node::{NumberedReport, Report};
use muster_proto::step::StepSpec;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::io::{BufRead as _, BufReader, Write as _};
use std::time::Instant;

pub const TESTS: &[Test] = &[
    ("steps_follow_each_other_in_one_daemon", one_daemon),
    ("several_follow_each_other_side_by_side", side_by_side),
    ("what_a_step_had_is_free_for_the_next", resources),
    ("a_daemon_is_lost_between_steps_and_in_one", daemon_lost),
    ("the_agent_is_lost_before_it_reads_ends", agent_lost),
    ("a_job_ends_with_steps_that_are_not_reported", job_ends),
];

fn exact(dir: &Dir, words: &[&str]) -> StepSpec {
    StepSpec {
        exact: true,
        ntasks: Some(1),
        ..spec(1, dir, words)
    }
}

fn started(node: &mut Node, step: u32) -> Step {
    let is_it =
        |r: &NumberedReport| matches!(&r.report, Report::StepStarted(s) if s.step == StepNo(step));
    match node.report(is_it).report {
        Report::StepStarted(step) => *step,
        other => panic!("{other:?}"),
    }
}

fn signal(pid: i32, signal: Signal) {
    kill(Pid::from_raw(pid), signal).unwrap();
}

fn read_line(srun: &Srun) -> String {
    let mut line = String::new();
    let mut output = BufReader::new(&srun.stdout);
    output.read_line(&mut line).unwrap();
    line.trim().to_owned()
}

/// Each has what it asked for, whatever the one before it had.
fn one_daemon() {
    let dir = Dir::new("onedaemon");
    let mut node = Node::start(&dir, "n1");
    allocate(1, &dir, &mut [&mut node], 2);
    let mut daemon = None;
    for step in 0..20 {
        let (code, files) = (step % 7, 100 + u64::from(step % 3));
        let script = format!(
            "cat; echo $SLURM_STEP_ID $SLURM_STEPID $MINE $(ulimit -Sn); echo $PPID; exit {code}"
        );
        let mut asked = exact(&dir, &["sh", "-c", &script]);
        asked.name = format!("s{step}");
        asked
            .context
            .environment
            .set(b"MINE", format!("own{}", step % 2).as_bytes());
        asked.context.soft_limits = vec![SoftLimit::new(7, files)];
        asked.cpus_per_task = Some(1 + step % 2);
        let mut srun = Srun::ask(&node, asked);
        assert_eq!(srun.created.step, StepNo(step));
        assert_eq!(srun.created.nodes[0].tasks, [0]);
        srun.stdin.write_all(b"through ").unwrap();
        srun.stdin = std::fs::File::open("/dev/null").unwrap();
        let output = text(&srun.stdout);
        let (said, pid) = output.trim_end().split_once('\n').unwrap();
        assert_eq!(
            said,
            format!("through {step} {step} own{} {files}", step % 2)
        );
        assert_eq!(*daemon.get_or_insert_with(|| pid.to_owned()), pid);
        assert_eq!(srun.said(), [exited(code, 0)]);
        let known = started(&mut node, step);
        assert_eq!((known.name, known.cpus), (format!("s{step}"), 1 + step % 2));
        let end = step_end(&mut node, 1, step);
        assert_eq!((end.exit.code, end.usage.tasks), (code, 1));
    }
    node.terminate(1, TerminateReason::Finished);
    node.released(1);
    let left = std::fs::read_dir(&node.spool).unwrap().flatten();
    let names = left.map(|file| file.file_name().into_string().unwrap());
    let is_of_job = |name: &String| name.starts_with("step-") || name.starts_with("job-");
    assert_eq!(
        names.filter(is_of_job).collect::<Vec<_>>(),
        Vec::<String>::new()
    );
}

fn side_by_side() {
    let dir = Dir::new("sidebyside");
    let mut node = Node::start(&dir, "n1");
    allocate(1, &dir, &mut [&mut node], 4);
    let waits = exact(&dir, &["sh", "-c", "echo $PPID; read x; exit 3"]);
    let (mut numbers, mut daemons) = (Vec::new(), Vec::new());
    for _ in 0..6 {
        let mut sruns = [(); 4].map(|()| Srun::ask(&node, waits.clone()));
        numbers.extend(sruns.iter().map(|srun| srun.created.step.0));
        let mut here: Vec<String> = sruns.iter().map(read_line).collect();
        for srun in &mut sruns {
            srun.stdin.write_all(b"x\n").unwrap();
        }
        for srun in &mut sruns {
            assert_eq!(srun.said(), [exited(3, 0)]);
        }
        here.sort_unstable();
        daemons.push(here);
    }
    assert_eq!(numbers, (0..24).collect::<Vec<_>>());
    for step in 0..24 {
        assert_eq!(step_end(&mut node, 1, step).exit.code, 3);
    }
    // The first four have daemons of their own, all others are given to these.
    daemons[0].dedup();
    assert_eq!(daemons[0].len(), 4);
    daemons.dedup();
    assert_eq!(daemons.len(), 1);
}

/// A step that takes all that is free gets what one before it had, and is not refused for it.
fn resources() {
    let dir = Dir::new("resources");
    let mut node = Node::start(&dir, "n1");
    allocate(1, &dir, &mut [&mut node], 2);
    let mut next = 0;
    for immediate in [false, true, true] {
        let mut srun = Srun::ask(&node, exact(&dir, &["true"]));
        assert_eq!(srun.created.step, StepNo(next));
        assert_eq!(srun.said(), [exited(0, 0)]);
        let all = StepSpec {
            immediate,
            ..spec(1, &dir, &["true"])
        };
        let mut srun = Srun::ask(&node, all);
        assert_eq!(srun.said(), [exited(0, 0)]);
        assert_eq!(started(&mut node, next + 1).cpus, 2);
        next += 2;
    }
    // One that runs meanwhile keeps its share, and no more.
    let mut runs = Srun::ask(&node, exact(&dir, &["sh", "-c", "read x"]));
    let mut beside = Srun::ask(&node, spec(1, &dir, &["true"]));
    assert_eq!(beside.said(), [exited(0, 0)]);
    assert_eq!(started(&mut node, next + 1).cpus, 1);
    runs.stdin.write_all(b"x\n").unwrap();
    assert_eq!(runs.said(), [exited(0, 0)]);
    assert_eq!(step_end(&mut node, 1, next).exit.code, 0);
}

/// A daemon that has had other steps is killed after the end of one, of which the agent has read nothing, and while one runs.
fn daemon_lost() {
    let dir = Dir::new("daemonlost");
    let mut node = Node::start(&dir, "n1");
    allocate(1, &dir, &mut [&mut node], 2);
    let mut next = 0;
    for while_it_runs in [false, true] {
        for _ in 0..2 {
            let mut srun = Srun::ask(&node, exact(&dir, &["true"]));
            assert_eq!(srun.said(), [exited(0, 0)]);
            step_end(&mut node, 1, next);
            next += 1;
        }
        let script = "echo $PPID; read x; exit 5";
        let mut srun = Srun::ask(&node, exact(&dir, &["sh", "-c", script]));
        assert_eq!(srun.created.step, StepNo(next));
        let daemon: i32 = read_line(&srun).parse().unwrap();
        started(&mut node, next);
        signal(node.agent_pid(), Signal::SIGSTOP);
        if !while_it_runs {
            srun.stdin.write_all(b"x\n").unwrap();
            assert_eq!(srun.said(), [exited(5, 0)]);
        }
        signal(daemon, Signal::SIGKILL);
        let gone = Instant::now() + PATIENCE;
        while alive(daemon) {
            assert!(Instant::now() < gone, "a killed daemon lives");
            std::thread::yield_now();
        }
        signal(node.agent_pid(), Signal::SIGCONT);
        let end = step_end(&mut node, 1, next);
        let expected = if while_it_runs { (0, 9) } else { (5, 0) };
        assert_eq!((end.exit.code, end.exit.signal), expected);
        next += 1;
        // What it had is free.
        let mut srun = Srun::ask(&node, spec(1, &dir, &["true"]));
        srun.said();
        assert_eq!(started(&mut node, next).cpus, 2);
        next += 1;
    }
}

/// Of the ends of steps, the agent has read nothing when it is lost; one step may run on.
fn agent_lost() {
    let dir = Dir::new("agentlost");
    let mut node = Node::start(&dir, "n1");
    allocate(1, &dir, &mut [&mut node], 4);
    let mut next = 0;
    for runs_on in [false, true] {
        // Three at a time, so that there are three daemons which have had steps.
        for _ in 0..2 {
            let mut sruns =
                [(); 3].map(|()| Srun::ask(&node, exact(&dir, &["sh", "-c", "read x; exit 4"])));
            for srun in &mut sruns {
                srun.stdin.write_all(b"x\n").unwrap();
                assert_eq!(srun.said(), [exited(4, 0)]);
                assert_eq!(step_end(&mut node, 1, next).exit.code, 4);
                next += 1;
            }
        }
        let mut ended =
            [(); 2].map(|()| Srun::ask(&node, exact(&dir, &["sh", "-c", "read x; exit 4"])));
        let script = exact(&dir, &["sh", "-c", "read x; exit 6"]);
        let mut running = runs_on.then(|| Srun::ask(&node, script));
        signal(node.agent_pid(), Signal::SIGSTOP);
        for srun in &mut ended {
            srun.stdin.write_all(b"x\n").unwrap();
            assert_eq!(srun.said(), [exited(4, 0)]);
        }
        node.kill_agent();
        node.start_agent();
        node.accept();
        for step in next..next + 2 {
            assert_eq!(step_end(&mut node, 1, step).exit.code, 4);
        }
        next += 2;
        if let Some(srun) = &mut running {
            srun.stdin.write_all(b"x\n").unwrap();
            assert_eq!(srun.said(), [exited(6, 0)]);
            assert_eq!(step_end(&mut node, 1, next).exit.code, 6);
            next += 1;
        }
        // Numbers go on.
        let mut srun = Srun::ask(&node, exact(&dir, &["true"]));
        assert_eq!(srun.created.step, StepNo(next));
        assert_eq!(srun.said(), [exited(0, 0)]);
        step_end(&mut node, 1, next);
        next += 1;
    }
}

/// Steps are reported before the job is released, and one that runs is ended.
fn job_ends() {
    let dir = Dir::new("jobends");
    let mut node = Node::start(&dir, "n1");
    allocate(1, &dir, &mut [&mut node], 2);
    let mut srun = Srun::ask(&node, exact(&dir, &["sh", "-c", "exit 4"]));
    assert_eq!(srun.said(), [exited(4, 0)]);
    let mut running = Srun::ask(&node, exact(&dir, &["sh", "-c", "sleep 600"]));
    node.terminate(1, TerminateReason::Finished);
    let released = node.report(|r| matches!(r.report, Report::Released)).seq;
    for (step, exit) in [(0, (4, 0)), (1, (0, 15))] {
        let is_end = |r: &NumberedReport| matches!(&r.report, Report::StepEnded { step: s, .. } if *s == StepNo(step));
        let report = node.report(is_end);
        assert!(report.seq < released);
        let Report::StepEnded { end, .. } = report.report else {
            panic!("{report:?}")
        };
        assert_eq!((end.exit.code, end.exit.signal), exit);
    }
    assert_eq!(running.said_at_all().last(), Some(&exited(0, 15)));
}
