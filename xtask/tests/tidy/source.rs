//! The source files of the workspace, and their parts.

use std::fs;
use std::path::{Path, PathBuf};

/// A file of Rust.
pub(crate) struct Source {
    /// From the workspace's root.
    pub(crate) path: String,
    /// The folder of its crate: `core`, `xtask`.
    pub(crate) package: String,
    /// Whether it is a test, an example or a build script.
    pub(crate) is_test: bool,
    /// The modules that it is, from the crate's root: `["decide", "submit"]`; none for the root itself.
    pub(crate) modules: Vec<String>,
    /// All of it.
    pub(crate) text: String,
}

impl Source {
    /// Its code, without comments, literals of text and the tests at its end.
    pub(crate) fn code(&self) -> String {
        let text = &self.text;
        let tests = text.find("\n#[cfg(test)]\nmod tests {");
        without_comments(&text[..tests.unwrap_or(text.len())])
    }
}

/// The workspace's root.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// All files, in order of their paths.
pub(crate) fn all() -> Vec<Source> {
    let mut paths = Vec::new();
    for folder in ["crates", "xtask", "fuzz/src"] {
        collect(&root().join(folder), &mut paths);
    }
    paths.sort();
    paths.iter().map(|path| read(path)).collect()
}

/// Those of crates' own code.
pub(crate) fn product() -> Vec<Source> {
    let all = all().into_iter();
    all.filter(|source| !source.is_test).collect()
}

fn collect(folder: &Path, into: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder of the workspace") {
        let path = entry.expect("an entry").path();
        if path.is_dir() && path.file_name().is_some_and(|name| name != "target") {
            collect(&path, into);
        } else if path.extension().is_some_and(|e| e == "rs") {
            into.push(path);
        }
    }
}

fn read(path: &Path) -> Source {
    let from_root = path.strip_prefix(root()).expect("a path below the root");
    let parts: Vec<String> = from_root
        .components()
        .map(|part| part.as_os_str().to_string_lossy().into_owned())
        .collect();
    let package = &parts[usize::from(parts[0] == "crates")];
    let in_crate = if parts[0] == "crates" { 2 } else { 1 };
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let is_test = parts[in_crate] != "src"
        || stem == "tests"
        || stem.ends_with("_tests")
        || parts.iter().any(|part| part == "tests");
    let mut modules: Vec<String> = parts.get(in_crate + 1..).unwrap_or_default().to_vec();
    modules.pop();
    if modules.is_empty() && ["lib", "main"].contains(&&*stem) {
        // The root.
    } else {
        modules.push(stem.into_owned());
    }
    Source {
        path: parts.join("/"),
        package: package.clone(),
        is_test,
        modules,
        text: fs::read_to_string(path).expect("a source file"),
    }
}

/// Rust without its comments, and with empty texts.
pub(crate) fn without_comments(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        if rest.starts_with("//") {
            rest = &rest[rest.find('\n').unwrap_or(rest.len())..];
        } else if rest.starts_with("/*") {
            rest = rest.find("*/").map_or("", |end| &rest[end + 2..]);
        } else if let Some(hashes) = raw_text(rest) {
            let end = format!("\"{}", "#".repeat(hashes));
            let body = &rest[hashes + 2..];
            out.push_str("\"\"");
            rest = body.find(&end).map_or("", |at| &body[at + end.len()..]);
        } else if c == '"' {
            out.push_str("\"\"");
            rest = after_text(&rest[1..]);
        } else if let Some(len) = character(rest) {
            out.push_str("' '");
            rest = &rest[len..];
        } else {
            out.push(c);
            rest = &rest[c.len_utf8()..];
        }
    }
    out
}

/// How many hashes are around a raw text that begins here.
fn raw_text(rest: &str) -> Option<usize> {
    let body = rest.strip_prefix('r')?;
    let hashes = body.bytes().take_while(|b| *b == b'#').count();
    body[hashes..].starts_with('"').then_some(hashes)
}

/// What comes after a text.
fn after_text(mut body: &str) -> &str {
    while let Some(at) = body.find(['"', '\\']) {
        if body[at..].starts_with('"') {
            return &body[at + 1..];
        }
        let escaped = body[at + 1..].chars().next().map_or(0, char::len_utf8);
        body = &body[at + 1 + escaped..];
    }
    ""
}

/// How long a literal of a character is that begins here; a lifetime is none.
fn character(rest: &str) -> Option<usize> {
    let body = rest.strip_prefix('\'')?;
    if body.starts_with('\\') {
        return Some(body[2..].find('\'')? + 4);
    }
    let first = body.chars().next()?;
    body[first.len_utf8()..]
        .starts_with('\'')
        .then(|| first.len_utf8() + 2)
}

#[test]
fn comments_and_texts_are_left_out() {
    let text = "a // b\n/* c */ d \"e \\\" // f\" g 'h' '\\'' <'i> r#\"j\"k\"# l";
    assert_eq!(without_comments(text), "a \n d \"\" g ' ' ' ' <'i> \"\" l");
}
