//! A user who speaks to the agent below the commands. The test program starts itself as that user; what it finds out it
//! prints, and it ends with its standard input.

use super::cluster::PATIENCE;
use muster_model::ids::JobId;
use muster_model::refusal::RefusalCode;
use muster_model::spec::ExecContext;
use muster_proto::frame;
use muster_proto::step::{AgentReply, AgentRequest, StepSpec};
use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg, setsockopt, sockopt};
use std::io::{self, BufRead as _, BufReader, IoSlice, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitCode, Stdio};

/// First argument of the program in this role.
pub const ROLE: &str = "attacker";
/// Who it is: nobody.
pub const UID: u32 = 65_534;

/// A running attack.
pub struct Attack {
    child: Child,
    output: BufReader<std::process::ChildStdout>,
}

impl Attack {
    pub fn start(args: &[&str]) -> Attack {
        let mut child = Command::new("/proc/self/exe")
            .arg(ROLE)
            .args(args)
            .uid(UID)
            .gid(UID)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Attack { child, output }
    }

    /// Ends it; what it has printed can still be read.
    pub fn end(&mut self) {
        let _ = self.child.kill();
    }

    /// The next line that it prints.
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }
}

impl Drop for Attack {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn run(args: &[String]) -> ExitCode {
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args[..] {
        ["requests", socket, ref files @ ..] => requests(socket, files),
        ["linger", socket] => linger(socket),
        ["connections", socket, count] => connections(socket, count.parse().unwrap()),
        ["unknown-jobs", socket, count, bytes] => {
            unknown_jobs(socket, count.parse().unwrap(), bytes.parse().unwrap());
        }
        ["trace"] => super::dumpable::trace(),
        ["memory", secret, waiting] => super::dumpable::read_memory(secret, waiting),
        ref other => panic!("{other:?}"),
    }
    ExitCode::SUCCESS
}

pub fn say(text: impl std::fmt::Display) {
    println!("{text}");
    io::stdout().flush().unwrap();
}

fn wait_for_the_end() {
    let _ = io::stdin().read(&mut [0]);
}

/// Sends requests that are in files, each by a connection of its own.
fn requests(socket: &str, files: &[&str]) {
    for file in files {
        let mut stream = UnixStream::connect(socket).unwrap();
        stream.write_all(&std::fs::read(file).unwrap()).unwrap();
        match frame::read::<AgentReply>(&mut stream) {
            Ok(AgentReply::Refused(refusal)) => say(format!("{:?}", refusal.code)),
            other => say(format!("{other:?}")),
        }
    }
}

/// A connection whose close takes ten minutes, and its other end.
fn lingering() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (far, _) = listener.accept().unwrap();
    let linger = nix::libc::linger {
        l_onoff: 1,
        l_linger: 600,
    };
    setsockopt(&near, sockopt::Linger, &linger).unwrap();
    near.set_nonblocking(true).unwrap();
    while near.write(&[0; 64 << 10]).is_ok() {}
    (near, far)
}

fn send_with(socket: &impl AsRawFd, byte: &[u8], with: &impl AsRawFd) {
    let numbers = [with.as_raw_fd()];
    let with = [ControlMessage::ScmRights(&numbers)];
    let bytes = [IoSlice::new(byte)];
    sendmsg::<()>(socket.as_raw_fd(), &bytes, &with, MsgFlags::empty(), None).unwrap();
}

/// Has the agent be the last to close sockets that linger: with a connection that ends, with one that fails, with a
/// request that takes no streams.
fn linger(socket: &str) {
    let mut far_ends = Vec::new();
    let inspect = frame::encode(&AgentRequest::Inspect { job: JobId(1) });
    for (bytes, ends) in [(&[0][..], true), (&[0xff; 5], false), (&inspect[..], true)] {
        let (near, far) = lingering();
        far_ends.push(far);
        let mut stream = UnixStream::connect(socket).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        send_with(&stream, bytes, &near);
        drop(near);
        if ends {
            stream.shutdown(std::net::Shutdown::Write).unwrap();
        }
        // Until the agent has closed it.
        let _ = stream.read_to_end(&mut Vec::new());
    }
    say("sent");
    wait_for_the_end();
}

/// How many of the connections that come last are looked at.
pub const LATE: usize = 900;

/// Opens connections and sends less than a request by each; says how many of them were refused.
fn connections(socket: &str, count: usize) {
    let (soft, hard) =
        nix::sys::resource::getrlimit(nix::sys::resource::Resource::RLIMIT_NOFILE).unwrap();
    assert!(soft.max(hard) > count as u64 + 50);
    nix::sys::resource::setrlimit(nix::sys::resource::Resource::RLIMIT_NOFILE, hard, hard).unwrap();
    let mut open: Vec<UnixStream> = Vec::new();
    for _ in 0..count {
        let stream = UnixStream::connect(socket).unwrap();
        // It may be refused already.
        let _ = (&stream).write(&[0]);
        open.push(stream);
    }
    // Those that come last are refused, or closed; if they are not, they are heard of when the agent loses patience.
    let refused = open.iter().skip(count - LATE).take_while(|stream| {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut byte = [0];
        (&**stream).read(&mut byte).is_ok()
    });
    say(refused.count());
    wait_for_the_end();
}

/// Asks for steps of jobs that do not exist, with a key that nobody has given it.
fn unknown_jobs(socket: &str, count: u64, bytes: usize) {
    let value = vec![b'a'; 100 << 10];
    let variables =
        (0..bytes / value.len()).map(|i| [format!("V{i}=").as_bytes(), &value].concat());
    let spec = StepSpec {
        key: Some(vec![1; 16].into()),
        argv: vec!["true".to_owned()],
        context: ExecContext {
            environment: variables.collect(),
            ..ExecContext::default()
        },
        ..StepSpec::default()
    };
    let mut open = Vec::new();
    for job in 0..count {
        let mut stream = UnixStream::connect(socket).unwrap();
        let job = JobId(1_000_000 + job);
        let request = AgentRequest::Create(Box::new(StepSpec {
            job,
            ..spec.clone()
        }));
        // The agent may end the connection before it has read all.
        let _ = stream.write_all(&frame::encode(&request));
        open.push(stream);
    }
    let is_busy = |stream: &mut UnixStream| {
        stream.set_nonblocking(true).unwrap();
        let reply = frame::read::<AgentReply>(stream);
        matches!(reply, Ok(AgentReply::Refused(r)) if r.code == RefusalCode::Busy)
    };
    say(open.iter_mut().map(is_busy).filter(|busy| *busy).count());
    wait_for_the_end();
}
