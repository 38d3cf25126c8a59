//! The copy of one cluster's accounting in a database.

mod directory;

use crate::database::{Database, DatabaseError};
use crate::sql::{SqlValue, Statement, deletes, upserts};
use crate::{schema, tables};
use muster_acct::{CopyProgress, CopySource, Rows, Stage};
use std::collections::BTreeSet;

/// Rows that are copied in one transaction, about.
const ROWS: usize = 1000;
/// Entries of the log that are removed at once: the controller waits for that.
const FORGOTTEN: i64 = 20_000;

/// See the module.
pub struct Replica {
    database: Box<dyn Database>,
    cluster: String,
    origin: i64,
    copied: CopyProgress,
    /// Number of writes to this copy. A writer that finds another number than its own is not the only one.
    write_count: i64,
}

impl Replica {
    /// The copy of a cluster's accounting, whose tables are made where there are none.
    ///
    /// # Errors
    /// What the database says.
    pub fn open(
        mut database: Box<dyn Database>,
        cluster: &str,
        source: &CopySource,
    ) -> Result<Replica, DatabaseError> {
        schema::migrate(database.as_mut())?;
        let mut replica = Replica {
            database,
            cluster: cluster.to_owned(),
            origin: source.origin(),
            copied: CopyProgress::default(),
            write_count: 0,
        };
        if replica.read()?.is_none() {
            let row = vec![
                SqlValue::text(cluster),
                replica.origin.into(),
                number(Stage::New).into(),
                0_i64.into(),
                0_i64.into(),
                0_i64.into(),
            ];
            let begun = upserts(replica.database.kind(), "muster_copy", COPY, 2, vec![row]);
            replica.database.execute(&begun)?;
        }
        (replica.copied, replica.write_count) = replica
            .read()?
            .ok_or(DatabaseError::Answer("no row of the copy"))?;
        Ok(replica)
    }

    /// Progress of the copy.
    pub fn copied(&self) -> CopyProgress {
        self.copied
    }

    /// Progress and write count of the copy, by the database.
    fn read(&mut self) -> Result<Option<(CopyProgress, i64)>, DatabaseError> {
        let sql = "SELECT stage, reached_row, log_number, turn FROM muster_copy WHERE cluster = ? AND origin = ?";
        let of = vec![SqlValue::text(&self.cluster), self.origin.into()];
        let rows = self
            .database
            .query(&Statement::new(self.database.kind(), sql, of))?;
        let Some(row) = rows.first() else {
            return Ok(None);
        };
        let [
            SqlValue::Integer(stage),
            SqlValue::Integer(row),
            SqlValue::Integer(number),
            SqlValue::Integer(write_count),
        ] = row.as_slice()
        else {
            return Err(DatabaseError::Answer("how far the copy is"));
        };
        let copied = CopyProgress {
            stage: STAGES
                .iter()
                .find(|(_, n)| n == stage)
                .map_or(Stage::New, |(stage, _)| *stage),
            row: *row,
            number: *number,
        };
        Ok(Some((copied, *write_count)))
    }

    /// Copies the next part of the rows; returns whether there were some.
    ///
    /// # Errors
    /// Errors of the database. It is to be connected to anew then, and nothing is lost or written twice.
    pub fn copy(&mut self, source: &mut CopySource) -> Result<bool, DatabaseError> {
        let Some((rows, copied)) = source.next(self.copied, ROWS)? else {
            return Ok(false);
        };
        let mut statements = self.statements(&rows);
        let kind = self.database.kind();
        let sql = "UPDATE muster_copy SET stage = ?, reached_row = ?, log_number = ?, turn = ? WHERE cluster = ? AND origin = ?";
        let values = vec![
            number(copied.stage).into(),
            copied.row.into(),
            copied.number.into(),
            (self.write_count + 1).into(),
            SqlValue::text(&self.cluster),
            self.origin.into(),
        ];
        statements.push(Statement::new(kind, sql, values));
        self.check_turn()?;
        self.database.execute(&statements)?;
        (self.copied, self.write_count) = (copied, self.write_count + 1);
        if copied.stage == Stage::Following {
            source.forget(copied, FORGOTTEN)?;
        }
        Ok(true)
    }

    /// Nobody else has written since.
    fn check_turn(&mut self) -> Result<(), DatabaseError> {
        match self.read()? {
            Some((_, count)) if count == self.write_count => Ok(()),
            _ => Err(DatabaseError::OtherWriter(self.cluster.clone())),
        }
    }

    fn statements(&self, rows: &Rows) -> Vec<Statement> {
        let kind = self.database.kind();
        let owner = tables::RowOrigin {
            cluster: &self.cluster,
            origin: self.origin,
        };
        let of = (self.cluster.as_str(), self.origin);
        let jobs = rows.jobs.iter().map(|(run, job)| owner.job(*run, job));
        let steps = rows.steps.iter();
        let steps = steps.map(|((run, place), step)| owner.step(*run, *place, step));
        let suspensions = rows.suspensions.iter().map(|s| owner.suspension(s));
        let events = rows.events.iter();
        let events = events.map(|(id, event)| owner.node_event(*id, event));
        let transactions = rows.transactions.iter().map(|t| owner.transaction(t));
        let reset = || rows.reset.iter().copied();
        let unsuspended = rows.unsuspended.union(&rows.reset).copied();
        let used = rows.used.iter().map(|(id, sum)| owner.used(*id, sum));
        let out = rows.out.iter().map(|(id, sum)| owner.out(*id, sum));
        let reservations = rows.reservations.iter();
        let reservations = reservations.map(|(id, record)| owner.reservation(*id, record));
        let gone = |table, key, numbers: &BTreeSet<i64>| {
            deletes(kind, table, key, of, numbers.iter().copied())
        };
        [
            deletes(kind, "muster_step", "run", of, reset()),
            deletes(kind, "muster_suspension", "run", of, unsuspended),
            gone("muster_job", "run", &rows.gone.jobs),
            gone("muster_node_event", "id", &rows.gone.events),
            gone("muster_transaction", "id", &rows.gone.transactions),
            gone("muster_used", "id", &rows.gone.used),
            gone("muster_out_of_service", "id", &rows.gone.out),
            gone("muster_reservation", "id", &rows.gone.reservations),
            upserts(
                kind,
                "muster_reservation",
                tables::RESERVATION,
                3,
                reservations.collect(),
            ),
            upserts(kind, "muster_used", tables::USED, 3, used.collect()),
            upserts(kind, "muster_out_of_service", tables::OUT, 3, out.collect()),
            upserts(kind, "muster_job", tables::JOB, 3, jobs.collect()),
            upserts(kind, "muster_step", tables::STEP, 4, steps.collect()),
            upserts(
                kind,
                "muster_suspension",
                tables::SUSPENSION,
                4,
                suspensions.collect(),
            ),
            upserts(
                kind,
                "muster_node_event",
                tables::NODE_EVENT,
                3,
                events.collect(),
            ),
            upserts(
                kind,
                "muster_transaction",
                tables::TRANSACTION,
                3,
                transactions.collect(),
            ),
        ]
        .concat()
    }
}

/// Columns of `muster_copy`.
const COPY: &[&str] = &[
    "cluster",
    "origin",
    "stage",
    "reached_row",
    "log_number",
    "turn",
];

/// Numbers of stages in the database.
const STAGES: [(Stage, i64); 8] = [
    (Stage::New, 0),
    (Stage::Jobs, 1),
    (Stage::Events, 2),
    (Stage::Transactions, 3),
    (Stage::Following, 4),
    (Stage::Used, 5),
    (Stage::Out, 6),
    (Stage::Reservations, 7),
];

fn number(stage: Stage) -> i64 {
    let found = STAGES.iter().find(|(of, _)| *of == stage);
    found.map_or(0, |(_, number)| *number)
}
