//! Keys of nodes, and the tokens by which they get them. Both are in one file of `StateSaveLocation`, which has no secret: of a
//! token it has the public half, of a key as well. The file is written whole and durable before anybody learns that it has changed, so
//! that a token is used once whenever the controller is killed.
//!
//! It is no part of the journal: the network asks for it before the state is known to any thread, and nothing is scheduled by it.

mod file;

use crate::keys::Keys;
use anyhow::{Context as _, Result};
use muster_model::refusal::{Refusal, RefusalCode};
use muster_model::time::Timestamp;
use muster_proto::node_trust::NodeKeyRecord;
use muster_trust::join::{JoinOffer, JoinToken};
use muster_trust::node_key::{NodeClaim, hex};
use muster_trust::{KEY, is_same_key};
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// For how long a token is good if nothing is said, and at most, seconds.
const LIFESPAN_S: u32 = 3600;
const LIFESPAN_MAX_S: u32 = 7 * 24 * 3600;
/// Time that a used or expired token is remembered, so that its bearer learns which it is.
const REMEMBERED_S: u64 = 24 * 3600;
/// Tokens at a time.
const TOKENS_MAX: usize = 8192;
/// Nodes with a key.
const NODES_MAX: usize = 65_536;
/// Names of which refused connections are counted.
const COUNTED_MAX: usize = 65_536;

/// The keys that the controller has pinned of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
struct PinnedKey {
    key: [u8; KEY],
    /// When, seconds since 1970.
    at_s: u64,
    /// From which address.
    address: String,
    /// The user that made the token.
    by: String,
}

/// A token that was given out.
#[derive(Clone, Debug, PartialEq, Eq)]
struct IssuedToken {
    /// Its public half.
    public: [u8; KEY],
    /// The node that it is for; any if empty.
    node: String,
    expires_s: u64,
    by: String,
    /// By which node and key it was used.
    used: Option<([u8; KEY], String)>,
}

/// All of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct TrustRecords {
    pinned: BTreeMap<String, PinnedKey>,
    tokens: Vec<IssuedToken>,
}

/// See the module. Cheap to clone; calls may come from several threads.
#[derive(Clone)]
pub(crate) struct NodeTrust(Arc<Inner>);

struct Inner {
    path: PathBuf,
    cluster: String,
    keys: Keys,
    /// The current records. This is never locked while a disk is waited for: all connections read it.
    kept: Mutex<Arc<TrustRecords>>,
    /// For who changes it: one after the other.
    changing: Mutex<()>,
    /// Connections in the name of a node that were refused.
    refused: Mutex<HashMap<String, u64>>,
}

impl std::fmt::Debug for NodeTrust {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "NodeTrust({})", self.0.path.display())
    }
}

/// A node that joins.
#[derive(Clone, Debug)]
pub(crate) struct Joining<'a> {
    pub(crate) offer: &'a JoinOffer,
    /// Its public key, and that it has the other half.
    pub(crate) key: &'a [u8],
    pub(crate) proof: &'a [u8],
    /// From where it connects.
    pub(crate) address: String,
}

impl NodeTrust {
    /// Reads what a state directory has of it.
    ///
    /// # Errors
    /// The file cannot be read, or is not understood: nodes would be believed that must not be.
    pub(crate) fn open(dir: &Path, cluster: &str, keys: Keys) -> Result<NodeTrust> {
        let path = dir.join(file::NAME);
        let kept = file::read(&path).with_context(|| path.display().to_string())?;
        Ok(NodeTrust(Arc::new(Inner {
            path,
            cluster: cluster.to_owned(),
            keys,
            kept: Mutex::new(Arc::new(kept)),
            changing: Mutex::default(),
            refused: Mutex::default(),
        })))
    }

    /// The current records.
    fn kept(&self) -> Arc<TrustRecords> {
        Arc::clone(&self.0.kept.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The turn to change it, which may take as long as the disk does.
    fn turn(&self) -> MutexGuard<'_, ()> {
        let changing = self.0.changing.lock();
        changing.unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether anything is there for which other hosts are to be served.
    pub(crate) fn is_used(&self) -> bool {
        let kept = self.kept();
        !kept.pinned.is_empty() || !kept.tokens.is_empty()
    }

    /// Whether a node is known by a key of its own, and by nothing else.
    pub(crate) fn is_pinned(&self, node: &str) -> bool {
        self.kept().pinned.contains_key(node)
    }

    /// The secret of a channel that begins with what a node says.
    ///
    /// # Errors
    /// The node has no key here, or says it for another cluster or time.
    pub(crate) fn secret_of_claim(
        &self,
        claim: &NodeClaim,
        now_s: u64,
    ) -> Result<[u8; KEY], String> {
        claim
            .check(&self.0.cluster, now_s)
            .map_err(|e| e.to_string())?;
        let known = self.kept().pinned.get(&claim.node).map(|known| known.key);
        let Some(key) = known else {
            return Err(format!(
                "node {} has no key here: make a token by 'muster node token', and 'muster node join' there",
                printable(&claim.node)
            ));
        };
        let secret = claim.secret_for_controller(self.0.keys.pair(), &key);
        secret.map_err(|e| e.to_string())
    }

    /// The secret of a channel that begins with a token.
    ///
    /// # Errors
    /// This controller knows no such token.
    pub(crate) fn secret_of_offer(&self, offer: &JoinOffer) -> Result<[u8; KEY], String> {
        // All are compared, each in a time that does not depend on where it differs.
        let kept = self.kept();
        let found = kept
            .tokens
            .iter()
            .filter(|token| is_same_key(&token.public, &offer.token))
            .count();
        if found == 0 || !offer.cluster.eq_ignore_ascii_case(&self.0.cluster) {
            return Err(UNKNOWN_TOKEN.to_owned());
        }
        let secret = offer.secret_for_controller(self.0.keys.pair());
        secret.map_err(|e| e.to_string())
    }

    /// Makes a token: the text that its bearer needs.
    ///
    /// # Errors
    /// It cannot be kept, or there are too many.
    pub(crate) fn issue(
        &self,
        node: Option<&str>,
        lifespan_s: Option<u32>,
        by: &str,
        now_s: u64,
    ) -> Result<String, Refusal> {
        let lifespan_s = lifespan_s.unwrap_or(LIFESPAN_S);
        if lifespan_s == 0 || lifespan_s > LIFESPAN_MAX_S {
            let detail = format!("a token is good for 1 to {LIFESPAN_MAX_S} seconds");
            return Err(Refusal::new(RefusalCode::InvalidValue, detail));
        }
        let node = node.unwrap_or_default();
        if !node.is_empty() {
            NodeTrust::check_name(node).map_err(|e| Refusal::new(RefusalCode::InvalidNode, e))?;
        }
        let made = JoinToken::make(&self.0.cluster, node, self.0.keys.pair().public());
        let token = made.map_err(|e| failed(&e))?;
        let _turn = self.turn();
        let kept = self.kept();
        let mut next = TrustRecords::clone(&kept);
        next.tokens
            .retain(|token| token.expires_s.saturating_add(REMEMBERED_S) > now_s);
        if next.tokens.len() >= TOKENS_MAX {
            let detail = format!(
                "there are {TOKENS_MAX} tokens: let some expire, or 'muster node forget' their nodes"
            );
            return Err(Refusal::new(RefusalCode::Busy, detail));
        }
        next.tokens.push(IssuedToken {
            public: token.public(),
            node: node.to_owned(),
            expires_s: now_s.saturating_add(lifespan_s.into()),
            by: file::word(by),
            used: None,
        });
        self.commit(next).map_err(|e| failed(&e))?;
        Ok(token.text().to_string())
    }

    /// Pins the key of a node that has shown that it has a token and that key: durably, and the token is used up with it. The same
    /// node may say the same again, since the answer may have been lost.
    ///
    /// # Errors
    /// The token is not good for that; the text says why.
    pub(crate) fn pin(&self, joining: &Joining<'_>, now_s: u64) -> Result<(), String> {
        let offer = joining.offer;
        NodeTrust::check_name(&offer.node)?;
        let key: [u8; KEY] = joining
            .key
            .try_into()
            .map_err(|_| "the key is malformed".to_owned())?;
        if !offer.has_key(self.0.keys.pair(), &key, joining.proof) {
            return Err("the node has not shown that the key is its own".to_owned());
        }
        let _turn = self.turn();
        let kept = self.kept();
        let mut next = TrustRecords::clone(&kept);
        let token = next
            .tokens
            .iter_mut()
            .find(|token| is_same_key(&token.public, &offer.token))
            .ok_or(UNKNOWN_TOKEN)?;
        if let Some((used_by, node)) = &token.used {
            let is_same = is_same_key(used_by, &key) && *node == offer.node;
            let is_pinned = kept
                .pinned
                .get(&offer.node)
                .is_some_and(|own| own.key == key);
            return match is_same && is_pinned {
                true => Ok(()),
                false => Err(format!(
                    "the token was used already, for node {node}: make another by 'muster node token'"
                )),
            };
        }
        if token.expires_s <= now_s {
            return Err("the token has expired: make another by 'muster node token'".to_owned());
        }
        if !token.node.is_empty() && token.node != offer.node {
            return Err(format!(
                "the token is for node {}, not for {}",
                token.node, offer.node
            ));
        }
        if token.node.is_empty() && next.pinned.contains_key(&offer.node) {
            return Err(format!(
                "node {0} has a key: another takes its place only by a token for it ('muster node token {0}')",
                offer.node
            ));
        }
        token.used = Some((key, offer.node.clone()));
        let pinned = PinnedKey {
            key,
            at_s: now_s,
            address: file::word(&joining.address),
            by: token.by.clone(),
        };
        next.pinned.insert(offer.node.clone(), pinned);
        if next.pinned.len() > NODES_MAX {
            return Err(format!(
                "{NODES_MAX} nodes have keys: 'muster node forget' some"
            ));
        }
        self.commit(next).map_err(|e| e.to_string())
    }

    /// Forgets keys and tokens of nodes.
    ///
    /// # Errors
    /// One has neither; nothing is forgotten then. Or what remains cannot be kept.
    pub(crate) fn forget(&self, nodes: &[String]) -> Result<(), Refusal> {
        let _turn = self.turn();
        let kept = self.kept();
        let mut next = TrustRecords::clone(&kept);
        for node in nodes {
            let had_key = next.pinned.remove(node).is_some();
            let before = next.tokens.len();
            let is_of = |token: &IssuedToken| {
                token.node == *node || token.used.as_ref().is_some_and(|(_, of)| of == node)
            };
            next.tokens.retain(|token| !is_of(token));
            if !had_key && next.tokens.len() == before {
                let detail = format!("node {node} has no key and no token here");
                return Err(Refusal::new(RefusalCode::InvalidNode, detail));
            }
        }
        self.commit(next).map_err(|e| failed(&e))?;
        let mut refused = self.refused();
        for node in nodes {
            refused.remove(node);
        }
        Ok(())
    }

    /// See [`is_node_name`].
    fn check_name(node: &str) -> Result<(), String> {
        match is_node_name(node) {
            true => Ok(()),
            false => Err(format!("'{}' is not a valid node name", printable(node))),
        }
    }

    /// All of it, by name of the node.
    pub(crate) fn list(&self, now_s: u64) -> Vec<NodeKeyRecord> {
        let kept = TrustRecords::clone(&self.kept());
        let at = |seconds: u64| {
            Timestamp(i64::try_from(seconds.saturating_mul(1000)).unwrap_or(i64::MAX))
        };
        let mut records: BTreeMap<String, NodeKeyRecord> = BTreeMap::new();
        for (node, pinned) in kept.pinned {
            records.insert(
                node.clone(),
                NodeKeyRecord {
                    node,
                    key: Some(pinned.key.to_vec().into()),
                    pinned: at(pinned.at_s),
                    address: pinned.address,
                    by: pinned.by,
                    ..NodeKeyRecord::default()
                },
            );
        }
        let open = |token: &IssuedToken| token.used.is_none() && token.expires_s > now_s;
        for token in kept.tokens.into_iter().filter(open) {
            let record = records
                .entry(token.node.clone())
                .or_insert_with(|| NodeKeyRecord {
                    node: token.node,
                    by: token.by,
                    ..NodeKeyRecord::default()
                });
            record.token_expires = record.token_expires.max(Some(at(token.expires_s)));
        }
        for (node, count) in &*self.refused() {
            if let Some(record) = records.get_mut(node) {
                record.refused = *count;
            }
        }
        records.into_values().collect()
    }

    /// Notes that somebody who has connected in the name of a node was refused.
    pub(crate) fn count_refused(&self, node: &str) {
        let mut refused = self.refused();
        if refused.len() < COUNTED_MAX || refused.contains_key(node) {
            let count = refused.entry(node.to_owned()).or_default();
            *count = count.saturating_add(1);
        }
    }

    fn refused(&self) -> MutexGuard<'_, HashMap<String, u64>> {
        self.0
            .refused
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Replaces the records, once the new ones are durable. The caller has the turn.
    fn commit(&self, next: TrustRecords) -> Result<()> {
        file::write(&self.0.path, &next)
            .with_context(|| format!("{} cannot be written", self.0.path.display()))?;
        *self.0.kept.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(next);
        Ok(())
    }
}

/// Refusal of a token that is unknown, or another controller's.
const UNKNOWN_TOKEN: &str = "this controller knows no such token: it may be another cluster's, or too old, or its node was forgotten";

/// Refusal of a connection that shows something else than the key of its node.
pub(crate) fn refusal_of_other(node: &str) -> String {
    format!(
        "node {0} is known by a key of its own, and by nothing else: 'muster node join' there with a token for it, or 'muster node forget {0}'",
        printable(node)
    )
}

/// A key in short, as administrators compare it.
pub(crate) fn fingerprint(key: &[u8]) -> String {
    hex(key.get(..8).unwrap_or(key))
}

/// Whether a text can be the name of a node, so that it is one word of a line.
fn is_node_name(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
    let begins = text.starts_with(|c: char| c.is_ascii_alphanumeric());
    begins && text.len() <= 255 && text.chars().all(plain)
}

fn failed(error: &dyn std::fmt::Display) -> Refusal {
    Refusal::new(RefusalCode::InvalidValue, format!("{error:#}"))
}

/// A stranger's text, as it may be printed.
fn printable(text: &str) -> String {
    text.chars()
        .take(80)
        .flat_map(char::escape_default)
        .collect()
}

#[cfg(test)]
mod tests;
