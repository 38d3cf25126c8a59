//! Divides a step's request over all nodes among its nodes, as evenly for their tasks as possible.

use std::collections::BTreeSet;

/// The supply of a node.
#[derive(Clone, Copy, Debug)]
pub(super) struct EvenShare {
    /// Tasks of the step there, one at least.
    pub(super) tasks: u64,
    /// The most that it has.
    pub(super) most: u64,
}

/// Parts in which what falls to a task is measured.
const PARTS: u64 = 1_000_000;

impl EvenShare {
    /// The amount for each task if the node gives `given`.
    fn level(self, given: u64) -> u64 {
        given.saturating_mul(PARTS) / self.tasks
    }

    /// Number that it gives so that no more than that falls to a task.
    fn up_to(self, level: u64) -> u64 {
        // The greatest number whose level is not beyond.
        let beyond = (u128::from(level) + 1) * u128::from(self.tasks);
        let most = beyond.div_ceil(u128::from(PARTS)) - 1;
        u64::try_from(most).unwrap_or(u64::MAX).min(self.most)
    }
}

/// Divides `count` among the nodes. Conceptually, units are taken one after another from the node whose tasks have
/// the least per task then, the first of several. In fact, all units up to a common level are taken at once; the
/// level is found by bisection.
pub(super) fn share_evenly(nodes: &[EvenShare], count: u64) -> Vec<u64> {
    let given = |level: u64| {
        let counts = nodes.iter().map(|node| node.up_to(level));
        counts.fold(0, u64::saturating_add)
    };
    let (mut level, mut beyond) = (0, u64::MAX);
    while beyond - level > 1 {
        let middle = level + (beyond - level) / 2;
        match given(middle) <= count {
            true => level = middle,
            false => beyond = middle,
        }
    }
    let mut out = vec![0; nodes.len()];
    let mut left = count;
    // Where there are very many tasks the first ones come to nothing for each.
    if given(level) <= count {
        out = nodes.iter().map(|node| node.up_to(level)).collect();
        left = count - given(level);
    }
    let next = |at: usize, given: u64| {
        let node = nodes[at];
        (given < node.most).then(|| (node.level(given + 1), at))
    };
    let mut open: BTreeSet<(u64, usize)> = (out.iter().enumerate())
        .filter_map(|(at, given)| next(at, *given))
        .collect();
    while left > 0
        && let Some((_, at)) = open.pop_first()
    {
        out[at] += 1;
        left -= 1;
        open.extend(next(at, out[at]));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One after another, each time with a look at all nodes.
    fn one_by_one(nodes: &[EvenShare], count: u64) -> Vec<u64> {
        let mut out = vec![0; nodes.len()];
        for _ in 0..count {
            let open = (0..nodes.len()).filter(|i| out[*i] < nodes[*i].most);
            let Some(next) = open.min_by_key(|&i| (nodes[i].level(out[i] + 1), i)) else {
                break;
            };
            out[next] += 1;
        }
        out
    }

    #[test]
    fn devices_are_shared_out_at_once_as_one_by_one() {
        let share = |(tasks, most)| EvenShare { tasks, most };
        let sets: [&[(u64, u64)]; 5] = [
            &[(1, 8), (1, 8), (1, 8)],
            &[(3, 100), (7, 5), (1, 40), (2, 0)],
            &[(1_000_003, 9), (5, 3)],
            &[(13, 70), (11, 70), (17, 70), (1, 1)],
            &[],
        ];
        for set in sets {
            let nodes: Vec<EvenShare> = set.iter().copied().map(share).collect();
            for count in 0..230 {
                let expected = one_by_one(&nodes, count);
                assert_eq!(share_evenly(&nodes, count), expected, "{count} of {set:?}");
            }
        }
    }

    /// They were given one by one, each time with a look at all nodes: 2^20 looks at a thousand nodes for each of 64 kinds.
    #[test]
    fn as_many_as_there_may_be_are_shared_out() {
        let nodes = [EvenShare {
            tasks: 3,
            most: 1 << 40,
        }; 1000];
        let out = share_evenly(&nodes, 1 << 40);
        assert_eq!(out.iter().sum::<u64>(), 1 << 40);
        assert_eq!(share_evenly(&nodes, u64::MAX), [1 << 40; 1000]);
    }
}
