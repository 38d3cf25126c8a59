//! Distributes tasks and devices of the whole job together, where all CPUs of a node must be next to the job's devices there: how
//! many tasks a node can hold depends on the devices that it gives.

use super::{Candidate, NodeSource, Search};
use crate::demand::pick::{JobShare, Pick, SHARES_MAX};
use crate::nodes::class::NodeClass;
use crate::nodes::room::Detail;

/// Ways to share out devices that are looked at before the job waits for a simpler one.
const STEPS_MAX: u32 = 20_000;
/// Ways of one node.
const WAYS_MAX: usize = 256;

/// With these devices a node holds so many tasks.
struct Way {
    share: JobShare,
    least: u32,
    most: u32,
}

/// The sum of what the nodes from one on can give and hold.
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
    /// Tasks that the nodes so far hold, at least and at most.
    least: u64,
    most: u64,
}

struct Ways {
    by_node: Vec<Vec<Way>>,
    beyond: Vec<Beyond>,
    tasks: u64,
    steps: u32,
}

impl<G: NodeSource> Search<'_, G> {
    /// The picks if each node holds its own, else others of the same sums; `None` where none are found.
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
            let mut each = picks.iter().zip(&details);
            each.all(|(pick, detail)| self.demand.fits_sockets(class(pick), detail, pick))
        };
        if all_fit(&picks) {
            return Some(picks);
        }
        let nodes = chosen.iter().zip(&picks).zip(&details);
        let by_node: Vec<Vec<Way>> = nodes
            .map(|((c, pick), detail)| self.ways(c, pick, class(pick), detail))
            .collect();
        let mut share = JobShare::default();
        for (n, total) in share.iter_mut().zip(self.demand.devices.of_all_nodes()) {
            *n = u32::try_from(total).ok()?;
        }
        let each = u64::from(self.demand.tasks_each) * chosen.len() as u64;
        let tasks = self.demand.tasks.map_or(each, u64::from);
        let found = Ways::new(by_node, tasks).find(share)?;
        let picks = with_tasks(picks, &found, tasks);
        all_fit(&picks).then_some(picks)
    }

    /// The devices that a node may get, nearest to an even distribution first.
    fn ways(&self, c: &Candidate, even: &Pick, class: &NodeClass, detail: &Detail) -> Vec<Way> {
        let d = self.demand;
        let (from, to) = match d.tasks {
            Some(tasks) => (1, c.most.min(tasks)),
            None => (d.tasks_each, d.tasks_each),
        };
        let mut shares = vec![JobShare::default()];
        for kind in 0..SHARES_MAX {
            let more = |share: &JobShare| {
                let share = *share;
                (1..=c.share[kind]).map(move |n| {
                    let mut share = share;
                    share[kind] = n;
                    share
                })
            };
            let more: Vec<JobShare> = shares.iter().flat_map(more).collect();
            shares.extend(more);
            shares.truncate(WAYS_MAX);
        }
        shares.retain(|share| share.iter().any(|n| *n > 0));
        let off = |share: &JobShare| -> u32 {
            let each = share.iter().zip(&even.share);
            each.map(|(a, b)| a.abs_diff(*b)).sum()
        };
        shares.sort_by_key(off);
        let way = |share: JobShare| {
            let gpus: u32 = share.iter().sum();
            let shared = d.devices.tasks_per_gpu().unwrap_or(u32::MAX);
            let to = to.min(gpus.saturating_mul(shared));
            let pick = |tasks| Pick {
                tasks,
                share,
                ..*even
            };
            let fits = |tasks: &u32| d.fits_sockets(class, detail, &pick(*tasks));
            Some(Way {
                share,
                least: (from..=to).find(fits)?,
                most: (from..=to).rev().find(fits)?,
            })
        };
        shares.into_iter().filter_map(way).collect()
    }
}

impl Ways {
    fn new(by_node: Vec<Vec<Way>>, tasks: u64) -> Ways {
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
        }
    }

    /// A way for each node that together give all devices and hold all tasks.
    fn find(mut self, share: JobShare) -> Option<Vec<Way>> {
        let mut found = Vec::new();
        let left = Remaining {
            share,
            least: 0,
            most: 0,
        };
        self.from(0, left, &mut found).then_some(())?;
        let nodes = self.by_node.into_iter().zip(found);
        Some(nodes.map(|(mut ways, n)| ways.swap_remove(n)).collect())
    }

    fn from(&mut self, node: usize, left: Remaining, found: &mut Vec<usize>) -> bool {
        self.steps += 1;
        let beyond = &self.beyond[node];
        let given = |(left, most): (&u32, &u64)| u64::from(*left) <= *most;
        let possible = left.share.iter().zip(&beyond.share).all(given)
            && left.least + beyond.least <= self.tasks
            && left.most + beyond.most >= self.tasks;
        if !possible || self.steps > STEPS_MAX {
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

/// The picks with these devices, and tasks as near to what they were as may be.
fn with_tasks(mut picks: Vec<Pick>, ways: &[Way], tasks: u64) -> Vec<Pick> {
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
        // Each is at most what the node holds.
        let count = u64::from(pick.tasks) + more - fewer;
        pick.tasks = u32::try_from(count).unwrap_or(way.most);
    }
    picks
}
