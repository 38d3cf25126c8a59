//! qalter: changes jobs. What the controller cannot change is refused by name.

use super::arguments::{Given, Parsed};
use super::request::{Request, WorkDir};
use super::{fail, output, qhold, qsub, run_command, site, unreachable};
use crate::connect::Client;
use crate::options::{HelpForm, Opt, Spec, flag, opt};
use crate::say;
use crate::submit::line;
use crate::zone::{self, LocalZone};
use muster_conf::grid_engine::Mapping;
use muster_conf::grid_engine::resources::Resources;
use muster_conf::options::values::{self, time};
use muster_model::command::{JobUpdate, UserCommand};
use muster_model::grid_engine as marks;
use muster_model::job::Job;
use muster_model::spec::{MemoryAsk, StdioSpec};
use muster_model::time::TimeLimit;
use std::process::ExitCode;

/// qalter.
pub(crate) static SPEC: Spec = Spec {
    name: "qalter",
    about: "Changes jobs, with the options of qsub.",
    operands: "JOB[,...]",
    form: HelpForm::GridEngine,
    options: OPTIONS,
    variables: &[],
    notes: "",
};

const LATER: &str = "it cannot be changed after submission; delete the job and submit it anew";

static OPTIONS: &[Opt] = &[
    opt(
        "a",
        "date_time",
        "do not start before [[CC]YY]MMDDhhmm[.SS]",
    ),
    opt("ac", "context_list", "add variables to the job's context").refused("jobs have no context"),
    opt("ar", "reservation", "run in this reservation"),
    opt("A", "account_string", "text for accounting"),
    opt("binding", "strategy", "bind to cores")
        .refused("a job is always bound to the CPUs that it has"),
    opt("c", "selector", "when to checkpoint").refused("there are no checkpointing environments"),
    opt("ckpt", "name", "checkpointing environment")
        .refused("there are no checkpointing environments"),
    flag("cwd", "run in the directory where qalter is called"),
    opt(
        "dc",
        "context_list",
        "remove variables from the job's context",
    )
    .refused("jobs have no context"),
    opt("dl", "date_time", "deadline").refused("there are no deadline users"),
    opt("e", "path", "file or directory for standard error"),
    opt(
        "h",
        "u|o|s|n|U|O|S",
        "hold, or with capital letters release",
    ),
    opt("display", "display", "X display of the job").refused(LATER),
    flag("hard", "requests after this must be met").stored("all requests must be"),
    opt("he", "y|n", "what exit status 100 does").refused(LATER),
    opt("hold_jid", "jobs", "wait until these jobs have ended"),
    opt("hold_jid_ad", "jobs", "tasks wait for tasks").refused(LATER),
    opt("i", "path", "file for standard input").refused(LATER),
    opt("j", "y|n", "standard error goes where standard output goes"),
    opt("jc", "class", "job class").refused("a job keeps the class that it was submitted with"),
    opt("js", "share", "share of the job").refused("shares are those of users and accounts"),
    opt(
        "l",
        "resources",
        "request resources in place of those before",
    )
    .partly("h_rt and memory; what else a job asks for stays"),
    opt("m", "events", "send mail").refused(LATER),
    opt("M", "addresses", "who gets the mail").refused(LATER),
    opt("masterq", "queues", "queues for the first task").refused("a job runs in one partition"),
    opt("masterl", "resources", "requests of the first task").refused(LATER),
    opt("mbind", "policy", "how memory is bound").refused(LATER),
    opt(
        "mods",
        "attribute key value",
        "change an element of a list of the job class",
    )
    .refused(LATER),
    opt(
        "adds",
        "attribute key value",
        "add to a list of the job class",
    )
    .refused(LATER),
    opt("par", "rule", "allocation rule").refused(LATER),
    opt("rdi", "y|n", "have the scheduler say why the job waits").refused("use muster why JOB"),
    opt(
        "rou",
        "variables",
        "usage that is reported while the job runs",
    )
    .refused("use sstat"),
    opt(
        "tcon",
        "y|n",
        "all tasks of the array start together or none",
    )
    .refused(LATER),
    opt("umask", "mask", "file mode creation mask").refused(LATER),
    opt("N", "name", "name of the job"),
    flag("notify", "send a signal before the end").refused(LATER),
    opt("o", "path", "file or directory for standard output"),
    opt("ot", "tickets", "override tickets").refused("there are no tickets; use -p"),
    opt("p", "priority", "from -1023 to 1024"),
    opt("pe", "pe_name slot_range", "parallel environment and slots").refused(LATER),
    opt("P", "project", "project"),
    opt("q", "queues", "queues to run in"),
    opt("R", "y|n", "reserve resources")
        .stored("all jobs that wait first in line have their resources reserved"),
    opt("r", "y|n", "whether the job may run again"),
    opt("S", "path", "shell").refused(LATER),
    opt("sc", "context_list", "set the job's context").refused("jobs have no context"),
    opt("shell", "y|n", "let a shell read the command").refused(LATER),
    flag("soft", "requests after this need not be met").refused(LATER),
    opt("t", "tasks", "tasks of the job"),
    opt("tc", "count", "at most so many tasks run at once"),
    opt("u", "users", "jobs of these users; * is all"),
    opt("v", "variables", "variables of the job").refused(LATER),
    flag("V", "all variables").refused(LATER),
    flag("verify", "print the job and change nothing").refused("use qstat -j JOB"),
    opt("w", "e|w|n|p|v", "verify").refused("use muster why JOB"),
    opt("wd", "directory", "run in this directory"),
    opt("@", "file", "read options from a file").refused("write them on the command line"),
    flag("help", "print this help"),
];

/// Runs qalter.
pub(crate) fn main(args: &[String]) -> ExitCode {
    run_command(&SPEC, args, true, run)
}

fn run(parsed: &Parsed) -> Result<ExitCode, ExitCode> {
    let mut request = Request::default();
    let asked: Vec<&Given> = parsed
        .options
        .iter()
        .filter(|given| !matches!(given.name, "h" | "t" | "u"))
        .collect();
    for given in &asked {
        request
            .take(given)
            .map_err(|refused| qsub::complain(&refused))?;
    }
    let hold = parsed
        .last("h")
        .map(|kinds| qhold::change(kinds, true))
        .transpose();
    let hold = hold.map_err(|why| fail(&format!("qalter: {why}"), 1))?;
    if asked.is_empty() && hold.is_none() {
        return Err(fail("qalter: nothing is to be changed", 1));
    }
    let mapping = site::mapping()?;
    let mut client = Client::connect_patiently(line::PATIENCE).map_err(|e| unreachable(&e))?;
    let mut names: Vec<&str> = asked.iter().map(|given| given.name).collect();
    names.dedup();
    qhold::each(parsed, "qalter", &mut client, 1, |client, job, target| {
        if let Some(change) = hold {
            qhold::change_one(client, job, change.command(target.clone()), "hold")?;
        }
        for name in &names {
            let (update, what) = update(name, &request, job, &mapping, client)?;
            let target = target.clone();
            let command = UserCommand::UpdateJob {
                target,
                update: Box::new(update),
            };
            qhold::change_one(client, job, command, what)?;
        }
        Ok(())
    })
}

/// What an option changes, and what it is called.
fn update(
    name: &str,
    request: &Request,
    job: &Job,
    mapping: &Mapping,
    client: &mut Client,
) -> Result<(JobUpdate, &'static str), u8> {
    let mut update = JobUpdate::default();
    let complain = |why: String| {
        say::stderr(&format!("qalter: {why}\n"));
        1
    };
    let what = match name {
        "N" => {
            update.name.clone_from(&request.name);
            "job name"
        }
        "A" => {
            update.comment.clone_from(&request.account);
            "account"
        }
        "P" => {
            let project = request.project.clone().unwrap_or_default();
            let mapped = mapping.projects.iter().find(|(own, _)| *own == project);
            update.account = Some(mapped.map_or(project, |(_, account)| account.clone()));
            "project"
        }
        "p" => {
            update.nice = Some(-request.priority);
            "priority"
        }
        "ar" => {
            update.reservation.clone_from(&request.reservation);
            "advance reservation"
        }
        "a" => {
            let text =
                super::submission::in_this_year(request.begin.as_deref().unwrap_or_default());
            let at = time::parse(&text, zone::now(), &LocalZone::default());
            update.begin = Some(at.ok_or_else(|| complain(format!("{text} is not a valid time")))?);
            "execution time"
        }
        "r" => {
            update.requeue = request.rerun;
            "restart behaviour"
        }
        "tc" => {
            update.array_throttle = request.task_limit;
            "task concurrency"
        }
        "q" => {
            let ctx = site::cluster(client).map_err(|e| complain(e.to_string()))?;
            let found =
                site::resolve(mapping, &ctx.partitions, &request.queues).map_err(complain)?;
            if found.nodes.is_some() {
                return Err(complain(
                    "hosts of -q cannot be changed; name queues alone".to_owned(),
                ));
            }
            update.partitions = Some(found.partitions);
            let asked = (marks::HARD_QUEUES.to_owned(), request.queues.join(","));
            update.shown.push(asked);
            "hard queue list"
        }
        "hold_jid" => {
            let ids = super::submission::predecessors(client, &request.hold_jid).map_err(|_| 1)?;
            let ids: Vec<String> = ids.iter().map(ToString::to_string).collect();
            let text = format!("afterany:{}", ids.join(":"));
            update.dependency = Some(match ids.is_empty() {
                true => muster_model::spec::Dependency::default(),
                false => values::dependency(&text).map_err(|refusal| complain(refusal.detail))?,
            });
            "job id predecessor list"
        }
        "o" | "e" | "j" => {
            update.stdio = Some(stdio(name, request, job));
            match name {
                "o" => "stdout path list",
                "e" => "stderr path list",
                _ => "merge stdout and stderr",
            }
        }
        "cwd" | "wd" => {
            let dir = match &request.work_dir {
                WorkDir::Home => String::new(),
                _ => qsub::work_dir(request).to_string_lossy().into_owned(),
            };
            update.work_dir = Some(dir);
            "working directory"
        }
        "l" => {
            resources(&mut update, request, job, mapping, client).map_err(complain)?;
            "hard resource list"
        }
        other => return Err(complain(format!("option \"-{other}\" cannot be changed"))),
    };
    Ok((update, what))
}

fn stdio(name: &str, request: &Request, job: &Job) -> StdioSpec {
    let mut stdio = job.spec.stdio.clone();
    // Whether the job is an array decides what is in the names of its files.
    let like = Request {
        tasks: job.spec.array.as_ref().map(|_| super::request::Tasks {
            first: 1,
            last: 1,
            step: 1,
        }),
        ..request.clone()
    };
    match name {
        "o" => stdio.stdout = Some(output::path(&like, request.stdout.as_deref(), 'o')),
        "e" => stdio.stderr = Some(output::path(&like, request.stderr.as_deref(), 'e')),
        _ if request.merge => stdio.stderr.clone_from(&stdio.stdout),
        _ => stdio.stderr = Some(output::path(&like, None, 'e')),
    }
    stdio
}

fn resources(
    update: &mut JobUpdate,
    request: &Request,
    job: &Job,
    mapping: &Mapping,
    client: &Client,
) -> Result<(), String> {
    let mut all = Resources::default();
    for (name, value) in &request.hard {
        all.add(
            (name, value.as_deref()),
            mapping,
            &client.endpoint.gres_types,
        )?;
    }
    let known = Resources {
        limit_s: all.limit_s,
        slot_bytes: all.slot_bytes,
        ..Resources::default()
    };
    if all != known {
        return Err(
            "-l changes h_rt and memory only; delete the job and submit it anew".to_owned(),
        );
    }
    if let Some(limit_s) = all.limit_s {
        let minutes = u32::try_from(limit_s.div_ceil(60).max(1)).map_err(|e| e.to_string())?;
        update.time_limit = Some(TimeLimit::Minutes(minutes));
    }
    if all.slot_bytes > 0 {
        let mut ask = job.spec.ask.clone();
        ask.memory = MemoryAsk::PerCpu(all.slot_bytes.div_ceil(1 << 20));
        update.ask = Some(ask);
    }
    let list = super::submission::joined(&request.hard);
    update.shown.push((marks::HARD.to_owned(), list));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_option_of_qsub_is_known_or_refused_by_name() {
        for option in super::super::submit_options::OPTIONS {
            let only_there = [
                "b", "C", "clear", "clearp", "clears", "display", "hard", "jsv", "now", "sc",
                "shell", "soft", "sync", "terse", "verify", "xd", "xdv", "@", "holdjid",
            ];
            let known = OPTIONS.iter().any(|own| own.long == option.long);
            assert!(
                known || only_there.contains(&option.long),
                "-{}",
                option.long
            );
        }
    }
}
