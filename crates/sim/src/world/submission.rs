//! A user's record of a submission, for comparison with its job.

use muster_model::spec::{ArraySpec, JobSpec, ResourceAsk};

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct Submission {
    /// Unique.
    pub(crate) name: String,
    pub(crate) ask: ResourceAsk,
    pub(crate) array: Option<ArraySpec>,
    pub(crate) uid: u32,
}

impl Submission {
    pub(crate) fn of(spec: &JobSpec, uid: u32) -> Submission {
        Submission {
            name: spec.name.clone(),
            ask: spec.ask.clone(),
            array: spec.array.clone(),
            uid,
        }
    }
}
