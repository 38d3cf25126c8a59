//! Invariants, one function each. Those about the controller compare it with the durable history ([`crate::ledger`]);
//! those about nodes compare orders with the processes there.

mod at_end;
mod devices;
mod time_limits;
mod within_time;

pub(crate) use at_end::{invariant_everything_ends, invariant_nothing_is_left};
pub(crate) use devices::invariant_no_device_is_used_twice;
pub(crate) use time_limits::{invariant_limits_are_enforced, invariant_limits_are_not_early};
pub(crate) use within_time::{
    invariant_nothing_is_held_by_nothing, invariant_requests_are_answered,
    invariant_resumed_scripts_go_on,
};

use super::Outcome;
use crate::Violation;
use crate::ledger::Launch;
use crate::node::{Kind, Share, TaskKey};
use crate::world::World;
use crate::world::accounting::{self, CAPPED, CAPPED_JOBS, LICENSE};
use crate::world::submission::Submission;
use muster_core::state::State;
use muster_model::command::Reply;
use muster_model::ids::{AttemptStep, BlobId, JobAttempt, JobId};
use muster_model::job::{ArrayRole, Job, JobState};
use muster_model::refusal::RefusalCode;
use muster_proto::node::{JobGrant, NumberedReport, Order, Report};
use std::collections::BTreeMap;

/// Time after which a connected node must know its orders, milliseconds.
const ORDER_ARRIVES_MS: u64 = 30_000;

fn broken<T>(invariant: &'static str, detail: String) -> Result<T, Violation> {
    Err(Violation::new(invariant, detail))
}

/// All that is compared whenever events became durable.
pub(crate) fn after_events(world: &World) -> Outcome {
    invariant_the_state_is_consistent(world)?;
    invariant_heterogeneous_jobs_are_whole(world)?;
    invariant_no_limit_is_exceeded(world)?;
    invariant_replay_gives_the_same_state(world)?;
    invariant_the_replica_is_the_state(world)
}

/// The core's own checks hold.
pub(crate) fn invariant_the_state_is_consistent(world: &World) -> Outcome {
    let Some(controller) = &world.controller else {
        return Ok(());
    };
    controller
        .writer
        .state()
        .check_invariants()
        .or_else(|detail| broken("invariant_the_state_is_consistent", detail))
}

/// A heterogeneous job runs as a whole or not at all.
pub(crate) fn invariant_heterogeneous_jobs_are_whole(world: &World) -> Outcome {
    let Some(controller) = &world.controller else {
        return Ok(());
    };
    let checked = controller.writer.state().check_het_jobs();
    checked.or_else(|detail| broken("invariant_heterogeneous_jobs_are_whole", detail))
}

/// Jobs that run hold no more licenses than there are, and are no more than limits allow. Counted anew, not by the
/// indexes that the scheduler goes by.
pub(crate) fn invariant_no_limit_is_exceeded(world: &World) -> Outcome {
    let Some(controller) = &world.controller else {
        return Ok(());
    };
    let state = controller.writer.state();
    let running = || {
        let all = state.active.iter().filter_map(|id| state.jobs.get(id));
        all.filter(|job| matches!(job.state, JobState::Running | JobState::Suspended))
    };
    let licenses = running().filter_map(|job| job.alloc.as_ref());
    let licenses = licenses.flat_map(|alloc| &alloc.licenses);
    let held: u32 = licenses.map(|license| license.count).sum();
    if held > LICENSE.1 {
        let detail = format!("{held} of {} licenses are held", LICENSE.1);
        return broken("invariant_no_limit_is_exceeded", detail);
    }
    if accounting::capped(world).is_none() {
        return Ok(());
    }
    let mut of_user: BTreeMap<u32, u32> = BTreeMap::new();
    for job in running().filter(|job| job.spec.qos.as_deref() == Some(CAPPED)) {
        *of_user.entry(job.spec.owner.uid).or_default() += 1;
    }
    let (all, most) = (of_user.values().sum(), of_user.values().max());
    let over = |count: u32, most: u32| count > most;
    if over(all, CAPPED_JOBS.0) || most.is_some_and(|most| over(*most, CAPPED_JOBS.1)) {
        let detail = format!("{all} jobs of QOS {CAPPED} run, by user {of_user:?}");
        return broken("invariant_no_limit_is_exceeded", detail);
    }
    Ok(())
}

/// The events that became durable, read back from their encoding, make the writer's state.
pub(crate) fn invariant_replay_gives_the_same_state(world: &World) -> Outcome {
    let Some(controller) = &world.controller else {
        return Ok(());
    };
    same(
        "invariant_replay_gives_the_same_state",
        "the writer's state",
        controller.writer.state(),
        "a replay of the durable events",
        &world.ledger.state,
    )
}

/// The writer's messages to the replica make the writer's state.
pub(crate) fn invariant_the_replica_is_the_state(world: &World) -> Outcome {
    let Some(controller) = &world.controller else {
        return Ok(());
    };
    let name = "invariant_the_replica_is_the_state";
    if controller.replica_at != world.ledger.position {
        let (replica, ledger) = (controller.replica_at, world.ledger.position);
        return broken(
            name,
            format!("the replica is at {replica}, the journal at {ledger}"),
        );
    }
    same(
        name,
        "the writer's state",
        controller.writer.state(),
        "the replica's",
        &controller.replica(),
    )
}

/// A state that was written and read again is the same.
pub(crate) fn invariant_a_snapshot_is_the_state(state: &State, bytes: &[u8]) -> Outcome {
    let name = "invariant_a_snapshot_is_the_state";
    match State::decode_snapshot(bytes) {
        Ok(read) => {
            read.check_invariants()
                .or_else(|detail| broken(name, detail))?;
            same(name, "the state", state, "its snapshot", &read)
        }
        Err(e) => broken(name, e.to_string()),
    }
}

/// A controller that starts has all that was durable, and nothing that was refused.
pub(crate) fn invariant_recovery_keeps_history(world: &World) -> Outcome {
    let Some(controller) = &world.controller else {
        return Ok(());
    };
    let name = "invariant_recovery_keeps_history";
    let (found, durable) = (controller.replica_at, world.ledger.position);
    if found != durable {
        return broken(
            name,
            format!("the journal ends at event {found}, {durable} was durable"),
        );
    }
    same(
        name,
        "the recovered state",
        controller.writer.state(),
        "the history",
        &world.ledger.state,
    )
}

/// Every submission whose acknowledgement arrived is there as it was submitted, or ran to its end and left the queue.
pub(crate) fn invariant_no_acknowledged_job_is_lost(world: &World) -> Outcome {
    let Some(controller) = &world.controller else {
        return Ok(());
    };
    let state = controller.writer.state();
    for (id, submission) in world.clients.submissions() {
        let purged = world.ledger.jobs.get(&id).is_some_and(|life| life.purged);
        let record = state.jobs.get(&id);
        let same = record.is_some_and(|job| job.spec.name == submission.name);
        if !(same || record.is_none() && (purged || state.arrays.contains_key(&id))) {
            return broken(
                "invariant_no_acknowledged_job_is_lost",
                format!(
                    "job {id} ({}) was acknowledged; the controller has {:?} there",
                    submission.name,
                    record.map(|job| &job.spec.name)
                ),
            );
        }
    }
    Ok(())
}

/// An acknowledged job is in the durable history, as it was asked for, under the number in the reply.
pub(crate) fn invariant_an_acknowledged_job_is_what_was_asked(
    world: &World,
    id: JobId,
    submission: &Submission,
) -> Outcome {
    let name = "invariant_an_acknowledged_job_is_what_was_asked";
    let Some(life) = world.ledger.jobs.get(&id) else {
        return broken(
            name,
            format!("job {id} ({}) is not in history", submission.name),
        );
    };
    let spec = &life.spec;
    let same = spec.name == submission.name
        && spec.ask.min_nodes == submission.ask.min_nodes
        && spec.ask.task_count() == submission.ask.task_count()
        && spec.ask.task_range == submission.ask.task_range
        && spec.array == submission.array
        && spec.owner.uid == submission.uid;
    if same {
        Ok(())
    } else {
        broken(
            name,
            format!("job {id} is {spec:?}, asked for was {submission:?}"),
        )
    }
}

/// A client that knows of a job finds it with the next read.
pub(crate) fn invariant_a_reply_is_visible_to_reads(world: &World, reply: &Reply) -> Outcome {
    let (Reply::Submitted { id, .. }, Some(controller)) = (reply, &world.controller) else {
        return Ok(());
    };
    if controller.replica().jobs.contains_key(id) {
        return Ok(());
    }
    broken(
        "invariant_a_reply_is_visible_to_reads",
        format!("job {id} was acknowledged and the replica does not have it"),
    )
}

/// A launch is ordered only for a start that is durable.
pub(crate) fn invariant_orders_rest_on_durable_events(world: &World, order: &Order) -> Outcome {
    let Order::Launch(grant) = order else {
        return Ok(());
    };
    if world.ledger.launch(grant.job, grant.attempt).is_some() {
        return Ok(());
    }
    broken(
        "invariant_orders_rest_on_durable_events",
        format!(
            "launch {} of job {} is ordered and not durable",
            grant.attempt.0, grant.job
        ),
    )
}

/// A launch names the node that gets it, as the durable allocation does.
pub(crate) fn invariant_a_launch_is_for_this_node(
    world: &World,
    node: usize,
    grant: &JobGrant,
) -> Outcome {
    let name = "invariant_a_launch_is_for_this_node";
    let here = &world.nodes[node].name;
    let share = grant.alloc.nodes.get(grant.position as usize);
    let launch = world.ledger.launch(grant.job, grant.attempt);
    let durable = launch.is_some_and(|l| l.has_had(grant.position, World::idx(node)));
    if share.is_none_or(|share| share.name != *here || share.cpus.is_empty()) || !durable {
        return broken(
            name,
            format!(
                "{here} gets a launch of job {} with share {share:?}",
                grant.job
            ),
        );
    }
    Ok(())
}

/// A node that was ordered to forget a job, and did, does not get the order again.
pub(crate) fn invariant_a_released_launch_is_not_ordered_again(
    world: &World,
    node: usize,
    attempt: JobAttempt,
) -> Outcome {
    let here = &world.nodes[node];
    if !here.released.contains(&attempt) {
        return Ok(());
    }
    broken(
        "invariant_a_released_launch_is_not_ordered_again",
        format!(
            "{}: launch {} of job {} again",
            here.name, attempt.attempt.0, attempt.job
        ),
    )
}

/// No launch starts its script twice on a node, reboots included.
pub(crate) fn invariant_no_attempt_starts_twice_on_a_node(
    world: &World,
    node: usize,
    attempt: JobAttempt,
) -> Outcome {
    if !world.truth.started.contains(&(node, attempt)) {
        return Ok(());
    }
    broken(
        "invariant_no_attempt_starts_twice_on_a_node",
        format!(
            "{}: launch {} of job {} ran before",
            world.nodes[node].name, attempt.attempt.0, attempt.job
        ),
    )
}

/// No task of a step starts twice, on whichever node.
pub(crate) fn invariant_no_task_starts_twice(world: &World, node: usize, key: TaskKey) -> Outcome {
    if !world.truth.tasks.contains(&key) {
        return Ok(());
    }
    let TaskKey {
        attempt,
        step,
        task,
    } = key;
    broken(
        "invariant_no_task_starts_twice",
        format!(
            "{}: task {task} of step {}.{step} (launch {}) ran before",
            world.nodes[node].name, attempt.job, attempt.attempt.0
        ),
    )
}

/// Nothing begins in a job that the controller knows to have left the node.
pub(crate) fn invariant_nothing_starts_in_a_released_job(
    world: &World,
    node: usize,
    attempt: JobAttempt,
) -> Outcome {
    let here = &world.nodes[node];
    if !here.released.contains(&attempt) {
        return Ok(());
    }
    broken(
        "invariant_nothing_starts_in_a_released_job",
        format!(
            "{}: a process starts in launch {} of job {}, which was released",
            here.name, attempt.attempt.0, attempt.job
        ),
    )
}

/// When a launcher says that a job has left the node, none of its processes runs there.
pub(crate) fn invariant_nothing_outlives_its_job(
    world: &World,
    node: usize,
    attempt: JobAttempt,
) -> Outcome {
    let here = &world.nodes[node];
    let is_left = |kind: Kind| match kind {
        Kind::Stepd(of) => {
            // One that waits for a step has none of the job's resources, and is ending.
            let has_step = |pid: &i32| !here.machine.stepds[pid].is_idle();
            let mut stepds = here.machine.stepds.keys();
            of == attempt
                && stepds.any(|pid| here.machine.stepds[pid].attempt == attempt && has_step(pid))
        }
        kind => kind.attempt() == Some(attempt),
    };
    let processes = here.machine.processes.iter();
    let mut live = processes.filter(|(_, p)| p.is_alive());
    match live.find(|(_, p)| is_left(p.kind)) {
        None => Ok(()),
        Some((pid, process)) => broken(
            "invariant_nothing_outlives_its_job",
            format!(
                "{}: launch {} of job {} is released, process {pid} is {:?}",
                here.name, attempt.attempt.0, attempt.job, process.kind
            ),
        ),
    }
}

/// No two jobs' processes have a CPU in common, as the node itself sees it, but for those of jobs that share, of jobs
/// that are stopped, and of those that an administrator resumed while others had their CPUs. A node that comes back after
/// it was given up is ordered to end what runs there before it gets anything new, and waits for that.
pub(crate) fn invariant_no_cpu_is_used_twice(
    world: &World,
    node: usize,
    attempt: JobAttempt,
    share: &Share,
) -> Outcome {
    let here = &world.nodes[node];
    let own = world.ledger.launch(attempt.job, attempt.attempt);
    let was_resumed = |other: &JobAttempt| {
        let launch = world.ledger.launch(other.job, other.attempt);
        let resumed = |a: Option<&Launch>, b: Option<&Launch>| {
            let at = a.and_then(|launch| launch.resumed_at);
            at.is_some() && at > b.map(|launch| launch.started_at)
        };
        resumed(launch, own) || resumed(own, launch)
    };
    // A script or a task that starts in a suspended job is stopped at once, and ended at once if the job ended meanwhile: the order to end
    // follows the one that started it.
    let key = (node, attempt);
    if world.truth.stopped.contains_key(&key) || world.truth.ended_stopped.contains(&key) {
        return Ok(());
    }
    let mut others = here
        .machine
        .using(&share.cpus, share.shared_with.as_deref());
    let is_stopped = |other: &JobAttempt| {
        let key = (node, *other);
        let launch = world.ledger.launch(other.job, other.attempt);
        world.truth.stopped.contains_key(&key)
            || world.truth.ended_stopped.contains(&key)
            // It ended by itself while the order to stop it was lost: its leftovers are ended, too.
            || launch.is_some_and(|launch| launch.ended_suspended)
    };
    others.retain(|other| *other != attempt && !was_resumed(other) && !is_stopped(other));
    if others.is_empty() {
        return Ok(());
    }
    broken(
        "invariant_no_cpu_is_used_twice",
        format!(
            "{}: launch {} of job {} gets CPUs {:?}, which {others:?} uses",
            here.name,
            attempt.attempt.0,
            attempt.job,
            share.cpus.iter().collect::<Vec<_>>()
        ),
    )
}

/// The script of a job that a node was ordered to stop stands still, soon after the order.
pub(crate) fn invariant_stopped_scripts_stand_still(world: &World) -> Outcome {
    for (&(node, attempt), &at) in &world.truth.stopped {
        let here = &world.nodes[node];
        // A launcher that was lost in between gets the order again with the next connection.
        let Some(connected) = world.connected_since(node) else {
            continue;
        };
        let latest = at.max(here.disturbed_at).max(connected);
        if world.now.saturating_sub(latest) < ORDER_ARRIVES_MS {
            continue;
        }
        let mut scripts = here.machine.processes.values();
        let goes_on = |p: &crate::node::Process| p.is_alive() && p.stopped.is_none();
        if scripts.any(|p| p.kind == Kind::Script(attempt) && goes_on(p)) {
            return broken(
                "invariant_stopped_scripts_stand_still",
                format!(
                    "{}: launch {} of job {} was ordered to stop and goes on",
                    here.name, attempt.attempt.0, attempt.job
                ),
            );
        }
    }
    Ok(())
}

/// A job runs under one attempt at a time. The one exception: an older attempt may still run on a node that was
/// declared down after that attempt started there and before the newer one started, because nobody could tell the
/// node; it is ended when the node connects again.
pub(crate) fn invariant_one_attempt_runs_at_once(
    world: &World,
    starts_on: usize,
    attempt: JobAttempt,
) -> Outcome {
    let Some(starts) = world.ledger.launch(attempt.job, attempt.attempt) else {
        return Ok(());
    };
    for (node, here) in world.nodes.iter().enumerate() {
        let live = here.machine.processes.values().filter(|p| p.is_alive());
        for other in live.filter_map(|p| p.kind.attempt()) {
            if other.job != attempt.job || other.attempt == attempt.attempt {
                continue;
            }
            let Some(runs) = world.ledger.launch(other.job, other.attempt) else {
                continue;
            };
            // An order to start the older one may also still have been on its way to the node that was given up.
            let (older_on, from, to) = if other.attempt < attempt.attempt {
                (node, runs.started_at, starts.started_at)
            } else {
                (starts_on, starts.started_at, runs.started_at)
            };
            let older_on = World::idx(older_on);
            if !world.ledger.was_down_between(older_on, from, to) {
                return broken(
                    "invariant_one_attempt_runs_at_once",
                    format!(
                        "job {}: launch {} starts on {} while launch {} runs on {}",
                        attempt.job,
                        attempt.attempt.0,
                        world.nodes[starts_on].name,
                        other.attempt.0,
                        here.name
                    ),
                );
            }
        }
    }
    Ok(())
}

/// A script's end that the controller acknowledged is in history: the launch has an end, and if the job was said to
/// have ended by itself, it has the status that the node saw.
pub(crate) fn invariant_observed_ends_are_recorded(
    world: &World,
    node: usize,
    report: &NumberedReport,
) -> Outcome {
    let Report::BatchEnded { exit, .. } = &report.report else {
        return Ok(());
    };
    let name = "invariant_observed_ends_are_recorded";
    let attempt = JobAttempt::new(report.job, report.attempt);
    let agent = &world.nodes[node].name;
    let Some(end) = world
        .ledger
        .launch(attempt.job, attempt.attempt)
        .and_then(|launch| launch.end)
    else {
        return broken(
            name,
            format!(
                "{agent} saw job {} end with {exit:?}; it was acknowledged, not recorded",
                attempt.job
            ),
        );
    };
    let by_itself = matches!(
        end.0,
        JobState::Completed | JobState::Failed | JobState::OutOfMemory
    ) && end.2;
    if by_itself && world.truth.exits.get(&attempt) == Some(exit) && end.1 != *exit {
        return broken(
            name,
            format!(
                "{agent} saw job {} end with {exit:?}, recorded {end:?}",
                attempt.job
            ),
        );
    }
    Ok(())
}

/// A step's end that the controller acknowledged is in history, as some agent has reported it, if the step's start is.
pub(crate) fn invariant_reported_steps_are_accounted(
    world: &World,
    node: usize,
    report: &NumberedReport,
) -> Outcome {
    let Report::StepEnded { step, .. } = &report.report else {
        return Ok(());
    };
    let Some(launch) = world.ledger.launch(report.job, report.attempt) else {
        return Ok(());
    };
    let is_accounted = launch.steps_ended.contains_key(step);
    if is_accounted || !launch.steps_started.contains(step) {
        return Ok(());
    }
    broken(
        "invariant_reported_steps_are_accounted",
        format!(
            "{} saw step {}.{step} of launch {} end; it was acknowledged, not recorded",
            world.nodes[node].name, report.job, report.attempt.0
        ),
    )
}

/// A node that is connected knows every job that the controller thinks it runs, soon after the order.
pub(crate) fn invariant_running_jobs_are_known_to_their_nodes(world: &World) -> Outcome {
    let Some(controller) = &world.controller else {
        return Ok(());
    };
    for job in controller.writer.state().jobs.values() {
        if !matches!(job.state, JobState::Running | JobState::Suspended) {
            continue;
        }
        let Some(launch) = world.ledger.launch(job.id, job.attempt) else {
            continue;
        };
        for position in job.nodes_held.iter() {
            let Some(idx) = launch.nodes().get(position as usize) else {
                continue;
            };
            let Some(connected) = world.connected_since(idx.0 as usize) else {
                continue;
            };
            let ordered = connected.max(launch.started_ms);
            let agent = &world.nodes[idx.0 as usize];
            let attempt = JobAttempt::new(job.id, job.attempt);
            // An agent whose launcher is lost is not connected for long.
            let knows = |l: &crate::node::LauncherProcess| l.machine.knows_job(attempt);
            if world.now.saturating_sub(ordered) > ORDER_ARRIVES_MS
                && !agent.launcher.as_ref().is_none_or(knows)
            {
                return broken(
                    "invariant_running_jobs_are_known_to_their_nodes",
                    format!(
                        "job {} runs on {} since {} s, which does not know it",
                        job.id,
                        agent.name,
                        (world.now - ordered) / 1000
                    ),
                );
            }
        }
    }
    Ok(())
}

/// No decision meets a fault; the writer outlives them and says so.
pub(crate) fn invariant_nothing_panics(reply: &Reply) -> Outcome {
    match reply {
        Reply::Refused(refusal) if refusal.detail.contains("met a fault") => {
            broken("invariant_nothing_panics", refusal.to_string())
        }
        _ => Ok(()),
    }
}

/// Nobody is refused because others ask for much, unless the queue is full.
pub(crate) fn invariant_refusals_have_a_reason(world: &World, reply: &Reply) -> Outcome {
    let (Reply::Refused(refusal), Some(controller)) = (reply, &world.controller) else {
        return Ok(());
    };
    let jobs = tasks(controller.writer.state());
    let most = u64::from(world.config.max_job_count);
    let full = jobs * 10 >= most * 8;
    let wrong = match refusal.code {
        RefusalCode::TooManyJobs => !full,
        RefusalCode::ProtocolError => true,
        _ => false,
    };
    if !wrong {
        return Ok(());
    }
    broken(
        "invariant_refusals_have_a_reason",
        format!("{refusal}; the queue holds {jobs} of {most} jobs"),
    )
}

/// Jobs of the queue, every task of an array counted.
fn tasks(state: &State) -> u64 {
    let of_record = |job: &Job| match &job.array {
        ArrayRole::Pending { indices } => indices.len(),
        ArrayRole::None | ArrayRole::Task { .. } => 1,
    };
    state.jobs.values().map(of_record).sum()
}

/// The controller's memory is bounded by its settings: records, and scripts of existing jobs.
pub(crate) fn invariant_memory_is_bounded(world: &World) -> Outcome {
    let Some(controller) = &world.controller else {
        return Ok(());
    };
    let name = "invariant_memory_is_bounded";
    let state = controller.writer.state();
    let (jobs, most) = (tasks(state), u64::from(world.config.max_job_count));
    // Users with few jobs have room beyond it.
    let most = most + most / 8;
    if jobs > most {
        return broken(name, format!("{jobs} jobs and tasks, the bound is {most}"));
    }
    let unused = |id: &&BlobId| state.blobs.get(id).is_none_or(|blob| blob.users == 0);
    match state.blobs.keys().find(unused) {
        None => Ok(()),
        Some(id) => broken(name, format!("no job has blob {id:?}, and it is kept")),
    }
}

/// A step whose end an agent has reported is in history, with the status that was reported, unless the machine that could repeat
/// the report was lost, or the disk did not take the step's result and the agent that had it in memory died.
pub(crate) fn invariant_steps_are_accounted_as_reported(world: &World) -> Outcome {
    for (key, reports) in &world.truth.step_ends {
        let AttemptStep { attempt, step } = key;
        let Some(launch) = world.ledger.launch(attempt.job, attempt.attempt) else {
            continue;
        };
        let lead = World::idx(reports.node);
        let is_lost = world.nodes[reports.node].boot != reports.boot
            || world
                .ledger
                .was_down_between(lead, launch.started_at, u64::MAX);
        let is_forgotten = world.truth.lost_results.contains(key)
            && world.nodes[reports.node].agent_lives != reports.agent_life;
        if is_lost || is_forgotten {
            continue;
        }
        // A start that came when the job was over is no part of it any more.
        if !launch.steps_started.contains(step) {
            continue;
        }
        let known = launch.steps_ended.get(step);
        if known.is_none_or(|exit| !reports.exits.contains(exit)) {
            return broken(
                "invariant_steps_are_accounted_as_reported",
                format!(
                    "step {}.{step} of launch {}: {known:?} is recorded, {:?} was reported",
                    attempt.job, attempt.attempt.0, reports.exits
                ),
            );
        }
    }
    Ok(())
}

fn same(invariant: &'static str, a_name: &str, a: &State, b_name: &str, b: &State) -> Outcome {
    if a.digest() == b.digest() {
        return Ok(());
    }
    let mut differs = Vec::new();
    for id in a.jobs.keys().chain(b.jobs.keys()) {
        let (one, two) = (a.jobs.get(id), b.jobs.get(id));
        // Notes about a job are no part of it.
        let noted = one.zip(two).map(|(one, two)| Job {
            reason: match one.is_startable() {
                true => two.reason,
                false => one.reason,
            },
            last_sched_eval: two.last_sched_eval,
            expected_start: two.expected_start,
            ..one.clone()
        });
        if noted.as_ref().or(one) != two {
            differs.push(format!("job {id}: {one:?} and {two:?}"));
        }
    }
    for (one, two) in a.nodes.iter().zip(&b.nodes) {
        if one != two {
            differs.push(format!("node {one:?} and {two:?}"));
        }
    }
    differs.truncate(3);
    broken(
        invariant,
        format!("{a_name} and {b_name} differ: {}", differs.join("; ")),
    )
}
