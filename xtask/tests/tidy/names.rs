//! One name, one meaning: types that have the same name make each of them unclear where two meet, and a search for one finds
//! both.

use crate::bounds;
use crate::source::product;
use std::collections::{BTreeMap, BTreeSet};
use syn::Item;

/// What the bound of names in several crates is called.
const WORKSPACE: &str = "(workspace)";

/// Where each name of a type is defined: package and path.
fn definitions() -> BTreeMap<String, BTreeSet<(String, String)>> {
    let mut places: BTreeMap<String, BTreeSet<(String, String)>> = BTreeMap::new();
    for source in product() {
        let file = syn::parse_file(&source.text).expect("Rust");
        for name in file.items.iter().filter_map(name_of) {
            let place = (source.package.clone(), source.path.clone());
            places.entry(name).or_default().insert(place);
        }
    }
    places
}

/// How many names of types each crate defines in more than one module, and how many are defined in more than one crate.
#[test]
fn names_of_types_have_one_meaning() {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for places in definitions().into_values() {
        let mut modules: BTreeMap<String, usize> = BTreeMap::new();
        for (package, _) in places {
            *modules.entry(package).or_default() += 1;
        }
        if modules.len() > 1 {
            *counts.entry(WORKSPACE.to_owned()).or_default() += 1;
        }
        for (package, _) in modules.into_iter().filter(|(_, count)| *count > 1) {
            *counts.entry(package).or_default() += 1;
        }
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
