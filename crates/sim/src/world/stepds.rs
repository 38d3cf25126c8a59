//! The executor of step daemons: what has come to a daemon is delivered to its machine, a wake-up of the process at a time and in the
//! order in which the real one takes it, and what the machine decides is carried out. The process may be killed before each action.

use super::events::{NodeEvent, Victim};
use super::{Outcome, World};
use crate::Violation;
use crate::node::{Direction, Down, Greeted, Kind, LinkServer, Parent, StepLinkId, StepdProcess};
use crate::world::turns::panic_text;
use muster_model::ids::JobAttempt;
use muster_model::job::ResourceUsage;
use muster_node_core::messages::{NextStep, StepdCommand};
use muster_node_core::signals::SIGKILL;
use muster_node_core::stepd::{ClientId, Event, StepSender};
use muster_proto::frame;
use muster_proto::step::{FromStepd, ToStepd};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Rounds of one wake-up: more is a spin.
const ROUNDS_MAX: u32 = 1000;
/// Interval of checks whether the launcher has read the ends of earlier steps, milliseconds.
const READ_WAIT_MS: u64 = 1_000;

/// A daemon's process, with the world around it.
pub(super) struct StepdExecutor<'w> {
    pub(super) world: &'w mut World,
    pub(super) node: usize,
    pub(super) pid: i32,
}

impl World {
    pub(super) fn stepd(&mut self, node: usize, pid: i32) -> StepdExecutor<'_> {
        StepdExecutor {
            world: self,
            node,
            pid,
        }
    }
}

impl StepdExecutor<'_> {
    /// The process, while it lives.
    pub(super) fn process(&mut self) -> Option<&mut StepdProcess> {
        let machine = &mut self.world.nodes[self.node].machine;
        machine.live(self.pid)?;
        machine.stepds.get_mut(&self.pid)
    }

    /// One wake-up, with all that has come meanwhile.
    pub(super) fn wake(&mut self) -> Outcome {
        if !self.begin()? {
            return Ok(());
        }
        for _ in 0..ROUNDS_MAX {
            if !self.round()? {
                self.set_timer();
                return Ok(());
            }
        }
        let detail = format!("{}: step daemon {}", self.name(), self.pid);
        Err(Violation::new("invariant_daemons_sleep", detail))
    }

    pub(super) fn name(&self) -> &str {
        &self.world.nodes[self.node].name
    }

    /// Begins with the first order once its descriptors have come. Returns whether it has begun.
    fn begin(&mut self) -> Result<bool, Violation> {
        let now = self.world.now;
        let Some(process) = self.process() else {
            return Ok(false);
        };
        let Some((first, streams_by)) = &process.first else {
            return Ok(true);
        };
        let (is_direct, streams_by) = (first.step.order.direct, *streams_by);
        let agent = process.agent_channel;
        let mut streams = None;
        if is_direct {
            let channels = &mut self.world.nodes[self.node].machine.channels;
            let channel = agent.and_then(|id| channels.get_mut(&id));
            let Some(channel) = channel.filter(|_| now < streams_by) else {
                return self.fail_to_begin();
            };
            match channel.down.pop_front() {
                Some(Down::Streams(link)) => streams = Some(link),
                None if !channel.is_upper_closed => {
                    let event = NodeEvent::StepdWakes(self.pid);
                    let delay = streams_by - now;
                    self.world.machine_later(delay, self.node, event);
                    return Ok(false);
                }
                Some(Down::Command(..)) | None => return self.fail_to_begin(),
            }
        }
        let first = self.process().and_then(|process| process.first.take());
        if let Some((first, _)) = first {
            self.give(Box::new(first.step), StepSender::Start(first.dirs), streams)?;
        }
        Ok(true)
    }

    fn fail_to_begin(&mut self) -> Result<bool, Violation> {
        self.world
            .machines()
            .end_process(self.node, self.pid, 1 << 8)?;
        Ok(false)
    }

    /// Once around the loop of the process; whether there was something to do.
    fn round(&mut self) -> Result<bool, Violation> {
        let mono_ms = self.world.boot_ms(self.node);
        let deadline = self.process().and_then(|p| p.machine.deadline());
        if deadline.is_some_and(|at| at <= mono_ms) {
            self.deliver(Event::TimeUp("2026-01-01T00:00:00".to_owned()))?;
        }
        self.deliver(Event::WakeUpEnded)?;
        if self.is_flushed() {
            self.deliver(Event::Flushed)?;
            return Ok(true);
        }
        if !self.is_ready() {
            return Ok(false);
        }
        self.world
            .machines()
            .message_arrives(self.node, Victim::Stepd)?;
        match self.process().map(|p| p.machine.is_idle()) {
            None => return Ok(false),
            Some(true) => self.wait_for_step()?,
            Some(false) => self.wait_in_step()?,
        }
        Ok(true)
    }

    fn is_flushed(&mut self) -> bool {
        let now = self.world.now;
        let Some(process) = self.process() else {
            return false;
        };
        process.flushed_at.take_if(|at| *at <= now).is_some()
    }

    /// Something has come.
    fn is_ready(&mut self) -> bool {
        let now = self.world.now;
        let here = &self.world.nodes[self.node].machine;
        let Some(process) = here.stepds.get(&self.pid) else {
            return false;
        };
        let links = &self.world.links;
        let clients = &process.clients;
        let channels = [process.launcher_channel, process.agent_channel];
        let mut channels = channels.into_iter().flatten();
        let strangers = clients.strangers.iter().map(|(_, link)| *link);
        let mut down = strangers.chain(clients.client.map(|(_, link)| link));
        here.live(self.pid).is_some()
            && (!clients.arrived.is_empty()
                || !process.ended.is_empty()
                || process.is_terminated
                || !process.tasks.output.is_empty()
                || process.tasks.prepared_at.is_some_and(|at| at <= now)
                || channels.any(|id| {
                    let channel = here.channels.get(&id);
                    channel.is_none_or(|c| !c.down.is_empty() || c.is_upper_closed)
                })
                || down.any(|link| links.is_ready(link, Direction::Down))
                || process
                    .below
                    .values()
                    .any(|b| links.is_ready(b.link, Direction::Up)))
    }

    /// Between two steps.
    fn wait_for_step(&mut self) -> Outcome {
        let Some(process) = self.process() else {
            return Ok(());
        };
        // Nobody who knows what this process does sends it signals now.
        process.is_terminated = false;
        process.ended.clear();
        self.accept();
        self.read_launcher()?;
        if self.process().is_some_and(|p| p.machine.is_idle()) {
            self.read_agent()?;
        }
        if let Some(process) = self.process().filter(|p| p.machine.is_idle()) {
            // They come too late.
            let strangers = std::mem::take(&mut process.clients.strangers);
            for (_, link) in strangers {
                self.world.step_network().close(link, Direction::Up);
            }
        }
        Ok(())
    }

    /// While a step runs.
    fn wait_in_step(&mut self) -> Outcome {
        while let Some((stream, bytes)) = self.process().and_then(|p| p.tasks.output.pop_front()) {
            let bytes = bytes.into();
            self.deliver(Event::Output {
                task: stream.task,
                is_error: stream.is_stderr,
                bytes,
            })?;
        }
        self.read_below()?;
        let now = self.world.now;
        let prepared = self
            .process()
            .and_then(|p| p.tasks.prepared_at.take_if(|at| *at <= now));
        if prepared.is_some() {
            self.deliver(Event::TasksPrepared(None))?;
        }
        self.read_client()?;
        self.read_strangers()?;
        self.read_launcher()?;
        self.read_agent()?;
        self.read_signals()?;
        self.accept();
        if self.process().is_some_and(|p| p.machine.has_unread()) && self.has_launcher_read() {
            self.deliver(Event::LauncherHasRead)?;
        }
        Ok(())
    }

    /// Takes in who has connected.
    fn accept(&mut self) {
        if let Some(process) = self.process() {
            while let Some(link) = process.clients.arrived.pop_front() {
                let id = process.clients.next_id();
                process.clients.strangers.push((id, link));
            }
        }
    }

    /// Wakes when the first time has come.
    fn set_timer(&mut self) {
        let (now, mono_ms) = (self.world.now, self.world.boot_ms(self.node));
        let Some(process) = self.process() else {
            return;
        };
        let deadline = process.machine.deadline();
        let deadline = deadline.map(|at| at.saturating_sub(mono_ms));
        let tasks = [process.tasks.prepared_at, process.flushed_at];
        let tasks = tasks.into_iter().flatten().map(|at| at.saturating_sub(now));
        let reads = process.machine.has_unread() && !process.machine.is_idle();
        let reads = reads.then_some(READ_WAIT_MS);
        if let Some(delay) = tasks.chain(deadline).chain(reads).min() {
            let event = NodeEvent::StepdWakes(self.pid);
            self.world.machine_later(delay, self.node, event);
        }
    }

    /// Gives the machine an event, and then what its actions bring.
    pub(super) fn deliver(&mut self, event: Event) -> Outcome {
        let now = self.world.node_now(self.node);
        let mut next = Some(event);
        while let Some(event) = next {
            let name = format!("step daemon {}", self.pid);
            let now_ms = self.world.now;
            self.world.trace.process(now_ms, self.node, &name, &event);
            let Some(process) = self.process() else {
                return Ok(());
            };
            let mut actions = Vec::new();
            let machine = &mut process.machine;
            let handled = AssertUnwindSafe(|| machine.on_event(event, now, &mut actions));
            catch_unwind(handled).map_err(|cause| {
                let detail = format!("a step daemon: {}", panic_text(&*cause));
                Violation::new("invariant_nothing_panics", detail)
            })?;
            for action in &actions {
                self.world.trace.process(now_ms, self.node, &name, action);
            }
            for action in actions {
                if self.is_killed() {
                    return self
                        .world
                        .machines()
                        .end_process(self.node, self.pid, SIGKILL);
                }
                self.execute(action)?;
            }
            next = self.process().and_then(|p| p.events.pop_front());
        }
        Ok(())
    }

    /// Whether it is killed before it has carried out an action.
    fn is_killed(&mut self) -> bool {
        let dies_in = self.process().and_then(|p| p.dies_in.as_mut());
        match dies_in {
            None => false,
            Some(0) => true,
            Some(left) => {
                *left -= 1;
                false
            }
        }
    }

    /// Gives the machine a step, with the connection of srun's that came with it.
    fn give(
        &mut self,
        next: Box<NextStep>,
        giver: StepSender,
        streams: Option<StepLinkId>,
    ) -> Outcome {
        let (node, pid) = (self.node, self.pid);
        let mut srun: Option<ClientId> = None;
        if let Some(link) = streams {
            if let Some(open) = self.world.links.get_mut(link) {
                open.server = Some(LinkServer::Stepd(node, pid));
            }
            if let Some(process) = self.process() {
                let id = process.clients.next_id();
                process.clients.handed_over = Some((id, link));
                srun = Some(id);
            }
        }
        self.deliver(Event::StepGiven(next, giver, srun))
    }

    /// Takes in what the launcher says.
    pub(super) fn read_launcher(&mut self) -> Outcome {
        let has_read = self.process().is_some_and(|p| p.machine.has_unread()) && self.is_all_read();
        let Some(id) = self.process().and_then(|p| p.launcher_channel) else {
            return Ok(());
        };
        let channels = &mut self.world.nodes[self.node].machine.channels;
        let (down, is_open) = match channels.get_mut(&id) {
            Some(channel) => (std::mem::take(&mut channel.down), !channel.is_upper_closed),
            None => (Default::default(), false),
        };
        let mut events = Vec::new();
        for down in down {
            let Down::Command(command, agent) = down else {
                continue;
            };
            events.push(match *command {
                StepdCommand::StartStep(next) => {
                    self.set_agent(agent);
                    Event::StepGiven(next, StepSender::Launcher, None)
                }
                other => Event::Command(other),
            });
        }
        if !is_open {
            self.close_launcher();
        } else if has_read {
            self.deliver(Event::LauncherHasRead)?;
        }
        for event in events {
            self.deliver(event)?;
        }
        match is_open {
            true => Ok(()),
            false => self.deliver(Event::LauncherLost),
        }
    }

    fn set_agent(&mut self, agent: Option<u64>) {
        let pid = self.pid;
        let Some(process) = self.process() else {
            return;
        };
        let before = std::mem::replace(&mut process.agent_channel, agent);
        let channels = &mut self.world.nodes[self.node].machine.channels;
        if let Some(channel) = agent.and_then(|id| channels.get_mut(&id)) {
            channel.stepd = Some(pid);
        }
        if let Some(before) = before {
            self.world.machines().close_lower(self.node, before);
        }
    }

    /// Takes in steps that the agent gives. All else is for the launcher to say.
    fn read_agent(&mut self) -> Outcome {
        let Some(id) = self.process().and_then(|p| p.agent_channel) else {
            return Ok(());
        };
        let channels = &mut self.world.nodes[self.node].machine.channels;
        let (mut down, is_open) = match channels.get_mut(&id) {
            Some(channel) => (std::mem::take(&mut channel.down), !channel.is_upper_closed),
            None => (Default::default(), false),
        };
        if !is_open {
            self.set_agent(None);
        }
        while let Some(next) = down.pop_front() {
            let Down::Command(command, _) = next else {
                let detail = format!("{}: streams without a step", self.name());
                return Err(Violation::new("invariant_streams_come_with_steps", detail));
            };
            let streams = match down.front() {
                Some(Down::Streams(link)) => Some(*link),
                _ => None,
            };
            if streams.is_some() {
                down.pop_front();
            }
            if let StepdCommand::StartStep(next) = *command {
                self.give(next, StepSender::Agent, streams)?;
            }
        }
        Ok(())
    }

    /// Takes in what srun, or the node above, says.
    fn read_client(&mut self) -> Outcome {
        while let Some((_, link)) = self.process().and_then(|p| p.clients.client) {
            let Some(open) = self.world.links.get_mut(link) else {
                return self.deliver(Event::ClientClosed);
            };
            match open.down.frames.take::<ToStepd>() {
                Ok(Some(message)) => self.deliver(Event::Client(message))?,
                Ok(None) if open.down.is_closed => return self.deliver(Event::ClientClosed),
                Ok(None) => {
                    open.down.is_new = false;
                    return Ok(());
                }
                Err(e) => {
                    let detail = format!("{}: {e}", self.name());
                    return Err(Violation::new("invariant_messages_are_understood", detail));
                }
            }
        }
        Ok(())
    }

    /// Reads the first messages of connections.
    fn read_strangers(&mut self) -> Outcome {
        let strangers = self.process().map(|p| p.clients.strangers.clone());
        for (id, link) in strangers.unwrap_or_default() {
            let Some(open) = self.world.links.get_mut(link) else {
                self.forget_stranger(id);
                continue;
            };
            let message = open.down.frames.take::<ToStepd>().ok().flatten();
            let Some(message) = message else {
                open.down.is_new = false;
                if open.down.is_closed {
                    self.world.step_network().close(link, Direction::Up);
                    self.forget_stranger(id);
                }
                continue;
            };
            self.forget_stranger(id);
            self.greet(id, Greeted::Link(link), message)?;
        }
        Ok(())
    }

    fn forget_stranger(&mut self, id: ClientId) {
        if let Some(process) = self.process() {
            process.clients.strangers.retain(|(of, _)| *of != id);
        }
    }

    fn greet(&mut self, client: ClientId, greeted: Greeted, message: ToStepd) -> Outcome {
        let is_own = matches!(message, ToStepd::Adopt(_));
        if is_own {
            // The last words of the launcher before.
            self.read_launcher()?;
        }
        match self.process() {
            Some(process) => process.clients.greeted = Some((client, greeted)),
            None => return Ok(()),
        }
        self.deliver(Event::Greeted {
            client,
            message,
            is_own,
        })?;
        if let Some((_, left)) = self.process().and_then(|p| p.clients.greeted.take()) {
            self.close_greeted(left);
        }
        self.read_client()
    }

    pub(super) fn close_greeted(&mut self, greeted: Greeted) {
        match greeted {
            Greeted::Link(link) => self.world.step_network().close(link, Direction::Up),
            Greeted::Launcher(channel) => self.world.machines().close_lower(self.node, channel),
        }
    }

    /// Another launcher asks what runs, by a channel that it has made.
    pub(super) fn adopt(&mut self, channel: u64) -> Outcome {
        self.wake()?;
        let pid = self.pid;
        let Some(process) = self.process() else {
            self.world.machines().close_lower(self.node, channel);
            return Ok(());
        };
        let id = process.clients.next_id();
        let channels = &mut self.world.nodes[self.node].machine.channels;
        if let Some(open) = channels.get_mut(&channel) {
            open.stepd = Some(pid);
        }
        let greeting = muster_node_core::messages::VERSIONS.greeting();
        self.greet(
            id,
            Greeted::Launcher(channel),
            ToStepd::Adopt(Some(greeting)),
        )?;
        self.wake()
    }

    /// Passes on what those below say.
    fn read_below(&mut self) -> Outcome {
        let below = self.process().map(|p| {
            let all = p.below.iter();
            all.map(|(at, node)| (*at, node.link)).collect::<Vec<_>>()
        });
        for (position, link) in below.unwrap_or_default() {
            let (mut up, mut is_over) = (Vec::new(), false);
            let is_closed = match self.world.links.get_mut(link) {
                Some(open) => {
                    while let Ok(Some(frame)) = open.up.frames.take_whole() {
                        match frame::decode(&frame[4..]) {
                            Ok(FromStepd::ConnectionFinished) => is_over = true,
                            _ => up.extend_from_slice(frame),
                        }
                    }
                    open.up.is_new = false;
                    open.up.is_closed
                }
                None => true,
            };
            let Some(process) = self.process() else {
                return Ok(());
            };
            if let Some(node) = process.below.get_mut(&position) {
                node.is_over |= is_over;
                is_over = node.is_over;
            }
            let client = process.clients.client;
            if is_closed {
                process.below.remove(&position);
            }
            // Without a way up it is dropped: they will be asked to say it again.
            if let (Some((_, client)), false) = (client, up.is_empty()) {
                self.world.step_network().send(client, Direction::Up, &up);
            }
            if is_closed {
                self.world.step_network().close(link, Direction::Down);
                self.deliver(Event::BelowClosed { position, is_over })?;
            }
        }
        Ok(())
    }

    fn read_signals(&mut self) -> Outcome {
        if self
            .process()
            .is_some_and(|p| std::mem::take(&mut p.is_terminated))
        {
            // The message that belongs to it was written before the signal was sent.
            self.read_launcher()?;
            self.deliver(Event::Terminate)?;
        }
        let mut have_ended = false;
        while let Some((pid, status)) = self.process().and_then(|p| p.ended.pop_front()) {
            have_ended = true;
            let usage = ResourceUsage {
                user_us: 1000,
                ..ResourceUsage::default()
            };
            self.deliver(Event::ChildEnded {
                pid,
                status,
                usage: Box::new(usage),
            })?;
        }
        match have_ended {
            true => {
                let machine = &self.world.nodes[self.node].machine;
                let are_none = machine.below(self.pid).is_empty();
                self.deliver(Event::ChildrenCollected { are_none })
            }
            false => Ok(()),
        }
    }

    /// The launcher has read all that it was sent.
    pub(super) fn is_all_read(&mut self) -> bool {
        let channel = self.process().and_then(|p| p.launcher_channel);
        let channels = &self.world.nodes[self.node].machine.channels;
        let channel = channel.and_then(|id| channels.get(&id));
        channel.is_some_and(|c| c.up.is_empty())
    }

    /// As above, and its connection is open.
    pub(super) fn has_launcher_read(&mut self) -> bool {
        let channel = self.process().and_then(|p| p.launcher_channel);
        let channels = &self.world.nodes[self.node].machine.channels;
        let channel = channel.and_then(|id| channels.get(&id));
        channel.is_some_and(|c| c.up.is_empty() && !c.is_upper_closed)
    }

    pub(super) fn close_launcher(&mut self) {
        let before = self.process().and_then(|p| p.launcher_channel.take());
        if let Some(before) = before {
            self.world.machines().close_lower(self.node, before);
        }
    }

    /// The process has ended: its tasks go with it, but not the processes that they have started.
    pub(super) fn end(&mut self, attempt: JobAttempt, uid: u32) {
        let (node, pid) = (self.node, self.pid);
        let parent = match self.world.nodes[node].launcher {
            Some(_) => Parent::Launcher,
            None => Parent::Init,
        };
        let machine = &mut self.world.nodes[node].machine;
        let stepd = machine.stepds.remove(&pid);
        for child in machine.below(pid) {
            let process = machine.processes.get_mut(&child);
            let Some(process) = process.filter(|p| matches!(p.kind, Kind::Orphan(..))) else {
                machine.processes.remove(&child);
                continue;
            };
            process.parent = parent;
        }
        self.world
            .machines()
            .leave_orphan(node, attempt, Some(pid), uid);
        let Some(stepd) = stepd else { return };
        let channels = [stepd.launcher_channel, stepd.agent_channel];
        for channel in channels.into_iter().flatten() {
            self.world.machines().close_lower(node, channel);
        }
        self.world.step_network().close_all_of(node, Some(pid));
    }
}
