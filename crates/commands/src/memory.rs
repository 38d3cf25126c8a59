//! C's functions that move and compare memory, for the x86_64 C library that this program is linked with: its own
//! begin each copy with string instructions that take longer to start than the few bytes of a listing's field take to
//! copy (a third of squeue's time), and compare byte by byte. `tests` compares each with a plain loop.
//!
//! Nothing here may be written as a loop over bytes or as a call that copies: the compiler would make a call of these very
//! functions of it. Words are read and written unaligned, the last ones overlapping those before.

#![allow(unsafe_code)]

use core::arch::asm;
use core::ffi::{c_int, c_void};

/// As wide as a register of every x86_64.
type Wide = core::arch::x86_64::__m128i;

/// Above this, the processor's own copying is quicker than a loop.
const LONG: usize = 512;

/// # Safety
/// `from` is readable as a `T`, aligned or not.
#[inline(always)]
unsafe fn get<T: Copy>(from: *const u8) -> T {
    // SAFETY: the caller's promise.
    unsafe { from.cast::<T>().read_unaligned() }
}

/// # Safety
/// `to` is writable as a `T`, aligned or not.
#[inline(always)]
unsafe fn put<T: Copy>(to: *mut u8, value: T) {
    // SAFETY: the caller's promise.
    unsafe { to.cast::<T>().write_unaligned(value) }
}

/// Copies `size` bytes, from one to two times the width of a `T`: the first and the last `T`. Both are read before either
/// is written, so that the two places may overlap.
///
/// # Safety
/// As for memmove.
#[inline(always)]
unsafe fn ends<T: Copy>(to: *mut u8, from: *const u8, size: usize) {
    let last = size - size_of::<T>();
    // SAFETY: both words lie within `size` bytes.
    unsafe {
        let (head, tail) = (get::<T>(from), get::<T>(from.add(last)));
        put(to, head);
        put(to.add(last), tail);
    }
}

/// Up to 32 bytes, which may overlap.
///
/// # Safety
/// As for memmove.
#[inline(always)]
unsafe fn short(to: *mut u8, from: *const u8, size: usize) {
    // SAFETY: each arm copies `size` bytes.
    unsafe {
        match size {
            0 => {}
            1 => put(to, get::<u8>(from)),
            2..=3 => ends::<u16>(to, from, size),
            4..=7 => ends::<u32>(to, from, size),
            8..=15 => ends::<u64>(to, from, size),
            _ => ends::<Wide>(to, from, size),
        }
    }
}

/// C17 7.24.2.1.
///
/// # Safety
/// As in C.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn memcpy(
    to: *mut c_void,
    from: *const c_void,
    size: usize,
) -> *mut c_void {
    let (start, to, from) = (to, to.cast::<u8>(), from.cast::<u8>());
    // SAFETY: `size` bytes at both places are the caller's promise, and no access is beyond them.
    unsafe {
        if size <= 32 {
            short(to, from, size);
        } else if size >= LONG {
            asm!("rep movsb", inout("rcx") size => _, inout("rdi") to => _, inout("rsi") from => _,
                options(nostack, preserves_flags));
        } else {
            forward(to, from, size);
        }
    }
    start
}

/// More than 16 bytes from the first to the last; what is ahead of the place that is written is still as it was.
///
/// # Safety
/// As for memmove, and `to` does not lie within the `size` bytes after `from`.
#[inline(always)]
unsafe fn forward(to: *mut u8, from: *const u8, size: usize) {
    let last = size - 16;
    // SAFETY: every word lies within `size` bytes; the last is read before anything is written.
    unsafe {
        let tail = get::<Wide>(from.add(last));
        let mut at = 0;
        while at < last {
            put(to.add(at), get::<Wide>(from.add(at)));
            at += 16;
        }
        put(to.add(last), tail);
    }
}

/// More than 16 bytes from the last to the first.
///
/// # Safety
/// As for memmove, and `to` lies after `from`.
#[inline(always)]
unsafe fn backward(to: *mut u8, from: *const u8, size: usize) {
    // SAFETY: every word lies within `size` bytes; the first is read before anything is written.
    unsafe {
        let head = get::<Wide>(from);
        let mut at = size;
        while at > 16 {
            at -= 16;
            put(to.add(at), get::<Wide>(from.add(at)));
        }
        put(to, head);
    }
}

/// C17 7.24.2.2.
///
/// # Safety
/// As in C.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn memmove(
    to: *mut c_void,
    from: *const c_void,
    size: usize,
) -> *mut c_void {
    let (start, to, from) = (to, to.cast::<u8>(), from.cast::<u8>());
    let ahead = (to as usize).wrapping_sub(from as usize);
    // SAFETY: `size` bytes at both places are the caller's promise, and no access is beyond them.
    unsafe {
        if size <= 32 {
            short(to, from, size);
        } else if ahead >= size {
            forward(to, from, size);
        } else {
            backward(to, from, size);
        }
    }
    start
}

/// C17 7.24.4.1.
///
/// # Safety
/// As in C.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn memcmp(a: *const c_void, b: *const c_void, size: usize) -> c_int {
    let (a, b) = (a.cast::<u8>(), b.cast::<u8>());
    // SAFETY: `size` bytes at both places are the caller's promise, and no access is beyond them.
    unsafe {
        if size < 8 {
            return by_bytes(a, b, size);
        }
        let last = size - 8;
        let mut at = 0;
        while at < last {
            let (x, y) = (get::<u64>(a.add(at)), get::<u64>(b.add(at)));
            if x != y {
                return order(x, y);
            }
            at += 8;
        }
        order(get(a.add(last)), get(b.add(last)))
    }
}

/// # Safety
/// As for memcmp.
#[inline(always)]
unsafe fn by_bytes(a: *const u8, b: *const u8, size: usize) -> c_int {
    let mut at = 0;
    while at < size {
        // SAFETY: `at` is less than `size`.
        let (x, y) = unsafe { (get::<u8>(a.add(at)), get::<u8>(b.add(at))) };
        if x != y {
            return c_int::from(x) - c_int::from(y);
        }
        at += 1;
    }
    0
}

/// The bytes of the words in the order in which they lie in memory decide.
#[inline(always)]
fn order(x: u64, y: u64) -> c_int {
    x.swap_bytes().cmp(&y.swap_bytes()) as c_int
}

/// What compilers call where only equality matters.
///
/// # Safety
/// As for memcmp.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn bcmp(a: *const c_void, b: *const c_void, size: usize) -> c_int {
    // SAFETY: the same promise.
    unsafe { memcmp(a, b, size) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes() -> impl Iterator<Item = usize> {
        (0..=130).chain([255, 256, 257, LONG - 1, LONG, LONG + 1, 3 * LONG + 7])
    }

    fn pattern(length: usize) -> Vec<u8> {
        (0..length).map(|i| (i * 7 + i / 251) as u8).collect()
    }

    #[test]
    fn copies_the_given_bytes_and_nothing_else() {
        for size in sizes() {
            for shift in 0..17 {
                let from = pattern(size + 32);
                let mut to = vec![0xee; size + 64];
                let at = to[shift..].as_mut_ptr();
                // SAFETY: both places have `size` bytes.
                let start = unsafe { memcpy(at.cast(), from[3..].as_ptr().cast(), size) };
                assert_eq!(start, at.cast());
                assert_eq!(to[shift..shift + size], from[3..3 + size], "{size}");
                assert!(to[..shift].iter().all(|b| *b == 0xee), "{size}");
                assert!(to[shift + size..].iter().all(|b| *b == 0xee), "{size}");
            }
        }
    }

    #[test]
    fn moves_to_either_side() {
        for size in sizes() {
            for distance in (0..70).chain([size / 2, size, size + 1]) {
                for (from, to) in [(0, distance), (distance, 0)] {
                    let mut memory = pattern(size + distance + 1);
                    let mut expected = memory.clone();
                    expected.copy_within(from..from + size, to);
                    let base = memory.as_mut_ptr();
                    // SAFETY: both places lie within `memory`.
                    unsafe { memmove(base.add(to).cast(), base.add(from).cast(), size) };
                    assert_eq!(memory, expected, "{size} bytes from {from} to {to}");
                }
            }
        }
    }

    #[test]
    fn compares_as_slices_do() {
        for size in sizes() {
            let a = pattern(size);
            for differs in (0..size).step_by(5).chain([size]) {
                let mut b = a.clone();
                if let Some(byte) = b.get_mut(differs) {
                    *byte = byte.wrapping_add(0x81);
                }
                // SAFETY: both have `size` bytes.
                let (found, equal) = unsafe {
                    let (a, b) = (a.as_ptr().cast(), b.as_ptr().cast());
                    (memcmp(a, b, size), bcmp(a, b, size) == 0)
                };
                assert_eq!(found.signum(), a.cmp(&b) as c_int, "{size}, {differs}");
                assert_eq!(equal, a == b);
            }
        }
    }
}
