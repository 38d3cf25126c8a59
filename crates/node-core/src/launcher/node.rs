//! The launcher's data about its node.

use super::job::JobEntry;
use super::session::OrderTarget;
use crate::binding::Machine;
use crate::cgroup::{Confinement, denied_devices};
use crate::messages::MachineClaim;
use muster_model::spec::SoftLimit;
use muster_proto::node::NodeSettings;
use std::path::PathBuf;

/// `KillWait` where nothing else is said.
const KILL_WAIT_MS: u64 = 30_000;

/// Data that does not change while a launcher runs.
#[derive(Clone, Debug, Default)]
pub struct LauncherSetup {
    /// The spool directory.
    pub spool: PathBuf,
    /// The launcher's own user.
    pub uid: u32,
    /// CPUs of the machine.
    pub cpus: u32,
    /// Soft limits of tasks where the user asks for none.
    pub first_limits: Vec<SoftLimit>,
    /// The name of this node that no other on the machine has.
    pub own: String,
    /// The host's name, without its domain.
    pub host: String,
}

/// The node.
pub(super) struct LauncherNode {
    pub(super) setup: LauncherSetup,
    /// The node's identity, as reported by root.
    pub(super) place: OrderTarget,
    /// The path of slurm.conf, as reported by root.
    pub(super) conf: String,
    pub(super) claim: MachineClaim,
    pub(super) machine: Option<Machine>,
    /// The controller's.
    pub(super) settings: NodeSettings,
    pub(super) kill_wait_ms: u64,
    /// The time after SIGKILL at which remaining processes count as unkillable, and the program that is run then.
    pub(super) unkillable: Option<(u64, Option<String>)>,
}

impl LauncherNode {
    pub(super) fn new(setup: LauncherSetup) -> LauncherNode {
        LauncherNode {
            setup,
            place: OrderTarget::default(),
            conf: String::new(),
            claim: MachineClaim::default(),
            machine: None,
            settings: NodeSettings::default(),
            kill_wait_ms: KILL_WAIT_MS,
            unkillable: None,
        }
    }

    pub(super) fn apply(&mut self, settings: NodeSettings) {
        let settings = settings.at(&self.conf);
        if settings.kill_wait_s > 0 {
            self.kill_wait_ms = u64::from(settings.kill_wait_s) * 1000;
        }
        let timeout = Some(settings.unkillable_timeout_s).filter(|s| *s > 0);
        self.unkillable =
            timeout.map(|s| (u64::from(s) * 1000, settings.unkillable_program.clone()));
        self.settings = settings;
    }

    /// Whether this launcher can run processes of a user.
    ///
    /// # Errors
    /// Why not.
    pub(super) fn check_user(&self, uid: u32) -> Result<(), String> {
        let own = self.setup.uid;
        if own == 0 || own == uid {
            return Ok(());
        }
        Err(format!(
            "the node agent runs as uid {own} and cannot run jobs of uid {uid}; start it as root to serve several users"
        ))
    }

    /// The control group limits of a job, if the site uses them.
    pub(super) fn confinement(&self, entry: &JobEntry) -> Option<Box<Confinement>> {
        let settings = self.settings.cgroups.as_ref()?;
        let share = entry.share();
        let machine = self.machine.as_ref();
        Some(Box::new(Confinement {
            settings: (**settings).clone(),
            memory_mib: share.map_or(0, |share| share.memory_mib),
            cpus: machine.and_then(|m| m.threads(&share?.cpus, &self.settings)),
            denied: denied_devices(settings, share.map_or(&[], |share| &share.gres)),
        }))
    }

    /// Environment of programs that have to do with the node, with nothing of this process's own.
    pub(super) fn site_env(&self) -> Vec<String> {
        vec![
            "PATH=/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin".to_owned(),
            format!("SLURM_CONF={}", self.settings.conf_path),
            format!("SLURM_CLUSTER_NAME={}", self.place.cluster),
            format!("SLURMD_NODENAME={}", self.place.node),
        ]
    }
}
