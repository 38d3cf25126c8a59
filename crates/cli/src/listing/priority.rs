//! sprio, sshare, sstat: what they can honestly say while priority is the order of submission, shares are not kept
//! and running steps are not sampled.

use super::options::{Opt, Value, long, opt, parse};
use super::{Failure, SLURM_VERSION, print};

static OPTIONS: &[Opt] = &[
    opt('V', "version", Value::No),
    long("help", Value::No),
    long("usage", Value::No),
];

/// Answers `--version` and `--help`.
fn information(command: &str, help: &str, args: &[String]) -> bool {
    let Ok(parsed) = parse(command, OPTIONS, args) else {
        return false;
    };
    match parsed.options.first() {
        Some(("version", _)) => print(&format!("slurm {SLURM_VERSION}\n")),
        Some(_) => print(help),
        None => return false,
    }
    true
}

/// Runs sprio. Slurm says the same when its priority plugin keeps no factors.
pub(crate) fn sprio(args: &[String]) -> Result<(), Failure> {
    let help =
        "Usage: sprio [--help | --version]\nPriority has no factors here; squeue -o %Q shows it.\n";
    if information("sprio", help, args) {
        return Ok(());
    }
    print(
        "You are not running a supported priority plugin\n(priority/basic).\nOnly 'priority/multifactor' is supported.\n",
    );
    Ok(())
}

/// Runs sshare: a tree without accounts.
pub(crate) fn sshare(args: &[String]) -> Result<(), Failure> {
    let help =
        "Usage: sshare [--help | --version]\nNo shares are kept here: there are no associations.\n";
    if information("sshare", help, args) {
        return Ok(());
    }
    Err(Failure::new(
        "sshare: error: no shares are kept: accounting here has no associations. sacct -o Account,CPUTime shows usage.",
    ))
}

/// Runs sstat: refused.
pub(crate) fn sstat(args: &[String]) -> Result<(), Failure> {
    let help = "Usage: sstat [--help | --version]\nRunning steps are not sampled; sacct shows what steps used when they end.\n";
    if information("sstat", help, args) {
        return Ok(());
    }
    Err(Failure::new(
        "sstat: error: usage of running steps is not implemented; sacct -o JobID,MaxRSS,TotalCPU shows it when a step ends",
    ))
}
