//! The controller process: reads the configuration, recovers the state, starts the threads, serves, stops.

use crate::accounting::{Accounting, READERS};
use crate::accounting_events;
use crate::answer;
use crate::audit;
use crate::changes::Changes;
use crate::clear;
use crate::client_timeouts::ClientTimeouts;
use crate::clock;
use crate::clock::now;
use crate::configuration::{Read, Source};
use crate::debug_level;
use crate::disk::DiskReserve;
use crate::durable::{self, Durable};
use crate::forecaster::Forecaster;
use crate::listeners::Listeners;
use crate::mail::{ToReplica, ToWriter};
use crate::network::{
    self, GivenConfiguration, HttpPages, NetworkArrival, NetworkSettings, NodeAddresses, Verifier,
};
use crate::node_trust::NodeTrust;
use crate::notify::Notify;
use crate::peer::RequestOrigin;
use crate::priority;
use crate::program_settings::ProgramSettings;
use crate::programs::mail_accounting::MailAccounting;
use crate::programs::{self, Programs};
use crate::quarantine::Quarantine;
use crate::quota::{Users, raise_descriptors};
use crate::rate_limit::RateLimit;
use crate::replica::Replica;
use crate::server;
use crate::shared::{self, Shared};
use crate::snapshots::Snapshots;
use crate::stats::Stats;
use crate::sys;
use crate::verifier::LoadedVerifiers;
use crate::waiting::Waiting;
use crate::watchdog::{Pulses, ThreadHeartbeat, Watchdog};
use crate::webhooks::Webhooks;
use crate::writer::{Rebuild, Writer, WriterSetup, joining};
use crate::{failure, fault};
use anyhow::{Context, Result};
use log::{error, info, warn};
use muster_acct::{Follower, History, Reader};
use muster_channel::admission::FairQueue;
use muster_closer::passed;
use muster_conf::endpoint::controller_socket;
use muster_core::state::State;
use muster_journal::Log as _;
use muster_model::command::{Identity, KeptPartitions};
use muster_model::ids::JobId;
use muster_model::spec::JobKind;
use muster_model::trigger::{TriggerEvents, TriggerReport};
use muster_proto::client::daemon_socket;
use std::collections::HashMap;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::net::UnixListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, oneshot};

/// Rows that may wait for the accounting store.
const ACCOUNTING_ROOM: usize = 1 << 20;
/// Time that a controller that stops waits for agents to take its messages.
const LINKS_WAIT: Duration = Duration::from_secs(5);
/// Time that clients wait at a start until the configuration is in force. One for which the disk has no room comes
/// later; the state that is there can be read meanwhile.
const LONGEST_CONFIGURATION: Duration = Duration::from_secs(5);

/// Start options of a controller.
#[derive(Clone, Debug)]
pub struct Options {
    /// slurm.conf.
    pub conf: PathBuf,
    /// Cancel every job, and forget reservations, triggers, and states of nodes and partitions.
    pub clear: bool,
    /// Leave these jobs out of the state that is recovered: the controller could not go on with them.
    pub without_jobs: Vec<JobId>,
    /// Time limits of clients.
    pub patience: ClientTimeouts,
    /// Opens the log file anew.
    pub reopen_log: fn() -> io::Result<()>,
}

/// Runs a controller until it is stopped. `pages` makes its pages for HTTP; `ready` is called when clients can connect.
///
/// # Errors
/// When the configuration, the state or the socket cannot be used. Nothing is changed in the state then.
pub fn run(options: &Options, pages: HttpPages, ready: impl FnOnce()) -> Result<()> {
    fault::arm_by_environment();
    sys::keep_descriptors();
    let source = Source::new(&options.conf);
    let read = source.read()?;
    let dir = durable::make_directory(&read)?;
    let verifiers = LoadedVerifiers::start(&read.verifiers).map_err(anyhow::Error::msg)?;
    let durable = Durable::open(dir, &read, &options.without_jobs)?;
    let trust = durable.trust.clone();
    let keys = durable.keys.clone();
    let core = Core::build(&read, durable)?;
    let configured = core.send_first_commands(&read, options.clear);
    let socket = controller_socket(
        &read.config.paths.slurmctld_pid_file,
        *read.config.slurmctld_ports.start(),
    );
    let users = Users::new(
        raise_descriptors(),
        RateLimit::new(read.config.rate_limits),
        Arc::clone(&core.stats),
    );
    passed::start().context("cannot start thread to close what users send")?;
    let front = Front::open(&read, &core, &socket, (&trust, pages))?;
    let shared = Shared::new(shared::SharedSetup {
        keys,
        stats: core.stats,
        accounting: core.accounting,
        writer: core.to_writer.clone(),
        replica: core.to_replica,
        config: source,
        admins: read.cluster.admin_uids.clone(),
        unheld: core.unheld,
        more_debug: debug_level::above(read.config.slurmctld_debug),
        slurm_user: read.config.slurm_user.clone(),
        pulses: core.pulses.clone(),
        users,
        patience: options.patience,
        refuses_descriptors: front.refuses_descriptors,
        node_addresses: core.node_addresses,
        given: front.given,
        trust,
        network: NetworkSettings::of(&read.config),
        verifier: front.verifier,
        verifiers: verifiers.pools(),
        classes: read.classes,
        site_options: read.site_options,
    });
    audit::start().context("cannot start thread for the audit log")?;
    let bound = Duration::from_secs(read.config.timeouts.slurmctld_s);
    start_watchdog(&core.pulses, &core.follower, bound)?;
    // No backup has had control meanwhile: there is none.
    let started = TriggerEvents::CONTROLLER_RESUMES.with(TriggerEvents::CONTROLLER_CONTROLS);
    let _ = (core.to_writer).send(ToWriter::Trigger(TriggerReport::Happened(started)));
    let (follower, to_writer) = (Arc::downgrade(&core.follower), core.to_writer.clone());
    accounting_events::watch(follower, ACCOUNTING_ROOM, to_writer)
        .context("cannot start thread for events of accounting")?;
    let threads = start_threads(core.writer, core.writer_inbox, core.replica)?;
    let ready = || {
        Notify::from_environment().send("READY=1");
        ready();
    };
    let served = serve(
        Rc::new(shared),
        (front.listeners, front.network),
        &socket,
        options.reopen_log,
        configured,
        ready,
    );
    // From here on the watchdog sees to it that this comes to an end.
    failure::stopping();
    Notify::from_environment().send("STOPPING=1");
    programs::triggers::stop();
    let _ = core.to_writer.send(ToWriter::Stop { nodes: false });
    drop(core.to_writer);
    for thread in threads {
        let _ = thread.join();
    }
    finish_accounting(core.follower);
    for socket in [daemon_socket(&socket), socket] {
        let _ = fs::remove_file(&socket);
    }
    served
}

/// The writer and the replica before their threads run, and what others need of them.
struct Core {
    to_writer: Sender<ToWriter>,
    writer_inbox: Receiver<ToWriter>,
    writer: Writer,
    to_replica: Sender<ToReplica>,
    replica: Replica,
    follower: Arc<Follower>,
    accounting: Accounting,
    stats: Arc<Stats>,
    pulses: Pulses,
    node_addresses: NodeAddresses,
    /// Allocations that clients held when the controller stopped, with their owners.
    unheld: HashMap<JobId, u32>,
}

impl Core {
    /// Both go on from the state that was recovered.
    fn build(read: &Read, durable: Durable) -> Result<Core> {
        let (to_writer, writer_inbox) = channel();
        let (to_replica, replica_inbox) = channel();
        let recovered = durable.recovered;
        let position = recovered.log.last_position();
        clock::start(&durable.dir, &recovered.state);
        let stats = Arc::new(Stats::default());
        let follower = Follower::start(durable.store, ACCOUNTING_ROOM);
        let follower = Arc::new(follower.context("cannot start thread for accounting")?);
        let unheld = interactive(&recovered.state);
        let programs = Programs::start(
            ProgramSettings::read(&read.config),
            &recovered.state,
            to_writer.clone(),
            mail_accounting(durable.reader.as_ref(), &follower)?,
        );
        let (webhooks, notices) =
            Webhooks::start(&durable.dir, &recovered.state, position, durable.missed)
                .context("cannot start thread for webhooks")?;
        let replica = Replica {
            webhooks,
            state: recovered.state.clone(),
            position,
            inbox: replica_inbox,
            follower: Arc::clone(&follower),
            accounting: read.config.accounting,
            keys: durable.keys.clone(),
            stats: Arc::clone(&stats),
            config: read.answer.clone(),
            started: now(),
            counted_since: now(),
            waiting: Waiting::default(),
            changes: Changes::new(position),
            programs: programs.context("cannot start thread for the site's programs")?,
            snapshots: Snapshots::new(
                recovered.pace,
                durable.has_left_out,
                to_writer.clone(),
                Arc::clone(&follower),
                notices,
                Arc::clone(&stats),
            ),
            forecaster: Forecaster::start(to_replica.clone())
                .context("cannot start thread for forecasts")?,
            questions: FairQueue::default(),
            head: answer::ListingHead::default(),
            rows: answer::Rows::default(),
            pulse: Arc::new(ThreadHeartbeat::new("replica")),
        };
        let pulses = Pulses {
            writer: Arc::new(ThreadHeartbeat::new("writer")),
            replica: Arc::clone(&replica.pulse),
            server: Arc::new(ThreadHeartbeat::new("event loop")),
            network: Arc::new(ThreadHeartbeat::new("network")),
        };
        let node_addresses = NodeAddresses::default();
        node_addresses.configure(&read.config);
        let (begun, stored) = (Instant::now(), Arc::clone(&follower));
        let writer = Writer::new(WriterSetup {
            state: recovered.state,
            log: Box::new(recovered.log),
            replica: to_replica.clone(),
            keys: durable.keys,
            stats: Arc::clone(&stats),
            accounted: Box::new(move || stored.stored()),
            reserve: DiskReserve::new(durable.dir.clone()),
            stopwatch: Box::new(move || begun.elapsed()),
        })
        .rebuilt_by(copy_of_replica(to_replica.clone()))
        .with_quarantine(Quarantine::new(&durable.dir))
        .watched_by(Arc::clone(&pulses.writer));
        let accounting = start_accounting(durable.reader, &follower, &stats)?;
        stats.set_durable(position);
        Ok(Core {
            to_writer,
            writer_inbox,
            writer: joining::with_addresses(writer, node_addresses.clone()),
            to_replica,
            replica,
            follower,
            accounting,
            stats,
            pulses,
            node_addresses,
            unheld,
        })
    }

    /// The configuration, and the end of all that an earlier controller left if that is ordered (`slurmctld -c`). The
    /// returned channel answers once the configuration is in force for reads as well.
    fn send_first_commands(&self, read: &Read, clear: bool) -> oneshot::Receiver<()> {
        let (done, configured) = oneshot::channel();
        let _ = self.to_writer.send(ToWriter::Configure {
            config: Arc::clone(&read.cluster),
            settings: Box::new(read.settings.clone()),
            keep: match clear {
                true => KeptPartitions::File,
                false => KeptPartitions::All,
            },
            done: Some(done),
        });
        if clear {
            for command in clear::commands(&self.replica.state, now()) {
                let (reply, _) = oneshot::channel();
                let _ = self.to_writer.send(ToWriter::User {
                    identity: Identity {
                        user: "root".to_owned(),
                        ..Identity::default()
                    },
                    command: Box::new(command),
                    reply: reply.into(),
                });
            }
        }
        configured
    }
}

/// Accounting for mails about jobs.
fn mail_accounting(reader: Option<&Reader>, follower: &Arc<Follower>) -> Result<MailAccounting> {
    let own = reader.map(Reader::another).transpose()?;
    let history = own.map(|reader| Box::new(reader) as Box<dyn History>);
    Ok(MailAccounting::new(history, follower))
}

/// Starts the threads that answer sacct.
fn start_accounting(
    reader: Option<Reader>,
    follower: &Arc<Follower>,
    stats: &Arc<Stats>,
) -> Result<Accounting> {
    let Some(reader) = reader else {
        return Ok(Accounting::disabled());
    };
    let durable = Arc::clone(stats);
    let position = Box::new(move || durable.durable());
    let mut readers: Vec<Box<dyn History>> = Vec::new();
    for _ in 1..READERS {
        readers.push(Box::new(reader.another()?));
    }
    readers.push(Box::new(reader));
    Accounting::start(readers, &Arc::downgrade(follower), position)
        .context("cannot start threads for sacct")
}

/// Where clients, agents and other hosts connect.
struct Front {
    listeners: Listeners,
    /// The kernel refuses descriptors that clients send.
    refuses_descriptors: bool,
    given: GivenConfiguration,
    /// The verifier of connections from other hosts.
    verifier: Option<Arc<dyn Verifier>>,
    network: Option<mpsc::Receiver<NetworkArrival>>,
}

impl Front {
    fn open(
        read: &Read,
        core: &Core,
        socket: &Path,
        (trust, pages): (&NodeTrust, HttpPages),
    ) -> Result<Front> {
        // Threads end with this function then, which is not why it ends.
        let listeners = Listeners::open(socket).inspect_err(|_| failure::stopping())?;
        let given = GivenConfiguration::default();
        given.set(read.given.clone());
        let setup = network::prepare(&read.config, &core.node_addresses, &given, trust)
            .inspect_err(|_| failure::stopping())?;
        let verifier = setup.as_ref().map(|setup| Arc::clone(&setup.verifier));
        let network = setup
            .map(|setup| {
                let cluster = read.cluster.cluster_name.clone();
                network::start(setup, pages, cluster, Arc::clone(&core.pulses.network))
            })
            .transpose()
            .context("cannot start thread for the network")?;
        let refused = listeners.refuse_descriptors();
        if let Err(e) = &refused {
            info!(
                "this kernel cannot refuse descriptors that clients send ({e}); they are closed as they come"
            );
        }
        Ok(Front {
            listeners,
            refuses_descriptors: refused.is_ok(),
            given,
            verifier,
            network,
        })
    }
}

/// Ends the process if a thread does not go on.
fn start_watchdog(pulses: &Pulses, follower: &Arc<Follower>, bound: Duration) -> Result<()> {
    // Not a strong reference: the thread that stops the controller must be the last to have one.
    let watched = Arc::downgrade(follower);
    let ended = move || {
        let ended = watched
            .upgrade()
            .is_some_and(|follower| follower.has_ended());
        ended.then(|| "accounting has stopped".to_owned())
    };
    let watchdog = Watchdog {
        pulses: pulses.all(),
        checks: vec![Box::new(ended)],
        bound,
        notify: Notify::from_environment(),
    };
    watchdog
        .start()
        .context("cannot start thread for the watchdog")
}

fn start_threads(
    writer: Writer,
    inbox: Receiver<ToWriter>,
    replica: Replica,
) -> Result<[JoinHandle<()>; 2]> {
    let writer = failure::spawn_essential("writer", move || {
        priority::urgent();
        writer.run(&inbox)
    });
    let replica = failure::spawn_essential("replica", move || {
        priority::urgent();
        replica.run()
    });
    Ok([
        writer.context("cannot start thread for the writer")?,
        replica.context("cannot start thread for the replica")?,
    ])
}

/// Writes what accounting lacks, as far as there is time.
fn finish_accounting(follower: Arc<Follower>) {
    match Arc::try_unwrap(follower) {
        Ok(follower) => follower
            .shutdown(Duration::from_secs(10))
            .unwrap_or_else(|e| warn!("{e}")),
        Err(_) => warn!("accounting is still in use; what it lacks follows from the journal"),
    }
}

/// Gives the writer the replica's state, which is the one as of the last commit.
fn copy_of_replica(replica: Sender<ToReplica>) -> Rebuild {
    Box::new(move || {
        let (answer, copied) = channel();
        replica.send(ToReplica::Copy { answer }).ok()?;
        copied.recv().ok().map(|copy| *copy.state)
    })
}

/// Allocations that a client held when the controller stopped.
fn interactive(state: &State) -> HashMap<JobId, u32> {
    let open = state
        .jobs
        .values()
        .filter(|job| job.spec.kind == JobKind::Allocation && job.spec.interactive)
        .filter(|job| !job.state.is_ended());
    open.map(|job| (job.id, job.spec.owner.uid)).collect()
}

/// Logs to a new file: the old one was moved away (slurmctld(8), SIGUSR2).
fn reopen(reopen_log: fn() -> io::Result<()>, signal: &str) {
    match reopen_log() {
        Ok(()) => info!("{signal}: the log file was opened anew"),
        Err(e) => error!("{signal}: {e}; messages still go to the old file"),
    }
}

fn serve(
    shared: Rc<Shared>,
    (listeners, network): (Listeners, Option<mpsc::Receiver<NetworkArrival>>),
    socket: &Path,
    reopen_log: fn() -> io::Result<()>,
    configured: oneshot::Receiver<()>,
    ready: impl FnOnce(),
) -> Result<()> {
    priority::urgent();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .on_thread_start(priority::usual)
        .build()
        .context("cannot start the event loop")?;
    let local = tokio::task::LocalSet::new();
    local.block_on(&runtime, async {
        let users = UnixListener::from_std(listeners.users).context("cannot listen")?;
        let daemons = UnixListener::from_std(listeners.daemons).context("cannot listen")?;
        // Everyone may connect; what each may do is decided by who they are.
        fs::set_permissions(socket, fs::Permissions::from_mode(0o666))
            .with_context(|| format!("cannot open {} to users", socket.display()))?;
        let mut term = signal(SignalKind::terminate()).context("cannot catch SIGTERM")?;
        let mut int = signal(SignalKind::interrupt()).context("cannot catch SIGINT")?;
        let mut usr2 = signal(SignalKind::user_defined2()).context("cannot catch SIGUSR2")?;
        let mut hup = signal(SignalKind::hangup()).context("cannot catch SIGHUP")?;
        let (user, version) = (nix::unistd::geteuid(), env!("CARGO_PKG_VERSION"));
        info!(
            "muster {version} runs as uid {user} and listens on {}",
            socket.display()
        );
        // Earlier requests would be answered by the rights of the last configuration, or of none.
        let _ = tokio::time::timeout(LONGEST_CONFIGURATION, configured).await;
        ready();
        let accepting = server::accept(Rc::clone(&shared), users, daemons, network);
        tokio::pin!(accepting);
        loop {
            tokio::select! {
                () = &mut accepting => break,
                _ = term.recv() => {
                    info!("SIGTERM: the controller stops");
                    break;
                }
                _ = int.recv() => {
                    info!("SIGINT: the controller stops");
                    break;
                }
                _ = usr2.recv() => reopen(reopen_log, "SIGUSR2"),
                _ = hup.recv() => {
                    reopen(reopen_log, "SIGHUP");
                    let root = Identity { user: "root".to_owned(), ..Identity::default() };
                    let reply = shared.reconfigure(&root, RequestOrigin::default()).await;
                    info!("SIGHUP: the configuration was read again: {reply:?}");
                }
            }
        }
        shared.stop(false);
        // The writer ends after its last turn, and with it what links wait for: by then an agent has been written its
        // acknowledgements, and whether it is to stop.
        if tokio::time::timeout(LINKS_WAIT, shared.links.closed())
            .await
            .is_err()
        {
            warn!("some agents do not take what they are sent; the controller stops all the same");
        }
        Ok(())
    })
}
