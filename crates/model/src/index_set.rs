//! A set of array indices as disjoint inclusive ranges, so that an array of a million tasks costs a few bytes.

use crate::validate::{Bounds, Invalid, Validate};
use minicbor::{Decode, Decoder, Encode, decode};
use std::collections::BTreeMap;

/// Array indices. Ranges are kept in order, disjoint and not touching; nothing else can be decoded. Removing the lowest, which is what starting tasks in order does, is O(log ranges).
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Encode)]
#[cbor(transparent)]
pub struct IndexSet(#[n(0)] BTreeMap<u32, u32>);

impl FromIterator<u32> for IndexSet {
    fn from_iter<I: IntoIterator<Item = u32>>(indices: I) -> IndexSet {
        let mut set = IndexSet::default();
        for index in indices {
            set.insert(index);
        }
        set
    }
}

impl IndexSet {
    /// The set of one index.
    pub fn single(index: u32) -> IndexSet {
        IndexSet(BTreeMap::from([(index, index)]))
    }

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

    /// Number of indices.
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

    /// The lowest index that is at least `index`.
    pub fn first_from(&self, index: u32) -> Option<u32> {
        if self.contains(index) {
            return Some(index);
        }
        self.0.range(index..).next().map(|(&first, _)| first)
    }

    /// The indices that are in both.
    pub fn intersection(&self, other: &IndexSet) -> IndexSet {
        let mut out = IndexSet::default();
        let (few, many) = if self.0.len() <= other.0.len() {
            (self, other)
        } else {
            (other, self)
        };
        for (first, last) in few.ranges() {
            let mut at = first;
            while let Some(from) = many.first_from(at).filter(|f| *f <= last) {
                let end = many
                    .0
                    .range(..=from)
                    .next_back()
                    .map_or(from, |(_, &l)| l.min(last));
                out.insert_range(from, end);
                match end.checked_add(1) {
                    Some(next) => at = next,
                    None => break,
                }
            }
        }
        out
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

/// Other code relies on what ranges are to each other: two that overlap would hold an index twice.
impl<'b, C> Decode<'b, C> for IndexSet {
    fn decode(d: &mut Decoder<'b>, _: &mut C) -> Result<IndexSet, decode::Error> {
        let malformed = |text: &'static str| decode::Error::message(text);
        let count = d.map()?;
        let count =
            count.ok_or_else(|| malformed("a set of indices says how many ranges it has"))?;
        let mut ranges = BTreeMap::new();
        // The least that the next range may begin with.
        let mut next = Some(0);
        for _ in 0..count {
            let (first, last) = (d.u32()?, d.u32()?);
            if next.is_none_or(|next| first < next) {
                return Err(malformed("ranges of indices are in order and do not touch"));
            }
            if last < first {
                return Err(malformed("a range of indices ends before it begins"));
            }
            next = last.checked_add(2);
            ranges.insert(first, last);
        }
        Ok(IndexSet(ranges))
    }
}

/// Decoding has validated it.
impl Validate for IndexSet {
    fn validate_within(&self, _: &Bounds) -> Result<(), Invalid> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn decoded(ranges: &[(u32, u32)]) -> Option<IndexSet> {
        let mut e = minicbor::Encoder::new(Vec::new());
        e.map(ranges.len() as u64).unwrap();
        for (first, last) in ranges {
            e.u32(*first).unwrap().u32(*last).unwrap();
        }
        minicbor::decode(&e.into_writer()).ok()
    }

    #[test]
    fn only_ranges_in_order_are_decoded() {
        let (max, none) = (u32::MAX, None);
        assert_eq!(decoded(&[]).map(|s| s.len()), Some(0));
        assert_eq!(decoded(&[(0, 3), (5, 9)]).map(|s| s.len()), Some(9));
        assert_eq!(decoded(&[(0, max)]).map(|s| s.len()), Some(1 << 32));
        // Overlapping, touching, backwards, out of order, twice, after the last index that there is.
        assert_eq!(decoded(&[(0, 3), (2, 9)]), none);
        assert_eq!(decoded(&[(0, 3), (4, 9)]), none);
        assert_eq!(decoded(&[(5, 1)]), none);
        assert_eq!(decoded(&[(7, 9), (1, 2)]), none);
        assert_eq!(decoded(&[(1, 2), (1, 2)]), none);
        assert_eq!(decoded(&[(0, max), (0, 1)]), none);
        assert_eq!(decoded(&[(5, max - 1), (max, max)]), none);
        assert_eq!(decoded(&[(50_000, 7), (1, 2)]), none);
    }

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded(ops in proptest::collection::vec((any::<u32>(), 0u32..8), 0..20)) {
            let mut set = IndexSet::default();
            ops.iter().for_each(|(at, len)| set.insert_range(*at, at.saturating_add(*len)));
            let bytes = minicbor::to_vec(&set).unwrap();
            prop_assert_eq!(minicbor::decode::<IndexSet>(&bytes).unwrap(), set);
        }

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
                prop_assert_eq!(set.first_from(at), model.range(at..).next().copied());
                let mut window = IndexSet::default();
                window.insert_range(at, at + 7);
                window.insert_range(at + 12, at + 20);
                let both: Vec<_> = set.iter().filter(|i| window.contains(*i)).collect();
                prop_assert_eq!(set.intersection(&window).iter().collect::<Vec<_>>(), both.clone());
                prop_assert_eq!(window.intersection(&set).iter().collect::<Vec<_>>(), both);
                let ranges: Vec<_> = set.ranges().collect();
                prop_assert!(ranges.windows(2).all(|w| w[0].1 + 1 < w[1].0), "ranges touch: {:?}", ranges);
            }
        }
    }
}
