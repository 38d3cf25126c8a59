//! The executor of launchers: starts them on the content of their record file, delivers events, and carries out their
//! actions, a wake-up of the process at a time, as the real one does. It may be killed before each action.

use super::events::{NodeEvent, Victim};
use super::{Outcome, World, trace};
use crate::Violation;
use crate::node::{LauncherProcess, Parent, ToLauncher};
use crate::world::turns::panic_text;
use muster_model::ids::JobAttempt;
use muster_model::job::ResourceUsage;
use muster_node_core::binding::Machine;
use muster_node_core::launcher::interface::{Action, Event, Recovered};
use muster_node_core::launcher::{
    EncodedEnd, Launcher, LauncherRecords, LauncherSetup, RecordedAttempt, UserAccount,
};
use muster_node_core::messages::{LauncherCommand, LauncherEvent, StepdEvent, VERSIONS};
use muster_node_core::now::Now;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Events of one wake-up: more is a spin.
const WAKEUP_EVENTS_MAX: u32 = 1000;

/// The executor of launchers, with the world around it.
pub(super) struct LauncherExecutor<'w> {
    pub(super) world: &'w mut World,
}

impl World {
    /// The executor of launchers, with the world around it.
    pub(super) fn launchers(&mut self) -> LauncherExecutor<'_> {
        LauncherExecutor { world: self }
    }
}

impl World {
    /// Clocks of a node.
    pub(super) fn node_now(&self, node: usize) -> Now {
        Now {
            wall: self.time(),
            mono_ms: self.boot_ms(node),
        }
    }
}

impl LauncherExecutor<'_> {
    /// Starts a launcher on the content of the disk; whether it could be.
    pub(super) fn start(&mut self, node: usize) -> Result<bool, Violation> {
        let now = self.world.now;
        let here = &mut self.world.nodes[node];
        let text = here.disk.records();
        let (mut records, attempts, same_boot) = LauncherRecords::read(&text, &here.boot_id());
        if let Err(e) = here.disk.rewrite(records.rewritten(), now) {
            trace!(
                self.world,
                "{}: no launcher: {}", self.world.nodes[node].name, e.error
            );
            return Ok(false);
        }
        here.launcher_lives += 1;
        let life = here.launcher_lives;
        let setup = LauncherSetup {
            spool: here.spool().into(),
            uid: 0,
            cpus: here.cpus,
            first_limits: Vec::new(),
            own: String::new(),
            host: String::new(),
        };
        let machine = Launcher::new(setup, records);
        here.launcher = Some(LauncherProcess::new(machine, life));
        trace!(
            self.world,
            "{}: launcher {life} starts, {} attempts on file",
            self.world.nodes[node].name,
            attempts.len()
        );
        self.recover(node, attempts, same_boot)?;
        self.wake_soon(node);
        Ok(true)
    }

    fn recover(
        &mut self,
        node: usize,
        attempts: BTreeMap<JobAttempt, RecordedAttempt>,
        same_boot: bool,
    ) -> Outcome {
        let here = &mut self.world.nodes[node];
        let settings = here.disk.settings.as_ref();
        let mut left = Recovered {
            same_boot,
            settings: settings.and_then(|bytes| minicbor::decode(bytes).ok()),
            ..Recovered::default()
        };
        for (attempt, old) in attempts.iter().filter(|_| same_boot) {
            let noted = here.machine.noted.get(attempt).copied();
            left.scripts.extend(noted.map(|pid| (*attempt, pid)));
            let may_run = old.ended.is_none() && old.failed.is_none();
            let script = old.pid.into_iter().chain(noted).filter(|_| may_run);
            let live = old.steps.iter();
            let live = live.filter(|(step, _)| !old.step_ends.contains_key(step));
            for pid in script.chain(live.map(|(_, pid)| *pid)) {
                if let (Some(process), Some(launcher)) =
                    (here.machine.live(pid), &mut here.launcher)
                {
                    left.processes.insert(pid, process.start_ms);
                    launcher.watched.insert(pid);
                }
            }
        }
        left.attempts = attempts;
        self.deliver(node, Event::Recovered(Box::new(left)))?;
        Ok(())
    }

    /// Something has happened that the launcher waits for.
    pub(super) fn wake_soon(&mut self, node: usize) {
        let Some(life) = self.world.nodes[node].launcher.as_ref().map(|l| l.life) else {
            return;
        };
        let delay = self.world.hop();
        self.world
            .machine_later(delay, node, NodeEvent::LauncherWakes { life });
    }

    fn is_launcher(&self, node: usize, life: u64) -> bool {
        let launcher = self.world.nodes[node].launcher.as_ref();
        launcher.is_some_and(|l| l.life == life)
    }

    /// Messages of the agent arrive.
    pub(super) fn receive(&mut self, node: usize, link: u64) -> Outcome {
        let host = &mut self.world.nodes[node];
        // Messages of an earlier link are lost with it.
        let (Some(current), Some(launcher)) = (
            host.link.as_mut().filter(|l| l.id == link),
            host.launcher.as_mut(),
        ) else {
            return Ok(());
        };
        current.written = current.written.saturating_sub(1);
        let messages = current.to_launcher.pop_front().unwrap_or_default();
        launcher
            .inbox
            .extend(messages.into_iter().map(|message| (link, message)));
        let life = launcher.life;
        self.world
            .machines()
            .message_arrives(node, Victim::Launcher)?;
        match self.world.random.one_in(4) {
            true => {
                self.wake_soon(node);
                Ok(())
            }
            false => self.wake(node, life),
        }
    }

    /// The agent's process has died, after it had written these messages.
    pub(super) fn lose_agent(&mut self, node: usize, link: u64, written: Vec<ToLauncher>) {
        let Some(launcher) = &mut self.world.nodes[node].launcher else {
            return;
        };
        let messages = written.into_iter().chain([ToLauncher::Closed]);
        launcher
            .inbox
            .extend(messages.map(|message| (link, message)));
        self.wake_soon(node);
    }

    /// One wake-up of the process.
    pub(super) fn wake(&mut self, node: usize, life: u64) -> Outcome {
        if !self.is_launcher(node, life) {
            return Ok(());
        }
        self.read_ready(node)?;
        while let Some((link, message)) = self.next_message(node, life) {
            self.take_message(node, link, message)?;
        }
        self.reap(node, life)?;
        self.read_ready(node)?;
        while let Some((pid, status)) = self.next_watched_end(node, life) {
            self.deliver(node, Event::WatchedEnded { pid, status })?;
        }
        self.finish_wakeup(node, life)
    }

    fn next_message(&mut self, node: usize, life: u64) -> Option<(u64, ToLauncher)> {
        let launcher = self.world.nodes[node].launcher.as_mut()?;
        if launcher.life != life {
            return None;
        }
        launcher.inbox.pop_front()
    }

    fn next_watched_end(&mut self, node: usize, life: u64) -> Option<(i32, Option<i32>)> {
        let launcher = self.world.nodes[node].launcher.as_mut()?;
        if launcher.life != life {
            return None;
        }
        launcher.watched_ended.pop_first()
    }

    fn take_message(&mut self, node: usize, link: u64, message: ToLauncher) -> Outcome {
        let random = self.world.random.next();
        let Some(launcher) = &mut self.world.nodes[node].launcher else {
            return Ok(());
        };
        let is_attached = launcher.attached == Some(link);
        let mut unsent = Vec::new();
        let event = match message {
            ToLauncher::Attach(attach) => {
                launcher.attached = Some(link);
                let greeting = LauncherEvent::Greeting(VERSIONS.greeting());
                unsent = std::mem::replace(&mut launcher.output, vec![greeting]);
                let none = || Machine::new(Err("no machine".to_owned()), Default::default());
                let is_needed = launcher.machine.needs_machine(&attach.claim);
                let machine = is_needed.then(|| Box::new(none()));
                Event::Attached(attach, machine)
            }
            ToLauncher::Closed if is_attached => {
                launcher.attached = None;
                Event::AgentLost
            }
            ToLauncher::Closed => return Ok(()),
            // It came by the connection of an agent that another one has followed.
            ToLauncher::Command(_) if !is_attached => {
                return Ok(());
            }
            ToLauncher::Command(command) => match *command {
                LauncherCommand::StartStep(order) => {
                    let random = Some(random);
                    Event::StartStep { order, random }
                }
                LauncherCommand::OpenSession => Event::OpenSession(Ok(self.world.random.secret())),
                LauncherCommand::Sealed { orders, seal } => Event::Sealed {
                    orders,
                    seal,
                    local_time: "2026-01-01T00:00:00".to_owned(),
                },
                command => Event::Command(command),
            },
        };
        self.world.machines().lose_events(node, &unsent);
        self.deliver(node, event).map(drop)
    }

    /// Collects children that have ended.
    fn reap(&mut self, node: usize, life: u64) -> Outcome {
        let processes = &self.world.nodes[node].machine.processes;
        let ended = processes
            .iter()
            .filter(|(_, p)| p.parent == Parent::Launcher && !p.is_alive());
        let ended: Vec<i32> = ended.map(|(pid, _)| *pid).collect();
        self.read_ready(node)?;
        for pid in ended {
            if !self.is_launcher(node, life) {
                return Ok(());
            }
            let Some(process) = self.world.nodes[node].machine.processes.remove(&pid) else {
                continue;
            };
            if let Some(launcher) = &mut self.world.nodes[node].launcher {
                launcher.helpers.remove(&pid);
            }
            let usage = ResourceUsage {
                user_us: 1000,
                ..ResourceUsage::default()
            };
            let event = Event::ChildEnded {
                pid,
                status: process.ended.unwrap_or_default(),
                usage: Box::new(usage),
                failure: process.failure,
            };
            self.deliver(node, event)?;
        }
        Ok(())
    }

    fn finish_wakeup(&mut self, node: usize, life: u64) -> Outcome {
        loop {
            let mono_ms = self.world.boot_ms(node);
            let launcher = self.world.nodes[node].launcher.as_mut();
            let due = launcher.and_then(|l| l.take_due(mono_ms));
            let Some(key) = due.filter(|_| self.is_launcher(node, life)) else {
                break;
            };
            self.deliver(node, Event::TimerDue(key))?;
        }
        let mut count = 0;
        while self.deliver(node, Event::WakeUpEnded)? {
            count += 1;
            if count > WAKEUP_EVENTS_MAX {
                let name = &self.world.nodes[node].name;
                let detail = format!("{name}: a wake-up does not end");
                return Err(Violation::new("invariant_the_launcher_sleeps", detail));
            }
        }
        if let Some(launcher) = self.world.nodes[node]
            .launcher
            .as_mut()
            .filter(|l| l.life == life)
        {
            // It lives on.
            launcher.dies_in = None;
            let output = std::mem::take(&mut launcher.output);
            let link = self.world.nodes[node].link.as_ref().map(|l| l.id);
            let launcher = &self.world.nodes[node].launcher;
            let attached = launcher.as_ref().and_then(|l| l.attached);
            match link.is_some() && link == attached {
                _ if output.is_empty() => {}
                true => self.world.machines().send_to_linked_agent(node, output),
                false => self.world.machines().lose_events(node, &output),
            }
        }
        Ok(())
    }

    /// Delivers an event, and what comes of it. Whether anything did.
    pub(super) fn deliver(&mut self, node: usize, event: Event) -> Result<bool, Violation> {
        let Some(launcher) = &mut self.world.nodes[node].launcher else {
            return Ok(false);
        };
        let life = launcher.life;
        launcher.events.push_back(event);
        let mut has_acted = false;
        while let Some(event) = self.next_event(node, life) {
            let now = self.world.node_now(node);
            let now_ms = self.world.now;
            self.world.trace.process(now_ms, node, "launcher", &event);
            let mut actions = Vec::new();
            if let Some(launcher) = &mut self.world.nodes[node].launcher {
                let machine = &mut launcher.machine;
                let handled = AssertUnwindSafe(|| machine.on_event(event, now, &mut actions));
                catch_unwind(handled).map_err(|cause| {
                    let detail = format!("a launcher: {}", panic_text(&*cause));
                    Violation::new("invariant_nothing_panics", detail)
                })?;
            }
            has_acted |= !actions.is_empty();
            for action in &actions {
                self.world.trace.process(now_ms, node, "launcher", action);
            }
            for action in actions {
                if self.launcher_is_killed(node, &action) {
                    self.world.machines().launcher_dies(node)?;
                    return Ok(false);
                }
                self.carry_out(node, action)?;
                if !self.is_launcher(node, life) {
                    return Ok(false);
                }
            }
        }
        Ok(has_acted)
    }

    /// Whether it is killed before it has carried out this.
    fn launcher_is_killed(&mut self, node: usize, action: &Action) -> bool {
        let Some(launcher) = &mut self.world.nodes[node].launcher else {
            return false;
        };
        match &mut launcher.dies_in {
            None => false,
            Some(0) => {
                if let Action::AppendRecords(lines) = action {
                    let disk = &mut self.world.nodes[node].disk;
                    disk.append_torn(lines, &mut self.world.chaos);
                }
                true
            }
            Some(left) => {
                *left -= 1;
                false
            }
        }
    }

    fn next_event(&mut self, node: usize, life: u64) -> Option<Event> {
        let launcher = self.world.nodes[node].launcher.as_mut()?;
        if launcher.life != life {
            return None;
        }
        if let Some(event) = launcher.events.pop_front() {
            return Some(event);
        }
        while let Some(id) = launcher.unread.last().copied() {
            let connection = launcher.stepds.get_mut(&id).filter(|c| c.is_listening);
            let Some(connection) = connection else {
                launcher.unread.pop();
                continue;
            };
            match connection.input.pop_front() {
                Some(StepdEvent::StepEnded(step, end)) => {
                    return Some(Event::StepEnded(id, step, EncodedEnd::of(&end)));
                }
                Some(StepdEvent::StepRunning(_)) => {}
                None => {
                    launcher.unread.pop();
                    if connection.is_closed {
                        connection.is_listening = false;
                        return Some(Event::StepdClosed(id));
                    }
                }
            }
        }
        None
    }

    /// Receives from step daemons that have sent something, and delivers it.
    fn read_ready(&mut self, node: usize) -> Outcome {
        let Some(launcher) = &self.world.nodes[node].launcher else {
            return Ok(());
        };
        let machine = &self.world.nodes[node].machine;
        let listened = launcher.stepds.iter().filter(|(_, c)| c.is_listening);
        let ready = listened.filter(|(_, c)| {
            let channel = machine.channels.get(&c.channel);
            channel.is_none_or(|ch| !ch.up.is_empty() || ch.is_lower_closed)
        });
        let ready: Vec<_> = ready.map(|(id, _)| *id).collect();
        for id in ready {
            self.listen_to(node, id);
        }
        self.deliver_unread(node)
    }

    fn deliver_unread(&mut self, node: usize) -> Outcome {
        let Some(life) = self.world.nodes[node].launcher.as_ref().map(|l| l.life) else {
            return Ok(());
        };
        if let Some(event) = self.next_event(node, life) {
            self.deliver(node, event)?;
        }
        Ok(())
    }

    pub(super) fn groups_found(&mut self, node: usize, life: u64, account: UserAccount) -> Outcome {
        let launcher = self.world.nodes[node].launcher.as_mut();
        let Some(launcher) = launcher.filter(|l| l.life == life) else {
            return Ok(());
        };
        if !launcher.look_ups.remove(&account) {
            return Ok(());
        }
        let groups = vec![account.gid, 7];
        self.deliver(node, Event::GroupsFound(account, groups))?;
        self.finish_wakeup(node, life)
    }
}
