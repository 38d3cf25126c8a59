//! The spool directory of a node: what launchers and step daemons write down, and how that fails. It outlives processes; what a
//! machine had not written to its disk is lost with its power.

use crate::random::Random;
use muster_model::ids::{AttemptStep, JobAttempt};
use muster_model::job::StepEnd;
use muster_node_core::launcher::interface::Failure;
use muster_node_core::launcher::{LauncherRecords, StepResult};
use muster_node_core::messages::KeptEntries;
use std::collections::BTreeMap;

/// Resource that a node lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DiskFault {
    /// ENOSPC.
    Full,
    /// EIO.
    Broken,
    /// EMFILE: no descriptors, and so no processes.
    NoDescriptors,
}

impl DiskFault {
    /// Its error text.
    pub(crate) fn failure(self) -> Failure {
        let (error, is_temporary) = match self {
            DiskFault::Full => ("No space left on device", true),
            DiskFault::Broken => ("Input/output error", false),
            DiskFault::NoDescriptors => ("Too many open files", true),
        };
        Failure {
            error: error.to_owned(),
            is_temporary,
        }
    }

    /// Whether it keeps a process from being started.
    pub(crate) fn prevents_processes(self) -> bool {
        self == DiskFault::NoDescriptors
    }
}

/// See the module.
#[derive(Default)]
pub(crate) struct Disk {
    /// End of a fault, and its kind.
    pub(crate) fault: Option<(u64, DiskFault)>,
    records: Vec<u8>,
    /// Since when the launcher has lines that it could not write.
    pub(crate) unwritten_since: Option<u64>,
    /// The settings that a launcher has kept.
    pub(crate) settings: Option<Vec<u8>>,
    /// The controller's key, as it was seen first.
    pub(crate) controller_key: Option<Vec<u8>>,
    /// Files that tell how steps ended.
    pub(crate) results: BTreeMap<AttemptStep, StepResult>,
}

impl Disk {
    /// The fault that is active now.
    pub(crate) fn fault_at(&self, now: u64) -> Option<DiskFault> {
        let (until, fault) = self.fault?;
        (now < until).then_some(fault)
    }

    /// No process can be started.
    pub(crate) fn lacks_processes(&self, now: u64) -> bool {
        self.fault_at(now)
            .is_some_and(DiskFault::prevents_processes)
    }

    /// The record file. One byte may be none of a letter after a loss of power.
    pub(crate) fn records(&self) -> String {
        String::from_utf8_lossy(&self.records).into_owned()
    }

    /// Launches that the record file names, if it is of this boot.
    pub(crate) fn attempts(&self, boot_id: &str) -> Vec<JobAttempt> {
        let (_, noted, same_boot) = LauncherRecords::read(&self.records(), boot_id);
        noted.into_keys().filter(|_| same_boot).collect()
    }

    /// Appends lines: whole, or nothing of it. What could be written of it is taken back.
    pub(crate) fn append(&mut self, lines: &[u8], now: u64) -> Result<(), Failure> {
        match self.fault_at(now) {
            // An open file needs no other descriptor.
            None | Some(DiskFault::NoDescriptors) => {
                self.records.extend_from_slice(lines);
                self.unwritten_since = None;
                Ok(())
            }
            Some(fault) => {
                self.unwritten_since.get_or_insert(now);
                Err(fault.failure())
            }
        }
    }

    /// The process that writes lines is killed meanwhile.
    pub(crate) fn append_torn(&mut self, lines: &[u8], random: &mut Random) {
        let length = random.below(lines.len() as u64 + 1);
        let written = usize::try_from(length).unwrap_or(0);
        self.records.extend_from_slice(&lines[..written]);
    }

    /// Replaces the record file.
    pub(crate) fn rewrite(&mut self, all: Vec<u8>, now: u64) -> Result<(), Failure> {
        match self.fault_at(now) {
            None => {
                self.records = all;
                self.unwritten_since = None;
                Ok(())
            }
            Some(fault) => Err(fault.failure()),
        }
    }

    /// Leaves a step's result; it may be lost.
    pub(crate) fn leave(
        &mut self,
        AttemptStep { attempt, step }: AttemptStep,
        end: StepEnd,
        kept: KeptEntries,
        now: u64,
    ) -> bool {
        let is_written = self.fault_at(now).is_none();
        if is_written {
            let result = StepResult { end, kept };
            self.results.insert(AttemptStep::new(attempt, step), result);
        }
        is_written
    }

    /// The machine loses power: the last writes may not be on the disk.
    pub(crate) fn lose_power(&mut self, random: &mut Random) {
        if random.one_in(2) {
            return;
        }
        let length = random.below(self.records.len() as u64 + 1);
        self.records.truncate(usize::try_from(length).unwrap_or(0));
        if random.one_in(2) {
            // A block that was allocated and never written.
            let zeros = random.below(40);
            let end = self.records.len() + usize::try_from(zeros).unwrap_or(0);
            self.records.resize(end, 0);
        }
        if random.one_in(4) {
            self.results.clear();
        }
    }
}
