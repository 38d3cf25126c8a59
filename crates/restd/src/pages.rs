//! The pages that show the cluster in a browser: files, which ask the REST API with the token of who looks at them.

use crate::packing::PackedReply;
use muster_cli::rest::{HttpStatus, RestReply};
use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::OnceLock;

/// Name, media type, content.
const FILES: [(&str, &str, &str); 10] = [
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
    ("/web/app.js", SCRIPT, include_str!("../web/app.js")),
    ("/web/base.js", SCRIPT, include_str!("../web/base.js")),
    (
        "/web/calendar.js",
        SCRIPT,
        include_str!("../web/calendar.js"),
    ),
    ("/web/chart.js", SCRIPT, include_str!("../web/chart.js")),
    ("/web/jobs.js", SCRIPT, include_str!("../web/jobs.js")),
    ("/web/nodes.js", SCRIPT, include_str!("../web/nodes.js")),
    ("/web/plan.js", SCRIPT, include_str!("../web/plan.js")),
    ("/web/reports.js", SCRIPT, include_str!("../web/reports.js")),
];

const SCRIPT: &str = "text/javascript; charset=utf-8";

/// The policy of the pages: they may use nothing but files and answers of this server.
pub(crate) const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; base-uri 'none'; \
     form-action 'none'; frame-ancestors 'none'";

/// The file at a path.
pub(crate) fn at(path: &str) -> Option<RestReply> {
    let path = match path {
        "/" | "/web" => "/web/",
        // Browsers ask for it without a token: there is no picture.
        "/favicon.ico" => return Some(RestReply::text(HttpStatus(204), "")),
        other => other,
    };
    let (_, media_type, text) = FILES.iter().find(|(name, ..)| *name == path)?;
    Some(RestReply {
        status: HttpStatus::OK,
        media_type,
        body: Cow::Borrowed(text),
    })
}

/// The file at a path, packed with gzip: that is done once. Absent for a short one, too.
pub(crate) fn packed_at(path: &str) -> Option<PackedReply> {
    static PACKED: OnceLock<HashMap<&str, PackedReply>> = OnceLock::new();
    let all = PACKED.get_or_init(|| {
        let packed = |name| Some((name, PackedReply::of(at(name)?).ok()?));
        let names = FILES.iter().map(|(name, ..)| *name);
        names.filter_map(packed).collect()
    });
    all.get(path).cloned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    /// Bytes of all files together, which a browser reads before it shows anything.
    const PAGE_BYTES_MAX: usize = 150_000;

    #[test]
    fn all_files_are_small_and_of_this_server() {
        let bytes: usize = FILES.iter().map(|(.., text)| text.len()).sum();
        assert!(bytes < PAGE_BYTES_MAX, "{bytes}");
        for (name, _, text) in FILES {
            // Nothing of another host, no text that becomes HTML, nothing that the policy forbids.
            for word in [
                "http:",
                "https:",
                "innerHTML",
                "outerHTML",
                "insertAdjacentHTML",
                "document.write",
                "eval(",
                "new Function",
                " style=\"",
                " onclick=",
                "javascript:",
            ] {
                assert!(!text.contains(word), "{name} has {word}");
            }
        }
    }

    /// Each import of a script exists, and each file is imported.
    #[test]
    fn scripts_import_what_there_is() {
        let known: HashSet<&str> = FILES.iter().map(|(name, ..)| *name).collect();
        let mut used: HashSet<String> = ["/web/", "/web/style.css", "/web/app.js"]
            .map(str::to_owned)
            .into();
        for (name, _, text) in FILES.iter().filter(|(_, kind, _)| *kind == SCRIPT) {
            for import in text.split("from \"./").skip(1) {
                let file = import.split('"').next().unwrap_or("");
                let path = format!("/web/{file}");
                assert!(known.contains(path.as_str()), "{name} imports {path}");
                used.insert(path);
            }
        }
        assert_eq!(used.len(), FILES.len(), "{used:?}");
    }

    /// Without it every page had an error on the console, since who has no token is refused.
    #[test]
    fn the_picture_that_browsers_ask_for_is_empty() {
        assert_eq!(at("/favicon.ico").unwrap().status, HttpStatus(204));
    }

    #[test]
    fn large_files_are_packed() {
        let all: usize = FILES.iter().map(|(.., text)| text.len()).sum();
        let packed = |name: &str| packed_at(name).map_or(0, |packed| packed.bytes.len());
        let sent = FILES.iter().map(|(name, _, text)| match packed(name) {
            0 => text.len(),
            bytes => bytes,
        });
        let sent: usize = sent.sum();
        assert!(sent * 2 < all, "{sent} of {all}");
        assert!(packed_at("/web/nosuch").is_none());
    }

    #[test]
    fn other_paths_have_no_file() {
        assert!(at("/").is_some() && at("/web").is_some() && at("/web/plan.js").is_some());
        for path in ["/web/nosuch", "/web/../src/pages.rs", "/web//app.js", ""] {
            assert!(at(path).is_none(), "{path}");
        }
    }
}
