//! Structures of the interface, by the names and types that slurm.h has: C programs read and write them in place. Each is one
//! table of its members, whose types say which memory is freed with it.

#![allow(unsafe_code, missing_docs)]

use members::CMember;

/// Structures of C, with the name that the header gives each.
macro_rules! c_structures {
    ($($(#[$doc:meta])* $name:ident = $header:literal { $($field:ident: $kind:ty,)* })*) => { $(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        #[repr(C)]
        pub struct $name { $(pub $field: $kind,)* }

        impl $name {
            /// One whose numbers are 0 and whose pointers are null.
            pub fn empty() -> $name {
                // SAFETY: members are numbers and pointers, or structures of these.
                unsafe { std::mem::zeroed() }
            }

            /// Sets members by texts that a configuration has for them.
            pub fn read_members(&mut self, text_of: &dyn Fn(&str) -> Option<String>) {
                $(
                    if let Some(text) = text_of(stringify!($field)) {
                        $crate::abi::members::CMember::read_text(&mut self.$field, &text);
                    }
                )*
            }

            /// The lines that the layout program of the tests prints for the header's structure.
            #[cfg(test)]
            pub(crate) fn layout() -> Vec<String> {
                let mut lines = vec![format!(concat!($header, " {}"), size_of::<$name>())];
                $(
                    let member = stringify!($field).trim_start_matches("r#");
                    let at = std::mem::offset_of!($name, $field);
                    lines.push(format!("{}.{member} {at} {}", $header, size_of::<$kind>()));
                )*
                lines
            }
        }

        impl $crate::abi::members::CMember for $name {
            unsafe fn release(self) {
                // SAFETY: as the caller promises of all members.
                unsafe { $($crate::abi::members::CMember::release(self.$field);)* }
            }
        }
    )* };
}

pub mod accounting;
pub mod cluster;
pub mod config;
pub mod jobs;
pub mod members;
pub mod parts;
pub mod requests;

/// Frees an array of structures, and all that they own.
///
/// # Safety
/// `at` is null, or leads to `count` structures in memory of malloc(3)'s that nobody uses any more.
pub unsafe fn release_array<T: CMember + Copy>(at: *mut T, count: u32) {
    if at.is_null() {
        return;
    }
    for place in 0..count as usize {
        // SAFETY: as the caller promises.
        unsafe { at.add(place).read().release() };
    }
    // SAFETY: as the caller promises.
    unsafe { libc::free(at.cast()) };
}

/// Frees a structure, and all that it owns.
///
/// # Safety
/// As of [`release_array`].
pub unsafe fn release_placed<T: CMember + Copy>(at: *mut T) {
    // SAFETY: as the caller promises.
    unsafe { release_array(at, 1) };
}

#[cfg(test)]
mod tests;
