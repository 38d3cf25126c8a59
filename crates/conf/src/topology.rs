//! The network's shape: topology.conf beside slurm.conf, checked against the nodes that there are, into what the core
//! keeps. A finding names the switch, the line and the way out.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::diagnostic::{Diagnostic, Findings, Origin};
use crate::files::check_line;
use crate::keys;
use crate::load::{Checker, Reader, Settings};
use crate::model::Config;
use crate::source::{self, ReadFile};
use muster_core::hostlist;
use muster_core::topology::{self as core, Topology, TopologyKind};

/// A network as a file describes it, before its names are looked up.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Network {
    /// Switches (topology/tree).
    pub switches: Vec<SwitchLine>,
    /// Blocks (topology/block): switches with nodes and no children.
    pub blocks: Vec<SwitchLine>,
    /// `BlockSizes`.
    pub block_sizes: Vec<u32>,
    /// `RingName` lines (topology/ring): name and nodes in order.
    pub rings: Vec<(String, Vec<String>)>,
}

/// One switch or block and what is below it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SwitchLine {
    /// Name.
    pub name: String,
    /// Switches below it.
    pub switches: Vec<String>,
    /// Nodes at it.
    pub nodes: Vec<String>,
    /// `LinkSpeed`; 1 if it is not given.
    pub link_speed: u32,
    /// Where it is written.
    pub origin: Origin,
}

/// Loads topology.conf from disk.
pub fn load(path: &Path) -> (Network, Vec<Diagnostic>) {
    load_with(path, &source::read_from_disk)
}

/// [`load`] by way of the caller's own file reader.
pub fn load_with(path: &Path, read: ReadFile<'_>) -> (Network, Vec<Diagnostic>) {
    let mut findings = Findings::default();
    let network = read_conf(path, read, &mut findings);
    tree(&network.switches, &mut findings);
    (network, findings.sorted())
}

/// The networks that a configuration has: those of `TopologyPlugin` and the file beside slurm.conf.
pub fn resolve(config: &Config, read: ReadFile<'_>) -> (Vec<Topology>, Vec<Diagnostic>) {
    let mut findings = Findings::default();
    let plugin = config.text("TopologyPlugin").unwrap_or("");
    let plugin = plugin.rsplit('/').next().unwrap_or("").to_ascii_lowercase();
    let kind = match plugin.as_str() {
        "tree" => TopologyKind::Tree,
        "block" => TopologyKind::Block,
        _ => return (Vec::new(), Vec::new()),
    };
    let path = config.path.with_file_name("topology.conf");
    let whole = Origin {
        file: path.to_string_lossy().into(),
        line: 0,
        column: 0,
    };
    if let Err(error) = read(&path) {
        let message = format!(
            "TopologyPlugin=topology/{plugin} needs {}: {error}",
            path.display()
        );
        let help = "describe the network there, or set TopologyPlugin=topology/flat";
        findings.error(&whole, "TopologyPlugin", message, help);
        return (Vec::new(), findings.sorted());
    }
    let network = read_conf(&path, read, &mut findings);
    let mut topology = build(&network, kind, &whole, &mut findings);
    check_nodes(&mut topology, &network, kind, config, &whole, &mut findings);
    topology.name = "default".to_owned();
    topology.cluster_default = true;
    topology.optional = config.text("TopologyParam").is_some_and(|words| {
        words
            .split(',')
            .any(|w| w.trim().eq_ignore_ascii_case("TopoOptional"))
    });
    (vec![topology], findings.sorted())
}

fn read_conf(path: &Path, read: ReadFile<'_>, findings: &mut Findings) -> Network {
    let lines = source::read_lines(path, read, findings);
    let mut checker = Checker::new(findings);
    let mut network = Network::default();
    for line in lines {
        let settings = check_line(&line, &keys::TOPOLOGY, "topology.conf", &mut checker);
        network_line(&mut network, &settings, &line[0].origin, checker.findings);
    }
    network
}

fn network_line(
    network: &mut Network,
    settings: &Settings,
    origin: &Origin,
    findings: &mut Findings,
) {
    let reader = Reader {
        settings,
        table: &keys::TOPOLOGY,
    };
    let hosts = |key: &str| {
        reader
            .given(key)
            .and_then(|text| hostlist::parse(text).ok())
            .unwrap_or_default()
    };
    let line = |name: &str| SwitchLine {
        name: name.to_owned(),
        switches: hosts("Switches"),
        nodes: hosts("Nodes"),
        link_speed: reader
            .given("LinkSpeed")
            .and_then(|text| text.parse().ok())
            .unwrap_or(1),
        origin: origin.clone(),
    };
    if let Some(name) = reader.given("SwitchName") {
        network.switches.push(line(name));
    } else if let Some(name) = reader.given("BlockName") {
        network.blocks.push(line(name));
    } else if let Some(name) = reader.given("RingName") {
        network.rings.push((name.to_owned(), hosts("Nodes")));
    } else if reader.given("BlockSizes").is_none() && !settings.is_empty() {
        let help = "add SwitchName, BlockName, RingName or BlockSizes";
        findings.error(origin, "", "the line names no switch, block or ring", help);
    }
    for word in reader.list("BlockSizes") {
        match word.parse() {
            Ok(size) if size > 0 => network.block_sizes.push(size),
            _ => {
                let message = format!("BlockSizes: `{word}` is not a number of nodes");
                findings.error(origin, "BlockSizes", message, "");
            }
        }
    }
}

fn build(
    network: &Network,
    kind: TopologyKind,
    whole: &Origin,
    findings: &mut Findings,
) -> Topology {
    let switches = match kind {
        TopologyKind::Block => blocks(network, findings),
        TopologyKind::Tree | TopologyKind::Flat => tree(&network.switches, findings),
    };
    if switches.is_empty() {
        let (what, help) = match kind {
            TopologyKind::Block => ("block", "add BlockName=NAME Nodes=LIST"),
            _ => ("switch", "add SwitchName=NAME Nodes=LIST"),
        };
        findings.error(whole, "", format!("the file describes no {what}"), help);
    }
    Topology {
        kind,
        switches,
        block_sizes: network.block_sizes.clone(),
        ..Topology::default()
    }
}

/// Switches with their children found and their levels worked out.
fn tree(lines: &[SwitchLine], findings: &mut Findings) -> Vec<core::Switch> {
    let places = unique(lines, "switch", "SwitchName", findings);
    let mut parent: Vec<Option<usize>> = vec![None; lines.len()];
    let mut switches = Vec::new();
    for (place, line) in lines.iter().enumerate() {
        let (name, origin) = (&line.name, &line.origin);
        match (line.nodes.is_empty(), line.switches.is_empty()) {
            (true, true) => {
                let message = format!("switch {name} has neither nodes nor switches below it");
                findings.error(
                    origin,
                    "SwitchName",
                    message,
                    "add Nodes=LIST or Switches=LIST",
                );
            }
            (false, false) => {
                let message = format!("switch {name} has both Nodes and Switches");
                let help = "give the nodes a switch of their own below it";
                findings.error(origin, "SwitchName", message, help);
            }
            _ => {}
        }
        let mut children = Vec::new();
        for below in &line.switches {
            let Some(&child) = places.get(below.as_str()) else {
                let message = format!("Switches: there is no switch {below}");
                findings.error(origin, "Switches", message, "add its SwitchName line");
                continue;
            };
            match parent[child] {
                Some(other) => {
                    let message = format!(
                        "switch {below} is below {} and below {name}",
                        lines[other].name
                    );
                    findings.error(origin, "Switches", message, "name it below one switch only");
                }
                None => {
                    parent[child] = Some(place);
                    children.push(u32::try_from(child).unwrap_or(u32::MAX));
                }
            }
        }
        switches.push(core::Switch {
            name: name.clone(),
            nodes: hostlist::compress(&line.nodes),
            children,
            link_speed: line.link_speed,
            level: 0,
        });
    }
    levels(lines, &parent, &mut switches, findings);
    switches
}

/// Sets the level of each switch by going up from the leaves; a switch that goes round in a circle is an error.
fn levels(
    lines: &[SwitchLine],
    parent: &[Option<usize>],
    switches: &mut [core::Switch],
    findings: &mut Findings,
) {
    for start in 0..switches.len() {
        if !switches[start].children.is_empty() {
            continue;
        }
        let (mut at, mut level) = (start, 0);
        while let Some(up) = parent[at] {
            (at, level) = (up, level + 1);
            switches[at].level = switches[at].level.max(level);
        }
    }
    for (place, line) in lines.iter().enumerate() {
        // One step more than there are switches cannot end at a root.
        let up = std::iter::successors(Some(place), |&at| parent[at]);
        if up.take(lines.len() + 1).count() > lines.len() {
            let message = format!("switch {} is above itself", line.name);
            findings.error(
                &line.origin,
                "Switches",
                message,
                "remove it from the lists below it",
            );
            switches.iter_mut().for_each(|s| s.children.clear());
            return;
        }
    }
}

fn blocks(network: &Network, findings: &mut Findings) -> Vec<core::Switch> {
    unique(&network.blocks, "block", "BlockName", findings);
    let base = network.block_sizes.first().copied();
    for pair in network.block_sizes.windows(2) {
        let ratio = pair[1] / pair[0];
        let whole = network.blocks.first().map(|b| &b.origin);
        if let Some(origin) =
            whole.filter(|_| pair[1] % pair[0] != 0 || !ratio.is_power_of_two() || ratio < 2)
        {
            let message = format!(
                "BlockSizes: {} is not {} times a power of two",
                pair[1], pair[0]
            );
            findings.error(origin, "BlockSizes", message, "for example BlockSizes=4,16");
        }
    }
    let mut switches = Vec::new();
    for line in &network.blocks {
        if line.nodes.is_empty() {
            let message = format!("block {} has no nodes", line.name);
            findings.error(&line.origin, "BlockName", message, "add Nodes=LIST");
        }
        if base.is_some_and(|size| (line.nodes.len() as u64) < u64::from(size)) {
            let message = format!(
                "block {} has {} nodes, fewer than BlockSizes={}",
                line.name,
                line.nodes.len(),
                base.unwrap_or(0)
            );
            findings.warn(
                &line.origin,
                "BlockName",
                message,
                "it is planned with as it is",
            );
        }
        switches.push(core::Switch {
            name: line.name.clone(),
            nodes: hostlist::compress(&line.nodes),
            link_speed: line.link_speed,
            ..core::Switch::default()
        });
    }
    switches
}

/// Places by name; names that come twice are errors.
fn unique<'a>(
    lines: &'a [SwitchLine],
    what: &str,
    key: &str,
    findings: &mut Findings,
) -> BTreeMap<&'a str, usize> {
    let mut places = BTreeMap::new();
    for (place, line) in lines.iter().enumerate() {
        if places.contains_key(line.name.as_str()) {
            let message = format!("{what} {} is defined twice", line.name);
            findings.error(
                &line.origin,
                key,
                message,
                format!("define each {what} once"),
            );
        } else {
            places.insert(line.name.as_str(), place);
        }
    }
    places
}

/// Nodes that slurm.conf does not have, that are at two places, or at none. Such names leave the lists.
fn check_nodes(
    topology: &mut Topology,
    network: &Network,
    kind: TopologyKind,
    config: &Config,
    whole: &Origin,
    findings: &mut Findings,
) {
    let known: BTreeSet<&str> = config.nodes.iter().map(|n| n.name.as_str()).collect();
    let (lines, what) = match kind {
        TopologyKind::Block => (&network.blocks, "block"),
        _ => (&network.switches, "switch"),
    };
    let mut at: BTreeMap<&str, &str> = BTreeMap::new();
    for (line, switch) in lines.iter().zip(&mut topology.switches) {
        let (mut kept, mut unknown) = (Vec::new(), Vec::new());
        for node in &line.nodes {
            if !known.contains(node.as_str()) {
                unknown.push(node);
            } else if let Some(first) = at.get(node.as_str()) {
                let message = format!("node {node} is at {what} {first} already");
                let help = format!("name it at one {what}; {first} counts");
                findings.warn(&line.origin, "Nodes", message, help);
            } else {
                at.insert(node, &line.name);
                kept.push(node);
            }
        }
        if !unknown.is_empty() {
            let message = format!(
                "{what} {}: {} not in slurm.conf and left out",
                line.name,
                hostlist::compress(&unknown)
            );
            let help = "add a NodeName line or remove the name here";
            findings.warn(&line.origin, "Nodes", message, help);
        }
        switch.nodes = hostlist::compress(&kept);
    }
    let outside: Vec<&str> = config
        .nodes
        .iter()
        .map(|n| n.name.as_str())
        .filter(|n| !at.contains_key(n))
        .collect();
    if !outside.is_empty() && !topology.switches.is_empty() {
        let message = format!("no {what} leads to {}", hostlist::compress(&outside));
        let help = "jobs of several nodes are not placed there; add the nodes to a line";
        findings.warn(whole, "Nodes", message, help);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load_text;

    fn resolved(plugin: &str, text: &str) -> (Vec<Topology>, Vec<String>) {
        let conf = format!(
            "ClusterName=c\nSlurmctldHost=h\nTopologyPlugin=topology/{plugin}\nNodeName=n[1-4]\n\
             PartitionName=p Nodes=ALL\n"
        );
        let (config, _) = load_text(Path::new("/etc/slurm.conf"), &conf);
        let (topologies, findings) = resolve(&config, &|_| Ok(text.as_bytes().to_vec()));
        (
            topologies,
            findings.iter().map(|d| d.message.clone()).collect(),
        )
    }

    #[test]
    fn a_tree_has_levels_and_children() {
        let text = "SwitchName=s0 Nodes=n[1-2]\nSwitchName=s1 Nodes=n[3-4] LinkSpeed=4\n\
                    SwitchName=top Switches=s[0-1]\n";
        let (topologies, findings) = resolved("tree", text);
        assert_eq!(findings, Vec::<String>::new());
        let tree = &topologies[0];
        assert_eq!(tree.kind, TopologyKind::Tree);
        let levels: Vec<_> = tree
            .switches
            .iter()
            .map(|s| (s.level, s.link_speed))
            .collect();
        assert_eq!(levels, [(0, 1), (0, 4), (1, 1)]);
        assert_eq!(tree.switches[2].children, [0, 1]);
        assert!(resolved("flat", text).0.is_empty());
    }

    #[test]
    fn what_cannot_be_is_named() {
        for (text, wanted) in [
            (
                "SwitchName=a Nodes=n1\nSwitchName=a Nodes=n2\n",
                "switch a is defined twice",
            ),
            (
                "SwitchName=a\n",
                "switch a has neither nodes nor switches below it",
            ),
            (
                "SwitchName=a Nodes=n1 Switches=b\nSwitchName=b Nodes=n2\n",
                "both Nodes and Switches",
            ),
            (
                "SwitchName=a Switches=b\nSwitchName=b Switches=a\n",
                "switch a is above itself",
            ),
            ("SwitchName=a Switches=c\n", "there is no switch c"),
            (
                "SwitchName=l Nodes=n1\nSwitchName=a Switches=l\nSwitchName=b Switches=l\n",
                "switch l is below a and below b",
            ),
            (
                "SwitchName=a Nodes=n[1-9]\n",
                "switch a: n[5-9] not in slurm.conf",
            ),
            ("SwitchName=a Nodes=n[1-3]\n", "no switch leads to n4"),
            (
                "SwitchName=a Nodes=n[1-3]\nSwitchName=b Nodes=n[3-4]\n",
                "node n3 is at switch a already",
            ),
        ] {
            let found = resolved("tree", text).1;
            assert!(
                found.iter().any(|m| m.contains(wanted)),
                "{text}: {found:?}"
            );
        }
    }

    #[test]
    fn blocks_have_sizes() {
        let text = "BlockName=b1 Nodes=n[1-2]\nBlockName=b2 Nodes=n[3-4]\nBlockSizes=2,4\n";
        let (topologies, findings) = resolved("block", text);
        assert_eq!(findings, Vec::<String>::new());
        assert_eq!(topologies[0].block_sizes, [2, 4]);
        assert_eq!(topologies[0].switches[1].nodes, "n[3-4]");
        let odd = resolved("block", "BlockName=b1 Nodes=n[1-4]\nBlockSizes=2,6\n").1;
        assert_eq!(odd, ["BlockSizes: 6 is not 2 times a power of two"]);
    }
}
