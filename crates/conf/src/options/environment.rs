//! Options from the environment, as the commands' manual pages list them.

use super::chosen::{ChosenOptions, Source};
use super::row::{Arg, OptionRow};

/// Adds the options that environment variables give.
pub fn read(chosen: &mut ChosenOptions, lookup: impl Fn(&str) -> Option<String>) {
    for row in super::table() {
        if !row.commands.has(chosen.command) {
            continue;
        }
        for name in row.env_of(chosen.command) {
            if let Some(value) = lookup(name) {
                give(chosen, row, value);
            }
        }
    }
    plane_size(chosen, &lookup);
    wait_for_switches(chosen, lookup);
}

/// Whether a variable of that name can be one that [`read`] looks for: all of their names begin with the same letter.
pub fn may_be_option(name: &[u8]) -> bool {
    name.first() == Some(&b'S')
}

/// `SLURM_DIST_PLANESIZE` is the size of a `plane` that was given without one.
fn plane_size(chosen: &mut ChosenOptions, lookup: impl Fn(&str) -> Option<String>) {
    let plane = chosen.get("distribution").filter(|given| {
        given
            .value
            .as_deref()
            .is_some_and(|v| v.eq_ignore_ascii_case("plane"))
    });
    if let Some(source) = plane.map(|given| given.source)
        && let Some(size) = lookup("SLURM_DIST_PLANESIZE")
        && let Some(row) = super::find(chosen.command, "distribution")
    {
        chosen.give(row, Some(format!("plane={size}")), source);
    }
}

/// Most times that a variable gives its option.
const TIMES_MAX: usize = 10;

/// A number as the value of `SBATCH_DEBUG` and its relatives is how often `--verbose` is given.
fn give(chosen: &mut ChosenOptions, row: &'static OptionRow, value: String) {
    match row.arg {
        Arg::None => {
            let times = match value.parse() {
                Ok(times) if row.long == "verbose" => times,
                _ => usize::from(is_on(&value)),
            };
            for _ in 0..times.min(TIMES_MAX) {
                chosen.give(row, None, Source::Environment);
            }
        }
        Arg::Optional => {
            let value = (!value.is_empty()).then_some(value);
            chosen.give(row, value, Source::Environment);
        }
        Arg::Required => {
            if !value.is_empty() {
                chosen.give(row, Some(value), Source::Environment);
            }
        }
    }
}

/// A flag is on when its variable is empty, `yes` or a number other than 0.
pub fn is_on(value: &str) -> bool {
    value.is_empty()
        || value.eq_ignore_ascii_case("yes")
        || value.parse::<i64>().is_ok_and(|n| n != 0)
}

/// `*_WAIT4SWITCH` is the second half of `--switches`.
fn wait_for_switches(chosen: &mut ChosenOptions, lookup: impl Fn(&str) -> Option<String>) {
    let name = match chosen.command {
        super::OptionCommand::Sbatch => "SBATCH_WAIT4SWITCH",
        super::OptionCommand::Srun => "SLURM_WAIT4SWITCH",
        super::OptionCommand::Salloc => "SALLOC_WAIT4SWITCH",
    };
    let (Some(time), Some(count)) = (lookup(name), chosen.value("switches")) else {
        return;
    };
    if !count.contains('@')
        && let Some(row) = super::find(chosen.command, "switches")
        && chosen.source("switches") == Some(Source::Environment)
    {
        let value = format!("{count}@{time}");
        chosen.give(row, Some(value), Source::Environment);
    }
}

#[cfg(test)]
mod tests {
    use super::super::OptionCommand;
    use super::*;

    fn chosen(command: OptionCommand, pairs: &[(&str, &str)]) -> ChosenOptions {
        let mut chosen = ChosenOptions::new(command);
        read(&mut chosen, |name| {
            pairs
                .iter()
                .find(|(n, _)| *n == name)
                .map(|(_, v)| (*v).to_owned())
        });
        chosen
    }

    #[test]
    fn a_number_says_how_verbose() {
        for (value, verbose) in [("0", 0), ("1", 1), ("4", 4), ("yes", 1), ("999999999", 10)] {
            assert_eq!(
                chosen(OptionCommand::Sbatch, &[("SBATCH_DEBUG", value)]).verbose,
                verbose
            );
        }
    }

    #[test]
    fn nothing_is_looked_for_that_could_not_be_an_option() {
        for command in [
            OptionCommand::Sbatch,
            OptionCommand::Srun,
            OptionCommand::Salloc,
        ] {
            let mut chosen = ChosenOptions::new(command);
            read(&mut chosen, |name| {
                assert!(may_be_option(name.as_bytes()), "{name}");
                None
            });
        }
    }

    #[test]
    fn values_and_flags() {
        let c = chosen(
            OptionCommand::Sbatch,
            &[
                ("SBATCH_JOB_NAME", "x"),
                ("SBATCH_REQUEUE", ""),
                ("SBATCH_NO_REQUEUE", "no"),
                ("SBATCH_EXCLUSIVE", ""),
                ("SBATCH_REQ_SWITCH", "2"),
                ("SBATCH_WAIT4SWITCH", "5"),
                ("SBATCH_PARTITION", ""),
                ("SLURM_NTASKS", "7"),
            ],
        );
        assert_eq!(c.value("job-name"), Some("x"));
        assert!(c.has("requeue") && !c.has("no-requeue") && c.has("exclusive"));
        assert_eq!(c.value("switches"), Some("2@5"));
        assert!(!c.has("partition") && !c.has("ntasks"));
    }

    #[test]
    fn a_plane_without_size_has_the_one_of_the_environment() {
        let planes = [
            ("SLURM_DISTRIBUTION", "plane"),
            ("SLURM_DIST_PLANESIZE", "3"),
        ];
        let c = chosen(OptionCommand::Srun, &planes);
        assert_eq!(c.value("distribution"), Some("plane=3"));
        let c = chosen(
            OptionCommand::Srun,
            &[("SLURM_DISTRIBUTION", "plane=2"), planes[1]],
        );
        assert_eq!(c.value("distribution"), Some("plane=2"));
    }

    #[test]
    fn the_command_line_is_stronger_and_a_directive_weaker() {
        let mut c = ChosenOptions::new(OptionCommand::Sbatch);
        let row = super::super::find(OptionCommand::Sbatch, "job-name").unwrap();
        c.give(row, Some("directive".into()), Source::Directive);
        c.give(row, Some("environment".into()), Source::Environment);
        assert_eq!(c.value("job-name"), Some("environment"));
        c.give(row, Some("directive 2".into()), Source::Directive);
        assert_eq!(c.value("job-name"), Some("environment"));
        c.give(row, Some("line".into()), Source::CommandLine);
        assert_eq!(c.value("job-name"), Some("line"));
    }

    #[test]
    fn srun_takes_the_allocation_from_the_environment() {
        let c = chosen(
            OptionCommand::Srun,
            &[
                ("SLURM_NTASKS", "4"),
                ("SLURM_NPROCS", "5"),
                ("SLURM_CPUS_PER_TASK", "2"),
                ("SRUN_EXPORT_ENV", "NONE"),
                ("SLURM_EXPORT_ENV", "ALL"),
            ],
        );
        assert_eq!(c.value("ntasks"), Some("4"));
        assert_eq!(c.value("export"), Some("NONE"));
        assert!(!c.has("cpus-per-task"));
    }
}
