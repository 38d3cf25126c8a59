//! Reservations that ordinary users make for themselves where the site lets them: what they may be, and whose may be deleted.

use crate::world::{World, config, partition, spec};
use muster_model::account_limits::LimitAsk;
use muster_model::command::{
    AccountsAsk, AccountsEdit, NameList, PlannedStart, Reply, ReservationAsk, TermsAsk, UserCommand,
};
use muster_model::config::{ClusterConfig, PartitionConfig};
use muster_model::limits::USER_RESERVATIONS_MAX;
use muster_model::refusal::{Refusal, RefusalCode};
use muster_model::reservation::Flags;
use muster_model::spec::{JobSpec, ResourceAsk};
use muster_model::time::TimeLimit;

fn world() -> World {
    let mut partitions = config().partitions;
    partitions.push(PartitionConfig {
        allow_groups: vec!["physics".into()],
        ..partition("physics", &["n3"], false)
    });
    World::with(ClusterConfig {
        reservation_users: vec!["u1000".into(), "@u1001".into()],
        partitions,
        ..config()
    })
}

/// Ten minutes of a core, in a minute, for the user alone.
fn ask(world: &World, uid: u32, number: u32) -> ReservationAsk {
    ReservationAsk {
        name: Some(number.to_string()),
        start: Some(world.now.plus_s(60)),
        duration: Some(TimeLimit::Minutes(10)),
        core_counts: vec![1],
        partition: Some("short".into()),
        users: Some(NameList::Only(vec![format!("u{uid}")])),
        ..ReservationAsk::default()
    }
}

fn create(world: &mut World, uid: u32, ask: ReservationAsk) -> Result<String, Refusal> {
    match world.user(uid, UserCommand::CreateReservation(Box::new(ask))) {
        Reply::Reserved { name } => Ok(name),
        Reply::Refused(refusal) => Err(refusal),
        other => panic!("{other:?}"),
    }
}

#[test]
fn users_whom_the_site_lets_reserve_for_themselves() {
    let mut w = world();
    let first = ask(&w, 1000, 1);
    assert_eq!(create(&mut w, 1000, first).unwrap(), "1");
    let by_group = ask(&w, 1001, 2);
    assert_eq!(create(&mut w, 1001, by_group).unwrap(), "2");
    let other = ask(&w, 1002, 3);
    let refused = create(&mut w, 1002, other).unwrap_err();
    assert_eq!(refused.code, RefusalCode::AccessDenied);
    assert!(!refused.detail.contains("arusers"), "{refused:?}");
    let made = w.state.reservations.get("1").unwrap();
    assert_eq!(made.made_by, Some(1000));
    assert_eq!(made.users, ["u1000"]);
    // Changes are an operator's.
    assert_eq!(
        w.refused(
            1000,
            UserCommand::UpdateReservation(Box::new(ReservationAsk {
                name: Some("1".into()),
                duration: Some(TimeLimit::Minutes(20)),
                ..ReservationAsk::default()
            }))
        ),
        RefusalCode::AccessDenied
    );
}

#[test]
fn what_users_reserve_is_bounded() {
    let mut w = world();
    let plain = ask(&w, 1000, 1);
    let of = |change: &dyn Fn(&mut ReservationAsk)| {
        let mut ask = plain.clone();
        change(&mut ask);
        ask
    };
    for (wrong, why) in [
        (of(&|r| r.nodes = Some("n1".into())), "Nodes"),
        (of(&|r| r.node_count = Some(1)), "NodeCnt"),
        (of(&|r| r.flags = Flags::MAINT), "Flags"),
        (of(&|r| r.flags = Flags::IGNORE_JOBS), "Flags"),
        (of(&|r| r.licenses = Some("a:1".into())), "Licenses"),
        (of(&|r| r.features = Some("x".into())), "Features"),
        (
            of(&|r| r.accounts = Some(NameList::Only(vec!["a".into()]))),
            "Accounts",
        ),
        (
            of(&|r| r.groups = Some(NameList::Only(vec!["g".into()]))),
            "Groups",
        ),
        (of(&|r| r.core_counts.clear()), "CoreCnt"),
        (of(&|r| r.core_counts = vec![1, 1]), "CoreCnt"),
        (of(&|r| r.core_counts = vec![0]), "CoreCnt"),
        (of(&|r| r.core_counts = vec![u32::MAX]), "fewer cores"),
        (of(&|r| r.users = None), "Users"),
        (
            of(&|r| r.users = Some(NameList::Only(vec!["u7".into()]))),
            "Users",
        ),
        (
            of(&|r| r.users = Some(NameList::AllBut(vec!["u1000".into()]))),
            "Users",
        ),
        (of(&|r| r.name = Some("9".into())), "ReservationName"),
        (of(&|r| r.name = Some("01".into())), "ReservationName"),
        (of(&|r| r.name = Some("maint".into())), "ReservationName"),
        (of(&|r| r.name = None), "ReservationName"),
        (
            of(&|r| r.start = Some(w.now.plus_s(400 * 86_400))),
            "a year",
        ),
        (
            of(&|r| r.duration = Some(TimeLimit::Minutes(31))),
            "MaxTime",
        ),
        (of(&|r| r.duration = Some(TimeLimit::Unlimited)), "MaxTime"),
    ] {
        let shown = format!("{wrong:?}");
        let refused = create(&mut w, 1000, wrong).unwrap_err();
        assert_eq!(refused.code, RefusalCode::AccessDenied, "{shown}");
        assert!(refused.detail.contains(why), "{shown}: {refused:?}");
    }
    let foreign = of(&|r| r.partition = Some("physics".into()));
    assert_eq!(
        create(&mut w, 1000, foreign).unwrap_err().code,
        RefusalCode::PartitionAccess
    );
    // Nothing of this is asked of operators.
    let by_name =
        of(&|r| (r.nodes, r.core_counts, r.name) = (Some("n3".into()), vec![], Some("x".into())));
    assert_eq!(create(&mut w, 0, by_name).unwrap(), "x");
    assert_eq!(w.state.reservations.get("x").unwrap().made_by, None);
}

#[test]
fn a_user_has_few_and_deletes_only_those() {
    let mut w = world();
    let by_operator = ask(&w, 1000, 1);
    assert_eq!(create(&mut w, 0, by_operator).unwrap(), "1");
    let delete = |name: &str| UserCommand::DeleteReservation { name: name.into() };
    assert_eq!(w.refused(1000, delete("1")), RefusalCode::AccessDenied);
    w.must(0, delete("1"));
    for number in 1..=u32::try_from(USER_RESERVATIONS_MAX).unwrap() {
        let mut next = ask(&w, 1000, number);
        next.start = Some(w.now.plus_s(u64::from(number) * 600));
        assert_eq!(create(&mut w, 1000, next).unwrap(), number.to_string());
    }
    let mut more = ask(&w, 1000, 11);
    more.start = Some(w.now.plus_s(86_400));
    assert!(
        create(&mut w, 1000, more.clone())
            .unwrap_err()
            .detail
            .contains("10 of 10")
    );
    assert_eq!(w.refused(1001, delete("3")), RefusalCode::AccessDenied);
    w.must(1000, delete("3"));
    assert_eq!(create(&mut w, 1000, more).unwrap(), "11");
}

/// A user whose only account is `out`, with two CPUs at a time at the most.
fn world_with_accounts() -> World {
    let mut partitions = config().partitions;
    partitions.push(PartitionConfig {
        deny_accounts: vec!["out".into()],
        ..partition("others", &["n3"], false)
    });
    let mut order = config().order;
    (order.enforce_associations, order.enforce_limits) = (true, true);
    let mut w = World::with(ClusterConfig {
        reservation_users: vec!["u1000".into(), "u1001".into()],
        partitions,
        order,
        ..config()
    });
    let edit = |name: &str, ask| {
        UserCommand::EditAccounts(Box::new(AccountsEdit {
            names: vec![name.into()],
            ask,
            cluster: String::new(),
        }))
    };
    let account = AccountsAsk::AddAccounts {
        parent: String::new(),
        description: String::new(),
        organization: String::new(),
        terms: TermsAsk::default(),
    };
    w.must(0, edit("out", account));
    let user = AccountsAsk::AddUsers {
        accounts: vec!["out".into()],
        default_account: String::new(),
        admin_level: String::new(),
        terms: TermsAsk {
            limits: vec![LimitAsk::new("grptres", "cpu=2")],
            ..TermsAsk::default()
        },
        wckeys: Default::default(),
        partitions: Vec::new(),
    };
    w.must(0, edit("u1000", user));
    w
}

#[test]
fn users_reserve_within_what_their_jobs_may_have() {
    let mut w = world_with_accounts();
    let plain = ask(&w, 1000, 1);
    let of = |change: &dyn Fn(&mut ReservationAsk)| {
        let mut ask = plain.clone();
        change(&mut ask);
        ask
    };
    let many = of(&|r| r.core_counts = vec![3]);
    let refused = create(&mut w, 1000, many).unwrap_err();
    assert!(refused.detail.contains("cpu=2"), "{refused:?}");
    // What the partition keeps out, and who has no association at all.
    let denied = of(&|r| r.partition = Some("others".into()));
    let refused = create(&mut w, 1000, denied).unwrap_err();
    assert_eq!(refused.code, RefusalCode::InvalidAccount, "{refused:?}");
    let unknown = ask(&w, 1001, 1);
    let refused = create(&mut w, 1001, unknown).unwrap_err();
    assert_eq!(refused.code, RefusalCode::InvalidAccount, "{refused:?}");
    // Without a MaxTime, a month.
    let long = of(&|r| {
        r.partition = Some("batch".into());
        r.duration = Some(TimeLimit::Minutes(32 * 1440));
    });
    let refused = create(&mut w, 1000, long).unwrap_err();
    assert!(refused.detail.contains("31 days"), "{refused:?}");
    // What runs now does not count.
    let run = JobSpec {
        ask: ResourceAsk {
            ntasks: Some(2),
            ..ResourceAsk::default()
        },
        ..spec("x")
    };
    let runs = w.submit(run);
    w.register(2, "boot", &[]);
    assert!(w.start(runs, &[2]));
    // Reservations at one time count together, others do not.
    assert_eq!(
        create(&mut w, 1000, of(&|r| r.core_counts = vec![2])).unwrap(),
        "1"
    );
    let second = of(&|r| r.name = Some("2".into()));
    let refused = create(&mut w, 1000, second).unwrap_err();
    assert!(refused.detail.contains("cpu=2"), "{refused:?}");
    let later = of(&|r| {
        r.name = Some("2".into());
        r.start = r.start.map(|start| start.plus_s(600));
    });
    assert_eq!(create(&mut w, 1000, later).unwrap(), "2");
}

/// Only what is reserved at the same time counted: who had used up all could reserve.
#[test]
fn who_has_used_up_all_reserves_nothing() {
    for limit in [
        ("grptresmins", "cpu=30"),
        ("grptresmins", "billing=30"),
        ("grpwall", "15"),
    ] {
        let mut w = world_with_accounts();
        let terms = TermsAsk {
            limits: vec![LimitAsk::new(limit.0, limit.1)],
            ..TermsAsk::default()
        };
        let edit = AccountsEdit {
            names: vec!["out".into()],
            ask: AccountsAsk::ModifyAccounts {
                parent: String::new(),
                description: String::new(),
                organization: String::new(),
                terms,
            },
            cluster: String::new(),
        };
        w.must(0, UserCommand::EditAccounts(Box::new(edit)));
        let early = ask(&w, 1000, 1);
        assert_eq!(create(&mut w, 1000, early).unwrap(), "1");
        let runs = w.submit(JobSpec {
            ask: ResourceAsk {
                ntasks: Some(2),
                ..ResourceAsk::default()
            },
            ..spec("x")
        });
        w.register(2, "boot", &[]);
        let alloc = w.alloc(runs, &[2], 2);
        assert_eq!(w.plan(vec![PlannedStart { job: runs, alloc }]), 1);
        w.pass(16 * 60);
        w.finish(runs, 0);
        let mut late = ask(&w, 1000, 1);
        late.start = Some(w.now.plus_s(86_400));
        let refused = create(&mut w, 1000, late).unwrap_err();
        assert!(refused.detail.contains(limit.1), "{limit:?}: {refused:?}");
    }
}

#[test]
fn cores_of_several_nodes_are_those_that_are_free() {
    let mut w = world();
    let mut all = ask(&w, 1000, 1);
    all.core_counts = vec![6];
    create(&mut w, 1000, all).unwrap();
    let cpus = |w: &World, name: &str| -> Vec<u32> {
        let made = w.state.reservations.get(name).unwrap();
        let nodes = made.nodes.iter();
        nodes.map(|n| n.cpus.as_ref().unwrap().len()).collect()
    };
    assert_eq!(cpus(&w, "1"), [4, 2]);
    let mut rest = ask(&w, 1001, 2);
    rest.core_counts = vec![2];
    create(&mut w, 1001, rest).unwrap();
    assert_eq!(cpus(&w, "2"), [2]);
    let mut more = ask(&w, 1001, 3);
    more.core_counts = vec![1];
    let refused = create(&mut w, 1001, more).unwrap_err();
    assert_eq!(refused.code, RefusalCode::NodesBusy);
}
