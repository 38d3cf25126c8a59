//! `cli_filter/user_defaults`: defaults of options that a user keeps in `~/.slurm/defaults`, a line for each:
//! `[COMMAND:[CLUSTER:]]OPTION=VALUE`, where `*` stands for all of them.

use crate::people;
use muster_conf::options::filter::{CliFilter, FilterOptions};
use muster_conf::options::{OptionCommand, find};
use std::io;
use std::path::PathBuf;

const FILE: &str = ".slurm/defaults";
/// Bytes of a file that are still read.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// One default.
#[derive(Debug, PartialEq, Eq)]
struct Default {
    line: usize,
    option: String,
    value: String,
}

struct UserDefaults(Vec<Default>);

/// The user's file; none is an empty one.
///
/// # Errors
/// The file cannot be read, or a line of it is wrong.
pub(super) fn load(command: OptionCommand, cluster: &str) -> Result<Box<dyn CliFilter>, String> {
    let Some(home) = home() else {
        return Err("the home directory is not known, where defaults of options are".to_owned());
    };
    let path = home.join(FILE);
    let is_large = std::fs::metadata(&path).is_ok_and(|m| m.len() > FILE_BYTES_MAX);
    if is_large {
        let path = path.display();
        return Err(format!("{path} has more than {FILE_BYTES_MAX} bytes"));
    }
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(e) if e.kind() == io::ErrorKind::NotFound => String::new(),
        Err(e) => return Err(format!("{}: {e}", path.display())),
    };
    Ok(Box::new(UserDefaults(parse(&text, command, cluster)?)))
}

fn home() -> Option<PathBuf> {
    let own = std::env::var_os("HOME").filter(|home| !home.is_empty());
    own.map(PathBuf::from).or_else(|| {
        let uid = nix::unistd::getuid().as_raw();
        people::user_of_uid(uid).map(|user| user.dir)
    })
}

/// The lines that are for this command and cluster. Options that only other commands have are left out.
fn parse(text: &str, command: OptionCommand, cluster: &str) -> Result<Vec<Default>, String> {
    let mut defaults = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        let number = number + 1;
        let wrong = |what: String| format!("{what} in ~/{FILE}, line {number}");
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let Some((key, value)) = line.split_once('=') else {
            return Err(wrong(format!("\"{line}\" has no =")));
        };
        let mut parts: Vec<&str> = key.split(':').map(str::trim).collect();
        let option = parts.pop().unwrap_or_default();
        let (program, clusters) = match parts.as_slice() {
            [] => ("*", "*"),
            [program] => (*program, "*"),
            [program, clusters] => (*program, *clusters),
            _ => return Err(wrong(format!("\"{key}\" has more than two :"))),
        };
        let is_program = |c: &OptionCommand| program == "*" || program == c.name();
        if !OptionCommand::ALL.iter().any(is_program) {
            return Err(wrong(format!("Unknown command \"{program}\"")));
        }
        if !OptionCommand::ALL
            .iter()
            .any(|c| find(*c, option).is_some())
        {
            return Err(wrong(format!("Unknown option \"{option}\"")));
        }
        let is_cluster = clusters == "*" || clusters == cluster;
        if is_program(&command) && is_cluster && find(command, option).is_some() {
            defaults.push(Default {
                line: number,
                option: option.to_owned(),
                value: value.trim().to_owned(),
            });
        }
    }
    Ok(defaults)
}

impl CliFilter for UserDefaults {
    fn setup_defaults(
        &self,
        mut options: FilterOptions,
        is_early: bool,
    ) -> Result<FilterOptions, String> {
        if is_early {
            return Ok(options);
        }
        for default in &self.0 {
            options
                .set(&default.option, Some(&default.value))
                .map_err(|why| format!("{why} in ~/{FILE}, line {}", default.line))?;
        }
        Ok(options)
    }

    fn pre_submit(&self, options: FilterOptions, _: usize) -> Result<FilterOptions, String> {
        Ok(options)
    }

    fn post_submit(&self, _: usize, _: u64, _: Option<u32>) -> Result<(), String> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, command: OptionCommand) -> Result<Vec<(String, String)>, String> {
        let defaults = parse(text, command, "alpha")?;
        let pairs = defaults.into_iter().map(|d| (d.option, d.value));
        Ok(pairs.collect())
    }

    #[test]
    fn lines_are_for_commands_and_clusters() {
        let text = "# mine\n\npartition = long\nsrun:label=set\n*:alpha:gres=gpu:2\nsbatch:beta:qos=x\n\
                    salloc:time=1:00:00\narray=1-2\n";
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(
            read(text, OptionCommand::Sbatch).unwrap(),
            [
                pair("partition", "long"),
                pair("gres", "gpu:2"),
                pair("array", "1-2")
            ]
        );
        assert_eq!(
            read(text, OptionCommand::Salloc).unwrap(),
            [
                pair("partition", "long"),
                pair("gres", "gpu:2"),
                pair("time", "1:00:00")
            ]
        );
        assert_eq!(
            read(text, OptionCommand::Srun).unwrap()[1],
            pair("label", "set")
        );
    }

    #[test]
    fn wrong_lines_are_named() {
        for (text, error) in [
            ("a\n", "\"a\" has no = in ~/.slurm/defaults, line 1"),
            (
                "\nsquota:x=1",
                "Unknown command \"squota\" in ~/.slurm/defaults, line 2",
            ),
            (
                "partitoin=x",
                "Unknown option \"partitoin\" in ~/.slurm/defaults, line 1",
            ),
            (
                "a:b:c:d=1",
                "\"a:b:c:d\" has more than two : in ~/.slurm/defaults, line 1",
            ),
        ] {
            assert_eq!(read(text, OptionCommand::Srun), Err(error.to_owned()));
        }
    }
}
