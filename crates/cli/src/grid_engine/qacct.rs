//! qacct: what accounting knows of jobs that have ended.

use super::arguments::Parsed;
use super::{fail, fits, run_command, selection, site, unreachable};
use crate::connect::Client;
use crate::listing::context::{Ctx, uid_of};
use crate::listing::query;
use crate::options::{HelpForm, Opt, Spec, flag, opt};
use crate::zone::{self, LocalZone};
use muster_conf::grid_engine::Mapping;
use muster_conf::options::values::time;
use muster_model::job::{ExitStatus, JobState};
use muster_model::time::Timestamp;
use muster_node_core::signals::signal_text;
use muster_proto::acct::{AcctJob, AcctQuery};
use std::fmt::Write as _;
use std::process::ExitCode;

/// qacct.
pub(crate) static SPEC: Spec = Spec {
    name: "qacct",
    about: "Shows what jobs that have ended did and used.",
    operands: "",
    form: HelpForm::GridEngine,
    options: OPTIONS,
    variables: &[],
    notes: "Times are [[CC]YY]MMDDhhmm[.SS].\n",
};

static OPTIONS: &[Opt] = &[
    opt("ar", "id", "jobs of reservations")
        .optional()
        .refused("use sacct -o ALL"),
    opt("A", "account_string", "jobs of this account string").optional(),
    opt("b", "time", "jobs started after"),
    opt("d", "days", "jobs started during the last days"),
    opt("D", "department", "jobs of departments")
        .optional()
        .refused("there are no departments"),
    opt("e", "time", "jobs started before"),
    flag("E", "the end of a job counts, not its start"),
    opt("f", "file", "another accounting file")
        .refused("there is no file; accounting is a database"),
    opt("g", "group", "jobs of this group").optional(),
    opt("h", "host", "jobs of this host").optional(),
    opt("j", "job", "jobs by number or name, all of each").optional(),
    opt("l", "resources", "jobs with these requests").refused("use sacct"),
    flag("m", "master tasks only").stored("a job has one record"),
    opt("o", "owner", "jobs of this user").optional(),
    opt("u", "owner", "as -o").optional(),
    opt("pe", "name", "jobs of parallel environments")
        .optional()
        .refused("accounting does not keep them"),
    opt("P", "project", "jobs of this project").optional(),
    opt("q", "queue", "jobs of this queue").optional(),
    opt("slots", "slots", "jobs with so many slots").optional(),
    opt("t", "tasks", "tasks of the array that -j names"),
    flag("help", "print this help"),
];

/// Runs qacct.
pub(crate) fn main(args: &[String]) -> ExitCode {
    run_command(&SPEC, args, false, run)
}

fn run(parsed: &Parsed) -> Result<ExitCode, ExitCode> {
    let mapping = site::mapping()?;
    let wrong = |why: String| fail(&format!("qacct: {why}"), 1);
    let wanted = parsed.last("j").unwrap_or_default();
    let named = selection::named(wanted).map_err(wrong)?;
    let mut query = AcctQuery {
        jobs: named
            .iter()
            .filter_map(|one| Some((one.job?, None)))
            .collect(),
        ..AcctQuery::default()
    };
    let is_plain = |one: &selection::Named| one.job.is_none() && !super::is_pattern(&one.text);
    if !named.is_empty() && named.iter().all(is_plain) {
        query.names = named.iter().map(|one| one.text.clone()).collect();
    }
    if let Some(name) = owner(parsed) {
        let uid = uid_of(name).ok_or_else(|| wrong(format!("unknown user \"{name}\"")))?;
        query.uids = vec![uid];
    }
    let tasks = parsed
        .last("t")
        .map(selection::tasks)
        .transpose()
        .map_err(wrong)?;
    let window = window(parsed).map_err(wrong)?;
    let mut client = Client::connect().map_err(|e| unreachable(&e))?;
    let mut ctx = Ctx::new(&client.endpoint.cluster.clone());
    ctx.partitions = site::cluster(&mut client)
        .map_err(|e| unreachable(&e))?
        .partitions;
    let (mut jobs, ..) = query::accounting(&mut client, query).map_err(|e| unreachable(&e))?;
    jobs.retain(|job| {
        let at = if parsed.has("E") { job.end } else { job.start };
        let in_window = at.is_some_and(|at| {
            window.0.is_none_or(|from| at >= from) && window.1.is_none_or(|to| at <= to)
        });
        let is_named = wanted.is_empty()
            || named.iter().any(|one| match one.job {
                Some(id) => job.array.map_or(job.id, |task| task.array) == id || job.id == id,
                None => fits(&one.text, &job.name),
            });
        let is_task = tasks.is_none_or(|tasks| job.array.is_some_and(|task| tasks.has(task.index)));
        job.end.is_some()
            && job.start.is_some()
            && in_window
            && is_named
            && is_task
            && fields_fit(parsed, job, &mapping, &ctx)
    });
    jobs.sort_by_key(|job| job.end);
    let mut text = String::new();
    if parsed.has("j") {
        if jobs.is_empty() && !wanted.is_empty() {
            let what = if named.iter().all(|one| one.job.is_some()) {
                "id"
            } else {
                "name"
            };
            return Err(fail(&format!("error: job {what} {wanted} not found"), 1));
        }
        for job in &jobs {
            record(&mut text, job, &ctx, &mapping);
        }
    }
    // Records are followed by the sums where an option says of what.
    if !parsed.has("j") || SUMMED.iter().any(|name| parsed.has(name)) {
        text.push_str(&summary(parsed, &jobs, &mapping, &ctx));
    }
    crate::listing::print(&text);
    Ok(ExitCode::SUCCESS)
}

fn owner(parsed: &Parsed) -> Option<&str> {
    let given = parsed.last("o").or_else(|| parsed.last("u"));
    given.filter(|name| !name.is_empty())
}

type Window = (Option<Timestamp>, Option<Timestamp>);

fn window(parsed: &Parsed) -> Result<Window, String> {
    let point = |text: &str| {
        let date =
            super::request::date_time(text).map_err(|_| format!("invalid time \"{text}\""))?;
        let date = super::submission::in_this_year(&date);
        time::parse(&date, zone::now(), &LocalZone::default())
            .ok_or_else(|| format!("invalid time \"{text}\""))
    };
    let mut from = parsed.last("b").map(point).transpose()?;
    let to = parsed.last("e").map(point).transpose()?;
    if let Some(text) = parsed.last("d") {
        let days: i64 = text
            .parse()
            .map_err(|_| format!("invalid number of days \"{text}\""))?;
        let since = zone::now()
            .0
            .saturating_sub(days.saturating_mul(86_400_000));
        from = Some(Timestamp(since));
    }
    Ok((from, to))
}

fn queue(job: &AcctJob, mapping: &Mapping, ctx: &Ctx) -> String {
    site::queue_of(mapping, &ctx.partitions, &job.partition)
}

fn host(job: &AcctJob) -> String {
    let hosts = muster_model::hostlist::parse(&job.nodelist).unwrap_or_default();
    hosts
        .into_iter()
        .next()
        .unwrap_or_else(|| "NONE".to_owned())
}

fn fields_fit(parsed: &Parsed, job: &AcctJob, mapping: &Mapping, ctx: &Ctx) -> bool {
    let fields = [
        ("A", account(job).to_owned()),
        ("g", job.group.clone()),
        ("h", host(job)),
        ("P", job.account.clone()),
        ("q", queue(job, mapping, ctx)),
        ("slots", slots(job).to_string()),
    ];
    fields.iter().all(|(name, own)| match parsed.last(name) {
        None | Some("") => true,
        Some(pattern) => fits(pattern, own),
    })
}

fn account(job: &AcctJob) -> &str {
    if job.comment.is_empty() {
        "sge"
    } else {
        &job.comment
    }
}

fn slots(job: &AcctJob) -> u32 {
    job.ntasks.max(1)
}

/// What a job used: wall clock, user and system time in seconds, largest resident memory in KiB.
struct Used {
    wall_s: u64,
    user_s: f64,
    system_s: f64,
    max_rss_kib: u64,
    read_bytes: u64,
}

fn used(job: &AcctJob) -> Used {
    let usages = || job.steps.iter().filter_map(|step| step.usage.as_ref());
    #[allow(clippy::cast_precision_loss)]
    let seconds = |us: u64| us as f64 / 1e6;
    let wall_ms = job
        .end
        .zip(job.start)
        .map_or(0, |(end, start)| end.since_ms(start));
    Used {
        wall_s: wall_ms.saturating_sub(job.suspended_ms) / 1000,
        user_s: seconds(usages().map(|usage| usage.user_us).sum()),
        system_s: seconds(usages().map(|usage| usage.system_us).sum()),
        max_rss_kib: usages().map(|usage| usage.max_rss_kib).max().unwrap_or(0),
        read_bytes: usages()
            .map(|usage| usage.disk_read_bytes + usage.disk_write_bytes)
            .sum(),
    }
}

/// `4.746MB`.
fn size(bytes: u64) -> String {
    #[allow(clippy::cast_precision_loss)]
    let mut amount = bytes as f64;
    for unit in ["B", "KB", "MB", "GB"] {
        if amount < 1024.0 {
            return format!("{amount:.3}{unit}");
        }
        amount /= 1024.0;
    }
    format!("{amount:.3}TB")
}

/// Why a job failed, as Grid Engine numbers it.
fn failed(state: JobState) -> &'static str {
    match state {
        JobState::Completed | JobState::Failed => "0    ",
        JobState::NodeFail | JobState::BootFail => "21  : in recognizing job",
        JobState::Preempted => "25  : rescheduling",
        JobState::Cancelled
        | JobState::Timeout
        | JobState::Deadline
        | JobState::OutOfMemory
        | JobState::Pending
        | JobState::Running
        | JobState::Suspended => "100 : assumedly after job",
    }
}

/// `138                  (User defined signal 1)`.
fn exit_status(exit: ExitStatus) -> String {
    match exit.signal {
        0 => format!("{:<20}", exit.code),
        signal => {
            let name = signal_text(signal);
            format!("{:<20} ({name})", 128 + signal)
        }
    }
}

/// All of one job.
fn record(text: &mut String, job: &AcctJob, ctx: &Ctx, mapping: &Mapping) {
    let used = used(job);
    let date = |at: Option<Timestamp>| {
        at.map_or_else(
            || "-/-".to_owned(),
            |at| ctx.zoned(at).strftime("%a %b %e %H:%M:%S %Y").to_string(),
        )
    };
    let (number, task) = match job.array {
        Some(task) => (task.array, task.index.to_string()),
        None => (job.id, "undefined".to_owned()),
    };
    text.push_str("==============================================================\n");
    let wide = |value: &str| format!("{value:<20}");
    let zero = wide("0");
    let project = if job.account.is_empty() {
        "NONE"
    } else {
        &job.account
    };
    let rows = [
        ("qname", wide(&queue(job, mapping, ctx))),
        ("hostname", wide(&host(job))),
        ("group", wide(&job.group)),
        ("owner", wide(&job.user)),
        ("project", wide(project)),
        ("department", wide("defaultdepartment")),
        ("jobname", wide(&job.name)),
        ("jobnumber", wide(&number.to_string())),
        ("taskid", task),
        ("account", wide(account(job))),
        ("priority", zero.clone()),
        ("qsub_time", date(Some(job.submit))),
        ("start_time", date(job.start)),
        ("end_time", date(job.end)),
        ("granted_pe", wide("NONE")),
        ("slots", wide(&slots(job).to_string())),
        ("failed", failed(job.state).to_owned()),
        ("exit_status", exit_status(job.exit)),
        ("ru_wallclock", format!("{}s", used.wall_s)),
        ("ru_utime", format!("{:.3}s", used.user_s)),
        ("ru_stime", format!("{:.3}s", used.system_s)),
        ("ru_maxrss", size(used.max_rss_kib * 1024)),
        ("ru_ixrss", size(0)),
        ("ru_ismrss", size(0)),
        ("ru_idrss", size(0)),
        ("ru_isrss", size(0)),
        ("ru_minflt", zero.clone()),
        ("ru_majflt", zero.clone()),
        ("ru_nswap", zero.clone()),
        ("ru_inblock", zero.clone()),
        ("ru_oublock", zero.clone()),
        ("ru_msgsnd", zero.clone()),
        ("ru_msgrcv", zero.clone()),
        ("ru_nsignals", zero.clone()),
        ("ru_nvcsw", zero.clone()),
        ("ru_nivcsw", zero),
        ("cpu", format!("{:.3}s", used.user_s + used.system_s)),
        ("mem", "0.000Bs".to_owned()),
        ("io", size(used.read_bytes)),
        ("iow", "0.000s".to_owned()),
        ("maxvmem", size(used.max_rss_kib * 1024)),
        ("arid", "undefined".to_owned()),
        ("ar_sub_time", "undefined".to_owned()),
        ("category", "NONE".to_owned()),
    ];
    for (key, value) in rows {
        let _ = writeln!(text, "{key:<12} {value}");
    }
}

/// Options whose field has sums.
const SUMMED: [&str; 7] = ["o", "u", "h", "q", "P", "g", "slots"];

/// Sums, for each value of the field that an option without a value names.
fn summary(parsed: &Parsed, jobs: &[AcctJob], mapping: &Mapping, ctx: &Ctx) -> String {
    type Key<'k> = &'k dyn Fn(&AcctJob) -> String;
    let by_queue = |job: &AcctJob| queue(job, mapping, ctx);
    let fields: [(&str, &str, Key<'_>); 7] = [
        ("o", "OWNER", &|job| job.user.clone()),
        ("u", "OWNER", &|job| job.user.clone()),
        ("h", "HOST", &host),
        ("q", "CLUSTER QUEUE", &by_queue),
        ("P", "PROJECT", &|job| job.account.clone()),
        ("g", "GROUP", &|job| job.group.clone()),
        ("slots", "SLOTS", &|job| slots(job).to_string()),
    ];
    let grouped = fields.iter().find(|(name, ..)| parsed.has(name));
    let mut sums: Vec<(String, u64, f64, f64)> = Vec::new();
    for job in jobs {
        let key = grouped.map(|(_, _, key)| key(job)).unwrap_or_default();
        let used = used(job);
        let at = sums
            .iter()
            .position(|(known, ..)| *known == key)
            .unwrap_or_else(|| {
                sums.push((key, 0, 0.0, 0.0));
                sums.len() - 1
            });
        let sum = &mut sums[at];
        sum.1 += used.wall_s;
        sum.2 += used.user_s;
        sum.3 += used.system_s;
    }
    sums.sort_by(|a, b| a.0.cmp(&b.0));
    let title = grouped.map_or("", |(_, title, _)| *title);
    let widest = sums.iter().map(|(key, ..)| key.len()).max().unwrap_or(0);
    let width = if title.is_empty() {
        0
    } else {
        widest.max(title.len()) + 1
    };
    let head = format!(
        "{title:<width$}{:>13}{:>14}{:>14}{:>14}{:>19}{:>19}{:>19}",
        "WALLCLOCK", "UTIME", "STIME", "CPU", "MEMORY", "IO", "IOW"
    );
    let mut text = String::new();
    if title.is_empty() {
        text.push_str("Total System Usage\n");
        if sums.is_empty() {
            sums.push((String::new(), 0, 0.0, 0.0));
        }
    }
    let _ = writeln!(text, "{head}\n{}", "=".repeat(head.len()));
    let none = 0.0;
    for (key, wall, user, system) in sums {
        let cpu = user + system;
        let _ = writeln!(
            text,
            "{key:<width$}{wall:>13}{user:>14.3}{system:>14.3}{cpu:>14.3}{none:>19.3}{none:>19.3}{none:>19.3}"
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exits_are_written_as_grid_engine_writes_them() {
        let status = |code, signal| exit_status(ExitStatus { code, signal });
        assert_eq!(status(3, 0), "3                   ");
        assert_eq!(
            status(0, 10),
            "138                  (User defined signal 1)"
        );
        assert_eq!(status(0, 9), "137                  (Killed)");
    }
}
