//! What the launcher believes: batches of orders that bear the controller's seal. It makes a key pair for each connection
//! to the controller, and knows the controller by the public key that it saw first. The agent only passes messages on.

use crate::sys;
use muster_proto::frame;
use muster_proto::node::Orders;
use muster_trust::{KEY, KeyPair, Receiver, SessionPeers};
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

/// The session with the controller.
#[derive(Default)]
pub(super) struct Session {
    /// The key of a connection to which the controller has not answered.
    offered: Option<KeyPair>,
    agreed: Option<muster_trust::Session>,
}

/// Whom orders have to be for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Place {
    /// `ClusterName`.
    pub(super) cluster: String,
    /// `NodeName`.
    pub(super) node: String,
}

impl Session {
    /// A key for the next connection. Nothing of the one before is believed any more.
    ///
    /// # Errors
    /// There are no random numbers.
    pub(super) fn open(&mut self) -> io::Result<[u8; KEY]> {
        let mut secret = [0; KEY];
        sys::fill_randomly(&mut secret)?;
        let pair = KeyPair::of(secret);
        let public = pair.public();
        *self = Session {
            offered: Some(pair),
            agreed: None,
        };
        Ok(public)
    }

    /// The controller has answered and has shown this key.
    ///
    /// # Errors
    /// It is not the controller that this node knows.
    pub(super) fn begin(
        &mut self,
        spool: &Path,
        place: &Place,
        controller: &[u8],
    ) -> Result<(), String> {
        let own = self.offered.take();
        let own = own.ok_or("no connection to the controller was begun")?;
        let peers = SessionPeers {
            cluster: &place.cluster,
            node: &place.node,
            receiver: Receiver::Launcher,
        };
        let agreed = own.with_controller(peers, controller);
        let agreed = agreed.map_err(|e| e.to_string())?;
        check_pin(&key_path(spool, &place.cluster), controller)?;
        self.agreed = Some(agreed);
        Ok(())
    }

    /// Orders that the controller has given, next in this session. After an error nothing of the session is believed.
    ///
    /// # Errors
    /// They are not the controller's, or not the next, or not for this node.
    pub(super) fn check(
        &mut self,
        place: &Place,
        bytes: &[u8],
        seal: &[u8],
    ) -> Result<Orders, String> {
        let mut session = self.agreed.take().ok_or("there is no session")?;
        session.check(bytes, seal).map_err(|e| e.to_string())?;
        let orders: Orders = frame::decode(bytes).map_err(|e| e.to_string())?;
        if orders.cluster != place.cluster || orders.node != place.node {
            let (node, cluster) = (&orders.node, &orders.cluster);
            return Err(format!(
                "the orders are for node '{node}' of cluster '{cluster}'"
            ));
        }
        self.agreed = Some(session);
        Ok(orders)
    }
}

/// Where the key of a cluster's controller is kept.
fn key_path(spool: &Path, cluster: &str) -> PathBuf {
    let name = cluster.replace('/', "_");
    spool.join(format!("controller.{name}.x25519"))
}

/// Checks that a key is the one first seen for the cluster, which this one is if there was none.
fn check_pin(path: &Path, key: &[u8]) -> Result<(), String> {
    let failed = |e: io::Error| format!("{}: {e}", path.display());
    match fs::read(path) {
        Ok(known) if known == key => Ok(()),
        Ok(_) => Err(format!(
            "its key is not the one that this node knows; if the controller's state was made anew, remove {}",
            path.display()
        )),
        Err(e) if e.kind() == io::ErrorKind::NotFound => pin(path, key).map_err(failed),
        Err(e) => Err(failed(e)),
    }
}

/// Keeps a controller's key: whole, whenever the disk is full or the machine stops, as a part of one would be another key.
fn pin(path: &Path, key: &[u8]) -> io::Result<()> {
    let next = path.with_extension("next");
    let mut file = fs::File::create(&next)?;
    file.write_all(key)?;
    file.sync_all()?;
    fs::rename(&next, path)?;
    // Else the name may be gone after a power failure, and the next controller that answers would be believed.
    let dir = path.parent().unwrap_or(Path::new("/"));
    fs::File::open(dir)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_model::time::Timestamp;
    use std::os::unix::fs::symlink;

    fn dir(name: &str) -> PathBuf {
        let name = format!("muster-session-{}-{name}", std::process::id());
        let dir = std::env::temp_dir().join(name);
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(&dir).unwrap();
        dir
    }

    fn place() -> Place {
        Place {
            cluster: "c".to_owned(),
            node: "n1".to_owned(),
        }
    }

    fn batch(node: &str) -> Vec<u8> {
        let orders = Orders {
            cluster: "c".to_owned(),
            node: node.to_owned(),
            at: Timestamp(0),
            blobs: Vec::new(),
            orders: Vec::new(),
            drop_blobs: Vec::new(),
            settings: None,
        };
        minicbor::to_vec(orders).unwrap()
    }

    /// A session of a launcher, and the controller's sides with launcher and agent.
    fn session(dir: &Path) -> (Session, [muster_trust::Session; 2]) {
        let controller = KeyPair::of([7; KEY]);
        let mut session = Session::default();
        let key = session.open().unwrap();
        session.begin(dir, &place(), &controller.public()).unwrap();
        let side = |receiver| {
            let peers = SessionPeers {
                cluster: "c",
                node: "n1",
                receiver,
            };
            controller.with_node(peers, &key).unwrap()
        };
        (session, [side(Receiver::Launcher), side(Receiver::Agent)])
    }

    #[test]
    fn only_the_next_batch_of_the_controller_is_believed() {
        let dir = dir("next");
        let (place, bytes) = (place(), batch("n1"));
        let (mut launcher, [mut controller, _]) = session(&dir);
        let first = controller.seal(&bytes);
        let second = controller.seal(&bytes);
        launcher.check(&place, &bytes, &first).unwrap();
        launcher.check(&place, &bytes, &second).unwrap();
        // Once more; and after that not even what would have fitted.
        let third = controller.seal(&bytes);
        launcher.check(&place, &bytes, &second).unwrap_err();
        let none = launcher.check(&place, &bytes, &third).unwrap_err();
        assert_eq!(none, "there is no session");
        // What is sealed for the agent, for another node, or in an earlier session.
        let (mut launcher, [_, mut agent]) = session(&dir);
        let seal = agent.seal(&bytes);
        launcher.check(&place, &bytes, &seal).unwrap_err();
        let (mut launcher, [mut controller, _]) = session(&dir);
        let other = batch("n2");
        let seal = controller.seal(&other);
        let error = launcher.check(&place, &other, &seal).unwrap_err();
        assert!(error.contains("for node 'n2'"), "{error}");
        let (mut launcher, _) = session(&dir);
        launcher.check(&place, &bytes, &first).unwrap_err();
        let (mut launcher, [mut controller, _]) = session(&dir);
        launcher.open().unwrap();
        let seal = controller.seal(&bytes);
        launcher.check(&place, &bytes, &seal).unwrap_err();
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn another_controller_is_not_believed() {
        let dir = dir("other");
        drop(session(&dir));
        let mut launcher = Session::default();
        launcher.open().unwrap();
        let other = KeyPair::of([8; KEY]).public();
        let error = launcher.begin(&dir, &place(), &other).unwrap_err();
        assert!(
            error.contains("not the one that this node knows"),
            "{error}"
        );
        // A key pair is for one answer.
        let known = KeyPair::of([7; KEY]).public();
        launcher.begin(&dir, &place(), &known).unwrap_err();
        launcher.open().unwrap();
        launcher.begin(&dir, &place(), &known).unwrap();
        fs::remove_dir_all(&dir).unwrap();
    }

    /// `/dev/full` takes no byte, as a full disk does.
    #[test]
    fn a_full_disk_leaves_no_part_of_a_key() {
        let dir = dir("pin");
        let path = key_path(&dir, "c");
        let next = path.with_extension("next");
        symlink("/dev/full", &next).unwrap();
        assert!(pin(&path, &[7; 32]).is_err());
        assert!(!path.exists());
        fs::remove_file(&next).unwrap();
        // What an earlier try has left is no part of the next one.
        fs::write(&next, [1; 99]).unwrap();
        pin(&path, &[7; 32]).unwrap();
        assert_eq!(fs::read(&path).unwrap(), [7; 32]);
        assert!(!next.exists());
        fs::remove_dir_all(&dir).unwrap();
    }
}
