//! Arithmetic of rooms: subtracts the resources of a job from those of a node, in the numbering of
//! the node's class.

use crate::nodes::class::NodeClass;
use crate::nodes::fleet::Fleet;
use crate::nodes::room::{DeviceRoom, NodeLabel, NodeUsers, Room, Want};
use crate::nodes::sockets::is_a;
use muster_model::spec::GPU;

/// `a` without `b`.
pub(crate) fn minus(a: &Room, b: &Room) -> Room {
    let mut left = a.clone();
    take_away(&mut left, b);
    left
}

/// Takes `b` away from a room.
pub(crate) fn take_away(room: &mut Room, b: &Room) {
    room.cpus = match b.exclusive {
        true => 0,
        false => room.cpus.saturating_sub(b.cpus),
    };
    room.mib = room.mib.saturating_sub(b.mib);
    room.jobs += b.jobs;
    room.exclusive |= b.exclusive;
    let gres = room.gres_mut().iter_mut().zip(b.gres());
    gres.for_each(|(a, b)| *a = a.saturating_sub(*b));
}

/// Reduces a room to the minimum of itself and another.
pub(crate) fn narrow(room: &mut Room, spare: &Room) {
    room.cpus = room.cpus.min(spare.cpus);
    room.mib = room.mib.min(spare.mib);
    room.jobs = room.jobs.max(spare.jobs);
    room.exclusive |= spare.exclusive;
    let gres = room.gres_mut().iter_mut().zip(spare.gres());
    gres.for_each(|(a, b)| *a = (*a).min(*b));
}

/// The resources of a share, in the numbering of its node's class.
pub(crate) fn needs_of(fleet: &Fleet, node: u32, want: &Want) -> Room {
    let class = &fleet.classes[fleet.nodes[node as usize].class as usize];
    let consumable = fleet
        .config
        .as_ref()
        .is_some_and(|c| c.memory_is_consumable);
    let devices = (!class.gres.is_empty()).then(|| {
        Box::new(DeviceRoom {
            free: devices_taken(class, want),
            parts_used: Vec::new(),
        })
    });
    Room {
        usable: true,
        cpus: want.cpus,
        mib: if consumable { want.mib } else { 0 },
        jobs: 1,
        // No other label is known to come: nodes held for one are held whole.
        exclusive: want.alone || want.only_user || want.key.label.is_some(),
        devices,
        users: NodeUsers::None,
        by_user: false,
        label: NodeLabel::Any,
    }
}

/// Number of instances that a share takes of each of the class's devices.
fn devices_taken(class: &NodeClass, want: &Want) -> Vec<u32> {
    let mut gres = vec![0u32; class.gres.len()];
    for wanted in &want.gres {
        let mut left = u32::try_from(wanted.count).unwrap_or(u32::MAX);
        for (i, entry) in class.gres.iter().enumerate() {
            if is_a(entry, wanted) {
                let part = left.min(u32::try_from(entry.count).unwrap_or(u32::MAX) - gres[i]);
                gres[i] += part;
                left -= part;
            }
        }
    }
    if !class.parts.is_empty() {
        both_ways(class, &mut gres);
    }
    gres
}

/// A request for whole GPUs may use up all parts; a request for parts may use up a whole GPU.
fn both_ways(class: &NodeClass, needs: &mut [u32]) {
    let is_part = |i: usize| class.parts.get(i).is_some_and(Option::is_some);
    let sum = |of_parts: bool, needs: &[u32]| {
        let all = needs.iter().enumerate();
        let of_kind = all.filter(|(i, _)| match of_parts {
            true => is_part(*i),
            false => class.gres[*i].name == GPU,
        });
        of_kind.map(|(_, n)| *n).max().unwrap_or(0)
    };
    let (whole, parts) = (sum(false, needs), sum(true, needs));
    for (i, n) in needs.iter_mut().enumerate() {
        if is_part(i) && whole > 0 {
            *n = u32::MAX;
        } else if class.gres[i].name == GPU && parts > 0 {
            *n = (*n).max(1);
        }
    }
}
