//! What is accepted, refused and filled in.

use crate::accounts::{account, edit, users};
use crate::world::{World, after, array, config, on, partition, spec, target, user};
use muster_core::decide::{check_immediate, prospective_job};
use muster_model::account_limits::LimitAsk;
use muster_model::command::{
    AccountsAsk, JobUpdate, PlannedStart, QosAsk, Reply, TermsAsk, UserCommand,
};
use muster_model::config::{ClusterConfig, EnforcePartLimits, PartitionConfig, PartitionState};
use muster_model::cpuset::CpuSet;
use muster_model::job::{Hold, JobState, Reason};
use muster_model::limits::{PRIORITY_TOP, PURGE_MAX};
use muster_model::node::GresConfig;
use muster_model::refusal::RefusalCode;
use muster_model::spec::{
    ArraySpec, DependencyKind, DeviceAsk, DeviceBinding, GresAsk, JobSpec, MemoryAsk, Owner,
    ResourceAsk,
};
use muster_model::task_range::TaskRange;
use muster_model::time::TimeLimit;
use muster_model::topology::SwitchAsk;

fn asking(change: impl FnOnce(&mut ResourceAsk)) -> JobSpec {
    let mut job = spec("j");
    change(&mut job.ask);
    job
}

#[test]
fn a_plain_job_gets_number_owner_partition_and_defaults() {
    let mut world = World::new();
    let mut job = spec("j");
    job.owner = Owner {
        uid: 0,
        gid: 0,
        user: "root".into(),
        group: "root".into(),
    };
    assert_eq!(world.refusal(job), RefusalCode::AccessDenied);
    let id = world.submit(spec("j"));
    assert_eq!(id.0, 1);
    let job = world.job(id);
    assert_eq!(
        (job.state, job.reason, job.hold),
        (JobState::Pending, Reason::None, Hold::None)
    );
    assert_eq!(
        job.spec.owner.uid, 1000,
        "the client does not choose the owner"
    );
    assert_eq!(job.spec.partitions, ["batch"]);
    assert_eq!(job.spec.ask.memory, MemoryAsk::PerCpu(10));
    assert_eq!(job.time_limit, TimeLimit::Unlimited);
    assert_eq!(job.priority, PRIORITY_TOP - 1);
    assert_eq!(job.eligible_time, Some(world.now));
    assert!(job.requeueable);
    let second = world.submit(spec("j"));
    assert!(
        world.job(second).priority < world.job(id).priority,
        "first come, first served"
    );
}

#[test]
fn root_submits_for_others_and_others_do_not_submit_for_root() {
    let mut world = World::new();
    let for_u7 = JobSpec {
        owner: Owner {
            uid: 7,
            gid: 7,
            user: "u7".into(),
            group: "u7".into(),
        },
        ..spec("j")
    };
    let id = world.try_submit(0, for_u7.clone()).expect("root may");
    assert_eq!(world.job(id).spec.owner.uid, 7);
    let id = world.try_submit(64_030, for_u7).expect("SlurmUser may");
    assert_eq!(world.job(id).spec.owner.uid, 7);
    let for_root = JobSpec {
        owner: Owner {
            uid: 0,
            gid: 0,
            user: "root".into(),
            group: "root".into(),
        },
        ..spec("j")
    };
    let refusal = world
        .try_submit(64_030, for_root)
        .expect_err("SlurmUser is not root");
    assert_eq!(refusal.code, RefusalCode::AccessDenied);
}

/// Earlier such a job was taken, and its frequency would have been that of others' parts of the GPU.
#[test]
fn a_job_with_parts_of_gpus_sets_no_frequency() {
    let mut world = World::new();
    for name in ["mps", "shard"] {
        let mut spec = asking(|ask| {
            ask.gres = vec![GresAsk {
                name: name.into(),
                kind: None,
                count: 1,
            }];
        });
        spec.shown = vec![("gpu-freq".into(), "high".into())];
        let refusal = world.try_submit(7, spec).expect_err("others use the GPU");
        assert_eq!(refusal.code, RefusalCode::InvalidGres);
        assert!(refusal.to_string().contains("GPU frequency"), "{refusal}");
    }
}

#[test]
fn impossible_wishes_are_refused_with_slurms_errors() {
    use RefusalCode as R;
    let mut world = World::new();
    let cases: Vec<(JobSpec, R)> = vec![
        (
            JobSpec {
                partitions: vec!["nosuch".into()],
                ..spec("j")
            },
            R::InvalidPartition,
        ),
        (
            asking(|a| a.memory = MemoryAsk::PerNode(99_999_999)),
            R::NodeConfigUnavailable,
        ),
        (
            asking(|a| a.memory = MemoryAsk::PerCpu(2001)),
            R::NodeConfigUnavailable,
        ),
        (
            asking(|a| a.constraint = Some("nosuch".into())),
            R::InvalidFeature,
        ),
        (
            asking(|a| a.constraint = Some("(a&b".into())),
            R::InvalidFeature,
        ),
        (
            asking(|a| a.prefer = Some("nosuch".into())),
            R::InvalidFeature,
        ),
        (
            asking(|a| {
                a.gres = vec![GresAsk {
                    name: "gpu".into(),
                    kind: None,
                    count: 1,
                }]
            }),
            R::InvalidGres,
        ),
        (
            asking(|a| a.nodelist = Some("nosuchnode".into())),
            R::InvalidNode,
        ),
        (
            asking(|a| a.exclude = Some("n[1-9]".into())),
            R::InvalidNode,
        ),
        (
            asking(|a| {
                a.nodelist = Some("n[1-2]".into());
                a.exclude = Some("n2".into());
            }),
            R::InvalidNode,
        ),
        // The largest node has 8 CPUs, all together have 16.
        (
            asking(|a| a.cpus_per_task = Some(9)),
            R::NodeConfigUnavailable,
        ),
        (
            asking(|a| {
                a.ntasks_per_node = Some(3);
                a.cpus_per_task = Some(3);
            }),
            R::NodeConfigUnavailable,
        ),
        (
            asking(|a| a.min_cpus_per_node = Some(9)),
            R::NodeConfigUnavailable,
        ),
        (
            asking(|a| (a.ntasks, a.max_nodes) = (Some(9), Some(1))),
            R::NodeConfigUnavailable,
        ),
        (
            asking(|a| (a.ntasks, a.exclude) = (Some(9), Some("n3".into()))),
            R::NodeConfigUnavailable,
        ),
        (
            asking(|a| (a.min_nodes, a.exclude) = (2, Some("n[1-2]".into()))),
            R::NodeConfigUnavailable,
        ),
        (
            asking(|a| a.sockets_per_node = Some(64)),
            R::NodeConfigUnavailable,
        ),
        (
            asking(|a| a.tmp_disk_mib = 1 << 40),
            R::NodeConfigUnavailable,
        ),
        (asking(|a| a.min_nodes = 0), R::InvalidNodeCount),
        (asking(|a| a.max_nodes = Some(0)), R::InvalidNodeCount),
        (asking(|a| a.ntasks = Some(0)), R::InvalidTaskCount),
        (
            JobSpec {
                array: array(0, 1_000_001, None),
                ..spec("j")
            },
            R::ArrayTooLarge,
        ),
        (
            JobSpec {
                array: Some(ArraySpec {
                    indices: Default::default(),
                    throttle: None,
                }),
                ..spec("j")
            },
            R::InvalidArray,
        ),
        (
            JobSpec {
                reservation: Some("r".into()),
                ..spec("j")
            },
            R::InvalidReservation,
        ),
        (
            JobSpec {
                licenses: Some("matlab".into()),
                ..spec("j")
            },
            R::InvalidLicense,
        ),
        (
            JobSpec {
                nice: -1,
                ..spec("j")
            },
            R::AccessDenied,
        ),
        (
            JobSpec {
                priority: Some(u32::MAX),
                ..spec("j")
            },
            R::AccessDenied,
        ),
        (
            JobSpec {
                name: "x".repeat(2000),
                ..spec("j")
            },
            R::TooLong,
        ),
        (
            JobSpec {
                script: None,
                ..spec("j")
            },
            R::InvalidValue,
        ),
        (
            JobSpec {
                deadline: Some(world.now.plus_s(30)),
                time_min: Some(TimeLimit::Minutes(1)),
                ..spec("j")
            },
            R::InvalidTimeMin,
        ),
        (
            JobSpec {
                deadline: Some(world.now),
                time_min: Some(TimeLimit::Minutes(1)),
                ..spec("j")
            },
            R::InvalidTimeLimit,
        ),
        (
            JobSpec {
                time_min: Some(TimeLimit::Minutes(9)),
                time_limit: Some(TimeLimit::Minutes(1)),
                ..spec("j")
            },
            R::InvalidTimeMin,
        ),
    ];
    for (job, code) in cases {
        let text = format!("{job:?}");
        assert_eq!(world.refusal(job), code, "{text}");
    }
    assert!(world.state.jobs.is_empty());
}

#[test]
fn a_range_of_tasks_is_checked_and_gives_way_to_another_number() {
    let ranged = |tasks, first, last| {
        asking(|ask| {
            let mut range = TaskRange::default();
            range.counts.insert_range(first, last);
            (ask.ntasks, ask.task_range) = (Some(tasks), Some(Box::new(range)));
        })
    };
    let mut world = World::new();
    for spec in [ranged(2, 3, 4), ranged(1, 1, u32::MAX), ranged(0, 0, 4)] {
        assert_eq!(world.refusal(spec), RefusalCode::InvalidTaskCount);
    }
    let id = world.submit(ranged(2, 2, 4));
    // What a plan has is checked: five tasks are none of the numbers.
    for (cpus, starts) in [(5, 0), (1, 0), (4, 1)] {
        let alloc = world.alloc(id, &[0], cpus);
        assert_eq!(world.plan(vec![PlannedStart { job: id, alloc }]), starts);
    }
    let id = world.submit(ranged(2, 2, 4));
    let mut ask = world.job(id).spec.ask.clone();
    ask.ntasks = Some(3);
    let update = JobUpdate {
        ask: Some(ask),
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
    let ask = &world.job(id).spec.ask;
    assert_eq!((ask.ntasks, &ask.task_range), (Some(3), &None));
}

#[test]
fn too_many_nodes_or_cpus_wait_unless_limits_are_enforced() {
    let too_many = || asking(|a| a.min_nodes = 99);
    let mut world = World::new();
    let id = world.submit(too_many());
    assert_eq!(world.job(id).reason, Reason::PartitionConfig);
    // No node has room for one of its tasks.
    let many_cpus = asking(|a| a.cpus_per_task = Some(4096));
    assert_eq!(world.refusal(many_cpus), RefusalCode::NodeConfigUnavailable);
    let long = |partitions: &[&str]| JobSpec {
        partitions: partitions.iter().map(|p| (*p).to_owned()).collect(),
        time_limit: Some(TimeLimit::Minutes(1000)),
        ..spec("j")
    };
    let id = world.submit(long(&["short"]));
    assert_eq!(world.job(id).reason, Reason::PartitionTimeLimit);
    let both = world.submit(long(&["short", "batch"]));
    assert_eq!(
        world.job(both).reason,
        Reason::None,
        "one of its partitions takes it"
    );

    for (enforce, one_is_enough) in [
        (EnforcePartLimits::Any, true),
        (EnforcePartLimits::All, false),
    ] {
        let mut world = World::with(ClusterConfig {
            enforce_part_limits: enforce,
            ..config()
        });
        assert_eq!(world.refusal(too_many()), RefusalCode::TooManyCpus);
        assert_eq!(
            world.refusal(long(&["short"])),
            RefusalCode::InvalidTimeLimit
        );
        let both = world.try_submit(1000, long(&["short", "batch"]));
        assert_eq!(both.is_ok(), one_is_enough, "{enforce:?}");
    }
}

#[test]
fn memory_over_a_partitions_limit_waits_unless_limits_are_enforced() {
    let asks = |partitions: &[&str]| JobSpec {
        partitions: partitions.iter().map(|p| (*p).to_owned()).collect(),
        ..asking(|ask| ask.memory = MemoryAsk::PerNode(200))
    };
    for (enforce, small, both) in [
        (EnforcePartLimits::No, true, true),
        (EnforcePartLimits::Any, false, true),
        (EnforcePartLimits::All, false, false),
    ] {
        let mut config = ClusterConfig {
            enforce_part_limits: enforce,
            ..config()
        };
        let short = config.partitions.iter_mut().find(|p| p.name == "short");
        short.expect("it is there").max_memory = MemoryAsk::PerNode(100);
        let mut world = World::with(config);
        for (partitions, taken) in [(&["short"][..], small), (&["short", "batch"], both)] {
            let answer = world.try_submit(1000, asks(partitions));
            let wanted = match taken {
                true => None,
                false => Some(RefusalCode::InvalidMemory),
            };
            assert_eq!(
                answer.err().map(|why| why.code),
                wanted,
                "{enforce:?} {partitions:?}"
            );
        }
    }
}

#[test]
fn what_is_to_start_at_once_must_not_wait_for_anything() {
    let mut world = World::new();
    let other = world.submit(spec("other"));
    let at_once = || JobSpec {
        immediate_s: Some(1),
        ..spec("j")
    };
    let cases = [
        (true, at_once()),
        (
            false,
            JobSpec {
                hold: true,
                ..at_once()
            },
        ),
        (
            false,
            JobSpec {
                begin: Some(world.now.plus_s(60)),
                ..at_once()
            },
        ),
        (
            false,
            JobSpec {
                dependency: after(vec![on(DependencyKind::AfterAny, other)]),
                ..at_once()
            },
        ),
    ];
    for (may, spec) in cases {
        let job = prospective_job(&world.state, &user(1000), &spec, world.now).expect("it is fine");
        let refusal = check_immediate(&world.state, &job, world.now)
            .err()
            .map(|why| why.code);
        assert_eq!(refusal, (!may).then_some(RefusalCode::InvalidDependency));
    }
}

#[test]
fn partitions_choose_who_may_use_them() {
    use RefusalCode as R;
    type Change = fn(&mut PartitionConfig);
    let cases: Vec<(Change, u32, Option<R>)> = vec![
        (
            |p| p.state = PartitionState::Drain,
            1000,
            Some(R::PartitionNotAvailable),
        ),
        (
            |p| p.state = PartitionState::Inactive,
            0,
            Some(R::PartitionNotAvailable),
        ),
        (|p| p.state = PartitionState::Down, 1000, None),
        (|p| p.root_only = true, 1000, Some(R::AccessDenied)),
        (|p| p.root_only = true, 0, None),
        (|p| p.disable_root_jobs = true, 0, Some(R::RootDisabled)),
        (
            |p| p.allow_groups = vec!["chem".into()],
            1000,
            Some(R::PartitionAccess),
        ),
        (|p| p.allow_groups = vec!["u1000".into()], 1000, None),
        (
            // It waits, as EnforcePartLimits is NO.
            |p| p.allow_accounts = vec!["physics".into()],
            1000,
            None,
        ),
        (|p| p.deny_accounts = vec!["physics".into()], 1000, None),
        (|p| p.allow_qos = vec!["high".into()], 1000, None),
        (|p| p.req_resv = true, 1000, Some(R::InvalidReservation)),
        (|p| p.max_memory = MemoryAsk::PerCpu(5), 1000, None),
        (|p| p.default = false, 1000, Some(R::InvalidPartition)),
    ];
    for (at, (change, uid, expected)) in cases.into_iter().enumerate() {
        let mut config = config();
        change(&mut config.partitions[0]);
        let mut world = World::with(config);
        let got = world.try_submit(uid, spec("j")).err().map(|r| r.code);
        assert_eq!(got, expected, "case {at}");
    }
}

#[test]
fn held_jobs_and_later_begins_say_so() {
    let mut world = World::new();
    let held = world.submit(JobSpec {
        hold: true,
        ..spec("j")
    });
    assert_eq!(
        world.state_of(held),
        (JobState::Pending, Reason::JobHeldUser)
    );
    assert_eq!(world.job(held).priority, 0);
    assert_eq!(world.job(held).eligible_time, None);
    let later = world.submit(JobSpec {
        begin: Some(world.now.plus_s(60)),
        ..spec("j")
    });
    assert_eq!(world.job(later).reason, Reason::BeginTime);
    assert!(!world.start(later, &[0]), "not yet");
    assert_eq!(world.state.next_tick(world.now), Some(world.now.plus_s(60)));
    world.pass(60);
    assert_eq!(world.job(later).reason, Reason::None);
    assert_eq!(world.job(later).eligible_time, Some(world.now));
    assert!(world.start(later, &[0]));
}

#[test]
fn nodes_named_count_and_gres_must_exist() {
    let mut config = config();
    config.nodes[2].gres = vec![GresConfig {
        name: "gpu".into(),
        kind: Some("a100".into()),
        count: 4,
        files: Vec::new(),
        near: Vec::new(),
        ..GresConfig::default()
    }];
    config.nodes[0].features = vec!["ib".into(), "avx".into()];
    let mut world = World::with(config);
    let id = world.submit(asking(|a| a.nodelist = Some("n[1-2]".into())));
    assert_eq!(world.job(id).spec.ask.min_nodes, 2);
    let outside = JobSpec {
        partitions: vec!["short".into()],
        ..asking(|a| a.nodelist = Some("n3".into()))
    };
    assert_eq!(world.refusal(outside), RefusalCode::NodeConfigUnavailable);
    let gpus = |n, kind: Option<&str>| {
        asking(|a| {
            a.gres = vec![GresAsk {
                name: "gpu".into(),
                kind: kind.map(Into::into),
                count: n,
            }]
        })
    };
    world.submit(gpus(4, None));
    world.submit(gpus(1, Some("a100")));
    assert_eq!(
        world.refusal(gpus(5, None)),
        RefusalCode::NodeConfigUnavailable
    );
    assert_eq!(
        world.refusal(gpus(1, Some("h100"))),
        RefusalCode::NodeConfigUnavailable
    );
    world.submit(asking(|a| {
        a.constraint = Some("[ib*2&avx*1] | (ib & avx)".into())
    }));
    for wrong in [
        "!ib",
        "ib&",
        "|ib",
        "ib&&avx",
        "ib*",
        "ib*0",
        "ib*x",
        "()",
        "(ib|)&avx",
        "ib,",
    ] {
        let refusal = world.refusal(asking(|a| a.constraint = Some(wrong.into())));
        assert_eq!(refusal, RefusalCode::InvalidFeature, "{wrong}");
    }
}

#[test]
fn memory_has_a_most() {
    let mut config = config();
    config.enforce_part_limits = EnforcePartLimits::Any;
    config.partitions[0].max_memory = MemoryAsk::PerNode(100);
    let mut world = World::with(config);
    world.submit(asking(|a| a.memory = MemoryAsk::PerNode(100)));
    let over = asking(|a| a.memory = MemoryAsk::PerNode(101));
    assert_eq!(world.refusal(over), RefusalCode::InvalidMemory);
    let over = asking(|a| {
        a.memory = MemoryAsk::PerCpu(51);
        a.cpus_per_task = Some(2);
    });
    assert_eq!(world.refusal(over), RefusalCode::InvalidMemory);
    // One node has all of its tasks.
    let over = asking(|a| {
        a.memory = MemoryAsk::PerCpu(51);
        (a.ntasks, a.max_nodes) = (Some(2), Some(1));
    });
    assert_eq!(world.refusal(over), RefusalCode::InvalidMemory);
}

#[test]
fn more_memory_than_a_cpu_may_have_brings_more_cpus() {
    let mut config = config();
    config.partitions[0].max_memory = MemoryAsk::PerCpu(100);
    let mut world = World::with(config);
    let id = world.submit(asking(|a| a.memory = MemoryAsk::PerCpu(150)));
    let ask = &world.state.jobs[&id].spec.ask;
    assert_eq!(ask.memory, MemoryAsk::PerCpu(75));
    assert_eq!(ask.cpus_per_task, Some(2));
    let id = world.submit(asking(|a| a.memory = MemoryAsk::PerNode(250)));
    let ask = &world.state.jobs[&id].spec.ask;
    assert_eq!(ask.memory, MemoryAsk::PerNode(250));
    assert_eq!(ask.min_cpus_per_node, Some(3));
}

#[test]
fn the_queue_has_an_end() {
    let mut world = World::with(ClusterConfig {
        max_job_count: 2,
        ..config()
    });
    world.submit(spec("a"));
    world.submit(spec("b"));
    assert_eq!(world.refusal(spec("c")), RefusalCode::TooManyJobs);
}

#[test]
fn scripts_are_stored_once_and_leave_with_their_last_job() {
    let mut world = World::new();
    let a = world.submit(spec("a"));
    let b = world.submit(spec("b"));
    assert_eq!(world.state.blobs.len(), 1);
    assert_eq!(world.state.blobs.values().next().map(|b| b.users), Some(2));
    for id in [a, b] {
        world.cancel(1000, crate::world::target(id));
    }
    world.pass(301);
    assert!(world.state.jobs.is_empty() && world.state.blobs.is_empty());
    world.check_replay();
}

#[test]
fn a_dry_run_makes_the_same_job_and_changes_nothing() {
    let mut world = World::new();
    let reply = world.run(muster_model::command::Command::User(
        user(1000),
        UserCommand::Submit {
            spec: Box::new(spec("j")),
            blobs: vec![(crate::world::SCRIPT, b"#!/bin/sh\n".to_vec().into())],
            test_only: true,
        },
    ));
    assert!(reply.reply.is_none() && reply.events.is_empty());
    let job = prospective_job(&world.state, &user(1000), &spec("j"), world.now).expect("valid");
    let id = world.submit(spec("j"));
    assert_eq!(job, *world.job(id));
}

#[test]
fn without_a_configuration_nothing_is_accepted() {
    let state = muster_core::state::State::default();
    let command = muster_model::command::Command::User(
        user(0),
        UserCommand::Submit {
            spec: Box::new(spec("j")),
            blobs: vec![(crate::world::SCRIPT, Vec::new().into())],
            test_only: false,
        },
    );
    let decision = muster_core::decide::decide(&state, &command, Default::default());
    assert!(matches!(decision.reply, Some(Reply::Refused(r)) if r.code == RefusalCode::Busy));
}

#[test]
fn jobs_that_one_purge_leaves_are_due_at_once() {
    let mut world = World::new();
    // Thousands of records, each checked after each event, would take minutes.
    world.checked = false;
    for _ in 0..PURGE_MAX + 5 {
        let id = world.submit(spec("j"));
        world.cancel(1000, target(id));
    }
    assert!(!world.state.purge_is_due(world.now));
    world.pass(301);
    assert_eq!(world.state.jobs.len(), 5);
    assert!(world.state.purge_is_due(world.now));
    world.tick();
    assert!(world.state.jobs.is_empty() && !world.state.purge_is_due(world.now));
}

/// Two GPUs, two CPUs next to each, of eight that the node has.
#[test]
fn more_cpus_than_are_next_to_devices_are_refused() {
    let mut cluster = config();
    let node = cluster.nodes.iter_mut().max_by_key(|n| n.cpus).unwrap();
    assert_eq!(node.cpus, 8);
    let beside = |cpus: [u32; 2]| cpus.into_iter().collect::<CpuSet>();
    node.gres = vec![GresConfig {
        name: "gpu".into(),
        count: 2,
        near: vec![beside([0, 1]), beside([4, 5])],
        ..GresConfig::default()
    }];
    let job = |gpus: u64, binding: DeviceBinding, of_task: u32| {
        let gpu = GresAsk {
            name: "gpu".into(),
            kind: None,
            count: gpus,
        };
        asking(|a| {
            a.gres = vec![gpu.clone()];
            (a.cpus_per_task, a.max_nodes) = (Some(of_task), Some(1));
            let devices = DeviceAsk {
                binding,
                ..DeviceAsk::default()
            };
            a.devices = Some(devices.into());
        })
    };
    let mut world = World::with(cluster.clone());
    world.submit(job(1, DeviceBinding::Enforced, 2));
    world.submit(job(2, DeviceBinding::Enforced, 4));
    world.submit(job(1, DeviceBinding::Preferred, 8));
    let refused = |world: &mut World, spec: JobSpec| {
        assert_eq!(world.refusal(spec), RefusalCode::NodeConfigUnavailable);
    };
    refused(&mut world, job(1, DeviceBinding::Enforced, 3));
    refused(&mut world, job(2, DeviceBinding::Enforced, 5));
    // The site may enforce it for all that do not say otherwise.
    cluster.select_parameters = vec!["ENFORCE_BINDING_GRES".into()];
    let mut world = World::with(cluster);
    world.submit(job(1, DeviceBinding::Disabled, 3));
    refused(&mut world, job(1, DeviceBinding::Preferred, 3));
}

/// The wait for few switches that is kept, and shown, is that which is waited.
#[test]
fn the_wait_for_switches_is_within_that_of_the_site() {
    let mut cluster = config();
    cluster.scheduler_parameters = vec!["max_switch_wait=120".into()];
    for (cluster, asked, kept) in [
        (config(), None, 300),
        (config(), Some(7200), 300),
        (config(), Some(0), 0),
        (cluster.clone(), Some(7200), 120),
        (cluster, Some(60), 60),
    ] {
        let mut world = World::with(cluster);
        let asks = |wait_s| SwitchAsk { count: 1, wait_s };
        let job = world.submit(asking(|a| a.switches = Some(asks(asked))));
        let switches = world.job(job).spec.ask.switches;
        assert_eq!(switches, Some(asks(Some(kept))));
    }
}

/// As Slurm 22.05 has it: the default of a partition comes first, then `MaxWall` of the QOS, then of the association.
#[test]
fn a_job_without_a_limit_gets_that_of_its_qos() {
    let limits = |key: &str, value: &str| vec![LimitAsk::new(key, value)];
    let mut config = config();
    config.order.enforce_limits = true;
    let mut timed = partition("timed", &["n1"], false);
    timed.default_time = Some(TimeLimit::Minutes(60));
    config.partitions.push(timed);
    let mut w = World::with(config);
    let terms = TermsAsk {
        limits: limits("maxwall", "20"),
        ..TermsAsk::default()
    };
    w.must(0, edit(&["a"], account("")));
    w.must(0, edit(&["u1000"], users("a", terms)));
    let limit = |w: &mut World, partition: &str| {
        let id = w.submit(JobSpec {
            partitions: vec![partition.into()],
            time_limit: None,
            ..spec("x")
        });
        w.job(id).time_limit
    };
    assert_eq!(limit(&mut w, "short"), TimeLimit::Minutes(20));
    let qos = |value| {
        AccountsAsk::ModifyQos(QosAsk {
            limits: limits("maxwall", value),
            ..QosAsk::default()
        })
    };
    w.must(0, edit(&["normal"], qos("25")));
    assert_eq!(limit(&mut w, "short"), TimeLimit::Minutes(25));
    w.must(0, edit(&["normal"], qos("40")));
    assert_eq!(limit(&mut w, "short"), TimeLimit::Minutes(30));
    assert_eq!(limit(&mut w, "batch"), TimeLimit::Minutes(40));
    assert_eq!(limit(&mut w, "timed"), TimeLimit::Minutes(60));
}
