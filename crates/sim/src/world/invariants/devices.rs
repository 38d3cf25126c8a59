//! Invariants about devices of nodes.

use super::broken;
use crate::node::Share;
use crate::world::{Outcome, World};
use muster_model::ids::JobAttempt;

/// No two jobs' processes have a device in common, as the node itself sees it. Unlike CPUs, devices are kept by jobs that are
/// stopped, and never shared.
pub(crate) fn invariant_no_device_is_used_twice(
    world: &World,
    node: usize,
    attempt: JobAttempt,
    share: &Share,
) -> Outcome {
    let here = &world.nodes[node];
    let mut others = here.machine.using_devices(&share.devices);
    others.remove(&attempt);
    if others.is_empty() {
        return Ok(());
    }
    broken(
        "invariant_no_device_is_used_twice",
        format!(
            "{}: launch {} of job {} gets devices {:?}, which {others:?} uses",
            here.name, attempt.attempt.0, attempt.job, share.devices
        ),
    )
}
