//! Chooses nodes for a constraint that counts some of them (`--constraint="[a*2&b*1]"`). The
//! network is not considered.

use super::{Candidate, NodeSource, Search};
use std::cmp::Reverse;
use std::collections::BTreeSet;

impl<G: NodeSource> Search<'_, G> {
    /// Takes the number of nodes of each kind that the constraint counts, including the requested
    /// ones, and further nodes as needed: those of the lowest weight, or the largest ones if the
    /// former would exceed the maximum number of nodes.
    pub(super) fn counted(&self, max_nodes: usize) -> Option<Vec<Candidate>> {
        let mut all = self.first(usize::MAX, self.demand.tasks_least());
        let mut rest = all.clone();
        rest.sort_by_key(|c| (self.part.weights[c.pos], Reverse(c.most)));
        if let Some(chosen) = self.counted_of(&all, &rest, max_nodes) {
            return Some(chosen);
        }
        all.sort_by_key(|c| Reverse((c.most, c.share)));
        if let Some(chosen) = self.counted_of(&all, &all, max_nodes) {
            return Some(chosen);
        }
        // Two sums must be reached.
        if self.demand.devices.of_job() {
            all.sort_by_key(|c| Reverse((c.share, c.most)));
            return self.counted_of(&all, &all, max_nodes);
        }
        None
    }

    /// As above, from nodes in this order, and then from the rest in its order. The kind with the fewest nodes chooses
    /// first.
    fn counted_of(
        &self,
        all: &[Candidate],
        rest: &[Candidate],
        max_nodes: usize,
    ) -> Option<Vec<Candidate>> {
        let d = self.demand;
        let mut chosen = self.required()?;
        let of_kind =
            |kind: &[bool], c: &Candidate| kind[self.fleet.nodes[c.node as usize].class as usize];
        let nodes_of = |kind: &[bool]| all.iter().filter(|c| of_kind(kind, c)).count();
        let kinds = d.counts[self.alternative].iter();
        let mut kinds: Vec<(usize, &[bool], u32)> = kinds
            .map(|(kind, count)| (nodes_of(kind), &**kind, *count))
            .collect();
        kinds.sort_by_key(|(nodes, ..)| *nodes);
        // Each node counts once; nodes already chosen count first.
        let mut counted: BTreeSet<u32> = BTreeSet::new();
        let mut known: BTreeSet<u32> = chosen.iter().map(|c| c.node).collect();
        for (_, kind, count) in kinds {
            let mut left = count;
            for candidate in &chosen {
                if left == 0 {
                    break;
                }
                if of_kind(kind, candidate) && counted.insert(candidate.node) {
                    left -= 1;
                }
            }
            for candidate in all {
                if left == 0 || chosen.len() > max_nodes {
                    break;
                }
                if of_kind(kind, candidate) && known.insert(candidate.node) {
                    counted.insert(candidate.node);
                    chosen.push(*candidate);
                    left -= 1;
                }
            }
            if left > 0 {
                return None;
            }
        }
        let wanted = d.tasks.map_or(0, u64::from);
        let mut tasks: u64 = chosen.iter().map(|c| u64::from(c.most)).sum();
        let is_enough = |chosen: &[Candidate], tasks: u64| {
            chosen.len() >= self.least_nodes as usize && tasks >= wanted && self.gives_all(chosen)
        };
        for candidate in rest.iter().filter(|c| !known.contains(&c.node)) {
            let more = d.tasks.is_none() && !d.fewest && chosen.len() < max_nodes;
            if chosen.len() > max_nodes || (!more && is_enough(&chosen, tasks)) {
                break;
            }
            tasks += u64::from(candidate.most);
            chosen.push(*candidate);
        }
        (is_enough(&chosen, tasks) && chosen.len() <= max_nodes).then_some(chosen)
    }
}
