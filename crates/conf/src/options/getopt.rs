//! Reading a command line the way getopt_long(3) does, for any table of options: long names may be shortened as far
//! as they stay unambiguous, values join with `=` or follow, short flags cluster, `--` ends the options.

use super::row::{Arg, OptionRow};

/// The parser's view of an option.
pub trait OptionSpec {
    /// Long name, without dashes.
    fn long(&self) -> &'static str;
    /// Short name.
    fn short(&self) -> Option<char>;
    /// Whether it takes a value.
    fn arg(&self) -> Arg;
}

impl OptionSpec for OptionRow {
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

/// An option of a command that has no need of more: long name, short name, value.
#[derive(Clone, Copy, Debug)]
pub struct SimpleOption(pub &'static str, pub Option<char>, pub Arg);

impl OptionSpec for SimpleOption {
    fn long(&self) -> &'static str {
        self.0
    }

    fn short(&self) -> Option<char> {
        self.1
    }

    fn arg(&self) -> Arg {
        self.2
    }
}

/// Where words that are no options may stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperandOrder {
    /// The first such word ends the options: sbatch, srun, salloc.
    StopAtWord,
    /// Anywhere.
    Mixed,
}

/// A command line taken apart.
#[derive(Debug)]
pub struct Parsed<'t, T> {
    /// Options with their values, in order.
    pub options: Vec<(&'t T, Option<String>)>,
    /// The remaining words.
    pub words: Vec<String>,
}

/// Takes `args` (without the command's name) apart.
///
/// # Errors
/// getopt_long's sentence, without the command's name.
pub fn parse<'t, T: OptionSpec>(
    table: impl Iterator<Item = &'t T> + Clone,
    args: &[String],
    order: OperandOrder,
) -> Result<Parsed<'t, T>, String> {
    let mut parsed = Parsed {
        options: Vec::new(),
        words: Vec::new(),
    };
    let mut rest = args.iter();
    while let Some(arg) = rest.next() {
        if arg == "--" {
            break;
        }
        if let Some(long) = arg.strip_prefix("--") {
            let option = long_option(table.clone(), long, &mut rest)?;
            parsed.options.push(option);
        } else if arg.len() > 1 && arg.starts_with('-') {
            short_options(table.clone(), &arg[1..], &mut rest, &mut parsed.options)?;
        } else {
            parsed.words.push(arg.clone());
            if order == OperandOrder::StopAtWord {
                break;
            }
        }
    }
    parsed.words.extend(rest.cloned());
    Ok(parsed)
}

fn long_option<'t, 'a, T: OptionSpec>(
    table: impl Iterator<Item = &'t T> + Clone,
    text: &str,
    rest: &mut impl Iterator<Item = &'a String>,
) -> Result<(&'t T, Option<String>), String> {
    let (name, value) = match text.split_once('=') {
        Some((name, value)) => (name, Some(value.to_owned())),
        None => (text, None),
    };
    let row = match table.clone().find(|row| row.long() == name) {
        Some(row) => row,
        None => abbreviated(table, name, text)?,
    };
    let long = row.long();
    match (row.arg(), value) {
        (Arg::None, Some(_)) => Err(format!("option '--{long}' doesn't allow an argument")),
        (Arg::Required, None) => match rest.next() {
            Some(value) => Ok((row, Some(value.clone()))),
            None => Err(format!("option '--{long}' requires an argument")),
        },
        (_, value) => Ok((row, value)),
    }
}

fn abbreviated<'t, T: OptionSpec>(
    table: impl Iterator<Item = &'t T> + Clone,
    name: &str,
    written: &str,
) -> Result<&'t T, String> {
    let mut candidates = table.filter(|row| !name.is_empty() && row.long().starts_with(name));
    let Some(first) = candidates.next() else {
        return Err(format!("unrecognized option '--{written}'"));
    };
    let mut names = format!("'--{}'", first.long());
    let mut ambiguous = false;
    for other in candidates {
        ambiguous = true;
        names.push_str(&format!(" '--{}'", other.long()));
    }
    if ambiguous {
        return Err(format!(
            "option '--{written}' is ambiguous; possibilities: {names}"
        ));
    }
    Ok(first)
}

fn short_options<'t, 'a, T: OptionSpec>(
    table: impl Iterator<Item = &'t T> + Clone,
    cluster: &str,
    rest: &mut impl Iterator<Item = &'a String>,
    options: &mut Vec<(&'t T, Option<String>)>,
) -> Result<(), String> {
    let mut letters = cluster.chars();
    while let Some(letter) = letters.next() {
        let Some(row) = table.clone().find(|row| row.short() == Some(letter)) else {
            return Err(format!("invalid option -- '{letter}'"));
        };
        let joined = letters.as_str();
        match row.arg() {
            Arg::None => {
                options.push((row, None));
                continue;
            }
            Arg::Optional => {
                options.push((row, (!joined.is_empty()).then(|| joined.to_owned())));
            }
            Arg::Required if !joined.is_empty() => options.push((row, Some(joined.to_owned()))),
            Arg::Required => match rest.next() {
                Some(value) => options.push((row, Some(value.clone()))),
                None => return Err(format!("option requires an argument -- '{letter}'")),
            },
        }
        return Ok(());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::{OptionCommand, table};
    use super::*;
    use proptest::prelude::*;

    type Options = Vec<(&'static str, Option<String>)>;

    fn sbatch(args: &[&str]) -> Result<(Options, Vec<String>), String> {
        let args: Vec<String> = args.iter().map(|a| (*a).to_owned()).collect();
        let rows = table()
            .iter()
            .filter(|r| r.commands.has(OptionCommand::Sbatch));
        let parsed = parse(rows, &args, OperandOrder::StopAtWord)?;
        let options = parsed
            .options
            .into_iter()
            .map(|(r, v)| (r.long, v))
            .collect();
        Ok((options, parsed.words))
    }

    #[test]
    fn forms() {
        let v = |t: &str| Some(t.to_owned());
        type Case<'a> = (
            &'a [&'a str],
            &'a [(&'a str, Option<String>)],
            &'a [&'a str],
        );
        let cases: &[Case<'_>] = &[
            (&["-N2", "job.sh"], &[("nodes", v("2"))], &["job.sh"]),
            (&["-N", "2"], &[("nodes", v("2"))], &[]),
            (&["--nodes=2"], &[("nodes", v("2"))], &[]),
            (&["--nodes", "2"], &[("nodes", v("2"))], &[]),
            (&["-o%R,%C"], &[("output", v("%R,%C"))], &[]),
            (
                &["-HQn4"],
                &[("hold", None), ("quiet", None), ("ntasks", v("4"))],
                &[],
            ),
            (&["--part", "x"], &[("partition", v("x"))], &[]),
            (&["a.sh", "-N2", "--x"], &[], &["a.sh", "-N2", "--x"]),
            (&["--", "-N2"], &[], &["-N2"]),
            (&["--exclusive", "user"], &[("exclusive", None)], &["user"]),
            (&["--exclusive=user"], &[("exclusive", v("user"))], &[]),
            (&["--wrap="], &[("wrap", v(""))], &[]),
            (&["-k", "x"], &[("no-kill", None)], &["x"]),
        ];
        for (args, options, words) in cases {
            let (got, rest) = sbatch(args).unwrap();
            assert_eq!(&got, options, "{args:?}");
            assert_eq!(&rest, words, "{args:?}");
        }
    }

    #[test]
    fn complaints_are_getopts() {
        for (args, text) in [
            (
                &["--nosuchoption", "x"][..],
                "unrecognized option '--nosuchoption'",
            ),
            (&["--hold=x"], "option '--hold' doesn't allow an argument"),
            (
                &["--cpus", "3"],
                "option '--cpus' is ambiguous; possibilities: '--cpus-per-task' '--cpus-per-gpu'",
            ),
            (
                &["--cpus=3"],
                "option '--cpus=3' is ambiguous; possibilities: '--cpus-per-task' '--cpus-per-gpu'",
            ),
            (&["--nosuch=x"], "unrecognized option '--nosuch=x'"),
            (&["--job-n"], "option '--job-name' requires an argument"),
            (&["-N"], "option requires an argument -- 'N'"),
            (&["-^"], "invalid option -- '^'"),
        ] {
            assert_eq!(sbatch(args).unwrap_err(), text);
        }
    }

    proptest! {
        #[test]
        fn never_panics(args in proptest::collection::vec("[-=a-zA-Z:é ]{0,8}", 0..6)) {
            let _ = parse(table().iter(), &args, OperandOrder::Mixed);
        }
    }
}
