//! Settings of a job submitted by Torque's `qsub` beyond the options of sbatch. `job_env` has the variables of such a
//! job.

use crate::spec::JobSpec;

/// Marks a job of Torque's commands among [`JobSpec::shown`]. Its value is the name of the command.
pub const COMMAND: &str = "torque-command";

/// Whether one of Torque's commands submitted the job.
pub fn is_marked(spec: &JobSpec) -> bool {
    spec.shown.iter().any(|(name, _)| name == COMMAND)
}

/// The hosts of a job with the number of slots on each, a line for each host: what the lines of `PBS_NODEFILE` are made from.
pub const HOSTS: &str = "MUSTER_PBS_HOSTS";

/// Names of variables that describe one job: the new job's own take their place, and none is left over from another job.
pub const VARIABLES: [&str; 16] = [
    "PBS_JOBID",
    "PBS_JOBNAME",
    "PBS_QUEUE",
    "PBS_O_QUEUE",
    "PBS_ACCOUNT",
    "PBS_ARRAYID",
    "PBS_ARRAY_INDEX",
    "PBS_ARRAY_ID",
    "PBS_NP",
    "PBS_NUM_NODES",
    "PBS_NUM_PPN",
    "PBS_NODENUM",
    "PBS_TASKNUM",
    "PBS_WALLTIME",
    "PBS_NODEFILE",
    HOSTS,
];
