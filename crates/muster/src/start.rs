//! The entry of the process.

use muster_cli::process;
use nix::libc;
use std::ffi::CStr;

/// Called by the C library. Arguments are read where they are needed, by `std::env::args_os`; only the choice of the heap
/// comes before anything is allocated.
// SAFETY: the one definition of this symbol, with the signature that the C library calls.
#[allow(unsafe_code)]
#[unsafe(no_mangle)]
extern "C" fn main(argc: libc::c_int, argv: *const *const libc::c_char) -> libc::c_int {
    if (0..2.min(argc)).any(|i| is_daemon(argv, i)) {
        crate::heap::of_a_daemon();
    }
    process::run(super::main_by_name)
}

/// Whether the program's name or its first argument names the controller, an agent, or a process that works as hard. A
/// shim is none: its memory is copied with each fork. A supervisor has next to nothing to do.
fn is_daemon(argv: *const *const libc::c_char, index: libc::c_int) -> bool {
    // SAFETY: the C library hands over `argc` pointers to strings, and `index` is less than `argc`.
    #[allow(unsafe_code)]
    let word = unsafe { CStr::from_ptr(*argv.offset(index as isize)) }.to_bytes();
    let name = word.rsplit(|b| *b == b'/').next().unwrap_or_default();
    matches!(
        name,
        b"slurmctld" | b"ctld" | b"muster-agent" | b"emulate" | b"sim"
    )
}
