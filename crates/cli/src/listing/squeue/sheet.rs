//! The listing as it grows. Of jobs that are alike, a row's text is made once, but for the cells of what they differ in;
//! of each of them a number or some are kept, from which its row is made when all have come and their order is known. So
//! a listing of everything takes some bytes a job, and no more of its text than one chunk.

use super::super::Failure;
use super::super::context::Ctx;
use super::super::format::Column;
use super::super::job::JobRow;
use super::super::job_fields::{self, is_id, is_of_numbers};
use super::super::query::Jobs;
use super::super::text;
use super::pieces::Pieces;
use super::sort::Order;
use super::{Layouts, Options, pick};
use muster_core::alike::{Listed, Numbers};
use muster_core::ids::JobId;
use muster_core::job::{ArrayRole, Job};

/// So many jobs that are alike are worth a form; it takes more than the rows of less.
const SHARED: u32 = 8;
/// Text is written when there is so much of it.
const CHUNK: usize = 16 << 10;
/// And a row is mostly shorter than this.
const ROW: usize = 512;

/// Rows, and what their order depends on.
pub(super) struct Sheet<'o> {
    options: &'o Options,
    layouts: &'o Layouts,
    order: Order,
    forms: Vec<Form>,
    /// What rows of each form have in common; where a form is of one row, all of it.
    text: String,
    /// Where cells are missing in that.
    gaps: Vec<usize>,
    /// The form of each row.
    rows: Pieces<u32>,
    /// The columns of what jobs that are alike differ in.
    columns: Vec<&'o Column<job_fields::Jobs>>,
    own: Own,
}

/// What rows look like.
struct Form {
    /// Its text and gaps are those from the form before until here.
    text_end: usize,
    gaps_end: usize,
    /// The job whose numbers are each row's, if it is of several.
    job: Option<Box<Job>>,
}

/// What is known of each row that its form does not tell.
enum Own {
    /// The columns show nothing but the numbers of the jobs.
    Ids(Pieces<JobId>),
    All(Pieces<Numbers>),
}

/// What becomes of the records of a form.
#[derive(Clone, Copy)]
enum Fate {
    Unknown,
    Hidden,
    Alone,
    Shared(u32),
}

impl Own {
    fn push(&mut self, numbers: &Numbers) {
        match self {
            Own::Ids(all) => all.push(numbers.id),
            Own::All(all) => all.push(*numbers),
        }
    }

    /// Makes a job of a form the one of that row.
    fn put(&self, row: usize, job: &mut Job) {
        match self {
            Own::Ids(all) => job.id = all.at(row),
            Own::All(all) => all.at(row).put(job),
        }
    }
}

impl<'o> Sheet<'o> {
    /// Without rows.
    pub(super) fn new(options: &'o Options, layouts: &'o Layouts) -> Result<Sheet<'o>, Failure> {
        let order = match options.steps {
            true => Order::of_steps(options.keys())?,
            false => Order::of_jobs(options.keys())?,
        };
        let columns = layouts.jobs.columns.iter();
        let columns: Vec<_> = columns.filter(|c| is_of_numbers(c.field)).collect();
        let own = match columns.iter().all(|column| is_id(column.field)) {
            true => Own::Ids(Pieces::default()),
            false => Own::All(Pieces::default()),
        };
        Ok(Sheet {
            options,
            layouts,
            order,
            forms: Vec::new(),
            text: String::new(),
            gaps: Vec::new(),
            rows: Pieces::default(),
            columns,
            own,
        })
    }

    /// Adds what these records show. `jobs` knows their arrays.
    pub(super) fn add(&mut self, listed: Listed, jobs: &mut Jobs, ctx: &Ctx) {
        if !pick::by_form(self.options) {
            jobs.jobs = listed.into_jobs().into();
            return self.add_jobs(jobs, ctx);
        }
        let Listed { mut forms, records } = listed;
        let mut fates = vec![Fate::Unknown; forms.len()];
        let by_numbers = self.order.is_of_numbers();
        for record in records.iter() {
            let form = record.form as usize;
            if let Fate::Shared(form) = fates[form]
                && by_numbers
            {
                self.order.add_numbers(&record.numbers);
                self.rows.push(form);
                self.own.push(&record.numbers);
                continue;
            }
            let (job, count) = &mut forms[form];
            record.numbers.put(job);
            let row = JobRow::new(job, jobs.array_of(job));
            if matches!(fates[form], Fate::Unknown) {
                fates[form] = self.fate(&row, *count, ctx);
            }
            match fates[form] {
                Fate::Unknown | Fate::Hidden => {}
                Fate::Alone => self.add_alone(&row, ctx),
                Fate::Shared(form) => self.add_row(form, &row, &record.numbers, ctx),
            }
        }
        for ((job, _), fate) in forms.into_iter().zip(fates) {
            if let Fate::Shared(form) = fate {
                self.forms[form as usize].job = Some(Box::new(job));
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
            let form = self.end_form();
            self.rows.push(form);
            self.own.push(&Numbers::default());
        }
    }

    /// Decides by the first of so many.
    fn fate(&mut self, row: &JobRow<'_>, count: u32, ctx: &Ctx) -> Fate {
        // What is said of an array is known by its number, and so is no form's.
        let array = matches!(row.job.array, ArrayRole::Pending { .. });
        if !self.options.wishes.wants(row, self.options, ctx) {
            return Fate::Hidden;
        }
        if count < SHARED || array {
            return Fate::Alone;
        }
        self.order.add_form(row, ctx);
        let gap = |at| self.gaps.push(at);
        let layout = &self.layouts.jobs;
        layout.row_but(is_of_numbers, &mut self.text, row, ctx, gap);
        Fate::Shared(self.end_form())
    }

    fn add_alone(&mut self, row: &JobRow<'_>, ctx: &Ctx) {
        self.order.add_form(row, ctx);
        self.layouts.jobs.row(&mut self.text, row, ctx);
        let form = self.end_form();
        self.add_row(form, row, &Numbers::of(row.job), ctx);
    }

    fn add_row(&mut self, form: u32, row: &JobRow<'_>, numbers: &Numbers, ctx: &Ctx) {
        self.order.add_row(row, ctx);
        self.rows.push(form);
        self.own.push(numbers);
    }

    /// What was written last are the text and gaps of a form.
    fn end_form(&mut self) -> u32 {
        let form =
            u32::try_from(self.forms.len()).expect("forms are fewer than bytes of an answer");
        self.forms.push(Form {
            text_end: self.text.len(),
            gaps_end: self.gaps.len(),
            job: None,
        });
        form
    }

    /// How many forms its rows have.
    #[cfg(test)]
    pub(super) fn forms(&self) -> usize {
        self.forms.len()
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
        let form = self.rows.at(row) as usize;
        let before = form.checked_sub(1).map(|before| &self.forms[before]);
        let (mut at, gaps) = before.map_or((0, 0), |form| (form.text_end, form.gaps_end));
        let form = &mut self.forms[form];
        if let Some(job) = &mut form.job {
            self.own.put(row, job);
            let gaps = &self.gaps[gaps..form.gaps_end];
            for (column, gap) in self.columns.iter().zip(gaps) {
                out.push_str(&self.text[at..*gap]);
                cell(out, column, job, ctx);
                at = *gap;
            }
        }
        out.push_str(&self.text[at..form.text_end]);
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
        if options.cluster_line {
            out.push_str(&format!("CLUSTER: {}\n", ctx.cluster));
        }
        match options.steps {
            true => self.layouts.steps.header(&mut out),
            false => self.layouts.jobs.header(&mut out),
        }
        out
    }
}

/// Writes the cell of a job that is of a form. Nearly all that is written of most listings is the number of a job in a column
/// that is wide enough.
fn cell(out: &mut String, column: &Column<job_fields::Jobs>, job: &Job, ctx: &Ctx) {
    let number = column.right && is_id(column.field) && job.array == ArrayRole::None;
    if !(number && job.het.is_none() && text::number_right(out, job.id.0, column.width)) {
        column.cell(out, &JobRow::new(job, None), ctx);
    }
}
