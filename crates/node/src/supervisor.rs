//! The supervisor: `slurmd` itself, once it has read the configuration. It is root's (or whoever's started it), has one
//! thread, talks to nobody but its own child, and does four things: it takes the spool directory, makes the sockets on
//! which users and other nodes reach this one, starts the launcher unless one runs, and executes this program afresh
//! as the agent, under an account without privileges. Then it waits for the agent's end.
//!
//! Meanwhile the agent may ask for four things ([`lines`]): a connection to the launcher, to the controller, to the agent of
//! another node on this machine, and the socket of a job. Requests name no path but that of another agent's socket, which is looked at. SIGTERM and SIGINT are passed on. When the agent
//! ends, so does the supervisor, with its status; when the supervisor is killed, the kernel kills the agent.

mod account;
mod launcher;
pub(crate) mod lines;
mod order;
mod sockets;
mod spool;

pub use order::AgentLog;
pub(crate) use order::{Inherited, inherited};

use crate::cross_memory;
use crate::failure;
use crate::info;
use crate::options::AgentOptions;
use crate::role;
use crate::shim::wire::User;
use crate::sys;
use anyhow::Context as _;
use launcher::Starting;
use lines::{Received, answer, receive};
use muster_proto::PROTOCOL;
use muster_proto::client::{Request, RequestBody};
use muster_proto::frame;
use nix::fcntl::{AtFlags, OFlag};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
use nix::sys::stat::Mode;
use order::Order;
use sockets::{JobSockets, NodeSocket};
use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd, RawFd};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Name under which the binary's own executable is started as an agent.
pub const AGENT_NAME: &str = "muster-agent";

/// Variables that the agent gets of the supervisor's.
const KEPT_VARIABLES: [&str; 2] = ["TZ", "RUST_BACKTRACE"];

/// Runs a node's agent, and the launcher if none runs, until the agent ends. Gives the agent's exit status. The launcher
/// and the jobs go on.
///
/// # Errors
/// When there is no such account, when the spool directory cannot be used, or when a process cannot be started.
pub fn run(options: AgentOptions, log: AgentLog) -> anyhow::Result<ExitCode> {
    failure::end_on_panic();
    if let Err(e) = sys::protect() {
        log::info!("the kernel may end this process and the agent when memory runs out: {e}");
    }
    close_terminal().context("/dev/null")?;
    let account = account::find(&options.slurmd_user)?;
    let _lock = spool::take(&options.spool_dir)?;
    let probe = cross_memory::Probe::start(&launcher::program(&options), &options.spool_dir);
    launcher::ensure(&options)?;
    let cross_memory = probe.finish();
    sockets::remove_left(&options.spool_dir);
    let socket = NodeSocket::open(&options.spool_dir)?;
    let signals = watch_signals().context("signals")?;
    let order = Order {
        options: options.clone(),
        cross_memory: cross_memory.map(|found| found.to_string()),
        log_level: log.level.to_string(),
        log_to_stderr: log.to_stderr,
        has_log_file: log.file.is_some(),
    };
    let mut supervisor = Supervisor::start(options, &order, &socket, log.file, &account, signals)?;
    let ended = supervisor.serve();
    // Whoever asks now has no agent to wait for.
    drop(socket);
    drop(supervisor);
    Ok(ended?)
}

/// Standard input and output are not needed any more, and are nobody's business.
fn close_terminal() -> io::Result<()> {
    let null = OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/null")?;
    sys::dup_to(null.as_raw_fd(), 0)?;
    sys::dup_to(null.as_raw_fd(), 1)
}

fn watch_signals() -> io::Result<SignalFd> {
    sys::ignore_signal(libc::SIGHUP);
    sys::ignore_signal(libc::SIGPIPE);
    let mut mask = SigSet::empty();
    for signal in [Signal::SIGCHLD, Signal::SIGTERM, Signal::SIGINT] {
        mask.add(signal);
    }
    mask.thread_block()?;
    let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
    Ok(SignalFd::with_flags(&mask, flags)?)
}

/// An end of a connection to the agent, until the agent has closed its own.
type Line = Option<OwnedFd>;

struct Supervisor {
    options: AgentOptions,
    signals: SignalFd,
    /// The agent's process.
    agent: i32,
    launcher: Line,
    controller: Line,
    sockets: Line,
    peers: Line,
    /// A launcher that is being started, for which the agent waits.
    starting: Option<Starting>,
    job_sockets: JobSockets,
}

fn line() -> io::Result<(OwnedFd, OwnedFd)> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    Ok(socketpair(
        AddressFamily::Unix,
        SockType::SeqPacket,
        None,
        flags,
    )?)
}

impl Supervisor {
    /// Starts the agent.
    fn start(
        options: AgentOptions,
        order: &Order,
        socket: &NodeSocket,
        log: Option<File>,
        account: &User,
        signals: SignalFd,
    ) -> anyhow::Result<Supervisor> {
        let lines = || -> io::Result<_> { Ok([line()?, line()?, line()?, line()?]) };
        let [launcher, controller, of_jobs, peers] = lines().context("connections to the agent")?;
        let mut kept: Vec<RawFd> = [&launcher.1, &controller.1, &of_jobs.1, &peers.1]
            .map(|end| end.as_raw_fd())
            .into();
        kept.push(socket.number());
        kept.extend(log.as_ref().map(File::as_raw_fd));
        let environment = KEPT_VARIABLES.iter().filter_map(|name| {
            let value = std::env::var(name).ok()?;
            CString::new(format!("{name}={value}")).ok()
        });
        let start = role::Start {
            words: &[AGENT_NAME, &options.name],
            environment: environment.collect(),
            user: account,
            order: order.encoded(),
            errors: Some(libc::STDERR_FILENO),
            kept,
            outlives: false,
        };
        let agent = start.start().context("the agent cannot be started")?;
        log::info!("the agent is process {agent}, of uid {}", account.uid);
        Ok(Supervisor {
            job_sockets: JobSockets::new(&options.spool_dir),
            options,
            signals,
            agent,
            launcher: Some(launcher.0),
            controller: Some(controller.0),
            sockets: Some(of_jobs.0),
            peers: Some(peers.0),
            starting: None,
        })
    }

    /// Serves the agent until it ends.
    fn serve(&mut self) -> io::Result<ExitCode> {
        loop {
            let number = |line: &Line| line.as_ref().map_or(-1, |line| line.as_raw_fd());
            let fds = [
                self.signals.as_fd().as_raw_fd(),
                number(&self.launcher),
                number(&self.controller),
                number(&self.sockets),
                number(&self.peers),
            ];
            let mut fds = fds.map(|fd| libc::pollfd {
                fd,
                events: libc::POLLIN,
                revents: 0,
            });
            sys::poll(&mut fds, -1)?;
            let [signals, launcher, controller, sockets, peers] = fds.map(|fd| fd.revents != 0);
            if signals && let Some(status) = self.take_signals() {
                return Ok(status);
            }
            if launcher {
                self.ask_for_launcher();
            }
            if controller {
                self.ask_for_controller();
            }
            if sockets {
                self.ask_for_sockets();
            }
            if peers {
                self.ask_for_peer();
            }
        }
    }

    /// Passes on what it is told to; gives the agent's status if it has ended.
    fn take_signals(&mut self) -> Option<ExitCode> {
        while let Ok(Some(info)) = self.signals.read_signal() {
            let signal = i32::try_from(info.ssi_signo).unwrap_or(0);
            if signal != libc::SIGCHLD {
                sys::kill(self.agent, signal);
            }
        }
        while let sys::Reap::Ended(child) = sys::reap() {
            if child.pid == self.agent {
                return Some(status(child.status));
            }
            if let Some(starting) = self.starting.take_if(|s| s.is(child.pid)) {
                let started = starting
                    .ended(child.status)
                    .and_then(|()| launcher::connect(&self.options));
                self.answer_launcher(started);
            }
        }
        None
    }

    fn ask_for_launcher(&mut self) {
        if !self.has_asked(|own| &mut own.launcher) || self.starting.is_some() {
            return;
        }
        match launcher::connect(&self.options) {
            Err(e) if launcher::is_absent(&e) => {
                log::warn!("no launcher listens: one is started");
                match Starting::begin(&self.options) {
                    Ok(starting) => self.starting = Some(starting),
                    Err(e) => self.answer_launcher(Err(e)),
                }
            }
            connected => self.answer_launcher(connected),
        }
    }

    fn answer_launcher(&self, connected: io::Result<OwnedFd>) {
        if let Some(line) = &self.launcher {
            answer(line, 0, connected);
        }
    }

    fn ask_for_controller(&mut self) {
        if self.has_asked(|own| &mut own.controller)
            && let Some(line) = &self.controller
        {
            answer(line, 0, connect_to_controller(&self.options));
        }
    }

    /// Takes a request that says nothing; whether there was one.
    fn has_asked(&mut self, line: fn(&mut Supervisor) -> &mut Line) -> bool {
        let line = line(self);
        let Some(fd) = line else { return false };
        match receive(fd) {
            Received::Request(_) => true,
            Received::Nothing => false,
            Received::End => {
                *line = None;
                false
            }
        }
    }

    /// Connects to another node's agent on this machine, which may lie where the agent has no way to. That one sees root, as
    /// it sees every agent; what it does for agents, it does for those who show the key of a job.
    fn ask_for_peer(&mut self) {
        let Some(line) = &self.peers else { return };
        match receive(line) {
            Received::Request(bytes) => {
                if let Some((number, path)) = lines::read_peer_request(&bytes) {
                    answer(line, number, connect_to_peer(path));
                }
            }
            Received::Nothing => {}
            Received::End => self.peers = None,
        }
    }

    fn ask_for_sockets(&mut self) {
        let Some(line) = &self.sockets else { return };
        match receive(line) {
            Received::Request(bytes) => self.job_sockets.serve(line, &bytes),
            Received::Nothing => {}
            Received::End => self.sockets = None,
        }
    }
}

/// Connects to the agent of another node of this machine: to a socket of this process's user, with an agent's name, in a
/// directory in which nobody else can make names. The directory is held open, so that what was checked is connected to.
fn connect_to_peer(path: &str) -> io::Result<OwnedFd> {
    let refused = || io::Error::other("that is no socket of an agent of this user");
    let socket = Path::new(path);
    let (Some(dir), Some(name)) = (socket.parent(), socket.file_name()) else {
        return Err(refused());
    };
    if !info::is_agent_socket(path) {
        return Err(refused());
    }
    let dir = nix::fcntl::open(
        dir,
        OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC,
        Mode::empty(),
    )?;
    let own = nix::unistd::geteuid().as_raw();
    let of_dir = nix::sys::stat::fstat(&dir)?;
    let of_socket = nix::sys::stat::fstatat(&dir, name, AtFlags::AT_SYMLINK_NOFOLLOW)?;
    let is_closed = of_dir.st_uid == own && of_dir.st_mode & 0o022 == 0;
    let is_socket = of_socket.st_mode & libc::S_IFMT == libc::S_IFSOCK;
    if !is_closed || !is_socket || of_socket.st_uid != own {
        return Err(refused());
    }
    let held = PathBuf::from(format!("/proc/self/fd/{}", dir.as_raw_fd()));
    lines::connect(&held.join(name))
}

/// Connects to the controller, which sees root, and has it take nothing from this connection but what the agent of this node
/// may say: the agent is not root, and may be somebody else's by now.
fn connect_to_controller(options: &AgentOptions) -> io::Result<OwnedFd> {
    let connection = lines::connect(&options.controller_socket)?;
    let restricted = frame::encode(&Request {
        version: PROTOCOL,
        body: RequestBody::ServeNode(options.name.clone()),
    });
    // There is room for it in a new socket.
    let sent = nix::unistd::write(&connection, &restricted)?;
    if sent != restricted.len() {
        return Err(io::ErrorKind::WriteZero.into());
    }
    Ok(connection)
}

/// What the supervisor ends with.
fn status(wait_status: i32) -> ExitCode {
    let code = match libc::WIFEXITED(wait_status) {
        true => libc::WEXITSTATUS(wait_status),
        false => {
            let signal = libc::WTERMSIG(wait_status);
            log::error!("the agent was killed by signal {signal}");
            128 + signal
        }
    };
    ExitCode::from(u8::try_from(code).unwrap_or(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    use std::os::unix::net::UnixListener;

    /// A link to another socket, and a directory where others make names, would have root connect anywhere.
    #[test]
    fn only_agents_of_this_user_are_connected_to() {
        let home = std::env::temp_dir().join(format!("muster-peer-{}", std::process::id()));
        let dir = |name: &str, mode: u32| {
            let dir = home.join(name);
            std::fs::create_dir_all(&dir).unwrap();
            std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(mode)).unwrap();
            dir
        };
        let (own, peer, open) = (dir("a", 0o711), dir("b", 0o711), dir("c", 0o777));
        let at = |dir: &Path| dir.join("noded.sock");
        let _listeners = [&peer, &open].map(|dir| UnixListener::bind(at(dir)).unwrap());
        let connects = |socket: &Path| connect_to_peer(socket.to_str().unwrap()).is_ok();
        assert!(connects(&at(&peer)));
        assert!(!connects(&at(&open)), "others make names there");
        symlink(at(&peer), at(&own)).unwrap();
        assert!(!connects(&at(&own)), "a link");
        let _other = UnixListener::bind(peer.join("docker.sock")).unwrap();
        assert!(!connects(&peer.join("docker.sock")), "no agent's name");
        std::fs::write(own.join("file"), "").unwrap();
        std::fs::rename(own.join("file"), at(&own)).unwrap();
        assert!(!connects(&at(&own)), "no socket");
        std::fs::remove_dir_all(&home).unwrap();
    }
}
