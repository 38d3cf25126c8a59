//! Jobs of the queue: what programs get of each, and freeing it.

#![allow(unsafe_code)]

use crate::abi::jobs::{SlurmJobInfo, SlurmJobInfoMsg};
use crate::abi::members::{CMember as _, Foreign, OwnedText, OwnedTexts};
use crate::connection::{connect, job, job_number};
use crate::error::{CallError, INVALID_JOB_ID, JOB_NOT_RUNNING};
use crate::memory;
use crate::names::{self, INFINITE, INFINITE_16, NO_VALUE, NO_VALUE_16, job_state};
use crate::numbers::{NICE_OFFSET, PER_CPU, minutes, ranges, seconds, short, wait_status};
use crate::resources::JobResources;
use libc::{c_char, c_int, c_long, time_t};
use muster_cli::library::{self, JobDetails, JobListing};
use muster_model::job::Job;
use muster_model::mail;
use muster_model::spec::{JobKind, MemoryAsk};
use muster_model::time::TimeLimit;
use muster_proto::client::JobFilter;
use std::collections::BTreeSet;

/// Flags of a job: what its owner has said, and which scheduler started it.
const KILL_INVALID_DEPENDENCY: u64 = 1;
const KEEP_INVALID_DEPENDENCY: u64 = 1 << 1;
const SPREADS: u64 = 1 << 8;
const FEWEST_NODES: u64 = 1 << 9;
const TASKS_SET: u64 = 1 << 14;
const CPUS_SET: u64 = 1 << 15;
const CRON_JOB: u64 = 1 << 22;
const MEMORY_SET: u64 = 1 << 23;
const BACKFILLED: u64 = 1 << 32;

fn short_or_none(number: Option<u32>) -> u16 {
    number.map_or(NO_VALUE_16, short)
}

/// Bits of types of mail (`--mail-type`).
const MAIL_TYPES: [(&str, u16); 11] = [
    ("BEGIN", 1),
    ("END", 1 << 1),
    ("FAIL", 1 << 2),
    ("REQUEUE", 1 << 3),
    ("TIME_LIMIT", 1 << 4),
    ("TIME_LIMIT_90", 1 << 5),
    ("TIME_LIMIT_80", 1 << 6),
    ("TIME_LIMIT_50", 1 << 7),
    ("STAGE_OUT", 1 << 8),
    ("ARRAY_TASKS", 1 << 9),
    ("INVALID_DEPEND", 1 << 10),
];
/// `ALL` of them.
const ALL_MAIL: u16 = 1 | 1 << 1 | 1 << 2 | 1 << 3 | 1 << 8 | 1 << 10;

/// The bits of a list of types of mail.
pub fn mail_bits(kinds: &str) -> u16 {
    kinds.split(',').fold(0, |bits, kind| {
        if kind.eq_ignore_ascii_case("ALL") {
            return bits | ALL_MAIL;
        }
        let known = MAIL_TYPES
            .iter()
            .find(|(name, _)| kind.eq_ignore_ascii_case(name));
        bits | known.map_or(0, |(_, bit)| *bit)
    })
}

/// The list of types of mail of bits.
pub fn mail_names(bits: u16) -> String {
    let set = MAIL_TYPES.iter().filter(|(_, bit)| bits & bit != 0);
    set.map(|(name, _)| *name).collect::<Vec<_>>().join(",")
}

/// A job as programs get it.
fn made(job: &Job, details: &JobDetails, cluster: &str) -> SlurmJobInfo {
    let mut info = SlurmJobInfo::empty();
    identity(&mut info, job, details);
    asked(&mut info, job, details);
    times(&mut info, job, details);
    place(&mut info, job, details);
    info.cluster = OwnedText::of(cluster);
    info.job_resrcs = Foreign(JobResources::made(&details.shares).cast());
    info
}

/// A value of an option that is only kept and shown.
fn shown<'a>(job: &'a Job, name: &str) -> Option<&'a str> {
    let found = job
        .spec
        .shown
        .iter()
        .find(|(key, _)| key.eq_ignore_ascii_case(name));
    found.map(|(_, value)| value.as_str())
}

fn identity(info: &mut SlurmJobInfo, job: &Job, details: &JobDetails) {
    let spec = &job.spec;
    info.account = OwnedText::of(spec.account_name());
    info.admin_comment = OwnedText::some(shown(job, "admin-comment"));
    info.alloc_node = OwnedText::of(&spec.submit_host);
    info.alloc_sid = spec.submit_sid;
    info.array_job_id = u32::try_from(details.array_job).unwrap_or(u32::MAX);
    info.array_task_id = details.array_task.unwrap_or(NO_VALUE);
    info.array_max_tasks = details.array_throttle.unwrap_or(0);
    info.array_task_str = OwnedText::or_null(&details.array_tasks);
    info.batch_flag = u16::from(spec.kind == JobKind::Batch);
    info.command = OwnedText::some(details.command.as_deref());
    info.comment = OwnedText::some(spec.comment.as_deref());
    info.container = OwnedText::some(shown(job, "container"));
    info.cronspec = match &spec.cron {
        Some(entry) => OwnedText::of(&entry.schedule.to_string()),
        None => OwnedText::NULL,
    };
    info.dependency = OwnedText::some(details.dependency.as_deref());
    info.group_id = spec.owner.gid;
    info.het_job_id = job.het.map_or(0, |place| job_number(place.leader));
    info.het_job_offset = job.het.map_or(0, |place| place.offset);
    info.het_job_id_set = match job.het {
        Some(place) => OwnedText::of(&place.id_set()),
        None => OwnedText::NULL,
    };
    info.job_id = job_number(job.id);
    info.job_state = job_state(job);
    let mail = spec.mail.as_ref();
    info.mail_type = mail.map_or(0, |mail| mail_bits(&mail.types));
    info.mail_user = match mail {
        Some(mail::MailOptions { user, .. }) if user.is_empty() => OwnedText::of(&spec.owner.user),
        Some(mail) => OwnedText::of(&mail.user),
        None => OwnedText::NULL,
    };
    info.mcs_label = OwnedText::some(shown(job, "mcs-label"));
    info.name = OwnedText::of(&spec.name);
    info.network = OwnedText::some(shown(job, "network"));
    info.nice = NICE_OFFSET.wrapping_add_signed(spec.nice);
    info.priority = job.priority;
    info.qos = OwnedText::of(spec.qos_name());
    info.resv_name = OwnedText::some(spec.reservation.as_deref());
    info.restart_cnt = short(job.restarts);
    info.requeue = u16::from(job.requeueable);
    info.state_desc = OwnedText::some(job.reason_detail.as_deref());
    info.state_reason = names::reason(job.reason);
    info.std_err = OwnedText::some(details.stderr.as_deref());
    info.std_in = OwnedText::some(details.stdin.as_deref());
    info.std_out = OwnedText::some(details.stdout.as_deref());
    info.user_id = spec.owner.uid;
    info.user_name = OwnedText::or_null(&spec.owner.user);
    info.wckey = OwnedText::some(spec.wckey.as_deref());
    info.work_dir = OwnedText::of(&spec.work_dir);
    info.exit_code = wait_status(job.exit);
    info.derived_ec = wait_status(job.derived_exit);
}

fn asked(info: &mut SlurmJobInfo, job: &Job, details: &JobDetails) {
    let (spec, ask) = (&job.spec, &job.spec.ask);
    let set = |on: bool, flag: u64| if on { flag } else { 0 };
    let backfilled = job.alloc.as_ref().is_some_and(|alloc| alloc.backfilled);
    info.bitflags = set(
        spec.kill_on_invalid_dep == Some(true),
        KILL_INVALID_DEPENDENCY,
    ) | set(
        spec.kill_on_invalid_dep == Some(false),
        KEEP_INVALID_DEPENDENCY,
    ) | set(ask.spread, SPREADS)
        | set(ask.use_min_nodes, FEWEST_NODES)
        | set(ask.ntasks.is_some(), TASKS_SET)
        | set(ask.cpus_per_task.is_some(), CPUS_SET)
        | set(ask.memory != MemoryAsk::Default, MEMORY_SET)
        | set(spec.cron.is_some(), CRON_JOB)
        | set(backfilled, BACKFILLED);
    info.contiguous = u16::from(ask.contiguous);
    info.core_spec = short_or_none(ask.core_spec);
    info.cores_per_socket = short_or_none(ask.cores_per_socket);
    info.cpus_per_task = short_or_none(ask.cpus_per_task);
    (info.cpu_freq_min, info.cpu_freq_max, info.cpu_freq_gov) = (NO_VALUE, NO_VALUE, NO_VALUE);
    info.cpus_per_tres = OwnedText::some(details.by_device("CpusPerTres"));
    info.exc_nodes = OwnedText::some(ask.exclude.as_deref());
    info.features = OwnedText::some(ask.constraint.as_deref());
    info.licenses = OwnedText::some(spec.licenses.as_deref());
    info.max_nodes = ask.max_nodes.unwrap_or(0);
    info.mem_per_tres = OwnedText::some(details.by_device("MemPerTres"));
    info.ntasks_per_core = ask.ntasks_per_core_bound().map_or(INFINITE_16, short);
    info.ntasks_per_tres = NO_VALUE_16;
    info.ntasks_per_node = short(ask.ntasks_per_node.unwrap_or(0));
    info.ntasks_per_socket = ask.ntasks_per_socket.map_or(INFINITE_16, short);
    info.num_cpus = u32::try_from(details.cpus).unwrap_or(u32::MAX);
    info.num_nodes = details.node_count;
    info.num_tasks = details.tasks;
    info.partition = OwnedText::of(&details.partition);
    info.prefer = OwnedText::some(ask.prefer.as_deref());
    info.pn_min_memory = match details.memory {
        MemoryAsk::PerNode(mib) => mib,
        MemoryAsk::PerCpu(mib) => mib | PER_CPU,
        MemoryAsk::Default => 0,
    };
    info.pn_min_cpus = short(details.min_cpus_per_node);
    info.pn_min_tmp_disk = u32::try_from(ask.tmp_disk_mib).unwrap_or(u32::MAX);
    info.req_nodes = OwnedText::some(ask.nodelist.as_deref());
    info.req_switch = ask.switches.map_or(0, |own| own.count);
    let wait = ask.switches.and_then(|own| own.wait_s).unwrap_or(0);
    info.wait4switch = u32::try_from(wait).unwrap_or(u32::MAX);
    info.shared = match details.over_subscribe {
        "NO" => 0,
        "YES" => 1,
        "USER" => 2,
        _ => NO_VALUE_16,
    };
    info.show_flags = 3;
    info.site_factor = NICE_OFFSET.wrapping_add_signed(spec.site_factor);
    info.sockets_per_node = short_or_none(ask.sockets_per_node);
    info.threads_per_core = short_or_none(ask.threads_per_core);
    info.time_limit = minutes(job.time_limit);
    info.time_min = spec.time_min.map_or(0, minutes);
    info.tres_bind = OwnedText::some(details.by_device("TresBind"));
    info.tres_per_job = OwnedText::some(details.by_device("TresPerJob"));
    info.tres_per_node = OwnedText::some(details.by_device("TresPerNode"));
    info.tres_per_socket = OwnedText::some(details.by_device("TresPerSocket"));
    info.tres_per_task = OwnedText::some(details.by_device("TresPerTask"));
    info.tres_req_str = OwnedText::of(&details.tres_asked);
}

fn times(info: &mut SlurmJobInfo, job: &Job, details: &JobDetails) {
    info.accrue_time = seconds(job.accrues_since());
    info.deadline = seconds(job.spec.deadline);
    info.eligible_time = seconds(job.eligible_time);
    info.end_time = match (details.end, job.time_limit) {
        (Some(end), _) => end.unix_s(),
        // A job that may run for ever ends in a year.
        (None, TimeLimit::Unlimited) if !details.is_pending => {
            seconds(job.start_time.map(|start| start.plus_s(365 * 86_400)))
        }
        _ => 0,
    };
    info.last_sched_eval = seconds(details.last_sched_eval);
    info.preempt_time = seconds(job.preempted.as_ref().map(|own| own.at));
    info.pre_sus_time = match job.suspend_time {
        Some(_) => details.run_time_s,
        None => i64::try_from(job.suspended_ms / 1000).unwrap_or(0),
    };
    info.resize_time = seconds(job.resize_time);
    info.start_time = seconds(details.start);
    info.submit_time = seconds(Some(job.submit_time));
    info.suspend_time = seconds(job.suspend_time);
}

fn place(info: &mut SlurmJobInfo, job: &Job, details: &JobDetails) {
    info.batch_host = OwnedText::some(details.batch_host.as_deref());
    info.nodes = OwnedText::or_null(&details.nodes);
    info.node_inx = ranges(details.shares.iter().map(|share| share.node.0).collect());
    info.req_node_inx = ranges(Vec::new());
    info.exc_node_inx = ranges(Vec::new());
    info.sched_nodes = OwnedText::some(details.sched_nodes.as_deref());
    info.tres_alloc_str = OwnedText::or_null(&details.tres);
    info.billable_tres = match job.alloc.as_ref().filter(|_| !details.is_pending) {
        Some(alloc) => {
            let milli = u32::try_from(alloc.billing_milli).unwrap_or(u32::MAX);
            f64::from(milli) / 1000.0
        }
        None => 0.0,
    };
    let devices: Vec<String> = (details.shares.iter())
        .map(|share| {
            let each = share.gres.iter().map(crate::resources::device_text);
            each.collect::<Vec<_>>().join(",")
        })
        .collect();
    if devices.iter().any(|text| !text.is_empty()) {
        info.gres_detail_cnt = u32::try_from(devices.len()).unwrap_or(0);
        info.gres_detail_str = OwnedTexts::of(&devices);
        info.gres_total = OwnedText::of(&crate::resources::device_totals(&details.shares));
    }
}

/// The jobs that a filter finds, where a program gets them.
///
/// # Safety
/// `at` is null or leads to room for a pointer.
unsafe fn load(at: *mut *mut SlurmJobInfoMsg, filter: JobFilter) -> Result<(), CallError> {
    if at.is_null() {
        return Err(CallError::argument("the pointer to the answer is null"));
    }
    let named = !filter.ids.is_empty();
    let mut client = connect()?;
    let cluster = client.endpoint.cluster.clone();
    let mut found = Vec::new();
    let mut names = BTreeSet::new();
    let listing: JobListing = library::for_each_job(&mut client, filter, |job, details| {
        names.extend(details.shares.iter().map(|share| share.name.clone()));
        found.push((job.clone(), details));
    })?;
    if named && found.is_empty() {
        return Err(CallError::new(INVALID_JOB_ID, "there is no such job"));
    }
    crate::resources::learn_shapes(&mut client, &names)?;
    let made = found
        .iter()
        .map(|(job, details)| made(job, details, &cluster));
    let records: Vec<SlurmJobInfo> = made.collect();
    let message = SlurmJobInfoMsg {
        last_backfill: 0,
        last_update: listing.now.unix_s(),
        record_count: u32::try_from(records.len()).unwrap_or(u32::MAX),
        job_array: memory::array_or_null(&records),
    };
    // SAFETY: as the caller promises.
    unsafe { at.write(memory::placed(message)) };
    Ok(())
}

/// Frees what a job owns, but not its own memory.
///
/// # Safety
/// The job was made here, and nothing of it was freed.
unsafe fn release(own: SlurmJobInfo) {
    // SAFETY: as the caller promises.
    unsafe {
        JobResources::free(own.job_resrcs.0.cast());
        own.release();
    }
}

/// The record of one job.
fn one(id: u32) -> Result<(Job, JobDetails), CallError> {
    let filter = JobFilter {
        ids: vec![job(id)],
        ..JobFilter::default()
    };
    let mut found = None;
    library::for_each_job(&mut connect()?, filter, |job, details| {
        found.get_or_insert((job.clone(), details));
    })?;
    found.ok_or_else(|| CallError::new(INVALID_JOB_ID, format!("there is no job {id}")))
}

status_functions! {
    /// All jobs that the user may see.
    fn slurm_load_jobs(_since: time_t, at: *mut *mut SlurmJobInfoMsg, _flags: u16) {
        load(at, JobFilter { starts: true, ..JobFilter::default() })
    }
    /// A job, or the jobs of an array.
    fn slurm_load_job(at: *mut *mut SlurmJobInfoMsg, id: u32, _flags: u16) {
        load(at, JobFilter { ids: vec![job(id)], starts: true, ..JobFilter::default() })
    }
    /// The jobs of a user.
    fn slurm_load_job_user(at: *mut *mut SlurmJobInfoMsg, uid: u32, _flags: u16) {
        load(at, JobFilter { uids: vec![uid], starts: true, ..JobFilter::default() })
    }
    /// When a job ends, by its time limit.
    fn slurm_get_end_time(id: u32, at: *mut time_t) {
        let (_, details) = one(own_job(id)?)?;
        memory::give(at, seconds(details.end));
        Ok(())
    }
    /// The number of the job that a process is of.
    fn slurm_pid2jobid(pid: libc::pid_t, at: *mut u32) {
        let number = crate::resources::job_of_process(pid)?;
        memory::give(at, number);
        Ok(())
    }
}

/// A number of a program's, or that of the job that it runs in for 0.
fn own_job(id: u32) -> Result<u32, CallError> {
    if id != 0 {
        return Ok(id);
    }
    let own = std::env::var("SLURM_JOB_ID")
        .ok()
        .and_then(|id| id.parse().ok());
    own.ok_or_else(|| CallError::new(INVALID_JOB_ID, "the program runs in no job"))
}

/// Bits of `slurm_job_node_ready`: nodes, job and prolog are ready for steps.
const READY_NODES: c_int = 1;
const READY_JOB: c_int = 1 << 1;
const READY_PROLOG: c_int = 1 << 2;
/// `READY_JOB_FATAL`, for a job that is no more.
const READY_FATAL: c_int = -2;

value_functions! {
    /// Seconds until a job ends by its time limit.
    fn slurm_get_rem_time(id: u32) -> c_long, else -1, {
        let (job, details) = one(own_job(id)?)?;
        if job.state.is_ended() {
            return Err(CallError::new(JOB_NOT_RUNNING, "the job has ended"));
        }
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let now = now.ok().and_then(|now| i64::try_from(now.as_secs()).ok()).unwrap_or(0);
        Ok(match details.end {
            Some(end) => (end.unix_s() - now).max(0),
            None => c_long::from(INFINITE),
        })
    }
    /// Whether a job's nodes are ready for steps.
    fn slurm_job_node_ready(id: u32) -> c_int, else -1, {
        let Ok((job, details)) = one(id) else { return Ok(READY_FATAL) };
        Ok(match job.state {
            state if state.is_ended() => READY_FATAL,
            _ if details.is_pending => 0,
            _ if job.configuring || job.power_up.is_some() => READY_JOB,
            _ => READY_NODES | READY_JOB | READY_PROLOG,
        })
    }
    /// The number of a job that is written as `17`, `17_3` or `17_[1-3]`; 0 if there is none.
    fn slurm_xlate_job_id(text: *const c_char) -> u32, else 0, {
        let text = memory::text(text).unwrap_or_default();
        let (base, task) = match text.split_once('_') {
            Some((base, task)) => (base, task.parse::<u32>().ok()),
            None => (text.as_str(), None),
        };
        let Ok(base) = base.parse::<u32>() else { return Ok(0) };
        let Some(task) = task else { return Ok(base) };
        let filter = JobFilter { ids: vec![job(base)], ..JobFilter::default() };
        let mut found = 0;
        library::for_each_job(&mut connect()?, filter, |job, details| {
            if details.array_task == Some(task) {
                found = job_number(job.id);
            }
        })?;
        Ok(found)
    }
}

/// Writes a file of a job into a buffer.
///
/// # Safety
/// `buffer` has room for `size` bytes.
unsafe fn write_path(path: OwnedText, buffer: *mut c_char, size: c_int) {
    let size = usize::try_from(size).unwrap_or(0);
    // SAFETY: as the caller promises; the text is the job's.
    unsafe { memory::write_cut(&memory::text(path.0).unwrap_or_default(), buffer, size) };
}

quiet_functions! {
    /// Frees jobs.
    fn slurm_free_job_info_msg(at: *mut SlurmJobInfoMsg) {
        let Some(own) = at.as_ref() else { return };
        for place in 0..own.record_count as usize {
            release(own.job_array.add(place).read());
        }
        libc::free(own.job_array.cast());
        libc::free(at.cast());
    }
    /// Frees a job.
    fn slurm_free_job_info(at: *mut SlurmJobInfo) {
        if let Some(own) = at.as_ref() {
            release(*own);
            libc::free(at.cast());
        }
    }
    /// Frees what a job owns, but not its own memory.
    fn slurm_free_job_info_members(at: *mut SlurmJobInfo) {
        if let Some(own) = at.as_mut() {
            release(std::mem::replace(own, SlurmJobInfo::empty()));
        }
    }
    /// Path of a job's standard output.
    fn slurm_get_job_stdout(buffer: *mut c_char, size: c_int, at: *mut SlurmJobInfo) {
        if let Some(own) = at.as_ref() {
            write_path(own.std_out, buffer, size);
        }
    }
    /// Path of a job's standard error.
    fn slurm_get_job_stderr(buffer: *mut c_char, size: c_int, at: *mut SlurmJobInfo) {
        if let Some(own) = at.as_ref() {
            write_path(own.std_err, buffer, size);
        }
    }
    /// Path of a job's standard input.
    fn slurm_get_job_stdin(buffer: *mut c_char, size: c_int, at: *mut SlurmJobInfo) {
        if let Some(own) = at.as_ref() {
            write_path(own.std_in, buffer, size);
        }
    }
}
