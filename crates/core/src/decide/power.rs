//! Power saving: who is powered down and up when, and what that means to jobs. The site's programs are run from
//! the events; nothing here waits for them, only for the agents of nodes.

use super::draft::Draft;
use super::future_nodes;
use super::node_loss;
use super::target;
use crate::event::{Event, JobChange, NodeChange};
use muster_model::command::{Identity, Reply};
use muster_model::ids::{JobId, NodeIdx};
use muster_model::job::Job;
use muster_model::node::{Node, NodeLink, NodeReason};
use muster_model::node_state::{StateFlag, StatePattern};
use muster_model::power::{Power, PowerConfig, PowerUpWait};
use muster_model::refusal::{Refusal, RefusalCode};
use std::sync::Arc;

/// Slurm's words for a node that did not come up.
const NOT_RESUMED: &str = "ResumeTimeout reached";

/// A power request of an administrator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PowerRequest {
    /// `POWER_UP`.
    Up,
    /// `POWER_DOWN`: once no job is there.
    Down,
    /// `POWER_DOWN_ASAP`: and no further jobs until it is up again.
    DownAsap,
    /// `POWER_DOWN_FORCE`: whatever runs there.
    DownForce,
}

/// Makes the changes that are due.
pub(super) fn tick(draft: &mut Draft<'_>) {
    let Some(config) = config(draft) else {
        return;
    };
    let end = (draft.now, NodeIdx(u32::MAX));
    let due: Vec<NodeIdx> = draft.state.power_due.range(..=end).map(|d| d.1).collect();
    for idx in due {
        let Some(node) = draft.node(idx) else {
            continue;
        };
        match node.power {
            None if may_power_down(draft, &config, node) => go_down(draft, &config, idx, false),
            None | Some(Power::Down) => {}
            Some(Power::DownWanted { drained }) => go_down(draft, &config, idx, drained),
            Some(Power::GoingDown { drained, .. }) => {
                set(draft, idx, Some(Power::Down));
                if drained {
                    change(draft, idx, NodeChange::Undrain);
                }
            }
            Some(Power::UpWanted) => go_up(draft, &config, idx),
            Some(Power::GoingUp { .. }) => {
                change(draft, idx, NodeChange::ResumeFailed);
                node_loss::set_down(draft, idx, NOT_RESUMED, 0);
            }
        }
    }
}

/// Whether a node that has idled long enough is to be powered down.
fn may_power_down(draft: &Draft<'_>, config: &PowerConfig, node: &Node) -> bool {
    if !node.jobs.is_empty() {
        return false;
    }
    let reserved = draft.state.reservations.holds_now(node.idx);
    let state = node.state(false, reserved);
    let excepted = |name: &String| match name.as_str() {
        "MAINTENANCE" => state.has(StateFlag::Maintenance),
        name => StatePattern::parse(name).is_some_and(|pattern| pattern.fits(state)),
    };
    if config.except_states.iter().any(excepted) {
        return false;
    }
    let stays = |name: &String| {
        let other = draft.state.node_by_name.get(name).copied();
        let other = other.and_then(|idx| draft.node(idx));
        other.is_some_and(|n| {
            n.idx != node.idx && n.is_usable() && n.power.is_none() && n.jobs.is_empty()
        })
    };
    let of_node = config
        .keep
        .iter()
        .filter(|k| k.nodes.contains(&node.config.name));
    let mut of_node = of_node.filter(|_| node.is_usable());
    of_node.all(|kept| {
        let left = kept.nodes.iter().filter(|name| stays(name)).count();
        left >= kept.count as usize
    })
}

/// A job got nodes: those that sleep are powered up, and it waits for them.
pub(super) fn wake(draft: &mut Draft<'_>, id: JobId, prolog: bool) {
    let asleep = nodes_of(draft, id, |node| node.power.is_some());
    let Some(config) = config(draft).filter(|_| !asleep.is_empty()) else {
        return;
    };
    let waking = match prolog {
        true => PowerUpWait::NodesAndProlog,
        false => PowerUpWait::Nodes,
    };
    draft.change(id, JobChange::Waking(waking));
    for idx in asleep {
        if draft
            .node(idx)
            .is_some_and(|n| n.power == Some(Power::Down))
        {
            set(draft, idx, Some(Power::UpWanted));
            go_up(draft, &config, idx);
        }
    }
}

/// Whether a job would have to wait for nodes to be powered up.
pub(super) fn sleeps(draft: &Draft<'_>, idx: NodeIdx) -> bool {
    draft.node(idx).is_some_and(|node| node.power.is_some())
}

/// The agent of a node came.
pub(super) fn registered(draft: &mut Draft<'_>, idx: NodeIdx) {
    // One that is being powered down has not left yet.
    if draft.node(idx).is_some_and(Node::is_powered_down) {
        arrived(draft, idx);
    }
}

/// `scontrol update NodeName= State=POWER_...`.
pub(super) fn set_power(
    draft: &mut Draft<'_>,
    identity: &Identity,
    nodes: &str,
    request: PowerRequest,
    reason: Option<&str>,
) -> Result<Option<Reply>, Refusal> {
    let Some(config) = config(draft) else {
        return Err(Refusal::new(
            RefusalCode::NotSupported,
            "SuspendProgram and ResumeProgram are not both set in slurm.conf",
        ));
    };
    let known = target::known_nodes(draft, nodes)?;
    future_nodes::refuse_what_needs_a_node(draft, &known)?;
    for idx in &known {
        let node = draft
            .node(*idx)
            .map(|n| (n.config.name.clone(), n.power, n.jobs.is_empty()));
        let why = match node {
            Some((name, Some(Power::GoingDown { .. }), _)) if request == PowerRequest::Up => {
                format!("node {name} is being powered down; try again when SuspendTimeout is over")
            }
            Some((name, Some(power), false))
                if power.is_powered_down() && request != PowerRequest::Up =>
            {
                format!("node {name} is being powered up for a job; cancel that first")
            }
            _ => continue,
        };
        return Err(Refusal::new(RefusalCode::InvalidNodeState, why));
    }
    for idx in &known {
        match request {
            PowerRequest::Up => up(draft, &config, *idx),
            PowerRequest::Down => down(draft, &config, *idx, false),
            PowerRequest::DownAsap => {
                let drains = draft
                    .node(*idx)
                    .is_some_and(|n| !n.drain && !n.is_powered_down());
                if drains {
                    let reason = NodeReason {
                        text: reason.unwrap_or("POWER_DOWN_ASAP").to_owned(),
                        uid: identity.uid,
                        since: draft.now,
                    };
                    change(draft, *idx, NodeChange::Drain(reason));
                }
                down(draft, &config, *idx, drains);
            }
            PowerRequest::DownForce => {
                node_loss::lose_all(draft, *idx);
                change(draft, *idx, NodeChange::Resume);
                down(draft, &config, *idx, false);
            }
        }
    }
    Ok(Some(Reply::Done {
        changed: u32::try_from(known.len()).unwrap_or(u32::MAX),
        refused: Vec::new(),
    }))
}

fn up(draft: &mut Draft<'_>, config: &PowerConfig, idx: NodeIdx) {
    match draft.node(idx).and_then(|n| n.power) {
        Some(Power::Down) => {
            set(draft, idx, Some(Power::UpWanted));
            go_up(draft, config, idx);
        }
        Some(Power::DownWanted { drained }) => {
            set(draft, idx, None);
            if drained {
                change(draft, idx, NodeChange::Undrain);
            }
        }
        None | Some(Power::GoingDown { .. } | Power::UpWanted | Power::GoingUp { .. }) => {}
    }
}

fn down(draft: &mut Draft<'_>, config: &PowerConfig, idx: NodeIdx, drained: bool) {
    match draft.node(idx).and_then(|n| n.power) {
        Some(Power::Down | Power::GoingDown { .. }) => return,
        Some(Power::DownWanted { drained: before }) => {
            let drained = drained || before;
            set(draft, idx, Some(Power::DownWanted { drained }));
        }
        None | Some(Power::UpWanted | Power::GoingUp { .. }) => {
            set(draft, idx, Some(Power::DownWanted { drained }));
        }
    }
    let drained = match draft.node(idx).and_then(|n| n.power) {
        Some(Power::DownWanted { drained }) => drained,
        _ => drained,
    };
    go_down(draft, config, idx, drained);
}

/// `State=RESUME`: a node that was to be powered down is not, and one that is being powered down counts as up.
pub(super) fn resumed(draft: &mut Draft<'_>, idx: NodeIdx) {
    let power = draft.node(idx).and_then(|n| n.power);
    if power.is_some_and(|power| !power.is_powered_down()) {
        set(draft, idx, None);
    }
}

/// Has it powered down, once no job is there and if there were not too many others in this minute.
fn go_down(draft: &mut Draft<'_>, config: &PowerConfig, idx: NodeIdx, drained: bool) {
    let idle = draft.node(idx).is_some_and(|n| n.jobs.is_empty());
    let rates = &draft.state.power_rates;
    if !idle || rates.left(draft.now, false, config.suspend_rate) <= draft.powered_down {
        return;
    }
    draft.powered_down += 1;
    let at = draft.now;
    set(draft, idx, Some(Power::GoingDown { at, drained }));
}

/// Has it powered up, if there were not too many others in this minute.
fn go_up(draft: &mut Draft<'_>, config: &PowerConfig, idx: NodeIdx) {
    let rates = &draft.state.power_rates;
    if rates.left(draft.now, true, config.resume_rate) <= draft.powered_up {
        return;
    }
    draft.powered_up += 1;
    let at = draft.now;
    set(draft, idx, Some(Power::GoingUp { at }));
    // The site's program only slowed it down.
    if draft.node(idx).is_some_and(|n| n.link == NodeLink::Up) {
        arrived(draft, idx);
    }
}

/// The node is there.
fn arrived(draft: &mut Draft<'_>, idx: NodeIdx) {
    set(draft, idx, None);
    let jobs = draft.node(idx).map(|n| n.jobs.clone()).unwrap_or_default();
    for id in jobs {
        let waits = |job: &Job| job.power_up.is_some();
        if draft.job(id).is_some_and(waits) && nodes_of(draft, id, |n| n.power.is_some()).is_empty()
        {
            draft.change(id, JobChange::NodesUp);
        }
    }
}

/// The nodes of a job's allocation for which a condition holds.
fn nodes_of(draft: &Draft<'_>, id: JobId, holds: fn(&Node) -> bool) -> Vec<NodeIdx> {
    let alloc = draft.job(id).and_then(|job| job.alloc.as_ref());
    let nodes = alloc.iter().flat_map(|alloc| &alloc.nodes).map(|s| s.node);
    nodes
        .filter(|idx| draft.node(*idx).is_some_and(holds))
        .collect()
}

fn config(draft: &Draft<'_>) -> Option<PowerConfig> {
    let config: Option<&Arc<_>> = draft.state.config.as_ref();
    config.and_then(|c| c.power.clone())
}

fn set(draft: &mut Draft<'_>, idx: NodeIdx, power: Option<Power>) {
    change(draft, idx, NodeChange::Power(power));
}

fn change(draft: &mut Draft<'_>, node: NodeIdx, change: NodeChange) {
    let at = draft.now;
    draft.emit(Event::NodeChanged { node, change, at });
}
