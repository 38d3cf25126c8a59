//! Nodes by how much they have free, so that a job which fits on one node finds the one that it leaves with least. Where
//! there are GPUs they count before CPUs: a node without any before one whose GPUs are all in use, before one with some
//! free, so that whole sets of GPUs stay together and are not cut off from CPUs.

use std::collections::BTreeSet;

/// Free resources of a node: GPUs, and one more where there are any at all; CPUs; MiB.
pub(super) type Free = (u32, u32, u64);

/// The order of nodes: lower weight, fewer GPUs, fewer CPUs, less memory, the order of the partition.
type Key = (u32, Free, u32);

/// The open nodes of a partition by what is free there.
#[derive(Debug, Default)]
pub(super) struct Fits {
    /// The key of each place in the index; places without free CPUs have none.
    listed: Vec<Free>,
    open: BTreeSet<Key>,
}

impl Fits {
    pub(super) fn new(len: usize) -> Fits {
        Fits {
            listed: vec![Free::default(); len],
            open: BTreeSet::new(),
        }
    }

    /// Lists a place, of this weight at all times, under what is free there.
    pub(super) fn set(&mut self, pos: usize, weight: u32, free: Free) {
        let old = std::mem::replace(&mut self.listed[pos], free);
        if old == free {
            return;
        }
        let place = u32::try_from(pos).unwrap_or(u32::MAX);
        if old.1 > 0 {
            self.open.remove(&(weight, old, place));
        }
        if free.1 > 0 {
            self.open.insert((weight, free, place));
        }
    }

    /// Places that have so much free, the tightest of the lowest weight first.
    pub(super) fn tightest(
        &self,
        (gpus, cpus, mib): (u32, u32, u64),
    ) -> impl Iterator<Item = usize> + '_ {
        let (gpus, cpus) = (gpus + u32::from(gpus > 0), cpus.max(1));
        let mut from: Key = (0, (gpus, cpus, mib), 0);
        std::iter::from_fn(move || {
            loop {
                let (weight, free, place) = *self.open.range(from..).next()?;
                if free.0 >= gpus && free.1 >= cpus && free.2 >= mib {
                    from = (weight, free, place.checked_add(1)?);
                    return Some(place as usize);
                }
                // On to the first that may have enough.
                let next = match () {
                    () if free.0 < gpus => (gpus, cpus, mib),
                    () if free.1 < cpus => (free.0, cpus, mib),
                    () => (free.0, free.1, mib),
                };
                from = (weight, next, 0);
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn as_a_sort_would_have_it(
            nodes in proptest::collection::vec((0u32..3, (0u32..4, 0u32..6, 0u64..6)), 0..40),
            changes in proptest::collection::vec((0usize..40, (0u32..4, 0u32..6, 0u64..6)), 0..40),
            (gpus, cpus, mib) in (0u32..3, 1u32..6, 0u64..6),
        ) {
            let mut fits = Fits::new(nodes.len());
            let mut free: Vec<Free> = nodes.iter().map(|n| n.1).collect();
            let later = changes.into_iter().filter(|(pos, ..)| *pos < nodes.len());
            let first: Vec<(usize, Free)> = free.iter().copied().enumerate().collect();
            for (pos, value) in first.into_iter().chain(later) {
                fits.set(pos, nodes[pos].0, value);
                free[pos] = value;
            }
            let enough = |f: Free| (gpus == 0 || f.0 > gpus) && f.1 >= cpus && f.2 >= mib;
            let mut expected: Vec<usize> = (0..nodes.len()).filter(|&p| enough(free[p])).collect();
            expected.sort_by_key(|&p| (nodes[p].0, free[p], p));
            let found: Vec<usize> = fits.tightest((gpus, cpus, mib)).collect();
            prop_assert_eq!(found, expected);
        }
    }
}
