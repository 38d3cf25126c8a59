//! What happens when a daemon of the node meets a defect of its own: it says so in the log and ends, rather than go on with
//! a part of itself missing. Its supervisor starts it again; jobs do not depend on it.

use crate::sys;
use std::io::Write as _;

/// Exit status after a panic, as Rust's own.
const STATUS: i32 = 101;

/// Has a panic end the process at once, with its place in the log. Launcher and step daemons fork children without exec, so
/// nothing may run on the way out of a child's panic.
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
        // What has no log has standard error.
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
