//! Memory that programs and this library share: all of it is malloc(3)'s, so that `slurm_xfree` and functions for whole answers
//! may each free what the other side has made.

#![allow(unsafe_code)]

use libc::{c_char, c_int, c_void, size_t};
use std::ffi::CStr;
use std::ptr::null_mut;

/// Memory for a value. A process without memory is ended, as by Rust's own allocator.
fn allocated<T>(bytes: usize) -> *mut T {
    // SAFETY: any size may be asked for.
    let at: *mut T = unsafe { libc::malloc(bytes.max(1)) }.cast();
    if at.is_null() {
        std::process::abort();
    }
    at
}

/// A value where programs may read, change and free it.
pub fn placed<T: Copy>(value: T) -> *mut T {
    array(&[value])
}

/// Values one behind the other.
pub fn array<T: Copy>(values: &[T]) -> *mut T {
    let at = allocated::<T>(size_of_val(values));
    // SAFETY: malloc(3) gives room for any type of this size.
    unsafe { std::ptr::copy_nonoverlapping(values.as_ptr(), at, values.len()) };
    at
}

/// As above; null if there are none.
pub fn array_or_null<T: Copy>(values: &[T]) -> *mut T {
    match values {
        [] => null_mut(),
        values => array(values),
    }
}

/// A string, up to a zero byte in it.
pub fn string(text: &str) -> *mut c_char {
    bytes(text.as_bytes())
}

/// As above, of bytes that need not be UTF-8.
pub fn bytes(text: &[u8]) -> *mut c_char {
    let length = text.iter().position(|b| *b == 0).unwrap_or(text.len());
    let at = allocated::<c_char>(length + 1);
    // SAFETY: there is room for the text and a zero byte.
    unsafe {
        std::ptr::copy_nonoverlapping(text.as_ptr().cast(), at, length);
        at.add(length).write(0);
    }
    at
}

/// A text of the program's; nothing of null. Bytes that are not UTF-8 are replaced.
///
/// # Safety
/// `at` is null or a string.
pub unsafe fn text(at: *const c_char) -> Option<String> {
    // SAFETY: as the caller promises.
    unsafe { raw(at) }.map(|own| String::from_utf8_lossy(own).into_owned())
}

/// As above, as bytes.
///
/// # Safety
/// `at` is null or a string that lives for `'a`.
pub unsafe fn raw<'a>(at: *const c_char) -> Option<&'a [u8]> {
    if at.is_null() {
        return None;
    }
    // SAFETY: as the caller promises.
    Some(unsafe { CStr::from_ptr(at) }.to_bytes())
}

/// As above, of at most `most` bytes: no byte behind them is read.
///
/// # Safety
/// `at` is null, or a string or `most` bytes that live for `'a`.
unsafe fn beginning<'a>(at: *const c_char, most: size_t) -> Option<&'a [u8]> {
    if at.is_null() {
        return None;
    }
    // SAFETY: strnlen(3) reads no more than that.
    Some(unsafe { std::slice::from_raw_parts(at.cast::<u8>(), libc::strnlen(at, most)) })
}

/// Writes a text with a zero byte into a buffer of the program's, cut to its size.
///
/// # Safety
/// `at` is null or has room for `size` bytes.
pub unsafe fn write_cut(text: &str, at: *mut c_char, size: usize) {
    if at.is_null() || size == 0 {
        return;
    }
    let length = text.len().min(size - 1);
    // SAFETY: as the caller promises; the last byte is for the zero.
    unsafe {
        std::ptr::copy_nonoverlapping(text.as_ptr().cast(), at, length);
        at.add(length).write(0);
    }
}

/// Writes a value where the program wants it.
///
/// # Safety
/// `at` is null or leads to room for a value.
pub unsafe fn give<T>(at: *mut T, value: T) {
    if !at.is_null() {
        // SAFETY: as the caller promises.
        unsafe { at.write(value) };
    }
}

/// Memory of Slurm's allocator: zeroed where that is asked for. `may_fail` has null returned where the process would end.
///
/// # Safety
/// None: any size may be asked for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slurm_xcalloc(
    count: size_t,
    size: size_t,
    _clear: bool,
    may_fail: bool,
    _file: *const c_char,
    _line: c_int,
    _function: *const c_char,
) -> *mut c_void {
    if count == 0 || size == 0 {
        return null_mut();
    }
    // SAFETY: calloc(3) checks the product.
    let at = unsafe { libc::calloc(count, size) };
    if at.is_null() && !may_fail {
        std::process::abort();
    }
    at
}

/// Changes the size of memory of Slurm's allocator; added bytes are zero.
///
/// # Safety
/// `at` leads to null or to memory of malloc(3)'s.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slurm_xrecalloc(
    at: *mut *mut c_void,
    count: size_t,
    size: size_t,
    _clear: bool,
    may_fail: bool,
    _file: *const c_char,
    _line: c_int,
    _function: *const c_char,
) -> *mut c_void {
    let Some(bytes) = count.checked_mul(size).filter(|bytes| *bytes > 0) else {
        return null_mut();
    };
    // SAFETY: as the caller promises.
    unsafe {
        let old = *at;
        let had = match old.is_null() {
            true => 0,
            false => libc::malloc_usable_size(old),
        };
        let new = libc::calloc(1, bytes);
        if new.is_null() {
            if may_fail {
                return null_mut();
            }
            std::process::abort();
        }
        if had > 0 {
            std::ptr::copy_nonoverlapping(old.cast::<u8>(), new.cast::<u8>(), had.min(bytes));
        }
        libc::free(old);
        *at = new;
        new
    }
}

/// Frees memory, and sets the program's pointer to null.
///
/// # Safety
/// `at` is null or leads to null or to memory of malloc(3)'s.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slurm_xfree(at: *mut *mut c_void) {
    if at.is_null() {
        return;
    }
    // SAFETY: as the caller promises.
    unsafe { libc::free(std::ptr::replace(at, null_mut())) };
}

/// Frees memory; for lists, which call it for each entry.
///
/// # Safety
/// `at` is null or memory of malloc(3)'s.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slurm_xfree_ptr(at: *mut c_void) {
    // SAFETY: as the caller promises.
    unsafe { libc::free(at) };
}

/// A copy of a string; null of null.
///
/// # Safety
/// `own` is null or a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slurm_xstrdup(own: *const c_char) -> *mut c_char {
    // SAFETY: as the caller promises.
    unsafe { raw(own) }.map_or(null_mut(), bytes)
}

/// As above, of at most `most` bytes.
///
/// # Safety
/// `own` is null or a string, or has `most` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slurm_xstrndup(own: *const c_char, most: size_t) -> *mut c_char {
    // SAFETY: as the caller promises.
    unsafe { beginning(own, most) }.map_or(null_mut(), bytes)
}

/// Compares strings as strcmp(3) does; null is less than any.
///
/// # Safety
/// Each is null or a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slurm_xstrcmp(left: *const c_char, right: *const c_char) -> c_int {
    // SAFETY: as the caller promises.
    let (left, right) = unsafe { (raw(left), raw(right)) };
    left.cmp(&right) as c_int
}

/// As above, of at most `most` bytes.
///
/// # Safety
/// Each is null or a string, or has `most` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slurm_xstrncmp(
    left: *const c_char,
    right: *const c_char,
    most: size_t,
) -> c_int {
    // SAFETY: as the caller promises.
    let (left, right) = unsafe { (beginning(left, most), beginning(right, most)) };
    left.cmp(&right) as c_int
}

/// As `slurm_xstrcmp`, for which letters of both cases are equal.
///
/// # Safety
/// Each is null or a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slurm_xstrcasecmp(left: *const c_char, right: *const c_char) -> c_int {
    let lower = |own: Option<&[u8]>| own.map(<[u8]>::to_ascii_lowercase);
    // SAFETY: as the caller promises.
    let (left, right) = unsafe { (raw(left), raw(right)) };
    lower(left).cmp(&lower(right)) as c_int
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fields of fixed width have no zero byte at their ends.
    #[test]
    fn bounded_comparisons_read_no_further() {
        // SAFETY: the page is this test's; any access behind it would end the process.
        unsafe {
            // A multiple of the size of a page on all machines.
            let page = 65_536;
            let own = libc::mmap(
                null_mut(),
                2 * page,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            );
            assert_ne!(own, libc::MAP_FAILED);
            let behind = own.cast::<c_char>().add(page);
            assert_eq!(libc::mprotect(behind.cast(), page, libc::PROT_NONE), 0);
            let field = behind.sub(4);
            std::ptr::copy_nonoverlapping(c"abcd".as_ptr(), field, 4);
            assert_eq!(slurm_xstrncmp(field, c"abcdef".as_ptr(), 4), 0);
            assert_eq!(slurm_xstrncmp(c"abcx".as_ptr(), field, 3), 0);
            assert!(slurm_xstrncmp(field, c"abcx".as_ptr(), 4) < 0);
            assert!(slurm_xstrncmp(null_mut(), field, 4) < 0);
            libc::munmap(own, 2 * page);
        }
    }
}
