//! The process's first steps. The standard library's own would read the memory map to find the stack's guard page and
//! set up a signal stack to report overflows on: a tenth of what a command costs. What matters of them is done here.

use nix::libc;
use std::ffi::CStr;
use std::fs::File;
use std::os::fd::IntoRawFd;
use std::process::ExitCode;

/// Called by the C library. Arguments are read where they are needed, by `std::env::args_os`; only the choice of the heap
/// comes before anything is allocated.
// SAFETY: the one definition of this symbol, with the signature that the C library calls.
#[allow(unsafe_code)]
#[unsafe(no_mangle)]
extern "C" fn main(argc: libc::c_int, argv: *const *const libc::c_char) -> libc::c_int {
    if (0..2.min(argc)).any(|i| is_controller(argv, i)) {
        crate::heap::of_the_controller();
    }
    fill_standard_streams();
    ignore_broken_pipes();
    // As std does: a panic has said its words, and the exit status is 101.
    let code = std::panic::catch_unwind(super::main_by_name).map_or(101, number);
    // This, and not a return, writes what standard output still holds.
    std::process::exit(code)
}

/// Whether the program's name or its first argument says that it is the controller, or what works as hard.
fn is_controller(argv: *const *const libc::c_char, index: libc::c_int) -> bool {
    // SAFETY: the C library hands over `argc` pointers to strings, and `index` is less than `argc`.
    #[allow(unsafe_code)]
    let word = unsafe { CStr::from_ptr(*argv.offset(index as isize)) }.to_bytes();
    let name = word.rsplit(|b| *b == b'/').next().unwrap_or_default();
    matches!(name, b"slurmctld" | b"ctld" | b"emulate" | b"sim")
}

/// Files opened later must not become standard streams because those were closed.
fn fill_standard_streams() {
    for fd in 0..=2 {
        // SAFETY: asking for the flags of a number that is no open file is an error, nothing more.
        #[allow(unsafe_code)]
        let closed = unsafe { libc::fcntl(fd, libc::F_GETFD) } < 0;
        if closed && let Ok(null) = File::options().read(true).write(true).open("/dev/null") {
            // The lowest free number is this one; it stays open.
            let _ = null.into_raw_fd();
        }
    }
}

/// Writing to a closed pipe is an error of the write, not the end of the process.
fn ignore_broken_pipes() {
    // SAFETY: ignoring a signal installs no code.
    #[allow(unsafe_code)]
    unsafe {
        libc::signal(libc::SIGPIPE, libc::SIG_IGN);
    }
}

/// An exit code's number, which std keeps to itself.
fn number(code: ExitCode) -> i32 {
    let same = |n: &u8| ExitCode::from(*n) == code;
    (0..=u8::MAX).find(same).map_or(1, i32::from)
}
