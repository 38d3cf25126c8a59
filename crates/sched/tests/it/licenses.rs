//! Licenses: counted over the cluster, kept for who waits first, reserved.

use crate::drawn::drawn;
use crate::world::{World, cluster, job, nodes, wide};
use muster_model::command::{
    Command, Identity, JobTarget, JobUpdate, NameList, Reply, ReservationAsk, UserCommand,
};
use muster_model::ids::JobId;
use muster_model::job::Reason;
use muster_model::licenses::LicenseCount;
use muster_model::spec::JobSpec;
use muster_model::time::TimeLimit;
use proptest::prelude::*;

fn with(count: u32) -> World {
    let mut config = cluster(nodes(4, 1));
    config.licenses = vec![LicenseCount::new("bar", 1), LicenseCount::new("foo", count)];
    World::new(config)
}

fn wants(licenses: &str, spec: JobSpec) -> JobSpec {
    JobSpec {
        licenses: Some(licenses.into()),
        ..spec
    }
}

#[test]
fn who_waits_for_licenses_says_so_and_is_not_passed_by() {
    let mut world = with(3);
    // A has two of three until 20; B wants three; C (20) may have one before that, D (30) may not; E needs none.
    let specs = vec![
        wants("foo:2", job(1, 20)),
        wants("foo:3", job(1, 20)),
        wants("foo:1", job(1, 20)),
        wants("foo:1", job(1, 30)),
        job(1, 50),
    ];
    let ids: Vec<JobId> = specs.into_iter().map(|s| world.submit(s)).collect();
    let expected = "\
n0 AABBDDD
n1 CC
n2 EEEEE
n3
";
    assert_eq!(drawn(&mut world, &ids[..1], 0), "n0 \nn1 \nn2 \nn3 \n");
    world.pass_by_core();
    assert_eq!(world.reason(ids[1]), Reason::Licenses);
    assert_eq!(world.reason(ids[3]), Reason::Licenses);
    assert_eq!(
        world.state.jobs[&ids[1]].expected_start,
        Some(world.now.plus_s(1200))
    );
    let drawn = drawn(&mut world, &ids, 8);
    let drawn: Vec<&str> = drawn.lines().map(str::trim_end).collect();
    assert_eq!(drawn.join("\n") + "\n", expected);
}

/// `scontrol update JobId= Licenses=`.
#[test]
fn a_job_that_waits_may_ask_for_fewer() {
    let mut world = with(3);
    let holder = world.submit(wants("foo:2", job(1, 60)));
    let waits = world.submit(wants("foo:2", job(1, 60)));
    world.pass_by_core();
    assert_eq!(world.reason(waits), Reason::Licenses);
    let ask = |job, licenses: &str| UserCommand::UpdateJob {
        target: JobTarget {
            job,
            tasks: None,
            component: None,
        },
        update: Box::new(JobUpdate {
            licenses: Some(licenses.into()),
            ..JobUpdate::default()
        }),
    };
    // More than there are is refused, and of a job that runs nothing changes.
    let root = Identity::default();
    for (id, licenses) in [(waits, "foo:4"), (holder, "foo:1")] {
        let reply = world.decide(&Command::User(root.clone(), ask(id, licenses)));
        assert!(matches!(reply, Some(Reply::Refused(_))), "{reply:?}");
    }
    world.admin(ask(waits, "foo:1"));
    assert_eq!(world.pass_by_core(), [waits]);
    let third = world.submit(wants("foo:1,bar", job(1, 60)));
    assert_eq!(world.pass_by_core(), []);
    world.admin(ask(third, ""));
    assert_eq!(world.pass_by_core(), [third]);
}

/// Who waits for licenses is not tried when nodes become free.
#[test]
fn nodes_do_not_help_who_waits_for_licenses() {
    let mut world = with(1);
    let holder = world.submit(wants("foo", job(1, 60)));
    let plain = [(); 2].map(|()| world.submit(job(1, 60)));
    let next = world.submit(wants("foo", job(1, 60)));
    world.pass_by_core();
    // Until it is known who has the licenses it may have another look.
    world.end(plain[0]);
    assert!(world.pass_by_core().is_empty());
    world.end(plain[1]);
    assert!(world.pass_by_core().is_empty());
    let cost = world.sched.cost();
    assert_eq!(
        (cost.shapes_visited, cost.nodes_visited),
        (0, 0),
        "{cost:?}"
    );
    world.end(holder);
    assert_eq!(world.pass_by_core(), [next]);
}

#[test]
fn one_of_several_will_do() {
    let mut world = with(1);
    let first = world.submit(wants("foo|bar", job(1, 20)));
    let second = world.submit(wants("foo|bar", job(1, 20)));
    let third = world.submit(wants("foo|bar", job(1, 20)));
    assert_eq!(world.pass_by_core(), [first, second]);
    let licenses = |id| {
        world.state.jobs[&id]
            .alloc
            .as_ref()
            .unwrap()
            .licenses
            .clone()
    };
    assert_eq!(licenses(first), [LicenseCount::new("foo", 1)]);
    assert_eq!(licenses(second), [LicenseCount::new("bar", 1)]);
    world.end(second);
    assert_eq!(world.pass_by_core(), [third]);
}

#[test]
fn reserved_licenses_are_for_the_reservations_jobs() {
    let mut world = with(3);
    world.admin(UserCommand::CreateReservation(Box::new(ReservationAsk {
        name: Some("r".into()),
        start: Some(world.now),
        duration: Some(TimeLimit::Minutes(60)),
        licenses: Some("foo:2".into()),
        users: Some(NameList::Only(vec!["u".into()])),
        ..ReservationAsk::default()
    })));
    world.tick();
    let outside = world.submit(wants("foo:2", job(1, 20)));
    let one = world.submit(wants("foo:1", job(1, 20)));
    let mut inside = wants("foo:2", wide(2, 2, 20));
    inside.reservation = Some("r".into());
    inside.owner.user = "u".into();
    let inside = world.submit(inside);
    let mut started = world.pass_by_core();
    started.sort_unstable();
    assert_eq!(
        started,
        [one, inside],
        "{:?} {:?}",
        world.reason(inside),
        world.state.reservations.get("r")
    );
    assert_eq!(world.reason(outside), Reason::Licenses);
    let all = world.state.licenses(world.now);
    let told: Vec<_> = all
        .iter()
        .map(|l| (l.name.as_str(), l.total, l.used, l.reserved))
        .collect();
    assert_eq!(told, [("bar", 1, 0, 0), ("foo", 3, 3, 2)]);
    world.end(inside);
    world.end(one);
    assert_eq!(world.pass_by_core(), []);
    world.state.check_invariants().unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(crate::world::cases(100)))]

    /// Never more than there are, the core agrees, and a new scheduler plans the same.
    #[test]
    fn licenses_are_never_given_twice(
        ops in proptest::collection::vec((0usize..6, 1u32..4, 1u32..5, 0usize..20), 1..50),
    ) {
        let mut world = with(3);
        let mut all: Vec<JobId> = Vec::new();
        for (kind, count, length, which) in ops {
            let text = [format!("foo:{count}"), "foo|bar".into(), "foo,bar".into(), "bar".into()];
            let spec = job(1 + count % 2, length * 10);
            all.push(world.submit(match text.get(kind) {
                Some(text) => wants(text, spec),
                None => spec,
            }));
            let running: Vec<JobId> = world.state.active.iter().copied().collect();
            if which % 2 == 0 && !running.is_empty() {
                world.end(running[which % running.len()]);
            }
            let fresh = muster_sched::Scheduler::new(&world.state).plan(&world.state, world.now);
            let plan = world.sched.plan(&world.state, world.now);
            prop_assert_eq!(&plan.starts, &fresh.starts);
            world.note(&plan);
            world.pass_by_core();
            prop_assert_eq!(world.state.check_invariants(), Ok(()));
            for license in world.state.licenses(world.now) {
                prop_assert!(license.used <= license.total);
            }
        }
    }
}
