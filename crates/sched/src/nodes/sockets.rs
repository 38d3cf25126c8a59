//! Chooses CPUs of a node for jobs with locality rules: only CPUs on the sockets of their devices,
//! devices on each of a number of sockets, a maximum of tasks per socket. Works on individual CPUs
//! and devices.

mod sets;

use self::sets::Socket;
pub(crate) use self::sets::{SocketNeed, SocketSets};
use crate::nodes::class::{GresCount, NodeClass, whole_granules};
use crate::nodes::cores::{self, ResourceDistance};
use crate::nodes::room::{Detail, NearbyDevices, Nearness, Want};
use muster_model::cpuset::CpuSet;
use std::ops::Range;

/// CPUs for the job; `None` if the node cannot satisfy the rules.
pub(crate) fn choose(
    class: &NodeClass,
    detail: &Detail,
    want: &Want,
    near: &Nearness,
) -> Option<CpuSet> {
    let sets = SocketSets::new(class, detail, &want.gres, near);
    let set = sets.best(&SocketNeed::new(want.cpus, &want.gres))?;
    let chosen: Vec<&Socket> = (sets.sockets.iter().zip(0..))
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
        let picked = cores::pick(class, &socket.free, part * granule, |_, _| {
            ResourceDistance::default()
        });
        out.union_with(&picked);
        (left, others) = (left - part, others - 1);
    }
    out
}

/// Takes CPUs from all sockets in turn, a number of granules each time, beginning with the first
/// socket. If one socket runs out, the others give more.
pub(crate) fn pick_in_turn(
    class: &NodeClass,
    free: &CpuSet,
    cpus: u32,
    each: u32,
    far: impl Fn(u32, u32) -> ResourceDistance,
) -> CpuSet {
    let granule = class.granule.max(1);
    let mut sockets: Vec<(CpuSet, u32, u32)> = sockets_of(class)
        .into_iter()
        .map(|range| range.filter(|cpu| free.contains(*cpu)).collect())
        .map(|here: CpuSet| (whole_granules(&here, granule) / granule, here))
        .map(|(room, here)| (here, room, 0))
        .collect();
    let mut left = cpus.div_ceil(granule);
    // Takes whole turns first, then what remains anywhere.
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

/// CPUs of each socket; one set of all CPUs if they do not divide evenly.
pub(crate) fn sockets_of(class: &NodeClass) -> Vec<Range<u32>> {
    let count = class.sockets.max(1);
    let width = class.cpus / count;
    let divides = class.cpus.is_multiple_of(count) && width > 0 && count < 64;
    if !divides || !width.is_multiple_of(class.granule.max(1)) {
        return std::iter::once(0..class.cpus).collect();
    }
    (0..count).map(|s| s * width..(s + 1) * width).collect()
}

/// Whether the node's resource matches the request.
pub(crate) fn is_a(entry: &GresCount, request: &GresCount) -> bool {
    entry.serves(&request.name, request.kind.as_deref())
}

impl Want {
    /// Chooses the devices, each next to some of the chosen CPUs.
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
            // If binding is enforced, each socket gives CPUs because of a device on it.
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
