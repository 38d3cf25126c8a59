//! What a client could send that no command sends: values that the commands refuse, and bytes of valid requests that were
//! changed.

use crate::mutation::{Change, change, changed};
use crate::world::{
    SCRIPT, World, allocation, array, config, exit, spec, step, step_end, target, task, user,
};
use minicbor::bytes::ByteVec;
use muster_core::account_limits::LimitAsk;
use muster_core::command::{
    AccountsAsk, AccountsEdit, Command, Identity, JobSelection, JobTarget, JobUpdate, NameList,
    NodeCommand, NodeUpdate, QosAsk, Reply, ReservationAsk, SignalScope, TermsAsk, UserCommand,
    WckeysAsk,
};
use muster_core::config::ClusterConfig;
use muster_core::ids::{Attempt, BlobId, JobId, NodeIdx, StepNo};
use muster_core::index_set::IndexSet;
use muster_core::job::{JobState, Step, StepEnd};
use muster_core::node::{GresConfig, NodeInfo};
use muster_core::order_config::Multifactor;
use muster_core::refusal::{Refusal, RefusalCode};
use muster_core::reservation::Flags;
use muster_core::spec::{
    ArraySpec, Dependency, DependencyKind, DependencyTerm, DeviceAsk, ExecContext, GresAsk,
    JobKind, JobSpec, MemoryAsk, Owner, ResourceAsk, StdioSpec, WarnSignal,
};
use muster_core::time::{TimeLimit, Timestamp};
use muster_core::validate::Validate;
use proptest::prelude::*;

fn submitted(world: &mut World, identity: Identity, spec: JobSpec) -> Result<JobId, Refusal> {
    let blobs = vec![(SCRIPT, b"#!/bin/sh\n".to_vec().into())];
    let command = UserCommand::Submit {
        spec: Box::new(spec),
        blobs,
        test_only: false,
    };
    match world.run(Command::User(identity, command)).reply {
        Some(Reply::Submitted { id, .. }) => Ok(id),
        Some(Reply::Refused(refusal)) => Err(refusal),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_group_is_one_that_the_user_is_in() {
    let mut world = World::new();
    let alice = || Identity {
        groups: vec!["u1000".into(), "staff".into()],
        gids: vec![1000, 50],
        ..user(1000)
    };
    let with_group = |gid: u32, group: &str| JobSpec {
        owner: Owner {
            uid: 1000,
            gid,
            user: String::new(),
            group: group.into(),
        },
        ..spec("j")
    };
    // The number counts, whatever name comes with it.
    for gid in [0, 6, 42] {
        let refused = submitted(&mut world, alice(), with_group(gid, "staff")).unwrap_err();
        assert_eq!(refused.code, RefusalCode::AccessDenied);
    }
    let id = submitted(&mut world, alice(), with_group(50, "root")).unwrap();
    let owner = &world.job(id).spec.owner;
    assert_eq!((owner.gid, owner.group.as_str()), (50, "staff"));
    let id = submitted(&mut world, alice(), with_group(0, "")).unwrap();
    assert_eq!(world.job(id).spec.owner.gid, 1000);
    let root = with_group(42, "shadow");
    let id = submitted(
        &mut world,
        user(0),
        JobSpec {
            owner: Owner {
                uid: 0,
                ..root.owner
            },
            ..spec("j")
        },
    );
    assert_eq!(world.job(id.unwrap()).spec.owner.gid, 42);
}

#[test]
fn what_others_have_stored_is_no_ones_to_name() {
    let mut world = World::new();
    let context = BlobId([8; 32]);
    let environment = ExecContext {
        environment: ["SECRET_TOKEN=x"].iter().collect(),
        ..ExecContext::default()
    };
    let encoded = minicbor::to_vec(&environment).unwrap();
    let submit = |spec: JobSpec, blobs: Vec<(BlobId, ByteVec)>| UserCommand::Submit {
        spec: Box::new(spec),
        blobs,
        test_only: false,
    };
    let job = || JobSpec {
        context: Some(context),
        ..spec("j")
    };
    let script: (BlobId, ByteVec) = (SCRIPT, b"#!/bin/sh\n".to_vec().into());
    let all = vec![script.clone(), (context, encoded.into())];
    assert!(matches!(
        world.user(1000, submit(job(), all)),
        Reply::Submitted { .. }
    ));
    // Another user has seen the ids.
    for blobs in [vec![], vec![script.clone()]] {
        let refused = world.user(1001, submit(job(), blobs));
        assert!(matches!(refused, Reply::Refused(r) if r.code == RefusalCode::InvalidValue));
    }
    let second = JobSpec {
        kind: JobKind::Allocation,
        script: None,
        ..job()
    };
    let het = UserCommand::SubmitHet {
        specs: vec![spec("a"), second],
        blobs: vec![script],
        test_only: false,
    };
    let refused = world.user(1001, het);
    assert!(matches!(refused, Reply::Refused(r) if r.code == RefusalCode::InvalidValue));
    assert_eq!(world.state.jobs.len(), 1);
}

#[test]
fn scripts_and_environments_are_what_they_should_be() {
    let mut world = World::new();
    let mut answer = |script: &[u8], context: Option<&[u8]>| {
        let other = BlobId([9; 32]);
        let mut blobs: Vec<(BlobId, ByteVec)> = vec![(SCRIPT, script.to_vec().into())];
        blobs.extend(context.map(|bytes| (other, bytes.to_vec().into())));
        let command = UserCommand::Submit {
            spec: Box::new(JobSpec {
                context: context.map(|_| other),
                ..spec("j")
            }),
            blobs,
            test_only: false,
        };
        match world.user(1000, command) {
            Reply::Refused(refusal) => refusal.code,
            other => panic!("{other:?}"),
        }
    };
    let good = b"#!/bin/sh\n";
    assert_eq!(answer(b"", None), RefusalCode::InvalidValue);
    assert_eq!(answer(b"echo\n", None), RefusalCode::InvalidValue);
    assert_eq!(answer(b"#!/bin/sh\n\0", None), RefusalCode::InvalidValue);
    let long = [&good[..], &vec![b'#'; 4 << 20]].concat();
    assert_eq!(answer(&long, None), RefusalCode::TooLong);
    assert_eq!(answer(good, Some(b"")), RefusalCode::InvalidValue);
    assert_eq!(answer(good, Some(&[0xff; 100])), RefusalCode::InvalidValue);
    let limits: Vec<(u32, u64)> = vec![(0, 0); 1000];
    let many = ExecContext {
        soft_limits: limits,
        ..ExecContext::default()
    };
    let many = minicbor::to_vec(&many).unwrap();
    assert_eq!(answer(good, Some(&many)), RefusalCode::InvalidValue);
}

#[test]
fn a_site_bounds_scripts_and_command_lines() {
    let with = |words: &[&str]| {
        World::with(ClusterConfig {
            scheduler_parameters: words.iter().map(|w| (*w).to_owned()).collect(),
            ..config()
        })
    };
    let script = |bytes: usize| {
        let script = format!("#!/bin/sh\n{}", "#".repeat(bytes - 10));
        UserCommand::Submit {
            spec: Box::new(spec("j")),
            blobs: vec![(SCRIPT, script.into_bytes().into())],
            test_only: false,
        }
    };
    let mut world = with(&["max_script_size=100"]);
    assert!(matches!(
        world.user(1000, script(100)),
        Reply::Submitted { .. }
    ));
    world = with(&["max_script_size=100"]);
    let refused = world.user(1000, script(101));
    assert!(matches!(refused, Reply::Refused(r) if r.code == RefusalCode::TooLong));
    let mut world = with(&["max_script_size=5000000"]);
    assert!(matches!(
        world.user(1000, script(5_000_000)),
        Reply::Submitted { .. }
    ));

    let line = |bytes: usize| JobSpec {
        submit_line: "x".repeat(bytes),
        ..spec("j")
    };
    let arguments = |count: usize| JobSpec {
        argv: vec!["x".to_owned(); count],
        ..spec("j")
    };
    let mut world = with(&["max_submit_line_size=100"]);
    world.submit(line(100));
    assert_eq!(world.refusal(line(101)), RefusalCode::TooLong);
    world.submit(arguments(50));
    assert_eq!(world.refusal(arguments(51)), RefusalCode::TooLong);
    // Slurm's default.
    let mut world = World::new();
    world.submit(line(1 << 20));
    assert_eq!(world.refusal(line((1 << 20) + 1)), RefusalCode::TooLong);
}

#[test]
fn no_text_of_a_job_is_without_bounds() {
    let mut world = World::new();
    let long = "n".repeat((512 << 10) + 1);
    let text = || Some(long.clone());
    let plain = || spec("j");
    let ask = |ask: ResourceAsk| JobSpec { ask, ..spec("j") };
    let usual = ResourceAsk::default;
    let device = |name: &str, kind: Option<String>| GresAsk {
        name: name.to_owned(),
        kind,
        count: 1,
    };
    let jobs = [
        JobSpec {
            name: long.clone(),
            ..plain()
        },
        JobSpec {
            account: text(),
            ..plain()
        },
        JobSpec {
            qos: text(),
            ..plain()
        },
        JobSpec {
            wckey: text(),
            ..plain()
        },
        JobSpec {
            submit_host: long.clone(),
            ..plain()
        },
        JobSpec {
            partitions: vec![long.clone()],
            ..plain()
        },
        JobSpec {
            mail: Some((long.clone(), String::new())),
            ..plain()
        },
        JobSpec {
            mail: Some((String::new(), long.clone())),
            ..plain()
        },
        JobSpec {
            work_dir: long.clone(),
            ..plain()
        },
        JobSpec {
            command: long.clone(),
            ..plain()
        },
        JobSpec {
            comment: text(),
            ..plain()
        },
        JobSpec {
            export: text(),
            ..plain()
        },
        JobSpec {
            licenses: text(),
            ..plain()
        },
        JobSpec {
            reservation: text(),
            ..plain()
        },
        JobSpec {
            stdio: StdioSpec {
                stdin: text(),
                ..StdioSpec::default()
            },
            ..plain()
        },
        JobSpec {
            stdio: StdioSpec {
                stdout: text(),
                ..StdioSpec::default()
            },
            ..plain()
        },
        JobSpec {
            stdio: StdioSpec {
                stderr: text(),
                ..StdioSpec::default()
            },
            ..plain()
        },
        JobSpec {
            shown: vec![("extra".to_owned(), long.clone())],
            ..plain()
        },
        JobSpec {
            argv: vec![long.clone(); 3],
            ..plain()
        },
        ask(ResourceAsk {
            constraint: text(),
            ..usual()
        }),
        ask(ResourceAsk {
            prefer: text(),
            ..usual()
        }),
        ask(ResourceAsk {
            batch: text(),
            ..usual()
        }),
        ask(ResourceAsk {
            distribution: text(),
            ..usual()
        }),
        ask(ResourceAsk {
            nodelist: text(),
            ..usual()
        }),
        ask(ResourceAsk {
            exclude: text(),
            ..usual()
        }),
        ask(ResourceAsk {
            gres: vec![device(&long, None)],
            ..usual()
        }),
        ask(ResourceAsk {
            gres: vec![device("gpu", text())],
            ..usual()
        }),
    ];
    for job in jobs {
        let code = world.refusal(job);
        assert_eq!(code, RefusalCode::TooLong);
    }
    let many = JobSpec {
        partitions: vec!["batch".to_owned(); 100_000],
        ..plain()
    };
    assert_eq!(world.refusal(many), RefusalCode::InvalidPartition);
    let many = ResourceAsk {
        gres: vec![device("gpu", None); 1000],
        ..usual()
    };
    assert_eq!(world.refusal(ask(many)), RefusalCode::InvalidGres);
}

#[test]
fn counts_of_a_constraint_are_counts_of_nodes() {
    let (mut world, ..) = busy_world(true);
    let asks = |constraint: &str| JobSpec {
        ask: ResourceAsk {
            constraint: Some(constraint.to_owned()),
            ..ResourceAsk::default()
        },
        ..spec("j")
    };
    world.submit(asks("[a*1&b*2]"));
    for constraint in ["[a*4294967295&b*2]", "[a*1048577&b*2]", "a*0", "a*-1"] {
        assert_eq!(world.refusal(asks(constraint)), RefusalCode::InvalidFeature);
    }
}

#[test]
fn texts_are_those_of_options() {
    let mut world = World::new();
    let shown = |key: &str| JobSpec {
        shown: vec![(key.to_owned(), "x".to_owned())],
        ..spec("j")
    };
    assert_eq!(world.refusal(shown("made-up")), RefusalCode::InvalidValue);
    assert_eq!(
        world.refusal(shown("admin-comment")),
        RefusalCode::AccessDenied
    );
    let twice = JobSpec {
        shown: vec![("extra".to_owned(), "x".to_owned()); 2],
        ..spec("j")
    };
    assert_eq!(world.refusal(twice), RefusalCode::InvalidValue);
    let id = world.submit(shown("extra"));
    let update = |key: &str| UserCommand::UpdateJob {
        target: target(id),
        update: Box::new(JobUpdate {
            shown: vec![(key.to_owned(), "y".to_owned())],
            ..JobUpdate::default()
        }),
    };
    assert_eq!(
        world.refused(1000, update("made-up")),
        RefusalCode::InvalidValue
    );
    assert_eq!(
        world.refused(1000, update("admin-comment")),
        RefusalCode::AccessDenied
    );
    world.must(1000, update("extra"));
    world.must(0, update("admin-comment"));
}

#[test]
fn where_a_job_comes_from_is_what_the_connection_says() {
    let mut config = config();
    config.partitions[0].alloc_nodes = vec!["login1".to_owned()];
    let mut world = World::with(config);
    let from = |host: &str| Identity {
        host: Some(host.to_owned()),
        ..user(1000)
    };
    let claims = || JobSpec {
        submit_host: "login1".to_owned(),
        ..spec("j")
    };
    let refused = submitted(&mut world, from("n1"), claims()).unwrap_err();
    assert_eq!(refused.code, RefusalCode::AccessDenied);
    let id = submitted(
        &mut world,
        from("login1"),
        JobSpec {
            submit_host: "n1".into(),
            ..spec("j")
        },
    );
    assert_eq!(world.job(id.unwrap()).spec.submit_host, "login1");
}

#[test]
fn every_task_of_an_array_counts_towards_the_queue() {
    let mut world = World::with(ClusterConfig {
        max_job_count: 100,
        ..config()
    });
    let tasks = |first: u32, last: u32| JobSpec {
        array: array(first, last, None),
        ..spec("a")
    };
    assert_eq!(world.refusal(tasks(0, 100)), RefusalCode::ArrayTooLarge);
    let base = world.submit(tasks(0, 59));
    assert_eq!(world.refusal(tasks(0, 40)), RefusalCode::TooManyJobs);
    world.submit(tasks(0, 38));
    world.submit(spec("j"));
    assert_eq!(world.refusal(spec("j")), RefusalCode::TooManyJobs);
    // Tasks that get records of their own take no more room than they had.
    let mut odd = IndexSet::default();
    (0..60).step_by(2).for_each(|index| odd.insert(index));
    let some = JobTarget {
        tasks: Some(odd),
        ..target(base)
    };
    let selection = JobSelection {
        targets: vec![some],
        ..JobSelection::default()
    };
    world.must(1000, UserCommand::Cancel { selection });
    assert_eq!(world.state.jobs.len(), 33);
    assert_eq!(world.state.job_count(), 100);
    assert_eq!(world.refusal(spec("j")), RefusalCode::TooManyJobs);
    world.pass(301);
    assert_eq!(world.state.job_count(), 70);
    world.check_replay();
}

#[test]
fn jobs_of_others_are_refused_before_they_are_looked_for() {
    let mut world = World::new();
    let base = world.submit(JobSpec {
        array: array(0, 9, None),
        ..spec("a")
    });
    // Tasks that are not there would be unknown to the owner.
    let absent = task(base, 77);
    let hold = |target: JobTarget| UserCommand::Hold { target, user: true };
    assert_eq!(
        world.refused(1000, hold(absent.clone())),
        RefusalCode::InvalidJobId
    );
    assert_eq!(
        world.refused(1001, hold(absent.clone())),
        RefusalCode::AccessDenied
    );
    let cancel = |target: JobTarget| UserCommand::Cancel {
        selection: JobSelection {
            targets: vec![target],
            ..JobSelection::default()
        },
    };
    assert_eq!(
        world.refused(1001, cancel(absent)),
        RefusalCode::AccessDenied
    );
    assert_eq!(
        world.refused(1001, cancel(target(base))),
        RefusalCode::AccessDenied
    );
}

#[test]
fn arrays_of_ranges_that_overlap_are_never_made() {
    // As a client encodes `{0: 3, 2: 9}`: a map in a job's array.
    let set = |ranges: &[(u8, u8)]| {
        let mut bytes = vec![0xa0 | ranges.len() as u8];
        ranges
            .iter()
            .for_each(|(first, last)| bytes.extend([*first, *last]));
        bytes
    };
    let array = |ranges: &[(u8, u8)]| {
        let bytes = [&[0x82][..], &set(ranges), &[0xf6]].concat();
        minicbor::decode::<ArraySpec>(&bytes).map(|array| array.indices.len())
    };
    assert_eq!(array(&[(0, 3), (5, 9)]).unwrap(), 9);
    array(&[(0, 3), (2, 9)]).unwrap_err();
    let target = |ranges: &[(u8, u8)]| {
        let bytes = [&[0x82, 1][..], &set(ranges)].concat();
        minicbor::decode::<JobTarget>(&bytes).map(|target| target.tasks.is_some())
    };
    assert!(target(&[(5, 9)]).unwrap());
    target(&[(5, 1)]).unwrap_err();
}

/// A command of each kind, with something in each of its fields.
fn commands(base: JobId, job: JobId) -> Vec<UserCommand> {
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
        switches: Some((1, Some(60))),
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
        mail: Some(("END".to_owned(), "u".to_owned())),
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
        ("grptres".to_owned(), "cpu=4,mem=4G".to_owned()),
        ("maxwall".to_owned(), "1-0".to_owned()),
    ];
    let terms = TermsAsk {
        shares: Some(Some(3)),
        priority: Some(Some(4)),
        default_qos: some(""),
        qos: Some((Some('+'), vec!["normal".to_owned()])),
        limits: limits.clone(),
    };
    let qos = QosAsk {
        description: some("d"),
        priority: Some(5),
        preempt: Some((None, Vec::new())),
        preempt_mode: some("cancel"),
        preempt_exempt_s: Some(Some(3)),
        grace_time_s: Some(4),
        usage_factor_millionths: Some(1_000_000),
        limits,
        flags: Some((None, Vec::new())),
    };
    let edit = |name: &str, ask: AccountsAsk| {
        UserCommand::EditAccounts(Box::new(AccountsEdit {
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
        },
        UserCommand::CreatePartition {
            name: "new".to_owned(),
            pairs: pairs(),
        },
        UserCommand::DeletePartition {
            name: "new".to_owned(),
        },
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
                    keys: Some((None, vec!["w".to_owned()])),
                },
            },
        ),
        edit("normal", AccountsAsk::AddQos(qos)),
        edit(
            "u1000",
            AccountsAsk::DeleteUsers {
                accounts: Vec::new(),
            },
        ),
        UserCommand::UpdateStep {
            target: target(job),
            step: Some(StepNo(0)),
            time_limit: TimeLimit::Minutes(9),
        },
        UserCommand::Notify {
            target: target(job),
            text: "t".to_owned(),
        },
    ]
}

/// A world in which most commands find something to do: an array, a running job with a step, one that waits.
fn busy_world(rich: bool) -> (World, JobId, JobId) {
    let mut config = config();
    if rich {
        config.order.multifactor = Some(Multifactor {
            weight_age: 1000,
            weight_fair_share: 1000,
            weight_job_size: 1000,
            ..Multifactor::default()
        });
        config.scheduler_parameters = vec!["enable_user_top".to_owned()];
        for node in &mut config.nodes {
            node.features = vec!["a".to_owned(), "b".to_owned()];
            node.gres = vec![GresConfig {
                name: "gpu".to_owned(),
                count: 2,
                ..GresConfig::default()
            }];
        }
    }
    let mut world = World::with(config);
    let base = world.submit(JobSpec {
        array: array(0, 9, None),
        ..spec("a")
    });
    let job = world.submit(spec("j"));
    assert!(world.start(job, &[0]));
    world.node(
        0,
        NodeCommand::StepStarted {
            job,
            attempt: Attempt(1),
            step: Box::new(step(0, world.now)),
        },
    );
    (world, base, job)
}

/// What comes of bytes: the command, if anything decodes and validates.
fn received(bytes: &[u8]) -> Option<UserCommand> {
    let command: UserCommand = minicbor::decode(bytes).ok()?;
    command.validate().ok()?;
    Some(command)
}

#[test]
fn each_kind_of_command_is_accepted_unchanged() {
    let (world, base, job) = busy_world(true);
    for command in commands(base, job) {
        let bytes = minicbor::to_vec(&command).unwrap();
        assert_eq!(received(&bytes), Some(command.clone()));
        // Nobody of them is refused for its form.
        let mut world = world.clone();
        if let Some(Reply::Refused(refusal)) =
            world.run(Command::User(user(0), command.clone())).reply
        {
            assert_ne!(refusal.code, RefusalCode::TooLong, "{command:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn changed_commands_are_refused_or_carried_out(
        rich in any::<bool>(),
        picks in proptest::collection::vec((any::<usize>(), proptest::collection::vec(change(), 1..12), 0u8..3), 1..8),
    ) {
        let (mut world, base, job) = busy_world(rich);
        let all = commands(base, job);
        for (pick, changes, by) in picks {
            let mut bytes = minicbor::to_vec(&all[pick % all.len()]).unwrap();
            // What is refused leaves the bytes as they were, so that most end as a command that was changed somewhere.
            for change in &changes {
                let next = changed(&bytes, change);
                if received(&next).is_some() {
                    bytes = next;
                }
            }
            let command = received(&bytes).expect("the last that was accepted");
            let uid = [0, 1000, 1001][usize::from(by)];
            world.run(Command::User(user(uid), command));
            world.tick();
            world.schedule();
        }
        world.pass(100);
    }

    #[test]
    fn changed_reports_of_nodes_are_ignored_or_applied(
        changes in proptest::collection::vec((0u8..5, change()), 1..8),
    ) {
        let (mut world, _, job) = busy_world(true);
        let at = world.now;
        let attempt = Attempt(1);
        for (kind, change) in &changes {
            let command = match kind {
                0 => mutated::<Step>(&step(1, at), change).map(|step| {
                    NodeCommand::StepStarted { job, attempt, step: Box::new(step) }
                }),
                1 => mutated::<StepEnd>(&step_end(at, exit(1)), change).map(|end| {
                    NodeCommand::StepEnded { job, attempt, step: StepNo(0), end: Box::new(end) }
                }),
                2 => mutated::<NodeInfo>(&crate::world::info("boot1", &crate::world::node_config("n1", 4, 1000)), change)
                    .map(|info| NodeCommand::Register { info: Box::new(info), present: vec![(job, attempt)] }),
                3 => mutated::<StepEnd>(&step_end(at, exit(1)), change).map(|end| {
                    NodeCommand::BatchEnded { job, attempt, exit: end.exit, oom: false, end }
                }),
                _ => mutated::<StepNo>(&StepNo(3), change).map(|step| {
                    NodeCommand::StepEnded { job, attempt, step, end: Box::new(step_end(at, exit(0))) }
                }),
            };
            if let Some(command) = command {
                world.run(Command::Node(NodeIdx(0), command));
                world.tick();
            }
        }
        world.pass(100);
    }
}

fn mutated<T>(value: &T, change: &Change) -> Option<T>
where
    T: minicbor::Encode<()> + for<'b> minicbor::Decode<'b, ()> + Validate,
{
    let bytes = changed(&minicbor::to_vec(value).ok()?, change);
    let value: T = minicbor::decode(&bytes).ok()?;
    value.validate().ok()?;
    Some(value)
}
