//! Dependencies that a crate declares are used by it: what is not is built and updated for nothing.

use crate::source::{all, root};
use std::collections::BTreeMap;
use std::fs;

/// Dependencies that no source of the crate names: the library that end-to-end tests load must have been built, and these tests
/// have the fuzz targets as modules.
const UNNAMED: [(&str, &str); 7] = [
    ("muster", "muster-drmaa"),
    ("muster", "muster-drmaa2"),
    ("muster", "muster-libslurm"),
    ("muster", "muster-core"),
    ("muster", "minicbor"),
    ("muster", "muster-journal"),
    ("muster", "muster-sched"),
];

#[test]
fn declared_dependencies_are_used() {
    let mut texts: BTreeMap<String, String> = BTreeMap::new();
    for source in all() {
        texts
            .entry(source.package)
            .or_default()
            .push_str(&source.text);
    }
    let mut unused = Vec::new();
    for entry in fs::read_dir(root().join("crates")).expect("the folder of crates") {
        let folder = entry.expect("an entry").path();
        let package = folder
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let manifest = fs::read_to_string(folder.join("Cargo.toml")).expect("a manifest");
        let text = texts.get(&package).map_or("", String::as_str);
        for name in dependencies(&manifest) {
            let is_named = contains_word(text, &name.replace('-', "_"));
            if !is_named && !UNNAMED.contains(&(package.as_str(), name)) {
                unused.push(format!("crates/{package}/Cargo.toml: {name}"));
            }
        }
    }
    assert!(
        unused.is_empty(),
        "dependencies that are not used: {unused:#?}"
    );
}

/// Names in the tables of dependencies, one for each line.
fn dependencies(manifest: &str) -> Vec<&str> {
    let mut is_table = false;
    let mut names = Vec::new();
    for line in manifest.lines() {
        if let Some(table) = line.strip_prefix('[') {
            is_table = table.trim_end_matches(']').ends_with("dependencies");
        } else if is_table && let Some((name, _)) = line.split_once(['.', ' ', '=']) {
            names.push(name);
        }
    }
    names.retain(|name| !name.is_empty() && !name.starts_with('#'));
    names
}

fn contains_word(text: &str, word: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(word).any(|(at, _)| {
        let before = text[..at].chars().next_back();
        let after = text[at + word.len()..].chars().next();
        !before.is_some_and(is_part) && !after.is_some_and(is_part)
    })
}

#[test]
fn names_of_dependencies_are_read() {
    let manifest = "[package]\nname = \"x\"\n[dependencies]\nlog.workspace = true\nsyn = { version = \"2\" }\n\n[features]\na = []\n";
    assert_eq!(dependencies(manifest), ["log", "syn"]);
    assert!(contains_word("use log::warn;", "log"));
    assert!(!contains_word("fn catalog_of()", "log"));
}
