//! Replacements of the standard and the C library in the small program.
#![allow(unsafe_code)]

use crate::bare;
use core::panic::PanicInfo;

// The kernel starts a program with its arguments on the stack, which is aligned as functions that are called expect it.
#[cfg(target_arch = "x86_64")]
core::arch::global_asm!(
    ".globl _start",
    "_start:",
    "xor ebp, ebp",
    "call {start}",
    "ud2",
    start = sym start,
);

#[cfg(target_arch = "aarch64")]
core::arch::global_asm!(
    ".globl _start",
    "_start:",
    "mov x29, #0",
    "mov x30, #0",
    "b {start}",
    start = sym start,
);

extern "C" fn start() -> ! {
    crate::main()
}

/// Ends as the launcher and its other processes do when they panic.
#[panic_handler]
fn panic(_: &PanicInfo<'_>) -> ! {
    bare::write(2, b"muster-shim: a process for a script panics\n");
    bare::exit(101)
}

/// Functions that compiled code calls to copy, fill and compare memory. Volatile, as the compiler would make calls of
/// the same functions of plain loops.
///
/// # Safety
/// As in C.
#[unsafe(no_mangle)]
unsafe extern "C" fn memcpy(to: *mut u8, from: *const u8, len: usize) -> *mut u8 {
    for i in 0..len {
        // SAFETY: the caller's.
        unsafe { to.add(i).write_volatile(from.add(i).read()) };
    }
    to
}

/// # Safety
/// As in C.
#[unsafe(no_mangle)]
unsafe extern "C" fn memmove(to: *mut u8, from: *const u8, len: usize) -> *mut u8 {
    if to.addr() <= from.addr() {
        // SAFETY: the caller's; bytes are read before they are written.
        return unsafe { memcpy(to, from, len) };
    }
    for i in (0..len).rev() {
        // SAFETY: the caller's.
        unsafe { to.add(i).write_volatile(from.add(i).read()) };
    }
    to
}

/// # Safety
/// As in C.
#[unsafe(no_mangle)]
unsafe extern "C" fn memset(to: *mut u8, byte: i32, len: usize) -> *mut u8 {
    for i in 0..len {
        // SAFETY: the caller's.
        unsafe { to.add(i).write_volatile(byte as u8) };
    }
    to
}

/// # Safety
/// As in C.
#[unsafe(no_mangle)]
unsafe extern "C" fn memcmp(a: *const u8, b: *const u8, len: usize) -> i32 {
    for i in 0..len {
        // SAFETY: the caller's.
        let (a, b) = unsafe { (a.add(i).read_volatile(), b.add(i).read_volatile()) };
        if a != b {
            return i32::from(a) - i32::from(b);
        }
    }
    0
}

/// # Safety
/// As in C.
#[unsafe(no_mangle)]
unsafe extern "C" fn bcmp(a: *const u8, b: *const u8, len: usize) -> i32 {
    // SAFETY: the caller's.
    unsafe { memcmp(a, b, len) }
}

/// # Safety
/// As in C.
#[unsafe(no_mangle)]
unsafe extern "C" fn strlen(text: *const core::ffi::c_char) -> usize {
    let mut len = 0;
    // SAFETY: the caller's; nothing behind the zero is read.
    while unsafe { text.add(len).read_volatile() } != 0 {
        len += 1;
    }
    len
}

/// The core library is compiled with unwinding and refers to this function. It is not called: a panic ends the process.
#[unsafe(no_mangle)]
extern "C" fn rust_eh_personality() -> ! {
    bare::exit(101)
}
