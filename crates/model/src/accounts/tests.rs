//! Use that decays, and settings that associations have from accounts above.

use super::*;

#[test]
fn use_decays_and_grows_the_same_however_often_it_is_looked_at() {
    let start = UserUsage {
        raw: 1000.0,
        at: Timestamp(0),
        rate_milli: 2000,
    };
    let later = |s: u64| Timestamp(0).plus_s(s);
    let once = start.at(later(7200), 3600);
    let mut often = start;
    (1..=720).for_each(|i| often = often.at(later(i * 10), 3600));
    assert!(
        (once.raw - often.raw).abs() < 1e-6,
        "{} {}",
        once.raw,
        often.raw
    );
    let idle = UserUsage {
        rate_milli: 0,
        ..start
    };
    assert!((idle.at(later(3600), 3600).raw - 500.0).abs() < 1e-9);
    assert_eq!(start.at(later(10), 0).raw, 1020.0);
}

#[test]
fn what_is_not_set_is_the_accounts() {
    let mut all = Accounts::default();
    for (name, parent) in [("a", "root"), ("b", "a")] {
        let account = Account {
            name: name.into(),
            parent: parent.into(),
            ..Account::default()
        };
        all.accounts.insert(name.into(), account);
    }
    let mut user = User::default();
    user.accounts
        .insert("b".into(), AssociationTerms::default());
    all.users.insert("u".into(), user);
    let a = all.accounts.get_mut("a").unwrap();
    a.terms.qos = Some(vec!["high".into()]);
    a.terms.default_qos = Some("high".into());
    a.terms.priority = Some(7);
    assert_eq!(all.default_qos("b", "u", ""), "high");
    assert_eq!(all.association_priority("b", "u", ""), 7);
    assert!(all.allows_qos("b", "u", "", "high") && !all.allows_qos("b", "u", "", "normal"));
    assert_eq!(all.default_qos("x", "y", ""), "normal");
}

#[test]
fn a_list_of_qos_and_whether_one_is_in_it_agree() {
    let mut all = Accounts::default();
    for name in ["x", "y", "z"] {
        all.qos.insert(
            name.into(),
            Qos {
                name: name.into(),
                ..Qos::default()
            },
        );
    }
    let names = |text: &str| -> Vec<String> { text.chars().map(String::from).collect() };
    let delta = |more: &str, less: &str| QosDelta {
        more: names(more),
        less: names(less),
    };
    for (root, account, user, expected) in [
        (None, ("", ""), ("", ""), None),
        (None, ("x", ""), ("", ""), Some(vec!["normal", "x"])),
        (None, ("xy", ""), ("z", "y"), Some(vec!["normal", "x", "z"])),
        (Some("xy"), ("", "y"), ("", ""), Some(vec!["x"])),
        (Some("x"), ("", "x"), ("x", ""), Some(vec!["x"])),
    ] {
        all.root.qos = root.map(names);
        let mut own = Account {
            name: "a".into(),
            parent: ROOT.into(),
            ..Account::default()
        };
        own.terms.qos_delta = delta(account.0, account.1);
        all.accounts.insert("a".into(), own);
        let terms = AssociationTerms {
            qos_delta: delta(user.0, user.1),
            ..AssociationTerms::default()
        };
        let accounts = [("a".to_owned(), terms)].into();
        all.users.insert(
            "u".into(),
            User {
                name: "u".into(),
                accounts,
                ..User::default()
            },
        );
        let list = all.qos_list("a", "u", "");
        let list: Option<Vec<&str>> = list
            .as_ref()
            .map(|list| list.iter().map(String::as_str).collect());
        assert_eq!(list, expected);
        for name in [NORMAL, "x", "y", "z"] {
            let list = expected.as_deref().unwrap_or(&[NORMAL]);
            let among = list.contains(&name);
            assert_eq!(
                all.allows_qos("a", "u", "", name),
                among,
                "{name} of {expected:?}"
            );
        }
        let only = match expected.as_deref() {
            Some([only]) => *only,
            _ => NORMAL,
        };
        assert_eq!(all.default_qos("a", "u", ""), only);
    }
}
