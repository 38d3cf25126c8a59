//! `slurmd -Z`: what a node says of itself that slurm.conf does not name.

use super::{hostname, machine_pairs, memory_pair, place, short_name};
use anyhow::{Context as _, Result, ensure};
use muster_channel::host::is_own;
use muster_conf::{Config, NodeDef, dynamic_nodes, hardware_is_given};
use std::net::{ToSocketAddrs as _, UdpSocket};

/// The node, by what the machine has and by what `--conf` says instead.
pub(super) fn describe(config: &Config, name: Option<&str>, said: Option<&str>) -> Result<NodeDef> {
    let host = hostname()?;
    let name = name.unwrap_or_else(|| short_name(&host));
    ensure!(
        config.node(name).is_none(),
        "node {name} is in {}: start slurmd without -Z",
        config.path.display()
    );
    let said = said.unwrap_or_default();
    let says = |key: &str| {
        let mut keys = said
            .split_whitespace()
            .filter_map(|pair| pair.split_once('='));
        keys.any(|(own, _)| own.eq_ignore_ascii_case(key))
    };
    for key in ["NodeName", "Port", "State", "Reason"] {
        ensure!(!says(key), "--conf cannot say {key}= of a node");
    }
    let mut line = format!("NodeName={name}");
    let mut add = |pairs: &str| {
        line.push(' ');
        line.push_str(pairs);
    };
    match (hardware_is_given(said), says("RealMemory")) {
        // The machine's memory is known whatever its processors are said to be.
        (true, false) => add(&memory_pair()?),
        (true, true) => {}
        (false, is_given) => {
            let machine = machine_pairs(&config.path)?;
            let pairs = machine.split(' ');
            pairs
                .filter(|pair| !(is_given && pair.starts_with("RealMemory=")))
                .for_each(&mut add);
        }
    }
    if !says("NodeHostname") {
        add(&format!("NodeHostname={}", short_name(&host)));
    }
    if !says("NodeAddr")
        && let Some(address) = own_address(config)
    {
        add(&format!("NodeAddr={address}"));
    }
    add(said);
    let nodes = dynamic_nodes(&line, config)?;
    let node = nodes.into_iter().next().filter(|node| node.name == name);
    node.with_context(|| format!("invalid node name {name}; give another by -N"))
}

/// The address by which this host reaches the controller, if that is another host.
pub(super) fn own_address(config: &Config) -> Option<String> {
    let port = *config.slurmctld_ports.start();
    let hosts = config.slurmctld.iter();
    let mut remote = hosts.filter(|host| !is_own(&host.host) && !is_own(host.address()));
    let first = remote.next()?;
    let address = config.slurmctld_addr.as_deref().unwrap_or(first.address());
    let target = place(address, port).to_socket_addrs().ok()?.next()?;
    // Nothing is sent: the kernel says which way it would go.
    let any = match target.is_ipv4() {
        true => "0.0.0.0:0",
        false => "[::]:0",
    };
    let socket = UdpSocket::bind(any).ok()?;
    socket.connect(target).ok()?;
    Some(socket.local_addr().ok()?.ip().to_string())
}
