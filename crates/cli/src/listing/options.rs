//! Command lines of the listing commands: getopt_long(3)'s rules (joined short options, abbreviated long ones,
//! options after operands) over a small table.

use super::Failure;

/// Whether an option takes a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    /// None.
    No,
    /// In the same word or the next.
    Yes,
    /// Only in the same word (`--json=list`).
    Maybe,
}

/// A row of a command's table: what the program calls it (its first long name), its letter, other long names.
pub(crate) struct Opt {
    /// Canonical long name.
    pub(crate) name: &'static str,
    /// Letter.
    pub(crate) short: Option<char>,
    /// Further long names.
    pub(crate) also: &'static [&'static str],
    /// Its value.
    pub(crate) value: Value,
}

/// A row.
pub(crate) const fn opt(short: char, name: &'static str, value: Value) -> Opt {
    Opt {
        name,
        short: Some(short),
        also: &[],
        value,
    }
}

/// A row without a letter.
pub(crate) const fn long(name: &'static str, value: Value) -> Opt {
    Opt {
        name,
        short: None,
        also: &[],
        value,
    }
}

/// A row with further names.
pub(crate) const fn alias(row: Opt, also: &'static [&'static str]) -> Opt {
    Opt {
        name: row.name,
        short: row.short,
        also,
        value: row.value,
    }
}

/// What a command line says.
#[derive(Debug, Default)]
pub(crate) struct Parsed {
    /// Options in order, by canonical name.
    pub(crate) options: Vec<(&'static str, Option<String>)>,
    /// Everything else.
    pub(crate) operands: Vec<String>,
}

/// Reads a command line.
///
/// # Errors
/// An unknown or ambiguous option, a missing value, a value too many; worded as getopt_long does.
pub(crate) fn parse(
    command: &str,
    table: &'static [Opt],
    args: &[String],
) -> Result<Parsed, Failure> {
    let wrong = |text: String| {
        Failure::new(format!(
            "{command}: {text}\nTry \"{command} --help\" for more information"
        ))
    };
    let mut parsed = Parsed::default();
    let mut rest = args.iter();
    while let Some(arg) = rest.next() {
        if arg == "--" {
            parsed.operands.extend(rest.by_ref().cloned());
        } else if let Some(word) = arg.strip_prefix("--") {
            let (name, given) = match word.split_once('=') {
                Some((name, value)) => (name, Some(value.to_owned())),
                None => (word, None),
            };
            let row = find(table, name).map_err(&wrong)?;
            let value = match (row.value, given) {
                (Value::No, Some(_)) => {
                    return Err(wrong(format!(
                        "option '--{}' doesn't allow an argument",
                        row.name
                    )));
                }
                (Value::Yes, None) => Some(rest.next().cloned().ok_or_else(|| {
                    wrong(format!("option '--{}' requires an argument", row.name))
                })?),
                (_, given) => given,
            };
            parsed.options.push((row.name, value));
        } else if arg.len() > 1 && arg.starts_with('-') {
            letters(table, &arg[1..], &mut rest, &mut parsed).map_err(&wrong)?;
        } else {
            parsed.operands.push(arg.clone());
        }
    }
    Ok(parsed)
}

fn letters<'a>(
    table: &'static [Opt],
    word: &str,
    rest: &mut impl Iterator<Item = &'a String>,
    parsed: &mut Parsed,
) -> Result<(), String> {
    let mut chars = word.chars();
    while let Some(letter) = chars.next() {
        let row = table
            .iter()
            .find(|row| row.short == Some(letter))
            .ok_or_else(|| format!("invalid option -- '{letter}'"))?;
        let joined = chars.as_str();
        let value = match row.value {
            Value::No => None,
            Value::Yes | Value::Maybe if !joined.is_empty() => {
                // `-o=x` means `=x` to getopt; nobody wants that of a short option either way.
                Some(joined.to_owned())
            }
            Value::Maybe => None,
            Value::Yes => Some(
                rest.next()
                    .cloned()
                    .ok_or_else(|| format!("option requires an argument -- '{letter}'"))?,
            ),
        };
        let done = row.value != Value::No;
        parsed.options.push((row.name, value));
        if done {
            break;
        }
    }
    Ok(())
}

fn find(table: &'static [Opt], name: &str) -> Result<&'static Opt, String> {
    let names = |row: &'static Opt| std::iter::once(row.name).chain(row.also.iter().copied());
    if let Some(row) = table.iter().find(|row| names(row).any(|n| n == name)) {
        return Ok(row);
    }
    let mut hits = table
        .iter()
        .filter(|row| names(row).any(|n| n.starts_with(name)));
    match (hits.next(), hits.next()) {
        (Some(row), None) => Ok(row),
        (Some(_), Some(_)) => Err(format!("option '--{name}' is ambiguous")),
        _ => Err(format!("unrecognized option '--{name}'")),
    }
}

/// The environment variable's value, if it is set and not empty.
pub(crate) fn env(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|v| !v.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    static TABLE: &[Opt] = &[
        opt('o', "format", Value::Yes),
        opt('r', "array", Value::No),
        alias(opt('j', "jobs", Value::Yes), &["job"]),
        long("json", Value::Maybe),
    ];

    fn options(words: &[&str]) -> Result<Vec<(&'static str, Option<String>)>, String> {
        let words: Vec<String> = words.iter().map(|w| (*w).to_owned()).collect();
        parse("squeue", TABLE, &words)
            .map(|p| p.options)
            .map_err(|f| f.to_string())
    }

    #[test]
    fn as_getopt() {
        assert_eq!(
            options(&["-ro", "%i", "--json", "--form=%t", "-j7"]).unwrap(),
            [
                ("array", None),
                ("format", Some("%i".into())),
                ("json", None),
                ("format", Some("%t".into())),
                ("jobs", Some("7".into())),
            ]
        );
        assert_eq!(
            options(&["--json=list"]).unwrap(),
            [("json", Some("list".into()))]
        );
        assert_eq!(
            options(&["--foo"]).unwrap_err(),
            "squeue: unrecognized option '--foo'\nTry \"squeue --help\" for more information"
        );
        assert!(options(&["--js"]).is_ok());
        assert!(options(&["--j"]).unwrap_err().contains("ambiguous"));
        assert!(
            options(&["-z"])
                .unwrap_err()
                .contains("invalid option -- 'z'")
        );
        assert!(
            options(&["-o"])
                .unwrap_err()
                .contains("requires an argument")
        );
    }
}
