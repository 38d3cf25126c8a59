//! Jobs that are left out when the state is recovered, because the controller cannot go on with them: all of an array, all
//! components of a heterogeneous job. Accounting records them as cancelled.

use anyhow::Result;
use log::warn;
use muster_acct::{AccountingChange, JobRow};
use muster_core::event::{Event, JobChange};
use muster_core::state::State;
use muster_model::ids::JobId;
use muster_model::job::{Job, JobState};
use muster_model::spec::JobSpec;
use muster_model::time::Timestamp;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Which jobs are left out.
#[derive(Clone, Debug, Default)]
pub struct ExcludedJobs {
    jobs: BTreeSet<JobId>,
    rows: BTreeMap<JobId, ExcludedJob>,
    /// Specifications that such jobs would have got: others may have got the same.
    specs: BTreeMap<JobId, Arc<JobSpec>>,
}

/// A job that was left out, as far as it is known.
#[derive(Clone, Debug)]
pub struct ExcludedJob(JobRow);

impl ExcludedJob {
    /// The job in accounting from now on: cancelled, unless its end is known.
    pub fn change(mut self, now: Timestamp) -> AccountingChange {
        if self.0.end.is_none() {
            self.0.end = Some(now);
            self.0.state = JobState::Cancelled;
            self.0.cancelled_by = Some(0);
        }
        AccountingChange::Job(Box::new(self.0))
    }
}

impl ExcludedJobs {
    /// Without these jobs.
    pub fn jobs(jobs: impl IntoIterator<Item = JobId>) -> ExcludedJobs {
        ExcludedJobs {
            jobs: jobs.into_iter().collect(),
            ..ExcludedJobs::default()
        }
    }

    /// Whether every job stays.
    pub fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }

    /// Jobs that were left out.
    pub(super) fn withdrawn(self) -> Vec<ExcludedJob> {
        for id in self.jobs {
            warn!("job {id} is left out, as asked for by --without-job");
        }
        self.rows.into_values().collect()
    }

    fn concerns(&self, job: &Job) -> bool {
        let leader = job.het.map(|part| part.leader);
        [Some(job.id), Some(job.submission()), leader]
            .into_iter()
            .flatten()
            .any(|id| self.jobs.contains(&id))
    }

    /// Takes the jobs out of a state, and works out anew what follows from jobs.
    pub(super) fn remove(&mut self, mut state: State) -> Result<State> {
        let concerned = state.jobs.values().filter(|job| self.concerns(job));
        let ids: Vec<JobId> = concerned.map(|job| job.id).collect();
        if ids.is_empty() {
            return Ok(state);
        }
        for id in &ids {
            if let Some(job) = state.jobs.get(id) {
                let row = ExcludedJob(JobRow::of(&state, job));
                self.rows.insert(*id, row);
            }
            state.jobs.remove(id);
            state.arrays.remove(id);
            self.jobs.insert(*id);
        }
        for node in &mut state.nodes {
            node.jobs.retain(|id| !ids.contains(id));
        }
        let mut bytes = Vec::new();
        state.encode_snapshot(&mut bytes);
        Ok(State::decode_snapshot(&bytes)?)
    }

    /// The event as it is to be applied; nothing if it is about such a job.
    pub(super) fn filter(&mut self, event: Event, state: &mut State) -> Option<Event> {
        if self.jobs.is_empty() {
            return Some(event);
        }
        match event {
            Event::JobSubmitted { id, het, .. }
                if self.jobs.contains(&id)
                    || het.is_some_and(|part| self.jobs.contains(&part.leader)) =>
            {
                self.submitted(&event, state);
                None
            }
            Event::TaskSplit { base, id, .. } if self.jobs.contains(&base) => {
                self.left_out(id, state);
                None
            }
            Event::JobsPurged { ids } => {
                let ids: Vec<_> = ids
                    .into_iter()
                    .filter(|id| !self.jobs.contains(id))
                    .collect();
                (!ids.is_empty()).then_some(Event::JobsPurged { ids })
            }
            Event::JobChanged {
                id,
                change: JobChange::SpecOf(other),
                at,
            } => {
                let known = state.jobs.get(&other).map(|job| &job.spec);
                let spec = Arc::clone(self.specs.get(&other).or(known)?);
                let change = JobChange::Spec(spec);
                self.filter(Event::JobChanged { id, change, at }, state)
            }
            event => match event.job() {
                Some(id) if self.jobs.contains(&id) => {
                    self.note(id, &event);
                    None
                }
                _ => Some(event),
            },
        }
    }

    /// Its number is not given to another job.
    fn left_out(&mut self, id: JobId, state: &mut State) {
        self.jobs.insert(id);
        state.next_job_id = state.next_job_id.max(id.0 + 1);
    }

    fn submitted(&mut self, event: &Event, state: &mut State) {
        let Event::JobSubmitted {
            id,
            spec,
            at,
            priority,
            time_limit,
            reason,
            partition,
            het,
            ..
        } = event
        else {
            return;
        };
        self.left_out(*id, state);
        let row = JobRow {
            key: muster_acct::RunKey {
                job: *id,
                number: 0,
            },
            spec: spec.clone(),
            array: None,
            het: *het,
            array_record: spec.array.is_some(),
            state: JobState::Pending,
            requeued: false,
            cancelled_by: None,
            exit: Default::default(),
            derived_exit: Default::default(),
            submit: *at,
            eligible: None,
            start: None,
            end: None,
            suspended_ms: 0,
            time_limit: *time_limit,
            req_mem_mib: 0,
            req_licenses: Vec::new(),
            licenses: Vec::new(),
            alloc: None,
            partition: partition.clone(),
            reason: *reason,
            priority: *priority,
        };
        self.rows.insert(*id, ExcludedJob(row));
    }

    /// The change for accounting.
    fn note(&mut self, id: JobId, event: &Event) {
        if let Event::JobChanged {
            change: JobChange::Spec(spec),
            ..
        } = event
        {
            self.specs.insert(id, Arc::clone(spec));
        }
        let Some(ExcludedJob(row)) = self.rows.get_mut(&id) else {
            return;
        };
        match event {
            Event::JobStarted { at, alloc, .. } => {
                row.start = Some(*at);
                row.alloc = Some(alloc.clone());
                row.state = JobState::Running;
            }
            Event::JobEnding {
                at,
                state,
                exit,
                requeue: None,
                cancelled_by,
                ..
            } => {
                row.end = Some(*at);
                row.state = *state;
                row.exit = *exit;
                row.cancelled_by = *cancelled_by;
            }
            Event::JobRequeued { .. } => {
                row.key.number += 1;
                (row.start, row.end, row.alloc) = (None, None, None);
                row.state = JobState::Pending;
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The specification is that of the job that is left out, which nobody knows any more but for this.
    #[test]
    fn what_another_job_got_as_well_is_not_lost_with_the_one_that_is_left_out() {
        let spec = Arc::new(JobSpec {
            name: "new".to_owned(),
            ..JobSpec::default()
        });
        let mut without = ExcludedJobs::jobs([JobId(5)]);
        let at = Timestamp(1);
        let changed = |id: u64, change: JobChange| {
            let id = JobId(id);
            Event::JobChanged { id, change, at }
        };
        let mut state = State::default();
        let own = changed(5, JobChange::Spec(Arc::clone(&spec)));
        assert_eq!(without.filter(own, &mut state), None);
        let same = without.filter(changed(6, JobChange::SpecOf(JobId(5))), &mut state);
        assert_eq!(same, Some(changed(6, JobChange::Spec(spec))));
        // It is known for a job that is there; nothing is changed for one that nobody knows.
        let unknown = without.filter(changed(6, JobChange::SpecOf(JobId(7))), &mut state);
        assert_eq!(unknown, None);
    }
}
