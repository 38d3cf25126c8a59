//! More connections than a daemon has descriptors.

use super::{finished, victim_works};
use crate::outcome::Outcome;
use crate::peer::Peer;
use crate::random::Random;
use crate::sys::{ATTACKER, NAMELESS, ROOT, as_user, raise_descriptors};
use crate::target::Target;
use std::path::Path;
use std::time::Duration;

/// Connections to each daemon. More than a daemon's soft limit where systemd starts it, and few for a machine.
const CONNECTIONS: usize = 2500;
/// Time that a daemon may let a connection wait that it does not accept.
const WAIT: Duration = Duration::from_millis(5);

/// Opens connections, every second one with a part of a frame; gives those that could be opened.
fn open(socket: &Path, count: usize) -> Vec<Peer> {
    let open = || {
        let mut peers = Vec::new();
        for number in 0..count {
            let Ok(mut peer) = Peer::connect_within(socket, WAIT) else {
                continue;
            };
            if number % 2 == 0 && peer.send_raw(&[0, 0, 1]).is_err() {
                continue;
            }
            peers.push(peer);
        }
        peers
    };
    [ATTACKER, NAMELESS]
        .into_iter()
        .flat_map(|user| as_user(user, open))
        .collect()
}

/// Thousands of connections of two users, idle and half-way through a frame; others get in.
pub(super) fn many_connections(target: &Target, _: &mut Random) -> Outcome {
    let mut outcome = Outcome::default();
    let most = usize::try_from(raise_descriptors()).unwrap_or(0);
    let count = (most.saturating_sub(200) / 2).min(CONNECTIONS) / 2;
    for socket in [target.controller(), target.agent(super::FIRST_NODE)] {
        let peers = open(&socket, count);
        outcome.sent += 2 * count as u64;
        outcome.accepted += peers.len() as u64;
        outcome.refused += (2 * count - peers.len()) as u64;
        let ping = target.run(ROOT, "scontrol ping");
        if ping.code != 0 || !ping.out.contains("UP") {
            outcome.finding(format!("root does not get in: {} {}", ping.out, ping.err));
        }
        for _ in 0..5 {
            let node = Some(super::FIRST_NODE);
            if let Err(e) = victim_works(target, node, Duration::from_secs(30)) {
                outcome.finding(e);
                break;
            }
        }
    }
    finished(target, outcome)
}
