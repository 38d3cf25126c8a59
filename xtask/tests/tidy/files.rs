//! What holds for each file.

use crate::bounds;
use crate::source::all;
use std::collections::BTreeMap;

/// Lines of a file.
const LINES_MAX: usize = 800;

#[test]
fn each_file_says_what_it_is() {
    let silent: Vec<String> = all()
        .into_iter()
        .filter(|source| !source.text.starts_with("//! "))
        .map(|source| source.path)
        .collect();
    assert!(silent.is_empty(), "files without //!: {silent:#?}");
}

#[test]
fn files_are_small() {
    let lines = all()
        .into_iter()
        .map(|source| (source.path, source.text.lines().count()));
    let long: BTreeMap<String, usize> = lines.filter(|(_, lines)| *lines > LINES_MAX).collect();
    bounds::check("lines", &long);
}
