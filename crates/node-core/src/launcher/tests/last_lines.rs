//! The last lines of a script's standard error, which its job's mail has.

use super::*;
use muster_model::mail::MailOptions;
use muster_model::spec::StdioSpec;

/// A job whose mails have the last two lines.
fn job_with_lines(world: &mut World) -> JobAttempt {
    let job = attempt_of(1);
    let mut grant = grant(job, JobKind::Batch);
    let spec = JobSpec {
        mail: Some(MailOptions {
            types: "END".to_owned(),
            lines: Some(2),
            ..MailOptions::default()
        }),
        stdio: StdioSpec {
            stderr: Some("err.%j".to_owned()),
            ..StdioSpec::default()
        },
        ..(*grant.spec).clone()
    };
    grant.spec = std::sync::Arc::new(spec);
    world.order(Order::Launch(Box::new(grant)));
    world.answer_look_ups();
    job
}

fn lines_of(world: &World, job: JobAttempt) -> Option<String> {
    match world.outcome(job) {
        Some(LauncherEvent::BatchEnded { last_lines, .. }) => last_lines.clone(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_end_of_a_script_comes_with_its_last_lines() {
    let mut world = World::new();
    let job = job_with_lines(&mut world);
    world.end_and_reap(world.script(job), 256);
    assert_eq!(world.read, [(job, "err.1".to_owned())]);
    assert!(world.outcome(job).is_none() && !world.is_released(job));
    world.deliver(Event::LastLinesRead(
        job,
        b"one\ntwo\0\x1b\r\nthr\xffee\n".to_vec(),
    ));
    world.finish_wakeup();
    assert_eq!(
        lines_of(&world, job).as_deref(),
        Some("two??\nthr\u{fffd}ee\n")
    );
    assert!(world.is_released(job));
    assert!(world.timers.is_empty(), "{:?}", world.timers);
    // What comes late is nobody's.
    world.deliver(Event::LastLinesRead(job, b"late\n".to_vec()));
}

#[test]
fn a_file_that_cannot_be_read_holds_no_job() {
    let mut world = World::new();
    let job = job_with_lines(&mut world);
    world.end_and_reap(world.script(job), 0);
    // Its process may be another's meanwhile, and gets no signals.
    world.terminate(job, false);
    assert!(world.signals.is_empty(), "{:?}", world.signals);
    assert_eq!(world.phase(job), NodeJobPhase::Ending);
    while world.outcome(job).is_none() {
        assert!(world.fire_timer());
    }
    assert!(world.now.mono_ms <= 1_000_000 + 2_000);
    assert!(world.read.is_empty(), "it is stopped");
    assert_eq!(lines_of(&world, job), None);
    assert!(world.is_released(job));
}

#[test]
fn a_launcher_that_is_lost_meanwhile_leaves_the_end() {
    let mut world = World::new();
    let job = job_with_lines(&mut world);
    world.end_and_reap(world.script(job), 256);
    world.crash();
    assert_eq!(lines_of(&world, job), None);
    assert!(world.is_released(job));
}

#[test]
fn files_of_other_jobs_are_not_read() {
    let mut world = World::new();
    let job = attempt_of(1);
    world.launch(job, JobKind::Batch);
    world.end_and_reap(world.script(job), 256);
    assert!(world.read.is_empty() && world.is_released(job));
}
