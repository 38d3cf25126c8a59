//! What one job may name of partitions, reservations, licenses and features: each once, and a bounded number.

use crate::accounts::edit;
use crate::limit_use::limited;
use crate::world::{World, config, node_config, partition, spec, target};
use muster_core::event::Event;
use muster_model::account_limits::LimitAsk;
use muster_model::command::{
    AccountsAsk, JobUpdate, ListEdit, NameList, QosAsk, ReservationAsk, UserCommand,
};
use muster_model::ids::JobId;
use muster_model::licenses::LicenseCount;
use muster_model::limits::{
    CONSTRAINT_COUNTS_MAX, JOB_PARTITIONS_MAX, JOB_PLACES_MAX, JOB_RESERVATIONS_MAX,
    LICENSE_ALTERNATIVES_MAX,
};
use muster_model::refusal::RefusalCode;
use muster_model::spec::{JobSpec, ResourceAsk};
use muster_model::time::TimeLimit;

/// A cluster with so many more partitions `p0`, `p1`, ..., and reservations `r0`, `r1`, ... of licenses.
fn world(partitions: usize, reservations: usize) -> World {
    let mut config = config();
    config.licenses = vec![LicenseCount::new("foo", 1000)];
    config.nodes[0] = node_config("n1", 4, 1000);
    config.nodes[0].features = (0..100).map(|n| format!("f{n}")).collect();
    let more = (0..partitions).map(|n| partition(&format!("p{n}"), &["n1"], false));
    config.partitions.extend(more);
    let mut world = World::with(config);
    for n in 0..reservations {
        let ask = ReservationAsk {
            name: Some(format!("r{n}")),
            start: Some(world.now.plus_s(60)),
            duration: Some(TimeLimit::Minutes(60)),
            users: Some(NameList::Only(vec!["u1000".into()])),
            licenses: Some("foo".into()),
            flags: muster_model::reservation::Flags::ANY_NODES,
            ..ReservationAsk::default()
        };
        world.user(0, UserCommand::CreateReservation(Box::new(ask)));
        assert!(world.state.reservations.get(&format!("r{n}")).is_some());
    }
    world
}

fn names(letter: &str, count: usize) -> Vec<String> {
    (0..count).map(|n| format!("{letter}{n}")).collect()
}

fn repeated(names: [&str; 2], times: usize) -> Vec<String> {
    let all = names.repeat(times);
    all.into_iter().map(str::to_owned).collect()
}

fn places(world: &World, id: JobId) -> (String, Option<String>) {
    let spec = &world.job(id).spec;
    (spec.partitions.join(","), spec.reservation.clone())
}

fn change(update: JobUpdate, id: JobId) -> UserCommand {
    UserCommand::UpdateJob {
        target: target(id),
        update: Box::new(update),
    }
}

#[test]
fn a_job_keeps_each_partition_and_reservation_once() {
    let mut w = world(0, 2);
    let asked = JobSpec {
        partitions: repeated(["short", "batch"], JOB_PARTITIONS_MAX / 2),
        reservation: Some("r1,r0,".repeat(2000)),
        time_limit: Some(TimeLimit::Minutes(10)),
        ..spec("x")
    };
    let id = w.submit(asked);
    assert_eq!(places(&w, id), ("short,batch".into(), Some("r1,r0".into())));
    let update = JobUpdate {
        partitions: Some(repeated(["batch", "short"], 200)),
        reservation: Some("r0,r1,".repeat(100)),
        ..JobUpdate::default()
    };
    w.must(1000, change(update, id));
    assert_eq!(places(&w, id), ("batch,short".into(), Some("r0,r1".into())));
}

#[test]
fn reservations_of_a_job_and_their_partitions_are_bounded() {
    let mut w = world(JOB_PARTITIONS_MAX, JOB_RESERVATIONS_MAX + 1);
    let named = |partitions: usize, reservations: usize| JobSpec {
        partitions: names("p", partitions),
        reservation: Some(names("r", reservations).join(",")).filter(|text| !text.is_empty()),
        ..spec("x")
    };
    let of_each = JOB_PLACES_MAX / JOB_RESERVATIONS_MAX;
    let most = w.submit(named(of_each, JOB_RESERVATIONS_MAX));
    w.submit(named(JOB_PARTITIONS_MAX, 1));
    let invalid = RefusalCode::InvalidReservation;
    assert_eq!(w.refusal(named(1, JOB_RESERVATIONS_MAX + 1)), invalid);
    assert_eq!(w.refusal(named(of_each + 1, JOB_RESERVATIONS_MAX)), invalid);
    let more = JobUpdate {
        partitions: Some(names("p", of_each + 1)),
        ..JobUpdate::default()
    };
    assert_eq!(w.refused(1000, change(more, most)), invalid);
    let plain = w.submit(named(JOB_PARTITIONS_MAX, 0));
    let more = JobUpdate {
        reservation: Some("r0,r1".into()),
        ..JobUpdate::default()
    };
    assert_eq!(w.refused(1000, change(more, plain)), invalid);
}

/// A job moves from many partitions and no reservation to few of both in one command.
#[test]
fn places_are_counted_as_the_whole_update_has_them() {
    let of_each = JOB_PLACES_MAX / JOB_RESERVATIONS_MAX;
    let mut w = world(of_each + 1, JOB_RESERVATIONS_MAX);
    let id = w.submit(JobSpec {
        partitions: names("p", of_each + 1),
        ..spec("x")
    });
    let reservation = names("r", JOB_RESERVATIONS_MAX).join(",");
    let update = |partitions: usize| JobUpdate {
        partitions: Some(names("p", partitions)),
        reservation: Some(reservation.clone()),
        ..JobUpdate::default()
    };
    let refused = w.refused(1000, change(update(of_each + 1), id));
    assert_eq!(refused, RefusalCode::InvalidReservation);
    w.must(1000, change(update(of_each), id));
    let moved = (names("p", of_each).join(","), Some(reservation));
    assert_eq!(places(&w, id), moved);
}

/// A journal may have jobs that were accepted before there were these bounds.
#[test]
fn jobs_of_an_older_journal_keep_what_they_name() {
    let mut w = world(0, 0);
    let id = w.submit(JobSpec {
        partitions: vec!["batch".into()],
        ..spec("x")
    });
    let spec = JobSpec {
        partitions: vec!["batch".into(); JOB_PARTITIONS_MAX],
        licenses: Some(vec!["foo"; 5000].join("|")),
        ..(*w.job(id).spec).clone()
    };
    w.state.apply(&Event::JobChanged {
        id,
        change: muster_core::event::JobChange::Spec(std::sync::Arc::new(spec)),
        at: w.now,
    });
    assert_eq!(w.job(id).spec.partitions.len(), JOB_PARTITIONS_MAX);
}

#[test]
fn alternatives_of_licenses_are_bounded() {
    let mut w = world(0, 0);
    let asks = |text: String| JobSpec {
        licenses: Some(text),
        ..spec("x")
    };
    let different = |count: usize| {
        let each: Vec<String> = (1..=count).map(|n| format!("foo:{n}")).collect();
        each.join("|")
    };
    w.submit(asks(vec!["foo"; 10_000].join("|")));
    let id = w.submit(asks(different(LICENSE_ALTERNATIVES_MAX)));
    let too_many = different(LICENSE_ALTERNATIVES_MAX + 1);
    assert_eq!(
        w.refusal(asks(too_many.clone())),
        RefusalCode::InvalidLicense
    );
    let update = JobUpdate {
        licenses: Some(too_many),
        ..JobUpdate::default()
    };
    assert_eq!(
        w.refused(1000, change(update, id)),
        RefusalCode::InvalidLicense
    );
}

#[test]
fn alternatives_and_counts_of_features_are_bounded_together() {
    let mut w = world(0, 0);
    let asks = |constraint: &str, prefer: &str| {
        let mut spec = spec("x");
        spec.ask.constraint = Some(constraint.into());
        spec.ask.prefer = Some(prefer.into()).filter(|text: &String| !text.is_empty());
        spec
    };
    let either = |count: usize| format!("[{}]", names("f", count).join("|"));
    let counted = |count: usize| {
        let each: Vec<String> = names("f", count).iter().map(|f| format!("{f}*1")).collect();
        each.join("&")
    };
    w.submit(asks(&either(64), ""));
    w.submit(asks(&either(8), &either(8)));
    // Written again it is the same.
    let again = format!("[{}]&{}", ["f1"; 64].join("|"), ["f2*1"; 40].join("&"));
    w.submit(asks(&again, &again));
    w.submit(asks(&counted(CONSTRAINT_COUNTS_MAX), ""));
    let invalid = RefusalCode::InvalidFeature;
    assert_eq!(w.refusal(asks(&either(8), &either(9))), invalid);
    assert_eq!(w.refusal(asks(&either(64), &either(64))), invalid);
    assert_eq!(
        w.refusal(asks(&counted(CONSTRAINT_COUNTS_MAX + 1), "")),
        invalid
    );
    let half = counted(CONSTRAINT_COUNTS_MAX / 2);
    assert_eq!(w.refusal(asks(&half, &format!("{half}&f90*1"))), invalid);
}

/// A job of two partitions counted for the limits of the one that it names first: with `-p batch,short`, or by a change to
/// `short,batch` of a job in batch, users had any number of jobs in a partition whose QOS allows two.
#[test]
fn a_job_that_waits_counts_in_each_of_its_partitions() {
    let mut w = limited("maxsubmit=9", "maxsubmitpu=9");
    let of = |names: &[&str]| JobSpec {
        partitions: names.iter().map(|name| (*name).to_owned()).collect(),
        ..spec("x")
    };
    let both = of(&["batch", "short"]);
    let first = w.submit(both.clone());
    let second = w.submit(of(&["short", "batch"]));
    let moved = w.submit(of(&["batch"]));
    for names in [&["batch", "short"][..], &["short", "batch"], &["short"]] {
        let refused = w.try_submit(1000, of(names)).unwrap_err();
        assert_eq!(refused.code, RefusalCode::AccountingPolicy, "{names:?}");
        let update = JobUpdate {
            partitions: Some(of(names).partitions),
            ..JobUpdate::default()
        };
        let update = UserCommand::UpdateJob {
            target: target(moved),
            update: Box::new(update),
        };
        assert_eq!(w.refused(1000, update), RefusalCode::AccountingPolicy);
    }
    // One that runs counts where it runs only, also when it is changed or another takes its place.
    assert!(w.start(first, &[0]));
    let third = w.submit(both.clone());
    let update = UserCommand::UpdateJob {
        target: target(first),
        update: Box::new(JobUpdate {
            comment: Some("x".into()),
            ..JobUpdate::default()
        }),
    };
    w.must(1000, update);
    w.try_submit(1000, both.clone()).unwrap_err();
    for id in [second, third] {
        w.cancel(1000, target(id));
    }
    w.submit(both.clone());
    w.submit(both);
    w.check_replay();
}

/// `DenyOnLimit` held in the partition that a job named first, and as a flag of its own QOS alone: in other partitions such jobs
/// waited for good.
#[test]
fn limits_that_deny_hold_in_each_partition_of_a_job() {
    let mut w = limited("maxsubmit=9", "maxsubmitpu=9");
    let modify = |flags: &str| {
        let flags = ListEdit {
            sign: None,
            names: flags.split(',').map(str::to_owned).collect(),
        };
        let limits = vec![LimitAsk::new("maxtres", "cpu=1")];
        AccountsAsk::ModifyQos(QosAsk {
            flags: Some(flags),
            limits,
            ..QosAsk::default()
        })
    };
    w.must(0, edit(&["of_short"], modify("DenyOnLimit")));
    let of = |names: &[&str], ntasks: u32| JobSpec {
        partitions: names.iter().map(|name| (*name).to_owned()).collect(),
        ask: ResourceAsk {
            ntasks: Some(ntasks),
            ..ResourceAsk::default()
        },
        ..spec("x")
    };
    let denied = RefusalCode::AccountingPolicy;
    for names in [&["short"][..], &["short", "batch"], &["batch", "short"]] {
        assert_eq!(w.refusal(of(names, 2)), denied, "{names:?}");
        let id = w.submit(of(names, 1));
        w.cancel(1000, target(id));
    }
    let large = w.submit(of(&["batch"], 2));
    let update = JobUpdate {
        partitions: Some(of(&["batch", "short"], 2).partitions),
        ..JobUpdate::default()
    };
    let update = UserCommand::UpdateJob {
        target: target(large),
        update: Box::new(update),
    };
    assert_eq!(w.refused(1000, update.clone()), denied);
    // A job that runs is where it is.
    assert!(w.start(large, &[0]));
}
