//! Reading what a copy in another database lacks: first all rows in order, then those that the log names.
//!
//! Rows are written there by their keys, so that to write one twice changes nothing. What a copy has reached is kept where the
//! copy is, in the transaction that writes the rows.

use super::log::{self, EntrySubject};
use super::read::{FIXED_BYTES, bytes_of};
use super::records::{RawJob, Records, job_columns, owner_names};
use super::row::{small, step_key, time};
use super::text::Texts;
use super::usage::amount;
use crate::ArchivedUsage;
use crate::store::StoreError;
use muster_model::accounts::Transaction;
use muster_model::known_cluster::KnownCluster;
use muster_model::time::Timestamp;
use muster_proto::acct::{AcctJob, AcctStep, LoggedTransaction, NodeEvent, ReservationRecord};
use rusqlite::{Connection, OpenFlags, OptionalExtension, Row};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Progress of a copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CopyProgress {
    /// The current stage.
    pub stage: Stage,
    /// The key of the last row of the stage that is copied.
    pub row: i64,
    /// The entry of the log up to which changes are copied.
    pub number: i64,
}

/// The stages of a copy, in this order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stage {
    /// Nothing is copied yet.
    #[default]
    New,
    /// Jobs with their steps and suspensions.
    Jobs,
    /// Events of nodes.
    Events,
    /// Changes of accounting's records.
    Transactions,
    /// Sums of use.
    Used,
    /// Sums of times in which nodes were out of service.
    Out,
    /// Times of reservations.
    Reservations,
    /// All is copied once, and what changes follows.
    Following,
}

/// Rows for the copy, and the number of each.
#[derive(Debug, Default)]
pub struct Rows {
    /// Runs, without steps.
    pub jobs: Vec<(i64, AcctJob)>,
    /// Runs of which all steps and suspensions are removed before those below are written.
    pub reset: BTreeSet<i64>,
    /// Runs of which all suspensions are removed before.
    pub unsuspended: BTreeSet<i64>,
    /// Steps, by run and place among its steps.
    pub steps: BTreeMap<(i64, i64), AcctStep>,
    /// Suspensions.
    pub suspensions: Vec<Suspension>,
    /// Events of nodes.
    pub events: Vec<(i64, NodeEvent)>,
    /// Changes of accounting's records.
    pub transactions: Vec<LoggedTransaction>,
    /// Sums of use.
    pub used: Vec<(i64, UsedSum)>,
    /// Sums of outages.
    pub out: Vec<(i64, OutSum)>,
    /// Times of reservations.
    pub reservations: BTreeMap<i64, ReservationRecord>,
    /// Rows that are not there any more.
    pub gone: PurgedRowIds,
}

/// Numbers of rows that were purged.
#[derive(Debug, Default)]
pub struct PurgedRowIds {
    /// Runs, which go with their steps and suspensions.
    pub jobs: BTreeSet<i64>,
    /// Events of nodes.
    pub events: BTreeSet<i64>,
    /// Changes of accounting's records.
    pub transactions: BTreeSet<i64>,
    /// Sums of use.
    pub used: BTreeSet<i64>,
    /// Sums of outages.
    pub out: BTreeSet<i64>,
    /// Times of reservations.
    pub reservations: BTreeSet<i64>,
}

/// The use in an hour, a day or a month. Amounts are milliseconds times the amount of the resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsedSum {
    /// `hour`, `day` or `month`, of UTC.
    pub length: &'static str,
    /// When that begins.
    pub begin: Timestamp,
    /// The account.
    pub account: String,
    /// The user's number.
    pub uid: u32,
    /// The user.
    pub user: String,
    /// Workload characterization key; empty for none.
    pub wckey: String,
    /// The device that `run_ms` is times the number of; empty in the row of what all jobs have.
    pub device: String,
    /// Run times.
    pub run_ms: i64,
    /// CPUs.
    pub cpu_ms: i64,
    /// MiB of memory.
    pub mem_mib_ms: i64,
    /// Nodes.
    pub node_ms: i64,
    /// CPUs that were waited for.
    pub planned_cpu_ms: i64,
}

/// Time that a node was out of service in an hour, a day or a month.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutSum {
    /// `hour`, `day` or `month`, of UTC.
    pub length: &'static str,
    /// When that begins.
    pub begin: Timestamp,
    /// The node.
    pub node: String,
    /// Milliseconds.
    pub out_ms: i64,
}

/// A time in which a run did not run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Suspension {
    /// The run's number.
    pub job: i64,
    /// Since when.
    pub start: Timestamp,
    /// Until when; absent while it lasts.
    pub end: Option<Timestamp>,
}

/// The database that is copied. Its writer goes on beside this.
pub struct CopySource {
    connection: Connection,
    texts: Texts,
    origin: i64,
}

impl CopySource {
    /// Opens the file that a controller has made.
    ///
    /// # Errors
    /// There is none, or it cannot be read.
    pub fn open(path: &Path) -> Result<CopySource, StoreError> {
        let failed = |source| StoreError::Open {
            path: path.to_owned(),
            source,
        };
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(path, flags).map_err(failed)?;
        super::set_up(&connection).map_err(failed)?;
        super::schema::check_format(&connection, path)?;
        let origin = origin(&connection)?;
        Ok(CopySource {
            connection,
            texts: Texts::default(),
            origin,
        })
    }

    /// Replaces the other clusters of the copy's database that the controller knows.
    ///
    /// # Errors
    /// What the database says.
    pub fn note_clusters(&mut self, clusters: &[KnownCluster]) -> Result<(), StoreError> {
        super::known_cluster::replace(&self.connection, clusters)
    }

    /// Which database this is, among those that the cluster had: numbers of jobs begin anew in each.
    pub fn origin(&self) -> i64 {
        self.origin
    }

    /// Rows that a copy lacks, about `most` at a time, and how far it is with them; nothing if it lacks none.
    ///
    /// # Errors
    /// What the database says.
    pub fn next(
        &mut self,
        copied: CopyProgress,
        most: usize,
    ) -> Result<Option<(Rows, CopyProgress)>, StoreError> {
        let is_complete = log::is_kept(&self.connection)?
            && log::begins(&self.connection)?.contains(&copied.number);
        if copied.stage == Stage::New || !is_complete {
            let begun = CopyProgress {
                stage: Stage::Jobs,
                row: i64::MIN,
                number: log::begin(&mut self.connection)?,
            };
            return Ok(Some((Rows::default(), begun)));
        }
        let transaction = self.connection.unchecked_transaction()?;
        let mut selection = Selection {
            records: Records {
                connection: &transaction,
                texts: &mut self.texts,
            },
            rows: Rows::default(),
            bytes: 0,
        };
        let next = match copied.stage {
            Stage::Following => selection.changed(copied, most)?,
            stage => selection.stage(stage, copied, most)?,
        };
        Ok(next.map(|next| (selection.rows, next)))
    }

    /// Entries of the log that a copy has not read.
    ///
    /// # Errors
    /// What the database says.
    pub fn behind(&self, copied: CopyProgress) -> Result<u64, StoreError> {
        let last = log::last(&self.connection)?;
        Ok(last.saturating_sub(copied.number).max(0).unsigned_abs())
    }

    /// Removes entries of the log that the copy has read, a part of them at a time.
    ///
    /// # Errors
    /// What the database says.
    pub fn forget(&mut self, copied: CopyProgress, most: i64) -> Result<(), StoreError> {
        let (first, _) = log::ends(&self.connection)?;
        let upto = copied.number.min(first.saturating_add(most));
        self.connection
            .prepare_cached("DELETE FROM change_log WHERE number <= ?1")?
            .execute([upto])?;
        Ok(())
    }
}

/// The number of a database, which it gets when it is copied first.
pub(super) fn origin(connection: &Connection) -> Result<i64, StoreError> {
    let known = || -> rusqlite::Result<Option<i64>> {
        connection
            .prepare_cached("SELECT value FROM meta WHERE key = 'origin'")?
            .query_row([], |row| row.get(0))
            .optional()
    };
    if let Some(origin) = known()? {
        return Ok(origin);
    }
    connection.execute(
        "INSERT OR IGNORE INTO meta VALUES ('origin', abs(random() / 2))",
        [],
    )?;
    Ok(known()?.unwrap_or(0))
}

/// Bytes of rows after which no more are read for one part of the copy: a command line may be a megabyte.
const BYTES_MAX: usize = 8 << 20;
/// Bytes of a name beside its text.
const NAME_BYTES: usize = size_of::<String>();

/// Collects rows.
struct Selection<'a> {
    records: Records<'a>,
    rows: Rows,
    /// About how many bytes they have.
    bytes: usize,
}

impl Selection<'_> {
    /// The next rows of a stage, or the next stage.
    fn stage(
        &mut self,
        stage: Stage,
        copied: CopyProgress,
        most: usize,
    ) -> Result<Option<CopyProgress>, StoreError> {
        let (table, key, next) = match stage {
            Stage::Jobs => ("job", "row", Stage::Events),
            Stage::Events => ("node_event", "id", Stage::Transactions),
            Stage::Transactions => ("txn", "id", Stage::Used),
            Stage::Used => ("used", "id", Stage::Out),
            Stage::Out => ("out_of_service", "id", Stage::Reservations),
            _ => ("reservation", "id", Stage::Following),
        };
        let sql = format!("SELECT {key} FROM {table} WHERE {key} > ?1 ORDER BY {key} LIMIT ?2");
        let numbers = self.numbers(&sql, (copied.row, most as i64))?;
        let mut last = None;
        for number in numbers {
            match stage {
                Stage::Jobs => self.whole_job(number)?,
                Stage::Events => self.event(number)?,
                Stage::Transactions => self.transaction(number)?,
                Stage::Used => self.used(number)?,
                Stage::Out => self.out(number)?,
                _ => self.reservation(number)?,
            }
            last = Some(number);
            if self.bytes >= BYTES_MAX {
                break;
            }
        }
        Ok(Some(match last {
            Some(row) => CopyProgress { row, ..copied },
            None => CopyProgress {
                stage: next,
                row: i64::MIN,
                ..copied
            },
        }))
    }

    /// Rows that the log names.
    fn changed(
        &mut self,
        copied: CopyProgress,
        most: usize,
    ) -> Result<Option<CopyProgress>, StoreError> {
        let connection = self.records.connection;
        let mut statement = connection.prepare_cached(
            "SELECT number, kind, first, second FROM change_log WHERE number > ?1 ORDER BY number LIMIT ?2",
        )?;
        let entries = statement.query_map((copied.number, most as i64), |row| {
            Ok((
                row.get::<_, i64>(0)?,
                EntrySubject::of(row.get(1)?, row.get(2)?, row.get(3)?),
            ))
        })?;
        let entries = entries.collect::<rusqlite::Result<Vec<_>>>()?;
        let (mut reached, mut seen) = (None, BTreeSet::new());
        for (number, written) in entries {
            // Rows are read as they are now, so that once is enough.
            if let Some(written) = written.filter(|written| seen.insert(*written)) {
                self.read(written)?;
            }
            reached = Some(number);
            if self.bytes >= BYTES_MAX {
                break;
            }
        }
        Ok(reached.map(|number| CopyProgress { number, ..copied }))
    }

    fn read(&mut self, written: EntrySubject) -> Result<(), StoreError> {
        match written {
            EntrySubject::Job(row) => self.job(row).map(drop),
            EntrySubject::Step(row, step) => self.step(row, step),
            EntrySubject::Reset(row) => self.reset(row),
            EntrySubject::Suspension(row) => self.suspensions(row),
            EntrySubject::NodeEvent(id) => self.event(id),
            EntrySubject::Transaction(id) => self.transaction(id),
            EntrySubject::Used(id) => self.used(id),
            EntrySubject::Out(id) => self.out(id),
            EntrySubject::Reservation(id) => self.reservation(id),
        }
    }

    fn reservation(&mut self, id: i64) -> Result<(), StoreError> {
        match super::reservation::read(self.records.connection, id)? {
            Some(record) => {
                let texts = [&record.nodes, &record.users, &record.accounts];
                self.bytes += FIXED_BYTES + texts.into_iter().map(String::len).sum::<usize>();
                self.rows.reservations.insert(id, record);
            }
            None => {
                self.rows.gone.reservations.insert(id);
            }
        }
        Ok(())
    }

    fn whole_job(&mut self, number: i64) -> Result<(), StoreError> {
        self.job(number)?;
        self.reset(number)
    }

    /// A run, which may have been purged since.
    fn job(&mut self, number: i64) -> Result<(), StoreError> {
        match self.read_job(number)? {
            Some(job) => {
                self.bytes += bytes_of(&job);
                self.rows.jobs.push((number, job));
            }
            None => {
                self.rows.gone.jobs.insert(number);
                self.rows.reset.insert(number);
            }
        }
        Ok(())
    }

    fn read_job(&mut self, number: i64) -> Result<Option<AcctJob>, StoreError> {
        let connection = self.records.connection;
        let sql = format!("SELECT {} FROM job WHERE row = ?1", job_columns());
        let mut statement = connection.prepare_cached(&sql)?;
        let mut rows = statement.query([number])?;
        match rows.next()? {
            Some(row) => Ok(Some(self.records.job(&RawJob::of(row)?)?)),
            None => Ok(None),
        }
    }

    /// All steps and suspensions of a run.
    fn reset(&mut self, number: i64) -> Result<(), StoreError> {
        self.rows.reset.insert(number);
        self.steps(number, None)?;
        self.suspensions(number)
    }

    fn step(&mut self, number: i64, step: i64) -> Result<(), StoreError> {
        match self.rows.steps.contains_key(&(number, step)) {
            true => Ok(()),
            false => self.steps(number, Some(step)),
        }
    }

    fn steps(&mut self, number: i64, only: Option<i64>) -> Result<(), StoreError> {
        let connection = self.records.connection;
        let sql = format!("SELECT {} FROM job WHERE row = ?1", job_columns());
        let mut statement = connection.prepare_cached(&sql)?;
        let mut rows = statement.query([number])?;
        let Some(row) = rows.next()? else {
            return Ok(());
        };
        let run = RawJob::of(row)?;
        let job = self.records.job(&run)?;
        for step in self.records.steps_as_written(&run, &job, only)? {
            let key = step_key(step.step);
            self.bytes += FIXED_BYTES + step.submit_line.len() + step.nodelist.len();
            self.rows.steps.insert((number, key), step);
        }
        Ok(())
    }

    fn suspensions(&mut self, number: i64) -> Result<(), StoreError> {
        if !self.rows.unsuspended.insert(number) {
            return Ok(());
        }
        let mut statement = (self.records.connection).prepare_cached(
            "SELECT start_ms, end_ms FROM suspension WHERE job = ?1 ORDER BY start_ms",
        )?;
        let found = statement.query_map([number], |row| {
            Ok(Suspension {
                job: number,
                start: Timestamp(row.get(0)?),
                end: time(row.get(1)?),
            })
        })?;
        let found = found.collect::<rusqlite::Result<Vec<_>>>()?;
        self.bytes += found.len() * size_of::<Suspension>();
        self.rows.suspensions.extend(found);
        Ok(())
    }

    fn event(&mut self, id: i64) -> Result<(), StoreError> {
        let mut statement = self.records.connection.prepare_cached(
            "SELECT node, start_ms, end_ms, down, drain, fail, reason, uid FROM node_event
             WHERE id = ?1",
        )?;
        let event = statement.query_row([id], |row| {
            Ok(NodeEvent {
                node: row.get(0)?,
                start: Timestamp(row.get(1)?),
                end: time(row.get(2)?),
                down: row.get(3)?,
                drain: row.get(4)?,
                fail: row.get(5)?,
                reason: row.get(6)?,
                uid: small(row.get(7)?),
            })
        });
        match event.optional()? {
            Some(event) => {
                self.bytes += FIXED_BYTES + event.reason.len();
                self.rows.events.push((id, event));
            }
            None => drop(self.rows.gone.events.insert(id)),
        }
        Ok(())
    }

    fn transaction(&mut self, id: i64) -> Result<(), StoreError> {
        let mut statement = self.records.connection.prepare_cached(
            "SELECT id, at_ms, actor, action, target, info, users, accounts FROM txn WHERE id = ?1",
        )?;
        match statement.query_row([id], logged_transaction).optional()? {
            Some(found) => {
                self.bytes += logged_bytes(&found);
                self.rows.transactions.push(found);
            }
            None => drop(self.rows.gone.transactions.insert(id)),
        }
        Ok(())
    }

    fn used(&mut self, id: i64) -> Result<(), StoreError> {
        let connection = self.records.connection;
        let mut statement = connection.prepare_cached(
            "SELECT length, begin_ms, account, uid, owner, wckey, device, run_ms, cpu_ms, mem_mib_ms,
             node_ms, planned_cpu_ms FROM used WHERE id = ?1",
        )?;
        let mut rows = statement.query([id])?;
        let Some(row) = rows.next()? else {
            self.rows.gone.used.insert(id);
            return Ok(());
        };
        let owner = self.records.texts.text(connection, row.get(4)?)?;
        let sum = UsedSum {
            length: length_name(row.get(0)?),
            begin: Timestamp(row.get(1)?),
            account: self.text(row.get(2)?)?,
            uid: small(row.get(3)?),
            user: owner_names(&owner).0,
            wckey: self.text(row.get(5)?)?,
            device: self.text(row.get(6)?)?,
            run_ms: amount(row, 7)?,
            cpu_ms: amount(row, 8)?,
            mem_mib_ms: amount(row, 9)?,
            node_ms: amount(row, 10)?,
            planned_cpu_ms: amount(row, 11)?,
        };
        self.bytes += FIXED_BYTES + sum.account.len() + sum.wckey.len();
        self.rows.used.push((id, sum));
        Ok(())
    }

    /// A text, which is empty where its number is 0.
    fn text(&mut self, number: i64) -> Result<String, StoreError> {
        match number {
            0 => Ok(String::new()),
            number => self.records.text(number),
        }
    }

    fn out(&mut self, id: i64) -> Result<(), StoreError> {
        let sum = self
            .records
            .connection
            .prepare_cached(
                "SELECT length, begin_ms, node, out_ms FROM out_of_service WHERE id = ?1",
            )?
            .query_row([id], |row| {
                Ok(OutSum {
                    length: length_name(row.get(0)?),
                    begin: Timestamp(row.get(1)?),
                    node: row.get(2)?,
                    out_ms: amount(row, 3)?,
                })
            });
        match sum.optional()? {
            Some(sum) => {
                self.bytes += FIXED_BYTES;
                self.rows.out.push((id, sum));
            }
            None => drop(self.rows.gone.out.insert(id)),
        }
        Ok(())
    }

    fn numbers(&self, sql: &str, of: (i64, i64)) -> Result<Vec<i64>, StoreError> {
        let mut statement = self.records.connection.prepare_cached(sql)?;
        let rows = statement.query_map(of, |row| row.get(0))?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }
}

impl UsedSum {
    /// A sum of an archive.
    pub fn of_archived(sum: &ArchivedUsage) -> UsedSum {
        UsedSum {
            length: length_name(sum.length.into()),
            begin: sum.begin,
            account: sum.account.clone(),
            uid: sum.uid,
            user: owner_names(&sum.owner).0,
            wckey: sum.wckey.clone(),
            device: sum.device.clone(),
            run_ms: sum.run_ms,
            cpu_ms: sum.cpu_ms,
            mem_mib_ms: sum.mem_mib_ms,
            node_ms: sum.node_ms,
            planned_cpu_ms: sum.planned_cpu_ms,
        }
    }
}

/// `hour`, `day` or `month`, of the number that stores and archives have of it.
pub fn length_name(key: i64) -> &'static str {
    match key {
        0 => "hour",
        1 => "day",
        _ => "month",
    }
}

/// About how many bytes a change of accounting's records takes.
pub(super) fn logged_bytes(logged: &LoggedTransaction) -> usize {
    let Transaction {
        target,
        info,
        users,
        accounts,
        ..
    } = &logged.transaction;
    let names = users.iter().chain(accounts);
    let names = names.map(|name| name.len() + NAME_BYTES);
    FIXED_BYTES + target.len() + info.len() + names.sum::<usize>()
}

/// A row of `txn`, with all its columns.
pub(super) fn logged_transaction(row: &Row<'_>) -> rusqlite::Result<LoggedTransaction> {
    let names = |text: String| -> Vec<String> {
        let names = text.split(',').filter(|name| !name.is_empty());
        names.map(str::to_owned).collect()
    };
    Ok(LoggedTransaction {
        id: row.get::<_, i64>(0)?.unsigned_abs(),
        at: Timestamp(row.get(1)?),
        transaction: Transaction {
            actor: row.get(2)?,
            action: row.get(3)?,
            target: row.get(4)?,
            info: row.get(5)?,
            users: names(row.get(6)?),
            accounts: names(row.get(7)?),
        },
    })
}
