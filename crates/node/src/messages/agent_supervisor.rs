//! Messages between supervisor and agent. Requests arrive on a one-way link: even if the agent is
//! taken over, it cannot send descriptors, which the supervisor would have to close and whose
//! closing can block. Answers use socket pairs, one for each kind; the supervisor's end is shut
//! down for reading, so the agent cannot send on it. An answer is a descriptor, or the reason why
//! there is none.

use crate::descriptors;
use crate::one_way_link::OneWayLink;
use crate::sys;
use minicbor::bytes::ByteArray;
use minicbor::{Decode, Encode};
use muster_channel::SECRET;
use muster_model::validate::Validate;
use muster_proto::frame::{self, Message};
use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, MsgFlags, Shutdown, SockFlag, SockType, UnixAddr, connect as connect_to, recv,
    send, shutdown, socket, socketpair,
};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd, OwnedFd, RawFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Longest message.
const MESSAGE_MAX: usize = 1024;
/// Maximum number of bytes of unread requests. The buffer is larger, so that each request is sent
/// completely or not at all.
const WAITING_MAX: usize = 64 * MESSAGE_MAX;
/// Longest reason in an answer.
const REASON_MAX: usize = 512;

/// A request of the agent to its supervisor.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode, Validate)]
pub(crate) enum SupervisorRequest {
    /// A connection to the launcher. It is answered by two descriptors, one for the launcher's
    /// messages, under [`LAUNCHER_EVENTS`], and one for orders, under [`LAUNCHER_ORDERS`]; or by a
    /// reason, under the first.
    #[n(0)]
    Launcher,
    /// A connection to the controller.
    #[n(1)]
    Controller,
    /// A connection to the agent whose socket has this path. The answer repeats the number.
    #[n(2)]
    Peer {
        #[n(0)]
        number: u64,
        #[n(1)]
        path: String,
    },
    /// A credential for this node that contains this secret; the descriptor is read to get it. At
    /// most one at a time. The answer repeats the number.
    #[n(5)]
    Credential {
        #[n(0)]
        number: u64,
        #[n(1)]
        secret: ByteArray<SECRET>,
    },
    /// The controller has another configuration than before. There is no answer.
    #[n(6)]
    Configuration,
    /// The controller has this node's registration, or cannot be reached, or refuses it; sent once.
    /// There is no answer.
    #[n(7)]
    Ready,
}

impl Message for SupervisorRequest {
    const BYTES_MAX: usize = MESSAGE_MAX;
}

/// The agent's end of the link. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct RequestSender(Arc<OwnedFd>);

impl RequestSender {
    pub(crate) fn new(link: OwnedFd) -> RequestSender {
        RequestSender(Arc::new(link))
    }

    /// Sends a request, without waiting.
    ///
    /// # Errors
    /// `WouldBlock` if there is no room for another unread request.
    pub(crate) fn send(&self, request: &SupervisorRequest) -> io::Result<()> {
        let bytes = minicbor::to_vec(request).map_err(io::Error::other)?;
        let length = u16::try_from(bytes.len()).map_err(io::Error::other)?;
        if bytes.len() > MESSAGE_MAX {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let framed = [&length.to_be_bytes()[..], &bytes].concat();
        if sys::unread_bytes(self.0.as_fd())? + framed.len() > WAITING_MAX {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
        match send(self.0.as_raw_fd(), &framed, flags)? {
            sent if sent == framed.len() => Ok(()),
            // The rest would be read as another request, so the agent closes the link, ends, and is
            // started again.
            _ => {
                shutdown(self.0.as_raw_fd(), Shutdown::Both)?;
                Err(io::ErrorKind::WriteZero.into())
            }
        }
    }
}

/// The supervisor's end of the link.
#[derive(Debug)]
pub(crate) struct RequestReceiver {
    /// `None` once the agent has closed its end, or has sent an invalid request.
    link: Option<OwnedFd>,
    input: Vec<u8>,
}

/// Makes the link.
pub(crate) fn requests() -> io::Result<(RequestReceiver, OwnedFd)> {
    let link = OneWayLink::open()?;
    let receiver = RequestReceiver {
        link: Some(link.reader),
        input: Vec::new(),
    };
    Ok((receiver, link.writer))
}

impl RequestReceiver {
    /// The descriptor to poll; -1 when nothing more arrives.
    pub(crate) fn number(&self) -> RawFd {
        self.link.as_ref().map_or(-1, AsRawFd::as_raw_fd)
    }

    /// Receives available requests.
    pub(crate) fn receive(&mut self) -> Vec<SupervisorRequest> {
        let Some(link) = &self.link else {
            return Vec::new();
        };
        let mut chunk = [0; 4 * MESSAGE_MAX];
        match recv(link.as_raw_fd(), &mut chunk, MsgFlags::MSG_DONTWAIT) {
            Ok(0) => self.link = None,
            Ok(n) => self.input.extend_from_slice(&chunk[..n]),
            Err(Errno::EAGAIN | Errno::EINTR) => {}
            Err(_) => self.link = None,
        }
        let mut requests = Vec::new();
        while let Some((length, rest)) = self.input.split_first_chunk() {
            let length = usize::from(u16::from_be_bytes(*length));
            let request = rest.get(..length);
            match request.map(frame::decode) {
                None if length <= MESSAGE_MAX => break,
                Some(Ok(request)) => requests.push(request),
                None | Some(Err(_)) => {
                    log::error!("invalid message from the agent: it gets nothing more");
                    self.link = None;
                    self.input.clear();
                    break;
                }
            }
            self.input.drain(..2 + length);
        }
        requests
    }
}

/// A socket pair for answers: the supervisor's end, to which nothing can be sent, and the agent's.
pub(crate) fn answers() -> io::Result<(OwnedFd, OwnedFd)> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let (supervisor, agent) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, flags)?;
    shutdown(supervisor.as_raw_fd(), Shutdown::Read)?;
    Ok((supervisor, agent))
}

/// The number of unasked messages about the configuration: with a descriptor, which has no meaning,
/// it was applied; with a reason, it was not.
pub(crate) const CONFIGURATION: u64 = 1;

/// See [`SupervisorRequest::Launcher`].
pub(crate) const LAUNCHER_EVENTS: u64 = 0;
/// See [`SupervisorRequest::Launcher`].
pub(crate) const LAUNCHER_ORDERS: u64 = 1;

#[derive(Debug, Encode, Decode, Validate)]
pub(crate) struct SupervisorAnswer {
    /// The number of the request.
    #[n(0)]
    number: u64,
    /// The reason why there is no descriptor.
    #[n(1)]
    refused: Option<String>,
}

impl Message for SupervisorAnswer {
    const BYTES_MAX: usize = MESSAGE_MAX;
}

/// Number of answers that could not be sent.
static UNANSWERED: AtomicU64 = AtomicU64::new(0);

/// Answers the agent. If the agent does not read its answers, further ones are dropped.
pub(crate) fn answer(line: &OwnedFd, number: u64, result: io::Result<OwnedFd>) {
    let (with, refused) = match &result {
        Ok(fd) => (vec![fd.as_raw_fd()], None),
        Err(e) => {
            let text: String = e.to_string().chars().take(REASON_MAX / 4).collect();
            (Vec::new(), Some(text))
        }
    };
    let bytes = minicbor::to_vec(SupervisorAnswer { number, refused }).unwrap_or_default();
    if let Err(e) = descriptors::send(line, &bytes, &with) {
        // The agent may request again and again, so only few failures are logged.
        let count = UNANSWERED.fetch_add(1, Ordering::Relaxed) + 1;
        if count.is_power_of_two() {
            log::warn!("the agent cannot be answered ({count} times so far): {e}");
        }
    }
}

/// Reads an answer, and the number of its request. The outer error is the connection's.
///
/// # Errors
/// `WouldBlock`: there is no answer yet. `UnexpectedEof`: no answer will follow.
pub(crate) fn take_answer(line: &OwnedFd) -> io::Result<(u64, io::Result<OwnedFd>)> {
    let (mut room, mut received) = ([0; MESSAGE_MAX], VecDeque::new());
    let length = descriptors::receive(line, &mut room, &mut received)?;
    if length == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let answer: SupervisorAnswer = frame::decode(&room[..length])?;
    let result = match (answer.refused, received.pop_front()) {
        (None, Some(fd)) => Ok(fd),
        (Some(why), _) => Err(io::Error::other(why)),
        (None, None) => Err(io::Error::other("no descriptor came")),
    };
    Ok((answer.number, result))
}

/// Connects to a Unix socket without waiting. The other side sees the user of this process.
pub(crate) fn connect(path: &Path) -> io::Result<OwnedFd> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let own = socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
    connect_to(own.as_raw_fd(), &UnixAddr::new(path)?)?;
    Ok(own)
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::socket::{ControlMessage, sendmsg};
    use std::io::IoSlice;

    fn send_descriptor(to: RawFd) -> nix::Result<usize> {
        let file = std::fs::File::open("/dev/null").unwrap();
        let numbers = [file.as_raw_fd()];
        let rights = [ControlMessage::ScmRights(&numbers)];
        sendmsg::<()>(
            to,
            &[IoSlice::new(b"x")],
            &rights,
            MsgFlags::MSG_NOSIGNAL,
            None,
        )
    }

    /// On every kernel, a refused descriptor does not have to be closed.
    #[test]
    fn no_descriptor_of_an_agent_gets_as_far_as_the_supervisor() {
        let (supervisor, agent) = answers().unwrap();
        assert_eq!(send_descriptor(agent.as_raw_fd()), Err(Errno::EPIPE));
        // Answers still pass in the other direction.
        let file = std::fs::File::open("/dev/null").unwrap();
        answer(&supervisor, 7, Ok(file.into()));
        let (number, answered) = take_answer(&agent).unwrap();
        assert!(number == 7 && answered.is_ok());
    }

    #[test]
    fn requests_come_whole_and_in_order() {
        let (mut receiver, sender) = requests().unwrap();
        let sender = RequestSender::new(sender);
        let all: Vec<SupervisorRequest> = (0..200)
            .map(|number| match number % 3 {
                0 => SupervisorRequest::Launcher,
                1 => SupervisorRequest::Controller,
                _ => SupervisorRequest::Peer {
                    number,
                    path: "x".repeat(100),
                },
            })
            .collect();
        all.iter().for_each(|request| sender.send(request).unwrap());
        let mut received = Vec::new();
        while received.len() < all.len() {
            received.extend(receiver.receive());
        }
        assert_eq!(received, all);
        drop(sender);
        assert_eq!(receiver.receive(), []);
        assert_eq!(receiver.number(), -1);
    }

    #[test]
    fn a_request_for_which_there_is_no_room_is_not_sent_in_part() {
        let (mut receiver, sender) = requests().unwrap();
        let sender = RequestSender::new(sender);
        let request = SupervisorRequest::Peer {
            number: 1,
            path: "x".repeat(900),
        };
        let mut sent = 0;
        let full = loop {
            match sender.send(&request) {
                Ok(()) => sent += 1,
                Err(e) => break e,
            }
        };
        assert_eq!(full.kind(), io::ErrorKind::WouldBlock);
        let mut received = 0;
        while received < sent {
            received += receiver.receive().len();
        }
        sender.send(&SupervisorRequest::Controller).unwrap();
        while receiver.receive() != [SupervisorRequest::Controller] {}
    }

    #[test]
    fn who_is_not_understood_gets_nothing_more() {
        for bytes in [&[0xff, 0xff, 0][..], &[0, 1, 0xff], &[0, 0]] {
            let (mut receiver, sender) = requests().unwrap();
            send(sender.as_raw_fd(), bytes, MsgFlags::empty()).unwrap();
            assert_eq!(receiver.receive(), []);
            assert_eq!(receiver.number(), -1, "{bytes:?}");
        }
    }
}
