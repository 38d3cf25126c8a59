//! How much one command has the controller do, where it is about many jobs.

use crate::world::{World, after, array, config, on, spec, target, task};
use muster_core::event::{Event, JobChange};
use muster_core::state::Scale;
use muster_model::command::{JobSelection, JobTarget, JobUpdate, Reply, UserCommand};
use muster_model::ids::JobId;
use muster_model::job::Job;
use muster_model::limits::QUERY_ITEMS_MAX;
use muster_model::order_config::Multifactor;
use muster_model::refusal::RefusalCode;
use muster_model::spec::{DependencyKind, JobSpec};
use muster_model::time::TimeLimit;
use std::collections::BTreeSet;

fn update(target: JobTarget, update: JobUpdate) -> UserCommand {
    UserCommand::UpdateJob {
        target,
        update: Box::new(update),
    }
}

/// An array whose tasks have records of their own, and one specification.
fn split(world: &mut World, tasks: u32) -> JobId {
    let base = world.submit(JobSpec {
        array: array(0, tasks - 1, None),
        ..spec("a")
    });
    for index in 0..tasks {
        let time_limit = Some(TimeLimit::Minutes(5));
        let limit = JobUpdate {
            time_limit,
            ..JobUpdate::default()
        };
        world.must(0, update(task(base, index), limit));
    }
    base
}

/// A world with jobs, a split array, jobs, and the priorities that they have.
fn queue(multifactor: bool) -> (World, JobId) {
    let mut config = config();
    config.scheduler_parameters = vec!["enable_user_top".to_owned()];
    config.order.multifactor = multifactor.then(|| Multifactor {
        weight_job_size: 1000,
        ..Multifactor::default()
    });
    let mut world = World::with(config);
    world.checked = false;
    let long = |name: &str| JobSpec {
        work_dir: format!("/{}", "x".repeat(4000)),
        ..spec(name)
    };
    for _ in 0..150 {
        world.submit(long("j"));
    }
    let base = split(&mut world, 50);
    world.submit(JobSpec {
        array: array(0, 9, None),
        ..long("b")
    });
    for _ in 0..150 {
        world.submit(long("j"));
    }
    (world, base)
}

/// Each of the others was changed for each task that was put before it.
#[test]
fn putting_an_array_on_top_changes_every_other_job_once() {
    for multifactor in [false, true] {
        let (mut world, base) = queue(multifactor);
        let ranks = |world: &World| -> Vec<(i64, JobId)> {
            let scale = Scale::new(&world.state);
            let rank = |job: &Job| i64::from(world.state.priority_of(scale.as_ref(), job));
            let mut all: Vec<_> = world
                .state
                .jobs
                .values()
                .map(|j| (-rank(j), j.id))
                .collect();
            all.sort_unstable();
            all
        };
        let before = ranks(&world);
        let jobs = world.state.jobs.values();
        let tasks = jobs.filter(|job| job.submission() == base);
        let own: BTreeSet<JobId> = tasks.map(|job| job.id).collect();
        let target = target(base);
        assert_eq!(world.must(1000, UserCommand::Top { target }), 50);
        let mut changed = BTreeSet::new();
        for event in &world.events {
            let Event::JobChanged { id, .. } = event else {
                panic!("{event:?}");
            };
            assert!(changed.insert(*id), "{id} is changed again");
        }
        let after = ranks(&world);
        let (first, others) = after.split_at(50);
        assert!(first.iter().all(|(_, id)| own.contains(id)));
        assert!(first[49].0 < others[0].0, "{multifactor}: all come first");
        // Nobody else's place has changed, nor have the tasks' among each other.
        let order = |ranks: &[(i64, JobId)], of_array: bool| -> Vec<JobId> {
            let ids = ranks.iter().map(|(_, id)| *id);
            ids.filter(|id| own.contains(id) == of_array).collect()
        };
        for of_array in [false, true] {
            assert_eq!(order(&before, of_array), order(&after, of_array));
        }
        let written = |event: &&Event| {
            let Event::JobChanged { change, .. } = event else {
                return false;
            };
            matches!(change, JobChange::Spec(_))
        };
        let written = world.events.iter().filter(written).count();
        assert!(written <= 302, "{written} specifications are written");
        world.check_replay();
    }
}

/// The first task was looked at, and what came of it was taken for all that ask for the same.
#[test]
fn no_task_of_an_array_comes_to_wait_for_itself() {
    let mut world = World::new();
    let base = split(&mut world, 3);
    let second = world.task_id(base, 1);
    let waits = world.submit(JobSpec {
        dependency: after(vec![on(DependencyKind::AfterAny, second)]),
        ..spec("b")
    });
    let dependency = Some(after(vec![on(DependencyKind::AfterAny, waits)]));
    let wanted = JobUpdate {
        dependency,
        ..JobUpdate::default()
    };
    let Reply::Done { changed, refused } = world.user(1000, update(target(base), wanted)) else {
        panic!("changed");
    };
    let codes: Vec<RefusalCode> = refused.iter().map(|(_, refusal)| refusal.code).collect();
    assert_eq!((changed, codes), (2, vec![RefusalCode::CircularDependency]));
    assert!(world.job(second).waiting_on.is_empty());
    world.check_replay();
}

/// What named nothing cost as much as what named something, and did not count.
#[test]
fn targets_that_name_nothing_have_a_bound() {
    let mut world = World::new();
    let base = world.submit(JobSpec {
        array: array(0, 9, None),
        ..spec("a")
    });
    let cancel = |ranges: u32, targets: u32| {
        let none = |n: u32| JobTarget {
            tasks: Some((0..ranges).map(|i| 1000 + n + 2 * i).collect()),
            ..target(base)
        };
        UserCommand::Cancel {
            selection: JobSelection {
                targets: (0..targets).map(none).collect(),
                ..JobSelection::default()
            },
        }
    };
    let Reply::Refused(refusal) = world.user(1000, cancel(1000, 1000)) else {
        panic!("refused");
    };
    assert!(
        refusal.detail.contains("too many jobs or tasks"),
        "{refusal}"
    );
    // As many as there can be of one task each are looked at.
    let most = u32::try_from(QUERY_ITEMS_MAX).expect("a small number");
    let Reply::Done { changed: 0, .. } = world.user(1000, cancel(1, most)) else {
        panic!("looked at");
    };
}
