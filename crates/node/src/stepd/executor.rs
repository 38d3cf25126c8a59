//! Carries out what the daemon's state machine decides, and gives it what happens: one thread, one poll loop.

use super::control_channel::ControlChannel;
use super::mpi::Pmix;
use super::task_set::{LimitCache, TaskSet};
use super::{leave, poll};
use crate::descriptors::{OrderFds, SrunStdio};
use crate::processes::ProcessTree;
use crate::removal::Removal;
use crate::step_links::Client;
use crate::{now, reaping, sys};
use muster_model::job::Usage;
use muster_node_core::messages::{NextStep, RunningStep, StepdCommand, StepdEvent};
use muster_node_core::now::Now;
use muster_node_core::stepd::{Action, ClientId, Event, Giver, Setup, StartedTasks, Stepd};
use muster_proto::frame;
use muster_proto::step::{FromStepd, ToStepd};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use std::collections::VecDeque;
use std::io;
use std::net::TcpListener;
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// How long the directories of a step may take to be removed.
const REMOVAL_WAIT: Duration = Duration::from_secs(10);
/// Connections that have not shown the key. With more, the oldest is closed: srun shows it at once.
const STRANGERS_MAX: usize = 64;
/// Bytes of the first message of a connection: a key, and the addresses of the nodes below.
const GREETING_BYTES_MAX: usize = 4 << 20;

/// The daemon, and all that its numbers stand for.
pub(super) struct Executor {
    pub(super) stepd: Stepd,
    spool: PathBuf,
    node: Rc<str>,
    clock: Instant,
    pub(super) signals: SignalFd,
    pub(super) listener: UnixListener,
    pub(super) launcher: Option<ControlChannel>,
    /// The agent that had the last step given by the launcher, or gave it.
    pub(super) agent: Option<ControlChannel>,
    /// Where the first step's MPI host listens.
    wire: Option<TcpListener>,
    /// Connections that have not shown the key.
    pub(super) strangers: Vec<(ClientId, Client)>,
    /// The one whose first message is looked at.
    greeted: Option<(ClientId, Client)>,
    pub(super) client: Option<(ClientId, Client)>,
    /// The machine waits until all that the client was sent is written.
    is_flush_awaited: bool,
    /// What came with the step that is being given.
    handed_over: Option<(ClientId, SrunStdio)>,
    /// Of the step that runs.
    pub(super) tasks: Option<TaskSet>,
    processes: ProcessTree,
    limits: LimitCache,
    /// More children may have ended than were collected.
    pub(super) may_have_ended: bool,
    /// Answers to actions, which come before all other events.
    events: VecDeque<Event>,
    last_id: u64,
    is_over: bool,
}

/// What a daemon begins with.
pub(super) struct Ends {
    pub(super) listener: UnixListener,
    pub(super) launcher: UnixStream,
    pub(super) agent: Option<UnixStream>,
    pub(super) wire: Option<TcpListener>,
}

impl Executor {
    pub(super) fn open(setup: Setup, ends: Ends) -> io::Result<Executor> {
        sys::become_subreaper()?;
        // The launcher's mask blocks these already; a descriptor of the daemon's own takes them.
        let mut mask = SigSet::empty();
        for signal in [Signal::SIGCHLD, Signal::SIGTERM, Signal::SIGUSR1] {
            mask.add(signal);
        }
        mask.thread_block()?;
        let signals = SignalFd::with_flags(&mask, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
        Ok(Executor {
            spool: setup.spool.clone(),
            node: Rc::from(&*setup.node),
            stepd: Stepd::new(setup),
            clock: Instant::now(),
            signals,
            listener: ends.listener,
            launcher: Some(ControlChannel::new(ends.launcher)?),
            agent: ends.agent.map(ControlChannel::new).transpose()?,
            wire: ends.wire,
            strangers: Vec::new(),
            greeted: None,
            client: None,
            is_flush_awaited: false,
            handed_over: None,
            tasks: None,
            processes: ProcessTree::new(),
            limits: LimitCache::default(),
            may_have_ended: false,
            events: VecDeque::new(),
            last_id: 0,
            is_over: false,
        })
    }

    /// Serves steps, of which this is the first, until the process is to end.
    pub(super) fn run(mut self, first: NextStep, dirs: Vec<PathBuf>, srun: Option<SrunStdio>) {
        self.give(first, Giver::Start(dirs), srun);
        while !self.is_over {
            if self.stepd.deadline().is_some_and(|at| at <= self.now_ms()) {
                let local_time = sys::local_time(now().unix_s());
                self.deliver(Event::TimeUp(local_time));
            }
            self.deliver(Event::WakeUpEnded);
            // Last words go in one write.
            if self.is_over || self.write_to_client() {
                continue;
            }
            if let Err(e) = poll::wait(&mut self) {
                self.deliver(Event::Broken(e.to_string()));
            }
        }
    }

    /// Milliseconds of the clock that the machine knows.
    pub(super) fn now_ms(&self) -> u64 {
        u64::try_from(self.clock.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Gives the machine an event, and then what its actions bring.
    pub(super) fn deliver(&mut self, event: Event) {
        let mut actions = Vec::new();
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
    }

    fn execute(&mut self, action: Action) {
        match action {
            Action::Log(line) => eprintln!("{line}"),
            Action::BeginStep(order, srun) => {
                self.begin_step(TaskSet::new(order, Rc::clone(&self.node)), srun)
            }
            Action::Send(message, may_wait) => {
                if let Some((_, client)) = &mut self.client {
                    client.send(&message, may_wait);
                }
            }
            Action::SendFrame(frame, may_wait) => {
                if let Some((_, client)) = &mut self.client {
                    client.send_frame(&frame, may_wait);
                }
            }
            Action::AwaitFlush => self.is_flush_awaited = true,
            Action::Refuse(id, refusal) => {
                if let Some((_, mut client)) = self.greeted.take_if(|(of, _)| *of == id) {
                    client.send(&FromStepd::Refused(refusal), false);
                    client.write();
                }
            }
            Action::TakeClient(id) => {
                self.client = self.greeted.take_if(|(of, _)| *of == id);
                self.is_flush_awaited = false;
            }
            Action::CloseClient(id) => self.close_client(id),
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
            Action::RemoveDirs(dirs) => {
                if let Some(removal) = Removal::begin(&dirs) {
                    removal.wait(REMOVAL_WAIT);
                }
            }
            Action::EndStep => {
                self.tasks = None;
                self.strangers.clear();
            }
            Action::Exit => self.is_over = true,
            action => self.execute_for_tasks(action),
        }
    }

    /// What is about tasks and the host, while there are any.
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
                let (pids, error) = tasks.start(&mut self.limits);
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
            Action::SignalTasks(signal) => tasks.signal(&self.processes, signal),
            Action::SignalTask(pid, signal) => drop(sys::kill(pid, signal)),
            Action::KillRemnants => tasks.kill_remnants(&self.processes),
            Action::EndInput => tasks.streams.iter_mut().for_each(|s| s.no_more_input()),
            Action::Feed(task, bytes) => tasks.feed(task, &bytes),
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

    fn begin_step(&mut self, mut tasks: TaskSet, srun: Option<ClientId>) {
        if let Some((id, stdio)) = self.handed_over.take_if(|(id, _)| Some(*id) == srun) {
            tasks.direct = Some([stdio.stdin, stdio.stdout, stdio.stderr]);
            // Where it cannot be used, srun reads its end.
            let client = Client::new(UnixStream::from(stdio.line));
            self.client = client.ok().map(|client| (id, client));
            self.is_flush_awaited = false;
        }
        self.tasks = Some(tasks);
    }

    fn close_client(&mut self, id: ClientId) {
        if let Some((_, mut client)) = self.client.take_if(|(of, _)| *of == id) {
            client.hurry();
            client.write();
        }
        self.greeted.take_if(|(of, _)| *of == id);
        self.handed_over.take_if(|(of, _)| *of == id);
    }

    fn adopt_launcher(&mut self, id: ClientId, running: Box<RunningStep>) {
        let client = self.greeted.take_if(|(of, _)| *of == id);
        let channel = client.and_then(|(_, client)| ControlChannel::new(client.wire.stream).ok());
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

    /// Whether the launcher has read all that it was sent, and is there. That is asked in this order: what one that is gone has
    /// not read is gone too, and nothing is left to be read.
    pub(super) fn has_launcher_read(&self) -> bool {
        let launcher = self.launcher.as_ref();
        self.is_all_read() && launcher.is_some_and(|l| !sys::has_hung_up(&l.stream))
    }

    /// Gives the machine a step.
    fn give(&mut self, next: NextStep, giver: Giver, srun: Option<SrunStdio>) {
        self.handed_over = srun.map(|srun| (self.next_id(), srun));
        let id = self.handed_over.as_ref().map(|(id, _)| *id);
        self.deliver(Event::StepGiven(Box::new(next), giver, id));
        self.handed_over = None;
    }

    fn next_id(&mut self) -> ClientId {
        self.last_id += 1;
        ClientId(self.last_id)
    }

    /// Writes what waits for srun; whether that was news for the machine.
    fn write_to_client(&mut self) -> bool {
        let Some((_, client)) = &mut self.client else {
            return false;
        };
        client.write();
        if !client.wire.open {
            self.deliver(Event::ClientClosed);
            return true;
        }
        let is_flushed = self.is_flush_awaited && client.wire.output.is_empty();
        if is_flushed {
            self.is_flush_awaited = false;
            self.deliver(Event::Flushed);
        }
        is_flushed
    }

    /// Takes in what the launcher says.
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
                    let with = OrderFds::take_by_launcher(&mut launcher.descriptors);
                    let agent = with.agent.map(UnixStream::from).map(ControlChannel::new);
                    self.agent = agent.and_then(Result::ok);
                    Event::StepGiven(next, Giver::Launcher, None)
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

    /// Takes in steps that the agent gives. All else is for the launcher to say.
    pub(super) fn read_agent(&mut self) {
        let Some(mut agent) = self.agent.take() else {
            return;
        };
        let is_open = agent.read();
        let mut given = Vec::new();
        while let Ok(Some(command)) = agent.input.take() {
            if let StepdCommand::StartStep(next) = command {
                let with = OrderFds::take(&mut agent.descriptors, next.order.direct);
                given.push((next, with.srun));
            }
        }
        self.agent = Some(agent).filter(|_| is_open);
        for (next, srun) in given {
            self.give(*next, Giver::Agent, srun);
        }
    }

    /// Takes in what srun, or the node above, says.
    pub(super) fn read_client(&mut self) {
        if let Some((_, client)) = &mut self.client {
            client.wire.read();
        }
        self.deliver_requests();
    }

    fn deliver_requests(&mut self) {
        while let Some(message) = self.client.as_mut().and_then(|(_, c)| c.next()) {
            self.deliver(Event::Client(message));
        }
        if self.client.as_ref().is_some_and(|(_, c)| !c.wire.open) {
            self.deliver(Event::ClientClosed);
        }
    }

    /// Takes in who has connected.
    pub(super) fn accept(&mut self) {
        // Others have their turn before the next so many.
        for _ in 0..STRANGERS_MAX {
            let Ok((stream, _)) = self.listener.accept() else {
                return;
            };
            if self.strangers.len() >= STRANGERS_MAX {
                self.strangers.remove(0);
            }
            if let Ok(client) = Client::new(stream) {
                let id = self.next_id();
                self.strangers.push((id, client));
            }
        }
    }

    /// Someone connected: the first message says who it is.
    pub(super) fn read_stranger(&mut self, at: usize) {
        let (client, mut stranger) = self.strangers.swap_remove(at);
        stranger.wire.read();
        let Some(message) = stranger.next() else {
            // Too much without a message: the connection is dropped.
            if stranger.wire.open && stranger.wire.received <= GREETING_BYTES_MAX {
                self.strangers.push((client, stranger));
            }
            return;
        };
        let is_own = matches!(message, ToStepd::Adopt(_)) && is_own(&stranger.wire.stream);
        if is_own {
            // The last words of the launcher before.
            self.read_launcher();
        }
        self.greeted = Some((client, stranger));
        self.deliver(Event::Greeted {
            client,
            message,
            is_own,
        });
        self.greeted = None;
        self.deliver_requests();
    }

    /// Passes on what those below say.
    pub(super) fn read_below(&mut self, seen: &[bool]) {
        let Some(tasks) = &mut self.tasks else {
            return;
        };
        // Without a way up it is dropped: they will be asked to say it again.
        let mut nowhere = Vec::new();
        let up = self.client.as_mut().map_or(&mut nowhere, |(_, client)| {
            client.hurry();
            &mut client.wire.output
        });
        for (position, is_over) in tasks.below.serve(seen, up) {
            self.deliver(Event::BelowClosed { position, is_over });
        }
    }

    /// Takes in what the MPI host says, and sends it what it has not read yet.
    pub(super) fn read_host(&mut self) {
        let pmix = self.tasks.as_mut().and_then(|tasks| tasks.pmix.as_mut());
        for event in pmix.map(Pmix::receive).unwrap_or_default() {
            self.deliver(Event::Host(event));
        }
    }

    pub(super) fn read_signals(&mut self) {
        let mut has_children = false;
        while let Ok(Some(info)) = self.signals.read_signal() {
            match i32::try_from(info.ssi_signo).unwrap_or(0) {
                libc::SIGCHLD => has_children = true,
                libc::SIGTERM => {
                    // The message that belongs to it was written before the signal was sent.
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

    fn collect_children(&mut self) {
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
        self.may_have_ended = after == reaping::After::Burst;
        let are_none = after == reaping::After::Childless;
        self.deliver(Event::ChildrenCollected { are_none });
    }
}

/// Whether the other end belongs to the user of this process, which is no job's unless all jobs are of one user.
fn is_own(stream: &UnixStream) -> bool {
    let peer = getsockopt(stream, PeerCredentials);
    peer.is_ok_and(|peer| peer.uid() == nix::unistd::geteuid().as_raw())
}

fn usage(ended: &sys::Reaped) -> Usage {
    Usage {
        user_us: ended.user_us,
        system_us: ended.system_us,
        max_rss_kib: ended.max_rss_kib,
        pages: ended.pages,
        disk_read_bytes: ended.blocks_in * 512,
        disk_write_bytes: ended.blocks_out * 512,
        ..Usage::default()
    }
}
