//! One client connection: frames in, frames out, identity from the socket. Requests of a connection are answered in
//! order; waits and holds are answered whenever their time comes.

mod accounting;
mod archive;
mod audit;
mod changes;
mod held;
mod kind;
mod subject;
mod subordinate;
mod tokens;
mod verify;
mod waits;

use crate::accounting::{AccountingQuery, StorageQuestion};
use crate::executor::pause;
use crate::frames::{Frame, FrameReader};
use crate::identity::check_ordinary;
use crate::mail::{ToReplica, ToWriter};
use crate::mail_address;
use crate::node_link::{locate_host, located};
use crate::outbox::Outbox;
use crate::peer::{NodeProof, Origin, Peer, RequestOrigin};
use crate::quota::{AgentConnection, Leave, Share};
use crate::reply::{ClientSocket, Pending, Remarks, ReplyTo};
use crate::shared::Shared;
use accounting::{ask_accounting, ask_unless_hidden, own_name_if_hidden};
use held::HeldAllocations;
use kind::kind;
use log::debug;
use muster_closer::passed;
use muster_core::policy::access::privacy::JobScope;
use muster_core::state::State;
use muster_model::command::{Identity, Reply, UserCommand};
use muster_model::ids::JobId;
use muster_model::private_data::PrivateData;
use muster_model::refusal::{Refusal, RefusalCode};
use muster_model::spec::{JobKind, JobSpec};
use muster_proto::client::{Query, Request, RequestBody, Response};
use muster_proto::frame;
use muster_proto::node::NodeHello;
use muster_proto::version::{self, Versions};
use std::io;
use std::os::fd::AsFd;
use std::rc::Rc;
use std::time::Instant;
use subject::RequestSubject;
use tokio::net::UnixStream;
use tokio::net::unix::OwnedWriteHalf;
use tokio::sync::oneshot;

/// Bytes of the largest request that the event loop decodes, and hashes the blobs of, itself.
const DECODED_HERE: usize = 64 << 10;
/// Why a connection ends whose client keeps a request back.
const STALLED: &str = "a request was begun and not sent whole";

/// A client's connection and its share of quotas.
struct Connection {
    shared: Rc<Shared>,
    identity: Identity,
    /// The node whose agent it is for, where it is for nothing else.
    node: Option<AgentConnection>,
    /// The proof of the node that it speaks for.
    proof: NodeProof,
    write: OwnedWriteHalf,
    /// Answers to waits.
    later: Outbox,
    /// Allocations that end with this connection.
    held: HeldAllocations,
    /// Where the client is.
    place: RequestOrigin,
    /// The current request and its subject, for the audit log.
    asked: RequestSubject,
    /// Its share of its user's quota.
    share: Share,
    /// When the last request was answered; absent before the first.
    answered: Option<Instant>,
    opened: Instant,
}

/// Serves a connection until the client closes it, or does nothing for too long.
pub(crate) async fn serve(
    shared: Rc<Shared>,
    stream: UnixStream,
    (Peer { uid, gid, pid }, origin): (Peer, Origin),
    share: Share,
) {
    // No other host can send any.
    let refuses_descriptors = origin.host.is_some() || shared.refuses_descriptors();
    let mut identity = shared.directory.identity(uid, gid).await;
    if origin.host.is_some() {
        identity.host = origin.host;
    }
    identity.is_ordinary = origin.is_vouched_for && origin.node.is_none();
    let charged = share.uid().unwrap_or(uid);
    if identity.is_ordinary
        && let Err(why) = check_ordinary(&identity)
    {
        log::warn!("a connection from {:?} is refused: {why}", identity.host);
        return subordinate::turn_away(stream, charged, refuses_descriptors, why);
    }
    if identity.user == uid.to_string() && shared.users.is_subordinate(uid) {
        return subordinate::refuse(stream, (uid, charged), refuses_descriptors);
    }
    let (read, write) = stream.into_split();
    let mut reader = FrameReader::new(read, charged, refuses_descriptors);
    let (later, mut due) = share.outbox();
    let mut connection = Connection {
        shared,
        identity,
        write,
        later,
        held: HeldAllocations::default(),
        node: None,
        proof: origin.proof,
        place: RequestOrigin {
            pid,
            address: origin.address,
            client: None,
        },
        asked: RequestSubject::nothing(),
        share,
        answered: None,
        opened: Instant::now(),
    };
    if let Some(node) = origin.node
        && connection.serve_node(node).await.is_err()
    {
        return;
    }
    let every = connection.shared.patience.look();
    let mut look = std::pin::pin!(tokio::time::sleep(every));
    let end = loop {
        tokio::select! {
            biased;
            Some(bytes) = due.recv() => {
                if !due.take_interim() {
                    connection.share.came();
                }
                if due.is_over() {
                    let why = "what it waits for is not read";
                    break Err(io::Error::new(io::ErrorKind::TimedOut, why));
                }
                if let Err(e) = connection.send_due(&bytes, &mut reader).await {
                    break Err(e);
                }
            }
            frame = reader.next(&connection.share) => match frame {
                Ok(Some(frame)) => match connection.serve_frame(frame, &reader).await {
                    // A client that has sent more waits for its turn like others.
                    Ok(None) if !reader.is_empty() => pause().await,
                    Ok(None) => {}
                    Ok(Some(hello)) => {
                        let Connection { shared, identity, write, .. } = connection;
                        return crate::node_link::serve(shared, identity, *hello, reader, write).await;
                    }
                    Err(e) => break Err(e),
                },
                Ok(None) => break Ok(()),
                Err(e) => break Err(e),
            },
            () = &mut look => {
                if let Some(why) = connection.overdue(&reader) {
                    break Err(io::Error::new(io::ErrorKind::TimedOut, why));
                }
                look.as_mut().reset(tokio::time::Instant::now() + every);
            }
        }
    };
    if let Err(e) = end {
        debug!("connection of {}: {e}", connection.identity.user);
    }
    if !refuses_descriptors {
        connection.close_in_thread();
    }
    connection.let_go();
}

enum Served {
    Next,
    /// The writer answers; what the request takes of the quota is given back then.
    Directly(Pending, Option<Leave>),
    Node(Box<NodeHello>),
}

impl Connection {
    /// Serves a frame; the hello if the client is an agent.
    async fn serve_frame(
        &mut self,
        frame: Frame,
        reader: &FrameReader,
    ) -> io::Result<Option<Box<NodeHello>>> {
        self.wait_for_token().await?;
        // Until the request is answered, it takes room.
        let Frame { body, room: _room } = frame;
        let node = match self.request(body, reader.is_empty()).await? {
            Served::Next => None,
            Served::Directly(pending, _leave) => {
                self.answered(pending, reader).await?;
                None
            }
            Served::Node(hello) => Some(hello),
        };
        self.answered = Some(Instant::now());
        Ok(node)
    }

    /// Waits until the rate limit lets the request pass.
    async fn wait_for_token(&self) -> io::Result<()> {
        while !self.share.has_token() {
            tokio::time::sleep(self.share.retry_after()).await;
            waits::check_client(self)?;
        }
        Ok(())
    }

    /// Why the connection is closed, if it has been of no use for too long.
    fn overdue(&self, reader: &FrameReader) -> Option<&'static str> {
        let patience = &self.shared.patience;
        if reader.is_stalled(patience.request) {
            return Some(STALLED);
        }
        if !self.held.is_empty() || self.share.is_waiting() || !reader.is_empty() {
            return None;
        }
        match self.answered {
            None => (self.opened.elapsed() > patience.first_request).then_some("no request came"),
            Some(last) => (last.elapsed() > patience.idle).then_some("no further request came"),
        }
    }

    /// Writes an answer that was waited for. A frame that arrives meanwhile has no more time than otherwise.
    async fn send_due(&self, bytes: &[u8], reader: &mut FrameReader) -> io::Result<()> {
        tokio::select! {
            biased;
            sent = self.send(bytes) => sent,
            () = reader.stall(self.shared.patience.request) => {
                Err(io::Error::new(io::ErrorKind::TimedOut, STALLED))
            }
        }
    }

    /// Writes an answer. A client that does not read is given up.
    async fn send(&self, bytes: &[u8]) -> io::Result<()> {
        let mut rest = bytes;
        while !rest.is_empty() {
            match self.write.try_write(rest) {
                Ok(count) => {
                    rest = &rest[count..];
                    if !rest.is_empty() {
                        // The client may read as fast as this writes.
                        pause().await;
                    }
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    tokio::time::timeout(self.shared.patience.answer, self.write.writable())
                        .await??;
                }
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    /// Closing a socket with unread descriptors may take long.
    fn close_in_thread(&self) {
        if let Ok(socket) = self.write.as_ref().as_fd().try_clone_to_owned() {
            let charged = self.share.uid().unwrap_or(self.identity.uid);
            passed::close(charged, socket);
        }
    }

    /// Decodes and validates a request. One that is large takes as long as many others, and is decoded on another thread.
    async fn decode(&self, body: Vec<u8>) -> io::Result<Request> {
        if body.len() <= DECODED_HERE {
            return decode(&body);
        }
        let _leave = self.share.decoding().await;
        let decoded = tokio::task::spawn_blocking(move || decode(&body)).await;
        decoded.unwrap_or_else(|e| Err(io::Error::other(e)))
    }

    /// Serves one request; `last` says that no other has come yet.
    async fn request(&mut self, body: Vec<u8>, last: bool) -> io::Result<Served> {
        let started = Instant::now();
        let Request { body, client, .. } = match read_request(self, body).await {
            Ok(request) => request,
            Err(refusal) => return self.refuse_as(refusal).await,
        };
        self.place.client = client;
        self.asked = RequestSubject::of(&body, self.identity.uid);
        self.require_own_node(&body).await?;
        let kind = kind(&body);
        if waits::is_wait(&body)
            && let Err(over) = self.share.wait()
        {
            return self.refuse(RefusalCode::Busy, over.to_string()).await;
        }
        if let RequestBody::Query(query) = &body
            && let Query::Changes(changes) = **query
        {
            return self.changes(changes, kind, started).await;
        }
        let served = match body {
            RequestBody::Command(command) if last && is_batch(&command) => {
                return self.submit(command, kind, started).await;
            }
            body => self.serve(body).await?,
        };
        if !matches!(served, Served::Node(_)) {
            let us = u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX);
            self.shared.stats.request(kind, self.identity.uid, us);
        }
        Ok(served)
    }

    /// Refuses what the agent of a node does not send.
    async fn require_own_node(&mut self, body: &RequestBody) -> io::Result<()> {
        let Some(node) = self.node.as_ref().map(AgentConnection::node) else {
            return Ok(());
        };
        if matches!(body, RequestBody::NodeHello(hello) if hello.name == node) {
            return Ok(());
        }
        let detail = format!("this connection is for the agent of node {node}");
        self.refuse(RefusalCode::AccessDenied, detail.clone())
            .await?;
        Err(io::Error::new(io::ErrorKind::PermissionDenied, detail))
    }

    /// Serves requests that are answered here, by the writer or by the replica.
    async fn serve(&mut self, body: RequestBody) -> io::Result<Served> {
        match body {
            RequestBody::Command(command) => self.command(*command).await,
            RequestBody::Query(query) => self.query(*query).await,
            RequestBody::WaitStarted(job) => waits::wait_started(self, job),
            RequestBody::WaitEnded(job) => waits::wait_ended(self, job, false),
            RequestBody::WaitNodes(count) => self.wait_nodes(count).await,
            RequestBody::Hold(job) => self.hold(job).await,
            RequestBody::NodeHello(hello) => self.hello(hello).await,
            RequestBody::ServeNode(node) => match self.may().await? {
                Ok(_) => self.serve_node(node).await,
                Err(refusal) => self.refuse_as(refusal).await,
            },
            RequestBody::SetDebug(level) => self.set_debug(&level).await,
            RequestBody::Token { user, lifespan_s } => self.make_token(user, lifespan_s).await,
            RequestBody::NodeToken { node, lifespan_s } => {
                self.make_node_token(node, lifespan_s).await
            }
            RequestBody::ForgetNodeKeys(nodes) => self.forget_node_keys(nodes).await,
            RequestBody::NodeKeys => self.list_node_keys().await,
            RequestBody::Archive(request) => archive::archive(self, request).await,
            RequestBody::Shutdown { nodes } => self.shut_down(nodes).await,
        }
    }

    /// The agent of a node says who it is.
    async fn hello(&mut self, hello: Box<NodeHello>) -> io::Result<Served> {
        if let Err(refusal) = self.may().await? {
            return self.refuse_as(refusal).await;
        }
        match self.refusal_of_proof(&hello.name) {
            Some(detail) => self.refuse(RefusalCode::AccessDenied, detail).await,
            None => Ok(Served::Node(located(hello, self.place.address, self.proof))),
        }
    }

    async fn shut_down(&mut self, nodes: bool) -> io::Result<Served> {
        let entry = match self.may().await? {
            Ok(entry) => entry,
            Err(refusal) => return self.refuse_as(refusal).await,
        };
        self.send(&frame::encode(&Response::Stopping)).await?;
        entry.done();
        self.shared.stop(nodes);
        Ok(Served::Next)
    }

    /// Takes nothing but what the agent of this node says from now on.
    async fn serve_node(&mut self, node: String) -> io::Result<Served> {
        let text = format!("the agent of node {node} has too many connections to the controller");
        self.node = self.shared.agents.connect(node);
        if self.node.is_some() {
            return Ok(Served::Next);
        }
        self.refuse(RefusalCode::Busy, text.clone()).await?;
        Err(io::Error::other(text))
    }

    /// A submission whose answer nothing here depends on: the writer sends it.
    async fn submit(
        &mut self,
        command: Box<UserCommand>,
        kind: &'static str,
        started: Instant,
    ) -> io::Result<Served> {
        let leave = self.share.command().await;
        let mut command = command;
        let (identity, remarks) = match self.verified(&mut command).await {
            Ok(verified) => verified,
            Err(refusal) => return self.refuse_command(*command, refusal).await,
        };
        if let Some(refusal) = mail_address::refusal(&command) {
            return self.refuse(refusal.code, refusal.detail).await;
        }
        let socket = self.write.as_ref().as_fd().try_clone_to_owned()?;
        let peer = (self.identity.uid, self.place);
        let (direct, pending) = ClientSocket::new(socket, kind, peer, started);
        let direct = direct.with(remarks);
        self.shared.to_writer(ToWriter::User {
            identity,
            command,
            reply: ReplyTo::Socket(direct),
        })?;
        Ok(Served::Directly(pending, leave))
    }

    /// Waits until a submission is answered. Its client says nothing before that but goodbye.
    async fn answered(&mut self, mut pending: Pending, reader: &FrameReader) -> io::Result<()> {
        let rest = tokio::select! {
            rest = pending.rest() => rest,
            _ = reader.readable() => {
                if pending.is_answered() {
                    return Ok(());
                }
                pending.rest().await
            }
        };
        self.send(&rest.map_err(|_| stopping())?).await
    }

    async fn set_debug(&mut self, level: &str) -> io::Result<Served> {
        let entry = match self.may().await? {
            Ok(entry) => entry,
            Err(refusal) => return self.refuse_as(refusal).await,
        };
        let Some(filter) = crate::debug_level::filter(level, 0) else {
            let detail = format!(
                "{level} is not a valid level: quiet, error, info, debug, debug2, or 0 to 9"
            );
            return self.refuse(RefusalCode::InvalidValue, detail).await;
        };
        log::set_max_level(filter);
        entry.done();
        self.send(&frame::encode(&Response::Done)).await?;
        Ok(Served::Next)
    }

    /// Passes a command to the site's verifiers. Returns the user, with the rights that they grant for this command, and remarks
    /// for the answer.
    async fn verified(&self, command: &mut UserCommand) -> Result<(Identity, Remarks), Refusal> {
        let mut identity = self.identity.clone();
        let remarks = verify::verify(&self.shared, &mut identity, command).await?;
        Ok((identity, remarks))
    }

    async fn command(&mut self, mut command: UserCommand) -> io::Result<Served> {
        // Before the job is looked up: the answer depends on nothing else. And after, since a verifier may set an address.
        if let Some(refusal) = mail_address::refusal(&command) {
            return self.refuse(refusal.code, refusal.detail).await;
        }
        // Until it is done: the next change is looked at with it. No longer, since a client may take its time to read the answer.
        let (turn, _leave) = waits::change_turn(self, &command).await?;
        let (identity, remarks) = match self.verified(&mut command).await {
            Ok(verified) => verified,
            Err(refusal) => {
                drop(turn);
                return self.refuse_command(command, refusal).await;
            }
        };
        if let Some(refusal) = mail_address::refusal(&command) {
            drop(turn);
            return self.refuse(refusal.code, refusal.detail).await;
        }
        if matches!(command, UserCommand::Reconfigure) {
            let reply = self.shared.reconfigure(&self.identity, self.place).await;
            return self.reply(reply).await;
        }
        if let Some(specs) = trial(&mut command) {
            let (reply, answer) = oneshot::channel();
            self.shared.to_replica(ToReplica::Try {
                identity,
                specs,
                place: self.place,
                reply,
            })?;
            let reply = answer.await.map_err(|_| stopping())?;
            return self.reply(reply).await;
        }
        locate_host(&mut command, self.place.address);
        let is_held = is_held(&command);
        let done = match &command {
            UserCommand::EndAllocation { job, .. } => Some(*job),
            _ => None,
        };
        let (reply, answer) = oneshot::channel();
        self.shared.to_writer(ToWriter::User {
            identity,
            command: Box::new(command),
            reply: ReplyTo::Task(reply, self.place),
        })?;
        let mut reply = answer.await.map_err(|_| stopping())?;
        drop(turn);
        remarks.add_to(&mut reply);
        if let Reply::Submitted { id, .. } = &reply
            && is_held
        {
            self.hold_allocation(*id).await?;
        }
        if let Some(job) = done {
            self.held.remove(job);
        }
        self.reply(reply).await
    }

    pub(crate) async fn reply(&mut self, reply: Reply) -> io::Result<Served> {
        self.send(&frame::encode(&Response::Reply(Box::new(reply))))
            .await?;
        Ok(Served::Next)
    }

    async fn query(&mut self, query: Query) -> io::Result<Served> {
        if matches!(query, Query::Differences) {
            let response = match self.shared.differences(&self.identity, self.place).await {
                Ok(lines) => Response::Differences(lines),
                Err(refusal) => return self.refuse_as(refusal).await,
            };
            self.send(&frame::encode(&response)).await?;
            return Ok(Served::Next);
        }
        if matches!(query, Query::Ping)
            && let Some(why) = self.shared.unwell()
        {
            return self.refuse(RefusalCode::Busy, why).await;
        }
        let _leave = self.share.query().await;
        if matches!(query, Query::JobClasses) {
            let text = self.shared.classes().text().to_owned();
            self.send(&frame::encode(&Response::JobClasses(text)))
                .await?;
            return Ok(Served::Next);
        }
        let (answer, mut parts) = self.share.outbox();
        let identity = self.identity.clone();
        match query {
            Query::Accounting(query) => {
                let usage = query.usage;
                let scope = move |state: &State| match usage {
                    true => JobScope::of_usage(state, &identity),
                    false => JobScope::of(state, &identity),
                };
                let asked = AccountingQuery::Jobs(query, self.shared.look(scope).await?);
                ask_accounting(self, asked, answer);
            }
            Query::Usage(query) => {
                let scope = move |state: &State| JobScope::of_usage(state, &identity);
                let scope = self.shared.look(scope).await?;
                let shows_outages = !self.hides(PrivateData::EVENTS).await?;
                let asked = AccountingQuery::Usage(query, scope, shows_outages);
                ask_accounting(self, asked, answer);
            }
            Query::JobText(query) => {
                let owner = audit::text_owner(self).await?;
                ask_accounting(self, AccountingQuery::JobText(query, owner), answer);
            }
            Query::NodeEvents(query) => {
                let asked = AccountingQuery::NodeEvents(query);
                ask_unless_hidden(self, PrivateData::EVENTS, asked, answer).await?;
            }
            Query::ReservationTimes(query) => {
                let asked = AccountingQuery::Reservations(query);
                ask_unless_hidden(self, PrivateData::RESERVATIONS, asked, answer).await?;
            }
            Query::Transactions(query) => {
                let words = [PrivateData::ACCOUNTS, PrivateData::USERS, PrivateData::JOBS];
                let own = own_name_if_hidden(self, &words).await?;
                let asked = AccountingQuery::Transactions(query, own);
                ask_accounting(self, asked, answer);
            }
            Query::KnownClusters => ask_accounting(self, AccountingQuery::KnownClusters, answer),
            Query::Storage => {
                let words = [PrivateData::USAGE, PrivateData::USERS];
                let own = own_name_if_hidden(self, &words).await?;
                let asked = AccountingQuery::Storage(StorageQuestion { own });
                ask_accounting(self, asked, answer);
            }
            query => self.shared.to_replica(ToReplica::Query {
                identity,
                query: Box::new(query),
                answer,
            })?,
        }
        let mut is_first = true;
        while let Some(bytes) = parts.recv().await {
            self.send(&bytes).await?;
            if std::mem::take(&mut is_first) {
                self.note_answer(&bytes).await?;
            }
            if !parts.is_empty() {
                pause().await;
            }
        }
        if parts.is_over() {
            let text = "answers that you have not read take as much memory as they may; read them, or ask for less";
            return self.refuse(RefusalCode::Busy, text.to_owned()).await;
        }
        Ok(Served::Next)
    }

    /// An allocation ends with this connection from now on.
    async fn hold_allocation(&mut self, job: JobId) -> io::Result<()> {
        self.held.add(job);
        if self.held.is_look_due() {
            // Also if the client goes away meanwhile, they are all there.
            let held = self.held.clone();
            let look = move |state: &State| held.retain_known(state);
            self.held = self.shared.look(look).await?;
        }
        Ok(())
    }

    /// The client is gone: its job, its steps and its waits end.
    fn let_go(self) {
        if self.shared.is_stopping() {
            return;
        }
        for job in self.held {
            self.shared.end_unheld(job, self.identity.uid);
        }
    }
}

/// Checks the client's version and decodes its request.
async fn read_request(client: &Connection, body: Vec<u8>) -> Result<Request, Refusal> {
    // A request of a newer or older version need not be decodable.
    if let Ok(theirs) = version::of_request(&body) {
        Versions::CLUSTER.check(&theirs, "the client", "slurmctld")?;
    }
    let decoded = client.decode(body).await;
    decoded.map_err(|e| frame::FrameError::refusal_of(&e))
}

/// The specifications that are only tried (`--test-only`): a job, or the components of a heterogeneous one.
fn trial(command: &mut UserCommand) -> Option<Vec<JobSpec>> {
    match command {
        UserCommand::Submit {
            spec,
            test_only: true,
            ..
        } => Some(vec![std::mem::take(&mut **spec)]),
        UserCommand::SubmitHet {
            specs,
            test_only: true,
            ..
        } => Some(std::mem::take(specs)),
        _ => None,
    }
}

/// Whether it submits a batch job: nobody holds it, so its connection need not know its id.
fn is_batch(command: &UserCommand) -> bool {
    matches!(command, UserCommand::Submit { spec, test_only: false, .. } if !spec.interactive)
}

/// Whether it submits an allocation that ends with the connection. A batch job does not, whatever it says.
fn is_held(command: &UserCommand) -> bool {
    let first = match command {
        UserCommand::Submit {
            spec,
            test_only: false,
            ..
        } => Some(&**spec),
        UserCommand::SubmitHet {
            specs,
            test_only: false,
            ..
        } => specs.first(),
        _ => None,
    };
    first.is_some_and(|spec| spec.interactive && spec.kind == JobKind::Allocation)
}

/// Decodes and validates a request, and gives its blobs their ids.
fn decode(body: &[u8]) -> io::Result<Request> {
    let mut request: Request = frame::decode(body)?;
    if let RequestBody::Command(command) = &mut request.body {
        name_blobs(command);
    }
    Ok(request)
}

/// Gives the blobs of a submission their ids by content. The client's own serve to tell them apart until here, so that
/// it need not hash, and none can claim another's content.
pub fn name_blobs(command: &mut UserCommand) {
    let (specs, blobs) = match command {
        UserCommand::Submit { spec, blobs, .. } => (std::slice::from_mut(&mut **spec), blobs),
        UserCommand::SubmitHet { specs, blobs, .. } => (specs.as_mut_slice(), blobs),
        UserCommand::SetCrontab(ask) => (ask.jobs.as_mut_slice(), &mut ask.blobs),
        _ => return,
    };
    let given: Vec<_> = specs.iter().map(|s| [s.script, s.context]).collect();
    for (id, bytes) in blobs {
        let by_content = crate::keys::blob_id(bytes);
        let old = Some(std::mem::replace(id, by_content));
        for (spec, [script, context]) in specs.iter_mut().zip(&given) {
            if *script == old {
                spec.script = Some(by_content);
            }
            if *context == old {
                spec.context = Some(by_content);
            }
        }
    }
}

fn stopping() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionAborted, "the controller stops")
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_model::ids::BlobId;

    /// The writer found out when heterogeneous jobs would start, and everybody waited.
    #[test]
    fn what_is_only_tried_is_not_for_the_writer() {
        let one = |test_only| UserCommand::Submit {
            spec: Box::default(),
            blobs: Vec::new(),
            test_only,
        };
        let components = |test_only| UserCommand::SubmitHet {
            specs: vec![JobSpec::default(); 2],
            blobs: Vec::new(),
            test_only,
        };
        let tried = |mut command| trial(&mut command).map(|specs| specs.len());
        assert_eq!(tried(one(true)), Some(1));
        assert_eq!(tried(components(true)), Some(2));
        assert_eq!((tried(one(false)), tried(components(false))), (None, None));
    }

    #[test]
    fn blobs_get_their_ids_by_content() {
        let (script, context) = (BlobId([1; 32]), BlobId([2; 32]));
        let spec = JobSpec {
            script: Some(script),
            context: Some(context),
            ..JobSpec::default()
        };
        let mut command = UserCommand::Submit {
            spec: Box::new(spec),
            blobs: vec![
                (script, b"abc".to_vec().into()),
                (context, b"env".to_vec().into()),
            ],
            test_only: false,
        };
        name_blobs(&mut command);
        let UserCommand::Submit { spec, blobs, .. } = command else {
            unreachable!("it was a submission");
        };
        assert_eq!(spec.script, Some(blobs[0].0));
        assert_eq!(spec.context, Some(blobs[1].0));
        // FIPS 180-2, B.1.
        assert_eq!(blobs[0].0.0[..4], [0xba, 0x78, 0x16, 0xbf]);
    }
}
