//! Descriptors of every kind, with requests that want some, want none, or are none.

use super::Budget;
use super::requests::own_job;
use crate::outcome::Outcome;
use crate::peer::{self, Peer, framed};
use crate::random::Random;
use crate::requests;
use crate::sys::Lingering;
use crate::target::Target;
use muster_model::ids::JobId;
use muster_proto::client::{Query, RequestBody};
use muster_proto::step::{AgentRequest, StepSpec};
use std::fs::File;
use std::net::TcpListener;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::time::Duration;

/// Most descriptors that the kernel sends at once.
const MOST: usize = 253;
const WAIT: Duration = Duration::from_millis(100);

/// One of each kind; the sockets that linger do so for a second.
fn kinds() -> (Vec<OwnedFd>, Vec<Lingering>) {
    let mut all: Vec<OwnedFd> = Vec::new();
    for path in [
        "/",
        "/dev/null",
        "/dev/zero",
        "/proc/self/status",
        "/dev/full",
    ] {
        all.extend(File::open(path).map(OwnedFd::from));
    }
    all.extend(
        UnixStream::pair()
            .into_iter()
            .flat_map(|(a, b)| [a.into(), b.into()]),
    );
    all.extend(
        UnixDatagram::pair()
            .into_iter()
            .flat_map(|(a, b)| [a.into(), b.into()]),
    );
    all.extend(TcpListener::bind("127.0.0.1:0").map(OwnedFd::from));
    all.extend(nix::unistd::pipe().into_iter().flat_map(|(a, b)| [a, b]));
    let lingering: Vec<Lingering> = Lingering::new(Duration::from_secs(1)).into_iter().collect();
    (all, lingering)
}

/// Descriptors to every socket that users reach.
pub(super) fn wrong(target: &Target, random: &mut Random, budget: &Budget) -> Outcome {
    let mut outcome = Outcome::default();
    let job = own_job(target, &mut outcome, budget).unwrap_or(JobId(1));
    let (controller, agent) = (target.controller(), target.agent("n1"));
    let ping = framed(&peer::request(RequestBody::Query(Box::new(Query::Ping))).encode());
    let step = |passes_stdio| {
        let spec = StepSpec {
            passes_stdio,
            ..requests::step(job, &["true"])
        };
        peer::frame_of(&AgentRequest::Create(Box::new(spec)))
    };
    let messages = [vec![0], vec![0; 5], ping, step(true), step(false)];
    while budget.lasts(&outcome) {
        let (kinds, lingering) = kinds();
        let own: Vec<RawFd> = kinds
            .iter()
            .map(AsRawFd::as_raw_fd)
            .chain(lingering.iter().map(Lingering::fd))
            .collect();
        let count = [1, 3, 4, 5, 20, MOST][random.below(6)];
        let fds: Vec<RawFd> = (0..count)
            .filter_map(|_| random.pick(&own).copied())
            .collect();
        let message = &messages[random.below(messages.len())];
        let socket = [&controller, &agent][random.below(2)];
        let sent = Peer::connect_within(socket, WAIT).and_then(|mut p| p.send_with(message, &fds));
        outcome.sent += 1;
        if sent.is_err() {
            outcome.refused += 1;
        }
    }
    outcome
}
