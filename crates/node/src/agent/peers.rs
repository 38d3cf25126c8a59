//! Requests to other agents. A step asks each of its nodes, and each tells of its end: connections are kept for the
//! next.

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

/// Connections to an agent that are kept at most.
const KEPT_MAX: usize = 4;

/// Connections that wait for requests, by address. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Peers {
    kept: Arc<Mutex<HashMap<String, Vec<Socket>>>>,
    /// Most that are kept to an agent.
    most: usize,
    way: DialMethod,
    /// The node that asks.
    node: Arc<str>,
}

/// How connections are made. Either way they begin with the name of the node that asks.
#[derive(Clone, Debug)]
enum DialMethod {
    /// By the supervisor: this process may not reach all sockets, nor be believed for which node it speaks.
    Supervisor(Arc<PeerDialer>),
    /// By this process, which has the supervisor's user.
    Direct,
}

impl Peers {
    /// Keeps connections, which the supervisor makes.
    pub(super) fn by_supervisor(dialer: PeerDialer, node: &str) -> Peers {
        Peers {
            most: KEPT_MAX,
            node: node.into(),
            way: DialMethod::Supervisor(Arc::new(dialer)),
            kept: Arc::default(),
        }
    }

    /// Makes a connection for each request, for this node.
    pub(crate) fn direct(node: &str) -> Peers {
        Peers {
            way: DialMethod::Direct,
            node: node.into(),
            kept: Arc::default(),
            most: 0,
        }
    }

    /// Asks another agent something; gives its first answer.
    pub(crate) async fn ask(
        &self,
        address: &str,
        request: &AgentRequest,
    ) -> anyhow::Result<AgentReply> {
        let found = Address::parse(address);
        let found = found.with_context(|| format!("invalid agent address {address}"))?;
        let shown = request.agents_key();
        let request = frame::encode(request);
        // One that does not answer was left behind by an agent that is gone; another may be there. What it was asked for
        // twice, it does once.
        let answer = match self.take(address) {
            Some(kept) => exchange(kept, &request).await.ok(),
            None => None,
        };
        let (reply, socket) = match answer {
            Some(answer) => answer,
            None => {
                let socket = match (found.remote_place(), shown) {
                    (Some(there), Some(shown)) => self.connect_remote(there, shown).await?,
                    (Some(_), None) => bail!("{address}: that is not for other hosts"),
                    (None, _) => self.connect(&found.path).await?,
                };
                exchange(socket, &request).await?
            }
        };
        self.keep(address, socket);
        Ok(reply)
    }

    /// Connects to the agent of a node on another host, by the key of a job that both have.
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
        kept.get_mut(address)?.pop()
    }

    fn keep(&self, address: &str, socket: Socket) {
        if self.most == 0 {
            return;
        }
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let of_address = match kept.get_mut(address) {
            Some(sockets) => sockets,
            None => kept.entry(address.to_owned()).or_default(),
        };
        if of_address.len() < self.most {
            of_address.push(socket);
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
