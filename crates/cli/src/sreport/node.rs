//! Nodes as reports count them.

use muster_model::node::NodeConfig;
use std::collections::BTreeMap;

/// The trackable resources of a node.
#[derive(Clone, Debug, Default)]
pub(super) struct ReportNode {
    pub(super) name: String,
    pub(super) cpus: u32,
    pub(super) mib: u64,
    /// Generic resources by the names of their TRES: `gres/gpu`, and `gres/gpu:a100` where they have a type.
    pub(super) gres: BTreeMap<String, u64>,
}

impl ReportNode {
    /// From its line in slurm.conf.
    pub(super) fn of(config: &NodeConfig) -> ReportNode {
        let mut gres = BTreeMap::new();
        for entry in &config.gres {
            let name = format!("gres/{}", entry.name);
            let typed = entry.kind.iter().map(|kind| format!("{name}:{kind}"));
            for tres in typed.chain([name.clone()]) {
                *gres.entry(tres).or_insert(0) += entry.count;
            }
        }
        ReportNode {
            name: config.name.clone(),
            cpus: config.cpus,
            mib: config.memory_mib,
            gres,
        }
    }

    /// Amount of a trackable resource.
    pub(super) fn has(&self, tres: &str) -> f64 {
        match tres {
            "cpu" | "billing" => f64::from(self.cpus),
            "mem" => self.mib as f64,
            "node" => 1.0,
            other => self.gres.get(other).map_or(0.0, |count| *count as f64),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_model::node::GresConfig;

    /// GPUs counted as none, so that their use was cut to nothing.
    #[test]
    fn generic_resources_are_counted_by_name_and_by_type() {
        let gpus = |kind: Option<&str>, count: u64| GresConfig {
            name: "gpu".to_owned(),
            kind: kind.map(str::to_owned),
            count,
            ..GresConfig::default()
        };
        let config = NodeConfig {
            name: "n1".to_owned(),
            cpus: 8,
            memory_mib: 100,
            gres: vec![gpus(Some("a"), 2), gpus(Some("b"), 1), gpus(None, 4)],
            ..NodeConfig::default()
        };
        let node = ReportNode::of(&config);
        let has = [
            "cpu",
            "billing",
            "mem",
            "node",
            "gres/gpu",
            "gres/gpu:a",
            "gres/gpu:b",
            "gres/nic",
        ];
        let has = has.map(|tres| node.has(tres));
        assert_eq!(has, [8.0, 8.0, 100.0, 1.0, 7.0, 2.0, 1.0, 0.0]);
    }
}
