//! The tables of a step's transitions as a page of documentation. `UPDATE_DOCS=1 cargo test -p muster-node-core` writes it.

use muster_node_core::agent::transition::{
    LedStepEvent, LedStepState, NodeStepEvent, NodeStepState, next_led_step_state,
    next_node_step_state,
};
use std::fmt::{Debug, Write as _};
use std::path::Path;

fn table<S: Debug + Copy + PartialEq, E: Debug + Copy>(
    page: &mut String,
    states: &[S],
    events: &[E],
    next: impl Fn(S, E) -> Option<S>,
) {
    let heads: Vec<String> = states.iter().map(|state| format!("{state:?}")).collect();
    let _ = writeln!(page, "| | {} |", heads.join(" | "));
    let _ = writeln!(page, "|-|{}", "-|".repeat(heads.len()));
    for event in events {
        let cells: Vec<String> = states
            .iter()
            .map(|state| match next(*state, *event) {
                None => "·".to_owned(),
                Some(next) if next == *state => "stays".to_owned(),
                Some(next) => format!("**{next:?}**"),
            })
            .collect();
        let _ = writeln!(page, "| {event:?} | {} |", cells.join(" | "));
    }
}

fn page() -> String {
    let mut page = String::from(
        "# The life of a step\n\n\
         Written from the tables in `crates/node-core/src/agent/transition.rs` by their test; change them, then run\n\
         `UPDATE_DOCS=1 cargo test -p muster-node-core`.\n\n\
         Rows are what happens, columns where the step is, cells where it goes. A dot is what changes nothing: it cannot\n\
         happen, or it is late, and the agent ignores it.\n\n\
         ## A node's part of a step, for the agent of that node\n\n",
    );
    table(
        &mut page,
        &NodeStepState::ALL,
        &NodeStepEvent::ALL,
        next_node_step_state,
    );
    page.push_str("\n## A step, for the agent that leads it\n\n");
    table(
        &mut page,
        &LedStepState::ALL,
        &LedStepEvent::ALL,
        next_led_step_state,
    );
    page
}

#[test]
fn the_page_is_up_to_date() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/step-states.md");
    let page = page();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, &page).expect("docs can be written");
    }
    let known = std::fs::read_to_string(&path).expect("docs/step-states.md exists");
    assert_eq!(
        known, page,
        "run UPDATE_DOCS=1 cargo test -p muster-node-core"
    );
}

#[test]
fn nothing_leads_out_of_the_end() {
    let ended = |event: &LedStepEvent| next_led_step_state(LedStepState::Over, *event).is_none();
    assert!(LedStepEvent::ALL.iter().all(ended));
    // A part is there again only where it is started anew, or found.
    for event in NodeStepEvent::ALL {
        let starts = matches!(event, NodeStepEvent::Ordered | NodeStepEvent::Adopted);
        let next = next_node_step_state(NodeStepState::Absent, event);
        assert_eq!(
            next.is_some_and(|next| next != NodeStepState::Absent),
            starts,
            "{event:?}"
        );
    }
}

/// A part that has begun can end, and be forgotten, from each state.
#[test]
fn every_part_can_go() {
    for state in NodeStepState::ALL.into_iter().skip(1) {
        let next = |event| next_node_step_state(state, event);
        assert_eq!(next(NodeStepEvent::Ended), Some(NodeStepState::Ended));
        assert_eq!(next(NodeStepEvent::Forgotten), Some(NodeStepState::Absent));
    }
}
