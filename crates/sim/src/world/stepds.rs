//! The executor of step daemons: their sockets, tasks and files.

use super::nodes::{NodeEvent, Victim};
use super::{Outcome, World, trace};
use crate::invariants;
use crate::node::{
    AgentInput, ChannelId, Down, Kind, Parent, Process, SimStepd, Sockets, StepdInput, StepdOutput,
    wait_status,
};
use muster_model::job::ExitStatus;
use muster_node_core::messages::{JobAttempt, StepdEvent};

/// Inputs that one wake-up of a daemon takes: more is a spin.
const INPUTS_MAX: u32 = 1000;

impl World {
    /// A channel has something for a step daemon.
    pub(super) fn wake_stepd_of(&mut self, node: usize, channel: ChannelId) {
        let channels = &self.nodes[node].machine.channels;
        if let Some(pid) = channels.get(&channel).and_then(|c| c.stepd) {
            let delay = self.hop();
            self.machine_later(delay, node, NodeEvent::StepdWakes(pid));
        }
    }

    /// Agent or launcher closes its end.
    pub(super) fn close_upper(&mut self, node: usize, channel: ChannelId) {
        let channels = &mut self.nodes[node].machine.channels;
        let Some(open) = channels.get_mut(&channel) else {
            return;
        };
        open.is_upper_closed = true;
        // What was not read is lost.
        open.up.clear();
        match open.is_lower_closed {
            true => drop(channels.remove(&channel)),
            false => self.wake_stepd_of(node, channel),
        }
    }

    /// The daemon's end is closed, by the daemon or by who has it.
    pub(super) fn close_lower(&mut self, node: usize, channel: ChannelId) {
        let channels = &mut self.nodes[node].machine.channels;
        let Some(open) = channels.get_mut(&channel) else {
            return;
        };
        open.is_lower_closed = true;
        let down = std::mem::take(&mut open.down);
        match open.is_upper_closed {
            true => drop(channels.remove(&channel)),
            false => self.wake_upper(node, channel),
        }
        for down in down {
            if let Down::Command(_, Some(agent)) = down {
                self.close_lower(node, agent);
            }
        }
    }

    /// Something is to be read at the upper end of a channel.
    fn wake_upper(&mut self, node: usize, channel: ChannelId) {
        let agent = self.nodes[node].agent.as_ref();
        let of_agent = agent.and_then(|a| {
            let mut all = a.stepds.iter();
            all.find(|(_, of)| **of == channel).map(|(id, _)| *id)
        });
        match of_agent {
            Some(stepd) => self.agent_input(node, AgentInput::StepdReadable(stepd)),
            None => self.wake_launcher(node),
        }
    }

    fn sockets(&self, node: usize, stepd: &SimStepd) -> Sockets {
        let channels = &self.nodes[node].machine.channels;
        let of = |id: Option<ChannelId>| id.and_then(|id| channels.get(&id));
        let launcher = of(stepd.launcher_channel);
        let is_open = |c: &crate::node::Channel| !c.is_upper_closed;
        Sockets {
            is_launcher_open: launcher.is_some_and(is_open),
            is_all_read: launcher.is_some_and(|c| c.up.is_empty()),
            is_agent_open: of(stepd.agent_channel).is_some_and(is_open),
        }
    }

    /// A daemon looks what there is.
    pub(super) fn stepd_wakes(&mut self, node: usize, pid: i32) -> Outcome {
        for _ in 0..INPUTS_MAX {
            let Some(input) = self.next_stepd_input(node, pid) else {
                return Ok(());
            };
            self.message_arrives(node, Victim::Stepd)?;
            self.stepd_input(node, pid, input)?;
        }
        let detail = format!("{}: step daemon {pid}", self.nodes[node].name);
        Err(crate::Violation::new("invariant_daemons_sleep", detail))
    }

    fn next_stepd_input(&mut self, node: usize, pid: i32) -> Option<StepdInput> {
        let machine = &mut self.nodes[node].machine;
        machine.live(pid)?;
        let stepd = machine.stepds.get_mut(&pid)?;
        if let Some(id) = stepd.launcher_channel {
            let channel = machine.channels.get_mut(&id)?;
            match channel.down.pop_front() {
                Some(Down::Command(command, agent)) => {
                    if let Some(agent) = agent {
                        let before = stepd.agent_channel.replace(agent);
                        if let Some(channel) = machine.channels.get_mut(&agent) {
                            channel.stepd = Some(pid);
                        }
                        if let Some(before) = before {
                            self.close_lower(node, before);
                        }
                    }
                    return Some(StepdInput::Launcher(*command));
                }
                Some(Down::Streams(_)) => return None,
                None if channel.is_upper_closed => {
                    stepd.launcher_channel = None;
                    self.close_lower(node, id);
                    return Some(StepdInput::LauncherClosed);
                }
                None => {}
            }
        }
        let id = stepd.agent_channel?;
        let channel = machine.channels.get_mut(&id)?;
        match channel.down.front() {
            Some(Down::Streams(_)) => match channel.down.pop_front() {
                Some(Down::Streams(srun)) => Some(StepdInput::Srun(srun)),
                _ => None,
            },
            // A step waits until the one before is over.
            Some(Down::Command(..)) if !stepd.is_waiting() => None,
            Some(Down::Command(..)) => match channel.down.pop_front() {
                Some(Down::Command(command, _)) => Some(StepdInput::Agent(*command)),
                _ => None,
            },
            None if channel.is_upper_closed => {
                stepd.agent_channel = None;
                self.close_lower(node, id);
                Some(StepdInput::AgentClosed)
            }
            None => None,
        }
    }

    /// Another launcher asks a daemon what it runs, by a channel that it has made.
    pub(super) fn adopt_stepd(&mut self, node: usize, pid: i32, channel: ChannelId) -> Outcome {
        let machine = &mut self.nodes[node].machine;
        let Some(stepd) = machine.stepds.get_mut(&pid) else {
            return Ok(());
        };
        let before = stepd.launcher_channel.replace(channel);
        if let Some(open) = machine.channels.get_mut(&channel) {
            open.stepd = Some(pid);
        }
        if let Some(before) = before {
            self.close_lower(node, before);
        }
        self.stepd_input(node, pid, StepdInput::Adopted)
    }

    /// Gives a daemon an input, and does what follows.
    pub(super) fn stepd_input(&mut self, node: usize, pid: i32, input: StepdInput) -> Outcome {
        if self.nodes[node].machine.live(pid).is_none() {
            if let StepdInput::Srun(srun) = input {
                self.srun_loses_stepd(srun, node, pid);
            }
            return Ok(());
        }
        let Some(mut stepd) = self.nodes[node].machine.stepds.remove(&pid) else {
            return Ok(());
        };
        let (sockets, now) = (self.sockets(node, &stepd), self.time());
        let mut outputs = Vec::new();
        let was_waiting = stepd.is_waiting();
        stepd.on_input(input, sockets, now, &mut outputs);
        let (run, waits) = (stepd.run, stepd.is_waiting());
        self.nodes[node].machine.stepds.insert(pid, stepd);
        for output in outputs {
            self.stepd_output(node, (pid, run), output)?;
            if self.nodes[node].machine.live(pid).is_none() {
                return Ok(());
            }
        }
        if waits && !was_waiting {
            // A step may have waited for that.
            let delay = self.hop();
            self.machine_later(delay, node, NodeEvent::StepdWakes(pid));
        }
        Ok(())
    }

    fn stepd_output(
        &mut self,
        node: usize,
        (pid, run): (i32, JobAttempt),
        output: StepdOutput,
    ) -> Outcome {
        match output {
            StepdOutput::StartTasks(numbers) => self.start_tasks(node, (pid, run), &numbers),
            StepdOutput::SignalTasks(signal) => {
                let tasks = self.nodes[node].machine.below(pid);
                tasks
                    .into_iter()
                    .try_for_each(|task| self.signal_process(node, task, signal))
            }
            StepdOutput::ToLauncher(event) => {
                self.send_up(node, pid, event, |stepd| stepd.launcher_channel);
                Ok(())
            }
            StepdOutput::ToAgent(event) => {
                self.send_up(node, pid, event, |stepd| stepd.agent_channel);
                Ok(())
            }
            StepdOutput::Leave(step, end, kept) => {
                let (now, disk) = (self.now, &mut self.nodes[node].disk);
                if !disk.leave((run, step), *end, kept, now) {
                    trace!(
                        self,
                        "{}: the result of step {}.{step} is lost", self.nodes[node].name, run.job
                    );
                    self.nodes[node].disturbed_at = self.now;
                }
                Ok(())
            }
            StepdOutput::SetTimer(timer, ms) => {
                let event = NodeEvent::StepdInput(pid, Box::new(StepdInput::Due(timer)));
                self.machine_later(ms, node, event);
                Ok(())
            }
            StepdOutput::PartFrom(srun) => {
                self.srun_loses_stepd(srun, node, pid);
                Ok(())
            }
            StepdOutput::Exit => self.end_process(node, pid, 0),
        }
    }

    fn send_up(
        &mut self,
        node: usize,
        pid: i32,
        event: StepdEvent,
        by: impl Fn(&SimStepd) -> Option<ChannelId>,
    ) {
        let machine = &mut self.nodes[node].machine;
        let Some(id) = machine.stepds.get(&pid).and_then(by) else {
            return;
        };
        let Some(channel) = machine.channels.get_mut(&id) else {
            return;
        };
        if !channel.is_upper_closed {
            channel.up.push_back(event);
            self.wake_upper(node, id);
        }
    }

    fn start_tasks(
        &mut self,
        node: usize,
        (pid, run): (i32, JobAttempt),
        numbers: &[u32],
    ) -> Outcome {
        let stepd = self.nodes[node].machine.stepds.get(&pid);
        let Some(next) = stepd.and_then(SimStepd::order) else {
            return Ok(());
        };
        let (step, uid) = (next.order.launch.step, next.order.user.uid);
        let cpus = next.order.launch.cpus.clone();
        trace!(
            self,
            "{}: step {}.{step} runs tasks {numbers:?}", self.nodes[node].name, run.job
        );
        let share = crate::node::Share {
            cpus,
            ..self.share_of(node, run)
        };
        // The tasks of a daemon that had its order before the job was stopped begin all the same.
        let stopped = self.truth.stopped.get(&(node, run));
        let begun = self.truth.begun.get(&(node, run, step));
        let is_late = stopped.is_some_and(|at| begun.is_some_and(|begun| begun <= at));
        for number in numbers {
            invariants::invariant_no_task_starts_twice(self, node, (run, step, *number))?;
            self.truth.tasks.insert((run, step, *number));
            let kind = Kind::Task(run, step, *number);
            let start_ms = self.boot_ms(node);
            let mut process = Process::new(kind, Parent::Stepd(pid), uid, start_ms);
            process.share = share.clone();
            process.ignores_term = self.random.one_in(5);
            let exit = match self.random.below(6) {
                0 => ExitStatus {
                    code: self.random.small(1, 255),
                    signal: 0,
                },
                1 => ExitStatus {
                    code: 0,
                    signal: 11,
                },
                _ => ExitStatus::default(),
            };
            process.status = wait_status(exit);
            let lasts_ms = match self.random.one_in(3) {
                true => self.random.below(20),
                false => self.random.around(4_000),
            };
            match is_late {
                true => drop(self.spawn(node, process, Some(lasts_ms))),
                false => drop(self.spawn_of_job(node, process, lasts_ms)?),
            }
        }
        Ok(())
    }

    /// A daemon's process has ended: its tasks go with it, but not what they have started.
    pub(super) fn stepd_is_gone(
        &mut self,
        node: usize,
        pid: i32,
        run: JobAttempt,
        uid: u32,
    ) -> Outcome {
        let tasks = self.nodes[node].machine.below(pid);
        for task in tasks {
            self.nodes[node].machine.processes.remove(&task);
            self.leave_orphan(node, run, Some(pid), uid);
        }
        let Some(stepd) = self.nodes[node].machine.stepds.remove(&pid) else {
            return Ok(());
        };
        let channels = [stepd.launcher_channel, stepd.agent_channel];
        for channel in channels.into_iter().flatten() {
            self.close_lower(node, channel);
        }
        if let Some(srun) = stepd.srun() {
            self.srun_loses_stepd(srun, node, pid);
        }
        Ok(())
    }
}
