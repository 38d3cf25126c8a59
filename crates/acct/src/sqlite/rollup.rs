//! Sums of use, by hour, day and month. They are of runs that have ended and of outages that are over, and are changed in the
//! transaction that writes these: at each of its ends they equal the rows. Runs that are not over are added when a sum is asked
//! for. Runs that are purged leave them as they are.

use super::log::{self, EntrySubject};
use super::row::{OPEN, signed, unsigned};
use super::text::Interned;
use crate::store::StoreError;
use muster_model::time::Timestamp;
use muster_model::use_slots::{HOUR_MS, Length, RunSpan};
use rusqlite::{Connection, OptionalExtension, Row};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

/// Hours before its end from which on a run is divided: more than eleven years.
const HOURS_MAX: i64 = 100_000;
/// Sums that are held before they are written.
const HELD_MAX: usize = 50_000;

/// Columns of `job` that [`Run::of`] reads, in order.
pub(super) const COLUMNS: &str =
    "account, uid, owner, wckey, eligible_ms, start_ms, end_ms, suspended_ms,
     alloc_cpus, alloc_mem_mib, alloc_nodes, req_cpus, gres";

/// The user, account and key of a use: numbers of texts, 0 for no key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct UsageKey {
    pub(super) account: i64,
    pub(super) uid: i64,
    pub(super) owner: i64,
    pub(super) wckey: i64,
}

/// The parts of a run's row that its use follows from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) whose: UsageKey,
    eligible: Option<i64>,
    start: Option<i64>,
    /// [`OPEN`] while it goes on.
    end: i64,
    suspended_ms: u64,
    cpus: i64,
    mem_mib: i64,
    nodes: i64,
    req_cpus: i64,
    pub(super) gres: Vec<(String, u64)>,
}

/// Amounts of a run within a time, milliseconds times what there was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Amounts {
    pub(super) run: i64,
    pub(super) cpu: i64,
    pub(super) mem: i64,
    pub(super) node: i64,
    pub(super) planned: i64,
}

impl Amounts {
    fn columns(&mut self) -> [&mut i64; 5] {
        [
            &mut self.run,
            &mut self.cpu,
            &mut self.mem,
            &mut self.node,
            &mut self.planned,
        ]
    }

    /// Adds others, or takes them away.
    pub(super) fn add(&mut self, mut other: Amounts, sign: i64) {
        for (own, other) in self.columns().into_iter().zip(other.columns()) {
            *own = own.saturating_add(other.saturating_mul(sign));
        }
    }
}

impl Run {
    /// Reads [`COLUMNS`].
    pub(super) fn of(row: &Row<'_>) -> rusqlite::Result<Run> {
        let gres = row.get_ref(12)?.as_blob_or_null()?;
        Ok(Run {
            whose: UsageKey {
                account: row.get(0)?,
                uid: row.get(1)?,
                owner: row.get(2)?,
                wckey: row.get::<_, Option<i64>>(3)?.unwrap_or(0),
            },
            eligible: row.get(4)?,
            start: row.get(5)?,
            end: row.get(6)?,
            suspended_ms: unsigned(row.get(7)?),
            cpus: row.get(8)?,
            mem_mib: row.get(9)?,
            nodes: row.get(10)?,
            req_cpus: row.get(11)?,
            // Damaged ones are reported where the job itself is read.
            gres: gres
                .and_then(|bytes| minicbor::decode(bytes).ok())
                .unwrap_or_default(),
        })
    }

    /// Its use in a time, by now.
    pub(super) fn within(&self, from: i64, to: i64, now: i64) -> Amounts {
        let end = if self.end == OPEN { now } else { self.end };
        let ran = self.start.map_or(0, |start| {
            let span = RunSpan {
                start: Timestamp(start),
                end: Timestamp(end),
                suspended_ms: self.suspended_ms,
            };
            signed(span.ran_ms(Timestamp(from), Timestamp(to)))
        });
        let waited = self.eligible.map_or(0, |since| {
            let until = self.start.unwrap_or(end).min(to);
            until.saturating_sub(since.max(from)).max(0)
        });
        Amounts {
            run: ran,
            cpu: ran.saturating_mul(self.cpus),
            mem: ran.saturating_mul(self.mem_mib),
            node: ran.saturating_mul(self.nodes),
            planned: waited.saturating_mul(self.req_cpus),
        }
    }

    /// From when to when it is divided.
    fn times(&self) -> Option<(i64, i64)> {
        let begin = match (self.eligible, self.start) {
            (Some(eligible), Some(start)) => eligible.min(start),
            (eligible, start) => eligible.or(start)?,
        };
        let least = self.end.saturating_sub(HOURS_MAX * HOUR_MS);
        (self.end != OPEN && begin < self.end).then_some((begin.max(least), self.end))
    }
}

/// The key of a row of `used`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct UsedKey {
    length: Length,
    /// Milliseconds since the epoch.
    begin: i64,
    whose: UsageKey,
    /// The row of the device's name; 0 for what all jobs have.
    device: i64,
}

/// Changes of sums that a transaction makes.
#[derive(Debug, Default)]
pub(super) struct Rollup {
    used: BTreeMap<UsedKey, Amounts>,
    out: BTreeMap<(Length, i64, String), i64>,
    /// Runs whose part as it was is taken away.
    touched: BTreeSet<i64>,
}

impl Rollup {
    /// A run is about to be written: its part as it is now is taken away.
    pub(super) fn touch(
        &mut self,
        connection: &Connection,
        texts: &mut Interned,
        row: i64,
    ) -> Result<(), StoreError> {
        if self.touched.insert(row)
            && let Some(run) = ended(connection, row)?
        {
            self.add_run(connection, texts, &run, -1)?;
        }
        Ok(())
    }

    /// Adds what an ended run used, or takes it away.
    pub(super) fn add_run(
        &mut self,
        connection: &Connection,
        texts: &mut Interned,
        run: &Run,
        sign: i64,
    ) -> Result<(), StoreError> {
        let Some((from, to)) = run.times() else {
            return Ok(());
        };
        let mut devices = Vec::with_capacity(run.gres.len());
        for (name, count) in &run.gres {
            devices.push((texts.number(connection, name.as_bytes())?, signed(*count)));
        }
        for length in Length::ALL {
            let mut begin = length.begin(Timestamp(from));
            while begin < to {
                let next = length.next(begin);
                let part = run.within(begin.max(from), next, to);
                let key = |device| UsedKey {
                    length,
                    begin,
                    whose: run.whose,
                    device,
                };
                self.used.entry(key(0)).or_default().add(part, sign);
                for (device, count) in &devices {
                    let part = Amounts {
                        run: part.run.saturating_mul(*count),
                        ..Amounts::default()
                    };
                    self.used.entry(key(*device)).or_default().add(part, sign);
                }
                begin = next;
            }
        }
        Ok(())
    }

    /// Adds a time in which a node was out of service.
    pub(super) fn add_outage(&mut self, node: &str, start: i64, end: i64) {
        let start = start.max(end.saturating_sub(HOURS_MAX * HOUR_MS));
        for length in Length::ALL {
            let mut begin = length.begin(Timestamp(start));
            while begin < end {
                let next = length.next(begin);
                let part = next.min(end).saturating_sub(begin.max(start));
                let sum = self
                    .out
                    .entry((length, begin, node.to_owned()))
                    .or_default();
                *sum = sum.saturating_add(part);
                begin = next;
            }
        }
    }

    /// Whether it is time to write the held sums.
    fn is_full(&self) -> bool {
        self.used.len() + self.out.len() > HELD_MAX
    }

    /// Adds the parts of runs that were touched as they are now, and writes the sums.
    pub(super) fn finish(
        mut self,
        connection: &Connection,
        texts: &mut Interned,
        is_logged: bool,
    ) -> Result<(), StoreError> {
        for row in std::mem::take(&mut self.touched) {
            if let Some(run) = ended(connection, row)? {
                self.add_run(connection, texts, &run, 1)?;
            }
        }
        self.write(connection, is_logged)
    }

    fn write(&mut self, connection: &Connection, is_logged: bool) -> Result<(), StoreError> {
        let mut put = connection.prepare_cached(
            "INSERT INTO used (length, begin_ms, account, uid, owner, wckey, device,
                               run_ms, cpu_ms, mem_mib_ms, node_ms, planned_cpu_ms)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)
             ON CONFLICT (length, begin_ms, account, uid, owner, wckey, device) DO UPDATE SET
             run_ms = run_ms + excluded.run_ms, cpu_ms = cpu_ms + excluded.cpu_ms,
             mem_mib_ms = mem_mib_ms + excluded.mem_mib_ms, node_ms = node_ms + excluded.node_ms,
             planned_cpu_ms = planned_cpu_ms + excluded.planned_cpu_ms RETURNING id",
        )?;
        for (key, amounts) in std::mem::take(&mut self.used) {
            if amounts == Amounts::default() {
                continue;
            }
            let whose = key.whose;
            let id: i64 = put.query_row(
                rusqlite::params![
                    length_key(key.length),
                    key.begin,
                    whose.account,
                    whose.uid,
                    whose.owner,
                    whose.wckey,
                    key.device,
                    amounts.run,
                    amounts.cpu,
                    amounts.mem,
                    amounts.node,
                    amounts.planned
                ],
                |row| row.get(0),
            )?;
            if is_logged {
                log::append(connection, EntrySubject::Used(id))?;
            }
        }
        let mut put = connection.prepare_cached(
            "INSERT INTO out_of_service (length, begin_ms, node, out_ms) VALUES (?1, ?2, ?3, ?4)
             ON CONFLICT (length, begin_ms, node) DO UPDATE SET out_ms = out_ms + excluded.out_ms RETURNING id",
        )?;
        for ((length, begin, node), sum) in std::mem::take(&mut self.out) {
            let id: i64 =
                put.query_row((length_key(length), begin, node, sum), |row| row.get(0))?;
            if is_logged {
                log::append(connection, EntrySubject::Out(id))?;
            }
        }
        Ok(())
    }
}

/// The number of a length in the tables.
pub(super) fn length_key(length: Length) -> i64 {
    match length {
        Length::Hour => 0,
        Length::Day => 1,
        Length::Month => 2,
    }
}

/// A run that has ended; none if it has not, or is not there.
fn ended(connection: &Connection, row: i64) -> Result<Option<Run>, StoreError> {
    static SQL: LazyLock<String> =
        LazyLock::new(|| format!("SELECT {COLUMNS} FROM job WHERE row = ?1 AND end_ms <> ?2"));
    let run = connection
        .prepare_cached(&SQL)?
        .query_row((row, OPEN), Run::of)
        .optional()?;
    Ok(run)
}

/// Makes the sums of a store whose rows an earlier release has written. Only the needed columns are held in memory.
pub(super) fn begin(connection: &Connection) -> Result<(), StoreError> {
    let mut texts = Interned::default();
    let mut rollup = Rollup::default();
    let sql = format!("SELECT {COLUMNS} FROM job WHERE end_ms <> {OPEN} ORDER BY end_ms");
    let mut runs = connection.prepare(&sql)?;
    let mut rows = runs.query([])?;
    while let Some(row) = rows.next()? {
        rollup.add_run(connection, &mut texts, &Run::of(row)?, 1)?;
        if rollup.is_full() {
            rollup.write(connection, false)?;
        }
    }
    let mut events = connection
        .prepare("SELECT node, start_ms, end_ms FROM node_event WHERE end_ms IS NOT NULL")?;
    let mut rows = events.query([])?;
    while let Some(row) = rows.next()? {
        rollup.add_outage(&row.get::<_, String>(0)?, row.get(1)?, row.get(2)?);
        if rollup.is_full() {
            rollup.write(connection, false)?;
        }
    }
    rollup.write(connection, false)
}
