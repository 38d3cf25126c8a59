//! What a draft keeps and looks at, by counts.

use super::Draft;
use super::budget::{DECISION_BYTES_MAX, EVENTS_LEAST, EventBounds};
use crate::event::{Event, JobChange};
use crate::state::State;
use muster_model::effect::Effect;
use muster_model::ids::JobId;
use muster_model::index_set::IndexSet;
use muster_model::job::{ExitStatus, Hold, JobState, Reason};
use muster_model::refusal::RefusalCode;
use muster_model::spec::{ArraySpec, JobSpec};
use muster_model::time::{TimeLimit, Timestamp};
use std::sync::Arc;

const BASE: JobId = JobId(1);

/// An array of which the first `split` of `tasks` have records of their own.
fn array(tasks: u32, split: u32) -> State {
    let mut state = State::default();
    let mut indices = IndexSet::default();
    indices.insert_range(0, tasks - 1);
    state.apply(&Event::JobSubmitted {
        id: BASE,
        spec: Arc::new(JobSpec {
            array: Some(ArraySpec {
                indices,
                throttle: None,
            }),
            ..JobSpec::default()
        }),
        at: Timestamp(1),
        priority: 1,
        hold: Hold::None,
        time_limit: TimeLimit::Unlimited,
        waiting_on: Vec::new(),
        reason: Reason::None,
        partition: "batch".to_owned(),
        requeueable: true,
        het: None,
    });
    for index in 0..split {
        let (base, id) = (BASE, JobId(u64::from(index) + 2));
        state.apply(&Event::TaskSplit { base, index, id });
    }
    state
}

fn set(ranges: &[(u32, u32)]) -> IndexSet {
    let mut tasks = IndexSet::default();
    for (first, last) in ranges {
        tasks.insert_range(*first, *last);
    }
    tasks
}

/// All records between the first and the last task of a target were copied, also where it named two that were not there.
#[test]
fn records_between_those_that_are_named_are_not_looked_at() {
    let state = array(2000, 1000);
    let mut draft = Draft::new(&state, Timestamp(2));
    assert_eq!(
        draft.records_among(BASE, &set(&[(0, 0), (3_000_000, 4_000_000)])),
        [JobId(2)]
    );
    assert!(draft.looked_at() < 10, "{}", draft.looked_at());
    let named = set(&[(5, 6), (998, 1001)]);
    let expected = [7, 8, 1000, 1001].map(JobId);
    assert_eq!(draft.records_among(BASE, &named), expected);
    // Tasks that leave the record in this draft.
    for index in 1000..1500 {
        draft.split_task(BASE, index);
    }
    let before = draft.looked_at();
    let named = set(&[(0, 0), (999, 999), (1499, 1500), (3_000_000, 3_000_000)]);
    let records = draft.records_among(BASE, &named);
    assert_eq!(
        (records.len(), records[..2].to_vec()),
        (3, vec![JobId(2), JobId(1001)])
    );
    assert_eq!(
        draft.pending_among(BASE, &named),
        Some(set(&[(1500, 1500)]))
    );
    assert!(draft.looked_at() - before < 20, "{}", draft.looked_at());
    // What was found and had left is looked at, and counts.
    let before = draft.looked_at();
    assert_eq!(
        draft.pending_among(BASE, &set(&[(1000, 1499)])),
        Some(IndexSet::default())
    );
    assert!(draft.looked_at() - before >= 500);
}

/// The size was looked at when all was there.
#[test]
fn events_beyond_the_bounds_are_not_kept() {
    let state = array(2, 0);
    let mut draft = Draft::new(&state, Timestamp(2));
    draft.begin_bounds(EventBounds::BytesAndEvents);
    let spec = JobSpec {
        work_dir: "x".repeat(1 << 20),
        ..JobSpec::default()
    };
    for _ in 0..100 {
        draft.change(BASE, JobChange::Spec(Arc::new(spec.clone())));
    }
    let kept = draft.events.len() as u64;
    assert!(kept < DECISION_BYTES_MAX >> 20, "{kept}");
    assert!(draft.is_full());
    assert_eq!(
        draft.end_bounds().map_err(|r| r.code),
        Err(RefusalCode::TooLong)
    );

    let mut draft = Draft::new(&state, Timestamp(2));
    draft.begin_bounds(EventBounds::BytesAndEvents);
    for n in 0..2 * EVENTS_LEAST {
        draft.change(BASE, JobChange::Priority((n % 7) as u32 + 1));
    }
    let kept = draft.events.len() as u64;
    assert!((EVENTS_LEAST..EVENTS_LEAST + 100).contains(&kept), "{kept}");
    assert_eq!(
        draft.end_bounds().map_err(|r| r.code),
        Err(RefusalCode::TooLong)
    );
    // What follows from a decision has no bounds.
    assert!(!draft.is_full());
    draft.change(BASE, JobChange::Priority(1));
    assert_eq!(draft.events.len() as u64, kept + 1);
}

/// A message to each of an array's tasks has a copy of its text.
#[test]
fn orders_beyond_the_bounds_are_not_kept() {
    let state = array(2, 0);
    let mut draft = Draft::new(&state, Timestamp(2));
    draft.begin_bounds(EventBounds::Bytes);
    for _ in 0..100 {
        let text = "x".repeat(1 << 20);
        draft.send([Effect::SendMessage { job: BASE, text }]);
    }
    let kept = draft.effects.len() as u64;
    assert!(kept <= DECISION_BYTES_MAX >> 20, "{kept}");
    let refused = draft.end_bounds().map_err(|refusal| refusal.code);
    assert_eq!(refused, Err(RefusalCode::TooLong));
}

/// All that had left below the first one that is there was passed over for each task that left above it.
#[test]
fn tasks_that_left_are_passed_over_once() {
    let state = array(4000, 0);
    let mut draft = Draft::new(&state, Timestamp(2));
    for index in (1..2000).chain([0]).chain(2001..3999) {
        draft.split_task(BASE, index);
    }
    assert_eq!(draft.first_in_record(BASE), Some(2000));
    assert!(draft.looked_at() < 10_000, "{}", draft.looked_at());
    for index in [2000, 3999] {
        assert!(draft.is_in_record(BASE, index));
        draft.split_task(BASE, index);
    }
    assert_eq!(draft.first_in_record(BASE), None);
}

/// An end that leaves no phase of its own is found where the command can still be refused.
#[test]
#[should_panic(expected = "job 1 ends for good in state Pending")]
fn a_job_ends_for_good_only_in_a_state_of_its_end() {
    let state = array(2, 0);
    let mut draft = Draft::new(&state, Timestamp(2));
    draft.emit(Event::JobEnding {
        id: BASE,
        at: Timestamp(2),
        state: JobState::Pending,
        reason: Reason::None,
        exit: ExitStatus::default(),
        cancelled_by: None,
        requeue: None,
    });
}
