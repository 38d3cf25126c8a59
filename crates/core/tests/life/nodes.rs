//! Nodes: registration, loss, faults, drains, and what they do to jobs.

use crate::world::{World, allocation, config, exit, info, spec, step_end, target};
use muster_core::event::Event;
use muster_model::binding::BindDefault;
use muster_model::command::{KeptPartitions, NodeCommand, NodeUpdate, PlannedStart, UserCommand};
use muster_model::config::ClusterConfig;
use muster_model::effect::{Effect, TerminateReason};
use muster_model::ids::{Attempt, JobAttempt, JobId, NodeIdx};
use muster_model::job::{GresShare, Hold, JobState, Reason};
use muster_model::limits::LAUNCH_FAILURES_MAX;
use muster_model::node::{GresConfig, NodeLink};
use muster_model::refusal::RefusalCode;
use muster_model::spec::JobSpec;

pub(crate) fn set(nodes: &str, state: &str, reason: Option<&str>) -> UserCommand {
    UserCommand::UpdateNodes {
        nodes: nodes.to_owned(),
        update: NodeUpdate {
            state: Some(state.to_owned()),
            reason: reason.map(str::to_owned),
            ..NodeUpdate::default()
        },
    }
}

fn no_requeue() -> JobSpec {
    JobSpec {
        requeue: Some(false),
        ..spec("j")
    }
}

pub(crate) fn launch_failed(world: &mut World, id: JobId, node: u32, node_fault: bool) {
    let attempt = world.job(id).attempt;
    let error = "chdir /nosuch: No such file or directory".to_owned();
    world.node(
        node,
        NodeCommand::LaunchFailed {
            job: id,
            attempt,
            error,
            node_fault,
            prolog: false,
            lack: false,
        },
    );
    world.node(node, NodeCommand::Released { job: id, attempt });
}

#[test]
fn a_node_that_falls_silent_goes_down_and_its_jobs_are_run_again() {
    let mut world = World::new();
    let again = world.submit(spec("j"));
    let never = world.submit(no_requeue());
    world.start(again, &[0, 1]);
    world.start(never, &[0]);
    world.node(0, NodeCommand::Lost);
    assert_eq!(world.state.nodes[0].link, NodeLink::Lost(world.now));
    assert_eq!(
        world.job(again).state,
        JobState::Running,
        "it may come back"
    );
    assert_eq!(world.state.next_tick(world.now), Some(world.now.plus_s(60)));
    world.pass(60);
    assert!(world.state.nodes[0].down);
    assert_eq!(
        world.state_of(never),
        (JobState::NodeFail, Reason::NodeDown)
    );
    assert!(
        world.job(never).is_over(),
        "a node that is down holds nothing"
    );
    assert!(world.job(again).completing, "n2 is not clean yet");
    assert_eq!(world.terminations(), [(1, again)]);
    let attempt = world.job(again).attempt;
    world.node(
        1,
        NodeCommand::Released {
            job: again,
            attempt,
        },
    );
    assert_eq!(
        (world.job(again).state, world.job(again).restarts),
        (JobState::Pending, 1)
    );
    assert!(!world.start(again, &[0]), "the node is down");
    // It returns (ReturnToService=1) with what it had, which is ended there.
    let present = [
        JobAttempt::new(again, attempt),
        JobAttempt::new(never, Attempt(1)),
    ];
    world.register(0, "boot1", &present);
    assert!(!world.state.nodes[0].down);
    let orders = world.state.orders_for_node(NodeIdx(0), &present);
    assert_eq!(orders.len(), 2);
    assert!(
        orders
            .iter()
            .all(|order| matches!(order, Effect::Terminate { .. }))
    );
    assert!(world.start(again, &[0]));
    world.check_replay();
}

#[test]
fn return_to_service_has_three_values() {
    for (value, silent_returns, admin_returns) in
        [(0, false, false), (1, true, false), (2, true, true)]
    {
        let mut world = World::with(ClusterConfig {
            return_to_service: value,
            ..config()
        });
        world.node(0, NodeCommand::Lost);
        world.pass(60);
        world.must(0, set("n2", "DOWN", Some("disk")));
        world.register(0, "boot1", &[]);
        world.register(1, "boot1", &[]);
        let down = |i: usize| world.state.nodes[i].down;
        assert_eq!(
            (down(0), down(1)),
            (!silent_returns, !admin_returns),
            "{value}"
        );
    }
}

#[test]
fn a_node_that_comes_back_in_time_keeps_its_jobs() {
    let mut world = World::new();
    let (known, lost) = (world.submit(spec("a")), world.submit(spec("b")));
    world.start(known, &[0]);
    world.node(0, NodeCommand::Lost);
    world.register(0, "boot1", &[JobAttempt::new(known, Attempt(1))]);
    assert!(
        world
            .state
            .orders_for_node(NodeIdx(0), &[JobAttempt::new(known, Attempt(1))])
            .is_empty()
    );
    world.start(lost, &[0]);
    world.register(0, "boot1", &[JobAttempt::new(known, Attempt(1))]);
    let orders = world
        .state
        .orders_for_node(NodeIdx(0), &[JobAttempt::new(known, Attempt(1))]);
    assert_eq!(
        orders,
        [Effect::Launch {
            node: NodeIdx(0),
            job: lost,
            attempt: Attempt(1)
        }],
        "the order to launch got lost"
    );
    world.cancel(0, target(known));
    world.cancel(0, target(lost));
    world.register(0, "boot1", &[JobAttempt::new(known, Attempt(1))]);
    assert!(world.job(lost).is_over(), "it never got there");
    assert!(world.job(known).completing);
    let orders = world
        .state
        .orders_for_node(NodeIdx(0), &[JobAttempt::new(known, Attempt(1))]);
    assert!(matches!(
        orders[..],
        [Effect::Terminate {
            why: TerminateReason::Cancelled,
            ..
        }]
    ));
    world.check_replay();
}

#[test]
fn a_reboot_takes_the_jobs_with_it() {
    let mut world = World::new();
    let (again, never) = (world.submit(spec("a")), world.submit(no_requeue()));
    world.start(again, &[0]);
    world.start(never, &[0]);
    world.register(0, "boot2", &[]);
    assert_eq!(world.job(again).state, JobState::Pending);
    assert_eq!(
        world.state_of(never),
        (JobState::NodeFail, Reason::NodeDown)
    );
    assert!(world.state.nodes[0].is_usable());
    assert!(world.state.orders_for_node(NodeIdx(0), &[]).is_empty());
    assert!(world.start(again, &[0]));
    world.check_replay();
}

#[test]
fn no_kill_goes_on_without_a_node_but_not_without_the_first() {
    let mut world = World::new();
    let id = world.submit(JobSpec {
        no_kill: true,
        ..spec("j")
    });
    world.start(id, &[0, 1, 2]);
    world.must(0, set("n3", "DOWN", Some("disk")));
    assert_eq!(world.job(id).state, JobState::Running);
    assert_eq!(world.job(id).nodes_held.len(), 2);
    world.must(0, set("n1", "DOWN", Some("disk")));
    assert!(world.job(id).completing);
    world.release(id);
    assert_eq!(world.job(id).state, JobState::Pending);
    world.check_replay();
}

#[test]
fn a_vanished_job_is_a_lost_one() {
    let mut world = World::new();
    let id = world.submit(no_requeue());
    world.start(id, &[0]);
    world.node(
        0,
        NodeCommand::Vanished {
            job: id,
            attempt: Attempt(9),
        },
    );
    assert_eq!(world.job(id).state, JobState::Running, "another attempt");
    world.node(
        0,
        NodeCommand::Vanished {
            job: id,
            attempt: Attempt(1),
        },
    );
    assert_eq!(world.state_of(id), (JobState::NodeFail, Reason::NodeDown));
    // Steps, and what the script has left, may still be there.
    assert!(world.job(id).completing);
    assert!(!world.job(id).nodes_held.is_empty());
    let held = world.submit(allocation("a"));
    let attempt = Attempt(1);
    world.node(0, NodeCommand::Released { job: id, attempt });
    assert!(world.job(id).is_over());
    world.start(held, &[0]);
    world.node(
        0,
        NodeCommand::Vanished {
            job: held,
            attempt: Attempt(1),
        },
    );
    assert_eq!(
        world.job(held).state,
        JobState::NodeFail,
        "nobody's terminal is requeued"
    );
}

#[test]
fn launch_failures_back_off_and_drain_the_node() {
    let mut world = World::new();
    let id = world.submit(spec("j"));
    for n in 1..=LAUNCH_FAILURES_MAX {
        assert!(world.start(id, &[0]), "attempt {n}");
        launch_failed(&mut world, id, 0, true);
        let job = world.job(id);
        assert_eq!(
            (job.state, job.reason, job.restarts),
            (JobState::Pending, Reason::LaunchBackoff, 0)
        );
        assert!(!world.start(id, &[1]), "it waits a little");
        world.pass(u64::from(n) * 10);
    }
    let node = &world.state.nodes[0];
    assert!(node.drain && !node.down);
    assert!(
        node.reason
            .as_ref()
            .is_some_and(|r| r.text.contains("chdir"))
    );
    assert!(world.start(id, &[1]));
    world.finish(id, 0);
    assert_eq!(world.job(id).attempt.0, LAUNCH_FAILURES_MAX + 1);
    world.must(0, set("n1", "RESUME", None));
    assert_eq!(world.state.nodes[0].launch_failures, 0);
    world.check_replay();
}

/// A user can use up processes, descriptors and room for as long as it takes: that drains no node.
#[test]
fn what_a_launch_lacked_is_not_the_nodes_fault() {
    let mut world = World::new();
    for n in 1..=3 * LAUNCH_FAILURES_MAX {
        let id = world.submit(spec("j"));
        assert!(world.start(id, &[0]), "job {n}");
        world.node(
            0,
            NodeCommand::LaunchFailed {
                job: id,
                attempt: Attempt(1),
                error: "Prolog: fork: Resource temporarily unavailable".to_owned(),
                node_fault: true,
                prolog: false,
                lack: true,
            },
        );
        let attempt = Attempt(1);
        world.node(0, NodeCommand::Released { job: id, attempt });
        let job = world.job(id);
        assert_eq!(
            (job.state, job.reason, job.restarts),
            (JobState::Pending, Reason::LaunchBackoff, 0)
        );
        let detail = job.reason_detail.as_deref().unwrap_or_default();
        assert!(detail.contains("Prolog: fork"), "{detail}");
    }
    let node = &world.state.nodes[0];
    assert!(!node.drain && node.launch_failures == 0 && node.is_usable());
    world.check_replay();
}

#[test]
fn a_failed_prolog_drains_the_node_and_holds_the_job() {
    let failed = |world: &mut World, id: JobId| {
        let attempt = world.job(id).attempt;
        world.node(
            0,
            NodeCommand::LaunchFailed {
                job: id,
                attempt,
                error: "Prolog /etc/prolog failed: exit status 4".to_owned(),
                node_fault: true,
                prolog: true,
                lack: false,
            },
        );
        world.node(0, NodeCommand::Released { job: id, attempt });
    };
    let mut world = World::new();
    let id = world.submit(spec("j"));
    world.start(id, &[0]);
    failed(&mut world, id);
    let node = &world.state.nodes[0];
    assert!(node.drain && node.launch_failures == 0);
    let reason = node.reason.as_ref().map(|r| r.text.as_str());
    assert_eq!(
        reason,
        Some("Prolog error: Prolog /etc/prolog failed: exit status 4")
    );
    let job = world.job(id);
    assert_eq!(
        (job.state, job.hold, job.priority, job.restarts),
        (JobState::Pending, Hold::Admin, 0, 0)
    );
    assert_eq!(job.reason, Reason::JobHeldAdmin);
    let detail = job.reason_detail.as_deref().unwrap_or_default();
    assert!(
        detail.starts_with("launch failed requeued held"),
        "{detail}"
    );
    let release = UserCommand::Release { target: target(id) };
    assert_eq!(
        world.refused(1000, release.clone()),
        RefusalCode::AccessDenied
    );
    world.must(0, release);
    assert_eq!(world.job(id).reason_detail, None);
    world.pass(3600);
    assert!(world.start(id, &[1]));
    world.check_replay();
    // An allocation cannot be started again unasked.
    let held = world.submit(allocation("a"));
    world.must(0, set("n1", "RESUME", None));
    assert!(world.start(held, &[0]));
    failed(&mut world, held);
    assert_eq!(
        world.state_of(held),
        (JobState::Failed, Reason::JobLaunchFailure)
    );
    assert!(world.state.nodes[0].drain);
    // SchedulerParameters=nohold_on_prolog_fail.
    let mut world = World::with(ClusterConfig {
        scheduler_parameters: vec!["nohold_on_prolog_fail".into()],
        ..config()
    });
    let id = world.submit(spec("j"));
    world.start(id, &[0]);
    failed(&mut world, id);
    assert_eq!(world.job(id).hold, Hold::None);
    assert!(world.state.nodes[0].drain);
}

#[test]
fn a_node_that_cannot_clean_up_is_drained() {
    let mut world = World::new();
    let id = world.submit(spec("j"));
    world.start(id, &[0]);
    let fault = |job: JobId, attempt: u32| NodeCommand::NodeFault {
        job,
        attempt: Attempt(attempt),
        error: "Epilog error: exit status 1".to_owned(),
    };
    world.node(0, fault(id, 7));
    assert!(!world.state.nodes[0].drain, "that is another attempt");
    world.node(0, fault(id, 1));
    let node = &world.state.nodes[0];
    assert!(node.drain && !node.down);
    let reason = node.reason.as_ref().map(|r| r.text.as_str());
    assert_eq!(reason, Some("Epilog error: exit status 1"));
    assert_eq!(world.job(id).state, JobState::Running, "its jobs go on");
    world.check_replay();
}

#[test]
fn a_launch_that_works_forgives_the_node() {
    let mut world = World::new();
    let id = world.submit(spec("j"));
    world.start(id, &[0]);
    launch_failed(&mut world, id, 0, true);
    world.pass(60);
    world.start(id, &[0]);
    assert_eq!(world.state.nodes[0].launch_failures, 1);
    world.finish(id, 0);
    assert_eq!(world.state.nodes[0].launch_failures, 0);
}

#[test]
fn a_launch_that_fails_by_the_jobs_own_fault_fails_the_job() {
    let mut world = World::new();
    let id = world.submit(spec("j"));
    world.start(id, &[0, 1]);
    launch_failed(&mut world, id, 0, false);
    assert_eq!(
        world.state_of(id),
        (JobState::Failed, Reason::JobLaunchFailure)
    );
    assert!(
        world
            .job(id)
            .reason_detail
            .as_ref()
            .is_some_and(|text| text.contains("chdir"))
    );
    assert_eq!(world.state.nodes[0].launch_failures, 0);
    world.release(id);
    assert!(world.job(id).is_over());
}

#[test]
fn a_smaller_machine_than_configured_is_drained() {
    let mut world = World::new();
    let config = world.state.nodes[0].config.clone();
    for (cpus, mib, text) in [
        (3, 1000, "Low socket*core*thread count"),
        (4, 999, "Low RealMemory"),
    ] {
        let mut world = world.clone();
        let mut small = info("boot1", &config);
        (small.cpus, small.memory_mib) = (cpus, mib);
        world.node(
            0,
            NodeCommand::Register {
                info: Box::new(small),
                present: Vec::new(),
            },
        );
        assert_eq!(
            world.state.nodes[0]
                .reason
                .as_ref()
                .map(|r| r.text.as_str()),
            Some(text)
        );
        assert!(world.state.nodes[0].drain);
    }
    world.register(0, "boot1", &[]);
    assert!(!world.state.nodes[0].drain);
}

#[test]
fn drain_keeps_jobs_and_takes_no_new_ones() {
    let mut world = World::new();
    let (runs, waits) = (world.submit(spec("a")), world.submit(spec("b")));
    world.start(runs, &[0]);
    assert_eq!(
        world.refused(0, set("n1", "DRAIN", None)),
        RefusalCode::InvalidNodeState
    );
    assert_eq!(
        world.refused(1000, set("n1", "DRAIN", Some("x"))),
        RefusalCode::AccessDenied
    );
    assert_eq!(
        world.refused(0, set("n[1-9]", "DRAIN", Some("x"))),
        RefusalCode::InvalidNode
    );
    assert_eq!(
        world.refused(0, set("n1", "POWER_DOWN", Some("x"))),
        RefusalCode::NotSupported
    );
    assert_eq!(
        world.refused(0, set("n1", "FUNNY", Some("x"))),
        RefusalCode::InvalidNodeState
    );
    assert_eq!(world.must(0, set("n[1-2]", "drain", Some("disk"))), 2);
    assert_eq!(world.job(runs).state, JobState::Running);
    assert!(!world.start(waits, &[0]));
    world.finish(runs, 0);
    world.must(0, set("n1", "UNDRAIN", None));
    assert!(world.start(waits, &[0]));
    world.must(0, set("n2", "FAIL", Some("x")));
    world.must(0, set("n2", "RESUME", None));
    let node = &world.state.nodes[1];
    assert!(node.is_usable() && node.reason.is_none());
    world.check_replay();
}

#[test]
fn weight_features_and_comment_are_kept_until_the_file_is_read() {
    let mut world = World::new();
    let update = NodeUpdate {
        weight: Some(7),
        features: Some(vec!["ib".into()]),
        comment: Some("hello".into()),
        reason: Some("why".into()),
        state: None,
        cpu_bind: None,
    };
    world.must(
        0,
        UserCommand::UpdateNodes {
            nodes: "ALL".into(),
            update,
        },
    );
    let node = &world.state.nodes[2];
    assert_eq!(
        (node.config.weight, node.comment.as_deref()),
        (7, Some("hello"))
    );
    assert_eq!(node.config.features, ["ib"]);
    assert!(node.is_usable());
    world.check_replay();
    // Until the file is read again, though it says what it said before.
    let config = world.state.config.as_deref().cloned().unwrap();
    let line = config.nodes[2].clone();
    world.configure(config, KeptPartitions::File);
    assert_eq!(world.state.nodes[2].config, line);
    world.check_replay();
}

#[test]
fn nodes_are_told_how_to_bind() {
    let mut world = World::new();
    let update = |word: &str| UserCommand::UpdateNodes {
        nodes: "n[1-2]".into(),
        update: NodeUpdate {
            cpu_bind: Some(word.to_owned()),
            ..NodeUpdate::default()
        },
    };
    let binds = |world: &World| {
        let nodes = world.state.nodes.iter();
        nodes.map(|n| n.config.cpu_bind).collect::<Vec<_>>()
    };
    world.must(0, update("Core"));
    let cores = Some(BindDefault::Cores);
    assert_eq!(binds(&world)[..3], [cores, cores, None]);
    assert_eq!(
        world.refused(0, update("sideways")),
        RefusalCode::InvalidValue
    );
    assert_eq!(
        world.refused(1000, update("none")),
        RefusalCode::AccessDenied
    );
    world.must(0, update("off"));
    assert_eq!(binds(&world)[..3], [None; 3]);
    world.check_replay();
}

#[test]
fn a_plan_is_checked_start_by_start() {
    let mut gpu = config();
    gpu.nodes[0].gres = vec![GresConfig {
        name: "gpu".into(),
        kind: None,
        count: 2,
        files: Vec::new(),
        near: Vec::new(),
        ..GresConfig::default()
    }];
    let mut world = World::with(gpu);
    let ids: Vec<JobId> = (0..8).map(|_| world.submit(spec("j"))).collect();
    let plan = |world: &World, id: JobId, change: &dyn Fn(&mut muster_model::job::Allocation)| {
        let mut alloc = world.alloc(id, &[0], 1);
        change(&mut alloc);
        PlannedStart { job: id, alloc }
    };
    let cpus = |from: u32, to: u32| (from..to).collect::<muster_model::cpuset::CpuSet>();
    let gpu = |id: u32| {
        vec![GresShare {
            name: "gpu".into(),
            kind: None,
            ids: [id].into_iter().collect(),
            ..GresShare::default()
        }]
    };
    let starts = vec![
        plan(&world, ids[0], &|a| a.nodes[0].gres = gpu(1)),
        plan(&world, ids[1], &|_| {}), // the same CPU
        plan(&world, ids[2], &|a| a.nodes[0].cpus = cpus(3, 5)), // a CPU that is not there
        plan(&world, ids[3], &|a| {
            a.nodes[0].cpus = cpus(1, 2);
            a.nodes[0].memory_mib = 991;
        }),
        plan(&world, ids[4], &|a| {
            a.nodes[0].cpus = cpus(1, 2);
            a.nodes[0].gres = gpu(1);
        }),
        plan(&world, ids[5], &|a| {
            a.nodes[0].cpus = cpus(1, 2);
            a.exclusive = true;
        }),
        plan(&world, ids[6], &|a| {
            a.nodes[0].cpus = cpus(1, 2);
            a.partition = "short".into();
        }),
        plan(&world, ids[7], &|a| a.nodes[0].cpus = cpus(1, 2)),
        plan(&world, ids[7], &|a| a.nodes[0].cpus = cpus(2, 3)), // it runs already
        plan(&world, ids[0], &|_| {}),
    ];
    let mut starts = starts;
    starts[9].job = JobId(99);
    assert_eq!(world.plan(starts), 2);
    let running: Vec<bool> = ids
        .iter()
        .map(|id| world.job(*id).state == JobState::Running)
        .collect();
    assert_eq!(
        running,
        [true, false, false, false, false, false, false, true]
    );
    world.check_replay();
}

#[test]
fn exclusive_nodes_are_not_shared() {
    let mut world = World::new();
    let (a, b) = (world.submit(spec("a")), world.submit(spec("b")));
    let mut alloc = world.alloc(a, &[0], 4);
    alloc.exclusive = true;
    assert_eq!(world.plan(vec![PlannedStart { job: a, alloc }]), 1);
    assert!(!world.start(b, &[0]));
    world.finish(a, 0);
    assert!(world.start(b, &[0]));
}

#[test]
fn a_new_configuration_keeps_nodes_by_name_and_jobs_running() {
    let mut world = World::new();
    let id = world.submit(spec("j"));
    world.start(id, &[1]);
    let mut next = config();
    next.nodes.remove(0);
    next.nodes
        .insert(0, crate::world::node_config("n0", 2, 500));
    next.partitions[0].nodes = vec!["n0".into(), "n2".into(), "n3".into()];
    next.partitions.truncate(1);
    next.nodes[1].cpus = 6;
    world.configure(next.clone(), KeptPartitions::File);
    let names: Vec<&str> = world
        .state
        .nodes
        .iter()
        .map(|n| n.config.name.as_str())
        .collect();
    assert_eq!(names, ["n1", "n2", "n3", "n0"]);
    assert!(world.state.nodes[0].removed && world.state.node_named("n1").is_none());
    assert_eq!(
        world.state.nodes[1].free_cpus.len(),
        5,
        "one of six is in use"
    );
    assert_eq!(world.job(id).state, JobState::Running);
    world.finish(id, 0);
    assert_eq!(world.state.nodes[1].free_cpus.len(), 6);
    world.configure(next, KeptPartitions::File);
    assert!(world.events.is_empty(), "nothing new");
    world.check_replay();
}

#[test]
fn health_is_noted_and_not_history() {
    let mut world = World::new();
    let digest = world.state.digest();
    world.node(
        0,
        NodeCommand::Health {
            load_centi: 150,
            free_mib: 42,
        },
    );
    assert!(world.events.is_empty());
    let report = world.state.nodes[0].report.as_ref().expect("registered");
    assert_eq!((report.load_centi, report.free_mib), (150, 42));
    assert_eq!(world.state.digest(), digest);
}

#[test]
fn late_words_of_a_node_change_nothing() {
    let mut world = World::new();
    let id = world.submit(spec("j"));
    world.start(id, &[0]);
    world.finish(id, 0);
    for attempt in [Attempt(0), Attempt(1), Attempt(2)] {
        world.node(0, NodeCommand::Released { job: id, attempt });
        assert!(world.events.is_empty());
        world.node(0, NodeCommand::Vanished { job: id, attempt });
        assert!(world.events.is_empty());
        let end = step_end(world.now, exit(1));
        world.node(
            0,
            NodeCommand::BatchEnded {
                job: id,
                attempt,
                exit: exit(1),
                oom: false,
                end,
            },
        );
        assert!(world.events.is_empty());
    }
    world.node(77, NodeCommand::Lost);
    world.node(0, NodeCommand::Lost);
    world.node(0, NodeCommand::Lost);
    assert!(world.events.is_empty());
    assert!(
        !world
            .history
            .iter()
            .any(|e| matches!(e, Event::JobRequeued { .. }))
    );
}

#[test]
fn a_node_without_the_newest_configuration_waits_and_keeps_other_reasons() {
    let mut world = World::new();
    let not_applied = |world: &mut World, error: Option<&str>| {
        let error = error.map(str::to_owned);
        world.node(0, NodeCommand::Configuration { error });
    };
    not_applied(&mut world, Some("no\u{1b}room"));
    let node = &world.state.nodes[0];
    let text = node.reason.as_ref().map_or("", |reason| &reason.text);
    assert!(
        node.drain && text.starts_with("Configuration not applied: no"),
        "{text}"
    );
    assert!(!text.contains('\u{1b}'));
    not_applied(&mut world, None);
    assert!(!world.state.nodes[0].drain);
    // What somebody else has drained stays so, whatever becomes of the configuration.
    world.must(
        0,
        UserCommand::UpdateNodes {
            nodes: "n1".to_owned(),
            update: NodeUpdate {
                state: Some("DRAIN".to_owned()),
                reason: Some("mine".to_owned()),
                ..NodeUpdate::default()
            },
        },
    );
    not_applied(&mut world, Some("no room"));
    not_applied(&mut world, None);
    let node = &world.state.nodes[0];
    let text = node.reason.as_ref().map_or("", |reason| &reason.text);
    assert!(node.drain && text == "mine", "{text}");
    world.check_replay();
}
