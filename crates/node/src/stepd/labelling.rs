//! Labels in files that tasks write (`srun --label --output=FILE_%t`): a process of the user's between a task and its file.

use crate::job_files::{open_as, say};
use crate::sys;
use muster_node_core::labels;
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::signal::{SigSet, SigmaskHow};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{Pid, pipe2, read, setsid, write};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};

/// Processes between tasks of a step and their files, as the daemon knows them.
#[derive(Debug, Default)]
pub(super) struct Labellers {
    /// Tasks' children write the number of each here before their programs begin.
    reports: Option<OwnedFd>,
    pids: Vec<i32>,
}

impl Labellers {
    /// Where tasks' children report them.
    pub(super) fn expect(&mut self) -> io::Result<OwnedFd> {
        let (reader, writer) = pipe2(OFlag::O_CLOEXEC | OFlag::O_NONBLOCK)?;
        self.reports = Some(reader);
        Ok(writer)
    }

    /// Reads the reports. All have come when the programs begin.
    pub(super) fn read(&mut self) {
        let Some(reports) = self.reports.take() else {
            return;
        };
        let mut pid = [0; size_of::<i32>()];
        // Pipes keep so few bytes together.
        while read(&reports, &mut pid) == Ok(pid.len()) {
            self.pids.push(i32::from_ne_bytes(pid));
        }
    }

    /// The child of this number has ended: it may be one of them.
    pub(super) fn note_ended(&mut self, pid: i32) {
        self.pids.retain(|known| *known != pid);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pids.is_empty()
    }

    pub(super) fn contains(&self, pid: i32) -> bool {
        self.pids.contains(&pid)
    }
}

/// In a task's child, whose standard descriptor is a file: puts a process before it that writes each line with the label.
/// `messages` is where that process says what goes wrong. The daemon reads it, and waits for its end. Its number goes to
/// `reports`.
///
/// # Errors
/// There is no such process.
pub(super) fn begin(
    target: RawFd,
    messages: RawFd,
    reports: BorrowedFd<'_>,
    label: &str,
) -> io::Result<()> {
    let (reader, writer) = pipe2(OFlag::O_CLOEXEC)?;
    // Signals to the task, or to its process group, must not end the process before the task's last line.
    let usual = SigSet::all().thread_swap_mask(SigmaskHow::SIG_BLOCK)?;
    match sys::fork()? {
        sys::Fork::Parent(pid) => {
            let ended = waitpid(Pid::from_raw(pid), None);
            usual.thread_set_mask()?;
            if !matches!(ended?, WaitStatus::Exited(_, 0)) {
                return Err(Errno::EAGAIN.into());
            }
            sys::dup_to(writer.as_raw_fd(), target)
        }
        // The task's program must not find a child that it has not started.
        sys::Fork::Child => {
            let _ = setsid();
            match sys::fork() {
                Ok(sys::Fork::Parent(pid)) => {
                    let is_reported = write(reports, &pid.to_ne_bytes()).is_ok();
                    sys::exit_now(i32::from(!is_reported))
                }
                Err(_) => sys::exit_now(1),
                Ok(sys::Fork::Child) => {
                    if let Err(e) = keep_apart(&reader, target, messages) {
                        say(&e);
                    } else if let Err(e) = copy(&reader, label) {
                        say(&format!("labelled output cannot be written: {}", e.desc()));
                    }
                    sys::exit_now(0)
                }
            }
        }
    }
}

/// Leaves only the file, the messages and the pipe open.
fn keep_apart(reader: &OwnedFd, target: RawFd, messages: RawFd) -> Result<(), String> {
    let text = |e: io::Error| e.to_string();
    // The file first: the messages may take its number.
    sys::dup_to(target, 1).map_err(text)?;
    sys::dup_to(messages, 2).map_err(text)?;
    open_as("/dev/null", OFlag::O_RDONLY, 0)?;
    sys::close_all_but(&[reader.as_raw_fd()]);
    Ok(())
}

/// Copies lines until no writer is left. The first error is returned at the end: meanwhile the writers must not block.
fn copy(reader: &OwnedFd, label: &str) -> nix::Result<()> {
    let (mut held, mut chunk) = (Vec::new(), vec![0; labels::LINE_MAX]);
    let mut written = Ok(());
    loop {
        let count = match read(reader, &mut chunk) {
            Ok(count) => count,
            Err(Errno::EINTR) => continue,
            Err(e) => return Err(e),
        };
        held.extend_from_slice(&chunk[..count]);
        if count == 0 && !held.is_empty() {
            held.push(b'\n');
        }
        let lines = labels::labelled(label, &labels::take_lines(&mut held));
        if written.is_ok() {
            written = write_all(&lines);
        }
        if count == 0 {
            return written;
        }
    }
}

fn write_all(mut bytes: &[u8]) -> nix::Result<()> {
    while !bytes.is_empty() {
        match write(io::stdout(), bytes) {
            Ok(count) => bytes = &bytes[count..],
            Err(Errno::EINTR) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}
