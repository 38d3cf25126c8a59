//! Tokens by which a node gets a key of its own (`muster node token`, `muster node join`). A token has the secret half
//! of a pair of keys (X25519) and the controller's public key; the controller keeps the public half alone, so that its
//! file lets nobody join. The secret of the channel by which the node sends its own public key follows from both: an
//! attacker between the hosts has neither, and can speak for nobody.

use crate::credential::Proof;
use crate::node_key::NodeKey;
use crate::{KEY, KeyPair, VerifyError, base64url};
use muster_channel::{SECRET, Scheme};
use sha2::{Digest as _, Sha256};
use zeroize::Zeroizing;

/// Prefix of a token.
const PREFIX: &str = "muster-join-";
/// The first byte of what follows.
const VERSION: u8 = 1;
/// Bytes at the end by which a mistyped token is known.
const CHECK: usize = 4;
/// Bytes of a token's text; one with the longest names has fewer.
const TEXT_BYTES_MAX: usize = 1024;
/// Beginning of an offer, to distinguish it from all others.
const OFFER_KIND: &str = "muster join 1";
const CHANNEL: &[u8] = b"muster: a channel by a join token, 1";
const POSSESSION: &[u8] = b"muster: a node has the key that it shows, 1";

/// A token.
pub struct JoinToken {
    /// `ClusterName`.
    pub cluster: String,
    /// The node that it is for; empty if it is for any that has no key.
    pub node: String,
    /// The controller's public key.
    pub controller: [u8; KEY],
    pair: KeyPair,
}

/// The secret does not reach logs.
impl std::fmt::Debug for JoinToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "JoinToken({} of {})", self.node, self.cluster)
    }
}

/// Why a text is no token.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JoinTokenError {
    /// It is something else, or not whole.
    #[error("that is not a token of 'muster node token', or not all of it was copied")]
    Form,
    /// No random numbers, or a name that is too long.
    #[error("{0}")]
    Failed(String),
}

impl JoinToken {
    /// Makes one.
    ///
    /// # Errors
    /// There are no random numbers, or a name is too long.
    pub fn make(
        cluster: &str,
        node: &str,
        controller: [u8; KEY],
    ) -> Result<JoinToken, JoinTokenError> {
        let mut secret = Zeroizing::new([0; KEY]);
        getrandom::fill(&mut *secret).map_err(|e| JoinTokenError::Failed(e.to_string()))?;
        if cluster.len() > 255 || node.len() > 255 {
            return Err(JoinTokenError::Failed("the name is too long".to_owned()));
        }
        Ok(JoinToken {
            cluster: cluster.to_owned(),
            node: node.to_owned(),
            controller,
            pair: KeyPair::of(*secret),
        })
    }

    /// The public half, kept by the controller.
    pub fn public(&self) -> [u8; KEY] {
        self.pair.public()
    }

    /// The text that is copied to the node.
    pub fn text(&self) -> Zeroizing<String> {
        let mut bytes = Zeroizing::new(vec![VERSION]);
        bytes.extend(self.pair.secret_bytes().iter());
        bytes.extend(self.controller);
        for name in [&self.cluster, &self.node] {
            bytes.push(u8::try_from(name.len()).unwrap_or(u8::MAX));
            bytes.extend(name.as_bytes());
        }
        let check = Sha256::digest(&*bytes);
        bytes.extend(check.iter().take(CHECK));
        Zeroizing::new(format!("{PREFIX}{}", base64url::encode(&bytes)))
    }

    /// Reads such a text.
    ///
    /// # Errors
    /// It is none.
    pub fn parse(text: &str) -> Result<JoinToken, JoinTokenError> {
        JoinToken::read(text.trim()).ok_or(JoinTokenError::Form)
    }

    fn read(text: &str) -> Option<JoinToken> {
        if text.len() > TEXT_BYTES_MAX {
            return None;
        }
        let bytes = base64url::decode(text.strip_prefix(PREFIX)?.as_bytes())?;
        let bytes = Zeroizing::new(bytes);
        let (said, check) = bytes.split_last_chunk::<CHECK>()?;
        if Sha256::digest(said).get(..CHECK)? != check {
            return None;
        }
        let (version, rest) = said.split_first()?;
        let (secret, rest) = rest.split_first_chunk::<KEY>()?;
        let (controller, rest) = rest.split_first_chunk::<KEY>()?;
        let (cluster, rest) = name(rest)?;
        let (node, rest) = name(rest)?;
        let token = JoinToken {
            cluster,
            node,
            controller: *controller,
            pair: KeyPair::of(*secret),
        };
        (*version == VERSION && rest.is_empty()).then_some(token)
    }

    /// Proof with which the channel begins by which this node joins.
    ///
    /// # Errors
    /// The controller's key is invalid.
    pub fn proof(&self, node: &str) -> Result<Proof, VerifyError> {
        let offer = JoinOffer {
            cluster: self.cluster.clone(),
            node: node.to_owned(),
            token: self.public(),
        };
        let credential = offer.encode();
        let secret =
            self.pair
                .derive(&self.controller, CHANNEL, &[&credential, &self.controller])?;
        Ok(Proof {
            scheme: Scheme::Join,
            credential,
            secret,
        })
    }

    /// The proof that this host has the key that it shows with this token.
    ///
    /// # Errors
    /// The controller's key is none.
    pub fn prove_possession(&self, key: &NodeKey) -> Result<[u8; KEY], VerifyError> {
        let bound_to: [&[u8]; 2] = [&self.public(), &key.public()];
        key.pair().derive(&self.controller, POSSESSION, &bound_to)
    }
}

/// A name with its length before it, and what follows.
fn name(bytes: &[u8]) -> Option<(String, &[u8])> {
    let (length, rest) = bytes.split_first()?;
    let (name, rest) = rest.split_at_checked(usize::from(*length))?;
    let name = std::str::from_utf8(name).ok()?;
    (!name.contains(char::is_control)).then(|| (name.to_owned(), rest))
}

/// First message of a joining node. It is sent in the clear; a client that changes any of it loses the secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinOffer {
    /// `ClusterName`, as the token says.
    pub cluster: String,
    /// The node that joins.
    pub node: String,
    /// The public half of the token.
    pub token: [u8; KEY],
}

impl JoinOffer {
    /// As it is sent.
    pub fn encode(&self) -> Vec<u8> {
        let text = format!("{OFFER_KIND}\n{}\n{}\n", self.cluster, self.node);
        [text.as_bytes(), &self.token].concat()
    }

    /// Reads one; none if it is something else.
    pub fn decode(bytes: &[u8]) -> Option<JoinOffer> {
        let (text, token) = bytes.split_last_chunk::<KEY>()?;
        let text = std::str::from_utf8(text).ok()?.strip_suffix('\n')?;
        let mut lines = text.split('\n');
        if lines.next()? != OFFER_KIND {
            return None;
        }
        let (cluster, node) = (lines.next()?, lines.next()?);
        let is_name = |name: &str| (1..=255).contains(&name.len());
        let is_whole = lines.next().is_none() && is_name(cluster) && is_name(node);
        is_whole.then(|| JoinOffer {
            cluster: cluster.to_owned(),
            node: node.to_owned(),
            token: *token,
        })
    }

    /// The secret of the channel that begins with it, for the controller.
    ///
    /// # Errors
    /// The public half of the token is none.
    pub fn secret_for_controller(&self, controller: &KeyPair) -> Result<[u8; SECRET], VerifyError> {
        let own = controller.public();
        controller.derive(&self.token, CHANNEL, &[&self.encode(), &own])
    }

    /// Whether a node has the key that it shows.
    pub fn has_key(&self, controller: &KeyPair, key: &[u8], proof: &[u8]) -> bool {
        let own = controller.derive(key, POSSESSION, &[&self.token, key]);
        own.is_ok_and(|own| crate::is_same_key(&own, proof))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_channel::{Initiator, Opening, Responder};
    use proptest::prelude::*;

    fn token(node: &str) -> (KeyPair, JoinToken) {
        let controller = KeyPair::of([3; KEY]);
        let token = JoinToken::make("c", node, controller.public()).unwrap();
        (controller, token)
    }

    #[test]
    fn a_token_is_read_as_it_was_made_and_no_part_of_it_is_one() {
        for node in ["n1", "", &"n".repeat(255)] {
            let (_, made) = token(node);
            let text = made.text();
            let read = JoinToken::parse(&format!(" {}\n", *text)).unwrap();
            assert_eq!((read.cluster, read.node.as_str()), ("c".to_owned(), node));
            assert_eq!(read.pair.public(), made.public());
            assert_eq!(read.controller, made.controller);
            for some in 0..text.len() {
                assert!(JoinToken::parse(&text[..some]).is_err());
            }
        }
        let (_, first) = token("n1");
        let (_, second) = token("n1");
        assert_ne!(*first.text(), *second.text());
        assert!(JoinToken::make("c", &"n".repeat(256), [1; KEY]).is_err());
    }

    proptest! {
        #[test]
        fn whatever_comes_is_understood_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..120)) {
            let text = format!("{PREFIX}{}", base64url::encode(&bytes));
            prop_assert!(JoinToken::parse(&text).is_err());
            let _ = JoinOffer::decode(&bytes);
        }
    }

    /// An attacker between the hosts sees the offer, and can neither answer it, nor change it, nor speak for the node.
    #[test]
    fn a_channel_begins_for_who_has_the_token_and_the_controller_alone() {
        let (controller, token) = token("n1");
        let proof = token.proof("n1").unwrap();
        let begin = |secret| Initiator::begin(proof.scheme, &proof.credential, secret, b"");
        let (_, bytes) = begin(&proof.secret).unwrap();
        let opening = Opening::decode(&bytes).unwrap().unwrap();
        let offer = JoinOffer::decode(&opening.credential).unwrap();
        assert_eq!(offer.token, token.public());
        let own = offer.secret_for_controller(&controller).unwrap();
        assert!(Responder::accept(&opening, &own).is_ok());
        let between = KeyPair::of([4; KEY]);
        let theirs = offer.secret_for_controller(&between).unwrap();
        assert!(Responder::accept(&opening, &theirs).is_err());
        // The node's name or the cluster's was changed on the way.
        for changed in [
            JoinOffer {
                node: "n2".to_owned(),
                ..offer.clone()
            },
            JoinOffer {
                cluster: "d".to_owned(),
                ..offer.clone()
            },
        ] {
            let secret = changed.secret_for_controller(&controller).unwrap();
            assert!(Responder::accept(&opening, &secret).is_err());
        }
        // A guessed token has another secret.
        let (_, guess) = begin(&[0; SECRET]).unwrap();
        let guess = Opening::decode(&guess).unwrap().unwrap();
        assert!(Responder::accept(&guess, &own).is_err());
    }

    #[test]
    fn a_node_shows_no_key_that_it_does_not_have() {
        let (controller, token) = token("n1");
        let offer = JoinOffer::decode(&token.proof("n1").unwrap().credential).unwrap();
        let [own, other] = [1, 2].map(|_| NodeKey::make("c", "n1", controller.public()).unwrap());
        let proof = token.prove_possession(&own).unwrap();
        assert!(offer.has_key(&controller, &own.public(), &proof));
        assert!(!offer.has_key(&controller, &other.public(), &proof));
        assert!(!offer.has_key(&controller, &[0; KEY], &proof));
        assert!(!offer.has_key(&controller, &own.public(), &proof[..31]));
    }
}
