//! Messages of the controller to nodes: orders, and data of a job that a node becomes part of.

use super::{Writer, components};
use crate::mail::ToLink;
use muster_core::state::State;
use muster_model::effect::Effect;
use muster_model::ids::{JobAttempt, JobId, NodeIdx};
use muster_model::job::{Allocation, ArrayInfo, ArrayRole, Phase};
use muster_model::spec::JobKind;
use muster_proto::node::{JobGrant, Order};
use std::collections::HashMap;
use std::sync::Arc;

/// The grant of the job that the orders before were about. Launches of a job come one after another, for all its nodes:
/// it is put together, and its allocation encoded, once.
#[derive(Default)]
pub(super) struct Grants {
    last: Option<Prepared>,
}

struct Prepared {
    /// The grant for all nodes but the first. They need not know where the others are: steps reach them from the first.
    grant: JobGrant,
    addresses: Vec<String>,
    positions: HashMap<NodeIdx, u32>,
}

impl Prepared {
    fn new(mut grant: JobGrant) -> Prepared {
        let nodes = grant.alloc.nodes.iter().map(|share| share.node);
        let positions = nodes.zip(0..).collect();
        let first = grant.addresses.first().cloned();
        let addresses = std::mem::replace(&mut grant.addresses, first.into_iter().collect());
        Prepared {
            grant,
            addresses,
            positions,
        }
    }

    /// The order for the node.
    fn of(&self, node: NodeIdx) -> Option<JobGrant> {
        let position = *self.positions.get(&node)?;
        let mut grant = self.grant.clone();
        if position == 0 {
            grant.addresses.clone_from(&self.addresses);
        }
        Some(JobGrant { position, ..grant })
    }
}

impl Writer {
    /// Sends what follows from the turn to the node that it is for, if that is connected.
    pub(super) fn order(&self, effect: Effect, grants: &mut Grants) {
        let (node, order) = match effect {
            Effect::Launch { node, job, attempt } => {
                match self.grant(node, JobAttempt::new(job, attempt), grants) {
                    Some(grant) => (node, grant),
                    None => return,
                }
            }
            Effect::Terminate {
                node,
                job,
                attempt,
                now,
                why,
            } => (
                node,
                Order::Terminate {
                    job,
                    attempt,
                    now,
                    why,
                },
            ),
            Effect::Signal {
                node,
                job,
                attempt,
                step,
                signal,
                scope,
                cancelled_by,
            } => (
                node,
                Order::Signal {
                    job,
                    attempt,
                    step,
                    signal,
                    scope,
                    cancelled_by,
                },
            ),
            Effect::StepLimit {
                node,
                job,
                attempt,
                step,
                limit,
            } => (
                node,
                Order::StepLimit {
                    job,
                    attempt,
                    step,
                    limit,
                },
            ),
            Effect::SendMessage { job, text } => match self.notification(job, text) {
                Some(order) => order,
                None => return,
            },
            Effect::Reboot { node } => (node, Order::Reboot),
            Effect::Notify { .. } => return,
        };
        let Some(link) = self.links.get(&node) else {
            return;
        };
        let blobs = match &order {
            Order::Launch(grant) if grant.position == 0 => [grant.spec.script, grant.spec.context]
                .into_iter()
                .flatten()
                .filter_map(|id| {
                    self.engine
                        .state()
                        .blobs
                        .get(&id)
                        .map(|blob| (id, Arc::clone(&blob.bytes)))
                })
                .collect(),
            _ => Vec::new(),
        };
        let _ = link.send.send(ToLink::Order(order, blobs));
    }

    /// Where the node that runs a job's script gets a message for it; that of a job without one goes to its
    /// holder.
    fn notification(&self, job: JobId, text: String) -> Option<(NodeIdx, Order)> {
        let record = self.engine.state().jobs.get(&job)?;
        if record.spec.kind == JobKind::Allocation {
            self.replica.notify(job, text, &self.pulse);
            return None;
        }
        let lead = record.alloc.as_ref()?.nodes.first()?.node;
        let attempt = record.attempt;
        Some((lead, Order::Notify { job, attempt, text }))
    }

    /// The launch of a job on a node, if it is still to be launched.
    fn grant(&self, node: NodeIdx, attempt: JobAttempt, grants: &mut Grants) -> Option<Order> {
        let is_it =
            |last: &&mut Prepared| JobAttempt::new(last.grant.job, last.grant.attempt) == attempt;
        let grant = match grants.last.as_mut().filter(is_it) {
            Some(prepared) => prepared.of(node)?,
            None => {
                let grant = self.lead_grant(attempt)?;
                match &grant.alloc.nodes[..] {
                    [share] if share.node == node => grant,
                    [_] => return None,
                    _ => grants.last.insert(Prepared::new(grant)).of(node)?,
                }
            }
        };
        Some(Order::Launch(Box::new(grant)))
    }

    /// The grant for the first node of the job.
    fn lead_grant(&self, JobAttempt { job, attempt }: JobAttempt) -> Option<JobGrant> {
        let state = self.engine.state();
        let record = state.jobs.get(&job).filter(|j| j.attempt == attempt)?;
        // It may have ended, and have left its nodes, in the turn that this follows from.
        if !matches!(record.phase(), Phase::Running | Phase::Suspended) {
            return None;
        }
        let alloc = record.alloc.clone()?;
        let array_info = match &record.array {
            ArrayRole::Task { base, .. } => state.arrays.get(base).map(ArrayInfo::without_tasks),
            ArrayRole::None | ArrayRole::Pending { .. } => None,
        };
        Some(JobGrant {
            job,
            attempt,
            spec: Arc::clone(&record.spec),
            position: 0,
            array: record.array.clone(),
            array_info,
            start_time: record.start_time?,
            time_limit: record.time_limit,
            restarts: record.restarts,
            addresses: addresses(state, &alloc),
            key: self.keys.job_key(job, attempt).into(),
            account: record.spec.account_name().to_owned(),
            qos: record.spec.qos_name().to_owned(),
            next_step: record.next_step,
            components: components(state, record),
            het_key: record.het.map(|het| self.keys.het_key(het.leader).into()),
            resizes: record.resizes,
            alloc: alloc.into(),
        })
    }
}

/// Where the agents of an allocation listen, in its order.
pub fn addresses(state: &State, alloc: &Allocation) -> Vec<String> {
    alloc
        .nodes
        .iter()
        .map(|share| {
            let node = &state.nodes[share.node.0 as usize];
            node.report
                .as_ref()
                .map_or_else(String::new, |info| info.address.clone())
        })
        .collect()
}
