//! `qstat -j`: all of a job.

use super::lines::{self, is_pending};
use super::messages::{self, Waits};
use super::usage::{self, Measured};
use super::{detail_xml, queues};
use crate::connect::{Client, ConnectError};
use crate::grid_engine::arguments::Parsed;
use crate::grid_engine::{fail, memory, selection, site, unreachable};
use crate::listing::context::Ctx;
use crate::listing::job::{JobRow, Stdio};
use crate::listing::query;
use crate::people;
use crate::why;
use crate::zone;
use muster_conf::grid_engine::Mapping;
use muster_model::environment::{self, Environment};
use muster_model::explain::Explanation;
use muster_model::grid_engine as marks;
use muster_model::ids::JobId;
use muster_model::job::Job;
use muster_model::spec::{DependencyKind, DependencyTerm, JobSpec};
use muster_model::time::{TimeLimit, Timestamp};
use muster_model::visible_text::visible;
use muster_proto::client::JobFilter;
use std::collections::HashMap;
use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

const BAR: &str = "==============================================================\n";

/// The data of the texts about jobs.
struct DetailSource<'s> {
    ctx: &'s Ctx,
    mapping: &'s Mapping,
    /// All jobs that have not ended.
    jobs: &'s [Job],
    measured: Measured,
    /// Environments of jobs whose caller may see them, by the first record of each.
    environments: HashMap<JobId, Environment>,
    /// The messages about queues.
    messages: Vec<String>,
    /// Explanations of jobs that wait with a range of slots, by record.
    ranges: HashMap<JobId, Explanation>,
}

/// Jobs of which one command asks why they wait: each answer takes forecasts.
const EXPLAINED_MAX: usize = 4;

/// Why jobs with ranges of slots wait; of others, and of those that the caller may not see, it is not asked.
fn ranges<'j>(
    client: &mut Client,
    jobs: impl Iterator<Item = &'j Job>,
) -> HashMap<JobId, Explanation> {
    let waiting = jobs.filter(|job| is_pending(job) && Waits::of(job) == Waits::Other);
    let ranged = waiting.filter(|job| job.spec.ask.task_range.is_some());
    let mut found = HashMap::new();
    for job in ranged.take(EXPLAINED_MAX) {
        match why::ask_briefly(client, job.id) {
            Ok(explanation) => {
                found.insert(job.id, *explanation);
            }
            Err(ConnectError::Refused(_)) => {}
            Err(_) => break,
        }
    }
    found
}

/// Shows the jobs that `-j` names, or what all jobs wait for.
pub(super) fn show(
    client: &mut Client,
    mapping: &Mapping,
    parsed: &Parsed,
) -> Result<ExitCode, ExitCode> {
    let mut ctx = Ctx::new(&client.endpoint.cluster.clone());
    let filter = JobFilter {
        active: true,
        ..JobFilter::default()
    };
    let listed = query::jobs(client, &mut ctx, filter).map_err(|e| unreachable(&e))?;
    let jobs: Vec<Job> = listed.jobs.iter().cloned().collect();
    query::cluster(client, &mut ctx).map_err(|e| unreachable(&e))?;
    let queues = queues::of_cluster(&ctx, mapping, &jobs);
    let list = parsed.last("j").unwrap_or_default();
    let as_xml = parsed.has("xml");
    if list.is_empty() {
        crate::listing::print(&match as_xml {
            true => detail_xml::waiting(&jobs, &queues),
            false => waiting(&jobs, &messages::of_queues(&queues)),
        });
        return Ok(ExitCode::SUCCESS);
    }
    let named = selection::named(list).map_err(|why| fail(&format!("error: {why}"), 1))?;
    let missing: Vec<&str> = named
        .iter()
        .filter(|one| !jobs.iter().any(|job| one.is(job)))
        .map(|one| one.text.as_str())
        .collect();
    let found: Vec<&Job> = jobs
        .iter()
        .filter(|job| named.iter().any(|one| one.is(job)))
        .collect();
    let mut numbers: Vec<_> = found.iter().map(|job| selection::number(job)).collect();
    numbers.sort_unstable();
    numbers.dedup();
    let records = |number| -> Vec<&Job> {
        let all = found.iter().copied();
        all.filter(|job| selection::number(job) == number).collect()
    };
    if as_xml {
        let all: Vec<Vec<&Job>> = numbers.into_iter().map(records).collect();
        crate::listing::print(&match missing.is_empty() {
            true => detail_xml::jobs(&all, &queues),
            false => detail_xml::unknown(&missing),
        });
        return Ok(ExitCode::SUCCESS);
    }
    let measured = Measured::of(client, found.iter().copied());
    let firsts = numbers.iter().filter_map(|number| {
        let first = records(*number).first().copied()?;
        marks::is_marked(&first.spec).then_some(first.id)
    });
    let source = DetailSource {
        environments: environments(client, firsts),
        ctx: &ctx,
        mapping,
        jobs: &jobs,
        measured,
        messages: messages::of_queues(&queues),
        ranges: ranges(client, found.iter().copied()),
    };
    let mut text = String::new();
    for number in numbers {
        job(&mut text, &records(number), &source);
    }
    crate::listing::print(&text);
    if missing.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    Err(fail(
        &format!("Following jobs do not exist: \n{}", missing.join("\n")),
        1,
    ))
}

/// The text about a job that is not submitted, for `qsub -verify`.
pub(in crate::grid_engine) fn would_be(
    ctx: &Ctx,
    spec: JobSpec,
    environment: &Environment,
) -> String {
    let job = Job::new(JobId(0), Arc::new(spec), TimeLimit::Unlimited, zone::now());
    let spec = &job.spec;
    let mut text = BAR.to_owned();
    submission(&mut text, &job, ctx, Some(environment));
    request(&mut text, &job, Some(environment));
    if let Some((pe, slots)) = marks::parallel_environment(spec) {
        let _ = writeln!(text, "parallel environment:  {pe} range: {slots}");
    }
    waits(&mut text, &[&job], &[]);
    if let Some(project) = &spec.account {
        row(&mut text, "project", project);
    }
    arrays(&mut text, &[&job]);
    row(&mut text, "binding", marks::binding(spec));
    let is_binary = marks::value(spec, marks::BINARY).is_some();
    row(
        &mut text,
        "job_type",
        if is_binary { "binary" } else { "NONE" },
    );
    row(&mut text, "submit_cmd", &spec.submit_line);
    text
}

/// Jobs of which one command asks for the environment.
const ENVIRONMENTS_MAX: usize = 100;

/// The environments of jobs; of those of others the controller gives none.
fn environments(
    client: &mut Client,
    jobs: impl Iterator<Item = JobId>,
) -> HashMap<JobId, Environment> {
    let mut found = HashMap::new();
    for job in jobs.take(ENVIRONMENTS_MAX) {
        match query::environment(client, job) {
            Ok(environment) => {
                found.insert(job, environment);
            }
            Err(ConnectError::Refused(_)) => {}
            // An older controller does not know the question.
            Err(_) => break,
        }
    }
    found
}

/// `Sat Nov 21 19:05:05 2026`.
pub(in crate::grid_engine) fn long_date(ctx: &Ctx, at: Timestamp) -> String {
    ctx.zoned(at).strftime("%a %b %e %H:%M:%S %Y").to_string()
}

/// Writes a line with a key.
fn row(text: &mut String, key: &str, value: &str) {
    let key = format!("{key}:");
    let _ = writeln!(text, "{key:<27} {value}");
}

/// All records of one job.
fn job(text: &mut String, records: &[&Job], source: &DetailSource<'_>) {
    let Some(first) = records.first() else { return };
    let spec = &first.spec;
    text.push_str(BAR);
    let environment = source.environments.get(&first.id);
    submission(text, first, source.ctx, environment);
    request(text, first, environment);
    if let Some((pe, slots)) = marks::parallel_environment(spec) {
        let _ = writeln!(text, "parallel environment:  {pe} range: {slots}");
    }
    waits(text, records, source.jobs);
    if let Some(project) = &spec.account {
        row(text, "project", project);
    }
    arrays(text, records);
    row(text, "binding", marks::binding(spec));
    let is_binary = marks::value(spec, marks::BINARY).is_some();
    row(text, "job_type", if is_binary { "binary" } else { "NONE" });
    if !spec.submit_line.is_empty() {
        row(text, "submit_cmd", &spec.submit_line);
    }
    running(text, records, source);
    reasons(text, records, source);
}

/// The owner of the job, where and when it was submitted, and how it is accounted.
fn submission(text: &mut String, first: &Job, ctx: &Ctx, environment: Option<&Environment>) {
    let spec = &first.spec;
    let number = selection::number(first);
    let user = people::user_of_uid(spec.owner.uid);
    let mut row = |key: &str, value: &str| row(text, key, value);
    row("job_number", &number.to_string());
    row("exec_file", &format!("job_scripts/{number}"));
    row("submission_time", &long_date(ctx, first.submit_time));
    row("owner", &spec.owner.user);
    row("uid", &spec.owner.uid.to_string());
    row("group", &spec.owner.group);
    row("gid", &spec.owner.gid.to_string());
    if let Some(user) = &user {
        row("sge_o_home", &user.dir.to_string_lossy());
        row("sge_o_log_name", &user.name);
        let path = environment.and_then(|own| own.value(b"SGE_O_PATH"));
        if let Some(path) = path {
            row("sge_o_path", &visible(&String::from_utf8_lossy(path)));
        }
        row("sge_o_shell", &user.shell.to_string_lossy());
    }
    if let Some(directory) = marks::value(spec, marks::SUBMIT_DIR) {
        row("sge_o_workdir", directory);
    }
    row("sge_o_host", &spec.submit_host);
    if let Some(begin) = spec.begin {
        row("execution_time", &long_date(ctx, begin));
    }
    row("account", spec.comment.as_deref().unwrap_or("sge"));
}

/// The requests of the options, in Grid Engine's order.
fn request(text: &mut String, first: &Job, environment: Option<&Environment>) {
    let spec = &first.spec;
    let mut row = |key: &str, value: &str| row(text, key, value);
    let mark = |key| marks::value(spec, key);
    let merges = mark(marks::MERGE) == Some("y");
    if has_own_directory(spec) {
        row("cwd", &spec.work_dir);
    }
    if let Some(path) = given_path(first, Stdio::Err).filter(|_| !merges) {
        row("stderr_path_list", &format!("NONE:NONE:{path}"));
    }
    if merges {
        row("merge", "y");
    }
    for (key, name) in [
        ("hard resource_list", marks::HARD),
        ("soft resource_list", marks::SOFT),
    ] {
        if let Some(list) = mark(name) {
            row(key, list);
        }
    }
    let options = mail_options(spec);
    if !options.is_empty() {
        row("mail_options", &options);
    }
    let mail = spec.mail.as_ref().map(|mail| mail.user.as_str());
    let default_mail = format!("{}@{}", spec.owner.user, spec.submit_host);
    let mail = mail.filter(|to| !to.is_empty()).unwrap_or(&default_mail);
    row("mail_list", mail);
    let warns = spec.warn_signal.is_some();
    row("notify", if warns { "TRUE" } else { "FALSE" });
    row("job_name", &spec.name);
    if let Some(path) = given_path(first, Stdio::Out) {
        row("stdout_path_list", &format!("NONE:NONE:{path}"));
    }
    if spec.nice != 0 {
        row("priority", &(-spec.nice).to_string());
    }
    row("jobshare", "0");
    for (name, key) in [
        ("hard_queue_list", marks::HARD_QUEUES),
        ("soft_queue_list", marks::SOFT_QUEUES),
        ("master hard queue_list", marks::MASTER_QUEUES),
    ] {
        if let Some(queues) = mark(key) {
            row(name, queues);
        }
    }
    if let Some(again) = spec.requeue {
        row("restart", if again { "y" } else { "n" });
    }
    if let Some(shell) = mark(marks::SHELL) {
        row("shell_list", &format!("NONE:{shell}"));
    }
    if let Some(class) = &spec.class {
        row("job class", &class.name);
    }
    let variables = environment.map(variables).unwrap_or_default();
    if !variables.is_empty() {
        row("env_list", &variables);
    }
    if !spec.argv.is_empty() {
        row("job_args", &spec.argv.join(","));
    }
    let script = match spec.command.as_str() {
        "" => "STDIN",
        command => command,
    };
    row("script_file", script);
}

/// Whether a job does not run where jobs of qsub run without `-cwd` and `-wd`, at home.
pub(super) fn has_own_directory(spec: &JobSpec) -> bool {
    let home = people::user_of_uid(spec.owner.uid).map(|user| user.dir);
    !marks::is_marked(spec) || home.is_none_or(|home| home != Path::new(&spec.work_dir))
}

/// The variables of a job that its user named, as `NAME=value,...`: without what each job of qsub has.
fn variables(environment: &Environment) -> String {
    let is_usual = |name: &[u8]| {
        let name = String::from_utf8_lossy(name);
        OF_EACH_JOB.contains(&&*name)
            || name.starts_with("SGE_")
            || name.starts_with("SLURM_")
            || marks::VARIABLES.contains(&&*name)
    };
    let own = environment
        .iter()
        .filter(|variable| !is_usual(environment::name(variable)));
    let texts: Vec<String> = own
        .map(|variable| visible(&String::from_utf8_lossy(variable)).into_owned())
        .collect();
    texts.join(",")
}

/// Variables that are in no `env_list`.
const OF_EACH_JOB: [&str; 6] = ["HOME", "USER", "LOGNAME", "SHELL", "PATH", "ARC"];

/// Where a stream goes, if that was said.
pub(super) fn given_path(job: &Job, which: Stdio) -> Option<String> {
    let given = match which {
        Stdio::Out => job.spec.stdio.stdout.as_deref(),
        Stdio::Err => job.spec.stdio.stderr.as_deref(),
        Stdio::In => job.spec.stdio.stdin.as_deref(),
    };
    // The file names that qsub gives a job without -o and -e.
    let usual = ["%x.o%j", "%x.o%A.%a", "%x.e%j", "%x.e%A.%a"];
    given.filter(|given| !usual.contains(given))?;
    JobRow::new(job, None).stdio_path(which)
}

/// Letters of `-m`.
fn mail_options(spec: &JobSpec) -> String {
    let events = spec.mail.as_ref().map_or("", |mail| mail.types.as_str());
    let has = |event: &str| events.split(',').any(|own| own == event || own == "ALL");
    let letters = [('a', "FAIL"), ('b', "BEGIN"), ('e', "END")];
    let given = letters.iter().filter(|(_, event)| has(event));
    given.map(|(letter, _)| *letter).collect()
}

fn arrays(text: &mut String, records: &[&Job]) {
    let Some(array) = records.iter().find_map(|job| job.spec.array.as_ref()) else {
        return;
    };
    let ranges = selection::ranges(array.indices.iter());
    let _ = writeln!(text, "{:<27} {ranges}", "job-array tasks:");
    if let Some(limit) = array.throttle {
        let _ = writeln!(text, "{:<27} {limit}", "maximum concurrency:");
    }
}

/// Jobs that this one waits for, and those that wait for it.
fn waits(text: &mut String, records: &[&Job], jobs: &[Job]) {
    let Some(first) = records.first() else { return };
    let number = selection::number(first);
    let by_task = |kind: DependencyKind| kind == DependencyKind::AfterCorr;
    let mut before = (Vec::new(), Vec::new());
    for term in records.iter().flat_map(|job| &job.waiting_on) {
        if let DependencyTerm::Job { kind, job, .. } = term {
            match by_task(*kind) {
                true => before.1.push(*job),
                false => before.0.push(*job),
            }
        }
    }
    let mut after = (Vec::new(), Vec::new());
    for waiting in jobs {
        for term in &waiting.waiting_on {
            match term {
                DependencyTerm::Job { kind, job, .. } if *job == number => match by_task(*kind) {
                    true => after.1.push(selection::number(waiting)),
                    false => after.0.push(selection::number(waiting)),
                },
                DependencyTerm::Job { .. } | DependencyTerm::Singleton => {}
            }
        }
    }
    let asked = records
        .iter()
        .find_map(|job| marks::value(&job.spec, marks::HOLD_JID));
    if let Some(asked) = asked {
        row(text, "jid_predecessor_list (req)", asked);
    }
    for (key, mut numbers) in [
        ("jid_predecessor_list", before.0),
        ("jid_successor_list", after.0),
        ("ja_ad_predecessor_list", before.1),
        ("ja_ad_successor_list", after.1),
    ] {
        numbers.sort_unstable();
        numbers.dedup();
        let numbers: Vec<String> = numbers.iter().map(JobId::to_string).collect();
        if !numbers.is_empty() {
            row(text, key, &numbers.join(","));
        }
    }
}

/// Lines of each task that runs: its number stands in the key.
fn running(text: &mut String, records: &[&Job], source: &DetailSource<'_>) {
    let running: Vec<&&Job> = records.iter().filter(|job| !is_pending(job)).collect();
    let number = |job: &Job| selection::task(job).unwrap_or(1);
    for job in &running {
        let used = match source.measured.total(job) {
            None => "cpu=N/A, mem=N/A, io=N/A, vmem=N/A, maxvmem=N/A".to_owned(),
            Some(used) => format!(
                "cpu={}, mem={:.5} GB s, io={:.5} GB, vmem={held}, maxvmem={held}",
                usage::clock(usage::cpu_s(&used)),
                memory::gib_seconds(&used),
                usage::io_gib(&used),
                held = usage::memory(memory::total_kib(&used)),
            ),
        };
        row(text, &format!("usage{:>10}", number(job)), &used);
    }
    for job in &running {
        row(text, &format!("binding{:>8}", number(job)), "NONE");
    }
    for job in &running {
        let granted = resource_map(job);
        if !granted.is_empty() {
            row(text, &format!("resource map{:>3}", number(job)), &granted);
        }
    }
    for job in &running {
        let queue = site::queue_of(source.mapping, &source.ctx.partitions, &job.partition);
        let hosts: Vec<String> = lines::hosts(job)
            .iter()
            .map(|host| format!("{queue}@{host}"))
            .collect();
        let key = format!("exec_host_list{:>3}", number(job));
        row(text, &key, &hosts.join(","));
    }
}

/// `gpu=n1=(0 1)`: devices that a job has.
pub(super) fn resource_map(job: &Job) -> String {
    let mut parts = Vec::new();
    for (share, _) in job.held() {
        for gres in &share.gres {
            let ids = gres.names();
            if !ids.is_empty() {
                parts.push(format!("{}={}=({})", gres.name, share.name, ids.join(" ")));
            }
        }
    }
    parts.join(",")
}

fn reasons(text: &mut String, records: &[&Job], source: &DetailSource<'_>) {
    for job in records.iter().filter(|job| lines::is_in_error(job)) {
        let number = selection::task(job).unwrap_or(1);
        let why = job
            .reason_detail
            .as_deref()
            .unwrap_or("the job asked for it by its exit status");
        let _ = writeln!(text, "error reason{number:>11}:      {why}");
    }
    let own = records.iter().filter(|job| is_pending(job));
    let own = own.flat_map(|job| {
        let mut lines = vec![Waits::of(job).text(job)];
        if let Some(explanation) = source.ranges.get(&job.id) {
            lines.extend(by_slots(job, explanation, source));
        }
        lines
    });
    scheduling(text, source.messages.iter().cloned().chain(own));
}

/// The reasons of a job with a range of slots, and when it would start with single numbers of them.
fn by_slots(job: &Job, explanation: &Explanation, source: &DetailSource<'_>) -> Vec<String> {
    let of_task = u64::from(job.spec.ask.cpus_of_task());
    let slots = |tasks: u32| u64::from(tasks) * of_task;
    let (least, reasons) = (lines::slots(job), explanation.waits_for.join(" "));
    let mut all = vec![format!("Job waits for {least} slots at least: {reasons}")];
    for own in &explanation.by_tasks {
        let when = match &own.start {
            None => "start is not foreseen".to_owned(),
            Some(start) => {
                let queue =
                    site::queue_of(source.mapping, &source.ctx.partitions, &start.partition);
                let at = lines::date(source.ctx, start.at);
                format!("start is expected at {at} in queue \"{queue}\"")
            }
        };
        all.push(format!("With {} slots its {when}", slots(own.tasks)));
    }
    all
}

/// The lines of `scheduling info`.
fn scheduling(text: &mut String, lines: impl Iterator<Item = String>) {
    let mut key = "scheduling info:";
    for line in lines {
        let _ = writeln!(text, "{key:<27} {line}");
        key = "";
    }
}

/// `-j` without a job.
fn waiting(jobs: &[Job], of_queues: &[String]) -> String {
    let groups = messages::groups(jobs);
    let mut text = String::new();
    scheduling(&mut text, of_queues.iter().cloned());
    if groups.is_empty() && text.is_empty() {
        return "scheduling info:            There are no messages available\n\n".to_owned();
    }
    for group in groups {
        let blank = if text.is_empty() { "" } else { "\n" };
        let numbers = group.numbers.join(",\t");
        let _ = writeln!(text, "{blank}{}\n\t{numbers}", group.text);
    }
    text
}
