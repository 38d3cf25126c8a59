//! Slurm's user commands. Each speaks to the controller over one blocking connection and starts in milliseconds.

mod agent;
pub mod catalogue;
mod class;
mod clusters;
pub mod connect;
mod documents;
mod editor;
mod errno;
mod grid_engine;
pub mod library;
mod listing;
mod logs;
mod measure;
#[cfg(test)]
mod members;
pub mod options;
mod own_step;
mod people;
pub mod process;
mod report;
pub mod rest;
mod sacct;
mod sacctmgr;
mod salloc;
mod sattach;
mod say;
mod sbatch;
mod sbcast;
mod scancel;
mod scontrol;
mod scrontab;
mod sdiag;
mod seff;
mod sgather;
mod sinfo;
mod sprio;
mod squeue;
mod sreport;
mod srun;
mod sshare;
mod sstat;
mod storage;
mod strigger;
mod submit;
mod targets;
mod top;
mod torque;
mod watch;
mod why;
mod zone;

pub use submit::filters::set_lua;

use muster_model::command::UserCommand;
use muster_model::time::Timestamp;
use std::process::ExitCode;

/// The version of Slurm whose behaviour the commands follow, as `--version` prints it.
pub const SLURM_VERSION: &str = "25.05.4";

/// Main function of a command, with its arguments (its own name left out).
type Main = fn(args: &[String]) -> ExitCode;

const COMMANDS: [(&str, Main); 51] = [
    ("sbatch", sbatch::main),
    ("srun", srun::main),
    ("salloc", salloc::main),
    ("sattach", sattach::main),
    ("sbcast", sbcast::main),
    ("sgather", sgather::main),
    ("scancel", scancel::main),
    ("scontrol", |args| {
        scontrol::main(args, documents::print_answer)
    }),
    ("scrontab", scrontab::main),
    ("strigger", strigger::main),
    ("squeue", |args| listing::report(squeue::run(args))),
    ("sinfo", |args| listing::report(sinfo::run(args))),
    ("sacct", |args| listing::report(sacct::run(args))),
    ("sacctmgr", |args| {
        listing::report(documents::sacctmgr(args))
    }),
    ("sdiag", |args| listing::report(sdiag::run(args))),
    ("sprio", |args| listing::report(sprio::run(args))),
    ("sreport", |args| listing::report(sreport::run(args))),
    ("seff", |args| listing::report(seff::run(args))),
    ("sshare", |args| listing::report(sshare::run(args))),
    ("sstat", |args| listing::report(sstat::run(args))),
    ("qsub", grid_engine::qsub::main),
    ("qstat", grid_engine::qstat::main),
    ("qdel", grid_engine::qdel::main),
    ("qalter", grid_engine::qalter::main),
    ("qhold", grid_engine::qhold::hold_main),
    ("qrls", grid_engine::qhold::release_main),
    ("qmod", grid_engine::qmod::main),
    ("qhost", grid_engine::qhost::main),
    ("qselect", grid_engine::qhost::select_main),
    ("qacct", grid_engine::qacct::main),
    ("qconf", grid_engine::qconf::main),
    ("qping", grid_engine::qping::main),
    ("qquota", grid_engine::qquota::main),
    ("qsummary", grid_engine::qsummary::main),
    ("qresub", grid_engine::qresub::main),
    ("qrsub", grid_engine::qrsub::submit_main),
    ("qrdel", grid_engine::qrsub::delete_main),
    ("qrstat", grid_engine::qrsub::show_main),
    ("qrsh", grid_engine::interactive::rsh_main),
    ("qlogin", grid_engine::interactive::login_main),
    ("qsh", grid_engine::interactive::sh_main),
    ("torque-qsub", torque::qsub::main),
    ("torque-qstat", torque::qstat::main),
    ("torque-qdel", torque::qdel::main),
    ("torque-qhold", torque::qhold::hold_main),
    ("torque-qrls", torque::qhold::release_main),
    ("torque-qalter", torque::qalter::main),
    ("qrerun", torque::qrerun::main),
    ("pbsnodes", torque::pbsnodes::main),
    ("mpiexec.slurm", torque::mpiexec::main),
    ("generate_pbs_nodefile", torque::nodefile::main),
];

/// The names of the commands.
pub fn names() -> impl Iterator<Item = &'static str> {
    COMMANDS.iter().map(|(name, _)| *name)
}

/// Runs the command of that name with `args`, its own name left out; `None` where there is no such command.
#[must_use]
pub fn run(name: &str, args: &[String]) -> Option<ExitCode> {
    let name = torque::known_as(name);
    let (_, main) = COMMANDS.iter().find(|(known, _)| *known == name)?;
    Some(main(args))
}

/// A time in the user's time zone, as listings print it.
#[must_use]
pub fn local_time(at: Timestamp) -> String {
    zone::show(at)
}

/// `muster class`: the site's job classes.
#[must_use]
pub fn class(args: &[String]) -> ExitCode {
    listing::report(class::run(args))
}

/// `muster logs`: what a job has written.
#[must_use]
pub fn logs(args: &[String]) -> ExitCode {
    listing::report(logs::run(args))
}

/// `muster top`: the cluster on a terminal, as it changes.
#[must_use]
pub fn top(args: &[String]) -> ExitCode {
    top::run(args).unwrap_or_else(listing::Failure::report)
}

/// `muster watch`: a job's way until it has ended, and its exit status.
#[must_use]
pub fn watch(args: &[String]) -> ExitCode {
    watch::run(args).unwrap_or_else(listing::Failure::report)
}

/// `muster report`: run times, ends and use of jobs.
#[must_use]
pub fn report(args: &[String]) -> ExitCode {
    listing::report(report::run(args))
}

/// `muster storage`: use of file systems by users.
#[must_use]
pub fn storage(args: &[String]) -> ExitCode {
    listing::report(storage::run(args))
}

/// `muster why`: what a job waits for.
#[must_use]
pub fn why(args: &[String]) -> ExitCode {
    listing::report(why::run(args))
}

/// Request of sbatch with these arguments to the controller.
///
/// # Errors
/// The exit code of sbatch, after it has written the error.
pub fn submission(args: &[String]) -> Result<UserCommand, ExitCode> {
    sbatch::request(args)
}
