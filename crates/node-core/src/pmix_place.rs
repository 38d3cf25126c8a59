//! Where the PMIx host of a step has its files, and how the step is named: launcher and agent have to agree.

use muster_model::ids::{JobAttempt, StepNo};
use muster_proto::node::NodeSettings;

/// Where the kernel keeps shared memory.
pub const SHARED_MEMORY: &str = "/dev/shm";

/// Directories for files of steps, the best first: `PMIxCliTmpDirBase`; else in memory, as nothing in them outlives the
/// step; where there is no such directory, `TmpFS` or /tmp.
pub fn bases(settings: &NodeSettings, node: &str) -> Vec<String> {
    let named = settings.mpi.tmp_base.as_deref().into_iter();
    let bases = named.chain([SHARED_MEMORY, &settings.tmp_fs, "/tmp"]);
    let filled = bases.map(|base| base.replace("%n", node).replace("%h", node));
    filled.filter(|base| base.starts_with('/')).collect()
}

/// The name of a step's PMIx name space, unique in the cluster. Open MPI 5 makes numbers of this: what is before the @ gives one
/// for the job, what follows is taken as it is, so that no two steps of a job have the same.
pub fn namespace(cluster: &str, attempt: JobAttempt, step: StepNo) -> String {
    format!("{cluster}.{}.{}@{step}", attempt.job, attempt.attempt.0)
}
