//! Memory that programs and this library share: all of it is malloc(3)'s, so that either may free what the other has made, as
//! bindings of other languages do.

#![allow(unsafe_code)]

use crate::error::{DrmaaError, quietly};
use libc::{c_char, c_void};
use std::ffi::CStr;

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
    let at = allocated::<T>(size_of::<T>());
    // SAFETY: malloc(3) gives room for any type of this size.
    unsafe { at.write(value) };
    at
}

/// As above, with a text behind the value that goes with it; `value` gets the place of the text.
pub fn placed_with_text<T: Copy>(text: &str, value: impl FnOnce(*mut c_char) -> T) -> *mut T {
    let length = text.find('\0').unwrap_or(text.len());
    let at = allocated::<T>(size_of::<T>() + length + 1);
    // SAFETY: there is room for both, and the text ends in a zero byte.
    unsafe {
        let behind = at.add(1).cast::<c_char>();
        std::ptr::copy_nonoverlapping(text.as_ptr().cast(), behind, length);
        behind.add(length).write(0);
        at.write(value(behind));
    }
    at
}

/// A string, up to a zero byte in it.
pub fn string(text: &str) -> *mut c_char {
    let length = text.find('\0').unwrap_or(text.len());
    let at = allocated::<c_char>(length + 1);
    // SAFETY: there is room for the text and a zero byte.
    unsafe {
        std::ptr::copy_nonoverlapping(text.as_ptr().cast(), at, length);
        at.add(length).write(0);
    }
    at
}

/// A copy of a string; null of null.
///
/// # Safety
/// `own` is null or a string.
pub unsafe fn copy(own: *const c_char) -> *mut c_char {
    if own.is_null() {
        return std::ptr::null_mut();
    }
    // SAFETY: as the caller promises.
    let length = unsafe { CStr::from_ptr(own) }.to_bytes_with_nul().len();
    let at = allocated::<c_char>(length);
    // SAFETY: both have that many bytes.
    unsafe { std::ptr::copy_nonoverlapping(own, at, length) };
    at
}

/// Takes the pointer of the program's, and leaves null in its place.
///
/// # Safety
/// `at` is null or leads to a pointer.
pub unsafe fn taken<T>(at: *mut *mut T) -> Option<*mut T> {
    if at.is_null() {
        return None;
    }
    // SAFETY: as the caller promises.
    let own = unsafe { std::ptr::replace(at, std::ptr::null_mut()) };
    Some(own).filter(|own| !own.is_null())
}

/// Frees what a pointer of the program's leads to, and sets it to null.
///
/// # Safety
/// `at` is null or leads to null or to memory from malloc(3).
pub unsafe fn free_placed<T>(at: *mut *mut T) {
    // SAFETY: as the caller promises.
    if let Some(own) = unsafe { taken(at) } {
        // SAFETY: as the caller promises.
        unsafe { libc::free(own.cast()) };
    }
}

/// Frees a string.
///
/// # Safety
/// As of [`free_placed`].
pub unsafe fn free_string(at: *mut *mut c_char) {
    // SAFETY: as the caller promises.
    unsafe { free_placed(at) };
}

/// Frees a string that is an entry of a list.
///
/// # Safety
/// As of [`free_placed`].
pub unsafe extern "C" fn free_entry(at: *mut *mut c_void) {
    // SAFETY: as the caller promises.
    quietly(|| unsafe { free_placed(at) });
}

/// Frees a string.
///
/// # Safety
/// As of [`free_placed`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drmaa2_string_free(at: *mut *mut c_char) {
    // SAFETY: as the caller promises.
    quietly(|| unsafe { free_string(at) });
}

/// A text of the program's; nothing of null.
///
/// # Safety
/// `at` is null or a string that lives for `'a`.
pub unsafe fn text<'a>(at: *const c_char, what: &str) -> Result<Option<&'a str>, DrmaaError> {
    if at.is_null() {
        return Ok(None);
    }
    // SAFETY: as the caller promises.
    let own = unsafe { CStr::from_ptr(at) }.to_str();
    own.map(Some)
        .map_err(|_| DrmaaError::argument(format!("{what} is not valid UTF-8")))
}

/// A text of the program's that must be there.
///
/// # Safety
/// As of [`text`].
pub unsafe fn needed<'a>(at: *const c_char, what: &str) -> Result<&'a str, DrmaaError> {
    // SAFETY: as the caller promises.
    let own = unsafe { text(at, what) }?;
    own.ok_or_else(|| DrmaaError::argument(format!("{what} is null")))
}
