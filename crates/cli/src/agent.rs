//! Connections to node agents and step daemons: over a Unix socket on the same host, over an encrypted channel otherwise.

use crate::connect::{await_answer, keep_alive};
use muster_channel::Scheme;
use muster_model::ids::{JobId, StepId};
use muster_proto::address::Address;
use muster_proto::frame;
use muster_proto::hello::{ChannelAnswer, ChannelHello, JobCredential};
use muster_proto::step::{AgentReply, AgentRequest};
use muster_proto::version::Versions;
use muster_trust::channel_secret;
use nix::sys::socket::{
    AddressFamily, ControlMessage, MsgFlags, SockFlag, SockType, UnixAddr, connect, sendmsg, socket,
};
use std::io::{self, IoSlice, Read, Write};
use std::net::{IpAddr, Ipv4Addr, TcpStream};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// A request, after what says which version is spoken here: both are written at once.
fn greeted(request: &AgentRequest) -> Vec<u8> {
    let mut bytes = frame::encode(&AgentRequest::Greeting(Versions::CLUSTER.greeting()));
    frame::encode_into(request, &mut bytes);
    bytes
}

/// Time limit for a connection to another host.
const CONNECT_PATIENCE: Duration = Duration::from_secs(10);
/// Time limit for a node's proof of identity: the controller's message about the job may be on its way to it.
const PROOF_PATIENCE: Duration = Duration::from_secs(25);

/// An open connection.
#[derive(Debug)]
pub(crate) struct AgentStream {
    stream: UnixStream,
    /// The address of this host on the way to the other; none if that is this one.
    own_ip: Option<IpAddr>,
}

/// Proof to another host that the caller may connect.
pub(crate) struct ShownKey<'a> {
    /// Which key it has.
    credential: JobCredential,
    key: &'a [u8],
}

impl AgentStream {
    /// Connects to the agent of an address, as the owner of a job, by the job's key, if that is known.
    pub(crate) fn connect_agent(
        address: &str,
        job: JobId,
        key: Option<&[u8]>,
    ) -> io::Result<AgentStream> {
        AgentStream::connect(address, |_| {
            Some(ShownKey {
                credential: JobCredential::Owner(job),
                key: key?,
            })
        })
    }

    /// Connects to the step daemon of an address, whose key is known.
    pub(crate) fn connect_stepd(
        address: &str,
        StepId { job, step }: StepId,
        key: &[u8],
    ) -> io::Result<AgentStream> {
        AgentStream::connect(address, |path| {
            let path = path.to_owned();
            let credential = JobCredential::Step { job, step, path };
            Some(ShownKey { credential, key })
        })
    }

    /// As [`AgentStream::connect_agent`], until that time at most. The lookup of a name has no limit.
    pub(crate) fn connect_agent_until(
        address: &str,
        job: JobId,
        key: &[u8],
        until: Instant,
    ) -> io::Result<AgentStream> {
        let credential = JobCredential::Owner(job);
        let show = |_: &str| Some(ShownKey { credential, key });
        AgentStream::connect_until(address, Some(until), show)
    }

    fn connect<'a>(
        address: &str,
        show: impl FnOnce(&str) -> Option<ShownKey<'a>>,
    ) -> io::Result<AgentStream> {
        AgentStream::connect_until(address, None, show)
    }

    fn connect_until<'a>(
        address: &str,
        until: Option<Instant>,
        show: impl FnOnce(&str) -> Option<ShownKey<'a>>,
    ) -> io::Result<AgentStream> {
        let found = Address::parse(address)
            .ok_or_else(|| io::Error::other(format!("invalid node address '{address}'")))?;
        match found.remote_place() {
            None => Ok(AgentStream {
                stream: connect_here(&found.path, until)?,
                own_ip: None,
            }),
            Some(there) => {
                let shown = show(&found.path).ok_or_else(|| {
                    io::Error::other(format!("{}: the key of the job is not known", there.place))
                })?;
                connect_remote(&there.place, &shown, until)
                    .map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", there.place)))
            }
        }
    }

    /// The address of this host on the way to the peer.
    pub(crate) fn own_ip(&self) -> IpAddr {
        self.own_ip.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST))
    }

    /// Sends one request.
    pub(crate) fn send(&mut self, request: &AgentRequest) -> io::Result<()> {
        self.write_all(&greeted(request))
    }

    /// Whether it is on this host.
    pub(crate) fn is_local(&self) -> bool {
        self.own_ip.is_none()
    }

    /// Sends one request, and this program's standard streams and the far end of a connection with it; gives the near
    /// end. The agent must be on this host.
    pub(crate) fn send_with_streams(&mut self, request: &AgentRequest) -> io::Result<AgentStream> {
        let (near, far) = UnixStream::pair()?;
        let bytes = greeted(request);
        let handed = [0, 1, 2, far.as_raw_fd()];
        let with = [ControlMessage::ScmRights(&handed)];
        let slices = [IoSlice::new(&bytes)];
        let flags = MsgFlags::MSG_NOSIGNAL;
        let sent = sendmsg::<()>(self.as_raw_fd(), &slices, &with, flags, None)?;
        self.write_all(&bytes[sent..])?;
        Ok(AgentStream {
            stream: near,
            own_ip: None,
        })
    }

    /// Waits for one answer.
    pub(crate) fn receive(&mut self) -> io::Result<AgentReply> {
        await_answer(self);
        self.read_reply()
    }

    /// Waits for one answer until that time.
    pub(crate) fn receive_until(&mut self, until: Instant) -> io::Result<AgentReply> {
        self.stream.set_read_timeout(Some(time_left(until)?))?;
        self.read_reply()
    }

    /// The agent's reply before it closed the connection, so that a request could not be sent: that it has no room for
    /// one.
    pub(crate) fn reply_before_close(&mut self, error: &io::Error) -> Option<AgentReply> {
        let is_closed = matches!(
            error.kind(),
            io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset
        );
        is_closed.then(|| self.read_reply().ok()).flatten()
    }

    /// Reads an answer, the beginning of which is there.
    pub(crate) fn read_reply(&mut self) -> io::Result<AgentReply> {
        frame::read(self)
    }
}

impl Read for AgentStream {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.stream.read(buf)
    }
}

impl Write for AgentStream {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.stream.write(buf)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl AsRawFd for AgentStream {
    fn as_raw_fd(&self) -> RawFd {
        self.stream.as_raw_fd()
    }
}

impl AsFd for AgentStream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

/// Connects to a socket of this host. A process that is stopped, with all places for connections taken, holds up who connects.
fn connect_here(path: &str, until: Option<Instant>) -> io::Result<UnixStream> {
    let Some(until) = until else {
        return UnixStream::connect(path);
    };
    let flags = SockFlag::SOCK_CLOEXEC;
    let stream = UnixStream::from(socket(AddressFamily::Unix, SockType::Stream, flags, None)?);
    // It is the limit of connect(2) as well.
    stream.set_write_timeout(Some(time_left(until)?))?;
    connect(stream.as_raw_fd(), &UnixAddr::new(path)?)?;
    Ok(stream)
}

/// Connects to the relay of a node on another host.
fn connect_remote(
    place: &str,
    shown: &ShownKey<'_>,
    until: Option<Instant>,
) -> io::Result<AgentStream> {
    let within = |patience: Duration| match until {
        Some(until) => time_left(until).map(|left| left.min(patience)),
        None => Ok(patience),
    };
    let tcp = muster_channel::dial(place, within(CONNECT_PATIENCE)?)?;
    // A node that is switched off says nothing of it.
    keep_alive().set_on(&tcp)?;
    begin(tcp, shown, within(PROOF_PATIENCE)?)
}

/// The time until then; an error if that is over.
fn time_left(until: Instant) -> io::Result<Duration> {
    let left = until.saturating_duration_since(Instant::now());
    match left.is_zero() {
        true => Err(io::ErrorKind::TimedOut.into()),
        false => Ok(left),
    }
}

/// Begins a channel on a connection.
fn begin(tcp: TcpStream, shown: &ShownKey<'_>, patience: Duration) -> io::Result<AgentStream> {
    let own_ip = tcp.local_addr()?.ip();
    let credential = frame::encode(&shown.credential);
    let credential = credential.get(4..).unwrap_or_default();
    let hello = frame::encode(&ChannelHello {
        greeting: Versions::CLUSTER.greeting(),
        host: String::new(),
    });
    let hello = hello.get(4..).unwrap_or_default();
    let secret = channel_secret(shown.key);
    let proof = (Scheme::Job, credential, &secret);
    let connected = muster_channel::connect(tcp, proof, hello, patience)?;
    let answer: ChannelAnswer = frame::decode(&connected.answer)?;
    Versions::CLUSTER
        .check(&answer.greeting, "the node's slurmd", "this command")
        .map_err(|refusal| io::Error::other(refusal.detail))?;
    Ok(AgentStream {
        stream: connected.stream,
        own_ip: Some(own_ip),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_model::refusal::{Refusal, RefusalCode};

    /// The agent refused before it read, and srun said that the connection was lost.
    #[test]
    fn a_refusal_that_came_before_the_request_is_read() {
        let (near, mut far) = UnixStream::pair().unwrap();
        let refusal = AgentReply::Refused(Refusal::new(RefusalCode::Busy, "no room"));
        frame::write(&mut far, &refusal).unwrap();
        drop(far);
        let mut agent = AgentStream {
            stream: near,
            own_ip: None,
        };
        let request = AgentRequest::Inspect { job: JobId(1) };
        for error in [
            agent.send_with_streams(&request).map(drop),
            agent.send(&request),
        ] {
            let error = error.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
        }
        let closed = io::ErrorKind::BrokenPipe.into();
        let other = io::ErrorKind::NotConnected.into();
        assert_eq!(agent.reply_before_close(&other), None);
        assert_eq!(agent.reply_before_close(&closed), Some(refusal));
        assert_eq!(agent.reply_before_close(&closed), None);
    }
}
