//! Frames that arrive on a socket which is polled beside others: bytes are taken without blocking, whole messages
//! handed out.

use minicbor::Decode;
use muster_model::shared_spec::SpecTable;
use muster_proto::client::{self, Response};
use muster_proto::frame::{self, Message};
use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, recv};
use std::io;
use std::os::fd::AsRawFd;

/// Room for the first bytes: most commands receive little, and each page that is touched costs them a fault.
const ROOM: usize = 2 << 10;
/// Room where much comes.
const ROOM_MAX: usize = 64 << 10;

/// Bytes received, and how many of them were handed out.
#[derive(Debug)]
pub(crate) struct Incoming {
    bytes: Vec<u8>,
    start: usize,
    /// Bytes of one read.
    room: usize,
}

impl Default for Incoming {
    fn default() -> Incoming {
        Incoming {
            bytes: Vec::new(),
            start: 0,
            room: ROOM,
        }
    }
}

impl Incoming {
    /// Takes the available bytes. `false` when the peer has closed.
    pub(crate) fn fill(&mut self, socket: &impl AsRawFd) -> io::Result<bool> {
        if self.start > 0 {
            self.bytes.drain(..self.start);
            self.start = 0;
        }
        let end = self.bytes.len();
        self.bytes.resize(end + self.room, 0);
        let got = recv(
            socket.as_raw_fd(),
            &mut self.bytes[end..],
            MsgFlags::MSG_DONTWAIT,
        );
        self.bytes.truncate(end + got.unwrap_or(0));
        match got {
            Ok(0) => Ok(false),
            Ok(n) => {
                if n == self.room {
                    self.room = ROOM_MAX;
                }
                Ok(true)
            }
            Err(Errno::EAGAIN | Errno::EINTR) => Ok(true),
            Err(Errno::ECONNRESET) => Ok(false),
            Err(e) => Err(e.into()),
        }
    }

    /// The next message, if all of it has arrived.
    pub(crate) fn next<T: for<'b> Decode<'b, ()> + Message>(&mut self) -> io::Result<Option<T>> {
        self.next_by(|body| frame::decode(body))
    }

    /// The next answer of a controller, if all of it has arrived. `specs` are those of the parts of the same answer that
    /// came before.
    pub(crate) fn next_answer(&mut self, specs: &mut SpecTable) -> io::Result<Option<Response>> {
        self.next_by(|body| client::decode_answer(body, specs))
    }

    fn next_by<T: Message>(
        &mut self,
        decode: impl FnOnce(&[u8]) -> io::Result<T>,
    ) -> io::Result<Option<T>> {
        let rest = &self.bytes[self.start..];
        let Some(header) = rest.first_chunk::<4>() else {
            return Ok(None);
        };
        let end = 4 + frame::length_of::<T>(*header)?;
        let Some(body) = rest.get(4..end) else {
            return Ok(None);
        };
        let message = decode(body)?;
        self.start += end;
        Ok(Some(message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_proto::step::FromStepd;
    use std::io::Write as _;
    use std::os::unix::net::UnixStream;

    #[test]
    fn messages_arrive_in_pieces() {
        let (mut here, there) = UnixStream::pair().unwrap();
        let mut bytes = frame::encode(&FromStepd::Started(vec![1, 2]));
        frame::encode_into(&FromStepd::NodeTasksEnded, &mut bytes);
        let mut incoming = Incoming::default();
        here.write_all(&bytes[..5]).unwrap();
        assert!(incoming.fill(&there).unwrap());
        assert_eq!(incoming.next::<FromStepd>().unwrap(), None);
        here.write_all(&bytes[5..]).unwrap();
        assert!(incoming.fill(&there).unwrap());
        assert_eq!(
            incoming.next().unwrap(),
            Some(FromStepd::Started(vec![1, 2]))
        );
        assert_eq!(incoming.next().unwrap(), Some(FromStepd::NodeTasksEnded));
        assert_eq!(incoming.next::<FromStepd>().unwrap(), None);
        assert!(
            incoming.fill(&there).unwrap(),
            "nothing there is not the end"
        );
        drop(here);
        assert!(!incoming.fill(&there).unwrap());
    }

    #[test]
    fn much_comes_in_larger_pieces() {
        let (mut here, there) = UnixStream::pair().unwrap();
        let text = FromStepd::NodeMessage("x".repeat(3 * ROOM));
        here.write_all(&frame::encode(&text)).unwrap();
        let mut incoming = Incoming::default();
        assert!(incoming.fill(&there).unwrap());
        assert_eq!(incoming.next::<FromStepd>().unwrap(), None);
        assert!(incoming.fill(&there).unwrap());
        assert_eq!(incoming.next().unwrap(), Some(text));
    }
}
