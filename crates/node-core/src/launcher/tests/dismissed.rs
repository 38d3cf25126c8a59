//! Step daemons that have been ordered to end, and do not.

use super::*;

/// A job whose script runs, and a daemon that has had a step and waits for another.
fn job_with_spare(world: &mut World) -> (JobAttempt, i32) {
    let job = attempt_of(1);
    world.launch(job, JobKind::Batch);
    world.start_step(job, StepNo(0));
    let stepd = world.pids(|kind| matches!(kind, Kind::Stepd(..)))[0];
    world.end_tasks(stepd);
    world.finish_wakeup();
    (job, stepd)
}

fn hang(world: &mut World, pid: i32) {
    world.processes.get_mut(&pid).unwrap().hangs = true;
}

/// Fires timers until a job is released, and gives how long that took.
fn until_released(world: &mut World, job: JobAttempt) -> u64 {
    let began_ms = world.now.mono_ms;
    for _ in 0..10 {
        if world.is_released(job) {
            break;
        }
        world.fire_timer();
        world.reap();
    }
    assert!(world.is_released(job), "it stays {:?}", world.phase(job));
    world.now.mono_ms - began_ms
}

/// Its job waited for it for ever.
#[test]
fn a_dismissed_daemon_that_hangs_is_killed_at_the_end_of_its_job() {
    const KILL_WAIT_MS: u64 = 30_000;
    let mut world = World::new();
    let (job, stepd) = job_with_spare(&mut world);
    hang(&mut world, stepd);
    world.end_and_reap(world.script(job), 0);
    assert!(!world.is_released(job) && world.signals.is_empty());
    assert_eq!(until_released(&mut world, job), KILL_WAIT_MS);
    assert_eq!(world.signals, [(stepd, SIGKILL)]);
    assert!(world.stepds.is_empty() && world.processes.is_empty());
}

/// The same where the job goes on when it is dismissed, by its agent or with its agent's loss.
#[test]
fn a_daemon_that_was_dismissed_while_its_job_ran_is_killed_with_the_job() {
    for is_lost in [false, true] {
        let mut world = World::new();
        let (job, stepd) = job_with_spare(&mut world);
        hang(&mut world, stepd);
        if is_lost {
            world.deliver(Event::AgentLost);
            world.attach();
        } else {
            let (attempt, pid) = (job, stepd);
            world.command(LauncherCommand::ReleaseStepd { attempt, pid });
        }
        assert!(world.signals.is_empty(), "its job runs");
        world.terminate(job, true);
        world.reap();
        assert!(!world.is_released(job), "it has as long as others");
        until_released(&mut world, job);
        assert!(world.signals.contains(&(stepd, SIGKILL)));
        assert!(world.processes.is_empty());
    }
}

/// A lost agent had given it a step: its tasks went on until the daemon ended by itself.
#[test]
fn tasks_of_a_dismissed_daemon_are_killed_with_the_job() {
    let mut world = World::new();
    let (job, stepd) = job_with_spare(&mut world);
    let (attempt, pid) = (job, stepd);
    world.command(LauncherCommand::ReleaseStepd { attempt, pid });
    // The agent gave it before it was dismissed, and says so never.
    let process = world.processes.get_mut(&stepd).unwrap();
    process.kind = Kind::Stepd(job, Some(StepNo(1)));
    process.ended = None;
    world.terminate(job, true);
    world.reap();
    assert!(world.is_released(job));
    assert!(!world.processes.contains_key(&stepd));
    assert!(!world.signals.contains(&(stepd, SIGKILL)), "it ends itself");
}

/// Its number may be another process's by then.
#[test]
fn a_dismissed_daemon_that_was_collected_is_not_signalled() {
    let mut world = World::new();
    let (job, stepd) = job_with_spare(&mut world);
    let (attempt, pid) = (job, stepd);
    world.command(LauncherCommand::ReleaseStepd { attempt, pid });
    world.reap();
    assert!(!world.processes.contains_key(&stepd));
    assert!(world.launcher.state.jobs[&job].daemons().is_empty());
    // What the script leaves behind does not end.
    world.start_step(job, StepNo(1));
    let other = world.pids(|kind| matches!(kind, Kind::Stepd(..)))[0];
    hang(&mut world, other);
    world.terminate(job, true);
    until_released(&mut world, job);
    assert!(world.signals.iter().all(|(pid, _)| *pid != stepd));
    assert!(world.signals.contains(&(other, SIGKILL)));
}

/// The agent gives a waiting daemon steps, which end. Their job ends as well, and the launcher learns that first: its orders from the
/// agent are late. They counted as lost.
#[test]
fn ends_of_steps_that_are_reported_after_their_job_are_kept() {
    for are_late in [false, true] {
        let mut world = World::new();
        let (job, stepd) = job_with_spare(&mut world);
        let steps = [StepNo(1), StepNo(2), StepNo(3)];
        for step in steps {
            world.processes.get_mut(&stepd).unwrap().kind = Kind::Stepd(job, Some(step));
            world.end_tasks(stepd);
        }
        world.end_and_reap(world.script(job), 0);
        if are_late {
            world.reap();
            assert!(world.is_released(job));
        }
        for step in steps {
            let (attempt, pid) = (job, stepd);
            world.command(LauncherCommand::StepAssigned { attempt, step, pid });
        }
        world.reap();
        assert!(world.is_released(job));
        let ended = |world: &World| {
            let ended = world.sent.iter().filter_map(|event| match event {
                LauncherEvent::StepEnded { step, end, .. } => Some((*step, (**end).clone())),
                _ => None,
            });
            ended.collect::<Vec<_>>()
        };
        // The agent has these from the daemon itself.
        assert_eq!(ended(&world), []);
        world.sent.clear();
        world.attach();
        let expected = [0, 1, 2, 3].map(|step| (StepNo(step), end_of_step()));
        assert_eq!(ended(&world), expected);
        assert!(world.stepds.is_empty() && world.processes.is_empty());
    }
}

/// The daemon has a step when it is ordered to end, which it does after that.
#[test]
fn a_daemon_that_has_a_step_is_dismissed_after_it() {
    for is_said in [false, true] {
        let mut world = World::new();
        let (job, stepd) = job_with_spare(&mut world);
        world.processes.get_mut(&stepd).unwrap().kind = Kind::Stepd(job, Some(StepNo(1)));
        world.end_and_reap(world.script(job), 0);
        assert!(!world.is_released(job) && world.processes.contains_key(&stepd));
        if is_said {
            let (attempt, step, pid) = (job, StepNo(1), stepd);
            world.command(LauncherCommand::StepAssigned { attempt, step, pid });
        } else {
            world.end_tasks(stepd);
        }
        world.finish_wakeup();
        world.reap();
        assert!(world.is_released(job));
        let end = world.launcher.state.jobs[&job].steps[&StepNo(1)]
            .ended
            .clone();
        assert_eq!(end.unwrap().decoded(Timestamp(0)), end_of_step());
        assert!(world.stepds.is_empty() && world.processes.is_empty());
    }
}
