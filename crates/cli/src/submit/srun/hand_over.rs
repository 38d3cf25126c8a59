//! Whether srun hands its own standard streams over: then a step's only task reads and writes them itself, and nothing
//! is carried.

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

/// Whether that would be the same to the task, to srun and to whoever reads what the task writes.
pub(super) fn is_possible(chosen: &Chosen, spec: &StepSpec, streams: &Streams) -> bool {
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
pub(super) struct Line {
    pub(super) stream: AgentStream,
    /// What has come and was not taken.
    pub(super) incoming: Incoming,
    /// What was heard while the agent was listened to.
    pub(super) heard: Option<FromStepd>,
    /// The agent has said that all is over.
    pub(super) done: bool,
}

impl Line {
    pub(super) fn new(stream: AgentStream) -> Line {
        Line {
            stream,
            incoming: Incoming::default(),
            heard: None,
            done: false,
        }
    }

    /// The next word, which is waited for. What comes with it is taken in at once.
    ///
    /// # Errors
    /// There is none any more.
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

/// What the agent answers; or the word of the step that comes by the line, where there is one: then srun is woken once for
/// that and for the end of a short step. A line that ends is no more.
pub(super) fn answer(agent: &mut AgentStream, line: &mut Option<Line>) -> io::Result<AgentReply> {
    let Some(stepd) = line.as_mut().filter(|l| l.heard.is_none()) else {
        return agent.receive();
    };
    if !is_first(&stepd.stream, agent) {
        match agent.receive()? {
            // The daemon's last words are on their way, or are lost with it.
            AgentReply::Done => stepd.done = true,
            other => return Ok(other),
        }
    }
    match stepd.next() {
        Ok(FromStepd::Created(created)) => return Ok(AgentReply::Created(created)),
        // An agent of another version says it itself.
        Ok(other) => stepd.heard = Some(other),
        // What became of the step, the agent knows.
        Err(e) if stepd.done => return Err(e),
        Err(_) => *line = None,
    }
    agent.receive()
}

/// Waits for one of two to say something, or to end; whether the first has.
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
        is_possible(&chosen, &spec, &streams)
    }

    #[test]
    fn streams_that_differ_are_not_handed_over() {
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
