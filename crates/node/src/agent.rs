//! The agent: keeps the connection to the controller, passes its orders to the launcher, reports
//! events until they are acknowledged, and creates the steps of jobs that this node leads. It has
//! no privileges: the supervisor starts it under a separate account, with sockets that already
//! exist.
//!
//! Its decisions are made in [`muster_node_core::agent`], a state machine. One task feeds events to
//! the machine and performs its actions; other tasks only move bytes.

mod audit;
mod closing;
mod controller;
mod executor;
mod launcher_link;
mod listener;
mod mpi_probe;
mod order_link;
mod page;
mod peers;
pub(crate) mod quota;
mod relay_link;
mod replies;
mod socket;
mod stepd_channels;
mod supervisor_link;

pub(crate) use peers::Peers;

use crate::cross_memory::CrossMemory;
use crate::descriptor_limit;
use crate::failure;
use crate::messages::agent_order::{self, Inherited};
use crate::role::AGENT_NAME;
use crate::sys;
use crate::syscall_filter;
use anyhow::Context as _;
use controller::ControllerLink;
use executor::Executor;
use launcher_link::LauncherOutlet;
use log::LevelFilter;
use minicbor::bytes::ByteVec;
use muster_model::ids::{JobAttempt, StepNo};
use muster_model::refusal::Refusal;
use muster_node_core::agent::{self, ConnId, DialId, StepdChannelId};
use muster_proto::step::AgentRequest;
use nix::unistd::setsid;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::process::ExitCode;
use supervisor_link::{Dialer, PeerDialer};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};

/// Bytes to a peer: frames, ready to be written.
pub(crate) type Outlet = mpsc::UnboundedSender<Vec<u8>>;

/// A message of another task to the executor.
enum Input {
    /// An event in the form that the machine takes.
    Event(agent::Event),
    /// The controller accepted a connection, for which the agent has this public key; the channel
    /// takes the greeting.
    Dialed(DialId, ByteVec, oneshot::Sender<Vec<u8>>),
    /// The controller has read the greeting and shown this key; the channel takes whether the key
    /// is right.
    ControllerAnswered(DialId, ByteVec, oneshot::Sender<Result<(), String>>),
    /// The controller's key is right: the link is up.
    ControllerUp(ControllerLink),
    /// The connection to the controller is gone.
    ControllerLost,
    /// Result of applying the controller's configuration: the reason if it was not applied.
    Configuration(Option<String>),
    /// The launcher is connected.
    LauncherUp(LauncherOutlet),
    /// The launcher has created a control channel to the daemon of a step.
    StepChannel(JobAttempt, StepNo, OwnedFd),
    /// The connection to the launcher is gone.
    LauncherLost,
    /// A step daemon has sent data or has disconnected.
    StepdReadable(StepdChannelId),
    /// The relay asks which client may connect from another host.
    ChannelAsked(relay_link::AdmissionQuery),
    /// A client of another host has disconnected, or could not prove that it has the key.
    ChannelGone(relay_link::ClosedRelayConn),
    /// Somebody asks for the agent's page.
    PageAsked(relay_link::PageQuestion),
    /// A client was refused for lack of rights to this request.
    Denied(audit::AuditedRequest, Refusal),
    /// It is time to report omitted lines of the audit log.
    AuditSummary,
    /// An input of a client. It is queued until it is the turn of the client's user or agent.
    Client(quota::Precedence, closing::Sender, ClientInput),
}

/// Inputs of clients, in the queue of their user or agent.
enum ClientInput {
    /// A request.
    Request {
        /// The client.
        asker: listener::Requester,
        /// The request.
        request: Box<AgentRequest>,
        /// Descriptors that came with the request.
        streams: Option<closing::Streams>,
        /// Channel for the replies.
        reply: replies::Outbox,
        /// Counts against the queued requests of the user.
        place: Option<OwnedSemaphorePermit>,
    },
    /// The connection was closed.
    Gone(ConnId),
}

/// Runs as an agent, as started by the supervisor, until it is ordered to stop (SIGTERM, SIGINT, or
/// the controller). First initializes the log, which goes to standard error.
pub fn agent_main(start_log: impl FnOnce(LevelFilter)) -> ExitCode {
    sys::set_name(c"muster-agent");
    let inherited = sys::set_undumpable()
        .context("this process cannot be protected from others")
        // A terminal from which root started slurmd is not this account's, which could type there. The supervisor
        // forwards signals.
        .and_then(|()| setsid().context("this process cannot leave slurmd's session"))
        .and_then(|_| agent_order::inherited());
    let inherited = match inherited {
        Ok((inherited, level)) => {
            start_log(level);
            inherited
        }
        Err(e) => {
            eprintln!("{}: {e:#}", AGENT_NAME);
            return ExitCode::FAILURE;
        }
    };
    failure::end_on_panic();
    if let Err(e) = syscall_filter::apply() {
        log::warn!("the agent runs without a filter of system calls: {e:#}");
    }
    match run(inherited) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            log::error!("{e:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(inherited: Inherited) -> anyhow::Result<()> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("the asynchronous runtime")?
        .block_on(serve(inherited))
}

/// Properties of the machine that are determined when an agent starts.
#[derive(Debug, Default)]
struct NodeProbe {
    /// Whether ranks can copy from each other's memory here, and gain by it.
    cross_memory: Option<CrossMemory>,
    /// The address at which other machines reach this one, if the configuration names one of its
    /// own addresses.
    listens_at: Option<IpAddr>,
}

async fn serve(inherited: Inherited) -> anyhow::Result<()> {
    let found = NodeProbe {
        cross_memory: inherited.cross_memory,
        listens_at: mpi_probe::own_address(&inherited.options.address),
    };
    let (inputs, mut inbox) = mpsc::unbounded_channel();
    let (requests, options) = (inherited.requests, inherited.options);
    tokio::spawn(supervisor_link::follow_news(inherited.news, inputs.clone()));
    let dialer = PeerDialer::new(inherited.peers, requests.clone())?;
    let peers = Peers::by_supervisor(dialer, &options.name);
    let mut executor = Executor::new(options.clone(), found, peers, inputs.clone());
    let quotas = quota::Quotas::new(inherited.supervisor_uid, descriptor_limit::raise())
        .of_slurm_user(options.network.receiver_uid);
    closing::start().context("a thread to close what users send")?;
    let server = listener::listen(inherited.listener, &quotas, inputs.clone())?;
    if let Some(end) = inherited.relay {
        relay_link::maintain_connection(end, server, inputs.clone())?;
    }
    let launcher = Dialer::new(inherited.launcher, requests.clone())?;
    launcher_link::maintain_connection(launcher, inputs.clone());
    let controller = Dialer::new(inherited.controller, requests)?;
    controller::maintain_connection(controller, options.clone(), inputs);
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    while !executor.is_stopping() {
        tokio::select! {
            input = inbox.recv() => {
                let Some(input) = input else { break };
                executor.take(input);
            }
            // Meanwhile other tasks receive what has arrived.
            () = tokio::task::yield_now(), if executor.has_clients() => {}
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
        }
        while let Ok(input) = inbox.try_recv() {
            executor.take(input);
        }
        executor.serve_clients();
        executor.flush();
    }
    log::info!("the agent of {} stops; jobs go on", options.name);
    Ok(())
}
