//! Who waits, and what others may do meanwhile: what nodes have gained, when the first in line will fit, and which promises
//! are kept.

pub(crate) mod gains;
pub(crate) mod outlook;
pub(crate) mod together;
