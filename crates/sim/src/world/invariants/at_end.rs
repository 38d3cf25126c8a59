//! Invariants when everything is over.

use super::{
    Outcome, after_events, broken, invariant_no_acknowledged_job_is_lost,
    invariant_steps_are_accounted_as_reported,
};
use crate::Violation;
use crate::world::World;
use crate::world::hostile_users::is_hostile;

/// When everything is over: no resources are held, no node knows anything, and no acknowledged job went astray.
pub(crate) fn invariant_nothing_is_left(world: &World) -> Outcome {
    let name = "invariant_nothing_is_left";
    let Some(controller) = &world.controller else {
        return Ok(());
    };
    after_events(world)?;
    invariant_no_acknowledged_job_is_lost(world)?;
    for node in &controller.writer.state().nodes {
        let all = node.config.job_cpus();
        let has_devices = node.used_gres.iter().any(|used| !used.is_empty());
        let has_resources = node.free_cpus != all || node.used_mib != 0 || has_devices;
        if has_resources || node.exclusive || !node.jobs.is_empty() {
            return broken(
                name,
                format!("node {} still has something in use: {node:?}", node.idx.0),
            );
        }
    }
    let blobs = &controller.writer.state().blobs;
    if !blobs.is_empty() {
        return broken(name, format!("{} scripts are kept", blobs.len()));
    }
    invariant_steps_are_accounted_as_reported(world)?;
    for (id, life) in &world.ledger.jobs {
        if !is_hostile(life.spec.owner.uid) && world.clients.sent(&life.spec.name).is_none() {
            return broken(
                name,
                format!("job {id} ({}) was never submitted", life.spec.name),
            );
        }
        if !life.purged {
            return broken(
                name,
                format!("job {id} is neither in the queue nor did it leave it"),
            );
        }
    }
    Ok(())
}

/// Leftovers long after the last fault, when everything should have ended.
pub(crate) fn invariant_everything_ends(world: &World) -> Violation {
    let mut left = Vec::new();
    match &world.controller {
        None => left.push("the controller does not run".to_owned()),
        Some(controller) => {
            for job in controller.writer.state().jobs.values().take(5) {
                left.push(format!(
                    "job {} is {} (completing {}), {:?}, attempt {}, holds {:?}",
                    job.id,
                    job.state.name(),
                    job.completing,
                    job.reason,
                    job.attempt.0,
                    job.nodes_held.iter().collect::<Vec<_>>()
                ));
            }
            for node in &controller.writer.state().nodes {
                left.push(format!(
                    "node {}: link {:?}, down {}, drain {}, jobs {:?}",
                    node.config.name, node.link, node.down, node.drain, node.jobs
                ));
            }
        }
    }
    for node in world.nodes.iter().filter(|node| !node.is_clean()) {
        left.push(node.remains());
    }
    if !world.sruns.is_empty() {
        left.push(format!("sruns {:?} wait", world.sruns.keys()));
    }
    if !world.clients.nothing_in_flight() {
        left.push("a request is not answered".to_owned());
    }
    Violation::new("invariant_everything_ends", left.join("; "))
}
