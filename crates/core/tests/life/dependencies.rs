//! Dependencies between jobs, arrays and tasks.

use crate::world::{World, after, array, config, on, spec, target, task, user};
use muster_core::decide::Decision;
use muster_core::event::Event;
use muster_model::command::{Command, JobSelection, JobTarget, JobUpdate, UserCommand};
use muster_model::config::ClusterConfig;
use muster_model::ids::JobId;
use muster_model::job::{JobState, Reason};
use muster_model::refusal::RefusalCode;
use muster_model::spec::{Dependency, DependencyKind as Kind, DependencyTerm, JobSpec};

fn waits(kind: Kind, job: JobId) -> JobSpec {
    JobSpec {
        dependency: after(vec![on(kind, job)]),
        ..spec("dep")
    }
}

fn reason(world: &World, id: JobId) -> Reason {
    world.job(id).reason
}

#[test]
fn each_kind_looks_at_the_exit() {
    use Reason::{DependencyNeverSatisfied as Never, None as Free};
    let cases = [
        (Kind::AfterAny, 0, Free),
        (Kind::AfterAny, 1, Free),
        (Kind::AfterOk, 0, Free),
        (Kind::AfterOk, 1, Never),
        (Kind::AfterNotOk, 0, Never),
        (Kind::AfterNotOk, 1, Free),
        (Kind::AfterCorr, 0, Free),
        (Kind::AfterCorr, 1, Never),
    ];
    for (kind, code, expected) in cases {
        let mut world = World::new();
        let first = world.submit(spec("a"));
        let early = world.submit(waits(kind, first));
        assert_eq!(reason(&world, early), Reason::Dependency, "{kind:?}");
        assert!(!world.start(early, &[0]));
        world.start(first, &[0]);
        world.end_batch(first, code);
        assert_eq!(
            reason(&world, early),
            Reason::Dependency,
            "its nodes are not clean yet"
        );
        world.release(first);
        assert_eq!(reason(&world, early), expected, "{kind:?} after {code}");
        let late = world.submit(waits(kind, first));
        assert_eq!(
            reason(&world, late),
            expected,
            "{kind:?} after {code}, submitted late"
        );
        assert_eq!(world.start(early, &[0]), expected == Free);
        world.check_replay();
    }
}

#[test]
fn after_looks_at_the_start_and_can_wait_on() {
    let mut world = World::new();
    let first = world.submit(spec("a"));
    let soon = world.submit(waits(Kind::After, first));
    let delayed = |minutes| JobSpec {
        dependency: after(vec![DependencyTerm::Job {
            kind: Kind::After,
            job: first,
            task: None,
            delay_minutes: minutes,
        }]),
        ..spec("dep")
    };
    let later = world.submit(delayed(5));
    world.start(first, &[0]);
    assert_eq!(reason(&world, soon), Reason::None);
    assert_eq!(reason(&world, later), Reason::BeginTime);
    world.pass(100);
    let too = world.submit(delayed(5));
    assert_eq!(reason(&world, too), Reason::BeginTime);
    world.pass(199);
    assert_eq!(reason(&world, too), Reason::BeginTime);
    world.pass(1);
    assert_eq!(
        (reason(&world, later), reason(&world, too)),
        (Reason::None, Reason::None)
    );
    let cancelled = world.submit(spec("b"));
    let waits = world.submit(waits(Kind::After, cancelled));
    world.cancel(1000, target(cancelled));
    assert_eq!(
        reason(&world, waits),
        Reason::None,
        "cancelled counts as started"
    );
    world.check_replay();
}

#[test]
fn a_job_that_never_was_is_no_obstacle() {
    let mut world = World::new();
    for kind in [
        Kind::After,
        Kind::AfterAny,
        Kind::AfterOk,
        Kind::AfterNotOk,
        Kind::AfterCorr,
    ] {
        let id = world.submit(waits(kind, JobId(99_999_999)));
        assert_eq!(reason(&world, id), Reason::None);
    }
}

#[test]
fn all_or_any() {
    let mut world = World::new();
    let (a, b) = (world.submit(spec("a")), world.submit(spec("b")));
    let terms = vec![on(Kind::AfterOk, a), on(Kind::AfterOk, b)];
    let all = world.submit(JobSpec {
        dependency: after(terms.clone()),
        ..spec("all")
    });
    let any = world.submit(JobSpec {
        dependency: Dependency { terms, any: true },
        ..spec("any")
    });
    world.start(a, &[0]);
    world.finish(a, 1);
    assert_eq!(reason(&world, all), Reason::DependencyNeverSatisfied);
    assert_eq!(
        reason(&world, any),
        Reason::Dependency,
        "the other may still do"
    );
    world.start(b, &[0]);
    world.finish(b, 0);
    assert_eq!(reason(&world, any), Reason::None);
    assert_eq!(
        reason(&world, all),
        Reason::DependencyNeverSatisfied,
        "for good"
    );
}

#[test]
fn hopeless_jobs_are_cancelled_on_wish_and_take_theirs_along() {
    let mut world = World::new();
    let first = world.submit(spec("a"));
    let kill = |on| JobSpec {
        kill_on_invalid_dep: Some(true),
        ..waits(Kind::AfterOk, on)
    };
    let second = world.submit(kill(first));
    let third = world.submit(kill(second));
    let any = world.submit(waits(Kind::AfterAny, third));
    let patient = world.submit(waits(Kind::AfterOk, second));
    world.cancel(1000, target(first));
    for id in [second, third] {
        assert_eq!(
            world.state_of(id),
            (JobState::Cancelled, Reason::DependencyNeverSatisfied)
        );
    }
    assert_eq!(reason(&world, any), Reason::None);
    assert_eq!(
        world.state_of(patient),
        (JobState::Pending, Reason::DependencyNeverSatisfied)
    );
    let late = world.submit(kill(first));
    assert_eq!(world.job(late).state, JobState::Cancelled);
    let mut world = World::with(ClusterConfig {
        kill_invalid_depend: true,
        ..config()
    });
    let first = world.submit(spec("a"));
    let second = world.submit(waits(Kind::AfterOk, first));
    world.cancel(1000, target(first));
    assert_eq!(world.job(second).state, JobState::Cancelled);
}

#[test]
fn a_hold_does_not_hide_that_a_dependency_failed() {
    let mut world = World::new();
    let first = world.submit(spec("a"));
    let second = world.submit(waits(Kind::AfterOk, first));
    world.must(
        1000,
        UserCommand::Hold {
            target: target(second),
            user: true,
        },
    );
    assert_eq!(reason(&world, second), Reason::JobHeldUser);
    world.cancel(1000, target(first));
    world.must(
        1000,
        UserCommand::Release {
            target: target(second),
        },
    );
    assert_eq!(reason(&world, second), Reason::DependencyNeverSatisfied);
}

#[test]
fn singleton_runs_one_at_a_time_in_order() {
    let mut world = World::new();
    let single = || JobSpec {
        dependency: after(vec![DependencyTerm::Singleton]),
        ..spec("s")
    };
    let ids: Vec<JobId> = (0..3).map(|_| world.submit(single())).collect();
    let other_user = world.try_submit(7, single()).expect("accepted");
    let other_name = world.submit(JobSpec {
        name: "t".into(),
        ..single()
    });
    assert_eq!(
        ids.iter()
            .chain([&other_user, &other_name])
            .map(|id| reason(&world, *id))
            .collect::<Vec<_>>(),
        [
            Reason::None,
            Reason::Dependency,
            Reason::Dependency,
            Reason::None,
            Reason::None
        ]
    );
    world.cancel(1000, target(ids[1]));
    assert_eq!(reason(&world, ids[2]), Reason::Dependency);
    world.start(ids[0], &[0]);
    world.finish(ids[0], 1);
    assert_eq!(reason(&world, ids[2]), Reason::None);
    world.check_replay();
}

#[test]
fn an_array_is_waited_for_as_a_whole() {
    let mut world = World::new();
    let base = world.submit(JobSpec {
        array: array(0, 2, None),
        ..spec("a")
    });
    let ok = world.submit(waits(Kind::AfterOk, base));
    let any = world.submit(waits(Kind::AfterAny, base));
    let not_ok = world.submit(waits(Kind::AfterNotOk, base));
    let begun = world.submit(waits(Kind::After, base));
    let of_task = world.submit(JobSpec {
        dependency: after(vec![DependencyTerm::Job {
            kind: Kind::AfterOk,
            job: base,
            task: Some(1),
            delay_minutes: 0,
        }]),
        ..spec("dep")
    });
    world.start(base, &[0]);
    world.start(base, &[1]);
    assert_eq!(reason(&world, begun), Reason::Dependency);
    world.finish(world.task_id(base, 0), 0);
    assert_eq!(reason(&world, of_task), Reason::Dependency);
    world.finish(world.task_id(base, 1), 0);
    assert_eq!(reason(&world, of_task), Reason::None);
    assert_eq!(reason(&world, ok), Reason::Dependency);
    world.start(base, &[2]);
    assert_eq!(reason(&world, begun), Reason::None);
    world.finish(world.task_id(base, 2), 1);
    assert_eq!(reason(&world, ok), Reason::DependencyNeverSatisfied);
    assert_eq!(reason(&world, any), Reason::None);
    assert_eq!(reason(&world, not_ok), Reason::None);
    world.check_replay();
}

#[test]
fn aftercorr_pairs_tasks() {
    let mut world = World::new();
    let base = world.submit(JobSpec {
        array: array(0, 3, None),
        ..spec("a")
    });
    let paired = JobSpec {
        array: array(1, 5, None),
        kill_on_invalid_dep: Some(true),
        ..waits(Kind::AfterCorr, base)
    };
    let second = world.submit(paired.clone());
    assert!(!world.start(second, &[2]));
    for index in [0, 1, 2] {
        world.start(base, &[0]);
        world.finish(world.task_id(base, index), index % 2);
    }
    // 1 failed, 2 went well, 3 has not run, 4 and 5 have no counterpart.
    assert_eq!(
        world.job(world.task_id(second, 1)).state,
        JobState::Cancelled
    );
    let fine = world.task_id(second, 2);
    assert_eq!(reason(&world, fine), Reason::None);
    assert!(world.start(fine, &[2]));
    assert_eq!(world.state.arrays[&second].pending, 3);
    let third = world.submit(paired);
    assert_eq!(
        world.state.arrays[&third].pending, 3,
        "what is decided already is split at once"
    );
    world.cancel(1000, target(base));
    for array in [second, third] {
        assert_eq!(
            world.job(world.task_id(array, 3)).state,
            JobState::Cancelled
        );
        assert_eq!(reason(&world, array), Reason::None, "4 and 5 are free");
    }
    world.check_replay();
}

#[test]
fn aftercorr_looks_at_each_task_of_an_array_that_is_over() {
    let mut world = World::new();
    let base = world.submit(JobSpec {
        array: array(1, 4, None),
        ..spec("a")
    });
    for (index, exit) in [(1, 0), (2, 1), (3, 0)] {
        world.start(base, &[0]);
        world.finish(world.task_id(base, index), exit);
    }
    world.cancel(1000, target(base));
    let paired = JobSpec {
        array: array(1, 5, None),
        ..waits(Kind::AfterCorr, base)
    };
    let second = world.submit(paired);
    let other = world.submit(JobSpec {
        array: array(1, 5, None),
        ..spec("b")
    });
    let dependency = Some(after(vec![on(Kind::AfterCorr, base)]));
    let update = UserCommand::UpdateJob {
        target: target(other),
        update: Box::new(JobUpdate {
            dependency,
            ..JobUpdate::default()
        }),
    };
    world.must(1000, update);
    for array in [second, other] {
        let of = |index| reason(&world, world.task_id(array, index));
        let never = Reason::DependencyNeverSatisfied;
        assert_eq!(
            [of(1), of(2), of(3), of(4), reason(&world, array)],
            [Reason::None, never, Reason::None, never, Reason::None],
            "2 failed, 4 was cancelled, 5 has no counterpart"
        );
    }
    world.check_replay();
}

#[test]
fn a_task_of_its_own_without_a_counterpart_waits_for_the_array() {
    let mut world = World::new();
    let base = world.submit(JobSpec {
        array: array(0, 1, None),
        ..spec("a")
    });
    let second = world.submit(JobSpec {
        array: array(0, 5, None),
        ..waits(Kind::AfterCorr, base)
    });
    let (user, target) = (true, task(second, 5));
    let hold = UserCommand::Hold {
        target: target.clone(),
        user,
    };
    world.must(1000, hold);
    world.must(1000, UserCommand::Release { target });
    let apart = world.task_id(second, 5);
    assert_ne!(apart, second);
    for index in [0, 1] {
        assert_eq!(reason(&world, apart), Reason::Dependency);
        world.start(base, &[0]);
        world.finish(world.task_id(base, index), 0);
    }
    assert_eq!(reason(&world, apart), Reason::None);
    world.check_replay();
}

#[test]
fn a_cancelled_array_fails_those_who_wait_for_its_tasks() {
    let mut world = World::new();
    let base = world.submit(JobSpec {
        array: array(0, 9, None),
        ..spec("a")
    });
    let term = |task| DependencyTerm::Job {
        kind: Kind::AfterOk,
        job: base,
        task: Some(task),
        delay_minutes: 0,
    };
    let of_task = world.submit(JobSpec {
        dependency: after(vec![term(7)]),
        ..spec("dep")
    });
    let of_none = world.submit(JobSpec {
        dependency: after(vec![term(77)]),
        ..spec("dep")
    });
    assert_eq!(reason(&world, of_none), Reason::None);
    world.cancel(1000, target(base));
    assert_eq!(reason(&world, of_task), Reason::DependencyNeverSatisfied);
}

/// A pipeline, or an attacker: many jobs, each of which waits for all tasks of an array.
#[test]
fn what_one_task_decides_is_as_short_as_what_happened() {
    let mut world = World::new();
    let base = world.submit(JobSpec {
        array: array(0, 999, None),
        ..spec("a")
    });
    let of_task = |task| DependencyTerm::Job {
        kind: Kind::AfterAny,
        job: base,
        task: Some(task),
        delay_minutes: 0,
    };
    let all: Vec<DependencyTerm> = (0..1000).map(of_task).collect();
    let waiting: Vec<JobId> = (0..20)
        .map(|_| {
            world.submit(JobSpec {
                dependency: after(all.clone()),
                ..spec("dep")
            })
        })
        .collect();
    let bytes = |decision: &Decision| {
        decision
            .events
            .iter()
            .map(Event::carried_bytes)
            .sum::<u64>()
    };
    let cancel = |jobs: JobTarget| {
        let selection = JobSelection {
            targets: vec![jobs],
            ..JobSelection::default()
        };
        Command::User(user(1000), UserCommand::Cancel { selection })
    };
    let decision = world.run(cancel(task(base, 500)));
    assert!(bytes(&decision) < 20 * 100, "{} bytes", bytes(&decision));
    for id in &waiting {
        assert_eq!(world.job(*id).waiting_on.len(), 999);
        assert!(!world.job(*id).waiting_on.contains(&of_task(500)));
    }
    world.check_replay();
    // All of them at once are one change for each job that waits.
    let decision = world.run(cancel(target(base)));
    let changes = decision
        .events
        .iter()
        .filter(|event| matches!(event, Event::JobChanged { id, .. } if waiting.contains(id)));
    assert_eq!(changes.count(), waiting.len());
    for id in waiting {
        assert_eq!(reason(&world, id), Reason::None);
    }
    world.check_replay();
}

#[test]
fn a_task_that_leaves_its_array_meanwhile_is_not_forgotten() {
    let mut world = World::new();
    let first = world.submit(JobSpec {
        array: array(0, 1, None),
        ..spec("a")
    });
    let paired = world.submit(JobSpec {
        array: array(0, 1, None),
        ..spec("b")
    });
    let never = |task| JobSpec {
        dependency: after(vec![DependencyTerm::Job {
            kind: Kind::AfterNotOk,
            job: first,
            task: Some(task),
            delay_minutes: 0,
        }]),
        kill_on_invalid_dep: Some(true),
        ..spec("c")
    };
    let (other, last) = (world.submit(never(0)), world.submit(spec("d")));
    let update = |target, dependency| UserCommand::UpdateJob {
        target,
        update: Box::new(JobUpdate {
            dependency: Some(dependency),
            ..JobUpdate::default()
        }),
    };
    let waits = after(vec![on(Kind::AfterCorr, first), on(Kind::AfterAny, last)]);
    world.must(1000, update(target(paired), waits));
    let mut waits = never(0).dependency;
    waits.terms[0] = on(Kind::AfterOk, other);
    world.must(1000, update(target(last), waits));
    let kill = ClusterConfig {
        kill_invalid_depend: true,
        ..config()
    };
    world.configure(kill, muster_model::command::KeptPartitions::default());
    // The first task ends well: so its counterpart leaves, `other` can never run, and so can `last`, for which that task waits.
    world.start(first, &[0]);
    world.finish(world.task_id(first, 0), 0);
    assert_eq!(world.job(other).state, JobState::Cancelled);
    assert_eq!(world.job(last).state, JobState::Cancelled);
    assert_eq!(reason(&world, world.task_id(paired, 0)), Reason::None);
    assert_eq!(reason(&world, paired), Reason::Dependency);
    world.check_replay();
}

#[test]
fn a_user_has_no_more_conditions_than_can_be_looked_at_in_a_moment() {
    let mut world = World::new();
    let target_job = world.submit(spec("a"));
    let many = |terms: usize, tasks: u32| JobSpec {
        dependency: after(vec![on(Kind::AfterAny, target_job); terms]),
        array: (tasks > 1).then(|| array(0, tasks - 1, None)).flatten(),
        ..spec("dep")
    };
    // Arrays count for each task, which may leave and wait on.
    assert_eq!(world.refusal(many(2000, 500)), RefusalCode::StorageFull);
    world.submit(many(5, 1000));
    let mut jobs = 0;
    while jobs < 100 && world.try_submit(1000, many(5000, 1)).is_ok() {
        jobs += 1;
    }
    assert!((10..=52).contains(&jobs), "{jobs} jobs of 5,000 conditions");
    world.submit(spec("b"));
    world.try_submit(1001, many(5000, 1)).unwrap();
    world.check_replay();
}
