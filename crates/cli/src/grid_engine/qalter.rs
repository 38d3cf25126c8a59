//! qalter: changes jobs. What the controller cannot change is refused by name.

use super::arguments::{OptionArgument, Parsed};
use super::qstat::lines::is_pending;
use super::request::{Refused, Request, ResourceRequest, WorkDir};
use super::{fail, missing, output, qhold, qsub, run_command, selection, site, unreachable};
use crate::connect::Client;
use crate::options::{HelpForm, Opt, Spec, flag, opt};
use crate::say::{self, Say};
use crate::submit::line::{self, SubmitLine};
use crate::zone::{self, LocalZone};
use muster_conf::grid_engine::Mapping;
use muster_conf::grid_engine::resources::{Resources, split};
use muster_conf::options::values::{self, time};
use muster_conf::options::{ChosenOptions, OptionCommand};
use muster_model::command::{JobUpdate, UserCommand};
use muster_model::grid_engine as marks;
use muster_model::job::{Hold, Job, Reason};
use muster_model::spec::{
    Dependency, DependencyKind, DependencyTerm, JobSpec, MemoryAsk, ResourceAsk, StdioSpec,
};
use muster_model::time::TimeLimit;
use muster_trust::host::short_name;
use std::process::ExitCode;
use std::sync::Arc;

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

const NO_CONTEXT: &str = "jobs have no context; use -v of qsub for variables of the job";
const LATER: &str = "it cannot be changed after submission; delete the job and submit it anew";

static OPTIONS: &[Opt] = &[
    opt(
        "a",
        "date_time",
        "do not start before [[CC]YY]MMDDhhmm[.SS]",
    ),
    opt("ac", "context_list", "add variables to the job's context").warns(NO_CONTEXT),
    opt("ar", "reservation", "run in this reservation"),
    opt("A", "account_string", "text for accounting"),
    opt("binding", "strategy", "bind to cores")
        .warns("a job is always bound to the CPUs that it has"),
    opt("c", "selector", "when to checkpoint").refused("there are no checkpointing environments"),
    opt("ckpt", "name", "checkpointing environment")
        .refused("there are no checkpointing environments"),
    flag("cwd", "run in the directory where qalter is called"),
    opt(
        "dc",
        "context_list",
        "remove variables from the job's context",
    )
    .warns(NO_CONTEXT),
    opt("dl", "date_time", "deadline").refused("there are no deadline users"),
    opt("e", "path", "file or directory for standard error"),
    opt(
        "h",
        "u|o|s|n|U|O|S",
        "hold, or with capital letters release",
    ),
    opt("display", "display", "X display of the job").refused(LATER),
    flag("hard", "requests after this must be met"),
    opt("he", "y|n", "what exit status 100 does").refused(LATER),
    opt("hold_jid", "jobs", "wait until these jobs have ended"),
    opt("hold_jid_ad", "jobs", "tasks wait for tasks"),
    opt("i", "path", "file for standard input"),
    opt("j", "y|n", "standard error goes where standard output goes"),
    opt("jc", "class", "job class").refused("a job keeps the class that it was submitted with"),
    opt("js", "share", "share of the job").warns("shares are those of users and accounts"),
    opt(
        "l",
        "resources",
        "request resources in place of those before",
    )
    .partly("all but s_rt and qname; of jobs of other commands than qsub, h_rt and memory alone"),
    opt("m", "events", "send mail").partly("s, mail when a job is suspended, is not sent"),
    opt("M", "addresses", "who gets the mail").partly("the first address only"),
    opt("masterq", "queues", "queues for the first task")
        .partly("without hosts; the whole job is in one of these queues"),
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
    opt(
        "pe",
        "pe_name slot_range",
        "parallel environment and slots of a job that waits",
    ),
    opt("P", "project", "project"),
    opt("q", "queues", "queues to run in"),
    opt("R", "y|n", "reserve resources")
        .partly("all jobs that wait first in line have their resources reserved"),
    opt("r", "y|n", "whether the job may run again"),
    opt("S", "path", "shell").refused(LATER),
    opt("sc", "context_list", "set the job's context").warns(NO_CONTEXT),
    opt("shell", "y|n", "let a shell read the command").refused(LATER),
    flag("soft", "requests after this need not be met").partly("-l of features of nodes; not -q"),
    opt("t", "tasks", "tasks of the job"),
    opt("tc", "count", "at most so many tasks run at once"),
    opt("u", "users", "jobs of these users; * is all"),
    opt("v", "variables", "variables of the job").refused(LATER),
    flag("V", "all variables").refused(LATER),
    flag("verify", "print the job and change nothing").refused("use qstat -j JOB"),
    opt(
        "w",
        "e|w|n|p|v",
        "verify: v and p say whether queues can run the job",
    )
    .partly("after the other changes of the line are made; w gives no warning"),
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
    let asked: Vec<&OptionArgument> = parsed
        .options
        .iter()
        .filter(|given| !matches!(given.name, "h" | "t" | "u"))
        .collect();
    for given in &asked {
        request.take(given).map_err(|refused| match refused {
            Refused::Line(text, status) => fail(&text.replacen("qsub:", "qalter:", 1), status),
            Refused::Job(why) => missing(&why, 1),
        })?;
    }
    let hold = parsed
        .last("h")
        .map(|kinds| qhold::change(kinds, true))
        .transpose();
    let hold = hold.map_err(|why| fail(&why, qhold::WRONG_HOLD))?;
    if !request.soft_queues.is_empty() {
        let why = "qalter: -q after -soft is not supported: delete the job and submit it anew";
        return Err(fail(why, 1));
    }
    let is_change = |given: &&&OptionArgument| !matches!(given.name, "hard" | "soft" | "w");
    let asked: Vec<&OptionArgument> = asked.iter().filter(is_change).copied().collect();
    let is_verified = matches!(request.verify, Some('v' | 'p'));
    let level = request.verify.filter(|_| !is_verified);
    if asked.is_empty() && !is_verified && hold.is_none() && parsed.ignored.is_empty() {
        return Err(fail("qalter: nothing is to be changed", 1));
    }
    let mapping = site::mapping()?;
    request.choose_environment(&mapping);
    let mut client = Client::connect_patiently(line::PATIENCE).map_err(|e| unreachable(&e))?;
    if let Some(change) = hold {
        let kinds = parsed.last("h").unwrap_or_default();
        qhold::require_operator(&mut client, change, kinds)?;
    }
    let mut names: Vec<&str> = Vec::new();
    for given in &asked {
        // Both kinds of predecessors are one list.
        let name = match given.name {
            "hold_jid_ad" => "hold_jid",
            name => name,
        };
        if !names.contains(&name) {
            names.push(name);
        }
    }
    qhold::each(parsed, "qalter", &mut client, 1, |client, job, target| {
        if let Some(change) = hold {
            qhold::change_one(client, job, change.command(target.clone()), "hold")?;
        }
        // As the changes before have left it.
        let mut job = job.clone();
        for name in &names {
            // All jobs that wait first in line have their resources reserved.
            if *name == "R" {
                let number = selection::number(&job);
                say::stdout(&format!("modified reservation behaviour of job {number}\n"));
                continue;
            }
            let (mut update, what) = update(name, &request, &job, &mapping, client)?;
            if let Some(level) = level.filter(|_| asks_for_room(&update)) {
                let level = (marks::VERIFY.to_owned(), level.to_string());
                update.shown.push(level);
            }
            let command = UserCommand::UpdateJob {
                target: target.clone(),
                update: Box::new(update.clone()),
            };
            let shown = qhold::send(client, &job, command, what)?;
            say::stdout(&done(name, what, &shown, &request));
            follow(&mut job, update);
        }
        match is_verified {
            true => verify(client, &job),
            false => Ok(()),
        }
    })
}

/// Whether a change may make a job one that no node can run, which `-w` allows or refuses.
fn asks_for_room(update: &JobUpdate) -> bool {
    update.ask.is_some() || update.partitions.is_some()
}

/// `-w v`, `-w p`: says whether queues can run the job as it is now, and why not.
fn verify(client: &mut Client, job: &Job) -> Result<(), u8> {
    if !is_pending(job) || job.hold != Hold::None {
        say::stdout("verification: job is already running or is held\n");
        return Ok(());
    }
    let found = crate::why::ask(client, job.id);
    let found = found.map_err(|error| complain(format!("error: {error}")))?;
    // Jobs without a time limit may be in its way: when it starts is not known then.
    let waits_for_room = matches!(
        found.reason,
        Reason::None | Reason::Resources | Reason::Priority
    );
    if found.start.is_some() || waits_for_room {
        say::stdout("verification: found suitable queue(s)\n");
        return Ok(());
    }
    let number = selection::number(job);
    for why in &found.waits_for {
        say::stdout(&format!("Job {number} cannot run: {why}\n"));
    }
    Err(complain("verification: no suitable queues".to_owned()))
}

/// Lines about a change, in Grid Engine's words.
fn done(name: &str, what: &str, shown: &str, request: &Request) -> String {
    match name {
        "p" => {
            let user = line::user(&nix::unistd::getuid().to_string());
            let user = user.map(|user| user.name).unwrap_or_default();
            let host = short_name();
            let priority = request.priority;
            format!("{user}@{host} sets scheduling priority of {shown} to {priority}\n")
        }
        "pe" => format!("modified {what} of {shown}\nmodified slot range of {shown}\n"),
        _ => format!("modified {what} of {shown}\n"),
    }
}

/// Keeps of a change what further changes begin with.
fn follow(job: &mut Job, update: JobUpdate) {
    let spec = Arc::make_mut(&mut job.spec);
    if let Some(ask) = update.ask {
        spec.ask = ask;
    }
    if let Some(stdio) = update.stdio {
        spec.stdio = stdio;
    }
    for (key, value) in update.shown {
        spec.shown.retain(|(own, _)| *own != key);
        spec.shown.push((key, value));
    }
}

/// The change by an option, and its name.
fn update(
    name: &str,
    request: &Request,
    job: &Job,
    mapping: &Mapping,
    client: &mut Client,
) -> Result<(JobUpdate, &'static str), u8> {
    let mut update = JobUpdate::default();
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
            "start time"
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
            if found.nodes.is_some() && !marks::is_marked(&job.spec) {
                return Err(complain(
                    "hosts of -q cannot be changed of a job of another command than qsub; name queues alone".to_owned(),
                ));
            }
            if marks::is_marked(&job.spec) {
                let known = known_resources(job, mapping, client).map_err(complain)?;
                let built = built(&request.queues, &known, job, mapping, client)?;
                let mut ask = job.spec.ask.clone();
                (ask.nodelist, ask.exclude) = (built.ask.nodelist, built.ask.exclude);
                update.ask = Some(ask).filter(|ask| *ask != job.spec.ask);
            }
            update.partitions = Some(found.partitions);
            let asked = (marks::HARD_QUEUES.to_owned(), request.queues.join(","));
            update.shown.push(asked);
            "hard queue list"
        }
        "masterq" => {
            let ctx = site::cluster(client).map_err(|e| complain(e.to_string()))?;
            let found = site::resolve(mapping, &ctx.partitions, &request.master_queues);
            let found = found.map_err(complain)?;
            if found.nodes.is_some() {
                let why = "hosts of -masterq cannot be changed; name queues alone";
                return Err(complain(why.to_owned()));
            }
            let own = &job.spec.partitions;
            let is_asked = marks::value(&job.spec, marks::HARD_QUEUES).is_some();
            let mut partitions = found.partitions;
            partitions.retain(|name| !is_asked || own.contains(name));
            if partitions.is_empty() {
                let why = "no queue of -masterq is among those of -q";
                return Err(complain(why.to_owned()));
            }
            update.partitions = Some(partitions);
            let asked = request.master_queues.join(",");
            update.shown.push((marks::MASTER_QUEUES.to_owned(), asked));
            "master hard queue list"
        }
        "hold_jid" => {
            update.dependency = Some(dependency(request, job, client)?);
            if !request.hold_jid.is_empty() {
                let asked = (marks::HOLD_JID.to_owned(), request.hold_jid.join(","));
                update.shown.push(asked);
            }
            match request.hold_jid.is_empty() {
                true => "job id hold array list",
                false => "job id hold list",
            }
        }
        "m" => {
            let events = super::submission::mail(request).unwrap_or_else(|| "NONE".to_owned());
            update.shown.push(("mail-type".to_owned(), events));
            "mail options"
        }
        "M" => {
            let to = request.mail_to.clone().unwrap_or_default();
            update.shown.push(("mail-user".to_owned(), to));
            "mail list"
        }
        "o" | "e" | "i" | "j" => {
            update.stdio = Some(stdio(name, request, job));
            if name == "j" {
                let merges = if request.merge { "y" } else { "n" };
                let mark = (marks::MERGE.to_owned(), merges.to_owned());
                update.shown.push(mark);
            }
            match name {
                "o" => "stdout path list",
                "e" => "stderr path list",
                "i" => "stdin path list",
                _ => "output merge behaviour",
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
        "pe" => {
            if !is_pending(job) {
                let number = selection::number(job);
                say::stderr(&format!("job {number} can't modify running jobs\n"));
                return Err(1);
            }
            slots(&mut update, request, job, mapping).map_err(complain)?;
            "parallel environment"
        }
        "l" => {
            if !request.soft.is_empty() {
                soft(&mut update, request, job, mapping, client)?;
            }
            if request.hard.is_empty() {
                return Ok((update, "soft resource list"));
            }
            resources(&mut update, request, job, mapping, client)?;
            "hard resource list"
        }
        other => return Err(complain(format!("option \"-{other}\" cannot be changed"))),
    };
    Ok((update, what))
}

fn stdio(name: &str, request: &Request, job: &Job) -> StdioSpec {
    let mut stdio = job.spec.stdio.clone();
    // The names of its files depend on whether the job is an array.
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
        "i" => stdio.stdin = Some(output::path(&like, request.stdin.as_deref(), 'i')),
        _ if request.merge => stdio.stderr.clone_from(&stdio.stdout),
        _ => stdio.stderr = Some(output::path(&like, None, 'e')),
    }
    stdio
}

/// `-pe`: another layout, with all else that the job asks for.
fn slots(
    update: &mut JobUpdate,
    request: &Request,
    job: &Job,
    mapping: &Mapping,
) -> Result<(), String> {
    let Some((pe, slots)) = &request.pe else {
        return Ok(());
    };
    let mut ask = job.spec.ask.clone();
    if ask.cpus_per_task.is_some() && !marks::is_marked(&job.spec) {
        return Err(format!(
            "job {} asks for CPUs of each task; use scontrol update job {} NumTasks=N",
            job.id, job.id
        ));
    }
    let Some(rule) = mapping.rule(pe) else {
        return Err(format!(
            "denied: parallel environment \"{pe}\" does not exist"
        ));
    };
    let Some(least) = rule.lay_out(&mut ask, &slots.all) else {
        let (each, asked) = (rule.text(), &slots.text);
        return Err(format!(
            "job rejected: parallel environment \"{pe}\" has {each} slots on each host, so {asked} slots are not a whole number of \
             hosts"
        ));
    };
    update.ask = Some(ask);
    let mut mark = |key: &str, value: String| update.shown.push((key.to_owned(), value));
    mark(marks::PE, format!("{pe} {least}"));
    // One number takes the place of a range, too.
    if slots.all.len() > 1 || marks::value(&job.spec, marks::PE_RANGE).is_some() {
        mark(marks::PE_RANGE, slots.text.clone());
    }
    Ok(())
}

/// The dependency of the job: of kinds of predecessors that are not named, those that it waits for already.
fn dependency(request: &Request, job: &Job, client: &mut Client) -> Result<Dependency, u8> {
    let kinds = [
        (DependencyKind::AfterAny, "afterany", &request.hold_jid),
        (DependencyKind::AfterCorr, "aftercorr", &request.hold_jid_ad),
    ];
    let mut terms = Vec::new();
    for (kind, word, list) in kinds {
        if list.is_empty() {
            let own = |term: &&DependencyTerm| matches!(term, DependencyTerm::Job { kind: own, .. } if *own == kind);
            terms.extend(job.waiting_on.iter().filter(own).cloned());
            continue;
        }
        let ids = super::submission::predecessors(client, list).map_err(|_| 1)?;
        if ids.is_empty() {
            continue;
        }
        let ids: Vec<String> = ids.iter().map(ToString::to_string).collect();
        let text = format!("{word}:{}", ids.join(":"));
        let named = values::dependency(&text).map_err(|refusal| complain(refusal.detail))?;
        terms.extend(named.terms);
    }
    Ok(Dependency {
        terms,
        ..Dependency::default()
    })
}

/// Prints an error.
fn complain(why: String) -> u8 {
    say::stdout(&format!("{why}\n"));
    1
}

/// Requests as they come to amounts.
fn amounts_of(
    requests: &[ResourceRequest],
    mapping: &Mapping,
    client: &Client,
) -> Result<Resources, String> {
    let mut all = Resources::default();
    for (name, value) in requests {
        let request = (name.as_str(), value.as_deref());
        all.add(request, mapping, &client.endpoint.gres_types)?;
    }
    Ok(all)
}

/// The hard requests that a job of qsub has.
fn known_resources(job: &Job, mapping: &Mapping, client: &Client) -> Result<Resources, String> {
    let known = marks::value(&job.spec, marks::HARD).unwrap_or_default();
    let known = match known {
        "" => Vec::new(),
        known => split(known)?,
    };
    amounts_of(&known, mapping, client)
}

/// A specification with these queues and requests, as qsub makes it.
fn built(
    queues: &[String],
    resources: &Resources,
    job: &Job,
    mapping: &Mapping,
    client: &mut Client,
) -> Result<JobSpec, u8> {
    let mut chosen = ChosenOptions::new(OptionCommand::Sbatch);
    let tasks = job.spec.ask.ntasks.unwrap_or(1);
    chosen.set("ntasks", Some(tasks.to_string()));
    super::submission::amounts(resources, &mut chosen);
    let request = Request {
        queues: queues.to_vec(),
        ..Request::default()
    };
    super::places::places(&request, resources, mapping, client, &mut chosen).map_err(|_| 1)?;
    let mut line = SubmitLine {
        chosen,
        words: Vec::new(),
        say: Say::new("qalter"),
    };
    let built = line::build(&mut line, "qalter").map_err(|_| 1)?;
    Ok(built.spec)
}

/// `-soft -l`: the list takes the place of the one before.
fn soft(
    update: &mut JobUpdate,
    request: &Request,
    job: &Job,
    mapping: &Mapping,
    client: &Client,
) -> Result<(), u8> {
    let mut chosen = ChosenOptions::new(OptionCommand::Sbatch);
    let known = &client.endpoint.gres_types;
    super::submission::soft("qalter", request, mapping, known, &mut chosen).map_err(complain)?;
    update.ask = Some(ResourceAsk {
        prefer: chosen.value("prefer").map(str::to_owned),
        ..job.spec.ask.clone()
    });
    let list = super::submission::joined(&request.soft);
    update.shown.push((marks::SOFT.to_owned(), list));
    Ok(())
}

/// `-l`: the list takes the place of the one before.
fn resources(
    update: &mut JobUpdate,
    request: &Request,
    job: &Job,
    mapping: &Mapping,
    client: &mut Client,
) -> Result<(), u8> {
    let all = amounts_of(&request.hard, mapping, client).map_err(complain)?;
    if let Some(limit_s) = all.limit_s {
        let minutes = u32::try_from(limit_s.div_ceil(60).max(1)).unwrap_or(u32::MAX);
        update.time_limit = Some(TimeLimit::Minutes(minutes));
    }
    match marks::is_marked(&job.spec) {
        true => requests_of_qsub(update, &all, job, mapping, client)?,
        false => requests_of_others(update, &all, job).map_err(complain)?,
    }
    let list = super::submission::joined(&request.hard);
    update.shown.push((marks::HARD.to_owned(), list));
    Ok(())
}

/// All requests of a job of qsub are known, and each can be replaced.
fn requests_of_qsub(
    update: &mut JobUpdate,
    all: &Resources,
    job: &Job,
    mapping: &Mapping,
    client: &mut Client,
) -> Result<(), u8> {
    let known = known_resources(job, mapping, client).map_err(complain)?;
    if (all.warn_after_s, &all.queue) != (known.warn_after_s, &known.queue) {
        let why = "s_rt and qname of -l cannot be changed after submission; delete the job and submit it anew";
        return Err(complain(why.to_owned()));
    }
    let without_limit = |of: &Resources| Resources {
        limit_s: None,
        ..of.clone()
    };
    if without_limit(all) == without_limit(&known) {
        return Ok(());
    }
    let queues = marks::value(&job.spec, marks::HARD_QUEUES).unwrap_or_default();
    let queues = queues.split(',').filter(|queue| !queue.is_empty());
    let queues: Vec<String> = queues.map(str::to_owned).collect();
    let built = built(&queues, all, job, mapping, client)?;
    update.ask = Some(ResourceAsk {
        memory: built.ask.memory,
        gres: built.ask.gres,
        devices: built.ask.devices,
        constraint: built.ask.constraint,
        sharing: built.ask.sharing,
        min_cpus_per_node: built.ask.min_cpus_per_node,
        nodelist: built.ask.nodelist,
        exclude: built.ask.exclude,
        // The controller's conversion of the memory before.
        cpus_per_task: None,
        ..update.ask.take().unwrap_or_else(|| job.spec.ask.clone())
    });
    if built.licenses != job.spec.licenses {
        update.licenses = Some(built.licenses.unwrap_or_default());
    }
    Ok(())
}

/// For other jobs it is unknown which of their requests `-l` would replace.
fn requests_of_others(update: &mut JobUpdate, all: &Resources, job: &Job) -> Result<(), String> {
    let known = Resources {
        limit_s: all.limit_s,
        slot_bytes: all.slot_bytes,
        ..Resources::default()
    };
    if *all != known {
        return Err(
            "-l changes h_rt and memory only of a job of another command than qsub; use scontrol update".to_owned(),
        );
    }
    if all.slot_bytes > 0 {
        let mut ask = update.ask.take().unwrap_or_else(|| job.spec.ask.clone());
        ask.memory = MemoryAsk::PerCpu(all.slot_bytes.div_ceil(1 << 20));
        update.ask = Some(ask);
    }
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
