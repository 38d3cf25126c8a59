//! Generic resources of nodes: how many are free, which are near a job's CPUs, which it gets.

use super::links::best_linked;
use super::{NodeClass, Room, Want};
use muster_model::cpuset::CpuSet;
use muster_model::gpu_parts::{self, Entry, PartedGpu, PartsOfGpus};
use muster_model::job::GresShare;
use std::borrow::Cow;
use std::ops::Range;

/// `SelectTypeParameters` about parts of GPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct PartRule {
    /// Parts of several GPUs of a node make up what a job asks for (`MULTIPLE_SHARING_GRES_PJ`).
    pub(crate) several_gpus: bool,
    /// Of the GPU that has most parts left, rather than fewest (`LL_SHARED_GRES`).
    pub(crate) least_loaded: bool,
}

/// Devices that are unavailable, given those that jobs have.
pub(crate) fn unavailable<'u>(class: &NodeClass, used: &'u [CpuSet]) -> Cow<'u, [CpuSet]> {
    if class.parts.is_empty() {
        return Cow::Borrowed(used);
    }
    let entries: Vec<Entry<'_>> = (class.gres.iter().zip(&class.parts))
        .map(|((name, _, count), parts)| Entry {
            name,
            count: *count,
            parts: parts.as_ref(),
        })
        .collect();
    gpu_parts::unavailable(&entries, used)
}

/// Parts of the GPUs of an entry, where a job has them of one GPU only.
fn parts_of(class: &NodeClass, entry: usize) -> Option<&PartsOfGpus> {
    class.parts.get(entry)?.as_ref()
}

/// Free instances of each entry.
pub(crate) fn gres_room(class: &NodeClass, used: &[CpuSet]) -> Vec<u32> {
    let used = unavailable(class, used);
    let all = class.gres.iter().enumerate();
    all.map(|(i, (_, _, count))| {
        let parts = parts_of(class, i).filter(|_| !class.part_rule.several_gpus);
        let Some(parts) = parts else {
            let count = u32::try_from(*count).unwrap_or(u32::MAX);
            return count.saturating_sub(used.get(i).map_or(0, CpuSet::len));
        };
        let free = parts.gpus().map(|(_, range)| free_in(range, used.get(i)));
        free.max().unwrap_or(0)
    })
    .collect()
}

fn free_in(range: Range<u32>, used: Option<&CpuSet>) -> u32 {
    let taken = |id: &u32| used.is_some_and(|used| used.contains(*id));
    let free = range.filter(|id| !taken(id)).count();
    u32::try_from(free).unwrap_or(u32::MAX)
}

/// Devices come back to a node: instances by the place of their entry.
pub(crate) fn give_back<'h>(
    class: &NodeClass,
    room: &mut Room,
    held: impl Iterator<Item = (usize, &'h CpuSet)>,
) {
    let Some(devices) = &mut room.devices else {
        return;
    };
    if !class.parts.is_empty() {
        for (at, ids) in held {
            if let Some(used) = devices.parts_used.get_mut(at) {
                used.subtract(ids);
            }
        }
        devices.free = gres_room(class, &devices.parts_used);
        return;
    }
    for (at, ids) in held {
        let most = u32::try_from(class.gres[at].2).unwrap_or(u32::MAX);
        devices.free[at] = devices.free[at].saturating_add(ids.len()).min(most);
    }
}

/// Whether a request for these devices is served by one entry alone: parts of one GPU.
pub(crate) fn by_one_entry(class: &NodeClass, name: &str) -> bool {
    !class.part_rule.several_gpus && !class.parts.is_empty() && gpu_parts::is_part(name)
}

/// Whether enough of the wanted devices are free next to these CPUs, as far as the configuration says where they are.
pub(super) fn devices_near(
    class: &NodeClass,
    used: &[CpuSet],
    want: &Want,
    cpus: Range<u32>,
) -> bool {
    let used = unavailable(class, used);
    want.gres.iter().all(|(name, kind, count)| {
        let (mut there, mut placed) = (0u64, false);
        for (i, entry) in class.gres.iter().enumerate() {
            if !is_a(entry, name, kind.as_deref()) {
                continue;
            }
            placed |= !class.near[i].is_empty();
            let free = |id: u32| !used.get(i).is_some_and(|set| set.contains(id));
            let by_id = class.near[i].iter().zip(0u32..);
            there += by_id
                .filter(|(near, id)| free(*id) && cpus.clone().any(|cpu| near.contains(cpu)))
                .count() as u64;
        }
        !placed || there >= *count
    })
}

fn is_a(entry: &(String, Option<String>, u64), name: &str, kind: Option<&str>) -> bool {
    entry.0 == name && (kind.is_none() || kind == entry.1.as_deref())
}

/// Takes instances, those next to the job's CPUs first.
pub(super) fn take_gres(
    class: &NodeClass,
    used: &mut Vec<CpuSet>,
    (name, kind, count): (&str, Option<&str>, u64),
    cpus: &CpuSet,
    out: &mut Vec<GresShare>,
) {
    used.resize(class.gres.len().max(used.len()), CpuSet::default());
    let taken = unavailable(class, used).into_owned();
    let mut free: Vec<(bool, usize, u32)> = Vec::new();
    if !class.parts.is_empty() && gpu_parts::is_part(name) {
        free = free_parts(class, &taken, (name, kind, count), cpus);
    }
    for (i, entry) in class.gres.iter().enumerate() {
        if !is_a(entry, name, kind) || parts_of(class, i).is_some() {
            continue;
        }
        for id in 0..u32::try_from(entry.2).unwrap_or(u32::MAX) {
            let near = class.near.get(i).and_then(|near| near.get(id as usize));
            let far = near.is_some_and(|near| !near.intersects(cpus));
            if !taken[i].contains(id) {
                free.push((far, i, id));
            }
            // Enough of the first are as good as any where nothing says where they are.
            let no_choice = class.near.get(i).is_none_or(Vec::is_empty) && class.links.is_empty();
            if no_choice && free.len() as u64 >= count {
                break;
            }
        }
    }
    // Parts are in the order in which they are to be taken.
    free.sort_by_key(|(far, i, id)| match parts_of(class, *i) {
        Some(_) => (false, 0, 0),
        None => (*far, *i, *id),
    });
    let wanted = usize::try_from(count).unwrap_or(usize::MAX);
    if !class.links.is_empty() {
        free = linked_first(class, free, wanted);
    }
    free.truncate(wanted);
    for (i, (has, has_kind, _)) in class.gres.iter().enumerate() {
        let ids: CpuSet = free
            .iter()
            .filter(|(_, e, _)| *e == i)
            .map(|(.., id)| *id)
            .collect();
        if ids.is_empty() {
            continue;
        }
        if !class.no_consume.get(i).copied().unwrap_or(false) {
            used[i].union_with(&ids);
        }
        let known = (out.iter_mut()).find(|share| share.name == *has && share.kind == *has_kind);
        let share = match known {
            Some(share) => share,
            None => {
                out.push(GresShare {
                    name: has.clone(),
                    kind: has_kind.clone(),
                    first: before(class, i),
                    env: class.gpu_env.get(i).copied().unwrap_or_default(),
                    parted: parted(class, i),
                    ..GresShare::default()
                });
                out.last_mut().expect("it was just put there")
            }
        };
        share.ids.union_with(&ids);
        let near = |id: u32| class.near.get(i)?.get(id as usize).cloned();
        share.near = share.ids.iter().map_while(near).collect();
        let label = |id: u32| class.labels.get(i)?.get(id as usize).cloned();
        share.labels = share.ids.iter().map_while(label).collect();
    }
}

/// Chooses the devices with the best links, after all that are next to the job's CPUs where these do not suffice.
fn linked_first(
    class: &NodeClass,
    free: Vec<(bool, usize, u32)>,
    wanted: usize,
) -> Vec<(bool, usize, u32)> {
    let near = free.iter().filter(|(far, ..)| !far).count();
    let from = if near >= wanted { 0 } else { near };
    let end = if near >= wanted { near } else { free.len() };
    let bare = |list: &[(bool, usize, u32)]| -> Vec<(usize, u32)> {
        list.iter().map(|(_, entry, id)| (*entry, *id)).collect()
    };
    let (fixed, open) = (bare(&free[..from]), bare(&free[from..end]));
    let Some(chosen) = best_linked(class, &fixed, &open, wanted - from) else {
        return free;
    };
    let mut out = free[..from].to_vec();
    out.extend(chosen.into_iter().map(|at| free[from + at]));
    out
}

/// Whether a GPU has fewer free parts than are wanted, whether it is not next to the CPUs, and by how many are left: those
/// that come first are taken first.
type Rank = (bool, bool, i64);

/// Free parts in the order in which a job takes them: next to its CPUs first, then of the GPU that has fewest left but
/// enough.
fn free_parts(
    class: &NodeClass,
    taken: &[CpuSet],
    (name, kind, count): (&str, Option<&str>, u64),
    cpus: &CpuSet,
) -> Vec<(bool, usize, u32)> {
    let mut gpus: Vec<(Rank, usize, Vec<u32>)> = Vec::new();
    for (i, entry) in class.gres.iter().enumerate() {
        let Some(parts) = parts_of(class, i).filter(|_| is_a(entry, name, kind)) else {
            continue;
        };
        for (_, range) in parts.gpus() {
            let near = (class.near.get(i)).and_then(|near| near.get(range.start as usize));
            let far = near.is_some_and(|near| !near.intersects(cpus));
            let free: Vec<u32> = range.filter(|id| !taken[i].contains(*id)).collect();
            let left = i64::try_from(free.len()).unwrap_or(i64::MAX);
            let few = (free.len() as u64) < count;
            let loosest = class.part_rule.least_loaded || few;
            let rank = if loosest { -left } else { left };
            if left > 0 {
                gpus.push(((few, far, rank), i, free));
            }
        }
    }
    gpus.sort_by_key(|(rank, ..)| *rank);
    let all = gpus
        .into_iter()
        .flat_map(|((_, far, _), i, free)| free.into_iter().map(move |id| (far, i, id)));
    all.collect()
}

/// The GPUs of an entry of parts.
fn parted(class: &NodeClass, entry: usize) -> Vec<PartedGpu> {
    let gpus = parts_of(class, entry)
        .into_iter()
        .flat_map(PartsOfGpus::gpus);
    let parted = gpus.map(|(gpu, range)| PartedGpu {
        gpu,
        first: range.start,
        count: range.end - range.start,
    });
    parted.filter(|p| p.count > 0).collect()
}

/// Devices of the same name that come before those of an entry.
fn before(class: &NodeClass, entry: usize) -> u32 {
    let name = &class.gres[entry].0;
    let counts = class.gres[..entry].iter().filter(|(n, ..)| n == name);
    let sum = counts.map(|(.., count)| *count).sum::<u64>();
    u32::try_from(sum).unwrap_or(u32::MAX)
}
