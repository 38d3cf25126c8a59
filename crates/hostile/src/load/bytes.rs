//! Bytes that are no requests, or not yet.

use super::Budget;
use crate::controller_port::ControllerPort;
use crate::outcome::Outcome;
use crate::peer::{self, Peer, framed};
use crate::random::Random;
use crate::requests::{self, Ids, submit};
use crate::rest::ATTACKER_NAME;
use crate::target::Target;
use muster_model::ids::JobId;
use muster_proto::step::AgentRequest;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// Time that a daemon may let a write or a connection wait.
const WAIT: Duration = Duration::from_millis(50);
/// Connections of one process at once.
const AT_ONCE: usize = 700;

fn sockets(target: &Target) -> [PathBuf; 2] {
    [target.controller(), target.agent("n1")]
}

/// Thousands of connections, idle or half-way through a frame, closed all at once.
pub(super) fn connections(target: &Target, random: &mut Random, budget: &Budget) -> Outcome {
    let mut outcome = Outcome::default();
    let sockets = sockets(target);
    while budget.lasts(&outcome) {
        let mut open = Vec::new();
        while open.len() < AT_ONCE && budget.lasts(&outcome) {
            let socket = &sockets[random.below(2)];
            outcome.sent += 1;
            let Ok(mut peer) = Peer::connect_within(socket, WAIT) else {
                outcome.refused += 1;
                if random.below(50) == 0 {
                    break;
                }
                continue;
            };
            let part = [0, 0, 4, 0, 0x82];
            if peer
                .send_raw(&part[..random.below(part.len() + 1)])
                .is_err()
            {
                outcome.refused += 1;
                continue;
            }
            open.push(peer);
        }
    }
    outcome
}

/// Valid messages, and ones that are none, cut at any byte; byte by byte; with lengths that lie.
pub(super) fn parts(target: &Target, random: &mut Random, budget: &Budget) -> Outcome {
    let sockets = sockets(target);
    let frames = [frames_to_controller(), frames_to_agent()];
    let connect = |which: usize| Peer::connect_within(&sockets[which], WAIT);
    parts_of(&frames, &connect, random, budget)
}

/// Parts of frames to the controller by the port for other hosts, in a channel that is whole.
pub(super) fn parts_by_port(target: &Target, random: &mut Random, budget: &Budget) -> Outcome {
    match ControllerPort::of(target, ATTACKER_NAME) {
        Some(port) => {
            let connect = |_| port.connect(WAIT);
            parts_of(&[frames_to_controller()], &connect, random, budget)
        }
        // Another load may keep the controller busy, or it is being killed.
        None => Outcome {
            skipped: vec!["a user gets no token".to_owned()],
            ..Outcome::default()
        },
    }
}

/// Parts of these frames, to the daemons that they are for.
fn parts_of(
    frames: &[Vec<Vec<u8>>],
    connect: &dyn Fn(usize) -> io::Result<Peer>,
    random: &mut Random,
    budget: &Budget,
) -> Outcome {
    let mut outcome = Outcome::default();
    let mut open = Vec::new();
    while budget.lasts(&outcome) {
        let which = random.below(frames.len());
        let Some(frame) = random.pick(&frames[which]) else {
            break;
        };
        outcome.sent += 1;
        let Ok(mut peer) = connect(which) else {
            outcome.refused += 1;
            continue;
        };
        let sent = match random.below(6) {
            // Disconnected at a byte.
            0 | 1 => peer.send_raw(&frame[..random.below(frame.len() + 1)]),
            // One byte at a time, at most 300.
            2 => frame
                .iter()
                .take(300)
                .try_for_each(|byte| peer.send_raw(&[*byte])),
            // A length that lies.
            3 => {
                let mut frame = frame.clone();
                let length = [0, 1, 3 << 20, 60 << 20, 64 << 20, u32::MAX][random.below(6)];
                frame[..4].copy_from_slice(&u32::to_be_bytes(length));
                peer.send_raw(&frame)
            }
            // No request at all.
            4 => {
                let noise: Vec<u8> = (0..random.below(5000))
                    .map(|_| random.number() as u8)
                    .collect();
                peer.send_raw(&noise)
            }
            // Much of a long frame.
            _ => {
                let mut frame = u32::to_be_bytes(60 << 20).to_vec();
                frame.resize(4 << 20, 0x9f);
                peer.send_raw(&frame)
            }
        };
        if sent.is_err() {
            outcome.refused += 1;
        }
        open.push(peer);
        if open.len() > 20 {
            open.clear();
        }
    }
    outcome
}

fn frames_to_controller() -> Vec<Vec<u8>> {
    let bodies = requests::samples(&Ids::default())
        .into_iter()
        .map(|s| s.body);
    let full = submit(requests::full_job("/"), "#!/bin/sh\n");
    let all = bodies.chain([full]);
    all.map(|body| framed(&peer::request(body).encode()))
        .collect()
}

fn frames_to_agent() -> Vec<Vec<u8>> {
    let samples = requests::agent_samples(JobId(1), &[0; 32]).into_iter();
    let inspect = AgentRequest::Inspect { job: JobId(1) };
    let all = samples.map(|sample| sample.request).chain([inspect]);
    all.map(|request| peer::frame_of(&request)).collect()
}
