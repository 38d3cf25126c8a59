//! Parts of a cluster of several hosts that the attacked one lacks: an agent that serves `SlurmdPort`, and a sackd,
//! which makes tokens of auth/slurm. Both are of one host here, and have a key of their own.

use crate::cbor::Value;
use crate::peer::{Peer, PeerReply, ReplyContent, framed};
use crate::sys::{ROOT, ended_with_its_starter};
use crate::target::{NODE_WORDS, PORT_NODE as NODE, SACK_PID, Target, until};
use minicbor::Encode;
use muster_channel::{Channel, InitiatedChannel, Initiator, SECRET, Scheme};
use muster_model::ids::JobId;
use muster_proto::hello::{ChannelHello, JobCredential};
use muster_proto::version::{Greeting, Versions};
use std::fs;
use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Time limit of an exchange.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// The agent's port and sackd. sackd ends with the value, or with the thread that started it.
#[derive(Debug)]
pub struct NetworkDaemons {
    sackd: Child,
    target: Target,
}

impl NetworkDaemons {
    /// Starts the agent of [`NODE`](crate::target::PORT_NODE) again so that it serves the port, and sackd.
    ///
    /// # Errors
    /// One of them cannot be started, or does not listen.
    pub fn start(target: &Target) -> io::Result<NetworkDaemons> {
        let dir = directory(target);
        fs::create_dir_all(&dir)?;
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o755))?;
        let mut key = fs::OpenOptions::new();
        let key = key.write(true).create(true).truncate(true).mode(0o600);
        key.open(dir.join("slurm.key"))?
            .write_all(&fs::read(target.home().join("jwt.key"))?)?;
        // Free a moment ago.
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?
            .local_addr()?
            .port();
        let conf = target.network_configuration();
        fs::write(&conf, configuration(target, port)?)?;
        if let Some(pid) = target.pid(&format!("run/noded.{NODE}.pid")) {
            target.kill(pid);
        }
        let started = target.run(ROOT, &format!("slurmd -f {} -N {NODE}", conf.display()));
        if started.code != 0 {
            return Err(io::Error::other(format!("slurmd: {}", started.err)));
        }
        fs::write(dir.join("port"), port.to_string())?;
        let mut sackd = Command::new(target.home().join("bin/sackd"));
        sackd
            .arg("-D")
            .arg("-f")
            .arg(&conf)
            .env("SLURM_SACK_SOCKET", sack_socket(target))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(fs::File::create(target.home().join("sackd.log"))?);
        ended_with_its_starter(&mut sackd);
        let sackd = sackd.spawn()?;
        fs::write(target.home().join(SACK_PID), sackd.id().to_string())?;
        let daemons = NetworkDaemons {
            sackd,
            target: target.clone(),
        };
        let listens = || {
            let port = address(target).is_some_and(|at| TcpStream::connect(at).is_ok());
            port && Peer::connect_for_messages(&sack_socket(target), PATIENCE).is_ok()
        };
        match until(listens) && target.nodes_are_up() {
            true => Ok(daemons),
            false => Err(io::Error::other("SlurmdPort or sack.socket is not served")),
        }
    }
}

impl Drop for NetworkDaemons {
    fn drop(&mut self) {
        let _ = fs::remove_file(self.target.home().join(SACK_PID));
        let _ = self.sackd.kill();
        let _ = self.sackd.wait();
    }
}

fn directory(target: &Target) -> PathBuf {
    target.home().join("network")
}

/// The cluster's own, as that of a cluster whose hosts know each other by a key. Nodes that are on one host would not serve ports.
fn configuration(target: &Target, port: u16) -> io::Result<String> {
    let own = fs::read_to_string(target.home().join("slurm.conf"))?;
    let is_kept = |line: &&str| {
        let line = line.to_ascii_lowercase();
        !["nodename=", "authtype=", "authinfo="]
            .iter()
            .any(|key| line.starts_with(key))
    };
    let mut text: String = own
        .lines()
        .filter(is_kept)
        .map(|line| format!("{line}\n"))
        .collect();
    text += "AuthType=auth/slurm\n";
    for node in target.nodes() {
        let port = if node == NODE { port } else { 1 };
        text += &format!(
            "NodeName={node} NodeHostname=host-{node} NodeAddr=127.0.0.1 Port={port} {NODE_WORDS}\n"
        );
    }
    Ok(text)
}

/// Where the agent serves other hosts; nothing if it does not.
pub(crate) fn address(target: &Target) -> Option<SocketAddr> {
    let port = fs::read_to_string(directory(target).join("port")).ok()?;
    Some((Ipv4Addr::LOCALHOST, port.parse().ok()?).into())
}

/// Where sackd serves users.
pub(crate) fn sack_socket(target: &Target) -> PathBuf {
    directory(target).join("sack.socket")
}

/// First message of the connecting side within the exchange.
pub(crate) fn hello(greeting: Greeting) -> Vec<u8> {
    Value::of(&ChannelHello {
        greeting,
        host: "login".to_owned(),
    })
    .encode()
}

/// As above, of this version.
pub(crate) fn own_hello() -> Vec<u8> {
    hello(Versions::CLUSTER.greeting())
}

/// A credential as a channel begins with it.
pub(crate) fn credential(credential: &JobCredential) -> Vec<u8> {
    Value::of(credential).encode()
}

/// The credential of a job's owner.
pub(crate) fn of_owner(job: JobId) -> Vec<u8> {
    credential(&JobCredential::Owner(job))
}

/// Connects with a limit on every read and write.
///
/// # Errors
/// Those of the calls.
pub(crate) fn dial(at: SocketAddr, patience: Duration) -> io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&at, patience)?;
    stream.set_read_timeout(Some(patience))?;
    stream.set_write_timeout(Some(patience))?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// A channel to the agent below srun: each step of the exchange by itself.
pub(crate) struct Begin {
    client: Initiator,
    /// First bytes to send.
    pub(crate) opening: Vec<u8>,
}

impl Begin {
    pub(crate) fn new(
        scheme: Scheme,
        credential: &[u8],
        secret: &[u8; SECRET],
        hello: &[u8],
    ) -> io::Result<Begin> {
        let (client, opening) =
            Initiator::begin(scheme, credential, secret, hello).map_err(io::Error::other)?;
        Ok(Begin { client, opening })
    }

    /// Reads the answer to the opening.
    ///
    /// # Errors
    /// It is a refusal, none that the other side could give who knows the secret, or none.
    pub(crate) fn finish(&mut self, stream: &mut TcpStream) -> io::Result<InitiatedChannel> {
        let (mut answer, mut chunk) = (Vec::new(), [0; 2048]);
        loop {
            if let Some(begun) = self.client.finish(&answer).map_err(io::Error::other)? {
                return Ok(begun);
            }
            match stream.read(&mut chunk)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                count => answer.extend(&chunk[..count]),
            }
        }
    }
}

/// A channel to the agent that is open.
pub(crate) struct Carried {
    stream: TcpStream,
    channel: Channel,
}

impl Carried {
    /// Opens one with a job's credential and a secret.
    ///
    /// # Errors
    /// The agent refuses.
    pub(crate) fn open(
        at: SocketAddr,
        credential: &[u8],
        secret: &[u8; SECRET],
        hello: &[u8],
        patience: Duration,
    ) -> io::Result<Carried> {
        let mut stream = dial(at, patience)?;
        let mut begin = Begin::new(Scheme::Job, credential, secret, hello)?;
        stream.write_all(&begin.opening)?;
        let begun = begin.finish(&mut stream)?;
        stream.write_all(&begun.confirmation)?;
        Ok(Carried {
            stream,
            channel: begun.channel,
        })
    }

    /// Sends bytes through the channel.
    ///
    /// # Errors
    /// The agent has closed the connection.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut sealed = Vec::new();
        let done = self.channel.sealer.seal(bytes, &mut sealed);
        done.map_err(io::Error::other)?;
        self.stream.write_all(&sealed)
    }

    /// Sends bytes beside the channel.
    ///
    /// # Errors
    /// The agent has closed the connection.
    pub(crate) fn send_unsealed(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// Sends a request, and reads the answer.
    pub(crate) fn ask<T: ReplyContent>(&mut self, request: &impl Encode<()>) -> PeerReply<T> {
        if self.send(&framed(&Value::of(request).encode())).is_err() {
            return PeerReply::Closed;
        }
        match self.frame() {
            Ok(body) => match T::read(&body) {
                Ok(reply) => match reply.refusal() {
                    Some(refusal) => PeerReply::Refused(refusal),
                    None => PeerReply::Accepted(reply),
                },
                Err(e) => PeerReply::Unreadable(e.to_string()),
            },
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => PeerReply::Silent,
            Err(_) => PeerReply::Closed,
        }
    }

    fn frame(&mut self) -> io::Result<Vec<u8>> {
        let (mut plain, mut chunk) = (Vec::new(), [0; 4096]);
        let end = Instant::now() + PATIENCE;
        loop {
            while self
                .channel
                .opener
                .open_next(&mut plain)
                .map_err(io::Error::other)?
            {}
            if let Some((header, body)) = plain.split_first_chunk::<4>()
                && body.len() >= u32::from_be_bytes(*header) as usize
            {
                return Ok(body.to_vec());
            }
            if Instant::now() > end {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            match self.stream.read(&mut chunk)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                count => self.channel.opener.push(&chunk[..count]),
            }
        }
    }
}
