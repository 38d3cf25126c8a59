//! Decides which heterogeneous jobs have their turn in a pass, if there are too many for one pass.

use muster_model::ids::JobId;
use std::collections::{BTreeMap, BTreeSet};

/// Jobs are identified by their leaders.
#[derive(Debug, Default)]
pub(crate) struct HetTurns {
    /// Jobs that had their turn in earlier passes of this round.
    before: BTreeSet<JobId>,
    /// Jobs that had their turn in this pass.
    now: BTreeSet<JobId>,
    /// The last job that takes part in this round; jobs that were queued later wait for the next
    /// round.
    last: Option<JobId>,
    /// Some jobs have to wait for the next pass.
    is_cut: bool,
    /// Some jobs were queued since the round began, and wait.
    came_since: bool,
    /// Jobs for which no time was found in earlier passes; they are searched again after all jobs
    /// had a search.
    in_vain_before: BTreeSet<JobId>,
    /// Jobs for which no time was found in this pass.
    in_vain: BTreeSet<JobId>,
    /// Some jobs had no search.
    is_search_cut: bool,
    /// For jobs of which not all lanes could be tried, the place of the lane at which to go on, by component.
    lanes: BTreeMap<JobId, Vec<usize>>,
}

impl HetTurns {
    /// Whether a job is checked and tried in this pass. At least one job has its turn in each pass,
    /// further jobs as the budget permits, and the others in later passes.
    pub(in crate::pass) fn has_turn(&mut self, leader: JobId, is_spent: bool) -> bool {
        if self.now.contains(&leader) {
            return true;
        }
        if self.last.is_some_and(|last| leader > last) {
            self.came_since = true;
            return false;
        }
        if self.before.contains(&leader) {
            return false;
        }
        if is_spent && !self.now.is_empty() {
            self.is_cut = true;
            return false;
        }
        self.now.insert(leader);
        true
    }

    /// Whether the earliest time of a job is searched for in this pass.
    pub(in crate::pass) fn has_search(&mut self, leader: JobId, is_spent: bool) -> bool {
        if self.in_vain_before.contains(&leader) {
            return false;
        }
        self.is_search_cut |= is_spent;
        !is_spent
    }

    /// Records that no time was found.
    pub(in crate::pass) fn searched_in_vain(&mut self, leader: JobId) {
        self.in_vain.insert(leader);
    }

    /// The lane with which each component of a job begins, by its place in the component's list; none where all begin with the
    /// first.
    pub(in crate::pass) fn first_lanes(&self, leader: JobId) -> Vec<usize> {
        self.lanes.get(&leader).cloned().unwrap_or_default()
    }

    /// Lanes with which components begin the next time; `None` if all of a job's lanes were tried.
    pub(in crate::pass) fn set_first_lanes(&mut self, leader: JobId, lanes: Option<Vec<usize>>) {
        match lanes {
            Some(lanes) => self.lanes.insert(leader, lanes),
            None => self.lanes.remove(&leader),
        };
    }

    /// A pass ends; `newest` is the last component of such a job that waits. Says whether others are to have their turn soon.
    pub(in crate::pass) fn end_pass(&mut self, newest: Option<JobId>) -> bool {
        let is_cut = std::mem::take(&mut self.is_cut);
        if is_cut {
            self.before.append(&mut self.now);
            self.last = self.last.or(newest);
        } else {
            // Others are gone, or were tried to their end.
            let (before, now) = (&self.before, &self.now);
            self.lanes
                .retain(|leader, _| before.contains(leader) || now.contains(leader));
            self.before.clear();
            self.now.clear();
            self.last = None;
        }
        if std::mem::take(&mut self.is_search_cut) {
            self.in_vain_before.append(&mut self.in_vain);
        } else {
            self.in_vain_before.clear();
            self.in_vain.clear();
        }
        is_cut | std::mem::take(&mut self.came_since)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The jobs of a list that have their turn in a pass with budget for one, and whether others
    /// should have theirs soon.
    fn pass(turns: &mut HetTurns, jobs: &[u64]) -> (Vec<u64>, bool) {
        let mut tried = Vec::new();
        for job in jobs.iter().copied() {
            if turns.has_turn(JobId(job), !tried.is_empty()) {
                tried.push(job);
            }
        }
        let goes_on = turns.end_pass(jobs.iter().max().copied().map(JobId));
        (tried, goes_on)
    }

    #[test]
    fn all_have_a_turn_before_there_is_nothing_more_to_do() {
        let mut turns = HetTurns::default();
        assert_eq!(pass(&mut turns, &[1, 2]), (vec![1], true));
        assert_eq!(pass(&mut turns, &[3, 1, 2]), (vec![2], true));
        assert_eq!(pass(&mut turns, &[3, 1, 2]), (vec![3], true));
        assert_eq!(pass(&mut turns, &[3, 1, 2]), (vec![1], true));
        assert_eq!(pass(&mut turns, &[3, 1, 2]), (vec![2], false));
    }

    /// Costly jobs that come with each pass kept others from a second turn: all had to have had theirs first.
    #[test]
    fn new_jobs_wait_for_the_next_time_round() {
        let mut turns = HetTurns::default();
        let mut waiting = vec![1, 2, 3];
        let mut tried = Vec::new();
        for new in 10..19 {
            tried.extend(pass(&mut turns, &waiting).0);
            // The new job is ahead of all others.
            waiting.insert(0, new);
        }
        assert_eq!(tried[..3], [1, 2, 3]);
        let again = tried[3..].iter().filter(|job| **job < 10);
        assert_eq!(again.count(), 3, "{tried:?}");
    }

    #[test]
    fn a_time_is_looked_for_in_turns() {
        let mut turns = HetTurns::default();
        let mut searched = Vec::new();
        for _ in 0..3 {
            let mut spent = false;
            for job in [1, 2, 3] {
                if turns.has_search(JobId(job), spent) {
                    turns.searched_in_vain(JobId(job));
                    searched.push(job);
                    spent = true;
                }
            }
            turns.end_pass(None);
        }
        assert_eq!(searched, [1, 2, 3]);
    }
}
