//! The side that is connected to, in a daemon with an event loop: it accepts connections, has somebody find out whose each is, and
//! carries those of which that is known to a socket of this host and back.

use crate::admission::{ByteBounds, ByteCount, Refusals, StrangerBounds, StrangerId, Strangers};
use crate::handshake::Channel;
use crate::relay::relay;
use std::any::Any;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::Notify;
use tokio::task::AbortHandle;

/// Waits after an error of accept(2): descriptors may be used up.
const ACCEPT_RETRY: Duration = Duration::from_millis(50);

/// Bounds of the bytes that are kept of carried connections: a part of a record of each, and bytes that were not taken yet.
/// One user has room for thousands of them.
pub const CARRIED: ByteBounds = ByteBounds {
    own: 64 << 20,
    all: 256 << 20,
    few: 1 << 20,
};

/// A connection whose owner is known.
#[derive(Debug)]
pub struct IdentifiedConnection {
    /// This host's end.
    pub local: UnixStream,
    /// The other host's end.
    pub remote: TcpStream,
    /// The channel between.
    pub channel: Channel,
    /// Dropped when the connection has ended: what counts it as its owner's.
    pub share: Option<Box<dyn Any>>,
    /// Where its kept bytes count, if its owner has a limit.
    pub bytes: Option<ByteCount>,
}

/// Lines for the daemon's log.
#[derive(Clone, Copy, Debug)]
pub struct Log {
    /// About connections that were refused.
    pub refused: fn(&str),
    /// About what ended a connection, or keeps others from being accepted.
    pub failed: fn(&str),
}

/// See the module. It belongs to one thread, with a `LocalSet`.
#[derive(Debug)]
pub struct ChannelServer {
    /// Time limit for finding out the user of a connection.
    patience: Duration,
    log: Log,
    strangers: RefCell<Strangers>,
    /// The tasks that find out.
    tasks: RefCell<HashMap<StrangerId, AbortHandle>>,
    refusals: RefCell<Refusals>,
    /// Connections that are carried.
    carried: Cell<usize>,
    all_ended: Notify,
}

/// A connection of which nobody knows whose it is.
struct Presence {
    server: Rc<ChannelServer>,
    id: StrangerId,
}

impl Drop for Presence {
    fn drop(&mut self) {
        self.server.strangers.borrow_mut().leave(self.id);
        self.server.tasks.borrow_mut().remove(&self.id);
    }
}

impl ChannelServer {
    /// With these bounds of connections of which nobody knows whose they are, in number and time.
    pub fn new(bounds: StrangerBounds, patience: Duration, log: Log) -> Rc<ChannelServer> {
        Rc::new(ChannelServer {
            patience,
            log,
            strangers: RefCell::new(Strangers::new(bounds)),
            tasks: RefCell::default(),
            refusals: RefCell::default(),
            carried: Cell::new(0),
            all_ended: Notify::new(),
        })
    }

    /// Accepts connections for ever. `identify` finds out whose one is, or gives the reason of its refusal; nothing if it has
    /// served it already.
    pub async fn accept<F>(
        self: &Rc<ChannelServer>,
        listener: TcpListener,
        identify: impl Fn(StrangerId, TcpStream, SocketAddr) -> F,
    ) where
        F: Future<Output = Result<Option<IdentifiedConnection>, String>> + 'static,
    {
        loop {
            match listener.accept().await {
                Ok((tcp, from)) => {
                    let from = SocketAddr::new(from.ip().to_canonical(), from.port());
                    self.admit(from, |id| identify(id, tcp, from));
                }
                Err(e) => {
                    (self.log.failed)(&format!("cannot accept a connection: {e}"));
                    tokio::time::sleep(ACCEPT_RETRY).await;
                }
            }
        }
    }

    /// Serves a connection, in place of an older one if there are too many of which nobody knows whose they are.
    fn admit<F>(self: &Rc<ChannelServer>, from: SocketAddr, identify: impl FnOnce(StrangerId) -> F)
    where
        F: Future<Output = Result<Option<IdentifiedConnection>, String>> + 'static,
    {
        let (id, gone) = self.strangers.borrow_mut().admit(from.ip());
        let evicted = gone.and_then(|gone| self.tasks.borrow_mut().remove(&gone));
        if let Some(task) = evicted {
            task.abort();
        }
        let presence = Presence {
            server: Rc::clone(self),
            id,
        };
        let (server, identified) = (Rc::clone(self), identify(id));
        let task = tokio::task::spawn_local(async move {
            let known = tokio::time::timeout(server.patience, identified).await;
            drop(presence);
            match known {
                Ok(Ok(Some(known))) => server.carry(known, from),
                Ok(Ok(None)) => {}
                Ok(Err(why)) => server.log_refusal(from, &why),
                Err(_) => server.log_refusal(from, "it did not say in time who it is"),
            }
        });
        self.tasks.borrow_mut().insert(id, task.abort_handle());
    }

    /// Carries in a task of its own, which is nobody's to abort.
    fn carry(self: &Rc<ChannelServer>, connection: IdentifiedConnection, from: SocketAddr) {
        let server = Rc::clone(self);
        let IdentifiedConnection {
            local,
            remote,
            channel,
            share,
            bytes,
        } = connection;
        self.carried.set(self.carried.get() + 1);
        tokio::task::spawn_local(async move {
            if let Err(e) = relay(local, remote, channel, bytes).await {
                (server.log.failed)(&format!("connection from {from}: {e}"));
            }
            drop(share);
            server.carried.set(server.carried.get() - 1);
            server.all_ended.notify_one();
        });
    }

    /// Waits until open relays have ended. Connections that are not authenticated yet are closed.
    pub async fn drain(&self) {
        let tasks = std::mem::take(&mut *self.tasks.borrow_mut());
        tasks.values().for_each(AbortHandle::abort);
        while self.carried.get() > 0 {
            self.all_ended.notified().await;
        }
    }

    fn log_refusal(&self, from: SocketAddr, why: &str) {
        let line = self.refusals.borrow_mut().line(from, why, Instant::now());
        if let Some(line) = line {
            (self.log.refused)(&line);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handshake::Responder;
    use crate::opening::Scheme;
    use crate::relay::{confirmed, read_opening};
    use crate::{SECRET, connect};
    use std::io::{Read as _, Write as _};
    use tokio::io::AsyncWriteExt as _;

    const SILENT: Log = Log {
        refused: |_| (),
        failed: |_| (),
    };
    const KNOWN: [u8; SECRET] = [4; SECRET];

    async fn identify(mut tcp: TcpStream) -> Result<Option<IdentifiedConnection>, String> {
        let opening = read_opening(&mut tcp).await?;
        let (responder, _) = Responder::accept(&opening, &KNOWN).map_err(|e| e.to_string())?;
        let (answer, channel) = responder.answer(b"").map_err(|e| e.to_string())?;
        tcp.write_all(&answer).await.map_err(|e| e.to_string())?;
        let channel = confirmed(&mut tcp, channel).await?;
        let (near, mut far) = UnixStream::pair().map_err(|e| e.to_string())?;
        far.write_all(b"served").await.map_err(|e| e.to_string())?;
        Ok(Some(IdentifiedConnection {
            local: near,
            remote: tcp,
            channel,
            share: None,
            bytes: Some(ByteCount::new(CARRIED)),
        }))
    }

    /// Strangers that say nothing, more than may be, keep nobody out.
    #[test]
    fn who_proves_who_he_is_is_served_among_many_that_do_not() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let local = tokio::task::LocalSet::new();
        local.block_on(&runtime, async {
            let bounds = StrangerBounds {
                all: 8,
                of_address: 4,
            };
            let server = ChannelServer::new(bounds, Duration::from_secs(30), SILENT);
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let client = tokio::task::spawn_blocking(move || {
                let connection = || std::net::TcpStream::connect(address).unwrap();
                let silent: Vec<_> = (0..50).map(|_| connection()).collect();
                let proof = (Scheme::Job, &b"7"[..], &KNOWN);
                let patience = Duration::from_secs(10);
                let connected = connect(connection(), proof, b"", patience).unwrap();
                let mut said = String::new();
                (&connected.stream).read_to_string(&mut said).unwrap();
                // The oldest have been turned away.
                let ended = (&silent[0]).read(&mut [0; 1]);
                assert!(matches!(ended, Ok(0) | Err(_)), "{ended:?}");
                let wrong = (Scheme::Job, &b"7"[..], &[5; SECRET]);
                let _ = (&silent[49]).write(b"nonsense");
                assert!(connect(connection(), wrong, b"", patience).is_err());
                said
            });
            let accepting = server.accept(listener, |_, tcp, _| identify(tcp));
            let said = tokio::select! {
                () = accepting => unreachable!("it accepts for ever"),
                said = client => said.unwrap(),
            };
            assert_eq!(said, "served");
            server.drain().await;
            assert!(server.tasks.borrow().is_empty());
        });
    }
}
