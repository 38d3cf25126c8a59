//! A controller on another host: an encrypted channel, in which the supervisor's credential states
//! the node of this agent.

use crate::agent::socket::Socket;
use crate::agent::supervisor_link::Dialer;
use crate::options::AgentOptions;
use crate::remote;
use crate::sys;
use anyhow::Context as _;
use muster_channel::{KeepAlive, SECRET};
use muster_node_core::agent::DialId;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Time limit for creating a credential, which involves munged or reading the cluster's key.
const CREDENTIAL_PATIENCE: Duration = Duration::from_secs(15);

/// Connects to the controller at an address.
pub(super) async fn connect(
    (dialer, dial): (&Dialer, DialId),
    options: &AgentOptions,
    address: &str,
) -> anyhow::Result<Socket> {
    let patience = Duration::from_secs(options.network.tcp_timeout_s.max(1).into());
    let tcp = timeout(patience, TcpStream::connect(address)).await;
    let tcp = tcp.context("it does not answer (TCPTimeout)")??;
    // A controller that was switched off says nothing of it, and may have another address now.
    KeepAlive::AGENT.set_on(&tcp)?;
    let mut secret = [0; SECRET];
    sys::fill_randomly(&mut secret).context("no random numbers")?;
    let made = timeout(CREDENTIAL_PATIENCE, dialer.make_credential(dial.0, secret)).await;
    let (scheme, credential, secret) = made.context("no credential was made in time")??;
    let stream = remote::begin(tcp, (scheme, &credential, &secret), "slurmctld").await?;
    Ok(Socket::new(stream)?)
}
