//! What a step daemon keeps from one step of its job to the next: where it listens, the lines to the shim and to the agent,
//! the signals that it takes. It knows nothing of steps but how to be told of the next one and to tell how one ended.

use super::client::STRANGERS_MAX;
use super::result::leave;
use super::{Kept, Setting};
use crate::descriptors::{self, WithOrder};
use crate::shim::wire::{Run, StepOrder};
use crate::shim::{ProcessTree, result_path};
use crate::step_bounds::StepBounds;
use crate::sys::{self, SoftLimits};
use minicbor::{Decode, Encode};
use muster_core::ids::StepNo;
use muster_core::job::StepEnd;
use muster_core::limits::FRAME_BYTES_MAX;
use muster_core::validate::Validate;
use muster_proto::frame::{self, Frames, Message};
use muster_proto::version::Greeting;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use std::collections::VecDeque;
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::time::Duration;

/// What the shim has to say to a step daemon. A shim may have taken over one of another version
/// ([`VERSIONS`](crate::shim::wire::VERSIONS)).
#[derive(Clone, Debug, PartialEq, Encode, Decode, Validate)]
#[valid(max_bytes = FRAME_BYTES_MAX)]
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

impl Message for Control {}

/// What a step daemon says to the shim, and to the agent.
#[derive(Clone, Debug, PartialEq, Encode, Decode, Validate)]
#[valid(max_bytes = FRAME_BYTES_MAX)]
pub(crate) enum Told {
    /// This step has ended; there may be another.
    #[n(0)]
    Ended(#[n(0)] StepNo, #[n(1)] Box<StepEnd>),
    /// To a shim that did not start it: this it runs.
    #[n(1)]
    Runs(#[n(0)] Box<Running>),
}

impl Message for Told {}

/// What a daemon runs, for a shim that may never have heard of it.
#[derive(Clone, Debug, PartialEq, Encode, Decode, Validate)]
#[valid(max_bytes = FRAME_BYTES_MAX)]
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
    /// Which version the daemon speaks.
    #[n(5)]
    pub(crate) greeting: Option<Greeting>,
}

/// Another step of the job.
#[derive(Clone, Debug, PartialEq, Encode, Decode, Validate)]
#[valid(max_bytes = FRAME_BYTES_MAX)]
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

impl Told {
    /// [`Told::Ended`] as a frame.
    pub(super) fn ended(step: StepNo, end: &StepEnd) -> Vec<u8> {
        frame::encode(&ToldEnded::Ended(step, end))
    }
}

/// [`Told::Ended`] without a copy of the end.
#[derive(Encode)]
enum ToldEnded<'a> {
    #[n(0)]
    Ended(#[n(0)] StepNo, #[n(1)] &'a StepEnd),
}

impl NextStep {
    /// As a frame of [`Control::Next`].
    pub(crate) fn as_control(&self) -> Vec<u8> {
        frame::encode(&NextControl::Next(self))
    }

    /// What goes with the order, beside what stays as it was.
    pub(super) fn setting(&self, last: &Setting) -> Setting {
        Setting {
            node: last.node.clone(),
            kill_wait: Duration::from_millis(self.kill_wait_ms.min(u32::MAX.into())),
            result: PathBuf::from(&self.result),
            dirs: Vec::new(),
            kept: self.kept.clone(),
        }
    }
}

/// [`Control::Next`] without a copy of the step.
#[derive(Encode)]
enum NextControl<'a> {
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

    fn say(&mut self, frames: &[u8]) -> bool {
        self.stream.write_all(frames).is_ok()
    }
}

/// A step that was given, and what goes with it.
pub(super) type Given = (NextStep, WithOrder);

/// What the launcher says of all steps of this process; agents are not trusted.
pub(super) struct Confines {
    pub(super) run: Run,
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
pub(super) struct Home {
    pub(super) confines: Confines,
    pub(super) signals: SignalFd,
    pub(super) listener: UnixListener,
    /// Who came while the step was given.
    pub(super) come: Vec<UnixStream>,
    pub(super) tree: ProcessTree,
    /// Soft limits that were asked for, and those of them that this process has otherwise: steps of a job mostly ask for the
    /// same.
    asked_limits: Option<SoftLimits>,
    other_limits: SoftLimits,
    shim: Option<Line>,
    /// The agent that had the last step given by the shim, or gave it.
    agent: Option<Line>,
    /// A step that was given by the shim while another ran, which a lost agent had given.
    early: Option<Given>,
    /// Ends that the shim was told of and may not have read: where it is lost, they are lost with it.
    unread: Vec<Unread>,
}

/// What a file tells of a step's end: its path, the end, and what was to be kept.
struct Unread(PathBuf, StepEnd, Kept);

impl Home {
    pub(super) fn open(
        listener: UnixListener,
        shim: UnixStream,
        agent: Option<UnixStream>,
        confines: Confines,
    ) -> io::Result<Home> {
        sys::become_subreaper()?;
        // The shim's mask blocks these already; a descriptor of the daemon's own takes them.
        let mut mask = SigSet::empty();
        for signal in [Signal::SIGCHLD, Signal::SIGTERM, Signal::SIGUSR1] {
            mask.add(signal);
        }
        mask.thread_block()?;
        let signals = SignalFd::with_flags(&mask, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
        Ok(Home {
            confines,
            signals,
            listener,
            come: Vec::new(),
            tree: ProcessTree::new(),
            asked_limits: None,
            other_limits: SoftLimits::new(),
            shim: Some(Line::new(shim)?),
            agent: agent.map(Line::new).transpose()?,
            early: None,
            unread: Vec::new(),
        })
    }

    /// The line to the shim, to poll.
    pub(super) fn shim_fd(&self) -> Option<RawFd> {
        self.shim_stream().map(AsRawFd::as_raw_fd)
    }

    pub(super) fn shim_stream(&self) -> Option<&UnixStream> {
        self.shim.as_ref().map(|line| &line.stream)
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
                    let mut with = WithOrder::take_by_shim(come);
                    let agent = with.agent.take().map(UnixStream::from).map(Line::new);
                    self.agent = agent.and_then(Result::ok);
                    self.early = Some((*next, with));
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

    /// What the agent has said: a step that it has given.
    pub(super) fn hear_agent(&mut self) -> Option<Given> {
        let mut line = self.agent.take()?;
        let open = line.read();
        let mut given = None;
        while let Ok(Some(message)) = line.input.take() {
            // All else is for the shim to say.
            let Control::Next(mut next) = message else {
                continue;
            };
            let with = WithOrder::take(&mut line.descriptors, next.order.direct);
            match self.confines.confine(&mut next) {
                Ok(()) => given = Some((*next, with)),
                Err(why) => eprintln!("a step is refused: {why}"),
            }
        }
        self.agent = Some(line).filter(|_| open);
        given
    }

    /// There is a new shim, on this connection, which is told what runs.
    pub(super) fn adopted(&mut self, stream: UnixStream, running: Running) {
        // It looks for files when it has been answered.
        self.leave_unread();
        let line = Line::new(stream).ok();
        self.shim = line.and_then(|mut line| {
            let told = line.say(&frame::encode(&Told::Runs(Box::new(running))));
            told.then_some(line)
        });
    }

    /// Tells the shim how the step ended; whether it was there to hear it.
    pub(super) fn tell_shim(&mut self, ended: &[u8]) -> bool {
        let all_read = self.is_all_read();
        // Half a frame is none: it learns the rest from the file.
        let heard = self.shim.as_mut().is_some_and(|line| line.say(ended));
        self.shim = self.shim.take().filter(|_| heard);
        if heard && all_read {
            self.unread.clear();
        }
        heard
    }

    /// Keeps an end that the shim was told of until it has read that, to be left in the step's file if the shim is lost.
    pub(super) fn keep_unread(&mut self, end: StepEnd, setting: &mut Setting) {
        let kept = std::mem::take(&mut setting.kept);
        self.unread.push(Unread(setting.result.clone(), end, kept));
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
        self.shim_stream().is_none_or(sys::has_hung_up)
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

    /// Tells the agent the same of an end, where it is still there.
    pub(super) fn tell_agent(&mut self, ended: &[u8]) {
        let line = self.agent.take();
        self.agent = line.and_then(|mut line| line.say(ended).then_some(line));
    }

    /// Waits for the job's next step; nothing when this process is not needed any more.
    pub(super) fn next_step(&mut self) -> Option<Given> {
        loop {
            let has_caller = match self.early.is_none() && self.shim.is_some() {
                true => self.wait()?,
                false => true,
            };
            // Who has come for the next step has come after the word of it, which is read after this.
            let accept = || Some(self.listener.accept().ok()?.0);
            let come: Vec<UnixStream> = match has_caller {
                true => std::iter::from_fn(accept).take(STRANGERS_MAX).collect(),
                // To find nobody costs as much as a connection.
                false => Vec::new(),
            };
            // What is said of a step that has ended comes too late. Who says this has taken note of the end.
            if self.heard().contains(&Control::Leave) {
                self.unread.clear();
                return None;
            }
            let given = self.early.take().or_else(|| self.hear_agent());
            if given.is_some() {
                self.come = come;
                return given;
            }
            // The others come too late.
            drop(come);
            self.shim.as_ref()?;
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
            entry(self.shim_fd()),
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
