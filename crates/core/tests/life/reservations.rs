//! Reservations: making, changing, deleting, who may, what becomes of them and of jobs.

mod access;
mod cores;

use crate::world::{World, after, config, node_config, on as condition, partition, spec, target};
use muster_core::state::State;
use muster_model::command::{
    JobUpdate, NameList, NodeUpdate, PlannedStart, Reply, ReservationAsk, UserCommand,
};
use muster_model::ids::{JobId, NodeIdx};
use muster_model::job::{Hold, JobState, Reason};
use muster_model::refusal::{Refusal, RefusalCode};
use muster_model::reservation::{Flags, Reservation};
use muster_model::spec::{DependencyKind, JobSpec};
use muster_model::time::{TimeLimit, Timestamp};

fn ask(world: &World, name: &str, start_s: u64, minutes: u32) -> ReservationAsk {
    ReservationAsk {
        name: Some(name.into()),
        start: Some(world.now.plus_s(start_s)),
        duration: Some(TimeLimit::Minutes(minutes)),
        users: Some(NameList::Only(vec!["u1000".into()])),
        ..ReservationAsk::default()
    }
}

fn on(world: &World, name: &str, start_s: u64, minutes: u32, nodes: &str) -> ReservationAsk {
    ReservationAsk {
        nodes: Some(nodes.into()),
        ..ask(world, name, start_s, minutes)
    }
}

fn create(world: &mut World, ask: ReservationAsk) -> Result<String, RefusalCode> {
    match world.user(0, UserCommand::CreateReservation(Box::new(ask))) {
        Reply::Reserved { name } => Ok(name),
        Reply::Refused(Refusal { code, .. }) => Err(code),
        other => panic!("{other:?}"),
    }
}

fn update(world: &mut World, ask: ReservationAsk) -> Result<(), RefusalCode> {
    match world.user(0, UserCommand::UpdateReservation(Box::new(ask))) {
        Reply::Done { .. } => Ok(()),
        Reply::Refused(Refusal { code, .. }) => Err(code),
        other => panic!("{other:?}"),
    }
}

fn named(name: &str) -> ReservationAsk {
    ReservationAsk {
        name: Some(name.into()),
        ..ReservationAsk::default()
    }
}

fn get<'w>(world: &'w World, name: &str) -> &'w Reservation {
    world.state.reservations.get(name).expect("it was made")
}

fn inside(name: &str) -> JobSpec {
    JobSpec {
        reservation: Some(name.into()),
        ..spec("inside")
    }
}

/// Starts a job on the first node, in reservation `r`.
fn start_inside(w: &mut World, job: JobId) {
    let mut alloc = w.alloc(job, &[0], 1);
    alloc.reservation = Some("r".into());
    assert_eq!(w.plan(vec![PlannedStart { job, alloc }]), 1);
}

#[test]
fn making_one() {
    let mut w = World::new();
    let r = on(&w, "r", 600, 60, "n[1-2]");
    assert_eq!(create(&mut w, r.clone()), Ok("r".into()));
    let made = get(&w, "r");
    assert_eq!(made.hostlist, "n[1-2]");
    assert_eq!(made.end.since_ms(made.start), 3_600_000);
    assert!(made.flags == Flags::SPEC_NODES && !made.active);
    assert_eq!(create(&mut w, r.clone()), Err(RefusalCode::Duplicate));
    let other = on(&w, "x", 1200, 60, "n2");
    assert_eq!(
        create(&mut w, other.clone()),
        Err(RefusalCode::ReservationOverlap)
    );
    let maint = ReservationAsk {
        flags: Flags::MAINT,
        ..other
    };
    assert_eq!(create(&mut w, maint), Ok("x".into()));
    let later = on(&w, "y", 600 + 3600, 60, "n2");
    assert_eq!(
        create(&mut w, later),
        Ok("y".into()),
        "one ends when the next begins"
    );
    let nameless = ReservationAsk {
        name: None,
        ..on(&w, "", 90_000, 60, "n1")
    };
    assert_eq!(create(&mut w, nameless), Ok("u1000_4".into()));
    for (wrong, code) in [
        (on(&w, "z", 0, 60, "nosuch"), RefusalCode::InvalidNode),
        (on(&w, "z", 0, 0, "n3"), RefusalCode::InvalidTime),
        (ask(&w, "z", 0, 5), RefusalCode::NodeConfigUnavailable),
        (
            ReservationAsk {
                users: None,
                ..on(&w, "z", 0, 5, "n3")
            },
            RefusalCode::ReservationEmpty,
        ),
        (
            ReservationAsk {
                groups: Some(NameList::Only(vec!["g".into()])),
                ..on(&w, "z", 0, 5, "n3")
            },
            RefusalCode::UsersAndGroups,
        ),
        (
            ReservationAsk {
                licenses: Some("foo".into()),
                ..on(&w, "z", 0, 5, "n3")
            },
            RefusalCode::InvalidLicense,
        ),
        (
            ReservationAsk {
                flags: Flags::HOURLY,
                ..on(&w, "z", 0, 90, "n3")
            },
            RefusalCode::InvalidTime,
        ),
        (
            ReservationAsk {
                start: Some(Timestamp(0)),
                ..on(&w, "z", 0, 90, "n3")
            },
            RefusalCode::InvalidTime,
        ),
        (
            ReservationAsk {
                flags: Flags::PART_NODES,
                ..on(&w, "z", 0, 90, "n3")
            },
            RefusalCode::InvalidNode,
        ),
    ] {
        let shown = format!("{wrong:?}");
        // A clock that stands at 1000 s has no past of ten minutes.
        w.now = w.now.max(Timestamp::from_unix_s(1000));
        assert_eq!(create(&mut w, wrong), Err(code), "{shown}");
    }
    assert_eq!(
        w.refused(1000, UserCommand::CreateReservation(Box::new(r))),
        RefusalCode::AccessDenied
    );
}

#[test]
fn nodes_by_number() {
    let mut w = World::new();
    let busy = w.submit(spec("busy"));
    assert!(w.start(busy, &[0]));
    let two = ReservationAsk {
        node_count: Some(2),
        ..ask(&w, "two", 0, 60)
    };
    assert_eq!(create(&mut w, two.clone()), Ok("two".into()));
    assert_eq!(get(&w, "two").hostlist, "n[2-3]");
    let more = ReservationAsk {
        name: Some("more".into()),
        node_count: Some(1),
        ..two.clone()
    };
    assert_eq!(create(&mut w, more.clone()), Err(RefusalCode::NodesBusy));
    let anyway = ReservationAsk {
        flags: Flags::IGNORE_JOBS,
        ..more.clone()
    };
    assert_eq!(create(&mut w, anyway), Ok("more".into()));
    let many = ReservationAsk {
        node_count: Some(9),
        ..named("many")
    };
    let many = ReservationAsk {
        name: many.name,
        node_count: many.node_count,
        ..two
    };
    assert_eq!(
        create(&mut w, many),
        Err(RefusalCode::NodeConfigUnavailable)
    );
    // A node that goes out of service is replaced as soon as there is another.
    w.must(
        0,
        UserCommand::DeleteReservation {
            name: "more".into(),
        },
    );
    w.finish(busy, 0);
    w.must(
        0,
        UserCommand::UpdateNodes {
            nodes: "n2".into(),
            update: NodeUpdate {
                state: Some("DRAIN".into()),
                reason: Some("test".into()),
                ..NodeUpdate::default()
            },
        },
    );
    assert_eq!(get(&w, "two").hostlist, "n[1,3]");
}

#[test]
fn who_may_submit_into_it() {
    let mut w = World::new();
    let r = on(&w, "r", 600, 60, "n1");
    create(&mut w, r).unwrap();
    w.submit(inside("r"));
    let refusal = |w: &mut World, uid, name| w.try_submit(uid, inside(name)).unwrap_err().code;
    assert_eq!(refusal(&mut w, 1001, "r"), RefusalCode::ReservationAccess);
    assert_eq!(
        refusal(&mut w, 1000, "nosuch"),
        RefusalCode::InvalidReservation
    );
    let all = ReservationAsk {
        users: Some(NameList::Add(vec!["u1001".into()])),
        ..named("r")
    };
    update(&mut w, all).unwrap();
    w.try_submit(1001, inside("r")).unwrap();
    let other = w.submit(spec("other"));
    let update = |name: &str| UserCommand::UpdateJob {
        target: target(other),
        update: Box::new(JobUpdate {
            reservation: Some(name.into()),
            ..JobUpdate::default()
        }),
    };
    assert_eq!(
        w.refused(1000, update("nosuch")),
        RefusalCode::InvalidReservation
    );
    w.must(1000, update("r"));
    assert!(w.state.by_reservation["r"].contains(&other));
    let delete = UserCommand::DeleteReservation { name: "r".into() };
    assert_eq!(w.refused(0, delete.clone()), RefusalCode::ReservationBusy);
    let ids: Vec<JobId> = w.state.by_reservation["r"].iter().copied().collect();
    for id in ids {
        let uid = w.job(id).spec.owner.uid;
        w.cancel(uid, target(id));
    }
    assert_eq!(w.refused(1000, delete.clone()), RefusalCode::AccessDenied);
    w.must(0, delete);
    assert!(w.state.reservations.is_empty() && w.state.by_reservation.is_empty());
}

#[test]
fn updates() {
    let mut w = World::new();
    let r = on(&w, "r", 600, 60, "n1");
    create(&mut w, r).unwrap();
    let start = get(&w, "r").start;
    let change = ReservationAsk {
        start: Some(start.plus_s(60)),
        flags: Flags::DAILY,
        comment: Some("c".into()),
        nodes: Some("n[2-3]".into()),
        ..named("r")
    };
    update(&mut w, change).unwrap();
    let changed = get(&w, "r");
    assert_eq!(
        (changed.start, changed.end),
        (start.plus_s(60), start.plus_s(3660))
    );
    assert_eq!(changed.hostlist, "n[2-3]");
    assert!(changed.flags.has(Flags::DAILY) && changed.comment.as_deref() == Some("c"));
    let skip = ReservationAsk {
        skip: true,
        ..named("r")
    };
    update(&mut w, skip.clone()).unwrap();
    assert_eq!(get(&w, "r").start, start.plus_s(60 + 86_400));
    let once = ReservationAsk {
        flags_removed: Flags::DAILY,
        ..named("r")
    };
    update(&mut w, once).unwrap();
    assert_eq!(update(&mut w, skip), Err(RefusalCode::NotSkippable));
    assert_eq!(
        update(&mut w, named("nosuch")),
        Err(RefusalCode::InvalidReservation)
    );
    let end = get(&w, "r").end;
    for (sign, end) in [('+', end.plus_s(1800)), ('-', end)] {
        let length = ReservationAsk {
            duration: Some(TimeLimit::Minutes(30)),
            duration_sign: Some(sign),
            ..named("r")
        };
        update(&mut w, length).unwrap();
        assert_eq!(get(&w, "r").end, end, "{sign}");
    }
    let less = ReservationAsk {
        node_count: Some(1),
        ..named("r")
    };
    update(&mut w, less).unwrap();
    assert_eq!(get(&w, "r").hostlist, "n2");
    w.now = get(&w, "r").start;
    w.tick();
    assert!(get(&w, "r").active);
    let again = ReservationAsk {
        start: Some(w.now.plus_s(600)),
        ..named("r")
    };
    assert_eq!(update(&mut w, again), Err(RefusalCode::ReservationStarted));
}

#[test]
fn its_end_is_the_end_of_its_jobs() {
    let mut w = World::new();
    let r = on(&w, "r", 0, 10, "n1");
    create(&mut w, r).unwrap();
    let (a, b) = (w.submit(inside("r")), w.submit(inside("r")));
    // Nobody else has the node.
    let outside = w.submit(spec("outside"));
    assert!(!w.start(outside, &[0]) && !w.start(a, &[0]));
    start_inside(&mut w, a);
    assert_eq!(w.job(a).end_by, Some(w.now.plus_s(600)));
    let longer = ReservationAsk {
        duration: Some(TimeLimit::Minutes(20)),
        ..named("r")
    };
    update(&mut w, longer).unwrap();
    assert_eq!(w.job(a).end_by, Some(w.now.plus_s(1200)));
    w.now = w.now.plus_s(1200);
    w.tick();
    assert_eq!(w.state_of(a), (JobState::Timeout, Reason::TimeLimit));
    assert_eq!(
        w.state_of(b),
        (JobState::Pending, Reason::ReservationDeleted)
    );
    assert_eq!(w.job(b).hold, Hold::User);
    assert!(w.state.reservations.is_empty());
    w.must(1000, UserCommand::Release { target: target(b) });
    assert_eq!(w.state_of(b), (JobState::Pending, Reason::None));
}

#[test]
fn its_end_lets_no_job_wait_for_what_can_not_come() {
    let mut w = World::new();
    let r = on(&w, "r", 0, 10, "n1");
    create(&mut w, r).unwrap();
    let failed = w.submit(spec("failed"));
    let waits = w.submit(JobSpec {
        dependency: after(vec![condition(DependencyKind::AfterOk, failed)]),
        ..inside("r")
    });
    w.cancel(1000, target(failed));
    assert_eq!(w.job(waits).reason, Reason::DependencyNeverSatisfied);
    w.now = w.now.plus_s(600);
    w.tick();
    assert!(w.state.reservations.is_empty());
    let target = target(waits);
    w.must(1000, UserCommand::Release { target });
    assert_eq!(w.job(waits).reason, Reason::DependencyNeverSatisfied);
}

#[test]
fn unused_ones_are_purged() {
    let mut w = World::new();
    let r = ReservationAsk {
        flags: Flags::PURGE_COMP,
        purge_s: Some(120),
        ..on(&w, "r", 0, 60, "n1")
    };
    create(&mut w, r).unwrap();
    let a = w.submit(inside("r"));
    start_inside(&mut w, a);
    assert_eq!(get(&w, "r").idle_since, None);
    w.now = w.now.plus_s(600);
    w.tick();
    w.finish(a, 0);
    assert_eq!(get(&w, "r").idle_since, Some(w.now));
    w.now = w.now.plus_s(119);
    w.tick();
    assert!(!w.state.reservations.is_empty());
    w.now = w.now.plus_s(1);
    w.tick();
    assert!(w.state.reservations.is_empty());
}

#[test]
fn whole_partitions_are_followed() {
    let mut w = World::new();
    let partition = w.state.partitions[0].name.clone();
    let r = ReservationAsk {
        partition: Some(partition.clone()),
        flags: Flags::PART_NODES,
        ..on(&w, "r", 600, 60, "ALL")
    };
    create(&mut w, r).unwrap();
    let before = get(&w, "r").nodes.len();
    w.must(
        0,
        UserCommand::UpdatePartition {
            name: partition,
            pairs: vec![("Nodes".into(), "n1".into())],
            read: Vec::new(),
        },
    );
    assert!(before > 1);
    assert_eq!(get(&w, "r").hostlist, "n1");
}

#[test]
fn a_named_partition_is_followed_until_other_nodes_are_named() {
    let mut w = World::new();
    let partition = w.state.partitions[0].name.clone();
    let whole = ReservationAsk {
        partition: Some(partition.clone()),
        ..ask(&w, "r", 600, 60)
    };
    create(&mut w, whole).unwrap();
    let of_partition = Flags::SPEC_NODES.with(Flags::PART_NODES);
    assert!(get(&w, "r").flags == of_partition);
    let all = get(&w, "r").hostlist.clone();
    let update = |change: ReservationAsk| ReservationAsk {
        name: Some("r".into()),
        ..change
    };
    let nodes = |text: &str, flags| {
        update(ReservationAsk {
            nodes: Some(text.into()),
            flags,
            ..ReservationAsk::default()
        })
    };
    let change = |w: &mut World, ask| w.must(0, UserCommand::UpdateReservation(Box::new(ask)));
    change(&mut w, nodes("n1", Flags::default()));
    assert_eq!(get(&w, "r").hostlist, "n1");
    assert!(get(&w, "r").flags == Flags::SPEC_NODES);
    let refused = |w: &mut World, ask| w.refused(0, UserCommand::UpdateReservation(Box::new(ask)));
    let flag_alone = update(ReservationAsk {
        flags: Flags::PART_NODES,
        ..ReservationAsk::default()
    });
    assert_eq!(
        refused(&mut w, flag_alone.clone()),
        RefusalCode::InvalidNode
    );
    change(&mut w, nodes("ALL", Flags::PART_NODES));
    assert_eq!(get(&w, "r").hostlist, all);
    assert!(get(&w, "r").flags == of_partition);
    // Without a partition there is none to follow.
    let none = update(ReservationAsk {
        partition: Some(String::new()),
        ..ReservationAsk::default()
    });
    change(&mut w, none);
    assert_eq!(get(&w, "r").partition, None);
    assert_eq!(get(&w, "r").hostlist, all);
    assert!(get(&w, "r").flags == Flags::SPEC_NODES);
    assert_eq!(refused(&mut w, flag_alone), RefusalCode::InvalidPartition);
}

#[test]
fn they_survive_a_snapshot() {
    let mut w = World::with(config());
    let r = ReservationAsk {
        flags: Flags::DAILY,
        ..on(&w, "r", 600, 60, "n1")
    };
    create(&mut w, r).unwrap();
    let mut bytes = Vec::new();
    w.state.encode_snapshot(&mut bytes);
    let read = State::decode_snapshot(&bytes).unwrap();
    assert_eq!(read.reservations, w.state.reservations);
    assert_eq!(read.digest(), w.state.digest());
}

#[test]
fn nodes_may_be_reserved_twice_only_where_that_is_said() {
    let mut w = World::new();
    let first = on(&w, "first", 600, 60, "n1");
    create(&mut w, first).unwrap();
    let again = on(&w, "again", 600, 60, "n1");
    assert_eq!(
        create(&mut w, again.clone()),
        Err(RefusalCode::ReservationOverlap)
    );
    for (flag, name) in [(Flags::OVERLAP, "over"), (Flags::MAINT, "maint")] {
        let over = ReservationAsk {
            name: Some(name.into()),
            flags: flag,
            ..again.clone()
        };
        assert_eq!(create(&mut w, over), Ok(name.into()));
    }
    // At another time they are free for all.
    let later = on(&w, "later", 4200, 60, "n1");
    assert_eq!(create(&mut w, later), Ok("later".into()));
}

/// Nodes that are counted are those that no maintenance has at that time; named ones may be.
#[test]
fn maintenance_is_kept_out_of_the_way() {
    let mut w = World::new();
    let maint = ReservationAsk {
        flags: Flags::MAINT,
        ..on(&w, "maint", 600, 10, "n1")
    };
    create(&mut w, maint).unwrap();
    for (name, start_s, expected) in [
        ("meets", 0, Ok("n2")),
        ("after", 6000, Ok("n1")),
        ("beside", 600, Ok("n3")),
        ("busy", 600, Err(RefusalCode::NodesBusy)),
    ] {
        let asked = ReservationAsk {
            node_count: Some(1),
            ..ask(&w, name, start_s, 30)
        };
        let made = create(&mut w, asked);
        let made = made.map(|name| w.state.reservations.get(&name).unwrap().hostlist.clone());
        assert_eq!(made, expected.map(str::to_owned), "{name}");
    }
    let named = on(&w, "named", 600, 30, "n1");
    create(&mut w, named).unwrap();
}

/// The next node takes the place of one that gets a job (`REPLACE`), or that fails (either).
#[test]
fn nodes_are_replaced_as_the_flags_say() {
    for (flag, by_job) in [(Flags::REPLACE, true), (Flags::REPLACE_DOWN, false)] {
        let mut w = World::new();
        let r = ReservationAsk {
            node_count: Some(1),
            flags: flag,
            ..ask(&w, "r", 0, 60)
        };
        create(&mut w, r).unwrap();
        assert_eq!(get(&w, "r").hostlist, "n1");
        let a = w.submit(inside("r"));
        start_inside(&mut w, a);
        w.tick();
        let after = if by_job { "n2" } else { "n1" };
        assert_eq!(get(&w, "r").hostlist, after, "{flag:?}");
        w.must(
            0,
            UserCommand::UpdateNodes {
                nodes: after.into(),
                update: NodeUpdate {
                    state: Some("DRAIN".into()),
                    reason: Some("test".into()),
                    ..NodeUpdate::default()
                },
            },
        );
        assert_ne!(get(&w, "r").hostlist, after, "{flag:?}");
    }
    let mut w = World::new();
    let named_nodes = ReservationAsk {
        flags: Flags::REPLACE,
        ..on(&w, "r", 0, 60, "n1")
    };
    assert!(create(&mut w, named_nodes).is_err());
}

#[test]
fn repeating_ones_go_on_to_their_next_day() {
    // 1970-01-12 13:46:40 UTC, when the world begins, is a Monday.
    let days = [(Flags::DAILY, 1), (Flags::WEEKDAY, 1), (Flags::WEEKLY, 7)];
    for (flag, day) in days {
        let mut w = World::new();
        let r = ReservationAsk {
            flags: flag,
            ..on(&w, "r", 60, 10, "n1")
        };
        create(&mut w, r).unwrap();
        let first = get(&w, "r").start;
        w.now = first;
        w.tick();
        assert!(get(&w, "r").active, "{flag:?}");
        w.now = w.now.plus_s(600);
        w.tick();
        let next = get(&w, "r");
        let weekend = flag == Flags::WEEKDAY && next.start.since_ms(first) > 86_400_000;
        assert!(!next.active, "{flag:?}");
        assert!(
            weekend || next.start == first.plus_s(day * 86_400),
            "{flag:?}: {:?}",
            next.start
        );
    }
}

#[test]
fn one_that_floats_never_begins() {
    let mut w = World::new();
    let r = ReservationAsk {
        flags: Flags::TIME_FLOAT,
        ..on(&w, "r", 600, 60, "n1")
    };
    create(&mut w, r).unwrap();
    w.now = w.now.plus_s(1200);
    w.tick();
    let r = get(&w, "r");
    assert!(!r.active);
    let (begin, _) = r.occurrences(w.now).next().unwrap();
    assert_eq!(begin, w.now.plus_s(600));
}

/// Eight nodes: n1 to n4 have `a`, the others `b`; n3, n4 and n8 have `c`, too. What real Slurm (22.05) gives, but for
/// what it gets wrong: it takes nodes without the features where there are not enough with them.
fn featured() -> World {
    let mut config = config();
    config.nodes = (1..=8)
        .map(|i| {
            let mut node = node_config(&format!("n{i}"), 4, 4000);
            let base = if i <= 4 { "a" } else { "b" };
            node.features = vec![base.to_owned()];
            node.features
                .extend([3, 4, 8].contains(&i).then(|| "c".to_owned()));
            node
        })
        .collect();
    let all = ["n1", "n2", "n3", "n4", "n5", "n6", "n7", "n8"];
    config.partitions = vec![partition("batch", &all, true)];
    World::with(config)
}

fn by_features(w: &World, count: u32, features: &str) -> ReservationAsk {
    ReservationAsk {
        node_count: Some(count),
        features: Some(features.into()),
        ..ask(w, "r", 600, 60)
    }
}

#[test]
fn features_say_which_nodes_and_how_many() {
    use RefusalCode::{InvalidFeature, NodeConfigUnavailable as Unavailable};
    for (count, features, expected) in [
        (2, "a", Ok("n[1-2]")),
        (6, "a", Err(Unavailable)),
        (6, "a|b", Ok("n[1-6]")),
        (1, "a&c", Ok("n3")),
        (3, "a&c", Err(Unavailable)),
        (2, "a,c", Ok("n[3-4]")),
        (3, "(a|b)&c", Ok("n[3-4,8]")),
        (4, "(a|b)&c", Err(Unavailable)),
        // In brackets counts say how many nodes there are, whatever NodeCnt says.
        (4, "[a*2&b*2]", Ok("n[1-2,5-6]")),
        (6, "[a*2&b*2]", Ok("n[1-2,5-6]")),
        (2, "[a*2&b*2]", Ok("n[1-2,5-6]")),
        (3, "[(a&c)*2&b*1]", Ok("n[3-5]")),
        // Each node counts once: n3 and n4 are c, so that n1 and n2 are left to be a.
        (4, "[a*2&c*2]", Ok("n[1-4]")),
        (4, "[c*2&a*2]", Ok("n[1-4]")),
        (5, "[a*2&c*3]", Ok("n[1-4,8]")),
        (6, "[a*3&c*3]", Err(Unavailable)),
        (6, "[a*5&b*1]", Err(Unavailable)),
        // Else so many at least.
        (5, "a*2", Ok("n[1-5]")),
        (5, "b*3", Ok("n[1-2,5-7]")),
        (4, "a*1&b*3", Ok("n[1,5-7]")),
        // One of the groups for all.
        (4, "[a|b]", Ok("n[1-4]")),
        (3, "[(a&c)|b]", Ok("n[5-7]")),
        (6, "[a|b]", Err(Unavailable)),
        (2, "nosuch", Err(InvalidFeature)),
        (2, "[a", Err(InvalidFeature)),
        (2, "a)", Err(InvalidFeature)),
        (2, "a*0", Err(InvalidFeature)),
        (2, "a*x", Err(InvalidFeature)),
        (2, "a*2|b*2", Err(InvalidFeature)),
    ] {
        let mut w = featured();
        let asked = by_features(&w, count, features);
        let made = create(&mut w, asked).map(|name| get(&w, &name).hostlist.clone());
        assert_eq!(
            made.as_deref(),
            expected.as_ref().copied(),
            "{count} {features}"
        );
        if let Ok(hostlist) = expected {
            let r = get(&w, "r");
            let length = u32::try_from(r.nodes.len()).unwrap();
            assert_eq!(r.node_count, Some(length), "{hostlist}");
        }
    }
    // Cores of nodes with the features; all nodes of a partition that have them.
    let mut w = featured();
    let cores = ReservationAsk {
        node_count: None,
        core_counts: vec![6],
        ..by_features(&w, 0, "b")
    };
    create(&mut w, cores.clone()).unwrap();
    assert_eq!(get(&w, "r").hostlist, "n[5-6]");
    let counted = ReservationAsk {
        name: Some("x".into()),
        features: Some("[a*2&b*1]".into()),
        ..cores
    };
    assert_eq!(create(&mut w, counted), Err(InvalidFeature));
    let whole = ReservationAsk {
        name: Some("whole".into()),
        node_count: None,
        partition: Some("batch".into()),
        ..by_features(&w, 0, "a")
    };
    create(&mut w, whole).unwrap();
    assert_eq!(get(&w, "whole").hostlist, "n[1-4]");
}

/// What is chosen instead has what was asked for, and the reservation keeps what it asked for.
#[test]
fn features_stay_when_nodes_change() {
    let mut w = featured();
    let r = ReservationAsk {
        start: Some(w.now),
        ..by_features(&w, 3, "[a*2&b*1]")
    };
    create(&mut w, r).unwrap();
    assert_eq!(get(&w, "r").hostlist, "n[1-2,5]");
    let mut drain = |nodes: &str| {
        let update = NodeUpdate {
            state: Some("DRAIN".into()),
            reason: Some("test".into()),
            ..NodeUpdate::default()
        };
        let nodes = nodes.into();
        w.must(0, UserCommand::UpdateNodes { nodes, update });
        get(&w, "r").hostlist.clone()
    };
    assert_eq!(drain("n1"), "n[2-3,5]");
    assert_eq!(drain("n[5,6]"), "n[2-3,7]");
    assert_eq!(drain("n[3-4]"), "n[2-3,7]", "there is no other");
    let other = ReservationAsk {
        features: Some("b".into()),
        ..named("r")
    };
    assert_eq!(update(&mut w, other), Err(RefusalCode::NotSupported));
    let more = ReservationAsk {
        node_count: Some(5),
        ..named("r")
    };
    update(&mut w, more).unwrap();
    assert_eq!(get(&w, "r").hostlist, "n[2-3,7]");
    let none = ReservationAsk {
        features: Some(String::new()),
        ..named("r")
    };
    update(&mut w, none).unwrap();
    assert_eq!(get(&w, "r").features, None);
}

#[test]
fn some_flags_are_not_taken_away() {
    for (flag, name) in Flags::ALL {
        let lasting = Flags::LASTING.has(*flag);
        let mut w = World::new();
        let r = ReservationAsk {
            node_count: Some(1),
            ..ask(&w, "r", 600, 30)
        };
        create(&mut w, r).unwrap();
        let less = ReservationAsk {
            flags_removed: *flag,
            ..named("r")
        };
        assert_eq!(update(&mut w, less).is_err(), lasting, "{name}");
    }
}
