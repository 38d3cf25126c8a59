//! The controller on another host: an encrypted channel ([`muster_channel`]) by which it knows who asks, and the command knows
//! that it is the cluster's controller.

use super::ConnectError;
use crate::people;
use muster_channel::{KeepAlive, Purpose, Scheme};
use muster_conf::endpoint::Endpoint;
use muster_proto::frame;
use muster_proto::hello::{ChannelAnswer, ChannelHello};
use muster_proto::version::Versions;
use muster_trust::proof::{self, Proof, ProofRequest};
use muster_trust::user_token;
use std::io;
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// Time limit for the controller to verify a credential.
const PROOF_PATIENCE: Duration = Duration::from_secs(20);

/// Connects to the first controller that can be reached, as the user of a token if there is one.
pub(super) fn connect(
    endpoint: &Endpoint,
    token: Option<&str>,
) -> Result<UnixStream, ConnectError> {
    let mut last = None;
    for address in &endpoint.addresses {
        let patience = Duration::from_secs(endpoint.tcp_timeout_s.max(1).into());
        match muster_channel::dial((address.as_str(), endpoint.port), patience) {
            Ok(tcp) => {
                // Without it the connection does as well, but is missed later.
                let _ = keep_alive(endpoint).set_on(&tcp);
                return prove(tcp, address, (endpoint, token));
            }
            Err(source) => {
                last = Some(ConnectError::Unreachable {
                    socket: place(address, endpoint.port),
                    source,
                });
            }
        }
    }
    Err(last.unwrap_or_else(|| ConnectError::Unreachable {
        socket: endpoint.socket.display().to_string(),
        source: io::ErrorKind::NotFound.into(),
    }))
}

/// Probes of connections, from slurm.conf.
pub(super) fn keep_alive(endpoint: &Endpoint) -> KeepAlive {
    let communication = &endpoint.communication;
    KeepAlive {
        idle_s: communication.idle_s,
        interval_s: communication.interval_s,
        probes: communication.probes,
    }
}

/// An address with its port, as it is written.
fn place(address: &str, port: u16) -> String {
    match address.contains(':') {
        true => format!("[{address}]:{port}"),
        false => format!("{address}:{port}"),
    }
}

fn prove(
    tcp: TcpStream,
    address: &str,
    (endpoint, token): (&Endpoint, Option<&str>),
) -> Result<UnixStream, ConnectError> {
    let untrusted = |why: String| ConnectError::Untrusted {
        place: place(address, endpoint.port),
        why,
    };
    let proof = match token {
        Some(token) => by_token(token),
        None => by_user(endpoint),
    };
    let proof = proof.map_err(untrusted)?;
    let host = nix::unistd::gethostname().unwrap_or_default();
    let hello = frame::encode(&ChannelHello {
        greeting: Versions::CLUSTER.greeting(),
        host: host.to_string_lossy().into_owned(),
    });
    let hello = hello.get(4..).unwrap_or_default();
    let parts = (proof.scheme, proof.credential.as_slice(), &proof.secret);
    let connected = muster_channel::connect(tcp, parts, hello, PROOF_PATIENCE)
        .map_err(|e| untrusted(e.to_string()))?;
    let answer: ChannelAnswer =
        frame::decode(&connected.answer).map_err(|e| untrusted(e.to_string()))?;
    Versions::CLUSTER
        .check(&answer.greeting, "slurmctld", "this command")
        .map_err(|refusal| untrusted(refusal.detail))?;
    Ok(connected.stream)
}

/// Proof that this process has a user's token (`SLURM_JWT`).
fn by_token(token: &str) -> Result<Proof, String> {
    let (credential, secret) =
        user_token::show(token).map_err(|e| format!("SLURM_JWT cannot be used: {e}"))?;
    Ok(Proof {
        scheme: Scheme::Jwt,
        credential,
        secret,
    })
}

/// Proof of the user of this process.
fn by_user(endpoint: &Endpoint) -> Result<Proof, String> {
    let known = people::user_named(&endpoint.slurm_user).map(|user| user.uid.as_raw());
    let known = known.or_else(|| endpoint.slurm_user.parse().ok());
    let receiver_uid = known.ok_or_else(|| {
        format!(
            "this host has no user '{}' (SlurmUser), for whom the credential is to be",
            endpoint.slurm_user
        )
    })?;
    let ask = ProofRequest {
        cluster: &endpoint.cluster,
        purpose: Purpose::User,
        receiver_uid,
    };
    proof::make(&endpoint.authentication, &ask).map_err(|e| e.to_string())
}
