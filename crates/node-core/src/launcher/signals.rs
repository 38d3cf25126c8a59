//! Numbers of the signals that the launcher itself sends, as Linux has them on all processors that Muster runs on.

pub(super) const INT: i32 = 2;
pub(super) const KILL: i32 = 9;
pub(super) const TERM: i32 = 15;
pub(super) const CONT: i32 = 18;
pub(super) const STOP: i32 = 19;
pub(super) const TSTP: i32 = 20;
/// The highest.
pub(super) const RTMAX: i32 = 64;
