//! `muster import`: what a site has of another workload manager, as Muster's own.

pub(crate) mod archive;
mod sge;
mod slurmdbd;

use anyhow::{Result, bail};
use std::process::ExitCode;

/// Runs it.
pub(crate) fn main(words: &[String]) -> Result<ExitCode> {
    match words.first().map(String::as_str) {
        Some("sge") if crate::help::is_wanted(words) => {
            say!("{}", sge::HELP);
            Ok(ExitCode::SUCCESS)
        }
        Some("sge") => sge::main(words),
        Some("archive") if crate::help::is_wanted(words) => {
            say!("{}", archive::HELP);
            Ok(ExitCode::SUCCESS)
        }
        Some("archive") => archive::main(words),
        Some("slurmdbd") => slurmdbd::main(words),
        Some(other) => bail!("'{other}' cannot be imported: 'muster import --help' says what can"),
        None => bail!("what is to be imported? 'muster import --help' says what can be"),
    }
}
