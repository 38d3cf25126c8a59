//! Jobs that run on with fewer nodes than they started with: because their owner gives some up (`scontrol update`), or
//! because a node failed that they can do without (`--no-kill`). Their part there is released first; then the rest is
//! their allocation, on which steps are laid out and which is charged and accounted from then on.

use crate::state::State;
use muster_model::command::JobUpdate;
use muster_model::ids::NodeIdx;
use muster_model::job::{Job, NodeShare, Phase};
use muster_model::refusal::{Refusal, RefusalCode};
use muster_model::spec::ResourceAsk;
use std::collections::BTreeSet;
use std::sync::Arc;

/// The nodes that an update leaves to a running job; none if it is about other things, or about as many as it has. `named` are
/// those that it lists: a command may be about thousands of jobs.
///
/// # Errors
/// It would get more, or others, or none.
pub(super) fn wanted(
    state: &State,
    job: &Job,
    update: &JobUpdate,
    named: impl FnOnce(&str) -> Result<Arc<BTreeSet<NodeIdx>>, Refusal>,
) -> Result<Option<BTreeSet<NodeIdx>>, Refusal> {
    let count = update.ask.as_ref().map(|ask| ask.min_nodes as usize);
    let refuse = |code, why: String| Err(Refusal::new(code, format!("job {}: {why}", job.id)));
    let Some(alloc) = &job.alloc else {
        return Ok(None);
    };
    let kept: Vec<&NodeShare> = match (&update.nodelist, count) {
        (Some(list), _) => {
            let named = named(list)?;
            let own: BTreeSet<NodeIdx> = alloc.nodes.iter().map(|share| share.node).collect();
            if let Some(other) = named.iter().find(|node| !own.contains(node)) {
                let name = state.node(*other).map_or("", |node| &node.config.name);
                let why = format!("{name} is not a node of job {}", job.id);
                return Err(Refusal::new(RefusalCode::InvalidNode, why));
            }
            let shares = alloc.nodes.iter();
            shares.filter(|share| named.contains(&share.node)).collect()
        }
        (None, Some(count)) if count > alloc.nodes.len() => {
            let has = alloc.nodes.len();
            let why = format!("it has {has} nodes and gets no more while it runs");
            return refuse(RefusalCode::NotSupported, why);
        }
        (None, Some(count)) => alloc.nodes.iter().take(count).collect(),
        (None, None) => return Ok(None),
    };
    if kept.len() == alloc.nodes.len() {
        return Ok(None);
    }
    let config = state.config.as_deref();
    if config.is_some_and(|c| c.has_scheduler_parameter("disable_job_shrink")) {
        let why = "jobs keep their nodes here (SchedulerParameters=disable_job_shrink)".to_owned();
        return refuse(RefusalCode::NotSupported, why);
    }
    if !matches!(job.phase(), Phase::Running | Phase::Suspended) {
        let why = "it is on its way back to the queue; what it has is still cleaned up".to_owned();
        return refuse(RefusalCode::JobNotRunning, why);
    }
    let lead = alloc.nodes.first().map(|share| share.node);
    if kept.first().map(|share| share.node) != lead {
        let first = alloc.nodes.first().map_or("", |share| &share.name);
        let why = format!("it cannot do without its first node, {first}");
        return refuse(RefusalCode::InvalidNode, why);
    }
    if job.het.is_some() {
        let why = "components of heterogeneous jobs keep their nodes".to_owned();
        return refuse(RefusalCode::NotSupported, why);
    }
    if job.configuring || job.power_up.is_some() {
        let why = "its nodes are still being made ready for it".to_owned();
        return refuse(RefusalCode::JobNotRunning, why);
    }
    Ok(Some(kept.into_iter().map(|share| share.node).collect()))
}

/// Whether two requests differ in nothing but the number of nodes. The new one is left with that of the old one.
pub(super) fn only_nodes_differ(old: &ResourceAsk, new: &mut ResourceAsk) -> bool {
    new.min_nodes = old.min_nodes;
    new.max_nodes = old.max_nodes;
    new.nodes_set = old.nodes_set;
    *new == *old
}
