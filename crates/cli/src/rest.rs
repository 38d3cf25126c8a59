//! The answers of slurmrestd: Slurm's paths and documents, made of what the user commands ask and print. A request is answered on
//! one connection to the controller, which knows whose it is and decides what that user may do; nothing here has rights of its own.

mod account_change;
mod accounting;
mod accounting_config;
mod accounts;
mod allocation;
mod call;
mod cancel;
mod cluster;
mod clusters;
mod command;
mod config_change;
mod configuration;
pub mod events;
mod http;
mod job_change;
mod job_keys;
mod job_note;
mod jobs;
mod layout;
mod metrics;
mod node_change;
mod nodes_in_short;
mod openapi;
mod operation;
mod partition_change;
mod payload;
mod queue;
mod report;
mod reservation_change;
mod route;
mod shapes;
mod statistics;
mod submission;
mod topology;
mod value;

pub use call::Connect;
pub(crate) use command::{CommandDocument, part};
pub use http::{AnswerSink, Caller, HttpStatus, Method, Request, RestReply};
pub use openapi::ApiDescription;

use crate::connect::{Client, ConnectError};
use crate::errno;
use crate::listing::document::DocumentReader;
use crate::listing::query;
use call::{Call, CallPeers};
use muster_model::private_data::PrivateData;
use muster_proto::client::Query;
use route::FoundRoute;
use serde_json::Value;
use std::borrow::Cow;
use std::os::unix::net::UnixStream;
use std::path::Path;

/// The newest and all versions of the paths, as in `/slurm/v0.0.43/jobs`.
pub fn versions() -> impl Iterator<Item = String> {
    crate::listing::document::VERSIONS
        .iter()
        .map(|version| format!("v0.0.{version}"))
}

/// Answers a request: by the returned reply or, if that is absent, by the data sent to `sink`. A reusable connection
/// goes back to its source.
pub fn answer(
    request: &Request<'_>,
    connect: &mut dyn Connect,
    sink: &mut dyn AnswerSink,
) -> Option<RestReply> {
    let (found, query, body) = match read_request(request) {
        Ok(read) => read,
        Err(answer) => return Some(answer),
    };
    let asker = DocumentReader {
        source: request.caller.source.clone(),
        user: request.caller.user.clone(),
        group: request.caller.group.clone(),
    };
    let asked = (asker, request);
    let mut call = Call::new(
        found.target,
        query,
        body,
        asked,
        CallPeers { connect, sink },
    );
    // Conditions in the query of a path that takes them in a body are read there.
    if call.operation.body.is_none() {
        call.warn_of_other_parameters();
    }
    let result = (found.handler)(&mut call);
    call.finish(result)
}

/// The parameters of a query, in their order.
type QueryPairs = Vec<(String, String)>;

/// Parses a request: its route, the parameters of its query, and its body.
fn read_request(request: &Request<'_>) -> Result<(FoundRoute, QueryPairs, Value), RestReply> {
    let path = route::read_path(request.path)?;
    let found = route::find(&path, request.method)?;
    let query = value::read_query(request.query)?;
    if found.target.operation.body.is_none() && !request.body.is_empty() {
        let text = "Unexpected http body provided for non-POST method";
        return Err(RestReply::text(HttpStatus::BAD_REQUEST, text));
    }
    let body = match request.body {
        [] => Value::Null,
        bytes if !value::has_few_parts(bytes) => {
            let text = format!(
                "Unable to parse query. The body has more than {} members and items.",
                value::PARTS_MAX
            );
            return Err(RestReply::text(HttpStatus(413), &text));
        }
        bytes => match serde_json::from_slice(bytes) {
            Ok(body) => body,
            Err(error) => {
                let text = format!("Unable to parse query. The body is not valid JSON: {error}");
                return Err(RestReply::text(HttpStatus::BAD_REQUEST, &text));
            }
        },
    };
    Ok((found, query, body))
}

/// The controller's own page at a path, over a connection to it whose user has no rights: whether it is ready, and
/// metrics. Nothing if there is nothing at the path.
pub fn controller_page(path: &str, stream: UnixStream, conf: &Path) -> Option<RestReply> {
    let mut connection = match Client::over(stream, conf) {
        Ok(client) => GivenConnection(Some(client)),
        Err(error) => return Some(RestReply::text(HttpStatus::UNAVAILABLE, &error.to_string())),
    };
    if path == "/readyz" {
        return Some(readiness(&mut connection));
    }
    let words = route::read_path(path).ok()?;
    let found = route::find(&words, Method::Get).ok()?;
    if found.target.operation.area != operation::Area::Metrics {
        return None;
    }
    let caller = Caller::default();
    let request = Request {
        method: Method::Get,
        path,
        query: "",
        body: b"",
        yaml: false,
        caller: &caller,
    };
    let asked = (DocumentReader::default(), &request);
    let mut sink = WholeAnswer::default();
    let peers = CallPeers {
        connect: &mut connection,
        sink: &mut sink,
    };
    let mut call = Call::new(found.target, Vec::new(), Value::Null, asked, peers);
    let result = match call.ask(query::private_data) {
        Ok(private) if private != PrivateData::default() => {
            let text = "PrivateData is set, so that not everybody gets metrics here: have a token read slurmrestd's /metrics";
            return Some(RestReply::text(HttpStatus::FORBIDDEN, text));
        }
        Ok(_) => (found.handler)(&mut call),
        Err(failure) => Err(failure),
    };
    let answer = call.finish(result);
    Some(answer.unwrap_or_else(|| sink.into_answer()))
}

/// An answer that is kept whole, however long.
#[derive(Debug, Default)]
struct WholeAnswer {
    status: Option<HttpStatus>,
    media_type: &'static str,
    body: String,
}

impl WholeAnswer {
    fn into_answer(self) -> RestReply {
        RestReply {
            status: self.status.unwrap_or(HttpStatus::INTERNAL_ERROR),
            media_type: self.media_type,
            body: Cow::Owned(self.body),
        }
    }
}

impl AnswerSink for WholeAnswer {
    fn begin(&mut self, status: HttpStatus, media_type: &'static str) {
        self.status = Some(status);
        self.media_type = media_type;
    }

    fn send(&mut self, part: String) -> bool {
        self.body.push_str(&part);
        true
    }

    fn finish(&mut self) {}

    fn fail(&mut self) {
        self.status = None;
        self.body.clear();
    }
}

/// Whether the controller answers.
fn readiness(connection: &mut GivenConnection) -> RestReply {
    let asked = connection.connect();
    match asked.and_then(|mut client| client.query(Query::Ping)) {
        Ok(_) => RestReply::text(HttpStatus::OK, "ok\n"),
        Err(error) => RestReply::text(HttpStatus::UNAVAILABLE, &format!("{error}\n")),
    }
}

/// A connection that is there, for one request.
struct GivenConnection(Option<Client>);

impl Connect for GivenConnection {
    fn connect(&mut self) -> Result<Client, ConnectError> {
        let used_up = || ConnectError::Broken(std::io::ErrorKind::NotConnected.into());
        self.0.take().ok_or_else(used_up)
    }

    fn keep(&mut self, client: Client) {
        self.0 = Some(client);
    }
}

/// Paths that say little, however much there is in the cluster.
const SMALL: [&str; 4] = ["ping", "diag", "licenses", "reconfigure"];

/// The schemas of a version's answers, by their names.
#[cfg(test)]
pub(crate) fn schemas_of_version(version: u32) -> serde_json::Map<String, serde_json::Value> {
    let all = shapes::of_version(version);
    all.into_iter()
        .map(|(name, schema)| (name.to_string(), schema))
        .collect()
}

/// Whether an answer may be long, as a list of all jobs is.
pub fn is_listing(method: Method, path: &str) -> bool {
    let found = route::read_path(path).and_then(|path| route::find(&path, method));
    found.is_ok_and(|found| {
        let path = found.target.operation.path.trim_end_matches('/');
        // One job may be an array of a million tasks.
        let is_one = path.ends_with('}') && !path.ends_with("job/{job_id}");
        method == Method::Get && !is_one && !SMALL.contains(&path)
    })
}
