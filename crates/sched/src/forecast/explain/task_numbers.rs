//! When a job with a range of tasks (`qsub -pe NAME 2-8`) would start if it waited for one of the
//! numbers. The job itself waits for the smallest, and starts with the largest that fits then.

use crate::forecast::with_change;
use muster_core::state::State;
use muster_model::job::Job;
use muster_model::task_range::TaskRange;

/// Number of task numbers that are tried.
const NUMBERS_MAX: u32 = 5;

/// The numbers that are tried: the smallest, the largest, and some between.
pub(super) fn tried(state: &State, job: &Job, range: &TaskRange) -> Vec<u32> {
    numbers(range, capacity(state, job))
}

/// The state, with the job asking for this number of tasks alone.
pub(super) fn with_number(state: &State, job: &Job, range: &TaskRange, tasks: u32) -> State {
    let mut spec = (*job.spec).clone();
    (spec.ask.ntasks, spec.ask.task_range) = (Some(tasks), None);
    if let Some(nodes) = range.nodes_of(tasks) {
        (spec.ask.min_nodes, spec.ask.max_nodes) = (nodes, Some(nodes));
    }
    with_change(state, job.id, spec, job.time_limit)
}

/// Tasks for which the cluster has CPUs.
fn capacity(state: &State, job: &Job) -> u32 {
    let cpus: u64 = state.nodes.iter().map(|n| u64::from(n.config.cpus)).sum();
    let tasks = match job.spec.ask.overcommit {
        true => cpus,
        false => cpus / u64::from(job.spec.ask.cpus_of_task()).max(1),
    };
    u32::try_from(tasks).unwrap_or(u32::MAX)
}

/// Up to [`NUMBERS_MAX`] numbers of the range, no larger than `most` except for the smallest.
fn numbers(range: &TaskRange, most: u32) -> Vec<u32> {
    let len = range.len_up_to(most).max(1);
    let count = len.min(NUMBERS_MAX);
    let place = |n: u32| {
        let place = u64::from(n) * u64::from(len - 1) / u64::from((count - 1).max(1));
        range.at(u32::try_from(place).unwrap_or(u32::MAX))
    };
    (0..count).filter_map(place).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_spread_over_the_range() {
        let mut range = TaskRange::default();
        range.counts.insert_range(2, 2);
        range.counts.insert_range(4, 1000);
        assert_eq!(numbers(&range, 1), [2]);
        assert_eq!(numbers(&range, 3), [2]);
        assert_eq!(numbers(&range, 6), [2, 4, 5, 6]);
        assert_eq!(numbers(&range, 12), [2, 5, 7, 9, 12]);
        assert_eq!(numbers(&range, u32::MAX).last(), Some(&1000));
        assert_eq!(numbers(&TaskRange::default(), 9), []);
    }
}
