//! `scontrol update job`. Everything is checked before the first event: a job is changed in all that was asked for, or
//! not at all.

mod shared;

use self::shared::SharedUpdate;
use super::draft::Draft;
use super::ending;
use super::job_limits::{self, Moved};
use super::submit::{ADMIN_COMMENT, check_times};
use super::target::{self, Item};
use super::texts::{one_line, too_long};
use super::{ask, crontab, dependency, partition_access, places, reservation, resize, room};
use crate::event::{JobChange, dependency_bytes, spec_bytes};
use crate::policy::{access, mcs};
use crate::state::{AmountsThere, State};
use muster_model::command::{Identity, JobTarget, JobUpdate, Reply};
use muster_model::config::PartitionConfig;
use muster_model::ids::JobId;
use muster_model::job::{ArrayRole, Hold, Job, Phase};
use muster_model::limits::{
    DEPENDENCY_TERMS_MAX, JOB_PARTITIONS_MAX, NAME_BYTES_MAX, TEXT_BYTES_MAX,
};
use muster_model::mcs::MCS_LABEL;
use muster_model::refusal::{Refusal, RefusalCode};
use muster_model::rights::{AccessRequest, Role};
use muster_model::site_option::is_site_option;
use muster_model::spec::{GRANTED_QOS, JobKind, JobSpec};
use muster_model::time::TimeLimit;
use muster_model::visible_text::visible;
use std::sync::Arc;

/// A specification and what else decides how an update changes it.
struct Before {
    spec: Arc<JobSpec>,
    is_pending: bool,
    /// The limit that it is checked with, where it is.
    limit: Option<TimeLimit>,
}

impl Before {
    fn new(job: &Job, update: &JobUpdate, limit: Option<TimeLimit>) -> Before {
        let is_timed =
            update.partitions.is_some() || update.deadline.is_some() || update.time_min.is_some();
        Before {
            spec: job.spec.clone(),
            is_pending: job.phase() == Phase::Pending,
            limit: is_timed.then_some(limit.unwrap_or(job.time_limit)),
        }
    }

    /// Whether the same is made of both where their specifications are equal.
    fn is_like(&self, other: &Before) -> bool {
        (self.is_pending, self.limit) == (other.is_pending, other.limit)
    }
}

/// A change of a specification, for tasks that have the same.
struct Changed {
    before: Before,
    after: Arc<JobSpec>,
    /// Bytes by which it is longer.
    longer: u64,
    /// The record that was changed last, if one was.
    record: Option<JobId>,
}

/// The changes of a command so far.
#[derive(Default)]
struct Progress {
    last: Option<Changed>,
    /// The last specification that stays as it is.
    unchanged: Option<Before>,
    /// Bytes by which specifications have become longer.
    growth: u64,
    /// Numbers of jobs and tasks that count for others than before.
    moved: Moved,
}

/// Changes the jobs of a target.
pub(super) fn update(
    draft: &mut Draft<'_>,
    identity: &Identity,
    target: &JobTarget,
    update: &JobUpdate,
) -> Result<Option<Reply>, Refusal> {
    let mut progress = Progress::default();
    let shared = SharedUpdate::new(update);
    let tally = target::for_each(
        draft,
        (identity, AccessRequest::UpdateJob),
        target,
        |draft, item| update_item(draft, identity, item, &shared, &mut progress),
    )?;
    tally.reply_for_target()
}

fn update_item(
    draft: &mut Draft<'_>,
    identity: &Identity,
    item: Item,
    shared: &SharedUpdate<'_>,
    progress: &mut Progress,
) -> Result<(), Refusal> {
    let (id, update) = (item.record(), shared.update);
    let job = draft.job(id).ok_or(RefusalCode::InvalidJobId)?;
    access::require_job(draft.state, identity, AccessRequest::UpdateJob, job)?;
    crontab::require_none(job)?;
    let pending = match job.phase() {
        Phase::Pending => true,
        Phase::Running | Phase::Suspended | Phase::Requeueing => false,
        Phase::Completing | Phase::Ended | Phase::Gone => {
            return Err(Refusal::new(
                RefusalCode::AlreadyDone,
                format!("job {id} has ended or is ending"),
            ));
        }
    };
    // Names of files may have the job's name in them (%x).
    let names_files = update.name.is_some() && job.spec.stdio.has_job_name();
    if update.stdio.is_some() || update.work_dir.is_some() || names_files {
        access::require_job(draft.state, identity, AccessRequest::UpdatePaths, job)?;
    }
    let mut kept = None;
    if pending && update.nodelist.is_some() {
        return Err(Refusal::new(
            RefusalCode::JobPending,
            format!("job {id} has no nodes yet; ReqNodeList says which it asks for"),
        ));
    }
    if !pending {
        refuse_unless_pending(job, shared)?;
        let state = draft.state;
        let named = |list: &str| shared.listed_nodes(state, list);
        kept = resize::wanted(state, job, update, named)?;
    }
    let update = shared.about(job);
    refuse_unless_admin(draft, identity, job, update)?;
    let leads_to = |id| shared.leads_to(draft, id);
    if update.dependency.is_some() && (leads_to(job.id) || leads_to(job.submission())) {
        return Err(Refusal::new(
            RefusalCode::CircularDependency,
            format!("job {} would wait for itself", job.id),
        ));
    }
    let limit = new_limit(draft, identity, job, update)?;
    let rank = new_rank(draft, identity, job, shared)?;
    let spec = changed_spec(draft, identity, job, shared, limit, progress)?;
    if let Some(spec) = &spec {
        if !pending && update.qos.is_some() {
            partition_access::require_open(draft.state, spec, &job.partition)?;
        }
        let longer = progress.last.as_ref().map_or(0, |changed| changed.longer);
        let tasks = match &job.array {
            ArrayRole::Pending { indices } => indices.len(),
            ArrayRole::None | ArrayRole::Task { .. } => 1,
        };
        let conditions = dependency_bytes(spec, tasks);
        let conditions = conditions.saturating_sub(dependency_bytes(&job.spec, tasks));
        let growth = progress.growth.saturating_add(longer);
        progress.growth = growth.saturating_add(conditions);
        room::check_bytes(draft.state, identity, spec.owner.uid, progress.growth)?;
    }
    let new = spec.as_ref().unwrap_or(&job.spec);
    let rank = lowered_rank(draft, identity, job, new, limit, shared, rank)?;
    let changes = spec.is_some() || limit.is_some();
    if draft.state.keeps_limits() && shared.changes_limits() && changes {
        shared.charge_limits()?;
        let limit = limit.unwrap_or(job.time_limit);
        let spec = spec.as_ref().unwrap_or(&job.spec);
        let changed = job_limits::changed(job, spec, limit, draft.now);
        let (moved, tasks) = (&mut progress.moved, item.tasks(job));
        // As in Slurm, limits hold for users: an operator may give a job more.
        // What a verifier has granted is the time limit alone.
        if access::role_of(draft.state, identity) < Role::Operator {
            moved.require_room(draft, job, &changed, tasks)?;
        }
        moved.change(draft.state, job, &changed, tasks);
    }
    let verdict = update.dependency.as_ref().map(|wanted| {
        let mut changed = job.clone();
        changed.spec = spec.clone().unwrap_or_else(|| job.spec.clone());
        dependency::verdict(draft, &changed, &wanted.terms)
    });
    let requeue = update.requeue.filter(|_| job.spec.kind == JobKind::Batch);

    let id = item.own_record(draft);
    if let Some(spec) = spec {
        change_spec(draft, id, spec, progress);
    }
    if let Some(limit) = limit {
        draft.change(id, JobChange::TimeLimit(limit));
    }
    if let Some(change) = rank {
        draft.change(id, change);
    }
    if let Some(requeue) = requeue {
        draft.change(id, JobChange::Requeueable(requeue));
    }
    if let Some(verdict) = verdict {
        dependency::conclude(draft, id, verdict);
        dependency::split_decided_tasks(draft, id);
    }
    if let Some(kept) = kept {
        ending::shrink(draft, id, &kept);
    }
    Ok(())
}

/// Changes a specification. One that another record has got already is not written again: it may be long, and the tasks of
/// an array many.
fn change_spec(draft: &mut Draft<'_>, id: JobId, spec: Arc<JobSpec>, progress: &mut Progress) {
    let last = progress.last.as_mut();
    let last = last.filter(|changed| Arc::ptr_eq(&changed.after, &spec));
    let other = last.and_then(|changed| changed.record.replace(id));
    let has = |id: &JobId| {
        draft
            .job(*id)
            .is_some_and(|job| Arc::ptr_eq(&job.spec, &spec))
    };
    match other.filter(has) {
        Some(other) => draft.change(id, JobChange::SpecOf(other)),
        None => draft.change(id, JobChange::Spec(spec)),
    }
}

/// A running job can only be changed in fields that do not shape its allocation.
fn refuse_unless_pending(job: &Job, shared: &SharedUpdate<'_>) -> Result<(), Refusal> {
    let update = shared.update;
    let fields = [
        ("Partition", update.partitions.is_some()),
        ("Dependency", update.dependency.is_some()),
        ("Reservation", update.reservation.is_some()),
        ("StartTime", update.begin.is_some()),
        ("Licenses", update.licenses.is_some()),
        ("the resources", shared.changes_ask(&job.spec.ask)),
        ("StdOut, StdErr and StdIn", update.stdio.is_some()),
        ("WorkDir", update.work_dir.is_some()),
        ("Account", update.account.is_some()),
        // The job counts among the limits of the QOS that it was started in.
        ("QOS", update.qos.is_some()),
        ("WCKey", update.wckey.is_some()),
        ("TimeMin", update.time_min.is_some()),
        ("Deadline", update.deadline.is_some()),
    ];
    match fields.iter().find(|(_, given)| *given) {
        None => Ok(()),
        Some((field, _)) => Err(Refusal::new(
            RefusalCode::JobNotPending,
            format!("{field} of job {} cannot be changed any more", job.id),
        )),
    }
}

/// Some fields are an administrator's even of one's own jobs.
fn refuse_unless_admin(
    draft: &Draft<'_>,
    identity: &Identity,
    job: &Job,
    update: &JobUpdate,
) -> Result<(), Refusal> {
    let (old, new) = (&job.spec.ask, update.ask.as_ref());
    let fields = [
        (
            AccessRequest::AdminComment,
            update.shown.iter().any(|(key, _)| key == ADMIN_COMMENT),
        ),
        (
            AccessRequest::AdminFields,
            new.is_some_and(|a| a.contiguous != old.contiguous),
        ),
        (AccessRequest::AdminFields, update.deadline.is_some()),
        (
            AccessRequest::AdminFields,
            new.is_some_and(|a| a.tmp_disk_mib != old.tmp_disk_mib),
        ),
    ];
    let mut asked = fields.iter().filter(|(_, given)| *given);
    asked.try_for_each(|(request, _)| access::require(draft.state, identity, *request))
}

fn new_limit(
    draft: &Draft<'_>,
    identity: &Identity,
    job: &Job,
    update: &JobUpdate,
) -> Result<Option<TimeLimit>, Refusal> {
    let wanted = match (update.time_limit, update.time_delta_min, job.time_limit) {
        (Some(TimeLimit::Minutes(0)), ..) => TimeLimit::Unlimited,
        (Some(limit), ..) => limit,
        (None, None, _) | (None, Some(_), TimeLimit::Unlimited) => return Ok(None),
        (None, Some(delta), TimeLimit::Minutes(now)) => {
            let minutes = i64::from(now).saturating_add(delta);
            match u32::try_from(minutes) {
                Ok(minutes) if minutes > 0 => TimeLimit::Minutes(minutes),
                Ok(_) | Err(_) => {
                    return Err(Refusal::new(
                        RefusalCode::InvalidTimeLimit,
                        format!("TimeLimit of job {} would be {minutes} minutes", job.id),
                    ));
                }
            }
        }
    };
    // The order of the variants is the order of the limits: `Unlimited` is the most.
    if wanted > job.time_limit
        && !waits(job)
        && !access::may(draft.state, identity, AccessRequest::RaiseTimeLimit)
    {
        return Err(Refusal::new(
            RefusalCode::AccessDenied,
            "only an operator raises the time limit of a job that has started",
        ));
    }
    Ok(Some(wanted))
}

/// Priority and nice value. Priority 0 holds; another one releases.
fn new_rank(
    draft: &Draft<'_>,
    identity: &Identity,
    job: &Job,
    shared: &SharedUpdate<'_>,
) -> Result<Option<JobChange>, Refusal> {
    let update = shared.about(job);
    let may = |request| access::may(draft.state, identity, request);
    let admin = may(AccessRequest::HoldAsAdmin);
    let denied = |why: &str| Err(Refusal::new(RefusalCode::AccessDenied, why));
    // Also where a priority comes with it: both are kept.
    let is_lower = update.nice.is_some_and(|nice| nice < job.spec.nice);
    if is_lower && !may(AccessRequest::LowerNice) {
        return denied("only an operator lowers a nice value");
    }
    match update.priority {
        Some(0) => {
            let hold = match (job.hold, admin) {
                (Hold::Admin, _) | (_, true) => Hold::Admin,
                (Hold::None | Hold::User, false) => Hold::User,
            };
            let priority = if waits(job) { 0 } else { job.priority };
            return Ok(Some(JobChange::Hold { hold, priority }));
        }
        Some(priority) => {
            if job.hold == Hold::Admin && !admin {
                return denied("the job is held by an administrator");
            }
            if !may(AccessRequest::RaisePriority) && priority > most_settable(draft, job, shared)? {
                return denied("only an operator raises a priority");
            }
            return Ok(Some(match job.hold {
                Hold::None => JobChange::Priority(priority),
                Hold::User | Hold::Admin => JobChange::Hold {
                    hold: Hold::None,
                    priority,
                },
            }));
        }
        None => {}
    }
    let Some(nice) = update.nice else {
        return Ok(None);
    };
    let multifactor = draft
        .state
        .config
        .as_ref()
        .is_some_and(|c| c.order.multifactor.is_some());
    // There the nice value is a factor like others.
    if job.hold != Hold::None || multifactor {
        return Ok(None);
    }
    let moved = i64::from(job.priority) + i64::from(job.spec.nice) - i64::from(nice);
    let most = i64::from(muster_model::limits::PRIORITY_TOP);
    let priority = u32::try_from(moved.clamp(1, most)).unwrap_or(1);
    Ok(Some(JobChange::Priority(priority)))
}

/// Whether it has no priority while it is held. One that has started keeps that of its start, by which others may or may not
/// make it leave.
pub(super) fn waits(job: &Job) -> bool {
    job.phase() == Phase::Pending
}

/// The priority that a job has, or would have if nobody held it: the lowest of those in its partitions, as one that is set
/// is had in all of them.
pub(super) fn priority_unheld(draft: &Draft<'_>, job: &Job, there: &mut AmountsThere) -> u32 {
    let Some(scale) = draft.scale() else {
        return match job.priority {
            0 => job.default_priority(),
            priority => priority,
        };
    };
    if job.priority > 0 {
        return scale.lowest(draft.state, job, there);
    }
    // As of one that waits: what a held job had is not known any more.
    scale.lowest(draft.state, &as_new(job), there)
}

/// The highest priority to which a user sets a job's. Of one that has started it is no more than the job would have in the queue,
/// in each of its partitions: it keeps a priority that is set when it is requeued.
fn most_settable(draft: &Draft<'_>, job: &Job, shared: &SharedUpdate<'_>) -> Result<u32, Refusal> {
    let Some(scale) = draft.scale() else {
        return Ok(priority_unheld(draft, job, &mut AmountsThere::default()));
    };
    let there = &mut *shared.amounts_there(&[&job.spec])?;
    let own = priority_unheld(draft, job, there);
    if waits(job) {
        return Ok(own);
    }
    Ok(own.min(scale.lowest(draft.state, &as_new(job), there)))
}

/// A job as if it had just been submitted, at the time when it was.
fn as_new(job: &Job) -> Job {
    let mut new = Job::single(job.id, job.spec.clone(), job.time_limit, job.submit_time);
    new.partition.clone_from(&job.partition);
    new.priority = 1;
    new
}

/// The priority of a job after an update of its factors: one that was set falls by as much as the computed one would, even where
/// that is at its bounds. Else a user who sets it to the job's own value would keep that of a QOS or partition that the job
/// leaves, or of the size or time that it asked for.
fn lowered_rank(
    draft: &Draft<'_>,
    identity: &Identity,
    job: &Job,
    new: &Arc<JobSpec>,
    limit: Option<TimeLimit>,
    shared: &SharedUpdate<'_>,
    rank: Option<JobChange>,
) -> Result<Option<JobChange>, Refusal> {
    let Some(scale) = draft.scale().filter(|_| waits(job)) else {
        return Ok(rank);
    };
    let set = match &rank {
        Some(JobChange::Priority(set)) => *set,
        Some(JobChange::Hold { priority, .. }) => *priority,
        Some(_) | None if job.priority_fixed => job.priority,
        Some(_) | None => 0,
    };
    let old = &job.spec;
    let limit = limit.unwrap_or(job.time_limit);
    let are_same = (&new.qos, &new.account, &new.partitions, &new.ask, limit)
        == (
            &old.qos,
            &old.account,
            &old.partitions,
            &old.ask,
            job.time_limit,
        );
    if set == 0 || are_same || access::may(draft.state, identity, AccessRequest::RaisePriority) {
        return Ok(rank);
    }
    let mut worked_out = job.clone();
    (worked_out.hold, worked_out.priority) = (Hold::None, 1);
    (worked_out.priority_fixed, worked_out.priority_least) = (false, 0);
    let there = &mut *shared.amounts_there(&[old, new])?;
    let before = scale.least_sum(draft.state, &worked_out, there);
    if !new.partitions.contains(&worked_out.partition) {
        worked_out.partition = new.partitions.first().cloned().unwrap_or_default();
    }
    worked_out.spec = Arc::clone(new);
    worked_out.time_limit = limit;
    let after = scale.least_sum(draft.state, &worked_out, there);
    let less = match (before, after) {
        (Some(before), Some(after)) => before.floor() - after.floor(),
        (..) => 0.0,
    };
    let less = less.clamp(0.0, f64::from(u32::MAX)) as u32;
    let priority = set.saturating_sub(less).max(1);
    Ok(match rank {
        Some(JobChange::Hold { hold, .. }) => Some(JobChange::Hold { hold, priority }),
        Some(_) => Some(JobChange::Priority(priority)),
        None if less == 0 => None,
        None => Some(JobChange::Priority(priority)),
    })
}

/// [`new_spec`], once for jobs that have the same specification.
fn changed_spec(
    draft: &Draft<'_>,
    identity: &Identity,
    job: &Job,
    shared: &SharedUpdate<'_>,
    limit: Option<TimeLimit>,
    progress: &mut Progress,
) -> Result<Option<Arc<JobSpec>>, Refusal> {
    let own = Before::new(job, shared.update, limit);
    let known = [
        progress.unchanged.as_ref().map(|before| (before, None)),
        (progress.last.as_ref()).map(|changed| (&changed.before, Some(&changed.after))),
    ];
    // Equal ones are found to be so by their address, unless they came from an older journal.
    let known = || known.iter().flatten().filter(|known| known.0.is_like(&own));
    if let Some((_, after)) = known().find(|known| Arc::ptr_eq(&known.0.spec, &own.spec)) {
        return Ok(after.cloned());
    }
    for (before, after) in known() {
        if shared.are_equal(&before.spec, &own.spec)? {
            return Ok(after.cloned());
        }
    }
    let after = new_spec(draft, identity, job, shared, limit)?.map(Arc::new);
    match &after {
        None => progress.unchanged = Some(own),
        Some(after) => {
            progress.last = Some(Changed {
                before: own,
                after: after.clone(),
                longer: spec_bytes(after).saturating_sub(spec_bytes(&job.spec)),
                record: None,
            });
        }
    }
    Ok(after)
}

/// Whether a job has the QOS that jobs of its user get in its account without asking for one.
fn has_default_qos(state: &State, job: &Job) -> bool {
    let (account, user) = (job.spec.account_name(), &job.spec.owner.user);
    let default = state.accounts.default_qos(account, user, &job.partition);
    job.spec.qos.as_deref() == Some(default)
}

/// As in Slurm, an operator gives a job any QOS, whatever its owner may use. It is the operator's again who moves the
/// job to another account with it.
fn grant_qos(state: &State, identity: &Identity, spec: &mut JobSpec, update: &JobUpdate) {
    let had = spec.has_granted_qos();
    spec.shown.retain(|(key, _)| key != GRANTED_QOS);
    let is_operator = access::role_of(state, identity) >= Role::Operator;
    let stays = had && update.account.is_none() && update.qos.is_none();
    if let Some(name) = &spec.qos
        && (stays || (is_operator && (had || update.qos.is_some())))
    {
        let name = state.accounts.qos_key(name);
        spec.shown.push((GRANTED_QOS.to_owned(), name));
    }
}

/// The specification with the changes in it; `None` if nothing of it changes.
fn new_spec(
    draft: &Draft<'_>,
    identity: &Identity,
    job: &Job,
    shared: &SharedUpdate<'_>,
    limit: Option<TimeLimit>,
) -> Result<Option<JobSpec>, Refusal> {
    let update = shared.about(job);
    let state = draft.state;
    shared.charge_spec(&job.spec)?;
    let mut spec = (*job.spec).clone();
    set_texts(&mut spec, update)?;
    let accounted = [&update.account, &update.qos, &update.wckey];
    if let (true, Some(config)) = (
        accounted.iter().any(|given| given.is_some()),
        &draft.state.config,
    ) {
        // Another account has a default QOS of its own.
        if update.account.is_some() && update.qos.is_none() && has_default_qos(draft.state, job) {
            spec.qos = None;
        }
        grant_qos(state, identity, &mut spec, update);
        super::job_accounting::check_accounting(draft, config, &mut spec)?;
        mcs::follow_account(config, &mut spec);
    }
    if let Some(partitions) = &update.partitions {
        if partitions.len() > JOB_PARTITIONS_MAX {
            return Err(RefusalCode::InvalidPartition.into());
        }
        spec.partitions = partitions.clone();
    }
    if update.reservation.is_some() || update.partitions.is_some() {
        places::keep_once(&mut spec)?;
    }
    if update.reservation.is_some() {
        reservation::check_access(state, identity, &spec)?;
    } else if update.account.is_some() {
        reservation::check_account(state, &spec)?;
    }
    if let Some(nice) = update.nice {
        // The value of the request is the job's own.
        (spec.nice, spec.nice_of_top) = (nice, 0);
    }
    if let Some(factor) = update.site_factor {
        access::require(state, identity, AccessRequest::SiteFactor)?;
        spec.site_factor = factor;
    }
    if let Some(begin) = update.begin {
        spec.begin = Some(begin);
    }
    if let Some(deadline) = update.deadline {
        spec.deadline = Some(deadline);
    }
    if let Some(time_min) = update.time_min {
        spec.time_min = Some(time_min);
    }
    if let Some(licenses) = &update.licenses {
        one_line("Licenses", licenses, TEXT_BYTES_MAX)?;
        shared.check_licenses(state)?;
        spec.licenses = Some(licenses.clone()).filter(|text| !text.is_empty());
    }
    if let Some(requeue) = update.requeue {
        spec.requeue = Some(requeue);
    }
    if let Some(stdio) = &update.stdio {
        super::submit::check_files(stdio)?;
        spec.stdio = stdio.clone();
    }
    if let Some(throttle) = update.array_throttle {
        let array = spec.array.as_mut().ok_or_else(|| {
            Refusal::new(
                RefusalCode::InvalidArray,
                format!("job {} is not an array", job.id),
            )
        })?;
        array.throttle = Some(throttle).filter(|most| *most > 0);
    }
    let limit = limit.unwrap_or(job.time_limit);
    if update.deadline.is_some() || update.time_min.is_some() {
        check_times(&spec, limit, draft.now)?;
    }
    if update.partitions.is_some() {
        let limit_in = |_: &PartitionConfig| limit;
        let (chosen, _) = partition_access::choose(state, identity, &spec, limit_in)?;
        spec.partitions = chosen.iter().map(|p| p.name.clone()).collect();
    } else if update.account.is_some() || update.qos.is_some() || update.reservation.is_some() {
        spec.partitions = partition_access::still_open(state, &spec)?;
    }
    if let Some(wanted) = &update.ask {
        let before = std::mem::replace(&mut spec.ask, wanted.clone());
        // A request with another number of tasks or nodes gets that number.
        let new = &mut spec.ask;
        if new.task_range == before.task_range
            && (new.task_range.as_ref())
                .is_some_and(|range| ask::check_task_range(new, range).is_err())
        {
            new.task_range = None;
        }
    }
    if update.ask.is_some() || update.partitions.is_some() {
        let impossible = ask::IfImpossible::of(&spec);
        shared.check_ask(state, &spec.partitions, &mut spec.ask, impossible)?;
    }
    ask::check_gpu_frequency(&spec)?;
    if let Some(wanted) = &update.dependency {
        if wanted.terms.len() > DEPENDENCY_TERMS_MAX {
            return Err(RefusalCode::InvalidDependency.into());
        }
        spec.dependency = wanted.clone();
    }
    Ok((spec != *job.spec).then_some(spec))
}

fn set_texts(spec: &mut JobSpec, update: &JobUpdate) -> Result<(), Refusal> {
    if let Some(name) = &update.reservation {
        one_line("ReservationName", name, NAME_BYTES_MAX)?;
        spec.reservation = Some(name.clone()).filter(|name| !name.is_empty());
    }
    if let Some(name) = &update.name {
        too_long("JobName", name, NAME_BYTES_MAX)?;
        spec.name = visible(name).into_owned();
    }
    if let Some(dir) = &update.work_dir {
        one_line("WorkDir", dir, TEXT_BYTES_MAX)?;
        spec.work_dir = dir.clone();
    }
    let texts = [
        (
            "Comment",
            &update.comment,
            &mut spec.comment,
            TEXT_BYTES_MAX,
        ),
        (
            "Account",
            &update.account,
            &mut spec.account,
            NAME_BYTES_MAX,
        ),
        ("QOS", &update.qos, &mut spec.qos, NAME_BYTES_MAX),
        ("WCKey", &update.wckey, &mut spec.wckey, NAME_BYTES_MAX),
    ];
    for (what, given, field, most) in texts {
        if let Some(text) = given {
            match what {
                "Comment" => too_long(what, text, most)?,
                _ => one_line(what, text, most)?,
            }
            *field = Some(visible(text).into_owned()).filter(|t| !t.is_empty());
        }
    }
    for (key, value) in &update.shown {
        match key.as_str() {
            "mail-type" => {
                one_line("MailType", value, NAME_BYTES_MAX)?;
                spec.mail.get_or_insert_default().types.clone_from(value);
                continue;
            }
            "mail-user" => {
                one_line("MailUser", value, NAME_BYTES_MAX)?;
                spec.mail.get_or_insert_default().user.clone_from(value);
                continue;
            }
            key if is_site_option(key) => {
                return Err(Refusal::new(
                    RefusalCode::InvalidValue,
                    "options of the site cannot be changed: submit the job again",
                ));
            }
            // It says on which nodes the job runs, and who sees it.
            MCS_LABEL => {
                return Err(Refusal::new(
                    RefusalCode::InvalidMcsLabel,
                    "a job keeps the label of its submission",
                ));
            }
            _ => super::submit::check_shown(&[(key.clone(), value.clone())])?,
        }
        let value = visible(value).into_owned();
        match spec.shown.iter_mut().find(|(known, _)| known == key) {
            Some((_, old)) => *old = value,
            None => spec.shown.push((key.clone(), value)),
        }
    }
    Ok(())
}
