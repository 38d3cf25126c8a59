//! Steps that follow each other: daemons with standing orders, with the tests in the place of srun.

use super::Test;
use super::attacker::{Attack, UID};
use super::cluster::{Dir, JobMaker, Node, PATIENCE};
use super::direct::{Srun, alive, exited, text};
use super::steps::{allocate, spec, step_end};
use muster_core::effect::TerminateReason;
use muster_core::ids::StepNo;
use muster_core::job::Step;
use muster_proto::frame;
use muster_proto::node::{NumberedReport, Report};
use muster_proto::step::{AgentRequest, StepSpec};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::io::Write as _;
use std::os::unix::fs::chown;
use std::time::Instant;

pub const TESTS: &[Test] = &[
    ("steps_follow_each_other_without_the_agent", without_agent),
    ("several_follow_each_other_side_by_side", side_by_side),
    ("others_get_what_a_standing_order_holds", others),
    ("a_request_of_another_kind_is_the_agents", another_kind),
    ("a_daemon_is_lost_with_a_standing_order", daemon_lost),
    ("the_agent_is_lost_with_standing_orders", agent_lost),
    ("the_shim_is_lost_with_a_standing_order", shim_lost),
    ("a_job_ends_with_a_standing_order", job_ends),
    (
        "the_owner_of_a_jobs_socket_is_no_owner_of_the_job",
        wrong_owner,
    ),
];

fn exact(dir: &Dir, words: &[&str]) -> StepSpec {
    StepSpec {
        exact: true,
        ntasks: Some(1),
        has_stepd_channel: true,
        ..spec(1, dir, words)
    }
}

/// Makes steps until a daemon takes the next; the number that that will have.
fn until_taken(node: &mut Node, dir: &Dir) -> u32 {
    for step in 0..2 {
        let (mut srun, taken) = Srun::follow(node, &exact(dir, &["true"]));
        assert!(!taken, "nobody can know that there will be more");
        assert_eq!(srun.created.step, StepNo(step));
        assert_eq!(srun.said(), [exited(0, 0)]);
        started(node, step);
        step_end(node, 1, step);
    }
    2
}

/// Has a daemon take a step. One that has just told of an end may not wait yet, and then the agent is to be asked.
fn take(node: &Node, spec: &StepSpec) -> Srun {
    let until = Instant::now() + PATIENCE;
    loop {
        if let Some(srun) = Srun::ask_at_door(node, spec) {
            return srun;
        }
        assert!(Instant::now() < until, "no daemon takes it");
        std::thread::yield_now();
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

fn pause(pid: i32, signal: Signal) {
    kill(Pid::from_raw(pid), signal).unwrap();
}

fn without_agent() {
    let dir = Dir::new("follow");
    let mut node = Node::start(&dir, "n1");
    allocate(1, &dir, &mut [&mut node], 2);
    let first = until_taken(&mut node, &dir);
    pause(node.agent_pid(), Signal::SIGSTOP);
    for step in first..first + 40 {
        let script = format!(
            "cat; echo $SLURM_STEP_ID $SLURM_STEPID $MINE; exit {}",
            step % 7
        );
        let mut asked = exact(&dir, &["sh", "-c", &script]);
        asked.name = format!("s{step}");
        asked.context.environment.set(b"MINE", b"own");
        let mut srun = take(&node, &asked);
        assert_eq!(srun.created.step, StepNo(step));
        assert_eq!(srun.created.nodes[0].tasks, [0]);
        srun.stdin.write_all(b"through ").unwrap();
        srun.stdin = std::fs::File::open("/dev/null").unwrap();
        assert_eq!(text(&srun.stdout), format!("through {step} {step} own\n"));
        assert_eq!(srun.said(), [exited(step % 7, 0)]);
    }
    pause(node.agent_pid(), Signal::SIGCONT);
    for step in first..first + 40 {
        let known = started(&mut node, step);
        assert_eq!((known.name, known.cpus), (format!("s{step}"), 1));
        let end = step_end(&mut node, 1, step);
        assert_eq!((end.exit.code, end.usage.tasks), (step % 7, 1));
    }
    // One that goes on is told of.
    let mut srun = take(&node, &exact(&dir, &["sh", "-c", "read x"]));
    assert_eq!(started(&mut node, first + 40).name, "sh");
    srun.stdin.write_all(b"x\n").unwrap();
    assert_eq!(srun.said(), [exited(0, 0)]);
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
    let waits = exact(&dir, &["sh", "-c", "read x; exit 3"]);
    let (mut numbers, mut taken) = (Vec::new(), 0);
    for _ in 0..6 {
        let mut sruns: Vec<Srun> = (0..4)
            .map(|_| {
                let (srun, by_daemon) = Srun::follow(&node, &waits);
                taken += usize::from(by_daemon);
                srun
            })
            .collect();
        numbers.extend(sruns.iter().map(|srun| srun.created.step.0));
        for srun in &mut sruns {
            srun.stdin.write_all(b"x\n").unwrap();
        }
        for srun in &mut sruns {
            assert_eq!(srun.said(), [exited(3, 0)]);
        }
    }
    // The first four have daemons of their own, the next four are given to these.
    assert!(taken > 0);
    numbers.sort_unstable();
    assert_eq!(numbers, (0..24).collect::<Vec<_>>());
    for step in 0..24 {
        assert_eq!(step_end(&mut node, 1, step).exit.code, 3);
    }
}

/// A step that takes all that is free gets what a standing order holds, and is not refused for it.
fn others() {
    let dir = Dir::new("others");
    let mut node = Node::start(&dir, "n1");
    allocate(1, &dir, &mut [&mut node], 2);
    let mut next = until_taken(&mut node, &dir);
    for immediate in [false, true, true] {
        let (mut srun, _) = Srun::follow(&node, &exact(&dir, &["true"]));
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
    // One that a daemon runs meanwhile keeps its share, and no more.
    for _ in 0..2 {
        let (mut srun, _) = Srun::follow(&node, &exact(&dir, &["true"]));
        assert_eq!(srun.said(), [exited(0, 0)]);
        next += 1;
    }
    let mut runs = take(&node, &exact(&dir, &["sh", "-c", "read x"]));
    let mut beside = Srun::ask(&node, spec(1, &dir, &["true"]));
    assert_eq!(beside.said(), [exited(0, 0)]);
    assert_eq!(started(&mut node, next + 1).cpus, 1);
    runs.stdin.write_all(b"x\n").unwrap();
    assert_eq!(runs.said(), [exited(0, 0)]);
    assert_eq!(step_end(&mut node, 1, next).exit.code, 0);
}

fn another_kind() {
    let dir = Dir::new("anotherkind");
    let mut node = Node::start(&dir, "n1");
    allocate(1, &dir, &mut [&mut node], 2);
    let next = until_taken(&mut node, &dir);
    let mut two = exact(&dir, &["true"]);
    two.cpus_per_task = Some(2);
    assert!(Srun::ask_at_door(&node, &two).is_none());
    let mut limits = exact(&dir, &["true"]);
    limits.context.soft_limits = vec![(7, 100)];
    assert!(Srun::ask_at_door(&node, &limits).is_none());
    let mut srun = take(&node, &exact(&dir, &["true"]));
    assert_eq!(srun.created.step, StepNo(next));
    assert_eq!(srun.said(), [exited(0, 0)]);
    let mut srun = Srun::ask(&node, two);
    assert_eq!(srun.said(), [exited(0, 0)]);
    assert_eq!(started(&mut node, next + 1).cpus, 2);
}

/// The supervisor takes the agent's word for whose the socket is: whoever gets it by a wrong one is not served.
fn wrong_owner() {
    let dir = Dir::new("wrongowner");
    let mut node = Node::start(&dir, "n1");
    allocate(1, &dir, &mut [&mut node], 2);
    let next = until_taken(&mut node, &dir);
    let door = node.spool.join("job-1.door");
    chown(&door, Some(UID), None).unwrap();
    let marker = dir.path("ran");
    let (door, request) = (door.to_str().unwrap(), dir.path("request"));
    let asked = StepSpec {
        hands_streams: true,
        ..exact(&dir, &["touch", marker.to_str().unwrap()])
    };
    let asked = AgentRequest::Create(Box::new(asked));
    std::fs::write(&request, frame::encode(&asked)).unwrap();
    for _ in 0..4 {
        let mut attack = Attack::start(&["door", door, request.to_str().unwrap()]);
        assert_eq!(attack.line(), "Redirect");
    }
    // The owner is, at what is root's here.
    let mut srun = take(&node, &exact(&dir, &["true"]));
    assert_eq!(srun.created.step, StepNo(next));
    assert_eq!(srun.said(), [exited(0, 0)]);
    assert!(!marker.exists());
}

/// It is killed while a step runs that nobody has heard of, and after one.
fn daemon_lost() {
    let dir = Dir::new("daemonlost");
    let mut node = Node::start(&dir, "n1");
    allocate(1, &dir, &mut [&mut node], 2);
    let mut next = 0;
    for while_it_runs in [false, true] {
        for _ in 0..2 {
            let (mut srun, _) = Srun::follow(&node, &exact(&dir, &["true"]));
            assert_eq!(srun.said(), [exited(0, 0)]);
            step_end(&mut node, 1, next);
            next += 1;
        }
        pause(node.agent_pid(), Signal::SIGSTOP);
        let script = "echo $PPID; read x; exit 5";
        let mut srun = take(&node, &exact(&dir, &["sh", "-c", script]));
        assert_eq!(srun.created.step, StepNo(next));
        let daemon: i32 = read_line(&srun).parse().unwrap();
        if !while_it_runs {
            srun.stdin.write_all(b"x\n").unwrap();
            assert_eq!(srun.said(), [exited(5, 0)]);
        }
        pause(daemon, Signal::SIGKILL);
        let gone = Instant::now() + PATIENCE;
        while alive(daemon) {
            assert!(Instant::now() < gone, "a killed daemon lives");
            std::thread::yield_now();
        }
        pause(node.agent_pid(), Signal::SIGCONT);
        assert_eq!(started(&mut node, next).name, "sh");
        let end = step_end(&mut node, 1, next);
        let expected = if while_it_runs { (0, 9) } else { (5, 0) };
        assert_eq!((end.exit.code, end.exit.signal), expected);
        next += 1;
        // What it held is free.
        let mut srun = Srun::ask(&node, spec(1, &dir, &["true"]));
        srun.said();
        assert_eq!(started(&mut node, next).cpus, 2);
        next += 1;
    }
}

fn read_line(srun: &Srun) -> String {
    use std::io::BufRead as _;
    let mut line = String::new();
    std::io::BufReader::new(&srun.stdout)
        .read_line(&mut line)
        .unwrap();
    line.trim().to_owned()
}

fn agent_lost() {
    let dir = Dir::new("agentlost");
    let mut node = Node::start(&dir, "n1");
    allocate(1, &dir, &mut [&mut node], 2);
    let mut next = until_taken(&mut node, &dir);
    for runs_on in [false, true] {
        // Of the steps before, the agent has not heard when it goes; one may run.
        pause(node.agent_pid(), Signal::SIGSTOP);
        for step in next..next + 5 {
            let mut srun = take(&node, &exact(&dir, &["sh", "-c", "exit 4"]));
            assert_eq!(srun.created.step, StepNo(step));
            assert_eq!(srun.said(), [exited(4, 0)]);
        }
        let script = exact(&dir, &["sh", "-c", "read x; exit 6"]);
        let mut running = runs_on.then(|| take(&node, &script));
        node.kill_agent();
        node.start_agent();
        node.accept();
        for step in next..next + 5 {
            assert_eq!(step_end(&mut node, 1, step).exit.code, 4);
        }
        next += 5;
        if let Some(srun) = &mut running {
            srun.stdin.write_all(b"x\n").unwrap();
            assert_eq!(srun.said(), [exited(6, 0)]);
            assert_eq!(step_end(&mut node, 1, next).exit.code, 6);
            next += 1;
        }
        // Numbers go on, and so do steps that follow each other.
        for step in next..next + 3 {
            let asked = exact(&dir, &["true"]);
            let mut srun = match step < next + 2 {
                true => Srun::ask(&node, asked),
                false => take(&node, &asked),
            };
            assert_eq!(srun.created.step, StepNo(step));
            assert_eq!(srun.said(), [exited(0, 0)]);
            step_end(&mut node, 1, step);
        }
        next += 3;
    }
}

fn shim_lost() {
    let dir = Dir::new("shimlost");
    let mut node = Node::start(&dir, "n1");
    allocate(1, &dir, &mut [&mut node], 2);
    let next = until_taken(&mut node, &dir);
    let mut running = take(&node, &exact(&dir, &["sh", "-c", "read x; exit 6"]));
    let old = node.shim_pid();
    node.kill_shim();
    // A job that goes through shows that a new shim is there.
    node.run(&JobMaker::new(2, &dir.0, "#!/bin/sh\n"));
    node.batch_exit(2);
    assert_ne!(node.shim_pid(), old);
    running.stdin.write_all(b"x\n").unwrap();
    assert_eq!(running.said_at_all(), [exited(6, 0)]);
    assert_eq!(step_end(&mut node, 1, next).exit.code, 6);
    let (mut srun, taken) = Srun::follow(&node, &exact(&dir, &["true"]));
    assert_eq!((srun.created.step, taken), (StepNo(next + 1), false));
    assert_eq!(srun.said(), [exited(0, 0)]);
    step_end(&mut node, 1, next + 1);
}

/// Steps that nobody has told of yet are told of before the job is released, and one that runs is ended.
fn job_ends() {
    let dir = Dir::new("jobends");
    let mut node = Node::start(&dir, "n1");
    allocate(1, &dir, &mut [&mut node], 2);
    let next = until_taken(&mut node, &dir);
    let mut srun = take(&node, &exact(&dir, &["sh", "-c", "exit 4"]));
    assert_eq!(srun.said(), [exited(4, 0)]);
    let mut running = take(&node, &exact(&dir, &["sh", "-c", "sleep 600"]));
    node.terminate(1, TerminateReason::Finished);
    let released = node.report(|r| matches!(r.report, Report::Released)).seq;
    for (step, exit) in [(next, (4, 0)), (next + 1, (0, 15))] {
        let is_end = |r: &NumberedReport| matches!(&r.report, Report::StepEnded { step: s, .. } if *s == StepNo(step));
        let report = node.report(is_end);
        assert!(report.seq < released);
        let Report::StepEnded { end, .. } = report.report else {
            panic!("{report:?}")
        };
        assert_eq!((end.exit.code, end.exit.signal), exit);
    }
    assert_eq!(running.said_at_all().last(), Some(&exited(0, 15)));
    assert!(Srun::ask_at_door(&node, &exact(&dir, &["true"])).is_none());
}
