//! Jobs as users of Grid Engine name them: by number, number and tasks, name, pattern; and who may be meant.

use super::{fits, request};
use crate::connect::{Client, ConnectError};
use muster_model::command::JobTarget;
use muster_model::ids::JobId;
use muster_model::index_set::IndexSet;
use muster_model::job::{ArrayRole, Job};
use muster_proto::client::JobFilter;

/// A word of a command line that names jobs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct JobOperand {
    /// As the user wrote it.
    pub(super) text: String,
    /// The number, where it is one.
    pub(super) job: Option<JobId>,
    /// Tasks of an array.
    pub(super) tasks: Option<request::Tasks>,
}

/// Reads words that name jobs, with commas between them; `-t RANGE` after one is put in by the caller.
///
/// # Errors
/// A range of tasks that is none.
pub(super) fn named(word: &str) -> Result<Vec<JobOperand>, String> {
    let words = word.split(',').filter(|word| !word.is_empty());
    words.map(one).collect()
}

fn one(word: &str) -> Result<JobOperand, String> {
    let (id, range) = match word.split_once('.') {
        Some((id, range)) => (id, Some(range)),
        None => (word, None),
    };
    let Ok(number) = id.parse::<u64>() else {
        return Ok(JobOperand {
            text: word.to_owned(),
            job: None,
            tasks: None,
        });
    };
    let tasks = range.map(tasks).transpose()?;
    Ok(JobOperand {
        text: id.to_owned(),
        job: Some(JobId(number)),
        tasks,
    })
}

/// A range of tasks.
///
/// # Errors
/// It is none.
pub(super) fn tasks(text: &str) -> Result<request::Tasks, String> {
    request::tasks(text).map_err(|_| format!("invalid task range \"{text}\""))
}

/// A record's number as users know it: that of its array, or its own.
pub(super) fn number(job: &Job) -> JobId {
    match job.array {
        ArrayRole::Task { base, .. } => base,
        ArrayRole::None | ArrayRole::Pending { .. } => job.id,
    }
}

/// A record's task of an array.
pub(super) fn task(job: &Job) -> Option<u32> {
    match job.array {
        ArrayRole::Task { index, .. } => Some(index),
        ArrayRole::None | ArrayRole::Pending { .. } => None,
    }
}

impl JobOperand {
    /// Whether it names the job of a record.
    pub(super) fn is(&self, job: &Job) -> bool {
        match self.job {
            Some(id) => number(job) == id,
            None => fits(&self.text, &job.spec.name),
        }
    }

    /// The selected tasks that a record has; `None` where it has none of them.
    pub(super) fn part(&self, job: &Job) -> Option<Option<IndexSet>> {
        let Some(range) = self.tasks else {
            return Some(None);
        };
        let mut wanted = IndexSet::default();
        match &job.array {
            ArrayRole::None => return (range.first == 1).then_some(None),
            ArrayRole::Pending { indices } => {
                let meant = indices.iter().filter(|index| range.has(*index));
                meant.for_each(|index| wanted.insert(index));
            }
            ArrayRole::Task { index, .. } if range.has(*index) => wanted.insert(*index),
            ArrayRole::Task { .. } => {}
        }
        (!wanted.is_empty()).then_some(Some(wanted))
    }
}

/// The target of a request to the controller for a record's job, or tasks of it.
pub(super) fn target(job: &Job, tasks: Option<IndexSet>) -> JobTarget {
    JobTarget {
        job: number(job),
        tasks: tasks.or_else(|| task(job).map(IndexSet::single)),
        component: None,
    }
}

/// All jobs that have not ended; those of some users, or of all.
pub(super) fn active(client: &mut Client, uids: Vec<u32>) -> Result<Vec<Job>, ConnectError> {
    let filter = JobFilter {
        uids,
        active: true,
        ..JobFilter::default()
    };
    let mut jobs = client.query_jobs(filter)?;
    jobs.retain(|job| !job.state.is_ended() || job.completing);
    Ok(jobs)
}

/// The users whose jobs a command means: those that `-u` names, `*` being all.
///
/// # Errors
/// A name that no user has.
pub(super) fn users<'a>(lists: impl Iterator<Item = &'a str>) -> Result<Option<Vec<u32>>, String> {
    let mut uids = Vec::new();
    let mut all = false;
    for name in lists
        .flat_map(|list| list.split(','))
        .filter(|name| !name.is_empty())
    {
        if super::is_pattern(name) {
            all = true;
            continue;
        }
        match crate::listing::context::uid_of(name) {
            Some(uid) => uids.push(uid),
            None => return Err(name.to_owned()),
        }
    }
    Ok((!all).then_some(uids))
}

/// As [`users`], without names that nobody has.
pub(super) fn known_users<'a>(lists: impl Iterator<Item = &'a str>) -> Option<Vec<u32>> {
    let is_known = |name: &&str| {
        !name.is_empty()
            && (super::is_pattern(name) || crate::listing::context::uid_of(name).is_some())
    };
    let names = lists.flat_map(|list| list.split(',')).filter(is_known);
    users(names).unwrap_or_default()
}

/// Tasks of an array as listings have them: like [`ranges`], but two tasks are `1,2`.
pub(super) fn task_list(indices: impl IntoIterator<Item = u32>) -> String {
    let all: Vec<u32> = indices.into_iter().collect();
    match all.as_slice() {
        [first, last] => format!("{first},{last}"),
        _ => ranges(all),
    }
}

/// Groups of indices as Grid Engine writes them: `1-5:2`, `3,7`, `2`.
pub(super) fn ranges(indices: impl IntoIterator<Item = u32>) -> String {
    let all: Vec<u32> = indices.into_iter().collect();
    let mut parts = Vec::new();
    let mut at = 0;
    while at < all.len() {
        let step = all.get(at + 1).map_or(1, |next| next - all[at]);
        let mut end = at;
        while all.get(end + 1).is_some_and(|next| next - all[end] == step) {
            end += 1;
        }
        if end == at || (end == at + 1 && step > 1) {
            parts.push(all[at].to_string());
            at += 1;
        } else {
            parts.push(format!("{}-{}:{step}", all[at], all[end]));
            at = end + 1;
        }
    }
    parts.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_tasks_are_no_range_in_a_listing() {
        assert_eq!(task_list([1, 2]), "1,2");
        assert_eq!(task_list([1, 2, 3]), "1-3:1");
        assert_eq!(task_list([5]), "5");
    }

    #[test]
    fn words_and_ranges() {
        let found = named("7,9.2-4,sleep*").unwrap();
        let numbers: Vec<Option<u64>> = found.iter().map(|n| n.job.map(|id| id.0)).collect();
        assert_eq!(numbers, [Some(7), Some(9), None]);
        assert_eq!(found[1].tasks.unwrap().text(), "2-4:1");
        assert_eq!(named("9.x").unwrap_err(), "invalid task range \"x\"");
        assert_eq!(named("ARR.3").unwrap()[0].text, "ARR.3");
        for (indices, want) in [
            (&[1, 3, 5][..], "1-5:2"),
            (&[3, 4, 5, 6], "3-6:1"),
            (&[4], "4"),
            (&[1, 3], "1,3"),
            (&[1, 2], "1-2:1"),
            (&[1, 2, 3, 7, 9], "1-3:1,7,9"),
        ] {
            assert_eq!(ranges(indices.iter().copied()), want);
        }
    }
}
