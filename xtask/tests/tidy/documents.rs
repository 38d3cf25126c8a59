//! What documents name of the code is there: files, modules and items between backticks.

use crate::source::{all, root};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// Folders of documents about the code.
const FOLDERS: [&str; 3] = ["", "docs", "docs/decisions"];
/// They tell of the past, too.
const HISTORIES: [&str; 2] = ["docs/security.md", "docs/performance.md"];
/// Examples, and what is not this project's.
const NOT_OURS: [&str; 3] = ["mod.rs", "name.rs", "verb.rs"];

fn documents() -> Vec<(String, String)> {
    let mut found = Vec::new();
    for folder in FOLDERS {
        for entry in fs::read_dir(root().join(folder)).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.extension().is_some_and(|e| e == "md") {
                let name = path.file_name().expect("a name").to_string_lossy();
                let text = fs::read_to_string(&path).expect("a document");
                let name = Path::new(folder).join(&*name).display().to_string();
                if !HISTORIES.contains(&name.as_str()) {
                    found.push((name, text));
                }
            }
        }
    }
    found
}

/// The most lines that ARCHITECTURE.md may have: who has never seen the code reads all of it.
const ARCHITECTURE_LINES_MAX: usize = 150;

#[test]
fn the_architecture_is_short() {
    let text = fs::read_to_string(root().join("ARCHITECTURE.md")).expect("a document");
    let lines = text.lines().count();
    assert!(lines <= ARCHITECTURE_LINES_MAX, "{lines} lines");
}

/// What each decision says, in this order.
const HEADINGS: [&str; 5] = ["Context", "Choice", "Cost", "Measured gain", "How to undo"];

#[test]
fn decisions_have_the_same_headings() {
    for (document, text) in documents() {
        let Some(name) = document.strip_prefix("docs/decisions/") else {
            continue;
        };
        if name == "README.md" {
            continue;
        }
        let headings = text.lines().filter_map(|line| line.strip_prefix("## "));
        assert_eq!(headings.collect::<Vec<_>>(), HEADINGS, "{document}");
        let number = name.split('-').next().expect("a number");
        let title = text.lines().next().expect("a title");
        assert!(title.starts_with(&format!("# {number}: ")), "{document}");
        let status = text
            .lines()
            .find_map(|line| line.strip_prefix("Status: "))
            .unwrap_or_else(|| panic!("{document} has no status"));
        assert!(
            ["built", "removed"].iter().any(|s| status.starts_with(s)),
            "{document}: {status}"
        );
    }
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

#[test]
fn documents_name_what_is_there() {
    let sources = all();
    let mut words: BTreeSet<&str> = BTreeSet::new();
    for source in &sources {
        words.extend(source.text.split(|c| !is_word(c)));
        words.extend(source.path.split(['/', '.']));
    }
    let is_file = |name: &str| {
        let end = format!("/{name}");
        let mut paths = sources.iter().map(|source| &source.path);
        paths.any(|path| path == name || path.ends_with(&end))
            // `ctld/writer.rs` is short for `crates/ctld/src/writer.rs`.
            || name.split_once('/').is_some_and(|(package, rest)| {
                let whole = format!("crates/{package}/src/{rest}");
                sources.iter().any(|source| source.path == whole)
            })
    };
    let mut wrong = Vec::new();
    for (document, text) in documents() {
        for token in text.split('`').skip(1).step_by(2) {
            let is_plain = |c: char| is_word(c) || c == ':' || c == '/' || c == '.' || c == '-';
            if !token.chars().all(is_plain) || NOT_OURS.contains(&token) {
                continue;
            }
            let is_there = if token.ends_with(".rs") {
                is_file(token)
            } else if token.contains("::") {
                token.split("::").all(|word| words.contains(word))
            } else {
                true
            };
            if !is_there {
                wrong.push(format!("{document}: {token}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
