//! Documents that commands print with `--json` and `--yaml`: what slurmrestd answers at a path, asked over the command's own
//! connection.

use super::call::{Call, CallPeers, Connect};
use super::http::{AnswerSink, Caller, HttpStatus, Method, Request};
use super::route;
use super::{GivenConnection, QueryPairs};
use crate::connect::Client;
use crate::listing::document::{Dialect, DocumentReader};
use crate::listing::{self, Failure};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;

/// A document, by where slurmrestd has it.
pub(crate) struct CommandDocument<'a> {
    /// The printing command.
    pub(crate) command: &'static str,
    /// `slurm`, `slurmdb`, or `muster`, whose documents have one version.
    pub(crate) area: &'a str,
    /// The path behind the version.
    pub(crate) path: String,
    /// Conditions.
    pub(crate) query: QueryPairs,
}

/// A name as a part of a path.
pub(crate) fn part(name: &str) -> String {
    utf8_percent_encode(name, NON_ALPHANUMERIC).to_string()
}

impl CommandDocument<'_> {
    /// Prints it.
    ///
    /// # Errors
    /// There is none in this version, or the controller refuses it.
    pub(crate) fn print(self, client: Client, dialect: Dialect) -> Result<(), Failure> {
        let mut connection = GivenConnection(Some(client));
        self.print_over(&mut connection, dialect).map(|_| ())
    }

    /// Prints it over a connection that may not be there, if a document can say so. Gives the status of the answer.
    ///
    /// # Errors
    /// As for [`CommandDocument::print`].
    pub(crate) fn print_over(
        self,
        connect: &mut dyn Connect,
        dialect: Dialect,
    ) -> Result<HttpStatus, Failure> {
        let command = self.command;
        let failed = |why: &str| Failure::new(format!("{command}: error: {why}"));
        let version = dialect.number();
        let path = match self.area {
            "muster" => format!("/muster/v1/{}", self.path),
            area => format!("/{area}/v0.0.{version}/{}", self.path),
        };
        let caller = Caller::default();
        let request = Request {
            method: Method::Get,
            path: &path,
            query: "",
            body: b"",
            yaml: dialect.is_yaml(),
            caller: &caller,
        };
        let found = route::read_path(&path).and_then(|words| route::find(&words, Method::Get));
        let found = found.map_err(|_| failed(&format!("v0.0.{version} has no such document")))?;
        let mut sink = StandardOutput;
        let peers = CallPeers {
            connect,
            sink: &mut sink,
        };
        let asked = (DocumentReader::default(), &request);
        let mut call = Call::new(found.target, self.query, Value::Null, asked, peers);
        call.command = command;
        match (found.handler)(&mut call) {
            Ok(document) => {
                let Some(answer) = call.finish(Ok(document)) else {
                    return Ok(HttpStatus::OK);
                };
                listing::print(&answer.body);
                Ok(answer.status)
            }
            Err(failure) => Err(failed(&failure.problem.description)),
        }
    }
}

/// Where long documents go.
struct StandardOutput;

impl AnswerSink for StandardOutput {
    fn begin(&mut self, _: HttpStatus, _: &'static str) {}

    fn send(&mut self, part: String) -> bool {
        listing::print(&part);
        true
    }

    fn finish(&mut self) {}

    fn fail(&mut self) {}
}
