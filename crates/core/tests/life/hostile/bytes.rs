//! Bytes of valid commands and reports that were changed: they are refused, or carried out as what they say.

use super::commands::commands;
use crate::mutation::{Change, change, changed};
use crate::world::{World, array, config, exit, spec, step, step_end, user};
use muster_model::command::{Command, NodeCommand, Reply, UserCommand};
use muster_model::ids::{Attempt, JobAttempt, JobId, NodeIdx, StepNo};
use muster_model::job::{Step, StepEnd};
use muster_model::node::{GresConfig, NodeInfo};
use muster_model::order_config::Multifactor;
use muster_model::refusal::RefusalCode;
use muster_model::spec::JobSpec;
use muster_model::validate::Validate;
use proptest::prelude::*;

/// A world in which most commands find something to do: an array, a running job with a step, one that waits.
pub(super) fn busy_world(rich: bool) -> (World, JobId, JobId) {
    let mut config = config();
    if rich {
        config.order.multifactor = Some(Multifactor {
            weight_age: 1000,
            weight_fair_share: 1000,
            weight_job_size: 1000,
            ..Multifactor::default()
        });
        config.scheduler_parameters = vec!["enable_user_top".to_owned()];
        for node in &mut config.nodes {
            node.features = vec!["a".to_owned(), "b".to_owned()];
            node.gres = vec![GresConfig {
                name: "gpu".to_owned(),
                count: 2,
                ..GresConfig::default()
            }];
        }
    }
    let mut world = World::with(config);
    let base = world.submit(JobSpec {
        array: array(0, 9, None),
        ..spec("a")
    });
    let job = world.submit(spec("j"));
    assert!(world.start(job, &[0]));
    world.node(
        0,
        NodeCommand::StepStarted {
            job,
            attempt: Attempt(1),
            step: Box::new(step(0, world.now)),
        },
    );
    (world, base, job)
}

/// What comes of bytes: the command, if anything decodes and validates.
fn received(bytes: &[u8]) -> Option<UserCommand> {
    let command: UserCommand = minicbor::decode(bytes).ok()?;
    command.validate().ok()?;
    Some(command)
}

#[test]
fn each_kind_of_command_is_accepted_unchanged() {
    let (world, base, job) = busy_world(true);
    for command in commands(base, job) {
        let bytes = minicbor::to_vec(&command).unwrap();
        assert_eq!(received(&bytes), Some(command.clone()));
        // Nobody of them is refused for its form.
        let mut world = world.clone();
        if let Some(Reply::Refused(refusal)) =
            world.run(Command::User(user(0), command.clone())).reply
        {
            assert_ne!(refusal.code, RefusalCode::TooLong, "{command:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn changed_commands_are_refused_or_carried_out(
        rich in any::<bool>(),
        picks in proptest::collection::vec((any::<usize>(), proptest::collection::vec(change(), 1..12), 0u8..3), 1..8),
    ) {
        let (mut world, base, job) = busy_world(rich);
        let all = commands(base, job);
        for (pick, changes, by) in picks {
            let mut bytes = minicbor::to_vec(&all[pick % all.len()]).unwrap();
            // What is refused leaves the bytes as they were, so that most end as a command that was changed somewhere.
            for change in &changes {
                let next = changed(&bytes, change);
                if received(&next).is_some() {
                    bytes = next;
                }
            }
            let command = received(&bytes).expect("the last that was accepted");
            let uid = [0, 1000, 1001][usize::from(by)];
            world.run(Command::User(user(uid), command));
            world.tick();
            world.schedule();
        }
        world.pass(100);
    }

    #[test]
    fn changed_reports_of_nodes_are_ignored_or_applied(
        changes in proptest::collection::vec((0u8..5, change()), 1..8),
    ) {
        let (mut world, _, job) = busy_world(true);
        let at = world.now;
        let attempt = Attempt(1);
        for (kind, change) in &changes {
            let command = match kind {
                0 => mutated::<Step>(&step(1, at), change).map(|step| {
                    NodeCommand::StepStarted { job, attempt, step: Box::new(step) }
                }),
                1 => mutated::<StepEnd>(&step_end(at, exit(1)), change).map(|end| {
                    NodeCommand::StepEnded { job, attempt, step: StepNo(0), end: Box::new(end) }
                }),
                2 => mutated::<NodeInfo>(&crate::world::info("boot1", &crate::world::node_config("n1", 4, 1000)), change)
                    .map(|info| NodeCommand::Register { info: Box::new(info), present: vec![JobAttempt::new(job, attempt)] }),
                3 => mutated::<StepEnd>(&step_end(at, exit(1)), change).map(|end| {
                    NodeCommand::BatchEnded { job, attempt, exit: end.exit, oom: false, end }
                }),
                _ => mutated::<StepNo>(&StepNo(3), change).map(|step| {
                    NodeCommand::StepEnded { job, attempt, step, end: Box::new(step_end(at, exit(0))) }
                }),
            };
            if let Some(command) = command {
                world.run(Command::Node(NodeIdx(0), command));
                world.tick();
            }
        }
        world.pass(100);
    }
}

fn mutated<T>(value: &T, change: &Change) -> Option<T>
where
    T: minicbor::Encode<()> + for<'b> minicbor::Decode<'b, ()> + Validate,
{
    let bytes = changed(&minicbor::to_vec(value).ok()?, change);
    let value: T = minicbor::decode(&bytes).ok()?;
    value.validate().ok()?;
    Some(value)
}
