//! Options of the daemons: one row for each letter, from which come the parser, `-h` and the man page.

use anyhow::{Context, Result, bail};
use muster_cli::options::OptionStatus;
use std::fmt::Write as _;

/// An option of a daemon.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flag {
    /// Its letter; of one that has only a long name, what [`Daemon::parse`] gives for it.
    pub(crate) letter: char,
    /// Its long name; empty if it has none.
    pub(crate) long: &'static str,
    /// It can be given by its letter.
    pub(crate) is_short: bool,
    /// Name of its value; empty if it takes none. In brackets: it may be left out, else it joins the letter.
    pub(crate) value: &'static str,
    /// Its effect.
    pub(crate) help: &'static str,
    /// Its effect here.
    pub(crate) status: OptionStatus,
}

/// A row.
pub(crate) const fn flag(letter: char, value: &'static str, help: &'static str) -> Flag {
    Flag {
        letter,
        long: "",
        is_short: true,
        value,
        help,
        status: OptionStatus::Works,
    }
}

/// A row of an option that has a long name only.
pub(crate) const fn long_flag(
    long: &'static str,
    letter: char,
    value: &'static str,
    help: &'static str,
) -> Flag {
    Flag {
        is_short: false,
        ..flag(letter, value, help).named(long)
    }
}

/// Option of daemons that get their configuration from a controller.
pub(crate) const CONF_SERVER: Flag = long_flag(
    "conf-server",
    'H',
    "HOST[:PORT][,...]",
    "have no files: get the configuration from a controller with enable_configless (default: without files, those that DNS names)",
);

/// User whose answer such daemons accept.
pub(crate) const CONF_USER: Flag = long_flag(
    "conf-user",
    'U',
    "USER",
    "SlurmUser of that controller, who alone can answer (default: slurm, if there is such an account, else root)",
);

impl Flag {
    /// It has a long name, too.
    pub(crate) const fn named(mut self, long: &'static str) -> Flag {
        self.long = long;
        self
    }

    /// Accepted, and nothing that anyone would miss happens.
    pub(crate) const fn stored(mut self, why: &'static str) -> Flag {
        self.status = OptionStatus::StoredOnly { why, warn: false };
        self
    }

    /// Refused by name.
    pub(crate) const fn refused(mut self, why: &'static str) -> Flag {
        self.status = OptionStatus::Refused(why);
        self
    }
}

/// A daemon.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Daemon {
    /// The name of its link.
    pub(crate) name: &'static str,
    /// Its purpose, in one line.
    pub(crate) about: &'static str,
    /// Its operands after the options; empty if it has none.
    pub(crate) operands: &'static str,
    /// Its options.
    pub(crate) flags: &'static [Flag],
}

/// Letters of options that were given, with their values.
type Options = Vec<(char, String)>;

impl Daemon {
    /// Text of `-h`.
    pub(crate) fn help(&self) -> String {
        let operands = match self.operands {
            "" => String::new(),
            operands => format!(" {operands}"),
        };
        let mut text = format!(
            "Usage: {} [OPTIONS]{operands}\n{}\n\n",
            self.name, self.about
        );
        for flag in self.flags {
            let left = match flag.is_short {
                true if flag.value.starts_with('[') => format!("-{}{}", flag.letter, flag.value),
                true => format!("-{} {}", flag.letter, flag.value),
                false => format!("--{} {}", flag.long, flag.value),
            };
            let note = match flag.status {
                OptionStatus::StoredOnly { why, .. } => format!(" (no effect here: {why})"),
                OptionStatus::Refused(_) => " (not supported here)".to_owned(),
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
    /// An unknown or refused option, a missing value, a word that is no option.
    pub(crate) fn parse(&self, args: &[String]) -> Result<Options> {
        let (found, operands) = self.parse_with_operands(args)?;
        match operands.first() {
            Some(word) => bail!(
                "option '{word}' is not known here; '{} -h' lists what is",
                self.name
            ),
            None => Ok(found),
        }
    }

    /// As above, for a daemon that has operands, which are returned beside.
    ///
    /// # Errors
    /// An unknown or refused option, a missing value.
    pub(crate) fn parse_with_operands(&self, args: &[String]) -> Result<(Options, Vec<String>)> {
        let (mut found, mut operands) = (Vec::new(), Vec::new());
        let mut words = args.iter();
        while let Some(word) = words.next() {
            match word.as_str() {
                "--help" => found.push(('h', String::new())),
                "--version" => found.push(('V', String::new())),
                word if !word.starts_with('-') => operands.push(word.to_owned()),
                word => match word.strip_prefix("--") {
                    Some(long) => found.push(self.long(long, &mut words)?),
                    None => self.letters(word, &mut words, &mut found)?,
                },
            }
        }
        Ok((found, operands))
    }

    /// An option by its long name, whose value follows, or joins it after `=`.
    fn long<'a>(
        &self,
        word: &str,
        words: &mut impl Iterator<Item = &'a String>,
    ) -> Result<(char, String)> {
        let (name, joined) = match word.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (word, None),
        };
        let mut named = self.flags.iter().filter(|flag| !flag.long.is_empty());
        let flag = named.find(|flag| flag.long == name).with_context(|| {
            let daemon = self.name;
            format!("option '--{name}' is not known here; '{daemon} -h' lists what is")
        })?;
        if let OptionStatus::Refused(why) = flag.status {
            bail!("--{name} is not supported: {why}");
        }
        let value = match (flag.value.is_empty(), joined) {
            (true, None) => String::new(),
            (true, Some(_)) => bail!("option --{name} takes no value"),
            (false, joined) => joined
                .or_else(|| words.next().cloned())
                .with_context(|| format!("option --{name} needs a value"))?,
        };
        Ok((flag.letter, value))
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
            let mut short = self.flags.iter().filter(|flag| flag.is_short);
            let Some(flag) = short.find(|flag| flag.letter == letter) else {
                bail!("option -{letter} is not known here; '{name} -h' lists what is");
            };
            if let OptionStatus::Refused(why) = flag.status {
                bail!("-{letter} is not supported: {why}");
            }
            if flag.value.is_empty() {
                found.push((letter, String::new()));
                continue;
            }
            let is_optional = flag.value.starts_with('[');
            let value = match &letters[at + letter.len_utf8()..] {
                "" if is_optional => Some(String::new()),
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
        operands: "",
        flags: &[
            flag('D', "", "stay"),
            flag('f', "FILE", "read this"),
            flag('F', "[FEATURE]", "take one"),
            flag('i', "", "ignore").refused("no"),
            long_flag("conf-server", 's', "HOST", "fetch that"),
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
        let optional = |feature: &str| vec![('F', feature.to_owned()), ('D', String::new())];
        assert_eq!(parse(&["-Fbig", "-D"]).unwrap(), optional("big"));
        assert_eq!(parse(&["-F", "-D"]).unwrap(), optional(""));
        let server = vec![('s', "h:1".to_owned())];
        for words in [&["--conf-server=h:1"][..], &["--conf-server", "h:1"]] {
            assert_eq!(parse(words).unwrap(), server, "{words:?}");
        }
        for words in [
            &["-q"][..],
            &["-f"],
            &["-i"],
            &["--nosuch"],
            &["x"],
            &["-"],
            &["-s", "h"],
            &["--conf-server"],
        ] {
            assert!(parse(words).is_err(), "{words:?}");
        }
        assert_eq!(parse(&["--help"]).unwrap()[0].0, 'h');
    }
}
