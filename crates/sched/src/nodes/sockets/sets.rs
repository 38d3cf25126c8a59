//! Combinations of a node's sockets that may fit a job. The resources of each combination are
//! computed once, and then compared with the job's needs for each number of tasks or devices that
//! is considered.

use super::{is_a, sockets_of};
use crate::nodes::class::{GresCount, NodeClass, whole_granules};
use crate::nodes::room::{Detail, Nearness};
use muster_model::cpuset::CpuSet;
use std::cell::Cell;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::{Range, RangeInclusive};

/// Up to this number of sockets all combinations are tried; above it only adjacent sockets.
const COMBINED_MAX: u32 = 8;

/// A socket with free resources.
pub(super) struct Socket {
    /// CPUs to choose from, in whole granules.
    pub(super) free: CpuSet,
    /// Maximum number of them that may be taken.
    pub(super) room: u32,
}

/// The free devices of one request: their number next to each combination of sockets.
struct Placed {
    devices: BTreeMap<u64, u64>,
}

/// The needs of a job on a node, checked by socket.
pub(crate) struct SocketNeed {
    pub(crate) cpus: u32,
    /// Numbers of devices, in the order of the requests for which the combinations were made.
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

/// Minimum and maximum number of devices to take.
struct DeviceBounds {
    least: u64,
    most: u64,
}

/// Limits of the needs for which a job uses exactly these sockets.
struct SocketSet {
    /// Maximum number of CPUs.
    room: u32,
    /// CPUs of one core per socket: with fewer, the job would not use all of the sockets.
    least: u32,
    /// Limits of each request whose devices have known locations.
    devices: Vec<DeviceBounds>,
    /// Bits of the sockets.
    bits: u64,
}

impl SocketSet {
    /// Whether the need exceeds these sockets. If it does, every greater need does as well.
    fn lacks(&self, need: &SocketNeed, placed: &[usize]) -> bool {
        let mut devices = self.devices.iter().zip(placed);
        need.cpus > self.room || devices.any(|(of, at)| need.devices[*at] > of.most)
    }

    /// Whether the need is too small to use all of these sockets. If it is, every smaller need is
    /// as well.
    fn exceeds(&self, need: &SocketNeed, placed: &[usize]) -> bool {
        let mut devices = self.devices.iter().zip(placed);
        need.cpus < self.least || devices.any(|(of, at)| need.devices[*at] < of.least)
    }
}

/// All combinations of a node's sockets that may fit a job.
pub(crate) struct SocketSets {
    pub(super) sockets: Vec<Socket>,
    sets: Vec<SocketSet>,
    /// Indexes of the requests whose devices have known locations.
    placed: Vec<usize>,
    /// Number of combinations made, plus number of comparisons of needs with combinations.
    tries: Cell<u64>,
}

impl SocketSets {
    /// The combinations for a job that takes some of each of these devices, in any number.
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
        // Sockets that have a free core and devices.
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
        // The first combination then has the most free CPUs, so that few others are compared twice.
        sets.sort_unstable_by_key(|set| Reverse(set.room));
        SocketSets {
            sockets,
            sets,
            placed: requests,
            tries: Cell::new(made),
        }
    }

    /// Number of combinations made, plus number of comparisons of needs with combinations.
    pub(crate) fn tries(&self) -> u64 {
        self.tries.get()
    }

    /// The smallest combination that fits; among equal sizes, the one with the fewest CPUs left.
    pub(super) fn best(&self, need: &SocketNeed) -> Option<u64> {
        let fits = self.sets.iter().filter(|set| self.fits(set, need));
        let order = |set: &&SocketSet| (set.bits.count_ones(), set.room - need.cpus, set.bits);
        fits.min_by_key(order).map(|set| set.bits)
    }

    /// The smallest and largest of these numbers for which the node fits the job's needs. Needs do
    /// not shrink as the number grows, so a binary search finds the first and the last number of
    /// each combination.
    pub(crate) fn range(
        &self,
        numbers: RangeInclusive<u32>,
        need: impl Fn(u32) -> SocketNeed,
    ) -> Option<(u32, u32)> {
        let most = self.most(numbers.clone(), &need)?;
        Some((self.fewest(*numbers.start()..=most, &need)?, most))
    }

    /// The largest of these numbers for which the node fits the job's needs.
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
            // The combination has enough for `least`, and too little for `beyond` if that is
            // larger.
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

    /// The largest of these numbers for which a combination has enough, even if the job would not
    /// use all of its sockets.
    pub(crate) fn largest_feasible(
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

/// CPUs next to free devices of a request, and the number of such devices; `None` if their location
/// is unknown.
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
            // There may be very many devices that are only counted.
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

/// Whether the location of the devices is known.
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

    /// Number of devices next to any of these sockets.
    fn next_to(&self, set: u64) -> u64 {
        let there = self.devices.iter().filter(|(at, _)| **at & set != 0);
        there.map(|(_, count)| count).sum()
    }

    /// Minimum number of devices such that each of the sockets has one, and the number of devices
    /// next to them.
    fn bounds(&self, set: u64) -> DeviceBounds {
        let everywhere = self.devices.keys().any(|at| at & set == set);
        let needed = if everywhere { 1 } else { set.count_ones() };
        DeviceBounds {
            least: u64::from(needed),
            most: self.next_to(set),
        }
    }
}

/// Keeps the CPUs that are next to a free device of every request.
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

    /// Checks that the first and last number equal those of a linear search, with few comparisons.
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
        // With --overcommit no number of tasks makes the job fit.
        let before = sets.tries();
        assert_eq!(sets.range(1..=u32::MAX, |_| need(901)), None);
        assert_eq!(sets.tries() - before, 3);
    }
}
