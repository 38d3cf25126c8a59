//! Heterogeneous jobs: all components start at one instant or none does, and what they wait for is kept for them.

use crate::drawn::drawn;
use crate::world::{World, cluster, job, nodes, partition, wide};
use muster_core::event::{Event, JobChange};
use muster_model::command::{Command, Identity, Plan, Reply, UserCommand};
use muster_model::ids::{BlobId, JobId};
use muster_model::job::{Hold, Reason};
use muster_model::licenses::LicenseCount;
use muster_model::spec::{JobKind, JobSpec};
use muster_model::time::TimeLimit;
use muster_sched::Scheduler;
use muster_sched::forecast::would_start_together;
use proptest::prelude::*;
use std::collections::BTreeSet;

impl World {
    pub(crate) fn submit_het(&mut self, mut specs: Vec<JobSpec>) -> Vec<JobId> {
        let script = BlobId([1; 32]);
        for (spec, offset) in specs.iter_mut().zip(0..) {
            spec.kind = match offset {
                0 => JobKind::Batch,
                _ => JobKind::Allocation,
            };
            spec.script = (offset == 0).then_some(script);
            // As high as `World::submit` has it.
            spec.priority = Some(1000);
        }
        let count = specs.len() as u64;
        let command = UserCommand::SubmitHet {
            specs,
            blobs: vec![(script, b"#!/bin/sh\n".to_vec().into())],
            test_only: false,
        };
        let user = Identity {
            uid: 1000,
            user: "u".into(),
            ..Identity::default()
        };
        match self.decide(&Command::User(user, command)) {
            Some(Reply::Submitted { id, .. }) => (0..count).map(|n| JobId(id.0 + n)).collect(),
            other => panic!("{other:?}"),
        }
    }
}

/// Partition `p` has the first nodes, `q` the others.
fn two_partitions(p: usize, q: usize, cpus: u32) -> World {
    let all = nodes((p + q) as u32, cpus);
    let mut config = cluster(all.clone());
    config.partitions = vec![partition("p", &all[..p]), partition("q", &all[p..])];
    World::new(config)
}

fn within(name: &str, mut spec: JobSpec) -> JobSpec {
    spec.partitions = vec![name.into()];
    spec
}

#[test]
fn components_wait_for_the_last_and_their_nodes_are_kept() {
    let mut world = two_partitions(1, 1, 1);
    // A keeps n1 busy for 30 minutes. B and C are one job: C needs n1, so B's n0 is kept from then on. D (40) would
    // take it beyond, E (30) fits before.
    let mut ids = vec![world.submit(within("q", job(1, 30)))];
    ids.extend(world.submit_het(vec![job(1, 20), within("q", job(1, 20))]));
    ids.push(world.submit(job(1, 40)));
    ids.push(world.submit(job(1, 30)));
    let expected = "\
n0 EEEBBDDDD
n1 AAACC
";
    assert_eq!(drawn(&mut world, &ids, 9), expected);
}

#[test]
fn components_share_a_node() {
    let mut world = World::simple(1, 4);
    let mut ids = vec![world.submit(job(2, 20))];
    ids.extend(world.submit_het(vec![job(1, 20), job(2, 20)]));
    let expected = concat!("n0 AABB\n", "n0 AACC\n", "n0 ..CC\n", "n0 \n");
    assert_eq!(drawn(&mut world, &ids, 4), expected);
}

#[test]
fn a_component_with_a_choice_leaves_the_node_to_one_without() {
    let mut world = World::simple(2, 1);
    let mut named = job(1, 10);
    named.ask.nodelist = Some("n0".into());
    let ids = world.submit_het(vec![job(1, 10), named]);
    assert_eq!(world.pass_by_core(), ids);
    assert_eq!(
        (world.place(ids[0]), world.place(ids[1])),
        ("n1:1".into(), "n0:1".into())
    );
}

/// Each component would fit alone, but never beside the other: nobody waits behind such a job.
#[test]
fn components_that_never_fit_beside_each_other_hold_nobody_up() {
    for backfill in [true, false] {
        let mut config = cluster(nodes(2, 2));
        config.backfill = backfill;
        let mut world = World::new(config);
        let ids = world.submit_het(vec![job(3, 10), job(2, 10)]);
        let other = world.submit_with(job(1, 10), 1);
        assert_eq!(world.pass_by_core(), [other]);
        // With less they fit.
        let ask = {
            let mut spec = (*world.state.jobs[&ids[0]].spec).clone();
            spec.ask.ntasks = Some(1);
            spec
        };
        world.change(ids[0], JobChange::Spec(std::sync::Arc::new(ask)));
        assert_eq!(world.pass_by_core(), ids);
    }
}

/// A component that finds no place on its own waits for what it misses, and its whole job with it.
#[test]
fn a_het_job_waits_for_what_a_component_misses() {
    let mut world = World::simple(8, 4);
    let runs: Vec<JobId> = (0..8).map(|i| world.submit(job(4, 100 + i))).collect();
    assert_eq!(world.pass_by_core().len(), 8);
    // Behind one that waits for all nodes.
    world.submit(wide(8, 32, 100));
    let ids = world.submit_het(vec![wide(4, 16, 10), job(1, 10)]);
    assert!(world.pass_by_core().is_empty());
    assert!(world.pass_by_core().is_empty());
    // Three nodes come free one after another: that is not what four nodes miss.
    for id in &runs[..3] {
        world.end(*id);
        assert!(world.pass_by_core().is_empty());
        let cost = world.sched.cost();
        assert_eq!(
            (cost.shapes_visited, cost.nodes_visited),
            (0, 0),
            "{cost:?}"
        );
    }
    world.end(runs[3]);
    assert!(world.pass_by_core().is_empty());
    assert!(world.sched.cost().shapes_visited > 0);
    world.end(runs[4]);
    assert_eq!(world.pass_by_core(), ids);
}

#[test]
fn a_held_component_keeps_the_others_waiting_but_nobody_else() {
    let mut world = World::simple(1, 2);
    let ids = world.submit_het(vec![job(1, 10), job(1, 10)]);
    let hold = |hold, priority| JobChange::Hold { hold, priority };
    world.change(ids[1], hold(Hold::User, 0));
    let other = world.submit_with(job(2, 10), 1);
    assert_eq!(world.pass_by_core(), [other]);
    world.change(ids[1], hold(Hold::None, 1000));
    assert!(world.pass_by_core().is_empty());
    assert_eq!(world.reason(ids[0]), Reason::Resources);
    assert_eq!(world.reason(ids[1]), Reason::Resources);
    world.end(other);
    assert_eq!(world.pass_by_core(), ids);
}

#[test]
fn a_component_that_can_never_run_is_told_and_keeps_nothing() {
    let mut world = World::simple(1, 2);
    let mut spec = job(1, 10);
    spec.ask.nodelist = Some("nosuch".into());
    let mut het = vec![job(1, 10), job(1, 10)];
    het[1].ask.constraint = Some("green".into());
    let ids = {
        // The core refuses what no node has; a feature that went away later leaves such a job behind.
        let mut specs = het.clone();
        specs[1].ask.constraint = None;
        let ids = world.submit_het(specs);
        let changed = JobSpec {
            kind: JobKind::Allocation,
            owner: world.state.jobs[&ids[1]].spec.owner.clone(),
            ..het[1].clone()
        };
        world.change(ids[1], JobChange::Spec(std::sync::Arc::new(changed)));
        ids
    };
    let other = world.submit_with(job(2, 10), 1);
    assert_eq!(world.pass_by_core(), [other]);
    assert_eq!(world.reason(ids[1]), Reason::BadConstraints);
}

#[test]
fn without_backfill_it_waits_in_line() {
    let all = nodes(2, 1);
    let mut config = cluster(all);
    config.backfill = false;
    let mut world = World::new(config);
    let mut ids = vec![world.submit(job(1, 20))];
    ids.extend(world.submit_het(vec![job(1, 20), job(1, 20)]));
    ids.push(world.submit(job(1, 10)));
    let expected = "\
n0 AABBD
n1 ..CC
";
    assert_eq!(drawn(&mut world, &ids, 6), expected);
}

/// What happens in a drawn history.
#[derive(Clone, Debug)]
enum Op {
    Plain(Ask),
    Het(Vec<Ask>),
    End(usize),
    Later(u64),
    Hold(usize),
    Release(usize),
    Cancel(usize),
    Pass,
}

/// What a drawn job asks for.
#[derive(Clone, Debug)]
struct Ask {
    nodes: u32,
    tasks: u32,
    minutes: u32,
    places: Vec<&'static str>,
}

impl Ask {
    fn spec(&self) -> JobSpec {
        let mut spec = wide(self.nodes, self.tasks, self.minutes);
        spec.partitions = self.places.iter().map(|name| (*name).to_owned()).collect();
        spec
    }
}

fn asks() -> impl Strategy<Value = Ask> {
    let places = prop_oneof![Just(vec!["p"]), Just(vec!["q"]), Just(vec!["q", "p"])];
    let shape = (1u32..4, 1u32..4, 1u32..6, places);
    shape.prop_map(|(nodes, more, tens, places)| Ask {
        nodes,
        tasks: nodes + (more - 1).min(nodes),
        minutes: tens * 10,
        places,
    })
}

fn ops() -> impl Strategy<Value = Op> {
    prop_oneof![
        3 => asks().prop_map(Op::Plain),
        3 => proptest::collection::vec(asks(), 2..4).prop_map(Op::Het),
        3 => (0usize..100).prop_map(Op::End),
        1 => (1u64..2000).prop_map(Op::Later),
        1 => (0usize..100).prop_map(Op::Hold),
        1 => (0usize..100).prop_map(Op::Release),
        1 => (0usize..100).prop_map(Op::Cancel),
        4 => Just(Op::Pass),
    ]
}

fn pick(ids: &[JobId], which: usize) -> Option<JobId> {
    (!ids.is_empty()).then(|| ids[which % ids.len()])
}

fn pass(world: &mut World) -> Result<(), TestCaseError> {
    loop {
        let plan: Plan = world.sched.plan(&world.state, world.now);
        let fresh = Scheduler::new(&world.state).plan(&world.state, world.now);
        prop_assert_eq!(&plan.starts, &fresh.starts, "followed (left), anew (right)");
        let planned: BTreeSet<JobId> = plan.starts.iter().map(|s| s.job).collect();
        for part in planned.iter().filter_map(|id| world.state.jobs[id].het) {
            prop_assert!(part.ids().all(|id| planned.contains(&id)), "a part alone");
        }
        world.note(&plan);
        world.decide(&Command::Commit(plan));
        let started = |id: &JobId| world.state.active.contains(id);
        prop_assert!(planned.iter().all(started), "the core drops a start");
        prop_assert_eq!(world.state.check_invariants(), Ok(()));
        prop_assert_eq!(world.state.check_het_jobs(), Ok(()));
        if planned.is_empty() && !world.sched.needs_another_plan() {
            return Ok(());
        }
    }
}

/// The job ends if it has not, and its nodes are clean.
fn finish(world: &mut World, id: JobId) {
    if !world.state.jobs[&id].completing {
        return world.end(id);
    }
    let held = world.state.jobs[&id].nodes_held.clone();
    for position in held.iter() {
        let at = world.now;
        world.apply(&Event::NodeReleased { id, position, at });
    }
}

fn happens(world: &mut World, op: &Op) -> Result<(), TestCaseError> {
    let of = |world: &World, wanted: fn(&muster_model::job::Job) -> bool| -> Vec<JobId> {
        let jobs = world.state.jobs.values().filter(|job| wanted(job));
        jobs.map(|job| job.id).collect()
    };
    let user = |world: &mut World, command| {
        world.decide(&Command::User(Identity::default(), command));
    };
    let target = |job| muster_model::command::JobTarget {
        job,
        tasks: None,
        component: None,
    };
    match op {
        Op::Plain(ask) => {
            world.submit(ask.spec());
        }
        Op::Het(asks) => {
            world.submit_het(asks.iter().map(Ask::spec).collect());
        }
        Op::End(which) => {
            let runs = of(world, |job| !job.nodes_held.is_empty());
            if let Some(id) = pick(&runs, *which) {
                finish(world, id);
            }
        }
        Op::Later(s) => {
            world.now = world.now.plus_s(*s);
            world.tick();
        }
        Op::Hold(which) => {
            let waits = of(world, |job| job.is_startable());
            if let Some(id) = pick(&waits, *which) {
                let command = UserCommand::Hold {
                    target: target(id),
                    user: true,
                };
                user(world, command);
            }
        }
        Op::Release(which) => {
            let held = of(world, |job| job.hold != Hold::None);
            if let Some(id) = pick(&held, *which) {
                user(world, UserCommand::Release { target: target(id) });
            }
        }
        Op::Cancel(which) => {
            let waits = of(world, |job| job.is_startable());
            if let Some(id) = pick(&waits, *which) {
                let selection = muster_model::command::JobSelection {
                    targets: vec![target(id)],
                    ..Default::default()
                };
                user(world, UserCommand::Cancel { selection });
            }
        }
        Op::Pass => pass(world)?,
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(crate::world::cases(64)))]

    /// Whatever happens: never a part alone, the plan that follows events is the plan made anew, and once all that
    /// runs has ended often enough nothing is left waiting that could run.
    #[test]
    fn whole_or_not_at_all(history in proptest::collection::vec(ops(), 1..40)) {
        let all = nodes(6, 2);
        let mut config = cluster(all.clone());
        config.partitions = vec![partition("p", &all[..4]), partition("q", &all[2..])];
        let mut world = World::new(config);
        for op in &history {
            happens(&mut world, op)?;
        }
        let held: Vec<JobId> = world.state.pending.iter().copied().collect();
        for id in held {
            if world.state.jobs[&id].hold != Hold::None {
                world.change(id, JobChange::Hold { hold: Hold::None, priority: 1000 });
            }
        }
        for _ in 0..=world.state.jobs.len() {
            pass(&mut world)?;
            let over: Vec<JobId> = world.state.active.iter().copied().collect();
            over.into_iter().for_each(|id| finish(&mut world, id));
            world.now = world.now.plus_s(60);
        }
        for id in &world.state.pending {
            let job = &world.state.jobs[id];
            let nodes: u32 = job.het.map_or(0, |part| {
                world.state.het_jobs(part).map(|job| job.spec.ask.min_nodes).sum()
            });
            prop_assert!(nodes > 4, "job {id} never starts: {:?}", job.reason);
        }
    }
}

/// What is kept for a component that is not the first of its partition is given up with the rest.
#[test]
fn who_a_heterogeneous_job_kept_back_starts_once_it_is_held() {
    let all = nodes(6, 2);
    let mut config = cluster(all.clone());
    config.partitions = vec![partition("p", &all[..4]), partition("q", &all[2..])];
    let mut world = World::new(config);
    let in_q = |nodes, tasks| within("q", wide(nodes, tasks, 10));
    let before = world.submit_het(vec![job(1, 10), job(1, 10)]);
    world.submit(wide(2, 4, 10));
    let het = world.submit_het(vec![in_q(2, 4), in_q(2, 2)]);
    pass(&mut world).unwrap();
    finish(&mut world, before[0]);
    let kept_back = world.submit(wide(1, 2, 10));
    world.now = world.now.plus_s(1);
    pass(&mut world).unwrap();
    assert!(!world.state.active.contains(&kept_back));
    let hold = JobChange::Hold {
        hold: Hold::User,
        priority: 0,
    };
    world.change(het[0], hold);
    pass(&mut world).unwrap();
    assert!(world.state.active.contains(&kept_back));
}

/// Components are placed one after another: less room for one may lead to a place for all.
#[test]
fn a_start_of_another_may_make_components_fit() {
    let all = nodes(6, 2);
    let mut config = cluster(all.clone());
    config.partitions = vec![partition("p", &all[..4]), partition("q", &all[2..])];
    let mut world = World::new(config);
    // First in both partitions, and too large for one of them.
    world.submit_het(vec![
        within("q", job(1, 10)),
        wide(2, 4, 10),
        wide(3, 3, 10),
    ]);
    let choice = JobSpec {
        partitions: vec!["q".into(), "p".into()],
        ..wide(3, 3, 10)
    };
    let het = world.submit_het(vec![choice, within("q", wide(2, 4, 10))]);
    assert_eq!(world.pass_by_core(), []);
    let mut named = job(1, 10);
    named.ask.nodelist = Some("n2".into());
    let other = world.submit(named);
    assert_eq!(world.pass_by_core(), [other]);
    assert_eq!(world.pass_by_core(), het);
}

#[test]
fn a_limit_of_one_component_does_not_count_for_another() {
    let mut world = World::simple(2, 1);
    let ids = world.submit_het(vec![job(1, 10), job(1, 30)]);
    world.pass_by_core();
    let limits: Vec<TimeLimit> = ids
        .iter()
        .map(|id| world.state.jobs[id].time_limit)
        .collect();
    assert_eq!(limits, [TimeLimit::Minutes(10), TimeLimit::Minutes(30)]);
}

#[test]
fn components_get_their_licenses_or_none_starts() {
    let mut config = cluster(nodes(3, 1));
    config.licenses = vec![LicenseCount::new("foo", 2)];
    let mut world = World::new(config);
    let licensed = |count: u32, spec: JobSpec| JobSpec {
        licenses: Some(format!("foo:{count}")),
        ..spec
    };
    let alone = world.submit(licensed(1, job(1, 30)));
    world.pass_by_core();
    // One is left: each component could have it, both cannot.
    let both = world.submit_het(vec![licensed(1, job(1, 20)), licensed(1, job(1, 20))]);
    assert_eq!(world.pass_by_core(), []);
    world.end(alone);
    assert_eq!(world.pass_by_core(), both);
    let has = |id: &JobId| {
        world.state.jobs[id]
            .alloc
            .as_ref()
            .unwrap()
            .licenses
            .clone()
    };
    assert!(
        both.iter()
            .all(|id| has(id) == [LicenseCount::new("foo", 1)])
    );
    world.state.check_invariants().unwrap();
}

#[test]
fn when_components_would_start_is_known_before_submitting() {
    let mut world = World::simple(2, 4);
    world.submit(job(7, 30));
    world.pass();
    let identity = Identity {
        uid: 1000,
        user: "u".into(),
        ..Identity::default()
    };
    let expected = |specs: Vec<JobSpec>| {
        let specs: Vec<JobSpec> = specs
            .into_iter()
            .map(|mut spec| {
                spec.kind = JobKind::Allocation;
                spec
            })
            .collect();
        would_start_together(&world.state, &identity, &specs, world.now)
    };
    let (_, start) = expected(vec![job(1, 5), job(4, 5)]).unwrap();
    assert_eq!((start.at, start.cpus), (world.now.plus_s(30 * 60), 5));
    assert!(expected(vec![job(1, 5), job(9, 5)]).is_err());
}
