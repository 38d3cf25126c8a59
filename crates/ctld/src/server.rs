//! The controller's socket and what all connections share. One thread serves them all; the work is done by the
//! writer, the replica and the accounting reader.

use crate::accounting::Accounting;
use crate::audit::Entry;
use crate::configuration;
use crate::connection::{self, Peer};
use crate::debug_level;
use crate::executor::Executor;
use crate::failure;
use crate::identity::Directory;
use crate::keys::Keys;
use crate::links::Links;
use crate::mail::{ToReplica, ToWriter};
use crate::passed;
use crate::patience::Patience;
use crate::programs::ProgramSettings;
use crate::quota::{Agents, Share, Users};
use crate::stats::Stats;
use crate::watchdog::{Doing, Pulses};
use log::{error, warn};
use muster_core::policy::access::role_of;
use muster_core::state::State;
use muster_model::command::{Identity, Reply};
use muster_model::ids::JobId;
use muster_model::refusal::{Refusal, RefusalCode};
use muster_model::rights::{self, Request, Role};
use muster_proto::client::Response;
use muster_proto::frame;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::Sender;
use std::time::Duration;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Notify, oneshot};

/// How long after a restart the holder of an interactive allocation has to come back.
const RETURN: Duration = Duration::from_secs(60);

/// A thread that has been at one piece of work for longer than this does not answer as far as `scontrol ping` goes.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often the event loop shows that it goes round.
const BEAT: Duration = Duration::from_secs(1);

/// State that all connections share.
pub(crate) struct Shared {
    pub(crate) keys: Keys,
    pub(crate) stats: Arc<Stats>,
    pub(crate) directory: Rc<Directory>,
    pub(crate) accounting: Accounting,
    writer: Sender<ToWriter>,
    replica: Sender<ToReplica>,
    config: crate::configuration::Source,
    admins: RefCell<Vec<u32>>,
    generation: Cell<u64>,
    stopping: Cell<bool>,
    stopped: Notify,
    /// Allocations whose holder has not come back since the controller started.
    unheld: RefCell<HashMap<JobId, Identity>>,
    /// Levels that the log was started above what the configuration says (`-v`).
    more_debug: usize,
    pulses: Pulses,
    users: Rc<Users>,
    pub(crate) agents: Rc<Agents>,
    pub(crate) links: Rc<Links>,
    pub(crate) patience: Patience,
    /// The kernel refuses descriptors that are sent to the socket.
    refuses_descriptors: bool,
}

/// The parts of a server.
pub(crate) struct Parts {
    pub(crate) keys: Keys,
    pub(crate) stats: Arc<Stats>,
    pub(crate) accounting: Accounting,
    pub(crate) writer: Sender<ToWriter>,
    pub(crate) replica: Sender<ToReplica>,
    pub(crate) config: crate::configuration::Source,
    pub(crate) admins: Vec<u32>,
    pub(crate) unheld: HashMap<JobId, Identity>,
    pub(crate) more_debug: usize,
    pub(crate) pulses: Pulses,
    pub(crate) users: Rc<Users>,
    pub(crate) patience: Patience,
    pub(crate) refuses_descriptors: bool,
}

impl Shared {
    /// Puts it together.
    pub(crate) fn new(parts: Parts) -> Shared {
        Shared {
            keys: parts.keys,
            stats: parts.stats,
            directory: Rc::default(),
            accounting: parts.accounting,
            writer: parts.writer,
            replica: parts.replica,
            config: parts.config,
            admins: RefCell::new(parts.admins),
            generation: Cell::new(0),
            stopping: Cell::new(false),
            stopped: Notify::new(),
            unheld: RefCell::new(parts.unheld),
            more_debug: parts.more_debug,
            pulses: parts.pulses,
            users: parts.users,
            agents: Rc::default(),
            links: Rc::default(),
            patience: parts.patience,
            refuses_descriptors: parts.refuses_descriptors,
        }
    }

    /// Looks at the state that acknowledged commands have made.
    ///
    /// # Errors
    /// When the controller stops.
    pub(crate) async fn look<T: Send + 'static>(
        &self,
        look: impl FnOnce(&State) -> T + Send + 'static,
    ) -> io::Result<T> {
        let (answer, seen) = oneshot::channel();
        let look = move |state: &State| drop(answer.send(look(state)));
        self.to_replica(ToReplica::Look(Box::new(look)))?;
        seen.await.map_err(|_| gone())
    }

    /// The role of the client. Root and `SlurmUser` are known without a look at the state.
    ///
    /// # Errors
    /// When the controller stops.
    pub(crate) async fn role(&self, identity: &Identity) -> io::Result<Role> {
        if identity.uid == 0 {
            return Ok(Role::Root);
        }
        if self.admins.borrow().contains(&identity.uid) {
            return Ok(Role::SlurmUser);
        }
        let identity = identity.clone();
        self.look(move |state| role_of(state, &identity)).await
    }

    /// Whether someone's role suffices for a request; the audit log gets a line if not.
    ///
    /// # Errors
    /// When the controller stops.
    pub(crate) async fn may(
        &self,
        identity: &Identity,
        request: Request,
        pid: u32,
    ) -> io::Result<Result<Entry, Refusal>> {
        let role = self.role(identity).await?;
        let entry = Entry::new(role, identity, request, pid);
        if request.least().role().is_some_and(|least| role >= least) {
            return Ok(Ok(entry));
        }
        let refusal = rights::denied(request);
        entry.refused(&refusal);
        Ok(Err(refusal))
    }

    /// To the writer.
    ///
    /// # Errors
    /// When the controller stops.
    pub(crate) fn to_writer(&self, message: ToWriter) -> io::Result<()> {
        self.writer.send(message).map_err(|_| gone())
    }

    /// To the replica.
    ///
    /// # Errors
    /// When the controller stops.
    pub(crate) fn to_replica(&self, message: ToReplica) -> io::Result<()> {
        self.replica.send(message).map_err(|_| gone())
    }

    /// A number for a new node connection.
    pub(crate) fn next_generation(&self) -> u64 {
        self.generation.set(self.generation.get() + 1);
        self.generation.get()
    }

    /// Stops the controller, and the node agents if asked.
    pub(crate) fn stop(&self, nodes: bool) {
        if !self.stopping.replace(true) {
            failure::stopping();
            let _ = self.writer.send(ToWriter::Stop { nodes });
            self.stopped.notify_one();
        }
    }

    /// Whether it stops: then closing connections mean nothing.
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.get()
    }

    /// The quotas in use, by user.
    pub(crate) fn users(&self) -> &Rc<Users> {
        &self.users
    }

    /// Whether the kernel refuses descriptors that clients send.
    pub(crate) fn refuses_descriptors(&self) -> bool {
        self.refuses_descriptors
    }

    /// Why the controller does not work, though it listens.
    pub(crate) fn unwell(&self) -> Option<String> {
        self.pulses.unwell(PATIENCE)
    }

    /// The holder of an allocation came back.
    pub(crate) fn held_again(&self, job: JobId) {
        self.unheld.borrow_mut().remove(&job);
    }

    /// Reads slurm.conf again.
    pub(crate) async fn reconfigure(&self, identity: &Identity, pid: u32) -> Reply {
        let entry = match self.may(identity, Request::Reconfigure, pid).await {
            Ok(Ok(entry)) => entry,
            Ok(Err(refusal)) => return Reply::Refused(refusal),
            Err(_) => return Reply::Refused(RefusalCode::Busy.into()),
        };
        let reply = self.read_again().await;
        entry.replied(&reply);
        reply
    }

    async fn read_again(&self) -> Reply {
        let read = match self.config.read() {
            Ok(read) => read,
            Err(e) => {
                let detail = format!("the configuration stays as it is: {e:#}");
                return Reply::Refused(Refusal::new(RefusalCode::InvalidValue, detail));
            }
        };
        *self.admins.borrow_mut() = read.cluster.admin_uids.clone();
        self.users.rates.configure(read.config.rate_limits);
        if let Some(level) = debug_level::filter(read.config.slurmctld_debug, self.more_debug) {
            log::set_max_level(level);
        }
        let (done, applied) = oneshot::channel();
        let message = ToWriter::Configure {
            config: read.cluster,
            settings: Box::new(read.settings),
            keep: configuration::kept_partitions(&read.config),
            done: Some(done),
        };
        let programs = Box::new(ProgramSettings::read(&read.config));
        let _ = self.replica.send(ToReplica::Programs(programs));
        let _ = self.replica.send(ToReplica::Config(Box::new(read.answer)));
        if self.writer.send(message).is_err() || applied.await.is_err() {
            return Reply::Refused(RefusalCode::Busy.into());
        }
        Reply::Done {
            changed: 1,
            refused: Vec::new(),
        }
    }

    /// The changes that reading slurm.conf again would make.
    ///
    /// # Errors
    /// For those who may not reconfigure, and for files with errors.
    pub(crate) async fn differences(
        &self,
        identity: &Identity,
        pid: u32,
    ) -> Result<Vec<String>, Refusal> {
        let may = self.may(identity, Request::Differences, pid).await;
        may.map_err(|_| Refusal::from(RefusalCode::Busy))??;
        let read = self.config.read().map_err(|e| {
            let detail = format!("the configuration would not be taken: {e:#}");
            Refusal::new(RefusalCode::InvalidValue, detail)
        })?;
        let (answer, lines) = oneshot::channel();
        let message = ToReplica::Compare {
            cluster: read.cluster,
            pairs: read.answer.pairs,
            answer,
        };
        let busy = || Refusal::from(RefusalCode::Busy);
        self.replica.send(message).map_err(|_| busy())?;
        let mut all = read.warnings;
        all.extend(lines.await.map_err(|_| busy())?);
        Ok(all)
    }

    async fn give_up_unheld(&self) {
        tokio::time::sleep(RETURN).await;
        let left: Vec<_> = self.unheld.borrow_mut().drain().collect();
        for (job, owner) in left {
            warn!(
                "job {job}: nobody holds this allocation since the controller restarted, it ends"
            );
            self.cancel(owner, job);
        }
    }
}

fn gone() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionAborted, "the controller stops")
}

/// The client, and its share of the user's quota. A client with too many connections is refused with a message.
fn admit(shared: &Shared, stream: &UnixStream) -> Option<(Peer, Share)> {
    let cred = stream.peer_cred().ok()?;
    let (uid, gid) = (cred.uid(), cred.gid());
    let pid = cred.pid().and_then(|pid| u32::try_from(pid).ok());
    let peer = Peer {
        uid,
        gid,
        pid: pid.unwrap_or(0),
    };
    // Agents are root's or SlurmUser's.
    if uid == 0 || shared.admins.borrow().contains(&uid) {
        return Some((peer, shared.users.unlimited()));
    }
    match shared.users.connect(uid) {
        Ok(share) => Some((peer, share)),
        Err(over) => {
            shared.users.held_back(uid, &over, None);
            let refusal = Refusal::new(RefusalCode::Busy, over.to_string());
            // A new socket takes as much.
            let _ = stream.try_write(&frame::encode(&Response::Refused(refusal)));
            None
        }
    }
}

/// Closes a connection that is not served.
fn close(shared: &Shared, stream: UnixStream) {
    let uid = stream.peer_cred().map(|peer| peer.uid());
    if let (Ok(uid), Ok(stream)) = (uid, stream.into_std())
        && !shared.refuses_descriptors
    {
        passed::close(uid, stream.into());
    }
}

/// Accepts connections until it is stopped: of users, and of daemons, for which root and SlurmUser have a socket of their own.
pub(crate) async fn accept(shared: Rc<Shared>, users: UnixListener, daemons: UnixListener) {
    let waiter = Rc::clone(&shared);
    tokio::task::spawn_local(async move { waiter.give_up_unheld().await });
    let server = Arc::clone(&shared.pulses.server);
    tokio::task::spawn_local(async move {
        loop {
            server.begin(Doing::Serving);
            tokio::time::sleep(BEAT).await;
        }
    });
    // Not in what connections share: they would keep each other.
    let executor = Rc::new(Executor::default());
    let running = Rc::clone(&executor);
    let run = async move { running.run().await };
    let mut running = tokio::task::spawn_local(tokio::task::unconstrained(run));
    loop {
        let accepted = async {
            tokio::select! {
                // A daemon that waits here comes first. There is one connection of each agent.
                biased;
                daemon = daemons.accept() => daemon,
                user = users.accept() => user,
            }
        };
        tokio::select! {
            ended = &mut running => failure::end_process(&format!("no user is served any more: {ended:?}")),
            () = shared.stopped.notified() => return,
            accepted = accepted => match accepted {
                Ok((stream, _)) => {
                    let Some((who, share)) = admit(&shared, &stream) else {
                        close(&shared, stream);
                        continue;
                    };
                    let (shared, uid) = (Rc::clone(&shared), share.uid());
                    let serve = async move {
                        shared.stats.connections.fetch_add(1, Relaxed);
                        connection::serve(Rc::clone(&shared), stream, who, share).await;
                        shared.stats.connections.fetch_sub(1, Relaxed);
                    };
                    match uid {
                        Some(uid) => executor.spawn(uid, serve),
                        None => drop(tokio::task::spawn_local(serve)),
                    }
                }
                Err(e) => {
                    // Out of file descriptors: connections that close make room; the backlog waits meanwhile.
                    error!("cannot accept a connection: {e}");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            },
        }
    }
}
