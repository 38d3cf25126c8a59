//! Output of our own commands. A reader that goes away (`muster up | head`) ends the command quietly, as SIGPIPE would
//! end another program.

use std::fmt::Arguments;
use std::io::{self, Write};

/// The exit code of a program that SIGPIPE ends, as a shell tells it.
const BROKEN_PIPE: i32 = 141;

/// Text on standard output.
macro_rules! say {
    ($($text:tt)*) => { $crate::say::out(format_args!($($text)*)) };
}

/// A line on standard error. That nobody reads it is no reason to fail.
macro_rules! complain {
    ($($text:tt)*) => { $crate::say::err(format_args!($($text)*)) };
}

pub(crate) fn out(text: Arguments<'_>) {
    let mut out = io::stdout().lock();
    if out.write_fmt(text).and_then(|()| out.flush()).is_err() {
        std::process::exit(BROKEN_PIPE);
    }
}

pub(crate) fn err(text: Arguments<'_>) {
    let _ = writeln!(io::stderr(), "{text}");
}
