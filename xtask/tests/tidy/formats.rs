//! What is stored and sent: each numbered field of each message, event and record, as docs/formats/fields.txt has it. A change
//! of one shows there, for a review to see. `UPDATE_DOCS=1 cargo test -p xtask --test tidy` writes it.
//!
//! A number that is given up stays in the file as `gone`, and is not given again: a record that was written before would be
//! read as something else.

use crate::source::{Source, product, root};
use quote::ToTokens;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;

const FILE: &str = "docs/formats/fields.txt";
const HEAD: &str = "\
# Numbered fields of all that is stored or sent: types, and of each its numbers, names and kinds. Written by
# UPDATE_DOCS=1 cargo test -p xtask --test tidy
# A number that is gone is not given again.
";
/// What stands for a number that was given up.
const GONE: &str = "gone";
/// Enums whose variants are kept in examples that later versions must read, and the folder of these.
const EVENTS: [&str; 4] = [
    "core::event::Event",
    "core::event::JobChange",
    "core::event::NodeChange",
    "core::event::accounts::AccountsChange",
];

/// Lines of a type by their numbers; those of a variant's fields have two.
type Fields = BTreeMap<Vec<u32>, String>;

#[test]
fn stored_and_sent_fields_are_as_written_down() {
    let path = root().join(FILE);
    let text = fs::read_to_string(&path).unwrap_or_default();
    let known = parse(&text);
    let mut found = fields();
    let reused = given_again(&found, &known);
    assert!(reused.is_empty(), "numbers given again: {reused:#?}");
    keep_gone(&mut found, &known);
    let now = print(&found);
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&path, now).expect("docs can be written");
    } else if now != text {
        let lines: BTreeSet<&str> = text.lines().collect();
        let new: Vec<&str> = now.lines().filter(|line| !lines.contains(line)).collect();
        panic!("{FILE} differs, which UPDATE_DOCS=1 writes anew; lines that it has not:\n{new:#?}");
    }
}

/// Events of which there is an example in a file of crates/core/tests/formats.
#[test]
fn each_event_is_kept_for_later_versions() {
    let folder = root().join("crates/core/tests/formats");
    let mut kept = String::new();
    for entry in fs::read_dir(folder).expect("crates/core/tests/formats") {
        kept += &fs::read_to_string(entry.expect("an entry").path()).expect("a text");
    }
    let kept: BTreeSet<&str> = kept.lines().filter_map(|l| l.split(' ').next()).collect();
    let fields = fields();
    let missing: Vec<String> = EVENTS
        .iter()
        .flat_map(|name| {
            let (_, last) = name.rsplit_once("::").expect("a path");
            let variants = fields[*name]
                .iter()
                .filter(|(numbers, _)| numbers.len() == 1);
            variants
                .map(move |(_, line)| format!("{last}::{}", line.split(' ').next().unwrap_or("")))
        })
        .filter(|variant| !kept.contains(variant.as_str()))
        .collect();
    assert!(
        missing.is_empty(),
        "add examples of {missing:?} to crates/core/tests/formats by UPDATE_FIXTURES=1 cargo test -p muster-core --test life"
    );
}

/// All numbered fields of the product, by type.
fn fields() -> BTreeMap<String, Fields> {
    let mut types = BTreeMap::new();
    for source in product() {
        let file = syn::parse_file(&source.text).expect("Rust");
        for item in &file.items {
            read_item(&source, item, &mut types);
        }
    }
    types
}

fn read_item(source: &Source, item: &syn::Item, types: &mut BTreeMap<String, Fields>) {
    let (name, attributes) = match item {
        syn::Item::Struct(item) => (&item.ident, &item.attrs),
        syn::Item::Enum(item) => (&item.ident, &item.attrs),
        _ => return,
    };
    let mut fields = Fields::new();
    match item {
        syn::Item::Struct(item) => read_fields(&item.fields, &[], &mut fields),
        syn::Item::Enum(item) => {
            for variant in &item.variants {
                let Some((number, how)) = number(&variant.attrs) else {
                    continue;
                };
                fields.insert(vec![number], format!("{}{how}", variant.ident));
                read_fields(&variant.fields, &[number], &mut fields);
            }
        }
        _ => {}
    }
    if fields.is_empty() {
        return;
    }
    let mut path = vec![source.package.clone()];
    path.extend(source.modules.iter().cloned());
    let (_, how) = number(attributes).unwrap_or((0, options(attributes)));
    path.push(format!("{name}{how}"));
    let before = types.insert(path.join("::"), fields);
    assert!(before.is_none(), "{} is there twice", path.join("::"));
}

fn read_fields(of: &syn::Fields, above: &[u32], into: &mut Fields) {
    for field in of {
        let Some((number, how)) = number(&field.attrs) else {
            continue;
        };
        let name = field
            .ident
            .as_ref()
            .map_or("_".to_owned(), ToString::to_string);
        let kind = field.ty.to_token_stream().to_string().replace(' ', "");
        let kind = kind.replace(',', ", ");
        let numbers = [above, &[number]].concat();
        let before = into.insert(numbers, format!("{name}: {kind}{how}"));
        assert!(before.is_none(), "a number twice: {name}");
    }
}

/// The number of a field or variant, and how it is encoded where that is said.
fn number(attributes: &[syn::Attribute]) -> Option<(u32, String)> {
    let parse = |text: &str| text.trim_matches(['(', ')', ' ']).parse::<u32>().ok();
    for attribute in attributes {
        let (path, tokens) = parts(attribute);
        let found = match path.as_str() {
            "n" | "b" => parse(&tokens),
            "cbor" => {
                let mut words = tokens.split(',').map(str::trim);
                words.find_map(|word| parse(word.strip_prefix(['n', 'b'])?))
            }
            _ => None,
        };
        if let Some(number) = found {
            return Some((number, options(attributes)));
        }
    }
    None
}

/// What else the derive is told of an encoding.
fn options(attributes: &[syn::Attribute]) -> String {
    let all = attributes
        .iter()
        .map(parts)
        .filter(|(path, _)| path == "cbor");
    let words = all.flat_map(|(_, tokens)| {
        let words = tokens.split(',').map(|word| word.trim().to_owned());
        words.collect::<Vec<String>>()
    });
    let is_number = |word: &String| word.starts_with("n(") || word.starts_with("b(");
    let words: Vec<String> = words
        .map(|word| word.replace(' ', ""))
        .filter(|word| !is_number(word) && !word.is_empty())
        .collect();
    if words.is_empty() {
        return String::new();
    }
    format!(" [{}]", words.join(", "))
}

/// The name of an attribute, and what is in its parentheses.
fn parts(attribute: &syn::Attribute) -> (String, String) {
    let path = attribute.path().to_token_stream().to_string();
    let tokens = match &attribute.meta {
        syn::Meta::List(list) => list.tokens.to_string(),
        _ => String::new(),
    };
    (path, tokens)
}

fn print(types: &BTreeMap<String, Fields>) -> String {
    let mut text = HEAD.to_owned();
    for (name, fields) in types {
        let _ = writeln!(text, "\n{name}");
        for (numbers, line) in fields {
            let indent = "  ".repeat(numbers.len());
            let number = numbers.last().copied().unwrap_or_default();
            let _ = writeln!(text, "{indent}{number} {line}");
        }
    }
    text
}

/// What [`print`] wrote.
fn parse(text: &str) -> BTreeMap<String, Fields> {
    let mut types: BTreeMap<String, Fields> = BTreeMap::new();
    let (mut name, mut variant) = ("", 0);
    for line in text
        .lines()
        .filter(|l| !l.is_empty() && !l.starts_with('#'))
    {
        let trimmed = line.trim_start();
        let depth = (line.len() - trimmed.len()) / 2;
        if depth == 0 {
            name = line;
            types.insert(name.to_owned(), Fields::new());
            continue;
        }
        let (number, rest) = trimmed.split_once(' ').expect("a number and a name");
        let number = number.parse().expect("a number");
        let numbers = if depth == 1 {
            variant = number;
            vec![number]
        } else {
            vec![variant, number]
        };
        let fields = types.entry(name.to_owned()).or_default();
        fields.insert(numbers, rest.to_owned());
    }
    types
}

/// Numbers that were gone and are there again.
fn given_again(found: &BTreeMap<String, Fields>, known: &BTreeMap<String, Fields>) -> Vec<String> {
    let mut again = Vec::new();
    for (name, fields) in known {
        let gone = fields.iter().filter(|(_, line)| *line == GONE);
        for (numbers, _) in gone {
            if let Some(line) = found.get(name).and_then(|now| now.get(numbers)) {
                again.push(format!("{name} {numbers:?} {line}"));
            }
        }
    }
    again
}

/// Numbers of types that are still there, and that have left them, stay as gone.
fn keep_gone(found: &mut BTreeMap<String, Fields>, known: &BTreeMap<String, Fields>) {
    for (name, now) in found {
        let before = known.get(name).into_iter().flatten();
        let left: Vec<&Vec<u32>> = before
            .map(|(numbers, _)| numbers)
            .filter(|numbers| !now.contains_key(*numbers))
            .collect();
        // Those of a variant that is gone go with it.
        let with_variant = |n: &&&Vec<u32>| n.len() > 1 && !now.contains_key(&n[..1]);
        let keep: Vec<Vec<u32>> = left
            .iter()
            .filter(|numbers| !with_variant(numbers))
            .map(|numbers| (*numbers).clone())
            .collect();
        for numbers in keep {
            now.insert(numbers, GONE.to_owned());
        }
    }
}

#[cfg(test)]
fn of(text: &str) -> BTreeMap<String, Fields> {
    let source = Source {
        path: String::new(),
        package: "p".to_owned(),
        is_test: false,
        modules: vec!["m".to_owned()],
        text: String::new(),
    };
    let mut types = BTreeMap::new();
    for item in &syn::parse_file(text).expect("Rust").items {
        read_item(&source, item, &mut types);
    }
    types
}

#[test]
fn fields_are_read_and_numbers_not_given_again() {
    let before = of("struct S { #[n(0)] a: u8, #[cbor(n(2), default)] b: Vec<(u8, T)>, c: X }
        enum E { #[n(1)] A, #[n(4)] B { #[n(0)] #[cbor(with = \"x::y\")] id: T }, #[n(5)] C(#[b(0)] &'a str) }");
    let text = print(&before);
    let expected = "p::m::E\n  1 A\n  4 B\n    0 id: T [with=\"x::y\"]\n  5 C\n    0 _: &'astr\n\n\
        p::m::S\n  0 a: u8\n  2 b: Vec<(u8, T)> [default]\n";
    assert_eq!(
        text.strip_prefix(HEAD).expect("the head").trim_start(),
        expected
    );
    assert_eq!(parse(&text), before);
    let mut now = of("struct S { #[n(0)] a: u8, #[n(3)] d: u8 } enum E { #[n(1)] A, #[n(5)] C }");
    keep_gone(&mut now, &before);
    let gone = print(&now);
    for line in ["  2 gone\n", "  4 gone\n", "    0 gone\n"] {
        assert!(gone.contains(line), "{gone}");
    }
    let again = of("struct S { #[n(2)] e: u8 }");
    assert_eq!(given_again(&again, &parse(&gone)), ["p::m::S [2] e: u8"]);
}
