//! A command's conversation with the controller: blocking, over the socket that slurm.conf leads to, or from another host.

mod remote;

use muster_channel::KeepAlive;
use muster_channel::host::is_own;
use muster_conf::AuthMethod;
use muster_conf::endpoint::{self, Endpoint};
use muster_model::command::{Reply, UserCommand};
use muster_model::job::Job;
use muster_model::refusal::{Refusal, RefusalCode};
use muster_model::shared_spec::SpecTable;
use muster_proto::client::{JobFilter, Query, Request, RequestBody, Response};
use muster_proto::{PROTOCOL, client, frame};
use muster_trust::sack;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::unistd::dup2_stdin;
use std::io::{self, Read, Seek as _, SeekFrom, Write as _};
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// Why a command could not talk to the controller. Clients tell "unreachable" from "gone" by the first text.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The configuration cannot be read.
    #[error(
        "Could not establish a configuration source: {0}. Set SLURM_CONF, or start a cluster with 'muster up' and \
         evaluate the output of 'muster env'."
    )]
    Config(io::Error),
    /// Nothing listens.
    #[error("Unable to contact slurm controller (connect failure)")]
    Unreachable {
        /// The socket.
        socket: String,
        /// The error of connect(2).
        source: io::Error,
    },
    /// The controller on another host does not know who asks, or the command does not know whether it is the controller.
    #[error("Protocol authentication error: controller at {place}: {why}")]
    Untrusted {
        /// Its address.
        place: String,
        /// The reason, and what to do.
        why: String,
    },
    /// The connection broke or timed out.
    #[error("Socket timed out on send/recv operation")]
    Broken(#[source] io::Error),
    /// The controller refused the request.
    #[error(transparent)]
    Refused(#[from] Refusal),
}

/// Probes of this process's connections to other hosts; slurm.conf is read for it once.
pub(crate) fn keep_alive() -> KeepAlive {
    static KNOWN: OnceLock<KeepAlive> = OnceLock::new();
    *KNOWN.get_or_init(|| {
        let endpoint = endpoint::read(&endpoint::conf_path());
        endpoint.map_or_else(|_| KeepAlive::default(), |e| remote::keep_alive(&e))
    })
}

/// The other cluster that this process asks.
static CHOSEN: Mutex<Option<Endpoint>> = Mutex::new(None);

/// From now on [`Client::connect`] leads to that cluster's controller; without one, to the own one again.
pub(crate) fn choose(other: Option<Endpoint>) {
    *CHOSEN.lock().unwrap_or_else(PoisonError::into_inner) = other;
}

/// The other cluster that this process asks.
pub(crate) fn chosen() -> Option<Endpoint> {
    let chosen = CHOSEN.lock();
    chosen.unwrap_or_else(PoisonError::into_inner).clone()
}

/// The variable with a user's token.
pub const TOKEN_VARIABLE: &str = "SLURM_JWT";

/// The token by which commands connect as its user, also on the controller's host.
pub(crate) fn own_token() -> Option<String> {
    std::env::var(TOKEN_VARIABLE)
        .ok()
        .filter(|token| !token.is_empty())
}

/// Bytes that are read ahead: the list of most users' own jobs is shorter.
const AHEAD: usize = 4 << 10;

/// An open conversation.
#[derive(Debug)]
pub struct Client {
    stream: UnixStream,
    /// Bytes read, and how many of them were decoded.
    bytes: Vec<u8>,
    taken: usize,
    /// Bytes to be read at once beyond those known to come.
    ahead: usize,
    /// Specifications that the answer which is being read has given so far.
    specs: SpecTable,
    /// For whom it is, if that is another host's.
    client: Option<IpAddr>,
    /// Where it leads.
    pub endpoint: Endpoint,
}

impl Client {
    /// Connects to the controller of the configuration that the environment names, or of the cluster that `--clusters` does.
    ///
    /// # Errors
    /// [`ConnectError::Config`] or [`ConnectError::Unreachable`].
    pub fn connect() -> Result<Client, ConnectError> {
        let Some(endpoint) = chosen() else {
            return Client::connect_own();
        };
        Client::connect_at(&endpoint)
    }

    /// Connects to the controller of another cluster.
    ///
    /// # Errors
    /// [`ConnectError::Unreachable`] or [`ConnectError::Untrusted`].
    pub(crate) fn connect_at(endpoint: &Endpoint) -> Result<Client, ConnectError> {
        let stream = remote::connect(endpoint, own_token().as_deref())?;
        Ok(Client::of(stream, endpoint.clone()))
    }

    /// As [`Client::connect`], whichever cluster `--clusters` names.
    pub(crate) fn connect_own() -> Result<Client, ConnectError> {
        Client::connect_to(&endpoint::conf_path())
    }

    /// Connects to the controller of a configuration file.
    ///
    /// # Errors
    /// [`ConnectError::Config`] or [`ConnectError::Unreachable`].
    pub fn connect_to(conf: &Path) -> Result<Client, ConnectError> {
        let endpoint = endpoint::read(conf).map_err(ConnectError::Config)?;
        let stream = match own_token() {
            Some(token) => remote::connect(&endpoint, Some(&token))?,
            None => local_or_remote(&endpoint)?,
        };
        Ok(Client::of(stream, endpoint))
    }

    /// Connects to the controller of a configuration file as the user of a token, or as this process's user if there is none.
    /// `SLURM_JWT` does not count.
    ///
    /// # Errors
    /// [`ConnectError::Config`], [`ConnectError::Unreachable`] or [`ConnectError::Untrusted`].
    pub fn connect_as(conf: &Path, token: Option<&str>) -> Result<Client, ConnectError> {
        let endpoint = endpoint::read(conf).map_err(ConnectError::Config)?;
        let stream = match token {
            Some(token) => remote::connect(&endpoint, Some(token))?,
            None => local_or_remote(&endpoint)?,
        };
        Ok(Client::of(stream, endpoint))
    }

    /// A conversation over a connection that somebody else has made, to the controller of a configuration file.
    ///
    /// # Errors
    /// [`ConnectError::Config`].
    pub fn over(stream: UnixStream, conf: &Path) -> Result<Client, ConnectError> {
        let endpoint = endpoint::read(conf).map_err(ConnectError::Config)?;
        Ok(Client::of(stream, endpoint))
    }

    /// Requests are those of a client of this process, at that address, from now on: the controller's audit log names it.
    pub fn ask_for(&mut self, client: Option<IpAddr>) {
        self.client = client;
    }

    /// Whether nothing is there to be read: neither an answer that nobody waits for, nor the end.
    pub fn is_quiet(&self) -> bool {
        let mut polled = [PollFd::new(self.stream.as_fd(), PollFlags::POLLIN)];
        self.bytes.len() == self.taken && poll(&mut polled, PollTimeout::ZERO) == Ok(0)
    }

    fn of(stream: UnixStream, endpoint: Endpoint) -> Client {
        Client {
            stream,
            bytes: Vec::new(),
            taken: 0,
            ahead: 0,
            specs: SpecTable::default(),
            client: None,
            endpoint,
        }
    }

    /// Like [`Client::connect`], but keeps trying while a controller restarts. Used where nothing can be lost by
    /// asking again: before the request was sent.
    ///
    /// # Errors
    /// The last attempt's, once `patience` is over.
    pub fn connect_patiently(patience: Duration) -> Result<Client, ConnectError> {
        let until = Instant::now() + patience;
        loop {
            match Client::connect() {
                Err(ConnectError::Unreachable { .. }) if Instant::now() < until => {
                    // The socket appears when the controller is ready; there is nothing to wait on but its path.
                    std::thread::sleep(Duration::from_millis(50));
                }
                other => return other,
            }
        }
    }

    /// Sends a request.
    ///
    /// # Errors
    /// [`ConnectError::Broken`].
    pub fn send(&mut self, body: RequestBody) -> Result<(), ConnectError> {
        let version = PROTOCOL;
        let client = self.client;
        let request = Request {
            version,
            body,
            client,
        };
        let sent = frame::write(&mut self.stream, &request);
        sent.map_err(|e| match (e.kind(), self.receive()) {
            // A controller that does not take the connection has said why before it closed it.
            (
                io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset,
                Err(refused @ ConnectError::Refused(_)),
            ) => refused,
            _ => ConnectError::Broken(e),
        })
    }

    /// Receives the next response; a refusal becomes an error.
    ///
    /// # Errors
    /// [`ConnectError::Broken`] or [`ConnectError::Refused`].
    pub fn receive(&mut self) -> Result<Response, ConnectError> {
        let response = self.read().map_err(ConnectError::Broken)?;
        if !matches!(&response, Response::Jobs(part) if part.more) {
            self.specs = SpecTable::default();
        }
        match response {
            Response::Refused(refusal) => Err(refusal.into()),
            other => Ok(other),
        }
    }

    /// From now on what comes may be read before [`Client::receive`] is called for it: only for conversations in which
    /// nobody else waits for the stream.
    pub(crate) fn read_ahead(&mut self) {
        self.ahead = AHEAD;
    }

    fn read(&mut self) -> io::Result<Response> {
        self.fill(4)?;
        let header = self.bytes[self.taken..].first_chunk::<4>();
        let length = frame::length(*header.expect("so many bytes are there"))?;
        self.taken += 4;
        self.fill(length)?;
        let body = &self.bytes[self.taken..self.taken + length];
        self.taken += length;
        client::decode_answer(body, &mut self.specs)
    }

    /// Reads until this many bytes are there that were not taken.
    fn fill(&mut self, wanted: usize) -> io::Result<()> {
        let there = self.bytes.len() - self.taken;
        if there >= wanted {
            return Ok(());
        }
        self.bytes.drain(..self.taken);
        self.taken = 0;
        if there == 0 {
            await_answer(&self.stream);
        }
        let mut have = there;
        self.bytes.resize(wanted.max(self.ahead), 0);
        while have < wanted {
            match self.stream.read(&mut self.bytes[have..]) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => have += count,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        self.bytes.truncate(have);
        Ok(())
    }

    /// One request, one response.
    ///
    /// # Errors
    /// See [`Client::send`] and [`Client::receive`].
    pub fn call(&mut self, body: RequestBody) -> Result<Response, ConnectError> {
        self.send(body)?;
        self.receive()
    }

    /// A command; a refusal of the core becomes an error.
    ///
    /// # Errors
    /// See [`Client::call`].
    pub fn command(&mut self, command: UserCommand) -> Result<Reply, ConnectError> {
        match self.call(RequestBody::Command(Box::new(command)))? {
            Response::Reply(reply) => match *reply {
                Reply::Refused(refusal) => Err(refusal.into()),
                reply => Ok(reply),
            },
            other => Err(unexpected(&other)),
        }
    }

    /// A query; the caller receives further parts itself.
    ///
    /// # Errors
    /// See [`Client::call`].
    pub fn query(&mut self, query: Query) -> Result<Response, ConnectError> {
        self.call(RequestBody::Query(Box::new(query)))
    }

    /// All records of jobs that a filter finds.
    ///
    /// # Errors
    /// See [`Client::call`].
    pub(crate) fn query_jobs(&mut self, filter: JobFilter) -> Result<Vec<Job>, ConnectError> {
        let mut jobs = Vec::new();
        let mut answer = self.query(Query::Jobs(filter))?;
        loop {
            match answer {
                Response::Jobs(part) => {
                    jobs.extend(part.jobs.into_jobs());
                    if !part.more {
                        return Ok(jobs);
                    }
                }
                other => return Err(unexpected(&other)),
            }
            answer = self.receive()?;
        }
    }

    /// The stream, to poll it beside others.
    pub fn stream(&self) -> &UnixStream {
        &self.stream
    }
}

/// A connection as this process's user.
fn local_or_remote(endpoint: &Endpoint) -> Result<UnixStream, ConnectError> {
    match UnixStream::connect(&endpoint.socket) {
        Ok(stream) => Ok(stream),
        Err(e) if is_remote(endpoint, &e) => remote::connect(endpoint, None),
        Err(source) => {
            let socket = endpoint.socket.display().to_string();
            Err(ConnectError::Unreachable { socket, source })
        }
    }
}

/// Whether the controller is to be looked for on another host, since its socket is not here.
fn is_remote(endpoint: &Endpoint, error: &io::Error) -> bool {
    let absent = [io::ErrorKind::NotFound, io::ErrorKind::ConnectionRefused];
    // A node with a key of its own proves who asks whatever AuthType is.
    let can_prove = endpoint.authentication.method != AuthMethod::None
        || sack::sockets(&endpoint.cluster)
            .iter()
            .any(|path| path.exists());
    can_prove && absent.contains(&error.kind()) && !endpoint.hosts.iter().any(|host| is_own(host))
}

/// This program is linked statically, and can open no library.
static IS_STATIC: AtomicBool = AtomicBool::new(false);

/// Has the program `muster` beside this one go on, if the controller is on another host: who asks is proved there by a library,
/// which a statically linked program cannot open. Returns where it is not needed, or not there.
pub fn hand_over(name: &str, args: &[String]) {
    IS_STATIC.store(true, Ordering::Relaxed);
    let Ok(endpoint) = endpoint::read(&endpoint::conf_path()) else {
        return;
    };
    let absent = io::ErrorKind::NotFound.into();
    if endpoint.socket.exists() || !is_remote(&endpoint, &absent) {
        return;
    }
    go_on_as_muster(name, args);
}

/// As [`hand_over`], for a cluster that `--clusters` names, which is another host's. `stdin` has the bytes that were read from
/// standard input: the program finds them there again.
pub(crate) fn hand_over_with(stdin: Option<&[u8]>) {
    if !IS_STATIC.load(Ordering::Relaxed) || own_token().is_some() {
        return;
    }
    let Ok(line) = std::fs::read("/proc/self/cmdline") else {
        return;
    };
    let words = line.strip_suffix(b"\0").unwrap_or(&line).split(|b| *b == 0);
    let words: Vec<String> = words
        .map(|word| String::from_utf8_lossy(word).into_owned())
        .collect();
    let Some((called, args)) = words.split_first() else {
        return;
    };
    if let Some(bytes) = stdin
        && keep_as_stdin(bytes).is_err()
    {
        return;
    }
    go_on_as_muster(crate::process::called_as(called), args);
}

fn keep_as_stdin(bytes: &[u8]) -> io::Result<()> {
    let mut file = std::fs::File::from(memfd_create("stdin", MFdFlags::MFD_CLOEXEC)?);
    file.write_all(bytes)?;
    file.seek(SeekFrom::Start(0))?;
    Ok(dup2_stdin(file)?)
}

/// If it cannot be executed, this process reports the error of its own connection.
fn go_on_as_muster(name: &str, args: &[String]) {
    if let Ok(own) = std::env::current_exe() {
        let mut muster = Command::new(own.with_file_name("muster"));
        let _ = muster.arg(name).args(args).exec();
    }
}

/// Waits until there is something to read. A read that blocks would do, but it is woken, and sleeps again, when the other
/// side has taken in the request.
pub(crate) fn await_answer(stream: &impl AsFd) {
    // Whatever it is that ends the wait, the read tells.
    let _ = poll(
        &mut [PollFd::new(stream.as_fd(), PollFlags::POLLIN)],
        PollTimeout::NONE,
    );
}

/// An answer that does not fit the request: a bug or a newer controller.
pub fn unexpected(response: &Response) -> ConnectError {
    let detail =
        format!("unexpected answer {response:.60?}; is the controller of another version?");
    Refusal::new(RefusalCode::ProtocolError, detail).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::error::Error as _;

    /// `muster node list` printed a refusal twice, as an error and as its cause.
    #[test]
    fn a_refusal_is_printed_once() {
        let refusal = Refusal::new(RefusalCode::AccessDenied, "for administrators");
        let text = refusal.to_string();
        let error = ConnectError::from(refusal);
        assert_eq!(error.to_string(), text);
        assert!(error.source().is_none());
    }
}
