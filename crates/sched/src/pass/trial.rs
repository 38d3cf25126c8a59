//! `--test-only` of heterogeneous jobs, `--immediate`: whether a job starts now, or when and where its components would, without
//! queueing it.

use crate::backfill::together::{JointTerms, Member, MemberLane, earliest_together};
use crate::demand::licenses::{Licenses, LicensesDue, Span, asked};
use crate::demand::{Demand, PartitionTerms};
use crate::nodes::allocations::{EndAssumption, Ends};
use crate::nodes::fleet::{Fleet, PartView};
use crate::nodes::planned::PlannedEnds;
use crate::nodes::sharing_key::sharing_key;
use crate::pass::starts::allocate;
use crate::place::Placement;
use crate::place::holds::Holds;
use crate::place::node_source::{CurrentNodes, choose_now, end_after};
use crate::queue::{feasible, partitions_of};
use muster_core::decide::exemptions;
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

/// Cost of a component in a partition, in nodes, however few nodes that has.
const LEAST_AS_NODES: u64 = 64;

/// Jobs are assumed to end at their limits.
fn by_limits(now: Timestamp) -> EndAssumption {
    EndAssumption {
        endless: Some(now.plus_s(ENDLESS_S)),
        ..Ends::Limits.into()
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

/// Whether components ask for the same in the same partitions.
fn is_equal_request(a: &JobSpec, b: &JobSpec) -> bool {
    a.time_limit == b.time_limit
        && a.owner.uid == b.owner.uid
        && a.partitions == b.partitions
        && a.ask == b.ask
}

/// Goal of a trial of the components of a heterogeneous job.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum TrialGoal {
    /// The earliest time.
    When,
    /// Whether it is now: later times do not matter.
    Now,
}

fn too_costly() -> Refusal {
    let text = "the components ask for too many different things to find out when they fit";
    Refusal::new(RefusalCode::TooLong, text)
}

/// When and where all components of a heterogeneous job would start. Nodes that are looked at are bounded.
pub(crate) fn would_start_together(
    state: &State,
    specs: &[JobSpec],
    now: Timestamp,
    question: TrialGoal,
    nodes_max: u64,
) -> Result<(Timestamp, Vec<Allocation>), Refusal> {
    let mut fleet = Fleet::new(state);
    fleet.now = now;
    fleet.settle(state, &PlannedEnds::default());
    let default = default_partition(state);
    let mut demands: Vec<Vec<(u32, Demand)>> = Vec::with_capacity(specs.len());
    let mut looked_at = 0;
    for (number, spec) in specs.iter().enumerate() {
        let before = number.checked_sub(1).map(|before| &specs[before]);
        if before.is_some_and(|before| is_equal_request(before, spec))
            && let Some(known) = demands.last()
        {
            let known = known.clone();
            demands.push(known);
            continue;
        }
        let mut lanes = Vec::new();
        let mut refusal = Refusal::from(RefusalCode::InvalidPartition);
        for name in partitions_of(spec, &default) {
            let Some(&number) = fleet.part_by_name.get(name) else {
                continue;
            };
            // If all partitions of a component are too many, its later partitions are left out.
            if looked_at >= nodes_max {
                if lanes.is_empty() {
                    return Err(too_costly());
                }
                break;
            }
            let part = &fleet.parts[number as usize];
            looked_at += LEAST_AS_NODES + part.order.len() as u64;
            let limit = limit_in(spec, part);
            let key = sharing_key(&fleet, state, spec);
            let exempt = exemptions(state, spec, name);
            let terms = PartitionTerms { limit, exempt };
            match feasible(&spec.ask, terms, &fleet, part, key) {
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
        assumed: match question {
            TrialGoal::When => by_limits(now),
            TrialGoal::Now => Ends::Ignored.into(),
        },
        now,
        nodes_max,
        prepared_max: nodes_max,
    };
    let (found, cost) = earliest_together(&members, &fleet, &mut holds, terms);
    let Some((at, places)) = found else {
        // Nothing was searched, or partitions may have been left out.
        let enough = match question {
            TrialGoal::When => nodes_max,
            TrialGoal::Now => nodes_max / 2,
        };
        if cost.placements == 0 || looked_at.max(cost.nodes) >= enough {
            return Err(too_costly());
        }
        if question == TrialGoal::Now {
            return Err(RefusalCode::NotImmediate.into());
        }
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

/// Whether a job would start now. Later times do not matter for that, and are not searched for: the controller waits for the answer.
///
/// # Errors
/// The reason why it would not.
pub(crate) fn starts_now(
    state: &State,
    spec: &JobSpec,
    now: Timestamp,
    nodes_max: u64,
) -> Result<(), Refusal> {
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
    for name in partitions_of(spec, &default) {
        if trial.looked_at.get() >= nodes_max {
            let text = "the job names too many partitions to find out whether it starts now";
            return Err(Refusal::new(RefusalCode::TooLong, text));
        }
        match trial.start_in(name) {
            Ok(()) => return Ok(()),
            // It could start later in a partition.
            Err(_) if refusal.code == RefusalCode::NotImmediate => {}
            Err(reason) => refusal = reason,
        }
    }
    Err(refusal)
}

/// One job, and the nodes on which it is tried.
struct Trial<'a> {
    state: &'a State,
    fleet: &'a Fleet,
    spec: &'a JobSpec,
    completing: BTreeSet<JobId>,
    now: Timestamp,
    /// Number of nodes looked at, and of tries to place devices at sockets.
    looked_at: Cell<u64>,
}

impl Trial<'_> {
    /// Whether the job starts now in a partition.
    fn start_in(&self, name: &str) -> Result<(), Refusal> {
        let (fleet, spec) = (self.fleet, self.spec);
        let Some(&number) = fleet.part_by_name.get(name) else {
            return Err(Refusal::new(RefusalCode::InvalidPartition, name));
        };
        let part = &fleet.parts[number as usize];
        self.count(LEAST_AS_NODES + part.order.len() as u64);
        let limit = limit_in(spec, part);
        let key = sharing_key(fleet, self.state, spec);
        let exempt = exemptions(self.state, spec, name);
        let terms = PartitionTerms { limit, exempt };
        let demand = feasible(&spec.ask, terms, fleet, part, key)
            .map_err(|reason| refusal_for(reason, name, limit))?;
        let Some(licenses) = self.licenses_due(&demand) else {
            let text = "no running job's end sets its licenses free";
            return Err(Refusal::new(RefusalCode::InvalidLicense, text));
        };
        let holds = Holds::default();
        let starts = licenses.from.is_none()
            && matches!(self.place_now(&demand, part, &holds), Placement::Here(_));
        match starts {
            true => Ok(()),
            false => Err(RefusalCode::NotImmediate.into()),
        }
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
        let placement = choose_now(demand, &mut source, switches);
        self.count(source.visited.get() + source.tries.get());
        placement
    }

    fn count(&self, nodes: u64) {
        self.looked_at.set(self.looked_at.get() + nodes);
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
