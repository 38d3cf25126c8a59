//! The launcher's end of the controller's sealed session: a key for each connection, and batches of orders in
//! sequence. The agent only relays the messages.

use super::Launcher;
use super::interface::Action;
use crate::messages::LauncherEvent;
use muster_proto::frame;
use muster_proto::node::Orders;
use muster_trust::{KEY, KeyPair, Receiver, SessionPeers};

/// The session with the controller.
#[derive(Default)]
pub(super) struct ControllerSession {
    /// The key of a connection to which the controller has not answered.
    offered: Option<KeyPair>,
    /// The controller has answered; whether it is the one that this node knows is being looked up.
    unchecked: Option<muster_trust::SealedSession>,
    agreed: Option<muster_trust::SealedSession>,
}

/// The node that orders must name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct OrderTarget {
    /// `ClusterName`.
    pub(super) cluster: String,
    /// `NodeName`.
    pub(super) node: String,
}

impl ControllerSession {
    /// A key for the next connection. Nothing of the one before is believed any more.
    pub(super) fn open(&mut self, secret: [u8; KEY]) -> [u8; KEY] {
        let pair = KeyPair::of(secret);
        let public = pair.public();
        *self = ControllerSession {
            offered: Some(pair),
            ..ControllerSession::default()
        };
        public
    }

    /// The controller has answered and has shown this key.
    ///
    /// # Errors
    /// It is no key, or no connection was begun.
    fn begin(&mut self, place: &OrderTarget, controller: &[u8]) -> Result<(), String> {
        let own = self.offered.take();
        let own = own.ok_or("no connection to the controller was begun")?;
        let peers = SessionPeers {
            cluster: &place.cluster,
            node: &place.node,
            receiver: Receiver::Launcher,
        };
        let agreed = own.with_controller(peers, controller);
        self.unchecked = Some(agreed.map_err(|e| e.to_string())?);
        Ok(())
    }

    /// Whether the key that the controller has shown is the known one.
    fn checked(&mut self, checked: Result<(), String>) -> Result<(), String> {
        let agreed = self.unchecked.take();
        checked?;
        self.agreed = agreed;
        match self.agreed {
            Some(_) => Ok(()),
            None => Err("no connection to the controller was begun".to_owned()),
        }
    }

    /// Nothing more of this session is believed.
    pub(super) fn end(&mut self) {
        self.agreed = None;
    }

    /// Orders that the controller has given, next in this session. After an error nothing of the session is believed.
    ///
    /// # Errors
    /// They are not the controller's, or not the next, or not for this node.
    pub(super) fn check(
        &mut self,
        place: &OrderTarget,
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

impl Launcher {
    /// The agent dials the controller.
    pub(super) fn open_session(&mut self, secret: Result<[u8; KEY], String>) {
        let answer = match secret {
            Ok(secret) => {
                let key = self.session.open(secret);
                LauncherEvent::SessionKey(key.to_vec().into())
            }
            Err(e) => LauncherEvent::SessionFailed(format!("no random numbers: {e}")),
        };
        self.state.actions.send(answer);
    }

    /// The controller has answered.
    pub(super) fn begin_session(&mut self, controller: &[u8]) {
        match self.session.begin(&self.state.node.place, controller) {
            Ok(()) => {
                let cluster = self.state.node.place.cluster.clone();
                let key = controller.to_vec();
                self.state
                    .actions
                    .push(Action::CheckControllerKey { cluster, key });
            }
            Err(e) => self
                .state
                .actions
                .send(LauncherEvent::SessionBegun(Some(e))),
        }
    }

    pub(super) fn controller_key_checked(&mut self, checked: Result<(), String>) {
        let begun = self.session.checked(checked);
        if begun.is_ok() {
            // The controller sends blobs that later orders refer to again.
            self.launches.scripts.clear(&mut self.state);
        }
        self.state
            .actions
            .send(LauncherEvent::SessionBegun(begun.err()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_model::time::Timestamp;

    fn place() -> OrderTarget {
        OrderTarget {
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
    fn session() -> (ControllerSession, [muster_trust::SealedSession; 2]) {
        let controller = KeyPair::of([7; KEY]);
        let mut session = ControllerSession::default();
        let key = session.open([3; KEY]);
        session.begin(&place(), &controller.public()).unwrap();
        session.checked(Ok(())).unwrap();
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
        let (place, bytes) = (place(), batch("n1"));
        let (mut launcher, [mut controller, _]) = session();
        let first = controller.seal(&bytes);
        let second = controller.seal(&bytes);
        launcher.check(&place, &bytes, &first).unwrap();
        launcher.check(&place, &bytes, &second).unwrap();
        // The second batch again is refused. This ends the session, so that even the next batch is refused.
        let third = controller.seal(&bytes);
        launcher.check(&place, &bytes, &second).unwrap_err();
        let none = launcher.check(&place, &bytes, &third).unwrap_err();
        assert_eq!(none, "there is no session");
        // Batches sealed for the agent, for another node, or in an earlier session.
        let (mut launcher, [_, mut agent]) = session();
        let seal = agent.seal(&bytes);
        launcher.check(&place, &bytes, &seal).unwrap_err();
        let (mut launcher, [mut controller, _]) = session();
        let other = batch("n2");
        let seal = controller.seal(&other);
        let error = launcher.check(&place, &other, &seal).unwrap_err();
        assert!(error.contains("for node 'n2'"), "{error}");
        let (mut launcher, [mut controller, _]) = session();
        launcher.open([4; KEY]);
        let seal = controller.seal(&bytes);
        launcher.check(&place, &bytes, &seal).unwrap_err();
    }

    #[test]
    fn another_controller_is_not_believed() {
        let mut launcher = ControllerSession::default();
        launcher.open([5; KEY]);
        let other = KeyPair::of([8; KEY]).public();
        launcher.begin(&place(), &other).unwrap();
        launcher.checked(Err("another".to_owned())).unwrap_err();
        assert!(launcher.agreed.is_none());
        // A key pair is for one answer.
        launcher.begin(&place(), &other).unwrap_err();
        launcher.checked(Ok(())).unwrap_err();
    }
}
