//! Chooses CPUs of a node for a job: in the fewest NUMA domains, on one socket before two, and
//! where the fewest CPUs remain free; whole cores (or sockets) if the site allocates them whole.
//! Pure arithmetic on free CPUs.

use crate::nodes::class::NodeClass;
use muster_model::cpuset::CpuSet;
use std::cmp::Reverse;

/// Free granules of one domain or socket.
#[derive(Clone, Copy, Debug)]
struct FreeGranules {
    place: usize,
    free: u32,
    /// The part of the job's memory and devices that lies in other domains.
    far: ResourceDistance,
}

/// Whether a job's devices and memory are far from some CPUs. Devices count more, because far
/// memory is reachable and only slower.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ResourceDistance {
    pub(crate) devices: bool,
    pub(crate) memory: bool,
}

/// Chooses a number of free CPUs. `far` returns the resources that are not next to a range of CPUs, given by its first
/// CPU and the CPU after its last.
pub(crate) fn pick(
    class: &NodeClass,
    free: &CpuSet,
    cpus: u32,
    far: impl Fn(u32, u32) -> ResourceDistance,
) -> CpuSet {
    let granule = class.granule.max(1);
    if granule == 1 && cpus == free.len() {
        // The job gets all free CPUs.
        return free.clone();
    }
    let want = cpus.div_ceil(granule);
    let (sockets, each, width) = shape(class);
    let whole = |at: &u32| (*at..at + granule).all(|cpu| free.contains(cpu));
    let starts = |domain: usize| {
        let first = u32::try_from(domain).unwrap_or(0) * width;
        let end = (first + width).min(class.cpus);
        (first..end)
            .step_by(granule as usize)
            .filter(move |at| at + granule <= end)
            .filter(&whole)
    };
    let take = |out: &mut CpuSet, domain: usize, number: u32| {
        for at in starts(domain).take(number as usize) {
            (at..at + granule).for_each(|cpu| out.insert(cpu));
        }
    };
    let all = sockets * each;
    let free_of = |place: usize| (place, count(starts(place).count()));
    let far_of = |place: usize| {
        let first = u32::try_from(place).unwrap_or(0) * width;
        match all {
            1 => ResourceDistance::default(),
            _ => far(first, first + width),
        }
    };
    let mut out = CpuSet::default();
    if each == 1 {
        // A socket counts as one domain: a socket with enough CPUs is chosen without building a
        // list of all, which may contain hundreds if the configuration gives only CPU counts.
        let enough = (0..all).map(free_of).filter(|(_, free)| *free >= want);
        let mut ranked = enough.map(|(place, free)| ((far_of(place), free), place));
        if let Some(place) = first_least(&mut ranked, &(ResourceDistance::default(), want)) {
            take(&mut out, place, want);
            return out;
        }
    }
    let part = |(place, free)| FreeGranules {
        place,
        free,
        far: far_of(place),
    };
    let domains: Vec<FreeGranules> = (0..all).map(free_of).map(part).collect();
    let distance = |a: usize, b: usize| {
        let known = class.distances.len() == all * all;
        let at = |a: usize, b: usize| class.distances[a * all + b];
        known.then(|| at(a, b).max(at(b, a)))
    };
    for (domain, number) in spread(&domains, each, want, &distance) {
        take(&mut out, domain, number);
    }
    out
}

/// First item of the lowest rank. Stops early at `least`, the lowest possible rank.
fn first_least<R: Ord, T>(ranked: &mut impl Iterator<Item = (R, T)>, least: &R) -> Option<T> {
    let mut best: Option<(R, T)> = None;
    for (rank, item) in ranked {
        if best.as_ref().is_none_or(|(other, _)| rank < *other) {
            if rank == *least {
                return Some(item);
            }
            best = Some((rank, item));
        }
    }
    best.map(|(_, item)| item)
}

/// Sockets, domains per socket, CPUs per domain. A node whose CPUs do not divide evenly counts as
/// one domain.
fn shape(class: &NodeClass) -> (usize, usize, u32) {
    let (sockets, each) = (class.sockets.max(1), class.numa_per_socket.max(1));
    let divides = |parts: u32| {
        let width = class.cpus / parts;
        let whole = class.cpus.is_multiple_of(parts) && width.is_multiple_of(class.granule.max(1));
        (width > 0 && whole).then_some(width)
    };
    if let Some(width) = divides(sockets.saturating_mul(each)) {
        return (sockets as usize, each as usize, width);
    }
    // A whole socket may be allocated.
    match divides(sockets) {
        Some(width) => (sockets as usize, 1, width),
        None => (1, 1, class.cpus.max(1)),
    }
}

fn count(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

/// Distance between two domains, or sockets, if known.
type Distance<'a> = &'a dyn Fn(usize, usize) -> Option<u32>;

/// Number of granules of each domain.
fn spread(
    domains: &[FreeGranules],
    each: usize,
    want: u32,
    distance: Distance<'_>,
) -> Vec<(usize, u32)> {
    // One socket suffices: take the one that needs the fewest domains, and of these the domains
    // with the fewest CPUs left.
    let one = domains.chunks(each).filter_map(|socket| {
        let chosen = nearest(socket, fewest(socket, want)?, want, distance);
        let far = chosen.iter().map(|d| d.far).max().unwrap_or_default();
        let left = chosen.iter().map(|d| d.free).sum::<u32>() - want;
        let free: u32 = socket.iter().map(|d| d.free).sum();
        Some(((far, chosen.len(), left, free), chosen))
    });
    if let Some((_, chosen)) = one.min_by_key(|(key, _)| *key) {
        return fill(&chosen, want);
    }
    let sockets: Vec<FreeGranules> = domains
        .chunks(each)
        .enumerate()
        .map(|(place, socket)| FreeGranules {
            place,
            free: socket.iter().map(|d| d.free).sum(),
            far: socket.iter().map(|d| d.far).min().unwrap_or_default(),
        })
        .collect();
    let Some(chosen) = fewest(&sockets, want) else {
        // Fewer CPUs are free than assumed; the job gets all of them.
        return domains.iter().map(|d| (d.place, d.free)).collect();
    };
    // The distance of two sockets is that of their nearest domains.
    let between = |a: usize, b: usize| {
        let pairs = (a * each..(a + 1) * each)
            .flat_map(|a| (b * each..(b + 1) * each).map(move |b| (a, b)));
        pairs.filter_map(|(a, b)| distance(a, b)).min()
    };
    let chosen = nearest(&sockets, chosen, want, &between);
    // Takes equal parts, as far as each socket has them.
    let mut parts: Vec<(FreeGranules, u32)> = Vec::new();
    let (mut left, mut others) = (want, count(chosen.len()));
    let mut ascending = chosen;
    ascending.sort_by_key(|s| (s.free, s.place));
    for socket in ascending {
        let part = left.div_ceil(others).min(socket.free);
        parts.push((socket, part));
        (left, others) = (left - part, others - 1);
    }
    parts
        .iter()
        .flat_map(|(socket, part)| {
            let of = &domains[socket.place * each..(socket.place + 1) * each];
            let few = fewest(of, *part).unwrap_or_default();
            fill(&nearest(of, few, *part, distance), *part)
        })
        .collect()
}

/// The fewest parts that together have enough free granules, near ones first; the last is the
/// smallest that suffices.
fn fewest(parts: &[FreeGranules], want: u32) -> Option<Vec<FreeGranules>> {
    let mut order: Vec<FreeGranules> = parts.iter().filter(|p| p.free > 0).copied().collect();
    order.sort_by_key(|p| (p.far, Reverse(p.free), p.place));
    let mut chosen: Vec<FreeGranules> = Vec::new();
    let mut left = want;
    while left > 0 {
        let enough = order.iter().enumerate().filter(|(_, p)| p.free >= left);
        let tightest = enough.min_by_key(|(_, p)| (p.far, p.free, p.place));
        if let Some((_, last)) = tightest {
            chosen.push(*last);
            return Some(chosen);
        }
        if order.is_empty() {
            return None;
        }
        let part = order.remove(0);
        left -= part.free;
        chosen.push(part);
    }
    Some(chosen)
}

/// Number of parts up to which all combinations are compared by distance.
const COMPARED_MAX: usize = 12;

/// As many parts as were chosen, but those nearest to each other; the choice itself if distances
/// are unknown or make no difference.
fn nearest(
    parts: &[FreeGranules],
    chosen: Vec<FreeGranules>,
    want: u32,
    distance: Distance<'_>,
) -> Vec<FreeGranules> {
    let count = chosen.len();
    if count < 2 || parts.len() <= count || parts.len() > COMPARED_MAX {
        return chosen;
    }
    let apart = |of: &[FreeGranules]| -> Option<u64> {
        let pairs = (0..of.len()).flat_map(|a| (0..a).map(move |b| (a, b)));
        pairs
            .map(|(a, b)| distance(of[a].place, of[b].place).map(u64::from))
            .sum()
    };
    let Some(as_chosen) = apart(&chosen) else {
        return chosen;
    };
    let far = |of: &[FreeGranules]| of.iter().map(|p| p.far).max();
    let sets = (1u32..1 << parts.len()).filter(|set| set.count_ones() as usize == count);
    let candidates = sets.filter_map(|set| {
        let members = parts
            .iter()
            .enumerate()
            .filter(|(i, _)| set & (1 << i) != 0);
        let mut of: Vec<FreeGranules> = members.map(|(_, part)| *part).collect();
        let free: u32 = of.iter().map(|p| p.free).sum();
        if free < want || of.iter().any(|p| p.free == 0) {
            return None;
        }
        of.sort_by_key(|p| (Reverse(p.free), p.place));
        Some(((far(&of), apart(&of)?, free - want), of))
    });
    let best = candidates.min_by_key(|(key, _)| *key);
    match best {
        Some(((as_far, sum, _), of)) if (as_far, sum) < (far(&chosen), as_chosen) => of,
        _ => chosen,
    }
}

/// All of each part except the last.
fn fill(parts: &[FreeGranules], want: u32) -> Vec<(usize, u32)> {
    let mut left = want;
    let mut out = Vec::new();
    for part in parts {
        let taken = part.free.min(left);
        out.push((part.place, taken));
        left -= taken;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Two sockets of four domains of four cores, as on an EPYC 7351.
    fn epyc() -> NodeClass {
        NodeClass {
            cpus: 32,
            granule: 1,
            threads_per_core: 1,
            cores_per_socket: 16,
            sockets: 2,
            numa_per_socket: 4,
            ..NodeClass::default()
        }
    }

    fn without(class: &NodeClass, taken: &[u32]) -> CpuSet {
        (0..class.cpus).filter(|cpu| !taken.contains(cpu)).collect()
    }

    fn picked(taken: &[u32], cpus: u32) -> Vec<u32> {
        let class = epyc();
        pick(&class, &without(&class, taken), cpus, |_, _| {
            ResourceDistance::default()
        })
        .iter()
        .collect()
    }

    #[test]
    fn nothing_is_looked_at_after_what_cannot_be_beaten() {
        let looked = std::cell::Cell::new(0);
        let mut ranked = [5, 3, 4, 3, 1, 2, 1]
            .into_iter()
            .enumerate()
            .map(|(at, rank)| {
                looked.set(looked.get() + 1);
                (rank, at)
            });
        assert_eq!(first_least(&mut ranked, &1), Some(4));
        assert_eq!(looked.get(), 5);
        // Without distances, the first of the smallest.
        let mut ranked = [(5, 'a'), (3, 'b'), (4, 'c'), (3, 'd')].into_iter();
        assert_eq!(first_least(&mut ranked, &1), Some('b'));
        assert_eq!(first_least(&mut std::iter::empty::<(u32, ())>(), &1), None);
    }

    #[test]
    fn a_small_job_takes_the_tightest_domain() {
        // Domain 0 has two cores left, domain 1 three.
        assert_eq!(picked(&[0, 1, 4], 2), [2, 3]);
        assert_eq!(picked(&[0, 1, 4], 3), [5, 6, 7]);
        assert_eq!(picked(&[0, 1, 4], 4), [8, 9, 10, 11]);
    }

    #[test]
    fn more_takes_the_fewest_domains_of_one_socket() {
        assert_eq!(picked(&[], 8), (0..8).collect::<Vec<_>>());
        // The first socket has six cores left in three domains, the second has whole domains.
        let taken: Vec<u32> = vec![0, 1, 4, 5, 8, 9, 12, 13, 14, 15];
        assert_eq!(picked(&taken, 6), [16, 17, 18, 19, 20, 21]);
        assert_eq!(picked(&[], 16), (0..16).collect::<Vec<_>>());
    }

    #[test]
    fn what_needs_both_sockets_takes_equal_parts() {
        let expected: Vec<u32> = (0..12).chain(16..28).collect();
        assert_eq!(picked(&[], 24), expected);
    }

    #[test]
    fn devices_draw_their_jobs() {
        let class = epyc();
        let far = |first, _| ResourceDistance {
            devices: first != 20,
            memory: false,
        };
        let chosen = pick(&class, &without(&class, &[]), 2, far);
        assert_eq!(chosen.iter().collect::<Vec<_>>(), [20, 21]);
    }

    /// As many sockets as CPUs, as in a configuration that only gives `CPUs`.
    fn counted(cpus: u32) -> NodeClass {
        NodeClass {
            cpus,
            granule: 1,
            threads_per_core: 1,
            cores_per_socket: 1,
            sockets: cpus,
            numa_per_socket: 1,
            ..NodeClass::default()
        }
    }

    #[test]
    fn cpus_that_are_only_counted_are_taken_in_order() {
        let class = counted(512);
        let mut free = CpuSet::first(512);
        (0..70).for_each(|cpu| free.remove(cpu));
        let chosen = |n| pick(&class, &free, n, |_, _| ResourceDistance::default());
        assert_eq!(chosen(1).iter().collect::<Vec<_>>(), [70]);
        assert_eq!(chosen(3).iter().collect::<Vec<_>>(), [70, 71, 72]);
        let near = |first, _| ResourceDistance {
            devices: first != 300,
            memory: false,
        };
        let beside = pick(&class, &free, 1, near);
        assert_eq!(beside.iter().collect::<Vec<_>>(), [300]);
    }

    /// Four sockets of four cores in a ring: the second and the third are neighbours of the first and the fourth.
    fn ring() -> NodeClass {
        let (near, far) = (16, 24);
        let rows = [
            [10, near, near, far],
            [near, 10, far, near],
            [near, far, 10, near],
            [far, near, near, 10],
        ];
        NodeClass {
            cpus: 16,
            granule: 1,
            threads_per_core: 1,
            cores_per_socket: 4,
            sockets: 4,
            numa_per_socket: 1,
            distances: rows.concat(),
            ..NodeClass::default()
        }
    }

    #[test]
    fn of_several_sockets_those_that_are_near_each_other() {
        let class = ring();
        let picked = |taken: &[u32], cpus| -> Vec<u32> {
            let chosen = pick(&class, &without(&class, taken), cpus, |_, _| {
                ResourceDistance::default()
            });
            chosen.iter().collect()
        };
        assert_eq!(picked(&[4], 8), [0, 1, 2, 3, 8, 9, 10, 11]);
        // The first is in use; the second and the third are far from each other.
        assert_eq!(picked(&[0, 1, 2, 3], 8), [4, 5, 6, 7, 12, 13, 14, 15]);
        assert_eq!(picked(&[4, 5, 8, 9], 6), [0, 1, 2, 3, 6, 7]);
    }

    proptest! {
        #[test]
        fn as_few_sockets_and_domains_as_can_be(
            taken in proptest::collection::vec(0u32..32, 0..28),
            cpus in 1u32..33,
        ) {
            let class = epyc();
            let free = without(&class, &taken);
            prop_assume!(free.len() >= cpus);
            let chosen = pick(&class, &free, cpus, |_, _| ResourceDistance::default());
            prop_assert_eq!(chosen.len(), cpus);
            prop_assert!(free.is_superset(&chosen));
            let of = |set: u32| (0..8).filter(move |d| set & (1 << d) != 0);
            let room = |set: u32| of(set).map(|d| (d * 4..d * 4 + 4).filter(|c| free.contains(*c)).count()).sum::<usize>();
            let sockets = |set: u32| u32::from(set & 0x0f != 0) + u32::from(set & 0xf0 != 0);
            let all = (1u32..256).filter(|set| room(*set) >= cpus as usize);
            let best = all.map(|set| (sockets(set), set.count_ones())).min().unwrap();
            let used = chosen.iter().fold(0u32, |set, cpu| set | 1 << (cpu / 4));
            prop_assert_eq!(sockets(used), best.0);
            if best.0 == 1 {
                prop_assert_eq!(used.count_ones(), best.1);
            }
            if best.1 == 1 {
                let tightest = (0..8).map(|d| room(1 << d)).filter(|n| *n >= cpus as usize).min();
                prop_assert_eq!(Some(room(used)), tightest);
            }
        }
    }
}
