//! The expected texts are what scontrol 22.05.8 printed for the same records.

use super::*;
use muster_model::accounts::{Account, Accounts, AssociationTerms};

fn amounts(list: &[(&str, u64)]) -> TresAmounts {
    let named = list
        .iter()
        .map(|(name, amount)| ((*name).to_owned(), *amount));
    named
        .collect::<BTreeMap<String, u64>>()
        .into_iter()
        .collect()
}

fn terms(id: u32, shares: Option<u32>, limits: Limits) -> AssociationTerms {
    AssociationTerms {
        id,
        shares,
        limits,
        ..AssociationTerms::default()
    }
}

fn account(name: &str, parent: &str, terms: AssociationTerms) -> (String, Account) {
    let account = Account {
        name: name.into(),
        parent: parent.into(),
        terms,
        ..Account::default()
    };
    (name.into(), account)
}

/// Accounts of the cluster that printed the texts.
fn accounts() -> BTreeMap<String, Account> {
    let none = Limits::default;
    let a2 = Limits {
        grp_jobs: Some(5),
        max_jobs: Some(3),
        grp_tres: amounts(&[("cpu", 16), ("gres/gpu", 2)]),
        ..Limits::default()
    };
    [
        account("bench", ROOT, terms(3, None, none())),
        account("a1", ROOT, terms(5, None, none())),
        account("a2", "a1", terms(6, Some(10), a2)),
        account("a3", ROOT, terms(7, None, none())),
    ]
    .into()
}

fn users() -> BTreeMap<String, User> {
    let none = Limits::default;
    let limits = Limits {
        max_tres: amounts(&[("cpu", 6), ("node", 2)]),
        max_wall_min: Some(50),
        max_submit: Some(20),
        grp_tres_run_mins: amounts(&[("cpu", 4000)]),
        ..Limits::default()
    };
    let in_a2 = AssociationTerms {
        priority: Some(7),
        ..terms(8, None, limits)
    };
    let short = [("short".into(), terms(9, None, none()))].into();
    let games = User {
        name: "games".into(),
        default_account: "a2".into(),
        accounts: [("a2".into(), in_a2)].into(),
        partitions: [("a3".into(), short)].into(),
        ..User::default()
    };
    let lp = User {
        name: "lp".into(),
        default_account: "a3".into(),
        admin_level: "Operator".into(),
        default_wckey: "w1".into(),
        accounts: [("a3".into(), terms(10, None, none()))].into(),
        ..User::default()
    };
    [("games".into(), games), ("lp".into(), lp)].into()
}

fn q1() -> Qos {
    Qos {
        name: "q1".into(),
        id: 2,
        priority: 50,
        limits: Limits {
            grp_submit: Some(20),
            grp_wall_min: Some(500),
            grp_tres: amounts(&[("cpu", 20)]),
            grp_tres_mins: amounts(&[("cpu", 1000)]),
            grp_tres_run_mins: amounts(&[("cpu", 5000)]),
            max_wall_min: Some(60),
            min_priority: Some(5),
            min_tres: amounts(&[("cpu", 1)]),
            max_tres_account: amounts(&[("cpu", 12)]),
            max_tres_user: amounts(&[("cpu", 8)]),
            max_jobs: Some(4),
            max_jobs_accrue: Some(3),
            max_submit: Some(9),
            ..Limits::default()
        },
        ..Qos::default()
    }
}

fn answer() -> AccountsAnswer {
    let used = |scope| ScopeUse {
        scope,
        jobs: 2,
        submitted: 2,
        tres: amounts(&[("cpu", 8), ("node", 2), ("billing", 8)]),
        run_minutes: amounts(&[("cpu", 240), ("node", 60), ("billing", 240)]),
        ..unused()
    };
    let scopes = [
        Scope::Account("a2".into()),
        Scope::Association("a2".into(), "games".into()),
        Scope::Qos("q1".into()),
        Scope::QosUser("q1".into(), "games".into()),
        Scope::QosAccount("q1".into(), "a2".into()),
    ];
    // Slurm had not computed shares yet.
    let share = |account: &str, user: &str| Share {
        account: account.into(),
        user: user.into(),
        norm_shares: 1.0,
        norm_usage: 1.0,
        ..Share::default()
    };
    AccountsAnswer {
        accounts: Accounts {
            accounts: accounts(),
            users: users(),
            qos: [("q1".into(), q1())].into(),
            shares: vec![share("a2", ""), share("a2", "games")],
            ..Accounts::default()
        },
        cluster: "peer".into(),
        uses: scopes.into_iter().map(used).collect(),
        ..AccountsAnswer::default()
    }
}

fn shown(words: &[&str], one_line: bool) -> String {
    let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
    let Ok(filter) = RecordFilter::parse(&words) else {
        panic!("{words:?} is refused");
    };
    let tres = ["gres/gpu", "license/matlab"].map(str::to_owned);
    let uid = |name: &str| match name {
        ROOT => 0,
        "games" => 5,
        _ => 7,
    };
    render(answer(), &tres, &filter, one_line, &uid)
}

#[track_caller]
fn assert_same(ours: &str, slurms: &str) {
    for (a, b) in ours.lines().zip(slurms.lines()) {
        assert_eq!(a, b);
    }
    assert_eq!(ours, slurms);
}

#[test]
fn a_qos_has_its_limits_and_what_counts_towards_each() {
    assert_same(
        &shown(&["flags=qos", "qos=q1"], false),
        include_str!("../expected/assoc_mgr_qos.out"),
    );
    assert_same(
        &shown(&["qos=q1", "flag=QOS"], true),
        include_str!("../expected/assoc_mgr_qos_o.out"),
    );
}

#[test]
fn an_association_has_limits_shares_and_use() {
    assert_same(
        &shown(&["flags=assoc", "account=a2"], false),
        include_str!("../expected/assoc_mgr_assoc.out"),
    );
    assert_same(
        &shown(&["flags=assoc", "account=a2", "user=games"], true),
        include_str!("../expected/assoc_mgr_assoc_o.out"),
    );
}

#[test]
fn users_are_those_that_are_named() {
    let all = "UserName=root(0) DefAccount=root DefWckey= AdminLevel=Administrator\n\
               UserName=games(5) DefAccount=a2 DefWckey=(null) AdminLevel=Not Set\n\
               UserName=lp(7) DefAccount=a3 DefWckey=w1 AdminLevel=Operator\n";
    let head = "Current Association Manager state\n\nUser Records\n\n";
    assert_eq!(shown(&["flags=users"], false), format!("{head}{all}"));
    let none = "Current Association Manager state\n\nNo users currently cached in Slurm.\n\n";
    assert_eq!(shown(&["flags=users", "users=nosuch"], false), none);
    let accounts = shown(&["users=lp", "flags=assoc"], true);
    assert!(accounts.contains("Account=a3 UserName=lp(7) ") && !accounts.contains("games"));
}

#[test]
fn unknown_words_are_refused() {
    for words in ["flags=nosuch", "nosuch=1", "nosuch", "flags="] {
        assert!(RecordFilter::parse(&[words.to_owned()]).is_err(), "{words}");
    }
}
