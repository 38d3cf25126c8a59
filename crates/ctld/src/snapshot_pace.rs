//! When a snapshot of the state is due. It costs what the state is large, and must stay a small part of what the events cost that
//! it stands for; until there is one, the journal keeps them, and a restart replays them.

/// Events after which the log's head is cut by a snapshot, if there are few jobs.
const EVENTS: u64 = 500_000;
/// Events for each job after which it is cut.
const EVENTS_PER_JOB: u64 = 4;
/// Bytes of the journal after which its head is cut, if the state is small: a few events may be long.
const BYTES: u64 = 256 << 20;
/// Bytes for each byte of the last snapshot after which it is cut.
const BYTES_PER_BYTE: u64 = 4;

/// The size of the journal since the last snapshot.
#[derive(Clone, Copy, Debug, Default)]
pub struct SnapshotPace {
    events: u64,
    bytes: u64,
    last_bytes: u64,
}

impl SnapshotPace {
    /// Nothing yet, after a snapshot of that length.
    pub(crate) fn since_snapshot(bytes: usize) -> SnapshotPace {
        SnapshotPace {
            events: 0,
            bytes: 0,
            last_bytes: bytes as u64,
        }
    }

    /// The journal holds more.
    pub(crate) fn add(&mut self, events: u64, bytes: u64) {
        self.events = self.events.saturating_add(events);
        self.bytes = self.bytes.saturating_add(bytes);
    }

    /// The size together with a later part, if there was no snapshot between.
    pub(crate) fn merge(mut self, later: SnapshotPace) -> SnapshotPace {
        self.add(later.events, later.bytes);
        self
    }

    /// Whether another snapshot is due with this number of jobs.
    pub(crate) fn is_due(&self, jobs: usize) -> bool {
        let events = (jobs as u64).saturating_mul(EVENTS_PER_JOB).max(EVENTS);
        let bytes = self.last_bytes.saturating_mul(BYTES_PER_BYTE).max(BYTES);
        self.events >= events || self.bytes >= bytes
    }

    /// Bytes that the journal holds since then.
    #[cfg(test)]
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The length of the last snapshot.
    pub(crate) fn last_bytes(&self) -> usize {
        usize::try_from(self.last_bytes).unwrap_or(usize::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn snapshots_are_due_by_events_and_by_bytes() {
        let mut pace = SnapshotPace::since_snapshot(0);
        pace.add(EVENTS - 1, BYTES - 1);
        assert!(!pace.is_due(10));
        let (mut events, mut bytes) = (pace, pace);
        events.add(1, 0);
        bytes.add(0, 1);
        assert!(events.is_due(10) && bytes.is_due(10));
        // Many jobs make events cheap, and a large state bytes.
        assert!(!events.is_due(EVENTS as usize));
        let mut large = SnapshotPace::since_snapshot(BYTES as usize);
        large.add(0, 4 * BYTES - 1);
        assert!(!large.is_due(10));
        large.add(0, 1);
        assert!(large.is_due(10));
    }
}
