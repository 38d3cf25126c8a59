//! A process that creates one credential and ends. With this credential a node's agent proves to a
//! controller on another host which node it serves. The process runs as the supervisor's user,
//! root, because such a credential is root's. It is a separate process because libmunge may wait
//! for munged and must not run in the supervisor. The credential is valid for this node only, so an
//! agent that is taken over gets no other.

use crate::one_way_link::OneWayLink;
use crate::options::AgentOptions;
use crate::role::{self, CREDENTIAL_NAME, FIRST_FD, Start};
use anyhow::Context as _;
use minicbor::bytes::ByteArray;
use minicbor::{Decode, Encode};
use muster_channel::{Purpose, SECRET, Scheme};
use muster_conf::Authentication;
use muster_node_core::messages::ProcessIdentity;
use muster_trust::node_key::NodeKey;
use muster_trust::proof::{self, Proof, ProofRequest};
use nix::unistd::{getegid, geteuid};
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::PathBuf;
use std::process::ExitCode;

/// Maximum size of the process's output.
pub(crate) const SAID_MAX: usize = 16 << 10;

/// The order of the process.
#[derive(Debug, Encode, Decode)]
struct CredentialOrder {
    #[n(0)]
    cluster: String,
    #[n(1)]
    node: String,
    #[n(2)]
    auth_type: Option<String>,
    #[n(3)]
    auth_info: Option<String>,
    #[n(4)]
    receiver_uid: u32,
    #[n(5)]
    secret: ByteArray<SECRET>,
    #[n(6)]
    #[cbor(default)]
    key_dir: PathBuf,
    #[n(7)]
    #[cbor(default)]
    node_key: PathBuf,
}

/// The output of the process.
#[derive(Debug, Encode, Decode)]
enum CredentialAnswer {
    /// The credential.
    #[n(0)]
    Made {
        #[n(0)]
        scheme: u8,
        #[n(1)]
        #[cbor(with = "minicbor::bytes")]
        credential: Vec<u8>,
        /// The secret, if it is not the one in the order.
        #[n(2)]
        secret: Option<ByteArray<SECRET>>,
    },
    /// The reason for the failure.
    #[n(1)]
    Failed(#[n(0)] String),
}

/// Starts the process; returns its process id, and the descriptor from which its output is read.
pub(crate) fn start(options: &AgentOptions, secret: [u8; SECRET]) -> io::Result<(i32, OwnedFd)> {
    let OneWayLink { reader, writer } = OneWayLink::open()?;
    let network = &options.network;
    let order = CredentialOrder {
        cluster: options.cluster.clone(),
        node: options.name.clone(),
        auth_type: network.auth_type.clone(),
        auth_info: network.auth_info.clone(),
        receiver_uid: network.receiver_uid,
        secret: secret.into(),
        key_dir: network.key_dir.clone(),
        node_key: network.node_key.clone(),
    };
    let start = Start {
        words: &[CREDENTIAL_NAME],
        environment: Vec::new(),
        user: &ProcessIdentity {
            uid: geteuid().as_raw(),
            gid: getegid().as_raw(),
            ..ProcessIdentity::default()
        },
        order: minicbor::to_vec(&order).map_err(io::Error::other)?,
        errors: Some(2),
        is_untraceable: false,
        kept: vec![writer.as_raw_fd()],
        outlives: false,
        namespace: None,
    };
    Ok((start.start()?, reader))
}

/// Runs as that process.
pub fn credential_main() -> ExitCode {
    match make() {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("{CREDENTIAL_NAME}: {e:#}");
            ExitCode::FAILURE
        }
    }
}

fn make() -> anyhow::Result<()> {
    let order: CredentialOrder = minicbor::decode(&role::read_order()?).context("its order")?;
    let mut link = File::from(role::take_descriptor(FIRST_FD)?);
    let said = match make_proof(&order) {
        Ok(proof) => CredentialAnswer::Made {
            scheme: proof.scheme.number(),
            credential: proof.credential,
            secret: Some(proof.secret.into()).filter(|made| made != &order.secret),
        },
        Err(e) => CredentialAnswer::Failed(format!("{e:#}")),
    };
    link.write_all(&minicbor::to_vec(&said)?)?;
    Ok(())
}

/// Uses the node's own key if it has one, else `AuthType`.
fn make_proof(order: &CredentialOrder) -> anyhow::Result<Proof> {
    let purpose = Purpose::Node(order.node.clone());
    let own = match order.node_key.as_os_str().is_empty() {
        true => None,
        false => NodeKey::find(&order.node_key)?,
    };
    if let Some(key) = own {
        key.check(&order.cluster, &order.node, &order.node_key)?;
        return Ok(key.proof_for(&purpose)?);
    }
    let authentication = Authentication::parse(
        order.auth_type.as_deref(),
        order.auth_info.as_deref(),
        &order.key_dir,
    );
    let ask = ProofRequest {
        cluster: &order.cluster,
        purpose,
        receiver_uid: order.receiver_uid,
    };
    Ok(proof::make_with(&authentication, &ask, *order.secret)?)
}

/// A created credential.
pub(crate) struct Credential {
    /// Its kind.
    pub(crate) scheme: Scheme,
    /// The bytes to send.
    pub(crate) bytes: Vec<u8>,
    /// Its secret, if it is not the requested one.
    pub(crate) secret: Option<[u8; SECRET]>,
}

/// Reads the complete output of the process.
///
/// # Errors
/// The process created no credential, for the reason in the error.
pub(crate) fn read(said: &[u8]) -> anyhow::Result<Credential> {
    match minicbor::decode(said).context("no credential was made")? {
        CredentialAnswer::Made {
            scheme,
            credential,
            secret,
        } => {
            let scheme =
                Scheme::of_number(scheme).context("a kind of credential that is unknown")?;
            Ok(Credential {
                scheme,
                bytes: credential,
                secret: secret.map(|secret| *secret),
            })
        }
        CredentialAnswer::Failed(why) => Err(anyhow::Error::msg(why)),
    }
}
