//! The connection to the controller: dials for ever, checks that it is the controller it knows, believes only its orders.

use super::socket::{Socket, read_frames, spawn_writer};
use super::{Event, info};
use crate::options::AgentOptions;
use crate::sys;
use anyhow::{Context as _, bail, ensure};
use minicbor::bytes::ByteVec;
use muster_proto::client::Response;
use muster_proto::frame::{self, Frames, Message};
use muster_proto::node::{Orders, ToNode, Welcome};
use muster_trust::{Between, KEY, KeyPair, Session};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};

/// Waits between dials: a controller that restarts is found at once, one that stays away costs little.
const RETRY_MIN: Duration = Duration::from_millis(50);
/// See above.
const RETRY_MAX: Duration = Duration::from_secs(1);

/// Keeps the connection up for ever.
pub(super) fn keep(options: AgentOptions, events: mpsc::UnboundedSender<Event>) {
    tokio::spawn(async move {
        let mut wait = RETRY_MIN;
        let mut last_error = String::new();
        loop {
            let mut welcomed = false;
            if let Err(e) = session(&options, &events, &mut welcomed).await {
                let text = format!("{e:#}");
                if text != last_error {
                    log::warn!("controller: {text}");
                    last_error = text;
                }
            }
            if welcomed {
                let _ = events.send(Event::ControllerLost);
                last_error.clear();
                wait = RETRY_MIN;
            }
            tokio::time::sleep(wait).await;
            wait = (wait * 2).min(RETRY_MAX);
        }
    });
}

/// One connection, from dial to end.
async fn session(
    options: &AgentOptions,
    events: &mpsc::UnboundedSender<Event>,
    welcomed: &mut bool,
) -> anyhow::Result<()> {
    let socket = &options.controller_socket;
    let link = Socket::connect(socket)
        .await
        .with_context(|| socket.display().to_string())?;
    let mut secret = [0; KEY];
    sys::fill_randomly(&mut secret).context("no random numbers")?;
    let own = KeyPair::of(secret);
    let (reply, greeting) = oneshot::channel();
    events.send(Event::Dialed(own.public().to_vec().into(), reply))?;
    link.write_all(&greeting.await?).await?;
    let welcome = match read_one(&link).await? {
        Response::Welcome(welcome) => *welcome,
        Response::Refused(refusal) => bail!("it refuses this node: {refusal}"),
        other => bail!("unexpected answer {other:.60?}"),
    };
    check_welcome(options, &welcome)?;
    let between = Between {
        cluster: &options.cluster,
        node: &options.name,
    };
    let mut sealed = own
        .with_controller(between, &welcome.public_key)
        .context("its public key")?;
    *welcomed = true;
    let outlet = spawn_writer(link.clone());
    events.send(Event::Welcome(Box::new(welcome.settings), outlet))?;
    let closing = link.clone();
    let ended = read_frames(link, |message| {
        let event = match message {
            ToNode::Sealed { orders, seal } => match open(options, &mut sealed, &orders, &seal) {
                Ok(orders) => Event::Orders(Box::new(orders)),
                Err(e) => {
                    log::error!("orders are refused, the connection is closed: {e:#}");
                    return closing.close();
                }
            },
            other => Event::Controller(Box::new(other)),
        };
        let _ = events.send(event);
    })
    .await;
    bail!("{}: the connection ended: {ended}", socket.display())
}

async fn read_one<T: for<'b> minicbor::Decode<'b, ()> + Message>(
    link: &Socket,
) -> anyhow::Result<T> {
    let mut frames = Frames::default();
    let mut byte = [0; 1];
    // Byte by byte, so that nothing of what follows is taken; it is one short message per connection.
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

/// Where the key of a cluster's controller is kept.
fn key_path(spool: &Path, cluster: &str) -> PathBuf {
    let name = cluster.replace('/', "_");
    spool.join(format!("controller.{name}.x25519"))
}

/// Checks the cluster, and that the key is the one first seen for it.
fn check_welcome(options: &AgentOptions, welcome: &Welcome) -> anyhow::Result<()> {
    ensure!(
        welcome.cluster == options.cluster,
        "it is of cluster '{}', this node is of '{}'",
        welcome.cluster,
        options.cluster
    );
    let bytes = &welcome.public_key[..];
    ensure!(
        bytes.len() == KEY,
        "its public key has {} bytes, not {KEY}",
        bytes.len()
    );
    let path = key_path(&options.spool_dir, &welcome.cluster);
    match std::fs::read(&path) {
        Ok(known) => ensure!(
            known == bytes,
            "its key is not the one that this node knows; if the controller's state was made anew, remove {}",
            path.display()
        ),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            pin(&path, bytes).with_context(|| path.display().to_string())?;
        }
        Err(e) => return Err(e).with_context(|| path.display().to_string()),
    }
    Ok(())
}

/// Keeps a controller's key: whole, whenever the disk is full or the machine stops, as a part of one would be another key.
fn pin(path: &Path, key: &[u8]) -> std::io::Result<()> {
    let next = path.with_extension("next");
    let mut file = std::fs::File::create(&next)?;
    file.write_all(key)?;
    file.sync_all()?;
    std::fs::rename(&next, path)?;
    // Else the name may be gone after a power failure, and the next controller that answers would be believed.
    let dir = path.parent().unwrap_or(Path::new("/"));
    std::fs::File::open(dir)?.sync_all()
}

/// Orders that the controller has said, next on this connection.
fn open(
    options: &AgentOptions,
    session: &mut Session,
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

impl super::Agent {
    /// The first message on a connection.
    pub(super) fn greeting(&self, key: ByteVec) -> Vec<u8> {
        use muster_proto::client::{Request, RequestBody};
        let mut info = info::collect(&self.options, self.started);
        info.cross_memory = self.found.cross_memory.as_ref().map(ToString::to_string);
        let hello = muster_proto::node::NodeHello {
            name: self.options.name.clone(),
            info,
            present: self.jobs.iter().map(|(run, _)| run).collect(),
            key,
        };
        frame::encode(&Request {
            version: muster_proto::PROTOCOL,
            body: RequestBody::NodeHello(Box::new(hello)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    /// `/dev/full` takes no byte, as a full disk does.
    #[test]
    fn a_full_disk_leaves_no_part_of_a_key() {
        let name = format!("muster-pin-{}", std::process::id());
        let dir = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&dir).unwrap();
        let path = key_path(&dir, "c");
        let next = path.with_extension("next");
        symlink("/dev/full", &next).unwrap();
        assert!(pin(&path, &[7; 32]).is_err());
        assert!(!path.exists());
        std::fs::remove_file(&next).unwrap();
        // What an earlier try has left is no part of the next one.
        std::fs::write(&next, [1; 99]).unwrap();
        pin(&path, &[7; 32]).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), [7; 32]);
        assert!(!next.exists());
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
