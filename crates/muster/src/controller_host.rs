//! Whether the controller is to run on this host (slurm.conf(5), `SlurmctldHost`).

use anyhow::{Context, Result, ensure};
use muster_conf::Config;
use std::net::{TcpListener, ToSocketAddrs};

/// Refuses to start where another host is named: two controllers that have the same state directory by mistake, or nodes
/// that look for the controller on another host, are harder to find out about later.
///
/// # Errors
/// Neither this host's name nor an address of it is what `SlurmctldHost` says.
pub(crate) fn check(config: &Config) -> Result<()> {
    let name = nix::unistd::gethostname().context("cannot get this host's name")?;
    let name = name.to_string_lossy();
    let is_own = |host: &muster_conf::ControlHost| {
        is_name(&host.host, &name)
            || has_own_address(&host.host)
            || host.addr.as_deref().is_some_and(has_own_address)
    };
    let Some(first) = config.slurmctld.first() else {
        return Ok(());
    };
    ensure!(
        is_own(first),
        "SlurmctldHost={} is not this host, which is called {name}: start slurmctld there, or name this host in slurm.conf",
        first.host
    );
    Ok(())
}

/// Whether a host is called so, with or without its domain.
fn is_name(given: &str, name: &str) -> bool {
    let short = |name: &str| name.split('.').next().unwrap_or("").to_ascii_lowercase();
    match given.contains('.') && name.contains('.') {
        true => given.eq_ignore_ascii_case(name),
        false => short(given) == short(name),
    }
}

/// Whether a name or address is one of this host's: only such can be bound.
fn has_own_address(name: &str) -> bool {
    let addresses = (name, 0).to_socket_addrs();
    addresses.is_ok_and(|mut all| all.any(|address| TcpListener::bind(address).is_ok()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_compared_as_far_as_both_are_written() {
        for (given, name, same) in [
            ("head", "head", true),
            ("HEAD", "head.site.org", true),
            ("head.site.org", "head", true),
            ("head.site.org", "head.other.org", false),
            ("head2", "head", false),
        ] {
            assert_eq!(is_name(given, name), same, "{given} {name}");
        }
        assert!(has_own_address("localhost") && !has_own_address("192.0.2.7"));
    }
}
