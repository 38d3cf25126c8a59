//! Jobs as JSON and YAML, in both layouts.

use super::context::Ctx;
use super::document::{Dialect, Writer, document, print_document};
use super::job::{JobRow, Stdio, node_estimate};
use super::text::collect;
use muster_model::het::HetPlace;
use muster_model::job::{ArrayRole, NodeShare};
use muster_model::spec::{JobKind, MemoryAsk, Sharing};
use muster_model::time::TimeLimit;
use std::collections::BTreeMap;

/// Appends a document with the jobs.
pub(crate) fn write(out: &mut String, dialect: Dialect, rows: &[JobRow<'_>], ctx: &Ctx) {
    document(out, dialect, "squeue", ctx, |w| jobs(w, rows, ctx));
}

/// Prints a document with the jobs.
pub(crate) fn print(dialect: Dialect, rows: &[JobRow<'_>], ctx: &Ctx) {
    print_document(dialect, "squeue", ctx, |w| jobs(w, rows, ctx));
}

/// Writes the main part of a document with the jobs.
pub(crate) fn jobs(w: &mut Writer<'_>, rows: &[JobRow<'_>], ctx: &Ctx) {
    w.list("jobs", |w| items(w, rows.iter(), ctx));
    end(w, ctx);
}

/// Writes items of the list of jobs.
pub(crate) fn items<'j>(
    w: &mut Writer<'_>,
    rows: impl IntoIterator<Item = impl std::borrow::Borrow<JobRow<'j>>>,
    ctx: &Ctx,
) {
    for row in rows {
        w.item(|w| job(w, row.borrow(), ctx));
    }
}

/// Writes what follows the list of jobs.
pub(crate) fn end(w: &mut Writer<'_>, ctx: &Ctx) {
    if !w.is_old() {
        w.time("last_backfill", None);
        w.time("last_update", Some(ctx.now));
    }
}

fn job(w: &mut Writer<'_>, row: &JobRow<'_>, ctx: &Ctx) {
    identity(w, row, ctx);
    limits(w, row, ctx);
    ends(w, row, ctx);
    place(w, row, ctx);
    counts(w, row, ctx);
    memory(w, row, ctx);
    priority(w, row, ctx);
    state(w, row, ctx);
    resources(w, row, ctx);
    owner(w, row);
}

/// A number that the old layout writes plainly and the new one as an object.
fn some(w: &mut Writer<'_>, key: &str, number: impl Into<u64>) {
    w.number(key, Some(number.into()), "0");
}

fn identity(w: &mut Writer<'_>, row: &JobRow<'_>, ctx: &Ctx) {
    let (job, spec) = (row.job, &row.job.spec);
    w.text("account", spec.account_name());
    w.time("accrue_time", job.accrues_since());
    w.text_or_empty("admin_comment", row.shown("admin-comment"));
    if !w.is_old() {
        w.text("allocating_node", &spec.submit_host);
    }
    let base = if row.in_array() { row.base_id().0 } else { 0 };
    some(w, "array_job_id", base);
    w.number("array_task_id", row.index().map(u64::from), "null");
    let throttle = row.throttle().filter(|_| row.in_array()).unwrap_or(0);
    some(w, "array_max_tasks", throttle);
    let tasks = match (&job.array, row.task) {
        (ArrayRole::Pending { .. }, None) => collect(|o| row.write_indices(o, ctx)),
        _ => String::new(),
    };
    w.text("array_task_string", &tasks);
    w.raw("association_id", 0);
    w.text("batch_features", "");
    w.raw("batch_flag", spec.kind == JobKind::Batch);
    w.text_or_empty("batch_host", row.batch_host());
    flags(w, row);
    w.text("burst_buffer", "");
    w.text("burst_buffer_state", "");
    w.text("cluster", &ctx.cluster);
    w.text("cluster_features", "");
    let command = collect(|o| row.write_command(o));
    w.text("command", if command == "(null)" { "" } else { &command });
    w.text_or_empty("comment", spec.comment.as_deref());
    w.text_or_empty("container", row.shown("container"));
    if !w.is_old() {
        w.text("container_id", "");
    }
    w.raw("contiguous", spec.ask.contiguous);
}

fn flags(w: &mut Writer<'_>, row: &JobRow<'_>) {
    let ask = &row.job.spec.ask;
    let old = w.is_old();
    let set = [
        (
            ask.ntasks.is_some() || ask.cpus_per_task.is_some(),
            "JOB_CPUS_SET",
            "EXACT_CPU_COUNT_REQUESTED",
        ),
        (
            ask.memory != MemoryAsk::Default,
            "JOB_MEM_SET",
            "EXACT_MEMORY_REQUESTED",
        ),
    ];
    let names = set
        .into_iter()
        .filter_map(|(on, before, since)| on.then_some(if old { before } else { since }));
    w.texts("flags", names);
}

fn limits(w: &mut Writer<'_>, row: &JobRow<'_>, ctx: &Ctx) {
    let ask = &row.job.spec.ask;
    if w.is_old() {
        w.number("core_spec", ask.core_spec.map(u64::from), "null");
        w.raw("thread_spec", "null");
    } else {
        w.raw("core_spec", ask.core_spec.unwrap_or(0));
        w.raw("thread_spec", 0);
    }
    w.number(
        "cores_per_socket",
        ask.cores_per_socket.map(u64::from),
        "null",
    );
    let billing = if row.is_pending() { 0 } else { row.cpus() };
    if w.is_old() {
        w.raw("billable_tres", format_args!("{billing}.0"));
    } else {
        w.map("billable_tres", |w| {
            w.raw("set", true);
            w.raw("infinite", false);
            w.raw("number", format_args!("{billing}.0"));
        });
    }
    w.number("cpus_per_task", ask.cpus_per_task.map(u64::from), "null");
    for key in [
        "cpu_frequency_minimum",
        "cpu_frequency_maximum",
        "cpu_frequency_governor",
    ] {
        w.number(key, None, "null");
    }
    w.text("cpus_per_tres", &by_device(row, "CpusPerTres"));
    if !w.is_old() {
        let cron = row.job.spec.cron.as_ref();
        w.text(
            "cron",
            &cron.map_or_else(String::new, |entry| entry.schedule.to_string()),
        );
    }
    w.time("deadline", row.job.spec.deadline);
    some(w, "delay_boot", 0u64);
    let dependency = collect(|o| row.write_dependency(o));
    w.text(
        "dependency",
        if dependency == "(null)" {
            ""
        } else {
            &dependency
        },
    );
    let _ = ctx;
}

fn ends(w: &mut Writer<'_>, row: &JobRow<'_>, ctx: &Ctx) {
    let (job, spec) = (row.job, &row.job.spec);
    let pending = row.is_pending();
    if w.has_plain_states() {
        some(
            w,
            "derived_exit_code",
            JobRow::wait_status(job.derived_exit),
        );
    } else {
        w.exit("derived_exit_code", job.derived_exit, pending);
    }
    w.time("eligible_time", job.eligible_time);
    w.time("end_time", row.end(ctx));
    w.text_or_empty("excluded_nodes", spec.ask.exclude.as_deref());
    if w.has_plain_states() {
        some(w, "exit_code", JobRow::wait_status(job.exit));
    } else {
        w.exit("exit_code", job.exit, pending);
    }
    if !w.is_old() {
        w.text_or_empty("extra", row.shown("extra"));
        w.text("failed_node", "");
    }
    w.text_or_empty("features", spec.ask.constraint.as_deref());
    w.text("federation_origin", "");
    w.text("federation_siblings_active", "");
    w.text("federation_siblings_viable", "");
    w.list("gres_detail", |w| {
        for share in row.shares() {
            w.item_text(&gres_of(share));
        }
    });
    w.raw("group_id", spec.owner.gid);
    w.text("group_name", &spec.owner.group);
    if !w.is_old() {
        het(w, row.job.het);
    }
    w.raw("job_id", job.id.0);
}

fn by_device(row: &JobRow<'_>, key: &str) -> String {
    row.by_device(key).unwrap_or_default()
}

fn gres_of(share: &NodeShare) -> String {
    collect(|out| {
        for (i, gres) in share.gres.iter().enumerate() {
            if i > 0 {
                out.push(',');
            }
            let ids: Vec<u32> = gres.numbers().collect();
            let kind = gres
                .kind
                .as_ref()
                .map(|k| format!(":{k}"))
                .unwrap_or_default();
            let list = muster_model::hostlist::ranges(&ids);
            super::text::put!(out, "{}{kind}:{}(IDX:{list})", gres.name, gres.ids.len());
        }
    })
}

fn het(w: &mut Writer<'_>, place: Option<HetPlace>) {
    some(w, "het_job_id", place.map_or(0, |place| place.leader.0));
    w.text(
        "het_job_id_set",
        &place.map_or_else(String::new, HetPlace::id_set),
    );
    let offset = place.map(|place| u64::from(place.offset));
    if w.is_old() {
        w.raw("het_job_offset", offset.unwrap_or(0));
    } else {
        w.limit("het_job_offset", offset, false);
    }
}

/// The base state and its flags.
pub(crate) fn states(row: &JobRow<'_>) -> Vec<&'static str> {
    let mut states = vec![row.job.state.name()];
    if row.job.completing {
        states.push("COMPLETING");
    }
    if row.is_configuring() {
        states.push("CONFIGURING");
    }
    if row.is_special() {
        states.push("SPECIAL_EXIT");
    }
    states
}

fn place(w: &mut Writer<'_>, row: &JobRow<'_>, ctx: &Ctx) {
    allocation(w, row, ctx);
    if !w.is_old() {
        w.list("job_size_str", |_| {});
    }
    if w.has_plain_states() {
        w.text("job_state", row.state_name());
    } else {
        w.texts("job_state", states(row));
    }
    w.time("last_sched_evaluation", row.last_sched_eval());
    let spec = &row.job.spec;
    w.text_or_empty("licenses", spec.licenses.as_deref());
    if w.version() >= 43 {
        let held = spec
            .licenses
            .as_deref()
            .filter(|_| row.shares().next().is_some());
        w.text_or_empty("licenses_allocated", held);
    }
    if !w.is_old() {
        let mail = spec.mail.as_ref();
        let types = mail.map_or("", |mail| &mail.types);
        let user = mail.map_or("", |mail| &mail.user);
        w.texts("mail_type", types.split(',').filter(|k| !k.is_empty()));
        w.text("mail_user", user);
    }
    let ask = &spec.ask;
    some(w, "max_cpus", 0u64);
    some(w, "max_nodes", ask.max_nodes.unwrap_or(0));
    w.text_or_empty("mcs_label", row.shown("mcs-label"));
    w.text("memory_per_tres", &by_device(row, "MemPerTres"));
    w.text("name", &spec.name);
    if !w.is_old() {
        w.text_or_empty("network", row.shown("network"));
    }
    w.text("nodes", &row.nodes());
    if w.is_old() {
        w.number(
            "nice",
            u64::try_from(spec.nice).ok().filter(|n| *n > 0),
            "null",
        );
    } else {
        w.raw("nice", spec.nice);
    }
}

fn counts(w: &mut Writer<'_>, row: &JobRow<'_>, ctx: &Ctx) {
    let ask = &row.job.spec.ask;
    w.number(
        "tasks_per_core",
        ask.ntasks_per_core_bound().map(u64::from),
        "null",
    );
    if !w.is_old() {
        w.limit("tasks_per_tres", None, false);
    }
    some(w, "tasks_per_node", ask.ntasks_per_node.unwrap_or(0));
    w.number(
        "tasks_per_socket",
        ask.ntasks_per_socket.map(u64::from),
        "null",
    );
    some(w, "tasks_per_board", 0u64);
    some(w, "cpus", row.cpus());
    some(w, "node_count", node_estimate(row, ctx));
    some(w, "tasks", row.tasks());
    if w.is_old() {
        het(w, row.job.het);
    }
    w.text("partition", &collect(|o| row.write_partition(o)));
    w.text_or_empty("prefer", row.shown("prefer"));
    let _ = ctx;
}

fn memory(w: &mut Writer<'_>, row: &JobRow<'_>, ctx: &Ctx) {
    let ask = &row.job.spec.ask;
    let (per_node, per_cpu) = match row.memory(ctx) {
        MemoryAsk::PerNode(mib) => (Some(mib), None),
        MemoryAsk::PerCpu(mib) => (None, Some(mib)),
        MemoryAsk::Default => (None, None),
    };
    if w.is_old() {
        w.number("memory_per_node", per_node, "null");
        w.number("memory_per_cpu", per_cpu, "null");
    } else {
        w.number("memory_per_cpu", per_cpu, "null");
        w.number("memory_per_node", per_node, "null");
    }
    some(w, "minimum_cpus_per_node", row.min_cpus_per_node());
    some(w, "minimum_tmp_disk_per_node", ask.tmp_disk_mib);
    if !w.is_old() {
        w.map("power", |w| w.list("flags", |_| {}));
    }
    w.time("preempt_time", None);
    if !w.is_old() {
        w.time("preemptable_time", None);
    }
}

fn priority(w: &mut Writer<'_>, row: &JobRow<'_>, ctx: &Ctx) {
    let (job, spec) = (row.job, &row.job.spec);
    let before = match job.suspend_time {
        Some(_) => u64::try_from(row.run_time_s(ctx)).unwrap_or(0),
        None => 0,
    };
    some(w, "pre_sus_time", before);
    if !w.is_old() {
        w.raw("hold", job.hold != muster_model::job::Hold::None);
    }
    some(w, "priority", job.priority);
    if w.is_old() {
        w.raw("profile", "null");
    } else {
        w.list("priority_by_partition", |_| {});
        w.texts("profile", ["NOT_SET"]);
    }
    w.text("qos", spec.qos_name());
    w.raw("reboot", false);
    w.text_or_empty("required_nodes", spec.ask.nodelist.as_deref());
    if !w.is_old() {
        w.raw(
            "required_switches",
            spec.ask.switches.map_or(0, |s| s.count),
        );
    }
    w.raw("requeue", job.requeueable);
    w.time("resize_time", job.resize_time);
    w.raw("restart_cnt", job.restarts);
    w.text_or_empty("resv_name", spec.reservation.as_deref());
    if w.is_old() {
        w.raw("shared", "null");
        w.texts("show_flags", ["SHOW_ALL", "SHOW_DETAIL", "SHOW_LOCAL"]);
    } else {
        w.text("scheduled_nodes", row.sched_nodes(ctx).unwrap_or(""));
        w.text("selinux_context", "");
        let shared = match spec.ask.sharing {
            Sharing::Default => None,
            Sharing::Exclusive => Some("none"),
            Sharing::ExclusiveUser => Some("user"),
            Sharing::ExclusiveMcs => Some("mcs"),
            Sharing::Oversubscribe => Some("oversubscribe"),
        };
        w.texts("shared", shared);
    }
    w.raw("sockets_per_board", 0);
    w.number(
        "sockets_per_node",
        spec.ask.sockets_per_node.map(u64::from),
        "null",
    );
}

fn state(w: &mut Writer<'_>, row: &JobRow<'_>, ctx: &Ctx) {
    let job = row.job;
    w.time("start_time", row.start(ctx));
    w.text_or_empty("state_description", job.reason_detail.as_deref());
    w.text("state_reason", &row.reason());
    for (key, expanded, which) in [
        ("standard_error", "stderr_expanded", Stdio::Err),
        ("standard_input", "stdin_expanded", Stdio::In),
        ("standard_output", "stdout_expanded", Stdio::Out),
    ] {
        let path = row.stdio_path(which);
        w.text_or_empty(key, path.as_deref());
        // Paths are given with their patterns replaced, so both are the same.
        if w.version() >= 43 {
            w.text_or_empty(expanded, path.as_deref());
        }
    }
    w.time("submit_time", Some(job.submit_time));
    w.time("suspend_time", job.suspend_time);
    w.text("system_comment", "");
    match job.time_limit {
        TimeLimit::Minutes(minutes) => some(w, "time_limit", minutes),
        TimeLimit::Unlimited if w.is_old() => w.raw("time_limit", "null"),
        TimeLimit::Unlimited => w.limit("time_limit", None, true),
    }
    let least = match job.spec.time_min {
        Some(TimeLimit::Minutes(minutes)) => minutes,
        _ => 0,
    };
    some(w, "time_minimum", least);
    w.number(
        "threads_per_core",
        job.spec.ask.threads_per_core.map(u64::from),
        "null",
    );
}

fn resources(w: &mut Writer<'_>, row: &JobRow<'_>, ctx: &Ctx) {
    w.text("tres_bind", &by_device(row, "TresBind"));
    w.text("tres_freq", "");
    w.text("tres_per_job", &by_device(row, "TresPerJob"));
    w.text("tres_per_node", &by_device(row, "TresPerNode"));
    w.text("tres_per_socket", &by_device(row, "TresPerSocket"));
    w.text("tres_per_task", &by_device(row, "TresPerTask"));
    w.text("tres_req_str", &collect(|o| row.write_tres_asked(o, ctx)));
    let held = if row.is_pending() {
        String::new()
    } else {
        collect(|o| row.write_tres(o, ctx))
    };
    w.text("tres_alloc_str", &held);
}

fn owner(w: &mut Writer<'_>, row: &JobRow<'_>) {
    let spec = &row.job.spec;
    w.raw("user_id", spec.owner.uid);
    w.text("user_name", &spec.owner.user);
    if !w.is_old() {
        let wait = spec.ask.switches.and_then(|s| s.wait_s).unwrap_or(0);
        w.raw("maximum_switch_wait_time", wait);
    }
    w.text_or_empty("wckey", spec.wckey.as_deref());
    w.text("current_working_directory", &spec.work_dir);
}

/// Cores of a share by socket.
fn cores(share: &NodeShare, ctx: &Ctx) -> BTreeMap<u32, Vec<u32>> {
    let node = ctx.nodes.iter().find(|n| n.config.name == share.name);
    let (threads, per_socket) = node.map_or((1, u32::MAX), |n| {
        (
            n.config.threads_per_core.max(1),
            n.config.cores_per_socket.max(1),
        )
    });
    let mut sockets: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for cpu in share.cpus.iter() {
        let core = cpu / threads;
        let of_socket = sockets.entry(core / per_socket).or_default();
        if of_socket.last() != Some(&(core % per_socket)) {
            of_socket.push(core % per_socket);
        }
    }
    sockets
}

fn allocation(w: &mut Writer<'_>, row: &JobRow<'_>, ctx: &Ctx) {
    if w.is_old() {
        return w.map("job_resources", |w| {
            if row.shares().next().is_some() {
                old_allocation(w, row, ctx);
            }
        });
    }
    // Slurm's schema has no null here: a job without resources has none of any kind.
    let has_some = row.shares().next().is_some();
    let nodes = row.nodes();
    let held = |count: u64| if has_some { count } else { 0 };
    w.map("job_resources", |w| {
        w.list("select_type", |_| {});
        w.map("nodes", |w| {
            w.raw("count", held(row.node_count().into()));
            w.list("select_type", |_| {});
            w.text("list", if has_some { &*nodes } else { "" });
            w.raw("whole", row.job.alloc.as_ref().is_some_and(|a| a.exclusive));
            w.list("allocation", |w| {
                for (i, share) in row.shares().enumerate() {
                    w.item(|w| new_share(w, i, share, ctx));
                }
            });
        });
        w.raw("cpus", held(row.cpus()));
        w.limit("threads_per_core", None, false);
    });
}

fn old_allocation(w: &mut Writer<'_>, row: &JobRow<'_>, ctx: &Ctx) {
    w.text("nodes", &row.nodes());
    w.raw("allocated_cpus", row.cpus());
    w.raw("allocated_hosts", row.node_count());
    w.list("allocated_nodes", |w| {
        for share in row.shares() {
            w.item(|w| {
                w.map("sockets", |w| {
                    for (socket, cores) in cores(share, ctx) {
                        w.map(&socket.to_string(), |w| {
                            w.map("cores", |w| {
                                cores
                                    .iter()
                                    .for_each(|c| w.text(&c.to_string(), "allocated"));
                            });
                        });
                    }
                });
                w.text("nodename", &share.name);
                w.raw("cpus_used", 0);
                w.raw("memory_used", 0);
                w.raw("memory_allocated", share.memory_mib);
            });
        }
    });
}

fn new_share(w: &mut Writer<'_>, index: usize, share: &NodeShare, ctx: &Ctx) {
    w.raw("index", index);
    w.text("name", &share.name);
    w.map("cpus", |w| {
        w.raw("count", share.cpus.len());
        w.raw("used", 0);
    });
    w.map("memory", |w| {
        w.raw("used", 0);
        w.raw("allocated", share.memory_mib);
    });
    w.list("sockets", |w| {
        for (socket, cores) in cores(share, ctx) {
            w.item(|w| {
                w.raw("index", socket);
                w.list("cores", |w| {
                    for core in cores {
                        w.item(|w| {
                            w.raw("index", core);
                            w.texts("status", ["ALLOCATED"]);
                        });
                    }
                });
            });
        }
    });
}
