//! Proofs by tokens of auth/slurm, with key files on disk.
#![allow(clippy::unwrap_used)]

use muster_channel::{Initiator, Opening, Purpose, Responder, Scheme};
use muster_conf::{AuthMethod, Authentication};
use muster_trust::proof::{self, Proof, ProofError, ProofRequest, ProofVerifier};
use muster_trust::slurm_key::{KeyError, NoKey};
use muster_trust::token::TokenError;
use nix::unistd::{getegid, geteuid};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

/// A host's directory with slurm.conf.
struct Host(PathBuf);

impl Host {
    fn new(name: &str) -> Host {
        let dir = std::env::temp_dir().join(format!("muster-slurm-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir(&dir).unwrap();
        let host = Host(dir);
        host.write("slurm.key", &[1; 32]);
        host
    }

    fn write(&self, name: &str, bytes: &[u8]) {
        let path = self.0.join(name);
        fs::write(&path, bytes).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
    }

    /// Key names and bytes; the first is the one to make tokens with.
    fn write_list(&self, keys: &[(&str, char)]) {
        let keys = keys.iter().map(|(kid, letter)| {
            let k: String = std::iter::repeat_n(*letter, 40).collect();
            format!(r#"{{"alg":"HS256","kty":"oct","kid":"{kid}","k":"{k}"}}"#)
        });
        let keys: Vec<String> = keys.collect();
        let text = format!(r#"{{"keys":[{}]}}"#, keys.join(","));
        self.write("slurm.jwks", text.as_bytes());
    }

    fn authentication(&self) -> Authentication {
        Authentication {
            method: AuthMethod::Slurm,
            key_dir: self.0.clone(),
            ..Authentication::default()
        }
    }

    fn make(&self, cluster: &str, receiver_uid: u32) -> Result<Proof, ProofError> {
        let ask = ProofRequest {
            cluster,
            purpose: Purpose::Node("n1".to_owned()),
            receiver_uid,
        };
        proof::make(&self.authentication(), &ask)
    }

    fn own(&self) -> Proof {
        self.make("c", own_uid()).unwrap()
    }

    fn verifier(&self) -> ProofVerifier {
        ProofVerifier::new(&self.authentication(), "c").unwrap()
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn own_uid() -> u32 {
    geteuid().as_raw()
}

fn refusal(verifier: &ProofVerifier, proof: &Proof) -> ProofError {
    let refused = verifier.verify(proof.scheme, &proof.credential);
    refused.unwrap_err()
}

#[test]
fn a_proof_says_who_made_it_for_what_and_is_believed_once() {
    let host = Host::new("good");
    let (proof, verifier) = (host.own(), host.verifier());
    let (client, bytes) =
        Initiator::begin(proof.scheme, &proof.credential, &proof.secret, b"hello").unwrap();
    let opening = Opening::decode(&bytes).unwrap().unwrap();
    let verified = verifier
        .verify(opening.scheme, &opening.credential)
        .unwrap();
    assert_eq!(
        (verified.uid, verified.gid),
        (own_uid(), getegid().as_raw())
    );
    assert_eq!(verified.statement.purpose, Purpose::Node("n1".to_owned()));
    let (_, hello) = Responder::accept(&opening, &verified.statement.secret).unwrap();
    assert_eq!(hello, b"hello");
    drop(client);
    assert_eq!(refusal(&verifier, &proof), TokenError::Replayed.into());
    assert!(!format!("{proof:?}{verifier:?}").contains("1, 1"));
}

#[test]
fn what_is_not_for_this_cluster_or_receiver_is_refused_by_name() {
    let (host, stranger) = (Host::new("own"), Host::new("stranger"));
    stranger.write("slurm.key", &[2; 32]);
    let verifier = host.verifier();
    let foreign = refusal(&verifier, &host.make("another", own_uid()).unwrap());
    assert!(
        foreign.to_string().contains("cluster 'another'"),
        "{foreign}"
    );
    let of_stranger = refusal(&verifier, &stranger.own());
    assert_eq!(of_stranger, TokenError::Key.into());
    let mut changed = host.own();
    let middle = changed.credential.len() / 2;
    let byte = &mut changed.credential[middle];
    *byte = if *byte == b'A' { b'B' } else { b'A' };
    assert_eq!(refusal(&verifier, &changed), TokenError::Key.into());
    let others = host.make("c", own_uid() + 1);
    // A key that is not SlurmUser's is refused before, unless it is root's.
    let why = match others {
        Ok(proof) => refusal(&verifier, &proof).to_string(),
        Err(e) => e.to_string(),
    };
    assert!(why.contains("SlurmUser"), "{why}");
    for scheme in [Scheme::Munge, Scheme::Job] {
        let refused = verifier.verify(scheme, b"x");
        assert_eq!(refused, Err(ProofError::Scheme(scheme)));
    }
}

#[test]
fn keys_are_replaced_while_both_hosts_go_on() {
    let (controller, node) = (Host::new("controller"), Host::new("node"));
    let verifier = controller.verifier();
    let is_believed = || {
        let proof = node.own();
        verifier.verify(proof.scheme, &proof.credential).is_ok()
    };
    assert!(is_believed());
    // Slurm's order: the new key is known everywhere before tokens are made with it.
    for host in [&controller, &node] {
        host.write_list(&[("old", 'a'), ("new", 'b')]);
    }
    verifier.reload().unwrap();
    assert!(is_believed());
    node.write_list(&[("new", 'b')]);
    assert!(is_believed());
    controller.write_list(&[("new", 'b')]);
    verifier.reload().unwrap();
    assert!(is_believed());
    node.write_list(&[("old", 'a')]);
    let unknown = NoKey::Unknown("old".to_owned());
    assert_eq!(
        refusal(&verifier, &node.own()),
        TokenError::from(unknown).into()
    );
    // A file that cannot be used changes nothing.
    node.write_list(&[("new", 'b')]);
    controller.write("slurm.jwks", b"{");
    assert!(matches!(
        verifier.reload(),
        Err(ProofError::Key(KeyError::List(..)))
    ));
    assert!(is_believed());
}

#[test]
fn a_node_without_the_key_names_the_file() {
    let host = Host::new("none");
    fs::remove_file(host.0.join("slurm.key")).unwrap();
    let why = host.make("c", own_uid()).unwrap_err().to_string();
    assert!(
        why.contains("none/slurm.key") && why.contains("dd if="),
        "{why}"
    );
    let why = ProofVerifier::new(&host.authentication(), "c").unwrap_err();
    assert!(why.to_string().contains("none/slurm.key"), "{why}");
}
