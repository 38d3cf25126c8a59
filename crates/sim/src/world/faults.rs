//! Faults, and their repairs.

use super::{Outcome, World, WorldEvent, trace};
use crate::outlets::Thread;
use muster_journal::Crash;
use std::io::ErrorKind;

/// Faults that are in force.
#[derive(Default)]
pub(crate) struct Faults {
    /// Point of the controller's death in its next turn that makes events.
    pub(crate) crash: Option<CrashPoint>,
    /// Accounting writes nothing until then.
    pub(crate) accounting_stalls_until: u64,
    /// Messages take long until then.
    pub(crate) slow_until: u64,
    disk_is_full: bool,
    /// Operations of the storage fail.
    pub(crate) storage_fails: bool,
    /// One operation was made to fail, or will be.
    pub(crate) operation_fails: bool,
    /// Syncs are slow until then.
    pub(crate) slow_syncs_until: u64,
    /// A sync is under way.
    pub(crate) busy: bool,
    /// A turn waits for space on the disk.
    pub(crate) blocked: bool,
    /// Where the writer panics next.
    pub(crate) panic: Option<Thread>,
    /// The writer takes no more turns in this life.
    pub(crate) writer_ended: bool,
    /// Since when nothing has kept the controller from its work, milliseconds.
    pub(crate) able_since: u64,
}

/// Where in a turn the controller dies.
#[derive(Clone, Copy, Debug)]
pub(crate) enum CrashPoint {
    /// In an operation of the append: 1 is its write, 2 its sync, 3 what comes after.
    InAppend {
        /// Which.
        operation: u64,
        /// State of the disk afterwards.
        crash: Crash,
    },
    /// The batch is durable, nothing was sent.
    AfterAppend {
        /// State of the disk afterwards.
        crash: Crash,
    },
    /// Some replies were sent.
    BetweenReplies {
        /// State of the disk afterwards.
        crash: Crash,
    },
}

impl CrashPoint {
    /// State of the disk afterwards.
    pub(crate) fn kind(self) -> Crash {
        match self {
            CrashPoint::InAppend { crash, .. }
            | CrashPoint::AfterAppend { crash }
            | CrashPoint::BetweenReplies { crash } => crash,
        }
    }
}

/// A fault that is repaired later.
pub(crate) enum Repair {
    /// There is space on the disk again.
    Disk,
    /// The storage works again.
    Storage,
}

impl Faults {
    /// Whether a start of the controller may fail.
    pub(crate) fn disk_is_broken(&self) -> bool {
        self.storage_may_fail()
    }

    /// Whether the disk is full or broken.
    pub(crate) fn storage_may_fail(&self) -> bool {
        self.disk_is_full || self.storage_fails
    }
}

/// Faults of the cluster, with the world around it.
pub(super) struct FaultInjector<'w> {
    pub(super) world: &'w mut World,
}

impl World {
    /// Returns the injector of faults, with the world around it.
    pub(super) fn fault_injector(&mut self) -> FaultInjector<'_> {
        FaultInjector { world: self }
    }
}

impl FaultInjector<'_> {
    /// Breaks something and plans the next.
    pub(crate) fn fault(&mut self) -> Outcome {
        if self.world.healing_since.is_some() {
            return Ok(());
        }
        let delay = self.world.random.around(9_000);
        self.world.later(delay, WorldEvent::Fault);
        let node = self.world.random.below(self.world.nodes.len() as u64) as usize;
        match self.world.random.below(17) {
            0..=4 => self.plan_crash(),
            5 => {
                trace!(self.world, "FAULT the controller is killed between turns");
                if self.world.controller.is_some() {
                    let crash = self.crash_kind();
                    self.world.controller_process().die(crash);
                }
            }
            6 => {
                let room = self.world.random.below(2_000);
                let used = self.world.storage.used();
                trace!(self.world, "FAULT the disk is full but for {room} bytes");
                self.world.storage.set_capacity(Some(used + room));
                self.world.faults.disk_is_full = true;
                let delay = self.world.random.around(10_000);
                self.world.later(delay, WorldEvent::Repair(Repair::Disk));
            }
            7 if self.world.controller.is_some() => {
                let operation = self.world.random.between(1, 3);
                trace!(self.world, "FAULT operation {operation} of the disk fails");
                self.world.storage.fail_at(operation, ErrorKind::Other);
                self.world.faults.operation_fails = true;
            }
            8 | 9 => {
                trace!(self.world, "FAULT a connection breaks");
                self.world.network().cut(node);
            }
            10 => return self.world.machines().agent_dies(node),
            11 => return self.world.machines().reboot(node),
            12 => {
                let time = self.world.random.around(60_000);
                trace!(
                    self.world,
                    "FAULT {} is cut off for {time} ms", self.world.nodes[node].name
                );
                self.world.nodes[node].cut_off_until = self.world.now + time;
                self.world.network().cut(node);
            }
            13 => {
                let time = self.world.random.around(60_000);
                trace!(self.world, "FAULT accounting stalls for {time} ms");
                self.world.faults.accounting_stalls_until = self.world.now + time;
            }
            14 => {
                let time = self.world.random.around(10_000);
                trace!(self.world, "FAULT the network is slow for {time} ms");
                self.world.faults.slow_until = self.world.now + time;
            }
            15 => self.jump(),
            16 => return self.world.machines().launcher_dies(node),
            _ => {}
        }
        Ok(())
    }

    fn plan_crash(&mut self) {
        let crash = self.crash_kind();
        let point = match self.world.random.below(4) {
            0 | 1 => CrashPoint::InAppend {
                operation: self.world.random.between(1, 4),
                crash,
            },
            2 => CrashPoint::AfterAppend { crash },
            _ => CrashPoint::BetweenReplies { crash },
        };
        trace!(self.world, "FAULT planned: {point:?}");
        self.world.faults.crash = Some(point);
    }

    fn crash_kind(&mut self) -> Crash {
        match self.world.random.below(3) {
            0 => Crash::Process,
            1 => Crash::Power,
            _ => Crash::Torn(self.world.random.next()),
        }
    }

    /// The controller's clock is set: far forward, or a little back.
    fn jump(&mut self) {
        let by = match self.world.random.below(3) {
            0 => i64::try_from(self.world.random.around(600_000)).unwrap_or(0),
            1 => i64::try_from(self.world.random.around(3_000)).unwrap_or(0),
            _ => -i64::try_from(self.world.random.around(1_500)).unwrap_or(0),
        };
        trace!(self.world, "FAULT the controller's clock jumps by {by} ms");
        self.world.skew += by;
    }

    pub(crate) fn repair(&mut self, repair: Repair) {
        self.world.faults.able_since = self.world.now;
        match repair {
            Repair::Disk => {
                trace!(self.world, "the disk has room again");
                self.world.storage.set_capacity(None);
                self.world.faults.disk_is_full = false;
            }
            Repair::Storage => {
                trace!(self.world, "the storage works again");
                self.world.storage.fail_while(None);
                self.world.faults.storage_fails = false;
            }
        }
    }

    /// Ends every fault that is in force.
    pub(crate) fn end_faults(&mut self) {
        trace!(self.world, "the faults are over");
        self.repair(Repair::Disk);
        self.repair(Repair::Storage);
        self.world.faults = Faults {
            // Its storage may be set to halt by now.
            crash: self.world.faults.crash,
            busy: self.world.faults.busy,
            blocked: self.world.faults.blocked,
            writer_ended: self.world.faults.writer_ended,
            operation_fails: self.world.faults.operation_fails,
            able_since: self.world.now,
            ..Faults::default()
        };
        for node in &mut self.world.nodes {
            node.cut_off_until = 0;
            node.disk.fault = None;
        }
    }
}
