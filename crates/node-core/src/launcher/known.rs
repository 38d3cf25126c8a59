//! The launcher's list of jobs for a new agent. It is sent in parts, because the jobs of users may exceed one frame.

use super::encoded;
use super::state::LauncherState;
use crate::messages::{KeptEntry, KnownJob, LauncherEvent};
use minicbor::bytes::ByteVec;
use muster_model::ids::JobAttempt;

/// Bytes of a part. A single longer entry has a part of its own.
const PART_BYTES: usize = 4 << 20;
/// Maximum overhead of an entry beyond its bytes.
const ENTRY_BYTES: usize = 32;

/// Parts that are being put together.
#[derive(Default)]
struct Parts {
    full: Vec<Vec<KnownJob>>,
    last: Vec<KnownJob>,
    /// About how many bytes the last one has.
    bytes: usize,
}

impl Parts {
    /// The job in a part that has room for this many more bytes.
    fn job(&mut self, attempt: JobAttempt, bytes: usize) -> &mut KnownJob {
        let more = bytes.saturating_add(ENTRY_BYTES);
        if self.bytes > 0 && self.bytes.saturating_add(more) > PART_BYTES {
            self.full.push(std::mem::take(&mut self.last));
            self.bytes = 0;
        }
        self.bytes = self.bytes.saturating_add(more);
        if self.last.last().is_none_or(|job| job.attempt != attempt) {
            self.last.push(KnownJob::new(attempt));
        }
        let at = self.last.len() - 1;
        &mut self.last[at]
    }

    fn add(&mut self, state: &LauncherState, attempt: JobAttempt) {
        let Some(entry) = state.jobs.get(&attempt) else {
            return;
        };
        let grant: Option<ByteVec> = entry.grant.as_deref().map(encoded);
        let bytes = grant.as_ref().map_or(0, |grant| grant.len());
        self.job(attempt, bytes).grant = grant;
        for (key, bytes) in state.records.kept(attempt) {
            let job = self.job(attempt, bytes.len());
            let bytes = bytes.clone();
            job.kept.push(KeptEntry { key, bytes });
        }
        for step in entry.steps.keys() {
            self.job(attempt, 0).steps.push(*step);
        }
    }
}

/// Bytes kept of all jobs of this job's user.
pub(super) fn kept_of_user(state: &LauncherState, attempt: JobAttempt) -> usize {
    let uid = state.jobs.get(&attempt).map(|entry| entry.uid);
    let its = state.jobs.iter().filter(|(_, e)| Some(e.uid) == uid);
    its.map(|(attempt, _)| state.records.kept_bytes(*attempt))
        .sum()
}

/// Everything that was not forgotten, for an agent.
pub(super) fn all_known(state: &LauncherState) -> Vec<LauncherEvent> {
    let mut parts = Parts::default();
    for attempt in state.jobs.keys() {
        parts.add(state, *attempt);
    }
    let Parts { mut full, last, .. } = parts;
    full.push(last);
    let count = full.len();
    let parts = full.into_iter().zip(1..);
    let part = |(jobs, number)| LauncherEvent::State {
        jobs,
        is_last: number == count,
    };
    parts.map(part).collect()
}
