//! The agent's side of the relay's protocol: which client may connect from another host, and the
//! connections that the relay brings.

use super::Input;
use super::listener::{Caller, CallerOf, Server};
use crate::messages::agent_relay::{AgentPage, Control, JobAgent, STRANGER_MAX, ToAgent, ToRelay};
use muster_channel::SECRET;
use muster_node_core::agent::{ChannelPeer, ChannelTarget};
use muster_proto::frame;
use muster_proto::hello::JobCredential;
use muster_trust::channel_secret;
use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

/// Maximum number of verified clients whose connections have not arrived, and of unhandled relay
/// messages. A message counts until the relay has taken its answer.
const VERIFIED_MAX: usize = 2048;

/// A question: may the client with this credential connect?
#[derive(Debug)]
pub(super) struct AdmissionQuery {
    pub(super) number: u64,
    pub(super) credential: JobCredential,
    link: RelayLink,
    place: AnswerPermit,
}

/// A question about the agent itself.
#[derive(Debug)]
pub(super) struct PageQuestion {
    number: u64,
    pub(super) page: AgentPage,
    link: RelayLink,
    place: AnswerPermit,
}

impl PageQuestion {
    /// Answers with a status of HTTP and a text.
    pub(super) fn answer(self, status: u16, text: String) {
        let number = self.number;
        let answer = ToRelay::Page {
            number,
            status,
            text,
        };
        self.link.send(answer, self.place);
    }
}

/// A place for one message of the relay among [`VERIFIED_MAX`].
type AnswerPermit = OwnedSemaphorePermit;

/// The link to the relay. Clones share it.
#[derive(Clone, Debug)]
struct RelayLink {
    control: Control,
    verified: Arc<Mutex<HashMap<u64, ExpectedPeer>>>,
    places: Arc<Semaphore>,
}

/// A verified client whose connection has not arrived yet.
#[derive(Debug)]
struct ExpectedPeer {
    caller: Caller,
    since: Instant,
}

/// A connection that the relay has closed, or whose client has no key.
#[derive(Debug)]
pub(super) struct ClosedRelayConn {
    pub(super) number: u64,
    link: RelayLink,
    _place: AnswerPermit,
}

impl ClosedRelayConn {
    /// Forgets the client. To be called after its question has been answered, because the
    /// connection comes through the same queue.
    pub(super) fn forget(self) {
        self.link.verified().remove(&self.number);
    }
}

impl RelayLink {
    fn new(end: OwnedFd) -> io::Result<RelayLink> {
        Ok(RelayLink {
            control: Control::new(end)?,
            verified: Arc::default(),
            places: Arc::new(Semaphore::new(VERIFIED_MAX)),
        })
    }

    /// A place for the next message, once one is free.
    async fn place(&self) -> io::Result<AnswerPermit> {
        let place = Arc::clone(&self.places).acquire_owned().await;
        place.map_err(io::Error::other)
    }

    fn verified(&self) -> std::sync::MutexGuard<'_, HashMap<u64, ExpectedPeer>> {
        self.verified.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends an answer. If the relay has no room for it, the answer keeps its place until there is.
    fn send(&self, answer: ToRelay, place: AnswerPermit) {
        match self.control.send(&answer, None) {
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                let control = self.control.clone();
                tokio::spawn(async move {
                    let _ = control.send_when_read(&answer, None).await;
                    drop(place);
                });
            }
            Err(e) => log::warn!("the relay for other hosts cannot be answered: {e}"),
            Ok(()) => {}
        }
    }
}

impl AdmissionQuery {
    /// Answers that the client may connect as this peer.
    pub(super) fn answer(self, peer: ChannelPeer) {
        let secret: [u8; SECRET] = channel_secret(&peer.key);
        let (path, of) = match peer.target {
            ChannelTarget::Agent(job) => (None, Some(CallerOf::Job(job))),
            ChannelTarget::AgentOf(job, node) => {
                (None, Some(CallerOf::Node(JobAgent { job, node })))
            }
            ChannelTarget::Stepd(path) => (Some(path), None),
        };
        let agent = match &of {
            Some(CallerOf::Node(agent)) => Some(agent.clone()),
            Some(CallerOf::Job(_)) | None => None,
        };
        if let Some(of) = of {
            let mut verified = self.link.verified();
            if verified.len() >= VERIFIED_MAX {
                // The relay keeps no client longer than this, so it cannot report these as gone.
                verified.retain(|_, entry| entry.since.elapsed() < STRANGER_MAX);
            }
            if verified.len() >= VERIFIED_MAX {
                drop(verified);
                return self.refuse("too many others connect at this moment");
            }
            let entry = ExpectedPeer {
                caller: Caller { uid: peer.uid, of },
                since: Instant::now(),
            };
            verified.insert(self.number, entry);
        }
        let answer = ToRelay::Verified {
            number: self.number,
            secret: secret.into(),
            path,
            uid: peer.uid,
            agent,
        };
        self.link.send(answer, self.place);
    }

    /// Answers that no client may connect with this credential.
    pub(super) fn refuse(self, why: &str) {
        let (number, why) = (self.number, why.to_owned());
        self.link.send(ToRelay::Refused { number, why }, self.place);
    }
}

/// Serves the relay in the background, as long as the relay and the agent run.
pub(super) fn maintain_connection(
    end: OwnedFd,
    server: Server,
    inputs: mpsc::UnboundedSender<Input>,
) -> io::Result<()> {
    let link = RelayLink::new(end)?;
    tokio::spawn(async move {
        let connect = |stream, caller, from| server.serve_remote(stream, caller, from);
        match serve(&link, connect, &inputs).await {
            Ok(()) => log::error!("the relay for other hosts is gone: restart slurmd"),
            Err(e) => log::error!("invalid message from the relay for other hosts: {e}"),
        }
    });
    Ok(())
}

async fn serve(
    link: &RelayLink,
    connect: impl Fn(UnixStream, Caller, Option<IpAddr>),
    inputs: &mpsc::UnboundedSender<Input>,
) -> io::Result<()> {
    loop {
        // Strangers reach the relay. If it is taken over and sends questions without reading
        // answers, nothing more is received beyond this limit.
        let place = link.place().await?;
        let Some((message, with)) = link.control.receive::<ToAgent>().await? else {
            return Ok(());
        };
        match message {
            ToAgent::Verify { number, credential } => match frame::decode(&credential) {
                Ok(credential) => {
                    let _ = inputs.send(Input::ChannelAsked(AdmissionQuery {
                        number,
                        credential,
                        link: link.clone(),
                        place,
                    }));
                }
                Err(e) => {
                    let why = format!("the credential cannot be read: {e}");
                    link.send(ToRelay::Refused { number, why }, place);
                }
            },
            ToAgent::GetPage(number, page) => {
                let _ = inputs.send(Input::PageAsked(PageQuestion {
                    number,
                    page,
                    link: link.clone(),
                    place,
                }));
            }
            ToAgent::StrangerConnected(number, from) => {
                let entry = link.verified().remove(&number);
                if let (Some(entry), Some(stream)) = (entry, with) {
                    connect(UnixStream::from(stream), entry.caller, from);
                }
            }
            ToAgent::StrangerDisconnected(number) => {
                let link = link.clone();
                let _ = inputs.send(Input::ChannelGone(ClosedRelayConn {
                    number,
                    link,
                    _place: place,
                }));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages::agent_relay;
    use muster_channel::CREDENTIAL_BYTES_MAX;
    use muster_model::ids::JobId;

    /// A link, and the relay's end of it.
    fn link() -> (RelayLink, OwnedFd) {
        let (of_relay, of_agent) = agent_relay::pair().unwrap();
        (RelayLink::new(of_agent).unwrap(), of_relay)
    }

    fn verify(link: &RelayLink, number: u64) {
        let question = AdmissionQuery {
            number,
            credential: JobCredential::Owner(JobId(1)),
            link: link.clone(),
            place: Arc::clone(&link.places).try_acquire_owned().unwrap(),
        };
        question.answer(ChannelPeer {
            key: vec![1; 32].into(),
            target: ChannelTarget::Agent(JobId(1)),
            uid: 7,
        });
    }

    /// A client that disconnects before the answer leaves no state.
    #[tokio::test]
    async fn a_connection_that_is_gone_is_forgotten_after_its_answer() {
        let (link, _relay) = link();
        verify(&link, 1);
        assert_eq!(link.verified().len(), 1);
        let gone = ClosedRelayConn {
            number: 1,
            link: link.clone(),
            _place: link.place().await.unwrap(),
        };
        gone.forget();
        assert!(link.verified().is_empty());
    }

    /// Earlier, answers that did not fit into the kernel's buffer were lost, and questions were refused as if there
    /// were no agent: many simultaneous connections of strangers kept steps of other users off the node.
    #[tokio::test]
    async fn no_question_and_no_answer_is_lost_however_many_there_are() {
        const COUNT: u64 = 1024;
        let (link, of_relay) = link();
        let relay = Control::new(of_relay).unwrap();
        let asking = relay.clone();
        let asked = tokio::spawn(async move {
            for number in 0..COUNT {
                let question = ToAgent::Verify {
                    number,
                    credential: vec![0; CREDENTIAL_BYTES_MAX],
                };
                asking.send_when_read(&question, None).await.unwrap();
            }
        });
        tokio::task::yield_now().await;
        // Without the limit, a lost answer would block this test.
        let all = tokio::time::timeout(STRANGER_MAX, async {
            for expected in 0..COUNT {
                let received = link.control.receive::<ToAgent>().await.unwrap();
                let Some((ToAgent::Verify { number, .. }, _)) = received else {
                    panic!("no question {expected}");
                };
                assert_eq!(number, expected);
                let why = "no".to_owned();
                let place = link.place().await.unwrap();
                link.send(ToRelay::Refused { number, why }, place);
            }
            for _ in 0..COUNT {
                let received = relay.receive::<ToRelay>().await.unwrap();
                assert!(received.is_some());
            }
        });
        all.await.unwrap();
        asked.await.unwrap();
    }

    /// Each answer that it did not read was kept: the agent's memory was its to fill.
    #[tokio::test]
    async fn a_relay_that_reads_no_answers_is_not_received_from_without_end() {
        let (link, of_relay) = link();
        let relay = Control::new(of_relay).unwrap();
        let (inputs, _taken) = mpsc::unbounded_channel();
        let serving = link.clone();
        tokio::spawn(async move { serve(&serving, |_, _, _| {}, &inputs).await });
        // Garbage is answered at once.
        let credential = vec![0xff; 64];
        let mut asked = 0;
        while link.places.available_permits() > 0 && asked < 4 * VERIFIED_MAX as u64 {
            let question = ToAgent::Verify {
                number: asked,
                credential: credential.clone(),
            };
            match relay.send(&question, None) {
                Ok(()) => asked += 1,
                Err(_) => tokio::task::yield_now().await,
            }
        }
        // In addition the kernel buffers messages in both directions.
        assert!(asked < 2 * VERIFIED_MAX as u64, "{asked} questions");
        assert_eq!(link.places.available_permits(), 0);
        let all = async {
            for _ in 0..asked {
                assert!(relay.receive::<ToRelay>().await.unwrap().is_some());
            }
        };
        tokio::time::timeout(STRANGER_MAX, all).await.unwrap();
    }

    #[tokio::test]
    async fn those_of_whom_nothing_was_said_make_room_in_time() {
        let (link, _relay) = link();
        let Some(since) = Instant::now().checked_sub(STRANGER_MAX) else {
            return;
        };
        for number in 0..VERIFIED_MAX as u64 {
            let of = CallerOf::Job(JobId(1));
            let caller = Caller { uid: 7, of };
            link.verified()
                .insert(number, ExpectedPeer { caller, since });
        }
        verify(&link, VERIFIED_MAX as u64);
        assert_eq!(link.verified().len(), 1);
    }
}
