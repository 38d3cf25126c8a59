//! Steps with numbers that no layout can have.

use super::{finished, or_end, running_job};
use crate::outcome::Outcome;
use crate::peer::{self, Peer};
use crate::random::Random;
use crate::requests;
use crate::sys::{ATTACKER, as_user};
use crate::target::Target;
use muster_model::spec::{GresAsk, MemoryAsk};
use muster_proto::step::{AgentReply, AgentRequest, StepSpec};
use std::path::Path;

/// More tasks than a node runs, and few enough to be started without harm by an agent that has no limit.
const TASKS: u32 = 5000;
/// Tasks of a step that has no bound at all. Sent only to an agent that has refused [`TASKS`].
const ALL_TASKS: u32 = 2_000_000_000;

/// Memory, CPUs and tasks that overflow when they are multiplied, and more tasks than a node can have.
pub(super) fn extreme_step(target: &Target, _: &mut Random) -> Outcome {
    let mut outcome = Outcome::default();
    let info = or_end!(running_job(target, ATTACKER, &mut outcome), target, outcome);
    let agent = target.agent(super::FIRST_NODE);
    let base = || requests::step(info.job.id, &["true"]);
    let gres = |count| GresAsk {
        name: "gpu".to_owned(),
        kind: None,
        count,
    };
    let max = Some(u32::MAX);
    let cases = [
        (
            "2^63 MiB for each of 2 CPUs",
            StepSpec {
                memory: MemoryAsk::PerCpu(1 << 63),
                cpus_per_task: Some(2),
                ..base()
            },
        ),
        (
            "2^64-1 MiB for each CPU",
            StepSpec {
                memory: MemoryAsk::PerCpu(u64::MAX),
                ..base()
            },
        ),
        (
            "2^64-1 MiB",
            StepSpec {
                memory: MemoryAsk::PerNode(u64::MAX),
                ..base()
            },
        ),
        (
            "2^32-1 tasks",
            StepSpec {
                ntasks: max,
                ..base()
            },
        ),
        (
            "2^32-1 CPUs for each task",
            StepSpec {
                cpus_per_task: max,
                ..base()
            },
        ),
        (
            "2^32-1 CPUs for each of 2^32-1 tasks",
            StepSpec {
                cpus_per_task: max,
                ntasks: max,
                ..base()
            },
        ),
        (
            "2^32-1 tasks on a node",
            StepSpec {
                ntasks: None,
                ntasks_per_node: max,
                ..base()
            },
        ),
        (
            "nodes from 2^32-1 on",
            StepSpec {
                relative: max,
                ..base()
            },
        ),
        (
            "2^64-1 devices",
            StepSpec {
                gres: vec![gres(u64::MAX), gres(u64::MAX)],
                ..base()
            },
        ),
        (
            "5000 tasks on 2 CPUs",
            StepSpec {
                overcommit: true,
                ntasks: Some(TASKS),
                ..base()
            },
        ),
    ];
    let mut bounded = true;
    for (what, spec) in cases {
        let tasks = spec.ntasks == Some(TASKS);
        let accepted = create(&agent, spec, what, &mut outcome);
        bounded &= !(tasks && accepted);
    }
    if bounded {
        let spec = StepSpec {
            overcommit: true,
            ntasks: Some(ALL_TASKS),
            ..base()
        };
        create(&agent, spec, "2,000,000,000 tasks on 2 CPUs", &mut outcome);
    } else {
        outcome
            .skipped
            .push("2,000,000,000 tasks: the agent has no limit".to_owned());
    }
    finished(target, outcome)
}

/// Whether it was accepted.
fn create(agent: &Path, spec: StepSpec, what: &str, outcome: &mut Outcome) -> bool {
    let frame = peer::frame_of(&AgentRequest::Create(Box::new(spec)));
    let answer = as_user(ATTACKER, || match Peer::connect(agent) {
        Ok(mut peer) => peer.ask::<AgentReply>(&frame),
        Err(_) => peer::PeerReply::Closed,
    });
    outcome.must_refuse(&format!("a step of {what}"), &answer);
    matches!(answer, peer::PeerReply::Accepted(_))
}
