//! Answers to reads, from a state. Large ones leave in parts, so that a client can begin and memory stays bounded.

use crate::keys::Keys;
use crate::writer::{addresses, cluster_name, now};
use muster_core::command::Identity;
use muster_core::config::ClusterConfig;
use muster_core::ids::JobId;
use muster_core::job::{ArrayRole, Job, JobState};
use muster_core::refusal::{Refusal, RefusalCode};
use muster_core::state::{ArrayInfo, State};
use muster_core::time::Timestamp;
use muster_proto::client::{
    AllocationInfo, ClusterPart, Diag, JobFilter, JobsPart, Pong, Response,
};
use std::collections::BTreeSet;

/// Records in one part of an answer.
const PART: usize = 200;

/// Records of the queue that match a filter.
pub(crate) fn jobs(state: &State, filter: &JobFilter, send: &mut impl FnMut(Response)) {
    let mut part = JobsPart {
        now: now(),
        ..JobsPart::default()
    };
    let mut arrays = BTreeSet::new();
    let mut add = |job: &Job, part: &mut JobsPart, send: &mut dyn FnMut(Response)| {
        if !matches(job, filter) {
            return;
        }
        let base = match job.array {
            ArrayRole::Task { base, .. } => Some(base),
            ArrayRole::Pending { .. } => Some(job.id),
            ArrayRole::None => None,
        };
        if let Some(base) = base
            && arrays.insert(base)
            && let Some(info) = state.arrays.get(&base)
        {
            part.arrays.push((base, info.without_tasks()));
        }
        part.jobs.push(job.clone());
        if part.jobs.len() == PART {
            let now = part.now;
            let full = std::mem::replace(
                part,
                JobsPart {
                    now,
                    ..JobsPart::default()
                },
            );
            send(Response::Jobs(Box::new(JobsPart { more: true, ..full })));
        }
    };
    if filter.ids.is_empty() {
        if filter.active {
            for id in state.pending.union(&state.active) {
                add(&state.jobs[id], &mut part, send);
            }
        } else {
            for job in state.jobs.values() {
                add(job, &mut part, send);
            }
        }
    } else {
        let mut ids = BTreeSet::new();
        for &id in &filter.ids {
            let before = ids.len();
            if let Some(info) = state.arrays.get(&id) {
                ids.extend(info.tasks.values().copied());
            }
            if state.jobs.contains_key(&id) {
                ids.insert(id);
            } else if ids.len() == before && !state.arrays.contains_key(&id) {
                part.unknown.push(id);
            }
        }
        for id in ids {
            if let Some(job) = state.jobs.get(&id) {
                add(job, &mut part, send);
            }
        }
    }
    send(Response::Jobs(Box::new(part)));
}

fn matches(job: &Job, filter: &JobFilter) -> bool {
    (filter.uids.is_empty() || filter.uids.contains(&job.spec.owner.uid))
        && (!filter.active || !job.state.is_ended() || job.completing)
        && (filter.states.is_empty() || filter.states.contains(&job.state))
        && (filter.partitions.is_empty()
            || filter.partitions.contains(&job.partition)
            || job
                .spec
                .partitions
                .iter()
                .any(|p| filter.partitions.contains(p)))
}

/// Partitions and settings, without nodes.
pub(crate) fn partitions(state: &State) -> Response {
    Response::Cluster(Box::new(head(state)))
}

fn head(state: &State) -> ClusterPart {
    let config = state.config.as_ref().map(|c| {
        Box::new(ClusterConfig {
            nodes: Vec::new(),
            partitions: Vec::new(),
            ..(**c).clone()
        })
    });
    ClusterPart {
        partitions: state.partitions.clone(),
        config,
        now: now(),
        ..ClusterPart::default()
    }
}

/// Nodes, partitions and settings.
pub(crate) fn cluster(state: &State, send: &mut impl FnMut(Response)) {
    let mut part = head(state);
    for node in state.nodes.iter().filter(|n| !n.removed) {
        if part.nodes.len() == PART {
            part.more = true;
            let next = ClusterPart {
                now: part.now,
                ..ClusterPart::default()
            };
            send(Response::Cluster(Box::new(std::mem::replace(
                &mut part, next,
            ))));
        }
        let completing = |id| state.jobs.get(id).is_some_and(|job: &Job| job.completing);
        if node.jobs.iter().any(completing) {
            part.completing.push(node.idx);
        }
        part.nodes.push(node.clone());
    }
    send(Response::Cluster(Box::new(part)));
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

/// Whether someone may see or touch what is private to a job.
pub(crate) fn may_access(state: &State, identity: &Identity, job: &Job) -> bool {
    identity.uid == job.spec.owner.uid || is_admin(state, identity.uid)
}

/// Root, `SlurmUser`, and the user that the controller runs as.
pub(crate) fn is_admin(state: &State, uid: u32) -> bool {
    uid == 0
        || state
            .config
            .as_ref()
            .is_some_and(|c| c.admin_uids.contains(&uid))
}

/// A job's batch script.
pub(crate) fn script(state: &State, identity: &Identity, id: JobId) -> Response {
    let Some(job) = state.jobs.get(&id) else {
        return Response::Refused(RefusalCode::InvalidJobId.into());
    };
    if !may_access(state, identity, job) {
        return Response::Refused(RefusalCode::AccessDenied.into());
    }
    match job.spec.script.and_then(|id| state.blobs.get(&id)) {
        Some(blob) => Response::Script((*blob.bytes).clone()),
        None => Response::Refused(Refusal::new(
            RefusalCode::InvalidJobId,
            format!("job {id} has no batch script"),
        )),
    }
}

/// An allocation, for its owner.
pub(crate) fn allocation(state: &State, keys: &Keys, identity: &Identity, id: JobId) -> Response {
    let Some(job) = state.jobs.get(&id) else {
        return Response::Refused(RefusalCode::InvalidJobId.into());
    };
    if !may_access(state, identity, job) {
        return Response::Refused(RefusalCode::AccessDenied.into());
    }
    if job.state.is_ended() {
        return Response::Refused(RefusalCode::AlreadyDone.into());
    }
    match started(state, keys, job) {
        Some(response) => response,
        None => Response::Refused(RefusalCode::JobPending.into()),
    }
}

/// What a client is told of a job that has its allocation.
pub(crate) fn started(state: &State, keys: &Keys, job: &Job) -> Option<Response> {
    let alloc = job.alloc.as_ref()?;
    if !matches!(job.state, JobState::Running | JobState::Suspended) {
        return None;
    }
    let array = match job.array {
        ArrayRole::Task { base, .. } => state.arrays.get(&base).map(ArrayInfo::without_tasks),
        ArrayRole::None | ArrayRole::Pending { .. } => None,
    };
    Some(Response::JobStarted(Box::new(AllocationInfo {
        addresses: addresses(state, alloc),
        key: keys.job_key(job.id, job.attempt).into(),
        cluster: cluster_name(state),
        array,
        job: job.clone(),
    })))
}

/// What sdiag shows of the queue.
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
