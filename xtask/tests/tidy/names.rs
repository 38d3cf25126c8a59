//! One name, one meaning: types of a crate that have the same name make each of them unclear where two meet.

use crate::bounds;
use crate::source::product;
use std::collections::{BTreeMap, BTreeSet};
use syn::Item;

/// How many names of types each crate defines in more than one module.
#[test]
fn names_of_types_have_one_meaning_in_a_crate() {
    let mut modules: BTreeMap<(String, String), BTreeSet<String>> = BTreeMap::new();
    for source in product() {
        let file = syn::parse_file(&source.text).expect("Rust");
        for name in file.items.iter().filter_map(name_of) {
            let key = (source.package.clone(), name);
            modules.entry(key).or_default().insert(source.path.clone());
        }
    }
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for ((package, _), _) in modules.into_iter().filter(|(_, paths)| paths.len() > 1) {
        *counts.entry(package).or_default() += 1;
    }
    bounds::check("names", &counts);
}

fn name_of(item: &Item) -> Option<String> {
    let name = match item {
        Item::Struct(item) => &item.ident,
        Item::Enum(item) => &item.ident,
        Item::Trait(item) => &item.ident,
        Item::Type(item) => &item.ident,
        _ => return None,
    };
    Some(name.to_string())
}
