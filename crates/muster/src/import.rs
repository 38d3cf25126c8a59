//! `muster import`: what a site has of another workload manager, as Muster's own.

mod sge;
mod slurmdbd;

use anyhow::{Result, bail};
use std::process::ExitCode;

/// Its help.
pub(crate) const HELP: &str = "\
Usage: muster import sge DIR NEW [--controller HOST]
       muster import slurmdbd (--conf FILE | --from URL) [OPTIONS]
Brings a site's configuration or accounting here.

  sge DIR NEW       what qconf printed of a Grid Engine cell becomes a configuration in a new directory
  slurmdbd          the accounting of a Slurm becomes this cluster's
  -h, --help        print this help; 'muster import sge --help' and 'muster import slurmdbd --help' say more
";

/// Runs it.
pub(crate) fn main(words: &[String]) -> Result<ExitCode> {
    match words.first().map(String::as_str) {
        Some("sge") if crate::help::is_wanted(words) => {
            say!("{}", sge::HELP);
            Ok(ExitCode::SUCCESS)
        }
        Some("sge") => sge::main(words),
        Some("slurmdbd") => slurmdbd::main(words),
        Some("-h" | "--help") => {
            say!("{HELP}");
            Ok(ExitCode::SUCCESS)
        }
        Some(other) => bail!("'{other}' cannot be imported\n{HELP}"),
        None => bail!("what is to be imported?\n{HELP}"),
    }
}
