//! Rows for archives, and taking them back: rows that are there already stay as they are, so that to do it twice changes nothing.

use super::import::{ImportedJob, RowWriter};
use super::job_text;
use super::log::{self, EntrySubject};
use super::purge::{Purger, RowKey};
use super::records::{RawJob, Records, decode, job_columns};
use super::rollup::Rollup;
use super::row::{small, step_key, time};
use super::text::{Interned, Texts};
use super::usage::amount;
use super::{copy, schema, set_up};
use crate::archive::{Archived, ArchivedJob, ArchivedUsage};
use crate::store::StoreError;
use minicbor::bytes::ByteVec;
use muster_model::time::Timestamp;
use muster_proto::acct::{AcctJob, AcctStep, NodeEvent, ReservationRecord};
use rusqlite::{Connection, OptionalExtension, TransactionBehavior};
use std::path::Path;
use std::time::Duration;

/// Time to wait while the controller writes.
const PATIENCE: Duration = Duration::from_secs(60);

impl Purger {
    /// Which database this is, as [`crate::CopySource::origin`] has it.
    ///
    /// # Errors
    /// What the database says.
    pub fn origin(&self) -> Result<i64, StoreError> {
        copy::origin(self.connection())
    }

    /// A row as an archive has it; none where it is gone.
    ///
    /// # Errors
    /// What the database says.
    pub fn read(&self, key: RowKey) -> Result<Option<Archived>, StoreError> {
        let mut texts = Texts::default();
        let mut rows = RowReader {
            records: Records {
                connection: self.connection(),
                texts: &mut texts,
            },
        };
        match key {
            RowKey::Event(id) => rows.event(id),
            RowKey::Job(row) => rows.job(row),
            RowKey::Step(row, step) => rows.step(row, step),
            RowKey::Suspension(row, start) => rows.suspension(row, start),
            RowKey::Transaction(id) => rows.transaction(id),
            RowKey::Used(id) => rows.used(id),
            RowKey::Out(id) => rows.out(id),
            RowKey::Reservation(id) => {
                let record = super::reservation::read(self.connection(), id)?;
                Ok(record.map(Archived::Reservation))
            }
        }
    }
}

struct RowReader<'a> {
    records: Records<'a>,
}

impl RowReader<'_> {
    fn event(&self, id: i64) -> Result<Option<Archived>, StoreError> {
        let sql = "SELECT node, start_ms, end_ms, down, drain, fail, reason, uid FROM node_event WHERE id = ?1";
        let mut statement = self.records.connection.prepare_cached(sql)?;
        let event = statement.query_row([id], |row| {
            Ok(Archived::Event(NodeEvent {
                node: row.get(0)?,
                start: Timestamp(row.get(1)?),
                end: time(row.get(2)?),
                down: row.get(3)?,
                drain: row.get(4)?,
                fail: row.get(5)?,
                reason: row.get(6)?,
                uid: small(row.get(7)?),
            }))
        });
        Ok(event.optional()?)
    }

    fn job(&mut self, number: i64) -> Result<Option<Archived>, StoreError> {
        self.change_of_run(number, |records, run, job| {
            let array = run.array_spec.map(|spec| decode(run, "array_spec", spec));
            let steps = records.steps_as_written(run, &job, None)?;
            let mut statement = records.connection.prepare_cached(
                "SELECT start_ms, end_ms FROM suspension WHERE job = ?1 AND end_ms IS NOT NULL ORDER BY start_ms",
            )?;
            let suspensions = statement.query_map([number], |row| {
                Ok((Timestamp(row.get(0)?), Timestamp(row.get(1)?)))
            })?;
            Ok(Archived::Job(Box::new(ArchivedJob {
                row: number,
                array: array.transpose()?,
                suspensions: suspensions.collect::<rusqlite::Result<_>>()?,
                texts: job_text::of_run(records.connection, number)?,
                job: AcctJob { steps, ..job },
            })))
        })
    }

    fn step(&mut self, number: i64, step: i64) -> Result<Option<Archived>, StoreError> {
        let found = self.change_of_run(number, |records, run, job| {
            records.steps_as_written(run, &job, Some(step))
        })?;
        let step = found.into_iter().flatten().next();
        Ok(step.map(|step| Archived::Step {
            row: number,
            step: Box::new(step),
        }))
    }

    /// Reads something of a run; nothing if it is gone.
    fn change_of_run<T>(
        &mut self,
        number: i64,
        read: impl FnOnce(&mut Records<'_>, &RawJob<'_>, AcctJob) -> Result<T, StoreError>,
    ) -> Result<Option<T>, StoreError> {
        let sql = format!("SELECT {} FROM job WHERE row = ?1", job_columns());
        let mut statement = self.records.connection.prepare_cached(&sql)?;
        let mut rows = statement.query([number])?;
        let Some(row) = rows.next()? else {
            return Ok(None);
        };
        let run = RawJob::of(row)?;
        let job = self.records.job(&run)?;
        read(&mut self.records, &run, job).map(Some)
    }

    fn suspension(&self, row: i64, start: i64) -> Result<Option<Archived>, StoreError> {
        let sql = "SELECT end_ms FROM suspension WHERE job = ?1 AND start_ms = ?2";
        let mut statement = self.records.connection.prepare_cached(sql)?;
        let found = statement.query_row((row, start), |found| {
            Ok(Archived::Suspension {
                row,
                start: Timestamp(start),
                end: time(found.get(0)?),
            })
        });
        Ok(found.optional()?)
    }

    fn transaction(&self, id: i64) -> Result<Option<Archived>, StoreError> {
        let sql =
            "SELECT id, at_ms, actor, action, target, info, users, accounts FROM txn WHERE id = ?1";
        let mut statement = self.records.connection.prepare_cached(sql)?;
        let found = statement.query_row([id], copy::logged_transaction);
        Ok(found.optional()?.map(Archived::Transaction))
    }

    fn used(&mut self, id: i64) -> Result<Option<Archived>, StoreError> {
        let connection = self.records.connection;
        let mut statement = connection.prepare_cached(
            "SELECT length, begin_ms, account, uid, owner, wckey, device, run_ms, cpu_ms, mem_mib_ms,
             node_ms, planned_cpu_ms FROM used WHERE id = ?1",
        )?;
        let mut rows = statement.query([id])?;
        let Some(row) = rows.next()? else {
            return Ok(None);
        };
        let mut text = |number: i64| match number {
            0 => Ok(String::new()),
            number => self.records.text(number),
        };
        let (account, wckey, device) = (text(row.get(2)?)?, text(row.get(5)?)?, text(row.get(6)?)?);
        let owner = self.records.texts.text(connection, row.get(4)?)?;
        Ok(Some(Archived::Used(Box::new(ArchivedUsage {
            length: row.get(0)?,
            begin: Timestamp(row.get(1)?),
            account,
            uid: small(row.get(3)?),
            owner: ByteVec::from(owner.to_vec()),
            wckey,
            device,
            run_ms: amount(row, 7)?,
            cpu_ms: amount(row, 8)?,
            mem_mib_ms: amount(row, 9)?,
            node_ms: amount(row, 10)?,
            planned_cpu_ms: amount(row, 11)?,
        }))))
    }

    fn out(&self, id: i64) -> Result<Option<Archived>, StoreError> {
        let sql = "SELECT length, begin_ms, node, out_ms FROM out_of_service WHERE id = ?1";
        let mut statement = self.records.connection.prepare_cached(sql)?;
        let found = statement.query_row([id], |row| {
            Ok(Archived::Out {
                length: row.get(0)?,
                begin: Timestamp(row.get(1)?),
                node: row.get(2)?,
                out_ms: amount(row, 3)?,
            })
        });
        Ok(found.optional()?)
    }
}

/// The result of taking back rows of an archive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Restored {
    /// Rows that were written.
    pub added: u64,
    /// Rows that were there already.
    pub known: u64,
    /// Steps and suspensions of runs that are not there.
    pub alone: u64,
}

/// Takes rows back. Sums of use have runs that were purged: they are only changed by rows that are sums.
pub struct Restorer {
    connection: Connection,
    texts: Interned,
    origin: i64,
}

enum Outcome {
    Added,
    Known,
    Alone,
}

impl Restorer {
    /// Opens the file that a controller of this release has made.
    ///
    /// # Errors
    /// The file is not there, or is another's, or of another release.
    pub fn open(path: &Path) -> Result<Restorer, StoreError> {
        // A file that is not there is not made.
        drop(super::open_read_only(path)?);
        let failed = |source| StoreError::Open {
            path: path.to_owned(),
            source,
        };
        let connection = Connection::open(path).map_err(failed)?;
        set_up(&connection).map_err(failed)?;
        connection.busy_timeout(PATIENCE).map_err(failed)?;
        schema::check_format(&connection, path)?;
        let origin = copy::origin(&connection)?;
        Ok(Restorer {
            connection,
            texts: Interned::default(),
            origin,
        })
    }

    /// Which database this is.
    pub fn origin(&self) -> i64 {
        self.origin
    }

    /// Writes rows that are not there, in one transaction.
    ///
    /// # Errors
    /// What the database says; then nothing of it was written.
    pub fn write(&mut self, rows: &[Archived]) -> Result<Restored, StoreError> {
        let result = self.try_write(rows);
        if result.is_err() {
            // Texts of the transaction that was rolled back do not exist.
            self.texts.clear();
        }
        result
    }

    fn try_write(&mut self, rows: &[Archived]) -> Result<Restored, StoreError> {
        let transaction = self
            .connection
            .transaction_with_behavior(TransactionBehavior::Immediate)?;
        let mut writer = RowWriter {
            connection: &transaction,
            texts: &mut self.texts,
            is_logged: log::is_kept(&transaction)?,
            rollup: Rollup::default(),
        };
        let mut restored = Restored::default();
        for row in rows {
            let count = match writer.restore(row)? {
                Outcome::Added => &mut restored.added,
                Outcome::Known => &mut restored.known,
                Outcome::Alone => &mut restored.alone,
            };
            *count += 1;
        }
        transaction.commit()?;
        Ok(restored)
    }
}

impl RowWriter<'_> {
    fn restore(&mut self, row: &Archived) -> Result<Outcome, StoreError> {
        match row {
            Archived::Event(event) => self.restore_event(event),
            Archived::Job(job) => self.restore_job(job),
            Archived::Step { row, step } => self.restore_step(*row, step),
            Archived::Suspension { row, start, end } => {
                if !self.has_run(*row)? {
                    return Ok(Outcome::Alone);
                }
                let sql =
                    "INSERT OR IGNORE INTO suspension (job, start_ms, end_ms) VALUES (?1, ?2, ?3)";
                let values = (row, start.0, end.map(|end| end.0));
                let added = self.connection.prepare_cached(sql)?.execute(values)?;
                self.outcome(added, |_| EntrySubject::Suspension(*row))
            }
            Archived::Transaction(logged) => {
                let t = &logged.transaction;
                let sql = "INSERT OR IGNORE INTO txn (at_ms, actor, action, target, info, users, accounts)
                     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
                let added = self.connection.prepare_cached(sql)?.execute((
                    logged.at.0,
                    &t.actor,
                    &t.action,
                    &t.target,
                    &t.info,
                    t.users.join(","),
                    t.accounts.join(","),
                ))?;
                self.outcome(added, EntrySubject::Transaction)
            }
            Archived::Reservation(record) => {
                // One that is not over would never be.
                let record = ReservationRecord {
                    is_over: true,
                    ..record.clone()
                };
                let added = super::reservation::put(self.connection, &record)?;
                self.outcome(usize::from(added.is_some()), EntrySubject::Reservation)
            }
            Archived::Used(sum) => self.restore_sum(sum),
            Archived::Out {
                length,
                begin,
                node,
                out_ms,
            } => {
                let sql = "INSERT OR IGNORE INTO out_of_service (length, begin_ms, node, out_ms) VALUES (?1, ?2, ?3, ?4)";
                let values = (length, begin.0, node, out_ms);
                let added = self.connection.prepare_cached(sql)?.execute(values)?;
                self.outcome(added, EntrySubject::Out)
            }
        }
    }

    /// The result of an insertion, which the log gets.
    fn outcome(
        &self,
        added: usize,
        written: impl FnOnce(i64) -> EntrySubject,
    ) -> Result<Outcome, StoreError> {
        if added == 0 {
            return Ok(Outcome::Known);
        }
        self.log(written(self.connection.last_insert_rowid()))?;
        Ok(Outcome::Added)
    }

    fn has_run(&self, row: i64) -> Result<bool, StoreError> {
        let mut statement = self
            .connection
            .prepare_cached("SELECT EXISTS (SELECT 1 FROM job WHERE row = ?1)")?;
        Ok(statement.query_row([row], |row| row.get(0))?)
    }

    fn restore_event(&self, event: &NodeEvent) -> Result<Outcome, StoreError> {
        let added = self
            .connection
            .prepare_cached(
                "INSERT INTO node_event (node, start_ms, end_ms, down, drain, fail, reason, uid)
                 SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8 WHERE NOT EXISTS
                 (SELECT 1 FROM node_event WHERE node = ?1 AND start_ms = ?2)",
            )?
            .execute((
                &event.node,
                event.start.0,
                // A time that is not over would never be.
                event.end.unwrap_or(event.start).0,
                event.down,
                event.drain,
                event.fail,
                &event.reason,
                event.uid,
            ))?;
        self.outcome(added, EntrySubject::NodeEvent)
    }

    fn restore_job(&mut self, archived: &ArchivedJob) -> Result<Outcome, StoreError> {
        // Jobs that follow in the file may have the same texts.
        for text in &archived.texts {
            if let Some(bytes) = &text.bytes {
                job_text::store(self.connection, &text.key, bytes)?;
            }
        }
        if self.has_run(archived.row)? {
            return Ok(Outcome::Known);
        }
        if archived.job.end.is_none() || super::row::row_run(archived.row).job != archived.job.id {
            return Ok(Outcome::Alone);
        }
        let job = ImportedJob {
            number: 0,
            job: archived.job.clone(),
            array: archived.array.clone(),
            suspensions: archived.suspensions.clone(),
        };
        self.put_rows(archived.row, &job)?;
        for text in &archived.texts {
            job_text::name(self.connection, archived.row, text.kind, &text.key)?;
        }
        Ok(Outcome::Added)
    }

    fn restore_step(&mut self, row: i64, step: &AcctStep) -> Result<Outcome, StoreError> {
        if !self.has_run(row)? {
            return Ok(Outcome::Alone);
        }
        let key = step_key(step.step);
        let is_known: bool = self
            .connection
            .prepare_cached("SELECT EXISTS (SELECT 1 FROM step WHERE job = ?1 AND step = ?2)")?
            .query_row((row, key), |row| row.get(0))?;
        if is_known {
            return Ok(Outcome::Known);
        }
        self.put_step(row, step)?;
        self.log(EntrySubject::Step(row, key))?;
        Ok(Outcome::Added)
    }

    fn restore_sum(&mut self, sum: &ArchivedUsage) -> Result<Outcome, StoreError> {
        let connection = self.connection;
        let account = self.texts.number(connection, sum.account.as_bytes())?;
        let owner = self.texts.number(connection, &sum.owner)?;
        let mut text = |text: &str| match text {
            "" => Ok(0),
            text => self.texts.number(connection, text.as_bytes()),
        };
        let (wckey, device) = (text(&sum.wckey)?, text(&sum.device)?);
        let added = connection
            .prepare_cached(
                "INSERT OR IGNORE INTO used (length, begin_ms, account, uid, owner, wckey, device,
                     run_ms, cpu_ms, mem_mib_ms, node_ms, planned_cpu_ms)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)",
            )?
            .execute((
                sum.length,
                sum.begin.0,
                account,
                sum.uid,
                owner,
                wckey,
                device,
                sum.run_ms,
                sum.cpu_ms,
                sum.mem_mib_ms,
                sum.node_ms,
                sum.planned_cpu_ms,
            ))?;
        self.outcome(added, EntrySubject::Used)
    }
}
