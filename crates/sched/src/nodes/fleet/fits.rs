//! Nodes ordered by free resources, so that a job which fits on one node finds the node that it
//! fills best. GPUs count before CPUs: nodes without GPUs come before nodes whose GPUs are all in
//! use, and these before nodes with free GPUs. Whole sets of GPUs thus stay together and keep CPUs.

use std::collections::BTreeSet;

/// Free resources of a node, in the order of comparison.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Free {
    /// Number of free GPUs plus one, if the node has GPUs.
    pub(super) gpus: u32,
    pub(super) cpus: u32,
    pub(super) mib: u64,
}

/// Least free resources that a node must have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LeastFree {
    pub(crate) gpus: u32,
    pub(crate) cpus: u32,
    /// Memory, MiB.
    pub(crate) mib: u64,
}

/// The order of nodes: lower weight, free resources, the order of the partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct FitKey {
    weight: u32,
    free: Free,
    place: u32,
}

/// The open nodes of a partition, ordered by free resources.
#[derive(Debug, Default)]
pub(super) struct Fits {
    /// The key of each place in the index; places without free CPUs have no key.
    listed: Vec<Free>,
    open: BTreeSet<FitKey>,
}

impl Fits {
    pub(super) fn new(len: usize) -> Fits {
        Fits {
            listed: vec![Free::default(); len],
            open: BTreeSet::new(),
        }
    }

    /// Lists a place, whose weight never changes, under its free resources.
    pub(super) fn set(&mut self, pos: usize, weight: u32, free: Free) {
        let old = std::mem::replace(&mut self.listed[pos], free);
        if old == free {
            return;
        }
        let place = u32::try_from(pos).unwrap_or(u32::MAX);
        let key = |free| FitKey {
            weight,
            free,
            place,
        };
        if old.cpus > 0 {
            self.open.remove(&key(old));
        }
        if free.cpus > 0 {
            self.open.insert(key(free));
        }
    }

    /// Places that have so much free, the tightest of the lowest weight first.
    pub(super) fn tightest(&self, wanted: LeastFree) -> impl Iterator<Item = usize> + '_ {
        let LeastFree { gpus, cpus, mib } = wanted;
        let least = Free {
            gpus: gpus + u32::from(gpus > 0),
            cpus: cpus.max(1),
            mib,
        };
        let mut from = FitKey {
            weight: 0,
            free: least,
            place: 0,
        };
        std::iter::from_fn(move || {
            loop {
                let found = *self.open.range(from..).next()?;
                let free = found.free;
                if free.gpus >= least.gpus && free.cpus >= least.cpus && free.mib >= mib {
                    let place = found.place.checked_add(1)?;
                    from = FitKey { place, ..found };
                    return Some(found.place as usize);
                }
                // Skips to the first key that may have enough.
                let next = match () {
                    () if free.gpus < least.gpus => least,
                    () if free.cpus < least.cpus => Free {
                        gpus: free.gpus,
                        ..least
                    },
                    () => Free { mib, ..free },
                };
                from = FitKey {
                    weight: found.weight,
                    free: next,
                    place: 0,
                };
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn free() -> impl Strategy<Value = Free> {
        (0u32..4, 0u32..6, 0u64..6).prop_map(|(gpus, cpus, mib)| Free { gpus, cpus, mib })
    }

    proptest! {
        #[test]
        fn as_a_sort_would_have_it(
            nodes in proptest::collection::vec((0u32..3, free()), 0..40),
            changes in proptest::collection::vec((0usize..40, free()), 0..40),
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
            let enough = |f: Free| (gpus == 0 || f.gpus > gpus) && f.cpus >= cpus && f.mib >= mib;
            let mut expected: Vec<usize> = (0..nodes.len()).filter(|&p| enough(free[p])).collect();
            expected.sort_by_key(|&p| (nodes[p].0, free[p], p));
            let found: Vec<usize> = fits.tightest(LeastFree { gpus, cpus, mib }).collect();
            prop_assert_eq!(found, expected);
        }
    }
}
