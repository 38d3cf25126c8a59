//! `muster generate man|completion|compat|security DIR`: files for packages and docs, made from the tables that the commands run
//! on, so that none of them can say what the commands do not do.

mod compat;
mod completion;
mod man;
mod security;

use anyhow::{Context, Result, bail};
use muster_cli::catalogue::{self, CommandEntry, Row};
use muster_cli::options::Arg;
use std::fs;
use std::path::Path;
use std::process::ExitCode;

/// Runs it.
///
/// # Errors
/// When the directory cannot be written, or something else is asked for.
pub(crate) fn run(args: &[String]) -> Result<ExitCode> {
    let [what, dir] = args else {
        bail!("usage: muster generate man|completion|compat|security DIR");
    };
    let files = match what.as_str() {
        "man" => man::pages(),
        "completion" => vec![("muster".to_owned(), completion::script())],
        "compat" => vec![("compat.md".to_owned(), compat::page())],
        "security" => {
            // Only a part of the page is made.
            let present = fs::read_to_string(Path::new(dir).join("security.md"));
            let page = security::page(&present.unwrap_or_default());
            vec![("security.md".to_owned(), page)]
        }
        other => bail!(
            "there is no 'generate {other}'; usage: muster generate man|completion|compat|security DIR"
        ),
    };
    let dir = Path::new(dir);
    fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
    for (name, text) in files {
        let path = dir.join(name);
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The daemons and all other commands.
fn daemons_and_commands() -> Vec<CommandEntry> {
    let daemons = [
        &crate::slurmctld::DAEMON,
        &crate::slurmd::DAEMON,
        &crate::sackd::DAEMON,
        &crate::slurmdbd::DAEMON,
        &crate::slurmrestd::DAEMON,
    ];
    let mut all: Vec<CommandEntry> = daemons.into_iter().map(of_daemon).collect();
    all.extend(catalogue::commands());
    all
}

fn of_daemon(daemon: &'static crate::flags::Daemon) -> CommandEntry {
    CommandEntry {
        name: daemon.name,
        about: daemon.about,
        operands: daemon.operands,
        options: daemon
            .flags
            .iter()
            .map(|f| Row {
                dash: "--",
                long: match f.letter {
                    'h' => "help",
                    'V' => "version",
                    _ => f.long,
                },
                also: Vec::new(),
                short: f.is_short.then_some(f.letter),
                arg: if f.value.is_empty() {
                    Arg::None
                } else {
                    Arg::Required
                },
                placeholder: f.value,
                help: f.help,
                status: f.status,
            })
            .collect(),
        variables: Vec::new(),
        lists: Vec::new(),
        notes: "",
        exits: &[
            (
                "0",
                "the daemon is ready and in the background, or was stopped",
            ),
            (
                "1",
                "it could not start; standard error and the log say why",
            ),
        ],
    }
}

/// `-A`, `--account`, as one writes it.
fn names(row: &Row) -> Vec<String> {
    let short = row.short.map(|c| format!("-{c}"));
    let long = [row.long].into_iter().chain(row.also.iter().copied());
    short
        .into_iter()
        .chain(
            long.filter(|l| !l.is_empty())
                .map(|l| format!("{}{l}", row.dash)),
        )
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::roles;

    #[test]
    fn every_link_is_described() {
        let known: Vec<&str> = daemons_and_commands().iter().map(|c| c.name).collect();
        for link in roles::links() {
            assert!(known.contains(&link), "{link}");
            assert!(
                crate::help::GENERAL.contains(link),
                "{link} is not in 'muster help'"
            );
        }
    }
}
