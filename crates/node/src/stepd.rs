//! The step daemon: one process per step and node, executed afresh by the launcher ([`start`]). It starts the tasks, carries their streams to
//! srun and back, tells how they ended, and leaves its result in a file of the spool, so that nothing else need be
//! alive when it ends. What it decides is in [`muster_node_core::stepd`], a state machine; here is what carries that out: one
//! thread, one poll loop. A daemon whose step left nothing behind may be given the next step of
//! its job by the launcher, which costs less than another process.
//!
//! Its life: listens; waits for srun's key; forks all tasks, which open their files and wait for each other; lets
//! them go; carries bytes until the last task has ended, kills what those left behind, sends the rest, and exits.
//! SIGTERM, or srun's disappearance, ends the tasks: TERM, after `KillWait` KILL.
//!
//! A task that is alone may have srun's own streams (`StepOrder::direct`). Then nothing is carried and nobody waited for:
//! with the streams comes a connection to srun, and the last word on it is said when the end is recorded.

mod around;
mod asked_signals;
mod bind;
mod connections;
mod control_channel;
mod executor;
mod mpi;
mod poll;
mod program;
mod start;
mod streams;
mod task;
mod task_set;
mod tmp_dir;

use crate::descriptors::SrunStdio;
use crate::{now, stepd_log, sys};
use executor::{StepdConnections, StepdExecutor};
pub use mpi::host::pmix_host_main;
use muster_model::job::StepEnd;
use muster_node_core::messages::{KeptEntries, NextStep};
use muster_node_core::stepd::Setup;
pub use start::stepd_main;
use std::path::{Path, PathBuf};

/// Runs the daemon from its first step on. Never returns.
fn run(
    setup: Setup,
    ends: StepdConnections,
    first: NextStep,
    dirs: Vec<PathBuf>,
    srun: Option<SrunStdio>,
) -> ! {
    match StepdExecutor::open(setup, ends) {
        Ok(executor) => executor.run(first, dirs, srun),
        Err(e) => {
            let (job, step) = (first.order.attempt.job, first.order.launch.step);
            stepd_log::line(&format!("step {job}.{step}: {e}"));
            let end = StepEnd::never_ran(now());
            leave(Path::new(&first.result), &end, &first.kept);
        }
    }
    sys::exit_now(0)
}

/// Leaves the result of a step in a file.
fn leave(path: &Path, end: &StepEnd, kept: &KeptEntries) {
    if let Err(e) = crate::step_result::write(path, end, kept) {
        stepd_log::line(&format!("{}: {e}", path.display()));
    }
}
