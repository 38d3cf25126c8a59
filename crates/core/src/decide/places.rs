//! Where a job may run as it was submitted or changed: the partitions and reservations that it names, each once and not too
//! many. It waits in each partition of each reservation, so that their product counts. Whether it may use them is not looked
//! at here.

use muster_model::limits::{JOB_PLACES_MAX, JOB_RESERVATIONS_MAX};
use muster_model::refusal::{Refusal, RefusalCode};
use muster_model::spec::JobSpec;
use std::collections::HashSet;

/// Keeps each partition and reservation once, where it is named first.
///
/// # Errors
/// There are too many reservations, or too many places with them.
pub(super) fn keep_once(spec: &mut JobSpec) -> Result<(), Refusal> {
    let mut seen = HashSet::with_capacity(spec.partitions.len());
    let is_first: Vec<bool> = (spec.partitions.iter())
        .map(|name| seen.insert(name.as_str()))
        .collect();
    let mut is_first = is_first.into_iter();
    spec.partitions.retain(|_| is_first.next() != Some(false));
    let mut seen = HashSet::new();
    let names: Vec<&str> = spec.reservations().filter(|n| seen.insert(*n)).collect();
    let refuse = |why: String| Err(Refusal::new(RefusalCode::InvalidReservation, why));
    let (reservations, partitions) = (names.len(), spec.partitions.len().max(1));
    if reservations > JOB_RESERVATIONS_MAX {
        return refuse(format!(
            "--reservation names {reservations} reservations, the limit is {JOB_RESERVATIONS_MAX}"
        ));
    }
    if reservations * partitions > JOB_PLACES_MAX {
        return refuse(format!(
            "{reservations} reservations with {partitions} partitions each are more than {JOB_PLACES_MAX} places to wait in; \
             name fewer"
        ));
    }
    // A text without names is refused by name.
    if spec.reservations().count() > reservations {
        let kept = names.join(",");
        spec.reservation = Some(kept);
    }
    Ok(())
}
