//! Whether accounting holds everything that happened up to some time ago, so that ended jobs may leave memory.

use muster_journal::Position;
use muster_model::time::Timestamp;
use std::collections::VecDeque;

/// Time between two samples, milliseconds.
const SAMPLE_MS: u64 = 100;

/// Tells the journal position that accounting has reached.
pub type StoredPosition = Box<dyn Fn() -> Position + Send>;

/// Journal positions by time, against the position that accounting has reached.
pub struct Accounted {
    stored: StoredPosition,
    samples: VecDeque<(Timestamp, Position)>,
}

impl Accounted {
    /// The journal is at `position`. The age of its records is not known, so all of them count as old enough.
    pub fn new(stored: StoredPosition, position: Position) -> Accounted {
        Accounted {
            stored,
            samples: VecDeque::from([(Timestamp(0), position)]),
        }
    }

    /// Remembers that the journal stood at `position` at this time.
    pub fn note(&mut self, now: Timestamp, position: Position) {
        // After the clock was set back, later samples count as of now: too old rather than too young.
        while self.samples.back().is_some_and(|last| last.0 > now) {
            self.samples.pop_back();
        }
        match self.samples.back_mut() {
            Some(last) if now.since_ms(last.0) < SAMPLE_MS => last.1 = position,
            _ => self.samples.push_back((now, position)),
        }
    }

    /// Whether everything older than `age_s` seconds is in the store.
    pub fn covers(&mut self, now: Timestamp, age_s: u64) -> bool {
        let stored = (self.stored)();
        // The first sample at or after that time stands for everything before it; older ones are of no use.
        while self.samples.len() > 1 && now.since_ms(self.samples[1].0) >= age_s * 1000 {
            self.samples.pop_front();
        }
        let Some(&(at, position)) = self.samples.front() else {
            return true;
        };
        if now.since_ms(at) >= age_s * 1000 {
            self.samples.get(1).map_or(position, |next| next.1) <= stored
        } else {
            position <= stored
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_is_set_back_makes_nothing_younger() {
        let mut accounted = Accounted::new(Box::new(|| 15), 0);
        for (at, position) in [(50_000, 10), (70_000, 14), (90_000, 15)] {
            accounted.note(Timestamp(at), position);
        }
        // It goes back; something happens that accounting, which has the first 15, does not get.
        accounted.note(Timestamp(60_000), 16);
        assert!(accounted.covers(Timestamp(79_000), 30));
        assert!(!accounted.covers(Timestamp(90_000), 30));
        assert!(!accounted.covers(Timestamp(200_000), 30));
    }
}
