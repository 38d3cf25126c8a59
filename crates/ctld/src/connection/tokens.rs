//! Tokens of users, and keys of nodes as administrators manage them: tokens, the list, keys to be forgotten.

use super::{Connection, Served};
use crate::network::{NO_USER_TOKENS, TokenAsker};
use crate::node_trust::refusal_of_other;
use crate::peer::NodeProof;
use muster_core::state::State;
use muster_model::refusal::{Refusal, RefusalCode};
use muster_model::rights::AccessRequest;
use muster_proto::client::Response;
use muster_proto::frame;
use muster_trust::node_key::now_s;
use std::io;

/// Refusal of a token for a user on a node with a key of its own.
const VOUCHED_FOR: &str =
    "a node with a key of its own gets no tokens for its users: ask on the controller's host";
/// Refusal of a request from another host.
const ON_CONTROLLER: &str =
    "keys of nodes are seen to on the controller's host: run the command there";
/// Refusal where no other host can join.
const ALONE: &str = "this controller serves no other hosts: name a node on one in slurm.conf, or set MaxNodeCount, and restart slurmctld";

impl Connection {
    /// Why nothing that this connection has shown is enough for a node, if the node has a key of its own.
    pub(super) fn refusal_of_proof(&self, node: &str) -> Option<String> {
        let is_other = self.proof != NodeProof::OwnKey && self.shared.trust.is_pinned(node);
        is_other.then(|| {
            self.shared.trust.count_refused(node);
            log::warn!(
                "node {node} (uid {}) is refused: it has not shown its key",
                self.identity.uid
            );
            refusal_of_other(node)
        })
    }

    pub(super) async fn make_token(
        &mut self,
        user: Option<String>,
        lifespan_s: Option<u32>,
    ) -> io::Result<Served> {
        if user
            .as_ref()
            .is_some_and(|name| *name != self.identity.user)
        {
            // It may be another name of the same; that is known once it is looked up.
            self.asked.request = AccessRequest::TokenOfOther;
        }
        let entry = self.entry().await?;
        // A token has its user's role wherever it is used; what a node says of a user has not.
        if self.identity.is_ordinary {
            let refusal = Refusal::new(RefusalCode::AccessDenied, VOUCHED_FOR.to_owned());
            return self.refuse_entry(entry, refusal).await;
        }
        let Some(verifier) = self.shared.verifier.clone() else {
            let detail = NO_USER_TOKENS.to_owned();
            return self.refuse(RefusalCode::InvalidValue, detail).await;
        };
        let asker = TokenAsker {
            uid: self.identity.uid,
            may_for_others: entry.suffices(AccessRequest::TokenOfOther),
        };
        // Names are looked up, which may take long.
        let _leave = self.share.query().await;
        let made = tokio::task::spawn_blocking(move || {
            verifier.make_user_token(asker, user.as_deref(), lifespan_s)
        });
        match made.await.map_err(io::Error::other)? {
            Ok(token) => {
                entry.done();
                self.send(&frame::encode(&Response::Token(token))).await?;
                Ok(Served::Next)
            }
            Err(refusal) => self.refuse_entry(entry, refusal).await,
        }
    }

    pub(super) async fn make_node_token(
        &mut self,
        node: Option<String>,
        lifespan_s: Option<u32>,
    ) -> io::Result<Served> {
        let entry = match self.may().await? {
            Ok(entry) => entry,
            Err(refusal) => return self.refuse_as(refusal).await,
        };
        if let Err(refusal) = self.check_token(node.clone()).await? {
            return self.refuse_entry(entry, refusal).await;
        }
        let (trust, by) = (self.shared.trust.clone(), self.identity.user.clone());
        // It waits for the disk.
        let issue = move || trust.issue(node.as_deref(), lifespan_s, &by, now_s());
        let issued = tokio::task::spawn_blocking(issue).await;
        match issued.map_err(io::Error::other)? {
            Ok(token) => {
                entry.done();
                self.send(&frame::encode(&Response::Token(token))).await?;
                Ok(Served::Next)
            }
            Err(refusal) => self.refuse_entry(entry, refusal).await,
        }
    }

    /// Whether a token for a node can be of use.
    async fn check_token(&self, node: Option<String>) -> io::Result<Result<(), Refusal>> {
        let refusal = |code, text: &str| Err(Refusal::new(code, text.to_owned()));
        if self.place.address.is_some() {
            return Ok(refusal(RefusalCode::AccessDenied, ON_CONTROLLER));
        }
        if self.shared.verifier.is_none() {
            return Ok(refusal(RefusalCode::InvalidValue, ALONE));
        }
        let look = move |state: &State| {
            let config = state.config.as_ref();
            let may_join = config.is_some_and(|config| config.max_node_count > 0);
            let is_known = node
                .as_ref()
                .is_some_and(|name| state.node_named(name).is_some());
            match (is_known || may_join || node.is_none(), node) {
                (true, _) => Ok(()),
                (false, node) => Err(Refusal::new(
                    RefusalCode::InvalidNode,
                    format!(
                        "there is no node '{}', and MaxNodeCount lets none join: add a NodeName line, or set MaxNodeCount",
                        node.unwrap_or_default().escape_default()
                    ),
                )),
            }
        };
        self.shared.look(look).await
    }

    pub(super) async fn forget_node_keys(&mut self, nodes: Vec<String>) -> io::Result<Served> {
        let entry = match self.may().await? {
            Ok(entry) => entry,
            Err(refusal) => return self.refuse_as(refusal).await,
        };
        if self.place.address.is_some() {
            let refusal = Refusal::new(RefusalCode::AccessDenied, ON_CONTROLLER.to_owned());
            return self.refuse_entry(entry, refusal).await;
        }
        let trust = self.shared.trust.clone();
        let forgotten = tokio::task::spawn_blocking(move || trust.forget(&nodes)).await;
        match forgotten.map_err(io::Error::other)? {
            Ok(()) => {
                entry.done();
                self.send(&frame::encode(&Response::Done)).await?;
                Ok(Served::Next)
            }
            Err(refusal) => self.refuse_entry(entry, refusal).await,
        }
    }

    pub(super) async fn list_node_keys(&mut self) -> io::Result<Served> {
        if let Err(refusal) = self.may().await? {
            return self.refuse_as(refusal).await;
        }
        let records = self.shared.trust.list(now_s());
        self.send(&frame::encode(&Response::NodeKeys(records)))
            .await?;
        Ok(Served::Next)
    }
}
