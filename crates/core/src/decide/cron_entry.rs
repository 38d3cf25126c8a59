//! Entries of crontabs that jobs are of: their next runs, and the notes in the table.

use super::draft::Draft;
use crate::event::Event;
use muster_model::cron::{Crontab, Zone, disable};
use muster_model::ids::JobId;
use muster_model::job::Job;
use muster_model::time::Timestamp;

/// Seconds after which an entry is looked at again whose time never comes; only a new zone makes one of such.
const NEVER_S: u64 = 366 * 86_400;

/// Whether a job comes back after each run.
pub(super) fn recurs(job: &Job) -> bool {
    job.spec.cron.as_ref().is_some_and(|entry| entry.recurs)
}

/// When a job that comes back does so.
pub(super) fn next_time(draft: &Draft<'_>, job: &Job) -> Option<Timestamp> {
    let entry = job.spec.cron.as_ref().filter(|entry| entry.recurs)?;
    let config = draft.state.config.as_ref();
    let zone = Zone::of_rule(config.map_or("", |config| &config.crontabs.zone));
    let next = entry.schedule.next(draft.now, &zone);
    Some(next.unwrap_or_else(|| draft.now.plus_s(NEVER_S)))
}

/// The entry of a job that ended for good is taken out of use.
pub(super) fn disable_entry(draft: &mut Draft<'_>, id: JobId) {
    let Some(job) = draft.job(id) else { return };
    let (uid, spec) = (job.spec.owner.uid, job.spec.clone());
    let Some(entry) = spec.cron.as_ref().filter(|entry| entry.recurs) else {
        return;
    };
    let lines = (entry.first_line, entry.last_line);
    let Some(crontab) = draft
        .crontab(uid)
        .filter(|crontab| crontab.jobs.contains(&id))
    else {
        return;
    };
    let mut crontab = crontab.clone();
    crontab.text = disable(&crontab.text, lines);
    crontab.jobs.retain(|job| *job != id);
    store(draft, uid, Some(crontab));
}

pub(super) fn store(draft: &mut Draft<'_>, uid: u32, crontab: Option<Crontab>) {
    let at = draft.now;
    draft.emit(Event::CrontabSet {
        uid,
        crontab: crontab.map(Box::new),
        at,
    });
}
