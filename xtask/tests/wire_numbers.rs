//! The numbers of fields that are stored and sent leave no gaps: fields are encoded as an array, in which each number
//! that is left out costs a byte in every record and a step of every reader.

use std::fs;
use std::path::{Path, PathBuf};

/// Numbers that were given up after they had been released; none so far.
const GIVEN_UP: [(&str, u32); 0] = [];

fn sources(dir: &Path, into: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).expect("a directory of the workspace") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            sources(&path, into);
        } else if path.extension().is_some_and(|e| e == "rs") {
            into.push(path);
        }
    }
}

/// The numbers `#[n(…)]` or `#[cbor(n(…), …)]` in a line of code.
fn numbers(line: &str) -> Vec<u32> {
    let number = |rest: &str| {
        let digits = rest.split(')').next().unwrap_or("");
        digits.parse().ok()
    };
    ["#[n(", "#[b(", "#[cbor(n(", "#[cbor(b("]
        .iter()
        .flat_map(|mark| line.split(mark).skip(1))
        .filter_map(number)
        .collect()
}

/// Blocks with numbers of which some are missing: the line each begins with, and the numbers.
fn gaps(text: &str) -> Vec<(String, Vec<u32>)> {
    let mut open: Vec<(&str, Vec<u32>)> = Vec::new();
    let mut found = Vec::new();
    for line in text.lines() {
        let code = line.split("//").next().unwrap_or("");
        if let Some((_, seen)) = open.last_mut() {
            seen.extend(numbers(code));
        }
        for c in code.chars() {
            match c {
                '{' => open.push((line.trim(), Vec::new())),
                '}' => {
                    let Some((head, mut seen)) = open.pop() else {
                        continue;
                    };
                    seen.sort_unstable();
                    let given_up = |n: &u32| GIVEN_UP.contains(&(head, *n));
                    let all = (0..).filter(|n| !given_up(n)).take(seen.len());
                    if !head.contains("enum ") && !all.eq(seen.iter().copied()) {
                        found.push((head.to_owned(), seen));
                    }
                }
                _ => {}
            }
        }
    }
    found
}

#[test]
fn numbers_of_fields_have_no_gaps() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates");
    let mut all = Vec::new();
    sources(&crates, &mut all);
    for path in all
        .iter()
        .filter(|p| !p.components().any(|c| c.as_os_str() == "tests"))
    {
        let text = fs::read_to_string(path).expect("a source file");
        let gaps = gaps(&text);
        assert!(gaps.is_empty(), "{}: {gaps:?}", path.display());
    }
}

#[test]
fn a_gap_is_found() {
    let text = "pub struct A {\n#[n(0)]\na: u8,\n#[cbor(n(2), default)]\nb: u8,\n}";
    assert_eq!(gaps(text), [("pub struct A {".to_owned(), vec![0, 2])]);
    assert!(gaps("enum E {\n#[n(7)]\nA,\n}").is_empty());
}
