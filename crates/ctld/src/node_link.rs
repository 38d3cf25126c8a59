//! A node agent's connection: orders leave sealed and in batches, reports come in batches. When the controller stops, it ends
//! with what the writer has sent last.

use crate::clock::now;
use crate::frames::{Frame, FrameReader};
use crate::keys::Keys;
use crate::link_queue::{LinkQueue, MessageRun};
use crate::mail::{Link, ToLink, ToWriter};
use crate::node_blobs::SentBlobs;
use crate::peer::NodeProof;
use crate::shared::Shared;
use crate::stats::Stats;
use log::{info, warn};
use minicbor::bytes::ByteVec;
use muster_model::batching::BatchDelay;
use muster_model::command::{Identity, UserCommand};
use muster_model::ids::{BlobId, NodeIdx};
use muster_model::time::Timestamp;
use muster_proto::client::Response;
use muster_proto::frame;
use muster_proto::node::{NodeHello, NodeSettings, Order, Orders, ToCtld, ToNode};
use muster_trust::{Digest, Receiver, SealedSession, SessionPeers};
use std::io;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::unix::OwnedWriteHalf;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

/// Messages sent in one write.
const BATCH: usize = 1024;
/// Signals and notices leave at most so often, that those which are equal meet: nodes get the first at once.
const SIGNAL_DELAY: BatchDelay = BatchDelay::from_ms(20);
/// An agent that is silent for this long is asked whether it is there, and given up after as long again.
const PING: Duration = Duration::from_secs(15);

/// Outgoing messages of an agent's connection: frames, sealed for the agent and its launcher.
pub struct Outgoing {
    keys: Keys,
    /// Public keys of agent and launcher for this connection.
    node_keys: [ByteVec; 2],
    /// With agent and launcher, from the welcome on.
    sessions: Option<[SealedSession; 2]>,
    cluster: String,
    node: String,
    /// Blobs that the launcher has.
    sent: SentBlobs,
}

/// A node that joins from another host has the address from which it connects and the identity that it has proved, whatever its
/// greeting contains.
pub(crate) fn located(
    mut hello: Box<NodeHello>,
    address: Option<IpAddr>,
    proof: NodeProof,
) -> Box<NodeHello> {
    hello.info.trusted_by = proof.text();
    if let (Some(config), Some(address)) = (&mut hello.dynamic, address) {
        config.addr = address.to_string();
    }
    hello
}

/// A host that takes a node is where it asks from, whatever it says.
pub(crate) fn locate_host(command: &mut UserCommand, address: Option<IpAddr>) {
    if let (UserCommand::TakeNode(asked), Some(address)) = (command, address) {
        asked.host.addr = address.to_string();
    }
}

/// Serves an agent until it goes.
pub(crate) async fn serve(
    shared: Rc<Shared>,
    identity: Identity,
    hello: NodeHello,
    mut reader: FrameReader,
    mut write: OwnedWriteHalf,
) {
    // The controller stops once what the writer has for the agent is written.
    let _open = shared.links.open();
    let name = hello.name.clone();
    let outgoing = Outgoing::new(shared.keys.clone(), &hello);
    let (send, mut orders) = mpsc::unbounded_channel();
    let generation = shared.next_generation();
    let (answer, accepted) = oneshot::channel();
    let link = Link { generation, send };
    if shared
        .to_writer(ToWriter::NodeHello {
            hello: Box::new(hello),
            link,
            answer,
        })
        .is_err()
    {
        return;
    }
    let node = match accepted.await {
        Ok(Ok(node)) => node,
        Ok(Err(refusal)) => {
            warn!("node {name} (uid {}) is refused: {refusal}", identity.uid);
            let _ = write
                .write_all(&frame::encode(&Response::Refused(refusal)))
                .await;
            return;
        }
        Err(_) => return,
    };
    let end = talk(
        &shared,
        node,
        generation,
        outgoing,
        &mut reader,
        &mut write,
        &mut orders,
    )
    .await;
    match end {
        Ok(End::Replaced) => return,
        Ok(End::Closed) => info!("node {name} disconnected"),
        Ok(End::Silent) => warn!("node {name} does not answer, its connection is closed"),
        Err(e) => info!("node {name} disconnected: {e}"),
    }
    let _ = shared.to_writer(ToWriter::NodeLost { node, generation });
}

enum End {
    Closed,
    Replaced,
    Silent,
}

/// The bytes that are being sent to an agent.
struct Sending {
    outgoing: Outgoing,
    queue: LinkQueue,
    /// Frames, and how much of them is written.
    frames: Vec<u8>,
    written: usize,
    /// When signals may leave next.
    signals_at: Instant,
}

impl Sending {
    fn new(outgoing: Outgoing) -> Sending {
        Sending {
            outgoing,
            queue: LinkQueue::default(),
            frames: Vec::new(),
            written: 0,
            signals_at: Instant::now(),
        }
    }

    fn is_writing(&self) -> bool {
        self.written < self.frames.len()
    }

    fn unwritten(&self) -> &[u8] {
        &self.frames[self.written..]
    }

    /// Encodes the next messages, once all earlier ones are written.
    fn fill(&mut self, stats: &Stats) -> io::Result<()> {
        if self.is_writing() {
            return Ok(());
        }
        let mut run = MessageRun::default();
        let mut batch = self.queue.take_first(BATCH, &mut run);
        if self.queue.has_signals() && Instant::now() >= self.signals_at {
            batch.extend(self.queue.take_signals(BATCH));
            self.signals_at = Instant::now() + SIGNAL_DELAY.as_duration();
        }
        let (frames, count) = self.outgoing.encode(batch.into_iter(), now())?;
        stats.to_nodes.fetch_add(count, Relaxed);
        (self.frames, self.written) = (frames, 0);
        Ok(())
    }

    /// So many bytes are written.
    fn wrote(&mut self, count: usize) -> io::Result<()> {
        if count == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        self.written += count;
        Ok(())
    }

    /// Writes all that waits.
    async fn finish(mut self, write: &mut OwnedWriteHalf, stats: &Stats) -> io::Result<()> {
        self.queue.put_all_first();
        loop {
            self.fill(stats)?;
            if !self.is_writing() {
                return Ok(());
            }
            write.write_all(self.unwritten()).await?;
            self.written = self.frames.len();
        }
    }
}

async fn talk(
    shared: &Shared,
    node: NodeIdx,
    generation: u64,
    outgoing: Outgoing,
    reader: &mut FrameReader,
    write: &mut OwnedWriteHalf,
    orders: &mut mpsc::UnboundedReceiver<ToLink>,
) -> io::Result<End> {
    let mut messages = Vec::new();
    let mut sending = Sending::new(outgoing);
    let mut asked = false;
    // Agents have no limits.
    let share = shared.users().unlimited();
    loop {
        sending.fill(&shared.stats)?;
        let has_signals = !sending.is_writing() && sending.queue.has_signals();
        tokio::select! {
            biased;
            written = write.write(sending.unwritten()), if sending.is_writing() => {
                sending.wrote(written?)?;
            }
            // Taken in while the agent does not read too: it is merged.
            count = orders.recv_many(&mut messages, BATCH) => {
                if messages.iter().any(|m| matches!(m, ToLink::Replaced)) {
                    return Ok(End::Replaced);
                }
                if count == 0 {
                    sending.finish(write, &shared.stats).await?;
                    return Ok(End::Replaced);
                }
                messages.drain(..).for_each(|m| sending.queue.push(m));
            }
            frame = reader.next(&share) => {
                asked = false;
                let Some(Frame { body, .. }) = frame? else { return Ok(End::Closed) };
                // Answers to pings are counted as little as those are.
                let mut reports = Vec::new();
                let mut frames = u64::from(take(shared, (node, generation), &body, &mut reports)?);
                while let Some(body) = reader.take()? {
                    frames += u64::from(take(shared, (node, generation), &body, &mut reports)?);
                }
                shared.stats.from_nodes.fetch_add(frames, Relaxed);
                if !reports.is_empty() {
                    shared.to_writer(ToWriter::Reports { node, generation, reports })?;
                }
            }
            () = tokio::time::sleep_until(sending.signals_at), if has_signals => {}
            () = tokio::time::sleep(PING) => {
                if std::mem::replace(&mut asked, true) {
                    return Ok(End::Silent);
                }
                frame::encode_into(&ToNode::Ping, &mut sending.frames);
            }
        }
    }
}

/// Takes in a message; whether it was one about jobs.
fn take(
    shared: &Shared,
    (node, generation): (NodeIdx, u64),
    body: &[u8],
    reports: &mut Vec<muster_proto::node::NumberedReport>,
) -> io::Result<bool> {
    match frame::decode(body)? {
        ToCtld::Reports(more) => {
            reports.extend(more);
            Ok(true)
        }
        ToCtld::Health {
            load_centi,
            free_mib,
            configuration,
        } => {
            if let Some(text) = configuration {
                shared.to_writer(ToWriter::NodeConfiguration {
                    node,
                    generation,
                    error: Some(text).filter(|text| !text.is_empty()),
                })?;
            }
            shared.to_writer(ToWriter::Health {
                node,
                load_centi,
                free_mib,
            })?;
            Ok(false)
        }
    }
}

impl Outgoing {
    /// To the agent that has greeted so.
    pub fn new(keys: Keys, hello: &NodeHello) -> Outgoing {
        Outgoing {
            keys,
            node_keys: [hello.key.clone(), hello.launcher_key.clone()],
            sessions: None,
            cluster: String::new(),
            node: hello.name.clone(),
            sent: SentBlobs::default(),
        }
    }

    /// Frames for a run of messages that leave at this time, and how many: neighbouring orders share one, and a seal.
    ///
    /// # Errors
    /// The keys of the node are none, or orders come before a welcome: the connection is of no use.
    pub fn encode(
        &mut self,
        messages: impl Iterator<Item = ToLink>,
        at: Timestamp,
    ) -> io::Result<(Vec<u8>, u64)> {
        let mut out = Vec::new();
        let mut frames = 0;
        let mut batch = Batch::default();
        for message in messages {
            let other = match message {
                ToLink::Order(order, blobs) => {
                    self.add(&mut batch, order, blobs);
                    continue;
                }
                ToLink::Welcome(welcome, settings) => {
                    self.begin_sessions(&welcome.cluster)?;
                    frames += 1;
                    frame::encode_into(&Response::Welcome(welcome), &mut out);
                    batch.settings = Some(settings);
                    continue;
                }
                ToLink::Settings(settings) => {
                    // They count for the orders after them.
                    frames += self.seal(&mut batch, &mut out, at)?;
                    batch.settings = Some(settings);
                    continue;
                }
                ToLink::Ack(seq) => frame::encode(&ToNode::Ack(seq)),
                ToLink::Stop(too) => frame::encode(&ToNode::Stop(too)),
                ToLink::Replaced => continue,
            };
            frames += self.seal(&mut batch, &mut out, at)? + 1;
            out.extend_from_slice(&other);
        }
        frames += self.seal(&mut batch, &mut out, at)?;
        Ok((out, frames))
    }

    fn begin_sessions(&mut self, cluster: &str) -> io::Result<()> {
        cluster.clone_into(&mut self.cluster);
        let [agent, launcher] = &self.node_keys;
        let session = |receiver, key: &[u8]| {
            let peers = SessionPeers {
                cluster,
                node: &self.node,
                receiver,
            };
            self.keys.session(peers, key).map_err(io::Error::other)
        };
        let sessions = [
            session(Receiver::Agent, agent)?,
            session(Receiver::Launcher, launcher)?,
        ];
        self.sessions = Some(sessions);
        Ok(())
    }

    fn add(&mut self, batch: &mut Batch, order: Order, blobs: Vec<(BlobId, Arc<ByteVec>)>) {
        let user = match &order {
            Order::Launch(grant) => grant.spec.owner.uid,
            _ => 0,
        };
        for (id, bytes) in blobs {
            if self.sent.insert(id, user, bytes.len()) {
                batch.blobs.push((id, (*bytes).clone()));
            }
        }
        batch.orders.push(order);
    }

    /// Makes a frame of the orders, if there are any; how many it made.
    fn seal(&mut self, batch: &mut Batch, out: &mut Vec<u8>, at: Timestamp) -> io::Result<u64> {
        if batch.orders.is_empty() && batch.settings.is_none() {
            return Ok(0);
        }
        let Some(sessions) = &mut self.sessions else {
            return Err(io::Error::other("orders before a welcome"));
        };
        let orders = Orders {
            cluster: self.cluster.clone(),
            node: self.node.clone(),
            at,
            blobs: std::mem::take(&mut batch.blobs),
            orders: std::mem::take(&mut batch.orders),
            // The launcher looks at these last: it drops blobs that orders of this very batch use after it has begun those.
            drop_blobs: self.sent.take_excess(),
            settings: batch.settings.take(),
        };
        let bytes = minicbor::to_vec(&orders).expect("writing to memory cannot fail");
        let digest = Digest::of(&bytes);
        let [seal, launcher_seal] = sessions
            .each_mut()
            .map(|session| session.seal_digest(&digest).to_vec().into());
        let sealed = ToNode::Sealed {
            orders: bytes.into(),
            seal,
            launcher_seal,
        };
        frame::encode_into(&sealed, out);
        Ok(1)
    }
}

#[derive(Default)]
struct Batch {
    settings: Option<Box<NodeSettings>>,
    blobs: Vec<(BlobId, ByteVec)>,
    orders: Vec<Order>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_proto::frame::Frames;
    use muster_proto::node::Welcome;
    use muster_trust::KeyPair;

    /// Settings name programs that run as root on the node: they are sealed, for the launcher too, and come first.
    #[test]
    fn settings_follow_the_welcome_and_bear_both_seals() {
        let keys = Keys::from_bytes([3; 64]);
        let (agent, launcher) = (KeyPair::of([1; 32]), KeyPair::of([2; 32]));
        let hello = NodeHello {
            name: "n1".to_owned(),
            info: Default::default(),
            present: Vec::new(),
            key: agent.public().to_vec().into(),
            launcher_key: launcher.public().to_vec().into(),
            dynamic: None,
        };
        let mut outgoing = Outgoing::new(keys.clone(), &hello);
        let welcome = Welcome {
            public_key: keys.public().into(),
            cluster: "c".to_owned(),
            greeting: None,
        };
        let (first, second) = (
            NodeSettings::default(),
            NodeSettings {
                reboot_program: Some("/sbin/reboot".to_owned()),
                ..NodeSettings::default()
            },
        );
        let messages = [
            ToLink::Welcome(Box::new(welcome), Box::new(first.clone())),
            ToLink::Order(Order::Reboot, Vec::new()),
            ToLink::Settings(Box::new(second.clone())),
        ];
        let (bytes, count) = outgoing.encode(messages.into_iter(), now()).unwrap();
        assert_eq!(count, 3);
        let mut frames = Frames::default();
        frames.push(&bytes);
        assert!(matches!(frames.take(), Ok(Some(Response::Welcome(_)))));
        let session = |own: &KeyPair, receiver| {
            let peers = SessionPeers {
                cluster: "c",
                node: "n1",
                receiver,
            };
            own.with_controller(peers, &keys.public()).unwrap()
        };
        let mut agents = session(&agent, Receiver::Agent);
        let mut launchers = session(&launcher, Receiver::Launcher);
        for (settings, count) in [(first, 1), (second, 0)] {
            let Ok(Some(ToNode::Sealed {
                orders,
                seal,
                launcher_seal,
            })) = frames.take()
            else {
                panic!("it is not sealed");
            };
            agents.check(&orders, &seal).unwrap();
            launchers.check(&orders, &launcher_seal).unwrap();
            let orders: Orders = frame::decode(&orders).unwrap();
            assert_eq!(orders.settings.as_deref(), Some(&settings));
            assert_eq!(orders.orders.len(), count);
        }
    }
}
