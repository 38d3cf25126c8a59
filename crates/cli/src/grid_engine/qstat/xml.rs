//! qstat as XML.

use super::lines::{Entry, View, has_ended, is_pending, predecessors, prior};
use super::usage;
use crate::grid_engine::selection;
use muster_model::grid_engine as marks;
use muster_model::visible_text::is_control;
use std::fmt::Write as _;

/// The beginning of a listing.
pub(super) const HEAD: &str = "<?xml version='1.0'?>\n<job_info  xmlns:xsd=\"http://arc.liv.ac.uk/repos/darcs/sge/\
     source/dist/util/resources/schemas/qstat/qstat.xsd\">\n";

/// Text as XML has it.
pub(in crate::grid_engine) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&apos;"),
            '\n' | '\t' => out.push(c),
            // Other control characters are no XML.
            c if is_control(c) => out.push('?'),
            c => out.push(c),
        }
    }
    out
}

/// Jobs that run and jobs that wait.
pub(super) fn jobs(entries: &[Entry], view: &View) -> String {
    let mut text = HEAD.to_owned();
    text.push_str("  <queue_info>\n");
    let runs = |entry: &&Entry| !is_pending(entry.job) && !has_ended(entry.job);
    for entry in entries.iter().filter(runs) {
        job(&mut text, entry, view, 4, true);
    }
    text.push_str("  </queue_info>\n  <job_info>\n");
    for entry in entries.iter().filter(|entry| !runs(entry)) {
        job(&mut text, entry, view, 4, true);
    }
    text.push_str("  </job_info>\n</job_info>\n");
    text
}

/// One job, in the order of elements that the schema has; `queue` is whether its queue is among them.
pub(super) fn job(text: &mut String, entry: &Entry, view: &View, indent: usize, queue: bool) {
    let waits = is_pending(entry.job);
    let waits = waits || has_ended(entry.job);
    let state = match has_ended(entry.job) {
        true => "zombie",
        false if waits => "pending",
        false => "running",
    };
    let spec = &entry.job.spec;
    let prior = format!("{:.5}", prior(entry.job));
    let _ = writeln!(text, "{:indent$}<job_list state=\"{state}\">", "");
    let mut element = |name: &str, value: &str| {
        let _ = writeln!(text, "{:indent$}  <{name}>{}</{name}>", "", escaped(value));
    };
    element("JB_job_number", &selection::number(entry.job).to_string());
    element("JAT_prio", &prior);
    if view.ext || view.pri {
        element("JAT_ntix", "0.00000");
    }
    if view.pri {
        element("JB_nppri", &prior);
    }
    if view.pri || view.urg {
        element("JB_nurg", "0.00000");
    }
    if view.urg {
        for name in ["JB_rrcontr", "JB_wtcontr", "JB_dlcontr"] {
            element(name, "0");
        }
    }
    if view.pri {
        element("JB_priority", &(-i64::from(spec.nice)).to_string());
    }
    element("JB_name", &spec.name);
    element("JB_owner", &spec.owner.user);
    if view.ext {
        element("JB_project", spec.account.as_deref().unwrap_or_default());
        element("JB_department", "defaultdepartment");
    }
    element("state", &entry.state);
    if let Some(used) = entry.usage.as_ref().filter(|_| view.ext && !waits) {
        #[allow(clippy::cast_precision_loss)]
        element("cpu_usage", &format!("{:.5}", usage::cpu_s(used) as f64));
        let gib_s = crate::grid_engine::memory::gib_seconds(used);
        element("mem_usage", &format!("{gib_s:.5}"));
        element("io_usage", &format!("{:.5}", usage::io_gib(used)));
    }
    match (view.ext, waits) {
        // There are no tickets here, and the columns of times make room for them.
        (true, _) => {
            for name in [
                "tickets",
                "JB_override_tickets",
                "JB_jobshare",
                "otickets",
                "ftickets",
                "stickets",
            ] {
                element(name, "0");
            }
            element("JAT_share", "0.00000");
        }
        (false, true) => element("JB_submission_time", &entry.at_iso),
        (false, false) => element("JAT_start_time", &entry.at_iso),
    }
    if queue {
        element("queue_name", &entry.queue);
    }
    if view.each_slot {
        element("master", entry.role);
    }
    element("slots", &entry.slots.to_string());
    if !entry.tasks.is_empty() {
        element("tasks", &entry.tasks);
    }
    if view.requests {
        requests(text, entry, view, indent + 2);
    }
    let _ = writeln!(text, "{:indent$}</job_list>", "");
}

/// The elements that `-r` adds.
fn requests(text: &mut String, entry: &Entry, view: &View, indent: usize) {
    let spec = &entry.job.spec;
    let mut element = |name: &str, attributes: &[(&str, &str)], value: &str| {
        let _ = write!(text, "{:indent$}<{name}", "");
        for (key, own) in attributes {
            let _ = write!(text, " {key}=\"{}\"", escaped(own));
        }
        let _ = writeln!(text, ">{}</{name}>", escaped(value));
    };
    let mark = |key| marks::value(spec, key).unwrap_or_default();
    element("full_job_name", &[], &spec.name);
    if let Some((pe, slots)) = marks::parallel_environment(spec) {
        element("requested_pe", &[("name", pe)], slots);
        if !is_pending(entry.job) {
            let granted = super::lines::slots(entry.job).to_string();
            element("granted_pe", &[("name", pe)], &granted);
        }
    }
    let split = |list: &'static str| {
        let words = mark(list).split(',').filter(|word| !word.is_empty());
        words.map(|word| word.split_once('=').unwrap_or((word, "TRUE")))
    };
    for (name, value) in split(marks::HARD) {
        let attributes = [("name", name), ("resource_contribution", "0.000000")];
        element("hard_request", &attributes, value);
    }
    for (name, value) in split(marks::SOFT) {
        element("soft_request", &[("name", name)], value);
    }
    for (name, key) in [
        ("hard_req_queue", marks::HARD_QUEUES),
        ("soft_req_queue", marks::SOFT_QUEUES),
        ("master_hard_req_queue", marks::MASTER_QUEUES),
    ] {
        let queues = mark(key).split(',').filter(|queue| !queue.is_empty());
        queues.for_each(|queue| element(name, &[], queue));
    }
    for name in mark(marks::HOLD_JID)
        .split(',')
        .filter(|name| !name.is_empty())
    {
        element("predecessor_jobs_req", &[], name);
    }
    for number in predecessors(entry.job) {
        element("predecessor_jobs", &[], &number);
    }
    if !view.without_binding {
        element("binding", &[], marks::binding(spec));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_users_are_xml() {
        let name = "a<b>&\u{1}\u{ffff}\u{fffe}\u{202e}\n";
        assert_eq!(escaped(name), "a&lt;b&gt;&amp;????\n");
    }
}
