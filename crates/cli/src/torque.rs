//! The commands of Torque as Slurm has them: a front end whose requests are those of sbatch, squeue, scancel and others. qsub, qstat,
//! qdel, qhold, qrls and qalter have the names of Grid Engine's; what such a name means is said by the name `torque-qsub`, by
//! `MUSTER_COMMAND_SET` or by sge.conf.

mod arguments;
mod change;
mod jobs;
pub(crate) mod mpiexec;
pub(crate) mod nodefile;
pub(crate) mod pbsnodes;
pub(crate) mod qalter;
pub(crate) mod qdel;
pub(crate) mod qhold;
pub(crate) mod qrerun;
pub(crate) mod qstat;
pub(crate) mod qsub;
mod request;
mod script;
mod submission;

use crate::connect::ConnectError;
use crate::options::{Opt, Spec, env, flag};
use crate::say;
use arguments::TorqueLine;
use muster_conf::endpoint;
use muster_conf::grid_engine::{FILE, Mapping};
use std::process::ExitCode;

/// The tables of the commands.
pub(crate) static SPECS: &[&Spec] = &[
    &qsub::SPEC,
    &qstat::SPEC,
    &qdel::SPEC,
    &qhold::QHOLD,
    &qhold::QRLS,
    &qalter::SPEC,
    &qrerun::SPEC,
    &pbsnodes::SPEC,
    &mpiexec::SPEC,
    &nodefile::SPEC,
];

/// Prefix of a name that Grid Engine has, too.
const PREFIX: &str = "torque-";

/// Says which commands qsub, qstat, qdel, qhold, qrls and qalter are.
pub(crate) const VARIABLE: &str = "MUSTER_COMMAND_SET";

/// The name under which a command is known here: where qsub is to be Torque's, `torque-qsub`.
pub(crate) fn known_as(name: &str) -> &str {
    let own = SPECS.iter().filter_map(|spec| {
        let plain = spec.name.strip_prefix(PREFIX)?;
        (plain == name).then_some(spec.name)
    });
    match own.into_iter().next() {
        Some(own) if are_chosen() => own,
        _ => name,
    }
}

/// Whether the names that both have are Torque's, by the caller's environment, else by the site's file.
fn are_chosen() -> bool {
    match env(VARIABLE) {
        Some(word) => word.eq_ignore_ascii_case("torque"),
        None => {
            let path = endpoint::conf_path().with_file_name(FILE);
            let text = std::fs::read_to_string(path).unwrap_or_default();
            // The commands of Grid Engine report its errors.
            Mapping::parse(&text, FILE).0.has_torque_commands
        }
    }
}

/// Name by which a command is called.
fn call(spec: &Spec) -> &'static str {
    spec.name.strip_prefix(PREFIX).unwrap_or(spec.name)
}

/// Asking for help.
const HELP: [Opt; 2] = [
    flag("help", "print this help"),
    flag("man", "print this help"),
];

/// Reads a command line and runs the command with it.
fn run_command(
    spec: &'static Spec,
    args: &[String],
    run: impl FnOnce(&TorqueLine) -> Result<ExitCode, ExitCode>,
) -> ExitCode {
    match arguments::parse(spec, args, arguments::WordPlaces::Mixed) {
        Ok(parsed) if parsed.wants_help() => {
            say::stdout(&spec.help());
            ExitCode::SUCCESS
        }
        Ok(parsed) => run(&parsed).unwrap_or_else(|code| code),
        Err(why) => wrong_usage(spec, &why),
    }
}

/// Prints the error of a command line; returns its exit status.
fn wrong_usage(spec: &'static Spec, why: &str) -> ExitCode {
    let name = call(spec);
    fail(
        name,
        &format!("{why}\nTry \"{name} --help\" for more information"),
        2,
    )
}

/// Prints a line on standard error and gives an exit status.
fn fail(name: &str, line: &str, status: u8) -> ExitCode {
    say::stderr(&format!("{name}: {line}\n"));
    ExitCode::from(status)
}

/// Why the controller could not be asked, or said no.
fn unreachable(name: &str, error: &ConnectError) -> ExitCode {
    fail(name, &text_of(error), 1)
}

/// A refusal in one line: the error, then Slurm's wording.
fn text_of(error: &ConnectError) -> String {
    match error {
        ConnectError::Refused(refusal) => refusal_text(refusal),
        other => other.to_string(),
    }
}

/// Text of a refusal.
fn refusal_text(refusal: &muster_model::refusal::Refusal) -> String {
    match refusal.detail.as_str() {
        "" => refusal.code.text().to_owned(),
        detail => format!("{}: {detail}", refusal.code.text()),
    }
}
