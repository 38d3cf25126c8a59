//! ctld
