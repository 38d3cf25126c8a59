//! Requests to other agents. A step sends one to each of its nodes, and each node reports its end,
//! so connections are kept for reuse.

use super::socket::Socket;
use super::supervisor_link::PeerDialer;
use crate::{info, remote};
use anyhow::{Context as _, bail};
use minicbor::bytes::ByteVec;
use muster_model::ids::JobId;
use muster_proto::address::{Address, NetworkPlace};
use muster_proto::frame::{self, Frames};
use muster_proto::hello::JobCredential;
use muster_proto::step::{AgentReply, AgentRequest};
use muster_proto::version::Versions;
use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Maximum number of kept connections per agent.
pub(super) const KEPT_MAX: usize = 4;

/// Time that an unused connection is kept. The other agent, which has a limited number of places for all agents, closes
/// it after [twice that](super::listener).
pub(super) const KEPT_IDLE_MAX: Duration = Duration::from_secs(60);

/// A connection that is kept for a request.
#[derive(Debug)]
struct KeptSocket {
    socket: Socket,
    since: Instant,
}

/// Kept connections.
#[derive(Debug, Default)]
struct KeptSockets {
    by_address: HashMap<String, Vec<KeptSocket>>,
    /// Time at which expired connections were last closed.
    closed_at: Option<Instant>,
}

impl KeptSockets {
    /// Closes expired connections; all are checked at once, at most once in that time.
    fn close_idle(&mut self, now: Instant) {
        if self
            .closed_at
            .is_some_and(|at| now.duration_since(at) < KEPT_IDLE_MAX)
        {
            return;
        }
        self.closed_at = Some(now);
        self.by_address.retain(|_, sockets| {
            sockets.retain(|kept| now.duration_since(kept.since) < KEPT_IDLE_MAX);
            !sockets.is_empty()
        });
    }
}

/// Kept connections by address. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Peers {
    kept: Arc<Mutex<KeptSockets>>,
    /// Maximum number kept per agent.
    most: usize,
    way: DialMethod,
    /// The node that sends the requests.
    node: Arc<str>,
}

/// Way in which connections are opened. In both cases they begin with the name of the requesting node.
#[derive(Clone, Debug)]
enum DialMethod {
    /// By the supervisor: this process may lack access to other sockets, and would not be trusted
    /// to state its node.
    Supervisor(Arc<PeerDialer>),
    /// By this process, which runs as the supervisor's user.
    Direct,
}

impl Peers {
    /// Keeps connections that the supervisor opens.
    pub(super) fn by_supervisor(dialer: PeerDialer, node: &str) -> Peers {
        Peers {
            most: KEPT_MAX,
            node: node.into(),
            way: DialMethod::Supervisor(Arc::new(dialer)),
            kept: Arc::default(),
        }
    }

    /// Opens a connection for each request of this node.
    pub(crate) fn direct(node: &str) -> Peers {
        Peers {
            way: DialMethod::Direct,
            node: node.into(),
            kept: Arc::default(),
            most: 0,
        }
    }

    /// Sends a request to another agent; returns its first reply.
    pub(crate) async fn ask(
        &self,
        address: &str,
        request: &AgentRequest,
    ) -> anyhow::Result<AgentReply> {
        let found = Address::parse(address);
        let found = found.with_context(|| format!("invalid agent address {address}"))?;
        let shown = request.agents_key();
        let request = frame::encode(request);
        // A kept connection without a reply may lead to an agent that has ended, while another has
        // taken its place. Sending the request twice is safe, because the agent carries it out
        // once.
        let answer = match self.take(address) {
            Some(kept) => exchange(kept, &request).await.ok(),
            None => None,
        };
        let (reply, socket) = match answer {
            Some(answer) => answer,
            None => {
                let socket = match (found.remote_place(), shown) {
                    (Some(there), Some(shown)) => self.connect_remote(there, shown).await?,
                    (Some(_), None) => bail!("{address}: not a socket for other hosts"),
                    (None, _) => self.connect(&found.path).await?,
                };
                exchange(socket, &request).await?
            }
        };
        self.keep(address, socket);
        Ok(reply)
    }

    /// Connects to the agent of a node on another host, using the key of a job that both nodes
    /// have.
    async fn connect_remote(
        &self,
        there: &NetworkPlace,
        (job, key): (JobId, &ByteVec),
    ) -> anyhow::Result<Socket> {
        let credential = JobCredential::Node {
            job,
            node: self.node.to_string(),
        };
        let stream = remote::connect(&there.place, &credential, key).await;
        Ok(Socket::new(stream.with_context(|| there.place.clone())?)?)
    }

    async fn connect(&self, path: &str) -> anyhow::Result<Socket> {
        anyhow::ensure!(
            info::is_agent_socket(path),
            "{path} is not an agent's socket"
        );
        match &self.way {
            DialMethod::Supervisor(dialer) => Ok(dialer.connect(path).await?),
            DialMethod::Direct => {
                let socket = Socket::connect(Path::new(path)).await?;
                let greeting = Some(Versions::CLUSTER.greeting());
                let serve = AgentRequest::ServeNode(self.node.to_string(), greeting);
                let restricted = frame::encode(&serve);
                socket.write_all(&restricted).await?;
                Ok(socket)
            }
        }
    }

    fn take(&self, address: &str) -> Option<Socket> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = kept.by_address.get_mut(address)?.pop()?;
        (kept.since.elapsed() < KEPT_IDLE_MAX).then_some(kept.socket)
    }

    fn keep(&self, address: &str, socket: Socket) {
        if self.most == 0 {
            return;
        }
        let now = Instant::now();
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.close_idle(now);
        let of_address = match kept.by_address.get_mut(address) {
            Some(sockets) => sockets,
            None => kept.by_address.entry(address.to_owned()).or_default(),
        };
        if of_address.len() < self.most {
            of_address.push(KeptSocket { socket, since: now });
        }
    }
}

async fn exchange(socket: Socket, request: &[u8]) -> anyhow::Result<(AgentReply, Socket)> {
    socket.write_all(request).await?;
    let mut frames = Frames::default();
    let mut chunk = [0; 4096];
    loop {
        if let Some(reply) = frames.take()? {
            return Ok((reply, socket));
        }
        let n = socket.read(&mut chunk).await.context("its answer")?;
        if n == 0 {
            bail!("it closed without an answer");
        }
        frames.push(&chunk[..n]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    #[tokio::test]
    async fn connections_that_wait_too_long_are_closed() {
        let mut kept = KeptSockets::default();
        let now = Instant::now();
        let at = |seconds: u64| now + Duration::from_secs(seconds);
        let mut far_ends = Vec::new();
        for (address, since) in [("a", at(0)), ("a", at(50)), ("b", at(0))] {
            let (near, far) = std::os::unix::net::UnixStream::pair().unwrap();
            far_ends.push(far);
            let socket = Socket::new(near).unwrap();
            let of_address = kept.by_address.entry(address.to_owned()).or_default();
            of_address.push(KeptSocket { socket, since });
        }
        let left = |kept: &KeptSockets| {
            let all = kept.by_address.iter();
            all.map(|(address, sockets)| (address.clone(), sockets.len()))
                .collect::<Vec<_>>()
        };
        kept.close_idle(at(61));
        assert_eq!(left(&kept), [("a".to_owned(), 1)]);
        // This connection is not checked again so soon.
        kept.close_idle(at(112));
        assert_eq!(left(&kept).len(), 1);
        kept.close_idle(at(122));
        assert!(left(&kept).is_empty());
    }

    fn answer(stream: &mut std::os::unix::net::UnixStream) {
        let _: AgentRequest = frame::read(stream).unwrap();
        frame::write(stream, &AgentReply::Done).unwrap();
    }

    #[tokio::test]
    async fn a_connection_is_kept_as_long_as_its_agent() {
        let dir = std::env::temp_dir().join(format!("muster-peers-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let path = info::agent_socket(&dir);
        let _ = std::fs::remove_file(&path);
        let listener = UnixListener::bind(&path).unwrap();
        let there = std::thread::spawn(move || {
            let accept = || {
                let (mut stream, _) = listener.accept().unwrap();
                let node: AgentRequest = frame::read(&mut stream).unwrap();
                let greeting = Some(Versions::CLUSTER.greeting());
                assert_eq!(node, AgentRequest::ServeNode("n1".to_owned(), greeting));
                stream
            };
            let mut first = accept();
            answer(&mut first);
            answer(&mut first);
            drop(first);
            let mut second = accept();
            answer(&mut second);
        });
        let peers = Peers {
            most: KEPT_MAX,
            ..Peers::direct("n1")
        };
        let address = info::agent_address(&dir);
        let request = AgentRequest::Inspect {
            job: muster_model::ids::JobId(1),
        };
        for _ in 0..3 {
            let reply = peers.ask(&address, &request).await.unwrap();
            assert_eq!(reply, AgentReply::Done);
        }
        there.join().unwrap();
        assert!(peers.ask(&address, &request).await.is_err(), "it is gone");
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
