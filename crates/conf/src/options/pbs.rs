//! `#PBS` lines of a batch script as options of sbatch. Slurm's sbatch reads some of Torque's options; the others it either
//! refuses or passes over. What it passes over is named in a warning here.

use super::OptionError;
use super::torque::{AmountUnits, ResourceReader, TorqueResources};

/// An option of Torque's qsub.
enum PbsOption {
    /// Its value is that of the long option.
    Value(&'static str),
    /// It is the long option, without a value.
    Flag(&'static str),
    /// A list of resources.
    ResourceList,
    /// Whether the job may run again.
    Rerun,
    /// Letters for kinds of mail.
    Mail,
    /// Variables of the job.
    Variables,
    /// All variables.
    AllVariables,
    /// Attributes, of which the dependency counts.
    Attributes,
    /// It has a value and changes nothing.
    PassedOver(&'static str),
    /// It has none and changes nothing.
    PassedOverFlag(&'static str),
}

const OPTIONS: [(char, PbsOption); 23] = [
    ('a', PbsOption::Value("begin")),
    ('A', PbsOption::Value("account")),
    ('e', PbsOption::Value("error")),
    ('h', PbsOption::Flag("hold")),
    ('J', PbsOption::Value("array")),
    ('l', PbsOption::ResourceList),
    ('m', PbsOption::Mail),
    ('M', PbsOption::Value("mail-user")),
    ('N', PbsOption::Value("job-name")),
    ('o', PbsOption::Value("output")),
    ('p', PbsOption::Value("nice")),
    ('q', PbsOption::Value("partition")),
    ('r', PbsOption::Rerun),
    ('t', PbsOption::Value("array")),
    ('v', PbsOption::Variables),
    ('V', PbsOption::AllVariables),
    ('W', PbsOption::Attributes),
    ('c', PbsOption::PassedOver("jobs are not checkpointed")),
    (
        'C',
        PbsOption::PassedOver("lines of options begin with #PBS for sbatch"),
    ),
    (
        'S',
        PbsOption::PassedOver("the script's first line names its shell"),
    ),
    (
        'u',
        PbsOption::PassedOver("a job is its submitter's; root may use --uid"),
    ),
    (
        'I',
        PbsOption::PassedOverFlag("a batch script is not interactive; use salloc"),
    ),
    ('z', PbsOption::PassedOverFlag("use sbatch --quiet")),
];

/// Options with a value for which nothing is missed.
const WITHOUT_NEED: [char; 2] = ['j', 'k'];

/// Options of sbatch from the lines of a script.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PbsLines {
    /// Words of a command line of sbatch.
    pub words: Vec<String>,
    /// Options without effect, and why.
    pub warnings: Vec<String>,
}

/// Options of sbatch for all words of `#PBS` lines.
///
/// # Errors
/// An option that is not known, lacks its value or has a wrong one; a word that is no option.
pub(super) fn translated(words: &[String]) -> Result<PbsLines, OptionError> {
    let mut lines = PbsReader::default();
    let mut rest = words.iter();
    while let Some(word) = rest.next() {
        let wrong = |why: &str| OptionError::fatal(format!("#PBS {word}: {why}"));
        let letters = word.strip_prefix('-').filter(|l| !l.is_empty());
        let mut letters = letters.ok_or_else(|| wrong("it is no option"))?;
        while let Some(letter) = letters.chars().next() {
            letters = &letters[letter.len_utf8()..];
            let known = OPTIONS.iter().find(|(own, _)| *own == letter);
            let kind = known.map(|(_, kind)| kind);
            if kind.is_none() && !WITHOUT_NEED.contains(&letter) {
                return Err(wrong(&format!(
                    "sbatch reads no option -{letter} of Torque"
                )));
            }
            if let Some(
                PbsOption::Flag(_) | PbsOption::AllVariables | PbsOption::PassedOverFlag(_),
            ) = kind
            {
                lines.take(letter, kind, "").map_err(|why| wrong(&why))?;
                continue;
            }
            let value = match letters {
                "" => rest.next().map(String::as_str),
                attached => Some(attached),
            };
            let value = value.ok_or_else(|| wrong(&format!("-{letter} needs a value")))?;
            lines.take(letter, kind, value).map_err(|why| wrong(&why))?;
            break;
        }
    }
    lines.finish()
}

#[derive(Default)]
struct PbsReader {
    out: PbsLines,
    resources: TorqueResources,
    variables: Option<String>,
    all_variables: bool,
}

impl PbsReader {
    fn take(&mut self, letter: char, kind: Option<&PbsOption>, value: &str) -> Result<(), String> {
        let Some(kind) = kind else {
            return Ok(());
        };
        let mut add = |word: String| self.out.words.push(word);
        match kind {
            PbsOption::Value(long) => add(format!("--{long}={value}")),
            PbsOption::Flag(long) => add(format!("--{long}")),
            PbsOption::ResourceList => self.resources.add(value, AmountUnits::Slurm)?,
            PbsOption::Rerun => match value {
                "y" => add("--requeue".to_owned()),
                "n" => add("--no-requeue".to_owned()),
                _ => return Err("it is y or n".to_owned()),
            },
            PbsOption::Mail => add(format!("--mail-type={}", mail(value)?)),
            PbsOption::Variables => self.variables = Some(value.to_owned()),
            PbsOption::AllVariables => self.all_variables = true,
            PbsOption::Attributes => self.attributes(value),
            PbsOption::PassedOver(why) | PbsOption::PassedOverFlag(why) => {
                let text = format!("#PBS -{letter} has no effect: {why}");
                self.out.warnings.push(text);
            }
        }
        Ok(())
    }

    fn attributes(&mut self, text: &str) {
        for (name, value) in attributes(text) {
            match name.as_str() {
                "depend" => self.out.words.push(format!("--dependency={value}")),
                _ => {
                    let text = format!("#PBS -W {name} has no effect in sbatch");
                    self.out.warnings.push(text);
                }
            }
        }
    }

    fn finish(mut self) -> Result<PbsLines, OptionError> {
        let requests = self.resources.translated(ResourceReader::Sbatch);
        let requests = requests.map_err(|why| OptionError::fatal(format!("#PBS {why}")))?;
        self.out.words.extend(requests.words());
        let without = requests.without_effect.iter();
        let warnings = without.map(|(name, why)| format!("#PBS {name} has no effect: {why}"));
        self.out.warnings.extend(warnings);
        match (self.variables, self.all_variables) {
            (Some(list), true) => self.out.words.push(format!("--export=ALL,{list}")),
            (Some(list), false) => self.out.words.push(format!("--export={list}")),
            (None, true) => self.out.words.push("--export=ALL".to_owned()),
            (None, false) => {}
        }
        Ok(self.out)
    }
}

/// Kinds of mail by their letters: `a` abort, `b` begin, `e` end, `n` none.
///
/// # Errors
/// Another letter.
pub fn mail(letters: &str) -> Result<String, String> {
    let mut kinds = Vec::new();
    for letter in letters.chars() {
        match letter {
            'a' | 'f' => kinds.push("FAIL"),
            'b' => kinds.push("BEGIN"),
            'e' => kinds.push("END"),
            'n' | 'p' => {}
            _ => return Err(format!("'{letter}' is not one of a, b, e, n")),
        }
    }
    match kinds.is_empty() {
        true => Ok("NONE".to_owned()),
        false => Ok(kinds.join(",")),
    }
}

/// `depend=afterok:1,afterany:2,group_list=g`: names and values, where a word without a sign of equality goes on with the value
/// before it.
pub fn attributes(text: &str) -> Vec<(String, String)> {
    let mut all: Vec<(String, String)> = Vec::new();
    for word in text.split(',').map(str::trim) {
        match (word.split_once('='), all.last_mut()) {
            (Some((name, value)), _) => all.push((name.to_owned(), value.to_owned())),
            (None, Some((_, value))) => {
                value.push(',');
                value.push_str(word);
            }
            (None, None) => all.push((word.to_owned(), String::new())),
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Result<PbsLines, String> {
        let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
        translated(&words).map_err(|error| error.lines.join(" "))
    }

    /// As Slurm 22.05 reads them.
    #[test]
    fn lines_mean_options_of_sbatch() {
        for (text, want) in [
            (
                "-N name -o out -e err -q short",
                "--job-name=name --output=out --error=err --partition=short",
            ),
            ("-Nattached -A acct", "--job-name=attached --account=acct"),
            (
                "-l nodes=2:ppn=2,walltime=00:10:00 -l mem=100mb",
                "--nodes=2 --ntasks=4 --time=00:10:00 --mem=100M",
            ),
            ("-l walltime=5", "--time=5"),
            (
                "-m abe -M a@b,c@d",
                "--mail-type=FAIL,BEGIN,END --mail-user=a@b,c@d",
            ),
            ("-m n", "--mail-type=NONE"),
            ("-p 100 -r n -h", "--nice=100 --no-requeue --hold"),
            ("-t 1-3", "--array=1-3"),
            ("-J 1-9:2", "--array=1-9:2"),
            ("-V", "--export=ALL"),
            ("-v A=1,B", "--export=A=1,B"),
            ("-Vh -v A", "--hold --export=ALL,A"),
            ("-j oe -k oe", ""),
            (
                "-W depend=afterany:1:2,afternotok:3,umask=077",
                "--dependency=afterany:1:2,afternotok:3",
            ),
        ] {
            assert_eq!(of(text).map(|own| own.words.join(" ")), Ok(want.to_owned()));
        }
    }

    #[test]
    fn what_is_passed_over_is_named() {
        let found = of("-S /bin/sh -W block=true -l arch=x -I").unwrap();
        assert_eq!(found.words, Vec::<String>::new());
        assert_eq!(
            found.warnings,
            [
                "#PBS -S has no effect: the script's first line names its shell",
                "#PBS -W block has no effect in sbatch",
                "#PBS -I has no effect: a batch script is not interactive; use salloc",
                "#PBS -l arch has no effect: features distinguish nodes; ask for one in nodes=N:FEATURE",
            ]
        );
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, want) in [
            ("-d /tmp", "#PBS -d: sbatch reads no option -d of Torque"),
            ("word", "#PBS word: it is no option"),
            ("-l", "#PBS -l: -l needs a value"),
            ("-r maybe", "#PBS -r: it is y or n"),
            ("-m x", "#PBS -m: 'x' is not one of a, b, e, n"),
            ("-l nodes=0", "#PBS -l nodes=0: there are no nodes in it"),
        ] {
            assert_eq!(of(text), Err(want.to_owned()), "{text}");
        }
    }
}
