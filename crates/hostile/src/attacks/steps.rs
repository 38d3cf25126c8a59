//! Steps that a user numbers, lays out or starts without the agent that leads the job.

use super::{finished, or_end, running_job};
use crate::outcome::Outcome;
use crate::peer::{self, Peer, PeerReply};
use crate::random::Random;
use crate::requests;
use crate::sys::{ATTACKER, NAMELESS, ROOT, as_user};
use crate::target::Target;
use muster_model::ids::StepNo;
use muster_proto::step::{AgentReply, AgentRequest, HetStep, StepSpec};
use std::collections::BTreeSet;

/// Numbers that stand for something else, or come after every number that is given.
const NUMBERS: [u32; 9] = [
    StepNo::BATCH.0,
    StepNo::EXTERN.0,
    StepNo::INTERACTIVE.0,
    StepNo::INTERACTIVE.0 - 1,
    1 << 30,
    (1 << 30) + 1,
    (1 << 31) - 1,
    1 << 31,
    5000,
];

/// A number of the user's choice for a step, as the components of a heterogeneous job agree on one.
pub(super) fn chosen_step_number(target: &Target, _: &mut Random) -> Outcome {
    let mut outcome = Outcome::default();
    let info = or_end!(running_job(target, ATTACKER, &mut outcome), target, outcome);
    let (agent, job) = (target.agent(super::FIRST_NODE), info.job.id);
    for number in NUMBERS {
        let spec = StepSpec {
            het: Some(HetStep {
                step: number,
                ..HetStep::default()
            }),
            ..requests::step(job, &["true"])
        };
        let frame = peer::frame_of(&AgentRequest::Create(Box::new(spec)));
        let answer = as_user(ATTACKER, || match Peer::connect(&agent) {
            Ok(mut peer) => peer.ask(&frame),
            Err(_) => PeerReply::Closed,
        });
        outcome.count("a step with a number", &answer);
        if let PeerReply::Accepted(AgentReply::Created(created)) = answer {
            outcome.require(
                created.step.0 != number,
                &format!("step number {number} is taken from the request"),
            );
        }
    }
    super::clear(target, ATTACKER, &mut outcome);
    let rows = target
        .run(ROOT, &format!("sacct -n -P -j {job} -o JobID"))
        .out;
    let distinct: BTreeSet<&str> = rows.lines().collect();
    outcome.require(
        distinct.len() == rows.lines().count(),
        "accounting has two rows of one step",
    );
    outcome
}

/// Messages that only agents send each other, from a user who has the key of its own job; and of another's without it.
pub(super) fn step_by_key(target: &Target, _: &mut Random) -> Outcome {
    let mut outcome = Outcome::default();
    let info = or_end!(running_job(target, ATTACKER, &mut outcome), target, outcome);
    let (agent, job) = (target.agent(super::FIRST_NODE), info.job.id);
    for (user, key) in [
        (ATTACKER, info.key.to_vec()),
        (NAMELESS, vec![0; 32]),
        (NAMELESS, Vec::new()),
    ] {
        for sample in requests::agent_samples(job, &key) {
            if user == ATTACKER && !matches!(sample.name, "StartStep" | "StepNodeEnded") {
                continue;
            }
            let answer = as_user(user, || peer::ask_agent(&agent, &sample.request));
            let what = format!("{} of user {} about job {job}", sample.name, user.uid);
            outcome.must_refuse(&what, &answer);
        }
    }
    finished(target, outcome)
}
