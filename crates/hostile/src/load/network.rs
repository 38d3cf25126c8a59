//! Loads by the port of an agent and the socket of sackd: noise, openings with wrong values, cut at any byte, many at
//! once.

use super::Budget;
use crate::cbor::Value;
use crate::mutate;
use crate::network::{Begin, address, dial, own_hello, sack_socket};
use crate::outcome::Outcome;
use crate::peer::Peer;
use crate::random::Random;
use crate::target::Target;
use muster_channel::{SECRET, Scheme};
use muster_model::ids::{JobId, StepNo};
use muster_proto::hello::JobCredential;
use std::io::Write as _;
use std::time::Duration;

/// Time that a daemon may let a write or a connection wait.
const WAIT: Duration = Duration::from_millis(50);
/// Connections that are kept at once.
const AT_ONCE: usize = 400;

fn credentials() -> Vec<Value> {
    let path = "/step-1.sock".to_owned();
    let step = StepNo::BATCH;
    let job = JobId(1);
    let node = "n1".to_owned();
    vec![
        Value::of(&JobCredential::Owner(job)),
        Value::of(&JobCredential::Node { job, node }),
        Value::of(&JobCredential::Step { job, step, path }),
    ]
}

/// Openings that are made before: keys take longer to make than anything that is done with them.
const OPENINGS: usize = 20;

/// An opening with a wrong credential.
fn opening(random: &mut Random, credentials: &[Value]) -> Vec<u8> {
    let wrong = random.pick(credentials).map(|one| mutate::one(one, random));
    let credential = wrong.map(|one| one.encode()).unwrap_or_default();
    let secret = [7; SECRET];
    let begun = Begin::new(Scheme::Job, &credential, &secret, &own_hello());
    begun.map(|begin| begin.opening).unwrap_or_default()
}

/// One of the openings, changed and cut as the generator decides.
fn wrong_opening(random: &mut Random, openings: &[Vec<u8>]) -> Vec<u8> {
    let bytes = random.pick(openings).cloned().unwrap_or_default();
    match random.below(4) {
        0 => bytes,
        1 => bytes[..random.below(bytes.len())].to_vec(),
        _ => mutate::bytes(&bytes, random),
    }
}

/// To both, as many as there are.
pub(super) fn from_other_hosts(target: &Target, random: &mut Random, budget: &Budget) -> Outcome {
    let mut outcome = Outcome::default();
    let (at, sack) = (address(target), sack_socket(target));
    let Some(at) = at else {
        outcome.skipped.push("no agent serves a port".to_owned());
        return outcome;
    };
    let credentials = credentials();
    let openings: Vec<Vec<u8>> = (0..OPENINGS)
        .map(|_| opening(random, &credentials))
        .collect();
    let (mut streams, mut peers) = (Vec::new(), Vec::new());
    while budget.lasts(&outcome) {
        outcome.sent += 1;
        let sent = match random.below(3) {
            0 => Peer::connect_for_messages(&sack, WAIT).map(|mut peer| {
                let request = mutate::bytes(b"muster sack 1\nmuster", random);
                let sent = peer.send_raw(&request);
                peers.push(peer);
                sent.is_ok()
            }),
            _ => dial(at, WAIT).map(|mut stream| {
                let sent = stream.write_all(&wrong_opening(random, &openings));
                streams.push(stream);
                sent.is_ok()
            }),
        };
        if !matches!(sent, Ok(true)) {
            outcome.refused += 1;
        }
        if streams.len() + peers.len() > AT_ONCE {
            streams.clear();
            peers.clear();
        }
    }
    outcome
}
