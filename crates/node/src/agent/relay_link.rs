//! What the relay asks: who may connect from another host; and the connections that it brings.

use super::Input;
use super::listener::{Caller, CallerOf, Server};
use crate::relay::control::{Control, ToAgent, ToRelay};
use muster_channel::SECRET;
use muster_node_core::agent::{ChannelPeer, ChannelTarget};
use muster_proto::frame;
use muster_proto::hello::JobCredential;
use muster_trust::channel_secret;
use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::mpsc;

/// Users of connections that were verified and have not come yet.
const VERIFIED_MAX: usize = 2048;

/// Who may connect with this credential?
#[derive(Debug)]
pub(super) struct Question {
    pub(super) number: u64,
    pub(super) credential: JobCredential,
    link: RelayLink,
}

/// The way to the relay. Clones are the same one.
#[derive(Clone, Debug)]
struct RelayLink {
    control: Control,
    verified: Arc<Mutex<HashMap<u64, Caller>>>,
}

impl RelayLink {
    fn verified(&self) -> std::sync::MutexGuard<'_, HashMap<u64, Caller>> {
        self.verified.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn send(&self, answer: &ToRelay) {
        if let Err(e) = self.control.send(answer, None) {
            log::warn!("the relay for other hosts cannot be answered: {e}");
        }
    }
}

impl Question {
    /// Somebody has the key.
    pub(super) fn answer(self, peer: ChannelPeer) {
        let secret: [u8; SECRET] = channel_secret(&peer.key);
        let (path, of) = match peer.target {
            ChannelTarget::Agent(job) => (None, Some(CallerOf::Job(job))),
            ChannelTarget::AgentOf(node) => (None, Some(CallerOf::Node(node))),
            ChannelTarget::Stepd(path) => (Some(path), None),
        };
        if let Some(of) = of {
            let mut verified = self.link.verified();
            if verified.len() >= VERIFIED_MAX {
                drop(verified);
                return self.refuse("too many others connect at this moment");
            }
            let uid = peer.uid;
            verified.insert(self.number, Caller { uid, of });
        }
        self.link.send(&ToRelay::Verified {
            number: self.number,
            secret: secret.into(),
            path,
        });
    }

    /// Nobody has.
    pub(super) fn refuse(self, why: &str) {
        self.link.send(&ToRelay::Refused {
            number: self.number,
            why: why.to_owned(),
        });
    }
}

/// Serves the relay in the background, as long as both are there.
pub(super) fn keep(
    end: OwnedFd,
    server: Server,
    inputs: mpsc::UnboundedSender<Input>,
) -> io::Result<()> {
    let link = RelayLink {
        control: Control::new(end)?,
        verified: Arc::default(),
    };
    tokio::spawn(async move {
        match serve(&link, &server, &inputs).await {
            Ok(()) => log::error!("the relay for other hosts is gone: restart slurmd"),
            Err(e) => log::error!("the relay for other hosts is not understood: {e}"),
        }
    });
    Ok(())
}

async fn serve(
    link: &RelayLink,
    server: &Server,
    inputs: &mpsc::UnboundedSender<Input>,
) -> io::Result<()> {
    while let Some((message, with)) = link.control.receive::<ToAgent>().await? {
        match message {
            ToAgent::Verify { number, credential } => {
                let question = |credential| Question {
                    number,
                    credential,
                    link: link.clone(),
                };
                match frame::decode(&credential) {
                    Ok(credential) => {
                        let _ = inputs.send(Input::ChannelAsked(question(credential)));
                    }
                    Err(e) => link.send(&ToRelay::Refused {
                        number,
                        why: format!("the credential cannot be read: {e}"),
                    }),
                }
            }
            ToAgent::Connected(number) => {
                let caller = link.verified().remove(&number);
                if let (Some(caller), Some(stream)) = (caller, with) {
                    server.serve_remote(UnixStream::from(stream), caller);
                }
            }
            ToAgent::Gone(number) => {
                link.verified().remove(&number);
                let _ = inputs.send(Input::ChannelGone(number));
            }
        }
    }
    Ok(())
}
