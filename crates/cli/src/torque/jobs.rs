//! Jobs as users of Torque name them: `17`, `17.server`, `17[]`, `17[3]`, `17[1-4].server`, and `17_3` of Slurm.

use super::fail;
use crate::targets;
use muster_conf::options::values;
use muster_model::command::JobTarget;
use muster_model::index_set::IndexSet;
use std::process::ExitCode;

/// The job that a word names; `None` where it names none.
pub(super) fn target(word: &str) -> Option<JobTarget> {
    let plain = plain(word);
    let Some((job, tasks)) = plain.split_once('[') else {
        return targets::job_target(plain);
    };
    let tasks = tasks.strip_suffix(']')?;
    let mut target = targets::job_target(job)?;
    if !tasks.is_empty() {
        target.tasks = Some(values::indices(tasks)?);
    }
    Some(target)
}

/// A job's name without that of its server.
pub(super) fn plain(word: &str) -> &str {
    word.split(['.', '@']).next().unwrap_or_default()
}

/// A job's name as Slurm writes it in dependencies.
pub(super) fn of_slurm(word: &str) -> String {
    let plain = plain(word);
    match plain.split_once('[') {
        Some((job, "]")) => job.to_owned(),
        Some((job, task)) => format!("{job}_{}", task.trim_end_matches(']')),
        None => plain.to_owned(),
    }
}

/// The jobs that the words of a command line name, with `-t` after them.
///
/// # Errors
/// The exit status, after the error was printed.
pub(super) fn named(
    name: &str,
    words: &[String],
    tasks: Option<&str>,
) -> Result<Vec<(String, JobTarget)>, ExitCode> {
    if words.is_empty() {
        return Err(fail(name, "no job is named", 2));
    }
    let tasks: Option<IndexSet> = match tasks {
        None => None,
        Some(text) => match values::indices(text) {
            Some(tasks) => Some(tasks),
            None => return Err(fail(name, &format!("-t {text}: it is no list of tasks"), 2)),
        },
    };
    let mut all = Vec::new();
    for word in words {
        let found = target(word);
        let mut found = found
            .ok_or_else(|| fail(name, &format!("'{word}' is no job: a number, or 17[3]"), 1))?;
        if let Some(tasks) = &tasks {
            found.tasks = Some(tasks.clone());
        }
        all.push((word.clone(), found));
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_that_name_jobs() {
        let of = |word: &str| {
            target(word).map(|own| {
                let tasks = own.tasks.map(|tasks| tasks.iter().collect::<Vec<u32>>());
                (own.job.0, tasks)
            })
        };
        for (word, want) in [
            ("17", Some((17, None))),
            ("17.server.site", Some((17, None))),
            ("17[]", Some((17, None))),
            ("17[3].server", Some((17, Some(vec![3])))),
            ("17[1-3]", Some((17, Some(vec![1, 2, 3])))),
            ("17_3", Some((17, Some(vec![3])))),
            ("abc", None),
            ("17[", None),
            ("17[x]", None),
            ("", None),
        ] {
            assert_eq!(of(word), want, "{word}");
        }
        for (word, want) in [("17.s", "17"), ("17[].s", "17"), ("17[4].s", "17_4")] {
            assert_eq!(of_slurm(word), want);
        }
    }
}
