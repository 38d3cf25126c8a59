//! Accounts and users of clusters beside the controller's own.

use crate::accounts::{account, edit, users};
use crate::world::World;
use muster_model::account_limits::LimitAsk;
use muster_model::command::{
    AccountsAsk, AccountsEdit, ClusterAsk, ListEdit, QosAsk, TermsAsk, UserCommand,
};
use muster_model::refusal::RefusalCode;

fn edit_in(cluster: &str, names: &[&str], ask: AccountsAsk) -> UserCommand {
    UserCommand::EditAccounts(Box::new(AccountsEdit {
        cluster: cluster.to_owned(),
        names: names.iter().map(|n| (*n).to_owned()).collect(),
        ask,
    }))
}

#[test]
fn records_of_another_cluster_are_kept_beside_the_own_ones_and_change_nothing_here() {
    let mut w = World::new();
    let ask = AccountsAsk::AddClusters(ClusterAsk::default());
    w.must(0, edit(&["west"], ask.clone()));
    let own = w.state.accounts.accounts.clone();
    assert_eq!(w.must(0, edit_in("West", &["bio"], account(""))), 1);
    assert_eq!(w.must(0, edit_in("west", &["Bio"], account(""))), 0);
    let terms = TermsAsk {
        limits: vec![LimitAsk::new("maxjobs", "3")],
        ..TermsAsk::default()
    };
    w.must(0, edit_in("west", &["amy"], users("bio", terms)));
    assert_eq!(w.state.accounts.accounts, own);
    assert!(!w.state.accounts.users.contains_key("amy"));
    let west = &w.state.accounts.clusters["west"];
    assert_eq!(west.association_count(), 2);
    let amy = &west.users["amy"];
    assert_eq!(amy.default_account, "bio");
    assert_eq!(amy.accounts["bio"].limits.max_jobs, Some(3));
    // Each cluster numbers its associations for itself, after root's.
    assert_eq!(
        (west.accounts["bio"].terms.id, amy.accounts["bio"].id),
        (3, 4)
    );
    // The cluster's own record changes without them.
    w.must(
        0,
        edit(
            &["west"],
            AccountsAsk::ModifyClusters(ClusterAsk::default()),
        ),
    );
    assert_eq!(w.state.accounts.clusters["west"].association_count(), 2);
    // Who coordinates an account there is nobody here.
    let ask = AccountsAsk::AddCoordinators {
        accounts: vec!["bio".into()],
    };
    w.must(0, edit_in("west", &["amy"], ask));
    for (cluster, ask, code) in [
        ("west", account("bio"), RefusalCode::AccessDenied),
        // Whether it is there, too, is not for everybody to know.
        ("nosuch", account(""), RefusalCode::AccessDenied),
    ] {
        assert_eq!(w.refused(1000, edit_in(cluster, &["x"], ask)), code);
    }
    assert_eq!(
        w.refused(0, edit_in("nosuch", &["x"], account(""))),
        RefusalCode::InvalidValue
    );
    // Only accounts and users are kept.
    let qos = AccountsAsk::AddQos(Default::default());
    assert_eq!(
        w.refused(0, edit_in("west", &["high"], qos)),
        RefusalCode::InvalidValue
    );
    w.must(0, edit_in("west", &["bio"], AccountsAsk::DeleteAccounts));
    let west = &w.state.accounts.clusters["west"];
    assert!(west.accounts.is_empty() && west.users["amy"].default_account.is_empty());
    w.must(0, edit(&["west"], AccountsAsk::DeleteClusters));
    assert!(w.state.accounts.clusters.is_empty());
}

/// An empty list stood for `normal`, so that a cluster could not have none.
#[test]
fn a_cluster_may_have_no_qos() {
    let mut w = World::new();
    let own = w.state.config.as_ref().unwrap().cluster_name.clone();
    w.must(0, edit(&["q"], AccountsAsk::AddQos(QosAsk::default())));
    w.must(0, edit(&["a"], account("root")));
    w.must(0, edit(&["u1000"], users("a", TermsAsk::default())));
    let list = |w: &World| w.state.accounts.qos_list("a", "u1000", "");
    let set = |w: &mut World, sign, names: &[&str]| {
        let terms = TermsAsk {
            qos: Some(ListEdit {
                sign,
                names: names.iter().map(|name| (*name).to_owned()).collect(),
            }),
            ..TermsAsk::default()
        };
        let ask = ClusterAsk {
            terms,
            ..ClusterAsk::default()
        };
        w.must(0, edit(&[&own], AccountsAsk::ModifyClusters(ask)));
    };
    assert_eq!(list(&w), None);
    set(&mut w, None, &[]);
    assert_eq!(list(&w), Some(Vec::new()));
    assert!(!w.state.accounts.allows_qos("a", "u1000", "", "normal"));
    set(&mut w, Some('+'), &["q"]);
    assert_eq!(list(&w), Some(vec!["q".to_owned()]));
    set(&mut w, Some('-'), &["q"]);
    assert_eq!(list(&w), Some(Vec::new()));
    set(&mut w, None, &["normal"]);
    assert!(w.state.accounts.allows_qos("a", "u1000", "", "normal"));
}
