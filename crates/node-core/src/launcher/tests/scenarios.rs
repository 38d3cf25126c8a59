//! What happens to jobs and steps, one thing after the other.

use super::*;
use crate::signals::{SIGCONT, SIGSTOP};
use muster_model::command::SignalScope;
use muster_model::ids::AttemptStep;

const A: u64 = 1;

pub(super) fn batch(world: &mut World) -> JobAttempt {
    world.launch(attempt_of(A), JobKind::Batch);
    attempt_of(A)
}

#[test]
fn a_script_runs_and_its_job_is_released_and_forgotten() {
    let mut world = World::new();
    let job = batch(&mut world);
    assert_eq!(world.phase(job), NodeJobPhase::Running);
    world.end_and_reap(world.script(job), 256);
    let outcome = world.outcome(job);
    assert!(matches!(
        outcome,
        Some(LauncherEvent::BatchEnded { status: 256, .. })
    ));
    assert!(world.is_released(job));
    assert!(world.timers.is_empty(), "{:?}", world.timers);
    world.command(LauncherCommand::Forget(job));
    assert_eq!(world.phase(job), NodeJobPhase::Gone);
    // The order is repeated freely.
    let (_, old, _) = LauncherRecords::read(&world.records, "boot");
    assert!(old.is_empty());
}

#[test]
fn a_repeated_launch_starts_nothing() {
    let mut world = World::new();
    let job = batch(&mut world);
    world.launch(job, JobKind::Batch);
    world.crash();
    world.launch(job, JobKind::Batch);
    assert_eq!(world.scripts[&job], 1);
    assert_eq!(world.phase(job), NodeJobPhase::Running);
}

#[test]
fn a_job_is_asked_then_killed_and_what_it_left_with_it() {
    let mut world = World::new();
    let job = batch(&mut world);
    let script = world.script(job);
    world.spawn(Kind::Orphan(job)).unwrap();
    world.terminate(job, false);
    // The message is written first.
    assert!(world.signals.is_empty());
    let message = world.pids(|kind| *kind == Kind::Helper)[0];
    world.end_and_reap(message, 0);
    assert_eq!(world.signals, [(script, SIGTERM), (script, SIGCONT)]);
    assert_eq!(world.phase(job), NodeJobPhase::Ending);
    assert!(world.fire_timer());
    assert_eq!(world.phase(job), NodeJobPhase::Clearing);
    world.reap();
    assert!(world.is_released(job));
}

#[test]
fn what_a_script_leaves_is_killed_before_its_job_is_released() {
    let mut world = World::new();
    let job = batch(&mut world);
    let orphan = world.spawn(Kind::Orphan(job)).unwrap();
    world.end_and_reap(world.script(job), 0);
    assert!(world.outcome(job).is_some());
    assert!(world.processes[&orphan].ended.is_some() && !world.is_released(job));
    world.reap();
    assert!(world.is_released(job));
}

#[test]
fn processes_that_survive_sigkill_are_reported_once() {
    let mut world = World::new();
    let settings = NodeSettings {
        unkillable_timeout_s: 15,
        ..NodeSettings::default()
    };
    world.orders(Vec::new(), Some(settings));
    let job = batch(&mut world);
    world.terminate(job, true);
    // The script is in the kernel and does not end.
    world.processes.values_mut().for_each(|p| p.ended = None);
    for _ in 0..6 {
        assert!(world.fire_timer());
        world.processes.values_mut().for_each(|p| p.ended = None);
    }
    let faults = world.sent.iter();
    let faults = faults.filter(|e| matches!(e, LauncherEvent::NodeFault { .. }));
    assert_eq!(faults.count(), 1);
    assert!(!world.is_released(job));
}

#[test]
fn a_full_disk_under_the_record_file_is_waited_for() {
    let mut world = World::new();
    // It becomes full after the script was written.
    world.look_ups.clear();
    let launch = grant(attempt_of(A), JobKind::Allocation);
    world.order(Order::Launch(Box::new(launch)));
    world.is_full = true;
    world.answer_look_ups();
    let job = attempt_of(A);
    for _ in 0..60 {
        assert_eq!(world.phase(job), NodeJobPhase::Waiting);
        assert!(world.fire_timer());
    }
    match world.outcome(job) {
        Some(LauncherEvent::LaunchFailed { lack, .. }) => assert!(lack),
        other => panic!("{other:?}"),
    }
    assert!(world.is_released(job));
}

#[test]
fn a_launch_goes_on_when_there_is_room_on_the_disk() {
    let mut world = World::new();
    world.is_full = true;
    let job = batch(&mut world);
    assert_eq!(world.phase(job), NodeJobPhase::Waiting);
    assert!(world.fire_timer());
    assert_eq!(world.phase(job), NodeJobPhase::Waiting);
    world.is_full = false;
    assert!(world.fire_timer());
    assert_eq!(world.phase(job), NodeJobPhase::Running);
    assert_eq!(world.records.matches("\nL ").count(), 1);
}

#[test]
fn a_script_for_which_there_is_no_process_is_tried_again() {
    let mut world = World::new();
    world.lacks = true;
    let job = batch(&mut world);
    assert_eq!(world.phase(job), NodeJobPhase::Starting);
    for _ in 0..59 {
        assert!(world.fire_timer());
        assert!(world.outcome(job).is_none());
    }
    world.lacks = false;
    assert!(world.fire_timer());
    assert_eq!(world.phase(job), NodeJobPhase::Running);
}

#[test]
fn a_prolog_for_which_there_is_no_process_is_tried_again_and_then_fails() {
    let mut world = World::new();
    world.prolog = vec!["/prolog".to_owned()];
    world.attach();
    world.lacks = true;
    let job = batch(&mut world);
    for _ in 0..60 {
        assert_eq!(world.phase(job), NodeJobPhase::Prolog);
        assert!(world.fire_timer());
    }
    match world.outcome(job) {
        Some(LauncherEvent::LaunchFailed { lack, .. }) => assert!(lack),
        other => panic!("{other:?}"),
    }
    assert!(world.is_released(job) && world.scripts.is_empty());
}

#[test]
fn script_and_steps_wait_for_the_prolog_and_the_release_for_the_epilog() {
    let mut world = World::new();
    world.prolog = vec!["/prolog".to_owned()];
    world.epilog = vec!["/epilog".to_owned()];
    world.attach();
    let job = batch(&mut world);
    world.start_step(job, StepNo(0));
    assert_eq!(world.phase(job), NodeJobPhase::Prolog);
    assert!(world.scripts.is_empty() && world.steps.is_empty());
    world.end_and_reap(world.program(job), 0);
    assert_eq!(world.phase(job), NodeJobPhase::Running);
    assert_eq!((world.scripts.len(), world.steps.len()), (1, 1));
    world.end_and_reap(world.script(job), 0);
    assert_eq!(world.phase(job), NodeJobPhase::Epilog);
    assert!(!world.is_released(job));
    world.end_and_reap(world.program(job), 256);
    assert!(world.is_released(job));
    let mut sent = world.sent.iter();
    assert!(sent.any(|e| matches!(e, LauncherEvent::NodeFault { .. })));
}

#[test]
fn a_failed_prolog_starts_nothing() {
    let mut world = World::new();
    world.prolog = vec!["/prolog".to_owned()];
    world.attach();
    let job = batch(&mut world);
    world.start_step(job, StepNo(0));
    world.end_and_reap(world.program(job), 256);
    match world.outcome(job) {
        Some(LauncherEvent::LaunchFailed { prolog, .. }) => assert!(prolog),
        other => panic!("{other:?}"),
    }
    let mut sent = world.sent.iter();
    assert!(sent.any(|e| matches!(e, LauncherEvent::StepFailed { .. })));
    assert!(world.is_released(job));
    assert!(world.scripts.is_empty() && world.steps.is_empty());
}

#[test]
fn a_job_that_ends_during_its_prolog_has_no_script() {
    let mut world = World::new();
    world.prolog = vec!["/prolog".to_owned()];
    world.attach();
    let job = batch(&mut world);
    world.terminate(job, false);
    assert_eq!(world.phase(job), NodeJobPhase::Ending);
    world.end_and_reap(world.program(job), 0);
    assert!(world.is_released(job) && world.scripts.is_empty());
}

#[test]
fn a_prolog_that_the_launcher_was_lost_in_is_not_run_again() {
    let mut world = World::new();
    world.prolog = vec!["/prolog".to_owned()];
    world.attach();
    let job = batch(&mut world);
    world.crash();
    assert!(matches!(
        world.outcome(job),
        Some(LauncherEvent::Vanished(_))
    ));
    assert!(world.is_released(job));
    assert_eq!((world.prologs, world.scripts.len()), (1, 0));
}

/// A job filled the file system that the directories are on: nodes were drained for it, by whatever jobs came next.
#[test]
fn no_room_for_directories_is_nobodys_fault() {
    for (status, is_lack) in [(75, true), (1, false)] {
        let mut world = World::new();
        world.has_containers = true;
        world.attach();
        let job = batch(&mut world);
        world.end_and_reap(world.program(job), status << 8);
        match world.outcome(job) {
            Some(LauncherEvent::LaunchFailed { lack, .. }) => assert_eq!(*lack, is_lack),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn directories_are_there_before_anything_runs_and_go_after_the_epilog() {
    let mut world = World::new();
    world.prolog = vec!["/prolog".to_owned()];
    world.epilog = vec!["/epilog".to_owned()];
    world.has_containers = true;
    world.attach();
    let job = batch(&mut world);
    world.start_step(job, StepNo(0));
    assert!(world.containers.is_empty());
    world.end_and_reap(world.program(job), 0);
    assert!(world.containers.contains(&job));
    assert!(world.scripts.is_empty() && world.steps.is_empty());
    world.end_and_reap(world.program(job), 0);
    assert_eq!((world.scripts.len(), world.steps.len()), (1, 1));
    // A launcher that is started meanwhile knows of them.
    world.crash();
    world.terminate(job, true);
    world.reap();
    let daemon = world.pids(|kind| matches!(kind, Kind::Stepd(..))).pop();
    daemon
        .into_iter()
        .for_each(|pid| world.end_and_reap(pid, 9));
    assert_eq!((world.phase(job), world.epilogs), (NodeJobPhase::Epilog, 1));
    assert!(world.containers.contains(&job));
    world.end_and_reap(world.program(job), 0);
    assert!(world.containers.is_empty() && !world.is_released(job));
    world.end_and_reap(world.program(job), 0);
    assert!(world.is_released(job));
}

#[test]
fn programs_of_the_site_run_one_at_a_time_where_it_wants_that() {
    let mut world = World::new();
    world.prolog = vec!["/prolog".to_owned()];
    world.epilog = vec!["/epilog".to_owned()];
    world.is_serial = true;
    world.attach();
    let jobs = [attempt_of(1), attempt_of(2), attempt_of(3)];
    for job in jobs {
        let mut of = grant(job, JobKind::Batch);
        of.alloc = Allocation::default().into();
        world.order(Order::Launch(Box::new(of)));
        world.answer_look_ups();
    }
    assert_eq!(world.prologs, 1);
    // One that ends while it waits has no prolog.
    world.terminate(jobs[1], true);
    world.end_and_reap(world.program(jobs[0]), 0);
    world.reap();
    assert_eq!(world.scripts.len(), 1);
    let is_program = |kind: &Kind| matches!(kind, Kind::Programs(..));
    for _ in 0..2 {
        let running = world.pids(is_program);
        assert_eq!(running.len(), 1);
        world.end_and_reap(running[0], 0);
    }
    assert_eq!((world.prologs, world.epilogs), (2, 1));
    assert!(world.is_released(jobs[1]) && world.scripts.len() == 2);
    // Epilogs, too.
    for job in [jobs[0], jobs[2]] {
        world.end_and_reap(world.script(job), 0);
    }
    for _ in 0..2 {
        let running = world.pids(is_program);
        assert_eq!(running.len(), 1);
        world.end_and_reap(running[0], 0);
    }
    assert!(world.is_released(jobs[0]) && world.is_released(jobs[2]));
}

#[test]
fn a_job_without_its_directories_runs_nothing() {
    let mut world = World::new();
    world.has_containers = true;
    world.attach();
    let job = batch(&mut world);
    world.start_step(job, StepNo(0));
    world.end_and_reap(world.program(job), 256);
    match world.outcome(job) {
        Some(LauncherEvent::LaunchFailed { node_fault, .. }) => assert!(node_fault),
        other => panic!("{other:?}"),
    }
    // What was made of them is removed.
    world.end_and_reap(world.program(job), 0);
    assert!(world.is_released(job) && world.containers.is_empty());
    assert!(world.scripts.is_empty() && world.steps.is_empty());
}

#[test]
fn a_release_does_not_wait_for_ever_until_directories_are_removed() {
    let mut world = World::new();
    world.has_containers = true;
    world.attach();
    let job = batch(&mut world);
    world.end_and_reap(world.program(job), 0);
    world.end_and_reap(world.script(job), 0);
    assert!(!world.is_released(job));
    let removal = world.program(job);
    while !world.is_released(job) {
        assert!(world.fire_timer());
    }
    // It goes on.
    assert!(world.processes.contains_key(&removal) && !world.signals.contains(&(removal, 9)));
}

#[test]
fn a_job_that_ends_before_its_groups_are_known_has_begun_nothing() {
    let mut world = World::new();
    let launch = grant(attempt_of(A), JobKind::Batch);
    world.order(Order::Launch(Box::new(launch)));
    assert_eq!(world.phase(attempt_of(A)), NodeJobPhase::Waiting);
    world.start_step(attempt_of(A), StepNo(0));
    world.terminate(attempt_of(A), false);
    assert!(world.is_released(attempt_of(A)));
    world.answer_look_ups();
    assert!(world.scripts.is_empty());
    assert!(!world.records.contains("\nL "));
}

#[test]
fn a_launch_waits_until_its_share_is_left() {
    let mut world = World::new();
    let first = batch(&mut world);
    world.terminate(first, false);
    let second = attempt_of(2);
    world.launch(second, JobKind::Batch);
    assert_eq!(world.phase(second), NodeJobPhase::Waiting);
    world.end_and_reap(world.script(first), 15);
    world.reap();
    for pid in world.pids(|kind| *kind == Kind::Helper) {
        world.end_and_reap(pid, 0);
    }
    assert!(world.is_released(first));
    assert_eq!(world.phase(second), NodeJobPhase::Running);
}

#[test]
fn signals_for_a_script_that_is_being_started_reach_it() {
    let mut world = World::new();
    let job = attempt_of(A);
    let launch = Order::Launch(Box::new(grant(job, JobKind::Batch)));
    let signal = |signal: i32| Order::Signal {
        job: job.job,
        attempt: job.attempt,
        step: None,
        signal: signal.unsigned_abs(),
        scope: SignalScope::Full,
        cancelled_by: None,
    };
    // The user's groups are known from another job.
    world.launch(attempt_of(2), JobKind::Batch);
    world.orders(vec![launch, signal(SIGSTOP), signal(10)], None);
    world.finish_wakeup();
    let script = world.script(job);
    let its = world.signals.iter().filter(|(pid, _)| *pid == script);
    let its: Vec<i32> = its.map(|(_, signal)| *signal).collect();
    assert!(its.contains(&SIGSTOP) && its.contains(&10), "{its:?}");
}

/// A script that got the first of these alone would stand still for ever.
#[test]
fn signals_from_before_a_script_come_in_their_order() {
    let mut world = World::new();
    world.prolog = vec!["/prolog".to_owned()];
    world.attach();
    let job = attempt_of(A);
    world.order(Order::Launch(Box::new(grant(job, JobKind::Batch))));
    let signal = |signal: i32| Order::Signal {
        job: job.job,
        attempt: job.attempt,
        step: None,
        signal: signal.unsigned_abs(),
        scope: SignalScope::Full,
        cancelled_by: None,
    };
    world.order(signal(SIGSTOP));
    world.answer_look_ups();
    assert_eq!(world.phase(job), NodeJobPhase::Prolog);
    world.order(signal(SIGCONT));
    world.end_and_reap(world.program(job), 0);
    let script = world.script(job);
    assert_eq!(world.signals, [(script, SIGSTOP), (script, SIGCONT)]);
}

/// The agent holds srun's streams until it knows.
#[test]
fn a_step_that_waits_for_groups_is_refused_when_its_job_leaves() {
    let mut world = World::new();
    let job = batch(&mut world);
    let script = world.script(job);
    world.crash();
    world.start_step(job, StepNo(0));
    assert_eq!(
        world.look_ups.len(),
        1,
        "the next launcher has to ask again"
    );
    world.end_and_reap(script, 0);
    assert!(world.is_released(job));
    let is_refusal = |event: &LauncherEvent| matches!(event, LauncherEvent::StepFailed { .. });
    assert!(world.sent.iter().any(is_refusal));
}

#[test]
fn the_launcher_is_lost_while_a_script_runs() {
    let mut world = World::new();
    let job = batch(&mut world);
    let script = world.script(job);
    world.crash();
    assert_eq!(world.script(job), script);
    world.end_and_reap(script, 0);
    assert!(matches!(
        world.outcome(job),
        Some(LauncherEvent::Vanished(_))
    ));
    assert!(world.is_released(job));
}

#[test]
fn an_ordered_end_goes_on_after_the_launcher_was_lost() {
    let mut world = World::new();
    let job = batch(&mut world);
    world.terminate(job, false);
    world.crash();
    assert_eq!(world.phase(job), NodeJobPhase::Ending);
    assert!(world.fire_timer());
    world.reap();
    assert!(world.is_released(job));
}

#[test]
fn what_is_known_is_told_to_the_next_agent() {
    let mut world = World::new();
    let job = batch(&mut world);
    world.start_step(job, StepNo(0));
    let stepd = world.pids(|kind| matches!(kind, Kind::Stepd(..)))[0];
    world.end_tasks(stepd);
    world.finish_wakeup();
    // Its agent has a connection to the daemon itself.
    let is_end = |e: &LauncherEvent| matches!(e, LauncherEvent::StepEnded { .. });
    assert!(!world.sent.iter().any(is_end));
    world.end_and_reap(world.script(job), 0);
    world.deliver(Event::AgentLost);
    world.attach();
    assert!(world.sent.iter().any(is_end));
    assert!(world.outcome(job).is_some() && world.is_released(job));
    // And after a crash.
    world.crash();
    assert!(world.sent.iter().any(is_end));
    assert!(world.outcome(job).is_some() && world.is_released(job));
}

#[test]
fn a_step_goes_on_when_the_launcher_is_lost_and_is_reported() {
    let mut world = World::new();
    let job = batch(&mut world);
    world.start_step(job, StepNo(0));
    world.crash();
    let stepd = world.pids(|kind| matches!(kind, Kind::Stepd(..)))[0];
    world.end_tasks(stepd);
    world.finish_wakeup();
    let is_end = |e: &LauncherEvent| matches!(e, LauncherEvent::StepEnded { .. });
    assert_eq!(world.sent.iter().filter(|e| is_end(e)).count(), 1);
    // It gets no other step.
    world.reap();
    assert!(world.stepds.is_empty());
}

/// A user's process, by chance or by forking until it had it: root sent it TERM and KILL when the job ended.
#[test]
fn a_process_with_the_number_of_an_ended_step_daemon_is_not_the_steps() {
    let mut world = World::new();
    let job = batch(&mut world);
    world.start_step(job, StepNo(0));
    let stepd = world.pids(|kind| matches!(kind, Kind::Stepd(..)))[0];
    // The daemon ends while there is no launcher, without a word.
    world.stepds.clear();
    world.owned.clear();
    let other = Process {
        kind: Kind::Orphan(attempt_of(2)),
        ..world.processes.remove(&stepd).unwrap()
    };
    world.processes.insert(stepd, other);
    world.started_ms.insert(stepd, u64::MAX);
    world.crash();
    assert!(!world.launcher.state.roles.contains_key(&stepd));
    assert!(!world.watched.contains(&stepd), "it is let go");
}

/// Where the kernel's sessions do not tell, those of setsid(2) do, and a number of theirs may have become another user's.
#[test]
fn a_jobs_sessions_have_nobody_elses_processes() {
    let mut world = World::new();
    let job = batch(&mut world);
    assert!(world.launcher.has_uid(job, Some(UID)));
    assert!(!world.launcher.has_uid(job, Some(UID + 1)));
    assert!(!world.launcher.has_uid(job, None));
    assert!(!world.launcher.has_uid(attempt_of(9), Some(UID)));
}

#[test]
fn a_step_daemon_that_is_too_old_is_left_alone_and_its_result_reported() {
    let mut world = World::new();
    world.stepd_greeting = Some(Greeting {
        protocol: VERSIONS.oldest - 1,
        release: "0.0.1".to_owned(),
    });
    let job = batch(&mut world);
    world.start_step(job, StepNo(0));
    world.crash();
    assert!(world.stepds.is_empty(), "its connection is closed");
    let stepd = world.pids(|kind| matches!(kind, Kind::Stepd(..)))[0];
    world.end_tasks(stepd);
    world.reap();
    world.finish_wakeup();
    let is_end = |e: &LauncherEvent| matches!(e, LauncherEvent::StepEnded { end, .. } if **end == end_of_step());
    assert_eq!(world.sent.iter().filter(|e| is_end(e)).count(), 1);
}

#[test]
fn a_step_that_ended_while_there_was_no_launcher_is_reported() {
    let mut world = World::new();
    let job = batch(&mut world);
    world.start_step(job, StepNo(0));
    let stepd = world.pids(|kind| matches!(kind, Kind::Stepd(..)))[0];
    world.processes.remove(&stepd);
    world.results.insert(AttemptStep::new(job, StepNo(0)));
    world.crash();
    let is_end = |e: &LauncherEvent| matches!(e, LauncherEvent::StepEnded { end, .. } if **end == end_of_step());
    assert_eq!(world.sent.iter().filter(|e| is_end(e)).count(), 1);
    world.command(LauncherCommand::ForgetStep(job, StepNo(0)));
    assert!(world.results.is_empty());
}

#[test]
fn a_killed_step_daemon_loses_its_step() {
    let mut world = World::new();
    let job = batch(&mut world);
    world.start_step(job, StepNo(0));
    let stepd = world.pids(|kind| matches!(kind, Kind::Stepd(..)))[0];
    world.end_and_reap(stepd, SIGKILL);
    let is_end = |e: &LauncherEvent| match e {
        LauncherEvent::StepEnded { end, .. } => end.exit.signal == SIGKILL.unsigned_abs(),
        _ => false,
    };
    assert!(world.sent.iter().any(is_end));
    assert!(world.stepds.is_empty());
}

#[test]
fn steps_follow_each_other_in_one_daemon() {
    let mut world = World::new();
    let job = batch(&mut world);
    world.start_step(job, StepNo(0));
    let stepd = world.pids(|kind| matches!(kind, Kind::Stepd(..)))[0];
    world.end_tasks(stepd);
    world.finish_wakeup();
    // The agent gives it a step itself, which ends before it says so.
    world.processes.get_mut(&stepd).unwrap().kind = Kind::Stepd(job, Some(StepNo(1)));
    world.end_tasks(stepd);
    world.finish_wakeup();
    let (attempt, step, pid) = (job, StepNo(1), stepd);
    world.command(LauncherCommand::StepAssigned { attempt, step, pid });
    assert!(world.launcher.state.jobs[&job].steps[&step].ended.is_some());
    // It ends with its agent. One that had a step when its agent was lost gets the next by the launcher.
    world.deliver(Event::AgentLost);
    world.reap();
    assert!(!world.processes.contains_key(&stepd));
    world.attach();
    world.start_step(job, StepNo(2));
    let stepd = world.pids(|kind| matches!(kind, Kind::Stepd(..)))[0];
    world.deliver(Event::AgentLost);
    world.attach();
    world.end_tasks(stepd);
    world.finish_wakeup();
    world.start_step(job, StepNo(3));
    assert_eq!(
        world.processes[&stepd].kind,
        Kind::Stepd(job, Some(StepNo(3)))
    );
    // The script's end takes it along.
    world.end_and_reap(world.script(job), 0);
    world.reap();
    assert!(world.is_released(job));
    assert!(world.stepds.is_empty() && world.processes.is_empty());
}

/// An agent gives a step to a daemon that waits for one, and is killed before it says so.
#[test]
fn a_step_that_a_lost_agent_gave_is_reported_to_the_next() {
    let reported = |world: &World, wanted: fn(&LauncherEvent) -> bool| {
        world.sent.iter().filter(|event| wanted(event)).count()
    };
    let is_end = |event: &LauncherEvent| {
        matches!(
            event,
            LauncherEvent::StepEnded {
                step: StepNo(1),
                ..
            }
        )
    };
    for has_ended in [false, true] {
        let mut world = World::new();
        let job = batch(&mut world);
        world.start_step(job, StepNo(0));
        let stepd = world.pids(|kind| matches!(kind, Kind::Stepd(..)))[0];
        world.end_tasks(stepd);
        world.finish_wakeup();
        world.processes.get_mut(&stepd).unwrap().kind = Kind::Stepd(job, Some(StepNo(1)));
        if has_ended {
            world.end_tasks(stepd);
        }
        world.deliver(Event::AgentLost);
        world.sent.clear();
        world.attach();
        let known = world.sent.iter().find_map(|event| match event {
            LauncherEvent::State { jobs, .. } => Some(jobs[0].steps.clone()),
            _ => None,
        });
        assert!(known.unwrap().contains(&StepNo(1)));
        assert_eq!(reported(&world, is_end), usize::from(has_ended));
        if !has_ended {
            world.end_tasks(stepd);
            world.finish_wakeup();
            assert_eq!(reported(&world, is_end), 1);
            // It goes on to other steps.
            world.start_step(job, StepNo(2));
            let of = Kind::Stepd(job, Some(StepNo(2)));
            assert_eq!(world.processes[&stepd].kind, of);
        }
    }
}

#[test]
fn a_daemon_that_is_gone_does_not_lose_the_step_that_it_is_given() {
    let mut world = World::new();
    let job = batch(&mut world);
    world.start_step(job, StepNo(0));
    let stepd = world.pids(|kind| matches!(kind, Kind::Stepd(..)))[0];
    world.attach();
    world.end_tasks(stepd);
    world.finish_wakeup();
    world.end(stepd, SIGKILL);
    world.start_step(job, StepNo(1));
    let ready = |e: &LauncherEvent| {
        matches!(
            e,
            LauncherEvent::StepReady {
                step: StepNo(1),
                ..
            }
        )
    };
    assert!(world.sent.iter().any(ready));
    world.reap();
    assert_eq!(world.pids(|kind| matches!(kind, Kind::Stepd(..))).len(), 1);
}

#[test]
fn a_process_that_is_not_of_the_job_runs_no_step() {
    let mut world = World::new();
    let job = batch(&mut world);
    world.launch(attempt_of(2), JobKind::Batch);
    let other = world.script(attempt_of(2));
    world.command(LauncherCommand::StepAssigned {
        attempt: job,
        step: StepNo(0),
        pid: other,
    });
    world.command(LauncherCommand::StepAssigned {
        attempt: job,
        step: StepNo(1),
        pid: 999_999,
    });
    let is_end = |e: &&LauncherEvent| matches!(e, LauncherEvent::StepEnded { .. });
    assert_eq!(world.sent.iter().filter(is_end).count(), 2);
    assert_eq!(world.launcher.state.jobs[&job].live_step_count(), 0);
    assert!(world.signals.is_empty());
    // The agent that gave them may be lost before it has reported their ends.
    world.sent.clear();
    world.attach();
    assert_eq!(world.sent.iter().filter(is_end).count(), 2);
    for step in [StepNo(0), StepNo(1)] {
        world.command(LauncherCommand::ForgetStep(job, step));
    }
    world.sent.clear();
    world.attach();
    assert_eq!(world.sent.iter().filter(is_end).count(), 0);
}

#[test]
fn steps_that_wait_for_groups_are_refused_when_their_job_ends() {
    let mut world = World::new();
    let job = batch(&mut world);
    // The next launcher has to ask for the groups anew.
    world.crash();
    world.start_step(job, StepNo(0));
    world.terminate(job, false);
    world.answer_look_ups();
    let is_refusal = |e: &LauncherEvent| matches!(e, LauncherEvent::StepFailed { .. });
    assert!(world.sent.iter().any(is_refusal));
    assert!(world.steps.is_empty());
}

#[test]
fn everything_is_killed_before_the_launcher_ends() {
    let mut world = World::new();
    world.epilog = vec!["/epilog".to_owned()];
    world.attach();
    let job = batch(&mut world);
    world.start_step(job, StepNo(0));
    world.deliver(Event::KillAll);
    world.finish_wakeup();
    assert!(!world.launcher.may_exit());
    world.reap();
    assert!(world.launcher.may_exit());
    assert!(world.processes.is_empty() && world.epilogs == 0);
}

#[test]
fn a_busy_launcher_does_not_stop() {
    let mut world = World::new();
    batch(&mut world);
    let (conn, kill) = (RootConnId(5), false);
    let mut actions = Vec::new();
    let stop = Event::StopRequested { conn, kill };
    world.launcher.on_event(stop, world.now, &mut actions);
    let busy = Action::Answer(conn, LauncherEvent::Busy(1));
    assert_eq!(format!("{actions:?}"), format!("[{busy:?}]"));
    assert!(!world.launcher.may_exit());
}

#[test]
fn a_script_of_which_the_kernel_has_killed_processes_is_reported_so_also_after_a_crash() {
    let mut world = World::new();
    let job = batch(&mut world);
    world.deliver(Event::ScriptOutOfMemory(job, 3));
    world.end_and_reap(world.script(job), 0);
    let is_so = |world: &World| {
        let outcome = world.outcome(job);
        matches!(
            outcome,
            Some(LauncherEvent::BatchEnded { oom_kills: 3, .. })
        )
    };
    assert!(is_so(&world));
    world.crash();
    assert!(is_so(&world));
}
