//! The effect of each event on one node.

use super::future;
use crate::event::{Event, NodeChange};
use crate::index::{lost_key, power_due, shift};
use crate::node_transition::{
    LinkMove, LinkState, NodeCondition, NodeMove, PowerMove, PowerState, RebootState, ServiceMove,
    move_of, next_condition,
};
use crate::state::State;
use muster_model::cpuset::CpuSet;
use muster_model::ids::{JobId, NodeIdx};
use muster_model::job::{Allocation, NodeShare};
use muster_model::node::{Node, NodeInfo, NodeLink};
use muster_model::node_state::ServiceState;
use muster_model::power::Power;
use muster_model::time::Timestamp;

impl State {
    /// Applies an event about a node and keeps the index of lost nodes.
    pub(crate) fn apply_to_node(&mut self, idx: NodeIdx, event: &Event) {
        let node = self
            .nodes
            .get_mut(idx.0 as usize)
            .unwrap_or_else(|| panic!("{event:?} names a node that does not exist"));
        if let Some(since) = lost_key(node) {
            self.lost_nodes.remove(&(since, idx));
        }
        let power = self.config.as_ref().and_then(|c| c.power.as_ref());
        let before = power.and_then(|config| power_due(node, config));
        apply_event(node, event);
        if let Some(since) = lost_key(node) {
            self.lost_nodes.insert((since, idx));
        }
        let after = power.and_then(|config| power_due(node, config));
        shift(&mut self.power_due, idx, before, after);
        if let Event::NodeChanged {
            change: NodeChange::Power(Some(power)),
            ..
        } = event
        {
            match power {
                Power::GoingDown { at, .. } => self.power_rates.count(*at, false),
                Power::GoingUp { at } => self.power_rates.count(*at, true),
                Power::DownWanted { .. } | Power::Down | Power::UpWanted => {}
            }
        }
    }
}

/// Gives a job its share.
pub(crate) fn take(node: &mut Node, job: JobId, share: &NodeShare, alloc: &Allocation) {
    assert!(
        !node.jobs.contains(&job),
        "job {job} is on node {} already",
        node.config.name
    );
    node.jobs.push(job);
    hold_resources(node, share, alloc, false);
}

/// Marks a share as used, without the entry in `jobs`; all but its CPUs if those are lent.
pub(crate) fn hold_resources(node: &mut Node, share: &NodeShare, alloc: &Allocation, lent: bool) {
    if lent {
        node.stopped += 1;
    } else {
        hold_cpus(node, share, alloc);
    }
    node.used_mib = node.used_mib.saturating_add(share.memory_mib);
    for gres in &share.gres {
        if let Some(used) = node
            .used_up_slot(gres)
            .and_then(|slot| node.used_gres.get_mut(slot))
        {
            used.union_with(&gres.ids);
        }
    }
    if alloc.only_user.is_some() {
        node.only_user = alloc.only_user;
        node.alone_by_user += 1;
    }
    if alloc.mcs_label.is_some() {
        node.mcs_label.clone_from(&alloc.mcs_label);
        node.alone_by_label += 1;
    }
}

/// A job was stopped, or goes on.
pub(crate) fn follow_stop(node: &mut Node, share: &NodeShare, alloc: &Allocation, stopped: bool) {
    if stopped {
        lend_cpus(node, share, alloc);
        node.stopped += 1;
    } else {
        hold_cpus(node, share, alloc);
        node.stopped -= 1;
    }
}

/// A job starts to use its CPUs, or goes on.
fn hold_cpus(node: &mut Node, share: &NodeShare, alloc: &Allocation) {
    node.alone += u32::from(alloc.exclusive);
    node.exclusive = node.alone > 0;
    if node.free_cpus.is_superset(&share.cpus) {
        return node.free_cpus.subtract(&share.cpus);
    }
    // CPUs that a new configuration took away are nobody's.
    let mut more = share.cpus.clone();
    more.intersect_with(&node.config.job_cpus());
    more.subtract(&node.free_cpus);
    node.free_cpus.subtract(&share.cpus);
    let mut layer = 0;
    while !more.is_empty() {
        if layer == node.shared_cpus.len() {
            node.shared_cpus.push(CpuSet::default());
        }
        let level = &mut node.shared_cpus[layer];
        let mut next = more.clone();
        next.intersect_with(level);
        level.union_with(&more);
        more = next;
        layer += 1;
    }
}

/// A job does not use its CPUs any more, or for now.
fn lend_cpus(node: &mut Node, share: &NodeShare, alloc: &Allocation) {
    let mut less = share.cpus.clone();
    less.intersect_with(&node.config.job_cpus());
    for level in node.shared_cpus.iter_mut().rev() {
        let mut here = less.clone();
        here.intersect_with(level);
        level.subtract(&here);
        less.subtract(&here);
    }
    while node.shared_cpus.last().is_some_and(CpuSet::is_empty) {
        node.shared_cpus.pop();
    }
    node.free_cpus.union_with(&less);
    node.alone = node.alone.saturating_sub(u32::from(alloc.exclusive));
    node.exclusive = node.alone > 0;
}

/// Takes back what a job has here.
pub(crate) fn give_back(
    node: &mut Node,
    job: JobId,
    (share, alloc): (&NodeShare, &Allocation),
    lent: bool,
    at: Timestamp,
) {
    let before = node.jobs.len();
    node.jobs.retain(|j| *j != job);
    assert_eq!(
        node.jobs.len() + 1,
        before,
        "job {job} is not on node {}",
        node.config.name
    );
    if lent {
        node.stopped -= 1;
    } else {
        lend_cpus(node, share, alloc);
    }
    node.alone_by_user -= u32::from(alloc.only_user.is_some());
    if node.alone_by_user == 0 {
        node.only_user = None;
    }
    node.alone_by_label -= u32::from(alloc.mcs_label.is_some());
    if node.alone_by_label == 0 {
        node.mcs_label = None;
    }
    node.used_mib = node.used_mib.saturating_sub(share.memory_mib);
    for gres in &share.gres {
        if let Some(used) = node
            .used_up_slot(gres)
            .and_then(|slot| node.used_gres.get_mut(slot))
        {
            used.subtract(&gres.ids);
        }
    }
    node.last_busy = Some(at);
}

/// As if no job held anything here; `jobs` stays.
pub(crate) fn reset_use(node: &mut Node) {
    node.free_cpus = node.config.job_cpus();
    node.used_mib = 0;
    node.used_gres = vec![CpuSet::default(); node.config.gres.len()];
    node.exclusive = false;
    node.shared_cpus = Vec::new();
    (node.alone, node.alone_by_user, node.only_user) = (0, 0, None);
    (node.alone_by_label, node.mcs_label) = (0, None);
    node.stopped = 0;
}

/// Applies an event about this node.
pub(crate) fn apply_event(node: &mut Node, event: &Event) {
    match event {
        Event::NodeRegistered { info, at, .. } => register(node, info, *at),
        Event::NodeChanged { change, at, .. } => apply_change(node, change, *at),
        Event::Configured { .. }
        | Event::BlobStored { .. }
        | Event::JobSubmitted { .. }
        | Event::TaskSplit { .. }
        | Event::JobChanged { .. }
        | Event::JobStarted { .. }
        | Event::JobEnding { .. }
        | Event::NodeReleased { .. }
        | Event::JobRequeued { .. }
        | Event::JobSuspended { .. }
        | Event::JobResumed { .. }
        | Event::JobsPurged { .. }
        | Event::StepStarted { .. }
        | Event::StepEnded { .. }
        | Event::PartitionChanged { .. }
        | Event::PartitionRemoved { .. }
        | Event::NodesCreated { .. }
        | Event::NodesDeleted { .. }
        | Event::ReservationSet { .. }
        | Event::ReservationStarted { .. }
        | Event::ReservationGone { .. }
        | Event::CrontabSet { .. }
        | Event::TriggersChanged { .. }
        | Event::AccountsChanged { .. }
        | Event::PrioritiesCalculated { .. } => {
            panic!("{event:?} is not about a node")
        }
    }
}

/// Its agent connected.
fn register(node: &mut Node, info: &NodeInfo, at: Timestamp) {
    node.report = Some(info.clone());
    advance(node, NodeMove::Link(LinkMove::Register), at);
    // It idles from now on, if no job has been there.
    node.last_busy.get_or_insert(at);
}

/// Power saving is not configured any more.
pub(crate) fn leave_power_saving(node: &mut Node) {
    advance(node, NodeMove::Power(PowerMove::SavingEnds), Timestamp(0));
}

/// Whether it takes jobs changes with its line.
pub(super) fn set_service(node: &mut Node, happens: ServiceMove) {
    advance(node, NodeMove::Service(happens), Timestamp(0));
}

/// Takes a node to the state to which a move leads, and says which that is; none if that is impossible. When it was asked for
/// a power state or a reboot comes with the change.
fn advance(node: &mut Node, happens: NodeMove, at: Timestamp) -> Option<NodeCondition> {
    let from = NodeCondition::of(node);
    let Some(next) = next_condition(from, happens) else {
        debug_assert!(false, "node {}: {happens:?} in {from:?}", node.config.name);
        return None;
    };
    if next.link != from.link {
        node.link = match next.link {
            LinkState::Never => NodeLink::Never,
            LinkState::Up => NodeLink::Up,
            LinkState::Lost => NodeLink::Lost(at),
        };
    }
    let ServiceState { down, drain, fail } = next.service;
    (node.down, node.drain, node.fail) = (down, drain, fail);
    match next.power {
        PowerState::On => node.power = None,
        PowerState::Down => node.power = Some(Power::Down),
        PowerState::UpWanted => node.power = Some(Power::UpWanted),
        PowerState::DownWanted | PowerState::GoingDown | PowerState::GoingUp => {}
    }
    if next.reboot == RebootState::None {
        node.reboot = None;
    }
    Some(next)
}

/// Applies a change.
fn apply_change(node: &mut Node, change: &NodeChange, at: Timestamp) {
    let condition = match move_of(change) {
        Some(happens) => advance(node, happens, at),
        None => Some(NodeCondition::of(node)),
    };
    let Some(condition) = condition else {
        return;
    };
    match change {
        NodeChange::LinkLost | NodeChange::ResumeFailed => {}
        NodeChange::Down(reason) | NodeChange::Drain(reason) | NodeChange::Fail(reason) => {
            node.reason = Some(reason.clone());
            node.future = false;
        }
        NodeChange::Resume => {
            node.future = false;
            node.reason = None;
            node.launch_failures = 0;
            // The wait for a silent node starts anew.
            if matches!(node.link, NodeLink::Lost(_)) {
                node.link = NodeLink::Lost(at);
            }
        }
        NodeChange::Undrain => {
            node.launch_failures = 0;
            drop_reason_if_in_service(node);
        }
        NodeChange::Reason(reason) => node.reason = Some(reason.clone()),
        NodeChange::Weight(weight) => node.config.weight = *weight,
        NodeChange::CpuBind(bind) => node.config.cpu_bind = *bind,
        NodeChange::Features(features) => node.config.features = features.clone(),
        NodeChange::Health {
            load_centi,
            free_mib,
        } => set_health(node, *load_centi, *free_mib),
        NodeChange::LaunchFailed(true) => {
            node.launch_failures = node.launch_failures.saturating_add(1);
        }
        NodeChange::LaunchFailed(false) => node.launch_failures = 0,
        NodeChange::Comment(text) => {
            node.comment = Some(text.clone()).filter(|t| !t.is_empty());
        }
        NodeChange::Reboot(reboot) => node.reboot.clone_from(reboot),
        NodeChange::Power(power) => {
            node.power = *power;
            if power.is_none() {
                node.last_busy = Some(at);
            }
        }
        NodeChange::Returned => drop_reason_if_in_service(node),
        NodeChange::Future => future::leave(node),
        NodeChange::Taken(host) => future::take(node, host),
    }
    debug_assert_eq!(NodeCondition::of(node), condition, "{change:?}");
}

/// Load and free memory, if it ever registered.
pub(crate) fn set_health(node: &mut Node, load_centi: u32, free_mib: u64) {
    if let Some(report) = &mut node.report {
        report.load_centi = load_centi;
        report.free_mib = free_mib;
    }
}

fn drop_reason_if_in_service(node: &mut Node) {
    if node.service().is_in_service() {
        node.reason = None;
    }
}
