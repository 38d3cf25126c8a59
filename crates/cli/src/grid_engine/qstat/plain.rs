//! The plain listing of jobs. Its lines are made of the templates of the answer: of each job only the values are kept in which it
//! differs, so that ten thousand jobs of one script take no record each.

use super::filter::QstatFilter;
use super::lines::{self, Entry, EntrySource, View};
use super::usage::Measured;
use crate::connect::{Client, ConnectError};
use crate::grid_engine::selection;
use crate::listing::context::Ctx;
use crate::listing::query::{self, Jobs};
use muster_conf::grid_engine::Mapping;
use muster_model::ids::JobId;
use muster_model::job::Job;
use muster_model::listing_codec::{CompactListing, RowValues};
use muster_model::time::Timestamp;
use std::cmp::Reverse;
use std::fmt::Write as _;

/// Bytes of a line, mostly.
const LINE_BYTES: usize = 112;

/// Asks for the jobs and makes the lines.
pub(super) fn list(
    client: &mut Client,
    mapping: &Mapping,
    wanted: &QstatFilter,
) -> Result<String, ConnectError> {
    let mut ctx = Ctx::new(&client.endpoint.cluster.clone());
    let mut listing = PlainListing::new(mapping, wanted);
    query::jobs_in_parts(
        client,
        &mut ctx,
        wanted.query(false),
        &mut Jobs::default(),
        |part, _, ctx| listing.add(part, ctx),
    )?;
    Ok(listing.finish(&ctx))
}

/// Lines, with the texts that several of them have in common.
pub(super) struct PlainListing<'m> {
    mapping: &'m Mapping,
    wanted: &'m QstatFilter,
    shared: Vec<LineText>,
    rows: Vec<PlainRow>,
}

/// Text in all lines of a template's jobs.
struct LineText {
    /// Between priority and date.
    before: String,
    /// Behind the date.
    after: String,
}

/// A line, ordered as Grid Engine orders lines.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct PlainRow {
    waits: bool,
    /// Priority of jobs that wait; one for all others.
    order: Reverse<u32>,
    number: JobId,
    task: Option<u32>,
    /// The priority as it is shown.
    priority: u32,
    /// Place of its text.
    shared: u32,
    at: Timestamp,
}

/// Origin of the values in the lines of a template's jobs.
struct TemplateLines {
    waits: bool,
    /// Whether its priority counts.
    is_ordered: bool,
    /// The number of the array; that of the job if there is none.
    number: Option<JobId>,
    task: Option<u32>,
    /// Start; submission if there is none.
    at: Option<Timestamp>,
    /// Places of the texts of its lines.
    lines: std::ops::Range<u32>,
}

impl<'m> PlainListing<'m> {
    pub(super) fn new(mapping: &'m Mapping, wanted: &'m QstatFilter) -> PlainListing<'m> {
        PlainListing {
            mapping,
            wanted,
            shared: Vec::new(),
            rows: Vec::new(),
        }
    }

    /// Adds the jobs of a part of the answer.
    pub(super) fn add(&mut self, part: CompactListing, ctx: &Ctx) {
        let templates = part.templates.iter();
        let templates: Vec<_> = templates.map(|(job, _)| self.template(job, ctx)).collect();
        for record in part.records.iter() {
            if let Some(Some(template)) = templates.get(record.template as usize) {
                self.rows.extend(template.rows(&record.values));
            }
        }
    }

    /// The lines of a template's jobs, if they are wanted.
    fn template(&mut self, job: &Job, ctx: &Ctx) -> Option<TemplateLines> {
        let state = lines::state(job);
        if !self.wanted.has(job, &state) {
            return None;
        }
        let source = EntrySource {
            ctx,
            mapping: self.mapping,
            view: &View::default(),
            measured: &Measured::default(),
        };
        let first = u32::try_from(self.shared.len()).expect("fewer lines than numbers of jobs");
        let mut last = first;
        for entry in Entry::of(job, state, source) {
            self.shared.push(LineText::of(&entry));
            last += 1;
        }
        let number = selection::number(job);
        Some(TemplateLines {
            waits: lines::is_pending(job),
            is_ordered: lines::is_ordered(job),
            number: (number != job.id).then_some(number),
            task: selection::task(job),
            at: lines::start(job),
            lines: first..last,
        })
    }

    /// All lines, with a head; nothing where there are no jobs.
    pub(super) fn finish(mut self, ctx: &Ctx) -> String {
        if self.rows.is_empty() {
            return String::new();
        }
        self.rows.sort_unstable();
        let mut text = lines::head(&View::default());
        text.reserve(self.rows.len() * LINE_BYTES);
        let (mut prior, mut dates) = (PriorText::default(), DateText::default());
        for row in &self.rows {
            let shared = &self.shared[row.shared as usize];
            let _ = write!(text, "{:>7} ", row.number.0);
            text.push_str(prior.of(row.priority));
            text.push_str(&shared.before);
            dates.push(&mut text, ctx, row.at);
            text.push_str(&shared.after);
        }
        text
    }
}

impl TemplateLines {
    /// The lines of a job.
    fn rows(&self, values: &RowValues) -> impl Iterator<Item = PlainRow> {
        let priority = if self.is_ordered { values.priority } else { 0 };
        self.lines.clone().map(move |shared| PlainRow {
            waits: self.waits,
            order: Reverse(if self.waits { priority } else { 0 }),
            number: self.number.unwrap_or(values.id),
            task: self.task,
            priority,
            shared,
            at: self.at.unwrap_or(values.submit_time),
        })
    }
}

impl LineText {
    fn of(entry: &Entry) -> LineText {
        let (mut before, mut after) = (" ".to_owned(), " ".to_owned());
        lines::name_columns(&mut before, entry, &View::default());
        lines::place_columns(&mut after, entry, &View::default(), true);
        after.push('\n');
        LineText { before, after }
    }
}

/// Text of a priority, kept for further lines with the same one.
#[derive(Default)]
struct PriorText {
    of: Option<u32>,
    text: String,
}

impl PriorText {
    fn of(&mut self, priority: u32) -> &str {
        if self.of != Some(priority) {
            self.of = Some(priority);
            self.text.clear();
            let _ = write!(self.text, "{:.5}", lines::prior_of(priority));
        }
        &self.text
    }
}

/// Text of a date, kept for further times in the same minute.
#[derive(Default)]
struct DateText {
    /// The minute, in seconds since 1970: from, and up to without it.
    from_s: i64,
    until_s: i64,
    /// Up to the seconds.
    text: String,
}

impl DateText {
    fn push(&mut self, text: &mut String, ctx: &Ctx, at: Timestamp) {
        let at_s = at.0.div_euclid(1000);
        if !(self.from_s..self.until_s).contains(&at_s) {
            let mut date = lines::date(ctx, at);
            let seconds = date.split_off(date.len() - 2);
            self.from_s = at_s - seconds.parse::<i64>().expect("two digits");
            self.until_s = self.from_s + 60;
            self.text = date;
        }
        let seconds = u8::try_from(at_s - self.from_s).expect("less than 60");
        text.push_str(&self.text);
        text.push(char::from(b'0' + seconds / 10));
        text.push(char::from(b'0' + seconds % 10));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::tz::TimeZone;
    use muster_model::job::{ArrayRole, Hold, JobState};
    use muster_model::listing_codec::{ListingWriter, TemplateTable};
    use muster_model::shared_spec::SpecTable;
    use muster_model::spec::{JobSpec, Owner};
    use muster_model::time::TimeLimit;
    use std::sync::Arc;

    fn jobs() -> Vec<Job> {
        let spec = |name: &str| {
            let owner = Owner {
                user: "geuser".to_owned(),
                ..Owner::default()
            };
            Arc::new(JobSpec {
                name: name.to_owned(),
                owner,
                ..JobSpec::default()
            })
        };
        let specs = ["one", "a_name_of_more_than_ten", "März"].map(spec);
        let all = (0_u64..40).map(|i| {
            // Some in the same minute, in different ones and before 1970.
            let at = Timestamp(1_795_287_905_000 + i64::try_from(i * 7001 % 200_000).unwrap());
            let at = if i == 11 { Timestamp(-1) } else { at };
            let spec = specs[usize::try_from(i % 3).unwrap()].clone();
            let mut job = Job::new(JobId(9_999_980 + i), spec, TimeLimit::Unlimited, at);
            job.priority = u32::try_from(i % 5 * 900_000_000).unwrap();
            match i % 8 {
                5 => job.hold = Hold::User,
                6 => {
                    (job.state, job.start_time) =
                        (JobState::Running, Some(Timestamp(at.0 + 61_000)))
                }
                7 if i < 20 => {
                    job.array = ArrayRole::Pending {
                        indices: [1, 2, 3, 7].into_iter().collect(),
                    }
                }
                7 => {
                    let base = JobId(9_999_987);
                    let index = u32::try_from(i).unwrap();
                    job.array = ArrayRole::Task { base, index };
                }
                _ => {}
            }
            job
        });
        all.collect()
    }

    fn compact(jobs: &[Job]) -> CompactListing {
        let mut codec = SpecTable::of_listing();
        let (mut writer, mut templates) = (ListingWriter::default(), TemplateTable::default());
        for job in jobs {
            let template = templates.of(job, &mut writer, &mut codec);
            writer.record(template, &RowValues::of(job));
        }
        let bytes = minicbor::to_vec(&writer).unwrap();
        minicbor::decode_with(&bytes, &mut SpecTable::of_listing()).unwrap()
    }

    #[test]
    fn lines_of_templates_are_those_of_records() {
        let jobs = jobs();
        let part = compact(&jobs);
        assert!(part.templates.len() < jobs.len(), "some jobs share one");
        let (ctx, mapping) = (Ctx::bare("c", TimeZone::UTC), Mapping::default());
        let [all, pending, held] = ["a", "p", "hu"].map(|states| {
            let mut wanted = QstatFilter::default();
            (wanted.pending, wanted.running) = (states != "hu", states == "a");
            wanted.holds = states.trim_start_matches(['a', 'p', 'h']).to_owned();
            let source = EntrySource {
                ctx: &ctx,
                mapping: &mapping,
                view: &View::default(),
                measured: &Measured::default(),
            };
            let entries = wanted.entries(source, &jobs);
            let expected = lines::table(&entries, &View::default());
            let mut listing = PlainListing::new(&mapping, &wanted);
            listing.add(part.clone(), &ctx);
            assert_eq!(listing.finish(&ctx), expected);
            expected.lines().count()
        });
        assert_eq!([all, pending, held], [42, 37, 7]);
    }

    #[test]
    fn without_jobs_there_is_no_head() {
        let (ctx, mapping) = (Ctx::bare("c", TimeZone::UTC), Mapping::default());
        let wanted = QstatFilter::default();
        let mut listing = PlainListing::new(&mapping, &wanted);
        listing.add(compact(&jobs()), &ctx);
        assert_eq!(listing.finish(&ctx), "");
    }
}
