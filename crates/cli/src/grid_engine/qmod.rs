//! qmod: suspends jobs and lets them go on, requeues them, clears their errors; takes queues out of service and back.

use super::arguments::Parsed;
use super::qstat::queues::{self, Instance};
use super::{fail, run_command, selection, site, unreachable};
use crate::connect::{Client, ConnectError};
use crate::options::{HelpForm, Opt, Spec, flag, opt};
use crate::say;
use crate::submit::line;
use muster_model::command::{NodeUpdate, Reply, UserCommand};
use muster_model::job::Job;
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

const NO_QUEUE: &str =
    "a queue has no such state; use -sj and -usj for its jobs, -d and -e for the queue";

static OPTIONS: &[Opt] = &[
    flag("f", "force").stored("what can be done is done"),
    opt("cj", "jobs", "clear the error state: the jobs wait again"),
    opt("rj", "jobs", "requeue jobs that run"),
    opt("sj", "jobs", "suspend jobs"),
    opt("usj", "jobs", "let suspended jobs go on"),
    opt("d", "queues", "take out of service: what runs goes on"),
    opt("e", "queues", "take back into service"),
    opt("cq", "queues", "clear the error state of queues").refused("use -e QUEUE@HOST"),
    opt("rq", "queues", "requeue the jobs of queues").refused("use -rj JOBS"),
    opt("sq", "queues", "suspend queues").refused(NO_QUEUE),
    opt("usq", "queues", "let suspended queues go on").refused(NO_QUEUE),
    opt("c", "jobs_or_queues", "clear the error state").refused("use -cj JOBS"),
    opt("r", "jobs_or_queues", "requeue jobs").refused("use -rj JOBS"),
    opt("s", "jobs_or_queues", "suspend").refused("use -sj JOBS"),
    opt("us", "jobs_or_queues", "let go on").refused("use -usj JOBS"),
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
            well &= match given.name {
                "d" | "e" => queue(&mut client, list, given.name == "d")?,
                action => jobs(&mut client, list, action)?,
            };
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
            fail(&format!("invalid queue or job \"{}\"", one.text), 1);
            well = false;
        }
        for job in found {
            if let Some(tasks) = one.part(job) {
                let target = selection::target(job, tasks);
                well &= job_change(client, job, action, target);
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
    report(client.command(command), &done, &format!("job {number}"))
}

fn report(answer: Result<Reply, ConnectError>, done: &str, what: &str) -> bool {
    let why = match answer {
        Ok(Reply::Done { refused, .. }) => refused.first().map(|(_, refusal)| refusal.to_string()),
        Ok(_) => None,
        Err(error) => Some(error.to_string()),
    };
    match why {
        None => say::stdout(&format!("{done}\n")),
        Some(why) => {
            say::stderr(&format!("denied: {what}: {why}\n"));
            return false;
        }
    }
    true
}

fn queue(client: &mut Client, list: &str, disable: bool) -> Result<bool, ExitCode> {
    let mapping = site::mapping()?;
    let ctx = site::cluster(client).map_err(|e| unreachable(&e))?;
    let known = queues::of_cluster(&ctx, &mapping, &[]);
    let mut well = true;
    for word in list.split(',').filter(|word| !word.is_empty()) {
        let chosen = queues::chosen(&known, word);
        let instances: Vec<&Instance> = known
            .iter()
            .filter(|own| chosen.contains(&own.name()))
            .collect();
        if instances.is_empty() {
            fail(&format!("invalid queue \"{word}\""), 1);
            well = false;
            continue;
        }
        match word.contains('@') {
            true => well &= instances.iter().all(|own| node(client, own, disable)),
            false => well &= partition(client, &instances, disable),
        }
    }
    Ok(well)
}

fn changed(own: &Instance, disable: bool) -> String {
    let who = line::user(&nix::unistd::getuid().to_string())
        .map(|user| user.name)
        .unwrap_or_default();
    let state = if disable { "disabled" } else { "enabled" };
    format!(
        "{who}@{} changed state of \"{}\" ({state})",
        short_name(),
        own.name()
    )
}

fn node(client: &mut Client, own: &Instance, disable: bool) -> bool {
    let update = NodeUpdate {
        state: Some(if disable { "DRAIN" } else { "RESUME" }.to_owned()),
        reason: disable.then(|| "qmod -d".to_owned()),
        ..NodeUpdate::default()
    };
    let answer = client.command(UserCommand::UpdateNodes {
        nodes: own.host.clone(),
        update,
    });
    report(
        answer,
        &changed(own, disable),
        &format!("queue \"{}\"", own.name()),
    )
}

fn partition(client: &mut Client, instances: &[&Instance], disable: bool) -> bool {
    let mut names: Vec<&str> = instances.iter().map(|own| own.partition.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    let mut well = true;
    for name in names {
        let state = if disable { "DOWN" } else { "UP" };
        let pairs = vec![("State".to_owned(), state.to_owned())];
        let answer = client.command(UserCommand::UpdatePartition {
            name: name.to_owned(),
            pairs,
            read: Vec::new(),
        });
        let of_partition = instances.iter().filter(|own| own.partition == name);
        let lines: Vec<String> = of_partition.map(|own| changed(own, disable)).collect();
        well &= report(answer, &lines.join("\n"), &format!("queue \"{name}\""));
    }
    well
}
