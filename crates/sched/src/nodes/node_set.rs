//! A set of nodes that is filled and cleared in each pass: a bit for each node and a list of the
//! members, so that both operations cost only as much as the set has members.

/// Nodes by number.
#[derive(Debug, Default)]
pub(crate) struct NodeSet {
    bits: Vec<u64>,
    nodes: Vec<u32>,
}

impl NodeSet {
    /// Adds a node; returns whether it is new.
    pub(crate) fn insert(&mut self, node: u32) -> bool {
        let (word, bit) = (node as usize / 64, 1 << (node % 64));
        if self.bits.len() <= word {
            self.bits.resize(word + 1, 0);
        }
        let is_new = self.bits[word] & bit == 0;
        if is_new {
            self.bits[word] |= bit;
            self.nodes.push(node);
        }
        is_new
    }

    /// Whether a node is in the set.
    pub(crate) fn contains(&self, node: u32) -> bool {
        let word = self.bits.get(node as usize / 64);
        word.is_some_and(|word| word & (1 << (node % 64)) != 0)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// The members, in the order in which they were added.
    pub(crate) fn iter(&self) -> impl Iterator<Item = u32> + Clone + '_ {
        self.nodes.iter().copied()
    }

    /// Clears the set and keeps its memory.
    pub(crate) fn clear(&mut self) {
        for node in self.nodes.drain(..) {
            self.bits[node as usize / 64] = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn as_a_tree_would_have_it(
            rounds in proptest::collection::vec(proptest::collection::vec(0u32..300, 0..40), 0..5),
        ) {
            let mut set = NodeSet::default();
            for nodes in rounds {
                let mut tree = BTreeSet::new();
                for node in nodes {
                    prop_assert_eq!(set.insert(node), tree.insert(node));
                }
                prop_assert_eq!(set.iter().collect::<BTreeSet<u32>>(), tree.clone());
                prop_assert_eq!(set.iter().count(), tree.len());
                prop_assert!((0..400).all(|node| set.contains(node) == tree.contains(&node)));
                set.clear();
                prop_assert!(set.is_empty());
            }
        }
    }
}
