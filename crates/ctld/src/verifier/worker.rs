//! A verifier process: its start, its requests and its answers. It runs as this process's user, with nothing of its
//! environment and no descriptor but its connection, in a process group of its own, by which it is killed with all
//! processes of the site's script.

use super::jsv_process::JsvProcess;
use super::settings::{Kind, Settings};
use minicbor::bytes::ByteVec;
use muster_proto::frame;
use muster_verifier::message::{
    ControllerRequest, DataQuery, LoadScript, Subject, Verdict, VerifierReport,
};
use muster_verifier::process;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as Blocking;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;

/// Time limit for a process to load the script.
const START_LIMIT: Duration = Duration::from_secs(20);
/// Reports that one verification may send: lines of its log and questions.
const REPORTS_MAX: usize = 10_000;
/// Bytes that are read at once.
const READ_BYTES: usize = 16 << 10;

/// A process that verifies requests.
pub(crate) enum Worker {
    /// It runs job_submit.lua.
    Lua(LuaProcess),
    /// It is a program of the site's that speaks Grid Engine's protocol.
    Jsv(JsvProcess),
}

/// A process that has loaded job_submit.lua.
pub(crate) struct LuaProcess {
    process: Process,
    connection: WorkerConnection,
    received: Vec<u8>,
}

/// A connection, blocking until the event loop has it.
pub(super) enum WorkerConnection {
    Made(Option<Blocking>),
    Served(UnixStream),
}

impl WorkerConnection {
    pub(super) fn new(made: Blocking) -> WorkerConnection {
        WorkerConnection::Made(Some(made))
    }

    /// The connection, in the event loop.
    pub(super) fn stream(&mut self) -> io::Result<&mut UnixStream> {
        if let WorkerConnection::Made(made) = self {
            let made = made.take().ok_or(io::ErrorKind::NotConnected)?;
            *self = WorkerConnection::Served(UnixStream::from_std(made)?);
        }
        match self {
            WorkerConnection::Served(stream) => Ok(stream),
            WorkerConnection::Made(_) => Err(io::ErrorKind::NotConnected.into()),
        }
    }
}

/// A process, which is killed with its children when it is dropped.
pub(super) struct Process(Option<Child>);

impl Process {
    /// Takes over a child that leads a process group.
    pub(super) fn new(child: Child) -> Process {
        Process(Some(child))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let Some(mut child) = self.0.take() else {
            return;
        };
        let mut kill = move || {
            if let Ok(pid) = i32::try_from(child.id()) {
                let _ = killpg(Pid::from_raw(pid), Signal::SIGKILL);
            }
            let _ = child.wait();
        };
        // The event loop does not wait for the kernel to take it down.
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn_blocking(kill)),
            Err(_) => kill(),
        }
    }
}

/// Starts a process. Returns its report about its script. Blocks.
///
/// # Errors
/// Why there is none that can verify anything.
pub(crate) fn start(
    settings: &Settings,
    last_good: Option<ByteVec>,
) -> Result<(Worker, VerifierReport), String> {
    match &settings.kind {
        Kind::Lua => start_lua(settings, last_good),
        Kind::Jsv(site) => {
            let process = JsvProcess::start(settings, site)?;
            Ok((
                Worker::Jsv(process),
                VerifierReport::Loaded(Vec::new().into()),
            ))
        }
    }
}

fn start_lua(
    settings: &Settings,
    last_good: Option<ByteVec>,
) -> Result<(Worker, VerifierReport), String> {
    let cannot = |e: io::Error| format!("{} cannot be started: {e}", process::NAME);
    let (mut own, theirs) = Blocking::pair().map_err(cannot)?;
    let child = Command::new("/proc/self/exe")
        .arg0(process::NAME)
        .env_clear()
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .current_dir("/")
        .process_group(0)
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map_err(cannot)?;
    let process = Process(Some(child));
    let load = ControllerRequest::Load(LoadScript {
        path: settings.script.display().to_string(),
        last_good,
        time_limit_ms: u64::try_from(settings.time_limit.as_millis()).unwrap_or(u64::MAX),
        memory_bytes: settings.memory_bytes,
        cluster: settings.cluster.clone(),
    });
    own.set_read_timeout(Some(START_LIMIT)).map_err(cannot)?;
    own.write_all(&frame::encode(&load)).map_err(cannot)?;
    let report = loop {
        match frame::read(&mut own).map_err(cannot)? {
            VerifierReport::Log { .. } => {}
            VerifierReport::Broken {
                why,
                has_other: false,
            } => return Err(why),
            report => break report,
        }
    };
    own.set_read_timeout(None).map_err(cannot)?;
    own.set_nonblocking(true).map_err(cannot)?;
    let process = LuaProcess {
        process,
        connection: WorkerConnection::new(own),
        received: Vec::new(),
    };
    Ok((Worker::Lua(process), report))
}

impl Worker {
    /// Has a request verified; what else it says is noted. Answers come as the messages that they are sent in.
    pub(super) async fn verify<A: Future<Output = io::Result<Vec<u8>>>>(
        &mut self,
        subject: Subject,
        answer: impl Fn(DataQuery) -> A,
        note: impl Fn(VerifierReport),
    ) -> io::Result<Verdict> {
        match self {
            Worker::Lua(process) => process.verify(subject, answer, note).await,
            Worker::Jsv(process) => process.verify(subject, note).await,
        }
    }

    /// Whether it may serve another request after one that it has served.
    pub(super) fn is_reusable(&self) -> bool {
        match self {
            Worker::Lua(_) => true,
            Worker::Jsv(process) => process.is_reusable(),
        }
    }
}

impl LuaProcess {
    async fn verify<A: Future<Output = io::Result<Vec<u8>>>>(
        &mut self,
        subject: Subject,
        answer: impl Fn(DataQuery) -> A,
        note: impl Fn(VerifierReport),
    ) -> io::Result<Verdict> {
        self.send(&ControllerRequest::Verify(Box::new(subject)))
            .await?;
        for _ in 0..REPORTS_MAX {
            match self.next().await? {
                VerifierReport::Verdict(verdict) => return Ok(*verdict),
                VerifierReport::Question(question) => {
                    let answer = answer(question).await?;
                    self.connection.stream()?.write_all(&answer).await?;
                }
                report => note(report),
            }
        }
        Err(io::Error::other("it says more than one request can need"))
    }

    async fn send(&mut self, order: &ControllerRequest) -> io::Result<()> {
        debug_assert!(self.process.0.is_some(), "it lives as long as this");
        self.connection
            .stream()?
            .write_all(&frame::encode(order))
            .await
    }

    async fn next(&mut self) -> io::Result<VerifierReport> {
        loop {
            if let Some(header) = self.received.first_chunk::<4>() {
                let end = frame::length_of::<VerifierReport>(*header)? + 4;
                if let Some(body) = self.received.get(4..end) {
                    let report = frame::decode(body);
                    self.received.drain(..end);
                    return report;
                }
            }
            let mut received = std::mem::take(&mut self.received);
            received.reserve(READ_BYTES);
            let count = self.connection.stream()?.read_buf(&mut received).await;
            self.received = received;
            if count? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }
}
