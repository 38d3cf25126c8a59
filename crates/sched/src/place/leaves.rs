//! Chooses nodes if the network has a shape: the fewest leaf switches below the lowest switch that
//! has room for the job, and of those the leaves that have the least left. A job that fits at one
//! leaf looks only at that leaf's nodes; other leaves are looked at after it has fitted at none.

use super::{Candidate, Even, NodeSource, Search};
use crate::nodes::network::{Leaves, Network};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// Candidates by leaf.
type ByLeaf = BTreeMap<u32, Vec<Candidate>>;

impl<G: NodeSource> Search<'_, G> {
    pub(super) fn by_leaves(
        &self,
        network: &Network,
        leaves: &Leaves,
        max_nodes: usize,
        best: u32,
    ) -> Option<Vec<Candidate>> {
        let required = self.required()?;
        if !required.is_empty() {
            return self.around(&required, network, leaves, max_nodes);
        }
        let even = self.even(max_nodes, best)?;
        let d = self.demand;
        let mut known = ByLeaf::new();
        // The fewest nodes come before the smallest leaf.
        let few = self.lightest(|leaf| {
            if d.devices.of_job() {
                return None;
            }
            let one = even.wanted == 1;
            let wanted = if one { usize::MAX } else { even.wanted };
            let mut here = Vec::new();
            for places in &leaves.places[leaf as usize] {
                self.first_of(span(places), wanted, even.each, &mut here);
            }
            if one {
                // The leaf that has the least left.
                let best = here
                    .iter()
                    .min_by_key(|c| (self.part.weights[c.pos], c.gpus, c.cpus, c.pos));
                here = best.copied().into_iter().collect();
            }
            (here.len() >= even.count && !self.by_load()).then_some(here)
        });
        if let Some(few) = few {
            // A range of node counts asks for as many as there are, also beyond a leaf.
            let is_range = d.tasks.is_none() && !d.fewest && few.len() < even.wanted;
            let may_extend = d.switches.is_none() && !network.blocks;
            return Some(match is_range && may_extend {
                true => self.more_leaves(few, network, leaves, &even),
                false => few,
            });
        }
        if d.tasks.is_some() || self.by_load() || d.devices.of_job() {
            let single = self.lightest(|leaf| {
                let here = self.at_leaf(leaves, leaf);
                known.insert(leaf, here.clone());
                self.within(here, &[], max_nodes, best)
            });
            if single.is_some() {
                return single;
            }
        }
        let nodes = u32::try_from(even.count).unwrap_or(u32::MAX);
        let levels = &network.levels[..network.levels_for(nodes)];
        if levels.is_empty() {
            return None;
        }
        self.complete(&mut known, leaves);
        let pack = |range: &Range<u32>| self.pack(&known, range.clone(), &[], max_nodes, best);
        let found = levels.iter().find_map(|groups| {
            let fitting = groups.iter().filter_map(|group| {
                let chosen = pack(group)?;
                let below = known.range(group.clone()).flat_map(|(_, list)| list);
                let free: u64 = below.map(|c| u64::from(c.cpus)).sum();
                Some((self.leaf_count(&chosen), self.weight(&chosen), free, chosen))
            });
            fitting.min_by_key(|(leaves, weight, free, _)| (*leaves, *weight, *free))
        });
        match found {
            Some((.., chosen)) => Some(chosen),
            None if network.optional => pack(&(0..network.leaves)),
            None => None,
        }
    }

    /// Adds nodes of other leaves below the same switches, until there are as many as wanted: of the leaves that have
    /// most, so that they are few.
    fn more_leaves(
        &self,
        mut chosen: Vec<Candidate>,
        network: &Network,
        leaves: &Leaves,
        even: &Even,
    ) -> Vec<Candidate> {
        let Some(first) = chosen.first().map(|c| leaves.leaf_at(c.pos)) else {
            return chosen;
        };
        let whole = 0..network.leaves;
        let mut groups = network.levels.iter().rev().flatten();
        let below = match network.optional {
            true => Some(&whole),
            false => groups.find(|group| group.contains(&first)),
        };
        let others = below.cloned().unwrap_or(first..first + 1);
        let mut others: Vec<Vec<Candidate>> = others
            .filter(|leaf| *leaf != first)
            .map(|leaf| {
                let mut here = Vec::new();
                for places in &leaves.places[leaf as usize] {
                    self.first_of(span(places), even.wanted, even.each, &mut here);
                }
                here
            })
            .collect();
        others.sort_by_key(|here| Reverse(here.len()));
        let left = even.wanted.saturating_sub(chosen.len());
        chosen.extend(others.into_iter().flatten().take(left));
        chosen.sort_unstable_by_key(|c| c.pos);
        chosen
    }

    /// Among the nodes that `at` finds at single leaves, those of the lowest weight; of the smallest leaf among equals.
    fn lightest(
        &self,
        mut at: impl FnMut(u32) -> Option<Vec<Candidate>>,
    ) -> Option<Vec<Candidate>> {
        let least = self
            .demand
            .least_cpus(self.alternative, &self.fleet.classes);
        let lowest = self.part.weights.first().copied().unwrap_or(0);
        let mut lightest: Option<(u32, Vec<Candidate>)> = None;
        for leaf in self.source.leaves(least) {
            let Some(chosen) = at(leaf) else { continue };
            let weight = self.weight(&chosen);
            if lightest.as_ref().is_none_or(|(least, _)| weight < *least) {
                lightest = Some((weight, chosen));
            }
            if weight == lowest {
                break;
            }
        }
        lightest.map(|(_, chosen)| chosen)
    }

    /// Nodes in addition to the requested ones: at their leaves first, then below the lowest switch
    /// above all of them.
    fn around(
        &self,
        required: &[Candidate],
        network: &Network,
        leaves: &Leaves,
        max_nodes: usize,
    ) -> Option<Vec<Candidate>> {
        let best = u32::MAX;
        let at: BTreeSet<u32> = required.iter().map(|c| leaves.leaf_at(c.pos)).collect();
        let (first, last) = (*at.first()?, *at.last()?);
        let mut known = ByLeaf::new();
        for leaf in &at {
            known.insert(*leaf, self.at_leaf(leaves, *leaf));
        }
        if let Some(chosen) = self.pack(&known, first..last + 1, required, max_nodes, best) {
            return Some(chosen);
        }
        self.complete(&mut known, leaves);
        let above = |group: &&Range<u32>| group.start <= first && last < group.end;
        let found = network.levels.iter().find_map(|groups| {
            let group = groups.iter().find(above)?;
            self.pack(&known, group.clone(), required, max_nodes, best)
        });
        // A job that requests nodes without a common switch gets them.
        found.or_else(|| self.pack(&known, 0..network.leaves, required, max_nodes, best))
    }

    /// The fewest leaves of a range that fit the job, including those of the requested nodes; the
    /// last is the smallest that suffices.
    fn pack(
        &self,
        known: &ByLeaf,
        range: Range<u32>,
        required: &[Candidate],
        max_nodes: usize,
        best: u32,
    ) -> Option<Vec<Candidate>> {
        let d = self.demand;
        let named = |list: &[Candidate]| list.iter().any(|c| d.requires(c.node));
        let mut order: Vec<(bool, u64, &[Candidate])> = known
            .range(range)
            .filter(|(_, list)| !list.is_empty())
            .map(|(_, list)| (named(list), self.capacity(list), list.as_slice()))
            .collect();
        order.sort_by_key(|(named, capacity, _)| Reverse((*named, *capacity)));
        let base = order.iter().take_while(|(named, ..)| *named).count();
        let fits = |lists: &[(bool, u64, &[Candidate])]| {
            let mut all: Vec<Candidate> =
                lists.iter().flat_map(|(.., list)| *list).copied().collect();
            let tasks: u64 = all.iter().map(|c| u64::from(c.most)).sum();
            if all.len() < self.least_nodes as usize
                || d.tasks.is_some_and(|t| tasks < u64::from(t))
            {
                return None;
            }
            all.sort_unstable_by_key(|c| c.pos);
            self.within(all, required, max_nodes, best)
        };
        for count in base.max(1)..=order.len() {
            let Some(chosen) = fits(&order[..count]) else {
                continue;
            };
            if count == base {
                return Some(chosen);
            }
            let mut lists = order[..count].to_vec();
            for last in order[count..].iter().rev() {
                lists[count - 1] = *last;
                if let Some(tighter) = fits(&lists) {
                    return Some(tighter);
                }
            }
            return Some(chosen);
        }
        None
    }

    /// Part of the job that a leaf could fit: nodes if their number is given, else tasks.
    fn capacity(&self, list: &[Candidate]) -> u64 {
        let d = self.demand;
        if d.devices.of_job() {
            let of = |c: &Candidate| c.share.iter().map(|n| u64::from(*n)).sum::<u64>();
            return list.iter().map(of).sum();
        }
        match d.tasks {
            Some(tasks) if d.max_nodes > self.least_nodes => {
                let most = |c: &Candidate| u64::from(c.most.min(tasks));
                list.iter().map(most).sum()
            }
            tasks => {
                let each = tasks.map_or(d.tasks_each, |t| t.div_ceil(self.least_nodes));
                list.iter().filter(|c| c.most >= each).count() as u64
            }
        }
    }

    /// The best of these candidates, which are sorted, if they suffice.
    fn within(
        &self,
        candidates: Vec<Candidate>,
        required: &[Candidate],
        max_nodes: usize,
        best: u32,
    ) -> Option<Vec<Candidate>> {
        if required.is_empty() && !self.by_load() && !self.demand.devices.of_job() {
            let even = self.even(max_nodes, best)?;
            let holds = |c: &&Candidate| c.most >= even.each;
            let found: Vec<Candidate> = candidates
                .iter()
                .filter(holds)
                .take(even.wanted)
                .copied()
                .collect();
            if found.len() >= even.count {
                return Some(found);
            }
            self.demand.tasks?;
        }
        self.fewest(required, candidates, max_nodes)
    }

    /// Every useful node of a leaf.
    fn at_leaf(&self, leaves: &Leaves, leaf: u32) -> Vec<Candidate> {
        let mut found = Vec::new();
        for places in &leaves.places[leaf as usize] {
            let least = self.demand.tasks_least();
            self.first_of(span(places), usize::MAX, least, &mut found);
        }
        found
    }

    /// Adds the leaves that have not been looked at yet.
    fn complete(&self, known: &mut ByLeaf, leaves: &Leaves) {
        for leaf in self.source.leaves(1) {
            known
                .entry(leaf)
                .or_insert_with(|| self.at_leaf(leaves, leaf));
        }
    }
}

fn span(places: &Range<u32>) -> Range<usize> {
    places.start as usize..places.end as usize
}
