//! `#BSUB` lines of a batch script, which LSF reads, as options of sbatch. What of LSF's `bsub` has no counterpart here is
//! refused by name.

use super::OptionError;

/// An option of `bsub`.
enum Kind {
    /// It has a value and is the long option of that name.
    Value(&'static str),
    /// It is the long option of that name, without a value.
    Flag(&'static str),
    /// Memory for each task, in kilobytes unless a unit is said.
    Memory,
    /// `[hours:]minutes`, perhaps with a host after a slash.
    RunLimit,
    /// Hosts with blanks between them.
    Hosts,
    /// A number of slots, or the least and the most.
    Slots,
    /// A file, in whose name `%J` is the job and `%I` its index in an array.
    File(&'static str),
}

/// The options by name; longer names come before those that begin them.
const OPTIONS: [(&str, Kind); 10] = [
    ("cwd", Kind::Value("chdir")),
    ("J", Kind::Value("job-name")),
    ("q", Kind::Value("partition")),
    ("o", Kind::File("output")),
    ("e", Kind::File("error")),
    ("M", Kind::Memory),
    ("W", Kind::RunLimit),
    ("m", Kind::Hosts),
    ("n", Kind::Slots),
    ("x", Kind::Flag("exclusive")),
];

/// The options of sbatch that the words of a line mean.
///
/// # Errors
/// An option that is not known, or has no value or a wrong one.
pub(super) fn translated(words: &[String]) -> Result<Vec<String>, OptionError> {
    let mut out = Vec::new();
    let mut rest = words.iter();
    while let Some(word) = rest.next() {
        let wrong = |why: &str| OptionError::invalid(format!("#BSUB {word}: {why}"));
        let name = word
            .strip_prefix('-')
            .ok_or_else(|| wrong("expected an option; the command is the script itself"))?;
        let known = OPTIONS.iter().find(|(own, _)| name.starts_with(own));
        let (own, kind) = known.ok_or_else(|| wrong("no such option is read here"))?;
        let attached = name.strip_prefix(own).unwrap_or_default();
        if let Kind::Flag(long) = kind {
            if !attached.is_empty() {
                return Err(wrong("it has no value"));
            }
            out.push(format!("--{long}"));
            continue;
        }
        let value = match attached {
            "" => rest.next().map(String::as_str),
            attached => Some(attached),
        };
        let value = value.ok_or_else(|| wrong("it needs a value"))?;
        out.push(option(kind, value).ok_or_else(|| wrong("its value is not one"))?);
    }
    Ok(out)
}

/// The option with its value, if that is one.
fn option(kind: &Kind, value: &str) -> Option<String> {
    Some(match kind {
        Kind::Value(long) => format!("--{long}={value}"),
        Kind::Flag(long) => format!("--{long}"),
        Kind::Memory => {
            let unit = value.trim_start_matches(|c: char| c.is_ascii_digit());
            let number: u64 = value[..value.len() - unit.len()].parse().ok()?;
            let unit = match unit.to_ascii_uppercase().as_str() {
                "" | "K" | "KB" => "K",
                "M" | "MB" => "M",
                "G" | "GB" => "G",
                "T" | "TB" => "T",
                _ => return None,
            };
            format!("--mem-per-cpu={number}{unit}")
        }
        Kind::RunLimit => {
            let limit = value.split('/').next()?;
            let (hours, minutes) = limit.split_once(':').unwrap_or(("0", limit));
            let (hours, minutes): (u32, u32) = (hours.parse().ok()?, minutes.parse().ok()?);
            format!("--time={}", hours.checked_mul(60)?.checked_add(minutes)?)
        }
        Kind::Hosts => {
            let hosts: Vec<&str> = value.split_whitespace().collect();
            format!("--nodelist={}", hosts.join(","))
        }
        Kind::Slots => {
            let slots = value.split(',').next()?;
            format!("--ntasks={}", slots.parse::<u32>().ok()?)
        }
        Kind::File(long) => {
            let name = value.replace("%J", "%j").replace("%I", "%a");
            format!("--{long}={name}")
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Result<Vec<String>, String> {
        let words: Vec<String> = text.split('|').map(str::to_owned).collect();
        translated(&words).map_err(|error| error.lines.join(" "))
    }

    #[test]
    fn lines_mean_options_of_sbatch() {
        for (text, expected) in [
            ("-oout.%J|-e|err", "--output=out.%j --error=err"),
            ("-mn1 n2", "--nodelist=n1,n2"),
            ("-Jname|-M4096", "--job-name=name --mem-per-cpu=4096K"),
            (
                "-W|1:30|-x|-qlong",
                "--time=90 --exclusive --partition=long",
            ),
            ("-W|5/host|-n|2,4", "--time=5 --ntasks=2"),
            ("-cwd|/tmp", "--chdir=/tmp"),
            ("-M|4GB", "--mem-per-cpu=4G"),
        ] {
            assert_eq!(of(text).map(|all| all.join(" ")), Ok(expected.to_owned()));
        }
        for (text, why) in [
            ("-P|project", "no such option is read here"),
            ("a.out", "expected an option"),
            ("-J", "it needs a value"),
            ("-xy", "it has no value"),
            ("-M|lots", "its value is not one"),
        ] {
            let said = of(text).unwrap_err();
            assert!(said.contains(why), "{text}: {said}");
        }
    }
}
