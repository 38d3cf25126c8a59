//! qmod: suspends jobs and lets them go on, requeues them, clears their errors; takes queues out of service and back.

use super::arguments::Parsed;
use super::qstat::lines;
use super::qstat::queues::{self, Instance};
use super::{fail, missing, run_command, selection, site, unreachable};
use crate::connect::{Client, ConnectError};
use crate::options::{HelpForm, Opt, Spec, flag, opt};
use crate::say;
use crate::submit::line;
use muster_model::command::{NodeUpdate, Reply, UserCommand};
use muster_model::job::{Job, JobState};
use muster_trust::host::short_name;
use std::process::ExitCode;

/// qmod.
pub(crate) static SPEC: Spec = Spec {
    name: "qmod",
    about: "Changes states of jobs and queues.",
    operands: "",
    form: HelpForm::GridEngine,
    options: OPTIONS,
    variables: &[],
    notes: "QUEUE is a partition: -d sets it DOWN. QUEUE@HOST is a node: -d drains it, for all queues.\n",
};

static OPTIONS: &[Opt] = &[
    flag("f", "force").stored("what can be done is done"),
    opt("cj", "jobs", "clear the error state: the jobs wait again"),
    opt("rj", "jobs", "requeue jobs that run"),
    opt("sj", "jobs", "suspend jobs"),
    opt("usj", "jobs", "let suspended jobs go on"),
    opt("d", "queues", "take out of service: what runs goes on"),
    opt("e", "queues", "take back into service"),
    opt(
        "cq",
        "queues",
        "clear the error state of queues (FAIL of nodes)",
    ),
    opt("rq", "queues", "requeue the jobs of queues"),
    opt(
        "sq",
        "queues",
        "suspend queues: as -d, and suspend their jobs",
    )
    .partly("the queue is shown as disabled (d)"),
    opt(
        "usq",
        "queues",
        "let suspended queues go on: their jobs, then as -e",
    )
    .partly("jobs that -sj suspended go on, too"),
    opt("c", "jobs_or_queues", "clear the error state"),
    opt("r", "jobs_or_queues", "requeue jobs"),
    opt("s", "jobs_or_queues", "suspend"),
    opt("us", "jobs_or_queues", "let go on"),
    flag("help", "print this help"),
];

/// Runs qmod.
pub(crate) fn main(args: &[String]) -> ExitCode {
    run_command(&SPEC, args, true, run)
}

fn run(parsed: &Parsed) -> Result<ExitCode, ExitCode> {
    if parsed.options.is_empty() {
        return Err(fail("qmod: nothing is to be changed", 1));
    }
    let mut client = Client::connect_patiently(line::PATIENCE).map_err(|e| unreachable(&e))?;
    let mut well = true;
    for given in &parsed.options {
        // Further words belong to the last option.
        let lists =
            std::iter::once(given.value()).chain(parsed.operands.iter().map(String::as_str));
        for list in lists {
            for word in list.split(',').filter(|word| !word.is_empty()) {
                well &= match given.name {
                    action @ ("d" | "e" | "cq" | "rq" | "sq" | "usq") => {
                        queue(&mut client, word, action)?
                    }
                    action @ ("c" | "r" | "s" | "us") => either(&mut client, word, action)?,
                    action => jobs(&mut client, word, action)?,
                };
            }
        }
    }
    Ok(if well {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn jobs(client: &mut Client, list: &str, action: &str) -> Result<bool, ExitCode> {
    let named = selection::named(list).map_err(|why| fail(&format!("qmod: {why}"), 1))?;
    let all = selection::active(client, Vec::new()).map_err(|e| unreachable(&e))?;
    let own = nix::unistd::getuid().as_raw();
    let mut well = true;
    for one in &named {
        let is_meant = |job: &&Job| one.is(job) && (one.job.is_some() || job.spec.owner.uid == own);
        let found: Vec<&Job> = all.iter().filter(is_meant).collect();
        if found.is_empty() {
            missing(&format!("invalid queue or job \"{}\"", one.text), 1);
            well = false;
        }
        for job in found {
            if let Some(tasks) = one.part(job) {
                let target = selection::target(job, tasks);
                well &= job_change(client, job, action, target, false);
            }
        }
    }
    Ok(well)
}

fn job_change(
    client: &mut Client,
    job: &Job,
    action: &str,
    target: muster_model::command::JobTarget,
    is_silent: bool,
) -> bool {
    let number = match selection::task(job) {
        Some(task) => format!("{}.{task}", selection::number(job)),
        None => selection::number(job).to_string(),
    };
    let who = line::user(&nix::unistd::getuid().to_string())
        .map(|user| user.name)
        .unwrap_or_default();
    let (command, done) = match action {
        "sj" => (
            UserCommand::Suspend { target },
            format!("{who} - suspended job {number}"),
        ),
        "usj" => (
            UserCommand::Resume { target },
            format!("{who} - unsuspended job {number}"),
        ),
        "rj" => {
            let command = UserCommand::Requeue {
                target,
                hold: false,
                special_exit: false,
                incomplete: false,
            };
            (
                command,
                format!("{who} has registered the job {number} for rescheduling"),
            )
        }
        _ => {
            let done = format!("{who}@{} cleared error state of job {number}", short_name());
            (UserCommand::Release { target }, done)
        }
    };
    if action == "cj" && !lines::is_in_error(job) {
        fail(&format!("Job {number} is not in error state"), 1);
        return false;
    }
    // The line about a queue takes the place of those of its jobs.
    let done = if is_silent {
        String::new()
    } else {
        done + "\n"
    };
    report(client.command(command), &done, &format!("job {number}"))
}

/// Prints the lines about a change, or why it was refused.
fn report(answer: Result<Reply, ConnectError>, done: &str, what: &str) -> bool {
    let why = match answer {
        Ok(Reply::Done { refused, .. }) => refused.first().map(|(_, refusal)| refusal.to_string()),
        Ok(_) => None,
        Err(error) => Some(error.to_string()),
    };
    match why {
        None => say::stdout(done),
        Some(why) => {
            say::stderr(&format!("denied: {what}: {why}\n"));
            return false;
        }
    }
    true
}

/// A job's number is a job; another word is a queue if there is one, else jobs of that name.
fn either(client: &mut Client, word: &str, action: &str) -> Result<bool, ExitCode> {
    let is_number = word.starts_with(|c: char| c.is_ascii_digit());
    if !is_number && !chosen(client, word)?.is_empty() {
        return queue(client, word, &format!("{action}q"));
    }
    jobs(client, word, &format!("{action}j"))
}

/// The queues on hosts that a word names.
fn chosen(client: &mut Client, word: &str) -> Result<Vec<Instance>, ExitCode> {
    let mapping = site::mapping()?;
    let ctx = site::cluster(client).map_err(|e| unreachable(&e))?;
    let mut known = queues::of_cluster(&ctx, &mapping, &[]);
    let names = queues::chosen(&known, word);
    known.retain(|own| names.contains(&own.name()));
    Ok(known)
}

fn queue(client: &mut Client, word: &str, action: &str) -> Result<bool, ExitCode> {
    let instances = chosen(client, word)?;
    if instances.is_empty() {
        missing(&format!("invalid queue \"{word}\""), 1);
        return Ok(false);
    }
    let service = |client: &mut Client, state: ServiceChange| match word.contains('@') {
        true => instances.iter().all(|own| node(client, own, state)),
        false => partition(client, &instances, state),
    };
    match action {
        "d" => Ok(service(client, ServiceChange::Disabled)),
        "e" => Ok(service(client, ServiceChange::Enabled)),
        // No further job starts while those that run are suspended.
        "sq" => {
            let is_closed = service(client, ServiceChange::Suspended);
            Ok(is_closed && of_queues(client, &instances, "sj")?)
        }
        "usq" => {
            let went_on = of_queues(client, &instances, "usj")?;
            Ok(service(client, ServiceChange::Unsuspended) && went_on)
        }
        "rq" => of_queues(client, &instances, "rj"),
        _ => Ok(instances.iter().all(|own| clear(client, own))),
    }
}

/// Does something to the jobs that have a part of these queues, those that it can be done to.
fn of_queues(client: &mut Client, instances: &[Instance], action: &str) -> Result<bool, ExitCode> {
    let all = selection::active(client, Vec::new()).map_err(|e| unreachable(&e))?;
    let mut well = true;
    for job in &all {
        let hosts = lines::hosts(job);
        let is_there = instances
            .iter()
            .any(|own| own.partition == job.partition && hosts.contains(&own.host));
        let is_meant = match action {
            "usj" => job.state == JobState::Suspended,
            _ => job.state == JobState::Running,
        };
        if is_there && is_meant && !job.completing {
            let target = selection::target(job, None);
            well &= job_change(client, job, action, target, action != "rj");
        }
    }
    Ok(well)
}

/// Takes a host out of its error state.
fn clear(client: &mut Client, own: &Instance) -> bool {
    if !own.states.contains('E') {
        say::stdout(&format!(
            "Queue instance \"{}\" is already in the specified state: no error\n",
            own.name()
        ));
        return true;
    }
    node(client, own, ServiceChange::NoError)
}

/// Whether a queue on a host is in the wanted state already; then there is a line that says so. A suspended queue cannot be
/// distinguished from a disabled one.
fn is_already(is_out: bool, own: &Instance, state: ServiceChange) -> bool {
    let word = match state {
        ServiceChange::Disabled if is_out => "disabled",
        ServiceChange::Enabled if !is_out => "enabled",
        _ => return false,
    };
    let name = own.name();
    say::stdout(&format!(
        "Queue instance \"{name}\" is already in the specified state: {word}\n"
    ));
    true
}

/// The state that a queue is brought into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ServiceChange {
    Disabled,
    Enabled,
    Suspended,
    Unsuspended,
    NoError,
}

impl ServiceChange {
    fn takes_jobs(self) -> bool {
        !matches!(self, ServiceChange::Disabled | ServiceChange::Suspended)
    }
}

fn changed(own: &Instance, state: ServiceChange) -> String {
    let who = line::user(&nix::unistd::getuid().to_string())
        .map(|user| user.name)
        .unwrap_or_default();
    let state = match state {
        ServiceChange::Disabled => "disabled",
        ServiceChange::Enabled => "enabled",
        ServiceChange::Suspended => "suspended",
        ServiceChange::Unsuspended => "unsuspended",
        ServiceChange::NoError => "no error",
    };
    format!(
        "{who}@{} changed state of \"{}\" ({state})",
        short_name(),
        own.name()
    )
}

fn node(client: &mut Client, own: &Instance, state: ServiceChange) -> bool {
    if is_already(own.is_drained, own, state) {
        return true;
    }
    let (word, reason) = match state.takes_jobs() {
        true => ("RESUME", None),
        false => ("DRAIN", Some("qmod -d".to_owned())),
    };
    let update = NodeUpdate {
        state: Some(word.to_owned()),
        reason,
        ..NodeUpdate::default()
    };
    let answer = client.command(UserCommand::UpdateNodes {
        nodes: own.host.clone(),
        update,
    });
    report(
        answer,
        &(changed(own, state) + "\n"),
        &format!("queue \"{}\"", own.name()),
    )
}

fn partition(client: &mut Client, instances: &[Instance], state: ServiceChange) -> bool {
    let mut names: Vec<&str> = instances.iter().map(|own| own.partition.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    let mut well = true;
    for name in names {
        let of_partition = instances.iter().filter(|own| own.partition == name);
        let of_partition: Vec<&Instance> = of_partition.collect();
        let is_in_state = |own: &&&Instance| is_already(own.is_closed, own, state);
        if of_partition.iter().filter(is_in_state).count() > 0 {
            continue;
        }
        let word = if state.takes_jobs() { "UP" } else { "DOWN" };
        let pairs = vec![("State".to_owned(), word.to_owned())];
        let answer = client.command(UserCommand::UpdatePartition {
            name: name.to_owned(),
            pairs,
            read: Vec::new(),
        });
        let lines: Vec<String> = of_partition
            .iter()
            .map(|own| changed(own, state) + "\n")
            .collect();
        well &= report(answer, &lines.concat(), &format!("queue \"{name}\""));
    }
    well
}
