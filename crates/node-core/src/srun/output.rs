//! Output of the tasks, as it reaches srun's own streams or files: whole lines, labelled if asked for.

use super::actions::Actions;
use super::config::{Sink, Streams};
use super::interface::{Action, OutputStream};
use crate::labels;
use std::collections::BTreeMap;

/// Rules by which output is passed on.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct OutputRules {
    /// Digits of the label; absent without labels.
    pub(super) label: Option<usize>,
    /// Output is passed on without waiting for line ends, unless lines have labels: for a terminal, one task, or
    /// `--unbuffered`.
    pub(super) unbuffered: bool,
}

/// One output stream of all tasks.
#[derive(Debug)]
struct Output {
    stream: OutputStream,
    rules: OutputRules,
    /// Only this task's.
    only: Option<u32>,
    /// Beginnings of lines.
    partial: BTreeMap<u32, Vec<u8>>,
}

impl Output {
    fn new(stream: OutputStream, sink: &Sink, rules: OutputRules) -> Option<Output> {
        let only = match sink {
            Sink::Nodes => return None,
            Sink::OwnOf(task) => Some(*task),
            Sink::Own | Sink::File(_) => None,
        };
        Some(Output {
            stream,
            rules,
            only,
            partial: BTreeMap::new(),
        })
    }

    /// Bytes of a task; empty is its end.
    fn take(&mut self, out: &mut Actions, task: u32, bytes: Vec<u8>) {
        if self.only.is_some_and(|only| only != task) {
            return;
        }
        if self.rules.unbuffered && self.rules.label.is_none() {
            self.write(out, bytes);
            return;
        }
        if bytes.is_empty() {
            self.flush(out, task);
            return;
        }
        let held = self.partial.entry(task).or_default();
        held.extend_from_slice(&bytes);
        let whole = labels::take_lines(held);
        self.lines(out, task, whole);
    }

    /// Writes an incomplete last line of a task.
    fn flush(&mut self, out: &mut Actions, task: u32) {
        if let Some(mut rest) = self.partial.remove(&task)
            && !rest.is_empty()
        {
            if self.rules.label.is_some() {
                rest.push(b'\n');
            }
            self.lines(out, task, rest);
        }
    }

    fn flush_all(&mut self, out: &mut Actions) {
        while let Some((task, _)) = self.partial.first_key_value() {
            let task = *task;
            self.flush(out, task);
        }
    }

    fn lines(&self, out: &mut Actions, task: u32, bytes: Vec<u8>) {
        let Some(width) = self.rules.label else {
            self.write(out, bytes);
            return;
        };
        let label = labels::label(task, width);
        self.write(out, labels::labelled(&label, &bytes));
    }

    fn write(&self, out: &mut Actions, bytes: Vec<u8>) {
        if !bytes.is_empty() {
            out.push(Action::Write(self.stream, bytes));
        }
    }
}

/// Both output streams.
#[derive(Debug, Default)]
pub(super) struct Outputs {
    stdout: Option<Output>,
    stderr: Option<Output>,
    /// Standard error is merged with standard output.
    is_joined: bool,
}

impl Outputs {
    pub(super) fn new(streams: &Streams, rules: OutputRules) -> Outputs {
        let stdout = Output::new(OutputStream::Stdout, &streams.stdout, rules);
        let stderr = match own_stderr(streams) {
            // For messages before a task's files are open, or about why they cannot be opened.
            Some(Sink::Nodes) => Output::new(OutputStream::Stderr, &Sink::Own, rules),
            Some(sink) => Output::new(OutputStream::Stderr, sink, rules),
            None => None,
        };
        Outputs {
            is_joined: stderr.is_none(),
            stdout,
            stderr,
        }
    }

    /// Standard output of a task.
    pub(super) fn stdout(&mut self, out: &mut Actions, task: u32, bytes: Vec<u8>) {
        if let Some(output) = &mut self.stdout {
            output.take(out, task, bytes);
        }
    }

    /// Standard error of a task. If it is merged, it goes to the target of standard output.
    pub(super) fn stderr(&mut self, out: &mut Actions, task: u32, bytes: Vec<u8>) {
        let output = match self.is_joined {
            true => &mut self.stdout,
            false => &mut self.stderr,
        };
        if let Some(output) = output {
            output.take(out, task, bytes);
        }
    }

    /// Writes what all tasks left.
    pub(super) fn flush_all(&mut self, out: &mut Actions) {
        for output in [&mut self.stdout, &mut self.stderr].into_iter().flatten() {
            output.flush_all(out);
        }
    }
}

/// Where error output goes, unless it goes to the file of output.
pub(super) fn own_stderr(streams: &Streams) -> Option<&Sink> {
    let same = streams.stderr == streams.stdout && matches!(streams.stdout, Sink::File(_));
    (!same).then_some(&streams.stderr)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::srun::config::InputSource;

    fn written(label: Option<usize>, unbuffered: bool, pieces: &[(u32, &str)]) -> String {
        let rules = OutputRules { label, unbuffered };
        let streams = Streams {
            stdin: InputSource::Nothing,
            stdout: Sink::Own,
            stderr: Sink::Nodes,
        };
        let mut outputs = Outputs::new(&streams, rules);
        let mut out = Actions::new(false, false);
        for (task, text) in pieces {
            outputs.stdout(&mut out, *task, text.as_bytes().to_vec());
        }
        outputs.flush_all(&mut out);
        let mut actions = Vec::new();
        out.move_to(&mut actions);
        let bytes = actions.into_iter().flat_map(|action| match action {
            Action::Write(OutputStream::Stdout, bytes) => bytes,
            other => panic!("{other:?}"),
        });
        String::from_utf8(bytes.collect()).unwrap()
    }

    /// Earlier, `srun --output=/x%t` did not report that a node could not open the file.
    #[test]
    fn why_files_of_nodes_are_not_opened_is_written() {
        let streams = Streams {
            stdin: InputSource::Nothing,
            stdout: Sink::Nodes,
            stderr: Sink::Nodes,
        };
        let mut outputs = Outputs::new(&streams, OutputRules::default());
        let mut out = Actions::new(false, false);
        let said = b"Could not open stdout file /x0\n".to_vec();
        outputs.stderr(&mut out, 0, said.clone());
        outputs.flush_all(&mut out);
        let mut actions = Vec::new();
        out.move_to(&mut actions);
        let [Action::Write(OutputStream::Stderr, bytes)] = actions.as_slice() else {
            panic!("{actions:?}");
        };
        assert_eq!(*bytes, said);
    }

    #[test]
    fn lines_of_tasks_do_not_mix() {
        let pieces = [(0, "a"), (1, "x\ny"), (0, "b\n"), (1, ""), (0, "end")];
        assert_eq!(written(None, false, &pieces), "x\nab\nyend");
        assert_eq!(
            written(Some(1), false, &pieces),
            "1: x\n0: ab\n1: y\n0: end\n"
        );
        assert_eq!(written(None, true, &pieces), "ax\nyb\nend");
        assert_eq!(
            written(Some(2), false, &[(3, "a\n"), (12, "b\n")]),
            " 3: a\n12: b\n"
        );
    }
}
