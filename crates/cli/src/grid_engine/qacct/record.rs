//! A job that has ended, as qacct shows it: from accounting, or from a line of an accounting file of Grid Engine.

use super::{DEPARTMENT, account, category, exit_status, failed, granted_pe, host, project, queue};
use crate::grid_engine::memory;
use crate::listing::context::Ctx;
use muster_conf::grid_engine::Mapping;
use muster_model::ids::JobId;
use muster_model::job::{ExitStatus, ResourceUsage};
use muster_model::time::Timestamp;
use muster_proto::acct::AcctJob;
use std::fmt::Write as _;

/// Bytes of a GiB.
const GIB: f64 = 1_073_741_824.0;

/// The use of a job.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Used {
    pub(super) wall_s: u64,
    pub(super) user_s: f64,
    pub(super) system_s: f64,
    pub(super) cpu_s: f64,
    /// Largest resident memory of a task.
    pub(super) max_rss_bytes: f64,
    /// Other kinds of memory of getrusage: ixrss, ismrss, idrss, isrss.
    pub(super) rss_bytes: [f64; 4],
    /// Counts of getrusage, from minflt to nivcsw.
    pub(super) counts: [u64; 10],
    /// GiB times seconds.
    pub(super) gib_s: f64,
    pub(super) io_bytes: f64,
    pub(super) io_wait_s: f64,
    /// Virtual memory of all tasks.
    pub(super) max_total_bytes: f64,
}

/// A job that has ended.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct EndedJob {
    pub(super) queue: String,
    pub(super) host: String,
    pub(super) group: String,
    pub(super) owner: String,
    /// Number of the owner; a file has the name alone.
    pub(super) uid: Option<u32>,
    pub(super) project: String,
    pub(super) department: String,
    pub(super) name: String,
    /// Number of the job, or of its array.
    pub(super) number: JobId,
    /// Number of the record itself.
    pub(super) own_number: JobId,
    pub(super) task: Option<u32>,
    pub(super) account: String,
    pub(super) priority: String,
    pub(super) submit: Option<Timestamp>,
    pub(super) start: Option<Timestamp>,
    pub(super) end: Option<Timestamp>,
    pub(super) granted_pe: String,
    pub(super) slots: u32,
    pub(super) failed: String,
    pub(super) exit_status: String,
    pub(super) used: Used,
    /// Number of the advance reservation.
    pub(super) reservation: Option<u64>,
    pub(super) reserved: Option<Timestamp>,
    pub(super) category: String,
    /// A task that `qrsh -inherit` started.
    pub(super) is_slave: bool,
}

impl EndedJob {
    /// A job of accounting.
    pub(super) fn of_job(job: &AcctJob, mapping: &Mapping, ctx: &Ctx) -> EndedJob {
        EndedJob {
            queue: queue(job, mapping, ctx),
            host: host(job),
            group: job.group.clone(),
            owner: job.user.clone(),
            uid: Some(job.uid),
            project: project(job).to_owned(),
            department: DEPARTMENT.to_owned(),
            name: job.name.clone(),
            number: job.array.map_or(job.id, |task| task.array),
            own_number: job.id,
            task: job.array.map(|task| task.index),
            account: account(job).to_owned(),
            priority: "0".to_owned(),
            submit: Some(job.submit),
            start: job.start,
            end: job.end,
            granted_pe: granted_pe(job).to_owned(),
            slots: job.ntasks.max(1),
            failed: failed(job.state).to_owned(),
            exit_status: exit_status(job.exit),
            used: used(job),
            reservation: job.reservation.parse().ok(),
            reserved: None,
            category: category(job),
            is_slave: false,
        }
    }

    /// A line of an accounting file, as accounting(5) of Grid Engine 8.1.9 describes it; later versions add fields behind these.
    pub(super) fn of_line(line: &str) -> Option<EndedJob> {
        let fields: Vec<&str> = line.split(':').collect();
        let text = |at: usize| fields.get(at).copied();
        let number = |at: usize| -> Option<f64> { text(at)?.parse().ok() };
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let whole = |at: usize| number(at).map(|number| number as u64);
        // Univa's files have milliseconds.
        let time = |at: usize| -> Option<Timestamp> {
            let value: i64 = text(at)?.parse().ok()?;
            match value {
                1..100_000_000_000 => Some(Timestamp::from_unix_s(value)),
                100_000_000_000.. => Some(Timestamp(value)),
                _ => None,
            }
        };
        // A category or job name of several words may have a colon only in files that are damaged.
        if fields.len() < 45 {
            return None;
        }
        let job = JobId(text(5)?.parse().ok()?);
        let task = whole(35).filter(|task| *task > 0);
        let mut counts = [0; 10];
        for (count, at) in counts.iter_mut().zip(21..31) {
            *count = whole(at)?;
        }
        Some(EndedJob {
            queue: text(0)?.to_owned(),
            host: text(1)?.to_owned(),
            group: text(2)?.to_owned(),
            owner: text(3)?.to_owned(),
            uid: None,
            project: text(31)?.to_owned(),
            department: text(32)?.to_owned(),
            name: text(4)?.to_owned(),
            number: job,
            own_number: job,
            task: task.and_then(|task| u32::try_from(task).ok()),
            account: text(6)?.to_owned(),
            priority: text(7)?.to_owned(),
            submit: time(8),
            start: time(9),
            end: time(10),
            granted_pe: text(33)?.to_owned(),
            slots: u32::try_from(whole(34)?).unwrap_or(u32::MAX),
            failed: reason(whole(11)?),
            exit_status: status(whole(12)?),
            used: Used {
                wall_s: whole(13)?,
                user_s: number(14)?,
                system_s: number(15)?,
                max_rss_bytes: number(16)?,
                rss_bytes: [number(17)?, number(18)?, number(19)?, number(20)?],
                counts,
                cpu_s: number(36)?,
                gib_s: number(37)?,
                io_bytes: number(38)? * GIB,
                io_wait_s: number(40)?,
                max_total_bytes: number(42)?,
            },
            reservation: whole(43).filter(|number| *number > 0),
            reserved: time(44),
            category: text(39)?.to_owned(),
            is_slave: text(41) != Some("NONE"),
        })
    }

    /// All of it, in the rows of `-j`.
    pub(super) fn print(&self, text: &mut String, ctx: &Ctx) {
        let date = |at: Option<Timestamp>, none: &str| {
            at.map_or_else(
                || none.to_owned(),
                |at| ctx.zoned(at).strftime("%a %b %e %H:%M:%S %Y").to_string(),
            )
        };
        let wide = |value: &str| format!("{value:<20}");
        let number = |value: Option<u64>| {
            value.map_or_else(|| "undefined".to_owned(), |value| wide(&value.to_string()))
        };
        text.push_str("==============================================================\n");
        let mut row = |key: &str, value: String| {
            let _ = writeln!(text, "{key:<12} {value}");
        };
        row("qname", wide(&self.queue));
        row("hostname", wide(&self.host));
        row("group", wide(&self.group));
        row("owner", wide(&self.owner));
        row("project", wide(&self.project));
        row("department", wide(&self.department));
        row("jobname", wide(&self.name));
        row("jobnumber", wide(&self.number.to_string()));
        row("taskid", number(self.task.map(u64::from)));
        row("account", wide(&self.account));
        row("priority", wide(&self.priority));
        row("qsub_time", date(self.submit, "-/-"));
        row("start_time", date(self.start, "-/-"));
        row("end_time", date(self.end, "-/-"));
        row("granted_pe", wide(&self.granted_pe));
        row("slots", wide(&self.slots.to_string()));
        row("failed", self.failed.clone());
        row("exit_status", self.exit_status.clone());
        self.used.print(&mut row);
        row("arid", number(self.reservation));
        row("ar_sub_time", date(self.reserved, "undefined"));
        row("category", self.category.clone());
    }
}

impl Used {
    fn print(&self, row: &mut impl FnMut(&str, String)) {
        row("ru_wallclock", format!("{}s", self.wall_s));
        row("ru_utime", format!("{:.3}s", self.user_s));
        row("ru_stime", format!("{:.3}s", self.system_s));
        row("ru_maxrss", amount(self.max_rss_bytes));
        let memory = ["ru_ixrss", "ru_ismrss", "ru_idrss", "ru_isrss"];
        for (key, bytes) in memory.into_iter().zip(self.rss_bytes) {
            row(key, amount(bytes));
        }
        let counted = [
            "ru_minflt",
            "ru_majflt",
            "ru_nswap",
            "ru_inblock",
            "ru_oublock",
            "ru_msgsnd",
            "ru_msgrcv",
            "ru_nsignals",
            "ru_nvcsw",
            "ru_nivcsw",
        ];
        for (key, count) in counted.into_iter().zip(self.counts) {
            row(key, format!("{count:<20}"));
        }
        row("cpu", format!("{:.3}s", self.cpu_s));
        row("mem", amount(self.gib_s * GIB) + "s");
        row("io", amount(self.io_bytes));
        row("iow", format!("{:.3}s", self.io_wait_s));
        row("maxvmem", amount(self.max_total_bytes));
    }
}

/// The use of a job of accounting.
fn used(job: &AcctJob) -> Used {
    let mut sum = ResourceUsage::default();
    let (mut max_total_kib, mut gib_s) = (0, 0.0);
    for usage in job.steps.iter().filter_map(|step| step.usage.as_ref()) {
        sum.add(usage);
        max_total_kib = memory::total_kib(usage).max(max_total_kib);
        gib_s += memory::gib_seconds(usage);
    }
    #[allow(clippy::cast_precision_loss)]
    let float = |number: u64| number as f64;
    let seconds = |us: u64| float(us) / 1e6;
    let wall_ms = job
        .end
        .zip(job.start)
        .map_or(0, |(end, start)| end.since_ms(start));
    let mut counts = [0; 10];
    counts[1] = sum.pages;
    Used {
        wall_s: wall_ms.saturating_sub(job.suspended_ms) / 1000,
        user_s: seconds(sum.user_us),
        system_s: seconds(sum.system_us),
        cpu_s: seconds(sum.user_us) + seconds(sum.system_us),
        max_rss_bytes: float(sum.max_rss_kib) * 1024.0,
        rss_bytes: [0.0; 4],
        counts,
        gib_s,
        io_bytes: float(sum.disk_read_bytes.saturating_add(sum.disk_write_bytes)),
        io_wait_s: 0.0,
        max_total_bytes: float(max_total_kib) * 1024.0,
    }
}

/// `4.746MB`.
fn amount(mut amount: f64) -> String {
    for unit in ["B", "KB", "MB", "GB"] {
        if amount < 1024.0 {
            return format!("{amount:.3}{unit}");
        }
        amount /= 1024.0;
    }
    format!("{amount:.3}TB")
}

/// An exit status of a file: above 128 it is that of a signal.
fn status(code: u64) -> String {
    let code = u32::try_from(code).unwrap_or(u32::MAX);
    match code.saturating_sub(128) {
        signal @ 1..=64 => exit_status(ExitStatus { signal, code: 0 }),
        _ => exit_status(ExitStatus { signal: 0, code }),
    }
}

/// Why a job failed, by Grid Engine's number.
fn reason(number: u64) -> String {
    let why = match number {
        0 => return "0    ".to_owned(),
        1 => "assumedly before job",
        3 => "before writing config",
        4 => "before writing PID",
        6 => "setting processor set",
        7 => "before prolog",
        8 => "in prolog",
        9 => "before pestart",
        10 => "in pestart",
        11 => "before job",
        12 => "before pestop",
        13 => "in pestop",
        14 => "before epilog",
        15 => "in epilog",
        16 => "releasing processor set",
        17 => "through signal",
        18 => "shepherd returned error",
        19 => "before writing exit_status",
        20 => "found unexpected error file",
        21 => "in recognizing job",
        24 => "migrating (checkpointing jobs)",
        25 => "rescheduling",
        26 => "opening input/output file",
        27 => "searching requested shell",
        28 => "changing into working directory",
        29 => "AFS setup",
        30 => "application error returned",
        31 => "accessing sgepasswd file",
        36 => "checking configured daemons",
        37 => "qmaster enforced h_rt, h_cpu, or h_vmem limit",
        38 => "adding supplementary group",
        100 => "assumedly after job",
        _ => "unknown reason",
    };
    format!("{number:<3} : {why}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::tz::TimeZone;

    /// A line that Grid Engine 8.1.9 wrote, and what its qacct made of it.
    #[test]
    fn a_line_of_a_file_is_shown_as_grid_engine_shows_it() {
        let line = "all.q:vm:geuser:geuser:Z:7000028:sge:0:1796062780:1796062780:1796062781:100:137:1:0.000995:0.006023:\
                    5000.000000:0:0:0:0:527:0:0:0.000000:32:0:0:0:4:2:NONE:defaultdepartment:smp:2:3:0.007018:0.000000:\
                    0.000020:-l h_rt=600:0.000000:NONE:3645440.000000:7:1796062000";
        let record = EndedJob::of_line(line).unwrap();
        let ctx = Ctx::bare("c", TimeZone::UTC);
        let mut text = String::new();
        record.print(&mut text, &ctx);
        for row in [
            "qname        all.q               ",
            "jobnumber    7000028             ",
            "taskid       3                   ",
            "start_time   Mon Nov 30 18:19:40 2026",
            "granted_pe   smp                 ",
            "slots        2                   ",
            "failed       100 : assumedly after job",
            "exit_status  137                  (Killed)",
            "ru_wallclock 1s",
            "ru_utime     0.001s",
            "ru_maxrss    4.883KB",
            "ru_minflt    527                 ",
            "ru_inblock   0                   ",
            "ru_oublock   32                  ",
            "ru_nivcsw    2                   ",
            "cpu          0.007s",
            "mem          0.000Bs",
            "io           20.972KB",
            "maxvmem      3.477MB",
            "arid         7                   ",
            "category     -l h_rt=600",
        ] {
            assert!(text.contains(&format!("{row}\n")), "{row}\n{text}");
        }
        for wrong in ["", "#", "a:b", &line.replace("7000028", "x"), &line[..200]] {
            assert_eq!(EndedJob::of_line(wrong), None, "{wrong}");
        }
        assert_eq!(status(3), "3                   ");
        assert_eq!(status(4_294_967_295), "4294967295          ");
        assert_eq!(reason(0), "0    ");
        assert_eq!(reason(21), "21  : in recognizing job");
    }
}
