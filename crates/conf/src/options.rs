//! The options of sbatch, srun and salloc: one row for each, from which come the command-line parser, the `#SBATCH`
//! reader, the environment reader, `--help`, `--usage` and the compatibility page. What the chosen values mean is
//! worked out in [`job`]. Nothing here reads a file, a clock or the process's environment.

mod affinity;
mod bsub;
pub mod chosen;
pub mod directives;
pub mod environment;
pub mod filter;
mod general;
pub mod getopt;
mod gpu;
pub mod help;
pub mod job;
mod launch;
pub mod pbs;
mod resources;
mod row;
pub mod torque;
pub mod values;

pub use chosen::{ChosenOptions, OptionValue, Source};
pub use row::{Arg, Commands, Group, OptionCommand, OptionRow, OptionStatus};

const COUNT: usize = general::ROWS.len()
    + resources::ROWS.len()
    + launch::ROWS.len()
    + affinity::ROWS.len()
    + gpu::ROWS.len();

static TABLE: [OptionRow; COUNT] = joined();

const fn joined() -> [OptionRow; COUNT] {
    let parts: [&[OptionRow]; 5] = [
        general::ROWS,
        resources::ROWS,
        launch::ROWS,
        affinity::ROWS,
        gpu::ROWS,
    ];
    let mut all = [general::ROWS[0]; COUNT];
    let (mut part, mut at) = (0, 0);
    while part < parts.len() {
        let mut row = 0;
        while row < parts[part].len() {
            all[at] = parts[part][row];
            at += 1;
            row += 1;
        }
        part += 1;
    }
    all
}

/// Every option of sbatch, srun and salloc. An option whose meaning differs between commands has a row for each
/// meaning.
pub fn table() -> &'static [OptionRow] {
    &TABLE
}

/// The row of a long name for a command.
pub fn find(command: OptionCommand, long: &str) -> Option<&'static OptionRow> {
    TABLE
        .iter()
        .find(|row| row.long == long && row.commands.has(command))
}

/// A wrong option or value, as the command prints it before it exits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OptionError {
    /// Lines for standard error. Each gets the command's name and `error:` in front unless it is `bare`.
    pub lines: Vec<String>,
    /// The command's exit code.
    pub exit: u8,
    /// Print the lines as `COMMAND: text`, as getopt does, and point to `--help`.
    pub bare: bool,
}

impl OptionError {
    /// A malformed value: exit code 255.
    pub fn invalid(line: impl Into<String>) -> OptionError {
        OptionError {
            lines: vec![line.into()],
            exit: 255,
            bare: false,
        }
    }

    /// A malformed value of an option: the value and the forms that are accepted, then Slurm's line.
    pub fn bad_value(long: &str, value: &str, forms: &str) -> OptionError {
        OptionError::invalid(format!("Invalid --{long} specification"))
            .with_hint(format!("'{value}' is not {forms}"))
    }

    /// A value that is understood but cannot be: exit code 1.
    pub fn fatal(line: impl Into<String>) -> OptionError {
        OptionError {
            lines: vec![line.into()],
            exit: 1,
            bare: false,
        }
    }

    /// A line in front, in our own words, that says what would have been accepted.
    pub fn with_hint(mut self, hint: impl Into<String>) -> OptionError {
        self.lines.insert(0, hint.into());
        self
    }
}

#[cfg(test)]
mod manual_tests;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_for_each_command() {
        for command in OptionCommand::ALL {
            let rows: Vec<_> = table().iter().filter(|r| r.commands.has(command)).collect();
            for (at, row) in rows.iter().enumerate() {
                for other in &rows[at + 1..] {
                    assert_ne!(row.long, other.long, "{command:?}");
                    assert!(
                        row.short.is_none() || row.short != other.short,
                        "{command:?}: -{:?} is --{} and --{}",
                        row.short,
                        row.long,
                        other.long
                    );
                }
            }
        }
    }

    #[test]
    fn every_row_says_what_it_does() {
        for row in table() {
            assert!(!row.help.is_empty(), "--{}", row.long);
            assert!(!row.commands.is_empty(), "--{}", row.long);
            if let OptionStatus::Refused(why) | OptionStatus::StoredOnly { why, .. } = row.status {
                assert!(!why.is_empty(), "--{}", row.long);
            }
            assert_eq!(
                row.placeholder.is_empty(),
                row.arg == Arg::None,
                "--{}",
                row.long
            );
        }
    }
}
