//! Resources of hosts and queues as `qstat -F` and `qhost -F` show them: what hosts report of themselves, generic resources that are
//! free, licenses that are left.

use crate::connect::{Client, ConnectError};
use crate::listing::query;
use muster_conf::grid_engine::ARCH;
use muster_model::licenses::License;
use muster_model::node::Node;

/// A resource, with the letters for its owner (g, h, q: all hosts, a host, a queue) and its kind (l, c, f: load, consumable,
/// fixed).
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Resource {
    pub(super) kind: &'static str,
    pub(super) name: String,
    value: ResourceValue,
}

#[derive(Clone, Debug, PartialEq)]
enum ResourceValue {
    Count(u64),
    Number(f64),
    Mib(u64),
    Text(String),
}

impl Resource {
    fn new(kind: &'static str, name: &str, value: ResourceValue) -> Resource {
        let name = name.to_owned();
        Resource { kind, name, value }
    }

    /// One with a text.
    pub(super) fn text(kind: &'static str, name: &str, text: &str) -> Resource {
        Resource::new(kind, name, ResourceValue::Text(text.to_owned()))
    }

    /// One that is counted.
    pub(super) fn count(kind: &'static str, name: &str, count: u64) -> Resource {
        Resource::new(kind, name, ResourceValue::Count(count))
    }

    /// Its value as qstat has it.
    pub(super) fn in_queue(&self) -> String {
        match &self.value {
            ResourceValue::Count(count) => count.to_string(),
            _ => self.on_host(),
        }
    }

    /// Its value as qhost has it, where counts are numbers with a point.
    pub(super) fn on_host(&self) -> String {
        match &self.value {
            ResourceValue::Count(count) => format!("{count}.000000"),
            ResourceValue::Number(number) => format!("{number:.6}"),
            ResourceValue::Mib(mib) => memory(*mib),
            ResourceValue::Text(text) => text.clone(),
        }
    }
}

/// `843.133M`, `22.717G`.
fn memory(mib: u64) -> String {
    #[allow(clippy::cast_precision_loss)]
    let mib = mib as f64;
    match mib {
        0.0 => "0.000".to_owned(),
        mib if mib < 1024.0 => format!("{mib:.3}M"),
        mib if mib < 1024.0 * 1024.0 => format!("{:.3}G", mib / 1024.0),
        mib => format!("{:.3}T", mib / 1024.0 / 1024.0),
    }
}

/// Asks for the licenses of the cluster.
pub(super) fn licenses() -> Result<Vec<Resource>, ConnectError> {
    let all = query::licenses(&mut Client::connect()?)?;
    Ok(of_all_hosts(&all))
}

/// Licenses that are left, for all hosts.
pub(super) fn of_all_hosts(licenses: &[License]) -> Vec<Resource> {
    let left = |own: &License| u64::from(own.total.saturating_sub(own.used));
    let shown = |own: &License| Resource::new("gc", &own.name, ResourceValue::Count(left(own)));
    licenses.iter().map(shown).collect()
}

/// The resources of a host, with the generic ones that are free there.
pub(super) fn of_host(node: &Node, free: &[(String, u64)]) -> Vec<Resource> {
    let config = &node.config;
    let load = |name, value| Resource::new("hl", name, value);
    let mut all = Vec::new();
    let average = node
        .report
        .as_ref()
        .map(|report| f64::from(report.load_centi) / 100.0);
    all.extend(average.map(|average| load("load_avg", ResourceValue::Number(average))));
    all.push(load("arch", ResourceValue::Text(ARCH.to_owned())));
    all.push(load("num_proc", ResourceValue::Count(config.cpus.into())));
    if let Some(report) = &node.report {
        let used = config.memory_mib.saturating_sub(report.free_mib);
        all.push(load("mem_free", ResourceValue::Mib(report.free_mib)));
        all.push(load("mem_total", ResourceValue::Mib(config.memory_mib)));
        all.push(load("mem_used", ResourceValue::Mib(used)));
    }
    let cores = config.sockets * config.cores_per_socket;
    let threads = match config.threads_per_core {
        0 | 1 => String::new(),
        many => "T".repeat(many as usize),
    };
    let core = format!("C{threads}");
    let socket = format!("S{}", core.repeat(config.cores_per_socket as usize));
    let topology = socket.repeat(config.sockets as usize);
    all.push(load("m_topology", ResourceValue::Text(topology)));
    all.push(load(
        "m_socket",
        ResourceValue::Count(config.sockets.into()),
    ));
    all.push(load("m_core", ResourceValue::Count(cores.into())));
    let all_threads = u64::from(cores) * u64::from(config.threads_per_core);
    all.push(load("m_thread", ResourceValue::Count(all_threads)));
    let share = average.map(|average| average / f64::from(config.cpus.max(1)));
    all.extend(share.map(|share| load("np_load_avg", ResourceValue::Number(share))));
    let left = free.iter();
    all.extend(left.map(|(name, count)| Resource::new("hc", name, ResourceValue::Count(*count))));
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_model::ids::NodeIdx;
    use muster_model::node::NodeConfig;
    use muster_model::node::{Node, NodeInfo};
    use muster_model::time::Timestamp;

    /// The lines of Grid Engine 8.1.9 for its host, without those not shown here.
    #[test]
    fn values_are_written_as_grid_engine_writes_them() {
        let config = NodeConfig {
            name: "vm".to_owned(),
            cpus: 2,
            sockets: 1,
            cores_per_socket: 2,
            threads_per_core: 1,
            memory_mib: 24_106,
            ..NodeConfig::default()
        };
        let mut node = Node::new(NodeIdx(0), &config, Timestamp(0));
        node.report = Some(NodeInfo {
            load_centi: 1120,
            free_mib: 23_262,
            ..NodeInfo::default()
        });
        let licenses = [License {
            remote: false,
            name: "lic".to_owned(),
            total: 5,
            used: 2,
            reserved: 0,
        }];
        let mut all = of_all_hosts(&licenses);
        all.extend(of_host(&node, &[("gpu".to_owned(), 2)]));
        let lines = |value: fn(&Resource) -> String| -> Vec<String> {
            let line = |own: &Resource| format!("{}:{}={}", own.kind, own.name, value(own));
            all.iter().map(line).collect()
        };
        assert_eq!(
            lines(Resource::on_host),
            [
                "gc:lic=3.000000",
                "hl:load_avg=11.200000",
                "hl:arch=lx-amd64",
                "hl:num_proc=2.000000",
                "hl:mem_free=22.717G",
                "hl:mem_total=23.541G",
                "hl:mem_used=844.000M",
                "hl:m_topology=SCC",
                "hl:m_socket=1.000000",
                "hl:m_core=2.000000",
                "hl:m_thread=2.000000",
                "hl:np_load_avg=5.600000",
                "hc:gpu=2.000000",
            ]
        );
        let of_queue = lines(Resource::in_queue);
        for line in [
            "gc:lic=3",
            "hl:num_proc=2",
            "hl:load_avg=11.200000",
            "hc:gpu=2",
        ] {
            assert!(
                of_queue.iter().any(|own| own == line),
                "{line}: {of_queue:?}"
            );
        }
        assert_eq!(memory(0), "0.000");
    }
}
