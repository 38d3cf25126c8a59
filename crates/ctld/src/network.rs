//! Connections from other hosts. A thread of its own accepts them, has credentials verified, and gives the event loop the
//! same kind of connection as this host's own clients have: a Unix socket with a known user. The thread carries its bytes to
//! the other host and back, encrypted ([`muster_channel`]).
//!
//! Who connects is a stranger until the credential is verified: strangers are bounded in number, bytes and time, and wait
//! only for each other.

mod carried;
mod configuration;
mod http;
mod joining;
mod names;
mod setup;
mod turns;

pub(crate) use configuration::{GivenConfiguration, read_given, version_of};
pub use http::{HttpAnswer, HttpPages};
pub(crate) use setup::{NO_USER_TOKENS, NetworkSettings, NetworkSetup, NodeAddresses, prepare};

use crate::failure;
use crate::node_trust::{NodeTrust, refusal_of_other};
use crate::peer::{NodeProof, Origin, Peer};
use crate::watchdog::{ThreadActivity, ThreadHeartbeat};
use carried::{CarriedBytes, CarriedConnection};
use log::{debug, info};
use muster_channel::admission::{ByteCount, StrangerBounds};
use muster_channel::relay::{FirstMessage, confirmed, read_beginning};
use muster_channel::server::{ChannelServer, IdentifiedConnection, Log};
use muster_channel::{Opening, Purpose, Responder, SECRET, Scheme, UnconfirmedChannel};
use muster_model::refusal::Refusal;
use muster_proto::frame;
use muster_proto::hello::{ChannelAnswer, ChannelHello};
use muster_proto::version::Versions;
use names::{LOOKUPS_MAX, Names};
use std::any::Any;
use std::cell::RefCell;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use turns::{LookupPermits, TURNS_MAX};

/// Strangers at a time.
const STRANGERS: StrangerBounds = StrangerBounds {
    all: 1024,
    of_address: 256,
};
/// Time limit for a stranger to prove its identity.
const STRANGER_MAX: Duration = Duration::from_secs(10);
/// Verified connections that the event loop has not taken yet.
const ARRIVALS_MAX: usize = 256;
/// Refusal of a user's token whose signature is not this controller's.
const FOREIGN_TOKEN: &str = "the token (SLURM_JWT) was made with another key, or was changed: get a new one by 'scontrol token'";
/// Where lines about connections go.
const LOG: Log = Log {
    refused: |line| info!("{line}"),
    failed: |line| debug!("network: {line}"),
};
/// Interval at which the thread shows that it goes round.
const BEAT: Duration = Duration::from_secs(1);

/// The subject of a credential.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CredentialSubject {
    /// The one that made it.
    Account { uid: u32, gid: u32 },
    /// A name within it, which is looked up once the other side has proved that it has all of it.
    Named(String),
}

/// The contents of a credential, if its sender knows its secret.
pub(crate) struct Verified {
    maker: CredentialSubject,
    /// The subject that the maker speaks for.
    purpose: Purpose,
    /// The secret that the maker and this controller share.
    secret: [u8; SECRET],
    /// The node whose own key it was made with.
    by_node: Option<String>,
}

/// The user that asks for a token of a user.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TokenAsker {
    pub(crate) uid: u32,
    /// Whether the right suffices for tokens of others.
    pub(crate) may_for_others: bool,
}

/// Verifies credentials of connections.
pub(crate) trait Verifier: Send + Sync {
    /// Verifies a credential. May take long, but ends.
    ///
    /// # Errors
    /// It proves nothing; the text says why, and what to do.
    fn verify(&self, scheme: Scheme, credential: &[u8]) -> Result<Verified, String>;

    /// The account of a user, and of his group. May take long, but ends.
    ///
    /// # Errors
    /// This host has no such user, or does not find out.
    fn find_account(&self, user: &str) -> Result<(u32, u32), String>;

    /// The address from which the agent of a node connects (`NodeAddr`); none if there is no such node, or if its address is not
    /// known yet.
    fn node_address(&self, node: &str) -> Option<String>;

    /// Whether other nodes have the same.
    fn shares_address(&self, node: &str) -> bool;

    /// Makes a token for a user, by name, or for the one who asks.
    ///
    /// # Errors
    /// There are no such tokens here, or none for that user.
    fn make_user_token(
        &self,
        asker: TokenAsker,
        user: Option<&str>,
        lifespan_s: Option<u32>,
    ) -> Result<String, Refusal>;

    /// Reads keys anew. If they cannot be used, those before remain.
    ///
    /// # Errors
    /// They cannot be used; the text says why, and what to do.
    fn reload(&self) -> Result<(), String>;
}

/// A connection from another host, whose user is known.
#[derive(Debug)]
pub(crate) struct NetworkArrival {
    /// This host's end of it.
    pub(crate) stream: UnixStream,
    pub(crate) peer: Peer,
    /// Where it comes from.
    pub(crate) origin: Origin,
}

/// A peer that has proved its identity.
enum Identified {
    /// A connection for the event loop.
    Arrival(NetworkArrival),
    /// This host's end of the connection of a host that gets the configuration.
    Host(UnixStream),
}

/// Starts the thread. Gives where connections arrive.
pub(crate) fn start(
    NetworkSetup {
        listeners,
        verifier,
        configuration,
        has_metrics,
        has_http,
        trust,
    }: NetworkSetup,
    pages: HttpPages,
    cluster: String,
    pulse: Arc<ThreadHeartbeat>,
) -> io::Result<mpsc::Receiver<NetworkArrival>> {
    let (arrivals, arrived) = mpsc::channel(ARRIVALS_MAX);
    for listener in &listeners {
        listener.set_nonblocking(true)?;
    }
    failure::spawn_essential("network", move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(TURNS_MAX + 2 * LOOKUPS_MAX + http::MADE_MAX)
            .build();
        let runtime = runtime.map_err(|e| format!("no event loop: {e}"))?;
        let local = tokio::task::LocalSet::new();
        let network = Rc::new(Network {
            cluster,
            verifier,
            configuration,
            arrivals,
            server: ChannelServer::new(STRANGERS, STRANGER_MAX, LOG),
            turns: LookupPermits::new(STRANGERS.all),
            names: Rc::new(Names::new()),
            has_metrics,
            has_http,
            pages,
            making: Semaphore::new(http::MADE_MAX),
            kept: RefCell::default(),
            trust,
            tries: RefCell::default(),
            carried: CarriedBytes::new(),
        });
        local.block_on(&runtime, network.run(listeners, &pulse))
    })?;
    Ok(arrived)
}

struct Network {
    cluster: String,
    verifier: Arc<dyn Verifier>,
    configuration: GivenConfiguration,
    arrivals: mpsc::Sender<NetworkArrival>,
    server: Rc<ChannelServer>,
    /// Turns of asking the verifier.
    turns: LookupPermits,
    names: Rc<Names>,
    /// Whether everybody gets metrics (`MetricsType`).
    has_metrics: bool,
    /// Whether requests of HTTP are answered at all.
    has_http: bool,
    pages: HttpPages,
    making: Semaphore,
    kept: RefCell<http::KeptPages>,
    /// Keys of nodes.
    trust: NodeTrust,
    /// Attempts to join without a token.
    tries: RefCell<joining::FailedTries>,
    /// Bytes that are kept of users' connections.
    carried: Rc<CarriedBytes>,
}

impl Network {
    /// Accepts connections until the event loop takes none any more.
    async fn run(
        self: Rc<Network>,
        listeners: Vec<std::net::TcpListener>,
        pulse: &ThreadHeartbeat,
    ) -> Result<(), String> {
        for listener in listeners {
            let network = Rc::clone(&self);
            let listener = TcpListener::from_std(listener).map_err(|e| e.to_string())?;
            failure::spawn_essential_task("network accept", async move {
                let server = Rc::clone(&network.server);
                let identify = |_, tcp, from| {
                    let network = Rc::clone(&network);
                    async move { network.meet(tcp, from).await }
                };
                server.accept(listener, identify).await;
            });
        }
        let arrivals = self.arrivals.clone();
        loop {
            pulse.begin(ThreadActivity::Serving);
            tokio::select! {
                () = arrivals.closed() => {
                    pulse.rest();
                    return Ok(());
                }
                () = tokio::time::sleep(BEAT) => {}
            }
        }
    }

    /// Finds out who connects, and hands the connection to the event loop. Requests of HTTP are answered.
    async fn meet(
        self: &Rc<Network>,
        mut tcp: TcpStream,
        from: SocketAddr,
    ) -> Result<Option<IdentifiedConnection>, String> {
        tcp.set_nodelay(true).map_err(|e| e.to_string())?;
        let opening = match read_beginning(&mut tcp).await? {
            FirstMessage::Channel(opening) => opening,
            FirstMessage::Http(_) if !self.has_http => {
                return Err("it speaks HTTP, which is not answered here (disable_http)".to_owned());
            }
            FirstMessage::Http(bytes) => {
                self.serve_http(&mut tcp, bytes, from).await?;
                return Ok(None);
            }
        };
        if opening.scheme == Scheme::Join {
            self.admit_node(&mut tcp, &opening, from).await?;
            return Ok(None);
        }
        match self.identify(&opening, from).await {
            Ok((identified, local, answer, channel)) => {
                let sent = tcp.write_all(&answer).await;
                sent.map_err(|e| e.to_string())?;
                let channel = confirmed(&mut tcp, channel).await?;
                let mut carried = None;
                match identified {
                    Identified::Arrival(arrival) => {
                        carried = self.count_carried(arrival.peer.uid);
                        let taken = self.arrivals.send(arrival).await;
                        taken.map_err(|_| "the controller stops".to_owned())?;
                    }
                    Identified::Host(stream) => self.configuration.give(stream)?,
                }
                let (share, bytes) = carried.unzip();
                Ok(Some(IdentifiedConnection {
                    local,
                    remote: tcp,
                    channel,
                    share: share.map(|share| Box::new(share) as Box<dyn Any>),
                    bytes,
                }))
            }
            Err(why) => {
                // It may have gone.
                let _ = tcp.write_all(&Responder::refusal(&why)).await;
                let _ = tcp.shutdown().await;
                Err(why)
            }
        }
    }

    /// A connection of a user who has a limit: agents are root's or SlurmUser's.
    fn count_carried(&self, uid: u32) -> Option<(CarriedConnection, ByteCount)> {
        let has_limit = uid != 0 && uid != nix::unistd::geteuid().as_raw();
        has_limit.then(|| self.carried.connect(uid))
    }

    async fn identify(
        self: &Rc<Network>,
        opening: &Opening,
        from: SocketAddr,
    ) -> Result<
        (
            Identified,
            tokio::net::UnixStream,
            Vec<u8>,
            UnconfirmedChannel,
        ),
        String,
    > {
        let verified = self.verify(opening, from.ip()).await?;
        let accepted = Responder::accept(opening, &verified.secret);
        let (responder, hello) = accepted.map_err(|e| match (opening.scheme, &verified.by_node) {
            (Scheme::Jwt, _) => FOREIGN_TOKEN.to_owned(),
            (_, Some(node)) => {
                self.trust.count_refused(node);
                format!("node {node} has another key here than the one that was used: 'muster node join' there with a token for it")
            }
            _ => e.to_string(),
        })?;
        let (uid, gid) = self.account_of(&verified.maker, from.ip()).await?;
        let hello: ChannelHello =
            frame::decode(&hello).map_err(|e| format!("its greeting cannot be read: {e}"))?;
        Versions::CLUSTER
            .check(&hello.greeting, "the program there", "slurmctld")
            .map_err(|refusal| refusal.detail)?;
        let node = match &verified.purpose {
            Purpose::User => None,
            Purpose::Configuration => {
                self.configuration.check(uid, from.ip())?;
                None
            }
            Purpose::Node(name) if verified.by_node.is_none() && self.trust.is_pinned(name) => {
                self.trust.count_refused(name);
                return Err(refusal_of_other(name));
            }
            Purpose::Node(name) => {
                self.check_node(name, from.ip()).await?;
                Some(name.clone())
            }
        };
        let address = from.ip().to_canonical();
        let of_node = self.verifier.node_address(&hello.host);
        let host = match of_node.and_then(|known| known.parse::<IpAddr>().ok()) {
            // The configuration says so: nobody else need be asked. Of nodes that share an address the user says which it is.
            Some(known) if known == address && !self.verifier.shares_address(&hello.host) => {
                hello.host
            }
            _ => self.names.of_host(hello.host, address, uid).await,
        };
        let said = ChannelAnswer {
            greeting: Versions::CLUSTER.greeting(),
            cluster: self.cluster.clone(),
        };
        let said = frame::encode(&said);
        let said = said.get(4..).unwrap_or_default();
        let (answer, channel) = responder.answer(said).map_err(|e| e.to_string())?;
        let pair = || {
            let (near, far) = UnixStream::pair()?;
            near.set_nonblocking(true)?;
            far.set_nonblocking(true)?;
            Ok::<_, io::Error>((near, tokio::net::UnixStream::from_std(far)?))
        };
        let (stream, local) = pair().map_err(|e| e.to_string())?;
        if verified.purpose == Purpose::Configuration {
            return Ok((Identified::Host(stream), local, answer, channel));
        }
        let arrival = NetworkArrival {
            stream,
            peer: Peer { uid, gid, pid: 0 },
            origin: Origin {
                host: Some(host),
                address: Some(from.ip().to_canonical()),
                node,
                proof: match opening.scheme {
                    Scheme::Node => NodeProof::OwnKey,
                    Scheme::Slurm => NodeProof::Slurm,
                    _ => NodeProof::Munge,
                },
                is_vouched_for: verified.by_node.is_some(),
            },
        };
        Ok((Identified::Arrival(arrival), local, answer, channel))
    }

    /// Has the credential verified.
    async fn verify(&self, opening: &Opening, from: IpAddr) -> Result<Verified, String> {
        let (scheme, credential) = (opening.scheme, opening.credential.clone());
        self.ask(from, move |verifier| verifier.verify(scheme, &credential))
            .await
    }

    async fn account_of(
        &self,
        maker: &CredentialSubject,
        from: IpAddr,
    ) -> Result<(u32, u32), String> {
        match maker {
            CredentialSubject::Account { uid, gid } => Ok((*uid, *gid)),
            CredentialSubject::Named(user) => {
                let user = user.clone();
                self.ask(from, move |verifier| verifier.find_account(&user))
                    .await
            }
        }
    }

    /// Has the verifier asked something that may take long, after others of the same address and in turn with those of other
    /// addresses.
    async fn ask<A: Send + 'static>(
        &self,
        from: IpAddr,
        question: impl FnOnce(&dyn Verifier) -> Result<A, String> + Send + 'static,
    ) -> Result<A, String> {
        let verifier = Arc::clone(&self.verifier);
        self.turns.run(from, move || question(&*verifier)).await
    }

    /// Whether the agent of a node may connect from an address.
    async fn check_node(&self, node: &str, from: IpAddr) -> Result<(), String> {
        let address = self.verifier.node_address(node);
        // Whether an unknown node may join, the writer decides, by the node's greeting.
        let Some(address) = address else {
            return Ok(());
        };
        let found = self.names.of_node(address.clone()).await;
        if found.contains(&from) {
            return Ok(());
        }
        let found: Vec<String> = found.iter().map(ToString::to_string).collect();
        let found = match found.is_empty() {
            true => "which leads to no address".to_owned(),
            false => format!("which is {}", found.join(", ")),
        };
        Err(format!(
            "node {node} connects from {from}, but its NodeAddr is {address}, {found}: correct NodeAddr in slurm.conf, or delete the node if no file names it"
        ))
    }
}
