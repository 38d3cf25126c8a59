//! The pages that show the cluster in a browser: three files, which ask the REST API with the token of who looks at them.

use muster_cli::rest::{Answer, Status};
use std::borrow::Cow;

/// Name, media type, content.
const FILES: [(&str, &str, &str); 3] = [
    (
        "/web/",
        "text/html; charset=utf-8",
        include_str!("../web/index.html"),
    ),
    (
        "/web/style.css",
        "text/css; charset=utf-8",
        include_str!("../web/style.css"),
    ),
    (
        "/web/app.js",
        "text/javascript; charset=utf-8",
        include_str!("../web/app.js"),
    ),
];

/// What the pages may do: nothing but with files and answers of this server.
pub(crate) const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; base-uri 'none'; \
     form-action 'none'; frame-ancestors 'none'";

/// The file at a path.
pub(crate) fn at(path: &str) -> Option<Answer> {
    let path = match path {
        "/" | "/web" => "/web/",
        other => other,
    };
    let (_, media_type, text) = FILES.iter().find(|(name, ..)| *name == path)?;
    Some(Answer {
        status: Status::OK,
        media_type,
        body: Cow::Borrowed(text),
    })
}
