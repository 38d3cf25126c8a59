//! The agent's own socket, which serves srun, other agents, sstat and scontrol. The kernel tells
//! who the client is.

use super::audit::{AuditedRequest, ClientPlace};
use super::closing::{self, Sender, Streams, WAITING_MAX};
use super::peers::KEPT_IDLE_MAX;
use super::quota::{Charge, Client, Quotas};
use super::replies::{self, Outbox};
use super::socket::Socket;
use super::{ClientInput, Input};
use crate::descriptors::SrunStdio;
use crate::messages::agent_relay::JobAgent;
use crate::sys;
use muster_channel::admission::NoRoom;
use muster_model::ids::JobId;
use muster_model::refusal::{Refusal, RefusalCode};
use muster_node_core::agent::{ConnId, is_of_agents};
use muster_proto::frame::{self, Frames};
use muster_proto::step::{AgentReply, AgentRequest};
use muster_proto::version::{Greeting, Versions};
use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::PeerCredentials;
use std::borrow::Cow;
use std::collections::VecDeque;
use std::fmt;
use std::io::{self, Write as _};
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::mpsc;

/// Maximum size of a user's request: program, arguments, environment and lists of the largest step.
const REQUEST_BYTES_MAX: usize = 24 << 20;
/// Maximum number of requests of a user on one connection. Commands have one or two.
const REQUESTS_MAX: u32 = 64;
/// Maximum silence of a client that has sent no request, or whose requests are all answered.
const IDLE_MAX: Duration = Duration::from_secs(30);
/// Maximum silence of a client that has sent part of a request.
const HALF_SENT_MAX: Duration = Duration::from_secs(10);
/// Maximum silence of another agent that has sent part of a request, which are longer. It may stay silent between requests,
/// because connections are kept.
const AGENTS_HALF_SENT_MAX: Duration = Duration::from_secs(60);

/// Serves the sockets of the agent in the background. Returns the server, which also serves
/// connections that arrive by other ways.
pub(super) fn listen(
    listener: UnixListener,
    quotas: &Quotas,
    inputs: mpsc::UnboundedSender<Input>,
) -> io::Result<Server> {
    listener.set_nonblocking(true)?;
    let listener = sys::watch(listener, Interest::READABLE)?;
    let accept = |listener: &UnixListener| {
        let (stream, _) = listener.accept()?;
        let uid = match getsockopt(&stream, PeerCredentials) {
            Ok(peer) => peer.uid(),
            // Nobody's.
            Err(_) => u32::MAX,
        };
        Ok((stream, uid))
    };
    let server = Server {
        next: Arc::new(AtomicU64::new(0)),
        quotas: quotas.clone(),
        inputs,
    };
    tokio::spawn(welcome(listener, accept, server.clone()));
    Ok(server)
}

/// State shared by all connections.
#[derive(Clone)]
pub(super) struct Server {
    next: Arc<AtomicU64>,
    quotas: Quotas,
    inputs: mpsc::UnboundedSender<Input>,
}

/// The owner of a connection from another host.
#[derive(Clone, Debug)]
pub(super) struct Caller {
    pub(super) uid: u32,
    pub(super) of: CallerOf,
}

/// The rights that the caller's key proves.
#[derive(Clone, Debug)]
pub(super) enum CallerOf {
    /// Only this job, and no other of its owner's, who may be root.
    Job(JobId),
    /// The agent of this node, for this job.
    Node(JobAgent),
}

/// Properties of a connection.
struct Connected {
    client: Client,
    /// Where the client is.
    place: ClientPlace,
    /// Requests may concern this job only.
    only_job: Option<JobId>,
}

impl Server {
    /// Serves a connection from another host.
    pub(super) fn serve_remote(&self, stream: UnixStream, caller: Caller, address: Option<IpAddr>) {
        let (client, only_job, sender) = match &caller.of {
            CallerOf::Job(job) => {
                let client = self.quotas.client_of_job(caller.uid);
                let user = Sender::User(self.quotas.charged(caller.uid));
                (client, Some(*job), user)
            }
            CallerOf::Node(agent) => {
                // The holder of the job's key can name each node of the job.
                let agents = Sender::AgentsOfJob(agent.job.0);
                let client = self.quotas.client(caller.uid);
                let client = client.and_then(|mut c| c.become_agent(agents.clone()).then_some(c));
                (client, None, agents)
            }
        };
        let place = ClientPlace::Host(address);
        match client.filter(may_send) {
            Some(client) => {
                let connected = Connected {
                    client,
                    place,
                    only_job,
                };
                self.serve(stream, connected);
            }
            None => turn_away(stream, sender),
        }
    }

    fn serve(&self, stream: UnixStream, connected: Connected) {
        let conn = self.next.fetch_add(1, Ordering::Relaxed) + 1;
        tokio::spawn(serve(stream, connected, conn, self.inputs.clone()));
    }
}

/// Serves all clients that connect. The client's identity is known before anything is received.
async fn welcome(
    socket: AsyncFd<UnixListener>,
    accept: impl Fn(&UnixListener) -> io::Result<(UnixStream, u32)>,
    server: Server,
) {
    loop {
        match socket.async_io(Interest::READABLE, &accept).await {
            Ok((stream, uid)) => {
                let client = server.quotas.client(uid);
                match client.filter(may_send) {
                    Some(client) => {
                        let peer = getsockopt(&stream, PeerCredentials);
                        let pid = peer.map_or(0, |peer| peer.pid().unsigned_abs());
                        let connected = Connected {
                            client,
                            place: ClientPlace::Process(pid),
                            only_job: None,
                        };
                        server.serve(stream, connected);
                    }
                    None => turn_away(stream, Sender::User(server.quotas.charged(uid))),
                }
            }
            Err(e) => {
                log::error!("connections: {e}");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

/// Whether few enough descriptors of the client's user or agent wait to be closed.
fn may_send(client: &Client) -> bool {
    closing::count_waiting(client.sender()) < WAITING_MAX
}

/// Refuses a client whose user or agent has too many connections here.
fn turn_away(stream: UnixStream, sender: Sender) {
    let text = match sender {
        Sender::User(_) => {
            "you or all users together have too many connections to the node's agent; try again when some have ended"
        }
        Sender::Agent(_) | Sender::AgentsOfJob(_) => {
            "agents of the job, or all together, have too many connections to the node's agent"
        }
    };
    let refusal = AgentReply::Refused(Refusal::new(RefusalCode::Busy, text));
    // A reply this small is written at once, unless the client is gone.
    let _ = stream.set_nonblocking(true);
    let _ = (&stream).write(&frame::encode(&refusal));
    closing::close_connection(sender, stream);
}

async fn serve(
    stream: UnixStream,
    connected: Connected,
    conn: u64,
    inputs: mpsc::UnboundedSender<Input>,
) {
    let Connected {
        client,
        place,
        only_job,
    } = connected;
    let socket = match Socket::new(stream) {
        Ok(socket) => socket,
        Err(e) => return log::error!("connection {conn}: {e}"),
    };
    let writer = socket.clone();
    let (reply, replies) = replies::channel(client.unread());
    let answering = tokio::spawn(replies::send(writer, replies));
    let mut reader = Reader {
        socket,
        client,
        place,
        only_job,
        reply,
        conn,
        inputs: inputs.clone(),
        frames: Frames::default(),
        buffered: 0,
        began: None,
        descriptors: VecDeque::new(),
    };
    let ended = reader.read_requests().await;
    log::debug!("connection {conn}: {ended}");
    answering.abort();
    // Until then the task has a clone of the socket.
    let _ = answering.await;
    let Reader {
        socket,
        descriptors,
        client,
        reply,
        ..
    } = reader;
    if reply.is_over() {
        client.log_unread();
    }
    if let Ended::Refused(code, text) = &ended {
        let refusal = Refusal::new(*code, text.clone());
        socket.write_some(&frame::encode(&AgentReply::Refused(refusal)));
    }
    let sender = client.sender();
    closing::close(sender.clone(), descriptors);
    match (ended, socket.into_stream()) {
        // The socket's queue contains nothing that would have to be closed with it.
        (Ended::Closed, stream) => drop(stream),
        (_, Some(stream)) => closing::close_connection(sender, stream),
        (_, None) => {}
    }
    let gone = ClientInput::Gone(ConnId(conn));
    let _ = inputs.send(Input::Client(client.precedence(), client.sender(), gone));
}

/// The reason why a connection yields no more requests.
#[derive(Debug)]
enum Ended {
    /// The client has closed the connection.
    Closed,
    /// The connection failed, or the client's message cannot be parsed.
    Failed(io::Error),
    /// The client violates the protocol.
    Refused(RefusalCode, Cow<'static, str>),
}

impl Ended {
    fn refused(code: RefusalCode, why: &'static str) -> Ended {
        Ended::Refused(code, why.into())
    }

    /// The received bytes are not a request.
    fn not_understood(error: &io::Error) -> Ended {
        Ended::Refused(RefusalCode::ProtocolError, error.to_string().into())
    }
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ended::Closed => f.write_str("closed by the other side"),
            Ended::Failed(e) => e.fmt(f),
            Ended::Refused(_, why) => f.write_str(why),
        }
    }
}

impl From<io::Error> for Ended {
    fn from(error: io::Error) -> Ended {
        Ended::Failed(error)
    }
}

/// Reads the requests of a client.
struct Reader {
    socket: Socket,
    client: Client,
    place: ClientPlace,
    only_job: Option<JobId>,
    reply: Outbox,
    conn: u64,
    inputs: mpsc::UnboundedSender<Input>,
    frames: Frames,
    /// Number of buffered bytes.
    buffered: usize,
    /// Time at which the first byte of an incomplete request arrived.
    began: Option<Instant>,
    descriptors: VecDeque<OwnedFd>,
}

impl Reader {
    /// Passes on every request with its streams; returns the reason why no more follow.
    async fn read_requests(&mut self) -> Ended {
        let mut charge = self.client.charge();
        let mut requests = 0;
        // The request may have arrived already.
        let mut received = self
            .socket
            .receive_now(&mut self.frames, &mut self.descriptors);
        loop {
            match received {
                Ok(0) => return Ended::Closed,
                Ok(bytes) => self.buffered += bytes,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                Err(e) => return Ended::Failed(e),
            }
            if let Err(ended) = self.take_requests(&mut charge, &mut requests).await {
                return ended;
            }
            // Anybody may connect, so descriptors that no request uses must not accumulate.
            if self.descriptors.len() > SrunStdio::COUNT {
                return Ended::refused(RefusalCode::ProtocolError, "unexpected descriptors");
            }
            received = match self.receive().await {
                Ok(bytes) => Ok(bytes),
                Err(Ended::Failed(e)) => Err(e),
                Err(ended) => return ended,
            };
        }
    }

    /// Waits for more bytes, for a limited time if the client is expected to send some.
    async fn receive(&mut self) -> Result<usize, Ended> {
        loop {
            let limit = self.patience();
            let received = self.socket.receive(&mut self.frames, &mut self.descriptors);
            let Some(limit) = limit else {
                return Ok(received.await?);
            };
            match tokio::time::timeout(limit, received).await {
                Ok(received) => return Ok(received?),
                Err(_) if self.buffered > 0 => {
                    return Err(Ended::refused(
                        RefusalCode::Busy,
                        "the request did not arrive completely in time",
                    ));
                }
                // A request of this client is being served: it is queued, or its step runs.
                Err(_) if self.reply.is_awaited() => {}
                Err(_) => return Err(Ended::refused(RefusalCode::Busy, "no request came")),
            }
        }
    }

    /// Time to wait for more bytes; `None` is for ever.
    fn patience(&mut self) -> Option<Duration> {
        if self.buffered == 0 {
            self.began = None;
            return match (self.client.is_limited(), self.client.is_agent()) {
                (true, _) => Some(IDLE_MAX),
                (false, true) => Some(2 * KEPT_IDLE_MAX),
                (false, false) => None,
            };
        }
        let limit = match (self.client.is_limited(), self.client.is_agent()) {
            (true, _) => HALF_SENT_MAX,
            (false, true) => AGENTS_HALF_SENT_MAX,
            (false, false) => return None,
        };
        let began = *self.began.get_or_insert_with(Instant::now);
        Some(limit.saturating_sub(began.elapsed()))
    }

    /// Passes on the complete requests.
    async fn take_requests(&mut self, rest: &mut Charge, requests: &mut u32) -> Result<(), Ended> {
        rest.set(self.buffered).map_err(|why| self.no_room(why))?;
        if self.client.is_limited() && self.buffered > REQUEST_BYTES_MAX {
            return Err(Ended::refused(RefusalCode::TooLong, "the request"));
        }
        while let Some((request, charge)) = self.next_request(rest, requests)? {
            if let AgentRequest::Greeting(theirs) = &request {
                check_version(theirs, "the command")?;
                continue;
            }
            if self.only_job.is_some() && request.job() != self.only_job {
                let why = "this connection is for another job, whose key was shown";
                return Err(self.denied(&request, why));
            }
            if let AgentRequest::ServeNode(node, greeting) = &request {
                // Only a relay is trusted to state its node, and only in its first request.
                if self.client.is_limited() || *requests > 1 {
                    return Err(self.denied(&request, "no supervisor"));
                }
                self.serve_node(node, greeting.as_ref(), rest)?;
                continue;
            }
            if self.client.is_agent() && !is_of_agents(&request) {
                let why = "this connection is another agent's";
                return Err(self.denied(&request, why));
            }
            let streams = match &request {
                AgentRequest::Create(spec) if spec.passes_stdio => {
                    Streams::take(self.client.uid(), &mut self.descriptors)
                }
                _ => None,
            };
            let turn = self.client.place().await;
            let input = ClientInput::Request {
                asker: Requester {
                    conn: self.conn,
                    uid: self.client.uid(),
                    place: self.place,
                    is_agent: self.client.is_agent(),
                    charge,
                },
                request: Box::new(request),
                streams,
                reply: self.reply.clone(),
                place: turn,
            };
            let client = &self.client;
            let input = Input::Client(client.precedence(), client.sender(), input);
            let _ = self.inputs.send(input);
        }
        Ok(())
    }

    /// Takes a complete request from the received bytes, with its own charge.
    fn next_request(
        &mut self,
        rest: &mut Charge,
        requests: &mut u32,
    ) -> Result<Option<(AgentRequest, Charge)>, Ended> {
        let whole = self.frames.take_whole();
        let Some(whole) = whole.map_err(|e| Ended::not_understood(&e))? else {
            return Ok(None);
        };
        let bytes = whole.len();
        let request: AgentRequest = frame::decode(whole.get(4..).unwrap_or_default())
            .map_err(|e| Ended::not_understood(&e))?;
        *requests = requests.saturating_add(1);
        if self.client.is_limited() && *requests > REQUESTS_MAX {
            let why = "too many requests on one connection";
            return Err(Ended::refused(RefusalCode::Busy, why));
        }
        self.buffered = self.buffered.saturating_sub(bytes);
        self.began = None;
        // The remaining bytes belong to the next request.
        rest.set(self.buffered).map_err(|why| self.no_room(why))?;
        let mut charge = self.client.charge();
        charge.set(bytes).map_err(|why| self.no_room(why))?;
        Ok(Some((request, charge)))
    }

    /// Counts this connection towards the agent of a node from now on.
    fn serve_node(
        &mut self,
        node: &str,
        greeting: Option<&Greeting>,
        rest: &mut Charge,
    ) -> Result<(), Ended> {
        let agent = Sender::Agent(node.into());
        let is_full = closing::count_waiting(agent.clone()) >= WAITING_MAX;
        if is_full || !self.client.become_agent(agent) {
            let why = "this node's agent has too many connections here";
            return Err(Ended::refused(RefusalCode::Busy, why));
        }
        if let Some(count) = self.client.unread() {
            self.reply.count_for(count);
        }
        let theirs = greeting.cloned().unwrap_or_default();
        check_version(&theirs, &format!("slurmd of node {node}"))?;
        *rest = self.client.charge();
        rest.set(self.buffered).map_err(|why| self.no_room(why))
    }

    /// Ends the connection because its bytes exceed the limit.
    fn no_room(&self, why: NoRoom) -> Ended {
        let why = match (why, self.client.sender()) {
            (NoRoom::Own, Sender::Agent(_)) => {
                "this node's agent has too many requests waiting here"
            }
            (NoRoom::Own, Sender::AgentsOfJob(_)) => {
                "the agents of this job have too many requests waiting here"
            }
            (NoRoom::Own, Sender::User(_)) => "this user has too many requests waiting on the node",
            (NoRoom::All, _) => {
                "the node has too many requests of other users waiting; try again later"
            }
        };
        Ended::refused(RefusalCode::Busy, why)
    }

    /// Ends the connection for lack of rights, with a line in the audit log.
    fn denied(&self, request: &AgentRequest, why: &'static str) -> Ended {
        let (uid, is_agent) = (self.client.uid(), self.client.is_agent());
        let audited = AuditedRequest::new(uid, self.place, is_agent, request);
        let refusal = Refusal::new(RefusalCode::AccessDenied, why);
        let _ = self.inputs.send(Input::Denied(audited, refusal));
        Ended::refused(RefusalCode::AccessDenied, why)
    }
}

/// Refuses an unsupported version of the protocol.
fn check_version(theirs: &Greeting, they: &str) -> Result<(), Ended> {
    let checked = Versions::CLUSTER.check(theirs, they, "this node's slurmd");
    checked.map_err(|refusal| Ended::Refused(refusal.code, refusal.detail.into()))
}

/// The sender of a request.
#[derive(Debug)]
pub(super) struct Requester {
    /// Number of the connection.
    pub(super) conn: u64,
    /// The user.
    pub(super) uid: u32,
    pub(super) place: ClientPlace,
    /// The sender is another agent, whatever its uid.
    pub(super) is_agent: bool,
    /// Counts against what the user may have queued here.
    pub(super) charge: Charge,
}

#[cfg(test)]
mod tests;
