//! Bytes of messages that wait for a thread. Who sends them waits where they would become too many.

use crate::watchdog::{ThreadActivity, ThreadHeartbeat};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Bytes of messages that were not worked off yet.
#[derive(Debug, Default)]
pub(crate) struct Backlog {
    bytes: Mutex<usize>,
    fewer: Condvar,
}

/// The bytes of a message, which are counted until this is dropped.
#[derive(Debug)]
pub struct WaitingBytes {
    bytes: usize,
    backlog: Arc<Backlog>,
}

impl Backlog {
    /// Bytes that wait.
    pub(crate) fn bytes(&self) -> MutexGuard<'_, usize> {
        self.bytes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts bytes once no more than `most` wait with them, or no others.
    pub(crate) fn wait_for_room(
        self: &Arc<Self>,
        bytes: usize,
        most: usize,
        pulse: &ThreadHeartbeat,
    ) -> WaitingBytes {
        let is_full = |waiting: &usize| *waiting > 0 && waiting.saturating_add(bytes) > most;
        let mut waiting = self.bytes();
        if is_full(&waiting) {
            pulse.begin_activity(ThreadActivity::Handing);
            let fewer = &self.fewer;
            waiting = (fewer.wait_while(waiting, |waiting| is_full(waiting)))
                .unwrap_or_else(PoisonError::into_inner);
            pulse.begin_activity(ThreadActivity::Sending);
        }
        *waiting = waiting.saturating_add(bytes);
        drop(waiting);
        WaitingBytes {
            bytes,
            backlog: Arc::clone(self),
        }
    }
}

impl Drop for WaitingBytes {
    fn drop(&mut self) {
        let mut all = self.backlog.bytes();
        *all = all.saturating_sub(self.bytes);
        drop(all);
        self.backlog.fewer.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{TryRecvError, channel};
    use std::time::Duration;

    /// The channel took whatever the writer sent, as fast as the disk of the journal let it, while another kept the replica waiting.
    #[test]
    fn the_writer_waits_for_a_replica_that_is_too_far_behind() {
        let backlog = Arc::new(Backlog::default());
        let pulse = ThreadHeartbeat::new("writer");
        // A message that is larger is sent alone.
        let large = backlog.wait_for_room(300, 100, &pulse);
        drop(large);
        let first = backlog.wait_for_room(60, 100, &pulse);
        let second = backlog.wait_for_room(40, 100, &pulse);
        pulse.begin(ThreadActivity::Sending);
        std::thread::scope(|scope| {
            let (done, is_done) = channel();
            let (backlog, pulse) = (&backlog, &pulse);
            let writer = scope.spawn(move || {
                let third = backlog.wait_for_room(50, 100, pulse);
                done.send(()).unwrap();
                drop(third);
            });
            // While it waits it does not count as stuck.
            while pulse.busy().is_some() && !writer.is_finished() {
                std::thread::yield_now();
            }
            assert_eq!(is_done.try_recv(), Err(TryRecvError::Empty));
            // Not enough for it.
            drop(second);
            assert_eq!(is_done.try_recv(), Err(TryRecvError::Empty));
            drop(first);
            is_done.recv_timeout(Duration::from_secs(60)).unwrap();
        });
        assert_eq!(*backlog.bytes(), 0);
    }
}
