//! Descriptors that nobody asked for, made so that closing them takes long.

use super::finished;
use crate::outcome::Outcome;
use crate::peer::{self, Peer, PeerReply};
use crate::random::Random;
use crate::requests;
use crate::sys::{ATTACKER, Lingering, VICTIM, as_user};
use crate::target::Target;
use muster_model::ids::JobId;
use muster_proto::client::{Query, RequestBody};
use muster_proto::step::AgentRequest;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

/// Time that the process that closes a descriptor last has to wait.
const LINGER: Duration = Duration::from_secs(10);
/// Time limit for an answer to another user meanwhile.
const ANSWER_MAX: Duration = Duration::from_secs(2);
/// Descriptors that are sent to a daemon at once.
const AT_ONCE: usize = 4;

fn lingering(outcome: &mut Outcome) -> Vec<Lingering> {
    let made: io::Result<Vec<Lingering>> = (0..AT_ONCE).map(|_| Lingering::new(LINGER)).collect();
    made.unwrap_or_else(|e| {
        outcome.finding(format!("no sockets for the attack: {e}"));
        Vec::new()
    })
}

fn send_lingering_by_stream(socket: &Path, bytes: &[u8], outcome: &mut Outcome) -> Vec<Lingering> {
    let mut all = lingering(outcome);
    let fds: Vec<_> = all.iter().map(Lingering::fd).collect();
    let sent = as_user(ATTACKER, || Peer::connect(socket)?.send_with(bytes, &fds));
    outcome.sent += 1;
    if sent.is_err() {
        outcome.refused += 1;
    }
    all.iter_mut().for_each(Lingering::give_away);
    all
}

/// Sockets that linger, to every socket that users reach; meanwhile others are answered.
pub(super) fn lingering_descriptors(target: &Target, _: &mut Random) -> Outcome {
    let mut outcome = Outcome::default();
    let (controller, agent) = (target.controller(), target.agent("n1"));
    let ping = peer::framed(&peer::request(RequestBody::Query(Box::new(Query::Ping))).encode());
    let create = peer::frame_of(&AgentRequest::Create(Box::new(
        muster_proto::step::StepSpec {
            passes_stdio: true,
            ..requests::step(JobId(u64::MAX), &["true"])
        },
    )));
    let mut given = Vec::new();
    for bytes in [&[0][..], &ping] {
        given.extend(send_lingering_by_stream(&controller, bytes, &mut outcome));
    }
    for bytes in [&[0][..], &create] {
        given.extend(send_lingering_by_stream(&agent, bytes, &mut outcome));
    }
    let started = Instant::now();
    let answer = target.ask(VICTIM, RequestBody::Query(Box::new(Query::Ping)));
    outcome.count("a ping meanwhile", &answer);
    if started.elapsed() > ANSWER_MAX {
        outcome.finding(format!(
            "the controller was busy for {:?} closing",
            started.elapsed()
        ));
    }
    let started = Instant::now();
    let job = JobId(u64::MAX);
    let answer = as_user(VICTIM, || {
        peer::ask_agent(&agent, &AgentRequest::Inspect { job })
    });
    outcome.require(
        matches!(answer, PeerReply::Refused(_)),
        "the agent does not answer",
    );
    if started.elapsed() > ANSWER_MAX {
        outcome.finding(format!(
            "the agent was busy for {:?} closing",
            started.elapsed()
        ));
    }
    drop(given);
    finished(target, outcome)
}
