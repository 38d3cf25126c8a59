//! qacct: what accounting knows of jobs that have ended.

mod question;
mod record;

use super::arguments::{OptionArgument, Parsed};
use super::qstat::{matching, queues};
use super::{fail, fits, run_command, selection, site, unreachable};
use crate::connect::Client;
use crate::listing::context::{Ctx, uid_of};
use crate::listing::query;
use crate::options::{HelpForm, Opt, Spec, flag, opt};
use crate::people;
use crate::zone::{self, LocalZone};
use muster_conf::grid_engine::Mapping;
use muster_conf::options::values::time;
use muster_model::grid_engine as marks;
use muster_model::job::{ExitStatus, JobState};
use muster_model::time::Timestamp;
use muster_node_core::signals::signal_text;
use muster_proto::acct::AcctJob;
use record::EndedJob;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read as _};
use std::process::ExitCode;

/// Longest line of an accounting file that is read as one.
const LINE_BYTES_MAX: u64 = 1 << 20;

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
    opt("ar", "id", "jobs of advance reservations").optional(),
    opt("A", "account_string", "jobs of this account string").optional(),
    opt("b", "time", "jobs started after"),
    opt("d", "days", "jobs started during the last days"),
    opt("D", "department", "jobs of departments")
        .optional()
        .partly("all are of defaultdepartment"),
    opt("e", "time", "jobs started before"),
    flag("E", "the end of a job counts, not its start"),
    opt(
        "f",
        "file",
        "an accounting file of Grid Engine in place of accounting; - is standard input",
    ),
    opt("g", "group", "jobs of this group").optional(),
    opt("h", "host", "jobs of this host").optional(),
    opt("j", "job", "jobs by number or name, all of each").optional(),
    opt(
        "l",
        "resources",
        "jobs of queues that have these resources",
    )
    .partly("generic resources, features, licenses, memory, slots, h_rt, processors, names and architecture"),
    flag("m", "master tasks only, of a file: a job of accounting has one record"),
    opt("o", "owner", "jobs of this user").optional(),
    opt("u", "owner", "as -o").optional(),
    opt("pe", "name", "jobs of parallel environments").optional(),
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
    let owner = Owner::read(parsed);
    if parsed.has("t") && wanted.is_empty() {
        let text = "error: -t option requires -j option with an argument";
        return Err(fail(text, 1));
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
    let queues = queues_with_resources(parsed, &mapping, &mut client)?;
    let fits = |job: &EndedJob| {
        let at = if parsed.has("E") { job.end } else { job.start };
        let in_window = at.is_some_and(|at| {
            window.0.is_none_or(|from| at >= from) && window.1.is_none_or(|to| at <= to)
        });
        let is_named = wanted.is_empty()
            || named.iter().any(|one| match one.job {
                Some(id) => job.number == id || job.own_number == id,
                None => fits(&one.text, &job.name),
            });
        let is_task = tasks.is_none_or(|tasks| job.task.is_some_and(|task| tasks.has(task)));
        let is_in_queue = queues.as_ref().is_none_or(|known| {
            let instance = format!("{}@{}", job.queue, job.host);
            known.contains(&instance)
        });
        job.end.is_some()
            && job.start.is_some()
            && in_window
            && is_named
            && is_task
            && is_in_queue
            && !(parsed.has("m") && job.is_slave)
            && owner.has(job)
            && fields_fit(parsed, job)
    };
    let mut jobs = Vec::new();
    let mut found = BTreeSet::new();
    if let Some(path) = parsed.last("f") {
        jobs.extend(of_file(path)?.into_iter().filter(fits));
        return finish(parsed, &jobs, &named, &ctx);
    }
    for query in question::queries(parsed, &named, window, &mapping, &ctx.partitions) {
        let answered = query::accounting_in_parts(&mut client, query, |part, _| {
            let new = part
                .into_iter()
                .filter(|job| found.insert((job.id, job.restarts)));
            let own = new.map(|job| EndedJob::of_job(&job, &mapping, &ctx));
            jobs.extend(own.filter(fits));
        });
        answered.map_err(|e| unreachable(&e))?;
    }
    jobs.sort_by_key(|job| job.end);
    finish(parsed, &jobs, &named, &ctx)
}

/// Prints jobs, or the sums of them.
fn finish(
    parsed: &Parsed,
    jobs: &[EndedJob],
    named: &[selection::JobOperand],
    ctx: &Ctx,
) -> Result<ExitCode, ExitCode> {
    let wanted = parsed.last("j").unwrap_or_default();
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
        for job in jobs {
            job.print(&mut text, ctx);
        }
    }
    // Records of all jobs are followed by the sums.
    if wanted.is_empty() {
        text.push_str(&summary(parsed, jobs));
    }
    crate::listing::print(&text);
    Ok(ExitCode::SUCCESS)
}

/// Names of the queues on hosts that have the resources of `-l`; none without it.
fn queues_with_resources(
    parsed: &Parsed,
    mapping: &Mapping,
    client: &mut Client,
) -> Result<Option<Vec<String>>, ExitCode> {
    if !parsed.has("l") {
        return Ok(None);
    }
    let ctx = site::cluster(client).map_err(|e| unreachable(&e))?;
    let mut known = queues::of_cluster(&ctx, mapping, &[]);
    matching::choose(&mut known, parsed, mapping, client)?;
    Ok(Some(known.iter().map(queues::Instance::name).collect()))
}

/// The jobs of an accounting file of Grid Engine, in its order; `-` is standard input. Lines that are none are left out.
fn of_file(path: &str) -> Result<Vec<EndedJob>, ExitCode> {
    let opened: std::io::Result<Box<dyn BufRead>> = match path {
        "-" => Ok(Box::new(std::io::stdin().lock())),
        path => std::fs::File::open(path).map(|file| Box::new(BufReader::new(file)) as _),
    };
    let unable = |e: &std::io::Error| {
        let why = e.raw_os_error().map_or_else(
            || e.to_string(),
            |number| nix::errno::Errno::from_raw(number).desc().to_owned(),
        );
        fail(&format!("{path}: {why}"), 1)
    };
    let mut reader = opened.map_err(|e| unable(&e))?;
    let mut jobs = Vec::new();
    let mut line = Vec::new();
    loop {
        line.clear();
        let mut bounded = reader.by_ref().take(LINE_BYTES_MAX);
        if bounded
            .read_until(b'\n', &mut line)
            .map_err(|e| unable(&e))?
            == 0
        {
            return Ok(jobs);
        }
        let text = String::from_utf8_lossy(&line);
        jobs.extend(EndedJob::of_line(text.trim_end()).filter(|_| !text.starts_with('#')));
    }
}

/// The jobs that `-o` or `-u` selects, by owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner<'p> {
    Any,
    /// The user who is named, by name or number.
    Uid(u32),
    /// Users whose names fit, and one whom the system does not know any more: accounting keeps the names.
    Named(&'p str),
}

impl Owner<'_> {
    fn read(parsed: &Parsed) -> Owner<'_> {
        match OWNER.pattern(parsed) {
            None => Owner::Any,
            Some(pattern) if super::is_pattern(pattern) => Owner::Named(pattern),
            Some(name) => uid_of(name).map_or(Owner::Named(name), Owner::Uid),
        }
    }

    fn has(self, job: &EndedJob) -> bool {
        match self {
            Owner::Any => true,
            Owner::Uid(uid) => match job.uid {
                Some(own) => own == uid,
                None => people::user_of_uid(uid).is_some_and(|user| user.name == job.owner),
            },
            Owner::Named(pattern) => fits(pattern, &job.owner),
        }
    }
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

/// Whether a job has what the options say of its fields, but for the owner.
fn fields_fit(parsed: &Parsed, job: &EndedJob) -> bool {
    let mut columns = COLUMNS.iter().filter(|own| own.title != OWNER.title);
    columns.all(|column| match column.pattern(parsed) {
        None => true,
        Some(pattern) => {
            let value = (column.value)(job);
            match pattern.split_once('@').filter(|_| column.options == ["q"]) {
                Some((queue, at)) => fits(queue, &value) && fits(at, &job.host),
                None => fits(pattern, &value),
            }
        }
    })
}

fn account(job: &AcctJob) -> &str {
    if job.comment.is_empty() {
        "sge"
    } else {
        &job.comment
    }
}

/// The department of all users.
const DEPARTMENT: &str = "defaultdepartment";

fn project(job: &AcctJob) -> &str {
    match job.account.as_str() {
        "" => "NONE",
        account => account,
    }
}

/// Value of a request of a job of the Grid Engine commands.
fn asked<'j>(job: &'j AcctJob, name: &str) -> Option<&'j str> {
    let found = job.grid_engine.iter().find(|(key, _)| key == name);
    found.map(|(_, value)| value.as_str())
}

fn granted_pe(job: &AcctJob) -> &str {
    let pe = asked(job, marks::PE).and_then(|pe| pe.split(' ').next());
    pe.unwrap_or("NONE")
}

/// The category of a job in Grid Engine's scheduler: the requests, in its order and with times in seconds.
fn category(job: &AcctJob) -> String {
    let mut parts = Vec::new();
    if let Some(queues) = asked(job, marks::HARD_QUEUES) {
        parts.push(format!("-q {queues}"));
    }
    if let Some(list) = asked(job, marks::HARD) {
        parts.push(format!("-l {}", in_category(list)));
    }
    if let Some(list) = asked(job, marks::SOFT) {
        parts.push(format!("-soft -l {}", in_category(list)));
    }
    if asked(job, marks::COMMAND).is_some_and(|command| command != "qsub") {
        parts.push("-I y".to_owned());
    }
    if let Some((pe, least)) = asked(job, marks::PE).and_then(|pe| pe.split_once(' ')) {
        let slots = asked(job, marks::PE_RANGE).unwrap_or(least);
        parts.push(format!("-pe {pe} {slots}"));
    }
    match parts.is_empty() {
        true => "NONE".to_owned(),
        false => parts.join(" "),
    }
}

fn in_category(list: &str) -> String {
    let mut requests: Vec<String> = list
        .split(',')
        .map(|request| {
            let (name, value) = request.split_once('=').unwrap_or((request, "TRUE"));
            format!("{name}={}", super::submission::in_seconds(name, value))
        })
        .collect();
    requests.sort();
    requests.join(",")
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
            format!("{:<20} ({name})", exit.shell_code())
        }
    }
}

/// A field that jobs are chosen by, and that has sums.
struct SumColumn {
    options: &'static [&'static str],
    title: &'static str,
    is_number: bool,
    value: fn(&EndedJob) -> String,
}

impl SumColumn {
    const fn text(
        options: &'static [&'static str],
        title: &'static str,
        value: fn(&EndedJob) -> String,
    ) -> SumColumn {
        SumColumn {
            options,
            title,
            is_number: false,
            value,
        }
    }

    const fn number(
        options: &'static [&'static str],
        title: &'static str,
        value: fn(&EndedJob) -> String,
    ) -> SumColumn {
        SumColumn {
            options,
            title,
            is_number: true,
            value,
        }
    }

    /// The pattern that the last of its options gives.
    fn pattern<'p>(&self, parsed: &'p Parsed) -> Option<&'p str> {
        let mut given = parsed.options.iter().rev();
        let last = given.find(|own| self.options.contains(&own.name));
        last.map(OptionArgument::value)
            .filter(|pattern| !pattern.is_empty())
    }

    fn is_asked_for(&self, parsed: &Parsed) -> bool {
        // Queues that are named may be those of hosts.
        let of_queue = self.title == "HOST" && parsed.last("q").is_some_and(|own| !own.is_empty());
        of_queue || self.options.iter().any(|own| parsed.has(own))
    }
}

const OWNER: SumColumn = SumColumn::text(&["o", "u"], "OWNER", |job| job.owner.clone());

/// In Grid Engine's order.
static COLUMNS: [SumColumn; 10] = [
    SumColumn::text(&["h"], "HOST", |job| job.host.clone()),
    SumColumn::text(&["q"], "CLUSTER QUEUE", |job| job.queue.clone()),
    SumColumn::text(&["g"], "GROUP", |job| job.group.clone()),
    OWNER,
    SumColumn::text(&["P"], "PROJECT", |job| job.project.clone()),
    SumColumn::text(&["D"], "DEPARTMENT", |job| job.department.clone()),
    SumColumn::text(&["pe"], "PE", |job| job.granted_pe.clone()),
    SumColumn::number(&["slots"], "SLOTS", |job| job.slots.to_string()),
    SumColumn::number(&["ar"], "AR", |job| {
        job.reservation.unwrap_or(0).to_string()
    }),
    SumColumn::text(&["A"], "ACCOUNT", |job| job.account.clone()),
];

/// The use of jobs that have the same values of the columns.
struct UsageSum {
    key: Vec<String>,
    wall_s: u64,
    user_s: f64,
    system_s: f64,
    cpu_s: f64,
    gib_s: f64,
    io_gib: f64,
    io_wait_s: f64,
}

fn sums(columns: &[&SumColumn], jobs: &[EndedJob]) -> Vec<UsageSum> {
    let mut sums: BTreeMap<Vec<String>, UsageSum> = BTreeMap::new();
    for job in jobs {
        let used = &job.used;
        let key: Vec<String> = columns
            .iter()
            .map(|column| match (column.value)(job) {
                number if column.is_number => format!("{number:>5}"),
                text => text,
            })
            .collect();
        let sum = sums.entry(key.clone()).or_insert_with(|| UsageSum {
            key,
            wall_s: 0,
            user_s: 0.0,
            system_s: 0.0,
            cpu_s: 0.0,
            gib_s: 0.0,
            io_gib: 0.0,
            io_wait_s: 0.0,
        });
        sum.wall_s += used.wall_s;
        sum.user_s += used.user_s;
        sum.system_s += used.system_s;
        sum.gib_s += used.gib_s;
        sum.io_gib += used.io_bytes / f64::from(1 << 30);
        sum.io_wait_s += used.io_wait_s;
        sum.cpu_s += used.cpu_s;
    }
    sums.into_values().collect()
}

/// Sums, for all values of the fields that options name.
fn summary(parsed: &Parsed, jobs: &[EndedJob]) -> String {
    let all = COLUMNS.iter();
    let columns: Vec<&SumColumn> = all.filter(|own| own.is_asked_for(parsed)).collect();
    let sums = sums(&columns, jobs);
    let width = |(at, column): (usize, &&SumColumn)| -> usize {
        let widest = sums.iter().map(|sum| sum.key[at].chars().count()).max();
        let given = column
            .pattern(parsed)
            .map_or(0, |text| text.chars().count());
        match column.is_number {
            true => 5.max(widest.unwrap_or(0)),
            false => column.title.len().max(given).max(widest.unwrap_or(0)),
        }
    };
    let widths: Vec<usize> = columns.iter().enumerate().map(width).collect();
    let line = |cells: &[&str]| -> String {
        let mut text = String::new();
        for ((cell, width), column) in cells.iter().zip(&widths).zip(&columns) {
            let _ = write!(text, "{cell:<width$}");
            // Grid Engine has no blank behind a number of slots that was asked for.
            if column.title != "SLOTS" || column.pattern(parsed).is_none() {
                text.push(' ');
            }
        }
        text
    };
    let titles: Vec<&str> = columns.iter().map(|column| column.title).collect();
    let head = format!(
        "{}{:>13}{:>14}{:>14}{:>14}{:>19}{:>19}{:>19}",
        line(&titles),
        "WALLCLOCK",
        "UTIME",
        "STIME",
        "CPU",
        "MEMORY",
        "IO",
        "IOW"
    );
    let mut text = String::new();
    if columns.is_empty() {
        text.push_str("Total System Usage\n");
    }
    let _ = writeln!(text, "{head}\n{}", "=".repeat(head.len()));
    for sum in &sums {
        let key: Vec<&str> = sum.key.iter().map(String::as_str).collect();
        let (user, system) = (sum.user_s, sum.system_s);
        let _ = writeln!(
            text,
            "{}{:>13}{user:>14.3}{system:>14.3}{:>14.3}{:>19.3}{:>19.3}{:>19.3}",
            line(&key),
            sum.wall_s,
            sum.cpu_s,
            sum.gib_s,
            sum.io_gib,
            sum.io_wait_s
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_model::job::ResourceUsage;

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

    fn ended(account: &str, slots: u32, asked: &[(&str, &str)]) -> AcctJob {
        let own = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        let mut job = crate::sacct::tests::job(7, "x", JobState::Completed, (0, 0));
        (job.comment, job.ntasks) = (account.to_owned(), slots);
        (job.user, job.group) = ("geuser".to_owned(), "geuser".to_owned());
        (job.start, job.end) = (Some(Timestamp(0)), Some(Timestamp(30_000)));
        (job.suspended_ms, job.steps) = (0, Vec::new());
        job.grid_engine = asked.iter().map(own).collect();
        job
    }

    fn recorded(job: &AcctJob) -> EndedJob {
        let ctx = Ctx::bare("c", jiff::tz::TimeZone::UTC);
        EndedJob::of_job(job, &Mapping::default(), &ctx)
    }

    #[test]
    fn requests_are_the_category() {
        let category = |asked| super::category(&ended("", 1, asked));
        assert_eq!(category(&[]), "NONE");
        assert_eq!(
            category(&[
                (marks::HARD, "h_vmem=1G,h_rt=0:5:0"),
                (marks::SOFT, "arch=lx-amd64"),
            ]),
            "-l h_rt=300,h_vmem=1G -soft -l arch=lx-amd64"
        );
        assert_eq!(
            category(&[
                (marks::HARD_QUEUES, "all.q,b.q"),
                (marks::HARD, "h_rt=100,h_vmem=1G"),
                (marks::PE, "mpi 5"),
            ]),
            "-q all.q,b.q -l h_rt=100,h_vmem=1G -pe mpi 5"
        );
        assert_eq!(
            category(&[(marks::PE, "smp 2"), (marks::PE_RANGE, "2-4")]),
            "-pe smp 2-4"
        );
        assert_eq!(
            category(&[(marks::COMMAND, "qrsh"), (marks::HARD, "gpu=1")]),
            "-l gpu=1 -I y"
        );
    }

    /// Reports of the agents of two nodes ended qacct of everybody.
    #[test]
    fn use_beyond_all_bounds_is_shown_as_the_greatest_number() {
        use muster_model::ids::StepNo;
        let usage = ResourceUsage {
            user_us: u64::MAX,
            pages: u64::MAX,
            max_rss_kib: u64::MAX,
            disk_read_bytes: u64::MAX,
            disk_write_bytes: u64::MAX,
            ..ResourceUsage::default()
        };
        let mut job = ended("", 1, &[]);
        let (state, exit) = (JobState::Completed, (0, 0));
        let mut step = crate::sacct::tests::step(StepNo(0), "s", state, exit, 1, 0);
        step.usage = Some(usage);
        job.steps = vec![step.clone(), step];
        let ctx = Ctx::bare("c", jiff::tz::TimeZone::UTC);
        let mut text = String::new();
        recorded(&job).print(&mut text, &ctx);
        assert!(text.contains("ru_majflt    18446744073709551615"), "{text}");
    }

    fn parsed(line: &str) -> Parsed {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        let words_of = crate::grid_engine::arguments::OperandPosition::Mixed;
        crate::grid_engine::arguments::parse(&SPEC, &words, words_of).unwrap()
    }

    /// The query and the choice of jobs read the options in two ways: a number found nothing, and `-o A -u B` asked for A and chose B.
    #[test]
    fn an_owner_is_a_name_or_a_number_and_the_last_one_counts() {
        for (line, owner) in [
            ("", Owner::Any),
            ("-o", Owner::Any),
            ("-o root", Owner::Uid(0)),
            ("-u 0", Owner::Uid(0)),
            ("-o 4000000000", Owner::Uid(4_000_000_000)),
            ("-o root -u nosuchusername", Owner::Named("nosuchusername")),
            ("-u nosuchusername -o root", Owner::Uid(0)),
            ("-o ge*", Owner::Named("ge*")),
        ] {
            assert_eq!(Owner::read(&parsed(line)), owner, "{line}");
        }
        let mut job = recorded(&ended("", 1, &[]));
        job.uid = Some(7);
        for (line, has) in [("-o 7", true), ("-o root", false), ("-u ge*", true)] {
            let parsed = parsed(line);
            let fits = Owner::read(&parsed).has(&job) && fields_fit(&parsed, &job);
            assert_eq!(fits, has, "{line}");
        }
    }

    /// Heads and lines that Grid Engine 8.1.9 printed.
    #[test]
    fn sums_have_a_column_for_each_field_that_is_named() {
        let jobs = [
            ended("", 3, &[(marks::PE, "mpi 3")]),
            ended("acct", 5, &[(marks::PE, "mpi 5")]),
        ];
        let jobs = jobs.map(|job| recorded(&job));
        let summary = |line: &str| super::summary(&parsed(line), &jobs);
        let lines = |line: &str| -> Vec<String> {
            let text = summary(line);
            let lines = text.lines().filter(|line| !line.starts_with('='));
            lines
                .map(|line| line[..line.len() - 99].to_owned())
                .collect()
        };
        assert_eq!(
            lines("-slots -A"),
            [
                "SLOTS ACCOUNT     WALLCLOCK",
                "    3 sge                30",
                "    5 acct               30"
            ]
        );
        assert_eq!(
            lines("-slots"),
            [
                "SLOTS     WALLCLOCK",
                "    3            30",
                "    5            30"
            ]
        );
        assert_eq!(lines("-slots 5")[0], "SLOTS    WALLCLOCK");
        assert_eq!(lines("-pe"), ["PE      WALLCLOCK", "mpi            60"]);
        assert_eq!(
            lines("-D"),
            [
                "DEPARTMENT            WALLCLOCK",
                "defaultdepartment            60"
            ]
        );
        assert_eq!(lines("-ar"), ["AR        WALLCLOCK", "    0            60"]);
        assert_eq!(
            lines("-o nosuchusername")[0],
            "OWNER              WALLCLOCK"
        );
        assert!(summary("").starts_with("Total System Usage\n    WALLCLOCK "));
        let none = super::summary(&parsed(""), &[]);
        assert_eq!(none.lines().count(), 3, "{none}");
    }
}
