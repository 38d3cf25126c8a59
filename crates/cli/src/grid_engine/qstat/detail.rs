//! `qstat -j`: all of a job.

use super::detail_xml;
use super::lines::{self, is_pending};
use crate::connect::Client;
use crate::grid_engine::arguments::Parsed;
use crate::grid_engine::{fail, selection, site, unreachable};
use crate::listing::context::Ctx;
use crate::listing::job::{JobRow, Stdio};
use crate::listing::query;
use crate::people;
use muster_conf::grid_engine::Mapping;
use muster_model::grid_engine as marks;
use muster_model::job::Job;
use muster_model::spec::JobSpec;
use muster_model::time::Timestamp;
use muster_proto::client::JobFilter;
use std::fmt::Write as _;
use std::process::ExitCode;

const BAR: &str = "==============================================================\n";

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
    let jobs: Vec<&Job> = listed.jobs.iter().collect();
    let list = parsed.last("j").unwrap_or_default();
    let as_xml = parsed.has("xml");
    if list.is_empty() {
        crate::listing::print(&match as_xml {
            true => detail_xml::waiting(&jobs),
            false => waiting(&jobs),
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
        .into_iter()
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
            true => detail_xml::jobs(&all),
            false => detail_xml::unknown(&missing),
        });
        return Ok(ExitCode::SUCCESS);
    }
    let mut text = String::new();
    for number in numbers {
        job(&mut text, &records(number), &ctx, mapping);
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

/// `Sat Nov 21 19:05:05 2026`.
pub(in crate::grid_engine) fn long_date(ctx: &Ctx, at: Timestamp) -> String {
    ctx.zoned(at).strftime("%a %b %e %H:%M:%S %Y").to_string()
}

/// All records of one job.
fn job(text: &mut String, records: &[&Job], ctx: &Ctx, mapping: &Mapping) {
    let Some(first) = records.first() else { return };
    let spec = &first.spec;
    let number = selection::number(first);
    let user = people::user_of_uid(spec.owner.uid);
    text.push_str(BAR);
    let mut row = |key: &str, value: &str| {
        let key = format!("{key}:");
        let _ = writeln!(text, "{key:<27} {value}");
    };
    let mark = |key| marks::value(spec, key);
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
        row("sge_o_shell", &user.shell.to_string_lossy());
    }
    row("sge_o_host", &spec.submit_host);
    if let Some(begin) = spec.begin {
        row("execution_time", &long_date(ctx, begin));
    }
    row("account", spec.comment.as_deref().unwrap_or("sge"));
    row("cwd", &spec.work_dir);
    if mark(marks::MERGE).is_some() {
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
    let mail = spec
        .mail
        .as_ref()
        .map(|(_, to)| to.as_str())
        .filter(|to| !to.is_empty());
    let default_mail = format!("{}@{}", spec.owner.user, spec.submit_host);
    row("mail_list", mail.unwrap_or(&default_mail));
    row(
        "notify",
        if spec.warn_signal.is_some() {
            "TRUE"
        } else {
            "FALSE"
        },
    );
    row("job_name", &spec.name);
    if let Some(priority) = Some(-spec.nice).filter(|priority| *priority != 0) {
        row("priority", &priority.to_string());
    }
    for (key, which) in [
        ("stdout_path_list", Stdio::Out),
        ("stderr_path_list", Stdio::Err),
    ] {
        if let Some(path) = JobRow::new(first, None).stdio_path(which) {
            row(key, &format!("NONE:NONE:{path}"));
        }
    }
    row("jobshare", "0");
    if let Some(queues) = mark(marks::HARD_QUEUES) {
        row("hard_queue_list", queues);
    }
    if let Some(again) = spec.requeue {
        row("restart", if again { "y" } else { "n" });
    }
    if let Some(class) = &spec.class {
        row("job class", &class.name);
    }
    if !spec.argv.is_empty() {
        row("job_args", &spec.argv.join(","));
    }
    row(
        "script_file",
        if spec.command.is_empty() {
            "STDIN"
        } else {
            &spec.command
        },
    );
    if let Some((pe, slots)) = mark(marks::PE).and_then(|pe| pe.split_once(' ')) {
        let _ = writeln!(text, "parallel environment:  {pe} range: {slots}");
    }
    arrays(text, records);
    waits(text, records);
    let mut row = |key: &str, value: &str| {
        let key = format!("{key}:");
        let _ = writeln!(text, "{key:<27} {value}");
    };
    if let Some(project) = &spec.account {
        row("project", project);
    }
    row("binding", "NONE");
    row(
        "job_type",
        if mark(marks::BINARY).is_some() {
            "binary"
        } else {
            "NONE"
        },
    );
    running(text, records, ctx, mapping);
    reasons(text, records);
}

/// Letters of `-m`.
fn mail_options(spec: &JobSpec) -> String {
    let events = spec.mail.as_ref().map_or("", |(events, _)| events.as_str());
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

fn waits(text: &mut String, records: &[&Job]) {
    let mut before: Vec<String> = records
        .iter()
        .flat_map(|job| lines::predecessors(job))
        .collect();
    before.dedup();
    if let Some(asked) = records
        .iter()
        .find_map(|job| marks::value(&job.spec, marks::HOLD_JID))
    {
        let _ = writeln!(text, "{:<27} {asked}", "jid_predecessor_list (req):");
    }
    if !before.is_empty() {
        let _ = writeln!(text, "{:<27} {}", "jid_predecessor_list:", before.join(","));
    }
}

/// Lines of each task that runs: its number stands in the key.
fn running(text: &mut String, records: &[&Job], ctx: &Ctx, mapping: &Mapping) {
    let tasks = records.iter().filter(|job| !is_pending(job));
    for job in tasks {
        let number = selection::task(job).unwrap_or(1);
        let seconds = job.run_time_ms(ctx.now) / 1000;
        let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
        let key = format!("usage{number:>10}:");
        let _ = writeln!(
            text,
            "{key:<27} wallclock={hours:02}:{minutes:02}:{seconds:02}, cpu=N/A, mem=N/A, io=N/A, vmem=N/A, maxvmem=N/A"
        );
        let key = format!("binding{number:>8}:");
        let _ = writeln!(text, "{key:<27} NONE");
        let granted = resource_map(job);
        if !granted.is_empty() {
            let key = format!("resource map{number:>3}:");
            let _ = writeln!(text, "{key:<27} {granted}");
        }
        let queue = site::queue_of(mapping, &ctx.partitions, &job.partition);
        let hosts: Vec<String> = lines::hosts(job)
            .iter()
            .map(|host| format!("{queue}@{host}"))
            .collect();
        let key = format!("exec_host_list{number:>3}:");
        let _ = writeln!(text, "{key:<27} {}", hosts.join(","));
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

fn reasons(text: &mut String, records: &[&Job]) {
    for job in records.iter().filter(|job| lines::is_in_error(job)) {
        let number = selection::task(job).unwrap_or(1);
        let why = job
            .reason_detail
            .as_deref()
            .unwrap_or("the job asked for it by its exit status");
        let _ = writeln!(text, "error reason{number:>11}:      {why}");
    }
    let mut key = "scheduling info:";
    for job in records.iter().filter(|job| is_pending(job)) {
        let reason = JobRow::new(job, None).reason();
        let info = match lines::is_in_error(job) {
            true => "Job is in error state".to_owned(),
            false => format!("Job waits: {reason}"),
        };
        let _ = writeln!(text, "{key:<27} {info}");
        key = "";
    }
}

/// `-j` without a job.
fn waiting(jobs: &[&Job]) -> String {
    let mut groups: Vec<(String, Vec<String>)> = Vec::new();
    for job in jobs.iter().filter(|job| is_pending(job)) {
        let reason = match job {
            job if lines::is_held(job, 'd') => "Job dropped because of job dependencies".to_owned(),
            job if lines::is_held(job, 'a') => {
                "Jobs can not run because execution time not reached".to_owned()
            }
            job if lines::is_held(job, 'u') || lines::is_held(job, 'o') => {
                "Jobs dropped because of hold state".to_owned()
            }
            job => format!("Jobs wait: {}", JobRow::new(job, None).reason()),
        };
        let number = selection::number(job).to_string();
        match groups.iter_mut().find(|(known, _)| *known == reason) {
            Some((_, numbers)) => numbers.push(number),
            None => groups.push((reason, vec![number])),
        }
    }
    let mut text = String::from("scheduling info:            ");
    if groups.is_empty() {
        text.push_str("no pending jobs");
    }
    text.push('\n');
    for (reason, numbers) in groups {
        let _ = writeln!(text, "\n{reason}\n\t{}", numbers.join(",\t"));
    }
    text
}
