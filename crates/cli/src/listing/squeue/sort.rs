//! The order of squeue's rows: letters of `--format`, each ascending or descending; equal rows stay by number.

use super::super::context::Ctx;
use super::super::format::{Field, Record};
use super::super::job::JobRow;
use super::super::step_fields::StepRow;
use super::super::{Failure, job_fields, step_fields};
use std::borrow::Cow;
use std::cmp::{Ordering, Reverse};

/// What a row is ordered by.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Key<'a> {
    Number(i64),
    Text(Cow<'a, str>),
    Task(u64, u64),
}

type Directed<'a> = Result<Key<'a>, Reverse<Key<'a>>>;

fn parse(keys: &str) -> Result<Vec<(bool, u8)>, Failure> {
    let mut parsed = Vec::new();
    for word in keys.split(',').map(str::trim).filter(|w| !w.is_empty()) {
        let (down, rest) = match word.as_bytes()[0] {
            b'-' => (true, &word[1..]),
            b'+' => (false, &word[1..]),
            _ => (false, word),
        };
        match rest.as_bytes() {
            [letter] if letter.is_ascii_alphabetic() => parsed.push((down, *letter)),
            _ => {
                return Err(Failure::new(format!(
                    "squeue: error: Invalid sort specification: {rest} (letters of --format, such as P,t,-p)"
                )));
            }
        }
    }
    Ok(parsed)
}

fn order<'a, T: Copy>(
    rows: Vec<T>,
    keys: &[(bool, u8)],
    key: impl Fn(&T, u8) -> Key<'a>,
) -> Vec<T> {
    let mut keyed: Vec<(Vec<Directed<'a>>, T)> = rows
        .into_iter()
        .map(|row| {
            let of_row = keys
                .iter()
                .map(|(down, letter)| {
                    let key = key(&row, *letter);
                    if *down { Err(Reverse(key)) } else { Ok(key) }
                })
                .collect();
            (of_row, row)
        })
        .collect();
    keyed.sort_by(|(a, _), (b, _)| {
        a.iter()
            .zip(b)
            .map(|(a, b)| a.cmp(b))
            .find(|o| o.is_ne())
            .unwrap_or(Ordering::Equal)
    });
    keyed.into_iter().map(|(_, row)| row).collect()
}

/// Jobs in order.
pub(super) fn jobs<'a>(
    rows: Vec<JobRow<'a>>,
    keys: &str,
    ctx: &Ctx,
) -> Result<Vec<JobRow<'a>>, Failure> {
    let keys = parse(keys)?;
    check(&keys, job_fields::FIELDS)?;
    Ok(order(rows, &keys, |row, letter| job_key(row, letter, ctx)))
}

/// Steps in order.
pub(super) fn steps(rows: &mut Vec<StepRow<'_>>, keys: &str, ctx: &Ctx) -> Result<(), Failure> {
    let keys = parse(keys)?;
    check(&keys, step_fields::FIELDS)?;
    *rows = order(std::mem::take(rows), &keys, |row, letter| {
        step_key(row, letter, ctx)
    });
    Ok(())
}

fn check<R: Record>(keys: &[(bool, u8)], table: &[Field<R>]) -> Result<(), Failure> {
    match keys
        .iter()
        .find(|(_, letter)| !table.iter().any(|f| f.letter == *letter))
    {
        Some((_, letter)) => Err(Failure::new(format!(
            "squeue: error: Invalid sort specification: {}",
            char::from(*letter)
        ))),
        None => Ok(()),
    }
}

fn job_key<'a>(row: &JobRow<'a>, letter: u8, ctx: &Ctx) -> Key<'a> {
    let seconds =
        |at: Option<muster_core::time::Timestamp>| Key::Number(at.map_or(i64::MAX, |t| t.unix_s()));
    let count = |n: u64| Key::Number(i64::try_from(n).unwrap_or(i64::MAX));
    let job = row.job;
    match letter {
        b'i' => id_key(row),
        b'A' => count(job.id.0),
        b'F' => count(row.base_id().0),
        b'P' => Key::Text(Cow::Borrowed(row.partition.unwrap_or(&job.partition))),
        b't' | b'T' => Key::Text(Cow::Borrowed(row.state_name())),
        b'p' | b'Q' => Key::Number(i64::from(job.priority)),
        b'u' => Key::Text(Cow::Borrowed(&job.spec.owner.user)),
        b'U' => Key::Number(i64::from(job.spec.owner.uid)),
        b'G' => Key::Number(i64::from(job.spec.owner.gid)),
        b'j' => Key::Text(Cow::Borrowed(&job.spec.name)),
        b'S' => seconds(row.start(ctx)),
        b'e' => seconds(row.end(ctx)),
        b'V' => seconds(Some(job.submit_time)),
        b'M' => Key::Number(row.run_time_s(ctx)),
        b'l' => count(job.time_limit.seconds().unwrap_or(u64::MAX)),
        b'L' => match job.time_limit.seconds() {
            Some(limit) => {
                Key::Number(i64::try_from(limit).unwrap_or(i64::MAX) - row.run_time_s(ctx))
            }
            None => Key::Number(i64::MAX),
        },
        b'D' => Key::Number(i64::from(row.node_count())),
        b'C' => count(row.cpus()),
        b'c' => Key::Number(i64::from(row.min_cpus_per_node())),
        b'd' => count(job.spec.ask.tmp_disk_mib),
        b'y' => Key::Number(i64::from(job.spec.nice)),
        b'm' => match row.memory(ctx) {
            muster_core::spec::MemoryAsk::Default => Key::Number(0),
            muster_core::spec::MemoryAsk::PerNode(mib)
            | muster_core::spec::MemoryAsk::PerCpu(mib) => count(mib),
        },
        other => rendered(job_fields::FIELDS, row, other, ctx),
    }
}

/// By number; the tasks that wait after those that have records of their own.
fn id_key<'a>(row: &JobRow<'_>) -> Key<'a> {
    let index = match row.index() {
        Some(index) => u64::from(index),
        None if row.in_array() => u64::MAX,
        None => 0,
    };
    Key::Task(row.base_id().0, index)
}

fn step_key<'a>(row: &StepRow<'a>, letter: u8, ctx: &Ctx) -> Key<'a> {
    match letter {
        // Slurm orders steps by the job's own number, then by the step's.
        b'i' => Key::Task(row.job.job.id.0, u64::from(row.step.step.0)),
        b'S' => Key::Number(row.step.start_time.unix_s()),
        b'M' => Key::Number(ctx.now.unix_s() - row.step.start_time.unix_s()),
        b'P' => Key::Text(Cow::Borrowed(&row.job.job.partition)),
        b'A' => Key::Number(i64::from(row.step.tasks)),
        other => rendered(step_fields::FIELDS, row, other, ctx),
    }
}

fn rendered<'k, R: Record>(table: &[Field<R>], row: &R::Row<'_>, letter: u8, ctx: &Ctx) -> Key<'k> {
    let mut text = String::new();
    if let Some(field) = table.iter().find(|f| f.letter == letter) {
        (field.render)(row, ctx, &mut text);
    }
    Key::Text(Cow::Owned(text))
}
