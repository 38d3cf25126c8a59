//! What a client could send that no command sends: values that the commands refuse. `bytes` changes the bytes of valid
//! requests.

mod bytes;
mod commands;
mod expansion;

use self::bytes::busy_world;
use crate::world::{SCRIPT, World, array, config, spec, target, task, user};
use minicbor::bytes::ByteVec;
use muster_model::command::{
    Command, Identity, JobSelection, JobTarget, JobUpdate, Reply, SignalScope, UserCommand,
};
use muster_model::config::ClusterConfig;
use muster_model::ids::{BlobId, JobId};
use muster_model::index_set::IndexSet;
use muster_model::limits::{ARGUMENTS_MAX, ENVIRONMENT_VARIABLES_MAX, QUERY_ITEMS_MAX};
use muster_model::mail::MailOptions;
use muster_model::refusal::{Refusal, RefusalCode};
use muster_model::spec::{
    ArraySpec, ExecContext, GresAsk, JobKind, JobSpec, Owner, ResourceAsk, SoftLimit, StdioSpec,
};
use muster_model::validate::Validate as _;

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

/// setresuid(2) leaves an identity as it is for this number: the job would have been root's.
#[test]
fn nobody_submits_for_the_user_whose_number_means_no_change() {
    let mut world = World::new();
    for (uid, gid) in [(u32::MAX, 1000), (1000, u32::MAX)] {
        let owner = Owner {
            uid,
            gid,
            user: "someone".into(),
            group: "someone".into(),
        };
        let job = JobSpec { owner, ..spec("j") };
        let refused = submitted(&mut world, user(0), job).unwrap_err();
        assert_eq!(refused.code, RefusalCode::AccessDenied);
    }
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
    let limits = vec![SoftLimit::new(0, 0); 1000];
    let many = ExecContext {
        soft_limits: limits,
        ..ExecContext::default()
    };
    let many = minicbor::to_vec(&many).unwrap();
    assert_eq!(answer(good, Some(&many)), RefusalCode::InvalidValue);
    // Empty variables: each costs a node more than the byte that it takes here.
    let variables = |count: usize| {
        let environment = std::iter::repeat_n("", count).collect();
        minicbor::to_vec(&ExecContext {
            environment,
            ..ExecContext::default()
        })
        .unwrap()
    };
    let more = variables(ENVIRONMENT_VARIABLES_MAX + 1);
    assert_eq!(answer(good, Some(&more)), RefusalCode::TooLong);
    let millions = variables(8_000_000);
    assert_eq!(answer(good, Some(&millions)), RefusalCode::InvalidValue);
}

#[test]
fn a_script_has_no_more_arguments_than_there_may_be() {
    let mut world = World::new();
    let mut submit = |count: usize| {
        let command = UserCommand::Submit {
            spec: Box::new(JobSpec {
                argv: vec![String::new(); count],
                ..spec("j")
            }),
            blobs: vec![(SCRIPT, b"#!/bin/sh\n".to_vec().into())],
            test_only: false,
        };
        world.user(1000, command)
    };
    assert!(matches!(submit(ARGUMENTS_MAX), Reply::Submitted { .. }));
    match submit(ARGUMENTS_MAX + 1) {
        Reply::Refused(refusal) => assert_eq!(refusal.code, RefusalCode::TooLong),
        other => panic!("{other:?}"),
    }
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
            mail: MailOptions::of_texts(long.clone(), String::new()),
            ..plain()
        },
        JobSpec {
            mail: MailOptions::of_texts(String::new(), long.clone()),
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
    assert_eq!(world.state.queue_size.total(), 100);
    assert_eq!(world.refusal(spec("j")), RefusalCode::TooManyJobs);
    world.pass(301);
    assert_eq!(world.state.queue_size.total(), 70);
    world.check_replay();
}

#[test]
fn nobody_fills_the_queue_for_all_others() {
    let mut world = World::with(ClusterConfig {
        max_job_count: 100,
        ..config()
    });
    let tasks = |first: u32, last: u32| JobSpec {
        array: array(first, last, None),
        ..spec("a")
    };
    world.submit(tasks(0, 99));
    assert_eq!(world.refusal(spec("j")), RefusalCode::TooManyJobs);
    // An eighth of the queue is for others, each of whom has half of what is left.
    for (uid, most) in [(1001, 6), (1002, 3), (1003, 1), (1004, 1)] {
        for _ in 0..most {
            submitted(&mut world, user(uid), spec("j")).unwrap();
        }
        let refused = submitted(&mut world, user(uid), spec("j")).unwrap_err();
        assert_eq!(refused.code, RefusalCode::TooManyJobs);
        assert_eq!(world.state.queue_size.of_user(uid), most);
    }
    assert_eq!(world.state.queue_size.of_user(1000), 100);
    assert_eq!(world.state.queue_size.total(), 111);
    // As much again is for administrators.
    submitted(&mut world, user(0), tasks(0, 12)).unwrap();
    let refused = submitted(&mut world, user(0), spec("j")).unwrap_err();
    assert_eq!(refused.code, RefusalCode::TooManyJobs);
    assert_eq!(world.state.queue_size.total(), 124);
    world.state.check_invariants().unwrap();
    world.check_replay();
}

/// A selection that names the same jobs and tasks in many ways.
fn named(targets: Vec<JobTarget>, nodes: Vec<String>) -> JobSelection {
    JobSelection {
        targets,
        nodes,
        ..JobSelection::default()
    }
}

#[test]
fn what_a_request_names_again_is_done_once() {
    let mut world = World::new();
    let base = world.submit(JobSpec {
        array: array(0, 499, None),
        ..spec("a")
    });
    // All tasks have records of their own.
    for index in 0..500 {
        let target = task(base, index);
        world.must(1000, UserCommand::Hold { target, user: true });
    }
    // None of them runs, and each says so: once.
    let signal = |targets: Vec<JobTarget>| UserCommand::Signal {
        selection: named(targets, Vec::new()),
        signal: 10,
        scope: SignalScope::Full,
    };
    let again = |count: u32| (0..count).map(|_| target(base)).collect::<Vec<_>>();
    for count in [1, 12_000] {
        let Reply::Done { changed, refused } = world.user(1000, signal(again(count))) else {
            panic!("signalled");
        };
        assert_eq!((changed, refused.len()), (0, 500), "{count} times");
    }
    // Different names of the same tasks: each answers once, and there is a bound.
    let except = |left_out: u32| JobTarget {
        tasks: Some((0..500).filter(|i| *i != left_out).collect()),
        ..target(base)
    };
    let two = vec![except(1), except(2)];
    let Reply::Done { refused, .. } = world.user(1000, signal(two)) else {
        panic!("signalled");
    };
    assert!(refused.len() <= 500, "{}", refused.len());
    let many = (0..500).map(except).collect();
    let Reply::Refused(refusal) = world.user(1000, signal(many)) else {
        panic!("refused");
    };
    assert!(
        refusal.detail.contains("too many duplicate ones"),
        "{refusal}"
    );
    world.check_replay();
}

#[test]
fn a_request_names_a_bounded_number_of_jobs_and_nodes() {
    let cancel = |targets: usize, nodes: usize| {
        let selection = named(
            vec![target(JobId(1)); targets],
            vec!["n1".to_owned(); nodes],
        );
        UserCommand::Cancel { selection }.validate()
    };
    assert!(cancel(QUERY_ITEMS_MAX, QUERY_ITEMS_MAX).is_ok());
    assert!(cancel(QUERY_ITEMS_MAX + 1, 0).is_err());
    assert!(cancel(0, QUERY_ITEMS_MAX + 1).is_err());
}

#[test]
fn an_environment_that_is_stored_as_a_script_is_looked_at_again() {
    let mut world = World::new();
    world.submit(JobSpec {
        hold: true,
        ..spec("j")
    });
    // The bytes of the script that is there, as an environment.
    let spec = JobSpec {
        context: Some(SCRIPT),
        ..spec("k")
    };
    let refused = submitted(&mut world, user(1000), spec).unwrap_err();
    assert!(refused.detail.contains("environment"), "{refused}");
}

#[test]
fn texts_that_others_see_are_one_line_of_plain_characters() {
    let mut world = World::new();
    let evil = "x\u{1b}[2J\nJobId=1 UserId=root";
    let id = world.submit(JobSpec {
        name: evil.to_owned(),
        comment: Some(evil.to_owned()),
        submit_line: evil.to_owned(),
        shown: vec![("extra".to_owned(), evil.to_owned())],
        ..spec("j")
    });
    let shown = "x?[2J JobId=1 UserId=root";
    let job = world.job(id).spec.clone();
    assert_eq!((&*job.name, &*job.submit_line), (shown, shown));
    assert_eq!(job.comment.as_deref(), Some(shown));
    assert_eq!(job.shown[0].1, shown);
    for odd in [
        JobSpec {
            work_dir: evil.to_owned(),
            ..spec("j")
        },
        JobSpec {
            account: Some(evil.to_owned()),
            ..spec("j")
        },
        JobSpec {
            stdio: StdioSpec {
                stdout: Some(evil.to_owned()),
                ..StdioSpec::default()
            },
            ..spec("j")
        },
    ] {
        assert_eq!(world.refusal(odd), RefusalCode::InvalidValue);
    }
    let update = JobUpdate {
        name: Some(evil.to_owned()),
        ..JobUpdate::default()
    };
    let target = target(id);
    world.must(
        1000,
        UserCommand::UpdateJob {
            target,
            update: Box::new(update),
        },
    );
    assert_eq!(world.job(id).spec.name, shown);
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
