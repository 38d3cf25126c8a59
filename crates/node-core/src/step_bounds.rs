//! Limits for the steps of a job on a node. The launcher derives them from the job's grant, which the controller has
//! sealed, and checks the agent's orders against them. Step daemons do likewise, because agents give them further
//! steps of the job directly.

use crate::messages::{StepBounds, StepOrder};

use muster_model::cpuset::CpuSet;
use muster_model::ids::JobAttempt;
use muster_model::job::GresShare;
use muster_proto::node::NodeSettings;

/// `MaxStepCount` where nothing else is said.
const MAX_STEP_COUNT_DEFAULT: u32 = 40_000;
/// Most that it may be: above are the numbers under which the launcher keeps other things.
const MAX_STEP_COUNT_MAX: u32 = 1 << 29;
/// `MaxTasksPerNode` where nothing else is said.
const TASKS_PER_NODE_DEFAULT: u32 = crate::layout::TASKS_PER_NODE_DEFAULT;

/// `MaxStepCount`: no step gets this number.
pub fn max_step_count(settings: &NodeSettings) -> u32 {
    match settings.max_step_count {
        0 => MAX_STEP_COUNT_DEFAULT,
        count => count.min(MAX_STEP_COUNT_MAX),
    }
}

/// `MaxTasksPerNode`.
pub fn max_tasks_per_node(settings: &NodeSettings) -> u32 {
    match settings.max_tasks_per_node {
        0 => TASKS_PER_NODE_DEFAULT,
        count => count,
    }
}

impl StepBounds {
    /// Checks what an agent orders.
    ///
    /// # Errors
    /// Why that is not a step of the job.
    pub fn check(&self, attempt: JobAttempt, order: &StepOrder) -> Result<(), String> {
        let launch = &order.launch;
        if order.attempt != attempt || launch.spec.job != attempt.job {
            return Err("the step is of another job".to_owned());
        }
        if launch.step.0 >= self.max_step_count {
            return Err(format!("no step has the number {}", launch.step));
        }
        let position = launch.position as usize;
        if launch.names.get(position) != Some(&self.node) {
            return Err(format!("the step's node {position} is not {}", self.node));
        }
        let tasks = launch.tasks.get(position).map_or(0, Vec::len);
        if tasks > self.max_tasks as usize || launch.tasks.len() != launch.names.len() {
            return Err(format!("the step has {tasks} tasks on this node"));
        }
        if !self.cpus.is_superset(&launch.cpus) {
            return Err("the step has CPUs that the job does not have".to_owned());
        }
        if self.memory_mib > 0 && launch.memory_mib > self.memory_mib {
            return Err("the step has memory that the job does not have".to_owned());
        }
        if !launch.gres.iter().all(|gres| self.has(gres)) {
            return Err("the step has devices that the job does not have".to_owned());
        }
        let none = CpuSet::default();
        let threads = self.threads.as_ref().unwrap_or(&none);
        if !order.binding.cpus.iter().all(|c| threads.is_superset(c)) {
            return Err("tasks are bound to CPUs that the job does not have".to_owned());
        }
        Ok(())
    }

    fn has(&self, asked: &GresShare) -> bool {
        let covers = |own: &GresShare| {
            (&own.name, &own.kind) == (&asked.name, &asked.kind) && own.ids.is_superset(&asked.ids)
        };
        self.gres.iter().any(covers)
    }
}
