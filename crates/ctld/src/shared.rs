//! State that all connections share.

use crate::accounting::Accounting;
use crate::archives::ArchiveRunner;
use crate::audit::Entry;
use crate::change_turns::ChangeTurns;
use crate::client_timeouts::ClientTimeouts;
use crate::configuration;
use crate::debug_level;
use crate::failure;
use crate::identity::Directory;
use crate::job_classes::SiteClasses;
use crate::keys::Keys;
use crate::links::Links;
use crate::mail::{ToReplica, ToWriter};
use crate::network::{GivenConfiguration, NetworkSettings, NodeAddresses, Verifier};
use crate::node_trust::NodeTrust;
use crate::peer::RequestOrigin;
use crate::program_settings::ProgramSettings;
use crate::quota::{Agents, Users};
use crate::stats::Stats;
use crate::verifier::{LoadedVerifiers, Pool};
use crate::watchdog::Pulses;
use log::warn;
use muster_conf::site_options::SiteOptions;
use muster_core::policy::access::role_of;
use muster_core::state::State;
use muster_model::command::{Identity, Reply};
use muster_model::ids::JobId;
use muster_model::refusal::{Refusal, RefusalCode};
use muster_model::rights::{AccessRequest, Role};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;
use tokio::sync::{Notify, oneshot};

/// Time after a restart in which the holder of an interactive allocation has to come back.
const RETURN: Duration = Duration::from_secs(60);

/// A thread that has been at one piece of work for longer than this does not answer as far as `scontrol ping` goes.
const PATIENCE: Duration = Duration::from_secs(5);

/// State that all connections share.
pub(crate) struct Shared {
    pub(crate) keys: Keys,
    pub(crate) stats: Arc<Stats>,
    pub(crate) directory: Rc<Directory>,
    pub(crate) accounting: Accounting,
    writer: Sender<ToWriter>,
    replica: Sender<ToReplica>,
    config: crate::configuration::Source,
    pub(crate) admins: RefCell<Vec<u32>>,
    generation: Cell<u64>,
    stopping: Cell<bool>,
    pub(crate) stopped: Notify,
    /// Allocations whose holder has not come back since the controller started.
    unheld: RefCell<HashMap<JobId, u32>>,
    /// Levels that the log was started above what the configuration says (`-v`).
    more_debug: usize,
    /// `SlurmUser`, as the controller was started.
    slurm_user: String,
    pub(crate) pulses: Pulses,
    pub(crate) users: Rc<Users>,
    pub(crate) agents: Rc<Agents>,
    pub(crate) links: Rc<Links>,
    pub(crate) patience: ClientTimeouts,
    /// The kernel refuses descriptors that are sent to the socket.
    pub(crate) refuses_descriptors: bool,
    /// From where agents on other hosts connect.
    pub(crate) node_addresses: NodeAddresses,
    /// The configuration that is given to hosts without one.
    pub(crate) given: GivenConfiguration,
    /// Keys of nodes.
    pub(crate) trust: NodeTrust,
    /// As the controller was started with.
    pub(crate) network: NetworkSettings,
    /// The verifier of connections from other hosts, if there are any.
    pub(crate) verifier: Option<Arc<dyn Verifier>>,
    /// The verifiers of submissions and changes of jobs, in order.
    verifiers: RefCell<Rc<[Rc<Pool>]>>,
    /// Changes of jobs that these are asked about.
    pub(crate) change_turns: ChangeTurns,
    /// Job classes of the site.
    classes: RefCell<Rc<SiteClasses>>,
    /// Options of the site's own.
    site_options: RefCell<Rc<SiteOptions>>,
    /// Archives of accounting.
    pub(crate) archives: Arc<ArchiveRunner>,
}

/// The parts of a server.
pub(crate) struct SharedSetup {
    pub(crate) keys: Keys,
    pub(crate) stats: Arc<Stats>,
    pub(crate) accounting: Accounting,
    pub(crate) writer: Sender<ToWriter>,
    pub(crate) replica: Sender<ToReplica>,
    pub(crate) config: crate::configuration::Source,
    pub(crate) admins: Vec<u32>,
    pub(crate) unheld: HashMap<JobId, u32>,
    pub(crate) more_debug: usize,
    pub(crate) slurm_user: String,
    pub(crate) pulses: Pulses,
    pub(crate) users: Rc<Users>,
    pub(crate) patience: ClientTimeouts,
    pub(crate) refuses_descriptors: bool,
    /// From where agents on other hosts connect.
    pub(crate) node_addresses: NodeAddresses,
    /// The configuration that is given to hosts without one.
    pub(crate) given: GivenConfiguration,
    /// Keys of nodes.
    pub(crate) trust: NodeTrust,
    /// As the controller was started with.
    pub(crate) network: NetworkSettings,
    /// The verifier of connections from other hosts, if there are any.
    pub(crate) verifier: Option<Arc<dyn Verifier>>,
    /// The verifiers of submissions and changes of jobs, in order.
    pub(crate) verifiers: Vec<Rc<Pool>>,
    /// Job classes of the site.
    pub(crate) classes: SiteClasses,
    /// Options of the site's own.
    pub(crate) site_options: SiteOptions,
}

impl Shared {
    /// Puts it together.
    pub(crate) fn new(parts: SharedSetup) -> Shared {
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
            slurm_user: parts.slurm_user,
            pulses: parts.pulses,
            users: parts.users,
            agents: Rc::default(),
            links: Rc::default(),
            patience: parts.patience,
            refuses_descriptors: parts.refuses_descriptors,
            node_addresses: parts.node_addresses,
            given: parts.given,
            trust: parts.trust,
            network: parts.network,
            verifier: parts.verifier,
            verifiers: RefCell::new(parts.verifiers.into()),
            change_turns: ChangeTurns::default(),
            classes: RefCell::new(Rc::new(parts.classes)),
            site_options: RefCell::new(Rc::new(parts.site_options)),
            archives: Arc::default(),
        }
    }

    /// The file that the configuration is read from.
    pub(crate) fn configuration_path(&self) -> &Path {
        self.config.path()
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
        self.to_replica(ToReplica::ReadState(Box::new(look)))?;
        seen.await.map_err(|_| gone())
    }

    /// The role of the client. Root and `SlurmUser` are known without a look at the state.
    ///
    /// # Errors
    /// When the controller stops.
    pub(crate) async fn role(&self, identity: &Identity) -> io::Result<Role> {
        if identity.is_ordinary {
            return Ok(Role::User);
        }
        if identity.uid == 0 {
            return Ok(Role::Root);
        }
        if self.admins.borrow().contains(&identity.uid) {
            return Ok(Role::SlurmUser);
        }
        let identity = identity.clone();
        self.look(move |state| role_of(state, &identity)).await
    }

    /// The line of the audit log of a request that is about the configuration.
    ///
    /// # Errors
    /// When the controller stops.
    async fn configuration_entry(
        &self,
        identity: &Identity,
        request: AccessRequest,
        place: RequestOrigin,
    ) -> io::Result<Entry> {
        let role = self.role(identity).await?;
        Ok(Entry::new(role, identity, request, place).about("configuration"))
    }

    /// The verifiers of submissions and changes of jobs, in order.
    pub(crate) fn verifiers(&self) -> Rc<[Rc<Pool>]> {
        Rc::clone(&self.verifiers.borrow())
    }

    /// Options of the site's own.
    pub(crate) fn site_options(&self) -> Rc<SiteOptions> {
        Rc::clone(&self.site_options.borrow())
    }

    /// Job classes of the site.
    pub(crate) fn classes(&self) -> Rc<SiteClasses> {
        Rc::clone(&self.classes.borrow())
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
            crate::programs::triggers::stop();
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
    pub(crate) async fn reconfigure(&self, identity: &Identity, place: RequestOrigin) -> Reply {
        let Ok(entry) = self
            .configuration_entry(identity, AccessRequest::Reconfigure, place)
            .await
        else {
            return Reply::Refused(RefusalCode::Busy.into());
        };
        let reply = match entry.denied() {
            Some(refusal) => Reply::Refused(refusal),
            None => self.read_again().await,
        };
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
        if read.config.slurm_user != self.slurm_user {
            let (now, other) = (&self.slurm_user, &read.config.slurm_user);
            let detail = format!(
                "the configuration stays as it is: SlurmUser={other} instead of {now} takes a restart of the controller"
            );
            return Reply::Refused(Refusal::new(RefusalCode::InvalidValue, detail));
        }
        let network = NetworkSettings::of(&read.config);
        if network != self.network {
            let detail = format!(
                "the configuration stays as it is: {} take a restart of the controller",
                NetworkSettings::KEYS
            );
            return Reply::Refused(Refusal::new(RefusalCode::InvalidValue, detail));
        }
        if let Some(Err(why)) = self.verifier.as_ref().map(|verifier| verifier.reload()) {
            let detail = format!("the configuration stays as it is: {why}");
            return Reply::Refused(Refusal::new(RefusalCode::InvalidValue, detail));
        }
        let wanted = read.verifiers.clone();
        let tried = tokio::task::spawn_blocking(move || LoadedVerifiers::start(&wanted)).await;
        let tried = match tried.unwrap_or_else(|e| Err(e.to_string())) {
            Ok(tried) => tried,
            Err(why) => {
                let detail = format!("the configuration stays as it is: {why}");
                return Reply::Refused(Refusal::new(RefusalCode::InvalidValue, detail));
            }
        };
        let before = self.verifiers.replace(tried.pools().into());
        before.iter().for_each(|pool| pool.close());
        self.classes.replace(Rc::new(read.classes));
        self.site_options.replace(Rc::new(read.site_options));
        self.node_addresses.configure(&read.config);
        self.given.set(read.given);
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
        place: RequestOrigin,
    ) -> Result<Vec<String>, Refusal> {
        let entry = self
            .configuration_entry(identity, AccessRequest::Differences, place)
            .await;
        let entry = entry.map_err(|_| Refusal::from(RefusalCode::Busy))?;
        if let Some(refusal) = entry.denied() {
            return Err(refusal);
        }
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

    /// Ends an allocation that lost its holder, a process of this user's. That is the controller's own doing: it is neither that
    /// user's right nor a request of that user's, but it takes that user's turn.
    pub(crate) fn end_unheld(&self, job: JobId, holder: u32) {
        let _ = self.to_writer(ToWriter::cancel(job, Some(holder)));
    }

    pub(crate) async fn give_up_unheld(&self) {
        tokio::time::sleep(RETURN).await;
        let left: Vec<_> = self.unheld.borrow_mut().drain().collect();
        for (job, owner) in left {
            warn!(
                "job {job}: nobody holds this allocation since the controller restarted, it ends"
            );
            self.end_unheld(job, owner);
        }
    }
}

fn gone() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionAborted, "the controller stops")
}
