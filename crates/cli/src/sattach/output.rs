//! Output of tasks, on the own streams: as it comes, or line by line with the number of the task before each.

use std::collections::BTreeMap;
use std::io::{self, Write};

/// Bytes of a line that is not over: a longer one is broken.
const LINE_BYTES_MAX: usize = 64 << 10;

/// One of the streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stream {
    Out,
    Err,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Output {
    /// Digits of the numbers of tasks, if lines have labels.
    width: Option<usize>,
    /// Lines that are not over.
    begun: BTreeMap<(Stream, u32), Vec<u8>>,
}

impl Output {
    /// With labels, if there is a highest number of a task.
    pub(super) fn new(highest: Option<u32>) -> Output {
        Output {
            width: highest.map(|task| task.to_string().len()),
            begun: BTreeMap::new(),
        }
    }

    /// Writes what a task has written.
    pub(super) fn write(&mut self, stream: Stream, task: u32, bytes: &[u8]) {
        let bytes = self.lines(stream, task, bytes);
        put(stream, &bytes);
    }

    /// The part of it to be written now.
    fn lines(&mut self, stream: Stream, task: u32, bytes: &[u8]) -> Vec<u8> {
        let Some(width) = self.width else {
            return bytes.to_vec();
        };
        let begun = self.begun.entry((stream, task)).or_default();
        let mut out = Vec::with_capacity(bytes.len() + 64);
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            begun.extend_from_slice(part);
            if part.ends_with(b"\n") || begun.len() >= LINE_BYTES_MAX {
                labelled(&mut out, width, task, begun);
                begun.clear();
            }
        }
        out
    }

    /// Writes lines that will not be over.
    pub(super) fn flush(&mut self) {
        let width = self.width.unwrap_or(0);
        for ((stream, task), line) in std::mem::take(&mut self.begun) {
            if !line.is_empty() {
                let mut out = Vec::new();
                labelled(&mut out, width, task, &line);
                put(stream, &out);
            }
        }
    }
}

fn labelled(out: &mut Vec<u8>, width: usize, task: u32, line: &[u8]) {
    out.extend_from_slice(format!("{task:width$}: ").as_bytes());
    out.extend_from_slice(line);
    if !line.ends_with(b"\n") {
        out.push(b'\n');
    }
}

fn put(stream: Stream, bytes: &[u8]) {
    // A reader that went away is no reason to complain.
    let _ = match stream {
        Stream::Out => {
            let mut out = io::stdout().lock();
            out.write_all(bytes).and_then(|()| out.flush())
        }
        Stream::Err => io::stderr().write_all(bytes),
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_tasks_are_labelled_and_do_not_mix() {
        let mut output = Output::new(Some(12));
        assert_eq!(output.lines(Stream::Out, 3, b"ab"), b"");
        assert_eq!(output.lines(Stream::Out, 12, b"x\ny\n"), b"12: x\n12: y\n");
        assert_eq!(output.lines(Stream::Err, 3, b"e\n"), b" 3: e\n");
        assert_eq!(output.lines(Stream::Out, 3, b"c\nd"), b" 3: abc\n");
        let long = vec![b'z'; LINE_BYTES_MAX];
        assert_eq!(
            output.lines(Stream::Out, 3, &long).len(),
            LINE_BYTES_MAX + 6
        );
        let mut plain = Output::new(None);
        assert_eq!(plain.lines(Stream::Out, 3, b"ab"), b"ab");
    }
}
