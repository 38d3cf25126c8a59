//! Starts the launcher if none listens. The launcher continues when the supervisor ends.

use crate::descriptors;
use crate::messages::agent_supervisor;
use crate::messages::launcher_socket::{attach_frame, socket_path};
use crate::one_way_link::OneWayLink;
use crate::options::AgentOptions;
use crate::role::LAUNCHER_NAME;
use anyhow::Context as _;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::socket::{Shutdown, shutdown};
use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{ChildStderr, Command, Stdio};
use std::sync::OnceLock;

/// malloc settings of the launcher and step daemons, which have one thread each: freed memory stays
/// available for the next allocation of its size. By default only seven pieces per size are kept,
/// and the others are merged with their neighbours again and again, which took a quarter of a step
/// daemon's own time for a short step. (Other C libraries ignore the setting.)
const HEAP: (&str, &str) = ("GLIBC_TUNABLES", "glibc.malloc.tcache_count=127");

/// Variables that the launcher inherits from the supervisor: messages need the time zone, and hosts
/// of MPI steps the libraries that the site names. Nothing else of an operator's shell is passed to
/// a process that outlives this one.
const KEPT_VARIABLES: [&str; 4] = ["TZ", "RUST_BACKTRACE", "MUSTER_PMIX_LIB", "MUSTER_UCX_LIB"];

/// Whether a connection failed because no process listens.
pub(super) fn is_absent(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused
    )
}

/// An agent's connection to the launcher.
pub(crate) struct LauncherLink {
    /// Receives the launcher's messages. It cannot be used to send.
    pub(crate) events: OwnedFd,
    /// Sends orders.
    pub(crate) orders: OwnedFd,
}

/// Connects to the running launcher for an agent, and tells it which node this is. The launcher
/// accepts this information only from the supervisor, because the agent may have been taken over.
pub(crate) fn connect(options: &AgentOptions) -> io::Result<LauncherLink> {
    let events = reach(options)?;
    let orders = OneWayLink::open()?;
    let frame = attach_frame(options);
    // A message this small is sent at once.
    let sent = descriptors::send(&events, &frame, &[orders.reader.as_raw_fd()])?;
    if sent != frame.len() {
        return Err(io::ErrorKind::WriteZero.into());
    }
    shutdown(events.as_raw_fd(), Shutdown::Write)?;
    let orders = orders.writer;
    Ok(LauncherLink { events, orders })
}

fn reach(options: &AgentOptions) -> io::Result<OwnedFd> {
    agent_supervisor::connect(&socket_path(&options.spool_dir))
}

/// The program file from which a launcher or a probe is started.
pub(crate) fn program(options: &AgentOptions) -> PathBuf {
    static LINK: OnceLock<Option<File>> = OnceLock::new();
    if let Some(program) = &options.launcher_program {
        return program.clone();
    }
    // The descriptor leads to the same file later, if an update replaces the link.
    match LINK.get_or_init(link_called_muster) {
        Some(link) => format!("/proc/self/fd/{}", link.as_raw_fd()).into(),
        None => OWN.into(),
    }
}

const OWN: &str = "/proc/self/exe";

/// The link `muster` to this program's file, beside the link that this process was started by. A launcher runs on when slurmd is
/// stopped, and tools take each process for slurmd that was started by the link of that name.
fn link_called_muster() -> Option<File> {
    let own = std::fs::metadata(OWN).ok()?;
    let path = std::env::current_exe().ok()?;
    let dir = path.parent()?;
    let is_own = |file: &File| {
        let found = file.metadata().ok();
        found.is_some_and(|found| (found.dev(), found.ino()) == (own.dev(), own.ino()))
    };
    let beside = [dir.join("muster"), dir.join("../bin/muster")];
    beside
        .iter()
        .find_map(|link| File::open(link).ok().filter(is_own))
}

fn command(options: &AgentOptions) -> Command {
    let kept = KEPT_VARIABLES.map(|name| Some((name, std::env::var_os(name)?)));
    let mut command = Command::new(program(options));
    command
        .arg0(LAUNCHER_NAME)
        .env_clear()
        .envs(kept.into_iter().flatten())
        .env(HEAP.0, HEAP.1)
        .arg(&options.spool_dir)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .current_dir("/");
    command
}

/// Starts a launcher if none listens; returns once one does.
pub(super) fn ensure(options: &AgentOptions) -> anyhow::Result<()> {
    if reach(options).is_ok() {
        return Ok(());
    }
    let output = command(options)
        .output()
        .with_context(|| format!("starting {} as {LAUNCHER_NAME}", program(options).display()))?;
    anyhow::ensure!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(())
}

/// A launcher that has been started and has not reported that it listens.
pub(super) struct Starting {
    /// The process whose end reports the result.
    pid: i32,
    errors: ChildStderr,
}

impl Starting {
    pub(super) fn begin(options: &AgentOptions) -> io::Result<Starting> {
        let mut child = command(options).spawn()?;
        let errors = child.stderr.take().ok_or(io::ErrorKind::BrokenPipe)?;
        Ok(Starting {
            pid: i32::try_from(child.id()).unwrap_or(0),
            errors,
        })
    }

    pub(super) fn is(&self, pid: i32) -> bool {
        self.pid == pid
    }

    /// The process has ended: returns whether the launcher listens.
    pub(super) fn ended(mut self, status: i32) -> io::Result<()> {
        if libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0 {
            return Ok(());
        }
        // Its output is available now; do not wait for the end of the pipe, which other processes
        // may hold open.
        let mut text = vec![0; 4096];
        let length = match set_nonblocking(&self.errors) {
            Ok(()) => self.errors.read(&mut text).unwrap_or(0),
            Err(_) => 0,
        };
        let text = String::from_utf8_lossy(&text[..length]).trim().to_owned();
        log::error!("the launcher cannot be started: {text}");
        Err(io::Error::other(text))
    }
}

fn set_nonblocking(errors: &ChildStderr) -> nix::Result<()> {
    fcntl(errors.as_fd(), FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).map(drop)
}
