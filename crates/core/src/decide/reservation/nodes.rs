//! Which nodes and cores a reservation gets.

use super::super::draft::Draft;
use super::super::target;
use super::feature_request::FeatureRequest;
use crate::state::State;
use muster_model::command::ReservationAsk;
use muster_model::config::PartitionConfig;
use muster_model::cpuset::CpuSet;
use muster_model::ids::NodeIdx;
use muster_model::node::Node;
use muster_model::refusal::{Refusal, RefusalCode};
use muster_model::reservation::{Flags, Reservation};
use muster_model::time::Timestamp;
use std::ops::Range;

/// Chooses what a new reservation asks for.
pub(super) fn choose(
    draft: &Draft<'_>,
    new: &mut Reservation,
    ask: &ReservationAsk,
) -> Result<(), Refusal> {
    let wanted = FeatureRequest::of(draft.state, new)?;
    if let Some(text) = ask.nodes.as_deref().filter(|text| !text.is_empty()) {
        if is_all(text) && new.partition.is_some() && new.made_by.is_none() {
            new.flags = new.flags.with(Flags::PART_NODES);
        }
        return named(draft, new, ask, text);
    }
    if new.flags.has(Flags::PART_NODES) {
        return Err(Refusal::new(RefusalCode::InvalidNode, NEEDS_ALL));
    }
    let cores: u32 = ask.core_counts.iter().sum();
    if new.flags.has(Flags::ANY_NODES) && new.licenses.is_none() {
        return Err(Refusal::new(
            RefusalCode::InvalidLicense,
            "ANY_NODES is for reservations of licenses; add Licenses=",
        ));
    }
    // A reservation of licenses alone: its jobs run on any nodes.
    if new.licenses.is_some() && ask.node_count.unwrap_or(0) == 0 && cores == 0 {
        new.flags = new.flags.with(Flags::ANY_NODES);
        new.partition = ask.partition.clone();
        new.node_count = Some(0);
        set_nodes(draft.state, new, Vec::new());
        return Ok(());
    }
    let partition = partition_of(draft.state, new)?;
    new.partition = Some(partition.name.clone());
    let count = match (ask.node_count, cores) {
        (Some(0) | None, 0) => {
            // All of the partition, if only that is named.
            if ask.partition.as_deref().is_none_or(str::is_empty) {
                return Err(Refusal::new(
                    RefusalCode::NodeConfigUnavailable,
                    "a reservation needs Nodes, NodeCnt, CoreCnt or PartitionName",
                ));
            }
            let replacing = Flags::REPLACE.with(Flags::REPLACE_DOWN);
            if new.features.is_none() && !new.flags.has(replacing) && new.made_by.is_none() {
                new.flags = new.flags.with(Flags::PART_NODES);
                return named(draft, new, ask, ALL);
            }
            let nodes = indices_of(draft.state, &partition.nodes).into_iter();
            let nodes: Vec<&Node> = nodes.filter_map(|idx| draft.node(idx)).collect();
            let most = wanted.find(|fits| Some(nodes.iter().filter(|n| fits(n)).count()));
            u32::try_from(most.unwrap_or(0)).unwrap_or(u32::MAX)
        }
        (count, _) => count.unwrap_or(0),
    };
    if cores > 0 {
        return by_cores(draft, new, ask, count, &wanted);
    }
    let picked = pick(draft, new, &wanted, count as usize, &[])?;
    new.node_count = u32::try_from(picked.len()).ok();
    set_nodes(draft.state, new, picked);
    Ok(())
}

/// Chooses anew what a changed reservation asks for; `moved` when its times are other ones.
pub(super) fn rechoose(
    draft: &Draft<'_>,
    new: &mut Reservation,
    ask: &ReservationAsk,
    moved: bool,
) -> Result<(), Refusal> {
    if !ask.core_counts.is_empty()
        || (new.by_core && (ask.nodes.is_some() || ask.node_count.is_some()))
    {
        return Err(RefusalCode::CoreReservationUpdate.into());
    }
    follow_partition(new, ask)?;
    match (ask.nodes.as_deref(), ask.node_count) {
        (Some(text), None) if !text.is_empty() => {
            new.node_count = None;
            named(draft, new, ask, text)
        }
        (nodes, count) => {
            let named = nodes.filter(|text| !text.is_empty());
            let wanted = count.or(nodes.map(|_| u32::try_from(new.nodes.len()).unwrap_or(0)));
            let Some(wanted) = wanted else {
                return if moved {
                    check_overlap(draft, new)
                } else {
                    Ok(())
                };
            };
            let mut keep: Vec<NodeIdx> = new.nodes.iter().map(|n| n.node).collect();
            if let Some(text) = named {
                keep = indices(draft.state, new, text)?;
            } else if nodes.is_some() {
                new.flags = new.flags.without(Flags::SPEC_NODES);
                keep.clear();
            }
            keep.truncate(wanted as usize);
            if new.partition.is_none() && keep.len() < wanted as usize {
                new.partition = Some(partition_of(draft.state, new)?.name.clone());
            }
            let features = FeatureRequest::of(draft.state, new)?;
            let picked = pick(draft, new, &features, wanted as usize, &keep)?;
            new.node_count = u32::try_from(picked.len()).ok();
            set_nodes(draft.state, new, picked);
            Ok(())
        }
    }
}

/// Whether a changed reservation has the nodes of its partition from now on (`PART_NODES`). Other nodes end that.
fn follow_partition(new: &mut Reservation, ask: &ReservationAsk) -> Result<(), Refusal> {
    let named = ask.nodes.as_deref().filter(|text| !text.is_empty());
    if !ask.flags.has(Flags::PART_NODES) {
        if named.is_some_and(|text| !is_all(text)) {
            new.flags = new.flags.without(Flags::PART_NODES);
        }
        return Ok(());
    }
    let code = match &new.partition {
        None => RefusalCode::InvalidPartition,
        Some(_) if named.is_some_and(is_all) => return Ok(()),
        Some(_) => RefusalCode::InvalidNode,
    };
    Err(Refusal::new(code, NEEDS_ALL))
}

const ALL: &str = "ALL";
const NEEDS_ALL: &str = "PART_NODES needs PartitionName= and Nodes=ALL";

fn is_all(text: &str) -> bool {
    text.eq_ignore_ascii_case(ALL)
}

/// Nodes for those of a replaceable reservation that are of no use, as far as there are any.
pub(super) fn replacements(draft: &Draft<'_>, known: &Reservation) -> Option<Vec<NodeIdx>> {
    let of_use = |idx: &NodeIdx| {
        draft.node(*idx).is_some_and(|node| {
            node.is_usable() && (node.jobs.is_empty() || !known.flags.has(Flags::REPLACE))
        })
    };
    let all: Vec<NodeIdx> = known.nodes.iter().map(|n| n.node).collect();
    let good: Vec<NodeIdx> = all.iter().copied().filter(of_use).collect();
    let wanted = known.node_count? as usize;
    if good.len() == wanted && all.len() == wanted {
        return None;
    }
    // Nodes that run jobs of it stay until others take their place.
    let fresh = candidates(draft, known)
        .into_iter()
        .filter(|idx| !all.contains(idx) && of_use(idx))
        .filter(|idx| draft.node(*idx).is_some_and(|node| node.jobs.is_empty()));
    let rest = all.iter().copied().filter(|idx| !good.contains(idx));
    let order: Vec<&Node> = good
        .iter()
        .copied()
        .chain(fresh)
        .chain(rest)
        .filter_map(|idx| draft.node(idx))
        .collect();
    // Features of nodes may have changed since it was made.
    let features = FeatureRequest::of(draft.state, known).ok()?;
    let mut picked = features.choose(&order, wanted)?;
    picked.sort_unstable();
    (picked != all).then_some(picked)
}

/// Takes over nodes, whole.
pub(super) fn set_nodes(state: &State, new: &mut Reservation, nodes: Vec<NodeIdx>) {
    new.set_nodes(nodes.into_iter().filter_map(|idx| state.node(idx)));
}

fn named(
    draft: &Draft<'_>,
    new: &mut Reservation,
    ask: &ReservationAsk,
    text: &str,
) -> Result<(), Refusal> {
    let replacing = Flags::REPLACE.with(Flags::REPLACE_DOWN);
    if new.flags.has(replacing) {
        return Err(Refusal::new(
            RefusalCode::InvalidNode,
            "REPLACE and REPLACE_DOWN go with NodeCnt, not with Nodes",
        ));
    }
    let all = is_all(text);
    if new.flags.has(Flags::PART_NODES) && !(all && new.partition.is_some()) {
        return Err(Refusal::new(RefusalCode::InvalidNode, NEEDS_ALL));
    }
    let mut nodes = indices(draft.state, new, text)?;
    if let Some(count) = ask.node_count {
        nodes.truncate(count as usize);
    }
    new.flags = new.flags.with(Flags::SPEC_NODES);
    set_nodes(draft.state, new, nodes);
    if !ask.core_counts.is_empty() {
        let each = cores_of_each(&ask.core_counts, new.nodes.len())?;
        new.by_core = true;
        for (i, cores) in each.into_iter().enumerate() {
            let idx = new.nodes[i].node;
            let cpus = cores_on(draft, new, idx, cores).ok_or(RefusalCode::NodesBusy)?;
            new.nodes[i].cpus = Some(cpus);
        }
    }
    check_overlap(draft, new)?;
    check_jobs(draft, new)
}

/// Cores of each of the named nodes: one number for each, or one for all of them together.
fn cores_of_each(asked: &[u32], nodes: usize) -> Result<Vec<u32>, Refusal> {
    if let ([total], Ok(count @ 1..)) = (asked, u32::try_from(nodes))
        && *total >= count
    {
        return Ok(spread(*total, count).collect());
    }
    match asked.len() == nodes {
        true => Ok(asked.to_vec()),
        false => Err(RefusalCode::CoreCounts.into()),
    }
}

/// As many on each, and one more on the first ones if that leaves some.
fn spread(total: u32, count: u32) -> impl Iterator<Item = u32> {
    (0..count).map(move |i| total / count + u32::from(i < total % count))
}

/// Chooses that many cores, over `count` nodes if that is not zero.
fn by_cores(
    draft: &Draft<'_>,
    new: &mut Reservation,
    ask: &ReservationAsk,
    count: u32,
    wanted: &FeatureRequest,
) -> Result<(), Refusal> {
    if wanted.counts() {
        return Err(Refusal::new(
            RefusalCode::InvalidFeature,
            "Features= with counts of nodes does not go with CoreCnt",
        ));
    }
    new.by_core = true;
    let total: u32 = ask.core_counts.iter().sum();
    let each = if ask.core_counts.len() > 1 {
        if ask.core_counts.len() != count as usize {
            return Err(RefusalCode::CoreCounts.into());
        }
        ask.core_counts.clone()
    } else if count > 0 {
        spread(total, count).collect()
    } else {
        Vec::new()
    };
    let all = candidates(draft, new);
    let mut taken = wanted
        .find(|fits| {
            let fits = |idx: &NodeIdx| draft.node(*idx).is_some_and(fits);
            let nodes = all.iter().copied().filter(fits);
            let nodes: Vec<NodeIdx> = nodes.collect();
            let of = |is_in_order| {
                let counts = CoreCounts {
                    each: &each,
                    is_in_order,
                    total,
                };
                cores_of_nodes(draft, new, &nodes, &counts)
            };
            of(true).or_else(|| of(false))
        })
        .ok_or(RefusalCode::NodesBusy)?;
    taken.sort_unstable_by_key(|(idx, _)| *idx);
    set_nodes(
        draft.state,
        new,
        taken.iter().map(|(idx, _)| *idx).collect(),
    );
    for (entry, (_, cpus)) in new.nodes.iter_mut().zip(taken) {
        entry.cpus = Some(cpus);
    }
    Ok(())
}

/// Numbers of cores that a reservation is to have.
struct CoreCounts<'c> {
    /// Cores of one node each; none where nodes give as many as they have.
    each: &'c [u32],
    /// The first number is of the first node that has as many, and so on.
    is_in_order: bool,
    /// Cores of all nodes.
    total: u32,
}

/// So many cores of these nodes.
fn cores_of_nodes(
    draft: &Draft<'_>,
    new: &Reservation,
    nodes: &[NodeIdx],
    counts: &CoreCounts<'_>,
) -> Option<Vec<(NodeIdx, CpuSet)>> {
    let each = counts.each;
    let mut of_nodes = each.to_vec();
    if !counts.is_in_order {
        of_nodes.sort_unstable();
    }
    let mut taken = Vec::new();
    let mut left = counts.total;
    for &idx in nodes {
        if left == 0 && of_nodes.is_empty() {
            break;
        }
        let free = free_cores(draft, new, idx);
        let most = u32::try_from(free.len()).unwrap_or(u32::MAX);
        let cores = match each.is_empty() {
            true => left.min(most),
            false => {
                let fits = |cores: &u32| *cores <= most;
                let at = match counts.is_in_order {
                    // The largest: smaller ones fit wherever it does.
                    false => of_nodes.iter().rposition(fits),
                    true => of_nodes.first().filter(|cores| fits(cores)).map(|_| 0),
                };
                match at {
                    Some(at) => of_nodes.remove(at),
                    None => continue,
                }
            }
        };
        if cores > 0 || !each.is_empty() {
            left = left.saturating_sub(cores);
            taken.push((idx, first_cores(free, cores)));
        }
    }
    (left == 0 && of_nodes.is_empty()).then_some(taken)
}

/// Cores of a partition's nodes, used or not.
pub(super) fn cores_of_partition(draft: &Draft<'_>, partition: &PartitionConfig) -> u32 {
    let nodes = indices_of(draft.state, &partition.nodes);
    let nodes = nodes.into_iter().filter_map(|idx| draft.node(idx));
    let cores = nodes.map(|node| node.config.cpus / threads_of(&node.config));
    cores.fold(0, u32::saturating_add)
}

/// CPUs of one core.
fn threads_of(config: &muster_model::node::NodeConfig) -> u32 {
    let cores = config
        .sockets
        .max(1)
        .saturating_mul(config.cores_per_socket.max(1));
    let threads = config.threads_per_core.max(1);
    if config.cpus == cores.saturating_mul(threads) {
        threads
    } else {
        1
    }
}

/// The CPUs of this number of cores of a node that nobody has at that time.
fn cores_on(draft: &Draft<'_>, new: &Reservation, idx: NodeIdx, cores: u32) -> Option<CpuSet> {
    let free = free_cores(draft, new, idx);
    (free.len() >= cores as usize).then(|| first_cores(free, cores))
}

fn first_cores(free: Vec<Range<u32>>, cores: u32) -> CpuSet {
    let mut out = CpuSet::default();
    let cpus = free.into_iter().take(cores as usize).flatten();
    cpus.for_each(|cpu| out.insert(cpu));
    out
}

/// The cores of a node that nobody has at that time, each as its CPUs; only those before the first that somebody has where
/// the reservation is of first cores.
fn free_cores(draft: &Draft<'_>, new: &Reservation, idx: NodeIdx) -> Vec<Range<u32>> {
    let Some(node) = draft.node(idx) else {
        return Vec::new();
    };
    let mut free = CpuSet::first(node.config.cpus);
    for other in rivals(draft, new, idx) {
        if let Some(cpus) = other.cpus_on(idx, node.config.cpus) {
            free.subtract(&cpus);
        }
    }
    if !new.flags.has(Flags::IGNORE_JOBS) {
        for share in running(draft, new.start, node) {
            free.subtract(share);
        }
    }
    let threads = threads_of(&node.config);
    let all = (0..node.config.cpus / threads).map(|core| core * threads..(core + 1) * threads);
    let is_free = |cpus: &Range<u32>| cpus.clone().all(|cpu| free.contains(cpu));
    match new.flags.has(Flags::FIRST_CORES) {
        true => all.take_while(is_free).collect(),
        false => all.filter(is_free).collect(),
    }
}

/// Other reservations on a node at the same time that do not share it.
fn rivals<'d>(
    draft: &'d Draft<'_>,
    new: &'d Reservation,
    idx: NodeIdx,
) -> impl Iterator<Item = &'d Reservation> {
    let alone = move |other: &&Reservation| !new.overlaps_others() && !other.overlaps_others();
    beside(draft, new, idx).filter(alone)
}

/// Other reservations on a node at the same time.
fn beside<'d>(
    draft: &'d Draft<'_>,
    new: &'d Reservation,
    idx: NodeIdx,
) -> impl Iterator<Item = &'d Reservation> {
    let all = draft.state.reservations.on_node(idx);
    all.filter(move |other| other.name != new.name && collide(draft.now, new, other))
}

/// Whether two reservations are at the same time, repetitions included.
fn collide(now: Timestamp, a: &Reservation, b: &Reservation) -> bool {
    a.occurrences(now)
        .any(|(start, end)| b.meets(now, start, end))
        || b.occurrences(now)
            .any(|(start, end)| a.meets(now, start, end))
}

/// CPUs on a node of jobs that may still run at `start`.
fn running<'d>(
    draft: &'d Draft<'_>,
    start: Timestamp,
    node: &'d Node,
) -> impl Iterator<Item = &'d CpuSet> {
    node.jobs.iter().filter_map(move |id| {
        let job = draft.job(*id)?;
        let over = draft.state.limit_end(job).is_some_and(|end| end <= start);
        let nodes = &job.alloc.as_ref()?.nodes;
        let place = nodes.binary_search_by_key(&node.idx, |share| share.node);
        let share = nodes.get(place.ok()?)?;
        (!over && !job.completing).then_some(&share.cpus)
    })
}

fn check_overlap(draft: &Draft<'_>, new: &Reservation) -> Result<(), Refusal> {
    for entry in &new.nodes {
        let cpus = draft.node(entry.node).map_or(0, |n| n.config.cpus);
        let mine = new.cpus_on(entry.node, cpus).unwrap_or_default();
        for other in rivals(draft, new, entry.node) {
            if other
                .cpus_on(entry.node, cpus)
                .is_some_and(|c| c.intersects(&mine))
            {
                return Err(Refusal::new(
                    RefusalCode::ReservationOverlap,
                    format!(
                        "reservation {} has node {} at that time",
                        other.name, entry.name
                    ),
                ));
            }
        }
    }
    Ok(())
}

fn check_jobs(draft: &Draft<'_>, new: &Reservation) -> Result<(), Refusal> {
    if new.flags.has(Flags::IGNORE_JOBS.with(Flags::MAINT)) {
        return Ok(());
    }
    for entry in new.nodes.iter().filter(|entry| entry.cpus.is_none()) {
        let Some(node) = draft.node(entry.node) else {
            continue;
        };
        if running(draft, new.start, node).next().is_some() {
            return Err(Refusal::new(
                RefusalCode::NodesBusy,
                format!(
                    "jobs on node {} may run into the reservation; use Flags=IGNORE_JOBS if that does not matter",
                    entry.name
                ),
            ));
        }
    }
    Ok(())
}

/// So many nodes, or as many as the features count, `keep` among them if they serve, those without jobs first.
fn pick(
    draft: &Draft<'_>,
    new: &Reservation,
    wanted: &FeatureRequest,
    count: usize,
    keep: &[NodeIdx],
) -> Result<Vec<NodeIdx>, Refusal> {
    let partition = partition_of(draft.state, new)?;
    let nodes =
        |all: &[NodeIdx]| -> Vec<&Node> { all.iter().filter_map(|idx| draft.node(*idx)).collect() };
    if wanted
        .choose(&nodes(&indices_of(draft.state, &partition.nodes)), count)
        .is_none()
    {
        let features = new.features.as_deref();
        let with = features.map_or_else(String::new, |f| format!(" with Features={f}"));
        return Err(Refusal::new(
            RefusalCode::NodeConfigUnavailable,
            format!(
                "partition {} does not have {count} nodes{with}",
                partition.name
            ),
        ));
    }
    let free = candidates(draft, new);
    let others = free.iter().copied().filter(|idx| !keep.contains(idx));
    let order: Vec<NodeIdx> = keep.iter().copied().chain(others).collect();
    let mut picked = wanted.choose(&nodes(&order), count).ok_or_else(|| {
        Refusal::new(
            RefusalCode::NodesBusy,
            format!("{} nodes are free for the reservation", order.len()),
        )
    })?;
    picked.sort_unstable();
    Ok(picked)
}

/// Nodes of the partition that may be reserved, the best first: idle ones, then by weight. None that a reservation has
/// which would bear another there: who wants such a node names it.
fn candidates(draft: &Draft<'_>, new: &Reservation) -> Vec<NodeIdx> {
    let Ok(partition) = partition_of(draft.state, new) else {
        return Vec::new();
    };
    let mut all: Vec<(bool, u32, NodeIdx)> = indices_of(draft.state, &partition.nodes)
        .into_iter()
        .filter_map(|idx| draft.node(idx))
        .filter(|node| {
            let shares = new.by_core || new.overlaps_others();
            let free = shares || beside(draft, new, node.idx).next().is_none();
            let idle = new.by_core
                || new.flags.has(Flags::IGNORE_JOBS.with(Flags::MAINT))
                || running(draft, new.start, node).next().is_none();
            let up = node.is_usable() || new.flags.has(Flags::MAINT);
            up && free && idle
        })
        .map(|node| (!node.jobs.is_empty(), node.config.weight, node.idx))
        .collect();
    all.sort_unstable();
    all.into_iter().map(|(.., idx)| idx).collect()
}

fn partition_of<'s>(state: &'s State, new: &Reservation) -> Result<&'s PartitionConfig, Refusal> {
    let found = match &new.partition {
        Some(name) => state.partition(name),
        None => state.partitions.iter().find(|p| p.default),
    };
    found.ok_or_else(|| {
        Refusal::new(
            RefusalCode::InvalidPartition,
            "the reservation names no partition and there is no default; use PartitionName=",
        )
    })
}

fn indices(state: &State, new: &Reservation, text: &str) -> Result<Vec<NodeIdx>, Refusal> {
    if is_all(text) {
        return Ok(
            match new.partition.as_deref().and_then(|p| state.partition(p)) {
                Some(partition) => indices_of(state, &partition.nodes),
                None => state
                    .nodes
                    .iter()
                    .filter(|n| !n.removed)
                    .map(|n| n.idx)
                    .collect(),
            },
        );
    }
    let named = target::listed_nodes(state, text)?.map(|node| Ok(node?.idx));
    let mut nodes = named.collect::<Result<Vec<NodeIdx>, Refusal>>()?;
    nodes.sort_unstable();
    nodes.dedup();
    Ok(nodes)
}

fn indices_of(state: &State, names: &[String]) -> Vec<NodeIdx> {
    let mut nodes: Vec<NodeIdx> = names
        .iter()
        .filter_map(|name| state.node_named(name))
        .map(|node| node.idx)
        .collect();
    nodes.sort_unstable();
    nodes.dedup();
    nodes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cores_of_named_nodes_are_given_for_each_or_for_all() {
        let of = |asked: &[u32], nodes| cores_of_each(asked, nodes).map_err(|refusal| refusal.code);
        assert_eq!(of(&[5], 5), Ok(vec![1; 5]));
        assert_eq!(of(&[11], 5), Ok(vec![3, 2, 2, 2, 2]));
        assert_eq!(of(&[3, 1], 2), Ok(vec![3, 1]));
        assert_eq!(of(&[2], 1), Ok(vec![2]));
        assert_eq!(of(&[0], 1), Ok(vec![0]));
        for (asked, nodes) in [(&[4][..], 5), (&[1, 1], 3), (&[], 1), (&[1], 0)] {
            assert_eq!(of(asked, nodes), Err(RefusalCode::CoreCounts), "{asked:?}");
        }
    }
}
