//! The payload of answers that are errors: empty, but there, since the descriptions of v0.0.42 and later require its key, and clients that
//! are generated from these could not read the error else.

use super::http::Method;
use super::operation::{Area, RestOperation};
use crate::listing::document::Writer;

/// The form of a payload with nothing in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Empty {
    List,
    /// With the times that listings of the queue and the machines have.
    ListOfTime,
    Text,
}

/// First version whose answers have it in errors.
const SINCE: u32 = 42;

/// Writes the required keys of an answer of this operation, without anything in them.
pub(super) fn write_empty(w: &mut Writer<'_>, operation: &RestOperation, version: u32) {
    let Some((key, empty)) = of(operation).filter(|_| version >= SINCE) else {
        return;
    };
    match empty {
        Empty::Text => w.text(key, ""),
        Empty::List | Empty::ListOfTime => w.list(key, |_| {}),
    }
    if empty == Empty::ListOfTime {
        if key == "jobs" {
            w.time("last_backfill", None);
        }
        w.time("last_update", None);
    }
}

fn of(operation: &RestOperation) -> Option<(&'static str, Empty)> {
    let first = operation.path.split('/').next().unwrap_or("");
    let is_requeue = operation.path.ends_with("/requeue");
    let found = match (operation.area, operation.method, first) {
        (Area::Slurm, _, "job" | "jobs") if is_requeue => ("status", Empty::List),
        (Area::Slurm, Method::Delete, "job" | "jobs") => ("status", Empty::List),
        (Area::Slurm, Method::Post, "reservation" | "reservations") => {
            ("reservations", Empty::List)
        }
        (Area::Slurm, Method::Get, "job" | "jobs") => ("jobs", Empty::ListOfTime),
        (Area::Slurm, Method::Get, "node" | "nodes") => ("nodes", Empty::ListOfTime),
        (Area::Slurm, Method::Get, "partition" | "partitions") => ("partitions", Empty::ListOfTime),
        (Area::Slurm, Method::Get, "reservation" | "reservations") => {
            ("reservations", Empty::ListOfTime)
        }
        (Area::Slurm, Method::Get, "licenses") => ("licenses", Empty::ListOfTime),
        (Area::Slurm, Method::Get, "resources") => ("nodes", Empty::List),
        (Area::Slurm | Area::Slurmdb, Method::Get, "ping") => ("pings", Empty::List),
        (Area::Slurmdb, method, first) => of_accounting(method, first)?,
        _ => return None,
    };
    Some(found)
}

fn of_accounting(method: Method, first: &str) -> Option<(&'static str, Empty)> {
    let list = match (method, first) {
        (Method::Get, "job" | "jobs") => "jobs",
        (Method::Post, "job" | "jobs") => "results",
        (Method::Get, "account" | "accounts") => "accounts",
        (Method::Delete, "account") => "removed_accounts",
        (Method::Get, "user" | "users") => "users",
        (Method::Get, "association" | "associations") => "associations",
        (Method::Delete, "association" | "associations") => "removed_associations",
        (Method::Get, "qos") => "qos",
        (Method::Delete, "qos") => "removed_qos",
        (Method::Get, "wckey" | "wckeys") => "wckeys",
        (Method::Delete, "wckey") => "deleted_wckeys",
        (Method::Get, "cluster" | "clusters") => "clusters",
        (Method::Delete, "cluster") => "deleted_clusters",
        (Method::Get, "instance" | "instances") => "instances",
        (Method::Get, "tres") => "TRES",
        (Method::Post, "users_association") => return Some(("added_users", Empty::Text)),
        (Method::Post, "accounts_association") => return Some(("added_accounts", Empty::Text)),
        _ => return None,
    };
    Some((list, Empty::List))
}
