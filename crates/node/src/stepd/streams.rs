//! The daemon's ends of the tasks' streams: pipes, or a terminal that is both ways at once.

use crate::shared_queue::SharedQueue;
use crate::sys;
use minicbor::bytes::ByteVec;
use nix::errno::Errno;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::rc::Rc;

/// Input that a task has not read yet: beyond this, srun has to wait.
const INPUT_MAX: usize = 1 << 20;
/// The character that ends the input of a terminal: control-D.
const END_OF_INPUT: u8 = 4;

/// The kind of stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// To the task.
    In,
    /// From its standard output.
    Out,
    /// From its standard error.
    Err,
    /// A terminal's master side.
    Terminal,
}

/// Output of a task.
#[derive(Debug)]
pub(super) struct OutputChunk {
    pub(super) task: u32,
    pub(super) is_error: bool,
    /// Nothing: it writes no more.
    pub(super) bytes: ByteVec,
}

/// One stream of a task.
#[derive(Debug)]
pub(super) struct Stream {
    task: u32,
    kind: Kind,
    fd: Option<OwnedFd>,
    /// Input that waits.
    input: SharedQueue,
    /// No more will come.
    ended: bool,
}

impl Stream {
    pub(super) fn new(task: u32, kind: Kind, fd: OwnedFd) -> nix::Result<Stream> {
        use nix::fcntl::{FcntlArg, OFlag, fcntl};
        fcntl(&fd, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        Ok(Stream {
            task,
            kind,
            fd: Some(fd),
            input: SharedQueue::default(),
            ended: false,
        })
    }

    pub(super) fn is_open(&self) -> bool {
        self.fd.is_some()
    }

    /// More output may come.
    pub(super) fn has_output(&self) -> bool {
        self.is_open() && self.kind != Kind::In
    }

    pub(super) fn is_stuffed(&self) -> bool {
        self.input.len() > INPUT_MAX
    }

    /// Descriptor and events to poll; `full` while srun must catch up with the output.
    pub(super) fn interest(&self, full: bool) -> (i32, i16) {
        let fd = self.fd.as_ref().map_or(-1, |fd| fd.as_raw_fd());
        let reads = self.kind != Kind::In && !full;
        let writes = !self.input.is_empty();
        if !reads && !writes {
            // Even without events poll(2) would report a hang-up over and over; input pipes without data must
            // notice their reader's end, which `feed` does on the next write.
            return (-1, 0);
        }
        let events = if reads { libc::POLLIN } else { 0 } | if writes { libc::POLLOUT } else { 0 };
        (fd, events)
    }

    /// Moves bytes; gives output.
    pub(super) fn serve(&mut self) -> Option<OutputChunk> {
        if !self.input.is_empty() {
            self.push();
        }
        if self.kind == Kind::In {
            return None;
        }
        self.pull()
    }

    /// Passes input to one task, or to all; no bytes mean the end of input.
    pub(super) fn feed(&mut self, task: Option<u32>, bytes: &Rc<Vec<u8>>) {
        let takes = matches!(self.kind, Kind::In | Kind::Terminal);
        if !takes || task.is_some_and(|t| t != self.task) || self.ended {
            return;
        }
        if bytes.is_empty() {
            self.ended = true;
            if self.kind == Kind::Terminal {
                self.input.push_copy(&[END_OF_INPUT]);
            }
        }
        self.input.push(bytes);
        self.push();
    }

    /// The task is gone.
    pub(super) fn close_input(&mut self) {
        self.input.clear();
        self.ended = true;
        if self.kind == Kind::In {
            self.fd = None;
        }
    }

    pub(super) fn set_window(&self, rows: u16, columns: u16) {
        if let (Kind::Terminal, Some(fd)) = (self.kind, &self.fd) {
            sys::set_window(fd.as_fd(), rows, columns);
        }
    }

    fn push(&mut self) {
        while let Some(fd) = &self.fd
            && !self.input.is_empty()
        {
            match nix::unistd::write(fd, self.input.front()) {
                Ok(n) => self.input.advance(n),
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => break,
                Err(_) => {
                    // The task reads no more, which is its right.
                    self.input.clear();
                    self.ended = true;
                }
            }
        }
        if self.ended && self.input.is_empty() && self.kind == Kind::In {
            self.fd = None;
        }
    }

    fn pull(&mut self) -> Option<OutputChunk> {
        let fd = self.fd.as_ref()?;
        let mut chunk = [0; 64 << 10];
        let n = match nix::unistd::read(fd, &mut chunk) {
            Ok(n) => n,
            Err(Errno::EINTR | Errno::EAGAIN) => return None,
            // A terminal whose other side is closed returns EIO.
            Err(_) => 0,
        };
        if n == 0 {
            self.fd = None;
        }
        Some(OutputChunk {
            task: self.task,
            is_error: self.kind == Kind::Err,
            bytes: chunk[..n].to_vec().into(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::io::Read as _;

    /// A frame of up to 64 MiB was copied for each task.
    #[test]
    fn input_of_all_tasks_is_kept_once() {
        const TASKS: u32 = 8;
        let bytes: Rc<Vec<u8>> = Rc::new((0..1 << 20).map(|at: u32| (at % 251) as u8).collect());
        let (mut streams, mut readers) = (Vec::new(), Vec::new());
        for task in 0..TASKS {
            let (reader, writer) = nix::unistd::pipe().unwrap();
            readers.push(File::from(reader));
            streams.push(Stream::new(task, Kind::In, writer).unwrap());
        }
        for stream in &mut streams {
            stream.feed(None, &bytes);
            assert!(!stream.is_stuffed() && stream.interest(false).1 == libc::POLLOUT);
        }
        assert_eq!(Rc::strong_count(&bytes), 1 + TASKS as usize);
        for (stream, reader) in streams.iter_mut().zip(&mut readers) {
            stream.feed(None, &Rc::default());
            let (mut read, mut chunk) = (Vec::new(), [0; 4096]);
            while let count @ 1.. = reader.read(&mut chunk).unwrap() {
                read.extend_from_slice(&chunk[..count]);
                stream.serve();
            }
            assert!(read == *bytes && !stream.is_open());
        }
        assert_eq!(Rc::strong_count(&bytes), 1);
    }
}
