//! Whether a step's tasks find each other by PMIx or PMI, and with which settings.

use super::node::AgentNode;
use crate::messages::{PmixOrder, UcxOrder};
use crate::pmix_place;
use muster_model::ids::JobAttempt;
use muster_proto::address::Address;
use muster_proto::node::JobGrant;
use muster_proto::step::{ProgramKind, StepLaunch};

impl AgentNode {
    /// The order for the step's MPI host, if it has one. The executor adds properties of the machine: `tmp_base`, and
    /// whether networks and GPUs are absent.
    pub(super) fn pmix_order(&self, grant: &JobGrant, launch: &StepLaunch) -> Option<PmixOrder> {
        let tasks = launch.tasks.iter().map(Vec::len).sum();
        let asked = launch.spec.mpi.as_deref().filter(|m| !m.is_empty());
        let (default, program) = (&self.settings.mpi_default, launch.spec.program);
        let kind = served(asked, default, program, tasks)?;
        let slots: usize = grant
            .alloc
            .nodes
            .iter()
            .map(|n| n.tasks.max(1) as usize)
            .sum();
        Some(PmixOrder {
            nspace: pmix_place::namespace(
                &self.config.cluster,
                JobAttempt::new(grant.job, grant.attempt),
                launch.step,
            ),
            version: match kind {
                Kind::Pmix(version) => version,
                Kind::Pmi | Kind::Any => None,
            },
            pmi: kind == Kind::Pmi,
            any: kind == Kind::Any,
            universe: u32::try_from(slots).unwrap_or(u32::MAX),
            listen: self.listen_ip(grant, launch),
            tmp_base: String::new(),
            share_topology: self.settings.mpi.share_topology,
            early: self.settings.mpi.early,
            timeout_s: self.settings.mpi.timeout_s,
            env: self.settings.mpi.env.clone(),
            cross_memory: self.cross_memory_switch(),
            plain_network: self.settings.mpi.skip_absent_fabrics,
            ucx: self.settings.mpi.ucx.then(|| UcxOrder {
                devices: self.settings.mpi.ucx_devices.clone(),
                transports: self.settings.mpi.ucx_transports.clone(),
            }),
            no_gpus: self.settings.mpi.skip_absent_fabrics,
            crowded_slack_us: self.settings.mpi.crowded_slack_us,
        })
    }

    /// The value of the variables that switch cross-memory attach on or off for MPI libraries; `None` leaves the
    /// default, which is on.
    fn cross_memory_switch(&self) -> Option<bool> {
        match self.settings.mpi.cross_memory {
            Some(wanted) => Some(wanted),
            None if self.config.cross_memory_pays == Some(false) => Some(false),
            None => None,
        }
    }

    /// The address by which other nodes reach this one: that of its agent, or its `NodeAddr`. Agents that are reached by
    /// a Unix socket, and have none of their own, share a machine.
    fn listen_ip(&self, grant: &JobGrant, launch: &StepLaunch) -> String {
        let name = launch.names.get(launch.position as usize);
        let at = grant.alloc.nodes.iter().position(|n| Some(&n.name) == name);
        let address = at.and_then(|at| grant.addresses.get(at));
        let address = address.filter(|text| Address::parse(text).is_none());
        match address.and_then(|a| a.rsplit_once(':')) {
            Some((host, _)) if !host.is_empty() && host != "unix" && !host.contains('/') => {
                host.to_owned()
            }
            _ => match self.config.listens_at {
                Some(ip) => ip.to_string(),
                None => "127.0.0.1".to_owned(),
            },
        }
    }
}

/// The APIs by which the tasks of a step find each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// PMIx, of this version if one was asked for.
    Pmix(Option<u32>),
    /// PMI-1 and PMI-2.
    Pmi,
    /// The API that each program uses.
    Any,
}

/// The APIs that serve a step's tasks. Programs that need none get none, unless srun requests one. A single task need
/// not find others; it is served if its program is known to use MPI, because Open MPI 4 learns by PMIx that it is
/// alone.
fn served(asked: Option<&str>, default: &str, program: ProgramKind, tasks: usize) -> Option<Kind> {
    let kind = kind(asked.unwrap_or(default))?;
    if asked.is_none() && program == ProgramKind::Plain {
        return None;
    }
    let alone = tasks <= 1 && program != ProgramKind::Mpi;
    Some(kind).filter(|kind| *kind != Kind::Any || !alone)
}

/// `auto`, `pmi2`, `pmix` of any version, `pmix_v4`; nothing for `none`.
fn kind(name: &str) -> Option<Kind> {
    match name {
        "auto" => Some(Kind::Any),
        "pmi2" => Some(Kind::Pmi),
        _ => match name.strip_prefix("pmix")? {
            "" => Some(Kind::Pmix(None)),
            rest => rest
                .strip_prefix("_v")?
                .parse()
                .ok()
                .map(|v| Kind::Pmix(Some(v))),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds() {
        assert_eq!(kind("auto"), Some(Kind::Any));
        assert_eq!(kind("pmix"), Some(Kind::Pmix(None)));
        assert_eq!(kind("pmix_v4"), Some(Kind::Pmix(Some(4))));
        assert_eq!(kind("pmi2"), Some(Kind::Pmi));
        assert_eq!(kind("none"), None);
        assert_eq!(kind("pmix_x"), None);
    }

    #[test]
    fn programs_get_what_they_may_need() {
        use ProgramKind::{Mpi, Plain, Unknown};
        let auto = |program, tasks| served(None, "auto", program, tasks);
        assert_eq!(auto(Mpi, 2), Some(Kind::Any));
        assert_eq!(auto(Mpi, 1), Some(Kind::Any));
        assert_eq!(auto(Unknown, 2), Some(Kind::Any));
        assert_eq!(auto(Unknown, 1), None);
        assert_eq!(auto(Plain, 2), None);
        assert_eq!(served(None, "pmix", Plain, 2), None);
        assert_eq!(served(None, "pmix", Unknown, 1), Some(Kind::Pmix(None)));
        assert_eq!(served(None, "none", Mpi, 2), None);
        assert_eq!(served(Some("none"), "auto", Mpi, 2), None);
        assert_eq!(served(Some("pmi2"), "auto", Plain, 1), Some(Kind::Pmi));
    }
}
