//! Who may do what: the whole table of requests for each kind of caller, against what slurm.conf(5), scontrol(1) and
//! sacctmgr(1) say. `private` has what `PrivateData` hides from whom.

mod private;
mod requests;

use self::requests::{
    add_account, add_user, commands, coordinators, edit, limit, modify_account, modify_user, parts,
    shares, update,
};
use crate::world::{World, config, spec, target, user};
use muster_core::decide::decide;
use muster_core::event::Event;
use muster_core::policy::access;
use muster_core::policy::access::role_of;
use muster_model::command::ListEdit;
use muster_model::command::{
    AccountsAsk, Command, JobSelection, JobUpdate, QosAsk, Reply, TermsAsk, UserCommand, WckeysAsk,
};
use muster_model::config::ClusterConfig;
use muster_model::ids::JobId;
use muster_model::refusal::RefusalCode;
use muster_model::rights::{self, AccessRequest, Group, MinimumRole, Role};
use muster_model::spec::{JobSpec, StdioSpec};
use muster_model::time::TimeLimit;
use std::collections::BTreeSet;

/// Uids of the callers: the owner of the job, a stranger, a coordinator of the account above the job's, an operator, an
/// administrator, SlurmUser, root.
const CALLERS: [u32; 7] = [1000, 5, 3, 2, 1, 64_030, 0];
const OWNER: u32 = 1000;
const STRANGER: u32 = 5;
const COORDINATOR: u32 = 3;
const OPERATOR: u32 = 2;

/// Whether each of the callers may make such a request about the owner's job, account or record.
fn allowed(least: MinimumRole) -> [bool; 7] {
    let row = match least {
        MinimumRole::Anyone => "1111111",
        MinimumRole::Owner | MinimumRole::Oneself => "1001111",
        MinimumRole::Manager => "1011111",
        MinimumRole::OwnerAlone => "1000011",
        MinimumRole::Coordinator => "0011111",
        MinimumRole::Operator => "0001111",
        MinimumRole::Administrator => "0000111",
        MinimumRole::SlurmUser => "0000011",
        MinimumRole::NodeOwner | MinimumRole::NodeOwnerOrKey => "1000001",
        MinimumRole::TokenBearer | MinimumRole::NodeKey => "0000000",
    };
    let row = row.as_bytes();
    std::array::from_fn(|n| row[n] == b'1')
}

/// Accounts physics, optics under it, and chem; the callers; one job of the owner that waits and one that runs, in optics.
fn world_with(config: ClusterConfig) -> (World, JobId, JobId) {
    let mut w = World::with(config);
    w.must(0, edit(&["physics", "chem"], add_account("")));
    w.must(0, edit(&["optics"], add_account("physics")));
    let none = TermsAsk::default();
    w.must(0, edit(&["u1000"], add_user("optics", "", none.clone())));
    w.must(0, edit(&["u5"], add_user("chem", "", none.clone())));
    w.must(0, edit(&["u3"], add_user("physics", "", none.clone())));
    w.must(0, edit(&["u2"], add_user("chem", "Operator", none.clone())));
    w.must(0, edit(&["u1"], add_user("chem", "Administrator", none)));
    w.must(0, edit(&["u3"], coordinators(&["physics"])));
    let in_optics = || JobSpec {
        account: Some("optics".into()),
        time_limit: Some(TimeLimit::Minutes(10)),
        ..spec("x")
    };
    let waits = w.submit(in_optics());
    let runs = w.submit(in_optics());
    assert!(w.start(runs, &[0]));
    (w, waits, runs)
}

fn world() -> (World, JobId, JobId) {
    world_with(config())
}

/// Whether the request was refused for want of a right, and not for another reason.
fn denied(w: &World, uid: u32, request: AccessRequest, command: UserCommand) -> bool {
    let decision = decide(&w.state, &Command::User(user(uid), command), w.now);
    let by_right = |code: RefusalCode| match request {
        // Slurm has other words for these.
        AccessRequest::TopAnyway => {
            code == RefusalCode::JobNotRunning || code == RefusalCode::AccessDenied
        }
        _ => code == RefusalCode::AccessDenied,
    };
    if request == AccessRequest::SubmitForOther {
        // Without the right it is a job of one's own.
        let owner = decision.events.iter().find_map(|event| match event {
            Event::JobSubmitted { spec, .. } => Some(spec.owner.uid),
            _ => None,
        });
        return owner != Some(1000);
    }
    match decision.reply {
        Some(Reply::Refused(refusal)) => by_right(refusal.code),
        Some(Reply::Done { refused, .. }) => refused.iter().any(|(_, r)| by_right(r.code)),
        _ => false,
    }
}

#[test]
fn each_caller_may_do_what_the_table_says() {
    let (w, waits, runs) = world();
    let mut seen = BTreeSet::new();
    for (request, command) in commands(waits, runs) {
        // scontrol top is for administrators here; its owner's side is tested with the parts.
        let least = match request {
            AccessRequest::Top => MinimumRole::Operator,
            _ => request.least(),
        };
        for (uid, may) in CALLERS.into_iter().zip(allowed(least)) {
            // What is said of a default is said by the user whom it concerns.
            let denied = match request {
                AccessRequest::Top => denied(&w, uid, AccessRequest::TopAnyway, command.clone()),
                _ => denied(&w, uid, request, command.clone()),
            };
            assert_eq!(denied, !may, "{request:?} by uid {uid}");
        }
        seen.insert(request);
    }
    let all = AccessRequest::ALL.iter().copied();
    let wanted: BTreeSet<AccessRequest> = all
        .filter(|r| matches!(r.group(), Group::Command | Group::Accounts))
        .collect();
    assert_eq!(seen, wanted, "each row is tried");
}

#[test]
fn parts_with_a_right_of_their_own() {
    let mut config = config();
    let mut root_only = config.partitions[0].clone();
    root_only.name = "root".into();
    root_only.default = false;
    root_only.root_only = true;
    config.partitions.push(root_only);
    config.crontabs.enabled = true;
    let (mut w, waits, runs) = world_with(config);
    let of_owner = || JobSpec {
        account: Some("optics".into()),
        ..spec("x")
    };
    let held = w.submit(of_owner());
    let hold = UserCommand::Hold {
        target: target(held),
        user: false,
    };
    w.must(OPERATOR, hold);
    let mut seen = BTreeSet::new();
    for (request, command) in parts(waits, held, runs) {
        for (uid, may) in CALLERS.into_iter().zip(allowed(request.least())) {
            // The job is its owner's already, whoever says so.
            if request == AccessRequest::SubmitForOther && uid == OWNER {
                continue;
            }
            let denied = denied(&w, uid, request, command.clone());
            assert_eq!(denied, !may, "{request:?} by uid {uid}");
        }
        seen.insert(request);
    }
    let all = AccessRequest::ALL.iter().copied();
    // Archives are the controller's own affair, not the state's.
    let is_of_archives = |r: &AccessRequest| *r == AccessRequest::ArchiveToOther;
    let wanted = all.filter(|r| r.group() == Group::Part && !is_of_archives(r));
    assert_eq!(seen, wanted.collect(), "each row is tried");
}

/// scontrol(1) has the administrator raise limits; Slurm lets owners as well until the job starts.
#[test]
fn owners_raise_the_time_limit_of_a_job_that_waits() {
    let (mut w, waits, runs) = world();
    let to = |job, minutes| {
        update(
            job,
            JobUpdate {
                time_limit: Some(TimeLimit::Minutes(minutes)),
                ..JobUpdate::default()
            },
        )
    };
    w.must(OWNER, to(waits, 20));
    assert_eq!(w.job(waits).time_limit, TimeLimit::Minutes(20));
    assert_eq!(w.refused(OWNER, to(runs, 20)), RefusalCode::AccessDenied);
    w.must(OWNER, to(runs, 5));
}

/// A coordinator or operator could otherwise have another user's output written where he reads it.
#[test]
fn a_name_that_is_part_of_a_files_is_the_owners_to_change() {
    let (mut w, _, _) = world();
    for (pattern, may) in [
        ("logs/%x-%j.out", false),
        ("logs/%5x", false),
        ("logs/%j.x", true),
    ] {
        let id = w.submit(JobSpec {
            account: Some("optics".into()),
            stdio: StdioSpec {
                stdout: Some(pattern.into()),
                ..StdioSpec::default()
            },
            ..spec("x")
        });
        let rename = || UserCommand::UpdateJob {
            target: target(id),
            update: Box::new(JobUpdate {
                name: Some("../elsewhere".into()),
                ..JobUpdate::default()
            }),
        };
        match may {
            true => assert_eq!(w.must(OPERATOR, rename()), 1),
            false => assert_eq!(w.refused(OPERATOR, rename()), RefusalCode::AccessDenied),
        }
        assert_eq!(w.must(OWNER, rename()), 1, "{pattern}");
    }
}

#[test]
fn reads_and_requests_to_agents() {
    let (w, waits, _) = world();
    let job = w.job(waits);
    for request in AccessRequest::ALL.iter().copied() {
        for (uid, may) in CALLERS.into_iter().zip(allowed(request.least())) {
            let got = match (request.group(), request.least()) {
                (Group::Agent, _) => rights::may_on_node(request, uid, OWNER, false),
                (Group::Query | Group::Connection, least) if least.needs_object() => {
                    access::may_job(&w.state, &user(uid), request, job)
                }
                (Group::Query | Group::Connection, _) => access::may(&w.state, &user(uid), request),
                (Group::Command | Group::Part | Group::Accounts, _) => continue,
            };
            assert_eq!(got, may, "{request:?} by uid {uid}");
        }
        let by_token = rights::may_by_token(request, true);
        assert_eq!(by_token, request == AccessRequest::JoinNode, "{request:?}");
        assert!(!rights::may_by_token(request, false), "{request:?}");
        if request.group() == Group::Agent {
            let by_key = rights::may_on_node(request, STRANGER, OWNER, true);
            assert_eq!(
                by_key,
                request.least() != MinimumRole::NodeOwner,
                "{request:?}"
            );
        }
    }
}

/// An operator who gave its own record another name, and an administrator's its own, was an administrator.
#[test]
fn a_level_does_not_go_to_a_name_that_an_operator_gives() {
    let (mut w, _, _) = world();
    let rename = |from: &str, to: &str| {
        let ask = AccountsAsk::RenameUser { to: to.to_owned() };
        edit(&[from], ask)
    };
    for (from, to) in [("u2", "u2old"), ("u1", "u99"), ("u1", "u2")] {
        let refused = w.refused(OPERATOR, rename(from, to));
        assert_eq!(refused, RefusalCode::AccessDenied, "{from} to {to}");
    }
    assert_eq!(role_of(&w.state, &user(OPERATOR)), Role::Operator);
    assert_eq!(w.must(OPERATOR, rename("u5", "u55")), 1);
    assert_eq!(w.must(1, rename("u2", "u22")), 1);
    assert_eq!(role_of(&w.state, &user(22)), Role::Operator);
}

#[test]
fn a_level_counts_from_the_next_request_on() {
    let (mut w, waits, _) = world();
    let hold = || UserCommand::Hold {
        target: target(waits),
        user: false,
    };
    assert_eq!(w.refused(STRANGER, hold()), RefusalCode::AccessDenied);
    let level = |level| edit(&["u5"], modify_user("", level, TermsAsk::default()));
    w.must(0, level("Operator"));
    assert_eq!(role_of(&w.state, &user(STRANGER)), Role::Operator);
    w.must(STRANGER, hold());
    w.must(0, level("None"));
    assert_eq!(w.refused(STRANGER, hold()), RefusalCode::AccessDenied);
    // Nobody makes himself more than he is.
    let up = edit(
        &["u2"],
        modify_user("", "Administrator", TermsAsk::default()),
    );
    assert_eq!(w.refused(OPERATOR, up), RefusalCode::AccessDenied);
    let new = edit(
        &["u99"],
        add_user("chem", "Administrator", TermsAsk::default()),
    );
    assert_eq!(w.refused(OPERATOR, new), RefusalCode::AccessDenied);
    let gone = edit(
        &["u1"],
        AccountsAsk::DeleteUsers {
            accounts: vec![],
            partitions: Vec::new(),
        },
    );
    assert_eq!(w.refused(OPERATOR, gone), RefusalCode::AccessDenied);
}

#[test]
fn coordinators_stay_within_their_accounts() {
    let (mut w, waits, runs) = world();
    let strangers = w
        .try_submit(
            STRANGER,
            JobSpec {
                account: Some("chem".into()),
                ..spec("s")
            },
        )
        .unwrap();
    // A filter finds what is theirs, and passes the rest over.
    let all = UserCommand::Cancel {
        selection: JobSelection::default(),
    };
    let decision = decide(&w.state, &Command::User(user(COORDINATOR), all), w.now);
    let Some(Reply::Done { changed, refused }) = decision.reply else {
        panic!("{decision:?}");
    };
    assert_eq!((changed, refused.len()), (2, 0));
    let touched = |id: JobId| {
        decision
            .events
            .iter()
            .any(|e| format!("{e:?}").contains(&format!("{id:?}")))
    };
    assert!(touched(waits) && touched(runs) && !touched(strangers));
    let denied = [
        // Other accounts, and the one that is theirs as such.
        edit(&["px"], add_account("chem")),
        edit(&["px"], add_account("")),
        edit(&["physics"], modify_account("", shares(9))),
        edit(&["u77"], add_user("chem", "", TermsAsk::default())),
        edit(&["u5"], modify_user("", "", shares(9))),
        edit(&["u5"], coordinators(&["chem"])),
        edit(&["u1000", "u5"], coordinators(&["optics", "chem"])),
        edit(
            &["u5"],
            AccountsAsk::DeleteUsers {
                accounts: vec![],
                partitions: Vec::new(),
            },
        ),
        // A default of somebody else.
        edit(&["u1000"], modify_user("optics", "", TermsAsk::default())),
    ];
    for command in denied {
        assert_eq!(
            w.refused(COORDINATOR, command.clone()),
            RefusalCode::AccessDenied,
            "{command:?}"
        );
    }
    // Whoever chooses a default chooses among what there is.
    let key = AccountsAsk::ModifyUsers {
        accounts: vec![],
        default_account: String::new(),
        admin_level: String::new(),
        terms: TermsAsk::default(),
        wckeys: WckeysAsk {
            default: Some("foreign".into()),
            keys: None,
        },
        partitions: Vec::new(),
    };
    assert_eq!(
        w.refused(OWNER, edit(&["u1000"], key)),
        RefusalCode::AccessDenied
    );
    // Limits: up to those of the account, and no further.
    w.must(
        0,
        edit(&["physics"], modify_account("", limit("maxjobs", "10"))),
    );
    w.must(
        0,
        edit(&["physics"], modify_account("", limit("maxtres", "cpu=8"))),
    );
    w.must(
        COORDINATOR,
        edit(&["u1000"], modify_user("", "", limit("maxjobs", "10"))),
    );
    for (key, value) in [("maxjobs", "11"), ("maxtres", "cpu=9"), ("maxcpus", "9")] {
        let command = edit(&["u1000"], modify_user("", "", limit(key, value)));
        assert_eq!(
            w.refused(COORDINATOR, command),
            RefusalCode::AccessDenied,
            "{key}={value}"
        );
    }
    // QOS: those that they have.
    w.must(0, edit(&["high"], AccountsAsk::AddQos(QosAsk::default())));
    let qos = |name: &str| TermsAsk {
        qos: Some(ListEdit {
            sign: None,
            names: vec![name.to_owned()],
        }),
        ..TermsAsk::default()
    };
    w.must(0, edit(&["physics"], modify_account("", qos("normal"))));
    w.must(
        COORDINATOR,
        edit(&["u1000"], modify_user("", "", qos("normal"))),
    );
    let command = edit(&["u1000"], modify_user("", "", qos("high")));
    assert_eq!(w.refused(COORDINATOR, command), RefusalCode::AccessDenied);
    // Nor does the way round take an office in another account away.
    w.must(0, edit(&["u1000"], coordinators(&["chem"])));
    let delete = || {
        edit(
            &["u1000"],
            AccountsAsk::DeleteUsers {
                accounts: vec![],
                partitions: Vec::new(),
            },
        )
    };
    assert_eq!(w.refused(COORDINATOR, delete()), RefusalCode::AccessDenied);
    let of_chem = AccountsAsk::DeleteCoordinators {
        accounts: vec!["chem".into()],
    };
    w.must(0, edit(&["u1000"], of_chem));
    let deleted = decide(&w.state, &Command::User(user(COORDINATOR), delete()), w.now);
    // It may, were there no job that runs.
    let refused = match deleted.reply {
        Some(Reply::Refused(refusal)) => refusal.code,
        other => panic!("{other:?}"),
    };
    assert_eq!(refused, RefusalCode::JobsActive);
    // With the account the office is gone.
    let added = AccountsAsk::AddAccounts {
        parent: "physics".into(),
        description: String::new(),
        organization: String::new(),
        terms: TermsAsk::default(),
    };
    w.must(0, edit(&["acoustics"], added));
    w.must(0, edit(&["u1000"], coordinators(&["acoustics"])));
    w.must(0, edit(&["acoustics"], AccountsAsk::DeleteAccounts));
    assert!(w.state.accounts.users["u1000"].coordinates.is_empty());
    let bytes = {
        let mut bytes = Vec::new();
        w.state.encode_snapshot(&mut bytes);
        bytes
    };
    let read = muster_core::state::State::decode_snapshot(&bytes).unwrap();
    assert_eq!(read.accounts.users["u3"].coordinates, ["physics"]);
}
