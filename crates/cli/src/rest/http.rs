//! Requests and answers as HTTP has them.

use std::borrow::Cow;

/// Method of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// Read.
    Get,
    /// Make or change.
    Post,
    /// Take away.
    Delete,
}

/// User of a request, as slurmrestd has found out. The controller finds out anew for each connection.
#[derive(Clone, Debug, Default)]
pub struct Caller {
    /// The user's number.
    pub uid: u32,
    /// The user's name.
    pub user: String,
    /// The name of the user's group.
    pub group: String,
    /// The address or socket that the request came by.
    pub source: String,
}

/// A request, with its parts as they came.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// Method.
    pub method: Method,
    /// The path, escapes and all.
    pub path: &'a str,
    /// The query after the question mark, escapes and all.
    pub query: &'a str,
    /// JSON, or nothing.
    pub body: &'a [u8],
    /// The answer is to be YAML.
    pub yaml: bool,
    /// The requesting user.
    pub caller: &'a Caller,
}

/// A status code of HTTP (RFC 9110).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HttpStatus(pub u16);

impl HttpStatus {
    /// 200.
    pub const OK: HttpStatus = HttpStatus(200);
    /// 400.
    pub const BAD_REQUEST: HttpStatus = HttpStatus(400);
    /// 401.
    pub const UNAUTHORIZED: HttpStatus = HttpStatus(401);
    /// 403.
    pub const FORBIDDEN: HttpStatus = HttpStatus(403);
    /// 404.
    pub const NOT_FOUND: HttpStatus = HttpStatus(404);
    /// 405.
    pub const NOT_ALLOWED: HttpStatus = HttpStatus(405);
    /// 500.
    pub const INTERNAL_ERROR: HttpStatus = HttpStatus(500);
    /// 503.
    pub const UNAVAILABLE: HttpStatus = HttpStatus(503);
    /// 502.
    pub const BAD_GATEWAY: HttpStatus = HttpStatus(502);
}

/// Where a long answer goes while it is made, so that it is nowhere whole.
pub trait AnswerSink {
    /// Sends the head; the body follows.
    fn begin(&mut self, status: HttpStatus, media_type: &'static str);

    /// Sends the next part of the body, and says whether anybody still wants it.
    fn send(&mut self, part: String) -> bool;

    /// Says that nothing follows.
    fn finish(&mut self);

    /// Reports that the rest will never come, so that nobody takes a part for the whole.
    fn fail(&mut self);
}

/// Reply of a REST request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RestReply {
    /// The status.
    pub status: HttpStatus,
    /// The media type of the body.
    pub media_type: &'static str,
    /// The body.
    pub body: Cow<'static, str>,
}

impl RestReply {
    /// A line of text, for what cannot be answered with a document.
    pub fn text(status: HttpStatus, text: &str) -> RestReply {
        RestReply {
            status,
            media_type: "text/plain",
            body: Cow::Owned(text.to_owned()),
        }
    }
}
