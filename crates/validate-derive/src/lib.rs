//! `#[derive(Validate)]`: an implementation of `muster_model::validate::Validate` that visits every field of a struct and
//! of every variant of an enum. A field that is added later is checked without being named anywhere else.
//!
//! Attributes tighten or widen the default bounds of a field:
//!
//! | attribute | meaning |
//! |-|-|
//! | `#[valid(max_bytes = N)]` | texts and byte strings in it have at most N bytes |
//! | `#[valid(max_items = N)]` | lists and maps in it have at most N elements |
//! | `#[valid(min = A, max = B)]` | numbers in it are in this range; each end may be left out |
//! | `#[valid(with = path)]` | `path(&value)` must agree as well |
//!
//! On a type, bounds are those of all its fields that say nothing else, and `with` is asked after the fields.
#![forbid(unsafe_code)]

use proc_macro2::TokenStream;
use quote::{format_ident, quote};
use syn::spanned::Spanned;
use syn::{Attribute, Data, DeriveInput, Expr, Fields, Path, parse_macro_input};

/// Implements `Validate`.
#[proc_macro_derive(Validate, attributes(valid))]
pub fn derive_validate(input: proc_macro::TokenStream) -> proc_macro::TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    expand(&input)
        .unwrap_or_else(syn::Error::into_compile_error)
        .into()
}

fn expand(input: &DeriveInput) -> syn::Result<TokenStream> {
    let name = &input.ident;
    let on_type = Rules::of(&input.attrs)?;
    let default = on_type.bounds(&quote! { ::muster_model::validate::Bounds::DEFAULT });
    let checks = match &input.data {
        Data::Struct(data) => {
            let (pattern, checks) = fields(&data.fields, &default)?;
            quote! { let Self #pattern = self; #checks }
        }
        Data::Enum(data) => {
            let mut arms = TokenStream::new();
            for variant in &data.variants {
                let (name, (pattern, checks)) =
                    (&variant.ident, fields(&variant.fields, &default)?);
                arms.extend(quote! { Self::#name #pattern => { #checks } });
            }
            quote! { match self { #arms } }
        }
        Data::Union(data) => {
            let text = "a union cannot be validated";
            return Err(syn::Error::new(data.union_token.span(), text));
        }
    };
    let whole = on_type.with.map(|with| {
        quote! { #with(self).map_err(::muster_model::validate::Invalid::from)?; }
    });
    let (generics, arguments, conditions) = input.generics.split_for_impl();
    Ok(quote! {
        #[automatically_derived]
        impl #generics ::muster_model::validate::Validate for #name #arguments #conditions {
            fn validate_within(
                &self,
                _: &::muster_model::validate::Bounds,
            ) -> ::core::result::Result<(), ::muster_model::validate::Invalid> {
                #checks
                #whole
                ::core::result::Result::Ok(())
            }
        }
    })
}

/// The pattern that takes all fields, and the checks of each.
fn fields(fields: &Fields, default: &TokenStream) -> syn::Result<(TokenStream, TokenStream)> {
    let (mut names, mut checks) = (Vec::new(), TokenStream::new());
    for (place, field) in fields.iter().enumerate() {
        let local = format_ident!("field_{place}");
        let rules = Rules::of(&field.attrs)?;
        let at = field.ident.as_ref().map(|name| {
            let name = name.to_string();
            quote! { .map_err(|invalid| invalid.at(#name)) }
        });
        let bounds = rules.bounds(default);
        checks.extend(quote! {
            {
                const BOUNDS: ::muster_model::validate::Bounds = #bounds;
                ::muster_model::validate::Validate::validate_within(#local, &BOUNDS) #at ?;
            }
        });
        if let Some(with) = &rules.with {
            checks.extend(quote! {
                #with(#local).map_err(::muster_model::validate::Invalid::from) #at ?;
            });
        }
        names.push(match &field.ident {
            Some(name) => quote! { #name: #local },
            None => quote! { #local },
        });
    }
    let pattern = match fields {
        Fields::Named(_) => quote! { { #(#names),* } },
        Fields::Unnamed(_) => quote! { ( #(#names),* ) },
        Fields::Unit => TokenStream::new(),
    };
    Ok((pattern, checks))
}

/// Rules of `#[valid(...)]`.
#[derive(Default)]
struct Rules {
    max_bytes: Option<Expr>,
    max_items: Option<Expr>,
    min: Option<Expr>,
    max: Option<Expr>,
    with: Option<Path>,
}

impl Rules {
    fn of(attributes: &[Attribute]) -> syn::Result<Rules> {
        let mut rules = Rules::default();
        for attribute in attributes.iter().filter(|a| a.path().is_ident("valid")) {
            attribute.parse_nested_meta(|meta| {
                let value = meta.value()?;
                if meta.path.is_ident("max_bytes") {
                    rules.max_bytes = Some(value.parse()?);
                } else if meta.path.is_ident("max_items") {
                    rules.max_items = Some(value.parse()?);
                } else if meta.path.is_ident("min") {
                    rules.min = Some(value.parse()?);
                } else if meta.path.is_ident("max") {
                    rules.max = Some(value.parse()?);
                } else if meta.path.is_ident("with") {
                    rules.with = Some(value.parse()?);
                } else {
                    return Err(meta.error("expected max_bytes, max_items, min, max or with"));
                }
                Ok(())
            })?;
        }
        Ok(rules)
    }

    /// These bounds, put over others.
    fn bounds(&self, over: &TokenStream) -> TokenStream {
        let mut bounds = over.clone();
        if let Some(most) = &self.max_bytes {
            bounds.extend(quote! { .with_bytes(#most) });
        }
        if let Some(most) = &self.max_items {
            bounds.extend(quote! { .with_items(#most) });
        }
        if self.min.is_some() || self.max.is_some() {
            let end = |given: &Option<Expr>, none: TokenStream| {
                given.as_ref().map_or(none, |e| quote! { (#e) as i128 })
            };
            let least = end(&self.min, quote! { i128::MIN });
            let most = end(&self.max, quote! { i128::MAX });
            bounds.extend(quote! { .with_range(#least, #most) });
        }
        bounds
    }
}
