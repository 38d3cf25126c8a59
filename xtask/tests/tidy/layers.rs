//! The layers of the scheduler: a module imports those below it, never one above.

use crate::cycles::imports;
use crate::source::product;

/// The top-level modules of `sched`, the lowest first, as its `lib.rs` has them.
const SCHED: [&str; 9] = [
    "order", "nodes", "demand", "place", "backfill", "queue", "pass", "engine", "forecast",
];

#[test]
fn layers_of_the_scheduler_import_downward() {
    let sources: Vec<_> = product()
        .into_iter()
        .filter(|source| source.package == "sched")
        .collect();
    let layer_of = |module: &str| {
        let layer = SCHED.iter().position(|layer| *layer == module);
        layer.unwrap_or_else(|| panic!("{module} is in no layer"))
    };
    for (from, imported) in imports(&sources) {
        let above = |to: &&String| layer_of(to) > layer_of(&from);
        let above: Vec<&String> = imported.iter().filter(above).collect();
        assert!(
            above.is_empty(),
            "{from} imports {above:?}, which are above it"
        );
    }
}
