//! How long events are by what may be long in them.

use super::{Event, JobChange};
use minicbor::encode::Write;
use minicbor::{Encode, Encoder};
use muster_model::spec::{DependencyTerm, JobSpec};
use std::convert::Infallible;

/// Bytes that one condition of a job's dependency counts among those that the queue keeps of a user. It takes less memory, but
/// each is looked at when one of them is decided: so a user cannot have so many that this takes long.
const CONDITION_BYTES: u64 = 2 << 10;
/// Bytes of one written condition.
const LISTED_CONDITION_BYTES: u64 = 24;

/// The length of a specification as it is written.
pub fn spec_bytes(spec: &JobSpec) -> u64 {
    encoded_bytes(spec)
}

/// The length of a value as it is written.
pub(crate) fn encoded_bytes(value: &impl Encode<()>) -> u64 {
    let mut length = Length(0);
    match Encoder::new(&mut length).encode(value) {
        Ok(_) => length.0,
        Err(e) => panic!("a length takes all bytes: {e}"),
    }
}

/// Bytes that the conditions of a specification's dependency count, beside those of the specification: what it costs to keep and to
/// look at them for `tasks` records that wait for them.
pub fn dependency_bytes(spec: &JobSpec, tasks: u64) -> u64 {
    let terms = spec.dependency.terms.len() as u64;
    terms.saturating_mul(tasks).saturating_mul(CONDITION_BYTES)
}

impl Event {
    /// Bytes of the scripts, environments, specifications and lists of conditions that it carries.
    pub fn carried_bytes(&self) -> u64 {
        match self {
            Event::BlobStored { bytes, .. } => bytes.len() as u64,
            Event::JobSubmitted {
                spec, waiting_on, ..
            } => spec_bytes(spec) + listed_bytes(waiting_on),
            Event::JobChanged {
                change: JobChange::Spec(spec) | JobChange::ReservationGone { spec, .. },
                ..
            } => spec_bytes(spec),
            Event::JobChanged {
                change:
                    JobChange::WaitingOn { terms, .. } | JobChange::DependenciesDecided { terms, .. },
                ..
            } => listed_bytes(terms),
            Event::CrontabSet {
                crontab: Some(crontab),
                ..
            } => crontab.text.len() as u64,
            _ => 0,
        }
    }
}

/// Bytes of written conditions, at most.
fn listed_bytes(terms: &[DependencyTerm]) -> u64 {
    terms.len() as u64 * LISTED_CONDITION_BYTES
}

/// Counts what is written to it.
struct Length(u64);

impl Write for Length {
    type Error = Infallible;

    fn write_all(&mut self, bytes: &[u8]) -> Result<(), Infallible> {
        self.0 += bytes.len() as u64;
        Ok(())
    }
}
