//! Accounting as JSON and YAML, in both layouts.

use crate::listing::account::{AcctRow, AmountStyle};
use crate::listing::context::Ctx;
use crate::listing::document::{Dialect, Writer, document};
use crate::listing::text::collect;
use muster_model::hostlist;
use muster_model::ids::StepNo;
use muster_model::time::{TimeLimit, Timestamp};
use muster_model::usage::{Peak, ResourceUsage};
use muster_proto::acct::{AcctJob, AcctStep};

/// Appends a document with the jobs and their steps.
pub(crate) fn write(out: &mut String, dialect: Dialect, rows: &[AcctRow<'_>], ctx: &Ctx) {
    document(out, dialect, "sacct", ctx, |w| jobs(w, rows, ctx));
}

/// Writes the main part of the document.
pub(crate) fn jobs(w: &mut Writer<'_>, rows: &[AcctRow<'_>], ctx: &Ctx) {
    w.list("jobs", |w| items(w, rows, ctx));
}

/// Writes items of the list of jobs.
pub(crate) fn items(w: &mut Writer<'_>, rows: &[AcctRow<'_>], ctx: &Ctx) {
    for row in rows {
        w.item(|w| job(w, row, ctx));
    }
}

/// Writes running jobs with the steps that were measured: sstat's document, whose steps are those of sacct's.
pub(crate) fn write_measured(w: &mut Writer<'_>, jobs: &[AcctJob], ctx: &Ctx) {
    w.list("jobs", |w| {
        for job in jobs {
            w.item(|w| {
                w.raw("job_id", job.id.0);
                w.map("array", |w| array(w, job));
                w.text("name", &job.name);
                w.text("user", &job.user);
                w.list("steps", |w| {
                    for step in &job.steps {
                        let row = AcctRow {
                            job,
                            step: Some(step),
                            shown: AmountStyle::default(),
                        };
                        w.item(|w| one_step(w, &row, step, ctx));
                    }
                });
            });
        }
    });
}

/// A text, or null in the old layout.
fn text_or_null(w: &mut Writer<'_>, key: &str, text: &str) {
    if text.is_empty() && w.is_old() {
        w.raw(key, "null");
    } else {
        w.text(key, text);
    }
}

fn job(w: &mut Writer<'_>, row: &AcctRow<'_>, ctx: &Ctx) {
    let job = row.job;
    w.text("account", &job.account);
    w.map("comment", |w| {
        text_or_null(w, "administrator", &job.admin_comment);
        text_or_null(w, "job", &job.comment);
        text_or_null(w, "system", "");
    });
    w.raw("allocation_nodes", job.alloc_nodes);
    w.map("array", |w| array(w, job));
    w.map("association", |w| {
        w.text("account", &job.account);
        w.text("cluster", &ctx.cluster);
        text_or_null(w, "partition", "");
        w.text("user", &job.user);
        if !w.has_plain_states() {
            w.raw("id", 0);
        }
    });
    if !w.is_old() {
        w.text("block", "");
    }
    w.text("cluster", &ctx.cluster);
    w.text("constraints", &job.constraint);
    text_or_null(w, "container", "");
    let pending = job.start.is_none() && job.end.is_none();
    w.exit("derived_exit_code", job.derived_exit, pending);
    w.map("time", |w| times(w, row, ctx));
    w.exit("exit_code", job.exit, pending);
    if !w.is_old() {
        w.text("extra", "");
        w.text("failed_node", "");
    }
    w.list("flags", |_| {});
    w.text("group", &job.group);
    w.map("het", |w| {
        w.raw("job_id", job.het.map_or(0, |part| part.leader.0));
        let offset = job.het.map(|part| u64::from(part.offset));
        w.number("job_offset", offset, "null");
    });
    w.raw("job_id", job.id.0);
    w.text("name", &job.name);
    if !w.is_old() {
        w.text("licenses", "");
    }
    w.map("mcs", |w| w.text("label", &job.mcs_label));
    w.text("nodes", row.nodelist());
    w.text("partition", &job.partition);
    rest(w, row, ctx);
}

fn array(w: &mut Writer<'_>, job: &AcctJob) {
    w.raw("job_id", job.array.map_or(0, |task| task.array.0));
    w.map("limits", |w| {
        w.map("max", |w| w.map("running", |w| w.raw("tasks", 0)));
    });
    let pending = job
        .array_pending
        .as_deref()
        .map(|p| p.trim_matches(['[', ']']));
    if w.is_old() {
        text_or_null(w, "task", pending.unwrap_or(""));
    }
    let index = job
        .array
        .filter(|_| pending.is_none())
        .map(|task| u64::from(task.index));
    w.number("task_id", index, "null");
    if !w.is_old() {
        w.text("task", pending.unwrap_or(""));
    }
}

fn seconds(at: Option<Timestamp>) -> i64 {
    at.map_or(0, Timestamp::unix_s)
}

fn cpu(w: &mut Writer<'_>, key: &str, microseconds: u64) {
    w.map(key, |w| {
        w.raw("seconds", microseconds / 1_000_000);
        w.raw("microseconds", microseconds % 1_000_000);
    });
}

fn times(w: &mut Writer<'_>, row: &AcctRow<'_>, ctx: &Ctx) {
    let job = row.job;
    w.raw("elapsed", row.elapsed_s(ctx));
    w.raw("eligible", seconds(job.eligible));
    w.raw("end", seconds(row.end()));
    if !w.is_old() {
        let waited = u64::try_from(row.waited_s(ctx)).unwrap_or(0);
        w.limit("planned", Some(waited), false);
    }
    w.raw("start", seconds(row.start()));
    w.raw("submission", job.submit.unix_s());
    w.raw("suspended", job.suspended_ms / 1000);
    let (user, system) = row.cpu_us();
    cpu(w, "system", system);
    match job.time_limit {
        TimeLimit::Minutes(minutes) => w.number("limit", Some(u64::from(minutes)), "null"),
        TimeLimit::Unlimited if w.is_old() => w.raw("limit", "null"),
        TimeLimit::Unlimited => w.limit("limit", None, true),
    }
    cpu(w, "total", user + system);
    cpu(w, "user", user);
}

fn state(w: &mut Writer<'_>, key: &str, name: &str) {
    if w.has_plain_states() {
        w.text(key, name);
    } else {
        w.texts(key, [name]);
    }
}

fn killer(w: &mut Writer<'_>, by: Option<u32>, ctx: &Ctx) {
    match by {
        Some(uid) => w.text("kill_request_user", &ctx.user_name(uid)),
        None => text_or_null(w, "kill_request_user", ""),
    }
}

fn rest(w: &mut Writer<'_>, row: &AcctRow<'_>, ctx: &Ctx) {
    let job = row.job;
    w.number("priority", Some(u64::from(job.priority)), "0");
    w.text("qos", &job.qos);
    w.map("required", |w| {
        w.raw("CPUs", job.req_cpus);
        if w.has_plain_states() {
            w.raw("memory", job.req_mem_mib);
        }
        if !w.is_old() {
            w.limit("memory_per_cpu", None, false);
            let nodes = u64::from(job.req_nodes.max(1));
            w.limit("memory_per_node", Some(job.req_mem_mib / nodes), false);
        }
    });
    killer(w, job.cancelled_by, ctx);
    if !w.is_old() {
        w.raw("restart_cnt", job.restarts);
    }
    w.map("reservation", |w| {
        w.raw("id", 0);
        if w.is_old() {
            w.raw("name", 0);
        } else {
            w.text("name", &job.reservation);
        }
        if w.version() >= 43 {
            w.text("requested", &job.reservation);
        }
    });
    if !w.is_old() {
        w.text("script", "");
        for (key, file) in [
            ("stdin_expanded", &job.stdio.stdin),
            ("stdout_expanded", &job.stdio.stdout),
            ("stderr_expanded", &job.stdio.stderr),
        ] {
            w.text_or_empty(key, file.as_deref());
            if w.version() >= 42 {
                // Accounting has the paths alone.
                let given = key.trim_end_matches("_expanded");
                w.text_or_empty(given, file.as_deref());
            }
        }
        later(w, job);
    }
    w.map("state", |w| {
        state(w, "current", row.state_name());
        w.text(
            "reason",
            if job.reason.is_empty() {
                "None"
            } else {
                &job.reason
            },
        );
    });
    w.list("steps", |w| {
        for step in &job.steps {
            let row = AcctRow {
                step: Some(step),
                ..*row
            };
            w.item(|w| one_step(w, &row, step, ctx));
        }
    });
    if !w.is_old() {
        w.text("submit_line", &job.submit_line);
    }
    w.map("tres", |w| {
        w.list("allocated", |w| job_tres(w, job, true));
        w.list("requested", |w| job_tres(w, job, false));
    });
    if !w.is_old() {
        w.text("used_gres", "");
    }
    w.text("user", &job.user);
    w.map("wckey", |w| {
        w.text("wckey", &job.wckey);
        w.list("flags", |_| {});
    });
    w.text("working_directory", &job.work_dir);
}

/// Members that came with v0.0.42 and later.
fn later(w: &mut Writer<'_>, job: &AcctJob) {
    if w.version() < 42 {
        return;
    }
    w.raw("hold", false);
    w.text("qosreq", &job.qos);
    if w.version() >= 43 {
        w.raw("segment_size", 0);
    }
    if w.version() >= 45 {
        for key in ["sluid", "original_sluid", "exclusive", "oversubscribe"] {
            w.text(key, "");
        }
    }
}

fn tres(w: &mut Writer<'_>, kind: &str, name: &str, id: u32, count: u64) {
    w.item(|w| {
        w.text("type", kind);
        text_or_null(w, "name", name);
        w.raw("id", id);
        w.raw("count", count);
    });
}

fn job_tres(w: &mut Writer<'_>, job: &AcctJob, held: bool) {
    let (cpus, mib, nodes) = if held {
        (job.alloc_cpus, job.alloc_mem_mib, job.alloc_nodes)
    } else {
        (job.req_cpus, job.req_mem_mib, job.req_nodes)
    };
    if nodes == 0 {
        return;
    }
    tres(w, "cpu", "", 1, u64::from(cpus));
    if mib > 0 {
        tres(w, "mem", "", 2, mib);
    }
    tres(w, "node", "", 4, u64::from(nodes));
    tres(w, "billing", "", 5, u64::from(cpus));
    let devices = if held { &job.gres } else { &job.req_gres };
    for (number, (name, count)) in (1001..).zip(devices) {
        let (kind, name) = name.split_once('/').unwrap_or(("gres", name));
        tres(w, kind, name, number, *count);
    }
}

fn one_step(w: &mut Writer<'_>, row: &AcctRow<'_>, step: &AcctStep, ctx: &Ctx) {
    w.map("time", |w| {
        let (user, system) = row.cpu_us();
        w.raw("elapsed", row.elapsed_s(ctx));
        w.time("end", row.end());
        w.time("start", row.start());
        if w.version() >= 43 {
            w.limit("limit", None, false);
        }
        w.raw("suspended", 0);
        cpu(w, "system", system);
        cpu(w, "total", user + system);
        cpu(w, "user", user);
    });
    w.exit("exit_code", step.exit, step.end.is_none());
    w.map("nodes", |w| {
        w.raw("count", step.nodes);
        w.text("range", &step.nodelist);
        w.texts("list", hostlist::parse(&step.nodelist).unwrap_or_default());
    });
    w.map("tasks", |w| w.raw("count", step.tasks));
    if w.version() < 45 {
        text_or_null(w, "pid", "");
    } else {
        w.text("submit_line", "");
    }
    w.map("CPU", |w| {
        w.map("requested_frequency", |w| {
            w.number("min", None, "null");
            w.number("max", None, "null");
        });
        if w.is_old() {
            w.list("governor", |_| {});
        } else {
            w.text("governor", "");
        }
    });
    killer(w, step.cancelled_by, ctx);
    state(w, "state", step.state.name());
    w.map("statistics", |w| {
        w.map("CPU", |w| w.raw("actual_frequency", 0));
        w.map("energy", |w| w.number("consumed", Some(0), "0"));
    });
    w.map("step", |w| step_id(w, row, step));
    w.map("task", |w| {
        w.text(
            "distribution",
            if step.distribution.is_empty() {
                "Unknown"
            } else {
                &step.distribution
            },
        );
    });
    w.map("tres", |w| usage(w, row, step));
}

fn step_id(w: &mut Writer<'_>, row: &AcctRow<'_>, step: &AcctStep) {
    if w.is_old() {
        w.raw("job_id", row.job.id.0);
        w.map("het", |w| w.raw("component", "null"));
        if step.step.0 < StepNo::INTERACTIVE.0 {
            w.raw("id", step.step.0);
        } else {
            w.text("id", &step.step.to_string());
        }
    } else if w.has_plain_states() {
        w.map("id", |w| {
            w.raw("job_id", row.job.id.0);
            w.text("step_id", &step.step.to_string());
        });
    } else {
        w.text("id", &collect(|o| row.write_raw_id(o)));
    }
    w.text("name", &step.name);
    if w.version() >= 43 {
        for key in ["stdin", "stdout", "stderr"] {
            w.text(key, "");
            w.text(&format!("{key}_expanded"), "");
        }
    }
}

/// The use of a step's resources: input under `requested`, output under `consumed`, as in Slurm.
fn usage(w: &mut Writer<'_>, row: &AcctRow<'_>, step: &AcctStep) {
    let used = row.usage();
    let list = |w: &mut Writer<'_>, key: &str, write: fn(&mut Writer<'_>, &ResourceUsage)| {
        w.list(key, |w| {
            if let Some(used) = used {
                write(w, used);
            }
        });
    };
    w.map("requested", |w| {
        list(w, "max", most_in);
        list(w, "min", least_in);
        list(w, "average", |w, u| total_in(w, u, tasks_of(u)));
        list(w, "total", |w, u| total_in(w, u, 1));
    });
    w.map("consumed", |w| {
        list(w, "max", |w, u| {
            if let Some(peaks) = &u.peaks {
                peak(w, FS_DISK, peaks.write_bytes.amount, &peaks.write_bytes);
            }
        });
        w.list("min", |_| {});
        list(w, "average", |w, u| {
            counted(w, FS_DISK, u.disk_write_bytes / tasks_of(u));
        });
        list(w, "total", |w, u| counted(w, FS_DISK, u.disk_write_bytes));
    });
    w.list("allocated", |w| {
        tres(w, "cpu", "", 1, u64::from(step.cpus));
        tres(w, "mem", "", 2, step.mem_mib);
        tres(w, "node", "", 4, u64::from(step.nodes));
    });
}

/// A kind of resource in the records of steps.
struct StepResource {
    /// Its type.
    kind: &'static str,
    /// Its name, of those of a type.
    name: &'static str,
    /// Its number in Slurm's database.
    number: u32,
}

const CPU: StepResource = StepResource::of("cpu", "", 1);
const MEM: StepResource = StepResource::of("mem", "", 2);
const FS_DISK: StepResource = StepResource::of("fs", "disk", 6);
const VMEM: StepResource = StepResource::of("vmem", "", 7);
const PAGES: StepResource = StepResource::of("pages", "", 8);

impl StepResource {
    const fn of(kind: &'static str, name: &'static str, number: u32) -> StepResource {
        StepResource { kind, name, number }
    }
}

fn tasks_of(used: &ResourceUsage) -> u64 {
    u64::from(used.tasks.max(1))
}

fn counted(w: &mut Writer<'_>, of: StepResource, count: u64) {
    tres(w, of.kind, of.name, of.number, count);
}

/// An amount of the task with the most or the least.
fn peak(w: &mut Writer<'_>, of: StepResource, count: u64, at: &Peak) {
    w.item(|w| {
        w.text("type", of.kind);
        text_or_null(w, "name", of.name);
        w.raw("id", of.number);
        w.raw("count", count);
        w.text("node", &at.node);
        w.raw("task", at.task);
    });
}

fn most_in(w: &mut Writer<'_>, used: &ResourceUsage) {
    let memory = Peak {
        amount: used.max_rss_kib,
        node: used.max_rss_node.clone(),
        task: used.max_rss_task,
    };
    peak(w, MEM, memory.amount * 1024, &memory);
    let Some(peaks) = &used.peaks else { return };
    peak(w, FS_DISK, peaks.read_bytes.amount, &peaks.read_bytes);
    if peaks.vsize_kib.amount > 0 {
        let bytes = peaks.vsize_kib.amount * 1024;
        peak(w, VMEM, bytes, &peaks.vsize_kib);
    }
    peak(w, PAGES, peaks.pages.amount, &peaks.pages);
}

fn least_in(w: &mut Writer<'_>, used: &ResourceUsage) {
    match &used.peaks {
        Some(peaks) => {
            let at = &peaks.min_cpu_us;
            peak(w, CPU, at.amount / 1000, at);
        }
        None => counted(w, CPU, used.min_cpu_us / 1000),
    }
}

/// Input of all tasks, divided by their number.
fn total_in(w: &mut Writer<'_>, used: &ResourceUsage, tasks: u64) {
    let cpu_ms = (used.user_us + used.system_us) / 1000;
    counted(w, CPU, cpu_ms / tasks);
    counted(w, MEM, used.total_rss_kib * 1024 / tasks);
    counted(w, FS_DISK, used.disk_read_bytes / tasks);
    let peaks = used.peaks.as_ref();
    if let Some(kib) = peaks.map(|p| p.total_vsize_kib).filter(|kib| *kib > 0) {
        counted(w, VMEM, kib * 1024 / tasks);
    }
    counted(w, PAGES, used.pages / tasks);
}
