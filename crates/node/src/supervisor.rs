//! The supervisor: `slurmd` itself, once it has read the configuration. It runs as root, or as the
//! user who started it, has one thread, and communicates only with its own child. It takes the
//! spool directory, creates the sockets on which users and other nodes reach this one, starts the
//! launcher unless one runs, and executes this program afresh as the agent, under an account
//! without privileges. Then it waits for the agent's end.
//!
//! Meanwhile the agent may request four things ([`lines`]): a connection to the launcher, to the
//! controller, and to the agent of another node on this machine, and a credential by which a
//! controller on another host recognizes this node. With auth/slurm the supervisor also starts the
//! process that makes tokens for users. The agent also reports when its first attempt to register
//! with the controller is over, until when the command that started slurmd waits. The only path in a request is that of another agent's
//! socket, of which the agent chooses at most the node's name ([`peers`]), and a request cannot
//! carry descriptors. The agent's log lines arrive on another link ([`agent_lines`]). SIGTERM and
//! SIGINT are forwarded. When the agent ends, the supervisor ends with its status; when the
//! supervisor is killed, the kernel kills the agent.

mod account;
mod agent_lines;
mod launcher;
mod line_budget;
mod network;
mod peers;
mod sockets;
mod spool;

pub use account::check_account;
pub use spool::make_spool;

use crate::credential;
use crate::cross_memory;
use crate::failure;
use crate::messages::agent_order::{AgentLog, AgentOrder};
use crate::messages::agent_supervisor::{
    self, CONFIGURATION, LAUNCHER_EVENTS, LAUNCHER_ORDERS, RequestReceiver, SupervisorRequest,
    answer, answers,
};
use crate::options::AgentOptions;
use crate::role::{self, AGENT_NAME};
use crate::root_files::open_log;
use crate::sack::SackProcess;
use crate::sys;
use agent_lines::AgentLines;
use anyhow::Context as _;
use launcher::{LauncherLink, Starting};
use line_budget::LineBudget;
use muster_channel::SECRET;
use muster_node_core::messages::ProcessIdentity;
use muster_proto::PROTOCOL;
use muster_proto::client::{Request, RequestBody, daemon_socket};
use muster_proto::frame;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use peers::PeerPlaces;
use sockets::NodeSocket;
use std::ffi::CString;
use std::fs::OpenOptions;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd, RawFd};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Variables that the agent inherits from the supervisor.
const KEPT_VARIABLES: [&str; 2] = ["TZ", "RUST_BACKTRACE"];

/// Minimum time before an agent requests the launcher again.
const LAUNCHER_PAUSE: Duration = Duration::from_millis(100);

/// Maximum time for which a start waits for the registration with the controller.
const REGISTRATION_WAIT: Duration = Duration::from_secs(10);

/// Runs a node's agent, and the launcher if none runs, until the agent ends. Returns the agent's
/// exit status. The launcher and the jobs continue. `ready` is called once the controller has
/// accepted the node's registration; or at once if it cannot be reached or refuses the node; or
/// after [`REGISTRATION_WAIT`].
///
/// # Errors
/// There is no such account, the spool directory cannot be used, or a process cannot be started.
pub fn run(
    options: AgentOptions,
    log: AgentLog,
    ready: impl FnOnce() + 'static,
) -> anyhow::Result<ExitCode> {
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
    let socket = NodeSocket::open(&options.spool_dir)?;
    network::name_host(&options, &account).context("cannot write the host name file")?;
    let (of_agent, agents_log) = AgentLines::open("agent")?;
    let (of_relay, relays_log) = AgentLines::open("relay")?;
    let relay = network::start_relay(&options, &account, &relays_log)?;
    drop(relays_log);
    let signals = watch_signals().context("signals")?;
    let sack = SackProcess::start(&options, log.file.as_ref()).unwrap_or_else(|e| {
        log::error!("no tokens of auth/slurm are made for users of this host: {e}");
        None
    });
    let order = AgentOrder {
        options: options.clone(),
        cross_memory: cross_memory.map(|found| found.to_string()),
        log_level: log.level.to_string(),
        has_relay: relay.is_some(),
        supervisor_uid: nix::unistd::geteuid().as_raw(),
    };
    let given = AgentSetup {
        socket: &socket,
        relay,
        log: agents_log,
    };
    let log = (log, [of_agent, of_relay]);
    let mut supervisor = Supervisor::start(options, &order, given, log, &account, signals)?;
    supervisor.sack = sack;
    supervisor.waiting = Some(WaitingStart {
        until: Instant::now() + REGISTRATION_WAIT,
        ready: Box::new(ready),
    });
    let ended = supervisor.serve();
    // A client that connects now finds no agent.
    drop(socket);
    drop(supervisor);
    Ok(ended?)
}

/// Closes standard input and output, which are not needed any more.
fn close_terminal() -> io::Result<()> {
    let null = OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/null")?;
    sys::dup_to(null.as_raw_fd(), 0)?;
    sys::dup_to(null.as_raw_fd(), 1)
}

fn watch_signals() -> io::Result<SignalFd> {
    sys::ignore_signal(libc::SIGPIPE);
    let mut mask = SigSet::empty();
    for signal in [
        Signal::SIGCHLD,
        Signal::SIGTERM,
        Signal::SIGINT,
        Signal::SIGHUP,
        Signal::SIGUSR2,
    ] {
        mask.add(signal);
    }
    mask.thread_block()?;
    let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
    Ok(SignalFd::with_flags(&mask, flags)?)
}

/// Setup of the agent in addition to its connections to the supervisor.
struct AgentSetup<'a> {
    socket: &'a NodeSocket,
    relay: Option<OwnedFd>,
    /// Its standard error.
    log: OwnedFd,
}

/// The command that started slurmd, which waits for the node's registration.
struct WaitingStart {
    until: Instant,
    ready: Box<dyn FnOnce()>,
}

struct Supervisor {
    options: AgentOptions,
    signals: SignalFd,
    /// The agent's process.
    agent: i32,
    /// Requests of the agent.
    requests: RequestReceiver,
    /// Sockets for the answers to each kind of request: connections to the launcher, to the
    /// controller, and to other agents.
    launcher: OwnedFd,
    controller: OwnedFd,
    peers: OwnedFd,
    /// Spool directories of other nodes on this machine.
    peer_places: PeerPlaces,
    /// Socket for results of applying the configuration.
    news: OwnedFd,
    log: AgentLog,
    /// Log lines of agent and relay.
    lines: [AgentLines; 2],
    /// Time of the agent's last request for the launcher.
    launcher_asked: Option<Instant>,
    /// A launcher that is being started and for which the agent waits.
    starting: Option<Starting>,
    /// The process that creates a credential.
    credential: Option<i32>,
    /// The process that fetches the configuration.
    fetching: Option<i32>,
    /// The configuration has changed since that process began.
    fetch_again: bool,
    /// The last attempt to fetch it failed.
    fetch_failed: bool,
    /// Log budget for these attempts.
    fetch_lines: LineBudget,
    /// The process that makes tokens for users.
    sack: Option<SackProcess>,
    waiting: Option<WaitingStart>,
}

/// Approximate size of a log line about the configuration.
const FETCH_LINE: usize = 128;

/// The command, in place of `fetch`, that fetches the configuration after a pause.
pub const FETCH_LATER: &str = "fetch-later";

impl Supervisor {
    /// Starts the agent.
    fn start(
        options: AgentOptions,
        order: &AgentOrder,
        given: AgentSetup<'_>,
        (log, agents_lines): (AgentLog, [AgentLines; 2]),
        account: &ProcessIdentity,
        signals: SignalFd,
    ) -> anyhow::Result<Supervisor> {
        let lines = || -> io::Result<_> { Ok([answers()?, answers()?, answers()?, answers()?]) };
        let [launcher, controller, peers, news] = lines().context("connections to the agent")?;
        let (requests, sender) =
            agent_supervisor::requests().context("connections to the agent")?;
        let ends = [&sender, &launcher.1, &controller.1, &peers.1, &news.1];
        let mut kept: Vec<RawFd> = ends.map(|end| end.as_raw_fd()).into();
        kept.push(given.socket.number());
        kept.extend(given.relay.as_ref().map(OwnedFd::as_raw_fd));
        let environment = KEPT_VARIABLES.iter().filter_map(|name| {
            let value = std::env::var(name).ok()?;
            CString::new(format!("{name}={value}")).ok()
        });
        let start = role::Start {
            words: &[AGENT_NAME, &options.name],
            environment: environment.collect(),
            user: account,
            order: order.encoded(),
            errors: Some(given.log.as_raw_fd()),
            is_untraceable: false,
            kept,
            outlives: false,
            namespace: None,
        };
        let agent = start.start().context("the agent cannot be started")?;
        log::info!("the agent is process {agent}, of uid {}", account.uid);
        Ok(Supervisor {
            peer_places: PeerPlaces::new(&options.spool_pattern),
            options,
            signals,
            agent,
            requests,
            launcher: launcher.0,
            controller: controller.0,
            peers: peers.0,
            news: news.0,
            log,
            lines: agents_lines,
            launcher_asked: None,
            starting: None,
            credential: None,
            fetching: None,
            fetch_again: false,
            fetch_failed: false,
            fetch_lines: LineBudget::new(Instant::now()),
            sack: None,
            waiting: None,
        })
    }

    /// Serves the agent until it ends.
    fn serve(&mut self) -> io::Result<ExitCode> {
        loop {
            let signals = self.signals.as_fd().as_raw_fd();
            let [agents, relays] = self.lines.each_ref().map(AgentLines::number);
            let fds = [signals, self.requests.number(), agents, relays];
            let mut fds = fds.map(|fd| libc::pollfd {
                fd,
                events: libc::POLLIN,
                revents: 0,
            });
            let start = self.waiting.as_ref().map(|start| start.until);
            let start = start.map(|until| until.saturating_duration_since(Instant::now()));
            let lines = self.lines.iter_mut().filter_map(AgentLines::due_in);
            let due = lines.chain(start).min();
            sys::poll(&mut fds, poll_timeout(due))?;
            self.end_overdue_wait(Instant::now());
            let [signals, requests, agents, relays] = fds.map(|fd| fd.revents != 0);
            for (lines, have_come) in self.lines.iter_mut().zip([agents, relays]) {
                lines.report_left_out();
                if have_come {
                    lines.pass_on(self.log.append);
                }
            }
            if signals && let Some(status) = self.take_signals() {
                let [agents, _] = &mut self.lines;
                agents.finish(self.log.append);
                return Ok(status);
            }
            if requests {
                for request in self.requests.receive() {
                    self.answer(request);
                }
            }
        }
    }

    /// Reports the start as done where the registration takes too long.
    fn end_overdue_wait(&mut self, now: Instant) {
        if let Some(start) = self.waiting.take_if(|start| start.until <= now) {
            log::warn!("the controller has not accepted this node yet");
            (start.ready)();
        }
    }

    fn answer(&mut self, request: SupervisorRequest) {
        match request {
            SupervisorRequest::Ready => {
                if let Some(start) = self.waiting.take() {
                    (start.ready)();
                }
            }
            SupervisorRequest::Launcher => self.answer_launcher_request(),
            SupervisorRequest::Controller => {
                answer(&self.controller, 0, connect_to_controller(&self.options));
            }
            SupervisorRequest::Credential { number, secret } => {
                let made = self.start_credential(*secret);
                answer(&self.controller, number, made);
            }
            SupervisorRequest::Configuration => self.fetch_configuration(),
            SupervisorRequest::Peer { number, path } => {
                let connected = self.peer_places.connect(&path, &self.options.name);
                answer(&self.peers, number, connected);
            }
        }
    }

    /// Fetches the configuration again if this node gets it from the controller; one process at a
    /// time.
    fn fetch_configuration(&mut self) {
        if self.options.fetch.is_empty() {
            return;
        }
        if self.fetching.is_some() {
            self.fetch_again = true;
            return;
        }
        let mut words: Vec<&str> = self.options.fetch.iter().map(String::as_str).collect();
        // After a failure it waits first.
        if self.fetch_failed
            && let Some(verb) = words.get_mut(2)
        {
            *verb = FETCH_LATER;
        }
        let start = role::Start {
            words: &words,
            environment: Vec::new(),
            user: &ProcessIdentity {
                uid: nix::unistd::geteuid().as_raw(),
                gid: nix::unistd::getegid().as_raw(),
                ..ProcessIdentity::default()
            },
            order: Vec::new(),
            errors: Some(libc::STDERR_FILENO),
            is_untraceable: false,
            kept: Vec::new(),
            outlives: false,
            namespace: None,
        };
        match start.start() {
            Ok(pid) => self.fetching = Some(pid),
            Err(e) => log::error!("the configuration cannot be fetched: {e}"),
        }
    }

    fn configuration_fetched(&mut self, status: i32) {
        self.fetching = None;
        // The agent may request again and again.
        let is_logged = admit_fetch_line(&mut self.fetch_lines, Instant::now());
        match status {
            _ if !is_logged => {}
            0 => log::info!("the controller's configuration is in {}", self.options.conf),
            _ => log::error!(
                "cannot fetch the configuration; the one in {} is from an earlier fetch",
                self.options.conf
            ),
        }
        self.fetch_failed = status != 0;
        let said = match self.fetch_failed {
            false => std::fs::File::open("/dev/null").map(OwnedFd::from),
            true => Err(io::Error::other(format!(
                "{} is an earlier one, see the log of slurmd there",
                self.options.conf
            ))),
        };
        answer(&self.news, CONFIGURATION, said);
        if std::mem::take(&mut self.fetch_again) || self.fetch_failed {
            self.fetch_configuration();
        }
    }

    /// Starts the creation of a credential; returns the descriptor from which to read it.
    fn start_credential(&mut self, secret: [u8; SECRET]) -> io::Result<OwnedFd> {
        if self.credential.is_some() {
            return Err(io::Error::other("another credential is being made"));
        }
        let (pid, said) = credential::start(&self.options, secret)?;
        self.credential = Some(pid);
        Ok(said)
    }

    /// Opens the log file again after the old one was moved away (slurmd(8), SIGUSR2).
    fn reopen_log(&self) {
        let Some(path) = &self.log.path else {
            return;
        };
        match open_log(path) {
            Ok(file) => {
                (self.log.replace)(file);
                log::info!("the log file was opened anew");
            }
            Err(e) => log::error!("the log file {} cannot be opened anew: {e}", path.display()),
        }
    }

    /// Forwards signals to the agent, apart from those about the log; returns the agent's status if
    /// it has ended.
    fn take_signals(&mut self) -> Option<ExitCode> {
        while let Ok(Some(info)) = self.signals.read_signal() {
            let signal = i32::try_from(info.ssi_signo).unwrap_or(0);
            match signal {
                libc::SIGCHLD => {}
                libc::SIGHUP | libc::SIGUSR2 => self.reopen_log(),
                _ => drop(sys::kill(self.agent, signal)),
            }
        }
        while let sys::Reap::Ended(child) = sys::reap() {
            if child.pid == self.agent {
                return Some(status(child.status));
            }
            if self.credential == Some(child.pid) {
                self.credential = None;
            }
            if self.fetching == Some(child.pid) {
                self.configuration_fetched(child.status);
            }
            if let Some(sack) = &mut self.sack {
                sack.ended(child.pid, self.log.file.as_ref());
            }
            if let Some(starting) = self.starting.take_if(|s| s.is(child.pid)) {
                let started = starting
                    .ended(child.status)
                    .and_then(|()| launcher::connect(&self.options));
                self.give_launcher(started);
            }
        }
        None
    }

    fn answer_launcher_request(&mut self) {
        if self.starting.is_some() {
            return;
        }
        // Each link occupies privileged ports for a while.
        let last = self.launcher_asked.replace(Instant::now());
        if last.is_some_and(|last| last.elapsed() < LAUNCHER_PAUSE) {
            let often = io::Error::other("the launcher was asked for too often");
            return self.give_launcher(Err(often));
        }
        let connected = match launcher::connect(&self.options) {
            Err(e) if launcher::is_absent(&e) => {
                log::warn!("no launcher listens: one is started");
                match Starting::begin(&self.options) {
                    Ok(starting) => {
                        self.starting = Some(starting);
                        return;
                    }
                    Err(e) => Err(e),
                }
            }
            connected => connected,
        };
        self.give_launcher(connected);
    }

    fn give_launcher(&self, connected: io::Result<LauncherLink>) {
        match connected {
            Ok(link) => {
                answer(&self.launcher, LAUNCHER_EVENTS, Ok(link.events));
                answer(&self.launcher, LAUNCHER_ORDERS, Ok(link.orders));
            }
            Err(e) => answer(&self.launcher, LAUNCHER_EVENTS, Err(e)),
        }
    }
}

/// Converts a time to a poll(2) timeout, rounded up.
fn poll_timeout(due: Option<Duration>) -> i32 {
    due.map_or(-1, |due| {
        i32::try_from(due.as_millis() + 1).unwrap_or(i32::MAX)
    })
}

/// Writes the first message of a connection.
fn write_first(connection: &OwnedFd, bytes: &[u8]) -> io::Result<()> {
    // A new socket has room for it.
    match nix::unistd::write(connection, bytes)? {
        sent if sent == bytes.len() => Ok(()),
        _ => Err(io::ErrorKind::WriteZero.into()),
    }
}

/// Connects to the controller, which sees root as its peer, and restricts the connection to
/// requests that this node's agent may send, because the agent is not root and may have been taken
/// over. At the socket for daemons there are no users to wait for.
fn connect_to_controller(options: &AgentOptions) -> io::Result<OwnedFd> {
    let connection = match agent_supervisor::connect(&daemon_socket(&options.controller_socket)) {
        // The controller has an earlier version, or another SlurmUser in a cluster that does not
        // run as root.
        Err(e) if launcher::is_absent(&e) || e.kind() == io::ErrorKind::PermissionDenied => {
            agent_supervisor::connect(&options.controller_socket)?
        }
        connected => connected?,
    };
    let restricted = frame::encode(&Request {
        version: PROTOCOL,
        client: None,
        body: RequestBody::ServeNode(options.name.clone()),
    });
    write_first(&connection, &restricted)?;
    Ok(connection)
}

/// The exit status of the supervisor.
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

/// Whether a line about the configuration may be logged. Nothing else reports suppressed lines.
fn admit_fetch_line(lines: &mut LineBudget, now: Instant) -> bool {
    if let Some(count) = lines.take_left_out(now) {
        log::warn!("{count} log lines about fetching the configuration were dropped");
    }
    lines.admit(FETCH_LINE, now)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;
    use std::time::Duration;

    /// After a suppressed line there was no other.
    #[test]
    fn lines_on_the_configuration_are_logged_again_after_a_while() {
        let now = Instant::now();
        let mut lines = LineBudget::new(now);
        while admit_fetch_line(&mut lines, now) {}
        assert!(!admit_fetch_line(&mut lines, now));
        let later = now + Duration::from_secs(3600);
        assert!(admit_fetch_line(&mut lines, later));
        assert!(admit_fetch_line(&mut lines, later));
    }

    /// Users wait at the controller's socket until its queue is full, and the controller does not
    /// accept.
    #[test]
    fn users_do_not_keep_an_agent_from_the_controller() {
        let dir = std::env::temp_dir().join(format!("muster-daemons-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let options = AgentOptions {
            name: "n1".to_owned(),
            cluster: "c".to_owned(),
            address: String::new(),
            controller_socket: dir.join("socket"),
            spool_dir: dir.clone(),
            claimed_cpus: None,
            claimed_sockets: 0,
            shared_machine: false,
            claimed_memory_mib: None,
            launcher_program: None,
            slurmd_user: String::new(),
            network: Default::default(),
            conf: String::new(),
            fetch: Vec::new(),
            dynamic: None,
            spool_pattern: String::new(),
        };
        let serves = |listener: &UnixListener| {
            let (mut accepted, _) = listener.accept().unwrap();
            let request: Request = frame::read(&mut accepted).unwrap();
            assert_eq!(request.body, RequestBody::ServeNode("n1".to_owned()));
        };
        let users = UnixListener::bind(&options.controller_socket).unwrap();
        let backlog = nix::sys::socket::Backlog::new(4).unwrap();
        nix::sys::socket::listen(&users, backlog).unwrap();
        connect_to_controller(&options).unwrap();
        serves(&users);
        let waiting: Vec<_> =
            std::iter::from_fn(|| agent_supervisor::connect(&options.controller_socket).ok())
                .collect();
        assert!(waiting.len() >= 4);
        assert!(
            connect_to_controller(&options).is_err(),
            "an older controller"
        );
        let daemons = UnixListener::bind(daemon_socket(&options.controller_socket)).unwrap();
        connect_to_controller(&options).unwrap();
        serves(&daemons);
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
