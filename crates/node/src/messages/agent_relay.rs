//! Messages between relay and agent, over a socket pair that preserves message boundaries.

use crate::descriptors;
use crate::sys;
use minicbor::bytes::ByteArray;
use minicbor::{Decode, Encode};
use muster_channel::SECRET;
use muster_model::ids::JobId;
use muster_model::validate::Validate;
use muster_proto::frame::{self, Message};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::{Mutex, MutexGuard};

/// Time that a client may remain unknown. The controller's message about a job may still be on its way to the agent.
pub(crate) const STRANGER_MAX: Duration = Duration::from_secs(20);

/// Longest message: a credential.
const MESSAGE_MAX: usize = 16 << 10;

/// From the relay to the agent.
#[derive(Debug, Encode, Decode, Validate)]
pub(crate) enum ToAgent {
    /// Question: which client is this credential of ([`muster_proto::hello::JobCredential`])?
    #[n(0)]
    Verify {
        #[n(0)]
        number: u64,
        #[n(1)]
        #[cbor(with = "minicbor::bytes")]
        credential: Vec<u8>,
    },
    /// The stranger has proved its key and asks for the agent. Its connection, with its address,
    /// comes with this message.
    #[n(1)]
    StrangerConnected(#[n(0)] u64, #[n(1)] Option<IpAddr>),
    /// The stranger has disconnected, or has no key.
    #[n(2)]
    StrangerDisconnected(#[n(0)] u64),
    /// Question: what does the agent say of itself?
    #[n(3)]
    GetPage(#[n(0)] u64, #[n(1)] AgentPage),
}

/// A page that anybody may ask of an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode, Validate)]
#[cbor(index_only)]
pub(crate) enum AgentPage {
    /// Whether it is connected with its controller and its launcher.
    #[n(0)]
    Ready,
    /// Counts for Prometheus.
    #[n(1)]
    Metrics,
}

/// The agent of another node, as far as the holder of a job's key can claim it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Encode, Decode, Validate)]
pub(crate) struct JobAgent {
    #[n(0)]
    pub(crate) job: JobId,
    /// The node of the job.
    #[n(1)]
    pub(crate) node: String,
}

impl fmt::Display for JobAgent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (job {})", self.node, self.job)
    }
}

/// From the agent to the relay.
#[derive(Debug, Encode, Decode, Validate)]
pub(crate) enum ToRelay {
    /// The client with this secret may connect.
    #[n(0)]
    Verified {
        #[n(0)]
        number: u64,
        #[n(1)]
        secret: ByteArray<SECRET>,
        /// The socket to connect to; `None` for the agent itself.
        #[n(2)]
        path: Option<String>,
        /// The user.
        #[n(3)]
        uid: u32,
        /// The client is an agent, not the user.
        #[n(4)]
        agent: Option<JobAgent>,
    },
    /// No client may connect with this credential.
    #[n(1)]
    Refused {
        #[n(0)]
        number: u64,
        #[n(1)]
        why: String,
    },
    /// The agent's page about itself, with a status of HTTP.
    #[n(2)]
    Page {
        #[n(0)]
        number: u64,
        #[n(1)]
        status: u16,
        #[n(2)]
        text: String,
    },
}

impl Message for ToAgent {
    const BYTES_MAX: usize = MESSAGE_MAX;
}

impl Message for ToRelay {
    const BYTES_MAX: usize = MESSAGE_MAX;
}

/// The supervisor's order to a relay that it starts: whether requests of HTTP are not answered.
pub(crate) fn relay_order(without_http: bool) -> Vec<u8> {
    vec![u8::from(without_http)]
}

/// Reads [`relay_order`].
pub(crate) fn is_without_http(order: &[u8]) -> bool {
    order == [1]
}

/// Creates both ends.
pub(crate) fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let pair = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, flags)?;
    Ok(pair)
}

/// One end. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Control(Arc<ControlEnd>);

#[derive(Debug)]
struct ControlEnd {
    socket: AsyncFd<OwnedFd>,
    /// Held while sending: other senders wait in order.
    turn: Mutex<()>,
}

/// The right to send before all waiting senders.
pub(crate) struct SendTurn<'c> {
    socket: &'c AsyncFd<OwnedFd>,
    _held: MutexGuard<'c, ()>,
}

impl Control {
    /// Must be called inside the runtime.
    pub(crate) fn new(end: OwnedFd) -> io::Result<Control> {
        let socket = sys::watch(end, Interest::READABLE | Interest::WRITABLE)?;
        let turn = Mutex::new(());
        Ok(Control(Arc::new(ControlEnd { socket, turn })))
    }

    /// Sends a message, without waiting.
    ///
    /// # Errors
    /// The other side is gone; or, `WouldBlock`, it does not read, or other senders wait.
    pub(crate) fn send<T: Encode<()>>(
        &self,
        message: &T,
        with: Option<&OwnedFd>,
    ) -> io::Result<()> {
        let turn = self.0.turn.try_lock();
        let _held = turn.map_err(|_| io::ErrorKind::WouldBlock)?;
        send(self.0.socket.get_ref(), message, with)
    }

    /// Sends a message after all earlier ones, once the other side has read enough of them: many
    /// strangers at a time can cause more messages than the kernel buffers.
    ///
    /// # Errors
    /// The other side is gone.
    pub(crate) async fn send_when_read<T: Encode<()>>(
        &self,
        message: &T,
        with: Option<&OwnedFd>,
    ) -> io::Result<()> {
        self.turn().await.send(message, with).await
    }

    /// Waits for its turn to send.
    pub(crate) async fn turn(&self) -> SendTurn<'_> {
        SendTurn {
            _held: self.0.turn.lock().await,
            socket: &self.0.socket,
        }
    }

    /// The next message and its descriptors; `None` at the end.
    ///
    /// # Errors
    /// The other side's message cannot be decoded.
    pub(crate) async fn receive<T: for<'b> Decode<'b, ()> + Message>(
        &self,
    ) -> io::Result<Option<(T, Option<OwnedFd>)>> {
        let mut room = vec![0; MESSAGE_MAX];
        let mut received = VecDeque::new();
        loop {
            let mut ready = self.0.socket.readable().await?;
            let read =
                ready.try_io(|fd| descriptors::receive(fd.get_ref(), &mut room, &mut received));
            let length = match read {
                Ok(Err(e)) if e.kind() == io::ErrorKind::Interrupted => continue,
                Ok(read) => read?,
                // Not ready after all.
                Err(_) => continue,
            };
            if length == 0 {
                return Ok(None);
            }
            let message = frame::decode(&room[..length])?;
            return Ok(Some((message, received.pop_front())));
        }
    }
}

impl SendTurn<'_> {
    /// Sends a message, once the other side has read enough of the earlier ones.
    ///
    /// # Errors
    /// The other side is gone.
    pub(crate) async fn send<T: Encode<()>>(
        &self,
        message: &T,
        with: Option<&OwnedFd>,
    ) -> io::Result<()> {
        let writable = Interest::WRITABLE;
        let sent = self
            .socket
            .async_io(writable, |socket| send(socket, message, with));
        sent.await
    }
}

fn send<T: Encode<()>>(socket: &OwnedFd, message: &T, with: Option<&OwnedFd>) -> io::Result<()> {
    let bytes = minicbor::to_vec(message).map_err(io::Error::other)?;
    let with: Vec<_> = with.map(|fd| fd.as_raw_fd()).into_iter().collect();
    descriptors::send(socket, &bytes, &with).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Earlier, a connection that came when there was room again was sent before all that had waited, however often
    /// this happened.
    #[tokio::test]
    async fn nobody_sends_before_those_who_wait() {
        const LATEST: u64 = 9;
        let (near, far) = pair().unwrap();
        let (near, far) = (Control::new(near).unwrap(), Control::new(far).unwrap());
        let mut filled = 0;
        while near.send(&ToAgent::StrangerDisconnected(0), None).is_ok() {
            filled += 1;
        }
        let mut waiting = Vec::new();
        for number in 1..LATEST {
            let near = near.clone();
            waiting.push(tokio::spawn(async move {
                let gone = ToAgent::StrangerDisconnected(number);
                near.send_when_read(&gone, None).await.unwrap();
            }));
            tokio::task::yield_now().await;
        }
        // Some of them have room now, which they do not know yet.
        for _ in 0..LATEST {
            far.receive::<ToAgent>().await.unwrap();
        }
        let refused = near
            .send(&ToAgent::StrangerDisconnected(LATEST), None)
            .unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::WouldBlock);
        let all = async {
            for expected in std::iter::repeat_n(0, filled - LATEST as usize).chain(1..=LATEST) {
                let received = far.receive::<ToAgent>().await.unwrap();
                let Some((ToAgent::StrangerDisconnected(number), _)) = received else {
                    panic!("no message {expected}");
                };
                assert_eq!(number, expected);
            }
        };
        let latest = near.send_when_read(&ToAgent::StrangerDisconnected(LATEST), None);
        tokio::join!(async { latest.await.unwrap() }, all);
    }
}
