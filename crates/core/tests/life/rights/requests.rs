//! A request of each row of the table of rights, and the parts of requests that have rows of their own.

use crate::world::{spec, target};
use muster_model::account_limits::LimitAsk;
use muster_model::accounts::{Federation, SharedResource};
use muster_model::command::ListEdit;
use muster_model::command::{
    AccountsAsk, AccountsEdit, ClusterAsk, JobSelection, JobUpdate, NodeUpdate, QosAsk,
    ReservationAsk, SignalScope, TermsAsk, UserCommand, WckeysAsk,
};
use muster_model::ids::JobId;
use muster_model::job::ExitStatus;
use muster_model::rights::AccessRequest;
use muster_model::spec::{JobSpec, Owner};
use muster_model::time::{TimeLimit, Timestamp};
use muster_model::trigger::{TriggerAsk, TriggerEvents};

pub(super) fn edit(names: &[&str], ask: AccountsAsk) -> UserCommand {
    UserCommand::EditAccounts(Box::new(AccountsEdit {
        cluster: String::new(),
        names: names.iter().map(|n| (*n).to_owned()).collect(),
        ask,
    }))
}

pub(super) fn add_account(parent: &str) -> AccountsAsk {
    AccountsAsk::AddAccounts {
        parent: parent.into(),
        description: String::new(),
        organization: String::new(),
        terms: TermsAsk::default(),
    }
}

pub(super) fn modify_account(description: &str, terms: TermsAsk) -> AccountsAsk {
    AccountsAsk::ModifyAccounts {
        parent: String::new(),
        description: description.into(),
        organization: String::new(),
        terms,
    }
}

pub(super) fn add_user(account: &str, level: &str, terms: TermsAsk) -> AccountsAsk {
    AccountsAsk::AddUsers {
        accounts: vec![account.into()],
        default_account: String::new(),
        admin_level: level.into(),
        terms,
        wckeys: WckeysAsk::default(),
        partitions: Vec::new(),
    }
}

pub(super) fn modify_user(default_account: &str, level: &str, terms: TermsAsk) -> AccountsAsk {
    AccountsAsk::ModifyUsers {
        accounts: vec![],
        default_account: default_account.into(),
        admin_level: level.into(),
        terms,
        wckeys: WckeysAsk::default(),
        partitions: Vec::new(),
    }
}

pub(super) fn coordinators(accounts: &[&str]) -> AccountsAsk {
    AccountsAsk::AddCoordinators {
        accounts: accounts.iter().map(|a| (*a).to_owned()).collect(),
    }
}

pub(super) fn shares(n: u32) -> TermsAsk {
    TermsAsk {
        shares: Some(Some(n)),
        ..TermsAsk::default()
    }
}

pub(super) fn limit(key: &str, value: &str) -> TermsAsk {
    TermsAsk {
        limits: vec![LimitAsk::new(key, value)],
        ..TermsAsk::default()
    }
}

pub(super) fn all_of(job: JobId) -> JobSelection {
    JobSelection {
        targets: vec![target(job)],
        ..JobSelection::default()
    }
}

pub(super) fn update(job: JobId, update: JobUpdate) -> UserCommand {
    UserCommand::UpdateJob {
        target: target(job),
        update: Box::new(update),
    }
}

pub(super) fn submit(spec: JobSpec) -> UserCommand {
    UserCommand::Submit {
        blobs: vec![(crate::world::SCRIPT, b"#!/bin/sh\n".to_vec().into())],
        spec: Box::new(spec),
        test_only: false,
    }
}

/// A request of each row that changes state, about the owner's job, account or record.
pub(super) fn commands(waits: JobId, runs: JobId) -> Vec<(AccessRequest, UserCommand)> {
    let pairs = || vec![("State".to_owned(), "UP".to_owned())];
    let name = || "batch".to_owned();
    let reservation = || Box::new(ReservationAsk::default());
    let het = |n| JobSpec {
        script: (n == 0).then_some(crate::world::SCRIPT),
        ..spec("h")
    };
    let plain = [
        submit(spec("y")),
        UserCommand::SubmitHet {
            specs: vec![het(0), het(1)],
            blobs: vec![(crate::world::SCRIPT, b"#!/bin/sh\n".to_vec().into())],
            test_only: false,
        },
        UserCommand::Cancel {
            selection: all_of(waits),
        },
        UserCommand::Signal {
            selection: all_of(runs),
            signal: 10,
            scope: SignalScope::Full,
        },
        UserCommand::Hold {
            target: target(waits),
            user: true,
        },
        UserCommand::Release {
            target: target(waits),
        },
        UserCommand::Requeue {
            target: target(runs),
            hold: false,
            special_exit: false,
            incomplete: false,
        },
        UserCommand::Suspend {
            target: target(runs),
        },
        UserCommand::Resume {
            target: target(runs),
        },
        update(
            waits,
            JobUpdate {
                name: Some("z".into()),
                ..JobUpdate::default()
            },
        ),
        UserCommand::UpdateStep {
            target: target(runs),
            step: None,
            time_limit: TimeLimit::Minutes(1),
        },
        UserCommand::Top {
            target: target(waits),
        },
        UserCommand::SetCrontab(Box::default()),
        UserCommand::Trigger(Box::new(TriggerAsk::Set {
            events: TriggerEvents::DOWN,
            job: None,
            nodes: String::new(),
            offset_s: 0,
            program: "/bin/true".into(),
            permanent: false,
        })),
        UserCommand::Trigger(Box::new(TriggerAsk::Clear {
            id: Some(1),
            job: None,
            uid: None,
        })),
        UserCommand::Notify {
            target: target(runs),
            text: "x".into(),
        },
        UserCommand::EndAllocation {
            job: runs,
            exit: ExitStatus::default(),
        },
        UserCommand::UpdateNodes {
            nodes: "n1".into(),
            update: NodeUpdate {
                weight: Some(2),
                ..NodeUpdate::default()
            },
        },
        UserCommand::UpdatePartition {
            name: name(),
            pairs: pairs(),
            read: Vec::new(),
        },
        UserCommand::CreatePartition {
            name: "p".into(),
            pairs: pairs(),
        },
        UserCommand::DeletePartition { name: name() },
        UserCommand::CreateNodes {
            nodes: vec![crate::dynamic_nodes::dynamic("d1", &[])],
        },
        UserCommand::DeleteNodes { nodes: "d1".into() },
        UserCommand::TakeNode(Box::default()),
        UserCommand::Reboot {
            nodes: "n1".into(),
            asap: false,
            down_after: false,
            reason: None,
        },
        UserCommand::CancelReboot { nodes: "n1".into() },
        UserCommand::CreateReservation(reservation()),
        UserCommand::UpdateReservation(reservation()),
        UserCommand::DeleteReservation { name: "r".into() },
        UserCommand::Reconfigure,
    ];
    let mut all: Vec<_> = plain
        .into_iter()
        .map(|c| (AccessRequest::from(&c), c))
        .collect();
    all.extend(edits());
    all
}

/// The same of accounting; the row is named where it is that of a part.
pub(super) fn edits() -> Vec<(AccessRequest, UserCommand)> {
    let none = TermsAsk::default;
    let keys = |default: Option<&str>, key: Option<&str>| WckeysAsk {
        default: default.map(str::to_owned),
        keys: key.map(|key| ListEdit {
            sign: Some('+'),
            names: vec![key.to_owned()],
        }),
    };
    let wckeys = AccountsAsk::ModifyUsers {
        accounts: vec![],
        default_account: String::new(),
        admin_level: String::new(),
        terms: none(),
        wckeys: keys(None, Some("k")),
        partitions: Vec::new(),
    };
    let priority = TermsAsk {
        priority: Some(Some(9)),
        ..none()
    };
    let of = |list: &[&str]| list.iter().map(|a| (*a).to_owned()).collect();
    vec![
        (
            AccessRequest::AddAccounts,
            edit(&["px"], add_account("optics")),
        ),
        (
            AccessRequest::ModifyAccounts,
            edit(&["optics"], modify_account("d", none())),
        ),
        (
            AccessRequest::ModifyAccountTerms,
            edit(&["optics"], modify_account("", shares(4))),
        ),
        (
            AccessRequest::DeleteAccounts,
            edit(&["optics"], AccountsAsk::DeleteAccounts),
        ),
        (
            AccessRequest::AddUsers,
            edit(&["u77"], add_user("optics", "", none())),
        ),
        (
            AccessRequest::ModifyUserTerms,
            edit(&["u1000"], modify_user("", "", shares(4))),
        ),
        (
            AccessRequest::AssociationPriority,
            edit(&["u1000"], modify_user("", "", priority)),
        ),
        (
            AccessRequest::ModifyUserDefaults,
            edit(&["u1000"], modify_user("optics", "", none())),
        ),
        (AccessRequest::ModifyUserWckeys, edit(&["u1000"], wckeys)),
        (
            AccessRequest::SetAdminLevel,
            edit(&["u1000"], modify_user("", "Operator", none())),
        ),
        (
            AccessRequest::DeleteUsers,
            edit(
                &["u1000"],
                AccountsAsk::DeleteUsers {
                    accounts: vec![],
                    partitions: Vec::new(),
                },
            ),
        ),
        (
            AccessRequest::AddCoordinators,
            edit(&["u1000"], coordinators(&["optics"])),
        ),
        (
            AccessRequest::DeleteCoordinators,
            edit(
                &["u3"],
                AccountsAsk::DeleteCoordinators {
                    accounts: of(&["physics"]),
                },
            ),
        ),
        (
            AccessRequest::NoteJobs,
            edit(&["4711"], AccountsAsk::NoteJobs(Default::default())),
        ),
        (
            AccessRequest::RecordStorage,
            edit(&["home"], AccountsAsk::RecordStorage(Default::default())),
        ),
        (
            AccessRequest::RenameUser,
            edit(
                &["u3"],
                AccountsAsk::RenameUser {
                    to: "u3renamed".to_owned(),
                },
            ),
        ),
        (
            AccessRequest::EditClusters,
            edit(&["west"], AccountsAsk::AddClusters(ClusterAsk::default())),
        ),
        (
            AccessRequest::EditResources,
            edit(
                &["ansys@flex1"],
                AccountsAsk::SetResource(SharedResource {
                    name: "ansys".to_owned(),
                    server: "flex1".to_owned(),
                    ..SharedResource::default()
                }),
            ),
        ),
        (
            AccessRequest::EditFederations,
            edit(
                &["fed"],
                AccountsAsk::SetFederation(Federation {
                    name: "fed".to_owned(),
                    ..Federation::default()
                }),
            ),
        ),
        (
            AccessRequest::ModifyClusters,
            edit(
                &["test"],
                AccountsAsk::ModifyClusters(ClusterAsk::default()),
            ),
        ),
        (
            AccessRequest::EditQos,
            edit(&["q"], AccountsAsk::AddQos(QosAsk::default())),
        ),
        (
            AccessRequest::ResetUsage,
            edit(&["u1000"], AccountsAsk::ResetUsage { accounts: vec![] }),
        ),
    ]
}

/// A request with each part that has a right of its own. Parts of submissions are of the caller's own job.
pub(super) fn parts(waits: JobId, held: JobId, runs: JobId) -> Vec<(AccessRequest, UserCommand)> {
    let with = |change: JobUpdate| update(waits, change);
    let shown = vec![("admin-comment".to_owned(), "x".to_owned())];
    let other = Owner {
        uid: 1000,
        gid: 1000,
        user: "u1000".into(),
        group: "u1000".into(),
    };
    vec![
        (
            AccessRequest::SubmitForOther,
            submit(JobSpec {
                owner: other,
                ..spec("o")
            }),
        ),
        (
            AccessRequest::NegativeNice,
            submit(JobSpec {
                nice: -1,
                ..spec("y")
            }),
        ),
        (
            AccessRequest::SetPriority,
            submit(JobSpec {
                priority: Some(u32::MAX),
                ..spec("y")
            }),
        ),
        (
            AccessRequest::SiteFactor,
            submit(JobSpec {
                site_factor: 5,
                ..spec("y")
            }),
        ),
        (
            AccessRequest::AdminComment,
            submit(JobSpec {
                shown: shown.clone(),
                ..spec("y")
            }),
        ),
        (
            AccessRequest::SiteFactor,
            with(JobUpdate {
                site_factor: Some(5),
                ..JobUpdate::default()
            }),
        ),
        (
            AccessRequest::AdminComment,
            with(JobUpdate {
                shown,
                ..JobUpdate::default()
            }),
        ),
        (
            AccessRequest::AdminFields,
            with(JobUpdate {
                deadline: Some(Timestamp(i64::MAX / 2)),
                ..JobUpdate::default()
            }),
        ),
        (
            AccessRequest::RaisePriority,
            with(JobUpdate {
                priority: Some(u32::MAX),
                ..JobUpdate::default()
            }),
        ),
        (
            AccessRequest::LowerNice,
            with(JobUpdate {
                nice: Some(-1),
                ..JobUpdate::default()
            }),
        ),
        (
            AccessRequest::RaiseTimeLimit,
            update(
                runs,
                JobUpdate {
                    time_limit: Some(TimeLimit::Minutes(11)),
                    ..JobUpdate::default()
                },
            ),
        ),
        (
            AccessRequest::UpdatePaths,
            with(JobUpdate {
                work_dir: Some("/tmp/elsewhere".into()),
                ..JobUpdate::default()
            }),
        ),
        (
            AccessRequest::UpdatePaths,
            with(JobUpdate {
                stdio: Some(Default::default()),
                ..JobUpdate::default()
            }),
        ),
        (
            AccessRequest::HoldAsAdmin,
            UserCommand::Release {
                target: target(held),
            },
        ),
        (
            AccessRequest::TopAnyway,
            UserCommand::Top {
                target: target(waits),
            },
        ),
        (
            AccessRequest::SetCrontabOfOther,
            UserCommand::SetCrontab(Box::new(muster_model::command::CrontabAsk {
                owner: muster_model::spec::Owner {
                    uid: 7777,
                    gid: 7777,
                    user: "u7777".into(),
                    group: "u7777".into(),
                },
                ..Default::default()
            })),
        ),
        (
            AccessRequest::TriggerOfOther,
            UserCommand::Trigger(Box::new(TriggerAsk::Clear {
                id: None,
                job: None,
                uid: Some(0),
            })),
        ),
        (
            AccessRequest::RootOnlyPartition,
            submit(JobSpec {
                partitions: vec!["root".into()],
                ..spec("y")
            }),
        ),
    ]
}
