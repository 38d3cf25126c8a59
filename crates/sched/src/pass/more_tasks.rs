//! A job with a range of task numbers (`qsub -pe NAME 2-8`) is placed with the smallest number, and
//! starts with the largest number that fits then. It waits for, and reserves nodes for, the
//! smallest number.

use super::{Pass, starts};
use crate::NODES_PER_PASS_MAX;
use crate::demand::Demand;
use crate::demand::pick::Pick;
use crate::place::node_source::choose_now;
use crate::place::{NodeSource as _, Placement};
use muster_model::ids::JobId;
use muster_model::task_range::TaskRange;

/// Number of nodes looked at for one job, after which it starts with the best number found so far.
const NODES_MAX: u64 = 100_000;

/// A search for the largest number of tasks.
struct RangeSearch<'s, 'p> {
    pass: &'s mut Pass<'p>,
    lane: u32,
    job: JobId,
    range: &'p TaskRange,
    /// The demand with the number that is being tried.
    demand: Demand,
}

/// Nodes for the largest number of tasks that the job can have now, within limits; `picks` are
/// those for the smallest.
pub(super) fn most_tasks(
    pass: &mut Pass<'_>,
    lane: u32,
    job: JobId,
    picks: Vec<Pick>,
) -> Vec<Pick> {
    let state = pass.state;
    let Some(range) = &state.jobs[&job].spec.ask.task_range else {
        return picks;
    };
    let Ok(demand) = pass.s.queue.lane(lane).demand.clone() else {
        return picks;
    };
    let search = RangeSearch {
        pass,
        lane,
        job,
        range,
        demand,
    };
    search.run(picks)
}

impl RangeSearch<'_, '_> {
    /// Tries the largest possible number first, then a binary search. Only in rare cases does a
    /// larger number fit although a smaller one does not, and searching for the true maximum would
    /// be costly.
    fn run(mut self, mut picks: Vec<Pick>) -> Vec<Pick> {
        let numbers = self.range.len_up_to(self.capacity());
        let (mut fits, mut too_many, mut next) = (0, numbers, numbers.saturating_sub(1));
        let before = self.pass.s.cost.nodes_and_tries();
        while fits + 1 < too_many && !self.is_spent(before) {
            match self.try_number(next) {
                Some(more) => (fits, picks) = (next, more),
                None => too_many = next,
            }
            next = fits + (too_many - fits) / 2;
        }
        picks
    }

    /// Whether the budget is used up; `before` is the number of nodes that the pass had looked at
    /// before.
    fn is_spent(&self, before: u64) -> bool {
        let own = self.pass.s.cost.nodes_and_tries() - before;
        own >= NODES_MAX || self.pass.work() >= NODES_PER_PASS_MAX
    }

    /// Upper bound of the tasks for which nodes have room now, up to the largest number of the
    /// range. For one node it is the maximum of an empty one.
    fn capacity(&mut self) -> u32 {
        let (fleet, demand, most) = (&self.pass.s.fleet, &self.demand, self.range.most());
        let alternatives = 0..demand.alternatives.len();
        if demand.max_nodes == 1 && self.range.tasks_of_node.is_none() {
            let of_node = alternatives.map(|a| demand.tasks_at_most(a, &fleet.classes));
            return of_node.max().unwrap_or(0).min(most);
        }
        let source = self.pass.nodes_now(self.lane, demand);
        let order = &source.part.order;
        let in_alternative = |alternative: usize| {
            let (cpus, mib) = demand.floor(alternative, &fleet.classes, 1);
            let (mut tasks, mut from) = (0u32, 0);
            while let Some(pos) = source.next(from..order.len(), cpus, mib) {
                let node = order[pos];
                let class = fleet.nodes[node as usize].class;
                if demand.admits(alternative, class, node) {
                    let room = source.room(pos);
                    let more = demand.tasks_in(&fleet.classes[class as usize], &room);
                    tasks = tasks.saturating_add(more);
                }
                if tasks >= most {
                    return most;
                }
                from = pos + 1;
            }
            tasks
        };
        let tasks = alternatives.map(in_alternative).max().unwrap_or(0);
        let visited = source.visited.get();
        self.pass.s.cost.nodes_visited += visited;
        tasks
    }

    /// Nodes for the number at an index of the range.
    fn try_number(&mut self, place: u32) -> Option<Vec<Pick>> {
        let tasks = self.range.at(place)?;
        self.demand.tasks = Some(tasks);
        if let Some(nodes) = self.range.nodes_of(tasks) {
            (self.demand.min_nodes, self.demand.max_nodes) = (nodes, nodes);
        }
        let switches = self.pass.switch_limit(self.job, &self.demand);
        let mut source = self.pass.nodes_now(self.lane, &self.demand);
        let placement = choose_now(&self.demand, &mut source, switches);
        let (visited, tries) = (source.visited.get(), source.tries.get());
        self.pass.s.cost.nodes_visited += visited;
        self.pass.s.cost.socket_tries += tries;
        let limit_on = |picks| starts::limit_on(self.pass, self.lane, self.job, picks);
        match placement {
            Placement::Here(picks) if limit_on(&picks).is_none() => Some(picks),
            Placement::Here(_) | Placement::Scattered | Placement::Nowhere(_) => None,
        }
    }
}
