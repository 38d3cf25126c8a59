//! qstat as XML.

use super::lines::{Entry, is_pending, prior};
use crate::grid_engine::selection;
use std::fmt::Write as _;

/// What begins a listing.
pub(super) const HEAD: &str = "<?xml version='1.0'?>\n<job_info  xmlns:xsd=\"http://arc.liv.ac.uk/repos/darcs/sge/\
     source/dist/util/resources/schemas/qstat/qstat.xsd\">\n";

/// Text as XML has it.
pub(super) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&apos;"),
            // Other control characters are no XML.
            c if c.is_control() && !matches!(c, '\n' | '\t') => out.push('?'),
            c => out.push(c),
        }
    }
    out
}

/// Jobs that run and jobs that wait.
pub(super) fn jobs(entries: &[Entry]) -> String {
    let mut text = HEAD.to_owned();
    text.push_str("  <queue_info>\n");
    for entry in entries.iter().filter(|entry| !is_pending(entry.job)) {
        job(&mut text, entry, 4, true);
    }
    text.push_str("  </queue_info>\n  <job_info>\n");
    for entry in entries.iter().filter(|entry| is_pending(entry.job)) {
        job(&mut text, entry, 4, true);
    }
    text.push_str("  </job_info>\n</job_info>\n");
    text
}

/// One job.
pub(super) fn job(text: &mut String, entry: &Entry, indent: usize, queue: bool) {
    let waits = is_pending(entry.job);
    let state = if waits { "pending" } else { "running" };
    let _ = writeln!(text, "{:indent$}<job_list state=\"{state}\">", "");
    let mut element = |name: &str, value: &str| {
        let _ = writeln!(text, "{:indent$}  <{name}>{}</{name}>", "", escaped(value));
    };
    element("JB_job_number", &selection::number(entry.job).to_string());
    element("JAT_prio", &format!("{:.5}", prior(entry.job)));
    element("JB_name", &entry.job.spec.name);
    element("JB_owner", &entry.job.spec.owner.user);
    element("state", &entry.state);
    let time = if waits {
        "JB_submission_time"
    } else {
        "JAT_start_time"
    };
    element(time, &entry.at_iso);
    if queue {
        element("queue_name", &entry.queue);
    }
    element("slots", &entry.slots.to_string());
    if !entry.tasks.is_empty() {
        element("tasks", &entry.tasks);
    }
    let _ = writeln!(text, "{:indent$}</job_list>", "");
}
