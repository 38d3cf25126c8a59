//! Submission: every check that a job passes before it is accepted, and what the core fills in.

use super::ask::configuration;
use super::draft::Draft;
use super::job_accounting::check_accounting;
use super::texts::{one_line, too_long};
use super::{ask, dependency, job_limits, partition_access, places, reservation, room};
use crate::apply;
use crate::event::{Event, JobChange};
use crate::policy::{access, limits, mcs};
use crate::state::State;
use minicbor::bytes::ByteVec;
use muster_model::command::{Identity, Reply};
use muster_model::config::{ClusterConfig, PartitionConfig};
use muster_model::ids::{BlobId, JobId};
use muster_model::job::{ArrayRole, Hold, Job, Reason};
use muster_model::job_class::CLASS_NAME_BYTES_MAX;
use muster_model::licenses::LicenseCount;
use muster_model::limits::{
    ARGUMENTS_MAX, CONTEXT_BYTES_MAX, DEPENDENCY_TERMS_MAX, ENVIRONMENT_VARIABLES_MAX,
    JOB_PARTITIONS_MAX, LICENSE_ALTERNATIVES_MAX, NAME_BYTES_MAX, PATH_BYTES_MAX, SIGNAL_MAX,
    TEXT_BYTES_MAX,
};
use muster_model::mail::{MAIL_LINES_MAX, MailOptions};
use muster_model::mcs::MCS_LABEL;
use muster_model::refusal::{Refusal, RefusalCode};
use muster_model::rights::AccessRequest;
use muster_model::site_option::{COUNT_MAX, VALUE_BYTES_MAX, is_site_option};
use muster_model::spec::{ExecContext, JobKind, JobSpec, MemoryAsk, Owner, StdioSpec};
use muster_model::time::{TimeLimit, Timestamp};
use muster_model::usage::task_interval_s;
use muster_model::validate::Validate;
use muster_model::visible_text::make_visible;
use muster_model::{grid_engine, licenses};
use std::sync::Arc;

/// The text that administrators alone set.
pub(super) const ADMIN_COMMENT: &str = "admin-comment";

/// Texts of a job that are stored by the name of their option.
const SHOWN: [&str; 14] = [
    ADMIN_COMMENT,
    "acctg-freq",
    "cpu-freq",
    "extra",
    "gpu-bind",
    ask::GPU_FREQUENCY,
    "gres-flags",
    MCS_LABEL,
    "mem-bind",
    "network",
    "power",
    "prefer",
    "profile",
    "tres-bind",
];

/// Accepts a job or refuses it.
pub(super) fn submit(
    draft: &mut Draft<'_>,
    identity: &Identity,
    spec: &JobSpec,
    blobs: &[(BlobId, ByteVec)],
    test_only: bool,
) -> Result<Option<Reply>, Refusal> {
    check_blobs(draft, spec, blobs)?;
    let (job, not_before) = prepare(draft, identity, spec)?;
    let tasks = match &job.array {
        ArrayRole::Pending { indices } => u32::try_from(indices.len()).unwrap_or(u32::MAX),
        ArrayRole::None | ArrayRole::Task { .. } => 1,
    };
    job_limits::require(draft.state.submit_limit(&job, tasks))?;
    let bytes = room::bytes_of(draft.state, &[&job], blobs);
    room::check_bytes(draft.state, identity, job.spec.owner.uid, bytes)?;
    if test_only {
        return Ok(None);
    }
    let id = job.id;
    store_blobs(draft, std::slice::from_ref(spec), blobs);
    accept(draft, job, not_before);
    Ok(Some(Reply::Submitted {
        id,
        warnings: Vec::new(),
        lines: Vec::new(),
        name: None,
    }))
}

/// Checks `--mail-lines`.
fn check_mail_lines(mail: Option<&MailOptions>) -> Result<(), Refusal> {
    let Some(MailOptions {
        types,
        lines: Some(lines),
        ..
    }) = mail
    else {
        return Ok(());
    };
    let why = match (types.is_empty(), *lines <= MAIL_LINES_MAX) {
        (false, true) => return Ok(()),
        (true, _) => "--mail-lines needs --mail-type".to_owned(),
        (false, false) => format!("--mail-lines={lines}: the limit is {MAIL_LINES_MAX}"),
    };
    Err(Refusal::new(RefusalCode::InvalidValue, why))
}

/// Keeps scripts and contexts that the specifications name and that are not known yet.
pub(super) fn store_blobs(draft: &mut Draft<'_>, specs: &[JobSpec], blobs: &[(BlobId, ByteVec)]) {
    let named = specs.iter().flat_map(|spec| [spec.script, spec.context]);
    for (blob, bytes) in blobs {
        if named.clone().any(|id| id == Some(*blob)) && !draft.state.blobs.contains_key(blob) {
            draft.emit(Event::BlobStored {
                id: *blob,
                bytes: Arc::new(bytes.clone()),
            });
        }
    }
}

/// Takes the record into the queue; one whose dependency can never be satisfied may end at once.
pub(super) fn accept(draft: &mut Draft<'_>, job: Job, not_before: Option<Timestamp>) {
    let (id, reason) = (job.id, job.reason);
    record(draft, job, not_before);
    settle(draft, id, reason);
}

/// The job is in the queue.
pub(super) fn record(draft: &mut Draft<'_>, job: Job, not_before: Option<Timestamp>) {
    let (id, now) = (job.id, draft.now);
    draft.emit(Event::JobSubmitted {
        id,
        spec: job.spec,
        at: now,
        priority: job.priority,
        hold: job.hold,
        time_limit: job.time_limit,
        waiting_on: job.waiting_on,
        reason: job.reason,
        partition: job.partition,
        requeueable: job.requeueable,
        het: job.het,
    });
    if let Some(time) = not_before {
        draft.change(id, JobChange::NotBefore(time));
    }
}

/// Settles a new job: it ends if its dependency can never be satisfied.
pub(super) fn settle(draft: &mut Draft<'_>, id: JobId, reason: Reason) {
    let never = reason == Reason::DependencyNeverSatisfied;
    if never && dependency::kills_on_invalid(draft, id) {
        let how = super::ending::JobEnding::new(
            muster_model::job::JobState::Cancelled,
            Reason::DependencyNeverSatisfied,
        );
        super::ending::end(draft, id, how);
    } else {
        dependency::split_decided_tasks(draft, id);
    }
}

/// The record that the submission makes, and a time before which it may not start because of a dependency. Limits on how many are
/// submitted are left to the caller, who may bring several or replace some.
pub(super) fn prepare(
    draft: &Draft<'_>,
    identity: &Identity,
    spec: &JobSpec,
) -> Result<(Job, Option<Timestamp>), Refusal> {
    let (state, now) = (draft.state, draft.now);
    let config = configuration(state)?;
    let mut spec = spec.clone();
    // A crontab alone makes it one of its entries.
    spec.cron = None;
    spec.owner = owner(draft, identity, &spec)?;
    if let Some(host) = &identity.host {
        spec.submit_host.clone_from(host);
    }
    check_texts(config, &mut spec)?;
    places::keep_once(&mut spec)?;
    check_accounting(draft, config, &mut spec)?;
    mcs::set_label(config, identity, &mut spec)?;
    check_unsupported(&spec)?;
    check_licenses(state, spec.licenses.as_deref())?;
    reservation::check_access(state, identity, &spec)?;
    check_array(config, &mut spec)?;
    let tasks = spec.array.as_ref().map_or(1, |array| array.indices.len());
    room::check(state, config, (identity, spec.owner.uid), tasks)?;
    let asked = spec.time_limit;
    let limit_in = |partition: &PartitionConfig| time_limit(asked, partition);
    let (partitions, waits) = partition_access::choose(state, identity, &spec, limit_in)?;
    let limit = partitions
        .first()
        .map_or(TimeLimit::Unlimited, |p| limit_in(p));
    ask::check_gpu_frequency(&spec)?;
    let impossible = ask::IfImpossible::of(&spec);
    ask::check(state, &partitions, &mut spec.ask, impossible)?;
    if let (MemoryAsk::Default, Some(first)) = (spec.ask.memory, partitions.first())
        && !partition_access::memory_by_gpu(state, first, &spec.ask)
    {
        spec.ask.memory = partition_access::default_memory(state, first);
    }
    check_sampling(config, &spec)?;
    spec.partitions = partitions.iter().map(|p| p.name.clone()).collect();
    check_rank(draft, identity, &mut spec)?;

    let requeueable = spec.requeue.unwrap_or(config.job_requeue) && spec.kind == JobKind::Batch;
    let held = spec.hold || spec.priority == Some(0);
    let terms = spec.dependency.terms.clone();
    let mut job = Job::new(draft.next_job_id(), Arc::new(spec), limit, now);
    if asked.is_none() && partitions.first().is_some_and(|p| p.default_time.is_none()) {
        job.time_limit = limits::default_limit(state, &job, limit);
    }
    fit_node_range(state, &mut job);
    check_times(&job.spec, job.time_limit, now)?;
    job.requeueable = requeueable;
    job.predicted_s = state.predicted_s(&job.spec, job.time_limit);
    check_priority(draft, identity, &job)?;
    if let Some(over) = state.denied_by(&job, true, now) {
        return Err(job_limits::denied(&over));
    }
    if held {
        job.hold = Hold::User;
    } else {
        job.priority = job.default_priority();
    }
    let verdict = dependency::verdict(draft, &job, &terms);
    job.waiting_on = verdict.terms;
    if verdict.never {
        job.reason = Reason::DependencyNeverSatisfied;
    }
    job.reason = match apply::job::waiting_reason(&job) {
        Reason::None => waits.unwrap_or(Reason::None),
        reason => reason,
    };
    let not_before = verdict.not_before.filter(|time| *time > now);
    job.begin_at = job.begin_at.max(not_before);
    job.eligible_time = job.is_startable().then_some(now);
    Ok((job, not_before))
}

/// A range of node counts ends where the limits of the job's association and QOS do.
fn fit_node_range(state: &State, job: &mut Job) {
    let (least, most) = (job.spec.ask.min_nodes, job.spec.ask.max_nodes);
    let is_range = most.is_some_and(|most| most > least);
    let limit = limits::most_nodes(state, job, &job.partition).filter(|_| is_range);
    if let Some(limit) = limit.filter(|limit| most > Some(*limit)) {
        Arc::make_mut(&mut job.spec).ask.max_nodes = Some(limit.max(least));
    }
}

/// A job with a memory limit is sampled at least as often as the site wants: its memory is watched that way.
fn check_sampling(config: &ClusterConfig, spec: &JobSpec) -> Result<(), Refusal> {
    let is_limited = !matches!(spec.ask.memory, MemoryAsk::Default | MemoryAsk::PerNode(0));
    let own = spec.shown.iter().find(|(key, _)| key == "acctg-freq");
    let own = own.and_then(|(_, text)| task_interval_s(text));
    match (own, config.sample_s) {
        (Some(own), most @ 1..) if is_limited && (own == 0 || own > most) => Err(Refusal::new(
            RefusalCode::InvalidAcctgFreq,
            format!(
                "--acctg-freq of tasks is from 1 to {most} seconds for a job with a memory limit"
            ),
        )),
        _ => Ok(()),
    }
}

/// The limit of a job in a partition: its own, else the partition's. Zero is none, as in Slurm.
pub(super) fn time_limit(asked: Option<TimeLimit>, partition: &PartitionConfig) -> TimeLimit {
    match asked {
        Some(TimeLimit::Minutes(0)) => TimeLimit::Unlimited,
        Some(limit) => limit,
        None => partition.default_time.unwrap_or(partition.max_time),
    }
}

/// The caller, or whom root or SlurmUser names. Groups are those of the caller: root's to give, and else only one that
/// the user database has the caller in.
pub(super) fn owner(
    draft: &Draft<'_>,
    identity: &Identity,
    spec: &JobSpec,
) -> Result<Owner, Refusal> {
    let denied = |why: String| Err(Refusal::new(RefusalCode::AccessDenied, why));
    let own = Owner {
        uid: identity.uid,
        gid: identity.gid,
        user: identity.user.clone(),
        group: identity.group.clone(),
    };
    let named = &spec.owner;
    let for_another = !named.user.is_empty() && named.uid != own.uid;
    if for_another && access::may(draft.state, identity, AccessRequest::SubmitForOther) {
        if identity.uid != 0 && (named.uid == 0 || named.gid == 0) {
            return denied("only root submits jobs as root".to_owned());
        }
        // Where a process becomes a user, these say that nothing changes.
        if named.uid == u32::MAX || named.gid == u32::MAX {
            return denied("no user and no group has the number 4294967295".to_owned());
        }
        return Ok(named.clone());
    }
    // Commands send the number of their user with every job; only with --uid a name comes with it.
    if for_another {
        return denied("only root submits jobs of other users".to_owned());
    }
    if named.group.is_empty() || named.gid == own.gid {
        return Ok(own);
    }
    let mut groups = identity.gids.iter().zip(&identity.groups);
    let group = match groups.find(|(gid, _)| **gid == named.gid) {
        Some((_, name)) => name.clone(),
        None if identity.uid == 0 => named.group.clone(),
        None => return denied(format!("{} is not in group {}", own.user, named.gid)),
    };
    Ok(Owner {
        gid: named.gid,
        group,
        ..own
    })
}

/// Refuses a submission whose script or environment is missing, too long, or none. What it names must come with it: to
/// know the content is the only right to it.
pub(super) fn check_blobs(
    draft: &Draft<'_>,
    spec: &JobSpec,
    blobs: &[(BlobId, ByteVec)],
) -> Result<(), Refusal> {
    let config = configuration(draft.state)?;
    let what = [("script", spec.script), ("environment", spec.context)];
    for (name, id) in what {
        let Some(id) = id else {
            continue;
        };
        let given = blobs.iter().find(|(blob, _)| *blob == id);
        let (_, bytes) = given.ok_or_else(|| {
            Refusal::new(
                RefusalCode::InvalidValue,
                format!("the submission names a {name} that it does not carry"),
            )
        })?;
        match name {
            "script" => check_script(config, bytes)?,
            // A stored blob was checked when it came, though perhaps as a script.
            _ if draft.state.blobs.contains_key(&id) && !is_script(bytes) => {}
            _ => check_context(bytes)?,
        }
    }
    if spec.kind == JobKind::Batch && spec.script.is_none() {
        return Err(Refusal::new(
            RefusalCode::InvalidValue,
            "a batch job needs a script",
        ));
    }
    Ok(())
}

/// Whether bytes can have been stored as a script: an environment begins otherwise.
fn is_script(bytes: &[u8]) -> bool {
    bytes.starts_with(b"#!")
}

fn check_script(config: &ClusterConfig, script: &[u8]) -> Result<(), Refusal> {
    let most = config.max_script_size();
    if script.len() > most {
        return Err(Refusal::new(
            RefusalCode::TooLong,
            format!(
                "the job's script has {} bytes, the limit is {most}",
                script.len()
            ),
        ));
    }
    let why = if !is_script(script) {
        "the job's script does not begin with #! and the path of an interpreter"
    } else if script.contains(&0) {
        "the job's script contains a zero byte"
    } else {
        return Ok(());
    };
    Err(Refusal::new(RefusalCode::InvalidValue, why))
}

/// A node decodes the environment as root, so bytes that are none are refused here.
fn check_context(bytes: &[u8]) -> Result<(), Refusal> {
    if bytes.len() > CONTEXT_BYTES_MAX {
        let has = bytes.len();
        return Err(Refusal::new(
            RefusalCode::TooLong,
            format!("the job's environment has {has} bytes, the limit is {CONTEXT_BYTES_MAX}"),
        ));
    }
    let invalid = |why: String| {
        let text = format!("the job's environment cannot be read: {why}");
        Refusal::new(RefusalCode::InvalidValue, text)
    };
    let context: ExecContext = minicbor::decode(bytes).map_err(|e| invalid(e.to_string()))?;
    let count = context.environment.count();
    if count > ENVIRONMENT_VARIABLES_MAX {
        return Err(Refusal::new(
            RefusalCode::TooLong,
            format!(
                "the job's environment has {count} variables, the limit is {ENVIRONMENT_VARIABLES_MAX}"
            ),
        ));
    }
    context.validate().map_err(|e| invalid(e.to_string()))
}

/// Bounds of all texts of a job. Every field is named, so that a new one is not forgotten.
fn check_texts(config: &ClusterConfig, spec: &mut JobSpec) -> Result<(), Refusal> {
    let line_max = config.max_submit_line_size();
    let JobSpec {
        name,
        owner: _,
        account,
        qos,
        partitions,
        kind: _,
        script: _,
        context: _,
        argv,
        command,
        work_dir,
        stdio,
        submit_line,
        submit_host,
        submit_sid: _,
        ask: _,
        time_limit: _,
        time_min: _,
        begin: _,
        deadline: _,
        hold: _,
        priority: _,
        nice: _,
        nice_of_top: _,
        requeue: _,
        expedite: _,
        dependency: _,
        array: _,
        warn_signal: _,
        comment,
        wckey,
        kill_on_invalid_dep: _,
        no_kill: _,
        immediate_s: _,
        mail,
        export,
        licenses,
        reservation,
        shown,
        wait_all_nodes: _,
        site_factor: _,
        interactive: _,
        cron: _,
        class,
    } = spec;
    if partitions.len() > JOB_PARTITIONS_MAX {
        let count = partitions.len();
        return Err(Refusal::new(
            RefusalCode::InvalidPartition,
            format!("--partition names {count} partitions, the limit is {JOB_PARTITIONS_MAX}"),
        ));
    }
    let longest = partitions.iter().max_by_key(|p| p.len());
    let (mail_type, mail_user) = mail.as_ref().map(|mail| (&mail.types, &mail.user)).unzip();
    let names = [
        ("--account", account.as_ref()),
        ("--qos", qos.as_ref()),
        ("--wckey", wckey.as_ref()),
        ("the host name", Some(&*submit_host)),
        ("--partition", longest),
        ("--mail-type", mail_type),
        ("--mail-user", mail_user),
    ];
    for (what, text) in names {
        one_line(what, text.map_or("", String::as_str), NAME_BYTES_MAX)?;
    }
    check_mail_lines(mail.as_ref())?;
    let class = class.as_ref().map_or("", |class| &class.name);
    one_line("--class", class, CLASS_NAME_BYTES_MAX)?;
    too_long("--job-name", name, NAME_BYTES_MAX)?;
    let texts = [
        ("--chdir", Some(&*work_dir)),
        ("the script's path", Some(&*command)),
        ("--licenses", licenses.as_ref()),
        ("--reservation", reservation.as_ref()),
    ];
    for (what, text) in texts {
        one_line(what, text.map_or("", String::as_str), TEXT_BYTES_MAX)?;
    }
    for (what, text) in [("--comment", &*comment), ("--export", &*export)] {
        too_long(what, text.as_deref().unwrap_or_default(), TEXT_BYTES_MAX)?;
    }
    check_files(stdio)?;
    check_shown(shown)?;
    too_long("the command line", submit_line, line_max)?;
    // The command line is kept for accounting only; its start tells enough.
    if submit_line.len() > TEXT_BYTES_MAX {
        let end = (0..=TEXT_BYTES_MAX)
            .rev()
            .find(|at| submit_line.is_char_boundary(*at));
        submit_line.truncate(end.unwrap_or(0));
    }
    for text in [name, submit_line].into_iter().chain(comment) {
        make_visible(text);
    }
    for (_, text) in shown {
        make_visible(text);
    }
    if argv.len() > ARGUMENTS_MAX {
        let count = argv.len();
        return Err(Refusal::new(
            RefusalCode::TooLong,
            format!("the script has {count} arguments, the limit is {ARGUMENTS_MAX}"),
        ));
    }
    let arguments: usize = argv.iter().map(|argument| argument.len() + 1).sum();
    if arguments > line_max {
        return Err(Refusal::new(
            RefusalCode::TooLong,
            format!("the script's arguments have {arguments} bytes, the limit is {line_max}"),
        ));
    }
    Ok(())
}

/// Bounds of the patterns of a job's files.
pub(super) fn check_files(stdio: &StdioSpec) -> Result<(), Refusal> {
    let StdioSpec {
        stdin,
        stdout,
        stderr,
        append: _,
    } = stdio;
    let files = [
        ("--input", stdin),
        ("--output", stdout),
        ("--error", stderr),
    ];
    for (what, text) in files {
        one_line(what, text.as_deref().unwrap_or_default(), PATH_BYTES_MAX)?;
    }
    Ok(())
}

/// Refuses texts that are shown only if no option has such, and those that are too long.
pub(super) fn check_shown(shown: &[(String, String)]) -> Result<(), Refusal> {
    let of_site = shown.iter().filter(|(key, _)| is_site_option(key));
    if of_site.count() > COUNT_MAX {
        return Err(Refusal::new(
            RefusalCode::InvalidValue,
            format!("the job has more than {COUNT_MAX} options of the site"),
        ));
    }
    for (at, (key, text)) in shown.iter().enumerate() {
        let known = SHOWN.iter().chain(&grid_engine::NAMES);
        let of_site = is_site_option(key);
        if !(of_site || known.into_iter().any(|own| own == key))
            || shown[..at].iter().any(|(other, _)| other == key)
        {
            return Err(Refusal::new(
                RefusalCode::InvalidValue,
                "the job has a text that no option sets",
            ));
        }
        match of_site {
            true => one_line(key, text, VALUE_BYTES_MAX)?,
            false => too_long(key, text, TEXT_BYTES_MAX)?,
        }
    }
    Ok(())
}

fn check_unsupported(spec: &JobSpec) -> Result<(), Refusal> {
    if spec.dependency.terms.len() > DEPENDENCY_TERMS_MAX {
        return Err(Refusal::new(
            RefusalCode::InvalidDependency,
            format!("--dependency has more than {DEPENDENCY_TERMS_MAX} conditions"),
        ));
    }
    if spec
        .warn_signal
        .is_some_and(|warn| warn.signal == 0 || warn.signal > SIGNAL_MAX)
    {
        return Err(Refusal::new(
            RefusalCode::InvalidValue,
            "--signal names no signal",
        ));
    }
    Ok(())
}

/// Refuses licenses that the cluster does not have, or not in this number.
pub(super) fn check_licenses(state: &State, text: Option<&str>) -> Result<(), Refusal> {
    let Some(text) = text.filter(|t| !t.is_empty()) else {
        return Ok(());
    };
    let refuse = |why: String| Err(Refusal::new(RefusalCode::InvalidLicense, why));
    let Some(asked) = licenses::parse_ask(text) else {
        return refuse(format!(
            "--licenses={text}: names and counts are expected, all of them as a:1,b:2 or one of them as a:1|b:2"
        ));
    };
    if asked.len() > LICENSE_ALTERNATIVES_MAX {
        let count = asked.len();
        return refuse(format!(
            "--licenses has {count} alternatives, the limit is {LICENSE_ALTERNATIVES_MAX}"
        ));
    }
    for LicenseCount { name, count } in asked.iter().flatten() {
        let total = state.license_total(name);
        if *count == 0 || *count > total {
            return refuse(format!(
                "the cluster has {total} licenses {name}, {count} are asked for"
            ));
        }
    }
    Ok(())
}

fn check_array(config: &ClusterConfig, spec: &mut JobSpec) -> Result<(), Refusal> {
    let Some(array) = &mut spec.array else {
        return Ok(());
    };
    array.throttle = array.throttle.filter(|most| *most > 0);
    let Some(last) = array.indices.last() else {
        return Err(Refusal::new(
            RefusalCode::InvalidArray,
            "--array names no task",
        ));
    };
    if last >= config.max_array_size {
        return Err(Refusal::new(
            RefusalCode::ArrayTooLarge,
            format!(
                "task {last} is not below MaxArraySize={}",
                config.max_array_size
            ),
        ));
    }
    let most = config.scheduler_parameter("max_array_tasks");
    if let Some(most) = most.filter(|most| array.indices.len() > *most) {
        let tasks = array.indices.len();
        return Err(Refusal::new(
            RefusalCode::ArrayTooLarge,
            format!("{tasks} tasks are more than SchedulerParameters=max_array_tasks={most}"),
        ));
    }
    if spec.kind != JobKind::Batch {
        return Err(Refusal::new(
            RefusalCode::InvalidArray,
            "only batch jobs have arrays",
        ));
    }
    Ok(())
}

/// Time limits and the deadline against each other.
pub(super) fn check_times(spec: &JobSpec, limit: TimeLimit, now: Timestamp) -> Result<(), Refusal> {
    let refuse = |code, why: &str| Err(Refusal::new(code, why));
    if let (Some(TimeLimit::Minutes(least)), TimeLimit::Minutes(most)) = (spec.time_min, limit)
        && least > most
    {
        return refuse(
            RefusalCode::InvalidTimeMin,
            "--time-min is more than --time",
        );
    }
    let Some(deadline) = spec.deadline else {
        return Ok(());
    };
    // Without --time-min a job starts at once, and ends at its deadline, or it ends as DEADLINE.
    let need_s = spec.time_min.and_then(TimeLimit::seconds).unwrap_or(0);
    let start = spec.begin.map_or(now, |begin| begin.max(now));
    if start.plus_s(need_s) > deadline {
        // A deadline that is over leaves no time at all, whatever the least time.
        let code = match spec.time_min {
            Some(_) if deadline > now => RefusalCode::InvalidTimeMin,
            _ => RefusalCode::InvalidTimeLimit,
        };
        return refuse(code, "the job cannot end before its --deadline");
    }
    Ok(())
}

/// Only administrators put a job before others.
fn check_rank(draft: &Draft<'_>, identity: &Identity, spec: &mut JobSpec) -> Result<(), Refusal> {
    spec.nice_of_top = 0;
    if spec.nice < 0 {
        access::require(draft.state, identity, AccessRequest::NegativeNice)?;
    }
    if spec.site_factor != 0 {
        access::require(draft.state, identity, AccessRequest::SiteFactor)?;
    }
    if spec.shown.iter().any(|(key, _)| key == ADMIN_COMMENT) {
        access::require(draft.state, identity, AccessRequest::AdminComment)?;
    }
    if access::may(draft.state, identity, AccessRequest::SetPriority) {
        return Ok(());
    }
    let multifactor = draft
        .state
        .config
        .as_ref()
        .is_some_and(|c| c.order.multifactor.is_some());
    // It is worked out from factors; what a user says of it is left out, as in Slurm.
    if multifactor && spec.priority.is_some_and(|priority| priority > 0) {
        spec.priority = None;
    }
    Ok(())
}

/// Refuses a priority above the one that the job has if it asks for none, which follows from its number, or from its
/// submission time and its predicted run time.
fn check_priority(draft: &Draft<'_>, identity: &Identity, job: &Job) -> Result<(), Refusal> {
    let asked = job.spec.priority.unwrap_or(0);
    if asked <= job.usual_priority()
        || access::may(draft.state, identity, AccessRequest::SetPriority)
    {
        return Ok(());
    }
    Err(Refusal::new(
        RefusalCode::AccessDenied,
        "only an operator gives a --priority above the usual",
    ))
}
