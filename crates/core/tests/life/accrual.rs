//! Who gains age while it waits, where `GrpJobsAccrue` and its kin limit how many jobs may.

use crate::world::{World, array, config, spec, target};
use muster_core::event::{AccountsChange, Event};
use muster_core::state::State;
use muster_model::account_limits::{LimitAsk, Limits};
use muster_model::accounts::{Account, AssociationTerms, Qos, User};
use muster_model::ids::JobId;
use muster_model::order_config::Multifactor;
use muster_model::spec::JobSpec;
use muster_model::time::Timestamp;

/// Accounts `a` and below it `b`, user `u1000` in `b`, QOS `q`, with these limits; the partition has QOS `p`.
fn with(a: &str, b: &str, user: &str, q: &str, p: &str) -> World {
    let mut config = config();
    config.order.enforce_limits = true;
    config.order.multifactor = Some(Multifactor {
        weight_age: 1000,
        max_age_s: 1000,
        calc_period_s: 60,
        ..Multifactor::default()
    });
    config.partitions[0].qos = Some("p".into());
    let mut world = World::with(config);
    limit(&mut world, (a, b, user, q, p));
    world.tick();
    world
}

fn limit(world: &mut World, (a, b, user, q, p): (&str, &str, &str, &str, &str)) {
    let limits = |text: &str, qos: bool| {
        let mut limits = Limits::default();
        for word in text.split_whitespace() {
            let (key, value) = word.split_once('=').expect("a limit and its value");
            limits
                .set(&LimitAsk::new(key, value), qos)
                .expect("a limit");
        }
        limits
    };
    let terms = |text: &str| AssociationTerms {
        limits: limits(text, false),
        ..AssociationTerms::default()
    };
    let account = |name: &str, parent: &str, text: &str| {
        AccountsChange::Account(Account {
            name: name.into(),
            parent: parent.into(),
            terms: terms(text),
            ..Account::default()
        })
    };
    let qos = |name: &str, text: &str| {
        AccountsChange::Qos(Qos {
            name: name.into(),
            limits: limits(text, true),
            ..Qos::default()
        })
    };
    let changes = vec![
        account("a", "root", a),
        account("b", "a", b),
        AccountsChange::User(User {
            name: "u1000".into(),
            default_account: "b".into(),
            accounts: [("b".to_owned(), terms(user))].into(),
            ..User::default()
        }),
        qos("q", q),
        qos("p", p),
    ];
    let at = world.now;
    let event = Event::AccountsChanged {
        changes,
        at,
        log: Vec::new(),
    };
    world.state.apply(&event);
    world.history.push(event);
}

fn in_b(name: &str) -> JobSpec {
    JobSpec {
        account: Some("b".into()),
        qos: Some("q".into()),
        ..spec(name)
    }
}

fn aging(world: &World, ids: &[JobId]) -> Vec<bool> {
    let since = |id: &JobId| world.job(*id).accrues_since().is_some();
    ids.iter().map(since).collect()
}

/// Each limit where it may be set, and how many of three jobs gain age.
#[test]
fn each_limit_holds_where_it_is_set() {
    for (a, b, user, q, p, age) in [
        ("", "", "", "", "", 3),
        ("grpjobsaccrue=1", "", "", "", "", 1),
        ("grpjobsaccrue=2", "grpjobsaccrue=1", "", "", "", 1),
        ("", "", "grpjobsaccrue=2", "", "", 2),
        ("", "", "maxjobsaccrue=1", "", "", 1),
        // Of the account above, unless the user has its own.
        ("", "maxjobsaccrue=1", "", "", "", 1),
        ("maxjobsaccrue=1", "", "maxjobsaccrue=2", "", "", 2),
        ("", "", "", "grpjobsaccrue=2", "", 2),
        ("", "", "", "maxjobsaccruepu=1", "", 1),
        ("", "", "", "maxjobsaccrueperaccount=0", "", 0),
        // What the QOS says its associations do not.
        (
            "grpjobsaccrue=1",
            "",
            "maxjobsaccrue=1",
            "grpjobsaccrue=2 maxjobsaccrueperuser=2",
            "",
            2,
        ),
        // The partition's QOS does not limit this.
        ("", "", "", "", "grpjobsaccrue=0 maxjobsaccruepu=0", 3),
    ] {
        let mut w = with(a, b, user, q, p);
        let ids: Vec<JobId> = (0..3).map(|_| w.submit(in_b("x"))).collect();
        let expected: Vec<bool> = (0..3).map(|n| n < age).collect();
        assert_eq!(aging(&w, &ids), expected, "{a} {b} {user} {q} {p}");
        // What waits for its turn is not forgotten by a restart, and the history tells the same.
        let mut bytes = Vec::new();
        w.state.encode_snapshot(&mut bytes);
        let read = State::decode_snapshot(&bytes).unwrap();
        assert_eq!(read.accrual_waiting, w.state.accrual_waiting);
        assert_eq!(read.limit_use, w.state.limit_use);
        w.check_replay();
    }
}

/// Whose turn it is gains age from the next time on at which priorities are worked out, the earliest first.
#[test]
fn the_next_begins_when_priorities_are_worked_out() {
    let mut w = with("", "", "maxjobsaccrue=1", "", "");
    let ids: Vec<JobId> = (0..3).map(|_| w.submit(in_b("x"))).collect();
    let since = |w: &World, id: JobId| w.job(id).accrues_since();
    let begin = w.now;
    assert_eq!(since(&w, ids[0]), Some(begin));
    w.cancel(1000, target(ids[0]));
    w.now = w.now.plus_s(30);
    w.tick();
    assert_eq!(aging(&w, &ids[1..]), [false, false], "not before its time");
    // One that comes now does not pass those that wait for their turn.
    let late = w.submit(in_b("x"));
    assert_eq!(since(&w, late), None);
    w.now = w.now.plus_s(30);
    w.tick();
    assert_eq!(since(&w, ids[1]), Some(w.now));
    assert_eq!(aging(&w, &[ids[2], late]), [false, false]);
    let scale = muster_core::state::Scale::new(&w.state).unwrap();
    assert_eq!(scale.age(since(&w, ids[1])), 0.0);
    // Its age is what it has gained, not how long it has waited; a hold takes it away.
    w.now = w.now.plus_s(100);
    w.tick();
    let scale = muster_core::state::Scale::new(&w.state).unwrap();
    assert_eq!(scale.age(since(&w, ids[1])), 100.0);
    assert_eq!(scale.age(since(&w, ids[2])), 0.0);
    // Without a limit all of them do.
    limit(&mut w, ("", "", "", "", ""));
    w.now = w.now.plus_s(60);
    w.tick();
    assert_eq!(since(&w, late), Some(w.now));
    assert!(w.state.accrual_waiting.is_empty());
    assert_eq!(w.state.check_invariants(), Ok(()));
}

/// Tasks of an array count one by one; each that leaves takes the oldest age with it.
#[test]
fn tasks_of_an_array_take_turns() {
    let mut w = with("", "", "maxjobsaccrue=2", "", "");
    let mut tasks = in_b("x");
    tasks.array = array(0, 4, None);
    let base = w.submit(tasks);
    let begin = w.now;
    let told = |w: &World, id: JobId| w.job(id).accrual.as_ref().unwrap().since.clone();
    assert_eq!(told(&w, base), [(begin, 2)]);
    let start = |w: &mut World| {
        let id = JobId(w.state.next_job_id);
        let index = w.state.arrays[&base].tasks.len() as u32;
        let alloc = w.alloc(base, &[2], 1);
        let start = muster_model::command::PlannedStart { job: base, alloc };
        assert_eq!(w.plan(vec![start]), 1);
        assert_eq!(w.task_id(base, index), id);
        id
    };
    let first = start(&mut w);
    assert_eq!(
        (told(&w, first), told(&w, base)),
        (vec![(begin, 1)], vec![(begin, 1)])
    );
    w.now = w.now.plus_s(60);
    w.tick();
    assert_eq!(told(&w, base), [(begin, 1), (w.now, 1)]);
    let second = start(&mut w);
    let third = start(&mut w);
    let fourth = start(&mut w);
    assert_eq!(told(&w, second), [(begin, 1)]);
    assert_eq!(told(&w, third), [(w.now, 1)]);
    let none: [(Timestamp, u32); 0] = [];
    assert_eq!(told(&w, fourth), none);
    w.now = w.now.plus_s(60);
    w.tick();
    assert_eq!(told(&w, base), [(w.now, 1)], "there is one left");
}

/// `ACCRUE_ALWAYS` knows no such limit, and neither does an order without age.
#[test]
fn some_orders_have_no_such_limit() {
    for (always, multifactor) in [(true, true), (false, false)] {
        let mut w = with("", "", "maxjobsaccrue=0", "", "");
        let mut config = (**w.state.config.as_ref().unwrap()).clone();
        let mut order = config.order.multifactor.take();
        if let Some(order) = &mut order {
            order.accrue_always = always;
        }
        config.order.multifactor = order.filter(|_| multifactor);
        w.configure(config, muster_model::command::KeptPartitions::File);
        let id = w.submit(in_b("x"));
        assert_eq!(w.job(id).accrues_since(), Some(w.now));
        assert_eq!(w.job(id).accrual, None);
    }
}
