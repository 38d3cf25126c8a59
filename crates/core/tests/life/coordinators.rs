//! Which QOS coordinators give, to others and to themselves, and what they are refused before anything is worked out.

use crate::accounts::{account, edit, users};
use crate::world::World;
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
