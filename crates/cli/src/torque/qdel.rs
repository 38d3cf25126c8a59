//! qdel: ends jobs.

use super::arguments::TorqueLine;
use super::change::{self, ChangeFailure};
use super::{HELP, fail, jobs, run_command};
use crate::options::{HelpForm, Opt, Spec, flag, opt};
use muster_model::command::{JobSelection, JobTarget, UserCommand};
use muster_model::refusal::RefusalCode;
use muster_proto::client::JobFilter;
use std::process::ExitCode;

/// qdel.
pub(crate) static SPEC: Spec = Spec {
    name: "torque-qdel",
    about: "Ends jobs, as Torque's qdel does.",
    operands: "JOB... | all",
    form: HelpForm::Torque,
    options: OPTIONS,
    variables: &[],
    notes: "A JOB is a number, perhaps with a dot and a server; 17[3] is a task of an array. 'all' are one's own jobs.\n",
};

static OPTIONS: &[Opt] = &[
    flag("a", "do not wait until the jobs have ended").stored("qdel never waits for that"),
    flag("b", "give up when the server is busy").stored("it is asked until it answers"),
    opt("m", "message", "message for the job").warns("jobs get no messages"),
    flag("p", "forget the job").stored("nodes that are lost give their jobs up by themselves"),
    opt("t", "tasks", "tasks of the arrays: 1-3,7"),
    opt("W", "seconds", "seconds between the signals TERM and KILL")
        .warns("KillWait of slurm.conf says how many there are"),
    flag("x", "forget jobs that have ended, too").stored("MinJobAge of slurm.conf says when"),
    HELP[0],
    HELP[1],
];

/// Runs qdel.
pub(crate) fn main(args: &[String]) -> ExitCode {
    run_command(&SPEC, args, run)
}

fn run(parsed: &TorqueLine) -> Result<ExitCode, ExitCode> {
    let all = parsed
        .operands
        .iter()
        .any(|word| word.eq_ignore_ascii_case("all"));
    let named = match all {
        true => own_jobs()?,
        false => jobs::named("qdel", &parsed.operands, parsed.last("t"))?,
    };
    let mut client = change::connect("qdel")?;
    let mut status = ExitCode::SUCCESS;
    for (word, target) in named {
        let selection = JobSelection {
            targets: vec![target],
            cron: true,
            ..JobSelection::default()
        };
        match change::send(&mut client, UserCommand::Cancel { selection }) {
            Ok(()) => {}
            // As Slurm's, which says nothing.
            Err(ChangeFailure::By(refusal)) if refusal.code == RefusalCode::AlreadyDone => {
                status = ExitCode::FAILURE;
            }
            Err(refused) => {
                change::complain("qdel", "Kill job error", &word, &refused);
                status = ExitCode::FAILURE;
            }
        }
    }
    Ok(status)
}

/// The caller's jobs that have not ended.
fn own_jobs() -> Result<Vec<(String, JobTarget)>, ExitCode> {
    let filter = JobFilter {
        uids: vec![nix::unistd::getuid().as_raw()],
        active: true,
        ..JobFilter::default()
    };
    let mut client = change::connect("qdel")?;
    let found = client.query_jobs(filter);
    let found = found.map_err(|e| super::unreachable("qdel", &e))?;
    let active = found.iter().filter(|job| !job.state.is_ended());
    let all: Vec<_> = active
        .filter_map(|job| {
            let word = job.id.to_string();
            let target = jobs::target(&word)?;
            Some((word, target))
        })
        .collect();
    match all.is_empty() {
        true => Err(fail("qdel", "you have no jobs", 1)),
        false => Ok(all),
    }
}
