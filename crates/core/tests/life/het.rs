//! Heterogeneous jobs: accepted, started and ended as one.

use crate::world::{World, allocation, exit, spec, target, user};
use muster_model::command::{
    Command, JobTarget, JobUpdate, NodeCommand, PlannedStart, Reply, UserCommand,
};
use muster_model::granted::GrantedRight;
use muster_model::het::HetPlace;
use muster_model::ids::JobId;
use muster_model::job::{ExitStatus, Hold, JobState, Reason};
use muster_model::refusal::{Refusal, RefusalCode};
use muster_model::spec::JobSpec;
use muster_model::time::TimeLimit;

/// A component beside the leader.
fn beside(name: &str) -> JobSpec {
    JobSpec {
        interactive: false,
        ..allocation(name)
    }
}

impl World {
    fn try_submit_het(&mut self, specs: Vec<JobSpec>) -> Result<JobId, Refusal> {
        let script = specs[0].script;
        let blobs = script.map(|id| (id, b"#!/bin/sh\n".to_vec().into()));
        let command = UserCommand::SubmitHet {
            specs,
            blobs: blobs.into_iter().collect(),
            test_only: false,
        };
        match self.user(1000, command) {
            Reply::Submitted { id, .. } => Ok(id),
            Reply::Refused(refusal) => Err(refusal),
            other => panic!("{other:?}"),
        }
    }

    fn submit_het(&mut self, count: u32) -> [JobId; 3] {
        let mut specs = vec![spec("het")];
        specs.extend((1..count).map(|_| beside("het")));
        let id = self.try_submit_het(specs).expect("accepted");
        [id, JobId(id.0 + 1), JobId(id.0 + 2)]
    }

    /// Component `i` on node `i`.
    fn start_het(&mut self, ids: &[JobId]) -> usize {
        let starts = (ids.iter().zip(0..)).map(|(id, node)| PlannedStart {
            job: *id,
            alloc: self.alloc(*id, &[node], 1),
        });
        let starts = starts.collect();
        self.plan(starts)
    }

    fn states(&self, ids: &[JobId]) -> Vec<JobState> {
        ids.iter().map(|id| self.job(*id).state).collect()
    }
}

fn component(leader: JobId, offset: u32) -> JobTarget {
    JobTarget {
        component: Some(offset),
        ..target(leader)
    }
}

#[test]
fn all_components_are_accepted_or_none() {
    let mut world = World::new();
    let ids = world.submit_het(3);
    for (offset, id) in (0..).zip(ids) {
        let place = HetPlace {
            leader: ids[0],
            offset,
            size: 3,
        };
        assert_eq!(world.job(id).het, Some(place));
        assert_eq!(world.job(id).priority, world.job(ids[0]).priority);
    }
    let next = world.state.next_job_id;
    let bad = JobSpec {
        partitions: vec!["nosuch".to_owned()],
        ..beside("b")
    };
    let refusal = world
        .try_submit_het(vec![spec("a"), beside("b"), bad])
        .unwrap_err();
    assert_eq!(refusal.code, RefusalCode::InvalidPartition);
    assert!(refusal.detail.starts_with("component 2"), "{refusal}");
    let with_script = world
        .try_submit_het(vec![spec("a"), spec("b")])
        .unwrap_err();
    assert_eq!(with_script.code, RefusalCode::InvalidValue);
    let array = JobSpec {
        array: crate::world::array(0, 3, None),
        ..spec("a")
    };
    let array = world.try_submit_het(vec![array, beside("b")]).unwrap_err();
    assert_eq!(array.code, RefusalCode::InvalidArray);
    assert_eq!((world.state.next_job_id, world.state.jobs.len()), (next, 3));
    world.check_replay();
}

#[test]
fn all_start_in_one_commit_the_leader_last() {
    let mut world = World::new();
    let ids = world.submit_het(3);
    // A plan without one of them, or with one that does not fit beside the others, starts none.
    assert_eq!(world.start_het(&ids[..2]), 0);
    let same_cpu = |world: &World, id| PlannedStart {
        job: id,
        alloc: world.alloc(id, &[0], 4),
    };
    let starts = ids.iter().map(|id| same_cpu(&world, *id)).collect();
    assert_eq!(world.plan(starts), 0);
    assert_eq!(world.start_het(&ids), 3);
    assert_eq!(world.launches(), [(2, ids[2]), (1, ids[1]), (0, ids[0])]);
    world.check_replay();
}

#[test]
fn a_held_component_holds_all() {
    let mut world = World::new();
    let ids = world.submit_het(2);
    let hold = |target| UserCommand::Hold { target, user: true };
    world.must(1000, hold(component(ids[0], 1)));
    assert_eq!(
        (world.job(ids[0]).hold, world.job(ids[1]).hold),
        (Hold::None, Hold::User)
    );
    assert_eq!(world.start_het(&ids[..2]), 0);
    let release = UserCommand::Release {
        target: target(ids[0]),
    };
    assert_eq!(world.must(1000, release), 2);
    assert_eq!(world.start_het(&ids[..2]), 2);
}

#[test]
fn the_end_of_the_leader_is_the_end_of_all() {
    let mut world = World::new();
    let ids = world.submit_het(3);
    world.start_het(&ids);
    world.finish(ids[0], 3);
    assert_eq!(world.states(&ids), [JobState::Failed; 3]);
    assert!(ids.iter().all(|id| world.job(*id).exit == exit(3)));
    world.release(ids[1]);
    world.release(ids[2]);
    assert!(ids.iter().all(|id| world.job(*id).is_over()));
    world.check_replay();
}

#[test]
fn cancelling() {
    let mut world = World::new();
    let ids = world.submit_het(3);
    // While it waits only the whole can be cancelled.
    let Reply::Done { refused, .. } = world.cancel(1000, component(ids[0], 1)) else {
        panic!("refused for the component");
    };
    assert_eq!(refused[0].0, format!("{}+1", ids[0]));
    assert_eq!(refused[0].1.code, RefusalCode::HetComponent);
    world.start_het(&ids);
    // A component that runs can be cancelled alone, by either of its names.
    world.cancel(1000, component(ids[0], 1));
    world.cancel(1000, target(ids[2]));
    let cancelled = JobState::Cancelled;
    assert_eq!(
        world.states(&ids),
        [JobState::Running, cancelled, cancelled]
    );
    let again = world.submit_het(2);
    world.cancel(1000, target(again[0]));
    assert_eq!(world.states(&again[..2]), [cancelled; 2]);
    let no_such = world.cancel(1000, component(ids[0], 7));
    assert!(matches!(no_such, Reply::Done { refused, .. } if refused.len() == 1));
}

#[test]
fn components_reach_their_own_limits() {
    let mut world = World::new();
    let limited = JobSpec {
        time_limit: Some(TimeLimit::Minutes(1)),
        ..beside("b")
    };
    let first = world.try_submit_het(vec![spec("a"), limited]).unwrap();
    let ids = [first, JobId(first.0 + 1)];
    world.start_het(&ids);
    world.pass(61);
    assert_eq!(world.states(&ids), [JobState::Running, JobState::Timeout]);
}

#[test]
fn a_lost_node_brings_all_back_to_the_queue() {
    let mut world = World::new();
    let ids = world.submit_het(3);
    world.start_het(&ids);
    world.cancel(1000, component(ids[0], 2));
    world.release(ids[2]);
    // Its node restarted: the component is gone, and the others with it.
    world.register(1, "boot2", &[]);
    world.release(ids[0]);
    assert_eq!(world.states(&ids), [JobState::Pending; 3]);
    assert!(ids.iter().all(|id| world.job(*id).is_startable()));
    assert_eq!(world.start_het(&ids), 3);
    world.check_replay();
}

#[test]
fn a_launch_that_fails_is_tried_again_whole() {
    let mut world = World::new();
    let ids = world.submit_het(2);
    let ids = &ids[..2];
    world.start_het(ids);
    let attempt = world.job(ids[1]).attempt;
    world.node(
        1,
        NodeCommand::LaunchFailed {
            job: ids[1],
            attempt,
            error: "no space".to_owned(),
            node_fault: true,
            prolog: false,
            lack: false,
        },
    );
    world.release(ids[0]);
    assert_eq!(world.states(ids), [JobState::Pending; 2]);
    assert_eq!(world.job(ids[0]).reason, Reason::LaunchBackoff);
}

/// A component that has ended is old enough to leave in the moment in which the loss of another's node takes it back to the queue.
#[test]
fn a_component_that_comes_back_does_not_leave_as_it_ended() {
    let mut world = World::new();
    let component = JobSpec {
        time_limit: Some(TimeLimit::Minutes(1)),
        ..beside("het")
    };
    let id = world.try_submit_het(vec![spec("het"), component]);
    let id = id.expect("accepted");
    let ids = [id, JobId(id.0 + 1)];
    world.start_het(&ids);
    world.pass(60);
    world.release(ids[1]);
    assert!(world.job(ids[1]).is_over());
    world.pass(240);
    world.node(0, NodeCommand::Lost);
    world.pass(60);
    assert_eq!(world.states(&ids), [JobState::Pending; 2]);
    world.check_replay();
}

#[test]
fn requeue_suspend_and_update_by_the_leader() {
    let mut world = World::new();
    let ids = world.submit_het(2);
    let ids = &ids[..2];
    world.start_het(ids);
    let requeue = |target| UserCommand::Requeue {
        target,
        hold: false,
        special_exit: false,
        incomplete: false,
    };
    let suspend = |target| UserCommand::Suspend { target };
    assert_eq!(
        world.refused(1000, requeue(target(ids[1]))),
        RefusalCode::HetComponent
    );
    assert_eq!(
        world.refused(0, suspend(component(ids[0], 1))),
        RefusalCode::HetComponent
    );
    world.must(0, suspend(target(ids[0])));
    assert_eq!(world.states(ids), [JobState::Suspended; 2]);
    world.must(
        0,
        UserCommand::Resume {
            target: target(ids[0]),
        },
    );
    world.must(1000, requeue(target(ids[0])));
    world.release(ids[0]);
    world.release(ids[1]);
    assert_eq!(world.states(ids), [JobState::Pending; 2]);
    let limit = |minutes| JobUpdate {
        time_limit: Some(TimeLimit::Minutes(minutes)),
        ..JobUpdate::default()
    };
    let update = |target, minutes| UserCommand::UpdateJob {
        target,
        update: Box::new(limit(minutes)),
    };
    world.must(0, update(target(ids[0]), 9));
    world.must(0, update(component(ids[0], 1), 5));
    let limits = ids.iter().map(|id| world.job(*id).time_limit);
    let limits: Vec<TimeLimit> = limits.collect();
    assert_eq!(limits, [TimeLimit::Minutes(9), TimeLimit::Minutes(5)]);
    // An ended job comes back whole too.
    world.start_het(ids);
    world.finish(ids[0], 0);
    assert_eq!(
        world.refused(1000, requeue(target(ids[0]))),
        RefusalCode::NotRequeuable
    );
    world.release(ids[1]);
    world.must(1000, requeue(target(ids[0])));
    assert_eq!(world.states(ids), [JobState::Pending; 2]);
    world.check_replay();
}

#[test]
fn what_is_not_whole_stays_as_it_is() {
    let mut world = World::new();
    let ids = world.submit_het(2);
    let ids = &ids[..2];
    world.start_het(ids);
    world.cancel(1000, target(ids[0]));
    // The second component is over and leaves the queue while the first one is still being cleaned up.
    world.release(ids[1]);
    world.pass(301);
    assert!(!world.state.jobs.contains_key(&ids[1]));
    let requeue = UserCommand::Requeue {
        target: target(ids[0]),
        hold: false,
        special_exit: false,
        incomplete: false,
    };
    assert_eq!(world.refused(1000, requeue), RefusalCode::NotRequeuable);
    assert_eq!(world.job(ids[0]).state, JobState::Cancelled);
    world.check_replay();
}

#[test]
fn a_holder_gives_all_back() {
    let mut world = World::new();
    let first = world
        .try_submit_het(vec![allocation("a"), beside("b")])
        .unwrap();
    let ids = [first, JobId(first.0 + 1)];
    world.start_het(&ids);
    let done = UserCommand::EndAllocation {
        job: ids[0],
        exit: ExitStatus::default(),
    };
    world.must(1000, done);
    assert_eq!(world.states(&ids), [JobState::Completed; 2]);
}

#[test]
fn a_dependency_that_fails_ends_all() {
    let mut world = World::new();
    let other = world.submit(spec("first"));
    let mut specs = vec![spec("a"), beside("b")];
    for spec in &mut specs {
        spec.kill_on_invalid_dep = Some(true);
        let ok = muster_model::spec::DependencyKind::AfterOk;
        spec.dependency = crate::world::after(vec![crate::world::on(ok, other)]);
    }
    let first = world.try_submit_het(specs).unwrap();
    world.cancel(1000, target(other));
    let ids = [first, JobId(first.0 + 1)];
    assert_eq!(world.states(&ids), [JobState::Cancelled; 2]);
}

/// A leader that ends as it is submitted, because of a dependency that can never be, leaves no component behind.
#[test]
fn a_dependency_that_can_never_be_ends_all_at_once() {
    let mut world = World::new();
    let first = world.submit(spec("first"));
    assert!(world.start(first, &[0]));
    world.finish(first, 0);
    let mut leader = spec("het");
    leader.kill_on_invalid_dep = Some(true);
    let failed = muster_model::spec::DependencyKind::AfterNotOk;
    leader.dependency = crate::world::after(vec![crate::world::on(failed, first)]);
    let id = world.try_submit_het(vec![leader, beside("het")]).unwrap();
    let both = [id, JobId(id.0 + 1)];
    assert_eq!(world.states(&both), [JobState::Cancelled; 2]);
}

#[test]
fn a_singleton_is_one_of_its_name_whatever_its_components() {
    let mut world = World::new();
    let one = |mut spec: JobSpec| {
        spec.dependency = crate::world::after(vec![muster_model::spec::DependencyTerm::Singleton]);
        spec
    };
    let mut submit = || {
        let specs = vec![one(spec("one")), one(beside("one"))];
        let first = world.try_submit_het(specs).unwrap();
        [first, JobId(first.0 + 1)]
    };
    let (a, b) = (submit(), submit());
    assert!(a.iter().all(|id| world.job(*id).is_startable()));
    assert!(b.iter().all(|id| !world.job(*id).is_startable()));
    world.cancel(1000, target(a[0]));
    assert!(b.iter().all(|id| world.job(*id).is_startable()));
}

/// A verifier set what users may not for one component, and the user had it for another.
#[test]
fn what_was_granted_to_one_component_is_not_to_another() {
    for (granted_to, is_taken) in [(0, true), (1, false)] {
        let mut w = World::new();
        let mut first = spec("het");
        first.nice = -5;
        let script = first.script;
        let command = UserCommand::SubmitHet {
            specs: vec![first, beside("het")],
            blobs: script
                .map(|id| (id, b"#!/bin/sh\n".to_vec().into()))
                .into_iter()
                .collect(),
            test_only: false,
        };
        let mut identity = user(1000);
        identity
            .granted
            .insert(granted_to, GrantedRight::NegativeNice);
        let reply = w.run(Command::User(identity, command)).reply;
        let taken = matches!(reply, Some(Reply::Submitted { .. }));
        assert_eq!(taken, is_taken, "{reply:?}");
    }
}
