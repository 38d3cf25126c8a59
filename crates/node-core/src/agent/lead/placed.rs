//! Steps that were laid out and are not over, by number and by the client that waits for each.

use super::{HeldRequest, LedStep};
use crate::agent::{ConnId, RequestId};
use muster_model::ids::{JobAttempt, JobId, StepId, StepNo};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// All placed steps.
#[derive(Debug, Default)]
pub(super) struct PlacedSteps {
    steps: BTreeMap<StepId, LedStep>,
    of_clients: HashMap<ConnId, BTreeSet<StepId>>,
    /// Bytes of records, by launch of the job.
    kept_bytes: HashMap<JobAttempt, usize>,
}

impl PlacedSteps {
    pub(super) fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    pub(super) fn get(&self, key: StepId) -> Option<&LedStep> {
        self.steps.get(&key)
    }

    /// See [`PlacedSteps::get`]. Clients are released by [`PlacedSteps::release_client`] only.
    pub(super) fn get_mut(&mut self, key: StepId) -> Option<&mut LedStep> {
        self.steps.get_mut(&key)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (StepId, &LedStep)> {
        self.steps.iter().map(|(key, step)| (*key, step))
    }

    /// Steps of a launch of a job, by number.
    pub(super) fn of_attempt(
        &self,
        attempt: JobAttempt,
    ) -> impl Iterator<Item = (StepId, &LedStep)> {
        let of_job = self.of_job(attempt.job);
        of_job.filter(move |(_, step)| step.attempt == attempt)
    }

    /// Steps of all launches of a job.
    pub(super) fn of_job(&self, id: JobId) -> impl Iterator<Item = (StepId, &LedStep)> {
        let steps = self.steps.range(StepId::new(id, StepNo(0))..);
        let of_job = steps.take_while(move |(StepId { job, .. }, _)| *job == id);
        of_job.map(|(key, step)| (*key, step))
    }

    /// The first step that hangs on a connection.
    pub(super) fn first_of_client(&self, conn: ConnId) -> Option<&LedStep> {
        let key = self.of_clients.get(&conn)?.first()?;
        self.get(*key)
    }

    /// All steps of a client.
    pub(super) fn of_client(&self, conn: ConnId) -> Vec<StepId> {
        let keys = self.of_clients.get(&conn).into_iter().flatten();
        keys.copied().collect()
    }

    pub(super) fn insert(&mut self, key: StepId, step: LedStep) {
        if let Some(client) = step.client {
            self.of_clients.entry(client.conn).or_default().insert(key);
        }
        *self.kept_bytes.entry(step.attempt).or_default() += step.kept_bytes;
        self.steps.insert(key, step);
    }

    pub(super) fn remove(&mut self, key: StepId) -> Option<LedStep> {
        let step = self.steps.remove(&key)?;
        if let Some(client) = step.client {
            self.forget_client(client.conn, key);
        }
        if let Some(bytes) = self.kept_bytes.get_mut(&step.attempt) {
            *bytes = bytes.saturating_sub(step.kept_bytes);
            if *bytes == 0 {
                self.kept_bytes.remove(&step.attempt);
            }
        }
        Some(step)
    }

    /// A step hangs on no client any more; the step, and the client's request.
    pub(super) fn release_client(&mut self, key: StepId) -> Option<(&LedStep, RequestId)> {
        let HeldRequest { conn, request } = self.steps.get_mut(&key)?.client.take()?;
        self.forget_client(conn, key);
        Some((self.steps.get(&key)?, request))
    }

    fn forget_client(&mut self, conn: ConnId, key: StepId) {
        if let Some(keys) = self.of_clients.get_mut(&conn) {
            keys.remove(&key);
            if keys.is_empty() {
                self.of_clients.remove(&conn);
            }
        }
    }

    /// Bytes of the records of all steps of these launches.
    pub(super) fn kept_bytes(&self, wanted: impl Fn(JobAttempt) -> bool) -> usize {
        let jobs = self.kept_bytes.iter();
        let wanted = jobs.filter(|(attempt, _)| wanted(**attempt));
        wanted.map(|(_, bytes)| bytes).sum()
    }
}
