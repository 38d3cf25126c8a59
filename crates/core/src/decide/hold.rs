//! Holding jobs back, releasing them, and their order among their owner's.

use super::crontab;
use super::draft::Draft;
use super::target::{self, Item};
use super::update_job::{priority_unheld, waits};
use crate::event::JobChange;
use crate::policy::access;
use crate::state::{AmountsThere, Priorities, Scale};
use muster_model::command::{Identity, JobTarget, Reply};
use muster_model::ids::JobId;
use muster_model::job::{Hold, Job, Phase};
use muster_model::limits::TOP_JOBS_MAX;
use muster_model::refusal::{Refusal, RefusalCode};
use muster_model::rights::AccessRequest;
use muster_model::spec::JobSpec;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// `scontrol hold`, `uhold`. A running job is held for the case that it is requeued.
pub(super) fn hold(
    draft: &mut Draft<'_>,
    identity: &Identity,
    target: &JobTarget,
    user: bool,
) -> Result<Option<Reply>, Refusal> {
    let admin = access::may(draft.state, identity, AccessRequest::HoldAsAdmin);
    let by = if user || !admin {
        Hold::User
    } else {
        Hold::Admin
    };
    let tally = target::for_each(
        draft,
        (identity, AccessRequest::Hold),
        target,
        |draft, item| {
            let job = holdable(draft, identity, AccessRequest::Hold, item)?;
            crontab::require_none(job)?;
            // An administrator's hold is not softened by the owner's.
            let hold = if job.hold == Hold::Admin && !admin {
                Hold::Admin
            } else {
                by
            };
            let priority = if waits(job) { 0 } else { job.priority };
            let id = item.own_record(draft);
            draft.change(id, JobChange::Hold { hold, priority });
            Ok(())
        },
    )?;
    tally.reply_for_target()
}

/// `scontrol release`.
pub(super) fn release(
    draft: &mut Draft<'_>,
    identity: &Identity,
    target: &JobTarget,
) -> Result<Option<Reply>, Refusal> {
    let admin = access::may(draft.state, identity, AccessRequest::HoldAsAdmin);
    let mut there = AmountsThere::default();
    let tally = target::for_each(
        draft,
        (identity, AccessRequest::Release),
        target,
        |draft, item| {
            let job = holdable(draft, identity, AccessRequest::Release, item)?;
            if job.hold == Hold::None {
                crontab::require_none(job)?;
            }
            match job.hold {
                // Nothing to do is done.
                Hold::None => return Ok(()),
                Hold::Admin if !admin => {
                    return Err(Refusal::new(
                        RefusalCode::AccessDenied,
                        format!("job {} is held by an administrator", job.id),
                    ));
                }
                Hold::User | Hold::Admin => {}
            }
            let priority = match waits(job) {
                true => job.default_priority(),
                false => priority_unheld(draft, job, &mut there),
            };
            let special = job.special_exit;
            let id = item.own_record(draft);
            draft.change(
                id,
                JobChange::Hold {
                    hold: Hold::None,
                    priority,
                },
            );
            if special {
                draft.change(id, JobChange::SpecialExit(false));
            }
            Ok(())
        },
    )?;
    tally.reply_for_target()
}

/// `scontrol top`: the job comes first among the pending jobs of its owner in its partition, account and QOS. The
/// priorities that these jobs have are dealt out anew, so that nobody else's place changes; where they are worked out, the others fall
/// behind it.
pub(super) fn top(
    draft: &mut Draft<'_>,
    identity: &Identity,
    target: &JobTarget,
) -> Result<Option<Reply>, Refusal> {
    // Whether users may do this here says nothing of a job that they may not know of.
    target::require(draft, (identity, AccessRequest::Top), target)?;
    target::resolve(draft, target)?;
    let admin = access::may(draft.state, identity, AccessRequest::TopAnyway);
    let allowed = draft.state.config.as_ref().is_some_and(|config| {
        let parameters = &config.scheduler_parameters;
        parameters.iter().any(|p| p == "enable_user_top")
    });
    if !admin && !allowed {
        return Err(Refusal::new(
            RefusalCode::AccessDenied,
            "users may not do this here (SchedulerParameters lacks enable_user_top)",
        ));
    }
    let mut raised: Vec<JobId> = Vec::new();
    let tally = target::for_each(
        draft,
        (identity, AccessRequest::Top),
        target,
        |draft, item| {
            let job = holdable(draft, identity, AccessRequest::Top, item)?;
            if raised.len() >= TOP_JOBS_MAX {
                return Err(Refusal::new(
                    RefusalCode::NotSupported,
                    format!("more than {TOP_JOBS_MAX} jobs cannot be put on top at once"),
                ));
            }
            if job.phase() != Phase::Pending {
                return Err(RefusalCode::JobNotPending.into());
            }
            if job.spec.partitions.len() > 1 || job.hold != Hold::None {
                return Err(Refusal::new(
                    RefusalCode::NotSupported,
                    format!("job {} is held or in several partitions", job.id),
                ));
            }
            if job.priority_fixed && draft.scale().is_some() {
                return Err(Refusal::new(
                    RefusalCode::NotSupported,
                    format!(
                        "the priority of job {} was set, its nice value does not change it",
                        job.id
                    ),
                ));
            }
            raised.push(item.own_record(draft));
            Ok(())
        },
    )?;
    raise_all(draft, &raised);
    tally.reply_for_target()
}

/// Puts jobs before the others of their owners, in one round: however many they are, each of the others changes once.
fn raise_all(draft: &mut Draft<'_>, raised: &[JobId]) {
    let scale = Scale::new(draft.state);
    if scale.is_some() {
        restore_nice(draft, raised);
    }
    for mut group in rivals(draft, raised, scale.as_ref()) {
        if draft.is_full() {
            return;
        }
        // Jobs of equal priority keep the order of the numbers.
        let by_rank = |a: &Ranked, b: &Ranked| (b.priority, a.id).cmp(&(a.priority, b.id));
        group.raised.sort_unstable_by(by_rank);
        group.others.sort_unstable_by(by_rank);
        match &scale {
            Some(_) => lower_others(draft, &group),
            None => {
                let lowest = group.raised.last().map_or(i64::MAX, |job| job.priority);
                group.others.retain(|other| other.priority >= lowest);
                raise(draft, &group);
            }
        }
    }
}

/// A job with the values that order it.
struct Ranked {
    id: JobId,
    /// Where priorities are worked out, the sum that they are made of, in thousandths.
    priority: i64,
}

/// Pending jobs of one owner with the same partition, account and QOS.
#[derive(Default)]
struct Rivals {
    /// The jobs that are put before the others.
    raised: Vec<Ranked>,
    others: Vec<Ranked>,
}

/// The key of jobs that compete.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct RivalKey<'a> {
    uid: u32,
    partitions: &'a [String],
    account: Option<&'a str>,
    qos: Option<&'a str>,
}

impl<'a> RivalKey<'a> {
    fn of(job: &'a Job) -> RivalKey<'a> {
        let spec = &job.spec;
        RivalKey {
            uid: spec.owner.uid,
            partitions: &spec.partitions,
            account: spec.account.as_deref(),
            qos: spec.qos.as_deref(),
        }
    }
}

/// Jobs with those that are in their way. Each job of their owners is looked at once.
fn rivals(draft: &Draft<'_>, raised: &[JobId], scale: Option<&Scale>) -> Vec<Rivals> {
    let state = draft.state;
    let mut priorities = scale.map(|scale| Priorities::by(state, scale));
    let mut groups: BTreeMap<RivalKey<'_>, Rivals> = BTreeMap::new();
    for job in raised.iter().filter_map(|id| draft.job(*id)) {
        let group = groups.entry(RivalKey::of(job)).or_default();
        group.raised.push(ranked(&mut priorities, job));
    }
    let named: BTreeSet<JobId> = raised.iter().copied().collect();
    let owners: BTreeSet<u32> = groups.keys().map(|key| key.uid).collect();
    let names = owners.iter().filter_map(|uid| state.by_owner.get(uid));
    let jobs = names
        .flat_map(|names| names.values().flatten())
        .filter(|(_, id)| !named.contains(id))
        .filter_map(|(_, id)| draft.job(*id))
        .filter(|job| job.phase() == Phase::Pending && job.hold == Hold::None)
        // No nice value moves these.
        .filter(|job| scale.is_none() || !job.priority_fixed);
    for job in jobs {
        if let Some(group) = groups.get_mut(&RivalKey::of(job)) {
            group.others.push(ranked(&mut priorities, job));
        }
    }
    groups.into_values().collect()
}

fn ranked<'s>(priorities: &mut Option<Priorities<'s>>, job: &'s Job) -> Ranked {
    let priority = match priorities {
        Some(priorities) => priorities.thousandths_of(job),
        None => i64::from(job.priority),
    };
    Ranked {
        id: job.id,
        priority,
    }
}

/// The priorities that the jobs have are dealt out anew.
fn raise(draft: &mut Draft<'_>, group: &Rivals) {
    let order: Vec<&Ranked> = group.raised.iter().chain(&group.others).collect();
    let mut places: Vec<i64> = order.iter().map(|job| job.priority).collect();
    places.sort_unstable_by(|a, b| b.cmp(a));
    for (job, priority) in order.into_iter().zip(places) {
        if job.priority != priority {
            let priority = u32::try_from(priority).unwrap_or(u32::MAX);
            draft.change(job.id, JobChange::Priority(priority));
        }
    }
}

/// Jobs that are put on top get the nice values back that others' being on top has taken from them, and no better ones. What has been
/// added to the nice values of some is nothing that others get: their owner could change what either is made of afterwards.
fn restore_nice(draft: &mut Draft<'_>, raised: &[JobId]) {
    let added = |id: &JobId| draft.job(*id).map_or(0, |job| job.spec.nice_of_top);
    let changes: Vec<(JobId, i64)> = (raised.iter())
        .map(|id| (*id, -i64::from(added(id))))
        .filter(|(_, more)| *more != 0)
        .collect();
    change_nice(draft, changes);
}

/// Lowers the others where priorities are computed: their nice values rise until they come after the last of those that
/// are put before them, in the order that they have. Sums count and not priorities, of which none is lower than 1: jobs
/// whose sums are lower still have an order.
fn lower_others(draft: &mut Draft<'_>, group: &Rivals) {
    let Some(lowest) = group.raised.last().map(|job| job.priority) else {
        return;
    };
    let mut changes: Vec<(JobId, i64)> = Vec::new();
    let (mut most, mut above) = (lowest - 1000, i64::MAX);
    for other in &group.others {
        if other.priority < above && above < i64::MAX {
            most -= 1;
        }
        above = other.priority;
        // A nice value takes away whole numbers.
        let more = ((other.priority - most).max(0) + 999) / 1000;
        most = most.min(other.priority - more * 1000);
        if more > 0 {
            changes.push((other.id, more));
        }
    }
    change_nice(draft, changes);
}

/// Adds to nice values, or takes away earlier additions.
fn change_nice(draft: &mut Draft<'_>, changes: Vec<(JobId, i64)>) {
    let mut last: Option<(Arc<JobSpec>, i64, JobId)> = None;
    for (id, more) in changes {
        if draft.is_full() {
            return;
        }
        let Some(before) = draft.job(id).map(|job| Arc::clone(&job.spec)) else {
            continue;
        };
        // Tasks of an array have one specification, which is written once.
        let change = match &last {
            Some((spec, by, other)) if Arc::ptr_eq(spec, &before) && *by == more => {
                JobChange::SpecOf(*other)
            }
            _ => JobChange::Spec(Arc::new(with_nice(&before, more))),
        };
        draft.change(id, change);
        last = Some((before, more, id));
    }
}

fn with_nice(spec: &JobSpec, more: i64) -> JobSpec {
    let before = i64::from(spec.nice);
    let least = before - i64::from(spec.nice_of_top);
    let nice = (before + more).clamp(least, i64::from(i32::MAX));
    JobSpec {
        nice: i32::try_from(nice).unwrap_or(i32::MIN),
        nice_of_top: u32::try_from(nice - least).unwrap_or(u32::MAX),
        ..spec.clone()
    }
}

/// The job, if the caller may make the request about it and it is not over.
fn holdable<'d>(
    draft: &'d Draft<'_>,
    identity: &Identity,
    request: AccessRequest,
    item: Item,
) -> Result<&'d Job, Refusal> {
    let id = item.record();
    let job = draft.job(id).ok_or(RefusalCode::InvalidJobId)?;
    access::require_job(draft.state, identity, request, job)?;
    match job.phase() {
        Phase::Pending | Phase::Running | Phase::Suspended | Phase::Requeueing => Ok(job),
        Phase::Completing | Phase::Ended | Phase::Gone => Err(Refusal::new(
            RefusalCode::AlreadyDone,
            format!("job {id} has ended or is ending"),
        )),
    }
}
