//! Components of heterogeneous jobs on the command line: options of each, separated by `:`, and what one passes on to
//! the next.

use muster_conf::options::chosen::rows;
use muster_conf::options::getopt::{self, OperandOrder, Parsed};
use muster_conf::options::{ChosenOptions, Group, OptionCommand, OptionRow, Source};

/// Word between components.
const SEPARATOR: &str = ":";

/// Options that hold for the following components too, unless they say otherwise, as the guide to heterogeneous jobs
/// lists them.
const PASSED_ON: [&str; 50] = [
    "account",
    "acctg-freq",
    "begin",
    "chdir",
    "cluster-constraint",
    "clusters",
    "class",
    "comment",
    "deadline",
    "delay-boot",
    "dependency",
    "distribution",
    "epilog",
    "error",
    "exclude",
    "export",
    "export-file",
    "get-user-env",
    "gid",
    "hold",
    "ignore-pbs",
    "immediate",
    "input",
    "job-name",
    "kill-on-bad-exit",
    "label",
    "mcs-label",
    "mem",
    "msg-timeout",
    "nice",
    "no-kill",
    "no-requeue",
    "open-mode",
    "output",
    "parsable",
    "priority",
    "profile",
    "prolog",
    "propagate",
    "qos",
    "quiet",
    "reboot",
    "requeue",
    "reservation",
    "signal",
    "test-only",
    "time",
    "time-min",
    "uid",
    "wckey",
];

/// One component's options and words, as they stand.
pub(crate) type ComponentOptions = Parsed<'static, OptionRow>;

/// Takes a command line apart. sbatch and salloc have words after the last component only; with srun each may have a
/// program of its own.
///
/// # Errors
/// getopt_long's sentence.
pub(crate) fn split(
    command: OptionCommand,
    args: &[String],
    site: &'static [OptionRow],
) -> Result<Vec<ComponentOptions>, String> {
    let mut parts = Vec::new();
    let mut rest: Option<Vec<String>> = Some(args.to_vec());
    while let Some(args) = rest.take() {
        let mut part = getopt::parse(rows(command, site), &args, OperandOrder::StopAtWord)?;
        let at = match command {
            OptionCommand::Srun => part.words.iter().position(|w| w == SEPARATOR),
            OptionCommand::Sbatch | OptionCommand::Salloc => {
                (part.words.first().is_some_and(|w| w == SEPARATOR)).then_some(0)
            }
        };
        // A colon at the very end is a word like any other.
        if let Some(at) = at.filter(|at| at + 1 < part.words.len()) {
            rest = Some(part.words.split_off(at + 1));
            part.words.pop();
        }
        parts.push(part);
    }
    Ok(parts)
}

/// Gives a component what the one before it passes on.
pub(crate) fn pass_on(from: &ChosenOptions, to: &mut ChosenOptions, source: Source) {
    for given in from.iter().filter(|given| given.source == source) {
        if PASSED_ON.contains(&given.row.long) || given.row.group == Group::Site {
            to.give(given.row, given.value.clone(), source);
        }
    }
}

/// Gives the first component, where the batch script runs, the script's files of the last one that names them, unless it
/// names them itself: Slurm's sbatch begins with the options of the whole line.
pub(crate) fn pass_back_files<'a>(
    first: &mut ChosenOptions,
    others: impl DoubleEndedIterator<Item = &'a ChosenOptions> + Clone,
) {
    for long in ["output", "error", "input"] {
        let named = others.clone().rev().find_map(|later| later.get(long));
        if let Some(given) = named.filter(|_| !first.has(long)) {
            first.give(given.row, given.value.clone(), given.source);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    fn shown(command: OptionCommand, text: &str) -> Vec<String> {
        let parts = split(command, &words(text), &[]).unwrap();
        let show = |part: ComponentOptions| {
            let options = part
                .options
                .iter()
                .map(|(row, value)| format!("{}={}", row.long, value.as_deref().unwrap_or("")));
            let mut all: Vec<String> = options.collect();
            all.extend(part.words);
            all.join(" ")
        };
        parts.into_iter().map(show).collect()
    }

    #[test]
    fn parts_of_a_line() {
        assert_eq!(
            shown(OptionCommand::Sbatch, "-n1 -c4 : -n2 : -N3 job.sh : x"),
            ["ntasks=1 cpus-per-task=4", "ntasks=2", "nodes=3 job.sh : x"]
        );
        assert_eq!(
            shown(OptionCommand::Srun, "-n1 server a : -n2 client"),
            ["ntasks=1 server a", "ntasks=2 client"]
        );
        assert_eq!(
            shown(OptionCommand::Srun, "server : client"),
            ["server", "client"]
        );
        assert_eq!(
            shown(OptionCommand::Salloc, "-n1 echo : -n"),
            ["ntasks=1 echo : -n"]
        );
        assert_eq!(shown(OptionCommand::Srun, "echo :"), ["echo :"]);
    }

    /// They were taken and used by nobody.
    #[test]
    fn files_of_the_script_are_those_of_the_last_component() {
        let component = |long: &[(&'static str, &str)]| {
            let mut chosen = ChosenOptions::new(OptionCommand::Sbatch);
            for (long, value) in long {
                chosen.set(long, Some((*value).to_owned()));
            }
            chosen
        };
        let mut first = component(&[("error", "first")]);
        let others = [
            component(&[("output", "second"), ("error", "second")]),
            component(&[("output", "third")]),
        ];
        pass_back_files(&mut first, others.iter());
        let of = |long| first.value(long);
        assert_eq!(
            [of("output"), of("error"), of("input")],
            [Some("third"), Some("first"), None]
        );
    }

    #[test]
    fn every_option_that_is_passed_on_exists() {
        for long in PASSED_ON {
            assert!(
                muster_conf::options::table()
                    .iter()
                    .any(|row| row.long == long),
                "--{long}"
            );
        }
    }
}
