//! Chooses nodes for a job and distributes its tasks. One algorithm serves present nodes, future nodes and empty nodes
//! (could the job ever run?); these differ in the [`NodeSource`].
//!
//! Order of choice: the nodes of the lowest weight that fit the job, of these the fewest, in configuration order; a range of
//! nodes and `--spread-job` take as many as possible. If the network is not flat, the smallest number of leaf switches comes
//! first (`leaves`).

pub(crate) mod after_preemption;
mod bound;
mod counted;
pub(crate) mod holds;
mod leaves;
pub(crate) mod node_source;
mod segments;

use crate::demand::pick::{JobShare, Pick};
use crate::demand::task_counts::{SocketFits, TaskCounts};
use crate::demand::{Demand, FitAsk};
use crate::nodes::class::NOWHERE;
use crate::nodes::fleet::{Fleet, LeastFree, PartView, free_gpus};
use crate::nodes::network::{Leaves, Network};
use crate::nodes::room::{Detail, Room};
use std::borrow::Cow;
use std::cell::Cell;
use std::collections::BTreeSet;
use std::ops::Range;

/// A source of nodes: the nodes of a partition with their room.
pub(crate) trait NodeSource {
    /// The first place in a range that may have that much free.
    fn next(&self, places: Range<usize>, cpus: u32, mib: u64) -> Option<usize>;
    /// All places with this much free, if the source keeps them in order: the tightest of the lowest weight first.
    fn tightest(&self, _least: LeastFree) -> Option<Box<dyn Iterator<Item = usize> + '_>> {
        None
    }
    /// Whether the node at a place may fit that many tasks; inexact, but cheaper than computing its room.
    fn may_hold(&self, _pos: usize, _tasks: u32) -> bool {
        true
    }
    /// The room on the node at a place.
    fn room(&self, pos: usize) -> Cow<'_, Room>;
    /// Number of the job's tasks that fit there, if it is known without computing the room.
    fn tasks(&self, _pos: usize) -> Option<u32> {
        None
    }
    /// Individual free CPUs and devices there, if known.
    fn detail(&self, _pos: usize) -> Option<Detail> {
        None
    }
    /// Counts comparisons of needs with sockets.
    fn note_tries(&self, _tries: u64) {}
    /// Leaves of the network that may have that many CPUs free, in the order in which they are tried.
    fn leaves(&self, cpus: u64) -> Box<dyn Iterator<Item = u32> + '_>;
}

/// Number of node counts that are tried if tasks and devices do not fit together on the fewest nodes.
const WIDENED_MAX: usize = 8;
/// Number of starting positions, apart from requested nodes, that are tried for a run of adjacent nodes.
const STARTS_MAX: usize = 32;
/// Initial capacity for candidates.
const CANDIDATES: usize = 64;

/// A candidate: its place in the partition and the number of tasks that fit there.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    pos: usize,
    node: u32,
    most: u32,
    cpus: u32,
    /// Number of free GPUs plus one; 0 if the node has no GPUs.
    gpus: u32,
    /// Devices of the whole job that it could give.
    share: JobShare,
}

/// The result of a search for nodes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Placement {
    /// The job fits on these nodes, which are in node order.
    Here(Vec<Pick>),
    /// The job fits, but only on more leaf switches than allowed.
    Scattered,
    /// The job does not fit on these nodes.
    Nowhere(Shortfall),
}

/// The least that must become free before a job that does not fit is tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shortfall {
    /// Free CPUs that a node must have to be of any help.
    pub(crate) each: u32,
    /// Free CPUs on such nodes together.
    pub(crate) cpus: u64,
}

impl Shortfall {
    /// Any change may make the job fit.
    pub(crate) const ANYTHING: Shortfall = Shortfall { each: 0, cpus: 0 };
    /// Nodes do not help: the job waits for something else.
    pub(crate) const NO_NODES: Shortfall = Shortfall {
        each: u32::MAX,
        cpus: u64::MAX / 2,
    };

    /// The smaller of both in each field, so that the job is tried as soon as either shortfall is covered.
    pub(crate) fn or(self, other: Shortfall) -> Shortfall {
        Shortfall {
            each: self.each.min(other.each),
            cpus: self.cpus.min(other.cpus),
        }
    }
}

impl Placement {
    /// The nodes, if the job fits.
    pub(crate) fn picks(self) -> Option<Vec<Pick>> {
        match self {
            Placement::Here(picks) => Some(picks),
            Placement::Scattered | Placement::Nowhere(_) => None,
        }
    }
}

/// Chooses nodes and tasks per node, on at most that many leaf switches.
pub(crate) fn choose(
    demand: &Demand,
    fleet: &Fleet,
    part: &PartView,
    source: &impl NodeSource,
    switches: Option<u32>,
) -> Placement {
    let mut scattered = false;
    let mut least: Option<Shortfall> = None;
    let (socket_fits, near_work) = (SocketFits::default(), Cell::new(0));
    for alternative in 0..demand.alternatives.len() {
        let mut search = Search {
            demand,
            fleet,
            part,
            source,
            alternative,
            least_nodes: demand.min_nodes,
            short: Cell::new(Shortfall::ANYTHING),
            task_counts: TaskCounts::default(),
            socket_fits: &socket_fits,
            near_work: &near_work,
            by_count: part.network.is_none()
                && !(demand.spread || demand.least_loaded)
                && !demand.is_intricate(),
            of_job: demand.devices.of_job(),
            by_socket: demand.looks_at_sockets(),
        };
        for _ in 0..WIDENED_MAX {
            let Some(chosen) = search.run() else {
                let short = search.short.get();
                least = Some(least.map_or(short, |least| least.or(short)));
                break;
            };
            if switches.is_some_and(|most| search.leaf_count(&chosen) > most as usize) {
                scattered = true;
                break;
            }
            let nodes = u32::try_from(chosen.len()).unwrap_or(u32::MAX);
            match search.lay_out(chosen) {
                Some(picks) => return Placement::Here(picks),
                // More nodes may fit a job that the fewest do not.
                None => {
                    search.least_nodes = nodes.saturating_add(1);
                    least = Some(Shortfall::ANYTHING);
                }
            }
        }
    }
    if scattered {
        return Placement::Scattered;
    }
    Placement::Nowhere(least.unwrap_or(Shortfall::ANYTHING))
}

struct Search<'a, G: NodeSource> {
    demand: &'a Demand,
    fleet: &'a Fleet,
    part: &'a PartView,
    source: &'a G,
    alternative: usize,
    /// The smallest possible number of nodes.
    least_nodes: u32,
    /// The shortfall, if known.
    short: Cell<Shortfall>,
    task_counts: TaskCounts,
    socket_fits: &'a SocketFits,
    /// Work spent on distributing devices to sockets, for all alternatives.
    near_work: &'a Cell<u64>,
    /// Only the number of tasks on a node matters, not its room.
    by_count: bool,
    /// Devices are counted over the whole job.
    of_job: bool,
    /// Individual CPUs and devices are considered.
    by_socket: bool,
}

/// The fewest nodes that could suffice, each with an even part of the job.
struct Even {
    count: usize,
    /// Tasks on each node.
    each: u32,
    /// Number of nodes to take, if available.
    wanted: usize,
}

impl<G: NodeSource> Search<'_, G> {
    fn run(&self) -> Option<Vec<Candidate>> {
        let d = self.demand;
        let max_nodes = d.max_nodes.min(d.part_most_nodes);
        let max_nodes = max_nodes.min(d.most_nodes_of_tasks()) as usize;
        if self.least_nodes as usize > max_nodes {
            return None;
        }
        let best = d.tasks_at_most(self.alternative, &self.fleet.classes);
        if best == 0 {
            return None;
        }
        if !d.counts[self.alternative].is_empty() {
            return self.counted(max_nodes);
        }
        if d.contiguous {
            return self.contiguous(max_nodes);
        }
        if let Some(segment) = d.segment {
            let (network, leaves) = self.network().filter(|(network, _)| network.blocks)?;
            return self.in_segments(network, leaves, segment, best);
        }
        if let Some((network, leaves)) = self.network() {
            return self.by_leaves(network, leaves, max_nodes, best);
        }
        let required = self.required()?;
        let mut rest = None;
        if required.is_empty() && !self.by_load() && !d.devices.of_job() {
            // The result was found without looking at the rest.
            let even = self.even(max_nodes, best)?;
            let found = match even.wanted {
                1 => self.tightest(even.each),
                wanted => self.first(wanted, even.each),
            };
            if found.len() >= even.count {
                let all = |places| {
                    let mut rest = Vec::new();
                    self.first_of(places, usize::MAX, d.tasks_least(), &mut rest);
                    rest
                };
                return Some(self.unless_better(found, &even, max_nodes, all));
            }
            // The search ends here if no other choice could succeed: there is one node, or the job needs full nodes.
            let full = d
                .tasks
                .is_some_and(|t| u64::from(best) * even.count as u64 == u64::from(t));
            if d.tasks.is_none() || (even.count == max_nodes && (even.count == 1 || full)) {
                self.lacks_nodes(even.count - found.len(), even.each);
                return None;
            }
            // The search found fewer nodes than wanted. If nodes with a single task are of use, these are all nodes of use.
            rest = (even.wanted > 1 && even.each == d.tasks_least()).then_some(found);
        }
        let rest = rest.unwrap_or_else(|| self.first(usize::MAX, d.tasks_least()));
        self.lacks(&required, &rest, max_nodes);
        self.fewest(&required, rest, max_nodes)
    }

    /// Nodes that fit an even part each are found quickly, but other nodes may be better: nodes of lower weight, though more
    /// of them, or for a range of node counts a larger number. `all` returns the useful nodes in a range of places.
    fn unless_better(
        &self,
        found: Vec<Candidate>,
        even: &Even,
        max_nodes: usize,
        all: impl FnOnce(Range<usize>) -> Vec<Candidate>,
    ) -> Vec<Candidate> {
        let d = self.demand;
        let heaviest = self.weight(&found);
        let is_short = d.widest && found.len() < even.wanted;
        // The even search would have found a node that fits a part which cannot be halved further.
        let may_be_lighter =
            self.part.weights.first().is_some_and(|w| *w < heaviest) && even.each > d.tasks_least();
        if d.tasks.is_none() || !(is_short || may_be_lighter) {
            return found;
        }
        let end = match is_short {
            true => self.part.order.len(),
            false => self.part.weights.partition_point(|w| *w < heaviest),
        };
        let rest = all(0..end);
        let rank = |nodes: &[Candidate]| {
            let missing = even.wanted.saturating_sub(nodes.len());
            (is_short.then_some(missing), self.weight(nodes))
        };
        match self.fewest(&[], rest.clone(), max_nodes) {
            Some(chosen) if rank(&chosen) < rank(&found) => chosen,
            _ => self.tightened(0, found, &rest),
        }
    }

    /// The highest weight among nodes.
    fn weight(&self, chosen: &[Candidate]) -> u32 {
        let weight = |c: &Candidate| self.part.weights[c.pos];
        chosen.iter().map(weight).max().unwrap_or(0)
    }

    /// Records a shortfall: this many more nodes would have to fit that many tasks each.
    fn lacks_nodes(&self, nodes: usize, tasks: u32) {
        let floor = self
            .demand
            .floor(self.alternative, &self.fleet.classes, tasks);
        self.short.set(Shortfall {
            each: floor.0,
            cpus: nodes as u64 * u64::from(floor.0),
        });
    }

    /// Records the least that these nodes lack. A node on which a number of CPUs becomes free fits at most that many more
    /// tasks, also among the best `max_nodes`.
    fn lacks(&self, required: &[Candidate], rest: &[Candidate], max_nodes: usize) {
        let d = self.demand;
        if d.is_intricate() {
            return;
        }
        let have = required.len() + rest.len();
        self.lacks_nodes(
            (self.least_nodes as usize).saturating_sub(have),
            d.tasks_least(),
        );
        let Some(tasks) = d.tasks else { return };
        let mut most: Vec<u32> = required.iter().chain(rest).map(|c| c.most).collect();
        if most.len() > max_nodes {
            most.select_nth_unstable_by_key(max_nodes - 1, |most| std::cmp::Reverse(*most));
            most.truncate(max_nodes);
        }
        let held: u64 = most.iter().copied().map(u64::from).sum();
        let lacking = u64::from(tasks).saturating_sub(held);
        let nodes = self.short.get();
        self.short.set(Shortfall {
            cpus: nodes.cpus.max(lacking * u64::from(d.cpus_of_tasks())),
            ..nodes
        });
    }

    fn by_load(&self) -> bool {
        self.demand.spread || self.demand.least_loaded
    }

    /// The network, if the job's placement depends on it.
    fn network(&self) -> Option<(&Network, &Leaves)> {
        let (number, leaves) = self.part.network.as_ref()?;
        let network = &self.fleet.networks[*number as usize];
        let guides = !network.optional && !self.by_load();
        let asked = self.demand.switches.is_some() || self.demand.segment.is_some();
        (guides || asked).then_some((network, leaves))
    }

    /// Number of leaves of the network on which the nodes lie.
    fn leaf_count(&self, chosen: &[Candidate]) -> usize {
        let Some((_, leaves)) = &self.part.network else {
            return 1;
        };
        let at: BTreeSet<u32> = chosen.iter().map(|c| leaves.leaf_at(c.pos)).collect();
        at.len()
    }

    /// `None` if more nodes are needed than allowed. `best` is the largest number of tasks on any node.
    fn even(&self, max_nodes: usize, best: u32) -> Option<Even> {
        let d = self.demand;
        let even = match d.tasks {
            Some(tasks) => {
                let count = tasks.div_ceil(best).max(self.least_nodes);
                Even {
                    count: count as usize,
                    each: tasks.div_ceil(count),
                    wanted: match d.widest {
                        true => max_nodes.min(tasks as usize).max(count as usize),
                        false => count as usize,
                    },
                }
            }
            None => Even {
                count: self.least_nodes as usize,
                each: d.tasks_each,
                wanted: max_nodes,
            },
        };
        (even.count <= max_nodes).then_some(even)
    }

    fn candidate(&self, pos: usize, least: u32) -> Option<Candidate> {
        let node = self.part.order[pos];
        let number = self.fleet.nodes[node as usize].class;
        if !self.demand.admits(self.alternative, number, node) {
            return None;
        }
        if self.by_count
            && let Some(most) = self.source.tasks(pos)
        {
            return (most >= least.max(1)).then_some(Candidate {
                pos,
                node,
                most,
                cpus: 0,
                gpus: 0,
                share: JobShare::default(),
            });
        }
        let room = self.source.room(pos);
        let class = &self.fleet.classes[number as usize];
        let tasks = self.task_counts.tasks_in(self.demand, number, class, &room);
        let mut pick = Pick {
            node,
            tasks,
            share: JobShare::default(),
        };
        if pick.tasks < least.max(1) {
            return None;
        }
        if self.of_job {
            pick.share = self.demand.share_in(class, &room);
        }
        if self.by_socket {
            let detail = || self.source.detail(pos);
            let ask = FitAsk {
                pick,
                nodes: self.least_nodes,
            };
            let fit = (self.socket_fits).fit(self.demand, number, class, ask, detail);
            self.source.note_tries(fit.tries);
            pick = fit.pick?;
        }
        (pick.tasks >= least.max(1)).then_some(Candidate {
            pos,
            node,
            most: pick.tasks,
            cpus: room.cpus,
            gpus: free_gpus(class, &room),
            share: pick.share,
        })
    }

    /// The nodes that the job requests by name; `None` if one of them is unusable now.
    fn required(&self) -> Option<Vec<Candidate>> {
        let place = |&node: &u32| match self.part.pos_of[node as usize] {
            NOWHERE => None,
            pos => self.candidate(pos as usize, 1),
        };
        self.demand.required.iter().map(place).collect()
    }

    /// The first nodes, in order, that fit at least `each` tasks.
    fn first(&self, wanted: usize, each: u32) -> Vec<Candidate> {
        let most = wanted.min(self.part.order.len());
        let mut found = Vec::with_capacity(most.min(CANDIDATES));
        self.first_of(0..self.part.order.len(), wanted, each, &mut found);
        found
    }

    /// The node that has the least left after that many tasks.
    fn tightest(&self, each: u32) -> Vec<Candidate> {
        let d = self.demand;
        let (cpus, mib) = d.floor(self.alternative, &self.fleet.classes, each);
        let gpus = u32::try_from(d.devices.least_gpus(each)).unwrap_or(u32::MAX - 1);
        let Some(places) = self.source.tightest(LeastFree { gpus, cpus, mib }) else {
            return self.first(1, each);
        };
        let mut places = places.filter(|pos| self.source.may_hold(*pos, each));
        let found = places.find_map(|pos| self.candidate(pos, each));
        found.into_iter().collect()
    }

    /// Adds the first nodes of a range that fit at least `each` tasks, until the number is reached.
    fn first_of(
        &self,
        mut places: Range<usize>,
        wanted: usize,
        each: u32,
        found: &mut Vec<Candidate>,
    ) {
        let (cpus, mib) = self
            .demand
            .floor(self.alternative, &self.fleet.classes, each);
        while found.len() < wanted {
            let Some(pos) = self.source.next(places.clone(), cpus, mib) else {
                break;
            };
            if self.source.may_hold(pos, each) {
                found.extend(self.candidate(pos, each));
            }
            places.start = pos + 1;
        }
    }

    /// The fewest nodes of the lowest weights that fit the job, including the requested ones; a job that wants many nodes
    /// also gets nodes of higher weights. `rest` is sorted.
    fn fewest(
        &self,
        required: &[Candidate],
        mut rest: Vec<Candidate>,
        max_nodes: usize,
    ) -> Option<Vec<Candidate>> {
        let d = self.demand;
        rest.retain(|c| !d.requires(c.node));
        let weight = |c: &Candidate| self.part.weights[c.pos];
        let wanted = self.nodes_wanted(max_nodes);
        let (mut from, mut best): (usize, Option<Vec<Candidate>>) = (0, None);
        while from <= rest.len() {
            let mut end = from;
            while end < rest.len() && weight(&rest[end]) == weight(&rest[from]) {
                end += 1;
            }
            let mut within = rest[..end].to_vec();
            let enough = |within: &[Candidate]| {
                let candidates = required.iter().chain(within).copied();
                self.enough(candidates, max_nodes, |_| true)
            };
            let mut found = None;
            if d.least_loaded {
                within.sort_by_key(|c| (weight(c), std::cmp::Reverse(c.cpus)));
                found = enough(&within);
            } else if d.spread {
                within.sort_by_key(|c| std::cmp::Reverse(c.cpus));
                found = enough(&within);
            }
            // Nodes with the most CPUs, and nodes of the lowest weight, may fit few tasks each, and the number of nodes may
            // be limited.
            if found.is_none() {
                within.sort_by_key(|c| std::cmp::Reverse((c.share, c.most)));
                let chosen = enough(&within);
                found = chosen.map(|chosen| self.tightened(required.len(), chosen, &within));
            }
            if found.is_none() && d.devices.of_job() {
                // Two sums must be reached, and a node with the fewest devices may have the most CPUs.
                within.sort_by_key(|c| std::cmp::Reverse((c.most, c.share)));
                found = enough(&within);
            }
            let more = |a: &Vec<Candidate>| best.as_ref().is_none_or(|b| a.len() > b.len());
            if found.as_ref().is_some_and(more) {
                best = found;
            }
            let full = best.as_ref().is_some_and(|best| best.len() >= wanted);
            if full || end >= rest.len() {
                return best;
            }
            from = end;
        }
        best
    }

    /// Number of nodes to take if available, although fewer would suffice.
    fn nodes_wanted(&self, max_nodes: usize) -> usize {
        let d = self.demand;
        match d.tasks {
            Some(tasks) if d.spread || d.widest => {
                max_nodes.min((tasks as usize).max(self.least_nodes as usize))
            }
            None if d.spread || !d.fewest => max_nodes,
            Some(_) | None => 0,
        }
    }

    /// Takes candidates in order until they suffice and include those that `has_all` requires.
    fn enough(
        &self,
        candidates: impl Iterator<Item = Candidate>,
        max_nodes: usize,
        has_all: impl Fn(&[Candidate]) -> bool,
    ) -> Option<Vec<Candidate>> {
        let d = self.demand;
        let least = self.least_nodes as usize;
        let needs: Vec<(usize, u64)> = d.devices.of_all_nodes().enumerate().collect();
        let mut given = vec![0u64; needs.len()];
        let mut chosen = Vec::new();
        let mut tasks = 0u64;
        let done = |chosen: &[Candidate], tasks: u64, given: &[u64]| {
            chosen.len() >= least
                && d.tasks.is_none_or(|t| tasks >= u64::from(t))
                && needs
                    .iter()
                    .zip(given)
                    .all(|((_, needed), given)| given >= needed)
                && has_all(chosen)
        };
        let most = self.nodes_wanted(max_nodes);
        for candidate in candidates {
            if chosen.len() >= max_nodes || done(&chosen, tasks, &given) && chosen.len() >= most {
                break;
            }
            tasks += u64::from(candidate.most);
            for ((kind, _), given) in needs.iter().zip(&mut given) {
                *given += u64::from(candidate.share[*kind]);
            }
            chosen.push(candidate);
        }
        done(&chosen, tasks, &given).then_some(chosen)
    }

    /// Whether these nodes have the devices of the whole job.
    fn gives_all(&self, chosen: &[Candidate]) -> bool {
        let needs = self.demand.devices.of_all_nodes().enumerate();
        { needs }.all(|(kind, count)| {
            let given = chosen.iter().map(|c| u64::from(c.share[kind]));
            given.sum::<u64>() >= count
        })
    }

    /// The nodes were chosen for their size; replaces each by the smallest node of the lowest weight that suffices,
    /// beginning with the last.
    fn tightened(
        &self,
        required: usize,
        mut chosen: Vec<Candidate>,
        candidates: &[Candidate],
    ) -> Vec<Candidate> {
        /// Above this number of nodes only the last is replaced.
        const LOOKED_AT: usize = 32;
        let d = self.demand;
        if self.by_load() {
            return chosen;
        }
        let size = |c: &Candidate| (self.part.weights[c.pos], c.share, c.most);
        let first = required.max(chosen.len().saturating_sub(match chosen.len() {
            0..LOOKED_AT => LOOKED_AT,
            _ => 1,
        }));
        let mut taken: BTreeSet<u32> = chosen.iter().map(|c| c.node).collect();
        for at in (first..chosen.len()).rev() {
            let tasks: u64 = chosen.iter().map(|c| u64::from(c.most)).sum();
            let others = tasks - u64::from(chosen[at].most);
            let lacking = d.tasks.map_or(0, u64::from).saturating_sub(others);
            for candidate in candidates {
                let better = size(candidate) < size(&chosen[at]);
                let known = taken.contains(&candidate.node);
                if known || !better || u64::from(candidate.most) < lacking {
                    continue;
                }
                let before = std::mem::replace(&mut chosen[at], *candidate);
                if self.gives_all(&chosen) {
                    taken.remove(&before.node);
                    taken.insert(candidate.node);
                } else {
                    chosen[at] = before;
                }
            }
        }
        chosen
    }

    /// The first run of adjacent nodes that fits the job; with required nodes, the shortest of the runs that begin nearest
    /// to them.
    fn contiguous(&self, max_nodes: usize) -> Option<Vec<Candidate>> {
        let d = self.demand;
        let mut all = self.first(usize::MAX, d.tasks_least());
        all.sort_by_key(|c| c.node);
        let run = |start: usize, max_nodes: usize| {
            let neighbours = all[start..]
                .iter()
                .enumerate()
                .take_while(|(i, c)| c.node as usize == all[start].node as usize + i)
                .map(|(_, c)| *c);
            // Both lists are in node order: a run that begins early enough contains all required nodes once it contains the
            // last of them.
            let reaches_last = |chosen: &[Candidate]| {
                let last = d.required.last();
                last.is_none_or(|last| chosen.last().is_some_and(|c| c.node >= *last))
            };
            self.enough(neighbours, max_nodes, reaches_last)
        };
        let Some(first) = d.required.first() else {
            return (0..all.len()).find_map(|start| run(start, max_nodes));
        };
        let required = all.binary_search_by_key(first, |c| c.node).ok()?;
        let is_next = |pair: &[Candidate]| pair[0].node + 1 == pair[1].node;
        let before = all[..=required].windows(2).rev().take_while(|p| is_next(p));
        let begin = required - before.count();
        let after = all[required..].windows(2).take_while(|p| is_next(p));
        let end = required + 1 + after.count();
        // A run that begins earlier contains more nodes up to the same end, so a binary search finds the last sufficient
        // beginning.
        let is_enough = |start: &usize| run(*start, usize::MAX).is_some();
        let starts: Vec<usize> = (begin..=required).collect();
        let last = *starts[..starts.partition_point(is_enough)].last()?;
        let wanted = self.nodes_wanted(max_nodes);
        let wide = last.min(end.saturating_sub(wanted)).max(begin);
        let near = |start: usize| (begin..=start).rev().take(STARTS_MAX);
        let runs = near(wide).chain(near(last));
        let runs = runs.filter_map(|start| run(start, max_nodes));
        runs.min_by_key(|run| (wanted.saturating_sub(run.len()), run.len()))
    }

    /// Tasks and devices per node, in node order; `None` if these nodes do not fit them next to each other.
    fn lay_out(&self, mut chosen: Vec<Candidate>) -> Option<Vec<Pick>> {
        chosen.sort_unstable_by_key(|c| c.node);
        let tasks = self.tasks_of(&chosen);
        let picks = chosen.iter().zip(tasks).map(|(c, tasks)| Pick {
            node: c.node,
            tasks,
            share: JobShare::default(),
        });
        let mut picks: Vec<Pick> = picks.collect();
        if self.demand.devices.of_job() {
            let most: Vec<JobShare> = chosen.iter().map(|c| c.share).collect();
            self.demand.devices.share_out(&mut picks, &most);
            if self.demand.looks_at_sockets() {
                return self.near_devices(&chosen, picks);
            }
        }
        Some(picks)
    }

    fn tasks_of(&self, chosen: &[Candidate]) -> Vec<u32> {
        let d = self.demand;
        let Some(tasks) = d.tasks else {
            return vec![d.tasks_each; chosen.len()];
        };
        // Tasks that share a GPU stay together.
        let unit = d.devices.tasks_per_gpu().unwrap_or(1);
        let most: Vec<u32> = chosen.iter().map(|c| (c.most / unit).max(1)).collect();
        let (left, mut counts) = (tasks.div_ceil(unit), vec![0; chosen.len()]);
        if d.even {
            deal_out(left, &most, &mut counts);
        } else {
            let classes = &self.fleet.classes;
            let class = |c: &Candidate| &classes[self.fleet.nodes[c.node as usize].class as usize];
            // Most nodes are equal.
            let mut last = None;
            let mut tasks_of_core = |c: &Candidate| {
                let number = self.fleet.nodes[c.node as usize].class;
                let known = last.filter(|(of, _)| *of == number);
                let found = known.unwrap_or_else(|| (number, d.tasks_of_core(class(c))));
                last = Some(found);
                found.1
            };
            let of_core = (chosen.iter().zip(&most))
                .map(|(c, most)| (tasks_of_core(c) / unit).clamp(1, *most))
                .collect::<Vec<u32>>();
            let pays = chosen.first().is_none_or(|c| !class(c).by_thread);
            fill((left, pays), &most, &of_core, &mut counts);
        }
        if unit > 1 {
            let mut left = tasks;
            for count in &mut counts {
                *count = count.saturating_mul(unit).min(left);
                left -= *count;
            }
        }
        counts
    }
}

/// Fills one node after another. Each node gets at least one task, and as many as its cores have room for before the first
/// gets more cores: `most` and `of_core` by node. Cores are filled if the job is charged for whole cores.
fn fill((mut left, pays): (u32, bool), most: &[u32], of_core: &[u32], counts: &mut [u32]) {
    let mut later: u32 = of_core.iter().sum();
    let mut others = u32::try_from(most.len()).unwrap_or(u32::MAX);
    for ((count, most), core) in counts.iter_mut().zip(most).zip(of_core) {
        (later, others) = (later - core, others - 1);
        let least = left.saturating_sub(later).max(*core);
        let whole = match pays {
            true => least.div_ceil(*core).saturating_mul(*core),
            false => least,
        };
        *count = whole
            .min(left.saturating_sub(others))
            .min(*most)
            .max(left.min(1));
        left -= *count;
    }
}

/// Distributes tasks evenly, as far as each node has room.
fn deal_out(mut left: u32, most: &[u32], counts: &mut [u32]) {
    while left > 0 {
        let open: Vec<usize> = (0..most.len()).filter(|&i| counts[i] < most[i]).collect();
        let count = u32::try_from(open.len()).unwrap_or(u32::MAX);
        if count == 0 {
            break;
        }
        let (each, more) = (left / count, left % count);
        for (n, i) in open.into_iter().enumerate() {
            let share = each + u32::from(each == 0 && n < more as usize);
            let add = share.min(most[i] - counts[i]).min(left);
            counts[i] += add;
            left -= add;
        }
    }
}
