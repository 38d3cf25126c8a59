//! A connection below the commands: whole frames, parts of frames, bytes that are none, and what comes back.

use crate::cbor::Value;
use crate::sys;
use minicbor::Encode;
use muster_model::command::Reply;
use muster_model::refusal::{Refusal, RefusalCode};
use muster_model::shared_spec::SpecTable;
use muster_proto::PROTOCOL;
use muster_proto::client::{Request, RequestBody, Response};
use muster_proto::hello::JobCredential;
use muster_proto::step::{AgentReply, AgentRequest, FromStepd};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr};
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

/// Time limit for an answer, after which the daemon counts as hung.
pub const ANSWER_MAX: Duration = Duration::from_secs(20);

/// Outcome of a request.
#[derive(Clone, Debug, PartialEq)]
pub enum PeerReply<T> {
    /// It was carried out or answered.
    Accepted(T),
    /// It was refused by name.
    Refused(Refusal),
    /// The daemon closed the connection.
    Closed,
    /// Nothing came in time.
    Silent,
    /// An answer that cannot be read.
    Unreadable(String),
}

impl<T> PeerReply<T> {
    /// Whether it was neither carried out nor left without an answer.
    pub fn is_refusal(&self) -> bool {
        matches!(self, PeerReply::Refused(_) | PeerReply::Closed)
    }
}

/// A daemon's answer, as far as attacks look at it.
pub trait ReplyContent: Sized {
    /// Reads it.
    ///
    /// # Errors
    /// It is something else.
    fn read(body: &[u8]) -> Result<Self, minicbor::decode::Error>;

    /// The refusal, if it is one.
    fn refusal(&self) -> Option<Refusal>;
}

impl ReplyContent for Response {
    fn read(body: &[u8]) -> Result<Response, minicbor::decode::Error> {
        minicbor::decode_with(body, &mut SpecTable::default())
    }

    fn refusal(&self) -> Option<Refusal> {
        match self {
            Response::Refused(refusal) => Some(refusal.clone()),
            Response::Reply(reply) => match reply.as_ref() {
                Reply::Refused(refusal) => Some(refusal.clone()),
                Reply::Done {
                    changed: 0,
                    refused,
                } => refused.first().map(|(_, refusal)| refusal.clone()),
                _ => None,
            },
            _ => None,
        }
    }
}

impl ReplyContent for AgentReply {
    fn read(body: &[u8]) -> Result<AgentReply, minicbor::decode::Error> {
        minicbor::decode(body)
    }

    fn refusal(&self) -> Option<Refusal> {
        match self {
            AgentReply::Refused(refusal) => Some(refusal.clone()),
            // It waits: nothing was done.
            AgentReply::Queued(why) => Some(Refusal::new(RefusalCode::Busy, why)),
            _ => None,
        }
    }
}

impl ReplyContent for FromStepd {
    fn read(body: &[u8]) -> Result<FromStepd, minicbor::decode::Error> {
        minicbor::decode(body)
    }

    fn refusal(&self) -> Option<Refusal> {
        match self {
            FromStepd::Refused(refusal) => Some(refusal.clone()),
            _ => None,
        }
    }
}

/// The credential that an agent reads from these bytes, if it reads one.
pub fn credential(bytes: &[u8]) -> Option<JobCredential> {
    minicbor::decode(bytes).ok()
}

/// One end of a connection to a daemon.
#[derive(Debug)]
pub struct Peer {
    stream: UnixStream,
}

impl Peer {
    /// Connects; the daemon sees the credentials of the calling thread.
    ///
    /// # Errors
    /// Nothing listens, or it cannot take more.
    pub fn connect(socket: &Path) -> io::Result<Peer> {
        Peer::connect_within(socket, ANSWER_MAX)
    }

    /// Connects and writes, both with a limit on the time that the daemon may let this wait.
    ///
    /// # Errors
    /// `WouldBlock` where the daemon accepts nobody for this time.
    pub fn connect_within(socket: &Path, patience: Duration) -> io::Result<Peer> {
        Peer::connect_by(SockType::Stream, socket, patience)
    }

    /// As above, where messages are kept whole (`SOCK_SEQPACKET`): each write is one, and each read.
    ///
    /// # Errors
    /// See [`Peer::connect_within`].
    pub fn connect_for_messages(socket: &Path, patience: Duration) -> io::Result<Peer> {
        let peer = Peer::connect_by(SockType::SeqPacket, socket, patience)?;
        peer.stream.set_read_timeout(Some(patience))?;
        Ok(peer)
    }

    /// Over a socket that is connected; writes have a limit.
    ///
    /// # Errors
    /// Those of setsockopt(2).
    pub fn over(stream: UnixStream, patience: Duration) -> io::Result<Peer> {
        stream.set_write_timeout(Some(patience))?;
        Ok(Peer { stream })
    }

    fn connect_by(kind: SockType, socket: &Path, patience: Duration) -> io::Result<Peer> {
        let fd = nix::sys::socket::socket(AddressFamily::Unix, kind, SockFlag::SOCK_CLOEXEC, None)?;
        let stream = UnixStream::from(fd);
        // It holds for connect(2) as well.
        stream.set_write_timeout(Some(patience))?;
        nix::sys::socket::connect(stream.as_raw_fd(), &UnixAddr::new(socket)?)?;
        Ok(Peer { stream })
    }

    /// Writes bytes as they are.
    ///
    /// # Errors
    /// The daemon has closed the connection, or reads nothing.
    pub fn send_raw(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// Writes bytes as they are, with descriptors.
    ///
    /// # Errors
    /// Those of sendmsg(2).
    pub fn send_with(&mut self, bytes: &[u8], fds: &[RawFd]) -> io::Result<()> {
        let sent = sys::send_with(&self.stream, bytes, fds)?;
        self.send_raw(&bytes[sent..])
    }

    /// Reads one message of a socket that keeps them whole; empty at the end.
    ///
    /// # Errors
    /// `WouldBlock` when nothing came in time.
    pub fn message(&mut self) -> io::Result<Vec<u8>> {
        let mut message = vec![0; 32 << 10];
        let length = self.stream.read(&mut message)?;
        message.truncate(length);
        Ok(message)
    }

    /// Reads the body of one frame.
    ///
    /// # Errors
    /// `UnexpectedEof` when the daemon closed; `WouldBlock` when nothing came in time.
    pub fn frame(&mut self, patience: Duration) -> io::Result<Vec<u8>> {
        let until = Instant::now() + patience;
        let mut header = [0; 4];
        self.read_until(&mut header, until)?;
        let mut body = vec![0; u32::from_be_bytes(header) as usize];
        self.read_until(&mut body, until)?;
        Ok(body)
    }

    fn read_until(&mut self, into: &mut [u8], until: Instant) -> io::Result<()> {
        let mut done = 0;
        while done < into.len() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            self.stream.set_read_timeout(Some(left))?;
            match self.stream.read(&mut into[done..]) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => done += count,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    /// Reads one answer.
    pub fn answer<T: ReplyContent>(&mut self, patience: Duration) -> PeerReply<T> {
        match self.frame(patience) {
            Ok(body) => match T::read(&body) {
                Ok(response) => match response.refusal() {
                    Some(refusal) => PeerReply::Refused(refusal),
                    None => PeerReply::Accepted(response),
                },
                Err(e) => PeerReply::Unreadable(e.to_string()),
            },
            Err(e)
                if matches!(
                    e.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
                ) =>
            {
                PeerReply::Silent
            }
            Err(_) => PeerReply::Closed,
        }
    }

    /// Reads the first frame, and all that follows until the daemon closes or is silent for `patience`; all as one.
    ///
    /// # Errors
    /// Nothing came.
    pub fn all_frames(&mut self, patience: Duration) -> io::Result<Vec<u8>> {
        let mut all = self.frame(ANSWER_MAX)?;
        while let Ok(body) = self.frame(patience) {
            all.extend(body);
        }
        Ok(all)
    }

    /// Sends one frame and reads the answer.
    pub fn ask<T: ReplyContent>(&mut self, frame: &[u8]) -> PeerReply<T> {
        match self.send_raw(frame) {
            // A refusal may have come before the daemon closed the connection.
            Ok(()) | Err(_) => self.answer(ANSWER_MAX),
        }
    }
}

/// A body as a frame.
pub fn framed(body: &[u8]) -> Vec<u8> {
    let mut frame = u32::try_from(body.len())
        .unwrap_or(u32::MAX)
        .to_be_bytes()
        .to_vec();
    frame.extend_from_slice(body);
    frame
}

/// A message as a frame.
pub fn frame_of<T: Encode<()>>(message: &T) -> Vec<u8> {
    framed(&Value::of(message).encode())
}

/// A request to the controller, as a tree.
pub fn request(body: RequestBody) -> Value {
    Value::of(&Request {
        version: PROTOCOL,
        client: None,
        body,
    })
}

/// Request in a message to the controller; none if it is no request.
pub fn body_of(message: &Value) -> Option<RequestBody> {
    let request: Request = minicbor::decode(&message.encode()).ok()?;
    Some(request.body)
}

/// Asks the controller over a connection of its own.
pub fn ask_controller(socket: &Path, message: &Value) -> PeerReply<Response> {
    match Peer::connect(socket) {
        Ok(mut peer) => peer.ask(&framed(&message.encode())),
        Err(_) => PeerReply::Closed,
    }
}

/// Asks an agent over a connection of its own.
pub fn ask_agent(socket: &Path, request: &AgentRequest) -> PeerReply<AgentReply> {
    match Peer::connect(socket) {
        Ok(mut peer) => peer.ask(&frame_of(request)),
        Err(_) => PeerReply::Closed,
    }
}
