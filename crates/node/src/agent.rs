//! The agent: keeps the connection to the controller, carries out its orders through the shim, reports what happened
//! until it is acknowledged, and makes the steps of jobs that this node leads.
//!
//! One task owns all state and handles events in turn; other tasks only move bytes. What a burst of events brings
//! leaves in one write per peer. All that must survive the agent is kept by the shim.

mod closing;
mod context;
mod controller;
mod daemons;
mod descriptor_limit;
mod health;
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
mod scripts;
mod shim_link;
mod socket;
mod step_node;
mod step_tree;
mod table;
mod users;

pub(crate) use jobs::exit_status;
pub(crate) use peers::Peers;
pub(crate) use step_node::{is_kept_of, kept_of_node};
pub(crate) use step_tree::{ask_below, tell_above};

use crate::binding::{Machine, SiteBinding};
use crate::cross_memory::CrossMemory;
use crate::descriptors::WithOrder;
use crate::failure;
use crate::info;
use crate::options::AgentOptions;
use crate::shim::wire::{Run, ToShim};
use anyhow::Context as _;
use context::Contexts;
use lead::StepKey;
use minicbor::bytes::ByteVec;
use muster_core::ids::{BlobId, StepNo};
use muster_core::job::Usage;
use muster_core::time::Timestamp;
use muster_proto::frame;
use muster_proto::node::{NodeSettings, ToCtld, ToNode};
use muster_proto::step::{AgentReply, AgentRequest};
use reports::Reports;
use scripts::Scripts;
use std::collections::{HashMap, HashSet, VecDeque};
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;
use std::rc::Rc;
use step_node::Listening;
use table::Jobs;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, oneshot};
use users::Users;

/// Bytes to a peer: frames, ready to be written.
pub(crate) type Outlet = mpsc::UnboundedSender<Vec<u8>>;
/// The same to the shim, with the descriptors that go with the last of them.
type ShimOutlet = mpsc::UnboundedSender<(Vec<u8>, Option<OfUser>)>;

/// Descriptors that go with an order, and whose step it is for.
struct OfUser {
    uid: u32,
    with: WithOrder,
}

/// Longest spool path: socket names in it must fit into an address of 108 bytes.
const SPOOL_PATH_MAX: usize = 72;

/// Something that the agent reacts to.
enum Event {
    /// The controller answered a dial: what to greet it with?
    Dialed(ByteVec, oneshot::Sender<Vec<u8>>),
    /// It took the greeting.
    Welcome(Box<NodeSettings>, Outlet),
    /// It said something.
    Controller(Box<ToNode>),
    /// Verified orders.
    Orders(Box<muster_proto::node::Orders>),
    /// Its connection is gone.
    ControllerLost,
    /// The shim is connected.
    ShimUp(ShimOutlet),
    /// It said something.
    Shim(Box<crate::shim::wire::FromShim>),
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
    EndsTold(step_tree::Told),
    /// A step has waited for a while: its client should know.
    StillWaiting(u64),
    /// A wait is over: a step start whose job has not come.
    GaveUp(u64),
    /// Reports have waited for others to go with them.
    ReportsWaited,
    /// The health of the node is to be checked.
    HealthCheckDue,
    /// That is done.
    HealthChecked,
    /// What running jobs use is to be looked at.
    SampleDue,
    /// A job that is being suspended has had its time for it.
    StopDue(Run),
    /// The groups of a user were looked up.
    GroupsFound(users::User, Vec<u32>),
    /// What the tasks of a job use now, for a sample.
    Sampled(Run, measure::Tasks),
    /// What the steps of a job use now, for who has asked under this number.
    Measured(u64, Vec<(StepNo, Usage)>),
    /// A launch that failed for lack of something is to be tried again.
    LaunchAgain(Run),
}

/// Runs the agent until it is told to stop (SIGTERM, SIGINT, or the controller). The shim and the jobs go on.
///
/// # Errors
/// When the spool directory cannot be used, or the shim cannot be started.
pub fn run(options: AgentOptions) -> anyhow::Result<()> {
    failure::end_on_panic();
    let _lock = prepare_spool(&options.spool_dir)?;
    let probe = options.clone();
    let probe = std::thread::spawn(move || Found {
        cross_memory: cross_memory(&probe),
        listens_at: pmix::own_address(&probe.address),
    });
    shim_link::ensure_shim(&options)?;
    let found = probe.join().unwrap_or_default();
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("the asynchronous runtime")?
        .block_on(serve(options, found))
}

/// What takes a while to be found out when an agent starts.
#[derive(Debug, Default)]
struct Found {
    /// Whether ranks may copy from each other's memory here, and gain by it.
    cross_memory: Option<CrossMemory>,
    /// The address by which other machines reach this one, if the configuration names one that is its own.
    listens_at: Option<IpAddr>,
}

/// Whether ranks may copy from each other's memory here, as far as that can be found out.
fn cross_memory(options: &AgentOptions) -> Option<CrossMemory> {
    let own = Path::new("/proc/self/exe");
    let program = options.shim_program.as_deref().unwrap_or(own);
    let file = options.spool_dir.join("cross-memory");
    let boot_id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    match CrossMemory::remembered(program, &file, boot_id.trim()) {
        Ok(found) => Some(found),
        Err(e) => {
            log::warn!("{e}");
            None
        }
    }
}

/// Makes the directory and takes it for this process, as long as what is given lives.
fn prepare_spool(spool: &Path) -> anyhow::Result<std::fs::File> {
    let length = spool.as_os_str().len();
    anyhow::ensure!(
        spool.is_absolute() && length <= SPOOL_PATH_MAX,
        "SlurmdSpoolDir '{}': give an absolute path of at most {SPOOL_PATH_MAX} bytes, so that socket names fit",
        spool.display()
    );
    std::fs::create_dir_all(spool)
        .and_then(|()| keep_to_ourselves(spool))
        .with_context(|| format!("SlurmdSpoolDir {}", spool.display()))?;
    let path = spool.join("noded.lock");
    let lock = std::fs::OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .custom_flags(libc::O_NOFOLLOW)
        .open(&path)
        .with_context(|| path.display().to_string())?;
    crate::sys::lock_file(lock.as_fd())
        .with_context(|| format!("{}: another agent serves this node", path.display()))?;
    Ok(lock)
}

/// Refuses a directory in which others could put or move something: the agent writes there as root.
fn keep_to_ourselves(spool: &Path) -> std::io::Result<()> {
    let found = std::fs::metadata(spool)?;
    if found.uid() != nix::unistd::geteuid().as_raw() {
        let text = format!(
            "it belongs to uid {}, and not to the agent's user",
            found.uid()
        );
        return Err(std::io::Error::other(text));
    }
    let mode = found.mode() & 0o7777;
    if mode & 0o022 == 0 {
        return Ok(());
    }
    log::warn!("{}: others may not write there any more", spool.display());
    std::fs::set_permissions(spool, std::fs::Permissions::from_mode(mode & !0o022))
}

async fn serve(options: AgentOptions, found: Found) -> anyhow::Result<()> {
    let (events, mut inbox) = mpsc::unbounded_channel();
    let mut agent = Agent::new(options, events.clone());
    let quotas = quota::Quotas::new(agent.uid, descriptor_limit::raise());
    agent.found = found;
    daemons::standing::remove_doors(&agent.options.spool_dir);
    listener::listen(&agent.options.spool_dir, &quotas, events.clone())?;
    shim_link::keep(agent.options.clone(), events.clone());
    controller::keep(agent.options.clone(), events);
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
    let spool = &agent.options.spool_dir;
    for path in [info::agent_socket(spool), info::agent_door(spool)] {
        let _ = std::fs::remove_file(path);
    }
    Ok(())
}

/// All state of the agent.
struct Agent {
    options: AgentOptions,
    events: mpsc::UnboundedSender<Event>,
    started: Timestamp,
    /// The user that it runs as.
    uid: u32,
    settings: NodeSettings,
    machine: Machine,
    site_binding: SiteBinding,
    stopping: bool,
    controller: Option<Outlet>,
    shim: Option<ShimOutlet>,
    /// Frames for the shim and the controller that this burst brought.
    to_shim: Vec<u8>,
    to_controller: Vec<u8>,
    /// Orders that came before the shim had told what it knows.
    waiting: Vec<muster_proto::node::Orders>,
    /// Dials that wait for that.
    dialed: Vec<(ByteVec, oneshot::Sender<Vec<u8>>)>,
    /// The shim has told what it knows.
    synced: bool,
    /// One that had done so is gone: the next one knows nothing of steps that is news.
    has_lost_a_shim: bool,
    jobs: Jobs,
    /// Launches that wait until the last holder of their share is gone.
    queued: VecDeque<Run>,
    /// Launches that wait for something else.
    delayed: HashSet<Run>,
    reports: Reports,
    /// Scripts and contexts of this connection.
    blobs: HashMap<BlobId, Rc<Vec<u8>>>,
    contexts: Contexts,
    /// Contexts that the shim has.
    shim_contexts: HashSet<BlobId>,
    scripts: Scripts,
    /// Scripts to remove when the jobs that run them are forgotten.
    stale_scripts: HashSet<BlobId>,
    users: Users,
    steps: lead::Steps,
    node_steps: step_node::NodeSteps,
    endings: step_tree::Endings,
    daemons: daemons::Daemons,
    peers: Peers,
    /// Who waits for a list of processes of whose job.
    inspections: HashMap<u64, (u32, listener::Wish, mpsc::UnboundedSender<AgentReply>)>,
    next_tag: u64,
    health: health::Checks,
    found: Found,
    samples: sampling::Samples,
    /// Lists of processes that were asked for to take samples.
    sampled_runs: HashMap<u64, Run>,
}

impl Agent {
    fn new(options: AgentOptions, events: mpsc::UnboundedSender<Event>) -> Agent {
        Agent {
            scripts: Scripts::new(&options.spool_dir),
            machine: Machine::read(&options),
            site_binding: SiteBinding::default(),
            options,
            events,
            started: crate::now(),
            uid: nix::unistd::geteuid().as_raw(),
            settings: NodeSettings::default(),
            stopping: false,
            controller: None,
            shim: None,
            to_shim: Vec::new(),
            to_controller: Vec::new(),
            waiting: Vec::new(),
            dialed: Vec::new(),
            synced: false,
            has_lost_a_shim: false,
            jobs: Jobs::default(),
            queued: VecDeque::new(),
            delayed: HashSet::new(),
            reports: Reports::new(crate::now()),
            blobs: HashMap::new(),
            contexts: Contexts::default(),
            shim_contexts: HashSet::new(),
            stale_scripts: HashSet::new(),
            users: Users::default(),
            steps: lead::Steps::default(),
            node_steps: step_node::NodeSteps::default(),
            endings: step_tree::Endings::default(),
            daemons: daemons::Daemons::default(),
            peers: Peers::keeping(),
            inspections: HashMap::new(),
            next_tag: 0,
            health: health::Checks::default(),
            found: Found::default(),
            samples: sampling::Samples::default(),
            sampled_runs: HashMap::new(),
        }
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Dialed(key, reply) => {
                self.dialed.push((key, reply));
                self.greet();
            }
            Event::Welcome(settings, outlet) => self.welcomed(*settings, outlet),
            Event::Controller(message) => self.controller_said(*message),
            Event::Orders(orders) => self.ordered(*orders),
            Event::ControllerLost => self.controller = None,
            Event::ShimUp(outlet) => self.shim_up(outlet),
            Event::Shim(message) => self.shim_said(*message),
            Event::ShimLost => {
                self.shim = None;
                self.has_lost_a_shim |= self.synced;
                self.synced = false;
            }
            Event::DaemonSaid(id) => {
                self.hear_daemon(id);
            }
            Event::Request {
                asker,
                request,
                streams,
                reply,
            } => self.asked(asker, *request, streams, reply),
            Event::Closed(conn) => self.closed(conn),
            Event::NodeStarted(key, position, result) => self.node_started(key, position, result),
            Event::EndsTold(told) => self.ends_told(told),
            Event::StillWaiting(conn) => self.still_waiting(conn),
            Event::StopDue(run) => self.stop_due(run),
            Event::GroupsFound(user, groups) => self.groups_found(user, groups),
            Event::Sampled(run, now) => self.was_sampled(run, now),
            Event::Measured(tag, now) => self.measured(tag, now),
            Event::LaunchAgain(run) => self.begin_delayed(run),
            Event::GaveUp(wait) => self.gave_up(wait),
            Event::ReportsWaited => self.reports.waited(),
            Event::HealthCheckDue => self.check_health(),
            Event::HealthChecked => self.health.checked(),
            Event::SampleDue => self.sample_due(),
        }
    }

    /// Greets the controller, once it is known which jobs are here.
    fn greet(&mut self) {
        if self.synced && !self.dialed.is_empty() {
            for (key, reply) in std::mem::take(&mut self.dialed) {
                // Nobody waits any more if the connection broke meanwhile.
                let _ = reply.send(self.greeting(key));
            }
        }
    }

    fn welcomed(&mut self, settings: NodeSettings, outlet: Outlet) {
        log::info!("node {} is connected to its controller", self.options.name);
        self.controller = Some(outlet);
        self.to_controller.clear();
        // It sends what later orders refer to once more.
        self.blobs.clear();
        self.contexts = Contexts::default();
        for id in std::mem::take(&mut self.shim_contexts) {
            self.shim_order(&ToShim::DropContext(id));
        }
        self.drop_unused_scripts();
        self.apply_settings(settings);
        self.reports.send_all_again();
    }

    fn apply_settings(&mut self, settings: NodeSettings) {
        self.site_binding = SiteBinding::new(&settings.cpu_bind);
        self.settings = settings;
        self.recall_all_orders();
        self.tell_waits();
        let wanted = self.settings.health_check.clone();
        self.health.configure(wanted, &self.events);
        self.sample_all();
    }

    fn tell_waits(&mut self) {
        // Before the first welcome the shim keeps its own default.
        if self.settings.kill_wait_s > 0 {
            let ms = u64::from(self.settings.kill_wait_s) * 1000;
            self.shim_order(&ToShim::KillWait(ms));
            self.shim_order(&ToShim::Unkillable {
                timeout_ms: u64::from(self.settings.unkillable_timeout_s) * 1000,
                program: self.settings.unkillable_program.clone(),
            });
        }
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
            ToNode::Settings(settings) => self.apply_settings(*settings),
        }
    }

    fn shim_order(&mut self, order: &ToShim) {
        if self.shim.is_some() {
            frame::encode_into(order, &mut self.to_shim);
        }
    }

    /// The same with descriptors, which the shim finds with the order.
    fn shim_order_with(&mut self, order: &ToShim, with: OfUser) {
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
                let _ = controller.send(std::mem::take(&mut self.to_controller));
            }
        }
    }
}
