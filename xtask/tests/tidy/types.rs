//! How large types are: one whose methods are spread over many files is as hard to read as a file with all of them.

use crate::bounds;
use crate::source::product;
use std::collections::BTreeMap;

/// Methods of a type, over all of its crate.
const METHODS_MAX: usize = 40;

#[test]
fn types_are_small() {
    let mut methods: BTreeMap<String, usize> = BTreeMap::new();
    for source in product() {
        let file = syn::parse_file(&source.text).expect("Rust");
        count(&source.package, &file.items, &mut methods);
    }
    methods.retain(|_, count| *count > METHODS_MAX);
    bounds::check("methods", &methods);
}

fn count(package: &str, items: &[syn::Item], methods: &mut BTreeMap<String, usize>) {
    for item in items {
        let syn::Item::Impl(item) = item else {
            continue;
        };
        let syn::Type::Path(of) = &*item.self_ty else {
            continue;
        };
        if let (None, Some(last)) = (&item.trait_, of.path.segments.last()) {
            let functions = item.items.iter();
            let functions = functions.filter(|item| matches!(item, syn::ImplItem::Fn(_)));
            *methods
                .entry(format!("{package}::{}", last.ident))
                .or_default() += functions.count();
        }
    }
}
