//! Gang scheduling: jobs that have the same CPU take turns.

use crate::world::{World, config, spec, target};
use muster_model::command::{KeptPartitions, NodeCommand, PlannedStart, UserCommand};
use muster_model::config::{ClusterConfig, OverSubscribe};
use muster_model::cpuset::CpuSet;
use muster_model::effect::Effect;
use muster_model::ids::JobId;
use muster_model::job::{JobState, Reason};

const SLICE_S: u64 = 30;

fn world() -> World {
    let mut config = config();
    config.partitions[0].over_subscribe = OverSubscribe::Force(4);
    config.order.time_slice_s = Some(30);
    World::with(config)
}

/// Starts a job on these CPUs of n1, which it shares.
fn start(world: &mut World, cpus: &[u32]) -> JobId {
    let job = world.submit(spec("j"));
    let mut alloc = world.alloc(job, &[0], 1);
    alloc.sharers = 4;
    alloc.nodes[0].cpus = cpus.iter().copied().collect::<CpuSet>();
    assert_eq!(world.plan(vec![PlannedStart { job, alloc }]), 1);
    job
}

fn running(world: &World, of: &[JobId]) -> Vec<u64> {
    let runs = |id: &&JobId| world.job(**id).state == JobState::Running;
    of.iter().filter(runs).map(|id| id.0).collect()
}

#[test]
fn jobs_on_one_cpu_take_turns() {
    let mut world = world();
    let all = [0; 3].map(|cpu| start(&mut world, &[cpu]));
    assert_eq!(running(&world, &all), [1]);
    // Its CPU stays its own: no more jobs come than may share.
    assert_eq!(world.state.nodes[0].free_cpus.len(), 3);
    let due = world.state.next_tick(world.now);
    assert_eq!(due, Some(world.now.plus_s(SLICE_S)));
    for turn in [2, 3, 1, 2] {
        world.pass(SLICE_S);
        assert_eq!(running(&world, &all), [turn]);
    }
    let stopped = |signal: u32, id: u64, effects: &[Effect]| {
        let sent = |e: &Effect| matches!(e, Effect::Signal { job, signal: s, .. } if (job.0, *s) == (id, signal));
        effects.iter().any(sent)
    };
    assert!(stopped(19, 1, &world.effects) && stopped(18, 2, &world.effects));
    // The limit counts the time that a job ran.
    assert_eq!(world.job(all[0]).suspended_ms, 60_000);
    // Whoever ends leaves its turn to the one that has waited longest.
    world.finish(all[1], 0);
    assert_eq!(running(&world, &all), [3]);
    world.finish(all[2], 0);
    assert_eq!(running(&world, &all), [1]);
    assert_eq!(world.state.by_turn.len(), 0);
    world.check_replay();
}

#[test]
fn who_meets_nobody_runs_on() {
    let mut world = world();
    let (both, left) = (start(&mut world, &[0, 1]), start(&mut world, &[0]));
    let (right, other) = (start(&mut world, &[1]), start(&mut world, &[2]));
    let all = [both, left, right, other];
    assert_eq!(running(&world, &all), [1, 4]);
    world.pass(SLICE_S);
    assert_eq!(running(&world, &all), [2, 3, 4]);
    world.pass(SLICE_S);
    assert_eq!(running(&world, &all), [1, 4]);
    world.check_replay();
}

#[test]
fn administrators_may_stop_and_prefer_those_who_wait() {
    let mut world = world();
    let all = [0; 2].map(|cpu| start(&mut world, &[cpu]));
    let resume = UserCommand::Resume {
        target: target(all[1]),
    };
    world.must(0, resume.clone());
    assert_eq!(running(&world, &all), [2]);
    // Stopped, it has no turn until it is told to go on.
    let suspend = |id| UserCommand::Suspend { target: target(id) };
    world.must(0, suspend(all[0]));
    world.pass(SLICE_S);
    world.pass(SLICE_S);
    assert_eq!(running(&world, &all), [2]);
    world.must(0, suspend(all[1]));
    assert_eq!(running(&world, &all), [0u64; 0]);
    world.must(0, resume);
    assert_eq!(world.state_of(all[1]), (JobState::Running, Reason::None));
    world.check_replay();
}

#[test]
fn without_gang_they_run_side_by_side() {
    let mut world = world();
    let all = [0; 2].map(|cpu| start(&mut world, &[cpu]));
    let mut config: ClusterConfig = config();
    config.partitions[0].over_subscribe = OverSubscribe::Force(4);
    world.configure(config, KeptPartitions::File);
    world.pass(SLICE_S);
    assert_eq!(running(&world, &all), [1, 2]);
    world.check_replay();
}

#[test]
fn a_node_may_be_given_up_when_a_turn_is_due() {
    let mut world = world();
    let all = [0; 2].map(|cpu| start(&mut world, &[cpu]));
    world.node(0, NodeCommand::Lost);
    world.pass(60);
    assert_eq!(running(&world, &all), [0u64; 0]);
    assert_eq!(world.state.by_turn.len(), 0);
    world.check_replay();
}
