//! Requests by `SlurmctldPort`, by a channel that a user's token opens: the way is another, what may be done by it is not.

use super::{clear, finished};
use crate::controller_port::ControllerPort;
use crate::mutate;
use crate::outcome::Outcome;
use crate::peer::{self, ANSWER_MAX, Peer, PeerReply, framed};
use crate::random::Random;
use crate::requests::{self, Ids};
use crate::rest::ATTACKER_NAME;
use crate::roles;
use crate::sys::{ATTACKER, VICTIM};
use crate::target::Target;
use muster_model::ids::JobId;
use muster_proto::client::{Query, RequestBody, Response};
use std::time::Duration;

/// Copies of each request, each with wrong values in other places.
const COPIES: usize = 12;
/// Time limit for the answer to one of these: some requests are answered on an event.
const SHORT: Duration = Duration::from_millis(100);

/// Every request about another's jobs is refused, and every request with wrong values is answered or ends its connection alone.
pub(super) fn requests_by_token(target: &Target, random: &mut Random) -> Outcome {
    let mut outcome = Outcome::default();
    let Some(port) = ControllerPort::of(target, ATTACKER_NAME) else {
        outcome.finding("root gets no token");
        return outcome;
    };
    let Some(ids) = roles::jobs(target, VICTIM, &mut outcome) else {
        return outcome;
    };
    let ask = |body: RequestBody| match port.connect(ANSWER_MAX) {
        Ok(mut peer) => peer.ask(&framed(&peer::request(body).encode())),
        Err(e) => PeerReply::Unreadable(format!("no channel: {e}")),
    };
    roles::by_outsider(target, ATTACKER, &ask, &ids, &mut outcome);
    clear(target, VICTIM, &mut outcome);
    wrong_values(&port, random, &mut outcome);
    let ping = ask(RequestBody::Query(Box::new(Query::Ping)));
    outcome.count("a ping by the port", &ping);
    if !matches!(ping, PeerReply::Accepted(Response::Pong(_))) {
        outcome.finding(format!("a ping by the port: {ping:?}"));
    }
    finished(target, outcome)
}

/// Each request with wrong, extreme and contradictory values.
fn wrong_values(port: &ControllerPort, random: &mut Random, outcome: &mut Outcome) {
    let ids = Ids {
        pending: JobId(1),
        array: JobId(2),
        running: JobId(3),
    };
    let mut open: Option<Peer> = None;
    for sample in requests::samples(&ids) {
        let message = peer::request(sample.body);
        for number in 0..COPIES {
            let changed = match number % 4 {
                0 => mutate::several(&message, random),
                _ => mutate::one(&message, random),
            };
            let connected = open.take().map_or_else(|| port.connect(ANSWER_MAX), Ok);
            let Ok(mut peer) = connected else {
                outcome.finding(format!("no channel beside wrong values in {}", sample.name));
                return;
            };
            outcome.sent += 1;
            let sent = peer.send_raw(&framed(&changed.encode()));
            match sent.map(|()| peer.answer::<Response>(SHORT)) {
                Ok(PeerReply::Refused(_)) => {
                    outcome.refused += 1;
                    open = Some(peer);
                }
                Ok(PeerReply::Closed) | Err(_) => outcome.refused += 1,
                // More may follow, or nothing until something happens.
                Ok(_) => outcome.accepted += 1,
            }
        }
    }
}
