//! Slurm's user commands. Each speaks to the controller over one blocking connection and starts in milliseconds.

mod agent;
pub mod catalogue;
pub mod connect;
pub mod listing;
pub mod options;
mod people;
pub mod process;
pub mod submit;
mod targets;

use std::process::ExitCode;

/// The version of Slurm whose behaviour the commands follow, as `--version` prints it.
pub const SLURM_VERSION: &str = "25.05.4";

/// What a command does, with its arguments (its own name left out).
type Main = fn(name: &str, args: &[String]) -> ExitCode;

const COMMANDS: [(&str, Main); 14] = [
    ("sbatch", submit::main),
    ("srun", submit::main),
    ("salloc", submit::main),
    ("scancel", submit::main),
    ("scontrol", submit::main),
    ("squeue", listing::main),
    ("sinfo", listing::main),
    ("sacct", listing::main),
    ("sacctmgr", listing::main),
    ("sdiag", listing::main),
    ("sprio", listing::main),
    ("sreport", listing::main),
    ("sshare", listing::main),
    ("sstat", listing::main),
];

/// The names of the commands.
pub fn names() -> impl Iterator<Item = &'static str> {
    COMMANDS.iter().map(|(name, _)| *name)
}

/// Runs the command of that name with `args`, its own name left out; `None` where there is no such command.
#[must_use]
pub fn run(name: &str, args: &[String]) -> Option<ExitCode> {
    let (_, main) = COMMANDS.iter().find(|(known, _)| *known == name)?;
    Some(main(name, args))
}
