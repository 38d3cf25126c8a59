//! The tables of a step's transitions as pages of documentation. `UPDATE_DOCS=1 cargo test -p muster-node-core` writes them.

use muster_node_core::agent::transition::{
    LedStepEvent, LedStepState, NodeStepEvent, NodeStepState, next_led_step_state,
    next_node_step_state,
};
use muster_node_core::srun::transition::{SrunState, SrunStateEvent, next_srun_state};
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

/// How a page begins.
fn head(title: &str, source: &str, who: &str) -> String {
    format!(
        "# {title}\n\n\
         Written from the tables in `crates/node-core/src/{source}` by their test; change them, then run\n\
         `UPDATE_DOCS=1 cargo test -p muster-node-core`.\n\n\
         Rows are what happens, columns where the step is, cells where it goes. A dot is what changes nothing: it cannot\n\
         happen, or it is late, and {who} ignores it.\n\n"
    )
}

fn steps_page() -> String {
    let mut page = head("The life of a step", "agent/transition.rs", "the agent");
    page.push_str("## A node's part of a step, for the agent of that node\n\n");
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

fn srun_page() -> String {
    let mut page = head("A step, for its srun", "srun/transition.rs", "srun");
    table(
        &mut page,
        &SrunState::ALL,
        &SrunStateEvent::ALL,
        next_srun_state,
    );
    page
}

fn assert_up_to_date(name: &str, page: &str) {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let path = docs.join(name);
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, page).expect("docs can be written");
    }
    let known = std::fs::read_to_string(&path).expect("the page exists");
    assert_eq!(
        known, page,
        "docs/{name}: run UPDATE_DOCS=1 cargo test -p muster-node-core"
    );
}

#[test]
fn the_pages_are_up_to_date() {
    assert_up_to_date("step-states.md", &steps_page());
    assert_up_to_date("srun-states.md", &srun_page());
}

/// srun can fail until its step runs, ends once it does, and never begins again.
#[test]
fn srun_goes_forward() {
    for state in SrunState::ALL {
        let next = |event| next_srun_state(state, event);
        let ahead = SrunStateEvent::ALL.into_iter().filter_map(next);
        let again = (SrunState::Asking, SrunState::Locating);
        let is_ahead = |next: SrunState| next >= state || (state, next) == again;
        assert!(ahead.clone().all(is_ahead), "{state:?}");
        assert_eq!(ahead.count() == 0, state == SrunState::Over);
        let fails = next(SrunStateEvent::Failed) == Some(SrunState::Over);
        assert_eq!(fails, state <= SrunState::Ending, "{state:?}");
    }
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
