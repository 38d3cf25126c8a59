//! The relay of a node: accepts connections from other hosts, of srun, of other agents and of step
//! daemons. It asks the agent for the secret that each client must have, and connects the client
//! with the agent or with a step daemon's socket. It forwards the data, encrypted on the network
//! ([`muster_channel`]).
//!
//! It is a separate process under the agent's account because it outlives the agent: streams of
//! steps continue while slurmd is restarted. Once its agent is gone it accepts no more connections,
//! and ends with its last one.

mod pages;
mod shares;

use crate::descriptor_limit;
use crate::failure;
use crate::messages::agent_relay::{self, AgentPage, Control, STRANGER_MAX, ToAgent, ToRelay};
use crate::role::{self, FIRST_FD, RELAY_NAME};
use crate::sys;
use crate::syscall_filter;
use anyhow::Context as _;
use muster_channel::admission::{StrangerBounds, StrangerId};
use muster_channel::relay::{FirstMessage, confirmed, read_beginning};
use muster_channel::server::{ChannelServer, IdentifiedConnection, Log};
use muster_channel::{Opening, Responder, SECRET, Scheme, UnconfirmedChannel};
use muster_proto::frame;
use muster_proto::hello::{ChannelAnswer, ChannelHello};
use muster_proto::version::Versions;
use pages::{AgentPages, PageAnswer};
use shares::{Owner, Shares};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::io::Write as _;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::process::ExitCode;
use std::rc::Rc;
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::{mpsc, oneshot};

/// Limits on connections whose client is not known yet.
const STRANGERS: StrangerBounds = StrangerBounds {
    all: 1024,
    of_address: 256,
};
/// Log target for lines about connections.
const LOG: Log = Log {
    refused: |line| log_line(line),
    // Both ends of a connection notice its state.
    failed: |_| (),
};

/// Logs a line, as long as the supervisor reads the log.
fn log_line(text: &str) {
    let _ = writeln!(std::io::stderr(), "{RELAY_NAME}: {text}");
}

/// Runs as a relay, as started by the supervisor.
pub fn relay_main() -> ExitCode {
    failure::end_on_panic();
    sys::set_name(c"muster-relay");
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            log_line(&format!("{e:#}"));
            ExitCode::FAILURE
        }
    }
}

fn run() -> anyhow::Result<()> {
    sys::set_undumpable().context("this process cannot be protected from others")?;
    // Signals that end slurmd come to its whole process group from terminals and from timeout(1).
    nix::unistd::setsid().context("this process cannot leave slurmd's session")?;
    let without_http = agent_relay::is_without_http(&role::read_order()?);
    let listener = std::net::TcpListener::from(role::take_descriptor(FIRST_FD)?);
    let agent = role::take_descriptor(FIRST_FD + 1)?;
    if let Err(e) = syscall_filter::apply() {
        log_line(&format!("cannot install the filter of system calls: {e:#}"));
    }
    let descriptors = descriptor_limit::raise();
    listener.set_nonblocking(true)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("the asynchronous runtime")?;
    let local = tokio::task::LocalSet::new();
    local.block_on(&runtime, async {
        let (mut relay, gone) = Relay::new(Control::new(agent)?, descriptors);
        relay.without_http = without_http;
        let relay = Rc::new(relay);
        let server = ChannelServer::new(STRANGERS, STRANGER_MAX, LOG);
        let listener = TcpListener::from_std(listener)?;
        tokio::select! {
            () = server.accept(listener, |id, tcp, _| {
                let relay = Rc::clone(&relay);
                async move { relay.meet(id, tcp).await }
            }) => {}
            () = relay.report_gone(gone) => {}
            ended = relay.take_answers() => {
                if let Err(e) = ended {
                    log_line(&format!("invalid message from the agent: {e}"));
                }
            }
        }
        server.drain().await;
        Ok(())
    })
}

/// Receives the agent's answer to a question.
type Answer = oneshot::Sender<Result<VerifiedPeer, String>>;

/// A peer whose identity has been verified.
struct VerifiedPeer {
    secret: [u8; SECRET],
    /// The socket to connect to; `None` for the agent itself.
    path: Option<String>,
    owner: Owner,
}

/// A client that has proved its key, and the resulting connection.
struct AuthenticatedPeer {
    place: Destination,
    /// Bytes to send first.
    answer: Vec<u8>,
    channel: UnconfirmedChannel,
    owner: Owner,
}

struct Relay {
    agent: Control,
    /// Receivers of answers to pending questions.
    answers: RefCell<HashMap<StrangerId, Answer>>,
    /// Receivers of answers to pending page requests.
    page_answers: RefCell<HashMap<StrangerId, oneshot::Sender<PageAnswer>>>,
    pages: AgentPages,
    /// Requests of HTTP are not answered (`disable_http`).
    without_http: bool,
    /// Clients of pending questions that are gone. The agent is notified before it gets more
    /// questions.
    gone: mpsc::UnboundedSender<StrangerId>,
    shares: Rc<Shares>,
}

/// The destination of a connection.
enum Destination {
    /// A connected step daemon.
    Stepd(UnixStream),
    /// The agent.
    Agent,
}

/// A question to the agent. If the connection ends or has no key, the agent is asked to drop its
/// answer.
struct PendingQuestion<'r> {
    relay: &'r Relay,
    id: StrangerId,
    /// The question was sent.
    is_sent: Cell<bool>,
}

/// A question about the agent itself, whose answer nobody waits for once it is dropped.
struct PendingPage<'r> {
    relay: &'r Relay,
    id: StrangerId,
}

impl Drop for PendingPage<'_> {
    fn drop(&mut self) {
        self.relay.page_answers.borrow_mut().remove(&self.id);
    }
}

impl Drop for PendingQuestion<'_> {
    fn drop(&mut self) {
        self.relay.answers.borrow_mut().remove(&self.id);
        if self.is_sent.get() {
            // If the agent is gone, nothing takes the message.
            let _ = self.relay.gone.send(self.id);
        }
    }
}

impl Relay {
    /// A relay with a link to the agent and a descriptor limit. Clients that are gone must be
    /// [reported](Relay::report_gone).
    fn new(agent: Control, descriptors: u64) -> (Relay, mpsc::UnboundedReceiver<StrangerId>) {
        let (gone, reported) = mpsc::unbounded_channel();
        let relay = Relay {
            agent,
            answers: RefCell::default(),
            page_answers: RefCell::default(),
            pages: AgentPages::default(),
            without_http: false,
            gone,
            shares: Shares::of(descriptors),
        };
        (relay, reported)
    }

    /// Reports to the agent which clients are gone, in a loop.
    async fn report_gone(&self, mut gone: mpsc::UnboundedReceiver<StrangerId>) {
        while let Some(first) = gone.recv().await {
            // Sends all reports in one turn; otherwise many questions would be sent before the next
            // report.
            let turn = self.agent.turn().await;
            let mut next = Some(first);
            while let Some(id) = next {
                // The task that reads answers notices the end of the agent.
                let _ = turn.send(&ToAgent::StrangerDisconnected(id), None).await;
                next = gone.try_recv().ok();
            }
        }
    }

    /// Reads the agent's answers until the agent is gone.
    async fn take_answers(&self) -> std::io::Result<()> {
        while let Some((answer, _)) = self.agent.receive::<ToRelay>().await? {
            let (number, answer) = match answer {
                ToRelay::Verified {
                    number,
                    secret,
                    path,
                    uid,
                    agent,
                } => {
                    let verified = VerifiedPeer {
                        secret: *secret,
                        path,
                        owner: agent.map_or(Owner::User(uid), Owner::Agent),
                    };
                    (number, Ok(verified))
                }
                ToRelay::Refused { number, why } => (number, Err(why)),
                ToRelay::Page {
                    number,
                    status,
                    text,
                } => {
                    let waiting = self.page_answers.borrow_mut().remove(&number);
                    if let Some(waiting) = waiting {
                        let _ = waiting.send(PageAnswer { status, text });
                    }
                    continue;
                }
            };
            // The client may have disconnected meanwhile.
            let waiting = self.answers.borrow_mut().remove(&number);
            if let Some(waiting) = waiting {
                let _ = waiting.send(answer);
            }
        }
        Ok(())
    }

    /// Verifies that a stranger has the key for its request, and connects it. Requests of HTTP are answered.
    async fn meet(
        &self,
        id: StrangerId,
        mut tcp: TcpStream,
    ) -> Result<Option<IdentifiedConnection>, String> {
        tcp.set_nodelay(true).map_err(|e| e.to_string())?;
        let opening = match read_beginning(&mut tcp).await? {
            FirstMessage::Channel(opening) => opening,
            FirstMessage::Http(_) if self.without_http => {
                return Err("it speaks HTTP, which is not answered here (disable_http)".to_owned());
            }
            FirstMessage::Http(bytes) => {
                let ask = async |page| self.ask_page(id, page).await;
                self.pages.serve(&mut tcp, bytes, ask).await?;
                return Ok(None);
            }
        };
        let asked = PendingQuestion {
            relay: self,
            id,
            is_sent: Cell::new(false),
        };
        match self.connect(&asked, &opening).await {
            Ok(met) => {
                let sent = tcp.write_all(&met.answer).await;
                sent.map_err(|e| e.to_string())?;
                let channel = confirmed(&mut tcp, met.channel).await?;
                let share = self.shares.take(met.owner)?;
                let local = match met.place {
                    Destination::Stepd(socket) => socket,
                    Destination::Agent => {
                        let from = tcp.peer_addr().ok().map(|from| from.ip().to_canonical());
                        self.connect_agent(id, from)
                            .await
                            .map_err(|e| e.to_string())?
                    }
                };
                Ok(Some(IdentifiedConnection {
                    local,
                    remote: tcp,
                    channel,
                    bytes: share.bytes(),
                    share: Some(Box::new(share)),
                }))
            }
            Err(why) => {
                // The client may have disconnected.
                let _ = tcp.write_all(&Responder::refusal(&why)).await;
                let _ = tcp.shutdown().await;
                Err(why)
            }
        }
    }

    async fn connect(
        &self,
        asked: &PendingQuestion<'_>,
        opening: &Opening,
    ) -> Result<AuthenticatedPeer, String> {
        if opening.scheme != Scheme::Job {
            return Err("nodes are reached with the key of a job".to_owned());
        }
        let VerifiedPeer {
            secret,
            path,
            owner,
        } = self.ask_agent(asked, &opening.credential).await?;
        let (responder, hello) = Responder::accept(opening, &secret).map_err(|e| e.to_string())?;
        let hello: ChannelHello =
            frame::decode(&hello).map_err(|e| format!("its greeting cannot be read: {e}"))?;
        Versions::CLUSTER
            .check(&hello.greeting, "the program there", "this node's slurmd")
            .map_err(|refusal| refusal.detail)?;
        let place = match path {
            Some(path) => {
                let socket = UnixStream::connect(&path).await;
                Destination::Stepd(
                    socket.map_err(|e| format!("its step daemon cannot be reached: {e}"))?,
                )
            }
            None => Destination::Agent,
        };
        let said = frame::encode(&ChannelAnswer {
            greeting: Versions::CLUSTER.greeting(),
            cluster: String::new(),
        });
        let said = said.get(4..).unwrap_or_default();
        let (answer, channel) = responder.answer(said).map_err(|e| e.to_string())?;
        Ok(AuthenticatedPeer {
            place,
            answer,
            channel,
            owner,
        })
    }

    /// Asks the agent for a page about itself.
    async fn ask_page(&self, id: StrangerId, page: AgentPage) -> Result<PageAnswer, String> {
        let (answer, answered) = oneshot::channel();
        self.page_answers.borrow_mut().insert(id, answer);
        let asked = PendingPage { relay: self, id };
        let gone = || "this node's agent is not there".to_owned();
        let question = ToAgent::GetPage(id, page);
        let sent = self.agent.send_when_read(&question, None).await;
        sent.map_err(|_| gone())?;
        let answer = answered.await.map_err(|_| gone());
        drop(asked);
        answer
    }

    async fn ask_agent(
        &self,
        asked: &PendingQuestion<'_>,
        credential: &[u8],
    ) -> Result<VerifiedPeer, String> {
        let (answer, answered) = oneshot::channel();
        self.answers.borrow_mut().insert(asked.id, answer);
        let question = ToAgent::Verify {
            number: asked.id,
            credential: credential.to_vec(),
        };
        let gone = || "this node's agent is not there".to_owned();
        let sent = self.agent.send_when_read(&question, None).await;
        sent.map_err(|_| gone())?;
        asked.is_sent.set(true);
        answered.await.map_err(|_| gone())?
    }

    /// A connection to the agent, which knows the client.
    async fn connect_agent(
        &self,
        id: StrangerId,
        from: Option<IpAddr>,
    ) -> std::io::Result<UnixStream> {
        let (near, far) = std::os::unix::net::UnixStream::pair()?;
        near.set_nonblocking(true)?;
        let far = OwnedFd::from(far);
        let connected = ToAgent::StrangerConnected(id, from);
        self.agent.send_when_read(&connected, Some(&far)).await?;
        UnixStream::from_std(near)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncReadExt as _;

    /// The beginning of the answer to a request of HTTP, if there is one.
    async fn answer_to_http(without_http: bool) -> Option<String> {
        let (near, _far) = agent_relay::pair().unwrap();
        let (mut relay, _gone) = Relay::new(Control::new(near).unwrap(), 64);
        let order = agent_relay::relay_order(without_http);
        relay.without_http = agent_relay::is_without_http(&order);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut client = TcpStream::connect(address).await.unwrap();
        let request = b"GET /livez HTTP/1.1\r\n\r\n";
        client.write_all(request).await.unwrap();
        let (tcp, _) = listener.accept().await.unwrap();
        let met = relay.meet(1, tcp).await.map(|known| known.is_some());
        let mut answer = Vec::new();
        let _ = client.read_to_end(&mut answer).await;
        assert_eq!(answer.is_empty(), met.is_err());
        let answer = String::from_utf8(answer).unwrap();
        met.ok().map(|_| answer.chars().take(12).collect())
    }

    #[tokio::test]
    async fn http_is_answered_unless_the_site_disables_it() {
        let answer = answer_to_http(false).await;
        assert_eq!(answer.as_deref(), Some("HTTP/1.1 200"));
        assert_eq!(answer_to_http(true).await, None);
    }

    /// Earlier, when the agent had not read enough, it never learned that connections had ended, and kept their state
    /// for ever.
    #[tokio::test]
    async fn a_connection_that_is_gone_is_reported_once_the_agent_reads() {
        const NONE: StrangerId = 0;
        let (near, far) = agent_relay::pair().unwrap();
        let (relay, gone) = Relay::new(Control::new(near).unwrap(), 64);
        let agent = Control::new(far).unwrap();
        let mut filled = 0;
        while relay
            .agent
            .send(&ToAgent::StrangerDisconnected(NONE), None)
            .is_ok()
        {
            filled += 1;
        }
        for (id, is_sent) in [(7, false), (8, true), (9, true)] {
            let is_sent = Cell::new(is_sent);
            let relay = &relay;
            drop(PendingQuestion { relay, id, is_sent });
        }
        let reported = async {
            let mut ids = Vec::new();
            while ids.len() < filled + 2 {
                let received = agent.receive::<ToAgent>().await.unwrap();
                let Some((ToAgent::StrangerDisconnected(id), _)) = received else {
                    panic!("another message");
                };
                ids.push(id);
            }
            ids.split_off(filled)
        };
        // Without the limit, a lost answer would block this test.
        let reported = tokio::time::timeout(STRANGER_MAX, reported);
        tokio::select! {
            () = relay.report_gone(gone) => panic!("no more is reported"),
            ids = reported => assert_eq!(ids.unwrap(), [8, 9]),
        }
    }
}
