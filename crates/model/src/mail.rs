//! The options of a job about mail.

use crate::validate::Validate;
use minicbor::{Decode, Encode};

/// The events that a job's mail reports, and its address.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Encode, Decode, Validate)]
pub struct MailOptions {
    /// `--mail-type` as text: names with commas between; empty if it was not given.
    #[n(0)]
    pub types: String,
    /// `--mail-user`; empty for the job's owner.
    #[n(1)]
    pub user: String,
}

impl MailOptions {
    /// The options of these texts; `None` if both are empty.
    #[must_use]
    pub fn of_texts(types: String, user: String) -> Option<Self> {
        (!types.is_empty() || !user.is_empty()).then_some(Self { types, user })
    }
}
