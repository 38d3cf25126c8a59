//! Whether the controller is to run on this host (slurm.conf(5), `SlurmctldHost`).

use anyhow::{Context, Result, ensure};
use muster_channel::host::is_own;
use muster_conf::Config;

/// Refuses to start where another host is named: two controllers that have the same state directory by mistake, or nodes
/// that look for the controller on another host, are harder to find out about later.
///
/// # Errors
/// Neither this host's name nor an address of it is what `SlurmctldHost` says.
pub(crate) fn check(config: &Config) -> Result<()> {
    let name = nix::unistd::gethostname().context("cannot get this host's name")?;
    let name = name.to_string_lossy();
    let is_this = |host: &muster_conf::ControlHost| {
        is_own(&host.host) || host.addr.as_deref().is_some_and(is_own)
    };
    let Some(first) = config.slurmctld.first() else {
        return Ok(());
    };
    ensure!(
        is_this(first),
        "SlurmctldHost={} is not this host, which is called {name}: start slurmctld there, or name this host in slurm.conf",
        first.host
    );
    Ok(())
}
