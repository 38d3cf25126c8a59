//! The key of a shape: jobs with equal keys are equal to placement and to the order.

use super::partitions_of;
use crate::demand::PartitionTerms;
use crate::nodes::fleet::Fleet;
use crate::nodes::reserved::places_of;
use crate::nodes::room::SharingKey;
use crate::nodes::sharing_key::sharing_key;
use crate::order::{OrderClass, QueueOrder};
use muster_core::decide::{barred, exemptions, restricts};
use muster_core::policy::limits::checks_starts;
use muster_core::state::State;
use muster_model::accounts::PartitionExemptions;
use muster_model::het::HetPlace;
use muster_model::job::{Job, Reason};
use muster_model::limits::JOB_PLACES_MAX;
use muster_model::preemption::PreemptType;
use muster_model::spec::{JobSpec, ResourceAsk};
use muster_model::time::TimeLimit;
use std::collections::{BTreeMap, BTreeSet};

/// Maximum number of lanes of shapes for jobs of one user; above it each further shape has one
/// lane. Bounds the memory to a tenth of a gigabyte.
const LANES_OF_USER_MAX: usize = 100_000;

/// The key of a shape.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Kind {
    pub(super) ask: ResourceAsk,
    pub(super) partitions: Vec<String>,
    pub(super) limit: TimeLimit,
    /// Assumed run time of its jobs in seconds, for planning.
    pub(super) predicted_s: Option<u32>,
    /// Reservations in which its jobs may run.
    pub(super) reservations: Vec<String>,
    /// Its jobs may run outside of reservations.
    pub(super) outside: bool,
    /// Their class in the order of the queue.
    pub(super) line: OrderClass,
    /// The minimum time limit that they accept.
    pub(super) time_min: Option<TimeLimit>,
    /// A component of a heterogeneous job equals no other job.
    pub(super) het: Option<HetPlace>,
    /// Licenses that they request.
    pub(super) licenses: Option<String>,
    /// The holder of the limits that they count towards, if limits are enforced.
    pub(super) counts_for: Option<LimitHolder>,
    /// Their owner and label, if they matter.
    pub(super) key: SharingKey,
    /// The QOS, if it decides which jobs they may preempt.
    pub(super) qos: Option<String>,
    /// Partitions in which they may not start, and why.
    pub(super) barred: BTreeMap<String, Reason>,
    /// Partitions of which some limits do not hold for them.
    pub(super) exempt: BTreeMap<String, PartitionExemptions>,
    /// Their owner, if the owner has enough lanes that these jobs are tried in only one of their
    /// partitions.
    pub(super) crowded: Option<u32>,
}

/// The entities whose limits a job counts towards.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct LimitHolder {
    account: String,
    user: String,
    qos: String,
}

impl Kind {
    /// The kind of a job.
    pub(crate) fn of(state: &State, order: &QueueOrder, job: &Job, fleet: &Fleet) -> Kind {
        // Each new field must be named here: does it matter to where or when a job may run?
        let JobSpec {
            ask,
            owner,
            time_min,
            licenses,
            reservation,
            // Covered by `partitions_of`.
            partitions: _,
            // The job's own values: the limit may be changed, and the run time is predicted.
            time_limit: _,
            // Covered by the state, because defaults depend on the partition; and by `barred`.
            account: _,
            qos: _,
            // Covered by `QueueOrder::line`.
            priority: _,
            nice: _,
            nice_of_top: _,
            site_factor: _,
            // A job is queued only when nothing but missing room delays it.
            begin: _,
            hold: _,
            dependency: _,
            array: _,
            // Handled by other parts: submission, commit, nodes, ends, listings.
            name: _,
            kind: _,
            script: _,
            context: _,
            argv: _,
            command: _,
            work_dir: _,
            stdio: _,
            submit_line: _,
            submit_host: _,
            submit_sid: _,
            deadline: _,
            requeue: _,
            expedite: _,
            warn_signal: _,
            comment: _,
            wckey: _,
            kill_on_invalid_dep: _,
            no_kill: _,
            immediate_s: _,
            mail: _,
            export: _,
            // Covered by `sharing_key`, as far as it is a label.
            shown: _,
            wait_all_nodes: _,
            interactive: _,
            cron: _,
            class: _,
        } = &*job.spec;
        let (reservations, outside) = if state.reservations.is_empty() {
            (Vec::new(), reservation.is_none())
        } else {
            places_of(state, job)
        };
        let fallback = [job.partition.clone()];
        let partitions = partitions_of(&job.spec, &fallback);
        let barred = partitions.iter().filter_map(|name| {
            let part = fleet.part_by_name.get(name)?;
            let config = &fleet.parts[*part as usize].config;
            if !(fleet.qos_restrict || restricts(config)) {
                return None;
            }
            barred(state, &job.spec, config).map(|reason| (name.clone(), reason))
        });
        let exempt = partitions.iter().filter_map(|name| {
            let exempt = exemptions(state, &job.spec, name);
            (exempt != PartitionExemptions::default()).then(|| (name.clone(), exempt))
        });
        Kind {
            exempt: exempt.collect(),
            ask: ask.clone(),
            partitions: partitions.to_vec(),
            barred: barred.collect(),
            limit: job.time_limit,
            predicted_s: job.predicted_s,
            reservations,
            outside,
            line: order.line(state, job),
            time_min: *time_min,
            het: job.het,
            licenses: licenses.clone(),
            counts_for: checks_starts(state).then(|| {
                let (account, user) = (job.spec.account_name(), &owner.user);
                LimitHolder {
                    account: account.to_owned(),
                    user: user.clone(),
                    qos: state.qos_of(job).to_owned(),
                }
            }),
            key: sharing_key(fleet, state, &job.spec),
            qos: (state
                .preemption()
                .is_some_and(|p| p.kind == PreemptType::Qos))
            .then(|| state.qos_of(job).to_owned()),
            crowded: None,
        }
    }

    /// The terms that hold for them in a partition.
    pub(super) fn terms_in(&self, partition: &str) -> PartitionTerms {
        PartitionTerms {
            limit: self.limit,
            exempt: self.exempt.get(partition).copied().unwrap_or_default(),
        }
    }

    /// The kind of a job whose owner already has that many lanes.
    pub(super) fn crowded_by(self, lanes: usize, owner: u32) -> Kind {
        Kind {
            crowded: (lanes >= LANES_OF_USER_MAX).then_some(owner),
            ..self
        }
    }

    /// Whether a job of this kind stays in a shape, which may have more lanes than a new one would
    /// get.
    pub(super) fn stays(mut self, known: &Kind) -> bool {
        self.crowded = self.crowded.and(known.crowded);
        self == *known
    }

    /// Partitions in which they may run, those of reservations first, each once. Jobs from an older
    /// journal, and jobs that reservations attract, wait in no more partitions than a submission
    /// may name.
    pub(super) fn parts(&self, fleet: &Fleet) -> Vec<u32> {
        let mut seen = BTreeSet::new();
        let names: Vec<&String> = (self.partitions.iter())
            .filter(|name| seen.insert(name.as_str()))
            .collect();
        let outside: Vec<u32> = (names.iter())
            .filter(|_| self.outside)
            .filter_map(|name| fleet.part_by_name.get(*name).copied())
            .collect();
        let inside = self.reservations.iter().flat_map(|reservation| {
            let names = names.iter();
            names.filter_map(|name| {
                let key = (reservation.clone(), (*name).clone());
                fleet.part_in.get(&key).copied()
            })
        });
        let inside = inside.take(JOB_PLACES_MAX.saturating_sub(outside.len()));
        inside
            .collect::<Vec<u32>>()
            .into_iter()
            .chain(outside)
            .collect()
    }
}
