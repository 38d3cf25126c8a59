//! What a draft keeps and looks at, by counts.

use super::Draft;
use super::budget::{DECISION_BYTES_MAX, EVENTS_LEAST, EventBounds};
use crate::event::{Event, JobChange};
use crate::state::State;
use muster_model::effect::Effect;
use muster_model::ids::JobId;
use muster_model::index_set::IndexSet;
use muster_model::job::{Hold, Reason};
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
        draft.send([Effect::Tell { job: BASE, text }]);
    }
    let kept = draft.effects.len() as u64;
    assert!(kept <= DECISION_BYTES_MAX >> 20, "{kept}");
    let refused = draft.end_bounds().map_err(|refusal| refusal.code);
    assert_eq!(refused, Err(RefusalCode::TooLong));
}
