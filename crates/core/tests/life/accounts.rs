//! What sacctmgr changes, what is enforced of it, and use.

use crate::world::{World, config, spec, target};
use muster_core::event::{AccountsChange, Event};
use muster_core::state::State;
use muster_model::account_limits::LimitAsk;
use muster_model::accounts::{JobNote, PARENT_SHARES};
use muster_model::command::ListEdit;
use muster_model::command::{
    AccountsAsk, AccountsEdit, ClusterAsk, JobUpdate, QosAsk, Reply, TermsAsk, UsageAsk,
    UserCommand, WckeysAsk,
};
use muster_model::cpuset::CpuSet;
use muster_model::ids::JobId;
use muster_model::job::GresShare;
use muster_model::licenses::LicenseCount;
use muster_model::node::GresConfig;
use muster_model::order_config::{Multifactor, UsageReset};
use muster_model::refusal::RefusalCode;
use muster_model::spec::JobSpec;

pub(crate) fn edit(names: &[&str], ask: AccountsAsk) -> UserCommand {
    UserCommand::EditAccounts(Box::new(AccountsEdit {
        cluster: String::new(),
        names: names.iter().map(|n| (*n).to_owned()).collect(),
        ask,
    }))
}

pub(crate) fn account(parent: &str) -> AccountsAsk {
    AccountsAsk::AddAccounts {
        parent: parent.into(),
        description: String::new(),
        organization: String::new(),
        terms: TermsAsk::default(),
    }
}

pub(crate) fn users(account: &str, terms: TermsAsk) -> AccountsAsk {
    AccountsAsk::AddUsers {
        accounts: vec![account.into()],
        default_account: String::new(),
        admin_level: String::new(),
        terms,
        wckeys: Default::default(),
        partitions: Vec::new(),
    }
}

#[test]
fn new_jobs_are_numbered_above_reserved_numbers() {
    let mut w = World::new();
    let reserve = |last| edit(&[], AccountsAsk::ReserveJobIds(JobId(last)));
    assert_eq!(w.refused(1000, reserve(7)), RefusalCode::AccessDenied);
    assert_eq!(w.refused(0, reserve(1 << 40)), RefusalCode::InvalidJobId);
    assert_eq!(w.must(0, reserve(4711)), 1);
    // Lower ones are reserved with them.
    assert_eq!(w.must(0, reserve(4000)), 0);
    assert_eq!(w.submit(spec("x")), JobId(4712));
}

#[test]
fn use_that_another_cluster_knew_counts_in_place_of_what_is_known() {
    let mut w = World::new();
    w.must(0, edit(&["bio"], account("")));
    w.must(0, edit(&["amy"], users("bio", TermsAsk::default())));
    let set = |user: &str, raw| {
        let (account, user) = ("bio".to_owned(), user.to_owned());
        let ask = UsageAsk { account, user, raw };
        edit(&["amy"], AccountsAsk::SetUsage(vec![ask]))
    };
    assert_eq!(w.refused(1000, set("amy", 7)), RefusalCode::AccessDenied);
    assert_eq!(w.refused(0, set("ben", 7)), RefusalCode::InvalidAccount);
    for raw in [7, 5] {
        w.must(0, set("amy", raw));
        let usage = &w.state.accounts.usage[&("bio".to_owned(), "amy".to_owned())];
        assert_eq!(usage.raw, raw as f64);
    }
}

#[test]
fn an_edit_names_a_bounded_number_of_things_each_once() {
    let mut w = World::new();
    assert_eq!(w.must(0, edit(&["a", "a", "A", "a"], account(""))), 1);
    let note = |comment: &str, wckey: Option<&str>| {
        AccountsAsk::NoteJobs(JobNote {
            comment: Some(comment.to_owned()),
            wckey: wckey.map(str::to_owned),
            ..JobNote::default()
        })
    };
    // Each job gets the text: a megabyte of it in all.
    let numbers: Vec<String> = (900..940).map(|n| n.to_string()).collect();
    let numbers: Vec<&str> = numbers.iter().map(String::as_str).collect();
    let long = "x".repeat(30_000);
    assert_eq!(
        w.refused(1000, edit(&numbers, note(&long, None))),
        RefusalCode::InvalidValue
    );
    assert_eq!(w.must(1000, edit(&numbers[..30], note(&long, None))), 30);
    assert_eq!(w.must(1000, edit(&["900"; 1000], note(&long, None))), 1);
    // One way to write a number, plain texts, own keys.
    assert_eq!(
        w.refused(1000, edit(&["0900"], note("", None))),
        RefusalCode::InvalidJobId
    );
    // The store takes numbers below 2^47: one that it refuses kept all that followed from being written.
    for beyond in ["2147483648", "140737488355327", "18446744073709551615"] {
        assert_eq!(
            w.refused(1000, edit(&[beyond], note("x", None))),
            RefusalCode::InvalidJobId
        );
    }
    assert_eq!(w.must(1000, edit(&["2147483647"], note("x", None))), 1);
    assert_eq!(
        w.refused(1000, edit(&["900"], note("", Some("key")))),
        RefusalCode::InvalidValue
    );
    w.must(1000, edit(&["900"], note("a\n7|root|\u{1b}[2J", None)));
    let noted = w.events.iter().rev().find_map(|event| match event {
        Event::AccountsChanged { changes, log, .. } => Some((changes.clone(), log.clone())),
        _ => None,
    });
    let (changes, log) = noted.unwrap();
    let [AccountsChange::JobNoted { note, .. }] = changes.as_slice() else {
        panic!("{changes:?}");
    };
    let comment = note.comment.as_deref().unwrap();
    assert!(!comment.contains(|c: char| c.is_control()), "{comment:?}");
    // What users note on own jobs is no change of accounting that others read.
    assert_eq!(log, []);
    let many: Vec<String> = (0..500).map(|n| format!("u{n}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let accounts = AccountsAsk::DeleteCoordinators {
        accounts: many.iter().map(|name| (*name).to_owned()).collect(),
    };
    assert_eq!(
        w.refused(0, edit(&many, accounts)),
        RefusalCode::InvalidValue
    );
    let described = AccountsAsk::AddAccounts {
        parent: String::new(),
        description: "d\n\u{1b}[2J".into(),
        organization: "o\r".into(),
        terms: TermsAsk::default(),
    };
    w.must(0, edit(&["plain"], described));
    let plain = &w.state.accounts.accounts["plain"];
    let texts = [&plain.description, &plain.organization];
    assert!(
        texts
            .iter()
            .all(|text| !text.contains(|c: char| c.is_control())),
        "{texts:?}"
    );
}

#[test]
fn accounts_users_and_qos() {
    let mut w = World::new();
    assert_eq!(w.must(0, edit(&["a", "b"], account(""))), 2);
    assert_eq!(w.must(0, edit(&["a"], account(""))), 0, "it is there");
    assert_eq!(w.must(0, edit(&["c"], account("a"))), 1);
    assert_eq!(
        w.refused(0, edit(&["d"], account("nosuch"))),
        RefusalCode::InvalidAccount
    );
    assert_eq!(
        w.refused(1000, edit(&["d"], account(""))),
        RefusalCode::AccessDenied
    );
    assert_eq!(
        w.refused(0, edit(&["d=e"], account(""))),
        RefusalCode::InvalidValue
    );
    let circle = AccountsAsk::ModifyAccounts {
        parent: "a".into(),
        description: String::new(),
        organization: String::new(),
        terms: TermsAsk::default(),
    };
    assert_eq!(
        w.refused(0, edit(&["a"], circle)),
        RefusalCode::InvalidAccount
    );
    let terms = TermsAsk {
        shares: Some(Some(PARENT_SHARES)),
        ..TermsAsk::default()
    };
    w.must(0, edit(&["u1000"], users("c", terms)));
    assert_eq!(w.state.accounts.users["u1000"].default_account, "c");
    assert_eq!(
        w.refused(0, edit(&["root"], AccountsAsk::DeleteAccounts)),
        RefusalCode::InvalidAccount
    );
    // With an account go those below it, and what their users had of them.
    w.must(0, edit(&["A"], AccountsAsk::DeleteAccounts));
    assert_eq!(w.state.accounts.accounts.keys().collect::<Vec<_>>(), ["b"]);
    let user = &w.state.accounts.users["u1000"];
    assert!(user.accounts.is_empty() && user.default_account.is_empty());
    let qos = QosAsk {
        priority: Some(5),
        preempt: Some(ListEdit {
            sign: None,
            names: vec!["normal".into()],
        }),
        ..QosAsk::default()
    };
    w.must(0, edit(&["high"], AccountsAsk::AddQos(qos)));
    let unknown = QosAsk {
        preempt: Some(ListEdit {
            sign: None,
            names: vec!["nosuch".into()],
        }),
        ..QosAsk::default()
    };
    assert_eq!(
        w.refused(0, edit(&["high"], AccountsAsk::ModifyQos(unknown))),
        RefusalCode::InvalidQos
    );
    let mut bytes = Vec::new();
    w.state.encode_snapshot(&mut bytes);
    assert_eq!(
        State::decode_snapshot(&bytes).unwrap().accounts,
        w.state.accounts
    );
}

/// Listings showed the association of root that is there without being made, and its jobs were refused.
#[test]
fn root_has_an_association_in_the_account_root() {
    let mut config = config();
    config.order.enforce_associations = true;
    let mut w = World::with(config);
    assert!(w.try_submit(0, spec("x")).is_ok());
    assert_eq!(w.refusal(spec("x")), RefusalCode::InvalidAccount);
}

/// Slurm leaves it out where priorities are worked out.
#[test]
fn a_priority_that_a_user_asks_for_is_left_out() {
    let asking = || JobSpec {
        priority: Some(5_000_000),
        ..spec("x")
    };
    let mut config = config();
    config.order.multifactor = Some(Multifactor::default());
    let mut w = World::with(config);
    let id = w.submit(asking());
    assert_eq!(w.job(id).spec.priority, None);
    let of_root = w.try_submit(0, asking()).expect("accepted");
    assert_eq!(w.job(of_root).spec.priority, Some(5_000_000));
}

#[test]
fn what_is_enforced() {
    let mut config = config();
    config.order.enforce_associations = true;
    config.order.enforce_qos = true;
    let mut w = World::with(config);
    assert_eq!(w.refusal(spec("x")), RefusalCode::InvalidAccount);
    w.must(0, edit(&["a"], account("")));
    w.must(0, edit(&["u1000"], users("a", TermsAsk::default())));
    let id = w.submit(spec("x"));
    assert_eq!(
        w.job(id).spec.account.as_deref(),
        Some("a"),
        "the default account"
    );
    w.must(0, edit(&["high"], AccountsAsk::AddQos(QosAsk::default())));
    let high = || JobSpec {
        qos: Some("high".into()),
        ..spec("x")
    };
    assert_eq!(
        w.refusal(high()),
        RefusalCode::InvalidQos,
        "where nothing is set, there is normal alone"
    );
    let list = |names: &[&str]| AccountsAsk::ModifyUsers {
        accounts: vec![],
        default_account: String::new(),
        admin_level: String::new(),
        terms: TermsAsk {
            qos: Some(ListEdit {
                sign: None,
                names: names.iter().map(|&name| name.into()).collect(),
            }),
            ..TermsAsk::default()
        },
        wckeys: Default::default(),
        partitions: Vec::new(),
    };
    w.must(0, edit(&["u1000"], list(&["normal", "high"])));
    let before = w.submit(high());
    w.must(0, edit(&["u1000"], list(&["normal"])));
    assert_eq!(w.refusal(high()), RefusalCode::InvalidQos);
    // An update is held to the same as a submission.
    let plain = w.submit(spec("x"));
    for (id, qos, refused) in [(plain, "high", true), (before, "normal", false)] {
        let update = JobUpdate {
            qos: Some(qos.into()),
            ..JobUpdate::default()
        };
        let command = UserCommand::UpdateJob {
            target: target(id),
            update: Box::new(update),
        };
        match refused {
            true => assert_eq!(w.refused(1000, command), RefusalCode::InvalidQos),
            false => assert_eq!(w.must(1000, command), 1),
        }
    }
    let unknown = JobSpec {
        qos: Some("nosuch".into()),
        ..spec("x")
    };
    assert_eq!(w.refusal(unknown), RefusalCode::InvalidQos);
}

/// `TrackWCKey` and `AccountingStorageEnforce=wckeys`: which key a job has, or that it is refused.
#[test]
fn keys_are_given_and_enforced() {
    let of = |default: &str, keys: &[&str]| WckeysAsk {
        default: (!default.is_empty()).then(|| default.to_owned()),
        keys: Some(ListEdit {
            sign: None,
            names: keys.iter().map(|k| (*k).to_owned()).collect(),
        }),
    };
    let none = WckeysAsk::default();
    for (track, enforce, keys, asked, has) in [
        (false, false, none.clone(), None, Ok(None)),
        (false, false, none.clone(), Some("x"), Ok(Some("x"))),
        (true, false, none.clone(), None, Ok(Some("*"))),
        (true, false, of("a", &["a", "b"]), None, Ok(Some("*a"))),
        (true, false, of("a", &[]), Some("x"), Ok(Some("x"))),
        (true, true, of("a", &["b"]), None, Ok(Some("*a"))),
        (true, true, of("a", &["b"]), Some("b"), Ok(Some("b"))),
        (true, true, of("a", &["b"]), Some("x"), Err(())),
        // The first key that a user gets is its default one.
        (true, true, of("", &["b"]), None, Ok(Some("*b"))),
        (true, true, none.clone(), None, Err(())),
        (true, true, none, Some("x"), Err(())),
    ] {
        let mut config = config();
        config.order.track_wckeys = track;
        config.order.enforce_wckeys = enforce;
        let mut w = World::with(config);
        w.must(0, edit(&["c"], account("")));
        let mut added = users("c", TermsAsk::default());
        if let AccountsAsk::AddUsers { wckeys, .. } = &mut added {
            *wckeys = keys.clone();
        }
        w.must(0, edit(&["u1000"], added));
        let spec = JobSpec {
            wckey: asked.map(str::to_owned),
            ..spec("x")
        };
        let told = w.try_submit(1000, spec).map_err(|refusal| {
            assert_eq!(refusal.code, RefusalCode::InvalidWckey);
        });
        let told = told.map(|id| w.job(id).spec.wckey.as_deref());
        assert_eq!(told, has, "{track} {enforce} {keys:?} {asked:?}");
        if let (Ok(id), true) = (w.try_submit(1000, crate::world::spec("y")), enforce) {
            let update = JobUpdate {
                wckey: Some("nosuch".into()),
                ..JobUpdate::default()
            };
            let command = UserCommand::UpdateJob {
                target: target(id),
                update: Box::new(update),
            };
            assert_eq!(w.refused(1000, command), RefusalCode::InvalidWckey);
        }
    }
}

/// `delete user wckeys=` takes keys from the users named, or from all; a default among them is none any more.
#[test]
fn keys_are_deleted() {
    let mut w = World::with(config());
    w.must(0, edit(&["c"], account("")));
    for name in ["u1", "u2"] {
        let mut added = users("c", TermsAsk::default());
        if let AccountsAsk::AddUsers { wckeys, .. } = &mut added {
            wckeys.default = Some("a".into());
            wckeys.keys = Some(ListEdit {
                sign: None,
                names: vec!["a".into(), "b".into(), "c".into()],
            });
        }
        w.must(0, edit(&[name], added));
    }
    let mut delete = |names: &[&str], keys: &[&str]| {
        let keys = keys.iter().map(|k| (*k).to_owned()).collect();
        let reply = w.user(0, edit(names, AccountsAsk::DeleteWckeys(keys)));
        let Reply::Done { changed, .. } = reply else {
            panic!("{reply:?}");
        };
        let users = w.state.accounts.users.values();
        let left = users.map(|user| format!("{}:{}", user.default_wckey, user.wckeys.join(",")));
        (changed, left.collect::<Vec<_>>().join(" "))
    };
    assert_eq!(delete(&["u1"], &["b", "x"]), (1, "a:a,c a:a,b,c".into()));
    assert_eq!(delete(&[], &["b", "c"]), (2, "a:a a:a".into()));
    assert_eq!(delete(&["u2"], &["a"]), (1, "a:a :".into()));
    assert_eq!(delete(&["nobody"], &["a"]), (0, "a:a :".into()));
    assert_eq!(delete(&[], &["x"]), (0, "a:a :".into()));
}

#[test]
fn use_is_counted_while_jobs_run_and_forgotten_in_time() {
    let mut config = config();
    config.order.multifactor = Some(Multifactor {
        calc_period_s: 60,
        half_life_s: 0,
        fair_tree: true,
        usage_reset: UsageReset::Daily,
        ..Multifactor::default()
    });
    let mut w = World::with(config);
    w.now = muster_model::time::Timestamp::from_unix_s(86_400 * 100);
    w.tick();
    let id = w.submit(spec("x"));
    let alloc = w.alloc(id, &[0], 2);
    let start = muster_model::command::PlannedStart { job: id, alloc };
    assert_eq!(w.plan(vec![start]), 1);
    w.now = w.now.plus_s(100);
    w.finish(id, 0);
    w.now = w.now.plus_s(100);
    w.tick();
    let used = |w: &World| w.state.accounts.shares[0].raw_usage;
    assert!((used(&w) - 200.0).abs() < 1e-6, "{}", used(&w));
    w.now = w.now.plus_s(86_400);
    w.tick();
    assert_eq!(used(&w), 0.0);
    let reset = |e: &Event| matches!(e, Event::AccountsChanged { changes, .. } if changes == &[AccountsChange::UsageReset(None)]);
    assert!(w.history.iter().any(reset));
}

/// A QOS may not come to preempt itself by way of others: each would make room for the other for ever.
#[test]
fn preemption_has_no_circles() {
    let mut w = World::new();
    let preempts = |names: &[&str]| QosAsk {
        preempt: Some(ListEdit {
            sign: None,
            names: names.iter().map(|n| (*n).into()).collect(),
        }),
        ..QosAsk::default()
    };
    w.must(0, edit(&["low"], AccountsAsk::AddQos(QosAsk::default())));
    w.must(0, edit(&["mid"], AccountsAsk::AddQos(preempts(&["low"]))));
    w.must(0, edit(&["high"], AccountsAsk::AddQos(preempts(&["mid"]))));
    for (name, over) in [("low", "high"), ("low", "mid")] {
        let change = AccountsAsk::ModifyQos(preempts(&[over]));
        let code = w.refused(0, edit(&[name], change));
        assert_eq!(code, RefusalCode::InvalidQos, "{name} over {over}");
    }
    // Two ways to the same one are no circle.
    let change = AccountsAsk::ModifyQos(preempts(&["mid", "low"]));
    w.must(0, edit(&["high"], change));
}

/// `MAX_TRES` counts the dearest resource alone, `MAX_TRES_GRES` devices beside it.
#[test]
fn what_is_billed() {
    for (max_tres, max_tres_gres, expected) in [
        (false, false, 2.0 + 8.0),
        (true, false, 8.0),
        (false, true, 8.0),
    ] {
        let mut config = config();
        config.order.multifactor = Some(Multifactor {
            max_tres,
            max_tres_gres,
            ..Multifactor::default()
        });
        config.partitions[0].billing_weights = Some("CPU=1.0,Node=8.0".into());
        let mut w = World::with(config);
        let id = w.submit(spec("x"));
        let alloc = w.alloc(id, &[0], 2);
        let start = muster_model::command::PlannedStart { job: id, alloc };
        assert_eq!(w.plan(vec![start]), 1);
        let billed = w.job(id).alloc.as_ref().unwrap().billing_milli;
        assert_eq!(
            billed as f64 / 1000.0,
            expected,
            "{max_tres} {max_tres_gres}"
        );
    }
}

/// Licenses belong to no node: they count beside the dearest resource of the nodes.
#[test]
fn licenses_are_billed() {
    for (max_tres, expected) in [(false, 2.0 + 8.0 + 3.0 * 5.0), (true, 8.0 + 3.0 * 5.0)] {
        let mut config = config();
        config.licenses = vec![LicenseCount::new("matlab", 4)];
        config.order.multifactor = Some(Multifactor {
            max_tres,
            ..Multifactor::default()
        });
        let weights = "CPU=1.0,Node=8.0,License/matlab=5.0,License/other=99.0";
        config.partitions[0].billing_weights = Some(weights.into());
        let mut w = World::with(config);
        let id = w.submit(JobSpec {
            licenses: Some("matlab:3".into()),
            ..spec("x")
        });
        let mut alloc = w.alloc(id, &[0], 2);
        alloc.licenses = vec![LicenseCount::new("matlab", 3)];
        let start = muster_model::command::PlannedStart { job: id, alloc };
        assert_eq!(w.plan(vec![start]), 1);
        let billed = w.job(id).alloc.as_ref().unwrap().billing_milli;
        assert_eq!(billed as f64 / 1000.0, expected, "{max_tres}");
    }
}

/// Devices count by name, and by type beside that.
#[test]
fn devices_are_billed() {
    let gpu = GresConfig {
        name: "gpu".into(),
        kind: Some("A100".into()),
        count: 4,
        ..GresConfig::default()
    };
    for (max_tres, max_tres_gres, expected) in [
        (false, false, 2.0 + 8.0 + 2.0 * 10.0 + 2.0 * 5.0),
        (true, false, 20.0),
        (false, true, 8.0 + 2.0 * 10.0 + 2.0 * 5.0),
    ] {
        let mut config = config();
        config.order.multifactor = Some(Multifactor {
            max_tres,
            max_tres_gres,
            ..Multifactor::default()
        });
        let weights = "CPU=1.0,Node=8.0,GRES/gpu=10.0,GRES/gpu:a100=5.0,GRES/gpu:v100=99.0";
        config.partitions[0].billing_weights = Some(weights.into());
        config.nodes[0].gres = vec![gpu.clone()];
        let mut w = World::with(config);
        let id = w.submit(spec("x"));
        let mut alloc = w.alloc(id, &[0], 2);
        alloc.nodes[0].gres = vec![GresShare {
            name: "gpu".into(),
            kind: Some("A100".into()),
            ids: CpuSet::first(2),
            ..GresShare::default()
        }];
        let start = muster_model::command::PlannedStart { job: id, alloc };
        assert_eq!(w.plan(vec![start]), 1);
        let billed = w.job(id).alloc.as_ref().unwrap().billing_milli;
        assert_eq!(
            billed as f64 / 1000.0,
            expected,
            "{max_tres} {max_tres_gres}"
        );
    }
}

fn enforced() -> World {
    let mut config = config();
    config.order.enforce_associations = true;
    config.order.enforce_qos = true;
    let mut w = World::with(config);
    w.must(0, edit(&["a"], account("")));
    w
}

#[test]
fn a_job_whose_account_is_gone_waits() {
    let mut w = enforced();
    w.must(0, edit(&["u1000"], users("a", TermsAsk::default())));
    let id = w.submit(spec("x"));
    assert_eq!(waits_for(&w, id), None);
    w.must(0, edit(&["a"], AccountsAsk::DeleteAccounts));
    assert_eq!(waits_for(&w, id), Some("InvalidAccount"));
    w.must(0, edit(&["a"], account("")));
    w.must(0, edit(&["u1000"], users("a", TermsAsk::default())));
    assert_eq!(waits_for(&w, id), None);
}

#[test]
fn the_only_qos_is_the_one_of_a_job_that_names_none() {
    let mut w = enforced();
    w.must(0, edit(&["long"], AccountsAsk::AddQos(QosAsk::default())));
    let terms = TermsAsk {
        qos: Some(ListEdit {
            sign: None,
            names: vec!["long".into()],
        }),
        ..TermsAsk::default()
    };
    w.must(0, edit(&["u1000"], users("a", terms)));
    let id = w.submit(spec("x"));
    assert_eq!(w.state.qos_of(w.job(id)), "long");
}

#[test]
fn names_are_kept_in_lower_case() {
    let mut w = enforced();
    w.must(0, edit(&["Bio"], account("A")));
    assert_eq!(w.must(0, edit(&["BIO"], account(""))), 0);
    w.must(0, edit(&["U1000"], users("BIO", TermsAsk::default())));
    assert_eq!(w.state.accounts.users["u1000"].default_account, "bio");
    let named = JobSpec {
        account: Some("BiO".into()),
        ..spec("x")
    };
    let id = w.submit(named);
    assert_eq!(w.job(id).spec.account.as_deref(), Some("bio"));
}

#[test]
fn an_association_of_a_partition_holds_there_alone() {
    let mut w = enforced();
    let mut added = users("a", TermsAsk::default());
    if let AccountsAsk::AddUsers { partitions, .. } = &mut added {
        partitions.push("short".into());
    }
    w.must(0, edit(&["u1000"], added));
    let there = |partition: &str| JobSpec {
        partitions: vec![partition.into()],
        ..spec("x")
    };
    w.submit(there("short"));
    assert_eq!(w.refusal(there("batch")), RefusalCode::InvalidAccount);
}

#[test]
fn a_user_gets_another_name_with_all_that_it_has() {
    let mut w = enforced();
    w.must(0, edit(&["old"], users("a", TermsAsk::default())));
    let rename = |to: &str| AccountsAsk::RenameUser { to: to.into() };
    assert_eq!(w.must(0, edit(&["old"], rename("new"))), 1);
    assert_eq!(w.must(0, edit(&["new"], rename("new"))), 0, "it is taken");
    let all = &w.state.accounts.users;
    assert!(!all.contains_key("old") && all["new"].accounts.contains_key("a"));
    // What a job uses that ended under the old name would be used for ever under the new one.
    w.must(0, edit(&["u1000"], users("a", TermsAsk::default())));
    let id = w.submit(spec("x"));
    assert!(w.start(id, &[0]));
    let refused = w.refused(0, edit(&["u1000"], rename("other")));
    assert_eq!(refused, RefusalCode::JobsActive);
}

#[test]
fn who_changes_what_is_logged() {
    let mut w = World::new();
    w.must(0, edit(&["a"], account("")));
    let log = w.events.iter().find_map(|event| match event {
        Event::AccountsChanged { log, .. } => log.first(),
        _ => None,
    });
    let log = log.expect("an entry");
    assert_eq!(
        (log.actor.as_str(), log.action.as_str()),
        ("root", "Add Accounts")
    );
    assert_eq!(
        (log.target.as_str(), log.accounts.as_slice()),
        ("a", &["a".to_owned()][..])
    );
}

#[test]
fn signed_qos_add_to_and_take_from_those_of_the_account_above() {
    let mut w = World::new();
    for name in ["x", "y", "z"] {
        w.must(0, edit(&[name], AccountsAsk::AddQos(QosAsk::default())));
    }
    let qos = |sign: Option<char>, names: &[&str], less: &[&str]| TermsAsk {
        qos: Some(ListEdit {
            sign,
            names: names.iter().map(|n| (*n).to_owned()).collect(),
        }),
        qos_less: less.iter().map(|n| (*n).to_owned()).collect(),
        ..TermsAsk::default()
    };
    let above = AccountsAsk::AddAccounts {
        parent: String::new(),
        description: String::new(),
        organization: String::new(),
        terms: qos(None, &["x", "y"], &[]),
    };
    w.must(0, edit(&["a"], above));
    w.must(
        0,
        edit(&["u1000"], users("a", qos(Some('+'), &["z"], &["y"]))),
    );
    let list = w.state.accounts.qos_list("a", "u1000", "");
    assert_eq!(list, Some(vec!["x".to_owned(), "z".to_owned()]));
}

fn waits_for(w: &World, id: muster_model::ids::JobId) -> Option<&'static str> {
    let over = w.state.waits_for_limit(w.job(id), w.now);
    over.map(|over| over.reason.name())
}

#[test]
fn limits_of_an_association_of_a_partition_count_there_alone() {
    let mut config = config();
    config.order.enforce_limits = true;
    let mut w = World::with(config);
    w.must(0, edit(&["a"], account("")));
    for (partition, jobs) in [("short", "1"), ("", "5")] {
        let terms = TermsAsk {
            limits: vec![LimitAsk::new("maxsubmit", jobs)],
            ..TermsAsk::default()
        };
        let mut added = users("a", terms);
        if let AccountsAsk::AddUsers { partitions, .. } = &mut added {
            partitions.extend(Some(partition.to_owned()).filter(|name| !name.is_empty()));
        }
        w.must(0, edit(&["u1000"], added));
    }
    let there = |partition: &str| JobSpec {
        partitions: vec![partition.into()],
        ..spec("x")
    };
    w.submit(there("batch"));
    w.submit(there("short"));
    assert_eq!(w.refusal(there("short")), RefusalCode::AccountingPolicy);
    w.submit(there("batch"));
}

#[test]
fn clusters_are_records_and_the_own_ones_settings_those_of_root() {
    let mut w = World::new();
    let ask = |limits: &str| ClusterAsk {
        classification: Some("Capacity".into()),
        terms: TermsAsk {
            limits: vec![LimitAsk::new("maxjobs", limits)],
            ..TermsAsk::default()
        },
    };
    assert_eq!(
        w.must(
            0,
            edit(&["West", "test"], AccountsAsk::AddClusters(ask("3")))
        ),
        1
    );
    w.must(0, edit(&["test"], AccountsAsk::ModifyClusters(ask("4"))));
    let all = &w.state.accounts;
    assert_eq!(all.clusters["west"].terms.limits.max_jobs, Some(3));
    assert_eq!(
        (all.root.limits.max_jobs, all.classification.as_str()),
        (Some(4), "Capacity")
    );
    let inherited = all.terms("nobody", "nobody", "").next();
    assert_eq!(inherited.and_then(|terms| terms.limits.max_jobs), Some(4));
    let delete = || AccountsAsk::DeleteClusters;
    assert_eq!(
        w.refused(0, edit(&["test"], delete())),
        RefusalCode::InvalidValue
    );
    w.must(0, edit(&["west"], delete()));
    assert_eq!(
        w.refused(0, edit(&["west"], delete())),
        RefusalCode::InvalidValue
    );
}

/// An edit in the records of another cluster.
#[test]
fn an_account_that_comes_under_one_below_it_changes_places_with_it() {
    let mut w = World::new();
    for (name, parent) in [("a", ""), ("b", "a"), ("c", "b")] {
        w.must(0, edit(&[name], account(parent)));
    }
    let under = |parent: &str| AccountsAsk::ModifyAccounts {
        parent: parent.into(),
        description: String::new(),
        organization: String::new(),
        terms: TermsAsk::default(),
    };
    w.must(0, edit(&["b", "a"], under("c")));
    let parents = |w: &World| {
        let all = w.state.accounts.accounts.values();
        all.map(|account| account.parent.clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(parents(&w), ["c", "c", "root"]);
    assert_eq!(
        w.refused(0, edit(&["a"], under("a"))),
        RefusalCode::InvalidAccount
    );
}
