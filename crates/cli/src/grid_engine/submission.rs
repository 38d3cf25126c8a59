//! From what qsub's options ask for to what the controller is asked for: the options of sbatch that mean the same, and what only
//! jobs of Grid Engine have.

use super::places::places;
use super::qstat::detail;
use super::qsub::{self, Program};
use super::request::{Refused, Request, ResourceRequest, WorkDir};
use super::{environment, output, selection, site, unreachable};
use crate::connect::Client;
use crate::listing::context::Ctx;
use crate::people;
use crate::say::{self, Say};
use crate::submit::capture;
use crate::submit::line::{self, SubmitLine};
use crate::zone::{self, LocalZone};
use muster_conf::grid_engine::resources::{self, Resources};
use muster_conf::grid_engine::{AllocationRule, ComplexTarget, CountedPer, Mapping};
use muster_conf::options::values::time::CivilZone as _;
use muster_conf::options::{ChosenOptions, OptionCommand};
use muster_model::command::UserCommand;
use muster_model::environment::Environment;
use muster_model::grid_engine as marks;
use muster_model::ids::{BlobId, JobId};
use muster_model::job_class::JobClass;
use muster_model::spec::{JobSpec, Owner};
use muster_proto::client::JobFilter;
use std::process::ExitCode;

/// Before refusals of what the options come to.
const PREFIX: &str = "Unable to run job";

/// The request.
pub(super) struct Submission {
    /// The job's name.
    pub(super) name: String,
    /// The request.
    pub(super) submit: UserCommand,
    /// The variables of the job.
    environment: Environment,
}

impl Submission {
    /// All of the job as `qstat -j` would have it.
    pub(super) fn text(&self, client: &Client) -> String {
        let ctx = Ctx::new(&client.endpoint.cluster);
        match &self.submit {
            UserCommand::Submit { spec, .. } => {
                let mut spec = JobSpec::clone(spec);
                spec.owner = own();
                detail::would_be(&ctx, spec, &self.environment)
            }
            _ => String::new(),
        }
    }
}

/// The caller, as the controller will find the job's owner.
fn own() -> Owner {
    let (uid, gid) = (nix::unistd::getuid().as_raw(), nix::unistd::getgid());
    let group = nix::unistd::Group::from_gid(gid).ok().flatten();
    Owner {
        uid,
        gid: gid.as_raw(),
        user: people::user_of_uid(uid).map_or_else(|| uid.to_string(), |user| user.name),
        group: group.map_or_else(|| gid.to_string(), |group| group.name),
    }
}

/// Makes the request.
///
/// # Errors
/// The exit status, after the error was printed.
pub(super) fn command(
    request: &Request,
    program: Program,
    mapping: &Mapping,
    client: &mut Client,
    args: &[String],
) -> Result<Submission, ExitCode> {
    if request.now && request.tasks.is_some_and(|tasks| tasks.first < tasks.last) {
        let text = "qsub: -now y of an array of several tasks is not supported: tasks of an array start one by one; use -pe";
        return Err(super::fail(text, 1));
    }
    request.check_array().map_err(|e| qsub::complain(&e))?;
    let name = request.name.clone().unwrap_or_else(|| program.name.clone());
    let resources = resources(request, mapping, client)?;
    let mut chosen =
        options(request, &name, &resources, mapping).map_err(|e| qsub::complain(&e))?;
    places(request, &resources, mapping, client, &mut chosen)?;
    dependencies(request, client, &mut chosen)?;
    let known = &client.endpoint.gres_types;
    soft("qsub", request, mapping, known, &mut chosen).map_err(|why| super::unable_to_run(&why))?;
    let mut line = SubmitLine {
        chosen,
        words: Vec::new(),
        say: Say::new("qsub"),
    };
    let mut spec = line::build(&mut line, PREFIX)?.spec;
    mark(&mut spec, request, mapping);
    let queue = queue_name(request, &spec.partitions, mapping, client)?;
    spec.shown.push((marks::QUEUE.to_owned(), queue));
    spec.name.clone_from(&name);
    spec.immediate_s = request.now.then_some(1);
    spec.class = class(request);
    spec.command.clone_from(&program.path);
    spec.submit_line = line::submit_line("qsub", args);
    if !request.binary {
        spec.argv.clone_from(&program.args);
    }
    let test_only = matches!(request.verify, Some('v' | 'p'));
    // Holds do not count where it is only asked whether hosts can run it.
    spec.hold &= !test_only;
    let environment = environment::of_job(request, &name);
    let mut context = capture::context(environment.clone(), None)
        .map_err(|why| super::fail(&format!("qsub: {why}"), 1))?;
    context.umask = request.umask.unwrap_or(context.umask);
    // The controller gives blobs their ids by content.
    let (first, second) = (BlobId([1; 32]), BlobId([2; 32]));
    (spec.script, spec.context) = (Some(first), Some(second));
    let script = output::script(request, &program);
    let blobs = [(first, script), (second, capture::encoded(&context))];
    let submit = UserCommand::Submit {
        spec: Box::new(spec),
        blobs: blobs.map(|(id, bytes)| (id, bytes.into())).into(),
        test_only,
    };
    Ok(Submission {
        name,
        submit,
        environment,
    })
}

/// The job class, with what of a job's usual parts was given.
fn class(request: &Request) -> Option<Box<JobClass>> {
    let given = [
        ("N", request.name.is_some()),
        ("cwd", request.work_dir != WorkDir::Home),
        ("o", request.stdout.is_some()),
        ("e", request.stderr.is_some()),
        ("j", request.merge),
    ];
    let given = given.iter().filter(|(_, is_given)| *is_given);
    Some(Box::new(JobClass {
        name: request.class.clone()?,
        given: given.map(|(name, _)| (*name).to_owned()).collect(),
        cleared: request.cleared.clone(),
        ..JobClass::default()
    }))
}

fn resources(request: &Request, mapping: &Mapping, client: &Client) -> Result<Resources, ExitCode> {
    let mut all = Resources::default();
    for (name, value) in &request.hard {
        all.add((name, value.as_deref()), mapping, &client.endpoint.gres_types)
            .map_err(|why| {
                if why.starts_with("unknown resource") {
                    say::stderr(&format!(
                        "qsub: sge.conf beside slurm.conf can say what {name} stands for: complex {name} gres:NAME\n"
                    ));
                }
                super::unable_to_run(&why)
            })?;
    }
    Ok(all)
}

/// The options of sbatch that need nothing from the controller.
pub(super) fn options(
    request: &Request,
    name: &str,
    resources: &Resources,
    mapping: &Mapping,
) -> Result<ChosenOptions, Refused> {
    let mut chosen = ChosenOptions::new(OptionCommand::Sbatch);
    let mut set = |long: &'static str, value: String| chosen.set(long, Some(value));
    set("job-name", name.to_owned());
    set(
        "chdir",
        qsub::work_dir(request).to_string_lossy().into_owned(),
    );
    set("open-mode", "append".to_owned());
    set(
        "output",
        output::path(request, request.stdout.as_deref(), 'o'),
    );
    if !request.merge {
        set(
            "error",
            output::path(request, request.stderr.as_deref(), 'e'),
        );
    }
    if let Some(path) = &request.stdin {
        set("input", output::path(request, Some(path), 'i'));
    }
    if let Some(tasks) = request.tasks {
        let limit = request.task_limit.filter(|limit| *limit > 0);
        let limit = limit.map(|limit| format!("%{limit}")).unwrap_or_default();
        set("array", tasks.text() + &limit);
    }
    if let Some(begin) = &request.begin {
        set("begin", in_this_year(begin));
    }
    if let Some(reservation) = &request.reservation {
        set("reservation", reservation.clone());
    }
    if let Some(account) = &request.account {
        set("comment", account.clone());
    }
    if let Some(project) = &request.project {
        let mapped = mapping.projects.iter().find(|(own, _)| own == project);
        set(
            "account",
            mapped.map_or(project, |(_, account)| account).clone(),
        );
    }
    if request.priority != 0 {
        set("nice", (-request.priority).to_string());
    }
    if let Some(events) = mail(request) {
        set("mail-type", events);
        if let Some(to) = &request.mail_to {
            set("mail-user", to.clone());
        }
    }
    match request.rerun {
        Some(true) => chosen.set("requeue", None),
        Some(false) => chosen.set("no-requeue", None),
        None => {}
    }
    if request.hold {
        chosen.set("hold", None);
    }
    if let Some(binding) = request.mem_bind {
        chosen.set("mem-bind", Some(binding.to_owned()));
    }
    slots(request, mapping, &mut chosen)?;
    limits(request, resources, &mut chosen);
    amounts(resources, &mut chosen);
    Ok(chosen)
}

pub(super) fn mail(request: &Request) -> Option<String> {
    let events = &request.mail_events;
    if events.is_empty() || events.contains('n') {
        return None;
    }
    let names = [('b', "BEGIN"), ('e', "END"), ('a', "FAIL")];
    let named = names
        .into_iter()
        .filter(|(letter, _)| events.contains(*letter));
    let all: Vec<&str> = named.map(|(_, name)| name).collect();
    if events.contains('s') {
        say::stderr("qsub: warning: -m s has no effect: no mail is sent when a job is suspended\n");
    }
    (!all.is_empty()).then(|| all.join(","))
}

/// A date without a year is one of this year.
pub(super) fn in_this_year(date: &str) -> String {
    match date.strip_prefix("0000") {
        Some(rest) => {
            let year = LocalZone::default().civil(zone::now().unix_s()).year;
            format!("{year:04}{rest}")
        }
        None => date.to_owned(),
    }
}

fn slots(request: &Request, mapping: &Mapping, chosen: &mut ChosenOptions) -> Result<(), Refused> {
    let Some((pe, slots)) = &request.pe else {
        if request.rule.is_some() {
            let why =
                "job rejected: -par is the rule of a parallel environment, and there is no -pe";
            return Err(Refused::Job(why.to_owned()));
        }
        chosen.set("ntasks", Some("1".to_owned()));
        return Ok(());
    };
    let rule = request.rule_of(pe, mapping).ok_or_else(|| {
        Refused::Job(format!(
            "job rejected: the requested parallel environment \"{pe}\" does not exist"
        ))
    })?;
    let Some((count, _)) = rule.tasks_of(&slots.all) else {
        let (each, asked) = (rule.text(), &slots.text);
        return Err(Refused::Job(format!(
            "job rejected: parallel environment \"{pe}\" has {each} slots on each host, so {asked} slots are not a whole \
             number of hosts"
        )));
    };
    chosen.set("ntasks", Some(count.to_string()));
    match rule {
        AllocationRule::FillUp => {}
        AllocationRule::PeSlots => chosen.set("nodes", Some("1".to_owned())),
        AllocationRule::RoundRobin => {
            chosen.set("distribution", Some("cyclic".to_owned()));
            chosen.set("spread-job", None);
        }
        AllocationRule::Fixed(each) => {
            chosen.set("nodes", Some((count / each).to_string()));
            chosen.set("ntasks-per-node", Some(each.to_string()));
        }
    }
    Ok(())
}

fn limits(request: &Request, resources: &Resources, chosen: &mut ChosenOptions) {
    let minutes = |seconds: u64| seconds.div_ceil(60).max(1);
    let limit = match (resources.limit_s, resources.warn_after_s) {
        (Some(limit_s), _) => Some(minutes(limit_s)),
        // A soft limit alone: the job has a minute more.
        (None, Some(warn_s)) => Some(minutes(warn_s) + 1),
        (None, None) => None,
    };
    if let Some(limit) = limit {
        chosen.set("time", Some(limit.to_string()));
    }
    let before = match (limit, resources.warn_after_s) {
        (Some(limit), Some(warn_s)) => Some(("USR1", (limit * 60).saturating_sub(warn_s))),
        (Some(_), None) if request.notify => Some(("USR2", 60)),
        _ => None,
    };
    if let Some((signal, seconds)) = before {
        chosen.set(
            "signal",
            Some(format!("B:{signal}@{}", seconds.min(65_535))),
        );
    }
    if request.notify && resources.warn_after_s.is_some() {
        say::stderr("qsub: warning: -notify has no effect beside -l s_rt, whose signal is sent\n");
    }
}

pub(super) fn amounts(resources: &Resources, chosen: &mut ChosenOptions) {
    if resources.slot_bytes > 0 {
        let mib = resources.slot_bytes.div_ceil(1 << 20);
        chosen.set("mem-per-cpu", Some(format!("{mib}M")));
    }
    if let Some(count) = resources.processors {
        chosen.set("mincpus", Some(count.to_string()));
    }
    if resources.exclusive {
        chosen.set("exclusive", None);
    }
    if !resources.features.is_empty() {
        chosen.set("constraint", Some(resources.features.join("&")));
    }
    let licenses = resources.licenses.iter().filter(|(_, count)| *count > 0);
    let licenses: Vec<String> = licenses
        .map(|(name, count)| format!("{name}:{count}"))
        .collect();
    if !licenses.is_empty() {
        chosen.set("licenses", Some(licenses.join(",")));
    }
    let (mut of_host, mut of_slot, mut of_job) = (Vec::new(), Vec::new(), Vec::new());
    for (name, count, per) in resources.gres.iter().filter(|(_, count, _)| *count > 0) {
        match (per, name.strip_prefix("gpu")) {
            (CountedPer::Slot, Some(kind)) => of_slot.push(gpus(kind, *count)),
            (CountedPer::Job, Some(kind)) => of_job.push(gpus(kind, *count)),
            _ => of_host.push(format!("{name}:{count}")),
        }
    }
    for (long, list) in [
        ("gres", of_host),
        ("gpus-per-task", of_slot),
        ("gpus", of_job),
    ] {
        if !list.is_empty() {
            chosen.set(long, Some(list.join(",")));
        }
    }
}

/// `2`, `a100:2`.
fn gpus(kind: &str, count: u64) -> String {
    match kind.strip_prefix(':') {
        Some(kind) => format!("{kind}:{count}"),
        None => count.to_string(),
    }
}

/// `-hold_jid`, `-hold_jid_ad`: jobs that are there; others, as in Grid Engine, hold nothing.
pub(super) fn dependencies(
    request: &Request,
    client: &mut Client,
    chosen: &mut ChosenOptions,
) -> Result<(), ExitCode> {
    let mut terms = Vec::new();
    for (kind, list) in [
        ("afterany", &request.hold_jid),
        ("aftercorr", &request.hold_jid_ad),
    ] {
        let found = predecessors(client, list)?;
        if !found.is_empty() {
            let ids: Vec<String> = found.iter().map(JobId::to_string).collect();
            terms.push(format!("{kind}:{}", ids.join(":")));
        }
    }
    if !terms.is_empty() {
        chosen.set("dependency", Some(terms.join(",")));
    }
    Ok(())
}

pub(super) fn predecessors(client: &mut Client, list: &[String]) -> Result<Vec<JobId>, ExitCode> {
    let mut named = Vec::new();
    for word in list {
        named
            .extend(selection::named(word).map_err(|why| super::fail(&format!("qsub: {why}"), 2))?);
    }
    let ids: Vec<JobId> = named.iter().filter_map(|one| one.job).collect();
    let mut jobs = Vec::new();
    if named.len() > ids.len() {
        let own = vec![nix::unistd::getuid().as_raw()];
        jobs.extend(selection::active(client, own).map_err(|e| unreachable(&e))?);
    }
    if !ids.is_empty() {
        let filter = JobFilter {
            ids,
            ..JobFilter::default()
        };
        jobs.extend(client.query_jobs(filter).map_err(|e| unreachable(&e))?);
    }
    let mut found: Vec<JobId> = Vec::new();
    for one in &named {
        let fitting = jobs
            .iter()
            .filter(|job| !job.state.is_ended() && one.is(job));
        for id in fitting.map(selection::number) {
            if !found.contains(&id) {
                found.push(id);
            }
        }
    }
    Ok(found)
}

/// Soft requests for features become `--prefer`. Those for consumables are refused, as Grid Engine does; others cause a warning.
///
/// # Errors
/// The text behind `Unable to run job:`.
pub(super) fn soft(
    command: &str,
    request: &Request,
    mapping: &Mapping,
    known: &[String],
    chosen: &mut ChosenOptions,
) -> Result<(), String> {
    let mut features: Vec<String> = Vec::new();
    for (name, value) in &request.soft {
        let of_name = mapping.complex(name);
        let is_counted = match of_name {
            Some(target) => !matches!(target, ComplexTarget::Feature(_)),
            None => name == "gpu" || known.contains(name),
        };
        if is_counted {
            return Err(format!(
                "denied: soft requests on consumables like \"{name}\" are not supported"
            ));
        }
        let mut one = Resources::default();
        match one.add((name, value.as_deref()), mapping, known) {
            Err(why) if of_name.is_some() || why.starts_with("unknown resource") => {
                return Err(why);
            }
            _ => features.append(&mut one.features),
        }
        if of_name.is_none() {
            let request = joined(&[(name.clone(), value.clone())]);
            say::stderr(&format!(
                "{command}: warning: soft request {request} has no effect\n"
            ));
        }
    }
    if !features.is_empty() {
        chosen.set("prefer", Some(features.join("&")));
    }
    Ok(())
}

/// A time as Grid Engine keeps it: `00:10:00` is 600. Other values are as they are.
pub(super) fn in_seconds(name: &str, value: &str) -> String {
    let is_time = ["h_rt", "s_rt", "h_cpu", "s_cpu"].contains(&name);
    let seconds = is_time.then(|| resources::time(name, Some(value)));
    match seconds {
        Some(Ok(Some(seconds))) => seconds.to_string(),
        _ => value.to_owned(),
    }
}

/// `name=value,...`
pub(super) fn joined(requests: &[ResourceRequest]) -> String {
    let all: Vec<String> = requests
        .iter()
        .map(|(name, value)| match value {
            Some(value) => format!("{name}={}", in_seconds(name, value)),
            None => format!("{name}=TRUE"),
        })
        .collect();
    all.join(",")
}

/// The queue in the job's environment: the one that was asked for, or the default one; of a job that may run in several partitions,
/// that of each, as [`marks::queue_in`] reads them.
pub(super) fn queue_name(
    request: &Request,
    partitions: &[String],
    mapping: &Mapping,
    client: &mut Client,
) -> Result<String, ExitCode> {
    if partitions.len() > 1 {
        let ctx = site::cluster(client).map_err(|e| unreachable(&e))?;
        let of = |own: &String| format!("{}:{own}", site::queue_of(mapping, &ctx.partitions, own));
        let all: Vec<String> = partitions.iter().map(of).collect();
        return Ok(all.join(","));
    }
    if let [queue] = request.queues.as_slice()
        && !super::is_pattern(queue)
    {
        let name = queue.split('@').next().unwrap_or_default();
        return Ok(name.to_owned());
    }
    if partitions.is_empty() && mapping.queues.is_empty() {
        return Ok(site::ALL.to_owned());
    }
    let ctx = site::cluster(client).map_err(|e| unreachable(&e))?;
    if let [only] = partitions {
        return Ok(site::queue_of(mapping, &ctx.partitions, only));
    }
    let default = ctx.partitions.iter().find(|partition| partition.default);
    let name = default.map_or("", |partition| &partition.name);
    Ok(site::queue_of(mapping, &ctx.partitions, name))
}

/// Puts into the job's specification what no option of sbatch has: other numbers of slots that will do, and what listings of
/// Grid Engine show.
fn mark(spec: &mut JobSpec, request: &Request, mapping: &Mapping) {
    let tasks = request.pe.as_ref().and_then(|(pe, slots)| {
        let rule = request.rule_of(pe, mapping)?;
        rule.tasks_of(&slots.all)
    });
    let least = tasks.as_ref().map_or(1, |(least, _)| *least);
    spec.ask.task_range = tasks.and_then(|(_, range)| range).map(Box::new);
    let mut mark = |key: &str, value: String| spec.shown.push((key.to_owned(), value));
    mark(marks::COMMAND, "qsub".to_owned());
    if let Some((pe, slots)) = &request.pe {
        mark(marks::PE, format!("{pe} {least}"));
        if slots.all.len() > 1 {
            mark(marks::PE_RANGE, slots.text.clone());
        }
    }
    if let Ok(here) = std::env::current_dir() {
        mark(marks::SUBMIT_DIR, here.to_string_lossy().into_owned());
    }
    if let Some(shell) = &request.shell {
        mark(marks::SHELL, shell.clone());
    }
    if let Some(strategy) = &request.binding {
        mark(marks::BINDING, strategy.clone());
    }
    if let Some(level @ ('w' | 'n')) = request.verify {
        mark(marks::VERIFY, level.to_string());
    }
    for (key, requests) in [(marks::HARD, &request.hard), (marks::SOFT, &request.soft)] {
        if !requests.is_empty() {
            mark(key, joined(requests));
        }
    }
    for (key, is_set) in [
        (marks::MERGE, request.merge),
        (marks::BINARY, request.binary),
    ] {
        if is_set {
            mark(key, "y".to_owned());
        }
    }
    for (key, queues) in [
        (marks::HARD_QUEUES, &request.queues),
        (marks::SOFT_QUEUES, &request.soft_queues),
        (marks::MASTER_QUEUES, &request.master_queues),
    ] {
        if !queues.is_empty() {
            mark(key, queues.join(","));
        }
    }
    if !request.hold_jid.is_empty() {
        mark(marks::HOLD_JID, request.hold_jid.join(","));
    }
}

#[cfg(test)]
mod tests {
    use super::super::arguments::{OperandPosition, parse};
    use super::super::submit_options::QSUB;
    use super::*;

    /// The options of sbatch that a line comes to, without those that all jobs have.
    fn sbatch(line: &str, conf: &str) -> Result<String, Refused> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        let mut request = Request::default();
        for given in &parse(&QSUB, &words, OperandPosition::End).unwrap().options {
            request.take(given)?;
        }
        let (mapping, findings) = Mapping::parse(conf, "sge.conf");
        assert_eq!(findings, []);
        let mut resources = Resources::default();
        for (name, value) in &request.hard {
            resources
                .add((name, value.as_deref()), &mapping, &[])
                .map_err(Refused::Job)?;
        }
        let chosen = options(&request, "x", &resources, &mapping)?;
        let usual = ["job-name", "chdir", "open-mode", "output", "error"];
        let own = chosen
            .iter()
            .filter(|given| !usual.contains(&given.row.long));
        let texts: Vec<String> = own
            .map(|given| match &given.value {
                Some(value) => format!("{}={value}", given.row.long),
                None => given.row.long.to_owned(),
            })
            .collect();
        Ok(texts.join(" "))
    }

    #[test]
    fn other_numbers_of_slots_are_in_the_specification() {
        let (mapping, _) = Mapping::parse("pe two 2\npe mpi $fill_up\n", "sge.conf");
        for (pe, slots, range, marked) in [
            ("mpi", "4", None, "4 -"),
            ("mpi", "2,4-8", Some("2,4-8"), "2 2,4-8"),
            ("mpi", "3-", Some("3-9999999"), "3 3-9999999"),
            ("two", "3-9", Some("4-8"), "4 3-9"),
            ("two", "3-5", None, "4 3-5"),
        ] {
            let words = ["-pe", pe, slots].map(str::to_owned);
            let mut request = Request::default();
            for given in &parse(&QSUB, &words, OperandPosition::End).unwrap().options {
                request.take(given).unwrap();
            }
            let mut spec = JobSpec::default();
            mark(&mut spec, &request, &mapping);
            let found = spec.ask.task_range.as_ref();
            let found = found.map(|range| range.text());
            assert_eq!(found.as_deref(), range, "{pe} {slots}");
            let own = marks::value(&spec, marks::PE_RANGE).unwrap_or("-");
            let least = marks::value(&spec, marks::PE)
                .unwrap()
                .split_once(' ')
                .unwrap()
                .1;
            assert_eq!(format!("{least} {own}"), marked);
        }
    }

    /// Grid Engine 8.1.9 shows `-l h_rt=00:10:00` as 600, in qstat and for qalter.
    #[test]
    fn times_of_requests_are_kept_in_seconds() {
        let asked = [
            ("h_rt", Some("00:10:00")),
            ("s_rt", Some("90")),
            ("h_vmem", Some("1G")),
            ("big", None),
            ("h_cpu", Some("INFINITY")),
        ];
        let own = |(name, value): (&str, Option<&str>)| (name.to_owned(), value.map(str::to_owned));
        assert_eq!(
            joined(&asked.map(own)),
            "h_rt=600,s_rt=90,h_vmem=1G,big=TRUE,h_cpu=INFINITY"
        );
    }

    #[test]
    fn what_options_come_to() {
        let conf = "pe two 2\npe smp $pe_slots\npe rr $round_robin\ncomplex gpu gres:gpu:a100 slot\n\
                    complex lic license:matlab\ncomplex big feature:bigmem\nproject p physics\n";
        for (line, want) in [
            ("", "ntasks=1"),
            ("-pe smp 4", "ntasks=4 nodes=1"),
            ("-pe two 6", "ntasks=6 nodes=3 ntasks-per-node=2"),
            ("-pe rr 3", "ntasks=3 distribution=cyclic spread-job"),
            ("-pe smp 2-8", "ntasks=2 nodes=1"),
            ("-pe two 3-9", "ntasks=4 nodes=2 ntasks-per-node=2"),
            ("-l h_rt=90", "ntasks=1 time=2"),
            (
                "-l h_rt=1:0:0,s_rt=0:50:0",
                "ntasks=1 time=60 signal=B:USR1@600",
            ),
            ("-l s_rt=60", "ntasks=1 time=2 signal=B:USR1@60"),
            ("-notify -l h_rt=600", "ntasks=1 time=10 signal=B:USR2@60"),
            ("-l h_vmem=1G,mem_free=512M", "ntasks=1 mem-per-cpu=1024M"),
            (
                "-l gpu=2,lic=1,big",
                "ntasks=1 constraint=bigmem licenses=matlab:1 gpus-per-task=a100:2",
            ),
            ("-l exclusive,num_proc=8", "ntasks=1 mincpus=8 exclusive"),
            ("-t 1-5:2 -tc 2", "array=1-5:2%2 ntasks=1"),
            (
                "-P p -A text -p -5 -h",
                "comment=text account=physics nice=5 hold ntasks=1",
            ),
            (
                "-m be -M a@b,c",
                "mail-type=BEGIN,END mail-user=a@b ntasks=1",
            ),
            ("-m n -r y", "requeue ntasks=1"),
        ] {
            assert_eq!(sbatch(line, conf).unwrap(), want, "{line}");
        }
        assert_eq!(sbatch("-l gpu=2", "").unwrap(), "ntasks=1 gres=gpu:2");
        for (line, why) in [
            (
                "-pe nosuch 2",
                "job rejected: the requested parallel environment \"nosuch\" does not exist",
            ),
            (
                "-pe two 3",
                "job rejected: parallel environment \"two\" has 2 slots on each host, so 3 slots are not a whole number of \
                 hosts",
            ),
            (
                "-pe two 5,7",
                "job rejected: parallel environment \"two\" has 2 slots on each host, so 5,7 slots are not a whole number \
                 of hosts",
            ),
        ] {
            assert_eq!(
                sbatch(line, conf).unwrap_err(),
                Refused::Job(why.to_owned())
            );
        }
    }
}
