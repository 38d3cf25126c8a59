//! qrerun: a job that runs goes back into the queue.

use super::arguments::TorqueLine;
use super::{HELP, change, jobs, run_command};
use crate::options::{HelpForm, Opt, Spec, flag, opt};
use muster_model::command::UserCommand;
use std::process::ExitCode;

/// qrerun.
pub(crate) static SPEC: Spec = Spec {
    name: "qrerun",
    about: "Puts jobs that run back into the queue, as Torque's qrerun does.",
    operands: "JOB...",
    form: HelpForm::Torque,
    options: OPTIONS,
    variables: &[],
    notes: "A job that was submitted with -r n is not run again.\n",
};

static OPTIONS: &[Opt] = &[
    flag("f", "also if its node does not answer")
        .stored("jobs of nodes that do not answer go back by themselves"),
    opt("m", "message", "message for the job").warns("jobs get no messages"),
    opt("t", "tasks", "tasks of the arrays: 1-3,7"),
    flag("verbose", "say what is asked").stored("there is nothing to be said"),
    HELP[0],
    HELP[1],
];

/// Runs qrerun.
pub(crate) fn main(args: &[String]) -> ExitCode {
    run_command(&SPEC, args, run)
}

fn run(parsed: &TorqueLine) -> Result<ExitCode, ExitCode> {
    let named = jobs::named("qrerun", &parsed.operands, parsed.last("t"))?;
    change::each("qrerun", "Error", named, |target| UserCommand::Requeue {
        target,
        hold: false,
        special_exit: false,
        incomplete: false,
    })
}
