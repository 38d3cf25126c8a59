//! The clocks of the controller's machine: the wall clock, which somebody sets, and the time since its boot. What the
//! controller makes of them is its own rule ([`muster_ctld::clock::SteadyClock`]). Jobs must get the time that they are
//! allowed, whatever the wall clock does.

use super::{EPOCH_MS, World, WorldEvent, trace};
use crate::classes::FaultClass;
use muster_ctld::clock::{ClockReading, SteadyClock, latest};
use muster_model::time::Timestamp;

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

    /// The wall clock of the controller's machine.
    pub(crate) fn wall(&self) -> Timestamp {
        Timestamp(self.time().0.saturating_add(self.skew))
    }

    fn reading(&self) -> ClockReading {
        let boot_ms = i64::try_from(self.now - self.booted_ms).unwrap_or(0);
        ClockReading {
            wall_us: self.wall().0.saturating_mul(1000),
            boot_us: boot_ms.saturating_mul(1000),
        }
    }

    /// The controller's time.
    pub(crate) fn clock(&mut self) -> Timestamp {
        let reading = self.reading();
        match &mut self.steady {
            Some(clock) => clock.read(reading),
            None => self.wall(),
        }
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

    /// Work of the writer on its clock between turns.
    pub(crate) fn follow_clock(&mut self) {
        let reading = self.world.reading();
        let Some(controller) = &self.world.controller else {
            return;
        };
        let idle = !self.world.faults.blocked && controller.writer.state().active.is_empty();
        if let Some(clock) = &mut self.world.steady {
            if idle {
                clock.catch_up(reading);
            } else {
                clock.read(reading);
            }
            self.world.kept_clock = clock.offset_to_keep().or(self.world.kept_clock);
        }
    }

    /// The machine booted: earlier knowledge of its clocks is void.
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
