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

/// An empty value of a document's part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EmptyValue {
    /// No records.
    List,
    /// A number that is not set.
    Number,
}

/// The parts of an answer beside those that all have, which are empty where it is an error.
pub(super) fn payload_of(response: &str, version: u32) -> Vec<(&'static str, EmptyValue)> {
    let versions = all().get(response).and_then(Value::as_array);
    let is_of = |entry: &&Value| {
        let list = entry["versions"].as_array();
        list.is_some_and(|list| list.contains(&version.into()))
    };
    let entry = versions.into_iter().flatten().find(is_of);
    let properties = entry.and_then(|entry| entry["schema"]["properties"].as_object());
    let properties = properties.into_iter().flatten();
    let payload = properties
        .filter(|(key, _)| !["meta", "errors", "warnings", "Slurm"].contains(&key.as_str()));
    let empty = payload.filter_map(|(key, schema)| {
        let kind = match schema["type"].as_str()? {
            "array" => EmptyValue::List,
            "object" if schema["properties"].get("infinite").is_some() => EmptyValue::Number,
            _ => return None,
        };
        Some((key.as_str(), kind))
    });
    empty.collect()
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
        "openapi_job_requeue_resp",
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Clients that are generated of the schemas could not read an error without the lists that they require.
    #[test]
    fn an_error_has_the_lists_of_its_schema() {
        let keys = payload_of("openapi_wckey_resp", 43);
        assert_eq!(keys, [("wckeys", EmptyValue::List)]);
        let jobs = payload_of("openapi_job_info_resp", 45);
        assert!(jobs.contains(&("jobs", EmptyValue::List)), "{jobs:?}");
        let backfill = ("last_backfill", EmptyValue::Number);
        assert!(jobs.contains(&backfill), "{jobs:?}");
        assert_eq!(payload_of("nosuch", 45), []);
    }
}
