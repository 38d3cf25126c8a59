//! Proof of the controller's orders to a node. Agent and launcher each make a key pair for every connection, and the
//! launcher knows the controller's public key. From these, controller and receiver derive a secret that nobody else can
//! (X25519, RFC 7748), and with it each batch of orders is sealed (HMAC-SHA256, RFC 2104) together with its number on
//! the connection. A batch of another connection, for another node or receiver, repeated or out of order, does not fit.
//!
//! A signature of each batch would do the same for fifty times the processor time, on both sides.

mod base64url;
mod credential;
pub mod host;
pub mod join;
pub mod jwt;
pub mod munge;
pub mod node_key;
pub mod proof;
pub mod sack;
pub mod slurm_key;
pub mod subordinate;
pub mod token;
mod used_tokens;
pub mod user_token;

use hmac::{Hmac, Mac};
use sha2::{Digest as _, Sha256};
use x25519_dalek::{PublicKey, StaticSecret};

/// Bytes of a secret or public key.
pub const KEY: usize = 32;
/// Bytes of a seal.
pub const SEAL: usize = 32;

/// Which process of a node checks a seal. The sessions of the two differ even if their keys were the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Receiver {
    /// The agent, which has no privileges.
    Agent,
    /// The launcher, which runs as root.
    Launcher,
}

impl Receiver {
    /// Names what the key of a session is for, so that it is none of anything else's.
    fn purpose(self) -> &'static [u8] {
        match self {
            Receiver::Agent => b"muster: a controller's orders to a node's agent, 2",
            Receiver::Launcher => b"muster: a controller's orders to a node's launcher, 2",
        }
    }
}

/// Purpose of a key that is derived from a job's key. Agents of a job's nodes know the job's key; the owner of a
/// derived one can compute neither that nor another derived one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobKeyUse {
    /// The owner's srun shows it to the agent that leads the job, to ask for steps.
    Owner,
    /// The PMIx hosts of a step, which run as the job's user, show it to each other.
    Pmix,
    /// Agents of a heterogeneous job's components know by it, derived from the leader's key, that the leader's agent has
    /// given out the number of a step: see [`prove_step_number`].
    HetSteps,
    /// It is in the name that a job's temporary directory has where something else has the usual one, which others can guess.
    TmpDir,
}

/// Derives a key from the key by which the agents of a job know each other (HMAC-SHA256, cut to 16 bytes).
pub fn derive_job_key(job_key: &[u8], used_for: JobKeyUse) -> Vec<u8> {
    let label: &[u8] = match used_for {
        JobKeyUse::Owner => b"muster: key of a job for its owner, 1",
        JobKeyUse::Pmix => b"muster: key of a job for PMIx hosts, 1",
        JobKeyUse::HetSteps => b"muster: key of a heterogeneous job for numbers of steps, 1",
        JobKeyUse::TmpDir => b"muster: key of a job for the name of a directory, 1",
    };
    let mut derived = keyed(job_key);
    derived.update(label);
    derived.finalize().into_bytes()[..16].to_vec()
}

/// A part of a name that only the holder of the key can make from what the name is for (HMAC-SHA256, cut to 16 bytes).
pub fn keyed_name(key: &[u8], of: &[u8]) -> Vec<u8> {
    let mut derived = keyed(key);
    derived.update(b"muster: part of a name, 1");
    derived.update(of);
    derived.finalize().into_bytes()[..16].to_vec()
}

/// The secret of a channel that begins with this key, which both of its ends have (HMAC-SHA256).
pub fn channel_secret(key: &[u8]) -> [u8; muster_channel::SECRET] {
    let mut derived = keyed(key);
    derived.update(b"muster: secret of a channel, 1");
    derived.finalize().into_bytes().into()
}

/// The proof that the agent of a heterogeneous job's leader has given out this number: HMAC-SHA256 with the key of
/// [`JobKeyUse::HetSteps`], cut to 16 bytes. srun carries it to the other components, and cannot make one.
pub fn prove_step_number(key: &[u8], number: u32) -> Vec<u8> {
    let mut proof = keyed(key);
    proof.update(b"muster: number of a step, 1");
    proof.update(&number.to_be_bytes());
    proof.finalize().into_bytes()[..16].to_vec()
}

/// Whether two keys are the same, in a time that does not depend on where they differ.
pub fn is_same_key(a: &[u8], b: &[u8]) -> bool {
    let differences = a.iter().zip(b).fold(0, |all, (x, y)| all | (x ^ y));
    a.len() == b.len() && !a.is_empty() && differences == 0
}

/// Why a peer is not authenticated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VerifyError {
    /// A public key has another length.
    #[error("a public key has {0} bytes, not {KEY}")]
    Length(usize),
    /// A public key that leads to the same secret for everybody.
    #[error("the public key is one that keeps no secret")]
    Weak,
    /// The seal is not of these bytes, as the next on this connection, by the other side.
    #[error("the seal does not fit")]
    Seal,
}

/// The two ends of a session.
#[derive(Clone, Copy, Debug)]
pub struct SessionPeers<'a> {
    /// `ClusterName`.
    pub cluster: &'a str,
    /// `NodeName`.
    pub node: &'a str,
    /// Which process of the node.
    pub receiver: Receiver,
}

/// Digest of a message for seals: it is computed once for any number of seals of the message.
#[derive(Clone, Debug)]
pub struct Digest([u8; 32]);

impl Digest {
    /// That of a message.
    pub fn of(bytes: &[u8]) -> Digest {
        Digest(Sha256::digest(bytes).into())
    }
}

/// A pair of keys: the controller's, which stays, or that of a process of a node, for one connection.
pub struct KeyPair {
    secret: StaticSecret,
    public: PublicKey,
}

impl KeyPair {
    /// From bytes that nobody can guess.
    pub fn of(secret: [u8; KEY]) -> KeyPair {
        let secret = StaticSecret::from(secret);
        let public = PublicKey::from(&secret);
        KeyPair { secret, public }
    }

    /// Public key, for the other side.
    pub fn public(&self) -> [u8; KEY] {
        self.public.to_bytes()
    }

    /// The controller's side of a session with the process of a node that has shown this key.
    ///
    /// # Errors
    /// The key is none.
    pub fn with_node(
        &self,
        peers: SessionPeers<'_>,
        node: &[u8],
    ) -> Result<SealedSession, VerifyError> {
        let node = public_key(node)?;
        self.session(peers, &node, &self.public, &node)
    }

    /// The node's side of a session with the controller that has this key.
    ///
    /// # Errors
    /// The key is none.
    pub fn with_controller(
        &self,
        peers: SessionPeers<'_>,
        controller: &[u8],
    ) -> Result<SealedSession, VerifyError> {
        let controller = public_key(controller)?;
        self.session(peers, &controller, &controller, &self.public)
    }

    /// Returns a secret that only this side and the one with the other key of a pair can derive: X25519, then
    /// HMAC-SHA256 of its purpose and of all that it is bound to.
    ///
    /// # Errors
    /// The other key is invalid.
    pub(crate) fn derive(
        &self,
        other: &[u8],
        purpose: &[u8],
        bound_to: &[&[u8]],
    ) -> Result<[u8; KEY], VerifyError> {
        let shared = self.secret.diffie_hellman(&public_key(other)?);
        if !shared.was_contributory() {
            return Err(VerifyError::Weak);
        }
        let mut derived = keyed(shared.as_bytes());
        for part in std::iter::once(&purpose).chain(bound_to) {
            // Lengths, so that no two lists of parts are the same bytes.
            derived.update(&(part.len() as u64).to_be_bytes());
            derived.update(part);
        }
        Ok(derived.finalize().into_bytes().into())
    }

    /// The bytes that it was made of.
    pub(crate) fn secret_bytes(&self) -> zeroize::Zeroizing<[u8; KEY]> {
        zeroize::Zeroizing::new(self.secret.to_bytes())
    }

    fn session(
        &self,
        peers: SessionPeers<'_>,
        other: &PublicKey,
        controller: &PublicKey,
        node: &PublicKey,
    ) -> Result<SealedSession, VerifyError> {
        let shared = self.secret.diffie_hellman(other);
        if !shared.was_contributory() {
            return Err(VerifyError::Weak);
        }
        let mut derived = keyed(shared.as_bytes());
        let names = [peers.cluster.as_bytes(), peers.node.as_bytes()];
        let purpose = peers.receiver.purpose();
        let parts = [purpose, controller.as_bytes(), node.as_bytes()];
        for part in parts.into_iter().chain(names) {
            // Lengths, so that no two lists of parts are the same bytes.
            derived.update(&(part.len() as u64).to_be_bytes());
            derived.update(part);
        }
        Ok(SealedSession {
            keyed: keyed(&derived.finalize().into_bytes()),
            number: 0,
        })
    }
}

/// Key and message number that both sides of a connection share.
pub struct SealedSession {
    keyed: Hmac<Sha256>,
    number: u64,
}

impl SealedSession {
    /// Seals the next message.
    pub fn seal(&mut self, bytes: &[u8]) -> [u8; SEAL] {
        self.seal_digest(&Digest::of(bytes))
    }

    /// Seals the next message, of which this is the digest.
    pub fn seal_digest(&mut self, digest: &Digest) -> [u8; SEAL] {
        self.next(digest).finalize().into_bytes().into()
    }

    /// Checks the next message.
    ///
    /// # Errors
    /// The seal does not fit: no further message of this connection can be trusted.
    pub fn check(&mut self, bytes: &[u8], seal: &[u8]) -> Result<(), VerifyError> {
        // Compares in constant time.
        let fits = self.next(&Digest::of(bytes)).verify_slice(seal);
        fits.map_err(|_| VerifyError::Seal)
    }

    fn next(&mut self, digest: &Digest) -> Hmac<Sha256> {
        let mut keyed = self.keyed.clone();
        keyed.update(&self.number.to_be_bytes());
        keyed.update(&digest.0);
        self.number += 1;
        keyed
    }
}

fn public_key(bytes: &[u8]) -> Result<PublicKey, VerifyError> {
    let fixed: [u8; KEY] = bytes
        .try_into()
        .map_err(|_| VerifyError::Length(bytes.len()))?;
    Ok(PublicKey::from(fixed))
}

fn keyed(key: &[u8]) -> Hmac<Sha256> {
    Hmac::new_from_slice(key).expect("HMAC takes keys of any length")
}

#[cfg(test)]
mod tests {
    use super::{
        JobKeyUse, KeyPair, Receiver, SealedSession, SessionPeers, VerifyError, derive_job_key,
        is_same_key, prove_step_number,
    };
    use proptest::prelude::*;

    const HERE: SessionPeers<'_> = SessionPeers {
        cluster: "c",
        node: "n1",
        receiver: Receiver::Launcher,
    };

    fn sides(
        controller: u8,
        agent: u8,
        theirs: SessionPeers<'_>,
    ) -> (SealedSession, SealedSession) {
        let (controller, agent) = (KeyPair::of([controller; 32]), KeyPair::of([agent; 32]));
        let said = controller.with_node(HERE, &agent.public()).unwrap();
        let receiver = agent.with_controller(theirs, &controller.public());
        (said, receiver.unwrap())
    }

    proptest! {
        #[test]
        fn what_was_sealed_is_believed_and_nothing_else(
            controller: u8,
            agent: u8,
            messages in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 1..5),
            flip in any::<prop::sample::Index>(),
        ) {
            let (mut said, mut receiver) = sides(controller, agent, HERE);
            for message in &messages {
                let seal = said.seal(message);
                prop_assert_eq!(receiver.check(message, &seal), Ok(()));
                // A repeated message does not fit as the next.
                let (mut other, _) = sides(controller, agent, HERE);
                for _ in &messages {
                    other.seal(b"");
                }
                prop_assert_eq!(other.check(message, &seal), Err(VerifyError::Seal));
            }
            let message = messages[0].clone();
            let seal = said.seal(&message);
            let mut wrong = [&message[..], &seal[..]].concat();
            let at = flip.index(wrong.len());
            wrong[at] ^= 1;
            let (message, seal) = wrong.split_at(message.len());
            prop_assert_eq!(receiver.check(message, seal), Err(VerifyError::Seal));
        }
    }

    #[test]
    fn what_was_said_twice_or_in_another_order_is_not_believed() {
        let (mut said, mut receiver) = sides(1, 2, HERE);
        let (first, second) = (said.seal(b"first"), said.seal(b"second"));
        assert_eq!(receiver.check(b"first", &first), Ok(()));
        assert_eq!(receiver.check(b"first", &first), Err(VerifyError::Seal));
        let (_, mut receiver) = sides(1, 2, HERE);
        assert_eq!(receiver.check(b"second", &second), Err(VerifyError::Seal));
    }

    #[test]
    fn what_was_said_to_others_is_not_believed() {
        let other_peers = [
            SessionPeers { node: "n2", ..HERE },
            SessionPeers {
                cluster: "d",
                ..HERE
            },
            // Equal letters, split at another place.
            SessionPeers {
                cluster: "cn",
                node: "1",
                ..HERE
            },
            // The other process of the same node, with the same key.
            SessionPeers {
                receiver: Receiver::Agent,
                ..HERE
            },
        ];
        for theirs in other_peers {
            let (mut said, mut receiver) = sides(1, 2, theirs);
            assert_eq!(
                receiver.check(b"x", &said.seal(b"x")),
                Err(VerifyError::Seal)
            );
        }
        // Another connection of the same node, another controller.
        for (controller, agent) in [(1, 3), (3, 2)] {
            let (mut said, _) = sides(controller, agent, HERE);
            let (_, mut receiver) = sides(1, 2, HERE);
            assert_eq!(
                receiver.check(b"x", &said.seal(b"x")),
                Err(VerifyError::Seal)
            );
        }
    }

    #[test]
    fn keys_for_different_uses_differ() {
        let job = [9; 16];
        let (owner, pmix, het, tmp_dir) = (
            derive_job_key(&job, JobKeyUse::Owner),
            derive_job_key(&job, JobKeyUse::Pmix),
            derive_job_key(&job, JobKeyUse::HetSteps),
            derive_job_key(&job, JobKeyUse::TmpDir),
        );
        assert_eq!((owner.len(), pmix.len(), het.len()), (16, 16, 16));
        let all = [&job[..], &owner, &pmix, &het, &tmp_dir];
        let different: std::collections::BTreeSet<_> = all.into_iter().collect();
        assert_eq!(different.len(), all.len());
        assert_ne!(owner, derive_job_key(&[8; 16], JobKeyUse::Owner));
        assert!(is_same_key(&owner, &derive_job_key(&job, JobKeyUse::Owner)));
        assert!(!is_same_key(&owner, &pmix));
        assert!(!is_same_key(&owner, &owner[..15]));
        assert!(!is_same_key(&[], &[]), "nobody has no key");
    }

    #[test]
    fn a_proof_is_of_one_number_and_key() {
        let proof = prove_step_number(&[9; 16], 7);
        assert!(is_same_key(&proof, &prove_step_number(&[9; 16], 7)));
        assert!(!is_same_key(&proof, &prove_step_number(&[9; 16], 8)));
        assert!(!is_same_key(&proof, &prove_step_number(&[8; 16], 7)));
    }

    #[test]
    fn keys_that_keep_no_secret_are_refused() {
        let pair = KeyPair::of([1; 32]);
        let refused = |key: &[u8]| pair.with_node(HERE, key).err();
        assert_eq!(refused(&[0; 32]), Some(VerifyError::Weak));
        assert_eq!(refused(&[1; 31]), Some(VerifyError::Length(31)));
        assert_eq!(refused(&[]), Some(VerifyError::Length(0)));
    }
}
