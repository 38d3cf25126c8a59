//! Descriptor passing of srun's standard streams: a step's only task then reads and writes them itself, and nothing is
//! carried.

use super::request::{Feed, Sink, Streams};
use crate::connect::await_answer;
use crate::process;
use crate::submit::agent::AgentStream;
use crate::submit::incoming::Incoming;
use muster_conf::options::Chosen;
use muster_proto::step::{AgentReply, FromStepd, StdinTask, StepSpec};
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::isatty;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};

/// Whether neither the task, nor srun, nor a reader of the output would notice that the streams were passed.
pub(super) fn can_pass_stdio(chosen: &Chosen, spec: &StepSpec, streams: &Streams) -> bool {
    let own = streams.stdout == Sink::Own && streams.stderr == Sink::Own;
    let input = match (&streams.stdin, spec.stdin_task) {
        (Feed::Own, StdinTask::All | StdinTask::One(0)) => true,
        (Feed::Nothing, StdinTask::None) => spec.stdio.stdin.is_none(),
        _ => false,
    };
    // Tasks start when the prolog is over; with the streams they would start before it.
    let plain = ["label", "prolog"].iter().all(|long| !chosen.has(long));
    let alone = spec.ntasks.is_none_or(|n| n == 1) && spec.het.is_none() && spec.pty.is_none();
    own && input && plain && alone && are_plain()
}

/// A terminal is srun's, which puts it into other modes and takes its keys; what does not block is not what a program
/// expects.
fn are_plain() -> bool {
    let plain = |fd: BorrowedFd<'_>| {
        let flags = fcntl(fd, FcntlArg::F_GETFL).map(OFlag::from_bits_truncate);
        flags.is_ok_and(|f| !f.contains(OFlag::O_NONBLOCK)) && isatty(fd) != Ok(true)
    };
    process::standard_streams().into_iter().all(plain)
}

/// The connection to the daemon of a step whose task has the streams.
#[derive(Debug)]
pub(super) struct StepdChannel {
    pub(super) stream: AgentStream,
    /// Bytes that were received and not yet decoded.
    pub(super) incoming: Incoming,
    /// A message that came while srun waited for the agent's answer.
    pub(super) early_message: Option<FromStepd>,
    /// The agent has said that all is over.
    pub(super) done: bool,
}

impl StepdChannel {
    pub(super) fn new(stream: AgentStream) -> StepdChannel {
        StepdChannel {
            stream,
            incoming: Incoming::default(),
            early_message: None,
            done: false,
        }
    }

    /// Waits for the next message. Those that come with it are read at once.
    ///
    /// # Errors
    /// The connection has ended.
    pub(super) fn next(&mut self) -> io::Result<FromStepd> {
        loop {
            if let Some(message) = self.incoming.next()? {
                return Ok(message);
            }
            await_answer(&self.stream);
            if !self.incoming.fill(&self.stream)? {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }
}

/// The answer of the agent, or that of the step daemon where srun has a channel to it: then srun is woken once for the answer and
/// for the end of a short step. A channel that ends is dropped.
pub(super) fn answer(
    agent: &mut AgentStream,
    channel: &mut Option<StepdChannel>,
) -> io::Result<AgentReply> {
    let Some(stepd) = channel.as_mut().filter(|l| l.early_message.is_none()) else {
        return agent.receive();
    };
    if !is_first(&stepd.stream, agent) {
        match agent.receive()? {
            // The daemon's last messages are on their way, or are lost with it.
            AgentReply::Done => stepd.done = true,
            other => return Ok(other),
        }
    }
    match stepd.next() {
        Ok(FromStepd::Created(created)) => return Ok(AgentReply::Created(created)),
        // An agent of another version answers itself.
        Ok(other) => stepd.early_message = Some(other),
        // What became of the step, the agent knows.
        Err(e) if stepd.done => return Err(e),
        Err(_) => *channel = None,
    }
    agent.receive()
}

/// Waits until one of two connections can be read or has ended; whether the first can.
fn is_first(first: &AgentStream, second: &AgentStream) -> bool {
    let mut both = [first, second].map(|s| PollFd::new(s.as_fd(), PollFlags::POLLIN));
    // Whatever it is that ends the wait, a read tells.
    let _ = poll(&mut both, PollTimeout::NONE);
    both[0].any() == Some(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_conf::options::{Command, Source, find};

    fn asked(line: &[(&'static str, Option<&str>)]) -> bool {
        let mut chosen = Chosen::new(Command::Srun);
        for (long, value) in line {
            let row = find(Command::Srun, long).unwrap();
            chosen.give(row, value.map(str::to_owned), Source::CommandLine);
        }
        let (stdio, streams, stdin_task) = super::super::request::streams(&chosen).unwrap();
        let spec = StepSpec {
            ntasks: Some(1),
            stdio,
            stdin_task,
            ..StepSpec::default()
        };
        can_pass_stdio(&chosen, &spec, &streams)
    }

    #[test]
    fn streams_that_differ_are_not_passed() {
        // What the test itself has may be a terminal.
        if !are_plain() {
            return;
        }
        assert!(asked(&[]));
        assert!(asked(&[("input", Some("none"))]));
        assert!(asked(&[("input", Some("0")), ("unbuffered", None)]));
        for line in [
            ("label", None),
            ("output", Some("file")),
            ("output", Some("0")),
            ("error", Some("%t")),
            ("input", Some("1")),
            ("input", Some("file")),
            ("prolog", Some("/bin/true")),
        ] {
            assert!(!asked(&[line]), "{line:?}");
        }
    }
}
