//! Counts of what does not keep a rule yet: lines of `name count` in a file of `bounds/`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

/// Compares counts with their bounds.
///
/// # Panics
/// A count is above its bound, or below it, so that the bound must be lowered.
pub(crate) fn check(rule: &str, counts: &BTreeMap<String, usize>) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/tidy/bounds")
        .join(format!("{rule}.txt"));
    let updates = std::env::var_os("UPDATE_TIDY").is_some();
    let known = match fs::read_to_string(&file) {
        Ok(text) => parse(&text),
        // A new rule begins with what is there.
        Err(_) if updates => counts.clone(),
        Err(error) => panic!("{}: {error}", file.display()),
    };
    let (above, below) = compare(counts, &known);
    if updates {
        fs::write(&file, lowered(counts, &known)).expect("bounds can be written");
    } else {
        assert!(
            below.is_empty(),
            "{rule}: fewer than their bounds, which UPDATE_TIDY=1 lowers:\n{}",
            below.join("\n")
        );
    }
    assert!(
        above.is_empty(),
        "{rule}: more than their bounds:\n{}",
        above.join("\n")
    );
}

fn parse(text: &str) -> BTreeMap<String, usize> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let pairs = lines.map(|line| {
        let (name, count) = line.rsplit_once(' ').expect("a name and a count");
        (name.to_owned(), count.parse().expect("a count"))
    });
    pairs.collect()
}

/// Messages about counts above their bounds, and below them. What has no bound has the bound 0.
fn compare(
    counts: &BTreeMap<String, usize>,
    known: &BTreeMap<String, usize>,
) -> (Vec<String>, Vec<String>) {
    let (mut above, mut below) = (Vec::new(), Vec::new());
    for name in counts.keys().chain(known.keys()) {
        let of = |map: &BTreeMap<String, usize>| map.get(name).copied().unwrap_or(0);
        let (count, bound) = (of(counts), of(known));
        let message = format!("{name}: {count}, bound {bound}");
        let to = match count.cmp(&bound) {
            std::cmp::Ordering::Greater => &mut above,
            std::cmp::Ordering::Less => &mut below,
            std::cmp::Ordering::Equal => continue,
        };
        if to.last() != Some(&message) && !to.contains(&message) {
            to.push(message);
        }
    }
    (above, below)
}

fn lowered(counts: &BTreeMap<String, usize>, known: &BTreeMap<String, usize>) -> String {
    let mut text = String::new();
    for (name, bound) in known {
        let count = counts.get(name).copied().unwrap_or(0).min(*bound);
        if count > 0 {
            let _ = writeln!(text, "{name} {count}");
        }
    }
    text
}

#[test]
fn bounds_are_lowered_and_never_raised() {
    let counts = parse("a 3\nb 1\nnew 2");
    let known = parse("a 2\nb 4\ngone 1");
    let (above, below) = compare(&counts, &known);
    assert_eq!(above, ["a: 3, bound 2", "new: 2, bound 0"]);
    assert_eq!(below, ["b: 1, bound 4", "gone: 0, bound 1"]);
    assert_eq!(lowered(&counts, &known), "a 2\nb 1\n");
}
