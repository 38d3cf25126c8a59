//! The order of squeue's rows: letters of `--format`, each ascending or descending; equal rows stay by number.

use super::chunked_vec::ChunkedVec;
use crate::listing::context::Ctx;
use crate::listing::format::{Field, Record};
use crate::listing::job::{JobRow, node_estimate};
use crate::listing::step_fields::StepRow;
use crate::listing::{Failure, job_fields, step_fields};
use muster_model::listing_codec::RowValues;
use std::borrow::Cow;
use std::cmp::Ordering;
use std::rc::Rc;

/// In place of a letter: the partition's `PriorityTier`.
const TIER: u8 = b'/';

/// A sort key.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum ColumnKey<'a> {
    Number(i64),
    Text(Cow<'a, str>),
    Task(u64, u64),
}

/// A key without the row: texts are kept once as long as they stay the same from row to row.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kept {
    Number(i64),
    Text(Rc<str>),
    Task(u64, u64),
}

/// One of the keys.
#[derive(Debug)]
struct By {
    letter: u8,
    down: bool,
    /// Whether jobs of one template may differ in it.
    of_rows: bool,
    /// Function of their numbers that gives it, if there is one.
    of_numbers: Option<fn(&RowValues) -> i64>,
    values: Values,
    /// The last text.
    last: Rc<str>,
}

/// Values of rows or templates for a key. Numbers alone take a quarter of the memory.
#[derive(Debug)]
enum Values {
    Numbers(ChunkedVec<i64>),
    Mixed(Vec<Kept>),
}

/// The keys of rows and of templates, from which the order of the rows follows.
#[derive(Debug)]
pub(super) struct SortOrder(Vec<By>);

/// Rows by their places in the low 32 bits; the other bits are private.
pub(super) struct Sorted(Vec<u128>);

impl Sorted {
    /// The places, in order.
    pub(super) fn places(&self) -> impl Iterator<Item = usize> {
        self.0.iter().map(|entry| *entry as u32 as usize)
    }
}

impl By {
    fn add(&mut self, key: ColumnKey<'_>) {
        let kept = match key {
            ColumnKey::Number(number) => {
                if let Values::Numbers(all) = &mut self.values {
                    return all.push(number);
                }
                Kept::Number(number)
            }
            ColumnKey::Task(base, index) => Kept::Task(base, index),
            ColumnKey::Text(text) => {
                if *self.last != *text {
                    self.last = Rc::from(&*text);
                }
                Kept::Text(Rc::clone(&self.last))
            }
        };
        self.values.mixed().push(kept);
    }

    fn compare(&self, a: usize, b: usize) -> Ordering {
        let (a, b) = if self.down { (b, a) } else { (a, b) };
        match &self.values {
            Values::Numbers(all) => all.at(a).cmp(&all.at(b)),
            Values::Mixed(all) => all[a].cmp(&all[b]),
        }
    }
}

impl Values {
    fn mixed(&mut self) -> &mut Vec<Kept> {
        if let Values::Numbers(numbers) = self {
            let kept = numbers.iter().map(Kept::Number);
            *self = Values::Mixed(kept.collect());
        }
        match self {
            Values::Mixed(all) => all,
            Values::Numbers(_) => unreachable!("they are mixed from here on"),
        }
    }
}

impl SortOrder {
    /// An order of jobs. With `by_tier`, the priority of a partition counts before that of a job (`--priority`).
    pub(super) fn of_jobs(keys: &str, by_tier: bool) -> Result<SortOrder, Failure> {
        let mut keys = parse(keys)?;
        check(&keys, job_fields::FIELDS, UNSORTED_OF_JOBS)?;
        if by_tier {
            let with_tier = |(down, letter)| {
                let tier = matches!(letter, b'p' | b'Q').then_some((down, TIER));
                tier.into_iter().chain([(down, letter)])
            };
            keys = keys.into_iter().flat_map(with_tier).collect();
        }
        let of_numbers = |letter| {
            let mut fields = job_fields::FIELDS.iter();
            fields.any(|f| f.letter == letter && job_fields::is_of_numbers(f))
        };
        Ok(SortOrder::by(&keys, of_numbers))
    }

    /// An order of steps.
    pub(super) fn of_steps(keys: &str) -> Result<SortOrder, Failure> {
        let keys = parse(keys)?;
        check(&keys, step_fields::FIELDS, "")?;
        Ok(SortOrder::by(&keys, |_| false))
    }

    fn by(keys: &[(bool, u8)], of_rows: impl Fn(u8) -> bool) -> SortOrder {
        let by = |(down, letter): &(bool, u8)| By {
            letter: *letter,
            down: *down,
            of_rows: of_rows(*letter),
            of_numbers: of_numbers(*letter).filter(|_| of_rows(*letter)),
            values: Values::Numbers(ChunkedVec::default()),
            last: Rc::from(""),
        };
        SortOrder(keys.iter().map(by).collect())
    }

    /// The next template is of jobs like this one.
    pub(super) fn add_form(&mut self, row: &JobRow<'_>, ctx: &Ctx) {
        for by in self.0.iter_mut().filter(|by| !by.of_rows) {
            by.add(job_key(row, by.letter, ctx));
        }
    }

    /// The next row is of this job.
    pub(super) fn add_row(&mut self, row: &JobRow<'_>, ctx: &Ctx) {
        for by in self.0.iter_mut().filter(|by| by.of_rows) {
            by.add(job_key(row, by.letter, ctx));
        }
    }

    /// Whether [`SortOrder::add_numbers`] will do for rows of which the template is there.
    pub(super) fn is_of_numbers(&self) -> bool {
        let mut of_rows = self.0.iter().filter(|by| by.of_rows);
        of_rows.all(|by| by.of_numbers.is_some())
    }

    /// The next row is of a job with these numbers.
    pub(super) fn add_numbers(&mut self, numbers: &RowValues) {
        for by in &mut self.0 {
            if let Some(number) = by.of_numbers {
                by.add(ColumnKey::Number(number(numbers)));
            }
        }
    }

    /// The next template is of this step alone.
    pub(super) fn add_step(&mut self, row: &StepRow<'_>, ctx: &Ctx) {
        for by in &mut self.0 {
            by.add(step_key(row, by.letter, ctx));
        }
    }

    /// The rows in order, given the template of each; nothing if they came in it.
    pub(super) fn sorted(&self, templates: &ChunkedVec<u32>) -> Option<Sorted> {
        let leading = self.0.iter().take_while(|by| !by.of_rows).count();
        let (leading, rest) = self.0.split_at(leading);
        let numbers = match rest {
            [] => None,
            [
                By {
                    values: Values::Numbers(numbers),
                    down,
                    ..
                },
            ] => Some((numbers, *down)),
            _ => return self.sorted_by_comparison(templates),
        };
        let ranks = ranks(leading, templates);
        // The order of rank, number and place is that of one number.
        let entry = |(place, template): (u32, u32)| {
            let number = numbers.map_or(0, |(numbers, down)| {
                let rising = numbers.at(place as usize).cast_unsigned() ^ (1 << 63);
                if down { !rising } else { rising }
            });
            let rank = u128::from(ranks[template as usize]);
            rank << 96 | u128::from(number) << 32 | u128::from(place)
        };
        let entries = || (0..).zip(templates.iter()).map(entry);
        if entries().is_sorted() {
            return None;
        }
        let mut sorted: Vec<u128> = entries().collect();
        sorted.sort_unstable();
        Some(Sorted(sorted))
    }

    fn sorted_by_comparison(&self, templates: &ChunkedVec<u32>) -> Option<Sorted> {
        let compare = |a: usize, b: usize| {
            let by_key = |by: &By| match by.of_rows {
                true => by.compare(a, b),
                false => by.compare(templates.at(a) as usize, templates.at(b) as usize),
            };
            let mut orders = self.0.iter().map(by_key);
            orders
                .find(|order| order.is_ne())
                .unwrap_or(Ordering::Equal)
        };
        if (1..templates.len()).all(|row| compare(row - 1, row).is_le()) {
            return None;
        }
        let mut places: Vec<u128> = (0..templates.len() as u128).collect();
        places.sort_by(|a, b| compare(*a as usize, *b as usize));
        Some(Sorted(places))
    }
}

/// Ranks of the templates by these keys: equal ones have the same rank.
fn ranks(keys: &[By], templates: &ChunkedVec<u32>) -> Vec<u32> {
    let compare = |a: u32, b: u32| {
        let mut orders = keys.iter().map(|by| by.compare(a as usize, b as usize));
        orders
            .find(|order| order.is_ne())
            .unwrap_or(Ordering::Equal)
    };
    let count = templates.iter().max().map_or(0, |last| last + 1);
    let mut sorted: Vec<u32> = (0..count).collect();
    sorted.sort_by(|a, b| compare(*a, *b));
    let mut ranks = vec![0; sorted.len()];
    let mut rank = 0;
    for pair in sorted.windows(2) {
        rank += u32::from(compare(pair[0], pair[1]).is_ne());
        ranks[pair[1] as usize] = rank;
    }
    ranks
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
            letters if !rest.is_empty() && letters.iter().all(u8::is_ascii_alphabetic) => {
                parsed.extend(letters.iter().map(|letter| (down, *letter)));
            }
            _ => {
                return Err(Failure::new(format!(
                    "squeue: error: Invalid sort specification: {rest}"
                )));
            }
        }
    }
    Ok(parsed)
}

/// Letters of columns of jobs by which Slurm does not sort.
const UNSORTED_OF_JOBS: &str = "akoqrswxyAEFKRWXYZ";

/// Refuses keys that are no columns, the last of them by name, and those of `unsorted`.
fn check<R: Record>(
    keys: &[(bool, u8)],
    table: &[Field<R>],
    unsorted: &str,
) -> Result<(), Failure> {
    let is_known = |letter: u8| {
        !unsorted.contains(char::from(letter)) && table.iter().any(|f| f.letter == letter)
    };
    match keys.iter().rfind(|(_, letter)| !is_known(*letter)) {
        Some((_, letter)) => Err(Failure::new(format!(
            "squeue: error: Invalid sort specification: {}",
            char::from(*letter)
        ))),
        None => Ok(()),
    }
}

/// The value of [`job_key`] where it follows from a job's row values alone.
fn of_numbers(letter: u8) -> Option<fn(&RowValues) -> i64> {
    match letter {
        b'p' | b'Q' => Some(|numbers| numbers.priority.into()),
        b'V' => Some(|numbers| numbers.submit_time.unix_s()),
        _ => None,
    }
}

fn job_key<'a>(row: &JobRow<'a>, letter: u8, ctx: &Ctx) -> ColumnKey<'a> {
    let seconds = |at: Option<muster_model::time::Timestamp>| {
        ColumnKey::Number(at.map_or(i64::MAX, |t| t.unix_s()))
    };
    let count = |n: u64| ColumnKey::Number(i64::try_from(n).unwrap_or(i64::MAX));
    let job = row.job;
    match letter {
        b'i' => id_key(row),
        b'A' => count(job.id.0),
        b'F' => count(row.base_id().0),
        b'P' => ColumnKey::Text(Cow::Borrowed(row.partition.unwrap_or(&job.partition))),
        b't' | b'T' => ColumnKey::Text(Cow::Borrowed(row.state_name())),
        b'p' | b'Q' => ColumnKey::Number(i64::from(job.priority)),
        TIER => {
            let partition = ctx.partition(row.partition.unwrap_or(&job.partition));
            ColumnKey::Number(partition.map_or(0, |p| i64::from(p.priority_tier)))
        }
        b'u' => ColumnKey::Text(Cow::Borrowed(&job.spec.owner.user)),
        b'U' => ColumnKey::Number(i64::from(job.spec.owner.uid)),
        b'G' => ColumnKey::Number(i64::from(job.spec.owner.gid)),
        b'j' => ColumnKey::Text(Cow::Borrowed(&job.spec.name)),
        b'S' => seconds(row.start(ctx)),
        b'e' => seconds(row.end(ctx)),
        b'V' => seconds(Some(job.submit_time)),
        b'M' => ColumnKey::Number(row.run_time_s(ctx)),
        b'l' => count(job.time_limit.seconds().unwrap_or(u64::MAX)),
        b'L' => match job.time_limit.seconds() {
            Some(limit) => {
                ColumnKey::Number(i64::try_from(limit).unwrap_or(i64::MAX) - row.run_time_s(ctx))
            }
            None => ColumnKey::Number(i64::MAX),
        },
        b'D' => ColumnKey::Number(i64::from(node_estimate(row, ctx))),
        b'C' => count(row.cpus()),
        b'c' => ColumnKey::Number(i64::from(row.min_cpus_per_node())),
        b'd' => count(job.spec.ask.tmp_disk_mib),
        b'y' => ColumnKey::Number(i64::from(job.spec.nice)),
        b'm' => match row.memory(ctx) {
            muster_model::spec::MemoryAsk::Default => ColumnKey::Number(0),
            muster_model::spec::MemoryAsk::PerNode(mib)
            | muster_model::spec::MemoryAsk::PerCpu(mib) => count(mib),
        },
        other => rendered(job_fields::FIELDS, row, other, ctx),
    }
}

/// By number; the tasks that wait after those that have records of their own.
fn id_key<'a>(row: &JobRow<'_>) -> ColumnKey<'a> {
    let index = match row.index() {
        Some(index) => u64::from(index),
        None if row.in_array() => u64::MAX,
        None => 0,
    };
    ColumnKey::Task(row.base_id().0, index)
}

fn step_key<'a>(row: &StepRow<'a>, letter: u8, ctx: &Ctx) -> ColumnKey<'a> {
    match letter {
        // Slurm orders steps by the job's own number, then by the step's.
        b'i' => ColumnKey::Task(row.job.job.id.0, u64::from(row.step.step.0)),
        b'S' => ColumnKey::Number(row.step.start_time.unix_s()),
        b'M' => ColumnKey::Number(ctx.now.unix_s() - row.step.start_time.unix_s()),
        b'P' => ColumnKey::Text(Cow::Borrowed(&row.job.job.partition)),
        b'A' => ColumnKey::Number(i64::from(row.step.tasks)),
        other => rendered(step_fields::FIELDS, row, other, ctx),
    }
}

fn rendered<'k, R: Record>(
    table: &[Field<R>],
    row: &R::Row<'_>,
    letter: u8,
    ctx: &Ctx,
) -> ColumnKey<'k> {
    let mut text = String::new();
    if let Some(field) = table.iter().find(|f| f.letter == letter) {
        (field.render)(row, ctx, &mut text);
    }
    ColumnKey::Text(Cow::Owned(text))
}
