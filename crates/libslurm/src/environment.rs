//! Lists of variables that programs make for jobs: `NAME=value`, with a null behind the last.

#![allow(unsafe_code)]

use crate::abi::members::{CMember as _, OwnedTexts};
use crate::memory;
use libc::{c_char, c_int};
use std::ptr::null_mut;

/// The variables of a list.
///
/// # Safety
/// `at` is null or leads to strings with a null behind the last.
unsafe fn variables<'a>(at: *const *const c_char) -> Vec<&'a [u8]> {
    let mut all = Vec::new();
    if at.is_null() {
        return all;
    }
    // SAFETY: as the caller promises.
    while let Some(own) = unsafe { memory::raw(*at.add(all.len())) } {
        all.push(own);
    }
    all
}

/// Whether a variable has a name.
fn is_named(variable: &[u8], name: &[u8]) -> bool {
    let value = variable.strip_prefix(name);
    value.is_some_and(|value| value.first() == Some(&b'='))
}

/// Puts variables into a list in place of those of the same names.
///
/// # Safety
/// `at` is null or leads to a list of this library's, or to null.
unsafe fn put(at: *mut *mut *mut c_char, added: &[&[u8]]) {
    if at.is_null() {
        return;
    }
    // SAFETY: as the caller promises.
    unsafe {
        let old = std::ptr::replace(at, null_mut());
        let name = |own: &[u8]| {
            own.iter()
                .position(|b| *b == b'=')
                .map(|end| own[..end].to_vec())
        };
        let mut all: Vec<Vec<u8>> = variables(old.cast())
            .into_iter()
            .map(<[u8]>::to_vec)
            .collect();
        for own in added {
            if let Some(name) = name(own) {
                all.retain(|other| !is_named(other, &name));
                all.push(own.to_vec());
            }
        }
        let mut made: Vec<*mut c_char> = all.iter().map(|own| memory::bytes(own)).collect();
        made.push(null_mut());
        OwnedTexts(old).release();
        at.write(memory::array(&made));
    }
}

value_functions! {
    /// An empty list.
    fn slurm_env_array_create() -> *mut *mut c_char, else null_mut(), {
        Ok(memory::array(&[null_mut::<c_char>()]))
    }
    /// A copy of a list.
    fn slurm_env_array_copy(own: *const *const c_char) -> *mut *mut c_char, else null_mut(), {
        let mut made: Vec<*mut c_char> = variables(own).into_iter().map(memory::bytes).collect();
        made.push(null_mut());
        Ok(memory::array(&made))
    }
    /// Sets a variable. Gives 1, or 0 where it cannot be one.
    fn slurm_env_array_overwrite(at: *mut *mut *mut c_char, name: *const c_char, value: *const c_char) -> c_int, else 0, {
        let (Some(name), Some(value)) = (memory::raw(name), memory::raw(value)) else { return Ok(0) };
        if name.is_empty() || name.contains(&b'=') {
            return Ok(0);
        }
        put(at, &[&[name, b"=", value].concat()]);
        Ok(1)
    }
    /// Sets a variable that is not there yet. Gives 1, or 0 where it is there.
    fn slurm_env_array_append(at: *mut *mut *mut c_char, name: *const c_char, value: *const c_char) -> c_int, else 0, {
        let Some(own) = memory::raw(name).filter(|_| !at.is_null()) else { return Ok(0) };
        if variables((*at).cast()).iter().any(|other| is_named(other, own)) {
            return Ok(0);
        }
        Ok(slurm_env_array_overwrite(at, name, value))
    }
}

quiet_functions! {
    /// Frees strings with a null behind the last, and sets the program's pointer to null.
    fn slurm_xfree_array(at: *mut *mut *mut c_char) {
        if let Some(own) = at.as_mut() {
            OwnedTexts(std::ptr::replace(own, null_mut())).release();
        }
    }
    /// Sets the variables of another list.
    fn slurm_env_array_merge(at: *mut *mut *mut c_char, other: *const *const c_char) {
        put(at, &variables(other));
    }
    /// Frees a list.
    fn slurm_env_array_free(at: *mut *mut c_char) {
        OwnedTexts(at).release();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_set_once() {
        // SAFETY: the list is this test's.
        unsafe {
            let mut own = slurm_env_array_create();
            let (name, one, two) = (c"A".as_ptr(), c"1".as_ptr(), c"2".as_ptr());
            assert_eq!(slurm_env_array_append(&mut own, name, one), 1);
            assert_eq!(slurm_env_array_append(&mut own, name, two), 0);
            assert_eq!(variables(own.cast()), [b"A=1"]);
            assert_eq!(slurm_env_array_overwrite(&mut own, name, two), 1);
            assert_eq!(slurm_env_array_overwrite(&mut own, c"A=".as_ptr(), two), 0);
            let other = slurm_env_array_copy(own.cast());
            slurm_env_array_merge(&mut own, other.cast());
            assert_eq!(variables(own.cast()), [b"A=2"]);
            slurm_env_array_free(own);
            slurm_env_array_free(other);
        }
    }
}
