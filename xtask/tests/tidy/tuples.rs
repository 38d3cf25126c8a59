//! Tuples with a meaning: what a type with named fields would say at each place where it is read.

use crate::bounds;
use crate::source::product;
use std::collections::BTreeMap;
use syn::{Fields, FnArg, GenericArgument, ImplItem, Item, Pat, PathArguments, Type};

/// Parameters that are taken apart where they come in, and fields of structures and names of types that have a tuple in them, by
/// crate. Pairs of texts are names and values.
#[test]
fn tuples_are_not_types_of_the_field() {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for source in product() {
        let file = syn::parse_file(&source.text).expect("Rust");
        let mut found = Found::default();
        file.items.iter().for_each(|item| found.look_at(item));
        let found = [
            ("parameters", found.parameters),
            ("fields", found.fields),
            ("aliases", found.aliases),
        ];
        for (what, count) in found {
            if count > 0 {
                *counts
                    .entry(format!("{} {what}", source.package))
                    .or_default() += count;
            }
        }
    }
    bounds::check("tuples", &counts);
}

#[derive(Debug, Default, PartialEq)]
struct Found {
    parameters: usize,
    fields: usize,
    aliases: usize,
}

impl Found {
    fn look_at(&mut self, item: &Item) {
        match item {
            Item::Fn(function) => self.count_parameters(&function.sig),
            Item::Impl(block) => {
                for item in &block.items {
                    if let ImplItem::Fn(function) = item {
                        self.count_parameters(&function.sig);
                    }
                }
            }
            Item::Struct(of) => self.count_fields(&of.fields),
            Item::Enum(of) => {
                let variants = of.variants.iter();
                variants.for_each(|variant| self.count_fields(&variant.fields));
            }
            Item::Type(of) if has_tuple(&of.ty) => self.aliases += 1,
            _ => {}
        }
    }

    fn count_parameters(&mut self, signature: &syn::Signature) {
        let inputs = signature.inputs.iter();
        let packed = inputs.filter(|input| match input {
            FnArg::Typed(typed) => matches!(&*typed.pat, Pat::Tuple(_)),
            FnArg::Receiver(_) => false,
        });
        self.parameters += packed.count();
    }

    fn count_fields(&mut self, fields: &Fields) {
        self.fields += fields.iter().filter(|field| has_tuple(&field.ty)).count();
    }
}

fn has_tuple(of: &Type) -> bool {
    match of {
        Type::Tuple(tuple) => {
            let texts = tuple.elems.iter().filter(|elem| is_text(elem)).count();
            tuple.elems.len() > 1 && texts < tuple.elems.len()
        }
        Type::Reference(to) => has_tuple(&to.elem),
        Type::Slice(of) => has_tuple(&of.elem),
        Type::Array(of) => has_tuple(&of.elem),
        Type::Path(path) => {
            path.path
                .segments
                .iter()
                .any(|segment| match &segment.arguments {
                    PathArguments::AngleBracketed(arguments) => arguments.args.iter().any(
                        |argument| matches!(argument, GenericArgument::Type(of) if has_tuple(of)),
                    ),
                    _ => false,
                })
        }
        _ => false,
    }
}

fn is_text(of: &Type) -> bool {
    match of {
        Type::Reference(to) => is_text(&to.elem),
        Type::Path(path) => path
            .path
            .segments
            .last()
            .is_some_and(|last| last.ident == "String" || last.ident == "str"),
        _ => false,
    }
}

#[test]
fn tuples_are_found() {
    let text = "fn f((a, b): (u32, u64), c: (u8, u8)) {}\n\
                struct S { a: Vec<(u32, Option<u64>)>, b: Vec<(String, String)>, c: u32 }\n\
                impl S { fn g(&self, (a, b): (u8, u8)) {} }\n\
                type A<'a> = (&'a str, u32); type B = (String, String); type C = Vec<u8>;";
    let file = syn::parse_file(text).expect("Rust");
    let mut found = Found::default();
    file.items.iter().for_each(|item| found.look_at(item));
    let expected = Found {
        parameters: 2,
        fields: 1,
        aliases: 1,
    };
    assert_eq!(found, expected);
}
