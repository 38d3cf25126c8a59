//! qhold and qrls: holds of jobs.

use super::arguments::{self, OperandPosition, Parsed};
use super::{fail, missing, qdel, selection, unreachable};
use crate::connect::{Client, ConnectError};
use crate::listing::query;
use crate::options::{HelpForm, Opt, Spec, flag, opt};
use crate::say;
use crate::submit::line;
use muster_model::command::{JobTarget, Reply, UserCommand};
use muster_model::job::{ArrayRole, Job};
use std::process::ExitCode;

/// qhold.
pub(crate) static QHOLD: Spec = Spec {
    name: "qhold",
    about: "Keeps jobs that wait from starting.",
    operands: "JOB[.TASKS][,...] [-t TASKS]",
    form: HelpForm::GridEngine,
    options: OPTIONS,
    variables: &[],
    notes: "Holds u and s are the user's; o and s need an administrator and hold as one.\n",
};

/// qrls.
pub(crate) static QRLS: Spec = Spec {
    name: "qrls",
    about: "Takes the holds of jobs away.",
    operands: "JOB[.TASKS][,...] [-t TASKS]",
    form: HelpForm::GridEngine,
    options: OPTIONS,
    variables: &[],
    notes: "",
};

static OPTIONS: &[Opt] = &[
    opt(
        "h",
        "u|o|s|n",
        "kind of the hold: user's (default), operator's, system's; n means none",
    ),
    opt("t", "tasks", "tasks of the job before it"),
    opt("u", "users", "jobs of these users; * is all"),
    flag("help", "print this help"),
];

/// The exit status when a job is not there.
const NO_JOB: u8 = 3;

/// Grid Engine's exit status for kinds of holds that there are not.
pub(super) const WRONG_HOLD: u8 = 7;

/// Runs qhold.
pub(crate) fn hold_main(args: &[String]) -> ExitCode {
    main(&QHOLD, args, true)
}

/// Runs qrls.
pub(crate) fn release_main(args: &[String]) -> ExitCode {
    main(&QRLS, args, false)
}

fn main(spec: &'static Spec, args: &[String], hold: bool) -> ExitCode {
    let parsed = match arguments::parse(spec, args, OperandPosition::Mixed) {
        Ok(parsed) => parsed,
        Err(wrong) => return fail(wrong.text(), 1),
    };
    if parsed.has("help") {
        say::stdout(&spec.help());
        return ExitCode::SUCCESS;
    }
    run(&parsed, spec.name, hold).unwrap_or_else(|code| code)
}

/// The change of a hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// A user's hold.
    HoldByUser,
    /// An administrator's.
    HoldByAdmin,
    /// None any more.
    Release,
}

/// Reads the kinds of `-h`: small letters hold in qalter, capital ones release.
pub(super) fn change(kinds: &str, hold: bool) -> Result<Change, String> {
    let mut change = if hold {
        Change::HoldByUser
    } else {
        Change::Release
    };
    for kind in kinds.chars() {
        change = match kind {
            'u' if hold => Change::HoldByUser,
            'o' | 's' if hold => Change::HoldByAdmin,
            'u' | 'o' | 's' | 'n' | 'U' | 'O' | 'S' => Change::Release,
            _ => {
                return Err(format!(
                    "qalter: Unknown hold list \"{kinds}\" specified to -h option: '{kind}' is not one of u, o, s, n"
                ));
            }
        };
    }
    Ok(change)
}

impl Change {
    /// Does it to a job.
    pub(super) fn command(self, target: JobTarget) -> UserCommand {
        match self {
            Change::HoldByUser => UserCommand::Hold { target, user: true },
            Change::HoldByAdmin => UserCommand::Hold {
                target,
                user: false,
            },
            Change::Release => UserCommand::Release { target },
        }
    }
}

fn run(parsed: &Parsed, name: &str, hold: bool) -> Result<ExitCode, ExitCode> {
    let kinds = parsed.last("h").unwrap_or("u");
    let change = change(kinds, hold).map_err(|why| fail(&why, WRONG_HOLD))?;
    let mut client = Client::connect_patiently(line::PATIENCE).map_err(|e| unreachable(&e))?;
    require_operator(&mut client, change, kinds)?;
    each(parsed, name, &mut client, NO_JOB, |client, job, target| {
        change_one(client, job, change.command(target), "hold")
    })
}

/// Grid Engine's exit status for holds that are not the caller's to set.
const NO_OPERATOR: u8 = 10;

/// Refuses an operator's hold to others: the controller would take it as the user's own.
pub(super) fn require_operator(
    client: &mut Client,
    change: Change,
    kinds: &str,
) -> Result<(), ExitCode> {
    let own = nix::unistd::getuid();
    if change != Change::HoldByAdmin || own.is_root() {
        return Ok(());
    }
    let name = line::user(&own.to_string()).map(|user| user.name);
    let name = name.unwrap_or_default();
    let accounts = query::accounts(client).map_err(|e| unreachable(&e))?;
    let user = accounts.accounts.users.get(&name);
    if user.is_some_and(|user| is_of_staff(&user.admin_level)) {
        return Ok(());
    }
    let settings = query::config(client).map_err(|e| unreachable(&e))?.pairs;
    let owner = settings.iter().find(|(key, _)| key == "SlurmUser");
    if owner.is_some_and(|(_, value)| value.ends_with(&format!("({own})"))) {
        return Ok(());
    }
    let role = match kinds.contains('s') {
        true => "manager",
        false => "operator",
    };
    Err(missing(
        &format!("denied: \"{name}\" must be {role} to set {role} hold"),
        NO_OPERATOR,
    ))
}

/// Whether a user of this `AdminLevel` may hold as an operator.
fn is_of_staff(level: &str) -> bool {
    ["operator", "administrator", "admin"].contains(&level.to_ascii_lowercase().as_str())
}

/// Does something to each job that a command line names. Gives the exit status of the last failure.
pub(super) fn each(
    parsed: &Parsed,
    name: &str,
    client: &mut Client,
    no_job: u8,
    mut act: impl FnMut(&mut Client, &Job, JobTarget) -> Result<(), u8>,
) -> Result<ExitCode, ExitCode> {
    let named = qdel::words(parsed, name)?;
    let by_user = parsed.has("u");
    if named.is_empty() && !by_user {
        return Err(fail(&format!("{name}: no job is named"), 1));
    }
    let uids = match by_user {
        true => selection::users(parsed.all("u"))
            .map_err(|user| fail(&format!("error: unknown user \"{user}\""), 1))?,
        false => None,
    };
    let jobs = selection::active(client, uids.unwrap_or_default()).map_err(|e| unreachable(&e))?;
    let mut status = 0;
    if named.is_empty() {
        for job in &jobs {
            status = act(client, job, selection::target(job, None))
                .err()
                .unwrap_or(status);
        }
        return Ok(ExitCode::from(status));
    }
    let own = nix::unistd::getuid().as_raw();
    for one in &named {
        let is_meant =
            |job: &&Job| one.is(job) && (one.job.is_some() || by_user || job.spec.owner.uid == own);
        let parts: Vec<_> = jobs
            .iter()
            .filter(is_meant)
            .filter_map(|job| Some((job, one.part(job)?)))
            .collect();
        if parts.is_empty() {
            missing(
                &format!("denied: job \"{}\" does not exist", one.text),
                no_job,
            );
            status = no_job;
        }
        for (job, tasks) in parts {
            status = act(client, job, selection::target(job, tasks))
                .err()
                .unwrap_or(status);
        }
    }
    Ok(ExitCode::from(status))
}

/// Sends a change of one job, and says what came of it.
pub(super) fn change_one(
    client: &mut Client,
    job: &Job,
    command: UserCommand,
    what: &str,
) -> Result<(), u8> {
    let shown = send(client, job, command, what)?;
    say::stdout(&format!("modified {what} of {shown}\n"));
    Ok(())
}

/// Sends a change of one job; gives the job's name in lines about it. Why it was refused is printed.
pub(super) fn send(
    client: &mut Client,
    job: &Job,
    command: UserCommand,
    what: &str,
) -> Result<String, u8> {
    let tasks = match &command {
        UserCommand::Hold { target, .. } | UserCommand::Release { target } => target.tasks.clone(),
        _ => None,
    };
    let number = selection::number(job);
    let shown = match (&tasks, &job.array) {
        (Some(tasks), ArrayRole::Pending { .. } | ArrayRole::Task { .. }) => {
            format!(
                "job-array task {number}.{}",
                selection::ranges(tasks.iter())
            )
        }
        _ => format!("job {number}"),
    };
    let refused = |why: &str| {
        say::stderr(&format!("denied: cannot modify {what} of {shown}: {why}\n"));
        Err(1)
    };
    match client.command(command) {
        Ok(Reply::Done { refused: none, .. }) if none.is_empty() => Ok(shown),
        Ok(Reply::Done { refused: all, .. }) => {
            let (_, refusal) = &all[0];
            match refusal.detail.as_str() {
                "" => refused(refusal.code.text()),
                detail => refused(detail),
            }
        }
        Ok(_) => Ok(shown),
        Err(ConnectError::Refused(refusal)) => match refusal.detail.as_str() {
            "" => refused(refusal.code.text()),
            detail => refused(detail),
        },
        Err(error) => refused(&error.to_string()),
    }
}
