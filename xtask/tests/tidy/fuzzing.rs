//! What is decoded is fuzzed: each message that travels in frames is in a fuzz target.

use crate::source::{all, product};

/// Messages that are decoded by other types as well: the launcher does not look into ends of steps.
const OTHERWISE: [&str; 1] = ["StepdEventRef"];

#[test]
fn messages_are_in_fuzz_targets() {
    let targets: String = all()
        .into_iter()
        .filter(|source| source.path.starts_with("fuzz/") || source.path.ends_with("/fuzzing.rs"))
        .map(|source| source.text)
        .collect();
    let mut missing = Vec::new();
    for source in product() {
        let code = source.code();
        for (at, start) in code.match_indices("impl Message for ") {
            let rest = &code[at + start.len()..];
            let end = rest.find(|c: char| !c.is_alphanumeric());
            let name = &rest[..end.unwrap_or(rest.len())];
            let calls = [
                format!("round_trip!({name}"),
                format!("frame::decode::<{name}>"),
            ];
            let is_there = calls.iter().any(|call| targets.contains(call));
            if !is_there && !OTHERWISE.contains(&name) {
                missing.push(format!("{name} ({})", source.path));
            }
        }
    }
    assert!(missing.is_empty(), "no fuzz target decodes {missing:?}");
}
