//! The agent: keeps the connection to the controller, carries out its orders through the launcher, reports what happened
//! until it is acknowledged, and makes the steps of jobs that this node leads. It has no privileges: the supervisor
//! starts it under an account of its own, with sockets that are made.
//!
//! What it decides is in [`muster_node_core::agent`], a state machine. One task gives the machine what happens and carries out its
//! actions; other tasks only move bytes.

mod audit;
mod closing;
mod controller;
mod executor;
mod launcher_link;
mod listener;
mod mpi_probe;
mod order_link;
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
use crate::role::AGENT_NAME;
use crate::supervisor::{self, Inherited};
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
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::process::ExitCode;
use supervisor_link::{Dialer, PeerDialer};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};

/// Bytes to a peer: frames, ready to be written.
pub(crate) type Outlet = mpsc::UnboundedSender<Vec<u8>>;

/// Something that other tasks have for the executor.
enum Input {
    /// An event as the machine takes it.
    Event(agent::Event),
    /// The controller accepted a connection, for which the agent has this public key; where the greeting goes.
    Dialed(DialId, ByteVec, oneshot::Sender<Vec<u8>>),
    /// The controller took the greeting, and has shown this key; where it is said whether that is the right one.
    ControllerAnswered(DialId, ByteVec, oneshot::Sender<Result<(), String>>),
    /// The key is the right one: the link to the controller.
    ControllerUp(ControllerLink),
    /// The connection to the controller is gone.
    ControllerLost,
    /// What became of the configuration that the controller gives: why it is not applied, if it is not.
    Configuration(Option<String>),
    /// The launcher is connected.
    LauncherUp(LauncherOutlet),
    /// The launcher has made a control channel to the daemon of a step.
    StepChannel(JobAttempt, StepNo, OwnedFd),
    /// The connection to the launcher is gone.
    LauncherLost,
    /// A step daemon has sent something, or is gone.
    StepdReadable(StepdChannelId),
    /// The relay asks who may connect from another host.
    ChannelAsked(relay_link::Question),
    /// Who did is gone, or has no key.
    ChannelGone(relay_link::ClosedRelayConn),
    /// A connection was closed for want of rights to this.
    Denied(audit::AuditedRequest, Refusal),
    /// Lines of the audit log were left out a while ago.
    AuditSummary,
    /// A client, and what it does.
    Client(quota::Precedence, closing::Sender, ClientInput),
}

/// What clients do. It waits until it is their user's turn, or their agent's.
enum ClientInput {
    /// It asks for something.
    Request {
        /// The client.
        asker: listener::Asker,
        /// What it asks for.
        request: Box<AgentRequest>,
        /// What came with the request.
        streams: Option<closing::Streams>,
        /// Where answers go.
        reply: replies::Outbox,
        /// Counts against the requests of the user that wait for their turn.
        place: Option<OwnedSemaphorePermit>,
    },
    /// Its connection is closed.
    Gone(ConnId),
}

/// Runs as an agent, as the supervisor has started this process, until it is ordered to stop (SIGTERM, SIGINT, or the
/// controller). First it starts the log, which goes to
/// standard error.
pub fn agent_main(start_log: impl FnOnce(LevelFilter)) -> ExitCode {
    let inherited = sys::set_undumpable()
        .context("this process cannot be protected from others")
        .and_then(|()| supervisor::inherited());
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

/// What is found out when an agent starts.
#[derive(Debug, Default)]
struct NodeProbe {
    /// Whether ranks may copy from each other's memory here, and gain by it.
    cross_memory: Option<CrossMemory>,
    /// The address by which other machines reach this one, if the configuration names one that is its own.
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
        relay_link::keep(end, server, inputs.clone())?;
    }
    let launcher = Dialer::new(inherited.launcher, requests.clone())?;
    launcher_link::keep(launcher, inputs.clone());
    let controller = Dialer::new(inherited.controller, requests)?;
    controller::keep(controller, options.clone(), inputs);
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    while !executor.is_stopping() {
        tokio::select! {
            input = inbox.recv() => {
                let Some(input) = input else { break };
                executor.take(input);
            }
            // Meanwhile other tasks bring what has come.
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
