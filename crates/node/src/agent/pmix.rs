//! Whether a step's tasks find each other by PMIx or PMI, and with which settings.

use super::Agent;
use crate::shim::SHARED_MEMORY;
use crate::shim::wire::{PmixOrder, UcxOrder};
use muster_proto::node::JobGrant;
use muster_proto::step::StepLaunch;
use std::net::{IpAddr, ToSocketAddrs};
use std::path::Path;

impl Agent {
    /// What the step's host is told; nothing if the step uses no kind of MPI.
    pub(super) fn pmix_order(&self, grant: &JobGrant, launch: &StepLaunch) -> Option<PmixOrder> {
        let asked = launch.spec.mpi.as_deref().filter(|m| !m.is_empty());
        let kind = asked.unwrap_or(&self.settings.mpi_default);
        let pmi = kind == "pmi2";
        let version = if pmi { None } else { pmix_version(kind)? };
        let slots: usize = grant
            .alloc
            .nodes
            .iter()
            .map(|n| n.tasks.max(1) as usize)
            .sum();
        Some(PmixOrder {
            // Open MPI 5 makes numbers of this: what is before the @ gives one for the job, what follows is taken as it is,
            // so that no two steps of a job have the same.
            nspace: format!(
                "{}.{}.{}@{}",
                self.options.cluster, grant.job, grant.attempt.0, launch.step
            ),
            version,
            pmi,
            universe: u32::try_from(slots).unwrap_or(u32::MAX),
            listen: self.listen_ip(grant, launch),
            tmp_base: self.tmp_base(),
            share_topology: self.settings.mpi.share_topology,
            early: self.settings.mpi.early,
            timeout_s: self.settings.mpi.timeout_s,
            env: self.settings.mpi.env.clone(),
            cross_memory: self.cross_memory_switch(),
            plain_network: self.settings.mpi.skip_absent_fabrics && !has_fabric(),
            ucx: self.settings.mpi.ucx.then(|| UcxOrder {
                devices: self.settings.mpi.ucx_devices.clone(),
                transports: self.settings.mpi.ucx_transports.clone(),
            }),
            no_gpus: self.settings.mpi.skip_absent_fabrics && !has_gpu(),
            crowded_slack_us: self.settings.mpi.crowded_slack_us,
        })
    }

    /// What MPI is told of cross-memory attach; nothing where it is left to itself, which is to use it.
    fn cross_memory_switch(&self) -> Option<bool> {
        match self.settings.mpi.cross_memory {
            Some(wanted) => Some(wanted),
            None if self.found.cross_memory.as_ref().is_some_and(|c| !c.pays()) => Some(false),
            None => None,
        }
    }

    /// Where steps have their files: `PMIxCliTmpDirBase`; else in memory, as nothing in them outlives the step; where
    /// there is no such directory, in `TmpFS` or /tmp.
    fn tmp_base(&self) -> String {
        let name = &self.options.name;
        let base = self.settings.mpi.tmp_base.as_deref();
        let bases = base
            .into_iter()
            .chain([SHARED_MEMORY, &self.settings.tmp_fs]);
        bases
            .map(|base| base.replace("%n", name).replace("%h", name))
            .find(|base| Path::new(base).is_dir())
            .unwrap_or_else(|| "/tmp".to_owned())
    }

    /// The address by which other nodes reach this one: that of its agent, or its `NodeAddr`. Agents that are reached by
    /// a Unix socket, and have none of their own, share a machine.
    fn listen_ip(&self, grant: &JobGrant, launch: &StepLaunch) -> String {
        let name = launch.names.get(launch.position as usize);
        let at = grant.alloc.nodes.iter().position(|n| Some(&n.name) == name);
        let address = at.and_then(|at| grant.addresses.get(at));
        match address.and_then(|a| a.rsplit_once(':')) {
            Some((host, _)) if !host.is_empty() && host != "unix" && !host.contains('/') => {
                host.to_owned()
            }
            _ => match self.found.listens_at {
                Some(ip) => ip.to_string(),
                None => "127.0.0.1".to_owned(),
            },
        }
    }
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

/// The version that a kind of MPI asks for, if it is PMIx: `pmix` takes any, `pmix_v4` only that.
fn pmix_version(kind: &str) -> Option<Option<u32>> {
    match kind.strip_prefix("pmix")? {
        "" => Some(None),
        rest => rest.strip_prefix("_v")?.parse().ok().map(Some),
    }
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

    #[test]
    fn kinds() {
        assert_eq!(pmix_version("pmix"), Some(None));
        assert_eq!(pmix_version("pmix_v4"), Some(Some(4)));
        assert_eq!(pmix_version("pmi2"), None);
        assert_eq!(pmix_version("none"), None);
        assert_eq!(pmix_version("pmix_x"), None);
    }
}
