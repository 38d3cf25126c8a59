//! Which QOS coordinators give, to others and to themselves, and what they are refused before anything is worked out.

use crate::accounts::{account, edit, users};
use crate::world::World;
use muster_model::account_limits::LimitAsk;
use muster_model::command::{AccountsAsk, ListEdit, QosAsk, Reply, TermsAsk, UserCommand};
use muster_model::limits::EDIT_ITEMS_MAX;
use muster_model::refusal::RefusalCode;
use muster_model::validate::Validate;

fn qos(sign: Option<char>, names: &[&str]) -> TermsAsk {
    TermsAsk {
        qos: Some(ListEdit {
            sign,
            names: names.iter().map(|n| (*n).to_owned()).collect(),
        }),
        ..TermsAsk::default()
    }
}

fn modify(user: &str, partition: &[&str], terms: TermsAsk) -> UserCommand {
    let ask = AccountsAsk::ModifyUsers {
        accounts: vec!["a".into()],
        default_account: String::new(),
        admin_level: String::new(),
        terms,
        wckeys: Default::default(),
        partitions: partition.iter().map(|n| (*n).to_owned()).collect(),
    };
    edit(&[user], ask)
}

fn in_partition(name: &str, terms: TermsAsk) -> AccountsAsk {
    let mut ask = users("a", terms);
    if let AccountsAsk::AddUsers { partitions, .. } = &mut ask {
        partitions.push(name.to_owned());
    }
    ask
}

fn list(names: &[&str]) -> AccountsAsk {
    AccountsAsk::ModifyAccounts {
        parent: String::new(),
        description: String::new(),
        organization: String::new(),
        terms: qos(None, names),
    }
}

/// QOS low and high, and account a below p.
fn with_qos() -> World {
    let mut w = World::new();
    for name in ["low", "high"] {
        w.must(0, edit(&[name], AccountsAsk::AddQos(QosAsk::default())));
    }
    w.must(0, edit(&["p"], account("")));
    w.must(0, edit(&["a"], account("p")));
    w
}

fn make_coordinator(w: &mut World) {
    let coordinator = AccountsAsk::AddCoordinators {
        accounts: vec!["a".into()],
    };
    w.must(0, edit(&["u1000"], coordinator));
}

/// The association for one partition has fewer QOS than the one for all, with which a change of it was compared.
#[test]
fn a_coordinator_keeps_its_list_of_a_partition() {
    let mut w = with_qos();
    w.must(0, edit(&["a"], list(&["normal", "low", "high"])));
    w.must(0, edit(&["u1000"], users("a", TermsAsk::default())));
    w.must(
        0,
        edit(&["u1000"], in_partition("short", qos(None, &["low"]))),
    );
    make_coordinator(&mut w);
    let leave = AccountsAsk::DeleteUsers {
        accounts: vec!["a".into()],
        partitions: vec!["short".into()],
    };
    w.must(1000, edit(&["below"], account("a")));
    for change in [
        modify("u1000", &["short"], qos(None, &[])),
        modify("u1000", &["short"], qos(Some('+'), &["high"])),
        modify("u1000", &["short"], qos(Some('-'), &["low"])),
        edit(&["u1000"], leave),
        edit(&["u1000"], users("below", TermsAsk::default())),
    ] {
        assert_eq!(w.refused(1000, change), RefusalCode::AccessDenied);
    }
    w.must(1000, edit(&["u1000"], users("below", qos(None, &["low"]))));
}

/// Where there are associations for partitions only, what any of them had was given to all.
#[test]
fn what_a_coordinator_has_in_one_partition_it_has_not_in_all() {
    let mut w = with_qos();
    w.must(0, edit(&["a"], list(&["normal", "low", "high"])));
    w.must(
        0,
        edit(
            &["u1000"],
            in_partition("short", qos(None, &["low", "high"])),
        ),
    );
    w.must(
        0,
        edit(&["u1000"], in_partition("long", qos(None, &["low"]))),
    );
    make_coordinator(&mut w);
    for change in [
        modify("u1000", &["long"], qos(Some('+'), &["high"])),
        edit(&["u1000"], users("a", TermsAsk::default())),
        edit(&["u1000"], users("a", qos(None, &["high"]))),
        edit(&["u1000"], in_partition("batch", qos(None, &["high"]))),
    ] {
        assert_eq!(w.refused(1000, change), RefusalCode::AccessDenied);
    }
    w.must(1000, edit(&["u1000"], users("a", qos(None, &["low"]))));
}

/// A coordinator that is in the account above only could give new users of the account what it has, and not those that were there.
#[test]
fn a_coordinator_gives_others_what_the_account_has() {
    let mut w = with_qos();
    w.must(0, edit(&["p"], list(&["low"])));
    w.must(0, edit(&["a"], list(&["low", "high"])));
    w.must(0, edit(&["u1000"], users("p", TermsAsk::default())));
    w.must(0, edit(&["u2000"], users("a", qos(None, &["low"]))));
    make_coordinator(&mut w);
    w.must(1000, modify("u2000", &[], qos(Some('+'), &["high"])));
    w.must(1000, edit(&["u3000"], users("a", TermsAsk::default())));
    // Of its own it has what the account above has.
    let own = edit(&["u1000"], users("a", TermsAsk::default()));
    assert_eq!(w.refused(1000, own), RefusalCode::AccessDenied);
}

/// The lists of others were worked out before rights were looked at, and named in the refusal.
#[test]
fn strangers_cause_no_lists_of_qos_to_be_worked_out() {
    let mut w = with_qos();
    w.must(0, edit(&["u2000"], users("a", qos(None, &["low"]))));
    w.must(0, edit(&["p"], list(&["low"])));
    w.must(0, edit(&["a"], list(&["low", "high"])));
    w.must(0, edit(&["u7"], users("p", TermsAsk::default())));
    let reply = w.user(7, modify("u2000", &[], qos(None, &[])));
    let Reply::Refused(refusal) = reply else {
        panic!("{reply:?}");
    };
    assert_eq!(refusal.code, RefusalCode::AccessDenied);
    assert!(
        refusal.to_string().contains("not a coordinator"),
        "{refusal}"
    );
    // What is named again is looked at once, and lists have an end.
    let many = vec!["low"; EDIT_ITEMS_MAX];
    w.must(0, modify("u2000", &[], qos(None, &many)));
    let user = w.state.accounts.user("u2000").expect("it is there");
    assert_eq!(user.accounts["a"].qos, Some(vec!["low".to_owned()]));
    let of = |count| ListEdit {
        sign: None,
        names: vec![String::new(); count],
    };
    assert!(of(EDIT_ITEMS_MAX).validate().is_ok());
    assert!(of(EDIT_ITEMS_MAX + 1).validate().is_err());
    // An edit of too much is refused before what it is about is looked at.
    let mut ask = users("a", TermsAsk::default());
    if let AccountsAsk::AddUsers { accounts, .. } = &mut ask {
        *accounts = (0..EDIT_ITEMS_MAX).map(|n| format!("a{n}")).collect();
    }
    let names: Vec<String> = (0..100).map(|n| format!("u{n}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let refused = w.refused(7, edit(&names, ask));
    assert_eq!(refused, RefusalCode::InvalidValue);
}

fn limited(limits: Vec<LimitAsk>) -> TermsAsk {
    TermsAsk {
        limits,
        ..TermsAsk::default()
    }
}

/// Rights were looked at for each that is named, so that a stranger who named none had limits worked out that nobody would have.
#[test]
fn an_edit_of_nobody_is_made_by_those_whose_role_suffices() {
    let mut w = with_qos();
    w.must(0, edit(&["u1000"], users("a", TermsAsk::default())));
    make_coordinator(&mut w);
    // What is wrong about it is not looked at.
    let wrong = || limited(vec![LimitAsk::new("maxtres", "nonsense")]);
    let mut of_users = modify("u1000", &[], wrong());
    if let UserCommand::EditAccounts(edit) = &mut of_users {
        edit.names.clear();
    }
    let of_accounts = AccountsAsk::ModifyAccounts {
        parent: String::new(),
        description: String::new(),
        organization: String::new(),
        terms: wrong(),
    };
    let delete_users = AccountsAsk::DeleteUsers {
        accounts: vec!["a".into()],
        partitions: Vec::new(),
    };
    let delete_coordinators = |accounts: &[&str]| AccountsAsk::DeleteCoordinators {
        accounts: accounts.iter().map(|n| (*n).to_owned()).collect(),
    };
    for change in [
        of_users,
        edit(&[], of_accounts),
        edit(&[], users("p", wrong())),
        edit(&[], delete_users),
        edit(&[], delete_coordinators(&[])),
        edit(&[], delete_coordinators(&["a"])),
    ] {
        assert_eq!(w.refused(7, change), RefusalCode::AccessDenied);
    }
    // All of an account.
    w.must(1000, edit(&[], delete_coordinators(&["a"])));
    let user = w.state.accounts.user("u1000").expect("it is there");
    assert!(user.coordinates.is_empty());
}

/// Each name of a limit was looked for among all before it, for each association once more.
#[test]
fn limits_of_too_many_resources_are_refused() {
    let mut w = with_qos();
    w.must(0, edit(&["u2000"], users("a", TermsAsk::default())));
    let value = |from: usize, count: usize| {
        let words = (from..from + count).map(|n| format!("gres/x{n}=1"));
        words.collect::<Vec<_>>().join(",")
    };
    let of = |from, count| limited(vec![LimitAsk::new("maxtres", value(from, count))]);
    let count = |w: &World| {
        let user = w.state.accounts.user("u2000").expect("it is there");
        user.accounts["a"].limits.max_tres.len()
    };
    let refused = w.refused(0, modify("u2000", &[], of(0, 257)));
    assert_eq!(refused, RefusalCode::InvalidValue);
    w.must(0, modify("u2000", &[], of(0, 256)));
    // With those that are there.
    let refused = w.refused(0, modify("u2000", &[], of(256, 1)));
    assert_eq!(refused, RefusalCode::InvalidValue);
    assert_eq!(count(&w), 256);
    w.must(0, modify("u2000", &[], of(0, 256)));
    let long = format!("gres/{}=1", "x".repeat(300));
    let long = limited(vec![LimitAsk::new("maxtres", long)]);
    let refused = w.refused(0, modify("u2000", &[], long));
    assert_eq!(refused, RefusalCode::InvalidValue);
    // How much it is comes before who asks.
    let many = |limits| limited(vec![LimitAsk::new("maxtres", value(0, 256)); limits]);
    let refused = w.refused(7, modify("u2000", &[], many(17)));
    assert_eq!(refused, RefusalCode::InvalidValue);
    let refused = w.refused(7, modify("u2000", &[], many(16)));
    assert_eq!(refused, RefusalCode::AccessDenied);
    let names: Vec<String> = (0..65).map(|n| format!("u{n}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let refused = w.refused(7, edit(&names, users("a", many(16))));
    assert_eq!(refused, RefusalCode::InvalidValue);
    // For each association, of which a stranger gets to know nothing.
    let mut ask = users("a", TermsAsk::default());
    if let AccountsAsk::AddUsers { partitions, .. } = &mut ask {
        *partitions = names.iter().map(|n| (*n).to_owned()).collect();
    }
    w.must(0, edit(&["u3000"], ask));
    let change = || modify("u3000", &[], many(16));
    assert_eq!(w.refused(7, change()), RefusalCode::AccessDenied);
    w.must(0, edit(&["u1000"], users("a", TermsAsk::default())));
    make_coordinator(&mut w);
    let refused = w.refused(1000, change());
    assert_eq!(refused, RefusalCode::InvalidValue);
}
