//! Chooses nodes in segments (`--segment`): each segment is a number of nodes of one block.
//! Segments are put into the fewest blocks, the last of which is the smallest that suffices, or
//! each into its own block.

use super::{Candidate, NodeSource, Search};
use crate::demand::SegmentAsk;
use crate::nodes::network::{Leaves, Network};
use muster_model::spec::Segments;
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::ops::Range;

impl<G: NodeSource> Search<'_, G> {
    pub(super) fn in_segments(
        &self,
        network: &Network,
        leaves: &Leaves,
        segment: SegmentAsk,
        best: u32,
    ) -> Option<Vec<Candidate>> {
        let d = self.demand;
        let count = d.min_nodes as usize;
        let wanted = count / segment.nodes.max(1);
        if wanted * segment.nodes != count || wanted == 0 {
            return None;
        }
        // Every node fits its even part.
        let each = self.even(count, best)?.each;
        let required = self.required()?;
        let at_leaf = |leaf: u32| -> Vec<Candidate> {
            let mut all = Vec::new();
            for places in &leaves.places[leaf as usize] {
                let range = places.start as usize..places.end as usize;
                self.first_of(range, usize::MAX, each, &mut all);
            }
            // Nodes that the job requests by name come first.
            all.sort_by_key(|c| !d.requires(c.node));
            all
        };
        let mut all: Vec<(u32, Vec<Candidate>)> = Vec::new();
        for leaf in self.source.leaves(1).filter(|leaf| *leaf < network.leaves) {
            all.push((leaf, at_leaf(leaf)));
        }
        let within = |range: &Range<u32>| {
            let here = all.iter().filter(|(leaf, _)| range.contains(leaf));
            self.fill(here, segment, wanted)
        };
        let everywhere = 0..network.leaves;
        let levels = network.levels.iter().flatten();
        let chosen = match segment.rule {
            Segments::Together => levels.chain([&everywhere]).find_map(within),
            Segments::Anywhere | Segments::Apart => within(&everywhere),
        }?;
        let has: BTreeSet<u32> = chosen.iter().map(|c| c.node).collect();
        let all = required.iter().all(|c| has.contains(&c.node));
        all.then_some(chosen)
    }

    /// Chooses that many segments from these blocks.
    fn fill<'c>(
        &self,
        blocks: impl Iterator<Item = &'c (u32, Vec<Candidate>)>,
        segment: SegmentAsk,
        wanted: usize,
    ) -> Option<Vec<Candidate>> {
        let most = |list: &[Candidate]| match segment.rule {
            Segments::Apart => (list.len() / segment.nodes).min(1),
            Segments::Anywhere | Segments::Together => list.len() / segment.nodes,
        };
        let named = |list: &[Candidate]| {
            let named = list.iter().filter(|c| self.demand.requires(c.node));
            named.count()
        };
        let mut open: Vec<&[Candidate]> = blocks.map(|(_, list)| list.as_slice()).collect();
        open.retain(|list| most(list) > 0);
        open.sort_by_key(|list| Reverse((named(list), most(list))));
        let (mut left, mut chosen) = (wanted, Vec::new());
        while left > 0 {
            // Blocks with requested nodes first; then the smallest block that fits; else the
            // largest.
            let others = open.iter().filter(|list| named(list) > 0).count();
            let enough = open
                .iter()
                .enumerate()
                .filter(|(_, list)| most(list) >= left);
            let tightest = enough.min_by_key(|(place, list)| (list.len(), *place));
            let place = match tightest {
                Some((place, _)) if others == 0 => place,
                _ => 0,
            };
            if open.is_empty() {
                return None;
            }
            let list = open.remove(place);
            let for_others = others.saturating_sub(1).min(left - 1);
            let taken = most(list).min(left - for_others);
            chosen.extend(list.iter().take(taken * segment.nodes).copied());
            left -= taken;
        }
        Some(chosen)
    }
}
