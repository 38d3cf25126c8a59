//! A set of array indices as disjoint inclusive ranges, so that an array of a million tasks costs a few bytes.

use minicbor::{Decode, Encode};
use std::collections::BTreeMap;

/// Array indices. Removing the lowest, which is what starting tasks in order does, is O(log ranges).
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(transparent)]
pub struct IndexSet(#[n(0)] BTreeMap<u32, u32>);

impl IndexSet {
    /// Adds `first..=last`; nothing if `last` is less.
    pub fn insert_range(&mut self, first: u32, last: u32) {
        if last < first {
            return;
        }
        let (mut first, mut last) = (first, last);
        // Ranges that touch or overlap become one.
        while let Some((&f, &l)) = self.0.range(..=last.saturating_add(1)).next_back() {
            if l.saturating_add(1) < first {
                break;
            }
            self.0.remove(&f);
            first = first.min(f);
            last = last.max(l);
        }
        self.0.insert(first, last);
    }

    /// Adds one index.
    pub fn insert(&mut self, index: u32) {
        self.insert_range(index, index);
    }

    /// Removes one index; whether it was there.
    pub fn remove(&mut self, index: u32) -> bool {
        let Some((&first, &last)) = self.0.range(..=index).next_back() else {
            return false;
        };
        if last < index {
            return false;
        }
        self.0.remove(&first);
        if first < index {
            self.0.insert(first, index - 1);
        }
        if index < last {
            self.0.insert(index + 1, last);
        }
        true
    }

    /// Whether `index` is in it.
    pub fn contains(&self, index: u32) -> bool {
        self.0
            .range(..=index)
            .next_back()
            .is_some_and(|(_, &last)| index <= last)
    }

    /// How many indices it holds.
    pub fn len(&self) -> u64 {
        self.0.iter().map(|(&f, &l)| u64::from(l - f) + 1).sum()
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The lowest index.
    pub fn first(&self) -> Option<u32> {
        self.0.first_key_value().map(|(&f, _)| f)
    }

    /// The highest index.
    pub fn last(&self) -> Option<u32> {
        self.0.last_key_value().map(|(_, &l)| l)
    }

    /// The ranges, ascending.
    pub fn ranges(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        self.0.iter().map(|(&f, &l)| (f, l))
    }

    /// The indices, ascending.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.ranges().flat_map(|(f, l)| f..=l)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn behaves_like_a_set(ops in proptest::collection::vec((0u32..60, 0u32..8, any::<bool>()), 0..60)) {
            let (mut set, mut model) = (IndexSet::default(), BTreeSet::new());
            for (at, len, add) in ops {
                if add {
                    set.insert_range(at, at + len);
                    model.extend(at..=at + len);
                } else {
                    prop_assert_eq!(set.remove(at), model.remove(&at));
                }
                prop_assert_eq!(set.iter().collect::<Vec<_>>(), model.iter().copied().collect::<Vec<_>>());
                prop_assert_eq!(set.len(), model.len() as u64);
                let ranges: Vec<_> = set.ranges().collect();
                prop_assert!(ranges.windows(2).all(|w| w[0].1 + 1 < w[1].0), "ranges touch: {:?}", ranges);
            }
        }
    }
}
