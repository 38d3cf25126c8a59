//! Handling of a defect in a daemon of the node: the daemon logs it and ends, instead of continuing
//! with a part of itself missing. Its supervisor starts it again; jobs do not depend on it.

use crate::sys;
use std::io::Write as _;

/// Exit status after a panic, as Rust's own.
const STATUS: i32 = 101;

/// Makes a panic end the process at once, with its source location in the log. Launcher and step
/// daemons fork children without exec, so no cleanup code may run after a child's panic.
pub(crate) fn end_at_panic() {
    std::panic::set_hook(Box::new(|panic| {
        eprintln!("process {}: {panic}", std::process::id());
        sys::exit_now(STATUS);
    }));
}

/// From now on a panic of any thread or task ends the process.
pub fn end_on_panic() {
    std::panic::set_hook(Box::new(|info| {
        let backtrace = std::backtrace::Backtrace::capture();
        log::error!("this process ends because of a defect: {info}\n{backtrace}");
        // A process without a log uses standard error.
        if log::max_level() == log::LevelFilter::Off {
            let _ = writeln!(
                std::io::stderr(),
                "this process ends because of a defect: {info}"
            );
        }
        log::logger().flush();
        sys::exit_now(STATUS);
    }));
}
