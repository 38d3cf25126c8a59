//! One request while it is answered: what was asked, the connection to the controller, what went wrong so far.

use super::errno;
use super::http::{Answer, Caller, Request, Status};
use super::operation::{Area, RestOperation, Target};
use crate::connect::{Client, ConnectError};
use crate::listing::context::Ctx;
use crate::listing::document::{Asker, Dialect, Envelope, Problem, Remark, Writer, enveloped};
use jiff::tz::TimeZone;
use muster_model::refusal::Refusal;
use serde_json::Value;
use std::borrow::Cow;

/// Where connections to the controller come from: they are made as the caller, and kept for the caller's next request.
pub trait Connect {
    /// A connection as the caller.
    ///
    /// # Errors
    /// There is no controller, or it does not believe who asks.
    fn connect(&mut self) -> Result<Client, ConnectError>;

    /// Takes a connection back that has nothing left to be read.
    fn keep(&mut self, client: Client);
}

/// Why a request is not carried out.
#[derive(Debug)]
pub(super) struct CallFailure {
    pub(super) status: Status,
    pub(super) problem: Problem,
}

impl CallFailure {
    /// The request is malformed; `source` is the key that is wrong.
    pub(super) fn malformed(source: &str, description: impl Into<String>) -> CallFailure {
        let description: String = description.into();
        let description = match description.contains(source) {
            true => description,
            false => format!("{source}: {description}"),
        };
        CallFailure::numbered(
            Status::BAD_REQUEST,
            errno::INVALID_QUERY,
            source,
            description,
        )
    }

    /// An error with a number of Slurm's.
    pub(super) fn numbered(
        status: Status,
        number: i32,
        source: &str,
        description: impl Into<String>,
    ) -> CallFailure {
        CallFailure {
            status,
            problem: Problem {
                number,
                text: errno::text(number).to_owned(),
                description: description.into(),
                source: source.to_owned(),
            },
        }
    }
}

/// What a handler makes: the document of the answer.
pub(super) type Outcome = Result<String, CallFailure>;

/// A request while it is answered.
pub(super) struct Call<'a> {
    pub(super) operation: &'static RestOperation,
    /// The layout that the path names.
    pub(super) dialect: Dialect,
    /// What stands in the path where the route has braces.
    pub(super) names: Vec<String>,
    /// The parameters of the query, decoded, in their order.
    pub(super) query: Vec<(String, String)>,
    pub(super) body: Value,
    pub(super) caller: &'a Caller,
    pub(super) warnings: Vec<Remark>,
    pub(super) errors: Vec<Problem>,
    /// The media type of an answer that is neither JSON nor YAML.
    pub(super) media_type: Option<&'static str>,
    /// The status if all goes well.
    pub(super) status: Status,
    asker: Asker,
    client: Option<Client>,
    connect: &'a mut dyn Connect,
    cluster: String,
}

impl<'a> Call<'a> {
    pub(super) fn new(
        target: Target,
        query: Vec<(String, String)>,
        body: Value,
        (asker, request): (Asker, &Request<'a>),
        connect: &'a mut dyn Connect,
    ) -> Call<'a> {
        let dialect = Dialect::of_version(target.version, request.yaml);
        Call {
            operation: target.operation,
            dialect: dialect.unwrap_or(Dialect::newest(request.yaml)),
            names: target.names,
            query,
            body,
            caller: request.caller,
            warnings: Vec::new(),
            errors: Vec::new(),
            media_type: None,
            status: Status::OK,
            asker,
            client: None,
            connect,
            cluster: String::new(),
        }
    }

    /// The name in the path.
    pub(super) fn name(&self) -> &str {
        self.names.first().map_or("", String::as_str)
    }

    /// A parameter of the query.
    pub(super) fn parameter(&self, name: &str) -> Option<&str> {
        let found = self.query.iter().rfind(|(key, _)| key == name);
        found.map(|(_, value)| value.as_str())
    }

    /// Warns of parameters that this path does not have.
    pub(super) fn warn_of_other_parameters(&mut self) {
        for (name, _) in &self.query {
            if !self.operation.parameters.contains(&name.as_str()) {
                let description = format!("there is no query parameter {name} at this path");
                self.warnings.push(Remark {
                    description,
                    source: name.clone(),
                });
            }
        }
    }

    /// Notes something that has no effect.
    pub(super) fn warn(&mut self, source: &str, description: impl Into<String>) {
        self.warnings.push(Remark {
            description: description.into(),
            source: source.to_owned(),
        });
    }

    /// Asks the controller.
    pub(super) fn ask<T>(
        &mut self,
        question: impl FnOnce(&mut Client) -> Result<T, ConnectError>,
    ) -> Result<T, CallFailure> {
        let mut client = match self.client.take() {
            Some(client) => client,
            None => self.connect.connect().map_err(|e| self.failure(&e))?,
        };
        self.cluster.clone_from(&client.endpoint.cluster);
        let answer = question(&mut client);
        // After a broken answer it is not known what comes next.
        if matches!(answer, Ok(_) | Err(ConnectError::Refused(_))) {
            self.client = Some(client);
        }
        answer.map_err(|e| self.failure(&e))
    }

    /// What a listing needs beside records, with what of the controller is known.
    pub(super) fn context(&self) -> Ctx {
        Ctx::new(&self.cluster)
    }

    /// The document of an answer.
    pub(super) fn document(&self, ctx: &Ctx, body: impl FnOnce(&mut Writer<'_>)) -> String {
        let mut out = String::with_capacity(1 << 12);
        let envelope = Envelope {
            command: "",
            asker: Some(&self.asker),
            is_of_accounting: self.operation.area == Area::Slurmdb,
            errors: &self.errors,
            warnings: &self.warnings,
        };
        enveloped(&mut out, self.dialect, &envelope, ctx, body);
        out
    }

    /// The document of an answer that says only whether it was done.
    pub(super) fn done(&self) -> Outcome {
        Ok(self.document(&self.context(), |_| {}))
    }

    /// The answer, once the handler is through.
    pub(super) fn finish(mut self, result: Outcome) -> Answer {
        let (status, body) = match result {
            Ok(document) => (self.status, document),
            Err(failure) => {
                self.errors.push(failure.problem);
                let ctx = Ctx::bare(&self.cluster, TimeZone::UTC);
                (failure.status, self.document(&ctx, |_| {}))
            }
        };
        if let Some(client) = self.client.take() {
            self.connect.keep(client);
        }
        Answer {
            status,
            media_type: match (status, self.operation.area, self.dialect.is_yaml()) {
                (Status::OK, ..) if self.media_type.is_some() => self.media_type.unwrap_or(""),
                (Status::OK, Area::Metrics, _) => "text/plain; version=0.0.4",
                (_, _, true) => "application/yaml",
                (_, _, false) => "application/json",
            },
            body: Cow::Owned(body),
        }
    }

    /// What the controller, or the way to it, has answered.
    pub(super) fn failure(&self, error: &ConnectError) -> CallFailure {
        let source = self.operation.call;
        let gateway = match self.dialect.is_old() {
            true => Status::INTERNAL_ERROR,
            false => Status::BAD_GATEWAY,
        };
        let (status, number) = match error {
            ConnectError::Refused(refusal) => return self.refusal(refusal),
            ConnectError::Config(_) | ConnectError::Unreachable { .. } => {
                (gateway, errno::CONNECTION)
            }
            ConnectError::Untrusted { .. } => (Status::UNAUTHORIZED, errno::AUTHENTICATION),
            ConnectError::Broken(_) => (gateway, errno::RECEIVE),
        };
        CallFailure::numbered(status, number, source, error.to_string())
    }

    /// A refusal of the controller.
    pub(super) fn refusal(&self, refusal: &Refusal) -> CallFailure {
        let description = match (refusal.lines.as_slice(), refusal.detail.as_str()) {
            ([], "") => refusal.code.text().to_owned(),
            ([], detail) => detail.to_owned(),
            (lines, _) => lines.join("\n"),
        };
        CallFailure {
            status: Status::INTERNAL_ERROR,
            problem: Problem {
                number: errno::of(refusal.code),
                text: refusal.code.text().to_owned(),
                description,
                source: self.operation.call.to_owned(),
            },
        }
    }
}
