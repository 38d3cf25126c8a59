//! Invariants about what has to happen within a time.

use crate::Violation;
use crate::node::Kind;
use crate::world::{Outcome, World};
use muster_model::ids::JobAttempt;
use muster_model::job::JobState;
use muster_node_core::agent::view;
use std::collections::BTreeSet;

/// Time in which a step gives back its share of a node that runs nothing of it, milliseconds.
const GIVEN_BACK_MS: u64 = 90_000;
/// Time in which a request that reached the controller is answered if nothing is wrong with it, milliseconds.
const ANSWERED_WITHIN_MS: u64 = 60_000;
/// Time in which a script of a job that was resumed goes on, milliseconds.
const GOES_ON_WITHIN_MS: u64 = 30_000;

/// Resources that steps hold of their job's nodes are used by some process, or given back soon.
pub(crate) fn invariant_nothing_is_held_by_nothing(world: &mut World) -> Outcome {
    let mut idle = BTreeSet::new();
    for lead in &world.nodes {
        let Some(agent) = lead.agent.as_ref().filter(|_| lead.is_welcomed()) else {
            continue;
        };
        for (attempt, step, name) in view::held_parts(&agent.machine) {
            let at = world.nodes.iter().position(|n| n.name == name);
            let Some(at) = at else { continue };
            let is_it = |stepd: &crate::node::StepdProcess| {
                let order = stepd.order();
                order.is_some_and(|o| o.attempt == attempt && o.launch.step == step)
            };
            let here = &world.nodes[at];
            if !here.machine.stepds.values().any(is_it) && here.is_welcomed() {
                idle.insert((attempt, step, at));
            }
        }
    }
    world.truth.held_idle.retain(|key, _| idle.contains(key));
    for key in idle {
        let since = *world.truth.held_idle.entry(key).or_insert(world.now);
        let (attempt, step, at) = key;
        let disturbed = world.nodes.iter().map(|n| n.disturbed_at).max();
        let since = since.max(disturbed.unwrap_or(0));
        if world.now - since > GIVEN_BACK_MS {
            return Err(crate::Violation::new(
                "invariant_nothing_is_held_by_nothing",
                format!(
                    "step {}.{step} of launch {} holds what it had of {}, which runs nothing of it",
                    attempt.job, attempt.attempt.0, world.nodes[at].name
                ),
            ));
        }
    }
    Ok(())
}

/// A script whose job runs as far as the controller knows goes on, soon after its node is connected.
pub(crate) fn invariant_resumed_scripts_go_on(world: &mut World) -> Outcome {
    let Some(controller) = &world.controller else {
        return Ok(());
    };
    // In a turn that waits for space on the disk a job may be resumed: nodes are ordered to when that is written.
    if world.faults.blocked {
        world.truth.halted.clear();
        return Ok(());
    }
    let jobs = &controller.writer.state().jobs;
    let runs = |attempt: JobAttempt| {
        let job = jobs
            .get(&attempt.job)
            .filter(|job| job.attempt == attempt.attempt);
        job.is_some_and(|job| job.state == JobState::Running && !job.completing)
    };
    let mut halted = BTreeSet::new();
    for (at, node) in world.nodes.iter().enumerate() {
        let all = node.machine.processes.values();
        let stopped = all.filter(|p| p.is_alive() && p.stopped.is_some());
        let scripts = stopped.filter_map(|p| match p.kind {
            Kind::Script(attempt) => Some(attempt),
            _ => None,
        });
        if world.connected_since(at).is_some() {
            halted.extend(
                scripts
                    .filter(|attempt| runs(*attempt))
                    .map(|attempt| (at, attempt)),
            );
        }
    }
    world.truth.halted.retain(|key, _| halted.contains(key));
    for key in halted {
        let since = *world.truth.halted.entry(key).or_insert(world.now);
        let connected = world.connected_since(key.0).unwrap_or(world.now);
        let since = since.max(connected).max(world.nodes[key.0].disturbed_at);
        if world.now - since > GOES_ON_WITHIN_MS {
            let (name, attempt) = (&world.nodes[key.0].name, key.1);
            let (job, attempt) = (attempt.job, attempt.attempt.0);
            let detail = format!("{name}: launch {attempt} of job {job} stands still");
            return Err(Violation::new("invariant_resumed_scripts_go_on", detail));
        }
    }
    Ok(())
}

/// Each client gets an answer, or finds the controller gone and asks again.
pub(crate) fn invariant_requests_are_answered(world: &World) -> Outcome {
    let excused = world.controller.is_none() || world.faults.storage_may_fail();
    let since = world.faults.able_since;
    if excused {
        return Ok(());
    }
    let waits = |at: u64| world.now.saturating_sub(at.max(since)) > ANSWERED_WITHIN_MS;
    match world
        .clients
        .oldest_at_writer()
        .filter(|(_, at)| waits(*at))
    {
        None => Ok(()),
        Some((id, at)) => Err(Violation::new(
            "invariant_requests_are_answered",
            format!(
                "request {id} has been at the controller for {} s and is not answered",
                (world.now - at) / 1000
            ),
        )),
    }
}
