//! Options as filters of the command line (`CliFilterPlugins`) see and set them: by long name, as texts. A filter runs in the
//! user's own process before a request is made of the options; nothing here runs one.

use super::chosen::{ChosenOptions, Source};
use super::find;
use super::row::{Arg, Group, OptionCommand, OptionRow};
use muster_model::time::TimeLimit;
use std::path::Path;
use std::rc::Rc;

/// Level at which a filter's line is shown to the user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FilterLevel {
    /// As an error.
    Error,
    /// Unless `--quiet` was given.
    Info,
    /// With `-v`.
    Verbose,
    /// With at least this number of `-v`.
    Debug(u32),
}

/// Where lines of a filter go.
pub type FilterLog = Rc<dyn Fn(FilterLevel, &str)>;

/// The options of one component of a job, and its script or program with arguments.
#[derive(Clone, Debug)]
pub struct FilterOptions {
    /// Given options.
    pub chosen: ChosenOptions,
    /// Script or program, and its arguments.
    pub words: Vec<String>,
    /// Source of options that a filter sets: as a default, or as the command line.
    pub source: Source,
}

/// A filter of the command line. An error ends the command, and is what the user is shown; an empty one was shown already.
pub trait CliFilter {
    /// Sets defaults, before any option is read. sbatch asks before it has read its script (`is_early`), and again after that.
    ///
    /// # Errors
    /// The filter refuses or has an error.
    fn setup_defaults(
        &self,
        options: FilterOptions,
        is_early: bool,
    ) -> Result<FilterOptions, String>;

    /// Sees and changes the options of a component before they become a request.
    ///
    /// # Errors
    /// The filter refuses or has an error.
    fn pre_submit(&self, options: FilterOptions, component: usize)
    -> Result<FilterOptions, String>;

    /// The request was granted as this job, and as this step where it is a step's.
    ///
    /// # Errors
    /// The filter has an error.
    fn post_submit(&self, component: usize, job: u64, step: Option<u32>) -> Result<(), String>;
}

/// Makes a filter of a script, for a cluster of that name.
pub type FilterLoader = fn(&Path, &str, FilterLog) -> Result<Box<dyn CliFilter>, String>;

/// Text of given options without a value.
const SET: &str = "set";
/// Text of options that were not given, and of numbers.
const UNSET: &str = "unset";

/// Text of options of other commands.
const OF_ANOTHER: &str = "invalid-context";

/// Options with a number or a time, which are `unset` in place of nothing.
const NUMBERS: [&str; 25] = [
    "core-spec",
    "cores-per-socket",
    "cpus-per-gpu",
    "cpus-per-task",
    "delay-boot",
    "exclusive",
    "immediate",
    "jobid",
    "kill-on-bad-exit",
    "mincpus",
    "nice",
    "ntasks",
    "ntasks-per-core",
    "ntasks-per-gpu",
    "ntasks-per-tres",
    "ntasks-per-node",
    "ntasks-per-socket",
    "oom-kill-step",
    "priority",
    "sockets-per-node",
    "thread-spec",
    "threads-per-core",
    "time",
    "time-min",
    "wait",
];

impl FilterOptions {
    /// The option of that name that the command has, by its usual name.
    fn row(&self, name: &str) -> Option<&'static OptionRow> {
        let command = self.chosen.command;
        let of_site = || self.chosen.site.iter().find(|row| row.long == name);
        let row = find(command, name).or_else(of_site);
        let row = row.filter(|row| row.group != Group::Help)?;
        match row.same_as {
            Some(usual) => find(command, usual),
            None => Some(row),
        }
    }

    /// An option's value; absent if there is no such option, or it has no value.
    pub fn get(&self, name: &str) -> Option<String> {
        let Some(row) = self.row(name) else {
            let is_of_another = OptionCommand::ALL.iter().any(|c| find(*c, name).is_some());
            return is_of_another.then(|| OF_ANOTHER.to_owned());
        };
        let unset = || {
            let is_word = row.arg == Arg::None || NUMBERS.contains(&row.long);
            is_word.then(|| UNSET.to_owned())
        };
        if row.long == "verbose" {
            return Some(self.chosen.verbose.to_string());
        }
        let given = self.chosen.iter().find(|given| given.row.long == row.long);
        let Some(given) = given else {
            return unset();
        };
        let Some(value) = given.value.as_deref() else {
            return Some(match row.long {
                "exclusive" => row.long.to_owned(),
                _ => SET.to_owned(),
            });
        };
        Some(match row.long {
            "time" | "time-min" => time(value),
            "mem" | "mem-per-cpu" | "mem-per-gpu" => memory(value),
            _ => value.to_owned(),
        })
    }

    /// Sets an option, or takes it back where there is no value.
    ///
    /// # Errors
    /// The command has no such option, or it must have a value.
    pub fn set(&mut self, name: &str, value: Option<&str>) -> Result<(), String> {
        let command = self.chosen.command.name();
        let row = self
            .row(name)
            .ok_or_else(|| format!("{command} has no option --{name}"))?;
        let Some(value) = value else {
            self.chosen.remove(row.long);
            return Ok(());
        };
        let is_word = value == SET || value == "true";
        let value = match row.arg {
            Arg::None => None,
            Arg::Optional if is_word || value == row.long || value.is_empty() => None,
            Arg::Required if value.is_empty() => {
                return Err(format!("--{name} must have a value"));
            }
            _ => Some(value.to_owned()),
        };
        self.chosen.give(row, value, self.source);
        Ok(())
    }

    /// The options that were given, by name, with their values.
    pub fn given(&self) -> Vec<(&'static str, String)> {
        let names = self.chosen.iter().map(|given| given.row.long);
        let mut all: Vec<_> = names
            .filter_map(|name| Some((name, self.get(name)?)))
            .collect();
        all.sort_unstable();
        all
    }
}

/// A limit as Slurm prints it; any other text unchanged.
fn time(text: &str) -> String {
    match super::job::read_limit(text) {
        Ok(TimeLimit::Minutes(minutes)) => {
            let (days, hours) = (minutes / 1440, minutes / 60 % 24);
            let clock = format!("{hours:02}:{:02}:00", minutes % 60);
            match days {
                0 => clock,
                _ => format!("{days}-{clock}"),
            }
        }
        Ok(TimeLimit::Unlimited) => "UNLIMITED".to_owned(),
        Err(_) => text.to_owned(),
    }
}

/// Memory with its unit; all of a node's is `0?`.
fn memory(text: &str) -> String {
    match text.parse::<u64>() {
        Ok(0) => "0?".to_owned(),
        Ok(mib) => format!("{mib}M"),
        Err(_) => text.to_ascii_uppercase(),
    }
}

#[cfg(test)]
mod tests;
