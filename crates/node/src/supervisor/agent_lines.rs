//! The lines that agent and relay log: their standard error is a one-way link to the supervisor, which writes them to its log. They have
//! no file of root's, which somebody who has taken one of them over could cut, or hold while others want to write.

use crate::one_way_link::OneWayLink;
use muster_model::visible_text::visible;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, poll};
use nix::sys::socket::{MsgFlags, recv};
use std::io;
use std::os::fd::{AsFd as _, AsRawFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

/// Longest line, in bytes. What is longer becomes several.
const LINE_MAX: usize = 8 << 10;
/// Bytes that are read at once.
const READ_MAX: usize = 64 << 10;
/// How long what an agent has written last may take to come, once it has ended.
const LAST_MAX: Duration = Duration::from_secs(1);

/// The supervisor's end.
#[derive(Debug)]
pub(super) struct AgentLines {
    /// None once all others are closed.
    link: Option<OwnedFd>,
    /// The beginning of a line.
    input: Vec<u8>,
}

impl AgentLines {
    /// Makes the link: this end, and the one to write to.
    pub(super) fn open() -> io::Result<(AgentLines, OwnedFd)> {
        let link = OneWayLink::open()?;
        let lines = AgentLines {
            link: Some(link.reader),
            input: Vec::new(),
        };
        Ok((lines, link.writer))
    }

    /// The number to wait for; -1 when nothing comes any more.
    pub(super) fn number(&self) -> RawFd {
        self.link.as_ref().map_or(-1, AsRawFd::as_raw_fd)
    }

    /// Passes on the whole lines that have come.
    pub(super) fn pass_on(&mut self, append: fn(&str)) {
        let Some(link) = &self.link else {
            return;
        };
        let mut chunk = [0; READ_MAX];
        match recv(link.as_raw_fd(), &mut chunk, MsgFlags::MSG_DONTWAIT) {
            Ok(0) => self.link = None,
            Ok(n) => self.input.extend_from_slice(&chunk[..n]),
            Err(Errno::EAGAIN | Errno::EINTR) => {}
            Err(_) => self.link = None,
        }
        let mut rest = &self.input[..];
        while let Some((line, behind)) = next_line(rest, self.link.is_none()) {
            append(&visible(&String::from_utf8_lossy(line)));
            rest = behind;
        }
        let taken = self.input.len() - rest.len();
        self.input.drain(..taken);
    }

    /// The agent has ended: passes on what it has written last.
    pub(super) fn finish(&mut self, append: fn(&str)) {
        let until = Instant::now() + LAST_MAX;
        while let Some(link) = &self.link {
            let left = until.saturating_duration_since(Instant::now());
            let left = u16::try_from(left.as_millis()).unwrap_or(0);
            let mut fds = [PollFd::new(link.as_fd(), PollFlags::POLLIN)];
            if left == 0 || !matches!(poll(&mut fds, left), Ok(1..)) {
                return;
            }
            self.pass_on(append);
        }
    }
}

/// The first line of what has come, and what is behind it; nothing if its end is not there, unless nothing more comes.
fn next_line(input: &[u8], is_all: bool) -> Option<(&[u8], &[u8])> {
    let within = &input[..input.len().min(LINE_MAX)];
    match within.iter().position(|byte| *byte == b'\n') {
        Some(at) => Some((&input[..at], &input[at + 1..])),
        None if within.len() == LINE_MAX || is_all && !within.is_empty() => {
            Some(input.split_at(within.len()))
        }
        None => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use std::fs::File;
    use std::io::Write as _;

    thread_local! {
        static LINES: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
    }

    fn append(line: &str) {
        LINES.with_borrow_mut(|lines| lines.push(line.to_owned()));
    }

    #[test]
    fn lines_come_whole_visible_and_to_the_last() {
        let (mut lines, writer) = AgentLines::open().unwrap();
        let mut writer = File::from(writer);
        writer.write_all(b"one\nt\x1b[2Jwo\nthr").unwrap();
        while LINES.with_borrow(Vec::len) < 2 {
            lines.pass_on(append);
        }
        writer.write_all(b"ee\n").unwrap();
        writer.write_all(&[b'x'; LINE_MAX + 3]).unwrap();
        drop(writer);
        lines.finish(append);
        assert_eq!(lines.number(), -1);
        let long = "x".repeat(LINE_MAX);
        assert_eq!(LINES.take(), ["one", "t?[2Jwo", "three", &long, "xxx"]);
    }
}
