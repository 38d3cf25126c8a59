//! Output of sbatch, srun and salloc with `--verbose`: the options in force, as Slurm lists them; with two of it, the
//! inherited environment of a job.

use super::line::SubmitLine;
use crate::listing::text;
use crate::say::Say;
use muster_conf::options::{Arg, ChosenOptions};
use muster_model::job::Allocation;
use muster_model::job_env::per_node_text;
use muster_model::time::TimeLimit;

/// Options whose values are times.
const TIMES: [&str; 2] = ["time", "time-min"];

/// Says which options are in force, for each component of a job.
pub(crate) fn list_options(lines: &[SubmitLine]) {
    for line in lines.iter().filter(|line| line.say.verbose > 0) {
        let say = line.say;
        say.verbose("defined options");
        say.verbose("-------------------- --------------------");
        for (name, value) in options(&line.chosen) {
            say.verbose(&format!("{name:<20}: {value}"));
        }
        say.verbose("-------------------- --------------------");
        say.verbose("end of defined options");
        say_inherited(&say);
    }
}

/// Names and values, by name.
fn options(chosen: &ChosenOptions) -> Vec<(&'static str, String)> {
    let given = chosen.iter().filter(|given| given.row.long != "verbose");
    let mut all: Vec<(&'static str, String)> = given
        .map(|given| {
            let value = match (&given.value, given.row.arg) {
                (None, Arg::None) => "set".to_owned(),
                (None, _) => given.row.long.to_owned(),
                (Some(value), _) if TIMES.contains(&given.row.long) => shown_time(value),
                (Some(value), _) => value.clone(),
            };
            (given.row.long, value)
        })
        .collect();
    if chosen.verbose > 0 {
        all.push(("verbose", chosen.verbose.to_string()));
    }
    all.sort_unstable();
    all
}

fn shown_time(value: &str) -> String {
    match value.parse::<TimeLimit>() {
        Ok(TimeLimit::Minutes(minutes)) => {
            text::collect(|out| text::long_duration(out, i64::from(minutes) * 60))
        }
        Ok(TimeLimit::Unlimited) => "UNLIMITED".to_owned(),
        Err(_) => value.to_owned(),
    }
}

/// With `-vv`: what the job gets of this process.
fn say_inherited(say: &Say) {
    if say.verbose < 2 {
        return;
    }
    let context = super::capture::own_umask();
    say.verbose(&format!("debug:  propagating UMASK={context:04o}"));
    for (name, value) in super::capture::soft_limit_texts() {
        say.verbose(&format!("debug:  propagating RLIMIT_{name}={value}"));
    }
}

/// Says what nodes a job has.
pub(crate) fn say_allocation(say: &Say, job: u64, allocation: &Allocation) {
    let cpus = per_node_text_with_counts(allocation.nodes.iter().map(|node| node.cpus.len()));
    say.verbose(&format!(
        "jobid {job}: nodes({}):`{}', cpu counts: {cpus}",
        allocation.nodes.len(),
        allocation.hostlist
    ));
}

/// `4(x2),2(x1)`: unlike in variables, also what there is once has its count.
fn per_node_text_with_counts(counts: impl IntoIterator<Item = u32>) -> String {
    let text = per_node_text(counts);
    let parts = text.split(',').map(|part| match part.contains('(') {
        true => part.to_owned(),
        false => format!("{part}(x1)"),
    });
    parts.collect::<Vec<String>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_conf::options::{OptionCommand, Source, find};

    #[test]
    fn options_are_listed_by_name_with_their_values() {
        let mut chosen = ChosenOptions::new(OptionCommand::Srun);
        for (long, value) in [
            ("time", Some("5")),
            ("partition", Some("short")),
            ("label", None),
            ("exclusive", None),
            ("verbose", None),
        ] {
            let row = find(OptionCommand::Srun, long).unwrap();
            chosen.give(row, value.map(str::to_owned), Source::CommandLine);
        }
        let listed: Vec<String> = options(&chosen)
            .into_iter()
            .map(|(name, value)| format!("{name:<20}: {value}"))
            .collect();
        assert_eq!(
            listed,
            [
                "exclusive           : exclusive",
                "label               : set",
                "partition           : short",
                "time                : 00:05:00",
                "verbose             : 1",
            ]
        );
    }

    #[test]
    fn counts_of_cpus_are_shown_for_each_run_of_nodes() {
        assert_eq!(per_node_text_with_counts([4, 4, 2]), "4(x2),2(x1)");
        assert_eq!(per_node_text_with_counts([1]), "1(x1)");
    }
}
