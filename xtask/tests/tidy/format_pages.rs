//! docs/formats/events.md and docs/formats/wire.md: what is stored and what is sent, for readers. They are made of the numbered
//! fields and of the comments in the source, by `UPDATE_DOCS=1 cargo test -p xtask --test tidy`, as fields.txt is.

use crate::formats::{Fields, fields, number};
use crate::source::{product, root};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;

/// How values become bytes: the same for all.
const ENCODING: &str = "\
Values are CBOR (RFC 8949). A structure is an array in which each field stands at the place that is its number; a number that no
field has is null there, and what is missing at the end is as null. A variant is an array of its number and the array of its
fields. *Index only* means that a variant is its number alone, *transparent* that a structure is its only field, *default* that a
field may be missing. `Option` is the value or null, `Vec` an array, a tuple an array, `BTreeMap` a map, `ByteVec` a byte string;
`Box` and `Arc` are what is in them. `CpuSet` is an array of 64-bit words, the lowest CPUs first. `Timestamp` counts milliseconds
since 1970.

Numbers are never given again, so a reader skips what it does not know and takes the default of what is missing. Numbers that were
given up are *gone*. [fields.txt](fields.txt) has the same without explanations, and a test compares it with the code;
`tests/fixtures` of the crates that are named in the types' paths have an example of every variant and field.
";

/// A page, and what is on it.
struct Page {
    file: &'static str,
    head: &'static str,
    /// Heading, explanation, and the types that stand by themselves.
    sections: &'static [(&'static str, &'static str, &'static [&'static str])],
}

const PAGES: [Page; 2] = [
    Page {
        file: "docs/formats/events.md",
        head: "\
# Events and snapshots

What the journal's records and snapshots mean; how they lie in files is in [journal.md](journal.md).
",
        sections: &[
            (
                "Events",
                "A record of the journal is one event.",
                &["core::event::Event"],
            ),
            (
                "Snapshots",
                "A snapshot is the number of its format and a map of the state, whose keys are in core/src/snapshot.rs. \
                 Its values are these.",
                &[
                    "model::job::Job",
                    "model::node::Node",
                    "model::job::array::ArrayInfo",
                    "model::reservation::Reservation",
                    "model::accounts::Accounts",
                    "core::state::run_times::RunTimes",
                ],
            ),
        ],
    },
    Page {
        file: "docs/formats/wire.md",
        head: "\
# Messages

What processes on different sides of a trust boundary, or of different versions, say to each other. A message is one frame: its
length in bytes (four bytes, the highest first) and its value. What the processes of one node say among themselves is in
fields.txt, under `node-core`.

Each connection begins with the version of the protocol that the side speaks which has connected. The other side refuses a
version that it does not speak, with a text that names both.
",
        sections: &[
            (
                "Clients and the controller",
                "",
                &["proto::client::Request", "proto::client::Response"],
            ),
            (
                "Agents and the controller",
                "An agent begins with a `Request` that is `NodeHello`. After the answer, these are sent.",
                &[
                    "proto::node::ToNode",
                    "proto::node::Orders",
                    "proto::node::ToCtld",
                ],
            ),
            (
                "Agents, and who asks them: srun, sstat, scontrol, other agents",
                "",
                &["proto::step::agent::AgentRequest", "proto::step::agent::AgentReply"],
            ),
            (
                "srun and step daemons, and step daemons among themselves",
                "",
                &["proto::step::stepd::ToStepd", "proto::step::stepd::FromStepd"],
            ),
            (
                "MPI hosts of a step among themselves",
                "Hosts that serve PMIx send the first, those that serve PMI-1 or PMI-2 send the second as the bytes of the first's \
                 variant for it.",
                &["pmix::wire::Wire", "pmix::pmi::PmiWire"],
            ),
        ],
    },
];

#[test]
fn pages_about_formats_are_as_the_code_is() {
    let fields = fields();
    let docs = docs();
    let mut elsewhere = BTreeSet::new();
    for page in &PAGES {
        let now = print(page, &fields, &docs, &mut elsewhere);
        let path = root().join(page.file);
        if std::env::var_os("UPDATE_DOCS").is_some() {
            fs::write(&path, now).expect("docs can be written");
        } else {
            let text = fs::read_to_string(&path).unwrap_or_default();
            assert!(
                text == now,
                "{} differs, which UPDATE_DOCS=1 writes anew",
                page.file
            );
        }
    }
}

/// Comments of types, and of their fields and variants by number.
type Docs = BTreeMap<String, BTreeMap<Vec<u32>, String>>;

fn docs() -> Docs {
    let mut all = Docs::new();
    for source in product() {
        let file = syn::parse_file(&source.text).expect("Rust");
        for item in &file.items {
            let mut docs = BTreeMap::new();
            let (name, attributes) = match item {
                syn::Item::Struct(item) => {
                    take_docs(&item.fields, &[], &mut docs);
                    (&item.ident, &item.attrs)
                }
                syn::Item::Enum(item) => {
                    for variant in &item.variants {
                        if let Some((number, _)) = number(&variant.attrs) {
                            docs.insert(vec![number], doc(&variant.attrs));
                            take_docs(&variant.fields, &[number], &mut docs);
                        }
                    }
                    (&item.ident, &item.attrs)
                }
                _ => continue,
            };
            docs.insert(Vec::new(), doc(attributes));
            let modules = source.modules.iter().map(String::as_str);
            let path: Vec<&str> = std::iter::once(&*source.package).chain(modules).collect();
            all.insert(format!("{}::{name}", path.join("::")), docs);
        }
    }
    all
}

fn take_docs(of: &syn::Fields, above: &[u32], into: &mut BTreeMap<Vec<u32>, String>) {
    for field in of {
        if let Some((number, _)) = number(&field.attrs) {
            into.insert([above, &[number]].concat(), doc(&field.attrs));
        }
    }
}

/// A comment as one line, with the names of other types as plain code.
fn doc(attributes: &[syn::Attribute]) -> String {
    let lines = attributes.iter().filter_map(|attribute| {
        let syn::Meta::NameValue(pair) = &attribute.meta else {
            return None;
        };
        let syn::Expr::Lit(value) = &pair.value else {
            return None;
        };
        let syn::Lit::Str(text) = &value.lit else {
            return None;
        };
        let is_doc = pair.path.is_ident("doc");
        is_doc.then(|| text.value().trim().to_owned())
    });
    let text = lines.collect::<Vec<String>>().join(" ");
    let text = text.replace("[`", "`").replace("`]", "`");
    text.replace('|', "\\|").replace('<', "\\<")
}

fn print(
    page: &Page,
    fields: &BTreeMap<String, Fields>,
    docs: &Docs,
    elsewhere: &mut BTreeSet<String>,
) -> String {
    let mut text = format!("{}\n{ENCODING}", page.head);
    let mut others = BTreeSet::new();
    for (heading, what, roots) in page.sections {
        let _ = writeln!(text, "\n## {heading}");
        if !what.is_empty() {
            let _ = writeln!(text, "\n{what}");
        }
        for root in *roots {
            others.extend(muster_fixtures::types_in(env!("CARGO_MANIFEST_DIR"), root));
            print_type(root, fields, docs, &mut text);
        }
    }
    let own = page.sections.iter().flat_map(|(_, _, roots)| *roots);
    let own: BTreeSet<&str> = own.copied().collect();
    others.retain(|path| !own.contains(path.as_str()));
    let _ = writeln!(text, "\n## Types in these");
    let known: Vec<&String> = others.intersection(elsewhere).collect();
    if !known.is_empty() {
        let _ = writeln!(
            text,
            "\nTypes that are not here are in [events.md](events.md)."
        );
    }
    for path in others.difference(elsewhere) {
        print_type(path, fields, docs, &mut text);
    }
    elsewhere.extend(others);
    elsewhere.extend(own.into_iter().map(str::to_owned));
    text
}

fn print_type(path: &str, fields: &BTreeMap<String, Fields>, docs: &Docs, text: &mut String) {
    let of = fields.iter().find_map(|(name, fields)| {
        let (plain, how) = name.split_once(" [").unwrap_or((name, ""));
        (plain == path).then_some((fields, how.trim_end_matches(']')))
    });
    let Some((fields, how)) = of else {
        return;
    };
    let none = BTreeMap::new();
    let docs = docs.get(path).unwrap_or(&none);
    let _ = writeln!(text, "\n### {path}\n");
    let about = docs.get(&Vec::new()).filter(|about| !about.is_empty());
    let how = match how {
        "index_only" => "*Index only.*",
        "transparent" => "*Transparent.*",
        _ => "",
    };
    let about = [about.map_or("", String::as_str), how].join(" ");
    if !about.trim().is_empty() {
        let _ = writeln!(text, "{}\n", about.trim());
    }
    let _ = writeln!(text, "| | | |\n|-:|-|-|");
    for (numbers, line) in fields {
        let doc = docs.get(numbers).map_or("", String::as_str);
        let number = numbers.iter().map(ToString::to_string);
        let number = number.collect::<Vec<String>>().join(".");
        let (line, how) = line.split_once(" [").unwrap_or((line, ""));
        let how = if how.starts_with("default") {
            " *default*"
        } else {
            ""
        };
        let what = match line.split_once(": ") {
            Some(("_", kind)) => format!("`{kind}`"),
            Some((name, kind)) => format!("{name}: `{kind}`"),
            None => format!("**{line}**"),
        };
        let _ = writeln!(text, "| {number} | {what}{how} | {doc} |");
    }
}
