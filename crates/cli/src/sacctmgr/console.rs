//! Where sacctmgr writes and whom it asks.

use crate::listing;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::termios::{LocalFlags, SetArg, tcgetattr, tcsetattr};
use std::os::fd::AsFd as _;

/// Output and questions.
pub(super) trait Console {
    /// Writes to standard output.
    fn say(&mut self, text: &str);
    /// Writes a line to standard error.
    fn complain(&mut self, line: &str);
    /// Reads a line of input, for at most `seconds` or without limit.
    fn answer(&mut self, seconds: Option<u16>) -> ConsoleAnswer;
    /// Reads the answer to a question: one key of a terminal, else a line.
    fn key(&mut self, seconds: u16) -> ConsoleAnswer {
        self.answer(Some(seconds))
    }
}

/// Result of a read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ConsoleAnswer {
    /// A line.
    Line(String),
    /// The input is over.
    End,
    /// Nothing came in time.
    Late,
}

/// The command's own streams.
#[derive(Debug, Default)]
pub(super) struct Terminal {
    /// Bytes read and not taken.
    ahead: Vec<u8>,
}

impl Terminal {
    fn take_line(&mut self, end: usize) -> ConsoleAnswer {
        let line: Vec<u8> = self.ahead.drain(..end).collect();
        ConsoleAnswer::Line(String::from_utf8_lossy(&line).into_owned())
    }
}

impl Console for Terminal {
    fn say(&mut self, text: &str) {
        listing::print(text);
    }

    fn complain(&mut self, line: &str) {
        listing::complain(line);
    }

    fn key(&mut self, seconds: u16) -> ConsoleAnswer {
        let stdin = std::io::stdin();
        let (true, Ok(before)) = (self.ahead.is_empty(), tcgetattr(&stdin)) else {
            return self.answer(Some(seconds));
        };
        let mut by_key = before.clone();
        by_key.local_flags.remove(LocalFlags::ICANON);
        if tcsetattr(&stdin, SetArg::TCSANOW, &by_key).is_err() {
            return self.answer(Some(seconds));
        }
        let mut fds = [PollFd::new(stdin.as_fd(), PollFlags::POLLIN)];
        let wait = PollTimeout::try_from(u32::from(seconds) * 1000);
        let mut byte = [0];
        let answer = match poll(&mut fds, wait.unwrap_or(PollTimeout::MAX)) {
            Ok(0) => ConsoleAnswer::Late,
            _ => match nix::unistd::read(stdin.as_fd(), &mut byte) {
                Ok(1) => ConsoleAnswer::Line(char::from(byte[0]).to_string()),
                _ => ConsoleAnswer::End,
            },
        };
        let _ = tcsetattr(&stdin, SetArg::TCSANOW, &before);
        answer
    }

    fn answer(&mut self, seconds: Option<u16>) -> ConsoleAnswer {
        let stdin = std::io::stdin();
        let wait = seconds.map_or(PollTimeout::NONE, |s| {
            PollTimeout::try_from(u32::from(s) * 1000).unwrap_or(PollTimeout::MAX)
        });
        loop {
            if let Some(at) = self.ahead.iter().position(|byte| *byte == b'\n') {
                return self.take_line(at + 1);
            }
            let mut fds = [PollFd::new(stdin.as_fd(), PollFlags::POLLIN)];
            if let Ok(0) = poll(&mut fds, wait) {
                return ConsoleAnswer::Late;
            }
            let mut bytes = [0; 4096];
            match nix::unistd::read(stdin.as_fd(), &mut bytes) {
                Ok(0) if self.ahead.is_empty() => return ConsoleAnswer::End,
                Ok(0) => return self.take_line(self.ahead.len()),
                Ok(count) => self.ahead.extend_from_slice(&bytes[..count]),
                Err(nix::errno::Errno::EINTR) => {}
                Err(_) => return ConsoleAnswer::End,
            }
        }
    }
}

/// Asks whether to go on, for half a minute. Whatever ends the input means no.
pub(super) fn agreed(console: &mut dyn Console, question: &str) -> bool {
    console.say(&format!(
        "{question} (You have 30 seconds to decide)\n(N/y): "
    ));
    loop {
        let line = match console.key(30) {
            ConsoleAnswer::Line(line) => line,
            ConsoleAnswer::End => {
                console.say("\n");
                return false;
            }
            ConsoleAnswer::Late => {
                console.say("timeout\n");
                return false;
            }
        };
        console.say("\n");
        match line.trim_start().chars().next() {
            Some('y' | 'Y') => return true,
            None | Some('n' | 'N') => return false,
            Some(_) => console.say("Y or N please\n(N/y): "),
        }
    }
}

#[cfg(test)]
pub(super) mod script {
    use super::{Console, ConsoleAnswer};
    use std::collections::VecDeque;

    /// A console of a test: its output, and the answers to come.
    #[derive(Debug, Default)]
    pub(in super::super) struct Script {
        pub(in super::super) out: String,
        pub(in super::super) err: String,
        pub(in super::super) answers: VecDeque<String>,
    }

    impl Console for Script {
        fn say(&mut self, text: &str) {
            self.out.push_str(text);
        }

        fn complain(&mut self, line: &str) {
            self.err.push_str(line);
            self.err.push('\n');
        }

        fn answer(&mut self, _: Option<u16>) -> ConsoleAnswer {
            self.answers
                .pop_front()
                .map_or(ConsoleAnswer::End, ConsoleAnswer::Line)
        }
    }
}
