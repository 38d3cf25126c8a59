//! Starts the launcher when none listens. It goes on when the supervisor ends.

use super::lines;
use crate::descriptors;
use crate::launcher::{attach_frame, socket_path};
use crate::one_way_link::OneWayLink;
use crate::options::AgentOptions;
use crate::role::LAUNCHER_NAME;
use anyhow::Context as _;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::socket::{Shutdown, shutdown};
use std::io::{self, Read as _};
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{ChildStderr, Command, Stdio};

/// How the C library keeps memory for the launcher and step daemons, which have one thread each: what is given back is at
/// hand for the next of its size. Otherwise no more than seven pieces of a size are, and the others are joined with their
/// neighbours again and again: a quarter of a step daemon's own time for a short step. (Other C libraries do not read it.)
const HEAP: (&str, &str) = ("GLIBC_TUNABLES", "glibc.malloc.tcache_count=127");

/// Variables that it gets of the supervisor's: messages need the time zone, and hosts of MPI steps the libraries that the
/// site names. Nothing else of an operator's shell stays with a process that outlives this one.
const KEPT_VARIABLES: [&str; 4] = ["TZ", "RUST_BACKTRACE", "MUSTER_PMIX_LIB", "MUSTER_UCX_LIB"];

/// Whether a connection failed because nobody listens.
pub(super) fn is_absent(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused
    )
}

/// What an agent has of the launcher.
pub(crate) struct LauncherLink {
    /// Brings what the launcher sends. Nothing can be sent by it.
    pub(crate) events: OwnedFd,
    /// Takes orders.
    pub(crate) orders: OwnedFd,
}

/// Connects to the launcher that runs, and says for an agent which node this is: what the launcher believes of that comes from
/// here.
pub(crate) fn connect(options: &AgentOptions) -> io::Result<LauncherLink> {
    let events = reach(options)?;
    let orders = OneWayLink::open()?;
    let frame = attach_frame(options);
    // So little is taken at once.
    let sent = descriptors::send(&events, &frame, &[orders.reader.as_raw_fd()])?;
    if sent != frame.len() {
        return Err(io::ErrorKind::WriteZero.into());
    }
    shutdown(events.as_raw_fd(), Shutdown::Write)?;
    let orders = orders.writer;
    Ok(LauncherLink { events, orders })
}

fn reach(options: &AgentOptions) -> io::Result<OwnedFd> {
    lines::connect(&socket_path(&options.spool_dir))
}

/// The program file that a launcher, or a probe, is started from.
pub(crate) fn program(options: &AgentOptions) -> PathBuf {
    let own = Path::new("/proc/self/exe");
    options
        .launcher_program
        .clone()
        .unwrap_or_else(|| own.to_owned())
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

/// A launcher that has not said yet that it listens.
pub(super) struct Starting {
    /// The process that ends when it does.
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

    /// The process has ended: whether the launcher listens.
    pub(super) fn ended(mut self, status: i32) -> io::Result<()> {
        if libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0 {
            return Ok(());
        }
        // What it has said is there; if something else holds the pipe, nobody waits for that.
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
