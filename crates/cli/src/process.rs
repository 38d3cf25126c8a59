//! The first and the last steps of a process that starts without the standard library's own: those read the memory map to
//! find the stack's guard page and set up a signal stack to report overflows on, a tenth of what a command costs. What
//! matters of them is done here.

use nix::libc;
use std::cell::Cell;
use std::ffi::{CStr, CString};
use std::fs::File;
use std::os::fd::{BorrowedFd, IntoRawFd};
use std::process::ExitCode;

/// The arguments that the C library hands to `main`, the program's name first.
///
/// # Safety
/// `argv` points to `argc` strings that stay as they are, as the C library promises.
#[allow(unsafe_code)]
pub unsafe fn arguments(argc: libc::c_int, argv: *const *const libc::c_char) -> Vec<String> {
    let word = |i| {
        // SAFETY: the caller promises `argc` pointers to strings.
        let text = unsafe { CStr::from_ptr(*argv.add(i)) };
        text.to_string_lossy().into_owned()
    };
    (0..usize::try_from(argc).unwrap_or(0)).map(word).collect()
}

// Environment with which the C library starts a program, up to a null.
#[allow(unsafe_code)]
unsafe extern "C" {
    static environ: *const *const libc::c_char;
}

thread_local! {
    static ALL: Cell<&'static [&'static CStr]> = const { Cell::new(&[]) };
}

/// The variables of this process: `NAME=value`, or what else it was given. std would make two strings of each of them, for
/// each look at them, under a lock: a fifth of what a command does.
pub fn variables() -> &'static [&'static CStr] {
    if ALL.get().is_empty() {
        // They are the process's for good.
        ALL.set(given().collect::<Vec<_>>().leak());
    }
    ALL.get()
}

/// Has this thread see the variables as they are now, in a copy of its own: what a program around a library puts in their place
/// may go. The copies stay for good, one for each change.
pub fn copy_variables() {
    use std::os::unix::ffi::OsStringExt as _;
    let now = std::env::vars_os().filter_map(|(name, value)| {
        let mut text = name.into_vec();
        text.push(b'=');
        text.extend_from_slice(&value.into_vec());
        CString::new(text).ok()
    });
    let now: Vec<CString> = now.collect();
    ALL.with(|all| {
        if !all
            .get()
            .iter()
            .copied()
            .eq(now.iter().map(CString::as_c_str))
        {
            let copies = now
                .into_iter()
                .map(|own| &*Box::leak(own.into_boxed_c_str()));
            all.set(copies.collect::<Vec<_>>().leak());
        }
    });
}

#[allow(unsafe_code)]
fn given() -> impl Iterator<Item = &'static CStr> {
    let places = (0..).map_while(|i| {
        // SAFETY: a program's environment, if it has one, is a list of pointers that ends in a null, which is where
        // this ends too. Commands change nothing of it, so the pointers stay valid.
        let place = unsafe { (!environ.is_null()).then(|| *environ.add(i)) };
        place.filter(|place| !place.is_null())
    });
    // SAFETY: as above; they lead to strings.
    places.map(|place| unsafe { CStr::from_ptr(place) })
}

/// The value of a variable of this process; nothing if it is not UTF-8.
pub fn variable(name: &str) -> Option<&'static str> {
    let value = |variable: &&'static CStr| {
        let rest = variable.to_bytes().strip_prefix(name.as_bytes())?;
        rest.strip_prefix(b"=")
    };
    let found = variables().iter().find_map(value)?;
    str::from_utf8(found).ok()
}

/// Runs `main` as std would: with standard streams that are open, broken pipes as errors of a write, and 101 as the exit
/// status of a panic. Ends the process.
pub fn run(main: impl FnOnce() -> ExitCode + std::panic::UnwindSafe) -> ! {
    fill_standard_streams();
    ignore_broken_pipes();
    let code = std::panic::catch_unwind(main).map_or(101, number);
    // This, and not a return, writes what standard output still holds.
    std::process::exit(code)
}

/// The last part of the name by which a program was called; a login shell's begins with `-`.
#[must_use]
pub fn called_as(word: &str) -> &str {
    let name = word.rsplit('/').next().unwrap_or_default();
    name.trim_start_matches('-')
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

/// The standard streams, without what std makes to read and write them: of input alone that is room for 8 KiB.
#[must_use]
#[allow(unsafe_code)]
pub fn standard_streams() -> [BorrowedFd<'static>; 3] {
    // SAFETY: closed ones of them were opened at the beginning, and nothing closes them.
    [0, 1, 2].map(|fd| unsafe { BorrowedFd::borrow_raw(fd) })
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
