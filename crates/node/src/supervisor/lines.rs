//! What passes between supervisor and agent: three socket pairs that keep the bounds of messages, made before the agent is
//! executed. On the first two any message asks for a connection, to the launcher or to the controller; the third is for
//! sockets of jobs. An answer is a descriptor, or why there is none.

use crate::descriptors;
use minicbor::{Decode, Encode};
use muster_core::ids::JobId;
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, UnixAddr, connect as connect_to, socket,
};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

/// Longest message.
const MESSAGE_MAX: usize = 1024;
/// Longest reason in one.
const REASON_MAX: usize = 512;

/// About the socket of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub(crate) enum SocketRequest {
    /// Make it, for a user: answered by a listening socket.
    #[n(0)]
    Open(#[n(0)] JobId, #[n(1)] u32),
    /// Remove it. There is no answer.
    #[n(1)]
    Close(#[n(0)] JobId),
}

/// The request for a connection to another agent: a number, which comes back with the answer, and the path of its socket.
pub(crate) fn peer_request(number: u64, path: &str) -> Vec<u8> {
    [&number.to_be_bytes()[..], path.as_bytes()].concat()
}

/// What such a request says.
pub(super) fn read_peer_request(request: &[u8]) -> Option<(u64, &str)> {
    let (number, path) = request.split_first_chunk()?;
    Some((u64::from_be_bytes(*number), str::from_utf8(path).ok()?))
}

#[derive(Debug, Encode, Decode)]
struct Answer {
    /// The job that was asked for, or the number of the request.
    #[n(0)]
    job: u64,
    /// Why there is no descriptor.
    #[n(1)]
    refused: Option<String>,
}

/// What is to be read.
pub(super) enum Received {
    /// A request.
    Request(Vec<u8>),
    /// None yet.
    Nothing,
    /// The other side has ended.
    End,
}

/// Takes a request of the agent's. Descriptors have no place in one.
pub(super) fn receive(line: &OwnedFd) -> Received {
    let mut room = [0; MESSAGE_MAX];
    match nix::sys::socket::recv(
        line.as_raw_fd(),
        &mut room,
        nix::sys::socket::MsgFlags::empty(),
    ) {
        Ok(0) => Received::End,
        Ok(n) => Received::Request(room[..n].to_vec()),
        Err(nix::errno::Errno::EAGAIN | nix::errno::Errno::EINTR) => Received::Nothing,
        Err(_) => Received::End,
    }
}

/// Answers the agent. An agent that does not read its answers gets no more of them.
pub(super) fn answer(line: &OwnedFd, job: u64, result: io::Result<OwnedFd>) {
    let (with, refused) = match &result {
        Ok(fd) => (vec![fd.as_raw_fd()], None),
        Err(e) => {
            let text: String = e.to_string().chars().take(REASON_MAX / 4).collect();
            (Vec::new(), Some(text))
        }
    };
    let bytes = minicbor::to_vec(Answer { job, refused }).unwrap_or_default();
    if let Err(e) = descriptors::send(line, &bytes, &with) {
        log::warn!("the agent cannot be answered: {e}");
    }
}

/// Reads an answer, and the job that it is about. The outer error is the connection's.
///
/// # Errors
/// `WouldBlock`: there is none yet. `UnexpectedEof`: there will be none.
pub(crate) fn take_answer(line: &OwnedFd) -> io::Result<(u64, io::Result<OwnedFd>)> {
    let (mut room, mut come) = ([0; MESSAGE_MAX], VecDeque::new());
    let length = descriptors::receive(line, &mut room, &mut come)?;
    if length == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let answer: Answer = minicbor::decode(&room[..length]).map_err(io::Error::other)?;
    let result = match (answer.refused, come.pop_front()) {
        (None, Some(fd)) => Ok(fd),
        (Some(why), _) => Err(io::Error::other(why)),
        (None, None) => Err(io::Error::other("no descriptor came")),
    };
    Ok((answer.job, result))
}

/// Connects to a Unix socket without waiting. The other side sees the user of this process.
pub(super) fn connect(path: &Path) -> io::Result<OwnedFd> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let own = socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
    connect_to(own.as_raw_fd(), &UnixAddr::new(path)?)?;
    Ok(own)
}
