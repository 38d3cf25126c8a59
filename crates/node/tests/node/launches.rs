//! Several launches of one job, and jobs that must wait for others to go.

use super::Test;
use super::cluster::{Dir, JobMaker, Node, PATIENCE, fifo};
use super::steps::{Srun, spec};
use muster_model::effect::TerminateReason;
use muster_model::ids::{Attempt, JobAttempt, JobId};
use muster_model::job::ExitStatus;
use muster_model::spec::JobKind;
use muster_proto::frame;
use muster_proto::node::{NumberedReport, Order, Report, ToNode};
use muster_proto::step::{AgentReply, AgentRequest};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs::read_to_string;
use std::io::ErrorKind;
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::time::Instant;

pub const TESTS: &[Test] = &[
    ("launches_of_one_job_are_apart", apart),
    ("launch_waits_for_a_share_that_is_being_left", waits),
    ("waiting_launch_can_be_ended", ended_while_waiting),
    ("shares_for_several_are_not_waited_for", shared),
    ("vanished_jobs_are_forgotten", vanished),
    ("kill_goes_on_when_the_agent_restarts", kill_goes_on),
    ("stopped_job_is_continued_to_end", stopped),
    ("terminate_of_a_lost_launch", lost_launch),
    ("launch_waits_for_room_on_the_disk", full_disk),
];

/// Ends itself only by KILL; writes its process id.
const STUBBORN: &str =
    "#!/bin/sh\ntrap '' TERM\necho $$ >pid\necho up >up\nwhile :; do sleep 60; done\n";

fn pid_of(dir: &Dir) -> Pid {
    assert_eq!(read_to_string(dir.path("up")).unwrap(), "up\n");
    Pid::from_raw(dir.text("pid").trim().parse().unwrap())
}

fn next(job: &JobMaker) -> JobMaker {
    JobMaker {
        attempt: job.attempt + 1,
        script: "#!/bin/sh\necho second >>second\n".to_owned(),
        spec: job.spec.clone(),
        env: job.env.clone(),
        array: job.array.clone(),
        ..*job
    }
}

fn apart() {
    let dir = Dir::new("apart");
    let mut node = Node::start(&dir, "n1");
    fifo(&dir.path("up"));
    let first = JobMaker::new(1, &dir.0, STUBBORN);
    node.run(&first);
    let pid = pid_of(&dir);
    node.terminate(1, TerminateReason::NodeFailure);
    // Elsewhere on the node, so that nothing is waited for.
    let mut second = next(&first);
    second.first_cpu = 4;
    node.run(&second);
    let report = node.report(|r| r.attempt == Attempt(2));
    assert!(matches!(report.report, Report::BatchEnded { .. }));
    node.report(|r| r.attempt == Attempt(2) && matches!(r.report, Report::Released));
    // Asked again: not released as long as it is there.
    node.terminate(1, TerminateReason::NodeFailure);
    node.report(|r| r.attempt == Attempt(1) && matches!(r.report, Report::Released));
    assert!(kill(pid, None).is_err(), "released, but it runs");
    assert_eq!(dir.text("second"), "second\n");
    node.send(&ToNode::Ping);
    node.health();
    node.disconnect();
    node.accept();
    assert_eq!(node.hello.as_ref().unwrap().present, []);
}

fn waits() {
    let dir = Dir::new("waits");
    let mut node = Node::start(&dir, "n1");
    fifo(&dir.path("up"));
    node.run(&JobMaker::new(1, &dir.0, STUBBORN));
    let pid = pid_of(&dir);
    let mut other = JobMaker::new(
        2,
        &dir.0,
        "#!/bin/sh\nkill -0 $(cat pid) && exit 9\nexit 3\n",
    );
    other.cpus = 2;
    let (blobs, launch) = other.order(&[&node]);
    node.terminate(1, TerminateReason::NodeFailure);
    node.order(blobs, vec![launch]);
    node.disconnect();
    node.accept();
    let present = &node.hello.as_ref().unwrap().present;
    assert_eq!(
        *present,
        [1, 2].map(|job| JobAttempt::new(JobId(job), Attempt(1))),
        "one that waits is here"
    );
    // The agent has what it needs from the earlier connection, or gets it again.
    let (blobs, launch) = other.order(&[&node]);
    node.order(blobs, vec![launch]);
    assert_eq!(node.batch_exit(2), ExitStatus { code: 3, signal: 0 });
    assert!(kill(pid, None).is_err());
    node.released(1);
    node.released(2);
}

fn ended_while_waiting() {
    let dir = Dir::new("queued");
    let mut node = Node::start(&dir, "n1");
    fifo(&dir.path("up"));
    node.run(&JobMaker::new(1, &dir.0, STUBBORN));
    let pid = pid_of(&dir);
    node.terminate(1, TerminateReason::NodeFailure);
    node.run(&JobMaker::new(2, &dir.0, "#!/bin/sh\necho ran >ran\n"));
    node.terminate(2, TerminateReason::Cancelled);
    node.released(2);
    assert!(kill(pid, None).is_ok(), "it was not waited for the first");
    node.released(1);
    assert!(node.left(2).is_empty());
    assert_eq!(dir.text("ran"), "");
}

/// Waits until the launcher has answered a question about a job, and so has taken what was ordered before.
fn inspected(node: &Node, job: u64) {
    let until = Instant::now() + PATIENCE;
    let inspect = AgentRequest::Inspect { job: JobId(job) };
    loop {
        let mut agent = UnixStream::connect(node.spool.join("noded.sock")).unwrap();
        frame::write(&mut agent, &inspect).unwrap();
        match frame::read(&mut agent).unwrap() {
            AgentReply::Processes(list) => return assert_eq!(list, []),
            other => assert!(Instant::now() < until, "{other:?}"),
        }
    }
}

impl JobMaker {
    /// The order for it as an allocation.
    fn allocation(mut self, node: &Node) -> Order {
        self.spec.kind = JobKind::Allocation;
        self.order(&[node]).1
    }
}

/// What users can fill up fails no launch and takes no node out of service.
fn full_disk() {
    let dir = Dir::new("fulldisk");
    let spool = dir.path("spool.n1");
    std::fs::create_dir(&spool).unwrap();
    let mount = |args: &[&str]| Command::new("mount").args(args).arg(&spool).status();
    let mounted = mount(&["-t", "tmpfs", "-o", "size=2m,mode=755", "tmpfs"]);
    if !mounted.is_ok_and(|status| status.success()) {
        return eprintln!("nothing can be mounted here; this test looked at nothing");
    }
    let mut node = Node::start(&dir, "n1");
    // What it writes for a session is there before there is no room any more.
    node.order(
        Vec::new(),
        vec![JobMaker::new(99, &dir.0, "").allocation(&node)],
    );
    inspected(&node, 99);
    let filler = spool.join("filler");
    let filled = std::fs::write(&filler, vec![1; 4 << 20]);
    assert_eq!(filled.unwrap_err().kind(), ErrorKind::StorageFull);
    let (jobs, mut orders) = (1..=16, Vec::new());
    for id in jobs.clone() {
        let mut job = JobMaker::new(id, &dir.0, "");
        job.first_cpu = u32::try_from(id).unwrap() - 1;
        orders.push(job.allocation(&node));
    }
    node.order(Vec::new(), orders);
    // It has tried by then.
    inspected(&node, 1);
    std::fs::remove_file(&filler).unwrap();
    for id in jobs.clone() {
        let mut srun = Srun::ask(&node, spec(id, &dir, &["true"])).connect();
        srun.started();
        srun.finish();
    }
    for id in jobs {
        node.terminate(id, TerminateReason::Finished);
        node.released(id);
        let left = node.left(id);
        let failed = |r: &&NumberedReport| matches!(r.report, Report::LaunchFailed { .. });
        assert!(!left.iter().any(failed), "{left:?}");
    }
    drop(node);
    // Processes that are about to end may have files there.
    let unmount = Command::new("umount").arg("-l").arg(&spool).status();
    let unmounted = unmount.unwrap();
    assert!(unmounted.success());
}

fn shared() {
    let dir = Dir::new("shared");
    let mut node = Node::start(&dir, "n1");
    fifo(&dir.path("up"));
    fifo(&dir.path("go"));
    node.run(&JobMaker::new(1, &dir.0, STUBBORN));
    pid_of(&dir);
    node.run(&JobMaker::new(2, &dir.0, "#!/bin/sh\nread x <go\n"));
    node.terminate(1, TerminateReason::Cancelled);
    // Job 2 stays on the same CPU, so that is meant.
    node.run(&JobMaker::new(3, &dir.0, "#!/bin/sh\nexit 3\n"));
    assert_eq!(node.batch_exit(3), ExitStatus { code: 3, signal: 0 });
    assert!(node.left(1).is_empty(), "the first is still there");
    std::fs::write(dir.path("go"), "x\n").unwrap();
    node.released(2);
    node.released(1);
}

fn vanished() {
    let dir = Dir::new("vanished");
    let mut node = Node::start(&dir, "n1");
    fifo(&dir.path("up"));
    node.run(&JobMaker::new(1, &dir.0, STUBBORN));
    let pid = pid_of(&dir);
    node.kill_agent();
    let shim = Pid::from_raw(node.shim_pid());
    kill(shim, Signal::SIGKILL).unwrap();
    kill(pid, Signal::SIGKILL).unwrap();
    super::batch::wait_gone(pid);
    super::batch::wait_gone(shim);
    node.start_agent();
    node.accept();
    assert_eq!(
        node.hello.as_ref().unwrap().present,
        [JobAttempt::new(JobId(1), Attempt(1))]
    );
    node.report(|r| matches!(r.report, Report::Vanished));
    node.released(1);
    // Answered after the acknowledgements were taken.
    node.send(&ToNode::Ping);
    node.health();
    node.disconnect();
    node.accept();
    assert_eq!(node.hello.as_ref().unwrap().present, []);
    node.kill_agent();
    node.start_agent();
    node.accept();
    assert_eq!(node.hello.as_ref().unwrap().present, []);
}

fn kill_goes_on() {
    let dir = Dir::new("killgoes");
    let mut node = Node::start(&dir, "n1");
    fifo(&dir.path("up"));
    node.run(&JobMaker::new(1, &dir.0, STUBBORN));
    let pid = pid_of(&dir);
    node.terminate(1, TerminateReason::Cancelled);
    node.send(&ToNode::Ping);
    node.health();
    node.kill_agent();
    node.start_agent();
    node.accept();
    node.terminate(1, TerminateReason::Cancelled);
    let report = node.report(|r| !matches!(r.report, Report::Released));
    match report.report {
        Report::BatchEnded { exit, .. } => assert_eq!(exit, ExitStatus { code: 0, signal: 9 }),
        other => panic!("{other:?}"),
    }
    node.released(1);
    assert!(kill(pid, None).is_err());
    let told = dir.text("slurm-1.out").matches("CANCELLED AT").count();
    assert_eq!(told, 1, "{}", dir.text("slurm-1.out"));
}

fn stopped() {
    let dir = Dir::new("stopped");
    let mut node = Node::start(&dir, "n1");
    fifo(&dir.path("up"));
    let script = "#!/bin/sh\ntrap 'echo cleaned; exit 3' TERM\necho $$ >pid\necho up >up\n\
                  while :; do sleep 60 & wait $!; done\n";
    node.run(&JobMaker::new(1, &dir.0, script));
    let pid = pid_of(&dir);
    node.signal(1, 19);
    let until = std::time::Instant::now() + super::cluster::PATIENCE;
    let state = || {
        let stat = read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.split(' ').nth(2).map(str::to_owned)
    };
    while state().as_deref() != Some("T") {
        assert!(std::time::Instant::now() < until, "it does not stop");
        std::thread::yield_now();
    }
    node.terminate(1, TerminateReason::Preempted);
    assert_eq!(node.batch_exit(1), ExitStatus { code: 3, signal: 0 });
    node.released(1);
    assert!(dir.text("slurm-1.out").contains("cleaned\n"));
}

fn lost_launch() {
    let dir = Dir::new("lost");
    let mut node = Node::start(&dir, "n1");
    let shim = Pid::from_raw(node.shim_pid());
    node.send(&ToNode::Ping);
    node.health();
    // It takes the order to start and the one to end with it into its grave.
    kill(shim, Signal::SIGSTOP).unwrap();
    node.run(&JobMaker::new(1, &dir.0, "#!/bin/sh\necho ran >ran\n"));
    node.terminate(1, TerminateReason::Cancelled);
    node.send(&ToNode::Ping);
    node.health();
    kill(shim, Signal::SIGKILL).unwrap();
    node.turned_away();
    node.released(1);
    assert_eq!(dir.text("ran"), "");
}
