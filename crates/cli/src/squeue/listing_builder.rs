//! Builds the listing. The text of a row template is made once, with gaps for the cells in which its jobs differ; of each job only
//! those values are kept, and its row is made when all jobs have come and their order is known. So a listing takes a few bytes a
//! job, and one chunk of text.

use super::chunked_vec::ChunkedVec;
use super::sort::SortOrder;
use super::{Layouts, Options, pick};
use crate::listing::Failure;
use crate::listing::context::Ctx;
use crate::listing::format::FormatColumn;
use crate::listing::job::JobRow;
use crate::listing::job_fields::{self, is_id, is_of_numbers};
use crate::listing::query::Jobs;
use crate::listing::text;
use muster_model::ids::JobId;
use muster_model::job::{ArrayRole, Job};
use muster_model::listing_codec::{CompactListing, RowValues};

/// Equal jobs from which on a template is made; it takes more memory than fewer rows.
const SHARED: u32 = 8;
/// Length of text at which it is written.
const CHUNK: usize = 16 << 10;
/// And a row is mostly shorter than this.
const ROW: usize = 512;

/// Rows, and what their order depends on.
pub(super) struct ListingBuilder<'o> {
    options: &'o Options,
    layouts: &'o Layouts,
    order: SortOrder,
    templates: Vec<RowTemplate>,
    /// The common text of each template's rows; for a template with one row, all of it.
    text: String,
    /// Where cells are missing in that.
    gaps: Vec<usize>,
    /// The template of each row.
    rows: ChunkedVec<u32>,
    /// The columns in which jobs of one template differ.
    columns: Vec<&'o FormatColumn<job_fields::JobRecords>>,
    own: ColumnValues,
}

/// The text of rows, with gaps for the values that differ.
struct RowTemplate {
    /// Its text and gaps are those from the template before until here.
    text_end: usize,
    gaps_end: usize,
    /// The job whose numbers are each row's, if it is of several.
    job: Option<Box<Job>>,
}

/// The values of each row that its template lacks.
enum ColumnValues {
    /// The columns show nothing but the numbers of the jobs.
    Ids(ChunkedVec<JobId>),
    All(ChunkedVec<RowValues>),
}

/// Use of a template for its records.
#[derive(Clone, Copy)]
enum TemplateUse {
    Unknown,
    Hidden,
    Alone,
    Shared(u32),
}

impl ColumnValues {
    fn push(&mut self, numbers: &RowValues) {
        match self {
            ColumnValues::Ids(all) => all.push(numbers.id),
            ColumnValues::All(all) => all.push(*numbers),
        }
    }

    /// Sets the values of a row in a template's job.
    fn put(&self, row: usize, job: &mut Job) {
        match self {
            ColumnValues::Ids(all) => job.id = all.at(row),
            ColumnValues::All(all) => all.at(row).put(job),
        }
    }
}

impl<'o> ListingBuilder<'o> {
    /// Without rows.
    pub(super) fn new(
        options: &'o Options,
        layouts: &'o Layouts,
    ) -> Result<ListingBuilder<'o>, Failure> {
        let order = match options.steps {
            true => SortOrder::of_steps(options.keys())?,
            false => SortOrder::of_jobs(options.keys(), options.split_partitions)?,
        };
        let columns = layouts.jobs.columns.iter();
        let columns: Vec<_> = columns.filter(|c| is_of_numbers(c.field)).collect();
        let own = match columns.iter().all(|column| is_id(column.field)) {
            true => ColumnValues::Ids(ChunkedVec::default()),
            false => ColumnValues::All(ChunkedVec::default()),
        };
        Ok(ListingBuilder {
            options,
            layouts,
            order,
            templates: Vec::new(),
            text: String::new(),
            gaps: Vec::new(),
            rows: ChunkedVec::default(),
            columns,
            own,
        })
    }

    /// Adds what these records show. `jobs` knows their arrays.
    pub(super) fn add(&mut self, listed: CompactListing, jobs: &mut Jobs, ctx: &Ctx) {
        if !pick::by_template(self.options) {
            jobs.jobs = listed.into_jobs().into();
            return self.add_jobs(jobs, ctx);
        }
        let CompactListing {
            mut templates,
            records,
        } = listed;
        let mut uses = vec![TemplateUse::Unknown; templates.len()];
        let by_numbers = self.order.is_of_numbers();
        for record in records.iter() {
            let template = record.template as usize;
            if let TemplateUse::Shared(template) = uses[template]
                && by_numbers
            {
                self.order.add_numbers(&record.values);
                self.rows.push(template);
                self.own.push(&record.values);
                continue;
            }
            let (job, count) = &mut templates[template];
            record.values.put(job);
            let row = JobRow::new(job, jobs.array_of(job));
            if matches!(uses[template], TemplateUse::Unknown) {
                uses[template] = self.template_use(&row, *count, ctx);
            }
            match uses[template] {
                TemplateUse::Unknown | TemplateUse::Hidden => {}
                TemplateUse::Alone => self.add_alone(&row, ctx),
                TemplateUse::Shared(template) => self.add_row(template, &row, &record.values, ctx),
            }
        }
        for ((job, _), template_use) in templates.into_iter().zip(uses) {
            if let TemplateUse::Shared(template) = template_use {
                self.templates[template as usize].job = Some(Box::new(job));
            }
        }
    }

    /// Adds a row for each of these jobs, or for their steps.
    pub(super) fn add_jobs(&mut self, jobs: &Jobs, ctx: &Ctx) {
        let rows = pick::rows(self.options, jobs, ctx);
        if !self.options.steps {
            return rows.iter().for_each(|row| self.add_alone(row, ctx));
        }
        for row in pick::steps(self.options, &rows) {
            self.order.add_step(&row, ctx);
            self.layouts.steps.row(&mut self.text, &row, ctx);
            let template = self.end_template();
            self.rows.push(template);
            self.own.push(&RowValues::default());
        }
    }

    /// Decides by the first of `count` records.
    fn template_use(&mut self, row: &JobRow<'_>, count: u32, ctx: &Ctx) -> TemplateUse {
        // The row of an array depends on its number, so it has no template.
        let array = matches!(row.job.array, ArrayRole::Pending { .. });
        if !self.options.conditions.wants(row, self.options, ctx) {
            return TemplateUse::Hidden;
        }
        if count < SHARED || array {
            return TemplateUse::Alone;
        }
        self.order.add_form(row, ctx);
        let gap = |at| self.gaps.push(at);
        let layout = &self.layouts.jobs;
        layout.row_but(is_of_numbers, &mut self.text, row, ctx, gap);
        TemplateUse::Shared(self.end_template())
    }

    fn add_alone(&mut self, row: &JobRow<'_>, ctx: &Ctx) {
        self.order.add_form(row, ctx);
        self.layouts.jobs.row(&mut self.text, row, ctx);
        let template = self.end_template();
        self.add_row(template, row, &RowValues::of(row.job), ctx);
    }

    fn add_row(&mut self, template: u32, row: &JobRow<'_>, numbers: &RowValues, ctx: &Ctx) {
        self.order.add_row(row, ctx);
        self.rows.push(template);
        self.own.push(numbers);
    }

    /// Makes a template of the text and gaps that were written last.
    fn end_template(&mut self) -> u32 {
        let template = u32::try_from(self.templates.len())
            .expect("templates are fewer than bytes of an answer");
        self.templates.push(RowTemplate {
            text_end: self.text.len(),
            gaps_end: self.gaps.len(),
            job: None,
        });
        template
    }

    /// Number of templates of its rows.
    #[cfg(test)]
    pub(super) fn templates(&self) -> usize {
        self.templates.len()
    }

    /// Writes the whole listing, in order and with what stands above it.
    pub(super) fn write(mut self, ctx: &Ctx, mut out: impl FnMut(&str)) {
        let mut text = self.above(ctx);
        text.reserve_exact(CHUNK + ROW);
        let (count, sorted) = (self.rows.len(), self.order.sorted(&self.rows));
        let add = |row: usize| {
            self.line(row, &mut text, ctx);
            if text.len() >= CHUNK {
                out(&text);
                text.clear();
            }
        };
        match sorted {
            Some(sorted) => sorted.places().for_each(add),
            None => (0..count).for_each(add),
        }
        out(&text);
    }

    /// Writes one row.
    fn line(&mut self, row: usize, out: &mut String, ctx: &Ctx) {
        let template = self.rows.at(row) as usize;
        let before = template
            .checked_sub(1)
            .map(|before| &self.templates[before]);
        let (mut at, gaps) =
            before.map_or((0, 0), |template| (template.text_end, template.gaps_end));
        let template = &mut self.templates[template];
        if let Some(job) = &mut template.job {
            self.own.put(row, job);
            let gaps = &self.gaps[gaps..template.gaps_end];
            for (column, gap) in self.columns.iter().zip(gaps) {
                out.push_str(&self.text[at..*gap]);
                cell(out, column, job, ctx);
                at = *gap;
            }
        }
        out.push_str(&self.text[at..template.text_end]);
    }

    fn above(&self, ctx: &Ctx) -> String {
        let options = self.options;
        let mut out = String::new();
        if options.no_header {
            return out;
        }
        if options.long || options.iterate_s.is_some() || options.verbose {
            out.push_str(&ctx.stamp());
            out.push('\n');
        }
        if options.is_next_cluster {
            out.push('\n');
        }
        if options.clusters.is_some() {
            out.push_str(&format!("CLUSTER: {}\n", ctx.cluster));
        }
        match options.steps {
            true => self.layouts.steps.header(&mut out),
            false => self.layouts.jobs.header(&mut out),
        }
        out
    }
}

/// Writes the cell of a job that is of a template. Nearly all that is written of most listings is the number of a job in a column
/// that is wide enough.
fn cell(out: &mut String, column: &FormatColumn<job_fields::JobRecords>, job: &Job, ctx: &Ctx) {
    let number = column.right && is_id(column.field) && job.array == ArrayRole::None;
    if !(number && job.het.is_none() && text::number_right(out, job.id.0, column.width)) {
        column.cell(out, &JobRow::new(job, None), ctx);
    }
}
