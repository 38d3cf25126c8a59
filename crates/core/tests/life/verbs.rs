//! Cancel, signal, hold, release, requeue, suspend, update, top.

use crate::world::{World, after, allocation, array, config, exit, on, spec, step, target, task};
use muster_model::command::{
    JobSelection, JobTarget, JobUpdate, NodeCommand, Reply, SignalScope, UserCommand,
};
use muster_model::config::ClusterConfig;
use muster_model::effect::Effect;
use muster_model::ids::{JobAttempt, JobId, NodeIdx, StepNo};
use muster_model::job::{Hold, JobState, Reason};
use muster_model::refusal::RefusalCode;
use muster_model::spec::{DependencyKind, JobSpec, ResourceAsk};
use muster_model::time::TimeLimit;

fn cancel(selection: JobSelection) -> UserCommand {
    UserCommand::Cancel { selection }
}

fn requeue(id: JobId) -> UserCommand {
    UserCommand::Requeue {
        target: target(id),
        hold: false,
        special_exit: false,
        incomplete: false,
    }
}

fn update(id: JobId, change: impl FnOnce(&mut JobUpdate)) -> UserCommand {
    let mut update = JobUpdate::default();
    change(&mut update);
    UserCommand::UpdateJob {
        target: target(id),
        update: Box::new(update),
    }
}

fn hold(id: JobId) -> UserCommand {
    UserCommand::Hold {
        target: target(id),
        user: false,
    }
}

fn release(id: JobId) -> UserCommand {
    UserCommand::Release { target: target(id) }
}

#[test]
fn cancel_of_a_pending_job_ends_it_at_once() {
    let mut world = World::new();
    let id = world.submit(spec("j"));
    world.cancel(1000, target(id));
    let job = world.job(id);
    assert_eq!(
        (job.state, job.completing, job.cancelled_by),
        (JobState::Cancelled, false, Some(1000))
    );
    assert_eq!(job.start_time, None);
    assert_eq!(
        world.refused(
            1000,
            cancel(JobSelection {
                targets: vec![target(id)],
                ..Default::default()
            })
        ),
        RefusalCode::AlreadyDone
    );
}

#[test]
fn cancel_of_a_running_job_cleans_its_nodes_and_keeps_the_scripts_status() {
    let mut world = World::new();
    let id = world.submit(spec("j"));
    assert!(world.start(id, &[0, 1]));
    assert_eq!(world.launches(), [(0, id), (1, id)]);
    world.cancel(0, target(id));
    assert_eq!(world.terminations(), [(0, id), (1, id)]);
    let job = world.job(id);
    assert_eq!(
        (job.state, job.completing, job.cancelled_by),
        (JobState::Cancelled, true, Some(0))
    );
    assert_eq!(job.exit.signal, 0);
    let command = NodeCommand::BatchEnded {
        job: id,
        attempt: job.attempt,
        exit: muster_model::job::ExitStatus {
            code: 0,
            signal: 15,
        },
        oom: false,
        end: crate::world::step_end(
            world.now,
            muster_model::job::ExitStatus {
                code: 0,
                signal: 15,
            },
        ),
    };
    world.node(0, command);
    assert_eq!(world.job(id).exit.signal, 15, "scontrol shows 0:15");
    assert_eq!(world.job(id).state, JobState::Cancelled);
    world.release(id);
    assert!(world.job(id).is_over());
    world.check_replay();
}

#[test]
fn others_jobs_are_refused_by_name_and_passed_over_by_filter() {
    let mut world = World::new();
    let id = world.submit(spec("j"));
    let named = JobSelection {
        targets: vec![target(id)],
        ..Default::default()
    };
    assert_eq!(world.refused(7, cancel(named)), RefusalCode::AccessDenied);
    assert_eq!(
        world.must(
            7,
            cancel(JobSelection {
                name: Some("j".into()),
                ..Default::default()
            })
        ),
        0
    );
    assert_eq!(
        world.must(
            7,
            cancel(JobSelection {
                uid: Some(1000),
                ..Default::default()
            })
        ),
        0
    );
    assert_eq!(
        world.must(
            1000,
            cancel(JobSelection {
                name: Some("j".into()),
                ..Default::default()
            })
        ),
        1
    );
}

#[test]
fn filters_narrow_down() {
    let mut world = World::new();
    let a = world.submit(spec("a"));
    let b = world.submit(JobSpec {
        partitions: vec!["short".into()],
        account: Some("x".into()),
        ..spec("b")
    });
    let c = world.try_submit(7, spec("c")).expect("accepted");
    assert!(world.start(a, &[2]));
    let check = |world: &mut World, selection: JobSelection, ids: &[JobId]| {
        let mut copy = world.clone();
        let changed = copy.must(0, cancel(selection));
        let ended: Vec<JobId> = copy
            .state
            .jobs
            .values()
            .filter(|j| j.state == JobState::Cancelled)
            .map(|j| j.id)
            .collect();
        assert_eq!(ended, ids);
        assert_eq!(changed as usize, ids.len());
    };
    check(
        &mut world,
        JobSelection {
            state: Some(JobState::Pending),
            ..Default::default()
        },
        &[b, c],
    );
    check(
        &mut world,
        JobSelection {
            state: Some(JobState::Running),
            ..Default::default()
        },
        &[a],
    );
    check(
        &mut world,
        JobSelection {
            partition: Some("short".into()),
            ..Default::default()
        },
        &[b],
    );
    check(
        &mut world,
        JobSelection {
            account: Some("x".into()),
            ..Default::default()
        },
        &[b],
    );
    check(
        &mut world,
        JobSelection {
            uid: Some(7),
            ..Default::default()
        },
        &[c],
    );
    check(
        &mut world,
        JobSelection {
            nodes: vec!["n3".into()],
            ..Default::default()
        },
        &[a],
    );
    check(
        &mut world,
        JobSelection {
            nodes: vec!["n1".into()],
            ..Default::default()
        },
        &[],
    );
    check(
        &mut world,
        JobSelection {
            only_own: true,
            ..Default::default()
        },
        &[],
    );
    check(
        &mut world,
        JobSelection {
            targets: vec![target(a), target(b)],
            state: Some(JobState::Pending),
            ..Default::default()
        },
        &[b],
    );
}

#[test]
fn unknown_jobs_are_named_in_the_answer() {
    let mut world = World::new();
    let reply = world.cancel(0, target(JobId(99)));
    let Reply::Done {
        changed: 0,
        refused,
    } = reply
    else {
        panic!("{reply:?}");
    };
    assert_eq!(refused[0].0, "99");
    assert_eq!(refused[0].1.code, RefusalCode::InvalidJobId);
    assert_eq!(
        world.refused(0, requeue(JobId(99))),
        RefusalCode::InvalidJobId
    );
    assert_eq!(world.refused(0, hold(JobId(99))), RefusalCode::InvalidJobId);
    assert_eq!(
        world.refused(0, update(JobId(99), |_| {})),
        RefusalCode::InvalidJobId
    );
}

#[test]
fn signals_go_where_they_should() {
    let mut world = World::new();
    let id = world.submit(spec("j"));
    let signal = |scope, step| UserCommand::Signal {
        selection: JobSelection {
            targets: vec![target(id)],
            step,
            ..Default::default()
        },
        signal: 12,
        scope,
    };
    assert_eq!(
        world.refused(1000, signal(SignalScope::Steps, None)),
        RefusalCode::JobPending
    );
    world.start(id, &[0, 1]);
    let attempt = world.job(id).attempt;
    let step = Box::new(step(0, world.now));
    world.node(
        0,
        NodeCommand::StepStarted {
            job: id,
            attempt,
            step,
        },
    );
    let nodes = |world: &World| -> Vec<(u32, Option<StepNo>)> {
        world
            .effects
            .iter()
            .map(|e| match e {
                Effect::Signal {
                    node,
                    step,
                    signal: 12,
                    ..
                } => (node.0, *step),
                other => panic!("{other:?}"),
            })
            .collect()
    };
    world.must(1000, signal(SignalScope::Steps, None));
    assert_eq!(nodes(&world), [(0, None), (1, None)]);
    world.must(1000, signal(SignalScope::Batch, None));
    assert_eq!(nodes(&world), [(0, None)]);
    world.must(1000, signal(SignalScope::Full, Some(StepNo(0))));
    assert_eq!(nodes(&world), [(0, Some(StepNo(0))), (1, Some(StepNo(0)))]);
    assert_eq!(
        world.refused(1000, signal(SignalScope::Full, Some(StepNo(4)))),
        RefusalCode::AlreadyDone
    );
    world.must(
        1000,
        UserCommand::Signal {
            selection: JobSelection {
                targets: vec![target(id)],
                ..Default::default()
            },
            signal: 9,
            scope: SignalScope::Steps,
        },
    );
    assert_eq!(
        world.job(id).state,
        JobState::Cancelled,
        "KILL of a whole job ends it"
    );
}

#[test]
fn hold_and_release_know_who_held() {
    let mut world = World::new();
    let id = world.submit(spec("j"));
    let priority = world.job(id).priority;
    world.must(1000, hold(id));
    assert_eq!(world.state_of(id), (JobState::Pending, Reason::JobHeldUser));
    assert!(!world.start(id, &[0]));
    world.must(1000, release(id));
    assert_eq!(
        (world.job(id).priority, world.job(id).reason),
        (priority, Reason::None)
    );
    world.must(0, hold(id));
    assert_eq!(world.job(id).reason, Reason::JobHeldAdmin);
    assert_eq!(world.refused(1000, release(id)), RefusalCode::AccessDenied);
    world.must(1000, hold(id));
    assert_eq!(
        world.job(id).hold,
        Hold::Admin,
        "an owner's hold does not soften it"
    );
    world.must(
        0,
        UserCommand::Hold {
            target: target(id),
            user: true,
        },
    );
    assert_eq!(world.job(id).reason, Reason::JobHeldUser);
    world.must(1000, release(id));
    assert!(world.start(id, &[0]));
    assert_eq!(world.refused(7, hold(id)), RefusalCode::AccessDenied);
}

#[test]
fn requeue_runs_the_job_again_under_its_number() {
    let mut world = World::new();
    let id = world.submit(spec("j"));
    assert_eq!(world.refused(1000, requeue(id)), RefusalCode::JobPending);
    world.start(id, &[0, 1]);
    world.must(1000, requeue(id));
    assert_eq!(world.terminations().len(), 2);
    assert!(world.job(id).completing);
    assert!(!world.state.pending.contains(&id));
    let submitted = world.job(id).submit_time;
    world.now = world.now.plus_s(5);
    world.end_batch(id, 143);
    world.release(id);
    let job = world.job(id);
    assert_eq!(
        (job.state, job.completing, job.restarts),
        (JobState::Pending, false, 1)
    );
    assert_eq!(
        (job.submit_time, job.eligible_time),
        (submitted, Some(world.now))
    );
    assert!(job.alloc.is_none() && job.start_time.is_none());
    assert!(world.start(id, &[0]));
    assert_eq!(world.job(id).attempt.0, 2);
    world.finish(id, 3);
    assert_eq!(
        world.state_of(id),
        (JobState::Failed, Reason::NonZeroExitCode)
    );
    world.must(
        1000,
        UserCommand::Requeue {
            target: target(id),
            hold: true,
            special_exit: true,
            incomplete: false,
        },
    );
    let job = world.job(id);
    assert_eq!(
        (job.state, job.reason, job.special_exit),
        (JobState::Pending, Reason::JobHeldUser, true)
    );
    world.must(1000, release(id));
    assert!(!world.job(id).special_exit && world.job(id).priority > 0);
    world.check_replay();
}

#[test]
fn requeue_is_for_batch_jobs_that_allow_it() {
    let mut world = World::new();
    let held = world.submit(allocation("salloc"));
    world.start(held, &[0]);
    assert_eq!(
        world.refused(1000, requeue(held)),
        RefusalCode::NotRequeuable
    );
    let never = world.submit(JobSpec {
        requeue: Some(false),
        ..spec("j")
    });
    world.start(never, &[0]);
    assert_eq!(
        world.refused(1000, requeue(never)),
        RefusalCode::NotRequeuable
    );
    // Nor do administrators; whoever may, allows it first.
    assert_eq!(world.refused(0, requeue(never)), RefusalCode::NotRequeuable);
    world.must(1000, update(never, |u| u.requeue = Some(true)));
    world.must(1000, requeue(never));
}

#[test]
fn a_requeue_on_its_way_can_be_cancelled() {
    let mut world = World::new();
    let id = world.submit(spec("j"));
    world.start(id, &[0]);
    world.must(1000, requeue(id));
    world.cancel(1000, target(id));
    world.release(id);
    assert_eq!(world.job(id).state, JobState::Cancelled);
    assert!(world.job(id).is_over());
}

#[test]
fn a_suspended_job_lends_its_cpus_and_keeps_its_time() {
    let mut world = World::new();
    let id = world.submit(JobSpec {
        time_limit: Some(TimeLimit::Minutes(10)),
        ..spec("j")
    });
    let suspend = UserCommand::Suspend { target: target(id) };
    let resume = UserCommand::Resume { target: target(id) };
    assert_eq!(world.refused(0, suspend.clone()), RefusalCode::JobPending);
    world.start(id, &[0]);
    assert_eq!(
        world.refused(1000, suspend.clone()),
        RefusalCode::AccessDenied
    );
    world.pass(60);
    world.must(0, suspend.clone());
    assert!(matches!(
        world.effects[..],
        [Effect::Signal { signal: 19, .. }]
    ));
    assert_eq!(world.refused(0, suspend), RefusalCode::JobHeld);
    world.pass(3600);
    assert_eq!(world.job(id).state, JobState::Suspended);
    assert_eq!(world.state.nodes[0].free_cpus.len(), 4);
    world.must(0, resume);
    assert!(matches!(
        world.effects[..],
        [Effect::Signal { signal: 18, .. }]
    ));
    assert_eq!(world.job(id).run_time_ms(world.now), 60_000);
    // The order may not have reached the node.
    let attempt = world.job(id).attempt;
    let orders = world
        .state
        .orders_for_node(NodeIdx(0), &[JobAttempt::new(id, attempt)]);
    assert!(matches!(orders[..], [Effect::Signal { signal: 18, .. }]));
    world.pass(539);
    assert_eq!(world.job(id).state, JobState::Running);
    world.pass(1);
    assert_eq!(world.job(id).state, JobState::Timeout);
    world.check_replay();
}

#[test]
fn updates_change_what_they_may() {
    let mut world = World::new();
    let id = world.submit(JobSpec {
        time_limit: Some(TimeLimit::Minutes(10)),
        ..spec("j")
    });
    world.must(
        1000,
        update(id, |u| u.time_limit = Some(TimeLimit::Minutes(5))),
    );
    assert_eq!(world.job(id).time_limit, TimeLimit::Minutes(5));
    // Until it starts, the owner may raise it as well.
    let raise = update(id, |u| u.time_delta_min = Some(1));
    world.must(1000, raise);
    assert_eq!(world.job(id).time_limit, TimeLimit::Minutes(6));
    assert_eq!(
        world.refused(1000, update(id, |u| u.partitions = Some(vec!["x".into()]))),
        RefusalCode::InvalidPartition
    );
    world.must(
        1000,
        update(id, |u| {
            u.partitions = Some(vec!["short".into()]);
            u.name = Some("new".into());
            u.comment = Some("c".into());
            u.nice = Some(5);
            u.shown = vec![("extra".into(), "x".into())];
        }),
    );
    let job = world.job(id);
    assert_eq!(
        (job.partition.as_str(), job.spec.name.as_str()),
        ("short", "new")
    );
    assert_eq!(job.priority, job.default_priority());
    assert_eq!(
        world.refused(1000, update(id, |u| u.nice = Some(0))),
        RefusalCode::AccessDenied
    );
    for priority in [0, 1] {
        let both = update(id, |u| (u.priority, u.nice) = (Some(priority), Some(-2)));
        let refused = world.refused(1000, both);
        assert_eq!(refused, RefusalCode::AccessDenied, "priority {priority}");
    }
    assert_eq!(
        world.refused(1000, update(id, |u| u.priority = Some(u32::MAX))),
        RefusalCode::AccessDenied
    );
    world.must(1000, update(id, |u| u.priority = Some(0)));
    assert_eq!(world.job(id).reason, Reason::JobHeldUser);
    world.must(1000, update(id, |u| u.priority = Some(100)));
    assert_eq!(
        (world.job(id).priority, world.job(id).hold),
        (100, Hold::None)
    );
    world.must(1000, update(id, |u| u.begin = Some(world.now.plus_s(100))));
    assert_eq!(world.job(id).reason, Reason::BeginTime);
    world.pass(100);
    let big = ResourceAsk {
        min_nodes: 2,
        ..ResourceAsk::default()
    };
    world.must(1000, update(id, |u| u.ask = Some(big.clone())));
    assert!(world.start(id, &[0, 1]));
    let other = ResourceAsk {
        cpus_per_task: Some(2),
        ..big
    };
    assert_eq!(
        world.refused(1000, update(id, |u| u.ask = Some(other))),
        RefusalCode::JobNotPending
    );
    world.must(
        0,
        update(id, |u| u.time_limit = Some(TimeLimit::Minutes(1))),
    );
    world.pass(60);
    assert_eq!(world.job(id).state, JobState::Timeout);
    world.release(id);
    assert_eq!(
        world.refused(0, update(id, |u| u.comment = Some("x".into()))),
        RefusalCode::AlreadyDone
    );
    world.check_replay();
}

#[test]
fn dependencies_can_be_changed_but_not_into_a_circle() {
    let mut world = World::new();
    let a = world.submit(spec("a"));
    let b = world.submit(JobSpec {
        dependency: after(vec![on(DependencyKind::AfterOk, a)]),
        ..spec("b")
    });
    let on_b =
        |u: &mut JobUpdate| u.dependency = Some(after(vec![on(DependencyKind::AfterAny, b)]));
    assert_eq!(
        world.refused(1000, update(a, on_b)),
        RefusalCode::CircularDependency
    );
    let on_a =
        |u: &mut JobUpdate| u.dependency = Some(after(vec![on(DependencyKind::AfterAny, a)]));
    assert_eq!(
        world.refused(1000, update(a, on_a)),
        RefusalCode::CircularDependency
    );
    world.must(1000, update(b, |u| u.dependency = Some(Default::default())));
    assert!(world.job(b).waiting_on.is_empty());
    world.must(1000, update(a, on_b));
    assert_eq!(world.job(a).reason, Reason::Dependency);
    world.start(b, &[0]);
    world.finish(b, 1);
    assert_eq!(world.job(a).reason, Reason::None);
}

#[test]
fn top_reorders_ones_own_jobs_only() {
    let mut config = config();
    let mut world = World::with(config.clone());
    let ids: Vec<JobId> = (0..3).map(|_| world.submit(spec("j"))).collect();
    let top = |id| UserCommand::Top { target: target(id) };
    assert_eq!(world.refused(1000, top(ids[2])), RefusalCode::AccessDenied);
    config.scheduler_parameters = vec!["enable_user_top".into()];
    let mut world = World::with(ClusterConfig { ..config });
    let other = world.try_submit(7, spec("j")).expect("accepted");
    let ids: Vec<JobId> = (0..3).map(|_| world.submit(spec("j"))).collect();
    let mut before: Vec<u32> = ids.iter().map(|id| world.job(*id).priority).collect();
    world.must(1000, top(ids[2]));
    let after: Vec<u32> = ids.iter().map(|id| world.job(*id).priority).collect();
    assert!(after[2] > after[0] && after[0] > after[1]);
    before.sort_unstable();
    let mut sorted = after;
    sorted.sort_unstable();
    assert_eq!(before, sorted);
    assert!(world.job(other).priority > world.job(ids[2]).priority);
}

#[test]
fn interactive_allocations_end_with_their_holder() {
    let mut world = World::new();
    let end = |job, code| UserCommand::EndAllocation {
        job,
        exit: exit(code),
    };
    let waits = world.submit(allocation("a"));
    world.must(1000, end(waits, 0));
    assert_eq!(world.job(waits).state, JobState::Cancelled);
    for (code, state) in [(0, JobState::Completed), (3, JobState::Failed)] {
        let id = world.submit(allocation("a"));
        world.start(id, &[0]);
        assert!(world.effects.contains(&Effect::Notify { job: id }));
        assert!(world.job(id).steps.is_empty(), "no batch step");
        assert_eq!(world.refused(7, end(id, 0)), RefusalCode::AccessDenied);
        let attempt = world.job(id).attempt;
        world.node(
            0,
            NodeCommand::StepStarted {
                job: id,
                attempt,
                step: Box::new(step(0, world.now)),
            },
        );
        let ended = crate::world::step_end(world.now, exit(2));
        world.node(
            0,
            NodeCommand::StepEnded {
                job: id,
                attempt,
                step: StepNo(0),
                end: Box::new(ended),
            },
        );
        assert_eq!(
            (world.job(id).next_step, world.job(id).derived_exit.code),
            (1, 2)
        );
        world.must(1000, end(id, code));
        world.release(id);
        assert_eq!(
            (world.job(id).state, world.job(id).exit.code),
            (state, code)
        );
        assert_eq!(world.refused(1000, end(id, 0)), RefusalCode::AlreadyDone);
    }
    let batch = world.submit(spec("j"));
    assert_eq!(
        world.refused(1000, end(batch, 0)),
        RefusalCode::JobNotRunning
    );
}

#[test]
fn requeue_of_incomplete_tasks_leaves_the_others() {
    let mut world = World::new();
    let base = world.submit(JobSpec {
        array: array(0, 2, None),
        ..spec("a")
    });
    world.start(base, &[0]);
    world.start(base, &[0]);
    world.finish(world.task_id(base, 0), 0);
    let incomplete = |id: JobId| UserCommand::Requeue {
        target: target(id),
        hold: false,
        special_exit: false,
        incomplete: true,
    };
    let reply = world.user(1000, incomplete(base));
    let Reply::Done { changed, refused } = reply else {
        panic!("{reply:?}");
    };
    let codes: Vec<RefusalCode> = refused.iter().map(|(_, r)| r.code).collect();
    assert_eq!((changed, codes), (1, vec![RefusalCode::JobPending]));
    let over = world.task_id(base, 0);
    assert_eq!(world.job(over).state, JobState::Completed);
    assert_eq!(
        world.refused(1000, incomplete(over)),
        RefusalCode::AlreadyDone
    );
    world.must(1000, requeue(over));
    assert_eq!(world.job(over).state, JobState::Pending);
}

#[test]
fn some_fields_are_for_administrators() {
    let mut world = World::new();
    let id = world.submit(spec("j"));
    let later = world.now.plus_s(7200);
    let changes: [fn(&mut JobUpdate); 3] = [
        |u| u.shown = vec![("admin-comment".into(), "x".into())],
        |u| {
            u.ask = Some(ResourceAsk {
                contiguous: true,
                ..ResourceAsk::default()
            });
        },
        |u| {
            u.ask = Some(ResourceAsk {
                tmp_disk_mib: 1,
                ..ResourceAsk::default()
            });
        },
    ];
    for change in changes {
        assert_eq!(
            world.refused(1000, update(id, change)),
            RefusalCode::AccessDenied
        );
    }
    let deadline = update(id, |u| u.deadline = Some(later));
    assert_eq!(
        world.refused(1000, deadline.clone()),
        RefusalCode::AccessDenied
    );
    world.must(0, deadline.clone());
    world.must(0, update(id, changes[0]));
    world.start(id, &[0]);
    assert_eq!(world.refused(0, deadline), RefusalCode::JobNotPending);
}

#[test]
fn one_target_may_be_a_task() {
    let mut world = World::new();
    let base = world.submit(JobSpec {
        array: array(0, 3, None),
        ..spec("a")
    });
    world.must(
        1000,
        UserCommand::Hold {
            target: task(base, 2),
            user: true,
        },
    );
    let held = world.task_id(base, 2);
    assert_eq!(world.job(held).reason, Reason::JobHeldUser);
    assert_eq!(world.job(base).reason, Reason::None);
    let all = JobTarget {
        job: base,
        tasks: None,
        component: None,
    };
    assert_eq!(world.must(1000, UserCommand::Release { target: all }), 2);
    assert_eq!(world.job(held).reason, Reason::None);
    world.check_replay();
}
