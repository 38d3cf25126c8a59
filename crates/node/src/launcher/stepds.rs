//! Connections to step daemons, and the control channels between them and the agent.

use super::containers::Namespace;
use super::membership::Row;
use super::stepd_start::StepdStarter;
use crate::cgroup::Entrances;
use crate::descriptors;
use crate::os_error;
use crate::sys;
use muster_model::ids::AttemptStep;
use muster_node_core::launcher::interface::{Event, StartedStepd, StepdConnId};
use muster_node_core::launcher::{EncodedEnd, StepdEventRef, step_of_result};
use muster_node_core::messages::{FirstOrder, RunningStep, StepdCommand, StepdEvent, VERSIONS};
use muster_proto::address::HOST_FILE;
use muster_proto::frame::{self, Frames};
use muster_proto::step::ToStepd;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, socket};
use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, TcpListener};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::{MetadataExt as _, chown};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Time that a launcher waits for answers before it listens itself. Later answers are passed to the agent when they
/// arrive.
const ANSWER_WAIT: Duration = Duration::from_millis(500);

/// A connection.
#[derive(Debug)]
struct Channel {
    stream: UnixStream,
    input: Frames,
    is_listening: bool,
    is_closed: bool,
}

impl Channel {
    fn new(stream: UnixStream) -> io::Result<Channel> {
        stream.set_nonblocking(true)?;
        Ok(Channel {
            stream,
            input: Frames::default(),
            is_listening: false,
            is_closed: false,
        })
    }

    /// Receives available data.
    fn read(&mut self) {
        // The buffer is small, because it is cleared for each daemon; it holds several short steps.
        let mut chunk = [0; 2 << 10];
        while !self.is_closed {
            match self.stream.read(&mut chunk) {
                Ok(0) => self.is_closed = true,
                Ok(n) => {
                    self.input.push(&chunk[..n]);
                    // A read that did not fill the buffer has emptied the socket.
                    if n < chunk.len() {
                        return;
                    }
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return,
                Err(_) => self.is_closed = true,
            }
        }
    }

    /// Sends a message, and descriptors with it. If the daemon takes only part of it the connection
    /// is closed, because later data would be read as the rest.
    fn send(&self, frame: &[u8], fds: &[RawFd]) -> io::Result<()> {
        let sent = descriptors::send(&self.stream, frame, fds)?;
        let rest = (&self.stream).write_all(&frame[sent..]);
        if rest.is_err() {
            let _ = self.stream.shutdown(Shutdown::Both);
        }
        rest
    }

    /// Waits for the answer of a daemon to a question.
    ///
    /// # Errors
    /// The daemon does not answer.
    fn answer(&mut self) -> io::Result<Option<RunningStep>> {
        self.read();
        match self.input.take() {
            Ok(Some(StepdEvent::StepRunning(running))) => Ok(Some(*running)),
            Ok(None) if !self.is_closed => Ok(None),
            Ok(None) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(Some(_)) => Err(io::ErrorKind::InvalidData.into()),
            Err(e) => Err(io::Error::other(e.to_string())),
        }
    }
}

/// The group of the node's relay, which connects other hosts with step daemons: the supervisor
/// makes it the group of the file that identifies this host. `None` without a relay.
fn relay_group(spool: &Path) -> Option<u32> {
    let file = std::fs::symlink_metadata(spool.join(HOST_FILE)).ok()?;
    Some(file.gid()).filter(|gid| *gid != 0 && nix::unistd::geteuid().is_root())
}

/// See the module.
#[derive(Default)]
pub(super) struct Stepds {
    channels: BTreeMap<StepdConnId, Channel>,
    /// Daemons of an earlier launcher that were asked which step they run.
    asked: Vec<(PathBuf, Channel)>,
    /// Daemons that may have sent more than was delivered.
    unread: Vec<StepdConnId>,
    last_id: u64,
    starter: StepdStarter,
}

impl Stepds {
    fn next_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }

    fn add(&mut self, channel: Channel) -> StepdConnId {
        let id = StepdConnId(self.next_id());
        self.channels.insert(id, channel);
        id
    }

    /// A connection of a test.
    #[cfg(test)]
    pub(super) fn add_stream(&mut self, stream: UnixStream) -> StepdConnId {
        self.add(Channel::new(stream).unwrap())
    }

    /// Starts a step daemon; also returns the agent's end of a control channel to it.
    pub(super) fn start(
        &mut self,
        order: &FirstOrder,
        socket: &Path,
        listen: Option<&str>,
        place: (Row, Entrances, Namespace),
    ) -> io::Result<(StartedStepd, OwnedFd)> {
        let user = &order.step.order.user;
        let relay = relay_group(&order.spool);
        let listener = super::bind(socket, if relay.is_some() { 0o660 } else { 0o600 })?;
        // No message to a step daemon on this socket carries descriptors: see
        // [`sys::refuse_descriptors`].
        let _ = sys::refuse_descriptors(&listener);
        if nix::unistd::geteuid().is_root() {
            chown(socket, Some(user.uid), Some(relay.unwrap_or(user.gid)))?;
        }
        let wire = listen.map(listen_at).transpose()?;
        let address = wire.as_ref().map(TcpListener::local_addr).transpose()?;
        let (control, far_end) = UnixStream::pair()?;
        let channel = Channel::new(control)?;
        let mut with = vec![listener.as_raw_fd(), far_end.as_raw_fd()];
        with.extend(wire.as_ref().map(AsRawFd::as_raw_fd));
        let (agent, daemons_end) = UnixStream::pair()?;
        with.push(daemons_end.as_raw_fd());
        let pid = self.starter.start(order, &with, &order.spool, place)?;
        let started = StartedStepd {
            stepd: self.add(channel),
            pid,
            mesh_address: address.map(|a| a.to_string()),
        };
        Ok((started, agent.into()))
    }

    /// Gives a daemon a step; returns the agent's end of a new control channel to it.
    ///
    /// # Errors
    /// The daemon did not receive the step.
    pub(super) fn give(&self, id: StepdConnId, frame: &[u8]) -> io::Result<OwnedFd> {
        let channel = self.channels.get(&id).ok_or(io::ErrorKind::NotConnected)?;
        let (agent, daemons_end) = UnixStream::pair()?;
        channel.send(frame, &[daemons_end.as_raw_fd()])?;
        Ok(agent.into())
    }

    /// Sends to a daemon; returns whether it takes the command.
    pub(super) fn send(&self, id: StepdConnId, command: &StepdCommand) -> bool {
        let channel = self.channels.get(&id);
        channel.is_some_and(|c| c.send(&frame::encode(command), &[]).is_ok())
    }

    /// Starts delivering the reports of a daemon: see [`Stepds::next_event`].
    pub(super) fn listen_to(&mut self, id: StepdConnId) {
        if let Some(channel) = self.channels.get_mut(&id) {
            channel.is_listening = true;
            channel.read();
            self.unread.push(id);
        }
    }

    pub(super) fn stop_listening(&mut self, id: StepdConnId) {
        if let Some(channel) = self.channels.get_mut(&id) {
            channel.is_listening = false;
        }
    }

    pub(super) fn close(&mut self, id: StepdConnId) {
        self.channels.remove(&id);
    }

    /// Descriptors of the daemons whose reports are delivered.
    pub(super) fn listened(&self) -> impl Iterator<Item = (RawFd, StepdConnId)> {
        let listened = self.channels.iter().filter(|(_, c)| c.is_listening);
        listened.map(|(id, c)| (c.stream.as_raw_fd(), *id))
    }

    /// Receives from daemons that have sent data.
    pub(super) fn read_ready(&mut self) {
        let (mut fds, ids): (Vec<libc::pollfd>, Vec<StepdConnId>) =
            self.listened().map(|(fd, id)| (poll_entry(fd), id)).unzip();
        if fds.is_empty() || sys::poll(&mut fds, 0).is_err() {
            return;
        }
        for (fd, id) in fds.iter().zip(ids) {
            if fd.revents != 0 {
                self.listen_to(id);
            }
        }
    }

    /// Receives available data from these daemons, if their reports are delivered.
    pub(super) fn read(&mut self, ids: Vec<StepdConnId>) {
        for id in ids {
            if let Some(channel) = self.channels.get_mut(&id).filter(|c| c.is_listening) {
                channel.read();
                self.unread.push(id);
            }
        }
    }

    /// The next event from daemons; one at a time, because the launcher may leave the rest unread.
    pub(super) fn next_event(&mut self) -> Option<Event> {
        while let Some(id) = self.unread.last().copied() {
            let channel = self.channels.get_mut(&id).filter(|c| c.is_listening);
            let Some(channel) = channel else {
                self.unread.pop();
                continue;
            };
            match StepdEventRef::next(&mut channel.input) {
                Some(StepdEventRef::StepEnded(step, end)) => {
                    return Some(Event::StepEnded(id, step, EncodedEnd::from_daemon(end)));
                }
                Some(StepdEventRef::StepRunning) => {}
                None => {
                    self.unread.pop();
                    if channel.is_closed {
                        channel.is_listening = false;
                        return Some(Event::StepdClosed(id));
                    }
                }
            }
        }
        None
    }

    /// Asks daemons which step they run; without their connections, asks all that listen in a spool
    /// directory. Waits only for those that answer at once.
    pub(super) fn ask(&mut self, sockets: Option<Vec<PathBuf>>, spool: &Path) -> Vec<Event> {
        for path in sockets.unwrap_or_else(|| step_sockets(spool)) {
            match ask(&path) {
                Ok(channel) => self.asked.push((path, channel)),
                // The daemon has ended.
                Err(e) if e.kind() == io::ErrorKind::ConnectionRefused => {
                    let _ = fs::remove_file(path);
                }
                Err(e) => eprintln!("{}: {e}", path.display()),
            }
        }
        let mut events = Vec::new();
        let until = Instant::now() + ANSWER_WAIT;
        while !self.asked.is_empty() {
            let wait = until.saturating_duration_since(Instant::now()).as_millis();
            let fds = self.asked.iter().map(|(_, c)| c.stream.as_raw_fd());
            let mut fds: Vec<libc::pollfd> = fds.map(poll_entry).collect();
            if wait == 0 || sys::poll(&mut fds, i32::try_from(wait).unwrap_or(0)).is_err() {
                break;
            }
            for fd in fds.iter().filter(|fd| fd.revents != 0) {
                events.extend(self.answer_of(fd.fd));
            }
        }
        // A daemon that ended before it was asked has written its result by now.
        events.push(Event::StepdsAsked);
        events
    }

    /// Descriptors of daemons that have not answered.
    pub(super) fn asked(&self) -> impl Iterator<Item = RawFd> {
        self.asked.iter().map(|(_, c)| c.stream.as_raw_fd())
    }

    /// The answer of a daemon, if it has arrived.
    pub(super) fn answer_of(&mut self, fd: RawFd) -> Option<Event> {
        let is_it = |(_, c): &(PathBuf, Channel)| c.stream.as_raw_fd() == fd;
        let at = self.asked.iter().position(is_it)?;
        let answer = self.asked[at].1.answer();
        if let Ok(None) = answer {
            return None;
        }
        let (socket, channel) = self.asked.swap_remove(at);
        Some(match answer.transpose()? {
            Ok(running) => {
                let id = self.add(channel);
                Event::StepdRunning(id, socket, Box::new(running))
            }
            // The daemon has ended, or its version does not know the question.
            Err(why) => {
                eprintln!(
                    "{}: cannot ask the step daemon for its step: {why}",
                    socket.display()
                );
                Event::StepdsAsked
            }
        })
    }
}

pub(super) fn poll_entry(fd: RawFd) -> libc::pollfd {
    libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    }
}

/// Asks the daemon at this socket which step it runs. Does not wait if the accept queue is full,
/// because its user may have filled it.
fn ask(path: &Path) -> io::Result<Channel> {
    let control = connect(path)?;
    let channel = Channel::new(control)?;
    frame::write(
        &mut &channel.stream,
        &ToStepd::Adopt(Some(VERSIONS.greeting())),
    )
    .map_err(|e| io::Error::other(e.to_string()))?;
    Ok(channel)
}

/// Connects to a Unix socket without waiting.
fn connect(path: &Path) -> io::Result<UnixStream> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let own = socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
    nix::sys::socket::connect(own.as_raw_fd(), &UnixAddr::new(path)?)?;
    let own = UnixStream::from(own);
    own.set_nonblocking(false)?;
    Ok(own)
}

/// Whether a process listens at this socket.
pub(super) fn has_listener(path: &Path) -> bool {
    !connect(path).is_err_and(|e| e.kind() == io::ErrorKind::ConnectionRefused)
}

/// A listener for other nodes of the step, on a port that the kernel chooses.
fn listen_at(ip: &str) -> io::Result<TcpListener> {
    TcpListener::bind((ip, 0))
        .map_err(|e| os_error::named(format_args!("cannot listen at {ip}"), e))
}

/// Files of steps in the spool directory, with their names.
pub(super) fn step_files(spool: &Path) -> Vec<(PathBuf, String)> {
    let files = fs::read_dir(spool);
    let named = |path: PathBuf| {
        let name = path.file_name()?.to_str()?.to_owned();
        name.starts_with("step-").then_some((path, name))
    };
    let files = files.into_iter().flatten().flatten();
    files.filter_map(|file| named(file.path())).collect()
}

/// The sockets of step daemons.
fn step_sockets(spool: &Path) -> Vec<PathBuf> {
    let files = step_files(spool).into_iter();
    let sockets = files.filter(|(_, name)| name.ends_with(".sock"));
    sockets.map(|(path, _)| path).collect()
}

/// The steps that have left results.
pub(super) fn results(spool: &Path) -> Vec<AttemptStep> {
    let files = step_files(spool).into_iter();
    files
        .filter_map(|(_, name)| step_of_result(&name))
        .collect()
}
