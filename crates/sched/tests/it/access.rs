//! Partitions that do not take a job which waits, because one of them has changed: it is not tried there, and goes where it
//! may.

use crate::account_limits::{of, with};
use crate::world::{World, cluster, job, nodes, partition};
use muster_core::event::{AccountsChange, Event};
use muster_core::policy::access::privacy::View;
use muster_model::accounts::Qos;
use muster_model::command::{NameList, ReservationAsk, UserCommand};
use muster_model::config::PartitionConfig;
use muster_model::ids::JobId;
use muster_model::job::Reason;
use muster_model::spec::JobSpec;
use muster_model::time::TimeLimit;
use muster_sched::Scheduler;

/// Partitions `p` and `o` of a node with one CPU each.
fn two() -> World {
    let all = nodes(2, 1);
    let mut config = cluster(all.clone());
    config.partitions = vec![partition("p", &all[..1]), partition("o", &all[1..])];
    World::new(config)
}

fn change(world: &mut World, name: &str, change: impl FnOnce(&mut PartitionConfig)) {
    let mut config = world.state.partition(name).expect("it is there").clone();
    change(&mut config);
    let partition = Box::new(config);
    world.apply(&Event::PartitionChanged { partition });
}

fn in_both() -> JobSpec {
    JobSpec {
        partitions: vec!["p".into(), "o".into()],
        account: Some("bio".into()),
        ..job(1, 60)
    }
}

fn text(world: &World, id: JobId) -> String {
    let all = muster_sched::explain(&world.state, id, world.now, &View::all(&world.state));
    all.expect("it waits").waits_for.join(" ")
}

#[test]
fn jobs_are_not_tried_in_partitions_that_do_not_take_them() {
    type Change = fn(&mut PartitionConfig);
    let cases: [(Change, Reason, &str); 5] = [
        (
            |p| p.allow_accounts = vec!["chem".into()],
            Reason::AccountNotAllowed,
            "does not take jobs of account bio",
        ),
        (
            |p| p.deny_accounts = vec!["bio".into()],
            Reason::AccountNotAllowed,
            "does not take jobs of account bio",
        ),
        (
            |p| p.allow_qos = vec!["high".into()],
            Reason::QOSNotAllowed,
            "does not take jobs of QOS normal",
        ),
        (
            |p| p.deny_qos = vec!["normal".into()],
            Reason::QOSNotAllowed,
            "does not take jobs of QOS normal",
        ),
        (|p| p.req_resv = true, Reason::Reservation, "--reservation"),
    ];
    for (restrict, reason, words) in cases {
        let mut world = two();
        let only = world.submit(JobSpec {
            partitions: vec!["p".into()],
            ..in_both()
        });
        change(&mut world, "p", restrict);
        let first = world.submit(in_both());
        let second = world.submit(in_both());
        // The one goes to the other partition, whose node the other job waits for.
        assert_eq!(world.pass_by_core(), [first]);
        assert_eq!(world.place(first), "n1:1");
        assert_eq!(world.reason(only), reason);
        assert!(text(&world, only).contains(words), "{}", text(&world, only));
        assert_eq!(world.reason(second), Reason::Resources);
        // Nothing is planned that is refused, now or when all is read anew.
        for _ in 0..3 {
            let now = world.now;
            assert!(world.sched.plan(&world.state, now).starts.is_empty());
            world.sched = Scheduler::new(&world.state);
        }
        // Others have the node that is free.
        let other = world.submit(JobSpec {
            partitions: vec!["p".into()],
            account: Some("chem".into()),
            qos: Some("high".into()),
            reservation: None,
            ..job(1, 60)
        });
        let started = world.pass_by_core();
        let takes = reason != Reason::Reservation;
        assert_eq!(started, if takes { vec![other] } else { vec![] });
        if takes {
            world.end(other);
        }
        // The partition takes all again.
        let open = partition("p", &nodes(1, 1));
        change(&mut world, "p", |p| *p = open);
        assert_eq!(world.pass_by_core(), [only]);
    }
}

/// Accounts are changed, too: the default QOS is one that the partition does not take.
#[test]
fn a_default_qos_counts_as_one_that_is_named() {
    let mut world = with("", "", "", "");
    let mut own = world.state.accounts.user("u").expect("it is there").clone();
    let id = world.submit(of("u", job(1, 60)));
    change(&mut world, "p", |p| p.allow_qos = vec!["normal".into()]);
    own.accounts.get_mut("b").expect("its own").default_qos = Some("q".into());
    let at = world.now;
    world.apply(&Event::AccountsChanged {
        changes: vec![AccountsChange::User(own)],
        at,
        log: Vec::new(),
    });
    assert!(world.pass_by_core().is_empty());
    assert_eq!(world.reason(id), Reason::QOSNotAllowed);
    change(&mut world, "p", |p| p.allow_qos = vec!["q".into()]);
    // The QOS itself may ask for a reservation.
    for requires in [true, false] {
        let mut qos = world.state.accounts.qos["q"].clone();
        qos.flags = match requires {
            true => vec![Qos::REQUIRES_RESERVATION.to_owned()],
            false => Vec::new(),
        };
        let at = world.now;
        world.apply(&Event::AccountsChanged {
            changes: vec![AccountsChange::Qos(qos)],
            at,
            log: Vec::new(),
        });
        let started = world.pass_by_core();
        assert_eq!(started, if requires { vec![] } else { vec![id] });
        let reason = world.reason(id);
        assert_eq!(reason == Reason::Reservation, requires, "{reason:?}");
    }
}

/// A reservation that by groups has let a job in, and by accounts does no more.
#[test]
fn jobs_are_not_tried_in_reservations_that_do_not_let_them_in() {
    let mut world = two();
    let ask = |name: &str, groups: &str, node: &str| ReservationAsk {
        name: Some(name.into()),
        start: Some(world.now),
        duration: Some(TimeLimit::Minutes(600)),
        nodes: Some(node.into()),
        groups: Some(NameList::Only(vec![groups.into()])),
        ..ReservationAsk::default()
    };
    let r = ask("r", "chemists", "n0");
    world.admin(UserCommand::CreateReservation(Box::new(r)));
    let id = world.submit(JobSpec {
        reservation: Some("r".into()),
        ..in_both()
    });
    // What it was let in by is not known any more; its account is.
    let changed = ReservationAsk {
        name: Some("r".into()),
        accounts: Some(NameList::Only(vec!["chem".into()])),
        ..ReservationAsk::default()
    };
    let to = |world: &mut World, ask: ReservationAsk| {
        world.admin(UserCommand::UpdateReservation(Box::new(ask)));
    };
    to(&mut world, changed.clone());
    world.tick();
    assert!(world.pass_by_core().is_empty());
    assert_eq!(world.reason(id), Reason::Reservation);
    let bio = Some(NameList::Add(vec!["bio".into()]));
    to(
        &mut world,
        ReservationAsk {
            accounts: bio,
            ..changed
        },
    );
    assert_eq!(world.pass_by_core(), [id]);
}
