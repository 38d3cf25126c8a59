//! The network's shape: topology.yaml or topology.conf beside slurm.conf, checked against the nodes that there are, into
//! what the core keeps. A finding names the switch, the line and the way out.

mod yaml;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::diagnostic::{Diagnostic, Findings, Origin};
use crate::files::check_line;
use crate::keys;
use crate::load::Checker;
use crate::model::Config;
use crate::reader::{Reader, Settings};
use crate::source::{self, ReadFile};
use muster_model::hostlist;
use muster_model::topology::{self as core, Topology, TopologyKind};

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

/// One switch or block and its children.
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

/// The networks that a configuration has: those of topology.yaml if there is one, else that of `TopologyPlugin` and
/// topology.conf.
pub fn resolve(config: &Config, read: ReadFile<'_>) -> (Vec<Topology>, Vec<Diagnostic>) {
    let mut findings = Findings::default();
    let yaml = config.path.with_file_name("topology.yaml");
    let topologies = match read(&yaml) {
        Ok(bytes) => from_yaml(config, &yaml, &bytes, &mut findings),
        Err(_) => from_conf(config, read, &mut findings).into_iter().collect(),
    };
    partitions(config, &topologies, &mut findings);
    (topologies, findings.sorted())
}

fn from_conf(config: &Config, read: ReadFile<'_>, findings: &mut Findings) -> Option<Topology> {
    let plugin = config.text("TopologyPlugin").unwrap_or("");
    let plugin = plugin.rsplit('/').next().unwrap_or("").to_ascii_lowercase();
    let kind = match plugin.as_str() {
        "tree" => TopologyKind::Tree,
        "block" => TopologyKind::Block,
        _ => return None,
    };
    let path = config.path.with_file_name("topology.conf");
    let whole = whole(&path);
    if let Err(error) = read(&path) {
        let message = format!(
            "TopologyPlugin=topology/{plugin} needs {}: {error}",
            path.display()
        );
        let help = "describe the network there, or set TopologyPlugin=topology/flat";
        findings.error(&whole, "TopologyPlugin", message, help);
        return None;
    }
    let network = read_conf(&path, read, findings);
    let mut topology = build(&network, kind, &whole, findings);
    check_nodes(&mut topology, &network, kind, config, &whole, findings);
    topology.name = "default".to_owned();
    topology.cluster_default = true;
    topology.optional = is_optional(config);
    Some(topology)
}

fn from_yaml(config: &Config, path: &Path, bytes: &[u8], findings: &mut Findings) -> Vec<Topology> {
    let text = String::from_utf8_lossy(bytes);
    let all = yaml::read(path, &text, findings);
    if all.is_empty() {
        let help = "describe a network there, or remove the file";
        findings.error(&whole(path), "", "the file describes no network", help);
    }
    let default = all.iter().position(|named| named.cluster_default);
    let mut topologies = Vec::new();
    for (place, named) in all.into_iter().enumerate() {
        let mut topology = match named.kind {
            TopologyKind::Flat => Topology::default(),
            kind => {
                let mut topology = build(&named.network, kind, &named.origin, findings);
                let (network, at) = (&named.network, &named.origin);
                check_nodes(&mut topology, network, kind, config, at, findings);
                topology
            }
        };
        topology.kind = named.kind;
        topology.name = named.name;
        topology.cluster_default = default == Some(place);
        topology.optional = is_optional(config);
        topologies.push(topology);
    }
    topologies
}

fn whole(path: &Path) -> Origin {
    Origin {
        file: path.to_string_lossy().into(),
        line: 0,
        column: 0,
    }
}

fn is_optional(config: &Config) -> bool {
    let words = config.text("TopologyParam").unwrap_or("");
    let optional = |w: &str| w.trim().eq_ignore_ascii_case("TopoOptional");
    words.split(',').any(optional)
}

/// Partitions that name a network there is not.
fn partitions(config: &Config, topologies: &[Topology], findings: &mut Findings) {
    for partition in &config.partitions {
        let Some(name) = &partition.topology else {
            continue;
        };
        if topologies.iter().any(|t| t.name == *name) {
            continue;
        }
        let message = format!("partition {}: there is no topology {name}", partition.name);
        let help = "name one of topology.yaml; the partition has a flat network until then";
        findings.error(&partition.origin, "Topology", message, help);
    }
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
        let read = |path: &Path| match path.ends_with("topology.conf") {
            true => Ok(text.as_bytes().to_vec()),
            false => Err(std::io::Error::other("not there")),
        };
        let (topologies, findings) = resolve(&config, &read);
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
            (
                // A leaf whose way up goes round for ever.
                "SwitchName=a Switches=b,l\nSwitchName=b Switches=a\nSwitchName=l Nodes=n1\n",
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

    const SEVERAL: &str = "---\n\
        - topology: a\n  cluster_default: true\n  tree:\n    switches:\n\
        \x20     - switch: top\n        children: s[1-2]\n\
        \x20     - switch: s1\n        nodes: n[1-2]\n\
        \x20     - switch: s2\n        nodes: n[3-4]\n\
        - topology: b # comment\n  cluster_default: false\n  block:\n    block_sizes: [2, 4]\n\
        \x20   blocks:\n      - block: b1\n        nodes: n[1-2]\n      - {block: b2, nodes: 'n[3-4]'}\n\
        - topology: c\n  flat: true\n";

    fn from_file(text: &str, partition: &str) -> (Vec<Topology>, Vec<String>) {
        let conf = format!(
            "ClusterName=c\nSlurmctldHost=h\nTopologyPlugin=topology/tree\nNodeName=n[1-4]\n\
             PartitionName=p Nodes=ALL {partition}\n"
        );
        let (config, _) = load_text(Path::new("/etc/slurm.conf"), &conf);
        let read = |path: &Path| match path.ends_with("topology.yaml") {
            true => Ok(text.as_bytes().to_vec()),
            false => Err(std::io::Error::other("not there")),
        };
        let (topologies, findings) = resolve(&config, &read);
        let said = |d: &Diagnostic| format!("{}: {}", d.origin, d.message);
        (topologies, findings.iter().map(said).collect())
    }

    #[test]
    fn several_networks_in_one_file() {
        let (all, findings) = from_file(SEVERAL, "Topology=b");
        assert_eq!(findings, Vec::<String>::new());
        let kinds: Vec<_> = all
            .iter()
            .map(|t| (t.name.as_str(), t.kind, t.cluster_default))
            .collect();
        assert_eq!(
            kinds,
            [
                ("a", TopologyKind::Tree, true),
                ("b", TopologyKind::Block, false),
                ("c", TopologyKind::Flat, false)
            ]
        );
        assert_eq!(
            (all[0].switches[0].level, all[0].nodes_below(0).len()),
            (1, 4)
        );
        assert_eq!(all[1].block_sizes, [2, 4]);
        assert_eq!(all[1].switches[1].nodes, "n[3-4]");
    }

    #[test]
    fn what_is_wrong_in_the_file_has_its_place() {
        let found = |text: &str| from_file(text, "").1;
        for (text, wanted) in [
            ("- topology: a\n  tree: [\n", "topology.yaml:"),
            (
                "- flat: true\n",
                "topology.yaml:1:3: the network has no name",
            ),
            (
                "- topology: a\n",
                "topology a is neither tree, block nor flat",
            ),
            (
                "- topology: a\n  flat: true\n  block:\n    blocks: []\n",
                "3:3: topology a is of more than one kind",
            ),
            (
                "- topology: a\n  flat: true\n- topology: a\n  flat: true\n",
                "3:3: topology a is there already",
            ),
            (
                "- topology: a\n  tree:\n    switches:\n      - switch: s\n        nodes: n[1-4]\n        speed: 3\n",
                "6:9: speed is not known in topology.yaml",
            ),
            (
                "- topology: a\n  tree:\n    switches:\n      - switch: s\n        children: t\n",
                "4:9: Switches: there is no switch t",
            ),
            (
                "- topology: a\n  block:\n    block_sizes: [x]\n    blocks:\n      - block: b\n        nodes: n[1-4]\n",
                "3:19: block_sizes: `x` is not a number of nodes",
            ),
            ("a: b\n", "a list of networks is expected"),
            ("", "the file describes no network"),
        ] {
            let all = found(text);
            assert!(all.iter().any(|m| m.contains(wanted)), "{text}: {all:?}");
        }
        let (_, findings) = from_file(SEVERAL, "Topology=d");
        assert!(findings[0].contains("partition p: there is no topology d"));
    }
}
