//! `--test-only`, `--immediate`: when and where one job would start, without queueing it.

use crate::backfill::outlook::{FoundStart, KeptNodes, Outlook, StartTimes};
use crate::backfill::together::{
    JOINT_NODES_MAX, JointTerms, Member, MemberLane, earliest_together,
};
use crate::demand::Demand;
use crate::demand::licenses::{Licenses, LicensesDue, Span, asked};
use crate::demand::pick::Pick;
use crate::nodes::allocations::{EndAssumption, Ends};
use crate::nodes::fleet::{Fleet, PartView};
use crate::nodes::planned::PlannedEnds;
use crate::pass::starts::allocate;
use crate::place::holds::Holds;
use crate::place::node_source::{CurrentNodes, choose_now, end_after};
use crate::place::{Placement, Shortfall};
use crate::queue::{feasible, partitions_of};
use muster_core::state::State;
use muster_model::ids::JobId;
use muster_model::job::{Allocation, Reason};
use muster_model::refusal::{Refusal, RefusalCode};
use muster_model::spec::{JobSpec, Sharing};
use muster_model::time::{TimeLimit, Timestamp};
use std::cell::Cell;
use std::collections::BTreeSet;

/// The assumed length of jobs without a limit.
const ENDLESS_S: u64 = 365 * 86_400;

/// Jobs are assumed to end at their limits.
fn by_limits(now: Timestamp) -> EndAssumption {
    EndAssumption {
        ends: Ends::Limits,
        endless: Some(now.plus_s(ENDLESS_S)),
    }
}

/// The default partition's name.
fn default_partition(state: &State) -> Vec<String> {
    let default = state.partitions.iter().filter(|p| p.default);
    default.map(|p| p.name.clone()).take(1).collect()
}

fn completing(state: &State) -> BTreeSet<JobId> {
    (state.active.iter())
        .filter(|id| state.jobs.get(id).is_some_and(|j| j.completing))
        .copied()
        .collect()
}

/// The time limit of a job in a partition.
fn limit_in(spec: &JobSpec, part: &PartView) -> TimeLimit {
    spec.time_limit
        .or(part.config.default_time)
        .unwrap_or(part.config.max_time)
}

/// When and where all components of a heterogeneous job would start.
pub(crate) fn would_start_together(
    state: &State,
    specs: &[JobSpec],
    now: Timestamp,
) -> Result<(Timestamp, Vec<Allocation>), Refusal> {
    let mut fleet = Fleet::new(state);
    fleet.now = now;
    fleet.settle(state, &PlannedEnds::default());
    let default = default_partition(state);
    let mut demands: Vec<Vec<(u32, Demand)>> = Vec::with_capacity(specs.len());
    for spec in specs {
        let mut lanes = Vec::new();
        let mut refusal = Refusal::from(RefusalCode::InvalidPartition);
        for name in partitions_of(spec, &default) {
            let Some(&number) = fleet.part_by_name.get(name) else {
                continue;
            };
            let part = &fleet.parts[number as usize];
            let limit = limit_in(spec, part);
            match feasible(&spec.ask, limit, &fleet, part, Some(spec.owner.uid)) {
                Ok(demand) => lanes.push((number, demand)),
                Err(reason) => refusal = refusal_for(reason, name, limit),
            }
        }
        if lanes.is_empty() {
            return Err(refusal);
        }
        demands.push(lanes);
    }
    let members: Vec<Member<'_>> = demands
        .iter()
        .map(|lanes| Member {
            lanes: lanes
                .iter()
                .map(|(part, demand)| MemberLane {
                    lane: 0,
                    part: *part,
                    demand,
                })
                .collect(),
            waited: None,
        })
        .collect();
    let mut holds = Holds::default();
    let terms = JointTerms {
        assumed: by_limits(now),
        now,
        nodes_max: JOINT_NODES_MAX,
        prepared_max: JOINT_NODES_MAX,
    };
    let (found, _) = earliest_together(&members, &fleet, &mut holds, terms);
    let Some((at, places)) = found else {
        let text = "the components never fit beside each other";
        return Err(Refusal::new(RefusalCode::NodeConfigUnavailable, text));
    };
    if at > now {
        fleet.clear();
    }
    let allocs = demands.iter().zip(places).map(|(lanes, placed)| {
        let (part, demand) = &lanes[placed.at];
        let latest = end_after(fleet.now, demand.length_ms);
        allocate(
            &mut fleet,
            *part,
            latest,
            demand,
            &placed.picks,
            |_, _, _| {},
        )
    });
    Ok((at, allocs.collect()))
}

pub(crate) fn would_start(
    state: &State,
    spec: &JobSpec,
    now: Timestamp,
) -> Result<(Timestamp, Allocation), Refusal> {
    // Nodes are read again, because this is requested rarely, and answers must not depend on an
    // uncommitted plan.
    let mut fleet = Fleet::new(state);
    fleet.now = now;
    if spec.ask.sharing == Sharing::ExclusiveUser && !fleet.by_user {
        fleet.by_user = true;
        for (_, node) in state.nodes.iter().zip(0..) {
            fleet.sync(state, node);
        }
    }
    let default = default_partition(state);
    let completing = completing(state);
    fleet.settle(state, &PlannedEnds::default());
    let trial = Trial {
        state,
        fleet: &fleet,
        spec,
        completing,
        now,
        looked_at: Cell::new(0),
    };
    let mut refusal = Refusal::from(RefusalCode::InvalidPartition);
    let mut best: Option<TrialStart> = None;
    for name in partitions_of(spec, &default) {
        match trial.start_in(name) {
            Ok(found) if best.as_ref().is_none_or(|best| found.start < best.start) => {
                best = Some(found);
            }
            Ok(_) => {}
            Err(reason) => refusal = reason,
        }
    }
    let Some(best) = best else {
        return Err(refusal);
    };
    // For a later start the shares state amounts, not individual CPUs: those are chosen on an empty
    // node.
    if best.start > now {
        fleet.clear();
    }
    let latest = end_after(fleet.now, best.demand.length_ms);
    let alloc = allocate(
        &mut fleet,
        best.part,
        latest,
        &best.demand,
        &best.picks,
        |_, _, _| {},
    );
    Ok((best.start, alloc))
}

/// Where and when a job would start.
struct TrialStart {
    start: Timestamp,
    part: u32,
    demand: Demand,
    picks: Vec<Pick>,
}

/// One job, and the nodes on which it is tried.
struct Trial<'a> {
    state: &'a State,
    fleet: &'a Fleet,
    spec: &'a JobSpec,
    completing: BTreeSet<JobId>,
    now: Timestamp,
    /// Number of nodes looked at for later times, in all partitions.
    looked_at: Cell<u64>,
}

impl Trial<'_> {
    /// The job's earliest start in a partition.
    fn start_in(&self, name: &str) -> Result<TrialStart, Refusal> {
        let (fleet, spec) = (self.fleet, self.spec);
        let Some(&number) = fleet.part_by_name.get(name) else {
            return Err(Refusal::new(RefusalCode::InvalidPartition, name));
        };
        let part = &fleet.parts[number as usize];
        let limit = limit_in(spec, part);
        let demand = feasible(&spec.ask, limit, fleet, part, Some(spec.owner.uid))
            .map_err(|reason| refusal_for(reason, name, limit))?;
        let Some(licenses) = self.licenses_due(&demand) else {
            let text = "no running job's end sets its licenses free";
            return Err(Refusal::new(RefusalCode::InvalidLicense, text));
        };
        let holds = Holds::default();
        let placement = match licenses.from {
            Some(_) => Placement::Nowhere(Shortfall::ANYTHING),
            None => self.place_now(&demand, part, &holds),
        };
        let found = match placement {
            Placement::Here(picks) => Some(FoundStart {
                start: self.now,
                picks,
            }),
            other => {
                let left = JOINT_NODES_MAX.saturating_sub(self.looked_at.get());
                let times = StartTimes {
                    now: self.now,
                    from: licenses.from,
                    waited: (other == Placement::Scattered).then_some(self.now),
                    nodes_max: left.max(JOINT_NODES_MAX / 64),
                };
                let kept = KeptNodes {
                    holds: &holds,
                    ends: &BTreeSet::new(),
                };
                let outlook = Outlook::new(&demand, fleet, part, by_limits(self.now));
                let found = outlook.earliest(&demand, fleet.of_part(number), kept, times);
                let looked_at = self.looked_at.get() + outlook.take_looked_at();
                self.looked_at.set(looked_at);
                found
            }
        };
        let Some(FoundStart { start, picks }) = found else {
            let text = "no running job's end makes room for it";
            return Err(Refusal::new(RefusalCode::NodeConfigUnavailable, text));
        };
        Ok(TrialStart {
            start,
            part: number,
            demand,
            picks,
        })
    }

    /// The time at which the job can have its licenses, if any.
    fn licenses_due(&self, demand: &Demand) -> Option<LicensesDue> {
        let requested = asked(self.spec.licenses.as_deref());
        if requested.is_empty() {
            return Some(LicensesDue::default());
        }
        let span = Span {
            state: self.state,
            reservation: None,
            now: self.now,
            end: end_after(self.now, demand.length_ms),
        };
        Licenses::default().earliest(&requested, span, &self.completing)
    }

    fn place_now(&self, demand: &Demand, part: &PartView, holds: &Holds) -> Placement {
        let end = end_after(self.now, demand.length_ms);
        let mut source = CurrentNodes {
            fleet: self.fleet,
            part,
            holds,
            closed: &[],
            end,
            latest: end,
            narrowed: Cell::new(false),
            reserved: Cell::new(None),
            visited: Cell::new(0),
            tries: Cell::new(0),
            shared: false,
        };
        let switches = demand.switches.map(|limit| limit.most);
        choose_now(demand, &mut source, switches)
    }
}

fn refusal_for(reason: Reason, partition: &str, limit: TimeLimit) -> Refusal {
    match reason {
        Reason::PartitionDown | Reason::PartitionInactive => Refusal::new(
            RefusalCode::PartitionNotAvailable,
            format!("partition {partition} is down or inactive"),
        ),
        Reason::PartitionTimeLimit => Refusal::new(
            RefusalCode::InvalidTimeLimit,
            format!("{limit:?} is more than MaxTime of partition {partition}"),
        ),
        Reason::MaxMemPerLimit => Refusal::new(
            RefusalCode::InvalidMemory,
            format!("more memory than MaxMemPerNode or MaxMemPerCPU of partition {partition}"),
        ),
        Reason::PartitionNodeLimit => Refusal::new(
            RefusalCode::InvalidNodeCount,
            format!("outside MinNodes and MaxNodes of partition {partition}"),
        ),
        Reason::ReqNodeNotAvail | Reason::NodesUnavailable => Refusal::new(
            RefusalCode::NodeConfigUnavailable,
            format!("nodes of partition {partition} that could run it are down or drained"),
        ),
        _ => Refusal::new(
            RefusalCode::NodeConfigUnavailable,
            format!("no nodes of partition {partition} can satisfy it"),
        ),
    }
}
