//! Numbers of signals on Linux, on all processors that Muster runs on.

/// Asks a process to end, as from a terminal.
pub const SIGINT: i32 = 2;
/// Ends a process.
pub const SIGKILL: i32 = 9;
/// Asks a process to end.
pub const SIGTERM: i32 = 15;
/// Lets a stopped process go on.
pub const SIGCONT: i32 = 18;
/// Stops a process.
pub const SIGSTOP: i32 = 19;
/// Asks a process to stop.
pub const SIGTSTP: i32 = 20;
/// The highest signal.
pub const SIGRTMAX: i32 = 64;
