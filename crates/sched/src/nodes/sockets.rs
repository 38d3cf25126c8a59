//! Choosing CPUs of a node for jobs with locality rules: CPUs only of the sockets of their devices, devices on each of some
//! sockets, a limit of tasks per socket. Looks at CPUs and devices one by one.

use crate::nodes::class::{GresCount, NodeClass, whole_granules};
use crate::nodes::cores::{self, Far};
use crate::nodes::room::{Detail, NearbyDevices, Nearness, Want};
use muster_model::cpuset::CpuSet;
use std::ops::Range;

/// Up to so many sockets all combinations are tried, beyond only neighbours.
const COMBINED_MAX: u32 = 8;

/// A socket that has something free.
struct Socket {
    /// CPUs to choose from, in whole granules.
    free: CpuSet,
    /// How many of them may be taken.
    room: u32,
}

/// The free devices of one request, each with the sockets that it is next to.
struct Placed {
    count: u64,
    devices: Vec<u64>,
}

/// CPUs for the job; `None` if the node does not hold it so.
pub(crate) fn choose(
    class: &NodeClass,
    detail: &Detail,
    want: &Want,
    near: &Nearness,
) -> Option<CpuSet> {
    let granule = class.granule.max(1);
    let ranges = sockets_of(class);
    let placed: Vec<Placed> = match near.enforced {
        true => (want.gres.iter())
            .filter_map(|request| placed(class, detail, request, &ranges))
            .collect(),
        false => Vec::new(),
    };
    let by_socket: Vec<Placed> = (near.per_socket.iter())
        .map(|request| placed_of(class, detail, request, &ranges))
        .collect();
    let sockets: Vec<Socket> = ranges
        .iter()
        .map(|range| {
            let mut free: CpuSet = range.clone().filter(|c| detail.free.contains(*c)).collect();
            if near.enforced {
                keep_near(class, detail, want, &mut free);
            }
            let room = whole_granules(&free, granule);
            Socket {
                free,
                room: room.min(near.cpus_of_socket.unwrap_or(u32::MAX)) / granule * granule,
            }
        })
        .collect();
    let counts = (near.sockets > 0).then_some(near.sockets);
    let fits = |set: u64| {
        let of_set = || (0..ranges.len()).filter(move |s| set & (1 << s) != 0);
        let number = set.count_ones();
        let room: u32 = of_set().map(|s| sockets[s].room).sum();
        let each = of_set().all(|s| sockets[s].room >= granule);
        let devices = placed.iter().all(|request| request.covers(set));
        let on_each = by_socket.iter().all(|request| {
            let at = |s: usize| {
                request
                    .devices
                    .iter()
                    .filter(|d| **d & (1 << s) != 0)
                    .count()
            };
            of_set().all(|s| at(s) as u64 >= request.count)
        });
        let ok = each
            && devices
            && on_each
            && counts.is_none_or(|n| n == number)
            && room >= want.cpus
            && want.cpus >= number.saturating_mul(granule);
        ok.then(|| (number, room - want.cpus, set))
    };
    let (.., set) = combinations(ranges.len()).filter_map(fits).min()?;
    let chosen: Vec<&Socket> = (sockets.iter().zip(0..))
        .filter(|(_, s)| set & (1 << s) != 0)
        .map(|(socket, _)| socket)
        .collect();
    Some(take(class, &chosen, want.cpus))
}

/// Chooses CPUs in equal parts, as far as each socket has them.
fn take(class: &NodeClass, sockets: &[&Socket], cpus: u32) -> CpuSet {
    let granule = class.granule.max(1);
    let mut order: Vec<&&Socket> = sockets.iter().collect();
    order.sort_by_key(|socket| socket.room);
    let mut others = u32::try_from(order.len()).unwrap_or(u32::MAX);
    let (mut left, mut out) = (cpus.div_ceil(granule), CpuSet::default());
    for socket in order {
        let part = left.div_ceil(others).min(socket.room / granule);
        let picked = cores::pick(class, &socket.free, part * granule, |_, _| Far::default());
        out.union_with(&picked);
        (left, others) = (left - part, others - 1);
    }
    out
}

/// So many CPUs of all sockets in turn, so many granules each time, the first of them the first; what one does not have
/// the others give.
pub(crate) fn pick_in_turn(
    class: &NodeClass,
    free: &CpuSet,
    cpus: u32,
    each: u32,
    far: impl Fn(u32, u32) -> Far,
) -> CpuSet {
    let granule = class.granule.max(1);
    let mut sockets: Vec<(CpuSet, u32, u32)> = sockets_of(class)
        .into_iter()
        .map(|range| range.filter(|cpu| free.contains(*cpu)).collect())
        .map(|here: CpuSet| (whole_granules(&here, granule) / granule, here))
        .map(|(room, here)| (here, room, 0))
        .collect();
    let mut left = cpus.div_ceil(granule);
    // Whole turns first, then what is left anywhere.
    for each in [each.max(1), 1] {
        let mut before = 0;
        while left != before {
            before = left;
            for (_, room, part) in &mut sockets {
                if *room - *part >= each && left >= each {
                    (*part, left) = (*part + each, left - each);
                }
            }
        }
    }
    let mut out = CpuSet::default();
    for (here, _, part) in sockets.iter().filter(|(.., part)| *part > 0) {
        out.union_with(&cores::pick(class, here, part * granule, &far));
    }
    out
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

/// CPUs of each socket; all in one where they do not divide so.
pub(crate) fn sockets_of(class: &NodeClass) -> Vec<Range<u32>> {
    let count = class.sockets.max(1);
    let width = class.cpus / count;
    let divides = class.cpus.is_multiple_of(count) && width > 0 && count < 64;
    if !divides || !width.is_multiple_of(class.granule.max(1)) {
        return std::iter::once(0..class.cpus).collect();
    }
    (0..count).map(|s| s * width..(s + 1) * width).collect()
}

/// Whether what a node has counts as what is asked for.
pub(crate) fn is_a(entry: &GresCount, request: &GresCount) -> bool {
    entry.serves(&request.name, request.kind.as_deref())
}

/// CPUs next to each free device of a request; absent where that is not known.
fn free_devices<'a>(
    class: &'a NodeClass,
    detail: &'a Detail,
    request: &'a GresCount,
) -> impl Iterator<Item = Option<&'a CpuSet>> {
    let entries = class.gres.iter().enumerate();
    entries
        .filter(move |(_, entry)| is_a(entry, request))
        .flat_map(move |(i, entry)| {
            let used = detail.gres_used.get(i);
            let near = class.near.get(i);
            let free = (0..u32::try_from(entry.count).unwrap_or(u32::MAX))
                .filter(move |id| !used.is_some_and(|used| used.contains(*id)));
            free.map(move |id| near.and_then(|near| near.get(id as usize)))
        })
}

/// `None` where it is not known where the devices are.
fn placed(
    class: &NodeClass,
    detail: &Detail,
    request: &GresCount,
    ranges: &[Range<u32>],
) -> Option<Placed> {
    let known = (class.gres.iter().zip(&class.near))
        .any(|(entry, near)| is_a(entry, request) && !near.is_empty());
    known.then(|| placed_of(class, detail, request, ranges))
}

fn placed_of(
    class: &NodeClass,
    detail: &Detail,
    request: &GresCount,
    ranges: &[Range<u32>],
) -> Placed {
    let at = |near: Option<&CpuSet>| -> u64 {
        let next_to = |range: &Range<u32>| {
            near.is_none_or(|near| range.clone().any(|cpu| near.contains(cpu)))
        };
        let sockets = ranges.iter().zip(0..).filter(|(range, _)| next_to(range));
        sockets.fold(0, |set, (_, s)| set | 1 << s)
    };
    Placed {
        count: request.count,
        devices: free_devices(class, detail, request).map(at).collect(),
    }
}

impl Placed {
    /// Whether so many of them are at these sockets that each of the sockets has one.
    fn covers(&self, set: u64) -> bool {
        let there = self.devices.iter().filter(|at| **at & set != 0);
        let everywhere = self.devices.iter().any(|at| *at & set == set);
        let each = (0..64)
            .filter(|s| set & (1 << s) != 0)
            .all(|s| self.devices.iter().any(|at| *at & (1 << s) != 0));
        let needed = if everywhere { 1 } else { set.count_ones() };
        there.count() as u64 >= self.count && each && self.count >= u64::from(needed)
    }
}

/// Leaves the CPUs that are next to a free device of every request.
fn keep_near(class: &NodeClass, detail: &Detail, want: &Want, free: &mut CpuSet) {
    for request in &want.gres {
        let (mut near, mut known) = (CpuSet::default(), false);
        for cpus in free_devices(class, detail, request) {
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

impl Want {
    /// The devices to take, each next to some of the chosen CPUs.
    pub(crate) fn gres_by_socket(
        &self,
        class: &NodeClass,
        cpus: &CpuSet,
    ) -> Vec<NearbyDevices<'_>> {
        let per_socket = self.near.as_ref().map_or(&[][..], |n| &n.per_socket);
        let enforced = self.near.as_ref().is_some_and(|n| n.enforced);
        let mut parts = Vec::new();
        for request in &self.gres {
            let (name, kind) = (request.name.as_str(), request.kind.as_deref());
            let mut left = request.count;
            let same = |of: &&GresCount| of.name == request.name && of.kind == request.kind;
            let of_socket = per_socket.iter().find(same);
            // Where binding is enforced, each socket has CPUs because of a device there.
            let of_socket = of_socket.map(|of| of.count).or(enforced.then_some(1));
            if let Some(each) = of_socket {
                for range in sockets_of(class) {
                    let here: CpuSet = range.filter(|cpu| cpus.contains(*cpu)).collect();
                    let count = each.min(left);
                    if !here.is_empty() && count > 0 {
                        left -= count;
                        parts.push(NearbyDevices {
                            name,
                            kind,
                            count,
                            cpus: here,
                        });
                    }
                }
            }
            if left > 0 {
                parts.push(NearbyDevices {
                    name,
                    kind,
                    count: left,
                    cpus: cpus.clone(),
                });
            }
        }
        parts
    }
}
