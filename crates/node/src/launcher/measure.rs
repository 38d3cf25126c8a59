//! Measures what the processes of a job use, and lists which there are, which only root may read of other users. Files of a process
//! may be slow to read while it changes its memory, or never be read if it wants so, and there may be very many processes. So
//! each time a process of its own is executed afresh for it, and the launcher's loop waits for nothing.

mod reading;

use crate::processes::{self, Containment, ProcessTree};
use crate::role::{self, LAUNCHER_NAME, Start};
use crate::sys;
use minicbor::{Decode, Encode};
use muster_model::ids::StepNo;
use muster_node_core::launcher::{JobProcesses, ProcessQuery};
use muster_node_core::messages::{Process, User};
use muster_proto::step::TaskNumbers;
use nix::unistd::{getegid, geteuid};
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;

/// The argument with which the launcher's program measures instead.
pub(super) const MEASURE_ARGUMENT: &str = "--measure";

/// Memory, bytes of addresses, of a process that measures: what it reads is of users' making.
const MEMORY_MAX: u64 = 1 << 30;

/// The processes of a job. Nothing is read of them that they could keep from being read.
pub(super) fn list(tree: &ProcessTree, of: &JobProcesses) -> ProcessList {
    let mut listed = ProcessList::default();
    let mut add = |pid: i32, step, task| {
        let pid = pid.unsigned_abs();
        listed.all.push(Process { pid, step, task });
    };
    for daemon in &of.daemons {
        for pid in tree.below(&[daemon.pid]) {
            if processes::Stat::of(pid).is_some_and(|s| s.parent == daemon.pid) {
                listed.tasks.push(pid.unsigned_abs());
            }
            add(pid, daemon.step, None);
        }
    }
    if let Some(script) = of.script {
        let first = TaskNumbers {
            local: 0,
            global: 0,
        };
        add(script, StepNo::BATCH, Some(first));
        for pid in tree.below(&[script]) {
            add(pid, StepNo::BATCH, None);
        }
    }
    listed
}

/// Processes of a job.
#[derive(Clone, Debug, Default, Encode, Decode)]
pub(super) struct ProcessList {
    #[n(0)]
    pub(super) all: Vec<Process>,
    /// Those that are the first of a task, whose numbers are still to be read.
    #[n(1)]
    pub(super) tasks: Vec<u32>,
}

/// What the process that measures is to do.
#[derive(Debug, Encode, Decode)]
struct MeasureOrder {
    /// Which processes.
    #[n(0)]
    listed: ProcessList,
    /// What of them.
    #[n(1)]
    wanted: ProcessQuery,
}

/// The numbers of a task, from the environment that it was started with.
fn task_of(pid: u32) -> Option<TaskNumbers> {
    let pid = i32::try_from(pid).ok()?;
    let [local, global] = processes::variables(pid, ["SLURM_LOCALID", "SLURM_PROCID"]);
    Some(TaskNumbers {
        local: local?.parse().ok()?,
        global: global?.parse().ok()?,
    })
}

/// Starts the process that measures; gives it, and where it answers.
pub(super) fn start(listed: ProcessList, wanted: ProcessQuery) -> io::Result<(i32, UnixStream)> {
    let (answer, far_end) = UnixStream::pair()?;
    answer.set_nonblocking(true)?;
    let own = User {
        uid: geteuid().as_raw(),
        gid: getegid().as_raw(),
        groups: Vec::new(),
        name: String::new(),
    };
    let pid = Start {
        words: &[LAUNCHER_NAME, MEASURE_ARGUMENT],
        environment: Vec::new(),
        user: &own,
        order: minicbor::to_vec(MeasureOrder { listed, wanted }).map_err(io::Error::other)?,
        errors: None,
        is_untraceable: false,
        kept: vec![far_end.as_raw_fd()],
        outlives: false,
        namespace: None,
    }
    .start()?;
    Ok((pid, answer))
}

/// The process that measures.
pub(super) fn measure_main() -> ExitCode {
    let answer = || -> io::Result<()> {
        sys::set_soft_limit(libc::RLIMIT_AS, MEMORY_MAX)?;
        let order = role::read_order()?;
        let MeasureOrder { listed, wanted } = minicbor::decode(&order).map_err(io::Error::other)?;
        let ProcessList { mut all, tasks } = listed;
        let mut answer = File::from(role::take_descriptor(role::FIRST_FD)?);
        for process in &mut all {
            if tasks.contains(&process.pid) {
                process.task = task_of(process.pid);
            }
        }
        let bytes = match wanted {
            ProcessQuery::Usage(count) => minicbor::to_vec(reading::tasks(&all, count)),
            ProcessQuery::List => minicbor::to_vec(all),
        };
        answer.write_all(&bytes.map_err(io::Error::other)?)
    };
    match answer() {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}
