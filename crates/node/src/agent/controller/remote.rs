//! The controller on another host: an encrypted channel, in which the supervisor's credential says for which node this agent speaks.

use crate::agent::socket::Socket;
use crate::agent::supervisor_link::Dialer;
use crate::options::AgentOptions;
use crate::sys;
use anyhow::{Context as _, bail};
use muster_channel::relay::relay;
use muster_channel::{Channel, Initiator, SECRET};
use muster_node_core::agent::DialId;
use muster_proto::frame;
use muster_proto::hello::{ChannelAnswer, ChannelHello};
use muster_proto::version::Versions;
use std::os::unix::net::UnixStream;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// How long the controller may take to verify the credential.
const PROOF_PATIENCE: Duration = Duration::from_secs(20);
/// How long munged may take to make it.
const CREDENTIAL_PATIENCE: Duration = Duration::from_secs(15);

/// Connects to the controller at an address.
pub(super) async fn connect(
    (dialer, dial): (&Dialer, DialId),
    options: &AgentOptions,
    address: &str,
) -> anyhow::Result<Socket> {
    let patience = Duration::from_secs(options.network.tcp_timeout_s.max(1).into());
    let tcp = timeout(patience, TcpStream::connect(address)).await;
    let mut tcp = tcp.context("it does not answer (TCPTimeout)")??;
    tcp.set_nodelay(true)?;
    let mut secret = [0; SECRET];
    sys::fill_randomly(&mut secret).context("no random numbers")?;
    let made = timeout(CREDENTIAL_PATIENCE, dialer.make_credential(dial.0, secret)).await;
    let (scheme, credential) = made.context("no credential was made in time")??;
    let hello = frame::encode(&ChannelHello {
        greeting: Versions::CLUSTER.greeting(),
        host: String::new(),
    });
    let hello = hello.get(4..).unwrap_or_default();
    let (client, opening) = Initiator::begin(scheme, &credential, &secret, hello)?;
    tcp.write_all(&opening).await?;
    let answered = timeout(PROOF_PATIENCE, read_answer(&mut tcp, client)).await;
    let (channel, answer) = answered.context("it does not answer what it was shown")??;
    let answer: ChannelAnswer = frame::decode(&answer).context("its greeting")?;
    let spoken = Versions::CLUSTER.check(&answer.greeting, "slurmctld", "this node's slurmd");
    spoken.map_err(|refusal| anyhow::Error::msg(refusal.detail))?;
    let (near, far) = UnixStream::pair()?;
    far.set_nonblocking(true)?;
    let far = tokio::net::UnixStream::from_std(far)?;
    tokio::spawn(async move {
        if let Err(e) = relay(far, tcp, channel).await {
            log::debug!("connection to the controller: {e}");
        }
    });
    Ok(Socket::new(near)?)
}

async fn read_answer(
    tcp: &mut TcpStream,
    mut client: Initiator,
) -> anyhow::Result<(Channel, Vec<u8>)> {
    let (mut answer, mut chunk) = (Vec::new(), [0; 2048]);
    loop {
        if let Some(done) = client.finish(&answer)? {
            return Ok(done);
        }
        match tcp.read(&mut chunk).await? {
            0 => bail!("it closed the connection"),
            count => answer.extend(&chunk[..count]),
        }
    }
}
