//! What relay and agent say to each other, by a socket pair that keeps messages whole.

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
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::{Mutex, MutexGuard};

/// Longest message: a credential.
const MESSAGE_MAX: usize = 16 << 10;

/// From the relay to the agent.
#[derive(Debug, Encode, Decode, Validate)]
pub(crate) enum ToAgent {
    /// Who is it that shows this credential ([`muster_proto::hello::JobCredential`])?
    #[n(0)]
    Verify {
        #[n(0)]
        number: u64,
        #[n(1)]
        #[cbor(with = "minicbor::bytes")]
        credential: Vec<u8>,
    },
    /// The stranger has the key and asks for the agent. Its connection comes with this message, which has its address.
    #[n(1)]
    Connected(#[n(0)] u64, #[n(1)] Option<IpAddr>),
    /// The stranger has disconnected, or has no key.
    #[n(2)]
    Gone(#[n(0)] u64),
}

/// The agent of another node, as who has the key of a job can say.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Encode, Decode, Validate)]
pub(crate) struct JobAgent {
    #[n(0)]
    pub(crate) job: JobId,
    /// One of the job's.
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
    /// Who has this secret may connect.
    #[n(0)]
    Verified {
        #[n(0)]
        number: u64,
        #[n(1)]
        secret: ByteArray<SECRET>,
        /// To this socket; to the agent itself if absent.
        #[n(2)]
        path: Option<String>,
        /// The user.
        #[n(3)]
        uid: u32,
        /// It is not the user's but an agent's.
        #[n(4)]
        agent: Option<JobAgent>,
    },
    /// Nobody may.
    #[n(1)]
    Refused {
        #[n(0)]
        number: u64,
        #[n(1)]
        why: String,
    },
}

impl Message for ToAgent {
    const BYTES_MAX: usize = MESSAGE_MAX;
}

impl Message for ToRelay {
    const BYTES_MAX: usize = MESSAGE_MAX;
}

/// Makes both ends.
pub(crate) fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let pair = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, flags)?;
    Ok(pair)
}

/// One end. Clones are the same one.
#[derive(Clone, Debug)]
pub(crate) struct Control(Arc<ControlEnd>);

#[derive(Debug)]
struct ControlEnd {
    socket: AsyncFd<OwnedFd>,
    /// Held by who sends: others wait in the order in which they came.
    turn: Mutex<()>,
}

/// The right to send before all that wait.
pub(crate) struct SendTurn<'c> {
    socket: &'c AsyncFd<OwnedFd>,
    _held: MutexGuard<'c, ()>,
}

impl Control {
    /// Has to be called with the runtime there.
    pub(crate) fn new(end: OwnedFd) -> io::Result<Control> {
        let socket = sys::watch(end, Interest::READABLE | Interest::WRITABLE)?;
        let turn = Mutex::new(());
        Ok(Control(Arc::new(ControlEnd { socket, turn })))
    }

    /// Sends a message, without waiting.
    ///
    /// # Errors
    /// The other side is gone; or, `WouldBlock`, it does not read, or others wait to send.
    pub(crate) fn send<T: Encode<()>>(
        &self,
        message: &T,
        with: Option<&OwnedFd>,
    ) -> io::Result<()> {
        let turn = self.0.turn.try_lock();
        let _held = turn.map_err(|_| io::ErrorKind::WouldBlock)?;
        send(self.0.socket.get_ref(), message, with)
    }

    /// Sends a message, once all were sent that waited before, and the other side has read enough of them: strangers, of whom there
    /// are many at a time, can have more sent than the kernel keeps.
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

    /// Waits for those who came before to have sent.
    pub(crate) async fn turn(&self) -> SendTurn<'_> {
        SendTurn {
            _held: self.0.turn.lock().await,
            socket: &self.0.socket,
        }
    }

    /// The next message, and what came with it; none at the end.
    ///
    /// # Errors
    /// The other side is not understood.
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
                // Not yet, then.
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
    /// Sends a message, once the other side has read enough of those before.
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

    /// Who came when there was room again was sent before all that had waited for it, as often as there was any.
    #[tokio::test]
    async fn nobody_sends_before_those_who_wait() {
        const LATEST: u64 = 9;
        let (near, far) = pair().unwrap();
        let (near, far) = (Control::new(near).unwrap(), Control::new(far).unwrap());
        let mut filled = 0;
        while near.send(&ToAgent::Gone(0), None).is_ok() {
            filled += 1;
        }
        let mut waiting = Vec::new();
        for number in 1..LATEST {
            let near = near.clone();
            waiting.push(tokio::spawn(async move {
                let gone = ToAgent::Gone(number);
                near.send_when_read(&gone, None).await.unwrap();
            }));
            tokio::task::yield_now().await;
        }
        // There is room for some of them, of which they do not know yet.
        for _ in 0..LATEST {
            far.receive::<ToAgent>().await.unwrap();
        }
        let refused = near.send(&ToAgent::Gone(LATEST), None).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::WouldBlock);
        let all = async {
            for expected in std::iter::repeat_n(0, filled - LATEST as usize).chain(1..=LATEST) {
                let received = far.receive::<ToAgent>().await.unwrap();
                let Some((ToAgent::Gone(number), _)) = received else {
                    panic!("no message {expected}");
                };
                assert_eq!(number, expected);
            }
        };
        let latest = near.send_when_read(&ToAgent::Gone(LATEST), None);
        tokio::join!(async { latest.await.unwrap() }, all);
    }
}
