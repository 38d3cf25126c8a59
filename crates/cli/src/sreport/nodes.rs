//! Nodes of a report, and how much of each trackable resource they have. Licenses are of no node.

use muster_model::node::NodeConfig;
use std::collections::BTreeMap;

/// A node, and amounts of trackable resources that it has.
pub(super) struct ReportNode {
    pub(super) name: String,
    pub(super) cpus: u32,
    pub(super) memory_mib: u64,
    /// Devices by `gres/NAME` and `gres/NAME:TYPE`.
    pub(super) devices: BTreeMap<String, u64>,
}

impl ReportNode {
    pub(super) fn new(config: &NodeConfig) -> ReportNode {
        let mut devices = BTreeMap::new();
        for gres in &config.gres {
            let name = format!("gres/{}", gres.name);
            if let Some(kind) = gres.kind.as_deref().filter(|kind| !kind.is_empty()) {
                *devices.entry(format!("{name}:{kind}")).or_default() += gres.count;
            }
            *devices.entry(name).or_default() += gres.count;
        }
        ReportNode {
            name: config.name.clone(),
            cpus: config.cpus,
            memory_mib: config.memory_mib,
            devices,
        }
    }

    /// Amount of a trackable resource.
    pub(super) fn amount(&self, tres: &str) -> f64 {
        match tres {
            "cpu" | "billing" => f64::from(self.cpus),
            "mem" => self.memory_mib as f64,
            "node" => 1.0,
            other => self.devices.get(other).map_or(0.0, |count| *count as f64),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_model::node::GresConfig;

    #[test]
    fn devices_count_by_name_and_by_type() {
        let mut node = crate::listing::fixture::ctx().nodes[0].config.clone();
        let gres = |kind: Option<&str>, count| GresConfig {
            name: "gpu".to_owned(),
            kind: kind.map(str::to_owned),
            count,
            ..GresConfig::default()
        };
        node.gres = vec![gres(Some("a100"), 2), gres(None, 1)];
        let of = ReportNode::new(&node);
        assert_eq!(
            (of.amount("gres/gpu"), of.amount("gres/gpu:a100")),
            (3.0, 2.0)
        );
        assert_eq!(of.amount("cpu"), f64::from(node.cpus));
        assert_eq!((of.amount("node"), of.amount("gres/fpga")), (1.0, 0.0));
    }
}
