//! Layers: a module of the scheduler imports those below it, never one above; the crates below all others are the vocabulary
//! (`model`), which knows no other, and the state machine over it (`core`), which few import. A table has every import between crates.

use crate::cycles::imports;
use crate::source::{product, root};
use std::fs;

/// The top-level modules of `sched`, the lowest first, as its `lib.rs` has them.
const SCHED: [&str; 9] = [
    "order", "nodes", "demand", "place", "backfill", "queue", "pass", "engine", "forecast",
];

/// Who imports the state machine: who keeps a state, plans on one or follows its events.
const IMPORT_CORE: [&str; 4] = ["acct", "ctld", "sched", "sim"];

/// Which crate imports which, but for tests. A new edge is a decision: ARCHITECTURE.md says them in short.
const IMPORTS: [(&str, &[&str]); 28] = [
    ("acct", &["core", "model", "proto"]),
    ("channel", &[]),
    (
        "cli",
        &[
            "channel",
            "conf",
            "model",
            "node-core",
            "pmix",
            "proto",
            "trust",
        ],
    ),
    ("closer", &[]),
    ("commands", &["cli"]),
    ("conf", &["model"]),
    ("core", &["model"]),
    (
        "ctld",
        &[
            "acct", "channel", "closer", "conf", "core", "journal", "model", "proto", "sched",
            "trust", "verifier",
        ],
    ),
    ("dbd", &["acct", "conf", "model", "proto"]),
    ("drmaa", &["cli", "conf", "model", "proto"]),
    ("drmaa2", &["cli", "conf", "model", "proto"]),
    ("fixtures", &[]),
    ("hostile", &["channel", "conf", "model", "proto", "trust"]),
    ("journal", &[]),
    ("libslurm", &["cli", "conf", "model", "proto"]),
    ("model", &["validate-derive"]),
    (
        "muster",
        &[
            "acct", "channel", "cli", "conf", "ctld", "dbd", "model", "node", "pmix", "proto",
            "restd", "sim", "trust", "verifier",
        ],
    ),
    (
        "node",
        &[
            "channel",
            "closer",
            "conf",
            "model",
            "node-core",
            "pmix",
            "proto",
            "script",
            "trust",
        ],
    ),
    ("node-core", &["model", "proto", "trust"]),
    ("pmix", &["channel", "model", "proto"]),
    ("proto", &["model"]),
    ("restd", &["channel", "cli", "closer", "trust"]),
    ("sched", &["core", "model"]),
    ("script", &[]),
    (
        "sim",
        &[
            "conf",
            "core",
            "ctld",
            "journal",
            "model",
            "node-core",
            "proto",
            "sched",
            "trust",
        ],
    ),
    ("trust", &["channel", "closer", "conf", "model"]),
    ("validate-derive", &[]),
    ("verifier", &["conf", "model", "proto"]),
];

/// The crates of the workspace that a crate imports, but for its tests.
fn dependencies(package: &str) -> Vec<String> {
    let path = root().join("crates").join(package).join("Cargo.toml");
    let text = fs::read_to_string(path).expect("a manifest");
    let sections = text.split("\n[");
    let own = sections.filter(|s| s.starts_with("dependencies]") || s.starts_with("target."));
    let lines = own.flat_map(str::lines);
    let names = lines.filter_map(|line| line.strip_prefix("muster-"));
    names
        .filter_map(|name| name.split(['.', ' ']).next())
        .map(str::to_owned)
        .collect()
}

#[test]
fn crates_import_what_the_table_has() {
    let entries = fs::read_dir(root().join("crates")).expect("a folder");
    let mut crates: Vec<String> = entries
        .map(|entry| {
            let name = entry.expect("an entry").file_name();
            name.to_string_lossy().into_owned()
        })
        .collect();
    crates.sort();
    assert_eq!(crates, IMPORTS.map(|(name, _)| name), "crates in the table");
    for (name, allowed) in IMPORTS {
        let mut imported = dependencies(name);
        imported.sort();
        assert_eq!(imported, allowed, "imports of {name}");
    }
}

#[test]
fn crates_import_the_vocabulary_from_where_it_is() {
    for entry in fs::read_dir(root().join("crates")).expect("a folder") {
        let name = entry.expect("an entry").file_name();
        let name = name.to_string_lossy();
        let imported = dependencies(&name);
        if name == "model" {
            assert_eq!(imported, ["validate-derive"], "imports of model");
        }
        let has_core = imported.iter().any(|other| other == "core");
        assert!(
            !has_core || IMPORT_CORE.contains(&&*name),
            "{name} imports core: what all need of it belongs into model"
        );
    }
    for source in product() {
        let exports = ["pub use muster_model", "pub use muster_core"];
        assert!(
            !exports.iter().any(|words| source.code().contains(words)),
            "{} exports what is another crate's",
            source.path
        );
    }
}

#[test]
fn layers_of_the_scheduler_import_downward() {
    let sources: Vec<_> = product()
        .into_iter()
        .filter(|source| source.package == "sched")
        .collect();
    let layer_of = |module: &str| {
        let layer = SCHED.iter().position(|layer| *layer == module);
        layer.unwrap_or_else(|| panic!("{module} is in no layer"))
    };
    for (from, imported) in imports(&sources) {
        let above = |to: &&String| layer_of(to) > layer_of(&from);
        let above: Vec<&String> = imported.iter().filter(above).collect();
        assert!(
            above.is_empty(),
            "{from} imports {above:?}, which are above it"
        );
    }
}

/// Processes of a node that have different privileges.
const ROLES: [&str; 5] = ["agent", "launcher", "relay", "stepd", "supervisor"];

#[test]
fn processes_of_a_node_do_not_import_each_other() {
    let sources: Vec<_> = product()
        .into_iter()
        .filter(|source| source.package == "node")
        .collect();
    let imports = imports(&sources);
    for role in ROLES {
        let others = imports[role].iter();
        let others = others.filter(|to| ROLES.contains(&to.as_str()));
        assert_eq!(others.count(), 0, "{role} imports {:?}", imports[role]);
    }
}
