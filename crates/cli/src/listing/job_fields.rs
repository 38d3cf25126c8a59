//! The columns of squeue: every letter of `--format` and name of `--Format` that squeue(1) describes, in Slurm's order.

use super::context::Ctx;
use super::format::{Field, Record, fields};
use super::job::{JobRow, Stdio, node_estimate};
use super::text::{self, put};
use muster_model::het::HetPlace;
use muster_model::job::JobState;
use muster_model::spec::JobKind;
use muster_model::time::TimeLimit;

/// squeue's jobs.
pub(crate) struct JobRecords;

impl Record for JobRecords {
    type Row<'a> = JobRow<'a>;
}

/// All columns.
pub(crate) static FIELDS: &[Field<JobRecords>] = fields![JobRow<'_>;
    b'a' ["account"] "ACCOUNT" cut r _c o => o.push_str(r.job.spec.account_name());
    b'b' ["tres-per-node", "gres"] "TRES_PER_NODE" cut r _c o => gres(r, o);
    b'c' ["mincpus"] "MIN_CPUS" cut r _c o => put!(o, "{}", r.min_cpus_per_node());
    b'd' ["mintmpdisk"] "MIN_TMP_DISK" cut r c o => text::memory(o, r.job.spec.ask.tmp_disk_mib, c.keep_units);
    b'e' ["endtime"] "END_TIME" cut r c o => end_time(r, c, o);
    b'f' ["feature"] "FEATURES" cut r _c o => o.push_str(text::or_null(r.job.spec.ask.constraint.as_deref()));
    b'g' ["groupname"] "GROUP" cut r _c o => o.push_str(&r.job.spec.owner.group);
    b'h' ["oversubscribe"] "OVER_SUBSCRIBE" cut r c o => o.push_str(r.over_subscribe(c));
    b'i' ["jobarrayid"] "JOBID" cut r c o => r.write_id(o, c);
    b'j' ["name"] "NAME" cut r _c o => o.push_str(&r.job.spec.name);
    b'k' ["comment"] "COMMENT" cut r _c o => o.push_str(text::or_null(r.job.spec.comment.as_deref()));
    b'l' ["timelimit"] "TIME_LIMIT" run r _c o => r.write_limit(o);
    b'm' ["minmemory"] "MIN_MEMORY" cut r c o => r.write_min_memory(o, c);
    b'n' ["reqnodes"] "REQ_NODES" run r _c o => expression(r.job.spec.ask.nodelist.as_deref(), o);
    b'o' ["command"] "COMMAND" cut r _c o => r.write_command(o);
    b'p' ["priority"] "PRIORITY" cut r _c o => r.write_priority_share(o);
    b'q' ["qos"] "QOS" cut r _c o => o.push_str(r.job.spec.qos_name());
    b'r' ["reason"] "REASON" cut r _c o => o.push_str(&r.reason());
    b's' ["selectjobinfo"] "" cut _r _c _o => ();
    b't' ["statecompact"] "ST" cut r _c o => o.push_str(r.state_code());
    b'u' ["username"] "USER" cut r _c o => o.push_str(&r.job.spec.owner.user);
    b'v' ["reservation"] "RESERVATION" cut r _c o => o.push_str(text::or_null(r.job.spec.reservation.as_deref()));
    b'w' ["wckey"] "WCKEY" cut r _c o => o.push_str(text::or_null(r.job.spec.wckey.as_deref()));
    b'x' ["excnodes"] "EXC_NODES" run r _c o => expression(r.job.spec.ask.exclude.as_deref(), o);
    b'y' ["nice"] "NICE" cut r _c o => put!(o, "{}", r.job.spec.nice);
    b'z' ["sct"] "S:C:T" cut r _c o => sct(r, o);
    b'A' ["jobid"] "JOBID" cut r _c o => text::number(o, r.job.id.0);
    b'B' ["batchhost"] "EXEC_HOST" cut r _c o => o.push_str(r.batch_host().unwrap_or("n/a"));
    b'C' ["numcpus"] "CPUS" cut r _c o => put!(o, "{}", r.cpus());
    b'D' ["numnodes"] "NODES" cut r c o => text::number(o, u64::from(node_estimate(r, c)));
    b'E' ["dependency"] "DEPENDENCY" cut r _c o => r.write_dependency(o);
    b'F' ["arrayjobid"] "ARRAY_JOB_ID" cut r _c o => put!(o, "{}", r.job.het.map_or(r.base_id(), |part| part.leader));
    b'G' ["groupid"] "GROUP" cut r _c o => put!(o, "{}", r.job.spec.owner.gid);
    b'H' ["sockets"] "SOCKETS_PER_NODE" cut r _c o => star(r.job.spec.ask.sockets_per_node, o);
    b'I' ["cores"] "CORES_PER_SOCKET" cut r _c o => star(r.job.spec.ask.cores_per_socket, o);
    b'J' ["threads"] "THREADS_PER_CORE" cut r _c o => star(r.job.spec.ask.threads_per_core, o);
    b'K' ["arraytaskid"] "ARRAY_TASK_ID" cut r c o => r.write_indices(o, c);
    b'L' ["timeleft"] "TIME_LEFT" run r c o => time_left(r, c, o);
    b'M' ["timeused"] "TIME" run r c o => text::short_duration(o, r.run_time_s(c));
    b'N' ["nodelist"] "NODELIST" run r _c o => o.push_str(&r.nodes());
    b'O' ["contiguous"] "CONTIGUOUS" cut r _c o => put!(o, "{}", u8::from(r.job.spec.ask.contiguous));
    b'P' ["partition"] "PARTITION" cut r _c o => r.write_partition(o);
    b'Q' ["prioritylong"] "PRIORITY" cut r _c o => put!(o, "{}", r.job.priority);
    b'R' ["reasonlist"] "NODELIST(REASON)" cut r _c o => r.write_reason_list(o);
    b'S' ["starttime"] "START_TIME" cut r c o => c.time_or(o, r.start(c), "N/A");
    b'T' ["state"] "STATE" cut r _c o => o.push_str(r.state_name());
    b'U' ["userid"] "UID" cut r _c o => put!(o, "{}", r.job.spec.owner.uid);
    b'V' ["submittime"] "SUBMIT_TIME" cut r c o => c.time(o, r.job.submit_time);
    b'W' ["licenses"] "LICENSES" cut r _c o => o.push_str(text::or_null(r.job.spec.licenses.as_deref()));
    b'X' ["corespec"] "CORE_SPEC" cut r _c o => or_na(r.job.spec.ask.core_spec, o);
    b'Y' ["schednodes"] "SCHEDNODES" run r c o => o.push_str(r.sched_nodes(c).unwrap_or("(null)"));
    b'Z' ["workdir"] "WORK_DIR" cut r _c o => o.push_str(&r.job.spec.work_dir);
    b'-' ["accruetime"] "ACCRUE_TIME" run r c o => c.time_or(o, r.job.accrues_since(), "N/A");
    b'-' ["admin_comment"] "ADMIN_COMMENT" cut r _c o => o.push_str(text::or_null(r.shown("admin-comment")));
    b'-' ["allocnodes"] "ALLOC_NODES" cut r _c o => o.push_str(&r.job.spec.submit_host);
    b'-' ["allocsid"] "ALLOC_SID" cut r _c o => put!(o, "{}", r.job.spec.submit_sid);
    b'-' ["associd"] "ASSOC_ID" cut _r _c o => o.push('0');
    b'-' ["batchflag"] "BATCH_FLAG" cut r _c o => put!(o, "{}", u8::from(r.job.spec.kind == JobKind::Batch));
    b'-' ["boardspernode"] "BOARDS_PER_NODE" cut _r _c o => o.push('0');
    b'-' ["burstbuffer"] "BURST_BUFFER" cut _r _c o => o.push_str("(null)");
    b'-' ["burstbufferstate"] "BURST_BUFFER_STATE" cut _r _c o => o.push_str("(null)");
    b'-' ["cluster"] "CLUSTER" cut _r c o => o.push_str(&c.cluster);
    b'-' ["clusterfeature"] "CLUSTER_FEATURES" cut _r _c o => o.push_str("(null)");
    b'-' ["container"] "CONTAINER" cut r _c o => o.push_str(text::or_null(r.shown("container")));
    b'-' ["cpus-per-task"] "CPUS_PER_TASK" cut r _c o => put!(o, "{}", r.job.spec.ask.cpus_of_task());
    b'-' ["cpus-per-tres"] "CPUS_PER_TRES" cut r _c o => o.push_str(&r.by_device("CpusPerTres").unwrap_or_else(|| "N/A".to_owned()));
    b'-' ["deadline"] "DEADLINE" run r c o => c.time_or(o, r.job.spec.deadline, "N/A");
    b'-' ["delayboot"] "DELAY_BOOT" run _r _c o => o.push_str("0:00");
    b'-' ["derivedec"] "DERIVED_EC" cut r _c o => put!(o, "{}", JobRow::wait_status(r.job.derived_exit));
    b'-' ["eligibletime"] "ELIGIBLE_TIME" run r c o => c.time_or(o, r.job.eligible_time, "N/A");
    b'-' ["exit_code"] "EXIT_CODE" cut r _c o => put!(o, "{}", JobRow::wait_status(r.job.exit));
    b'-' ["hetjobid"] "HET_JOB_ID" cut r _c o => het(r, o, |part| part.leader.to_string());
    b'-' ["hetjobidset"] "HET_JOB_ID_SET" cut r _c o => het(r, o, HetPlace::id_set);
    b'-' ["hetjoboffset"] "HET_JOB_OFFSET" cut r _c o => het(r, o, |part| part.offset.to_string());
    b'-' ["lastschedeval"] "LAST_SCHED_EVAL" run r c o => c.time_or(o, r.last_sched_eval(), "N/A");
    b'-' ["maxcpus"] "MAX_CPUS" cut r _c o => put!(o, "{}", r.cpus());
    b'-' ["maxnodes"] "MAX_NODES" cut r _c o => put!(o, "{}", r.job.spec.ask.max_nodes.unwrap_or(r.node_count()));
    b'-' ["mcslabel"] "MCSLABEL" cut r _c o => o.push_str(text::or_null(r.shown("mcs-label")));
    b'-' ["mem-per-tres"] "MEM_PER_TRES" cut r _c o => o.push_str(&r.by_device("MemPerTres").unwrap_or_else(|| "N/A".to_owned()));
    b'-' ["mintime"] "TIME_MIN" run r _c o => min_time(r, o);
    b'-' ["ntperboard"] "NTASKS_PER_BOARD" cut _r _c o => o.push('0');
    b'-' ["ntpercore"] "NTASKS_PER_CORE" cut r _c o => or_na(r.job.spec.ask.ntasks_per_core_bound(), o);
    b'-' ["ntpernode"] "NTASKS_PER_NODE" cut r _c o => put!(o, "{}", r.job.spec.ask.ntasks_per_node.unwrap_or(0));
    b'-' ["ntpersocket"] "NTASKS_PER_SOCKET" cut r _c o => or_na(r.job.spec.ask.ntasks_per_socket, o);
    b'-' ["network"] "NETWORK" cut r _c o => o.push_str(text::or_null(r.shown("network")));
    b'-' ["numtasks"] "TASKS" cut r _c o => put!(o, "{}", r.tasks());
    b'-' ["origin"] "ORIGIN" cut _r _c o => o.push_str("NA");
    b'-' ["originraw"] "ORIGIN_RAW" cut _r _c o => o.push_str("NA");
    b'-' ["pendingtime"] "PENDING_TIME" cut r c o => put!(o, "{}", waited_s(r, c));
    b'-' ["preempttime"] "PREEMPT_TIME" run r c o => preempt_time(r, c, o);
    b'-' ["prefer"] "PREFER" cut r _c o => o.push_str(text::or_null(r.shown("prefer")));
    b'-' ["profile"] "PROFILE" cut r _c o => o.push_str(&profile(r.shown("profile")));
    b'-' ["reboot"] "REBOOT" cut _r _c o => o.push('0');
    b'-' ["reqswitch"] "REQ_SWITCH" cut r _c o => put!(o, "{}", r.job.spec.ask.switches.map_or(0, |s| s.count));
    b'-' ["requeue"] "REQUEUE" cut r _c o => put!(o, "{}", r.requeue());
    b'-' ["resizetime"] "RESIZE_TIME" run r c o => match r.job.resize_time {
        Some(at) => c.time(o, at),
        None => o.push_str("N/A"),
    };
    b'-' ["restartcnt"] "RESTART_COUNT" cut r _c o => put!(o, "{}", r.job.restarts);
    b'-' ["siblingsactive"] "ACTIVE_SIBLINGS" cut _r _c o => o.push_str("NA");
    b'-' ["siblingsactiveraw"] "ACTIVE_SIBLINGS_RAW" cut _r _c o => o.push_str("NA");
    b'-' ["siblingsviable"] "VIABLE_SIBLINGS" cut _r _c o => o.push_str("NA");
    b'-' ["siblingsviableraw"] "VIALBLE_SIBLINGS_RAW" cut _r _c o => o.push_str("NA");
    b'-' ["sperboard"] "SOCKETS_PER_BOARD" cut _r _c o => o.push('0');
    b'-' ["stderr"] "STDERR" cut r _c o => stdio(r, Stdio::Err, o);
    b'-' ["stdin"] "STDIN" cut r _c o => stdio(r, Stdio::In, o);
    b'-' ["stdout"] "STDOUT" cut r _c o => stdio(r, Stdio::Out, o);
    b'-' ["system_comment"] "SYSTEM_COMMENT" cut _r _c o => o.push_str("(null)");
    b'-' ["tres-alloc", "tres"] "TRES_ALLOC" cut r c o => r.write_tres(o, c);
    b'-' ["tres-bind"] "TRES_BIND" cut r _c o => o.push_str(&r.by_device("TresBind").unwrap_or_else(|| "N/A".to_owned()));
    b'-' ["tres-freq"] "TRES_FREQ" cut _r _c o => o.push_str("N/A");
    b'-' ["tres-per-job"] "TRES_PER_JOB" cut r _c o => o.push_str(&r.by_device("TresPerJob").unwrap_or_else(|| "N/A".to_owned()));
    b'-' ["tres-per-socket"] "TRES_PER_SOCKET" cut r _c o => o.push_str(&r.by_device("TresPerSocket").unwrap_or_else(|| "N/A".to_owned()));
    b'-' ["tres-per-task"] "TRES_PER_TASK" cut r _c o => o.push_str(&r.by_device("TresPerTask").unwrap_or_else(|| "N/A".to_owned()));
    b'-' ["wait4switch"] "WAIT4SWITCH" run r _c o => wait_for_switch(r, o);
];

/// Fields in which records of one template differ ([`muster_model::listing_codec::RowValues`]), by their first names. All others are
/// the same for all of them.
const OF_NUMBERS: &[&str] = &[
    "jobarrayid",
    "jobid",
    "arrayjobid",
    "schednodes",
    "priority",
    "prioritylong",
    "submittime",
    "accruetime",
    "eligibletime",
    "lastschedeval",
    "pendingtime",
    "stderr",
    "stdin",
    "stdout",
];

/// Whether a field may differ between jobs of one template.
pub(crate) fn is_of_numbers(field: &Field<JobRecords>) -> bool {
    OF_NUMBERS.contains(&field.names[0])
}

/// Whether it needs no other of these than the job's own number.
pub(crate) fn is_id(field: &Field<JobRecords>) -> bool {
    ["jobarrayid", "jobid", "arrayjobid"].contains(&field.names[0])
}

/// A field of a component of a heterogeneous job.
fn het(row: &JobRow<'_>, out: &mut String, say: fn(HetPlace) -> String) {
    match row.job.het {
        Some(part) => out.push_str(&say(part)),
        None => out.push_str("N/A"),
    }
}

fn gres(r: &JobRow<'_>, out: &mut String) {
    out.push_str(
        &r.by_device("TresPerNode")
            .unwrap_or_else(|| "N/A".to_owned()),
    );
}

fn end_time(r: &JobRow<'_>, ctx: &Ctx, out: &mut String) {
    let endless = r.job.time_limit == TimeLimit::Unlimited && r.job.end_time.is_none();
    if endless && !r.is_pending() {
        return out.push_str("NONE");
    }
    ctx.time_or(out, r.end(ctx), "N/A");
}

fn time_left(r: &JobRow<'_>, ctx: &Ctx, out: &mut String) {
    match r.job.time_limit {
        TimeLimit::Unlimited => out.push_str("UNLIMITED"),
        TimeLimit::Minutes(m) => text::short_duration(out, i64::from(m) * 60 - r.run_time_s(ctx)),
    }
}

fn sct(r: &JobRow<'_>, out: &mut String) {
    let ask = &r.job.spec.ask;
    star(ask.sockets_per_node, out);
    out.push(':');
    star(ask.cores_per_socket, out);
    out.push(':');
    star(ask.threads_per_core, out);
}

/// A number, or `*` when it was not asked for.
/// A list of nodes as one expression.
pub(crate) fn expression(list: Option<&str>, out: &mut String) {
    match list.map(muster_model::hostlist::parse) {
        Some(Ok(names)) => out.push_str(&muster_model::hostlist::compress_sorted(&names)),
        Some(Err(_)) => out.push_str(list.unwrap_or_default()),
        None => {}
    }
}

pub(crate) fn star(number: Option<u32>, out: &mut String) {
    match number {
        Some(n) => put!(out, "{n}"),
        None => out.push('*'),
    }
}

fn or_na(number: Option<u32>, out: &mut String) {
    match number {
        Some(n) => put!(out, "{n}"),
        None => out.push_str("N/A"),
    }
}

fn min_time(r: &JobRow<'_>, out: &mut String) {
    let seconds = r
        .job
        .spec
        .time_min
        .and_then(TimeLimit::seconds)
        .unwrap_or(0);
    text::short_duration(out, i64::try_from(seconds).unwrap_or(i64::MAX));
}

fn wait_for_switch(r: &JobRow<'_>, out: &mut String) {
    let asked = r.job.spec.ask.switches;
    let seconds = asked.and_then(|s| s.wait_s).unwrap_or(0);
    text::short_duration(out, i64::try_from(seconds).unwrap_or(i64::MAX));
}

fn waited_s(r: &JobRow<'_>, ctx: &Ctx) -> i64 {
    let until = match r.job.start_time {
        Some(start) if !r.is_pending() => start,
        _ => ctx.now,
    };
    (until.unix_s() - r.job.submit_time.unix_s()).max(0)
}

fn preempt_time(r: &JobRow<'_>, ctx: &Ctx, out: &mut String) {
    let at = r
        .job
        .end_time
        .filter(|_| r.job.state == JobState::Preempted);
    ctx.time_or(out, at, "N/A");
}

fn stdio(r: &JobRow<'_>, which: Stdio, out: &mut String) {
    match r.stdio_path(which) {
        Some(path) => out.push_str(&path),
        None => out.push_str("N/A"),
    }
}
/// `--profile` as squeue writes its kinds.
fn profile(asked: Option<&str>) -> String {
    let kind = |word: &str| match word.trim().to_ascii_lowercase().as_str() {
        "all" => "All".to_owned(),
        "none" => "None".to_owned(),
        "energy" => "Energy".to_owned(),
        "task" => "Task".to_owned(),
        "lustre" | "filesystem" => "Lustre".to_owned(),
        "network" => "Network".to_owned(),
        _ => word.to_owned(),
    };
    match asked {
        None => "NotSet".to_owned(),
        Some(words) => words.split(',').map(kind).collect::<Vec<_>>().join(","),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn profiles_have_the_names_of_slurm() {
        for (asked, shown) in [
            (None, "NotSet"),
            (Some("energy"), "Energy"),
            (Some("Task,filesystem"), "Task,Lustre"),
            (Some("NONE"), "None"),
        ] {
            assert_eq!(profile(asked), shown);
        }
    }
}
