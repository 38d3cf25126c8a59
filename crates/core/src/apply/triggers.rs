//! Effects of events on triggers: changes of nodes are recorded until they are compared with triggers, and times at
//! which triggers fire follow jobs and nodes. An event without a trigger that it concerns costs a look at one node.

use crate::event::{Event, NodeChange, TriggerChange};
use crate::state::State;
use crate::state::triggers::follow_job;
use muster_model::ids::NodeIdx;
use muster_model::node::Node;
use muster_model::time::Timestamp;
use muster_model::trigger::TriggerEvents;

/// A node before an event that may change its state.
pub(super) struct NodeBefore {
    node: NodeIdx,
    condition: TriggerCondition,
}

/// State of a node that triggers look at.
#[derive(Clone, Copy, PartialEq, Eq)]
struct TriggerCondition {
    down: bool,
    fail: bool,
    drained: bool,
    draining: bool,
}

impl TriggerCondition {
    fn of(node: &Node) -> TriggerCondition {
        let is_leaving = node.drain || node.fail;
        let is_busy = !node.jobs.is_empty();
        TriggerCondition {
            down: node.down && !node.removed,
            fail: node.fail,
            drained: is_leaving && !is_busy,
            draining: node.drain && is_busy,
        }
    }

    /// Events since this state.
    fn events_until(self, now: TriggerCondition) -> TriggerEvents {
        let happened = [
            (!self.down && now.down, TriggerEvents::DOWN),
            (self.down && !now.down, TriggerEvents::UP),
            (!self.fail && now.fail, TriggerEvents::FAIL),
            (!self.drained && now.drained, TriggerEvents::DRAINED),
            (!self.draining && now.draining, TriggerEvents::DRAINING),
        ];
        let happened = happened.into_iter().filter(|(has, _)| *has);
        happened.fold(TriggerEvents::NONE, |all, (_, event)| all.with(event))
    }
}

/// Takes note of the node that an event is about.
pub(super) fn before(state: &State, event: &Event) -> Option<NodeBefore> {
    let idx = match event {
        Event::NodeRegistered { node, .. } | Event::NodeChanged { node, .. } => *node,
        Event::NodeReleased { id, position, .. } => {
            let alloc = state.jobs.get(id)?.alloc.as_ref()?;
            alloc.nodes.get(*position as usize)?.node
        }
        _ => return None,
    };
    Some(NodeBefore {
        node: idx,
        condition: TriggerCondition::of(state.node(idx)?),
    })
}

/// Records the trigger events that follow from an applied event.
pub(super) fn after(state: &mut State, event: &Event, before: Option<NodeBefore>) {
    if let (Some(before), Some(at)) = (before, time(event)) {
        follow_node(state, event, &before, at);
    }
    if state.triggers.concerns_jobs() {
        for id in event.jobs() {
            if state.triggers.concerns(*id) {
                follow_job(state, *id);
            }
        }
    }
    match event {
        Event::Configured { at, .. } => {
            follow_all(state, *at);
            state.triggers.record(TriggerEvents::RECONFIG, *at);
        }
        Event::NodesCreated { at, .. } | Event::NodesDeleted { at, .. } => follow_all(state, *at),
        Event::JobStarted { alloc, at, .. } if state.triggers.idle_count() > 0 => {
            for share in &alloc.nodes {
                follow_idle(state, share.node, *at);
            }
        }
        Event::TriggersChanged { change, at } => apply_change(state, change, *at),
        _ => {}
    }
}

fn apply_change(state: &mut State, change: &TriggerChange, at: Timestamp) {
    let triggers = &mut state.triggers;
    match change {
        TriggerChange::Set(trigger) => {
            triggers.insert(trigger, &state.nodes, at);
            if let Some(job) = trigger.job {
                follow_job(state, job);
            }
        }
        TriggerChange::Removed(ids) => ids.iter().for_each(|id| triggers.remove(*id)),
        TriggerChange::Fired {
            trigger,
            argument,
            due,
        } => triggers.fire(*trigger, argument, *due, at),
        TriggerChange::Begun(run) => triggers.begin(*run),
        TriggerChange::Started(run) => triggers.start(*run),
        TriggerChange::Happened(events) => triggers.record(*events, at),
        TriggerChange::Checked => triggers.checked(),
    }
}

fn time(event: &Event) -> Option<Timestamp> {
    match event {
        Event::NodeRegistered { at, .. }
        | Event::NodeChanged { at, .. }
        | Event::NodeReleased { at, .. } => Some(*at),
        _ => None,
    }
}

fn follow_node(state: &mut State, event: &Event, before: &NodeBefore, at: Timestamp) {
    if state.triggers.idle_count() > 0 {
        follow_idle(state, before.node, at);
    }
    let (nodes, triggers) = (&state.nodes, &mut state.triggers);
    let Some(node) = nodes.get(before.node.0 as usize) else {
        return;
    };
    let mut events = before.condition.events_until(TriggerCondition::of(node));
    if let Event::NodeChanged { change, .. } = event {
        if matches!(change, NodeChange::Resume) {
            events = events.with(TriggerEvents::RESUME);
        }
        if is_update(change) {
            triggers.record(TriggerEvents::RECONFIG, at);
        }
    }
    if events != TriggerEvents::NONE {
        triggers.record_node(node, events, at);
    }
}

/// Whether a change is one that counts as one of the configuration, as in Slurm: administrators and the controller make it.
fn is_update(change: &NodeChange) -> bool {
    match change {
        NodeChange::Down(_)
        | NodeChange::Drain(_)
        | NodeChange::Fail(_)
        | NodeChange::Resume
        | NodeChange::Undrain
        | NodeChange::Returned
        | NodeChange::Reason(_)
        | NodeChange::Weight(_)
        | NodeChange::Features(_)
        | NodeChange::Comment(_)
        | NodeChange::CpuBind(_)
        | NodeChange::Future => true,
        NodeChange::LinkLost
        | NodeChange::Health { .. }
        | NodeChange::LaunchFailed(_)
        | NodeChange::Reboot(_)
        | NodeChange::Power(_)
        | NodeChange::ResumeFailed
        | NodeChange::Taken(_) => false,
    }
}

fn follow_idle(state: &mut State, idx: NodeIdx, at: Timestamp) {
    let (nodes, triggers) = (&state.nodes, &mut state.triggers);
    if let Some(node) = nodes.get(idx.0 as usize) {
        triggers.follow_idle(node, at);
    }
}

fn follow_all(state: &mut State, at: Timestamp) {
    if state.triggers.idle_count() > 0 {
        let (nodes, triggers) = (&state.nodes, &mut state.triggers);
        nodes.iter().for_each(|node| triggers.follow_idle(node, at));
    }
}
