//! Answers to reads, from a state. Large ones leave in parts, so that a client can begin and memory stays bounded.

mod counts;
mod jobs;
mod rows;

use crate::clock::now;
use crate::keys::Keys;
use crate::outbox::OutboxError;
use crate::writer::{addresses, cluster_name, components};
use muster_core::event::{Event, NodeChange};
use muster_core::policy::access;
use muster_core::policy::access::privacy::{self, JobScope, hides, sees_reservation, shows_node};
use muster_core::state::{Priorities, State};
use muster_model::command::Identity;
use muster_model::config::ClusterConfig;
use muster_model::cpuset::CpuSet;
use muster_model::ids::JobId;
use muster_model::job::{ArrayInfo, ArrayRole, Job, JobState};
use muster_model::private_data::PrivateData;
use muster_model::refusal::{Refusal, RefusalCode};
use muster_model::reservation::Reservation;
use muster_model::rights::{self, AccessRequest};
use muster_model::spec::JobKind;
use muster_model::time::Timestamp;
use muster_model::trigger::Trigger;
use muster_proto::client::{
    AccountsAnswer, AllocationInfo, ClusterPage, Diag, JobPriority, NodeInReservation, Pong,
    PrioritiesAnswer, Query, ReservationsAnswer, Response,
};
use std::collections::HashSet;

pub(crate) use jobs::{KnownStarts, jobs};
pub(crate) use rows::Rows;

/// Nodes in one part of an answer.
const PART: usize = 200;
/// Priorities in one part of an answer: some hundred kilobytes.
const PRIORITIES_PART: usize = 2000;

/// Partitions and settings as listings of jobs need them, made once until one of them changes: with the first of the
/// nodes of each partition, whatever their number.
#[derive(Default)]
pub(crate) struct ListingHead {
    made: Option<Response>,
    /// The head for users who may not see partitions.
    bare: Option<Response>,
}

impl ListingHead {
    /// Something has happened.
    pub(crate) fn on_event(&mut self, event: &Event) {
        if matches!(
            event,
            Event::Configured { .. }
                | Event::PartitionChanged { .. }
                | Event::PartitionRemoved { .. }
                | Event::NodesCreated { .. }
                | Event::NodesDeleted { .. }
                | Event::NodeChanged {
                    change: NodeChange::Features(_),
                    ..
                }
        ) {
            (self.made, self.bare) = (None, None);
        }
    }

    /// The answer; with partitions, or for those who may not see any.
    pub(crate) fn answer(&mut self, state: &State, partitions: bool) -> &Response {
        let made = match partitions {
            true => &mut self.made,
            false => &mut self.bare,
        };
        let made = made.get_or_insert_with(|| {
            let mut part = head(state, partitions);
            for partition in &mut part.partitions {
                partition.nodes.truncate(1);
            }
            Response::Cluster(Box::new(part))
        });
        if let Response::Cluster(part) = made {
            part.now = now();
        }
        made
    }
}

/// Settings and partitions. Partitions that may not be seen are withheld.
fn head(state: &State, partitions: bool) -> ClusterPage {
    let config = state.config.as_ref().map(|c| {
        Box::new(ClusterConfig {
            nodes: Vec::new(),
            partitions: Vec::new(),
            ..(**c).clone()
        })
    });
    ClusterPage {
        partitions: match partitions {
            true => state.partitions.clone(),
            false => Vec::new(),
        },
        withheld: match partitions {
            true => PrivateData::default(),
            false => PrivateData::PARTITIONS,
        },
        largest_node_cpus: match partitions {
            true => largest_nodes(state),
            false => Vec::new(),
        },
        config,
        now: now(),
        ..ClusterPage::default()
    }
}

/// CPUs of the largest node of each partition.
fn largest_nodes(state: &State) -> Vec<u32> {
    let mut largest = vec![0; state.partitions.len()];
    let nodes = state.nodes.iter().zip(&state.partitions_of);
    for (node, partitions) in nodes.filter(|(node, _)| !node.removed) {
        for partition in partitions {
            if let Some(cpus) = largest.get_mut(*partition) {
                *cpus = node.config.cpus.max(*cpus);
            }
        }
    }
    largest
}

/// Nodes, partitions and settings, without those that are private.
///
/// # Errors
/// The client has disconnected; the rest was not encoded.
pub(crate) fn cluster(
    state: &State,
    identity: &Identity,
    send: &mut impl FnMut(Response) -> Result<(), OutboxError>,
) -> Result<(), OutboxError> {
    let mut part = head(state, !hides(state, identity, PrivateData::PARTITIONS));
    if hides(state, identity, PrivateData::NODES) {
        part.withheld = part.withheld.with(PrivateData::NODES);
        return send(Response::Cluster(Box::new(part)));
    }
    let scope = JobScope::of(state, identity);
    let nodes = state.nodes.iter().filter(|n| !n.removed);
    for node in nodes.filter(|node| shows_node(state, node)) {
        if part.nodes.len() == PART {
            part.more = true;
            let next = ClusterPage {
                now: part.now,
                ..ClusterPage::default()
            };
            let full = std::mem::replace(&mut part, next);
            send(Response::Cluster(Box::new(full)))?;
        }
        let completing = |id| state.jobs.get(id).is_some_and(|job: &Job| job.completing);
        if node.jobs.iter().any(completing) {
            part.completing.push(node.idx);
        }
        if let Some(maintenance) = state.reservations.holds_now(node.idx) {
            part.reserved.push(NodeInReservation {
                node: node.idx,
                maintenance,
            });
        }
        part.nodes.push(node.clone());
        if let Some(node) = part.nodes.last_mut() {
            scope.redact_node(state, node);
        }
    }
    send(Response::Cluster(Box::new(part)))
}

/// Accounts and shares, as far as the user may see them; with those of other clusters, or what counts towards limits,
/// where that is asked for.
pub(crate) fn accounts(state: &State, identity: &Identity, asked: &Query) -> Response {
    let settings = state
        .config
        .as_ref()
        .and_then(|c| c.order.multifactor.as_ref());
    let mut all = state.accounts_at(now());
    if matches!(asked, Query::AccountsOfClusters) {
        all.clusters.clone_from(&state.accounts.clusters);
    }
    let uses = match asked {
        Query::AccountsInUse => privacy::uses(
            state,
            identity,
            muster_core::policy::limits::uses(state, now()),
        ),
        _ => Vec::new(),
    };
    Response::Accounts(Box::new(AccountsAnswer {
        accounts: privacy::accounts(state, identity, all),
        cluster: cluster_name(state),
        fair_tree: settings.map(|s| s.fair_tree),
        users_withheld: hides(state, identity, PrivateData::USERS),
        uses,
    }))
}

/// The factors of pending jobs' priorities, for jobs that the user may see. Nothing follows what nobody takes.
pub(crate) fn priorities(
    state: &State,
    identity: &Identity,
    send: &mut impl FnMut(Response) -> Result<(), OutboxError>,
) {
    let Some(mut priorities) = Priorities::new(state) else {
        return drop(send(Response::Priorities(Box::default())));
    };
    let scale = priorities.scale();
    let mut answer = PrioritiesAnswer {
        settings: Some(scale.settings().clone()),
        ..PrioritiesAnswer::default()
    };
    let scope = JobScope::of(state, identity);
    let pending = state.pending.iter().filter_map(|id| state.jobs.get(id));
    let pending = pending.filter(|job| scope.has(job));
    // Jobs that could start, as sprio lists them.
    for job in pending.filter(|job| job.priority > 0 && job.eligible_time.is_some()) {
        // Jobs of an older journal may name one more than once.
        let mut seen = HashSet::new();
        let names = job.spec.partitions.iter().map(String::as_str);
        let names = names.filter(|name| seen.insert(*name));
        let set = job.priority_fixed.then_some(job.priority);
        let mut full = Vec::new();
        priorities.factors(job, names, |partition, factors| {
            if answer.jobs.len() == PRIORITIES_PART {
                answer.more = true;
                full.push(std::mem::take(&mut answer));
            }
            answer.jobs.push(JobPriority {
                job: job.id,
                array: job.array.task(),
                partition: partition.name.clone(),
                uid: job.spec.owner.uid,
                user: job.spec.owner.user.clone(),
                priority: set.unwrap_or_else(|| scale.kept(job, factors.priority())),
                factors: factors.clone(),
            });
        });
        for part in full {
            if send(Response::Priorities(Box::new(part))).is_err() {
                return;
            }
        }
    }
    drop(send(Response::Priorities(Box::new(answer))));
}

/// Reservations that the user may see.
pub(crate) fn reservations(state: &State, identity: &Identity) -> Response {
    let all = state.reservations.iter();
    let mut all: Vec<&Reservation> = all
        .filter(|r| sees_reservation(state, identity, r))
        .collect();
    all.sort_by_key(|r| r.start);
    let mut answer = ReservationsAnswer {
        now: now(),
        ..ReservationsAnswer::default()
    };
    for reservation in all {
        let (mut cpus, mut cores) = (0, 0);
        for entry in &reservation.nodes {
            let Some(config) = state.node(entry.node).map(|n| &n.config) else {
                continue;
            };
            let of_node = config.sockets.max(1) * config.cores_per_socket.max(1);
            let threads = u64::from((config.cpus / of_node).max(1));
            let has = u64::from(entry.cpus.as_ref().map_or(config.cpus, CpuSet::len));
            cpus += has;
            cores += has / threads;
        }
        let mut reservation = reservation.clone();
        let shown = reservation.occurrences(answer.now).next();
        if let Some((start, _)) = shown {
            reservation.start = start;
        }
        answer.reservations.push(reservation);
        answer.cpus.push(cpus);
        answer.cores.push(cores);
    }
    Response::Reservations(Box::new(answer))
}

/// The controller, alive.
pub(crate) fn pong(state: &State, started: Timestamp) -> Pong {
    Pong {
        hostname: hostname(),
        pid: std::process::id(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        cluster: cluster_name(state),
        started,
    }
}

/// This host's name.
pub(crate) fn hostname() -> String {
    nix::unistd::gethostname()
        .ok()
        .and_then(|n| n.into_string().ok())
        .unwrap_or_default()
}

/// The job, if the user may have its private parts.
fn private_to<'s>(
    state: &'s State,
    identity: &Identity,
    request: AccessRequest,
    id: JobId,
) -> Result<&'s Job, Refusal> {
    let job = state.jobs.get(&id);
    let seen = job.filter(|job| JobScope::of(state, identity).has(job));
    let job = seen.ok_or(RefusalCode::InvalidJobId)?;
    match access::may_job(state, identity, request, job) {
        true => Ok(job),
        false => Err(rights::denied(request)),
    }
}

/// A job's batch script.
pub(crate) fn script(state: &State, identity: &Identity, id: JobId) -> Response {
    let job = match private_to(state, identity, AccessRequest::Script, id) {
        Ok(job) => job,
        Err(refusal) => return Response::Refused(refusal),
    };
    match job.spec.script.and_then(|id| state.blobs.get(&id)) {
        Some(blob) => Response::Script((*blob.bytes).clone()),
        None => Response::Refused(Refusal::new(
            RefusalCode::InvalidJobId,
            format!("job {id} has no batch script"),
        )),
    }
}

/// The environment that a job was submitted with.
pub(crate) fn environment(state: &State, identity: &Identity, id: JobId) -> Response {
    let job = match private_to(state, identity, AccessRequest::Environment, id) {
        Ok(job) => job,
        Err(refusal) => return Response::Refused(refusal),
    };
    match job.spec.context.and_then(|id| state.blobs.get(&id)) {
        Some(blob) => Response::Environment((*blob.bytes).clone()),
        None => Response::Refused(Refusal::new(
            RefusalCode::InvalidJobId,
            format!("job {id} has no environment"),
        )),
    }
}

/// Triggers: those of jobs that the user may see, and those of nodes where nodes may be seen. One's own always.
pub(crate) fn triggers(state: &State, identity: &Identity) -> Response {
    let scope = JobScope::of(state, identity);
    let hides_nodes = hides(state, identity, PrivateData::NODES);
    let is_shown = |trigger: &&Trigger| {
        trigger.uid == identity.uid
            || match trigger.job {
                Some(job) => scope.shows(state, job),
                None => !hides_nodes || trigger.resource() != "node",
            }
    };
    let all = state.triggers.all().values().filter(is_shown);
    Response::Triggers(all.cloned().collect())
}

/// A crontab, for its user and operators.
pub(crate) fn crontab(state: &State, identity: &Identity, uid: Option<u32>) -> Response {
    let enabled = state
        .config
        .as_ref()
        .is_some_and(|config| config.crontabs.enabled);
    if !enabled {
        return Response::Refused(RefusalCode::CrontabsDisabled.into());
    }
    let uid = uid.unwrap_or(identity.uid);
    if uid != identity.uid && !access::may(state, identity, AccessRequest::CrontabOfOther) {
        return Response::Refused(rights::denied(AccessRequest::CrontabOfOther));
    }
    let crontab = state.crontabs.get(&uid);
    Response::Crontab(crontab.map(|crontab| crontab.text.clone()))
}

/// An allocation, for its owner.
pub(crate) fn allocation(state: &State, keys: &Keys, identity: &Identity, id: JobId) -> Response {
    let job = match private_to(state, identity, AccessRequest::Allocation, id) {
        Ok(job) => job,
        Err(refusal) => return Response::Refused(refusal),
    };
    if job.state.is_ended() {
        return Response::Refused(RefusalCode::AlreadyDone.into());
    }
    match started(state, keys, job) {
        Some(response) => response,
        None => Response::Refused(RefusalCode::JobPending.into()),
    }
}

/// Whether a user who may hold an allocation holds another user's by that. It ends with its holder, in the controller's name:
/// that is for no batch job.
///
/// # Errors
/// There is no such job, it is no allocation, it has ended, or the user may not have the key to it.
pub(crate) fn may_hold(state: &State, identity: &Identity, id: JobId) -> Result<bool, Refusal> {
    let job = private_to(state, identity, AccessRequest::HoldAllocation, id)?;
    if job.spec.kind != JobKind::Allocation {
        let detail =
            format!("job {id} is a batch job: it ends with its script, and nobody holds it");
        return Err(Refusal::new(RefusalCode::JobNotRunning, detail));
    }
    match job.state.is_ended() {
        true => Err(RefusalCode::AlreadyDone.into()),
        false => Ok(job.spec.owner.uid != identity.uid),
    }
}

/// A job that has its allocation, as a client gets it.
pub(crate) fn started(state: &State, keys: &Keys, job: &Job) -> Option<Response> {
    let alloc = job.alloc.as_ref()?;
    if state.is_configuring(job) || !matches!(job.state, JobState::Running | JobState::Suspended) {
        return None;
    }
    let array = match job.array {
        ArrayRole::Task { base, .. } => state.arrays.get(&base).map(ArrayInfo::without_tasks),
        ArrayRole::None | ArrayRole::Pending { .. } => None,
    };
    Some(Response::JobStarted(Box::new(AllocationInfo {
        addresses: addresses(state, alloc),
        key: keys.owner_key(job.id, job.attempt).into(),
        cluster: cluster_name(state),
        array,
        components: components(state, job),
        job: job.clone(),
    })))
}

/// Counts of the queue for sdiag.
pub(crate) fn diag(state: &State, started: Timestamp) -> Diag {
    let count = |wanted| {
        state
            .active
            .iter()
            .filter(|id| state.jobs.get(id).is_some_and(|j| j.state == wanted))
            .count()
    };
    Diag {
        now: now(),
        since: started,
        pending: state.pending.len() as u64,
        running: count(JobState::Running) as u64,
        queue: state.jobs.len() as u64,
        ..Diag::default()
    }
}

#[cfg(test)]
mod tests;
