//! Whether and where the controller listens for other hosts, by slurm.conf.

use super::{CredentialSubject, GivenConfiguration, TokenAsker, Verified, Verifier};
use crate::node_trust::NodeTrust;
use anyhow::{Context as _, Result};
use log::{info, warn};
use muster_channel::host::is_own;
use muster_channel::{KeepAlive, Purpose, Scheme, listen_everywhere};
use muster_conf::{AuthMethod, Authentication, Communication, Config, UserTokenSettings};
use muster_core::state::State;
use muster_model::refusal::{Refusal, RefusalCode};
use muster_model::rights::{self, AccessRequest};
use muster_trust::node_key::{NodeClaim, Speaker, now_s};
use muster_trust::proof::ProofVerifier;
use muster_trust::user_token::UserTokens;
use nix::unistd::{Uid, User, geteuid};
use std::collections::{HashMap, HashSet};
use std::io;
use std::net::{TcpListener, ToSocketAddrs as _};
use std::ops::RangeInclusive;
use std::sync::{Arc, PoisonError, RwLock};

/// Where agents of nodes connect from.
#[derive(Clone, Debug, Default)]
pub(crate) struct NodeAddresses(Arc<RwLock<ByName>>);

/// `NodeAddr` by the node's name.
#[derive(Debug, Default)]
struct ByName {
    /// Names of slurm.conf. They are replaced when that is read again.
    configured: HashMap<String, String>,
    /// Names of nodes that no file names, and of those that a host has taken. They are replaced when one comes or goes.
    dynamic: HashMap<String, String>,
}

impl NodeAddresses {
    /// Takes `NodeAddr` of all nodes of slurm.conf.
    pub(crate) fn configure(&self, config: &Config) {
        let nodes = config.nodes.iter();
        let now = nodes.map(|node| (node.name.clone(), node.addr.clone()));
        self.0
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .configured = now.collect();
    }

    /// Takes that of all nodes that no file names, or that a host has taken. One that was made before its address was known comes
    /// from anywhere.
    pub(crate) fn follow(&self, state: &State) {
        let nodes = state.nodes.iter();
        let known = nodes.filter(|node| {
            let is_made = node.config.dynamic && node.config.addr != node.config.name;
            !node.removed && (is_made || node.line_host.is_some())
        });
        let now = known.map(|node| (node.config.name.clone(), node.config.addr.clone()));
        self.0
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .dynamic = now.collect();
    }

    /// That of a node, if it has to come from there.
    pub(crate) fn of(&self, node: &str) -> Option<String> {
        let all = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let known = all.dynamic.get(node).or_else(|| all.configured.get(node));
        known.cloned()
    }

    /// Whether other nodes have the address of a node, too.
    pub(crate) fn is_shared(&self, node: &str) -> bool {
        let own = self.of(node);
        let all = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let mut others = all.configured.iter().chain(&all.dynamic);
        others.any(|(name, address)| name != node && Some(address) == own.as_ref())
    }
}

/// The settings of slurm.conf that the network keeps as long as the controller runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NetworkSettings {
    authentication: Authentication,
    user_tokens: Option<UserTokenSettings>,
    ports: RangeInclusive<u16>,
    has_metrics: bool,
    communication: Communication,
}

impl NetworkSettings {
    /// The keys that these are from.
    pub(crate) const KEYS: &str = "other values of AuthType, AuthInfo, AuthAltTypes, AuthAltParameters, CommunicationParameters, MetricsType and SlurmctldPort";

    /// The settings of a configuration.
    pub(crate) fn of(config: &Config) -> NetworkSettings {
        NetworkSettings {
            authentication: config.authentication(),
            user_tokens: config.user_tokens(),
            ports: config.slurmctld_ports.clone(),
            has_metrics: config.has_metrics(),
            communication: config.communication(),
        }
    }
}

/// Parameters of the network's thread.
pub(crate) struct NetworkSetup {
    pub(crate) listeners: Vec<TcpListener>,
    pub(crate) verifier: Arc<dyn Verifier>,
    pub(crate) configuration: GivenConfiguration,
    /// Everybody who can connect gets metrics.
    pub(crate) has_metrics: bool,
    /// Requests of HTTP are answered (not `disable_http`).
    pub(crate) has_http: bool,
    /// Keys of nodes.
    pub(crate) trust: NodeTrust,
}

/// Gets ready to serve other hosts; none if the cluster has no others, or says that nobody there is believed.
///
/// # Errors
/// A node is on another host and AuthType is given, and nothing could be believed that it says, or the port is taken.
pub(crate) fn prepare(
    config: &Config,
    addresses: &NodeAddresses,
    configuration: &GivenConfiguration,
    trust: &NodeTrust,
) -> Result<Option<NetworkSetup>> {
    let authentication = config.authentication();
    let other = remote_node(config);
    if authentication.method == AuthMethod::None
        && let Some(node) = other
    {
        info!(
            "node {node} is on another host: with AuthType=auth/none, hosts are believed that have keys of their own ('muster node token'), \
             and no others"
        );
    }
    let own_uid = geteuid().as_raw();
    let user_tokens = config
        .user_tokens()
        .map(|set| UserTokens::new(set, own_uid));
    let user_tokens = user_tokens
        .transpose()
        .context("AuthAltTypes=auth/jwt: tokens of users cannot be verified")?;
    // A cluster on one host that does not ask for it needs no munge.
    let is_given = config.raw.contains_key("AuthType");
    let is_needed = authentication.method != AuthMethod::None && (other.is_some() || is_given);
    let proofs = match is_needed {
        false => None,
        true => match (
            ProofVerifier::new(&authentication, &config.cluster_name),
            other,
        ) {
            (Ok(proofs), _) => Some(proofs),
            // Nodes with keys of their own need none of that.
            (Err(e), Some(node)) if is_given && !trust.is_used() => {
                return Err(e).with_context(|| unserved(node));
            }
            (Err(e), other) => {
                let other = other.unwrap_or("none");
                warn!(
                    "other hosts are served only if they have keys of their own (nodes on other hosts: {other}): {e:#}"
                );
                None
            }
        },
    };
    let has_metrics = config.has_metrics();
    let has_nodes = other.is_some() || config.limits.max_node_count > 0 || trust.is_used();
    if proofs.is_none() && user_tokens.is_none() && !has_metrics && !has_nodes {
        return Ok(None);
    }
    let is_asked_for = user_tokens.is_some() || has_metrics || other.is_some() && is_given;
    let listeners = match listen(config) {
        Ok(listeners) => listeners,
        Err(e) if is_asked_for => return Err(e).with_context(|| unserved(other.unwrap_or("none"))),
        Err(e) => {
            let other = other.unwrap_or("none");
            warn!("other hosts are not served (nodes on other hosts: {other}): {e:#}");
            return Ok(None);
        }
    };
    Ok(Some(NetworkSetup {
        listeners,
        configuration: configuration.clone(),
        has_metrics,
        has_http: !config.communication().without_http,
        trust: trust.clone(),
        verifier: Arc::new(ClusterVerifier {
            trust: trust.clone(),
            proofs,
            user_tokens,
            addresses: addresses.clone(),
            own_uid,
        }),
    }))
}

fn unserved(node: &str) -> String {
    format!("other hosts cannot be served (nodes on other hosts: {node})")
}

/// A node that is on another host.
fn remote_node(config: &Config) -> Option<&str> {
    let mut own: HashSet<&str> = HashSet::new();
    let mut nodes = config.nodes.iter();
    let remote = nodes.find(|node| {
        if own.contains(node.hostname.as_str()) {
            return false;
        }
        let is_here = is_own(&node.hostname) || is_own(&node.addr);
        if is_here {
            own.insert(&node.hostname);
        }
        !is_here
    });
    remote.map(|node| node.name.as_str())
}

/// Listens on each port of `SlurmctldPort`.
fn listen(config: &Config) -> Result<Vec<TcpListener>> {
    let mut listeners = Vec::new();
    let communication = config.communication();
    let keep_alive = KeepAlive {
        idle_s: communication.idle_s,
        interval_s: communication.interval_s,
        probes: communication.probes,
    };
    for port in config.slurmctld_ports.clone() {
        let listener = match communication.at_own_address {
            true => listen_at_own_address(config, port),
            false => listen_everywhere(port, communication.ipv6_only),
        };
        let listener =
            listener.with_context(|| format!("cannot listen on port {port} (SlurmctldPort)"))?;
        keep_alive.set_on(&listener)?;
        info!("other hosts are served at {}", listener.local_addr()?);
        listeners.push(listener);
    }
    Ok(listeners)
}

fn listen_at_own_address(config: &Config, port: u16) -> io::Result<TcpListener> {
    let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for host in &config.slurmctld {
        for address in (host.address(), port).to_socket_addrs()? {
            match TcpListener::bind(address) {
                Ok(listener) => return Ok(listener),
                Err(e) => last = e,
            }
        }
    }
    Err(last)
}

struct ClusterVerifier {
    /// By AuthType.
    proofs: Option<ProofVerifier>,
    /// By AuthAltTypes=auth/jwt.
    user_tokens: Option<UserTokens>,
    addresses: NodeAddresses,
    /// `SlurmUser`.
    own_uid: u32,
    /// Keys of nodes.
    trust: NodeTrust,
}

/// Refusal where there are no tokens of users.
pub(crate) const NO_USER_TOKENS: &str = "this cluster has no tokens of users: AuthAltTypes=auth/jwt in slurm.conf, and a key (AuthAltParameters=jwt_key=), make some";

impl ClusterVerifier {
    /// The owner of a token. Whether it was made here, the channel shows that begins with the secret.
    fn verify_user_token(&self, signed: &[u8]) -> Result<Verified, String> {
        let tokens = self.user_tokens.as_ref().ok_or(NO_USER_TOKENS)?;
        let (name, secret) = tokens.open(signed).map_err(|e| e.to_string())?;
        Ok(Verified {
            maker: CredentialSubject::Named(name),
            purpose: Purpose::User,
            secret,
            by_node: None,
        })
    }

    /// The user for whom a node with a key of its own speaks. That it has the key shows in the channel, which begins with a
    /// secret that only the key's owner can read.
    fn verify_claim(&self, credential: &[u8]) -> Result<Verified, String> {
        let claim = NodeClaim::decode(credential).map_err(|e| e.to_string())?;
        let secret = self.trust.secret_of_claim(&claim, now_s())?;
        let of_root = CredentialSubject::Account { uid: 0, gid: 0 };
        let (maker, purpose) = match claim.speaker {
            Speaker::Agent => (of_root, Purpose::Node(claim.node.clone())),
            Speaker::Configuration => (of_root, Purpose::Configuration),
            // A node is root's on its own host, and on no other.
            Speaker::User { uid, .. } if uid == 0 || uid == self.own_uid => {
                return Err(format!(
                    "root and SlurmUser of node {} are nobody here, since it has a key of its own: use the controller's host, or a token \
                     (SLURM_JWT)",
                    claim.node.escape_default()
                ));
            }
            Speaker::User { uid, gid } => (CredentialSubject::Account { uid, gid }, Purpose::User),
        };
        Ok(Verified {
            maker,
            purpose,
            secret,
            by_node: Some(claim.node),
        })
    }
}

impl Verifier for ClusterVerifier {
    fn verify(&self, scheme: Scheme, credential: &[u8]) -> Result<Verified, String> {
        if scheme == Scheme::Jwt {
            return self.verify_user_token(credential);
        }
        if scheme == Scheme::Node {
            return self.verify_claim(credential);
        }
        let proofs = self.proofs.as_ref().ok_or(
            "other hosts are served here only with keys of their own ('muster node token') or SLURM_JWT: see AuthType in slurm.conf",
        )?;
        let proved = proofs.verify(scheme, credential);
        let proved = proved.map_err(|e| e.to_string())?;
        Ok(Verified {
            maker: CredentialSubject::Account {
                uid: proved.uid,
                gid: proved.gid,
            },
            purpose: proved.statement.purpose,
            secret: proved.statement.secret,
            by_node: None,
        })
    }

    fn find_account(&self, user: &str) -> Result<(u32, u32), String> {
        let found = User::from_name(user).map_err(|e| format!("{user} is not looked up: {e}"))?;
        let found = found.ok_or_else(|| {
            format!("the token is for user '{user}', and the controller's host has no such user")
        })?;
        Ok((found.uid.as_raw(), found.gid.as_raw()))
    }

    fn reload(&self) -> Result<(), String> {
        if let Some(tokens) = &self.user_tokens {
            tokens.reload().map_err(|e| e.to_string())?;
        }
        match &self.proofs {
            Some(proofs) => proofs.reload().map_err(|e| e.to_string()),
            None => Ok(()),
        }
    }

    fn make_user_token(
        &self,
        asker: TokenAsker,
        user: Option<&str>,
        lifespan_s: Option<u32>,
    ) -> Result<String, Refusal> {
        let tokens = self.user_tokens.as_ref();
        let tokens = tokens.ok_or_else(|| invalid(NO_USER_TOKENS.to_owned()))?;
        let found = token_user(asker, user)?;
        let made = tokens.make(&found.name, lifespan_s, asker.may_for_others);
        made.map_err(|e| invalid(e.to_string()))
    }

    fn node_address(&self, node: &str) -> Option<String> {
        self.addresses.of(node)
    }

    fn shares_address(&self, node: &str) -> bool {
        self.addresses.is_shared(node)
    }
}

/// The user of whom a token is asked for.
fn token_user(asker: TokenAsker, user: Option<&str>) -> Result<User, Refusal> {
    let found = match user {
        Some(name) => User::from_name(name),
        None => User::from_uid(Uid::from_raw(asker.uid)),
    };
    let found = found.map_err(|e| invalid(format!("users are not looked up: {e}")))?;
    let is_asker = |found: &User| found.uid.as_raw() == asker.uid;
    let is_own = user.is_none() || found.as_ref().is_some_and(is_asker);
    // A user without the right to it does not learn whether there is such a user.
    if !asker.may_for_others && !is_own {
        return Err(rights::denied(AccessRequest::TokenOfOther));
    }
    found.ok_or_else(|| {
        let name = user.map_or_else(|| asker.uid.to_string(), str::to_owned);
        invalid(format!("the controller's host has no user '{name}'"))
    })
}

fn invalid(detail: String) -> Refusal {
    Refusal::new(RefusalCode::InvalidValue, detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A user could name any of several nodes with one address, for `AllocNodes`.
    #[test]
    fn addresses_that_nodes_share_are_known() {
        let addresses = NodeAddresses::default();
        let nodes = |all: &[(&str, &str)]| {
            let owned = |(name, address): &(&str, &str)| (name.to_string(), address.to_string());
            all.iter().map(owned).collect()
        };
        *addresses.0.write().unwrap() = ByName {
            configured: nodes(&[("n1", "10.0.0.1"), ("n2", "10.0.0.2"), ("n3", "10.0.0.3")]),
            dynamic: nodes(&[("d1", "10.0.0.3"), ("d2", "10.0.0.4")]),
        };
        let shared = ["n1", "n2", "n3", "d1", "d2", "none"].map(|node| addresses.is_shared(node));
        assert_eq!(shared, [false, false, true, true, false, false]);
    }

    #[test]
    fn tokens_of_others_are_for_who_has_the_right() {
        let ask = |uid, may_for_others, user| {
            let asker = TokenAsker {
                uid,
                may_for_others,
            };
            token_user(asker, user)
                .map(|user| user.uid.as_raw())
                .map_err(|refusal| refusal.code)
        };
        let denied = Err(RefusalCode::AccessDenied);
        assert_eq!(ask(4_000_000, false, Some("root")), denied);
        assert_eq!(ask(4_000_000, false, Some("nobody-of-that-name")), denied);
        assert_eq!(ask(0, false, Some("root")), Ok(0));
        assert_eq!(ask(0, false, None), Ok(0));
        let nameless = ask(4_000_000, false, None);
        assert_eq!(nameless, Err(RefusalCode::InvalidValue));
        assert_eq!(ask(4_000_000, true, Some("root")), Ok(0));
        let nobody = ask(0, true, Some("nobody-of-that-name"));
        assert_eq!(nobody, Err(RefusalCode::InvalidValue));
    }
}
