//! Lengths of events by their variable parts.

use super::{Event, JobChange, TriggerChange};
use minicbor::encode::Write;
use minicbor::{Encode, Encoder};
use muster_model::job::{Step, StepDeviceAsk};
use muster_model::spec::{DependencyTerm, JobSpec};
use std::convert::Infallible;

/// Bytes that one condition of a job's dependency counts among those that the queue keeps of a user. It takes less
/// memory, but each is looked at when one of them is decided: this limits the time that a user's conditions take.
const CONDITION_BYTES: u64 = 2 << 10;
/// Bytes of one written condition.
const LISTED_CONDITION_BYTES: u64 = 24;

/// Bytes that a step that runs has beside its texts.
const STEP_BYTES: u64 = 256;

/// Bytes that a device of a step has beside its name.
const DEVICE_BYTES: usize = 32;

/// Bytes that the queue keeps of a step that runs.
pub fn step_bytes(step: &Step) -> u64 {
    let Step {
        step: _,
        name,
        hostlist,
        nodes: _,
        tasks: _,
        cpus: _,
        memory_mib: _,
        start_time: _,
        stdio,
        submit_line,
        time_limit: _,
        distribution,
        maker,
        devices,
        device_ask,
    } = step;
    let files = [&stdio.stdin, &stdio.stdout, &stdio.stderr, distribution];
    let files: usize = files.into_iter().flatten().map(String::len).sum();
    let host = maker.as_ref().map_or(0, |maker| maker.host.len());
    let devices: usize = devices
        .iter()
        .map(|tres| tres.name.len() + DEVICE_BYTES)
        .sum();
    let ask = device_ask.as_deref().map_or(0, |ask| {
        let texts = ask.by_name().map(|(_, text)| text.len()).sum::<usize>();
        size_of::<StepDeviceAsk>() + texts
    });
    let texts = name.len() + hostlist.len() + submit_line.len() + files + host + devices + ask;
    STEP_BYTES + texts as u64
}

/// The length of a specification as it is written.
pub fn spec_bytes(spec: &JobSpec) -> u64 {
    encoded_bytes(spec)
}

/// The length of a value as it is written.
pub fn encoded_bytes(value: &impl Encode<()>) -> u64 {
    let mut length = Length(0);
    match Encoder::new(&mut length).encode(value) {
        Ok(_) => length.0,
        Err(e) => panic!("a length takes all bytes: {e}"),
    }
}

/// Bytes that the conditions of a specification's dependency count, beside those of the specification: the cost of keeping and
/// checking them for `tasks` records that wait for them.
pub fn dependency_bytes(spec: &JobSpec, tasks: u64) -> u64 {
    let terms = spec.dependency.terms.len() as u64;
    terms.saturating_mul(tasks).saturating_mul(CONDITION_BYTES)
}

impl Event {
    /// Bytes of the scripts, environments, specifications, steps and lists of conditions that it carries.
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
            Event::StepStarted { step, .. } => step_bytes(step),
            Event::CrontabSet {
                crontab: Some(crontab),
                ..
            } => crontab.text.len() as u64,
            Event::TriggersChanged {
                change: TriggerChange::Set(trigger),
                ..
            } => trigger.bytes() as u64,
            _ => 0,
        }
    }
}

/// Bytes of written conditions, at most.
fn listed_bytes(terms: &[DependencyTerm]) -> u64 {
    terms.len() as u64 * LISTED_CONDITION_BYTES
}

/// Counts the bytes that are written to it.
struct Length(u64);

impl Write for Length {
    type Error = Infallible;

    fn write_all(&mut self, bytes: &[u8]) -> Result<(), Infallible> {
        self.0 += bytes.len() as u64;
        Ok(())
    }
}
