//! The columns of sacct, in the order of `sacct --helpformat`.

use crate::listing::account::AcctRow;
use crate::listing::context::Ctx;
use crate::listing::text::{self, put};
use muster_model::ids::StepNo;

/// A column.
pub(crate) struct AcctField {
    /// Its name, which is its header too.
    pub(crate) name: &'static str,
    /// Its width; negative is padded on the right.
    pub(crate) width: i32,
    /// Whether every row has the same value: nothing here has what the column tells.
    pub(crate) constant: bool,
    /// Appends the value.
    pub(crate) render: for<'a> fn(&AcctRow<'a>, &Ctx, &mut String),
}

macro_rules! table {
    ($($name:literal $width:literal $r:ident $c:ident $o:ident => $body:expr;)*) => {
        &[$(AcctField {
            name: $name,
            width: $width,
            constant: crate::listing::format::unused(stringify!($r), stringify!($c)),
            render: |$r: &AcctRow<'_>, $c: &Ctx, $o: &mut String| {
                let _ = ($r, $c, &$o);
                $body
            },
        }),*]
    };
}

/// Columns that `--helpformat` names.
pub(crate) static FIELDS: &[AcctField] = table![
    "Account" 10 r _c o => o.push_str(&r.job.account);
    "AdminComment" 15 r _c o => of_job(r, o, &r.job.admin_comment);
    "AllocCPUS" 10 r _c o => put!(o, "{}", r.cpus());
    "AllocNodes" 10 r _c o => put!(o, "{}", r.step.map_or(r.job.alloc_nodes, |s| s.nodes));
    "AllocTRES" 10 r _c o => r.write_tres(o);
    "AssocID" 7 r _c o => of_job(r, o, "0");
    "AveCPU" 10 r _c o => per_task(r, o, |u| u.user_us + u.system_us, seconds);
    "AveCPUFreq" 10 r _c o => of_step(r, o, "0");
    "AveDiskRead" 14 r _c o => per_task(r, o, |u| u.disk_read_bytes, disk);
    "AveDiskWrite" 14 r _c o => per_task(r, o, |u| u.disk_write_bytes, disk);
    "AvePages" 10 r _c o => per_task(r, o, |u| u.pages, plain);
    "AveRSS" 10 r _c o => per_task(r, o, |u| u.total_rss_kib, |r, o, kib| r.write_kib(o, kib));
    "AveVMSize" 10 r _c o => peaks(r, |u, p| known_kib(r, o, p.total_vsize_kib / tasks_of(u)));
    "BlockID" 16 _r _c _o => ();
    "Cluster" 10 _r c o => o.push_str(&c.cluster);
    "Comment" 14 r _c o => of_job(r, o, &r.job.comment);
    "Constraints" 19 r _c o => of_job(r, o, &r.job.constraint);
    "ConsumedEnergy" 14 r _c o => energy(r, o);
    "ConsumedEnergyRaw" 17 r _c o => energy(r, o);
    "Container" 19 _r _c _o => ();
    "CPUTime" 10 r c o => text::long_duration(o, r.elapsed_s(c) * i64::from(r.cpus()));
    "CPUTimeRAW" 10 r c o => put!(o, "{}", r.elapsed_s(c) * i64::from(r.cpus()));
    "DBIndex" -10 r _c o => put!(o, "{}", r.job.id);
    "DerivedExitCode" 15 r _c o => derived_exit(r, o);
    "Elapsed" 10 r c o => text::long_duration(o, r.elapsed_s(c));
    "ElapsedRaw" 10 r c o => put!(o, "{}", r.elapsed_s(c));
    "Eligible" 19 r c o => c.time_or(o, r.step.map_or(r.job.eligible, |s| Some(s.start)), "Unknown");
    "End" 19 r c o => c.time_or(o, r.end(), "Unknown");
    "ExitCode" 8 r _c o => put!(o, "{}:{}", r.exit().code, r.exit().signal);
    "Flags" 19 r _c o => of_job(r, o, flags(r));
    "GID" 6 r _c o => of_job(r, o, &r.job.gid.to_string());
    "Group" 9 r _c o => of_job(r, o, &r.job.group);
    "JobID" -12 r _c o => r.write_id(o);
    "JobIDRaw" -12 r _c o => r.write_raw_id(o);
    "JobName" 10 r _c o => o.push_str(r.step.map_or(&r.job.name, |s| &s.name));
    "Layout" 9 r _c o => o.push_str(layout(r));
    "MaxDiskRead" 12 r _c o => peaks(r, |_, p| disk(r, o, p.read_bytes.amount));
    "MaxDiskReadNode" 15 r _c o => peaks(r, |_, p| o.push_str(&p.read_bytes.node));
    "MaxDiskReadTask" 15 r _c o => peaks(r, |_, p| put!(o, "{}", p.read_bytes.task));
    "MaxDiskWrite" 12 r _c o => peaks(r, |_, p| disk(r, o, p.write_bytes.amount));
    "MaxDiskWriteNode" 16 r _c o => peaks(r, |_, p| o.push_str(&p.write_bytes.node));
    "MaxDiskWriteTask" 16 r _c o => peaks(r, |_, p| put!(o, "{}", p.write_bytes.task));
    "MaxPages" 8 r _c o => peaks(r, |_, p| put!(o, "{}", p.pages.amount));
    "MaxPagesNode" 12 r _c o => peaks(r, |_, p| o.push_str(&p.pages.node));
    "MaxPagesTask" 14 r _c o => peaks(r, |_, p| put!(o, "{}", p.pages.task));
    "MaxRSS" 10 r _c o => used(r, |u| r.write_kib(o, u.max_rss_kib));
    "MaxRSSNode" 10 r _c o => used(r, |u| o.push_str(&u.max_rss_node));
    "MaxRSSTask" 10 r _c o => used(r, |u| put!(o, "{}", u.max_rss_task));
    "MaxVMSize" 10 r _c o => peaks(r, |_, p| known_kib(r, o, p.vsize_kib.amount));
    "MaxVMSizeNode" 14 r _c o => peaks(r, |_, p| if p.vsize_kib.amount > 0 { o.push_str(&p.vsize_kib.node) });
    "MaxVMSizeTask" 14 r _c o => peaks(r, |_, p| if p.vsize_kib.amount > 0 { put!(o, "{}", p.vsize_kib.task) });
    "McsLabel" 12 r _c o => of_job(r, o, &r.job.mcs_label);
    "MinCPU" 10 r _c o => used(r, |u| seconds(r, o, u.min_cpu_us));
    "MinCPUNode" 10 r _c o => peaks(r, |_, p| o.push_str(&p.min_cpu_us.node));
    "MinCPUTask" 10 r _c o => peaks(r, |_, p| put!(o, "{}", p.min_cpu_us.task));
    "NCPUS" 10 r _c o => put!(o, "{}", r.cpus());
    "NNodes" 8 r _c o => put!(o, "{}", r.nodes());
    "NodeList" 15 r _c o => o.push_str(r.nodelist());
    "NTasks" 8 r _c o => tasks(r, o);
    "Partition" 10 r _c o => of_job(r, o, &r.job.partition);
    "Priority" 10 r _c o => of_job(r, o, &r.job.priority.to_string());
    "QOS" 10 r _c o => of_job(r, o, &r.job.qos);
    "QOSRAW" 6 r c o => of_job(r, o, &c.qos_id(&r.job.qos).to_string());
    "Reason" 22 r _c o => of_job(r, o, reason(r));
    "ReqCPUFreq" 10 r _c o => frequency(r, o);
    "ReqCPUFreqGov" 13 r _c o => frequency(r, o);
    "ReqCPUFreqMax" 13 r _c o => frequency(r, o);
    "ReqCPUFreqMin" 13 r _c o => frequency(r, o);
    "ReqCPUS" 8 r _c o => put!(o, "{}", r.step.map_or(r.job.req_cpus, |s| s.cpus));
    "ReqMem" 10 r _c o => asked_memory(r, o);
    "ReqNodes" 8 r _c o => put!(o, "{}", r.step.map_or(r.job.req_nodes, |s| s.nodes));
    "ReqTRES" 10 r _c o => r.write_tres_asked(o);
    "Reservation" 20 r _c o => of_job(r, o, &r.job.reservation);
    "ReservationId" 8 _r _c _o => ();
    "Reserved" 10 r c o => waited(r, c, o);
    "ResvCPU" 10 r c o => waited_cpus(r, c, o);
    "ResvCPURAW" 10 r c o => waited_cpus_raw(r, c, o);
    "Start" 19 r c o => c.time_or(o, r.start(), "Unknown");
    "State" 10 r _c o => r.write_state(o);
    "Submit" 19 r c o => c.time(o, r.step.map_or(r.job.submit, |s| s.start));
    "SubmitLine" 20 r _c o => if !r.is_batch_step() { o.push_str(r.step.map_or(&r.job.submit_line, |s| &s.submit_line)) };
    "Suspended" 10 r _c o => suspended(r, o);
    "SystemComment" 15 _r _c _o => ();
    "SystemCPU" 10 r _c o => text::cpu_time(o, r.cpu_us().1);
    "Timelimit" 10 r _c o => r.write_limit(o);
    "TimelimitRaw" 10 r _c o => limit_minutes(r, o);
    "TotalCPU" 10 r _c o => text::cpu_time(o, r.cpu_us().0 + r.cpu_us().1);
    "TRESUsageInAve" 14 r _c o => usage_in(r, o, true);
    "TRESUsageInMax" 14 r _c o => most_in(r, o);
    "TRESUsageInMaxNode" 18 r _c o => most_at(r, o, |_, node, _| node.to_owned());
    "TRESUsageInMaxTask" 18 r _c o => most_at(r, o, |_, _, task| task.to_string());
    "TRESUsageInMin" 14 r _c o => used(r, |u| { o.push_str("cpu="); seconds(r, o, u.min_cpu_us); });
    "TRESUsageInMinNode" 18 r _c o => peaks(r, |_, p| put!(o, "cpu={}", p.min_cpu_us.node));
    "TRESUsageInMinTask" 18 r _c o => peaks(r, |_, p| put!(o, "cpu={}", p.min_cpu_us.task));
    "TRESUsageInTot" 14 r _c o => usage_in(r, o, false);
    "TRESUsageOutAve" 15 r _c o => used(r, |u| put!(o, "energy=0,fs/disk={}", u.disk_write_bytes / tasks_of(u)));
    "TRESUsageOutMax" 15 r _c o => peaks(r, |_, p| put!(o, "energy=0,fs/disk={}", p.write_bytes.amount));
    "TRESUsageOutMaxNode" 19 r _c o => peaks(r, |_, p| put!(o, "fs/disk={}", p.write_bytes.node));
    "TRESUsageOutMaxTask" 19 r _c o => peaks(r, |_, p| put!(o, "fs/disk={}", p.write_bytes.task));
    "TRESUsageOutMin" 15 _r _c _o => ();
    "TRESUsageOutMinNode" 19 _r _c _o => ();
    "TRESUsageOutMinTask" 19 _r _c _o => ();
    "TRESUsageOutTot" 15 r _c o => used(r, |u| put!(o, "energy=0,fs/disk={}", u.disk_write_bytes));
    "UID" 6 r _c o => of_job(r, o, &r.job.uid.to_string());
    "User" 9 r _c o => of_job(r, o, &r.job.user);
    "UserCPU" 10 r _c o => text::cpu_time(o, r.cpu_us().0);
    "WCKey" 10 r _c o => of_job(r, o, &r.job.wckey);
    "WCKeyID" 10 r _c o => of_job(r, o, "0");
    "WorkDir" 20 r _c o => of_job(r, o, &r.job.work_dir);
];

/// Columns of later releases, which their clients ask for.
pub(crate) static LATER_FIELDS: &[AcctField] = table![
    "Planned" 10 r c o => waited(r, c, o);
    "PlannedCPU" 10 r c o => waited_cpus(r, c, o);
    "PlannedCPURAW" 13 r c o => waited_cpus_raw(r, c, o);
    "Restarts" 8 r _c o => of_job(r, o, &r.job.restarts.to_string());
    "StdErr" 20 r _c o => of_job(r, o, r.job.stdio.stderr.as_deref().or(r.job.stdio.stdout.as_deref()).unwrap_or(""));
    "StdIn" 20 r _c o => of_job(r, o, r.job.stdio.stdin.as_deref().unwrap_or(if r.job.batch { "/dev/null" } else { "" }));
    "StdOut" 20 r _c o => of_job(r, o, r.job.stdio.stdout.as_deref().unwrap_or(""));
    "Extra" 15 _r _c _o => ();
    "FailedNode" 10 _r _c _o => ();
    "Licenses" 10 _r _c _o => ();
    "JobClass" 15 r _c o => of_job(r, o, &r.job.class);
    "QOSREQ" 10 r _c o => of_job(r, o, &r.job.qos);
];

/// The column of a name, which may be cut short.
pub(crate) fn find(name: &str) -> Option<&'static AcctField> {
    let all = || FIELDS.iter().chain(LATER_FIELDS);
    let starts = |field: &&AcctField| {
        field
            .name
            .get(..name.len())
            .is_some_and(|start| start.eq_ignore_ascii_case(name))
    };
    all()
        .find(|f| f.name.eq_ignore_ascii_case(name))
        .or_else(|| all().find(starts))
        .filter(|_| !name.is_empty())
}

fn of_job(r: &AcctRow<'_>, out: &mut String, value: &str) {
    if r.step.is_none() {
        out.push_str(value);
    }
}

fn of_step(r: &AcctRow<'_>, out: &mut String, value: &str) {
    if r.step.is_some() {
        out.push_str(value);
    }
}

fn used(r: &AcctRow<'_>, write: impl FnOnce(&muster_model::job::ResourceUsage)) {
    if let Some(usage) = r.usage() {
        write(usage);
    }
}

fn peaks(
    r: &AcctRow<'_>,
    write: impl FnOnce(&muster_model::job::ResourceUsage, &muster_model::job::Peaks),
) {
    used(r, |usage| {
        if let Some(peaks) = &usage.peaks {
            write(usage, peaks);
        }
    });
}

/// Virtual memory is looked at while a step runs; of one that nobody looked at nothing is said.
fn known_kib(r: &AcctRow<'_>, out: &mut String, kib: u64) {
    if kib > 0 {
        r.write_kib(out, kib);
    }
}

fn tasks_of(usage: &muster_model::job::ResourceUsage) -> u64 {
    u64::from(usage.tasks.max(1))
}

fn per_task(
    r: &AcctRow<'_>,
    out: &mut String,
    total: fn(&muster_model::job::ResourceUsage) -> u64,
    write: fn(&AcctRow<'_>, &mut String, u64),
) {
    used(r, |u| write(r, out, total(u) / tasks_of(u)));
}

fn plain(_: &AcctRow<'_>, out: &mut String, number: u64) {
    put!(out, "{number}");
}

fn seconds(_: &AcctRow<'_>, out: &mut String, microseconds: u64) {
    text::long_duration(
        out,
        i64::try_from(microseconds / 1_000_000).unwrap_or(i64::MAX),
    );
}

/// Read and written data, in megabytes as Slurm keeps it.
fn disk(r: &AcctRow<'_>, out: &mut String, bytes: u64) {
    if r.shown.exact {
        return match r.shown.keep_units {
            true => put!(out, "{bytes}"),
            false => text::exact_amount(out, bytes),
        };
    }
    let mib = bytes as f64 / 1_048_576.0;
    match mib {
        0.0 => out.push('0'),
        m if m >= 1024.0 => put!(out, "{:.2}G", m / 1024.0),
        m => put!(out, "{m:.2}M"),
    }
}

/// Use of a step's resources, of each task or of all.
fn usage_in(r: &AcctRow<'_>, out: &mut String, average: bool) {
    used(r, |u| {
        let of = |total: u64| if average { total / tasks_of(u) } else { total };
        out.push_str("cpu=");
        seconds(r, out, of(u.user_us + u.system_us));
        put!(out, ",energy=0,fs/disk={},mem=", of(u.disk_read_bytes));
        r.write_kib(out, of(u.total_rss_kib));
        put!(out, ",pages={}", of(u.pages));
        if let Some(kib) = u
            .peaks
            .as_ref()
            .map(|p| p.total_vsize_kib)
            .filter(|kib| *kib > 0)
        {
            out.push_str(",vmem=");
            r.write_kib(out, of(kib));
        }
    });
}

/// The most that a task used.
fn most_in(r: &AcctRow<'_>, out: &mut String) {
    used(r, |u| {
        let peaks = u.peaks.as_ref();
        if let Some(peaks) = peaks {
            put!(out, "energy=0,fs/disk={},", peaks.read_bytes.amount);
        }
        out.push_str("mem=");
        r.write_kib(out, u.max_rss_kib);
        let Some(peaks) = peaks else { return };
        put!(out, ",pages={}", peaks.pages.amount);
        if peaks.vsize_kib.amount > 0 {
            out.push_str(",vmem=");
            r.write_kib(out, peaks.vsize_kib.amount);
        }
    });
}

/// Where it did.
fn most_at(r: &AcctRow<'_>, out: &mut String, show: fn(&str, &str, u32) -> String) {
    used(r, |u| {
        let mut all = vec![("mem", u.max_rss_node.as_str(), u.max_rss_task)];
        if let Some(peaks) = &u.peaks {
            all.insert(
                0,
                ("fs/disk", &peaks.read_bytes.node, peaks.read_bytes.task),
            );
            all.push(("pages", &peaks.pages.node, peaks.pages.task));
            if peaks.vsize_kib.amount > 0 {
                all.push(("vmem", &peaks.vsize_kib.node, peaks.vsize_kib.task));
            }
        }
        let words = all
            .into_iter()
            .map(|(name, node, task)| format!("{name}={}", show(name, node, task)));
        out.push_str(&words.collect::<Vec<_>>().join(","));
    });
}

/// None is measured; a job says nothing of it before it has had a step of srun's.
fn energy(r: &AcctRow<'_>, out: &mut String) {
    let of_srun = |s: &muster_proto::acct::AcctStep| s.step < StepNo::INTERACTIVE;
    if r.step.is_some() || r.job.steps.iter().any(of_srun) {
        out.push('0');
    }
}

/// Scheduler that started it.
fn flags(r: &AcctRow<'_>) -> &'static str {
    match r.job.start {
        Some(_) if r.job.backfilled => "SchedBackfill,StartRecieved",
        Some(_) => "SchedMain,StartRecieved",
        None => "StartRecieved",
    }
}

/// The reason that kept it from running; none for a job that ran, whose state says why it ended.
fn reason<'a>(r: &AcctRow<'a>) -> &'a str {
    match r.job.reason.as_str() {
        "" => "None",
        _ if r.job.start.is_some() => "None",
        reason => reason,
    }
}

fn derived_exit(r: &AcctRow<'_>, out: &mut String) {
    if r.step.is_none() {
        put!(
            out,
            "{}:{}",
            r.job.derived_exit.code,
            r.job.derived_exit.signal
        );
    }
}

fn tasks(r: &AcctRow<'_>, out: &mut String) {
    if let Some(step) = r.step {
        put!(out, "{}", step.tasks);
    }
}

fn frequency(r: &AcctRow<'_>, out: &mut String) {
    out.push_str(if r.is_batch_step() { "0" } else { "Unknown" });
}

/// Distribution of the tasks of a step; unknown for a script.
fn layout<'a>(r: &AcctRow<'a>) -> &'a str {
    match r.step {
        None => "",
        Some(step) if step.distribution.is_empty() => "Unknown",
        Some(step) => &step.distribution,
    }
}

fn asked_memory(r: &AcctRow<'_>, out: &mut String) {
    if r.step.is_none() {
        r.write_mib(out, r.job.req_mem_mib);
    }
}

fn waited(r: &AcctRow<'_>, ctx: &Ctx, out: &mut String) {
    if r.step.is_none() {
        text::long_duration(out, r.waited_s(ctx));
    }
}

fn waited_cpus(r: &AcctRow<'_>, ctx: &Ctx, out: &mut String) {
    if r.step.is_none() {
        text::long_duration(out, r.waited_s(ctx) * i64::from(r.job.req_cpus));
    }
}

fn waited_cpus_raw(r: &AcctRow<'_>, ctx: &Ctx, out: &mut String) {
    if r.step.is_none() {
        put!(out, "{}", r.waited_s(ctx) * i64::from(r.job.req_cpus));
    }
}

fn suspended(r: &AcctRow<'_>, out: &mut String) {
    let ms = if r.step.is_none() {
        r.job.suspended_ms
    } else {
        0
    };
    text::long_duration(out, i64::try_from(ms / 1000).unwrap_or(i64::MAX));
}

fn limit_minutes(r: &AcctRow<'_>, out: &mut String) {
    match r.job.time_limit {
        _ if r.step.is_some() => {}
        muster_model::time::TimeLimit::Minutes(m) => put!(out, "{m}"),
        muster_model::time::TimeLimit::Unlimited => out.push_str("UNLIMITED"),
    }
}
