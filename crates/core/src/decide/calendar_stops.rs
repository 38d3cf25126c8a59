//! Whether the calendar of a partition stops its jobs, as earlier events of a decision leave it.

use super::draft::Draft;
use muster_model::calendar::CalendarState;

/// From now on the calendar of a partition stops its jobs, or does not.
pub(super) fn set(draft: &mut Draft<'_>, partition: &str, stops: bool) {
    draft.calendars.insert(partition.to_owned(), stops);
}

/// Whether the calendar of a partition stops its jobs.
pub(super) fn get(draft: &Draft<'_>, partition: &str) -> bool {
    let drafted = draft.calendars.get(partition).copied();
    drafted.unwrap_or_else(|| {
        let known = draft.state.partition(partition);
        known.is_some_and(|own| own.calendar_state() == CalendarState::Suspended)
    })
}
