//! What the machine has of networks, GPUs and addresses, for steps that use MPI. It is read when a step starts: devices come
//! and go.

use muster_node_core::messages::PmixOrder;
use std::net::{IpAddr, ToSocketAddrs};
use std::path::Path;

/// Fills in what an order for a step's host says of the machine; `tmp_bases` are directories for its files, the best first.
pub(super) fn complete(order: &mut PmixOrder, tmp_bases: Vec<String>) {
    let mut bases = tmp_bases.into_iter();
    let base = bases.find(|base| Path::new(base).is_dir());
    order.tmp_base = base.unwrap_or_else(|| "/tmp".to_owned());
    order.plain_network = order.plain_network && !has_fabric();
    order.no_gpus = order.no_gpus && !has_gpu();
}

/// The IP address of a `NodeAddr`, if it is one of this machine's. A name that stands for the machine only to itself,
/// as distributions give the host's, is no address for others.
pub(super) fn own_address(name: &str) -> Option<IpAddr> {
    let is_own = |ip: &IpAddr| std::net::TcpListener::bind((*ip, 0)).is_ok();
    if let Ok(ip) = name.parse::<IpAddr>() {
        return Some(ip).filter(is_own);
    }
    let mut found = (name, 0).to_socket_addrs().ok()?.map(|a| a.ip());
    found.find(|ip| !ip.is_loopback() && is_own(ip))
}

/// Whether the node has a network that MPI uses by another way than TCP: InfiniBand, RoCE, Omni-Path, EFA (all of them
/// verbs devices), Slingshot, BXI, Gemini.
fn has_fabric() -> bool {
    let classes = ["infiniband", "hfi1", "cxi", "bxi", "gni"];
    classes.iter().any(|class| {
        let devices = std::fs::read_dir(format!("/sys/class/{class}"));
        devices.is_ok_and(|mut d| d.next().is_some())
    })
}

/// Whether the node has a GPU: what hwloc's plugins for them and for displays would find something by.
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
        // Of a range that is kept for documentation.
        assert_eq!(own_address("203.0.113.77"), None);
        assert_eq!(own_address("localhost"), None);
        assert_eq!(own_address(""), None);
    }
}
