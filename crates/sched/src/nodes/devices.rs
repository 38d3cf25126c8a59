//! Generic resources of nodes: how many are free, which are near a job's CPUs, and which of them a
//! job gets.

use crate::nodes::class::{NodeClass, gres_room, parts_of, unavailable};
use crate::nodes::links::{DeviceId, best_linked};
use crate::nodes::room::{NearbyDevices, Room, Want};
use crate::nodes::sockets::is_a;
use muster_model::cpuset::CpuSet;
use muster_model::gpu_parts::{self, PartedGpu, PartsOfGpus};
use muster_model::job::GresShare;
use std::ops::Range;

/// Returns devices to a node. `held`: numbers of instances, by index of the GRES entry.
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
        let most = u32::try_from(class.gres[at].count).unwrap_or(u32::MAX);
        devices.free[at] = devices.free[at].saturating_add(ids.len()).min(most);
    }
}

/// Whether a request for these devices must be served by one entry: parts of one GPU.
pub(crate) fn by_one_entry(class: &NodeClass, name: &str) -> bool {
    !class.part_rule.several_gpus && !class.parts.is_empty() && gpu_parts::is_part(name)
}

/// Whether enough of the requested devices are free next to these CPUs, as far as the configuration
/// states their location.
pub(crate) fn devices_near(
    class: &NodeClass,
    used: &[CpuSet],
    want: &Want,
    cpus: Range<u32>,
) -> bool {
    let used = unavailable(class, used);
    want.gres.iter().all(|wanted| {
        let (mut there, mut placed) = (0u64, false);
        for (i, entry) in class.gres.iter().enumerate() {
            if !is_a(entry, wanted) {
                continue;
            }
            placed |= !class.near[i].is_empty();
            let free = |id: u32| !used.get(i).is_some_and(|set| set.contains(id));
            let by_id = class.near[i].iter().zip(0u32..);
            there += by_id
                .filter(|(near, id)| free(*id) && cpus.clone().any(|cpu| near.contains(cpu)))
                .count() as u64;
        }
        !placed || there >= wanted.count
    })
}

/// A free device.
#[derive(Clone, Copy)]
struct FreeDevice {
    /// The device is not next to the job's CPUs.
    far: bool,
    device: DeviceId,
}

/// Takes instances, those next to the CPUs of `wanted` first.
pub(crate) fn take_gres(
    class: &NodeClass,
    used: &mut Vec<CpuSet>,
    wanted: &NearbyDevices<'_>,
    out: &mut Vec<GresShare>,
) {
    let cpus = &wanted.cpus;
    used.resize(class.gres.len().max(used.len()), CpuSet::default());
    let taken = unavailable(class, used).into_owned();
    let mut free: Vec<FreeDevice> = Vec::new();
    if !class.parts.is_empty() && gpu_parts::is_part(wanted.name) {
        free = free_parts(class, &taken, wanted);
    }
    for (i, entry) in class.gres.iter().enumerate() {
        if !entry.serves(wanted.name, wanted.kind) || parts_of(class, i).is_some() {
            continue;
        }
        for id in 0..u32::try_from(entry.count).unwrap_or(u32::MAX) {
            let near = class.near.get(i).and_then(|near| near.get(id as usize));
            let far = near.is_some_and(|near| !near.intersects(cpus));
            if !taken[i].contains(id) {
                let device = DeviceId { entry: i, id };
                free.push(FreeDevice { far, device });
            }
            // If the location of devices is unknown, the first ones are as good as any.
            let no_choice = class.near.get(i).is_none_or(Vec::is_empty) && class.links.is_empty();
            if no_choice && free.len() as u64 >= wanted.count {
                break;
            }
        }
    }
    // The parts are already in the order in which they are taken.
    free.sort_by_key(|free| match parts_of(class, free.device.entry) {
        Some(_) => (false, DeviceId { entry: 0, id: 0 }),
        None => (free.far, free.device),
    });
    let count = usize::try_from(wanted.count).unwrap_or(usize::MAX);
    if !class.links.is_empty() {
        free = linked_first(class, free, count);
    }
    free.truncate(count);
    for (i, entry) in class.gres.iter().enumerate() {
        let devices = free.iter().map(|free| free.device);
        let of_entry = devices.filter(|device| device.entry == i);
        let ids: CpuSet = of_entry.map(|device| device.id).collect();
        if ids.is_empty() {
            continue;
        }
        if !class.no_consume.get(i).copied().unwrap_or(false) {
            used[i].union_with(&ids);
        }
        let known =
            (out.iter_mut()).find(|share| share.name == entry.name && share.kind == entry.kind);
        let share = match known {
            Some(share) => share,
            None => {
                out.push(GresShare {
                    name: entry.name.clone(),
                    kind: entry.kind.clone(),
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

/// Chooses the devices with the best links, after all devices next to the job's CPUs if those do
/// not suffice.
fn linked_first(class: &NodeClass, free: Vec<FreeDevice>, wanted: usize) -> Vec<FreeDevice> {
    let near = free.iter().filter(|free| !free.far).count();
    let from = if near >= wanted { 0 } else { near };
    let end = if near >= wanted { near } else { free.len() };
    let bare =
        |list: &[FreeDevice]| -> Vec<DeviceId> { list.iter().map(|free| free.device).collect() };
    let (fixed, open) = (bare(&free[..from]), bare(&free[from..end]));
    let Some(chosen) = best_linked(class, &fixed, &open, wanted - from) else {
        return free;
    };
    let mut out = free[..from].to_vec();
    out.extend(chosen.into_iter().map(|at| free[from + at]));
    out
}

/// Order in which parts of GPUs are taken.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct PartsRank {
    /// The GPU has fewer free parts than requested.
    few: bool,
    /// The part is not next to the job's CPUs.
    far: bool,
    /// Number of parts left.
    left: i64,
}

/// Free parts of a GPU.
struct FreeParts {
    rank: PartsRank,
    entry: usize,
    ids: Vec<u32>,
}

/// Free parts in the order in which a job takes them: next to its CPUs first, then from the GPU
/// with the fewest parts that suffice.
fn free_parts(class: &NodeClass, taken: &[CpuSet], wanted: &NearbyDevices<'_>) -> Vec<FreeDevice> {
    let mut gpus: Vec<FreeParts> = Vec::new();
    for (i, entry) in class.gres.iter().enumerate() {
        let serves = entry.serves(wanted.name, wanted.kind);
        let Some(parts) = parts_of(class, i).filter(|_| serves) else {
            continue;
        };
        for (_, range) in parts.gpus() {
            let near = (class.near.get(i)).and_then(|near| near.get(range.start as usize));
            let far = near.is_some_and(|near| !near.intersects(&wanted.cpus));
            let ids: Vec<u32> = range.filter(|id| !taken[i].contains(*id)).collect();
            let left = i64::try_from(ids.len()).unwrap_or(i64::MAX);
            let few = (ids.len() as u64) < wanted.count;
            let loosest = class.part_rule.least_loaded || few;
            if left > 0 {
                let left = if loosest { -left } else { left };
                let rank = PartsRank { few, far, left };
                let entry = i;
                gpus.push(FreeParts { rank, entry, ids });
            }
        }
    }
    gpus.sort_by_key(|gpu| gpu.rank);
    let all = gpus.into_iter().flat_map(|gpu| {
        let (far, entry) = (gpu.rank.far, gpu.entry);
        gpu.ids.into_iter().map(move |id| FreeDevice {
            far,
            device: DeviceId { entry, id },
        })
    });
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

/// Number of devices of the same name before those of an entry.
fn before(class: &NodeClass, entry: usize) -> u32 {
    let name = &class.gres[entry].name;
    let earlier = class.gres[..entry].iter().filter(|gres| gres.name == *name);
    let sum = earlier.map(|gres| gres.count).sum::<u64>();
    u32::try_from(sum).unwrap_or(u32::MAX)
}
