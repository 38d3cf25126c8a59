//! Records of jobs: the controller's, and those of accounting for jobs that it has forgotten or that have ended.

use crate::error::DrmaaError;
use crate::job_ref::JobRef;
use crate::values::{AttributeMap, AttributeValue, EXTRAS, MachineSlots, TextPair};
use muster_cli::connect::Client;
use muster_cli::library;
use muster_model::hostlist;
use muster_model::ids::JobId;
use muster_model::job::{ArrayRole, ArrayTask, ExitStatus, Hold, Job, JobState, Reason};
use muster_model::limits::QUERY_ITEMS_MAX;
use muster_model::time::Timestamp;
use muster_proto::acct::AcctJob;
use muster_proto::client::JobFilter;
use std::collections::{BTreeMap, HashMap};

/// Implementation-specific attributes of `drmaa2_jinfo`, and what each is.
pub const EXTRA_NAMES: [(&str, &str); 7] = [
    ("muster_ji_account", "account that the job is charged to"),
    ("muster_ji_qos", "quality of service"),
    ("muster_ji_class", "job class"),
    ("muster_ji_comment", "the job's comment"),
    ("muster_ji_restarts", "how often the job was requeued"),
    ("muster_ji_state", "the job's state by its name in squeue"),
    (
        "muster_ji_max_rss",
        "largest resident memory of a task, in KiB",
    ),
];
/// Machines of a job that are named from a record of accounting.
const MACHINES_MAX: usize = 1 << 16;

/// A job's state by the numbers of `drmaa2_jstate`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum DrmaaState {
    /// Nothing is known.
    Undetermined = 0,
    /// It waits.
    Queued = 1,
    /// It waits for its release.
    QueuedHeld = 2,
    /// It runs.
    Running = 3,
    /// It is stopped.
    Suspended = 4,
    /// It has run, and waits again.
    Requeued = 5,
    /// It has run, and waits for its release.
    RequeuedHeld = 6,
    /// It ended with exit status 0.
    Done = 7,
    /// It ended in another way.
    Failed = 8,
}

impl DrmaaState {
    /// Its number in the C binding.
    pub fn number(self) -> libc::c_int {
        self as libc::c_int
    }

    /// Whether it is over.
    pub fn is_ended(self) -> bool {
        matches!(self, DrmaaState::Done | DrmaaState::Failed)
    }

    /// Whether it is on machines.
    pub fn is_started(self) -> bool {
        matches!(self, DrmaaState::Running | DrmaaState::Suspended)
    }
}

/// Record of a job.
#[derive(Clone, Debug, PartialEq)]
pub struct JobRecord {
    /// The job.
    pub job: JobRef,
    /// Its name.
    pub name: String,
    /// Its state.
    pub state: DrmaaState,
    /// More about it: why it waits, or how it ended.
    pub sub_state: Option<String>,
    /// Whether it has been on machines.
    pub has_started: bool,
    /// Number of its requeues.
    pub restarts: u32,
    /// The members of `drmaa2_jinfo`.
    pub info: AttributeMap,
}

/// Jobs to look for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// States are enough: accounting is asked only for jobs that the controller has forgotten.
    States,
    /// Use by jobs, too: accounting is asked for all that have ended.
    Usage,
}

/// Records of jobs, in their order; none for jobs that nobody knows.
///
/// # Errors
/// The controller cannot be asked.
pub fn find(
    client: &mut Client,
    jobs: &[JobRef],
    depth: Depth,
) -> Result<Vec<Option<JobRecord>>, DrmaaError> {
    let mut ids: Vec<JobId> = jobs.iter().map(|own| own.job).collect();
    ids.sort_unstable();
    ids.dedup();
    let mut live: BTreeMap<JobId, Vec<Job>> = BTreeMap::new();
    for part in ids.chunks(QUERY_ITEMS_MAX) {
        for job in library::jobs(client, part.to_vec())? {
            live.entry(job.submission()).or_default().push(job);
        }
    }
    let mut accounted: HashMap<JobId, Vec<AcctJob>> = HashMap::new();
    let mut found = Vec::with_capacity(jobs.len());
    for job in jobs {
        let own = live.get(&job.job).into_iter().flatten();
        let own = own.clone().find(|record| is_of(record, *job));
        let record = own.map(|own| of_live(own, *job));
        let is_enough = record
            .as_ref()
            .is_some_and(|record| !record.state.is_ended() || depth == Depth::States);
        if is_enough {
            found.push(record);
            continue;
        }
        let rows = match accounted.entry(job.job) {
            std::collections::hash_map::Entry::Occupied(known) => known.into_mut(),
            std::collections::hash_map::Entry::Vacant(place) => {
                place.insert(library::accounting(client, job.job)?)
            }
        };
        // The last run of a job that ran several times counts. Accounting has a job that ended just now in a moment.
        let row = rows.iter().rfind(|row| is_row_of(row, *job));
        let row = row.filter(|row| record.is_none() || row.state.is_ended());
        found.push(row.map(|row| of_accounting(row, *job)).or(record));
    }
    Ok(found)
}

/// All jobs that the controller has and the user may see.
///
/// # Errors
/// The controller cannot be asked.
pub fn all(client: &mut Client) -> Result<Vec<JobRecord>, DrmaaError> {
    let jobs = library::filtered_jobs(client, JobFilter::default())?;
    let mut records = Vec::with_capacity(jobs.len());
    for own in &jobs {
        for job in names(own) {
            records.push(of_live(own, job));
        }
    }
    records.sort_by_key(|record| record.job);
    Ok(records)
}

/// The jobs that a record is of.
fn names(own: &Job) -> Vec<JobRef> {
    let of = |task: Option<u32>| JobRef {
        job: own.submission(),
        task,
    };
    match &own.array {
        ArrayRole::None => vec![of(None)],
        ArrayRole::Pending { indices } => indices.iter().map(|index| of(Some(index))).collect(),
        ArrayRole::Task { index, .. } => vec![of(Some(*index))],
    }
}

fn is_of(own: &Job, job: JobRef) -> bool {
    match (&own.array, job.task) {
        (ArrayRole::None, None) => own.id == job.job,
        (ArrayRole::Pending { indices }, Some(task)) => indices.contains(task),
        (ArrayRole::Task { index, .. }, Some(task)) => *index == task,
        (ArrayRole::None, Some(_)) => false,
        // For an array without a task's number: all tasks that are left.
        (_, None) => true,
    }
}

fn is_row_of(row: &AcctJob, job: JobRef) -> bool {
    match job.task {
        None => row.id == job.job,
        Some(index) => {
            row.array
                == Some(ArrayTask {
                    array: job.job,
                    index,
                })
        }
    }
}

/// DRMAA's state for Slurm's, but for suspension by a signal.
fn state_of(state: JobState, exit: ExitStatus, hold: Hold, restarts: u32) -> DrmaaState {
    match (state, hold == Hold::None, restarts > 0) {
        (JobState::Pending, true, false) => DrmaaState::Queued,
        (JobState::Pending, false, false) => DrmaaState::QueuedHeld,
        (JobState::Pending, true, true) => DrmaaState::Requeued,
        (JobState::Pending, false, true) => DrmaaState::RequeuedHeld,
        (JobState::Running, ..) => DrmaaState::Running,
        (JobState::Suspended, ..) => DrmaaState::Suspended,
        (JobState::Completed, ..) if exit == ExitStatus::default() => DrmaaState::Done,
        _ => DrmaaState::Failed,
    }
}

/// The signal that ended a job.
fn signal_of(state: JobState, exit: ExitStatus, has_started: bool) -> Option<String> {
    let number = match (state, exit.signal) {
        (_, signal) if signal > 0 => i32::try_from(signal).ok()?,
        (
            JobState::Cancelled
            | JobState::Timeout
            | JobState::Preempted
            | JobState::Deadline
            | JobState::OutOfMemory,
            _,
        ) if has_started => libc::SIGKILL,
        _ => return None,
    };
    let known = nix::sys::signal::Signal::try_from(number);
    Some(known.map_or_else(
        |_| format!("SIG{number}"),
        |known| known.as_str().to_owned(),
    ))
}

/// Common part of both kinds of records about an end.
#[derive(Debug)]
struct JobEnding {
    state: JobState,
    exit: ExitStatus,
    has_started: bool,
}

impl JobEnding {
    fn put(&self, info: &mut AttributeMap) {
        if self.has_started {
            let code = i64::from(self.exit.shell_code());
            info.put("exitStatus", AttributeValue::Number(code));
        }
        if let Some(signal) = signal_of(self.state, self.exit, self.has_started) {
            info.put_text("terminatingSignal", signal);
        }
    }
}

fn time(at: Option<Timestamp>) -> Option<AttributeValue> {
    at.map(|at| AttributeValue::Number(at.unix_s()))
}

fn number(value: impl TryInto<i64>) -> Option<AttributeValue> {
    value.try_into().ok().map(AttributeValue::Number)
}

fn now() -> Timestamp {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let seconds = since.map_or(0, |since| since.as_secs());
    Timestamp::from_unix_s(i64::try_from(seconds).unwrap_or(i64::MAX))
}

/// Seconds on machines, without those in which it was suspended.
fn wallclock(
    start: Option<Timestamp>,
    end: Option<Timestamp>,
    suspended_ms: u64,
) -> Option<AttributeValue> {
    let start = start?;
    let all = end
        .unwrap_or_else(now)
        .unix_s()
        .saturating_sub(start.unix_s());
    let suspended = i64::try_from(suspended_ms / 1000).unwrap_or(0);
    number(all.saturating_sub(suspended).max(0))
}

fn extras(all: [(&str, String); 6]) -> Vec<TextPair> {
    let own = all.into_iter().filter(|(_, value)| !value.is_empty());
    own.map(|(key, value)| TextPair {
        key: key.to_owned(),
        value,
    })
    .collect()
}

fn user_name(uid: u32) -> String {
    let found = nix::unistd::User::from_uid(uid.into()).ok().flatten();
    found.map_or_else(|| uid.to_string(), |user| user.name)
}

fn of_live(own: &Job, job: JobRef) -> JobRecord {
    let has_started = own.start_time.is_some();
    let state = state_of(own.state, own.exit, own.hold, own.restarts);
    let mut info = AttributeMap::default();
    info.put_text("jobId", job.to_string());
    info.put_text("jobName", own.spec.name.as_str());
    info.put_text("jobOwner", user_name(own.spec.owner.uid));
    info.put_text("submissionMachine", own.spec.submit_host.as_str());
    info.put("submissionTime", time(Some(own.submit_time)));
    info.put("dispatchTime", time(own.start_time));
    let partition = match own.partition.is_empty() {
        true => own.spec.partitions.join(","),
        false => own.partition.clone(),
    };
    info.put_text("queueName", partition);
    if let Some(alloc) = &own.alloc {
        let machines = alloc.nodes.iter().map(|share| MachineSlots {
            machine: share.name.clone(),
            slots: Some(i64::from(share.cpus.len())),
        });
        let machines: Vec<MachineSlots> = machines.collect();
        let slots: i64 = machines.iter().filter_map(|own| own.slots).sum();
        info.put("slots", number(slots));
        info.put("allocatedMachines", AttributeValue::Machines(machines));
    }
    let end = own.end_time.filter(|_| state.is_ended());
    info.put(
        "wallclockTime",
        wallclock(own.start_time, end, own.suspended_ms),
    );
    if state.is_ended() {
        info.put("finishTime", time(end));
        let ended = JobEnding {
            state: own.state,
            exit: own.exit,
            has_started,
        };
        ended.put(&mut info);
    }
    info.put_text("annotation", own.reason_detail.clone().unwrap_or_default());
    let class = own.spec.class.as_ref().map(|class| class.name.clone());
    let extras = extras([
        ("muster_ji_account", own.spec.account_name().to_owned()),
        ("muster_ji_qos", own.spec.qos_name().to_owned()),
        ("muster_ji_class", class.unwrap_or_default()),
        (
            "muster_ji_comment",
            own.spec.comment.clone().unwrap_or_default(),
        ),
        ("muster_ji_restarts", own.restarts.to_string()),
        ("muster_ji_state", own.state.name().to_owned()),
    ]);
    info.put(EXTRAS, AttributeValue::Pairs(extras));
    let sub_state = match state {
        DrmaaState::Running | DrmaaState::Suspended | DrmaaState::Done => None,
        DrmaaState::Failed => Some(own.state.name()),
        _ => Some(own.reason)
            .filter(|r| *r != Reason::None)
            .map(Reason::name),
    };
    JobRecord {
        job,
        name: own.spec.name.clone(),
        state,
        sub_state: None,
        has_started,
        restarts: own.restarts,
        info,
    }
    .in_state(state, sub_state)
}

fn of_accounting(row: &AcctJob, job: JobRef) -> JobRecord {
    let has_started = row.start.is_some();
    let state = state_of(row.state, row.exit, Hold::None, row.restarts);
    let mut info = AttributeMap::default();
    info.put_text("jobId", job.to_string());
    info.put_text("jobName", row.name.as_str());
    let user = match row.user.is_empty() {
        true => user_name(row.uid),
        false => row.user.clone(),
    };
    info.put_text("jobOwner", user);
    info.put_text("submissionMachine", row.submit_host.as_str());
    info.put_text("queueName", row.partition.as_str());
    info.put("submissionTime", time(Some(row.submit)));
    info.put("dispatchTime", time(row.start));
    info.put(
        "wallclockTime",
        wallclock(row.start, row.end, row.suspended_ms),
    );
    let machines = hostlist::parse_limited(&row.nodelist, MACHINES_MAX).unwrap_or_default();
    if has_started && !machines.is_empty() {
        let slots = (machines.len() == 1).then(|| i64::from(row.alloc_cpus));
        let machines = machines
            .into_iter()
            .map(|machine| MachineSlots { machine, slots });
        info.put(
            "allocatedMachines",
            AttributeValue::Machines(machines.collect()),
        );
        info.put("slots", number(row.alloc_cpus));
    }
    let used = row.steps.iter().filter_map(|step| step.usage.as_ref());
    let (mut cpu_us, mut rss_kib) = (0_u64, 0_u64);
    for step in used {
        let both = step.user_us.saturating_add(step.system_us);
        cpu_us = cpu_us.saturating_add(both);
        rss_kib = rss_kib.max(step.max_rss_kib);
    }
    if has_started {
        info.put("cpuTime", number(cpu_us / 1_000_000));
    }
    if state.is_ended() {
        info.put("finishTime", time(row.end));
        let ended = JobEnding {
            state: row.state,
            exit: row.exit,
            has_started,
        };
        ended.put(&mut info);
    }
    let mut extras = extras([
        ("muster_ji_account", row.account.clone()),
        ("muster_ji_qos", row.qos.clone()),
        ("muster_ji_class", row.class.clone()),
        ("muster_ji_comment", row.comment.clone()),
        ("muster_ji_restarts", row.restarts.to_string()),
        ("muster_ji_state", row.state.name().to_owned()),
    ]);
    if rss_kib > 0 {
        extras.push(TextPair {
            key: "muster_ji_max_rss".to_owned(),
            value: rss_kib.to_string(),
        });
    }
    info.put(EXTRAS, AttributeValue::Pairs(extras));
    let sub_state = (state == DrmaaState::Failed).then(|| row.state.name());
    JobRecord {
        job,
        name: row.name.clone(),
        state,
        sub_state: None,
        has_started,
        restarts: row.restarts,
        info,
    }
    .in_state(state, sub_state)
}

impl JobRecord {
    fn in_state(mut self, state: DrmaaState, sub_state: Option<&str>) -> JobRecord {
        self.set_state(state, sub_state);
        self
    }

    /// Sets the state, in the information, too.
    pub fn set_state(&mut self, state: DrmaaState, sub_state: Option<&str>) {
        self.state = state;
        self.sub_state = sub_state.map(str::to_owned);
        let state = i64::from(state.number());
        self.info.put("jobState", AttributeValue::Number(state));
        self.info
            .put_text("jobSubState", sub_state.unwrap_or_default());
    }

    /// Whether it is what a filter asks for: text and states are the same; times are not earlier, amounts not less; all machines of
    /// the filter are its own.
    pub fn is_in(&self, filter: &AttributeMap) -> bool {
        filter.iter().all(|(name, wanted)| self.has(name, wanted))
    }

    fn has(&self, name: &str, wanted: &AttributeValue) -> bool {
        let own = self.info.get(name);
        match (name, wanted, own) {
            (
                "slots" | "wallclockTime" | "cpuTime" | "submissionTime" | "dispatchTime"
                | "finishTime",
                AttributeValue::Number(least),
                own,
            ) => matches!(own, Some(AttributeValue::Number(own)) if own >= least),
            ("allocatedMachines", AttributeValue::Texts(wanted), own) => {
                let Some(AttributeValue::Machines(own)) = own else {
                    return false;
                };
                let is_there = |name: &String| own.iter().any(|own| own.machine == *name);
                wanted.iter().all(is_there)
            }
            ("jobId", AttributeValue::Text(wanted), _) => {
                JobRef::parse(wanted).is_ok_and(|wanted| {
                    wanted == self.job || (wanted.task.is_none() && wanted.job == self.job.job)
                })
            }
            (EXTRAS, AttributeValue::Pairs(wanted), _) => wanted
                .iter()
                .all(|pair| self.info.extra(&pair.key) == Some(pair.value.as_str())),
            (_, wanted, own) => own == Some(wanted),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CODE_3: ExitStatus = ExitStatus { code: 3, signal: 0 };
    const SIGTERM: ExitStatus = ExitStatus {
        code: 0,
        signal: 15,
    };

    #[test]
    fn states_are_those_of_the_standard() {
        let none = ExitStatus::default();
        for (state, exit, hold, restarts, expected) in [
            (JobState::Pending, none, Hold::None, 0, DrmaaState::Queued),
            (
                JobState::Pending,
                none,
                Hold::User,
                0,
                DrmaaState::QueuedHeld,
            ),
            (
                JobState::Pending,
                none,
                Hold::Admin,
                0,
                DrmaaState::QueuedHeld,
            ),
            (JobState::Pending, none, Hold::None, 1, DrmaaState::Requeued),
            (
                JobState::Pending,
                none,
                Hold::User,
                2,
                DrmaaState::RequeuedHeld,
            ),
            (JobState::Running, none, Hold::None, 1, DrmaaState::Running),
            (
                JobState::Suspended,
                none,
                Hold::None,
                0,
                DrmaaState::Suspended,
            ),
            (JobState::Completed, none, Hold::None, 0, DrmaaState::Done),
            (JobState::Failed, CODE_3, Hold::None, 0, DrmaaState::Failed),
            (JobState::Cancelled, none, Hold::None, 0, DrmaaState::Failed),
            (JobState::NodeFail, none, Hold::None, 0, DrmaaState::Failed),
        ] {
            assert_eq!(state_of(state, exit, hold, restarts), expected, "{state:?}");
        }
    }

    #[test]
    fn signals_have_their_names() {
        let none = ExitStatus::default();
        let own = |state, exit, ran| signal_of(state, exit, ran);
        assert_eq!(
            own(JobState::Failed, SIGTERM, true).as_deref(),
            Some("SIGTERM")
        );
        assert_eq!(
            own(JobState::Cancelled, none, true).as_deref(),
            Some("SIGKILL")
        );
        assert_eq!(own(JobState::Cancelled, none, false), None);
        assert_eq!(own(JobState::Failed, CODE_3, true), None);
    }

    fn record() -> JobRecord {
        let mut info = AttributeMap::default();
        info.put_text("jobOwner", "ann");
        info.put("slots", AttributeValue::Number(4));
        let machine = |name: &str| MachineSlots {
            machine: name.to_owned(),
            slots: Some(2),
        };
        let machines = vec![machine("n1"), machine("n2")];
        info.put("allocatedMachines", AttributeValue::Machines(machines));
        let pair = TextPair {
            key: "muster_ji_qos".to_owned(),
            value: "high".to_owned(),
        };
        info.put(EXTRAS, AttributeValue::Pairs(vec![pair]));
        let job = JobRef::parse("17.3").unwrap();
        JobRecord {
            job,
            name: "n".to_owned(),
            state: DrmaaState::Undetermined,
            sub_state: None,
            has_started: true,
            restarts: 0,
            info,
        }
        .in_state(DrmaaState::Running, None)
    }

    #[test]
    fn filters_are_conditions_that_all_hold() {
        let own = record();
        let fits = |name: &str, value: AttributeValue| {
            let mut filter = AttributeMap::default();
            filter.put("jobState", AttributeValue::Number(3));
            filter.put(name, value);
            own.is_in(&filter)
        };
        let text = |text: &str| AttributeValue::Text(text.to_owned());
        let texts = |all: &[&str]| {
            AttributeValue::Texts(all.iter().map(|text| (*text).to_owned()).collect())
        };
        assert!(own.is_in(&AttributeMap::default()));
        assert!(fits("jobId", text("17.3")) && fits("jobId", text("17")));
        assert!(!fits("jobId", text("17.4")) && !fits("jobId", text("x")));
        assert!(fits("jobOwner", text("ann")) && !fits("jobOwner", text("bob")));
        assert!(
            fits("slots", AttributeValue::Number(3)) && !fits("slots", AttributeValue::Number(5))
        );
        assert!(fits("allocatedMachines", texts(&["n2"])));
        assert!(!fits("allocatedMachines", texts(&["n2", "n3"])));
        assert!(
            !fits("cpuTime", AttributeValue::Number(0)),
            "it is not known"
        );
        assert!(!fits("jobState", AttributeValue::Number(7)));
        let pair = |value: &str| {
            AttributeValue::Pairs(vec![TextPair {
                key: "muster_ji_qos".to_owned(),
                value: value.to_owned(),
            }])
        };
        assert!(fits(EXTRAS, pair("high")) && !fits(EXTRAS, pair("low")));
    }
}
