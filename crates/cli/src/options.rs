//! The options of the commands that are not submissions: one row for each, from which come the command-line parser,
//! `--help`, `--usage`, man pages, completion and the compatibility page. A row that is refused is refused here, by
//! name; no command has to remember it.

use muster_conf::options::getopt::{self, OperandOrder};
pub use muster_conf::options::{Arg, OptionStatus};
use std::fmt::Write as _;

/// One option of a command.
#[derive(Clone, Copy, Debug)]
pub struct Opt {
    /// Name in the program: its usual long name.
    pub name: &'static str,
    /// Long name, without dashes.
    pub long: &'static str,
    /// Short name.
    pub short: Option<char>,
    /// Whether it takes a value.
    pub arg: Arg,
    /// Name of the value in `--help`.
    pub placeholder: &'static str,
    /// One line on its effect; empty for another name of an option.
    pub help: &'static str,
    /// Its effect here.
    pub status: OptionStatus,
}

impl getopt::OptionSpec for Opt {
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

/// An option without a value; more is chained on.
pub(crate) const fn flag(long: &'static str, help: &'static str) -> Opt {
    Opt {
        name: long,
        long,
        short: None,
        arg: Arg::None,
        placeholder: "",
        help,
        status: OptionStatus::Works,
    }
}

/// An option with a value.
pub(crate) const fn opt(long: &'static str, placeholder: &'static str, help: &'static str) -> Opt {
    let mut row = flag(long, help);
    row.arg = Arg::Required;
    row.placeholder = placeholder;
    row
}

/// Another long name of an option.
pub(crate) const fn also(name: &'static str, long: &'static str, arg: Arg) -> Opt {
    let mut row = flag(long, "");
    row.name = name;
    row.arg = arg;
    row
}

impl Opt {
    pub(crate) const fn short(mut self, short: char) -> Opt {
        self.short = Some(short);
        self
    }

    pub(crate) const fn optional(mut self) -> Opt {
        self.arg = Arg::Optional;
        self
    }

    pub(crate) const fn partly(mut self, how: &'static str) -> Opt {
        self.status = OptionStatus::Partly(how);
        self
    }

    /// Accepted, and nothing that anyone would miss happens.
    pub(crate) const fn stored(mut self, why: &'static str) -> Opt {
        self.status = OptionStatus::StoredOnly { why, warn: false };
        self
    }

    pub(crate) const fn refused(mut self, why: &'static str) -> Opt {
        self.status = OptionStatus::Refused(why);
        self
    }

    /// Accepted with a warning, since somebody may miss it.
    pub(crate) const fn warns(mut self, why: &'static str) -> Opt {
        self.status = OptionStatus::StoredOnly { why, warn: true };
        self
    }

    /// Whether it is only another name.
    pub fn is_alias(&self) -> bool {
        self.help.is_empty()
    }

    fn push_help(&self, text: &mut String, form: HelpForm) {
        let note = match self.status {
            OptionStatus::Works | OptionStatus::Partly(_) => "",
            OptionStatus::StoredOnly { .. } => " (no effect here)",
            OptionStatus::Refused(_) => " (not supported here)",
        };
        let help = format!("{}{note}", self.help);
        let left = match form {
            // With a colon, as sacct and sstat of Slurm have it.
            HelpForm::Values(_) => format!("  {}--{}:", self.short_form(), self.long),
            _ => format!("  {}", self.form()),
        };
        push_row(text, &left, &help);
    }

    /// `-A, `, or as many blanks.
    fn short_form(&self) -> String {
        let letter = self.short.map(|c| format!("-{c}, "));
        letter.unwrap_or_else(|| "    ".to_owned())
    }

    /// `-A, --account=LIST`.
    pub fn form(&self) -> String {
        self.short_form() + &self.long_form()
    }

    /// `--account=LIST`.
    pub fn long_form(&self) -> String {
        match self.arg {
            Arg::None => format!("--{}", self.long),
            Arg::Required => format!("--{}={}", self.long, self.placeholder),
            Arg::Optional => format!("--{}[={}]", self.long, self.placeholder),
        }
    }
}

/// Layout of a command's help. Programs read it, so each command has that of Slurm's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HelpForm {
    /// `Usage: squeue [OPTIONS]`, with the options that give help last.
    Options,
    /// Like `Options`, with this text after the name, which is also all that `--usage` says.
    OptionsAs(&'static str),
    /// `sreport [<OPTION>] [<COMMAND>]`, `Valid <OPTION> values are:`, `Valid <COMMAND> values are:`, with these lines.
    Commands(&'static str),
    /// `sstat [<OPTION>]` and what follows, `Valid <OPTION> values are:`.
    Values(&'static str),
    /// `Usage:  sshare [OPTION]`, `Valid OPTIONs are:`.
    ValidOptions,
    /// `usage: qstat [options]`, a line for each option. Options have one dash and are read by `grid_engine::arguments`.
    GridEngine,
    /// `Usage: qstat [options]`, laid out like that. Options are read by `torque::arguments`.
    Torque,
}

/// A command: what its help, its man page and its parser are made of.
#[derive(Clone, Copy, Debug)]
pub struct Spec {
    /// Its name.
    pub name: &'static str,
    /// Its purpose, in one line.
    pub about: &'static str,
    /// Its operands after the options.
    pub operands: &'static str,
    /// Layout of its help.
    pub form: HelpForm,
    /// Its options.
    pub options: &'static [Opt],
    /// Environment variables and the options they stand for.
    pub variables: &'static [(&'static str, &'static str)],
    /// Further notes, for `--help` and the man page.
    pub notes: &'static str,
}

/// A parsed command line.
#[derive(Debug, Default)]
pub(crate) struct Parsed {
    /// Options in order, by their usual names. Those without effect are left out.
    pub(crate) options: Vec<(&'static str, Option<String>)>,
    /// Everything else.
    pub(crate) operands: Vec<String>,
}

/// The version of Grid Engine whose behaviour its commands follow, as `-help` prints it.
const GRID_ENGINE_VERSION: &str = "SGE 8.1.9";

const INDENT: usize = 29;
const WIDTH: usize = 100;

impl Spec {
    /// Reads a command line. `--help` and the like win over options that are refused.
    ///
    /// # Errors
    /// What to print on standard error: an unknown or ambiguous option, a value that misses or is too many, an option
    /// that is refused.
    pub(crate) fn parse(&self, args: &[String]) -> Result<Parsed, String> {
        let name = self.call();
        let parsed =
            getopt::parse(self.options.iter(), args, OperandOrder::Mixed).map_err(|text| {
                match name.as_str() {
                    // Slurm's says no more either.
                    "sacct" | "sstat" => format!("{name}: {text}"),
                    _ => format!("{name}: {text}\nTry \"{name} --help\" for more information"),
                }
            })?;
        let informs = parsed
            .options
            .iter()
            .filter(|(row, _)| self.status(row) == OptionStatus::Works)
            .any(|(row, _)| matches!(row.name, "help" | "usage" | "version" | "helpformat"));
        let mut options = Vec::with_capacity(parsed.options.len());
        for (row, value) in parsed.options {
            match self.status(row) {
                OptionStatus::Works | OptionStatus::Partly(_) => options.push((row.name, value)),
                OptionStatus::StoredOnly { why, warn } => {
                    if warn {
                        eprintln!("{name}: warning: --{} has no effect: {why}", row.long);
                    }
                }
                OptionStatus::Refused(_) if informs => {}
                OptionStatus::Refused(why) => {
                    return Err(format!(
                        "{name}: error: --{} is not supported: {why}",
                        row.long
                    ));
                }
            }
        }
        Ok(Parsed {
            options,
            operands: parsed.words,
        })
    }

    /// Its call: `muster why` has a manual page named muster-why.
    fn call(&self) -> String {
        self.name.replacen("muster-", "muster ", 1)
    }

    /// Another name has the status of the usual one.
    fn status(&self, row: &Opt) -> OptionStatus {
        let usual = self.options.iter().find(|o| o.long == row.name);
        usual.map_or(row.status, |o| o.status)
    }

    /// Text of `--help`.
    pub fn help(&self) -> String {
        let (name, about) = (self.call(), self.about);
        let mut text = match self.form {
            HelpForm::Options => {
                let operands = match self.operands {
                    "" => String::new(),
                    words => format!(" {words}"),
                };
                format!("Usage: {name} [OPTIONS]{operands}\n{about}\n\n")
            }
            HelpForm::OptionsAs(call) => format!("Usage: {name} {call}\n{about}\n\n"),
            HelpForm::Commands(_) => {
                format!("{name} [<OPTION>] [<COMMAND>]\n{about}\n    Valid <OPTION> values are:\n")
            }
            HelpForm::Values(operands) => {
                let head = format!("{name} [<OPTION>] {operands}");
                let head = head.trim_end();
                format!("{head}\n{about}\n    Valid <OPTION> values are:\n")
            }
            HelpForm::ValidOptions => {
                format!("Usage:  {name} [OPTION]\n{about}\n  Valid OPTIONs are:\n")
            }
            HelpForm::GridEngine => {
                let head = format!("{GRID_ENGINE_VERSION}\nusage: {name}");
                return self.help_with_one_dash(&head);
            }
            HelpForm::Torque => {
                let name = name.trim_start_matches("torque-");
                let head = format!("{about}\nUsage: {name}");
                return self.help_with_one_dash(&head);
            }
        };
        let gives_help = |row: &&Opt| {
            let is_help = matches!(row.name, "help" | "usage");
            is_help && matches!(self.form, HelpForm::Options | HelpForm::OptionsAs(_))
        };
        let rows = || self.options.iter().filter(|row| !row.is_alias());
        rows()
            .filter(|row| !gives_help(row))
            .for_each(|row| row.push_help(&mut text, self.form));
        if rows().any(|row| gives_help(&row)) {
            text.push_str("\nHelp options:\n");
            rows()
                .filter(gives_help)
                .for_each(|row| row.push_help(&mut text, self.form));
        }
        if let HelpForm::Commands(lines) = self.form {
            text.push_str("\n    Valid <COMMAND> values are:\n");
            text.push_str(lines);
        }
        if !self.notes.is_empty() {
            text.push('\n');
            push_wrapped(&mut text, self.notes);
        }
        text
    }

    /// Text of `-help`.
    fn help_with_one_dash(&self, head: &str) -> String {
        let mut text = format!("{head} [options]");
        if !self.operands.is_empty() {
            let _ = write!(text, " {}", self.operands);
        }
        text.push('\n');
        for option in self.options.iter().filter(|option| !option.is_alias()) {
            let value = match option.arg {
                Arg::None => String::new(),
                Arg::Required => format!(" {}", option.placeholder),
                Arg::Optional => format!(" [{}]", option.placeholder),
            };
            let note = match option.status {
                OptionStatus::Works | OptionStatus::Partly(_) => "",
                OptionStatus::StoredOnly { .. } => " (no effect here)",
                OptionStatus::Refused(_) => " (not supported here)",
            };
            let form = format!("[-{}{value}]", option.long);
            let _ = writeln!(text, "   {form:<40} {}{note}", option.help);
        }
        if !self.notes.is_empty() {
            let _ = write!(text, "\n{}", self.notes);
        }
        text
    }

    /// Text that a listing command prints first with `--verbose`: all options and their values.
    pub(crate) fn values(&self, parsed: &Parsed) -> String {
        const LINE: &str = "-----------------------------\n";
        let mut text = LINE.to_owned();
        let is_shown = |row: &&Opt| {
            let is_other = matches!(row.name, "help" | "usage" | "version" | "helpformat");
            !row.is_alias()
                && !is_other
                && matches!(row.status, OptionStatus::Works | OptionStatus::Partly(_))
        };
        for row in self.options.iter().filter(is_shown) {
            let mut given = parsed.options.iter().filter(|(name, _)| *name == row.name);
            let value = match (row.name, row.arg) {
                ("verbose", _) => given.count().to_string(),
                (_, Arg::None) => given.next().is_some().to_string(),
                (name, _) => {
                    let none = if name == "iterate" { "0" } else { "(null)" };
                    let last = given.next_back().and_then(|(_, value)| value.clone());
                    last.unwrap_or_else(|| none.to_owned())
                }
            };
            let _ = writeln!(text, "{:<11} = {value}", row.name);
        }
        text + LINE
    }

    /// Text of `--usage`.
    pub fn usage(&self) -> String {
        match self.form {
            HelpForm::Options => {}
            HelpForm::OptionsAs(call) => return format!("Usage: {} {call}\n", self.call()),
            HelpForm::Values(operands) => {
                let head = format!("Usage: {} [options] {operands}", self.name);
                return format!("{}\n\tUse --help for help\n", head.trim_end());
            }
            HelpForm::Commands(_)
            | HelpForm::ValidOptions
            | HelpForm::GridEngine
            | HelpForm::Torque => {
                return self.help();
            }
        }
        let head = format!("Usage: {}", self.call());
        let indent = head.len() + 1;
        let shown = || {
            self.options
                .iter()
                .filter(|o| !o.is_alias() && !matches!(o.status, OptionStatus::Refused(_)))
        };
        let letters: String = shown()
            .filter(|o| o.arg == Arg::None)
            .filter_map(|o| o.short)
            .collect();
        let mut items = Vec::new();
        if !letters.is_empty() {
            items.push(format!("[-{letters}]"));
        }
        items.extend(shown().filter_map(|row| match (row.short, row.arg) {
            (Some(_), Arg::None) => None,
            (Some(c), Arg::Required) => {
                Some(format!("[-{c} {}]", row.placeholder.to_ascii_lowercase()))
            }
            (_, Arg::None) => Some(format!("[--{}]", row.long)),
            // That a value may be left out is said by --help: what reads this takes brackets for those of options.
            _ => Some(format!("[--{}={}]", row.long, row.placeholder)),
        }));
        items.extend(Some(self.operands.to_owned()).filter(|o| !o.is_empty()));
        let mut column = head.len();
        let mut text = head;
        for item in items {
            if column + 1 + item.len() > WIDTH {
                let _ = write!(text, "\n{:indent$}{item}", "");
                column = indent + item.len();
            } else {
                let _ = write!(text, " {item}");
                column += 1 + item.len();
            }
        }
        text.push('\n');
        text
    }
}

/// A line of help: what stands left, and words in a column beside it.
pub(crate) fn push_row(text: &mut String, left: &str, help: &str) {
    let mut left = left.to_owned();
    if left.chars().count() < INDENT - 1 {
        left = format!("{left:INDENT$}");
    } else {
        left.push_str("  ");
    }
    let mut column = left.chars().count();
    text.push_str(&left);
    for (at, word) in help.split(' ').filter(|w| !w.is_empty()).enumerate() {
        let length = word.chars().count();
        if at > 0 && column + 1 + length > WIDTH {
            let _ = write!(text, "\n{:INDENT$}", "");
            column = INDENT;
        } else if at > 0 {
            text.push(' ');
            column += 1;
        }
        text.push_str(word);
        column += length;
    }
    text.push('\n');
}

/// Notes, of which paragraphs that are one long line are broken; lines that were broken by hand stay.
fn push_wrapped(text: &mut String, notes: &str) {
    /// No line that was broken by hand is longer.
    const BY_HAND_MAX: usize = 130;
    for line in notes.lines() {
        let mut column = 0;
        let limit = match line.chars().count() > BY_HAND_MAX {
            true => WIDTH,
            false => BY_HAND_MAX,
        };
        for (at, word) in line.split(' ').enumerate() {
            let length = word.chars().count();
            if at > 0 && column + 1 + length > limit {
                text.push('\n');
                column = 0;
            } else if at > 0 {
                text.push(' ');
                column += 1;
            }
            text.push_str(word);
            column += length;
        }
        text.push('\n');
    }
}

/// The environment variable's value, if it is set and not empty.
pub(crate) fn env(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|v| !v.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPEC: Spec = Spec {
        name: "squeue",
        about: "Shows jobs.",
        operands: "",
        form: HelpForm::Options,
        options: &[
            opt("format", "FORMAT", "columns").short('o'),
            flag("array", "a line each").short('r'),
            opt("jobs", "LIST", "these").short('j'),
            also("jobs", "job", Arg::Required),
            opt("json", "VERSION", "as JSON").optional(),
            flag("local", "no other").stored("there is one cluster"),
            opt("burst", "NAME", "buffers").refused("there are none"),
            also("burst", "bb", Arg::Required),
            flag("help", "this text"),
        ],
        variables: &[],
        notes: "",
    };

    fn parse(words: &[&str]) -> Result<Parsed, String> {
        let words: Vec<String> = words.iter().map(|w| (*w).to_owned()).collect();
        SPEC.parse(&words)
    }

    /// It said `Usage: muster-why`, which is no command, and ended in one line of 400 characters without its end.
    #[test]
    fn help_names_the_command_and_breaks_lines() {
        for spec in [&crate::why::SPEC, &crate::logs::SPEC] {
            let command = spec.name.replace('-', " ");
            for text in [spec.help(), spec.usage()] {
                assert!(text.starts_with(&format!("Usage: {command} ")), "{text}");
                assert!(text.lines().all(|line| line.len() <= 100), "{text}");
                assert!(text.ends_with(".\n") || text == spec.usage(), "{text}");
            }
            let unknown = spec.parse(&["--nosuch".to_owned()]).unwrap_err();
            assert!(unknown.starts_with(&format!("{command}: ")), "{unknown}");
        }
    }

    #[test]
    fn joined_shortened_and_by_another_name() {
        let parsed = parse(&[
            "-ro",
            "%i",
            "--json",
            "--form=%t",
            "-j7",
            "--local",
            "--job",
            "8",
            "--json=list",
        ]);
        assert_eq!(
            parsed.unwrap().options,
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

    #[test]
    fn refused_by_name() {
        for word in ["--bb=x", "--burst=x"] {
            let error = parse(&[word]).unwrap_err();
            assert!(
                error.ends_with("is not supported: there are none"),
                "{error}"
            );
        }
        assert!(parse(&["--burst=x", "--help"]).is_ok());
        assert!(SPEC.help().contains("      --burst=NAME"));
        assert!(SPEC.help().contains("\nHelp options:\n      --help "));
        let values = SPEC.values(&parse(&["-r", "-j7"]).unwrap());
        assert!(
            values.contains("\narray       = true\njobs        = 7\njson        = (null)\n"),
            "{values}"
        );
        assert_eq!(
            SPEC.usage(),
            "Usage: squeue [-r] [-o format] [-j list] [--json=VERSION] [--local] [--help]\n"
        );
    }
}

#[cfg(test)]
mod manual_tests;
