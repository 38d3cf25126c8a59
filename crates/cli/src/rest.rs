//! The answers of slurmrestd: Slurm's paths and documents, made of what the user commands ask and print. A request is answered on
//! one connection to the controller, which knows whose it is and decides what that user may do; nothing here has rights of its own.

mod account_change;
mod accounting;
mod accounts;
mod call;
mod cancel;
mod cluster;
mod errno;
pub mod events;
mod http;
mod job_change;
mod job_keys;
mod jobs;
mod metrics;
mod node_change;
mod openapi;
mod operation;
mod queue;
mod report;
mod route;
mod shapes;
mod statistics;
mod submission;
mod topology;
mod value;

pub use call::Connect;
pub use http::{Answer, Caller, Method, Request, Status};

use crate::connect::{Client, ConnectError};
use crate::listing::document::Asker;
use crate::listing::query;
use call::Call;
use muster_model::private_data::PrivateData;
use muster_proto::client::Query;
use std::os::unix::net::UnixStream;
use std::path::Path;

/// The newest and all versions of the paths, as in `/slurm/v0.0.43/jobs`.
pub fn versions() -> impl Iterator<Item = String> {
    crate::listing::document::VERSIONS
        .iter()
        .map(|version| format!("v0.0.{version}"))
}

/// Answers a request. A connection that can be used again goes back to where it came from.
pub fn answer(request: &Request<'_>, connect: &mut dyn Connect) -> Answer {
    let path = match route::read_path(request.path) {
        Ok(path) => path,
        Err(answer) => return answer,
    };
    let found = match route::find(&path, request.method) {
        Ok(found) => found,
        Err(answer) => return answer,
    };
    let query = match value::read_query(request.query) {
        Ok(query) => query,
        Err(answer) => return answer,
    };
    if request.method != Method::Post && !request.body.is_empty() {
        let text = "Unexpected http body provided for non-POST method";
        return Answer::text(Status::BAD_REQUEST, text);
    }
    let body = match request.body {
        [] => serde_json::Value::Null,
        bytes if !value::has_few_parts(bytes) => {
            let text = format!(
                "Unable to parse query. The body has more than {} members and items.",
                value::PARTS_MAX
            );
            return Answer::text(Status(413), &text);
        }
        bytes => match serde_json::from_slice(bytes) {
            Ok(body) => body,
            Err(error) => {
                let text = format!("Unable to parse query. The body is not valid JSON: {error}");
                return Answer::text(Status::BAD_REQUEST, &text);
            }
        },
    };
    let asker = Asker {
        source: request.caller.source.clone(),
        user: request.caller.user.clone(),
        group: request.caller.group.clone(),
    };
    let mut call = Call::new(found.target, query, body, (asker, request), connect);
    // Conditions in the query of a path that takes them in a body are read there.
    if call.operation.body.is_none() {
        call.warn_of_other_parameters();
    }
    let result = (found.handler)(&mut call);
    call.finish(result)
}

/// What the controller itself says at a path, over a connection to it whose user has no rights: whether it is ready, and metrics.
/// Nothing if there is nothing at the path.
pub fn controller_page(path: &str, stream: UnixStream, conf: &Path) -> Option<Answer> {
    let mut connection = match Client::over(stream, conf) {
        Ok(client) => GivenConnection(Some(client)),
        Err(error) => return Some(Answer::text(Status::UNAVAILABLE, &error.to_string())),
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
    let asked = (Asker::default(), &request);
    let mut call = Call::new(
        found.target,
        Vec::new(),
        serde_json::Value::Null,
        asked,
        &mut connection,
    );
    let result = match call.ask(query::private_data) {
        Ok(private) if private != PrivateData::default() => {
            let text = "PrivateData is set, so that not everybody gets metrics here: have a token read slurmrestd's /metrics";
            return Some(Answer::text(Status::FORBIDDEN, text));
        }
        Ok(_) => (found.handler)(&mut call),
        Err(failure) => Err(failure),
    };
    Some(call.finish(result))
}

/// Whether the controller answers.
fn readiness(connection: &mut GivenConnection) -> Answer {
    let asked = connection.connect();
    match asked.and_then(|mut client| client.query(Query::Ping)) {
        Ok(_) => Answer::text(Status::OK, "ok\n"),
        Err(error) => Answer::text(Status::UNAVAILABLE, &format!("{error}\n")),
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

/// Whether an answer may be long, as a list of all jobs is.
pub fn is_listing(method: Method, path: &str) -> bool {
    let found = route::read_path(path).and_then(|path| route::find(&path, method));
    found.is_ok_and(|found| {
        let path = found.target.operation.path.trim_end_matches('/');
        method == Method::Get && !path.ends_with('}') && !SMALL.contains(&path)
    })
}

/// The description of the API (OpenAPI 3), if that is what is at a path; anyone may read it.
pub fn description(path: &str) -> Option<Answer> {
    openapi::at(path)
}
