//! The description of the API, from the table of paths.

use super::http::{HttpStatus, Method, RestReply};
use super::job_keys;
use super::operation::{Area, RestOperation};
use super::route::{METRICS, OWN, OWN_VERSION, ROUTES, UTIL};
use crate::SLURM_VERSION;
use crate::listing::document::VERSIONS;
use serde_json::{Map, Value, json};
use std::borrow::Cow;
use std::sync::OnceLock;

/// Where it is, as Slurm's is.
const PATHS: [&str; 4] = ["/openapi", "/openapi.json", "/openapi.yaml", "/openapi/v3"];

/// The description of the paths that a daemon serves.
pub struct ApiDescription {
    is_served: Box<dyn Fn(&str) -> bool + Send + Sync>,
    /// Made once: anyone may ask for them, as often as they like.
    all: OnceLock<&'static str>,
    one: [OnceLock<&'static str>; VERSIONS.len()],
}

impl ApiDescription {
    /// The description of the paths that are served.
    pub fn of(is_served: impl Fn(&str) -> bool + Send + Sync + 'static) -> ApiDescription {
        ApiDescription {
            is_served: Box::new(is_served),
            all: OnceLock::new(),
            one: [const { OnceLock::new() }; VERSIONS.len()],
        }
    }

    /// The description that is at a path: of all versions, or of one at `/openapi/v0.0.43`, if that is served.
    pub fn at(&self, path: &str) -> Option<RestReply> {
        let path = path.trim_end_matches('/');
        let (made, versions) = match path.strip_prefix("/openapi/v0.0.") {
            Some(version) => {
                let version: u32 = version.parse().ok()?;
                let at = VERSIONS.iter().position(|known| *known == version)?;
                (&self.one[at], &VERSIONS[at..=at])
            }
            None if PATHS.contains(&path) => (&self.all, &VERSIONS[..]),
            None => return None,
        };
        // It is kept for as long as the process runs, and sent from there.
        let made = made.get_or_init(|| describe(versions, &*self.is_served).to_string().leak());
        Some(RestReply {
            status: HttpStatus::OK,
            media_type: "application/json",
            body: Cow::Borrowed(made),
        })
    }
}

/// The paths of a version, with their operations.
fn versioned(
    version: u32,
    is_served: &dyn Fn(&str) -> bool,
) -> impl Iterator<Item = (String, &'static RestOperation)> {
    let operations = ROUTES.iter().chain(UTIL).map(|route| &route.operation);
    let of_version = operations.filter(move |operation| operation.since <= version);
    let with_path = of_version.map(move |operation| {
        let area = area_name(operation.area);
        let path = format!("/{area}/v0.0.{version}/{}", operation.path);
        (path, operation)
    });
    with_path.filter(move |(path, _)| is_served(path))
}

fn area_name(area: Area) -> &'static str {
    match area {
        Area::Slurm => "slurm",
        Area::Slurmdb => "slurmdb",
        Area::Util => "util",
        Area::Metrics => "metrics",
        Area::Muster => "muster",
    }
}

/// A path that is the same in all versions, and answers with text.
struct TextPath {
    path: &'static str,
    id: &'static str,
    summary: &'static str,
    media_type: &'static str,
    /// Parameters of the query.
    parameters: &'static [&'static str],
    /// Whether it needs a token.
    is_open: bool,
}

const fn open(path: &'static str, id: &'static str, summary: &'static str) -> TextPath {
    TextPath {
        path,
        id,
        summary,
        media_type: "text/plain",
        parameters: &[],
        is_open: true,
    }
}

/// Paths beside the table of routes.
const TEXT_PATHS: &[TextPath] = &[
    open("/livez", "livez", "whether the daemon is there"),
    open("/readyz", "readyz", "whether the daemon takes requests"),
    open("/healthz", "healthz", "whether the daemon is there"),
    TextPath {
        media_type: "application/json",
        ..open("/openapi/v3", "openapi_v3", "this description")
    },
    TextPath {
        media_type: "text/event-stream",
        parameters: super::events::PARAMETERS,
        is_open: false,
        ..open(
            super::events::PATH,
            "muster_v1_get_events",
            "changes of jobs, nodes, partitions and reservations as server-sent events",
        )
    },
];

fn described_text(text: &TextPath) -> Value {
    let mut document = json!({
        "tags": ["muster"],
        "operationId": text.id,
        "summary": text.summary,
        "parameters": query_parameters(text.parameters),
        "responses": {"default": {"description": "text", "content": {text.media_type: {"schema": {"type": "string"}}}}},
    });
    if text.is_open {
        document["security"] = json!([]);
    }
    document
}

/// A page of metrics.
fn described_page(operation: &RestOperation) -> Value {
    let words = operation.path.replace('-', "_");
    let id = match words.as_str() {
        "" => "metrics".to_owned(),
        words => format!("metrics_{words}"),
    };
    let path = TextPath {
        is_open: false,
        ..open("", "", "counts for Prometheus, of what the user may see")
    };
    let mut document = described_text(&path);
    document["operationId"] = json!(id);
    document
}

fn describe(versions: &[u32], is_served: &dyn Fn(&str) -> bool) -> Value {
    let mut paths = Map::new();
    let mut described_versions = Vec::new();
    for version in versions {
        let before = paths.len();
        for (path, operation) in versioned(*version, is_served) {
            let methods = paths.entry(path).or_insert_with(|| json!({}));
            methods[method(operation.method)] =
                described(operation, area_name(operation.area), *version);
        }
        if paths.len() > before {
            described_versions.push(*version);
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
        for text in TEXT_PATHS {
            paths.insert(text.path.to_owned(), json!({"get": described_text(text)}));
        }
        for operation in METRICS.iter().map(|route| &route.operation) {
            let path = format!("/metrics/{}", operation.path);
            let path = path.trim_end_matches('/').to_owned();
            paths.insert(path, json!({"get": described_page(operation)}));
        }
        if !described_versions.contains(&OWN_VERSION) {
            described_versions.push(OWN_VERSION);
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
            "schemas": schemas(&described_versions),
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
    parameters.extend(query_parameters(operation.parameters));
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

fn query_parameters(names: &[&str]) -> Vec<Value> {
    let parameter = |name: &&str| json!({"name": name, "in": "query", "required": false, "schema": {"type": "string"}});
    names.iter().map(parameter).collect()
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
    use super::super::route::{find, read_path};
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
        let described = describe(&VERSIONS, &|_| true);
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

    /// Methods and paths of a description.
    fn operations(described: &Value) -> Vec<(Method, String)> {
        let mut all = Vec::new();
        for (path, methods) in described["paths"].as_object().unwrap() {
            for name in methods.as_object().unwrap().keys() {
                let method = match name.as_str() {
                    "get" => Method::Get,
                    "post" => Method::Post,
                    "delete" => Method::Delete,
                    other => panic!("{other}"),
                };
                all.push((method, path.clone()));
            }
        }
        all
    }

    #[test]
    fn described_and_served_paths_are_the_same() {
        let described = operations(&describe(&VERSIONS, &|_| true));
        for (method, path) in &described {
            let is_text = TEXT_PATHS.iter().any(|text| text.path == path);
            let words = read_path(&path.replace(['{', '}'], "")).unwrap();
            assert!(is_text || find(&words, *method).is_ok(), "{path}");
        }
        for route in ROUTES.iter().chain(UTIL).chain(OWN).chain(METRICS) {
            let operation = &route.operation;
            let area = area_name(operation.area);
            let versions = VERSIONS.iter().filter(|v| operation.since <= **v);
            let paths: Vec<String> = match operation.area {
                Area::Metrics => vec![format!("/metrics/{}", operation.path)],
                Area::Muster => vec![format!("/muster/v1/{}", operation.path)],
                _ => versions
                    .map(|version| format!("/{area}/v0.0.{version}/{}", operation.path))
                    .collect(),
            };
            for path in paths {
                let path = path.trim_end_matches('/').to_owned();
                let at = (operation.method, path);
                assert!(described.contains(&at), "{}", at.1);
            }
        }
    }

    #[test]
    fn paths_that_are_not_served_are_not_described() {
        let is_served =
            |path: &str| !path.starts_with("/slurm") || path.contains("/slurmdb/v0.0.43/");
        let described = describe(&VERSIONS, &is_served);
        let all = operations(&described);
        assert!(all.iter().any(|(_, path)| path == "/slurmdb/v0.0.43/jobs"));
        assert!(all.iter().all(|(_, path)| is_served(path)));
        let schemas = described["components"]["schemas"].as_object().unwrap();
        assert!(!schemas.keys().any(|name| name.starts_with("v0.0.41_")));
    }
}
