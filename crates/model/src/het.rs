//! Heterogeneous jobs: several jobs with consecutive numbers, submitted in one command, that start together or not at
//! all. The first, the *leader*, runs the script and stands for all; each of the others is a component of its own
//! size, partition and limit.

use crate::ids::JobId;
use crate::limits::HET_COMPONENTS_MAX;
use crate::validate::{Fault, Validate};
use minicbor::{Decode, Encode};

/// A job's place in a heterogeneous job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode, Validate)]
#[valid(with = HetPlace::check)]
pub struct HetPlace {
    /// Number of the first component (`HetJobId`).
    #[n(0)]
    pub leader: JobId,
    /// Which component this is, from 0 (`HetJobOffset`).
    #[n(1)]
    pub offset: u32,
    /// Number of components (`SLURM_HET_SIZE`).
    #[n(2)]
    pub size: u32,
}

impl HetPlace {
    fn check(&self) -> Result<(), Fault> {
        match self.size <= HET_COMPONENTS_MAX && self.offset < self.size {
            true => Ok(()),
            false => Err(Fault::Malformed(
                "is not a component of a heterogeneous job",
            )),
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
