//! What a step daemon keeps from one step of its job to the next: where it listens, the line to the shim, the signals
//! that it takes. It knows nothing of steps but how to be told of the next one and to tell how one ended.

use super::Setting;
use crate::descriptors::{self, StandardStreams};
use crate::shim::ProcessTree;
use crate::shim::wire::StepOrder;
use crate::sys;
use minicbor::{Decode, Encode};
use muster_core::job::StepEnd;
use muster_proto::frame::{self, Frames};
use muster_proto::step::{FromStepd, ToStepd};
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
    /// srun's word, where the task has srun's streams.
    #[n(6)]
    Say(#[n(0)] Box<ToStepd>),
    /// To a daemon whose step has ended: here is another.
    #[n(3)]
    Next(#[n(0)] Box<NextStep>),
    /// To a daemon whose step has ended: there is none, and what was told of the end is kept.
    #[n(4)]
    Leave,
}

/// What a step daemon says to the shim.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
pub(crate) enum Told {
    /// To srun, where the task has srun's streams.
    #[n(0)]
    Said(#[n(0)] Box<FromStepd>),
    /// The step has ended; there may be another.
    #[n(1)]
    Ended(#[n(0)] Box<StepEnd>),
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

/// See the module.
pub(super) struct Home {
    pub(super) signals: SignalFd,
    pub(super) listener: UnixListener,
    /// Who came while the step was given.
    pub(super) come: Vec<UnixStream>,
    pub(super) tree: ProcessTree,
    /// For tasks that are started one at a time; made when the first is.
    stack: Option<sys::Stack>,
    control: Option<UnixStream>,
    input: Frames,
    /// What has come with messages.
    descriptors: VecDeque<OwnedFd>,
    /// What the shim is to be told at the next opportunity.
    output: Vec<u8>,
    /// The shim has taken note of the last step's end.
    known: bool,
}

impl Home {
    pub(super) fn open(listener: UnixListener, control: UnixStream) -> io::Result<Home> {
        sys::set_name(c"muster-stepd");
        sys::become_subreaper()?;
        // The shim's mask blocks these already; a descriptor of the daemon's own takes them.
        let mut mask = SigSet::empty();
        for signal in [Signal::SIGCHLD, Signal::SIGTERM, Signal::SIGUSR1] {
            mask.add(signal);
        }
        mask.thread_block()?;
        let signals = SignalFd::with_flags(&mask, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
        control.set_nonblocking(true)?;
        Ok(Home {
            signals,
            listener,
            come: Vec::new(),
            tree: ProcessTree::new(),
            stack: None,
            control: Some(control),
            input: Frames::default(),
            descriptors: VecDeque::new(),
            output: Vec::new(),
            known: false,
        })
    }

    /// To poll.
    pub(super) fn control_fd(&self) -> Option<RawFd> {
        self.control.as_ref().map(AsRawFd::as_raw_fd)
    }

    /// The stack of a task that is started alone, to be put back.
    pub(super) fn take_stack(&mut self) -> io::Result<sys::Stack> {
        self.stack.take().map_or_else(sys::Stack::new, Ok)
    }

    pub(super) fn put_stack(&mut self, stack: sys::Stack) {
        self.stack = Some(stack);
    }

    /// What the shim has said since the last call.
    pub(super) fn heard(&mut self) -> Vec<Control> {
        let Some(control) = &mut self.control else {
            return Vec::new();
        };
        let mut chunk = [0; 16 << 10];
        loop {
            match descriptors::receive(control, &mut chunk, &mut self.descriptors) {
                Ok(n) if n > 0 => {
                    self.input.push(&chunk[..n]);
                    if n == chunk.len() {
                        continue;
                    }
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                // The shim is gone; that is no reason to end.
                _ => self.control = None,
            }
            break;
        }
        let mut messages = Vec::new();
        while let Ok(Some(message)) = self.input.take() {
            messages.push(message);
        }
        messages
    }

    /// Tells the shim how the step ended; whether it was there to hear it.
    pub(super) fn tell_end(&mut self, end: &StepEnd) -> bool {
        self.known = false;
        let end = Told::Ended(Box::new(end.clone()));
        frame::encode_into(&end, &mut self.output);
        self.flush()
    }

    /// Has the shim pass something on to srun, with what else there is to tell.
    pub(super) fn say(&mut self, message: &FromStepd) {
        let said = Told::Said(Box::new(message.clone()));
        frame::encode_into(&said, &mut self.output);
    }

    /// Tells the shim what there is; whether it is there.
    pub(super) fn flush(&mut self) -> bool {
        let frames = std::mem::take(&mut self.output);
        let Some(control) = &mut self.control else {
            return false;
        };
        if control.write_all(&frames).is_err() {
            // Half a frame is none: the shim learns the rest from the file.
            self.control = None;
            return false;
        }
        true
    }

    /// Waits for the job's next step; nothing when this process is not needed any more.
    pub(super) fn next_step(&mut self) -> Option<(NextStep, Option<StandardStreams>)> {
        loop {
            // Who has come for the next step has come after the word of it, which is read after this.
            let come: Vec<UnixStream> =
                std::iter::from_fn(|| Some(self.listener.accept().ok()?.0)).collect();
            for message in self.heard() {
                match message {
                    Control::Next(next) => {
                        self.come = come;
                        let come = &mut self.descriptors;
                        let streams = next.order.direct.then(|| StandardStreams::take(come));
                        return Some((*next, streams.flatten()));
                    }
                    Control::Leave => {
                        self.known = true;
                        return None;
                    }
                    // What is said of a step that has ended comes too late.
                    Control::Text(_)
                    | Control::Own(_)
                    | Control::Limit(_)
                    | Control::Say(_)
                    | Control::End => {}
                }
            }
            // The others come too late.
            drop(come);
            let control = self.control_fd()?;
            let entry = |fd: RawFd| libc::pollfd {
                fd,
                events: libc::POLLIN,
                revents: 0,
            };
            let mut fds = [
                entry(control),
                entry(self.signals.as_fd().as_raw_fd()),
                entry(self.listener.as_raw_fd()),
            ];
            sys::poll(&mut fds, -1).ok()?;
            // Nobody who knows what this process does sends it signals now.
            while let Ok(Some(_)) = self.signals.read_signal() {}
        }
    }

    /// Whether the shim has the last step's end for good.
    pub(super) fn is_known(&self) -> bool {
        self.known
    }
}
