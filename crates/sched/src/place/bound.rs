//! Distributes tasks and devices of the whole job together if all CPUs of a node must be next to
//! the job's devices there: the number of tasks that a node fits then depends on the devices that
//! it gives.

use super::{Candidate, NodeSource, Search};
use crate::demand::pick::{JobShare, Pick, SHARES_MAX};
use crate::nodes::class::NodeClass;
use crate::nodes::room::Detail;
use crate::nodes::sockets::SocketSets;
use std::collections::BTreeMap;

/// Number of distributions of devices that are tried before the search is given up.
const STEPS_MAX: u64 = 20_000;
/// Limit for all alternatives and numbers of nodes of a job together, including comparisons with sockets.
const WORK_MAX: u64 = 500_000;
/// Maximum number of ways per node.
const WAYS_MAX: usize = 256;

/// A number of devices on a node, and the tasks that it fits with them.
#[derive(Clone)]
struct DeviceOption {
    share: JobShare,
    least: u32,
    most: u32,
}

/// Totals of a node and those after it.
#[derive(Clone, Default)]
struct Beyond {
    share: [u64; SHARES_MAX],
    least: u64,
    most: u64,
}

/// Tasks and devices that are still to be distributed.
#[derive(Clone, Copy)]
struct Remaining {
    share: JobShare,
    /// Minimum and maximum number of tasks on the nodes so far.
    least: u64,
    most: u64,
}

struct Ways {
    by_node: Vec<Vec<DeviceOption>>,
    beyond: Vec<Beyond>,
    tasks: u64,
    steps: u64,
    steps_max: u64,
}

impl<G: NodeSource> Search<'_, G> {
    /// The picks if each node fits its own, else other picks with the same sums; `None` if none are
    /// found.
    pub(super) fn near_devices(&self, chosen: &[Candidate], picks: Vec<Pick>) -> Option<Vec<Pick>> {
        let details = chosen.iter().map(|c| self.source.detail(c.pos));
        let Some(details) = details.collect::<Option<Vec<Detail>>>() else {
            return Some(picks);
        };
        let class = |pick: &Pick| {
            let class = self.fleet.nodes[pick.node as usize].class;
            &self.fleet.classes[class as usize]
        };
        let all_fit = |picks: &[Pick]| {
            // Most nodes are equal and get the same part.
            let mut last: Option<(&Pick, &Detail)> = None;
            picks.iter().zip(&details).all(|(pick, detail)| {
                let same = |(other, of): (&Pick, &Detail)| {
                    let as_much = (other.tasks, other.share) == (pick.tasks, pick.share);
                    as_much && std::ptr::eq(class(other), class(pick)) && of == detail
                };
                let known = last.replace((pick, detail)).is_some_and(same);
                known || self.fits(class(pick), detail, pick)
            })
        };
        if all_fit(&picks) {
            return Some(picks);
        }
        let mut by_node: Vec<Vec<DeviceOption>> = Vec::with_capacity(chosen.len());
        for (at, c) in chosen.iter().enumerate() {
            let (pick, detail) = (&picks[at], &details[at]);
            let same = at > 0
                && (c.most, c.share) == (chosen[at - 1].most, chosen[at - 1].share)
                && (pick.tasks, pick.share) == (picks[at - 1].tasks, picks[at - 1].share)
                && std::ptr::eq(class(pick), class(&picks[at - 1]))
                && *detail == details[at - 1];
            if self.near_work.get() >= WORK_MAX {
                return None;
            }
            let ways = match by_node.last().filter(|_| same) {
                Some(known) => known.clone(),
                None => self.ways(c, pick, class(pick), detail),
            };
            by_node.push(ways);
        }
        let mut share = JobShare::default();
        for (n, total) in share.iter_mut().zip(self.demand.devices.of_all_nodes()) {
            *n = u32::try_from(total).ok()?;
        }
        let each = u64::from(self.demand.tasks_each) * chosen.len() as u64;
        let tasks = self.demand.tasks.map_or(each, u64::from);
        let left = WORK_MAX.saturating_sub(self.near_work.get());
        let (found, steps) = Ways::new(by_node, tasks).find(share, left);
        self.note_near_work(steps);
        let found = found?;
        let picks = with_tasks(picks, &found, tasks);
        all_fit(&picks).then_some(picks)
    }

    /// Whether the node fits that many tasks and devices of the whole job when its sockets are
    /// considered.
    fn fits(&self, class: &NodeClass, detail: &Detail, pick: &Pick) -> bool {
        let Some(sets) = self.demand.socket_sets(class, detail, pick) else {
            return false;
        };
        let one = pick.tasks..=pick.tasks;
        let need = |_| self.demand.socket_need(class, pick);
        let fits = sets.most(one, &need).is_some();
        self.note_near_work(sets.tries());
        fits
    }

    /// The devices that a node may give, nearest to an even distribution first.
    fn ways(
        &self,
        c: &Candidate,
        even: &Pick,
        class: &NodeClass,
        detail: &Detail,
    ) -> Vec<DeviceOption> {
        let d = self.demand;
        let (from, to) = match d.tasks {
            Some(tasks) => (1, c.most.min(tasks)),
            None => (d.tasks_each, d.tasks_each),
        };
        let mut shares = shares_up_to(&c.share);
        shares.retain(|share| share.iter().any(|n| *n > 0));
        let off = |share: &JobShare| -> u32 {
            let each = share.iter().zip(&even.share);
            each.map(|(a, b)| a.abs_diff(*b)).sum()
        };
        shares.sort_by_key(off);
        // Which CPUs count as near depends only on the kinds of devices that are present.
        let mut known: BTreeMap<u32, Option<SocketSets>> = BTreeMap::new();
        let mut way = |share: JobShare| {
            let gpus: u32 = share.iter().sum();
            let shared = d.devices.tasks_per_gpu().unwrap_or(u32::MAX);
            let to = to.min(gpus.saturating_mul(shared));
            let pick = |tasks| Pick {
                tasks,
                share,
                ..*even
            };
            let kinds = { share.iter() }.fold(0, |kinds, n| kinds << 1 | u32::from(*n > 0));
            let sets = known.entry(kinds);
            let sets = sets.or_insert_with(|| d.socket_sets(class, detail, &pick(from)));
            let need = |tasks| d.socket_need(class, &pick(tasks));
            let (least, most) = sets.as_ref()?.range(from..=to, need)?;
            Some(DeviceOption { share, least, most })
        };
        let ways = shares.into_iter().filter_map(&mut way).collect();
        let tries = known.values().flatten().map(SocketSets::tries);
        self.note_near_work(tries.sum());
        ways
    }

    fn note_near_work(&self, work: u64) {
        self.near_work.set(self.near_work.get() + work);
        self.source.note_tries(work);
    }
}

/// All combinations of device numbers, by kind, up to those in `most`; at most [`WAYS_MAX`] of
/// them.
fn shares_up_to(most: &JobShare) -> Vec<JobShare> {
    let mut shares = vec![JobShare::default()];
    for kind in 0..SHARES_MAX {
        let more = |share: &JobShare| {
            let share = *share;
            (1..=most[kind]).map(move |n| {
                let mut share = share;
                share[kind] = n;
                share
            })
        };
        // Devices that are only counted may be very many.
        let left = WAYS_MAX.saturating_sub(shares.len());
        let more: Vec<JobShare> = shares.iter().flat_map(more).take(left).collect();
        shares.extend(more);
    }
    shares
}

impl Ways {
    fn new(by_node: Vec<Vec<DeviceOption>>, tasks: u64) -> Ways {
        let mut beyond = vec![Beyond::default(); by_node.len() + 1];
        for (i, ways) in by_node.iter().enumerate().rev() {
            let mut all = beyond[i + 1].clone();
            for (kind, n) in all.share.iter_mut().enumerate() {
                let most = ways.iter().map(|way| way.share[kind]).max();
                *n += u64::from(most.unwrap_or(0));
            }
            all.least += u64::from(ways.iter().map(|way| way.least).min().unwrap_or(0));
            all.most += u64::from(ways.iter().map(|way| way.most).max().unwrap_or(0));
            beyond[i] = all;
        }
        Ways {
            by_node,
            beyond,
            tasks,
            steps: 0,
            steps_max: STEPS_MAX,
        }
    }

    /// Finds a way for each node such that together they give all devices and fit all tasks; also
    /// returns the number of steps, at most `most`.
    fn find(mut self, share: JobShare, most: u64) -> (Option<Vec<DeviceOption>>, u64) {
        let mut found = Vec::new();
        let left = Remaining {
            share,
            least: 0,
            most: 0,
        };
        self.steps_max = most.min(STEPS_MAX);
        let is_found = self.from(0, left, &mut found);
        let nodes = self.by_node.into_iter().zip(found);
        let ways = is_found.then(|| nodes.map(|(mut ways, n)| ways.swap_remove(n)).collect());
        (ways, self.steps)
    }

    fn from(&mut self, node: usize, left: Remaining, found: &mut Vec<usize>) -> bool {
        self.steps += 1;
        let beyond = &self.beyond[node];
        let given = |(left, most): (&u32, &u64)| u64::from(*left) <= *most;
        let possible = left.share.iter().zip(&beyond.share).all(given)
            && left.least + beyond.least <= self.tasks
            && left.most + beyond.most >= self.tasks;
        if !possible || self.steps > self.steps_max {
            return false;
        }
        if node == self.by_node.len() {
            return true;
        }
        for n in 0..self.by_node[node].len() {
            let way = &self.by_node[node][n];
            let mut next = left;
            let mut enough = true;
            for (left, n) in next.share.iter_mut().zip(way.share) {
                enough &= *left >= n;
                *left = left.saturating_sub(n);
            }
            next.least += u64::from(way.least);
            next.most += u64::from(way.most);
            found.push(n);
            if enough && self.from(node + 1, next, found) {
                return true;
            }
            found.pop();
        }
        false
    }
}

/// The picks with these devices, and with numbers of tasks that change as little as possible.
fn with_tasks(mut picks: Vec<Pick>, ways: &[DeviceOption], tasks: u64) -> Vec<Pick> {
    for (pick, way) in picks.iter_mut().zip(ways) {
        pick.share = way.share;
        pick.tasks = pick.tasks.clamp(way.least, way.most);
    }
    let sum: u64 = picks.iter().map(|pick| u64::from(pick.tasks)).sum();
    let (mut lacking, mut over) = (tasks.saturating_sub(sum), sum.saturating_sub(tasks));
    for (pick, way) in picks.iter_mut().zip(ways) {
        let more = u64::from(way.most - pick.tasks).min(lacking);
        let fewer = u64::from(pick.tasks - way.least).min(over);
        (lacking, over) = (lacking - more, over - fewer);
        // The number does not exceed the node's maximum.
        let count = u64::from(pick.tasks) + more - fewer;
        pick.tasks = u32::try_from(count).unwrap_or(way.most);
    }
    picks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ways_are_bounded_whatever_is_counted() {
        let few = shares_up_to(&[2, 0, 1, 0]);
        assert_eq!(few.len(), 6);
        assert!(few.contains(&[2, 0, 1, 0]));
        assert_eq!(shares_up_to(&[u32::MAX; SHARES_MAX]).len(), WAYS_MAX);
    }
}
