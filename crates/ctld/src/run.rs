//! The controller process: reads the configuration, recovers the state, starts the threads, serves, stops.

use crate::accounting::Accounting;
use crate::answer;
use crate::audit;
use crate::changes::Changes;
use crate::clock;
use crate::clock::now;
use crate::configuration::{Read, Source};
use crate::debug_level;
use crate::disk::Reserve;
use crate::fair_queue::FairQueue;
use crate::forecaster::Forecaster;
use crate::keys::Keys;
use crate::mail::{ToReplica, ToWriter};
use crate::network::{
    self, Arrival, GivenConfiguration, HttpPages, NetworkSettings, NodeAddresses,
};
use crate::node_trust::NodeTrust;
use crate::notify::Notify;
use crate::patience::Patience;
use crate::priority;
use crate::program_settings::ProgramSettings;
use crate::programs::Programs;
use crate::quarantine::Quarantine;
use crate::quota::{Users, raise_descriptors};
use crate::rate_limit::RateLimit;
use crate::recover::{self, Opened, Recovered, Without};
use crate::replica::Replica;
use crate::server;
use crate::shared::{self, Shared};
use crate::stats::Stats;
use crate::sys;
use crate::verifier::Tried;
use crate::waiting::Waiting;
use crate::watchdog::{Pulse, Pulses, Watchdog};
use crate::writer::{Parts, Rebuild, Writer, joining};
use crate::{failure, fault};
use anyhow::{Context, Result, bail};
use log::{error, info, warn};
use muster_acct::{Follower, NoStore, Reader, SqliteStore, Store, changes};
use muster_closer::passed;
use muster_conf::endpoint::controller_socket;
use muster_core::state::State;
use muster_journal::{DirStorage, Log};
use muster_model::command::{Identity, JobSelection, KeptPartitions, UserCommand};
use muster_model::ids::JobId;
use muster_proto::client::daemon_socket;
use std::collections::HashMap;
use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};
use tokio::net::UnixListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

/// Rows that may wait for the accounting store.
const ACCOUNTING_ROOM: usize = 1 << 20;
/// Rows written at once while accounting catches up at start.
const CATCH_UP: usize = 8192;

/// How long a controller that stops waits for agents to take what it has sent them.
const LINKS_WAIT: Duration = Duration::from_secs(5);

/// Connections that wait to be accepted, of users.
const BACKLOG: i32 = 512;
/// The same of agents, of which each has one: as many as the kernel allows by default
/// (net.core.somaxconn).
const DAEMONS_BACKLOG: i32 = 4096;

/// How a controller is started.
#[derive(Clone, Debug)]
pub struct Options {
    /// slurm.conf.
    pub conf: PathBuf,
    /// Cancel every job that is found in the queue.
    pub clear: bool,
    /// Leave these jobs out of the state that is recovered: the controller could not go on with them.
    pub without_jobs: Vec<JobId>,
    /// How long clients may take.
    pub patience: Patience,
    /// Opens the log file anew.
    pub reopen_log: fn() -> io::Result<()>,
}

/// Runs a controller until it is stopped. `pages` makes what it says by HTTP; `ready` is called when clients can connect.
///
/// # Errors
/// When the configuration, the state or the socket cannot be used. Nothing is changed in the state then.
pub fn run(options: &Options, pages: HttpPages, ready: impl FnOnce()) -> Result<()> {
    fault::arm_by_environment();
    sys::keep_descriptors();
    let source = Source::new(&options.conf);
    let read = source.read()?;
    let dir = read.config.paths.state_save_location.clone();
    fs::create_dir_all(&dir).with_context(|| {
        format!(
            "cannot create StateSaveLocation {}; create it or change the setting",
            dir.display()
        )
    })?;
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o700))
        .with_context(|| format!("cannot protect {}", dir.display()))?;
    let verifiers = Tried::start(&read.verifiers).map_err(anyhow::Error::msg)?;
    // The journal's lock comes first: nothing of another controller's state is touched.
    let journal = open_journal(&dir, &read)?;
    let keys = Keys::open(&dir)?;
    let trust = NodeTrust::open(&dir, &read.config.cluster_name, keys.clone())?;
    let (mut store, reader) = open_store(&dir, read.config.accounting)?;
    let without = Without::jobs(options.without_jobs.iter().copied());
    let snapshot_now = !without.is_empty();
    let recovered = open_state(&dir, &read, store.as_mut(), journal, without)?;
    clock::start(&dir, &recovered.state);
    let stats = Arc::new(Stats::default());
    let (to_writer, writer_inbox) = channel();
    let (to_replica, replica_inbox) = channel();
    let follower = Follower::start(store, ACCOUNTING_ROOM).context("no thread for accounting")?;
    let follower = Arc::new(follower);
    let position = recovered.log.last_position();
    let stored = Arc::clone(&follower);
    let unheld = interactive(&recovered.state);
    let programs = Programs::start(
        ProgramSettings::read(&read.config),
        &recovered.state,
        to_writer.clone(),
    )
    .context("no thread for the site's programs")?;
    let replica = Replica {
        state: recovered.state.clone(),
        position,
        inbox: replica_inbox,
        writer: to_writer.clone(),
        follower: Arc::clone(&follower),
        accounting: read.config.accounting,
        keys: keys.clone(),
        stats: Arc::clone(&stats),
        config: read.answer.clone(),
        started: now(),
        counted_since: now(),
        waiting: Waiting::default(),
        changes: Changes::new(position),
        programs,
        pace: recovered.pace,
        snapshot_thread: None,
        forecaster: Forecaster::start(to_replica.clone()).context("no thread for forecasts")?,
        questions: FairQueue::default(),
        head: answer::Head::default(),
        rows: answer::Rows::default(),
        pulse: Arc::new(Pulse::new("replica")),
        snapshot_now,
    };
    let pulses = Pulses {
        writer: Arc::new(Pulse::new("writer")),
        replica: Arc::clone(&replica.pulse),
        server: Arc::new(Pulse::new("event loop")),
        network: Arc::new(Pulse::new("network")),
    };
    let node_addresses = NodeAddresses::default();
    node_addresses.configure(&read.config);
    let begun = Instant::now();
    let writer = Writer::new(Parts {
        state: recovered.state,
        log: Box::new(recovered.log),
        replica: to_replica.clone(),
        keys: keys.clone(),
        stats: Arc::clone(&stats),
        accounted: Box::new(move || stored.stored()),
        reserve: Reserve::new(dir.clone()),
        stopwatch: Box::new(move || begun.elapsed()),
    })
    .rebuilt_by(copy_of_replica(to_replica.clone()))
    .with_quarantine(Quarantine::new(&dir))
    .watched_by(Arc::clone(&pulses.writer));
    let writer = joining::with_addresses(writer, node_addresses.clone());
    let _ = to_writer.send(ToWriter::Configure {
        config: Arc::clone(&read.cluster),
        settings: Box::new(read.settings.clone()),
        keep: KeptPartitions::All,
        done: None,
    });
    if options.clear {
        let (reply, _) = tokio::sync::oneshot::channel();
        let selection = JobSelection::default();
        let _ = to_writer.send(ToWriter::User {
            identity: Identity {
                user: "root".to_owned(),
                ..Identity::default()
            },
            command: Box::new(UserCommand::Cancel { selection }),
            reply: reply.into(),
        });
    }
    let accounting = match reader {
        Some(reader) => {
            let durable = Arc::clone(&stats);
            let position = Box::new(move || durable.durable());
            Accounting::start(Box::new(reader), Arc::downgrade(&follower), position)
                .context("no thread for sacct")?
        }
        None => Accounting::disabled(),
    };
    stats.set_durable(position);
    let socket = controller_socket(
        &read.config.paths.slurmctld_pid_file,
        *read.config.slurmctld_ports.start(),
    );
    let admins = read.cluster.admin_uids.clone();
    let users = Users::new(
        raise_descriptors(),
        RateLimit::new(read.config.rate_limits),
        Arc::clone(&stats),
    );
    passed::start().context("no thread to close what users send")?;
    // Threads end with this function then, which is not why it ends.
    let listeners = Listeners::open(&socket).inspect_err(|_| failure::stopping())?;
    let given = GivenConfiguration::default();
    given.set(read.given.clone());
    let setup = network::prepare(&read.config, &node_addresses, &given, &trust)
        .inspect_err(|_| failure::stopping())?;
    let verifier = setup.as_ref().map(|setup| Arc::clone(&setup.verifier));
    let network = setup
        .map(|setup| {
            let cluster = read.cluster.cluster_name.clone();
            network::start(setup, pages, cluster, Arc::clone(&pulses.network))
        })
        .transpose()
        .context("no thread for the network")?;
    let refuses_descriptors = match listeners.refuse_descriptors() {
        Ok(()) => true,
        Err(e) => {
            info!(
                "this kernel cannot refuse descriptors that clients send ({e}); they are closed as they come"
            );
            false
        }
    };
    let shared = Shared::new(shared::Parts {
        keys,
        stats,
        accounting,
        writer: to_writer.clone(),
        replica: to_replica,
        config: source,
        admins,
        unheld,
        more_debug: debug_level::above(read.config.slurmctld_debug),
        slurm_user: read.config.slurm_user.clone(),
        pulses: pulses.clone(),
        users,
        patience: options.patience,
        refuses_descriptors,
        node_addresses,
        given,
        trust,
        network: NetworkSettings::of(&read.config),
        verifier,
        verifiers: verifiers.pools(),
        classes: read.classes,
        site_options: read.site_options,
    });
    audit::start().context("no thread for the audit log")?;
    // Not a strong reference: the thread that stops the controller must be the last to have one.
    let watched = Arc::downgrade(&follower);
    let ended = move || {
        let ended = watched
            .upgrade()
            .is_some_and(|follower| follower.has_ended());
        ended.then(|| "accounting has stopped".to_owned())
    };
    let watchdog = Watchdog {
        pulses: pulses.all(),
        checks: vec![Box::new(ended)],
        bound: Duration::from_secs(read.config.timeouts.slurmctld_s),
        notify: Notify::from_environment(),
    };
    watchdog.start().context("no thread for the watchdog")?;
    let writer = failure::spawn_essential("writer", move || {
        priority::urgent();
        writer.run(&writer_inbox)
    })
    .context("no thread for the writer")?;
    let replica = failure::spawn_essential("replica", move || {
        priority::urgent();
        replica.run()
    })
    .context("no thread for the replica")?;
    let ready = || {
        Notify::from_environment().send("READY=1");
        ready();
    };
    let served = serve(
        Rc::new(shared),
        (listeners, network),
        &socket,
        options.reopen_log,
        ready,
    );
    // From here on the watchdog sees to it that this comes to an end.
    failure::stopping();
    Notify::from_environment().send("STOPPING=1");
    let _ = to_writer.send(ToWriter::Stop { nodes: false });
    drop(to_writer);
    for thread in [writer, replica] {
        let _ = thread.join();
    }
    match Arc::try_unwrap(follower) {
        Ok(follower) => follower
            .shutdown(Duration::from_secs(10))
            .unwrap_or_else(|e| warn!("{e}")),
        Err(_) => warn!("accounting is still in use; what it lacks follows from the journal"),
    }
    for socket in [daemon_socket(&socket), socket] {
        let _ = fs::remove_file(&socket);
    }
    served
}

/// Gives the writer the replica's state, which is the one as of the last commit.
fn copy_of_replica(replica: Sender<ToReplica>) -> Rebuild {
    Box::new(move || {
        let (answer, copied) = channel();
        replica.send(ToReplica::Copy { answer }).ok()?;
        copied.recv().ok().map(|state| *state)
    })
}

/// The accounting store, and who reads it. Where accounting is off, what there was of it stays as it is.
fn open_store(dir: &Path, on: bool) -> Result<(Box<dyn Store>, Option<Reader>)> {
    if !on {
        return Ok((Box::new(NoStore::default()), None));
    }
    let store = SqliteStore::open(&dir.join("accounting.db"))
        .context("the accounting store cannot be opened")?;
    let reader = store
        .reader()
        .context("the accounting store cannot be read")?;
    Ok((Box::new(store), Some(reader)))
}

/// Opens and locks the journal.
fn open_journal(dir: &Path, read: &Read) -> Result<Opened> {
    let journal = dir.join("journal");
    let storage = DirStorage::new(&journal);
    storage
        .make_dir()
        .with_context(|| format!("cannot create {}", journal.display()))?;
    let options = muster_journal::Options::default();
    recover::open(Arc::new(storage), &read.cluster.cluster_name, options)
}

/// Recovers the state, and writes to accounting what it lacks.
fn open_state(
    dir: &Path,
    read: &Read,
    store: &mut dyn Store,
    journal: Opened,
    without: Without,
) -> Result<Recovered> {
    let known = store.position();
    let mut missed = Vec::new();
    let mut reached = known;
    let mut written = Ok(());
    let recovered = journal.replay(without, |state, position, event| {
        if read.config.accounting && position > known && written.is_ok() {
            missed.extend(changes(state, event));
            reached = position;
            if missed.len() > CATCH_UP {
                written = store.write(&missed, reached);
                missed.clear();
            }
        }
    })?;
    if reached > known {
        info!("accounting catches up with {} events", reached - known);
        written
            .and_then(|()| store.write(&missed, reached))
            .context("accounting cannot catch up")?;
    }
    if read.config.accounting && !recovered.withdrawn.is_empty() {
        let withdrawn = recovered.withdrawn.iter().cloned();
        let changes: Vec<_> = withdrawn.map(|job| job.change(now())).collect();
        store
            .write(&changes, reached)
            .context("accounting cannot record which jobs were left out")?;
    }
    let last = recovered.log.last_position();
    if !read.config.accounting {
        // Nothing is owed to a store that keeps nothing.
        store.write(&[], last).context("accounting")?;
    }
    if known > last {
        bail!(
            "accounting.db knows events up to {known}, the journal ends at {last}: they do not belong together. \
             Restore the journal of {}, or move accounting.db away to begin a new history",
            dir.display()
        );
    }
    Ok(recovered)
}

/// Allocations that a client held when the controller stopped.
fn interactive(state: &State) -> HashMap<JobId, Identity> {
    let open = state
        .jobs
        .values()
        .filter(|job| job.spec.interactive && !job.state.is_ended());
    open.map(|job| {
        let owner = &job.spec.owner;
        let identity = Identity {
            uid: owner.uid,
            gid: owner.gid,
            user: owner.user.clone(),
            group: owner.group.clone(),
            ..Identity::default()
        };
        (job.id, identity)
    })
    .collect()
}

/// The sockets of the controller.
struct Listeners {
    users: std::os::unix::net::UnixListener,
    /// For agents, in a queue of their own: nobody but root and SlurmUser can connect there.
    daemons: std::os::unix::net::UnixListener,
}

impl Listeners {
    fn open(socket: &Path) -> Result<Listeners> {
        let users = listen(socket, BACKLOG)?;
        let path = daemon_socket(socket);
        let daemons = listen(&path, DAEMONS_BACKLOG)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600))
            .with_context(|| format!("cannot close {} to users", path.display()))?;
        Ok(Listeners { users, daemons })
    }

    /// Has the kernel refuse descriptors at both: connections are read as if none came then, and an agent may be somebody
    /// else's by now.
    fn refuse_descriptors(&self) -> nix::Result<()> {
        muster_closer::refuse_descriptors(&self.users)?;
        muster_closer::refuse_descriptors(&self.daemons)
    }
}

fn listen(socket: &Path, backlog: i32) -> Result<std::os::unix::net::UnixListener> {
    // The journal's lock is held: whatever socket is there belongs to a controller that is gone.
    let _ = fs::remove_file(socket);
    if let Some(dir) = socket.parent() {
        let mut builder = fs::DirBuilder::new();
        builder
            .recursive(true)
            .mode(0o755)
            .create(dir)
            .with_context(|| format!("cannot create {}", dir.display()))?;
    }
    let listener = std::os::unix::net::UnixListener::bind(socket)
        .with_context(|| format!("cannot listen on {}", socket.display()))?;
    // Everybody waits for all who are in this queue. Beyond it each process waits in its own call, one connection of each
    // thread, and is let in as it came.
    nix::sys::socket::listen(&listener, nix::sys::socket::Backlog::new(backlog)?)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
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
    (listeners, network): (Listeners, Option<mpsc::Receiver<Arrival>>),
    socket: &Path,
    reopen_log: fn() -> io::Result<()>,
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
                    let reply = shared.reconfigure(&root, 0).await;
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

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::socket::{ControlMessage, MsgFlags, UnixAddr, sendmsg};
    use std::io::IoSlice;
    use std::os::fd::AsRawFd as _;
    use std::os::unix::net::UnixStream;

    /// The sockets of daemons took them, and the event loop closed what came by them: it waited as long as a sender wanted.
    #[test]
    fn neither_socket_takes_descriptors() {
        let dir = std::env::temp_dir().join(format!("muster-listeners-{}", std::process::id()));
        let socket = dir.join("socket");
        let listeners = Listeners::open(&socket).unwrap();
        if let Err(e) = listeners.refuse_descriptors() {
            eprintln!("this kernel has no SO_PASSRIGHTS ({e}); this test looked at nothing");
            return;
        }
        for path in [daemon_socket(&socket), socket] {
            let client = UnixStream::connect(&path).unwrap();
            let rights = [client.as_raw_fd()];
            let control = [ControlMessage::ScmRights(&rights)];
            let bytes = [IoSlice::new(b"x")];
            let flags = MsgFlags::empty();
            let sent = sendmsg::<UnixAddr>(client.as_raw_fd(), &bytes, &control, flags, None);
            assert_eq!(sent, Err(nix::errno::Errno::EPERM), "{}", path.display());
        }
        fs::remove_dir_all(&dir).unwrap();
    }
}
