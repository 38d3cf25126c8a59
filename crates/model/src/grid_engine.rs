//! What a job that `qsub` submitted says beyond the options of sbatch, and the variables that Grid Engine promises to jobs. The
//! values are among [`JobSpec::shown`](crate::spec::JobSpec::shown), each under a name of its own.

use crate::job::ArrayRole;
use crate::job_env::{JobView, Variables};
use crate::spec::JobSpec;

/// Marks a job of the Grid Engine commands. Its value is the name of the command: qsub, qrsh, qlogin.
pub const COMMAND: &str = "ge-command";
/// Name of the queue that was asked for, where it is one.
pub const QUEUE: &str = "ge-queue";
/// Parallel environment and slots, as `smp 4`.
pub const PE: &str = "ge-pe";
/// Hard requests, as `h_rt=60,gpu=1`.
pub const HARD: &str = "ge-hard";
/// Soft requests.
pub const SOFT: &str = "ge-soft";
/// Standard error goes where standard output goes: `y`.
pub const MERGE: &str = "ge-merge";
/// The names of jobs to wait for, as they were given.
pub const HOLD_JID: &str = "ge-hold-jid";
/// What the job runs is a command and no script: `y`.
pub const BINARY: &str = "ge-binary";

/// All of these names.
pub const NAMES: [&str; 8] = [COMMAND, QUEUE, PE, HARD, SOFT, MERGE, HOLD_JID, BINARY];

/// The value under a name.
pub fn value<'a>(spec: &'a JobSpec, name: &str) -> Option<&'a str> {
    let found = spec.shown.iter().find(|(key, _)| key == name);
    found.map(|(_, value)| value.as_str())
}

/// Whether one of the Grid Engine commands submitted the job.
pub fn is_marked(spec: &JobSpec) -> bool {
    value(spec, COMMAND).is_some()
}

/// The content of Grid Engine's host file of a parallel job: a line for each host with its slots and queue.
pub const HOSTS: &str = "MUSTER_PE_HOSTS";

/// Names of variables that describe one job: the new job's own take their place, and none is left over from another job.
pub const VARIABLES: [&str; 19] = [
    "JOB_ID",
    "JOB_NAME",
    "JOB_SCRIPT",
    "REQNAME",
    "REQUEST",
    "RESTARTED",
    "QUEUE",
    "NSLOTS",
    "NHOSTS",
    "NQUEUES",
    "PE",
    "PE_HOSTFILE",
    HOSTS,
    "SGE_TASK_ID",
    "SGE_TASK_FIRST",
    "SGE_TASK_LAST",
    "SGE_TASK_STEPSIZE",
    "SGE_HGR_gpu",
    "SGE_CLUSTER_NAME",
];

/// The variables of a job.
pub(crate) fn job_env(view: &JobView) -> Variables {
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
    let queue = value(spec, QUEUE).unwrap_or(&alloc.partition);
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

/// Slots of a job on one host. A job may hold more CPUs there than it has slots, since cores are given as a whole.
fn slots_on(spec: &JobSpec, share: &crate::job::NodeShare) -> u64 {
    u64::from(share.tasks.max(1)) * u64::from(spec.ask.cpus_of_task())
}

fn host_line(spec: &JobSpec, share: &crate::job::NodeShare, queue: &str) -> String {
    let (name, slots) = (&share.name, slots_on(spec, share));
    format!("{name} {slots} {queue}@{name} UNDEFINED\n")
}

/// The identifiers of granted devices, as `SGE_HGR_gpu` has them.
pub(crate) fn granted(numbers: &[u32]) -> String {
    let text: Vec<String> = numbers.iter().map(u32::to_string).collect();
    text.join(" ")
}
