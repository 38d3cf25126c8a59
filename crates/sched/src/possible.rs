//! Whether a job that is submitted could ever run. What no nodes of its partitions could give it, whatever else runs
//! and whichever of them are up, is refused at once: its owner is there to hear of it. What is only too large for the
//! partition waits, as partitions grow.

use crate::demand::Demand;
use crate::fleet::Fleet;
use crate::queue::{feasible, partitions_of};
use crate::scheduler::Scheduler;
use muster_core::event::Event;
use muster_core::job::Reason;
use muster_core::refusal::{Refusal, RefusalCode};
use muster_core::spec::JobSpec;
use muster_core::state::State;
use muster_core::time::TimeLimit;
use std::collections::VecDeque;
use std::sync::Arc;

/// Submissions of which it is kept what they need until they are queued.
const LOOKED_AT_MAX: usize = 32;

/// The last submission that was found possible: many are alike.
#[derive(Debug, Default)]
pub(crate) struct Known(Option<(Arc<JobSpec>, TimeLimit)>);

/// What was found when submissions were looked at, so that it is not worked out again when they are queued. It holds as
/// long as no node goes out of service or comes back.
#[derive(Debug, Default)]
pub(crate) struct Looked {
    /// [`Fleet::flips`] by then.
    flips: u64,
    found: VecDeque<Found>,
}

/// What a submission needs in a partition, or why it cannot run there.
#[derive(Debug)]
struct Found {
    spec: Arc<JobSpec>,
    limit: TimeLimit,
    part: u32,
    demand: Result<Demand, Reason>,
}

impl Looked {
    fn note(
        &mut self,
        fleet: &Fleet,
        (spec, limit, part): (&Arc<JobSpec>, TimeLimit, u32),
        demand: Result<Demand, Reason>,
    ) {
        if self.flips != fleet.flips {
            (self.flips, self.found) = (fleet.flips, VecDeque::new());
        }
        self.found.truncate(LOOKED_AT_MAX - 1);
        self.found.push_front(Found {
            spec: Arc::clone(spec),
            limit,
            part,
            demand,
        });
    }

    /// What jobs with that very specification need in a partition, if that was worked out just now.
    pub(crate) fn take(
        &mut self,
        fleet: &Fleet,
        (spec, limit, part): (&Arc<JobSpec>, TimeLimit, u32),
    ) -> Option<Result<Demand, Reason>> {
        if self.flips != fleet.flips {
            return None;
        }
        let same = |known: &Found| {
            Arc::ptr_eq(&known.spec, spec) && known.limit == limit && known.part == part
        };
        let at = self.found.iter().position(same)?;
        self.found.swap_remove_front(at).map(|known| known.demand)
    }
}

impl Known {
    fn is_like(&self, spec: &JobSpec, limit: TimeLimit) -> bool {
        let like = |(known, same): &(Arc<JobSpec>, TimeLimit)| {
            *same == limit && known.ask == spec.ask && known.partitions == spec.partitions
        };
        self.0.as_ref().is_some_and(like)
    }
}

impl Scheduler {
    /// Why one of these submissions could never run, if so. Nothing is said while the configuration changes.
    pub(crate) fn impossible(&mut self, state: &State, events: &[Event]) -> Option<Refusal> {
        if self.is_stale(state) {
            return None;
        }
        events.iter().find_map(|event| match event {
            Event::JobSubmitted {
                spec, time_limit, ..
            } => self.never(spec, *time_limit),
            _ => None,
        })
    }

    fn never(&mut self, spec: &Arc<JobSpec>, limit: TimeLimit) -> Option<Refusal> {
        // Nodes of reservations come and go.
        if spec.reservation.is_some() || self.possible.is_like(spec, limit) {
            return None;
        }
        let fleet = &self.fleet;
        let names = partitions_of(spec, &[]);
        let parts = names.iter().filter_map(|name| fleet.part_by_name.get(name));
        let mut looked = std::mem::take(&mut self.queue.looked);
        let mut verdicts = parts.map(|number| {
            let part = &fleet.parts[*number as usize];
            let found = feasible(&spec.ask, limit, fleet, part, None);
            let verdict = found.as_ref().err().copied();
            looked.note(fleet, (spec, limit, *number), found);
            verdict
        });
        let never = verdicts.all(|reason| reason == Some(Reason::BadConstraints));
        self.queue.looked = looked;
        if !names.is_empty() && never {
            let text = format!(
                "no nodes of partition {} can ever give it what it asks for",
                names.join(",")
            );
            return Some(Refusal::new(RefusalCode::NodeConfigUnavailable, text));
        }
        self.possible = Known(Some((Arc::clone(spec), limit)));
        None
    }
}
