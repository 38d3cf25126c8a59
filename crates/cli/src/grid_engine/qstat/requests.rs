//! `qstat -r`: the lines below a job about its requests.

use muster_model::grid_engine as marks;
use muster_model::job::Job;
use std::fmt::Write as _;

/// Facts about a job that are not requests.
pub(super) struct Given<'a> {
    /// `queue@host`; empty while it waits.
    pub(super) queue: &'a str,
    pub(super) slots: u64,
    /// Jobs that it waits for.
    pub(super) predecessors: Vec<String>,
}

/// The lines of `-r`.
pub(super) fn requests(text: &mut String, job: &Job, given: &Given, without_binding: bool) {
    let spec = &job.spec;
    let mut row = |key: &str, value: &str| {
        let _ = writeln!(text, "       {key:<17} {value}");
    };
    row("Full jobname:", &spec.name);
    if !given.queue.is_empty() {
        row("Master Queue:", given.queue);
    }
    if let Some((pe, slots)) = marks::parallel_environment(spec) {
        row("Requested PE:", &format!("{pe} {slots}"));
        if !given.queue.is_empty() {
            row("Granted PE:", &format!("{pe} {}", given.slots));
        }
    }
    let hard = marks::value(spec, marks::HARD).unwrap_or_default();
    let mut first = "Hard Resources:";
    for request in hard.split(',').filter(|request| !request.is_empty()) {
        row(first, &format!("{request} (0.000000)"));
        first = "";
    }
    if hard.is_empty() {
        let _ = writeln!(text, "       Hard Resources:   ");
    }
    let soft = marks::value(spec, marks::SOFT).unwrap_or_default();
    let _ = writeln!(text, "       Soft Resources:   {soft}");
    for (title, key) in [
        ("Hard", marks::HARD_QUEUES),
        ("Soft", marks::SOFT_QUEUES),
        ("Master task hard", marks::MASTER_QUEUES),
    ] {
        if let Some(queues) = marks::value(spec, key) {
            let queues = queues.replace(',', ", ");
            let _ = writeln!(text, "       {title} requested queues: {queues}");
        }
    }
    if let Some(asked) = marks::value(spec, marks::HOLD_JID) {
        let asked = asked.replace(',', ", ");
        let _ = writeln!(text, "       Predecessor Jobs (request): {asked}");
    }
    if !given.predecessors.is_empty() {
        let before = given.predecessors.join(", ");
        let _ = writeln!(text, "       Predecessor Jobs: {before}");
    }
    if !without_binding {
        let _ = writeln!(text, "       Binding:          {}", marks::binding(spec));
    }
}
