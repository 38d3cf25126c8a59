//! Rows of listings for the jobs that are not over, side by side and nearly as they are written. A job's record has most of
//! a kilobyte, so that reading a hundred thousand of them takes longer than writing their differences; and hardly any of
//! them changes between two listings. Rows are brought up to date before a listing by the records that may have changed
//! since the last one, and are dropped when no listing was asked for in a long time. Numbers
//! of all jobs are kept with them while somebody asks for these.

use super::counts::{self, CountIndex};
use muster_core::state::State;
use muster_model::command::Identity;
use muster_model::ids::JobId;
use muster_model::job::{ArrayRole, Job};
use muster_model::listing_codec::{RowValues, same_template};
use muster_proto::client::Response;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

/// Number of job numbers that share a chunk of memory.
const CHUNK: u64 = 256;
/// The one list of all rows.
const ALL: u32 = 0;
/// Stands for a template in rows that do not describe their jobs completely: of running jobs, arrays, and jobs that few others equal.
const NONE: u32 = u32::MAX;
/// Owners of a specification from which on it gets a template, which takes the memory of a record.
const SHARED: usize = 16;

/// Changes of records without a question for numbers after which these are not kept any more.
const COUNTS_UNASKED_MAX: usize = 1 << 17;

/// The values of one job, and its template.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Row {
    pub(super) values: RowValues,
    pub(super) template: u32,
    owner: u32,
}

/// The rows of all jobs that are not over. Each is there twice: who asks for his own is not to look through those of others,
/// of which each would be a wait for memory.
#[derive(Debug, Default)]
pub(crate) struct Rows {
    all: Sorted,
    by_owner: Sorted,
    templates: Vec<Option<KeptTemplate>>,
    /// Free places of templates.
    free: Vec<u32>,
    /// Forms by the address of their specification, which lives as long as they.
    by_spec: HashMap<usize, Vec<u32>>,
    /// Jobs that are over, and have no row.
    over: BTreeSet<JobId>,
    /// Numbers of jobs, while they are asked for.
    counts: Option<CountIndex>,
    /// Changes of records since numbers were asked for.
    changed: usize,
    /// Questions for numbers in succession that found too many changes since the one before.
    lost: u32,
}

/// Rows of one or several lists, each by number, in pieces: a list may have a hundred thousand rows, and one that comes or
/// goes moves no more than a piece.
#[derive(Debug, Default)]
struct Sorted(BTreeMap<(u32, u64), Vec<Row>>);

impl Sorted {
    fn list(&self, list: u32) -> impl Iterator<Item = &Row> {
        let pieces = self.0.range((list, 0)..=(list, u64::MAX));
        pieces.flat_map(|(_, piece)| piece)
    }

    /// Sets the row of a job. Returns the previous one.
    fn set(&mut self, list: u32, id: JobId, row: Option<Row>) -> Option<Row> {
        let key = (list, id.0 / CHUNK);
        let piece = self.0.entry(key).or_default();
        let before = match (piece.binary_search_by_key(&id, |row| row.values.id), row) {
            (Ok(at), Some(row)) => Some(std::mem::replace(&mut piece[at], row)),
            (Ok(at), None) => Some(piece.remove(at)),
            (Err(at), Some(row)) => {
                piece.insert(at, row);
                None
            }
            (Err(_), None) => None,
        };
        if piece.is_empty() {
            self.0.remove(&key);
        }
        before
    }
}

#[derive(Debug)]
struct KeptTemplate {
    job: Box<Job>,
    rows: u32,
}

impl Rows {
    /// Brings them up to date with the state.
    pub(crate) fn follow(&mut self, state: &mut State) {
        let Some(mut changed) = state.jobs.take_changed() else {
            *self = Rows::rebuilt(state);
            return;
        };
        changed.sort_unstable();
        changed.dedup();
        self.changed += changed.len();
        if self.changed > COUNTS_UNASKED_MAX {
            self.counts = None;
        }
        for id in changed {
            self.set(id, state.jobs.get(&id));
        }
    }

    /// All rows of a state anew.
    pub(crate) fn rebuilt(state: &mut State) -> Rows {
        let mut rows = Rows::default();
        let _ = state.jobs.take_changed();
        let jobs = state.jobs.values();
        jobs.for_each(|job| rows.set(job.id, Some(job)));
        rows
    }

    /// Forgets them if the state does not note any more what of it changes.
    pub(crate) fn drop_if_lost(&mut self, state: &State) {
        let is_empty = self.all.0.is_empty() && self.over.is_empty();
        if !is_empty && !state.jobs.is_noting() {
            *self = Rows {
                lost: self.lost,
                ..Rows::default()
            };
        }
    }

    /// Numbers of jobs that the user may see. Where more changes between two questions than is noted, making everything anew would cost
    /// more than a look at each job, and is done seldom.
    pub(crate) fn job_counts(&mut self, state: &mut State, identity: &Identity) -> Response {
        let is_kept = state.jobs.is_noting() && self.counts.is_some();
        self.lost = match is_kept {
            true => 0,
            false => self.lost.saturating_add(1),
        };
        if !is_kept && !self.lost.is_power_of_two() {
            return counts::scanned(state, identity);
        }
        let lost = self.lost;
        self.follow(state);
        (self.lost, self.changed) = (lost, 0);
        let counts = self.counts.get_or_insert_with(|| CountIndex::of(state));
        counts.answer(state, identity)
    }

    /// The jobs that are over, by number.
    pub(super) fn over(&self) -> &BTreeSet<JobId> {
        &self.over
    }

    /// All rows, by number.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Row> {
        self.all.list(ALL)
    }

    /// The rows of some users, by job number.
    pub(super) fn of_owners(&self, uids: &[u32]) -> Vec<&Row> {
        let mut rows: Vec<&Row> = uids
            .iter()
            .flat_map(|uid| self.by_owner.list(*uid))
            .collect();
        if uids.len() > 1 {
            rows.sort_unstable_by_key(|row| row.values.id);
            rows.dedup_by_key(|row| row.values.id);
        }
        rows
    }

    /// The job that the row's is like in all but its values, if one is kept.
    pub(super) fn template(&self, row: &Row) -> Option<&Job> {
        let template = self.templates.get(row.template as usize)?.as_ref()?;
        Some(&template.job)
    }

    /// One after the highest place of a template.
    pub(super) fn templates_end(&self) -> usize {
        self.templates.len()
    }

    /// The job of this number is as listed, or there is none.
    fn set(&mut self, id: JobId, job: Option<&Job>) {
        if let Some(counts) = &mut self.counts {
            counts.set(id, job);
        }
        let is_over = |job: &&Job| job.state.is_ended() && !job.completing;
        match job.filter(is_over) {
            Some(_) => self.over.insert(id),
            None => self.over.remove(&id),
        };
        let job = job.filter(|job| !is_over(job));
        let row = job.map(|job| Row {
            values: RowValues::of(job),
            template: self.template_of(job),
            owner: job.spec.owner.uid,
        });
        let before = self.all.set(ALL, id, row);
        if let Some(before) =
            before.filter(|before| row.is_none_or(|row| row.owner != before.owner))
        {
            self.by_owner.set(before.owner, id, None);
        }
        if let Some(row) = row {
            self.by_owner.set(row.owner, id, Some(row));
        }
        if let Some(before) = before {
            self.release(before.template);
        }
    }

    /// The template of a job that is going to have a row.
    fn template_of(&mut self, job: &Job) -> u32 {
        let own = job.alloc.is_some() || job.array != ArrayRole::None;
        if own || Arc::strong_count(&job.spec) < SHARED {
            return NONE;
        }
        let of_spec = self
            .by_spec
            .entry(Arc::as_ptr(&job.spec) as usize)
            .or_default();
        for place in of_spec.iter() {
            if let Some(template) = &mut self.templates[*place as usize]
                && same_template(&template.job, job)
            {
                template.rows += 1;
                return *place;
            }
        }
        let template = Some(KeptTemplate {
            job: Box::new(job.clone()),
            rows: 1,
        });
        let place = match self.free.pop() {
            Some(place) => {
                self.templates[place as usize] = template;
                place
            }
            None => {
                self.templates.push(template);
                u32::try_from(self.templates.len() - 1).expect("templates are fewer than jobs")
            }
        };
        of_spec.push(place);
        place
    }

    /// A template has one row less.
    fn release(&mut self, place: u32) {
        let Some(Some(template)) = self.templates.get_mut(place as usize) else {
            return;
        };
        template.rows -= 1;
        if template.rows > 0 {
            return;
        }
        let spec = Arc::as_ptr(&template.job.spec) as usize;
        if let Some(of_spec) = self.by_spec.get_mut(&spec) {
            of_spec.retain(|other| *other != place);
            if of_spec.is_empty() {
                self.by_spec.remove(&spec);
            }
        }
        self.templates[place as usize] = None;
        self.free.push(place);
    }
}

#[cfg(test)]
mod tests;
