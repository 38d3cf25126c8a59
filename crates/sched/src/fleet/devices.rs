//! Generic resources of nodes: how many are free, which are near a job's CPUs, which it gets.

use super::{NodeClass, Want};
use muster_core::cpuset::CpuSet;
use muster_core::job::GresShare;
use std::ops::Range;

pub(super) fn gres_room(class: &NodeClass, used: &[CpuSet]) -> Vec<u32> {
    class
        .gres
        .iter()
        .enumerate()
        .map(|(i, (_, _, count))| {
            let count = u32::try_from(*count).unwrap_or(u32::MAX);
            count.saturating_sub(used.get(i).map_or(0, CpuSet::len))
        })
        .collect()
}

/// Whether enough of the wanted devices are free next to these CPUs, as far as the configuration says where they are.
pub(super) fn devices_near(
    class: &NodeClass,
    used: &[CpuSet],
    want: &Want,
    cpus: Range<u32>,
) -> bool {
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
    let mut free: Vec<(bool, usize, u32)> = Vec::new();
    for (i, entry) in class.gres.iter().enumerate() {
        if !is_a(entry, name, kind) {
            continue;
        }
        for id in 0..u32::try_from(entry.2).unwrap_or(u32::MAX) {
            let near = class.near.get(i).and_then(|near| near.get(id as usize));
            let far = near.is_some_and(|near| !near.intersects(cpus));
            if !used[i].contains(id) {
                free.push((far, i, id));
            }
            // Enough of the first are as good as any where nothing says where they are.
            if class.near.get(i).is_none_or(Vec::is_empty) && free.len() as u64 >= count {
                break;
            }
        }
    }
    free.sort_unstable();
    free.truncate(usize::try_from(count).unwrap_or(usize::MAX));
    for (i, (has, has_kind, _)) in class.gres.iter().enumerate() {
        let ids: CpuSet = free
            .iter()
            .filter(|(_, e, _)| *e == i)
            .map(|(.., id)| *id)
            .collect();
        if ids.is_empty() {
            continue;
        }
        used[i].union_with(&ids);
        let known = (out.iter_mut()).find(|share| share.name == *has && share.kind == *has_kind);
        let share = match known {
            Some(share) => share,
            None => {
                out.push(GresShare {
                    name: has.clone(),
                    kind: has_kind.clone(),
                    first: before(class, i),
                    env: class.gpu_env.get(i).copied().unwrap_or_default(),
                    ..GresShare::default()
                });
                out.last_mut().expect("it was just put there")
            }
        };
        share.ids.union_with(&ids);
        let near = |id: u32| class.near.get(i)?.get(id as usize).cloned();
        share.near = share.ids.iter().map_while(near).collect();
    }
}

/// Devices of the same name that come before those of an entry.
fn before(class: &NodeClass, entry: usize) -> u32 {
    let name = &class.gres[entry].0;
    let counts = class.gres[..entry].iter().filter(|(n, ..)| n == name);
    let sum = counts.map(|(.., count)| *count).sum::<u64>();
    u32::try_from(sum).unwrap_or(u32::MAX)
}
