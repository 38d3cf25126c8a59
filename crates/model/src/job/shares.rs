//! Encoding of an allocation's nodes in runs: nodes that follow each other by number and have the same are one entry,
//! so that a job over ten thousand equal nodes takes no more room on a wire or in the journal than one over two.

use super::NodeShare;
use crate::limits::NODE_COUNT_MAX;
use minicbor::decode::Error;
use minicbor::{Decode, Decoder, Encode, Encoder};

/// As many nodes are believed, so that a few bytes from a broken sender do not become all memory: those that a cluster can have. Fuzz
/// targets, for which each input is to take little, believe fewer.
const MOST: u64 = if cfg!(fuzzing) {
    1 << 14
} else {
    NODE_COUNT_MAX as u64
};

/// Writes the nodes as runs: the first of each, and how many there are.
///
/// # Errors
/// An error of the writer.
pub(super) fn encode<C, W: minicbor::encode::Write>(
    nodes: &[NodeShare],
    e: &mut Encoder<W>,
    ctx: &mut C,
) -> Result<(), minicbor::encode::Error<W::Error>> {
    let runs: Vec<&[NodeShare]> = nodes.chunk_by(follows).collect();
    e.array(runs.len() as u64)?;
    for run in runs {
        e.array(2)?;
        run[0].encode(e, ctx)?;
        e.u64(run.len() as u64)?;
    }
    Ok(())
}

/// Reads runs of nodes.
///
/// # Errors
/// What reading gives, and runs that are too long or whose names have no number to go on by.
pub(super) fn decode<C>(d: &mut Decoder<'_>, ctx: &mut C) -> Result<Vec<NodeShare>, Error> {
    let runs = d
        .array()?
        .ok_or_else(|| Error::message("runs of nodes without end"))?;
    let mut nodes = Vec::new();
    for _ in 0..runs {
        if d.array()? != Some(2) {
            return Err(Error::message("a run of nodes is two values"));
        }
        let first = NodeShare::decode(d, ctx)?;
        let count = d.u64()?;
        if count == 0 || count.saturating_add(nodes.len() as u64) > MOST {
            return Err(Error::message("a run of no nodes, or of too many"));
        }
        let mut next = Some(first);
        for _ in 0..count {
            let share = next.ok_or_else(|| Error::message("a name without a number"))?;
            next = successor(&share);
            nodes.push(share);
        }
    }
    Ok(nodes)
}

fn follows(last: &NodeShare, next: &NodeShare) -> bool {
    last.node.0.checked_add(1) == Some(next.node.0)
        && last.cpus == next.cpus
        && last.memory_mib == next.memory_mib
        && last.tasks == next.tasks
        && last.gres == next.gres
        && next_name(&last.name).is_some_and(|name| name == next.name)
}

fn successor(share: &NodeShare) -> Option<NodeShare> {
    Some(NodeShare {
        node: crate::ids::NodeIdx(share.node.0.checked_add(1)?),
        name: next_name(&share.name)?,
        ..share.clone()
    })
}

/// The name with the next number at its end: `n009` is followed by `n010`.
fn next_name(name: &str) -> Option<String> {
    let stem = name.trim_end_matches(|c: char| c.is_ascii_digit());
    let digits = &name[stem.len()..];
    let next = digits.parse::<u64>().ok()?.checked_add(1)?;
    Some(format!("{stem}{next:0width$}", width = digits.len()))
}

#[cfg(test)]
mod tests {
    use super::super::Allocation;
    use super::*;
    use crate::cpuset::CpuSet;
    use crate::ids::NodeIdx;

    fn share(node: u32, name: &str, cpus: u32) -> NodeShare {
        NodeShare {
            node: NodeIdx(node),
            name: name.to_owned(),
            cpus: CpuSet::first(cpus),
            memory_mib: 100,
            tasks: cpus,
            gres: Vec::new(),
        }
    }

    fn coded(nodes: Vec<NodeShare>) -> Vec<u8> {
        let alloc = Allocation {
            nodes,
            ..Allocation::default()
        };
        let bytes = minicbor::to_vec(&alloc).unwrap();
        assert_eq!(minicbor::decode::<Allocation>(&bytes).unwrap(), alloc);
        bytes
    }

    #[test]
    fn nodes_come_back_as_they_were() {
        coded(Vec::new());
        coded(vec![share(4, "login", 1), share(5, "login1", 1)]);
        let names = ["n8", "n9", "n10", "n011", "n012", "n99", "n100", "x", "x"];
        let nodes = (0..).zip(names).map(|(at, name)| share(at, name, 2));
        coded(nodes.collect());
        // Each of these ends a run: another number, another share, another place among the cluster's nodes.
        let nodes = [
            (0, "n1", 4),
            (1, "n2", 4),
            (2, "n3", 3),
            (9, "n4", 3),
            (10, "n6", 3),
        ];
        coded(nodes.map(|(at, name, cpus)| share(at, name, cpus)).into());
        coded(vec![
            share(u32::MAX, "n18446744073709551615", 1),
            share(0, "n0", 1),
        ]);
    }

    #[test]
    fn equal_nodes_take_the_room_of_one() {
        let many = (0..10_000).map(|i| share(i, &format!("n{:05}", i + 1), 64));
        let (many, one) = (coded(many.collect()), coded(vec![share(0, "n00001", 64)]));
        assert!(many.len() <= one.len() + 4, "{} {}", many.len(), one.len());
    }

    #[test]
    fn nonsense_is_refused() {
        let of = |first: &NodeShare, count: u64| {
            let mut e = Encoder::new(Vec::new());
            e.array(1).unwrap().array(2).unwrap();
            first.encode(&mut e, &mut ()).unwrap();
            e.u64(count).unwrap();
            decode(&mut Decoder::new(&e.into_writer()), &mut ())
        };
        assert_eq!(of(&share(0, "n1", 1), 3).unwrap().len(), 3);
        for (name, count) in [("n1", 0), ("n1", u64::MAX), ("n1", MOST + 1), ("login", 2)] {
            of(&share(0, name, 1), count).unwrap_err();
        }
        of(&share(u32::MAX, "n1", 1), 2).unwrap_err();
    }
}
