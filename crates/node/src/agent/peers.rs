//! Requests to other agents. A step asks each of its nodes, and each tells of its end: connections are kept for the
//! next.

use super::socket::Socket;
use super::supervisor_link::PeerDialer;
use crate::info;
use anyhow::{Context as _, bail};
use muster_proto::frame::{self, Frames};
use muster_proto::step::{AgentReply, AgentRequest};
use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

/// Connections to an agent that are kept at most.
const KEPT_MAX: usize = 4;

/// Connections that wait for requests, by address. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Peers {
    kept: Arc<Mutex<HashMap<String, Vec<Socket>>>>,
    /// Most that are kept to an agent.
    most: usize,
    way: Way,
}

/// How connections are made. Either way they begin with the name of the node that asks.
#[derive(Clone, Debug, Default)]
enum Way {
    /// Not at all.
    #[default]
    None,
    /// By the supervisor: this process may not reach all sockets, nor be believed for which node it speaks.
    Supervisor(Arc<PeerDialer>),
    /// By this process, which has the supervisor's user, for this node.
    Direct(Arc<str>),
}

impl Peers {
    /// Keeps connections, which the supervisor makes.
    pub(super) fn by_supervisor(dialer: PeerDialer) -> Peers {
        Peers {
            most: KEPT_MAX,
            way: Way::Supervisor(Arc::new(dialer)),
            ..Peers::default()
        }
    }

    /// Makes a connection for each request, for this node.
    pub(crate) fn direct(node: &str) -> Peers {
        Peers {
            way: Way::Direct(node.into()),
            ..Peers::default()
        }
    }

    /// Asks another agent something; gives its first answer.
    pub(crate) async fn ask(
        &self,
        address: &str,
        request: &AgentRequest,
    ) -> anyhow::Result<AgentReply> {
        let Some(path) = address.strip_prefix("unix:") else {
            bail!(
                "agents on other machines (address '{address}') cannot be reached by this version"
            );
        };
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
                anyhow::ensure!(info::is_agent_socket(path), "{address} is no agent");
                exchange(self.connect(path).await?, &request).await?
            }
        };
        self.keep(address, socket);
        Ok(reply)
    }

    async fn connect(&self, path: &str) -> anyhow::Result<Socket> {
        match &self.way {
            Way::None => bail!("there is no way to other agents"),
            Way::Supervisor(dialer) => Ok(dialer.connect(path).await?),
            Way::Direct(node) => {
                let socket = Socket::connect(Path::new(path)).await?;
                let restricted = frame::encode(&AgentRequest::ServeNode(node.to_string()));
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
                assert_eq!(node, AgentRequest::ServeNode("n1".to_owned()));
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
