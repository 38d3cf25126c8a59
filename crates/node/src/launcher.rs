//! The launcher's process: one small single-threaded process per node that starts jobs, waits for
//! them, and outlives the agent. Its decisions are made in [`muster_node_core::launcher`]; this
//! module performs them, and serves the connections of agent and root.
//!
//! The supervisor starts the launcher, which leaves the session and ends when ordered to (SIGTERM:
//! once no job has processes; SIGUSR1: after killing all of them). Everything happens in one poll
//! loop; the output of one wake-up is written with one write to the record file and one to the
//! agent. The names of process and files, `muster-shim` and `shim.*`, are those of earlier
//! versions, because an update meets files and processes with these names.

mod connection;
mod containers;
mod controller_key;
pub use controller_key::pin_controller;
mod executor;
mod files;
mod groups;
mod log;
mod measure;
mod membership;
mod output;
mod programs;
mod questions;
mod record_file;
mod script_start;
mod scripts;
mod search;
mod stepd_start;
mod stepds;
mod timers;
mod tmp_dirs;

use crate::failure::end_at_panic;
use crate::messages::launcher_socket::socket_path;
use crate::role::LAUNCHER_NAME;
use crate::{now, removal, sys};
use connection::Connection;
use executor::{LauncherExecutor, Source};
use log::Log;
use muster_model::visible_text::debug_beginning;
use muster_node_core::launcher::check_agent;
use muster_node_core::launcher::interface::{Event, RootConnId};
use muster_node_core::messages::{AttachAgent, LauncherCommand, LauncherEvent, VERSIONS};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use nix::unistd::geteuid;
use std::fs::{self, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Maximum number of connections: an agent, the previous agent, and commands.
const CONNECTIONS_MAX: usize = 16;
/// Maximum bytes of a message in a log line.
const SHOWN_BYTES: usize = 60;

/// Runs the launcher of a spool directory (the only argument), the probe of cross-memory attach, or
/// a helper that works with a user's files: writes a message, removes directories. Returns in the
/// starting process once the launcher listens; the launcher itself continues in the background.
pub fn launcher_main(args: impl IntoIterator<Item = String>) -> ExitCode {
    let first = args.into_iter().next();
    match first.as_deref() {
        Some(crate::cross_memory::ARGUMENT) => return crate::cross_memory::main(),
        Some(script_start::SCRIPT_ARGUMENT) => muster_script::main(),
        Some(files::MESSAGE_ARGUMENT) => return files::message_main(),
        Some(files::LAST_LINES_ARGUMENT) => return files::last_lines_main(),
        Some(removal::REMOVAL_ARGUMENT) => return removal::removal_main(),
        Some(removal::CONTENT_ARGUMENT) => return removal::content_main(),
        Some(removal::OWN_ARGUMENT) => return removal::own_main(),
        Some(groups::GROUPS_ARGUMENT) => return groups::groups_main(),
        Some(measure::MEASURE_ARGUMENT) => return measure::measure_main(),
        _ => {}
    }
    let Some(spool) = first.map(PathBuf::from) else {
        eprintln!(
            "{LAUNCHER_NAME}: the spool directory is missing; the node agent starts this program itself"
        );
        return ExitCode::FAILURE;
    };
    // Started by a descriptor, which the kernel would name it by.
    sys::set_name(c"muster-shim");
    match start(&spool) {
        Ok(code) => code,
        Err(e) => {
            eprintln!("{LAUNCHER_NAME}: {}: {e}", spool.display());
            ExitCode::FAILURE
        }
    }
}

/// Forks into the background and waits until the launcher is ready.
fn start(spool: &Path) -> io::Result<ExitCode> {
    // Other descriptors that the starter left open would stay open as long as jobs run.
    sys::close_from(3);
    sys::set_undumpable()?;
    sys::change_own_limits()?;
    end_at_panic();
    let (mut parent_end, child_end) = UnixStream::pair()?;
    match sys::fork()? {
        sys::Fork::Parent(_) => {
            drop(child_end);
            let mut answer = String::new();
            parent_end.read_to_string(&mut answer)?;
            if answer == "ready" {
                return Ok(ExitCode::SUCCESS);
            }
            if answer.is_empty() {
                answer.push_str("it ended before it was ready");
            }
            Err(io::Error::other(answer))
        }
        sys::Fork::Child => {
            drop(parent_end);
            let mut ready = child_end;
            // Must precede the start of other processes: they would inherit the starter's standard
            // error, and the starter would wait for them to close it.
            let run = detach(spool).and_then(|log| {
                let mut launcher = Loop::open(spool)?;
                ready.write_all(b"ready")?;
                if let Err(e) = sys::protect() {
                    eprintln!("the kernel may end this process when memory runs out: {e}");
                }
                drop(std::mem::replace(&mut ready, UnixStream::pair()?.0));
                launcher.run(log)
            });
            match run {
                Ok(()) => sys::exit_now(0),
                Err(e) => {
                    // Before the launcher is ready its standard error goes to the starter,
                    // afterwards to the log.
                    let _ = write!(ready, "{e}");
                    eprintln!("{LAUNCHER_NAME}: {e}");
                    sys::exit_now(1)
                }
            }
        }
    }
}

/// Leaves the starter's session and standard streams.
fn detach(spool: &Path) -> io::Result<Log> {
    nix::unistd::setsid()?;
    let null = OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/null")?;
    let log = Log::open(spool)?;
    sys::dup_to(null.as_raw_fd(), 0)?;
    sys::dup_to(null.as_raw_fd(), 1)?;
    Ok(log)
}

/// A file left by an earlier version keeps its old mode.
fn make_private(file: &fs::File) -> io::Result<()> {
    file.set_permissions(fs::Permissions::from_mode(0o600))
}

/// Listens on a new socket with that mode.
pub(crate) fn bind(path: &Path, mode: u32) -> io::Result<UnixListener> {
    let _ = fs::remove_file(path);
    let listener = UnixListener::bind(path).map_err(|e| {
        io::Error::new(
            e.kind(),
            format!("cannot listen on {}: {e}", path.display()),
        )
    })?;
    fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

struct Loop {
    signals: SignalFd,
    listener: UnixListener,
    conns: Vec<Connection>,
    last_conn: u64,
    is_attached: bool,
    executor: LauncherExecutor,
    path: PathBuf,
    /// Prevents a second launcher as long as this process lives.
    _lock: fs::File,
}

impl Loop {
    fn open(spool: &Path) -> io::Result<Loop> {
        let lock = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            // A process that can open the file can lock it.
            .mode(0o600)
            .open(spool.join("shim.lock"))?;
        make_private(&lock)?;
        sys::lock_file(lock.as_fd())
            .map_err(|_| io::Error::other("another launcher serves this spool directory"))?;
        sys::reset_signals();
        sys::ignore_signal(libc::SIGHUP);
        sys::ignore_signal(libc::SIGPIPE);
        let mut mask = SigSet::empty();
        for signal in [Signal::SIGCHLD, Signal::SIGTERM, Signal::SIGUSR1] {
            mask.add(signal);
        }
        mask.thread_block()?;
        let signals = SignalFd::with_flags(&mask, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
        sys::become_subreaper()?;
        let executor = LauncherExecutor::open(spool)?;
        let path = socket_path(spool);
        let listener = bind(&path, 0o600)?;
        fs::write(spool.join("shim.pid"), format!("{}\n", std::process::id()))?;
        Ok(Loop {
            signals,
            listener,
            conns: Vec::new(),
            last_conn: 0,
            is_attached: false,
            executor,
            path,
            _lock: lock,
        })
    }

    fn run(&mut self, mut log: Log) -> io::Result<()> {
        loop {
            log.rotate_if_long();
            self.executor.finish_wakeup();
            self.send();
            if self.executor.may_exit() {
                self.executor.finish();
                let _ = fs::remove_file(&self.path);
                return Ok(());
            }
            self.wait()?;
        }
    }

    /// Waits for an event and handles it.
    fn wait(&mut self) -> io::Result<()> {
        let entry = |fd: i32, events: i16| libc::pollfd {
            fd,
            events,
            revents: 0,
        };
        let mut fds = vec![
            entry(self.signals.as_fd().as_raw_fd(), libc::POLLIN),
            entry(self.listener.as_raw_fd(), libc::POLLIN),
        ];
        let of_conns: Vec<Vec<libc::pollfd>> = self.conns.iter().map(Connection::polled).collect();
        let counts: Vec<usize> = of_conns.iter().map(Vec::len).collect();
        fds.extend(of_conns.into_iter().flatten());
        let polled: Vec<(RawFd, Source)> = self.executor.polled().collect();
        fds.extend(polled.iter().map(|(fd, _)| entry(*fd, libc::POLLIN)));
        sys::poll(&mut fds, self.executor.timeout_ms())?;

        let mut has_read = false;
        let mut seen = &fds[2..];
        for (conn, count) in self.conns.iter_mut().zip(&counts) {
            let (own, others) = seen.split_at(*count);
            has_read |= conn.read(own);
            seen = others;
        }
        // Handle orders before ends of processes: a process that an order starts may already have
        // ended when ends are collected.
        if has_read {
            self.executor.read_stepds();
            self.take_orders();
        }
        if fds[0].revents != 0 || self.executor.may_have_ended {
            self.take_signals();
        }
        for ((fd, source), seen) in polled.iter().zip(seen) {
            if seen.revents != 0 {
                self.executor.take(*fd, *source);
            }
        }
        if fds[1].revents != 0 {
            self.accept();
        }
        Ok(())
    }

    fn take_orders(&mut self) {
        for at in 0..self.conns.len() {
            while let Some(message) = self.conns[at].next_command() {
                if !self.take_order(at, message) {
                    self.conns[at].is_open = false;
                    break;
                }
            }
            self.conns[at].settle();
        }
    }

    /// Handles a message; returns whether it is permitted on this connection.
    fn take_order(&mut self, at: usize, message: LauncherCommand) -> bool {
        let conn = &mut self.conns[at];
        let event = match message {
            LauncherCommand::Attach(attach) if conn.is_new => {
                conn.is_new = false;
                self.attach(at, *attach);
                return true;
            }
            LauncherCommand::Stop { kill } if conn.is_new => Event::StopRequested {
                conn: conn.id,
                kill,
            },
            // Only root attaches agents and stops the launcher; an agent uses a connection that was
            // attached for it.
            message if !conn.is_attached() || message.is_roots() => {
                let shown = debug_beginning(&message, SHOWN_BYTES);
                eprintln!("refused a message that is not from an agent: {shown}");
                return false;
            }
            LauncherCommand::StartStep(order) => {
                let mut random = [0; 8];
                let filled = sys::fill_randomly(&mut random);
                Event::StartStep {
                    order,
                    random: filled.ok().map(|()| u64::from_ne_bytes(random)),
                }
            }
            LauncherCommand::OpenSession => {
                let mut secret = [0; muster_trust::KEY];
                let filled = sys::fill_randomly(&mut secret);
                Event::OpenSession(filled.map(|()| secret).map_err(|e| e.to_string()))
            }
            LauncherCommand::Sealed { orders, seal } => Event::Sealed {
                orders,
                seal,
                local_time: sys::local_time(now().unix_s()),
            },
            command => Event::Command(command),
        };
        self.executor.deliver(event);
        true
    }

    /// Attaches an agent: only the latest one receives events.
    fn attach(&mut self, at: usize, attach: AttachAgent) {
        if let Err(why) = check_agent(&attach) {
            return self.refuse(at, &format!("{why}; update slurmd"));
        }
        if let Err(e) = self.conns[at].attach() {
            return self.refuse(at, &e.to_string());
        }
        for (_, conn) in self.conns.iter_mut().enumerate().filter(|(n, _)| *n != at) {
            conn.detach();
        }
        eprintln!("agent {} of node {} attached", attach.version, attach.node);
        if attach.greeting.is_some() {
            let answer = LauncherEvent::Greeting(VERSIONS.greeting());
            self.conns[at].output.push(&answer);
        }
        self.is_attached = true;
        self.executor.attach(attach);
    }

    fn refuse(&mut self, at: usize, why: &str) {
        eprintln!("{why}; it is refused, jobs go on");
        let conn = &mut self.conns[at];
        conn.output.push(&LauncherEvent::Refused(why.to_owned()));
        // A message this small is sent at once.
        conn.send();
        conn.is_open = false;
    }

    fn take_signals(&mut self) {
        const INFO: usize = size_of::<libc::signalfd_siginfo>();
        let mut infos = [0; 4 * INFO];
        // There are at most as many entries as watched signals, so one read returns all of them.
        let length = nix::unistd::read(&self.signals, &mut infos).unwrap_or(0);
        let mut children = false;
        for info in infos[..length].chunks_exact(INFO) {
            // `ssi_signo` is the first field.
            let number = info.first_chunk().map_or(0, |n| i32::from_ne_bytes(*n));
            match number {
                libc::SIGCHLD => children = true,
                libc::SIGTERM => drop(self.executor.deliver(Event::ExitWhenIdle)),
                libc::SIGUSR1 => drop(self.executor.deliver(Event::KillAll)),
                _ => {}
            }
        }
        if children || self.executor.may_have_ended {
            self.executor.reap();
        }
    }

    fn accept(&mut self) {
        while let Ok((stream, _)) = self.listener.accept() {
            if !is_trusted(&stream) || self.conns.len() >= CONNECTIONS_MAX {
                eprintln!("a connection is refused");
                continue;
            }
            self.last_conn += 1;
            self.conns
                .extend(Connection::new(RootConnId(self.last_conn), stream));
        }
    }

    fn send(&mut self) {
        let mut events = self.executor.take_output();
        let answers = self.executor.take_answers();
        for conn in &mut self.conns {
            if conn.is_attached() {
                conn.output.append(&mut events);
            }
            for (_, answer) in answers.iter().filter(|(id, _)| *id == conn.id) {
                conn.output.push(answer);
            }
            conn.send();
        }
        self.conns.retain(|c| c.is_open);
        let is_attached = self.conns.iter().any(Connection::is_attached);
        if std::mem::replace(&mut self.is_attached, is_attached) && !is_attached {
            self.executor.deliver(Event::AgentLost);
        }
    }
}

/// Whether the other side runs as root or as this process's user.
fn is_trusted(stream: &UnixStream) -> bool {
    let uid = getsockopt(stream, PeerCredentials).map(|peer| peer.uid());
    uid.is_ok_and(|uid| uid == 0 || uid == geteuid().as_raw())
}

/// Result of [`stop_launcher`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LauncherStop {
    /// The launcher has exited.
    Stopped,
    /// No launcher was running.
    NotRunning,
    /// The launcher continues: this many jobs have processes.
    Busy(u32),
}

/// Stops the launcher of a spool directory. With `kill`, all processes of its jobs are killed
/// first; otherwise it continues while there are any.
///
/// # Errors
/// Errors of the socket.
pub fn stop_launcher(spool: &Path, kill: bool) -> io::Result<LauncherStop> {
    let mut stream = match UnixStream::connect(socket_path(spool)) {
        Ok(stream) => stream,
        Err(e)
            if matches!(
                e.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused
            ) =>
        {
            return Ok(LauncherStop::NotRunning);
        }
        Err(e) => return Err(e),
    };
    muster_proto::frame::write(&mut stream, &LauncherCommand::Stop { kill })?;
    match muster_proto::frame::read(&mut stream) {
        Ok(LauncherEvent::Busy(jobs)) => Ok(LauncherStop::Busy(jobs)),
        Ok(other) => {
            let shown = debug_beginning(&other, SHOWN_BYTES);
            Err(io::Error::other(format!("unexpected answer {shown}")))
        }
        // The connection closes when the process ends.
        Err(_) => Ok(LauncherStop::Stopped),
    }
}
