//! What a step daemon keeps from one step of its job to the next: where it listens, the lines to the launcher and to the agent,
//! the signals that it takes. Of steps it knows only how to receive the next one and how to report an end.

use super::Setting;
use super::client::STRANGERS_MAX;
use super::result::leave;
use crate::descriptors::{self, OrderFds};
use crate::launcher::ProcessTree;
use crate::sys::{self, SoftLimits};
use muster_model::job::StepEnd;
use muster_node_core::messages::{
    JobAttempt, KeptEntries, NextStep, RunningStep, StepBounds, StepdCommand, StepdEvent,
};
use muster_node_core::stepd_reuse::result_path;
use muster_proto::frame::{self, Frames};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use std::collections::VecDeque;
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;

/// A connection to a process that gives steps.
struct ControlChannel {
    stream: UnixStream,
    input: Frames,
    /// What has come with messages.
    descriptors: VecDeque<OwnedFd>,
}

impl ControlChannel {
    fn new(stream: UnixStream) -> io::Result<ControlChannel> {
        stream.set_nonblocking(true)?;
        Ok(ControlChannel {
            stream,
            input: Frames::default(),
            descriptors: VecDeque::new(),
        })
    }

    /// Takes in what has come; whether the other side is still there.
    fn read(&mut self) -> bool {
        let mut chunk = [0; 16 << 10];
        loop {
            match descriptors::receive(&self.stream, &mut chunk, &mut self.descriptors) {
                Ok(0) => return false,
                Ok(n) => {
                    self.input.push(&chunk[..n]);
                    if n < chunk.len() {
                        return true;
                    }
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return e.kind() == io::ErrorKind::WouldBlock,
            }
        }
    }

    fn say(&mut self, frames: &[u8]) -> bool {
        self.stream.write_all(frames).is_ok()
    }
}

/// A step that was given, and what goes with it.
pub(super) type Given = (NextStep, OrderFds);

/// What the launcher says of all steps of this process; agents are not trusted.
pub(super) struct Confines {
    pub(super) run: JobAttempt,
    pub(super) bounds: StepBounds,
    pub(super) spool: PathBuf,
}

impl Confines {
    /// Checks a step that an agent gives, and puts in it what is not the agent's to say.
    fn confine(&self, next: &mut NextStep) -> Result<(), String> {
        self.bounds.check(self.run, &next.order)?;
        if next.order.pmix.is_some() {
            return Err(
                "the step needs a host, for which the launcher makes directories".to_owned(),
            );
        }
        let result = result_path(&self.spool, self.run, next.order.launch.step);
        next.result = result.to_string_lossy().into_owned();
        next.order.user = self.bounds.user.clone();
        Ok(())
    }
}

/// See the module.
pub(super) struct StepdRuntime {
    pub(super) confines: Confines,
    pub(super) signals: SignalFd,
    pub(super) listener: UnixListener,
    /// Connections that were accepted while the step was given.
    pub(super) accepted: Vec<UnixStream>,
    pub(super) tree: ProcessTree,
    /// Soft limits that were asked for, and those of them that this process has otherwise: steps of a job mostly ask for the
    /// same.
    asked_limits: Option<SoftLimits>,
    other_limits: SoftLimits,
    launcher: Option<ControlChannel>,
    /// The agent that had the last step given by the launcher, or gave it.
    agent: Option<ControlChannel>,
    /// A step that was given by the launcher while another ran, which a lost agent had given.
    early: Option<Given>,
    /// Ends that were sent to the launcher, which may not have read them: if it is lost, they are lost with it.
    unread: Vec<Unread>,
}

/// What a file tells of a step's end: its path, the end, and what was to be kept.
struct Unread(PathBuf, StepEnd, KeptEntries);

impl StepdRuntime {
    pub(super) fn open(
        listener: UnixListener,
        launcher: UnixStream,
        agent: Option<UnixStream>,
        confines: Confines,
    ) -> io::Result<StepdRuntime> {
        sys::become_subreaper()?;
        // The launcher's mask blocks these already; a descriptor of the daemon's own takes them.
        let mut mask = SigSet::empty();
        for signal in [Signal::SIGCHLD, Signal::SIGTERM, Signal::SIGUSR1] {
            mask.add(signal);
        }
        mask.thread_block()?;
        let signals = SignalFd::with_flags(&mask, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
        Ok(StepdRuntime {
            confines,
            signals,
            listener,
            accepted: Vec::new(),
            tree: ProcessTree::new(),
            asked_limits: None,
            other_limits: SoftLimits::new(),
            launcher: Some(ControlChannel::new(launcher)?),
            agent: agent.map(ControlChannel::new).transpose()?,
            early: None,
            unread: Vec::new(),
        })
    }

    /// The line to the launcher, to poll.
    pub(super) fn launcher_fd(&self) -> Option<RawFd> {
        self.launcher_stream().map(AsRawFd::as_raw_fd)
    }

    pub(super) fn launcher_stream(&self) -> Option<&UnixStream> {
        self.launcher.as_ref().map(|line| &line.stream)
    }

    /// The line to the agent.
    pub(super) fn agent_stream(&self) -> Option<&UnixStream> {
        self.agent.as_ref().map(|line| &line.stream)
    }

    /// Those of these soft limits that a task does not have from this process.
    pub(super) fn limits_to_set(&mut self, asked: &[(u32, u64)]) -> Vec<(u32, u64)> {
        if self.asked_limits.as_deref() != Some(asked) {
            self.asked_limits = Some(asked.to_vec());
            self.other_limits = sys::other_limits(&sys::with_first_limits(asked));
        }
        self.other_limits.clone()
    }

    /// The launcher's commands since the last call; a further step is kept.
    pub(super) fn receive_commands(&mut self) -> Vec<StepdCommand> {
        let mut messages = Vec::new();
        let Some(mut line) = self.launcher.take() else {
            return messages;
        };
        let all_read = sys::is_all_read(line.stream.as_fd());
        let open = line.read();
        if open && all_read {
            self.unread.clear();
        }
        while let Ok(Some(message)) = line.input.take() {
            match message {
                StepdCommand::StartStep(next) => {
                    let received = &mut line.descriptors;
                    let mut with = OrderFds::take_by_launcher(received);
                    let agent = with
                        .agent
                        .take()
                        .map(UnixStream::from)
                        .map(ControlChannel::new);
                    self.agent = agent.and_then(Result::ok);
                    self.early = Some((*next, with));
                }
                other => messages.push(other),
            }
        }
        // Where it is gone, that is no reason to end.
        self.launcher = Some(line).filter(|_| open);
        if !open {
            self.leave_unread();
        }
        messages
    }

    /// A step that the agent has given, if it has.
    pub(super) fn receive_from_agent(&mut self) -> Option<Given> {
        let mut line = self.agent.take()?;
        let open = line.read();
        let mut given = None;
        while let Ok(Some(message)) = line.input.take() {
            // All else is for the launcher to say.
            let StepdCommand::StartStep(mut next) = message else {
                continue;
            };
            let with = OrderFds::take(&mut line.descriptors, next.order.direct);
            match self.confines.confine(&mut next) {
                Ok(()) => given = Some((*next, with)),
                Err(why) => eprintln!("a step is refused: {why}"),
            }
        }
        self.agent = Some(line).filter(|_| open);
        given
    }

    /// There is a new launcher, on this connection; it is sent what runs.
    pub(super) fn adopted(&mut self, stream: UnixStream, running: RunningStep) {
        // It looks for files when it has been answered.
        self.leave_unread();
        let line = ControlChannel::new(stream).ok();
        self.launcher = line.and_then(|mut line| {
            let sent = line.say(&frame::encode(&StepdEvent::StepRunning(Box::new(running))));
            sent.then_some(line)
        });
    }

    /// Sends the launcher how the step ended; whether the launcher was there.
    pub(super) fn send_to_launcher(&mut self, ended: &[u8]) -> bool {
        let all_read = self.is_all_read();
        // Half a frame is none: it learns the rest from the file.
        let sent = self.launcher.as_mut().is_some_and(|line| line.say(ended));
        self.launcher = self.launcher.take().filter(|_| sent);
        if sent && all_read {
            self.unread.clear();
        }
        sent
    }

    /// Keeps an end that was sent to the launcher until the launcher has read it; if the launcher is lost, the end goes into the step's file.
    pub(super) fn keep_unread(&mut self, end: StepEnd, setting: &mut Setting) {
        let kept = std::mem::take(&mut setting.kept);
        self.unread.push(Unread(setting.result.clone(), end, kept));
    }

    /// Whether there are ends that the launcher is not known to have read. Looks whether it has, meanwhile.
    pub(super) fn has_unread(&mut self) -> bool {
        if !self.unread.is_empty() && self.is_all_read() && !self.has_lost_launcher() {
            self.unread.clear();
        }
        !self.unread.is_empty()
    }

    /// To be asked after what it has read: what one that is gone has not read is gone too, and nothing is left to be read.
    fn has_lost_launcher(&self) -> bool {
        self.launcher_stream().is_none_or(sys::has_hung_up)
    }

    /// Leaves files of the ends that the launcher is not known to have read.
    pub(super) fn leave_unread(&mut self) {
        for Unread(path, end, kept) in self.unread.drain(..) {
            leave(&path, &end, &kept);
        }
    }

    fn is_all_read(&self) -> bool {
        let line = self.launcher.as_ref();
        line.is_some_and(|line| sys::is_all_read(line.stream.as_fd()))
    }

    /// Tells the agent the same of an end, where it is still there.
    pub(super) fn send_to_agent(&mut self, ended: &[u8]) {
        let line = self.agent.take();
        self.agent = line.and_then(|mut line| line.say(ended).then_some(line));
    }

    /// Waits for the job's next step; nothing when this process is not needed any more.
    pub(super) fn next_step(&mut self) -> Option<Given> {
        loop {
            let has_caller = match self.early.is_none() && self.launcher.is_some() {
                true => self.wait()?,
                false => true,
            };
            // Who has come for the next step has come after the word of it, which is read after this.
            let accept = || Some(self.listener.accept().ok()?.0);
            let accepted: Vec<UnixStream> = match has_caller {
                true => std::iter::from_fn(accept).take(STRANGERS_MAX).collect(),
                // To find nobody costs as much as a connection.
                false => Vec::new(),
            };
            // What is said of a step that has ended comes too late. Who says this has taken note of the end.
            if self.receive_commands().contains(&StepdCommand::Exit) {
                self.unread.clear();
                return None;
            }
            let given = self.early.take().or_else(|| self.receive_from_agent());
            if given.is_some() {
                self.accepted = accepted;
                return given;
            }
            // The others come too late.
            drop(accepted);
            self.launcher.as_ref()?;
        }
    }

    /// Waits until somebody has something to say; whether somebody has connected.
    fn wait(&self) -> Option<bool> {
        let entry = |fd: Option<RawFd>| libc::pollfd {
            // A negative descriptor is skipped by poll(2).
            fd: fd.unwrap_or(-1),
            events: libc::POLLIN,
            revents: 0,
        };
        let mut fds = [
            entry(self.launcher_fd()),
            entry(self.agent_stream().map(AsRawFd::as_raw_fd)),
            entry(Some(self.signals.as_fd().as_raw_fd())),
            entry(Some(self.listener.as_raw_fd())),
        ];
        sys::poll(&mut fds, -1).ok()?;
        // Nobody who knows what this process does sends it signals now.
        if fds[2].revents != 0 {
            while let Ok(Some(_)) = self.signals.read_signal() {}
        }
        Some(fds[3].revents != 0)
    }
}
