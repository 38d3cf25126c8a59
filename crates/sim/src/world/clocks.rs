//! The clocks of the controller's machine: the wall clock, which somebody sets, and the time since its boot. What the
//! controller makes of them is its own rule ([`muster_ctld::clock::SteadyClock`]). Jobs must get the time that they are
//! allowed, whatever the wall clock does.

use super::{EPOCH_MS, Outcome, World, WorldEvent, trace};
use crate::Violation;
use crate::classes::FaultClass;
use crate::ledger::LimitEnd;
use muster_ctld::clock::{Reading, SteadyClock, latest};
use muster_model::job::JobState;
use muster_model::time::Timestamp;

/// Time by which the end of a job may differ from its limit, milliseconds: turns, delays of the network.
const SLACK_MS: u64 = 3_000;
/// Time after the limit, and after the controller could act, in which a job is ended.
const ENDED_WITHIN_MS: u64 = 30_000;
const HOUR_MS: u64 = 3_600_000;

/// The clocks of the controller's machine, with the world around it.
pub(super) struct ControllerClock<'w> {
    pub(super) world: &'w mut World,
}

impl World {
    /// The clocks of the controller's machine, with the world around it.
    pub(super) fn controller_clock(&mut self) -> ControllerClock<'_> {
        ControllerClock { world: self }
    }
}

impl World {
    /// The true time.
    pub(crate) fn time(&self) -> Timestamp {
        Timestamp(EPOCH_MS).plus_ms(self.now)
    }

    /// What the wall clock of the controller's machine says.
    pub(crate) fn wall(&self) -> Timestamp {
        Timestamp(self.time().0.saturating_add(self.skew))
    }

    fn reading(&self) -> Reading {
        let boot_ms = i64::try_from(self.now - self.booted_ms).unwrap_or(0);
        Reading {
            wall_us: self.wall().0.saturating_mul(1000),
            boot_us: boot_ms.saturating_mul(1000),
        }
    }

    /// What the controller takes for the time.
    pub(crate) fn clock(&mut self) -> Timestamp {
        let reading = self.reading();
        match &mut self.steady {
            Some(clock) => clock.read(reading),
            None => self.wall(),
        }
    }

    /// A job that was ended by its limit had its time.
    pub(crate) fn invariant_limits_are_not_early(&self, end: &LimitEnd) -> Outcome {
        if self.is_before_clock_loss(end.decided_ms) {
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
    pub(crate) fn invariant_limits_are_enforced(&self) -> Outcome {
        let Some(controller) = &self.controller else {
            return Ok(());
        };
        let able = self.now.saturating_sub(self.faults.able_since) > ENDED_WITHIN_MS;
        if !able || self.faults.storage_may_fail() || self.faults.busy {
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
            let launch = self.ledger.launch(job.id, job.attempt);
            let (Some(launch), Some(limit_s)) = (launch, job.time_limit.seconds()) else {
                continue;
            };
            if self.is_before_clock_loss(launch.decided_ms) {
                continue;
            }
            // Time that passes a quarter slower while the clock falls back.
            let ran = launch.ran_ms(self.now);
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

    fn is_before_clock_loss(&self, decided_ms: u64) -> bool {
        let lost = self.ledger.clock_lost_ms;
        lost.is_some_and(|at| decided_ms <= at)
    }
}

impl ControllerClock<'_> {
    /// The controller's clock starts with its process.
    pub(crate) fn start_clock(&mut self) {
        let Some(controller) = &self.world.controller else {
            return;
        };
        let latest = latest(controller.writer.state());
        self.world.steady = Some(SteadyClock::start(
            self.world.reading(),
            self.world.kept_clock,
            latest,
        ));
        self.follow_clock();
    }

    /// What the writer does with its clock between turns.
    pub(crate) fn follow_clock(&mut self) {
        let reading = self.world.reading();
        let Some(controller) = &self.world.controller else {
            return;
        };
        let idle = controller.writer.state().active.is_empty();
        if let Some(clock) = &mut self.world.steady {
            if idle {
                clock.catch_up(reading);
            } else {
                clock.read(reading);
            }
            self.world.kept_clock = clock.offset_to_keep().or(self.world.kept_clock);
        }
    }

    /// The machine booted: what was known of its clocks is void.
    pub(crate) fn clocks_are_lost(&mut self) {
        self.world.booted_ms = self.world.now;
        self.world.kept_clock = None;
        self.world.ledger.clock_lost_ms = Some(self.world.now);
    }

    /// The wall clock is set.
    pub(crate) fn set_the_clock(&mut self) {
        if self.world.healing_since.is_some() || !self.world.has(FaultClass::ClockSteps) {
            return;
        }
        let delay = self.world.chaos.around(25_000);
        self.world.later(delay, WorldEvent::SetClock);
        let by = match self.world.chaos.below(3) {
            0 => self.world.chaos.between(1, 120),
            1 => self.world.chaos.between(60, 7_200),
            _ => self.world.chaos.between(24, 72) * HOUR_MS / 1000,
        };
        let by = i64::try_from(by * 1000).unwrap_or(0);
        let by = if self.world.chaos.one_in(2) { by } else { -by };
        trace!(self.world, "FAULT the wall clock is set by {} s", by / 1000);
        // Back to about the true time, sooner or later.
        self.world.skew = if self.world.chaos.one_in(3) {
            0
        } else {
            self.world.skew + by
        };
    }
}
