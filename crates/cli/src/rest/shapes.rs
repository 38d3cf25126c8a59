//! The schemas of answers. They are derived from documents of an example of each record by a test, which keeps them in
//! `shapes.json`: description and answers come from the same code.

use serde_json::{Map, Value, json};
use std::sync::OnceLock;

/// For each version: the schemas by their names without the version.
fn all() -> &'static Map<String, Value> {
    static ALL: OnceLock<Map<String, Value>> = OnceLock::new();
    ALL.get_or_init(|| match serde_json::from_str(include_str!("shapes.json")) {
        Ok(Value::Object(all)) => all,
        // A test reads it.
        _ => Map::new(),
    })
}

/// The schemas of one version. Those of bodies, whose members take values of several types, say no type.
pub(super) fn of_version(version: u32) -> impl Iterator<Item = (&'static str, Value)> {
    let known = all().iter().filter_map(move |(name, versions)| {
        let by_version = versions.as_array()?.iter().find(|entry| {
            let list = entry["versions"].as_array();
            list.is_some_and(|list| list.contains(&version.into()))
        });
        Some((name.as_str(), by_version?["schema"].clone()))
    });
    let free = [
        "job_modify",
        "kill_jobs_msg",
        "openapi_create_node_req",
        "openapi_job_modify_req",
        "openapi_jobs_requeue_query",
        "reservation_desc_msg",
        "reservation_mod_req",
        "update_node_msg",
        "accounts_add_cond",
        "users_add_cond",
        "muster_report",
    ];
    let free = free.map(|name| (name, json!({"type": "object"})));
    known.chain(free)
}
