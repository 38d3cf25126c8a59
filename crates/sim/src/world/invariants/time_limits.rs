//! Invariants about time limits of jobs.

use crate::Violation;
use crate::ledger::LimitEnd;
use crate::world::{Outcome, World};
use muster_model::job::JobState;

/// Time by which the end of a job may differ from its limit, milliseconds: turns, delays of the network.
const SLACK_MS: u64 = 3_000;
/// Time after the limit, and after the controller could act, in which a job is ended.
const ENDED_WITHIN_MS: u64 = 30_000;

/// A job that was ended by its limit had its time.
pub(crate) fn invariant_limits_are_not_early(world: &World, end: &LimitEnd) -> Outcome {
    if is_before_clock_loss(world, end.decided_ms) {
        return Ok(());
    }
    // Time that passes a fiftieth faster while the clock catches up.
    let had = end.ran_ms + end.ran_ms / 50 + SLACK_MS;
    if had >= end.limit_ms {
        return Ok(());
    }
    Err(Violation::new(
        "invariant_limits_are_not_early",
        format!(
            "job {} was ended by its limit of {} s after {} s",
            end.job,
            end.limit_ms / 1000,
            end.ran_ms / 1000
        ),
    ))
}

/// A job that has had its time is ended.
pub(crate) fn invariant_limits_are_enforced(world: &World) -> Outcome {
    let Some(controller) = &world.controller else {
        return Ok(());
    };
    let able = world.now.saturating_sub(world.faults.able_since) > ENDED_WITHIN_MS;
    if !able || world.faults.storage_may_fail() || world.faults.busy {
        return Ok(());
    }
    let state = controller.writer.state();
    for id in &state.active {
        let Some(job) = state.jobs.get(id) else {
            continue;
        };
        if job.state != JobState::Running || job.completing || job.configuring {
            continue;
        }
        let launch = world.ledger.launch(job.id, job.attempt);
        let (Some(launch), Some(limit_s)) = (launch, job.time_limit.seconds()) else {
            continue;
        };
        if is_before_clock_loss(world, launch.decided_ms) {
            continue;
        }
        // Time that passes a quarter slower while the clock falls back.
        let ran = launch.ran_ms(world.now);
        if ran * 3 / 4 > limit_s * 1000 + ENDED_WITHIN_MS {
            return Err(Violation::new(
                "invariant_limits_are_enforced",
                format!(
                    "job {} has run for {} s, its limit is {limit_s} s",
                    job.id,
                    ran / 1000
                ),
            ));
        }
    }
    Ok(())
}

fn is_before_clock_loss(world: &World, decided_ms: u64) -> bool {
    let lost = world.ledger.clock_lost_ms;
    lost.is_some_and(|at| decided_ms <= at)
}
