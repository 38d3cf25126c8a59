//! What a step daemon keeps from one step of its job to the next: where it listens, the lines to the shim and to the agent,
//! the signals that it takes. It knows nothing of steps but how to be told of the next one and to tell how one ended.

use super::result::leave;
use super::{Kept, Setting};
use crate::descriptors::{self, HandedOver, WithOrder};
use crate::shim::ProcessTree;
use crate::shim::wire::{Run, StepOrder};
use crate::sys;
use minicbor::{Decode, Encode};
use muster_core::ids::StepNo;
use muster_core::job::StepEnd;
use muster_proto::frame::{self, Frames};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use std::collections::VecDeque;
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::time::Duration;

/// What the shim has to say to a step daemon. Both are of one process, so nothing here outlives a version.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
pub(crate) enum Control {
    /// A line for the standard error of the step, told to all of its daemons.
    #[n(0)]
    Text(#[n(0)] String),
    /// The same, told to this one alone.
    #[n(1)]
    Own(#[n(0)] String),
    /// End the step: TERM, after a while KILL. Said here and not by a signal, so that it never reaches the step that comes
    /// after the one that it was meant for.
    #[n(5)]
    End,
    /// Seconds that the tasks may run, from their start on; absent: without end.
    #[n(2)]
    Limit(#[n(0)] Option<u64>),
    /// To a daemon whose step has ended: here is another.
    #[n(3)]
    Next(#[n(0)] Box<NextStep>),
    /// To a daemon whose step has ended: there is none, and what was told of the end is kept.
    #[n(4)]
    Leave,
}

/// What a step daemon says to the shim, and to the agent.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
pub(crate) enum Told {
    /// This step has ended; there may be another.
    #[n(0)]
    Ended(#[n(0)] StepNo, #[n(1)] Box<StepEnd>),
    /// To a shim that did not start it: this it runs.
    #[n(1)]
    Runs(#[n(0)] Box<Running>),
}

/// What a daemon runs, for a shim that may never have heard of it.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
pub(crate) struct Running {
    /// The job.
    #[n(0)]
    pub(crate) run: Run,
    /// The step.
    #[n(1)]
    pub(crate) step: StepNo,
    /// The daemon's process.
    #[n(2)]
    pub(crate) pid: i32,
    /// Directories of the step's outside the spool directory.
    #[n(3)]
    pub(crate) dirs: Vec<PathBuf>,
    /// See [`Setting::kept`].
    #[n(4)]
    pub(crate) kept: Kept,
}

/// Another step of the job.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
pub(crate) struct NextStep {
    /// What to run.
    #[n(0)]
    pub(crate) order: Box<StepOrder>,
    /// Time between TERM and KILL, milliseconds.
    #[n(1)]
    pub(crate) kill_wait_ms: u64,
    /// File for the result.
    #[n(2)]
    pub(crate) result: String,
    /// See [`Setting::kept`].
    #[n(3)]
    pub(crate) kept: Kept,
}

impl NextStep {
    /// As a frame of [`Control::Next`].
    pub(crate) fn as_control(&self) -> Vec<u8> {
        frame::encode(&Next::Next(self))
    }

    /// The order, and what goes with it beside what stays as it was.
    pub(super) fn parts(self, last: &Setting) -> (Box<StepOrder>, Setting) {
        let setting = Setting {
            node: last.node.clone(),
            kill_wait: Duration::from_millis(self.kill_wait_ms),
            result: PathBuf::from(self.result),
            dirs: Vec::new(),
            kept: self.kept,
        };
        (self.order, setting)
    }
}

/// [`Control::Next`] without a copy of the step.
#[derive(Encode)]
enum Next<'a> {
    #[n(3)]
    Next(#[n(0)] &'a NextStep),
}

/// A line to one who gives steps.
struct Line {
    stream: UnixStream,
    input: Frames,
    /// What has come with messages.
    descriptors: VecDeque<OwnedFd>,
}

impl Line {
    fn new(stream: UnixStream) -> io::Result<Line> {
        stream.set_nonblocking(true)?;
        Ok(Line {
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

    fn say(&mut self, told: &Told) -> bool {
        self.stream.write_all(&frame::encode(told)).is_ok()
    }
}

/// The next step, and what goes with it.
pub(super) type Given = (NextStep, Option<HandedOver>);

/// See the module.
pub(super) struct Home {
    pub(super) signals: SignalFd,
    pub(super) listener: UnixListener,
    /// Who came while the step was given.
    pub(super) come: Vec<UnixStream>,
    pub(super) tree: ProcessTree,
    /// For tasks that are started one at a time; made when the first is.
    stack: Option<sys::Stack>,
    /// Soft limits that were asked for, and those of them that this process has otherwise: steps of a job mostly ask for the
    /// same.
    asked_limits: SoftLimits,
    other_limits: SoftLimits,
    shim: Option<Line>,
    /// The agent that had the last step given by the shim, or gave it.
    agent: Option<Line>,
    /// A step that was given by the shim while another ran, which a lost agent had given.
    early: Option<Given>,
    /// Ends that the shim was told of and may not have read: where it is lost, they are lost with it.
    unread: Vec<Unread>,
}

/// By resource.
type SoftLimits = Vec<(u32, u64)>;

/// What a file tells of a step's end: its path, the end, and what was to be kept.
struct Unread(PathBuf, StepEnd, Kept);

impl Home {
    pub(super) fn open(
        listener: UnixListener,
        shim: UnixStream,
        agent: Option<UnixStream>,
    ) -> io::Result<Home> {
        sys::set_name(c"muster-stepd");
        sys::become_subreaper()?;
        // The shim's mask blocks these already; a descriptor of the daemon's own takes them.
        let mut mask = SigSet::empty();
        for signal in [Signal::SIGCHLD, Signal::SIGTERM, Signal::SIGUSR1] {
            mask.add(signal);
        }
        mask.thread_block()?;
        let signals = SignalFd::with_flags(&mask, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
        Ok(Home {
            signals,
            listener,
            come: Vec::new(),
            tree: ProcessTree::new(),
            stack: None,
            asked_limits: SoftLimits::new(),
            other_limits: SoftLimits::new(),
            shim: Some(Line::new(shim)?),
            agent: agent.map(Line::new).transpose()?,
            early: None,
            unread: Vec::new(),
        })
    }

    /// The line to the shim, to poll.
    pub(super) fn shim_fd(&self) -> Option<RawFd> {
        self.shim.as_ref().map(|line| line.stream.as_raw_fd())
    }

    /// The stack of a task that is started alone, to be put back.
    pub(super) fn take_stack(&mut self) -> io::Result<sys::Stack> {
        self.stack.take().map_or_else(sys::Stack::new, Ok)
    }

    pub(super) fn put_stack(&mut self, stack: sys::Stack) {
        self.stack = Some(stack);
    }

    /// Those of these soft limits that a task does not have from this process.
    pub(super) fn limits_to_set(&mut self, asked: &[(u32, u64)]) -> Vec<(u32, u64)> {
        if self.asked_limits != asked {
            self.asked_limits = asked.to_vec();
            self.other_limits = sys::other_limits(asked);
        }
        self.other_limits.clone()
    }

    /// What the shim has said since the last call, but for another step, which is kept.
    pub(super) fn heard(&mut self) -> Vec<Control> {
        let mut messages = Vec::new();
        let Some(mut line) = self.shim.take() else {
            return messages;
        };
        let all_read = sys::is_all_read(line.stream.as_fd());
        let open = line.read();
        if open && all_read {
            self.unread.clear();
        }
        while let Ok(Some(message)) = line.input.take() {
            match message {
                Control::Next(next) => {
                    let come = &mut line.descriptors;
                    let with = WithOrder::take(come, true, next.order.direct);
                    let agent = with.agent.map(UnixStream::from).map(Line::new);
                    self.agent = agent.and_then(Result::ok);
                    self.early = Some((*next, with.srun));
                }
                other => messages.push(other),
            }
        }
        // Where it is gone, that is no reason to end.
        self.shim = Some(line).filter(|_| open);
        if !open {
            self.leave_unread();
        }
        messages
    }

    /// A step that the agent has given.
    fn given_by_agent(&mut self) -> Option<Given> {
        let mut line = self.agent.take()?;
        let open = line.read();
        let given = match line.input.take() {
            Ok(Some(Control::Next(next))) => {
                let with = WithOrder::take(&mut line.descriptors, false, next.order.direct);
                Some((*next, with.srun))
            }
            _ => None,
        };
        self.agent = Some(line).filter(|_| open);
        given
    }

    /// There is a new shim, on this connection, which is told what runs.
    pub(super) fn adopted(&mut self, stream: UnixStream, running: Running) {
        // It looks for files when it has been answered.
        self.leave_unread();
        let line = Line::new(stream).ok();
        self.shim = line.and_then(|mut line| {
            let told = line.say(&Told::Runs(Box::new(running)));
            told.then_some(line)
        });
    }

    /// Tells the shim how the step ended; whether it was there to hear it. Until it has read that, the end is kept here, to be
    /// left in the step's file if the shim is lost.
    pub(super) fn tell_shim(&mut self, ended: &Told, setting: &Setting) -> bool {
        let Told::Ended(_, end) = ended else {
            return false;
        };
        let all_read = self.is_all_read();
        // Half a frame is none: it learns the rest from the file.
        let told = self.shim.as_mut().is_some_and(|line| line.say(ended));
        self.shim = self.shim.take().filter(|_| told);
        if told && all_read {
            self.unread.clear();
        }
        if told {
            let (path, kept) = (setting.result.clone(), setting.kept.clone());
            self.unread.push(Unread(path, (**end).clone(), kept));
        }
        told
    }

    /// Whether there are ends that the shim is not known to have read. Looks whether it has, meanwhile.
    pub(super) fn has_unread(&mut self) -> bool {
        if !self.unread.is_empty() && self.is_all_read() && !self.has_lost_shim() {
            self.unread.clear();
        }
        !self.unread.is_empty()
    }

    /// To be asked after what it has read: what one that is gone has not read is gone too, and nothing is left to be read.
    fn has_lost_shim(&self) -> bool {
        let mut fds = [libc::pollfd {
            fd: self.shim_fd().unwrap_or(-1),
            events: 0,
            revents: 0,
        }];
        self.shim.is_none() || sys::poll(&mut fds, 0).is_err() || fds[0].revents != 0
    }

    /// Leaves files of the ends that the shim is not known to have read.
    pub(super) fn leave_unread(&mut self) {
        for Unread(path, end, kept) in self.unread.drain(..) {
            leave(&path, &end, &kept);
        }
    }

    fn is_all_read(&self) -> bool {
        let line = self.shim.as_ref();
        line.is_some_and(|line| sys::is_all_read(line.stream.as_fd()))
    }

    /// Tells the agent the same, where it is still there.
    pub(super) fn tell_agent(&mut self, ended: &Told) {
        let told = self.agent.as_mut().is_some_and(|line| line.say(ended));
        self.agent = self.agent.take().filter(|_| told);
    }

    /// Waits for the job's next step; nothing when this process is not needed any more.
    pub(super) fn next_step(&mut self) -> Option<Given> {
        loop {
            let mut somebody = true;
            if self.early.is_none() && self.shim.is_some() {
                somebody = self.wait()?;
            }
            // Who has come for the next step has come after the word of it, which is read after this.
            let accept = || Some(self.listener.accept().ok()?.0);
            let come: Vec<UnixStream> = match somebody {
                true => std::iter::from_fn(accept).collect(),
                // To find nobody costs as much as a connection.
                false => Vec::new(),
            };
            // What is said of a step that has ended comes too late. Who says this has taken note of the end.
            if self.heard().contains(&Control::Leave) {
                self.unread.clear();
                return None;
            }
            let early = self.early.take();
            if let Some(given) = early.or_else(|| self.given_by_agent()) {
                self.come = come;
                return Some(given);
            }
            // The others come too late.
            drop(come);
            self.shim.as_ref()?;
        }
    }

    /// Waits until somebody has something to say; whether somebody has come.
    fn wait(&mut self) -> Option<bool> {
        let agent = self.agent.as_ref().map(|line| line.stream.as_raw_fd());
        let entry = |fd: RawFd| libc::pollfd {
            fd,
            events: libc::POLLIN,
            revents: 0,
        };
        // A negative descriptor is skipped by poll(2).
        let mut fds = [
            entry(self.shim_fd().unwrap_or(-1)),
            entry(agent.unwrap_or(-1)),
            entry(self.signals.as_fd().as_raw_fd()),
            entry(self.listener.as_raw_fd()),
        ];
        sys::poll(&mut fds, -1).ok()?;
        // Nobody who knows what this process does sends it signals now.
        if fds[2].revents != 0 {
            while let Ok(Some(_)) = self.signals.read_signal() {}
        }
        Some(fds[3].revents != 0)
    }
}
