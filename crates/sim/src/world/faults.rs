//! What breaks, and when it is repaired.

use super::{Outcome, World, WorldEvent, trace};
use crate::outlets::Thread;
use muster_journal::Crash;
use std::io::ErrorKind;

/// Faults that are in force.
#[derive(Default)]
pub(crate) struct Faults {
    /// How the controller dies in its next turn that makes events.
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
        /// What becomes of the disk.
        crash: Crash,
    },
    /// The batch is durable, nothing was sent.
    AfterAppend {
        /// What becomes of the disk.
        crash: Crash,
    },
    /// Some replies were sent.
    BetweenReplies {
        /// What becomes of the disk.
        crash: Crash,
    },
}

impl CrashPoint {
    /// What becomes of the disk.
    pub(crate) fn kind(self) -> Crash {
        match self {
            CrashPoint::InAppend { crash, .. }
            | CrashPoint::AfterAppend { crash }
            | CrashPoint::BetweenReplies { crash } => crash,
        }
    }
}

/// What is repaired later.
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

impl World {
    /// Breaks something and plans the next.
    pub(crate) fn fault(&mut self) -> Outcome {
        if self.healing_since.is_some() {
            return Ok(());
        }
        let delay = self.random.around(9_000);
        self.later(delay, WorldEvent::Fault);
        let node = self.random.below(self.nodes.len() as u64) as usize;
        match self.random.below(17) {
            0..=4 => self.plan_crash(),
            5 => {
                trace!(self, "FAULT the controller is killed between turns");
                if self.controller.is_some() {
                    let crash = self.crash_kind();
                    self.die(crash);
                }
            }
            6 => {
                let room = self.random.below(2_000);
                let used = self.storage.used();
                trace!(self, "FAULT the disk is full but for {room} bytes");
                self.storage.set_capacity(Some(used + room));
                self.faults.disk_is_full = true;
                let delay = self.random.around(10_000);
                self.later(delay, WorldEvent::Repair(Repair::Disk));
            }
            7 if self.controller.is_some() => {
                let operation = self.random.between(1, 3);
                trace!(self, "FAULT operation {operation} of the disk fails");
                self.storage.fail_at(operation, ErrorKind::Other);
                self.faults.operation_fails = true;
            }
            8 | 9 => {
                trace!(self, "FAULT a connection breaks");
                self.cut(node);
            }
            10 => return self.agent_dies(node),
            11 => return self.reboot(node),
            12 => {
                let time = self.random.around(60_000);
                trace!(
                    self,
                    "FAULT {} is cut off for {time} ms", self.nodes[node].name
                );
                self.nodes[node].cut_off_until = self.now + time;
                self.cut(node);
            }
            13 => {
                let time = self.random.around(60_000);
                trace!(self, "FAULT accounting stalls for {time} ms");
                self.faults.accounting_stalls_until = self.now + time;
            }
            14 => {
                let time = self.random.around(10_000);
                trace!(self, "FAULT the network is slow for {time} ms");
                self.faults.slow_until = self.now + time;
            }
            15 => self.jump(),
            16 => return self.launcher_dies(node),
            _ => {}
        }
        Ok(())
    }

    fn plan_crash(&mut self) {
        let crash = self.crash_kind();
        let point = match self.random.below(4) {
            0 | 1 => CrashPoint::InAppend {
                operation: self.random.between(1, 4),
                crash,
            },
            2 => CrashPoint::AfterAppend { crash },
            _ => CrashPoint::BetweenReplies { crash },
        };
        trace!(self, "FAULT planned: {point:?}");
        self.faults.crash = Some(point);
    }

    fn crash_kind(&mut self) -> Crash {
        match self.random.below(3) {
            0 => Crash::Process,
            1 => Crash::Power,
            _ => Crash::Torn(self.random.next()),
        }
    }

    /// The controller's clock is set: far forward, or a little back.
    fn jump(&mut self) {
        let by = match self.random.below(3) {
            0 => i64::try_from(self.random.around(600_000)).unwrap_or(0),
            1 => i64::try_from(self.random.around(3_000)).unwrap_or(0),
            _ => -i64::try_from(self.random.around(1_500)).unwrap_or(0),
        };
        trace!(self, "FAULT the controller's clock jumps by {by} ms");
        self.skew += by;
    }

    pub(crate) fn repair(&mut self, repair: Repair) {
        self.faults.able_since = self.now;
        match repair {
            Repair::Disk => {
                trace!(self, "the disk has room again");
                self.storage.set_capacity(None);
                self.faults.disk_is_full = false;
            }
            Repair::Storage => {
                trace!(self, "the storage works again");
                self.storage.fail_while(None);
                self.faults.storage_fails = false;
            }
        }
    }

    /// Ends every fault that is in force.
    pub(crate) fn end_faults(&mut self) {
        trace!(self, "the faults are over");
        self.repair(Repair::Disk);
        self.repair(Repair::Storage);
        self.faults = Faults {
            // Its storage may be set to halt by now.
            crash: self.faults.crash,
            busy: self.faults.busy,
            blocked: self.faults.blocked,
            writer_ended: self.faults.writer_ended,
            operation_fails: self.faults.operation_fails,
            able_since: self.now,
            ..Faults::default()
        };
        for node in &mut self.nodes {
            node.cut_off_until = 0;
            node.disk.fault = None;
        }
    }
}
