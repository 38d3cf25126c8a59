//! What `PrivateData` hides from whom.

use super::{CALLERS, COORDINATOR, OPERATOR, OWNER, STRANGER, world_with};
use crate::world::{World, config, target, user};
use muster_core::policy::access::privacy::{self, JobScope};
use muster_model::command::{JobSelection, JobTarget, JobUpdate, UserCommand};
use muster_model::config::ClusterConfig;
use muster_model::ids::JobId;
use muster_model::job::ExitStatus;
use muster_model::private_data::PrivateData;
use muster_model::reservation::Reservation;
use std::collections::BTreeSet;

/// A world whose configuration has these words.
fn private(words: &str) -> (World, JobId, JobId) {
    world_with(ClusterConfig {
        private: PrivateData::parse(words),
        ..config()
    })
}

#[test]
fn jobs_of_others_are_seen_by_those_who_may() {
    for (words, hidden) in [
        ("jobs", true),
        ("accounts,users", false),
        ("none", false),
        ("JOBS", true),
    ] {
        let (w, waits, _) = private(words);
        for uid in CALLERS {
            let sees = JobScope::of(&w.state, &user(uid)).has(w.job(waits));
            assert_eq!(
                sees,
                !hidden || uid != STRANGER,
                "PrivateData={words}, uid {uid}"
            );
        }
    }
    let (w, waits, _) = private("usage");
    assert!(JobScope::of(&w.state, &user(STRANGER)).has(w.job(waits)));
    assert!(!JobScope::of_usage(&w.state, &user(STRANGER)).has(w.job(waits)));
    // What a node tells of jobs goes with them; so does the name of whose job it is.
    let (mut w, waits, runs) = private("jobs");
    let on = |uid| {
        let mut node = w.state.nodes[0].clone();
        JobScope::of(&w.state, &user(uid)).redact_node(&w.state, &mut node);
        node.jobs
    };
    assert_eq!((on(OWNER), on(STRANGER)), (vec![runs], vec![]));
    // Nobody finds out by other requests which jobs there are.
    let unknown = JobId(99_999);
    for command in requests() {
        let mut reply = |id| {
            let reply = format!("{:?}", w.user(STRANGER, command(target(id))));
            assert!(!reply.contains("u1000"), "{reply}");
            reply
                .replace(&id.to_string(), "JOB")
                .replace(&format!("{id:?}"), "JOB")
        };
        let of_unknown = reply(unknown);
        assert_eq!(reply(waits), of_unknown);
        assert_eq!(reply(runs), of_unknown);
    }
}

/// Requests about a job that others than its owner are refused.
fn requests() -> Vec<fn(JobTarget) -> UserCommand> {
    fn select(target: JobTarget, name: Option<&str>) -> JobSelection {
        JobSelection {
            targets: vec![target],
            name: name.map(str::to_owned),
            ..JobSelection::default()
        }
    }
    vec![
        |target| UserCommand::Hold { target, user: true },
        |target| UserCommand::Release { target },
        |target| UserCommand::Top { target },
        |target| UserCommand::Cancel {
            selection: select(target, None),
        },
        |target| UserCommand::Cancel {
            selection: select(target, Some("other")),
        },
        |target| UserCommand::UpdateJob {
            target,
            update: Box::new(JobUpdate::default()),
        },
        |target| UserCommand::Requeue {
            target,
            hold: false,
            special_exit: false,
            incomplete: false,
        },
        |target| UserCommand::EndAllocation {
            job: target.job,
            exit: ExitStatus::default(),
        },
    ]
}

#[test]
fn use_of_others_is_private() {
    use muster_model::account_limits::{Scope, ScopeUse, TresAmounts};
    let used = |scope| ScopeUse {
        scope,
        jobs: 1,
        submitted: 1,
        accruing: 0,
        tres: TresAmounts::new(),
        run_minutes: TresAmounts::new(),
        minutes: TresAmounts::new(),
        wall_hundredths: 0,
    };
    let owner = user(OWNER).user;
    let all = || {
        vec![
            used(Scope::Account("physics".into())),
            used(Scope::Association("physics".into(), owner.clone())),
            used(Scope::Qos("normal".into())),
            used(Scope::QosUser("normal".into(), owner.clone())),
        ]
    };
    for (words, hidden) in [
        ("none", false),
        ("jobs", true),
        ("usage", true),
        ("users", true),
    ] {
        let (w, ..) = private(words);
        let seen = |uid| privacy::uses(&w.state, &user(uid), all()).len();
        assert_eq!(seen(OPERATOR), 4, "{words}");
        assert_eq!(seen(OWNER), if hidden { 2 } else { 4 }, "{words}");
        assert_eq!(seen(STRANGER), if hidden { 0 } else { 4 }, "{words}");
    }
    // Accounts as such are hidden with their definitions.
    let (w, ..) = private("accounts");
    let seen = |uid| privacy::uses(&w.state, &user(uid), all());
    assert!(
        seen(STRANGER)
            .iter()
            .all(|used| !matches!(used.scope, Scope::Account(_)))
    );
    assert_eq!((seen(STRANGER).len(), seen(OPERATOR).len()), (3, 4));
}

#[test]
fn what_of_accounting_is_seen() {
    let names = |words: &str, uid: u32| {
        let (w, ..) = private(words);
        let all = privacy::accounts(&w.state, &user(uid), w.state.accounts_at(w.now));
        let accounts: Vec<String> = all.accounts.keys().cloned().collect();
        let users: Vec<String> = all.users.keys().cloned().collect();
        let usage: BTreeSet<String> = all.usage.keys().map(|(_, user)| user.clone()).collect();
        (
            accounts.join(","),
            users.join(","),
            usage.into_iter().collect::<Vec<_>>().join(","),
        )
    };
    let all = ("chem,optics,physics", "u1,u1000,u2,u3,u5", "u1000");
    let is = |words: &str, uid: u32, (a, b, c): (&str, &str, &str)| {
        let got = names(words, uid);
        assert_eq!(
            (got.0.as_str(), got.1.as_str(), got.2.as_str()),
            (a, b, c),
            "{words} {uid}"
        );
    };
    for uid in [0, 1, OPERATOR] {
        is("accounts,users,usage", uid, all);
    }
    is("none", STRANGER, all);
    is("accounts", STRANGER, ("", all.1, all.2));
    is("accounts", COORDINATOR, ("optics,physics", all.1, all.2));
    is("users", STRANGER, (all.0, "u5", ""));
    is("users", COORDINATOR, (all.0, "u1000,u3", "u1000"));
    is("usage", STRANGER, (all.0, all.1, ""));
    is("usage", OWNER, (all.0, all.1, "u1000"));
    is("usage", COORDINATOR, (all.0, all.1, "u1000"));
}

#[test]
fn reservations_and_nodes_of_a_cloud() {
    let (w, ..) = private("reservations");
    let of = |users: &[&str], accounts: &[&str]| Reservation {
        users: users.iter().map(|u| (*u).to_owned()).collect(),
        accounts: accounts.iter().map(|a| (*a).to_owned()).collect(),
        ..Reservation::default()
    };
    for (reservation, seen) in [
        (
            of(&["u1000"], &[]),
            [true, false, false, true, true, true, true],
        ),
        (
            of(&[], &["chem"]),
            [false, true, false, true, true, true, true],
        ),
        (
            of(&["u9"], &[]),
            [false, false, false, true, true, true, true],
        ),
    ] {
        let got = CALLERS.map(|uid| privacy::sees_reservation(&w.state, &user(uid), &reservation));
        assert_eq!(got, seen, "{reservation:?}");
    }
    for (words, shown) in [("none", false), ("cloud", true)] {
        let mut config = ClusterConfig {
            private: PrivateData::parse(words),
            ..config()
        };
        config.nodes[2].state = muster_model::node_state::InitialState::Cloud;
        let mut w = World::with(config.clone());
        // It has come; before, it is powered down.
        assert!(privacy::shows_node(&w.state, &w.state.nodes[2]));
        w.state.nodes[2].power = Some(muster_model::power::Power::Down);
        assert_eq!(privacy::shows_node(&w.state, &w.state.nodes[2]), shown);
        assert!(privacy::shows_node(&w.state, &w.state.nodes[0]));
    }
}
