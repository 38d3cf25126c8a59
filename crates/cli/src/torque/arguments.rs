//! Command lines of Torque: a letter after a dash, its value beside it or in the next word (`-N name`, `-Nname`), several letters
//! without values together (`-Vh`). A few options have words for names, after one dash or two.

use super::call;
use crate::options::{Arg, Opt, OptionStatus, Spec};
use crate::say;

/// An option that was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TorqueOption {
    /// Its usual name.
    pub(super) name: &'static str,
    /// Its value; empty where it has none.
    pub(super) value: String,
}

/// A command line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct TorqueLine {
    /// Options, in order.
    pub(super) options: Vec<TorqueOption>,
    /// Other words.
    pub(super) operands: Vec<String>,
}

impl TorqueLine {
    /// Whether an option was given.
    pub(super) fn has(&self, name: &str) -> bool {
        self.options.iter().any(|given| given.name == name)
    }

    /// The last value of an option.
    pub(super) fn last(&self, name: &str) -> Option<&str> {
        let found = self.options.iter().rev().find(|given| given.name == name);
        found.map(|given| given.value.as_str())
    }

    /// Whether help was asked for.
    pub(super) fn wants_help(&self) -> bool {
        self.has("help") || self.has("man")
    }
}

/// Where words that are no options may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WordPlaces {
    /// The first one ends the options.
    End,
    /// Anywhere.
    Mixed,
}

/// Takes words apart. Warnings for options without effect go to standard error.
///
/// # Errors
/// The first option that is unknown, lacks a value or is refused.
pub(super) fn parse(
    spec: &'static Spec,
    args: &[String],
    words: WordPlaces,
) -> Result<TorqueLine, String> {
    let mut parsed = TorqueLine::default();
    let informs = args.iter().any(|word| is_help(word));
    let mut rest = args.iter();
    while let Some(word) = rest.next() {
        let Some(name) = word.strip_prefix('-').filter(|name| !name.is_empty()) else {
            parsed.operands.push(word.clone());
            if words == WordPlaces::End {
                parsed.operands.extend(rest.by_ref().cloned());
            }
            continue;
        };
        if word == "--" {
            parsed.operands.extend(rest.by_ref().cloned());
            continue;
        }
        let long = name.strip_prefix('-').unwrap_or(name);
        let long = if is_help(word) { "help" } else { long };
        let of_word = spec.options.iter().find(|own| own.long == long);
        if let Some(option) = of_word {
            let value = value(option, "", &mut rest)?;
            take(spec, &mut parsed, option, value, informs)?;
            continue;
        }
        let mut letters = name;
        while let Some(letter) = letters.chars().next() {
            let (own, behind) = letters.split_at(letter.len_utf8());
            let option = spec.options.iter().find(|option| option.long == own);
            let option = option.ok_or_else(|| format!("there is no option -{own}: {word}"))?;
            let has_value = option.arg != Arg::None;
            let value = value(option, if has_value { behind } else { "" }, &mut rest)?;
            take(spec, &mut parsed, option, value, informs)?;
            letters = if has_value { "" } else { behind };
        }
    }
    Ok(parsed)
}

fn is_help(word: &str) -> bool {
    ["-?", "-help", "--help"].contains(&word)
}

/// An option's value: the text beside it, or the next words.
fn value<'a>(
    option: &Opt,
    beside: &str,
    rest: &mut impl Iterator<Item = &'a String>,
) -> Result<String, String> {
    let missing = || format!("-{} needs a value: {}", option.long, option.placeholder);
    match (option.arg, beside) {
        (Arg::None, _) => Ok(String::new()),
        (_, "") => {
            let mut all = Vec::new();
            for _ in option.placeholder.split(' ') {
                all.push(rest.next().ok_or_else(missing)?.as_str());
            }
            Ok(all.join(" "))
        }
        (_, beside) => Ok(beside.to_owned()),
    }
}

fn take(
    spec: &'static Spec,
    parsed: &mut TorqueLine,
    option: &'static Opt,
    value: String,
    informs: bool,
) -> Result<(), String> {
    let long = option.long;
    match option.status {
        OptionStatus::Works | OptionStatus::Partly(_) => parsed.options.push(TorqueOption {
            name: option.name,
            value,
        }),
        OptionStatus::StoredOnly { warn: false, .. } => {}
        _ if informs => {}
        OptionStatus::StoredOnly { why, .. } => {
            let name = call(spec);
            say::stderr(&format!("{name}: warning: -{long} has no effect: {why}\n"));
        }
        OptionStatus::Refused(why) => return Err(format!("-{long} is not supported: {why}")),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::torque::{SPECS, qsub};
    use proptest::prelude::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    fn of(text: &str) -> Result<(String, String), String> {
        let parsed = parse(&qsub::SPEC, &words(text), WordPlaces::End)?;
        let options: Vec<String> = parsed
            .options
            .iter()
            .map(|given| format!("{}={}", given.name, given.value))
            .collect();
        Ok((options.join(" "), parsed.operands.join(" ")))
    }

    #[test]
    fn options_values_and_words() {
        for (text, options, operands) in [
            ("-N x -V job.sh -N y", "N=x V=", "job.sh -N y"),
            ("-Nx -lnodes=1 -Vh j", "N=x l=nodes=1 V= h=", "j"),
            ("-joe -qbatch", "j=oe q=batch", ""),
            ("-wd /tmp -pe shm 4 j", "wd=/tmp pe=shm 4", "j"),
            ("-w /tmp -I", "w=/tmp I=", ""),
            ("--sbatchline -b y echo hi", "sbatchline= b=y", "echo hi"),
            ("-? -c x", "help= c=x", ""),
            ("-", "", "-"),
        ] {
            let want = (options.to_owned(), operands.to_owned());
            assert_eq!(of(text), Ok(want), "{text}");
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, why) in [
            ("-Y", "there is no option -Y: -Y"),
            ("--nosuch", "there is no option --: --nosuch"),
            ("-N", "-N needs a value: name"),
            ("-pe shm", "-pe needs a value: shm count"),
        ] {
            assert_eq!(of(text), Err(why.to_owned()), "{text}");
        }
    }

    #[test]
    fn every_refused_option_is_refused_by_name() {
        for spec in SPECS {
            for option in spec.options {
                if let OptionStatus::Refused(_) = option.status {
                    let line = words(&format!("-{} x y", option.long));
                    let why = parse(spec, &line, WordPlaces::Mixed).unwrap_err();
                    let name = format!("-{} is not supported: ", option.long);
                    assert!(why.starts_with(&name), "{} {why}", spec.name);
                }
            }
        }
    }

    proptest! {
        #[test]
        fn never_panics(args in proptest::collection::vec("-?-?[a-zA-Zé?]{0,6}", 0..6)) {
            let _ = parse(&qsub::SPEC, &args, WordPlaces::Mixed);
        }
    }
}
