//! Signals to the steps of a job that has had none.

use super::*;
use muster_model::command::SignalScope;

const A: u64 = 1;

fn batch(world: &mut World) -> JobAttempt {
    world.launch(attempt_of(A), JobKind::Batch);
    attempt_of(A)
}

/// A signal to a job right after its submission was lost, as it had no step yet.
#[test]
fn a_signal_from_before_the_first_step_reaches_it_alone() {
    let mut world = World::new();
    let job = batch(&mut world);
    let signal = |signal: i32| Order::Signal {
        job: job.job,
        attempt: job.attempt,
        step: None,
        signal: signal.unsigned_abs(),
        scope: SignalScope::Steps,
        cancelled_by: None,
    };
    world.order(signal(10));
    world.order(signal(10));
    assert!(world.signals.is_empty());
    world.start_step(job, StepNo(0));
    let stepd = world.pids(|kind| matches!(kind, Kind::Stepd(..)))[0];
    assert_eq!(world.signals, [(stepd, 10)]);
    world.deliver(Event::StepHasNoTasks(job, StepNo(0), 10));
    assert_eq!(world.later_signals, [10]);
    world.start_step(job, StepNo(1));
    assert_eq!(world.signals.len(), 1);
}

#[test]
fn a_signal_waits_for_the_first_step_for_a_limited_time() {
    let mut world = World::new();
    let job = batch(&mut world);
    world.order(Order::Signal {
        job: job.job,
        attempt: job.attempt,
        step: None,
        signal: 10,
        scope: SignalScope::Steps,
        cancelled_by: None,
    });
    world.now.mono_ms += 30_000;
    world.start_step(job, StepNo(0));
    assert!(world.signals.is_empty());
}
