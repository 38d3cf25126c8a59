//! A valid command of each kind.

use crate::world::{SCRIPT, allocation, array, exit, spec, target};
use muster_model::account_limits::LimitAsk;
use muster_model::command::ListEdit;
use muster_model::command::{
    AccountsAsk, AccountsEdit, JobSelection, JobTarget, JobUpdate, NameList, NodeUpdate, QosAsk,
    ReservationAsk, SignalScope, TermsAsk, UserCommand, WckeysAsk,
};
use muster_model::ids::{JobId, StepNo};
use muster_model::index_set::IndexSet;
use muster_model::job::JobState;
use muster_model::mail::MailOptions;
use muster_model::reservation::Flags;
use muster_model::spec::{
    Dependency, DependencyKind, DependencyTerm, DeviceAsk, GresAsk, JobSpec, MemoryAsk,
    ResourceAsk, WarnSignal,
};
use muster_model::time::{TimeLimit, Timestamp};
use muster_model::topology::SwitchAsk;
use muster_model::trigger::TriggerAsk;

/// A command of each kind, with something in each of its fields.
pub(super) fn commands(base: JobId, job: JobId) -> Vec<UserCommand> {
    let some = |text: &str| Some(text.to_owned());
    let mut tasks = IndexSet::default();
    tasks.insert_range(1, 2);
    tasks.insert_range(4, 4);
    let part = JobTarget {
        job: base,
        tasks: Some(tasks),
        component: None,
    };
    let selection = || JobSelection {
        targets: vec![part.clone(), target(job)],
        step: Some(StepNo(1)),
        uid: Some(1000),
        name: some("a"),
        state: Some(JobState::Pending),
        partition: some("batch"),
        account: some("u1000"),
        qos: some("normal"),
        reservation: None,
        nodes: vec!["n1".to_owned()],
        wckey: None,
        only_own: false,
        cron: true,
    };
    let plain = |targets: Vec<JobTarget>| JobSelection {
        targets,
        ..JobSelection::default()
    };
    let device = |name: &str| GresAsk {
        name: name.to_owned(),
        kind: None,
        count: 1,
    };
    let ask = ResourceAsk {
        max_nodes: Some(2),
        ntasks: Some(2),
        cpus_per_task: Some(1),
        ntasks_per_node: Some(1),
        ntasks_per_socket: Some(1),
        ntasks_per_core: Some(1),
        min_cpus_per_node: Some(1),
        memory: MemoryAsk::PerCpu(10),
        nodelist: some("n1"),
        exclude: some("n3"),
        sockets_per_node: Some(1),
        cores_per_socket: Some(1),
        threads_per_core: Some(1),
        switches: Some(SwitchAsk {
            count: 1,
            wait_s: Some(60),
        }),
        ..ResourceAsk::default()
    };
    let devices = ResourceAsk {
        gres: vec![device("gpu")],
        devices: Some(Box::new(DeviceAsk {
            per_job: vec![device("gpu")],
            per_socket: vec![device("gpu")],
            per_task: vec![device("gpu")],
            cpus_per_gpu: Some(1),
            mib_per_gpu: Some(1),
            ntasks_per_gpu: Some(1),
            ..DeviceAsk::default()
        })),
        segment: Some(1),
        core_spec: Some(1),
        constraint: some("a&b"),
        ..ResourceAsk::default()
    };
    let dependency = Dependency {
        terms: vec![
            DependencyTerm::Job {
                kind: DependencyKind::After,
                job: base,
                task: Some(3),
                delay_minutes: 2,
            },
            DependencyTerm::Job {
                kind: DependencyKind::AfterCorr,
                job: base,
                task: None,
                delay_minutes: 0,
            },
            DependencyTerm::Singleton,
        ],
        any: false,
    };
    let full = JobSpec {
        account: None,
        argv: vec!["x".to_owned()],
        command: "/tmp/x".to_owned(),
        ask: ask.clone(),
        time_limit: Some(TimeLimit::Minutes(5)),
        time_min: Some(TimeLimit::Minutes(1)),
        begin: Some(Timestamp(2_000_000)),
        deadline: Some(Timestamp(2_000_000_000)),
        priority: Some(7),
        nice: 3,
        dependency: dependency.clone(),
        array: array(0, 5, Some(2)),
        warn_signal: Some(WarnSignal {
            signal: 10,
            before_s: 60,
            batch_only: true,
        }),
        mail: MailOptions::of_texts("END".to_owned(), "u".to_owned()),
        shown: vec![("extra".to_owned(), "x".to_owned())],
        immediate_s: Some(5),
        site_factor: 0,
        ..spec("full")
    };
    let blobs = || vec![(SCRIPT, b"#!/bin/sh\n".to_vec().into())];
    let submit = |spec: JobSpec| UserCommand::Submit {
        spec: Box::new(spec),
        blobs: blobs(),
        test_only: false,
    };
    let update = JobUpdate {
        time_limit: Some(TimeLimit::Minutes(4)),
        priority: Some(4),
        nice: Some(5),
        partitions: Some(vec!["batch".to_owned()]),
        name: some("b"),
        comment: some("c"),
        begin: Some(Timestamp(3_000_000)),
        array_throttle: Some(1),
        requeue: Some(true),
        shown: vec![("extra".to_owned(), "y".to_owned())],
        time_min: Some(TimeLimit::Minutes(1)),
        ask: Some(ask),
        dependency: Some(dependency),
        ..JobUpdate::default()
    };
    let delta = JobUpdate {
        time_delta_min: Some(-3),
        deadline: Some(Timestamp(3_000_000_000)),
        site_factor: Some(4),
        nodelist: some("n1"),
        licenses: some(""),
        ..JobUpdate::default()
    };
    let reservation = ReservationAsk {
        name: some("r"),
        start: Some(Timestamp(1_500_000)),
        duration: Some(TimeLimit::Minutes(60)),
        nodes: some("n[1-2]"),
        core_counts: Vec::new(),
        users: Some(NameList::Only(vec!["u1000".to_owned()])),
        flags: Flags::DAILY,
        utc_offset_s: 3600,
        max_start_delay_s: Some(10),
        comment: some("c"),
        ..ReservationAsk::default()
    };
    let counted = ReservationAsk {
        node_count: Some(1),
        nodes: None,
        flags: Flags::WEEKDAY,
        name: None,
        ..reservation.clone()
    };
    let limits: Vec<LimitAsk> = vec![
        LimitAsk::new("grptres", "cpu=4,mem=4G"),
        LimitAsk::new("maxwall", "1-0"),
    ];
    let terms = TermsAsk {
        shares: Some(Some(3)),
        priority: Some(None),
        default_qos: some(""),
        qos: Some(ListEdit {
            sign: Some('+'),
            names: vec!["normal".to_owned()],
        }),
        limits: limits.clone(),
        qos_less: vec!["normal".to_owned()],
    };
    let qos = QosAsk {
        description: some("d"),
        priority: Some(5),
        preempt: Some(ListEdit {
            sign: None,
            names: Vec::new(),
        }),
        preempt_mode: some("cancel"),
        preempt_exempt_s: Some(None),
        grace_time_s: Some(4),
        usage_factor_millionths: Some(1_000_000),
        limits,
        flags: Some(ListEdit {
            sign: None,
            names: Vec::new(),
        }),
        usage_threshold_millionths: None,
        limit_factor_millionths: Some(None),
    };
    let edit = |name: &str, ask: AccountsAsk| {
        UserCommand::EditAccounts(Box::new(AccountsEdit {
            cluster: String::new(),
            names: vec![name.to_owned()],
            ask,
        }))
    };
    let pairs = || {
        vec![
            ("MaxTime".to_owned(), "10".to_owned()),
            ("Nodes".to_owned(), "n1".to_owned()),
        ]
    };
    vec![
        submit(full),
        submit(JobSpec {
            ask: devices,
            ..spec("d")
        }),
        submit(JobSpec {
            array: array(0, 9, None),
            ..spec("a")
        }),
        UserCommand::SubmitHet {
            specs: vec![spec("h0"), allocation("h1")],
            blobs: blobs(),
            test_only: false,
        },
        UserCommand::Cancel {
            selection: selection(),
        },
        UserCommand::Cancel {
            selection: plain(vec![part.clone()]),
        },
        UserCommand::Signal {
            selection: plain(vec![target(job)]),
            signal: 10,
            scope: SignalScope::Full,
        },
        UserCommand::Hold {
            target: part.clone(),
            user: true,
        },
        UserCommand::Release {
            target: target(base),
        },
        UserCommand::Requeue {
            target: target(job),
            hold: true,
            special_exit: true,
            incomplete: false,
        },
        UserCommand::Suspend {
            target: target(job),
        },
        UserCommand::Resume {
            target: target(job),
        },
        UserCommand::UpdateJob {
            target: part.clone(),
            update: Box::new(update.clone()),
        },
        UserCommand::UpdateJob {
            target: target(job),
            update: Box::new(update),
        },
        UserCommand::UpdateJob {
            target: target(job),
            update: Box::new(delta),
        },
        UserCommand::UpdateNodes {
            nodes: "n[1-2]".to_owned(),
            update: NodeUpdate {
                state: some("DRAIN"),
                reason: some("r"),
                weight: Some(3),
                features: Some(vec!["a".to_owned()]),
                comment: some("c"),
                cpu_bind: some("cores"),
            },
        },
        UserCommand::UpdatePartition {
            name: "short".to_owned(),
            pairs: pairs(),
            read: Vec::new(),
        },
        UserCommand::CreatePartition {
            name: "new".to_owned(),
            pairs: pairs(),
        },
        UserCommand::DeletePartition {
            name: "new".to_owned(),
        },
        UserCommand::CreateNodes {
            nodes: vec![crate::dynamic_nodes::dynamic("d1", &[])],
        },
        UserCommand::DeleteNodes {
            nodes: "d1".to_owned(),
        },
        UserCommand::TakeNode(Box::default()),
        UserCommand::EndAllocation { job, exit: exit(3) },
        UserCommand::Reconfigure,
        UserCommand::Top { target: part },
        UserCommand::Reboot {
            nodes: "n3".to_owned(),
            asap: true,
            down_after: false,
            reason: some("r"),
        },
        UserCommand::CancelReboot {
            nodes: "n3".to_owned(),
        },
        UserCommand::CreateReservation(Box::new(reservation.clone())),
        UserCommand::CreateReservation(Box::new(counted)),
        UserCommand::UpdateReservation(Box::new(ReservationAsk {
            duration_sign: Some('+'),
            start: None,
            nodes: None,
            ..reservation
        })),
        UserCommand::DeleteReservation {
            name: "r".to_owned(),
        },
        edit(
            "acc",
            AccountsAsk::AddAccounts {
                parent: String::new(),
                description: "d".to_owned(),
                organization: "o".to_owned(),
                terms: terms.clone(),
            },
        ),
        edit(
            "u1000",
            AccountsAsk::AddUsers {
                accounts: vec!["acc".to_owned()],
                default_account: "acc".to_owned(),
                admin_level: "None".to_owned(),
                terms,
                wckeys: WckeysAsk {
                    default: some("w"),
                    keys: Some(ListEdit {
                        sign: None,
                        names: vec!["w".to_owned()],
                    }),
                },
                partitions: Vec::new(),
            },
        ),
        edit("normal", AccountsAsk::AddQos(qos)),
        edit(
            "u1000",
            AccountsAsk::DeleteUsers {
                accounts: Vec::new(),
                partitions: Vec::new(),
            },
        ),
        UserCommand::UpdateStep {
            target: target(job),
            step: Some(StepNo(0)),
            time_limit: TimeLimit::Minutes(9),
        },
        UserCommand::SetCrontab(Box::default()),
        UserCommand::Trigger(Box::new(TriggerAsk::Clear {
            id: None,
            job: Some(job),
            uid: None,
        })),
        UserCommand::Notify {
            target: target(job),
            text: "t".to_owned(),
        },
    ]
}
