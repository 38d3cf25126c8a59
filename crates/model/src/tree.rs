//! The tree over the nodes of a step, by which its launch, streams, signals and ends go. Positions in the step are cut
//! into as many contiguous branches as the tree is wide; the first of each branch is its head, and the rest of the branch
//! hangs below the head in the same way. Everyone works it out alone, from two numbers. A step of no more nodes than the
//! tree is wide has no tree: every node is a head with nothing below.

use std::ops::Range;

/// `TreeWidth` where nothing is said.
pub const WIDTH_DEFAULT: usize = 50;

/// The branches of some positions: as even as can be, longer ones first.
pub fn branches(range: Range<usize>, width: usize) -> impl Iterator<Item = Range<usize>> {
    let parts = range.len().min(width.max(1));
    let (each, longer) = (range.len() / parts.max(1), range.len() % parts.max(1));
    let mut from = range.start;
    (0..parts).map(move |part| {
        let branch = from..from + each + usize::from(part < longer);
        from = branch.end;
        branch
    })
}

/// The branches below the head of a branch.
pub fn below(branch: &Range<usize>, width: usize) -> impl Iterator<Item = Range<usize>> {
    branches((branch.start + 1).min(branch.end)..branch.end, width)
}

/// Where a position stands among `nodes`: the branch that it heads, and the position above it, if there is one.
pub fn place(position: usize, nodes: usize, width: usize) -> (Range<usize>, Option<usize>) {
    let (mut range, mut above) = (0..nodes, None);
    loop {
        let Some(branch) = branches(range, width).find(|b| b.contains(&position)) else {
            return (position..position, above);
        };
        if branch.start == position {
            return (branch, above);
        }
        above = Some(branch.start);
        range = branch.start + 1..branch.end;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Greatest depth from the root to one of these nodes, and the most children of a node.
    fn shape(nodes: usize, width: usize) -> (usize, usize) {
        let mut level: Vec<Range<usize>> = branches(0..nodes, width).collect();
        let (mut depth, mut widest, mut seen) = (0, level.len(), vec![0; nodes]);
        while !level.is_empty() {
            depth += 1;
            level.iter().for_each(|b| seen[b.start] += 1);
            widest = level
                .iter()
                .map(|b| below(b, width).count())
                .max()
                .unwrap()
                .max(widest);
            level = level.iter().flat_map(|b| below(b, width)).collect();
        }
        assert!(seen.iter().all(|times| *times == 1), "{nodes} {width}");
        (depth, widest)
    }

    #[test]
    fn every_node_is_reached_once_in_a_logarithm_of_steps() {
        for nodes in (0..70).chain([127, 128, 999, 1000, 10_000]) {
            for width in [2, 3, 16, 50] {
                let (depth, widest) = shape(nodes, width);
                assert!(widest <= width);
                // A full tree of that depth: width + width^2 + ...
                let mut reached = 0;
                let levels = (1..).take_while(|level| {
                    let more = reached < nodes;
                    reached += width.pow(*level);
                    more
                });
                assert_eq!(depth, levels.count(), "{nodes} nodes, {width} wide");
            }
        }
        assert_eq!(shape(1000, WIDTH_DEFAULT), (2, 50));
        assert_eq!(shape(1000, 2).0, 9);
    }

    #[test]
    fn a_place_is_found_from_anywhere() {
        for (nodes, width) in [(1, 2), (7, 2), (50, 50), (51, 50), (1000, 3)] {
            for branch in branches(0..nodes, width) {
                assert_eq!(place(branch.start, nodes, width), (branch.clone(), None));
                for next in below(&branch, width) {
                    assert_eq!(place(next.start, nodes, width), (next, Some(branch.start)));
                }
            }
        }
        assert_eq!(place(3, 7, 2), (3..4, Some(0)));
    }
}
