//! Rows of jobs from another cluster, written beside the controller: by short transactions of this process's own, which leave the
//! journal position alone. They have numbers of runs that no run of the controller's has, so neither overwrites the other.

use super::log::{self, EntrySubject};
use super::purge::PURGED;
use super::rollup::Rollup;
use super::row::{
    Context, IMPORTED_RUN, OPEN, Owner, RESIZED, cbor, exit_key, first_row, last_row, limit_key,
    signed, some, state_key, step_key,
};
use super::text::Interned;
use super::write::{Binder, SQL, cut, step_line_max, step_name, step_nodes};
use super::{open_read_only, schema, set_up};
use crate::store::StoreError;
use muster_model::accounts::Transaction;
use muster_model::job::ResourceUsage;
use muster_model::limits::TEXT_BYTES_MAX;
use muster_model::spec::ArraySpec;
use muster_model::time::Timestamp;
use muster_proto::acct::{AcctJob, AcctStep, LoggedTransaction, NodeEvent};
use rusqlite::{Connection, OptionalExtension, TransactionBehavior};
use std::path::Path;
use std::time::Duration;

/// Time to wait while the controller writes.
const PATIENCE: Duration = Duration::from_secs(60);

/// A run of a job that is over, with its steps.
#[derive(Clone, Debug, PartialEq)]
pub struct ImportedJob {
    /// Its number where it comes from, which it keeps.
    pub number: u64,
    /// The run.
    pub job: AcctJob,
    /// Tasks of an array that never started and are in this record.
    pub array: Option<ArraySpec>,
    /// Times in which it was suspended.
    pub suspensions: Vec<(Timestamp, Timestamp)>,
}

/// Progress of the import of a source. It is stored with the rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ImportMark {
    /// The highest number that the pass which is under way has come to; 0 before one begins.
    pub after: u64,
    /// When the pass began, by the source's clock, seconds.
    pub began_s: u64,
    /// Rows that did not change since are those of earlier passes, seconds.
    pub since_s: u64,
}

/// The counts of one call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Imported {
    /// Runs that were not there.
    pub added: u64,
    /// Runs that were there and were written again.
    pub again: u64,
}

/// Use of an account by a user in a month.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct UseKey {
    /// `2026-11`, by the end of jobs (UTC).
    pub month: String,
    /// The account.
    pub account: String,
    /// The user's number.
    pub uid: u32,
}

/// Sums of runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UseSum {
    /// Runs.
    pub jobs: u64,
    /// CPUs times seconds of run time without suspensions.
    pub cpu_s: u64,
}

/// Writes the history of one source.
pub struct Importer {
    connection: Connection,
    texts: Interned,
    source: i64,
}

impl Importer {
    /// Opens the file that a controller of this release has made; `source` names where the rows come from, always the same
    /// for the same.
    ///
    /// # Errors
    /// The file is not there, or is another's, or of another release.
    pub fn open(path: &Path, source: &str) -> Result<Importer, StoreError> {
        // A file that is not there is not made.
        drop(open_read_only(path)?);
        let failed = |source| StoreError::Open {
            path: path.to_owned(),
            source,
        };
        let connection = Connection::open(path).map_err(failed)?;
        set_up(&connection).map_err(failed)?;
        connection.busy_timeout(PATIENCE).map_err(failed)?;
        schema::check_format(&connection, path)?;
        connection.execute(
            "INSERT OR IGNORE INTO import_source (name) VALUES (?1)",
            [source],
        )?;
        let source = connection.query_row(
            "SELECT id FROM import_source WHERE name = ?1",
            [source],
            |row| row.get(0),
        )?;
        Ok(Importer {
            connection,
            texts: Interned::default(),
            source,
        })
    }

    /// Its progress.
    ///
    /// # Errors
    /// What the database says.
    pub fn mark(&self) -> Result<ImportMark, StoreError> {
        let numbers: (i64, i64, i64) = self.connection.query_row(
            "SELECT after, began_s, since_s FROM import_source WHERE id = ?1",
            [self.source],
            |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)),
        )?;
        let [after, began_s, since_s] =
            [numbers.0, numbers.1, numbers.2].map(|n| u64::try_from(n).unwrap_or(0));
        Ok(ImportMark {
            after,
            began_s,
            since_s,
        })
    }

    /// Writes runs, in the order of their numbers, and how far that is, in one transaction.
    ///
    /// # Errors
    /// What the database says; then nothing of it was written.
    pub fn write(
        &mut self,
        jobs: &[ImportedJob],
        mark: ImportMark,
    ) -> Result<Imported, StoreError> {
        let result = self.try_write(jobs, mark);
        if result.is_err() {
            // Texts of the transaction that was rolled back do not exist.
            self.texts.clear();
        }
        result
    }

    fn try_write(
        &mut self,
        jobs: &[ImportedJob],
        mark: ImportMark,
    ) -> Result<Imported, StoreError> {
        let transaction = self
            .connection
            .transaction_with_behavior(TransactionBehavior::Immediate)?;
        let mut writer = RowWriter {
            connection: &transaction,
            texts: &mut self.texts,
            is_logged: log::is_kept(&transaction)?,
            rollup: Rollup::default(),
        };
        let mut imported = Imported::default();
        for job in jobs {
            let (row, is_new) = writer.row_of(self.source, job)?;
            match is_new {
                _ if row < 0 => continue,
                true => imported.added += 1,
                false => imported.again += 1,
            }
            writer.put(row, job)?;
        }
        writer.finish()?;
        transaction.execute(
            "UPDATE import_source SET after = ?2, began_s = ?3, since_s = ?4 WHERE id = ?1",
            (
                self.source,
                signed(mark.after),
                signed(mark.began_s),
                signed(mark.since_s),
            ),
        )?;
        transaction.commit()?;
        Ok(imported)
    }

    /// Writes times of nodes out of service that are over, those that are not there; how many these are.
    ///
    /// # Errors
    /// What the database says.
    pub fn write_events(&mut self, events: &[NodeEvent]) -> Result<u64, StoreError> {
        let transaction = self
            .connection
            .transaction_with_behavior(TransactionBehavior::Immediate)?;
        let is_logged = log::is_kept(&transaction)?;
        let purged = purged_until(&transaction, PURGED[1])?;
        let mut rollup = Rollup::default();
        let mut added = 0;
        for event in events {
            let Some(end) = event.end.filter(|end| end.0 > purged) else {
                continue;
            };
            let new = transaction
                .prepare_cached(
                    "INSERT INTO node_event (node, start_ms, end_ms, down, drain, fail, reason, uid)
                     SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8 WHERE NOT EXISTS
                     (SELECT 1 FROM node_event WHERE node = ?1 AND start_ms = ?2)",
                )?
                .execute((
                    &event.node,
                    event.start.0,
                    end.0,
                    event.down,
                    event.drain,
                    event.fail,
                    cut(&event.reason, TEXT_BYTES_MAX),
                    event.uid,
                ))?;
            if new > 0 {
                added += 1;
                rollup.add_outage(&event.node, event.start.0, end.0);
                if is_logged {
                    let id = transaction.last_insert_rowid();
                    log::append(&transaction, EntrySubject::NodeEvent(id))?;
                }
            }
        }
        rollup.finish(&transaction, &mut self.texts, is_logged)?;
        transaction.commit()?;
        Ok(added)
    }

    /// Writes changes of accounting's records, those that are not there; how many these are. Their numbers are given here.
    ///
    /// # Errors
    /// What the database says.
    pub fn write_transactions(&mut self, all: &[LoggedTransaction]) -> Result<u64, StoreError> {
        let transaction = self
            .connection
            .transaction_with_behavior(TransactionBehavior::Immediate)?;
        let is_logged = log::is_kept(&transaction)?;
        let purged = purged_until(&transaction, PURGED[2])?;
        let mut added = 0;
        for LoggedTransaction {
            at, transaction: t, ..
        } in all.iter().filter(|logged| logged.at.0 > purged)
        {
            let Transaction {
                actor,
                action,
                target,
                info,
                users,
                accounts,
            } = t;
            let new = transaction
                .prepare_cached(
                    "INSERT OR IGNORE INTO txn (at_ms, actor, action, target, info, users, accounts)
                     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
                )?
                .execute((
                    at.0,
                    actor,
                    action,
                    cut(target, TEXT_BYTES_MAX),
                    cut(info, TEXT_BYTES_MAX),
                    cut(&users.join(","), TEXT_BYTES_MAX),
                    cut(&accounts.join(","), TEXT_BYTES_MAX),
                ))?;
            if new > 0 {
                added += 1;
                if is_logged {
                    let id = transaction.last_insert_rowid();
                    log::append(&transaction, EntrySubject::Transaction(id))?;
                }
            }
        }
        transaction.commit()?;
        Ok(added)
    }

    /// Sums of all runs that came from this source, in order.
    ///
    /// # Errors
    /// What the database says.
    pub fn sums(&self) -> Result<Vec<(UseKey, UseSum)>, StoreError> {
        let mut statement = self.connection.prepare(
            "SELECT strftime('%Y-%m', j.end_ms / 1000, 'unixepoch') AS month,
             CAST(t.value AS TEXT) AS account, j.uid, count(*),
             sum(CASE WHEN j.start_ms IS NULL THEN 0
                 ELSE j.alloc_cpus * max(0, (j.end_ms - j.start_ms - j.suspended_ms) / 1000) END)
             FROM imported i JOIN job j ON j.row = i.row JOIN text t ON t.id = j.account
             WHERE i.source = ?1 GROUP BY month, account, j.uid ORDER BY month, account, j.uid",
        )?;
        let sums = statement.query_map([self.source], |row| {
            let key = UseKey {
                month: row.get(0)?,
                account: row.get(1)?,
                uid: row.get(2)?,
            };
            let count = |n: i64| u64::try_from(n).unwrap_or(0);
            let sum = UseSum {
                jobs: count(row.get(3)?),
                cpu_s: count(row.get(4)?),
            };
            Ok((key, sum))
        })?;
        Ok(sums.collect::<rusqlite::Result<_>>()?)
    }

    /// The month, as in [`UseKey`], up to which runs that were imported have been purged here; none if none have.
    ///
    /// # Errors
    /// What the database says.
    pub fn purged_month(&self) -> Result<Option<String>, StoreError> {
        let month = self.connection.query_row(
            "SELECT strftime('%Y-%m', max(value) / 1000, 'unixepoch') FROM meta WHERE key = ?1",
            [PURGED[0]],
            |row| row.get(0),
        )?;
        Ok(month)
    }

    /// Number of runs that came from this source.
    ///
    /// # Errors
    /// What the database says.
    pub fn runs(&self) -> Result<u64, StoreError> {
        let count: i64 = self.connection.query_row(
            "SELECT count(*) FROM imported WHERE source = ?1 AND row >= 0",
            [self.source],
            |row| row.get(0),
        )?;
        Ok(u64::try_from(count).unwrap_or(0))
    }
}

/// Until when rows of a kind are gone by intention, milliseconds.
fn purged_until(connection: &Connection, name: &str) -> rusqlite::Result<i64> {
    let until = connection
        .prepare_cached("SELECT value FROM meta WHERE key = ?1")?
        .query_row([name], |row| row.get(0));
    Ok(until.optional()?.unwrap_or(i64::MIN))
}

/// One transaction.
pub(super) struct RowWriter<'a> {
    pub(super) connection: &'a Connection,
    pub(super) texts: &'a mut Interned,
    pub(super) is_logged: bool,
    pub(super) rollup: Rollup,
}

impl RowWriter<'_> {
    /// Writes what changed of sums.
    fn finish(self) -> Result<(), StoreError> {
        self.rollup
            .finish(self.connection, self.texts, self.is_logged)
    }

    pub(super) fn log(&self, written: EntrySubject) -> rusqlite::Result<()> {
        match self.is_logged {
            true => log::append(self.connection, written),
            false => Ok(()),
        }
    }

    /// The row that the run has (below 0 if it was purged), or gets: after those of other runs of a job of this number that were imported.
    fn row_of(&self, source: i64, job: &ImportedJob) -> Result<(i64, bool), StoreError> {
        let number = signed(job.number);
        let known = self
            .connection
            .prepare_cached("SELECT row FROM imported WHERE source = ?1 AND number = ?2")?
            .query_row((source, number), |row| row.get(0))
            .optional()?;
        if let Some(row) = known {
            return Ok((row, false));
        }
        let first = first_row(job.job.id)? | i64::from(IMPORTED_RUN);
        let last = last_row(job.job.id)?;
        let before: Option<i64> = self
            .connection
            .prepare_cached("SELECT max(row) FROM job WHERE row BETWEEN ?1 AND ?2")?
            .query_row((first, last), |row| row.get(0))?;
        let row = match before {
            None => first,
            Some(before) if before < last => before + 1,
            Some(_) => return Err(StoreError::JobNumber(job.job.id)),
        };
        self.connection
            .prepare_cached("INSERT INTO imported (source, number, row) VALUES (?1, ?2, ?3)")?
            .execute((source, number, row))?;
        Ok((row, true))
    }

    /// Writes a run in full, in place of what there was.
    fn put(&mut self, row: i64, imported: &ImportedJob) -> Result<(), StoreError> {
        self.rollup.touch(self.connection, self.texts, row)?;
        self.put_rows(row, imported)
    }

    /// As above, where sums have the run already.
    pub(super) fn put_rows(&mut self, row: i64, imported: &ImportedJob) -> Result<(), StoreError> {
        for sql in [
            "DELETE FROM step WHERE job = ?1",
            "DELETE FROM suspension WHERE job = ?1",
        ] {
            self.connection.prepare_cached(sql)?.execute([row])?;
        }
        self.put_job(row, imported)?;
        for step in &imported.job.steps {
            self.put_step(row, step)?;
        }
        for (start, end) in &imported.suspensions {
            self.connection
                .prepare_cached(
                    "INSERT OR REPLACE INTO suspension (job, start_ms, end_ms) VALUES (?1, ?2, ?3)",
                )?
                .execute((row, start.0, end.0))?;
        }
        self.log(EntrySubject::Job(row))?;
        self.log(EntrySubject::Reset(row))?;
        Ok(())
    }

    /// In the order of [`super::row::ASKED`] and [`super::row::LIFE`].
    fn put_job(&mut self, row: i64, imported: &ImportedJob) -> Result<(), StoreError> {
        let job = &imported.job;
        let owner = cbor(&Owner {
            user: job.user.clone(),
            group: job.group.clone(),
        });
        let context = cbor(&Context {
            class: job.class.clone(),
            req_gres: job.req_gres.clone(),
            grid_engine: job.grid_engine.clone(),
            mcs_label: job.mcs_label.clone(),
            work_dir: cut(&job.work_dir, TEXT_BYTES_MAX).to_owned(),
            submit_host: job.submit_host.clone(),
            stdio: job.stdio.clone(),
            constraint: job.constraint.clone(),
            reservation: job.reservation.clone(),
        });
        let mut number = |text: &[u8]| self.texts.number(self.connection, text);
        let owner = number(&owner)?;
        let account = number(job.account.as_bytes())?;
        let qos = number(job.qos.as_bytes())?;
        let wckey = some(&job.wckey)
            .map(|key| number(key.as_bytes()))
            .transpose()?;
        let context = number(&context)?;
        let partition = number(job.partition.as_bytes())?;
        let reason = number(job.reason.as_bytes())?;
        let text = |text| some(cut(text, TEXT_BYTES_MAX));
        let array_spec = imported.array.as_ref().map(cbor);
        let gres = (!job.gres.is_empty()).then(|| cbor(&job.gres));
        let requeued = match (job.requeued, job.resized) {
            (_, true) => RESIZED,
            (requeued, false) => i64::from(requeued),
        };

        let mut statement = self.connection.prepare_cached(&SQL.job_put)?;
        let mut b = Binder::new(&mut statement);
        b.bind(row)?;
        b.bind(job.array.map(|task| signed(task.array.0)))?;
        b.bind(job.array.map(|task| task.index))?;
        b.bind(array_spec)?;
        b.bind(some(&job.name))?;
        b.bind(job.uid)?;
        b.bind(job.gid)?;
        b.bind(owner)?;
        b.bind(account)?;
        b.bind(qos)?;
        b.bind(wckey)?;
        b.bind(context)?;
        b.bind(text(&job.submit_line))?;
        b.bind(text(&job.comment))?;
        b.bind(text(&job.admin_comment))?;
        b.bind(job.req_cpus)?;
        b.bind(job.req_nodes)?;
        b.bind(job.batch)?;
        b.bind(job.submit.0)?;
        b.bind(job.het.map(|part| signed(part.leader.0)))?;
        b.bind(job.het.map(|part| part.offset))?;
        b.bind(job.het.map(|part| part.size))?;
        b.bind(partition)?;
        b.bind(state_key(job.state))?;
        b.bind(requeued)?;
        b.bind(job.cancelled_by)?;
        b.bind(exit_key(job.exit))?;
        b.bind(exit_key(job.derived_exit))?;
        b.bind(job.eligible.map(|at| at.0))?;
        b.bind(job.start.map(|at| at.0))?;
        b.bind(signed(job.suspended_ms))?;
        b.bind(limit_key(job.time_limit))?;
        b.bind(signed(job.req_mem_mib))?;
        b.bind(job.alloc_cpus)?;
        b.bind(job.alloc_nodes)?;
        b.bind(signed(job.alloc_mem_mib))?;
        b.bind(gres)?;
        b.bind(some(&job.nodelist))?;
        b.bind(reason)?;
        b.bind(job.priority)?;
        b.bind(job.ntasks)?;
        b.bind(job.start.map(|_| job.backfilled))?;
        b.bind(job.end.map_or(OPEN, |at| at.0))?;
        statement.raw_execute()?;
        Ok(())
    }

    /// In the order of [`super::row::STEP_START`] and [`super::row::STEP_END`].
    pub(super) fn put_step(&self, row: i64, step: &AcctStep) -> Result<(), StoreError> {
        let line = cut(&step.submit_line, step_line_max(step.step));
        let usage = step.usage.clone();
        // Values with columns of their own are not stored twice.
        let rest = usage.clone().map(|usage| ResourceUsage {
            user_us: 0,
            system_us: 0,
            max_rss_kib: 0,
            ..usage
        });
        let usage = usage.as_ref();
        let mut statement = self.connection.prepare_cached(&SQL.step_put)?;
        let mut b = Binder::new(&mut statement);
        b.bind(row)?;
        b.bind(step_key(step.step))?;
        b.bind(some(step_name(step.step, &step.name)))?;
        b.bind(step.start.0)?;
        b.bind(step.nodes)?;
        b.bind(step.tasks)?;
        b.bind(step.cpus)?;
        b.bind(signed(step.mem_mib))?;
        b.bind(some(&step_nodes(step.step, &step.nodelist)))?;
        b.bind(some(line))?;
        b.bind(some(&step.distribution))?;
        b.bind((!step.devices.is_empty()).then(|| cbor(&step.devices)))?;
        b.bind(state_key(step.state))?;
        b.bind(step.cancelled_by)?;
        b.bind(exit_key(step.exit))?;
        b.bind(step.end.map(|at| at.0))?;
        b.bind(usage.map(|usage| signed(usage.user_us)))?;
        b.bind(usage.map(|usage| signed(usage.system_us)))?;
        b.bind(usage.map(|usage| signed(usage.max_rss_kib)))?;
        b.bind(rest.as_ref().map(cbor))?;
        statement.raw_execute()?;
        Ok(())
    }
}
