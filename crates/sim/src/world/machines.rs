//! Processes of nodes: they start, end by themselves, and get signals. Who waits for their end is woken.

use super::{Outcome, World, WorldEvent, stepd_tasks, trace};
use crate::Violation;
use crate::node::{Kind, Parent, Process, wait_status};
use crate::world::events::NodeEvent;
use crate::world::invariants;
use muster_model::ids::JobAttempt;
use muster_model::job::ExitStatus;
use muster_node_core::exit_status::exit_status;
use muster_node_core::signals::{SIGCONT, SIGINT, SIGKILL, SIGSTOP, SIGTERM};

/// Machines with their processes and sockets, and the world around them.
pub(super) struct Machines<'w> {
    pub(super) world: &'w mut World,
}

impl World {
    /// Machines with their processes and sockets, and the world around them.
    pub(super) fn machines(&mut self) -> Machines<'_> {
        Machines { world: self }
    }
}

impl World {
    /// Puts something that happens to a node into the queue.
    pub(super) fn node_later(&mut self, delay: u64, node: usize, event: NodeEvent) {
        self.later(delay, WorldEvent::Node { node, event });
    }

    /// As above, for an event of this boot of the machine.
    pub(super) fn machine_later(&mut self, delay: u64, node: usize, event: NodeEvent) {
        let boot = self.nodes[node].boot;
        let event = NodeEvent::InBoot(boot, Box::new(event));
        self.node_later(delay, node, event);
    }

    /// Time that a message between processes of a node takes, milliseconds.
    pub(super) fn hop(&mut self) -> u64 {
        match self.random.below(12) {
            0 => self.random.below(40),
            _ => self.random.below(2),
        }
    }

    /// Milliseconds since the boot of a node.
    pub(super) fn boot_ms(&self, node: usize) -> u64 {
        // A machine has run for a while when anything starts.
        10_000 + self.now - self.nodes[node].booted_at
    }
}

impl Machines<'_> {
    /// Starts a process that ends by itself after a while.
    pub(super) fn spawn(
        &mut self,
        node: usize,
        mut process: Process,
        lasts_ms: Option<u64>,
    ) -> i32 {
        process.ends_at = lasts_ms.map(|ms| self.world.now + ms);
        let timer = process.timer;
        let pid = self.world.nodes[node].machine.spawn(process);
        if let Some(ms) = lasts_ms {
            self.world
                .machine_later(ms, node, NodeEvent::ProcessEnds { pid, timer });
        }
        pid
    }

    /// Starts a process of a job's, with its CPUs and devices.
    pub(super) fn spawn_of_job(
        &mut self,
        node: usize,
        process: Process,
        lasts_ms: Option<u64>,
    ) -> Result<i32, Violation> {
        if let Some(attempt) = process.kind.attempt() {
            invariants::invariant_no_cpu_is_used_twice(self.world, node, attempt, &process.share)?;
            invariants::invariant_no_device_is_used_twice(
                self.world,
                node,
                attempt,
                &process.share,
            )?;
            invariants::invariant_one_attempt_runs_at_once(self.world, node, attempt)?;
            invariants::invariant_nothing_starts_in_a_released_job(self.world, node, attempt)?;
        }
        Ok(self.spawn(node, process, lasts_ms))
    }

    /// A process that has waited to be let go lasts for `lasts_ms` from now on.
    pub(super) fn let_go(&mut self, node: usize, pid: i32, lasts_ms: u64) {
        let now = self.world.now;
        let machine = &mut self.world.nodes[node].machine;
        let Some(process) = machine.processes.get_mut(&pid).filter(|p| p.is_alive()) else {
            return;
        };
        match &mut process.stopped {
            Some(left) => *left = lasts_ms,
            None => {
                process.ends_at = Some(now + lasts_ms);
                let timer = process.timer;
                self.world
                    .machine_later(lasts_ms, node, NodeEvent::ProcessEnds { pid, timer });
            }
        }
    }

    /// A process ends by itself.
    pub(super) fn process_ends_itself(&mut self, node: usize, pid: i32, timer: u64) -> Outcome {
        let process = self.world.nodes[node].machine.live(pid);
        let is_due = |p: &&Process| p.timer == timer && p.ends_at == Some(self.world.now);
        let Some(process) = process.filter(is_due) else {
            return Ok(());
        };
        let (kind, status, uid) = (process.kind, process.status, process.uid);
        if let Kind::Script(attempt) = kind {
            let name = &self.world.nodes[node].name;
            let exit = exit_status(status);
            trace!(
                self.world,
                "{name}: {}/{} ends {exit:?}", attempt.job, attempt.attempt.0
            );
            if process.failure.is_none() {
                self.world.truth.exits.insert(attempt, exit);
            }
            self.leave_orphan(node, attempt, None, uid);
        }
        self.end_process(node, pid, status)
    }

    /// Sometimes something goes on in the background that a script or a task has started.
    pub(super) fn leave_orphan(
        &mut self,
        node: usize,
        attempt: JobAttempt,
        daemon: Option<i32>,
        uid: u32,
    ) {
        if !self.world.random.one_in(6) {
            return;
        }
        let parent = match self.world.nodes[node].launcher {
            Some(_) => Parent::Launcher,
            None => Parent::Init,
        };
        let mut orphan = Process::new(
            Kind::Orphan(attempt, daemon),
            parent,
            uid,
            self.world.boot_ms(node),
        );
        orphan.share = self.world.share_of(node, attempt);
        orphan.ignores_term = self.world.random.one_in(2);
        let lasts_ms = match self.world.random.one_in(3) {
            true => None,
            false => Some(self.world.random.around(20_000)),
        };
        self.spawn(node, orphan, lasts_ms);
    }

    /// A process ends with this wait status.
    pub(super) fn end_process(&mut self, node: usize, pid: i32, status: i32) -> Outcome {
        let machine = &mut self.world.nodes[node].machine;
        let Some(process) = machine.processes.get_mut(&pid).filter(|p| p.is_alive()) else {
            return Ok(());
        };
        process.ended = Some(status);
        let (kind, parent, uid) = (process.kind, process.parent, process.uid);
        if let Kind::Stepd(attempt) = kind {
            self.world.stepd(node, pid).end(attempt, uid);
        }
        if let Kind::Script(attempt) = kind {
            self.world.sruns().lose_script(node, attempt);
        }
        if let Kind::Task(key) = kind {
            let exit = exit_status(status);
            self.world.truth.task_ends.insert(key, exit);
        }
        match parent {
            Parent::Launcher => self.world.launchers().wake_soon(node),
            Parent::Stepd(daemon) => {
                self.world.nodes[node].machine.processes.remove(&pid);
                stepd_tasks::child_ended(
                    &mut self.world.stepd(node, daemon),
                    (pid, kind),
                    status,
                    uid,
                );
            }
            Parent::Init => drop(self.world.nodes[node].machine.processes.remove(&pid)),
        }
        let tells = self.world.random.one_in(2);
        if let Some(launcher) = &mut self.world.nodes[node].launcher
            && launcher.watched.remove(&pid)
        {
            launcher.watched_ended.insert(pid, tells.then_some(status));
            self.world.launchers().wake_soon(node);
        }
        Ok(())
    }

    /// A process gets a signal.
    pub(super) fn signal_process(&mut self, node: usize, pid: i32, signal: i32) -> Outcome {
        let now = self.world.now;
        let delay = self.world.random.between(1, 400);
        let machine = &mut self.world.nodes[node].machine;
        let Some(process) = machine.processes.get_mut(&pid).filter(|p| p.is_alive()) else {
            return Ok(());
        };
        match signal {
            SIGKILL => return self.end_process(node, pid, SIGKILL),
            SIGSTOP if process.stopped.is_none() => {
                let left = process
                    .ends_at
                    .map_or(u64::MAX, |at| at.saturating_sub(now));
                process.stopped = Some(left);
                process.ends_at = None;
                process.timer += 1;
            }
            SIGCONT => {
                let Some(left) = process.stopped.take() else {
                    return Ok(());
                };
                process.timer += 1;
                let wakes = match std::mem::take(&mut process.has_pending_term) {
                    true => {
                        process.status = SIGTERM;
                        delay
                    }
                    false => left,
                };
                if wakes != u64::MAX {
                    process.ends_at = Some(now + wakes);
                    let timer = process.timer;
                    self.world
                        .machine_later(wakes, node, NodeEvent::ProcessEnds { pid, timer });
                }
            }
            SIGTERM | SIGINT => {
                if let Kind::Stepd(_) = process.kind {
                    if let Some(stepd) = machine.stepds.get_mut(&pid) {
                        stepd.is_terminated = true;
                    }
                    self.world.wake_stepd(node, pid);
                } else if process.stopped.is_some() {
                    process.has_pending_term = !process.ignores_term;
                } else if !process.ignores_term {
                    let event = NodeEvent::Killed { pid, signal };
                    self.world.machine_later(delay, node, event);
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// A process ends by a signal that it got a while ago.
    pub(super) fn process_is_killed(&mut self, node: usize, pid: i32, signal: i32) -> Outcome {
        let process = self.world.nodes[node].machine.live(pid);
        if process.is_none_or(|p| p.stopped.is_some()) {
            return Ok(());
        }
        let exit = ExitStatus {
            code: 0,
            signal: signal.unsigned_abs(),
        };
        self.end_process(node, pid, wait_status(exit))
    }
}
