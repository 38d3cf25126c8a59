//! What is submitted though nothing could ever give it.

use crate::world::{World, cluster, job, nodes, partition, wide};
use muster_model::command::{Command, Identity, Reply, UserCommand};
use muster_model::refusal::RefusalCode;
use muster_model::spec::{JobKind, JobSpec, MemoryAsk, Sharing};
use muster_model::time::Timestamp;
use muster_sched::engine::{Engine, Turn};

fn with(mut spec: JobSpec, change: impl FnOnce(&mut JobSpec)) -> JobSpec {
    change(&mut spec);
    spec
}

/// What becomes of a submission.
fn submit(engine: &mut Engine, spec: JobSpec) -> Option<RefusalCode> {
    let spec = with(spec, |s| s.kind = JobKind::Allocation);
    let submit = UserCommand::Submit {
        spec: Box::new(spec),
        blobs: Vec::new(),
        test_only: false,
    };
    let who = Identity {
        uid: 1000,
        user: "u".into(),
        ..Identity::default()
    };
    let (mut turn, known) = (Turn::default(), engine.state().jobs.len());
    engine.decide(
        0,
        &Command::User(who, submit),
        Timestamp::default(),
        &mut turn,
    );
    let refusal = match turn.replies.pop() {
        Some((0, Reply::Refused(refusal))) => Some(refusal.code),
        Some((0, Reply::Submitted { .. })) => None,
        other => panic!("{other:?}"),
    };
    let accepted = usize::from(refusal.is_none());
    assert_eq!(engine.state().jobs.len(), known + accepted);
    assert_eq!(turn.events.is_empty(), refusal.is_some());
    refusal
}

#[test]
fn what_no_nodes_can_give_is_refused_at_once() {
    let mut lines = nodes(4, 4);
    for (line, feature) in lines.iter_mut().zip(["a", "a", "b", "b"]) {
        line.features = vec![feature.into()];
    }
    let mut config = cluster(lines);
    config.memory_is_consumable = true;
    let mut capped = partition("capped", &config.nodes);
    capped.max_cpus_per_node = Some(2);
    config.partitions.push(capped);
    let mut world = World::new(config);
    let never = Some(RefusalCode::NodeConfigUnavailable);
    let of = |constraint: &str, tasks| {
        with(job(tasks, 9), |s| {
            s.ask.constraint = Some(constraint.into())
        })
    };
    let in_capped = |spec| with(spec, |s| s.partitions = vec!["capped".into()]);
    let cases = [
        (of("a", 8), None),
        (of("a", 9), never),
        (of("a&b", 1), never),
        (of("[a|b]", 9), never),
        (
            with(wide(2, 3, 9), |s| s.ask.cpus_per_task = Some(3)),
            never,
        ),
        (with(job(4, 9), |s| s.ask.cpus_per_task = Some(3)), None),
        (
            with(job(2, 9), |s| {
                (s.ask.max_nodes, s.ask.memory) = (Some(1), MemoryAsk::PerCpu(600));
            }),
            never,
        ),
        (in_capped(job(8, 9)), None),
        (
            in_capped(with(job(1, 9), |s| s.ask.cpus_per_task = Some(3))),
            never,
        ),
        (
            in_capped(with(job(1, 9), |s| s.ask.sharing = Sharing::Exclusive)),
            never,
        ),
        // One of its partitions will do.
        (
            with(job(1, 9), |s| {
                s.partitions = vec!["capped".into(), "p".into()];
                s.ask.sharing = Sharing::Exclusive;
            }),
            None,
        ),
        // The partition is only too small.
        (job(17, 9), None),
        (wide(5, 5, 9), None),
    ];
    // Nobody has to be up for it.
    for node in 0..4 {
        world.drain(node);
    }
    for (spec, expected) in cases {
        let text = format!("{:?} in {:?}", spec.ask, spec.partitions);
        let mut engine = Engine::new(world.state.clone());
        assert_eq!(submit(&mut engine, spec), expected, "{text}");
    }
}

#[test]
fn what_was_found_of_one_submission_says_nothing_of_another() {
    let mut config = cluster(nodes(2, 4));
    config.memory_is_consumable = true;
    let mut engine = Engine::new(World::new(config).state);
    let mut accepts = |mib: u64| {
        let spec = with(job(2, 9), |s| {
            (s.ask.max_nodes, s.ask.memory) = (Some(1), MemoryAsk::PerCpu(mib));
        });
        submit(&mut engine, spec).is_none()
    };
    let answers = [400, 400, 600, 400, 300, 600, 600].map(&mut accepts);
    assert_eq!(answers, [true, true, false, true, true, false, false]);
}

/// Who is looked at is told by partition: the cost does not depend on how many wait.
#[test]
fn a_pass_says_which_partitions_it_looked_at() {
    let mut config = cluster(nodes(2, 1));
    let second = config.nodes[1..].to_vec();
    config.partitions = vec![partition("p", &config.nodes[..1]), partition("q", &second)];
    let mut engine = Engine::new(World::new(config).state);
    let mut at = |partition: &str, minute: u64| {
        let now = Timestamp::from_unix_s(1_000_000).plus_s(minute * 60);
        let spec = with(job(1, 10), |s| s.partitions = vec![partition.into()]);
        assert_eq!(submit(&mut engine, spec), None);
        let mut turn = Turn::default();
        engine.schedule(now, &mut turn);
        assert!(turn.notes.len() <= 3, "{:?}", turn.notes);
        let evaluated = &engine.state().evaluated;
        evaluated
            .iter()
            .map(|at| at.0 / 60_000 % 1_000)
            .collect::<Vec<_>>()
    };
    let first = at("p", 1);
    // What has just started there is a change, too.
    assert_eq!(at("q", 2), [first[0] + 1, first[0] + 1]);
    assert_eq!(at("q", 3), [first[0] + 1, first[0] + 2]);
}
