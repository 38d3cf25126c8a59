//! Whether and where the controller listens for other hosts, by slurm.conf.

use super::{GivenConfiguration, Verified, Verifier};
use anyhow::{Context as _, Result, bail};
use log::{info, warn};
use muster_channel::Scheme;
use muster_channel::host::is_own;
use muster_conf::{AuthMethod, Authentication, Config};
use muster_trust::proof::ProofVerifier;
use std::collections::{HashMap, HashSet};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, ToSocketAddrs as _};
use std::ops::RangeInclusive;
use std::sync::{Arc, PoisonError, RwLock};

/// Where agents of nodes connect from, by the node's name. It is replaced when the configuration is read again.
pub(crate) type NodeAddresses = Arc<RwLock<HashMap<String, String>>>;

/// What of slurm.conf the network stays with as long as the controller runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NetworkSettings {
    authentication: Authentication,
    ports: RangeInclusive<u16>,
}

impl NetworkSettings {
    /// The keys that these are from.
    pub(crate) const KEYS: &str = "other values of AuthType, AuthInfo and SlurmctldPort";

    /// Those of a configuration.
    pub(crate) fn of(config: &Config) -> NetworkSettings {
        NetworkSettings {
            authentication: config.authentication(),
            ports: config.slurmctld_ports.clone(),
        }
    }
}

/// What the thread of the network is started with.
pub(crate) struct Setup {
    pub(crate) listeners: Vec<TcpListener>,
    pub(crate) verifier: Arc<dyn Verifier>,
    pub(crate) configuration: GivenConfiguration,
}

/// Takes `NodeAddr` of all nodes.
pub(crate) fn set_addresses(addresses: &NodeAddresses, config: &Config) {
    let nodes = config.nodes.iter();
    let now = nodes.map(|node| (node.name.clone(), node.addr.clone()));
    let now = now.collect();
    *addresses.write().unwrap_or_else(PoisonError::into_inner) = now;
}

/// Gets ready to serve other hosts; none if the cluster has no others, or says that nobody there is believed.
///
/// # Errors
/// A node is on another host and AuthType is given, and nothing could be believed that it says, or the port is taken.
pub(crate) fn prepare(
    config: &Config,
    addresses: &NodeAddresses,
    configuration: &GivenConfiguration,
) -> Result<Option<Setup>> {
    let authentication = config.authentication();
    let other = remote_node(config);
    if authentication.method == AuthMethod::None {
        if let Some(node) = other {
            bail!(
                "node {node} is on another host, and AuthType=auth/none believes nobody there: write AuthType=auth/munge or auth/slurm"
            );
        }
        return Ok(None);
    }
    // A cluster on one host that does not ask for it needs no munge.
    let is_given = config.raw.contains_key("AuthType");
    if other.is_none() && !is_given {
        return Ok(None);
    }
    let prepared = ProofVerifier::new(&authentication, &config.cluster_name)
        .map_err(anyhow::Error::from)
        .and_then(|proofs| Ok((proofs, listen(config)?)));
    match (prepared, other) {
        (Ok((proofs, listeners)), _) => Ok(Some(Setup {
            listeners,
            configuration: configuration.clone(),
            verifier: Arc::new(ClusterVerifier {
                proofs,
                addresses: Arc::clone(addresses),
            }),
        })),
        (Err(e), Some(node)) if is_given => Err(e).with_context(|| {
            format!("node {node} is on another host, and other hosts cannot be served")
        }),
        (Err(e), other) => {
            let other = other.unwrap_or("none");
            warn!("other hosts are not served (nodes on other hosts: {other}): {e:#}");
            Ok(None)
        }
    }
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

fn has_word(config: &Config, word: &str) -> bool {
    let words = config.text("CommunicationParameters").unwrap_or("");
    words
        .split(',')
        .any(|own| own.trim().eq_ignore_ascii_case(word))
}

/// Listens on each port of `SlurmctldPort`.
fn listen(config: &Config) -> Result<Vec<TcpListener>> {
    let mut listeners = Vec::new();
    for port in config.slurmctld_ports.clone() {
        let listener = match has_word(config, "NoCtldInAddrAny") {
            true => listen_at_own_address(config, port),
            false => listen_everywhere(port, !has_word(config, "DisableIPv6")),
        };
        let listener =
            listener.with_context(|| format!("cannot listen on port {port} (SlurmctldPort)"))?;
        info!("other hosts are served at {}", listener.local_addr()?);
        listeners.push(listener);
    }
    Ok(listeners)
}

fn listen_everywhere(port: u16, with_ipv6: bool) -> io::Result<TcpListener> {
    let every = SocketAddr::from((Ipv6Addr::UNSPECIFIED, port));
    if with_ipv6 {
        // It takes both kinds.
        match TcpListener::bind(every) {
            Err(e) if e.kind() == io::ErrorKind::AddrInUse => return Err(e),
            Ok(listener) => return Ok(listener),
            // A host without IPv6.
            Err(_) => {}
        }
    }
    TcpListener::bind((Ipv4Addr::UNSPECIFIED, port))
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
    proofs: ProofVerifier,
    addresses: NodeAddresses,
}

impl Verifier for ClusterVerifier {
    fn verify(&self, scheme: Scheme, credential: &[u8]) -> Result<Verified, String> {
        let proved = self.proofs.verify(scheme, credential);
        let proved = proved.map_err(|e| e.to_string())?;
        Ok(Verified {
            uid: proved.uid,
            gid: proved.gid,
            purpose: proved.statement.purpose,
            secret: proved.statement.secret,
        })
    }

    fn reload(&self) -> Result<(), String> {
        self.proofs.reload().map_err(|e| e.to_string())
    }

    fn node_address(&self, node: &str) -> Option<String> {
        let addresses = self.addresses.read();
        let addresses = addresses.unwrap_or_else(PoisonError::into_inner);
        addresses.get(node).cloned()
    }
}
