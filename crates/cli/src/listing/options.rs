//! Command lines of the listing commands: getopt_long(3)'s rules over a small table, and environment variables.

use super::Failure;
pub(crate) use muster_conf::options::Arg;
use muster_conf::options::getopt::{self, Order, Spec};

/// A row of a command's table.
pub(crate) struct Opt {
    /// What the program calls it: its usual long name.
    name: &'static str,
    long: &'static str,
    short: Option<char>,
    arg: Arg,
}

impl Spec for Opt {
    fn long(&self) -> &'static str {
        self.long
    }

    fn short(&self) -> Option<char> {
        self.short
    }

    fn arg(&self) -> Arg {
        self.arg
    }
}

/// A row.
pub(crate) const fn opt(short: char, name: &'static str, arg: Arg) -> Opt {
    Opt {
        name,
        long: name,
        short: Some(short),
        arg,
    }
}

/// A row without a letter.
pub(crate) const fn long(name: &'static str, arg: Arg) -> Opt {
    also(name, name, arg)
}

/// Another long name of an option.
pub(crate) const fn also(name: &'static str, long: &'static str, arg: Arg) -> Opt {
    Opt {
        name,
        long,
        short: None,
        arg,
    }
}

/// What a command line says.
#[derive(Debug, Default)]
pub(crate) struct Parsed {
    /// Options in order, by their usual names.
    pub(crate) options: Vec<(&'static str, Option<String>)>,
    /// Everything else.
    pub(crate) operands: Vec<String>,
}

/// Reads a command line.
///
/// # Errors
/// An unknown or ambiguous option, a missing value, a value too many.
pub(crate) fn parse(
    command: &str,
    table: &'static [Opt],
    args: &[String],
) -> Result<Parsed, Failure> {
    let parsed = getopt::parse(table.iter(), args, Order::Mixed).map_err(|text| {
        Failure::new(format!(
            "{command}: {text}\nTry \"{command} --help\" for more information"
        ))
    })?;
    let named = parsed.options.into_iter();
    Ok(Parsed {
        options: named.map(|(row, value)| (row.name, value)).collect(),
        operands: parsed.words,
    })
}

/// The environment variable's value, if it is set and not empty.
pub(crate) fn env(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|v| !v.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    static TABLE: &[Opt] = &[
        opt('o', "format", Arg::Required),
        opt('r', "array", Arg::None),
        opt('j', "jobs", Arg::Required),
        also("jobs", "job", Arg::Required),
        long("json", Arg::Optional),
    ];

    #[test]
    fn joined_shortened_and_by_another_name() {
        let words = [
            "-ro",
            "%i",
            "--json",
            "--form=%t",
            "-j7",
            "--job",
            "8",
            "--json=list",
        ];
        let words: Vec<String> = words.iter().map(|w| (*w).to_owned()).collect();
        let parsed = parse("squeue", TABLE, &words).unwrap();
        assert_eq!(
            parsed.options,
            [
                ("array", None),
                ("format", Some("%i".into())),
                ("json", None),
                ("format", Some("%t".into())),
                ("jobs", Some("7".into())),
                ("jobs", Some("8".into())),
                ("json", Some("list".into())),
            ]
        );
    }
}
