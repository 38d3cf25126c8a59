//! Reading the use in a period: sums of runs that are over, and rows of runs that go on.

use super::records::owner_names;
use super::rollup::{Amounts, COLUMNS, Run, UsageKey, length_key};
use super::row::{OPEN, small, unsigned};
use super::text::Texts;
use crate::store::{StoreError, Use};
use muster_model::time::Timestamp;
use muster_model::use_slots::{Length, Slots, slots};
use muster_proto::acct::{NodeOutage, UsageQuery, UsageRow};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, Row};
use std::collections::BTreeMap;

/// The sums of one account, user and key, as read.
#[derive(Default)]
struct Sum {
    amounts: Amounts,
    devices: BTreeMap<String, i64>,
}

/// See [`crate::History::usage`].
pub(super) fn read(
    connection: &Connection,
    texts: &mut Texts,
    query: &UsageQuery,
    now: Timestamp,
) -> Result<Use, StoreError> {
    let slots = slots(query.start, query.end);
    let (Some(first), Some(last)) = (slots.first(), slots.last()) else {
        return Ok(Use::default());
    };
    let (from, to) = (first.from, last.to);
    let mut sums: BTreeMap<UsageKey, Sum> = BTreeMap::new();
    let mut outages: BTreeMap<String, i64> = BTreeMap::new();
    for slots in &slots {
        add_sums(connection, texts, slots, &mut sums)?;
        add_outages(connection, slots, &mut outages)?;
    }
    add_open_runs(connection, &mut sums, (from, to), now)?;
    add_open_outages(connection, &mut outages, (from, to), now)?;
    let mut rows = Vec::with_capacity(sums.len());
    for (whose, sum) in sums {
        if let Some(row) = row_of(connection, texts, whose, sum)? {
            rows.push(row);
        }
    }
    rows.sort_by(|a, b| (&a.account, &a.user, &a.wckey).cmp(&(&b.account, &b.user, &b.wckey)));
    let outages = outages.into_iter().map(|(node, sum)| NodeOutage {
        node,
        out_ms: unsigned(sum),
    });
    Ok(Use {
        rows,
        outages: outages.collect(),
        since: since(connection)?,
    })
}

/// Since when the cluster is known. Sums of days and months begin with them, and count where there are no shorter ones of that
/// time any more.
fn since(connection: &Connection) -> Result<Option<Timestamp>, StoreError> {
    let mut statement = connection.prepare_cached(
        "SELECT min(at) FROM (
             SELECT value AS at FROM meta WHERE key = 'since_ms'
             UNION ALL SELECT min(start_ms) FROM node_event
             UNION ALL SELECT min(at_ms) FROM txn
             UNION ALL SELECT min(begin_ms) FROM used WHERE length = ?1
             UNION ALL SELECT min(begin_ms) FROM out_of_service WHERE length = ?1)",
    )?;
    let mut first: Option<i64> =
        statement.query_row([length_key(Length::Hour)], |row| row.get(0))?;
    for (length, days) in [(Length::Day, 1), (Length::Month, 31)] {
        let mut statement =
            connection.prepare_cached("SELECT min(begin_ms) FROM used WHERE length = ?1")?;
        let begin: Option<i64> = statement.query_row([length_key(length)], |row| row.get(0))?;
        let ends_before =
            |begin: &i64| first.is_none_or(|first| begin + days * 86_400_000 <= first);
        first = begin.filter(ends_before).or(first);
    }
    Ok(first.map(Timestamp))
}

fn add_sums(
    connection: &Connection,
    texts: &mut Texts,
    slots: &Slots,
    sums: &mut BTreeMap<UsageKey, Sum>,
) -> Result<(), StoreError> {
    let mut statement = connection.prepare_cached(
        "SELECT account, uid, owner, wckey, device, run_ms, cpu_ms, mem_mib_ms, node_ms, planned_cpu_ms
         FROM used WHERE length = ?1 AND begin_ms >= ?2 AND begin_ms < ?3",
    )?;
    let mut rows = statement.query((length_key(slots.length), slots.from, slots.to))?;
    while let Some(row) = rows.next()? {
        let whose = UsageKey {
            account: row.get(0)?,
            uid: row.get(1)?,
            owner: row.get(2)?,
            wckey: row.get(3)?,
        };
        let sum = sums.entry(whose).or_default();
        let device: i64 = row.get(4)?;
        if device != 0 {
            let name = texts.text(connection, device)?;
            let name = String::from_utf8_lossy(&name).into_owned();
            let own = sum.devices.entry(name).or_default();
            *own = own.saturating_add(amount(row, 5)?);
            continue;
        }
        let part = Amounts {
            run: amount(row, 5)?,
            cpu: amount(row, 6)?,
            mem: amount(row, 7)?,
            node: amount(row, 8)?,
            planned: amount(row, 9)?,
        };
        sum.amounts.add(part, 1);
    }
    Ok(())
}

/// A sum; one that came out too large for an integer is a real number there.
pub(super) fn amount(row: &Row<'_>, column: usize) -> rusqlite::Result<i64> {
    Ok(match row.get_ref(column)? {
        ValueRef::Integer(number) => number,
        ValueRef::Real(number) => number as i64,
        _ => 0,
    })
}

fn add_outages(
    connection: &Connection,
    slots: &Slots,
    outages: &mut BTreeMap<String, i64>,
) -> Result<(), StoreError> {
    let mut statement = connection.prepare_cached(
        "SELECT node, out_ms FROM out_of_service WHERE length = ?1 AND begin_ms >= ?2 AND begin_ms < ?3",
    )?;
    let mut rows = statement.query((length_key(slots.length), slots.from, slots.to))?;
    while let Some(row) = rows.next()? {
        let sum = outages.entry(row.get(0)?).or_default();
        *sum = sum.saturating_add(amount(row, 1)?);
    }
    Ok(())
}

/// Runs that have not ended, by their rows: no more than wait and run now.
fn add_open_runs(
    connection: &Connection,
    sums: &mut BTreeMap<UsageKey, Sum>,
    (from, to): (i64, i64),
    now: Timestamp,
) -> Result<(), StoreError> {
    let sql = format!("SELECT {COLUMNS} FROM job INDEXED BY job_end WHERE end_ms = ?1");
    let mut statement = connection.prepare_cached(&sql)?;
    let mut rows = statement.query([OPEN])?;
    while let Some(row) = rows.next()? {
        let run = Run::of(row)?;
        let part = run.within(from, to, now.0);
        if part == Amounts::default() {
            continue;
        }
        let sum = sums.entry(run.whose).or_default();
        sum.amounts.add(part, 1);
        for (name, count) in &run.gres {
            let count = i64::try_from(*count).unwrap_or(i64::MAX);
            let own = sum.devices.entry(name.clone()).or_default();
            *own = own.saturating_add(part.run.saturating_mul(count));
        }
    }
    Ok(())
}

fn add_open_outages(
    connection: &Connection,
    outages: &mut BTreeMap<String, i64>,
    (from, to): (i64, i64),
    now: Timestamp,
) -> Result<(), StoreError> {
    let mut statement =
        connection.prepare_cached("SELECT node, start_ms FROM node_event WHERE end_ms IS NULL")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let start: i64 = row.get(1)?;
        let part = now.0.min(to).saturating_sub(start.max(from));
        if part > 0 {
            let sum = outages.entry(row.get(0)?).or_default();
            *sum = sum.saturating_add(part);
        }
    }
    Ok(())
}

/// A sum as it is answered; none where nothing is left of it.
fn row_of(
    connection: &Connection,
    texts: &mut Texts,
    whose: UsageKey,
    sum: Sum,
) -> Result<Option<UsageRow>, StoreError> {
    if sum.amounts == Amounts::default() {
        return Ok(None);
    }
    let mut text = |number: i64| -> Result<String, StoreError> {
        let text = texts.text(connection, number)?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    };
    let account = text(whose.account)?;
    let wckey = match whose.wckey {
        0 => String::new(),
        number => text(number)?,
    };
    let owner = texts.text(connection, whose.owner)?;
    let devices = sum.devices.into_iter().filter(|(_, sum)| *sum != 0);
    Ok(Some(UsageRow {
        account,
        uid: small(whose.uid),
        user: owner_names(&owner).0,
        wckey,
        run_ms: unsigned(sum.amounts.run),
        cpu_ms: unsigned(sum.amounts.cpu),
        mem_mib_ms: unsigned(sum.amounts.mem),
        node_ms: unsigned(sum.amounts.node),
        planned_cpu_ms: unsigned(sum.amounts.planned),
        devices: devices.map(|(name, sum)| (name, unsigned(sum))).collect(),
    }))
}
