//! Storage that fails in ways other than a full disk: descriptors that run out, errors of the device, syncs that take
//! seconds; the controller's journal, its accounting store, and what nodes write down.

use super::faults::FaultInjector;
use super::{WorldEvent, trace};
use crate::classes::FaultClass;
use crate::node::DiskFault;
use crate::world::faults::Repair;
use muster_journal::Operation;

const EIO: i32 = 5;
const ENFILE: i32 = 23;
const EMFILE: i32 = 24;
const ENOSPC: i32 = 28;

/// Failing operations, with their errors.
const FAILURES: [(Operation, i32); 9] = [
    (Operation::Open, EMFILE),
    (Operation::Open, ENFILE),
    (Operation::Open, EIO),
    (Operation::Write, ENOSPC),
    (Operation::Write, EIO),
    (Operation::Sync, EIO),
    (Operation::Sync, ENOSPC),
    (Operation::Rename, EIO),
    (Operation::Rename, ENOSPC),
];

/// Longest sync, milliseconds.
const SLOWEST_SYNC_MS: u64 = 8_000;

impl FaultInjector<'_> {
    /// The controller's storage begins to fail, for an instant or for longer.
    pub(crate) fn break_the_storage(&mut self) {
        if self.world.healing_since.is_some() || !self.world.has(FaultClass::FailingStorage) {
            return;
        }
        let delay = self.world.chaos.around(15_000);
        self.world.later(delay, WorldEvent::BreakStorage);
        let (operation, error) = *self.world.chaos.pick(&FAILURES);
        let time = match self.world.chaos.below(3) {
            0 => self.world.chaos.below(20),
            1 => self.world.chaos.around(1_000),
            _ => self.world.chaos.around(10_000),
        };
        trace!(
            self.world,
            "FAULT {operation:?} fails with error {error} for {time} ms"
        );
        self.world.storage.fail_while(Some((operation, error)));
        self.world.faults.storage_fails = true;
        self.world.later(time, WorldEvent::Repair(Repair::Storage));
        if self.world.chaos.one_in(3) {
            // The file system also holds the accounting store.
            self.world.faults.accounting_stalls_until = self.world.now + time;
        }
    }

    /// Syncs begin to take long.
    pub(crate) fn slow_the_disk(&mut self) {
        if self.world.healing_since.is_some() || !self.world.has(FaultClass::SlowSyncs) {
            return;
        }
        let delay = self.world.chaos.around(30_000);
        self.world.later(delay, WorldEvent::SlowDisk);
        let time = self.world.chaos.around(15_000);
        trace!(self.world, "FAULT syncs are slow for {time} ms");
        self.world.faults.slow_syncs_until = self.world.now + time;
    }

    /// Time of the sync of this turn, milliseconds.
    pub(crate) fn sync_time(&mut self) -> u64 {
        match self.world.now < self.world.faults.slow_syncs_until {
            true => self.world.chaos.between(200, SLOWEST_SYNC_MS),
            false => 0,
        }
    }

    /// A node cannot write its records, or open files, for a while.
    pub(crate) fn break_a_node(&mut self) {
        if self.world.healing_since.is_some() || !self.world.has(FaultClass::FailingNodes) {
            return;
        }
        let delay = self.world.chaos.around(15_000);
        self.world.later(delay, WorldEvent::BreakNode);
        let node = self.world.chaos.below(self.world.nodes.len() as u64) as usize;
        let time = self.world.chaos.around(8_000);
        let faults = [DiskFault::Full, DiskFault::Broken, DiskFault::NoDescriptors];
        let fault = *self.world.chaos.pick(&faults);
        trace!(
            self.world,
            "FAULT {}: {}, for {time} ms",
            self.world.nodes[node].name,
            fault.failure().error
        );
        self.world.nodes[node].disk.fault = Some((self.world.now + time, fault));
    }
}
