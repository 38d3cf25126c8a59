//! The class that a job is made of: what its user asks for of one, and what the controller keeps of it with the job. What
//! classes there are is in the site's file (`muster_conf::job_classes`); nothing here knows it.

use crate::limits::TEXT_BYTES_MAX;
use crate::validate::Validate;
use minicbor::{Decode, Encode};

/// Bytes of the longest name of a class with its variant.
pub const CLASS_NAME_BYTES_MAX: usize = 256;
/// Bytes of the rules of a variant, which are kept with each job of it.
pub const CLASS_RULES_BYTES_MAX: usize = 4 << 10;
/// Attributes that one submission may name as given or as cleared.
pub const CLASS_WORDS_MAX: usize = 64;

const _: () = assert!(CLASS_RULES_BYTES_MAX < TEXT_BYTES_MAX);

/// The class of a job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Encode, Decode, Validate)]
pub struct JobClass {
    /// `NAME` or `NAME.VARIANT`; `NONE` in a submission that wants none.
    #[n(0)]
    #[valid(max_bytes = CLASS_NAME_BYTES_MAX)]
    pub name: String,
    /// The rules of the variant when the job was submitted, a line for each attribute; changes of the job are checked by them.
    /// Set by the controller, never trusted from the client.
    #[n(1)]
    #[valid(max_bytes = CLASS_RULES_BYTES_MAX)]
    pub rules: String,
    /// Attributes that the user named and that a job always has, so that nothing else says whether they were named. Of a
    /// submission only.
    #[n(2)]
    #[valid(max_items = CLASS_WORDS_MAX)]
    pub given: Vec<String>,
    /// Attributes of the class, or `ATTRIBUTE KEY` of a list, that the user does not want. Of a submission only.
    #[n(3)]
    #[valid(max_items = CLASS_WORDS_MAX)]
    pub cleared: Vec<String>,
}

/// The name that means no class.
pub const NO_CLASS: &str = "NONE";
