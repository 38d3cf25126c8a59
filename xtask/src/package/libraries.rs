//! Requirements of a program on its system, by its own file.

use super::output;
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::Path;
use std::process::Command;

/// The newest versions of symbols that a program asks for.
pub(super) struct Needs {
    /// `GLIBC_`, such as 2.34; none if it is linked statically.
    pub(super) glibc: Option<String>,
    /// `GCC_` of libgcc_s, which unwinds.
    pub(super) libgcc: Option<String>,
}

/// Reads them with `objdump`.
pub(super) fn needs(program: &Path) -> Result<Needs> {
    let text = output(Command::new("objdump").arg("-p").arg(program))?;
    Ok(Needs {
        glibc: newest(&text, "GLIBC_"),
        libgcc: newest(&text, "GCC_"),
    })
}

/// The highest of the versions with a prefix, part by part.
fn newest(text: &str, prefix: &str) -> Option<String> {
    let versions = text
        .split_whitespace()
        .filter_map(|word| word.strip_prefix(prefix));
    let numbers = |version: &str| -> Option<Vec<u32>> {
        version.split('.').map(|part| part.parse().ok()).collect()
    };
    let newest = versions
        .filter_map(|version| Some((numbers(version)?, version)))
        .max()?;
    Some(newest.1.to_owned())
}

/// The processor that a program is for, by the head of its file.
pub(super) fn processor(program: &Path) -> Result<&'static str> {
    let file = fs::read(program).with_context(|| program.display().to_string())?;
    match file.get(18..20) {
        Some([0x3e, 0]) => Ok("x86_64"),
        Some([0xb7, 0]) => Ok("aarch64"),
        _ => bail!(
            "{} is for a processor without a name here",
            program.display()
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_as_numbers() {
        let text = "  required from libc.so.6:\n 0x0 0x00 04 GLIBC_2.9\n GLIBC_2.34 GLIBC_2.4 GLIBC_PRIVATE";
        assert_eq!(newest(text, "GLIBC_").as_deref(), Some("2.34"));
        assert_eq!(newest(text, "GCC_"), None);
    }
}
