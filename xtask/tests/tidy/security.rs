//! The tests that the findings of docs/security.md name are there: what was wrong must not come back unnoticed.

use crate::source::{Source, all, root};
use std::fs;

/// Rows of the table of findings: number and last column.
fn findings(text: &str) -> Vec<(&str, &str)> {
    let part = text
        .split("\n## ")
        .find(|part| part.starts_with("Findings"));
    let rows = part.expect("a part with the findings").lines();
    rows.filter_map(|line| {
        let mut columns = line.trim_matches('|').split('|').map(str::trim);
        let number = columns.next()?;
        let is_row = !number.is_empty() && number.chars().all(|c| c.is_ascii_digit());
        is_row.then_some((number, columns.next_back()?))
    })
    .collect()
}

/// Whether a file has a test whose name begins so, and goes on only if it may.
fn has_test(text: &str, name: &str, goes_on: bool) -> bool {
    let call = match goes_on {
        true => format!("fn {name}"),
        false => format!("fn {name}("),
    };
    text.match_indices(&call).any(|(at, _)| {
        let before = &text[..at];
        let item = before.rsplit("\n\n").next().unwrap_or(before);
        item.contains("test]") || item.contains("::test(")
    })
}

fn is_module(source: &Source, path: &[&str]) -> bool {
    let stem = source.path.trim_end_matches(".rs");
    let parts: Vec<&str> = stem.split('/').collect();
    parts.ends_with(path)
}

/// Whether there is something of the name: a test, a module with tests, an attack, a simulator's class, a fuzz target.
fn exists(sources: &[Source], token: &str) -> bool {
    let path: Vec<&str> = token.split("::").collect();
    let (last, modules) = path.split_last().expect("a name has a part");
    if matches!(*last, "*" | "tests") {
        let modules = match modules.split_last() {
            Some((&"tests", above)) => above,
            _ => modules,
        };
        return !modules.is_empty()
            && sources
                .iter()
                .any(|s| is_module(s, modules) && s.text.contains("test"));
    }
    let (name, goes_on) = match last.strip_suffix('*') {
        Some(name) => (name, true),
        None => (*last, false),
    };
    let is_test = |source: &Source| {
        let is_there = modules.is_empty() || is_module(source, modules);
        is_there && has_test(&source.text, name, goes_on)
    };
    let is_named = |source: &Source| {
        let whole = is_module(source, &path) && source.is_test;
        // Tests of nodes are rows of tables, like attacks and classes of faults.
        let is_of_node = source.is_test && source.package == "node";
        let plays = is_of_node || matches!(&*source.package, "hostile" | "sim");
        let is_attack =
            source.package == "hostile" && source.text.contains(&format!("fn {token}("));
        whole || is_attack || plays && source.text.contains(&format!("\"{token}\""))
    };
    let is_target = root().join("fuzz/corpus").join(token).is_dir();
    is_target || sources.iter().any(|s| is_test(s) || is_named(s))
}

#[test]
fn findings_name_tests_that_are_there() {
    let sources = all();
    let page = fs::read_to_string(root().join("docs/security.md")).expect("docs/security.md");
    let findings = findings(&page);
    assert!(findings.len() > 50, "{}", findings.len());
    let mut wrong = Vec::new();
    for (number, tests) in findings {
        let mut tokens = tests.split('`').skip(1).step_by(2).peekable();
        if tokens.peek().is_none() {
            wrong.push(format!("{number}: names no test"));
        }
        let of_commands = |token: &&str| token.starts_with("cargo ");
        for token in tokens.filter(|token| !of_commands(token)) {
            if !exists(&sources, token) {
                wrong.push(format!("{number}: {token}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
