//! Crontabs (`scrontab`): each entry is a job that waits for its next time, and goes back to the queue after each run. What
//! the client says of times is not looked at: they are read from the text here.

use super::cron_entry::{recurs, store};
use super::draft::Draft;
use super::ending::{self, JobEnding};
use super::job_limits::Moved;
use super::{room, submit};
use crate::event::JobChange;
use crate::policy::access;
use muster_model::command::{CrontabAsk, Identity, Reply};
use muster_model::cron::{
    CronEntry, Crontab, CrontabConfig, Schedule, ScheduleError, Zone, entries,
};
use muster_model::ids::JobId;
use muster_model::job::{Job, Phase};
use muster_model::limits::CRONTAB_JOBS_MAX;
use muster_model::refusal::{Refusal, RefusalCode};
use muster_model::rights::AccessRequest;
use muster_model::spec::{JobKind, JobSpec, Owner};
use muster_model::time::Timestamp;
use std::collections::HashSet;
use std::sync::Arc;

/// Replaces or removes a crontab: all of its jobs are accepted or none.
pub(super) fn set(
    draft: &mut Draft<'_>,
    identity: &Identity,
    ask: &CrontabAsk,
) -> Result<Option<Reply>, Refusal> {
    let config = draft.state.config.as_ref().map(|config| &config.crontabs);
    let Some(config) = config.filter(|crontabs| crontabs.enabled) else {
        let text = "ScronParameters in slurm.conf lacks 'enable'";
        return Err(Refusal::new(RefusalCode::CrontabsDisabled, text));
    };
    let owner = owner(draft, identity, &ask.owner)?;
    let found = ask
        .text
        .as_deref()
        .map(|text| read(config, text, draft.now));
    let found = found.transpose()?.unwrap_or_default();
    if found.len() != ask.jobs.len() {
        let (lines, jobs) = (found.len(), ask.jobs.len());
        return Err(Refusal::new(
            RefusalCode::InvalidValue,
            format!("the crontab has {lines} entries, and {jobs} jobs came with it"),
        ));
    }
    check_room(draft, identity, &owner, ask)?;
    let mut moved = Moved::default();
    retire(draft, owner.uid, identity.uid, &mut moved);
    let mut jobs = Vec::with_capacity(found.len());
    for (number, (spec, (entry, begin))) in ask.jobs.iter().zip(found).enumerate() {
        let identity = identity.for_job(number);
        let (first, last) = (entry.first_line, entry.last_line);
        let job = EntryJob {
            spec,
            entry,
            begin,
            owner: &owner,
        };
        let job = accept(draft, &identity, ask, job, &mut moved);
        jobs.push(job.map_err(|refusal| of_lines(refusal, first, last))?);
    }
    let changed = u32::try_from(jobs.len()).unwrap_or(u32::MAX);
    let crontab = ask.text.as_ref().map(|text| Crontab {
        text: text.clone(),
        jobs,
        user: owner.user,
    });
    // A crontab that is not there need not be removed: the event would be written each time.
    if crontab.is_some() || draft.state.crontabs.contains_key(&owner.uid) {
        store(draft, owner.uid, crontab);
    }
    let refused = Vec::new();
    Ok(Some(Reply::Done { changed, refused }))
}

/// The user whose crontab it is.
fn owner(draft: &Draft<'_>, identity: &Identity, named: &Owner) -> Result<Owner, Refusal> {
    if !named.user.is_empty() && named.uid != identity.uid {
        access::require(draft.state, identity, AccessRequest::SetCrontabOfOther)?;
    }
    let spec = JobSpec {
        owner: named.clone(),
        ..JobSpec::default()
    };
    submit::owner(draft, identity, &spec)
}

/// The entries of a text, each with its first time.
fn read(
    config: &CrontabConfig,
    text: &str,
    now: Timestamp,
) -> Result<Vec<(CronEntry, Timestamp)>, Refusal> {
    if text.contains('\0') {
        let why = "the crontab contains a zero byte";
        return Err(Refusal::new(RefusalCode::InvalidValue, why));
    }
    let found = entries(text);
    if found.len() > CRONTAB_JOBS_MAX {
        let count = found.len();
        return Err(Refusal::new(
            RefusalCode::TooLong,
            format!("the crontab has {count} entries, the limit is {CRONTAB_JOBS_MAX}"),
        ));
    }
    let zone = Zone::of_rule(&config.zone);
    let mut lines = (1u32..).zip(text.lines());
    let mut all = Vec::with_capacity(found.len());
    for (first_line, last_line) in found {
        let line = lines.find(|(number, _)| *number == last_line);
        let schedule = schedule(line.map_or("", |(_, line)| line));
        let first = schedule.and_then(|schedule| {
            let begin = schedule.next(now, &zone);
            Ok((schedule, begin.ok_or(ScheduleError::Never(schedule))?))
        });
        let (schedule, begin) = first.map_err(|why| {
            let refusal = Refusal::new(RefusalCode::InvalidValue, why.to_string());
            of_lines(refusal, first_line, last_line)
        })?;
        let entry = CronEntry {
            schedule,
            first_line,
            last_line,
            recurs: true,
        };
        all.push((entry, begin));
    }
    Ok(all)
}

fn schedule(line: &str) -> Result<Schedule, ScheduleError> {
    match Schedule::parse_entry(line)? {
        (_, "") => Err(ScheduleError::NoCommand),
        (schedule, _) => Ok(schedule),
    }
}

/// Says which lines a refusal is about; the command reads them from there.
fn of_lines(refusal: Refusal, first: u32, last: u32) -> Refusal {
    let detail = format!("lines {first}-{last}: {}", refusal.detail);
    Refusal::new(refusal.code, detail)
}

/// Whether there is room for all of the jobs at once. Those that they replace make room first.
fn check_room(
    draft: &Draft<'_>,
    identity: &Identity,
    owner: &Owner,
    ask: &CrontabAsk,
) -> Result<(), Refusal> {
    let (state, Some(config)) = (draft.state, draft.state.config.as_deref()) else {
        return Ok(());
    };
    let more = added(draft, owner.uid, ask);
    if more > 0 {
        room::check(state, config, (identity, owner.uid), more)?;
    }
    // Each script and environment is looked at once, however many entries share it.
    let mut seen = HashSet::new();
    for spec in &ask.jobs {
        if seen.insert((spec.script, spec.context)) {
            let mut spec = spec.clone();
            spec.context = spec.context.filter(|id| seen.insert((None, Some(*id))));
            submit::check_blobs(draft, &spec, &ask.blobs)?;
        }
    }
    Ok(())
}

/// By how many jobs the queue grows.
fn added(draft: &Draft<'_>, uid: u32, ask: &CrontabAsk) -> u64 {
    let before = draft.crontab(uid).map_or(0, |crontab| crontab.jobs.len());
    ask.jobs.len().saturating_sub(before) as u64
}

/// The job of an entry, before it is accepted.
struct EntryJob<'a> {
    spec: &'a JobSpec,
    entry: CronEntry,
    /// When it runs first.
    begin: Timestamp,
    /// The crontab's owner.
    owner: &'a Owner,
}

/// Takes the job of an entry into the queue.
fn accept(
    draft: &mut Draft<'_>,
    identity: &Identity,
    ask: &CrontabAsk,
    job: EntryJob<'_>,
    moved: &mut Moved,
) -> Result<JobId, Refusal> {
    let EntryJob {
        spec,
        entry,
        begin,
        owner,
    } = job;
    if spec.kind != JobKind::Batch || spec.array.is_some() || spec.interactive {
        let why = "an entry of a crontab is a batch job, and no array";
        return Err(Refusal::new(RefusalCode::InvalidValue, why));
    }
    let wanted = JobSpec {
        owner: match owner.uid == identity.uid {
            true => Owner::default(),
            false => owner.clone(),
        },
        begin: Some(begin),
        deadline: None,
        immediate_s: None,
        ..spec.clone()
    };
    let (mut job, not_before) = submit::prepare(draft, identity, &wanted)?;
    moved.submit(draft.state, &job)?;
    let bytes = room::bytes_of(draft.state, &[&job], &ask.blobs);
    let all = bytes.saturating_mul(ask.jobs.len() as u64);
    room::check_bytes(draft.state, identity, owner.uid, all)?;
    let mut spec = Arc::unwrap_or_clone(job.spec);
    spec.cron = Some(Box::new(entry));
    job.spec = Arc::new(spec);
    job.requeueable = true;
    let id = job.id;
    submit::store_blobs(draft, std::slice::from_ref(&job.spec), &ask.blobs);
    submit::accept(draft, job, not_before);
    Ok(id)
}

/// The jobs of a user's crontab do not come back: what waits goes, what runs runs to its end.
fn retire(draft: &mut Draft<'_>, uid: u32, by: u32, moved: &mut Moved) {
    let jobs = draft.crontab(uid).map(|crontab| crontab.jobs.clone());
    for id in jobs.unwrap_or_default() {
        let Some(job) = draft.job(id).filter(|job| recurs(job)) else {
            continue;
        };
        let how = match job.phase() {
            Phase::Requeueing if job.state.is_ended() => {
                Some(JobEnding::new(job.state, job.reason).with_exit(job.exit))
            }
            // A run that was put back, or lost, ended in no state of its own.
            Phase::Pending | Phase::Requeueing => Some(JobEnding::cancelled(by)),
            Phase::Running | Phase::Suspended => None,
            Phase::Completing | Phase::Ended | Phase::Gone => continue,
        };
        if matches!(job.phase(), Phase::Pending | Phase::Requeueing) {
            moved.leave(draft.state, job);
        }
        let mut spec = (*job.spec).clone();
        if let Some(entry) = &mut spec.cron {
            entry.recurs = false;
        }
        draft.change(id, JobChange::Spec(Arc::new(spec)));
        if let Some(how) = how {
            ending::end(draft, id, how);
        }
    }
}

/// Refuses a change of a job that its crontab says all of.
pub(super) fn require_none(job: &Job) -> Result<(), Refusal> {
    match recurs(job) {
        false => Ok(()),
        true => Err(Refusal::new(
            RefusalCode::CannotModifyCron,
            format!(
                "job {} is an entry of a crontab; change that with scrontab -e",
                job.id
            ),
        )),
    }
}

/// Refuses to cancel a job of a crontab where that must be said.
pub(super) fn require_said(draft: &Draft<'_>, job: &Job, said: bool) -> Result<(), Refusal> {
    let config = draft.state.config.as_ref();
    let must = config.is_some_and(|config| config.crontabs.explicit_cancel);
    match must && !said && recurs(job) {
        false => Ok(()),
        true => Err(Refusal::new(
            RefusalCode::CannotCancelCron,
            format!("job {} is an entry of a crontab", job.id),
        )),
    }
}
