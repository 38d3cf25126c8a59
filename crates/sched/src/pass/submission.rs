//! Whether a submitted job could ever run. A job whose request cannot be satisfied by the nodes of
//! its partitions, even if all were up and empty, is refused at once, while the submitting command
//! can still report it. A job that only exceeds a partition limit waits, because partitions may
//! grow.

use crate::demand::PartitionTerms;
use crate::nodes::room::SharingKey;
use crate::pass::scheduler::Scheduler;
use crate::queue::feasibility_cache::LastFeasible;
use crate::queue::{feasible, partitions_of};
use muster_core::decide::exemptions;
use muster_core::event::Event;
use muster_core::state::State;
use muster_model::grid_engine::waits_if_impossible;
use muster_model::job::Reason;
use muster_model::refusal::{Refusal, RefusalCode};
use muster_model::spec::JobSpec;
use muster_model::time::TimeLimit;
use std::sync::Arc;

impl Scheduler {
    /// The reason why one of these submissions could never run, if there is one. Returns none while
    /// the configuration changes.
    pub(crate) fn reject_infeasible(&mut self, state: &State, events: &[Event]) -> Option<Refusal> {
        if self.is_stale(state) {
            return None;
        }
        events.iter().find_map(|event| match event {
            Event::JobSubmitted {
                spec, time_limit, ..
            } => self.never(state, spec, *time_limit),
            _ => None,
        })
    }

    fn never(&mut self, state: &State, spec: &Arc<JobSpec>, limit: TimeLimit) -> Option<Refusal> {
        // Nodes of reservations change, so they are not considered.
        if spec.reservation.is_some()
            || waits_if_impossible(spec)
            || self.last_feasible.is_like(spec, limit)
        {
            return None;
        }
        let fleet = &self.fleet;
        let names = partitions_of(spec, &[]);
        let parts = names.iter().filter_map(|name| fleet.part_by_name.get(name));
        let mut cache = std::mem::take(&mut self.queue.feasibility);
        let mut verdicts = parts.map(|number| {
            let part = &fleet.parts[*number as usize];
            let exempt = exemptions(state, spec, &part.config.name);
            let terms = PartitionTerms { limit, exempt };
            let found = feasible(&spec.ask, terms, fleet, part, SharingKey::default());
            let verdict = found.as_ref().err().copied();
            cache.note(fleet, (spec, limit, *number), found);
            verdict
        });
        let never = verdicts.all(|reason| reason == Some(Reason::BadConstraints));
        self.queue.feasibility = cache;
        if !names.is_empty() && never {
            let text = format!(
                "no nodes of partition {} can ever give it what it asks for",
                names.join(",")
            );
            return Some(Refusal::new(RefusalCode::NodeConfigUnavailable, text));
        }
        self.last_feasible = LastFeasible::new(spec, limit);
        None
    }
}
