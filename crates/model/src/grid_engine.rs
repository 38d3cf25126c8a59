//! Settings of a job submitted by `qsub` beyond the options of sbatch. The values are among [`JobSpec::shown`], each
//! under a name of its own. `job_env` has the variables of such a job.

use crate::job::NodeShare;
use crate::spec::JobSpec;

/// Marks a job of the Grid Engine commands. Its value is the name of the command: qsub, qrsh, qlogin.
pub const COMMAND: &str = "ge-command";
/// Name of the queue that was asked for; where several will do, a queue for each partition, `long.q:long,all.q:batch`.
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
/// The job runs a command and no script: `y`.
pub const BINARY: &str = "ge-binary";

/// The queues that `-q` names, as they were given; absent without it.
pub const HARD_QUEUES: &str = "ge-hard-queues";

/// The queues that `-q` names after `-soft`.
pub const SOFT_QUEUES: &str = "ge-soft-queues";

/// The queues that `-masterq` names.
pub const MASTER_QUEUES: &str = "ge-master-queues";

/// Slots of the parallel environment as they were given, where that is more than one number: `2-8`.
pub const PE_RANGE: &str = "ge-pe-range";
/// Directory in which the command was called.
pub const SUBMIT_DIR: &str = "ge-submit-dir";
/// The shell that `-S` names.
pub const SHELL: &str = "ge-shell";

/// The level of `-w` that qsub was given: with `w` and `n`, a job that no node can run is taken and waits.
pub const VERIFY: &str = "ge-verify";

/// The strategy of `-binding`, as it is shown.
pub const BINDING: &str = "ge-binding";

/// All of these names, and that of the commands of Torque.
pub const NAMES: [&str; 17] = [
    COMMAND,
    QUEUE,
    PE,
    HARD,
    SOFT,
    MERGE,
    HOLD_JID,
    BINARY,
    HARD_QUEUES,
    SOFT_QUEUES,
    MASTER_QUEUES,
    PE_RANGE,
    SUBMIT_DIR,
    SHELL,
    VERIFY,
    BINDING,
    crate::torque::COMMAND,
];

/// Settings kept by accounting.
pub const ACCOUNTED: [&str; 6] = [COMMAND, PE, PE_RANGE, HARD, SOFT, HARD_QUEUES];

/// The value under a name.
pub fn value<'a>(spec: &'a JobSpec, name: &str) -> Option<&'a str> {
    let found = spec.shown.iter().find(|(key, _)| key == name);
    found.map(|(_, value)| value.as_str())
}

/// The queue of a job that runs in a partition, as its submitter knows it; the partition's name if nothing is known.
pub fn queue_in<'a>(spec: &'a JobSpec, partition: &'a str) -> &'a str {
    let Some(text) = value(spec, QUEUE).filter(|text| !text.is_empty()) else {
        return partition;
    };
    if !text.contains(':') {
        return text;
    }
    let mut each = text.split(',').filter_map(|one| one.rsplit_once(':'));
    let found = each.find(|(_, own)| *own == partition);
    found.map_or(partition, |(queue, _)| queue)
}

/// The parallel environment that was asked for, and its slots as they were given.
pub fn parallel_environment(spec: &JobSpec) -> Option<(&str, &str)> {
    let (name, least) = value(spec, PE)?.split_once(' ')?;
    let range = value(spec, PE_RANGE).filter(|_| spec.ask.task_range.is_some());
    Some((name, range.unwrap_or(least)))
}

/// Slots of a job on one host. A job may hold more CPUs there than it has slots, since cores are given as a whole.
pub fn slots_on(spec: &JobSpec, share: &NodeShare) -> u64 {
    u64::from(share.tasks.max(1)) * u64::from(spec.ask.cpus_of_task())
}

/// Whether one of the Grid Engine commands submitted the job.
pub fn is_marked(spec: &JobSpec) -> bool {
    value(spec, COMMAND).is_some()
}

/// The strategy of `-binding`; `NONE` if there is none.
pub fn binding(spec: &JobSpec) -> &str {
    value(spec, BINDING).unwrap_or("NONE")
}

/// Whether a job waits that no node can run, instead of being refused: nodes may come.
pub fn waits_if_impossible(spec: &JobSpec) -> bool {
    matches!(value(spec, VERIFY), Some("w" | "n"))
}

/// The content of Grid Engine's host file of a parallel job: a line for each host with its slots and queue.
pub const HOSTS: &str = "MUSTER_PE_HOSTS";

/// Variables with the paths of a job's standard input, output and error.
pub const STREAM_PATHS: [&str; 3] = ["SGE_STDIN_PATH", "SGE_STDOUT_PATH", "SGE_STDERR_PATH"];

/// Names of variables that describe one job: the new job's own take their place, and none is left over from another job.
pub const VARIABLES: [&str; 22] = [
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
    STREAM_PATHS[0],
    STREAM_PATHS[1],
    STREAM_PATHS[2],
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_partition_of_a_job_has_its_queue() {
        let of = |mark: &str| JobSpec {
            shown: vec![(QUEUE.to_owned(), mark.to_owned())],
            ..JobSpec::default()
        };
        for (mark, partition, want) in [
            ("all.q", "batch", "all.q"),
            ("long.q:long,all.q:batch", "batch", "all.q"),
            ("long.q:long,all.q:batch", "long", "long.q"),
            ("long.q:long,all.q:batch", "other", "other"),
            ("", "batch", "batch"),
        ] {
            assert_eq!(queue_in(&of(mark), partition), want, "{mark} {partition}");
        }
        assert_eq!(queue_in(&JobSpec::default(), "batch"), "batch");
    }
}
