//! Which of the devices that are free a job gets, where gres.conf says how they are linked (`Links`): those with the
//! most links among them, and of what is equal those whose loss leaves the most links among the rest.

use super::NodeClass;

/// Of so many devices all sets are tried; of more, sets grow from each device by the best neighbour.
const COMBINED_MAX: usize = 12;

/// Links within a set; and, counted negative, links that its devices have to others that are free.
type Score = (i64, i64);

/// Which of these devices, by entry and instance, to take so many of; `None` where no links are known or all are taken.
/// Those that are `fixed` are taken anyway.
pub(super) fn best_linked(
    class: &NodeClass,
    fixed: &[(usize, u32)],
    free: &[(usize, u32)],
    count: usize,
) -> Option<Vec<usize>> {
    let known = |(entry, _): &(usize, u32)| class.links.get(*entry).is_some_and(|l| !l.is_empty());
    if !free.iter().any(known) || count == 0 || count >= free.len() {
        return None;
    }
    let links = |a: &(usize, u32), b: &(usize, u32)| of(class, *a, *b) + of(class, *b, *a);
    let score = |set: &[usize]| -> Score {
        let inside = (set.iter().enumerate())
            .flat_map(|(i, a)| set[i + 1..].iter().map(move |b| (*a, *b)))
            .map(|(a, b)| links(&free[a], &free[b]));
        let to_fixed = (set.iter()).flat_map(|a| fixed.iter().map(|f| links(&free[*a], f)));
        let outside = (set.iter())
            .flat_map(|a| (0..free.len()).map(move |b| (*a, b)))
            .filter(|(_, b)| !set.contains(b))
            .map(|(a, b)| links(&free[a], &free[b]));
        (inside.chain(to_fixed).sum(), -outside.sum::<i64>())
    };
    let sets: Vec<Vec<usize>> = match free.len() {
        0..=COMBINED_MAX => (0u32..1 << free.len())
            .filter(|mask| mask.count_ones() as usize == count)
            .map(|mask| (0..free.len()).filter(|i| mask & 1 << i != 0).collect())
            .collect(),
        _ => (0..free.len())
            .map(|first| grown(first, free.len(), count, &score))
            .collect(),
    };
    // Of equal ones the one with the first devices.
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

/// Links from one device to another, as the line of the first says. Devices of a name are numbered through.
fn of(class: &NodeClass, (entry, id): (usize, u32), other: (usize, u32)) -> i64 {
    let name = &class.gres[entry].0;
    if class.gres[other.0].0 != *name || (entry, id) == other {
        return 0;
    }
    let before = class.gres[..other.0].iter().filter(|(n, ..)| n == name);
    let first: u64 = before.map(|(.., count)| *count).sum();
    let place = usize::try_from(first).unwrap_or(usize::MAX);
    let lines = class
        .links
        .get(entry)
        .and_then(|lines| lines.get(id as usize));
    let links = lines.and_then(|links| links.get(place.saturating_add(other.1 as usize)));
    links.map_or(0, |links| i64::from((*links).max(0)))
}

#[cfg(test)]
mod tests {
    use super::*;

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
            gres: vec![("gpu".into(), None, 4)],
            links: vec![vec![line(0, 2), line(1, 3), line(2, 0), line(3, 1)]],
            ..NodeClass::default()
        }
    }

    fn best(free: &[u32], count: usize) -> Option<Vec<u32>> {
        let free: Vec<(usize, u32)> = free.iter().map(|id| (0, *id)).collect();
        let chosen = best_linked(&pairs(), &[], &free, count)?;
        Some(chosen.into_iter().map(|i| free[i].1).collect())
    }

    #[test]
    fn linked_ones_stay_together() {
        assert_eq!(best(&[0, 1, 2, 3], 2), Some(vec![0, 2]));
        assert_eq!(best(&[1, 2, 3], 2), Some(vec![1, 3]));
        // A pair is not torn apart while there is a single one.
        assert_eq!(best(&[0, 1, 3], 1), Some(vec![0]));
        assert_eq!(best(&[1, 2, 3], 1), Some(vec![2]));
        assert_eq!(best(&[0, 1, 2, 3], 4), None);
        let with_fixed = best_linked(&pairs(), &[(0, 3)], &[(0, 0), (0, 1), (0, 2)], 1);
        assert_eq!(with_fixed, Some(vec![1]));
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
            gres: vec![("gpu".into(), None, 16)],
            links: vec![(0..16).map(line).collect()],
            ..NodeClass::default()
        };
        let free: Vec<(usize, u32)> = (0..16).filter(|i| *i != 2).map(|id| (0, id)).collect();
        let chosen = best_linked(&class, &[], &free, 3).unwrap();
        let ids: Vec<u32> = chosen.into_iter().map(|i| free[i].1).collect();
        // Next to the gap, so that one ring of the others is left.
        assert_eq!(ids, [0, 1, 15]);
    }
}
