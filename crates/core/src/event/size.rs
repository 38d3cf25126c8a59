//! How long events are by what may be long in them.

use super::{Event, JobChange};
use minicbor::Encoder;
use minicbor::encode::Write;
use muster_model::spec::JobSpec;
use std::convert::Infallible;

/// The length of a specification as it is written.
pub fn spec_bytes(spec: &JobSpec) -> u64 {
    let mut length = Length(0);
    match Encoder::new(&mut length).encode(spec) {
        Ok(_) => length.0,
        Err(e) => panic!("a length takes all bytes: {e}"),
    }
}

impl Event {
    /// Bytes of the scripts, environments and specifications that it carries.
    pub fn carried_bytes(&self) -> u64 {
        match self {
            Event::BlobStored { bytes, .. } => bytes.len() as u64,
            Event::JobSubmitted { spec, .. }
            | Event::JobChanged {
                change: JobChange::Spec(spec) | JobChange::ReservationGone { spec, .. },
                ..
            } => spec_bytes(spec),
            _ => 0,
        }
    }
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
