//! Log lines of agent and relay: their standard error is a one-way link to the supervisor, which
//! writes the lines to its log. They have no log file of root's, which an attacker who controls one
//! of them could truncate or lock; nor can they fill the disk, because the amount logged for each
//! is limited ([`LineBudget`]).

use super::line_budget::LineBudget;
use crate::one_way_link::OneWayLink;
use muster_model::visible_text::visible;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, poll};
use nix::sys::socket::{MsgFlags, recv};
use std::io;
use std::os::fd::{AsFd as _, AsRawFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

/// Longest line, in bytes. A longer line is split.
const LINE_MAX: usize = 8 << 10;
/// Bytes that are read at once.
const READ_MAX: usize = 64 << 10;
/// Time to wait for the last output of an agent after it has ended.
const LAST_MAX: Duration = Duration::from_secs(1);

/// The supervisor's end.
#[derive(Debug)]
pub(super) struct AgentLines {
    /// Name of the process.
    process: &'static str,
    /// `None` once all writing ends are closed.
    link: Option<OwnedFd>,
    /// The beginning of an incomplete line.
    input: Vec<u8>,
    budget: LineBudget,
}

impl AgentLines {
    /// Creates the link of a process: this end, and the end to write to.
    pub(super) fn open(process: &'static str) -> io::Result<(AgentLines, OwnedFd)> {
        let link = OneWayLink::open()?;
        let lines = AgentLines {
            process,
            link: Some(link.reader),
            input: Vec::new(),
            budget: LineBudget::new(Instant::now()),
        };
        Ok((lines, link.writer))
    }

    /// The descriptor to poll; -1 when nothing more arrives.
    pub(super) fn number(&self) -> RawFd {
        self.link.as_ref().map_or(-1, AsRawFd::as_raw_fd)
    }

    /// Time at which omitted lines are to be reported, if there are any.
    pub(super) fn due_in(&mut self) -> Option<Duration> {
        self.budget.due_in(Instant::now())
    }

    /// Logs the number of omitted lines, if it is time to.
    pub(super) fn report_left_out(&mut self) {
        if let Some(count) = self.budget.take_left_out(Instant::now()) {
            self.log_left_out(count);
        }
    }

    fn log_left_out(&self, count: u64) {
        log::warn!(
            "{count} lines of the {}'s log were dropped: it has reached its limit",
            self.process
        );
    }

    /// Passes complete lines to the log, as far as its budget permits.
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
        let now = Instant::now();
        let mut rest = &self.input[..];
        while let Some((line, behind)) = next_line(rest, self.link.is_none()) {
            let line = String::from_utf8_lossy(line);
            let line = visible(&line);
            // Length as written, including the line end.
            if self.budget.admit(line.len() + 1, now) {
                append(&line);
            }
            rest = behind;
        }
        let taken = self.input.len() - rest.len();
        self.input.drain(..taken);
    }

    /// The agent has ended: passes on its last output.
    pub(super) fn finish(&mut self, append: fn(&str)) {
        self.pass_on_last(append);
        if let Some(count) = self.budget.finish() {
            self.log_left_out(count);
        }
    }

    fn pass_on_last(&mut self, append: fn(&str)) {
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

/// The first complete line of the input, and the rest; `None` if its end has not arrived, unless
/// nothing more arrives.
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
    use super::super::line_budget::BYTES_MAX;
    use super::*;
    use std::cell::RefCell;
    use std::fs::File;
    use std::io::Write as _;
    use std::sync::atomic::{AtomicU64, Ordering};

    thread_local! {
        static LINES: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
    }

    fn append(line: &str) {
        LINES.with_borrow_mut(|lines| lines.push(line.to_owned()));
    }

    #[test]
    fn lines_come_whole_visible_and_to_the_last() {
        let (mut lines, writer) = AgentLines::open("agent").unwrap();
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

    /// An agent that was taken over filled the disk.
    #[test]
    fn what_a_process_writes_without_end_is_left_out() {
        static BYTES: AtomicU64 = AtomicU64::new(0);
        fn count(line: &str) {
            BYTES.fetch_add(line.len() as u64 + 1, Ordering::Relaxed);
        }
        let (mut lines, writer) = AgentLines::open("agent").unwrap();
        let mut writer = File::from(writer);
        // Invalid bytes become longer when they are converted to text.
        let chunk = [b"x\n".repeat(1000), [0xff, b'\n'].repeat(1000)].concat();
        let writing = std::thread::spawn(move || {
            for _ in 0..5000 {
                writer.write_all(&chunk).unwrap();
            }
        });
        let started = Instant::now();
        while lines.number() >= 0 {
            lines.pass_on(count);
        }
        writing.join().unwrap();
        let written = BYTES.load(Ordering::Relaxed);
        let most = BYTES_MAX + started.elapsed().as_secs() * (16 << 10) + (16 << 10);
        assert!(
            written <= most && written > BYTES_MAX / 2,
            "{written} bytes"
        );
        assert!(lines.due_in().is_some(), "it is reported later");
        lines.finish(count);
        assert!(lines.due_in().is_none(), "it is reported at the end");
    }
}
