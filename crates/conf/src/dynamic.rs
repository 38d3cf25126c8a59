//! Nodes that no file names: what `scontrol create NodeName=` and `slurmd -Z --conf` say of them, as a `NodeName` line of
//! slurm.conf would.

use crate::cluster::node_config;
use crate::files::GresLine;
use crate::load::load_text;
use crate::{Config, Diagnostic, NodeDef, Severity};
use muster_model::node::NodeConfig;
use std::path::Path;

/// A line that describes no node.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum DynamicError {
    /// It is no single line.
    #[error("a line about nodes has no line breaks and no comments")]
    Lines,
    /// A wrong value.
    #[error("{0}")]
    Wrong(String),
}

/// The nodes of a line `NodeName=... Key=Value ...`, in the cluster of this configuration.
///
/// # Errors
/// What is wrong with it, all of it.
pub fn dynamic_nodes(line: &str, cluster: &Config) -> Result<Vec<NodeDef>, DynamicError> {
    if line.contains(['\n', '\r', '\0', '#']) || line.trim_end().ends_with('\\') {
        return Err(DynamicError::Lines);
    }
    let first = line.split('=').next().unwrap_or_default().trim();
    if !first.eq_ignore_ascii_case("NodeName") {
        return Err(DynamicError::Wrong(
            "it names no node: it begins with NodeName=".to_owned(),
        ));
    }
    let before = format!(
        "ClusterName=c\nSlurmctldHost=h\nMaxNodeCount=1\nSlurmdPort={}\nGresTypes={}\n",
        cluster.slurmd_port,
        cluster.text("GresTypes").unwrap_or_default()
    );
    let number = before.lines().count() + 1;
    let (config, findings) = load_text(Path::new("slurm.conf"), &format!("{before}{line}\n"));
    let of_line = |d: &&Diagnostic| {
        d.origin.line as usize == number
            && matches!(d.severity, Severity::Error | Severity::Warning)
    };
    let wrong: Vec<String> = findings
        .iter()
        .filter(of_line)
        .map(|finding| finding.message.clone())
        .collect();
    if !wrong.is_empty() {
        return Err(DynamicError::Wrong(wrong.join("; ")));
    }
    Ok(config.nodes)
}

impl NodeDef {
    /// The core's part of it, with the devices of gres.conf.
    pub fn config(&self, gres: &[GresLine]) -> NodeConfig {
        node_config(self, gres, false)
    }
}

/// Whether `Key=Value` pairs say anything of processors: then nothing that was found of them counts.
pub fn hardware_is_given(pairs: &str) -> bool {
    const KEYS: [&str; 7] = [
        "CPUs",
        "Procs",
        "Boards",
        "Sockets",
        "SocketsPerBoard",
        "CoresPerSocket",
        "ThreadsPerCore",
    ];
    let mut keys = pairs
        .split_whitespace()
        .filter_map(|pair| pair.split_once('='));
    keys.any(|(key, _)| KEYS.iter().any(|known| known.eq_ignore_ascii_case(key)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_makes_nodes_and_what_is_wrong_is_said() {
        let line = "NodeName=d[1-2] CPUs=4 RealMemory=2000 Feature=a,b Gres=gpu:2 State=CLOUD";
        let text =
            "ClusterName=c\nSlurmctldHost=h\nSlurmdPort=7000\nGresTypes=gpu\nMaxNodeCount=9\n";
        let (cluster, _) = load_text(Path::new("slurm.conf"), text);
        let nodes = dynamic_nodes(line, &cluster).unwrap();
        assert_eq!(nodes.len(), 2);
        assert_eq!(
            (nodes[1].name.as_str(), nodes[1].cpus, nodes[1].port),
            ("d2", 4, 7000)
        );
        assert_eq!(nodes[0].features, ["a", "b"]);
        assert_eq!(
            (nodes[0].gres[0].name.as_str(), nodes[0].gres[0].count),
            ("gpu", 2)
        );
        for (line, why) in [
            ("NodeName=d1 Colour=red", "Colour"),
            ("NodeName=d1 CPUs=many", "CPUs"),
            ("NodeName=d1 State=SLEEPY", "State"),
            ("NodeName=d1\nSlurmUser=me", "line breaks"),
            ("NodeName=d1 \\", "line breaks"),
            ("CPUs=4", "no node"),
        ] {
            let error = dynamic_nodes(line, &cluster).unwrap_err().to_string();
            assert!(error.contains(why), "{line}: {error}");
        }
    }

    #[test]
    fn processors_are_given_or_found() {
        assert!(hardware_is_given("RealMemory=2 cpus=3"));
        assert!(!hardware_is_given("RealMemory=2 Feature=CPUs"));
    }
}
