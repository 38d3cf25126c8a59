//! Combinations of a node's sockets that may hold a job: what each has is worked out once, and then compared with what the job
//! needs for each number of tasks or devices that is looked at.

use super::{is_a, sockets_of};
use crate::nodes::class::{GresCount, NodeClass, whole_granules};
use crate::nodes::room::{Detail, Nearness};
use muster_model::cpuset::CpuSet;
use std::cell::Cell;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::{Range, RangeInclusive};

/// Up to so many sockets all combinations are tried, beyond only neighbours.
const COMBINED_MAX: u32 = 8;

/// A socket that has something free.
pub(super) struct Socket {
    /// CPUs to choose from, in whole granules.
    pub(super) free: CpuSet,
    /// How many of them may be taken.
    pub(super) room: u32,
}

/// The free devices of one request: how many there are next to each combination of sockets.
struct Placed {
    devices: BTreeMap<u64, u64>,
}

/// What a job needs of a node to the socket.
pub(crate) struct SocketNeed {
    pub(crate) cpus: u32,
    /// Of all devices, in the order of the requests that the combinations were made for.
    pub(crate) devices: Vec<u64>,
}

impl SocketNeed {
    pub(crate) fn new(cpus: u32, gres: &[GresCount]) -> SocketNeed {
        SocketNeed {
            cpus,
            devices: gres.iter().map(|gres| gres.count).collect(),
        }
    }
}

/// How many devices must and may be taken.
struct DeviceBounds {
    least: u64,
    most: u64,
}

/// Bounds for what a job needs that has these sockets and no others.
struct SocketSet {
    /// CPUs that may be taken.
    room: u32,
    /// CPUs of as many cores as there are sockets.
    least: u32,
    /// For each request whose devices have known places.
    devices: Vec<DeviceBounds>,
    /// The sockets.
    bits: u64,
}

impl SocketSet {
    /// Whether the job needs more than they have. It goes on so with greater needs.
    fn lacks(&self, need: &SocketNeed, placed: &[usize]) -> bool {
        let mut devices = self.devices.iter().zip(placed);
        need.cpus > self.room || devices.any(|(of, at)| need.devices[*at] > of.most)
    }

    /// Whether the job needs less than what makes it take all of them. It goes on so with smaller needs.
    fn exceeds(&self, need: &SocketNeed, placed: &[usize]) -> bool {
        let mut devices = self.devices.iter().zip(placed);
        need.cpus < self.least || devices.any(|(of, at)| need.devices[*at] < of.least)
    }
}

/// All combinations of a node's sockets that may hold a job.
pub(crate) struct SocketSets {
    pub(super) sockets: Vec<Socket>,
    sets: Vec<SocketSet>,
    /// Requests whose devices have known places.
    placed: Vec<usize>,
    /// Combinations that were made, and how often needs were compared with one.
    tries: Cell<u64>,
}

impl SocketSets {
    /// The combinations for a job that takes some of each of these devices, however many.
    pub(crate) fn new(
        class: &NodeClass,
        detail: &Detail,
        gres: &[GresCount],
        near: &Nearness,
    ) -> SocketSets {
        let granule = class.granule.max(1);
        let ranges = sockets_of(class);
        let with_places = (gres.iter().zip(0..))
            .filter(|(request, _)| near.enforced && has_places(class, request));
        let (placed, requests): (Vec<Placed>, Vec<usize>) = with_places
            .map(|(request, at)| (Placed::new(class, detail, request, &ranges), at))
            .unzip();
        let sockets: Vec<Socket> = ranges
            .iter()
            .map(|range| {
                let mut free: CpuSet = range.clone().filter(|c| detail.free.contains(*c)).collect();
                if near.enforced {
                    keep_near(class, detail, gres, &mut free);
                }
                let room = whole_granules(&free, granule);
                Socket {
                    free,
                    room: room.min(near.cpus_of_socket.unwrap_or(u32::MAX)) / granule * granule,
                }
            })
            .collect();
        // Sockets each of which has a core and devices.
        let mut open = bits(sockets.iter().map(|socket| socket.room >= granule));
        for request in &near.per_socket {
            let there = Placed::new(class, detail, request, &ranges);
            let at = |s: usize| there.next_to(1 << s) >= request.count;
            open &= bits((0..sockets.len()).map(at));
        }
        for request in &placed {
            open &= request.devices.keys().fold(0, |all, at| all | at);
        }
        let number = (near.sockets > 0).then_some(near.sockets);
        let mut made = 0;
        let sets = combinations(sockets.len())
            .inspect(|_| made += 1)
            .filter(|set| set & !open == 0 && number.is_none_or(|n| n == set.count_ones()))
            .map(|set| {
                let of_set = sockets.iter().zip(0..).filter(|(_, s)| set & (1 << s) != 0);
                SocketSet {
                    room: of_set.map(|(socket, _)| socket.room).sum(),
                    least: set.count_ones().saturating_mul(granule),
                    devices: placed.iter().map(|request| request.bounds(set)).collect(),
                    bits: set,
                }
            });
        let mut sets: Vec<SocketSet> = sets.collect();
        // The first then has most, and hardly any other is looked at twice.
        sets.sort_unstable_by_key(|set| Reverse(set.room));
        SocketSets {
            sockets,
            sets,
            placed: requests,
            tries: Cell::new(made),
        }
    }

    /// Combinations that were made, and how often needs were compared with one.
    pub(crate) fn tries(&self) -> u64 {
        self.tries.get()
    }

    /// The fewest sockets that hold it; of as many those that are left with least.
    pub(super) fn best(&self, need: &SocketNeed) -> Option<u64> {
        let fits = self.sets.iter().filter(|set| self.fits(set, need));
        let order = |set: &&SocketSet| (set.bits.count_ones(), set.room - need.cpus, set.bits);
        fits.min_by_key(order).map(|set| set.bits)
    }

    /// The fewest and most of these numbers with which the node holds what the job needs. The needs do not shrink as the number
    /// grows, so that the first and the last number of each combination are found by halves.
    pub(crate) fn range(
        &self,
        numbers: RangeInclusive<u32>,
        need: impl Fn(u32) -> SocketNeed,
    ) -> Option<(u32, u32)> {
        let most = self.most(numbers.clone(), &need)?;
        Some((self.fewest(*numbers.start()..=most, &need)?, most))
    }

    /// The most of these numbers with which the node holds what the job needs.
    pub(crate) fn most(
        &self,
        numbers: RangeInclusive<u32>,
        need: &impl Fn(u32) -> SocketNeed,
    ) -> Option<u32> {
        let (from, to) = numbers.into_inner();
        if from > to {
            return None;
        }
        let (last, mut wanted) = (need(to), need(from));
        let mut best = None;
        for set in &self.sets {
            if self.lacks(set, &wanted) {
                continue;
            }
            let mut least = best.map_or(from, |n: u32| n + 1);
            if !self.lacks(set, &last) {
                least = to;
            }
            let mut beyond = to;
            // It has enough for `least`, and too little for `beyond` where that is more.
            while beyond - least > 1 {
                let middle = least + (beyond - least) / 2;
                match self.lacks(set, &need(middle)) {
                    true => beyond = middle,
                    false => least = middle,
                }
            }
            if !self.exceeds(set, &need(least)) {
                if least == to {
                    return Some(to);
                }
                best = Some(least);
                wanted = need(least + 1);
            }
        }
        best
    }

    fn fewest(
        &self,
        numbers: RangeInclusive<u32>,
        need: &impl Fn(u32) -> SocketNeed,
    ) -> Option<u32> {
        let (from, to) = numbers.into_inner();
        let (first, mut wanted) = (need(from), need(to));
        let mut best = None;
        for set in &self.sets {
            if self.exceeds(set, &wanted) {
                continue;
            }
            let mut most = best.map_or(to, |n: u32| n - 1);
            if !self.exceeds(set, &first) {
                most = from;
            }
            let mut below = from;
            while most - below > 1 {
                let middle = below + (most - below) / 2;
                match self.exceeds(set, &need(middle)) {
                    true => below = middle,
                    false => most = middle,
                }
            }
            if !self.lacks(set, &need(most)) {
                if most == from {
                    return Some(from);
                }
                best = Some(most);
                wanted = need(most - 1);
            }
        }
        best
    }

    /// The most of these numbers for which a combination has enough, be it one of which the job would not take all.
    pub(crate) fn most_at_all(
        &self,
        numbers: RangeInclusive<u32>,
        need: impl Fn(u32) -> SocketNeed,
    ) -> Option<u32> {
        let (mut least, mut beyond) = numbers.into_inner();
        let has = |n: u32| {
            let need = need(n);
            self.sets.iter().any(|set| !self.lacks(set, &need))
        };
        if least > beyond || !has(least) {
            return None;
        }
        if has(beyond) {
            return Some(beyond);
        }
        while beyond - least > 1 {
            let middle = least + (beyond - least) / 2;
            match has(middle) {
                true => least = middle,
                false => beyond = middle,
            }
        }
        Some(least)
    }

    fn fits(&self, set: &SocketSet, need: &SocketNeed) -> bool {
        !self.lacks(set, need) && !self.exceeds(set, need)
    }

    fn lacks(&self, set: &SocketSet, need: &SocketNeed) -> bool {
        self.tries.set(self.tries.get() + 1);
        set.lacks(need, &self.placed)
    }

    fn exceeds(&self, set: &SocketSet, need: &SocketNeed) -> bool {
        self.tries.set(self.tries.get() + 1);
        set.exceeds(need, &self.placed)
    }
}

fn bits(flags: impl Iterator<Item = bool>) -> u64 {
    flags
        .zip(0..)
        .fold(0, |all, (flag, at)| all | u64::from(flag) << at)
}

fn combinations(sockets: usize) -> Box<dyn Iterator<Item = u64>> {
    let sockets = u32::try_from(sockets).unwrap_or(u32::MAX).min(63);
    if sockets <= COMBINED_MAX {
        return Box::new(1..1u64 << sockets);
    }
    let runs = (0..sockets)
        .flat_map(move |from| (from + 1..=sockets).map(move |end| (1u64 << end) - (1u64 << from)));
    Box::new(runs)
}

/// CPUs next to free devices of a request, and how many such devices there are; absent where that is not known.
fn free_devices<'a>(
    class: &'a NodeClass,
    detail: &'a Detail,
    request: &'a GresCount,
) -> impl Iterator<Item = (Option<&'a CpuSet>, u64)> {
    let entries = class.gres.iter().enumerate();
    entries
        .filter(move |(_, entry)| is_a(entry, request))
        .flat_map(move |(i, entry)| {
            let used = detail.gres_used.get(i);
            let near = class.near.get(i).map_or(&[][..], |near| &near[..]);
            let count = u64::from(u32::try_from(entry.count).unwrap_or(u32::MAX));
            let known = near
                .iter()
                .zip(0u32..)
                .take_while(move |(_, id)| u64::from(*id) < count);
            let free = known
                .filter(move |(_, id)| !used.is_some_and(|used| used.contains(*id)))
                .map(|(near, _)| (Some(near), 1));
            // Devices that are only counted are many.
            let first = near.len() as u64;
            let is_other = |id: &u32| (first..count).contains(&u64::from(*id));
            let taken = match used {
                Some(used) if first < count => used.iter().filter(is_other).count() as u64,
                _ => 0,
            };
            let others = count.saturating_sub(first) - taken;
            free.chain((others > 0).then_some((None, others)))
        })
}

/// Whether it is known where the devices are.
fn has_places(class: &NodeClass, request: &GresCount) -> bool {
    let mut entries = class.gres.iter().zip(&class.near);
    entries.any(|(entry, near)| is_a(entry, request) && !near.is_empty())
}

impl Placed {
    fn new(
        class: &NodeClass,
        detail: &Detail,
        request: &GresCount,
        ranges: &[Range<u32>],
    ) -> Placed {
        let at = |near: Option<&CpuSet>| -> u64 {
            let next_to = |range: &Range<u32>| {
                near.is_none_or(|near| range.clone().any(|cpu| near.contains(cpu)))
            };
            bits(ranges.iter().map(next_to))
        };
        let mut devices = BTreeMap::new();
        for (near, count) in free_devices(class, detail, request) {
            *devices.entry(at(near)).or_insert(0) += count;
        }
        Placed { devices }
    }

    /// How many there are next to any of these sockets.
    fn next_to(&self, set: u64) -> u64 {
        let there = self.devices.iter().filter(|(at, _)| **at & set != 0);
        there.map(|(_, count)| count).sum()
    }

    /// How many must be taken for each of the sockets to have one, and how many there are.
    fn bounds(&self, set: u64) -> DeviceBounds {
        let everywhere = self.devices.keys().any(|at| at & set == set);
        let needed = if everywhere { 1 } else { set.count_ones() };
        DeviceBounds {
            least: u64::from(needed),
            most: self.next_to(set),
        }
    }
}

/// Leaves the CPUs that are next to a free device of every request.
fn keep_near(class: &NodeClass, detail: &Detail, gres: &[GresCount], free: &mut CpuSet) {
    for request in gres {
        let (mut near, mut known) = (CpuSet::default(), false);
        for (cpus, _) in free_devices(class, detail, request) {
            match cpus {
                Some(cpus) => {
                    near.union_with(cpus);
                    known = true;
                }
                None => near.union_with(free),
            }
        }
        if known {
            free.intersect_with(&near);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first and last number are those that trying one number after another finds, with few tries.
    #[test]
    fn numbers_are_found_by_halves_as_one_by_one() {
        let mut drawn = 1u64;
        let mut below = |bound: u32| {
            drawn = drawn
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            ((drawn >> 33) % u64::from(bound)) as u32
        };
        for _ in 0..3000 {
            let count = 1 + below(5);
            let mut set = |_| {
                let least = 1 + below(12);
                let (needed, more) = (u64::from(below(4)), u64::from(below(30)));
                let bounds = DeviceBounds {
                    least: needed,
                    most: needed + more,
                };
                SocketSet {
                    room: least + below(40),
                    least,
                    devices: vec![bounds],
                    bits: 1,
                }
            };
            let mut sets: Vec<SocketSet> = (0..count).map(&mut set).collect();
            sets.sort_unstable_by_key(|set| Reverse(set.room));
            let sets = SocketSets {
                sockets: Vec::new(),
                sets,
                placed: vec![0],
                tries: Cell::new(0),
            };
            let (cpus, devices) = (below(5), u64::from(below(3)));
            let least = below(9);
            let need = |n: u32| SocketNeed {
                cpus: (n * cpus).next_multiple_of(4).max(least),
                devices: vec![1 + u64::from(n) * devices],
            };
            let (from, to) = (1 + below(4), 1 + below(60));
            let fits = |n: &u32| sets.best(&need(*n)).is_some();
            let first = (from..=to).find(fits);
            let expected = first.zip((from..=to).rev().find(fits));
            assert_eq!(sets.range(from..=to, need), expected);
        }
    }

    #[test]
    fn billions_of_tasks_take_few_tries() {
        let set = |room, least| SocketSet {
            room,
            least,
            devices: Vec::new(),
            bits: 1,
        };
        let sets = SocketSets {
            sockets: Vec::new(),
            sets: vec![set(900, 1), set(400, 2), set(100, 1)],
            placed: Vec::new(),
            tries: Cell::new(0),
        };
        let need = |cpus| SocketNeed {
            cpus,
            devices: Vec::new(),
        };
        assert_eq!(sets.range(1..=u32::MAX, need), Some((1, 900)));
        assert!(sets.tries() < 100, "{}", sets.tries());
        // With --overcommit no number of tasks makes it fit.
        let before = sets.tries();
        assert_eq!(sets.range(1..=u32::MAX, |_| need(901)), None);
        assert_eq!(sets.tries() - before, 3);
    }
}
