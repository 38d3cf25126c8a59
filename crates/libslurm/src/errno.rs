//! Error numbers as programs see them, and their texts.

#![allow(unsafe_code)]

use crate::error::{FAILED, complain, set};
use crate::memory;
use libc::{c_char, c_int};
use muster_cli::library;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// Texts that were given to programs, which may keep them.
static TEXTS: Mutex<BTreeMap<c_int, usize>> = Mutex::new(BTreeMap::new());

/// Slurm's text for a number, or the C library's.
pub fn text(number: c_int) -> String {
    if let Some(text) = library::error_text(number) {
        return text.to_owned();
    }
    match number {
        0 => "No error".to_owned(),
        FAILED => "Unspecified error".to_owned(),
        // SAFETY: the text is copied at once.
        1..1000 => unsafe {
            let at = libc::strerror(number);
            memory::text(at).unwrap_or_default()
        },
        _ => format!("Slurm error {number}"),
    }
}

value_functions! {
    /// Text of an error number. It stays where it is.
    fn slurm_strerror(number: c_int) -> *mut c_char, else std::ptr::null_mut(), {
        let mut texts = TEXTS.lock().unwrap_or_else(PoisonError::into_inner);
        let own = texts.entry(number).or_insert_with(|| {
            memory::string(&text(number)) as usize
        });
        Ok(*own as *mut c_char)
    }
    /// Error number of the thread.
    fn slurm_get_errno() -> c_int, else FAILED, {
        // SAFETY: the place is the thread's own.
        Ok(unsafe { *libc::__errno_location() })
    }
}

quiet_functions! {
    /// Sets the error number of the thread.
    fn slurm_seterrno(number: c_int) {
        set(number);
    }
    /// Writes a text and that of the thread's error number to standard error.
    fn slurm_perror(message: *const c_char) {
        let number = *libc::__errno_location();
        complain(&format!("{}: {}", memory::text(message).unwrap_or_default(), text(number)));
        set(number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::INVALID_JOB_ID;

    #[test]
    fn numbers_have_texts() {
        assert_eq!(text(INVALID_JOB_ID), "Invalid job id specified");
        assert_eq!(text(libc::ENOENT), "No such file or directory");
        assert_eq!(text(2999), "Slurm error 2999");
    }
}
