//! The agent: keeps the connection to the controller, carries out its orders through the shim, reports what happened
//! until it is acknowledged, and makes the steps of jobs that this node leads. It has no privileges: the supervisor
//! starts it under an account of its own, with sockets that are made.
//!
//! One task owns all state and handles events in turn; other tasks only move bytes. What a burst of events brings
//! leaves in one write per peer. All that must survive the agent is kept by the shim.

mod closing;
mod controller;
mod daemons;
mod descriptor_limit;
mod jobs;
mod launch;
mod lead;
mod listener;
mod measure;
mod peers;
mod pmix;
pub(crate) mod quota;
mod reports;
mod sampling;
mod shim_link;
mod socket;
mod step_node;
mod step_tree;
mod supervisor_link;
mod syscall_filter;

pub(crate) use jobs::exit_status;
pub(crate) use peers::Peers;
pub(crate) use step_tree::{ask_below, tell_above};

use crate::cross_memory::CrossMemory;
use crate::descriptors::OrderFds;
use crate::failure;
use crate::info;
use crate::options::AgentOptions;
use crate::supervisor::{self, AgentLog, Inherited};
use crate::sys;
use anyhow::Context as _;
use controller::Link;
use lead::StepKey;
use minicbor::bytes::ByteVec;
use muster_core::time::Timestamp;
use muster_node_core::binding::{Machine, SiteBinding};
use muster_node_core::job_table::Jobs;
use muster_node_core::messages::{JobAttempt, LauncherCommand};
use muster_proto::frame;
use muster_proto::node::{NodeSettings, ToCtld, ToNode};
use muster_proto::step::{AgentReply, AgentRequest};
use reports::Reports;
use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::process::ExitCode;
use step_node::Listening;
use supervisor_link::{Dialer, PeerDialer};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, oneshot};

/// Bytes to a peer: frames, ready to be written.
pub(crate) type Outlet = mpsc::UnboundedSender<Vec<u8>>;
/// The same to the shim, with the descriptors that go with the last of them.
type ShimOutlet = mpsc::UnboundedSender<(Vec<u8>, Option<OfUser>)>;

/// Descriptors that go with an order, and whose step it is for.
struct OfUser {
    uid: u32,
    with: OrderFds,
}

/// Something that the agent reacts to.
enum Event {
    /// The controller answered a dial: what to greet it with?
    Dialed(ByteVec, oneshot::Sender<Vec<u8>>),
    /// It took the greeting, and has shown this key: is it the one that this node knows?
    Answered(ByteVec, oneshot::Sender<Result<(), String>>),
    /// It is.
    Welcome(Link),
    /// It said something.
    Controller(Box<ToNode>),
    /// Verified orders.
    Orders(Box<controller::Sealed>),
    /// Its connection is gone.
    ControllerLost,
    /// The shim is connected.
    ShimUp(ShimOutlet),
    /// It said something.
    Shim(Box<muster_node_core::messages::LauncherEvent>),
    /// Its connection is gone.
    ShimLost,
    /// A step daemon has something to say, or is gone.
    DaemonSaid(u64),
    /// Somebody asked something.
    Request {
        /// Who.
        asker: listener::Asker,
        /// What.
        request: Box<AgentRequest>,
        /// What came with it.
        streams: Option<closing::Streams>,
        /// Where the answer goes.
        reply: mpsc::UnboundedSender<AgentReply>,
    },
    /// That connection is closed.
    Closed(u64),
    /// Another agent answered about a step's node: its stepd's address.
    NodeStarted(StepKey, u32, Result<Listening, String>),
    /// The lead took note of ends of a step.
    EndsDelivered(step_tree::DeliveredEnds),
    /// A step has waited for a while: its client should know.
    StillWaiting(u64),
    /// A wait is over: a step start whose job has not come.
    GaveUp(u64),
    /// Reports have waited for others to go with them.
    ReportsWaited,
    /// What running jobs use is to be looked at.
    SampleDue,
}

/// Runs as an agent, as the supervisor has started this process, until it is ordered to stop (SIGTERM, SIGINT, or the
/// controller). First it says where to log.
pub fn agent_main(start_log: impl FnOnce(AgentLog)) -> ExitCode {
    let inherited = sys::set_undumpable()
        .context("this process cannot be protected from others")
        .and_then(|()| supervisor::inherited());
    let inherited = match inherited {
        Ok((inherited, log)) => {
            start_log(log);
            inherited
        }
        Err(e) => {
            eprintln!("{}: {e:#}", supervisor::AGENT_NAME);
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
struct Found {
    /// Whether ranks may copy from each other's memory here, and gain by it.
    cross_memory: Option<CrossMemory>,
    /// The address by which other machines reach this one, if the configuration names one that is its own.
    listens_at: Option<IpAddr>,
}

async fn serve(inherited: Inherited) -> anyhow::Result<()> {
    let found = Found {
        cross_memory: inherited.cross_memory,
        listens_at: pmix::own_address(&inherited.options.address),
    };
    let (events, mut inbox) = mpsc::unbounded_channel();
    let requests = inherited.requests;
    let mut agent = Agent::new(inherited.options, events.clone());
    let dialer = PeerDialer::new(inherited.peers, requests.clone())?;
    agent.peers = Peers::by_supervisor(dialer);
    let quotas = quota::Quotas::new(inherited.supervisor_uid, descriptor_limit::raise());
    agent.found = found;
    closing::start().context("a thread to close what users send")?;
    listener::listen(inherited.listener, &quotas, events.clone())?;
    let launcher = Dialer::new(inherited.launcher, requests.clone())?;
    shim_link::keep(launcher, events.clone());
    let controller = Dialer::new(inherited.controller, requests)?;
    controller::keep(controller, agent.options.clone(), events);
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    while !agent.stopping {
        tokio::select! {
            event = inbox.recv() => {
                let Some(event) = event else { break };
                agent.handle(event);
                while let Ok(event) = inbox.try_recv() {
                    agent.handle(event);
                }
                agent.flush();
            }
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
        }
    }
    log::info!("the agent of {} stops; jobs go on", agent.options.name);
    Ok(())
}

/// All state of the agent.
struct Agent {
    options: AgentOptions,
    events: mpsc::UnboundedSender<Event>,
    started: Timestamp,
    settings: NodeSettings,
    machine: Machine,
    site_binding: SiteBinding,
    stopping: bool,
    controller: Option<Link>,
    shim: Option<ShimOutlet>,
    /// Frames for the shim and the controller that this burst brought.
    to_shim: Vec<u8>,
    to_controller: Vec<u8>,
    /// Dials that wait for the shim to tell what it knows, and for its key.
    dialed: VecDeque<(ByteVec, oneshot::Sender<Vec<u8>>)>,
    /// Answers of controllers that the shim is looking at.
    answered: VecDeque<oneshot::Sender<Result<(), String>>>,
    /// The launcher has sent what it knows.
    synced: bool,
    /// One that had done so is gone: the next one knows nothing of steps that is news.
    has_lost_a_shim: bool,
    jobs: Jobs,
    reports: Reports,
    steps: lead::Steps,
    node_steps: step_node::NodeSteps,
    endings: step_tree::Endings,
    daemons: daemons::Daemons,
    peers: Peers,
    /// Who waits for a list of processes of whose job.
    inspections: HashMap<u64, (u32, listener::Inspection, mpsc::UnboundedSender<AgentReply>)>,
    next_tag: u64,
    found: Found,
    samples: sampling::Samples,
    /// Lists of processes that were asked for to take samples.
    sampled_runs: HashMap<u64, JobAttempt>,
}

impl Agent {
    fn new(options: AgentOptions, events: mpsc::UnboundedSender<Event>) -> Agent {
        Agent {
            machine: crate::topology::read_machine(options.claim()),
            site_binding: SiteBinding::default(),
            options,
            events,
            started: crate::now(),
            settings: NodeSettings::default(),
            stopping: false,
            controller: None,
            shim: None,
            to_shim: Vec::new(),
            to_controller: Vec::new(),
            dialed: VecDeque::new(),
            answered: VecDeque::new(),
            synced: false,
            has_lost_a_shim: false,
            jobs: Jobs::default(),
            reports: Reports::new(crate::now()),
            steps: lead::Steps::default(),
            node_steps: step_node::NodeSteps::default(),
            endings: step_tree::Endings::default(),
            daemons: daemons::Daemons::default(),
            peers: Peers::default(),
            inspections: HashMap::new(),
            next_tag: 0,
            found: Found::default(),
            samples: sampling::Samples::default(),
            sampled_runs: HashMap::new(),
        }
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Dialed(key, reply) => {
                self.dialed.push_back((key, reply));
                if self.synced {
                    self.shim_order(&LauncherCommand::OpenSession);
                }
            }
            Event::Answered(key, reply) if self.synced => {
                self.answered.push_back(reply);
                self.shim_order(&LauncherCommand::BeginSession(key));
            }
            // The key that was shown to it was a lost shim's: the connection is given up.
            Event::Answered(..) => {}
            Event::Welcome(link) => self.welcomed(link),
            Event::Controller(message) => self.controller_said(*message),
            Event::Orders(orders) => self.ordered(*orders),
            Event::ControllerLost => self.controller = None,
            Event::ShimUp(outlet) => self.shim_up(outlet),
            Event::Shim(message) => self.shim_said(*message),
            Event::ShimLost => {
                self.shim = None;
                self.forget_measurements();
                self.has_lost_a_shim |= self.synced;
                self.synced = false;
                self.answered.clear();
                self.leave_controller();
            }
            Event::DaemonSaid(id) => {
                self.receive_from_daemon(id);
            }
            Event::Request {
                asker,
                request,
                streams,
                reply,
            } => self.asked(asker, *request, streams, reply),
            Event::Closed(conn) => self.closed(conn),
            Event::NodeStarted(key, position, result) => self.node_started(key, position, result),
            Event::EndsDelivered(ends) => self.on_ends_delivered(ends),
            Event::StillWaiting(conn) => self.still_waiting(conn),
            Event::GaveUp(wait) => self.gave_up(wait),
            Event::ReportsWaited => self.reports.waited(),
            Event::SampleDue => self.sample_due(),
        }
    }

    /// Has the shim make a key for each dial that waits for one.
    fn open_sessions(&mut self) {
        for _ in 0..self.dialed.len() {
            self.shim_order(&LauncherCommand::OpenSession);
        }
    }

    /// Greets the controller with the shim's key for this connection.
    fn greet(&mut self, launcher_key: ByteVec) {
        if let Some((key, reply)) = self.dialed.pop_front() {
            // Nobody waits any more if the connection broke meanwhile.
            let _ = reply.send(self.greeting(key, launcher_key));
        }
    }

    /// The shim knows the controller that has answered, or why it is another.
    fn session_begun(&mut self, error: Option<String>) {
        if let Some(reply) = self.answered.pop_front() {
            let _ = reply.send(error.map_or(Ok(()), Err));
        }
    }

    fn welcomed(&mut self, link: Link) {
        if !self.synced {
            // The shim that has the session is lost.
            return link.close();
        }
        log::info!("node {} is connected to its controller", self.options.name);
        self.controller = Some(link);
        self.to_controller.clear();
        self.reports.send_all_again();
    }

    /// Gives up the connection to the controller, which is dialled anew: what it seals, this node does not believe.
    fn leave_controller(&mut self) {
        if let Some(link) = self.controller.take() {
            link.close();
        }
    }

    fn apply_settings(&mut self, settings: NodeSettings) {
        self.site_binding = SiteBinding::new(&settings.cpu_bind);
        self.settings = settings;
        self.sample_all();
    }

    fn controller_said(&mut self, message: ToNode) {
        match message {
            // Verified and unpacked by the connection.
            ToNode::Sealed { .. } => {}
            ToNode::Ack(seq) => self.acknowledged(seq),
            ToNode::Ping => {
                let (load_centi, free_mib) = info::health();
                let health = ToCtld::Health {
                    load_centi,
                    free_mib,
                };
                frame::encode_into(&health, &mut self.to_controller);
            }
            ToNode::Stop(agent) => self.stopping |= agent,
        }
    }

    fn shim_order(&mut self, order: &LauncherCommand) {
        if self.shim.is_some() {
            frame::encode_into(order, &mut self.to_shim);
        }
    }

    /// The same with descriptors, which the shim finds with the order.
    fn shim_order_with(&mut self, order: &LauncherCommand, with: OfUser) {
        self.shim_order(order);
        self.flush_shim(Some(with));
    }

    fn flush_shim(&mut self, with: Option<OfUser>) {
        let shim = self.shim.as_ref().filter(|_| !self.to_shim.is_empty());
        let unsent = match shim {
            Some(shim) => {
                let sent = shim.send((std::mem::take(&mut self.to_shim), with));
                // A closed outlet means that the connection is gone, which comes as an event of its own.
                sent.err().and_then(|unsent| unsent.0.1)
            }
            None => with,
        };
        if let Some(OfUser { uid, with }) = unsent {
            closing::close_order(uid, with);
        }
    }

    /// Sends what the burst brought.
    fn flush(&mut self) {
        self.try_steps();
        self.flush_shim(None);
        if let Some(controller) = &self.controller {
            let now = std::time::Instant::now();
            if let Some(reports) = self.reports.unsent(now) {
                frame::encode_into(&ToCtld::Reports(reports), &mut self.to_controller);
            } else if let Some(wait) = self.reports.wants_timer(now) {
                let events = self.events.clone();
                tokio::spawn(async move {
                    tokio::time::sleep(wait).await;
                    let _ = events.send(Event::ReportsWaited);
                });
            }
            if !self.to_controller.is_empty() {
                let _ = controller
                    .outlet
                    .send(std::mem::take(&mut self.to_controller));
            }
        }
    }
}
