//! Valid requests, far more than one user needs.

use super::Budget;
use crate::outcome::Outcome;
use crate::peer::{self, Peer, PeerReply, framed};
use crate::random::Random;
use crate::requests::{self, Ids, Rights, range, submit};
use crate::target::{LOOK, Target};
use muster_model::command::{JobSelection, UserCommand};
use muster_model::ids::{JobId, StepNo};
use muster_model::spec::{ArraySpec, JobSpec};
use muster_proto::client::{JobFilter, Query, RequestBody, Response};
use muster_proto::step::{AgentReply, AgentRequest, StepSpec};
use std::path::Path;
use std::time::Duration;

/// Submissions of one process between two cancellations of all its jobs.
const BETWEEN: u64 = 200;

fn asks(
    outcome: &mut Outcome,
    peer: &mut Option<Peer>,
    socket: &Path,
    body: RequestBody,
) -> PeerReply<Response> {
    let frame = framed(&peer::request(body).encode());
    let answer = match peer.take().map_or_else(|| Peer::connect(socket), Ok) {
        Ok(mut open) => {
            let answer = open.ask(&frame);
            if !matches!(answer, PeerReply::Closed | PeerReply::Silent) {
                *peer = Some(open);
            }
            answer
        }
        Err(_) => PeerReply::Closed,
    };
    outcome.count("a valid request", &answer);
    answer
}

/// Cancels all jobs of the sender.
pub(super) fn cancel_own() -> RequestBody {
    let all = UserCommand::Cancel {
        selection: JobSelection {
            only_own: true,
            ..JobSelection::default()
        },
    };
    RequestBody::Command(Box::new(all))
}

/// Cancels all jobs of the calling thread's user.
pub(super) fn cancel_all(outcome: &mut Outcome, socket: &Path) {
    asks(outcome, &mut None, socket, cancel_own());
}

/// Jobs and arrays, one after the other, all cancelled from time to time.
pub(super) fn submissions(target: &Target, random: &mut Random, budget: &Budget) -> Outcome {
    let (mut outcome, mut peer) = (Outcome::default(), None);
    let socket = target.controller();
    while budget.lasts(&outcome) {
        let spec = JobSpec {
            array: (random.below(4) == 0).then(|| ArraySpec {
                indices: range(0, 20),
                throttle: Some(2),
            }),
            hold: random.below(2) == 0,
            ..requests::job("/")
        };
        asks(
            &mut outcome,
            &mut peer,
            &socket,
            submit(spec, "#!/bin/sh\nsleep 1\n"),
        );
        if outcome.sent.is_multiple_of(BETWEEN) {
            cancel_all(&mut outcome, &socket);
        }
    }
    cancel_all(&mut outcome, &socket);
    outcome
}

/// All that users may ask, without a pause.
pub(super) fn queries(target: &Target, random: &mut Random, budget: &Budget) -> Outcome {
    let (mut outcome, mut peer) = (Outcome::default(), None);
    let socket = target.controller();
    let mut bodies = requests::samples(&Ids::default());
    bodies.retain(|sample| {
        sample.rights == Rights::Anyone && matches!(sample.body, RequestBody::Query(_))
    });
    while budget.lasts(&outcome) {
        let Some(sample) = random.pick(&bodies) else {
            break;
        };
        asks(&mut outcome, &mut peer, &socket, sample.body.clone());
        if matches!(sample.name, "Listing" | "Jobs" | "Cluster" | "Accounting") {
            // Parts may follow.
            peer = None;
        }
    }
    outcome
}

/// Connections that are kept at once by clients that do not read.
const UNREAD: usize = 50;

/// Many requests with long answers, of which none is read.
pub(super) fn unread(target: &Target, _: &mut Random, budget: &Budget) -> Outcome {
    let mut outcome = Outcome::default();
    let socket = target.controller();
    let queries = [
        Query::Listing(JobFilter::default()),
        Query::Config,
        Query::Cluster,
    ];
    let frames: Vec<u8> = queries
        .into_iter()
        .flat_map(|query| framed(&peer::request(RequestBody::Query(Box::new(query))).encode()))
        .collect();
    let mut open: Vec<Peer> = Vec::new();
    while budget.lasts(&outcome) {
        if open.len() >= UNREAD {
            open.remove(0);
        }
        let Ok(mut peer) = Peer::connect_within(&socket, Duration::from_millis(100)) else {
            outcome.sent += 1;
            outcome.refused += 1;
            continue;
        };
        for _ in 0..200 {
            outcome.sent += 3;
            if peer.send_raw(&frames).is_err() {
                outcome.refused += 3;
                break;
            }
        }
        open.push(peer);
    }
    outcome
}

/// Most requests that an agent takes by one connection.
const OF_CONNECTION: usize = 64;

/// As above, for an agent: requests about the tasks of a step, and about jobs that are not there.
pub(super) fn unread_of_agent(target: &Target, _: &mut Random, budget: &Budget) -> Outcome {
    let mut outcome = Outcome::default();
    let Some(job) = own_job(target, &mut outcome, budget) else {
        return outcome;
    };
    let agent = target.agent("n1");
    // Its reply to a question is as long as it has tasks.
    let spec = StepSpec {
        overlap: true,
        overcommit: true,
        ntasks: Some(200),
        ..requests::step(job, &["sleep", "600"])
    };
    let create = peer::frame_of(&AgentRequest::Create(Box::new(spec)));
    let step = Peer::connect(&agent).map(|mut peer| {
        let answer = peer.ask::<AgentReply>(&create);
        outcome.count("a step", &answer);
        (peer, answer)
    });
    let number = match &step {
        Ok((_, PeerReply::Accepted(AgentReply::Created(created)))) => created.step,
        _ => StepNo(0),
    };
    let questions = [
        AgentRequest::LocateStep { job, step: number },
        AgentRequest::Measure { job },
        AgentRequest::Inspect { job },
        AgentRequest::Inspect { job: JobId(0) },
    ];
    let frames: Vec<u8> = questions.iter().flat_map(peer::frame_of).collect();
    let mut open: Vec<Peer> = Vec::new();
    while budget.lasts(&outcome) {
        if open.len() >= UNREAD {
            open.remove(0);
        }
        let Ok(mut peer) = Peer::connect_within(&agent, Duration::from_millis(100)) else {
            outcome.sent += 1;
            outcome.refused += 1;
            continue;
        };
        for _ in 0..OF_CONNECTION / questions.len() {
            outcome.sent += questions.len() as u64;
            if peer.send_raw(&frames).is_err() {
                outcome.refused += questions.len() as u64;
                break;
            }
        }
        open.push(peer);
    }
    outcome
}

/// Steps of one task, one after the other and many at once, in a job of the user's own.
pub(super) fn steps(target: &Target, random: &mut Random, budget: &Budget) -> Outcome {
    let mut outcome = Outcome::default();
    let Some(job) = own_job(target, &mut outcome, budget) else {
        return outcome;
    };
    let agent = target.agent("n1");
    let mut open: Vec<Peer> = Vec::new();
    while budget.lasts(&outcome) {
        let spec = StepSpec {
            overlap: true,
            ..requests::step(job, &["true"])
        };
        let frame = peer::frame_of(&AgentRequest::Create(Box::new(spec)));
        let Ok(mut peer) = Peer::connect_within(&agent, Duration::from_millis(100)) else {
            outcome.sent += 1;
            outcome.refused += 1;
            continue;
        };
        match random.below(3) {
            // Nobody waits for it.
            0 => {
                outcome.sent += 1;
                let _ = peer.send_raw(&frame);
            }
            1 => {
                outcome.sent += 1;
                let _ = peer.send_raw(&frame);
                open.push(peer);
                if open.len() > 20 {
                    open.clear();
                }
            }
            _ => {
                let answer = peer.ask::<AgentReply>(&frame);
                outcome.count("a step", &answer);
            }
        }
    }
    outcome
}

/// A job of the calling thread's user that runs on the first node.
pub(super) fn own_job(target: &Target, outcome: &mut Outcome, budget: &Budget) -> Option<JobId> {
    let socket = target.controller();
    let mut spec = requests::job("/");
    spec.ask.nodelist = Some("n1".to_owned());
    let answer = asks(
        outcome,
        &mut None,
        &socket,
        submit(spec, "#!/bin/sh\nexec sleep 600\n"),
    );
    let job = crate::jobs::submitted(&answer)?;
    let agent = target.agent("n1");
    while budget.lasts(outcome) {
        if let PeerReply::Accepted(_) = peer::ask_agent(&agent, &AgentRequest::Inspect { job }) {
            return Some(job);
        }
        std::thread::sleep(LOOK);
    }
    None
}
