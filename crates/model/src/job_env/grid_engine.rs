//! The variables that Grid Engine promises to its jobs.

use super::{JobView, Variables};
use crate::grid_engine::{HOSTS, PE, queue_in, slots_on, value};
use crate::job::{ArrayRole, NodeShare};
use crate::spec::JobSpec;

/// The variables of a job.
pub(super) fn variables(view: &JobView) -> Variables {
    let (spec, alloc) = (view.spec, view.alloc);
    let mut env = Variables::new();
    let mut set = |name: &str, value: String| env.push((name.to_owned(), value));
    let job = match view.array {
        ArrayRole::Task { base, .. } => *base,
        ArrayRole::None | ArrayRole::Pending { .. } => view.job,
    };
    set("JOB_ID", job.to_string());
    set("JOB_NAME", spec.name.clone());
    set("REQNAME", spec.name.clone());
    set("REQUEST", spec.name.clone());
    set("JOB_SCRIPT", spec.command.clone());
    set("RESTARTED", u32::from(view.restarts > 0).to_string());
    set("SGE_CLUSTER_NAME", view.cluster.to_owned());
    let queue = queue_in(spec, &alloc.partition);
    set("QUEUE", queue.to_owned());
    let slots: u64 = alloc.nodes.iter().map(|share| slots_on(spec, share)).sum();
    set("NSLOTS", slots.to_string());
    set("NHOSTS", alloc.nodes.len().to_string());
    set("NQUEUES", "1".to_owned());
    if let Some(pe) = value(spec, PE).and_then(|text| text.split(' ').next()) {
        set("PE", pe.to_owned());
        let line = |share| host_line(spec, share, queue);
        set(HOSTS, alloc.nodes.iter().map(line).collect());
    }
    let undefined = || "undefined".to_owned();
    let (mut index, mut first, mut last, mut step) =
        (undefined(), undefined(), undefined(), undefined());
    if let ArrayRole::Task { index: own, .. } = view.array {
        index = own.to_string();
        if let Some(info) = view.array_info {
            first = info.min.to_string();
            last = info.max.to_string();
            step = info.step.max(1).to_string();
        }
    }
    set("SGE_TASK_ID", index);
    set("SGE_TASK_FIRST", first);
    set("SGE_TASK_LAST", last);
    set("SGE_TASK_STEPSIZE", step);
    env
}

/// Bytes of a queue's name in a name of a directory.
const QUEUE_NAME_MAX: usize = 100;

/// Name of the temporary directory of a job on each of its nodes: `JOB.TASK.QUEUE`, where a job without tasks has 1.
pub(super) fn tmp_dir_name(view: &JobView) -> String {
    let (job, task) = match view.array {
        ArrayRole::Task { base, index } => (*base, *index),
        ArrayRole::None | ArrayRole::Pending { .. } => (view.job, 1),
    };
    // The submitter has said it.
    let is_name = |text: &&str| text.len() <= QUEUE_NAME_MAX && !text.contains(['/', '\0', '\n']);
    let partition = view.alloc.partition.as_str();
    let queue = Some(queue_in(view.spec, partition)).filter(is_name);
    format!("{job}.{task}.{}", queue.unwrap_or(partition))
}

fn host_line(spec: &JobSpec, share: &NodeShare, queue: &str) -> String {
    let (name, slots) = (&share.name, slots_on(spec, share));
    format!("{name} {slots} {queue}@{name} UNDEFINED\n")
}

/// The identifiers of granted devices, as `SGE_HGR_gpu` has them.
pub(super) fn granted(numbers: &[u32]) -> String {
    let text: Vec<String> = numbers.iter().map(u32::to_string).collect();
    text.join(" ")
}
