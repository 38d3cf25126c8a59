//! Events of a simulation, as text: the last lines are shown when something is wrong, and the hash of all of them shows
//! whether two runs were equal.

use std::collections::VecDeque;
use std::fmt;

/// Lines that are kept unless all are wanted.
const KEPT: usize = 400;
/// Characters of an event or action that are shown.
const SHOWN_CHARS: usize = 600;

/// The lines of one run.
pub(crate) struct Trace {
    hash: u64,
    lines: VecDeque<String>,
    all: bool,
    /// The node of whose processes every event and action is kept.
    node: Option<usize>,
}

impl Trace {
    /// Keeps all lines, or the last few.
    pub(crate) fn new(all: bool, node: Option<usize>) -> Trace {
        Trace {
            hash: 0xcbf2_9ce4_8422_2325,
            lines: VecDeque::new(),
            all,
            node,
        }
    }

    /// Input or action of a process of a node, if that node is traced. It does not count for the hash.
    pub(crate) fn process(&mut self, now: u64, node: usize, name: &str, what: &dyn fmt::Debug) {
        if self.node != Some(node) {
            return;
        }
        let what: String = format!("{what:?}").chars().take(SHOWN_CHARS).collect();
        let line = format!(
            "{:>6}.{:03}   n{node} {name} {what}",
            now / 1000,
            now % 1000
        );
        self.lines.push_back(line);
    }

    /// Adds a line at a virtual time in milliseconds.
    pub(crate) fn line(&mut self, now: u64, text: fmt::Arguments<'_>) {
        let line = format!("{:>6}.{:03} {text}", now / 1000, now % 1000);
        for byte in line.bytes() {
            self.hash = (self.hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        if !self.all && self.lines.len() == KEPT {
            self.lines.pop_front();
        }
        self.lines.push_back(line);
    }

    /// Hash that is equal for two equal runs.
    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }

    /// The lines that were kept.
    pub(crate) fn into_lines(self) -> Vec<String> {
        self.lines.into()
    }
}
