//! What documents name of the code is there: files, modules and items between backticks.

use crate::source::{Source, all, root};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// Folders of documents about the code.
const FOLDERS: [&str; 3] = ["", "docs", "docs/decisions"];
/// It tells of the past, too.
const HISTORY: &str = "docs/performance.md";
/// The document whose part between these headings tells of the past.
const PARTLY_HISTORY: (&str, &str, &str) =
    ("docs/security.md", "\n## Findings", "\n## Between hosts");
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
                if name != HISTORY {
                    let text = without_history(&name, text);
                    found.push((name, text));
                }
            }
        }
    }
    found
}

fn without_history(name: &str, text: String) -> String {
    let (document, begin, end) = PARTLY_HISTORY;
    if name != document {
        return text;
    }
    let (before, rest) = text.split_once(begin).expect("the heading");
    let (_, after) = rest.split_once(end).expect("the heading after it");
    format!("{before}\n{after}")
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
    let members = Members::of(&sources);
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
                token.split("::").all(|word| words.contains(word)) && members.has(token)
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

/// A type that a comment names with a member is there, and has the member.
#[test]
fn comments_name_members_that_are_there() {
    let sources = all();
    let members = Members::of(&sources);
    let mut wrong = BTreeSet::new();
    for source in &sources {
        for line in source.text.lines() {
            let Some((_, comment)) = line.split_once("//") else {
                continue;
            };
            for token in comment.split('`').skip(1).step_by(2) {
                let is_path = token.contains("::") && token.chars().all(|c| is_word(c) || c == ':');
                if is_path && !members.has(token) {
                    wrong.insert(format!("{}: {token}", source.path));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Members of types: for each type the words of the sources that have its definition or a block of its methods.
struct Members<'s> {
    homes: BTreeMap<&'s str, Vec<usize>>,
    words: Vec<BTreeSet<&'s str>>,
}

/// Beginnings of lines that define a type or begin a block of its methods.
const HEADS: [&str; 6] = ["impl", "enum", "struct", "trait", "union", "bitflags"];

impl<'s> Members<'s> {
    fn of(sources: &'s [Source]) -> Members<'s> {
        let mut homes: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for (number, source) in sources.iter().enumerate() {
            for line in source.text.lines() {
                let line = line.trim_start();
                let line = match line.strip_prefix("pub") {
                    Some(rest) => rest
                        .trim_start_matches("(crate)")
                        .trim_start_matches("(super)"),
                    None => line,
                };
                let line = line.trim_start();
                if HEADS.iter().any(|head| line.starts_with(head)) {
                    for word in line.split(|c| !is_word(c)) {
                        homes.entry(word).or_default().push(number);
                    }
                }
            }
        }
        let words = sources.iter();
        let words = words.map(|s| s.text.split(|c| !is_word(c)).collect());
        Members {
            homes,
            words: words.collect(),
        }
    }

    /// Whether a path of a type and a member names a member that is there. A type without the path of another crate must be there, too;
    /// other paths of types of other crates are not looked at, nor paths of other kinds.
    fn has(&self, path: &str) -> bool {
        let mut names = path.rsplit("::");
        let (Some(member), Some(owner)) = (names.next(), names.next()) else {
            return true;
        };
        if !owner.starts_with(char::is_uppercase) || owner == "Self" {
            return true;
        }
        match self.homes.get(owner) {
            None => {
                let root = path.split("::").next().unwrap_or(owner);
                root != owner && root != "crate" && root != "super" && !root.starts_with("muster")
            }
            Some(homes) => homes.iter().any(|home| self.words[*home].contains(member)),
        }
    }
}

#[test]
fn members_of_comments_are_found() {
    let source = |text: &str| Source {
        path: "crates/x/src/lib.rs".to_owned(),
        package: "x".to_owned(),
        is_test: false,
        modules: Vec::new(),
        text: text.to_owned(),
    };
    let sources = [source("pub(crate) enum One {\n    Two,\n}\n")];
    let members = Members::of(&sources);
    for there in [
        "One::Two",
        "crate::One::Two",
        "Self::x",
        "tokio::net::UnixStream::x",
        "a::b",
    ] {
        assert!(members.has(there), "{there}");
    }
    for gone in [
        "One::Three",
        "Old::Two",
        "crate::Old::Two",
        "muster_x::Old::Two",
    ] {
        assert!(!members.has(gone), "{gone}");
    }
}

/// Documents that say which file has what.
const GUIDES: [&str; 2] = ["ARCHITECTURE.md", "CONTRIBUTING.md"];

/// A reader who looks for an item in the file that a guide names must find its definition there, not only a use.
#[test]
fn items_are_defined_in_the_files_that_guides_name() {
    let sources = all();
    let mut wrong = Vec::new();
    for guide in GUIDES {
        let text = fs::read_to_string(root().join(guide)).expect("a document");
        let places = items_with_files(&text);
        assert!(places.len() > 10, "{guide}: only {places:?}");
        for (item, file) in places {
            let paths = in_crates(&file);
            let source = sources.iter().find(|source| paths.contains(&source.path));
            if source.is_none_or(|source| !defines(&source.text, &item)) {
                wrong.push(format!("{guide}: `{item}` in {file}"));
            }
        }
    }
    assert!(wrong.is_empty(), "not defined there: {wrong:#?}");
}

/// The paths that a path in a guide may stand for.
fn in_crates(file: &str) -> [String; 2] {
    [file.to_owned(), format!("crates/{file}")]
}

/// Pairs of item and file in a text, where an item is between backticks: "`item` (file.rs", "`item` in file.rs" and
/// "file.rs (`item`". Several items may be listed for one file.
fn items_with_files(text: &str) -> Vec<(String, String)> {
    let text = text.replace('†', "");
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let parts: Vec<&str> = text.split('`').collect();
    let mut pairs = Vec::new();
    let mut listed = Vec::new();
    let mut file = None;
    for around in parts.windows(3).step_by(2) {
        let [before, item, after] = around else {
            continue;
        };
        if ![", ", " and ", " or "].contains(before) {
            listed.clear();
            file = before.strip_suffix(" (").and_then(last_file);
        }
        listed.push(*item);
        pairs.extend(file.map(|file| ((*item).to_owned(), file.to_owned())));
        let place = after.strip_prefix(" (").or(after.strip_prefix(" in "));
        if let Some(file) = place.and_then(first_file) {
            let items = listed.iter().map(|item| (*item).to_owned());
            pairs.extend(items.map(|item| (item, file.to_owned())));
        }
    }
    let is_name = |item: &str| item.chars().all(|c| is_word(c) || c == ':');
    pairs.retain(|(item, _)| is_name(item));
    pairs
}

/// The path of one Rust file with its folder, at the beginning of a text.
fn first_file(text: &str) -> Option<&str> {
    let end = text.find(|c: char| !is_word(c) && !"/-.".contains(c));
    let path = text[..end.unwrap_or(text.len())].trim_end_matches('.');
    (path.contains('/') && path.ends_with(".rs")).then_some(path)
}

/// The same at the end of a text.
fn last_file(text: &str) -> Option<&str> {
    let text = text.trim_end();
    let before = text.rfind(|c: char| !is_word(c) && !"/-.".contains(c));
    // Braces list several files.
    let is_one = before.is_none_or(|at| !text[at..].starts_with('}'));
    let path = before.map_or(text, |at| &text[at + 1..]);
    (is_one && path.contains('/') && path.ends_with(".rs")).then_some(path)
}

/// Whether a text of Rust defines an item, the last name of a path: a function, a type, a constant, a module, a field or
/// a variant.
fn defines(text: &str, item: &str) -> bool {
    const KINDS: [&str; 8] = [
        "fn", "struct", "enum", "trait", "type", "const", "static", "mod",
    ];
    const BEFORE_FN: [&str; 4] = ["async", "const", "unsafe", "extern"];
    let name = item.rsplit("::").next().expect("a name");
    text.lines().map(str::trim_start).any(|line| {
        let is_public = line.starts_with("pub");
        let line = match line.strip_prefix("pub").unwrap_or(line) {
            rest if is_public && rest.starts_with('(') => {
                rest.split_once(") ").map_or("", |(_, rest)| rest)
            }
            rest => rest.trim_start(),
        };
        if let Some(rest) = line.strip_prefix(name) {
            let is_variant = name.starts_with(char::is_uppercase);
            let is_field = is_public && rest.starts_with(": ");
            return is_field || is_variant && rest.trim_start().starts_with(['{', '(', ',']);
        }
        let mut words = line
            .split(' ')
            .skip_while(|word| BEFORE_FN.contains(word) && line.contains("fn "));
        let is_kind = words.next().is_some_and(|word| KINDS.contains(&word));
        let defined = words
            .next()
            .and_then(|word| word.split(|c| !is_word(c)).next());
        is_kind && defined == Some(name)
    })
}

#[test]
fn items_of_guides_and_definitions_are_found() {
    let text = "see `a` and\n`B::b` (x/src/y.rs; so). `C` in crates/x/src/z.rs. x/w.rs † (`D`, `--e`) `f` (g)";
    let pairs = items_with_files(text);
    let pairs: Vec<(&str, &str)> = pairs.iter().map(|(i, f)| (&**i, &**f)).collect();
    let expected = [
        ("a", "x/src/y.rs"),
        ("B::b", "x/src/y.rs"),
        ("C", "crates/x/src/z.rs"),
        ("D", "x/w.rs"),
    ];
    assert_eq!(pairs, expected);
    let code =
        "pub(super) const fn one(x: u8) {\n two(x);\n}\nenum E {\n    Three,\n}\nuse a::Four;";
    for (item, is_defined) in [
        ("E::one", true),
        ("two", false),
        ("E::Three", true),
        ("E", true),
        ("Four", false),
    ] {
        assert_eq!(defines(code, item), is_defined, "{item}");
    }
}
