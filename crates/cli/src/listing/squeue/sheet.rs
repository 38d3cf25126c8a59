//! The listing as it grows: rows are written as records come, and put in order at the end. So a listing of everything
//! never holds more records than one part of the answer, and is written while the next part is on its way.

use super::super::Failure;
use super::super::context::Ctx;
use super::super::query::Jobs;
use super::sort::Order;
use super::{Layouts, Options, pick};

/// Rows, and what their order depends on.
pub(super) struct Sheet<'o> {
    options: &'o Options,
    layouts: &'o Layouts,
    order: Order,
    text: String,
    /// Where each row ends.
    ends: Vec<usize>,
}

impl<'o> Sheet<'o> {
    /// Without rows.
    pub(super) fn new(options: &'o Options, layouts: &'o Layouts) -> Result<Sheet<'o>, Failure> {
        let order = match options.steps {
            true => Order::of_steps(options.keys())?,
            false => Order::of_jobs(options.keys())?,
        };
        Ok(Sheet {
            options,
            layouts,
            order,
            text: String::new(),
            ends: Vec::new(),
        })
    }

    /// Adds what these records show.
    pub(super) fn add(&mut self, jobs: &Jobs, ctx: &Ctx) {
        let rows = pick::rows(self.options, jobs, ctx);
        if self.options.steps {
            for row in pick::steps(self.options, &rows) {
                self.order.add_step(&row, ctx);
                self.layouts.steps.row(&mut self.text, &row, ctx);
                self.ends.push(self.text.len());
            }
            return;
        }
        for row in &rows {
            self.order.add_job(row, ctx);
            self.layouts.jobs.row(&mut self.text, row, ctx);
            self.ends.push(self.text.len());
        }
    }

    /// The whole listing, in order and with what stands above it.
    pub(super) fn text(self, ctx: &Ctx) -> String {
        let mut out = self.above(ctx);
        let Some(sorted) = self.order.sorted() else {
            if out.is_empty() {
                return self.text;
            }
            out.push_str(&self.text);
            return out;
        };
        out.reserve_exact(self.text.len());
        for row in sorted {
            let start = row.checked_sub(1).map_or(0, |before| self.ends[before]);
            out.push_str(&self.text[start..self.ends[row]]);
        }
        out
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
