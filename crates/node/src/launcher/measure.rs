//! Measures the resource usage of a job's processes and lists them, which for other users only root
//! may do. Files of a process may be slow to read while it changes its memory, or may never be
//! readable if the process prevents it, and there may be very many processes. Each measurement
//! therefore runs in a separate process that is executed afresh, and the launcher's loop does not
//! wait.

mod reading;

use crate::processes::{self, Containment, ProcessTree};
use crate::role::{self, LAUNCHER_NAME, Start};
use crate::sys;
use minicbor::{Decode, Encode};
use muster_model::ids::StepNo;
use muster_node_core::launcher::{JobProcesses, ProcessQuery};
use muster_node_core::messages::ProcessIdentity;
use muster_proto::step::{Process, TaskNumbers};
use nix::unistd::{getegid, geteuid};
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;

/// The argument with which the launcher's program measures.
pub(super) const MEASURE_ARGUMENT: &str = "--measure";

/// Address space limit of a measuring process, because users determine its input.
const MEMORY_MAX: u64 = 1 << 30;

/// Lists the processes of a job. Reads nothing that the processes could block.
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
    /// First processes of tasks, whose task numbers have not been read yet.
    #[n(1)]
    pub(super) tasks: Vec<u32>,
}

/// The order of the measuring process.
#[derive(Debug, Encode, Decode)]
struct MeasureOrder {
    /// The processes.
    #[n(0)]
    listed: ProcessList,
    /// The kind of measurement.
    #[n(1)]
    wanted: ProcessQuery,
}

/// The step and task numbers of a process, from its initial environment.
fn task_of(pid: u32) -> Option<TaskNumbers> {
    let pid = i32::try_from(pid).ok()?;
    let [local, global] = processes::variables(pid, ["SLURM_LOCALID", "SLURM_PROCID"]);
    Some(TaskNumbers {
        local: local?.parse().ok()?,
        global: global?.parse().ok()?,
    })
}

/// Starts the measuring process; returns it and the descriptor of its answer.
pub(super) fn start(listed: ProcessList, wanted: ProcessQuery) -> io::Result<(i32, UnixStream)> {
    let (answer, far_end) = UnixStream::pair()?;
    answer.set_nonblocking(true)?;
    let own = ProcessIdentity {
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

/// The measuring process.
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
