//! Writes a message to the output of a job's script, by a small process that runs as the user.

use super::containers::Namespace;
use crate::job_files::go_to;
use crate::role::{self, LAUNCHER_NAME, Start};
use minicbor::{Decode, Encode};
use muster_node_core::messages::ProcessIdentity;
use nix::fcntl::{OFlag, open};
use nix::sys::stat::Mode;
use std::io::{self, Write};
use std::process::ExitCode;

/// The argument with which the launcher's program writes a message.
pub(super) const MESSAGE_ARGUMENT: &str = "--message";

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
        std::fs::File::from(fd).write_all(message.line.as_bytes())
    };
    // The message is optional; a job whose file is gone ends all the same.
    match write() {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}
