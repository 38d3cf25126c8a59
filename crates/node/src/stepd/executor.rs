//! Performs the decisions of the daemon's state machine, and feeds it events: one thread, one poll
//! loop.

use super::asked_signals::AskedSignals;
use super::connections::{Connections, WriteResult};
use super::control_channel::ControlChannel;
use super::mpi::Pmix;
use super::task_set::{LimitCache, TaskSet};
use super::{leave, poll};
use crate::cgroup::steps::{JobGroups, StepGroup};
use crate::descriptors::SrunStdio;
use crate::processes::ProcessTree;
use crate::removal::Removal;
use crate::step_links::StepClient;
use crate::{now, reaping, stepd_log, sys};
use muster_model::job::ResourceUsage;
use muster_node_core::messages::{AgentToStepd, NextStep, RunningStep, StepdCommand, StepdEvent};
use muster_node_core::now::Now;
use muster_node_core::stepd::{
    Action, ClientId, Event, StartedTasks, StepSender, Stepd, StepdSetup,
};
use muster_proto::frame;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use std::collections::VecDeque;
use std::io;
use std::net::TcpListener;
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Time limit for the removal of a step's directories.
const REMOVAL_WAIT: Duration = Duration::from_secs(10);
/// The state machine, and the objects that its numbers stand for.
pub(super) struct StepdExecutor {
    pub(super) stepd: Stepd,
    spool: PathBuf,
    node: Rc<str>,
    clock: Instant,
    pub(super) signals: SignalFd,
    pub(super) connections: Connections,
    pub(super) launcher: Option<ControlChannel>,
    /// The agent that gave the last step, or to which the launcher's last step belongs.
    pub(super) agent: Option<ControlChannel>,
    /// Listener of the first step's MPI host.
    wire: Option<TcpListener>,
    /// Tasks of the running step.
    pub(super) tasks: Option<TaskSet>,
    processes: ProcessTree,
    asked: AskedSignals,
    /// The messages of one read are being processed. Signals that they request are delivered afterwards.
    is_reading: bool,
    limits: LimitCache,
    /// Control groups of the job.
    groups: Option<JobGroups>,
    /// More children may have ended than were collected.
    pub(super) may_have_ended: bool,
    /// Results of actions, which are handled before all other events.
    events: VecDeque<Event>,
    /// Buffer for actions, empty between events.
    actions: Vec<Action>,
    is_over: bool,
}

/// The daemon's initial connections.
pub(super) struct StepdConnections {
    pub(super) listener: UnixListener,
    pub(super) launcher: UnixStream,
    pub(super) agent: Option<UnixStream>,
    pub(super) wire: Option<TcpListener>,
    pub(super) groups: Option<JobGroups>,
}

impl StepdExecutor {
    pub(super) fn open(setup: StepdSetup, ends: StepdConnections) -> io::Result<StepdExecutor> {
        sys::become_subreaper()?;
        // The launcher's mask already blocks these signals; a descriptor of the daemon receives
        // them.
        let mut mask = SigSet::empty();
        for signal in [Signal::SIGCHLD, Signal::SIGTERM, Signal::SIGUSR1] {
            mask.add(signal);
        }
        mask.thread_block()?;
        let signals = SignalFd::with_flags(&mask, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
        Ok(StepdExecutor {
            spool: setup.spool.clone(),
            node: Rc::from(&*setup.node),
            stepd: Stepd::new(setup),
            clock: Instant::now(),
            signals,
            connections: Connections::new(ends.listener),
            launcher: Some(ControlChannel::new(ends.launcher)?),
            agent: ends.agent.map(ControlChannel::new).transpose()?,
            wire: ends.wire,
            tasks: None,
            processes: ProcessTree::new(),
            asked: AskedSignals::default(),
            is_reading: false,
            limits: LimitCache::default(),
            groups: ends.groups,
            may_have_ended: false,
            events: VecDeque::new(),
            actions: Vec::new(),
            is_over: false,
        })
    }

    /// Serves steps, beginning with this one, until the process is to end.
    pub(super) fn run(mut self, first: NextStep, dirs: Vec<PathBuf>, srun: Option<SrunStdio>) {
        self.give(first, StepSender::Start(dirs), srun);
        while !self.is_over {
            if self.stepd.deadline().is_some_and(|at| at <= self.now_ms()) {
                let local_time = sys::local_time(now().unix_s());
                self.deliver(Event::TimeUp(local_time));
            }
            self.deliver(Event::WakeUpEnded);
            // The final messages leave in one write.
            if self.is_over || self.write_to_client() {
                continue;
            }
            if let Err(e) = poll::wait(&mut self) {
                self.deliver(Event::Broken(e.to_string()));
            }
        }
    }

    /// Milliseconds of the state machine's clock.
    pub(super) fn now_ms(&self) -> u64 {
        u64::try_from(self.clock.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Passes an event to the state machine, and then the results of its actions.
    pub(super) fn deliver(&mut self, event: Event) {
        let mut actions = std::mem::take(&mut self.actions);
        let mut next = Some(event);
        while let Some(event) = next {
            let now = Now {
                wall: now(),
                mono_ms: self.now_ms(),
            };
            self.stepd.on_event(event, now, &mut actions);
            for action in actions.drain(..) {
                self.execute(action);
            }
            next = self.events.pop_front();
        }
        self.actions = actions;
        if !self.is_reading {
            self.deliver_asked();
        }
    }

    /// Delivers the signals that were asked for.
    fn deliver_asked(&mut self) {
        let asked = self.asked.take();
        if let Some(tasks) = &mut self.tasks {
            tasks.signal(&self.processes, &asked);
        }
    }

    /// All messages of one read were processed.
    fn end_reading(&mut self) {
        self.is_reading = false;
        self.deliver_asked();
    }

    fn execute(&mut self, action: Action) {
        match action {
            Action::Log(line) => stepd_log::line(&line),
            Action::BeginStep(order, srun) => {
                let mut tasks = TaskSet::new(order, Rc::clone(&self.node));
                tasks.direct = srun.and_then(|srun| self.connections.take_stdio(srun));
                self.tasks = Some(tasks);
            }
            Action::Send(message, may_wait) => {
                if let Some(client) = self.connections.client_mut() {
                    client.send(&message, may_wait);
                }
            }
            Action::SendFrame(frame, may_wait) => {
                if let Some(client) = self.connections.client_mut() {
                    client.send_frame(&frame, may_wait);
                }
            }
            Action::AwaitFlush => self.connections.await_flush(),
            Action::Refuse(id, refusal) => self.connections.refuse(id, refusal),
            Action::TakeClient(id) => self.connections.take_client(id),
            Action::TakeReader(id, frames) => self.connections.take_reader(id, &frames),
            Action::SendReaders(frame) => {
                let gone = self.connections.send_readers(&frame);
                self.events
                    .extend(gone.into_iter().map(Event::ReaderClosed));
            }
            Action::CloseClient(id) => self.connections.close(id),
            Action::AdoptLauncher(id, running) => self.adopt_launcher(id, running),
            Action::ReportEnd(frame) => self.report_end(&frame),
            Action::SendAgent(frame) => {
                let agent = self.agent.take();
                self.agent = agent.and_then(|mut agent| agent.send(&frame).then_some(agent));
            }
            Action::CheckLauncher => {
                let has_read = self.has_launcher_read();
                self.events.push_back(Event::LauncherChecked(has_read));
            }
            Action::LeaveResult(path, end, kept) => leave(&path, &end, &kept),
            Action::RemoveDirs { user, dirs } => {
                if let Some(removal) = Removal::begin(user, &dirs) {
                    removal.wait(REMOVAL_WAIT);
                }
            }
            Action::EndStep => {
                self.asked.take();
                let group = self.tasks.take().and_then(|tasks| tasks.group);
                if let (Some(job), Some(step)) = (&self.groups, &group) {
                    job.end(step);
                }
                self.connections.end_step();
            }
            Action::Exit => self.is_over = true,
            action => self.execute_for_tasks(action),
        }
    }

    /// Performs actions on tasks and the MPI host, while there are any.
    fn execute_for_tasks(&mut self, action: Action) {
        let Some(tasks) = &mut self.tasks else {
            return;
        };
        match action {
            Action::StartHost(dirs) => {
                let host = Pmix::start(&tasks.order, &self.spool, dirs, self.wire.take());
                let started = host.map_err(|e| e.to_string()).map(|host| {
                    let pid = host.pid;
                    tasks.pmix = Some(host);
                    pid
                });
                self.events.push_back(Event::HostStarted(started));
            }
            Action::StartTasks => {
                let (pids, error) = tasks.start(&mut self.limits, self.groups.as_ref());
                self.events.push_back(Event::TasksStarted(StartedTasks {
                    pids,
                    outputs: tasks.outputs(),
                    are_held: tasks.go.is_some(),
                    error: error.map(|e| e.to_string()),
                }));
            }
            Action::ReleaseTasks => tasks.release(),
            Action::StartEpilog { local, task } => {
                let pid = tasks.start_epilogs(local, task);
                self.events.push_back(Event::EpilogStarted(task, pid));
            }
            Action::SignalAsked(signal) => self.asked.ask(signal),
            Action::SignalTasks(signal) => {
                let mut signals = self.asked.take();
                signals.push(signal);
                tasks.signal(&self.processes, &signals);
            }
            Action::SignalTask(pid, signal) => drop(sys::kill(pid, signal)),
            Action::KillRemnants => tasks.kill_remnants(&self.processes),
            Action::EndInput => tasks.streams.iter_mut().for_each(|s| s.close_input()),
            Action::Feed(task, bytes) => tasks.feed(task, bytes.into()),
            Action::SetWindow(rows, columns) => tasks.set_window(rows, columns),
            Action::ConnectBelow(branches) => {
                let lost = tasks.below.connect(branches, Some(&tasks.order.user));
                self.events.push_back(Event::BelowConnected(lost));
            }
            Action::SendBelow(position, frame) => tasks.below.send(position, &frame),
            Action::ReadHost => {
                if let Some(pmix) = &mut tasks.pmix {
                    let said = pmix.receive();
                    self.events.extend(said.into_iter().map(Event::Host));
                }
                self.events.push_back(Event::HostRead);
            }
            action => {
                if let Some(pmix) = &mut tasks.pmix {
                    pmix.execute(action, tasks.order.user.uid);
                }
            }
        }
    }

    fn adopt_launcher(&mut self, id: ClientId, running: Box<RunningStep>) {
        let stream = self.connections.take_launcher(id);
        let channel = stream.and_then(|stream| ControlChannel::new(stream).ok());
        self.launcher = channel.and_then(|mut channel| {
            let frame = frame::encode(&StepdEvent::StepRunning(running));
            channel.send(&frame).then_some(channel)
        });
        if self.launcher.is_none() {
            self.events.push_back(Event::LauncherLost);
        }
    }

    fn report_end(&mut self, frame: &[u8]) {
        let had_read = self.stepd.has_unread() && self.is_all_read();
        let is_sent = self.launcher.as_mut().is_some_and(|l| l.send(frame));
        self.launcher = self.launcher.take().filter(|_| is_sent);
        let reported = Event::EndReported { is_sent, had_read };
        self.events.push_back(reported);
    }

    fn is_all_read(&self) -> bool {
        let launcher = self.launcher.as_ref();
        launcher.is_some_and(|l| sys::is_all_read(l.stream.as_fd()))
    }

    /// Whether the launcher has read everything sent to it, and is still connected. The checks must
    /// be in this order: unread data of a launcher that is gone is lost, and then nothing is left
    /// to be read.
    pub(super) fn has_launcher_read(&self) -> bool {
        let launcher = self.launcher.as_ref();
        self.is_all_read() && launcher.is_some_and(|l| !sys::has_hung_up(&l.stream))
    }

    /// Passes a step to the state machine.
    fn give(&mut self, next: NextStep, giver: StepSender, srun: Option<SrunStdio>) {
        let srun = self.connections.hand_over(srun);
        self.deliver(Event::StepGiven(Box::new(next), giver, srun));
    }

    /// Writes queued output to srun; returns whether that was an event for the state machine.
    fn write_to_client(&mut self) -> bool {
        match self.connections.write() {
            Some(WriteResult::Closed) => self.deliver(Event::ClientClosed),
            Some(WriteResult::Flushed) => self.deliver(Event::Flushed),
            None => return false,
        }
        true
    }

    /// Reads messages of the launcher.
    pub(super) fn read_launcher(&mut self) {
        let Some(mut launcher) = self.launcher.take() else {
            return;
        };
        let has_read = self.stepd.has_unread() && sys::is_all_read(launcher.stream.as_fd());
        let is_open = launcher.read();
        let mut events = Vec::new();
        while let Ok(Some(command)) = launcher.input.take() {
            events.push(match command {
                StepdCommand::StartStep(next) => {
                    let agent = launcher.descriptors.pop_front();
                    let agent = agent.map(UnixStream::from).map(ControlChannel::new);
                    self.agent = agent.and_then(Result::ok);
                    Event::StepGiven(next, StepSender::Launcher, None)
                }
                other => Event::Command(other),
            });
        }
        self.launcher = Some(launcher).filter(|_| is_open);
        if has_read && is_open {
            self.deliver(Event::LauncherHasRead);
        }
        for event in events {
            self.deliver(event);
        }
        if !is_open {
            self.deliver(Event::LauncherLost);
        }
    }

    /// Reads steps that the agent gives. An agent that sends anything else is not read any more: all other messages must come
    /// from the launcher.
    pub(super) fn read_agent(&mut self) {
        let Some(mut agent) = self.agent.take() else {
            return;
        };
        let mut is_open = agent.read();
        let mut given = Vec::new();
        loop {
            match agent.input.take() {
                Ok(Some(AgentToStepd::StartStep(next))) => {
                    let streams = match next.order.direct {
                        true => SrunStdio::take(&mut agent.descriptors),
                        false => None,
                    };
                    given.push((next, streams));
                }
                Ok(None) => break,
                Err(_) => {
                    is_open = false;
                    break;
                }
            }
        }
        self.agent = Some(agent).filter(|_| is_open);
        for (next, srun) in given {
            self.give(*next, StepSender::Agent, srun);
        }
    }

    /// Reads messages of srun or of the node above.
    pub(super) fn read_client(&mut self) {
        if let Some(client) = self.connections.client_mut() {
            client.wire.read();
        }
        self.deliver_requests();
    }

    fn deliver_requests(&mut self) {
        self.is_reading = true;
        while let Some(message) = self.connections.client_mut().and_then(StepClient::next) {
            self.deliver(Event::Client(message));
        }
        self.end_reading();
        if self.connections.client().is_some_and(|c| !c.wire.open) {
            self.deliver(Event::ClientClosed);
        }
    }

    /// Reads messages of a reader.
    pub(super) fn read_reader(&mut self, at: usize) {
        for message in self.connections.read_reader(at) {
            self.deliver(Event::Reader(message));
        }
    }

    /// Writes queued output to readers.
    pub(super) fn write_readers(&mut self) {
        for reader in self.connections.write_readers() {
            self.deliver(Event::ReaderClosed(reader));
        }
    }

    /// Reads the first message of a new connection, which identifies the client.
    pub(super) fn read_stranger(&mut self, at: usize) {
        let Some((client, message, is_own)) = self.connections.read_stranger(at) else {
            return;
        };
        if is_own {
            // The previous launcher's final messages.
            self.read_launcher();
        }
        self.deliver(Event::Greeted {
            client,
            message,
            is_own,
        });
        self.connections.drop_greeted();
        self.deliver_requests();
        // Data that arrived with the first message of a reader causes no further wake-up.
        if let Some(last) = self.connections.readers.len().checked_sub(1) {
            self.read_reader(last);
        }
    }

    /// Forwards messages from the nodes below.
    pub(super) fn read_below(&mut self, seen: &[bool]) {
        let Some(tasks) = &mut self.tasks else {
            return;
        };
        // Without a connection upwards it is dropped; the nodes below will be asked to send it
        // again.
        let mut nowhere = Vec::new();
        let client = self.connections.client_mut();
        let up = client.map_or(&mut nowhere, |client| {
            client.hurry();
            &mut client.wire.output
        });
        for (position, is_over) in tasks.below.serve(seen, up) {
            self.deliver(Event::BelowClosed { position, is_over });
        }
    }

    /// Reads messages of the MPI host, and sends it queued ones.
    pub(super) fn read_host(&mut self) {
        let pmix = self.tasks.as_mut().and_then(|tasks| tasks.pmix.as_mut());
        let said = pmix.map(Pmix::receive).unwrap_or_default();
        self.is_reading = true;
        for event in said {
            self.deliver(Event::Host(event));
        }
        self.end_reading();
    }

    pub(super) fn read_signals(&mut self) {
        let mut has_children = false;
        while let Ok(Some(info)) = self.signals.read_signal() {
            match i32::try_from(info.ssi_signo).unwrap_or(0) {
                libc::SIGCHLD => has_children = true,
                libc::SIGTERM => {
                    // The related message was written before the signal was sent.
                    self.read_launcher();
                    self.deliver(Event::Terminate);
                }
                _ => {}
            }
        }
        if has_children || self.may_have_ended {
            self.collect_children();
        }
    }

    /// Records out-of-memory kills and resource usage before ends of processes are handled.
    fn read_group(&mut self) {
        let group = self.tasks.as_ref().and_then(|tasks| tasks.group.as_ref());
        let kills = group.map_or(0, StepGroup::oom_kills);
        let used = group.and_then(StepGroup::usage);
        if kills > 0 {
            self.deliver(Event::OutOfMemory(kills));
        }
        if let Some(used) = used {
            self.deliver(Event::GroupUsed(used));
        }
    }

    fn collect_children(&mut self) {
        self.read_group();
        let after = reaping::each_ended(sys::reap, |ended| {
            if let Some(tasks) = &mut self.tasks {
                tasks.note_ended(ended.pid);
            }
            self.deliver(Event::ChildEnded {
                pid: ended.pid,
                status: ended.status,
                usage: Box::new(usage(&ended)),
            });
        });
        self.may_have_ended = after == reaping::ReapResult::Burst;
        let are_none = after == reaping::ReapResult::Childless;
        self.deliver(Event::ChildrenCollected { are_none });
    }
}

fn usage(ended: &sys::Reaped) -> ResourceUsage {
    ResourceUsage {
        user_us: ended.user_us,
        system_us: ended.system_us,
        max_rss_kib: ended.max_rss_kib,
        pages: ended.pages,
        disk_read_bytes: ended.blocks_in * 512,
        disk_write_bytes: ended.blocks_out * 512,
        ..ResourceUsage::default()
    }
}
