//! Finds and opens libpmix when it is first needed. It is never closed, and building does not need
//! it.

use crate::sys::{self, Functions};
use std::io;
use std::sync::OnceLock;

/// Directories to search for the library if the dynamic loader does not find it.
const PLACES: [&str; 5] = [
    "/usr/local/lib/libpmix.so.2",
    "/usr/local/lib64/libpmix.so.2",
    "/opt/pmix/lib/libpmix.so.2",
    "/opt/pmix/lib64/libpmix.so.2",
    "/usr/lib/pmix/libpmix.so.2",
];
/// File name of the library in every version since 2.
const NAME: &str = "libpmix.so.2";
/// Variable with the path of another libpmix, for sites that keep several versions.
const VARIABLE: &str = "MUSTER_PMIX_LIB";
/// Supported versions.
const KNOWN: std::ops::RangeInclusive<u32> = 3..=5;

/// A loaded libpmix.
pub struct Library {
    pub(crate) functions: Functions,
    /// Version text: `OpenPMIx 4.2.2...`.
    pub banner: String,
    /// Major version: 3, 4 or 5.
    pub major: u32,
    /// Path of the library file.
    pub path: String,
}

impl std::fmt::Debug for Library {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Library")
            .field("banner", &self.banner)
            .finish_non_exhaustive()
    }
}

/// The process's libpmix, opened at the first call.
///
/// # Errors
/// No library can be opened, or its version is not supported; the text says what to install.
pub fn library() -> io::Result<&'static Library> {
    static LIBRARY: OnceLock<Result<Library, String>> = OnceLock::new();
    LIBRARY
        .get_or_init(|| open().map_err(|e| e.to_string()))
        .as_ref()
        .map_err(|e| io::Error::other(e.clone()))
}

fn open() -> io::Result<Library> {
    let own = std::env::var(VARIABLE).ok().filter(|v| !v.is_empty());
    let functions = match &own {
        Some(path) => sys::open(path).map_err(|e| io::Error::other(format!("{path}: {e}")))?,
        None => sys::open(NAME).or_else(|e| {
            PLACES
                .iter()
                .find_map(|place| sys::open(place).ok())
                .ok_or_else(|| {
                    io::Error::other(format!(
                        "no PMIx library can be opened ({e}); install it (Debian: libpmix2), or name it in {VARIABLE}"
                    ))
                })
        })?,
    };
    let banner = version(&functions);
    let major = major(&banner)
        .filter(|m| KNOWN.contains(m))
        .ok_or_else(|| {
            io::Error::other(format!(
                "the PMIx library calls itself '{banner}'; versions {} to {} are supported",
                KNOWN.start(),
                KNOWN.end()
            ))
        })?;
    Ok(Library {
        path: sys::file_of(functions.get_version as *const std::ffi::c_void)
            .unwrap_or_else(|| NAME.to_owned()),
        functions,
        banner,
        major,
    })
}

#[allow(unsafe_code)]
fn version(functions: &Functions) -> String {
    // SAFETY: the function takes nothing and gives a string of the library's own.
    unsafe { sys::copied((functions.get_version)()) }
}

/// The banner `OpenPMIx 4.2.2rc2 (PMIx Standard: ...)` means version 4.
fn major(banner: &str) -> Option<u32> {
    banner
        .split(|c: char| !c.is_ascii_digit())
        .find(|digits| !digits.is_empty())?
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions() {
        assert_eq!(major("OpenPMIx 4.2.2rc2 (PMIx Standard: 4.2)"), Some(4));
        assert_eq!(major("OpenPMIx 5.0.11, repo rev: v5.0.11"), Some(5));
        assert_eq!(major("PMIx"), None);
    }
}
