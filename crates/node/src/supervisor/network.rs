//! The supervisor's part of connections from other hosts: it creates the socket of `SlurmdPort` and
//! the file by which processes identify this host, and starts the relay that serves the socket.

use crate::messages::agent_relay;
use crate::options::{AgentOptions, NetworkOptions};
use crate::role::{self, RELAY_NAME};
use crate::sys;
use anyhow::Context as _;
use muster_channel::listen_everywhere;
use muster_node_core::messages::ProcessIdentity;
use muster_proto::address::HOST_FILE;
use nix::unistd::geteuid;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::net::TcpListener;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::{OpenOptionsExt as _, chown};
use std::path::Path;
use std::time::{Duration, Instant};

/// Time limit for the relay of an earlier agent to release the port.
const PORT_MAX: Duration = Duration::from_secs(5);
/// Interval between attempts to bind the port meanwhile, because no event reports that it is free.
const PORT_RETRY: Duration = Duration::from_millis(20);

/// Creates the file that identifies this host, again after each boot. Its group is that of the
/// relay, if there is one: the launcher lets this group connect to step daemons.
pub(super) fn name_host(options: &AgentOptions, account: &ProcessIdentity) -> io::Result<()> {
    let path = options.spool_dir.join(HOST_FILE);
    write_host(&options.spool_dir, &path)?;
    if geteuid().is_root() {
        let group = options.network.port.map_or(0, |_| account.gid);
        chown(&path, Some(0), Some(group))?;
    }
    Ok(())
}

/// The name changes with each boot, so that a copy of a disk counts as another host.
fn write_host(spool: &Path, path: &Path) -> io::Result<()> {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    let boot = boot.trim();
    let said = fs::read_to_string(path).unwrap_or_default();
    if !boot.is_empty() && said.starts_with(boot) {
        return Ok(());
    }
    let mut random = [0; 8];
    sys::fill_randomly(&mut random)?;
    let random = u64::from_be_bytes(random);
    let new = spool.join("host.new");
    let _ = fs::remove_file(&new);
    let mut file = OpenOptions::new()
        .create_new(true)
        .write(true)
        .mode(0o644)
        .open(&new)?;
    writeln!(file, "{boot}.{random:016x}")?;
    file.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(0o644))?;
    fs::rename(&new, path)
}

/// Starts the relay, if the node serves other hosts; returns the agent's end of the link between
/// both. The relay logs to the given link.
pub(super) fn start_relay(
    options: &AgentOptions,
    account: &ProcessIdentity,
    log: &OwnedFd,
) -> anyhow::Result<Option<OwnedFd>> {
    let Some(port) = options.network.port else {
        return Ok(None);
    };
    let listener = listen(&options.network, port)
        .with_context(|| format!("cannot listen on port {port} (SlurmdPort)"))?;
    let (of_relay, of_agent) = agent_relay::pair()?;
    let start = role::Start {
        words: &[RELAY_NAME, &options.name],
        environment: Vec::new(),
        user: account,
        order: agent_relay::relay_order(options.network.without_http),
        errors: Some(log.as_raw_fd()),
        is_untraceable: false,
        kept: vec![listener.as_raw_fd(), of_relay.as_raw_fd()],
        outlives: true,
        namespace: None,
    };
    let pid = start.start().context("the relay cannot be started")?;
    log::info!("other hosts are served at port {port} by process {pid}");
    Ok(Some(of_agent))
}

fn listen(network: &NetworkOptions, port: u16) -> io::Result<TcpListener> {
    let until = Instant::now() + PORT_MAX;
    loop {
        match listen_everywhere(port, network.ipv6_only) {
            Err(e) if e.kind() == io::ErrorKind::AddrInUse && Instant::now() < until => {
                std::thread::sleep(PORT_RETRY);
            }
            bound => {
                let listener = bound?;
                // Connections from it are probed so, too.
                network.keep_alive().set_on(&listener)?;
                return Ok(listener);
            }
        }
    }
}
