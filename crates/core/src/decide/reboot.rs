//! `scontrol reboot`: nodes are rebooted when no job is on them, by the site's program, and come back by themselves: an
//! agent that registers from a new boot has done it.

use super::draft::Draft;
use super::future_nodes;
use super::pending_reboot::{change, order_if_idle};
use super::target;
use super::texts;
use crate::event::NodeChange;
use muster_model::command::{Identity, Reply};
use muster_model::ids::NodeIdx;
use muster_model::limits::TEXT_BYTES_MAX;
use muster_model::node::{NodeReason, Reboot};
use muster_model::refusal::{Refusal, RefusalCode};

/// A reboot request of an administrator.
pub(super) struct RebootRequest<'a> {
    /// Hostlist, or ALL.
    pub(super) nodes: &'a str,
    /// No further jobs until then.
    pub(super) asap: bool,
    /// They stay down afterwards.
    pub(super) down_after: bool,
    /// Why.
    pub(super) reason: Option<&'a str>,
}

/// Asks for it; nodes without jobs are rebooted at once.
pub(super) fn reboot(
    draft: &mut Draft<'_>,
    identity: &Identity,
    request: &RebootRequest<'_>,
) -> Result<Option<Reply>, Refusal> {
    if !draft.state.config.as_ref().is_some_and(|c| c.can_reboot) {
        return Err(Refusal::new(
            RefusalCode::NotSupported,
            "RebootProgram is not set in slurm.conf",
        ));
    }
    if let Some(reason) = request.reason {
        texts::too_long("the reason", reason, TEXT_BYTES_MAX)?;
    }
    let nodes = target::known_nodes(draft, request.nodes)?;
    future_nodes::refuse_what_needs_a_node(draft, &nodes)?;
    for idx in &nodes {
        ask(draft, identity.uid, *idx, request);
    }
    Ok(done(&nodes))
}

fn ask(draft: &mut Draft<'_>, uid: u32, idx: NodeIdx, request: &RebootRequest<'_>) {
    let Some(node) = draft.node(idx) else {
        return;
    };
    let drains = request.asap && !node.drain;
    let text = match request.reason {
        Some(reason) => Some(reason),
        None if drains && node.reason.is_none() => Some("Reboot ASAP"),
        None => None,
    };
    let reason = text.map(|text| NodeReason {
        text: text.to_owned(),
        uid,
        since: draft.now,
    });
    let known = node.reason.clone();
    match (drains, reason) {
        (true, reason) => {
            if let Some(reason) = reason.or(known) {
                change(draft, idx, NodeChange::Drain(reason));
            }
        }
        (false, Some(reason)) => change(draft, idx, NodeChange::Reason(reason)),
        (false, None) => {}
    }
    let reboot = Reboot {
        issued: None,
        drained: drains,
        down_after: request.down_after,
    };
    change(draft, idx, NodeChange::Reboot(Some(reboot)));
    order_if_idle(draft, idx);
}

/// Takes it back; a node that was drained for it is in service again.
pub(super) fn cancel(draft: &mut Draft<'_>, nodes: &str) -> Result<Option<Reply>, Refusal> {
    let nodes = target::known_nodes(draft, nodes)?;
    let asked = |idx: &NodeIdx| draft.node(*idx).is_some_and(|n| n.reboot.is_some());
    if !nodes.iter().any(asked) {
        return Err(Refusal::new(
            RefusalCode::InvalidNodeState,
            "no reboot was asked for there",
        ));
    }
    for idx in &nodes {
        let reboot = draft.node(*idx).and_then(|n| n.reboot.clone());
        let Some(reboot) = reboot else {
            continue;
        };
        change(draft, *idx, NodeChange::Reboot(None));
        if reboot.drained {
            change(draft, *idx, NodeChange::Undrain);
        }
    }
    Ok(done(&nodes))
}

/// A node registered from a new boot: if that was asked for, it is done.
pub(super) fn booted(draft: &mut Draft<'_>, idx: NodeIdx) {
    let ordered = draft
        .node(idx)
        .and_then(|n| n.reboot.clone())
        .filter(|r| r.issued.is_some());
    let Some(reboot) = ordered else {
        return;
    };
    change(draft, idx, NodeChange::Reboot(None));
    if reboot.down_after {
        let text = draft
            .node(idx)
            .and_then(|n| n.reason.as_ref())
            .map_or_else(|| "reboot requested".to_owned(), |r| r.text.clone());
        let reason = NodeReason {
            text: format!("{text} : reboot complete"),
            uid: 0,
            since: draft.now,
        };
        return change(draft, idx, NodeChange::Down(reason));
    }
    let node = draft.node(idx);
    let down = node.is_some_and(|n| n.down);
    let kept_drain = node.is_some_and(|n| n.drain) && !reboot.drained;
    if down {
        change(draft, idx, NodeChange::Returned);
    }
    if !kept_drain {
        change(draft, idx, NodeChange::Resume);
    }
}

fn done(nodes: &[NodeIdx]) -> Option<Reply> {
    Some(Reply::Done {
        changed: u32::try_from(nodes.len()).unwrap_or(u32::MAX),
        refused: Vec::new(),
    })
}
