//! Options of the daemons: one row for each letter, from which come the parser, `-h` and the man page.

use anyhow::{Context, Result, bail};
use muster_cli::options::Status;
use std::fmt::Write as _;

/// An option of a daemon.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flag {
    /// Its letter.
    pub(crate) letter: char,
    /// What its value is called; empty if it takes none.
    pub(crate) value: &'static str,
    /// What it does.
    pub(crate) help: &'static str,
    /// What it does here.
    pub(crate) status: Status,
}

/// A row.
pub(crate) const fn flag(letter: char, value: &'static str, help: &'static str) -> Flag {
    Flag {
        letter,
        value,
        help,
        status: Status::Works,
    }
}

impl Flag {
    /// Accepted, and nothing that anyone would miss happens.
    pub(crate) const fn stored(mut self, why: &'static str) -> Flag {
        self.status = Status::StoredOnly { why, warn: false };
        self
    }

    /// Refused by name.
    pub(crate) const fn refused(mut self, why: &'static str) -> Flag {
        self.status = Status::Refused(why);
        self
    }
}

/// A daemon.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Daemon {
    /// The name of its link.
    pub(crate) name: &'static str,
    /// What it is, in one line.
    pub(crate) about: &'static str,
    /// Its options.
    pub(crate) flags: &'static [Flag],
}

impl Daemon {
    /// What `-h` prints.
    pub(crate) fn help(&self) -> String {
        let mut text = format!("Usage: {} [OPTIONS]\n{}\n\n", self.name, self.about);
        for flag in self.flags {
            let left = format!("-{} {}", flag.letter, flag.value);
            let note = match flag.status {
                Status::StoredOnly { why, .. } => format!(" (no effect here: {why})"),
                Status::Refused(_) => " (not supported here)".to_owned(),
                _ => String::new(),
            };
            let _ = writeln!(text, "  {left:<12} {}{note}", flag.help);
        }
        text.push_str("  --help, --version   as -h, -V\n");
        text
    }

    /// Takes a command line apart: letters with their values, in order. Letters may be clustered; a value joins its
    /// letter or follows.
    ///
    /// # Errors
    /// An unknown or refused option, a missing value.
    pub(crate) fn parse(&self, args: &[String]) -> Result<Vec<(char, String)>> {
        let mut found = Vec::new();
        let mut words = args.iter();
        while let Some(word) = words.next() {
            match word.as_str() {
                "--help" => found.push(('h', String::new())),
                "--version" => found.push(('V', String::new())),
                long if long.starts_with("--without-job") && self.has('w') => {
                    let value = match long.strip_prefix("--without-job") {
                        Some("") => words.next().cloned(),
                        Some(rest) => rest.strip_prefix('=').map(str::to_owned),
                        None => None,
                    };
                    let value = value.context("option --without-job needs the number of a job")?;
                    found.push(('w', value));
                }
                _ => self.letters(word, &mut words, &mut found)?,
            }
        }
        Ok(found)
    }

    fn has(&self, letter: char) -> bool {
        self.flags.iter().any(|flag| flag.letter == letter)
    }

    fn letters<'a>(
        &self,
        word: &str,
        words: &mut impl Iterator<Item = &'a String>,
        found: &mut Vec<(char, String)>,
    ) -> Result<()> {
        let name = self.name;
        let letters = word
            .strip_prefix('-')
            .filter(|l| !l.is_empty() && !l.starts_with('-'))
            .with_context(|| {
                format!("option '{word}' is not known here; '{name} -h' lists what is")
            })?;
        for (at, letter) in letters.char_indices() {
            let Some(flag) = self.flags.iter().find(|f| f.letter == letter) else {
                bail!("option -{letter} is not known here; '{name} -h' lists what is");
            };
            if let Status::Refused(why) = flag.status {
                bail!("-{letter} is not supported: {why}");
            }
            if flag.value.is_empty() {
                found.push((letter, String::new()));
                continue;
            }
            let value = match &letters[at + letter.len_utf8()..] {
                "" => words.next().cloned(),
                joined => Some(joined.to_owned()),
            };
            found.push((
                letter,
                value.with_context(|| format!("option -{letter} needs a value"))?,
            ));
            break;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAEMON: Daemon = Daemon {
        name: "slurmd",
        about: "An agent.",
        flags: &[
            flag('D', "", "stay"),
            flag('f', "FILE", "read this"),
            flag('i', "", "ignore").refused("no"),
        ],
    };

    fn parse(words: &[&str]) -> Result<Vec<(char, String)>> {
        DAEMON.parse(&words.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn clusters_and_values() {
        let both = vec![('D', String::new()), ('f', "x".to_owned())];
        for words in [&["-Dfx"][..], &["-D", "-f", "x"], &["-Df", "x"]] {
            assert_eq!(parse(words).unwrap(), both, "{words:?}");
        }
        for words in [&["-q"][..], &["-f"], &["-i"], &["--nosuch"], &["x"], &["-"]] {
            assert!(parse(words).is_err(), "{words:?}");
        }
        assert_eq!(parse(&["--help"]).unwrap()[0].0, 'h');
    }
}
