//! What one user's jobs make of lanes, whatever they name: the scheduler gets submissions that no check of the core has
//! looked at, as a journal of an older version may have them.

use crate::world::{World, cluster, job, nodes, partition};
use muster_model::command::{NameList, ReservationAsk, UserCommand};
use muster_model::job::Reason;
use muster_model::licenses::LicenseCount;
use muster_model::spec::JobSpec;
use muster_model::time::TimeLimit;
use muster_sched::{NODES_PER_CHECK, NODES_PER_PASS_MAX};

/// Lanes that jobs of one user have, and one for each further shape.
const LANES_OF_USER: usize = 100_000;

/// A node of so many CPUs with partitions `p`, `p1`, `p2`, ...
fn world(cpus: u32, partitions: usize) -> World {
    let mut config = cluster(nodes(1, cpus));
    let more = (1..partitions).map(|n| partition(&format!("p{n}"), &config.nodes));
    let more: Vec<_> = more.collect();
    config.partitions.extend(more);
    config.licenses = vec![LicenseCount::new("foo", 64)];
    World::new(config)
}

fn all_partitions(world: &World, spec: JobSpec) -> JobSpec {
    let names = world.state.partitions.iter().map(|p| p.name.clone());
    JobSpec {
        partitions: names.collect(),
        ..spec
    }
}

#[test]
fn what_is_named_again_is_no_further_lane() {
    let mut world = world(1, 2);
    for (name, minutes) in [("r", 60), ("s", 120)] {
        let ask = ReservationAsk {
            name: Some(name.into()),
            start: Some(world.now.plus_s(minutes * 60)),
            duration: Some(TimeLimit::Minutes(30)),
            nodes: Some("n0".into()),
            users: Some(NameList::AllBut(vec!["nobody".into()])),
            ..ReservationAsk::default()
        };
        world.admin(UserCommand::CreateReservation(Box::new(ask)));
    }
    let repeated = JobSpec {
        partitions: ["p", "p1"]
            .repeat(500)
            .into_iter()
            .map(str::to_owned)
            .collect(),
        ..job(1, 10)
    };
    let plain = world.submit(repeated.clone());
    assert_eq!(world.pass(), [plain]);
    world.submit(repeated.clone());
    world.pass();
    assert_eq!(world.sched.lanes(), 2);
    world.submit(JobSpec {
        reservation: Some("r,s,".repeat(10_000)),
        ..repeated
    });
    world.pass();
    assert_eq!(world.sched.lanes(), 2 + 4);
}

#[test]
fn lanes_of_one_user_are_bounded_and_others_jobs_go_on() {
    let mut world = world(1, 1000);
    let holder = world.submit(job(1, 10));
    assert_eq!(world.pass(), [holder]);
    let spec = all_partitions(&world, job(1, 1));
    let ids: Vec<_> = (0..120)
        .map(|n| {
            let time_limit = Some(TimeLimit::Minutes(100 + n));
            let spec = JobSpec {
                time_limit,
                ..spec.clone()
            };
            // The last one comes first, but for the other user's.
            world.submit_with(spec, 1000 + n)
        })
        .collect();
    world.pass();
    let lanes = world.sched.lanes();
    assert_eq!(lanes, LANES_OF_USER + 20);
    // The same of another user has all of its partitions.
    let mut other = spec;
    other.time_limit = Some(TimeLimit::Minutes(219));
    other.owner.uid = 1001;
    let other = world.submit_with(other, 2000);
    world.pass();
    assert_eq!(world.sched.lanes(), lanes + 1000);
    world.end(holder);
    assert_eq!(world.pass(), [other]);
    // Those that are tried in one partition run, too.
    world.end(other);
    assert_eq!(world.pass(), ids[119..]);
    world.pass();
    assert_eq!(world.sched.lanes(), lanes - 1);
}

/// Comparing licenses looks at no node, and is work all the same.
#[test]
fn comparing_licenses_ends_a_pass_that_goes_on_with_the_next() {
    let mut world = world(2, 1);
    let wants = |text: &str, minutes| JobSpec {
        licenses: Some(text.into()),
        ..job(1, minutes)
    };
    let holder = world.submit(wants("foo:64", 10));
    assert_eq!(world.pass(), [holder]);
    let each: Vec<String> = (1..=64).map(|n| format!("foo:{n}")).collect();
    let text = each.join("|");
    let ids: Vec<_> = (0..4000)
        .map(|n| world.submit(wants(&text, 100 + n)))
        .collect();
    let passes = |world: &mut World| {
        for pass in 1..=10 {
            world.pass();
            let checks = world.sched.cost().checks;
            assert!(
                checks <= NODES_PER_PASS_MAX / NODES_PER_CHECK + 65,
                "{checks}"
            );
            if !world.sched.needs_another_plan() {
                return pass;
            }
        }
        panic!("the passes come to no end");
    };
    assert_eq!(passes(&mut world), 3);
    assert_eq!(world.reason(ids[0]), Reason::Licenses);
    world.end(holder);
    // The first takes a license; the others are compared again.
    let plain = world.submit(job(1, 5));
    passes(&mut world);
    assert_ne!(world.place(ids[0]), "-");
    assert_ne!(
        (world.place(ids[1]), world.place(plain)),
        ("-".into(), "-".into())
    );
}
