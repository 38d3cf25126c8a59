//! The options in force: the command line beats the environment, which beats the script's directives; within one
//! source the last word counts.

use super::row::{OptionCommand, OptionRow, OptionStatus};
use super::{OptionError, find};

/// Where a value came from; later ones are stronger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// A filter's default, of the site or the user, where no other source sets the option.
    Default,
    /// An `#SBATCH` line.
    Directive,
    /// The environment.
    Environment,
    /// The command line.
    CommandLine,
}

/// An option that was given.
#[derive(Clone, Debug)]
pub struct OptionValue {
    /// Which.
    pub row: &'static OptionRow,
    /// Its value.
    pub value: Option<String>,
    /// Where it came from.
    pub source: Source,
}

/// The options in force for one command.
#[derive(Clone, Debug)]
pub struct ChosenOptions {
    /// The command.
    pub command: OptionCommand,
    /// Given options, weaker ones removed, in order of arrival.
    given: Vec<OptionValue>,
    /// Number of times that `--verbose` was given.
    pub verbose: u32,
    /// Options of the site's own that the command has beside those of the table.
    pub site: &'static [OptionRow],
}

impl ChosenOptions {
    /// None yet.
    pub fn new(command: OptionCommand) -> ChosenOptions {
        ChosenOptions {
            command,
            given: Vec::new(),
            verbose: 0,
            site: &[],
        }
    }

    /// The options that the command has: those of the table, and the site's.
    pub fn rows(&self) -> impl Iterator<Item = &'static OptionRow> + Clone + use<> {
        rows(self.command, self.site)
    }

    /// Adds an option, unless a stronger source has given it.
    pub fn give(&mut self, row: &'static OptionRow, value: Option<String>, source: Source) {
        let row = row
            .same_as
            .and_then(|long| find(self.command, long))
            .unwrap_or(row);
        if row.long == "verbose" {
            self.verbose += 1;
        }
        if let Some(at) = self.given.iter().position(|g| g.row.long == row.long) {
            if self.given[at].source > source {
                return;
            }
            self.given.remove(at);
        }
        self.given.push(OptionValue { row, value, source });
    }

    /// Adds an option by name, as if the command line had given it.
    pub fn set(&mut self, long: &'static str, value: Option<String>) {
        if let Some(row) = find(self.command, long) {
            self.give(row, value, Source::CommandLine);
        }
    }

    /// The option, if it was given.
    pub fn get(&self, long: &'static str) -> Option<&OptionValue> {
        debug_assert!(
            super::table().iter().any(|r| r.long == long),
            "no row --{long}"
        );
        self.given.iter().find(|g| g.row.long == long)
    }

    /// Its value, if it was given with one.
    pub fn value(&self, long: &'static str) -> Option<&str> {
        self.get(long).and_then(|g| g.value.as_deref())
    }

    /// Whether it was given.
    pub fn has(&self, long: &'static str) -> bool {
        self.get(long).is_some()
    }

    /// Where it came from.
    pub fn source(&self, long: &'static str) -> Option<Source> {
        self.get(long).map(|g| g.source)
    }

    /// Takes an option back.
    pub fn remove(&mut self, long: &'static str) {
        self.given.retain(|g| g.row.long != long);
    }

    /// Among several options that exclude each other, the effective one: the strongest source wins, then the last.
    pub fn strongest(&self, longs: &[&'static str]) -> Option<&OptionValue> {
        self.given
            .iter()
            .filter(|g| longs.contains(&g.row.long))
            .max_by_key(|g| g.source)
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &OptionValue> {
        self.given.iter()
    }

    /// Refuses what cannot be honoured, and collects warnings for the user.
    ///
    /// # Errors
    /// The first option whose row is refused, with what to do instead.
    pub fn check_status(&self) -> Result<Vec<String>, OptionError> {
        let mut warnings = Vec::new();
        for given in &self.given {
            match given.row.status {
                OptionStatus::Works
                | OptionStatus::Partly(_)
                | OptionStatus::StoredOnly { warn: false, .. } => {}
                OptionStatus::StoredOnly { why, warn: true } => {
                    if !given.asks_for_nothing() {
                        let long = given.row.long;
                        warnings.push(format!("--{long} has no effect: {why}"));
                    }
                }
                OptionStatus::Refused(why) => {
                    if !given.asks_for_nothing() {
                        return Err(OptionError::fatal(format!(
                            "--{} is not supported: {why}",
                            given.origin(self.command)
                        )));
                    }
                }
            }
        }
        Ok(warnings)
    }
}

/// The options of a command: those of the table, and the site's.
pub fn rows(
    command: OptionCommand,
    site: &'static [OptionRow],
) -> impl Iterator<Item = &'static OptionRow> + Clone {
    let own = super::table().iter();
    own.filter(move |row| row.commands.has(command)).chain(site)
}

impl OptionValue {
    /// Values that ask for what happens anyway.
    fn asks_for_nothing(&self) -> bool {
        let Some(value) = self.value.as_deref() else {
            return false;
        };
        match self.row.long {
            "mem-bind" | "gpu-bind" | "tres-bind" | "profile" | "mail-type" => {
                matches!(
                    value.to_ascii_lowercase().as_str(),
                    "none" | "no" | "q" | "quiet"
                )
            }
            // Kinds of binding; the rest is about messages or asks for no binding.
            "cpu-bind" => value.split(',').all(|word| {
                let word = word.to_ascii_lowercase();
                matches!(
                    word.as_str(),
                    "none" | "no" | "n" | "q" | "quiet" | "v" | "verbose" | "off"
                )
            }),
            "oom-kill-step" => value == "0",
            _ => false,
        }
    }

    /// The option's name, with the variable that gave it if one did.
    fn origin(&self, command: OptionCommand) -> String {
        let names = self.row.env_of(command);
        if self.source == Source::Environment && !names.is_empty() {
            return format!("{} (from {})", self.row.long, names.join(" or "));
        }
        self.row.long.to_owned()
    }
}
