//! Connections to other nodes, using the key of a job or step.

use anyhow::{Context as _, bail};
use minicbor::bytes::ByteVec;
use muster_channel::relay::relay;
use muster_channel::{Channel, Initiator, KeepAlive, SECRET, Scheme};
use muster_proto::frame;
use muster_proto::hello::{ChannelAnswer, ChannelHello, JobCredential};
use muster_proto::version::Versions;
use muster_trust::channel_secret;
use std::os::unix::net::UnixStream;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Time limit for establishing a connection.
pub(crate) const CONNECT_PATIENCE: Duration = Duration::from_secs(5);
/// Time limit for the other side to verify the client.
pub(crate) const PROOF_PATIENCE: Duration = Duration::from_secs(25);

/// The first message of this side.
pub(crate) fn hello() -> Vec<u8> {
    let hello = frame::encode(&ChannelHello {
        greeting: Versions::CLUSTER.greeting(),
        host: String::new(),
    });
    hello.get(4..).unwrap_or_default().to_vec()
}

/// Whether the other side's message is supported here; `they` names the other side in errors.
pub(crate) fn check_answer(answer: &[u8], they: &str) -> anyhow::Result<()> {
    let answer: ChannelAnswer = frame::decode(answer).context("its greeting")?;
    let spoken = Versions::CLUSTER.check(&answer.greeting, they, "this node's slurmd");
    spoken.map_err(|refusal| anyhow::Error::msg(refusal.detail))
}

/// The proof that this side has a key.
pub(crate) fn proof(credential: &JobCredential, key: &ByteVec) -> (Vec<u8>, [u8; SECRET]) {
    let credential = frame::encode(credential);
    let credential = credential.get(4..).unwrap_or_default().to_vec();
    (credential, channel_secret(key))
}

/// Connects to another node's relay. Returns a socket that leads to the process that the credential names there.
pub(crate) async fn connect(
    place: &str,
    credential: &JobCredential,
    key: &ByteVec,
) -> anyhow::Result<UnixStream> {
    let tcp = timeout(CONNECT_PATIENCE, TcpStream::connect(place)).await;
    let tcp = tcp.context("it does not answer")??;
    KeepAlive::default().set_on(&tcp)?;
    let (credential, secret) = proof(credential, key);
    begin(tcp, (Scheme::Job, &credential, &secret), "slurmd there").await
}

/// Begins a channel on a connection: a socket whose other end is the other host's.
pub(crate) async fn begin(
    mut tcp: TcpStream,
    (scheme, credential, secret): (Scheme, &[u8], &[u8; SECRET]),
    they: &str,
) -> anyhow::Result<UnixStream> {
    tcp.set_nodelay(true)?;
    let (client, opening) = Initiator::begin(scheme, credential, secret, &hello())?;
    tcp.write_all(&opening).await?;
    let answered = timeout(PROOF_PATIENCE, read_answer(&mut tcp, client)).await;
    let (channel, answer) = answered.context("no answer to the credential")??;
    check_answer(&answer, they)?;
    let (near, far) = UnixStream::pair()?;
    far.set_nonblocking(true)?;
    let far = tokio::net::UnixStream::from_std(far)?;
    tokio::spawn(async move {
        if let Err(e) = relay(far, tcp, channel, None).await {
            log::debug!("connection to another host: {e}");
        }
    });
    Ok(near)
}

async fn read_answer(
    tcp: &mut TcpStream,
    mut client: Initiator,
) -> anyhow::Result<(Channel, Vec<u8>)> {
    let (mut answer, mut chunk) = (Vec::new(), [0; 2048]);
    loop {
        if let Some(begun) = client.finish(&answer)? {
            tcp.write_all(&begun.confirmation).await?;
            return Ok((begun.channel, begun.payload));
        }
        match tcp.read(&mut chunk).await? {
            0 => bail!("it closed the connection"),
            count => answer.extend(&chunk[..count]),
        }
    }
}
