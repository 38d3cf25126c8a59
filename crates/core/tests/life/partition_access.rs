//! Which of the partitions that a job names it keeps, and where it may start after it or they have changed.

use crate::accounts::{account, edit, users};
use crate::world::{World, allocation, config, partition, spec, target, user};
use muster_model::accounts::Qos;
use muster_model::command::{
    AccountsAsk, Command, CrontabAsk, JobUpdate, KeptPartitions, NameList, PlannedStart, QosAsk,
    Reply, ReservationAsk, TermsAsk, UserCommand,
};
use muster_model::config::{ClusterConfig, EnforcePartLimits, PartitionConfig, PartitionState};
use muster_model::cron::CrontabConfig;
use muster_model::ids::JobId;
use muster_model::job::{JobState, Reason};
use muster_model::licenses::LicenseCount;
use muster_model::refusal::RefusalCode;
use muster_model::spec::{JobSpec, Owner};
use muster_model::time::TimeLimit;

type Change = fn(&mut PartitionConfig);
type Update = fn(&mut JobUpdate);

/// What keeps the jobs of user 1000, who has no account, out of a partition.
const RESTRICTIONS: [(Change, RefusalCode); 8] = [
    (|p| p.root_only = true, RefusalCode::AccessDenied),
    (
        |p| p.allow_groups = vec!["chem".into()],
        RefusalCode::PartitionAccess,
    ),
    (
        |p| p.alloc_nodes = vec!["login1".into()],
        RefusalCode::AccessDenied,
    ),
    (
        |p| p.allow_accounts = vec!["chem".into()],
        RefusalCode::InvalidAccount,
    ),
    (
        |p| p.allow_qos = vec!["high".into()],
        RefusalCode::InvalidQos,
    ),
    (
        |p| p.deny_qos = vec!["normal".into()],
        RefusalCode::InvalidQos,
    ),
    (|p| p.req_resv = true, RefusalCode::InvalidReservation),
    (
        |p| p.state = PartitionState::Drain,
        RefusalCode::PartitionNotAvailable,
    ),
];

/// `batch` and `short` as everywhere here, and `closed`.
fn config_with(change: impl FnOnce(&mut PartitionConfig)) -> ClusterConfig {
    let mut config = config();
    // Otherwise jobs wait that are kept out by their account or QOS.
    config.enforce_part_limits = EnforcePartLimits::Any;
    let mut closed = partition("closed", &["n1", "n2", "n3"], false);
    change(&mut closed);
    config.partitions.push(closed);
    config.crontabs = CrontabConfig {
        enabled: true,
        explicit_cancel: false,
        zone: "UTC0".to_owned(),
    };
    config
}

fn in_partitions(names: &str) -> JobSpec {
    JobSpec {
        partitions: names.split(',').map(str::to_owned).collect(),
        time_limit: Some(TimeLimit::Minutes(10)),
        ..spec("x")
    }
}

fn change(id: JobId, change: impl FnOnce(&mut JobUpdate)) -> UserCommand {
    let mut update = JobUpdate::default();
    change(&mut update);
    UserCommand::UpdateJob {
        target: target(id),
        update: Box::new(update),
    }
}

fn named(world: &World, id: JobId) -> String {
    world.job(id).spec.partitions.join(",")
}

/// Whether a job starts on the first node in a partition.
fn starts_in(world: &World, id: JobId, partition: &str) -> bool {
    let mut world = world.clone();
    let mut alloc = world.alloc(id, &[0], 1);
    alloc.partition = partition.to_owned();
    world.plan(vec![PlannedStart { job: id, alloc }]) == 1
}

/// Jobs that named one which took them ran in all others that they named, too.
#[test]
fn partitions_that_refuse_a_job_are_not_among_those_that_it_keeps() {
    let short = Some(vec!["short".into()]);
    let both = || Some(vec!["short".to_owned(), "closed".to_owned()]);
    for (at, (restrict, code)) in RESTRICTIONS.into_iter().enumerate() {
        for enforce in [EnforcePartLimits::No, EnforcePartLimits::Any] {
            let waits = matches!(code, RefusalCode::InvalidAccount | RefusalCode::InvalidQos);
            if waits && enforce == EnforcePartLimits::No {
                continue;
            }
            let mut w = World::with(ClusterConfig {
                enforce_part_limits: enforce,
                ..config_with(restrict)
            });
            assert_eq!(w.refusal(in_partitions("closed")), code, "case {at}");
            let mut jobs = vec![w.submit(in_partitions("short,closed"))];
            jobs.push(w.submit(in_partitions("closed,short")));
            let updated = w.submit(in_partitions("batch"));
            w.must(1000, change(updated, |u| u.partitions = both()));
            let only = change(updated, |u| u.partitions = Some(vec!["closed".into()]));
            assert_eq!(w.refused(1000, only), code, "case {at}");
            jobs.push(updated);
            let het = UserCommand::SubmitHet {
                specs: [spec("x"), allocation("x")]
                    .map(|component| JobSpec {
                        partitions: both().unwrap(),
                        time_limit: Some(TimeLimit::Minutes(10)),
                        interactive: false,
                        ..component
                    })
                    .to_vec(),
                blobs: vec![(crate::world::SCRIPT, b"#!/bin/sh\n".to_vec().into())],
                test_only: false,
            };
            match w.user(1000, het) {
                Reply::Submitted { id, .. } => jobs.extend([id, JobId(id.0 + 1)]),
                other => panic!("{other:?}"),
            }
            let crontab = UserCommand::SetCrontab(Box::new(CrontabAsk {
                owner: Owner::default(),
                text: Some("@hourly true\n".to_owned()),
                jobs: vec![in_partitions("short,closed")],
                blobs: vec![(crate::world::SCRIPT, b"#!/bin/sh\n".to_vec().into())],
            }));
            w.must(1000, crontab);
            jobs.extend(&w.state.crontabs[&1000].jobs);
            for id in &jobs {
                assert_eq!(
                    Some(w.job(*id).spec.partitions.clone()),
                    short,
                    "case {at}, {id}"
                );
            }
            assert!(starts_in(&w, jobs[0], "short"));
            assert!(!starts_in(&w, jobs[0], "closed"));
        }
        let mut w = World::with(ClusterConfig {
            enforce_part_limits: EnforcePartLimits::All,
            ..config_with(restrict)
        });
        assert_eq!(w.refusal(in_partitions("short,closed")), code, "case {at}");
        let id = w.submit(spec("x"));
        let all = change(id, |u| u.partitions = both());
        assert_eq!(w.refused(1000, all), code, "case {at}");
    }
}

/// The limits of a partition that a job may not use said that the job could start at once.
#[test]
fn limits_count_of_partitions_that_take_the_job() {
    let mut config = config_with(|p| p.root_only = true);
    config.enforce_part_limits = EnforcePartLimits::Any;
    let mut w = World::with(config);
    let long = JobSpec {
        time_limit: Some(TimeLimit::Minutes(31)),
        ..in_partitions("short,closed")
    };
    assert_eq!(w.refusal(long.clone()), RefusalCode::InvalidTimeLimit);
    assert!(w.try_submit(0, long).is_ok());
}

/// slurm.conf(5): root may use any QOS, SlurmUser any partition whatever its groups are, and who is allowed is not denied.
#[test]
fn root_and_slurm_user_are_exempt_where_slurm_says_so() {
    let closed = || in_partitions("closed");
    let mut w = World::with(config_with(|p| p.allow_qos = vec!["high".into()]));
    assert!(w.try_submit(0, closed()).is_ok());
    assert!(w.try_submit(64_030, closed()).is_err());
    let mut w = World::with(config_with(|p| p.allow_groups = vec!["chem".into()]));
    assert!(w.try_submit(0, closed()).is_ok());
    assert!(w.try_submit(64_030, closed()).is_ok());
    let mut w = World::with(config_with(|p| {
        p.allow_accounts = vec!["chem".into()];
        p.deny_accounts = vec!["chem".into()];
    }));
    let of = |account: &str| JobSpec {
        account: Some(account.into()),
        ..closed()
    };
    assert!(w.try_submit(1000, of("chem")).is_ok());
    assert!(w.try_submit(1000, of("bio")).is_err());
}

/// Jobs that were submitted with what a partition takes were given something else, and started in it.
#[test]
fn a_change_of_account_qos_or_reservation_leaves_partitions_that_refuse_it() {
    let mut config = config_with(|p| {
        p.allow_accounts = vec!["chem".into()];
        p.deny_qos = vec!["high".into()];
        p.req_resv = true;
    });
    config.licenses = vec![LicenseCount::new("foo", 10)];
    let mut w = World::with(config);
    w.must(0, edit(&["chem", "bio"], account("")));
    for name in ["chem", "bio"] {
        w.must(0, edit(&["u1000"], users(name, TermsAsk::default())));
    }
    w.must(0, edit(&["high"], AccountsAsk::AddQos(QosAsk::default())));
    let ask = ReservationAsk {
        name: Some("r".into()),
        start: Some(w.now.plus_s(60)),
        duration: Some(TimeLimit::Minutes(60)),
        users: Some(NameList::Only(vec!["u1000".into()])),
        licenses: Some("foo".into()),
        flags: muster_model::reservation::Flags::ANY_NODES,
        ..ReservationAsk::default()
    };
    w.user(0, UserCommand::CreateReservation(Box::new(ask)));
    let job = |partitions: &str| JobSpec {
        account: Some("chem".into()),
        qos: Some("normal".into()),
        reservation: Some("r".into()),
        ..in_partitions(partitions)
    };
    let changes: [(Update, RefusalCode); 3] = [
        (
            |u| u.account = Some("bio".into()),
            RefusalCode::InvalidAccount,
        ),
        (|u| u.qos = Some("high".into()), RefusalCode::InvalidQos),
        (
            |u| u.reservation = Some(String::new()),
            RefusalCode::InvalidReservation,
        ),
    ];
    for (update, code) in changes {
        for uid in [1000, 0] {
            let alone = w.submit(job("closed"));
            assert_eq!(w.refused(uid, change(alone, update)), code);
            assert_eq!(named(&w, alone), "closed");
            let first = w.submit(job("closed,short"));
            w.must(uid, change(first, update));
            assert_eq!(named(&w, first), "short");
            assert_eq!(w.job(first).partition, "short");
        }
        // What says nothing of them, and what moves the job as well, may be.
        let id = w.submit(job("closed"));
        w.must(1000, change(id, |u| u.comment = Some("x".into())));
        let moved = change(id, |u| {
            update(u);
            u.partitions = Some(vec!["short".into()]);
        });
        w.must(1000, moved);
        assert_eq!(named(&w, id), "short");
    }
}

/// What a partition takes is changed while jobs wait, and so is what accounts give them: each start is checked.
#[test]
fn a_start_is_refused_where_the_partition_does_not_take_the_job_any_more() {
    let restrictions: [(Change, bool); 7] = [
        (|p| p.allow_accounts = vec!["chem".into()], false),
        (|p| p.deny_accounts = vec!["bio".into()], false),
        (|p| p.allow_qos = vec!["high".into()], false),
        (|p| p.deny_qos = vec!["normal".into()], false),
        (|p| p.req_resv = true, false),
        // These are about who submits, and when.
        (|p| p.allow_groups = vec!["chem".into()], true),
        (|p| p.state = PartitionState::Drain, true),
    ];
    for (at, (restrict, may)) in restrictions.into_iter().enumerate() {
        let mut w = World::with(config_with(|_| {}));
        let id = w.submit(JobSpec {
            account: Some("bio".into()),
            ..in_partitions("closed,short")
        });
        assert!(starts_in(&w, id, "closed"));
        w.configure(config_with(restrict), KeptPartitions::File);
        assert_eq!(starts_in(&w, id, "closed"), may, "case {at}");
        assert!(starts_in(&w, id, "short"), "case {at}");
        assert_eq!(w.job(id).state, JobState::Pending);
    }
    let mut w = World::with(config_with(|_| {}));
    let id = w.submit(in_partitions("closed"));
    let reserved = QosAsk {
        flags: Some(muster_model::command::ListEdit {
            sign: None,
            names: vec![Qos::REQUIRES_RESERVATION.to_owned()],
        }),
        ..QosAsk::default()
    };
    let normal = edit(&["normal"], AccountsAsk::ModifyQos(reserved));
    w.run(Command::User(user(0), normal));
    assert!(!starts_in(&w, id, "closed"));
}

/// Lists of partitions are as somebody wrote them, names of jobs as they are kept; who is kept out is with all accounts under it.
#[test]
fn lists_of_partitions_reach_subaccounts_and_capitals() {
    let listed: [(Change, bool); 9] = [
        (|p| p.deny_accounts = vec!["chem".into()], false),
        (|p| p.deny_accounts = vec!["Chem".into()], false),
        (|p| p.deny_accounts = vec!["Chem_Lab".into()], false),
        (|p| p.deny_accounts = vec!["root".into()], true),
        (|p| p.deny_accounts = vec!["bio".into()], true),
        (|p| p.allow_accounts = vec!["CHEM_LAB".into()], true),
        (|p| p.allow_accounts = vec!["chem".into()], false),
        (|p| p.deny_qos = vec!["Long".into()], false),
        (|p| p.allow_qos = vec!["LONG".into()], true),
    ];
    for (at, (restrict, may)) in listed.into_iter().enumerate() {
        let mut w = World::with(config_with(restrict));
        w.must(0, edit(&["chem"], account("root")));
        w.must(0, edit(&["chem_lab"], account("chem")));
        w.must(0, edit(&["long"], AccountsAsk::AddQos(QosAsk::default())));
        let job = JobSpec {
            account: Some("Chem_lab".into()),
            qos: Some("LONG".into()),
            ..in_partitions("closed")
        };
        assert_eq!(w.try_submit(1000, job).is_ok(), may, "case {at}");
    }
}

/// Where partitions are hidden, who may not use one does not get to know whose it is.
#[test]
fn groups_of_a_hidden_partition_are_not_named() {
    use muster_model::private_data::PrivateData;
    for hidden in [false, true] {
        let mut config = config_with(|p| p.allow_groups = vec!["chem".into()]);
        if hidden {
            config.private = PrivateData::PARTITIONS;
        }
        let mut w = World::with(config);
        let refused = w.try_submit(1000, in_partitions("closed")).unwrap_err();
        assert_eq!(refused.code, RefusalCode::PartitionAccess);
        assert_eq!(refused.detail.contains("chem"), !hidden, "{refused:?}");
    }
}

/// `EnforcePartLimits=NO`: Slurm takes such a job, and starts it when the partition or the job is changed.
#[test]
fn jobs_wait_for_their_account_or_qos_where_limits_are_not_enforced() {
    let cases: [(Change, Reason); 2] = [
        (
            |p| p.allow_accounts = vec!["chem".into()],
            Reason::AccountNotAllowed,
        ),
        (|p| p.allow_qos = vec!["high".into()], Reason::QOSNotAllowed),
    ];
    for (restrict, reason) in cases {
        let mut config = config_with(restrict);
        config.enforce_part_limits = EnforcePartLimits::No;
        let mut w = World::with(config);
        let id = w.try_submit(1000, in_partitions("closed")).unwrap();
        w.schedule();
        assert_eq!(w.state_of(id), (JobState::Pending, reason));
    }
}

/// More nodes than the partition has CPUs: Slurm says so, where it would else speak of nodes.
#[test]
fn more_nodes_than_cpus_are_too_many_cpus() {
    let mut config = config();
    config.enforce_part_limits = EnforcePartLimits::All;
    let mut w = World::with(config);
    let mut wide = in_partitions("batch");
    for (nodes, code) in [
        (4, RefusalCode::InvalidNodeCount),
        (1_000_000_000, RefusalCode::TooManyCpus),
    ] {
        wide.ask.min_nodes = nodes;
        wide.ask.nodes_set = true;
        assert_eq!(w.try_submit(1000, wide.clone()).unwrap_err().code, code);
    }
}

/// `NodeHostname` names the first node of a host, where no node has that name.
#[test]
fn a_partition_is_made_of_nodes_by_their_host() {
    let mut config = config();
    for (node, host) in config.nodes.iter_mut().zip(["one", "two", "two"]) {
        node.hostname = host.to_owned();
    }
    let mut w = World::with(config);
    w.must(
        0,
        UserCommand::CreatePartition {
            name: "p".to_owned(),
            pairs: vec![("Nodes".to_owned(), "two,one".to_owned())],
        },
    );
    let made = w.state.partition("p").unwrap();
    assert_eq!(made.nodes, ["n2", "n1"]);
}
