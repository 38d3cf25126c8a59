//! Writes a message to the output of a job's script, and reads the last lines of that, by small processes that run as the user.

use super::containers::Namespace;
use crate::job_files::go_to;
use crate::role::{self, LAUNCHER_NAME, Start};
use minicbor::{Decode, Encode};
use muster_model::mail::MAIL_LINES_BYTES_MAX;
use muster_node_core::messages::ProcessIdentity;
use nix::fcntl::{OFlag, open};
use nix::sys::stat::Mode;
use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;

/// The argument with which the launcher's program writes a message.
pub(super) const MESSAGE_ARGUMENT: &str = "--message";

/// The argument with which it reads last lines.
pub(super) const LAST_LINES_ARGUMENT: &str = "--last-lines";
/// Bytes of a file's end that are looked at.
const READ_BYTES_MAX: u64 = MAIL_LINES_BYTES_MAX as u64;

/// A message for the standard error of a job's script.
#[derive(Debug, Encode, Decode)]
pub(super) struct Message {
    #[n(0)]
    pub(super) work_dir: String,
    #[n(1)]
    pub(super) path: String,
    #[n(2)]
    pub(super) line: String,
}

impl Message {
    /// Starts a process that writes the message as the job's user. The process may block, because
    /// the user chose the file.
    pub(super) fn start(&self, user: &ProcessIdentity, namespace: &Namespace) -> io::Result<i32> {
        Start {
            words: &[LAUNCHER_NAME, MESSAGE_ARGUMENT],
            environment: Vec::new(),
            user,
            order: minicbor::to_vec(self).expect("writing to memory cannot fail"),
            errors: None,
            is_untraceable: true,
            kept: Vec::new(),
            outlives: false,
            namespace: namespace.descriptor(),
        }
        .start()
    }
}

/// The process that writes a message.
pub(super) fn message_main() -> ExitCode {
    let write = || -> io::Result<()> {
        let message: Message = minicbor::decode(&role::read_order()?).map_err(io::Error::other)?;
        go_to(&message.work_dir)?;
        // A FIFO without a reader cannot take the message.
        let flags = OFlag::O_WRONLY | OFlag::O_APPEND | OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
        let fd = open(
            message.path.as_str(),
            flags | OFlag::O_CLOEXEC,
            Mode::empty(),
        )?;
        File::from(fd).write_all(message.line.as_bytes())
    };
    // The message is optional; a job whose file is gone ends all the same.
    match write() {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// A file of a job's of which the last lines are read.
#[derive(Debug, Encode, Decode)]
pub(super) struct LastLines {
    #[n(0)]
    pub(super) work_dir: String,
    #[n(1)]
    pub(super) path: String,
}

impl LastLines {
    /// Starts a process that reads them as the job's user; returns it and the descriptor of its answer. The process may block,
    /// because the user chose the file.
    pub(super) fn start(
        &self,
        user: &ProcessIdentity,
        namespace: &Namespace,
    ) -> io::Result<(i32, UnixStream)> {
        let (answer, far_end) = UnixStream::pair()?;
        answer.set_nonblocking(true)?;
        let pid = Start {
            words: &[LAUNCHER_NAME, LAST_LINES_ARGUMENT],
            environment: Vec::new(),
            user,
            order: minicbor::to_vec(self).expect("writing to memory cannot fail"),
            errors: None,
            is_untraceable: true,
            kept: vec![far_end.as_raw_fd()],
            outlives: false,
            namespace: namespace.descriptor(),
        }
        .start()?;
        Ok((pid, answer))
    }
}

/// The process that reads last lines.
pub(super) fn last_lines_main() -> ExitCode {
    let answer = || -> io::Result<()> {
        let order: LastLines = minicbor::decode(&role::read_order()?).map_err(io::Error::other)?;
        let mut answer = File::from(role::take_descriptor(role::FIRST_FD)?);
        go_to(&order.work_dir)?;
        answer.write_all(&end_of_file(&order.path)?)
    };
    match answer() {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// The end of a regular file, whole lines if there are several.
fn end_of_file(path: &str) -> io::Result<Vec<u8>> {
    // A FIFO or a device would be waited for; a link may have been put there to have something else read.
    let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
    let mut file = File::from(open(path, flags | OFlag::O_CLOEXEC, Mode::empty())?);
    let found = file.metadata()?;
    if !found.is_file() {
        return Err(io::Error::other("it is no regular file"));
    }
    let start = found.len().saturating_sub(READ_BYTES_MAX);
    file.seek(SeekFrom::Start(start))?;
    let mut bytes = Vec::new();
    file.take(READ_BYTES_MAX).read_to_end(&mut bytes)?;
    let first_end = bytes.iter().position(|byte| *byte == b'\n');
    let is_last = |at: usize| at + 1 == bytes.len();
    if let Some(at) = first_end.filter(|at| start > 0 && !is_last(*at)) {
        bytes.drain(..=at);
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::{Path, PathBuf};

    /// An empty directory, which the test removes.
    fn directory(name: &str) -> PathBuf {
        let dir = std::env::temp_dir().join(format!("muster-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        dir
    }

    fn end_of(path: &Path) -> io::Result<Vec<u8>> {
        end_of_file(path.to_str().unwrap())
    }

    #[test]
    fn the_end_of_a_file_is_whole_lines() {
        let dir = directory("end-of-file");
        let file = dir.join("err");
        std::fs::write(&file, "one\ntwo").unwrap();
        assert_eq!(end_of(&file).unwrap(), b"one\ntwo");
        let long = format!("{}\nlast\n", "x".repeat(100_000));
        std::fs::write(&file, &long).unwrap();
        assert_eq!(end_of(&file).unwrap(), b"last\n");
        std::fs::write(&file, format!("{}\n", "x".repeat(100_000))).unwrap();
        let one = end_of(&file).unwrap();
        assert_eq!(one.len(), MAIL_LINES_BYTES_MAX);
        std::fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn what_is_no_file_of_the_jobs_is_not_read() {
        let dir = directory("no-file");
        let [file, fifo, link, none] = ["file", "fifo", "link", "none"].map(|name| dir.join(name));
        nix::unistd::mkfifo(&fifo, Mode::from_bits_truncate(0o600)).unwrap();
        std::fs::write(&file, "secret\n").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        for path in [&fifo, &link, &none, &dir, Path::new("/dev/zero")] {
            assert!(end_of(path).is_err(), "{path:?}");
        }
        let holes = std::fs::File::create(&file).unwrap();
        holes.set_len(10 << 30).unwrap();
        assert_eq!(end_of(&file).unwrap(), vec![0; MAIL_LINES_BYTES_MAX]);
        std::fs::remove_dir_all(dir).unwrap();
    }
}
