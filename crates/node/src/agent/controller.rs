//! The connection to the controller. The supervisor opens it, so that the controller sees root as
//! its peer. This module reconnects for ever, lets the launcher verify that the peer is the
//! controller known to this node, and accepts only orders that the controller has sealed.

mod remote;

use super::Input;
use super::socket::{Socket, read_frames, spawn_writer};
use super::supervisor_link::Dialer;
use crate::options::AgentOptions;
use crate::sys;
use anyhow::{Context as _, bail, ensure};
use muster_model::visible_text::debug_beginning;
use muster_node_core::agent::{self, DialId};
use muster_proto::client::Response;
use muster_proto::frame::{self, Frames, Message};
use muster_proto::node::{Orders, ToNode, Welcome};
use muster_proto::version::Versions;
use muster_trust::{KEY, KeyPair, Receiver, SealedSession, SessionPeers};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};

/// Waits between connection attempts: a restarted controller is found at once, and one that stays
/// away costs little.
const RETRY_MIN: Duration = Duration::from_millis(50);
/// See above.
const RETRY_MAX: Duration = Duration::from_secs(1);

/// Keeps the connection up for ever.
pub(super) fn maintain_connection(
    dialer: Dialer,
    options: AgentOptions,
    inputs: mpsc::UnboundedSender<Input>,
) {
    tokio::spawn(async move {
        let mut wait = RETRY_MIN;
        let mut last_error = String::new();
        let mut last_dial = 0;
        let mut progress = Progress::default();
        loop {
            progress.is_welcomed = false;
            last_dial += 1;
            let dial = DialId(last_dial);
            if let Err(e) = session((&dialer, dial), &options, &inputs, &mut progress).await {
                let text = format!("{e:#}");
                if text != last_error {
                    log::warn!("controller: {text}");
                    last_error = text;
                }
            }
            // A start without a controller succeeds, too.
            if !progress.is_welcomed {
                progress.report_ready(&dialer);
            }
            if progress.is_welcomed {
                let _ = inputs.send(Input::ControllerLost);
                last_error.clear();
                wait = RETRY_MIN;
            }
            tokio::time::sleep(wait).await;
            wait = (wait * 2).min(RETRY_MAX);
        }
    });
}

/// State of the connections so far.
#[derive(Debug, Default)]
struct Progress {
    /// The controller has answered on the last connection, and the launcher trusts it.
    is_welcomed: bool,
    /// The supervisor was notified that the first attempt to register is over.
    is_ready_reported: bool,
}

impl Progress {
    fn report_ready(&mut self, dialer: &Dialer) {
        if !std::mem::replace(&mut self.is_ready_reported, true) {
            dialer.note_ready();
        }
    }
}

/// One connection, from opening to end.
async fn session(
    (dialer, dial): (&Dialer, DialId),
    options: &AgentOptions,
    inputs: &mpsc::UnboundedSender<Input>,
    progress: &mut Progress,
) -> anyhow::Result<()> {
    let (link, place) = connect((dialer, dial), options).await?;
    let mut secret = [0; KEY];
    sys::fill_randomly(&mut secret).context("no random numbers")?;
    let own = KeyPair::of(secret);
    let (reply, greeting) = oneshot::channel();
    let key = own.public().to_vec().into();
    inputs.send(Input::Dialed(dial, key, reply))?;
    link.write_all(&greeting.await?).await?;
    let welcome = match read_one(&link).await? {
        Response::Welcome(welcome) => *welcome,
        Response::Refused(refusal) => bail!("it refuses this node: {refusal}"),
        other => bail!("unexpected answer {}", debug_beginning(&other, 60)),
    };
    check_welcome(&welcome, options)?;
    let (reply, believed) = oneshot::channel();
    let key = welcome.public_key.clone();
    inputs.send(Input::ControllerAnswered(dial, key, reply))?;
    let believed = believed.await.context("the launcher was lost")?;
    believed.map_err(anyhow::Error::msg)?;
    let peers = SessionPeers {
        cluster: &options.cluster,
        node: &options.name,
        receiver: Receiver::Agent,
    };
    let mut sealed = own
        .with_controller(peers, &welcome.public_key)
        .context("its public key")?;
    progress.is_welcomed = true;
    let outlet = spawn_writer(link.clone());
    inputs.send(Input::ControllerUp(ControllerLink {
        outlet,
        socket: link.clone(),
    }))?;
    let closing = link.clone();
    let mut given_version = String::new();
    let ended = read_frames(link, |message| {
        let event = match message {
            ToNode::Sealed {
                orders: bytes,
                seal,
                launcher_seal,
            } => match open(options, &mut sealed, &bytes, &seal) {
                Ok(orders) => {
                    // The controller sends orders once the registration is durable.
                    progress.report_ready(dialer);
                    if let Some(settings) = &orders.settings
                        && settings.given_version != given_version
                    {
                        given_version.clone_from(&settings.given_version);
                        dialer.note_configuration();
                    }
                    agent::Event::Orders {
                        orders: Box::new(orders),
                        bytes,
                        launcher_seal,
                    }
                }
                Err(e) => {
                    log::error!("orders are refused, the connection is closed: {e:#}");
                    return closing.close();
                }
            },
            other => agent::Event::Controller(other),
        };
        let _ = inputs.send(Input::Event(event));
    })
    .await;
    bail!("{place}: the connection ended: {ended}")
}

/// Whether the controller's protocol version is supported and its cluster is this node's.
fn check_welcome(welcome: &Welcome, options: &AgentOptions) -> anyhow::Result<()> {
    let theirs = welcome.greeting.clone().unwrap_or_default();
    let spoken = Versions::CLUSTER.check(&theirs, "slurmctld", "this node's slurmd");
    spoken.map_err(|refusal| anyhow::Error::msg(refusal.detail))?;
    ensure!(
        welcome.cluster == options.cluster,
        "it is of cluster '{}', this node is of '{}'",
        welcome.cluster,
        options.cluster
    );
    Ok(())
}

/// A connection to the controller, by its socket on this host or to another host, and the resulting
/// stream.
async fn connect(
    (dialer, dial): (&Dialer, DialId),
    options: &AgentOptions,
) -> anyhow::Result<(Socket, String)> {
    let socket = options.controller_socket.display().to_string();
    if options.network.controllers.is_empty() {
        let link = dialer.connect_controller().await;
        return Ok((link.with_context(|| socket.clone())?, socket));
    }
    let mut failed = anyhow::Error::msg("no controller is named");
    for address in &options.network.controllers {
        match remote::connect((dialer, dial), options, address).await {
            Ok(link) => return Ok((link, address.clone())),
            Err(e) => failed = e.context(address.clone()),
        }
    }
    Err(failed)
}

async fn read_one<T: for<'b> minicbor::Decode<'b, ()> + Message>(
    link: &Socket,
) -> anyhow::Result<T> {
    let mut frames = Frames::default();
    let mut byte = [0; 1];
    // Reads byte by byte, so that nothing after the message is consumed; there is one such short
    // message per connection.
    loop {
        if let Some(message) = frames.take()? {
            return Ok(message);
        }
        ensure!(
            link.read(&mut byte).await? == 1,
            "closed before it answered"
        );
        frames.push(&byte);
    }
}

/// Sealed orders of the controller, next on this connection.
fn open(
    options: &AgentOptions,
    session: &mut SealedSession,
    bytes: &[u8],
    seal: &[u8],
) -> anyhow::Result<Orders> {
    session.check(bytes, seal)?;
    let orders: Orders = frame::decode(bytes).context("the orders cannot be read")?;
    ensure!(
        orders.cluster == options.cluster && orders.node == options.name,
        "they are for node '{}' of cluster '{}'",
        orders.node,
        orders.cluster
    );
    Ok(orders)
}

/// The connection to a controller that has answered.
#[derive(Debug)]
pub(super) struct ControllerLink {
    pub(super) outlet: super::Outlet,
    socket: Socket,
}

impl ControllerLink {
    /// Ends the connection; the controller is then contacted again.
    pub(super) fn close(&self) {
        self.socket.close();
    }
}
