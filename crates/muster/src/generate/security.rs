//! The part of docs/security.md that is made from a table: who may make which request. What `PrivateData` hides is written by
//! hand there.

use muster_model::rights::{AccessRequest, Group};
use std::fmt::Write as _;

/// Where the made part begins and ends; the rest of the page is written by hand.
const BEGIN: &str = "<!-- begin: made by 'muster generate security', do not edit -->";
const END: &str = "<!-- end: made by 'muster generate security' -->";

/// The page, of which only the made part is new.
pub(super) fn page(present: &str) -> String {
    let made = format!("{BEGIN}\n\n{}\n{END}", tables());
    let around = present
        .split_once(BEGIN)
        .and_then(|(before, rest)| Some((before, rest.split_once(END)?.1)));
    match around {
        Some((before, after)) => format!("{before}{made}{after}"),
        None => format!("{present}\n{made}\n"),
    }
}

fn tables() -> String {
    let groups = [
        (Group::Command, "Commands"),
        (
            Group::Part,
            "Parts of commands that have a right of their own",
        ),
        (Group::Accounts, "Accounting"),
        (Group::Query, "Reads"),
        (Group::Connection, "Waits, and the controller as a process"),
        (Group::Agent, "Requests to the agent of a node"),
    ];
    let mut out = String::new();
    for (group, title) in groups {
        let _ = writeln!(out, "### {title}\n");
        let _ = writeln!(out, "| request | by | what it does | who may |\n|-|-|-|-|");
        for request in AccessRequest::ALL.iter().filter(|r| r.group() == group) {
            let (name, text) = (request.name(), request.text());
            let (about, least) = (request.about(), request.least().text());
            let _ = writeln!(out, "| {name} | {text} | {about} | {least} |");
        }
        out.push('\n');
    }
    out.truncate(out.trim_end().len());
    out.push('\n');
    out
}
