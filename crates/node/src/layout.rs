//! Step layout.
