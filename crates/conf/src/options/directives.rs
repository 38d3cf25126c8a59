//! `#SBATCH`, `#PBS` and `#BSUB` lines of a batch script. The first count until the first line that is neither blank nor a comment,
//! the others anywhere; a line may hold several options, quoted as in a shell, and a `#` that begins a word ends it.

use super::chosen::{ChosenOptions, Source};
use super::getopt::{self, OperandOrder};
use super::pbs::{self, PbsLines};
use super::{OptionError, bsub};

/// Adds the options of a script's directives, those of its first component if it has several. `name` is the script's,
/// for messages.
///
/// # Errors
/// Unknown options and stray words end the submission with exit code 255, bad quoting with 1.
pub fn read(chosen: &mut ChosenOptions, script: &str, name: &str) -> Result<(), OptionError> {
    let sections = sections(script, name)?;
    sections.first().map_or(Ok(()), |args| apply(chosen, args))
}

/// The words of the directives: one list for each component of a heterogeneous job, which `#SBATCH hetjob` separates.
///
/// # Errors
/// Bad quoting.
pub fn sections(script: &str, name: &str) -> Result<Vec<Vec<String>>, OptionError> {
    let mut sections = vec![Vec::new()];
    for (number, line) in script.lines().enumerate() {
        if let Some(rest) = line.strip_prefix("#SBATCH") {
            let mut args = Vec::new();
            words(rest, name, number + 1, &mut args)?;
            match args.as_slice() {
                [word] if word == "hetjob" || word == "packjob" => sections.push(Vec::new()),
                _ => sections
                    .last_mut()
                    .into_iter()
                    .for_each(|s| s.append(&mut args)),
            }
        } else if !line.trim_start().is_empty() && !line.trim_start().starts_with('#') {
            break;
        }
    }
    Ok(sections)
}

/// The options that `#BSUB` lines mean, wherever in the script they are.
///
/// # Errors
/// Bad quoting; options that are not known.
pub fn of_bsub(script: &str, name: &str) -> Result<Vec<String>, OptionError> {
    bsub::translated(&words_after("#BSUB", script, name)?)
}

/// The options that `#PBS` lines mean, wherever in the script they are.
///
/// # Errors
/// Bad quoting; options that are not known.
pub fn of_pbs(script: &str, name: &str) -> Result<PbsLines, OptionError> {
    pbs::translated(&words_after("#PBS", script, name)?)
}

/// All words of the lines that begin with a prefix.
///
/// # Errors
/// Bad quoting.
pub fn words_after(prefix: &str, script: &str, name: &str) -> Result<Vec<String>, OptionError> {
    let mut args = Vec::new();
    for (number, line) in script.lines().enumerate() {
        if let Some(rest) = line.strip_prefix(prefix) {
            words(rest, name, number + 1, &mut args)?;
        }
    }
    Ok(args)
}

/// Adds the options of one component's directives.
///
/// # Errors
/// Unknown options and stray words.
pub fn apply(chosen: &mut ChosenOptions, args: &[String]) -> Result<(), OptionError> {
    if args.is_empty() {
        return Ok(());
    }
    let parsed = getopt::parse(chosen.rows(), args, OperandOrder::StopAtWord).map_err(|text| {
        OptionError {
            lines: vec![text],
            exit: 255,
            bare: true,
        }
    })?;
    if let Some(word) = parsed.words.first() {
        return Err(OptionError::invalid(format!(
            "Invalid directive found in batch script: {word}"
        )));
    }
    for (row, value) in parsed.options {
        if row.directive {
            chosen.give(row, value, Source::Directive);
        } else {
            return Err(OptionError::invalid(format!(
                "--{} cannot be given in a batch script; give it on the command line",
                row.long
            )));
        }
    }
    Ok(())
}

fn words(line: &str, name: &str, number: usize, args: &mut Vec<String>) -> Result<(), OptionError> {
    let fail =
        |text: String| OptionError::fatal(format!("{name}: line {number}: {text} in [{line}]"));
    let mut rest = line.chars().peekable();
    loop {
        while rest.next_if(|c| c.is_whitespace()).is_some() {}
        match rest.peek() {
            None | Some('#') => return Ok(()),
            Some(':') => return Err(fail("Unexpected `:`".to_owned())),
            Some(_) => {}
        }
        let mut word = String::new();
        let mut quote = None;
        while let Some(c) = rest.next() {
            match (c, quote) {
                ('\\', _) => word.extend(rest.next()),
                (c, Some(q)) if c == q => quote = None,
                ('"' | '\'', None) => quote = Some(c),
                (c, None) if c.is_whitespace() => break,
                (c, _) => word.push(c),
            }
        }
        if let Some(q) = quote {
            return Err(fail(format!("Unmatched `{q}`")));
        }
        args.push(word);
    }
}

#[cfg(test)]
mod tests {
    use super::super::row::OptionCommand;
    use super::*;
    use proptest::prelude::*;

    fn options(script: &str) -> Result<Vec<(&'static str, Option<String>)>, OptionError> {
        let mut chosen = ChosenOptions::new(OptionCommand::Sbatch);
        read(&mut chosen, script, "job.sh")?;
        Ok(chosen
            .iter()
            .map(|g| (g.row.long, g.value.clone()))
            .collect())
    }

    #[test]
    fn lines() {
        let v = |t: &str| Some(t.to_owned());
        for (line, want) in [
            ("-N 2", vec![("nodes", v("2"))]),
            ("--nodes        2", vec![("nodes", v("2"))]),
            (
                "-p batch -N 2 --hold",
                vec![("partition", v("batch")), ("nodes", v("2")), ("hold", None)],
            ),
            ("--job-name=\"a b\"", vec![("job-name", v("a b"))]),
            ("--comment \"square\"", vec![("comment", v("square"))]),
            ("--job-name=\"'psi j'\"", vec![("job-name", v("'psi j'"))]),
            ("--job-name='sub it'", vec![("job-name", v("sub it"))]),
            ("-J a\\ b", vec![("job-name", v("a b"))]),
            ("-t 5 # five minutes", vec![("time", v("5"))]),
            ("-J a#b", vec![("job-name", v("a#b"))]),
            ("# -t 5", vec![]),
            ("", vec![]),
        ] {
            let script = format!("#!/bin/sh\n#SBATCH {line}\ntrue\n");
            assert_eq!(options(&script), Ok(want), "{line}");
        }
    }

    #[test]
    fn the_block_ends_at_the_first_command() {
        let script =
            "#!/bin/sh\n\n# note\n##SBATCH -t 1\n  # more\n#SBATCH -n 2\ntrue\n#SBATCH -n 9\n";
        assert_eq!(options(script), Ok(vec![("ntasks", Some("2".to_owned()))]));
    }

    #[test]
    fn components() {
        let script =
            "#!/bin/sh\n#SBATCH -n1\n#SBATCH hetjob\n#SBATCH -n 2 -c2\n#SBATCH packjob\ntrue\n";
        let words = |text: &str| {
            text.split_whitespace()
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        let found = sections(script, "job.sh").unwrap();
        assert_eq!(found, [words("-n1"), words("-n 2 -c2"), words("")]);
    }

    /// Slurm's sbatch reads the lines of other systems in the whole script.
    #[test]
    fn lines_of_other_systems_may_be_anywhere() {
        let script = "#!/bin/sh\n#PBS -N early\ntrue\n#PBS -l walltime=7\n#BSUB -n 2\n ##PBS -h\n";
        let found = of_pbs(script, "job.sh").unwrap();
        assert_eq!(found.words, ["--job-name=early", "--time=7"]);
        assert_eq!(of_bsub(script, "job.sh").unwrap(), ["--ntasks=2"]);
    }

    #[test]
    fn complaints() {
        for (line, text, exit) in [
            (
                "-J dask w",
                "Invalid directive found in batch script: w",
                255,
            ),
            (
                "--nosuchoption",
                "unrecognized option '--nosuchoption'",
                255,
            ),
            ("-J \"x", "job.sh: line 2: Unmatched `\"` in [ -J \"x]", 1),
            (":", "job.sh: line 2: Unexpected `:` in [ :]", 1),
        ] {
            let error = options(&format!("#!/bin/sh\n#SBATCH {line}\n")).unwrap_err();
            assert_eq!((error.lines[0].as_str(), error.exit), (text, exit));
        }
        let error = options("#!/bin/sh\n#SBATCHx -J\n").unwrap_err();
        assert_eq!(error.lines[0], "Invalid directive found in batch script: x");
    }

    proptest! {
        #[test]
        fn never_panics(script in "(#SBATCH)?[ -~\né]{0,80}") {
            let _ = options(&script);
        }
    }
}
