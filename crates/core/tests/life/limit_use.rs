//! What counts towards limits when a user gets another name, or an account another parent.

use crate::accounts::{account, edit, users};
use crate::world::{World, config, spec, target};
use muster_model::account_limits::{LimitAsk, Scope};
use muster_model::command::{AccountsAsk, TermsAsk};
use muster_model::ids::JobId;
use muster_model::refusal::RefusalCode;
use muster_model::spec::JobSpec;

fn waits_for(w: &World, id: JobId) -> Option<&'static str> {
    let over = w.state.waits_for_limit(w.job(id), w.now);
    over.map(|over| over.reason.name())
}

/// The limits of an association, of a user in a partition and of a QOS count what was used: under the new name it had used nothing,
/// and the next user of the old name had used all.
#[test]
fn what_a_user_has_used_counts_under_the_new_name() {
    let mut config = config();
    config.order.enforce_limits = true;
    let mut w = World::with(config);
    w.must(0, edit(&["a"], account("")));
    let terms = || TermsAsk {
        limits: vec![LimitAsk::new("grpwall", "10")],
        ..TermsAsk::default()
    };
    let in_partition = |partition: &str| {
        let mut added = users("a", terms());
        if let AccountsAsk::AddUsers { partitions, .. } = &mut added {
            partitions.push(partition.to_owned());
        }
        added
    };
    for added in [users("a", terms()), in_partition("short")] {
        w.must(0, edit(&["u1000"], added));
    }
    let on = |partition: &str| JobSpec {
        partitions: vec![partition.into()],
        ..spec("x")
    };
    for partition in ["batch", "short"] {
        let id = w.submit(on(partition));
        assert!(w.start(id, &[0]));
        w.now = w.now.plus_s(1200);
        w.finish(id, 0);
    }
    let before = w.state.accounts.tres_usage.clone();
    let rename = AccountsAsk::RenameUser { to: "u2000".into() };
    w.must(0, edit(&["u1000"], rename));
    for partition in ["batch", "short"] {
        let id = w.try_submit(2000, on(partition)).expect("accepted");
        let limit = Some("AssocGrpWallLimit");
        assert_eq!(waits_for(&w, id), limit, "{partition}");
    }
    let after = &w.state.accounts.tres_usage;
    assert!(after.keys().all(|scope| scope.user() != Some("u1000")));
    let owned = before.iter().filter(|(scope, _)| scope.user().is_some());
    assert!(owned.clone().count() >= 3, "{before:?}");
    for (scope, used) in owned {
        assert_eq!(after.get(&scope.clone().with_user("u2000")), Some(used));
    }
    for added in [users("a", terms()), in_partition("short")] {
        w.must(0, edit(&["u1000"], added));
    }
    for partition in ["batch", "short"] {
        let id = w.submit(on(partition));
        assert_eq!(waits_for(&w, id), None, "{partition}");
    }
}

/// A job counted for the account that it had been below, for ever, and not for the one that it was below when it ended.
#[test]
fn a_job_that_runs_counts_for_the_accounts_that_it_is_below() {
    let mut config = config();
    config.order.enforce_limits = true;
    let mut w = World::with(config);
    w.must(0, edit(&["left", "right"], account("")));
    w.must(0, edit(&["a"], account("left")));
    w.must(0, edit(&["u1000"], users("a", TermsAsk::default())));
    let id = w.submit(spec("x"));
    assert!(w.start(id, &[0]));
    w.now = w.now.plus_s(600);
    let moved = AccountsAsk::ModifyAccounts {
        parent: "right".into(),
        description: String::new(),
        organization: String::new(),
        terms: TermsAsk::default(),
    };
    w.must(0, edit(&["a"], moved));
    w.now = w.now.plus_s(300);
    w.finish(id, 0);
    w.now = w.now.plus_s(6000);
    let minutes = |w: &World, name: &str| {
        let usage = &w.state.accounts.tres_usage[&Scope::Account(name.to_owned())];
        usage.minutes("wall", w.now, 0)
    };
    assert_eq!(minutes(&w, "left"), 10);
    assert_eq!(minutes(&w, "right"), 5);
    assert_eq!(minutes(&w, "a"), 15);
}

/// Jobs that waited counted under the old name: a user could submit as many again under the new one.
#[test]
fn a_user_with_jobs_that_wait_keeps_its_name() {
    let mut w = World::new();
    w.must(0, edit(&["a"], account("")));
    w.must(0, edit(&["u1000"], users("a", TermsAsk::default())));
    let id = w.submit(spec("x"));
    let rename = || edit(&["u1000"], AccountsAsk::RenameUser { to: "b".into() });
    assert_eq!(w.refused(0, rename()), RefusalCode::JobsActive);
    w.cancel(1000, target(id));
    assert_eq!(w.must(0, rename()), 1);
}
