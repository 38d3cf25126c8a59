//! `scontrol show job` and `scontrol show step`: a record of `Key=value` pairs on indented lines.

use crate::listing::context::Ctx;
use crate::listing::job::{JobRow, Stdio, is_requeued_held, node_estimate};
use crate::listing::job_fields::{expression, star};
use crate::listing::step_fields::StepRow;
use crate::listing::text::{self, put};
use muster_model::job::{GresShare, NodeShare, Reason};
use muster_model::mail::MailOptions;
use muster_model::preemption::PreemptType;
use muster_model::site_option::site_options_text;
use muster_model::spec::{DeviceBinding, JobKind, MemoryAsk};
use muster_model::time::{TimeLimit, Timestamp};

/// Layout of records.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RecordStyle {
    /// `--oneliner`: a record is a line.
    pub(crate) one_line: bool,
    /// `--details`, and given twice.
    pub(crate) details: u32,
}

impl RecordStyle {
    /// Between the lines of a record.
    pub(crate) fn newline(self, out: &mut String) {
        out.push_str(if self.one_line { " " } else { "\n   " });
    }

    /// After a record.
    pub(crate) fn end(self, out: &mut String) {
        out.push_str(if self.one_line { "\n" } else { "\n\n" });
    }
}

/// Appends a job.
pub(crate) fn write_job(out: &mut String, row: &JobRow<'_>, ctx: &Ctx, style: RecordStyle) {
    identity(out, row, ctx, style);
    times(out, row, ctx, style);
    place(out, row, ctx, style);
    resources(out, row, ctx, style);
    files(out, row, ctx, style);
    style.end(out);
}

fn identity(out: &mut String, row: &JobRow<'_>, ctx: &Ctx, style: RecordStyle) {
    let (job, spec) = (row.job, &row.job.spec);
    put!(out, "JobId={} ", job.id);
    if row.in_array() {
        put!(out, "ArrayJobId={} ArrayTaskId=", row.base_id());
        row.write_indices(out, ctx);
        out.push(' ');
        if let Some(limit) = row.throttle() {
            put!(out, "ArrayTaskThrottle={limit} ");
        }
    }
    if let Some(part) = job.het {
        put!(
            out,
            "HetJobId={} HetJobOffset={} ",
            part.leader,
            part.offset
        );
    }
    put!(out, "JobName={}", spec.name);
    style.newline(out);
    if let Some(part) = job.het {
        put!(out, "HetJobIdSet={}", part.id_set());
        style.newline(out);
    }
    let owner = &spec.owner;
    put!(
        out,
        "UserId={}({}) GroupId={}({}) ",
        owner.user,
        owner.uid,
        owner.group,
        owner.gid
    );
    put!(out, "MCS_label={}", row.shown("mcs-label").unwrap_or("N/A"));
    style.newline(out);
    put!(out, "Priority={} Nice={} ", job.priority, spec.nice);
    put!(
        out,
        "Account={} QOS={}",
        spec.account_name(),
        spec.qos_name()
    );
    let tracks = ctx
        .config
        .as_ref()
        .is_some_and(|config| config.order.track_wckeys);
    if let Some(wckey) = spec.wckey.as_ref().filter(|_| tracks) {
        put!(out, " WCKey={wckey}");
    }
    style.newline(out);
    put!(out, "JobState={} Reason=", row.state_name());
    reason(out, row);
    out.push_str(" Dependency=");
    row.write_dependency(out);
    style.newline(out);
    put!(
        out,
        "Requeue={} Restarts={} BatchFlag={} Reboot=0 ExitCode={}:{}",
        row.requeue(),
        job.restarts,
        u8::from(spec.kind == JobKind::Batch),
        job.exit.code,
        job.exit.signal
    );
    if style.details > 0 {
        style.newline(out);
        put!(
            out,
            "DerivedExitCode={}:{}",
            job.derived_exit.code,
            job.derived_exit.signal
        );
    }
    style.newline(out);
}

/// Parsers split records at blanks, so a reason has none.
fn reason(out: &mut String, row: &JobRow<'_>) {
    let start = out.len();
    let detail = row.job.reason_detail.as_deref().filter(|d| !d.is_empty());
    match (row.job.reason, detail) {
        (Reason::RaisedSignal, _) => out.push_str(&row.reason()),
        (_, Some(detail)) if is_requeued_held(row.job) => out.push_str(detail),
        (other, _) => out.push_str(other.name()),
    }
    if let Some(detail) = detail.filter(|_| !is_requeued_held(row.job)) {
        put!(out, ",_{detail}");
    }
    let dense = out[start..].replace(char::is_whitespace, "_");
    out.truncate(start);
    out.push_str(&dense);
}

fn times(out: &mut String, row: &JobRow<'_>, ctx: &Ctx, style: RecordStyle) {
    let (job, spec) = (row.job, &row.job.spec);
    let time = |out: &mut String, key: &str, at: Option<Timestamp>, none: &str| {
        put!(out, "{key}=");
        ctx.time_or(out, at, none);
    };
    out.push_str("RunTime=");
    text::long_duration(out, row.run_time_s(ctx));
    out.push_str(" TimeLimit=");
    limit(out, Some(job.time_limit), "UNLIMITED");
    out.push_str(" TimeMin=");
    limit(out, spec.time_min, "N/A");
    style.newline(out);
    time(out, "SubmitTime", Some(job.submit_time), "Unknown");
    time(
        out,
        " EligibleTime",
        job.eligible_time.or(row.begin(ctx)),
        "Unknown",
    );
    style.newline(out);
    time(
        out,
        "AccrueTime",
        match job.accrual {
            None => job.eligible_time.filter(|at| *at <= ctx.now),
            Some(_) => job.accrues_since(),
        },
        "Unknown",
    );
    style.newline(out);
    if job.resize_time.is_some() {
        time(out, "ResizeTime", job.resize_time, "None");
        style.newline(out);
    }
    let endless = job.time_limit == TimeLimit::Unlimited && job.end_time.is_none();
    time(out, "StartTime", row.start(ctx), "Unknown");
    time(
        out,
        " EndTime",
        row.end(ctx).filter(|_| !endless),
        "Unknown",
    );
    time(out, " Deadline", spec.deadline, "N/A");
    style.newline(out);
    if let Some(entry) = &spec.cron {
        let word = if entry.recurs { "CronJob=Yes " } else { "" };
        put!(out, "{word}CrontabSpec=\"{}\"", entry.schedule);
        style.newline(out);
    }
    let settings = ctx.config.as_ref().map(|c| &c.order.preemption);
    let settings = settings.filter(|s| s.kind != PreemptType::None);
    if let (Some(settings), Some(start), Some(_)) = (settings, job.start_time, &job.alloc) {
        let eligible = start.plus_s(u64::from(settings.exempt_s));
        time(out, "PreemptEligibleTime", Some(eligible), "None");
        let at = job.preempted.as_ref().map(|p| p.at);
        time(out, " PreemptTime", at, "None");
        style.newline(out);
    }
    time(out, "SuspendTime", job.suspend_time, "None");
    put!(out, " SecsPreSuspend={} ", pre_suspend_s(row, ctx));
    time(out, "LastSchedEval", row.last_sched_eval(), "Unknown");
    let backfilled = job.alloc.as_ref().is_some_and(|alloc| alloc.backfilled);
    put!(
        out,
        " Scheduler={}",
        if backfilled { "Backfill" } else { "Main" }
    );
    style.newline(out);
}

/// Seconds it ran before its latest suspension.
fn pre_suspend_s(row: &JobRow<'_>, ctx: &Ctx) -> i64 {
    match row.job.suspend_time {
        Some(_) => row.run_time_s(ctx),
        None => 0,
    }
}

fn limit(out: &mut String, limit: Option<TimeLimit>, none: &str) {
    match limit.and_then(TimeLimit::seconds) {
        Some(seconds) => text::long_duration(out, i64::try_from(seconds).unwrap_or(i64::MAX)),
        None => out.push_str(none),
    }
}

fn place(out: &mut String, row: &JobRow<'_>, ctx: &Ctx, style: RecordStyle) {
    let spec = &row.job.spec;
    out.push_str("Partition=");
    row.write_partition(out);
    put!(
        out,
        " AllocNode:Sid={}:{}",
        spec.submit_host,
        spec.submit_sid
    );
    style.newline(out);
    put!(
        out,
        "ReqNodeList={} ExcNodeList={}",
        compressed(spec.ask.nodelist.as_deref()),
        compressed(spec.ask.exclude.as_deref())
    );
    style.newline(out);
    put!(out, "NodeList={}", row.nodes());
    if let Some(nodes) = row.sched_nodes(ctx) {
        put!(out, " SchedNodeList={nodes}");
    }
    style.newline(out);
    if let Some(first) = row.batch_host() {
        put!(out, "BatchHost={first}");
        style.newline(out);
    }
}

/// A list of nodes as one expression, or that there is none.
fn compressed(list: Option<&str>) -> String {
    let text = text::collect(|out| expression(list, out));
    text::or_null(Some(text.as_str()).filter(|text| !text.is_empty())).to_owned()
}

fn resources(out: &mut String, row: &JobRow<'_>, ctx: &Ctx, style: RecordStyle) {
    let (job, ask) = (row.job, &row.job.spec.ask);
    put!(out, "NumNodes={}", node_estimate(row, ctx));
    if let Some(max) = ask.max_nodes.filter(|_| row.is_pending() && ask.nodes_set) {
        put!(out, "-{max}");
    }
    put!(
        out,
        " NumCPUs={} NumTasks={} CPUs/Task={} ReqB:S:C:T=0:0:",
        row.cpus(),
        row.tasks(),
        ask.cpus_of_task()
    );
    star(ask.cores_per_socket, out);
    out.push(':');
    star(ask.threads_per_core, out);
    style.newline(out);
    out.push_str("TRES=");
    row.write_tres(out, ctx);
    style.newline(out);
    out.push_str("Socks/Node=");
    star(ask.sockets_per_node, out);
    put!(
        out,
        " NtasksPerN:B:S:C={}:0:",
        ask.ntasks_per_node.unwrap_or(0)
    );
    star(ask.ntasks_per_socket, out);
    out.push(':');
    star(ask.ntasks_per_core_bound(), out);
    match ask.thread_spec {
        Some(threads) => put!(out, " ThreadSpec={threads}"),
        None => {
            out.push_str(" CoreSpec=");
            star(ask.core_spec, out);
        }
    }
    style.newline(out);
    if style.details > 0 {
        details(out, row, style);
    }
    let per = match row.memory(ctx) {
        MemoryAsk::PerCpu(_) => "CPU",
        _ => "Node",
    };
    put!(
        out,
        "MinCPUsNode={} MinMemory{per}=",
        row.min_cpus_per_node()
    );
    row.write_min_memory(out, ctx);
    out.push_str(" MinTmpDiskNode=");
    text::memory(out, ask.tmp_disk_mib, false);
    style.newline(out);
    put!(
        out,
        "Features={} DelayBoot=00:00:00",
        text::or_null(ask.constraint.as_deref())
    );
    style.newline(out);
    if let Some(reservation) = &job.spec.reservation {
        put!(out, "Reservation={reservation}");
        style.newline(out);
    }
    put!(
        out,
        "OverSubscribe={} Contiguous={} Licenses={} Network={}",
        row.over_subscribe(ctx),
        u8::from(ask.contiguous),
        text::or_null(job.spec.licenses.as_deref()),
        text::or_null(row.shown("network"))
    );
    style.newline(out);
}

/// Its shares of nodes; neighbours with the same CPUs share a line.
fn details(out: &mut String, row: &JobRow<'_>, style: RecordStyle) {
    let Some(alloc) = row.job.alloc.as_deref().filter(|_| !row.is_pending()) else {
        return;
    };
    out.push_str("JOB_GRES=");
    let start = out.len();
    write_gres(out, alloc.nodes.iter().flat_map(|n| &n.gres));
    if out.len() == start {
        out.push_str("(null)");
    }
    style.newline(out);
    let shares: Vec<&NodeShare> = row.shares().collect();
    let same = |a: &&NodeShare, b: &&NodeShare| {
        a.cpus == b.cpus && a.memory_mib == b.memory_mib && a.gres == b.gres
    };
    for group in shares.chunk_by(same) {
        let names: Vec<&str> = group.iter().map(|s| s.name.as_str()).collect();
        let cpus: Vec<u32> = group[0].cpus.iter().collect();
        put!(
            out,
            "{}Nodes={} CPU_IDs={} Mem={} GRES=",
            if style.one_line { "" } else { "  " },
            muster_model::hostlist::compress(&names),
            muster_model::hostlist::ranges(&cpus),
            group[0].memory_mib
        );
        write_gres_with_ids(out, &group[0].gres);
        style.newline(out);
    }
}

fn write_gres<'a>(out: &mut String, shares: impl Iterator<Item = &'a GresShare>) {
    let mut counts: std::collections::BTreeMap<(&str, Option<&str>), u32> = Default::default();
    for share in shares {
        *counts
            .entry((&share.name, share.kind.as_deref()))
            .or_default() += share.ids.len();
    }
    for (i, ((name, kind), count)) in counts.into_iter().enumerate() {
        let comma = if i > 0 { "," } else { "" };
        match kind {
            Some(kind) => put!(out, "{comma}{name}:{kind}:{count}"),
            None => put!(out, "{comma}{name}:{count}"),
        }
    }
}

fn write_gres_with_ids(out: &mut String, shares: &[GresShare]) {
    for (i, share) in shares.iter().enumerate() {
        if i > 0 {
            out.push(',');
        }
        let ids: Vec<u32> = share.numbers().collect();
        put!(out, "{}", share.name);
        if let Some(kind) = &share.kind {
            put!(out, ":{kind}");
        }
        put!(
            out,
            ":{}(IDX:{})",
            share.ids.len(),
            muster_model::hostlist::ranges(&ids)
        );
    }
}

fn files(out: &mut String, row: &JobRow<'_>, ctx: &Ctx, style: RecordStyle) {
    let spec = &row.job.spec;
    out.push_str("Command=");
    row.write_command(out);
    style.newline(out);
    put!(out, "WorkDir={}", spec.work_dir);
    if style.details > 1 && !spec.submit_line.is_empty() {
        style.newline(out);
        put!(out, "SubmitLine={}", spec.submit_line);
    }
    if let Some(class) = &spec.class {
        style.newline(out);
        put!(out, "JobClass={} ", class.name);
    }
    if let Some(options) = site_options_text(spec) {
        style.newline(out);
        put!(out, "SiteOptions={options} ");
    }
    if let Some(comment) = row.shown("admin-comment") {
        style.newline(out);
        put!(out, "AdminComment={comment} ");
    }
    if let Some(comment) = &spec.comment {
        style.newline(out);
        put!(out, "Comment={comment} ");
    }
    for (key, which) in [
        ("StdErr", Stdio::Err),
        ("StdIn", Stdio::In),
        ("StdOut", Stdio::Out),
    ] {
        if let Some(path) = row.stdio_path(which) {
            style.newline(out);
            put!(out, "{key}={path}");
        }
    }
    if let Some(asked) = spec.ask.switches {
        style.newline(out);
        put!(out, "Switches={}@", asked.count);
        let seconds = i64::try_from(asked.wait_s.unwrap_or(0)).unwrap_or(i64::MAX);
        text::long_duration(out, seconds);
    }
    style.newline(out);
    out.push_str("Power=");
    flags(out, row, style);
    for (key, text) in row.by_devices() {
        style.newline(out);
        put!(out, "{key}={text}");
    }
    let is_sent = |kinds: &str| !kinds.is_empty() && !kinds.eq_ignore_ascii_case("NONE");
    if let Some(MailOptions { types, user, lines }) =
        spec.mail.as_ref().filter(|mail| is_sent(&mail.types))
    {
        style.newline(out);
        out.push_str("MailUser=");
        match (user.as_str(), &ctx.mail_domain) {
            ("", Some(domain)) => put!(out, "{}@{domain}", spec.owner.user),
            ("", None) => out.push_str(&spec.owner.user),
            (user, _) => out.push_str(user),
        }
        put!(out, " MailType={}", mail_types(types));
        if let Some(lines) = lines {
            put!(out, " MailLines={lines}");
        }
    }
    // Slurm's record ends in a line of three blanks.
    style.newline(out);
}

/// Types of mail; the list of all for `ALL`.
fn mail_types(kinds: &str) -> String {
    match kinds.eq_ignore_ascii_case("ALL") {
        true => "INVALID_DEPEND,BEGIN,END,FAIL,REQUEUE,STAGE_OUT".to_owned(),
        false => kinds.to_ascii_uppercase(),
    }
}

/// Unusual settings. Slurm writes nothing between them.
fn flags(out: &mut String, row: &JobRow<'_>, style: RecordStyle) {
    let spec = &row.job.spec;
    let mut flags = String::new();
    let binding = spec.ask.devices.as_ref().map(|devices| devices.binding);
    match binding {
        Some(DeviceBinding::Enforced) => flags.push_str("GresEnforceBind=Yes"),
        Some(DeviceBinding::Disabled) => flags.push_str("GresEnforceBind=No"),
        Some(DeviceBinding::Preferred) | None => {}
    }
    match spec.kill_on_invalid_dep {
        Some(true) => flags.push_str("KillOInInvalidDependent=Yes"),
        Some(false) => flags.push_str("KillOInInvalidDependent=No"),
        None => {}
    }
    if spec.ask.spread {
        flags.push_str("SpreadJob=Yes");
    }
    if !flags.is_empty() {
        style.newline(out);
        out.push_str(&flags);
    }
}

/// Appends a step.
pub(crate) fn write_step(out: &mut String, row: &StepRow<'_>, ctx: &Ctx, style: RecordStyle) {
    let step = row.step;
    out.push_str("StepId=");
    row.write_id(out, ctx);
    put!(out, " UserId={} StartTime=", row.job.job.spec.owner.uid);
    ctx.time(out, step.start_time);
    out.push_str(" TimeLimit=");
    limit(out, step.time_limit, "UNLIMITED");
    style.newline(out);
    put!(
        out,
        "State=RUNNING Partition={} NodeList={}",
        row.job.job.partition,
        step.hostlist
    );
    style.newline(out);
    put!(
        out,
        "Nodes={} CPUs={} Tasks={} Name={} Network=(null)",
        step.nodes,
        step.cpus,
        step.tasks,
        step.name
    );
    style.newline(out);
    out.push_str("TRES=");
    row.write_tres(out);
    style.newline(out);
    out.push_str("ResvPorts=(null)");
    style.newline(out);
    out.push_str("CPUFreqReq=Default");
    if let Some(distribution) = &step.distribution {
        put!(out, " Dist={distribution}");
    }
    style.newline(out);
    match &step.maker {
        Some(maker) => put!(out, "SrunHost:Pid={}:{}", maker.host, maker.pid),
        None => out.push_str("SrunHost:Pid=(null):0"),
    }
    for (name, text) in step.device_ask.iter().flat_map(|ask| ask.by_name()) {
        style.newline(out);
        put!(out, "{name}={text}");
    }
    style.end(out);
}
