//! Steps whose only task has srun's own streams, with the tests in the place of srun.

use super::Test;
use super::cluster::{Dir, Node, PATIENCE};
use super::steps::{allocate, spec, step_end};
use muster_core::ids::{JobId, StepNo};
use muster_core::job::{ExitStatus, JobState};
use muster_core::time::TimeLimit;
use muster_proto::frame;
use muster_proto::step::{AgentReply, AgentRequest, FromStepd, StepCreated, StepSpec, ToStepd};
use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
use std::fs::File;
use std::io::{IoSlice, Read as _, Write as _};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Instant;

pub const TESTS: &[Test] = &[
    ("direct_steps_have_the_streams_of_srun", streams),
    ("direct_step_is_spoken_to_through_the_agent", spoken_to),
    ("direct_step_ends_with_srun", srun_gone),
    ("direct_step_survives_the_agent", survives),
    ("descriptors_that_nobody_asked_for", unasked),
    ("several_tasks_have_no_streams_of_srun", several),
];

/// What srun would be.
struct Srun {
    agent: UnixStream,
    stdin: File,
    stdout: File,
    stderr: File,
    created: StepCreated,
}

impl Srun {
    fn ask(node: &Node, spec: StepSpec) -> Srun {
        let spec = StepSpec {
            hands_streams: true,
            ..spec
        };
        let until = Instant::now() + PATIENCE;
        loop {
            let (input, stdin) = nix::unistd::pipe().unwrap();
            let (stdout, output) = nix::unistd::pipe().unwrap();
            let (stderr, errors) = nix::unistd::pipe().unwrap();
            let mut agent = UnixStream::connect(node.spool.join("noded.sock")).unwrap();
            agent.set_read_timeout(Some(PATIENCE)).unwrap();
            let request = AgentRequest::Create(Box::new(spec.clone()));
            send_with(
                &agent,
                &frame::encode(&request),
                &[&input, &output, &errors],
            );
            drop((input, output, errors));
            match frame::read(&mut agent).unwrap() {
                AgentReply::Created(created) => {
                    return Srun {
                        agent,
                        stdin: stdin.into(),
                        stdout: stdout.into(),
                        stderr: stderr.into(),
                        created: *created,
                    };
                }
                // The order that made the job may still be on its way.
                AgentReply::Refused(_) if Instant::now() < until => {}
                other => panic!("{other:?}"),
            }
        }
    }

    fn say(&mut self, message: ToStepd) {
        frame::write(&mut self.agent, &AgentRequest::Say(Box::new(message))).unwrap();
    }

    /// What the daemon says until the step is over.
    fn said(&mut self) -> Vec<FromStepd> {
        let mut said = Vec::new();
        loop {
            match frame::read(&mut self.agent).unwrap() {
                AgentReply::Said(message) => said.push(*message),
                AgentReply::Done => return said,
                other => panic!("{other:?}"),
            }
        }
    }
}

fn send_with(socket: &UnixStream, bytes: &[u8], with: &[&OwnedFd]) {
    let numbers: Vec<i32> = with.iter().map(|fd| fd.as_raw_fd()).collect();
    let with = [ControlMessage::ScmRights(&numbers)];
    let slices = [IoSlice::new(bytes)];
    let flags = MsgFlags::empty();
    let sent = sendmsg::<()>(socket.as_raw_fd(), &slices, &with, flags, None).unwrap();
    assert_eq!(sent, bytes.len());
}

fn text(mut file: &File) -> String {
    let mut text = String::new();
    file.read_to_string(&mut text).unwrap();
    text
}

fn exited(code: u32, signal: u32) -> FromStepd {
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
    let said = srun.said();
    let [FromStepd::Message(line), end] = &said[..] else {
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
    let path = srun.created.nodes[0].address.strip_prefix("unix:").unwrap();
    let mut stepd = UnixStream::connect(path).unwrap();
    stepd.set_read_timeout(Some(PATIENCE)).unwrap();
    frame::write(&mut stepd, &ToStepd::Hello(srun.created.key.clone())).unwrap();
    let said: FromStepd = frame::read(&mut stepd).unwrap();
    assert!(matches!(said, FromStepd::Started(pids) if pids.len() == 1));
    srun.stdin.write_all(b"still here\n").unwrap();
    assert_eq!(text(&srun.stdout), "still here\n");
    let said: FromStepd = frame::read(&mut stepd).unwrap();
    assert_eq!(said, exited(5, 0));
    let said: FromStepd = frame::read(&mut stepd).unwrap();
    assert_eq!(said, FromStepd::Closed);
    node.start_agent();
    node.accept();
    assert_eq!(step_end(&mut node, 1, 0).exit.code, 5);
}

/// Descriptors that nobody asked for end the connection, not the agent.
fn unasked() {
    let dir = Dir::new("unasked");
    let node = Node::start(&dir, "n1");
    let mut agent = UnixStream::connect(node.spool.join("noded.sock")).unwrap();
    agent.set_read_timeout(Some(PATIENCE)).unwrap();
    let null: OwnedFd = File::open("/dev/null").unwrap().into();
    let probe = frame::encode(&AgentRequest::Inspect { job: JobId(9) });
    for answered in [true, false] {
        send_with(&agent, &probe, &[&null, &null, &null]);
        let answer = frame::read::<AgentReply>(&mut agent);
        assert_eq!(answer.is_ok(), answered, "{answer:?}");
    }
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
