//! Rules for the source itself: each file says what it is, files and types stay small, modules of a crate do not import
//! each other in circles, layers import downward, words of the field are used, names have one meaning, numbers of stored and
//! sent fields stay, messages are validated where they are decoded.
//!
//! What does not keep a rule yet is counted in `bounds/`. A count may only shrink: `UPDATE_TIDY=1 cargo test -p xtask --test
//! tidy` lowers the bounds to what is there, and raises none.

mod bounds;
mod cycles;
mod decoding;
mod documents;
mod files;
mod format_pages;
mod formats;
mod fuzzing;
mod layers;
mod manifests;
mod names;
mod security;
mod source;
mod tuples;
mod types;
mod words;
