//! qdel: ends jobs.

use super::arguments::Parsed;
use super::selection::{self, JobOperand};
use super::{fail, fits, missing, run_command, unreachable};
use crate::connect::{Client, ConnectError};
use crate::options::{HelpForm, Opt, Spec, flag, opt};
use crate::say;
use crate::submit::line;
use muster_model::command::{JobSelection, JobTarget, Reply, UserCommand};
use muster_model::index_set::IndexSet;
use muster_model::job::{ArrayRole, Job, JobState};
use muster_model::refusal::{Refusal, RefusalCode};
use std::process::ExitCode;

/// qdel.
pub(crate) static SPEC: Spec = Spec {
    name: "qdel",
    about: "Ends jobs, as Grid Engine's qdel does.",
    operands: "JOB[.TASKS][,...] [-t TASKS]",
    form: HelpForm::GridEngine,
    options: OPTIONS,
    variables: &[],
    notes: "A JOB is a number, a name or a pattern of names; names mean one's own jobs unless -u says whose.\n",
};

static OPTIONS: &[Opt] = &[
    flag("f", "force").stored("nodes that are lost give their jobs up by themselves"),
    opt("t", "tasks", "tasks of the job before it"),
    opt("u", "users", "jobs of these users; * is all"),
    flag("help", "print this help"),
];

/// Runs qdel.
pub(crate) fn main(args: &[String]) -> ExitCode {
    run_command(&SPEC, args, true, run)
}

/// Jobs that a command line names, with the tasks of `-t` in the last of them.
pub(super) fn words(parsed: &Parsed, command: &str) -> Result<Vec<JobOperand>, ExitCode> {
    let wrong = |why: String| fail(&format!("{command}: {why}"), 1);
    let mut all: Vec<JobOperand> = Vec::new();
    for word in &parsed.operands {
        all.extend(selection::named(word).map_err(wrong)?);
    }
    if let Some(text) = parsed.last("t") {
        let tasks = selection::tasks(text).map_err(wrong)?;
        match all.last_mut() {
            Some(last) => last.tasks = Some(tasks),
            None => return Err(wrong("-t needs a job before it".to_owned())),
        }
    }
    Ok(all)
}

fn run(parsed: &Parsed) -> Result<ExitCode, ExitCode> {
    let named = words(parsed, "qdel")?;
    let by_user = parsed.has("u");
    if named.is_empty() && !by_user {
        return Err(fail("qdel: no job is named", 1));
    }
    let own = nix::unistd::getuid().as_raw();
    let uids = match by_user {
        true => selection::known_users(parsed.all("u")),
        false => None,
    };
    let mut client = Client::connect_patiently(line::PATIENCE).map_err(|e| unreachable(&e))?;
    let jobs = match &uids {
        // Users who are all unknown have no jobs.
        Some(uids) if uids.is_empty() => Vec::new(),
        uids => selection::active(&mut client, uids.clone().unwrap_or_default())
            .map_err(|e| unreachable(&e))?,
    };
    let mut status = ExitCode::SUCCESS;
    if named.is_empty() {
        let whose = parsed.last("u").unwrap_or_default();
        let mine: Vec<&Job> = jobs.iter().collect();
        if mine.is_empty() {
            return Err(missing(
                &format!("There is no job registered for the following users: {whose}"),
                1,
            ));
        }
        return Ok(match delete(&mut client, &mine, None) {
            true => ExitCode::SUCCESS,
            false => ExitCode::FAILURE,
        });
    }
    // A job that an earlier word of the same line has ended is in deletion for a later one.
    let mut gone = Vec::new();
    for one in &named {
        let mut found: Vec<&Job> = jobs
            .iter()
            .filter(|job| match one.job {
                Some(_) => one.is(job),
                None => (by_user || job.spec.owner.uid == own) && fits(&one.text, &job.spec.name),
            })
            .collect();
        found.retain(|job| one.part(job).is_some());
        if found.is_empty() {
            let whose = match (by_user, one.job) {
                (_, Some(_)) => None,
                (true, None) => Some(parsed.last("u").unwrap_or_default().to_owned()),
                (false, None) => Some(
                    line::user(&own.to_string())
                        .map(|user| user.name)
                        .unwrap_or_default(),
                ),
            };
            status = match (whose, one.tasks) {
                (Some(users), _) => missing(
                    &format!("The job {} of user(s) {users} does not exist", one.text),
                    1,
                ),
                (None, Some(tasks)) => missing(
                    &format!(
                        "denied: job-array task \"{}.{}\" does not exist",
                        one.text,
                        tasks.text()
                    ),
                    1,
                ),
                (None, None) => missing(&format!("denied: job \"{}\" does not exist", one.text), 1),
            };
            continue;
        }
        let again = found.iter().filter(|job| gone.contains(&job.id));
        for job in again {
            say::stdout(&format!("job {} is already in deletion\n", shown(job)));
        }
        found.retain(|job| !gone.contains(&job.id));
        gone.extend(found.iter().map(|job| job.id));
        if !delete(&mut client, &found, Some(one)) {
            status = ExitCode::FAILURE;
        }
    }
    Ok(status)
}

/// A record's number, and its task behind a dot.
fn shown(job: &Job) -> String {
    let number = selection::number(job);
    match selection::task(job) {
        Some(task) => format!("{number}.{task}"),
        None => number.to_string(),
    }
}

/// Ends records, each with a line. Whether all went well.
fn delete(client: &mut Client, jobs: &[&Job], named: Option<&JobOperand>) -> bool {
    let who = line::user(&nix::unistd::getuid().to_string())
        .map(|user| user.name)
        .unwrap_or_default();
    let mut all_well = true;
    for job in jobs {
        if job.completing && job.cancelled_by.is_some() {
            say::stdout(&format!("job {} is already in deletion\n", shown(job)));
            continue;
        }
        let tasks = named.and_then(|one| one.part(job)).flatten();
        let target = selection::target(job, tasks.clone());
        match cancel(client, target) {
            Ok(()) => say::stdout(&format!("{}\n", done(&who, job, tasks.as_ref()))),
            Err(Failed::NotAllowed) => {
                all_well = false;
                say::stderr(&format!(
                    "{who} - you do not have the necessary privileges to delete the job \"{}\"\n",
                    shown(job)
                ));
            }
            Err(Failed::Other(why)) => {
                all_well = false;
                say::stderr(&format!(
                    "denied: cannot delete job {}: {why}\n",
                    shown(job)
                ));
            }
        }
    }
    all_well
}

/// Why a job was not ended.
enum Failed {
    NotAllowed,
    Other(String),
}

fn cancel(client: &mut Client, target: JobTarget) -> Result<(), Failed> {
    let selection = JobSelection {
        targets: vec![target],
        cron: true,
        ..JobSelection::default()
    };
    let check = |refusal: &Refusal| match refusal.code {
        // It has ended by itself.
        RefusalCode::AlreadyDone => Ok(()),
        RefusalCode::AccessDenied => Err(Failed::NotAllowed),
        code => Err(Failed::Other(code.text().to_owned())),
    };
    match client.command(UserCommand::Cancel { selection }) {
        Ok(Reply::Done { refused, .. }) => {
            refused.iter().try_for_each(|(_, refusal)| check(refusal))
        }
        Ok(_) => Ok(()),
        Err(ConnectError::Refused(refusal)) => check(&refusal),
        Err(error) => Err(Failed::Other(error.to_string())),
    }
}

/// The line about a deletion.
fn done(who: &str, job: &Job, tasks: Option<&IndexSet>) -> String {
    let number = selection::number(job);
    match (&job.array, tasks) {
        (ArrayRole::Pending { .. }, Some(tasks)) => {
            let all: Vec<String> = tasks.iter().map(|task| task.to_string()).collect();
            let word = if all.len() == 1 { "task" } else { "tasks" };
            format!(
                "{who} has deleted job-array {word} {} of job {number}",
                all.join(",")
            )
        }
        (ArrayRole::Task { .. }, _) => {
            format!(
                "{who} has registered the job-array task {} for deletion",
                shown(job)
            )
        }
        _ if job.state == JobState::Pending && !job.completing => {
            format!("{who} has deleted job {number}")
        }
        _ => format!("{who} has registered the job {number} for deletion"),
    }
}
