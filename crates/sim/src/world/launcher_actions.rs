//! Actions of a launcher: files, processes, step daemons, and the kernel's answers about processes.

use super::events::NodeEvent;
use super::launchers::LauncherExecutor;
use super::{Outcome, trace};
use crate::node::{
    Channel, ChannelId, Down, Kind, Parent, Process, StepdConnection, StepdProcess, wait_status,
};
use crate::world::invariants;
use crate::{Plant, Violation};
use muster_model::ids::{AttemptStep, JobAttempt, StepNo};
use muster_node_core::launcher::interface::{
    Action, Event, Failure, JobProgramKind, LaunchFiles, Leftovers, ProcessOwner, ProcessSearch,
    ScriptFailure, ScriptLaunch, ScriptNotStarted, StartedStepd, StepdConnId,
};
use muster_node_core::messages::{FirstOrder, LauncherEvent, StepdCommand, StepdEvent};
use muster_node_core::signals::SIGKILL;
use muster_proto::frame::Frames;
use std::path::PathBuf;

/// Time that a daemon waits for the streams of a direct step, milliseconds.
const STREAMS_WAIT_MS: u64 = 20_000;

impl LauncherExecutor<'_> {
    fn answer(&mut self, node: usize, event: Event) {
        if let Some(launcher) = &mut self.world.nodes[node].launcher {
            launcher.events.push_back(event);
        }
    }

    /// Why no process can be started, if none can.
    fn lack(&self, node: usize) -> Option<Failure> {
        let fault = self.world.nodes[node].disk.fault_at(self.world.now);
        let fault = fault.filter(|fault| fault.prevents_processes());
        fault.map(|fault| fault.failure())
    }

    pub(super) fn carry_out(&mut self, node: usize, action: Action) -> Outcome {
        let now = self.world.now;
        let here = &mut self.world.nodes[node];
        match action {
            Action::Log(line) => {
                if line.contains("unexpected event") {
                    let detail = format!("{}: {line}", here.name);
                    return Err(Violation::new("invariant_jobs_follow_the_table", detail));
                }
                trace!(
                    self.world,
                    "{}: launcher: {line}", self.world.nodes[node].name
                );
            }
            Action::SetTimer(key, at) => {
                let Some(launcher) = &mut here.launcher else {
                    return Ok(());
                };
                let life = launcher.life;
                launcher.timers.insert(key, at);
                let delay = at.saturating_sub(self.world.boot_ms(node));
                self.world
                    .machine_later(delay, node, NodeEvent::LauncherWakes { life });
            }
            Action::StopTimer(key) => {
                if let Some(launcher) = &mut here.launcher {
                    launcher.timers.remove(&key);
                }
            }
            Action::AppendRecords(lines) => {
                let is_lost = self.world.planted(Plant::LostRecord) && self.world.random.one_in(4);
                let disk = &mut self.world.nodes[node].disk;
                let written = match is_lost {
                    true => Ok(()),
                    false => disk.append(&lines, now),
                };
                drop(lines);
                self.answer(node, Event::RecordsAppended(written));
            }
            Action::RewriteRecords(all) => {
                let written = here.disk.rewrite(all, now).map_err(|e| e.error);
                self.answer(node, Event::RecordsRewritten(written));
            }
            Action::SendAgent(event) => self.send_agent(node, event)?,
            Action::KeepSettings(bytes) => {
                if here.disk.fault_at(now).is_none() {
                    here.disk.settings = Some(bytes);
                }
            }
            Action::CheckControllerKey { key, .. } => {
                let known = here.disk.controller_key.get_or_insert_with(|| key.clone());
                let checked = match *known == key {
                    true => Ok(()),
                    false => Err("it is another controller".to_owned()),
                };
                self.answer(node, Event::ControllerKeyChecked(checked));
            }
            Action::RemoveSocket(path) => drop(here.machine.sockets.remove(&path)),
            Action::RemoveResult(attempt, step) => {
                drop(here.disk.results.remove(&AttemptStep::new(attempt, step)))
            }
            Action::ReadResult(attempt, step, purpose) => {
                let result = here
                    .disk
                    .results
                    .get(&AttemptStep::new(attempt, step))
                    .cloned();
                let event = Event::ResultRead {
                    attempt,
                    step,
                    purpose,
                    result,
                };
                self.answer(node, event);
            }
            Action::ListResults => {
                let results = here.disk.results.keys().copied().collect();
                self.answer(node, Event::ResultsListed(results));
            }
            Action::RemoveFilesOfOthers(jobs) => {
                let results = &mut here.disk.results;
                results.retain(|AttemptStep { attempt, .. }, _| jobs.contains(&attempt.job));
            }
            Action::Answer(..)
            | Action::KeepScripts(_)
            | Action::DropScript(_)
            | Action::RetireMember(..)
            | Action::StopMeasurement(_) => {}
            other => return self.start_processes(node, other),
        }
        Ok(())
    }

    fn send_agent(&mut self, node: usize, event: LauncherEvent) -> Outcome {
        if let LauncherEvent::Released(attempt) = event {
            invariants::invariant_nothing_outlives_its_job(self.world, node, attempt)?;
        }
        if let Some(launcher) = &mut self.world.nodes[node].launcher {
            launcher.output.push(event);
        }
        Ok(())
    }

    /// Starts a process that the site's programs run in, or that makes or removes directories of a job.
    fn start_programs(&mut self, node: usize, attempt: JobAttempt, kind: JobProgramKind) {
        let start_ms = self.world.boot_ms(node);
        let started = match self.lack(node) {
            Some(failure) => Err(failure),
            None => {
                let of = Kind::Programs(attempt, kind);
                let mut process = Process::new(of, Parent::Launcher, 0, start_ms);
                process.status = i32::from(self.world.random.one_in(60)) << 8;
                let lasts_ms = self.world.random.around(300);
                Ok(self.world.machines().spawn(node, process, Some(lasts_ms)))
            }
        };
        self.answer(node, Event::ProgramsStarted(attempt, kind, started));
    }

    fn start_processes(&mut self, node: usize, action: Action) -> Outcome {
        match action {
            Action::PrepareLaunch {
                attempt,
                script,
                prolog,
                epilog,
            } => {
                let fault = self.world.nodes[node].disk.fault_at(self.world.now);
                let files = match fault.filter(|_| script.is_some()) {
                    Some(fault) => Err(fault.failure()),
                    None => Ok(LaunchFiles {
                        script: script.map(|_| "/script".to_owned()),
                        prolog: prolog.into_iter().collect(),
                        epilog: epilog.into_iter().collect(),
                    }),
                };
                self.answer(node, Event::LaunchPrepared(attempt, files));
            }
            Action::StartScript(launch) => {
                let attempt = launch.attempt;
                let started = self.start_script(node, &launch)?;
                self.answer(node, Event::ScriptStarted(attempt, started));
            }
            Action::StartPrograms { attempt, kind, .. } => self.start_programs(node, attempt, kind),
            Action::MakeContainer(attempt, _) => {
                self.start_programs(node, attempt, JobProgramKind::Container)
            }
            Action::RemoveContainer(attempt, _) => {
                self.start_programs(node, attempt, JobProgramKind::ContainerRemoval);
            }
            // Machines of the simulator have no directories.
            Action::SweepContainers { .. } | Action::RemoveTmpDir(_) => {}
            Action::StartMessage { attempt, kind, .. } => {
                let started = match self.lack(node) {
                    Some(failure) => Err(failure.error),
                    None => Ok(self.start_helper(node)),
                };
                self.answer(node, Event::MessageStarted(attempt, kind, started));
            }
            Action::ReadLastLines { attempt, .. } => {
                // Some are never read.
                if !self.world.random.one_in(4) {
                    self.answer(node, Event::LastLinesRead(attempt, b"line\n".to_vec()));
                }
            }
            Action::StopLastLines(_) => {}
            Action::StartSiteProgram { kind, .. } => {
                let started = Ok(self.start_helper(node));
                self.answer(node, Event::SiteProgramStarted(kind, started));
            }
            Action::RemoveDirs { attempt, .. } => {
                let pid = self.start_helper(node);
                self.answer(node, Event::RemovalStarted(attempt, pid));
            }
            Action::LookUpGroups(account) => {
                let delay = self.world.random.around(20);
                if let Some(launcher) = &mut self.world.nodes[node].launcher {
                    let life = launcher.life;
                    launcher.look_ups.insert(account.clone());
                    let event = NodeEvent::GroupsFound { life, account };
                    self.world.machine_later(delay, node, event);
                }
            }
            Action::StopLookUp(account) => {
                if let Some(launcher) = &mut self.world.nodes[node].launcher {
                    launcher.look_ups.remove(&account);
                }
            }
            // Nothing here is measured.
            Action::Measure { id, .. } => self.answer(node, Event::Measured(id, None)),
            other => return self.serve_stepds(node, other),
        }
        Ok(())
    }

    fn start_helper(&mut self, node: usize) -> i32 {
        let start_ms = self.world.boot_ms(node);
        let process = Process::new(Kind::Helper, Parent::Launcher, 0, start_ms);
        let lasts_ms = self.world.random.around(20);
        self.world.machines().spawn(node, process, Some(lasts_ms))
    }

    fn start_script(
        &mut self,
        node: usize,
        launch: &ScriptLaunch,
    ) -> Result<Result<i32, ScriptNotStarted>, Violation> {
        let attempt = launch.attempt;
        if let Some(failure) = self.lack(node) {
            return Ok(Err(ScriptNotStarted::Failed(failure)));
        }
        let name = self.world.nodes[node].name.clone();
        let life = self.world.ledger.jobs.get(&attempt.job);
        let job_name = life.map_or_else(String::new, |life| life.spec.name.clone());
        let plan = crate::world::clients::script_of(&job_name, attempt);
        let start_ms = self.world.boot_ms(node);
        let kind = Kind::Script(attempt);
        let mut process = Process::new(kind, Parent::Launcher, launch.user.uid, start_ms);
        process.share = self.world.share_of(node, attempt);
        process.status = wait_status(plan.exit);
        // A process that ended at once would hide the plant.
        process.ignores_term = plan.ignores_term || self.world.planted(Plant::EarlyRelease);
        let mut lasts_ms = plan.duration_ms;
        if plan.fails_to_launch {
            trace!(
                self.world,
                "{name}: {}/{} cannot be launched", attempt.job, attempt.attempt.0
            );
            let error = "no such directory".to_owned();
            match (plan.fails_late, plan.node_fault) {
                (false, false) => return Ok(Err(ScriptNotStarted::Wrong(error))),
                (false, true) => {
                    let is_temporary = false;
                    let failure = Failure {
                        error,
                        is_temporary,
                    };
                    return Ok(Err(ScriptNotStarted::Failed(failure)));
                }
                (true, is_nodes) => {
                    process.failure = Some(ScriptFailure { is_nodes, error });
                    lasts_ms = 2;
                }
            }
        }
        invariants::invariant_no_attempt_starts_twice_on_a_node(self.world, node, attempt)?;
        self.world.truth.started.insert((node, attempt));
        let pid = self
            .world
            .machines()
            .spawn_of_job(node, process, Some(lasts_ms))?;
        self.world.nodes[node].machine.noted.insert(attempt, pid);
        let share = self.world.share_of(node, attempt);
        trace!(
            self.world,
            "{name}: {}/{} runs on {:?}", attempt.job, attempt.attempt.0, share.cpus
        );
        if !plan.fails_to_launch {
            self.world.sruns().plan(node, attempt, lasts_ms);
        }
        Ok(Ok(pid))
    }

    fn serve_stepds(&mut self, node: usize, action: Action) -> Outcome {
        match action {
            Action::StartStepd { order, socket, .. } => self.start_stepd(node, order, socket),
            Action::GiveStep {
                attempt,
                step,
                stepd,
                frame,
            } => {
                let mut frames = Frames::default();
                frames.push(&frame);
                let command = frames.take::<StepdCommand>().ok().flatten();
                let channel = self.world.nodes[node].machine.open_channel();
                let is_sent = match command {
                    Some(command) => self.send_stepd(node, stepd, command, Some(channel)),
                    None => false,
                };
                match is_sent {
                    true => self.pass_channel(node, attempt, step, channel),
                    false => drop(self.world.nodes[node].machine.channels.remove(&channel)),
                }
                self.answer(node, Event::StepGiven(attempt, step, is_sent));
            }
            Action::SendStepd(stepd, command) => {
                if !self.send_stepd(node, stepd, command.clone(), None) {
                    self.answer(node, Event::NotSent(stepd, command));
                }
            }
            Action::ListenTo(stepd) => self.listen_to(node, stepd),
            Action::StopListening(stepd) => {
                if let Some(launcher) = &mut self.world.nodes[node].launcher
                    && let Some(connection) = launcher.stepds.get_mut(&stepd)
                {
                    connection.is_listening = false;
                }
            }
            Action::CloseStepd(stepd) => {
                let launcher = self.world.nodes[node].launcher.as_mut();
                let closed = launcher.and_then(|l| l.stepds.remove(&stepd));
                let Some(connection) = closed else {
                    let detail =
                        format!("{}: {stepd:?} is closed twice", self.world.nodes[node].name);
                    return Err(Violation::new("invariant_handles_are_closed_once", detail));
                };
                self.world.machines().close_upper(node, connection.channel);
            }
            Action::AskStepds(sockets) => self.ask_stepds(node, sockets)?,
            Action::WatchStepd(attempt, step, pid) => {
                let process = self.world.nodes[node].machine.live(pid);
                let belongs = process.map(|p| p.traits().belongs);
                if let (Some(_), Some(launcher)) = (belongs, &mut self.world.nodes[node].launcher) {
                    launcher.watched.insert(pid);
                }
                self.answer(node, Event::StepdWatched(attempt, step, pid, belongs));
            }
            other => return self.signal_processes(node, other),
        }
        Ok(())
    }

    /// Gives the agent its end of a control channel to the daemon of a step.
    fn pass_channel(&mut self, node: usize, attempt: JobAttempt, step: StepNo, channel: ChannelId) {
        let here = &mut self.world.nodes[node];
        if let Some(launcher) = &mut here.launcher {
            launcher
                .output
                .push(LauncherEvent::StepChannel(attempt, step));
            here.machine
                .passed
                .insert(AttemptStep::new(attempt, step), channel);
        }
    }

    fn start_stepd(&mut self, node: usize, order: Box<FirstOrder>, socket: PathBuf) {
        let (attempt, step) = (order.step.order.attempt, order.step.order.launch.step);
        if let Some(failure) = self.lack(node) {
            return self.answer(node, Event::StepdStarted(attempt, step, Err(failure.error)));
        }
        let start_ms = self.world.boot_ms(node);
        let uid = order.bounds.user.uid;
        let here = &mut self.world.nodes[node];
        let Some(launcher) = &mut here.launcher else {
            return;
        };
        let process = Process::new(Kind::Stepd(attempt), Parent::Launcher, uid, start_ms);
        let pid = here.machine.spawn(process);
        let [channel, agents] = [(); 2].map(|()| here.machine.open_channel());
        let mut stepd = StepdProcess::new(order, pid, self.world.now + STREAMS_WAIT_MS);
        stepd.launcher_channel = Some(channel);
        stepd.agent_channel = Some(agents);
        for channel in [stepd.launcher_channel, stepd.agent_channel] {
            let channel = channel.and_then(|c| here.machine.channels.get_mut(&c));
            if let Some(channel) = channel {
                channel.stepd = Some(pid);
            }
        }
        here.machine.stepds.insert(pid, stepd);
        here.machine.sockets.insert(socket, pid);
        let id = StepdConnId(launcher.next_id());
        launcher.stepds.insert(id, StepdConnection::new(channel));
        trace!(
            self.world,
            "{}: step daemon {pid} for step {}.{step}", self.world.nodes[node].name, attempt.job
        );
        self.world.wake_stepd(node, pid);
        self.pass_channel(node, attempt, step, agents);
        let started = StartedStepd {
            stepd: id,
            pid,
            mesh_address: None,
        };
        self.answer(node, Event::StepdStarted(attempt, step, Ok(started)));
    }

    /// Sends to a step daemon; whether it takes it.
    fn send_stepd(
        &mut self,
        node: usize,
        stepd: StepdConnId,
        command: StepdCommand,
        agent: Option<u64>,
    ) -> bool {
        let launcher = self.world.nodes[node].launcher.as_ref();
        let Some(id) = launcher.and_then(|l| Some(l.stepds.get(&stepd)?.channel)) else {
            return false;
        };
        let is_open = |c: &&mut Channel| !c.is_lower_closed;
        let channel = self.world.nodes[node].machine.channels.get_mut(&id);
        let Some(channel) = channel.filter(is_open) else {
            return false;
        };
        channel
            .down
            .push_back(Down::Command(Box::new(command), agent));
        self.world.machines().wake_stepd_of(node, id);
        true
    }

    /// Delivers what a daemon reports from now on, and what has come.
    pub(super) fn listen_to(&mut self, node: usize, stepd: StepdConnId) {
        let here = &mut self.world.nodes[node];
        let Some(launcher) = &mut here.launcher else {
            return;
        };
        let Some(connection) = launcher.stepds.get_mut(&stepd) else {
            return;
        };
        connection.is_listening = true;
        match here.machine.channels.get_mut(&connection.channel) {
            Some(channel) => {
                connection.input.extend(channel.up.drain(..));
                connection.is_closed |= channel.is_lower_closed;
            }
            None => connection.is_closed = true,
        }
        launcher.unread.push(stepd);
    }

    /// Asks daemons for their steps, all that listen or those at these sockets.
    fn ask_stepds(&mut self, node: usize, asked: Option<Vec<PathBuf>>) -> Outcome {
        let mut sockets = self.world.nodes[node].machine.sockets.clone();
        if let Some(asked) = asked {
            sockets.retain(|path, _| asked.contains(path));
        }
        let Some(life) = self.world.nodes[node].launcher.as_ref().map(|l| l.life) else {
            return Ok(());
        };
        for (path, pid) in sockets {
            if self.world.nodes[node].machine.live(pid).is_none() {
                // Its daemon has ended.
                self.world.nodes[node].machine.sockets.remove(&path);
            } else if self.world.random.one_in(4) {
                let delay = self.world.random.between(500, 3000);
                let event = NodeEvent::StepdAnswers { life, pid };
                self.world.machine_later(delay, node, event);
            } else {
                let event = self.ask_stepd(node, pid)?;
                self.answer(node, event);
            }
        }
        self.answer(node, Event::StepdsAsked);
        Ok(())
    }

    /// Answer of a daemon.
    fn ask_stepd(&mut self, node: usize, pid: i32) -> Result<Event, Violation> {
        let channel = self.world.nodes[node].machine.open_channel();
        self.world.stepd(node, pid).adopt(channel)?;
        let answer = self.world.nodes[node].machine.channels.get_mut(&channel);
        let answer = answer.and_then(|c| c.up.pop_front());
        let sockets = &self.world.nodes[node].machine.sockets;
        let path = sockets.iter().find(|(_, of)| **of == pid);
        let path = path.map(|(path, _)| path.clone()).unwrap_or_default();
        let Some(StepdEvent::StepRunning(running)) = answer else {
            self.world.machines().close_upper(node, channel);
            return Ok(Event::StepdsAsked);
        };
        let Some(launcher) = &mut self.world.nodes[node].launcher else {
            return Ok(Event::StepdsAsked);
        };
        let id = StepdConnId(launcher.next_id());
        launcher.stepds.insert(id, StepdConnection::new(channel));
        Ok(Event::StepdRunning(id, path, running))
    }

    pub(super) fn stepd_answers_late(&mut self, node: usize, life: u64, pid: i32) -> Outcome {
        let launcher = self.world.nodes[node].launcher.as_ref();
        if launcher.is_none_or(|l| l.life != life) {
            return Ok(());
        }
        let event = match self.world.nodes[node].machine.live(pid) {
            Some(_) => self.ask_stepd(node, pid)?,
            None => Event::StepdsAsked,
        };
        self.deliver(node, event)?;
        self.wake_soon(node);
        Ok(())
    }

    fn signal_processes(&mut self, node: usize, action: Action) -> Outcome {
        match action {
            Action::Unwatch(pid) => {
                if let Some(launcher) = &mut self.world.nodes[node].launcher {
                    launcher.watched.remove(&pid);
                    launcher.watched_ended.remove(&pid);
                }
                Ok(())
            }
            Action::Signal(pid, signal) | Action::SignalGroup(pid, signal) => {
                self.world.machines().signal_process(node, pid, signal)
            }
            Action::SignalScript {
                of, script, signal, ..
            } => {
                let mut pids: Vec<i32> = script.into_iter().collect();
                pids.extend(self.left_of(node, of));
                self.signal_all(node, pids, signal)
            }
            Action::SignalBelow { roots, signal, .. } => {
                let machine = &self.world.nodes[node].machine;
                let pids = roots.into_iter().flat_map(|pid| machine.below(pid));
                let pids = pids.collect();
                self.signal_all(node, pids, signal)
            }
            Action::SignalStep {
                of,
                step,
                pid,
                signal,
            } => {
                let tasks = self.world.nodes[node].machine.below(pid);
                if tasks.is_empty() {
                    self.answer(node, Event::StepHasNoTasks(of.attempt, step, signal));
                }
                self.signal_all(node, tasks, signal)
            }
            Action::SignalFound { found, signal, .. } => self.signal_all(node, found, signal),
            Action::FindLeftovers(jobs) => {
                self.find_leftovers(node, &jobs);
                Ok(())
            }
            Action::KillRemnants(_, daemon) => {
                let is_left = |p: &Process| match p.kind {
                    Kind::Orphan(_, of) => of == Some(daemon),
                    _ => p.parent == Parent::Stepd(daemon),
                };
                let pids = self.world.nodes[node].machine.pids(is_left);
                self.signal_all(node, pids, SIGKILL)
            }
            Action::ForgetScript(attempt) | Action::ForgetMembers(attempt) => {
                self.world.nodes[node].machine.noted.remove(&attempt);
                Ok(())
            }
            // The kernel says here whose each process is.
            Action::KillOrphans | Action::RemoveGroups(_) | Action::FreezeGroups(..) => Ok(()),
            other => {
                let detail = format!("nothing carries out {other:?}");
                Err(Violation::new("invariant_actions_are_carried_out", detail))
            }
        }
    }

    fn signal_all(&mut self, node: usize, mut pids: Vec<i32>, signal: i32) -> Outcome {
        pids.dedup();
        pids.into_iter()
            .try_for_each(|pid| self.world.machines().signal_process(node, pid, signal))
    }

    /// Processes of a job that are no longer below any that the launcher knows.
    fn left_of(&self, node: usize, of: ProcessSearch) -> Vec<i32> {
        let Some(launcher) = &self.world.nodes[node].launcher else {
            return Vec::new();
        };
        let is_orphan = |pid: i32, p: &Process| {
            let is_known = launcher.machine.knows_process(pid) || launcher.helpers.contains(&pid);
            p.parent == Parent::Launcher
                && !is_known
                && launcher.machine.owner_of(&p.traits()) == Some(of.attempt)
        };
        let is_stray =
            |p: &Process| of.is_recovered && p.traits().belongs == ProcessOwner::To(of.attempt);
        let all = self.world.nodes[node].machine.processes.iter();
        let live = all.filter(|(_, p)| p.is_alive());
        let left = live.filter(|(pid, p)| is_orphan(**pid, p) || is_stray(p));
        left.map(|(pid, _)| *pid).collect()
    }

    fn find_leftovers(&mut self, node: usize, jobs: &[ProcessSearch]) {
        let blind = self.world.planted(Plant::Leftover) && self.world.random.one_in(2);
        let mut left = Vec::new();
        for of in jobs {
            let pids = match blind {
                true => Vec::new(),
                false => self.left_of(node, *of),
            };
            if of.is_recovered
                && let Some(launcher) = &mut self.world.nodes[node].launcher
            {
                // Their end is noticed.
                launcher.watched.extend(&pids);
            }
            let attempt = of.attempt;
            left.push(Leftovers { attempt, pids });
        }
        let since_ms = self.world.boot_ms(node);
        let event = Event::LeftoversFound {
            left,
            is_unclear: false,
            since_ms,
        };
        self.answer(node, event);
    }
}
