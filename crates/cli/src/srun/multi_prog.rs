//! The file of `--multi-prog`: which task runs which program.

use muster_conf::options::OptionError;
use muster_model::hostlist;

/// Task numbers that one file may name.
const TASKS_MAX: usize = 1 << 20;

/// Reads the file and checks that every task has its line: task set and command line, in file order.
pub(super) fn read(path: &str, ntasks: u32) -> Result<Vec<(String, String)>, OptionError> {
    let text = std::fs::read_to_string(path)
        .map_err(|_| OptionError::fatal(format!("Could not open multi_prog config file {path}")))?;
    parse(&text, ntasks)
        .map_err(|why| OptionError::fatal(format!("Configuration file {path} invalid, {why}")))
}

fn parse(text: &str, ntasks: u32) -> Result<Vec<(String, String)>, String> {
    let mut lines = Vec::new();
    let mut covered = vec![false; ntasks as usize];
    for line in logical_lines(text) {
        let Some((tasks, command)) = line.split_once(char::is_whitespace) else {
            return Err(format!("'{line}' has task numbers but no program"));
        };
        if tasks == "*" {
            covered.fill(true);
        } else {
            let numbers = hostlist::parse_ranges(tasks, TASKS_MAX)
                .map_err(|_| format!("'{tasks}' is not a list of task numbers"))?;
            for number in numbers {
                // Lines for more tasks than there are do no harm, as in Slurm.
                if let Some(slot) = covered.get_mut(number as usize) {
                    *slot = true;
                }
            }
        }
        lines.push((tasks.to_owned(), command.trim().to_owned()));
    }
    match covered.iter().position(|c| !c) {
        Some(task) => Err(format!("no record for task id {task}")),
        None => Ok(lines),
    }
}

/// Lines without comments; a backslash at the end joins the next one.
fn logical_lines(text: &str) -> Vec<String> {
    let mut lines = Vec::new();
    let mut joined = String::new();
    for line in text.lines() {
        if joined.is_empty() && line.starts_with('#') {
            continue;
        }
        match line.strip_suffix('\\') {
            Some(part) => joined.push_str(part),
            None => {
                joined.push_str(line);
                let whole = std::mem::take(&mut joined);
                if !whole.trim().is_empty() {
                    lines.push(whole.trim().to_owned());
                }
            }
        }
    }
    if !joined.trim().is_empty() {
        lines.push(joined.trim().to_owned());
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files() {
        let two = |a: &str, b: &str| (a.to_owned(), b.to_owned());
        assert_eq!(
            parse("# c\n0 echo a%t\n1-2  echo b%t:%o\n", 3),
            Ok(vec![two("0", "echo a%t"), two("1-2", "echo b%t:%o")])
        );
        assert_eq!(
            parse("0 a \\\n b\n* c", 9),
            Ok(vec![two("0", "a  b"), two("*", "c")])
        );
        assert_eq!(parse("0 a\n", 2), Err("no record for task id 1".to_owned()));
        assert!(parse("0\n", 1).is_err() && parse("x a\n", 1).is_err());
    }
}
