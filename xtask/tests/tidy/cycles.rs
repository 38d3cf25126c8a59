//! Modules of a crate that import each other in circles can only be understood together.

use crate::bounds;
use crate::source::{Source, product};
use std::collections::{BTreeMap, BTreeSet};

/// Modules, and which they import.
pub(crate) type Imports = BTreeMap<String, BTreeSet<String>>;

/// How many top-level modules of each crate are part of a circle.
#[test]
fn modules_do_not_import_each_other() {
    let mut counts = BTreeMap::new();
    for (package, sources) in packages() {
        let circling = in_circles(&imports(&sources)).len();
        if circling > 0 {
            counts.insert(package, circling);
        }
    }
    bounds::check("cycles", &counts);
}

/// How many modules within each module are part of a circle.
#[test]
fn modules_within_a_module_do_not_import_each_other() {
    let mut counts = BTreeMap::new();
    for (package, sources) in packages() {
        let above = sources.iter().filter_map(|source| {
            let (_, above) = source.modules.split_last()?;
            (!above.is_empty()).then(|| above.to_vec())
        });
        for module in above.collect::<BTreeSet<Vec<String>>>() {
            let circling = in_circles(&imports_within(&sources, &module)).len();
            if circling > 0 {
                counts.insert(format!("{package}::{}", module.join("::")), circling);
            }
        }
    }
    bounds::check("nested_cycles", &counts);
}

fn packages() -> BTreeMap<String, Vec<Source>> {
    let mut packages: BTreeMap<String, Vec<Source>> = BTreeMap::new();
    for source in product() {
        let package = source.package.clone();
        packages.entry(package).or_default().push(source);
    }
    packages
}

/// Which top-level modules of a crate import which.
pub(crate) fn imports(sources: &[Source]) -> Imports {
    imports_within(sources, &[])
}

/// Which modules of this one import which others of it.
fn imports_within(sources: &[Source], module: &[String]) -> Imports {
    let within = |source: &Source| -> Option<String> {
        let rest = source.modules.strip_prefix(module)?;
        rest.first().cloned()
    };
    let modules: BTreeSet<String> = sources.iter().filter_map(within).collect();
    let root = sources.iter().find(|source| source.modules == module);
    let exported = root.map_or_else(BTreeMap::new, |root| exports(&root.code()));
    let mut imports: Imports = BTreeMap::new();
    for source in sources {
        let Some(from) = &within(source) else {
            continue;
        };
        let depth = source.modules.len() - module.len();
        let names = names_within(&source.code(), module, depth);
        let to = names
            .into_iter()
            .map(|name| exported.get(&name).cloned().unwrap_or(name));
        let to = to.filter(|name| name != from && modules.contains(name));
        imports.entry(from.clone()).or_default().extend(to);
    }
    imports
}

/// What the root makes of its modules' names: `pub use module::{Name, Other};`.
fn exports(root: &str) -> BTreeMap<String, String> {
    let mut exports = BTreeMap::new();
    for statement in root.split(';') {
        let Some((_, path)) = statement.split_once("pub use ") else {
            continue;
        };
        let Some((module, names)) = path.split_once("::") else {
            continue;
        };
        let names = names.split(|c: char| !(c.is_alphanumeric() || c == '_'));
        for name in names.filter(|name| !name.is_empty()) {
            exports.insert(name.to_owned(), module.to_owned());
        }
    }
    exports
}

/// The names of a module that code uses: what follows its path, or as many `super::` as lead there.
fn names_within(code: &str, module: &[String], depth: usize) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let path = module
        .iter()
        .fold("crate::".to_owned(), |path, name| path + name + "::");
    let up = "super::".repeat(depth);
    for start in [path.as_str(), &up] {
        for (at, _) in code.match_indices(start) {
            let before = code[..at].chars().next_back();
            if before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == ':') {
                continue;
            }
            let rest = &code[at + start.len()..];
            match rest.strip_prefix('{') {
                Some(group) => names.extend(group_heads(group)),
                None => names.extend(head(rest)),
            }
        }
    }
    names
}

/// The identifier that text begins with.
fn head(text: &str) -> Option<String> {
    let end = text.find(|c: char| !(c.is_alphanumeric() || c == '_'));
    let name = &text[..end.unwrap_or(text.len())];
    (!name.is_empty()).then(|| name.to_owned())
}

/// The first identifiers of the paths in braces.
fn group_heads(group: &str) -> Vec<String> {
    let (mut heads, mut depth, mut fresh) = (Vec::new(), 0, true);
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => fresh = true,
            _ if fresh && !c.is_whitespace() => {
                heads.extend(head(&group[at..]));
                fresh = false;
            }
            _ => {}
        }
    }
    heads
}

/// The modules that reach themselves.
pub(crate) fn in_circles(imports: &Imports) -> BTreeSet<&String> {
    let reaches_itself = |start: &&String| {
        let mut seen = BTreeSet::new();
        let mut next: Vec<&String> = imports[*start].iter().collect();
        while let Some(module) = next.pop() {
            if module == *start {
                return true;
            }
            if seen.insert(module) {
                next.extend(imports.get(module).into_iter().flatten());
            }
        }
        false
    };
    imports.keys().filter(reaches_itself).collect()
}

#[test]
fn circles_are_found() {
    let source = |module: &str, text: &str| Source {
        path: String::new(),
        package: String::new(),
        is_test: false,
        modules: if module.is_empty() {
            Vec::new()
        } else {
            module.split("::").map(str::to_owned).collect()
        },
        text: text.to_owned(),
    };
    let sources = [
        source("", "mod a;\npub use c::{Sea, Other};"),
        source("a", "use crate::{b::X, d};\n// crate::e"),
        source("b::inner", "fn f() { crate::Sea::new() }"),
        source("c", "use super::a;"),
        source("d", "use crate::a::{crate_d};\nuse super::super::a;"),
        source("e", "use crate::a;"),
    ];
    let mut imports = imports(&sources);
    let found: Vec<&str> = imports["a"].iter().map(String::as_str).collect();
    assert_eq!(found, ["b", "d"]);
    let circling: Vec<&String> = in_circles(&imports).into_iter().collect();
    assert_eq!(circling, ["a", "b", "c", "d"]);
    imports.remove("c");
    imports.get_mut("d").unwrap().clear();
    assert!(in_circles(&imports).is_empty());
}
