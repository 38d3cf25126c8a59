//! Listings of jobs. They leave in parts, and say once what records have in common ([`muster_model::listing_codec`]).

use super::rows::{Row, Rows};
use crate::clock::now;
use crate::outbox::OutboxError;
use muster_core::policy::access::privacy::JobScope;
use muster_core::state::{Priorities, State};
use muster_model::het::HetPlace;
use muster_model::ids::JobId;
use muster_model::job::{ArrayRole, Job, JobState};
use muster_model::listing_codec::{RowValues, TemplateTable};
use muster_model::shared_spec::SpecTable;
use muster_model::time::Timestamp;
use muster_proto::client::{JobFilter, JobsResponse, StartsProgress, WrittenJobsPage};
use muster_proto::frame;
use muster_sched::forecast::Forecast;
use std::collections::{BTreeSet, HashMap};

/// Bytes of records after which a part of an answer leaves.
const PART_BYTES: usize = 64 << 10;
/// Room for a part's bytes beside its records; mostly enough.
const PART_BESIDE: usize = 256;

/// The expected starts that an answer shows.
#[derive(Clone, Copy)]
pub(crate) struct KnownStarts<'f> {
    /// None if there are no results yet.
    pub(crate) forecast: Option<&'f Forecast>,
    pub(crate) progress: StartsProgress,
}

/// Records of the queue that match a filter and are in the scope, as frames. Specifications are written once. Jobs that are
/// not over are mostly written from rows, if these are up to date. It ends early when the client has disconnected.
pub(crate) fn jobs(
    state: &State,
    rows: Option<&Rows>,
    (filter, scope): (&JobFilter, &JobScope),
    known: Option<KnownStarts<'_>>,
    send: &mut impl FnMut(Vec<u8>) -> Result<(), OutboxError>,
) {
    let Some(filter) = &restricted(filter, scope) else {
        let nothing = WrittenJobsPage {
            now: now(),
            ..WrittenJobsPage::default()
        };
        // Nothing follows.
        return drop(send(frame::encode(&JobsResponse::Jobs(nothing))));
    };
    let mut answer = JobsAnswer {
        state,
        filter,
        scope,
        part: WrittenJobsPage::default(),
        templates: TemplateTable::default(),
        template_states: Vec::new(),
        parts: 0,
        now: now(),
        arrays: BTreeSet::new(),
        specs: SpecTable::of_listing(),
        priorities: Priorities::new(state),
        gone: false,
        evaluated: (state.partitions.iter().zip(&state.evaluated))
            .map(|(partition, at)| (partition.name.as_str(), *at))
            .collect(),
        starts: known.and_then(|known| known.forecast),
        send,
    };
    let active = |id| &state.jobs[id];
    match (filter.ids.is_empty(), filter.active, rows) {
        (true, true, rows) if !filter.uids.is_empty() => answer.add_of_owners(rows),
        (true, true, Some(rows)) => answer.add_rows(rows, rows.iter()),
        (true, true, None) => answer.add_all(state.pending.union(&state.active).map(active)),
        (true, false, Some(rows)) => answer.add_rows_and_ended(rows),
        (true, false, None) => answer.add_all(state.jobs.values()),
        (false, ..) => answer.add_named(),
    }
    answer.part.progress = known.map(|known| known.progress);
    if !answer.gone {
        answer.leave(false);
    }
}

/// An answer that is being written.
struct JobsAnswer<'s, S> {
    state: &'s State,
    filter: &'s JobFilter,
    scope: &'s JobScope,
    part: WrittenJobsPage,
    /// Templates of the part.
    templates: TemplateTable<'s>,
    /// The state of each template.
    template_states: Vec<TemplateState>,
    /// Number of parts that have left.
    parts: u32,
    /// All of it is as of one moment.
    now: Timestamp,
    /// Arrays that were sent so far.
    arrays: BTreeSet<JobId>,
    specs: SpecTable,
    priorities: Option<Priorities<'s>>,
    /// The client has disconnected.
    gone: bool,
    /// When the scheduler looked at each partition.
    evaluated: HashMap<&'s str, Timestamp>,
    starts: Option<&'s Forecast>,
    send: &'s mut S,
}

/// The state of a template in this answer, and of its rows.
#[derive(Clone, Copy, Default)]
struct TemplateState {
    /// Whether it was looked at.
    known: bool,
    hidden: bool,
    /// When the scheduler looked at them last.
    evaluated: Option<Timestamp>,
    /// The last part that has the template, counted from one, and its place there.
    part: u32,
    place: u32,
}

impl<'s, S: FnMut(Vec<u8>) -> Result<(), OutboxError>> JobsAnswer<'s, S> {
    fn add_all(&mut self, jobs: impl Iterator<Item = &'s Job>) {
        for job in jobs {
            if self.gone {
                return;
            }
            self.add(job);
        }
    }

    /// Records of some users that are not over, without a look at those of others, nor at those that wait if they are
    /// not asked for.
    fn add_of_owners(&mut self, rows: Option<&'s Rows>) {
        let state = self.state;
        let states = &self.filter.states;
        if !states.is_empty() && !states.contains(&JobState::Pending) {
            return self.add_all(state.active.iter().filter_map(|id| state.jobs.get(id)));
        }
        if let Some(rows) = rows {
            return self.add_rows(rows, rows.of_owners(&self.filter.uids).into_iter());
        }
        let owned = |uid: &u32| state.by_owner.get(uid);
        let names = self.filter.uids.iter().filter_map(owned);
        let records = names.flat_map(|names| names.values().flatten());
        let ids: BTreeSet<JobId> = records.map(|(_, id)| *id).collect();
        self.add_all(ids.into_iter().filter_map(|id| state.jobs.get(&id)));
    }

    /// Writes these rows, without a look at the jobs that they are of where the row tells all.
    fn add_rows(&mut self, all: &'s Rows, rows: impl Iterator<Item = &'s Row>) {
        self.template_states = vec![TemplateState::default(); all.templates_end()];
        for row in rows {
            if self.gone {
                return;
            }
            match all.template(row) {
                Some(template) => self.add_row(template, row),
                None => self.add_of(row.values.id),
            }
        }
    }

    /// Writes all rows, and between them, by number, the records of jobs that are over.
    fn add_rows_and_ended(&mut self, all: &'s Rows) {
        self.template_states = vec![TemplateState::default(); all.templates_end()];
        let mut over = all.over().iter().peekable();
        for row in all.iter() {
            while let Some(id) = over.next_if(|id| **id < row.values.id) {
                self.add_of(*id);
            }
            if self.gone {
                return;
            }
            match all.template(row) {
                Some(template) => self.add_row(template, row),
                None => self.add_of(row.values.id),
            }
        }
        over.for_each(|id| self.add_of(*id));
    }

    fn add_of(&mut self, id: JobId) {
        if let Some(job) = self.state.jobs.get(&id) {
            self.add(job);
        }
    }

    fn add_row(&mut self, template: &'s Job, row: &Row) {
        let mut template_state = self.template_states[row.template as usize];
        if !template_state.known {
            template_state.known = true;
            template_state.hidden = !(matches(template, self.filter) && self.scope.has(template));
            template_state.evaluated = self.evaluated(template);
        }
        if !template_state.hidden {
            // The place in the part that is being written, if it has the template.
            if template_state.part != self.parts + 1 {
                template_state.part = self.parts + 1;
                template_state.place = self.part.jobs.template(template, &mut self.specs);
            }
        }
        self.template_states[row.template as usize] = template_state;
        if template_state.hidden {
            return;
        }
        let mut values = row.values;
        let looked_at = template_state.evaluated.filter(|_| values.priority != 0);
        if let Some(at) = looked_at.filter(|at| *at >= values.submit_time) {
            values.evaluated_at(at);
        }
        let state = self.state;
        let ranked = self.priorities.as_ref();
        if let Some(job) = ranked.and_then(|_| state.jobs.get(&values.id)) {
            values.priority = self.priority(job);
        }
        self.part.jobs.record(template_state.place, &values);
        self.leave_if_full();
    }

    fn add_named(&mut self) {
        let state = self.state;
        let mut ids = BTreeSet::new();
        for &id in &self.filter.ids {
            let before = ids.len();
            // Jobs that may not be seen are left out.
            if *self.scope != JobScope::All && !self.scope.shows(state, id) {
                self.part.unknown.push(id);
                continue;
            }
            if let Some(info) = state.arrays.get(&id) {
                ids.extend(info.tasks.values().copied());
            }
            if let Some(job) = state.jobs.get(&id) {
                ids.insert(id);
                // A leader stands for all components.
                let led = job.het.filter(|part| part.leads());
                ids.extend(led.into_iter().flat_map(HetPlace::ids));
            } else if ids.len() == before && !state.arrays.contains_key(&id) {
                self.part.unknown.push(id);
            }
        }
        self.add_all(ids.into_iter().filter_map(|id| state.jobs.get(&id)));
    }

    fn add(&mut self, job: &'s Job) {
        if !(matches(job, self.filter) && self.scope.has(job)) {
            return;
        }
        let base = match job.array {
            ArrayRole::Task { base, .. } => Some(base),
            ArrayRole::Pending { .. } => Some(job.id),
            ArrayRole::None => None,
        };
        if let Some(base) = base
            && self.arrays.insert(base)
            && let Some(info) = self.state.arrays.get(&base)
        {
            self.part.arrays.push((base, info.without_tasks()));
        }
        let mut values = RowValues::of(job);
        values.priority = self.priority(job);
        if let Some(start) = self.starts.and_then(|starts| starts.starts.get(&job.id))
            && job.state == JobState::Pending
        {
            self.part.starts.push((self.part.jobs.len(), start.clone()));
        }
        let looked_at = self.evaluated(job).filter(|_| job.priority != 0);
        if let Some(at) = looked_at.filter(|at| *at >= job.submit_time) {
            values.evaluated_at(at);
        }
        let (records, specs) = (&mut self.part.jobs, &mut self.specs);
        let template = self.templates.of(job, records, specs);
        records.record(template, &values);
        self.leave_if_full();
    }

    /// Its priority now.
    fn priority(&mut self, job: &'s Job) -> u32 {
        match &mut self.priorities {
            Some(priorities) if job.state == JobState::Pending => priorities.of(job),
            _ => job.priority,
        }
    }

    /// When the scheduler looked last at jobs like this one, if they have a priority and were there.
    fn evaluated(&self, job: &Job) -> Option<Timestamp> {
        if !job.is_startable() {
            return None;
        }
        let partitions = match job.spec.partitions.as_slice() {
            [] => std::slice::from_ref(&job.partition),
            several => several,
        };
        let known = partitions.iter();
        let known = known.filter_map(|name| self.evaluated.get(name.as_str()));
        known.max().copied()
    }

    fn leave_if_full(&mut self) {
        if self.part.jobs.bytes() >= PART_BYTES {
            self.leave(true);
        }
    }

    /// Sends the part. The last part lists the names that were not found.
    fn leave(&mut self, more: bool) {
        let unknown = match more {
            true => std::mem::take(&mut self.part.unknown),
            false => Vec::new(),
        };
        let next = WrittenJobsPage {
            unknown,
            ..WrittenJobsPage::default()
        };
        let mut part = std::mem::replace(&mut self.part, next);
        (part.more, part.now) = (more, self.now);
        self.templates = TemplateTable::default();
        self.parts += 1;
        let about = part.jobs.bytes() + PART_BESIDE;
        let sent = (self.send)(frame::encode_sized(&JobsResponse::Jobs(part), about));
        self.gone |= sent.is_err();
    }
}

/// The filter with the owner whose jobs alone are in the scope, if there is one: the jobs of others are not looked at then.
/// None if it asks for others only.
fn restricted(filter: &JobFilter, scope: &JobScope) -> Option<JobFilter> {
    let mut filter = filter.clone().in_order();
    if let Some(uid) = scope.only_owner() {
        if !filter.uids.is_empty() && !filter.uids.contains(&uid) {
            return None;
        }
        filter.uids = vec![uid];
    }
    Some(filter)
}

/// Whether a filter whose conditions are in order has a job.
fn matches(job: &Job, filter: &JobFilter) -> bool {
    let has = |name: &String| filter.partitions.binary_search(name).is_ok();
    (filter.uids.is_empty() || filter.uids.binary_search(&job.spec.owner.uid).is_ok())
        && (!filter.active || !job.state.is_ended() || job.completing)
        && (filter.states.is_empty() || filter.states.contains(&job.state))
        && (filter.partitions.is_empty()
            || has(&job.partition)
            || job.spec.partitions.iter().any(has))
}
