//! `scontrol show topology`: switches or blocks of the network, all or those that lead to a node.

use muster_model::hostlist;
use muster_model::topology::{Topology, TopologyKind};
use std::fmt::Write as _;

/// The rows of all networks, or of one switch, or of the switches above each of some nodes; `None` if there is no such name.
pub(crate) fn rows(topologies: &[Topology], which: Option<&str>) -> Option<String> {
    let mut out = String::new();
    let several = topologies.len() > 1;
    for topology in topologies {
        let mut text = String::new();
        for place in wanted(topology, which) {
            row(topology, place, &mut text);
        }
        if several && !text.is_empty() {
            let _ = writeln!(out, "Topology={}", topology.name);
        }
        out.push_str(&text);
    }
    (which.is_none() || !out.is_empty()).then_some(out)
}

fn wanted(topology: &Topology, which: Option<&str>) -> Vec<u32> {
    let all = 0..u32::try_from(topology.switches.len()).unwrap_or(u32::MAX);
    let Some(name) = which else {
        return all.collect();
    };
    let named = |place: &u32| topology.switches[*place as usize].name == name;
    if let Some(place) = all.clone().find(named) {
        return vec![place];
    }
    // For a list, the switches that lead to each of its nodes.
    let Ok(nodes) = hostlist::parse(name) else {
        return Vec::new();
    };
    let mut paths = topology.paths();
    let mut of_each = nodes
        .iter()
        .map(|node| paths.remove(node).unwrap_or_default());
    let first = of_each.next().unwrap_or_default();
    of_each.fold(first, |common, path| {
        common.into_iter().filter(|p| path.contains(p)).collect()
    })
}

fn row(topology: &Topology, place: u32, out: &mut String) {
    let switch = &topology.switches[place as usize];
    let nodes = hostlist::compress_sorted(&topology.nodes_below(place));
    if topology.kind == TopologyKind::Block {
        let name = &switch.name;
        let _ = write!(out, "BlockName={name} BlockIndex={place} Nodes={nodes}");
        if let Some(size) = topology.block_sizes.first() {
            let _ = write!(out, " BlockSize={size}");
        }
    } else {
        let _ = write!(
            out,
            "SwitchName={} Level={} LinkSpeed={} Nodes={nodes}",
            switch.name, switch.level, switch.link_speed
        );
        if !switch.children.is_empty() {
            let names = switch.children.iter();
            let names: Vec<&str> = names
                .filter_map(|child| topology.switches.get(*child as usize))
                .map(|child| child.name.as_str())
                .collect();
            let _ = write!(out, " Switches={}", hostlist::compress(&names));
        }
    }
    out.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_model::topology::Switch;

    fn switch(name: &str, nodes: &str, children: &[u32], level: u32, link_speed: u32) -> Switch {
        Switch {
            name: name.into(),
            nodes: nodes.into(),
            children: children.to_vec(),
            link_speed,
            level,
        }
    }

    /// Output of Slurm 22.05.8 for the same file.
    #[test]
    fn as_slurm_prints_it() {
        let tree = Topology {
            kind: TopologyKind::Tree,
            switches: vec![
                switch("s0", "n[1-3]", &[], 0, 1),
                switch("s1", "n[4-5]", &[], 0, 4),
                switch("s2", "n[6-8]", &[], 0, 1),
                switch("t0", "", &[0, 1], 1, 1),
                switch("t1", "", &[2], 1, 1),
                switch("root", "", &[3, 4], 2, 1),
            ],
            ..Topology::default()
        };
        let trees = [tree];
        assert_eq!(
            rows(&trees, Some("n[1-2]")).unwrap(),
            "SwitchName=s0 Level=0 LinkSpeed=1 Nodes=n[1-3]\n\
             SwitchName=t0 Level=1 LinkSpeed=1 Nodes=n[1-5] Switches=s[0-1]\n\
             SwitchName=root Level=2 LinkSpeed=1 Nodes=n[1-8] Switches=t[0-1]\n"
        );
        assert_eq!(
            rows(&trees, Some("s1")).unwrap(),
            "SwitchName=s1 Level=0 LinkSpeed=4 Nodes=n[4-5]\n"
        );
        // Only what connects all of them.
        assert_eq!(
            rows(&trees, Some("n[3-4]")).unwrap(),
            "SwitchName=t0 Level=1 LinkSpeed=1 Nodes=n[1-5] Switches=s[0-1]\n\
             SwitchName=root Level=2 LinkSpeed=1 Nodes=n[1-8] Switches=t[0-1]\n"
        );
        assert_eq!(rows(&trees, Some("n[8-9]")), None);
        assert_eq!(rows(&trees, Some("nosuch")), None);
        assert_eq!(rows(&trees, None).unwrap().lines().count(), 6);
    }

    #[test]
    fn blocks_have_an_index() {
        let blocks = Topology {
            kind: TopologyKind::Block,
            switches: vec![switch("b1", "n[1-2]", &[], 0, 1)],
            block_sizes: vec![2],
            ..Topology::default()
        };
        assert_eq!(
            rows(&[blocks], None).unwrap(),
            "BlockName=b1 BlockIndex=0 Nodes=n[1-2] BlockSize=2\n"
        );
        let flat = Topology::default();
        assert_eq!(rows(&[flat], None).unwrap(), "");
    }
}
