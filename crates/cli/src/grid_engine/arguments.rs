//! Command lines of Grid Engine: options have one dash and whole names, and a value is the word after. An option with a placeholder of
//! several words takes as many values.

use crate::options::{Arg, Opt, OptionStatus, Spec};

/// An option that was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OptionArgument {
    /// Its usual name.
    pub(crate) name: &'static str,
    /// Its values.
    pub(crate) values: Vec<String>,
}

impl OptionArgument {
    /// The first value; empty where there is none.
    pub(crate) fn value(&self) -> &str {
        self.values.first().map_or("", String::as_str)
    }
}

/// A command line taken apart.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Parsed {
    /// Options in order.
    pub(crate) options: Vec<OptionArgument>,
    /// Options without effect.
    pub(crate) ignored: Vec<&'static str>,
    /// Words that are no options.
    pub(crate) operands: Vec<String>,
}

impl Parsed {
    /// Whether an option was given.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.options.iter().any(|given| given.name == name)
    }

    /// The values of an option, each time that it was given.
    pub(crate) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        let found = self.options.iter().filter(move |given| given.name == name);
        found.map(OptionArgument::value)
    }

    /// The last value of an option.
    pub(crate) fn last(&self, name: &str) -> Option<&str> {
        self.options
            .iter()
            .rev()
            .find(|given| given.name == name)
            .map(OptionArgument::value)
    }
}

/// The error of a command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum UsageError {
    /// There is no such option, or a value misses.
    Usage(String),
    /// The option is not implemented.
    Refused(String),
}

impl UsageError {
    /// The line for the user.
    pub(crate) fn text(&self) -> &str {
        match self {
            UsageError::Usage(text) | UsageError::Refused(text) => text,
        }
    }
}

/// Where words that are no options may stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OperandPosition {
    /// The first one ends the options.
    End,
    /// Anywhere.
    Mixed,
}

/// Takes words apart. Warnings for options without effect go to standard error.
///
/// # Errors
/// The first option that is unknown, lacks a value or is refused.
pub(crate) fn parse(
    spec: &'static Spec,
    args: &[String],
    words: OperandPosition,
) -> Result<Parsed, UsageError> {
    let name = spec.name;
    let mut parsed = Parsed::default();
    let mut rest = args.iter().peekable();
    let informs = args.iter().any(|word| word == "-help" || word == "--help");
    while let Some(word) = rest.next() {
        // A dash alone is a word: the script is on standard input.
        if word == "-" || !word.starts_with('-') {
            parsed.operands.push(word.clone());
            if words == OperandPosition::End {
                parsed.operands.extend(rest.by_ref().cloned());
            }
            continue;
        }
        let option = find(spec, word).ok_or_else(|| {
            UsageError::Usage(format!("{name}: invalid option argument \"{word}\""))
        })?;
        if let OptionStatus::Refused(why) = option.status
            && !informs
        {
            return Err(UsageError::Refused(format!(
                "{name}: option \"{word}\" is not supported: {why}"
            )));
        }
        let mut values = Vec::new();
        for _ in 0..count(option) {
            match rest.next() {
                Some(value) => values.push(value.clone()),
                None => {
                    let what = option.placeholder;
                    return Err(UsageError::Usage(format!(
                        "{name}: option \"{word}\" must have an argument: {word} {what}"
                    )));
                }
            }
        }
        // `-binding` may say first who is to bind.
        let says_who = |value: &String| ["env", "pe", "set"].contains(&value.as_str());
        if option.name == "binding" && values.iter().any(says_who) {
            values.extend(rest.next().cloned());
        }
        if option.arg == Arg::Optional
            && let Some(value) = rest.next_if(|next| !next.starts_with('-') || *next == "-")
        {
            values.push(value.clone());
        }
        match option.status {
            OptionStatus::Works | OptionStatus::Partly(_) => parsed.options.push(OptionArgument {
                name: option.name,
                values,
            }),
            OptionStatus::StoredOnly { why, warn } => {
                if warn && !informs {
                    crate::say::stderr(&format!("{name}: warning: {word} has no effect: {why}\n"));
                }
                parsed.ignored.push(option.name);
            }
            // With -help nothing is refused.
            OptionStatus::Refused(_) => {}
        }
    }
    Ok(parsed)
}

fn find(spec: &'static Spec, word: &str) -> Option<&'static Opt> {
    let name = match word {
        "--help" => "help",
        _ => word.strip_prefix('-')?,
    };
    let row = spec.options.iter().find(|option| option.long == name)?;
    // Another name has what the usual one has.
    spec.options.iter().find(|option| option.long == row.name)
}

/// Number of values that an option must have.
fn count(option: &Opt) -> usize {
    match option.arg {
        Arg::Required => option.placeholder.split(' ').count(),
        Arg::None | Arg::Optional => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grid_engine::submit_options::QSUB;
    use proptest::prelude::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn options_values_and_words() {
        let parsed = parse(
            &QSUB,
            &words("-N x -pe smp 4 -cwd job.sh -N y"),
            OperandPosition::End,
        )
        .unwrap();
        let given: Vec<String> = parsed
            .options
            .iter()
            .map(|given| format!("{}={}", given.name, given.values.join("+")))
            .collect();
        assert_eq!(given, ["N=x", "pe=smp+4", "cwd="]);
        assert_eq!(parsed.operands, words("job.sh -N y"));
        for line in [
            "-binding linear:2 job.sh",
            "-binding pe striding:2:4 job.sh",
        ] {
            let parsed = parse(&QSUB, &words(line), OperandPosition::End).unwrap();
            assert_eq!(parsed.operands, words("job.sh"), "{line}");
        }
        let parsed = parse(&QSUB, &words("- a"), OperandPosition::End).unwrap();
        assert_eq!(parsed.operands, words("- a"));
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (line, text) in [
            ("-badflag x", "qsub: invalid option argument \"-badflag\""),
            ("-N", "qsub: option \"-N\" must have an argument: -N name"),
            (
                "-pe smp",
                "qsub: option \"-pe\" must have an argument: -pe pe_name slot_range",
            ),
            ("--name=x", "qsub: invalid option argument \"--name=x\""),
        ] {
            assert_eq!(
                parse(&QSUB, &words(line), OperandPosition::End)
                    .unwrap_err()
                    .text(),
                text
            );
        }
    }

    #[test]
    fn every_refused_option_is_refused_by_name() {
        for option in QSUB.options {
            if let OptionStatus::Refused(_) = option.status {
                let line = format!("-{}", option.long);
                let wrong = parse(&QSUB, &words(&line), OperandPosition::End).unwrap_err();
                let name = format!("qsub: option \"-{}\" is not supported: ", option.long);
                assert!(wrong.text().starts_with(&name), "{}", wrong.text());
            }
        }
    }

    proptest! {
        #[test]
        fn never_panics(args in proptest::collection::vec("-?[a-zA-Z_@]{0,6}", 0..6)) {
            let _ = parse(&QSUB, &args, OperandPosition::Mixed);
        }
    }
}
