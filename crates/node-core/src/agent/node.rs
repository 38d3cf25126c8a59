//! The agent's data about its node, and the orders for steps that follow from it and the settings.

use super::AgentConfig;
use crate::binding::{BindVariables, SiteBinding};
use crate::job_container::SCRATCH;
use crate::job_view::{job_view, propagated_limits};
use crate::messages::{ProcessIdentity, StepOrder, TaskBinding};
use crate::step_bounds;
use crate::step_variables::StepVariables;
use crate::tmp_dir;
use muster_model::binding::CpuBindKind;
use muster_model::environment::Environment;
use muster_model::ids::JobAttempt;
use muster_model::job_env::{self, StepView};
use muster_model::{hostlist, tree};
use muster_proto::node::{JobGrant, NodeSettings};
use muster_proto::step::{StepLaunch, StepSpec};
use muster_trust::{JobKeyUse, derive_job_key};

/// The node.
#[derive(Debug)]
pub(super) struct AgentNode {
    pub(super) config: AgentConfig,
    /// The controller's.
    pub(super) settings: NodeSettings,
    site_binding: SiteBinding,
}

impl AgentNode {
    pub(super) fn new(config: AgentConfig) -> AgentNode {
        AgentNode {
            config,
            settings: NodeSettings::default(),
            site_binding: SiteBinding::default(),
        }
    }

    pub(super) fn apply(&mut self, settings: NodeSettings) {
        let settings = settings.at(&self.config.conf);
        self.site_binding = SiteBinding::new(&settings.cpu_bind);
        self.settings = settings;
    }

    /// Width of a step's tree, where srun asks for `asked`.
    pub(super) fn tree_width(&self, asked: Option<u32>) -> usize {
        match asked.unwrap_or(self.settings.tree_width) {
            0 => tree::WIDTH_DEFAULT,
            width => width.max(2) as usize,
        }
    }

    /// `MaxStepCount`: no step gets this number.
    pub(super) fn max_step_count(&self) -> u32 {
        step_bounds::max_step_count(&self.settings)
    }

    /// `MaxTasksPerNode`.
    pub(super) fn max_tasks_per_node(&self) -> u32 {
        step_bounds::max_tasks_per_node(&self.settings)
    }

    /// `OverMemoryKill`.
    pub(super) fn kills_over_memory(&self) -> bool {
        self.settings.sampling.is_some_and(|s| s.over_memory_kill)
    }

    /// Where the tasks of a step run here.
    pub(super) fn bind(
        &self,
        launch: &StepLaunch,
        grant: &JobGrant,
    ) -> Result<(TaskBinding, BindVariables), String> {
        let site = self.site_binding.of(&grant.alloc);
        self.config.machine.bind(launch, &self.settings, site)
    }

    /// Binding of a step's tasks, in words for its user.
    pub(super) fn bind_words(&self, spec: &StepSpec, grant: &JobGrant) -> String {
        let of_site = || self.site_binding.of(&grant.alloc).map(CpuBindKind::word);
        let asked = spec.cpu_bind.clone();
        asked
            .or_else(|| Some(of_site()?.to_owned()))
            .unwrap_or_default()
    }

    /// The order for a step daemon.
    pub(super) fn step_order(
        &self,
        grant: &JobGrant,
        mut launch: StepLaunch,
        (binding, bind_env): (TaskBinding, BindVariables),
    ) -> StepOrder {
        let variables = self.step_variables(grant, &launch, bind_env);
        let env = variables.environment(&launch.spec, launch.step);
        // The environment is in the order already.
        launch.spec.context.environment = Environment::default();
        // Processes that run as the user get no key of agents.
        launch.key = derive_job_key(&launch.key, JobKeyUse::Pmix).into();
        let soft = &launch.spec.context.soft_limits;
        StepOrder {
            attempt: JobAttempt::new(grant.job, grant.attempt),
            user: user_of(grant),
            env,
            binding,
            limits: propagated_limits(&self.settings, soft),
            array: grant.array.task(),
            job_name: grant.spec.name.clone(),
            append: self.settings.append,
            task_prolog: self.settings.task_prolog.clone(),
            task_epilog: self.settings.task_epilog.clone(),
            pmix: self.pmix_order(grant, &launch),
            direct: false,
            // The launcher fills it in.
            tmp_dir: None,
            launch,
        }
    }

    /// Variables that override the environment of srun.
    fn step_variables(
        &self,
        grant: &JobGrant,
        launch: &StepLaunch,
        bind_env: BindVariables,
    ) -> StepVariables {
        let hostlist = hostlist::compress(&launch.names);
        let spec = &launch.spec;
        let view = StepView {
            step: launch.step,
            hostlist: &hostlist,
            tasks: &launch.tasks,
            position: launch.position as usize,
            node: &self.config.name,
            cpus_on_node: launch.cpus.len(),
            gres: &launch.gres,
            cpus_per_task: spec.cpus_per_task,
            distribution: spec.distribution.as_deref(),
            total_tasks: spec.het.as_ref().and_then(|het| het.total_tasks),
        };
        let spool = self.config.spool_dir.to_string_lossy().into_owned();
        let place = [
            ("MUSTER_SPOOL", spool),
            ("MUSTER_ATTEMPT", grant.attempt.0.to_string()),
        ];
        let scratch = self.settings.job_scratch();
        let scratch = scratch.map(|dir| (SCRATCH, dir.to_owned()));
        // The process that starts a task knows the job's own directory.
        let tmp_dir = tmp_dir::shared(
            grant,
            &self.config.cluster,
            &self.settings,
            &self.config.name,
        );
        let tmp_dir = tmp_dir.map(|path| path.to_string_lossy().into_owned());
        let tmp_dir = tmp_dir
            .iter()
            .flat_map(|path| tmp_dir::VARIABLES.map(|name| (name, path.clone())));
        let of_node = bind_env.into_iter().chain(place).chain(scratch);
        let of_node = of_node.chain(tmp_dir);
        let job = job_view(grant, &self.config.cluster, &self.settings);
        StepVariables {
            own: job_env::step_env(&job, &view),
            node: of_node.map(|(k, v)| (k.to_owned(), v)).collect(),
        }
    }
}

/// The user of a job's steps. The launcher does not take it from the agent, and adds the user's groups.
fn user_of(grant: &JobGrant) -> ProcessIdentity {
    let owner = &grant.spec.owner;
    ProcessIdentity {
        uid: owner.uid,
        gid: owner.gid,
        groups: Vec::new(),
        name: owner.user.clone(),
    }
}
