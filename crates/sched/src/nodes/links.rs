//! Chooses among free devices by their links, if gres.conf states them (`Links`): the set with the
//! most links inside it, and among equal sets the one that leaves the most links among the
//! remaining devices.

use crate::nodes::class::NodeClass;

/// A device of a node's class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct DeviceId {
    /// Index in [`NodeClass::gres`].
    pub(crate) entry: usize,
    /// Instance of the entry.
    pub(crate) id: u32,
}

/// Up to this number of devices all sets are tried; above it, sets grow from each device by the
/// best neighbour.
const COMBINED_MAX: usize = 12;

/// The links of free devices, each looked up once, because there may be hundreds of sets.
struct Table {
    /// Links between two devices, both directions added, row by row.
    between: Vec<i64>,
    /// For each device, the sum of its links to the devices that are taken in any case.
    to_fixed: Vec<i64>,
    /// For each device, the sum of its links to all free devices.
    to_all: Vec<i64>,
}

impl Table {
    fn new(class: &NodeClass, fixed: &[DeviceId], free: &[DeviceId]) -> Table {
        let links = |a: DeviceId, b: DeviceId| of(class, a, b) + of(class, b, a);
        let row = |a: &DeviceId| free.iter().map(|b| links(*a, *b)).collect::<Vec<i64>>();
        let between: Vec<i64> = free.iter().flat_map(row).collect();
        let fixed_of = |a: &DeviceId| fixed.iter().map(|f| links(*a, *f)).sum();
        Table {
            to_fixed: free.iter().map(fixed_of).collect(),
            to_all: between
                .chunks(free.len())
                .map(|row| row.iter().sum())
                .collect(),
            between,
        }
    }

    fn score(&self, set: &[usize]) -> Score {
        let (mut inside, mut to_fixed, mut to_all) = (0, 0, 0);
        for (i, &a) in set.iter().enumerate() {
            let row = &self.between[a * self.to_all.len()..];
            inside += set[i + 1..].iter().map(|&b| row[b]).sum::<i64>();
            to_fixed += self.to_fixed[a];
            to_all += self.to_all[a];
        }
        // `to_all` counts links within the set from both ends.
        Score {
            within: inside + to_fixed,
            kept: 2 * inside - to_all,
        }
    }
}

/// Quality of a set; the higher, the better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Score {
    /// Sum of the links within the set.
    within: i64,
    /// Sum of the links from the set to other free devices, as a negative number, because taking
    /// the set loses them.
    kept: i64,
}

/// Which of these devices to take; `None` if no links are known or all devices are taken. The
/// devices in `fixed` are taken in any case.
pub(super) fn best_linked(
    class: &NodeClass,
    fixed: &[DeviceId],
    free: &[DeviceId],
    count: usize,
) -> Option<Vec<usize>> {
    let known = |d: &DeviceId| class.links.get(d.entry).is_some_and(|l| !l.is_empty());
    if !free.iter().any(known) || count == 0 || count >= free.len() {
        return None;
    }
    let table = Table::new(class, fixed, free);
    let score = |set: &[usize]| table.score(set);
    let sets: Vec<Vec<usize>> = match free.len() {
        0..=COMBINED_MAX => (0u32..1 << free.len())
            .filter(|mask| mask.count_ones() as usize == count)
            .map(|mask| (0..free.len()).filter(|i| mask & 1 << i != 0).collect())
            .collect(),
        _ => (0..free.len())
            .map(|first| grown(first, free.len(), count, &score))
            .collect(),
    };
    // Among equal sets, the one with the first devices.
    let first = |set: &Vec<usize>| std::cmp::Reverse(set.clone());
    sets.into_iter().max_by_key(|set| (score(set), first(set)))
}

fn grown(first: usize, all: usize, count: usize, score: &impl Fn(&[usize]) -> Score) -> Vec<usize> {
    let mut set = vec![first];
    while set.len() < count {
        let with = |next: usize| {
            let mut more = set.clone();
            more.push(next);
            score(&more)
        };
        let rest = (0..all).filter(|i| !set.contains(i));
        let Some(next) = rest.max_by_key(|i| (with(*i), std::cmp::Reverse(*i))) else {
            break;
        };
        set.push(next);
    }
    set.sort_unstable();
    set
}

/// Links from one device to another, according to the configuration line of the first. Devices of a
/// name are numbered consecutively.
fn of(class: &NodeClass, device: DeviceId, other: DeviceId) -> i64 {
    let name = &class.gres[device.entry].name;
    if class.gres[other.entry].name != *name || device == other {
        return 0;
    }
    let before = class.gres[..other.entry]
        .iter()
        .filter(|gres| gres.name == *name);
    let first: u64 = before.map(|gres| gres.count).sum();
    let place = usize::try_from(first).unwrap_or(usize::MAX);
    let lines = class
        .links
        .get(device.entry)
        .and_then(|lines| lines.get(device.id as usize));
    let links = lines.and_then(|links| links.get(place.saturating_add(other.id as usize)));
    links.map_or(0, |links| i64::from((*links).max(0)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nodes::class::GresCount;
    use proptest::prelude::*;

    fn gpus(count: u64) -> GresCount {
        GresCount {
            name: "gpu".into(),
            kind: None,
            count,
        }
    }

    fn gpu(id: u32) -> DeviceId {
        DeviceId { entry: 0, id }
    }

    /// GPUs linked in pairs: 0 and 2, 1 and 3.
    fn pairs() -> NodeClass {
        let line = |own: usize, mate: usize| {
            (0..4)
                .map(|i| {
                    if i == own {
                        -1
                    } else {
                        i32::from(i == mate) * 4
                    }
                })
                .collect()
        };
        NodeClass {
            gres: vec![gpus(4)],
            links: vec![vec![line(0, 2), line(1, 3), line(2, 0), line(3, 1)]],
            ..NodeClass::default()
        }
    }

    fn best(free: &[u32], count: usize) -> Option<Vec<u32>> {
        let free: Vec<DeviceId> = free.iter().copied().map(gpu).collect();
        let chosen = best_linked(&pairs(), &[], &free, count)?;
        Some(chosen.into_iter().map(|i| free[i].id).collect())
    }

    #[test]
    fn linked_ones_stay_together() {
        assert_eq!(best(&[0, 1, 2, 3], 2), Some(vec![0, 2]));
        assert_eq!(best(&[1, 2, 3], 2), Some(vec![1, 3]));
        // A pair is not split while a single device is available.
        assert_eq!(best(&[0, 1, 3], 1), Some(vec![0]));
        assert_eq!(best(&[1, 2, 3], 1), Some(vec![2]));
        assert_eq!(best(&[0, 1, 2, 3], 4), None);
        let with_fixed = best_linked(&pairs(), &[gpu(3)], &[gpu(0), gpu(1), gpu(2)], 1);
        assert_eq!(with_fixed, Some(vec![1]));
    }

    proptest! {
        /// The chosen set is the best by its internal links and by its links to other devices.
        #[test]
        fn no_other_set_is_better(
            links in proptest::collection::vec(proptest::collection::vec(0i32..4, 7), 7),
            count in 1usize..5,
        ) {
            let class = NodeClass {
                gres: vec![gpus(7)],
                links: vec![links],
                ..NodeClass::default()
            };
            // 0 is taken in any case, 6 is in use.
            let free: Vec<DeviceId> = (1..6).map(gpu).collect();
            let score = |set: &[u32]| {
                let both = |a: u32, b: u32| of(&class, gpu(a), gpu(b)) + of(&class, gpu(b), gpu(a));
                let within = |b: &&u32| set.contains(b);
                let inside = set.iter().flat_map(|a| set.iter().map(move |b| both(*a, *b)));
                let outside = set.iter().map(|a| {
                    let others = free.iter().map(|b| &b.id).filter(|b| !within(b));
                    others.map(|b| both(*a, *b)).sum::<i64>()
                });
                let fixed: i64 = set.iter().map(|a| both(*a, 0)).sum();
                (inside.sum::<i64>() / 2 + fixed, -outside.sum::<i64>())
            };
            let chosen = best_linked(&class, &[gpu(0)], &free, count);
            prop_assert_eq!(chosen.is_none(), count == 5);
            let ids: Vec<u32> = chosen.into_iter().flatten().map(|i| free[i].id).collect();
            for mask in 0u32..32 {
                let other: Vec<u32> = (1..6).filter(|id| mask & 1 << (id - 1) != 0).collect();
                if other.len() == ids.len() && !ids.is_empty() {
                    prop_assert!((score(&other), &ids) <= (score(&ids), &other));
                }
            }
        }
    }

    #[test]
    fn of_many_sets_grow() {
        // A ring of 16.
        let line = |own: i32| {
            let off = |i: i32| (i - own).rem_euclid(16);
            (0..16)
                .map(|i| i32::from([1, 15].contains(&off(i))))
                .collect::<Vec<i32>>()
        };
        let class = NodeClass {
            gres: vec![gpus(16)],
            links: vec![(0..16).map(line).collect()],
            ..NodeClass::default()
        };
        let free: Vec<DeviceId> = (0..16).filter(|i| *i != 2).map(gpu).collect();
        let chosen = best_linked(&class, &[], &free, 3).unwrap();
        let ids: Vec<u32> = chosen.into_iter().map(|i| free[i].id).collect();
        // Next to the gap, so that the others keep a ring.
        assert_eq!(ids, [0, 1, 15]);
    }
}
