//! Messages with wrong values, to every decoder.

use super::Budget;
use super::requests::{cancel_all, cancel_own, own_job};
use crate::cbor::Value;
use crate::controller_port::ControllerPort;
use crate::mutate;
use crate::outcome::Outcome;
use crate::peer::{self, ANSWER_MAX, Peer, PeerReply, ReplyContent, framed};
use crate::random::Random;
use crate::requests::{self, Ids, submit};
use crate::rest::ATTACKER_NAME;
use crate::target::{Target, alive};
use muster_model::ids::JobId;
use muster_proto::client::{Query, RequestBody, Response};
use muster_proto::step::{AgentReply, AgentRequest};
use std::fmt::Write as _;
use std::io;
use std::time::Duration;

/// Time limit for an answer. Some requests are answered on an event; a daemon that hangs is found by another request.
const WAIT: Duration = Duration::from_millis(300);
/// Messages between two questions whether the daemon is still there.
const BETWEEN: u64 = 64;
/// Bytes of a message that are printed.
const SHOWN: usize = 2000;

/// Function that connects to a daemon.
type Connector<'a> = &'a dyn Fn() -> io::Result<Peer>;

/// Sends one message; whether it was answered or refused.
fn try_one<T: ReplyContent>(
    connect: Connector<'_>,
    bytes: &[u8],
    peer: &mut Option<Peer>,
) -> PeerReply<T> {
    let Ok(mut open) = peer.take().map_or_else(connect, Ok) else {
        return PeerReply::Closed;
    };
    let answer = match open.send_raw(&framed(bytes)) {
        Ok(()) => open.answer(WAIT),
        Err(_) => PeerReply::Closed,
    };
    // More than one answer may come where a message became another.
    if matches!(answer, PeerReply::Refused(_)) {
        *peer = Some(open);
    }
    answer
}

fn tally<T>(outcome: &mut Outcome, answer: &PeerReply<T>) {
    outcome.sent += 1;
    match answer {
        PeerReply::Refused(_) | PeerReply::Closed => outcome.refused += 1,
        _ => outcome.accepted += 1,
    }
}

fn shown(bytes: &[u8]) -> String {
    let mut text = String::new();
    for byte in bytes.iter().take(SHOWN) {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// Whether a daemon has ended; a connection that is closed may be one too many.
fn is_gone(target: &Target, pid_file: &str) -> bool {
    target.pid(pid_file).is_none_or(|pid| !alive(pid))
}

/// Changed messages: mostly one place, sometimes several, sometimes bytes.
fn changed(message: &Value, random: &mut Random) -> Vec<u8> {
    match random.below(8) {
        0 => mutate::bytes(&message.encode(), random),
        1 | 2 => mutate::several(message, random).encode(),
        _ => mutate::one(message, random).encode(),
    }
}

/// Asks over a connection of its own.
fn ask(connect: Connector<'_>, message: &Value) -> PeerReply<Response> {
    match connect() {
        Ok(mut peer) => peer.ask(&framed(&message.encode())),
        Err(_) => PeerReply::Closed,
    }
}

/// Every kind of request to the controller, with wrong values anywhere.
pub(super) fn to_controller(target: &Target, random: &mut Random, budget: &Budget) -> Outcome {
    let socket = target.controller();
    to_controller_by(&|| Peer::connect(&socket), target, random, budget)
}

/// As above, by the port for other hosts.
pub(super) fn to_controller_port(target: &Target, random: &mut Random, budget: &Budget) -> Outcome {
    match ControllerPort::of(target, ATTACKER_NAME) {
        Some(port) => to_controller_by(&|| port.connect(ANSWER_MAX), target, random, budget),
        // Another load may keep the controller busy, or it is being killed.
        None => Outcome {
            skipped: vec!["a user gets no token".to_owned()],
            ..Outcome::default()
        },
    }
}

fn to_controller_by(
    connect: Connector<'_>,
    target: &Target,
    random: &mut Random,
    budget: &Budget,
) -> Outcome {
    let (mut outcome, mut peer) = (Outcome::default(), None);
    let ids = Ids {
        pending: JobId(1),
        array: JobId(2),
        running: JobId(3),
    };
    let mut messages: Vec<Value> = requests::samples(&ids)
        .into_iter()
        .map(|sample| peer::request(sample.body))
        .collect();
    // A submission has more places than all others together.
    for _ in 0..messages.len() / 2 {
        messages.push(peer::request(submit(
            requests::full_job("/"),
            "#!/bin/sh\n",
        )));
        messages.push(peer::request(submit(requests::job("/"), "#!/bin/sh\n")));
    }
    let ping = peer::request(RequestBody::Query(Box::new(Query::Ping)));
    let cancel = peer::request(cancel_own());
    let mut last = Vec::new();
    while budget.lasts(&outcome) {
        let Some(message) = random.pick(&messages) else {
            break;
        };
        last = changed(message, random);
        let answer: PeerReply<Response> = try_one(connect, &last, &mut peer);
        tally(&mut outcome, &answer);
        let unsure = matches!(answer, PeerReply::Silent | PeerReply::Unreadable(_));
        if (unsure || outcome.sent.is_multiple_of(BETWEEN))
            && ask(connect, &ping) == PeerReply::Silent
        {
            outcome.finding(format!("the controller hangs after {}", shown(&last)));
        }
        if outcome.sent.is_multiple_of(500) {
            outcome.count("scancel", &ask(connect, &cancel));
        }
    }
    if is_gone(target, "run/ctld.pid") {
        outcome.finding(format!("the controller is gone after {}", shown(&last)));
    }
    outcome.count("scancel", &ask(connect, &cancel));
    outcome
}

/// Every kind of request to an agent, about a job of the user's own, with wrong values anywhere.
pub(super) fn to_agent(target: &Target, random: &mut Random, budget: &Budget) -> Outcome {
    let mut outcome = Outcome::default();
    let Some(job) = own_job(target, &mut outcome, budget) else {
        return outcome;
    };
    let agent = target.agent("n1");
    let mut messages: Vec<Value> = requests::agent_samples(job, &[0; 32])
        .iter()
        .map(|sample| Value::of(&sample.request))
        .collect();
    for _ in 0..messages.len() {
        let spec = requests::step(job, &["true"]);
        messages.push(Value::of(&AgentRequest::Create(Box::new(spec))));
    }
    let inspect = AgentRequest::Inspect {
        job: JobId(u64::MAX),
    };
    let mut last = Vec::new();
    while budget.lasts(&outcome) {
        let Some(message) = random.pick(&messages) else {
            break;
        };
        last = changed(message, random);
        let answer: PeerReply<AgentReply> = try_one(&|| Peer::connect(&agent), &last, &mut None);
        tally(&mut outcome, &answer);
        if (answer == PeerReply::Silent || outcome.sent.is_multiple_of(BETWEEN))
            && peer::ask_agent(&agent, &inspect) == PeerReply::Silent
        {
            outcome.finding(format!("the agent hangs after {}", shown(&last)));
        }
    }
    if is_gone(target, "run/noded.n1.pid") {
        outcome.finding(format!("the agent is gone after {}", shown(&last)));
    }
    cancel_all(&mut outcome, &target.controller());
    outcome
}
