//! The order of squeue's rows: letters of `--format`, each ascending or descending; equal rows stay by number.

use super::super::context::Ctx;
use super::super::format::{Field, Record};
use super::super::job::JobRow;
use super::super::step_fields::StepRow;
use super::super::{Failure, job_fields, step_fields};
use std::borrow::Cow;
use std::cmp::Ordering;
use std::rc::Rc;

/// What a row is ordered by.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Key<'a> {
    Number(i64),
    Text(Cow<'a, str>),
    Task(u64, u64),
}

/// The same without the row: texts are kept once as long as they stay the same from row to row.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kept {
    Number(i64),
    Text(Rc<str>),
    Task(u64, u64),
}

/// The keys of rows, from which their order follows.
#[derive(Debug)]
pub(super) struct Order {
    /// Whether descending, and by what.
    keys: Vec<(bool, u8)>,
    /// For each row as many as there are keys.
    rows: Vec<Kept>,
    /// The last text of each key.
    last: Vec<Rc<str>>,
    count: usize,
}

impl Order {
    /// An order of jobs.
    pub(super) fn of_jobs(keys: &str) -> Result<Order, Failure> {
        let keys = parse(keys)?;
        check(&keys, job_fields::FIELDS)?;
        Ok(Order::by(keys))
    }

    /// An order of steps.
    pub(super) fn of_steps(keys: &str) -> Result<Order, Failure> {
        let keys = parse(keys)?;
        check(&keys, step_fields::FIELDS)?;
        Ok(Order::by(keys))
    }

    fn by(keys: Vec<(bool, u8)>) -> Order {
        Order {
            last: vec![Rc::from(""); keys.len()],
            keys,
            rows: Vec::new(),
            count: 0,
        }
    }

    /// The next row is of this job.
    pub(super) fn add_job(&mut self, row: &JobRow<'_>, ctx: &Ctx) {
        self.add(|letter| job_key(row, letter, ctx));
    }

    /// The next row is of this step.
    pub(super) fn add_step(&mut self, row: &StepRow<'_>, ctx: &Ctx) {
        self.add(|letter| step_key(row, letter, ctx));
    }

    fn add<'a>(&mut self, key: impl Fn(u8) -> Key<'a>) {
        for ((_, letter), last) in self.keys.iter().zip(&mut self.last) {
            self.rows.push(match key(*letter) {
                Key::Number(number) => Kept::Number(number),
                Key::Task(base, index) => Kept::Task(base, index),
                Key::Text(text) => {
                    if **last != *text {
                        *last = Rc::from(&*text);
                    }
                    Kept::Text(Rc::clone(last))
                }
            });
        }
        self.count += 1;
    }

    /// The rows in order, by their places; nothing if they came in it.
    pub(super) fn sorted(&self) -> Option<Vec<usize>> {
        let compare = |a: usize, b: usize| {
            let of = |row: usize| &self.rows[row * self.keys.len()..];
            let keys = self.keys.iter().zip(of(a).iter().zip(of(b)));
            keys.map(|((down, _), (a, b))| if *down { b.cmp(a) } else { a.cmp(b) })
                .find(|order| order.is_ne())
                .unwrap_or(Ordering::Equal)
        };
        if (1..self.count).all(|row| compare(row - 1, row).is_le()) {
            return None;
        }
        let mut places: Vec<usize> = (0..self.count).collect();
        places.sort_by(|a, b| compare(*a, *b));
        Some(places)
    }
}

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
