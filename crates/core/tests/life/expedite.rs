//! `--requeue=expedite`: jobs that come back to the queue before all others.

use crate::world::{World, config, exit, spec, step_end, target};
use muster_model::command::{NodeCommand, UserCommand};
use muster_model::config::ClusterConfig;
use muster_model::ids::JobId;
use muster_model::job::JobState;
use muster_model::limits::PRIORITY_TOP;
use muster_model::spec::JobSpec;

fn world(allowed: bool) -> World {
    World::with(ClusterConfig {
        requeue_wait_s: 60,
        expedited_requeue: allowed,
        ..config()
    })
}

fn expedite() -> JobSpec {
    JobSpec {
        requeue: Some(true),
        expedite: true,
        ..spec("j")
    }
}

fn epilog_failed(world: &mut World, id: JobId, error: &str) {
    let attempt = world.job(id).attempt;
    world.node(
        0,
        NodeCommand::NodeFault {
            job: id,
            attempt,
            error: error.to_owned(),
        },
    );
}

fn script_failed(world: &mut World, id: JobId, code: u32) {
    let attempt = world.job(id).attempt;
    let end = step_end(world.now, exit(code));
    world.node(
        0,
        NodeCommand::BatchEnded {
            job: id,
            attempt,
            exit: exit(code),
            oom: false,
            end,
        },
    );
}

#[test]
fn a_job_of_a_lost_node_is_before_all_others_at_once() {
    for allowed in [true, false] {
        let mut world = world(allowed);
        let lost = world.submit(expedite());
        world.start(lost, &[0]);
        let other = world.submit(spec("other"));
        world.node(0, NodeCommand::Lost);
        world.pass(60);
        let job = world.job(lost);
        assert_eq!(job.state, JobState::Pending);
        assert_eq!(job.begin_at.is_none(), allowed, "{allowed}");
        assert_eq!(job.priority == PRIORITY_TOP, allowed, "{allowed}");
        assert!(world.job(other).priority < PRIORITY_TOP);
        assert_eq!(world.start(lost, &[1]), allowed);
        world.check_replay();
    }
}

#[test]
fn a_script_that_fails_with_its_epilog_is_run_again() {
    for (allowed, code, error, wanted) in [
        (true, 1, "Epilog error: exit status 1", JobState::Pending),
        (true, 0, "Epilog error: exit status 1", JobState::Completed),
        (true, 1, "another fault", JobState::Failed),
        (false, 1, "Epilog error: exit status 1", JobState::Failed),
    ] {
        let mut world = world(allowed);
        let id = world.submit(expedite());
        let plain = world.submit(spec("plain"));
        world.start(id, &[0]);
        world.start(plain, &[0]);
        for job in [id, plain] {
            script_failed(&mut world, job, code);
            epilog_failed(&mut world, job, error);
            world.release(job);
        }
        assert_eq!(world.job(id).state, wanted, "{allowed} {code} {error}");
        assert_ne!(world.job(plain).state, JobState::Pending);
        world.check_replay();
    }
}

#[test]
fn who_puts_a_job_back_does_not_expedite_it() {
    let mut world = world(true);
    let id = world.submit(expedite());
    world.start(id, &[0]);
    world.must(
        0,
        UserCommand::Requeue {
            target: target(id),
            hold: false,
            special_exit: false,
            incomplete: false,
        },
    );
    world.end_batch(id, 0);
    world.release(id);
    let job = world.job(id);
    assert!(job.begin_at.is_some() && job.priority < PRIORITY_TOP);
}
