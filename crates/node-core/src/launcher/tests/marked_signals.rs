//! Signals for a whole job, which an srun in its script knows.

use super::*;
use muster_model::command::SignalScope;

/// An srun in the script would pass them on otherwise, and the tasks would get them twice.
#[test]
fn signals_for_a_whole_job_are_marked() {
    let mut world = World::new();
    let job = attempt_of(7);
    world.launch(job, JobKind::Batch);
    let mut signal = |step, signal: u32, scope| {
        world.order(Order::Signal {
            job: job.job,
            attempt: job.attempt,
            step,
            signal,
            scope,
            cancelled_by: None,
        });
    };
    signal(None, 10, SignalScope::Full);
    signal(Some(StepNo::BATCH), 12, SignalScope::Steps);
    signal(None, 14, SignalScope::Batch);
    let script = world.script(job);
    assert_eq!(world.signals, [(script, 10), (script, 12), (script, 14)]);
    assert_eq!(world.signals_for_steps_too, [10]);
}
