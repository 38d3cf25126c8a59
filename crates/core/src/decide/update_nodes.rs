//! `scontrol update nodename=`.

use super::draft::Draft;
use super::future_nodes;
use super::node_loss;
use super::texts;
use super::{power, target};
use crate::event::{Event, NodeChange};
use muster_model::binding::BindDefault;
use muster_model::command::{Identity, NodeUpdate, Reply};
use muster_model::ids::NodeIdx;
use muster_model::limits::TEXT_BYTES_MAX;
use muster_model::node::NodeReason;
use muster_model::refusal::{Refusal, RefusalCode};

/// The values of `State=` other than power states.
#[derive(Clone, Copy, PartialEq, Eq)]
enum StateRequest {
    Down,
    Drain,
    Fail,
    Resume,
    Undrain,
    Future,
}

/// Changes the named nodes, all or none.
pub(super) fn update(
    draft: &mut Draft<'_>,
    identity: &Identity,
    nodes: &str,
    update: &NodeUpdate,
) -> Result<Option<Reply>, Refusal> {
    if let Some(power) = update.state.as_deref().and_then(power_request) {
        let others = NodeUpdate {
            state: None,
            reason: None,
            ..update.clone()
        };
        if others != NodeUpdate::default() {
            return Err(Refusal::new(
                RefusalCode::NotSupported,
                "a node is powered down or up by a command that changes nothing else but its reason",
            ));
        }
        return power::set_power(draft, identity, nodes, power, update.reason.as_deref());
    }
    let request = update.state.as_deref().map(state_request).transpose()?;
    for text in [&update.reason, &update.comment].into_iter().flatten() {
        texts::too_long("the text", text, TEXT_BYTES_MAX)?;
    }
    let cpu_bind = update.cpu_bind.as_deref().map(bind_default).transpose()?;
    let known = target::known_nodes(draft, nodes)?;
    let needs_reason = matches!(
        request,
        Some(StateRequest::Down | StateRequest::Drain | StateRequest::Fail)
    );
    if needs_reason && update.reason.is_none() {
        let nameless = known
            .iter()
            .filter_map(|idx| draft.node(*idx))
            .find(|node| node.reason.is_none());
        if let Some(node) = nameless {
            return Err(Refusal::new(
                RefusalCode::InvalidNodeState,
                format!(
                    "node {} is taken out of service without a reason; add Reason=",
                    node.config.name
                ),
            ));
        }
    }
    match request {
        Some(StateRequest::Future) => future_nodes::check_idle(draft, &known)?,
        Some(StateRequest::Drain | StateRequest::Fail | StateRequest::Undrain) => {
            future_nodes::refuse_what_needs_a_node(draft, &known)?;
        }
        Some(StateRequest::Resume) => refuse_needless_resume(draft, &known, update)?,
        Some(StateRequest::Down) | None => {}
    }
    for idx in &known {
        update_one(draft, identity, *idx, request, update);
        if let Some(bind) = cpu_bind {
            let change = NodeChange::CpuBind(bind);
            let (node, at) = (*idx, draft.now);
            draft.emit(Event::NodeChanged { node, change, at });
        }
    }
    Ok(Some(Reply::Done {
        changed: u32::try_from(known.len()).unwrap_or(u32::MAX),
        refused: Vec::new(),
    }))
}

/// `CpuBind=` of nodes and partitions.
pub(super) fn bind_default(word: &str) -> Result<Option<BindDefault>, Refusal> {
    BindDefault::parse(word)
        .map_err(|e| Refusal::new(RefusalCode::InvalidValue, format!("CpuBind={word}: {e}")))
}

fn power_request(state: &str) -> Option<power::PowerRequest> {
    match state.to_ascii_uppercase().as_str() {
        "POWER_UP" => Some(power::PowerRequest::Up),
        "POWER_DOWN" => Some(power::PowerRequest::Down),
        "POWER_DOWN_ASAP" => Some(power::PowerRequest::DownAsap),
        "POWER_DOWN_FORCE" => Some(power::PowerRequest::DownForce),
        _ => None,
    }
}

fn state_request(state: &str) -> Result<StateRequest, Refusal> {
    Ok(match state.to_ascii_uppercase().as_str() {
        "DOWN" => StateRequest::Down,
        "DRAIN" | "DRAINING" | "DRAINED" => StateRequest::Drain,
        "FAIL" | "FAILING" => StateRequest::Fail,
        "RESUME" | "IDLE" => StateRequest::Resume,
        "UNDRAIN" => StateRequest::Undrain,
        other @ ("REBOOT" | "CANCEL_REBOOT") => {
            return Err(Refusal::new(
                RefusalCode::NotSupported,
                format!("State={other}: use scontrol reboot and scontrol cancel_reboot"),
            ));
        }
        "FUTURE" => StateRequest::Future,
        other => {
            return Err(Refusal::new(
                RefusalCode::InvalidNodeState,
                format!(
                    "State={other} is not one of DOWN, DRAIN, FAIL, FUTURE, RESUME, IDLE, UNDRAIN, POWER_UP, POWER_DOWN, POWER_DOWN_ASAP, POWER_DOWN_FORCE"
                ),
            ));
        }
    })
}

/// `State=RESUME` of nodes that are idle and in service already is an error in Slurm, by which scripts see that there was
/// nothing to resume; `State=IDLE` is none.
fn refuse_needless_resume(
    draft: &Draft<'_>,
    known: &[NodeIdx],
    update: &NodeUpdate,
) -> Result<(), Refusal> {
    let is_idle = |idx: &NodeIdx| {
        draft.node(*idx).is_some_and(|node| {
            let is_whole = node.reboot.is_none() && node.power.is_none() && !node.future;
            is_whole && node.is_usable() && node.jobs.is_empty()
        })
    };
    let word = update.state.as_deref().unwrap_or_default();
    match word.eq_ignore_ascii_case("resume") && known.iter().all(is_idle) {
        true => Err(RefusalCode::InvalidNodeState.into()),
        false => Ok(()),
    }
}

fn update_one(
    draft: &mut Draft<'_>,
    identity: &Identity,
    idx: NodeIdx,
    request: Option<StateRequest>,
    update: &NodeUpdate,
) {
    let (at, uid) = (draft.now, identity.uid);
    let Some(node) = draft.node(idx) else {
        return;
    };
    let given = update.reason.as_ref().map(|text| NodeReason {
        text: text.clone(),
        uid,
        since: at,
    });
    let reason = given.clone().or_else(|| node.reason.clone());
    let mut changes = Vec::new();
    match (request, reason) {
        (Some(StateRequest::Down), reason) => {
            let text = reason.map(|r| r.text).unwrap_or_default();
            node_loss::set_down(draft, idx, &text, uid);
        }
        (Some(StateRequest::Drain), Some(reason)) => changes.push(NodeChange::Drain(reason)),
        (Some(StateRequest::Fail), Some(reason)) => changes.push(NodeChange::Fail(reason)),
        // Refused before: these need a reason.
        (Some(StateRequest::Drain | StateRequest::Fail), None) => {}
        (Some(StateRequest::Resume), _) => {
            power::resumed(draft, idx);
            changes.push(NodeChange::Resume);
        }
        (Some(StateRequest::Undrain), _) => changes.push(NodeChange::Undrain),
        (Some(StateRequest::Future), _) => future_nodes::leave(draft, idx),
        (None, _) => changes.extend(given.map(NodeChange::Reason)),
    }
    changes.extend(update.weight.map(NodeChange::Weight));
    changes.extend(update.features.clone().map(NodeChange::Features));
    changes.extend(update.comment.clone().map(NodeChange::Comment));
    for change in changes {
        draft.emit(Event::NodeChanged {
            node: idx,
            change,
            at,
        });
    }
}
