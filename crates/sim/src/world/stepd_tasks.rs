//! The tasks of a step daemon, and the daemons of nodes below.

use super::stepds::StepdExecutor;
use super::{Outcome, trace};
use crate::node::{
    BelowNode, Direction, Kind, LinkClient, Parent, Process, Share, StepTasks, StepdProcess,
    StreamKey, TaskKey, wait_status,
};
use crate::world::invariants;
use crate::{Plant, Violation};
use muster_model::job::ExitStatus;
use muster_node_core::messages::StepOrder;
use muster_node_core::signals::SIGKILL;
use muster_node_core::stepd::tree::BranchHead;
use muster_node_core::stepd::{Action, Event, StartedTasks};
use std::collections::BTreeSet;

/// Carries out actions about the tasks and the nodes below, while there is a step.
pub(super) fn execute_for_tasks(executor: &mut StepdExecutor<'_>, action: Action) -> Outcome {
    let Some(order) = executor.process().and_then(|p| p.order.clone()) else {
        return Ok(());
    };
    let (node, pid) = (executor.node, executor.pid);
    match action {
        Action::StartHost(_) => {
            executor.answer(Event::HostStarted(Err("there is no host here".to_owned())));
        }
        Action::StartTasks => {
            let started = start_tasks(executor, &order)?;
            executor.answer(Event::TasksStarted(started));
        }
        Action::ReleaseTasks => release_tasks(executor),
        Action::StartEpilog { task, .. } => {
            let start_ms = executor.world.boot_ms(node);
            let uid = order.user.uid;
            let process = Process::new(Kind::Helper, Parent::Stepd(pid), uid, start_ms);
            let lasts_ms = executor.world.random.around(10);
            let epilog = executor
                .world
                .machines()
                .spawn(node, process, Some(lasts_ms));
            executor.answer(Event::EpilogStarted(task, Some(epilog)));
        }
        Action::SignalTasks(signal) | Action::SignalAsked(signal) => {
            return signal_below(executor, signal);
        }
        Action::SignalTask(task, signal) => {
            return executor.world.machines().signal_process(node, task, signal);
        }
        Action::KillRemnants => {
            return signal_below(executor, SIGKILL);
        }
        Action::ConnectBelow(branches) => connect_below(executor, branches),
        Action::SendBelow(position, frame) => {
            let below = executor.process().and_then(|p| p.below.get(&position));
            if let Some(link) = below.map(|b| b.link) {
                executor
                    .world
                    .step_network()
                    .send(link, Direction::Down, &frame);
            }
        }
        Action::ReadHost => executor.answer(Event::HostRead),
        // Tasks here read nothing, and have no terminal.
        Action::EndInput | Action::Feed(..) | Action::SetWindow(..) => {}
        Action::SendHost(_) | Action::KillHost | Action::RemoveLeftovers { .. } => {}
        other => {
            let detail = format!("nothing carries out {other:?}");
            return Err(Violation::new("invariant_actions_are_carried_out", detail));
        }
    }
    Ok(())
}

fn signal_below(executor: &mut StepdExecutor<'_>, signal: i32) -> Outcome {
    let below = executor.world.nodes[executor.node]
        .machine
        .below(executor.pid);
    below.into_iter().try_for_each(|pid| {
        executor
            .world
            .machines()
            .signal_process(executor.node, pid, signal)
    })
}

fn connect_below(executor: &mut StepdExecutor<'_>, branches: Vec<BranchHead>) {
    let (node, pid) = (executor.node, executor.pid);
    let mut lost = Vec::new();
    for branch in branches {
        let client = LinkClient::Stepd(node, pid);
        match executor
            .world
            .step_network()
            .connect(node, client, &branch.address)
        {
            Some(link) => {
                let greeting = &branch.greeting;
                executor
                    .world
                    .step_network()
                    .send(link, Direction::Down, greeting);
                if let Some(process) = executor.process() {
                    let below = BelowNode {
                        link,
                        is_over: false,
                    };
                    process.below.insert(branch.position, below);
                }
            }
            None => lost.push(branch.position),
        }
    }
    executor.answer(Event::BelowConnected(lost));
}

fn start_tasks(
    executor: &mut StepdExecutor<'_>,
    order: &StepOrder,
) -> Result<StartedTasks, Violation> {
    let (node, attempt, launch) = (executor.node, order.attempt, &order.launch);
    let numbers = launch.tasks.get(launch.position as usize);
    let mut numbers = numbers.cloned().unwrap_or_default();
    if executor.world.planted(Plant::TaskTwice) && executor.world.random.one_in(4) {
        numbers.extend(numbers.first().copied());
    }
    if executor.world.nodes[node]
        .disk
        .lacks_processes(executor.world.now)
    {
        return Ok(StartedTasks {
            error: Some("no more processes".to_owned()),
            ..StartedTasks::default()
        });
    }
    let name = executor.name().to_owned();
    let (job, step) = (attempt.job, launch.step);
    trace!(
        executor.world,
        "{name}: step {job}.{step} runs tasks {numbers:?}"
    );
    let mut started = StartedTasks {
        are_held: !order.direct && executor.world.random.one_in(2),
        ..StartedTasks::default()
    };
    let mut tasks = StepTasks::default();
    for number in numbers {
        let (pid, lasts_ms) = start_task(executor, order, number, started.are_held)?;
        started.pids.push(pid);
        if started.are_held {
            tasks.held.push((pid, lasts_ms));
        }
        if !order.direct {
            let holders = BTreeSet::from([pid]);
            let stream = |is_stderr| StreamKey {
                task: number,
                is_stderr,
            };
            tasks.streams.insert(stream(false), holders.clone());
            tasks.streams.insert(stream(true), holders);
            if executor.world.random.one_in(2) {
                tasks
                    .output
                    .push_back((stream(false), b"a line\n".to_vec()));
            }
        }
    }
    started.outputs = tasks.streams.len();
    if started.are_held {
        tasks.prepared_at = Some(executor.world.now + executor.world.hop());
    }
    if let Some(process) = executor.process() {
        process.tasks = tasks;
    }
    Ok(started)
}

/// Starts a task: its process, and how long it lasts.
fn start_task(
    executor: &mut StepdExecutor<'_>,
    order: &StepOrder,
    number: u32,
    is_held: bool,
) -> Result<(i32, u64), Violation> {
    let (node, attempt, step) = (executor.node, order.attempt, order.launch.step);
    let world = &mut *executor.world;
    let key = TaskKey {
        attempt,
        step,
        task: number,
    };
    invariants::invariant_no_task_starts_twice(world, node, key)?;
    world.truth.tasks.insert(key);
    // The tasks of a daemon that had its order before the job was stopped begin all the same.
    let stopped = world.truth.stopped.get(&(node, attempt));
    let begun = world.truth.begun.get(&(node, attempt, step));
    let is_late = stopped.is_some_and(|at| begun.is_some_and(|begun| begun <= at));
    let kind = Kind::Task(key);
    let (uid, start_ms) = (order.user.uid, world.boot_ms(node));
    let mut process = Process::new(kind, Parent::Stepd(executor.pid), uid, start_ms);
    process.share = Share {
        cpus: order.launch.cpus.clone(),
        devices: order.launch.gres.clone(),
        ..world.share_of(node, attempt)
    };
    process.ignores_term = world.random.one_in(5);
    process.status = wait_status(match world.random.below(6) {
        0 => ExitStatus {
            code: world.random.small(1, 255),
            signal: 0,
        },
        1 => ExitStatus {
            code: 0,
            signal: 11,
        },
        _ => ExitStatus::default(),
    });
    let lasts_ms = match world.random.one_in(3) {
        true => world.random.below(20),
        false => world.random.around(4_000),
    };
    let ends_in = (!is_held).then_some(lasts_ms);
    let pid = match is_late {
        true => world.machines().spawn(node, process, ends_in),
        false => world.machines().spawn_of_job(node, process, ends_in)?,
    };
    Ok((pid, lasts_ms))
}

fn release_tasks(executor: &mut StepdExecutor<'_>) {
    let held = executor
        .process()
        .map(|p| std::mem::take(&mut p.tasks.held))
        .unwrap_or_default();
    for (pid, lasts_ms) in held {
        executor
            .world
            .machines()
            .let_go(executor.node, pid, lasts_ms);
    }
}

/// A process below has ended. Sometimes a task has started something that goes on.
pub(super) fn child_ended(
    executor: &mut StepdExecutor<'_>,
    (child, kind): (i32, Kind),
    status: i32,
    uid: u32,
) {
    if let Kind::Task(TaskKey { attempt, .. }) = kind
        && executor.world.random.one_in(6)
    {
        let start_ms = executor.world.boot_ms(executor.node);
        let kind = Kind::Orphan(attempt, Some(executor.pid));
        let mut orphan = Process::new(kind, Parent::Stepd(executor.pid), uid, start_ms);
        orphan.share = executor.world.share_of(executor.node, attempt);
        orphan.ignores_term = executor.world.random.one_in(2);
        let lasts_ms = executor.world.random.around(20_000);
        let lasts_ms = Some(lasts_ms).filter(|_| executor.world.random.one_in(2));
        let orphan = executor
            .world
            .machines()
            .spawn(executor.node, orphan, lasts_ms);
        if let Some(process) = executor.process() {
            let streams = process.tasks.streams.values_mut();
            for holders in streams.filter(|holders| holders.contains(&child)) {
                holders.insert(orphan);
            }
        }
    }
    if let Some(process) = executor.process() {
        process.note_ended(child, status);
    }
    executor.world.wake_stepd(executor.node, executor.pid);
}

impl StepdProcess {
    /// A process below has ended: streams that no other holds open have ended with it.
    pub(crate) fn note_ended(&mut self, pid: i32, status: i32) {
        self.ended.push_back((pid, status));
        let tasks = &mut self.tasks;
        for (key, holders) in &mut tasks.streams {
            if holders.remove(&pid) && holders.is_empty() {
                tasks.output.push_back((*key, Vec::new()));
            }
        }
        tasks.streams.retain(|_, holders| !holders.is_empty());
    }
}
