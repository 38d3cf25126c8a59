//! The description of the API, from the table of paths.

use super::http::{HttpStatus, Method, RestReply};
use super::job_keys;
use super::operation::{Area, RestOperation};
use super::route::{OWN, OWN_VERSION, ROUTES, UTIL};
use crate::SLURM_VERSION;
use crate::listing::document::VERSIONS;
use serde_json::{Map, Value, json};
use std::borrow::Cow;
use std::sync::OnceLock;

/// Where it is, as Slurm's is.
const PATHS: [&str; 4] = ["/openapi", "/openapi.json", "/openapi.yaml", "/openapi/v3"];

/// The description that is at a path: of all versions, or of one at `/openapi/v0.0.43`.
pub(super) fn at(path: &str) -> Option<RestReply> {
    // Made once: anyone may ask for them, as often as they like.
    static ALL: OnceLock<String> = OnceLock::new();
    static ONE: [OnceLock<String>; VERSIONS.len()] = [const { OnceLock::new() }; VERSIONS.len()];
    let path = path.trim_end_matches('/');
    let (made, versions) = match path.strip_prefix("/openapi/v0.0.") {
        Some(version) => {
            let version: u32 = version.parse().ok()?;
            let at = VERSIONS.iter().position(|known| *known == version)?;
            (&ONE[at], &VERSIONS[at..=at])
        }
        None if PATHS.contains(&path) => (&ALL, &VERSIONS[..]),
        None => return None,
    };
    let body = made.get_or_init(|| describe(versions).to_string());
    Some(RestReply {
        status: HttpStatus::OK,
        media_type: "application/json",
        body: Cow::Borrowed(body),
    })
}

fn describe(versions: &[u32]) -> Value {
    let mut paths = Map::new();
    for version in versions {
        let operations = ROUTES.iter().chain(UTIL).map(|route| &route.operation);
        for operation in operations.filter(|operation| operation.since <= *version) {
            let area = match operation.area {
                Area::Slurm => "slurm",
                Area::Slurmdb => "slurmdb",
                Area::Util => "util",
                Area::Metrics | Area::Muster => continue,
            };
            let path = format!("/{area}/v0.0.{version}/{}", operation.path);
            let methods = paths.entry(path).or_insert_with(|| json!({}));
            methods[method(operation.method)] = described(operation, area, *version);
        }
    }
    if versions.contains(&OWN_VERSION) {
        for operation in OWN.iter().map(|route| &route.operation) {
            let path = format!("/muster/v1/{}", operation.path);
            paths.insert(
                path,
                json!({"get": described(operation, "muster", OWN_VERSION)}),
            );
        }
    }
    json!({
        "openapi": "3.0.3",
        "info": {
            "title": "Slurm REST API",
            "description": "What slurmrestd of Muster answers: Slurm's paths and documents.",
            "version": format!("Slurm-{SLURM_VERSION}"),
        },
        "servers": [{"url": "/"}],
        "security": [{"user": [], "token": []}, {"bearerAuth": []}],
        "tags": [
            {"name": "slurm", "description": "the queue and the machines"},
            {"name": "slurmdb", "description": "accounting"},
            {"name": "util", "description": "lists of hosts"},
            {"name": "muster", "description": "what only Muster has, with the newest version"},
        ],
        "paths": paths,
        "components": {
            "securitySchemes": {
                "user": {"type": "apiKey", "in": "header", "name": "X-SLURM-USER-NAME", "description": "the user's name"},
                "token": {"type": "apiKey", "in": "header", "name": "X-SLURM-USER-TOKEN", "description": "a token of the user's"},
                "bearerAuth": {"type": "http", "scheme": "bearer", "bearerFormat": "JWT"},
            },
            "schemas": schemas(versions),
        },
    })
}

fn method(method: Method) -> &'static str {
    match method {
        Method::Get => "get",
        Method::Post => "post",
        Method::Delete => "delete",
    }
}

/// As Slurm names them: `slurm_v0043_get_job`.
fn operation_id(operation: &RestOperation, area: &str, version: u32) -> String {
    let words = operation
        .path
        .split('/')
        .filter(|word| !word.starts_with('{'));
    let mut words: Vec<&str> = words.collect();
    // Its plural is the same word.
    if words == ["qos"] && operation.path != "qos" {
        words.insert(0, "single");
    }
    let version = match operation.area {
        Area::Muster => "v1".to_owned(),
        _ => format!("v00{version}"),
    };
    format!(
        "{area}_{version}_{}_{}",
        method(operation.method),
        words.join("_")
    )
}

fn described(operation: &RestOperation, area: &str, version: u32) -> Value {
    let mut parameters: Vec<Value> = Vec::new();
    for word in operation.path.split('/') {
        if let Some(name) = word
            .strip_prefix('{')
            .and_then(|word| word.strip_suffix('}'))
        {
            parameters.push(json!({
                "name": name, "in": "path", "required": true,
                "schema": {"type": "string"}, "description": name.replace('_', " "),
            }));
        }
    }
    for name in operation.parameters {
        parameters.push(json!({
            "name": name, "in": "query", "required": false, "schema": {"type": "string"},
        }));
    }
    let response = json!({
        "description": "the answer; its errors say what went wrong",
        "content": {"application/json": {"schema": {"$ref": reference(&format!("v0.0.{version}_{}", operation.response))}}},
    });
    let mut document = json!({
        "tags": [area],
        "operationId": operation_id(operation, area, version),
        "summary": operation.summary,
        "parameters": parameters,
        "responses": {"200": response, "default": response},
    });
    if let Some(schema) = operation.body {
        let schema = json!({"$ref": reference(&format!("v0.0.{version}_{schema}"))});
        document["requestBody"] = json!({"content": {"application/json": {"schema": schema}}});
    }
    document
}

fn reference(name: &str) -> String {
    format!("#/components/schemas/{name}")
}

fn schemas(versions: &[u32]) -> Value {
    let mut all = Map::new();
    for version in versions {
        let name = |name: &str| format!("v0.0.{version}_{name}");
        all.insert(name("job_desc_msg"), job_description());
        let job = json!({"$ref": reference(&name("job_desc_msg"))});
        all.insert(
            name("job_submit_req"),
            json!({
                "type": "object",
                "properties": {
                    "script": {"type": "string"},
                    "job": job,
                    "jobs": {"type": "array", "items": job},
                },
            }),
        );
        all.insert(
            name("job_alloc_req"),
            json!({
                "type": "object",
                "properties": {"job": job, "hetjob": {"type": "array", "items": job}},
            }),
        );
        for (record, schema) in super::shapes::of_version(*version) {
            all.insert(name(record), schema);
        }
    }
    Value::Object(all)
}

/// The keys of a job. Each takes a text, a number or a list as its option does, so no type is said where several do.
fn job_description() -> Value {
    let mut properties = Map::new();
    for name in job_keys::names() {
        properties.insert(name.to_owned(), json!({}));
    }
    json!({"type": "object", "properties": properties})
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    /// All references of a value.
    fn references(value: &Value, found: &mut Vec<String>) {
        match value {
            Value::Object(members) => {
                if let Some(Value::String(reference)) = members.get("$ref") {
                    found.push(reference.clone());
                }
                members.values().for_each(|value| references(value, found));
            }
            Value::Array(items) => items.iter().for_each(|value| references(value, found)),
            _ => {}
        }
    }

    #[test]
    fn what_is_referred_to_is_there_and_operations_have_names_of_their_own() {
        let described = describe(&VERSIONS);
        let mut all = Vec::new();
        references(&described, &mut all);
        let schemas = described["components"]["schemas"].as_object().unwrap();
        for reference in all {
            let name = reference.rsplit('/').next().unwrap();
            assert!(schemas.contains_key(name), "{name}");
        }
        let mut ids = HashSet::new();
        for (path, methods) in described["paths"].as_object().unwrap() {
            for operation in methods.as_object().unwrap().values() {
                let id = operation["operationId"].as_str().unwrap();
                assert!(ids.insert(id.to_owned()), "{id} again at {path}");
            }
        }
        assert!(ids.contains("slurm_v0043_post_job_submit"));
        assert!(ids.contains("slurmdb_v0043_get_single_qos"));
        assert!(ids.contains("muster_v1_get_queue"));
        assert!(ids.contains("muster_v1_get_why"));
    }
}
