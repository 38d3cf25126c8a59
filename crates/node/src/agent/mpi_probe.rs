//! Networks, GPUs and addresses of the machine, for steps that use MPI. They are read when a step
//! starts, because devices may be added and removed.

use muster_node_core::messages::PmixOrder;
use std::net::{IpAddr, ToSocketAddrs};
use std::path::Path;

/// Fills in the machine's properties in the order for a step's PMIx host; `tmp_bases` are
/// directories for its files, the best first.
pub(super) fn complete(order: &mut PmixOrder, tmp_bases: Vec<String>) {
    let mut bases = tmp_bases.into_iter();
    let base = bases.find(|base| Path::new(base).is_dir());
    order.tmp_base = base.unwrap_or_else(|| "/tmp".to_owned());
    order.plain_network = order.plain_network && !has_fabric();
    order.no_gpus = order.no_gpus && !has_gpu();
}

/// The IP address of a `NodeAddr`, if this machine has it. A name that means the machine only
/// on itself, as distributions assign to the host name, is not an address for other hosts.
pub(super) fn own_address(name: &str) -> Option<IpAddr> {
    let is_own = |ip: &IpAddr| std::net::TcpListener::bind((*ip, 0)).is_ok();
    if let Ok(ip) = name.parse::<IpAddr>() {
        return Some(ip).filter(is_own);
    }
    let mut found = (name, 0).to_socket_addrs().ok()?.map(|a| a.ip());
    found.find(|ip| !ip.is_loopback() && is_own(ip))
}

/// Whether the node has a network that MPI uses other than by TCP: InfiniBand, RoCE, Omni-Path, EFA
/// (all of them verbs devices), Slingshot, BXI, Gemini.
fn has_fabric() -> bool {
    let classes = ["infiniband", "hfi1", "cxi", "bxi", "gni"];
    classes.iter().any(|class| {
        let devices = std::fs::read_dir(format!("/sys/class/{class}"));
        devices.is_ok_and(|mut d| d.next().is_some())
    })
}

/// Whether the node has a GPU or display that plugins of hwloc would detect.
fn has_gpu() -> bool {
    let devices = ["dri", "kfd", "nvidiactl", "dxg"];
    devices
        .iter()
        .any(|name| Path::new("/dev").join(name).exists())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_this_machines_own() {
        assert_eq!(own_address("127.0.0.7"), "127.0.0.7".parse().ok());
        // An address from a range reserved for documentation.
        assert_eq!(own_address("203.0.113.77"), None);
        assert_eq!(own_address("localhost"), None);
        assert_eq!(own_address(""), None);
    }
}
