//! Numbers of steps are on file before the steps start.

use super::scenarios::batch;
use super::*;
use crate::kept::KEPT_NEXT;

impl World {
    /// The agent keeps the job's next number and starts a step at once.
    fn number_and_start_step(&mut self, attempt: JobAttempt, step: StepNo) {
        let key = KEPT_NEXT;
        let bytes: Vec<u8> = vec![u8::try_from(step.0).unwrap() + 1];
        self.deliver(Event::Command(LauncherCommand::Keep {
            attempt,
            key,
            bytes: bytes.into(),
        }));
        self.start_step(attempt, step);
    }
}

/// Both the launcher and the agent may be lost right after the step has begun: the next ones would give its number to another.
#[test]
fn a_step_is_refused_whose_number_cannot_be_written() {
    let mut world = World::new();
    let job = batch(&mut world);
    world.is_full = true;
    world.number_and_start_step(job, StepNo(0));
    assert!(world.steps.is_empty());
    let wanted = "cannot write /spool/attempts: it is full";
    let is_refusal =
        |e: &LauncherEvent| matches!(e, LauncherEvent::StepFailed { error, .. } if error == wanted);
    assert!(world.sent.iter().any(is_refusal));
    world.is_full = false;
    world.number_and_start_step(job, StepNo(1));
    assert_eq!(world.steps.len(), 1);
    let on_file = format!("\nK 1 1 {KEPT_NEXT} 02\n");
    assert!(world.records.contains(&on_file), "{}", world.records);
}

#[test]
fn a_step_waits_for_the_write_of_its_number_and_others_do_not_wait_again() {
    let mut world = World::new();
    let job = batch(&mut world);
    let written = world.records.len();
    world.deliver(Event::Command(LauncherCommand::Keep {
        attempt: job,
        key: KEPT_NEXT,
        bytes: vec![1].into(),
    }));
    world.deliver(Event::StartStep {
        order: step_order(job, StepNo(0)),
        random: Some(1),
    });
    assert!(world.steps.is_empty() && world.records.len() == written);
    world.finish_wakeup();
    assert!(world.steps.len() == 1 && world.records.len() > written);
    world.deliver(Event::StartStep {
        order: step_order(job, StepNo(1)),
        random: Some(1),
    });
    assert_eq!(world.steps.len(), 2, "there was nothing to write");
}
