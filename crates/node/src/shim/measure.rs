//! What the processes of a job use, and which tasks they are, which only root may read of other users. Files of a process may be
//! slow to read while it changes its memory, or never be read if it wants so, and there may be very many processes. So each time a
//! process of its own is executed afresh for it, and the launcher's loop waits for nothing.

mod reading;

use super::jobs::{Role, Shim};
use super::processes;
use crate::role::{self, Start};
use crate::sys;
use minicbor::{Decode, Encode};
use muster_model::ids::JobId;
use muster_model::limits::FRAME_BYTES_MAX;
use muster_node_core::messages::{LauncherEvent, Process, User};
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
/// Bytes of an answer: as many as the agent may receive at once.
const ANSWER_MAX: usize = FRAME_BYTES_MAX / 2;

/// One under way.
#[derive(Debug)]
pub(super) struct Measurement {
    /// From the request.
    tag: u64,
    /// The job's owner.
    uid: u32,
    pid: i32,
    answer: UnixStream,
    wanted: Wanted,
    bytes: Vec<u8>,
    by: Instant,
}

/// What is asked about processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub(super) enum Wanted {
    /// What they use: counted so, or the most of it.
    #[n(0)]
    Usage(#[n(0)] Option<MemoryCount>),
    /// Which there are.
    #[n(1)]
    List,
}

impl Wanted {
    /// The answer, from what the process that measures has said.
    fn answer(self, tag: u64, bytes: &[u8]) -> LauncherEvent {
        match self {
            Wanted::Usage(_) => LauncherEvent::Measured {
                tag,
                tasks: minicbor::decode(bytes).ok(),
            },
            Wanted::List => LauncherEvent::Processes {
                tag,
                list: minicbor::decode(bytes).unwrap_or_default(),
            },
        }
    }
}

/// Processes of a job.
#[derive(Clone, Debug, Default, Encode, Decode)]
pub(super) struct Listed {
    #[n(0)]
    pub(super) all: Vec<Process>,
    /// Those that are the first of a task, whose numbers are still to be read.
    #[n(1)]
    pub(super) tasks: Vec<u32>,
}

/// Which processes, and what of them.
type Order = (Listed, Wanted);

/// Local and global number of a task, from the environment that it was started with.
fn task_of(pid: u32) -> Option<(u32, u32)> {
    let pid = i32::try_from(pid).ok()?;
    let [local, global] = processes::variables(pid, ["SLURM_LOCALID", "SLURM_PROCID"]);
    Some((local?.parse().ok()?, global?.parse().ok()?))
}

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
        let (Listed { mut all, tasks }, wanted): Order =
            minicbor::decode(&order).map_err(io::Error::other)?;
        let mut answer = File::from(role::take_descriptor(role::FIRST_FD)?);
        for process in &mut all {
            if tasks.contains(&process.pid) {
                process.task = task_of(process.pid);
            }
        }
        let bytes = match wanted {
            Wanted::Usage(count) => minicbor::to_vec(reading::tasks(&all, count)),
            Wanted::List => minicbor::to_vec(all),
        };
        answer.write_all(&bytes.map_err(io::Error::other)?)
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

    fn into_answer(self) -> LauncherEvent {
        self.wanted.answer(self.tag, &self.bytes)
    }
}

impl Shim {
    /// Has it measured what a job uses, or listed what it has. The answer comes later; at once if there is none.
    pub(super) fn measure(
        &mut self,
        job: JobId,
        tag: u64,
        wanted: Wanted,
    ) -> Option<LauncherEvent> {
        let none = wanted.answer(tag, &[]);
        let owner = self.jobs.iter().find(|(run, _)| run.job == job);
        let Some(uid) = owner.map(|(_, entry)| entry.uid) else {
            return Some(none);
        };
        if self.measurements.iter().filter(|m| m.uid == uid).count() >= USER_MAX {
            return Some(none);
        }
        let listed = self.inspect(job);
        match start(&(listed, wanted)) {
            Ok((pid, answer)) => {
                self.roles.insert(pid, Role::Other);
                self.measurements.push(Measurement {
                    tag,
                    uid,
                    pid,
                    answer,
                    wanted,
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

    /// Descriptors of measurements that are under way: [`Shim::receive_measurement`].
    pub(super) fn measurement_fds(&self) -> impl Iterator<Item = RawFd> {
        self.measurements.iter().map(|m| m.answer.as_raw_fd())
    }

    /// A measurement has something to say, if this is one.
    pub(super) fn receive_measurement(&mut self, fd: RawFd) {
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
            self.emit(&late.wanted.answer(late.tag, &[]));
        }
    }

    /// When the first of them is late.
    pub(super) fn measurement_deadline(&self) -> Option<Instant> {
        self.measurements.iter().map(|m| m.by).min()
    }
}
