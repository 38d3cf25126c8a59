//! The table of transitions as a page of documentation. `UPDATE_DOCS=1 cargo test -p muster-core` writes it.

use muster_core::transition::{Move, next_phase};
use muster_model::job::Phase;
use std::fmt::Write as _;
use std::path::Path;

fn page() -> String {
    let mut page = String::from(
        "# The life of a job\n\n\
         Written from the table in `crates/core/src/transition.rs` by its test; change the table, then run\n\
         `UPDATE_DOCS=1 cargo test -p muster-core`.\n\n\
         Rows are what happens, columns where the record is, cells where it goes. A dot is what cannot happen: the core\n\
         never decides it, and applying it is a bug that stops the controller before state is damaged.\n\n\
         * `Pending`: in the queue. `Running`, `Suspended`: has an allocation.\n\
         * `Completing`: its end is decided (`squeue` shows CG), nodes are still being cleaned.\n\
         * `Requeueing`: the same, but it goes back to the queue when they are.\n\
         * `Ended`: over; listed until `MinJobAge` has passed and its accounting row is durable. `Gone`: purged.\n\n",
    );
    let heads: Vec<String> = Phase::ALL
        .iter()
        .map(|phase| format!("{phase:?}"))
        .collect();
    let _ = writeln!(page, "| | {} |", heads.join(" | "));
    let _ = writeln!(page, "|-|{}", "-|".repeat(heads.len()));
    for step in Move::ALL {
        let cells: Vec<String> = Phase::ALL
            .iter()
            .map(|phase| match next_phase(*phase, step) {
                None => "·".to_owned(),
                Some(next) if next == *phase => "stays".to_owned(),
                Some(next) => format!("**{next:?}**"),
            })
            .collect();
        let _ = writeln!(page, "| {step:?} | {} |", cells.join(" | "));
    }
    page
}

#[test]
fn the_page_is_up_to_date() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/job-states.md");
    let page = page();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, &page).expect("docs can be written");
    }
    let known = std::fs::read_to_string(&path).expect("docs/job-states.md exists");
    assert_eq!(known, page, "run UPDATE_DOCS=1 cargo test -p muster-core");
}

#[test]
fn nothing_happens_to_a_record_that_is_gone() {
    assert!(
        Move::ALL
            .iter()
            .all(|step| next_phase(Phase::Gone, *step).is_none())
    );
}
