//! Numbers of signals on Linux.

/// Asks a process to end.
pub const SIGTERM: u32 = 15;
/// Ends a process.
pub const SIGKILL: i32 = 9;
