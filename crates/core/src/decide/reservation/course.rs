//! The life of reservations: they begin, end, repeat, lose nodes and get others.

use super::super::draft::Draft;
use super::nodes;
use crate::event::{Event, JobChange};
use muster_model::ids::JobId;
use muster_model::job::{Job, Phase};
use muster_model::reservation::{Flags, Reservation};
use muster_model::time::Timestamp;
use std::sync::Arc;

/// Begins and ends what is due. Comes after the time limits, which a reservation's end sets.
pub(in super::super) fn tick(draft: &mut Draft<'_>) {
    let now = draft.now;
    let due: Vec<Reservation> = draft
        .state
        .reservations
        .iter()
        .filter(|r| r.next_change() <= now)
        .cloned()
        .collect();
    for reservation in due {
        let purged = reservation
            .idle_since
            .zip(reservation.purge_s)
            .is_some_and(|(since, s)| since.plus_s(u64::from(s)) <= now);
        if reservation.end <= now || (reservation.active && purged) {
            end(draft, reservation, purged);
        } else if !reservation.active {
            let name = reservation.name.clone();
            draft.emit(Event::ReservationStarted { name, at: now });
            if reservation.purge_s.is_some() {
                let mut begun = reservation;
                begun.active = true;
                watch_idle(draft, begun);
            }
        }
    }
}

fn end(draft: &mut Draft<'_>, reservation: Reservation, purged: bool) {
    let now = draft.now;
    let mut next = reservation;
    while !purged && next.end <= now {
        let Some((start, end)) = next.next_occurrence() else {
            break;
        };
        (next.start, next.end) = (start, end);
    }
    if next.end > now && !purged {
        next.active = next.start <= now;
        next.idle_since = None;
        draft.emit(Event::ReservationSet {
            reservation: Box::new(next),
            at: Some(draft.now),
        });
        return;
    }
    let name = next.name.clone();
    for id in jobs_of(draft, &name) {
        let Some(job) = draft.job(id).filter(|job| job.phase() == Phase::Pending) else {
            continue;
        };
        let rest: Vec<&str> = job.spec.reservations().filter(|n| *n != name).collect();
        let mut spec = (*job.spec).clone();
        spec.reservation = Some(rest.join(",")).filter(|text| !text.is_empty());
        let hold = spec.reservation.is_none() && !next.flags.has(Flags::NO_HOLD_JOBS_AFTER);
        let hold = hold && job.priority > 0;
        let spec = Arc::new(spec);
        draft.change(id, JobChange::ReservationGone { spec, hold });
    }
    draft.emit(Event::ReservationGone { name, at: now });
}

/// A changed reservation ends its jobs at another time.
pub(super) fn follow_end(draft: &mut Draft<'_>, new: &Reservation) {
    for id in jobs_of(draft, &new.name) {
        let Some(job) = draft.job(id) else { continue };
        let inside = job.alloc.as_ref().and_then(|a| a.reservation.as_ref()) == Some(&new.name);
        let by = end_by(draft, new);
        if inside && matches!(job.phase(), Phase::Running | Phase::Suspended) && job.end_by != by {
            draft.change(id, JobChange::EndBy(by));
        }
    }
}

/// When a reservation ends its jobs.
pub(in super::super) fn end_by(draft: &Draft<'_>, reservation: &Reservation) -> Option<Timestamp> {
    let over_run = draft
        .state
        .config
        .as_ref()
        .map_or(0, |c| c.order.resv_over_run_s);
    let bound = over_run < u32::MAX && !reservation.flags.has(Flags::FLEX);
    bound.then(|| reservation.end.plus_s(u64::from(over_run)))
}

/// After a decision: nodes that it took out of service or gave to jobs are replaced, and reservations without a job
/// are watched.
pub(in super::super) fn follow(draft: &mut Draft<'_>) {
    if draft.touched_no_node() {
        return;
    }
    for known in draft.state.reservations.iter() {
        if draft.reservations.contains(&known.name) {
            continue;
        }
        let replaceable = Some(known).filter(|r| r.is_replaceable());
        let wanted = replaceable.and_then(|r| nodes::replacements(draft, r));
        let same = |wanted: &Vec<_>| wanted.iter().eq(known.nodes.iter().map(|n| &n.node));
        if let Some(wanted) = wanted.filter(|w| !same(w)) {
            let mut new = known.clone();
            nodes::set_nodes(draft.state, &mut new, wanted);
            watch_idle(draft, new);
        } else if known.purge_s.is_some() && known.active {
            watch_idle(draft, known.clone());
        }
    }
}

/// Sets since when no job runs in it, and takes the record over if that or something else changed.
fn watch_idle(draft: &mut Draft<'_>, mut new: Reservation) {
    let busy = jobs_of(draft, &new.name)
        .into_iter()
        .filter_map(|id| draft.job(id))
        .any(|job: &Job| !job.nodes_held.is_empty());
    new.idle_since = match (new.purge_s, new.active, busy) {
        (Some(_), true, false) => Some(new.idle_since.unwrap_or(draft.now)),
        _ => None,
    };
    if draft.state.reservations.get(&new.name) != Some(&new) {
        draft.emit(Event::ReservationSet {
            reservation: Box::new(new),
            at: Some(draft.now),
        });
    }
}

fn jobs_of(draft: &Draft<'_>, name: &str) -> Vec<JobId> {
    let jobs = draft.state.by_reservation.get(name);
    jobs.into_iter().flatten().copied().collect()
}
