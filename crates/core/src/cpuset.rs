//! A set of CPU indices on one node.

use minicbor::{Decode, Encode};

/// CPUs of one node by index, as a bitmap.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Encode, Decode)]
#[cbor(transparent)]
pub struct CpuSet(#[n(0)] Vec<u64>);

impl CpuSet {
    /// The set {0, .., n-1}.
    pub fn first(n: u32) -> CpuSet {
        let mut words = vec![u64::MAX; (n / 64) as usize];
        if !n.is_multiple_of(64) {
            words.push((1 << (n % 64)) - 1);
        }
        CpuSet(words)
    }

    /// Adds a CPU.
    pub fn insert(&mut self, cpu: u32) {
        let word = (cpu / 64) as usize;
        if self.0.len() <= word {
            self.0.resize(word + 1, 0);
        }
        self.0[word] |= 1 << (cpu % 64);
    }

    /// Removes a CPU.
    pub fn remove(&mut self, cpu: u32) {
        if let Some(word) = self.0.get_mut((cpu / 64) as usize) {
            *word &= !(1 << (cpu % 64));
        }
        self.trim();
    }

    /// Keeps what is in both.
    pub fn intersect_with(&mut self, other: &CpuSet) {
        self.0.truncate(other.0.len());
        self.0.iter_mut().zip(&other.0).for_each(|(a, b)| *a &= b);
        self.trim();
    }

    /// Whether it holds `cpu`.
    pub fn contains(&self, cpu: u32) -> bool {
        self.0
            .get((cpu / 64) as usize)
            .is_some_and(|w| w & (1 << (cpu % 64)) != 0)
    }

    /// How many CPUs it holds.
    pub fn len(&self) -> u32 {
        self.0.iter().map(|w| w.count_ones()).sum()
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|w| *w == 0)
    }

    /// The CPUs, in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.0.iter().enumerate().flat_map(|(i, &w)| {
            let mut rest = w;
            std::iter::from_fn(move || {
                if rest == 0 {
                    return None;
                }
                let bit = rest.trailing_zeros();
                rest &= rest - 1;
                Some(u32::try_from(i).unwrap_or(u32::MAX) * 64 + bit)
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
    pub fn union_with(&mut self, other: &CpuSet) {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), 0);
        }
        self.0.iter_mut().zip(&other.0).for_each(|(a, b)| *a |= b);
    }

    /// Removes all of `other`.
    pub fn subtract(&mut self, other: &CpuSet) {
        self.0.iter_mut().zip(&other.0).for_each(|(a, b)| *a &= !b);
        self.trim();
    }

    /// Whether the two have a CPU in common.
    pub fn intersects(&self, other: &CpuSet) -> bool {
        self.0.iter().zip(&other.0).any(|(a, b)| a & b != 0)
    }

    /// Whether every CPU of `other` is in this set.
    pub fn is_superset(&self, other: &CpuSet) -> bool {
        let has = |place: usize| self.0.get(place).copied().unwrap_or(0);
        let mut words = other.0.iter().enumerate();
        words.all(|(place, word)| word & !has(place) == 0)
    }

    fn trim(&mut self) {
        while self.0.last() == Some(&0) {
            self.0.pop();
        }
    }
}

impl FromIterator<u32> for CpuSet {
    fn from_iter<I: IntoIterator<Item = u32>>(cpus: I) -> CpuSet {
        let mut set = CpuSet::default();
        cpus.into_iter().for_each(|cpu| set.insert(cpu));
        set
    }
}
