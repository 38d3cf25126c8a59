//! Calendars of partitions: when one changes its state, jobs of its partition are stopped or go on, and the change is an event, so that
//! the scheduler and all who read see the partition as it is.

use super::draft::Draft;
use super::{calendar_stops, suspend, turns};
use crate::event::Event;
use muster_model::calendar::CalendarState;
use muster_model::config::{ClusterConfig, PartitionConfig};
use muster_model::cron::Zone;
use muster_model::ids::JobId;
use muster_model::job::{Job, JobState};

/// Calendars whose time has come are asked.
pub(super) fn tick(draft: &mut Draft<'_>) {
    let now = draft.now;
    let is_due = |partition: &&PartitionConfig| {
        let next = partition.calendar.as_ref().and_then(|own| own.next_change);
        next.is_some_and(|next| next <= now)
    };
    let due: Vec<PartitionConfig> = draft
        .state
        .partitions
        .iter()
        .filter(is_due)
        .cloned()
        .collect();
    for mut partition in due {
        ask(draft, &mut partition);
        draft.emit(Event::PartitionChanged {
            partition: Box::new(partition.clone()),
        });
        follow(draft, &partition);
    }
}

/// Takes the state of the calendar at this time.
pub(super) fn ask(draft: &Draft<'_>, partition: &mut PartitionConfig) {
    let config = draft.state.config.as_deref();
    let zone = config.map_or("", |config| config.crontabs.zone.as_str());
    if let Some(calendar) = &mut partition.calendar {
        calendar.ask(draft.now, &Zone::of_rule(zone));
    }
}

/// Partitions of a configuration: calendars that are in force already have the state that they have.
pub(super) fn ask_all(
    draft: &Draft<'_>,
    config: &ClusterConfig,
    partitions: &mut [PartitionConfig],
) {
    let zone = Zone::of_rule(&config.crontabs.zone);
    let before = draft.state.config.as_ref();
    let is_same_zone = before.is_some_and(|own| own.crontabs.zone == config.crontabs.zone);
    for partition in partitions {
        let known = draft.state.partition(&partition.name);
        let known = known.and_then(|own| own.calendar.clone());
        let Some(calendar) = &mut partition.calendar else {
            continue;
        };
        match known.filter(|known| is_same_zone && known.calendar == calendar.calendar) {
            Some(known) => *calendar = known,
            None => calendar.ask(draft.now, &zone),
        }
    }
}

/// Jobs of a partition are stopped where its calendar says so, and go on where it does not.
pub(super) fn follow(draft: &mut Draft<'_>, partition: &PartitionConfig) {
    let stops = partition.calendar_state() == CalendarState::Suspended;
    if !stops && !calendar_stops::get(draft, &partition.name) {
        return;
    }
    calendar_stops::set(draft, &partition.name, stops);
    let there = |id: &JobId| {
        let job = draft.job(*id);
        job.is_some_and(|job| job.partition == partition.name)
    };
    let active = draft.state.active.iter().copied();
    let jobs: Vec<JobId> = active.filter(there).collect();
    for id in jobs {
        match stops {
            true => stop(draft, id),
            false => go_on(draft, id),
        }
    }
}

/// Jobs of partitions that a configuration leaves out have no calendar any more.
pub(super) fn follow_removed(draft: &mut Draft<'_>, left: &[PartitionConfig]) {
    let state = draft.state;
    for known in &state.partitions {
        if !left.iter().any(|own| own.name == known.name) {
            follow(draft, &PartitionConfig::named(&known.name));
        }
    }
}

/// A job began that had to wait for a program of the site's.
pub(super) fn began(draft: &mut Draft<'_>, id: JobId) {
    let is_there = |job: &Job| calendar_stops::get(draft, &job.partition);
    if draft.job(id).is_some_and(is_there) {
        stop(draft, id);
    }
}

fn stop(draft: &mut Draft<'_>, id: JobId) {
    let Some(job) = draft.job(id) else {
        return;
    };
    if job.waits_for_turn() {
        // From now on it waits for the calendar.
        let at = draft.now;
        draft.emit(Event::JobResumed { id, at });
        return suspend::stop(draft, id, true);
    }
    if job.state == JobState::Running && !job.completing && !job.configuring {
        suspend::stop(draft, id, true);
    }
}

fn go_on(draft: &mut Draft<'_>, id: JobId) {
    let Some(job) = draft.job(id) else {
        return;
    };
    if job.stopped_by_calendar && job.state == JobState::Suspended {
        let at = draft.now;
        draft.emit(Event::JobResumed { id, at });
        turns::began(draft, id);
    } else if job.is_stopped_for_another() {
        let nodes = turns::nodes_of(draft, id);
        nodes
            .into_iter()
            .for_each(|node| turns::resume_on(draft, node));
    }
}
