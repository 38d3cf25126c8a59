//! Demands of checked submissions, kept until the jobs are queued, so that they are computed once.

use crate::demand::Demand;
use crate::nodes::fleet::Fleet;
use muster_model::job::Reason;
use muster_model::spec::JobSpec;
use muster_model::time::TimeLimit;
use std::collections::VecDeque;
use std::sync::Arc;

/// Number of demands that are kept.
const CACHED_MAX: usize = 32;

/// The last submission that was found feasible. Most consecutive submissions request the same.
#[derive(Debug, Default)]
pub(crate) struct LastFeasible(Option<(Arc<JobSpec>, TimeLimit)>);

/// Demands of the latest submissions. They are valid as long as no node goes out of service or
/// returns.
#[derive(Debug, Default)]
pub(crate) struct FeasibilityCache {
    /// [`Fleet::flips`] when the demands were computed.
    flips: u64,
    found: VecDeque<CachedDemand>,
}

/// The demand of a submission in a partition, or why it cannot run there.
#[derive(Debug)]
struct CachedDemand {
    spec: Arc<JobSpec>,
    limit: TimeLimit,
    part: u32,
    demand: Result<Demand, Reason>,
}

impl FeasibilityCache {
    pub(crate) fn note(
        &mut self,
        fleet: &Fleet,
        (spec, limit, part): (&Arc<JobSpec>, TimeLimit, u32),
        demand: Result<Demand, Reason>,
    ) {
        if self.flips != fleet.flips {
            (self.flips, self.found) = (fleet.flips, VecDeque::new());
        }
        self.found.truncate(CACHED_MAX - 1);
        self.found.push_front(CachedDemand {
            spec: Arc::clone(spec),
            limit,
            part,
            demand,
        });
    }

    /// Takes the demand of the identical specification in a partition, if it is cached.
    pub(crate) fn take(
        &mut self,
        fleet: &Fleet,
        (spec, limit, part): (&Arc<JobSpec>, TimeLimit, u32),
    ) -> Option<Result<Demand, Reason>> {
        if self.flips != fleet.flips {
            return None;
        }
        let same = |known: &CachedDemand| {
            Arc::ptr_eq(&known.spec, spec) && known.limit == limit && known.part == part
        };
        let at = self.found.iter().position(same)?;
        self.found.swap_remove_front(at).map(|known| known.demand)
    }
}

impl LastFeasible {
    pub(crate) fn new(spec: &Arc<JobSpec>, limit: TimeLimit) -> LastFeasible {
        LastFeasible(Some((Arc::clone(spec), limit)))
    }

    pub(crate) fn is_like(&self, spec: &JobSpec, limit: TimeLimit) -> bool {
        let like = |(known, same): &(Arc<JobSpec>, TimeLimit)| {
            *same == limit && known.ask == spec.ask && known.partitions == spec.partitions
        };
        self.0.as_ref().is_some_and(like)
    }
}
