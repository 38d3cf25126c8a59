//! A batch of changes as the fewest writes: the last word on each run, each step with its beginning and end.

use super::row::run_row;
use crate::change::{AccountingChange, JobRow, NodeServiceRow, ReservationRow, RunKey};
use crate::store::StoreError;
use muster_model::accounts::{JobNote, Transaction};
use muster_model::ids::{BlobId, JobId, StepNo};
use muster_model::job::{ExitStatus, Step, StepEnd};
use muster_model::storage::StorageScan;
use muster_model::time::Timestamp;
use muster_proto::acct::JobTextKind;
use std::collections::HashMap;

/// Rows to be written. Parts do not depend on each other except that runs come first.
#[derive(Default)]
pub(super) struct Plan<'a> {
    /// Runs by key.
    pub(super) jobs: Vec<JobWrite<'a>>,
    /// Steps by run.
    pub(super) steps: Vec<StepWrite<'a>>,
    /// Worst step statuses of runs, in order.
    pub(super) derived: Vec<DerivedExit>,
    /// Suspensions that began or ended, in order.
    pub(super) suspensions: Vec<SuspensionWrite>,
    /// A run that goes on as another: nothing follows it in the plan.
    pub(super) resized: Option<ResizedRun>,
    /// Nodes, in order.
    pub(super) nodes: Vec<&'a NodeServiceRow>,
    /// Reservations, in order.
    pub(super) reservations: Vec<&'a ReservationRow>,
    /// Changes of accounting's records, in order.
    pub(super) transactions: Vec<TransactionWrite<'a>>,
    /// Scripts and environments of jobs.
    pub(super) texts: Vec<JobTextWrite<'a>>,
    /// Texts of jobs, in order.
    pub(super) notes: Vec<NoteWrite<'a>>,
    pub(super) scans: Vec<ScanWrite<'a>>,
    job_at: HashMap<i64, usize>,
    step_at: HashMap<(i64, StepNo), usize>,
}

/// One run to write.
pub(super) struct JobWrite<'a> {
    pub(super) row: i64,
    pub(super) job: &'a JobRow,
    /// The request may be new too.
    pub(super) whole: bool,
    /// Stored steps and suspensions of the run are of a launch that failed.
    pub(super) fresh: bool,
}

/// One step to write.
pub(super) struct StepWrite<'a> {
    pub(super) row: i64,
    pub(super) step: StepNo,
    pub(super) start: Option<&'a Step>,
    pub(super) end: Option<&'a StepEnd>,
}

/// The worst exit status of a run's steps.
pub(super) struct DerivedExit {
    /// Row of the run.
    pub(super) row: i64,
    pub(super) exit: ExitStatus,
}

/// The begin or the end of a suspension.
pub(super) struct SuspensionWrite {
    /// Row of the run.
    pub(super) row: i64,
    pub(super) at: Timestamp,
    pub(super) ended: bool,
}

/// A run whose job was resized.
#[derive(Clone, Copy)]
pub(super) struct ResizedRun {
    /// Row of the run that ends.
    pub(super) row: i64,
    /// Row of the run that takes its place.
    pub(super) next: i64,
    /// When.
    pub(super) at: Timestamp,
}

/// A change of accounting's records.
pub(super) struct TransactionWrite<'a> {
    pub(super) transaction: &'a Transaction,
    pub(super) at: Timestamp,
}

/// Script or environment of a job.
pub(super) struct JobTextWrite<'a> {
    /// Row of the run.
    pub(super) row: i64,
    pub(super) kind: JobTextKind,
    pub(super) id: BlobId,
    pub(super) bytes: &'a [u8],
}

/// Use of a file system by users.
pub(super) struct ScanWrite<'a> {
    pub(super) name: &'a str,
    pub(super) scan: &'a StorageScan,
}

/// Texts of all runs of a job.
pub(super) struct NoteWrite<'a> {
    pub(super) job: JobId,
    /// The owner that the job must have; any if none is given.
    pub(super) owner: Option<u32>,
    pub(super) note: &'a JobNote,
}

impl<'a> Plan<'a> {
    pub(super) fn of(changes: &'a [AccountingChange]) -> Result<Plan<'a>, StoreError> {
        let mut plan = Plan::default();
        for change in changes {
            plan.add(change)?;
        }
        // Neighbours in the table are written together.
        plan.jobs.sort_by_key(|write| write.row);
        plan.steps.sort_by_key(|write| write.row);
        Ok(plan)
    }

    fn add(&mut self, change: &'a AccountingChange) -> Result<(), StoreError> {
        match change {
            AccountingChange::Job(job) => self.job(job, true, false)?,
            AccountingChange::Run(job) => self.job(job, false, false)?,
            AccountingChange::Fresh(job) => self.job(job, true, true)?,
            AccountingChange::Text {
                run,
                kind,
                id,
                bytes,
            } => self.texts.push(JobTextWrite {
                row: run_row(*run)?,
                kind: *kind,
                id: *id,
                bytes: bytes.as_slice(),
            }),
            AccountingChange::StepStarted { run, step } => {
                let write = self.step(*run, step.step)?;
                (write.start, write.end) = (Some(step.as_ref()), None);
            }
            AccountingChange::StepEnded {
                run,
                step,
                end,
                derived_exit,
            } => {
                let write = self.step(*run, *step)?;
                write.end = Some(end.as_ref());
                if let Some(exit) = derived_exit {
                    self.derived.push(DerivedExit {
                        row: run_row(*run)?,
                        exit: *exit,
                    });
                }
            }
            AccountingChange::Suspended { run, at } => self.suspension(*run, *at, false)?,
            AccountingChange::Resumed { run, at } => self.suspension(*run, *at, true)?,
            AccountingChange::Resized { run, at, next } => {
                self.job(next, true, false)?;
                self.resized = Some(ResizedRun {
                    row: run_row(*run)?,
                    next: run_row(next.key)?,
                    at: *at,
                });
            }
            AccountingChange::Node(now) => self.nodes.push(now),
            AccountingChange::Reservation(now) => self.reservations.push(now),
            AccountingChange::Transaction { transaction, at } => {
                let at = *at;
                self.transactions.push(TransactionWrite { transaction, at });
            }
            AccountingChange::JobNoted { job, owner, note } => self.notes.push(NoteWrite {
                job: *job,
                owner: *owner,
                note,
            }),
            AccountingChange::Storage { name, scan } => self.scans.push(ScanWrite { name, scan }),
        }
        Ok(())
    }

    fn suspension(&mut self, run: RunKey, at: Timestamp, ended: bool) -> Result<(), StoreError> {
        let row = run_row(run)?;
        self.suspensions.push(SuspensionWrite { row, at, ended });
        Ok(())
    }

    fn job(&mut self, job: &'a JobRow, whole: bool, fresh: bool) -> Result<(), StoreError> {
        let row = run_row(job.key)?;
        if fresh {
            self.forget(row);
        }
        let at = *self.job_at.entry(row).or_insert_with(|| {
            self.jobs.push(JobWrite {
                row,
                job,
                whole,
                fresh,
            });
            self.jobs.len() - 1
        });
        let write = &mut self.jobs[at];
        write.job = job;
        write.whole |= whole;
        write.fresh |= fresh;
        Ok(())
    }

    /// Drops what the batch had for the steps of a launch that failed.
    fn forget(&mut self, row: i64) {
        self.steps.retain(|write| write.row != row);
        self.step_at = (self.steps.iter().enumerate())
            .map(|(at, write)| ((write.row, write.step), at))
            .collect();
        self.derived.retain(|derived| derived.row != row);
        self.suspensions.retain(|suspension| suspension.row != row);
    }

    fn step(&mut self, run: RunKey, step: StepNo) -> Result<&mut StepWrite<'a>, StoreError> {
        let row = run_row(run)?;
        let at = *self.step_at.entry((row, step)).or_insert_with(|| {
            self.steps.push(StepWrite {
                row,
                step,
                start: None,
                end: None,
            });
            self.steps.len() - 1
        });
        Ok(&mut self.steps[at])
    }
}
