//! Steps whose only task has srun's own streams, with the tests in the place of srun.

use super::Test;
use super::cluster::{Dir, JobMaker, Node, PATIENCE};
use super::steps::{allocate, spec, step_end};
use muster_model::effect::TerminateReason;
use muster_model::ids::{JobId, StepNo};
use muster_model::job::{ExitStatus, JobState};
use muster_model::refusal::{Refusal, RefusalCode};
use muster_model::time::TimeLimit;
use muster_proto::frame;
use muster_proto::node::{NumberedReport, Report};
use muster_proto::step::{AgentReply, AgentRequest, FromStepd, StepCreated, StepSpec, ToStepd};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
use std::fs::File;
use std::io::{IoSlice, Read as _, Write as _};
use std::os::fd::{AsFd as _, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Instant;

pub const TESTS: &[Test] = &[
    ("direct_steps_have_the_streams_of_srun", streams),
    ("direct_step_tells_of_itself", tells_of_itself),
    ("direct_step_is_spoken_to", spoken_to),
    ("direct_step_ends_with_srun", srun_gone),
    ("direct_step_survives_the_agent", survives),
    ("direct_step_ends_as_the_agent_does", ends_with_agent),
    ("direct_step_speaks_without_the_shim", without_shim),
    ("step_of_which_nobody_knows_any_more", nobody_knows),
    ("an_end_makes_room_before_it_is_heard_of", makes_room),
    ("descriptors_that_nobody_asked_for", unasked),
    ("several_tasks_have_no_streams_of_srun", several),
];

/// What srun would be.
pub struct Srun {
    agent: UnixStream,
    stepd: UnixStream,
    pub stdin: File,
    pub stdout: File,
    stderr: File,
    pub created: StepCreated,
}

impl Srun {
    pub fn ask(node: &Node, spec: StepSpec) -> Srun {
        let until = Instant::now() + PATIENCE;
        loop {
            // The order that made the job may still be on its way.
            match Srun::ask_once(node, &spec) {
                Ok(srun) => return srun,
                Err(refusal) => assert!(Instant::now() < until, "{refusal}"),
            }
        }
    }

    fn ask_once(node: &Node, spec: &StepSpec) -> Result<Srun, Refusal> {
        let spec = StepSpec {
            passes_stdio: true,
            ..spec.clone()
        };
        let (ends, handed) = Ends::make();
        let mut agent = UnixStream::connect(node.spool.join("noded.sock")).unwrap();
        agent.set_read_timeout(Some(PATIENCE)).unwrap();
        let request = AgentRequest::Create(Box::new(spec));
        send_with(&agent, &frame::encode(&request), &handed.each_ref());
        drop(handed);
        let mut both = [&ends.stepd, &agent].map(|s| PollFd::new(s.as_fd(), PollFlags::POLLIN));
        poll(&mut both, PollTimeout::NONE).unwrap();
        let reply = match both[0].any() == Some(true) {
            true => match frame::read(&mut &ends.stepd) {
                Ok(FromStepd::Created(created)) => AgentReply::Created(created),
                Ok(other) => panic!("{other:?}"),
                // The streams are not wanted.
                Err(_) => frame::read(&mut agent).unwrap(),
            },
            false => frame::read(&mut agent).unwrap(),
        };
        match reply {
            AgentReply::Created(created) => Ok(ends.srun(agent, *created)),
            AgentReply::Refused(refusal) => Err(refusal),
            other => panic!("{other:?}"),
        }
    }

    fn say(&mut self, message: ToStepd) {
        frame::write(&mut self.stepd, &message).unwrap();
    }

    /// What the daemon says until it says that the end is recorded.
    pub fn said(&mut self) -> Vec<FromStepd> {
        let mut said = Vec::new();
        loop {
            match frame::read(&mut self.stepd).unwrap() {
                FromStepd::NodeTasksEnded => return said,
                message => said.push(message),
            }
        }
    }

    /// What it says, whether that is the last of it or not.
    pub fn said_at_all(&mut self) -> Vec<FromStepd> {
        let said = std::iter::from_fn(|| frame::read(&mut self.stepd).ok());
        said.filter(|m| *m != FromStepd::NodeTasksEnded).collect()
    }

    /// The same of one that leaves it to the agent to say that.
    fn said_before_done(&mut self) -> Vec<FromStepd> {
        let mut said = Vec::new();
        while let Ok(message) = frame::read(&mut self.stepd) {
            assert_ne!(message, FromStepd::NodeTasksEnded);
            said.push(message);
        }
        let done: AgentReply = frame::read(&mut self.agent).unwrap();
        assert_eq!(done, AgentReply::Done);
        said
    }
}

/// What srun keeps of what it hands over.
struct Ends {
    stdin: OwnedFd,
    stdout: OwnedFd,
    stderr: OwnedFd,
    stepd: UnixStream,
}

impl Ends {
    fn make() -> (Ends, [OwnedFd; 4]) {
        let (input, stdin) = nix::unistd::pipe().unwrap();
        let (stdout, output) = nix::unistd::pipe().unwrap();
        let (stderr, errors) = nix::unistd::pipe().unwrap();
        let (stepd, line) = UnixStream::pair().unwrap();
        stepd.set_read_timeout(Some(PATIENCE)).unwrap();
        let ends = Ends {
            stdin,
            stdout,
            stderr,
            stepd,
        };
        (ends, [input, output, errors, line.into()])
    }

    fn srun(self, agent: UnixStream, created: StepCreated) -> Srun {
        Srun {
            agent,
            stepd: self.stepd,
            stdin: self.stdin.into(),
            stdout: self.stdout.into(),
            stderr: self.stderr.into(),
            created,
        }
    }
}

fn send_with(socket: &impl AsRawFd, bytes: &[u8], with: &[&OwnedFd]) {
    let numbers: Vec<i32> = with.iter().map(|fd| fd.as_raw_fd()).collect();
    let with = [ControlMessage::ScmRights(&numbers)];
    let slices = [IoSlice::new(bytes)];
    let flags = MsgFlags::empty();
    let sent = sendmsg::<()>(socket.as_raw_fd(), &slices, &with, flags, None).unwrap();
    assert_eq!(sent, bytes.len());
}

pub fn text(mut file: &File) -> String {
    let mut text = String::new();
    file.read_to_string(&mut text).unwrap();
    text
}

pub fn exited(code: u32, signal: u32) -> FromStepd {
    FromStepd::Exited {
        task: 0,
        exit: ExitStatus { code, signal },
        oom: false,
    }
}

fn streams() {
    let dir = Dir::new("direct");
    let mut node = Node::start(&dir, "n1");
    allocate(1, &dir, &mut [&mut node], 2);
    // The first daemon is forked for its step, the second step has the same one; two at once have one each.
    for step in 0..3 {
        let script = "cat; echo err >&2; exit 3";
        let mut srun = Srun::ask(&node, spec(1, &dir, &["sh", "-c", script]));
        assert!(srun.created.direct);
        assert_eq!(srun.created.step, StepNo(step));
        let mut stdin = srun.stdin.try_clone().unwrap();
        stdin.write_all(b"through").unwrap();
        drop(stdin);
        srun.stdin = File::open("/dev/null").unwrap();
        assert_eq!(text(&srun.stdout), "through");
        assert_eq!(text(&srun.stderr), "err\n");
        assert_eq!(srun.said(), [exited(3, 0)]);
        let end = step_end(&mut node, 1, step);
        assert_eq!((end.exit.code, end.state), (3, JobState::Failed));
    }
    let other = |text: &str| {
        let mut s = spec(1, &dir, &["echo", text]);
        s.overlap = true;
        Srun::ask(&node, s)
    };
    let (mut a, mut b) = (other("a"), other("b"));
    assert_eq!(
        (text(&a.stdout), text(&b.stdout)),
        ("a\n".into(), "b\n".into())
    );
    assert_eq!(
        (a.said(), b.said()),
        (vec![exited(0, 0)], vec![exited(0, 0)])
    );
    // A process that is left behind is gone when the step is, as nothing tells of its end otherwise.
    let left = ["sh", "-c", "setsid sleep 600 & echo $!"];
    let mut srun = Srun::ask(&node, spec(1, &dir, &left));
    let pid = text(&srun.stdout);
    assert_eq!(srun.said(), [exited(0, 0)]);
    assert!(!std::path::Path::new("/proc").join(pid.trim()).exists());
    // A program that is not there is told of where the task's errors go.
    let mut srun = Srun::ask(&node, spec(1, &dir, &["nosuchprogram"]));
    assert!(text(&srun.stderr).contains("execve(): nosuchprogram: No such file"));
    assert_eq!(srun.said(), [exited(2, 0)]);
}

fn tells_of_itself() {
    let dir = Dir::new("itself");
    let mut node = Node::start(&dir, "n1");
    allocate(1, &dir, &mut [&mut node], 1);
    // The first one has a daemon of its own, the next ones the same.
    for step in 0..3 {
        let mut srun = Srun::ask(&node, spec(1, &dir, &["sh", "-c", "exit 3"]));
        assert!(srun.created.direct);
        assert_eq!(srun.created.step, StepNo(step));
        assert_eq!(srun.created.hostlist, "n1");
        assert_eq!(srun.created.nodes[0].tasks, [0]);
        assert_eq!(srun.said(), [exited(3, 0)]);
        assert_eq!(step_end(&mut node, 1, step).exit.code, 3);
        // The agent has nothing to add.
        srun.agent.set_nonblocking(true).unwrap();
        let more = srun.agent.read(&mut [0]);
        assert_eq!(more.unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
    }
    // Of one that goes on it is told as well.
    let mut srun = Srun::ask(&node, spec(1, &dir, &["sleep", "600"]));
    assert_eq!(srun.created.step, StepNo(3));
    srun.say(ToStepd::Signal(10));
    assert_eq!(srun.said(), [exited(0, 10)]);
}

fn spoken_to() {
    let dir = Dir::new("spoken");
    let mut node = Node::start(&dir, "n1");
    allocate(1, &dir, &mut [&mut node], 1);
    for step in 0..2 {
        let mut srun = Srun::ask(&node, spec(1, &dir, &["sleep", "600"]));
        srun.say(ToStepd::Signal(10));
        assert_eq!(srun.said(), [exited(0, 10)]);
        assert_eq!(step_end(&mut node, 1, step).exit.signal, 10);
    }
    let mut limited = spec(1, &dir, &["sleep", "600"]);
    limited.time_limit = Some(TimeLimit::Minutes(0));
    let mut srun = Srun::ask(&node, limited);
    let said = srun.said_before_done();
    let [FromStepd::NodeMessage(line), end] = &said[..] else {
        panic!("{said:?}")
    };
    assert!(line.contains("*** STEP 1.2 ON n1 CANCELLED AT "), "{line}");
    assert_eq!(*end, exited(0, 15));
    assert_eq!(step_end(&mut node, 1, 2).state, JobState::Timeout);
}

fn srun_gone() {
    let dir = Dir::new("directgone");
    let mut node = Node::start(&dir, "n1");
    allocate(1, &dir, &mut [&mut node], 1);
    for step in 0..2 {
        let srun = Srun::ask(&node, spec(1, &dir, &["sh", "-c", "sleep 600 & wait"]));
        drop(srun);
        let end = step_end(&mut node, 1, step);
        assert_eq!((end.state, end.exit.signal), (JobState::Cancelled, 15));
    }
}

fn survives() {
    let dir = Dir::new("directsurvives");
    let mut node = Node::start(&dir, "n1");
    allocate(1, &dir, &mut [&mut node], 1);
    let script = ["sh", "-c", "read x; echo $x; exit 5"];
    let mut srun = Srun::ask(&node, spec(1, &dir, &script));
    node.kill_agent();
    assert!(frame::read::<AgentReply>(&mut srun.agent).is_err());
    srun.stdin.write_all(b"still here\n").unwrap();
    assert_eq!(text(&srun.stdout), "still here\n");
    assert_eq!(srun.said(), [exited(5, 0)]);
    node.start_agent();
    node.accept();
    assert_eq!(step_end(&mut node, 1, 0).exit.code, 5);
    // The daemon that waits has no line to this agent, until it has had a step from it.
    for step in 1..3 {
        let mut srun = Srun::ask(&node, spec(1, &dir, &["sh", "-c", "exit 6"]));
        assert_eq!(srun.said(), [exited(6, 0)]);
        assert_eq!(step_end(&mut node, 1, step).exit.code, 6);
    }
}

/// What becomes of a step does not depend on who hears of it first, or at all.
fn ends_with_agent() {
    let dir = Dir::new("directends");
    let mut node = Node::start(&dir, "n1");
    allocate(1, &dir, &mut [&mut node], 1);
    for step in 0..4 {
        let mut srun = Srun::ask(&node, spec(1, &dir, &["sh", "-c", "read x; exit 5"]));
        if step % 2 == 0 {
            srun.stdin.write_all(b"x\n").unwrap();
        }
        node.kill_agent();
        if step % 2 == 1 {
            srun.stdin.write_all(b"x\n").unwrap();
        }
        assert_eq!(srun.said(), [exited(5, 0)]);
        node.start_agent();
        node.accept();
        assert_eq!(step_end(&mut node, 1, step).exit.code, 5);
    }
}

/// Two steps, of which one has a daemon that was forked for it, and the other one that the agent gave it to.
fn without_shim() {
    let dir = Dir::new("directshim");
    let mut node = Node::start(&dir, "n1");
    allocate(1, &dir, &mut [&mut node], 2);
    let mut first = Srun::ask(&node, spec(1, &dir, &["true"]));
    assert_eq!(first.said(), [exited(0, 0)]);
    assert_eq!(step_end(&mut node, 1, 0).exit.code, 0);
    let mut sruns = [1, 2].map(|step| {
        let mut s = spec(1, &dir, &["sh", "-c", "read x; kill -9 $$"]);
        s.overlap = true;
        let srun = Srun::ask(&node, s);
        assert_eq!(srun.created.step, StepNo(step));
        srun
    });
    let old = node.shim_pid();
    node.kill_shim();
    sruns[0].stdin.write_all(b"x\n").unwrap();
    // A job that goes through shows that a new shim is there.
    node.run(&JobMaker::new(2, &dir.0, "#!/bin/sh\n"));
    node.batch_exit(2);
    assert_ne!(node.shim_pid(), old);
    sruns[1].stdin.write_all(b"x\n").unwrap();
    for (srun, step) in sruns.iter_mut().zip(1..) {
        assert_eq!(srun.said_at_all(), [exited(0, 9)]);
        assert_eq!(step_end(&mut node, 1, step).exit.signal, 9);
    }
    node.terminate(1, TerminateReason::Finished);
    node.released(1);
}

/// The agent gives a step to the daemon of the one before, and is lost with the shim before that has heard of it. The step
/// ends after their successors are there, or before.
fn nobody_knows() {
    use nix::sys::signal::{Signal, kill};
    for (ends_before, stops_early) in [(false, false), (true, false), (false, true), (true, true)] {
        let dir = Dir::new("nobodyknows");
        let mut node = Node::start(&dir, "n1");
        allocate(1, &dir, &mut [&mut node], 1);
        let mut first = Srun::ask(&node, spec(1, &dir, &["sh", "-c", "read x; exit 4"]));
        let shim = nix::unistd::Pid::from_raw(node.shim_pid());
        if stops_early {
            // Nor does the shim hear of the end of the step before.
            kill(shim, Signal::SIGSTOP).unwrap();
        }
        first.stdin.write_all(b"x\n").unwrap();
        assert_eq!(first.said(), [exited(4, 0)]);
        assert_eq!(step_end(&mut node, 1, 0).exit.code, 4);
        kill(shim, Signal::SIGSTOP).unwrap();
        let mut srun = Srun::ask(&node, spec(1, &dir, &["sh", "-c", "read x; exit 5"]));
        assert_eq!(srun.created.step, StepNo(1));
        node.kill_agent();
        kill(shim, Signal::SIGKILL).unwrap();
        let gone = Instant::now() + PATIENCE;
        while alive(shim.as_raw()) {
            assert!(Instant::now() < gone, "a killed shim lives");
            std::thread::yield_now();
        }
        if ends_before {
            srun.stdin.write_all(b"x\n").unwrap();
            assert_eq!(srun.said_at_all(), [exited(5, 0)]);
        }
        node.start_agent();
        node.accept();
        let begun =
            |r: &NumberedReport| matches!(&r.report, Report::StepStarted(s) if s.step == StepNo(1));
        node.report(begun);
        if !ends_before {
            // Nobody takes its number.
            let mut beside = spec(1, &dir, &["true"]);
            beside.overlap = true;
            let mut third = Srun::ask(&node, beside);
            assert_eq!(third.created.step, StepNo(2));
            assert_eq!(third.said(), [exited(0, 0)]);
            srun.stdin.write_all(b"x\n").unwrap();
            assert_eq!(srun.said_at_all(), [exited(5, 0)]);
        }
        let end = step_end(&mut node, 1, 1);
        assert_eq!((end.exit.code, end.usage.tasks), (5, 1));
        if stops_early {
            assert_eq!(step_end(&mut node, 1, 0).exit.code, 4);
        }
        node.terminate(1, TerminateReason::Finished);
        node.released(1);
        let left = std::fs::read_dir(&node.spool).unwrap().flatten();
        let names = left.map(|file| file.file_name().into_string().unwrap());
        let left: Vec<String> = names.filter(|name| name.starts_with("step-")).collect();
        assert_eq!(left, Vec::<String>::new());
    }
}

pub fn alive(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
    stat.is_ok_and(|stat| !stat.rsplit(") ").next().unwrap_or("").starts_with('Z'))
}

/// Who has heard of a step's end finds its CPU free, whatever the agent has done meanwhile.
fn makes_room() {
    let dir = Dir::new("directroom");
    let mut node = Node::start(&dir, "n1");
    allocate(1, &dir, &mut [&mut node], 1);
    for step in 0..20 {
        let mut s = spec(1, &dir, &["true"]);
        s.immediate = true;
        let mut srun = match step {
            0 => Srun::ask(&node, s),
            _ => Srun::ask_once(&node, &s).unwrap(),
        };
        assert_eq!(srun.created.step, StepNo(step));
        assert_eq!(srun.said(), [exited(0, 0)]);
    }
}

/// Descriptors that nobody asked for end the connection, not the agent.
fn unasked() {
    let dir = Dir::new("unasked");
    let node = Node::start(&dir, "n1");
    let mut agent = UnixStream::connect(node.spool.join("noded.sock")).unwrap();
    agent.set_read_timeout(Some(PATIENCE)).unwrap();
    let null: OwnedFd = File::open("/dev/null").unwrap().into();
    let probe = frame::encode(&AgentRequest::Inspect { job: JobId(9) });
    for code in [RefusalCode::InvalidJobId, RefusalCode::ProtocolError] {
        send_with(&agent, &probe, &[&null, &null, &null]);
        loop {
            match frame::read(&mut agent).unwrap() {
                AgentReply::Refused(refusal) if refusal.code == code => break,
                // The second request is answered, too, if that comes first.
                AgentReply::Refused(refusal) if refusal.code == RefusalCode::InvalidJobId => {}
                other => panic!("{other:?}"),
            }
        }
    }
    assert!(frame::read::<AgentReply>(&mut agent).is_err());
}

fn several() {
    let dir = Dir::new("several");
    let mut node = Node::start(&dir, "n1");
    allocate(1, &dir, &mut [&mut node], 2);
    let mut two = spec(1, &dir, &["true"]);
    two.ntasks = Some(2);
    let mut prologued = spec(1, &dir, &["true"]);
    prologued.task_prolog = Some("/bin/true".to_owned());
    for (step, spec) in (0..).zip([two, prologued]) {
        let srun = Srun::ask(&node, spec);
        assert!(!srun.created.direct);
        drop(srun);
        assert_eq!(step_end(&mut node, 1, step).state, JobState::Cancelled);
    }
}
