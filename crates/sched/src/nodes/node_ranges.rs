//! An immutable set of nodes, stored as ranges of their numbers: its size follows the text of the
//! node list, not the number of nodes.

/// A set of nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct NodeRanges(Box<[NodeRange]>);

/// Ranges of node numbers, from first to last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct NodeRange {
    first: u32,
    last: u32,
}

impl NodeRanges {
    pub(crate) fn new(mut nodes: Vec<u32>) -> NodeRanges {
        nodes.sort_unstable();
        let mut ranges: Vec<NodeRange> = Vec::new();
        for node in nodes {
            match ranges.last_mut() {
                Some(range) if node <= range.last.saturating_add(1) => range.last = node,
                _ => ranges.push(NodeRange {
                    first: node,
                    last: node,
                }),
            }
        }
        NodeRanges(ranges.into_boxed_slice())
    }

    pub(crate) fn contains(&self, node: u32) -> bool {
        let after = self.0.partition_point(|range| range.first <= node);
        let range = after.checked_sub(1).map(|place| self.0[place]);
        range.is_some_and(|range| node <= range.last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_one_range() {
        let set = NodeRanges::new(vec![7, 3, 4, 4, 5, 9, 8, 0]);
        let ranges: Vec<_> = set.0.iter().map(|r| [r.first, r.last]).collect();
        assert_eq!(ranges, [[0, 0], [3, 5], [7, 9]]);
        let has: Vec<u32> = (0..12).filter(|node| set.contains(*node)).collect();
        assert_eq!(has, [0, 3, 4, 5, 7, 8, 9]);
        assert_eq!(NodeRanges::new((0..1000).collect()).0.len(), 1);
        assert!(!NodeRanges::default().contains(0));
    }
}
