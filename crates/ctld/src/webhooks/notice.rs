//! Notice of an event, as JSON.

use crate::changes::{job_change, state_of};
use muster_core::event::Event;
use muster_core::state::State;
use muster_journal::Position;
use muster_model::ids::NodeIdx;
use muster_model::job::{ArrayRole, Job};
use muster_model::node::Node;
use muster_model::time::Timestamp;
use muster_proto::changes::JobChangeKind;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::Arc;

/// Characters of a text that users write.
const TEXT_CHARS_MAX: usize = 256;

/// Event and subject of a notice.
pub(super) struct WebhookNotice<'s> {
    /// `job_started`, `node_down`.
    pub(super) event: &'static str,
    at: Timestamp,
    subject: NoticeSubject<'s>,
}

enum NoticeSubject<'s> {
    Job(&'s Job),
    Node { node: &'s Node, state: String },
}

/// How a node is, as far as notices tell it apart.
#[derive(Clone, Copy, PartialEq, Eq)]
enum NoticedNodeState {
    Up,
    Drain,
    Down,
}

/// How each node was at the last look; one that is not there was up.
#[derive(Default)]
pub(super) struct NoticedNodeStates(HashMap<NodeIdx, NoticedNodeState>);

impl NoticedNodeStates {
    pub(super) fn of(state: &State) -> NoticedNodeStates {
        let nodes = state.nodes.iter().filter(|node| !node.removed);
        NoticedNodeStates(
            nodes
                .map(|node| (node.idx, noticed(&state_of(state, node))))
                .collect(),
        )
    }
}

fn noticed(state: &str) -> NoticedNodeState {
    // `*`: it does not answer. A node in power saving is silent by intention.
    match state {
        _ if state.starts_with("DOWN") || state.contains('*') => NoticedNodeState::Down,
        _ if state.contains("DRAIN") || state.contains("FAIL") => NoticedNodeState::Drain,
        _ => NoticedNodeState::Up,
    }
}

/// The notice that an event is worth, which was applied to `state`.
pub(super) fn of<'s>(
    state: &'s State,
    nodes: &mut NoticedNodeStates,
    event: &Event,
) -> Option<WebhookNotice<'s>> {
    if let Some((id, kind, at)) = job_change(state, event) {
        return Some(WebhookNotice {
            event: job_event(kind)?,
            at,
            subject: NoticeSubject::Job(state.jobs.get(&id)?),
        });
    }
    let (idx, at) = match event {
        Event::NodeRegistered { node, at, .. } | Event::NodeChanged { node, at, .. } => {
            (*node, *at)
        }
        _ => return None,
    };
    let node = state.node(idx).filter(|node| !node.removed)?;
    let text = state_of(state, node);
    let now = noticed(&text);
    let before = nodes.0.insert(idx, now).unwrap_or(NoticedNodeState::Up);
    let event = match now {
        _ if now == before => return None,
        NoticedNodeState::Up => "node_up",
        NoticedNodeState::Drain => "node_drain",
        NoticedNodeState::Down => "node_down",
    };
    let subject = NoticeSubject::Node { node, state: text };
    Some(WebhookNotice { event, at, subject })
}

fn job_event(kind: JobChangeKind) -> Option<&'static str> {
    Some(match kind {
        JobChangeKind::Submitted => "job_submitted",
        JobChangeKind::Updated => "job_updated",
        JobChangeKind::Started => "job_started",
        JobChangeKind::Ending => "job_ending",
        JobChangeKind::Ended => "job_ended",
        JobChangeKind::Requeued => "job_requeued",
        JobChangeKind::Suspended => "job_suspended",
        JobChangeKind::Resumed => "job_resumed",
        JobChangeKind::Purged => return None,
    })
}

impl WebhookNotice<'_> {
    /// The job.
    pub(super) fn job(&self) -> Option<&Job> {
        match &self.subject {
            NoticeSubject::Job(job) => Some(job),
            NoticeSubject::Node { .. } => None,
        }
    }

    /// The job's partition.
    pub(super) fn partition(&self) -> Option<&str> {
        match &self.subject {
            NoticeSubject::Job(job) => Some(&job.partition),
            NoticeSubject::Node { .. } => None,
        }
    }

    /// The job's owner.
    pub(super) fn user(&self) -> Option<&str> {
        match &self.subject {
            NoticeSubject::Job(job) => Some(&job.spec.owner.user),
            NoticeSubject::Node { .. } => None,
        }
    }

    /// It as one line.
    pub(super) fn line(&self, position: Position, cluster: &str) -> Arc<str> {
        let mut notice = json!({
            "id": position.to_string(),
            "event": self.event,
            "time": self.at.unix_s(),
            "cluster": cluster,
        });
        let (key, value) = match &self.subject {
            NoticeSubject::Job(job) => ("job", of_job(job)),
            NoticeSubject::Node { node, state } => ("node", of_node(node, state)),
        };
        notice[key] = value;
        notice.to_string().into()
    }
}

fn cut(text: &str) -> String {
    text.chars().take(TEXT_CHARS_MAX).collect()
}

fn of_job(job: &Job) -> Value {
    let (array, task) = match &job.array {
        ArrayRole::None => (None, None),
        ArrayRole::Pending { .. } => (Some(job.id.0), None),
        ArrayRole::Task { base, index } => (Some(base.0), Some(*index)),
    };
    let time = |at: Option<Timestamp>| at.map(|at| at.unix_s());
    let nodes = job.alloc.as_ref().map(|alloc| alloc.hostlist.as_str());
    json!({
        "job_id": job.id.0,
        "array_job_id": array,
        "array_task_id": task,
        "name": cut(&job.spec.name),
        "user": cut(&job.spec.owner.user),
        "account": cut(job.spec.account_name()),
        "partition": cut(&job.partition),
        "state": job.state.name(),
        "reason": job.reason.name(),
        "exit_code": {"return_code": job.exit.code, "signal": job.exit.signal},
        "submit_time": job.submit_time.unix_s(),
        "start_time": time(job.start_time),
        "end_time": time(job.end_time),
        "nodes": nodes.unwrap_or_default(),
    })
}

fn of_node(node: &Node, state: &str) -> Value {
    let reason = node.reason.as_ref();
    json!({
        "name": node.config.name,
        "state": state,
        "reason": reason.map_or_else(String::new, |reason| cut(&reason.text)),
    })
}
