//! Heterogeneous jobs: several jobs with consecutive numbers, submitted in one command, that start together or not at
//! all. The first, the *leader*, runs the script and stands for all; each of the others is a component of its own
//! size, partition and limit.

use crate::ids::JobId;
use crate::job::{Allocation, Job};
use crate::limits::HET_COMPONENTS_MAX;
use crate::spec::JobSpec;
use crate::state::State;
use crate::time::TimeLimit;
use crate::validate::{Fault, Validate};
use minicbor::{Decode, Encode};
use std::sync::Arc;

/// A job's place in a heterogeneous job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode, Validate)]
#[valid(with = HetPart::check)]
pub struct HetPart {
    /// Number of the first component (`HetJobId`).
    #[n(0)]
    pub leader: JobId,
    /// Which component this is, from 0 (`HetJobOffset`).
    #[n(1)]
    pub offset: u32,
    /// How many components there are (`SLURM_HET_SIZE`).
    #[n(2)]
    pub size: u32,
}

impl HetPart {
    fn check(&self) -> Result<(), Fault> {
        match self.size <= HET_COMPONENTS_MAX && self.offset < self.size {
            true => Ok(()),
            false => Err(Fault::Malformed("is no component of a heterogeneous job")),
        }
    }

    /// Whether this component stands for all.
    pub fn leads(self) -> bool {
        self.offset == 0
    }

    /// The numbers of all components: they follow each other.
    pub fn ids(self) -> impl DoubleEndedIterator<Item = JobId> + Clone {
        (0..u64::from(self.size)).map(move |offset| JobId(self.leader.0 + offset))
    }

    /// All numbers as `HetJobIdSet` has them: `123-125`.
    pub fn id_set(self) -> String {
        let last = self.leader.0 + u64::from(self.size.max(1)) - 1;
        format!("{}-{last}", self.leader)
    }

    /// As users write it: `123+1`.
    pub fn name(self) -> String {
        format!("{}+{}", self.leader, self.offset)
    }
}

/// A component that runs, as the environment of the whole job describes it.
#[derive(Clone, Debug, PartialEq, Encode, Decode, Validate)]
pub struct HetComponent {
    /// Its number.
    #[n(0)]
    pub job: JobId,
    /// The specification.
    #[n(1)]
    #[cbor(with = "crate::cbor::arc")]
    pub spec: Arc<JobSpec>,
    /// The allocation.
    #[n(2)]
    #[cbor(with = "crate::cbor::arc")]
    pub alloc: Arc<Allocation>,
    /// Its limit.
    #[n(3)]
    pub time_limit: TimeLimit,
    /// Address of its first node's agent.
    #[n(4)]
    pub lead_address: String,
}

impl State {
    /// The components of a heterogeneous job that are still in the queue, in order.
    pub fn het_jobs(&self, part: HetPart) -> impl DoubleEndedIterator<Item = &Job> {
        part.ids()
            .filter_map(|id| self.jobs.get(&id))
            .filter(move |job| job.het.is_some_and(|p| p.leader == part.leader))
    }

    /// Whether nothing of a job is launched yet because `PrologSlurmctld` runs for it or another of its components.
    pub fn is_configuring(&self, job: &Job) -> bool {
        job.configuring
            || job
                .het
                .is_some_and(|part| self.het_jobs(part).any(|other| other.configuring))
    }
}
