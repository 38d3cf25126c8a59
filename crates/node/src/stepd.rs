//! The step daemon: one process per step and node, executed afresh by the launcher ([`start`]). It
//! starts the tasks, carries their streams to srun and back, reports how they ended, and writes its
//! result to a file in the spool, so that no other process needs to be running when it ends. Its
//! decisions are made in [`muster_node_core::stepd`], a state machine; this module performs them in
//! one thread with one poll loop. The launcher may give the next step of the job to a daemon whose
//! step left nothing behind, which costs less than another process.
//!
//! Its life: it listens; waits for srun's key; forks all tasks, which open their files and wait for
//! each other; releases them; forwards bytes until the last task has ended; kills the remaining
//! processes; sends the rest, and exits. SIGTERM, or the disappearance of srun, ends the tasks:
//! TERM, and KILL after `KillWait`.
//!
//! The only task of a step may use srun's own streams (`StepOrder::direct`). Then the daemon
//! forwards nothing and waits for no connection: a connection to srun comes with the streams, and
//! the final message is sent on it when the end is recorded.

mod around;
mod asked_signals;
mod bind;
mod connections;
mod control_channel;
mod executor;
mod labelling;
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
use muster_node_core::stepd::StepdSetup;
pub use start::stepd_main;
use std::path::{Path, PathBuf};

/// Runs the daemon from its first step on. Never returns.
fn run(
    setup: StepdSetup,
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

/// Writes the result of a step to a file.
fn leave(path: &Path, end: &StepEnd, kept: &KeptEntries) {
    if let Err(e) = crate::step_result::write(path, end, kept) {
        stepd_log::line(&format!("{}: {e}", path.display()));
    }
}
