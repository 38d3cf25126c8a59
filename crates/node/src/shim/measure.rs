//! What the processes of a job use, which only root may read of other users. Files of a process may be slow to read while it
//! changes its memory, and there may be very many processes. So each time a process of its own is executed afresh for it, and
//! the launcher's loop waits for nothing.

mod reading;

use super::jobs::{Role, Shim};
use super::wire::{FromShim, Process, User};
use crate::role::{self, Start};
use crate::sys;
use minicbor::{Decode, Encode};
use muster_core::ids::{JobId, StepNo};
use muster_core::job::Usage;
use muster_core::limits::FRAME_BYTES_MAX;
use muster_core::validate::Validate;
use muster_proto::node::MemoryCount;
use nix::unistd::{getegid, geteuid};
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsRawFd as _, RawFd};
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// The argument with which the launcher's program measures instead.
pub(super) const MEASURE_ARGUMENT: &str = "--measure";
/// Measurements of a user's jobs that are under way at a time.
const USER_MAX: usize = 16;
/// How long one may take before it is killed.
const WAIT: Duration = Duration::from_secs(120);
/// Bytes of an answer: as many as the agent may be told at once.
const ANSWER_MAX: usize = FRAME_BYTES_MAX / 2;

/// What a task uses.
#[derive(Clone, Debug, PartialEq, Encode, Decode, Validate)]
#[valid(max_bytes = FRAME_BYTES_MAX)]
pub(crate) struct TaskUsage {
    /// Its step.
    #[n(0)]
    pub(crate) step: StepNo,
    /// Its number.
    #[n(1)]
    pub(crate) task: u32,
    /// Totals.
    #[n(2)]
    pub(crate) usage: Usage,
    /// Virtual memory, KiB.
    #[n(3)]
    pub(crate) vsize_kib: u64,
}

/// One under way.
#[derive(Debug)]
pub(super) struct Measurement {
    /// From the request.
    tag: u64,
    /// The job's owner.
    uid: u32,
    pid: i32,
    answer: UnixStream,
    bytes: Vec<u8>,
    by: Instant,
}

/// Which processes, and what of them.
type Order = (Vec<Process>, Option<MemoryCount>);

fn start(order: &Order) -> io::Result<(i32, UnixStream)> {
    let (answer, far_end) = UnixStream::pair()?;
    answer.set_nonblocking(true)?;
    let own = User {
        uid: geteuid().as_raw(),
        gid: getegid().as_raw(),
        groups: Vec::new(),
        name: String::new(),
    };
    let pid = Start {
        words: &[super::SHIM_NAME, MEASURE_ARGUMENT],
        environment: Vec::new(),
        user: &own,
        order: minicbor::to_vec(order).map_err(io::Error::other)?,
        errors: None,
        kept: vec![far_end.as_raw_fd()],
        outlives: false,
    }
    .start()?;
    Ok((pid, answer))
}

/// The process that measures.
pub(super) fn measure_main() -> ExitCode {
    let answer = || -> io::Result<()> {
        let order = role::read_order()?;
        let (list, count): Order = minicbor::decode(&order).map_err(io::Error::other)?;
        let mut answer = File::from(role::take_descriptor(role::FIRST_FD)?);
        let tasks = reading::tasks(&list, count);
        answer.write_all(&minicbor::to_vec(tasks).map_err(io::Error::other)?)
    };
    match answer() {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

impl Measurement {
    /// Takes in what has come; whether that was all.
    fn read(&mut self) -> bool {
        let mut chunk = [0; 4 << 10];
        loop {
            match self.answer.read(&mut chunk) {
                Ok(n) if n > 0 && self.bytes.len() + n <= ANSWER_MAX => {
                    self.bytes.extend_from_slice(&chunk[..n]);
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return false,
                _ => return true,
            }
        }
    }

    fn into_answer(self) -> FromShim {
        FromShim::Measured {
            tag: self.tag,
            tasks: minicbor::decode(&self.bytes).ok(),
        }
    }
}

impl Shim {
    /// Has it measured what a job uses. The answer comes later; at once if there is none.
    pub(super) fn measure(
        &mut self,
        job: JobId,
        tag: u64,
        count: Option<MemoryCount>,
    ) -> Option<FromShim> {
        let none = FromShim::Measured { tag, tasks: None };
        let owner = self.jobs.iter().find(|(run, _)| run.0 == job);
        let Some(uid) = owner.map(|(_, entry)| entry.uid) else {
            return Some(none);
        };
        if self.measurements.iter().filter(|m| m.uid == uid).count() >= USER_MAX {
            return Some(none);
        }
        let list = self.inspect(job);
        match start(&(list, count)) {
            Ok((pid, answer)) => {
                self.roles.insert(pid, Role::Other);
                self.measurements.push(Measurement {
                    tag,
                    uid,
                    pid,
                    answer,
                    bytes: Vec::new(),
                    by: Instant::now() + WAIT,
                });
                None
            }
            Err(e) => {
                eprintln!("no process to measure job {job}: {e}");
                Some(none)
            }
        }
    }

    /// Descriptors of measurements that are under way: [`Shim::hear_measurement`].
    pub(super) fn measurement_fds(&self) -> impl Iterator<Item = RawFd> {
        self.measurements.iter().map(|m| m.answer.as_raw_fd())
    }

    /// A measurement has something to say, if this is one.
    pub(super) fn hear_measurement(&mut self, fd: RawFd) {
        let is_it = |m: &Measurement| m.answer.as_raw_fd() == fd;
        let Some(at) = self.measurements.iter().position(is_it) else {
            return;
        };
        if self.measurements[at].read() {
            let measurement = self.measurements.swap_remove(at);
            self.emit(&measurement.into_answer());
        }
    }

    /// Ends measurements that have taken too long.
    pub(super) fn end_late_measurements(&mut self, now: Instant) {
        while let Some(at) = self.measurements.iter().position(|m| m.by <= now) {
            let late = self.measurements.swap_remove(at);
            sys::kill(late.pid, libc::SIGKILL);
            self.emit(&FromShim::Measured {
                tag: late.tag,
                tasks: None,
            });
        }
    }

    /// When the first of them is late.
    pub(super) fn measurement_deadline(&self) -> Option<Instant> {
        self.measurements.iter().map(|m| m.by).min()
    }
}
