//! A set of CPU indices on one node.

use crate::limits::CPUSET_CPUS_MAX;
use crate::validate::{Bounds, Invalid, Validate};
use minicbor::{Decode, Decoder, Encode, Encoder, decode, encode};

/// CPUs of one node by index, as a bitmap. Those up to 63 lie in the set itself: sets are copied for each share of each
/// job, and on many nodes there is no other CPU. On the wire and on disk it is an array of words.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct CpuSet {
    low: u64,
    /// The words after the first; the last of them is never 0.
    high: Vec<u64>,
}

impl CpuSet {
    /// The set {0, .., n-1}.
    pub fn first(n: u32) -> CpuSet {
        let word = |n: u32| match n {
            64.. => u64::MAX,
            n => (1 << n) - 1,
        };
        let high = n.saturating_sub(64);
        CpuSet {
            low: word(n),
            high: (0..high.div_ceil(64))
                .map(|place| word(high - place * 64))
                .collect(),
        }
    }

    /// Adds a CPU.
    #[inline]
    pub fn insert(&mut self, cpu: u32) {
        let bit = 1 << (cpu % 64);
        match ((cpu / 64) as usize).checked_sub(1) {
            None => self.low |= bit,
            Some(place) => {
                if self.high.len() <= place {
                    self.high.resize(place + 1, 0);
                }
                self.high[place] |= bit;
            }
        }
    }

    /// Removes a CPU.
    #[inline]
    pub fn remove(&mut self, cpu: u32) {
        let bit = 1 << (cpu % 64);
        match ((cpu / 64) as usize).checked_sub(1) {
            None => self.low &= !bit,
            Some(place) => {
                if let Some(word) = self.high.get_mut(place) {
                    *word &= !bit;
                }
                self.trim();
            }
        }
    }

    /// Keeps the CPUs that are in both.
    #[inline]
    pub fn intersect_with(&mut self, other: &CpuSet) {
        self.low &= other.low;
        self.high.truncate(other.high.len());
        let words = self.high.iter_mut().zip(&other.high);
        words.for_each(|(a, b)| *a &= b);
        self.trim();
    }

    /// Whether it holds `cpu`.
    #[inline]
    pub fn contains(&self, cpu: u32) -> bool {
        self.word((cpu / 64) as usize) & (1 << (cpu % 64)) != 0
    }

    /// Number of CPUs.
    #[inline]
    pub fn len(&self) -> u32 {
        let high: u32 = self.high.iter().map(|w| w.count_ones()).sum();
        self.low.count_ones() + high
    }

    /// Whether it holds none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.low == 0 && self.high.is_empty()
    }

    /// The CPUs, in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.words().zip(0u32..).flat_map(|(word, place)| {
            let mut rest = word;
            std::iter::from_fn(move || {
                if rest == 0 {
                    return None;
                }
                let bit = rest.trailing_zeros();
                rest &= rest - 1;
                Some(place * 64 + bit)
            })
        })
    }

    /// The lowest `n` CPUs of the set; fewer if it has fewer.
    pub fn lowest(&self, n: u32) -> CpuSet {
        let mut out = CpuSet::default();
        self.iter().take(n as usize).for_each(|cpu| out.insert(cpu));
        out
    }

    /// Adds all of `other`.
    #[inline]
    pub fn union_with(&mut self, other: &CpuSet) {
        self.low |= other.low;
        if self.high.len() < other.high.len() {
            self.high.resize(other.high.len(), 0);
        }
        let words = self.high.iter_mut().zip(&other.high);
        words.for_each(|(a, b)| *a |= b);
    }

    /// Removes all of `other`.
    #[inline]
    pub fn subtract(&mut self, other: &CpuSet) {
        self.low &= !other.low;
        let words = self.high.iter_mut().zip(&other.high);
        words.for_each(|(a, b)| *a &= !b);
        self.trim();
    }

    /// Whether the two have a CPU in common.
    #[inline]
    pub fn intersects(&self, other: &CpuSet) -> bool {
        let mut words = self.high.iter().zip(&other.high);
        self.low & other.low != 0 || words.any(|(a, b)| a & b != 0)
    }

    /// Whether every CPU of `other` is in this set.
    #[inline]
    pub fn is_superset(&self, other: &CpuSet) -> bool {
        let has = |place: usize| self.high.get(place).copied().unwrap_or(0);
        let mut words = other.high.iter().enumerate();
        other.low & !self.low == 0 && words.all(|(place, word)| word & !has(place) == 0)
    }

    #[inline]
    fn word(&self, place: usize) -> u64 {
        match place.checked_sub(1) {
            None => self.low,
            Some(place) => self.high.get(place).copied().unwrap_or(0),
        }
    }

    /// All words, the first also where it is 0.
    fn words(&self) -> impl Iterator<Item = u64> + '_ {
        std::iter::once(self.low).chain(self.high.iter().copied())
    }

    #[inline]
    fn trim(&mut self) {
        while self.high.last() == Some(&0) {
            self.high.pop();
        }
    }
}

impl<C> Encode<C> for CpuSet {
    fn encode<W: encode::Write>(
        &self,
        e: &mut Encoder<W>,
        _: &mut C,
    ) -> Result<(), encode::Error<W::Error>> {
        let words = if self.is_empty() {
            0
        } else {
            1 + self.high.len()
        };
        e.array(words as u64)?;
        for word in self.words().take(words) {
            e.u64(word)?;
        }
        Ok(())
    }
}

impl<'b, C> Decode<'b, C> for CpuSet {
    fn decode(d: &mut Decoder<'b>, _: &mut C) -> Result<CpuSet, decode::Error> {
        let count = d.array()?;
        let count = count.filter(|n| *n <= u64::from(CPUSET_CPUS_MAX / 64));
        let count = count.ok_or_else(|| decode::Error::message("a set of CPUs is too large"))?;
        let mut set = CpuSet::default();
        for place in 0..count {
            let word = d.u64()?;
            match place {
                0 => set.low = word,
                _ => set.high.push(word),
            }
        }
        set.trim();
        Ok(set)
    }
}

/// Decoding has validated it.
impl Validate for CpuSet {
    fn validate_within(&self, _: &Bounds) -> Result<(), Invalid> {
        Ok(())
    }
}

impl FromIterator<u32> for CpuSet {
    fn from_iter<I: IntoIterator<Item = u32>>(cpus: I) -> CpuSet {
        let mut set = CpuSet::default();
        cpus.into_iter().for_each(|cpu| set.insert(cpu));
        set
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn set(cpus: &BTreeSet<u32>) -> CpuSet {
        cpus.iter().copied().collect()
    }

    fn cpus() -> impl Strategy<Value = BTreeSet<u32>> {
        proptest::collection::btree_set(0u32..200, 0..40)
    }

    #[test]
    fn a_huge_one_is_not_decoded() {
        let of_words = |words: usize| minicbor::to_vec(vec![1u64; words]).unwrap();
        let most = (CPUSET_CPUS_MAX / 64) as usize;
        let largest: CpuSet = minicbor::decode(&of_words(most)).unwrap();
        assert_eq!(largest.len() as usize, most);
        minicbor::decode::<CpuSet>(&of_words(most + 1)).unwrap_err();
        // With a length that it does not have, too.
        minicbor::decode::<CpuSet>(&[0x9b, 0x7f, 0, 0, 0, 0, 0, 0, 0, 1]).unwrap_err();
    }

    proptest! {
        #[test]
        fn as_sets_of_numbers_are(a in cpus(), b in cpus(), n in 0u32..200) {
            let (one, other) = (set(&a), set(&b));
            let changed = |change: &dyn Fn(&mut CpuSet)| {
                let mut out = one.clone();
                change(&mut out);
                out
            };
            prop_assert_eq!(changed(&|s| s.union_with(&other)), set(&(&a | &b)));
            prop_assert_eq!(changed(&|s| s.subtract(&other)), set(&(&a - &b)));
            prop_assert_eq!(changed(&|s| s.intersect_with(&other)), set(&(&a & &b)));
            let without = a.iter().copied().filter(|cpu| *cpu != n).collect();
            prop_assert_eq!(changed(&|s| s.remove(n)), set(&without));
            prop_assert_eq!(one.intersects(&other), !a.is_disjoint(&b));
            prop_assert_eq!(one.is_superset(&other), a.is_superset(&b));
            prop_assert_eq!(one.contains(n), a.contains(&n));
            prop_assert_eq!(one.len() as usize, a.len());
            prop_assert_eq!(one.is_empty(), a.is_empty());
            prop_assert_eq!(one.iter().collect::<BTreeSet<u32>>(), a);
            prop_assert_eq!(CpuSet::first(n), (0..n).collect());
        }

        #[test]
        fn written_as_its_words(a in cpus()) {
            let mut words = vec![0u64; 4];
            for cpu in &a {
                words[(cpu / 64) as usize] |= 1 << (cpu % 64);
            }
            while words.last() == Some(&0) {
                words.pop();
            }
            let bytes = minicbor::to_vec(&words).unwrap();
            prop_assert_eq!(&minicbor::to_vec(set(&a)).unwrap(), &bytes);
            prop_assert_eq!(minicbor::decode::<CpuSet>(&bytes).unwrap(), set(&a));
        }
    }
}
