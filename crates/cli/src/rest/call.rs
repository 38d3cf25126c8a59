//! One request while it is answered: its content, the connection to the controller, the errors so far.

use super::errno;
use super::http::{AnswerSink, Caller, HttpStatus, Request, RestReply};
use super::operation::{Area, RestOperation, Target};
use super::shapes::{self, EmptyValue};
use crate::connect::{Client, ConnectError, unexpected};
use crate::listing::context::Ctx;
use crate::listing::document::{
    Dialect, DocumentReader, Envelope, Problem, Remark, Writer, enveloped_in_parts,
};
use jiff::tz::TimeZone;
use muster_model::command::{Reply, UserCommand};
use muster_model::refusal::Refusal;
use muster_proto::client::Response;
use serde_json::Value;
use std::borrow::Cow;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;

/// The longest answer that is made whole before any of it is sent.
const WHOLE_BYTES_MAX: usize = 1 << 20;
/// The longest description of an error.
const DESCRIPTION_CHARS_MAX: usize = 4096;
/// Warnings of an answer, with the one that says that there are more.
const WARNINGS_MAX: usize = 64;
const LAST_WARNING: usize = WARNINGS_MAX - 1;

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
    pub(super) status: HttpStatus,
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
            HttpStatus::BAD_REQUEST,
            errno::INVALID_QUERY,
            source,
            description,
        )
    }

    /// An error with a number of Slurm's.
    pub(super) fn numbered(
        status: HttpStatus,
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

/// Result of a handler: the document of the answer.
pub(super) type Outcome = Result<String, CallFailure>;

/// Handler of a path and method.
pub(super) type Handler = for<'a, 'b> fn(&'a mut Call<'b>) -> Outcome;

/// A request while it is answered.
pub(super) struct Call<'a> {
    pub(super) operation: &'static RestOperation,
    /// The layout that the path names.
    pub(super) dialect: Dialect,
    /// Parts of the path where the route has braces.
    pub(super) names: Vec<String>,
    /// The parameters of the query, decoded, in their order.
    pub(super) query: Vec<(String, String)>,
    pub(super) body: Value,
    pub(super) caller: &'a Caller,
    pub(super) warnings: Vec<Remark>,
    pub(super) errors: Vec<Problem>,
    /// The media type of an answer that is neither JSON nor YAML.
    pub(super) media_type: Option<&'static str>,
    /// The command that prints the document; empty for slurmrestd.
    pub(super) command: &'static str,
    /// The status if all goes well.
    pub(super) status: HttpStatus,
    asker: DocumentReader,
    client: Option<Client>,
    connect: &'a mut dyn Connect,
    cluster: String,
    sink: &'a mut dyn AnswerSink,
    /// Part of the answer was sent.
    is_begun: bool,
    /// See [`LongAnswer::source`].
    source: Option<UnixStream>,
}

/// Where a request is answered from, and where a long answer goes.
pub(super) struct CallPeers<'a> {
    pub(super) connect: &'a mut dyn Connect,
    pub(super) sink: &'a mut dyn AnswerSink,
}

/// An answer that is made: kept until it is long, and sent in parts from then on.
struct LongAnswer<'s> {
    sink: &'s mut dyn AnswerSink,
    status: HttpStatus,
    media_type: &'static str,
    kept: String,
    is_begun: bool,
    /// Rest of the controller's data for it, which ends when nobody wants the answer any more.
    source: Option<UnixStream>,
}

impl LongAnswer<'_> {
    fn take(&mut self, part: &str) {
        if self.is_begun {
            return self.send(part.to_owned());
        }
        self.kept.push_str(part);
        if self.kept.len() >= WHOLE_BYTES_MAX {
            self.sink.begin(self.status, self.media_type);
            self.is_begun = true;
            let kept = std::mem::take(&mut self.kept);
            self.send(kept);
        }
    }

    fn send(&mut self, part: String) {
        if !self.sink.send(part)
            && let Some(source) = self.source.take()
        {
            // The next read finds its end. One that has ended already is as good.
            let _ = source.shutdown(Shutdown::Both);
        }
    }
}

impl<'a> Call<'a> {
    pub(super) fn new(
        target: Target,
        query: Vec<(String, String)>,
        body: Value,
        (asker, request): (DocumentReader, &Request<'a>),
        peers: CallPeers<'a>,
    ) -> Call<'a> {
        let CallPeers { connect, sink } = peers;
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
            command: "",
            status: HttpStatus::OK,
            asker,
            client: None,
            connect,
            cluster: String::new(),
            sink,
            is_begun: false,
            source: None,
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
        let all = &self.operation.parameters;
        let others = self.query.iter().map(|(name, _)| name);
        let others = others.filter(|name| !all.contains(&name.as_str()));
        let others: Vec<String> = others.take(WARNINGS_MAX).cloned().collect();
        for name in others {
            self.warn(
                &name,
                format!("there is no query parameter {name} at this path"),
            );
        }
    }

    /// Notes something that has no effect. Of very many, the first ones are named: a body has room for a million.
    pub(super) fn warn(&mut self, source: &str, description: impl Into<String>) {
        let (description, source) = match self.warnings.len() {
            WARNINGS_MAX.. => return,
            LAST_WARNING => (
                "there are more warnings than are listed".to_owned(),
                self.operation.call.to_owned(),
            ),
            _ => (description.into(), source.to_owned()),
        };
        self.warnings.push(Remark {
            description,
            source,
        });
    }

    /// Asks the controller.
    pub(super) fn ask<T>(
        &mut self,
        question: impl FnOnce(&mut Client) -> Result<T, ConnectError>,
    ) -> Result<T, CallFailure> {
        let mut client = self.take_client()?;
        let answer = question(&mut client);
        self.put_back(client, &answer);
        answer.map_err(|e| self.failure(&e))
    }

    /// Has the controller carry out a command, which is done or refused.
    pub(super) fn carry_out(&mut self, command: UserCommand) -> Result<(), CallFailure> {
        match self.ask(|client| client.command(command))? {
            Reply::Done { refused, .. } => match refused.into_iter().next() {
                Some((_, refusal)) => Err(self.refusal(&refusal)),
                None => Ok(()),
            },
            other => {
                let error = unexpected(&Response::Reply(Box::new(other)));
                Err(self.failure(&error))
            }
        }
    }

    fn take_client(&mut self) -> Result<Client, CallFailure> {
        let client = match self.client.take() {
            Some(client) => client,
            None => self.connect.connect().map_err(|e| self.failure(&e))?,
        };
        self.cluster.clone_from(&client.endpoint.cluster);
        Ok(client)
    }

    /// Keeps a connection. After a broken answer it is not known what comes next.
    fn put_back<T>(&mut self, client: Client, answer: &Result<T, ConnectError>) {
        if matches!(answer, Ok(_) | Err(ConnectError::Refused(_))) {
            self.client = Some(client);
        }
    }

    /// Data of a listing beside records, with the known settings of the controller.
    pub(super) fn context(&self) -> Ctx {
        Ctx::new(&self.cluster)
    }

    /// The document of an answer whose records are written as the controller gives them.
    pub(super) fn document_of(
        &mut self,
        body: impl FnOnce(&mut Writer<'_>, &mut Client) -> Result<(), ConnectError>,
    ) -> Outcome {
        let mut client = self.take_client()?;
        let mut answer = Ok(());
        let ctx = self.context();
        self.source = client.stream().try_clone().ok();
        let document = self.document(&ctx, |w| answer = body(w, &mut client));
        self.source = None;
        self.put_back(client, &answer);
        answer.map_err(|e| self.failure(&e)).map(|()| document)
    }

    /// The document of an answer. A long one is sent while it is made; what this gives is nothing then.
    pub(super) fn document(&mut self, ctx: &Ctx, body: impl FnOnce(&mut Writer<'_>)) -> String {
        let media_type = self.media_type_of(self.status);
        let source = self.source.take();
        let envelope = Envelope {
            command: self.command,
            asker: self.command.is_empty().then_some(&self.asker),
            is_of_accounting: self.operation.area == Area::Slurmdb,
            errors: &self.errors,
            warnings: &self.warnings,
        };
        let mut out = String::with_capacity(1 << 12);
        let mut answer = LongAnswer {
            sink: self.sink,
            status: self.status,
            media_type,
            kept: String::new(),
            is_begun: false,
            source,
        };
        let mut take = |part: &str| answer.take(part);
        enveloped_in_parts(&mut out, &mut take, self.dialect, &envelope, ctx, body);
        if answer.is_begun {
            answer.take(&out);
            self.is_begun = true;
            return String::new();
        }
        match answer.kept.is_empty() {
            true => out,
            false => answer.kept + &out,
        }
    }

    /// The document of an answer that says only whether it was done.
    pub(super) fn done(&mut self) -> Outcome {
        Ok(self.document(&self.context(), |_| {}))
    }

    /// The media type of an answer.
    fn media_type_of(&self, status: HttpStatus) -> &'static str {
        match (status, self.operation.area, self.dialect.is_yaml()) {
            (HttpStatus::OK, ..) if self.media_type.is_some() => self.media_type.unwrap_or(""),
            (HttpStatus::OK, Area::Metrics, _) => "text/plain; version=0.0.4",
            (_, _, true) => "application/yaml",
            (_, _, false) => "application/json",
        }
    }

    /// The answer, once the handler is through; absent if it was sent already.
    pub(super) fn finish(mut self, result: Outcome) -> Option<RestReply> {
        if self.is_begun {
            match result {
                Ok(_) => self.sink.finish(),
                Err(_) => self.sink.fail(),
            }
            if let Some(client) = self.client.take() {
                self.connect.keep(client);
            }
            return None;
        }
        let (status, body) = match result {
            Ok(document) => (self.status, document),
            Err(mut failure) => {
                // It may repeat data of the request.
                let description = &mut failure.problem.description;
                if let Some((end, _)) = description.char_indices().nth(DESCRIPTION_CHARS_MAX) {
                    description.truncate(end);
                }
                self.errors.push(failure.problem);
                let ctx = Ctx::bare(&self.cluster, TimeZone::UTC);
                self.warnings.clear();
                self.status = failure.status;
                let payload = match self.dialect.is_old() {
                    true => Vec::new(),
                    false => shapes::payload_of(self.operation.response, self.dialect.number()),
                };
                // Clients that are generated of the schemas fail without required lists.
                let empty = |w: &mut Writer<'_>| {
                    for (key, kind) in payload {
                        match kind {
                            EmptyValue::List => w.list(key, |_| {}),
                            EmptyValue::Number => w.limit(key, None, false),
                        }
                    }
                };
                (failure.status, self.document(&ctx, empty))
            }
        };
        if let Some(client) = self.client.take() {
            self.connect.keep(client);
        }
        Some(RestReply {
            status,
            media_type: self.media_type_of(status),
            body: Cow::Owned(body),
        })
    }

    /// Failure reported by the controller, or by the connection to it.
    pub(super) fn failure(&self, error: &ConnectError) -> CallFailure {
        let source = self.operation.call;
        let gateway = match self.dialect.is_old() {
            true => HttpStatus::INTERNAL_ERROR,
            false => HttpStatus::BAD_GATEWAY,
        };
        let (status, number) = match error {
            ConnectError::Refused(refusal) => return self.refusal(refusal),
            ConnectError::Config(_) | ConnectError::Unreachable { .. } => {
                (gateway, errno::CONNECTION)
            }
            ConnectError::Untrusted { .. } => (HttpStatus::UNAUTHORIZED, errno::AUTHENTICATION),
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
            status: HttpStatus::INTERNAL_ERROR,
            problem: Problem {
                number: errno::of(refusal.code),
                text: refusal.code.text().to_owned(),
                description,
                source: self.operation.call.to_owned(),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read as _;

    #[derive(Default)]
    struct Sent {
        heads: Vec<(HttpStatus, &'static str)>,
        parts: Vec<usize>,
    }

    impl AnswerSink for Sent {
        fn begin(&mut self, status: HttpStatus, media_type: &'static str) {
            self.heads.push((status, media_type));
        }

        fn send(&mut self, part: String) -> bool {
            self.parts.push(part.len());
            self.parts.len() < 3
        }

        fn finish(&mut self) {}

        fn fail(&mut self) {}
    }

    #[test]
    fn a_long_answer_is_sent_in_parts() {
        let mut sent = Sent::default();
        let (source, mut controller) = UnixStream::pair().unwrap();
        let mut answer = LongAnswer {
            sink: &mut sent,
            status: HttpStatus::OK,
            media_type: "application/json",
            kept: String::new(),
            is_begun: false,
            source: Some(source),
        };
        let part = "x".repeat(WHOLE_BYTES_MAX / 4);
        (0..3).for_each(|_| answer.take(&part));
        assert!(!answer.is_begun);
        (0..2).for_each(|_| answer.take(&part));
        assert!(answer.is_begun && answer.kept.is_empty());
        assert!(answer.source.is_some());
        // Nobody wants more, of the controller neither.
        answer.take(&part);
        assert_eq!(controller.read(&mut [0]).unwrap(), 0);
        assert_eq!(sent.heads, [(HttpStatus::OK, "application/json")]);
        let quarter = WHOLE_BYTES_MAX / 4;
        assert_eq!(sent.parts, [WHOLE_BYTES_MAX, quarter, quarter]);
    }
}
