//! The variables that Torque promises to its jobs, with the numbers that Slurm's commands know jobs by.

use super::{JobView, Variables};
use crate::grid_engine::slots_on;
use crate::job::ArrayRole;
use crate::spec::JobKind;
use crate::torque::HOSTS;

/// The variables of a job.
pub(super) fn variables(view: &JobView) -> Variables {
    let (spec, alloc) = (view.spec, view.alloc);
    let mut env = Variables::new();
    let mut set = |name: &str, value: String| env.push((name.to_owned(), value));
    set("PBS_JOBID", view.job.to_string());
    set("PBS_JOBNAME", spec.name.clone());
    set("PBS_QUEUE", alloc.partition.clone());
    let asked = spec.partitions.first().unwrap_or(&alloc.partition);
    set("PBS_O_QUEUE", asked.clone());
    set("PBS_ACCOUNT", view.account.to_owned());
    if let ArrayRole::Task { base, index } = view.array {
        set("PBS_ARRAYID", index.to_string());
        set("PBS_ARRAY_INDEX", index.to_string());
        set("PBS_ARRAY_ID", base.to_string());
    }
    // `ncpus=4` is four slots of a node, though there is one task.
    let least = u64::from(spec.ask.min_cpus_per_node.unwrap_or(1));
    let slots = alloc.nodes.iter().map(|own| slots_on(spec, own).max(least));
    let slots: Vec<u64> = slots.collect();
    set("PBS_NP", slots.iter().sum::<u64>().to_string());
    set("PBS_NUM_NODES", slots.len().to_string());
    let most = slots.iter().max().copied().unwrap_or(1);
    set("PBS_NUM_PPN", most.to_string());
    // qsub adds the submitter's variables to a batch job; the holder of nodes has them already.
    match spec.kind {
        JobKind::Batch => set("PBS_ENVIRONMENT", "PBS_BATCH".to_owned()),
        JobKind::Allocation => {
            set("PBS_ENVIRONMENT", "PBS_INTERACTIVE".to_owned());
            set("PBS_O_WORKDIR", spec.work_dir.clone());
            set("PBS_O_HOST", spec.submit_host.clone());
        }
    }
    set("PBS_NODENUM", "0".to_owned());
    set("PBS_TASKNUM", "1".to_owned());
    if let Some(limit) = view.time_limit.seconds() {
        set("PBS_WALLTIME", limit.to_string());
    }
    let named = alloc.nodes.iter().zip(&slots);
    let hosts = named.map(|(own, count)| format!("{} {count}\n", own.name));
    set(HOSTS, hosts.collect());
    env
}
